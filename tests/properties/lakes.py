"""Random histories through a real lake: written as silver writes them, folded by gold, read back.

Many histories share a table, each under its own number in the key, so that a few batches carry them
all.  Only decoding is left out: a decoder with a parser that hands over changes made beforehand writes the
rows and the book lines.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from ingest import formats
from ingest.change import Change, Message, Op, TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.gold.plan.work import open_books
from ingest.gold.stage import apply
from ingest.ledgers import mirrors
from ingest.ledgers.books import Line, merged
from ingest.silver.decode import _book_rows, _ddl_rows
from ingest.silver.lift import Lifting, SourceDecoder
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from ingest.tables.schemas import BOOKS, CHANGES, DDL
from tests.properties.checks import Wrong, folded, shown
from tests.properties.database import Key, Row
from tests.properties.delivery import Batches, deliver, in_order, placed
from tests.properties.histories import COLUMNS, History, Sent, history
from tests.properties.kinds import ARRIVAL, TRANSACTION, Kind

SOURCE = "till"
FULL = Kind("full", ("string",))
PARTIAL = Kind("partial", ("decimal(10,2)",), partials=True)
MOVING = Kind("moving", ("int64", "string"), moves=True)
MIXED = Kind("mixed", ("decimal(10,2)", "string"), partials=True, moves=True)
CLEARED = Kind("cleared", ("string",), partials=True, moves=True, epochs=False, truncate_at=(4, 9))
WEAK = Kind("weak", ("int64",), partials=True, moves=True, order=ARRIVAL)
SHARED = Kind("shared", ("string",), partials=True, moves=True, order=TRANSACTION)
TRUNCATED = Kind("truncated", ("int64",), partials=True, moves=True, truncates=True)
INHERITING = Kind("inheriting", ("int64", "string"), partials=True, moves=True, inherits=True)
LAWLESS = Kind("lawless", ("string",), partials=True, moves=True, lawless=True)
ORDERED = (PARTIAL, MIXED)
ANY = (FULL, MOVING, MIXED, CLEARED, WEAK, SHARED)
Typed = dict[Key, tuple[object, ...]]


@dataclass(slots=True)
class Feed:
    """One table's histories, and its messages in batches."""

    table: TableId
    keys: tuple[str, ...]
    histories: list[History]
    batches: Batches

    @property
    def rows(self) -> Typed:
        """What the mirror must hold."""
        return {key: _typed(row) for one in self.histories for key, row in one.rows.items()}


def _typed(row: Row) -> tuple[object, ...]:
    n, s, d = (row[column] for column in COLUMNS)
    return (None if n is None else int(n), s, None if d is None else Decimal(d))


def together(kind: Kind, count: int, batches: int, *, ordered: bool) -> Feed:
    """Many histories of one kind in one table; ``ordered`` keeps the whole table's order."""
    table = TableId("shop", None, kind.name + ("_ordered" if ordered else ""))
    made = [history(kind, number, table=table, shared=True) for number in range(count)]
    for one in made[1:]:  # the truncates are the same for all, and need not be said by each
        if kind.truncate_at:
            one.sent = [sent for sent in one.sent if sent.changes[0].op is not Op.TRUNCATE]
    if ordered:
        return Feed(table, made[0].keys, made, in_order([sent for one in made for sent in one.sent], batches))
    cut: Batches = [[] for _ in range(batches)]
    for one in made:
        delivered = deliver(one, batches)
        if kind.lawless:  # no database could have done this: the definition is the judge
            one.rows = folded(one, placed(delivered))
        for batch, sent in zip(cut, delivered, strict=True):
            batch.extend(sent)
    return Feed(table, made[0].keys, made, cut)


def alone(kind: Kind, number: int, batches: int) -> Feed:
    """One history in a table of its own: truncates are a table's, not a key's."""
    made = history(kind, number, table=TableId("shop", None, f"{kind.name}_{number}"))
    return Feed(made.table, made.keys, [made], deliver(made, batches))


