"""A run on executors of their own processes, which know the product from its wheel alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.lakes import ROOT, example, expected_shop

pytestmark = [pytest.mark.e2e, pytest.mark.spark]
NAME = "dts-canal"
MASTER = "local-cluster[2,1,1536]"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `make dist` makes it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=300)
    return next(folder.glob("ingest-*.whl"))


@pytest.fixture
def worker_python(tmp_path: Path) -> Path:
    """This interpreter with its libraries but without this tree, which an editable install would give it."""
    file = tmp_path / "python"
    libraries = sysconfig.get_path("purelib")
    file.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n', "utf-8"
    )
    file.chmod(0o755)
    return file


def test_a_run_on_a_cluster(wheel: Path, worker_python: Path, tmp_path: Path) -> None:
    """What only works in the driver's process works on no cluster."""
    spark = f"master: {MASTER}\nspark:\n  spark.submit.pyFiles: {wheel}\n  spark.executor.memory: 1g\n"
    file = example(NAME, tmp_path, spark)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(worker_python), "SPARK_LOCAL_IP": "127.0.0.1"}

    def ingest(*words: str) -> object:
        command = [sys.executable, "-m", "ingest", *words, "--output", "json"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=580
        )
        assert 0 == done.returncode, done.stderr[-3000:]
        return json.loads(done.stdout)

    result = ingest("run", str(file))
    assert isinstance(result, dict)
    assert {"done"} == {one["state"] for one in result["mirrors"]}
    customers = ingest("sql", str(file), "SELECT * FROM shop.customers ORDER BY id")
    assert isinstance(customers, list)
    expected = [
        {k: None if v is None else str(v) for k, v in row.items()} for row in expected_shop()["customers"]
    ]
    assert expected == [{k: None if v is None else str(v) for k, v in row.items()} for row in customers]
