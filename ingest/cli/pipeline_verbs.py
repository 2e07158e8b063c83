"""The verbs about the pipeline file itself: init, validate, schema."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFiles
from ingest.errors import ConfigError, command

if TYPE_CHECKING:
    from ingest.config.lint import CheckedFile

app = typer.Typer()
_PANEL = "Set up"


@app.command(rich_help_panel=_PANEL)
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write.")] = Path("pipeline.yaml"),
    name: Annotated[
        str | None, typer.Option(help="The pipeline's name; the file's own unless given.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="A file or glob of messages.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Detected from the source unless given.")
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            help="The zone of times that the messages give without one; asked on a terminal if the format has such."
        ),
    ] = None,
    lake: Annotated[str, typer.Option(help="The lake's folder or URI.")] = "./lake",
    plain_tables: Annotated[
        bool | None,
        typer.Option(
            "--plain-tables/--no-plain-tables",
            help="Leave out the one Delta feature that some readers lack; asked on a terminal.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    output_as: Output = "table",
) -> None:
    """Write a starter pipeline file for a source of files: its format detected, the rest as comments."""
    from ingest.config import scalars
    from ingest.config.schema import json_schema
    from ingest.operate import starter

    if file.exists() and not force:
        raise ConfigError([f"{file} exists already; give --force to overwrite it, or another name"])
    if source is None:
        if not sys.stdin.isatty():
            raise ConfigError(["--source is missing; name the messages that the pipeline reads"])
        source = str(typer.prompt("A file or glob of messages", err=True))
    named = name or scalars.plain_name(file.stem)
    read = starter.found(source, format_)
    zone = _zone(timezone, asks=read.has_zone)
    text = starter.text(file, named, read, lake, plain_tables=_wants_plain(plain_tables), zone=zone)
    schema_file = file.parent / starter.SCHEMA_FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        schema_file.write_text(json.dumps(json_schema(), indent=1) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError([f"{file} cannot be written: {error.strerror}"]) from None
    said = f"wrote {file} and {schema_file}; next: {command('validate', file)}"
    output.answer(output_as, {"file": str(file), "schema": str(schema_file)}, said)


def _zone(given: str | None, *, asks: bool) -> str:
    """The zone of times without one: as given, else as the operator answers; empty for the format's own."""
    from ingest.config.scalars import timezone

    if given and not asks:
        raise ConfigError(["--timezone: messages of this format have no times without a zone"])
    if given is None and asks and sys.stdin.isatty():
        question = (
            "The time zone of the source's session, such as Asia/Shanghai (empty: as the format's page says)"
        )
        given = str(typer.prompt(question, default="", show_default=False, err=True))
    return output.meant("--timezone", given, timezone) if given else ""


def _wants_plain(given: bool | None) -> bool:
    """Whether mirrors must do without deletion vectors: as given, else as the operator answers, else no."""
    if given is not None or not sys.stdin.isatty():
        return bool(given)
    question = "Will readers without deletion vectors open the mirrors (an older Trino, Flink, a BI tool)?"
    return bool(typer.confirm(question, default=False, err=True))


@app.command(rich_help_panel=_PANEL)
def validate(
    files: PipelineFiles,
    show: Annotated[bool, typer.Option("--show", help="Print what is in force, secrets masked.")] = False,
    output_as: Output = "table",
) -> None:
    """Check pipeline files: every fault with its line and column."""
    results = [_validated(file, show) for file in files]
    if output_as == "json":
        output.json(results)
    for result in results:
        _report(result, output_as == "table")
    output.exit_with(0 if all(result["ok"] for result in results) else 2)


def _validated(file: Path, show: bool) -> dict[str, Any]:
    from ingest.config import lint, read

    result: dict[str, Any] = {"file": str(file), "ok": False, "problems": [], "warnings": [], "notes": []}
    try:
        checked = read.check(file)
    except ConfigError as error:
        return result | {"problems": error.problems}
    result |= {"ok": True, "warnings": lint.warnings(checked), "notes": lint.notes(checked)}
    result["pipeline"] = checked.pipeline.name
    result["sources"] = [source.name for source in checked.pipeline.sources]
    return result | ({"shown": shown(checked)} if show else {})


def _report(result: dict[str, Any], in_words: bool) -> None:
    for problem in result["problems"]:
        output.error(problem)
    for text in result["warnings"]:
        output.warning(text)
    for text in result["notes"]:
        output.note(f"note: {text}")
    if in_words and "shown" in result:
        output.yaml(result["shown"])
    elif in_words and result["ok"]:
        sources = result["sources"]
        output.line(f"{result['file']}: ok, pipeline {result['pipeline']}, sources {', '.join(sources)}")


def shown(checked: CheckedFile) -> dict[str, Any]:
    """The file as understood, defaults included; references as written and secrets masked."""
    from ingest.config.lint import leaves
    from ingest.config.yaml_tree import is_secret

    tree: dict[str, Any] = checked.keys.model_dump(mode="json", exclude_none=True)
    tree["lake"] = checked.pipeline.lake
    for i, source in enumerate(checked.pipeline.sources):
        keys, given = tree["sources"][i], checked.document.tree["sources"][i]
        keys |= {"path": source.path} if source.kind == "files" else {}
        keys["options"] |= {"table": (given.get("options") or {}).get("table")}
    written = checked.document.references
    for where, value in list(leaves(tree)):
        if where in written:
            _put(tree, where, re.sub(r":-[^}]*", ":-***", written[where]))
        elif value not in (None, "") and is_secret(where, value):
            _put(tree, where, "***")
    return tree


def _put(tree: Any, where: tuple[str | int, ...], value: str) -> None:
    for step in where[:-1]:
        tree = tree[step]
    tree[where[-1]] = value


@app.command(rich_help_panel=_PANEL)
def schema(output_as: Output = "json") -> None:
    """Print the JSON Schema of a pipeline file, for editors."""
    from ingest.config.schema import json_schema

    output.json(json_schema())
