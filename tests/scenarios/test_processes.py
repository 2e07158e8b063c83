"""Runs as real processes: killed at any moment, stopped by signals, repeated, and stage by stage."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.spark import jars
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.lakes import ROOT, Depot, counted, doubled, example, expected_shop, shop
from tests.scenarios.processes import Moment, Process, commits, finished, gone, killed, says, started, writes
from tests.timing import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
STEPS = ("bronze: reading", "silver: decoding", "gold: reading the books", "bins: merge", ": load")
FILES = ("bronze", "changes", "books")
COMMITS = (("bronze",), ("changes", "ddl", "rejects", "books"), ("mirrors/depot/bins", "checks"))


@pytest.mark.parametrize("share", [pytest.param(1), pytest.param(None, marks=pytest.mark.slow)])
def test_killed_runs_lose_nothing(spark: SparkSession, tmp_path: Path, share: int | None) -> None:
    """A kill leaves a lock, a JVM and half-made commits; the next run must cope with all three.

    Fifteen moments take minutes: of each kind one is drawn, by the seed that the failure shows (``INGEST_SEED``).
    """
    seed = os.environ.get("INGEST_SEED") or str(random.randrange(10**6))
    draw = random.Random(seed)
    depot = Depot(tmp_path)
    lake = tmp_path / "lake"
    moments: list[tuple[Callable[[Any], Moment], Any]] = []
    for tables in COMMITS:
        moments += [(commits, lake / table) for table in draw.sample(tables, share or len(tables))]
    moments += [(writes, lake / table) for table in draw.sample(FILES, share or len(FILES))]
    moments += [(says, step) for step in draw.sample(STEPS, share or len(STEPS))]
    for moment, subject in moments:
        print(f"INGEST_SEED={seed}: killed at {subject}")  # noqa: T201 - shown if the test fails
        depot.grow()
        found = killed(depot.file, moment(subject))
        if subject != lake / "checks":  # its last commit: the run may have ended first
            assert (-signal.SIGKILL, True) == (found.code, found.alone), found.last
            assert (lake / "_ingest.lock").exists()
    result = finished(depot.file)
    assert (0, []) == (result["code"], result["failures"])
    opened = Lake(spark, depot.pipeline)
    assert {} == {name: count for name, count in doubled(opened).items() if count}
    counts = counted(opened)
    assert (depot.lines, depot.lines) == (counts["bronze"], counts["messages"])
    assert depot.expected() == depot.found(spark)
    assert not (lake / "_ingest.lock").exists()


def _ticks(process: Process) -> list[dict[str, object]]:
    return [json.loads(line) for line in list(process.printed) if line.endswith("\n")]


@pytest.mark.one_of(2)
@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_repeated_runs_end_at_a_signal(tmp_path: Path, number: int) -> None:
    """A service that cannot be stopped cleanly leaves a lock, or a batch half folded."""
    depot = Depot(tmp_path, "apply: merge\n")  # else Java is not started at all
    depot.grow()
    lock = tmp_path / "lake/_ingest.lock"
    with started("run", depot.file, "--every", "1s", "--output", "json") as process:
        process.wait_for(lambda: len(_ticks(process)) >= 2)
        process.wait_for(lambda: not lock.exists())  # other verbs get in between ticks
        depot.grow()
        process.wait_for(lambda: any(tick["batch"] == 2 for tick in _ticks(process)))
        process.wait_for(lambda: _ticks(process)[-1]["batch"] is None)
        jvm = process.jvm()
        assert jvm is not None
        assert 0 == process.end(number), "".join(process.stderr)
    assert gone(jvm)
    assert not lock.exists()
    ticks = _ticks(process)
    assert [1, 2] == [tick["batch"] for tick in ticks if tick["batch"] is not None]
    assert [] == [tick for tick in ticks if tick["failures"]]
    assert "Traceback" not in "".join(process.stderr)


@pytest.mark.e2e
def test_a_run_that_is_stopped_in_a_batch_says_so_and_the_next_one_does_the_rest(tmp_path: Path) -> None:
    """Ctrl-C, what stops a service, and an impatient second Ctrl-C: no lock, no Java, no half commit, no false 0."""
    depot, lock = Depot(tmp_path, "apply: merge\n"), tmp_path / "lake/_ingest.lock"
    for numbers, step, code in (
        ([signal.SIGINT], "bronze: reading", 1),
        ([signal.SIGTERM], "silver: decoding", 1),
        ([signal.SIGINT, signal.SIGINT], "gold: reading the books", None),
    ):
        depot.grow()
        with started("run", depot.file) as process:
            process.wait_for(lambda: says(step)(process))  # noqa: B023 - waited for here
            jvm = process.jvm()  # none before a step needs Spark
            for number in numbers[:-1]:
                process.popen.send_signal(number)
                process.wait_for(lambda: says("stopping after the commit under way")(process))
            ended = process.end(numbers[-1])
        said = "".join(process.stderr)
        assert jvm is None or gone(jvm)
        assert not lock.exists()
        assert "Traceback" not in said
        assert "stopping after the commit under way; Ctrl-C again stops at once" in said
        if code is None:
            assert 0 != ended, said
        else:
            assert (code, True) == (ended, "warning: depot: stopped before the end of " in said), said
            assert "stopped" in "".join(process.printed)
    assert (0, []) == ((result := finished(depot.file))["code"], result["failures"])
    rows = LakeReader(depot.pipeline).ask_mirror(
        "mirrors/depot/bins", "SELECT id, word FROM {mirror} ORDER BY id"
    )
    assert depot.expected()["bins"] == [(row["id"], row["word"]) for row in rows]


@pytest.mark.parametrize("more", ["", "apply: merge\n"], ids=["Arrow", "Spark"])
def test_the_umask_closes_lake_and_report(tmp_path: Path, more: str) -> None:
    """They hold rows and keys of the source: a single file that others may read would show them."""
    depot, page = Depot(tmp_path, more), tmp_path / "reports" / "depot.html"
    before = os.umask(0o077)
    try:
        for _ in range(2):
            depot.grow()
            assert 0 == finished(depot.file)["code"]
        with started("report", depot.file, "--out", page) as process:
            process.wait_for(lambda: False)
            assert 0 == process.end(0), "".join(process.stderr)
    finally:
        os.umask(before)
    written = [page.parent, page, tmp_path / "lake", *(tmp_path / "lake").rglob("*")]
    assert {"part", "lake", "depot", "bins", "_delta_log"} <= {each.name.split("-")[0] for each in written}
    assert [] == [str(each) for each in written if each.stat().st_mode & 0o077]


@pytest.mark.slow
def test_the_jobs_do_what_a_run_does(spark: SparkSession, tmp_path: Path) -> None:
    """On a cluster the stages are submitted one by one: the lake must be the same (as in e2e/test_cluster.py)."""
    file = example("dts-canal", tmp_path)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--driver-memory", "1g",
        "--conf", "spark.ui.enabled=false", "--jars", ",".join(map(str, jars.require("delta"))),
    ]  # fmt: skip
    for stage, command in (
        ("bronze", [sys.executable]),
        ("silver", submit),
        ("gold", submit),
        ("quality", [sys.executable]),
    ):
        done = subprocess.run(
            [*command, str(ROOT / f"jobs/{stage}.py"), str(file), "--output", "json"],
            capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        output = done.stdout[done.stdout.index("{") :]  # spark-submit puts what goes to stderr around it
        assert [stage] == list(json.JSONDecoder().raw_decode(output)[0]["stages"])
    from ingest.config import load

    lake = Lake(spark, load(file))
    assert expected_shop() == shop(lake)
    assert lake.read("checks").count() > 0
