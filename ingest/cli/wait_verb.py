"""The verb ``wait``: for jobs that may begin once the mirrors hold all that happened before a moment."""

from __future__ import annotations

import datetime as dt
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFile, looked_at
from ingest.errors import ConfigError

if TYPE_CHECKING:
    from ingest.gold.complete_until import Complete

app = typer.Typer()
NOT_YET = 3  # the exit code that means: try again later


@app.command(rich_help_panel="Look")
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
    from ingest.gold.complete_until import of_all
    from ingest.inspect import status as looking

    wanted = _moment(until)
    ends = time.monotonic() + output.seconds("--timeout", timeout)
    pause = max(0.1, output.seconds("--every", every))
    with looked_at(file) as lake:
        while True:
            chosen = _chosen(looking.complete(lake), tables)
            one = of_all(chosen)
            if reached := one.until is not None and one.until >= wanted:
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
    until = "no known time" if one.until is None else f"{one.until.isoformat()}Z"
    found = {
        "reached": reached,
        "until": f"{wanted.isoformat()}Z",
        "complete_until": None if one.until is None else until,
        "complete_by": one.by or None,
        "complete_reason": one.reason,
        "tables": sorted(chosen),
    }
    output.answer(output_as, found, f"complete until {until} ({one.reason})")
    if code:
        raise typer.Exit(code)


def _chosen(complete: dict[str, Complete], text: str) -> dict[str, Complete]:
    """The mirrors that are waited for; an `IngestError` if a name or pattern fits none."""
    from ingest.lake.mirrors import unknown

    patterns = [one.strip() for one in text.split(",") if one.strip()] or ["*"]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in complete):
            raise unknown(pattern, complete)
    return {
        name: one for name, one in complete.items() if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _moment(text: str) -> dt.datetime:
    if text == "now":
        return dt.datetime.now(dt.UTC).replace(tzinfo=None)
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError([f"--until: {text!r} is not a time; write 2024-05-01T06:00Z, or now"]) from None
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)
