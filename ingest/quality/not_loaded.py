"""Rows that a later full load of their table did not contain: the source has deleted them while nothing was sent of it.

A load is known to be whole in two ways: its last row says that it is the last (Debezium's snapshots), or marks come before
and after its rows (Maxwell's bootstraps), which the books keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.change import LOAD_ENDS, LOAD_STARTS
from ingest.errors import agreeing, counted
from ingest.ledgers.books import LoadMark, load_marks
from ingest.ledgers.lanes import IS_LOAD_MARKED
from ingest.order import loaded_sql, phase_of, place_sql, same_place, weak_sql
from ingest.quality.arrow_rows import rows_by_key
from ingest.quality.catalogue import Metric
from ingest.quality.ordered_lane import OrderedLane, from_places
from ingest.quality.ways_out import accepted
from ingest.tables import duck
from ingest.tables.live_rows import live_rows, selected
from ingest.tables.snapshots import read_sql
from ingest.tables.tables import Row


def rows_not_loaded(ordered: OrderedLane) -> Iterator[Metric]:
    """Rows older than a load that came to its end in a new batch: those that it did not contain, or all if rows have no key."""
    mirror = ordered.subject.mirror
    if mirror is None or (mirror.where and not mirror.keys):
        return  # without a key nothing says which rows `where:` leaves out
    if ordered.lane.load_marked:
        yield from _not_in_marked_load(ordered)
    elif ordered.lane.reads:
        yield from _not_in_snapshot(ordered)


def held(ordered: OrderedLane, keys: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Those of some keys, given as texts, whose rows the mirror has: all of live rows, unless it has a condition."""
    mirror = ordered.subject.decided
    if not mirror.where or not keys:
        return keys
    shard = dict(mirror.shard_of(ordered.lane.id))
    by_key = ordered.subject.usable_keys(
        [shard.get(name, text) for name, text in zip(mirror.keys, key, strict=True)] for key in keys
    )
    of_rows = rows_by_key(ordered.lake, mirror, ordered.subject.kinds, by_key)
    return [texts for key, texts in by_key.items() if key in of_rows]


def _complaint(ordered: OrderedLane, keys: Sequence[Sequence[str]], ways_out: str) -> Iterator[Metric]:
    keys = held(ordered, keys)
    if not keys:
        return
    failing = ordered.named(keys)
    detail = (
        f"{ordered.lane.table} was loaded again, and {counted(len(keys), 'row')} of the mirror, such as {failing[0]}, {agreeing(len(keys), 'was', 'were')} "
        f"not in the load: no delete has come, so {agreeing(len(keys), 'it is', 'they are')} still there. {ways_out}"
    )
    yield ordered.metric("rows_not_loaded", len(keys), detail, failing)


def _doubled(ordered: OrderedLane, older: str, epoch: str) -> Iterator[Metric]:
    """Complains of a table without a key that has rows older than a load, by a condition in SQL: no row of it replaces one."""
    if not _is_any(ordered, older):
        return
    [beside] = ordered.lake.ask(
        f"""SELECT coalesce(sum(CASE op WHEN 'insert' THEN 1 WHEN 'read' THEN 1 WHEN 'delete' THEN -1 ELSE 0 END), 0) AS n
        FROM (SELECT DISTINCT op, before, after, "row", CASE WHEN op = 'read' THEN order_key ELSE coalesce({place_sql("order_key")}, order_key)
            END AS place FROM {{changes.change}} WHERE {ordered.where} AND op <> 'truncate' AND order_key > {duck.text(ordered.emptied())}
            AND {older}) AS each"""
    )
    if beside["n"] > 0:
        detail = (
            f"{ordered.lane.table} was loaded again, and its rows have no key: {counted(int(beside['n']), 'older row is', 'older rows are')} in the mirror beside those "
            f"of the load. {epoch} removes them"
        )
        yield ordered.metric("rows_not_loaded", int(beside["n"]), detail)


def changes_of(ordered: OrderedLane, *columns: str) -> str:
    """The changes of the lane for `live_rows`."""
    keys = ordered.subject.mirror.keys if ordered.subject.mirror else ()
    chosen = ", ".join((selected(keys), *columns))
    return f"SELECT {chosen} FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where}"


@dataclass(frozen=True, slots=True)
class LoadBegin:
    """Where a load begins: its first message, and the clock of the mark before its rows in microseconds, if there is one."""

    batch: int
    topic: str
    partition: int
    offset: int
    time: int | None = None

    @classmethod
    def at(cls, first: Mapping[str, Any]) -> LoadBegin:
        """At the ``first`` message of a ``part`` of a ``topic`` in a ``batch``."""
        return cls(first["batch"], first["topic"], first["part"], first["first"])


