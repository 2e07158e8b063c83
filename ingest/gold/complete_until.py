"""The source time up to which each mirror is complete: the number that jobs over the mirrors wait for.

A partition is read in its order, so its newest time says how far its source is; a mirror is as far as the slowest
partition of its topics. Three things hold it back: a mirror that is held, failed or paused, a message that
could not be decoded and may belong to any table, and messages without a time. A time that has not been yet, of a clock
that is ahead, says nothing.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ingest.change import TableId
from ingest.errors import command
from ingest.gold.plan import completed
from ingest.gold.plan.completed import Progress
from ingest.ledgers import mirrors, rejects
from ingest.ledgers.mirrors import Mirror
from ingest.tables import duck
from ingest.tables.tables import Row, Tables

MARKS, ELSEWHERE, CHANGES = "marks", "marks of another topic", "changes"
"""How sure it is, the surest first.

``marks``: heartbeats or transaction marks come in the slowest partition itself, so it advances even if nothing changes.
``marks of another topic``: the source's heartbeats have a topic of their own, and are later than the partition.
``changes``: only rows say how far a partition is; it does not advance while nothing changes.
"""


@dataclass(frozen=True, slots=True)
class Complete:
    """No change of the source before ``until`` is expected any more."""

    until: dt.datetime | None = None  # UTC, without a zone; None where nothing is known
    by: str = ""  # one of the three above
    reason: str = ""  # what holds it back
    blocked: bool = False  # it will not advance before the operator decides
    ended: bool = False  # the pipeline file gives the mirror no more rows


@dataclass(frozen=True, slots=True)
class _Reached:
    """The newest time of one partition of a topic, or of all files of a source."""

    place: str
    newest: dt.datetime | None
    mark: dt.datetime | None


def of_mirrors(
    lake: Tables, entries: Iterable[Mapping[str, Any]], lines: Iterable[Row], now: Progress | None = None
) -> dict[str, Complete]:
    """How far each mirror is.

    Args:
        lake: the lake.
        entries: the mirrors with their ``state``, as `ingest.inspect.status.tables` lists them.
        lines: book lines, see `reached`.
        now: how far gold is; by default what the last run recorded.
    """
    times, folded = _Times(lake, lines), now or completed.progress(lake)
    lagging = {lake.path(path) for path in folded.lagging}
    complete = {}
    for entry in entries:
        places = times.places.get(entry["table"])
        if places is None:
            continue  # a history table is as complete as its mirror
        is_ok = entry["state"] == "ok"
        has_all = is_ok and entry["path"] not in lagging
        batch = max(entry["batch"] or 0, folded.complete if has_all else 0)
        slowest = min((times.of_place(*place, batch) for place in sorted(places, key=str)), key=_age)
        ended = entry["state"] == mirrors.EXCLUDED
        held = replace(slowest, reason=f"it is {entry['state']}", blocked=True, ended=ended)
        complete[entry["table"]] = slowest if is_ok else held
    return complete


class _Times:
    """How far the topics and files of mirrors are; each question is answered once."""

    def __init__(self, lake: Tables, lines: Iterable[Row]) -> None:
        self._lake, self._lines, self._decoded = lake, list(lines), lake.decoded()
        self._rejected = {
            row["source"]: row["batch"] for row in rejects.counted(lake) if row["kind"] == "message"
        }
        self.places: dict[str, set[tuple[str, str | None]]] = defaultdict(set)  # by mirror: source and topic
        for row in self._lines:
            table = TableId.of(row)
            if any(table):
                for name in mirrors.names(lake.pipeline, table):
                    self.places[str(name)].add((row["source"], row["topic"]))
        self._with_rows = {place for places in self.places.values() for place in places}
        self.of_place = cache(self._of_place)
        self._until = cache(self._reached_by)

    def _of_place(self, source: str, topic: str | None, batch: int) -> Complete:
        """Of all partitions of a topic, up to a batch."""
        rejected, reason = self._rejected.get(source), ""
        if rejected is not None and rejected <= batch:
            batch = rejected - 1
            reason = (
                f"a message of batch {rejected} could not be decoded and may belong to any table of source {source}: "
                f"`{command('rejects', self._lake.pipeline.file)}`"
            )
        reached_by = self._until(batch)
        mark = self._newest_mark(source, reached_by)
        parts = (_complete(part, mark) for part in reached_by.get((source, topic), ()))
        slowest = min(parts, key=_age, default=None)
        if slowest is None:
            return Complete(reason=reason or f"nothing of source {source} has a time", blocked=bool(reason))
        return Complete(slowest.until, slowest.by, reason or slowest.reason, bool(reason))

    def _newest_mark(
        self, source: str, reached_by: Mapping[tuple[str, str | None], Sequence[_Reached]]
    ) -> dt.datetime | None:
        """The newest mark of a source's topics without rows, such as those of heartbeats."""
        topics = (place for place in reached_by if place[0] == source and place not in self._with_rows)
        marks = (part.mark for place in topics for part in reached_by[place] if part.mark)
        return max(marks, default=None)

    def _reached_by(self, batch: int) -> Mapping[tuple[str, str | None], list[_Reached]]:
        if batch >= self._decoded:
            return _partitions(self._lines)
        return _partitions(reached(self._lake, batch))


