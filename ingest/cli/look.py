"""What the looking verbs gather from a lake, as plain values."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.change import TableId
from ingest.cli.registering import Field, Registered
from ingest.errors import IngestError, command, counted, first_line
from ingest.gold import approval, history
from ingest.gold import fidelity as fidelities
from ingest.lake import asof, decoded_with, faults, rejects
from ingest.lake import mirrors as known_mirrors
from ingest.lake.lake import Lake
from ingest.lake.log import NO_TABLE
from ingest.lake.mirrors import Mirror
from ingest.lake.names import MIRRORS, literal
from ingest.lake.query import refuse_commands, rewrite
from ingest.lake.schemas import ALL, BOOKS, RUNS
from ingest.values import fraction


def tables(lake: Lake) -> list[dict[str, Any]]:
    """One entry per mirror, held ones without a table and tables of old states included."""
    mirrors = known_mirrors.known(lake)
    runs = _last_runs(lake)
    beside = _histories(lake, mirrors.values())
    rows = _row_counts(lake, [*mirrors.values(), *beside.values()])
    found = [
        _entry(lake, beside[path], runs.get(one.name, {}), rows.get(beside[path].path))
        for path, one in mirrors.items()
        if path in beside
    ]
    found += [
        _entry(lake, mirror, runs.pop(mirror.name, {}), rows.get(mirror.path)) for mirror in mirrors.values()
    ]
    found.extend(_held(name, run) for name, run in runs.items())
    return sorted(found, key=lambda one: one["table"])


def named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The entry of that name, of the mirror if a table of old states has the same one.

    Raises:
        IngestError: there is none.
    """
    found = [one for one in entries if one["table"] == name]
    if not found:
        listed = ", ".join(sorted({one["table"] for one in entries})) or "none yet: run the pipeline first"
        raise IngestError(f"There is no mirror {name}; there are {listed}.")
    return found[-1]


def fidelity(lake: Lake, name: str) -> list[dict[str, Any]]:
    """How exactly a mirror's columns hold what was sent; nothing for a table that is no mirror."""
    return [
        {"column": one.column, "logical": one.type, "type": one.delta}
        | {count: one.counts[count] for count in fidelities.COUNTS}
        for mirror in known_mirrors.known(lake).values()
        if mirror.name == name
        for one in fidelities.of_mirror(lake, mirror)
    ]


def _histories(lake: Lake, mirrors: Iterable[Mirror]) -> dict[str, Mirror]:
    """The tables of old states that there are, by their mirrors' paths."""
    if not any(rule.history for rule in lake.pipeline.tables):
        return {}
    beside = {one.path: history.table_of(one) for one in mirrors if one.keys}
    return {path: table for path, table in beside.items() if _exists(lake, table.path)}


def _entry(lake: Lake, mirror: Mirror, run: dict[str, Any], rows: int | None) -> dict[str, Any]:
    try:
        snapshot = lake.snapshot(mirror.path)
        if rows is None and snapshot.exists:
            lake.read(mirror.path).count()
    except Exception as error:  # one damaged table must not hide how the others are
        told = faults.of_mirror(error, lake.pipeline.file, mirror.name, lake.path(mirror.path))
        snapshot, run = NO_TABLE, {"state": "damaged", "message": told}
    have = snapshot.transactions.get(lake.writer("gold", mirror.path, mirror.generation))
    is_mirror = mirror.path.startswith(MIRRORS)  # old states may be left as they are
    if is_mirror and run.get("state") == "done" and (have or 0) < (run.get("batch") or 0):
        told = f"batch {run['batch']} was folded and its table holds {f'batch {have}' if have else 'none'}"
        run = {
            "state": "failed",
            "message": f"{told}: `{command('retry', lake.pipeline.file)}` folds the rest again",
        }
    return {
        "table": mirror.name,
        "path": lake.path(mirror.path),
        "keys": list(mirror.keys),
        "columns": [{"name": one.column, "source": one.name, "type": one.delta} for one in mirror.columns],
        "rows": rows,
        "batch": have,
        "version": snapshot.version if snapshot.exists else None,
        "state": _state(run),
        "message": run.get("message") or "",
    }


def _held(name: str, run: dict[str, Any]) -> dict[str, Any]:
    return {
        "table": name,
        "path": None,
        "keys": [],
        "columns": [],
        "rows": None,
        "batch": None,
        "version": None,
        "state": _state(run),
        "message": run.get("message") or "",
    }


