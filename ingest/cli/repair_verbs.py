"""The verbs that repair: ``rebuild``, ``backfill``, ``retry``, ``pause``, ``resume`` and ``accept-gap``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.progress import ProgressLine, silent
from ingest.cli.spark import (
    MirrorName,
    PipelineFile,
    Reason,
    SourceName,
    locked,
    opened,
    source_named,
)
from ingest.errors import ConfigError, IngestError, command, counted

if TYPE_CHECKING:
    from ingest.bronze.offsets import Gap
    from ingest.config import Source
    from ingest.tables.compare import Difference
    from ingest.tables.lake import Lake, Tell

app = typer.Typer()
_OF_MESSAGES = ("kind", "batch", "source", "topic", "partition", "offset", "row")
_ROW = 60  # characters of a row or cell in a table; --output json has it whole
_PANEL = "Repair"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Compare, replace nothing.")]


@app.command(rich_help_panel=_PANEL)
def rebuild(
    file: PipelineFile,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Mirrors; none means all.")
    ] = None,
    layer: Annotated[
        Literal["mirrors", "silver"], typer.Option(help="Mirrors from silver, or silver from bronze.")
    ] = "mirrors",
    dry_run: DryRun = False,
    output_as: Output = "table",
) -> None:
    """Rebuild a layer from the one before it, show what differs, and put it in place in one commit."""
    if layer == "silver" and tables:
        raise IngestError("Silver is rebuilt whole: leave the tables out.")
    with (
        locked(file, f"rebuild of {layer}", repairs=layer == "silver") as lake,
        ProgressLine(lake.spark, lake.pipeline.name) as progress,
    ):
        if layer == "silver":
            rows = _silver(lake, dry_run, tell=progress.tell)
        else:
            rows = fold_again(lake, tables or [], dry_run, progress.tell)
    printed(rows, output_as)
    if layer == "silver" and not dry_run and any(row["missing"] or row["surplus"] for row in rows):
        output.follow("rebuild", file)
    fail_unless_done(rows)


@app.command(rich_help_panel=_PANEL)
def backfill(
    file: PipelineFile,
    from_batch: Annotated[int | None, typer.Option(min=1, help="The first batch to decode again.")] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="Or how many batches, counted from the newest.")
    ] = None,
    dry_run: DryRun = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Leave them as they were decoded, and no longer warn of it.")
    ] = False,
    output_as: Output = "table",
) -> None:
    """Decode batches again with today's parsers and options, show what changes, and fold the mirrors again."""
    if (from_batch is None) == (last is None):
        raise ConfigError(["--from-batch and --last both say which batches: give one of them"])
    with locked(file, "backfill", deferred=accept, repairs=not accept) as lake:
        from ingest.ledgers import decoded_with

        first = _first(lake, from_batch, last or 0)
        if accept:
            decoded_with.refuse_mixed_masks(lake, lake.decoded())
            decoded_with.note(lake, [source.name for source in lake.pipeline.sources], first)
            said = f"the batches from {first} on stay as they were decoded"
            output.answer(output_as, {"accepted_from_batch": first}, said)
            return
        with ProgressLine(lake.spark, lake.pipeline.name) as progress:
            rows = decode_again(lake, first, dry_run=dry_run, tell=progress.tell)
    printed(rows, output_as)
    fail_unless_done(rows)


def _first(lake: Lake, from_batch: int | None, last: int) -> int:
    """The first batch to decode again: the one that is given, or that of the ``last`` ones."""
    decoded = lake.decoded()
    if from_batch is not None and from_batch > max(decoded, 1):
        raise IngestError(f"Batch {from_batch} is not decoded yet: the newest that is has number {decoded}.")
    return max(0, decoded - last) + 1 if from_batch is None else from_batch


def decode_again(lake: Lake, first: int, *, dry_run: bool, tell: Tell = silent) -> list[dict[str, Any]]:
    """The batches from one on decoded again and the mirrors folded, also those that a killed command has left, or of other
    types than are declared.
    """
    from ingest.ledgers import mirrors, targets

    rows = _silver(lake, dry_run, first - 1, tell)
    if dry_run:
        return rows
    if any(row["missing"] or row["surplus"] for row in rows):
        return rows + fold_again(lake, [], dry_run, tell)
    waiting = {mirror.name for mirror in mirrors.outdated(lake)}
    waiting |= {mistyped.mirror.name for mistyped in targets.mistyped(lake, ())}
    return rows + (fold_again(lake, sorted(waiting), dry_run, tell) if waiting else [])


