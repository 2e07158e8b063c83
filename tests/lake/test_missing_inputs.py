"""Topics and folders that a source names and that are not there: in the list of problems, as the last run found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ingest.bronze import kafka
from ingest.bronze.offsets import Cluster, KafkaPlan, Look, Place, Position, plan
from ingest.config import Pipeline, Source
from ingest.config.model import TableRule
from ingest.inspect import problems, status
from ingest.inspect.idle import idle
from ingest.ledgers import missing_inputs
from ingest.operate.dry_run import foresee
from ingest.result import STAGES
from ingest.tables.schemas import DECISIONS
from ingest.tables.tables import LakeReader
from tests.shops import Shops


@dataclass(slots=True)
class Streamed(Shops):
    """A source of files, and one of a broker."""

    topics: tuple[str, ...] = ("orders", "stock")
    pattern: str = ""

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files and the broker."""
        of_files = Shops.pipeline.fget(self)  # type: ignore[attr-defined]
        stream = Source("k", "kafka", "canal", topics=self.topics, topic_pattern=self.pattern)
        made: Pipeline = replace(of_files, sources=(*of_files.sources, stream))
        return made

    def problems(self) -> list[dict[str, Any]]:
        """What `status` lists."""
        causes: list[dict[str, Any]] = status.status(LakeReader(self.pipeline))["causes"]
        return causes


class Landing(Shops):
    """A source of files in a folder of its own."""

    @property
    def pipeline(self) -> Pipeline:
        """Over the files of that folder."""
        made = super().pipeline
        [source] = made.sources
        return replace(made, sources=(replace(source, path=f"{self.folder}/landing/*.jsonl"),))


def shows(monkeypatch: pytest.MonkeyPatch, *topics: str, is_down: bool = False) -> None:
    """Have the broker show these topics, all of them empty."""

    def look(_lake: object, source: Source, known: Mapping[Place, Position]) -> Look:
        if is_down:
            return Look(source, KafkaPlan(), trouble="the broker does not answer")
        chosen = [topic for topic in topics if topic in source.topics]
        empty = {Place(topic, 0): 0 for topic in chosen}
        cluster = Cluster("c", dict.fromkeys(chosen, "id"), empty, empty, lambda _moment: empty, topics)
        return Look(source, plan(source, known, cluster), cluster.id, cluster.topics)

    monkeypatch.setattr(kafka, "look", look)


def test_a_topic_that_the_broker_lacks_is_a_problem_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those who read a run's warnings knew that one of its streams had never begun: `status` was green."""
    shops = Streamed(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    shows(monkeypatch, "order", "stock")
    shops.say(1, "INSERT", 1, "a").run()
    [problem] = shops.problems()
    assert ("missing_inputs", "warn", None) == (problem["kind"], problem["severity"], problem["mirror"])
    assert "source k: its topics, or its folder, are not there" == problem["cause"]
    assert (
        "topic orders does not exist yet, or its user may not see it; did you mean order?" == problem["text"]
    )
    assert f"ingest plan {shops.pipeline.file}" == problem["command"]
    assert problem["since"]

    known = shops.lake.snapshot(DECISIONS.name).version
    shops.run()
    shows(monkeypatch, is_down=True)
    shops.run()
    assert known == shops.lake.snapshot(DECISIONS.name).version, "it is as it was, or nobody knows"
    assert "missing_inputs" in {cause["kind"] for cause in shops.problems()}

    shops.topics = ("order", "stock")
    assert "missing_inputs" not in {cause["kind"] for cause in shops.problems()}, "the file names it no more"
    shops.topics = ("orders", "stock")
    shows(monkeypatch, "orders", "stock")
    shops.say(1, "INSERT", 2, "b").run()
    assert [] == shops.problems()


def test_a_pattern_that_fits_no_topic_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip in a pattern reads nothing for ever."""
    shops = Streamed(tmp_path, TableRule(match="shop_1.item"), stages=STAGES, topics=(), pattern=r"ordrs\..*")
    shows(monkeypatch, "orders.1")
    shops.say(1, "INSERT", 1, "a").run()
    assert [r"no topic matches ordrs\..* yet: its user sees 1 topic, such as orders.1."] == [
        problem["text"] for problem in shops.problems()
    ]


def test_what_a_broker_lacks_is_the_same_while_its_other_topics_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run that saw another number of topics noted it: `since` moved to now, and an acknowledgement ended."""
    shops = Streamed(tmp_path, TableRule(match="shop_1.item"), stages=STAGES, topics=(), pattern=r"ordrs\..*")
    shows(monkeypatch, "orders.1")
    shops.say(1, "INSERT", 1, "a").run()
    [first] = shops.problems()
    problems.acknowledge(shops.lake, status.problems_of(shops.lake), first["id"], "known")
    for others in (("orders.1", "orders.2"), ("stock",), ()):
        shows(monkeypatch, *others)
        shops.say(1, "INSERT", 2, "a").run()
    [last] = shops.problems()
    assert (first["since"], "known") == (last["since"], last["acknowledged"])


def test_a_topic_is_missing_since_the_first_run_that_missed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another topic that was missing, too, or was there again, made those that were missing before new."""
    shops = Streamed(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    shows(monkeypatch, is_down=True)
    shops.say(1, "INSERT", 1, "a").run()
    begun, lake = [], shops.lake
    for missing in (("orders",), ("orders", "stock"), ("stock",), ("stock", "orders"), (), ("stock",)):
        missing_inputs.note(lake, {"k": {topic: f"{topic} is missing" for topic in missing}})
        begun += [lacks.since for lacks in missing_inputs.listed(LakeReader(shops.pipeline))]
    orders, also, stock, both, again = (since for since in begun if since is not None)
    assert orders == also < stock == both < again


def test_a_folder_that_is_not_there_is_a_problem_until_it_is(tmp_path: Path) -> None:
    """All its files were read, so that nothing was missing but what would have come: `status` was green."""
    shops, landing = Landing(tmp_path, TableRule(match="shop_1.item"), stages=STAGES), tmp_path / "landing"
    landing.mkdir()
    (landing / "in-1.jsonl").write_text(shops.say(1, "INSERT", 1, "a").lines.pop() + "\n")
    shops.run()
    assert idle(shops.pipeline, STAGES) is not None
    landing.rename(tmp_path / "archived")
    assert idle(shops.pipeline, STAGES) is None, "the run has something to record"
    shops.run()
    [problem] = status.status(LakeReader(shops.pipeline))["causes"]
    assert ("missing_inputs", "warn") == (problem["kind"], problem["severity"])
    assert f"the folder {landing} is not there: put it back, or correct `path:`." == problem["text"]
    again = idle(shops.pipeline, STAGES)
    assert again is not None
    assert any("is not there" in text for text in again.warnings)
    (tmp_path / "archived").rename(landing)
    assert idle(shops.pipeline, STAGES) is None, "it is there again"
    shops.run()
    assert [] == status.status(LakeReader(shops.pipeline))["causes"]


def test_a_folder_that_was_never_there_is_a_problem(tmp_path: Path) -> None:
    """A slip in the path of a new pipeline: `plan`, `run` and `status` were green, with no mirror at all."""
    shops = Landing(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    said = f"the folder {tmp_path}/landing is not there: put it back, or correct `path:`."
    [source] = foresee(shops.pipeline, None, 10)["sources"]
    assert ([said], []) == (source["problems"], source["warnings"])
    shops.run()
    [problem] = status.status(LakeReader(shops.pipeline))["causes"]
    assert ("missing_inputs", said) == (problem["kind"], problem["text"])
