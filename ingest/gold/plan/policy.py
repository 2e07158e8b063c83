"""Schema policy: what a logged statement means for one mirror, by its table's ``on_schema_change``.

Rules that apply under every policy:

- A partition that is emptied, dropped, detached or attached holds the mirror of the table: no message says which rows are
  in it. One that has sent no row since its CREATE is taken for empty when it is attached, and one whose rows come under
  its own name has none in that mirror (`ingest.ledgers.reach`).
- A table renamed to a mirror's name holds that mirror: the rows that the table had under its old name are in another
  mirror. If all of them are in silver, they are landed again under the new name (`ingest.gold.plan.carried`), and the statement
  begins a new incarnation. The swap of an online schema tool, and a table known to be empty, are exceptions
  (`ingest.ledgers.resolve`).
- DROP TABLE and RENAME TABLE to another name remove nothing; the CREATE after them begins a new incarnation, which
  clears the mirror. So does a plain CREATE TABLE alone, because it proves that no such table existed.
- Without a key all values identify a row, so a column that the source has dropped or renamed becomes NULL in all rows;
  under the policy ``ignore`` such a statement holds the mirror.
- A default that is not a literal leaves existing rows NULL, and the statement asks for the operator's attention.
- A dismissed statement does nothing; an approved one does what the policy ``lenient`` would, or ``evolve`` if that is
  the table's policy. What is done to the rows of a partition cannot be approved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest import types
from ingest.change import TableId
from ingest.config import TableRule
from ingest.ddl import COPIED, EXCHANGED, MOVED, UNREAD, Effect
from ingest.ddl.effect_model import APART, DETACHED, LOGGED_AGAIN, UNSENT
from ingest.ledgers.decisions import APPROVE, DISMISS
from ingest.ledgers.logged_statements import Statement, effects_on, touched
from ingest.ledgers.mirrors import Mirror, is_full_row
from ingest.ledgers.resolve import (
    CARRIED,
    DOUBTED,
    EMPTY,
    UNSEEN,
    hides_rows,
    is_pinned,
    leaves_open,
    renamed_into,
)
from ingest.ledgers.timeline import LEAVES_NAME, OF_KEYS, Moment, columns_made, moments
from ingest.store.names import as_spelt, folded

HELD, NOTICED, APPLIED, LOGGED, DISMISSED = "held", "noticed", "applied", "logged", "dismissed"
PARTLY = "partly"  # applied, but existing rows lack values that only the source knows
ASKS_AGAIN = {APPLIED: (HELD, NOTICED), LOGGED: (HELD,)}
"""What a folded statement may ask, by what it did: rows that have come since show that it needed a decision."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The table of the mirror in question: its policy, and its columns' types.

    Nothing up to batch ``free_until`` is frozen: that is the mirror's first batch, or the last one folded since. ``rows`` is
    False for a table that has sent no rows; ``sent`` are the columns of new rows with their types. ``keyless`` is True if all values
    identify a row: then a column that the source no longer has must not distinguish rows. ``respells`` is False if rows of
    other tables, or older states, may have values under a column's former name in another letter case. ``recorded`` are the
    states of the statements that the mirror has folded, by their ids: what was done to its rows stays done, whatever the
    policy says by now. ``declared`` are the types and ``keyed_by`` the key that the pipeline file gives, which no statement
    changes.
    """

    table: TableId
    policy: str
    known: Mapping[str, str] = field(default_factory=dict)
    free_until: int = 0
    rows: bool = True
    sent: Mapping[str, str] = field(default_factory=dict)
    keyless: bool = False
    respells: bool = True
    recorded: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)
    keyed_by: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, rule: TableRule, table: TableId, mirror: Mirror | None, free_until: int, *, rows: bool = True,
        sent: Mapping[str, str] | None = None,
    ) -> Subject:  # fmt: skip
        """A source table by its rule and its mirror."""
        sent_types = {column.name: column.type for column in mirror.sent} if mirror else {}
        keyless, respells = is_full_row(rule, mirror), not (rule.history or rule.shard_column)
        types = sent_types | dict(rule.declared)
        return cls(
            table, rule.on_schema_change, types, free_until, rows, sent or {}, keyless, respells, declared=dict(rule.declared),
            keyed_by=rule.keys,
        )  # fmt: skip

    def column(self, name: str, but: object = None) -> str:
        """A column in the rows' spelling: letter case is ignored if only one column has such a name."""
        return as_spelt(name, (self.sent.keys() | self.known.keys()) - {but})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A statement's state, and what it does (or would do, once approved) in words."""

    state: str
    does: tuple[str, ...] = ()
    approvable: bool = True  # False if no message shows what it does
    reload: bool = False  # it leaves rows out that the source must send again