def is_older(begin: LoadBegin, streams: Sequence[Mapping[str, Any]], *, in_files: bool) -> str:
    """The condition in SQL that a change arrived before a load, which begins with the ``first`` message of some streams, each in
    its own ``batch`` if that is not the load's first.

    Of a partition without any of its rows, only what came before the load's first batch and the rows of an earlier load are
    certainly older.
    """
    by_stream, unsaid = "", "false"
    if in_files:
        file = begin.partition
        unsaid = f""""partition" < {file} OR ("partition" = {file} AND "offset" < {begin.offset})"""
    else:
        by_stream = " ".join(_is_before(stream, stream.get("batch", begin.batch)) for stream in streams)
        if begin.time is not None:
            unsaid = f"op = 'read' AND coalesce(epoch_us(event_time) < {begin.time}, false)"
    return f"CASE {by_stream} WHEN batch <> {begin.batch} THEN batch < {begin.batch} ELSE {unsaid} END"


def _is_before(stream: Mapping[str, Any], batch: int) -> str:
    """The branch of a CASE for the changes of a stream: those before the ``first`` message of a load in a batch."""
    is_of_stream = f"""topic = {duck.text(str(stream["topic"]))} AND "partition" = {stream["part"]}"""
    return (
        f"""WHEN {is_of_stream} THEN batch < {batch} OR (batch = {batch} AND "offset" < {stream["first"]})"""
    )


def _older_rows(
    ordered: OrderedLane, begin: LoadBegin, streams: Sequence[Mapping[str, Any]], below: str = ""
) -> list[Row]:
    """The keys of the rows that arrived before a load, and are placed ``below`` it if that is given, and that it did not contain."""
    older = is_older(begin, streams, in_files=ordered.in_files)
    if below:
        older = f"({older} AND order_key < {duck.text(below)})"
    if not _is_any(ordered, older):
        return []
    return ordered.lake.ask(
        f"""WITH {live_rows(changes_of(ordered, f"{older} AS is_older"), "is_older")}
        SELECT k FROM live WHERE is_older AND place > {duck.text(ordered.emptied())}
        AND k NOT IN (SELECT k FROM rows WHERE op = 'read' AND NOT is_older) ORDER BY k"""
    )


def _is_any(ordered: OrderedLane, condition: str) -> bool:
    """True if some change may meet a condition in SQL: a first load has nothing before it."""
    if ordered.lane.folded_high:
        return True
    [new] = ordered.lake.ask(
        f"SELECT coalesce(bool_or({condition}), false) AS met FROM {{changes.change}} WHERE batch > {ordered.since} AND {ordered.where}"
    )
    return bool(new["met"])


# --- loads whose last row says that it is the last --------------------------------------------------------


def _not_in_snapshot(ordered: OrderedLane) -> Iterator[Metric]:
    if not ordered.subject.keyed and (again := _loaded_again(ordered)) is not None:
        yield from _twice(ordered, again)
        return
    place = _begin_of_snapshot(ordered)
    if place is None:
        return
    begun = ordered.begin_of_load(place)
    epoch = ordered.epoch(places=ordered.places_of(begun), complete=True)
    if not ordered.subject.keyed:
        is_before = f"order_key < {duck.text(place)}"
        older = (
            is_before
            if phase_of(place)
            else is_older(LoadBegin.at(begun[0]), begun, in_files=ordered.in_files)
        )
        yield from _doubled(ordered, older, epoch)
        return
    if place == ordered.later_load:  # a change that was written before it may have been committed after it
        rows = _older_rows(ordered, LoadBegin.at(begun[0]), begun, below=place)
    elif phase_of(place):
        rows = ordered.lake.ask(
            f"""WITH {live_rows(changes_of(ordered))} SELECT k FROM live WHERE place < {duck.text(place)}
            AND place > {duck.text(ordered.emptied(before=place))} ORDER BY k"""
        )
    else:  # it comes before all changes
        rows = _older_rows(ordered, LoadBegin.at(begun[0]), begun)
    if rows:
        yield from _complaint(ordered, [row["k"] for row in rows], f"{epoch} removes what it lacked")


ENDS, _STARTS = (f"coalesce(note, '') LIKE '%{mark}%'" for mark in (LOAD_ENDS, LOAD_STARTS))


