"""The verb ``explain``: a row's whole life on one page."""

from __future__ import annotations

from typing import Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import JarsDir, PipelineFile, looked_at, opened

app = typer.Typer()


@app.command(rich_help_panel="Look")
def explain(
    file: PipelineFile,
    table: Annotated[str, typer.Argument(help="The mirror's name, as `ingest tables` prints it.")],
    key: Annotated[
        list[str], typer.Argument(help="The key's values in the key's order; -- before a negative one.")
    ],
    output_as: Output = "table",
    jars_dir: JarsDir = None,
) -> None:
    """A row's whole life: each raw message, its change, what the fold did with it and why."""
    from ingest.gold import explain as explaining
    from ingest.inspect import story as telling
    from ingest.lake.delta import UnreadableError

    try:
        with looked_at(file, jars_dir) as lake:
            story = explaining.explain(lake, table, explaining.masked_key(lake, table, key))
    except UnreadableError as error:
        output.note(str(error))
        with opened(file, jars_dir) as spark_lake:
            story = explaining.explain(spark_lake, table, explaining.masked_key(spark_lake, table, key))
    if output_as == "json":
        output.json(story)
    else:
        for text in telling.lines(story):
            output.line(text)
    if not story.equal:
        raise typer.Exit(1)
