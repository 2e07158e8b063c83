"""SQL Server, from 2016, and Azure SQL.

What its documents say, and what is done about it:

- ``SET TEXTSIZE`` bounds what a client is given of a long value, silently: it is set to the most.
- ``CONCAT`` cuts its result at 8,000 bytes, silently: texts go into a row's checksum as their MD5.
- ``HASHBYTES`` hashes the bytes that a text has; those of UTF-8 need a collation that the database knows from 2019 on,
  so before that texts are read and not compared.
- Comparisons of texts ignore spaces at the end, so no collation orders as bytes do.
- A backslash at the end of a line continues a literal: texts are compared by literals of their bytes.
- ``FLOAT`` prints six digits unless its style says 17; ``MONEY`` two, unless its style says four.
- Streams have no time of day of a ``DATETIME`` more exact than its three printed digits.
- Reading takes shared locks row by row, as any SELECT, unless the database reads committed snapshots.
- Streams deliver in the order of commits, and reading waits for what is not committed: nothing else to wait for.
- A computed column is NULL in change tables: it is read only if the stream has it.
"""

from __future__ import annotations

import base64
import re
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote

import pytds
import pytds.tls
from OpenSSL import SSL

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
    json_rows,
    not_said,
    nothing_open,
    quoted,
    row_values,
)

ERRORS: tuple[type[Exception], ...] = (pytds.Error, SSL.Error, OSError)
CLOCK = "SELECT CONVERT(varchar(27), SYSUTCDATETIME(), 126) + 'Z'"
BOUNDED_TEXTS = True
SPACES_JSON = False
HIDES_TABLES = True
concat, values, rows, settled = concat_call, row_values, json_rows, nothing_open
is_replica = not_said
_SESSION = (
    "SET TEXTSIZE 2147483647; SET LANGUAGE us_english; SET DATEFORMAT ymd; SET QUOTED_IDENTIFIER ON; SET ANSI_NULLS ON; "
    "SET CONCAT_NULL_YIELDS_NULL ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON"
)
_UTF8 = "Latin1_General_100_BIN2_UTF8"
_CHARACTERS = ("char", "varchar", "nchar", "nvarchar")
_LONG = ("text", "ntext", "xml")
_DECIMALS = ("decimal", "numeric")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_OBJECTS = ("geometry", "geography", "hierarchyid")
_BYTES = ("binary", "varbinary", "image", "timestamp")
_MOMENTS = ("datetime", "datetime2", "smalldatetime", "datetimeoffset")
_DECLARED = re.compile(r"(\w+)(\([^)]*\))?(?: COLLATE (\w+))?")


def connect(url: SplitResult, user: str, password: str) -> Any:
    """A connection over TLS, whose certificate the system's authorities or those of ``?cafile=`` have signed.

    ``?encrypt=no`` for a connection without TLS.
    """
    given = parse_qs(url.query)
    is_secret = given.get("encrypt", ["yes"])[0] != "no"
    paths = ssl.get_default_verify_paths()
    if is_secret:
        pytds.tls.validate_host = _is_of_host  # its own reads certificates by what pyOpenSSL no longer has
    try:
        connection = pytds.connect(
            dsn=url.hostname or "localhost",
            port=url.port or 1433,
            database=unquote(url.path.strip("/")),
            user=user,
            password=password,
            cafile=given.get("cafile", [paths.cafile or paths.openssl_cafile])[0] if is_secret else None,
            login_timeout=CONNECT_SECONDS,
            timeout=READ_SECONDS,
            autocommit=True,
            disable_connect_retry=True,
            appname="ingest",
        )
    except ValueError as error:
        raise pytds.InterfaceError(f"what answers there is not a SQL Server ({error})") from error
    with connection.cursor() as cursor:
        cursor.execute(_SESSION)
    return connection


def _is_of_host(certificate: Any, host: bytes) -> bool:
    """True if a certificate names the host, or all hosts of its domain."""
    from cryptography import x509

    parsed = certificate.to_cryptography()
    with suppress(x509.ExtensionNotFound):
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        given = host.decode().lower()
        others = [str(name) for name in names.get_values_for_type(x509.IPAddress)]
        wanted = (given, f"*.{given.partition('.')[2]}")
        return given in others or any(
            name.lower() in wanted for name in names.get_values_for_type(x509.DNSName)
        )
    common = parsed.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return [host.decode().lower()] == [str(name.value).lower() for name in common]


