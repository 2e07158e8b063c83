"""What the books say of a table before its rows are read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.errors import IngestError
from ingest.order import Order, order_key
from ingest.source.database import SourceColumn
from ingest.source.place import KnownTable, known
from ingest.source.snapshot import agreed

BINS = TableId("depot", None, "bins")


def key(epoch: int, number: int) -> str:
    """An order key."""
    return order_key(Order(epoch, 1, (number,), 0, (1, 0, 0, 0), 0))


def test_the_highest_place_of_the_table_and_the_newest_epoch_of_its_source(tmp_path: Path) -> None:
    """Rows at another table's place, or in an old epoch, would win or lose against the wrong changes."""
    pipeline = Pipeline("p", Path("/p.yaml"), str(tmp_path), ())
    assert KnownTable() == known(pipeline, "s", BINS)
    lines = [
        (1, "s", BINS, key(0, 9), {"id": "int32"}),
        (2, "s", BINS, key(0, 100), {"id": "int64", "v": "boolean"}),
        (3, "s", BINS._replace(schema="x"), key(1, 5), {}),
        (4, "other", BINS, key(3, 999), {"v": "string"}),
        (5, "s", TableId(None, None, None), None, {}),
    ]
    columns = {
        "batch": [batch for batch, *_ in lines],
        "source": [source for _, source, *_ in lines],
        **{name: [one[2][at] for one in lines] for at, name in enumerate(("database", "schema", "table"))},
        "messages": [1] * len(lines),
        "order_high": [high for *_, high, _ in lines],
        "columns": [json.dumps(kinds) for *_, kinds in lines],
    }
    write_deltalake(str(tmp_path / "books"), pa.table(columns))
    found = known(pipeline, "s", BINS)
    assert (5, key(0, 100), 1, True) == found[:4]
    assert {"id": "int64", "v": "boolean"} == found.columns
    assert not known(pipeline, "silent", BINS).streamed


@pytest.mark.parametrize(
    ("own", "streamed", "wanted"),
    [
        ("int8", "unknown", "int8"),
        ("uint32", "int64", "uint32"),
        ("decimal(10,2)", "string", "string"),
        ("enum", "string", "string"),
        ("int8", "boolean", "boolean"),
        ("bit", "boolean", "boolean"),
        ("datetime", "datetime(6)", "datetime"),
    ],
)
def test_a_column_has_the_type_of_its_stream(own: str, streamed: str, wanted: str) -> None:
    """A mirror would widen its column to text, or hold a row's value twice in two forms."""
    column = agreed(BINS, SourceColumn("c", own, own, "c"), streamed)
    assert wanted == column.type
    assert ("'true'" in column.text) == (wanted == "boolean")


@pytest.mark.parametrize(
    ("own", "streamed"), [("datetime", "timestamp"), ("binary", "string"), ("bit", "string")]
)
def test_forms_that_cannot_be_turned_into_each_other_are_refused(own: str, streamed: str) -> None:
    """A wall clock taken for an instant is off by hours, and nothing would show it."""
    with pytest.raises(IngestError, match="`columns:`"):
        agreed(BINS, SourceColumn("c", own, own, "c"), streamed)
