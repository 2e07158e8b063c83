"""Positions in Kafka topics: what the receipts record, what the cluster has, and what to read next.

Nothing here connects to a cluster. The receipts hold a position with the ids of its cluster and topic, so that a topic
deleted and created again never looks like progress. If the cluster no longer has a position, there is a gap: nothing of
that partition is read until the operator accepts the loss.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ingest.bronze.kafka_settings import BrokerError
from ingest.config import Source
from ingest.config.scalars import nearest
from ingest.errors import command, counted
from ingest.ledgers import decisions
from ingest.ledgers.decisions import ACCEPT_GAP, Decision
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

_NEAR = 0.9  # of max_messages: a cut in time with this share is good enough
_SHOWN = 5  # topics that are there, where none fits


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class KafkaReceipt(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """What was read of one partition: offsets ``[start, end)``, and how many messages were there.

    Aborted transactions, their marks and compaction leave offsets without a message.  The plan's own receipt
    gives the whole range and counts nothing; each reading task adds one with the count of its share.
    """

    topic: str
    partition: int
    start: int
    end: int
    count: int
    cluster: str
    topic_id: str

    @property
    def place(self) -> Place:
        """The partition."""
        return Place(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Position:
    """The offset to read next, valid for one incarnation of a topic; ``batch`` is the batch that reached it."""

    offset: int
    cluster: str
    topic_id: str
    batch: int = field(default=0, compare=False)

    def after(self, receipt: KafkaReceipt, batch: int) -> Position:
        """The position after one more receipt; receipts may come in any order."""
        if batch < self.batch or (batch == self.batch and receipt.end <= self.offset):
            return self
        return reached(receipt, batch)


def reached(receipt: KafkaReceipt, batch: int) -> Position:
    """The position after a partition's first known receipt."""
    return Position(receipt.end, receipt.cluster, receipt.topic_id, batch)


Offsets = Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The topics of a source as their cluster describes them.

    ``ask_since`` gives for every place the offset of the first message with this timestamp (milliseconds) or a later
    one, and a negative number if there is none. ``seen`` are all topics that the source's user may see, for hints.
    """

    id: str
    topics: Mapping[str, str]  # name -> id
    begins: Offsets
    ends: Offsets
    ask_since: Callable[[int], Offsets]
    seen: tuple[str, ...] = ()

    def since(self, moment: int) -> Offsets:
        """The same, and the end if there is none."""
        answered = self.ask_since(moment)
        return {place: offset if offset >= 0 else self.ends[place] for place, offset in answered.items()}


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Offsets ``[start, end)`` of one partition, to be read."""

    place: Place
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A position that the cluster no longer has; ``topic_id`` is the topic's now, empty if it is gone."""

    place: Place
    was: Position
    topic_id: str
    loss: str

    @property
    def text(self) -> str:
        """The alarm."""
        return f"{self.place} {self.loss}: none of it was read; to go on with what is there, accept that it is lost"

    @property
    def value(self) -> dict[str, Any]:
        """What the decision holds by which the operator accepts its loss: that of this gap, and of no later one."""
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "offset": self.was.offset,
            "cluster": self.was.cluster,
            "topic_id": self.was.topic_id,
            "topic_id_now": self.topic_id,
        }


@dataclass(frozen=True, slots=True)
class KafkaPlan:
    """What would be read from one source now, its gaps, and what else the operator should know.

    ``spans`` contains partitions seen for the first time even if they are empty, so that the receipts record their
    position. ``due`` says that the spans are worth a batch: there is something to read, or a position that would differ
    the next time (``latest``, an accepted gap).
    """

    spans: tuple[OffsetSpan, ...] = ()
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    due: bool = False
    missing: Mapping[str, str] = field(
        default_factory=dict
    )  # topics, or the pattern, that fit none: what to say

    @property
    def reads(self) -> list[OffsetSpan]:
        """The spans that may contain messages."""
        return [span for span in self.spans if span.end > span.start]


