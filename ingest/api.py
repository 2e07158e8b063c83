"""The functions that `ingest` exports; docs/python.md shows each at work.

None has the name of a module of the package: `ingest.fold` and `ingest.run` become modules once they are imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.change import Hints, Message, TableHints
from ingest.config import Pipeline
from ingest.errors import IngestError, LockedError
from ingest.result import STAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ingest.result import Result


def decode(
    format_name: str,
    messages: Iterable[bytes | Message],
    *,
    keys: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    **options: str,
) -> Iterator[dict[str, Any]]:
    """Decode messages to exact changes, without Spark: one mapping each, as ``ingest decode`` prints them.

    Args:
        format_name: one of ``ingest formats``.
        messages: each one's bytes, or a `Message` with its Kafka key, topic and headers.
        keys: the key columns, for formats that name none.
        columns: logical types of columns, for formats that send none.
        **options: as in ``options:`` of the pipeline file.

    Yields:
        ``{"op": ..., "table": ..., "after": {column: text or None}, ...}``, or ``{"reject": code, "detail": text}``
        for a message that cannot be decoded.

    Raises:
        ConfigError: an option is unknown or has no meaning.
    """
    from ingest import formats
    from ingest.cli.message_verbs import described
    from ingest.config import read as config

    declared = TableHints(tuple(keys), dict(columns or {}))
    of_bytes = Hints(config.options(options, format_name), lambda _table: declared)
    of_records = replace(of_bytes, framed=False)
    parse = formats.reader(format_name)
    for message in messages:
        if isinstance(message, Message):
            yield from described(parse, of_records, message)
        else:
            yield from described(parse, of_bytes, Message(message))


def detect(messages: Sequence[bytes]) -> dict[str, Any]:
    """Name the format of a sample of messages, with evidence, as ``ingest detect --output json`` does."""
    from ingest.operate import detection

    return detection.judge("messages", "lines", list(messages), None)


def fold_changes(
    changes: Iterable[Mapping[str, Any]], keys: Sequence[str], types: Mapping[str, str] | None = None
) -> list[dict[str, str | None]]:
    """The rows after all decoded changes of one table, given in any order: the definition of a mirror.

    Args:
        changes: as `decode` gives them, in the order in which they arrived; rejects and statements are left out.
        keys: the key columns.
        types: logical types of the key columns; without them keys are compared as text.

    Returns:
        The existing rows, with each column's exact text.
    """
    from ingest.change import ROW_OPS, Change, Op
    from ingest.fold import Placed, fold
    from ingest.order import Order

    placed = []
    for arrival, decoded in enumerate(changes):
        if decoded.get("op") not in ROW_OPS:
            continue
        epoch, phase, sequence, half, row = decoded["order"]
        change = Change(
            op=Op(decoded["op"]),
            before=decoded["before"],
            after=decoded["after"],
            partial=decoded["partial"],
            keys=tuple(keys),
        )
        placed.append(Placed(Order(epoch, phase, tuple(sequence), half, (arrival,), row), change))
    return [row.values for row in fold(placed, tuple(keys), types).values()]


def session(pipeline: Pipeline) -> AbstractContextManager[SparkSession]:
    """A Spark session for a pipeline, stopped at the end; an active one is used, and left running.

    Raises:
        SetupError: Java or a jar is missing; the text names the command that helps.
    """
    from pyspark.sql import SparkSession

    from ingest.cli.spark import session_for

    active = SparkSession.getActiveSession()
    return session_for([pipeline]) if active is None else nullcontext(active)


def run_pipeline(
    pipeline: Pipeline, spark: SparkSession, *, stages: Iterable[str] = STAGES, select: str = ""
) -> Result:
    """Land what is new, decode it, fold it into the mirrors, check them: once.

    Args:
        pipeline: what to run.
        spark: the session.
        stages: which of bronze, silver, gold and quality.
        select: fold only mirrors that fit this pattern, such as ``shop.*``.

    Returns:
        The result; ``exit_code`` is 1 if ``failures`` is not empty.

    Raises:
        LockedError: another run holds the lake.
        IngestError: the lake cannot be used; the text says why and what to do.
    """
    from ingest.run import run

    return run(spark, pipeline, stages, select=select)


def alerts(pipeline: Pipeline) -> list[dict[str, Any]]:
    """What is wrong with a pipeline's lake now, by cause, as ``ingest alerts`` lists it; without Spark.

    Raises:
        IngestError: there is no lake, or it belongs to another pipeline.
    """
    from ingest.cli.spark import looked_at
    from ingest.operate.alerts import listed

    with looked_at(pipeline.file) as lake:
        return listed(lake)


def send_alerts(pipeline: Pipeline, spark: SparkSession, error: Exception | None = None) -> list[str]:
    """Send the alerts configured by ``alerts:`` in the pipeline file, as ``ingest run`` does at its end.

    A new cause is sent once, a lasting one again after ``repeat``, and one that is over once more.

    Args:
        pipeline: which has been run.
        spark: the session; what was sent is kept in the lake's `decisions`.
        error: the error that ended the run, if any. A lake in use by another run is not a problem.

    Returns:
        One sentence for each target that did not take its alerts; the next call tries again.
    """
    from ingest.operate import alerts as alerting
    from ingest.tables.lake import Lake

    if isinstance(error, LockedError):
        return []
    return alerting.tell(Lake(spark, pipeline), "" if error is None else alerting.why_stopped(error))


def read(pipeline: Pipeline, spark: SparkSession, query: str, *, batch: int | None = None) -> DataFrame:
    """Query mirrors and the product's own tables by name, now or as they were after a batch.

    Args:
        pipeline: whose lake.
        spark: the session.
        query: one SELECT, or a table's name such as ``shop.orders``.
        batch: the batch; None reads the newest versions.

    Raises:
        IngestError: there is no lake or no such table, or a mirror does not hold all of the batch.
    """
    from ingest.operate import spark_query
    from ingest.tables.lake import Lake

    if not pipeline.is_stored and not Path(pipeline.lake).is_dir():
        raise IngestError(f"There is no lake at {pipeline.lake} yet: run the pipeline first.")
    text = query if " " in query.strip() else f"SELECT * FROM {query}"
    frame, lagging = spark_query.frame(Lake(spark, pipeline), text, batch)
    if lagging:
        raise IngestError(" ".join(lagging))
    return frame
