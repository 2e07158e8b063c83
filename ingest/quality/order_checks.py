"""Checks of order: cases where the place of a change or a table event depends on something that no message shows.

Each costs a query only if the books or the DDL ledger show that it may find something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ingest import formats
from ingest.change import TableId
from ingest.config import Source
from ingest.lake import duck
from ingest.lake.lake import Lake
from ingest.order import (
    AFTER_ITS_ROW,
    is_weak,
    loaded_sql,
    number_key,
    order_of,
    place_sql,
    same_place,
    weak_sql,
)
from ingest.quality.catalogue import Metric
from ingest.quality.cells import StepsOf
from ingest.quality.subjects import CheckedLane, CheckedMirror

Sequenced = tuple[int, ...]
_IMAGES = ("before", "after")
Stream = tuple[str, int | None]
"""Topic and partition; a file, which has no partition."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A row or a table event of one second, as it arrived."""

    stream: Stream
    at: tuple[int, int]  # batch and offset
    sequence: Sequenced
    text: str = ""  # of an event: its statement


def of_mirrors(
    lake: Lake,
    chosen: Iterable[CheckedMirror],
    since: int,
    statements: Sequence[Mapping[str, Any]],
    steps: StepsOf | None = None,
) -> Iterator[Metric]:
    """Count the doubtful places in the order of each mirror's changes.

    ``since`` is the last batch checked before; ``statements`` are the rows of the DDL ledger that may mean something.
    ``steps`` returns the schema steps of a lane; without it only TRUNCATE is known to empty a table.
    """
    sources = {source.name: source for source in lake.pipeline.sources}
    by_table = _by_table(statements)
    turned = cache(partial(_of_turned_files, lake, since))
    for subject in chosen:
        for lane in subject.lanes:
            source = sources.get(lane.source)
            if source is not None and source.options.order_by != "event_time":
                mine = by_table.get((lane.source, lane.table), [])
                yield from _of_lane(lake, subject, lane, source, since, mine, turned)
                if lane.reads and (clears := _clears(lake, subject, lane, mine, steps)):
                    yield from _loaded_in_vain(lake, subject, lane, source, since, clears)
                yield from _doubts(lake, subject, lane, source, since)


def _of_lane(
    lake: Lake,
    subject: CheckedMirror,
    lane: CheckedLane,
    source: Source,
    since: int,
    mine: Sequence[Mapping[str, Any]],
    turned: Callable[[], set[tuple[str, TableId]]],
) -> Iterator[Metric]:
    if unsure := unsure_in_second(lake, lane, source, since, mine):
        detail = (
            f"{unsure} rows of {lane.table} were sent in the second of a TRUNCATE or DDL statement that has no "
            "position, and the order of their arrival does not say whether they came before or after it: "
            f"compare with the source, or load the table again ({_epoch(lake, lane)}); "
            "one partition for all messages of a table prevents it"
        )
        yield Metric("event_order", unsure, subject.name, detail=detail)
    if apart := _apart(lake, lane, source, since, mine):
        detail = (
            f"{apart} TRUNCATE or DDL statements of {lane.table} came through another partition or topic than its "
            f"rows, and {source.format} has no positions that put them in order: compare with the source, and "
            "send all messages of a table to one partition"
        )
        yield Metric("event_order", apart, subject.name, detail=detail)
    lost, batch = _lost_reads(lake, subject, lane, since) if lane.reads else (0, None)
    unplaced = _unplaced(lake, lane, since, mine)
    if lost and source.by_arrival:
        unplaced += lost
    elif lost:
        detail = (
            f"{lost} rows of {lane.table} that were read again lost against changes folded earlier: to let them win, "
            f"{_epoch(lake, lane, batch)}, and when the load has come to its end, the command again with --complete"
        )
        yield Metric("re_reads_ignored", lost, subject.name, detail=detail)
    if unplaced:
        detail = (
            f"{unplaced} changes of {lane.table} have no position while others before them have one, so they stand "
            f"before these: write `order_by: arrival` under the options of source {lane.source}, then run "
            f"`ingest backfill {lake.pipeline.file.name}`"
        )
        yield Metric("unplaced_changes", unplaced, subject.name, detail=detail)
    low, high, folded = lane.order_low, lane.order_high, lane.folded_high
    if lane.changes and low and high and folded and not is_weak(high) and high < same_place(folded):
        detail = (
            f"all {lane.changes:,} changes of {lane.table} since batch {since} stand before what the mirror has "
            f"already: if its positions started again, {_epoch(lake, lane, since + 1)}"
        )
        yield Metric("old_positions", lane.changes, subject.name, detail=detail)
    if lost := _started_again(lake, subject, lane, source, since, turned):
        detail = (
            f"{lost} changes of {lane.table} are newer by the source's clock than all changes before them, and lost "
            "against older ones because their positions are lower, as if the source's positions had started again: "
            f"`ingest epoch {lake.pipeline.file.name} {lane.source} {_first_of_each_stream(lake, source, since)}` "
            "places them after everything before"
        )
        yield Metric("positions_started_again", lost, subject.name, detail=detail)


