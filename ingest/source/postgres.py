"""PostgreSQL.

- A change is in the log before its transaction's commit, and a stream orders by that place; a commit that waits for a
  synchronous standby is with the stream's readers before any SELECT sees it.  So what was open when the place of rows was
  chosen must be over before they are read (`settled`).
- A policy of row-level security would hide rows in silence, which would pass as deleted: with ``row_security`` off such a
  query is an error.
- A domain is read as the type under it, which is what streams name.
- Times, intervals and floats print in the forms that the session asks for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote

import psycopg

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
    nth_by_limit,
    quoted,
    still_open,
    trim_call,
)
from ingest.tables.duck import name as name_of

ERRORS: tuple[type[Exception], ...] = (psycopg.Error, OSError)
CLOCK = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
BOUNDED_TEXTS = False
SPACES_JSON = False
HIDES_TABLES = False
nth, concat, trimmed, md5 = nth_by_limit, concat_call, trim_call, md5_call
_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "default_transaction_read_only": "on",
    "row_security": "off",
    "statement_timeout": f"{READ_SECONDS}s",
}
ANSWER_SECONDS = READ_SECONDS + 30  # the server's own limit comes first, and says more
_BITS = 63
_OWN_FORMS = re.compile(
    r"\[\]\Z|range\Z|\A(interval|hstore|money|bit varying|time with time zone|time\(\d\) with time zone|point|line|lseg|box|"
    r"path|polygon|circle|geometry|geography|tsvector)\b"
)
# the type under all domains of a column, as streams name it
_WITHOUT_DOMAINS = (
    "WITH RECURSIVE types(type, modifier) AS (SELECT atttypid, atttypmod UNION ALL SELECT typbasetype, typtypmod "
    "FROM types JOIN pg_type t ON t.oid = types.type WHERE typtype = 'd') "
    "SELECT type, modifier FROM types JOIN pg_type t ON t.oid = types.type WHERE typtype <> 'd'"
)
# what has a number in this database; a standby does not show the locks of its primary
_WRITING = (
    "SELECT transactionid::text FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
    "LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid WHERE locktype = 'transactionid' AND granted "
    "AND mode = 'ExclusiveLock' AND coalesce(a.datname, p.database) = current_database()"
)
_NUMBERS = "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() AS s"
_BY_BYTES = ("C", "POSIX", "C.UTF-8", "C.utf8")


def connect(url: SplitResult, user: str, password: str) -> Any:
    """A connection in UTC that writes nothing."""
    return _Connection.connect(
        host=url.hostname or "localhost",
        port=url.port or 5432,
        user=user,
        password=password or None,
        dbname=unquote(url.path.strip("/")) or user,
        connect_timeout=CONNECT_SECONDS,
        client_encoding="utf8",
        autocommit=True,
        options=" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
        keepalives_idle=30,
        keepalives_interval=10,
        keepalives_count=6,
    )


class _Connection(psycopg.Connection[Any]):
    """A connection that ends if an answer does not come: libpq waits for ever on a connection that is not cut."""

    def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
        """Wait as always, but for each part of an answer no longer than `ANSWER_SECONDS`."""
        return super().wait(self._limited(gen), *given, **named)

    def _limited(self, gen: Any) -> Any:
        until, ready = time.monotonic() + ANSWER_SECONDS, None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as done:
                return done.value
            ready = yield wanted
            if ready:
                until = time.monotonic() + ANSWER_SECONDS
            elif time.monotonic() > until:
                self.pgconn.finish()  # nothing can be said to it any more
                raise psycopg.OperationalError(f"no answer came for {ANSWER_SECONDS} seconds")


def table(connection: Any, table: TableId) -> SourceTable | None:
    schema = table.schema or table.database or ""
    oid = (
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = {quoted(schema)} AND c.relname = {quoted(table.table or '')} AND c.relkind IN ('r', 'p')"
    )
    listed = values(
        connection,
        "SELECT attname, format_type(b.type, b.modifier), CASE WHEN l.collname = 'default' THEN (SELECT datcollate "
        "FROM pg_database WHERE datname = current_database()) ELSE l.collcollate END, "
        "COALESCE(to_jsonb(a) ->> 'attgenerated', '') <> '' FROM pg_attribute a "
        "LEFT JOIN pg_collation l ON l.oid = attcollation "
        f"CROSS JOIN LATERAL ({_WITHOUT_DOMAINS}) AS b "
        f"WHERE attrelid = ({oid}) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    )
    if not listed:
        return None
    keys = values(
        connection,
        "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        f"WHERE i.indisprimary AND i.indrelid = ({oid}) ORDER BY k.place",
    )
    columns = []
    for name, declared, collation, generated in listed:
        logical = "bit" if declared.startswith("bit") else types.postgres(declared)
        if declared == "bit(1)":
            logical = "boolean"  # as its connectors say
        text = _text(name_of(name), declared, types.base(logical))
        by_bytes = declared == "uuid" or collation in _BY_BYTES
        comparable = not _OWN_FORMS.search(declared)  # each connector prints these in a form of its own
        columns.append(SourceColumn(name, declared, logical, text, by_bytes, generated, comparable))
    named = f"{name_of(schema)}.{name_of(table.table or '')}"
    return SourceTable(table, named, tuple(columns), tuple(column for (column,) in keys))


def _text(name: str, declared: str, logical: str) -> str:
    """SQL for the canonical text of a column."""
    if padded := re.fullmatch(r"character\((\d+)\)", declared):
        return f"rpad({name}::text, {padded[1]})"  # as it is stored, and as the log has it
    return (_BY_DECLARED.get(declared) or _BY_TYPE.get(logical) or "{}::text").format(name)


_BY_DECLARED = {
    "bit(1)": "CASE {} WHEN B'1' THEN 'true' WHEN B'0' THEN 'false' END",
    "inet": "abbrev({})",  # as the server sends it; a cast to text adds the netmask of a single host
    "money": "{}::numeric::text",
}
_BY_TYPE = {
    "boolean": "CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END",
    "timestamp": "replace(replace({}::text, ' ', 'T'), '+00', 'Z')",
    "binary": "translate(encode({}, 'base64'), E'\\n', '')",
    "bit": f"lpad({{}}::text, {_BITS + 1}, '0')::bit({_BITS + 1})::bigint::text",
}
"""By declared, else by logical type, the SQL for the text of a column of this name."""


def key(column: SourceColumn) -> Key:
    """Every type orders as it is, and reads its own text back; bits are compared as the number that a mirror has."""
    name = name_of(column.name)
    if re.match(r"bit\((?!1\))", column.declared):
        return Key(name, column.text, "{}::bigint::" + column.declared)
    return Key(name, f"{name}::text", "{}::" + column.declared)


def equal(column: SourceColumn, text: str) -> str:
    name, literal = name_of(column.name), quoted(text)
    if column.declared == "bytea":
        return f"{name} = decode({literal}, 'base64')"
    if types.base(column.type) == "bit":
        return f"{name} = {literal}::bigint::{column.declared}"
    if column.declared == "bit(1)":
        return f"{name} = {literal}::boolean::int::bit(1)"
    return f"{name} = {literal}::{column.declared}"


def double(column: SourceColumn) -> tuple[str, str]:
    number = f"{name_of(column.name)}::float8"
    return number, f"({number})::text"


def bits(column: SourceColumn) -> str:
    return f"upper(encode(float8send({double(column)[0]}), 'hex'))"


def real_date(column: SourceColumn) -> str:
    """Every date that this database holds is one."""
    return column.text


def number(text: str) -> str:
    return f"('x0' || left(md5({text}), 15))::bit(64)::bigint"


def values(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query.encode())
        return list(cursor.fetchall())


def rows(connection: Any, columns: Sequence[str], rest: str) -> Iterator[bytes]:
    """Each row as the JSON array that the database writes, by COPY; JSON holds none of the marks that CSV would quote.

    A function takes at most 100 arguments, so the row is one array.
    """
    query = f"SELECT to_json(ARRAY[{', '.join(columns)}]::text[])::text FROM {rest}"
    copy = f"COPY ({query}) TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')"
    with connection.cursor() as cursor, cursor.copy(copy.encode()) as lines:
        for row in lines:
            yield bytes(row).rstrip(b"\n")


def is_replica(connection: Any) -> bool:
    """True for a standby."""
    return bool(values(connection, "SELECT pg_is_in_recovery()")[0][0])


def settled(connection: Any, mark: str) -> str:
    """The transactions that have written and were open, as a mark; nothing once all of them are over.

    Each holds a lock on its number until SELECTs see it, also while it is prepared, or while its commit, which is in the
    log already, waits for a standby.  A standby shows no such locks, and its snapshots list no open transaction: there the
    mark is the number after the last that is over, until the oldest that is open has none before it.  So one that is
    open after the last that is over is not waited for.
    """
    if is_replica(connection):
        [(oldest, end)] = values(connection, _NUMBERS)
        return (mark or end) if int(oldest) < int(mark or end) else ""
    return still_open({number for (number,) in values(connection, _WRITING)}, mark)


def position(connection: Any) -> str:
    """The end of the log, in bytes; a place right after a page's header is the end of the page before."""
    [(end,)] = values(
        connection,
        "SELECT (i - CASE WHEN page IN (24, 40) THEN page ELSE 0 END)::text "
        "FROM pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS i "
        "CROSS JOIN LATERAL (SELECT i % current_setting('wal_block_size')::int) AS p(page)",
    )
    return str(end)


def has_applied(connection: Any, position: str) -> bool:
    """Whether a standby has replayed the log; an `IngestError` for a server that replays none."""
    if not is_replica(connection):
        raise IngestError(
            "url: under `database:` is no standby of primary: (pg_is_in_recovery() is false there): write the standby's address "
            "as url, or leave primary: out if url is the primary itself."
        )
    replayed = f"pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') >= {position}"
    return values(connection, f"SELECT {replayed}") == [(True,)]
