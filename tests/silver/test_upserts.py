"""Sources that insert rows which are there already: their updates come as inserts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ingest.change import Options
from ingest.config.model import TableRule
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.config import Pipeline

STAGES = ("bronze", "silver", "gold", "quality")


class Upserting(Shops):
    """One table whose source is declared to upsert, or not."""

    inserts: str = "upsert"

    @property
    def pipeline(self) -> Pipeline:
        found = super().pipeline
        return replace(found, sources=(replace(found.sources[0], options=Options(inserts=self.inserts)),))

    def failures(self) -> list[str]:
        """What the next batch's checks complain about."""
        self.run()
        assert self.result is not None
        return [*self.result.failures, *self.result.warnings]


@pytest.mark.parametrize("inserts", ["insert", "upsert"])
def test_inserts_of_rows_that_are_there(tmp_path: Path, inserts: str) -> None:
    """A stream of upserts failed with every batch, and no advice led out of it."""
    mine = Upserting(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    mine.inserts = inserts
    assert [] == mine.say(1, "INSERT", 1, "a").failures()
    found = mine.say(1, "INSERT", 1, "b").say(1, "INSERT", 2, "c").failures()
    assert {1: "b", 2: "c"} == mine.rows("mirrors/shop_1/item")
    if inserts == "upsert":
        assert [] == found
    else:
        assert "`inserts: upsert`" in found[0]


def test_a_sink_that_writes_neither_mark(tmp_path: Path) -> None:
    """Flink's and TIS's sinks write updates so: no option should be needed for a writer that always does it."""
    mine = Upserting(tmp_path, TableRule(match="shop_1.item"), stages=STAGES, dialect="canal")
    mine.inserts = "insert"
    for text in ("a", "b"):
        row = {"data": [{"id": "1", "text": text}], "pkNames": ["id"], "ts": 1, "type": "INSERT"}
        mine.lines.append(json.dumps({**row, "database": "shop_1", "table": "item"}))
        mine.number += 1
        assert [] == mine.failures()
    assert "b" == mine.lake.ask_mirror("mirrors/shop_1/item", "SELECT text FROM {mirror}")[0]["text"]