def _doubts(
    lake: Lake, subject: CheckedMirror, lane: CheckedLane, source: Source, since: int
) -> Iterator[Metric]:
    """Changes that may belong elsewhere: repeated moves, and rows of two topics under one bare name."""
    if moves := _repeated_moves(lake, subject, lane, since):
        detail = (
            f"{moves} updates of {lane.table} that change the key and lack unchanged columns came again; what they "
            "lack was taken from the row that has the old key now: compare these rows with the source, or load "
            f"the table again with {_epoch(lake, lane)}"
        )
        yield Metric("repeated_moves", moves, subject.name, detail=detail)
    if rows := _set_back(lake, subject, lane, since):
        detail = (
            f"{rows} rows of {lane.table} were set back: their last change came before, and a newer one since then; "
            "unless the source sends that one again, too, compare these rows with the source, or load the table "
            f"again with {_epoch(lake, lane)}"
        )
        yield Metric("rows_set_back", rows, subject.name, detail=detail)
    if topics := _topics_under_one_name(lake, lane, source):
        detail = (
            f"{topics} topics send rows of {lane.table}, a name without a database, so tables of two databases may "
            "be one mirror: give each topic its table under `options: {table: ...}`, then "
            f"`ingest backfill {lake.pipeline.file.name}`"
        )
        yield Metric("mixed_topics", topics, subject.name, detail=detail, limit=1)


def _epoch(lake: Lake, lane: CheckedLane, batch: int | None = None, places: str = "") -> str:
    """The command that begins an epoch with a re-snapshot of a table: at places, in a batch, or in the next one to come."""
    where = places or f"--from-batch {lake.decoded() + 1 if batch is None else batch}"
    return f"`ingest epoch {lake.pipeline.file.name} {lane.source} {where} --resnapshot {lane.table}`"


def _from(streams: Iterable[Mapping[str, Any]]) -> str:
    """The first messages of some streams, as options of `ingest epoch`."""
    return " ".join(f"--from {row['topic']}/{row['part']}/{row['first']}" for row in streams)


def _by_table(statements: Sequence[Mapping[str, Any]]) -> dict[tuple[str, TableId], list[Mapping[str, Any]]]:
    """The statements of each source and table; unreadable ones count for their message's table."""
    found: dict[tuple[str, TableId], list[Mapping[str, Any]]] = {}
    for row in statements:
        named = {TableId(*one["table"]) for one in json.loads(row.get("effects") or "[]")}
        for table in named or {TableId(row.get("database"), row.get("schema"), row.get("table"))}:
            found.setdefault((row["source"], table), []).append(row)
    return found


# --- events that have a second and no counter -----------------------------------------------------


def unsure_in_second(
    lake: Lake, lane: CheckedLane, source: Source, since: int, statements: Sequence[Mapping[str, Any]]
) -> int:
    """The number of a lane's rows that may be on the wrong side of a table event in their second."""
    if not formats.load(source.format).ABOUT.event_marks:
        return 0
    anchored = (row["order_key"] for row in statements if order_of(row["order_key"]).half == AFTER_ITS_ROW)
    prefixes = set(map(_second, anchored))
    low = lane.order_low or ""
    news = {_second(row["order_key"]) for row in statements if row["batch"] > since}
    wanted = sorted(one for one in prefixes if one in news or (lane.changes and low < one + "~"))
    total = 0
    columns = ", ".join(map(duck.name, ("topic", "partition", "batch", "offset", "order_key")))
    for prefix in wanted:
        events = [_arrived(row, source) for row in statements if row["order_key"].startswith(prefix)]
        text = duck.text(prefix)
        rows = lake.ask(
            f"SELECT {columns} FROM {{changes.change}} WHERE op <> 'truncate' "
            f"AND {duck.of_lane(lane.source, lane.table)} AND order_key >= {text} AND starts_with(order_key, {text})"
        )
        total += unsure(events, [_arrived(row, source) for row in rows])
    return total


