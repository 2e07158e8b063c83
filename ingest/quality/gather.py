"""Gathering the report's facts from the product's own tables: a few Spark jobs, whatever the number of mirrors.

No mirror is opened: rows, columns and versions stand in ``checks``, ``decisions`` and ``runs`` already.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest import formats
from ingest.change import TableId
from ingest.config import Pipeline
from ingest.lake import mirrors
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror, target
from ingest.lake.names import mirror_path
from ingest.lake.pace import pace
from ingest.lake.rejects import still_open
from ingest.lake.schemas import BOOKS, CHECKS, DDL, RUNS
from ingest.quality import queries, statements
from ingest.quality.catalogue import PASS
from ingest.quality.facts import (
    TREND,
    BatchFact,
    BookFact,
    CheckFact,
    ColumnFact,
    DdlFact,
    Facts,
    RejectFact,
    RunFact,
    SourceFact,
    TableFact,
)
from ingest.quality.subjects import EPOCH

SHOWN_BATCHES, SHOWN_DDL, SHOWN_REASONS = 8, 20, 50
_LANE = ("database", "schema", "table")
_NO_MIRROR = "~"  # before the name of what was checked and is no mirror; no path begins so


def gather(lake: Lake) -> Facts:
    """Everything that the report shows, as of the last batch that a run has recorded.

    A run records itself last of all, so that of a batch under way nothing is shown.
    """
    pace(lake.spark, 0)
    pipeline = lake.pipeline
    facts = Facts(pipeline.name, str(pipeline.file), pipeline.lake, dt.datetime.now(dt.UTC))
    tables = {path: _table(pipeline, mirror) for path, mirror in mirrors.known(lake).items()}
    facts.sources = [SourceFact(one.name, one.format) for one in pipeline.sources]
    facts.batch = _last_batch(lake)
    _add_books(lake, facts, tables)
    _add_runs(lake, facts, tables)
    _add_checks(lake, facts, tables)
    _add_ddl(lake, tables, facts.batch)
    facts.rejects = _rejects(lake, facts.batch)
    facts.tables = [tables[path] for path in sorted(tables)]
    for table in facts.tables:
        _complete(table, pipeline)
    for source in facts.sources:
        for check in source.checks:
            check.sql = queries.of_source(check.check, source.name)
    return facts


def _rows(lake: Lake, name: str) -> DataFrame | None:
    return lake.read(name) if lake.exists(name) else None


def _last_batch(lake: Lake) -> int | None:
    """The newest batch that was checked, or of which a run has recorded its end; None before the first."""
    tables = [rows for name in (RUNS.name, CHECKS.name) if (rows := _rows(lake, name)) is not None]
    if not tables:
        return None
    batches = reduce(DataFrame.unionAll, [rows.select("batch") for rows in tables])
    found = batches.agg(F.max("batch").alias("batch")).first()
    batch: int | None = found["batch"] if found else None
    return batch


def _up_to(rows: DataFrame, batch: int | None) -> DataFrame:
    """The rows of batches that have ended."""
    return rows if batch is None else rows.where(F.col("batch").isNull() | (F.col("batch") <= batch))


def _moment(micros: int | None) -> dt.datetime | None:
    return None if micros is None else EPOCH + dt.timedelta(microseconds=micros)


# --- mirrors ---


def _table(pipeline: Pipeline, mirror: Mirror) -> TableFact:
    rule = pipeline.rule(mirror.table)
    columns = [
        ColumnFact(
            one.name,
            one.column,
            one.type,
            one.delta,
            "declared in the pipeline file"
            if one.name in rule.columns
            else "told by the source"
            if one.type != "unknown"
            else "seen in messages, type not told",
            one.name in mirror.keys,
        )
        for one in mirror.columns
    ]
    return TableFact(mirror.name, mirror.path, mirror.table, keys=mirror.keys, columns=columns)


def _add_books(lake: Lake, facts: Facts, tables: dict[str, TableFact]) -> None:
    """Where messages went in the last batches, and each table's lanes with their newest commit."""
    books = _rows(lake, BOOKS.name)
    if books is None:
        return
    books = _up_to(books, facts.batch)
    lanes = (
        books.where(F.col("table").isNotNull() & ((F.col("changes") > 0) | (F.col("ddl") > 0)))
        .groupBy("source", *_LANE)
        .agg(F.unix_micros(F.max("event_high")).alias("newest"))
    )
    for row in lanes.collect():
        source = TableId(*(row[name] for name in _LANE))
        mirror = target(lake.pipeline.rule(source), source)
        table = tables.setdefault(mirror_path(mirror), TableFact(str(mirror), mirror_path(mirror), mirror))
        table.lanes.append((row["source"], source))
        newest = _moment(row["newest"])
        table.newest = max(filter(None, (table.newest, newest)), default=None)
    names = ("messages", "change_messages", "ddl", "control", "routed_out", "rejected")
    sums = books.groupBy("batch", "source").agg(*[F.sum(name).alias(name) for name in names])
    newest_first = sums.orderBy(F.desc("batch"), "source").limit(TREND * max(1, len(facts.sources)))
    facts.books = [
        BookFact(row["batch"], row["source"], *(row[name] for name in names))
        for row in newest_first.collect()
    ]


