"""``status --watch``: the same view again and again, in place on a terminal, block after block elsewhere."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from ingest.cli import output
from ingest.cli.stopping import StopRequest
from ingest.errors import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY = "10"  # seconds between two looks, unless they are given
MANY = 20  # mirrors in good health
COLUMNS = ("table", "state", "batch", "rows", "newest commit", "lag", "message")

Found = Mapping[str, Any]


class Watched(TyperCommand):
    """A command whose ``--watch`` may be given without its seconds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the usual seconds after a ``--watch`` that has none."""
        given = list(args)
        for place in [i for i, arg in enumerate(args) if arg == "--watch"][::-1]:
            if place + 1 == len(args) or not _is_number(args[place + 1]):
                given.insert(place + 1, EVERY)
        return super().parse_args(ctx, given)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def watch(look: Callable[[], Found], seconds: float, output_as: str) -> None:
    """Show what ``look`` finds, and again every so often, until Ctrl-C or SIGTERM."""
    stop = StopRequest()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _place(output_as) as show:
        while not stop.is_set():
            started = time.monotonic()
            view = look()
            if not stop.is_set():
                show(view)
                sys.stdout.flush()
            stop.wait(max(0.0, seconds - (time.monotonic() - started)))


@contextlib.contextmanager
def _place(output_as: str) -> Iterator[Callable[[Found], None]]:
    """Where each view goes."""
    if output_as == "json":
        yield output.json_line
    elif not output.on_terminal():
        yield partial(show, with_time=True)
    else:
        from rich.live import Live

        with Live(console=output.console(), auto_refresh=False) as live:
            yield lambda view: live.update(_drawn(view, with_time=True), refresh=True)


def show(view: Found, *, with_time: bool = False) -> None:
    """Print what ``status`` found; in a file or a pipe every sentence is one line, so that its command can be copied."""
    output.console().print(_drawn(view, with_time=with_time, wrap=output.on_terminal()), crop=False)


def _drawn(status: Found, *, with_time: bool, wrap: bool = True) -> RenderableType:
    """What needs attention comes first; ``with_time`` adds the time of day.

    The message of a mirror that is not ok is among the problems. On a terminal (``wrap``) many mirrors in good health are
    one line.
    """
    from rich.console import Group
    from rich.text import Text

    head = f"{time.strftime('%H:%M:%SZ', time.gmtime())}  " if with_time else ""
    tables = sorted(status["tables"], key=_is_well)
    well = [table for table in tables if _is_well(table)]
    summarised = wrap and len(well) > MANY
    if summarised:
        tables = tables[: -len(well)]
    tables = [table | {"message": table["message"] if table["state"] == "ok" else ""} for table in tables]
    shown = COLUMNS if any(table["message"] for table in tables) else COLUMNS[:-1]
    rows = [[table[name] for name in shown] for table in tables]

    def line(text: str) -> Text:
        return Text(output.lines(text), no_wrap=not wrap, overflow="fold" if wrap else "ignore")

    first, *others = _sentences(status)
    parts: list[RenderableType] = [line(head + first), *map(line, others)]
    if rows or not summarised:
        parts.append(output.drawn(shown, rows))
    if summarised:
        slowest = max(well, key=lambda table: table["lag_seconds"] or 0)
        lag = (
            f"; {slowest['table']} lags most, by {slowest['lag']}"
            if (slowest["lag_seconds"] or 0) > 0
            else ""
        )
        parts.append(
            line(f"{counted(len(well), 'mirror is', 'mirrors are')} ok{lag} (`ingest tables` lists them)")
        )
    return Group(*parts)


def _sentences(status: Found) -> Iterator[str]:
    yield status["headline"]
    yield f"complete until {status['complete_until'] or 'no known time'} ({status['complete_reason']})"
    yield from (f"- {text}" for text in status["problems"])
    last = status["last_run"] or {}
    if last.get("where"):
        yield f"last run: {last['where']}"
    note = (
        f" ({status['next_note']})" if status.get("next_note") else ""
    )  # before the command, which is copied to the line's end
    yield f"next{note}: {status['next']}"


def _is_well(table: Mapping[str, Any]) -> bool:
    return table["state"] == "ok" and not table["message"]
