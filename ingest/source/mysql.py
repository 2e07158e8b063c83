"""MySQL and MariaDB, and OceanBase in its MySQL mode.

What their documents say, and what is done about it:

- ``FLOAT`` prints six digits, so it is read as the double that it is; ``+ 0`` loses the sign of its zero.
- ``TO_BASE64`` breaks its text into lines of 76.
- A function whose result is larger than ``max_allowed_packet`` gives NULL and a warning, so a warning is a fault.
- MariaDB's JSON is a text with a check on it, which JSON_ARRAY embeds as JSON; what CONCAT gives is a text to it.
- A user with SELECT on some columns sees no others in the dictionary; ``SELECT *`` fails.
- ``ENUM`` and ``SET`` are ordered by their number, and compared with a text as text: keys use the number.
- ``ZEROFILL`` pads the text of a number.
- The log is in the order of commits, and what a stream has delivered was committed before, with two exceptions: a transaction
  that XA has prepared, and with lossless semi-synchronous replication (``wait_point`` AFTER_SYNC) one that still waits for a
  replica, are in the log, and with the stream's readers, and no SELECT sees them.  Then rows are read when what was open is
  over (`settled`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult

import pymysql
from pymysql.cursors import SSCursor

from ingest import types
from ingest.change import TableId
from ingest.errors import IngestError
from ingest.source.database import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Key,
    SourceColumn,
    SourceTable,
    concat_call,
    md5_call,
    no_bits,
    no_right,
    nth_by_limit,
    quoted,
    still_open,
    trim_call,
)
from ingest.store.names import quoted as name_of

ERRORS: tuple[type[Exception], ...] = (pymysql.MySQLError, OSError)
CLOCK = "SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')"
BOUNDED_TEXTS = False
SPACES_JSON = True
HIDES_TABLES = False
nth, concat, trimmed, md5 = nth_by_limit, concat_call, trim_call, md5_call
bits = no_bits
_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DENIED = (1044, 1142, 1143)  # the database, SELECT on a table, on a column
_NO_PROCESS = 1227
# no such statement, variable, right, feature; MySQL 8 without XA_RECOVER_ADMIN
_NOT_SHOWN = (1064, 1193, 1227, 1235, 1401)
_NOT_THERE = (1049, 1146)  # the database, the table
_NO_DATABASE = 1046  # is selected, in which a function would be looked for that the server does not have
_INTEGERS = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64 year".split())


def connect(url: SplitResult, user: str, password: str) -> Any:
    """A connection that reads TIMESTAMP in UTC and writes nothing."""
    connection = pymysql.connect(
        host=url.hostname or "localhost",
        port=url.port or 3306,
        user=user,
        password=password,
        charset="utf8mb4",
        connect_timeout=CONNECT_SECONDS,
        read_timeout=CONNECT_SECONDS,  # also for the greeting, which a host that only accepts never sends
        autocommit=True,
        conv={},  # every value as text
    )
    connection._read_timeout = READ_SECONDS
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = 'NO_BACKSLASH_ESCAPES'")
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    return connection


def table(connection: Any, table: TableId) -> SourceTable | None:
    where = f"table_schema = {quoted(table.database or '')} AND table_name = {quoted(table.table or '')}"
    listed = values(
        connection,
        "SELECT column_name, column_type, collation_name, extra REGEXP 'VIRTUAL|STORED|PERSISTENT' "
        f"FROM information_schema.columns WHERE {where} ORDER BY ordinal_position",
    )
    named = f"{name_of(table.database or '')}.{name_of(table.table or '')}"
    try:
        denied = _is_denied(connection, named)
    except (pymysql.OperationalError, pymysql.ProgrammingError) as error:
        if error.args[0] in _NOT_THERE:
            return None
        raise
    if not listed:
        if denied:
            raise no_right(table)
        return None  # it has been created since
    keys = values(
        connection,
        f"SELECT column_name FROM information_schema.statistics WHERE {where} AND index_name = 'PRIMARY' "
        "ORDER BY seq_in_index",
    )
    columns = []
    for name, declared, collation, generated in listed:
        logical = types.mysql(declared)
        text = _text(name_of(name), declared.lower(), types.base(logical))
        by_bytes = logical == "string" and str(collation).endswith("_bin")
        columns.append(SourceColumn(name, declared, logical, text, by_bytes, str(generated) == "1"))
    return SourceTable(table, named, tuple(columns), tuple(name for (name,) in keys), hides_columns=denied)


def _is_denied(connection: Any, named: str) -> bool:
    """True where SELECT is not granted, or on some columns alone: the dictionary does not show what is not."""
    try:
        values(connection, f"SELECT * FROM {named} LIMIT 0")
    except pymysql.OperationalError as error:
        if error.args[0] in _DENIED:
            return True
        raise
    return False


def _text(name: str, declared: str, logical: str) -> str:
    """SQL for the canonical text of a column."""
    plain = f"CAST({name} AS CHAR)"
    if logical in ("decimal", "float64") and "zerofill" in declared:
        return f"CAST({name} + 0 AS CHAR)"
    if logical == "timestamp":
        return f"CONCAT(REPLACE({_trimmed(plain, declared)}, ' ', 'T'), 'Z')"
    if logical in ("datetime", "time"):
        return _trimmed(plain, declared)
    return _TEXTS[logical].format(name) if logical in _TEXTS else plain


_TEXTS = {
    **dict.fromkeys(_INTEGERS, "CAST({} + 0 AS CHAR)"),
    "float32": "CAST({} * 1e0 AS CHAR)",  # which keeps the sign of zero
    "bit": "CAST(CAST({} AS UNSIGNED) AS CHAR)",
    "binary": "REPLACE(TO_BASE64({}), '\n', '')",
    "geometry": (
        "IF(ST_SRID({0}) = 0, ST_AsText({0}), CONCAT('SRID=', ST_SRID({0}), ';', "
        "REPLACE(TO_BASE64(ST_AsWKB({0})), '\n', '')))"
    ),
    **dict.fromkeys(("string", "enum", "set"), "CONCAT(CONVERT({} USING utf8mb4))"),
}
"""By logical type, the SQL for the text of a column of this name."""


def _trimmed(text: str, declared: str) -> str:
    """A time without the zeros that its declared fraction pads."""
    if not re.search(r"\([1-6]\)", declared):
        return text
    return trimmed(text)


def key(column: SourceColumn) -> Key:
    """Numbers as they are, labels by their number, bytes as hexadecimal digits, all else as text."""
    name, logical = name_of(column.name), types.base(column.type)
    if logical in ("enum", "set", "bit"):
        return Key(f"({name} + 0)", f"CAST({name} + 0 AS CHAR)", "CAST({} AS UNSIGNED)")
    if logical in _INTEGERS:
        signed = "UNSIGNED" if logical.startswith("u") else "SIGNED"
        return Key(name, column.text, f"CAST({{}} AS {signed})")
    if logical == "binary":
        return Key(name, f"HEX({name})", "UNHEX({})")
    if logical == "decimal":
        return Key(
            name, column.text, "CAST({} AS " + re.sub(r"\b(unsigned|zerofill)\b", "", column.declared) + ")"
        )
    if logical == "timestamp":
        return Key(name, f"CAST({name} AS CHAR)", "{}")
    return Key(name, column.text, "{}")


def equal(column: SourceColumn, text: str) -> str:
    name, logical, literal = name_of(column.name), types.base(column.type), quoted(text)
    if logical == "binary":
        return f"{name} = FROM_BASE64({literal})"
    if logical == "timestamp":
        return f"{name} = {quoted(text.replace('T', ' ').removesuffix('Z'))}"
    if _PLAIN.fullmatch(text) and logical in (*_INTEGERS, "bit", "decimal"):
        return f"{name} = {text}"  # as a text it would be compared as a double
    return f"{name} = {literal}"


def double(column: SourceColumn) -> tuple[str, str]:
    number = f"({name_of(column.name)} * 1e0)"
    return number, f"CAST({number} AS CHAR)"


def real_date(column: SourceColumn) -> str:
    """NULL for a date of zeros, as mirrors have it; such a cell is a reject."""
    name = name_of(column.name)
    return f"IF(DAYOFMONTH({name}) = 0 OR MONTH({name}) = 0, NULL, {column.text})"


def number(text: str) -> str:
    return f"CAST(CONV(LEFT(MD5({text}), 15), 16, 10) AS UNSIGNED)"


def is_replica(connection: Any) -> bool:
    """True for a server that takes no writes: whom it follows is shown to administrators alone."""
    return str(values(connection, "SELECT @@global.read_only")[0][0]) not in ("0", "OFF")


def settled(connection: Any, mark: str) -> str:
    """The transactions that are in the log, or may be, and that no SELECT sees, as a mark; nothing once all of them are over.

    A transaction that XA has prepared is in the log.  All others that have written are only where commits wait for a replica.
    """
    now = {f"xa:{data.encode().hex()}" for *_, data in _shown(connection, "XA RECOVER")}
    if any(map(str.isdigit, mark.split())) if mark else _waits_for_replicas(connection):
        now |= _writing(connection)
    return still_open(now, mark)


def _shown(connection: Any, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query; none where the server does not know it, or shows it to administrators alone."""
    try:
        return values(connection, query)
    except pymysql.MySQLError as error:
        if error.args[0] not in _NOT_SHOWN:
            raise
        return []


