"""Oracle, from 12.1, by its thin client.

What its documents say, and what is done about it:

- ``TO_CHAR`` of a number writes no digit before the point of a fraction, and ``TM9`` writes no more than 64 digits.
- A text is bounded by 4,000 bytes, and so is what ``||`` makes: the columns of a row go into its checksum as their MD5.
- ``STANDARD_HASH`` takes no LOB, so LOBs are read and not compared.
- It hashes the bytes of the database's character set, so texts are converted to UTF-8 before.
- An empty text is NULL, as the streams of this database have it.
- A query sees one state of the table, and what a stream has delivered was committed before: nothing to wait for.
- The texts of an interval follow the connector.
- OceanBase in its Oracle mode speaks a protocol of its own, which this client does not.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote

import oracledb

from ingest import types
from ingest.change import TableId
from ingest.source.database import (
    CONNECT_SECONDS,
    FETCHED_ROWS,
    READ_SECONDS,
    Key,
    SourceColumn,
    SourceTable,
    json_rows,
    not_said,
    nothing_open,
    quoted,
    row_values,
    trim_call,
)

ERRORS: tuple[type[Exception], ...] = (oracledb.Error, OSError)
CLOCK = 'SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), \'YYYY-MM-DD"T"HH24:MI:SS.FF6"Z"\') FROM dual'
BOUNDED_TEXTS = True
SPACES_JSON = False
HIDES_TABLES = True
trimmed, values, rows, settled = trim_call, row_values, json_rows, nothing_open
is_replica = not_said
concat = " || ".join  # its function takes two
oracledb.defaults.arraysize = oracledb.defaults.prefetchrows = FETCHED_ROWS
_SESSION = (
    "ALTER SESSION SET NLS_SORT = 'BINARY' NLS_COMP = 'BINARY' NLS_NUMERIC_CHARACTERS = '.,' NLS_CALENDAR = 'GREGORIAN'",
    "ALTER SESSION SET TIME_ZONE = '+00:00'",
)
_CLOCK = "'SYYYY-MM-DD HH24:MI:SS'"
_DATE, _TIME = "'YYYY-MM-DD HH24:MI:SS'", "'YYYY-MM-DD HH24:MI:SS.FF9'"
_UTF8 = "AL32UTF8"
_SHORT = 1333  # characters whose UTF-8 is no longer than a text may be
_NUMBERS = ("NUMBER", "FLOAT")
_REALS = ("BINARY_FLOAT", "BINARY_DOUBLE")
_CHARACTERS = ("CHAR", "VARCHAR2", "VARCHAR")
_NATIONAL = ("NCHAR", "NVARCHAR2")
_LARGE = ("CLOB", "NCLOB", "BLOB", "LONG", "LONG RAW", "XMLTYPE", "JSON")
_UNKNOWN_NAME = 904  # ORA-00904: the view has no such column yet


def connect(url: SplitResult, user: str, password: str) -> Any:
    """A connection in UTC, to the service that the URL's path names; ``?protocol=tcps`` for TLS."""
    given = parse_qs(url.query)
    connection = oracledb.connect(
        user=user,
        password=password,
        host=url.hostname or "localhost",
        port=url.port or 1521,
        service_name=unquote(url.path.strip("/")),
        protocol=given.get("protocol", ["tcp"])[0],
        tcp_connect_timeout=CONNECT_SECONDS,
        expire_time=1,
    )
    connection.call_timeout = READ_SECONDS * 1000
    connection.outputtypehandler = _exact
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
    return connection


def _exact(cursor: Any, metadata: Any) -> Any:
    """Numbers as their digits, and LOBs as what they hold."""
    kinds = {
        oracledb.DB_TYPE_NUMBER: oracledb.DB_TYPE_VARCHAR,
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }
    kind = kinds.get(metadata.type_code)
    return None if kind is None else cursor.var(kind, arraysize=cursor.arraysize)


def table(connection: Any, table: TableId) -> SourceTable | None:
    owner, name = table.schema or table.database or "", table.name
    listed = _columns(connection, owner, name)
    if not listed:
        return None
    keys = values(
        connection,
        "SELECT k.column_name FROM all_constraints c JOIN all_cons_columns k ON k.owner = c.owner AND "
        "k.constraint_name = c.constraint_name AND k.table_name = c.table_name WHERE c.constraint_type = 'P' AND "
        f"c.owner = {quoted(owner)} AND c.table_name = {quoted(name)} ORDER BY k.position",
    )
    [(charset,)] = values(
        connection, "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
    )
    columns = tuple(_column(str(charset), _Listed(*row)) for row in listed)
    return SourceTable(
        table, f"{name_of(owner)}.{name_of(name)}", columns, tuple(column for (column,) in keys)
    )


