"""The verbs that mend: ``rebuild``, ``backfill``, ``retry``, ``pause`` and ``resume``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import JarsDir, opened
from ingest.errors import IngestError

if TYPE_CHECKING:
    from ingest.gold.work import Progress
    from ingest.lake.compare import Difference
    from ingest.lake.lake import Lake
    from ingest.lake.mirrors import Mirror

app = typer.Typer()
_PANEL = "Mend"

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]
Table = Annotated[str, typer.Argument(help="The mirror's name, as `ingest tables` prints it.")]


@app.command(rich_help_panel=_PANEL)
def rebuild(
    file: File,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Mirrors; none means all.")
    ] = None,
    layer: Annotated[
        Literal["mirrors", "silver"], typer.Option(help="Mirrors from silver, or silver from bronze.")
    ] = "mirrors",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compare, replace nothing.")] = False,
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """Make a layer anew from the one before it, show what differs, and put it in place in one commit."""
    if layer == "silver" and tables:
        raise IngestError("Silver is rebuilt whole: leave the tables out.")
    with opened(file, jars_dir) as lake:
        from ingest.lake import lock

        with lock.held(lake.pipeline.lake, f"rebuild of {layer}"):
            rows = _silver(lake, dry_run) if layer == "silver" else fold_anew(lake, tables or [], dry_run)
    if output_as == "json":
        output.json(rows)
    else:
        printed(rows)
    if layer == "silver" and not dry_run and any(row["missing"] or row["surplus"] for row in rows):
        output.follow("rebuild", file)
    if any(row["state"] in ("failed", "held") for row in rows):
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL)
def backfill(
    file: File,
    last: Annotated[int, typer.Option(min=1, help="How many batches, counted from the newest.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compare, replace nothing.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Leave them as they were decoded, and no longer warn of it.")
    ] = False,
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """Decode the last batches again with today's parsers and options, show what changes, and fold the mirrors again."""
    with opened(file, jars_dir) as lake:
        from ingest.lake import decoded_with, lock

        with lock.held(lake.pipeline.lake, "backfill"):
            if accept:
                names = [one.name for one in lake.pipeline.sources]
                decoded_with.note(lake, names, max(0, lake.decoded() - last) + 1)
                output.note(f"the last {last} batches stay as they were decoded")
                return
            rows = decode_again(lake, last, dry_run=dry_run)
    if output_as == "json":
        output.json(rows)
    else:
        printed(rows)
    if any(row["state"] in ("failed", "held") for row in rows):
        raise typer.Exit(1)


def decode_again(lake: Lake, last: int, *, dry_run: bool) -> list[dict[str, Any]]:
    """The last batches decoded again and the mirrors folded, those, too, that a killed command has left."""
    from ingest.lake import mirrors

    rows = _silver(lake, dry_run, max(0, lake.decoded() - last))
    if dry_run:
        return rows
    if any(row["missing"] or row["surplus"] for row in rows):
        return rows + fold_anew(lake, [], dry_run)
    waiting = [one.name for one in mirrors.outdated(lake)]
    return rows + (fold_anew(lake, waiting, dry_run) if waiting else [])


def fold_anew(lake: Lake, names: list[str], dry_run: bool) -> list[dict[str, Any]]:
    """Mirrors made anew from silver, none meaning all: one entry for each, for people or as JSON."""
    from ingest.gold.rebuild import rebuild as made

    found = made(lake, names, dry_run=dry_run)
    if not dry_run:
        _check_again(lake, {one.mirror for one in found if one.state == "rebuilt"})
    return [_row(one.mirror, one.state, one.batch, one.message, one.difference) for one in found]


def _check_again(lake: Lake, names: set[str]) -> None:
    """Check the mirrors that have new rows, so that the report speaks of these; where nothing is checked, nothing."""
    from ingest.gold.steps import steps_of
    from ingest.lake import mirrors
    from ingest.lake.schemas import CHECKS
    from ingest.quality.stage import check, complaints

    if not names or not lake.exists(CHECKS.name):
        return
    paths = {one.path for one in mirrors.known(lake).values() if one.name in names}
    failures, warnings = complaints(check(lake, steps=steps_of(lake), only=paths))
    for text in failures:
        output.error(text)
    for text in warnings:
        output.warning(text)


def _silver(lake: Lake, dry_run: bool, since: int = 0) -> list[dict[str, Any]]:
    from ingest.silver.rebuild import rebuild as decode_anew

    cores = max(1, lake.spark.sparkContext.defaultParallelism)
    found = decode_anew(lake, cores, since=since, dry_run=dry_run)
    state = "rebuilt" if found.published else "compared"
    return [_row(name, state, found.batch, "", one) for name, one in found.differences.items()]


