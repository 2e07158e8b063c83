"""The silver stage: ``bronze -> changes``, then ``ddl``, ``rejects`` and ``books`` from the written rows.

``changes`` is one write and one commit for all kinds; the three small tables are appended from it, guarded, and a rerun
adds what a killed run did not write.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.change import Op
from ingest.config import Pipeline
from ingest.config.entries import Sealing
from ingest.errors import counted
from ingest.ledgers import barriers, decoded_with, epochs, later_loads, sealing
from ingest.ledgers.books import Line, merged
from ingest.ledgers.epochs import Epochs, Resnapshot
from ingest.ledgers.rejects import REPLAY
from ingest.ledgers.starts import beginning
from ingest.silver import change_rows, events, replay, split_lookup
from ingest.silver.later_loads import later_loads_in
from ingest.silver.lift import FILES, INPUT, Lifting, lift, lift_to_files
from ingest.silver.messages import Messages, of_batches
from ingest.silver.registry import schemas
from ingest.silver.replay import Moved
from ingest.silver.split_messages import Wholes
from ingest.spark.pace import paced
from ingest.store import stores
from ingest.tables import identity
from ingest.tables.datafiles import Added, Files, Layout, table_of, written
from ingest.tables.lake import BatchSpan, Lake
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES, DDL, REJECTS, TableSchema

STAGE = "silver"


@dataclass(slots=True)
class Decoded:
    """What a silver run did: the batches, their book lines and what does not balance."""

    batches: tuple[int, ...] = ()
    lines: list[Line] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)


def pending(lake: Lake, last: int, since: int = 0) -> tuple[int, ...]:
    """Landed batches after ``since`` that are not fully decoded yet."""
    done = lake.progress(STAGE, BOOKS.name)
    return tuple(range(max(since, done) + 1, last + 1))


def decode(lake: Lake, last: int, cores: int, since: int = 0) -> Decoded:
    """Decode every landed batch after ``since`` and up to ``last`` that silver has not finished.

    The books are committed last: they mark a batch as complete.
    """
    batches = pending(lake, last, since)
    if not batches:
        return Decoded()
    landed, moved = landed_counts(lake, batches)
    identity.refuse_missing_sources(lake, {source for _, source in landed})
    landed = {**landed, **replay.landed(moved, batches)}
    decoded_with.note(lake, {source for _, source in landed}, batches[0])
    _write_changes(lake, batches, moved, sum(landed.values()), cores)
    span = (batches[0], batches[-1])
    pages = lake.pages(CHANGES, change_rows.SCHEMA, "book", span)
    lines = merged(Line.from_json(text) for page in pages for text in page.column("payload").to_pylist())
    if any(line.ddl for line in lines):
        _append(lake, DDL, "ddl", _ddl_rows, span)
    if any(line.rejected for line in lines):
        _append(lake, REJECTS, "reject", _reject_rows, span)
    lake.append(_book_rows(lines), BOOKS, STAGE, batches[-1])
    return Decoded(batches, lines, _unbalanced(landed, lines))


def _append(
    lake: Lake, schema: TableSchema, kind: str, rows: Callable[[pa.Table], pa.Table], span: BatchSpan
) -> None:
    """Append a small table from rows of their kind in ``changes``, but for batches that a killed run has appended."""
    first, last = max(span[0], lake.progress(STAGE, schema.name) + 1), span[1]
    if first > last:
        return
    pages = (rows(page) for page in lake.pages(CHANGES, change_rows.SCHEMA, kind, (first, last)))
    if lake.writes(schema):
        with Files(lake.layout(schema)) as files:
            for page in pages:
                files.add(page)
            done = files.finish()
        lake.append(done, schema, STAGE, last)
    else:
        lake.append(pa.concat_tables(pages), schema, STAGE, last)


def _write_changes(
    lake: Lake, batches: tuple[int, ...], replayed: list[Moved], count: int, cores: int
) -> None:
    """Write all pending batches in one commit; a rerun after a kill continues after the last written one."""
    done = lake.progress(STAGE, CHANGES.name)
    todo = [batch for batch in batches if batch > done]
    if not todo:
        return
    span = (todo[0], todo[-1])
    sealing.refuse_unreadable(lake, sealing.opener(lake), span, new=True)
    cleared = clearings(epochs.read(lake), todo)
    moved = replay.touching(replayed, todo)
    messages = of_batches(lake, span, cores)
    if messages.pieces is not None and not moved and lake.writes(CHANGES):
        layout = replace(lake.layout(CHANGES), sorted_by=("database", "table"))
        files = _lifted_files(lake, messages, layout)
        if not lake.shadow and (later := later_loads_in(lake, files)):
            later_loads.record(lake, later)
            for file in files:
                place = f"{layout.folder}/{file.path}"
                stores.at(place).remove(place)
            files = _lifted_files(lake, messages, layout)
        lake.append(files + written(layout, cleared), CHANGES, STAGE, span[1])
        return
    frame = messages.frame()
    if moved:
        both = Messages(lake, lambda: frame.unionByName(replay.messages(lake)))
        changes = replay.decoded(lake, frame, todo, moved, lifting(lake, both), lifted)
    else:
        changes = lifted(frame, lifting(lake, messages))
    if cleared.num_rows:
        changes = changes.unionByName(lake.spark.createDataFrame(cleared, CHANGES.columns).coalesce(1))
    with paced(lake.spark, count):
        lake.append(changes.sortWithinPartitions("kind", "database", "table"), CHANGES, STAGE, span[1])


def _lifted_files(lake: Lake, messages: Messages, layout: Layout) -> list[Added]:
    """New files of ``changes`` from messages, which are not committed."""
    report = messages.through(lift_to_files(lifting(lake, messages), layout), FILES)
    return [Added.from_json(row["file"]) for row in report]


def lifting(lake: Lake, messages: Messages, wholes: Wholes | None = None) -> Lifting:
    """What the workers need to decode these messages with today's parsers and options; ``wholes``: what their parts become, if it
    is known.
    """
    opener, starts = sealing.opener(lake), epochs.read(lake).starts
    how = Lifting(
        _shipped(lake.pipeline),
        starts=starts,
        later=later_loads.by_epoch(later_loads.read(lake), starts),
        schemas=schemas(lake, messages, opener),
        opener=opener,
        barriers=barriers.read(lake),
        wholes=split_lookup.wholes(lake, messages, opener) if wholes is None else wholes,
    )
    return replace(how, anchors=events.anchors(lake, messages, how))


def lifted(messages: DataFrame, how: Lifting) -> DataFrame:
    """Rows of ``changes`` from bronze messages."""
    return messages.select(*INPUT).mapInArrow(lift(how), CHANGES.columns)


def _shipped(pipeline: Pipeline) -> Pipeline:
    """The pipeline for the workers: without connections, secrets or checks."""
    sources = tuple(
        replace(source, kafka={}, storage={}, bootstrap_servers="", registry="", database=None)
        for source in pipeline.sources
    )
    seal = None if pipeline.seal is None else Sealing()
    return replace(pipeline, sources=sources, quality=(), spark={}, lineage=None, seal=seal)


class _Parsed(msgspec.Struct):
    kind: str | None = None
    reason: str | None = None
    effects: msgspec.Raw = msgspec.Raw(b"")


class _Statement(msgspec.Struct):
    statement: str | None = None
    parsed: _Parsed | None = None


_statements = msgspec.json.Decoder(_Statement)
_PLACE = ("batch", "source", "topic", "partition", "offset", "database", "schema", "table")


def _ddl_rows(page: pa.Table) -> pa.Table:
    logged = [_statements.decode(text) for text in page.column("payload").to_pylist()]
    parsed = [event.parsed or _Parsed() for event in logged]
    return _beside(
        page.select([*_PLACE, "row", "order_key", "sequence", "event_time", "note"]),
        {
            "statement": [event.statement for event in logged],
            "class": [statement.kind for statement in parsed],
            "reason": [statement.reason for statement in parsed],
            "effects": [bytes(statement.effects).decode() or None for statement in parsed],
        },
    )


def _reject_rows(page: pa.Table) -> pa.Table:
    refused = [json.loads(text) for text in page.column("payload").to_pylist()]
    return _beside(
        page.select(list(_PLACE)),
        {
            "stage": [STAGE] * len(refused),
            "kind": ["message"] * len(refused),
            "reason": [reject.get("reason") for reject in refused],
            "detail": [reject.get("detail") or "" for reject in refused],
            "decoder": [reject.get("decoder") for reject in refused],
        },
    )


def _beside(page: pa.Table, columns: Mapping[str, list[str | None]]) -> pa.Table:
    for name, values in columns.items():
        page = page.append_column(name, pa.array(values, pa.string()))
    return page


def _book_rows(lines: list[Line]) -> pa.Table:
    """The lines as rows; times stay microseconds, because Python's datetime cannot hold all of them."""
    rows = [tuple(_book_cell(line, name) for name in BOOKS.arrow.names) for line in lines]
    return table_of(rows, BOOKS.arrow.names, BOOKS.arrow)


