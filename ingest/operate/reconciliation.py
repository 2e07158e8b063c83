"""What came of comparing mirrors with their source: the outcome in `checks`, likely causes, and what to do about it."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.errors import command, counted, explain_command
from ingest.gold import approval
from ingest.inspect import status as looking
from ingest.ledgers import decisions, rejects
from ingest.ledgers.decisions import ACCEPT_GAP
from ingest.quality.catalogue import CHECKS as KNOWN
from ingest.quality.catalogue import FAIL, FAILING_KEYS, MAX_DETAIL, PASS, RECONCILED, WARN, key_json
from ingest.source.database import HOW_IT_ENDS
from ingest.source.reconciled import DIFFERENT, MISSING, SURPLUS, Reconciled, RowDifference
from ingest.tables import duck, records
from ingest.tables.schemas import CHECKS
from ingest.tables.tables import Tables


def summary(table: Reconciled) -> dict[str, Any]:
    """The numbers of one comparison, as JSON has them."""
    return {
        "table": table.table, "mirror": table.mirror, "rows": table.rows, "mirror_rows": table.mirror_rows,
        "ranges": table.ranges, "equal": table.equal, "missing": table.count(MISSING), "surplus": table.count(SURPLUS),
        "different": table.count(DIFFERENT), "on_the_way": table.on_the_way, "not_judged": table.waiting,
        "columns_lacking": list(table.lacking), "columns_left_out": list(table.left_out), "sampled": table.sampled, "rows_moved": table.fetched,
        "looked_at": table.looked_at or None, "equal_to_source": not table.differs and not table.waiting,
        "seconds": round(table.seconds, 1),
    }  # fmt: skip


def described(
    file: Path,
    table: Reconciled,
    difference: RowDifference,
    waits: bool,
    cause: Callable[[RowDifference], str],
) -> dict[str, Any]:
    """A row that differs, as JSON has it; ``waits``: the stream has not passed the look yet."""
    return {
        "table": table.table,
        "kind": difference.kind,
        "judged": not waits,
        "key": dict(zip(table.keys, difference.key, strict=True)),
        "cells": {name: {"source": a, "mirror": b} for name, (a, b) in difference.cells.items()},
        "cause": "the stream has not passed this look yet" if waits else cause(difference),
        "explain": explain_command(file, table.mirror, difference.key),
    }


def causes(lake: Tables, source: str, table: Reconciled) -> Callable[[RowDifference], str]:
    """What makes a row differ most likely, as far as the lake's own books say."""
    if not (table.differs or table.waiting):
        return lambda _difference: ""
    file = lake.pipeline.file
    state = next((entry for entry in looking.tables(lake) if entry["table"] == table.mirror), None)
    waiting = lake.ask(
        f'SELECT kind, "database", "schema", "table", "column", count(*) AS n FROM ({rejects.open_sql(lake)}) AS o '
        f"WHERE source = {duck.text(source)} GROUP BY ALL"
    )
    cells = {
        row["column"]
        for row in waiting
        if row["kind"] == "cell"
        and ".".join(filter(None, (row["database"], row["schema"], row["table"]))) == table.mirror
    }
    messages = sum(row["n"] for row in waiting if row["kind"] == "message")
    pending = any(entry.pending and entry.mirror == table.mirror for entry in approval.listed(lake))
    gap = any(True for _ in decisions.read(lake).of(ACCEPT_GAP, subject=source))
    undecoded = counted(messages, "message")
    # what may be the cause for any row of the table
    of_table = {
        f"a statement waits for a decision: {command('ddl', file)}": pending,
        f"{undecoded} of {source} could not be decoded: {command('rejects', file)}": messages > 0,
        f"messages of {source} are lost, and the gap was accepted": gap,
    }
    causes = [text for text, holds in of_table.items() if holds]
    if state is not None and state["state"] != "ok":
        causes.insert(0, f"the mirror is {state['state']}: {state['message']}")

    def cause(difference: RowDifference) -> str:
        of_row = (
            f"a value of {name} does not fit its column: {command('rejects', file)}"
            for name, (_, mirror) in difference.cells.items()
            if mirror is None and name in cells
        )
        if len(difference.written) > 1:
            texts = " and ".join(", ".join(written) for written in difference.written)
            return f"the mirror has several rows of this key, which it writes {texts}"
        what = "delete of it" if difference.kind == SURPLUS else "message with these values"
        return next(chain(of_row, causes), f"no {what} has come")

    return cause


