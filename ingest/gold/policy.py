"""Schema policy: what a logged statement means for one mirror, by its table's ``on_schema_change``.

Rules that apply under every policy:

- A TRUNCATE of a partition holds the mirror: no message says which rows were in it.
- A table renamed to a mirror's name holds that mirror: the rows that the table had under its old name are in another
mirror. The swap of an online schema tool, and a table known to be empty, are exceptions
  (`ingest.lake.resolve`).
- DROP TABLE and RENAME TABLE to another name remove nothing; the CREATE after them begins a new incarnation, which
clears the mirror. So does a plain CREATE TABLE alone, because it proves that no such table existed.
- Without a key all values identify a row, so a column that the source has dropped or renamed becomes NULL in all rows;
  under the policy ``ignore`` such a statement holds the mirror.
- A default that is not a literal leaves existing rows NULL, and the statement asks for the operator's attention.
- A dismissed statement does nothing; an approved one does what the policy ``lenient`` would, or ``evolve`` if that is
the table's policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ingest import types
from ingest.change import TableId
from ingest.config import TableRule
from ingest.ddl import COMPUTED, COPIED, EXCHANGED, UNREAD, Effect, columns
from ingest.fold import SchemaStep
from ingest.lake.decisions import APPROVE, DISMISS
from ingest.lake.mirrors import Mirror, is_full_row
from ingest.lake.names import folded
from ingest.lake.resolve import DOUBTED, RESPELT, UNSEEN, Presence, leaves_open, renamed_into
from ingest.lake.statements import Statement, touched
from ingest.values.conversions import KEEP, UNSAID, in_charset, named

HELD, NOTICED, APPLIED, LOGGED, DISMISSED = "held", "noticed", "applied", "logged", "dismissed"
PARTLY = "partly"  # applied, but existing rows lack values that only the source knows


@dataclass(frozen=True, slots=True)
class Subject:
    """The table of the mirror in question: its policy, and its columns' types.

    Nothing up to batch ``frozen`` is frozen: it is the mirror's first batch, or the last one folded since. ``rows`` is
    False for a table that has sent no rows; ``sent`` are the columns of new rows with their types. ``keyless`` is True if all values
    identify a row: then a column that the source no longer has must not distinguish rows. ``respells`` is False if rows of
    other tables, or older states, may have values under a column's former name in another letter case.
    """

    table: TableId
    policy: str
    known: Mapping[str, str] = field(default_factory=dict)
    frozen: int = 0
    rows: bool = True
    sent: Mapping[str, str] = field(default_factory=dict)
    keyless: bool = False
    respells: bool = True

    @classmethod
    def of(
        cls, rule: TableRule, table: TableId, mirror: Mirror | None, frozen: int, *, rows: bool = True,
        sent: Mapping[str, str] | None = None,
    ) -> Subject:  # fmt: skip
        """A source table by its rule and its mirror."""
        known = {one.name: one.type for one in mirror.sent} if mirror else {}
        keyless, respells = is_full_row(rule, mirror), not (rule.history or rule.shard_column)
        types = known | dict(rule.declared)
        return cls(table, rule.on_schema_change, types, frozen, rows, sent or {}, keyless, respells)

    def column(self, name: str, but: object = None) -> str:
        """A column in the rows' spelling: letter case is ignored if only one column has such a name."""
        names = (self.sent.keys() | self.known.keys()) - {but}
        if name in names:
            return name
        found = [one for one in names if one.casefold() == name.casefold()]
        return found[0] if len(found) == 1 else name


@dataclass(frozen=True, slots=True)
class Verdict:
    """A statement's state, and what it does (or would do, once approved) in words."""

    state: str
    does: tuple[str, ...] = ()
    approvable: bool = True  # False if no message shows what it does
    reload: bool = False  # it leaves rows out that the source must send again


def concerns(statement: Statement, table: TableId) -> bool:
    """True if the statement is about the table; an unreadable one counts for its message's table."""
    return table in statement.tables


