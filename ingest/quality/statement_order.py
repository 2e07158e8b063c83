"""TRUNCATE and DDL statements whose place among the rows no message shows.

A statement may have a second and no counter, or come through another partition than the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.config import Source
from ingest.errors import counted
from ingest.order import AFTER_ITS_ROW, is_weak, number_key, order_of
from ingest.quality.catalogue import Metric
from ingest.quality.ordered_lane import OrderedLane
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.snapshots import read_sql

Sequenced = tuple[int, ...]
Stream = tuple[str, int | None]
"""Topic and partition; a file, which has no partition."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A row or a table event of one second, as it arrived."""

    stream: Stream
    at: tuple[int, int]  # batch and offset
    sequence: Sequenced
    text: str = ""  # of an event: its statement


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery of a statement: its text, when the source ran it, its order key, and its batch and offset."""

    text: str
    time: object
    order: str
    at: tuple[int, int]


def unsure_statements(ordered: OrderedLane) -> Iterator[Metric]:
    """Statements whose rows before them are not known."""
    for count, sentence in (
        (unsure_in_second, _in_second),
        (cleared_again, _again),
        (late_by_clock, _by_clock),
        (apart, _apart),
    ):
        if n := count(ordered):
            yield ordered.metric("event_order", n, sentence(ordered, n))


def _in_second(ordered: OrderedLane, rows: int) -> str:
    return (
        f"{counted(rows, 'row')} of {ordered.lane.table} came with the second of a TRUNCATE or DDL statement that has no "
        "position, and the order of arrival does not say whether before or after it: "
        f"compare with the source, or load the table again ({ordered.epoch()}); "
        "one partition for all messages of a table prevents it"
    )


def _again(ordered: OrderedLane, rows: int) -> str:
    return (
        f"{counted(rows, 'row')} of {ordered.lane.table} came again together with a TRUNCATE or DDL statement that has no "
        "position, which counts as executed after that: compare with the source, or load the table again "
        f"({ordered.epoch()})"
    )


def _by_clock(ordered: OrderedLane, rows: int) -> str:
    return (
        f"{counted(rows, 'row')} of {ordered.lane.table} arrived after a TRUNCATE or DDL statement that no row preceded in its "
        "file or partition, ordered before it by its clock alone: if that clock is of another zone, write `timezone:` under "
        f"the options of source {ordered.source.name}, then run {decoded_again(ordered.lake)}; else compare with the source"
    )


def _apart(ordered: OrderedLane, statements: int) -> str:
    return (
        f"{counted(statements, 'TRUNCATE or DDL statement')} of {ordered.lane.table} came through another partition or topic "
        f"than its rows, and {ordered.source.format} has no positions that put them in order: compare with the source, and "
        "send all messages of a table to one partition"
    )


def unsure_in_second(ordered: OrderedLane) -> int:
    """The number of a lane's rows that may be on the wrong side of a table event in their second."""
    if not ordered.source.about.event_marks:
        return 0
    anchored = (
        row["order_key"] for row in ordered.statements if order_of(row["order_key"]).half == AFTER_ITS_ROW
    )
    prefixes = set(map(_second, anchored))
    low = ordered.lane.order_low
    news = {_second(row["order_key"]) for row in ordered.statements if row["batch"] > ordered.since}
    wanted = sorted(each for each in prefixes if each in news or (ordered.lane.changes and low < each + "~"))
    total = 0
    columns = ", ".join(map(duck.name, ("topic", "partition", "batch", "offset", "order_key")))
    for prefix in wanted:
        events = [
            _arrived(row, ordered.source) for row in ordered.statements if row["order_key"].startswith(prefix)
        ]
        text = duck.text(prefix)
        rows = ordered.lake.ask(
            f"SELECT {columns} FROM {{changes.change}} WHERE op <> 'truncate' AND NOT {read_sql()} "
            f"AND {ordered.where} AND order_key >= {text} AND starts_with(order_key, {text})"
        )
        total += unsure(events, [_arrived(row, ordered.source) for row in rows])
    return total


def late_by_clock(ordered: OrderedLane) -> int:
    """The number of rows that arrived after a statement which its clock alone places, and that clock places before it."""
    total = 0
    for row in ordered.statements:
        if not order_of(row["order_key"]).has_second_only:
            continue
        stream = f"topic = {duck.text(row['topic'])}"
        if ordered.source.kind == "kafka":
            stream += f" AND {duck.name('partition')} = {row['partition']}"
        [answer] = ordered.lake.ask(
            f"""SELECT count(*) AS n FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where} AND {stream}
            AND (batch > {row["batch"]} OR (batch = {row["batch"]} AND "offset" > {row["offset"]}))
            AND order_key < {duck.text(row["order_key"])}"""
        )
        total += int(answer["n"])
    return total


