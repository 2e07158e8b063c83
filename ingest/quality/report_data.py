"""Gather the report's data from the product's own tables, without Spark, for any number of mirrors.

No mirror is opened: rows, columns and versions are in ``checks``, ``decisions`` and ``runs``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ingest.change import TableId
from ingest.config import Pipeline, TableRule
from ingest.ledgers import mirrors, targets
from ingest.ledgers.books import newest_of, newest_sql
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.rejects import open_sql
from ingest.quality import counts, ddl_ledger, ledgers, queries
from ingest.quality.catalogue import ERROR, FAILED_CHECK, PASS, RECONCILED, with_said
from ingest.quality.report_model import (
    STATEMENT,
    TREND,
    AlarmFact,
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
from ingest.spark.jobs import recorded
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.json_cells import list_in, object_in
from ingest.tables.tables import Row, Tables

SHOWN_DDL, SHOWN_REASONS = 20, 50
_LANE_SQL = '"database", "schema", "table"'
_NO_MIRROR = "~"  # prefix of the name of a checked subject that is not a mirror; no path begins with it


def gather(lake: Tables, only: str = "", trend: int = TREND) -> Facts:
    """Everything that the report shows, as of the last batch that a run has recorded.

    A run records itself last, so nothing of a batch under way is shown. ``only`` is a mirror's name, if the others are not
    needed; ``trend`` is the number of values of each check, and of batches of each mirror, to read.
    """
    pipeline = lake.pipeline
    facts = _begun(lake)
    rules = {path: rule[0] for view in targets.views(lake) for path, rule in mirrors.rules(view).items()}
    tables = {
        path: _table(rules.get(path) or pipeline.rule(mirror.table), mirror)
        for path, mirror in mirrors.known(lake).items()
    }
    _add_lanes(lake, facts, tables)
    facts.books = _books(lake, facts)
    _add_runs(lake, facts, tables, only, trend)
    _add_checks(lake, facts, tables, only, trend)
    _add_ddl(lake, tables, facts.batch)
    facts.rejects = _rejects(lake, facts.batch)
    facts.tables = [tables[path] for path in sorted(tables) if only in ("", tables[path].name)]
    for table in facts.tables:
        _complete(table, pipeline)
    for source in facts.sources:
        for check in source.checks:
            check.asked = partial(queries.of_source, check.check, source.name)
    facts.look()
    return facts


def gather_problems(lake: Tables) -> Facts:
    """What `gather` finds as far as it may be a problem: of many mirrors, most pass most checks.

    Mirrors have no columns, no statements, and of the checks those that do not pass and those whose verdict changes with time.
    """
    facts = _begun(lake)
    tables = {
        path: TableFact(mirror.name, path, mirror.table, keys=mirror.keys)
        for path, mirror in mirrors.known(lake).items()
    }
    _add_lanes(lake, facts, tables)
    _add_runs(lake, facts, tables, "", 1)
    _add_checks(lake, facts, tables, "", 1, only_problems=True)
    facts.tables = [tables[path] for path in sorted(tables)]
    facts.look()
    return facts


def _begun(lake: Tables) -> Facts:
    """A pipeline with its sources, and the newest batch that was checked or whose end a run has recorded."""
    pipeline = lake.pipeline
    facts = Facts(pipeline.name, str(pipeline.file), pipeline.lake, dt.datetime.now(dt.UTC))
    facts.sources = [SourceFact(source.name, source.format) for source in pipeline.sources]
    [newest] = lake.ask(
        "SELECT max(batch) AS batch FROM (SELECT batch FROM {runs} UNION ALL SELECT batch FROM {checks}) AS b"
    )
    facts.batch = newest["batch"]
    return facts


def _ended(batch: int | None) -> str:
    """The condition that a row is of a batch that has ended."""
    return "true" if batch is None else f"(batch IS NULL OR batch <= {batch})"


def _moment(utc: dt.datetime | None) -> dt.datetime | None:
    return None if utc is None else utc.replace(tzinfo=dt.UTC)


# --- mirrors ---


def _table(rule: TableRule, mirror: Mirror) -> TableFact:
    columns = []
    for column in mirror.columns:
        origin = (
            "seen in messages, type not declared" if column.type == "unknown" else "declared by the source"
        )
        if column.name in rule.columns or column.made is not None:
            origin = "declared in the pipeline file"
        columns.append(
            ColumnFact(
                column.name, column.column, column.type, column.delta, origin, column.name in mirror.keys
            )
        )
    return TableFact(mirror.name, mirror.path, mirror.table, keys=mirror.keys, columns=columns)


def _add_lanes(lake: Tables, facts: Facts, tables: dict[str, TableFact]) -> None:
    """Add each table's lanes with their newest commit."""
    ended = _ended(facts.batch)
    lanes = lake.ask(
        f"""SELECT source, {_LANE_SQL}, {newest_sql(facts.now)} AS newest FROM {{books}}
        WHERE {ended} AND "table" IS NOT NULL AND (changes > 0 OR ddl > 0) GROUP BY source, {_LANE_SQL}"""
    )
    gone = mirrors.dropped(lake)
    for row in lanes:
        source = TableId.of(row)
        newest = _moment(row["newest"])
        for mirror in (name for name in mirrors.names(lake.pipeline, source) if str(name) not in gone):
            table = tables.setdefault(
                mirror_path(mirror), TableFact(str(mirror), mirror_path(mirror), mirror)
            )
            table.lanes.append((row["source"], source))
            table.newest = newest_of(filter(None, (table.newest, newest)), facts.now)