def unsure(events: Sequence[Arrived], rows: Sequence[Arrived]) -> int:
    """The number of rows of one second that arrival and counter place on different sides of an event, or cannot place.

    Repeated rows and events count by their first arrival. If rows of one stream arrived in another order than their
    counters, arrival proves nothing.
    """
    firsts: dict[tuple[str, Sequenced], Arrived] = {}
    for event in sorted(events, key=lambda one: one.at):
        firsts.setdefault((event.text, event.sequence), event)
    first_of: dict[tuple[Stream, Sequenced], tuple[int, int]] = {}
    for row in rows:
        place = (row.stream, row.sequence)
        first_of[place] = min(row.at, first_of.get(place, row.at))
    found: set[Sequenced] = set()
    for event in firsts.values():
        for (stream, sequence), at in first_of.items():
            if stream != event.stream or (at < event.at) != (sequence <= event.sequence):
                found.add(sequence)
    for earlier in firsts.values():
        for later in firsts.values():
            if earlier.text == later.text and earlier.sequence < later.sequence:
                found |= {
                    row.sequence
                    for row in rows
                    if earlier.sequence < row.sequence <= later.sequence and row.at > later.at
                }
    return len(found or (_disordered(first_of) if firsts else ()))


def _disordered(first_of: Mapping[tuple[Stream, Sequenced], tuple[int, int]]) -> set[Sequenced]:
    """The rows that arrived after one of their stream with a higher counter."""
    found: set[Sequenced] = set()
    highest: dict[Stream, Sequenced] = {}
    for stream, sequence in sorted(first_of, key=lambda place: first_of[place]):
        if sequence < highest.setdefault(stream, sequence):
            found.add(sequence)
        highest[stream] = max(highest[stream], sequence)
    return found


def _second(order_key: str) -> str:
    """The common prefix of the order keys of one second."""
    order = order_of(order_key)
    return number_key(order.epoch) + number_key(order.phase) + "".join(map(number_key, order.sequence[:1]))


def _arrived(row: Mapping[str, Any], source: Source) -> Arrived:
    stream = row["topic"], row["partition"] if source.kind == "kafka" else None
    sequence = order_of(row["order_key"]).sequence
    return Arrived(stream, (row["batch"], row["offset"]), sequence, row.get("statement") or "")


# --- events of weak dialects in another partition ---------------------------------------------------


def _apart(
    lake: Lake, lane: CheckedLane, source: Source, since: int, statements: Sequence[Mapping[str, Any]]
) -> int:
    """The number of a lane's new events without positions that arrived through another partition than its rows."""
    if source.kind != "kafka":
        return 0
    new = [row for row in statements if row["batch"] > since and is_weak(row["order_key"])]
    weak = lane.order_low is not None and is_weak(lane.order_low) and lane.truncates
    if not new and not weak:
        return 0
    ways = lake.ask(
        f"SELECT DISTINCT topic, {duck.name('partition')} FROM {{books}} WHERE changes > 0 AND {duck.of_lane(lane.source, lane.table)}"
    )
    rows = {(row["topic"], row["partition"]) for row in ways}
    apart = sum(bool(rows - {(row["topic"], row["partition"])}) for row in new)
    return max(apart, lane.truncates if weak and len(rows) > 1 else 0)


# --- changes without a position among changes with one ----------------------------------------------