def judge(statement: Statement, subject: Subject) -> Verdict:
    """Judge a statement under a table's policy."""
    effects = [one for one in statement.effects if subject.table in touched(one)]
    does = tuple(_phrase(effect, subject) for effect in effects)
    if statement.kind == "unknown":
        does = ("nothing: the statement could not be read",)
    if statement.decided == DISMISS:
        return Verdict(DISMISSED, does)
    approvable = not any(one.action == "truncate_partition" for one in effects)
    reload = any(_leaves_out(one, subject.table) for one in effects)
    return Verdict(_state(statement, effects, subject), does, approvable, reload)


def _leaves_out(effect: Effect, table: TableId) -> bool:
    """True if rows of the table, or their new values, are in no message of it."""
    if effect.action == "rename_table":
        return effect.to == table
    return effect.action == "add_column" and effect.note != UNREAD and leaves_open(effect, table)


def _state(statement: Statement, effects: list[Effect], subject: Subject) -> str:
    if any(effect.action == "truncate_partition" for effect in effects):
        return HELD
    if statement.decided == APPROVE:
        return APPLIED
    if any(effect.note == DOUBTED for effect in effects):
        return HELD
    if any(renamed_into(effect, subject.table) for effect in effects):
        return HELD if subject.rows else NOTICED
    if subject.policy == "ignore":
        lost = subject.keyless and any(one.action in ("drop_column", "rename_column") for one in effects)
        return HELD if lost and statement.batch > subject.frozen else LOGGED
    freezes = subject.policy == "freeze" and statement.batch > subject.frozen
    if statement.kind == "unknown":
        return HELD if freezes else NOTICED
    if freezes and any(_changes_schema(effect, subject) for effect in effects):
        return HELD
    return PARTLY if any(leaves_open(effect, subject.table) for effect in effects) else APPLIED


def _changes_schema(effect: Effect, subject: Subject) -> bool:
    """True if the effect would change a frozen mirror's columns or remove its rows."""
    match effect.action:
        case "add_column":
            return effect.column not in subject.known
        case "modify_column":
            old = subject.known.get(effect.column or "")
            if effect.note == COPIED and old is not None and effect.type is not None:
                return types.outgrows(old, effect.type)
            return effect.type is not None and effect.type != old
        case "create_table":
            return effect.note != "if-not-exists"
        case "swap_table":
            return effect.note == UNSEEN
    return effect.action in (
        "drop_table", "drop_column", "rename_column", "add_primary_key", "drop_primary_key"
    )  # fmt: skip


# --- in words -----------------------------------------------------------------------------------


def _phrase(effect: Effect, subject: Subject) -> str:
    """What an effect does to the mirror, in words; `steps` and `shown` do exactly that."""
    column, drops = effect.column, drops_column(effect, subject)
    match effect.action:
        case "add_column":
            filled = f"; existing rows get {effect.default!r}" if effect.default is not None else ""
            if effect.note == UNREAD:
                return f"has column {column} ({types.delta(effect.type or 'unknown')}); what became of the rows is not known"
            if leaves_open(effect, subject.table):
                filled = (
                    "; existing rows have NULL, because only the source knows their values: load them again"
                )
            return f"adds column {column} ({types.delta(effect.type or 'unknown')}){filled}"
        case "drop_column" if subject.keyless and not drops:
            return f"empties column {column}: without a key, rows are distinguished by the columns that the source has"
        case "drop_column":
            return (
                f"drops column {column}"
                if drops
                else f"keeps column {column}; rows sent from there on have NULL"
            )
        case "rename_column":
            if effect.note == EXCHANGED:
                return f"gives column {effect.to} the values of {column}, while others exchange theirs"
            kept = "" if drops else f", and {'empties' if subject.keyless else 'keeps'} {column}"
            return f"adds column {effect.to} with the values of {column}{kept}"
        case "modify_column":
            return _retyped(effect, subject)
        case "rename_table" if effect.to == subject.table:
            return f"removes the rows of {effect.to}; those sent under {effect.table} stay there: load them again"
        case "add_foreign_key":
            return (
                f"lets rows of {effect.table} change with those of another table ({effect.note}), which MySQL and MariaDB "
                "do not log: compare them with `ingest reconcile`, then approve"
            )
        case "create_table" if effect.note == DOUBTED:
            return (
                f"removes the rows of {effect.table}, if its name in another letter case is the same table; if it is "
                "another table, dismiss it"
            )
        case "create_table" if subject.policy == "evolve":
            return f"gives the keys and columns of {effect.table}; earlier rows, and columns that it lacks, are deleted"
        case "swap_table" if effect.note == UNSEEN:
            return (
                f"goes on with the rows of {effect.table}; what was done to {effect.to} before is not known"
            )
    return _WORDS[effect.action].format(table=effect.table, to=effect.to)


