"""The steps by which statements change rows without row messages: for the stage, and for code that folds outside of it,
such as the check of cells and `ingest explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple, cast

from ingest import types
from ingest.change import TableId
from ingest.ddl import COMPUTED, MOVED, ColumnDefinition, Effect, columns
from ingest.ddl.as_stored import Default
from ingest.fold import OPEN, SchemaStep
from ingest.gold import ledger as ledgers
from ingest.gold.lane import Steps
from ingest.gold.policy import Subject, applied, drops_column, recased, rings
from ingest.lake import kept_texts, lanes
from ingest.lake.logged_statements import Statement
from ingest.lake.mirrors import Mirror, rule_for
from ingest.lake.names import folded
from ingest.lake.resolve import DOUBTED, Presence, empties, leaves_open
from ingest.lake.tables import Tables
from ingest.values.conversions import KEEP, UNSAID, in_charset, named


def steps_of(lake: Tables) -> Callable[[Mirror, str, TableId, int], Sequence[tuple[SchemaStep, int]]]:
    """A function of mirror, source, source table and last batch that returns the steps in order, each with its batch.

    The ledger is read once, when first needed.
    """
    ledger = cache(partial(_ledger, lake))

    def of(mirror: Mirror, source: str, table: TableId, last: int) -> Sequence[tuple[SchemaStep, int]]:
        statements = ledger().of(source, table, last)
        if not statements:
            return ()
        rule = rule_for(lake.pipeline, table, mirror.path)
        subject = Subject.of(rule, table, mirror, last)
        return steps(statements, replace(subject, recorded=ledger().states(mirror.path, statements)))

    return of


def _ledger(lake: Tables) -> ledgers.Ledger:
    return ledgers.read(lake, lanes.with_rows(lake))


def lane_steps(statements: Iterable[Statement], subject: Subject, first: int) -> Steps:
    """The steps that change rows without row messages; ``first`` is the first batch not folded yet."""
    statements = list(statements)
    changing = _changing(statements, subject)
    new = tuple(step for step, batch in changing if batch >= first)
    return Steps(
        tuple(step for step, _ in changing), new, revised=_revised(statements, subject, first, changing)
    )


def _changing(statements: Iterable[Statement], subject: Subject) -> list[tuple[SchemaStep, int]]:
    """The steps that a fold needs, each with its batch; the others say what is not known."""
    return [placed for placed in steps(statements, subject) if placed[0].changes_rows]


def _revised(
    statements: Sequence[Statement], subject: Subject, first: int, changing: Sequence[tuple[SchemaStep, int]]
) -> bool:
    """True if a late statement changes the steps of later ones that the mirror has folded.

    ADD COLUMN empties the column if a DROP COLUMN comes before it, and a MODIFY converts from the type of the last one.
    """
    folded = [statement for statement in statements if statement.batch < first]
    newest = max((statement.order for statement in folded), default="")
    if all(statement.order > newest for statement in statements if statement.batch >= first):
        return False
    return _changing(folded, subject) != [placed for placed in changing if placed[1] < first]


# --- of the statements --------------------------------------------------------------------------


def steps(statements: Iterable[Statement], subject: Subject) -> list[tuple[SchemaStep, int]]:
    """The steps that change rows without row messages, each with its batch."""
    statements = list(statements)
    result: list[tuple[SchemaStep, int]] = []
    taken: dict[str, list[SchemaStep]] = {}
    walk = _Walk(subject.table, subject)
    for statement, effects in rings(applied(statements, subject)):
        made = walk.exchange(effects, statement) if len(effects) > 1 else walk.take(effects[0], statement)
        of_statement = list(made)
        taken.setdefault(statement.id, []).extend(of_statement)
        result.extend((step, statement.batch) for step in of_statement)
    again = [(step, statement.batch) for statement in statements for step in _again(statement, taken)]
    return sorted([*result, *again], key=lambda placed: placed[0].order) if again else result


def _again(statement: Statement, taken: Mapping[str, Sequence[SchemaStep]]) -> Iterator[SchemaStep]:
    """The effect of a repeated statement: the same, on the rows that were repeated before it."""
    if statement.first is not None:
        order, since = cast("Any", statement.order), cast("Any", statement.since)
        for step in taken.get(statement.first.id, ()):
            if not step.empties:
                yield step._replace(order=order, since=since)


_TEXTS = ("string", "enum", "set")


def _default_of(column: Effect | ColumnDefinition) -> Default:
    """The DEFAULT that a statement gives a column; DEFAULT NULL, and what fills existing rows alone, is none."""
    given = column.note != "implicit" and (column.default is not None or column.note is not None)
    return Default(column.default, True, column.note) if given else Default()


class _Column(NamedTuple):
    """A column as statements have declared it so far."""

    type: str = ""
    charset: str = ""
    default: Default | None = None  # None where no statement has said whether it has one
    written: str = ""  # the type as the statement writes it
    solid: bool = False  # NOT NULL, by its definition or by a primary key, also when that is dropped


_UNDECLARED = _Column()


@dataclass(slots=True)
class _Walk:
    """The source's columns according to its statements, and columns that are gone there but still in the mirror."""

    table: TableId
    subject: Subject
    stale: set[str] = field(default_factory=set)
    columns: dict[str, _Column] = field(default_factory=dict)
    charset: str = UNSAID  # of new columns
    made: set[str] = field(default_factory=set)  # columns that a statement has created and none has dropped
    presence: Presence = field(default_factory=Presence)

    def take(self, effect: Effect, statement: Statement) -> Iterator[SchemaStep]:
        """One effect's steps. A reused name starts empty: its old values belong to another column."""
        name, to = effect.name, effect.new_name
        order: Any = statement.order
        if self.presence.begins(effect, statement, self.table):
            yield self._begin(effect, order)
            return
        match effect.action:
            case "truncate" if empties(effect):
                yield SchemaStep(order, "new_incarnation")
            case "relabel_column" if not leaves_open(effect, self.table):
                label = (str(effect.default), to)
                yield SchemaStep(order, "retype_column", name, label=label)
            case "modify_column" if effect.note == MOVED:
                yield SchemaStep(order, OPEN, name)
            case "modify_column" if leaves_open(effect, self.table):
                yield SchemaStep(order, "drop_column", name)
            case "modify_column" if effect.type is not None:
                yield from self._retype(effect, order)
            case "convert_charset":
                yield from self._convert(effect, order)
            case "add_column" if name in self.made:  # a repeated statement, or IF NOT EXISTS
                return
            case "add_column":
                yield from self._revive(name, order)
                self.made.add(name)
                if leaves_open(effect, self.table):
                    yield SchemaStep(order, OPEN, name)
                elif effect.default is not None:
                    yield SchemaStep(
                        order, "add_column", name, default=effect.default, guarded=effect.guarded
                    )
            case "rename_column":
                yield from self._revive(to, order, but=name)
                self.made.add(to)
                yield SchemaStep(order, "rename_column", name, to)
                yield from self._leave(effect, order)
            case "drop_column":
                yield from self._leave(effect, order)
            case "add_primary_key" if effect.solid:
                yield from self._without_nulls(effect, order)
        self._declare(effect)

    def _begin(self, effect: Effect, order: Any) -> SchemaStep:
        """The step to a new table; of the columns until then only the types stay known."""
        self.stale.clear()
        self.made = {column.name for column in effect.columns}
        self.charset = UNSAID
        self.columns = {name: _Column(column.type) for name, column in self.columns.items()}
        self._declare(effect)
        filled = effect.action != "create_table" or effect.brings_rows or effect.note == DOUBTED
        return SchemaStep(order, "new_incarnation", filled=filled)

    def _declare(self, effect: Effect) -> None:
        if effect.action == "create_table":
            self.charset = effect.charset or UNSAID
            for column in effect.columns:
                self._name(column.name, column, effect.rules)
            self._key(effect.keys)
        elif effect.action in ("default_charset", "convert_charset"):
            self.charset = effect.charset or UNSAID
        elif effect.action == "rename_column":
            self.columns[effect.new_name] = self.columns.pop(effect.name, _UNDECLARED)
        elif effect.action == "add_primary_key":
            self._key(effect.keys)
        elif effect.column and effect.type:
            self._name(effect.column, effect, effect.rules)
        elif effect.column and (effect.has_default or effect.note == "expression"):  # ALTER ... SET DEFAULT
            self.columns[effect.column] = self._column(effect.column)._replace(default=_default_of(effect))

    def _key(self, names: Iterable[str]) -> None:
        self.columns |= {name: self._column(name)._replace(solid=True) for name in names}

    def _column(self, name: str) -> _Column:
        return self.columns.get(name, _UNDECLARED)

    def _name(self, name: str, column: Effect | ColumnDefinition, rules: str) -> None:
        kind = named(column.type or "", column.written, mysql=rules == "mysql")
        solid = column.nullable is False
        charset = column.charset or self.charset
        self.columns[name] = _Column(kind, charset, _default_of(column), column.written, solid)

    def _retype(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """What the source does to its rows; if no statement has named the old type, their messages may."""
        name, column = effect.name, self._column(effect.name)
        step = SchemaStep(
            order,
            "retype_column",
            name,
            old=column.type,
            type=effect.type or "",
            declared=self._declared(effect),
            dialect=effect.rules,
            solid=effect.solid,
            zero=columns.zero(effect, column.default or _default_of(effect)) if effect.solid else None,
            computed=effect.note in (COMPUTED, "generated"),
            serial=effect.note == "identity",
        )
        is_told = bool(step.old) and not (step.solid or step.serial or kept_texts.takes_json_away(step))
        if not is_told or step.conversion() != KEEP:
            yield step

    def _without_nulls(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """What MySQL stores for the NULLs in the columns of a new primary key, which become NOT NULL.

        A server in strict mode refuses the statement, except for a TIMESTAMP. A column that was in an earlier key has no NULL: it
        stays NOT NULL when the key is dropped.
        """
        for name in effect.keys:
            column = self._column(name)
            if name not in self.subject.keyed_by and not column.solid:
                kind = column.type or self.subject.known.get(name, "unknown")
                solid = Effect(
                    "modify_column", effect.table, name, type=kind, declared=column.written or kind
                )
                # BINARY(n) is filled up, VARBINARY is empty, and only a statement says which it is
                is_unsaid = types.base(kind) == "binary" and not column.written
                zero = None if is_unsaid else columns.zero(solid, column.default or Default())
                # other values stay as they are, whatever their type
                yield SchemaStep(
                    order, "retype_column", name, old="unknown", type="unknown", declared="NOT NULL", solid=True, zero=zero
                )  # fmt: skip

    def _declared(self, effect: Effect) -> str:
        """The type that a column is changed to, with its character set if that changes or may change.

        A MODIFY without a character set gives a text column that of its table.
        """
        declared, new = effect.written, effect.charset or self.charset
        texts = types.base(effect.type or "") in _TEXTS and effect.rules == "mysql"
        changes = texts and new != self._column(effect.name).charset
        return in_charset(declared, new) if changes else declared

    def _convert(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """What ``CONVERT TO CHARACTER SET`` does to text columns; types that no statement names come from messages."""
        charset = str(effect.charset)
        for name in sorted({*self.subject.known, *self.subject.sent, *self.columns} - self.stale):
            column = self._column(name)
            known = types.base(column.type or self.subject.known.get(name, "unknown"))
            if column.charset != charset and known in (*_TEXTS, "unknown"):
                step = SchemaStep(
                    order, "retype_column", name, old=column.type, type="string", declared=in_charset("", charset),
                    computed=charset == "binary" or effect.note == COMPUTED,
                )  # fmt: skip
                if step.conversion() != KEEP:
                    yield step
            self.columns[name] = column._replace(charset=charset)

    def exchange(self, ring: Sequence[Effect], statement: Statement) -> Iterator[SchemaStep]:
        """Columns that exchange names in one statement: the last one's values are kept under a temporary name
        meanwhile.
        """
        order: Any = statement.order
        waiting = f"{ring[-1].column} exchanged"
        yield SchemaStep(order, "rename_column", str(ring[-1].column), waiting)
        for effect in reversed(ring[:-1]):
            yield SchemaStep(order, "drop_column", effect.new_name)
            yield SchemaStep(order, "rename_column", effect.name, effect.new_name)
        yield SchemaStep(order, "drop_column", str(ring[-1].to))
        yield SchemaStep(order, "rename_column", waiting, str(ring[-1].to))
        yield SchemaStep(order, "drop_column", waiting)
        self.columns |= {effect.new_name: self._column(effect.name) for effect in ring}
        self.stale -= {effect.new_name for effect in ring}
        self.made |= {effect.new_name for effect in ring}
        for rename in recased(ring):
            yield from self._leave(rename, order)

    def _revive(self, name: str, order: Any, *, but: str = "") -> Iterator[SchemaStep]:
        """A former column leaves when its name is given again, in whatever letter case: a mirror cannot have both.

        It stays if it is the column that gets the name (``but``): a statement that could not be read has made it again.
        """
        is_respelt = self.subject.respells
        given = {old for old in self.stale if old == name or (is_respelt and folded(old) == folded(name))}
        for former in sorted(given - {but}):
            self.stale.discard(former)
            yield SchemaStep(order, "drop_column", former)

    def _leave(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        name = effect.name
        self.stale.add(name)
        self.made.discard(name)
        if self.subject.keyless or drops_column(effect, self.subject):
            yield SchemaStep(order, "drop_column", name)
