"""Which lanes may hold moved rows: counted by the key that messages named, asked for by the key that the mirror has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.change import TableId
from ingest.gold.work import Books, LaneKeys, pending_lane
from ingest.lake.books import Line
from ingest.lake.mirrors import Era
from tests.schemas import Schemas

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("created", [False, True])
@pytest.mark.parametrize("stated", [False, True])
def test_rows_that_move_onto_each_other_since_their_table_was_created(
    tmp_path: Path, created: bool, stated: bool
) -> None:
    """Where the batch has a statement, too, an earlier CREATE TABLE was taken for a proof that the keys were free: rows were lost."""
    said = Schemas(tmp_path)
    if created:
        said.ddl("CREATE TABLE s.t (id int PRIMARY KEY, v text)", "s.t")
    for key, text in enumerate("abc", 1):
        said.row("s.t", id=key, v=text)
    said.run()
    if stated:
        said.ddl("COMMENT ON TABLE s.t IS 'moved'", "s.t")
    for key, text in enumerate("abc", 1):
        said.row("s.t", "DELETE", id=key, v=text).row("s.t", id=key + 1, v=text)
    assert {"s.t": "done"} == said.run()
    assert [(2, "a"), (3, "b"), (4, "c")] == said.rows("s.t")
