"""A night on call, from the pages alone and by the keyboard alone: what is rejected, held, paused or old is fixed."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docs.pictures import short
from ingest.change import TableId
from ingest.config import load
from ingest.gold import approval
from ingest.inspect.status import status
from ingest.ledgers import decisions, mirrors, pauses, rejects
from ingest.ledgers.decisions import Decision
from ingest.serve.app import Service
from ingest.serve.background import JobRunner
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from ingest.tables.schemas import RUNS
from ingest.tables.tables import LakeReader
from tests.e2e import chromium
from tests.e2e.test_serve import SECONDS, Running
from tests.lakes import ROOT, TYPES, change, statement, touch
from tests.serve.conftest import listening, slice_of  # noqa: F401 - a fixture
from tests.timing import until
from tests.written_lake import WrittenLake

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="no Chromium on PATH: apt-get install chromium"
)
STAND_IN = (sys.executable, str(ROOT / "tests" / "serve" / "stand_in.py"))
KEYS = {"Tab": 9, "Enter": 13}
STOPS = 120  # presses of Tab after which a page has been gone through
SEEN = """(() => {
  const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
  return at === document.body || at.id === "main" || (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
    && box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight);
})()"""


class Night:
    """A lake in trouble, and the process that does what the pages ask for, without Spark."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake = WrittenLake(
            folder, "depot", "tables:\n  - {match: depot.bins, on_schema_change: freeze}\n"
        )
        monkeypatch.setattr(decisions, "append", self._append)
        monkeypatch.setenv("INGEST_USER", "ada")
        for n in range(3):
            self.lake.take(slice_of(n, broken=n == 0))
        self.decide("pause", "depot.shelf1")
        waits = "a statement waits for a decision: `ingest ddl`"
        more = statement("bins", 901, "ALTER TABLE bins ADD COLUMN more INT")
        self.lake.take(
            [more, change("INSERT", "bins", 902, {"id": "77", "word": "w"})], held={"depot.bins": waits}
        )
        self.note("depot.shelf1", "paused", pauses.PAUSED)
        self._seen = 0
        (folder / "hold").touch()

    def _append(self, _lake: object, rows: list[Decision]) -> None:
        for one in rows:
            self.lake.decide(one.kind, one.subject, one.value, one.by, one.reason)

    def note(self, table: str, state: str, message: str = "") -> None:
        """What a run records of one mirror."""
        row = {"run": f"run-{self.lake.batch}", "pipeline": "depot", "batch": self.lake.batch, "stage": "gold", "subject": table,
               "state": state, "started_at": self.lake.now, "seconds": 0.1, "counts": "{}", "message": message}  # fmt: skip
        self.lake.product(RUNS.name, [row], complete=self.lake.batch, lagging=[])

    def decide(self, kind: str, table: str) -> None:
        """A pause or its end."""
        known = {one.name: one for one in mirrors.known(self.lake.reader).values()}
        pauses.decide(self.lake.reader, known[table], kind, "", "ada")  # type: ignore[arg-type] # the append is ours

    def work(self) -> list[str]:
        """Do what was asked for next; return its message."""
        asked = self.lake.file.parent / "asked"
        until(lambda: asked.exists() and len(asked.read_text("utf-8").splitlines()) > self._seen)
        job = json.loads(asked.read_text("utf-8").splitlines()[self._seen])
        self._seen += 1
        words, reader = job["verb"], self.lake.reader
        given = words[words.index("--") + 2 :]
        reason = next((word.removeprefix("--reason=") for word in words if word.startswith("--reason=")), "")
        if words[:2] == ["rejects", "dismiss"]:
            rejects.dismiss(reader, rejects.waiting(reader, number=int(given[0])), reason, job["user"])  # type: ignore[arg-type]
        elif words[:2] == ["ddl", "approve"]:
            approval.approve_or_dismiss(reader, given[0], "approve", reason)  # type: ignore[arg-type]
        elif words[0] == "resume":
            self.decide("resume", given[0])
            self.lake.mirror(TableId("depot", None, given[0].removeprefix("depot.")))
            self.note(given[0], "done")
        elif words[0] == "retry":
            self.lake.take([change("INSERT", "bins", 950, {"id": "78", "word": "w"})])
        (self.lake.file.parent / "hold").unlink()
        until(lambda: not (self.lake.file.parent / "hold").exists())
        return words


