"""Detect a failover: hold a source's tables when its positions come from another server than before.

Two servers' positions have no common order: after a failover, new rows could look older than the mirrors' rows and be
lost silently. Only messages that name their server are checked (`Change.servers`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ingest.config import Pipeline
from ingest.errors import HeldError, command
from ingest.gold.plan.work import Books, Job, LaneSums
from ingest.ledgers.books import Line

ACCEPT = "accept"


def refuse_another(pipeline: Pipeline, books: Books, job: Job) -> None:
    """Hold a mirror whose new lines name another server than those before them in the same epoch.

    Raises:
        HeldError: they do.
    """
    watched = {source.name for source in pipeline.sources if source.server_change != ACCEPT}
    complaints = (
        _compared(pipeline, books, name[0], books.sums.get(name, LaneSums()).servers, lines)
        for name, lines in job.lines.items()
        if name[0] in watched and any(line.servers for line in lines)
    )
    if held := next(filter(None, complaints), None):
        raise held


def _compared(
    pipeline: Pipeline, books: Books, source: str, servers: set[str], lines: list[Line]
) -> HeldError | None:
    """Compare with the servers in the books so far, then with the first new line."""
    seen: dict[str, set[str]] = defaultdict(set)
    for server in servers:
        seen[_kind(server)].add(server)
    for line in sorted(lines, key=lambda line: (line.batch, line.topic or "", line.partition or 0)):
        for server in sorted(line.servers, key=line.servers.__getitem__):  # in order of arrival
            before = seen[_kind(server)]
            if before and server not in before:
                return _held(pipeline, books, source, before, server)
            before.add(server)
    return None


def _kind(server: str) -> str:
    """The epoch and ``server`` or ``log``."""
    return " ".join(server.split(" ", 2)[:2])


def _held(pipeline: Pipeline, books: Books, source: str, before: Iterable[str], now: str) -> HeldError:
    """The complaint of two servers, with the command that places what the new one sends after everything before."""
    old = " or ".join(sorted(_name(server) for server in before))
    places = [word for place in _places(books, source, now) for word in ("--from", place)]
    typed = command("epoch", pipeline.file, source, *places)
    return HeldError(
        f"the positions of {source} were counted by {old} and are now counted by {_name(now)}, which cannot be "
        f"compared: `{typed}` puts the new after the "
        f"old; `server_change: {ACCEPT}` in the source says that one log holds both.",
        typed,
    )


def _name(server: str) -> str:
    return server.partition(" ")[2]


def _places(books: Books, source: str, server: str) -> list[str]:
    """The first message of each partition in which a server is named."""
    first: dict[tuple[str, int], tuple[int, int]] = {}
    for line in books.lines:
        if line.source == source and server in line.servers:
            partition = (line.topic or "", line.partition or 0)
            place = (line.batch, line.servers[server])
            first[partition] = min(first.get(partition, place), place)
    return [f"{topic}/{partition}/{first[topic, partition][1]}" for topic, partition in sorted(first)]
