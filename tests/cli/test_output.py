"""Results keep every digit on their way out."""

from __future__ import annotations

import json
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
import typer
from pyspark.sql.types import DoubleType
from typer.testing import CliRunner

from ingest.cli import look_verbs, output
from ingest.cli.progress import ProgressLine
from ingest.errors import command
from ingest.operate import spark_query
from ingest.spark.deferred import NoSession


def printed(write: object, *arguments: object) -> str:
    """What a function of the output module puts on stdout."""
    app = typer.Typer()
    app.command()(lambda: write(*arguments))  # type: ignore[operator]
    done = CliRunner().invoke(app)
    assert done.exception is None
    return done.stdout


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"n": 10**40}, '{"n":' + str(10**40) + "}\n"),
        ({"n": Decimal("1.10")}, '{"n":1.10}\n'),
        ({"b": b"\x00\xff"}, '{"b":"AP8="}\n'),
        (
            {"t": 'a\u2028"\\\n\u00e9'},
            json.dumps({"t": 'a\u2028"\\\n\u00e9'}, ensure_ascii=False).replace(": ", ":") + "\n",
        ),
        ([None, True, []], "[null,true,[]]\n"),
    ],
)
def test_json_is_exact(value: object, expected: str) -> None:
    """A consumer would compute with damaged numbers."""
    assert expected == printed(output.json_line, value)


def test_documents_are_indented_json() -> None:
    """Operators read it, and scripts too."""
    assert '{\n  "a": [\n    1\n  ]\n}\n' == printed(output.json, {"a": [1]})


def test_tables_print_cells_as_they_are() -> None:
    """A cell that looks like markup would vanish."""
    text = printed(output.table, ["name", "value"], [["[red]x[/red]", None], [":smile:", 1.5]])
    assert "[red]x[/red]" in text
    assert ":smile:" in text
    assert "1.5" in text


@pytest.mark.parametrize("cell", ["", "字", "x" * 90, "a\nb", "[b]"])
def test_many_rows_look_as_few(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long tables are laid out in another way, which must not show."""
    rows: list[list[object]] = [[f"t{n}", cell if n % 3 else None, n] for n in range(output._MANY + 10)]
    rows[7][1] = cell * 2
    quick = printed(output.table, ["name", "字 of it", "count"], rows)
    monkeypatch.setattr(output, "_MANY", len(rows))
    assert printed(output.table, ["name", "字 of it", "count"], rows) == quick


def test_a_command_can_be_pasted() -> None:
    """A path with a space would be two arguments, and one with a semicolon another command."""
    assert "ingest rejects show '/my lakes/a;b.yaml' 3" == command(
        "rejects", "show", Path("/my lakes/a;b.yaml"), 3
    )


HOSTILE = "\x1b[2J\x1b]52;c;ZWNobyBwd24=\x07\x9b31m\u202egnp.exe\x7f\x00\r"


@pytest.mark.parametrize(
    "write",
    [
        lambda: output.line(HOSTILE),
        lambda: output.text(HOSTILE),
        lambda: output.json({HOSTILE: HOSTILE}),
        lambda: output.json_line([HOSTILE]),
        lambda: output.table([HOSTILE, "b"], [[HOSTILE, 1]], HOSTILE),
        lambda: output.yaml({"a": HOSTILE}),
        lambda: output.note(HOSTILE),
        lambda: output.warning(HOSTILE),
        lambda: output.error(HOSTILE),
    ],
)
def test_data_do_not_drive_the_terminal(write: object, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A statement in the source would clear the operator's screen, or put a command into the clipboard."""
    write()  # type: ignore[operator]
    sys.stdout.flush()
    sys.stdout.buffer.flush()
    done = capfdbinary.readouterr()
    text = (done.out + done.err).decode()
    assert text
    assert set() == set(text) & set("\x1b\x07\x9b\u202e\x7f\x00\r")


def test_json_with_hidden_characters_is_the_same_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A consumer would get other text than the data hold."""
    output.json_line({"t": HOSTILE, "n": Decimal("1.10")})
    sys.stdout.buffer.flush()
    assert {"t": HOSTILE, "n": 1.1} == json.loads(capfdbinary.readouterr().out)


@pytest.mark.parametrize("cell", ["1.5", "-0.0", "1.0E300", "NaN", "-Infinity"])
def test_a_floating_number_is_a_number_in_both_forms(cell: str) -> None:
    """A table would show `<msgspec.Raw object>`, and JSON would hold a text."""
    found = spark_query._json(cell, DoubleType())
    assert cell in printed(output.table, ["n"], [[look_verbs._shown(found)]])
    json_cell = json.loads(printed(output.json_line, {"n": found}))["n"]
    assert (cell if cell in {"NaN", "-Infinity"} else float(cell)) == json_cell


def test_column_names_are_no_markup() -> None:
    """A column's name would become a link, or vanish."""
    assert "[link=http://x]y[/link]" in printed(output.table, ["[link=http://x]y[/link]"], [[1]])


def test_long_names_are_cut() -> None:
    """One table's name would fill the screen at every step."""
    assert 80 == len(output.short("x" * 5000))
    assert "shop.orders" == output.short("shop.orders")


def test_progress_shows_the_newest_step_and_costs_the_same_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 100,000 tables would spend hours on saying which it is at, and then name another one."""
    notes: list[str] = []
    monkeypatch.setattr(output, "note", notes.append)
    progress = ProgressLine(NoSession(), "shop")  # type: ignore[arg-type]
    began = time.thread_time()
    for number in range(10_000):
        progress.tell(f"gold shop.t{number}", "load")
    assert time.thread_time() - began < 1
    progress.tell("gold shop.t3", "merge")
    assert notes[-1].endswith(f"shop: {progress._line()}")
    assert "gold shop.t3: merge" == progress._line()
