"""The verb that reads tables from the source database itself: ``snapshot``."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFile

if TYPE_CHECKING:
    from ingest.source.snapshot import SnapshotProgress

app = typer.Typer()
_PANEL = "Run"
_TELL_SECONDS = 5.0


@app.command(rich_help_panel=_PANEL)
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
    parallel: Annotated[int, typer.Option(min=1, max=64, help="The most connections that read at once.")] = 2,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows of one chunk.")] = 50_000,
    source: Annotated[str, typer.Option(help="The source, where several have a `database:`.")] = "",
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
    tell = _ProgressLine()
    done = []
    for table in tables:
        one = reading.snapshot(
            pipeline, chosen, table, where=where, parallel=parallel, size=chunk_rows, alone=alone, tell=tell
        )
        row = {name: getattr(one, name) for name in ("rows", "chunks", "resumed", "seconds", "folder")}
        done.append({"table": table, **row, "seconds": round(one.seconds, 1)})
    output.listing(done, ("table", "rows", "chunks", "resumed", "seconds", "folder"), output_as)
    if output_as != "json":
        output.follow("run", file)


class _ProgressLine:
    """A line of progress now and then."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, progress: SnapshotProgress) -> None:
        with self.lock:
            if time.monotonic() - self.last < _TELL_SECONDS:
                return
            self.last = time.monotonic()
        output.note(
            f"{progress.table}: {progress.done} of {progress.chunks} chunks, {progress.rows:,} rows, "
            f"{progress.rate:,.0f} rows/s, {progress.left:.0f} s left"
        )
