"""Which loads in a run's new rows are later ones: their table had sent changes before, all at lower positions.

It is asked of the rows as they were decoded, before they are committed, because tasks see a part of a stream each. Where there
is such a load, the messages are decoded again with what was found (`ingest.silver.decode`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest import formats
from ingest.change import LaneId, lane_of
from ingest.ledgers.books import Line
from ingest.ledgers.later_loads import LaterLoad
from ingest.ledgers.starts import MessagePlace
from ingest.order import Order, order_key, order_of, same_place
from ingest.store import stores
from ingest.tables import duck
from ingest.tables.datafiles import Added
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHANGES

_STREAM = ("batch", "topic", "partition")
_LANE = ("source", "database", "schema", "table")
_END = 2**63 - 1  # after all messages of a batch


class _Reached(NamedTuple):
    """The highest place of some changes, and where in bronze they end."""

    place: str
    end: MessagePlace


_NOTHING = _Reached("", MessagePlace(0, "", 0, 0))
_Begins = dict[MessagePlace, int]
"""The first message of a load in each batch, topic and partition (with offset 0), by its offset."""


def later_loads_in(lake: Lake, files: Sequence[Added]) -> list[LaterLoad]:
    """The later loads in files of ``changes`` that are not committed yet."""
    rows = _NewRows(lake.layout(CHANGES).folder, files)
    lanes = _loaded_after_changes(lake, rows)
    if not lanes:
        return []
    later = []
    for load in rows.loads(lanes):
        first, lane = min(load.begins).batch, load.lane
        if _has_begun(lake, lane, load.place, first):
            continue
        if lake.pipeline.by_source[lane[0]].kind == "files":  # they are read one after the other
            in_batch = rows.before(lane, min(load.begins.items(), key=_arrival), in_files=True)
        else:
            in_batch = max(rows.before(lane, begin) for begin in load.begins.items())
        before = max(_booked(lake, lane, first), *_reached(rows.lines, lane, first), in_batch)
        epoch, sequence = load.order.epoch, load.order.sequence
        beyond = order_key(load.order._replace(phase=1, arrival=(), row=0))
        if _of_stream(before.place) and epoch == order_of(before.place).epoch and before.place < beyond:
            later.append(LaterLoad(*lane, sequence, before.end, first))
    return later


def _loaded_after_changes(lake: Lake, rows: _NewRows) -> set[LaneId]:
    """The tables with a key that a source has loaded now, and that have sent changes: in earlier batches, or in these."""
    sources = {
        source.name
        for source in lake.pipeline.sources
        if source.options.order_by == "sequence" and formats.load(source.format).ABOUT.placed_loads
    }
    if not sources:
        return set()
    lanes = {
        (line.source, line.table_id)
        for line in rows.lines
        if line.source in sources and line.reads and all(line.keys) and _is_loaded(line.order_low or "")
    }
    return {
        lane
        for lane in lanes
        if any(_of_stream(reached.place) for reached in _reached(rows.lines, lane, _END))
        or _of_stream(_booked(lake, lane, _END).place)
    }


def _is_loaded(place: str) -> bool:
    """True for the place of a loaded row that names a position."""
    order = order_of(place)
    return not order.phase and bool(order.sequence)


def _of_stream(place: str) -> bool:
    """True for the place of a change that has a position."""
    return bool(place) and bool((order := order_of(place)).phase and order.sequence)


def _reached(lines: Sequence[Line], lane: LaneId, before: int) -> list[_Reached]:
    """What the books' lines say of a lane in the batches before one."""
    return [
        _Reached(line.order_high or "", MessagePlace(line.batch, line.topic or "", line.partition or 0, _END))
        for line in lines
        if (line.source, line.table_id) == lane and line.batch < before
    ]


def _booked(lake: Lake, lane: LaneId, before: int) -> _Reached:
    """The highest place of a lane in the books, of the batches before one."""
    lines = lake.ask(
        f"""SELECT batch, topic, coalesce("partition", 0) AS part, order_high FROM {{books}}
        WHERE {duck.of_lane(*lane)} AND batch < {before} AND order_high IS NOT NULL ORDER BY order_high DESC LIMIT 1"""
    )
    for line in lines:
        return _Reached(
            line["order_high"], MessagePlace(line["batch"], line["topic"] or "", line["part"], _END)
        )
    return _NOTHING


