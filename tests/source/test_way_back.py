"""After messages were lost: the words on the screen, typed one after the other, lead to mirrors that are exact again."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ingest.bronze import kafka
from ingest.bronze.offsets import Gap, KafkaPlan, Place, Position
from ingest.cli import repair_verbs
from ingest.cli.app import app
from ingest.config import load
from ingest.run import run
from ingest.source import database
from ingest.tables.lake import Lake
from tests.lakes import Depot, change, touch
from tests.source import duck_source

LATE = 14_521_610_000  # milliseconds: ten seconds after the source's clock, so that the stream has passed each comparison
KAFKA = "kind: kafka, bootstrap_servers: 'here:9092', topics: [in], format: dts-canal"
LOST = Gap(Place("in", 0), Position(4, "cluster", "topic"), "topic", "was trimmed by retention: 4 to 9")


class Damaged:
    """A pipeline whose stream has lost messages, and the source that still has the rows."""

    def __init__(self, folder: Path) -> None:
        self.depot = Depot(folder)
        self.source = folder / "source.duckdb"
        duck_source.place.append(str(self.source))
        text = self.depot.file.read_text("utf-8").rstrip().removesuffix("}")
        self.depot.file.write_text(f"{text}, database: {{url: 'mysql://here', user: reader}}}}\n", "utf-8")
        self.write("CREATE TABLE bins (id BIGINT, word VARCHAR)")

    def write(self, *statements: str) -> None:
        """Statements in the source."""
        with duckdb.connect(str(self.source)) as connection:
            for one in statements:
                connection.execute(one)

    def send(self, *lines: str) -> None:
        """What the stream still delivers."""
        with self.depot.feed.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        touch(self.depot.feed, 3600 - self.depot.feed.stat().st_size % 1000)

    def type(self, line: str) -> Result:
        """A command as the screen shows it."""
        program, *words = shlex.split(line)
        assert program == "ingest"
        return CliRunner().invoke(app, words)

    def accept(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, having: bool = True) -> str:
        """Accept the loss, as if the messages had come by Kafka; what the screen says then."""
        files = self.depot.file.read_text("utf-8")
        of_kafka = re.sub(r"kind: files.*settle: 1s", KAFKA, files)
        of_kafka = of_kafka if having else re.sub(", database: {[^}]*}", "", of_kafka)
        self.depot.file.write_text(of_kafka, "utf-8")
        found = SimpleNamespace(trouble="", plan=KafkaPlan(gaps=(LOST,)))
        monkeypatch.setattr(kafka, "look", lambda *_given: found)
        monkeypatch.setattr(
            repair_verbs, "opened", lambda file: contextlib.nullcontext(Lake(spark, load(file)))
        )
        done = self.type(f"ingest accept-gap {self.depot.file} bins in/0")
        self.depot.file.write_text(files, "utf-8")
        assert done.exit_code == 0
        return " ".join(done.stderr.split())

    def run(self, spark: SparkSession) -> None:
        """The next run."""
        assert run(spark, self.depot.pipeline).exit_code == 0

    def both(self, spark: SparkSession) -> tuple[list[Any], list[Any]]:
        """The rows of the source and of the mirror."""
        with duckdb.connect(str(self.source)) as connection:
            there = connection.execute("FROM bins ORDER BY id").fetchall()
        mirror = Lake(spark, self.depot.pipeline).read("mirrors/depot/bins").collect()
        return there, sorted((row["id"], row["word"]) for row in mirror)


def test_the_words_after_an_accepted_gap_lead_to_an_exact_mirror(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An untested way back may end before the mirror is right, or lose what the stream sends afterwards."""
    monkeypatch.setattr(database, "dialect_of", lambda _database: duck_source)
    pipeline = Damaged(tmp_path)
    pipeline.write("INSERT INTO bins VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')")
    sent = [change("INSERT", "bins", LATE + n, {"id": str(n), "word": f"word {n}"}) for n in (1, 2, 3, 5)]
    pipeline.send(*sent)  # the updates of 1, 2 and 3, the delete of 5 and all of 4 are lost
    pipeline.run(spark)

    assert "add `database:` to source bins" in pipeline.accept(spark, monkeypatch, having=False)
    words = pipeline.accept(spark, monkeypatch)
    (reconcile,) = re.findall(r"`(ingest reconcile [^`]*)`", words)
    assert [f"ingest run {pipeline.depot.file}"] == re.findall(r"ingest run [^ ]*yaml", words)

    compared = pipeline.type(reconcile)
    assert compared.exit_code == 1
    assert "messages of bins are lost, and the gap was accepted" in compared.stdout
    pipeline.run(spark)
    source, mirror = pipeline.both(spark)
    assert source == mirror
    assert pipeline.type(reconcile).exit_code == 0

    pipeline.write(  # lost, too
        "DELETE FROM bins WHERE id = 2", "UPDATE bins SET word = 'drei' WHERE id = 3", "INSERT INTO bins VALUES (6, 'six')"
    )  # fmt: skip
    assert pipeline.type(f"ingest snapshot {pipeline.depot.file} depot.bins").exit_code == 0
    pipeline.write("UPDATE bins SET word = 'later' WHERE id = 4", "DELETE FROM bins WHERE id = 1")
    pipeline.send(  # what the stream says afterwards wins over what was read
        change("UPDATE", "bins", LATE + 100, {"id": "4", "word": "later"}, old=[{"word": "four"}]),
        change("DELETE", "bins", LATE + 101, {"id": "1", "word": "one"}),
    )
    pipeline.run(spark)
    source, mirror = pipeline.both(spark)
    assert [(3, "drei"), (4, "later"), (6, "six")] == source == mirror
    assert pipeline.type(reconcile).exit_code == 0
