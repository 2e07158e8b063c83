"""Rows whose values no message contains, because a statement changed them by rules that only the source can apply.

A default that is not a literal, a generated column, a conversion that depends on the session, a statement that could not be
read: the rows that were there have NULL or their old values. That is an error until each of them has come again, or the
operator decides on the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import msgspec

from ingest.change import TableId, lane_of
from ingest.ddl import UNREAD, Effect
from ingest.errors import agreeing, command, counted
from ingest.fold import SchemaStep, former
from ingest.ledgers import lanes
from ingest.ledgers.announced import required
from ingest.ledgers.decisions import DISMISS
from ingest.ledgers.kept_texts import stays_text
from ingest.ledgers.logged_statements import Statement, approved_ahead, by_lane
from ingest.ledgers.rejects import CONVERTED_SQL, open_sql
from ingest.ledgers.resolve import leaves_values
from ingest.order import is_weak, order_of
from ingest.quality.catalogue import UNKNOWN_VALUES, Metric
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.quality.ways_out import loaded_again
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.live_rows import live_rows, selected


@dataclass(frozen=True, slots=True)
class LeftUnknown:
    """What one statement left unknown of the rows of one table: a column, or (None) whatever it did."""

    statement: Statement
    column: str | None


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], logged: Sequence[Statement]) -> Iterator[Metric]:
    """The rows that have not come again since, by mirror and column."""
    about, ahead, never_null = by_lane(logged), approved_ahead(lake), required(lake)
    retyped = cache(partial(_open_columns, lake, CONVERTED_SQL))
    for subject in chosen:
        metrics: list[Metric] = []
        for lane in subject.following(lake.pipeline):
            statements = about.get(lane.id, ())
            undecided = [
                statement
                for statement in statements
                if statement.kind != "none"
                and (not statement.decided or (subject.path, statement.id) in ahead)
            ]
            made = cache(partial(subject.schema_steps, lane))
            left = _gaps(lake, undecided, lane, subject, retyped, made)
            gaps = [gap for gap in left if not _has_dropped(statements, lane, gap)]
            metrics += _of_gaps(lake, subject, lane, gaps, made)
            if lacking := never_null.get(lane.id):
                explained = {gap.column for gap in gaps}
                metrics += _of_required(lake, subject, lane, statements, lacking, explained)
        yield from metrics or [Metric(UNKNOWN_VALUES, 0, subject.name)]


def is_unread(statement: Statement, table: TableId) -> bool:
    """True if it is not known what a statement did to a table's rows."""
    if statement.kind == "unknown" and not statement.effects:
        return table in statement.tables
    return any(effect.action == "unread" and effect.table == table for effect in statement.effects)


_Columns = set[tuple[str, TableId, str]]
"""Source, table and column of open rejects."""
_Retyped = Callable[[], _Columns]
"""Those that say that a conversion is not known."""
_Made = Callable[[], Sequence[SchemaStep]]
"""The schema steps of a lane's statements, which are asked for only where something depends on them."""


def _open_columns(lake: Lake, condition: str) -> _Columns:
    names = ", ".join(map(duck.name, ("source", *TableId._fields, "column")))
    rows = lake.ask(f"SELECT DISTINCT {names} FROM ({open_sql(lake)}) AS o WHERE {condition}")
    return {(*lane_of(row), row["column"]) for row in rows}


def _gaps(
    lake: Lake,
    statements: Iterable[Statement],
    lane: CheckedLane,
    subject: CheckedMirror,
    retyped: _Retyped,
    steps: _Made,
) -> Iterator[LeftUnknown]:
    columns, changes = {*subject.decided.by_name}, f"{lane.where} AND batch <= {subject.applied}"
    for statement in statements:
        if statement.batch > subject.applied:
            continue
        if statement.is_announced and not any(effect.column in columns for effect in statement.effects):
            continue  # a rule leaves it out
        of_table = [effect for effect in statement.effects if effect.table == lane.table]
        left: list[str | None] = []
        if not statement.decided:  # an approval says yes to what is known before the rows are looked at
            if is_unread(statement, lane.table) or any(effect.note == UNREAD for effect in of_table):
                yield LeftUnknown(statement, None)
                continue
            left = [effect.column for effect in of_table if leaves_values(effect, lane.table)]
        if open_columns := retyped():
            converted = _converted(lake, changes, statement, of_table, steps())
            left += [name for name in converted if (lane.source, subject.table, name) in open_columns]
        yield from (LeftUnknown(statement, name) for name in dict.fromkeys(left))