def _begin_of_snapshot(ordered: OrderedLane) -> str | None:
    """Where the newest load that has come to its end in a new batch begins; None if there is none, or nothing is older.

    All rows of a snapshot have one position. That of PostgreSQL's comes before all changes, so only arrival tells what is older. Where arrival orders a load without one, it begins after the last change before
    it, or after the load before it: a source that says where a load ends sends no change of the table meanwhile. Loads of
    several partitions each have an end of their own, and are left alone. In a dialect with positions a load without one
    comes before all changes, so nothing is older.
    """
    ended = ordered.lake.ask(
        f"""SELECT max({place_sql("order_key")}) AS place, max(order_key) FILTER ({weak_sql("order_key")} AND NOT {loaded_sql("order_key")}) AS last
            FROM {{changes.change}} WHERE op = 'read' AND {ordered.where} AND batch > {ordered.since} AND {ENDS} AND NOT {read_sql()}"""
    )
    place, last = ended[0]["place"], ended[0]["last"]
    if place is not None:
        return place if not phase_of(place) or _is_behind(ordered, place) else None
    if last is None:
        return None
    [load] = ordered.lake.ask(
        f"""WITH rows AS (SELECT op, order_key, "partition", op <> 'read' OR {ENDS} AS breaks FROM {{changes.change}}
            WHERE {ordered.where} AND order_key <= {duck.text(last)}),
        earlier AS (SELECT coalesce(max(order_key), '') AS last FROM rows WHERE breaks AND order_key < {duck.text(last)})
        SELECT min(order_key) AS first, count(DISTINCT "partition") AS partitions FROM rows, earlier WHERE order_key > earlier.last"""
    )
    return load["first"] if load["partitions"] <= 1 else None


def _loaded_again(ordered: OrderedLane) -> Row | None:
    """The last message before the newest load, if that came to its end in a new batch, and rows of another one have its position.

    A snapshot that is begun again while nothing is written has the position of the first one, and so have rows that a broker or a
    file holds twice: without a key none of them replaces another one. The first load came to its end, too, or was broken off: then
    the newest one has a first row of its own (``is_whole``).
    """
    marks = ordered.lake.ask(
        f"""SELECT {place_sql("order_key")} AS place, topic, "partition" AS part, batch, "offset" AS last, {ENDS} AS ends FROM {{changes.change}}
            WHERE op = 'read' AND {ordered.where} AND ({ENDS} OR {_STARTS}) AND NOT {read_sql()} AND order_key > {duck.text(ordered.emptied())}
            ORDER BY batch, part, last"""
    )
    of_load: dict[tuple[object, ...], list[Row]] = {}
    for mark in marks:
        stream = () if ordered.in_files else (mark["topic"], mark["part"])
        if mark["place"] is not None:
            of_load.setdefault((mark["place"], *stream), []).append(mark)
    again = [
        before
        for each in of_load.values()
        if each[-1]["ends"] and each[-1]["batch"] > ordered.since and (before := _before_last(each[:-1]))
    ]
    return again[-1] if again else None


def _before_last(marks: Sequence[Row]) -> Row | None:
    """The last message before a load, by the marks of its position before its end; None if it is the first load."""
    if not marks or (len(marks) == 1 and not marks[0]["ends"]):
        return None
    newest = marks[-1]
    return (
        {**newest, "is_whole": False}
        if newest["ends"]
        else {**newest, "last": newest["last"] - 1, "is_whole": True}
    )


def _twice(ordered: OrderedLane, last: Row) -> Iterator[Metric]:
    """Complains of a table without a key whose load has come again after its ``last`` message."""
    place, after = last["place"], {**last, "first": last["last"] + 1}
    older = is_older(LoadBegin.at(after), [after], in_files=ordered.in_files)
    rows = ordered.lake.ask(
        f"""SELECT batch, topic, "partition" AS part, "offset" AS first, {older} AS is_older FROM {{changes.change}}
            WHERE op = 'read' AND {ordered.where} AND starts_with(order_key, {duck.text(place)}) ORDER BY batch, part, first"""
    )
    again = [row for row in rows if not row["is_older"]]
    if last["is_whole"] or 2 * len(again) == len(rows):
        epoch = ordered.epoch(places=from_places(again[:1]), complete=True)
        yield from _doubled(ordered, older, epoch)
        return
    detail = (
        f"{counted(len(again), 'row')} of the load of {ordered.lane.table} came again at its position, and without a key the mirror "
        "has them twice: load the table again"
    )
    yield ordered.metric("rows_not_loaded", len(again), detail)


