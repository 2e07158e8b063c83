"""What the lake knows of a table, and where rows that are read from the source belong among the changes of its stream.

Whatever the lake had landed of a table before the reading began had been committed in the source by then, and the
rows that are read hold it.  So their place is right after the newest of these changes: what came earlier loses, also what
a gap has swallowed, and what the stream says later is applied to them, in its order.  It does not matter that rows
are read later than that: a change in between is in the row already, and is applied to it once more.

- In a lane whose changes carry positions, the rows take the newest position and add a number of their own to it.
- In a lane that arrival orders, they arrive right after the last batch that had landed.
- In a lane without changes they come before everything that the stream will ever say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ingest.change import TableId
from ingest.config import Pipeline, target
from ingest.formats import ingest_snapshot
from ingest.ledgers import mirrors
from ingest.ledgers.books import merged_columns
from ingest.order import RANK, Order, number_of, order_of
from ingest.tables import duck
from ingest.tables.json_cells import object_in
from ingest.tables.tables import LakeReader

HALF = 3  # of rows that were read: no stream uses it, so a position that ends in their number is known by it
_END = 2  # the half of an end mark, before its rows


class SnapshotPlace(NamedTuple):
    """The place of all rows of one snapshot of one table."""

    phase: int
    sequence: tuple[int, ...]
    half: int
    batch: int
    number: int

    def of(self, chunk: int, message: int) -> dict[str, Any]:
        """The place of one message, as it says it; those of one snapshot differ by their arrival alone."""
        return self._written(self.half, chunk + 1, message)

    def end(self) -> dict[str, Any]:
        """The place of the end mark: just before the rows."""
        return self._written(min(self.half, _END), 0, 0)

    def _written(self, half: int, *within: int) -> dict[str, Any]:
        arrival = (self.batch, RANK, self.number, *within)
        return ingest_snapshot.place_of(Order(0, self.phase, self.sequence, half, arrival, 0))


def after(high: str | None, batch: int, number: int, epoch: int = 0) -> SnapshotPlace:
    """The place of rows that are read from now on.

    Args:
        high: the highest order key of the table's lane in all batches that were decoded; None if there is none.
        batch: the last batch that has landed.
        number: the snapshot's number, higher than those of all earlier ones of the table.
        epoch: the newest epoch of the source.
    """
    order = order_of(high) if high is not None else None
    if order is None or order.epoch < epoch:
        return SnapshotPlace(0, (number,), HALF, batch, number)
    stream = (
        order.sequence[:-1] if number_of(order) is not None else order.sequence
    )  # the stream's own position
    if not stream and order.phase:
        return SnapshotPlace(order.phase, (), 0, batch, number)
    return SnapshotPlace(order.phase, (*stream, number), HALF, batch, number)


def number_after(high: str | None, batch: int) -> int:
    """A number that no snapshot of the lane has, and none before had a higher one."""
    order = order_of(high) if high is not None else None
    last = 0
    if order is not None and number_of(order) is not None:
        last = order.sequence[-1] if order.sequence else order.arrival[2]
    return max(last, batch) + 1


class KnownTable(NamedTuple):
    """How far the lake has decoded a source, and one table of it.

    ``high`` is the highest order key of the table, ``epoch`` the newest one of the source, ``streamed`` whether
    anything of the source has been decoded; ``columns`` has the logical types that the table's messages named, and ``keys``
    the key of its mirror.
    """

    batch: int = 0
    high: str | None = None
    epoch: int = 0
    streamed: bool = False
    columns: Mapping[str, str] = {}
    keys: tuple[str, ...] = ()


def known(pipeline: Pipeline, source: str, table: TableId) -> KnownTable:
    """What the books say now, without Spark."""
    lake, of_source = LakeReader(pipeline), f"source = {duck.text(source)}"
    of_table = duck.of_table(table)
    [books] = lake.ask(
        f"""SELECT max(batch) AS batch, sum(messages) FILTER ({of_source}) AS messages,
        max(order_high) FILTER ({of_source}) AS highest, max(order_high) FILTER ({of_source} AND {of_table}) AS high
        FROM {{books}}"""
    )
    types: dict[str, str] = {}
    for row in lake.ask(f"SELECT columns FROM {{books}} WHERE {of_source} AND {of_table} ORDER BY batch"):
        types = merged_columns(types, object_in(row["columns"]))
    epoch = order_of(books["highest"]).epoch if books["highest"] else 0
    mirror = target(pipeline.rule(table), table)
    keys = next(
        (known_mirror.keys for known_mirror in mirrors.known(lake).values() if known_mirror.table == mirror),
        (),
    )
    return KnownTable(books["batch"] or 0, books["high"], epoch, bool(books["messages"]), types, keys)
