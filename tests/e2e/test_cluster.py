"""Runs on executors of their own processes, which know the product from its archive alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import load
from ingest.spark import jars, settings
from ingest.tables.lake import Lake
from tests.e2e.cluster import Cluster
from tests.lakes import ROOT, Depot, change, example, expected_shop, shop, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NAME = "dts-canal"
PATIENCE = 600
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # four JVMs on two cores: what compiles least ends first
SMALL = {  # Spark's own numbers are for hundreds of cores: 200 and 50 tasks for every little query
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under the ending that Spark takes, as `make dist` makes it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
        timeout=300,
    )
    return next(folder.glob("ingest-*.whl")).rename(folder / "ingest.zip")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def _command(cluster: Cluster, folder: Path, *command: str) -> Any:
    """What a command prints as JSON; it runs where neither the product nor the lake is.

    spark-submit prints its Python's stderr on stdout, too: the document is among these lines.
    """
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    done = subprocess.run(
        command,
        cwd=elsewhere,
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert 0 == done.returncode, done.stderr[-3000:] + cluster.logs()
    assert "{\n" in done.stdout, f"{done.stdout[:500]}\n{done.stderr[-3000:]}"
    return json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{\n"))[0]


def test_the_workers_do_not_know_the_product(cluster: Cluster) -> None:
    """If an installed product reached the workers, the tests below would prove nothing."""
    python = cluster.environment["PYSPARK_PYTHON"]
    known = [subprocess.run([python, "-c", f"import {name}"], capture_output=True, cwd="/", check=False,
                            env=cluster.environment).returncode
             for name in ("msgspec", "ingest")]  # fmt: skip
    assert [0, 1] == known


def test_a_run_on_a_cluster(spark: SparkSession, cluster: Cluster, archive: Path, tmp_path: Path) -> None:
    """What only works in the driver's process works on no cluster: here tasks write bronze and silver."""
    conf = SMALL | {"spark.submit.pyFiles": str(archive), "spark.files": str(archive)}
    lines = "".join(f'  {name}: "{value}"\n' for name, value in conf.items())
    depot = Depot(tmp_path, f"engine: spark\nmaster: {cluster.master}\nspark:\n{lines}")
    rows = [{"id": str(n), "word": f"{n} " * 20} for n in range(12_000)]
    depot.feed.write_text("".join(change("INSERT", "bins", n, row) for n, row in enumerate(rows)), "utf-8")
    touch(depot.feed)
    result = _command(
        cluster, tmp_path, sys.executable, "-m", "ingest", "run", str(depot.file), "--output", "json"
    )
    assert ({"done"}, []) == ({one["state"] for one in result["mirrors"]}, result["failures"])
    found = Lake(spark, depot.pipeline).read("mirrors/depot/bins").toArrow().to_pylist()
    assert sorted((row["id"], row["word"]) for row in rows) == sorted(
        (str(row["id"]), row["word"]) for row in found
    )


# --- what the event log says ------------------------------------------------------------------------


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The folder of Spark's event logs."""
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


def logging(events: Path) -> dict[str, str]:
    """The only settings of these runs: their event logs, as plain files."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


@dataclass
class Seen:
    """What event logs say of a stage: its jobs' descriptions, and the executor of each task."""

    jobs: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)

    @property
    def ran(self) -> dict[str, Any]:
        """The same as a run says it of itself."""
        executors = set(self.tasks) - {"driver"}
        where = "spark" if self.jobs else "driver"
        return {"where": where, "jobs": len(self.jobs), "tasks": len(self.tasks), "executors": len(executors)}


def seen(events: Path) -> dict[str, Seen]:
    """What all logs in a folder say, by stage: a job's group ends with it."""
    found: dict[str, Seen] = {}
    for log in events.iterdir():
        stages: dict[int, str] = {}  # the stage of the product by Spark's stage
        for event in map(json.loads, log.read_text("utf-8").splitlines()):
            if event["Event"] == "SparkListenerJobStart":
                name = event["Properties"].get("spark.jobGroup.id", "/no stage").rpartition("/")[2]
                found.setdefault(name, Seen()).jobs.append(
                    event["Properties"].get("spark.job.description", "")
                )
                stages |= dict.fromkeys(event["Stage IDs"], name)
            elif event["Event"] == "SparkListenerTaskEnd":
                found[stages[event["Stage ID"]]].tasks.append(event["Task Info"]["Executor ID"])
    return found