def _state(run: dict[str, Any]) -> str:
    state = run.get("state", "done")
    return "ok" if state == "done" else str(state)


def _last_runs(lake: Lake) -> dict[str, dict[str, Any]]:
    """The newest gold row of `runs` for each mirror."""
    if not lake.exists(RUNS.name):
        return {}
    newest = F.max_by(F.struct("state", "message", "batch", "started_at"), F.struct("started_at", "batch"))
    rows = (
        lake.read(RUNS.name)
        .where((F.col("stage") == "gold") & F.col("subject").isNotNull())
        .groupBy("subject")
        .agg(newest.alias("run"))
        .collect()
    )
    return {row["subject"]: row["run"].asDict() for row in rows}


def _row_counts(lake: Lake, mirrors: list[Mirror]) -> dict[str, int]:
    """Rows of every mirror in one query, which Delta answers from its log."""
    there = [one for one in mirrors if _exists(lake, one.path)]
    if not there:
        return {}
    counts = " UNION ALL ".join(
        f"SELECT {literal(one.path)} AS path, count(*) AS rows FROM {lake.named(one.path)}" for one in there
    )
    try:
        return {row["path"]: row["rows"] for row in lake.spark.sql(counts).collect()}
    except Exception:
        if len(there) == 1:
            return {}
    return {path: rows for one in there for path, rows in _row_counts(lake, [one]).items()}


def _exists(lake: Lake, path: str) -> bool:
    """True if there is a table that can be opened."""
    try:
        return lake.exists(path)
    except Exception:
        return False


def registered(lake: Lake) -> list[Registered]:
    """Every mirror as an engine's catalog needs it, with the columns and comments that its table has."""
    known = known_mirrors.known(lake)
    runs = _last_runs(lake)
    found = [_registered(lake, one, {}) for one in _histories(lake, known.values()).values()]
    found += [_registered(lake, one, runs.pop(one.name, {})) for one in known.values()]
    found += [Registered(TableId(None, None, name), why=_absent(run)) for name, run in runs.items()]
    return sorted(found, key=lambda one: str(one.table))


def _registered(lake: Lake, mirror: Mirror, run: dict[str, Any]) -> Registered:
    if not lake.exists(mirror.path):
        return Registered(mirror.table, why=_absent(run))
    schema = lake.read(mirror.path).schema
    decided = {one.column: one for one in mirror.columns}
    fields = []
    for one in schema.fields:
        column = decided.get(one.name)
        source = (column.name, column.type) if column else (one.name, "unknown")
        comment = str(one.metadata.get("comment", ""))
        fields.append(Field(one.name, one.dataType.simpleString().upper(), *source, comment))
    states = mirror.path.startswith(history.FOLDER)
    return Registered(mirror.table, lake.path(mirror.path), tuple(fields), mirror.keys, states=states)


def _absent(run: dict[str, Any]) -> str:
    return f"there is no table yet ({_state(run)}: {run.get('message') or 'no row has been folded'})"


# --- status -------------------------------------------------------------------------------------


def status(lake: Lake) -> dict[str, Any]:
    """The health of a lake: one line per mirror, the problems in words, the next command."""
    entries = tables(lake)
    lanes = _lanes(lake)
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    rows = []
    for entry in entries:
        lane = lanes.get(entry["table"], {})
        newest = lane.get("event_high")
        rows.append(
            {
                "table": entry["table"],
                "state": entry["state"],
                "batch": entry["batch"],
                "newest commit": None if newest is None else _zoneless(newest) + "Z",
                "lag": None if newest is None else _span(now - newest),
                "lag_seconds": None if newest is None else int((now - newest).total_seconds()),
                "rows": entry["rows"],
                "rejected": lane.get("rejected", 0),
                "message": entry["message"],
            }
        )
    waiting, statements = _open_rejects(lake), sum(one.pending for one in approval.listed(lake))
    problems = _problems(rows, waiting, statements, lake)
    bad = [row for row in rows if row["state"] != "ok"]
    headline = (
        f"{lake.pipeline.name}: {len(rows) - len(bad)} of {len(rows)} mirrors are up to date with batch "
        f"{lake.decoded()}."
    )
    return {
        "pipeline": lake.pipeline.name,
        "headline": headline,
        "tables": rows,
        "problems": problems,
        "open_rejects": waiting,
        "pending_statements": statements,
        "last_run": _last_run(lake),
        "next": _next(lake, bad, waiting, statements),
    }