def _unplaced(lake: Lake, lane: CheckedLane, since: int, statements: Sequence[Mapping[str, Any]]) -> int:
    """The number of new changes and statements without a position that arrived after a change with one."""
    before = bool(lane.folded_high) and not is_weak(lane.folded_high or "")
    placed = before or (lane.order_high is not None and not is_weak(lane.order_high))
    if not placed:
        return 0
    new = [row["order_key"] for row in statements if row["batch"] > since]
    lows = new if lane.order_low is None else [*new, lane.order_low]
    if not any(is_weak(key) and order_of(key).phase == 1 for key in lows):
        return 0
    late = "true" if before else 'f.batch IS NOT NULL AND (r.batch, r."offset") > (f.batch, f."offset")'
    found = lake.ask(
        f"""WITH rows AS (SELECT op, topic, "partition", batch, "offset", {weak_sql("order_key")} AS weak, note
            FROM {{changes}} WHERE kind IN ('change', 'ddl') AND batch > {since} AND {duck.of_lane(lane.source, lane.table)}),
        places AS (SELECT topic, "partition", batch, "offset", row_number() OVER (
            PARTITION BY topic, "partition" ORDER BY batch, "offset") AS number FROM rows WHERE NOT weak)
        SELECT count(*) AS n FROM (SELECT DISTINCT r.batch, r.topic, r."partition", r."offset"
            FROM rows AS r LEFT JOIN places AS f ON r.topic = f.topic AND r."partition" = f."partition" AND f.number = 1
            WHERE r.weak AND r.op <> 'read' AND NOT coalesce(r.note LIKE '%null value%', false) AND {late}) AS late"""
    )
    return int(found[0]["n"])


# --- rows that were read again, in vain -------------------------------------------------------------


def _lost_reads(lake: Lake, subject: CheckedMirror, lane: CheckedLane, since: int) -> tuple[int, int | None]:
    """The number of rows read in new batches that differ from a change of their key which arrived before but is ordered
    after them, and the first of their batches.
    """
    if not subject.keyed or subject.mirror is None or not lane.folded_high or not lane.order_low:
        return 0, None
    if lane.order_low > lane.folded_high:
        return 0, None
    names = [one.name for one in subject.mirror.key_columns]
    key = ", ".join(duck.member("coalesce(after, before)", name) for name in names)
    [found] = lake.ask(
        f"""WITH rows AS (SELECT batch, op, order_key, coalesce(after, '') AS after, [{key}] AS k
            FROM {{changes.change}} WHERE op <> 'truncate' AND {duck.of_lane(lane.source, lane.table)}),
        news AS (SELECT k, max(struct_pack(order_key, after, batch)) AS last FROM rows
            WHERE op = 'read' AND batch > {since} GROUP BY k),
        olds AS (SELECT k, max(struct_pack(order_key, after)) AS last FROM rows
            WHERE batch <= {since} AND order_key > {duck.text(lane.order_low)} GROUP BY k)
        SELECT count(*) AS n, min(n.last.batch) AS batch FROM news AS n JOIN olds AS o ON n.k = o.k
        WHERE o.last.order_key > n.last.order_key AND o.last.after <> n.last.after"""
    )
    return found["n"], found["batch"]


# --- rows that were loaded into an emptied table --------------------------------------------------


def _clears(
    lake: Lake,
    subject: CheckedMirror,
    lane: CheckedLane,
    statements: Sequence[Mapping[str, Any]],
    steps: StepsOf | None,
) -> list[Mapping[str, Any]]:
    """Each TRUNCATE, CREATE or RENAME that removes a lane's rows: its place, and where it arrived."""
    found: list[Mapping[str, Any]] = []
    if lane.truncates_ever:
        found += lake.ask(
            f"SELECT {_ARRIVAL} FROM {{changes.change}} WHERE op = 'truncate' AND {duck.of_lane(lane.source, lane.table)}"
        )
    if steps is not None and statements and subject.mirror is not None:
        taken = steps(subject.mirror, lane.source, lane.table, subject.applied)
        places = {str(step.order) for step, _batch in taken if step.action == "new_incarnation"}
        found += [row for row in statements if row["order_key"] in places]
    arrived = (row for row in found if row.get("topic") is not None)  # not what an epoch has cleared
    return [row for row in arrived if row["order_key"] > (lane.order_low or "")]