def _writing(connection: Any) -> set[str]:
    """The numbers of the transactions that have written and are open."""
    try:
        written = values(
            connection, "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_rows_modified > 0"
        )
    except pymysql.OperationalError as error:
        if error.args[0] != _NO_PROCESS:
            raise
        raise IngestError(
            "Commits of this database wait for a replica while its stream has them already (semi-synchronous replication "
            "with AFTER_SYNC), and its user may not see which: type GRANT PROCESS ON *.* for the user under `database:`, "
            "then run the same command again."
        ) from None
    return {str(number) for (number,) in written}


def position(connection: Any) -> str:
    """The GTIDs of the log: of MariaDB the last of each domain, of MySQL all sets; SHOW cuts them at 1,024 characters.

    While ``gtid_mode`` is not ON, MySQL keeps the sets of earlier times, to which nothing is added.
    """
    for variables in ("'ON', @@GLOBAL.gtid_binlog_pos", "@@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed"):
        for mode, gtids in _shown(connection, f"SELECT {variables}"):
            if gtids and mode == "ON":
                return str(gtids)
    raise IngestError(
        "The log of the primary under `database:` has no GTIDs, so nothing says how far its replica is: switch them on "
        "(gtid_mode, log_bin), or give the primary itself as url."
    )


def has_applied(connection: Any, position: str) -> bool:
    """Asked in the server's own way: a GTID of MySQL has the number of a server before a colon."""
    if ":" in position:
        applied = f"GTID_SUBSET({quoted(position)}, @@GLOBAL.gtid_executed) = 1"
    else:
        applied = f"MASTER_GTID_WAIT({quoted(position)}, 0) = 0"
    return values(connection, f"SELECT {applied}") == [("1",)]


