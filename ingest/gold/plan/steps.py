"""The steps by which statements change rows without row messages: for the stage, and for code that folds outside of it,
such as the check of cells and `ingest explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast

from ingest import types
from ingest.change import TableId
from ingest.ddl import COMPUTED, MOVED, ColumnDefinition, Effect, columns
from ingest.ddl.as_stored import Default
from ingest.fold import OPEN, SchemaStep
from ingest.gold.plan import ledger as ledgers
from ingest.gold.plan.lane import Steps
from ingest.gold.plan.policy import Subject, Timeline, drops_column, recased
from ingest.ledgers import kept_texts, lanes
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Mirror, rule_for
from ingest.ledgers.resolve import DOUBTED, leaves_open
from ingest.ledgers.timeline import Moment, Structure, kind
from ingest.store.names import folded
from ingest.tables.tables import Tables
from ingest.values.conversions import KEEP, in_charset


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
    timeline = Timeline.of(statements, subject)
    result: list[tuple[SchemaStep, int]] = []
    taken: dict[str, list[SchemaStep]] = {}
    for moment in timeline.moments:
        made, statement = list(_steps_of(moment, subject)), moment.statement
        taken.setdefault(statement.id, []).extend(made)
        result.extend((step, statement.batch) for step in made)
    again = [(step, each.batch) for each in timeline.statements for step in _again(each, taken)]
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


def _default_before(column: ColumnDefinition, effect: Effect) -> Default:
    """The DEFAULT that a column had before an effect on it; where no statement has said one, that of the effect."""
    is_said = column.type is not None or column.has_default or column.note == "expression"
    return _default_of(column if is_said else effect)


def _declared(effect: Effect, before: Structure) -> str:
    """The type that a column is changed to, with its character set if that changes or may change.

    A MODIFY without a character set gives a text column that of its table.
    """
    declared, new = effect.written, effect.charset or before.charset
    texts = types.base(effect.type or "") in _TEXTS and effect.rules == "mysql"
    changes = texts and new != before.column(effect.name).charset
    return in_charset(declared, new) if changes else declared


def _steps_of(moment: Moment, subject: Subject) -> Iterator[SchemaStep]:
    """What a moment of a table does to its rows. A reused name starts empty: its old values belong to another column."""
    effect, before, table = moment.effect, moment.before, subject.table
    name, to = effect.name, effect.new_name
    order = moment.place
    if len(moment.effects) > 1:
        yield from _exchange(moment, subject)
        return
    if moment.empties:
        yield SchemaStep(order, "new_incarnation", filled=_is_filled(effect))
        return
    match effect.action:
        case "relabel_column" if not leaves_open(effect, table):
            label = (str(effect.default), to)
            yield SchemaStep(order, "retype_column", name, label=label)
        case "modify_column" if effect.note == MOVED:
            yield SchemaStep(order, OPEN, name)
        case "modify_column" if leaves_open(effect, table):
            yield SchemaStep(order, "drop_column", name)
        case "modify_column" if effect.type is not None:
            yield from _retype(moment)
        case "convert_charset":
            yield from _convert(moment, subject)
        case "add_column" if name in before.made:  # a repeated statement, or IF NOT EXISTS
            return
        case "add_column":
            yield from _revive(name, moment, subject)
            if leaves_open(effect, table):
                yield SchemaStep(order, OPEN, name)
            elif effect.default is not None:
                yield SchemaStep(order, "add_column", name, default=effect.default, guarded=effect.guarded)
        case "rename_column":
            yield from _revive(to, moment, subject, but=name)
            yield SchemaStep(order, "rename_column", name, to)
            yield from _leave(effect, subject, order)
        case "drop_column":
            yield from _leave(effect, subject, order)
        case "add_primary_key" if effect.solid:
            yield from _without_nulls(moment, subject)


def _is_filled(effect: Effect) -> bool:
    """True if a table may have rows that no message shows, after an effect that has taken its own away."""
    return effect.action not in ("create_table", "truncate") or effect.brings_rows or effect.note == DOUBTED


def _retype(moment: Moment) -> Iterator[SchemaStep]:
    """What the source does to its rows; if no statement has named the old type, their messages may."""
    effect, before = moment.effect, moment.before
    column = before.column(effect.name)
    step = SchemaStep(
        moment.place,
        "retype_column",
        effect.name,
        old=kind(column, effect.rules),
        type=effect.type or "",
        declared=_declared(effect, before),
        dialect=effect.rules,
        solid=effect.solid,
        zero=columns.zero(effect, _default_before(column, effect)) if effect.solid else None,
        computed=effect.note in (COMPUTED, "generated"),
        # of a column that had AUTO_INCREMENT before, MySQL and MariaDB leave zeros alone
        serial=effect.note == "identity" and column.note != "identity",
    )
    is_told = bool(step.old) and not (step.solid or step.serial or kept_texts.takes_json_away(step))
    if not is_told or step.conversion() != KEEP:
        yield step


def _without_nulls(moment: Moment, subject: Subject) -> Iterator[SchemaStep]:
    """What MySQL stores for the NULLs in the columns of a new primary key, which become NOT NULL.

    A server in strict mode refuses the statement, except for a TIMESTAMP. A column that was in an earlier key has no NULL: it
    stays NOT NULL when the key is dropped.
    """
    effect = moment.effect
    for name in effect.keys:
        column = moment.before.column(name)
        if name not in subject.keyed_by and column.nullable is not False:
            logical = kind(column, effect.rules) or subject.known.get(name, "unknown")
            solid = Effect(
                "modify_column", effect.table, name, type=logical, declared=column.written or logical
            )
            # BINARY(n) is filled up, VARBINARY is empty, and only a statement says which it is
            is_unsaid = types.base(logical) == "binary" and not column.written
            zero = None if is_unsaid else columns.zero(solid, _default_of(column))
            # other values stay as they are, whatever their type
            yield SchemaStep(
                moment.place, "retype_column", name, old="unknown", type="unknown", declared="NOT NULL", solid=True, zero=zero
            )  # fmt: skip


def _convert(moment: Moment, subject: Subject) -> Iterator[SchemaStep]:
    """What ``CONVERT TO CHARACTER SET`` does to text columns; types that no statement names come from messages."""
    effect, before, charset = moment.effect, moment.before, str(moment.effect.charset)
    for name in sorted({*subject.known, *subject.sent, *before.columns} - _vacant(before, subject)):
        column = before.column(name)
        known = types.base(column.type or subject.known.get(name, "unknown"))
        if column.charset != charset and known in (*_TEXTS, "unknown"):
            step = SchemaStep(
                moment.place, "retype_column", name, old=kind(column, effect.rules), type="string", declared=in_charset("", charset),
                computed=charset == "binary" or effect.note == COMPUTED,
            )  # fmt: skip
            if step.conversion() != KEEP:
                yield step


def _exchange(moment: Moment, subject: Subject) -> Iterator[SchemaStep]:
    """Columns that exchange names in one statement: the last one's values are kept under a temporary name
    meanwhile.
    """
    order, ring = moment.place, moment.effects
    first, last = ring[-1].name, ring[-1].new_name
    waiting = f"{first} exchanged"
    yield SchemaStep(order, "rename_column", first, waiting)
    for effect in reversed(ring[:-1]):
        yield SchemaStep(order, "drop_column", effect.new_name)
        yield SchemaStep(order, "rename_column", effect.name, effect.new_name)
    yield SchemaStep(order, "drop_column", last)
    yield SchemaStep(order, "rename_column", waiting, last)
    yield SchemaStep(order, "drop_column", waiting)
    for rename in recased(ring):
        yield from _leave(rename, subject, order)


def _revive(name: str, moment: Moment, subject: Subject, *, but: str = "") -> Iterator[SchemaStep]:
    """A former column leaves when its name is given again, in whatever letter case: a mirror cannot have both.

    It stays if it is the column that gets the name (``but``): a statement that could not be read has made it again.
    """
    for former in sorted(_vacant(moment.before, subject) - {but}):
        if former == name or (subject.respells and folded(former) == folded(name)):
            yield SchemaStep(moment.place, "drop_column", former)


def _vacant(structure: Structure, subject: Subject) -> frozenset[str]:
    """The names of former columns; where a mirror cannot have two in other letter cases, a column has taken those like its own."""
    if not structure.left or not subject.respells:
        return structure.left
    taken = {*map(folded, structure.made)}
    return frozenset(name for name in structure.left if folded(name) not in taken)


def _leave(effect: Effect, subject: Subject, order: Any) -> Iterator[SchemaStep]:
    if subject.keyless or drops_column(effect, subject):
        yield SchemaStep(order, "drop_column", effect.name)