def fold_again(lake: Lake, names: list[str], dry_run: bool, tell: Tell = silent) -> list[dict[str, Any]]:
    """Mirrors rebuilt from silver, no name meaning all: one row for each."""
    from ingest.gold.rebuild import rebuild as rebuilt

    differences = rebuilt(lake, names, dry_run=dry_run, tell=tell)
    if not dry_run:
        folded = {difference.mirror for difference in differences if difference.state == "rebuilt"}
        _check_again(lake, folded, tell)
        _keep_in_catalog(lake, folded)
    rows = [
        _row(difference.mirror, difference.state, difference.batch, difference.message, difference.difference)
        for difference in differences
    ]
    return _without_samples(rows) if lake.pipeline.masks else rows


def _keep_in_catalog(lake: Lake, names: set[str]) -> None:
    """Register the columns that mirrors have now."""
    from ingest.catalog import sync
    from ingest.ledgers import mirrors

    paths = {mirror.path for mirror in mirrors.known(lake).values() if mirror.name in names}
    for text in sync.follow(lake, paths):
        output.warning(text)


def _check_again(lake: Lake, names: set[str], tell: Tell) -> None:
    """Check the mirrors that have new rows, so that the report is about these, in a lake that has checks."""
    from ingest.gold.plan.steps import steps_of
    from ingest.ledgers import mirrors
    from ingest.quality.stage import check, complaints
    from ingest.tables.schemas import CHECKS

    if not names or not lake.exists(CHECKS.name):
        return
    paths = {mirror.path for mirror in mirrors.known(lake).values() if mirror.name in names}
    failures, warnings = complaints(
        lake.pipeline.file, check(lake, tell=tell, steps=steps_of(lake), only=paths)
    )
    for text in failures:
        output.error(text)
    for text in warnings:
        output.warning(text)


def _silver(lake: Lake, dry_run: bool, since: int = 0, tell: Tell = silent) -> list[dict[str, Any]]:
    from ingest.silver.rebuild import rebuild as decoded_again
    from ingest.spark.deferred import cores

    compared = decoded_again(lake, cores(lake.spark), since=since, dry_run=dry_run, tell=tell)
    state = "rebuilt" if compared.published else "compared"
    rows = [
        _row(name, state, compared.batch, "", difference) for name, difference in compared.differences.items()
    ]
    return _without_samples(rows) if lake.pipeline.masks else rows


