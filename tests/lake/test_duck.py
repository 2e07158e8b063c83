"""Values in the text of queries."""

from __future__ import annotations

import pytest

from ingest.lake import duck


@pytest.mark.parametrize(
    "value", ["", "'", "''", "a\0b", "\0", "\0'\0", "\\", "\n\r\u202e", "?", "$1", "{x}"]
)
def test_a_text_comes_back_as_it_is(value: str) -> None:
    """A name with a zero byte would cut the query in two, and answer nothing about its table."""
    assert [{"x": value}] == duck.rows(f"SELECT {duck.text(value)} AS x")
