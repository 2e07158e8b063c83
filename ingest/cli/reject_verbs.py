"""The verbs ``rejects`` and ``replay``: what could not be decoded, why, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ingest.cli import output
from ingest.cli.groups import LIST, Listing
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFile, locked, looked_at, opened
from ingest.errors import ConfigError, IngestError, command, counted

_MANY = "Many at once"
_SHOWN = 40  # characters of a cell's text in the list
app = typer.Typer()
group = typer.Typer(cls=Listing, no_args_is_help=True)
app.add_typer(
    group,
    name="rejects",
    rich_help_panel="Repair",
    help="What could not be decoded or did not fit: `ingest rejects FILE` lists what is open.",
)

Which = Annotated[
    str,
    typer.Argument(metavar="N|TOPIC/PARTITION/OFFSET", help="The reject's number in the list, or its place."),
]


@group.command(LIST, hidden=True)
def listing(
    file: PipelineFile,
    limit: Annotated[int, typer.Option(min=0, help="At most so many rows.")] = 0,
    every: Annotated[bool, typer.Option("--all", help="Those replayed or dismissed, too.")] = False,
    output_as: Output = "table",
) -> None:
    """What is open: grouped by reason, table and column, or (json) one by one."""
    from ingest.ledgers import rejects

    with looked_at(file) as lake:
        rows, shown = rejects.listed(lake, every=every), lake.pipeline.shown
    rows = rows[:limit] if limit else rows

    def show() -> None:
        output.table(
            ("kind", "reason", "table", "column", "count", "for example", "where", "number"),
            [
                (
                    *group,
                    len(of_group),
                    _example(of_group[0]),
                    shown(rejects.place_of(of_group[0])),
                    of_group[0]["number"],
                )
                for group, of_group in rejects.grouped(rows).items()
            ],
        )
        if rows:
            output.follow("rejects", "show", file, rows[0]["number"])
        waiting = [row for row in rows if row["open"]]
        if len(waiting) > 1:
            output.note(f"those that are alike are dismissed together: {_together(file, waiting[0])}")

    output.answer(output_as, [rejects.described(row) for row in rows], show)


def _together(file: Path, row: Mapping[str, Any]) -> str:
    """The command that dismisses all that are like a reject."""
    from ingest.change import TableId

    table = TableId.of(row)
    words = ["--kind", row["kind"], *(["--cause", row["reason"]] if row["reason"] else [])]
    words += ["--table", str(table)] if table.table else []
    return command("rejects", "dismiss", file, *words, "--reason", row["reason"] or row["kind"])


def _example(row: Mapping[str, Any]) -> str:
    """A reject's complaint, with the text of the cell that it is about."""
    if row["kind"] != "cell" or row["raw"] is None:
        return row["detail"] or ""
    return f"'{output.short(row['raw'], _SHOWN)}': {row['detail']}"


@group.command()
def show(file: PipelineFile, which: Which, output_as: Output = "table") -> None:
    """One reject: the bytes as they came, and the decoder's complaint."""
    from ingest.change import TableId
    from ingest.ledgers import rejects
    from ingest.ledgers.raw import raw

    with looked_at(file) as lake:
        row = rejects.chosen(rejects.listed(lake), which, lake.pipeline)
        bytes_of = list(raw(lake, [row], TableId.of(row)).values())
    described = rejects.described(row) | {"message": bytes_of[0] if bytes_of else None}
    said = [f"{name:<10} {described[name]}" for name in rejects.COLUMNS if described[name] is not None]
    for message in bytes_of:
        said.append(f"{'base64' if message.binary else 'message':<10} {message.text}")
        if len(message.text) < message.length and not message.binary:
            said.append(f"{'':<10} ... {counted(message.length, 'byte')} in all")
    if row["open"]:
        ways = [command("replay", file)] if row["kind"] == "message" else []
        ways.append(command("rejects", "dismiss", file, which, "--reason", row["reason"] or row["kind"]))
        output.note(f"next: {', or '.join(ways)}")
    output.answer(output_as, described, "\n".join(said))