def _is_behind(ordered: OrderedLane, place: str) -> bool:
    """True if something of the lane comes before a load; what was folded before may be rows of the load itself."""
    lane = ordered.lane
    if any(known and same_place(known) < place for known in (lane.folded_high, lane.order_low)):
        return True
    earlier = f"SELECT 1 AS n FROM {{changes.change}} WHERE {ordered.where} AND order_key < {duck.text(place)} LIMIT 1"
    return bool(lane.folded_high and ordered.lake.ask(earlier))


# --- loads between two marks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PlacedMark:
    """A mark of a load, and the topic and partition, or the file and its number in the batch, that it arrived in."""

    batch: int
    topic: str
    partition: int
    mark: LoadMark

    @property
    def place(self) -> LoadBegin:
        return LoadBegin(self.batch, self.topic, self.partition, self.mark.offset, self.mark.time)

    @property
    def arrival(self) -> tuple[int, int, int]:
        return self.batch, self.partition, self.mark.offset

    def follows(self, earlier: _PlacedMark, *, in_files: bool) -> bool:
        """True if it arrived after another one: files are read one after the other, partitions at the same time."""
        one_stream = (self.topic, self.partition) == (earlier.topic, earlier.partition)
        return (in_files or one_stream) and earlier.arrival < self.arrival


def _not_in_marked_load(ordered: OrderedLane) -> Iterator[Metric]:
    marks = _marks(ordered)
    ends = [mark for mark in marks if mark.mark.ends and mark.batch > ordered.since]
    if not ends:
        return
    end = max(ends, key=lambda mark: mark.arrival)
    in_files = ordered.in_files
    begins = [mark for mark in marks if not mark.mark.ends and end.follows(mark, in_files=in_files)]
    if not begins or _is_restricted(ordered, end.batch):
        return
    begin = max(begins, key=lambda mark: mark.arrival)
    streams = [{"topic": begin.topic, "part": begin.partition, "first": begin.mark.offset}]
    if not in_files:
        streams += _other_streams(ordered, begin)
    epoch = ordered.epoch(places=from_places(streams), complete=True)
    if not ordered.subject.keyed:
        yield from _doubled(ordered, is_older(begin.place, streams, in_files=in_files), epoch)
        return
    if rows := _older_rows(ordered, begin.place, streams):
        ways_out = (
            f"If the whole table was loaded, {epoch} removes what it lacked. If only a part of it was (`--where` of maxwell-bootstrap), "
            f"the mirror is right: {accepted(ordered.lake, ordered.subject)} says so"
        )
        yield from _complaint(ordered, [row["k"] for row in rows], ways_out)


def _marks(ordered: OrderedLane) -> list[_PlacedMark]:
    """The marks of the lane's loads, from the books."""
    lines = ordered.lake.ask(
        f"""SELECT batch, topic, "partition" AS part, load_marks FROM {{books}}
        WHERE {ordered.where} AND {IS_LOAD_MARKED}"""
    )
    return [
        _PlacedMark(line["batch"], line["topic"], line["part"], mark)
        for line in lines
        for mark in load_marks(line["load_marks"])
    ]


def _is_restricted(ordered: OrderedLane, batch: int) -> bool:
    """True if Maxwell's own table of bootstraps, whose rows are sent with all others, names a condition for the load."""
    table = ordered.lane.table
    requests = ordered.lake.ask(
        f"""SELECT coalesce({duck.member("after", "where_clause")}, '') AS condition FROM {{changes.change}}
        WHERE source = {duck.text(ordered.source.name)} AND "table" = 'bootstrap' AND batch <= {batch}
        AND {duck.member("after", "database_name")} = {duck.value(table.database)}
        AND {duck.member("after", "table_name")} = {duck.value(table.table)} ORDER BY order_key DESC LIMIT 1"""
    )
    return any(request["condition"] for request in requests)


def _other_streams(ordered: OrderedLane, begin: _PlacedMark) -> list[dict[str, object]]:
    """Where the load begins in the partitions that have its rows, but not its marks: by the clock that both were sent at."""
    since = "" if begin.mark.time is None else f" AND epoch_us(event_time) >= {begin.mark.time}"
    return ordered.lake.ask(
        f"""SELECT topic, "partition" AS part, min("offset") AS first FROM {{changes.change}}
        WHERE {ordered.where} AND batch = {begin.batch} AND op = 'read'{since}
        AND NOT (topic = {duck.text(begin.topic)} AND "partition" = {begin.partition})
        GROUP BY ALL ORDER BY topic, part"""
    )
