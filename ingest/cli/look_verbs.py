"""The verbs that look at a lake: tables, status, sql, rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import JarsDir, opened

app = typer.Typer()
_PANEL = "Look"

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]
Limit = Annotated[int, typer.Option(help="At most so many rows.")]


@app.command(rich_help_panel=_PANEL)
def tables(file: File, output_as: Output = "table", jars_dir: JarsDir = None) -> None:
    """Every mirror: its name, path, keys, columns, rows, batch and state."""
    from ingest.cli import look

    with opened(file, jars_dir) as lake:
        rows = look.tables(lake)
    if output_as == "json":
        output.json(rows)
        return
    columns = ("table", "state", "rows", "batch", "version", "keys", "path")
    output.table(columns, [[_flat(row[name]) for name in columns] for row in rows])


@app.command(rich_help_panel=_PANEL)
def status(file: File, output_as: Output = "table", jars_dir: JarsDir = None) -> None:
    """Lag and health of every mirror, what waits for a person, and the next command to type."""
    from ingest.cli import look

    with opened(file, jars_dir) as lake:
        found = look.status(lake)
    if output_as == "json":
        output.json(found)
        return
    output.line(found["headline"])
    columns = ("table", "state", "batch", "newest commit", "lag", "rejected", "message")
    output.table(columns, [[_flat(row[name]) for name in columns] for row in found["tables"]])
    for text in found["problems"]:
        output.line(f"- {text}")
    output.line(f"next: {found['next']}")


@app.command(rich_help_panel=_PANEL)
def sql(
    file: File,
    query: Annotated[str, typer.Argument(help="One SELECT; mirrors as `db`.`t`, product tables by name.")],
    as_of_batch: Annotated[
        int | None, typer.Option(min=1, help="Read each mirror as it was after this batch.")
    ] = None,
    output_as: Output = "table",
    limit: Limit = 0,
    jars_dir: JarsDir = None,
) -> None:
    """Query mirrors and product tables by name."""
    from ingest.cli import look

    with opened(file, jars_dir) as lake:
        columns, rows, behind = look.query_as_of(lake, query, limit, as_of_batch)
    for text in behind:
        output.warning(text)
    if output_as == "json":
        output.json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.table(columns, [[_shown(cell) for cell in row] for row in rows])


def _flat(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _shown(cell: object) -> object:
    return "NULL" if cell is None else cell