def keep(lake: Tables, named: TableId, table: Reconciled) -> None:
    """Write the outcome into `checks`, where the report and the pages find it.

    Raises:
        IngestError: the store does not take it.
    """
    marks = {
        name: value for name, value in lake.last_marks(CHECKS.name).items() if name not in ("run", "batch")
    }
    batch = marks.get("checked")
    if batch is None:
        batch = lake.ask("SELECT max(batch) AS batch FROM {checks}")[0]["batch"]
    limit = lake.pipeline.limits(named).get(RECONCILED, 0.0)
    observed = float(len(table.differences) + len(table.lacking) + sum(table.unkeyed.values()))
    state = FAIL if observed > limit else WARN if table.waiting else PASS
    failing = [
        key_json(table.keys, each.key) for each in (*table.differences, *table.not_judged)[:FAILING_KEYS]
    ]
    run = uuid.uuid4().hex
    row: dict[str, object] = {
        "run": run,
        "batch": batch,
        "mirror": table.mirror,
        "check": RECONCILED,
        "severity": KNOWN[RECONCILED].severity if state == FAIL else WARN,
        "state": state,
        "observed": observed,
        "threshold": repr(limit),
        "detail": _outcome(table)[:MAX_DETAIL],
        "checked_at": dt.datetime.now(dt.UTC),
        "failing": json.dumps(failing, ensure_ascii=False) if failing else None,
    }
    records.append(lake, run, [[row.get(name) for name in CHECKS.arrow.names]], CHECKS, marks)


def _outcome(table: Reconciled) -> str:
    """The outcome in one sentence."""
    compared = f"{counted(table.rows, 'row')} {'' if table.keys else 'without a key '}in {'a sample of ' if table.sampled else ''}{counted(table.ranges, 'range')}"
    parts = [f"{compared} were compared with the source, {counted(table.equal, 'range')} equal"]
    parts += [
        f"{counted(n, 'row')} {kind}" for kind in (MISSING, SURPLUS, DIFFERENT) if (n := table.count(kind))
    ]
    if table.lacking:
        parts.append(f"without {', '.join(table.lacking)}, which the mirror lacks")
    if table.left_out:
        parts.append(f"without {', '.join(table.left_out)}, which cannot be compared")
    if table.waiting:
        parts.append(
            f"{counted(table.waiting, 'row')} not judged, because the stream has not passed {table.looked_at}"
        )
    return ", ".join(parts)


def warnings(pipeline: Pipeline, table: Reconciled, *, waits: bool) -> Iterator[str]:
    """What keeps the comparison of a table from being whole; ``waits``: a statement of its mirror does."""
    if table.lacking:
        end = (
            f"`{command('ddl', pipeline.file)}` shows what waits."
            if waits
            else f"They come with the next change that has them, or by `{command('snapshot', pipeline.file, table.table)}`."
        )
        yield (
            f"The mirror {table.mirror} lacks columns that its table {table.table} has: {', '.join(table.lacking)}; "
            f"they were not compared. {end}"
        )
    if table.unkeyed:
        yield _unkeyed(pipeline, table)
    if table.open_long:
        yield (
            f"{table.table}: a transaction that writes has been open in its database since before the first look, or a "
            "replica under `database:` has not come in time to where its primary was, and a stream may have changes that no "
            f"SELECT sees until that is over: end it ({HOW_IT_ENDS}), or type the same later."
        )
    if table.ahead:
        yield (
            f"{table.table}: the times in its messages are {counted(round(table.ahead), 'second')} later than its database's clock, so they "
            "do not say which rows have arrived: correct the clock, or type the same with --settled if nothing is on its way."
        )


def _unkeyed(pipeline: Pipeline, table: Reconciled) -> str:
    """What differs of a table without a key, and how its mirror becomes equal."""
    counts = f"{table.unkeyed.get(MISSING, 0):,} of the source are not in the mirror, and {table.unkeyed.get(SURPLUS, 0):,} of the mirror not in the source"
    steps = " and ".join(
        f"`{command(verb, pipeline.file, *more)}`" for verb, *more in (("snapshot", table.table), ("run",))
    )
    append = ""
    if pipeline.rule(table.id).no_key == "append":
        append = " With `no_key: append` a mirror keeps rows that are updated or deleted; with `no_key: full_row` it follows them."
    return (
        f"{table.table} has no key, so its rows were compared by all their values: {counts}. No single row can be read again: "
        f"{steps} read the whole table, while nothing writes to it.{append}"
    )
