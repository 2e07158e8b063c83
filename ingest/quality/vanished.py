"""Columns that whole rows lack although earlier rows had them and no statement has dropped them.

A source that leaves unchanged columns out of its rows (MySQL with ``binlog_row_image`` noblob or minimal) cannot be
distinguished from one that has dropped them by a single message: the mirror has NULL there. The books show both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

from ingest.change import LaneId
from ingest.ddl import UNREAD, Effect
from ingest.ledgers import lanes, rejects
from ingest.ledgers.books import WHOLE_OR_NOT, Line, PlaceSpan, summed, united
from ingest.ledgers.logged_statements import Statement, by_lane
from ingest.order import is_weak
from ingest.quality.catalogue import Metric
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.tables import Tables

_OF_TABLE = frozenset({"create_table", "drop_table", "rename_table", "swap_table"})


def of_mirrors(
    lake: Tables, chosen: Iterable[CheckedMirror], since: int, logged: Sequence[Statement]
) -> Iterator[Metric]:
    """Count the columns of each mirror that whole rows of new batches lack."""
    fresh, about = _lines(lake, f"batch > {since}"), by_lane(logged)
    leaves_out_nulls = cache(partial(lanes.leaves_out_nulls, lake))
    for subject in chosen:
        names = {column.name for column in subject.decided.sent} - {*subject.decided.keys}
        for lane in subject.lanes:
            if (
                leaves_out_nulls(lane.source) is not False
            ):  # what is missing is NULL, or `nulls_left_out` asks
                continue
            table = lane.id
            line = fresh.get(table)
            if line is not None and (short := {name for name in names if line.spans(name)[0]}):
                yield from _of_lane(lake, subject, lane, since, line, short, about.get(table, ()))


def _of_lane(
    lake: Tables,
    subject: CheckedMirror,
    lane: CheckedLane,
    since: int,
    line: Line,
    short: Iterable[str],
    about: Sequence[Statement],
) -> Iterator[Metric]:
    of_lane = lane.where
    before = _lines(lake, f"batch <= {since} AND {of_lane}").get(lane.id)
    gone: list[str] = []
    back: list[str] = []
    for name in sorted(short):
        without, having = line.spans(name)
        having = united(having, before.spans(name)[1] if before else [])
        if not having or without[1] < having[0] or _is_told(name, having, without, about):
            continue
        if _is_refused(lake, lane, name, since):
            continue
        if is_weak(having[0]) and _is_repeated(lake, lane, name, having[0]):
            continue
        (back if _is_between(lake, lane, name, without, having) else gone).append(name)
    if (gone or back) and _has_keys_alone(lake, subject, lane, since, [*gone, *back]):
        yield Metric(
            "partial_rows", len(gone) + len(back), subject.name, detail=_of_keys(lake, lane, [*gone, *back])
        )
        return
    for check, names in (("partial_rows", back), ("vanished_columns", gone)):
        if names:
            listed = ", ".join(names)
            detail = (
                f"rows of {lane.table} came without {listed}, which earlier rows have and no statement has dropped, so "
                "the mirror has NULL there"
            )
            yield Metric(check, len(names), subject.name, detail=detail)


def _has_keys_alone(
    lake: Tables, subject: CheckedMirror, lane: CheckedLane, since: int, short: Iterable[str]
) -> bool:
    """True if rows that lack columns are all updates that have only the key of the row before, where it is read as that whole row.

    A whole row before would have the columns that were changed, too.
    """
    if "key_is_full" not in lake.pipeline.about(lane.source).options:
        return False
    others = [column.name for column in subject.decided.sent if column.name not in subject.decided.keys]
    said, changed = (
        " OR ".join(duck.has_member(image, name) for name in others) for image in ("before", "after")
    )
    lacks = " OR ".join(map(_lacks, short))
    [rows] = lake.ask(
        f"""SELECT count(*) AS n, count(*) FILTER (op = 'update' AND NOT ({said}) AND ({changed})) AS alone
        FROM {{changes.change}} WHERE batch > {since} AND {lane.where}
        AND {duck.HAS_ROW} AND {duck.SENT_WHOLE} AND ({lacks})"""
    )
    return bool(0 < rows["n"] == rows["alone"])


def _of_keys(lake: Tables, lane: CheckedLane, names: Iterable[str]) -> str:
    return (
        f"updates of {lane.table} came without {', '.join(names)}, which earlier rows have, and their `key` holds only the key, not the "
        "whole row before, so the mirror has NULL there: write `key_is_full: false` under the options of source "
        f"{lane.source}, then run {decoded_again(lake)}"
    )


def _lacks(name: str) -> str:
    """The condition in SQL that a row came without a column."""
    return f"NOT {duck.has_member('after', name)}"


def _is_refused(lake: Tables, lane: CheckedLane, name: str, since: int) -> bool:
    """True if all new rows without a column were refused: the mirror has none of them, and so no NULL there."""
    place = duck.same(rejects.PLACE, "r", "c")
    rows = lake.ask(
        f"""SELECT count(*) AS rows, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM {{rejects}} AS r
            WHERE r.kind = 'change' AND {place})) AS refused
        FROM {{changes.change}} AS c WHERE batch > {since} AND {lane.where}
        AND {duck.HAS_ROW} AND {duck.SENT_WHOLE}
        AND {_lacks(name)}"""
    )
    return bool(0 < rows[0]["rows"] == rows[0]["refused"])


def _is_between(lake: Tables, lane: CheckedLane, name: str, without: PlaceSpan, having: PlaceSpan) -> bool:
    """True if rows without a column may have come between rows with it.

    Not if the rows' schemas say which columns there are, and the column was only added and then dropped.
    """
    if without[0] >= having[1] or without[0] > having[0]:
        return without[0] < having[1]
    first, last = map(duck.text, having)
    [row] = lake.ask(
        f"""SELECT EXISTS (FROM {{books}} WHERE {lane.where} AND json_array_length(layouts) > 0) AND NOT EXISTS
        (FROM {{changes.change}} WHERE {lane.where} AND {duck.HAS_ROW} AND {duck.SENT_WHOLE}
        AND order_key BETWEEN {first} AND {last} AND {_lacks(name)}) AS is_dropped"""
    )
    return not row["is_dropped"]


def _is_repeated(lake: Tables, lane: CheckedLane, name: str, first: str) -> bool:
    """True if all rows without a column came before its first row already: a stream without positions has gone back."""
    rows = f"{{changes.change}} WHERE {lane.where} AND {duck.HAS_ROW}"
    same = duck.same(("op", "before", "after", "event_time"), "o", "n")
    earlier = lake.ask(
        f"""WITH rows AS (SELECT op, before, after, event_time, order_key, partial FROM {rows})
        SELECT count(*) AS n FROM rows AS n WHERE order_key > {duck.text(first)} AND {duck.SENT_WHOLE}
        AND {_lacks(name)}
        AND NOT EXISTS (SELECT 1 FROM rows AS o WHERE o.order_key < {duck.text(first)} AND {same})"""
    )
    return not earlier[0]["n"]


def _is_told(name: str, having: PlaceSpan, without: PlaceSpan, about: Iterable[Statement]) -> bool:
    """True if a statement about the table that came after rows with the column may explain rows without it.

    An ADD COLUMN that came again explains only rows before it.
    """
    return any(
        statement.order > having[0]
        and (
            statement.kind == "unknown"
            or any(
                touches(effect, name) and (effect.action != "add_column" or without[1] < statement.order)
                for effect in statement.meant
            )
        )
        for statement in about
    )


def touches(effect: Effect, name: str) -> bool:
    """True if an effect may have made, changed or removed a column of its table."""
    named = {str(column).casefold() for column in (effect.column, effect.to) if column is not None}
    return effect.action in _OF_TABLE or effect.note == UNREAD or name.casefold() in named


def _lines(lake: Tables, condition: str) -> dict[LaneId, Line]:
    """The books of each source table, all lines that meet a condition as one."""
    lines: dict[LaneId, Line] = {}
    for row in lake.ask(
        f"""SELECT {duck.LANE_SQL}, columns, lacks, {duck.sums(WHOLE_OR_NOT)}, min(order_low) AS low, max(order_high) AS high
        FROM {{books}} WHERE changes > 0 AND {condition} GROUP BY {duck.LANE_SQL}, columns, lacks"""
    ):
        line = summed(row)
        total = lines.setdefault((line.source, line.table_id), line)
        if total is not line:
            total.merge(line)
    return lines
