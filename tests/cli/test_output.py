"""Results keep every digit on their way out."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ingest.cli import output
from ingest.errors import command


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
    """People read it, and scripts too."""
    assert '{\n  "a": [\n    1\n  ]\n}\n' == printed(output.json, {"a": [1]})


def test_tables_print_cells_as_they_are() -> None:
    """A cell that looks like markup would vanish."""
    text = printed(output.table, ["name", "value"], [["[red]x[/red]", None], [":smile:", 1.5]])
    assert "[red]x[/red]" in text
    assert ":smile:" in text
    assert "1.5" in text


def test_a_command_can_be_pasted() -> None:
    """A path with a blank would be two arguments, and one with a semicolon another command."""
    assert "ingest rejects show '/my lakes/a;b.yaml' 3" == command(
        "rejects", "show", Path("/my lakes/a;b.yaml"), 3
    )
