"""The fidelity table: every cell counted once, under the right word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.gold import fidelity
from ingest.gold.fidelity import COUNTS, count
from ingest.ledgers.mirrors import Column
from ingest.run import Warm
from ingest.tables import duck
from ingest.tables.compare import TableState
from ingest.tables.tables import LakeReader
from tests.gold.depot import Depot
from tests.unstarted import unstarted

COLUMNS = (
    Column("id", "id", "datetime"), Column("at", "at", "timestamp"), Column("n", "n", "int64"),
    Column("price", "price", "decimal(10,2)"), Column("word", "word", "string"),
)  # fmt: skip
NARROW = {"n": "int32", "word": "string"}
SENT: tuple[tuple[dict[str, str], dict[str, str | None]], ...] = (
    (NARROW, {"id": "2024-05-01 10:00:00.123456", "at": "2024-05-01T10:00:00.1234567Z", "n": "1", "price": "1.10"}),
    (NARROW, {"id": "2024-05-01 10:00:00.1234567", "at": "2024-05-01T10:00:00.1234560Z", "n": "A1", "word": ""}),
    ({}, {"id": "yesterday", "at": None, "n": "3", "price": "1.239", "word": "x"}),
)  # fmt: skip
EXPECTED = {
    "id": {"fit": 1, "rejected": 2},
    "at": {"fit": 1, "truncated": 1, "nulls": 1},
    "n": {"widened": 1, "rejected": 1, "fit": 1},
    "price": {"fit": 1, "rejected": 1, "absent": 1},
    "word": {"fit": 2, "absent": 1},
}


@pytest.mark.parametrize("at_once", [1, 1000])
def test_every_cell_is_counted_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that the table calls exact is what the table is there to rule out."""
    monkeypatch.setattr(fidelity, "AT_ONCE", at_once)
    rows = [(json.dumps(types), json.dumps(after)) for types, after in SENT] + [(None, None)]
    changes = f"(SELECT * FROM (VALUES {duck.listed(rows)}) AS t(types, after))"
    found = count(TableState(changes), COLUMNS, ("id",))
    assert EXPECTED == {one.column: {name: n for name, n in one.counts.items() if n} for one in found}
    assert {len(SENT)} == {sum(one.counts[name] for name in COUNTS) for one in found}
    assert ["TIMESTAMP_NTZ", "TIMESTAMP", "BIGINT", "DECIMAL(10,2)", "STRING"] == [one.delta for one in found]


def test_cells_of_a_lake_are_counted_without_java(tmp_path: Path) -> None:
    """Nobody asks a question about a column for which half a minute passes."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    depot.row(id="1", n="1").row(id="2", n="A5").row("UPDATE", {"n": "1"}, id="1", n="2").run()
    depot.row("DELETE", id="1", n="2").row(id="3", n=None).run()
    found = {row["column"]: row for row in fidelity.described(LakeReader(depot.pipeline), "yard.depot")}
    assert (4, 0, 0) == tuple(found["id"][name] for name in ("fit", "rejected", "nulls"))
    assert (2, 1, 1) == tuple(found["n"][name] for name in ("fit", "rejected", "nulls"))
    assert [] == fidelity.described(LakeReader(depot.pipeline), "yard.other")
