"""Databases with one table each, in a lake that small batches fill without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from ingest.config import Pipeline
from ingest.config.entries import QualityRule, Sealing
from ingest.config.model import Source, TableRule
from ingest.gold.plan.steps import steps_of
from ingest.quality import ledgers, order_checks
from ingest.quality.catalogue import Metric
from ingest.quality.cells import Asked, Compared, compare
from ingest.quality.subjects import CheckedMirror, survey
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from ingest.result import Result


def order_metrics(lake: Lake, since: int) -> list[Metric]:
    """What the checks of order find in the batches after one."""
    books = ledgers.read(lake, since, lake.decoded())
    chosen = survey(lake, books.lanes, steps=steps_of(lake)).subjects
    return list(order_checks.of_mirrors(lake, chosen, since, books.statements))


def metrics_by_spark(lake: Lake, since: int, request: pytest.FixtureRequest) -> list[Metric]:
    """The same in a lake that only Spark reads, as in a store that Arrow and DuckDB do not reach.

    By an argument ``spark`` the name of the test would choose how it merges.
    """
    spark = request.getfixturevalue("spark")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lake, "is_local", False)
        return order_metrics(Lake(spark, lake.pipeline), since)


@dataclass(slots=True)
class Shops:
    """Databases with one table each, in one mirror."""

    folder: Path
    rule: TableRule
    seal: Sealing | None = None
    warm: Warm = field(default_factory=Warm)
    number: int = 0
    lines: list[str] = field(default_factory=list)
    result: Result | None = None  # of the last run
    more: tuple[TableRule, ...] = ()  # rules of other tables
    stages: tuple[str, ...] = ("bronze", "silver", "gold")
    dialect: str = "dts-canal"
    keys: tuple[str, ...] = ("id",)  # as its messages name them
    budget: int | None = None  # the pipeline's rewrite_budget
    engine: str = "auto"
    apply: str = "auto"  # the pipeline's
    quality: tuple[QualityRule, ...] = ()

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        source = Source("s", "files", self.dialect, path=str(self.folder / "in-*.jsonl"), settle=0)
        lake, rules = str(self.folder / "lake"), (self.rule, *self.more)
        return Pipeline(
            "shops",
            self.folder / "x.yaml",
            lake,
            (source,),
            rules,
            seal=self.seal,
            rewrite_budget=self.budget,
            engine=self.engine,
            apply=self.apply,
            quality=self.quality,
        )

    def say(
        self,
        shop: int,
        kind: str,
        key: int,
        text: str | None = "",
        at: int = 0,
        old: int | None = None,
        when: int = 0,
        **more: str | None,
    ) -> Self:
        """A change of a shop's row, which had another key before if ``old`` says so.

        ``when`` is the source's time, if it is not that of the position ``at``.
        """
        self.number += 10
        place, row = at or self.number, {"id": str(key), "text": text, **more}
        members: dict[str, Any] = {
            "data": [row],
            "pkNames": list(self.keys),
            "old": None if old is None else [{"id": str(old)}],
            "sql": "",
            "isDdl": False,
            "type": kind,
        }
        types = {"id": "bigint", "text": "varchar"} | dict.fromkeys(more, "varchar")
        moment = 1714521600000 + 1000 * (when or place)
        where = {"database": f"shop_{shop}", "table": "item", "es": moment, "ts": moment, "id": place}
        self.lines.append(json.dumps({**where, **members, "mysqlType": types}))
        return self

    def ddl(self, text: str, shop: int = 1, at: int = 0) -> Self:
        """A statement of a shop."""
        self.number += 10
        place = at or self.number
        moment = 1714521600000 + 1000 * place
        where = {"database": f"shop_{shop}", "table": "item", "es": moment, "ts": moment, "id": place}
        self.lines.append(json.dumps({**where, "isDdl": True, "sql": text, "type": "ALTER"}))
        return self

    def run(self) -> tuple[str, str]:
        """The mirror's state and message after the next batch."""
        if self.lines:
            (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(self.lines) + "\n")
            self.lines.clear()
        spark = unstarted()
        result = self.result = run(spark, self.pipeline, self.stages, self.warm)
        return (result.mirrors[0].state, result.mirrors[0].message) if result.mirrors else ("idle", "")

    def rows(self, path: str = "mirrors/shop/item") -> dict[int, str]:
        """The mirror."""
        found_rows = self.lake.ask_mirror(path, "SELECT id, text FROM {mirror}")
        assert len(found_rows) == len({row["id"] for row in found_rows})
        return {row["id"]: row["text"] for row in found_rows}

    def check(self) -> None:
        """The check of cells folds the changes by itself."""
        last = self.lake.decoded()
        for since in (0, last - 1):
            asked = Asked(lambda _table: 200)
            [(_, compared)] = compare(self.lake, [self.subject(since)], since, asked)
            assert ([], []) == (compared.wrong, compared.left_out)
            assert compared.keys

    def compared(self, since: int) -> dict[str, Compared]:
        """Each mirror compared with the plain fold of its changes, by its name."""
        stated = {"s": (self.lake.decoded(), "~")}  # some statement may be newer than all changes
        asked = Asked(lambda _table: 200, stated=stated)
        lanes = ledgers.read(self.lake, since, self.lake.decoded()).lanes
        subjects = survey(self.lake, lanes, steps=steps_of(self.lake)).subjects
        comparisons = compare(self.lake, subjects, since, asked)
        return {subject.name: comparison for subject, comparison in comparisons}

    def subject(self, since: int) -> CheckedMirror:
        """The mirror, as the checks of the batches after one see it."""
        [subject] = survey(
            self.lake, ledgers.read(self.lake, since, self.lake.decoded()).lanes, steps=steps_of(self.lake)
        ).subjects
        return subject

    @property
    def lake(self) -> Lake:
        """What was written."""
        return Lake(unstarted(), self.pipeline)
