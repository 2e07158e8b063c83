"""The verb that reads tables from the source database itself: ``snapshot``."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output

if TYPE_CHECKING:
    from ingest.source.snapshot import Progress

app = typer.Typer()
_PANEL = "Run"
_TELL_SECONDS = 5.0


@app.command(rich_help_panel=_PANEL)
def snapshot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
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
    """Read whole tables from the source database beside its stream; the next run lands the rows."""
    from ingest.config import load
    from ingest.source import snapshot as reading

    pipeline = load(file)
    chosen = reading.source_of(pipeline, source)
    told = _Teller()
    done = []
    for table in tables:
        one = reading.snapshot(
            pipeline, chosen, table, where=where, parallel=parallel, size=chunk_rows, alone=alone, tell=told
        )
        done.append(
            {
                "table": table,
                "rows": one.rows,
                "chunks": one.chunks,
                "resumed": one.resumed,
                "seconds": round(one.seconds, 1),
                "folder": one.folder,
            }
        )
    if output_as == "json":
        output.json(done)
        return
    names = ("table", "rows", "chunks", "resumed", "seconds", "folder")
    output.table(names, [[row[name] for name in names] for row in done])
    output.follow("run", file)


class _Teller:
    """A line of progress now and then."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        with self.lock:
            if time.monotonic() - self.last < _TELL_SECONDS:
                return
            self.last = time.monotonic()
        output.note(
            f"{progress.table}: {progress.done} of {progress.chunks} chunks, {progress.rows:,} rows, "
            f"{progress.rate:,.0f} rows/s, {progress.left:.0f} s left"
        )
