"""The verb ``reconcile``: mirrors compared with their tables in the source database, row by row."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.progress import SpacedNotes
from ingest.cli.spark import COST, OfSource, Parallel, PipelineFile, looked_at
from ingest.errors import IngestError, command, counted

if TYPE_CHECKING:
    from ingest.change import TableId
    from ingest.config import Pipeline, Source
    from ingest.lake.mirrors import Mirror
    from ingest.lake.tables import Tables
    from ingest.source.reconciled import Reconciled, ReconcileOptions, RowDifference

app = typer.Typer()
_WHAT, _WHEN = "What is compared", "When a difference counts"


@app.command(rich_help_panel="Run")
def reconcile(
    file: PipelineFile,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE...]",
            help="Source tables, named as `ingest tables` prints them; all unless given.",
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample/--full", rich_help_panel=_WHAT, help="Compare one range of twenty, drawn at random."
        ),
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read the rows that differ again; the next run lands them.")
    ] = False,
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="With --repair: land these rows by a run, then compare their tables once more."
        ),
    ] = False,
    settled: Annotated[
        bool,
        typer.Option(
            "--settled",
            rich_help_panel=_WHEN,
            help="Judge at once: the stream has delivered everything that the source holds.",
        ),
    ] = False,
    wait: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=_WHEN, help="Seconds to wait for the stream to pass the first look."
        ),
    ] = 0,
    due: Annotated[
        bool,
        typer.Option(
            "--due",
            rich_help_panel=_WHAT,
            help="Only tables whose last comparison is older than `reconcile_every:`.",
        ),
    ] = False,
    parallel: Parallel = None,
    rows_per_second: Annotated[
        int | None,
        typer.Option(
            min=0,
            rich_help_panel=COST,
            help="The most rows that the source reads in a second; else `rows_per_second:`.",
        ),
    ] = None,
    chunk_rows: Annotated[int, typer.Option(min=1, rich_help_panel=COST, help="Rows of one range.")] = 50_000,
    most: Annotated[int, typer.Option(min=0, help="Rows of each kind that are listed.")] = 20,
    source: OfSource = "",
    output_as: Output = "table",
) -> None:
    """Compare mirrors with their source tables, row by row: 0 equal, 1 they differ, 2 a table could not be compared, 3 some
    rows are still on their way.
    """
    from ingest.config import load
    from ingest.inspect import due as waiting
    from ingest.source import reconcile as comparing
    from ingest.source.database import named
    from ingest.source.reconciled import ReconcileOptions
    from ingest.source.snapshot import source_of

    if run and not repair:
        raise typer.BadParameter("it lands what --repair has read: give --repair, too", param_hint="--run")
    pipeline = load(file)
    chosen = source_of(pipeline, source)
    assert chosen.database is not None
    pace = chosen.database.rows_per_second if rows_per_second is None else rows_per_second
    options = ReconcileOptions(
        pace, parallel or chosen.database.connections, chunk_rows, sample=sample, wait=wait, settled=settled
    )
    with looked_at(file) as lake:
        wanted = [named(chosen.database, table) for table in tables or ()] or comparing.tables_of(
            lake, chosen
        )
        if due:
            wanted = waiting.due(lake, chosen, wanted)
        compared = _Comparisons(lake, chosen, options, most=most, repairs=repair)
        for table in wanted:
            compared.compare(table)
    if run and compared.repaired:
        _land(pipeline)
        with looked_at(file) as lake:
            again = _Comparisons(lake, chosen, replace(options, sample=False), most=most, repairs=False)
            for table in compared.repaired:
                again.compare(table)
            compared = compared.followed_by(again)
    answer = {"tables": [_summary(table) for table in compared.done], "rows": compared.rows}
    output.answer(output_as, answer, compared.show)
    raise typer.Exit(compared.code)


def _land(pipeline: Pipeline) -> None:
    """A run, as `ingest run` makes one; an `IngestError` if it failed."""
    from ingest import run as running
    from ingest.cli.spark import session_for

    with session_for([pipeline], begun=lambda: None) as spark:
        result = running.run(spark, pipeline)
    if result.exit_code:
        raise IngestError(
            f"The rows that differ were read, and the run that should land them failed: `{command('run', pipeline.file)}` "
            "shows why; the same command compares them once more."
        )


@dataclass(slots=True)
class _Comparisons:
    """Comparisons of several tables, and what came of them."""

    lake: Tables
    source: Source
    options: ReconcileOptions
    most: int  # rows of each kind that are listed
    repairs: bool
    done: list[Reconciled] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: bool = False  # a table could not be compared
    repaired: list[TableId] = field(default_factory=list)
    notes: SpacedNotes = field(default_factory=SpacedNotes)

    @property
    def code(self) -> int:
        """The exit code: the worst comes first."""
        if self.failed:
            return 2
        if any(table.differs for table in self.done):
            return 1
        return 3 if any(table.waiting for table in self.done) else 0

    def followed_by(self, again: _Comparisons) -> _Comparisons:
        """These comparisons with second ones in the place of the first of the same tables."""
        for table in again.done:
            if not table.differs and not table.waiting:
                output.note(
                    f"{table.table}: the rows that differed are read and landed, and the mirror is equal"
                )
        tables = {table.id for table in again.done}
        again.done = [table for table in self.done if table.id not in tables] + again.done
        again.failed |= self.failed
        return again

    def compare(self, table: TableId) -> None:
        """Compare a table with each of its mirrors; one that cannot be compared is an error of its own."""
        from ingest.inspect import status as looking
        from ingest.source import reconcile as comparing
        from ingest.source.database import DatabaseError

        def passed(mirror: str) -> dt.datetime | None:
            known = looking.complete(self.lake).get(mirror)
            return known.until if known else None

        for view in comparing.views_of(self.lake, self.source, table):
            try:
                reconciled = comparing.reconcile(
                    view, self.source, table, self.options, passed=passed,
                    tell=lambda progress: self.notes.say(_so_far(progress)),
                )  # fmt: skip
            except IngestError as error:
                # that of a connection names none; all others name their table
                output.error(f"{table}: {error}" if isinstance(error, DatabaseError) else str(error))
                self.failed = True
                continue
            self.done.append(reconciled)
            self._list(reconciled)
            mirror = comparing.mirror_of(view, self.source, table)
            _keep(self.lake, mirror.table, reconciled)
            if self.repairs and reconciled.differences:
                self._repair(reconciled, mirror)

    def _list(self, table: Reconciled) -> None:
        from ingest.source.reconciled import listed

        cause = _causes(self.lake, self.source.name, table)
        chosen = [*listed(table.differences, self.most), *listed(table.not_judged, self.most)]
        file = self.lake.pipeline.file
        self.rows += [_row(file, table, each, each in table.not_judged, cause) for each in chosen]

    def _repair(self, table: Reconciled, mirror: Mirror) -> None:
        from ingest.source.reconcile import repair

        self.repaired += [table.id] if table.id not in self.repaired else []
        keys = [each.key for each in table.differences]
        where, read, gone = repair(self.lake.pipeline, self.source, table.id, mirror, keys)
        output.note(
            f"{table.id}: {counted(read, 'row')} read again, {counted(gone, 'row')} to be deleted, in {where}"
        )

    def show(self) -> None:
        """Print what came of them, and what comes next."""
        names = "table rows ranges equal missing surplus different on_the_way not_judged seconds".split()
        if len({table.table for table in self.done}) < len(self.done):
            names.insert(1, "mirror")
        output.listing([_summary(table) for table in self.done], names)
        for row in self.rows:
            output.line(_sentence(row))
        _advise(self.lake, self.done, repaired=self.repairs)


def _so_far(progress: Reconciled) -> str:
    """How far a table has been compared."""
    return (
        f"{progress.table}: {counted(progress.ranges, 'range')}, {progress.rows:,} of about "
        f"{progress.mirror_rows:,} rows compared, {progress.equal:,} ranges equal"
    )


def _summary(table: Reconciled) -> dict[str, Any]:
    from ingest.source.reconciled import DIFFERENT, MISSING, SURPLUS

    return {
        "table": table.table, "mirror": table.mirror, "rows": table.rows, "mirror_rows": table.mirror_rows,
        "ranges": table.ranges, "equal": table.equal, "missing": table.count(MISSING), "surplus": table.count(SURPLUS),
        "different": table.count(DIFFERENT), "on_the_way": table.on_the_way, "not_judged": table.waiting,
        "columns_lacking": list(table.lacking), "columns_left_out": list(table.left_out), "sampled": table.sampled, "rows_moved": table.fetched,
        "looked_at": table.looked_at or None, "equal_to_source": not table.differs and not table.waiting,
        "seconds": round(table.seconds, 1),
    }  # fmt: skip


def _row(
    file: Path,
    table: Reconciled,
    difference: RowDifference,
    waits: bool,
    cause: Callable[[RowDifference], str],
) -> dict[str, Any]:
    dashes = ["--"] if any(text.startswith("-") for text in difference.key) else []
    return {
        "table": table.table,
        "kind": difference.kind,
        "judged": not waits,
        "key": dict(zip(table.keys, difference.key, strict=True)),
        "cells": {name: {"source": a, "mirror": b} for name, (a, b) in difference.cells.items()},
        "cause": "the stream has not passed this look yet" if waits else cause(difference),
        "explain": command("explain", file, table.mirror, *dashes, *difference.key),
    }


def _sentence(row: dict[str, Any]) -> str:
    key = ", ".join(f"{name}={value}" for name, value in row["key"].items())
    cells = "; ".join(
        f"{name}: source {_shown(each['source'])}, mirror {_shown(each['mirror'])}"
        for name, each in row["cells"].items()
    )
    judged = "" if row["judged"] else " (not judged)"
    return f"{row['kind']}{judged}: {row['table']} {key}{': ' if cells else ''}{cells}. {row['cause']}. {row['explain']}"


def _shown(text: str | None) -> str:
    return "NULL" if text is None else repr(output.short(text, 60))


def _causes(lake: Tables, source: str, table: Reconciled) -> Callable[[RowDifference], str]:
    """What makes a row differ most likely, as far as the lake's own books say."""
    from ingest.gold import approval
    from ingest.inspect import status as looking
    from ingest.lake import decisions, duck, rejects
    from ingest.lake.decisions import ACCEPT_GAP
    from ingest.source.reconciled import SURPLUS

    if not (table.differs or table.waiting):
        return lambda _one: ""
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
        what = "delete of it" if difference.kind == SURPLUS else "message with these values"
        return next(chain(of_row, causes), f"no {what} has come")

    return cause