def _retyped(effect: Effect, subject: Subject) -> str:
    column, old = effect.column, subject.known.get(effect.column or "")
    if effect.type is None:
        return f"leaves column {column} as it is"
    new = types.delta(effect.type)
    if old is None:
        return f"declares column {column} as {new}"
    before, after = types.delta(old), types.delta(types.grown(old, effect.type))
    if before == new:
        return f"leaves column {column} as it is"
    if before == after:
        return f"keeps column {column} as {before}, which holds the new values too"
    if after == new and types.widens(before, after):
        return f"widens column {column} to {after}"
    return f"changes column {column} to {after}, which holds old and new values, once rows of type {new} come"


_WORDS = {
    "create_table": "gives the keys and columns of {table}; earlier rows are deleted",
    "drop_table": "keeps the rows of {table} until it is created again",
    "drop_database": "keeps the rows of {table} until its tables are created again",
    "swap_table": "goes on with the rows of {table}, and does to them what was done to {to} before",
    "rename_table": "goes on with the rows sent under the name {to}; those sent under {table} stay there",
    "truncate": "removes the rows of {table}",
    "truncate_partition": "nothing: no message shows which rows of {table} are deleted or inserted",
    "comment_column": "nothing to the rows: a comment",
    "add_primary_key": "gives the key of {table}",
    "drop_primary_key": "keeps the key of {table} until a row or a statement names another",
    "default_charset": "nothing to the rows of {table}: the character set of new columns",
    "convert_charset": "changes the characters that the new character set of {table} lacks",
}


# --- what statements show and do ------------------------------------------------------------------


@dataclass(slots=True)
class Shown:
    """What applied statements say of a table: its key, its columns, and which columns were dropped, and when."""

    keys: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)  # column -> order key; only where drops are applied
    # those that the mirror may have, because new statements dropped them
    dropped: set[str] = field(default_factory=set)
    comments: dict[str, str] = field(default_factory=dict)
    # names that were dropped and reused since: other columns now
    again: set[str] = field(default_factory=set)
    # per new statement its order key, and the names that it gives to other columns than rows before it may show: by name,
    # the column whose values come under it, empty for a new one
    reused: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def applied(statements: Iterable[Statement], subject: Subject) -> Iterator[tuple[Statement, Effect]]:
    """The effects on a table that its policy applies, in order, with column names in the spelling of rows and
    statements.
    """
    made: dict[str, str] = {}
    for statement in statements:
        if judge(statement, subject).state in (APPLIED, PARTLY):
            for effect in statement.effects:
                if subject.table in touched(effect):
                    yield statement, _spelt(effect, replace(subject, sent={**made, **subject.sent}))
                    made |= dict.fromkeys(_made_by(effect), "unknown")


def _made_by(effect: Effect) -> set[str]:
    """The column names that exist after an effect."""
    if effect.action == "create_table":
        return {one.name for one in effect.columns}
    name = effect.to if effect.action == "rename_column" else effect.column
    return {str(name)} if effect.action in ("add_column", "rename_column") else set()


def _spelt(effect: Effect, subject: Subject) -> Effect:
    """The effect with existing columns in the rows' spelling: MySQL ignores their letter case."""
    if effect.action in ("drop_column", "rename_column", "modify_column", "comment_column"):
        return replace(effect, column=subject.column(effect.column or "", effect.to))
    if effect.action == "add_primary_key":
        return replace(effect, keys=tuple(map(subject.column, effect.keys)))
    return effect


