"""What does not fit a mirror is kept once, whatever is killed in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_killed_between_rejects_and_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run folds more batches at once, under a newer number: the guard alone would let all in again."""
    from ingest.cli import look
    from ingest.gold import merge as merging
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    assert ("done", "") == depot.row(id="1", n="1").run()
    merge = merging.merge

    def killed(*given: Any) -> None:
        if depot.lake().exists("rejects"):
            raise RuntimeError("killed")
        merge(*given)

    monkeypatch.setattr(merging, "merge", killed)
    depot.row(id="2", n="A101").row(id="A102", n="2").run()
    monkeypatch.setattr(merging, "merge", merge)
    assert [1] == [row["id"] for row in depot.rows()]
    assert ("done", "") == depot.row(id="3", n="A103").run()
    assert [(1, 1), (2, None), (3, None)] == [(row["id"], row["n"]) for row in depot.rows()]
    found = Counter((row["kind"], row["key"], row["raw"]) for row in depot.lake().read("rejects").collect())
    assert {1} == set(found.values())
    told = {one["column"]: (one["fit"], one["rejected"]) for one in look.fidelity(depot.lake(), "yard.depot")}
    assert {"id": (3, 1), "n": (2, 2)} == told
    assert Counter({"cell": 2, "change": 1}) == Counter(kind for kind, _, _ in found)