# --- runs ---


def _add_runs(lake: Lake, facts: Facts, tables: dict[str, TableFact]) -> None:
    """The last runs, and what each did to which mirror."""
    rows = _rows(lake, RUNS.name)
    if rows is None:
        return
    rows = _up_to(rows, facts.batch)
    recent = rows.groupBy("run").agg(F.max("started_at").alias("at")).orderBy(F.desc("at")).limit(TREND)
    found = rows.join(F.broadcast(recent.select("run")), "run").withColumn("at", F.unix_micros("started_at"))
    by_name = {table.name: table for table in tables.values()}
    runs: dict[str, RunFact] = {}
    for row in sorted(_listed(found.drop("started_at")), key=lambda row: -row["at"]):
        at = EPOCH + dt.timedelta(microseconds=row["at"])
        run = runs.setdefault(row["run"], RunFact(row["run"], at, row["batch"]))
        _add_run_row(run, row, at, by_name)
    facts.runs = list(runs.values())


def _listed(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows through Arrow: tens of thousands arrive in a moment."""
    listed: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return listed


def _add_run_row(run: RunFact, row: dict[str, Any], at: dt.datetime, by_name: dict[str, TableFact]) -> None:
    counts = json.loads(row["counts"] or "{}")
    if row["stage"] == "alarm":
        run.alarms.append(row["message"])
    elif row["subject"] is None:
        run.counts = counts
        run.seconds[row["stage"]] = row["seconds"]
    elif row["subject"] in by_name:
        by_name[row["subject"]].batches.append(
            BatchFact(
                row["batch"],
                row["state"],
                at,
                counts,
                row["seconds"] or 0.0,
                row["version"],
                row["message"] or "",
            )
        )


# --- checks ---


def _add_checks(lake: Lake, facts: Facts, tables: dict[str, TableFact]) -> None:
    """The newest verdicts of every subject, with their numbers over the last runs."""
    rows = _rows(lake, CHECKS.name)
    if rows is None:
        return
    rows = _up_to(rows, facts.batch)
    one = F.struct(
        F.unix_micros("checked_at").alias("at"),
        "observed",
        "state",
        "severity",
        "threshold",
        "detail",
        "failing",
    )
    short = F.struct(F.unix_micros("checked_at").alias("at"), "observed", "state")
    told = rows.groupBy("mirror", "source", "check", "column").agg(
        F.max(one).alias("last"),
        F.slice(F.sort_array(F.collect_list(short), asc=False), 1, TREND).alias("trend"),
    )
    by_name = {table.name: table for table in tables.values()}
    by_source = {source.name: source for source in facts.sources}
    found: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
    for row in _listed(told):
        found.setdefault((row["mirror"], row["source"]), []).append(row)
    newest = max((row["last"]["at"] for group in found.values() for row in group), default=0)
    for (mirror, source), group in found.items():
        checks, at = _newest(group)
        subject = by_name.get(mirror or "") or by_source.get(source or "")
        if subject is None and mirror and at == _moment(newest):
            subject = tables[f"{_NO_MIRROR}{mirror}"] = TableFact(mirror)
        if subject is not None:
            subject.checks, subject.checked_at = checks, at


def _newest(group: Iterable[dict[str, Any]]) -> tuple[list[CheckFact], dt.datetime]:
    """The verdicts of the last time: a check that is no longer asked is not shown."""
    listed = list(group)
    last = max(row["last"]["at"] for row in listed)
    facts = [_check(row) for row in listed if row["last"]["at"] == last]
    return facts, EPOCH + dt.timedelta(microseconds=last)


def _check(row: dict[str, Any]) -> CheckFact:
    last = row["last"]
    return CheckFact(
        row["check"],
        last["state"],
        last["observed"] or 0.0,
        last["severity"] or "error",
        None if last["threshold"] is None else float(last["threshold"]),
        row["column"],
        last["detail"] or "",
        tuple(json.loads(last["failing"] or "[]")),
        tuple(one["observed"] or 0.0 for one in reversed(row["trend"])),
        _bad_since(row["trend"]),
    )


def _bad_since(trend: list[dict[str, Any]]) -> dt.datetime | None:
    """When the check last began not to pass; None while it passes. ``trend`` has the newest first."""
    since = None
    for one in trend:
        if one["state"] == PASS:
            break
        since = _moment(one["at"])
    return since


# --- schema changes and rejects ---


def _add_ddl(lake: Lake, tables: dict[str, TableFact], batch: int | None) -> None:
    rows = _rows(lake, DDL.name)
    if rows is None:
        return
    rows = _up_to(rows, batch)
    waiting = statements.pending(statements.read(lake), lake.pipeline)
    newest = rows.orderBy(F.desc("batch"), F.desc("order_key")).limit(2000)
    shown = newest.select(
        "batch",
        *_LANE,
        "class",
        "reason",
        F.substring("statement", 1, 2000).alias("statement"),
        F.unix_micros("event_time").alias("at"),
    )
    for row in _listed(shown):
        source = TableId(*(row[name] for name in _LANE))
        table = tables.get(mirror_path(target(lake.pipeline.rule(source), source)))
        if table is not None and len(table.ddl) < SHOWN_DDL:
            statement = row["statement"] or ""
            pending = statement in waiting.get(table.path, ())
            table.ddl.append(
                DdlFact(
                    row["batch"],
                    statement,
                    row["class"] or "",
                    row["reason"] or "",
                    _moment(row["at"]),
                    pending,
                )
            )


def _rejects(lake: Lake, batch: int | None) -> list[RejectFact]:
    rows = still_open(lake)
    if rows is None:
        return []
    rows = _up_to(rows, batch)
    table = F.concat_ws(".", *_LANE).alias("table")
    position = F.concat_ws(":", "topic", F.col("offset").cast("string")).alias("place")
    groups = (
        rows.groupBy("kind", "reason", "source", table)
        .agg(F.count("*").alias("n"), F.first("detail").alias("detail"), F.first(position).alias("place"))
        .orderBy(F.desc("n"))
        .limit(SHOWN_REASONS)
    )
    return [
        RejectFact(
            row["kind"],
            row["reason"] or "",
            row["source"] or "",
            row["table"],
            row["n"],
            row["detail"] or "",
            row["place"] or "",
        )
        for row in groups.collect()
    ]


# --- what follows from the rest ---


def _complete(table: TableFact, pipeline: Pipeline) -> None:
    """Queries for every check, the dialects' losses, and each column's own."""
    table.batches = table.batches[:TREND]
    changed = max((one.at for one in table.batches if one.state == "done"), default=None)
    table.stale = bool(changed and table.checked_at and table.checked_at < changed)
    names = {one.name: one.column for one in table.columns}
    keys = [(key, names.get(key, key)) for key in table.keys]
    source = table.lanes[0][1] if table.lanes else table.id
    examples = [key for check in table.checks for key in check.failing]
    for check in table.checks:
        check.sql = queries.reproduces(check.check, table.id, source, keys, check.column)
        for column in table.columns:
            if check.check == "cell_rejects" and check.column == column.name:
                column.misfits = int(check.observed)
    table.explain = queries.history(source, table.keys, examples[0] if examples else "")
    table.losses = _losses(pipeline, {name for name, _ in table.lanes})


def _losses(pipeline: Pipeline, sources: set[str]) -> tuple[str, ...]:
    known = [formats.load(one.format).ABOUT.losses for one in pipeline.sources if one.name in sources]
    return tuple(dict.fromkeys(loss for losses in known for loss in losses))