def departed(statements: Iterable[Statement], subject: Subject) -> dict[str, str]:
    """Columns that the source has dropped or renamed, under any policy, with the statements' places."""
    found: dict[str, str] = {}
    for statement in statements:
        if judge(statement, subject).state == DISMISSED:
            continue
        for effect in statement.effects:
            if subject.table not in touched(effect) or effect.note == EXCHANGED:
                continue
            if effect.action in ("drop_column", "rename_column"):
                found[subject.column(effect.column or "")] = statement.order
            for name in _made_by(effect):
                found.pop(name, None)
    return found


def rings(effects: Iterable[tuple[Statement, Effect]]) -> Iterator[tuple[Statement, tuple[Effect, ...]]]:
    """Group effects: renames that exchange names form one group, every other effect is alone."""
    ring: list[Effect] = []
    for statement, effect in effects:
        ring.append(effect)
        if effect.action != "rename_column" or effect.note != EXCHANGED or effect.to == ring[0].column:
            yield statement, tuple(ring)
            ring = []


OF_KEYS = frozenset({"create_table", "add_primary_key", "drop_primary_key"})


def by_statement(
    statements: Iterable[Statement], subject: Subject, *, again: bool = False
) -> list[tuple[str, list[Effect]]]:
    """The effects that the policy applies, by the place of their statement.

    With ``again`` a repeated statement has those that give another key: the rows before it were repeated under the old
    one.
    """
    found: dict[str, list[Effect]] = {}
    statements = [_rekeying(one) if again else one for one in statements]
    for statement, effect in applied(statements, subject):
        found.setdefault(statement.order, []).append(effect)
    return list(found.items())


def _rekeying(statement: Statement) -> Statement:
    did = statement.first.effects if statement.first else ()
    keys = tuple(
        one
        for one in did
        if one.action in OF_KEYS or (one.action == "rename_column" and one.note != EXCHANGED)
    )
    return replace(statement, effects=(*statement.effects, *keys)) if keys else statement


def shown(statements: Iterable[Statement], subject: Subject, since: int = 0) -> Shown:
    """Keys and columns as applied statements declare them; later ones win.

    Args:
        statements: of one table, in order.
        subject: the table.
        since: the last batch that the mirror has folded.
    """
    statements, columns = list(statements), _Columns(subject)
    for statement, effects in rings(applied(statements, subject)):
        columns.take(effects, statement, new=statement.batch > since)
    for statement in statements:
        for effect in statement.first.effects if statement.first else ():
            columns.lose_again(effect, statement.order, new=statement.batch > since)
    return columns.found


