"""Connections to a source database: read only, with their faults as one sentence that never holds the password."""

from __future__ import annotations

import base64
import importlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import SplitResult, unquote, urlsplit

import orjson

from ingest.change import TableId
from ingest.config.entries import Database
from ingest.errors import IngestError, SetupError

CONNECT_SECONDS = 10
_LOOK_SECONDS = 3  # for a second look at a host that failed
READ_SECONDS = 600
FETCHED_ROWS = 1000  # at once
_MODULES = {
    "mysql": "mysql", "mariadb": "mysql", "postgresql": "postgres", "oracle": "oracle", "sqlserver": "sqlserver",
}  # fmt: skip
_CLIENTS = "pip install 'ingest[databases]'"  # what installs them
HOW_IT_ENDS = (
    "PostgreSQL shows it in pg_stat_activity or pg_prepared_xacts; MySQL in information_schema.innodb_trx, or by XA RECOVER, "
    "and XA COMMIT or XA ROLLBACK ends that"
)

_PORTS = {"mysql": 3306, "postgres": 5432, "oracle": 1521, "sqlserver": 1433}


class SourceColumn(NamedTuple):
    """A column of a source table: its name, how it is declared, its logical type, and SQL for its canonical text.

    The text of a ``binary`` column may be its bytes, of which `SourceDialect.rows` and `SourceDialect.values` make the
    canonical text.  A column without SQL cannot be read.
    """

    name: str
    declared: str
    type: str
    text: str
    by_bytes: bool = False  # texts that are ordered as their bytes are
    generated: bool = False  # from other columns of its row; many streams leave such a column out
    comparable: bool = True  # False if its text follows the connector, or the database has no checksum of it


class Key(NamedTuple):
    """A key column: SQL that orders as the database does, SQL that writes it, and SQL that reads what was written."""

    order: str
    text: str
    literal: str  # with {} for the quoted text


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source table as its database describes it."""

    id: TableId
    name: str  # quoted, as SQL names it
    columns: tuple[SourceColumn, ...]
    keys: tuple[str, ...]
    left_out: tuple[SourceColumn, ...] = ()  # columns that are not read
    hides_columns: bool = False  # True if this user may not read all columns, and is not shown the others

    @property
    def shape(self) -> list[list[str]]:
        """What must stay as it is while the table is read."""
        return sorted([column.name, column.declared] for column in (*self.columns, *self.left_out))


class SourceDialect(Protocol):
    """What a database's module holds."""

    ERRORS: tuple[type[Exception], ...]
    CLOCK: str  # a query for the database's own time, as canonical ``timestamp`` text
    BOUNDED_TEXTS: bool  # True if a row's text has a limit: long texts go into it as their MD5
    SPACES_JSON: bool  # True if a JSON document has a space after each colon and comma, which connectors omit
    HIDES_TABLES: bool  # True if a table that this user may not read looks as if there were none

    @staticmethod
    def connect(url: SplitResult, user: str, password: str) -> Any:
        """A new connection, in UTC and in text that loses nothing."""

    @staticmethod
    def table(connection: Any, table: TableId) -> SourceTable | None:
        """A table with its columns and its primary key; None if there is none, `no_right` if it may not be read."""

    @staticmethod
    def key(column: SourceColumn) -> Key:
        """How a key column is compared."""

    @staticmethod
    def equal(column: SourceColumn, text: str) -> str:
        """A condition on a column by a value's canonical text."""

    @staticmethod
    def double(column: SourceColumn) -> tuple[str, str]:
        """SQL for a column as a double, and for its text."""

    @staticmethod
    def bits(column: SourceColumn) -> str:
        """SQL for the 16 hexadecimal digits of a column as a double; empty if only its text can be compared."""

    @staticmethod
    def real_date(column: SourceColumn) -> str:
        """SQL for the text of a column of dates or times, NULL where a date is none."""

    @staticmethod
    def trimmed(text: str) -> str:
        """SQL for a text with a decimal point, without the zeros at its end."""

    @staticmethod
    def nth(query: str, order: str, skip: int) -> str:
        """A query for the one row after ``skip`` others; without an order, for any row."""

    @staticmethod
    def concat(parts: Sequence[str]) -> str:
        """SQL for texts one after the other."""

    @staticmethod
    def md5(text: str, digits: int = 32, *, binary: bool = False) -> str:
        """SQL for the first hexadecimal digits, in lower case, of the MD5 of a text in UTF-8, or of bytes."""

    @staticmethod
    def number(text: str) -> str:
        """SQL for the first 60 bits of a text's MD5, as a number."""

    @staticmethod
    def rows(connection: Any, columns: Sequence[str], rest: str) -> Iterator[bytes]:
        """Each row of ``SELECT columns FROM rest`` as a JSON array of texts and nulls; the columns are texts."""

    @staticmethod
    def values(connection: Any, query: str) -> list[tuple[Any, ...]]:
        """The rows of a short query."""

    @staticmethod
    def is_replica(connection: Any) -> bool:
        """True if the server follows another one, as far as it says so to any user."""

    @staticmethod
    def settled(connection: Any, mark: str) -> str:
        """Called with an empty mark for a new one, then with it until nothing is left to wait for."""

    @staticmethod
    def position(connection: Any) -> str:
        """How far a primary's log is by now, for `has_applied` of its replica."""

    @staticmethod
    def has_applied(connection: Any, position: str) -> bool:
        """True if a SELECT on a replica shows all that its primary had committed up to a position."""


