"""The model of the source database against a real MariaDB: the same statements leave the same rows and columns."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.e2e.databases import MariaDB
from tests.e2e.parts import Missing
from tests.model import values
from tests.model.checks import typed
from tests.model.histories import STEPS, Life, history
from tests.model.source import Table

HISTORIES = 60
SEED = os.environ.get("INGEST_SEED", "")
MODES = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,TIME_ROUND_FRACTIONAL"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A connection to a server in the model's zone."""
    try:
        with MariaDB() as node, contextlib.closing(node.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET time_zone = '+08:00', sql_mode = '{MODES}'")
            yield cursor
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("number", range(HISTORIES))
def test_the_model_does_what_a_server_does(server: Any, number: int) -> None:
    """A model that is wrong would judge mirrors wrongly."""
    steps = {name: 6 if name in ("insert", "update") else 2 for name in STEPS if name != "reload"}
    source = history(number, Life(steps, length=30, cases=True), SEED).source
    server.execute(f"CREATE OR REPLACE DATABASE h{number}")
    server.execute(f"USE h{number}")
    for second, sql in source.script:
        server.execute(f"SET TIMESTAMP = {second}")
        run(server, sql)
    for table in source.known():
        assert shown(table) == found(server, table), "\n".join(sql for _, sql in source.script)
    server.execute(f"DROP DATABASE IF EXISTS h{number}")


def run(server: Any, sql: str) -> None:
    """Run a statement of the model; a dropped database is the session's own."""
    if sql.startswith("GRANT"):
        return  # the user may not
    try:
        server.execute(sql)
    except Exception as error:
        raise AssertionError(f"{sql}: {error}") from error
    if found := re.match(r"CREATE DATABASE `?(\w+)", sql):
        server.execute(f"USE {found[1]}")


def shown(table: Table) -> tuple[Any, Any]:
    """Columns, and rows with every value as what it is."""
    rows = [
        tuple(typed(table.shape[name].logical, value) for name, value in row.items())
        for row in table.rows.values()
    ]
    return list(table.shape), sorted(rows, key=str)


def found(server: Any, table: Table) -> tuple[Any, Any]:
    """The same of the server's table."""
    server.execute(f"SELECT * FROM `{table.database}`.`{table.name}`")
    names = [one[0] for one in server.description]
    columns = [table.column(name) for name in names]
    rows = [
        tuple(
            typed(column.type.logical, canonical(column.type, cell))
            for column, cell in zip(columns, row, strict=True)
        )
        for row in server.fetchall()
    ]
    return names, sorted(rows, key=str)


def canonical(kind: values.Type, cell: Any) -> str | None:
    """A cell of the client library as canonical text."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return str(int.from_bytes(cell)) if kind.name == "bit" else base64.b64encode(cell).decode()
    if isinstance(cell, Decimal):
        return f"{cell:f}"
    if isinstance(cell, dt.datetime):
        text = cell.isoformat(" ")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return values.instant(text) if kind.name == "timestamp" else text
    if isinstance(cell, dt.timedelta):
        seconds, micros = divmod(cell // dt.timedelta(microseconds=1), 10**6)
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
        return text.rstrip("0").rstrip(".")
    return cell.isoformat() if isinstance(cell, dt.date) else repr(cell)