def check(result: dict[str, Any], found: dict[str, Seen]) -> None:
    """Each stage with work ran tasks on executors, and the run says what the log says."""
    assert [] == result["failures"]
    for stage, said in result["ran"].items():
        assert found.get(stage, Seen()).ran == said, stage
        assert said["executors"] > 0, (stage, said)
        assert all(text.startswith(f"ingest {NAME} batch 1 {stage}: ") for text in found[stage].jobs)


def test_the_jobs_submitted_to_a_cluster(
    spark: SparkSession, cluster: Cluster, archive: Path, tmp_path: Path, events: Path
) -> None:
    """The documented commands, with Spark's default settings: a job that leaves the executors idle did its work elsewhere."""
    file = example(NAME, tmp_path, "")
    options = [word for name, value in logging(events).items() for word in ("--conf", f"{name}={value}")]
    submit = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.master, *options,
        "--jars", ",".join(map(str, jars.require("delta"))), "--py-files", str(archive),
    ]  # fmt: skip
    for stage in ("bronze", "silver", "gold", "quality"):
        job = str(ROOT / f"jobs/{stage}.py")
        result = _command(cluster, tmp_path, *submit, job, str(file), "--output", "json")
        assert [stage] == list(result["stages"]) == list(result["ran"])
        check(result, seen(events))
        assert [] == [text for text in result["warnings"] if "ran no task" in text]
    assert expected_shop() == shop(Lake(spark, load(file)))


@pytest.mark.parametrize("engine", ["spark", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_master_of_the_pipeline_file_is_used_or_said_not_to_be(
    spark: SparkSession, cluster: Cluster, archive: Path, tmp_path: Path, events: Path, engine: str
) -> None:
    """Whoever pays for a cluster must see it at work, or be told that it was not."""
    conf = logging(events) | {"spark.submit.pyFiles": str(archive), "spark.files": str(archive)}
    lines = "".join(f'  {name}: "{value}"\n' for name, value in conf.items())
    file = example(NAME, tmp_path, f"engine: {engine}\nmaster: {cluster.master}\nspark:\n{lines}")
    result = _command(cluster, tmp_path, sys.executable, "-m", "ingest", "run", str(file), "--output", "json")
    idle = [text for text in result["warnings"] if "ran no task of bronze, silver, gold, quality" in text]
    if engine == "spark":
        check(result, seen(events))
        assert [] == idle
    else:
        assert {"driver"} == {one["where"] for one in result["ran"].values()}
        assert ["`engine: spark` in the pipeline file has it used"] == [text[-49:-1] for text in idle]
    assert expected_shop() == shop(Lake(spark, load(file)))


_NOTEBOOK = """
import json, sys
from pyspark.sql import SparkSession
import ingest
from ingest.cli.run_verbs import describe
master, file, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
building = SparkSession.builder.master(master).appName("notebook")
for name, value in conf.items():
    building = building.config(name, value)
spark = building.getOrCreate()
pipeline = ingest.load(file)
with ingest.session(pipeline) as session:
    found = describe(ingest.run_pipeline(pipeline, session))
spark.range(1).count()  # it is still the caller's, whose jobs have no name of ours
print(json.dumps(found, indent=1, default=str), flush=True)
spark.stop()
"""


def test_a_session_that_exists_on_a_cluster(
    spark: SparkSession, cluster: Cluster, archive: Path, tmp_path: Path, events: Path
) -> None:
    """A notebook's session, as on Databricks: the stages run on its executors, and its other jobs are not counted."""
    conf = logging(events) | settings.DELTA | {
        "spark.jars": ",".join(map(str, jars.require("delta"))), "spark.submit.pyFiles": str(archive),
    }  # fmt: skip
    file = example(NAME, tmp_path, "")
    # Not by `python -c`: PySpark takes such a program for its own doctests, and ends it without a word.
    notebook = tmp_path / "notebook.py"
    notebook.write_text(_NOTEBOOK, "utf-8")
    result = _command(
        cluster, tmp_path, sys.executable, str(notebook), cluster.master, str(file), json.dumps(conf)
    )
    found = seen(events)
    check(result, found)
    assert {""} == set(found["no stage"].jobs)
    assert expected_shop() == shop(Lake(spark, load(file)))
