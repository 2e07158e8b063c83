"""Epochs as the operator decided them: where a source's sequence started again, and which tables were read again.

A start is a row of `decisions` (kind ``epoch``); so is the decision that a re-snapshot of a table in the newest epoch
has begun or is complete (kind ``resnapshot``). The last decision on a subject counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.change import TableId
from ingest.errors import IngestError
from ingest.ledgers import decisions, lanes
from ingest.ledgers.decisions import EPOCH, RESNAPSHOT, Decision
from ingest.ledgers.starts import MessagePlace, Start
from ingest.tables.duck import text
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake


@dataclass(frozen=True, slots=True)
class Resnapshot:
    """A table that its source sends again from the beginning of an epoch on."""

    source: str
    start: Start
    table: TableId
    complete: bool


@dataclass(frozen=True, slots=True)
class Epochs:
    """All epochs, in the order of their starts."""

    starts: dict[str, tuple[Start, ...]] = field(default_factory=dict)
    resnapshots: tuple[Resnapshot, ...] = ()

    def number(self, source: str, start: Start) -> int:
        """The epoch that begins there."""
        return self.starts[source].index(start) + 1

    def of(self, source: str, start: Start) -> list[Resnapshot]:
        """The re-snapshots of one epoch."""
        return [
            resnapshot
            for resnapshot in self.resnapshots
            if (resnapshot.source, resnapshot.start) == (source, start)
        ]


def read(lake: Tables) -> Epochs:
    """The epochs and re-snapshots of all sources."""
    valid: dict[tuple[str, Start], bool] = {}
    complete: dict[tuple[str, Start, TableId], bool] = {}
    for decision in decisions.read(lake).of(EPOCH, RESNAPSHOT):
        start = Start.from_json(decision.value["start"])
        if decision.kind == EPOCH:
            valid[decision.subject, start] = decision.value["stands"]
        else:
            complete[decision.subject, start, TableId(*decision.value["table"])] = decision.value["complete"]
    starts: dict[str, tuple[Start, ...]] = {}
    valid_starts = [entry for entry, is_valid in valid.items() if is_valid]
    for source, start in sorted(valid_starts, key=lambda entry: (entry[0], entry[1].first, entry[1].places)):
        starts[source] = (*starts.get(source, ()), start)
    kept = (entry for entry in complete.items() if entry[0][1] in starts.get(entry[0][0], ()))
    return Epochs(starts, tuple(Resnapshot(*place, complete) for place, complete in kept))


# --- deciding -------------------------------------------------------------------------------------


def record_start(lake: Lake, source: str, start: Start, reason: str, *, valid: bool = True) -> None:
    """Record that an epoch begins, or withdraw that decision."""
    value = {"start": start.to_json(), "stands": valid}
    decisions.append(lake, [Decision(EPOCH, source, value, start.first, reason)])


def record_resnapshot(
    lake: Lake, source: str, start: Start, table: TableId, reason: str, *, complete: bool
) -> None:
    """Record that a table is read again, or that this is complete."""
    value = {"start": start.to_json(), "table": list(table), "complete": complete}
    decisions.append(lake, [Decision(RESNAPSHOT, source, value, start.first, reason)])


# --- places ---------------------------------------------------------------------------------------


def with_batch(batch: int, last: int) -> Start:
    """The start with a whole batch.

    Raises:
        IngestError: it is later than the next one.
    """
    if not 1 <= batch <= last + 1:
        raise IngestError(f"Batch {batch} is not landed, nor the next one to come: give 1 to {last + 1}.")
    return Start(batch)


def at_places(lake: Tables, source: str, texts: Sequence[str]) -> Start:
    """The start at given messages, one for a partition; the other partitions of the source follow with the next batch.

    Of files, those that the same batch read after the named one belong to the new epoch, too.

    Raises:
        IngestError: a text is not a place, or bronze has no message there.
    """
    places = [_place(lake, source, place_text) for place_text in texts]
    if len({(place.topic, place.partition) for place in places}) < len(places):
        raise IngestError(f"Two places are in one partition: an epoch of {source} begins in each only once.")
    first = max(place.batch for place in places) + 1
    kind = lake.pipeline.by_source[source].kind
    if kind == "files":
        places += _later_files(lake, source, max(places, key=lambda place: (place.batch, place.partition)))
    return Start(first, tuple(sorted(places)))


def _place(lake: Tables, source: str, written: str) -> MessagePlace:
    topic, _, rest = written.rpartition("/")
    topic, _, partition = topic.rpartition("/")
    if not (topic and partition.isdecimal() and rest.isdecimal()):
        raise IngestError(
            f"{written!r} is not a place: write TOPIC/PARTITION/OFFSET, as `ingest explain` and `ingest rejects` "
            "print it; of a file its path, its number in the batch and the byte."
        )
    batches = lake.ask(
        f"SELECT min(batch) AS batch FROM {{bronze.message}} WHERE source = {text(source)} "
        f'AND topic = {text(topic)} AND "partition" = {int(partition)} AND "offset" = {int(rest)}'
    )[0]["batch"]
    if batches is None:
        raise IngestError(f"Bronze holds no message of {source} at {written}.")
    return MessagePlace(batches, topic, int(partition), int(rest))


def _later_files(lake: Tables, source: str, place: MessagePlace) -> list[MessagePlace]:
    rows = lake.ask(
        f'SELECT DISTINCT topic, "partition" FROM {{bronze.message}} WHERE source = {text(source)} '
        f'AND batch = {place.batch} AND "partition" > {place.partition}'
    )
    return [MessagePlace(place.batch, row["topic"], row["partition"], 0) for row in rows]


# --- tables ---------------------------------------------------------------------------------------


def tables(lake: Tables, source: str, since: int = 0) -> list[TableId]:
    """The tables that a source sent anything for in batch ``since`` or later: rows, statements, or the marks of a load without rows."""
    sent = (
        f"source = {text(source)} AND batch >= {since} AND (changes > 0 OR ddl > 0 OR {lanes.IS_LOAD_MARKED})"
    )
    return sorted((table for _, table in lanes.booked(lake, sent)), key=str)
