"""Whose statements a message holds: by the name that the source's database has for itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingest.change import Hints, Message, Op
from ingest.ddl import dialect_of, of_change
from ingest.formats import reader

STATEMENT = "ALTER TABLE [dbo].[t] ADD [c] INT DEFAULT 5, [d] INT NOT NULL DEFAULT 5"
CANAL = {
    "database": "d",
    "schema": "dbo",
    "table": "t",
    "id": 1,
    "es": 1,
    "ts": 1,
    "isDdl": True,
    "type": "DDL",
}
SOURCE = {"dbName": "d", "schemaName": "dbo", "tableName": "t"}
STREAMX = {"sequenceId": "7", "timestamp": {"eventTime": 1}, "op": "ALTER", "ddl": {"text": STATEMENT}}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("MySQL", "mysql"),
        ("SQLServer", "sqlserver"),
        ("SQL Server", "sqlserver"),
        ("MSSQL", "sqlserver"),
        ("DB2", "db2"),
        ("DB2 LUW", "db2"),
        ("PostgreSQL", "postgres"),
        ("GaussDB", "postgres"),
        ("GaussDB for MySQL", "mysql"),
        ("Oracle", "oracle"),
        ("OB_ORACLE", "oracle"),
        ("OB_MYSQL", "oceanbase"),
        (None, "mysql"),
    ],
)
def test_the_dialect_of_a_database(kind: str | None, expected: str) -> None:
    """Read by another database's rules, a statement does something else: SQL Server leaves existing rows NULL where MySQL fills them."""
    assert expected == dialect_of(kind)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("drs-json", CANAL | {"dbType": "SQLServer", "sql": STATEMENT}),
        ("dts-canal", CANAL | {"dbType": "SQLServer", "sql": STATEMENT}),
        (
            "dataworks",
            {"version": "1", "schema": {"source": SOURCE | {"dbType": "SQLServer"}}, "payload": STREAMX},
        ),
    ],
)
def test_a_statement_of_sql_server(name: str, message: dict[str, Any]) -> None:
    """As MySQL's it could not be read, or gave existing rows a DEFAULT that SQL Server leaves them without."""
    sent = Message(json.dumps(message).encode())
    [statement] = [change for change in reader(name)(sent, Hints()) if change.op is Op.DDL]
    defaults = {one.column: (one.has_default, one.default) for one in of_change(statement).effects}
    assert {"c": (False, None), "d": (True, "5")} == defaults
