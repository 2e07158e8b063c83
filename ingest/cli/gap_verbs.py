"""The verb that lets a Kafka source go on after a loss: ``accept-gap``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import JarsDir, PipelineFile, opened, source_named
from ingest.errors import IngestError, command

if TYPE_CHECKING:
    from ingest.bronze.offsets import Gap

app = typer.Typer()


@app.command("accept-gap", rich_help_panel="Mend")
def accept_gap(
    file: PipelineFile,
    source: Annotated[str, typer.Argument(help="The source's name.")],
    place: Annotated[
        str, typer.Argument(metavar="TOPIC[/PARTITION]", help="One partition, or all of a topic.")
    ],
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """Accept that messages of a partition are lost; the next run goes on with the oldest that is there."""
    from ingest.config import load

    named = source_named(load(file), source, "kafka")
    with opened(file, jars_dir) as lake:
        from ingest.bronze import kafka
        from ingest.bronze.land import Positions, last_batch

        last = last_batch(lake)
        positions = Positions()
        positions.catch_up(lake, last)
        found = kafka.look(lake, named, positions.places.get(source, {}))
        if found.trouble:
            raise IngestError(f"source {source}: {found.trouble}")
        gaps = _chosen(found.plan.gaps, place)
        kafka.accept(lake, named, gaps, last)
    if output_as == "json":
        output.json([{"place": str(gap.place), "loss": gap.loss} for gap in gaps])
        return
    output.table(("accepted", "because it"), [(gap.place, gap.loss) for gap in gaps])
    output.follow("run", file)
    if named.database is not None:
        output.note(
            f"the rows that the lost messages changed are wrong until their tables are read again: after the run, type "
            f"`{command('snapshot', file)} TABLE...`"
        )


def _chosen(gaps: tuple[Gap, ...], place: str) -> list[Gap]:
    """The gaps that the argument names; topics cannot hold a slash."""
    chosen = [gap for gap in gaps if place in (str(gap.place), gap.place.topic)]
    if not chosen:
        there = ", ".join(str(gap.place) for gap in gaps)
        raise IngestError(
            f"{place} has no gap to accept"
            + (f"; there are gaps at {there}." if there else ": nothing was lost.")
        )
    return chosen