def table(connection: Any, table: TableId) -> SourceTable | None:
    """A table with its columns, and the columns of its primary key in the key's order.

    A stream names it by schema and table, or by database, schema and table.
    """
    database = f"{name_of(table.database)}." if table.schema and table.database else ""
    schema, name = table.schema or table.database or "", table.name
    named = f"{name_of(schema)}.{name_of(name)}"
    is_it = f"o.name = {_national(name)} AND s.name = {_national(schema)} AND o.type IN ('U', 'V')"
    object_of = f"JOIN {database}sys.objects o ON o.object_id = {{}}.object_id JOIN {database}sys.schemas s ON s.schema_id = o.schema_id"
    listed = values(
        connection,
        "SELECT c.name, COALESCE(b.name, t.name), c.max_length, c.precision, c.scale, c.collation_name, c.is_computed, "
        f"COLLATIONPROPERTY('{_UTF8}', 'CodePage') FROM {database}sys.columns c {object_of.format('c')} "
        f"JOIN {database}sys.types t ON t.user_type_id = c.user_type_id "
        f"LEFT JOIN {database}sys.types b ON b.user_type_id = c.system_type_id AND t.is_user_defined = 1 "
        f"WHERE {is_it} ORDER BY c.column_id",
    )
    if not listed:
        return None
    keys = values(
        connection,
        f"SELECT c.name FROM {database}sys.indexes i {object_of.format('i')} "
        f"JOIN {database}sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id "
        f"JOIN {database}sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id "
        f"WHERE i.is_primary_key = 1 AND {is_it} ORDER BY k.key_ordinal",
    )
    columns = tuple(_column(*row) for row in listed)
    return SourceTable(table, f"{database}{named}", columns, tuple(column for (column,) in keys))


def _column(
    name: str,
    kind: str,
    length: int,
    precision: int,
    scale: int,
    collation: str | None,
    computed: Any,
    utf8: Any,
) -> SourceColumn:
    kind = "timestamp" if kind == "rowversion" else "nvarchar" if kind == "sysname" else kind
    declared = kind
    if kind in _DECIMALS:
        declared = f"{kind}({precision},{scale})"
    elif kind in ("datetime2", "datetimeoffset", "time"):
        declared = f"{kind}({scale})"
    elif kind in (*_CHARACTERS, "binary", "varbinary"):
        size = length // 2 if kind.startswith("n") else length
        declared = f"{kind}({'max' if length < 0 else size})"
    if collation:
        declared = f"{declared} COLLATE {collation}"
    comparable = kind not in _OBJECTS
    if kind in (*_CHARACTERS, *_LONG, "uniqueidentifier"):
        comparable = utf8 is not None
    text = _text(name_of(name), kind, length)
    logical = types.sqlserver(declared.partition(" ")[0])
    return SourceColumn(name, declared, logical, text, generated=bool(computed), comparable=comparable)


def _text(name: str, kind: str, length: int) -> str:
    """SQL for the canonical text of a column; empty if it has none."""
    if kind in _CHARACTERS:
        size = length // 2 if kind.startswith("n") else length
        return f"CAST({name} AS nvarchar({size if 0 < size <= 4000 else 'max'}))"
    if kind == "time":
        return _clock(f"CONVERT(varchar(16), {name}, 121)", 8)
    if kind in _MOMENTS:
        return _moment(name, kind)
    return _TEXTS.get(kind, "").format(name)


_TEXTS = {
    "bit": "CASE {} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END",
    **dict.fromkeys((*_INTEGERS, *_DECIMALS), "CONVERT(varchar(41), {})"),
    **dict.fromkeys(("money", "smallmoney"), "CONVERT(varchar(41), {}, 2)"),
    **dict.fromkeys(("real", "float"), "CONVERT(varchar(41), {}, 3)"),
    **dict.fromkeys((*_LONG, "json"), "CAST({} AS nvarchar(max))"),
    **dict.fromkeys(_BYTES, "{}"),
    "uniqueidentifier": "CONVERT(char(36), {})",
    "date": "CONVERT(char(10), {}, 23)",
    **dict.fromkeys(_OBJECTS, "{}.ToString()"),
}
"""By type, the SQL for the text of a column of this name."""


def _moment(name: str, kind: str, digits: int = 7) -> str:
    """The text of a point in time, with up to so many digits of a second."""
    if kind != "datetimeoffset":
        return _clock(f"CONVERT(varchar(27), {name}, 121)", 19, digits)
    utc = f"CONVERT(varchar(27), CAST(SWITCHOFFSET({name}, '+00:00') AS datetime2(7)), 121)"
    return f"REPLACE({_clock(utc, 19, digits)}, ' ', 'T') + 'Z'"


def _clock(text: str, whole: int, digits: int = 7) -> str:
    """A time's text without the zeros at the end of its fraction, and without more digits."""
    part = f"SUBSTRING({text}, {whole + 2}, {digits})"
    return f"LEFT({text}, {whole}) + COALESCE('.' + NULLIF({_without_zeros(part)}, ''), '')"


def _without_zeros(digits: str) -> str:
    """Digits without the zeros at their end; a function for it came in 2022."""
    return f"REPLACE(RTRIM(REPLACE({digits}, '0', ' ')), ' ', '0')"