def _books(lake: Tables, facts: Facts) -> list[BookFact]:
    """Where messages went in the last batches, the newest first."""
    names = ("messages", *ledgers.PARTS)
    newest_first = lake.ask(
        f"""SELECT batch, source, {duck.sums(names)} FROM {{books}} WHERE {_ended(facts.batch)} GROUP BY batch, source
        ORDER BY batch DESC, source LIMIT {TREND * max(1, len(facts.sources))}"""
    )
    return [BookFact(*row.values()) for row in newest_first]


# --- runs ---


def _add_runs(lake: Tables, facts: Facts, tables: dict[str, TableFact], only: str, trend: int) -> None:
    """Add the last runs, and what each did to which mirror."""
    ended = _ended(facts.batch)
    wanted = f"(r.stage = 'alarm' OR r.subject IS NULL OR r.subject = {duck.text(only)})" if only else "true"
    rows = lake.ask(
        f"""SELECT * FROM (SELECT r.*, row_number() OVER (PARTITION BY r.stage, r.subject ORDER BY r.started_at DESC) AS place
        FROM {{runs}} AS r JOIN (SELECT run, max(started_at) AS began FROM {{runs}} WHERE {ended}
        GROUP BY run ORDER BY began DESC LIMIT {TREND}) AS l ON r.run = l.run
        WHERE {ended.replace("batch", "r.batch")} AND {wanted}) AS q WHERE stage = 'alarm' OR subject IS NULL OR place <= {trend}"""
    )
    by_name = {table.name: table for table in tables.values()}
    runs: dict[str, RunFact] = {}
    for row in sorted(rows, key=lambda row: row["started_at"], reverse=True):
        began = row["started_at"].replace(tzinfo=dt.UTC)
        run = runs.setdefault(row["run"], RunFact(row["run"], began))
        if run.batch is None:  # as alarms have none that the next run looks for again
            run.batch = row["batch"]
        counts = object_in(row["counts"])
        if row["stage"] == "alarm":
            if row["state"] != FAILED_CHECK:  # which are among the checks
                run.alarms.append(AlarmFact(row["message"], row["subject"] or ""))
        elif row["subject"] is None:
            run.counts = counts
            run.seconds[row["stage"]] = row["seconds"]
            if (place := recorded(row)) is not None:
                run.ran[row["stage"]] = place
        elif row["subject"] in by_name:
            seconds, version, message = row["seconds"] or 0.0, row["version"], row["message"] or ""
            batch = BatchFact(row["batch"], row["state"], began, counts, seconds, version, message)
            by_name[row["subject"]].batches.append(batch)
    facts.runs = list(runs.values())


