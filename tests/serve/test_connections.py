"""Clients that ask slowly, never, or read nothing: the others do not wait for them."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import psutil
import pytest

from ingest.serve import connections
from ingest.serve.app import Service
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from tests.timing import PATIENCE, until
from tests.written_lake import WrittenLake

SLOW = 2000


@pytest.fixture
def port(lake: WrittenLake, listening: Callable[[Service], int]) -> int:
    """A service on a port."""
    return listening(Service(Fleet([lake.file]), AccessGuard(Address("127.0.0.1", 8765), "ada")))


def is_answered(port: int, page: str) -> bool:
    """True; an error if the answer is not whole, or waits for a client that is slow for ever."""
    asking = http.client.HTTPConnection("localhost", port, timeout=PATIENCE)
    asking.request("GET", page)
    answer = asking.getresponse()
    assert (200, True) == (answer.status, bool(answer.read()))
    asking.close()
    return True


def is_open(client: socket.socket) -> bool:
    """True unless the service has closed a connection."""
    client.setblocking(False)
    try:
        return bool(client.recv(10_000))
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextmanager
def slow_clients(port: int, count: int, text: bytes) -> Iterator[list[socket.socket]]:
    """Clients that send a part of a request, and then nothing."""
    clients = []
    try:
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            client.sendall(text)
            clients.append(client)
        yield clients
    finally:
        for client in clients:
            client.close()


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "text", [b"", b"GET / HTTP/1.1\r\nHost: localh", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_many_slow_clients_delay_nobody(port: int, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """With a connection for each, a few lines of a script take every descriptor of the service."""
    monkeypatch.setattr(connections, "HEADER", 2 * PATIENCE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SLOW + 500:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SLOW + 500), hard))
    try:
        assert is_answered(port, "/")
        with slow_clients(port, SLOW, text) as clients:
            until(lambda: is_answered(port, "/healthz") and sum(map(is_open, clients)) <= connections.OF_ONE)
            assert all(is_answered(port, page) for page in ("/healthz", "/", "/pipeline?pipeline=depot"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTTP/1.1\r\nHost: localh", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"],
)
def test_a_header_that_does_not_end_ends_its_connection(
    port: int, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """It would hold a descriptor for as long as the service runs; also after a first request that was answered."""
    monkeypatch.setattr(connections, "HEADER", 0.3)
    with slow_clients(port, 1, begun) as [client]:
        client.settimeout(PATIENCE)
        while client.recv(10_000):
            pass


def test_who_reads_nothing_is_hung_up_on(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers would be kept in memory until it reads them."""
    monkeypatch.setattr(connections, "STALLED", 0.3)
    monkeypatch.setattr(connections, "HEADER", 2 * PATIENCE)
    query = urlencode({"pipeline": "depot", "q": "SELECT repeat('x', 100000) FROM range(70)"})
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", port))
        ours = client.getsockname()[1]

        def is_kept() -> bool:
            return any(
                (port, ours) == (one.laddr.port, one.raddr.port)
                for one in psutil.Process().net_connections("tcp")
                if one.raddr
            )

        until(is_kept)
        client.sendall(f"GET /api/sql?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: not is_kept())


def test_who_asks_in_time_keeps_the_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser would open a connection for each of a page's files."""

    def is_kept(limit: float) -> bool:
        monkeypatch.setattr(connections, "HEADER", limit)
        asking = http.client.HTTPConnection("localhost", port, timeout=PATIENCE)
        asking.connect()
        connection = asking.sock
        try:
            for _ in range(4):
                asking.request("GET", "/healthz")
                assert b"ok\n" == asking.getresponse().read()
                time.sleep(limit / 2)
            return asking.sock is connection
        except ConnectionError:
            return False
        finally:
            asking.close()

    assert any(is_kept(limit) for limit in (1.0, 5.0, 25.0)), (
        "on a busy machine a pause may be longer than a limit"
    )