class Hands:
    """An operator at a keyboard, who sees what has the focus."""

    def __init__(self, browser: chromium.Browser) -> None:
        self.browser = browser

    def press(self, key: str) -> None:
        """One key, down and up."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]} | (
            {"text": "\r"} if key == "Enter" else {}
        )
        for kind in ("keyDown", "keyUp"):
            self.browser._ask("Input.dispatchKeyEvent", type=kind, **named)

    def write(self, text: str) -> None:
        """A text into what has the focus."""
        self.browser._ask("Input.insertText", text=text)

    def shows(self, name: str, folder: Path) -> None:
        """Keep a picture of the page where `INGEST_PICTURES` says, with paths as they are within a folder."""
        if place := os.environ.get("INGEST_PICTURES"):
            self.browser.run(short(f"{folder}/"))
            self.browser.run("document.activeElement.scrollIntoView({block: 'nearest'})")
            Path(place, f"session-{name}.png").write_bytes(self.browser.picture())

    def reads(self, text: str) -> None:
        """Wait until the page says something."""
        script = f"Boolean(document.body) && document.readyState === 'complete' && document.body.innerText.includes({json.dumps(text)})"
        try:
            until(lambda: self.browser.run(script))
        except AssertionError:
            raise AssertionError(self.browser.run("document.body.innerText")) from None

    def go_to(self, name: str) -> None:
        """Tab until what has the focus is called so; each stop on the way can be seen."""
        script = "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '').trim()"
        for _ in range(STOPS):
            self.press("Tab")
            assert self.browser.run(SEEN), self.browser.run("document.activeElement.outerHTML")
            if name in self.browser.run(script):
                return
        raise AssertionError(f"no Tab leads to {name}: {self.browser.run('document.body.innerText')}")

    def follow(self, name: str, then: str) -> None:
        """Tab to a link or button, press Enter, and wait for what the page says then."""
        self.go_to(name)
        self.press("Enter")
        self.reads(then)


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """The lake in trouble."""
    return Night(tmp_path, monkeypatch)


@pytest.fixture
def address(night: Night, listening: Callable[[Service], int]) -> Iterator[str]:  # noqa: F811 - the fixture
    """Where its pages are."""
    fleet = Fleet([night.lake.file])
    work = JobRunner(fleet, worker=STAND_IN)
    work.start()
    yield f"http://127.0.0.1:{listening(Service(fleet, AccessGuard(Address('127.0.0.1', 0), 'ada'), work))}"
    work.close()


def test_three_troubles_are_fixed_by_the_keyboard(night: Night, address: str, tmp_path: Path) -> None:
    """An operator who is woken at night has a laptop and no mouse; what the pages cannot do stays undone."""
    with chromium.Browser(tmp_path / "profile") as browser:
        hands = Hands(browser)
        browser.open(address, width=1280, height=900, dark=True)
        hands.reads("1 of 1 pipeline needs attention now.")
        hands.follow("depot", "What needs attention")
        hands.reads("depot.bins is held")
        hands.reads("depot.shelf1 is paused")

        hands.follow("Rejects", "1 reject waits.")
        hands.follow("1", "The message as it came")
        hands.go_to("Reason: Dismiss")
        hands.write("a test of the sender")
        hands.follow("Dismiss", "ingest rejects dismiss")
        assert "--reason=a test of the sender" in night.work()
        hands.reads("Done.")
        (night.lake.file.parent / "hold").touch()
        hands.follow("Rejects", "No reject waits.")

        hands.follow("DDL", "1 statement waits for a decision.")
        hands.go_to("Reason: Approve")
        hands.write("agreed with the shop")
        hands.follow("Approve", "ingest ddl approve")
        night.work()
        hands.reads("Done.")
        (night.lake.file.parent / "hold").touch()
        hands.follow("DDL", "No statement waits for a decision.")

        hands.follow("depot", "What needs attention")
        hands.follow("Retry held and failed mirrors", "ingest retry")
        assert "retry" == night.work()[0]
        hands.reads("Done.")
        (night.lake.file.parent / "hold").touch()
        hands.follow("Back to depot", "depot.shelf1 is paused")

        hands.follow("depot.shelf1", "Explain a row")
        hands.follow("Resume", "ingest resume")
        night.work()
        hands.reads("Done.")
        hands.follow("All pipelines", "1 pipeline: nothing needs attention.")
        assert [] == browser.said()
    reader = night.lake.reader
    said = {one.kind: (one.by, one.reason) for one in decisions.read(reader).all if one.by == "ada"}
    assert ("ada", "a test of the sender") == said["dismiss-reject"]
    assert ("ada", "agreed with the shop") == said["approve"]
    assert "resume" in said


class Source:
    """A source that sends what the test says, and its pipeline file; nothing runs it but the pages."""

    def __init__(self, folder: Path) -> None:
        self.feed, self.file = folder / "bins-1.jsonl", folder / "depot.yaml"
        self.file.write_text(
            "pipeline: depot\nlake: ./lake\nengine: auto\nsources:\n"
            "  - {name: bins, kind: files, path: ./bins-*.jsonl, format: dts-canal, settle: 1s}\n"
            "tables:\n  - {match: depot.bins, on_schema_change: freeze}\nquality:\n  - {table: depot.shelf, freshness: 1h}\n",
            "utf-8",
        )
        self.reader = LakeReader(load(self.file))

    def sends(self, *messages: str) -> None:
        """Further messages."""
        with self.feed.open("a", encoding="utf-8") as file:
            file.writelines(messages)
        touch(self.feed, 3000)

    def row(self, table: str, serial: int, hours_ago: float = 0, **row: str) -> str:
        """A row that the source has inserted."""
        moment = int((time.time() - 3600 * hours_ago) * 1000) + serial
        types = {**TYPES, "more": "int"} if "more" in row else TYPES
        return change("INSERT", table, serial, row, es=moment, mysqlType=types)


@pytest.mark.spark
def test_a_night_with_spark_as_it_is(tmp_path: Path) -> None:
    """What the pages promise, a real session must keep: a reject, a held statement and a stale table, found and fixed."""
    source = Source(tmp_path)
    source.sends(
        source.row("bins", 1, id="1", word="one"), source.row("shelf", 2, 5, id="1", word="old"), '{"broken": \n'
    )  # fmt: skip
    running = Running(source.file)
    try:
        with chromium.Browser(tmp_path / "profile") as browser:
            hands = Hands(browser)
            browser.open(running.address, width=1280, height=900, dark=False)
            hands.reads("Not run yet")
            hands.follow("depot", "Run now")
            hands.follow("Run now", "Back to depot")
            sql, moment = "ALTER TABLE bins ADD COLUMN more INT", int(time.time() * 1000)
            alter = change("ALTER", "bins", 3, {}, data=None, isDdl=True, sql=sql, pkNames=None, es=moment)
            source.sends(alter, source.row("bins", 4, id="2", word="two", more="7"))
            hands.follow("Back to depot", "Run now")
            hands.follow("Run now", "It ended with exit code 1.")

            hands.follow("All pipelines", "1 of 1 pipeline needs attention now.")
            hands.follow("depot", "What needs attention")
            for trouble in (
                "depot.bins is held",
                "could not be decoded",
                "depot.shelf: the newest change is 5 hours old",
            ):
                hands.reads(trouble)
            hands.shows("1-troubles", tmp_path)

            hands.follow("Rejects", "1 reject waits.")
            hands.follow("1", "The message as it came")
            hands.go_to("Reason: Dismiss")
            hands.write("the sender's test")
            hands.shows("2-reject", tmp_path)
            hands.follow("Dismiss", "Done.")
            hands.follow("DDL", "1 statement waits for a decision.")
            hands.go_to("Reason: Approve")
            hands.write("agreed with the shop")
            hands.shows("3-ddl", tmp_path)
            hands.follow("Approve", "Done.")
            hands.follow("depot", "Retry held and failed mirrors")
            hands.follow("Retry held and failed mirrors", "Back to depot")  # what is old is a failure still
            hands.follow("Back to depot", "depot.shelf")

            hands.follow("depot.shelf", "Explain a row")
            hands.shows("4-stale", tmp_path)
            source.sends(source.row("shelf", 5, id="2", word="new"))
            hands.follow("depot", "Run now")
            hands.follow("Run now", "Done.")
            hands.follow("All pipelines", "1 pipeline: nothing needs attention.")
            hands.shows("5-good", tmp_path)
            assert [] == browser.said()
    finally:
        running.process.terminate()
        running.process.communicate(timeout=SECONDS)
    assert 0 == running.process.returncode
    said = {one.kind: one.by for one in decisions.read(source.reader).all}
    assert ("ada", "ada") == (said["dismiss-reject"], said["approve"])
    rows = [
        source.reader.ask_mirror(f"mirrors/depot/{name}", "SELECT * FROM {mirror} ORDER BY id")
        for name in ("bins", "shelf")
    ]
    assert [[(1, "one", None), (2, "two", 7)], [(1, "old", None), (2, "new", None)]] == [
        [(row["id"], row["word"], row.get("more")) for row in found] for found in rows
    ]
    recorded = source.reader.ask(
        "SELECT complete_until AS until FROM {runs} WHERE complete_until IS NOT NULL ORDER BY batch"
    )
    shown = dt.datetime.fromisoformat(status(source.reader)["complete_until"])
    assert shown.replace(tzinfo=None) == recorded[-1]["until"]