def cleared_again(ordered: OrderedLane) -> int:
    """The number of rows between two places of one statement that was delivered twice, and that came again after it."""
    total = 0
    for earlier, later in sent_again(
        Delivered(row["statement"] or "", row["event_time"], row["order_key"], (row["batch"], row["offset"]))
        for row in ordered.statements
    ):
        if _second(earlier.order) == _second(later.order):
            continue  # `unsure` counts them
        batch, offset = later.at
        [answer] = ordered.lake.ask(
            f"""SELECT count(*) AS n FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where} AND NOT {read_sql()}
            AND order_key > {duck.text(earlier.order)} AND order_key <= {duck.text(later.order)}
            AND (batch > {batch} OR (batch = {batch} AND "offset" > {offset}))"""
        )
        total += int(answer["n"])
    return total


def sent_again(statements: Iterable[Delivered]) -> list[tuple[Delivered, Delivered]]:
    """Deliveries of one statement, known by its text and time, that were placed after different rows: first and later."""
    firsts: dict[tuple[str, object], Delivered] = {}
    pairs: list[tuple[Delivered, Delivered]] = []
    for each in sorted(statements, key=lambda statement: statement.at):
        if order_of(each.order).half != AFTER_ITS_ROW:
            continue
        first = firsts.setdefault((each.text, each.time), each)
        if order_of(first.order).sequence < order_of(each.order).sequence:
            pairs.append((first, each))
    return pairs


def unsure(events: Sequence[Arrived], rows: Sequence[Arrived]) -> int:
    """The number of rows of one second that arrival and counter place on different sides of an event, or cannot place.

    Repeated rows and events count by their first arrival. If rows of one stream arrived in another order than their
    counters, arrival proves nothing.
    """
    firsts: dict[tuple[str, Sequenced], Arrived] = {}
    for event in sorted(events, key=lambda event: event.at):
        firsts.setdefault((event.text, event.sequence), event)
    first_of: dict[tuple[Stream, Sequenced], tuple[int, int]] = {}
    for row in rows:
        place = (row.stream, row.sequence)
        first_of[place] = min(row.at, first_of.get(place, row.at))
    doubtful: set[Sequenced] = set()
    for event in firsts.values():
        for (stream, sequence), arrived in first_of.items():
            if stream != event.stream or (arrived < event.at) != (sequence <= event.sequence):
                doubtful.add(sequence)
    for earlier in firsts.values():
        for later in firsts.values():
            if earlier.text == later.text and earlier.sequence < later.sequence:
                doubtful |= {
                    row.sequence
                    for row in rows
                    if earlier.sequence < row.sequence <= later.sequence and row.at > later.at
                }
    return len(doubtful or (_disordered(first_of) if firsts else ()))


def _disordered(first_of: Mapping[tuple[Stream, Sequenced], tuple[int, int]]) -> set[Sequenced]:
    """The rows that arrived after one of their stream with a higher counter."""
    overtaken: set[Sequenced] = set()
    highest: dict[Stream, Sequenced] = {}
    for stream, sequence in sorted(first_of, key=lambda place: first_of[place]):
        if sequence < highest.setdefault(stream, sequence):
            overtaken.add(sequence)
        highest[stream] = max(highest[stream], sequence)
    return overtaken


def _second(order_key: str) -> str:
    """The common prefix of the order keys of one second."""
    order = order_of(order_key)
    return number_key(order.epoch) + number_key(order.phase) + "".join(map(number_key, order.sequence[:1]))


def _arrived(row: Mapping[str, Any], source: Source) -> Arrived:
    stream = row["topic"], row["partition"] if source.kind == "kafka" else None
    sequence = order_of(row["order_key"]).sequence
    return Arrived(stream, (row["batch"], row["offset"]), sequence, row.get("statement") or "")


def apart(ordered: OrderedLane) -> int:
    """The number of a lane's new events without positions that arrived through another partition than its rows."""
    if ordered.source.kind != "kafka":
        return 0
    new = [row for row in ordered.statements if row["batch"] > ordered.since and is_weak(row["order_key"])]
    truncates = ordered.lane.truncates if ordered.is_weak else 0
    if not new and not truncates:
        return 0
    ways = ordered.lake.ask(
        f"SELECT DISTINCT topic, {duck.name('partition')} FROM {{books}} WHERE changes > 0 AND {ordered.where} AND NOT {read_sql()}"
    )
    rows = {(row["topic"], row["partition"]) for row in ways}
    elsewhere = sum(bool(rows - {(row["topic"], row["partition"])}) for row in new)
    return max(elsewhere, truncates if len(rows) > 1 else 0)
