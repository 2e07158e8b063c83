"""The verb that keeps a lake in shape: ``maintain``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFile, opened
from ingest.errors import counted

if TYPE_CHECKING:
    from ingest.ledgers.maintenance import Kept
    from ingest.tables.lake import Lake
    from ingest.tables.tables import Tables

app = typer.Typer()
_PATIENCE = 600.0  # seconds that a run may take before it gives upkeep its turn


@app.command(rich_help_panel="Repair")
def maintain(
    file: PipelineFile,
    drop_bronze: Annotated[
        str,
        typer.Option(
            "--drop-bronze-after",
            metavar="TIME",
            help="Drop messages that landed longer ago, such as 90d, once they are decoded; none if not given.",
        ),
    ] = "",
    vacuum: Annotated[
        bool, typer.Option(help="Delete files that no version within the promised days needs.")
    ] = True,
    drop_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DAY",
            help="Drop the key of a day's sealed messages, such as 2026-03-14: nothing reads them again. May be repeated.",
        ),
    ] = None,
    rewrap_keys: Annotated[
        bool,
        typer.Option("--rewrap-keys", help="Wrap the keys of sealed messages with the present master key."),
    ] = False,
    reason: Annotated[str, typer.Option(help="Why keys are dropped, for the records.")] = "",
    output_as: Output = "table",
) -> None:
    """Compact small files, remove unreferenced ones and apply retention; table contents do not change."""
    from ingest.cli.progress import ProgressLine

    age = output.seconds("--drop-bronze-after", drop_bronze) if drop_bronze else 0
    before = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)).date() if drop_bronze else None
    from ingest.store import lock

    with (
        opened(file, deferred=True) as lake,
        lock.rewriting(lake.pipeline.lake, lock.UPKEEP),
        ProgressLine(lake.spark, lake.pipeline.name) as progress,
    ):
        from ingest.erase import late
        from ingest.ledgers import mirrors, targets
        from ingest.ledgers.maintenance import maintain as keep
        from ingest.tables import removals
        from ingest.tables.schemas import BRONZE, CHANGES

        turn = partial(lock.held, lake.pipeline.lake, lock.UPKEEP, _PATIENCE)
        with turn():
            removals.refuse(lake)
            keys = _keep_keys(lake, drop_key or [], reason, rewrap=rewrap_keys)
            if (erased := late.erase(lake)) > 0:
                output.note(
                    f"{counted(erased, 'message')} of erased rows had come late: they are erased, too"
                )
            dropped = _condense(lake, progress.tell)
            order = {
                path: cluster
                for view in targets.views(lake)
                for path, cluster in mirrors.clusters(view).items()
            }
            tables = _tables(lake)
        done = keep(
            lake, tables, bronze_before=before, vacuum=vacuum, clusters=order, turn=turn, tell=progress.tell
        )
    for maintained in done:
        if maintained.table == CHANGES.name:
            maintained.changes = dropped
        if maintained.table == BRONZE.name:
            maintained.keys = len(keys)
    refused = [maintained.refused for maintained in done if maintained.refused]
    for text in refused:
        output.error(text)
    output.answer(output_as, [asdict(maintained) for maintained in done], lambda: _show(done))
    output.exit_with(bool(refused))


def _show(done: Sequence[Kept]) -> None:
    columns = (
        "table",
        "small files",
        "joined into",
        "files removed",
        "messages dropped",
        "changes condensed",
        "keys dropped",
    )
    rows = [
        (
            maintained.table,
            maintained.joined,
            maintained.into,
            maintained.deleted,
            maintained.messages,
            maintained.changes,
            maintained.keys,
        )
        for maintained in done
    ]
    output.table(columns, [row for row in rows if any(row[1:])])
    if not any(any(row[1:]) or maintained.refused for row, maintained in zip(rows, done, strict=True)):
        output.line("every table is in shape")


def _keep_keys(lake: Lake, days: list[str], reason: str, *, rewrap: bool) -> list[str]:
    """Rotate the master key, and drop the keys of days that are named or old; returns the days."""
    from ingest.ledgers import sealing

    if rewrap:
        output.note(f"{counted(sealing.rewrap(lake), 'key')} wrapped with the present master key")
    for day in days:
        sealing.drop(lake, day, reason)
    return [*days, *sealing.drop_old(lake)]


def _condense(lake: Lake, tell: Callable[[str, str], None]) -> int:
    """Drop superseded changes of batches as old as the pipeline file says; none if it says nothing."""
    from ingest.gold.plan.completed import complete
    from ingest.silver.condense import condense

    if lake.pipeline.condense_after is None:
        return 0
    tell("changes", "condensing")
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=lake.pipeline.condense_after)
    return condense(lake, before, complete(lake))


def _tables(lake: Tables) -> list[str]:
    """The product's own tables, then every mirror with its table of old states and its change feed."""
    from ingest.ledgers import feeds, histories, mirrors
    from ingest.tables.schemas import ALL

    names = [schema.name for schema in ALL]
    for mirror in mirrors.known(lake).values():
        names += [mirror.path, histories.path_of(mirror), feeds.path_of(mirror)]
    return names