def _converted(
    lake: Lake, changes: str, statement: Statement, of_table: Iterable[Effect], steps: Sequence[SchemaStep]
) -> list[str | None]:
    """The columns whose values a statement may have converted; ``changes`` is the condition in SQL for those of its table."""
    made = [step for step in steps if str(step.order) == statement.order and step.retypes]
    stays = {step.column for step in made if stays_text(lake, changes, steps, step)}
    names = [effect.column for effect in of_table if effect.action == "modify_column"]
    # a column of a new key, of a changed type or in another character set is in no effect
    names += [step.column for step in made]
    return [name for name in names if name not in stays]


def _has_dropped(statements: Iterable[Statement], lane: CheckedLane, gap: LeftUnknown) -> bool:
    """True if the source has dropped a column since, under whatever name: its values are of no concern any more."""
    name = gap.column
    for statement in statements if name else ():
        if statement.order <= gap.statement.order or statement.decided == DISMISS:
            continue
        for effect in statement.effects:
            if effect.table != lane.table or effect.column != name:
                continue
            if effect.action == "drop_column":
                return True
            if effect.action == "rename_column":
                name = effect.new_name
    return False


def _of_gaps(
    lake: Lake, subject: CheckedMirror, lane: CheckedLane, gaps: Iterable[LeftUnknown], steps: _Made
) -> Iterator[Metric]:
    for gap in gaps:
        if rows := _standing(lake, subject, lane, gap, steps):
            yield Metric(
                UNKNOWN_VALUES, rows, subject.name, column=gap.column, detail=_sentence(lake, lane, gap, rows),
                statement=gap.statement.id,
            )  # fmt: skip


def _standing(lake: Lake, subject: CheckedMirror, lane: CheckedLane, gap: LeftUnknown, steps: _Made) -> int:
    """The rows that are older than a statement and that no whole row, or no value of its column, has set since."""
    statement = gap.statement
    emptied = max((str(step.order) for step in steps() if step.empties), default="")
    has = duck.SENT_WHOLE
    if gap.column is not None:
        has = f"({has} OR {duck.has_member('after', gap.column)})"
    names = [former(name, steps()) for name in _key_then(subject, lane, gap, steps)]
    older = older_sql(lane, statement)
    lost = _lost_labels(gap)
    label = duck.member("after", gap.column or "")
    sent = f"op <> 'delete' AND {duck.has_member('after', gap.column or '')}"
    changes = f"""SELECT {selected(names)}, {older} AS older, {has} AS sets,
        CASE WHEN {sent} THEN coalesce({label}, '') END AS label
        FROM {{changes.change}} WHERE {lane.where} AND batch <= {subject.applied}"""
    [left] = lake.ask(
        f"""WITH {live_rows(changes, "older", "sets", "label")},
        keys AS (SELECT k, bool_or(older) AS stood, bool_or(op <> 'delete' AND sets AND NOT older) AS came_again,
            arg_max(label, place) FILTER (op <> 'delete') AS label FROM written GROUP BY k)
        SELECT count(*) AS n FROM keys SEMI JOIN (SELECT k FROM live WHERE place > {duck.text(emptied)}) AS lives USING (k)
        WHERE stood AND NOT came_again AND {_is_label("label", lost) if lost else "true"}"""
    )
    shown = _shown(lake, subject, gap)
    return int(left["n"] if shown is None else min(left["n"], shown))


def older_sql(lane: CheckedLane, statement: Statement) -> str:
    """The condition in SQL that a change of a lane comes before a statement."""
    high = lane.order_high or lane.folded_high
    if high and not is_weak(high) and not order_of(statement.order).sequence:
        return f"batch < {statement.batch}"  # its message has no place among the rows
    return f"order_key < {duck.text(statement.order)}"


def _key_then(subject: CheckedMirror, lane: CheckedLane, gap: LeftUnknown, steps: _Made) -> tuple[str, ...]:
    """The key, by its columns' names of now, that tells the rows of a statement apart: that of then, where it has changed it."""
    mirror, place = subject.decided, gap.statement.order
    eras = mirror.eras_of(*lane.id)
    keys = next((era.keys for era in reversed(eras) if era.place < place), mirror.keys)
    if gap.column not in keys:
        return mirror.keys
    for step in steps():
        if step.action == "rename_column" and str(step.order) > place:
            keys = tuple(step.to if key == step.column else key for key in keys)
    return keys


