"""The service's pages in a real browser: both themes, two widths, the keyboard, and what changes while one looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest.ledgers import mirrors
from ingest.serve.app import Service
from ingest.serve.background import JobRunner
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from ingest.serve.jobs import ACTIONS
from tests.e2e import chromium
from tests.e2e.test_report_browser import _CONTRASTS, SIZES, VIEWS
from tests.e2e.test_serve_session import Hands
from tests.lakes import ROOT, statement
from tests.serve.conftest import depot, listening  # noqa: F401 - a fixture
from tests.serve.test_pages import PAGES
from tests.written_lake import WrittenLake, reject

pytestmark = [
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium on PATH: apt-get install chromium"),
]
STAND_IN = (sys.executable, str(ROOT / "tests" / "serve" / "stand_in.py"))
TOO_WIDE = """[...document.querySelectorAll('.tiles div')].filter(tile => [...tile.querySelectorAll('b, span')].some(
  text => text.getBoundingClientRect().right > tile.getBoundingClientRect().right)).map(tile => tile.innerText)"""


@pytest.fixture
def lake(tmp_path: Path) -> WrittenLake:
    """A lake of the test's own."""
    return depot(tmp_path)


@pytest.fixture
def address(lake: WrittenLake, listening: Callable[[Service], int]) -> Iterator[str]:  # noqa: F811 - the fixture
    """Where its service is, with a stand-in for the process with Spark."""
    fleet = Fleet([lake.file])
    work = JobRunner(fleet, worker=STAND_IN)
    work.start()
    port = listening(Service(fleet, AccessGuard(Address("127.0.0.1", 0), "ada"), work))
    yield f"http://127.0.0.1:{port}"
    work.close()


def test_every_page_fits_and_keeps_to_itself(browser: chromium.Browser, address: str) -> None:
    """A page wider than the screen hides the state of tables; a refused style or script is seen here alone."""
    for page in PAGES.values():
        for size, dark in VIEWS:
            width, height = SIZES[size]
            browser.open(f"{address}{page}", width=width, height=height, dark=dark)
            assert width >= browser.run("document.documentElement.scrollWidth"), (page, size)
            assert [] == browser.run(TOO_WIDE), (page, size)
            assert [] == browser.said(), (page, browser.events)
            assert [] == [one for one in browser.asked_for() if not one.startswith(address)]
            if size == "desk":
                assert [] == browser.run(_CONTRASTS), (page, dark)


def until(browser: chromium.Browser, expression: str) -> None:
    """Wait until something holds in the page."""
    end = time.monotonic() + 30
    while not browser.run(f"Boolean(document.body) && ({expression})"):
        assert time.monotonic() < end, browser.run("document.body.innerText")
        time.sleep(0.2)


def test_a_page_follows_what_happens(browser: chromium.Browser, address: str, lake: WrittenLake) -> None:
    """An operator on call does not reload pages; and what is being typed must stay."""
    browser.open(f"{address}/rejects?pipeline=depot", width=1280, height=900, dark=False)
    browser.run("document.body.dataset.same = 'yes'")
    until(browser, "document.getElementById('live').textContent === 'live'")
    reject(lake.lake)
    until(browser, "document.body.innerText.includes('3 rejects wait')")
    assert "yes" == browser.run("document.body.dataset.same")
    browser.open(f"{address}/ddl?pipeline=depot", width=1280, height=900, dark=False)
    browser.run("document.querySelector('input[name=reason]').value = 'because'")
    time.sleep(7)
    assert "because" == browser.run("document.querySelector('input[name=reason]').value")


def test_the_focus_stays_while_a_page_follows(
    browser: chromium.Browser, address: str, lake: WrittenLake
) -> None:
    """A user who has tabbed to a button presses Enter a moment later; by then the page must not have moved on."""
    hands = Hands(browser)
    browser.open(f"{address}/ddl?pipeline=depot", width=1280, height=900, dark=False)
    hands.go_to("Reason: Approve")
    hands.go_to("Approve")
    focused = "[document.activeElement.innerText, document.activeElement.form.elements.statement.value]"
    before = browser.run(focused)
    for n, name in enumerate(("lees", "dregs")):
        lake.take([statement("bins", 9100 + n, f"ALTER TABLE bins ADD COLUMN {name} INT")], fold=False)
        until(browser, f"document.body.innerText.includes('ADD COLUMN {name}')")
        assert before == browser.run(focused)
    assert "Approve" == before[0]


