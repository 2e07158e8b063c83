"""The verbs about trust: quality and report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import (
    PipelineFile,
    PipelineFiles,
    Reason,
    all_looked_at,
    each_usable,
    locked,
    looked_at,
    refuse,
)
from ingest.errors import ConfigError, IngestError

if TYPE_CHECKING:
    from ingest.quality.catalogue import Checked, CheckResult
    from ingest.quality.report_model import CheckFact
    from ingest.tables.tables import Tables

app = typer.Typer()
_PANEL = "Look"


@app.command(rich_help_panel=_PANEL)
def quality(
    file: PipelineFile,
    every: Annotated[bool, typer.Option("--all", help="Show the checks that passed, too.")] = False,
    fail_on: Annotated[
        Literal["error", "warn"], typer.Option(help="The least severity that makes exit code 1.")
    ] = "error",
    deep: Annotated[
        str,
        typer.Option(
            help="Compare every key of these mirrors cell by cell with its changes: a name or a pattern, '*' for all."
        ),
    ] = "",
    last: Annotated[
        bool, typer.Option("--last", help="Show the results of the last checks, without checking or Spark.")
    ] = False,
    accept: Annotated[
        str, typer.Option(help="Accept the faults that stay of this mirror or source; nothing is checked.")
    ] = "",
    reason: Reason = "",
    output_as: Annotated[
        Literal["table", "json", "gx"],
        typer.Option(
            "--output",
            "-o",
            help="table, json, or gx: the built-in checks as Great Expectations' suites and results.",
        ),
    ] = "table",
) -> None:
    """Check every mirror now, against everything that its changes say, and keep the results."""
    if sum(map(bool, (last, deep, accept))) > 1:
        raise ConfigError(
            [
                "--last shows results that are kept, --deep makes new ones, --accept ends some: give one of them"
            ]
        )
    if accept:
        if output_as == "gx":
            raise ConfigError(["--output gx shows checks, and --accept makes none"])
        with locked(file, f"acceptance of {accept}", deferred=True) as lake:
            from ingest.ledgers.decisions import user
            from ingest.quality import lasting

            faults = lasting.accept(lake, accept, f"accepted by {user()}{reason and f' ({reason})'}")
        said = "\n".join(f"accepted: {fault}" for fault in faults)
        output.answer(output_as, {"accepted": accept, "faults": faults}, said)
        return
    checked = _kept(file) if last else _checked(file, deep)
    wrong = {verdict.metric.severity for verdict in checked.of("error", "fail", "warn")}
    answer = {"counts": checked.counts(), "checks": [_as_json(verdict) for verdict in checked.verdicts]}
    if output_as == "gx":
        from ingest.config import load
        from ingest.quality import gx_json

        output.json(gx_json.documents(load(file, to_look=True).name, checked.verdicts))
    else:
        output.answer(output_as, answer, lambda: _print(checked, every))
    output.exit_with("error" in wrong or bool(wrong and fail_on == "warn"))


def _checked(file: Path, deep: str) -> Checked:
    from ingest.cli.progress import ProgressLine

    with locked(file, "checks") as lake, ProgressLine(lake.spark, lake.pipeline.name) as progress:
        from ingest.gold.plan.steps import steps_of
        from ingest.quality.stage import check

        return check(lake, tell=progress.tell, steps=steps_of(lake), deep=deep)


def _kept(file: Path) -> Checked:
    """The newest results of each mirror and source; the age of the newest change is as of now."""
    from ingest.quality.catalogue import Checked, CheckResult, Metric
    from ingest.quality.report_data import gather

    with looked_at(file) as lake:
        facts = gather(lake, trend=1)
    checks: list[tuple[str | None, str | None, CheckFact]] = [
        (table.name, None, it) for table in facts.tables for it in table.checks
    ]
    checks += [(None, source.name, it) for source in facts.sources for it in source.checks]
    return Checked(facts.batch, [
        CheckResult(
            Metric(metric.check, metric.observed, mirror, source, metric.column, metric.limit, metric.severity, metric.detail, metric.failing),
            metric.state,
        )
        for mirror, source, metric in checks
    ])  # fmt: skip


def _print(checked: Checked, every: bool) -> None:
    from ingest.quality.catalogue import PASS, STATES

    rows = [
        (
            state,
            verdict.subject,
            verdict.metric.check,
            verdict.metric.column,
            verdict.said(),
            ", ".join(verdict.metric.failing[:3]),
        )
        for state in STATES
        for verdict in checked.verdicts
        if verdict.state == state and (every or state != PASS)
    ]
    if rows:
        output.table(("state", "subject", "check", "column", "found", "keys"), rows)
    words = {"pass": "passed", "warn": "warn", "fail": "failed", "error": "could not be judged"}
    counts = [f"{count} {words[state]}" for state, count in checked.counts().items()]
    output.line(", ".join(counts) or "There is nothing to check yet.")


def _as_json(verdict: CheckResult) -> dict[str, Any]:
    metric = verdict.metric
    return {
        "mirror": metric.mirror,
        "source": metric.source,
        "check": metric.check,
        "column": metric.column,
        "state": verdict.state,
        "severity": metric.severity,
        "observed": metric.observed,
        "limit": metric.limit,
        "detail": metric.detail,
        "failing": list(metric.failing),
    }


@app.command(rich_help_panel=_PANEL)
def report(
    files: PipelineFiles,
    out: Annotated[
        Path, typer.Option("--out", help="The page; for several pipelines a folder, one page each.")
    ] = Path("report.html"),
    output_as: Output = "table",
) -> None:
    """Write the quality report: one HTML page that needs no network."""
    if len(files) > 1 and out.suffix:
        raise ConfigError([f"--out {out} is one page; give a folder for the {len(files)} pipelines' pages"])
    faults: dict[Path, IngestError] = {}
    with all_looked_at(files, faults) as lakes:

        def written(file: Path) -> dict[str, Any]:
            name = f"{lakes[file].pipeline.name}.html"
            return _report(lakes[file], out if len(files) == 1 else out / name)

        reports = each_usable([*lakes], written, faults)
    said = "\n".join(f"{page['headline']} Wrote {page['file']}." for page in reports)
    output.answer(output_as, reports if len(files) > 1 else reports[0], said)
    refuse(faults)


def _report(lake: Tables, out: Path) -> dict[str, Any]:
    from ingest.inspect import problems, status
    from ingest.quality.report import page, render

    facts = problems.gathered(lake)
    summary = status.summary(lake, status.look(lake), facts)
    listed = [problems.of_described(cause) for cause in summary["causes"]]
    made = page(facts, problems.missing_from(page(facts), listed))
    _write(out, render(made))
    return {
        "file": str(out.absolute()),
        "headline": made.headline,
        "tables": made.counts,
        "problems": len(made.problems),
    }


def _write(out: Path, text: str) -> None:
    """Replace the page at once: a reader of the old one never sees half of the new one."""
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, "utf-8")
        part.replace(out)
    except OSError as error:
        raise IngestError(
            f"{out} cannot be written: {error.strerror}; name another place with --out"
        ) from None
