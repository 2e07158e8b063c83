"""What libraries say of broken files, as the one sentence that an operator needs."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql.classic.column import Column

from ingest import run as runs
from ingest.config.model import TableRule
from ingest.errors import IngestError, StoppedError
from ingest.store import faults
from ingest.store.envelope import SealError
from ingest.store.faults import damaged, fault, of_mirror, said
from ingest.tables.datafiles import FilePart, Files, Layout, written
from tests.shops import Shops
from tests.timing import PATIENCE

JAVA = "An error occurred while calling o2663.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
TEXTS = {
    JAVA + "Lost task 0.0: java.io.IOException: No space left on device\n\tat java.base": "the disk is full",
    JAVA
    + "Task 1 in stage 151.0: java.io.FileNotFoundException: /lake/mirrors/shop/a/part-0.parquet (Permission denied)": "access was refused at /lake/mirrors/shop/a/part-0.parquet: let the user",
    JAVA
    + "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///lake/mirrors/shop/a/part-0.snappy.parquet. SQLSTATE: KD001": "a data file is damaged or missing at /lake/mirrors/shop/a/part-0.snappy.parquet",
    JAVA
    + "java.lang.RuntimeException: file:/lake/bronze/part-3.parquet is not a Parquet file. Expected magic number at tail": "a data file is damaged or missing at /lake/bronze/part-3.parquet",
    JAVA
    + "com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input in field name": "the table's log is damaged",
    JAVA
    + "PythonException: Traceback (most recent call last):\n  File \"/opt/ingest/spark/tasks.py\", line 9, in run\nOSError: [Errno 28] No space left on device: '/lake/x'\n\n\tat org.apache": "the disk is full at /lake/x",
    JAVA
    + 'PythonException: Traceback (most recent call last):\n  File "/opt/ingest/spark/tasks.py", line 9, in run\nOSError: [Errno 28] No space left on device\n\n\tat org.apache': "the disk is full: free some space",
    JAVA
    + "Lost task 0.0 (TID 0) (10.0.0.2 executor 1): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'spark.python.x'\n\tat java.base": "a process that worked for Spark has ended: see whether its machine",
    JAVA
    + "Task 0 in stage 1.0: org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout and terminated with code: 137.": "a process that worked for Spark has ended: see",
    JAVA
    + "Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 2) (localhost executor driver): java.io.EOFException\n"
    "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
    "\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:188)": "a process that worked for Spark has ended: see whether its machine was",
    JAVA
    + "Lost task 0.0 (TID 0) (10.0.0.2 executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited with code 137": "a process that worked for Spark has ended",
    JAVA
    + "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint small (n < 8) violated by row with values:\n - n : 9": "does not meet a CHECK constraint small (n < 8), which somebody has set on the table: drop it by Spark, ALTER TABLE delta.`PATH` DROP CONSTRAINT small, then run",
    "java.lang.UnsupportedOperationException: [DELTA_CANNOT_MODIFY_APPEND_ONLY] This table is configured to only allow appends. If you would like to permit updates or deletes, use 'ALTER TABLE null SET TBLPROPERTIES (delta.appendOnly=false)'.": "somebody has set delta.appendOnly on the table, which lets no row change or go: unset it by Spark, ALTER TABLE delta.`PATH` UNSET TBLPROPERTIES (delta.appendOnly), then",
    "org.apache.spark.sql.delta.DeltaFileNotFoundException: [DELTA_TRUNCATED_TRANSACTION_LOG] s3a://b/lake/mirrors/a/_delta_log/00000000000000000000.json: Unable": "damaged",
}


@pytest.mark.parametrize("text", TEXTS, ids=list(TEXTS.values()))
def test_a_fault_is_one_sentence(text: str) -> None:
    """Five hundred lines of Java, three times, hide the one path that matters."""
    found = fault(RuntimeError(text))
    assert found is not None
    assert TEXTS[text] in found
    assert "\n" not in found


DAMAGE: dict[str, Callable[[Path], object]] = {
    "overwritten": lambda file: file.write_bytes(b"x" * 500),
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "bits": lambda file: file.write_bytes(file.read_bytes()[:5] + b"\0" * 60 + file.read_bytes()[65:]),
    "deleted": lambda file: file.unlink(),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_of_the_lake_is_named(tmp_path: Path, how: str) -> None:
    """Arrow says that a footer is missing, and not of which of ten thousand files."""
    columns = pa.schema([("batch", pa.int64()), ("payload", pa.string())])
    rows = pa.table([[1] * 99, [str(n) for n in range(99)]], schema=columns)
    [added] = written(Layout(str(tmp_path), columns), rows)
    file = tmp_path / added.path
    assert 99 == sum(page.num_rows for page in FilePart(str(file), columns, 1, 1).read())
    DAMAGE[how](file)
    with pytest.raises((pa.ArrowException, OSError)) as caught:
        list(FilePart(str(file), columns, 1, 1).read())
    assert f"a data file is damaged or missing at {file}" == fault(caught.value)
    with pytest.raises(duckdb.Error) as asked:
        duckdb.sql(f"SELECT max(batch), max(payload) FROM read_parquet('{file}')").fetchall()
    assert damaged(asked.value)


def test_a_disk_that_fills_up_under_arrow_is_named(tmp_path: Path) -> None:
    """A machine has several disks; the error's text names none."""
    with (
        pytest.raises(OSError, match="No space") as caught,
        Files(Layout(str(tmp_path), pa.schema([("batch", pa.int64())]))),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert re.search(rf"the disk is full at {tmp_path} \([0-9,]+ MB free\): free", str(fault(caught.value)))


def test_other_failures_keep_their_own_words() -> None:
    """A fault that is no fault of files would send the operator to the wrong place."""
    error = ValueError("An error occurred while calling o1.x\n: the key column is NULL")
    assert fault(error) is None
    assert "ValueError: the key column is NULL" == said(error)


def test_python_errors_count_too() -> None:
    """The disk is as full for Python as for Java."""
    assert "the disk is full at /lake/x" in str(fault(OSError(errno.ENOSPC, "No space", "/lake/x")))
    assert "access was refused at /lake/x" in str(
        fault(PermissionError(errno.EACCES, "Permission denied", "/lake/x"))
    )


def test_the_cause_is_asked_too() -> None:
    """A query that another failure ended says nothing about its cause."""
    error = RuntimeError("query stopped")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "the disk is full" in str(fault(error))


@pytest.mark.parametrize(
    ("ended", "how"), [(9, "by signal 9 (SIGKILL)"), (0, "with exit code 3")], ids=["killed", "left"]
)
@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), Py4JError("An error occurred while calling o1.x"),
              Py4JNetworkError("Answer from Java side is empty"), EOFError()], ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_java_that_has_ended_is_named(
    error: Exception, ended: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads that a connection was refused looks for a server; the system had killed Java for its memory."""
    command = [
        sys.executable,
        "-c",
        "import time; time.sleep(60)" if ended else "import time; time.sleep(0.1); exit(3)",
    ]
    with subprocess.Popen(command) as java, monkeypatch.context() as during:
        during.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        during.setattr(faults, "_MOMENT", PATIENCE)  # not of a Java that goes on
        if ended:
            assert fault(ValueError("anything else")) is None
            java.send_signal(ended)
        assert f"Java, in which Spark runs, has ended {how}: see whether" in (fault(error) or "")
        assert fault(RuntimeError("of code that has not asked Java")) is None
        with pytest.raises(AttributeError) as asked:
            Column(None) + 1  # type: ignore[arg-type]
        assert f"has ended {how}" in (fault(asked.value) or "")
        during.setattr(SparkContext, "_gateway", None)
        assert fault(error) is None
    assert not damaged(error)


def test_the_words_lead_out() -> None:
    """A sentence without what to do is a riddle."""
    lake: Any = SimpleNamespace(pipeline=SimpleNamespace(file="shop.yaml"), path=lambda name: f"/lake/{name}")
    torn = RuntimeError("file:/lake/m/part-0.parquet is not a Parquet file")
    assert "part-0.parquet; `ingest rebuild shop.yaml shop.a` makes" in of_mirror(torn, lake, "shop.a", "m")
    away = "move the folder /lake/m away, and `ingest rebuild shop.yaml shop.a`"
    assert away in of_mirror(torn, lake, "shop.a", "m", in_rebuild=True)
    no_log = RuntimeError("JsonEOFException: Unexpected end-of-input")
    assert away in of_mirror(no_log, lake, "shop.a", "m")
    denied = PermissionError(errno.EACCES, "Permission denied", "/lake/m/part-0.parquet")
    assert of_mirror(denied, lake, "shop.a", "m").endswith("then `ingest retry shop.yaml`")
    closed = next(text for text in TEXTS if "APPEND_ONLY" in text)
    unset = (
        "ALTER TABLE delta.`/lake/m` UNSET TBLPROPERTIES (delta.appendOnly), then `ingest retry shop.yaml`"
    )
    assert of_mirror(RuntimeError(closed), lake, "shop.a", "m").endswith(unset)


@pytest.mark.parametrize("text", ["No space left on device", "Permission denied"])
def test_a_table_that_is_called_damaged_is_not(text: str) -> None:
    """Its name is in the path that the sentence names; its files are sound, and must not be moved away."""
    lake: Any = SimpleNamespace(pipeline=SimpleNamespace(file="shop.yaml"), path=lambda path: f"/lake/{path}")
    error = RuntimeError(f"{JAVA}java.io.IOException: /lake/mirrors/shop/damaged/part-0.parquet ({text})")
    assert "/lake/mirrors/shop/damaged/part-0.parquet" in (fault(error) or "")
    assert not damaged(error)
    assert "rebuild" not in of_mirror(error, lake, "shop.damaged", "mirrors/shop/damaged")


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.hadoop.fs.s3a.AWSClientIOException: getFileStatus on s3a://b/lake/mirrors/a/_delta_log: SdkClientException: Unable to execute HTTP request: Connect to store:9000 failed: Connection refused",
        "java.net.SocketTimeoutException: s3a://b/lake/mirrors/a/part-0.parquet: Read timed out; java.io.FileNotFoundException",
        "Generic S3 error: Error performing GET http://store/lake/mirrors/a/_delta_log/00000000000000000001.json in 20s: error sending request",
    ],
)
def test_a_store_that_does_not_answer_has_no_damaged_tables(text: str) -> None:
    """The text names a file of the log that could not be asked for; nothing of it is to be moved away."""
    assert "the store does not answer" in (fault(RuntimeError(text)) or "")
    assert not damaged(RuntimeError(text))
    assert fault(RuntimeError("the broker b:9092 does not answer: Connection refused")) is None


def test_own_errors_are_sentences_already() -> None:
    """The name of one of this program's classes means nothing to the operator."""
    assert "the bucket is not there" == said(IngestError("the bucket is not there"))


def test_a_sealed_message_that_does_not_open_is_a_sentence_in_a_task_too() -> None:
    """A worker's error reaches the driver as a trace of a hundred lines."""
    error = "".join(traceback.format_exception(SealError("The message at t/0/7 was changed.")))
    trace = f"Traceback (most recent call last):\n{error}\tat org.apache"
    assert "The message at t/0/7 was changed" == fault(RuntimeError(trace))


@pytest.mark.parametrize("stage", ["silver", "gold"])
def test_a_stage_that_stops_is_recorded(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bronze has landed messages by then: without a row in `runs` no one could see that there was a run, and why it ended."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    mine = Shops(tmp_path, TableRule("*")).say(1, "INSERT", 1, "a")
    with monkeypatch.context() as during:
        during.setitem(runs._STAGES, stage, full)
        with pytest.raises(StoppedError, match=f"^{stage} stopped: the disk is full at {tmp_path}"):
            mine.run()
    rows = mine.lake.ask("SELECT stage, state, message FROM {runs}")
    assert "bronze" in {row["stage"] for row in rows}
    [alarm] = [row["message"] for row in rows if row["state"] == "alarm"]
    assert alarm.startswith(f"{stage} stopped: the disk is full")
    mine.warm = runs.Warm()
    assert ("done", "") == mine.run()