def _columns(connection: Any, owner: str, table: str) -> list[tuple[Any, ...]]:
    """What the dictionary says of each column; before 12.2 it knows no collations."""
    query = (
        "SELECT column_name, data_type, data_length, data_precision, data_scale, char_length, char_used, virtual_column, "
        "{} FROM all_tab_cols WHERE owner = {} AND table_name = {} AND hidden_column = 'NO' ORDER BY column_id"
    )
    try:
        return values(connection, query.format("collation", quoted(owner), quoted(table)))
    except oracledb.DatabaseError as error:
        if getattr(error.args[0] if error.args else None, "code", None) != _UNKNOWN_NAME:
            raise
    return values(connection, query.format("NULL", quoted(owner), quoted(table)))


class _Listed(NamedTuple):
    """A column as Oracle's dictionary lists it."""

    name: str
    kind: str
    length: Any
    precision: Any
    scale: Any
    characters: Any
    counted: str | None  # C: the length is in characters
    virtual: str
    collation: str | None

    @property
    def declared(self) -> str:
        """The type as a statement declares it."""
        kind = self.kind
        if kind == "NUMBER" and self.precision is not None:
            return f"NUMBER({self.precision},{self.scale or 0})"
        if kind == "NUMBER" and self.scale is not None:
            return "INTEGER" if int(self.scale) == 0 else f"NUMBER(*,{self.scale})"
        if kind == "FLOAT":
            return f"FLOAT({self.precision})"
        if kind in _NATIONAL:
            return f"{kind}({self.characters})"
        if kind in _CHARACTERS and self.counted == "C":
            return f"{kind}({self.characters} CHAR)"
        return f"{kind}({self.length})" if kind in (*_CHARACTERS, "RAW", "UROWID") else kind

    def is_comparable(self, *, is_utf8: bool) -> bool:
        """False if the database has no checksum of its text, by the database's character set."""
        if self.kind in _NATIONAL:
            return is_utf8 and int(self.characters) <= _SHORT
        if self.kind in _CHARACTERS:
            return is_utf8 or int(self.length) <= _SHORT
        return self.kind not in (*_LARGE, "SDO_GEOMETRY") and not self.kind.startswith("INTERVAL")


def _column(charset: str, listed: _Listed) -> SourceColumn:
    is_utf8, declared = charset == _UTF8, listed.declared
    by_bytes = (
        listed.kind == "VARCHAR2" and is_utf8 and listed.collation in (None, "USING_NLS_COMP", "BINARY")
    )
    text = _text(name_of(listed.name), listed.kind, listed.precision, listed.scale)
    return SourceColumn(
        listed.name, declared, types.oracle(declared), text, by_bytes, listed.virtual == "YES",
        listed.is_comparable(is_utf8=is_utf8),
    )  # fmt: skip


def _text(name: str, kind: str, precision: Any, scale: Any) -> str:
    """SQL for the canonical text of a column; empty if it has none."""
    if kind in _NUMBERS:
        return _number(name, kind, precision, scale)
    if kind.startswith("TIMESTAMP"):
        zoned = "TIME ZONE" in kind
        return _moment(f"({name} AT TIME ZONE '+00:00')" if zoned else name, zoned)
    if kind.startswith("INTERVAL"):  # '+03-06' and '+05 04:03:02.100000'
        bare = f"REGEXP_REPLACE(TO_CHAR({name}), '^[+]?(-?)0*([0-9])', '\\1\\2')"
        return f"CASE WHEN {bare} LIKE '%.%' THEN {trimmed(bare)} ELSE {bare} END"
    return _TEXTS.get(kind.partition("(")[0], "").format(name)


_TEXTS = {
    **dict.fromkeys((*_CHARACTERS, *_NATIONAL, *_LARGE, "RAW"), "{}"),
    **dict.fromkeys(
        _REALS,
        "CASE WHEN {0} IS NAN THEN 'NaN' WHEN {0} IS INFINITE THEN CASE WHEN {0} > 0 THEN 'Infinity' "
        "ELSE '-Infinity' END ELSE TO_CHAR({0}) END",
    ),
    "DATE": f"LTRIM(TO_CHAR({{}}, {_CLOCK}))",
    "BOOLEAN": "CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END",
    **dict.fromkeys(("ROWID", "UROWID"), "CAST({} AS VARCHAR2(4000))"),
    "XMLTYPE": "XMLSERIALIZE(CONTENT {} AS CLOB)",
    "JSON": "JSON_SERIALIZE({} RETURNING CLOB)",
}
"""By type, the SQL for the text of a column of this name."""


def _number(name: str, kind: str, precision: Any, scale: Any) -> str:
    """The text of a number: with all digits of its scale if it has one that a format of Oracle's can show."""
    if kind == "NUMBER" and precision is not None and 0 < int(scale or 0) < 50:
        whole = max(int(precision) - int(scale), 1)
        if whole + int(scale) < 60:
            return f"TO_CHAR({name}, 'FM{'9' * (whole - 1)}0.{'0' * int(scale)}')"
    text = f"TO_CHAR({name}, 'TM9')"
    is_whole = kind == "NUMBER" and scale is not None and int(scale) <= 0
    return text if is_whole else f"REGEXP_REPLACE({text}, '^(-?)[.]', '\\10.')"


