"""The verb ``ddl``: the ledger of what the sources' schemas did, and the decisions on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.groups import LIST, Listing
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFile, Reason, looked_at, opened
from ingest.errors import command

if TYPE_CHECKING:
    from ingest.gold.approval import Listed
    from ingest.tables.tables import Tables

app = typer.Typer()
ledger = typer.Typer(cls=Listing, no_args_is_help=True)
app.add_typer(
    ledger,
    name="ddl",
    rich_help_panel="Repair",
    help="The DDL ledger, and what waits in it for a decision: `ingest ddl FILE` lists.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The statement, as the list names it.")]


@ledger.command(LIST, hidden=True)
def listing(
    file: PipelineFile,
    pending: Annotated[bool, typer.Option("--pending", help="Only what waits for a decision.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="At most so many statements, the newest.")] = 0,
    output_as: Output = "table",
) -> None:
    """Every statement that the sources sent, with what it comes to in each mirror."""
    from ingest.gold.approval import listed

    with looked_at(file) as lake:
        statements = [entry for entry in listed(lake) if entry.pending or not pending][-limit:]
        is_outgrown = any(entry.pending and _outgrows(lake, entry) for entry in statements)

    def show() -> None:
        _show(file, statements)
        if is_outgrown:
            output.note(
                f"once the wider type is written: {command('status', file)} names the batches to decode again"
            )

    output.answer(output_as, [entry.described() for entry in statements], show)


def _outgrows(lake: Tables, entry: Listed) -> bool:
    """True if a statement gives a column a wider type than the pipeline file declares."""
    from ingest.ledgers.resolve import is_pinned

    return any(
        is_pinned(effect, lake.pipeline.rule(effect.table).declared) for effect in entry.statement.effects
    )


def _show(file: Path, entries: list[Listed]) -> None:
    from ingest.gold.approval import NO_EFFECT, refusal
    from ingest.gold.plan.policy import PARTLY

    columns = ("id", "batch", "mirror", "state", "statement", "what it does")
    rows = [(entry.statement.id, entry.statement.batch, entry.mirror, entry.state, entry.statement.text, _lines(entry))
            for entry in entries]  # fmt: skip
    output.table(columns, rows)
    if any(entry.state == PARTLY for entry in entries):
        output.note(
            "partly: the mirror lacks something that the source has done: where the list names no way out, no message has it, "
            "so load the rows again, or compare them"
        )
    if waiting := [entry for entry in entries if entry.pending]:
        ways = [command("ddl", "dismiss", file, waiting[0].statement.id, "--reason", NO_EFFECT)]
        if not refusal(waiting[0], "approve"):
            ways.insert(0, command("ddl", "approve", file, waiting[0].statement.id))
        output.note(f"next: {', or '.join(ways)}")


@ledger.command()
def approve(
    file: PipelineFile, statement: Id, reason: Reason = "",
    output_as: Output = "table",
) -> None:  # fmt: skip
    """Let a statement do what the list says; the next run catches up."""
    _settle(file, statement, "approve", reason, output_as)


@ledger.command()
def dismiss(
    file: PipelineFile, statement: Id, reason: Reason,
    output_as: Output = "table",
) -> None:  # fmt: skip
    """Pass over a statement: it does nothing to any mirror, and the next run catches up."""
    _settle(file, statement, "dismiss", reason, output_as)


def _settle(file: Path, statement: str, verb: str, reason: str, output_as: str) -> None:
    from ingest.gold.approval import approve_or_dismiss

    with opened(file, deferred=True) as lake:
        entries = approve_or_dismiss(lake, statement, verb, reason)

    def show() -> None:
        does = "does" if verb == "approve" else "would have done"
        columns = ("mirror", f"{verb.rstrip('e')}ed", f"what it {does}")
        output.table(columns, [(entry.mirror, entry.statement.text, _lines(entry)) for entry in entries])
        if all(entry.statement.decided == verb for entry in entries):
            output.note(f"{statement} was {columns[1]} already: nothing was decided again")
        output.follow("run", file)

    output.answer(output_as, [{**entry.described(), "decided": verb} for entry in entries], show)


def _lines(listed: Listed) -> str:
    return "\n".join(listed.verdict.does)