def _waits_for_replicas(connection: Any) -> bool:
    """True if a commit is seen only after a replica has it: newer servers say source where older ones say master."""
    variables = dict(values(connection, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%'"))
    return any(
        variables.get(f"rpl_semi_sync_{role}_enabled") == "ON"
        and variables.get(f"rpl_semi_sync_{role}_wait_point") == "AFTER_SYNC"
        for role in ("master", "source")
    )


def values(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        try:
            cursor.execute(query)
        except pymysql.MySQLError as error:
            if error.args[0] == _NO_DATABASE and "MD5(" in query:
                raise _no_md5() from None
            raise
        return [
            tuple(
                cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else cell for cell in row
            )
            for row in cursor.fetchall()
        ]


def rows(connection: Any, columns: Sequence[str], rest: str) -> Iterator[bytes]:
    """Each row as the JSON array that the database writes, as they arrive."""
    with _streaming(connection) as cursor:
        cursor.execute(f"SELECT JSON_ARRAY({', '.join(columns)}) FROM {rest}")
        while batch := cursor.fetchmany(1000):
            for (row,) in batch:
                if row is None:
                    raise pymysql.DataError("a row is larger than max_allowed_packet allows: raise it")
                yield row if isinstance(row, bytes) else row.encode()
        warned = cursor._result.warning_count if cursor._result is not None else 0
    if warned:
        shown = values(connection, "SHOW WARNINGS LIMIT 1")
        raise pymysql.DataError(f"a value could not be read whole: {shown[0][2] if shown else warned}")


def _no_md5() -> IngestError:
    """MySQL has its older hash functions in a component since 9.6."""
    return IngestError(
        "Rows are compared by MD5(), which this MySQL has in a component that is not installed: an administrator types "
        "INSTALL COMPONENT 'file://component_classic_hashing' there, then run the same command again."
    )


@contextmanager
def _streaming(connection: Any) -> Iterator[Any]:
    """A cursor that reads rows as they arrive, and does not ask a broken connection for the rest of them."""
    cursor = connection.cursor(SSCursor)
    try:
        yield cursor
    except BaseException:
        if cursor._result is not None:
            cursor._result.unbuffered_active = False
        cursor.connection = None
        raise
    cursor.close()