def still_fed(complete: dict[str, Complete]) -> dict[str, Complete]:
    """Without the mirrors that get no more rows, which no job can wait for; all of them if none gets any."""
    return {name: each for name, each in complete.items() if not each.ended} or complete


def of_all(complete: dict[str, Complete]) -> Complete:
    """How far all of them are that get rows."""
    return of_each(still_fed(complete))


def of_each(complete: dict[str, Complete]) -> Complete:
    """How far they are together: as far as the slowest, which the reason names."""
    slowest = min(complete.items(), key=lambda item: _age(item[1]), default=None)
    if slowest is None:
        return Complete(reason="there is no mirror yet")
    table, least = slowest
    return Complete(
        least.until,
        least.by,
        f"{table}: {least.reason}",
        any(other.blocked for other in complete.values()),
    )


def of_run(
    lake: Tables, mirrors_by_path: Mapping[str, Mirror], seen: Mapping[str, str], now: Progress
) -> dt.datetime | None:
    """How far all mirrors are at the end of a run, before it is recorded; None where that is not known.

    Args:
        lake: the lake.
        mirrors_by_path: the mirrors with a schema, by path.
        seen: the names of the mirrors that the run has looked at, by path.
        now: how far gold is.
    """
    names = {path: mirror.name for path, mirror in mirrors_by_path.items()} | dict(seen)
    if not now.lagging <= names.keys():  # held before it had a schema, and not looked at
        return None
    entries = [
        {
            "table": name, "path": lake.path(path), "state": "held" if path in now.lagging else "ok",
            "batch": completed.folded(lake, mirrors_by_path.get(path)) if path in now.lagging else None,
        }
        for path, name in names.items()
    ]  # fmt: skip
    return of_all(of_mirrors(lake, entries, reached(lake), now)).until


def reached(lake: Tables, batch: int | None = None) -> list[Row]:
    """What the books say of each source, topic, partition and table, up to a batch.

    The files of a source count as one partition: they are read in one order. ``newest`` may be ahead of now, ``passed`` is the
    newest time that is not.
    """
    now = dt.datetime.now(dt.UTC)
    lines = lake.ask(_reached(lake, batch, "max(event_high)"))
    if any(row["newest"] and row["newest"].replace(tzinfo=dt.UTC) > now for row in lines):
        micros = round(now.timestamp() * 1_000_000)
        lines = lake.ask(
            _reached(lake, batch, f"max(event_high) FILTER (WHERE epoch_us(event_high) <= {micros})")
        )
    return lines


def _reached(lake: Tables, batch: int | None, passed: str) -> str:
    """The query; ``passed`` is how it takes the newest time that has been."""
    files = (
        ", ".join(duck.text(source.name) for source in lake.pipeline.sources if source.kind == "files")
        or "NULL"
    )
    ended = "" if batch is None else f"WHERE batch <= {batch}"
    return f"""SELECT source, topic, "partition", "database", "schema", "table", max(event_high) AS newest,
        {passed} AS passed, CAST(coalesce(sum(rejected), 0) AS BIGINT) AS rejected
        FROM (SELECT source, CASE WHEN source IN ({files}) THEN NULL ELSE topic END AS topic,
        CASE WHEN source IN ({files}) THEN NULL ELSE "partition" END AS "partition",
        "database", "schema", "table", event_high, rejected FROM {{books}} {ended}) AS o
        GROUP BY source, topic, "partition", "database", "schema", "table" """


def _partitions(lines: Iterable[Row]) -> dict[tuple[str, str | None], list[_Reached]]:
    times: dict[tuple[str, str | None, int | None], dict[bool, dt.datetime]] = defaultdict(dict)
    for row in lines:
        if row["passed"] is not None:
            passed = times[row["source"], row["topic"], row["partition"]]
            is_mark = row["table"] is None
            passed[is_mark] = max(row["passed"], passed.get(is_mark, row["passed"]))
    partitions = defaultdict(list)
    for (source, topic, partition), passed in times.items():
        place = f"source {source}" if topic is None else f"partition {partition} of {topic}"
        partitions[source, topic].append(_Reached(place, max(passed.values()), passed.get(True)))
    return partitions


def _complete(partition: _Reached, elsewhere: dt.datetime | None) -> Complete:
    if partition.mark is not None:
        return Complete(partition.newest, MARKS, f"as far as {partition.place}")
    if elsewhere is not None and (partition.newest is None or elsewhere > partition.newest):
        return Complete(
            elsewhere, ELSEWHERE, f"as far as the marks of the source; {partition.place} has none"
        )
    return Complete(partition.newest, CHANGES, f"as far as the newest change of {partition.place}")


def _age(complete: Complete) -> dt.datetime:
    return complete.until or dt.datetime.min  # noqa: DTZ901 - the others have no zone either
