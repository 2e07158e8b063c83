"""Mirrors that Arrow and Spark fold in turn, batch by batch, against a database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

HISTORIES, BATCHES = 25, 5


def test_a_mirror_changes_ways_between_any_two_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late, repeated, moved and partial changes: what one way leaves in a mirror must be what the others look for.

    Files rewrite the mirror, or mark rows by deletion vectors; a MERGE leaves that to Delta.
    """
    from ingest.gold.apply import apply_arrow, apply_merge, planner
    from ingest.gold.plan.results import MirrorCommit
    from tests.properties import lakes

    random, ways, failed = Random(5), Counter[str](), list[str]()

    def by_lot(*_given: object) -> str:
        return random.choice(("", "by lot", "by lot"))

    def vectors(*given: Any) -> bool:
        return takes(*given) and random.random() < 0.5

    def by_arrow(*given: Any) -> dict[str, MirrorCommit]:
        ways.update("vectors" if one.marks else "" for one in given[1])
        found = folded(*given)
        failed.extend(one.failed for one in found.values() if one.failed or one.overtaken)
        return found

    def by_merge(*given: Any) -> MirrorCommit:
        ways["merge"] += 1
        return merged(*given)

    folded, merged, takes = apply_arrow.fold, apply_merge.commit, planner.takes_vectors
    monkeypatch.setattr(apply_merge, "commit", by_merge)
    monkeypatch.setattr(planner, "takes_vectors", vectors)
    monkeypatch.setattr(apply_arrow, "fold", by_arrow)
    monkeypatch.setattr(planner, "too_large", by_lot)
    kinds = (lakes.MIXED, lakes.CLEARED, lakes.WEAK, lakes.INHERITING)
    feeds = [lakes.together(kind, HISTORIES, BATCHES, ordered=False) for kind in kinds]
    feeds += [lakes.alone(lakes.TRUNCATED, number, BATCHES) for number in range(2)]
    lake = lakes.lake_of(spark, tmp_path)
    lakes.batch_by_batch(lake, feeds, BATCHES, ways=("auto",))
    assert [] == [str(one) for feed in feeds for one in lakes.wrong(lake, feed)]
    assert min(ways[""], ways["vectors"], ways["merge"]) > len(feeds) // 2, ways
    assert [] == failed