_ADVISED = re.compile(r"`(?:ingest )?(ddl|rebuild|epoch|maintain|backfill|resume|accept-gap)\b[^`]*`")


def _next(lake: Lake, bad: list[dict[str, Any]], waiting: dict[str, int], statements: int) -> str:
    """The words that lead out of the first trouble; a held mirror's own message knows them best."""
    file = lake.pipeline.file
    if not bad:
        return command("ddl" if statements else "rejects" if waiting else "run", file)
    worst = bad[0]
    if worst["state"] == "paused":
        return command("resume", file, worst["table"])
    if worst["state"] == "damaged":
        return command("rebuild", file, worst["table"])
    if advised := _ADVISED.search(worst["message"]):
        verb = advised[1]
        return command(verb, file, worst["table"]) if verb in ("rebuild", "resume") else command(verb, file)
    if worst["state"] == "held":
        return f"{command('retry', file)} (after {file} says what the message asks for)"
    return command("retry", file)


def _last_run(lake: Lake) -> dict[str, Any] | None:
    """When the newest run that did anything ended, how long it took and whether something failed."""
    if not lake.exists(RUNS.name):
        return None
    stages = F.sum(F.when(F.col("subject").isNull(), F.col("seconds")))
    failed = F.max(F.col("state").isin("failed", "held", "alarm"))
    found = (
        lake.read(RUNS.name)
        .groupBy("run")
        .agg(F.max("started_at").alias("at"), stages.alias("seconds"), failed.alias("failed"))
        .orderBy(F.col("at").desc())
        .first()
    )
    if found is None:
        return None
    return {"ended": _zoneless(found["at"]) + "Z", "seconds": found["seconds"], "failed": found["failed"]}


def _lanes(lake: Lake) -> dict[str, dict[str, Any]]:
    if not lake.exists(BOOKS.name):
        return {}
    rows = (
        lake.read(BOOKS.name)
        .where(F.col("table").isNotNull())
        .groupBy("database", "schema", "table")
        .agg(F.max("event_high").alias("event_high"), F.sum("rejected").alias("rejected"))
        .collect()
    )
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        source = TableId(row["database"], row["schema"], row["table"])
        name = str(known_mirrors.target(lake.pipeline.rule(source), source))
        kept = found.setdefault(name, {"event_high": None, "rejected": 0})
        times = [one for one in (kept["event_high"], row["event_high"]) if one is not None]
        kept["event_high"] = max(times, default=None)
        kept["rejected"] += row["rejected"]
    return found


def _open_rejects(lake: Lake) -> dict[str, int]:
    """The rejects that wait, by kind."""
    waiting = rejects.still_open(lake)
    if waiting is None:
        return {}
    return {row["kind"]: row["count"] for row in waiting.groupBy("kind").count().orderBy("kind").collect()}


def _problems(rows: list[dict[str, Any]], waiting: dict[str, int], statements: int, lake: Lake) -> list[str]:
    problems = [f"{row['table']} is {row['state']}: {row['message']}" for row in rows if row["state"] != "ok"]
    problems += [_rejected(kind, count) for kind, count in waiting.items()]
    problems += [known_mirrors.outdated_text(lake, one) for one in known_mirrors.outdated(lake)]
    if statements:
        wait = "waits" if statements == 1 else "wait"
        problems.append(
            f"{counted(statements, 'statement')} {wait} for a decision: {command('ddl', lake.pipeline.file)}"
        )
    newest = lake.decoded()
    return problems + [one.sentence(lake.pipeline, newest) for one in decoded_with.outdated(lake, newest)]


def _rejected(kind: str, count: int) -> str:
    one = count == 1
    return {
        "message": f"{counted(count, 'message')} could not be decoded; "
        f"{'it' if one else 'each'} may belong to any table",
        "cell": f"{counted(count, 'cell')} did not fit {'its' if one else 'their'} column",
    }.get(kind, f"{counted(count, 'change')} {'was' if one else 'were'} refused")


def _span(span: dt.timedelta) -> str:
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


# --- queries ------------------------------------------------------------------------------------