def test_everything_works_without_scripts(browser: chromium.Browser, address: str) -> None:
    """Some browsers of some companies run none; what is read and decided must not need any."""
    browser._ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        hands = Hands(browser)
        for page in PAGES.values():
            browser.open(f"{address}{page}", width=390, height=844, dark=False)
            assert browser.run("document.querySelector('main').innerText.length") > 20
        browser.open(f"{address}/ddl?pipeline=depot", width=1280, height=900, dark=False)
        hands.go_to("Reason: Approve")
        hands.write("by hand")
        hands.follow("Approve", "ingest ddl approve")
        assert "live" != browser.run("document.getElementById('live')?.textContent")
    finally:
        # else the page asks for its scripts as soon as it may, and its service has ended
        browser.open("about:blank", width=1280, height=900, dark=False)
        browser._ask("Emulation.setScriptExecutionDisabled", value=False)


def test_a_button_does_what_it_says(browser: chromium.Browser, address: str, lake: WrittenLake) -> None:
    """Strict pages refuse their own forms as easily as those of others."""
    browser.open(f"{address}/ddl?pipeline=depot", width=390, height=844, dark=True)
    browser.run("document.querySelector('form.act button').click()")
    until(browser, "document.body.innerText.includes('said <b>so</b>')")
    assert "ingest ddl approve" in browser.run("document.querySelector('.lead').innerText")
    assert [] == browser.said()


DONE = {  # the action, its page, whether a reason is written, its button, and the command
    "run": ("/pipeline?pipeline=depot", False, "Run now", "ingest run"),
    "retry": ("/pipeline?pipeline=depot", False, "Retry held and failed mirrors", "ingest retry"),
    "pause": ("/table?pipeline=depot&table=depot.bins", True, "Pause", "ingest pause"),
    "resume": ("/table?pipeline=depot&table=depot.shelf1", True, "Resume", "ingest resume"),
    "replay": ("/rejects?pipeline=depot", False, "Replay all messages", "ingest replay"),
    "dismiss-reject": ("/reject?pipeline=depot&number=1", True, "Dismiss", "ingest rejects dismiss"),
    "approve": ("/ddl?pipeline=depot", True, "Approve", "ingest ddl approve"),
    "dismiss": ("/ddl?pipeline=depot", True, "Dismiss", "ingest ddl dismiss"),
}


def test_every_action_is_done_by_the_keyboard_alone(
    browser: chromium.Browser, address: str, lake: WrittenLake
) -> None:
    """A user without a mouse may be on call, too: each stop before a button can be seen, and Enter presses it."""
    paused = next(one for one in mirrors.known(lake.reader).values() if one.name == "depot.shelf1")
    lake.decide("pause", paused.path, {})
    hands = Hands(browser)
    assert DONE.keys() == ACTIONS.keys()
    for page, reasoned, button, typed in DONE.values():
        browser.open(f"{address}{page}", width=1280, height=900, dark=True)
        if reasoned:
            hands.go_to(f"Reason: {button}")
            hands.write("by hand")
        hands.follow(button, typed)
        hands.reads("said <b>so</b>")
        hands.follow("Back to depot", "Books: from messages to mirrors")
    assert [] == browser.said()


def test_what_is_read_is_reached_by_the_keyboard_alone(browser: chromium.Browser, address: str) -> None:
    """From all pipelines to a table, a row, a query and back, as each of them is asked for in the night."""
    hands = Hands(browser)
    browser.open(address, width=1280, height=900, dark=False)
    hands.follow("depot", "What needs attention")
    hands.follow("depot.bins", "Explain a row")
    hands.press("Tab")
    while not browser.run("document.activeElement.name === 'key'"):
        hands.press("Tab")
    hands.write("2")
    hands.follow("Explain", "insert carries the row")
    hands.follow("SQL", "read-only")
    while not browser.run("document.activeElement.name === 'q'"):
        hands.press("Tab")
    hands.write("SELECT count(*) AS n FROM depot.bins")
    hands.follow("Run", "1 row")
    hands.follow("All pipelines", "1 of 1 pipeline needs attention now.")


def test_the_keyboard_reaches_everything(browser: chromium.Browser, address: str) -> None:
    """A user without a mouse may be on call, too."""
    browser.open(f"{address}/pipeline?pipeline=depot", width=1280, height=900, dark=False)
    for _ in range(2):
        key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
        for kind in ("keyDown", "keyUp"):
            browser._ask("Input.dispatchKeyEvent", type=kind, **key)
    assert "A" == browser.run("document.activeElement.tagName")
    orders = browser.run(
        "[...document.querySelectorAll('a, button, input, [tabindex]')].filter(e => e.tabIndex > 0).length"
    )
    assert 0 == orders
    assert "#main" == browser.run("document.querySelector('a').getAttribute('href')")