def _keep(lake: Tables, named: TableId, table: Reconciled) -> None:
    """Write the outcome into `checks`, where the report and the pages find it."""
    from ingest.config import matches
    from ingest.lake import records
    from ingest.lake.schemas import CHECKS
    from ingest.quality.catalogue import CHECKS as KNOWN
    from ingest.quality.catalogue import FAIL, FAILING_KEYS, MAX_DETAIL, PASS, RECONCILED, WARN, key_json

    marks = {
        name: value for name, value in lake.last_marks(CHECKS.name).items() if name not in ("run", "batch")
    }
    batch = marks.get("checked")
    if batch is None:
        batch = lake.ask("SELECT max(batch) AS batch FROM {checks}")[0]["batch"]
    limit = next(
        (
            rule.thresholds.get(RECONCILED, 0.0)
            for rule in lake.pipeline.quality
            if matches(rule.table, named)
        ),
        0.0,
    )
    observed = float(len(table.differences) + len(table.lacking) + sum(table.unkeyed.values()))
    state = FAIL if observed > limit else WARN if table.waiting else PASS
    failing = [
        key_json(table.keys, each.key) for each in (*table.differences, *table.not_judged)[:FAILING_KEYS]
    ]
    row = (
        uuid.uuid4().hex, batch, table.mirror, RECONCILED, None, KNOWN[RECONCILED].severity if state == FAIL else WARN, state,
        observed, repr(limit), _outcome(table)[:MAX_DETAIL], dt.datetime.now(dt.UTC),
        json.dumps(failing, ensure_ascii=False) if failing else None, None,
    )  # fmt: skip
    try:
        records.append(lake, row[0], [row], CHECKS, marks)
    except IngestError as error:
        output.warning(str(error))


