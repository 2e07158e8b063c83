"""Changes that came again, or late, where only arrival orders them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ingest.departures import NO_TRANSACTION
from ingest.errors import agreeing, counted
from ingest.fold import SchemaStep
from ingest.order import is_weak, natural, same_place
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.ordered_lane import OrderedLane
from ingest.quality.unplaced import clears
from ingest.quality.ways_out import accepted
from ingest.tables import duck
from ingest.tables.json_cells import list_in, object_in
from ingest.tables.live_rows import under_both_keys
from ingest.tables.tables import Row
from ingest.values.same_value import same_value


def repeated(ordered: OrderedLane) -> Iterator[Metric]:
    """Old changes and statements that may have made rows wrong."""
    if ordered.subject.keyed:
        yield from _removed_late(ordered)
        yield from _by_arrival(ordered) if ordered.is_weak else _counted_on(ordered)


def _removed_late(ordered: OrderedLane) -> Iterator[Metric]:
    """Rows that statements of late files have removed or changed."""
    if changed := _changed_late(ordered):
        rows = f"{counted(len(changed), 'row')} of {ordered.lane.table}"
        what = f"a TRUNCATE or DDL statement removed or changed {rows}, but {_FROM_LATE}"
        yield _rows_set_back(
            ordered, changed, f"{what}: compare them with the source, or load the table again"
        )


def _counted_on(ordered: OrderedLane) -> Iterator[Metric]:
    """Statements that came again under a higher position."""
    if again := _statements_again(ordered):
        what = (
            f"{counted(len(again), 'statement')} of {ordered.lane.table}, such as {again[0][:80]!r}, came again under a higher "
            "position: the source's task was put back and counts on, so its old rows are newer than the statement"
        )
        yield ordered.metric(
            "rows_set_back",
            len(again),
            f"{what}: compare the table with the source, or load it again with {ordered.epoch()}",
        )


def _by_arrival(ordered: OrderedLane) -> Iterator[Metric]:
    """Rows that changes without a position have set back, because they came again or late."""
    table = ordered.lane.table
    if ordered.lane.key_changes and (moves := _repeated_moves(ordered)):
        detail = (
            f"{counted(moves, 'update')} of {table} without unchanged columns and with another key came again; what was "
            "left out was taken from the row that has the old key now: compare these rows with the source, or load "
            f"the table again with {ordered.epoch()}"
        )
        yield ordered.metric("repeated_moves", moves, detail)
    across = _has_older(ordered)
    if not across and not _turns_back(ordered):
        return
    keys = _set_back(ordered, "true" if across else f"batch > {ordered.since}")
    if keys:
        detail = (
            f"{counted(len(keys), 'row')} of {table} {agreeing(len(keys), 'was', 'were')} set back: the last message of each is one that had come before, and after its first "
            "time a newer change of the row came, or a statement that changed it. That ends by itself if the source sends what came then again, too; else "
            "compare these rows with the source, or load the table again"
        )
        yield _rows_set_back(ordered, keys, detail)
    if across and (late := [key for key in _late(ordered) if key not in keys]):
        came = _FROM_OLD if _clocks_messages(ordered) else _FROM_LATE
        what = f"{counted(len(late), 'last change')} of rows of {table} {came}, so that they were set back"
        yield _rows_set_back(ordered, late, f"{what}: compare them with the source, or load the table again")


_FROM_OLD = "came from a file that was read after one with newer messages of these rows, by the time in which each was written"
_FROM_LATE = "came from a file that is before another one, by its name, which was read earlier and has newer changes of these rows"


def _rows_set_back(lane: OrderedLane, keys: list[str], detail: str) -> Metric:
    ways = (
        f"{detail} with {lane.epoch()}; if the mirror is right, {accepted(lane.lake, lane.subject)} says so"
    )
    return lane.metric("rows_set_back", len(keys), ways, tuple(keys[:FAILING_KEYS]))


def _statements_again(lane: OrderedLane) -> list[str]:
    """New statements that are those of an earlier position, to the source's own clock, and could not have run twice."""
    firsts: dict[tuple[object, str], Mapping[str, Any]] = {}
    again = []
    for row in sorted(lane.statements, key=lambda row: str(row["order_key"])):
        once = any(effect["action"] in _ONCE for effect in list_in(row["effects"]))
        if not once or row["event_time"] is None or is_weak(row["order_key"]):
            continue
        first = firsts.setdefault((row["event_time"], row["statement"]), row)
        if same_place(first["order_key"]) != same_place(row["order_key"]) and row["batch"] > lane.since:
            again.append(str(row["statement"]))
    return again


