"""Which lanes may hold moved rows: counted by the key that messages named, asked for by the key that the mirror has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.gold.apply import planner
from ingest.gold.fold import arrow_parts, overtaken
from ingest.gold.plan.work import Books, LaneKeys, pending_lane
from ingest.ledgers.books import Line
from ingest.ledgers.mirrors import Era
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.schemas import Schemas
from tests.unstarted import unstarted

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


def test_rows_of_a_large_batch_that_move_onto_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folded in shares of its keys, it found that it needs the whole history, and failed in each run."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    for key in ("1", "2", "3", "9"):
        depot.row(id=key, n=key)
    depot.run()
    monkeypatch.setattr(planner, "CHANGES_AT_MOST", 3)
    for key in (1, 2, 3):
        depot.row("DELETE", id=str(key), n=str(key)).row(id=str(key + 1), n=str(key))
    assert ("done", "") == depot.row("UPDATE", {"id": "9"}, id="10", n="9").run()
    query = "SELECT id, n FROM {mirror} ORDER BY id"
    rows = depot.lake().ask_mirror("mirrors/yard/depot", query)
    assert [(2, 1), (3, 2), (4, 3), (10, 9)] == [(row["id"], row["n"]) for row in rows]


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("most", [2, 3, 500_000])
def test_rows_without_transactions_that_move_onto_each_other_whatever_the_size_of_their_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool, most: int
) -> None:
    """Dealt by the last change of each key, a batch of more changes than one process holds lost the rows that had moved."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    for key in ("1", "2", "3"):
        depot.row(id=key, n=key)
    if loaded:
        depot.run()
    monkeypatch.setattr(planner, "CHANGES_AT_MOST", most)
    monkeypatch.setattr(arrow_parts, "READ_AT_ONCE", most)
    for key in (1, 2, 3):
        depot.row("DELETE", id=str(key), n=str(key)).row(id=str(key + 1), n=str(key))
    assert ("done", "") == depot.run()
    query = "SELECT id, n FROM {mirror} ORDER BY id"
    rows = depot.lake().ask_mirror("mirrors/yard/depot", query)
    assert [(2, 1), (3, 2), (4, 3)] == [(row["id"], row["n"]) for row in rows]


@pytest.mark.parametrize("touched", [True, False])
def test_the_keys_of_updates_are_read_only_where_rows_may_have_met(
    tmp_path: Path, touched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the time of a large batch's fold was for keys that the images of updates make needless."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    depot.row(id="0", n="0").run()
    counts: list[int] = []
    read = overtaken.keys_concerned
    monkeypatch.setattr(
        overtaken, "keys_concerned", lambda rows, *rest: counts.append(rows.num_rows) or read(rows, *rest)
    )
    depot.row(id="1", n="1")
    depot.row("UPDATE", {"n": "1"}, id="1", n="2")
    depot.row("UPDATE", {"n": "0"}, id="0", n="3")
    depot.row("DELETE", id="1", n="2" if touched else "9").run()
    assert counts == ([2] if touched else [2, 4])
    assert [0] == [
        row["id"] for row in depot.lake().ask_mirror("mirrors/yard/depot", "SELECT id FROM {mirror}")
    ]