def plan(
    source: Source,
    positions: Mapping[Place, Position],
    cluster: Cluster,
    accepted: Callable[[Gap], bool] = lambda _gap: False,
) -> KafkaPlan:
    """Plan what to read from one Kafka source.

    On the source's first run a partition without a position begins where ``start`` says; on later runs at its
    beginning: newer messages were never skipped on purpose.
    """
    starts = _starts(source, positions, cluster)
    spans: list[OffsetSpan] = []
    gaps: list[Gap] = []
    resumed: set[Place] = set()
    for place in sorted({*cluster.begins, *(place for place in positions if _selected(source, place.topic))}):
        position = positions.get(place) or Position(starts[place], cluster.id, cluster.topics[place.topic])
        gap = _gap(place, position, cluster)
        if gap is None:
            spans.append(OffsetSpan(place, position.offset, cluster.ends[place]))
        elif not accepted(gap):
            gaps.append(gap)
        elif place in cluster.begins:
            spans.append(OffsetSpan(place, cluster.begins[place], cluster.ends[place]))
            resumed.add(place)
    if source.max_messages is not None:
        spans = limited(spans, source.max_messages, cluster.since)
    new = {place for place in cluster.begins if place not in positions} | resumed
    kept = tuple(span for span in spans if span.end > span.start or span.place in new)
    chosen = {place for place in new if starts[place] != cluster.begins[place]} | resumed
    due = any(span.end > span.start or span.place in chosen for span in kept)
    missing = dict(_missing(source, positions, cluster))
    went_on = [
        f"{place} goes on at {cluster.begins[place]}: the loss before was accepted."
        for place in sorted(resumed)
    ]
    return KafkaPlan(kept, tuple(gaps), (*missing.values(), *went_on), due, missing)


def _missing(
    source: Source, positions: Mapping[Place, Position], cluster: Cluster
) -> Iterator[tuple[str, str]]:
    """Topics of the pipeline file, and its pattern, that fit none of the cluster's and never have: what to say of each."""
    read = {place.topic for place in positions}
    for topic in source.topics:
        if topic not in cluster.topics and topic not in read:
            hint = nearest(topic, cluster.seen)
            yield topic, f"topic {topic} does not exist yet, or its user may not see it{hint or '.'}"
    if source.topic_pattern and not cluster.topics and not positions:
        seen = [topic for topic in sorted(cluster.seen) if not topic.startswith("__")]  # Kafka's own
        such = f", such as {', '.join(seen[:_SHOWN])}" if seen else ""
        user_sees = f"its user sees {counted(len(seen), 'topic')}{such}."
        yield source.topic_pattern, f"no topic matches {source.topic_pattern} yet: {user_sees}"


# --- starts -------------------------------------------------------------------------------------


def _starts(source: Source, positions: Mapping[Place, Position], cluster: Cluster) -> Offsets:
    """Where each partition without a position begins."""
    wanted = source.start
    if isinstance(wanted, Mapping):
        given = {
            Place(topic, int(n)): int(offset)
            for topic, by_partition in wanted.items()
            for n, offset in by_partition.items()
        }
        return {place: given.get(place, begin) for place, begin in cluster.begins.items()}
    if positions or wanted == "earliest":
        return cluster.begins
    if wanted == "latest":
        return cluster.ends
    return cluster.since(milliseconds(str(wanted)))


def milliseconds(instant: str) -> int:
    """Canonical ``timestamp`` text as whole milliseconds since 1970."""
    since = dt.datetime.fromisoformat(instant) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(milliseconds=1)


def _selected(source: Source, topic: str) -> bool:
    """True if the pipeline file still names the topic; a removed topic is not a loss."""
    if source.topics:
        return topic in source.topics
    return re.fullmatch(source.topic_pattern, topic) is not None


# --- gaps ---------------------------------------------------------------------------------------


def _gap(place: Place, position: Position, cluster: Cluster) -> Gap | None:
    loss = _loss(place, position, cluster)
    return Gap(place, position, cluster.topics.get(place.topic, ""), loss) if loss else None