def trimmed(text: str) -> str:
    """A number's text without the zeros at the end of its fraction, and without a point at its end."""
    point = f"CHARINDEX('.', {text})"
    rest = _without_zeros(f"SUBSTRING({text}, {point} + 1, 41)")
    return f"LEFT({text}, {point} - 1) + COALESCE('.' + NULLIF({rest}, ''), '')"


def key(column: SourceColumn) -> Key:
    """Every type as it is; texts and bytes by their hexadecimal digits."""
    name, (kind, size, collation) = name_of(column.name), _parts(column)
    if kind in _CHARACTERS:
        text = f"CONVERT(varchar(max), CAST(CAST({name} AS nvarchar(4000)) AS varbinary(8000)), 2)"
        return Key(name, text, _character("CONVERT(varbinary(8000), {}, 2)", kind, size, collation))
    text, literal = _KEYS.get(kind, ("{text}", "CAST({} AS {type})"))
    declared = "binary(8)" if kind == "timestamp" else f"{kind}{size}"
    return Key(name, text.format(name=name, text=column.text), literal.format("{}", type=declared))


_KEYS = {
    **dict.fromkeys(_BYTES, ("CONVERT(varchar(max), {name}, 2)", "CONVERT({type}, {}, 2)")),
    **dict.fromkeys(
        ("datetime", "datetime2", "smalldatetime"),
        ("CONVERT(varchar(27), {name}, 121)", "CONVERT({type}, {}, 121)"),
    ),
    "datetimeoffset": ("CONVERT(varchar(34), {name}, 121)", "CAST({} AS {type})"),
    "bit": ("CONVERT(char(1), {name})", "CAST({} AS bit)"),
}
"""By type, the SQL that writes a key column and the SQL that reads what was written."""


def _character(data: str, kind: str, size: str, collation: str) -> str:
    """A text of a column's own type, from the bytes of its UTF-16."""
    collated = f" COLLATE {collation}" if collation else ""
    return f"CAST(CAST({data} AS nvarchar(4000)){collated} AS {kind}{size})"


def _parts(column: SourceColumn) -> tuple[str, str, str]:
    """The type's own name, its arguments with their brackets, and its collation."""
    declared = _DECLARED.match(column.declared)
    return (declared[1], declared[2] or "", declared[3] or "") if declared else (column.declared, "", "")


def equal(column: SourceColumn, text: str) -> str:
    name, (kind, size, collation) = name_of(column.name), _parts(column)
    if kind in _CHARACTERS:
        data = "0x" + text.encode("utf-16-le", "surrogatepass").hex()
        return f"{name} = {_character(data, kind, size, collation)}"
    if kind in _BYTES:
        try:
            return f"{name} = 0x{base64.b64decode(text, validate=True).hex()}"
        except ValueError:
            raise IngestError(
                f"{text!r} is not base64, in which bytes of {column.name!r} are written."
            ) from None
    if kind == "bit":
        return f"{name} = {int(text == 'true')}"
    if kind == "datetimeoffset":
        text = text.replace("T", " ").replace("Z", " +00:00")
    return f"{name} = {key(column).literal.format(quoted(text))}"


def double(column: SourceColumn) -> tuple[str, str]:
    number = f"CAST({name_of(column.name)} AS float)"
    return number, f"CONVERT(varchar(41), {number}, 3)"


def bits(column: SourceColumn) -> str:
    return f"CONVERT(char(16), CAST({double(column)[0]} AS binary(8)), 2)"


def real_date(column: SourceColumn) -> str:
    """To the microsecond, as mirrors have it."""
    kind = _parts(column)[0]
    return _moment(name_of(column.name), kind, 6) if kind in _MOMENTS else column.text


def nth(query: str, order: str, skip: int) -> str:
    """A row by OFFSET, which needs an order."""
    return f"{query} ORDER BY {order or '(SELECT NULL)'} OFFSET {skip} ROWS FETCH NEXT 1 ROWS ONLY"


def md5(text: str, digits: int = 32, *, binary: bool = False) -> str:
    """Of the bytes of UTF-8; NULL for NULL."""
    data = f"CAST({text} AS varbinary(max))"
    if not binary:
        data = f"CAST(CAST({text} AS nvarchar(max)) COLLATE {_UTF8} AS varchar(max))"
    return f"LOWER(CONVERT(char({digits}), HASHBYTES('MD5', {data}), 2))"


def number(text: str) -> str:
    """The first 60 bits of the text's MD5, in a type whose sums are not bounded by 64 bits.

    The text of a row is in ASCII, whose bytes are the same in each collation.
    """
    digits = f"CONVERT(char(32), HASHBYTES('MD5', CAST({text} AS varchar(8000))), 2)"
    return f"CAST(CONVERT(bigint, CONVERT(binary(8), '0' + LEFT({digits}, 15), 2)) AS decimal(38, 0))"


def name_of(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def _national(text: str) -> str:
    return f"N{quoted(text)}"
