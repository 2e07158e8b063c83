"""The verbs ``status`` and ``alerts``: what is wrong with pipelines, and what the operator knows of already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ingest.cli import output
from ingest.cli.groups import LIST, Listing
from ingest.cli.live_status import Watched
from ingest.cli.output import Output
from ingest.cli.spark import (
    PipelineFile,
    PipelineFiles,
    all_looked_at,
    each_taken,
    locked,
    looked_at,
    refuse,
)
from ingest.errors import ConfigError, IngestError

app = typer.Typer()
_PANEL = "Look"
group = typer.Typer(cls=Listing, no_args_is_help=True)
app.add_typer(
    group,
    name="alerts",
    rich_help_panel=_PANEL,
    help="What is wrong now, since when, and what to type: `ingest alerts FILE...` lists it.",
)
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="End with 0 whatever is wrong.")]


@app.command(rich_help_panel=_PANEL, cls=Watched)
def status(
    files: PipelineFiles,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            min=0.1,
            metavar="[SECONDS]",
            help="Look again every so many seconds (10 unless given), until Ctrl-C.",
        ),
    ] = None,
    exit_zero: ExitZero = False,
    output_as: Annotated[
        Literal["table", "json", "prom"],
        typer.Option("--output", "-o", help="table, json, or prom for Prometheus' node exporter."),
    ] = "table",
) -> None:
    """Lag and health of every mirror, what waits for the operator, and the next command; 1 if anything needs the operator."""
    from ingest.cli import live_status
    from ingest.inspect import prom
    from ingest.inspect import status as looking

    if watch is not None:
        if output_as == "prom":
            raise ConfigError(["--watch cannot be used with --output prom: a collector wants one whole file"])
        if len(files) > 1:
            raise ConfigError(["--watch shows one pipeline: name one file"])
        with looked_at(files[0]) as lake:
            live_status.watch(lambda: looking.status(lake), watch, output_as)
        return
    faults: dict[Path, IngestError] = {}
    with all_looked_at(files, faults) as lakes:
        by_file = dict(each_taken([*lakes], lambda file: (file, looking.status(lakes[file])), faults))
    if output_as != "table":  # as a table it is the command's error
        by_file |= {file: looking.unusable(file, fault) for file, fault in faults.items()}
    statuses = [by_file[file] for file in files if file in by_file]
    if output_as == "prom":
        output.text(prom.text(*statuses))
        for fault in faults.values():
            output.warning(str(fault))
        return  # what is wrong is among the metrics

    def show() -> None:
        for status in statuses:
            live_status.show(status)

    output.answer(output_as, statuses if len(files) > 1 else next(iter(statuses), None), show)
    refuse(faults)
    _end([problem for state in statuses for problem in state["causes"]], exit_zero=exit_zero)


@group.command(LIST, hidden=True)
def listing(
    files: PipelineFiles,
    test: Annotated[bool, typer.Option("--test", help="Send a sample to each target.")] = False,
    exit_zero: ExitZero = False,
    output_as: Output = "table",
) -> None:
    """What is wrong now, by cause, as `alerts:` of the pipeline files has it sent after each run; 1 if anything is."""
    from ingest.config import load
    from ingest.operate import alerts as alerting

    if test:
        sent = [tried for file in files for tried in alerting.send_samples(load(file))]
        output.listing(sent, ("target", "state", "error"), output_as)
        output.exit_with(any(sample["error"] for sample in sent))
        return
    faults: dict[Path, IngestError] = {}
    with all_looked_at(files, faults) as lakes:
        listed = each_taken([*lakes], lambda file: alerting.listed(lakes[file]), faults)
    rows = [problem for problems in listed for problem in problems]
    if output_as == "json":  # as a table it is the command's error
        rows += [alerting.unusable(file, fault) for file, fault in faults.items()]
    columns = ("id", "severity", "since", "cause", "text", "command", "acknowledged", "sent")
    if rows or output_as == "json":
        output.listing(rows, ("pipeline", *columns) if len(files) > 1 else columns, output_as)
    elif well := [lake.pipeline.name for file, lake in lakes.items() if file not in faults]:
        output.line(f"{', '.join(well)}: nothing is known to be wrong.")
    refuse(faults)
    _end(rows, exit_zero=exit_zero)


@group.command()
def ack(
    file: PipelineFile,
    problem: Annotated[str, typer.Argument(metavar="ID", help="Its id in the list.")],
    reason: Annotated[str, typer.Option(help="Why it may stay as it is, for the record.")],
    output_as: Output = "table",
) -> None:
    """Acknowledge a problem: until it changes no alert is sent of it, and no exit code counts it."""
    output.refuse_blank(reason, "the problem may stay as it is")
    with locked(file, "alerts ack", deferred=True) as lake:
        from ingest.inspect import problems, status

        silenced = problems.acknowledge(lake, status.problems_of(lake), problem, reason)
    said = f"acknowledged until it changes: {silenced.sentence}"
    output.answer(output_as, silenced.described(), said)


def _end(listed: list[dict[str, Any]], *, exit_zero: bool) -> None:
    """End with 1 if a problem needs the operator."""
    output.exit_with(not exit_zero and not all(problem["acknowledged"] for problem in listed))
