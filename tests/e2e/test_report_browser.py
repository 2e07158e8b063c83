"""The report in a real browser: every width and both schemes, nothing loaded, nothing run."""

from __future__ import annotations

import pytest

from ingest.quality.report import page, render
from tests.e2e import chromium
from tests.quality.conftest import facts
from tests.quality.test_report import EVIL, evil_facts

pytestmark = [
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium on PATH: apt-get install chromium"),
]
SIZES = {"phone": (390, 844), "desk": (1280, 900)}
VIEWS = [(name, dark) for name in SIZES for dark in (False, True)]
_CONTRASTS = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] > 0.99) return found;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  const low = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const e = node.parentElement, box = e.getBoundingClientRect();
    if (!node.data.trim() || !box.width || e.closest('svg, style')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.set(e.tagName + '.' + e.className + ' ' + ratio.toFixed(1), node.data.trim().slice(0, 30));
  }
  return [...low].map(pair => pair.join(': '));
})()
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The report of an ordinary pipeline, and of one whose every text is hostile."""
    folder = tmp_path_factory.mktemp("reports")
    texts = {"plain": render(page(facts(14))), "evil": render(page(evil_facts(facts)))}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize("page", ["plain", "evil"])
@pytest.mark.parametrize(("size", "dark"), VIEWS)
def test_the_page_fits_and_keeps_to_itself(browser, pages, page, size, dark):
    """A page wider than the screen hides the state of tables; one that loads anything gives its reader away."""
    width, height = SIZES[size]
    file = pages / f"{page}.html"
    browser.open(file, width=width, height=height, dark=dark)
    (pages / f"{page}-{size}-{'dark' if dark else 'light'}.png").write_bytes(browser.picture())
    assert [file.as_uri()] == browser.asked_for()
    assert [] == browser.said()
    assert width >= browser.run("document.documentElement.scrollWidth")
    assert dark is browser.run("matchMedia('(prefers-color-scheme: dark)').matches")


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_on_their_ground(browser, pages, dark):
    """Many readers cannot read grey on grey."""
    browser.open(pages / "plain.html", width=1280, height=900, dark=dark)
    assert [] == browser.run(_CONTRASTS)


def test_both_schemes_differ(browser, pages):
    """Otherwise a dark screen would show a white page, or the other way round."""
    grounds = []
    for dark in (False, True):
        browser.open(pages / "plain.html", width=1280, height=900, dark=dark)
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_a_script_in_a_name_stays_text(browser, pages):
    """It would run in the browser of each reader of the report, and could read the whole page."""
    browser.open(pages / "evil.html", width=1280, height=900, dark=False)
    assert 0 == browser.run("document.scripts.length")
    assert 5 < browser.run(f"document.body.innerText.split({EVIL!r}).length")


def test_tables_wider_than_a_phone_scroll_by_themselves(browser, pages):
    """What is cut off at the edge cannot be reached on a phone."""
    browser.open(pages / "plain.html", width=390, height=844, dark=False)
    cut = browser.run(
        """[...document.querySelectorAll('table')].filter(table => {
            const box = table.getBoundingClientRect();
            if (!box.width || box.right <= innerWidth + 1) return false;
            for (let e = table.parentElement; e; e = e.parentElement)
                if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return false;
            return true;
        }).length"""
    )
    assert 0 == cut
