"""The source's own row counts: files that people export by hand, in the forms that they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.quality.source_counts import read


@pytest.mark.parametrize(
    "text",
    [
        "table,rows\nyard.crates,12\nyard.pallets,0\n",
        "\ufeffrows, table, counted_at\n12, yard.crates, today\n0, yard.pallets, today\n",
        '{"yard.crates": 12, "yard.pallets": 0}',
        '[{"table": "yard.crates", "rows": 12}, {"table": "yard.pallets", "rows": "0"}]',
    ],
    ids=["csv", "csv of a spreadsheet", "object", "list"],
)
def test_counts_are_read_in_every_form(tmp_path: Path, text: str) -> None:
    """A count that is not understood is a check that never runs."""
    file = tmp_path / "counts"
    file.write_text(text, "utf-8")
    assert {"yard.crates": 12, "yard.pallets": 0} == read(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crates;12\n", "begin with no line that names the columns table,rows"),
        ("table,rows\nyard.crates,many\n", "line 2: a table's name and a whole number of rows belong here"),
        ("table,rows\nyard.crates,12.5\n", "not 'yard.crates' and '12.5'"),
        ("table,rows\n,12\n", "line 2"),
        ('{"yard.crates": -1}', "member 'yard.crates'"),
        ('[{"table": "yard.crates"}]', "entry 1"),
        ("{", "are not JSON"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    """The message must name the place, so that who exports the counts can correct it."""
    file = tmp_path / "counts"
    file.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="counts") as caught:
        read(file)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """An export that did not run must not look like an equal count."""
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read(tmp_path / "nowhere.csv")