def _loaded_in_vain(
    lake: Lake,
    subject: CheckedMirror,
    lane: CheckedLane,
    source: Source,
    since: int,
    clears: Sequence[Mapping[str, Any]],
) -> Iterator[Metric]:
    """The number of rows of a full load that arrived after their table was emptied, but stand before that.

    They have no place among the changes, so they stand before all of them, as those of a first load must.
    """
    values = ", ".join(
        f"({row['batch']}, {duck.text(row['topic'])}, {'NULL' if row.get('partition') is None else row['partition']}, "
        f"{row['offset']}, {duck.text(row['order_key'])})"
        for row in clears
    )
    streams = lake.ask(
        f"""WITH clears(batch, topic, "partition", "offset", order_key) AS (VALUES {values}),
        loaded AS (SELECT {_ARRIVAL}, "row" FROM {{changes.change}} WHERE op = 'read' AND batch > {since}
            AND {duck.of_lane(lane.source, lane.table)} AND {loaded_sql("order_key")}),
        lost AS (SELECT DISTINCT r.batch, r.topic, coalesce(r."partition", 0) AS part, r."offset", r."row" FROM loaded AS r
            JOIN clears AS c ON c.order_key > r.order_key AND (c.batch < r.batch OR (
            c.batch = r.batch AND c.topic = r.topic AND c."partition" IS NOT DISTINCT FROM r."partition"
            AND c."offset" < r."offset")))
        SELECT batch, topic, part, min("offset") AS first, count(*) AS n FROM lost GROUP BY ALL ORDER BY batch, part, topic"""
    )
    if streams:
        first = streams[0]["batch"]
        places = ""
        if first in {
            row["batch"] for row in clears
        }:  # it must begin after the statement, in the middle of the batch
            begun = [row for row in streams if row["batch"] == first]
            places = _from(begun[:1] if source.kind == "files" else begun)
        n = sum(row["n"] for row in streams)
        detail = (
            f"{n} rows of {lane.table} were loaded after a TRUNCATE, CREATE or RENAME of the table, and are not in "
            "the mirror: rows of a full load have no position, so they stand before all statements. To let them win, "
            f"{_epoch(lake, lane, first, places)}, and when the load has come to its end, the command again with --complete"
        )
        yield Metric("re_reads_ignored", n, subject.name, detail=detail)


_ARRIVAL = 'batch, topic, "partition", "offset", order_key'


# --- positions that start again --------------------------------------------------------------------


def _started_again(
    lake: Lake,
    subject: CheckedMirror,
    lane: CheckedLane,
    source: Source,
    since: int,
    turned: Callable[[], set[tuple[str, TableId]]],
) -> int:
    """The number of new changes that are newer by the source's clock than all before them, but placed before an earlier
    change of their key, or a truncate.

    Before them are earlier batches, and what came before in their batch: of a topic, through their partition.

    Neither repeated nor late changes are newer than everything before. A statement that waited for a lock has an older
    time than its position, so a late change may look newer than all before it; but not than a change of its own row.
    """
    weak = lane.order_low is None or is_weak(lane.order_low)
    if weak or not subject.keyed or subject.mirror is None:
        return 0
    several = source.kind == "files" and lane.new_places > 1
    if not (lane.floor or lane.turned_back or (several and (lane.source, lane.table) in turned())):
        return 0
    of_lane = duck.of_lane(lane.source, lane.table)
    newest, doubtful = _newer_and_lower(of_lane, source, since)
    [first] = lake.ask(f"WITH {newest} SELECT min(order_key) AS low FROM ({doubtful}) AS c")
    if first["low"] is None:
        return 0
    cells = [[duck.member(image, one.name) for image in _IMAGES] for one in subject.mirror.key_columns]
    left = ", ".join(f"coalesce({before}, {after})" for before, after in cells)
    new = ", ".join(f"coalesce({after}, {before})" for before, after in cells)
    one_stream = "".join(f" AND o.{name} IS NOT DISTINCT FROM n.{name}" for name in _streams(source))
    came_before = f"(o.batch < n.batch OR (o.batch = n.batch AND o.arrival < n.arrival{one_stream}))"
    [lost] = lake.ask(
        f"""WITH {newest}, news AS ({doubtful}),
        c AS (SELECT batch, topic, "partition", {_ARRIVAL_KEY} AS arrival, op, order_key, coalesce(after, '') AS after,
            concat_ws('\n', {left}) AS left_key, concat_ws('\n', {new}) AS new_key
            FROM {{changes.change}} WHERE {of_lane} AND order_key >= {duck.text(first["low"])}),
        keyed AS (SELECT *, left_key AS k FROM c UNION ALL SELECT *, new_key AS k FROM c WHERE left_key <> new_key)
        SELECT count(DISTINCT order_key) AS n FROM (
            SELECT order_key FROM news WHERE op = 'truncate'
            UNION ALL SELECT n.order_key FROM news AS n JOIN c AS o ON {came_before}
            WHERE o.op = 'truncate' AND o.order_key > n.order_key
            UNION ALL SELECT n.order_key FROM keyed AS n JOIN keyed AS o ON n.k = o.k AND {came_before}
            WHERE n.order_key IN (SELECT order_key FROM news) AND o.op <> 'truncate'
            AND o.order_key > n.order_key AND o.after <> n.after) AS lost"""
    )
    return int(lost["n"])


