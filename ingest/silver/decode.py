"""The silver stage: ``bronze -> changes``, then ``ddl``, ``rejects`` and ``books`` from what was written.

``changes`` is one write and one commit for all kinds; the three small tables are appended from it,
guarded, and a rerun adds what a killed run left out.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.lake import decoded_with, epochs, identity
from ingest.lake.books import Line, merged
from ingest.lake.lake import Lake
from ingest.lake.pace import paced
from ingest.lake.schemas import BOOKS, BRONZE, CHANGES, DDL, REJECTS, TableSchema
from ingest.silver import clearings, events, receipts, replay
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.silver.registry import schemas

STAGE = "silver"


@dataclass(slots=True)
class Decoded:
    """What a silver run did: the batches, their book lines and what does not balance."""

    batches: tuple[int, ...] = ()
    lines: list[Line] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)


def pending(lake: Lake, last: int, since: int = 0) -> tuple[int, ...]:
    """Landed batches that are not decoded in full yet, from the one behind ``since`` on."""
    done = lake.progress(STAGE, BOOKS.name)
    return tuple(range(max(since, done) + 1, last + 1))


def decode(lake: Lake, last: int, cores: int, since: int = 0) -> Decoded:
    """Decode every landed batch up to ``last`` that silver has not finished, from behind ``since`` on.

    The books are committed last: they are what says that a batch is complete.
    """
    batches = pending(lake, last, since)
    if not batches:
        return Decoded()
    told = receipts.told(lake, batches)
    identity.refuse_missing_sources(lake, {source for _, source in told.landed})
    replayed = replay.landed(told.moved, batches)
    decoded_with.note(lake, {source for _, source in told.landed}, batches[0])
    with paced(lake.spark, sum(told.landed.values()) + sum(replayed.values())):
        _write_changes(lake, batches, told)
    written = _written(lake, batches)
    lines = merged(
        Line.from_json(row["payload"])
        for row in written.where(F.col("kind") == "book").select("payload").collect()
    )
    with paced(lake.spark, sum(line.ddl + line.rejected for line in lines)):
        _append_side_by_side(lake, written, lines, batches[-1])
    lake.append(_book_rows(lake, lines), BOOKS, STAGE, batches[-1])
    return Decoded(batches, lines, _unbalanced(told, batches, lines))


def _append_side_by_side(lake: Lake, written: DataFrame, lines: list[Line], batch: int) -> None:
    """``ddl`` and ``rejects``, at once: each is little work and a commit to wait for."""
    todo = []
    if any(line.ddl for line in lines):
        todo.append((_ddl_rows, DDL))
    if any(line.rejected for line in lines):
        todo.append((_reject_rows, REJECTS))
    with ThreadPoolExecutor(len(todo) or 1, thread_name_prefix=STAGE) as pool:
        list(
            pool.map(
                lambda one: lake.append(one[0](_behind(lake, written, one[1])), one[1], STAGE, batch), todo
            )
        )


def _write_changes(lake: Lake, batches: tuple[int, ...], told: receipts.Told) -> None:
    """One commit for all pending batches; a rerun after a kill begins behind what is there."""
    done = lake.progress(STAGE, CHANGES.name)
    todo = [batch for batch in batches if batch > done]
    if not todo:
        return
    messages = lake.read(BRONZE.name).where(
        (F.col("kind") == "message") & F.col("batch").between(todo[0], todo[-1])
    )
    moved = replay.touching(told.moved, todo)
    if moved:
        known = lifting(lake, messages.unionByName(replay.messages(lake)))
        changes = replay.decoded(lake, messages, todo, moved, known, lifted)
    else:
        changes = lifted(messages, lifting(lake, messages))
    cleared = clearings.rows(lake, epochs.read(lake), todo)
    if cleared is not None:
        changes = changes.unionByName(cleared, allowMissingColumns=True)
    lake.append(changes.sortWithinPartitions("kind", "database", "table"), CHANGES, STAGE, todo[-1])


def lifting(lake: Lake, messages: DataFrame) -> Lifting:
    """What the workers need to decode these messages with today's parsers and options."""
    how = Lifting(_shipped(lake.pipeline), starts=epochs.read(lake).starts, schemas=schemas(lake, messages))
    return replace(how, anchors=events.anchors(lake, messages, how))