_ONCE = frozenset(
    {"add_column", "rename_column", "rename_table"}
)  # a second time they fail, unless they were undone


def _repeated_moves(lane: OrderedLane) -> int:
    """The number of new partial updates that change the key, equal an earlier change, and found no row that it had moved.

    A position would place the repetition at the first one. By arrival it moves the row that has the old key at that
    time, and inherits from it what the message does not carry, unless the row that the first one moved is still there.
    """
    old, new = lane.cells("before", "after"), lane.cells("after", "before")
    rows = lane.lake.ask(
        f"""WITH changes AS (SELECT batch, order_key, op, partial, "row" AS place, event_time, before, after,
            [{old}] AS left_key, CASE WHEN op <> 'delete' THEN [{new}] END AS new_key
            FROM {{changes.change}} WHERE {lane.where}),
        moves AS (FROM changes WHERE op = 'update' AND partial AND left_key <> new_key)
        SELECT count(DISTINCT n.order_key) AS n FROM moves AS n JOIN moves AS o
            ON n.before = o.before AND n.after = o.after AND n.place = o.place AND o.order_key < n.order_key
        WHERE n.event_time IS NOT DISTINCT FROM o.event_time AND n.batch > {lane.since} AND EXISTS (
            SELECT 1 FROM changes AS r WHERE r.order_key > o.order_key AND r.order_key < n.order_key
            AND (r.op = 'truncate' OR (r.left_key = n.new_key AND r.new_key IS DISTINCT FROM r.left_key)))"""
    )
    return int(rows[0]["n"])


def _has_older(ordered: OrderedLane) -> bool:
    """True if a new change is older by the source's clock than one of an earlier batch, or than a statement."""
    batches = f"""SELECT batch, min(event_low) AS low, max(max(event_high)) OVER (
        ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS high
        FROM {{books}} WHERE changes > 0 AND {ordered.where} GROUP BY batch"""
    stated = f"(SELECT max(event_time) FROM {{ddl}} WHERE source = {duck.text(ordered.lane.source)})"
    older = f"(low < high OR low < {stated})" if ordered.statements else "low < high"
    return bool(
        ordered.lake.ask(f"SELECT 1 FROM ({batches}) AS b WHERE batch > {ordered.since} AND {older} LIMIT 1")
    )


def _turns_back(lane: OrderedLane) -> bool:
    """True if a new change is older by the source's clock than a new one that arrived before it."""
    rows = lane.lake.ask(
        f"""SELECT 1 AS n FROM (SELECT event_time, max(event_time) OVER (
            ORDER BY order_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS high
            FROM {{changes.change}} WHERE batch > {lane.since} AND {lane.where}) AS c WHERE event_time < high LIMIT 1"""
    )
    return bool(rows)