def _shown(lake: Lake, subject: CheckedMirror, gap: LeftUnknown) -> int | None:
    """The mirror's rows whose cells may be unknown: without a value in a new column, or with a label that is none any more.

    They bound the rows that a statement left unknown; None where cells say nothing of that.
    """
    column = next((column.column for column in subject.decided.columns if column.name == gap.column), None)
    of_column = [effect for effect in gap.statement.effects if effect.column == gap.column]
    if column is None or not of_column:
        return None
    cell, lost = duck.name(column), _lost_labels(gap)
    if lost:
        where = _is_label(cell, lost)
    elif any(effect.action == "add_column" for effect in of_column):
        where = f"{cell} IS NULL"
    else:
        return None
    return int(lake.ask_mirror(subject.path, f"SELECT count(*) AS n FROM {{mirror}} WHERE {where}")[0]["n"])


def _is_label(cell: str, labels: Sequence[str]) -> str:
    """SQL: true where a cell is one of some labels, or an array that has one; a mirror may hold labels as numbers."""
    cell = f"CAST({cell} AS VARCHAR)"
    items = (f"contains({cell}, {duck.text(msgspec.json.encode(label).decode())})" for label in labels)
    listed = ", ".join(map(duck.text, labels))
    return f"({cell} IN ({listed}) OR ({cell} LIKE '[%' AND ({' OR '.join(items)})))"


def _lost_labels(gap: LeftUnknown) -> list[str]:
    """The labels of which nothing says what they became."""
    return [
        str(effect.default)
        for effect in gap.statement.effects
        if effect.action == "relabel_column" and effect.column == gap.column and effect.to is None
    ]


def _of_required(
    lake: Lake,
    subject: CheckedMirror,
    lane: CheckedLane,
    statements: Iterable[Statement],
    lacking: Iterable[str],
    explained: set[str | None],
) -> Iterator[Metric]:
    """Columns, of those that some rows lack, that are NULL in some rows of a mirror although the source's own schema says that they are never NULL."""
    if len(subject.lanes) > 1:  # rows of other tables may lack the column
        return
    settled = {
        effect.column
        for statement in statements
        if statement.decided
        for effect in statement.effects
        if effect.table == lane.table and _is_accepted(statement, effect)
    }
    rejected = {column for _, table, column in _open_columns(lake, "kind = 'cell'") if table == subject.table}
    columns = {column.name: column.column for column in subject.decided.sent}
    names = [name for name in lacking if name in columns and name not in explained | settled | rejected]
    if not names:
        return
    rule = subject.rule(lake.pipeline, lane)
    for name in names:
        if rule.mask_of(name) == "null":
            continue
        query = f"SELECT count(*) AS n FROM {{mirror}} WHERE {duck.name(columns[name])} IS NULL"
        if rows := lake.ask_mirror(subject.path, query)[0]["n"]:
            detail = (
                f"{counted(rows, 'row')} of {lane.table} came without {name}, which by the messages' own schema is never NULL "
                f"at the source: {loaded_again(lake.pipeline, lane)}"
            )
            yield Metric(UNKNOWN_VALUES, rows, subject.name, column=name, detail=detail)


def _is_accepted(statement: Statement, effect: Effect) -> bool:
    """True if a decision on a statement accepts rows without a value in the column of an effect: one that gives a value does not."""
    leaves = effect.action == "modify_column" or leaves_values(effect, effect.table)
    return leaves or statement.decided == DISMISS


def _sentence(lake: Lake, lane: CheckedLane, gap: LeftUnknown, rows: int) -> str:
    """What is not known, and the ways out with the commands to type."""
    statement, file = gap.statement, lake.pipeline.file
    text = statement.said
    what = f"no message says what {text[:120]!r} gave {counted(rows, 'row')} of {lane.table}"
    if gap.column is None:
        what = f"what {text[:120]!r} did to {counted(rows, 'row')} of {lane.table} is not known"
    if lost := _lost_labels(gap):
        what = (
            f"{counted(rows, 'row')} of {lane.table} still {agreeing(rows, 'has', 'have')} {' or '.join(map(repr, lost))} in "
            f"{gap.column}, whose type has other labels by now or has them in another order; what became of these is not known"
        )
    elif statement.is_announced:
        what = (
            f"rows of {lane.table} came with the new column {gap.column} and without the statement that added it, so what "
            f"{counted(rows, 'older row has', 'older rows have')} there is not known"
        )
    accept = command("ddl", "approve", file, statement.id)
    ways = f"{loaded_again(lake.pipeline, lane)}, or `{accept}` accepts them as they are"
    if statement.is_announced and not lost and lanes.leaves_out_nulls(lake, lane.source) is None:
        ways += f"; if source {lane.source} leaves out NULLs, write `left_out: null` under its options"
    return f"{what}: {ways}"