def _book_cell(line: Line, name: str) -> object:
    value = getattr(line, name)
    if name == "announced":
        value = {column: asdict(value[column]) for column in sorted(value)}
    if name in ("layouts", "load_marks"):
        value = [asdict(each) for each in value]
    if name in ("keys", "columns", "lacks", "servers", "announced", "layouts", "load_marks"):
        return json.dumps(value, ensure_ascii=False)
    return value


def _unbalanced(landed: Mapping[tuple[int, str], int], lines: list[Line]) -> list[str]:
    """Compare the books with bronze's receipts, which are counted before anything is decoded."""
    booked: Counter[tuple[int, str]] = Counter()
    faults = []
    for line in lines:
        booked[line.batch, line.source] += line.messages
        if not line.balanced:
            faults.append(f"batch {line.batch}, {line.source} {line.table_id}: the line does not add up")
    for place in sorted(landed.keys() | booked.keys()):
        if landed.get(place, 0) != booked[place]:
            faults.append(
                f"batch {place[0]}, source {place[1]}: {counted(landed.get(place, 0), 'message')} landed, "
                f"{booked[place]:,} in the books"
            )
    return faults


# --- complete re-snapshots ------------------------------------------------------------------------

_CLEARING = (
    "kind", "batch", "source", "row", "op", "database", "schema", "table", "order_key", "partial", "note",
    "payload",
)  # fmt: skip


