"""What becomes of askers who are many, or slow."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable

import pytest

from ingest.serve import app as application
from ingest.serve import connections
from ingest.serve.app import Service
from tests.serve.conftest import Client
from tests.serve.test_pages import PAGES
from tests.timing import PATIENCE


@pytest.fixture(autouse=True)
def no_limit_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service hangs up on nobody for the time that he takes: a busy machine takes it, too."""
    for name in ("HEADER", "STALLED", "ASKING"):
        monkeypatch.setattr(connections, name, 2 * PATIENCE)
    monkeypatch.setattr(application, "PATIENCE", 2 * PATIENCE)


def test_a_hundred_at_once_are_all_answered(client: Client, listening: Callable[[Service], int]) -> None:
    """An incident is when everyone opens the page."""
    port = listening(client.service)
    codes: list[int] = []

    def ask(n: int) -> None:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        asking.request("GET", list(PAGES.values())[n % 3] if n % 10 else "/sql?pipeline=depot&q=SELECT+1")
        answer = asking.getresponse()
        answer.read()
        codes.append(answer.status)
        asking.close()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(100)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert 100 == len(codes)
    assert {200} >= set(codes) - {400, 503}  # SQL sends away whom it has no place for
    assert 90 <= codes.count(200)


def test_who_came_while_the_service_was_busy_is_answered(
    client: Client, listening: Callable[..., int]
) -> None:
    """Of many that are accepted in one moment nobody has been read yet: none of them is a silent client."""
    waiting = []

    def ask(port: int) -> None:
        for _ in range(3 * connections.OF_ONE):
            waiting.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            waiting[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    listening(client.service, before=ask)
    assert {b"HTTP/1.1 200 OK"} == {asker.recv(15) for asker in waiting}
    for asker in waiting:
        asker.close()


def test_a_slow_reader_or_writer_holds_no_other_up(
    client: Client, listening: Callable[[Service], int]
) -> None:
    """One sleeping laptop must not stop the pages of all others."""
    port = listening(client.service)
    sleepers = []
    for text in (
        b"GET /pipeline?pipeline=depot HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nto",
        b"GE",
    ):
        for _ in range(10):
            sleeper = socket.create_connection(("127.0.0.1", port))
            sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            sleeper.sendall(text)
            sleepers.append(sleeper)
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for page in ("/healthz", PAGES["table"]):
        asking.request("GET", page)
        answer = asking.getresponse()
        answer.read()
        assert 200 == answer.status
    for sleeper in sleepers:
        sleeper.close()


def test_a_request_that_comes_byte_by_byte_is_answered(
    client: Client, listening: Callable[[Service], int]
) -> None:
    """A bad line is not a bad client."""
    with socket.create_connection(("127.0.0.1", listening(client.service)), timeout=PATIENCE) as slow:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            slow.send(bytes([byte]))
            time.sleep(0.002)
        assert b"HTTP/1.1 200 OK" in slow.recv(1000)


def test_a_request_that_never_ends_is_sent_away(
    client: Client, listening: Callable[[Service], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is for others."""
    monkeypatch.setattr(application, "PATIENCE", 0.3)
    port = listening(client.service)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as endless:
        endless.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken=")
        answer = endless.recv(10_000)
    assert b"HTTP/1.1 408" in answer
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    asking.request("GET", "/healthz")
    assert 200 == asking.getresponse().status
    asking.close()
