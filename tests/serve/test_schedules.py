"""Runs that the service starts by itself, and the process that does them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ingest.cli import worker as workers
from ingest.config import load
from ingest.errors import IngestError
from ingest.ledgers import decisions
from ingest.serve import background
from ingest.serve.background import JobRunner
from ingest.serve.fleet import Fleet
from ingest.serve.jobs import COMPARE, ServiceJob, words_of
from tests.lakes import change, touch
from tests.serve.test_background import STAND_IN, asked
from tests.timing import until


def scheduled(own: Path, every: str = "1s", **given: Any) -> JobRunner:
    """The work of a fleet whose pipeline has a schedule."""
    own.write_text(f"every: {every}\n{own.read_text('utf-8')}", "utf-8")
    return JobRunner(Fleet([own]), worker=STAND_IN, **given)


def test_a_run_is_asked_for_when_there_is_something_to_do(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is started for nothing, or a file waits for ever."""
    found: list[Any] = ["nothing"]
    monkeypatch.setattr(background, "idle", lambda *_args, **_kept: found[0])
    work = scheduled(own)
    work.start()
    try:
        until(lambda: work.next_run("depot") is not None)
        time.sleep(1.5)
        assert not (own.parent / "started").exists()
        found[0] = None
        until(lambda: len(asked(own)) > 1)
        assert {str(own)} == {one["run"] for one in asked(own)}
        assert all(not one.user for one in work.of("depot"))
    finally:
        work.close()


def test_files_that_wait_are_seen_without_spark(own: Path) -> None:
    """A new file is work for the service; a lake that is up to date is not."""
    work = scheduled(own)
    feed = own.parent / "depot-9.jsonl"
    feed.write_text(change("INSERT", "bins", 1, {"id": "1", "word": "x"}), "utf-8")
    touch(feed)
    work._look("depot")
    assert [("run", str(own))] == [one.words for one in work.of("depot")]
    work._look("depot")
    assert 1 == len(work.of("depot")), "a second run was asked for while the first waits"


def test_an_idle_process_is_ended(own: Path) -> None:
    """Spark holds gigabytes for nothing all night."""
    work = JobRunner(Fleet([own]), schedules=False, worker=STAND_IN, idle_after=0.3)
    work.start()
    try:
        work.ask("retry", "depot", {}, "ada")
        until((own.parent / "ended").exists)
        (own.parent / "started").unlink()
        work.ask("retry", "depot", {}, "ada")
        until((own.parent / "started").exists)
    finally:
        work.close()


def test_a_comparison_leaves_the_process_of_runs_alone(own: Path) -> None:
    """Each comparison ended it, and the next run waited for Spark's start."""
    work = JobRunner(
        Fleet([own]),
        schedules=False,
        worker=STAND_IN,
        verbs=(sys.executable, "-c", "import sys; sys.exit(0)"),
    )
    work.start()
    try:
        first = work.ask("retry", "depot", {}, "ada")
        until(lambda: first.is_over)
        work.compared.compare(ServiceJob("depot", (COMPARE,), state="runs"))
        second = work.ask("retry", "depot", {}, "ada")
        until(lambda: second.is_over)
        assert not (own.parent / "ended").exists()
    finally:
        work.close()


def test_people_come_before_schedules(own: Path) -> None:
    """A decision in an incident must not wait for every pipeline's run."""
    work = scheduled(own)
    (own.parent / "hold").touch()
    work._threads[0].start()
    try:
        for name in ("1", "2"):
            with work.change:
                work.add(ServiceJob("depot", ("run", str(own)), id=name), work._runs)
            until(lambda: work.running("depot"))
        work.ask("retry", "depot", {}, "ada")
        (own.parent / "hold").unlink()
        until(lambda: len(asked(own)) == 3)
        assert ["run", "verb", "run"] == [next(iter(one.keys() - {"job", "user"})) for one in asked(own)]
    finally:
        (own.parent / "hold").unlink(missing_ok=True)
        work.close()


def test_words_are_refused_that_no_verb_takes() -> None:
    """An empty table name would count as none, and mean all tables."""
    with pytest.raises(IngestError, match="needs table"):
        words_of("pause", Path("x"), {"table": ""})
    with pytest.raises(IngestError, match="There is no action"):
        words_of("rebuild", Path("x"), {})


# --- the process itself, without its session ---


def test_a_verb_in_the_process_is_the_verb(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of a job, its exit code, and the name of its user."""
    seen: list[str | None] = []
    monkeypatch.setattr(workers.Worker, "_session", lambda _self: seen.append(os.environ.get("INGEST_USER")))
    made = workers.Worker([own], sys.stdout)
    done = made._done({"job": "1", "verb": ["status", "--", str(own)], "user": "grace"})
    assert (1, True) == (done["code"], "depot.bins" in done["text"])  # a table is held
    done = made._done({"job": "2", "verb": ["rejects", "show", "--", str(own), "99"], "user": "grace"})
    assert (2, True) == (done["code"], "There is no reject 99" in done["text"])
    assert "INGEST_USER" not in os.environ


def test_a_process_without_a_usable_file_says_what_is_wrong_with_it(own: Path) -> None:
    """The service goes on with what a file said before a fault, and its process cannot start a session for none."""
    own.write_text(f"evry: 5m\n{own.read_text('utf-8')}", "utf-8")
    done = workers.Worker([own], sys.stdout)._done({"job": "1", "run": str(own)})
    assert (2, True) == (done["code"], f"{own}:1:1 the key 'evry' is unknown here" in done["text"]), done


def test_the_name_of_who_asked_is_the_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions that all name the service's account would not show who made them."""
    monkeypatch.setenv("INGEST_USER", "grace")
    assert "grace" == decisions.user()


def test_a_schedule_is_read_from_the_file(own: Path) -> None:
    """Minutes that are taken for seconds make a load."""
    own.write_text(f"every: 5m\n{own.read_text('utf-8')}", "utf-8")
    assert 300.0 == load(own).every