def clearings(epochs: Epochs, batches: Sequence[int]) -> pa.Table:
    """A truncate at the beginning of each epoch in some batches, for each table that was completely re-snapshot in it.

    The source does not send it. The fold and the checks treat it like any truncate: rows that the epoch does not contain
    are deleted.
    """
    truncates = [
        row
        for resnapshot in epochs.resnapshots
        if resnapshot.complete and resnapshot.start.first in batches
        for row in _truncate(resnapshot, epochs.number(resnapshot.source, resnapshot.start))
    ]
    return table_of(truncates, _CLEARING, change_rows.SCHEMA)


def _truncate(snapshot: Resnapshot, epoch: int) -> Iterator[tuple[object, ...]]:
    """The truncate, and its book line."""
    batch, place = snapshot.start.first, beginning(epoch)
    note = f"epoch {epoch} of {snapshot.source} begins here, and with it a complete snapshot of the table"
    yield ("change", batch, snapshot.source, 0, str(Op.TRUNCATE), *snapshot.table, place, False, note, None)
    line = Line(batch, snapshot.source, None, None, *snapshot.table, changes=1, truncates=1, noted=1)
    line.order_low = line.order_high = place
    yield ("book", batch, snapshot.source, 0, None, None, None, None, None, None, None, line.to_json())


# --- bronze's own counts --------------------------------------------------------------------------

_WANTED = BRONZE.part("batch", "source", "topic", "partition", "value")


def landed_with(value: Column) -> Column:
    """The number of messages that landed with a receipt."""
    return F.get_json_object(value.cast("string"), "$.count").cast("bigint")


def landed_counts(lake: Lake, batches: Sequence[int]) -> tuple[dict[tuple[int, str], int], list[Moved]]:
    """The messages of some batches by batch and source, from the receipts; and all replays of the lake, summed."""
    landed: Counter[tuple[int, str]] = Counter()
    for page in lake.pages(BRONZE, _WANTED, "receipt", (batches[0], batches[-1])):
        for row in page.to_pylist():
            landed[row["batch"], row["source"]] += json.loads(row["value"]).get("count") or 0
    moved: Counter[tuple[int, int, str, str, int]] = Counter()
    for page in lake.pages(BRONZE, _WANTED, REPLAY, (0, lake.progress("bronze", BRONZE.name))):
        for row in page.to_pylist():
            old = json.loads(row["value"])["batch"]
            moved[row["batch"], old, row["source"], row["topic"], row["partition"]] += 1
    return landed, [Moved(*place, count) for place, count in moved.items()]
