"""Rows that a second full load of their table did not contain, where no message says that a load has come to its end.

Three things are not known, and are decided so that a right mirror has no complaint:

- *Where a load begins.* Rows that were loaded without a change of their table or a quiet batch between them are one stretch.
  A stretch belongs to the load before it, unless it has rows of that load again: a load that goes on has other rows, and
  a message that came twice has the clock that it had. Without clocks it must have rows from that load's beginning: what a
  source sends twice is the end.
- *Whether it has come to its end.* It has if the source has sent a batch since without any row of it, or changes of the table
  came after it in the same stream, unless the dialect's loads run while the table changes.
- *Whether it was of the whole table.* It was not if it left out more rows than it had again: of a part, or of a load that
  was taken up where it had stopped, nothing is missing.

So the check warns. What it names ends by itself if the rows come after all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.change import READ_MEANWHILE
from ingest.errors import counted
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.not_loaded import LoadBegin, changes_of, held, is_older
from ingest.quality.ordered_lane import OrderedLane
from ingest.quality.ways_out import accepted
from ingest.tables import duck
from ingest.tables.live_rows import live_rows
from ingest.tables.snapshots import read_sql
from ingest.tables.tables import Row

_BEGINNING = 0.1  # the part of a load without clocks that a second one must have rows of
FEW_LEFT_OUT = 100  # rows; a table that is as small is loaded as a whole
_ARRIVAL = 'batch, part, "offset", "row"'


def rows_not_loaded_again(ordered: OrderedLane) -> Iterator[Metric]:
    """Rows older than a second load that has come to its end, and that it did not contain."""
    settings = ordered.source.about
    if not ordered.subject.keyed or settings.load_ends == "marks":
        return
    if not ordered.lane.reads and not ordered.lane.load_rests:
        return
    loads = _Loads(ordered, meanwhile=settings.load_ends == "last row")
    if not loads.has_ended() or not loads.has_keys_again():
        return
    begun = loads.begin_of_second()
    if begun:
        yield from _left_out(ordered, loads, begun)


@dataclass(frozen=True, slots=True)
class _Loads:
    """The loads of a lane; those that run while the table changes (``meanwhile``) are noted."""

    ordered: OrderedLane
    meanwhile: bool

    @property
    def loaded(self) -> str:
        """SQL: true for a row of a load without an end of its own."""
        noted = f" AND coalesce(note, '') LIKE '%{READ_MEANWHILE}%'" if self.meanwhile else ""
        return f"(op = 'read' AND NOT {read_sql()}{noted})"

    @property
    def is_one_stream(self) -> bool:
        """True if arrival orders all changes of the lane: files are read one after the other."""
        return self.ordered.in_files or self.ordered.lane.places <= 1

    def has_ended(self) -> bool:
        """True if the newest load has come to its end with the new batches, and not before."""
        if self.ordered.lane.load_rests:  # then a change has ended it before, or nothing
            return not self._is_left_behind(f"batch = {self.ordered.lane.last_read}")
        return self.ordered.lane.last_read < self.ordered.lane.last_sent or self._is_left_behind(
            f"batch > {self.ordered.since}"
        )

    def _is_left_behind(self, batches: str) -> bool:
        """True if the last row of some batches is a change that comes after a load."""
        if self.meanwhile or not self.is_one_stream:
            return False
        last = self.ordered.lake.ask(
            f"""SELECT {self.loaded} AS loaded FROM {{changes.change}} WHERE {batches} AND {self.ordered.where}
            ORDER BY batch DESC, "partition" DESC, "offset" DESC, "row" DESC LIMIT 1"""
        )
        return bool(last) and not last[0]["loaded"]

    def _stretches(self) -> str:
        """Common table expressions: ``stretches`` has each row of a load with its stretch, and the stretch that had its key before."""
        changed = (
            "sum(CASE WHEN loaded THEN 0 ELSE 1 END) OVER arrived"
            if self.is_one_stream and not self.meanwhile
            else "0"
        )
        cut = "number - lag(number) OVER arrived > 1 OR changed <> lag(changed) OVER arrived"
        if self.ordered.in_files:
            cut += " OR topic <> lag(topic) OVER arrived"
        key = self.ordered.cells("after", "before")
        return f"""sent AS (SELECT batch, row_number() OVER (ORDER BY batch) AS number FROM
            (SELECT DISTINCT batch FROM {{books}} WHERE source = {duck.text(self.ordered.source.name)} AND messages > 0)),
        placed AS (SELECT batch, topic, "partition" AS part, "offset", "row", event_time, hash(after) AS content, [{key}] AS k,
            {self.loaded} AS loaded FROM {{changes.change}} WHERE op <> 'truncate' AND {self.ordered.where}),
        counted AS (SELECT *, {changed} AS changed FROM placed WINDOW arrived AS (ORDER BY {_ARRIVAL})),
        cut AS (SELECT *, {cut} AS cut FROM counted JOIN sent USING (batch) WHERE loaded WINDOW arrived AS (ORDER BY {_ARRIVAL})),
        numbered AS (SELECT *, sum(CASE WHEN cut THEN 1 ELSE 0 END) OVER arrived AS stretch, row_number() OVER arrived AS seat
            FROM cut WINDOW arrived AS (ORDER BY {_ARRIVAL})),
        stretches AS (SELECT *, lag(stretch) OVER of_key AS earlier, lag(seat) OVER of_key AS earlier_seat, event_time IS NOT NULL
            AND row_number() OVER (PARTITION BY k, content, event_time ORDER BY {_ARRIVAL}) > 1 AS is_repeated
            FROM numbered WINDOW of_key AS (PARTITION BY k ORDER BY {_ARRIVAL}))"""

    def has_keys_again(self) -> bool:
        """True if rows of one key were loaded more than once: of a first load nothing else has to be known."""
        [loaded] = self.ordered.lake.ask(
            f"""SELECT count(*) AS n, count(DISTINCT hash([{self.ordered.cells("after", "before")}])) AS keys
            FROM {{changes.change}} WHERE op = 'read' AND {self.ordered.where} AND {self.loaded}"""
        )
        return bool(loaded["n"] > loaded["keys"])

    def begin_of_second(self) -> list[Row]:
        """Where the newest load begins in each stream of its first batch, and its first clock; empty if it is the first load."""
        stretches = self.ordered.lake.ask(
            f"""WITH {self._stretches()} SELECT stretch, max(earlier) FILTER (earlier < stretch AND NOT is_repeated) AS earlier,
            count(*) AS n, count(*) FILTER (earlier < stretch AND NOT is_repeated) AS again, min(seat) AS seat,
            min(earlier_seat) FILTER (earlier < stretch AND NOT is_repeated) AS again_from,
            coalesce(bool_or(event_time IS NOT NULL), false) AS is_clocked FROM stretches GROUP BY stretch ORDER BY stretch"""
        )
        begin, first_seat = 0, 1
        for stretch in stretches:
            if stretch["earlier"] is None or stretch["earlier"] < begin:
                continue
            size = stretch["seat"] - first_seat
            # what a source sends twice is a load's end
            begins_anew = stretch["again_from"] - first_seat <= size * _BEGINNING
            if stretch["is_clocked"] or (begins_anew and 2 * stretch["again"] >= stretch["n"]):
                begin, first_seat = stretch["stretch"], stretch["seat"]
        if not begin:
            return []
        return self.ordered.lake.ask(
            f"""WITH {self._stretches()}, load AS (SELECT * FROM stretches WHERE stretch >= {begin})
            SELECT batch, topic, part, min("offset") AS first, (SELECT CAST(min(event_time) AS VARCHAR) FROM load) AS time,
            (SELECT CAST(max(event_time) AS VARCHAR) FROM stretches WHERE stretch < {begin}) AS time_before
            FROM load WHERE batch = (SELECT min(batch) FROM load) GROUP BY batch, topic, part ORDER BY part, topic"""
        )


def _left_out(ordered: OrderedLane, loads: _Loads, begun: Sequence[Row]) -> Iterator[Metric]:
    first = begun[0]
    begin = LoadBegin.at(first)
    older = is_older(begin, begun, in_files=ordered.in_files)
    time, before = first["time"], first["time_before"]
    # a clock that all loads share is not that of the reading
    is_clocked = time is not None and (before is None or before < time)
    is_newer = f"coalesce(CAST(event_time AS VARCHAR) >= {duck.text(time)}, false)" if is_clocked else "false"
    limit = "ALL" if ordered.subject.decided.where else FAILING_KEYS  # some of them are in no mirror
    rows = ordered.lake.ask(
        f"""WITH {live_rows(changes_of(ordered, f"{older} AS is_older", f"{is_newer} AS is_newer"), "is_older", "is_newer")},
        kept AS (SELECT k FROM live WHERE is_older AND NOT is_newer AND place > {duck.text(ordered.emptied())}
            AND k NOT IN (SELECT k FROM rows WHERE NOT is_older)),
        again AS (SELECT k FROM rows WHERE op = 'read' AND NOT is_older INTERSECT SELECT k FROM rows WHERE is_older)
        SELECT k, count(*) OVER () AS n, (SELECT count(*) FROM again) AS again FROM kept ORDER BY k LIMIT {limit}"""
    )
    if not rows or rows[0]["n"] > max(rows[0]["again"], FEW_LEFT_OUT) or _is_restricted(ordered):
        return
    keys = held(ordered, [row["k"] for row in rows])
    if not keys:
        return
    failing, count = ordered.named(keys), len(keys) if ordered.subject.decided.where else rows[0]["n"]
    epoch = ordered.epoch(places=ordered.places_of(begun), complete=True)
    detail = (
        f"{ordered.lane.table} was loaded again, and {counted(count, 'row')} of the mirror, such as {failing[0]}, came neither with "
        "the load nor since it began, and no delete of them has come. No message says whether the load was of the whole table. If it was, "
        f"{epoch} removes these rows; if it was of a part, they are right: {accepted(ordered.lake, ordered.subject)} says so"
    )
    yield ordered.metric("rows_not_loaded_again", count, detail, failing)


def _is_restricted(ordered: OrderedLane) -> bool:
    """True if Debezium's table of signals, whose rows are sent with all others, names a condition for the newest load."""
    table = ordered.lane.table
    names = [str(table), str(table._replace(database=None))]
    asked = ordered.lake.ask(
        f"""SELECT after FROM {{changes.change}} WHERE source = {duck.text(ordered.source.name)} AND op = 'insert'
        AND contains(after, '"execute-snapshot"') AND ({" OR ".join(f"contains(replace(after, chr(92), ''), {duck.text(name)})" for name in names)})
        ORDER BY batch DESC, order_key DESC LIMIT 1"""
    )
    return any("additional-condition" in signal["after"] for signal in asked)
