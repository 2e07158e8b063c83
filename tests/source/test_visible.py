"""When rows may be read: not before all that the stream may have delivered is seen by a SELECT."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from ingest.config import load
from ingest.errors import IngestError
from ingest.source import mysql
from ingest.source.snapshot import snapshot, source_of
from tests.source import duck_source
from tests.source.bins import Bins


def test_rows_of_a_replica_come_with_a_warning(bins: Bins, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that lags gives rows that are older than what has landed, and they win."""
    for replica, warned in ((False, 0), (True, 1)):
        monkeypatch.setattr(duck_source, "is_replica", lambda _connection, replica=replica: replica)
        pipeline = load(bins.file)
        done = snapshot(pipeline, source_of(pipeline), "shop.bins", alone=True)
        assert warned == sum("is a replica" in one for one in done.warnings)


class Answers:
    """A database that has some settings, and whose open transactions end one by one."""

    def __init__(self, settings: dict[str, str], *opened: list[str] | Exception) -> None:
        self.settings = settings
        self.prepared: list[str] = []
        self.opened = list(opened)

    def values(self, _connection: Any, query: str) -> list[tuple[Any, ...]]:
        """The answer to one of the two questions."""
        if query.startswith("SHOW"):
            return list(self.settings.items())
        if query == "XA RECOVER":
            return [(1, 1, 0, name) for name in self.prepared]
        found = self.opened.pop(0)
        if isinstance(found, Exception):
            raise found
        return [(one,) for one in found]


def settings(role: str, point: str, enabled: str = "ON") -> dict[str, str]:
    """What a server says of its semi-synchronous replication."""
    return {f"rpl_semi_sync_{role}_enabled": enabled, f"rpl_semi_sync_{role}_wait_point": point}


@pytest.mark.parametrize("role", ["master", "source"])
def test_commits_that_wait_for_a_replica_are_waited_for(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """A row that is read before them is put over changes that the lake has, and stays there."""
    server = Answers(settings(role, "AFTER_SYNC"), ["7", "9"], ["9", "12"], ["12"])
    monkeypatch.setattr(mysql, "values", server.values)
    mark = mysql.settled(None, "")
    assert "7 9" == mark
    mark = mysql.settled(None, mark)
    assert "9" == mark
    assert "" == mysql.settled(None, mark)


@pytest.mark.parametrize(
    "found", [{}, settings("master", "AFTER_COMMIT"), settings("source", "AFTER_SYNC", "OFF")]
)
def test_other_servers_need_no_right_and_no_waiting(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str]
) -> None:
    """A right that is asked for without need is not granted, and no table can be read."""
    monkeypatch.setattr(mysql, "values", Answers(found).values)
    assert "" == mysql.settled(None, "")


def test_what_xa_has_prepared_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the log, whatever replicates."""
    server = Answers({})
    monkeypatch.setattr(mysql, "values", server.values)
    server.prepared = ["a b", "c"]
    mark = mysql.settled(None, "")
    server.prepared = ["c", "d"]
    assert b"c".hex() in (mark := mysql.settled(None, mark))
    server.prepared = ["d"]
    assert "" == mysql.settled(None, mark)


@pytest.mark.parametrize(
    "refusal",
    [
        pymysql.OperationalError(1227, "Access denied; you need (at least one of) the XA_RECOVER_ADMIN"),
        pymysql.OperationalError(1401, "XAER_RMERR: Fatal error occurred in the transaction branch"),
        pymysql.ProgrammingError(1064, "You have an error in your SQL syntax"),
    ],
    ids=["another-right", "mysql-8", "another-language"],
)
def test_where_xa_is_not_shown_nothing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, refusal: pymysql.MySQLError
) -> None:
    """A user with SELECT alone reads tables; MySQL 8 has a number of its own for the missing right."""

    def refused(_connection: Any, query: str) -> list[tuple[Any, ...]]:
        if query == "XA RECOVER":
            raise refusal
        return []

    monkeypatch.setattr(mysql, "values", refused)
    assert "" == mysql.settled(None, "")


def test_a_missing_right_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is guessed loses changes in silence."""
    refused = pymysql.OperationalError(
        1227, "Access denied; you need (at least one of) the PROCESS privilege(s)"
    )
    monkeypatch.setattr(mysql, "values", Answers(settings("source", "AFTER_SYNC"), refused).values)
    with pytest.raises(IngestError, match=r"GRANT PROCESS ON \*\.\*"):
        mysql.settled(None, "")