def _without_samples(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is replaced may be from before a column was masked."""
    return [row | {"sample": []} for row in rows]


def _row(name: str, state: str, batch: int, message: str, difference: Difference | None) -> dict[str, Any]:
    return {
        "table": name,
        "state": state,
        "batch": batch,
        **{
            count: difference and getattr(difference, count)
            for count in ("rows", "missing", "surplus", "differing")
        },
        "cells": dict(difference.cells) if difference else {},
        "sample": list(difference.sample) if difference else [],
        "message": message,
    }


def printed(rows: list[dict[str, Any]], output_as: str) -> None:
    """Print what a rebuild found."""
    columns = ("table", "state", "batch", "rows", "missing", "surplus", "differing", "message")

    def show() -> None:
        output.listing(rows, columns)
        if cells := [
            (row["table"], column, f"{count:,}")
            for row in rows
            for column, count in sorted(row["cells"].items())
        ]:
            output.table(("table", "column", "cells that differed"), cells)
        if examples := [
            (row["table"], *line) for row in rows for example in row["sample"] for line in _lines(example)
        ]:
            output.table(("table", "row", "column", "before", "after"), examples)
        output.line(_total(rows))

    output.answer(output_as, rows, show)


def fail_unless_done(rows: list[dict[str, Any]]) -> None:
    """End with exit code 1 if a mirror failed or was held."""
    output.exit_with(any(row["state"] in ("failed", "held") for row in rows))


def _lines(example: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """A row that differed, cell by cell: its key, the column, and its text before and after."""
    before, after = example.get("before"), example.get("after")
    key = _cells(example.get("key") or {}) or _message(before or after or {})
    if before is None:
        return [(key, "", "missing", output.short(_cells(_said(after or {})), _ROW))]
    if after is None:
        return [(key, "", output.short(_cells(_said(before)), _ROW), "removed")]
    return [
        (key, column, *(_text(cells.get(column)) for cells in (before, after)))
        for column in dict.fromkeys((*before, *after))
    ]


def _message(cells: Mapping[str, object]) -> str:
    """The message from which a row of silver comes; empty for other rows. Long names of topics and files begin alike."""
    place = "/".join(str(cells[name]) for name in _OF_MESSAGES[3:] if cells.get(name) is not None)
    shown = place if len(place) <= _ROW else f"…{place[1 - _ROW :]}"
    return f"batch {cells['batch']}  {shown}" if place and "batch" in cells else ""


def _said(cells: Mapping[str, object]) -> dict[str, object]:
    """What a row says of itself, without the message that it comes from."""
    left_out = _OF_MESSAGES if _message(cells) else ()
    return {name: cell for name, cell in cells.items() if name not in left_out and cell is not None}


def _cells(cells: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in cells.items())


def _text(value: object) -> str:
    return "NULL" if value is None else output.short(str(value), _ROW)


def _total(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was changed in all, or would be."""
    changed = [row for row in rows if row["missing"] or row["surplus"] or row["differing"]]
    if not changed:
        return "nothing differed"
    added, removed, differing = (
        counted(sum(row[name] for row in changed), "row") for name in ("missing", "surplus", "differing")
    )
    cells = counted(sum(sum(row["cells"].values()) for row in changed), "cell")
    would = "a rebuild would have: " if all(row["state"] == "compared" for row in changed) else ""
    return f"{would}{added} added, {removed} removed, {cells} changed in {differing}"


@app.command(rich_help_panel=_PANEL)
def retry(file: PipelineFile, output_as: Output = "table") -> None:
    """Fold the mirrors that failed or are held, now and without reading anything new."""
    from ingest.cli.run_verbs import describe, end

    with opened(file, deferred=True) as lake:
        from ingest import run as running
        from ingest.gold.plan import completed
        from ingest.inspect import status
        from ingest.ledgers import decisions, mirrors, pauses
        from ingest.ledgers.decisions import RETRIED, Decision

        now = completed.progress(lake)  # a table may have lost batches since: these are among those that lag
        lagging = now.lagging - pauses.paused(lake)  # also those that were held until a rebuild
        names = {mirror.name for path, mirror in mirrors.known(lake).items() if path in lagging}
        entries = status.tables(lake)
        stuck = [
            row["table"] for row in entries if row["state"] in ("failed", "held") or row["table"] in names
        ]
        if not stuck:
            output.answer(output_as, {"tried": [], "run": None}, "no mirror has failed or is held")
            return
        paths = {path for path, mirror in mirrors.known(lake).items() if mirror.name in stuck}
        warm = running.Warm(progress=completed.Progress(now.complete, now.lagging | paths))
        asked = Decision(RETRIED, lake.pipeline.name, {"mirrors": stuck}, by=decisions.user())
        decisions.append(lake, [asked])
        with ProgressLine(lake.spark, lake.pipeline.name) as progress:
            result = running.run(lake.spark, lake.pipeline, ("gold", "quality"), warm, progress.tell)
    tried = [mirror for mirror in result.mirrors if mirror.state != "skipped"]
    rows = [(mirror.mirror, mirror.state, mirror.message) for mirror in tried]
    answer = {"tried": stuck, "run": describe(result)}
    output.answer(output_as, answer, lambda: output.table(("table", "state", "message"), rows))
    end(result)


@app.command(rich_help_panel=_PANEL)
def pause(
    file: PipelineFile,
    table: MirrorName,
    reason: Reason = "",
    output_as: Output = "table",
) -> None:
    """Leave a mirror as it is until `resume`; its changes wait in silver."""
    _decide(file, table, "pause", reason, output_as)
    output.follow("resume", file, table)


@app.command(rich_help_panel=_PANEL)
def resume(
    file: PipelineFile,
    table: MirrorName,
    reason: Reason = "",
    output_as: Output = "table",
) -> None:
    """End a mirror's pause; the next run folds all that has waited."""
    _decide(file, table, "resume", reason, output_as)
    output.follow("run", file)


@app.command(rich_help_panel=_PANEL)
def drop(
    file: PipelineFile,
    table: MirrorName,
    reason: Annotated[str, typer.Option(help="Why it is removed, for the record.")],
    output_as: Output = "table",
) -> None:
    """Remove the mirror of an excluded table, with its history and its change feed; what was landed stays."""
    output.refuse_blank(reason, "the mirror is removed")
    with locked(file, f"drop of {table}", deferred=True, deletes=True) as lake:
        from ingest.catalog import sync
        from ingest.ledgers import dropping

        removed = dropping.drop(lake, table, reason)
        for text in sync.follow(lake, ()):
            output.warning(text)
    said = f"{table} is dropped: {', '.join(removed) or 'its table was gone already'}"
    output.answer(output_as, {"table": table, "state": "dropped", "removed": removed}, said)


def _decide(file: Path, table: str, kind: str, reason: str, output_as: str) -> None:
    with opened(file, deferred=True) as lake:
        from ingest.ledgers import decisions, mirrors, pauses
        from ingest.store import lock
        from ingest.tables import removals

        mirror = mirrors.named(lake, table)
        state, is_paused = f"{kind}d", mirror.path in pauses.paused(lake)
        if is_paused == (kind == decisions.PAUSE):
            state = "paused already" if is_paused else "not paused"
        else:
            with lock.held(lake.pipeline.lake, f"{kind} of {table}"):
                removals.refuse(lake)
                pauses.decide(lake, mirror, kind, reason, decisions.user())
    output.answer(output_as, {"table": table, "state": state}, f"{table} is {state}")


@app.command("accept-gap", rich_help_panel="Repair")
def accept_gap(
    file: PipelineFile,
    source: SourceName,
    place: Annotated[
        str, typer.Argument(metavar="TOPIC[/PARTITION]", help="One partition, or all of a topic.")
    ],
    output_as: Output = "table",
) -> None:
    """Accept that messages of a partition are lost; the next run goes on with the oldest that is there."""
    from ingest.config import load

    named = source_named(load(file), source, "kafka")
    with opened(file) as lake:
        from ingest.bronze import kafka, offsets
        from ingest.bronze.land import last_batch
        from ingest.bronze.positions import Positions

        last = last_batch(lake)
        positions = Positions()
        positions.catch_up(lake, last)
        seen = kafka.look(lake, named, positions.places.get(source, {}))
        if seen.trouble:
            raise IngestError(f"source {source}: {seen.trouble}")
        gaps = _chosen(seen.plan.gaps, place)
        offsets.accept(lake, named, gaps, last)
    accepted = [{"place": str(gap.place), "loss": gap.loss} for gap in gaps]
    output.answer(output_as, accepted, lambda: _say_accepted(file, named, gaps))


def _say_accepted(file: Path, source: Source, gaps: list[Gap]) -> None:
    output.table(("accepted", "because it"), [(gap.place, gap.loss) for gap in gaps])
    output.follow("run", file)
    wrong = "the rows that the lost messages changed are wrong until they are read again"
    if source.database is None:
        output.note(
            f"{wrong}: add `database:` to source {source.name}, and after the run compare its tables with "
            f"`{command('reconcile', file)}`, or let the source send them once more"
        )
        return
    output.note(
        f"{wrong}: after the run, `{command('reconcile', file, '--repair')}` finds and reads them, and "
        "the run after it lands them"
    )


def _chosen(gaps: tuple[Gap, ...], place: str) -> list[Gap]:
    """The gaps that the argument names; topics cannot hold a slash."""
    chosen = [gap for gap in gaps if place in (str(gap.place), gap.place.topic)]
    if not chosen:
        places = ", ".join(str(gap.place) for gap in gaps)
        raise IngestError(
            f"{place} has no gap to accept"
            + (f"; there are gaps at {places}." if places else ": nothing was lost.")
        )
    return chosen
