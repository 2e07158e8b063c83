"""status --watch: how it is asked for, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import signal

import pytest
import typer
from typer.testing import CliRunner

from ingest.cli import live_status, output
from ingest.cli.app import app as command
from ingest.cli.live_status import Watched, watch

FOUND = {
    "headline": "shop: 1 of 1 mirror is up to date with batch 3.",
    "last_run": None,
    "tables": [dict.fromkeys(live_status.COLUMNS, "x") | {"table": "shop.<b>orders[red]"}],
    "complete_until": None,
    "complete_reason": "nothing has a [time]",
    "problems": ["2 [bold] cells"],
    "next": "ingest run f",
}
runner = CliRunner()


@pytest.fixture(autouse=True)
def signals():
    """The handlers of this process, as they were."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["f"], ("f", None)),
        (["f", "--watch"], ("f", 10.0)),
        (["f", "--watch", "2.5"], ("f", 2.5)),
        (["--watch", "f"], ("f", 10.0)),
        (["--watch", "3", "f"], ("f", 3.0)),
        (["--watch=4", "f"], ("f", 4.0)),
        (["f", "--watch", "--all"], ("f", 10.0)),
    ],
)
def test_seconds_may_be_left_out(arguments, expected):
    """The file's name would be taken for the seconds."""
    app, seen = typer.Typer(), []

    @app.command(cls=Watched)
    def look(
        file: str,
        every: float | None = typer.Option(None, "--watch"),
        all_: bool = typer.Option(False, "--all"),
    ) -> None:
        seen.append((file, every))

    done = runner.invoke(app, arguments)
    assert (0, [expected]) == (done.exit_code, seen), done.output


def looks(count: int, number: int = signal.SIGINT):
    """A look that counts, and asks for the end with the last one."""
    seen = []

    def look():
        seen.append(FOUND)
        if len(seen) == count:
            os.kill(os.getpid(), number)
        return FOUND

    return look, seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_peace(number, capsys):
    """Ctrl-C would print a traceback, or be an error to a script."""
    look, seen = looks(3, number)
    watch(look, 0.01, "table")
    assert 3 == len(seen)
    assert 2 == capsys.readouterr().out.count("1 of 1 mirror")


def test_a_message_is_said_once(capsys):
    """The problem of a held mirror would be read twice, each time across many lines of a narrow terminal."""
    held = dict.fromkeys(live_status.COLUMNS, "x") | {"state": "held", "message": "no key"}
    live_status.show({**FOUND, "tables": [held], "problems": ["x is held: no key"]})
    assert 1 == capsys.readouterr().out.count("no key")
    gone = held | {"state": "ok", "message": "the source has dropped it"}  # no problem, and said nowhere else
    live_status.show({**FOUND, "tables": [held, gone], "problems": ["x is held: no key"]})
    printed = capsys.readouterr().out
    assert (1, 1) == (printed.count("no key"), printed.count("the source has dropped it"))


def test_what_needs_attention_comes_first(capsys, monkeypatch):
    """Two hundred lines of healthy mirrors would hide the one that is held."""
    row = dict.fromkeys(live_status.COLUMNS, "x") | {
        "state": "ok",
        "message": "",
        "lag": "2m",
        "lag_seconds": 120,
    }
    tables = [row | {"table": f"shop.a{n}"} for n in range(live_status.MANY)]
    tables += [row | {"table": "shop.held", "state": "held", "message": "no key"}]
    tables += [row | {"table": "shop.late", "lag": "5h", "lag_seconds": 18000}]
    found = {**FOUND, "tables": tables, "problems": ["shop.held is held: no key"]}

    def places(*words):
        printed = capsys.readouterr().out
        return [printed.find(word) for word in words]

    live_status.show(found)
    seen = places("- shop.held is held", "next: ", "shop.held  ", "shop.a0", "shop.late")
    assert -1 not in seen
    assert sorted(seen) == seen
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    live_status.show(found)
    assert -1 not in places(
        "- shop.held is held", "shop.held  ", "21 mirrors are ok; shop.late lags most, by 5h"
    )
    live_status.show(found)
    assert [-1] == places("shop.a0")
    live_status.show({**found, "tables": tables[1:-1]})
    assert [-1] == places("mirrors are ok")


def test_a_sentence_is_one_line_in_a_file(capsys):
    """A command copied out of a log would end in its middle, and where would depend on the length of the file's path."""
    sentence = "wait for a decision: ingest ddl " + "a/long/way/to/" * 20 + "pipeline.yaml"
    live_status.show({**FOUND, "headline": sentence, "problems": [sentence], "next": sentence})
    out = capsys.readouterr().out.splitlines()
    assert [sentence, f"- {sentence}", f"next: {sentence}"] == [line for line in out if "a/long/way" in line]


def test_blocks_hold_names_as_they_are(capsys):
    """A table's name would be taken for markup."""
    watch(looks(2)[0], 0.01, "table")
    out = capsys.readouterr().out
    assert "shop.<b>orders[red]" in out
    assert "2 [bold] cells" in out


def test_json_is_one_document_a_line(capsysbinary):
    """Scripts read line by line."""
    watch(looks(3)[0], 0.01, "json")
    lines = capsysbinary.readouterr().out.splitlines()
    assert [FOUND["headline"]] * 2 == [json.loads(line)["headline"] for line in lines]


def test_a_terminal_gets_one_view(monkeypatch):
    """Every look would push the one before up the screen."""
    import rich.live

    seen = []

    class Live:
        def __init__(self, **_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, view, *, refresh):
            seen.append((view, refresh))

    monkeypatch.setattr(rich.live, "Live", Live)
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    watch(looks(2)[0], 0.01, "table")
    assert [True] == [refresh for _, refresh in seen]


def test_metrics_are_not_watched():
    """A collector takes one whole file, not block after block."""
    done = runner.invoke(command, ["status", "none.yaml", "--watch", "--output", "prom"])
    assert 2 == done.exit_code
    assert "--watch cannot be used with --output prom" in done.stderr