def _has_begun(lake: Lake, lane: LaneId, place: str, batch: int) -> bool:
    """True if rows of a load came before a batch, as a first load."""
    rows = lake.ask(
        f"""SELECT 1 AS n FROM {{changes.change}} WHERE {duck.of_lane(*lane)} AND op = 'read' AND batch < {batch}
        AND starts_with(order_key, {duck.text(place)}) LIMIT 1"""
    )
    return bool(rows)


class _Load(NamedTuple):
    """The rows of a lane that share a place, as `same_place` writes it; ``order`` is that of one of them."""

    lane: LaneId
    place: str
    order: Order
    begins: _Begins


class _NewRows:
    """The rows of files that are not committed yet."""

    def __init__(self, folder: str, files: Sequence[Added]) -> None:
        self.paths: Mapping[str, list[str]] = defaultdict(list)
        for file in files:
            self.paths[file.partition["kind"] or ""].append(f"{folder}/{file.path}")

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of the books."""
        return [
            Line.from_json(text)
            for page in self._pages("book", ["payload"])
            for text in page.column("payload").to_pylist()
        ]

    def _pages(self, kind: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        for path in self.paths[kind]:
            with pq.ParquetFile(stores.at(path).source(path)) as file:
                for batch in file.iter_batches(columns=list(columns)):
                    yield pa.Table.from_batches([batch])

    def loads(self, lanes: set[LaneId]) -> list[_Load]:
        """The loads of some lanes."""
        loads: dict[tuple[LaneId, str], _Load] = {}
        groups = [*_LANE, *_STREAM, "sequence"]
        for page in self._pages("change", [*groups, "op", "offset", "order_key"]):
            read = page.filter(pc.equal(page["op"], "read"))
            firsts = read.group_by(groups).aggregate([("offset", "min"), ("order_key", "min")])
            for row in firsts.to_pylist():
                lane, key = lane_of(row), row["order_key_min"]
                if lane in lanes and _is_loaded(key):
                    place = same_place(key)
                    load = loads.setdefault((lane, place), _Load(lane, place, order_of(key), {}))
                    stream = MessagePlace(row["batch"], row["topic"], row["partition"] or 0, 0)
                    load.begins[stream] = min(row["offset_min"], load.begins.get(stream, _END))
        return list(loads.values())

    def before(self, lane: LaneId, begin: tuple[MessagePlace, int], *, in_files: bool = False) -> _Reached:
        """The highest place of the changes that came before a load in its topic and partition, or in files before its own, of one
        batch.
        """
        (stream, offset), reached = begin, _NOTHING
        cells = dict(zip(_LANE, (lane[0], *lane[1]), strict=True)) | {"batch": stream.batch}
        if not in_files:
            cells |= {"topic": stream.topic}
        for page in self._pages("change", [*_LANE, *_STREAM, "op", "offset", "order_key"]):
            same = pc.equal(page["partition"], stream.partition)
            earlier = pc.and_(same, pc.less(page["offset"], offset))
            if in_files:
                earlier = pc.or_(earlier, pc.less(page["partition"], stream.partition))
            wanted = [earlier, pc.not_equal(page["op"], "read")]
            wanted += [
                pc.is_null(page[name]) if cell is None else pc.equal(page[name], cell)
                for name, cell in cells.items()
            ]
            changes = page.filter(reduce(pc.and_kleene, wanted))
            if changes.num_rows:
                end = MessagePlace(stream.batch, stream.topic, stream.partition, offset - 1)
                reached = max(reached, _Reached(pc.max(changes["order_key"]).as_py(), end))
        return reached


def _arrival(begin: tuple[MessagePlace, int]) -> tuple[int, int, int]:
    """Where the rows of a load begin in one file, among all files."""
    stream, offset = begin
    return stream.batch, stream.partition, offset
