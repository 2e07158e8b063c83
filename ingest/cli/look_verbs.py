"""The verbs that look at a lake: tables, sql, explain, wait."""

from __future__ import annotations

import datetime as dt
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import MirrorName, PipelineFile, looked_at, opened
from ingest.errors import ConfigError

if TYPE_CHECKING:
    from ingest.gold.complete_until import Complete
    from ingest.inspect.query import QueryAnswer
    from ingest.tables.lake import Lake

app = typer.Typer()
_PANEL = "Look"
NOT_YET = 3  # the exit code of `wait` that means: try again later


@app.command(rich_help_panel=_PANEL)
def tables(
    file: PipelineFile,
    output_as: Annotated[
        Literal["table", "json", "sql", "dbt"],
        typer.Option(
            "--output",
            "-o",
            help="table, json, SQL that registers the mirrors in another engine, or a sources.yml for dbt.",
        ),
    ] = "table",
    dialect: Annotated[
        Literal["spark", "duckdb", "trino"],
        typer.Option(help="Whose SQL and names, with --output sql or dbt."),
    ] = "spark",
    table: Annotated[
        str, typer.Option(help="Only this one, with what became of the cells sent for each column.")
    ] = "",
) -> None:
    """Every mirror, history table and change feed: its name, path, keys, columns, rows, batch and state."""
    from ingest.inspect import status as looking
    from ingest.operate import catalog_sql

    if table and output_as in ("sql", "dbt"):
        raise ConfigError([f"--table cannot be used with --output {output_as}: a catalog wants every mirror"])
    with looked_at(file) as lake:
        if output_as == "sql":
            output.text(catalog_sql.sql(dialect, catalog_sql.registered(lake)))
            return
        if output_as == "dbt":
            from ingest.operate import catalog_dbt  # with the limits of checks, and so with Arrow

            listed = catalog_sql.registered(lake)
            for text in catalog_dbt.missing(listed):
                output.line(text)
            output.yaml(catalog_dbt.document(lake, dialect, listed))
            return
        rows = sorted([*looking.tables(lake), *looking.feeds_of(lake)], key=lambda row: str(row["table"]))
        if table:
            from ingest.gold import fidelity  # with Arrow, which a list of tables does without

            rows = [{**looking.named(rows, table), "fidelity": fidelity.described(lake, table)}]

    def show() -> None:
        columns = ("table", "state", "rows", "batch", "version", "keys", "path")
        shown = lake.pipeline.shown
        listed = [
            row | {"keys": ", ".join(row["keys"]), "path": shown(str(row["path"] or ""))} for row in rows
        ]
        output.listing(listed, columns)
        for row in rows if table else ():
            cells = row["fidelity"]
            output.table(tuple(cells[0]) if cells else ("column",), [tuple(cell.values()) for cell in cells])

    output.answer(output_as, rows, show)


@app.command(rich_help_panel=_PANEL)
def sql(
    file: PipelineFile,
    query: Annotated[str, typer.Argument(help="One SELECT; mirrors as `db`.`t`, product tables by name.")],
    as_of_batch: Annotated[
        int | None, typer.Option(min=1, help="Read each mirror as it was after this batch.")
    ] = None,
    output_as: Output = "table",
    limit: Annotated[int, typer.Option(min=0, help="At most so many rows.")] = 0,
    engine: Annotated[
        Literal["duckdb", "spark"], typer.Option(help="The engine that runs it; Spark takes longer to start.")
    ] = "duckdb",
) -> None:
    """Query mirrors and product tables by name."""
    answer = _asked(file, query, limit, as_of_batch, engine)
    for text in answer.lagging:
        output.warning(text)

    def show() -> None:
        output.table(answer.columns, [[_shown(cell) for cell in row] for row in answer.rows])

    output.answer(output_as, answer.records, show)


def _asked(file: Path, text: str, limit: int, batch: int | None, engine: str) -> QueryAnswer:
    from ingest.tables.tables import LakeReader

    with looked_at(file) if engine == "duckdb" else opened(file, to_look=True) as lake:
        if isinstance(lake, LakeReader):
            from ingest.inspect.query import query

            return query(lake, text, limit, batch)
        from ingest.operate import spark_query  # also where only Spark reaches the store

        return spark_query.query(cast("Lake", lake), text, limit, batch)


