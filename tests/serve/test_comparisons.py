"""Comparisons with the sources on the service's schedule: each as a timer would start it, between the runs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ingest.inspect import due
from ingest.serve import comparisons as comparing
from ingest.serve.app import Service
from ingest.serve.background import JobRunner
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from ingest.serve.jobs import ServiceJob
from ingest.tables.tables import LakeReader
from tests.serve.conftest import Client
from tests.serve.test_background import STAND_IN, asked
from tests.source.bins import Bins
from tests.timing import PATIENCE, until

VERB = """
import re
import sys
from ingest.source import database
from tests.source import duck_source
database.dialect_of = lambda _database: duck_source
duck_source.place.append(sys.argv.pop(1))
from ingest.cli.app import main
main()
"""  # the command line, for which the source is a file
SLEEPER = "import sys, time; print('bins: 1 range', flush=True); time.sleep(600)"

Starting = Callable[..., JobRunner]


@pytest.fixture
def bins(tmp_path: Path) -> Bins:
    """A mirror that is equal to its source, to be compared every hour."""
    made = Bins(tmp_path, rows=50)
    text = made.file.read_text("utf-8")
    made.file.write_text(
        text.replace("user: reader", "user: reader, reconcile_every: 1h, connections: 1"), "utf-8"
    )
    made.mirror()
    return made


@pytest.fixture
def start(bins: Bins) -> Iterator[Starting]:
    """Start a service's work over it."""
    made: list[JobRunner] = []

    def begin(**given: Any) -> JobRunner:
        verbs = (sys.executable, "-c", VERB, str(bins.source))
        made.append(JobRunner(Fleet([bins.file]), **{"worker": STAND_IN, "verbs": verbs, **given}))
        made[0].start()
        return made[0]

    yield begin
    for one in made:
        one.close()


def ended(work: JobRunner) -> ServiceJob:
    """The first comparison, when it is over."""
    found: ServiceJob = until(lambda: next((one for one in work.of("shop") if one.is_over), None))
    return found


def test_what_is_due_is_compared_and_shown(bins: Bins, start: Starting) -> None:
    """A schedule that is not kept would be noticed only after a row is missed."""
    work = start()
    job = ended(work)
    assert ("done", 0, "") == (job.state, job.code, job.user), job.text
    assert f"ingest reconcile --due --source=shop {bins.file}" == job.typed
    lake = LakeReader(work.fleet.members["shop"].pipeline)  # type: ignore[arg-type] # it is there
    assert [("reconcile", "pass")] == [
        (row["check"], row["state"]) for row in lake.ask('SELECT "check", state FROM {checks}')
    ]
    (waiting,) = work.comparisons("shop")
    assert ("shop", True) == (waiting.source, 3400 < (waiting.seconds or 0) <= 3600)
    time.sleep(3 * comparing.LOOK)
    assert 1 == len(work.of("shop"))
    client = Client(Service(work.fleet, AccessGuard(Address("127.0.0.1", 8765), "ada"), work))
    page = client.get("/pipeline?pipeline=shop").text
    assert re.search(r"Next comparison of shop with its database: in (5[89]|60) minutes", page), page
    assert "ingest reconcile --due" in page
    assert "scheduled" in page
    assert "Done." in client.get(f"/job?id={job.id}").text


def test_rows_that_may_be_on_their_way_are_no_failure_and_compared_again(bins: Bins, start: Starting) -> None:
    """Exit code 3 asks for patience; every minute of it would cost the source a full read."""
    bins.rows[5] = ("old", 5 / 8)
    bins.mirror()
    work = start()
    job = ended(work)
    assert ("done", 3) == (job.state, job.code), job.text
    assert "not judged" in job.text
    (waiting,) = work.comparisons("shop")
    assert 300 < (waiting.seconds or 0) <= 360


def test_a_failure_is_shown_and_its_alert_is_sent(bins: Bins, start: Starting) -> None:
    """Alerts are sent after runs, and a table without changes is not run for days."""
    text = bins.file.read_text("utf-8")
    bins.file.write_text(f"{text}alerts:\n  - {{webhook: 'https://example.com/x'}}\n", "utf-8")
    bins.write("DROP TABLE bins")
    work = start()
    job = ended(work)
    assert ("failed", 2, True) == (job.state, job.code, "has no table shop.bins" in job.text), job.text
    until(lambda: asked(bins.file))
    assert str(bins.file) == asked(bins.file)[0]["run"]


def test_the_end_does_not_wait_for_a_comparison(bins: Bins, start: Starting) -> None:
    """It only reads, and may take hours; and it must not go on when the service is gone."""
    work = start(verbs=(sys.executable, "-c", SLEEPER))
    until(lambda: (one := work.comparisons("shop")[0].job) and one.step == "bins: 1 range")
    assert work.compared.process is not None
    assert work.running("shop") is None, "the next run does not wait for it"
    began, process = time.monotonic(), psutil.Process(work.compared.process.pid)
    work.close()
    assert time.monotonic() - began < PATIENCE  # it would sleep for ten minutes
    assert not process.is_running()
    assert "it was stopped with the service" in ended(work).text


def test_what_has_no_schedule_is_not_compared(bins: Bins, start: Starting) -> None:
    """A comparison reads whole tables of a database in use: it is asked for in the file, or by hand."""
    bins.file.write_text(bins.file.read_text("utf-8").replace("reconcile_every: 1h, ", ""), "utf-8")
    work = start()
    assert [] == work.comparisons("shop")
    time.sleep(3 * comparing.LOOK)
    assert [] == work.of("shop")


def test_a_service_that_only_looks_compares_nothing(bins: Bins, start: Starting) -> None:
    """The service with the schedules does it already."""
    work = start(schedules=False)
    assert [] == work.comparisons("shop")
    time.sleep(3 * comparing.LOOK)
    assert [] == work.of("shop")


def test_a_source_without_a_table_waits_for_one(bins: Bins) -> None:
    """The first comparison of an empty lake would be an error a minute."""
    bins.file.write_text(bins.file.read_text("utf-8").replace("name: shop", "name: shed"), "utf-8")
    work = JobRunner(Fleet([bins.file]))
    pipeline = work.fleet.members["shop"].pipeline
    assert pipeline is not None
    assert due.next_due(LakeReader(pipeline), pipeline.sources[0]) is None
    assert [None] == [one.seconds for one in work.comparisons("shop")]
