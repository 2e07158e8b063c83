"""Rows that a renamed table had under its old name, and that no message has brought under the new one.

An approved RENAME begins a new table: the rows under the old name stay in that name's mirror, and the source sends none of them
again by itself. So the mirror lacks them until a load has brought them, or the operator accepts it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

from ingest.change import LaneId, TableId
from ingest.errors import agreeing, command, counted
from ingest.ledgers.books import load_marks
from ingest.ledgers.cleared import Cleared, last_cleared
from ingest.ledgers.decisions import APPROVE
from ingest.ledgers.lanes import IS_LOAD_MARKED
from ingest.ledgers.logged_statements import Statement, approved_ahead, by_lane
from ingest.ledgers.resolve import renamed_into
from ingest.order import SECOND_HALF
from ingest.quality.catalogue import PASS, RECONCILED, ROWS_LEFT_BEHIND, Metric
from ingest.quality.not_loaded import ENDS
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.quality.unknown_values import older_sql
from ingest.quality.ways_out import loaded_again
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.live_rows import live_rows, selected
from ingest.tables.schemas import CHECKS
from ingest.tables.snapshots import read_sql


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], logged: Sequence[Statement]) -> Iterator[Metric]:
    """The rows that approved RENAMEs have left under old names, by mirror and statement; none once, which is not asked again."""
    if not (ahead := approved_ahead(lake)):
        return
    about, sound = by_lane(logged), _found_sound(lake)
    for subject in chosen:
        for lane in subject.following(lake.pipeline):
            for statement in about.get(lane.id, ()):
                folded = ahead.get((subject.path, statement.id))
                looks = (sound.get((subject.name, name)) for name in (None, statement.id))
                if folded and not any(look and look >= folded for look in looks):
                    yield from _of_statement(lake, subject, lane, statement)


def _found_sound(lake: Lake) -> dict[tuple[str, str | None], dt.datetime]:
    """When each mirror was last found equal to its source, or, by a statement's name, without a lacking row."""
    if not lake.exists(CHECKS.name):
        return {}
    looks = lake.ask(
        f"""SELECT mirror, CASE WHEN "check" = '{ROWS_LEFT_BEHIND}' THEN statement END AS statement, max(checked_at) AS at
        FROM {{checks}} WHERE state = '{PASS}' AND ("check" = '{RECONCILED}' OR ("check" = '{ROWS_LEFT_BEHIND}' AND observed = 0))
        GROUP BY ALL"""
    )
    return {(look["mirror"], look["statement"]): look["at"] for look in looks}


def _of_statement(
    lake: Lake, subject: CheckedMirror, lane: CheckedLane, statement: Statement
) -> Iterator[Metric]:
    old = _former_name(statement, lane.table)
    if old is None or statement.batch > subject.applied:
        return
    left, read = (
        (0, 1)
        if _is_over(lake, subject, lane, statement, old)
        else _left(lake, subject, lane, statement, old)
    )
    if read and not left:  # a load has come, with all rows of which is known
        # of a mirror of several the statement may have given names to several, or the mirror may lose what it has kept
        if len(subject.lanes) == 1:
            yield Metric(ROWS_LEFT_BEHIND, 0, subject.name, statement=statement.id)
        return
    file = lake.pipeline.file
    lacking = (
        f": {counted(left, 'row')} that came under the old name {agreeing(left, 'has', 'have')} not"
        if left
        else ""
    )
    detail = (
        f"{lane.table} is the table that was {old} until {statement.said[:120]!r}, and what it had then has not come under the new name{lacking}: "
        f"{loaded_again(lake.pipeline, lane)}, or `{command('ddl', 'approve', file, statement.id)}` accepts the mirror without them"
    )
    yield Metric(ROWS_LEFT_BEHIND, max(left, 1), subject.name, detail=detail, statement=statement.id)


def _former_name(statement: Statement, table: TableId) -> TableId | None:
    """The name that a table had before an approved statement; None if it has brought it no rows, or if these were carried over."""
    if statement.decided != APPROVE or table in statement.carried:
        return None
    return next((effect.table for effect in statement.effects if renamed_into(effect, table)), None)


