"""The lift: bronze rows through a format's ``parse`` into rows of ``changes``, in Arrow batches.

Runs in Python workers and imports no Spark.  One iterator makes all kinds of rows: changes, DDL
events, rejects and, at its end, the book lines of what it saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from ingest import ddl, formats
from ingest.change import CONTROL_OPS, Change, Hints, Message, Op, TableId, number_key
from ingest.config import Pipeline
from ingest.errors import Undecodable
from ingest.lake.books import Line

DECODER = "1"  # raised whenever a parser's reading of some message changes
OVERSIZE = "ingest.oversize"  # header that bronze sets on a record too large to land
_BATCH_ROWS = 10_000

_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("batch", pa.int64()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("row", pa.int32()),
        ("op", pa.string()),
        ("database", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("order_key", pa.string()),
        ("sequence", pa.string()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("transaction", pa.string()),
        ("keys", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("types", pa.string()),
        ("partial", pa.bool_()),
        ("note", pa.string()),
        ("payload", pa.string()),
    ]
)
INPUT = ("batch", "source", "topic", "partition", "offset", "key", "value", "headers")

_json = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Lifting:
    """What the workers need to know; small, and free of secrets.

    ``epochs`` gives each source the epoch of its sequence; ``batch`` replaces the number of the
    bronze rows on a replay, whose rows keep the arrival of their own bytes.
    """

    pipeline: Pipeline
    epochs: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None


Row = tuple[Any, ...]


def lift(lifting: Lifting) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that ``mapInArrow`` runs: batches of bronze columns `INPUT` to `_SCHEMA`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decks = {
            source.name: Deck(lifting, rank, source.name)
            for rank, source in enumerate(lifting.pipeline.sources)
        }
        rows: list[Row] = []
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in INPUT]
            for number, source, topic, partition, offset, key, value, headers in zip(*columns, strict=True):
                decks[source].take(rows, (number, topic, partition, offset), key, value, headers)
                if len(rows) >= _BATCH_ROWS:
                    yield _arrow(rows)
                    rows = []
        for deck in decks.values():
            rows.extend(deck.book_rows())
        if rows:
            yield _arrow(rows)

    return run


def _arrow(rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array(column, one.type) for column, one in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


class Deck:
    """One source's parser with its hints, its books and the texts that repeat from row to row."""

    def __init__(self, lifting: Lifting, rank: int, name: str) -> None:
        source = lifting.pipeline.sources[rank]
        self.name = name
        self.parse = formats.load(source.format).parse
        self.hints: Hints = lifting.pipeline.hints(source)
        self.order_by = source.options.order_by
        self.epoch = number_key(lifting.epochs.get(name, 0))
        self.rank = number_key(rank)
        self.batch = lifting.batch
        self.excluded: dict[TableId, bool] = {}
        self.pipeline = lifting.pipeline
        self.lines: dict[tuple[object, ...], Line] = {}
        self.texts: dict[int, tuple[object, str]] = {}
        self.arrivals: dict[tuple[int, int | None], str] = {}

    # --- one message ---

    def take(
        self, rows: list[Row], place: tuple[int, str, int, int], key: Any, value: Any, headers: Any
    ) -> None:
        """Decode one message and append its rows; a message decodes whole or becomes one reject."""
        number, topic, partition, offset = place
        batch = number if self.batch is None else self.batch
        try:
            if headers:
                _refuse_oversize(headers)
            pairs = tuple((one["key"], one["value"]) for one in headers) if headers else ()
            changes = list(self.parse(Message(value, key, topic, pairs), self.hints))
            made = [self._row(change, batch, place) for change in changes]
        except Undecodable as error:
            self._reject(rows, batch, place, error.code, error.detail)
            return
        except Exception as error:  # a parser's fault must cost one message, never the run
            self._reject(rows, batch, place, "decoder-error", f"{type(error).__name__}: {str(error)[:200]}")
            return
        line = self._count(batch, topic, partition, changes)
        if line is None:
            return
        for change, row in zip(changes, made, strict=True):
            if row is not None:
                rows.append(row)
                self._note(line, change, row[11])

    def _row(self, change: Change, batch: int, place: tuple[int, str, int, int]) -> Row | None:
        op = change.op
        if op in CONTROL_OPS:
            return None
        number, topic, partition, offset = place
        database, schema, table = change.table
        is_ddl = op is Op.DDL
        return (
            "ddl" if is_ddl else "change",
            batch,
            self.name,
            topic,
            partition,
            offset,
            change.row,
            op.value,
            database,
            schema,
            table,
            self._order(change, number, partition, offset),
            change.position,
            change.event_time,
            change.transaction,
            self._text(change.keys) if change.keys else None,
            None if change.before is None else _json(change.before).decode(),
            None if change.after is None else _json(change.after).decode(),
            self._text(change.types) if change.types else None,
            change.partial,
            change.note,
            self._ddl(change) if is_ddl else None,
        )

    def _order(self, change: Change, number: int, partition: int, offset: int) -> str:
        arrival = self.arrivals.get((number, partition))
        if arrival is None:
            arrival = number_key(number) + self.rank + number_key(partition)
            self.arrivals[number, partition] = arrival
        sequence = change.sequence
        if self.order_by != "sequence":
            sequence = () if self.order_by == "arrival" else (change.event_time or 0,)
        return (
            f"{self.epoch}{number_key(change.phase)}{''.join(map(number_key, sequence))}!"
            f"{number_key(change.half)}{arrival}{number_key(offset)}!{number_key(change.row)}"
        )

    def _text(self, value: Any) -> str:
        """JSON of a value that parsers share between rows (types, keys): written once."""
        known = self.texts.get(id(value))
        if known is None or known[0] is not value:
            if len(self.texts) > 10_000:
                self.texts.clear()
            known = (value, _json(value).decode())
            self.texts[id(value)] = known
        return known[1]

    def _ddl(self, change: Change) -> str:
        payload = {"statement": change.ddl or "", "parsed": ddl.of_change(change)}
        return _clean(_json(payload).decode())

    def _reject(
        self, rows: list[Row], batch: int, place: tuple[int, str, int, int], code: str, detail: str
    ) -> None:
        _, topic, partition, offset = place
        payload = json.dumps({"reason": code, "detail": detail, "decoder": DECODER}, ensure_ascii=False)
        rows.append(
            ("reject", batch, self.name, topic, partition, offset, 0, *[None] * 14, _clean(payload))
        )
        line = self._line(batch, topic, partition, TableId(None, None, None))
        line.messages += 1
        line.rejected += 1

    # --- books ---

    def _line(self, batch: int, topic: str, partition: int, table: TableId) -> Line:
        place = (batch, topic, partition, table)
        line = self.lines.get(place)
        if line is None:
            line = self.lines[place] = Line(batch, self.name, topic, partition, *table)
        return line

    def _count(self, batch: int, topic: str, partition: int, changes: list[Change]) -> Line | None:
        """Count the message; None if its rows are not to be stored."""
        first = changes[0] if changes else None
        table = first.table if first is not None else TableId(None, None, None)
        line = self._line(batch, topic, partition, table)
        line.messages += 1
        if table.table is not None and self._is_excluded(table):
            line.routed_out += 1
            return None
        ops = {change.op for change in changes}
        if Op.DDL in ops:
            line.ddl += 1
        elif ops - CONTROL_OPS:
            line.change_messages += 1
        else:
            line.control += 1
        return line

    def _is_excluded(self, table: TableId) -> bool:
        known = self.excluded.get(table)
        if known is None:
            known = self.excluded[table] = self.pipeline.rule(table).exclude
        return known

    def _note(self, line: Line, change: Change, order: str) -> None:
        """What gold and the reports want to know of a row without reading it again."""
        if line.order_low is None or order < line.order_low:
            line.order_low = order
        if line.order_high is None or order > line.order_high:
            line.order_high = order
        moment = change.event_time
        if moment is not None:
            if line.event_low is None or moment < line.event_low:
                line.event_low = moment
            if line.event_high is None or moment > line.event_high:
                line.event_high = moment
        if change.note is not None:
            line.noted += 1
        if change.op is not Op.DDL:
            _tally(line, change)

    def book_rows(self) -> Iterable[Row]:
        """The book lines of everything taken so far, as rows."""
        for line in self.lines.values():
            yield ("book", line.batch, self.name, *[None] * 18, _clean(line.to_json()))


