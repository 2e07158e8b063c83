"""The verbs that look at a lake: tables, status, sql, ddl, rejects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import JarsDir, opened

if TYPE_CHECKING:
    from ingest.lake.lake import Lake

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
    output_as: Output = "table",
    limit: Limit = 0,
    jars_dir: JarsDir = None,
) -> None:
    """Query mirrors and product tables by name."""
    from ingest.cli import look

    with opened(file, jars_dir) as lake:
        columns, rows = look.query(lake, query, limit)
    if output_as == "json":
        output.json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.table(columns, [[_shown(cell) for cell in row] for row in rows])


@app.command(rich_help_panel=_PANEL)
def ddl(file: File, output_as: Output = "table", limit: Limit = 0, jars_dir: JarsDir = None) -> None:
    """The DDL ledger: every statement that the sources sent, with its class and its effects."""
    with opened(file, jars_dir) as lake:
        rows = _listed(
            lake,
            "ddl",
            "batch, source, topic, `partition`, `offset`, `database`, `schema`, `table`, class, statement, "
            "reason, effects, event_time, note",
            "order_key",
            limit,
        )
    if output_as == "json":
        output.json(rows)
        return
    output.table(
        ("batch", "table", "class", "statement", "reason"),
        [(row["batch"], _name(row), row["class"], row["statement"], row["reason"]) for row in rows],
    )


@app.command(rich_help_panel=_PANEL)
def rejects(file: File, output_as: Output = "table", limit: Limit = 0, jars_dir: JarsDir = None) -> None:
    """What could not be decoded or did not fit: grouped by reason, or (json) one by one."""
    columns = (
        "source, topic, `partition`, `offset`, batch, stage, kind, `database`, `schema`, `table`, key, "
        "`column`, reason, detail, raw, decoder"
    )
    with opened(file, jars_dir) as lake:
        rows = _listed(lake, "rejects", columns, "batch, source, topic, `partition`, `offset`", limit)
    if output_as == "json":
        output.json(rows)
        return
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["reason"]), []).append(row)
    output.table(
        ("kind", "reason", "count", "for example", "where"),
        [
            (kind, reason, len(found), found[0]["detail"], _where(found[0]))
            for (kind, reason), found in sorted(groups.items())
        ],
    )


def _listed(lake: Lake, table: str, columns: str, order: str, limit: int) -> list[dict[str, Any]]:
    from ingest.cli import look

    if not lake.exists(table):
        return []
    names, rows = look.query(lake, f"SELECT {columns} FROM {table} ORDER BY {order}", limit)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _name(row: dict[str, Any]) -> str:
    return ".".join(row[part] for part in ("database", "schema", "table") if row[part])


def _where(row: dict[str, Any]) -> str:
    if row["topic"] is None:
        return f"{_name(row)} {row['key'] or ''} {row['column'] or ''}".strip()
    return f"{row['topic']}/{row['partition']}/{row['offset']}"


def _flat(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _shown(cell: object) -> object:
    return "NULL" if cell is None else cell
