"""The verb ``reconcile``: mirrors compared with their tables in the source database, row by row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
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
    from ingest.ledgers.mirrors import Mirror
    from ingest.source.reconciled import Reconciled, ReconcileOptions
    from ingest.tables.tables import Tables

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
    from ingest.operate.reconciliation import summary
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
        compared = _Comparisons(lake, chosen, options, most=most, repairs=repair, scheduled=due)
        for table in wanted:
            compared.compare(table)
    if run and compared.repaired:
        _land(pipeline)
        with looked_at(file) as lake:
            again = _Comparisons(lake, chosen, replace(options, sample=False), most=most, repairs=False)
            for table in compared.repaired:
                again.compare(table)
            compared = compared.followed_by(again)
    answer = {"tables": [summary(table) for table in compared.done], "rows": compared.rows}
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
    scheduled: bool = (
        False  # by `reconcile_every:`, so a mirror that cannot be compared is no error each time
    )
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
        from ingest.config import target
        from ingest.inspect import status as looking
        from ingest.ledgers import schedules
        from ingest.operate.reconciliation import keep
        from ingest.source import reconcile as comparing
        from ingest.source.database import DatabaseError
        from ingest.source.reconciled import IncomparableError

        def passed(mirror: str) -> dt.datetime | None:
            completeness = looking.complete(self.lake).get(mirror)
            return completeness.until if completeness else None

        for view in comparing.views_of(self.lake, self.source, table):
            try:
                reconciled = comparing.reconcile(
                    view, self.source, table, self.options, passed=passed,
                    tell=lambda progress: self.notes.say(_so_far(progress)),
                )  # fmt: skip
            except IncomparableError as error:
                name = str(target(view.pipeline.rule(table), table))
                self._keep(partial(schedules.refuse, self.lake, name, str(error)))
                (output.note if self.scheduled else output.error)(str(error))
                self.failed |= not self.scheduled
                continue
            except IngestError as error:
                # that of a connection names none; all others name their table
                output.error(f"{table}: {error}" if isinstance(error, DatabaseError) else str(error))
                self.failed = True
                continue
            self.done.append(reconciled)
            self._list(reconciled)
            mirror = comparing.mirror_of(view, self.source, table)
            self._keep(partial(keep, self.lake, mirror.table, reconciled))
            if self.repairs and reconciled.differences:
                self._repair(reconciled, mirror)

    def _keep(self, outcome: Callable[[], None]) -> None:
        """Keep what came of a comparison; a store that does not take it is a warning."""
        try:
            outcome()
        except IngestError as error:
            output.warning(str(error))

    def _list(self, table: Reconciled) -> None:
        from ingest.operate.reconciliation import causes, described
        from ingest.source.reconciled import listed

        cause = causes(self.lake, self.source.name, table)
        chosen = [*listed(table.differences, self.most), *listed(table.not_judged, self.most)]
        file = self.lake.pipeline.file
        self.rows += [described(file, table, each, each in table.not_judged, cause) for each in chosen]

    def _repair(self, table: Reconciled, mirror: Mirror) -> None:
        from ingest.source.reconcile import repair

        self.repaired += [table.id] if table.id not in self.repaired else []
        where, read, gone = repair(self.lake.pipeline, self.source, table.id, mirror, table.differences)
        output.note(
            f"{table.id}: {counted(read, 'row')} read again, {counted(gone, 'row')} to be deleted, in {where}"
        )

    def show(self) -> None:
        """Print what came of them, and what comes next."""
        from ingest.operate.reconciliation import summary

        names = "table rows ranges equal missing surplus different on_the_way not_judged seconds".split()
        if len({table.table for table in self.done}) < len(self.done):
            names.insert(1, "mirror")
        output.listing([summary(table) for table in self.done], names)
        for row in self.rows:
            output.line(_sentence(row))
        _advise(self.lake, self.done, repaired=self.repairs)


def _so_far(progress: Reconciled) -> str:
    """How far a table has been compared."""
    return (
        f"{progress.table}: {counted(progress.ranges, 'range')}, {progress.rows:,} of about "
        f"{counted(progress.mirror_rows, 'row')} compared, {counted(progress.equal, 'range')} equal"
    )


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


def _advise(lake: Tables, tables: list[Reconciled], *, repaired: bool) -> None:
    from ingest.gold import approval
    from ingest.operate.reconciliation import warnings

    pipeline, file = lake.pipeline, lake.pipeline.file
    pending = (
        {each.mirror for each in approval.listed(lake) if each.pending}
        if any(table.lacking for table in tables)
        else set()
    )
    for table in tables:
        if table.left_out:
            output.note(f"{table.table}: {', '.join(table.left_out)} cannot be compared and was left out")
        for text in warnings(pipeline, table, waits=table.mirror in pending):
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