# --- checks ---


def _add_checks(
    lake: Tables,
    facts: Facts,
    tables: dict[str, TableFact],
    only: str,
    trend: int,
    *,
    only_problems: bool = False,
) -> None:
    """Add the newest verdicts of every subject, with their values over the last runs, as far as they hold now."""
    wanted = f"mirror = {duck.text(only)}" if only else "true"
    # an age is judged again by whoever looks
    kept = f"""(state <> '{PASS}' OR "check" = 'freshness')""" if only_problems else "true"
    # two statements may have left a column of one mirror unknown, and each is decided on by itself
    of_verdict = 'mirror, source, "check", "column", statement'
    rows = lake.ask(
        f"""SELECT * FROM (
            SELECT *, min(CASE WHEN passed IS NULL OR checked_at > passed THEN checked_at END) OVER one AS since FROM (
                SELECT {of_verdict}, checked_at, observed, state, severity, threshold, detail, failing, command,
                    max(CASE WHEN state = '{PASS}' THEN checked_at END) OVER one AS passed,
                    max(CASE WHEN "check" <> '{RECONCILED}' THEN checked_at END) OVER (PARTITION BY mirror, source) AS last,
                    max(checked_at) OVER () AS newest
                FROM {{checks}} WHERE {_ended(facts.batch)} AND {wanted}
                WINDOW one AS (PARTITION BY {of_verdict})) AS c
            WINDOW one AS (PARTITION BY {of_verdict})
            QUALIFY row_number() OVER (PARTITION BY {of_verdict}
                ORDER BY checked_at DESC, state = '{PASS}') <= {trend}
        ) AS t WHERE {kept}"""
    )
    trends: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["checked_at"], reverse=True):
        verdict = (row["mirror"], row["source"], row["check"], row["column"], row["statement"])
        trends.setdefault(verdict, []).append(row)
    by_name = {table.name: table for table in tables.values()}
    by_source = {source.name: source for source in facts.sources}
    by_subject: dict[tuple[str | None, str | None], list[list[Row]]] = {}
    for (mirror, source, *_), rows_of in trends.items():
        by_subject.setdefault((mirror, source), []).append(rows_of)
    newest = rows[0]["newest"] if rows else None
    for (mirror, source), group in by_subject.items():
        checks, newest_look = _newest(group)
        subject = by_name.get(mirror or "") or by_source.get(source or "")
        if subject is None and mirror and newest_look == _moment(newest):
            subject = tables[f"{_NO_MIRROR}{mirror}"] = TableFact(mirror)
        if subject is not None:
            subject.checks, subject.checked_at = checks, newest_look
    _count_rejects(lake, tables.values())
    _limit_ages(lake.pipeline, tables.values())


def _count_rejects(lake: Tables, tables: Iterable[TableFact]) -> None:
    """Say of rejected cells and refused changes how many are open now: some may have been dismissed since the checks."""
    counted = set(counts.REFUSED.values())
    waits = [
        table
        for table in tables
        if any(check.check in counted and check.state != PASS for check in table.checks)
    ]
    now = counts.open_refusals(lake) if waits else {}
    for table in waits:
        for i, check in enumerate(table.checks):
            if check.check not in counted or check.state == PASS:
                continue
            if metric := now.get((table.id, check.check, check.column)):
                said = with_said(check.detail, metric.detail)
                table.checks[i] = replace(
                    check, observed=metric.observed, detail=said, failing=metric.failing
                )
            else:
                table.checks[i] = replace(check, state=PASS, observed=0.0, detail="", failing=())


def _limit_ages(pipeline: Pipeline, tables: Iterable[TableFact]) -> None:
    """Give each age the limit that the pipeline file sets now: a quiet table is not checked again when that is written."""
    for table in tables:
        check = table.check("freshness")
        if check is not None:
            check.limit = pipeline.limits(table.id).get("freshness")
            check.state = check.state if check.state == ERROR or check.limit is not None else PASS


