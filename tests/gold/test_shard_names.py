"""What a shard column's values are when a pipeline gets a second source, or loses it; without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.config import Pipeline
from ingest.config.model import MadeColumn, Source, TableRule
from ingest.erase import plan as planning
from ingest.errors import IngestError
from ingest.gold.explain import explain
from ingest.gold.preview import foresee, lake_state
from ingest.ledgers import mirrors
from ingest.ledgers.mirrors import Mirror
from ingest.result import STAGES
from ingest.run import Warm
from tests.shops import Shops

RULE = TableRule(r"shop_(\d+).item", into="shop.item", shard_column="shard")
SOFT: dict[str, Any] = {
    "made": {"gone": MadeColumn("deletes", "soft", "boolean")}, "places": {"gone": "x.yaml:9:7"},
}  # fmt: skip
BARE, NAMED = {"shop_1.item": 2, "shop_2.item": 1}, {"s:shop_1.item": 2, "s:shop_2.item": 1}


class Two(Shops):
    """Shops, and perhaps a second source that has nothing to do with them."""

    other = False

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        one = super().pipeline
        path = str(self.folder / "other-*.jsonl")
        more = (Source("other", "files", "dts-canal", path=path, enabled=False),)
        return replace(one, sources=(*one.sources, *(more if self.other else ())))

    def given(self, *, other: bool) -> Two:
        """The next run is another process, with or without the second source."""
        self.other, self.warm = other, Warm()
        return self

    @property
    def mirror(self) -> Mirror:
        """As last decided."""
        return mirrors.known(self.lake)["mirrors/shop/item"]

    def shards(self) -> dict[str, int]:
        """The rows of each value."""
        rows = self.lake.ask_mirror("mirrors/shop/item", "SELECT shard FROM {mirror}")
        return dict(Counter(row["shard"] for row in rows))

    def foreseen(self) -> list[str]:
        """Why `ingest plan` would change a mirror."""
        return [one.why for one in foresee(self.pipeline, lake_state(self.lake), (), ())]


def filled(folder: Path, rule: TableRule = RULE) -> Two:
    """Three rows of two tables, by one source."""
    shops = Two(folder, rule).say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "b").say(2, "INSERT", 3, "c")
    assert ("done", "") == shops.run()
    assert isinstance(shops, Two)
    assert shops.shards() == BARE
    return shops


@pytest.mark.one_of(2, "said")
@pytest.mark.parametrize("said", [False, True], ids=["without messages", "with messages"])
@pytest.mark.parametrize("more", [{}, SOFT, {"changes_of": True}], ids=["keyed", "soft", "feed"])
def test_another_source_comes_and_goes(tmp_path: Path, said: bool, more: dict[str, Any]) -> None:
    """The value is part of the key: with rows by both forms, each would be there twice."""
    shops = filled(tmp_path, replace(RULE, **more))
    for other, wanted in ((True, NAMED), (False, BARE)):
        generation = shops.given(other=other).mirror.generation
        assert any("names the source" in why for why in shops.foreseen())
        if said:
            shops.say(1, "UPDATE", 1, f"by {other}")
        assert ("done", "") == shops.run()
        assert (wanted, generation + 1) == (shops.shards(), shops.mirror.generation)
        assert [] == shops.foreseen()
        assert "idle" == shops.run()[0]
        shops.check()


@pytest.mark.parametrize("other", [False, True], ids=["as before", "with another source"])
def test_rows_are_found_as_they_are_named_now(tmp_path: Path, other: bool) -> None:
    """Between the change of the pipeline file and the next run, rows still have the value that the last run wrote."""
    shops = filled(tmp_path)
    shops.say(1, "UPDATE", 1, "new")
    shops.run()
    shops.given(other=other)
    story = explain(shops.lake, "shop.item", ("1", "shop_1.item"))
    assert ([], True) == (list(story.elsewhere), len(story.events) == 2)
    erasure = planning.plan(shops.lake, "shop.item", [("1", "shop_1.item")], "asked", now=False)
    assert [("shop_1", 1), ("shop_1", 2)] == [(one.database, one.batch) for one in erasure.changes]
    assert [("1", "shop_1.item")] == erasure.keys == erasure.rows
    shops.check()


@pytest.mark.parametrize("other", [False, True], ids=["one source", "two sources"])
def test_a_key_without_its_shard_is_answered_with_the_shards(tmp_path: Path, other: bool) -> None:
    """Only a query of the mirror would show what the second value may be."""
    shops = filled(tmp_path).given(other=other)
    shops.run()
    first, second = NAMED if other else BARE
    said = f"The key of shop.item is id, shard: give 2 values in that order, not 1; shard is one of {first}, {second}."
    for asked in (
        lambda: explain(shops.lake, "shop.item", ("1",)),
        lambda: planning.plan(shops.lake, "shop.item", [("1",)], "asked", now=False),
    ):
        with pytest.raises(IngestError) as caught:
            asked()
        assert said == str(caught.value)


def test_one_of_the_tables_is_created_again(tmp_path: Path) -> None:
    """The statement names no key: the mirror was held as if the tables had different keys."""
    shops = filled(tmp_path)
    shops.ddl("CREATE TABLE IF NOT EXISTS item LIKE former").say(1, "UPDATE", 1, "d").say(2, "UPDATE", 3, "e")
    assert ("done", "") == shops.run()
    assert ("done", "") == shops.say(1, "DELETE", 2).run()
    assert {1: "d", 3: "e"} == shops.rows()


@pytest.mark.parametrize("keys", [("id",), ("",), ("id", "")], ids=["value", "key", "in-key"])
def test_a_column_without_a_name_is_no_shard_column(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """The source's cells would be compared with, and in some folds overwritten by, the name of the source table."""
    shops = Shops(tmp_path, TableRule("*"), keys=keys, stages=STAGES)
    for key in (1, 2):
        shops.say(7, "INSERT", key, "a", **{"": f"v{key}"})
    shops.run()
    shops.say(7, "UPDATE", 1, "b", **{"": "v1"}).say(7, "DELETE", 2, "a", **{"": "v2"})
    shops.say(7, "INSERT", 3, "c", at=5, **{"": "v3"})  # late, so that its key's history is folded
    shops.run()
    assert shops.result is not None
    assert ([], []) == (shops.result.failures, shops.result.warnings)
    found = shops.lake.ask_mirror("mirrors/shop_7/item", "SELECT * FROM {mirror}")
    assert {(1, "b", "v1"), (3, "c", "v3")} == {(row["id"], row["text"], row["_x"]) for row in found}
