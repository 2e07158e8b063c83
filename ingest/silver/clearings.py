"""Complete re-snapshots: a truncate at the beginning of an epoch, for each table that was re-snapshot in it.

The source does not send it, so it is created here whenever the epoch's first batch is decoded. The fold and the checks
treat it like any truncate: rows that the epoch does not contain are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ingest.change import Op
from ingest.lake.books import Line
from ingest.lake.datafiles import table_of
from ingest.lake.epochs import Epochs, Resnapshot
from ingest.lake.starts import beginning
from ingest.silver import sheet

_COLUMNS = (
    "kind", "batch", "source", "row", "op", "database", "schema", "table", "order_key", "partial", "note",
    "payload",
)  # fmt: skip
Row = tuple[object, ...]


def rows(epochs: Epochs, batches: Sequence[int]) -> pa.Table:
    """Rows of ``changes`` for the epochs that begin in some batches."""
    found = [
        row
        for one in epochs.resnapshots
        if one.complete and one.start.first in batches
        for row in _truncate(one, epochs.number(one.source, one.start))
    ]
    return table_of(found, _COLUMNS, sheet.SCHEMA)


def _truncate(one: Resnapshot, epoch: int) -> Iterator[Row]:
    """The truncate, and its book line."""
    batch, place = one.start.first, beginning(epoch)
    note = f"epoch {epoch} of {one.source} begins here, and with it a complete snapshot of the table"
    yield ("change", batch, one.source, 0, str(Op.TRUNCATE), *one.table, place, False, note, None)
    line = Line(batch, one.source, None, None, *one.table, changes=1, truncates=1, noted=1)
    line.order_low = line.order_high = place
    yield ("book", batch, one.source, 0, None, None, None, None, None, None, None, line.to_json())
