"""The service with a real session: a schedule lands what comes, a button decides, SIGTERM in a batch loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ingest.ledgers import decisions
from ingest.tables.tables import LakeReader
from tests.lakes import ROOT, Depot, statement, touch

MEGABYTES = 300  # of the process that answers
SECONDS = 240


class Running:
    """`ingest serve` in a process of its own."""

    def __init__(self, file: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ingest", "serve", str(file), "--listen", "127.0.0.1:0", "-o", "json"],
            stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "USER": "ada", "LOGNAME": "ada"},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = json.loads(self.process.stdout.readline())["listening"]

    def get(self, place: str) -> Any:
        """A document of the API."""
        with urllib.request.urlopen(f"{self.address}{place}", timeout=60) as answer:
            return json.load(answer)

    def post(self, **fields: str) -> Any:
        """An action, to its end."""
        asked = urllib.request.Request(
            f"{self.address}/api/act", json.dumps(fields).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            job = json.load(answer)
        return self.until(
            lambda: (found := self.get(f"/api/job?id={job['job']}"))["code"] is not None and found
        )

    def until(self, true: Callable[[], Any]) -> Any:
        """Wait for something."""
        end = time.monotonic() + SECONDS
        while not (found := true()):
            assert self.process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        return found


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    """A pipeline that the service runs every second."""
    return Depot(tmp_path, "every: 1s\ntables:\n  - {match: depot.bins, on_schema_change: freeze}\n")


@pytest.fixture
def running(depot: Depot) -> Iterator[Running]:
    """The service over it."""
    depot.grow()
    made = Running(depot.file)
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_schedule_a_decision_and_an_end_in_a_batch(depot: Depot, running: Running) -> None:
    """Each of them with Spark as it is: its start, its signals, its time."""
    reader = LakeReader(depot.pipeline)
    running.until(lambda: running.get("/api/status")[0]["batch"] == 1)
    server = psutil.Process(running.process.pid)
    assert server.memory_info().rss / 2**20 < MEGABYTES
    with depot.feed.open("a", encoding="utf-8") as file:
        file.write(statement("bins", 50, "ALTER TABLE bins ADD COLUMN more INT"))
    touch(depot.feed, 3000)
    waits = running.until(lambda: [one for one in running.get("/api/ddl?pipeline=depot") if one["pending"]])
    job = running.post(do="approve", pipeline="depot", statement=waits[0]["id"], reason="agreed")
    assert ("done", "ada") == (job["state"], job["user"])
    running.until(lambda: not running.get("/api/status")[0]["pending_statements"])
    decided = [one for one in decisions.read(reader).all if one.kind == "approve"]
    assert [("ada", "agreed")] == [(one.by, one.reason) for one in decided]
    assert "done" == running.post(do="pause", pipeline="depot", table="depot.shelf0")["state"]
    assert "ada" == next(one.by for one in decisions.read(reader).all if one.kind == "pause")
    before = reader.decoded()
    depot.grow()
    running.until(lambda: reader.progress("bronze", "bronze") > before)  # the batch is under way
    children = server.children(recursive=True)
    running.process.send_signal(signal.SIGTERM)
    assert 0 == running.process.wait(SECONDS)
    assert [] == [one for one in children if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert not (Path(depot.pipeline.lake) / "_ingest.lock").exists()
    again = Running(depot.file)  # what was left is taken up
    try:
        query = "/api/sql?pipeline=depot&q=SELECT+id,+word+FROM+depot.bins+ORDER+BY+id"
        bins = depot.expected()["bins"]
        again.until(lambda: [(row["id"], row["word"]) for row in again.get(query)] == bins)
    finally:
        again.process.send_signal(signal.SIGINT)
        assert 0 == again.process.wait(SECONDS)
