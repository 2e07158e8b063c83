"""The verb infer: what a file's or a pipeline's untyped columns look like, as a block to paste."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.errors import ConfigError, IngestError, Undecodable, counted

if TYPE_CHECKING:
    from ingest.change import Change, Hints
    from ingest.config import Pipeline
    from ingest.infer import Proposal

app = typer.Typer()
_PIPELINES = (".yaml", ".yml")


@app.command(rich_help_panel="Look at messages, without Spark")
def infer(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A file of messages, or a pipeline file, whose files are read."),
    ],
    format_: Annotated[
        str | None, typer.Option("--format", help="The messages' format; detected unless given.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="database.table, for messages that name none.")] = None,
    lines: Annotated[int, typer.Option(min=1, help="How many messages of each file to look at.")] = 100_000,
    output_as: Output = "table",
) -> None:
    """Propose columns: for messages without types, from their values, with the evidence."""
    from ingest import config, infer

    refused: list[str] = []
    pipeline = config.load(file) if Path(file).suffix in _PIPELINES else None
    seen = infer.observe(_changes(_read(file, format_, table, pipeline), lines, refused))
    rules = {each: pipeline.rule(each) for each in seen} if pipeline else {}
    proposals = {
        str(each): infer.propose(columns)
        for each, columns in seen.items()
        if each not in rules or not rules[each].exclude
    }
    written = {rule.match for rule in pipeline.tables} if pipeline else set()
    entries = {str(each): rule.match for each, rule in rules.items() if rule.match in written}
    rows = [
        {"table": name, "columns": [each._asdict() for each in inferred]}
        for name, inferred in proposals.items()
    ]
    if rows:
        output.answer(output_as, rows, block(proposals, entries))
    if refused:
        output.warning(
            f"{counted(len(refused), 'message')} could not be decoded and {'was' if len(refused) == 1 else 'were'} left out; the first: {refused[0]}"
        )
    if not seen:
        raise IngestError(f"{file} holds no row that could be decoded")
    if not rows:
        raise IngestError(f"{file} excludes every table that its messages name")


def block(by_table: dict[str, list[Proposal]], entries: Mapping[str, str] = MappingProxyType({})) -> str:
    """Proposals as a ``tables:`` block, each with its evidence as a comment.

    ``entries`` are the ``match:`` of tables that have an entry: a second one would not apply.
    """
    from ingest.operate.detection import quoted

    lines = ["tables:"]
    for name, proposals in by_table.items():
        typed_proposals = [each for each in proposals if each.type]
        lines += [f"  - match: {quoted(name)}"]
        if entry := entries.get(name):
            lines += [
                f"    # the entry with match: {entry} applies, alone: add the columns there, or write this before it with all that it says"
            ]
        lines += (
            ["    columns:"]
            if typed_proposals
            else ["    # the messages name the types of all columns that have values"]
        )
        for each in typed_proposals:
            kind = f'"{each.type}"' if "," in str(each.type) else each.type
            lines.append(f"      {quoted(each.column)}: {kind}   # {each.evidence}")
        lines += [
            f"      # {quoted(each.column)}: {each.declared or '?'}   # {each.evidence}"
            for each in proposals
            if not each.type
        ]
    return "\n".join(lines)


Read = tuple[str, str, "Hints", str | None, "Pipeline | None"]
"""A file, its messages' format, what the parser may know, the framing if it is given, and the pipeline."""


def _read(file: str, format_: str | None, table: str | None, pipeline: Pipeline | None) -> Iterator[Read]:
    if pipeline is not None:
        # the local files of every source; what is declared already is not proposed again
        from glob import glob

        for source in pipeline.sources:
            if source.kind != "files":
                output.warning(f"source {source.name} is not a source of files and is left out")
                continue
            for path in sorted(glob(source.path, recursive=True)):  # noqa: PTH207 - absolute patterns
                yield path, source.format, pipeline.hints(source), source.framing or None, pipeline
        return
    from ingest.change import Hints
    from ingest.config import read

    name = format_
    if name is None:
        from ingest.operate import detection

        name = detection.judge(file, *detection.sample(file, None, 200))["format"]
    if name is None:
        raise ConfigError([f"the format of {file} cannot be detected; give it as --format"])
    yield file, name, Hints(read.options({"table": table} if table else {}, name)), None, None


def _changes(files: Iterable[Read], lines: int, refused: list[str]) -> Iterator[Change]:
    """The changes of all messages; the reasons of the others go into ``refused``."""
    from itertools import islice

    from ingest import formats
    from ingest.change import Message
    from ingest.config.masks import detail_without_values
    from ingest.operate.message_input import messages

    for path, name, hints, framing, pipeline in files:
        module = formats.load(name)
        for record in islice(messages(path, framing, module.ABOUT.binary)[1], lines):
            try:
                if isinstance(record, Undecodable):
                    raise record
                changes = list(formats.reader(name)(Message(record.value, None, path), hints))
            except Undecodable as error:
                refused.append(
                    detail_without_values(error.code, error.detail)
                    if pipeline and pipeline.masks
                    else str(error)
                )
            else:
                yield from (_shown(change, pipeline) for change in changes)


def _shown(change: Change, pipeline: Pipeline | None) -> Change:
    """The change without its masked columns: the evidence contains values."""
    from msgspec.structs import replace

    if pipeline is None or not (rule := pipeline.masking(change.table)).mask:
        return change
    before, after = (
        image and {name: text for name, text in image.items() if not rule.mask_of(name)}
        for image in (change.before, change.after)
    )
    sent = {name: logical for name, logical in change.types.items() if not rule.mask_of(name)}
    return replace(change, before=before, after=after, types=sent)