def lifted(messages: DataFrame, how: Lifting) -> DataFrame:
    """Rows of ``changes`` from bronze messages."""
    return messages.select(*INPUT).mapInArrow(lift(how), CHANGES.columns)


def _shipped(pipeline: Pipeline) -> Pipeline:
    """The pipeline as the workers need it: without connections, secrets or checks."""
    sources = tuple(
        replace(source, kafka={}, storage={}, bootstrap_servers="", registry="", database=None)
        for source in pipeline.sources
    )
    return replace(pipeline, sources=sources, quality=(), spark={}, lineage=None)


def _written(lake: Lake, batches: tuple[int, ...]) -> DataFrame:
    return lake.read(CHANGES.name).where(
        F.col("batch").between(batches[0], batches[-1]) & (F.col("kind") != "change")
    )


def _behind(lake: Lake, written: DataFrame, schema: TableSchema) -> DataFrame:
    """Without the batches that a killed run has appended already: the books, not this table, were missing."""
    return written.where(F.col("batch") > lake.progress(STAGE, schema.name))


def _ddl_rows(written: DataFrame) -> DataFrame:
    payload = F.col("payload")
    return written.where(F.col("kind") == "ddl").select(
        "batch",
        "source",
        "topic",
        "partition",
        "offset",
        "row",
        "database",
        "schema",
        "table",
        "order_key",
        "sequence",
        "event_time",
        F.get_json_object(payload, "$.statement").alias("statement"),
        F.get_json_object(payload, "$.parsed.kind").alias("class"),
        F.get_json_object(payload, "$.parsed.reason").alias("reason"),
        F.get_json_object(payload, "$.parsed.effects").alias("effects"),
        "note",
    )


def _reject_rows(written: DataFrame) -> DataFrame:
    payload = F.col("payload")
    nothing = F.lit(None).cast("string")
    return written.where(F.col("kind") == "reject").select(
        "source",
        "topic",
        "partition",
        "offset",
        "batch",
        F.lit(STAGE).alias("stage"),
        F.lit("message").alias("kind"),
        "database",
        "schema",
        "table",
        nothing.alias("key"),
        nothing.alias("column"),
        F.get_json_object(payload, "$.reason").alias("reason"),
        F.get_json_object(payload, "$.detail").alias("detail"),
        nothing.alias("raw"),
        F.get_json_object(payload, "$.decoder").alias("decoder"),
    )


def _book_rows(lake: Lake, lines: list[Line]) -> DataFrame:
    """The lines as rows; their times are microseconds, which a moment in Python need not be able to hold."""
    times = ("event_low", "event_high")
    names = BOOKS.columns.names
    sent = BOOKS.ddl.replace("event_low TIMESTAMP", "event_low BIGINT")
    rows = [tuple(_book_cell(line, name) for name in names) for line in lines]
    frame = lake.spark.createDataFrame(rows, sent.replace("event_high TIMESTAMP", "event_high BIGINT"))
    return frame.withColumns({name: F.timestamp_micros(name) for name in times}).coalesce(1)


def _book_cell(line: Line, name: str) -> object:
    value = getattr(line, name)
    if name in ("keys", "columns", "servers"):
        return json.dumps(value, ensure_ascii=False)
    return value


def _unbalanced(told: receipts.Told, batches: tuple[int, ...], lines: list[Line]) -> list[str]:
    """Compare the books with bronze's own receipts, which count before anything is decoded."""
    landed = told.landed | replay.landed(told.moved, batches)
    booked: dict[tuple[int, str], int] = {}
    faults = []
    for line in lines:
        place = (line.batch, line.source)
        booked[place] = booked.get(place, 0) + line.messages
        if not line.balanced:
            faults.append(f"batch {line.batch}, {line.source} {line.table_id}: the line does not add up")
    for place in sorted(landed.keys() | booked.keys()):
        if landed.get(place, 0) != booked.get(place, 0):
            faults.append(
                f"batch {place[0]}, source {place[1]}: {landed.get(place, 0)} messages landed, "
                f"{booked.get(place, 0)} are in the books"
            )
    return faults
