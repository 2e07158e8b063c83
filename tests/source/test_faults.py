"""What a database says when it fails, as a user sees it."""

from __future__ import annotations

import socket
import time

import pytest

from ingest.config.model import Database
from ingest.errors import IngestError
from ingest.source import database, mysql, postgres
from tests.source.test_reconcile import Bins, bins
from tests.timing import PATIENCE

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


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_host_that_accepts_and_never_answers(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of something else, or a router that answers for a host that is gone, would hold the verb for ten minutes."""
    monkeypatch.setattr(mysql if scheme == "mysql" else postgres, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/shop"
        began, shop = time.monotonic(), Database(url=url, user="reader", password="hunter2-x")
        with (
            pytest.raises(IngestError, match=r"does not let user 'reader' in: .*time") as caught,
            database.connected(shop),
        ):
            pass
    assert time.monotonic() - began < PATIENCE
    assert "hunter2-x" not in str(caught.value)
    assert "\n" not in str(caught.value)


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