def quoted(text: str) -> str:
    """A text as a literal; backslashes mean nothing to the standard, nor to the sessions of these connections."""
    return "'" + text.replace("'", "''") + "'"


def trim_call(text: str) -> str:
    """`SourceDialect.trimmed` in standard SQL."""
    return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"


def nth_by_limit(query: str, order: str, skip: int) -> str:
    """`SourceDialect.nth` of databases with LIMIT."""
    return f"{query}{f' ORDER BY {order}' if order else ''} LIMIT 1{f' OFFSET {skip}' if skip else ''}"


def concat_call(parts: Sequence[str]) -> str:
    """`SourceDialect.concat` of databases with a function for it."""
    return f"CONCAT({', '.join(parts)})"


def md5_call(text: str, digits: int = 32, *, binary: bool = False) -> str:
    """`SourceDialect.md5` of databases whose texts are in UTF-8, and whose function is the same for bytes."""
    return f"LEFT(MD5({text}), {digits})"


def clock(dialect: SourceDialect, connection: Any) -> str:
    """The database's own time, as canonical ``timestamp`` text."""
    return str(dialect.values(connection, dialect.CLOCK)[0][0])


def no_bits(column: SourceColumn) -> str:
    """`SourceDialect.bits` of databases that do not give them."""
    return ""


def not_said(connection: Any) -> bool:
    """`SourceDialect.is_replica` of databases that do not say it to every user."""
    return False


def nothing_open(connection: Any, mark: str) -> str:
    """`SourceDialect.settled` of databases whose streams deliver in the order of commits."""
    return ""


def still_open(now: set[str], mark: str) -> str:
    """What `SourceDialect.settled` answers: of the transactions that are open now, those of a mark, or all if there is none."""
    return " ".join(sorted(now & set(mark.split()) if mark else now))


def row_values(connection: Any, query: str) -> list[tuple[Any, ...]]:
    """`SourceDialect.values` of clients that give texts and bytes."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [_texts(row) for row in cursor.fetchall()]


def json_rows(connection: Any, columns: Sequence[str], rest: str) -> Iterator[bytes]:
    """`SourceDialect.rows` of clients that give texts and bytes."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)} FROM {rest}")
        while batch := cursor.fetchmany(FETCHED_ROWS):
            for row in batch:
                yield orjson.dumps(_texts(row))