def _newest(group: Iterable[list[Row]]) -> tuple[list[CheckFact], dt.datetime]:
    """The verdicts of the last check run; a check that no longer runs is not shown, except the comparison with the
    source.
    """
    listed = list(group)
    last = listed[0][0]["last"] or max(trend[0]["checked_at"] for trend in listed)
    shown = [trend for trend in listed if trend[0]["checked_at"] == last or trend[0]["check"] == RECONCILED]
    facts = [_check(trend) for trend in shown]
    facts.sort(key=lambda fact: (fact.check, fact.column or ""))
    return facts, last.replace(tzinfo=dt.UTC)


def _check(trend: list[Row]) -> CheckFact:
    last = trend[0]
    since = None if last["state"] == PASS else _moment(last["since"])
    values = tuple(row["observed"] or 0.0 for row in reversed(trend))
    limit = None if last["threshold"] is None else float(last["threshold"])
    failing = tuple(list_in(last["failing"]))
    severity, column, detail = last["severity"] or "error", last["column"], last["detail"] or ""
    name, state = last["check"], last["state"]
    statement, command = last["statement"] or "", last["command"] or ""
    return CheckFact(
        name, state, values[-1], severity, limit, column, detail, failing, values, since, statement, command
    )


# --- schema changes and rejects ---


def _add_ddl(lake: Tables, tables: dict[str, TableFact], batch: int | None) -> None:
    waiting = ddl_ledger.pending(ddl_ledger.counting_statements(lake), lake.pipeline)
    newest = lake.ask(
        f"""SELECT batch, {_LANE_SQL}, class, reason, substring(statement, 1, {STATEMENT}) AS statement, event_time
        FROM {{ddl}} WHERE {_ended(batch)} ORDER BY batch DESC, order_key DESC LIMIT 2000"""
    )
    for row in newest:
        source = TableId.of(row)
        for table in map(tables.get, map(mirror_path, mirrors.names(lake.pipeline, source))):
            if table is None or len(table.ddl) >= SHOWN_DDL:
                continue
            statement = row["statement"] or ""
            kind, reason, moment = row["class"] or "", row["reason"] or "", _moment(row["event_time"])
            pending = statement in waiting.get(table.path, ())
            table.ddl.append(DdlFact(row["batch"], statement, kind, reason, moment, pending))


def _rejects(lake: Tables, batch: int | None) -> list[RejectFact]:
    groups = lake.ask(
        f"""SELECT kind, coalesce(reason, '') AS reason, coalesce(source, '') AS source,
        concat_ws('.', {_LANE_SQL}) AS "table", count(*) AS count, coalesce(min(detail), '') AS example,
        coalesce(min(concat_ws(':', topic, CAST("offset" AS VARCHAR))), '') AS place
        FROM ({open_sql(lake)}) AS o WHERE {_ended(batch)} GROUP BY ALL
        ORDER BY count DESC, kind, 2, 3, 4 LIMIT {SHOWN_REASONS}"""
    )
    return [RejectFact(**row) for row in groups]


# --- what follows from the rest ---


def _complete(table: TableFact, pipeline: Pipeline) -> None:
    """Add queries for every check, the dialects' losses, and each column's own losses."""
    table.batches = table.batches[:TREND]
    changed = max((batch.at for batch in table.batches if batch.state == "done"), default=None)
    table.stale = bool(changed and table.checked_at and table.checked_at < changed)
    names = {column.name: column.column for column in table.columns}
    keys = [(key, names.get(key, key)) for key in table.keys]
    source = table.lanes[0][1] if table.lanes else table.id
    examples = [key for check in table.checks for key in check.failing]
    for check in table.checks:
        check.asked = partial(queries.reproduces, check.check, table.id, source, keys, check.column)
    misfits = {check.column: int(check.observed) for check in table.checks if check.check == "cell_rejects"}
    for column in table.columns:
        column.misfits = misfits.get(column.name, column.misfits)
    table.explain = queries.history(source, table.keys, examples[0] if examples else "")
    sources = {name for name, _ in table.lanes}
    losses_of = [source.about.losses for source in pipeline.sources if source.name in sources]
    table.losses = tuple(dict.fromkeys(loss for losses in losses_of for loss in losses))
