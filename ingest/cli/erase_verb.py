"""The verb ``erase``: a row's data removed from every table, so that nothing brings it back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import MirrorName, PipelineFile, locked
from ingest.errors import IngestError, counted

if TYPE_CHECKING:
    from ingest.erase.plan import Erasure
    from ingest.erase.remove import Certificate
    from ingest.tables.lake import Lake

app = typer.Typer()
_INSTEAD = "Instead of a new erasure"


@app.command(rich_help_panel="Repair")
def erase(
    file: PipelineFile,
    table: MirrorName = "",
    key: Annotated[
        list[str] | None,
        typer.Argument(help="One row's key, its values in the key's order; -- before a negative one."),
    ] = None,
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION", help="Erase the mirror's rows that meet this condition, such as 'id < 9'."
        ),
    ] = "",
    reason: Annotated[str, typer.Option(help="Why, for the certificate.")] = "",
    now: Annotated[
        bool,
        typer.Option("--now", help="Delete old files and logs at once, and with them all older versions."),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", rich_help_panel=_INSTEAD, help="Complete an erasure that was interrupted."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", rich_help_panel=_INSTEAD, help="Print what would be erased, and erase nothing."
        ),
    ] = False,
    verify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            rich_help_panel=_INSTEAD,
            help="Erase nothing; search every file of the lake for this text, and exit with 1 if it is there.",
        ),
    ] = None,
    output_as: Output = "table",
) -> None:
    """Remove rows from mirrors, histories, silver, rejects, checks and raw messages for good; print a certificate."""
    if verify:
        if table or resume:
            raise typer.BadParameter(
                "it searches the whole lake: give no table and no --resume", param_hint="--verify"
            )
        _verify(file, verify, output_as)
        return
    if resume == bool(table):
        raise typer.BadParameter("give a table and a key, or --resume alone", param_hint="TABLE")
    if table and bool(key) == bool(where):
        raise typer.BadParameter("give one row's key, or --where", param_hint="KEY")
    if table and not (reason or dry_run):
        raise typer.BadParameter("say why: the certificate holds it", param_hint="--reason")
    with locked(file, "erase", deletes=True) as lake:
        from ingest.erase.remove import erase as carry_out

        erasure = _begun(lake) if resume else _planned(lake, table, key or [], where, reason, now=now)
        if erasure.doubtful:
            keys = "; ".join(", ".join(doubt) for doubt in erasure.doubtful)
            output.warning(
                f"Where these rows were inserted or deleted, other keys were deleted or inserted, as a changed key is: {keys}. "
                "If they are the same rows', erase them, too."
            )
        if erasure.unplaced:
            output.warning(
                "The source sends a changed key as a delete and an insert, and these rows' messages have no position that "
                "connects the two: if the rows had other keys, erase those, too."
            )
        if dry_run:
            _foresee(erasure, output_as)
            return
        certificate = carry_out(lake, erasure, lambda name, step: output.note(f"{name}: {step}"))
    output.answer(output_as, asdict(certificate), lambda: _print(certificate))


def _verify(file: Path, texts: list[str], output_as: str) -> None:
    """Search the files of a lake in a folder; the texts themselves are not printed."""
    from ingest.config import load
    from ingest.erase.search import search

    folder = Path(load(file).lake)
    if not folder.is_dir():
        raise IngestError(f"There is no folder {folder}: `ingest erase --verify` searches lakes in folders.")
    if "" in texts:
        raise typer.BadParameter("the text is empty", param_hint="--verify")
    searched = search(folder, texts)

    def show() -> None:
        rows = [(hit.file, hit.column, hit.number, hit.values) for hit in searched.hits]
        output.table(("file", "column", "text", "cells"), rows)
        for name in searched.unread:
            output.note(f"not read: {name}")
        output.line(
            f"{counted(len(searched.hits), 'hit')} in {counted(searched.files, 'file')} of {counted(searched.size, 'byte')}"
        )

    output.answer(output_as, asdict(searched), show)
    output.exit_with(bool(searched.hits or searched.unread))


def _begun(lake: Lake) -> Erasure:
    from ingest.erase import plan

    unfinished = plan.unfinished(lake)
    if unfinished is None:
        raise IngestError("No erasure was interrupted: there is nothing to resume.")
    return unfinished


def _planned(lake: Lake, table: str, key: list[str], where: str, reason: str, *, now: bool) -> Erasure:
    from ingest.erase import plan

    plan.refuse(lake)
    keys = plan.keys_where(lake, table, where) if where else [tuple(key)]
    if not keys:
        raise IngestError(f"No row of {table} meets the condition: nothing was erased.")
    return plan.plan(lake, table, keys, reason, now=now)


def _foresee(erasure: Erasure, output_as: str) -> None:
    messages = len({change.place for change in erasure.changes if change.topic is not None})
    values: dict[str, Any] = {
        "table": erasure.mirror,
        "rows": erasure.asked,
        "keys": len(erasure.keys),
        "changes": len(erasure.changes),
        "messages": messages,
        "also_from": [other.mirror for other in erasure.others],
        "perhaps_also": [list(doubt) for doubt in erasure.doubtful],
        "without_position": erasure.unplaced,
    }
    said = (
        f"{counted(erasure.asked, 'row')} of {erasure.mirror} under {counted(len(erasure.keys), 'key')} would be erased, "
        f"with {counted(len(erasure.changes), 'change')} in {counted(messages, 'message')}"
        + "".join(f", and from {other.mirror}" for other in erasure.others)
    )
    output.answer(output_as, values, said)


def _print(certificate: Certificate) -> None:
    output.line(f"erasure {certificate.number}: {counted(certificate.rows, 'row')} of {certificate.table}")
    output.line(
        f"by {certificate.by}, from {certificate.started_at} to {certificate.completed_at}: {certificate.reason}"
    )
    rows = [(name, *item) for name, counts in certificate.removed.items() for item in counts.items()]
    output.table(("table", "what", "removed"), rows)
    if certificate.readable_until is None:
        output.line("old files and logs are deleted: no older version can be read")
    else:
        output.line(
            f"older versions of these tables may be readable until {certificate.readable_until}, and go with the first "
            "`ingest maintain` after that; --now deletes them at once"
        )
    for text in certificate.left:
        output.line(f"not looked into: {text}")