def _is_over(
    lake: Lake, subject: CheckedMirror, lane: CheckedLane, statement: Statement, old: TableId
) -> bool:
    """True if none of the rows can be lacking: the table was emptied or made again, or loaded as a whole, or the mirror has kept them."""
    cleared = _last_cleared(lake, subject, lane.id)
    if cleared is not None and cleared.place > statement.order:
        return True
    if _keeps(lake, subject, lane, statement, old):
        return True
    of_lane = f"{lane.where} AND batch <= {subject.applied}"
    ended = f"SELECT 1 AS n FROM {{changes.change}} WHERE op = 'read' AND {of_lane} AND NOT {older_sql(lane, statement)} AND {ENDS} LIMIT 1"
    # a mark has no place among the rows: in the statement's batch it may be of a load of the former table
    lines = (
        f"SELECT load_marks FROM {{books}} WHERE {of_lane} AND batch > {statement.batch} AND {IS_LOAD_MARKED}"
    )
    return bool(lake.ask(ended)) or any(
        mark.ends for line in lake.ask(lines) for mark in load_marks(line["load_marks"])
    )


def _keeps(lake: Lake, subject: CheckedMirror, lane: CheckedLane, statement: Statement, old: TableId) -> bool:
    """True if the old name feeds the same mirror, which does not tell the names apart, and has lost no rows with the statement or since."""
    former = lane.source, old
    if former not in {each.id for each in subject.lanes} or not subject.merges(lake.pipeline):
        return False
    cleared = _last_cleared(lake, subject, former)
    return cleared is None or cleared.place < statement.order


def _last_cleared(lake: Lake, subject: CheckedMirror, name: LaneId, before: str = "") -> Cleared | None:
    """What emptied a table last, or its last one of that name before a place, by the rules of the mirror."""
    made = subject.steps_of(subject.decided, *name, subject.applied)
    return last_cleared(lake, name, made, subject.applied, before)


def _left(
    lake: Lake, subject: CheckedMirror, lane: CheckedLane, statement: Statement, old: TableId
) -> tuple[int, int]:
    """How many of the rows that came under the old name have not come under the new one, and how many a load has brought there."""
    older, keys = older_sql(lane, statement), subject.decided.keys
    cleared = _last_cleared(lake, subject, (lane.source, old), before=statement.order)
    since = "" if cleared is None else f" AND order_key > {duck.text(cleared.place)}"
    of_old = f"{duck.of_lane(lane.source, old)} AND {older} AND batch <= {subject.applied}{since}"
    of_new = f"{lane.where} AND NOT {older} AND batch <= {subject.applied} AND op <> 'truncate'"
    [loaded] = lake.ask(
        f"SELECT count(*) AS n FROM {{changes.change}} WHERE {of_new} AND op = 'read' AND NOT {read_sql()}"
    )
    if not keys:
        return max(0, _without_key(lake, of_old, of_new) - loaded["n"]), loaded["n"]
    changes = f"SELECT {selected(keys)} FROM {{changes.change}} WHERE {of_old}"
    [left] = lake.ask(
        f"""WITH {live_rows(changes)}, came AS (SELECT {selected(keys)} FROM {{changes.change}} WHERE {of_new})
        SELECT count(*) AS n FROM live WHERE k NOT IN (SELECT k FROM came UNION ALL SELECT left_key FROM came)"""
    )
    return int(left["n"]), loaded["n"]


def _without_key(lake: Lake, of_old: str, of_new: str) -> int:
    """How many rows without a key, by conditions in SQL for the changes of both names, came under the old one and in no change
    under the new one since. Rows of a load are not looked for: a load may write values differently.
    """
    # an image before may have only what has changed
    left_image, image = (
        f"json_merge_patch('{{}}', json_merge_patch(coalesce({first}, '{{}}'), coalesce({second}, '{{}}')))"
        for first, second in (("after", "before"), ("before", "after"))
    )
    alone = f"before IS NULL AND regexp_matches(order_key, {duck.text(SECOND_HALF)})"
    [left] = lake.ask(
        f"""WITH had AS (SELECT image, sum(n) AS n FROM (
            SELECT {image} AS image, 1 AS n FROM {{changes.change}} WHERE {of_old} AND {duck.HAS_ROW}
            UNION ALL SELECT {left_image}, -1 FROM {{changes.change}} WHERE {of_old} AND op IN ('delete', 'update') AND NOT ({alone})) GROUP BY image),
        came AS (SELECT {left_image} AS image, count(*) AS n FROM {{changes.change}} WHERE {of_new} AND op <> 'read' GROUP BY image)
        SELECT coalesce(sum(had.n - greatest(0, least(had.n, coalesce(came.n, 0)))), 0) AS n
        FROM had LEFT JOIN came USING (image)"""
    )
    return int(left["n"])
