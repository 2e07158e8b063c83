"""Bounds of connections: clients that send or read slowly, and too many from one address, get no more of the service.

uvicorn bounds neither the time in which a request's header comes, nor that in which an answer is read.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEADER = 10.0  # seconds for the whole header of a request, from the connection or the answer before it
STALLED = 30.0  # seconds in which a client reads nothing of its answer
ASKING = 1.0  # seconds in which a new connection has its place: of many that come at once, none has asked yet
OF_ONE = 50  # connections from one address that have not asked anything since then
OF_ALL = 1000  # connections that have not asked anything yet


class BoundedConnection(H11Protocol):
    """A connection that is closed if its client does not ask, or does not read, in time.

    Of those that have asked nothing yet, too many make the oldest close: a client that asks at once is not affected.
    """

    # Those that have not asked yet, the oldest first: since when.
    _silent: ClassVar[dict[BoundedConnection, float]] = {}
    _header: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once the header of a request is whole."""
        super().data_received(data)
        if self._is_asked():
            self._end_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self._is_asked():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all waiting."""
        super().connection_lost(exc)
        self._end_wait()
        self._end_stall()

    def pause_writing(self) -> None:
        """Start to wait for a client that does not read."""
        super().pause_writing()
        self._end_stall()
        self._reading = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._end_stall()

    def _is_asked(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._end_wait()
        if self.transport.is_closing():
            return
        self._header = self.loop.call_later(HEADER, self.transport.close)
        now = self.loop.time()
        self._silent[self] = now
        same = [other for other in self._silent if other.address() == self.address()]
        for other in same[: max(len(same) - OF_ONE, 0)]:
            if now - self._silent[other] >= ASKING:
                other.give_up()
        if len(self._silent) > OF_ALL:
            next(iter(self._silent)).give_up()

    def address(self) -> str:
        """The client's, without its port."""
        return self.client[0] if self.client is not None else ""

    def give_up(self) -> None:
        """Close a connection whose place another one needs."""
        self._end_wait()
        self.transport.abort()

    def _end_wait(self) -> None:
        self._silent.pop(self, None)
        if self._header is not None:
            self._header.cancel()
            self._header = None

    def _end_stall(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