def judge(statement: Statement, subject: Subject) -> Verdict:
    """Judge a statement under a table's policy."""
    effects = [effect for effect in statement.effects if subject.table in touched(effect)]
    does = tuple(_phrase(effect, subject) for effect in effects)
    if statement.kind == "unknown":
        does = ("nothing: the statement could not be read",)
    if statement.kind == "none" and any(effect.action == "create_table" for effect in effects):
        does = (f"describes {subject.table}: gives its keys and columns, and changes no rows",)
    if statement.decided == DISMISS:
        return Verdict(DISMISSED, does)
    approvable = not any(map(hides_rows, effects))
    reload = any(_leaves_out(effect, subject.table) for effect in effects)
    return Verdict(_state(statement, effects, subject), does, approvable, reload)


def _leaves_out(effect: Effect, table: TableId) -> bool:
    """True if rows of the table, or their new values, are in no message of it."""
    if effect.action == "rename_table":
        return effect.to == table
    if effect.action == "truncate_partition":  # no load removes the rows of one that is emptied
        return effect.table == table and effect.other_table is not None
    values = ("add_column", "modify_column", "relabel_column")
    return effect.action in values and effect.note != UNREAD and leaves_open(effect, table)


def _state(statement: Statement, effects: list[Effect], subject: Subject) -> str:
    actions, notes = {effect.action for effect in effects}, {effect.note for effect in effects}
    is_late = statement.batch > subject.free_until
    ignores, freezes = subject.policy == "ignore", subject.policy == "freeze" and is_late
    is_unread = statement.kind == "unknown" or "unread" in actions
    loses_identity = subject.keyless and is_late and not actions.isdisjoint({"drop_column", "rename_column"})
    # the first of these that holds
    cases = (
        (any(map(hides_rows, effects)), HELD),
        (statement.decided == APPROVE, APPLIED),
        (DOUBTED in notes, HELD),
        (_takes_rows(effects, subject.table), HELD if subject.rows else LOGGED),
        (ignores, HELD if loses_identity else LOGGED),
        (is_unread, HELD if freezes else NOTICED),
        (freezes and any(_changes_schema(effect, subject) for effect in effects), HELD),
        (any(leaves_open(effect, subject.table) for effect in effects), PARTLY),
        (any(is_pinned(effect, subject.declared) for effect in effects), PARTLY),
    )
    return next((state for holds, state in cases if holds), APPLIED)


def _takes_rows(effects: Iterable[Effect], table: TableId) -> bool:
    """True if a table with rows has got a name, and has not left it again in the same statement."""
    takes = False
    for effect in effects:
        takes = renamed_into(effect, table) or (
            takes and not (effect.action in LEAVES_NAME and effect.table == table)
        )
    return takes


def _changes_schema(effect: Effect, subject: Subject) -> bool:
    """True if the effect would change a frozen mirror's columns or remove its rows."""
    match effect.action:
        case "add_column":
            return effect.column not in subject.known
        case "modify_column":
            old = subject.known.get(effect.name)
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
    """What an effect does to the mirror, in words; `ingest.gold.plan.steps` and `ingest.gold.plan.declared` do exactly that."""
    case = _case(effect, subject)
    if (effect.action, case) == ("modify_column", ""):
        return _retyped(effect, subject)
    words = _WORDS.get((effect.action, case)) or _WORDS[effect.action, ""]
    kind, why = types.delta(effect.type or "unknown"), effect.note or "it could not be read"
    return words.format(effect=effect, type=kind, why=why)


def _case(effect: Effect, subject: Subject) -> str:
    """Which of the phrases for an action says what this effect does."""
    note = effect.note or ""
    if note and (effect.action, note) in _WORDS:
        return note
    if leaves_open(effect, subject.table):
        return _OPEN
    match effect.action:
        case "add_column" if effect.default is not None:
            return _FILLED
        case "drop_column" | "rename_column" if not drops_column(effect, subject):
            return _EMPTIED if subject.keyless else _KEPT
        case "rename_table" if effect.to == subject.table:
            return _LEFT
        case "create_table" if subject.policy == "evolve":
            return _EVOLVED
    return ""