def feeds(count: int, batches: int) -> list[Feed]:
    """Every kind: ``count`` histories that share tables, and one in 150 more in tables of their own."""
    share = -(-count // (len(ORDERED) + len(ANY)))
    return [
        *[together(kind, share, batches, ordered=True) for kind in ORDERED],
        *[together(kind, share, batches, ordered=False) for kind in ANY],
        *[alone(TRUNCATED, number, batches) for number in range(min(20, count // 150))],
    ]


WAYS = ("merge", "files")
"""How the outcomes of batches are applied, in turn: a mirror changes ways between any two."""


def pipeline_of(folder: Path) -> Pipeline:
    """A pipeline with one source, its lake in a folder."""
    source = Source(SOURCE, "files", formats.names()[0], path=str(folder / "none"))
    file = folder / "none.yaml"
    return Pipeline("histories", file, str(folder), (source,), (TableRule(),), engine="auto")


def lake_of(spark: SparkSession, folder: Path) -> Lake:
    """An empty lake with one source."""
    return Lake(spark, pipeline_of(folder))


# --- silver ---


def page(batch: int, places: Sequence[int]) -> pa.RecordBatch:
    """Messages in bronze whose values are their offsets; their changes are passed in separately."""
    count = len(places)
    columns = {
        "batch": [batch] * count,
        "source": [SOURCE] * count,
        "topic": ["messages"] * count,
        "partition": [0] * count,
        "offset": list(places),
        "key": [None] * count,
        "value": [str(place).encode() for place in places],
        "headers": [None] * count,
    }
    return pa.record_batch(columns)


def decoder(pipeline: Pipeline, epoch: int, messages: Sequence[Sent]) -> SourceDecoder:
    """Silver's decoder for one epoch, with a parser that looks a message up by its value."""

    def parse(message: Message, _hints: object) -> Iterable[Change]:
        assert message.value is not None
        return messages[int(message.value)].changes

    found = SourceDecoder(Lifting(pipeline, {SOURCE: epoch}), SOURCE)
    found.parse = parse
    return found


def write(lake: Lake, feeds: Sequence[Feed], batch: int) -> None:
    """Batch number ``batch``, from one, of every feed."""
    messages = [sent for feed in feeds if batch <= len(feed.batches) for sent in feed.batches[batch - 1]]
    pages: list[pa.RecordBatch] = []
    lines: list[Line] = []
    for epoch in sorted({sent.epoch for sent in messages}):
        own = decoder(lake.pipeline, epoch, messages)
        pages += own.lift(page(batch, [at for at, sent in enumerate(messages) if sent.epoch == epoch]))
        lines += own.lines.values()
    assert not any(line.rejected for line in lines)
    rows = pa.Table.from_batches(pages)
    lake.append(lake.spark.createDataFrame(rows).coalesce(2), CHANGES, "silver", batch)
    if any(line.ddl for line in lines):
        lake.append(_ddl_rows(rows.filter(pc.equal(rows["kind"], "ddl"))), DDL, "silver", batch)
    lake.append(_book_rows(merged(lines)), BOOKS, "silver", batch)


# --- gold ---


def batch_by_batch(
    lake: Lake,
    feeds: Sequence[Feed],
    batches: int,
    tell: Callable[[str], None] = lambda _text: None,
    ways: Sequence[str] = WAYS,
) -> int:
    """Write all batches and fold after most of them, in these ways in turn; how many merges that took."""
    merges, complete = 0, 0
    for batch in range(1, batches + 1):
        began = time.monotonic()
        write(lake, feeds, batch)
        written = time.monotonic()
        if batch % 3 == 2 and batch < batches:
            continue  # gold may pause while silver goes on
        way = ways[batch % len(ways)]
        done = fold_up_to(replace(lake, pipeline=replace(lake.pipeline, apply=way)), complete, batch)
        complete, merges = batch, merges + done
        seconds = time.monotonic() - written
        tell(f"batch {batch}: silver {written - began:.1f} s, {done} merges {seconds:.1f} s")
    return merges


def fold_up_to(lake: Lake, complete: int, last: int) -> int:
    """Fold up to a batch, and again as a run does that comes after a crash; the second must do nothing."""
    books = open_books(lake, complete, last)
    first = apply(lake, books, mirrors.known(lake))
    faults = [f"{one.mirror} {one.state}: {one.message}" for one in first if one.state in ("failed", "held")]
    assert [] == faults
    second = apply(lake, books, mirrors.known(lake))
    assert [] == [one.mirror for one in second if one.state != "skipped"]
    return sum(one.state == "done" for one in first)


def rebuilt(lake: Lake, folder: Path) -> Lake:
    """Another lake with the same changes and books and no mirrors, folded in one go."""
    for name in (CHANGES.name, BOOKS.name):
        shutil.copytree(lake.path(name), folder / name)
    again = lake_of(lake.spark, folder)
    last = again.progress("silver", BOOKS.name)
    fold_up_to(again, 0, last)
    return again


def content(lake: Lake, feed: Feed) -> Typed:
    """A mirror's rows by key."""
    rows = lake.read(mirror_path(feed.table)).select(*feed.keys, *COLUMNS).collect()
    width = len(feed.keys)
    found: Typed = {tuple(row[:width]): tuple(row[width:]) for row in rows}
    assert len(rows) == len(found), f"{feed.table} holds a key twice"
    return found


def wrong(lake: Lake, feed: Feed) -> list[Wrong]:
    """The histories of which the mirror holds something else than the database."""
    actual = content(lake, feed)
    if actual == feed.rows:
        return []
    if len(feed.histories) == 1:
        return [_report(feed.histories[0], feed, actual)]
    by_number: dict[object, Typed] = {}
    for key, row in actual.items():
        by_number.setdefault(key[0], {})[key] = row
    reports = [_report(one, feed, by_number.get(number, {})) for number, one in enumerate(feed.histories)]
    return [one for one in reports if one.expected != one.actual]


def _report(made: History, feed: Feed, actual: Typed) -> Wrong:
    expected = {key: _typed(row) for key, row in made.rows.items()}
    if expected == actual:
        return Wrong(made.seed, expected, actual)  # type: ignore[arg-type]
    own = {id(sent) for sent in made.sent}
    mine = [[sent for sent in batch if id(sent) in own] for batch in feed.batches]
    return Wrong(made.seed, expected, actual, tuple(shown(placed(mine))))  # type: ignore[arg-type]


def probe(spark: SparkSession, folder: Path, batches: int = 3) -> list[Wrong]:
    """A few histories that most faults break; what is wrong with them."""
    feed = together(CLEARED, 40, batches, ordered=False)
    lake = lake_of(spark, folder)
    for batch in range(1, batches + 1):
        write(lake, [feed], batch)
        fold_up_to(lake, batch - 1, batch)
    return wrong(lake, feed)
