"""A database whose commits wait for a replica: its stream has changes that no SELECT sees yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.errors import IngestError
from ingest.source import reconcile as comparing
from ingest.source import sides, snapshot
from tests.e2e.databases import MariaDB
from tests.e2e.services import Missing
from tests.e2e.test_reconcile import compare, lake, table_of
from tests.e2e.test_source import Garden
from tests.source import made


@pytest.fixture(scope="module")
def node() -> Iterator[MariaDB]:
    """A MariaDB of its own, whose settings the tests change."""
    try:
        with MariaDB() as found:
            yield found
    except Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def garden(node: MariaDB, tmp_path: Path) -> Garden:
    """A table with one row."""
    garden = Garden(node, tmp_path)
    garden.execute(
        "DROP TABLE IF EXISTS slow",
        "CREATE TABLE slow (id int primary key, v varchar(9))",
        "INSERT INTO slow VALUES (1, 'old')",
    )
    return garden


@contextmanager
def waiting_commit(garden: Garden) -> Iterator[threading.Event]:
    """The row's change is in the log, and no SELECT sees it until the event is set: no replica has acknowledged it."""
    garden.execute(
        "SET GLOBAL rpl_semi_sync_master_timeout = 240000", "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON", "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )  # fmt: skip
    released = threading.Event()

    def release() -> None:
        released.wait(60)
        garden.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")

    writer = threading.Thread(target=garden.execute, args=("UPDATE slow SET v = 'new'",))
    other = threading.Thread(target=release)
    writer.start()
    other.start()
    try:
        until = time.monotonic() + 30
        while not garden.rows("SELECT 1 FROM information_schema.innodb_trx WHERE trx_rows_modified > 0"):
            assert time.monotonic() < until
            time.sleep(0.25)  # asked more often, the server shows what it showed before
        assert [("old",)] == garden.rows("SELECT v FROM slow")
        yield released
    finally:
        released.set()
        writer.join(60)
        other.join(60)


def test_rows_are_read_when_the_commits_before_them_are_seen(garden: Garden) -> None:
    """The old row would stand over the change that the stream had delivered before, for ever.

    And looks that follow each other too fast are answered from the server's cache, so the end was not seen for minutes.
    """
    with waiting_commit(garden) as released:
        threading.Timer(1.0, released.set).start()
        began = time.monotonic()
        garden.read("slow")
        assert time.monotonic() - began < 20
    assert ["new"] == [row["v"] for row in garden.images("slow")]


def test_a_row_that_only_the_stream_shows_is_not_judged(
    garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of a right row would write the old one over it."""
    rows = pa.table({"id": [1], "v": ["new"]}, pa.schema([("id", pa.int32()), ("v", pa.string())]))
    made.mirror(lake(garden), table_of(garden, "slow"), {"id": "int32", "v": "string"}, ["id"], rows)
    monkeypatch.setattr(comparing, "_OPEN_SECONDS", 0.5)
    with waiting_commit(garden) as released:
        done = compare(garden, "slow")
        assert (False, 1, True) == (done.differs, done.waiting, done.open_long)
        monkeypatch.setattr(comparing, "_OPEN_SECONDS", 30.0)

        def acknowledged(*given: Any) -> bool:
            released.set()  # between the two looks
            return snapshot.is_settled(*given)

        monkeypatch.setattr(sides, "is_settled", acknowledged)
        done = compare(garden, "slow")
        assert (False, 0, 1) == (done.differs, done.waiting, done.on_the_way)
    assert not compare(garden, "slow").differs


def test_a_user_who_may_not_see_open_transactions_is_told_what_to_grant(garden: Garden) -> None:
    """Without the right nothing says when a row may be read, and guessing loses changes."""
    garden.execute(
        "CREATE OR REPLACE USER plain@'127.0.0.1'", "GRANT SELECT ON garden.* TO plain@'127.0.0.1'"
    )
    garden.file.write_text(
        garden.file.read_text("utf-8").replace("user: capture, password: capture", "user: plain"), "utf-8"
    )
    assert 1 == garden.read("slow").rows
    garden.execute(
        "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )
    try:
        with pytest.raises(IngestError, match="GRANT PROCESS"):
            garden.read("slow")
    finally:
        garden.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")


def test_a_server_that_takes_no_writes_is_a_replica(garden: Garden) -> None:
    """Its rows may be older than the changes of the stream."""
    garden.execute("SET GLOBAL read_only = ON")
    try:
        done = garden.read("slow")
    finally:
        garden.execute("SET GLOBAL read_only = OFF")
    assert [True] == ["is a replica" in one for one in done.warnings]
    assert [] == garden.read("slow").warnings
