"""The lift: bronze rows through a format's ``parse`` into rows of ``changes``, in Arrow batches.

Runs in Python workers and imports no Spark.  It makes all kinds of rows: changes, DDL events, rejects
and, at its end, the book lines of what it saw.  A batch is decoded message by message, written column
by column (`ingest.silver.sheet`) and booked line by line (`ingest.silver.tally`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ingest import ddl, formats
from ingest.change import NO_TABLE, Change, Hints, Message, TableId, number_key
from ingest.config import Pipeline
from ingest.errors import Undecodable
from ingest.lake.books import Line
from ingest.silver import sheet, tally

DECODER = "1"  # raised whenever a parser's reading of some message changes
OVERSIZE = "ingest.oversize"  # header that bronze sets on a record too large to land
INPUT = ("batch", "source", "topic", "partition", "offset", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Lifting:
    """What the workers need to know; small, and free of secrets.

    ``epochs`` gives each source the epoch of its sequence; ``batch`` replaces the number of the
    bronze rows on a replay, whose rows keep the arrival of their own bytes.  ``schemas`` gives each source with a
    registry its schemas by id.
    """

    pipeline: Pipeline
    epochs: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None
    schemas: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


Batches = Iterator[pa.RecordBatch]


class Taken(NamedTuple):
    """One decoded message: its row in the Arrow batch, and its changes."""

    at: int
    changes: Sequence[Change]


class Refused(NamedTuple):
    """One message that could not be decoded, and why."""

    at: int
    code: str
    detail: str


class Place(NamedTuple):
    """What one book line counts: a table's messages in one partition of one batch."""

    batch: int
    topic: str
    partition: int
    table: TableId


class Span(NamedTuple):
    """The messages of one place, and where their rows stand among all rows."""

    place: Place
    messages: list[Taken]
    start: int
    end: int


class Written(NamedTuple):
    """All rows of one Arrow batch, as changes and as Arrow, with their order keys and their lines."""

    spans: list[Span]
    rows: list[Change]
    orders: list[str]
    page: pa.RecordBatch


def lift(lifting: Lifting) -> Callable[[Batches], Batches]:
    """The function that ``mapInArrow`` runs: batches of bronze columns `INPUT` to rows of ``changes``."""

    def run(batches: Batches) -> Batches:
        decks = {
            source.name: Deck(lifting, rank, source.name)
            for rank, source in enumerate(lifting.pipeline.sources)
        }
        for batch in batches:
            names = batch.column("source").unique().to_pylist()
            for name in names:
                mine = batch if len(names) == 1 else batch.filter(pc.equal(batch.column("source"), name))
                yield from decks[name].lift(mine)
        for deck in decks.values():
            if deck.lines:
                yield deck.books()

    return run


class Deck:
    """One source's parser with its hints and its books."""

    def __init__(self, lifting: Lifting, rank: int, name: str) -> None:
        source = lifting.pipeline.sources[rank]
        self.name = name
        self.parse = formats.load(source.format).parse
        self.hints: Hints = lifting.pipeline.hints(source, lifting.schemas.get(name))
        self.order_by = source.options.order_by
        self.epoch = number_key(lifting.epochs.get(name, 0))
        self.rank = number_key(rank)
        self.batch = lifting.batch
        self.excluded: dict[TableId, bool] = {}
        self.pipeline = lifting.pipeline
        self.lines: dict[Place, Line] = {}

    def lift(self, bronze: pa.RecordBatch) -> Batches:
        """The rows of one batch of this source's messages; each decodes whole or becomes one reject."""
        if self.batch is not None:
            batches = pa.repeat(pa.scalar(self.batch, pa.int64()), bronze.num_rows)
        else:
            batches = bronze.column("batch")
        taken, refused = self._decoded(bronze)
        try:
            written = self._written(bronze, batches, taken)
        except Exception:
            taken, refused = self._weeded(bronze, batches, taken, refused)
            written = self._written(bronze, batches, taken)
        self._book(written)
        self._book_refused(bronze, batches, refused)
        if written.rows:
            yield written.page
        if refused:
            yield sheet.rejects(
                self.name,
                bronze,
                batches,
                [each.at for each in refused],
                [_refusal(each) for each in refused],
            )

    # --- decoding ---

    def _decoded(self, bronze: pa.RecordBatch) -> tuple[list[Taken], list[Refused]]:
        taken: list[Taken] = []
        refused: list[Refused] = []
        parse, hints = self.parse, self.hints
        columns = [sheet.listed(bronze.column(name)) for name in ("value", "key", "topic", "headers")]
        for at, (value, key, topic, headers) in enumerate(zip(*columns, strict=True)):
            try:
                pairs = _pairs(headers) if headers else ()
                found = parse(Message(value, key, topic, pairs), hints)
                taken.append(Taken(at, found if type(found) is list else list(found)))
            except Undecodable as error:
                refused.append(Refused(at, error.code, error.detail))
            except Exception as error:
                refused.append(_stumbled(at, error))
        return taken, refused

    def _weeded(
        self, bronze: pa.RecordBatch, batches: pa.Array, taken: list[Taken], refused: list[Refused]
    ) -> tuple[list[Taken], list[Refused]]:
        """The messages whose changes can be written, and all others."""
        kept: list[Taken] = []
        for each in taken:
            try:
                self._written(bronze, batches, [each])
                kept.append(each)
            except Exception as error:
                refused.append(_stumbled(each.at, error))
        return kept, refused

    # --- writing ---

    def _written(self, bronze: pa.RecordBatch, batches: pa.Array, taken: list[Taken]) -> Written:
        spans: list[Span] = []
        rows: list[Change] = []
        at: list[int] = []
        for place, messages in self._grouped(bronze, batches, taken).items():
            start = len(rows)
            if not self._is_excluded(place.table):
                kept = [each for each in messages if not tally.is_control(each.changes)]
                rows += [change for each in kept for change in each.changes]
                at += [each.at for each in kept for _ in each.changes]
            spans.append(Span(place, messages, start, len(rows)))
        orders = sheet.order_keys(rows, at, self._arrivals(bronze), self.epoch, self.order_by)
        page = sheet.changes(self.name, bronze, batches, at, rows, orders, _statement)
        return Written(spans, rows, orders, page)

    def _grouped(
        self, bronze: pa.RecordBatch, batches: pa.Array, taken: list[Taken]
    ) -> dict[Place, list[Taken]]:
        """Messages by their book line; a message is booked under its first change's table."""
        columns = [batches, bronze.column("topic"), bronze.column("partition")]
        places = list(zip(*map(sheet.listed, columns), strict=True))
        groups: dict[tuple[tuple[int, str, int], TableId], list[Taken]] = {}
        for each in taken:
            table = each.changes[0].table if each.changes else NO_TABLE
            groups.setdefault((places[each.at], table), []).append(each)
        return {Place(*place, table): messages for (place, table), messages in groups.items()}

    def _arrivals(self, bronze: pa.RecordBatch) -> list[str]:
        """The arrival of each message, as it stands in its order keys."""
        columns = [sheet.listed(bronze.column(name)) for name in ("batch", "partition", "offset")]
        small, rank = sheet.small_key, self.rank
        return [
            f"{small(number)}{rank}{small(partition)}{number_key(offset)}"
            for number, partition, offset in zip(*columns, strict=True)
        ]

    # --- books ---

    def _book(self, written: Written) -> None:
        for place, messages, start, end in written.spans:
            line = self._line(place)
            if self._is_excluded(place.table):
                line.messages += len(messages)
                line.routed_out += len(messages)
                continue
            tally.count_messages(line, [each.changes for each in messages])
            if end > start:
                tally.count_rows(line, written.rows[start:end], written.orders[start:end])

    def _book_refused(self, bronze: pa.RecordBatch, batches: pa.Array, refused: list[Refused]) -> None:
        for each in refused:
            number, topic, partition = (
                column[each.at].as_py() for column in (batches, bronze["topic"], bronze["partition"])
            )
            line = self._line(Place(number, topic, partition, NO_TABLE))
            line.messages += 1
            line.rejected += 1

    def _line(self, place: Place) -> Line:
        line = self.lines.get(place)
        if line is None:
            line = Line(place.batch, self.name, place.topic, place.partition, *place.table)
            self.lines[place] = line
        return line

    def _is_excluded(self, table: TableId) -> bool:
        known = self.excluded.get(table)
        if known is None:
            known = table.table is not None and self.pipeline.rule(table).exclude
            self.excluded[table] = known
        return known

    def books(self) -> pa.RecordBatch:
        """The book lines of everything taken so far, as rows."""
        lines = self.lines.values()
        return sheet.books(
            self.name, [line.batch for line in lines], [_clean(line.to_json()) for line in lines]
        )


def _pairs(headers: list[Mapping[str, Any]]) -> tuple[tuple[str, bytes | None], ...]:
    _refuse_oversize(headers)
    return tuple((one["key"], one["value"]) for one in headers)


def _stumbled(at: int, error: Exception) -> Refused:
    return Refused(at, "decoder-error", f"{type(error).__name__}: {str(error)[:200]}")


def _refusal(refused: Refused) -> str:
    told = {"reason": refused.code, "detail": refused.detail, "decoder": DECODER}
    return _clean(json.dumps(told, ensure_ascii=False))


def _statement(change: Change) -> str:
    payload = {"statement": change.ddl or "", "parsed": ddl.of_change(change)}
    return _clean(msgspec.json.encode(payload).decode())


def _refuse_oversize(headers: list[Mapping[str, Any]]) -> None:
    for header in headers:
        if header["key"] == OVERSIZE:
            raise Undecodable(
                "record-too-large",
                f"the record has {bytes(header['value']).decode()} bytes, more than max_record_bytes",
            )


def _clean(text: str) -> str:
    """Lone surrogates cannot be written: show them as what they are."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