@group.command()
def dismiss(
    file: PipelineFile,
    reason: Annotated[str, typer.Option(help="Why it may be left out, for the record.")],
    which: Annotated[
        str,
        typer.Argument(
            metavar="[N|TOPIC/PARTITION/OFFSET]", help="The reject's number in the list, or its place."
        ),
    ] = "",
    kind: Annotated[
        Literal["message", "cell", "change"] | None,
        typer.Option(rich_help_panel=_MANY, help="All of this kind, as the list says it."),
    ] = None,
    cause: Annotated[
        str, typer.Option(rich_help_panel=_MANY, help="All of this reason, as the list says it.")
    ] = "",
    table: Annotated[
        str, typer.Option(rich_help_panel=_MANY, help="All of this table, as the list says it.")
    ] = "",
    column: Annotated[str, typer.Option(rich_help_panel=_MANY, help="All of this column.")] = "",
    batch: Annotated[
        int | None, typer.Option(rich_help_panel=_MANY, min=1, help="All of this batch.")
    ] = None,
    output_as: Output = "table",
) -> None:
    """Close a reject, or all that are open and alike, without decoding them; the decision is kept with its reason."""
    output.refuse_blank(reason, "the reject may be left out")
    given = {"kind": kind, "reason": cause, "table": table, "column": column, "batch": batch}
    wanted = {name: value for name, value in given.items() if value}
    if bool(which) == bool(wanted):
        raise ConfigError(
            [
                "name one reject by its number or place, or all that are alike by --kind, --cause, --table, --column, --batch"
            ]
        )
    with locked(file, "rejects dismiss", deferred=True) as lake:
        from ingest.ledgers import decisions, rejects

        listed = rejects.listed(lake)
        if wanted:
            rows = rejects.alike(listed, wanted)
            if not rows:
                raise IngestError(f"No reject is open that is so: `{command('rejects', file)}` lists them.")
            rejects.dismiss_alike(lake, rows, wanted, reason, decisions.user())
            answer = {"dismissed": reason, "rejects": [rejects.described(row) for row in rows]}
            output.answer(output_as, answer, f"dismissed: {counted(len(rows), 'reject')}")
            return
        row = rejects.chosen(listed, which, lake.pipeline)
        if not row["open"]:
            raise IngestError(f"Reject {which} is closed already: it was dismissed or replayed.")
        rejects.dismiss(lake, [row], reason, decisions.user())
    said = f"dismissed: {rejects.place_of(row)} ({row['reason']})"
    output.answer(output_as, rejects.described(row) | {"dismissed": reason}, said)


@app.command(rich_help_panel="Repair")
def replay(
    file: PipelineFile,
    reason: Annotated[str, typer.Option(help="Only rejects of this reason code.")] = "",
    output_as: Output = "table",
) -> None:
    """Decode rejected messages again, with today's parsers and options, and fold them at their places."""
    from ingest.cli.run_verbs import describe, end

    with opened(file, deferred=True) as lake:
        from ingest import run as running
        from ingest.ledgers import decisions
        from ingest.ledgers.decisions import REPLAYED, Decision
        from ingest.silver import replay as replaying
        from ingest.silver.decode import lifted, lifting
        from ingest.store import lock
        from ingest.tables import removals

        with lock.held(lake.pipeline.lake, "replay"):
            removals.refuse(lake)
            batch, count, still = replaying.appoint(lake, lifting, lifted, reason)
            if batch is not None:
                asked = Decision(
                    REPLAYED, lake.pipeline.name, {"messages": count}, batch, reason, decisions.user()
                )
                decisions.append(lake, [asked])
        result = None
        if batch is not None:
            result = running.run(lake.spark, lake.pipeline, ("silver", "gold", "quality"))
    left = f"; {still} still cannot be decoded" if still else ""
    done = "nothing to replay" if batch is None else f"batch {batch} replayed {counted(count, 'message')}"
    run = None if result is None else describe(result)
    answer = {"batch": batch, "replayed": count, "still_rejected": still, "run": run}
    output.answer(output_as, answer, f"{done}{left}")
    if still:
        output.follow("rejects", file)
    end(result)