_TALLY = {
    Op.READ: "reads",
    Op.INSERT: "inserts",
    Op.UPDATE: "updates",
    Op.DELETE: "deletes",
    Op.TRUNCATE: "truncates",
}


def _tally(line: Line, change: Change) -> None:
    line.changes += 1
    name = _TALLY[change.op]
    setattr(line, name, getattr(line, name) + 1)
    if change.partial:
        line.partials += 1
    before, after = change.before, change.after
    keys = change.keys
    if keys and (not line.keys or line.keys[-1] != keys):
        listed = list(keys)
        if listed not in line.keys:
            line.keys.append(listed)
    if before is not None and after is not None and _moves(before, after, keys):
        line.key_changes += 1
        line.inherits += change.partial
    image = after if after is not None else before
    if image is not None and not image.keys() <= line.columns.keys():
        for column in image:
            line.columns.setdefault(column, "unknown")
    if change.types and line.columns != change.types:
        for column, logical in change.types.items():
            if logical != "unknown" and (image is None or column in image or column in line.columns):
                line.columns[column] = logical


def _moves(before: Mapping[str, Any], after: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    """True if the row may change its key; without known keys any update may."""
    if not keys:
        return True
    return any(key in before and before[key] != after.get(key, before[key]) for key in keys)


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
