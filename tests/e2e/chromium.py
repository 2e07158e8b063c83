"""A headless Chromium, asked over a pipe in its own protocol: no driver, no port, no further package.

Chrome DevTools Protocol; ``--remote-debugging-pipe`` reads descriptor 3 and writes descriptor 4, JSON
messages that end with a zero byte.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0  # seconds for one answer, on a busy machine
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"
).split()

_NUMBERED = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Starts the browser with the pipe's ends under the two numbers that it wants."""


def found() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page; use as a context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        into, self._out = os.pipe()
        self._in, out = os.pipe()
        command = [str(found()), *_FLAGS, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _NUMBERED, str(into), str(out), *command],
            pass_fds=(into, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(into)
        os.close(out)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Page.setLifecycleEventsEnabled", enabled=True)
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self._session = ""
            self._ask("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, page: Path | str, *, width: int, height: int, dark: bool) -> None:
        """Show a file or an address at a size and in a colour scheme; events of the pages before are forgotten."""
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        loader = self._ask("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)["loaderId"]
        self._until_loaded(loader)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def picture(self, *, whole: bool = False) -> bytes:
        """What the page looks like, as PNG."""
        answer = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def asked_for(self) -> list[str]:
        """The addresses of everything that the page wanted to load."""
        return [
            one["params"]["request"]["url"]
            for one in self.events
            if one["method"] == "Network.requestWillBeSent"
        ]

    def said(self) -> list[str]:
        """What the page logged, opened or threw."""
        loud = (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
            "Log.entryAdded",
        )
        return [f"{one['method']} {one['params']}" for one in self.events if one["method"] in loud]

    # --- the pipe ---

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _until_loaded(self, loader: str) -> None:
        """Wait for this page's own load event: a refresh of the page before may still send one."""
        sought = {"loaderId": loader, "name": "load"}
        while not any(sought.items() <= one.get("params", {}).items() for one in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(self._in, 1 << 16) if ready else b""
            if not block:
                raise TimeoutError("the browser does not answer")
            self._buffer += block
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer
