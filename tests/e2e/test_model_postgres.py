"""The model of PostgreSQL against a real one: the same statements leave the same rows and columns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.databases import Nodes, PostgreSQL
from tests.model.histories import history
from tests.model.parts import Life
from tests.model.postgres import STEPS, PostgresWriter
from tests.model.postgres_types import DECLARED, KEYS, LABELS, PostgresType
from tests.model.tables import Table

HISTORIES = 60
SEED = os.environ.get("INGEST_SEED", "")
LIFE = Life({**STEPS, "add_unread": 1}, DECLARED, keys=KEYS, length=30, writer=PostgresWriter)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A connection to a server that has the model's type."""
    with Nodes() as nodes, contextlib.closing(nodes.of(PostgreSQL).connect()) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("SET intervalstyle = postgres")
        cursor.execute(f"CREATE TYPE mood AS ENUM {LABELS}")
        yield cursor


@pytest.mark.parametrize("number", range(HISTORIES))
def test_the_model_does_what_a_server_does(server: Any, number: int) -> None:
    """A model that is wrong would judge mirrors wrongly."""
    source = history(number, LIFE, SEED).source
    server.execute(f"CREATE SCHEMA h{number}")
    server.execute(f"SET search_path = h{number}, public")
    for _, sql in source.script:
        run(server, sql)
    for table in source.known():
        assert shown(table) == found(server, table), "\n".join(sql for _, sql in source.script)
    server.execute(f"DROP SCHEMA h{number} CASCADE")


def run(server: Any, sql: str) -> None:
    """Run a statement of the model."""
    try:
        server.execute(sql)
    except Exception as error:
        raise AssertionError(f"{sql}: {error}") from error


def shown(table: Table) -> tuple[list[str], list[str]]:
    """Columns, and rows as the server prints their cells."""
    kinds = {column.name: column.type for column in table.columns}
    rows = [
        [None if text is None else _printed(kinds[name], text) for name, text in row.items()]
        for row in table.rows.values()
    ]
    return list(kinds), sorted(map(str, rows))


def _printed(kind: Any, text: str) -> str:
    assert isinstance(kind, PostgresType)
    if kind.name == "boolean":
        return text[0]
    printed = kind.printed(text)
    if kind.name != "money":
        return printed
    return f"-${printed[1:]}" if printed[0] == "-" else f"${printed}"


def found(server: Any, table: Table) -> tuple[list[str], list[str]]:
    """The same of the server's table."""
    name = f'{table.database}."{table.name}"'
    server.execute(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
        "ORDER BY attnum",
        (name,),
    )
    names = [row[0] for row in server.fetchall()]
    cells = ", ".join(f"""CASE WHEN "{one}" IS NOT NULL THEN format('%s', "{one}") END""" for one in names)
    server.execute(f"SELECT {cells} FROM {name}")
    return names, sorted(str(list(row)) for row in server.fetchall())