def _loss(place: Place, position: Position, cluster: Cluster) -> str | None:
    """What has been lost after a position; None if everything is still there."""
    if place.topic not in cluster.topics:
        return f"is gone, its topic deleted after offset {position.offset}"
    if position.cluster != cluster.id:
        return f"was read from cluster {position.cluster}, but the brokers belong to {cluster.id} now"
    if position.topic_id != cluster.topics[place.topic] or place not in cluster.begins:
        return f"was deleted after offset {position.offset} and made again"
    begin, end = cluster.begins[place], cluster.ends[place]
    if position.offset < begin:
        return f"was trimmed by retention: offsets {position.offset} to {begin - 1} were not read"
    if position.offset > end:
        return f"ends at offset {end}, before the position {position.offset}"
    return None


# --- a batch of bounded size --------------------------------------------------------------------


def limited(spans: list[OffsetSpan], limit: int, since: Callable[[int], Offsets]) -> list[OffsetSpan]:
    """Cut the spans to ``limit`` offsets in all, at about one moment, so that no partition runs far ahead.

    The moment is found by bisection; the remainder is divided in proportion.
    """
    low = {span.place: span.start for span in spans}
    high = {span.place: span.end for span in spans}
    if _size(spans, high) <= limit:
        return spans
    early, late = 0, 1 << 42  # milliseconds: from 1970 to the year 2109
    while late - early > 1 and _size(spans, low) < limit * _NEAR:
        moment = (early + late) // 2
        then = since(moment)
        cut = {span.place: min(max(then[span.place], low[span.place]), high[span.place]) for span in spans}
        if _size(spans, cut) <= limit:
            early, low = moment, cut
        else:
            late, high = moment, cut
    ends = _shared(spans, low, high, limit)
    return [OffsetSpan(span.place, span.start, ends[span.place]) for span in spans]


def _size(spans: Iterable[OffsetSpan], ends: Offsets) -> int:
    return sum(ends[span.place] - span.start for span in spans)


def _shared(spans: list[OffsetSpan], low: Offsets, high: Offsets, limit: int) -> dict[Place, int]:
    """Ends between ``low`` and ``high`` that use up the limit, each partition in proportion to its room."""
    left = limit - _size(spans, low)
    room = sum(high[place] - low[place] for place in low)
    ends = {place: low[place] + left * (high[place] - low[place]) // room for place in low}
    left = limit - _size(spans, ends)
    for place in sorted(ends, key=lambda place: (ends[place] - high[place], place)):
        if left > 0 and ends[place] < high[place]:
            ends[place] += 1
            left -= 1
    return ends


# --- one look at a cluster ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """One source's plan, with the ids that its receipts carry."""

    source: Source
    plan: KafkaPlan
    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""  # why the cluster could not be queried

    def alarms(self, file: Path) -> Iterator[str]:
        """The sentences that make the run of a pipeline file fail."""
        if self.trouble:
            yield self.trouble
        for gap in self.plan.gaps:
            typed = command("accept-gap", file, self.source.name, gap.place)
            yield f"{gap.text}: `{typed}`."


def look(
    lake: Tables,
    source: Source,
    positions: Mapping[Place, Position],
    connected: Callable[[Source], AbstractContextManager[Cluster]],
) -> Look:
    """Query the cluster of one source and plan what to read; a cluster that is down affects only its source."""
    accepted: list[Mapping[str, Any]] | None = None

    def is_accepted(gap: Gap) -> bool:
        nonlocal accepted
        if accepted is None:  # read decisions only if there is a gap
            decided = decisions.read(lake).of(ACCEPT_GAP, subject=source.name)
            accepted = [decision.value for decision in decided]
        return any(gap.value.items() <= span_accepted.items() for span_accepted in accepted)

    try:
        with connected(source) as cluster:
            planned = plan(source, positions, cluster, is_accepted)
            return Look(source, planned, cluster.id, cluster.topics)
    except BrokerError as error:
        return Look(source, KafkaPlan(), trouble=str(error))


def accept(lake: Lake, source: Source, gaps: Iterable[Gap], batch: int) -> None:
    """Record that these gaps' losses are known; the next run continues with what is there."""
    decisions.append(
        lake,
        [Decision(ACCEPT_GAP, source.name, gap.value, batch, gap.loss) for gap in gaps],
    )