def _retyped(effect: Effect, subject: Subject) -> str:
    column, old = effect.column, subject.known.get(effect.name)
    if effect.type is None:
        return f"leaves column {column} as it is"
    new = types.delta(effect.type)
    if old is None:
        return f"declares column {column} as {new}"
    before, after = types.delta(old), types.delta(types.grown(old, effect.type))
    if is_pinned(effect, subject.declared):
        return (
            f"keeps column {column} as {before}, because the pipeline file declares it so, and {new} does not fit: write "
            f"{effect.type} under columns: of this table, then `ingest backfill`"
        )
    if before == new:
        return f"leaves column {column} as it is"
    if before == after:
        return f"keeps column {column} as {before}, which holds the new values too"
    if after == new and types.widens(before, after):
        return f"widens column {column} to {after}"
    return f"changes column {column} to {after}, which holds old and new values, once rows of type {new} come"


# an effect's case, where its note does not say it
_OPEN, _FILLED, _EMPTIED, _KEPT, _LEFT, _EVOLVED = "open", "filled", "emptied", "kept", "left", "evolved"

# what effects do, by their action and their case
_WORDS: dict[tuple[str, str], str] = {
    ("add_column", ""): "adds column {effect.column} ({type})",
    ("add_column", UNREAD): "has column {effect.column} ({type}); what became of the rows is not known",
    ("add_column", _FILLED): "adds column {effect.column} ({type}); existing rows get {effect.default!r}",
    ("add_column", _OPEN): (
        "adds column {effect.column} ({type}); existing rows have NULL, because only the source knows their values: "
        "load them again"
    ),
    ("drop_column", ""): "drops column {effect.column}",
    ("drop_column", _KEPT): "keeps column {effect.column}; rows sent from there on have NULL",
    ("drop_column", _EMPTIED): (
        "empties column {effect.column}: without a key, rows are distinguished by the columns that the source has"
    ),
    ("rename_column", ""): "adds column {effect.to} with the values of {effect.column}",
    (
        "rename_column",
        _KEPT,
    ): "adds column {effect.to} with the values of {effect.column}, and keeps {effect.column}",
    (
        "rename_column",
        _EMPTIED,
    ): "adds column {effect.to} with the values of {effect.column}, and empties {effect.column}",
    ("rename_column", EXCHANGED): (
        "gives column {effect.to} the values of {effect.column}, while others exchange theirs"
    ),
    ("modify_column", _OPEN): (
        "empties the generated column {effect.column}: only the source knows its new values; load the rows again"
    ),
    ("modify_column", MOVED): (
        "keeps what older rows have in column {effect.column}, which is another column now: only the source knows its values; "
        "load the rows again"
    ),
    ("relabel_column", ""): (
        "gives rows with {effect.default!r} in column {effect.column} the value {effect.to!r}"
    ),
    ("relabel_column", _OPEN): (
        "keeps {effect.default!r} in column {effect.column}, which is no label of its type any more: only the source knows what "
        "these rows have; load them again"
    ),
    ("unread", ""): "nothing: what it does to {effect.table} is not known: {why}",
    ("add_foreign_key", ""): (
        "lets rows of {effect.table} change with those of another table ({effect.note}), which MySQL and MariaDB "
        "do not log: compare them with `ingest reconcile`, then approve"
    ),
    ("create_table", ""): "gives the keys and columns of {effect.table}; earlier rows are deleted",
    ("create_table", DOUBTED): (
        "removes the rows of {effect.table}, if its name in another letter case is the same table; if it is "
        "another table, dismiss it"
    ),
    ("create_table", CARRIED): (
        "removes the rows of {effect.table}, and goes on with those of the table that has got this name"
    ),
    ("create_table", "if-not-exists"): (
        "gives the keys and columns of {effect.table}; earlier rows are deleted only if it was dropped before"
    ),
    ("create_table", _EVOLVED): (
        "gives the keys and columns of {effect.table}; earlier rows, and columns that it lacks, are deleted"
    ),
    ("drop_table", ""): "keeps the rows of {effect.table} until it is created again",
    ("drop_database", ""): "keeps the rows of {effect.table} until its tables are created again",
    (
        "swap_table",
        "",
    ): "goes on with the rows of {effect.table}, and does to them what was done to {effect.to} before",
    ("swap_table", UNSEEN): (
        "goes on with the rows of {effect.table}; what was done to {effect.to} before is not known"
    ),
    ("rename_table", ""): (
        "goes on with the rows sent under the name {effect.to}; those sent under {effect.table} stay there"
    ),
    ("rename_table", _LEFT): (
        "removes the rows of {effect.to}; those sent under {effect.table} stay there: load them again"
    ),
    ("truncate", ""): "removes the rows of {effect.table}",
    (
        "truncate_partition",
        "",
    ): "nothing: no message shows which rows of {effect.table} are deleted or inserted",
    ("truncate_partition", EMPTY): (
        "takes {effect.to} for empty, because it has sent no row: if its rows are not published, load them"
    ),
    (
        "truncate_partition",
        LOGGED_AGAIN,
    ): "nothing by itself: what it left out counts where {effect.table} is logged again",
    ("truncate_partition", UNSENT): "nothing: no row of the table has come under the name {effect.table}",
    ("truncate_partition", APART): "nothing: rows of {effect.to} come under its own name",
    ("truncate_partition", DETACHED): (
        "nothing: no message shows which of the rows that came under the name {effect.to} are those of {effect.table}"
    ),
    ("comment_column", ""): "nothing to the rows: a comment",
    ("add_primary_key", ""): "gives the key of {effect.table}",
    ("drop_primary_key", ""): "keeps the key of {effect.table} until a row or a statement names another",
    ("default_charset", ""): "nothing to the rows of {effect.table}: the character set of new columns",
    ("convert_charset", ""): "changes the characters that the new character set of {effect.table} lacks",
}


