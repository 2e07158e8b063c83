"""The support matrix of README.md is the one that the formats' modules give."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import matrix
from ingest import formats

README = Path(__file__).parents[1] / "README.md"
ABOUTS = {name: formats.load(name).ABOUT for name in formats.names()}


def test_the_readme_holds_the_matrix_of_the_code():
    """Users would trust an outdated table: run `python -m docs.matrix`."""
    text = README.read_text()
    assert matrix.written(text) == text


def test_every_format_has_its_row():
    """A format without a row would look unsupported."""
    lines = matrix.table(ABOUTS).splitlines()
    assert set(formats.names()) == {line.split("`")[1] for line in lines if line.startswith("| `")}


@pytest.mark.parametrize(
    "text", ["", matrix.BEGIN, f"{matrix.END}{matrix.BEGIN}", f"{matrix.BEGIN}{matrix.END}" * 2]
)
def test_a_document_without_its_marks_is_refused(text):
    """The matrix would silently be lost or written twice."""
    with pytest.raises(ValueError, match="must hold"):
        matrix.written(text)


def test_bars_of_a_text_do_not_end_its_cell():
    """A loss that mentions a|b would shift the columns of its row."""
    assert r"| a\|b |" == matrix._line(["a|b"])
