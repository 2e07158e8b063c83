"""The process that serves: it listens, answers, and ends when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn

from ingest.errors import SetupError
from ingest.inspect.query_process import NURSERY
from ingest.serve.app import Service, application, compile_templates
from ingest.serve.connections import BoundedConnection
from ingest.serve.fleet import Fleet
from ingest.serve.guard import Address
from ingest.tables import duck

GRACE = 3  # seconds that answers under way are given
LAST = 1  # seconds more: for the sentence that says why there is none, and for slow readers
PREPARE = 1.0  # seconds between two looks at whether the pages have to be made again


class _Server(uvicorn.Server):
    """Leaves signals to `run`, which ends more than connections, and says to users that the service ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the answers under way, but not longer than `GRACE` and `LAST`."""
        loop = asyncio.get_running_loop()
        loop.call_later(GRACE, self._cut)
        loop.call_later(GRACE + LAST, self._hang_up)
        await super().shutdown(sockets)

    def _cut(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()

    def _hang_up(self) -> None:
        for connection in self.server_state.connections:
            connection.transport.abort()


def run(service: Service, say: Callable[[str, str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Ends the process if an answer is still being made then: Python would wait for it, or DuckDB abort the process.

    Args:
        service: what is served.
        say: gets ``listening`` with the address, and ``waiting`` at the end.

    Raises:
        SetupError: the address cannot be had.
    """
    listening = _bound(service.guard.address)
    duck.one_thread()
    server = _Server(config(service))

    def end(number: int, _frame: object) -> None:
        if server.should_exit and number == signal.SIGINT:  # a second Ctrl-C
            server.force_exit = True
            if service.work:
                service.work.kill()
        server.should_exit = True

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    host, port = listening.getsockname()[:2]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    say("listening", f"http://{place}")
    if service.work:
        service.work.start()
    over = threading.Event()
    preparing = threading.Thread(target=_prepare, args=(service.fleet, over), daemon=True)
    preparing.start()
    server.run([listening])
    over.set()
    NURSERY.close()
    if service.work:
        service.work.close(lambda: say("waiting", "for the commit under way"))
    preparing.join(LAST)
    if threading.active_count() > 1:  # they only read
        sys.stdout.flush()
        os._exit(0)


def _prepare(fleet: Fleet, over: threading.Event) -> None:
    """Make answers before they are asked for, for as long as the service runs."""
    compile_templates()
    NURSERY.start()
    while not over.is_set():
        fleet.prepare(over.is_set)
        over.wait(PREPARE)


def config(service: Service) -> uvicorn.Config:
    """How it is served."""
    return uvicorn.Config(
        application(service), http=BoundedConnection, log_level="warning", access_log=False, server_header=False, lifespan="off",
        timeout_graceful_shutdown=2 * (GRACE + LAST), timeout_keep_alive=10, backlog=1024, proxy_headers=False,
    )  # fmt: skip


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        why = (
            "another process listens there"
            if error.errno == errno.EADDRINUSE
            else error.strerror or str(error)
        )
        raise SetupError(
            f"{address.host}:{address.port} cannot be listened at ({why}): name another with --listen."
        ) from None
    return listening