def query(lake: Lake, text: str, limit: int = 0) -> tuple[list[str], list[list[Any]]]:
    """Run one query by names; every cell comes back as a JSON value without loss.

    Raises:
        IngestError: the query is none, names no table, or Spark refuses it.
    """
    return query_as_of(lake, text, limit, None)[:2]


def query_as_of(
    lake: Lake, text: str, limit: int, batch: int | None
) -> tuple[list[str], list[list[Any]], list[str]]:
    """Run one query over the mirrors as they were after a batch; the last list names those that are behind.

    Raises:
        IngestError: as for `query`, or a version that the log no longer holds.
    """
    found, behind = frame(lake, text, batch)
    try:
        if limit:
            found = found.limit(limit)
        names = found.columns
        rows = _exact(found).collect()
    except PySparkException as error:
        raise IngestError(f"Spark refuses the query: {_said(error)}") from None
    kinds = [field.dataType for field in found.schema.fields]
    return names, [[_json(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in rows], behind


def frame(lake: Lake, text: str, batch: int | None) -> tuple[DataFrame, list[str]]:
    """One query by names as a data frame, now or as of a batch, and which mirrors do not hold all of the batch.

    Raises:
        IngestError: the query is none, names no table, or Spark refuses it.
    """
    behind: list[str] = []
    if batch is None:
        known = known_mirrors.known(lake).values()
        # Later names win: a mirror keeps its name, whatever lies beside others.
        mirrors = {one.table: lake.named(one.path) for one in [*_histories(lake, known).values(), *known]}
    else:
        pinned = asof.mirrors(lake, batch)
        histories = _histories(lake, [one.mirror for one in pinned.values()])
        mirrors = {
            table: f"{lake.named(one.mirror.path)} VERSION AS OF {one.version}"
            for table, one in (asof.beside(lake, batch, pinned.values(), histories) | pinned).items()
            if one.version is not None
        }
        behind = asof.complaints(pinned, batch)
    products = {one.name: lake.named(one.name) for one in ALL if lake.exists(one.name)}
    try:
        given = rewrite(text, mirrors, products, lake.pipeline.lake)
        refuse_commands(lake.spark, given)
        return lake.spark.sql(given), behind
    except PySparkException as error:
        raise IngestError(" ".join([f"Spark refuses the query: {_said(error)}", *behind])) from None
    except IngestError as error:
        raise IngestError(" ".join([str(error), *behind])) from None


def _said(error: PySparkException) -> str:
    """What Spark says, without the names that it has for it."""
    return re.sub(r"^\[[A-Z0-9_.]+\] | SQLSTATE: .*$", "", first_line(error))[:500]


def _exact(frame: DataFrame) -> DataFrame:
    """Instants and floats as Spark's own text: Python would shift the one and widen the other."""
    columns: list[Column] = []
    for position, field in enumerate(frame.schema.fields):
        name = f"_{position}"
        columns.append(F.col(name).cast("string") if _as_text(field.dataType) else F.col(name))
    return frame.toDF(*[f"_{position}" for position in range(len(frame.columns))]).select(*columns)


def _as_text(kind: T.DataType) -> bool:
    return isinstance(kind, T.TimestampType | T.FloatType | T.DoubleType | T.TimestampNTZType | T.DateType)


def _json(cell: Any, kind: T.DataType) -> Any:
    if cell is None:
        return None
    if isinstance(kind, T.FloatType | T.DoubleType):
        return msgspec.Raw(cell.encode()) if math.isfinite(float(cell)) else cell
    if isinstance(kind, T.TimestampType):
        return _fractioned(cell.replace(" ", "T")) + "Z"
    if isinstance(kind, T.TimestampNTZType):
        return _fractioned(cell)
    if isinstance(cell, T.Row):
        return {name: _nested(value) for name, value in cell.asDict().items()}
    return _nested(cell) if isinstance(cell, dict | list) else cell


def _nested(value: Any) -> Any:
    if isinstance(value, T.Row):
        return {name: _nested(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): _nested(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_nested(item) for item in value]
    if isinstance(value, dt.datetime):
        return _zoneless(value)
    return value


def _fractioned(text: str) -> str:
    whole, _, digits = text.partition(".")
    return whole + fraction(digits)


def _zoneless(moment: dt.datetime) -> str:
    return _fractioned(moment.isoformat("T"))
