"""What several tests of the command line share."""

from __future__ import annotations

import pytest

from tests.lakes import change, statement, touch


@pytest.fixture
def no_session(monkeypatch):
    """A plan of files needs no session."""

    def refuse(*_):
        raise AssertionError("a session was asked for")

    monkeypatch.setattr("ingest.cli.plan_verb.session_for", refuse)


@pytest.fixture
def folder(tmp_path):
    """A folder with one file of messages: two tables, a statement, a broken line."""
    feed = tmp_path / "bins-1.jsonl"
    feed.write_text(
        change("INSERT", "bins", 1, {"id": "1", "word": "a"})
        + change("UPDATE", "bins", 2, {"id": "1", "word": "b"})
        + change("INSERT", "shelves", 3, {"id": "1", "word": "c"})
        + statement("bins", 4, "ALTER TABLE bins ADD COLUMN tall int")
        + '{"broken": \n',
        "utf-8",
    )
    touch(feed)
    return tmp_path
