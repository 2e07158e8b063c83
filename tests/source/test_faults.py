"""What a database says when it fails, as a user sees it."""

from __future__ import annotations

import pytest

from ingest.source import database
from tests.source.test_reconcile import Bins, bins

__all__ = ["bins"]


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


@pytest.mark.parametrize(
    ("reached", "judged"),
    [("2024-04-30T23:59:59", False), ("2024-05-01T00:00:30", True), ("2024-05-01T01:00:00", False)],
    ids=["behind", "as the source", "an hour ahead"],
)
def test_a_clock_that_is_wrong_judges_no_row(bins: Bins, reached: str, judged: bool) -> None:
    """By times of a clock that is ahead, the stream has passed what it has not delivered yet: each row would be lost."""
    bins.rows[5] = ("old", 5 / 8)
    bins.mirror(reached=reached)  # the source's clock says midnight, whatever it is here
    done = bins.type("--output", "json")
    assert (1 if judged else 3) == done.exit_code
    text = bins.type().stderr
    assert ("3,600 seconds later than its database's clock" in " ".join(text.split())) is ("01:00" in reached)
