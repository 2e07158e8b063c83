"""What verbs print: results on stdout, as a readable table or exact JSON; all else on stderr.

With ``--output json`` or ``jsonl`` stdout holds nothing but JSON.  Numbers keep every digit, bytes are
base64, dates and times are canonical text.  Colour follows the terminal, ``NO_COLOR`` and friends.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from ingest.errors import ConfigError, IngestError, command, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How results are printed.")]
"""The option that every verb has."""

_Meaning = TypeVar("_Meaning")
_MANY = 50  # rows
_FILLER = "\ue000"  # of private use: no data is shown with it
_voice = SimpleNamespace(quiet=False)


def be_quiet(quiet: bool) -> None:
    """Leave out notes and warnings from here on."""
    _voice.quiet = quiet


def is_quiet() -> bool:
    """True if notes and warnings are left out."""
    return bool(_voice.quiet)


def line(text: str) -> None:
    """One plain line of result, or several."""
    _write(lines(text).encode() + b"\n")


def text(whole: str) -> None:
    """A text of result with its own line ends."""
    _write(lines(whole).encode())


def json(value: Any) -> None:
    """One JSON document of result, indented."""
    from ingest.inspect.exact_json import encoded

    _write(encoded(value, indent=2) + b"\n")


def json_line(value: Any) -> None:
    """One JSON document of result on one line."""
    from ingest.inspect.exact_json import encoded

    _write(encoded(value) + b"\n")


def yaml(value: Any) -> None:
    """A mapping as readable YAML."""
    import io

    from ruamel.yaml import YAML

    text = io.StringIO()
    writer: Any = YAML(typ="safe", pure=True)
    writer.default_flow_style, writer.width, writer.sort_base_mapping_type_on_output = False, 200, False
    writer.dump(value, text)
    line(text.getvalue().rstrip())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Rows as a table, under a line of column names."""
    console().print(drawn(columns, rows, title))


def answer(output_as: str, value: Any, shown: str | Callable[[], object]) -> None:
    """A result in the form that was asked for: its value as JSON, else the text or whatever ``shown`` prints."""
    if output_as == "json":
        json(value)
    elif isinstance(shown, str):
        line(shown)
    else:
        shown()


def listing(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output_as: str = "table") -> None:
    """Rows in full as JSON, or some of their columns as a table."""
    answer(output_as, rows, lambda: table(columns, [[row[name] for name in columns] for row in rows]))


def drawn(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None
) -> RenderableType:
    """A table as something that can be printed, also over and over in one place."""
    cells = [["" if cell is None else lines(str(cell)) for cell in row] for row in rows]
    widths = _fit(columns, cells) if len(cells) > _MANY else []
    return _LongTable(columns, cells, title, widths) if widths else _table(columns, cells, title)


def _table(columns: Sequence[str], cells: Iterable[Sequence[str]], title: str | None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=title and Text(visible(title)), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    for column in columns:
        made.add_column(Text(visible(column)), overflow="fold")
    for row in cells:
        made.add_row(*map(Text, row))
    return made


@dataclass(frozen=True, slots=True)
class _LongTable:
    """A table none of whose cells has to be broken: one row is laid out by Rich, and the others as that one.

    Rich takes more than a millisecond for a row.
    """

    columns: Sequence[str]
    cells: Sequence[Sequence[str]]
    title: str | None
    widths: Sequence[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        sample = _table(self.columns, [[_FILLER * width for width in self.widths]], self.title)
        for segments in Segment.split_lines(console.render(sample, options)):
            line = "".join(segment.text for segment in segments)
            if _FILLER in line:
                yield Segment("\n".join(self._rows(re.split(f"{_FILLER}+", line))))
            else:
                yield from segments
            yield Segment.line()

    def _rows(self, gaps: Sequence[str]) -> Iterator[str]:
        from rich.cells import cell_len

        for row in self.cells:
            padded = (
                cell + " " * (width - cell_len(cell)) for cell, width in zip(row, self.widths, strict=True)
            )
            yield "".join(gap + cell for gap, cell in zip(gaps, (*padded, ""), strict=True))


def _fit(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """Each column's width if no cell has to be broken; else nothing."""
    from rich.cells import cell_len

    if any("\n" in cell for row in cells for cell in row):
        return []
    widths = [max(map(cell_len, column)) or 1 for column in zip(map(visible, columns), *cells, strict=True)]
    return widths if sum(widths) + 3 * len(widths) <= console().width else []


def lines(text: str) -> str:
    """A text of several lines, each made `visible`: data must not drive the operator's terminal."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))


def short(text: str, most: int = 80) -> str:
    """A name `visible` and not longer than a line has room for."""
    seen = visible(text[: most + 1])
    return seen if len(text) <= most else f"{seen[: most - 1]}…"


def follow(*words: object) -> None:
    """Note the command that comes next."""
    note(f"next: {command(*words)}")


def note(text: str) -> None:
    """A remark on stderr, which --quiet leaves out."""
    if not _voice.quiet:
        _stderr(text)


def warning(text: str) -> None:
    """A warning on stderr, which --quiet leaves out."""
    if not _voice.quiet:
        _stderr(f"warning: {text}")


def error(text: str) -> None:
    _stderr(f"error: {text}" if "\n" not in text else text)


def seconds(option: str, text: str) -> float:
    """A span of time that an option was given (30s, 5m, 1h); a `ConfigError` if it is not one."""
    from ingest.config.scalars import duration

    return meant(option, text, duration)


def meant(option: str, text: str, read: Callable[[str], _Meaning]) -> _Meaning:
    """What ``read`` makes of an option's text; a `ConfigError` that names the option if it raises a `ValueError`."""
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError([f"{option}: {error}"]) from None


def exit_with(code: int) -> None:
    """End the verb with an exit code, unless it is 0; True is 1."""
    if code:
        raise typer.Exit(code)


def refuse_blank(reason: str, why: str) -> None:
    """Refuse a blank ``--reason``, which has to say ``why`` something is done."""
    if not reason.strip():
        raise IngestError(f"Say with --reason why {why}.")


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console(stderr: bool = False) -> Console:
    """A console for tables and progress, made for the streams of this moment."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(stderr=stderr, highlight=False, width=width)


def _write(data: bytes) -> None:
    sys.stdout.flush()  # what was printed as text comes first
    sys.stdout.buffer.write(data)


def _stderr(text: str) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.flush()
    sys.stderr.write(lines(text) + "\n")
    sys.stderr.flush()