def _outcome(table: Reconciled) -> str:
    """The outcome in one sentence."""
    from ingest.source.reconciled import DIFFERENT, MISSING, SURPLUS

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


def _advise(lake: Tables, tables: list[Reconciled], *, repaired: bool) -> None:
    from ingest.gold import approval

    pipeline, file = lake.pipeline, lake.pipeline.file
    pending = (
        {each.mirror for each in approval.listed(lake) if each.pending}
        if any(table.lacking for table in tables)
        else set()
    )
    for table in tables:
        if table.left_out:
            output.note(f"{table.table}: {', '.join(table.left_out)} cannot be compared and was left out")
        for text in _warnings(pipeline, table, waits=table.mirror in pending):
            output.warning(text)
    if any(table.waiting and not table.open_long for table in tables):
        output.note(
            f"Rows that are not judged may be on their way: type the same after `{command('run', file)}`, "
            "or with --settled if nothing is written to the source."
        )
    if repaired and any(table.differences for table in tables):
        output.follow("run", file)
    elif not repaired and any(table.differences for table in tables):
        output.note(f"next: {command('reconcile', file)} with --repair reads these rows again")


def _warnings(pipeline: Pipeline, table: Reconciled, *, waits: bool) -> Iterator[str]:
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
            f"{table.table}: a transaction that writes has been open in its database since before the first look, and a "
            "stream may have changes that no SELECT sees until it is over: end it (pg_stat_activity shows it; in MySQL "
            "information_schema.innodb_trx), or type the same later."
        )
    if table.ahead:
        yield (
            f"{table.table}: the times in its messages are {table.ahead:,.0f} seconds later than its database's clock, so they "
            "do not say which rows have arrived: correct the clock, or type the same with --settled if nothing is on its way."
        )


def _unkeyed(pipeline: Pipeline, table: Reconciled) -> str:
    """What differs of a table without a key, and how its mirror becomes equal."""
    from ingest.source.reconciled import MISSING, SURPLUS

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
