"""The verb ``snapshot``: whole tables read from the source database itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.progress import SpacedNotes
from ingest.cli.spark import COST, OfSource, Parallel, PipelineFile
from ingest.errors import counted

if TYPE_CHECKING:
    from ingest.source.snapshot import SnapshotProgress

app = typer.Typer()


@app.command(rich_help_panel="Run")
def snapshot(
    file: PipelineFile,
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE...", help="Source tables, named as `ingest tables` prints them."),
    ],
    where: Annotated[
        str,
        typer.Option(
            help="Only rows that fit this condition, in the database's SQL; then nothing is removed."
        ),
    ] = "",
    parallel: Parallel = None,
    chunk_rows: Annotated[int, typer.Option(min=1, rich_help_panel=COST, help="Rows of one chunk.")] = 50_000,
    source: OfSource = "",
    alone: Annotated[
        bool, typer.Option("--alone", help="Read although nothing of the stream has been decoded yet.")
    ] = False,
    output_as: Output = "table",
) -> None:
    """Read whole tables from the source database while its stream goes on; the next run lands the rows."""
    from ingest.config import load
    from ingest.source import snapshot as reading

    pipeline = load(file)
    chosen = reading.source_of(pipeline, source)
    assert chosen.database is not None
    parallel = parallel or chosen.database.connections
    notes, done = SpacedNotes(), []
    for table in tables:
        taken = reading.snapshot(
            pipeline, chosen, table, where=where, parallel=parallel, size=chunk_rows, alone=alone,
            tell=lambda progress: notes.say(_so_far(progress)),
        )  # fmt: skip
        row = {name: getattr(taken, name) for name in ("rows", "chunks", "resumed", "seconds", "folder")}
        warnings = list(dict.fromkeys(taken.warnings))
        done.append({"table": table, **row, "seconds": round(taken.seconds, 1), "warnings": warnings})
        for text in warnings:
            output.warning(text)
    output.listing(done, ("table", "rows", "chunks", "resumed", "seconds", "folder"), output_as)
    output.follow("run", file)


def _so_far(progress: SnapshotProgress) -> str:
    """How far a table has been read."""
    return (
        f"{progress.table}: {progress.done} of {counted(progress.chunks, 'chunk')}, {counted(progress.rows, 'row')}, "
        f"{progress.rate:,.0f} rows/s, {progress.left:.0f} s left"
    )
