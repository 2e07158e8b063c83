"""The verb for a source whose sequence started again: ``epoch``.

A decision comes first, then what landed since is decoded again, then the mirrors are folded again.  After a
command was killed, type it again: what is decided is kept, and the rest is repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.progress import ProgressLine, silent
from ingest.cli.repair_verbs import fail_unless_done, fold_again, printed
from ingest.cli.spark import PipelineFile, Reason, SourceName, locked, opened, source_named
from ingest.errors import ConfigError, IngestError

if TYPE_CHECKING:
    from ingest.change import TableId
    from ingest.ledgers.mirrors import Mirror
    from ingest.ledgers.starts import Start
    from ingest.tables.lake import Lake, Tell
    from ingest.tables.tables import Tables

app = typer.Typer()


@app.command(rich_help_panel="Repair")
def epoch(
    file: PipelineFile,
    source: SourceName,
    places: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="TOPIC/PARTITION/OFFSET", help="Its first message; once a partition."),
    ] = None,
    from_batch: Annotated[int | None, typer.Option(min=1, help="Or its first batch.")] = None,
    resnapshot: Annotated[
        list[str] | None, typer.Option(metavar="TABLE", help="A source table that is read again; repeatable.")
    ] = None,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="The re-snapshot has been read to its end: remove what it lacks."),
    ] = False,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="There was no such epoch after all.")] = False,
    reason: Reason = "",
    output_as: Output = "table",
) -> None:
    """Begin a new epoch of a source whose positions started again; without options, list its epochs."""
    from ingest.config import load

    source_named(load(file), source)
    if places and from_batch is not None:
        raise ConfigError(["--from and --from-batch both say where the epoch begins: give one of them"])
    if not (places or from_batch or resnapshot or complete or withdraw):
        with opened(file, deferred=True) as lake:
            rows = _listed(lake, source)
        shown = [
            row | {"resnapshot": ", ".join(f"{name} ({state})" for name, state in row["resnapshot"].items())}
            for row in rows
        ]
        columns = ("epoch", "from", "batch", "resnapshot")
        output.answer(output_as, rows, lambda: output.listing(shown, columns))
        return
    with locked(file, f"epoch of {source}") as lake:
        from ingest.silver.rebuild import refuse_trimmed

        start = _start(lake, source, places or [], from_batch)
        if start.first <= lake.decoded():  # nothing is decided of messages that could not be decoded again
            refuse_trimmed(lake, start.first - 1, lake.decoded())
        decide(lake, source, start, resnapshot or [], reason, complete=complete, withdraw=withdraw)
        with ProgressLine(lake.spark, lake.pipeline.name) as progress:
            rows = carry_out(lake, source, start, progress.tell)
    if rows:
        printed(rows, output_as)
    else:
        said = "the epoch begins with what lands next; nothing had to be decoded again"
        output.answer(output_as, rows, said)
    output.follow("run", file)
    fail_unless_done(rows)


def _start(lake: Tables, source: str, places: list[str], batch: int | None) -> Start:
    """Where the epoch in question begins: as given, else the newest one decided."""
    from ingest.ledgers import epochs

    if places:
        return epochs.at_places(lake, source, places)
    if batch is not None:
        return epochs.with_batch(batch, max(0, lake.progress("bronze", "bronze")))
    starts = epochs.read(lake).starts.get(source)
    if not starts:
        raise IngestError(
            f"No epoch of {source} has begun yet: say where with --from TOPIC/PARTITION/OFFSET or --from-batch."
        )
    return starts[-1]


def decide(
    lake: Lake, source: str, start: Start, names: list[str], reason: str, *, complete: bool, withdraw: bool
) -> None:
    """Append what is new among the decisions; all of it is checked before any of it is written."""
    from ingest.ledgers import decisions, epochs, mirrors

    epochs_before = epochs.read(lake)
    begun = start in epochs_before.starts.get(source, ())
    if withdraw and not begun:
        raise IngestError(f"No epoch of {source} begins at {start}, so none can be withdrawn.")
    snapshots = epochs_before.of(source, start)
    asked = names or ([str(snapshot.table) for snapshot in snapshots] if complete else [])
    tables = _tables(lake, source, asked, start if complete else None)
    if complete and not tables:
        raise IngestError("No table is known to be read again: name each with --resnapshot.")
    if start.first <= lake.decoded() and (concerned := _concerned(lake, source, start)):
        paths = [mirror.path for mirror in concerned]  # a command killed from here on leaves them as they are
        decisions.append(lake, [mirrors.announced(paths, paths, lake.decoded())])
    if withdraw or not begun:
        epochs.record_start(lake, source, start, reason, valid=not withdraw)
    done = {snapshot.table: snapshot.complete for snapshot in snapshots}
    for table in tables:
        if done.get(table) not in (True, complete):
            epochs.record_resnapshot(lake, source, start, table, reason, complete=complete)


def _tables(lake: Tables, source: str, names: list[str], since: Start | None) -> list[TableId]:
    """The source's tables of these names; a snapshot that has sent nothing is not complete."""
    from ingest.ledgers import epochs

    sent = epochs.tables(lake, source, since.first if since else 0) if names else ()
    by_name = {str(table): table for table in sent}
    for name in names:
        if name not in by_name:
            listed = ", ".join(sorted(by_name)) or "no table at all"
            when = f" since {since}" if since else ""
            raise IngestError(f"{source} has sent nothing of {name}{when}; it has of {listed}.")
    return [by_name[name] for name in names]


def carry_out(lake: Lake, source: str, start: Start, tell: Tell = silent) -> list[dict[str, Any]]:
    """Decode again what landed since, and fold the mirrors that it concerns."""
    from ingest.ledgers import mirrors
    from ingest.silver.rebuild import rebuild
    from ingest.spark.deferred import cores

    if start.first > lake.decoded():
        return []  # it begins with what comes next
    rebuild(lake, cores(lake.spark), since=start.first - 1, dry_run=False, tell=tell)
    concerned = {mirror.name for mirror in (*_concerned(lake, source, start), *mirrors.outdated(lake))}
    return fold_again(lake, sorted(concerned), dry_run=False, tell=tell) if concerned else []


def _concerned(lake: Tables, source: str, start: Start) -> list[Mirror]:
    """The mirrors of which a source has sent anything since a start."""
    from ingest.ledgers import epochs, mirrors
    from ingest.store.names import mirror_path

    mirrors_by_path = mirrors.known(lake)
    tables = epochs.tables(lake, source, start.first)
    targets = {mirror_path(name) for table in tables for name in mirrors.names(lake.pipeline, table)}
    return [mirrors_by_path[path] for path in sorted(targets & mirrors_by_path.keys())]


def _listed(lake: Tables, source: str) -> list[dict[str, Any]]:
    from ingest.ledgers import epochs

    decided = epochs.read(lake)
    return [
        {
            "epoch": number,
            "from": str(start),
            "batch": start.first,
            "resnapshot": {
                str(table.table): "complete" if table.complete else "open"
                for table in decided.of(source, start)
            },
        }
        for number, start in enumerate(decided.starts.get(source, ()), 1)
    ]