def _shown(cell: object) -> object:
    import msgspec

    if isinstance(cell, msgspec.Raw):  # a number of JSON, to its last digit
        return bytes(cell).decode()
    return "NULL" if cell is None else cell


@app.command(rich_help_panel=_PANEL)
def explain(
    file: PipelineFile,
    table: MirrorName,
    key: Annotated[
        list[str], typer.Argument(help="The key's values in the key's order; -- before a negative one.")
    ],
    output_as: Output = "table",
) -> None:
    """A row's whole life: each raw message, its change, what the fold did with it and why."""
    from ingest.gold import explain as explaining
    from ingest.inspect import story as telling
    from ingest.tables.delta import UnreadableError

    try:
        with looked_at(file) as lake:
            story = explaining.explain(lake, table, explaining.masked_key(lake, table, key))
    except UnreadableError as error:
        output.note(str(error))
        with opened(file, to_look=True) as spark_lake:
            story = explaining.explain(spark_lake, table, explaining.masked_key(spark_lake, table, key))
    output.answer(output_as, story, "\n".join(telling.lines(story)))
    output.exit_with(not story.equal)


@app.command(rich_help_panel=_PANEL)
def wait(
    file: PipelineFile,
    until: Annotated[
        str, typer.Option(help="The source's time: 2024-05-01T06:00Z, in UTC unless it has a zone; or now.")
    ],
    tables: Annotated[
        str, typer.Option(help="Only these mirrors, by commas, with * for any part; all unless given.")
    ] = "",
    timeout: Annotated[str, typer.Option(help="The longest wait: 30s, 10m, 1h; 0s looks once.")] = "1h",
    every: Annotated[str, typer.Option(help="The pause between two looks.")] = "10s",
    output_as: Output = "table",
) -> None:
    """Wait until mirrors hold every change of before a moment: 0 they do, 1 the operator is needed, 3 not yet."""
    from ingest.gold.complete_until import of_each
    from ingest.inspect import status as looking

    wanted = _moment(until)
    ends = time.monotonic() + output.seconds("--timeout", timeout)
    pause = max(0.1, output.seconds("--every", every))
    with looked_at(file) as lake:
        while True:
            chosen = _chosen(looking.complete(lake), tables)
            complete = of_each(chosen)
            if reached := complete.until is not None and complete.until >= wanted:
                code = 0
            elif any(
                each.blocked and (each.until is None or each.until < wanted) for each in chosen.values()
            ):
                code = 1
            else:
                code = NOT_YET
            if code != NOT_YET or time.monotonic() + pause > ends:
                break
            time.sleep(pause)
    until = "no known time" if complete.until is None else f"{complete.until.isoformat()}Z"
    answer = {
        "reached": reached,
        "until": f"{wanted.isoformat()}Z",
        "complete_until": None if complete.until is None else until,
        "complete_by": complete.by or None,
        "complete_reason": complete.reason,
        "tables": sorted(chosen),
    }
    output.answer(output_as, answer, f"complete until {until} ({complete.reason})")
    output.exit_with(code)


def _chosen(complete: dict[str, Complete], text: str) -> dict[str, Complete]:
    """The mirrors that are waited for: those that get rows, and those that are named; an `IngestError` if a name or pattern
    fits none.
    """
    from ingest.gold.complete_until import still_fed
    from ingest.ledgers.mirrors import unknown

    patterns = [part.strip() for part in text.split(",") if part.strip()] or ["*"]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in complete):
            raise unknown(pattern, complete)
    fitting = {
        name: until
        for name, until in complete.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return still_fed(fitting) | {name: until for name, until in fitting.items() if name in patterns}


def _moment(text: str) -> dt.datetime:
    if text == "now":
        return dt.datetime.now(dt.UTC).replace(tzinfo=None)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError([f"--until: {text!r} is not a time; write 2024-05-01T06:00Z, or now"]) from None
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
