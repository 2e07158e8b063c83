"""The verb ``catalog``: under which names the mirrors are registered, and bringing the catalog in step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ingest.cli import output
from ingest.cli.groups import LIST, Listing
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFile, locked, looked_at
from ingest.errors import ConfigError

if TYPE_CHECKING:
    from ingest.config import Pipeline

app = typer.Typer()
group = typer.Typer(cls=Listing, no_args_is_help=True)
app.add_typer(
    group,
    name="catalog",
    rich_help_panel="Look",
    help="The mirrors' names in the catalog of `catalog:`: `ingest catalog FILE` lists them.",
)


@group.command(LIST, hidden=True)
def listing(file: PipelineFile, output_as: Output = "table") -> None:
    """Every mirror with its name in the catalog, and whether it is registered as it is now."""
    from ingest.catalog import registrations

    with looked_at(file) as lake:
        _refuse_without(lake.pipeline)
        rows = registrations.listed(lake)
        fault = registrations.fault(lake)
    if fault:
        output.warning(fault)
    output.listing(rows, ("table", "name", "state", "location"), output_as)


@group.command()
def sync(file: PipelineFile, output_as: Output = "table") -> None:
    """Ask the catalog what it has of this lake, and bring it in step: create, change and remove its entries."""
    from ingest.catalog import sync as syncing

    with locked(file, "catalog sync", deferred=True) as lake:
        _refuse_without(lake.pipeline)
        synced = syncing.sync(lake)
    described: dict[str, Any] = {
        "registered": list(synced.put), "removed": list(synced.dropped), "fault": synced.fault or None
    }  # fmt: skip
    said = [f"{word} {name}" for word in ("registered", "removed") for name in described[word]]
    if not said and not synced.fault:
        said = ["nothing had to be changed"]
    output.answer(output_as, described, lambda: output.text("".join(f"{line}\n" for line in said)))
    if synced.fault:
        output.error(synced.fault)
        raise typer.Exit(1)


def _refuse_without(pipeline: Pipeline) -> None:
    if pipeline.catalog is None:
        raise ConfigError([f"{pipeline.file} has no catalog: write for example `catalog: {{kind: glue}}`"])
