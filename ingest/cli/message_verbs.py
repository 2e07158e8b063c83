"""The verbs that need no pipeline, no Spark and no Java: decode, detect, formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.errors import ConfigError, IngestError, Undecodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ingest.change import Hints, Message
    from ingest.formats import About, Parse
    from ingest.framing import Record

app = typer.Typer()
_PANEL = "Look at messages, without Spark"
_COLUMNS = ("op", "table", "keys", "before", "after", "partial", "order", "event_time", "ddl", "note")

File = Annotated[str, typer.Argument(metavar="FILE", help="A file, plain or gz, bz2, zstd; - reads stdin.")]
Framing = Annotated[
    Literal["lines", "document", "length", "avro-container", "raw"] | None,
    typer.Option(help="How the file is cut into messages; found from its content unless given."),
]


@app.command(rich_help_panel=_PANEL)
def decode(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="`ingest formats` lists them.")],
    file: File,
    table: Annotated[str | None, typer.Option(help="database.table, for messages that name none.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key column; may be repeated.")] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="As in options:.")] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE", help="As in columns:.")] = None,
    framing: Framing = None,
    message_key: Annotated[str | None, typer.Option(help="The Kafka key of every message.")] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Schema registry, or folder of schemas, for framed Avro."),
    ] = None,
    output_: Annotated[
        Literal["jsonl", "json", "table"] | None,
        typer.Option("--output", "-o", help="jsonl unless on a terminal."),
    ] = None,
) -> None:
    """Decode messages to exact changes, one JSON object each."""
    from ingest import formats
    from ingest.operate.message_input import messages

    binary = formats.load(format_).ABOUT.binary
    given = _pairs("option", option) | ({"table": table} if table else {})
    hints = _hints(format_, given, key or [], _pairs("column", column), registry)
    _, records = messages(file, framing, binary)
    decoded = _decoded(formats.reader(format_), hints, records, message_key, file)
    output.exit_with(_print(decoded, output_ or ("table" if output.on_terminal() else "jsonl")))


def _hints(
    format_: str, given: dict[str, str], keys: list[str], columns: dict[str, str], registry: str | None
) -> Hints:
    """What the command line says that a pipeline file would say."""
    from ingest.change import Hints, TableHints
    from ingest.config import read, scalars

    problems = []
    for name, logical in columns.items():
        try:
            scalars.logical(logical)
        except ValueError as error:
            problems.append(f"--column {name}: {error}")
    if problems:
        raise ConfigError(problems)
    options = read.options(given, format_)
    declared = TableHints(tuple(keys), columns)
    if registry is None:
        return Hints(options, lambda _table: declared)
    from ingest.decoding.schema_registry import client

    return Hints(options, lambda _table: declared, client(registry))


def _pairs(name: str, given: list[str] | None) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in given or [])
    if wrong := [text for text in given or [] if not text.partition("=")[0] or "=" not in text]:
        raise ConfigError([f"--{name} {wrong[0]!r} lacks a part; write name=value"])
    return pairs


def _decoded(
    parse: Parse, hints: Hints, records: Iterable[Record | Undecodable], key: str | None, topic: str
) -> Iterator[dict[str, Any]]:
    """Changes as objects, and one object for each reject."""
    from ingest.change import Message

    for record in records:
        if isinstance(record, Undecodable):
            yield {"reject": record.code, "detail": record.detail}
        else:
            yield from described(
                parse, hints, Message(record.value, None if key is None else key.encode(), topic)
            )


def described(parse: Parse, hints: Hints, message: Message) -> Iterator[dict[str, Any]]:
    """The changes of one message as objects, or its reject."""
    from ingest.change import describe

    try:
        changes = list(parse(message, hints))  # all of a message or nothing
    except Undecodable as error:
        yield {"reject": error.code, "detail": error.detail}
    except IngestError:  # the registry does not answer
        raise
    except Exception as error:
        yield {"reject": "decoder-error", "detail": f"the decoder failed: {type(error).__name__}: {error}"}
    else:
        yield from map(describe, changes)


def _print(decoded: Iterator[dict[str, Any]], form: str) -> bool:
    """Print the objects; True if one of them is a reject."""
    rejected = 0
    kept = []
    for entry in decoded:
        rejected += "reject" in entry
        if form == "jsonl":
            output.json_line(entry)
        else:
            kept.append(entry)
    if form == "json":
        output.json(kept)
    elif form == "table":
        output.table(_COLUMNS, ([_cell(entry, column) for column in _COLUMNS] for entry in kept))
    if rejected:
        output.note(f"{rejected} of the messages could not be decoded")
    return bool(rejected)


def _cell(entry: dict[str, Any], column: str) -> str:
    if "reject" in entry:
        return str({"op": "reject", "table": entry["reject"], "note": entry["detail"]}.get(column, ""))
    if column == "table":
        return ".".join(entry[part] for part in ("database", "schema", "table") if entry[part])
    value = entry[column]
    if isinstance(value, dict):
        return ", ".join(f"{name}={'NULL' if text is None else text}" for name, text in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


@app.command(rich_help_panel=_PANEL)
def detect(
    file: File,
    lines: Annotated[int, typer.Option(min=1, help="How many messages to look at.")] = 200,
    framing: Framing = None,
    output_as: Output = "table",
) -> None:
    """Name the format of a file's messages, with evidence, and what they cannot show."""
    from ingest.operate import detection

    verdict = detection.judge(file, *detection.sample(file, framing, lines))
    output.answer(output_as, verdict, detection.in_words(verdict))
    output.exit_with(bool(not verdict["candidates"] or verdict["odd"]))


@app.command(name="formats", rich_help_panel=_PANEL)
def formats_(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All that is known of each.")] = False,
    output_as: Output = "table",
) -> None:
    """List the formats: what each can say, how it is ordered, and what it loses."""
    from ingest import formats

    abouts = {name: formats.load(name).ABOUT for name in formats.names()}
    in_full = "\n\n".join(_in_full(name, about) for name, about in abouts.items())
    columns = ("format", "title", "order", "images", "keys from", "ddl from")
    rows = [(name, a.title, a.strength, a.images, a.keys, a.ddl) for name, a in abouts.items()]
    listed = [_described(name, about) for name, about in abouts.items()]
    output.answer(output_as, listed, in_full if verbose else lambda: output.table(columns, rows))


def _described(name: str, about: About) -> dict[str, Any]:
    import dataclasses

    return {"format": name, **dataclasses.asdict(about)}


def _in_full(name: str, about: About) -> str:
    lines = [f"{name}: {about.title}"]
    for key, value in _described(name, about).items():
        if key in ("format", "title") or value in ("", (), {}):
            continue
        if isinstance(value, dict):
            lines += [f"  {key}:", *(f"    {option}: {text}" for option, text in value.items())]
        else:
            lines.append(f"  {key}: {', '.join(value) if isinstance(value, tuple) else value}")
    return "\n".join(lines)