@dataclass(slots=True)
class _Columns:
    """What the statements so far show of a table, and which of its columns' names are free."""

    subject: Subject
    found: Shown = field(default_factory=Shown)
    presence: Presence = field(default_factory=Presence)
    vacant: set[str] = field(default_factory=set)  # names that columns have had, and no column has now
    lost: set[str] = field(default_factory=set)  # those of columns that rows have lost, too

    def take(self, effects: Sequence[Effect], statement: Statement, *, new: bool) -> None:
        """Add one effect, or renames that exchange names; ``new`` if the mirror has not folded their statement."""
        exchanged, begins = len(effects) > 1, self.presence.begins(effects[0], statement, self.subject.table)
        taken = self._exchange(effects) if exchanged else self._declare(effects[0])
        if new and taken:
            self.found.reused.append((statement.order, taken))
        if not exchanged:
            self._lose(effects[0], statement.order, new=new, begins=begins)
        elif new and self.subject.policy == "evolve":
            self.found.again |= taken.keys()

    def _lose(self, effect: Effect, order: str, *, new: bool, begins: bool) -> None:
        """Note which columns rows lose by an effect, and which name of a lost one now belongs to another."""
        found, name = self.found, effect.column or ""
        came = {"add_column": name, "rename_column": str(effect.to)}.get(effect.action)
        if came in self.lost:
            self.lost.remove(came)
            found.again |= {came} if new else set()
        lost = _respelt(effect, self.vacant, self.subject)
        if effect.action in ("drop_column", "rename_column") and drops_column(effect, self.subject):
            lost.add(name)
        if begins and self.subject.policy == "evolve":
            known = self.subject
            lost |= self._not_made_again(
                effect, found.columns.keys() | known.known.keys() | known.sent.keys()
            )
        self.lost |= lost
        found.again -= lost
        found.dropped |= lost if new else set()
        for past in lost:
            found.columns.pop(past, None)
            found.gone[past] = order

    def lose_again(self, effect: Effect, order: str, *, new: bool) -> None:
        """Add an effect of a repeated statement: rows before it were repeated, and they lose the same columns."""
        found = self.found
        match effect.action:
            case "create_table":
                lost = self._not_made_again(effect, found.gone.keys())
            case "drop_column" | "rename_column":
                lost = {self.subject.column(effect.column or "")} & found.gone.keys()
            case _:
                return
        found.gone |= {name: max(found.gone[name], order) for name in lost}
        found.dropped |= lost if new else set()

    def _not_made_again(self, effect: Effect, names: Collection[str]) -> set[str]:
        """Columns that a table does not have any more since it was created again."""
        if not effect.columns or effect.note not in (None, "if-not-exists"):
            return set()  # of LIKE and AS SELECT some columns are in no statement
        made = {folded(one.name) for one in effect.columns}
        return {one for one in names if folded(one) not in made and one not in self.found.keys}

    def _declare(self, effect: Effect) -> dict[str, str]:
        """Add one effect; returns the free name that it gives to a column, with the one under which its values were."""
        found, name, to = self.found, effect.column or "", str(effect.to)
        taken: dict[str, str] = {}
        match effect.action:
            case "create_table":
                self.vacant = (self.vacant | found.columns.keys()) - {one.name for one in effect.columns}
                found.keys = effect.keys or found.keys
                for one in effect.columns:
                    self._show(one.name, one.type or "unknown", one.comment)
            case "add_column" | "modify_column":
                if effect.action == "add_column" and name in self.vacant:
                    taken = {name: ""}
                    self.vacant.remove(name)
                self._show(name, effect.type or self._type_of(name), effect.comment)
            case "add_primary_key":
                found.keys = effect.keys or found.keys
            case "comment_column" if effect.comment is not None:
                found.comments[name] = effect.comment
            case "rename_column":
                taken = {to: name} if to in self.vacant else {}
                self.vacant = (self.vacant | {name}) - {to}
                self._show(to, self._type_of(name), found.comments.get(name))
                found.keys = tuple(to if key == name else key for key in found.keys)
            case "drop_column":
                self.vacant.add(name)
        return taken

    def _exchange(self, ring: Sequence[Effect]) -> dict[str, str]:
        """Columns that exchange names keep their types, comments and places in the key; returns old names by new ones."""
        found, names = self.found, {one.column or "": str(one.to) for one in ring}
        found.columns |= {new: self._type_of(old) for old, new in names.items()}
        found.comments |= {new: found.comments[old] for old, new in names.items() if old in found.comments}
        found.keys = tuple(names.get(key, key) for key in found.keys)
        return {new: old for old, new in names.items()}

    def _show(self, name: str, logical: str, comment: str | None) -> None:
        self.found.columns[name] = logical
        self.found.gone.pop(name, None)
        self.found.dropped.discard(name)
        if comment is not None:
            self.found.comments[name] = comment

    def _type_of(self, name: str) -> str:
        known = self.subject
        return self.found.columns.get(name) or known.known.get(name) or known.sent.get(name) or "unknown"


def drops_column(effect: Effect, subject: Subject) -> bool:
    """True if rows lose the column that an effect drops or renames: a new name in another letter case replaces it."""
    respelt = effect.action == "rename_column" and folded(effect.column or "") == folded(str(effect.to))
    return subject.policy == "evolve" or (respelt and subject.respells)


