"""Which lanes may hold moved rows: counted by the key that messages named, asked for by the key that the mirror has."""

from __future__ import annotations

import pytest

from ingest.change import TableId
from ingest.gold.work import Books, LaneKeys, pending_lane
from ingest.lake.books import Line
from ingest.lake.mirrors import Era

NAME = ("s", TableId("shop", None, "item"))


@pytest.mark.parametrize(
    ("named", "keys", "declared", "expected"),
    [
        (["id"], ["id"], False, False),
        (["id", "day"], ["day"], False, False),
        (["id"], ["order_id"], False, False),  # counted by the key that the table had then
        # the file's old name: no message says when the column got its new one
        (["id"], ["order_id"], True, True),
        (["id"], ["id", "day"], False, True),
    ],
)
def test_moves_counted_by_another_key(
    named: list[str], keys: list[str], declared: bool, expected: bool
) -> None:
    """Where the books count no moved row the image before is not read, and the old row stays as a ghost."""
    line = Line(
        1,
        "s",
        "t",
        0,
        *NAME[1],
        changes=2,
        updates=2,
        partials=1,
        keys=[named],
        order_low="1",
        order_high="2",
    )
    eras = (Era("", ("id",)), Era("1", ("order_id",))) if keys == ["order_id"] else ()
    found = pending_lane(Books(0, 1), NAME, [line], 0, LaneKeys(keys, eras, declared))
    assert found is not None
    assert (expected, expected) == (found.new.key_changes, bool(found.inherits))