def _texts(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row of a client's values with bytes as their canonical text."""
    return tuple(base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell for cell in row)


def dialect_of(database: Database) -> SourceDialect:
    """The module for a database's URL; a `SetupError` if its client is not installed."""
    scheme = urlsplit(database.url).scheme
    try:
        return cast("SourceDialect", importlib.import_module(f"ingest.source.{_MODULES[scheme]}"))
    except ImportError as error:
        raise SetupError(f"The client of {scheme} is not installed: type `{_CLIENTS}`.", _CLIENTS) from error


def place_of(database: Database) -> str:
    """Host and port, for display."""
    url = urlsplit(database.url)
    return f"{url.hostname}:{url.port}" if url.port else str(url.hostname)


def primary_of(database: Database) -> Database:
    """The primary of a database that is a replica, for the same user."""
    return replace(database, url=database.primary, primary="")


@contextmanager
def connected(database: Database) -> Iterator[tuple[SourceDialect, Any]]:
    """A connection with its dialect, closed afterwards; faults are a `DatabaseError` that never holds the password."""
    dialect = dialect_of(database)
    url = urlsplit(database.url)
    user = database.user or unquote(url.username or "")
    password = database.password or unquote(url.password or "")
    try:
        connection = dialect.connect(url, user, password)
    except dialect.ERRORS as error:
        reason = _said(error, password)
        if silent := _silent(url):
            raise DatabaseError(
                f"The database at {place_of(database)} cannot be reached: {silent}. Look at url under `database:`, "
                "and whether the database runs and its port is open."
            ) from None
        raise DatabaseError(
            f"The database at {place_of(database)} does not let user {user!r} in: {reason}. "
            "Look at url, user and password under `database:`."
        ) from None
    try:
        yield dialect, connection
    except dialect.ERRORS as error:
        raise DatabaseError(
            f"The database at {place_of(database)} failed: {_said(error, password)}."
        ) from None
    finally:
        with suppress(*dialect.ERRORS):
            connection.close()


def _silent(url: SplitResult) -> str:
    """Why nothing listens at a URL's host and port; empty if something does."""
    port = url.port or _PORTS[_MODULES[url.scheme]]
    try:
        socket.create_connection((url.hostname or "localhost", port), _LOOK_SECONDS).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def no_right(table: TableId) -> IngestError:
    """The error for a table that exists and that this user may not read."""
    return IngestError(f"The user under `database:` may not read {table}: grant SELECT on it.")


def no_table(database: Database, table: TableId) -> IngestError:
    """The error for a table that the database does not show."""
    if dialect_of(database).HIDES_TABLES:
        return IngestError(
            f"The database shows user {database.user!r} no table {table}: look at its name, and grant SELECT on it."
        )
    return IngestError(
        f"The database has no table {table}: look at its name, or exclude it if it was dropped."
    )


class DatabaseError(IngestError):
    """A statement failed, the connection was lost, or none could be made; the same may work on a new one."""


def _said(error: Exception, password: str) -> str:
    text = " ".join([str(argument) for argument in error.args if isinstance(argument, str)] or [str(error)])
    hidden = text.replace(password, "***") if password else text  # while it is whole
    return " ".join(hidden.split())[:300].rstrip(".") or "it did not answer"


def named(database: Database, text: str) -> TableId:
    """A table by its stream's name, ``database.table`` or ``database.schema.table``, else an `IngestError`."""
    parts = text.split(".")
    wanted = (2,) if _MODULES[urlsplit(database.url).scheme] == "mysql" else (2, 3)
    if len(parts) not in wanted or not all(parts):
        form = "database.schema.table" if 3 in wanted else "database.table"
        raise IngestError(f"{text!r} is not a table here: write {form}, as `ingest tables` prints it.")
    return TableId(parts[0], parts[1] if len(parts) == 3 else None, parts[-1])