def _row(name: str, state: str, batch: int, message: str, found: Difference | None) -> dict[str, Any]:
    return {
        "table": name,
        "state": state,
        "batch": batch,
        "rows": found.rows if found else None,
        "missing": found.missing if found else None,
        "surplus": found.surplus if found else None,
        "differing": found.differing if found else None,
        "cells": dict(found.cells) if found else {},
        "sample": list(found.sample) if found else [],
        "message": message,
    }


def printed(rows: list[dict[str, Any]]) -> None:
    """Print what a rebuild found."""
    columns = ("table", "state", "batch", "rows", "missing", "surplus", "differing", "message")
    output.table(columns, [[row[name] for name in columns] for row in rows])
    for row in rows:
        for column, count in sorted(row["cells"].items()):
            output.line(f"{row['table']}: {count} cells of {column} differed")
        for one in row["sample"]:
            output.line(f"{row['table']} {_shown(one)}")


def _shown(one: dict[str, Any]) -> str:
    key = ", ".join(f"{name} = {value}" for name, value in one.get("key", {}).items())
    if one.get("before") is None:
        return f"{key} was missing: {one['after']}".strip()
    if one.get("after") is None:
        return f"{key} was too much: {one['before']}".strip()
    return f"{key} was {one['before']}, is {one['after']}"


@app.command(rich_help_panel=_PANEL)
def retry(file: File, output_as: Output = "table", jars_dir: JarsDir = None) -> None:
    """Fold the mirrors that failed or are held, now and without reading anything new."""
    from ingest.cli.run_verbs import describe

    with opened(file, jars_dir) as lake:
        from ingest import run as running
        from ingest.inspect import status

        stuck = [row["table"] for row in status.tables(lake) if row["state"] in ("failed", "held")]
        warm = running.Warm(progress=_with(lake, stuck))
        result = running.run(lake.spark, lake.pipeline, ("gold", "quality"), warm) if stuck else None
    tried = [one for one in result.mirrors if one.state != "skipped"] if result else []
    if output_as == "json":
        output.json({"tried": stuck, "run": None if result is None else describe(result)})
    elif result is None:
        output.line("no mirror has failed or is held")
    else:
        output.table(("table", "state", "message"), [(one.mirror, one.state, one.message) for one in tried])
    for text in result.failures if result else ():
        output.error(text)
    if result is not None and result.exit_code:
        raise typer.Exit(result.exit_code)


def _with(lake: Lake, stuck: list[str]) -> Progress:
    """How far gold is, with these mirrors among those that lag: a table may have lost batches since."""
    from ingest.gold import work
    from ingest.lake import mirrors

    now = work.progress(lake)
    paths = {path for path, one in mirrors.known(lake).items() if one.name in stuck}
    return work.Progress(now.complete, now.lagging | paths)


@app.command(rich_help_panel=_PANEL)
def pause(
    file: File,
    table: Table,
    reason: Annotated[str, typer.Option(help="Why, for whoever asks later.")] = "",
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """Let a mirror stand as it is until `resume`; its changes wait in silver."""
    _decide(file, table, "pause", reason, jars_dir)
    _told(table, "paused", output_as)
    output.follow("resume", file, table)


@app.command(rich_help_panel=_PANEL)
def resume(
    file: File,
    table: Table,
    reason: Annotated[str, typer.Option(help="Why, for whoever asks later.")] = "",
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """Let a paused mirror go on; the next run folds all that has waited."""
    _decide(file, table, "resume", reason, jars_dir)
    _told(table, "resumed", output_as)
    output.follow("run", file)


def _decide(file: Path, table: str, kind: str, reason: str, jars_dir: Path | None) -> None:
    with opened(file, jars_dir) as lake:
        from ingest.lake import lock, mirrors, pauses

        known: dict[str, Mirror] = {one.name: one for one in mirrors.known(lake).values()}
        if table not in known:
            listed = ", ".join(sorted(known)) or "none yet: run the pipeline first"
            raise IngestError(f"There is no mirror {table}; there are {listed}.")
        with lock.held(lake.pipeline.lake, f"{kind} of {table}"):
            pauses.decide(lake, known[table], kind, reason)


def _told(table: str, state: str, output_as: str) -> None:
    if output_as == "json":
        output.json({"table": table, "state": state})
    else:
        output.line(f"{table} is {state}")
