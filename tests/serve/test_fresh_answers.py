"""Answers are made ahead, sent once, and never older than what was written."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.inspect import problems, status
from ingest.serve import fleet as fleets
from ingest.serve import server
from tests.serve.conftest import Client, client_of
from tests.serve.test_pages import PAGES, words
from tests.timing import PATIENCE
from tests.written_lake import reject


def test_a_page_that_is_the_same_is_not_sent_again(client: Client) -> None:
    """Fifty browsers that ask every five seconds would be a load."""
    address = "/rejects?pipeline=depot"
    first = client.get(address)
    again = client.get(address, {"If-None-Match": first.headers["etag"]})
    assert (304, b"") == (again.code, again.data)


def test_making_answers_ends_with_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB aborts a process that ends while one of its threads is in a query: exit -6 after Ctrl-C."""
    begun, over = threading.Event(), threading.Event()

    def prepare(_fleet: object, is_over: Callable[[], bool]) -> None:
        begun.set()
        while not is_over():
            time.sleep(0.01)

    monkeypatch.setattr(fleets.Fleet, "prepare", prepare)
    thread = threading.Thread(target=server._prepare, args=(fleets.Fleet([]), over), daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    over.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_answers_are_made_before_they_are_asked_for(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look in the morning, and the one after each batch, would wait for all tables to be read."""
    made: list[str] = []
    for module, name in ((status, "look"), (status, "verdicts"), (problems, "gathered")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *given, _real=real, _name=name, **more: made.append(_name) or _real(*given, **more),
        )
    client = client_of(own)
    fleet = client.service.fleet
    fleet.prepare()
    assert ["look", "verdicts", "gathered"] == made
    assert "depot.bins" in client.get(PAGES["pipeline"]).text
    assert 3 == len(made), "the page made an answer of its own"
    (own.parent / "depot-lake" / "checks" / "_delta_log" / "later").touch()
    monkeypatch.setattr(fleets, "PAUSE", 0)
    fleet.prepare()
    assert 6 == len(made)
    monkeypatch.setattr(fleets, "LATELY", 0.0)  # as if no page was asked for lately
    (own.parent / "depot-lake" / "checks" / "_delta_log" / "later").unlink()
    fleet.prepare()
    assert 6 == len(made)


def test_what_takes_long_is_shown_as_being_read(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start with fifty pipelines the page would be empty for seconds."""
    client = client_of(own, soon=0.0)
    fleet = client.service.fleet
    unread = client.get("/api/status").json[0]
    assert ("Being read", "none", None, None) == (
        unread["state"], unread["light"], unread["open_rejects"], unread["pending_statements"],
    )  # fmt: skip
    text = client.get("/").text
    assert "1 pipeline: 1 still being read." in words(text)
    assert not re.search(r"\b0\b", words(text)), "a count that is not known is not 0"
    assert 'data-every="1"' in text
    assert "depot.bins" in client.get(PAGES["pipeline"]).text, "a page of one pipeline waits"
    fleet.prepare()
    assert ["1 held, 1 suspect"] == [one.word for one in fleet.states(soon=True)]
    assert 'data-every="5"' in client.get("/").text
    fleet.forget("depot")
    assert ["1 held, 1 suspect"] == [one.word for one in fleet.states(soon=True)], "the last answer, not none"
    monkeypatch.setattr(fleets, "OLDEST", -1.0)
    assert ["Being read"] == [one.word for one in fleet.states(soon=True)], (
        "an old answer is not shown as new"
    )
    assert ["1 held, 1 suspect"] == [one["state"] for one in client.get("/api/status").json], "scripts wait"


def test_what_cannot_be_read_is_not_being_read_for_ever(own: Path) -> None:
    """A failure in the background must appear on the page instead of "being read"."""
    client = client_of(own, soon=0.0)
    shutil.rmtree(own.parent / "depot-lake" / "runs")
    (own.parent / "depot-lake" / "runs" / "_delta_log").mkdir(parents=True)
    (own.parent / "depot-lake" / "runs" / "_delta_log" / f"{0:020d}.json").write_text("{", "utf-8")
    client.service.fleet.prepare()
    assert ["Cannot be read"] == [one.word for one in client.service.fleet.states(soon=True)]
    assert "Cannot be read" in client.get("/").text


@pytest.mark.parametrize("page", ["/", "/pipeline?pipeline=depot", "/api/status"])
def test_a_request_looks_once_at_what_was_written(
    client: Client, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five listings of a thousand folders would be most of the cost of a warm page."""
    looks: list[str] = []
    real = fleets.versions
    monkeypatch.setattr(fleets, "versions", lambda lake: (looks.append(lake), real(lake))[1])
    client.get(page)
    assert 1 == len(looks)


def test_a_commit_is_seen_by_the_next_look(own: Path) -> None:
    """A page that keeps yesterday's answer is worse than none."""
    client = client_of(own)
    assert 2 == client.get("/api/status?pipeline=depot").json["open_rejects"]["message"]
    reject(own.parent / "depot-lake")
    client.service.fleet._answers._slots["depot", "status"].cost = 0.0  # no pause
    assert 3 == client.get("/api/status?pipeline=depot").json["open_rejects"]["message"]
