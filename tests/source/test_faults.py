"""What a database says when it fails, as a user sees it."""

from __future__ import annotations

import pytest

from ingest.source import database


@pytest.mark.parametrize("password", ["hunter2-x", "two  blanks", "a\nline"])
@pytest.mark.parametrize("before", [0, 281])
def test_a_password_is_hidden_wherever_it_stands(password: str, before: int) -> None:
    """The beginning of a password at the end of a long message, or one with its blanks joined, would be shown."""
    said = database._said(OSError(f"{'x' * before}no entry for {password} here"), password)
    assert 1 == len(said.splitlines())
    for part in (password[:5], *password.split()):
        assert part not in said


def test_a_fault_without_words_is_a_sentence() -> None:
    """A message that ends with nothing after its colon says nothing."""
    assert "it did not answer" == database._said(OSError(), "")
