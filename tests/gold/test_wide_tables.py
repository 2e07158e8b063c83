"""A table of thousands of columns, as some sources have: its batch must not take the square of their number."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.gold.apply.merge_entry import entry
from ingest.gold.fold.arrow_merge import Effort
from ingest.gold.fold.arrow_work import ColumnWork, MirrorWork
from ingest.run import Warm
from ingest.tables.commits import NewRows
from ingest.tables.delta import Snapshot
from ingest.tables.tables import scan
from tests.gold.depot import Depot
from tests.unstarted import unstarted


@pytest.mark.one_of(2)
@pytest.mark.parametrize("is_declared", [False, True])
def test_a_wide_table_takes_no_longer_than_its_columns(tmp_path: Path, is_declared: bool) -> None:
    """One message of such a table would keep every other mirror of the lake waiting for minutes."""
    seconds = {}
    for count in (500, 4000):
        names = [f"c{i}" for i in range(count - 1)]
        columns = dict.fromkeys(names, "int") if is_declared else {}
        folder = tmp_path / str(count)
        folder.mkdir()
        depot = Depot(unstarted(), folder, Warm(), TableRule("yard.*", columns=columns))
        for _ in range(2):  # the first one imports what the others need
            depot.row(id="1", **dict.fromkeys(names, "7"))
            began = time.process_time()
            assert ("done", "") == depot.run()
            seconds[count] = time.process_time() - began
    assert seconds[4000] < 10  # two on a quiet core; slow and shared ones take several times as long
    assert seconds[4000] < 30 * max(seconds[500], 0.1)


def test_the_wide_row_is_whole(tmp_path: Path) -> None:
    """A column that shares its place with another would hold its value."""
    cells = {f"c{i}": str(i) for i in range(3000)}
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    assert ("done", "") == depot.row(id="1", **cells).run()
    [row] = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror}")
    assert {"id": 1, **{name: int(value) for name, value in cells.items()}} == row


def test_a_wide_merge_is_described_and_read_in_linear_time() -> None:
    """Each column asked for the key's columns, or was looked up in a list of all others: two CPU-seconds of a batch."""
    columns = tuple(ColumnWork(name, name, "int32") for name in ("id", *(f"c{i}" for i in range(12_000))))
    work = MirrorWork("m", "m", ("id",), columns, ())
    table = Snapshot(4, {}, types={column.column: "integer" for column in columns})
    began = time.process_time()
    described = entry(work, table, NewRows(()), {}, Effort(1)).parameters
    query = scan("m", table, wanted=[column.column for column in columns])
    assert time.process_time() - began < 5  # a tenth of one on a quiet core; a hundred before
    assert {12_000} == {(described["matchedPredicates"] or "").count("<=>"), query.count(" AS ") - 1}