# --- what a policy applies ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a table's policy applies of the statements on it, moment by moment, with names as `spelt` gives them."""

    statements: Sequence[Statement]
    subject: Subject
    moments: Sequence[Moment]

    @classmethod
    def of(cls, statements: Iterable[Statement], subject: Subject) -> Timeline:
        """That of the statements about a table, in order."""
        statements = list(statements)
        applied = (statement for statement in statements if _is_applied(statement, subject))
        return cls(statements, subject, [*moments(spelt(applied, subject), subject.table)])

    def by_statement(self) -> list[tuple[str, list[Effect]]]:
        """The effects by the place of their statement."""
        effects: dict[str, list[Effect]] = {}
        for moment in self.moments:
            effects.setdefault(moment.place, []).extend(moment.effects)
        return list(effects.items())

    def rekeying(self) -> Timeline:
        """The same, where a repeated statement gives another key once more: the rows before it were repeated under the old one."""
        if not any(statement.first for statement in self.statements):
            return self
        return self.of(map(_rekeying, self.statements), self.subject)


def _is_applied(statement: Statement, subject: Subject) -> bool:
    return (subject.recorded.get(statement.id) or judge(statement, subject).state) in (APPLIED, PARTLY)


def spelt(statements: Iterable[Statement], subject: Subject) -> Iterator[tuple[Statement, Effect]]:
    """The effects of statements on a table, in order, with column names in the spelling of rows and statements."""
    made: dict[str, str] = {}
    for statement, effect in effects_on(subject.table, statements):
        yield statement, _spelt(effect, replace(subject, sent={**made, **subject.sent}))
        made |= dict.fromkeys(columns_made(effect), "unknown")


def _spelt(effect: Effect, subject: Subject) -> Effect:
    """The effect with existing columns in the rows' spelling: MySQL ignores their letter case."""
    if effect.note == EXCHANGED:
        return effect  # as it was resolved: the names that rows have by now are those of other columns
    if effect.action in ("drop_column", "rename_column", "modify_column", "comment_column"):
        return replace(effect, column=subject.column(effect.name, effect.to))
    if effect.action == "add_primary_key":
        return replace(effect, keys=tuple(map(subject.column, effect.keys)))
    return effect


def recased(ring: Iterable[Effect]) -> list[Effect]:
    """The names that an exchange gives in another letter case only, each as a rename of its own to that."""
    given = {folded(rename.new_name): rename.new_name for rename in ring}
    renames = (replace(rename, to=given.get(folded(rename.name), rename.name)) for rename in ring)
    return [rename for rename in renames if rename.name != rename.to]


def rekeys(effect: Effect, keys: Collection[str], *, is_declared: bool) -> bool:
    """True if an effect names another key than this one, or a column of it; a declared key is not dropped."""
    if effect.action in ("rename_column", "modify_column"):
        return effect.column in keys or effect.to in keys
    names_another = effect.action in OF_KEYS and set(effect.keys) != set(keys)
    return names_another and bool(effect.keys or not is_declared)


def _rekeying(statement: Statement) -> Statement:
    did = statement.first.effects if statement.first else ()
    keys = tuple(
        effect
        for effect in did
        if effect.action in OF_KEYS or (effect.action == "rename_column" and effect.note != EXCHANGED)
    )
    return replace(statement, effects=(*statement.effects, *keys)) if keys else statement


def drops_column(effect: Effect, subject: Subject) -> bool:
    """True if rows lose the column that an effect drops or renames: a new name in another letter case replaces it."""
    respelt = effect.action == "rename_column" and folded(effect.name) == folded(effect.new_name)
    return subject.policy == "evolve" or (respelt and subject.respells)
