"""The verbs about this machine: ``doctor`` and ``jars fetch``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output

app = typer.Typer()
jars_app = typer.Typer(no_args_is_help=True)
app.add_typer(jars_app, name="jars", help="Get the pinned jars.")

Settings = Annotated[
    str,
    typer.Option(envvar="INGEST_IVY_SETTINGS", help="Your own repository: its URL, or an Ivy settings file."),
]


@app.command()
def doctor(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline file, to check its paths and services too.")
    ] = None,
    output_as: Output = "table",
) -> None:
    """Check Python, Java, jars, paths and services; exit 1 if anything has to be repaired."""
    from ingest.config import load
    from ingest.operate.doctor import examine

    rows = list(examine(load(file) if file else None))
    columns = ("check", "state", "found", "to repair it")
    described = [asdict(row) for row in rows]
    output.answer(
        output_as, described, lambda: output.table(columns, [tuple(row.values()) for row in described])
    )
    output.exit_with(any(row.state != "ok" for row in rows))


@jars_app.command("fetch")
def jars_fetch(
    output_as: Output = "table",
    settings: Settings = "",
    *,
    archive: Annotated[
        bool, typer.Option(help="Also prepare Java's class archive (200 MB), which makes every start faster.")
    ] = True,
) -> None:
    """Get the pinned jars once, each checked by its SHA-256."""
    from ingest.spark import jars

    paths = jars.fetch(settings=settings, say=output.note)
    if archive:
        from ingest.spark.session import prepare

        if not prepare(say=output.note):
            output.note(
                "this Java cannot keep a class archive: starts take some seconds longer, nothing else"
            )
    output.listing([{"file": str(path)} for path in paths], ("file",), output_as)