def _set_back(lane: OrderedLane, batches: str) -> list[str]:
    """The keys whose last change came again after a newer one of the key, or after a statement that removed or changed the
    row, among the changes of some batches.

    A stream that goes back goes forward again to the same end; an old file that is copied does not.
    """
    does = {str(row["order_key"]): "" for row in clears(lane)}
    retyped: dict[str, SchemaStep] = {}
    for step, _ in lane.taken():
        if not step.empties and step.changes_rows:
            does[str(step.order)] = f"{step.action} {step.column} {step.to}"
            if step.retypes:
                retyped[str(step.order)] = step
    given = after = ""
    if does:
        listed = ", ".join(f"({duck.text(place)}, {duck.text(what)})" for place, what in does.items())
        after = """UNION SELECT k, s.order_key AS place, a.said, a.types FROM again AS a JOIN stated AS s ON s.order_key > a.first AND s.order_key < a.order_key
            WHERE a.there AND s.event_time > a.event_time AND (s.what = '' OR NOT a.partly) AND NOT EXISTS (
            SELECT 1 FROM does AS d WHERE d.order_key > a.order_key AND d.what IN ('', s.what))"""
        given = f"""does(order_key, what) AS (VALUES {listed}),
        stated AS (SELECT DISTINCT order_key, what, event_time FROM does JOIN {{changes}} AS c USING (order_key)
            WHERE c.kind IN ('change', 'ddl') AND c.order_key IN ({", ".join(map(duck.text, does))})),"""
    rows = lane.lake.ask(
        f"""WITH {_keyed(lane, batches)}, {given}
        news AS (SELECT k, max(struct_pack(order_key, event_time, said, there, partly, types)) AS last
            FROM keyed WHERE batch > {lane.since} GROUP BY k),
        again AS (SELECT k, n.last.order_key AS order_key, n.last.event_time AS event_time, n.last.there AS there,
                n.last.said AS said, n.last.types AS types, n.last.partly AS partly, min(c.order_key) AS first
            FROM news AS n JOIN keyed AS c USING (k)
            WHERE c.event_time = n.last.event_time AND c.said = n.last.said AND c.order_key < n.last.order_key GROUP BY ALL)
        SELECT DISTINCT k, NULL AS place, NULL AS said, NULL AS types FROM again JOIN keyed USING (k)
        WHERE keyed.order_key > first AND keyed.order_key < again.order_key
        AND keyed.event_time > again.event_time {after}"""
    )
    set_back = (row for row in rows if row["place"] not in retyped or _converts(retyped[row["place"]], row))
    return sorted({*_keys(lane, set_back)})


def _converts(step: SchemaStep, row: Row) -> bool:
    """True if a conversion would make another value of what a repeated row says, or nobody knows which: else the row is as it was."""
    image, sent = object_in(row["said"].rpartition("\n")[2]), object_in(row["types"]).get(step.column, "")
    if step.column not in image:
        return False
    text = image[step.column]
    if step.leaves_open(text, step.conversion(sent)):
        return True
    return not same_value(step.type, step.converted(text, sent), text)


def _late(lane: OrderedLane) -> list[str]:
    """The keys whose last change is from a file that came late: older than an earlier change of the key, by the source's
    clock, and in a file that is before that one's by its name.

    A statement that waits for a row has an older time than the one that it waits for, so a clock proves nothing by itself,
    unless it is that of the messages, which it is of those without a transaction.
    """
    is_clocked = _clocks_messages(lane)
    if not is_clocked and not _by_name(lane):
        return []
    alike = (
        f"""AND coalesce(o."transaction", '') IN {NO_TRANSACTION}
        AND coalesce(n.last."transaction", '') IN {NO_TRANSACTION}"""
        if is_clocked
        else ""
    )
    rows = lane.lake.ask(
        f"""WITH {_keyed(lane)},
        news AS (SELECT k, max(struct_pack(order_key, event_time, topic, "transaction")) AS last
            FROM keyed WHERE batch > {lane.since} GROUP BY k)
        SELECT k, n.last.topic AS late, list(DISTINCT o.topic) AS others FROM news AS n JOIN keyed AS o USING (k)
        WHERE o.order_key < n.last.order_key AND o.event_time > n.last.event_time AND o.topic <> n.last.topic {alike} GROUP BY ALL"""
    )
    return _keys(lane, rows) if is_clocked else _from_late_files(lane, rows)


def _clocks_messages(lane: OrderedLane) -> bool:
    """True if times are those in which messages were written, one after the other."""
    return lane.lake.pipeline.images_before(lane.source.name).clocks_messages


