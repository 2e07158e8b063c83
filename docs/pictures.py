"""Write the pictures of the pages, docs/*.png, from the demo's lakes: ``make demo && python -m docs.pictures`` (needs Chromium).

Those of a night on call, docs/session-*.png, are taken by the test of it: ``INGEST_PICTURES=docs python -m pytest
tests/e2e/test_serve_session.py``.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingest.serve import server
from ingest.serve.app import Service
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from tests.e2e.chromium import Browser

ROOT = Path(__file__).parent.parent
DESK, PHONE = (1200, 720), (390, 760)
SHOP = "pipeline=dts-canal"
REPORT = ROOT / "demo" / "reports" / "oms-default.html"
PICTURES = {  # the page, its size, and whether it is dark
    "serve": ("/", DESK, False),
    "serve-dark": ("/", DESK, True),
    "serve-pipeline": (f"/pipeline?{SHOP}", DESK, False),
    "serve-pipeline-dark": (f"/pipeline?{SHOP}", DESK, True),
    "serve-table": (f"/table?{SHOP}&table=shop.orders", DESK, False),
    "serve-table-dark": (f"/table?{SHOP}&table=shop.orders", DESK, True),
    "serve-row": (f"/row?{SHOP}&table=shop.orders&key=5000", DESK, True),
    "serve-phone": (f"/table?{SHOP}&table=shop.orders", PHONE, True),
}


def short(folder: str) -> str:
    """A script that shows paths as they are within a folder."""
    return f"""{{
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll({json.dumps(folder)}, "");
}}"""


@contextmanager
def served() -> Iterator[str]:
    """The address of a service over the demo's pipelines, which only looks."""
    service = Service(
        Fleet(sorted((ROOT / "demo").glob("*.yaml"))), AccessGuard(Address("127.0.0.1", 0), "ada")
    )
    listening = server._bound(service.guard.address)
    running = server._Server(server.config(service))
    thread = threading.Thread(target=running.run, args=([listening],))
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join()


def main() -> None:
    """Take each picture."""
    with served() as address, tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        for name, (page, (width, height), dark) in PICTURES.items():
            browser.open(f"{address}{page}", width=width, height=height, dark=dark)
            browser.run(short(f"{ROOT}/"))
            (ROOT / "docs" / f"{name}.png").write_bytes(browser.picture())
        browser.open(REPORT.as_uri(), width=1280, height=1100, dark=False)
        browser.run(short(f"{ROOT}/"))
        (ROOT / "docs" / "report.png").write_bytes(browser.picture())


if __name__ == "__main__":
    main()
