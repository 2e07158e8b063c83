"""Sample messages that have not landed yet: the first ones of each source; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ingest.bronze.kafka_settings import BrokerError
from ingest.bronze.offsets import OffsetSpan
from ingest.bronze.reading import Range, headers, read
from ingest.bronze.receipts import Receipt
from ingest.errors import first_line
from ingest.ledgers import sealing
from ingest.store.envelope import NOT_SEALED
from ingest.tables import duck
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.bronze.offsets import Look
    from ingest.tables.lake import Lake

MOST_FILES = 50  # a sample opens no more of a source's files
_INPUT = ("topic", "partition", "offset", "key", "value", "headers")

Row = tuple[Any, ...]
"""Topic, partition, offset, key, value and headers of one message, as bronze would land them."""


@dataclass(slots=True)
class Sample:
    """The first messages of one source; ``faults`` says what could not be read."""

    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def of_files(work: Sequence[Range], count: int) -> Sample:
    """Messages from the beginning of each file's unread part, about equally many of each, ``count`` at most."""
    firsts = list({span.file: span for span in reversed(work)}.values())[::-1][:MOST_FILES]
    sample = Sample()
    for number, first in enumerate(firsts):
        share = max(1, (count - len(sample.rows)) // (len(firsts) - number))
        if len(sample.rows) < count:
            _take(first, share, sample)
    return sample


def _take(work: Range, count: int, sample: Sample) -> None:
    reading = read(work)
    wanted = len(sample.rows) + count
    while len(sample.rows) < wanted:
        try:
            records = next(reading)
        except StopIteration as done:
            receipt: Receipt = done.value
            sample.faults.extend([receipt.fault] if receipt.fault else [])
            return
        for record in records[: wanted - len(sample.rows)]:
            sample.rows.append((work.file, work.rank, record[0], None, record[1], headers(record)))
    reading.close()


def of_topics(lake: Lake | None, look: Look, count: int) -> Sample:
    """The first unread messages of each partition; a failed read is a fault, not an error.

    Without Spark (``lake`` is None) they are read by librdkafka.
    """
    spans = [span for span in look.plan.spans if span.end > span.start]
    share = max(1, count // max(1, len(spans)))
    cut = tuple(OffsetSpan(span.place, span.start, min(span.end, span.start + share)) for span in spans)
    if not cut:
        return Sample()
    if lake is None:
        from ingest.bronze import native_broker

        try:
            return Sample(list(native_broker.first_messages(look.source, cut, count)))
        except BrokerError as error:
            return Sample(faults=[str(error)])
    from ingest.bronze import kafka

    frame = kafka.frame(lake, replace(look, plan=replace(look.plan, spans=cut)), 1)
    try:
        rows = frame.where("kind = 'message'").select(*_INPUT).limit(count).collect()
    except kafka.READ_ERRORS as error:
        return Sample(faults=[text for _, text in kafka.failed([look], error)] or [first_line(error)])
    return Sample([(*row[:-1], row[-1] and [header.asDict() for header in row[-1]]) for row in rows])


def landed(lake: Tables, source: str, batches: tuple[int, int], count: int) -> Iterator[tuple[int, Row]]:
    """Messages of landed batches with their batch, as stored in bronze."""
    rows = lake.ask(
        f"""SELECT batch, {", ".join(map(duck.name, _INPUT))} FROM {{bronze.message}}
        WHERE source = {duck.text(source)} AND batch BETWEEN {batches[0]} AND {batches[1]} LIMIT {count}"""
    )
    opener = sealing.opener(lake) if rows else NOT_SEALED
    for row in rows:
        place = (source, row["topic"], row["partition"], row["offset"])
        sealed = opener.seals(row["batch"])
        if sealed and opener.is_lost(row["value"]):
            continue
        sent = opener.open(row["batch"], place, row["value"])._asdict() if sealed else {}
        yield row["batch"], tuple((row | sent)[name] for name in _INPUT)