MANY = ",".join(f"a-b{server}:1-5" for server in range(200))


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"gtid_binlog_pos": "0-7-5,1-3-9"}, "MASTER_GTID_WAIT('0-7-5,1-3-9', 0) = 0"),
        ({"gtid_binlog_pos": ""}, ""),
        ({"gtid_executed": "a-b:1-5", "gtid_mode": "ON"}, "GTID_SUBSET('a-b:1-5', @@GLOBAL.gtid_executed) = 1"),
        ({"gtid_executed": MANY, "gtid_mode": "ON"}, f"GTID_SUBSET('{MANY}', @@GLOBAL.gtid_executed) = 1"),
        ({"gtid_executed": "a-b:1-5", "gtid_mode": "OFF"}, ""),
        ({"gtid_executed": "", "gtid_mode": "ON"}, ""),
        ({}, ""),
    ],
    ids=["mariadb", "mariadb-no-log", "mysql", "mysql-of-many-servers", "mysql-of-earlier-times", "mysql-new", "without"],
)  # fmt: skip
def test_a_replica_is_asked_in_its_own_way_what_it_has_applied(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], asked: str
) -> None:
    """A place in the log that nothing compares would let old rows in."""

    def values(_connection: Any, query: str) -> list[tuple[Any, ...]]:
        if "(" in query:
            return [(str(int(asked in query)),)]
        if query.startswith("SHOW"):  # which would cut a long one
            return [(name, gtids[:1024]) for name, gtids in variables.items()]
        names = [name.removeprefix("@@GLOBAL.") for name in query.removeprefix("SELECT ").split(", ")]
        if not {*variables, "'ON'"}.issuperset(names):
            raise pymysql.OperationalError(1193, "Unknown system variable")
        return [tuple(variables.get(name, "ON") for name in names)]

    monkeypatch.setattr(mysql, "values", values)
    if not asked:
        with pytest.raises(IngestError, match="no GTIDs"):
            mysql.position(None)
        return
    assert mysql.has_applied(None, mysql.position(None))


@pytest.mark.parametrize("primary", ["", "duck://primary:1"])
def test_what_is_open_for_long_is_said_with_what_ends_it(
    bins: Bins, monkeypatch: pytest.MonkeyPatch, primary: str
) -> None:
    """What XA has prepared is of no session that could be ended."""
    monkeypatch.setattr(duck_source, "settled", lambda _connection, _mark: "7")
    monkeypatch.setattr("ingest.source.snapshot._WAIT_SECONDS", 0)
    pipeline = load(bins.file)
    source = source_of(pipeline)
    assert source.database is not None
    database = replace(source.database, primary=primary and source.database.url)
    with pytest.raises(
        IngestError, match="innodb_trx, or by XA RECOVER, and XA COMMIT or XA ROLLBACK"
    ) as error:
        snapshot(pipeline, replace(source, database=database), "shop.bins", alone=True)
    assert bool(primary) == ("has not come in time to where its primary was" in str(error.value))


@pytest.mark.parametrize(
    ("url", "primary", "refused"),
    [
        ("mysql://db:3306", "postgresql://db:5432/shop", "are both addresses"),
        ("oracle://db:1521/shop", "oracle://other:1521/shop", "are both addresses"),
        ("postgresql://db:5432/shop", "postgresql://other:5432/stock", "end in the same name"),
        ("postgresql://db:5432/shop", "postgresql://other:5432", "end in the same name"),
        ("postgresql://db:5432/shop", "postgresql://other:5432/shop", ""),
        ("mysql://db:3306/shop", "mariadb://other:3306", ""),
    ],
)
def test_a_primary_is_of_its_replicas_kind_and_database(
    bins: Bins, url: str, primary: str, refused: str
) -> None:
    """The place in another database's log says nothing of the replica's, nor what is open in another database."""
    text = re.sub(
        r"database: \{url: [^,}]*",
        f"database: {{url: '{url}', primary: '{primary}'",
        bins.file.read_text("utf-8"),
    )
    assert primary in text
    bins.file.write_text(text, "utf-8")
    if not refused:
        load(bins.file)
        return
    with pytest.raises(IngestError, match=f"primary: and url: .*{refused}"):
        load(bins.file)