def _respelt(effect: Effect, vacant: Collection[str], subject: Subject) -> set[str]:
    """Names of former columns that an effect gives again in another letter case: a mirror cannot have both."""
    made, seen = _made_by(effect), subject.sent.keys() | subject.known.keys()
    spellings = {folded(one) for one in made}
    lost = {one for one in vacant if folded(one) in spellings}
    # rows that spell all names otherwise, as those of an Oracle table may, go on under theirs
    if effect.action == "create_table" and made & subject.sent.keys():
        shown = {folded(one) for one in made & seen}
        lost |= {one for one in seen if folded(one) in shown}
    return lost - made if subject.respells else set()


def steps(statements: Iterable[Statement], subject: Subject) -> list[tuple[SchemaStep, int]]:
    """The steps that change rows without row messages, each with its batch."""
    statements = list(statements)
    found: list[tuple[SchemaStep, int]] = []
    taken: dict[str, list[SchemaStep]] = {}
    walk = _Walk(subject.table, subject)
    for statement, effects in rings(applied(statements, subject)):
        made = walk.exchange(effects, statement) if len(effects) > 1 else walk.take(effects[0], statement)
        mine = list(made)
        taken.setdefault(statement.id, []).extend(mine)
        found.extend((step, statement.batch) for step in mine)
    again = [(step, one.batch) for one in statements for step in _again(one, taken)]
    return sorted([*found, *again], key=lambda one: one[0].order) if again else found


def _again(statement: Statement, taken: Mapping[str, Sequence[SchemaStep]]) -> Iterator[SchemaStep]:
    """The effect of a repeated statement: the same, on the rows that were repeated before it."""
    if statement.first is not None:
        order, since = cast("Any", statement.order), cast("Any", statement.since)
        for step in taken.get(statement.first.id, ()):
            if not step.empties:
                yield step._replace(order=order, since=since)


_TEXTS = ("string", "enum", "set")


def _is_mysql(effect: Effect) -> bool:
    return effect.dialect is None and effect.table.schema is None