def _moment(value: str, zoned: bool, digits: int = 9) -> str:
    """The text of a point in time, with up to so many digits of a second."""
    between = '"T"' if zoned else " "
    text = f"LTRIM(TO_CHAR({value}, 'SYYYY-MM-DD{between}HH24:MI:SS.FF9'))"
    if digits < 9:
        text = f"SUBSTR({text}, 1, LENGTH({text}) - {9 - digits})"
    return f"{trimmed(text)} || 'Z'" if zoned else trimmed(text)


def key(column: SourceColumn) -> Key:
    """Every type as it is; texts of the national character set in ASCII, because a statement may lack their characters."""
    name = name_of(column.name)
    text, literal = _KEYS.get(_kind(column), ("{text}", "{}"))
    return Key(name, text.format(name=name, text=column.text), literal)


_KEYS = {
    **dict.fromkeys((*_NUMBERS, "INTEGER"), ("{text}", "TO_NUMBER({})")),
    **{kind: ("TO_CHAR({name})", f"TO_{kind}({{}})") for kind in _REALS},
    "DATE": (f"TO_CHAR({{name}}, {_DATE})", f"TO_DATE({{}}, {_DATE})"),
    **dict.fromkeys(
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"),
        (
            f"TO_CHAR({{name}} AT TIME ZONE '+00:00', {_TIME})",
            f"FROM_TZ(TO_TIMESTAMP({{}}, {_TIME}), '+00:00')",
        ),
    ),
    "TIMESTAMP": (f"TO_CHAR({{name}}, {_TIME})", f"TO_TIMESTAMP({{}}, {_TIME})"),
    "RAW": ("RAWTOHEX({name})", "HEXTORAW({})"),
    **dict.fromkeys(_NATIONAL, ("ASCIISTR({name})", "UNISTR({})")),
}
"""By type, the SQL that writes a key column and the SQL that reads what was written."""


def equal(column: SourceColumn, text: str) -> str:
    kind, literal = _kind(column), key(column).literal
    if types.base(column.type) == "timestamp":
        text = text.replace("T", " ").removesuffix("Z")
    elif kind == "RAW":
        with suppress(ValueError):
            text = base64.b64decode(text).hex()
    elif kind in _NATIONAL:
        text = _ascii(text)
    elif kind == "BOOLEAN":
        return f"{name_of(column.name)} = {text.upper()}"
    return f"{name_of(column.name)} = {literal.format(quoted(text))}"


def _kind(column: SourceColumn) -> str:
    """The type's own name."""
    return re.sub(r"\([^()]*\)", "", column.declared)


def _ascii(text: str) -> str:
    """What ``UNISTR`` reads."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[start : start + 2]) for start in range(0, len(data), 2)]
    return "".join(chr(unit) if 31 < unit < 127 and unit != 92 else f"\\{unit:04X}" for unit in units)


def double(column: SourceColumn) -> tuple[str, str]:
    number = f"TO_BINARY_DOUBLE({name_of(column.name)})"
    return number, _text(number, "BINARY_DOUBLE", None, None)


def bits(column: SourceColumn) -> str:
    return f"RAWTOHEX(UTL_RAW.CAST_FROM_BINARY_DOUBLE({double(column)[0]}, 1))"


def real_date(column: SourceColumn) -> str:
    """To the microsecond, as mirrors have it."""
    kind = _kind(column)
    if not kind.startswith("TIMESTAMP"):
        return column.text
    zoned, name = "TIME ZONE" in kind, name_of(column.name)
    return _moment(f"({name} AT TIME ZONE '+00:00')" if zoned else name, zoned, 6)


def nth(query: str, order: str, skip: int) -> str:
    """The standard's words, which the database knows from 12.1 on."""
    return f"{query}{f' ORDER BY {order}' if order else ''} OFFSET {skip} ROWS FETCH NEXT 1 ROWS ONLY"


def md5(text: str, digits: int = 32, *, binary: bool = False) -> str:
    """NULL for NULL, although the function itself hashes it, too."""
    data = text if binary else f"CONVERT(TO_CHAR({text}), '{_UTF8}')"
    return f"CASE WHEN {text} IS NOT NULL THEN LOWER({_hash(data, digits)}) END"


def _hash(data: str, digits: int) -> str:
    return f"SUBSTR(RAWTOHEX(STANDARD_HASH({data}, 'MD5')), 1, {digits})"


def number(text: str) -> str:
    """The first 60 bits of the text's MD5; the text of a row is in ASCII, and never NULL."""
    return f"TO_NUMBER({_hash(text, 15)}, '{'X' * 15}')"


def name_of(name: str) -> str:
    return f'"{name}"'  # no name holds a quotation mark
