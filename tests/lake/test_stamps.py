"""Cells of constant and metadata columns in the images of changes: every way of reading must give the same."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.config.model import MadeColumn
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.stamps import NO_STAMPS, Stamps, stamped, stamps_of

TABLE = TableId("shop", None, "orders")
MOMENT = dt.datetime(2024, 5, 1, 10, 30, 0, 120, tzinfo=dt.UTC)
RULES = {
    "origin": MadeColumn("constant", 'a "shop" \\ Ünï'),
    "from": MadeColumn("meta", "source"),
    "of": MadeColumn("meta", "table"),
    "in": MadeColumn("meta", "batch"),
    "at": MadeColumn("meta", "event_time"),
    "did": MadeColumn("meta", "operation"),
}
ROWS = pa.table(
    {
        "batch": pa.array([7, 8, 9], pa.int64()),
        "op": ["insert", "update", "delete"],
        "event_time": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
        "before": [None, '{"id":"1"}', '{"id":"1"}'],
        "after": ['{"id":"1","a":"{}"}', "{}", None],
    }
)


def mirror(*names: str) -> Mirror:
    own = tuple(Column(name, name, "string", made=RULES[name]) for name in names)
    return Mirror(TABLE, "mirrors/shop/orders", ("id",), (Column("id", "id", "int64"), *own))


@pytest.mark.parametrize(
    "names", [tuple(RULES), ("origin",), ("in",), ("at", "did"), ("from", "at")], ids=str
)
@pytest.mark.parametrize("zone", ["UTC", None])
def test_images_get_the_same_cells_in_each_way(names: tuple[str, ...], zone: str | None) -> None:
    """A fold that reads by Arrow and a check or a story that reads row by row would differ in a text."""
    stamps = stamps_of(mirror(*names), "till", TABLE)
    rows = ROWS.set_column(2, "event_time", ROWS["event_time"].cast(pa.timestamp("us", zone)))
    found = [text and json.loads(text) for text in stamped(rows, stamps)["after"].to_pylist()]
    sent = [text and json.loads(text) for text in ROWS["after"].to_pylist()]
    one_by_one = [
        image and {**stamps.cells(row), **image} for row, image in zip(ROWS.to_pylist(), sent, strict=True)
    ]
    one_by_one[1] = stamps.cells(ROWS.to_pylist()[1])
    moments = [(image or {}).pop("at", None) for image in found]
    assert [(image or {}).pop("at", None) for image in one_by_one][1:] == moments[1:]
    assert one_by_one == found
    if "at" in names:
        assert MOMENT == dt.datetime.fromisoformat(str(moments[0]))
        assert moments[1] is None
    assert ROWS["before"].to_pylist() == stamped(rows, stamps)["before"].to_pylist()


def test_a_mirror_without_such_rules_reads_changes_as_they_are() -> None:
    """Computed columns come later, from the whole row."""
    computed = Column("n", "n", "int64", made=MadeColumn("compute", "id + 1"))
    plain = Mirror(TABLE, "mirrors/shop/orders", ("id",), (Column("id", "id", "int64"), computed))
    assert NO_STAMPS == stamps_of(plain, "till", TABLE) == Stamps()
    assert stamped(ROWS, NO_STAMPS) is ROWS
    assert (("n",), ("id",)) == (
        tuple(one.name for one in plain.computed),
        tuple(one.name for one in plain.sent),
    )
    assert plain.columns == Mirror.from_value(plain.path, plain.to_value()).columns
