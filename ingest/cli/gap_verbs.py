"""The verb that lets a Kafka source go on after a loss: ``accept-gap``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import JarsDir, opened
from ingest.errors import ConfigError, IngestError, command

if TYPE_CHECKING:
    from ingest.bronze.offsets import Gap
    from ingest.config import Pipeline, Source

app = typer.Typer()


@app.command("accept-gap", rich_help_panel="Mend")
def accept_gap(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    source: Annotated[str, typer.Argument(help="The source's name.")],
    place: Annotated[
        str, typer.Argument(metavar="TOPIC[/PARTITION]", help="One partition, or all of a topic.")
    ],
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """Accept that messages of a partition are lost; the next run goes on with the oldest that is there."""
    from ingest.config import load

    named = _source(load(file), source)
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
    _print(gaps, file, output_as)
    if named.database is not None and output_as != "json":
        output.note(
            f"the rows that the lost messages changed are wrong until their tables are read again: after the run, type "
            f"`{command('snapshot', file)} TABLE...`"
        )


def _source(pipeline: Pipeline, name: str) -> Source:
    from ingest.config.words import nearest

    known = {source.name: source for source in pipeline.sources if source.kind == "kafka"}
    if name not in known:
        raise ConfigError([f"{pipeline.file} has no Kafka source {name!r}{nearest(name, known)}"])
    return known[name]


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


def _print(gaps: list[Gap], file: Path, output_as: str) -> None:
    rows = [{"place": str(gap.place), "loss": gap.loss} for gap in gaps]
    if output_as == "json":
        output.json(rows)
        return
    output.table(("accepted", "because it"), [(row["place"], row["loss"]) for row in rows])
    output.follow("run", file)
