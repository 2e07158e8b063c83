"""A store on loopback that passes requests on to another one, and does to some of them what networks and stores do.

It runs in a process of its own, for some clients keep all threads of theirs waiting.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.e2e.services import Service
from tests.lakes import ROOT

REFUSED = b"<Error><Code>AccessDenied</Code><AWSAccessKeyId>AKIA-not-shown</AWSAccessKeyId></Error>"
LOST = "lost"  # it is done, but its answer is lost
BUSY = "busy"  # 503
DENIED = "denied"  # 403
EXPIRED = "expired"  # 400, as stores answer to temporary credentials whose time is over
SLOW = "slow"  # a second late
CARELESS = "careless"  # its condition is ignored
RIVAL = "rival"  # another writer is first, and the answer is lost
_ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    BUSY: (503, {}, REFUSED),
    DENIED: (403, {}, REFUSED),
    EXPIRED: (400, {}, REFUSED.replace(b"AccessDenied", b"ExpiredToken")),
}
_CONTROL = "/-/"


class Fault(NamedTuple):
    """What happens to requests of a method whose path contains a text: always, or so many times."""

    what: str
    method: str
    part: str = ""
    times: int = 1 << 30
    rival: str = ""  # what the other writer writes


class Faulty(Service):
    """The store at another address."""

    def __init__(self, home: Path, url: str) -> None:
        super().__init__(home)
        self._target = url

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        command = [
            sys.executable,
            "-m",
            "tests.e2e.faulty_store",
            str(self.port),
            urllib.parse.urlsplit(self._target).netloc,
        ]
        self.launch(command, self.requests, env={**os.environ, "PYTHONPATH": str(ROOT)})
        return self

    def does(self, *faults: Fault) -> None:
        """Spoil these requests from now on, and no others."""
        self._ask(json.dumps(faults).encode())

    def requests(self) -> list[tuple[str, str]]:
        """The methods and paths of the requests since the last question."""
        return [(method, path) for method, path in self._ask(None)]

    def _ask(self, data: bytes | None) -> Any:
        with urllib.request.urlopen(self.url + _CONTROL, data, timeout=5) as answer:
            return json.load(answer)


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    faults: list[Fault] = []  # noqa: RUF012 - one server in this process
    seen: list[tuple[str, str]] = []  # noqa: RUF012
    target = ""
    lock = threading.Lock()
    new_files = threading.Lock()

    def fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for at, one in enumerate(self.faults):
                if one.method == method and one.part in path and one.times:
                    self.faults[at] = one._replace(times=one.times - 1)
                    return one
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def answer(self) -> None:
        path, body = urllib.parse.unquote(self.path), _body(self)
        if path == _CONTROL:
            self._control(body)
            return
        self.server.seen.append((self.command, path))
        fault = self.server.fault(self.command, path)
        what = fault.what if fault else ""
        if what in _ANSWERS:
            self._send(*_ANSWERS[what])
            return
        if what == SLOW:
            time.sleep(1)
        if fault and what == RIVAL:
            self._forward(fault.rival.encode(), {"Content-Length": str(len(fault.rival.encode()))})
        kept = {name: value for name, value in self.headers.items() if name.lower() not in (*_HOPS, "expect")}
        if what == CARELESS:
            kept = {name: value for name, value in kept.items() if name.lower() != "if-none-match"}
        # a real store looks for the file and writes it in one step, moto's server in two
        in_one_step = (
            self.server.new_files if "if-none-match" in map(str.lower, kept) else contextlib.nullcontext()
        )
        with in_one_step:
            status, headers, data = self._forward(body, kept)
        if what in (LOST, RIVAL):
            self.close_connection = True
            return
        length = next((value for name, value in headers if name.lower() == "content-length"), None)
        answer = {name: value for name, value in headers if name.lower() not in _HOPS}
        self._send(status, answer, data, length if self.command == "HEAD" else None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the server's names

    def _control(self, body: bytes) -> None:
        if body:
            self.server.faults[:] = [Fault(*one) for one in json.loads(body)]
        found, self.server.seen[:] = list(self.server.seen), []
        self._send(200, {}, json.dumps(found).encode())

    def _forward(self, body: bytes, headers: dict[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
        target = http.client.HTTPConnection(self.server.target, timeout=60)
        try:
            target.request(self.command, self.path, body, headers)
            found = target.getresponse()
            return found.status, found.getheaders(), found.read()
        finally:
            target.close()

    def _send(self, status: int, headers: dict[str, str], data: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


_HOPS = ("transfer-encoding", "connection", "content-length", "keep-alive")


def _body(one: BaseHTTPRequestHandler) -> bytes:
    if one.headers.get("Transfer-Encoding", "") != "chunked":
        return one.rfile.read(int(one.headers.get("Content-Length") or 0))
    parts = []
    while size := int(one.rfile.readline().split(b";")[0], 16):
        parts.append(one.rfile.read(size))
        one.rfile.readline()
    one.rfile.readline()
    return b"".join(parts)


if __name__ == "__main__":
    _Proxy.target = sys.argv[2]
    _Proxy(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