def _newer_and_lower(of_lanes: str, source: Source, since: int) -> tuple[str, str]:
    """SQL: what came before the new changes of each lane, and those that are newer than it and placed before its end."""
    lane = 'source, database, "schema", "table"'
    same = " AND ".join(f"c.{one} IS NOT DISTINCT FROM e.{one}" for one in lane.split(", "))
    before = f"""batches AS (SELECT {lane}, batch, max(event_high) AS newest, max(order_high) AS high
            FROM {{books}} WHERE changes > 0 AND {of_lanes} GROUP BY {lane}, batch),
        earlier AS (SELECT {lane}, batch, max(newest) OVER before_it AS newest, max(high) OVER before_it AS high
            FROM batches WINDOW before_it AS (
                PARTITION BY {lane} ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
        fresh AS (SELECT *, max(event_time) OVER before_it AS newest, max(order_key) OVER before_it AS high
            FROM (SELECT {lane}, batch, topic, "partition", "offset", op, order_key, event_time, {_ARRIVAL_KEY} AS arrival
                FROM {{changes.change}} WHERE batch > {since} AND {of_lanes}) AS each
            WINDOW before_it AS (PARTITION BY {", ".join((lane, "batch", *_streams(source)))}
                ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))"""
    doubtful = f"""SELECT c.batch, c.topic, c."partition", c."offset", c.arrival, c.op, c.order_key
        FROM fresh AS c LEFT JOIN earlier AS e ON c.batch = e.batch AND {same}
        WHERE c.op <> 'read' AND c.order_key < greatest(coalesce(c.high, e.high), coalesce(e.high, c.high))
        AND c.event_time > greatest(coalesce(c.newest, e.newest), coalesce(e.newest, c.newest))"""
    return before, doubtful


_ARRIVAL_KEY = f"substr(order_key, length({place_sql('order_key')}) + 1)"


def _streams(source: Source) -> tuple[str, ...]:
    """The columns whose values have no common order of arrival; files come in the order of their names."""
    return ("topic", '"partition"') if source.kind == "kafka" else ()


def _of_turned_files(lake: Lake, since: int) -> set[tuple[str, TableId]]:
    """The lanes of which one file of a new batch has only newer changes than another one, and lower positions."""
    lane = 'source, database, "schema", "table"'
    same = " AND ".join(f"a.{one} IS NOT DISTINCT FROM b.{one}" for one in (*lane.split(", "), "batch"))
    rows = lake.ask(
        f"""WITH lines AS (SELECT {lane}, batch, order_low, order_high, event_low, event_high
            FROM {{books}} WHERE batch > {since} AND changes > 0)
        SELECT DISTINCT a.source, a.database, a."schema", a."table" FROM lines AS a JOIN lines AS b ON {same}
        WHERE b.order_low < a.order_high AND b.event_low > a.event_high"""
    )
    return {(row["source"], TableId(row["database"], row["schema"], row["table"])) for row in rows}


def _first_of_each_stream(lake: Lake, source: Source, since: int) -> str:
    """Where a source's positions started again, as options of `ingest epoch`."""
    newest, doubtful = _newer_and_lower(f"source = {duck.text(source.name)}", source, since)
    found = lake.ask(
        f"""WITH {newest} SELECT topic, coalesce("partition", 0) AS part, min("offset") AS first
        FROM ({doubtful}) AS c GROUP BY topic, coalesce("partition", 0) ORDER BY topic, part"""
    )
    return _from(found)


# --- what may belong elsewhere ----------------------------------------------------------------------