@dataclass(slots=True)
class _Walk:
    """The source's columns according to its statements, and columns that are gone there but still in the mirror."""

    table: TableId
    subject: Subject
    stale: set[str] = field(default_factory=set)
    types: dict[str, str] = field(default_factory=dict)  # as statements have declared columns so far
    charset: str = UNSAID  # of new columns
    charsets: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)  # columns that a statement has created and none has dropped
    presence: Presence = field(default_factory=Presence)

    def take(self, effect: Effect, statement: Statement) -> Iterator[SchemaStep]:
        """One effect's steps. A reused name starts empty: its old values belong to another column."""
        name, to = effect.column or "", str(effect.to)
        order: Any = statement.order
        if self.presence.begins(effect, statement, self.table):
            self.stale.clear()
            self.made = {one.name for one in effect.columns}
            self.charset, self.charsets = UNSAID, {}
            self._declare(effect)
            yield SchemaStep(order, "new_incarnation")
            return
        match effect.action:
            case "truncate" if effect.note == RESPELT:
                yield SchemaStep(order, "new_incarnation")
            case "modify_column" if effect.type is not None:
                yield from self._retype(effect, order)
            case "convert_charset":
                yield from self._convert(effect, order)
            case "add_column" if name in self.made:  # a repeated statement, or IF NOT EXISTS
                return
            case "add_column":
                yield from self._revive(name, order)
                self.made.add(name)
                if effect.default is not None:
                    yield SchemaStep(
                        order, "add_column", name, default=effect.default, guarded=effect.guarded
                    )
            case "rename_column":
                yield from self._revive(to, order)
                self.made.add(to)
                yield SchemaStep(order, "rename_column", name, to)
                yield from self._leave(effect, order)
            case "drop_column":
                yield from self._leave(effect, order)
        self._declare(effect)

    def _declare(self, effect: Effect) -> None:
        if effect.action == "create_table":
            self.types.update({one.name: named(one.type or "", one.declared or "") for one in effect.columns})
            self.charset = effect.charset or UNSAID
            self.charsets = {one.name: one.charset or self.charset for one in effect.columns}
        elif effect.action in ("default_charset", "convert_charset"):
            self.charset = effect.charset or UNSAID
        elif effect.action == "rename_column":
            self.types[str(effect.to)] = self.types.pop(effect.column or "", "")
            if charset := self.charsets.pop(effect.column or "", ""):
                self.charsets[str(effect.to)] = charset
        elif effect.column and effect.type:
            self.types[effect.column] = named(effect.type, effect.declared or "")
            self.charsets[effect.column] = effect.charset or self.charset

    def _retype(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """What the source does to its rows; if no statement has named the old type, their messages may."""
        name = effect.column or ""
        step = SchemaStep(
            order,
            "retype_column",
            name,
            old=self.types.get(name, ""),
            type=effect.type or "",
            declared=self._declared(effect),
            mysql=_is_mysql(effect),
            solid=effect.solid,
            zero=columns.zero(effect) if effect.solid else None,
            computed=effect.note in (COMPUTED, "generated"),
            serial=effect.note == "identity",
        )
        if not step.old or step.solid or step.serial or step.conversion() != KEEP:
            yield step

    def _declared(self, effect: Effect) -> str:
        """The type that a column is changed to, with its character set if that changes or may change.

        A MODIFY without a character set gives a text column that of its table.
        """
        declared, new = effect.declared or "", effect.charset or self.charset
        texts = types.base(effect.type or "") in _TEXTS and _is_mysql(effect)
        changes = texts and new != self.charsets.get(effect.column or "")
        return in_charset(declared, new) if changes else declared

    def _convert(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """What ``CONVERT TO CHARACTER SET`` does to text columns; types that no statement names come from messages."""
        charset = str(effect.charset)
        for name in sorted({*self.subject.known, *self.subject.sent, *self.types} - self.stale):
            old = self.types.get(name, "")
            known = types.base(old or self.subject.known.get(name, "unknown"))
            if self.charsets.get(name) != charset and known in (*_TEXTS, "unknown"):
                step = SchemaStep(
                    order, "retype_column", name, old=old, type="string", declared=in_charset("", charset),
                    computed=charset == "binary" or effect.note == COMPUTED,
                )  # fmt: skip
                if step.conversion() != KEEP:
                    yield step
            self.charsets[name] = charset

    def exchange(self, ring: Sequence[Effect], statement: Statement) -> Iterator[SchemaStep]:
        """Columns that exchange names in one statement: the last one's values are kept under a temporary name
        meanwhile.
        """
        order: Any = statement.order
        waiting = f"{ring[-1].column} exchanged"
        yield SchemaStep(order, "rename_column", str(ring[-1].column), waiting)
        for one in reversed(ring[:-1]):
            yield SchemaStep(order, "drop_column", str(one.to))
            yield SchemaStep(order, "rename_column", str(one.column), str(one.to))
        yield SchemaStep(order, "drop_column", str(ring[-1].to))
        yield SchemaStep(order, "rename_column", waiting, str(ring[-1].to))
        yield SchemaStep(order, "drop_column", waiting)
        self.types |= {str(one.to): self.types.get(one.column or "", "") for one in ring}
        sets = {str(one.to): self.charsets.pop(one.column or "", "") for one in ring}
        self.charsets |= {name: charset for name, charset in sets.items() if charset}
        self.stale -= {str(one.to) for one in ring}
        self.made |= {str(one.to) for one in ring}

    def _revive(self, name: str, order: Any) -> Iterator[SchemaStep]:
        if name in self.stale:
            self.stale.discard(name)
            yield SchemaStep(order, "drop_column", name)

    def _leave(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        name = effect.column or ""
        self.stale.add(name)
        self.made.discard(name)
        if self.subject.keyless or drops_column(effect, self.subject):
            yield SchemaStep(order, "drop_column", name)