def _changed_late(ordered: OrderedLane) -> list[str]:
    """The keys of rows that a statement of a late file has removed or changed, although their last change is newer than it,
    by the source's clock, and in a file that is after the statement's by its name.

    Rows with the columns that a statement drops or renames have come after another statement.
    """
    high = ordered.lane.folded_high or ordered.lane.order_low
    if (
        not high
        or not is_weak(high)
        or not _by_name(ordered)
        or not (ordered.lane.truncates or ordered.statements)
    ):
        return []
    taken = _new_removals(ordered)
    if not taken:
        return []
    late = f"""late AS (SELECT c.order_key, c.event_time, c.topic FROM {{changes}} AS c
            JOIN (SELECT batch, event_high FROM {{books}} WHERE changes > 0 AND {ordered.where}) AS b ON b.batch < c.batch
            WHERE c.kind IN ('change', 'ddl') AND c.batch > {ordered.since} AND c.order_key IN ({", ".join(map(duck.text, taken))})
            GROUP BY c.order_key, c.event_time, c.topic HAVING max(b.event_high) > c.event_time)"""
    if not ordered.lake.ask(f"WITH {late} SELECT order_key FROM late"):
        return []
    rows = ordered.lake.ask(
        f"""WITH {_keyed(ordered)}, {late},
        lasts AS (SELECT k, max(struct_pack(order_key, event_time, topic, there, names)) AS last FROM keyed GROUP BY k)
        SELECT k, r.order_key AS place, l.last.names AS names, r.topic AS late, [l.last.topic] AS others
        FROM lasts AS l JOIN late AS r ON l.last.order_key < r.order_key AND l.last.event_time > r.event_time
        WHERE l.last.there"""
    )
    return _from_late_files(
        ordered, (row for row in rows if not (names := taken[row["place"]]) or {*names} & {*row["names"]})
    )


def _new_removals(ordered: OrderedLane) -> dict[str, list[str]]:
    """By the place of each new statement, the columns that it drops or renames; none where it empties the table."""
    removed: dict[str, list[str]] = {
        row["order_key"]: [] for row in clears(ordered) if row["batch"] > ordered.since
    }
    for step, batch in ordered.taken():
        if batch > ordered.since and step.action in ("drop_column", "rename_column") and step.since is None:
            removed.setdefault(str(step.order), []).append(step.column)
    return removed


def _by_name(lane: OrderedLane) -> bool:
    """True if the source's files are in the order of their names."""
    return lane.in_files and lane.source.order_files_by == "name"


_SAID = 'batch order_key event_time topic "transaction" there names types said partly'.split()


def _keyed(lane: OrderedLane, batches: str = "true") -> str:
    """SQL: ``keyed``, the changes of each key and what they say, also those by which a row leaves it; ``there`` if it has a
    row then, ``partly`` if that may have columns of the row before.
    """
    return f"""c AS (SELECT op, batch, order_key, event_time, topic, "transaction", op <> 'delete' AS there, json_keys(after) AS names,
            types, concat_ws('\n', op, before, after) AS said, op = 'update' AND partial AS partly,
            [{lane.cells("before", "after")}] AS left_key, [{lane.cells("after", "before")}] AS k
            FROM {{changes.change}} WHERE op <> 'truncate' AND {batches} AND {lane.where}),
        keyed AS ({under_both_keys("c", _SAID, {"there": "false"})})"""


def _from_late_files(lane: OrderedLane, rows: Iterable[Row]) -> list[str]:
    """The keys of rows whose file is before another one of theirs by its name."""
    late = [row for row in rows if natural(row["late"]) < max(map(natural, row["others"]))]
    return list(dict.fromkeys(_keys(lane, late)))


def _keys(lane: OrderedLane, rows: Iterable[Row]) -> list[str]:
    return sorted(lane.subject.named(map(str, row["k"]) for row in rows))