def _repeated_moves(lake: Lake, subject: CheckedMirror, lane: CheckedLane, since: int) -> int:
    """The number of new partial updates that change the key, equal an earlier change, and found no row that it had moved.

    A position would place the repetition at the first one. By arrival it moves the row that has the old key at that
    time, and inherits from it what the message does not carry, unless the row that the first one moved is still there.
    """
    weak = lane.order_low is not None and is_weak(lane.order_low)
    if not weak or not lane.key_changes or not subject.keyed or subject.mirror is None:
        return 0
    names = [one.name for one in subject.mirror.key_columns]
    cells = {image: [duck.member(image, name) for name in names] for image in _IMAGES}
    pairs = list(zip(cells["before"], cells["after"], strict=True))
    old = ", ".join(f"coalesce({before}, {after})" for before, after in pairs)
    new = ", ".join(f"coalesce({after}, {before})" for before, after in pairs)
    found = lake.ask(
        f"""WITH changes AS (SELECT batch, order_key, op, partial, {duck.name("row")} AS place, event_time, before, after,
            [{old}] AS left_key, CASE WHEN op <> 'delete' THEN [{new}] END AS new_key
            FROM {{changes.change}} WHERE {duck.of_lane(lane.source, lane.table)}),
        moves AS (FROM changes WHERE op = 'update' AND partial AND left_key <> new_key)
        SELECT count(DISTINCT n.order_key) AS n FROM moves AS n JOIN moves AS o
            ON n.before = o.before AND n.after = o.after AND n.place = o.place AND o.order_key < n.order_key
        WHERE n.event_time IS NOT DISTINCT FROM o.event_time AND n.batch > {since} AND EXISTS (
            SELECT 1 FROM changes AS r WHERE r.order_key > o.order_key AND r.order_key < n.order_key
            AND (r.op = 'truncate' OR (r.left_key = n.new_key AND r.new_key IS DISTINCT FROM r.left_key)))"""
    )
    return int(found[0]["n"])


def _set_back(lake: Lake, subject: CheckedMirror, lane: CheckedLane, since: int) -> int:
    """The number of keys whose last change came again after a newer one of the key; only without positions.

    A stream that goes back goes forward again to the same end; an old file that is copied does not.
    """
    weak = lane.order_low is not None and is_weak(lane.order_low)
    if not weak or not subject.keyed or subject.mirror is None or not lane.folded_high:
        return 0
    of_lane = duck.of_lane(lane.source, lane.table)
    [times] = lake.ask(
        f"SELECT min(event_low) FILTER (batch > {since}) AS low, max(event_high) FILTER (batch <= {since}) AS high "
        f"FROM {{books}} WHERE changes > 0 AND {of_lane}"
    )
    if times["low"] is None or times["high"] is None or times["low"] >= times["high"]:
        return 0
    names = [one.name for one in subject.mirror.key_columns]
    key = ", ".join(f"coalesce({duck.member('after', one)}, {duck.member('before', one)})" for one in names)
    changes = (
        f"SELECT batch, order_key, event_time, concat_ws('\n', {key}) AS k, concat_ws('\n', op, before, after) AS said "
        f"FROM {{changes.change}} WHERE op <> 'truncate' AND {of_lane}"
    )
    found = lake.ask(
        f"""WITH changes AS ({changes}),
        news AS (SELECT k, max(struct_pack(order_key, event_time, said)) AS last
            FROM changes WHERE batch > {since} GROUP BY k),
        again AS (SELECT k, n.last.order_key AS order_key, n.last.event_time AS event_time, min(c.order_key) AS first
            FROM news AS n JOIN changes AS c USING (k)
            WHERE c.event_time = n.last.event_time AND c.said = n.last.said AND c.order_key < n.last.order_key GROUP BY ALL)
        SELECT count(DISTINCT k) AS n FROM again JOIN changes USING (k)
        WHERE changes.order_key > first AND changes.order_key < again.order_key
        AND changes.event_time > again.event_time"""
    )
    return int(found[0]["n"])


def _topics_under_one_name(lake: Lake, lane: CheckedLane, source: Source) -> int:
    """The number of topics that feed a table whose name has neither database nor schema; 0 for less than two."""
    bare = lane.table.database is None and lane.table.schema is None
    if source.kind != "kafka" or not bare or lane.places < 2:
        return 0
    query = f"SELECT count(DISTINCT topic) AS n FROM {{books}} WHERE changes > 0 AND {duck.of_lane(lane.source, lane.table)}"
    topics = int(lake.ask(query)[0]["n"])
    return topics if topics > 1 else 0
