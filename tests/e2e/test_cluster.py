"""Runs on executors of their own processes, which know the product from its archive alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import load
from ingest.lake.lake import Lake
from ingest.spark import jars
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
    settings = SMALL | {"spark.submit.pyFiles": str(archive), "spark.files": str(archive)}
    lines = "".join(f'  {name}: "{value}"\n' for name, value in settings.items())
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


def test_the_jobs_submitted_to_a_cluster(
    spark: SparkSession, cluster: Cluster, archive: Path, tmp_path: Path
) -> None:
    """The documented commands send the archive by --py-files: each job's tasks must find it."""
    file = example(NAME, tmp_path, "engine: spark\n")
    options = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    submit = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.master, *options,
        "--driver-memory", "1g", "--jars", ",".join(map(str, jars.require("delta"))), "--py-files", str(archive),
    ]  # fmt: skip
    for stage in ("bronze", "silver", "gold", "quality"):
        job = str(ROOT / f"jobs/{stage}.py")
        assert [stage] == list(
            _command(cluster, tmp_path, *submit, job, str(file), "--output", "json")["stages"]
        )
    assert expected_shop() == shop(Lake(spark, load(file)))
