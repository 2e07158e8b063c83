"""Logical types: the vocabulary, the vendors' names for them, and their Delta types.

A logical type is its own name as text (``int64``, ``decimal(10,2)``).  The canonical text of each
value is given with its pattern in `PATTERNS`; gold casts only text that matches in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps

LOGICAL = (
    "boolean int8 int16 int32 int64 uint8 uint16 uint32 uint64 decimal float32 float64 string enum "
    "set json interval geometry binary date time datetime timestamp year bit unknown"
).split()
"""Types that the pipeline file may declare; a structure may also say ``hex``, bytes whose texts no row's type converted."""

_DELTA = {
    "boolean": "BOOLEAN", "binary": "BINARY", "hex": "BINARY", "bit": "BIGINT",
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "uint8": "SMALLINT", "uint16": "INT", "uint32": "BIGINT", "uint64": "DECIMAL(20,0)",
    "float32": "FLOAT", "float64": "DOUBLE",
    "date": "DATE", "year": "INT", "datetime": "TIMESTAMP_NTZ", "timestamp": "TIMESTAMP",
}  # fmt: skip

PATTERNS = {
    "boolean": r"true|false",
    "integer": r"-?[0-9]{1,40}",
    "decimal": r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?0*([0-9]{1,2}|[1-3][0-9]{2}|400))?",
    "float": r"NaN|-?Infinity|[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?0*([0-9]{1,2}|[1-3][0-9]{2}|400))?",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    # A bare date means its midnight: a DATE column that has become a DATETIME still has such texts in silver.
    "datetime": r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?)?",
    "timestamp": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})",
    "binary": r"[A-Za-z0-9+/]*={0,2}",  # and a length that is a multiple of four
    "hex": r"(0[xX]|\\x)?([0-9A-Fa-f]{2})*",
}
"""Full-match patterns of canonical text, in the common subset of Python's and Java's syntax."""

_FAMILY = {
    **dict.fromkeys("int8 int16 int32 int64 uint8 uint16 uint32 uint64 year bit".split(), "integer"),
    **dict.fromkeys(["float32", "float64"], "float"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)( zerofill \d+)?")
_FRACTION = re.compile(r"(?:datetime|timestamp|time)\([0-9]\)")


def is_logical(name: str) -> bool:
    """True if ``name`` is a logical type.

    A decimal may carry precision and scale; a time type may carry its fraction digits
    (``datetime(6)``), which show the units of bare integers and nothing else.
    """
    match = _DECIMAL.fullmatch(name)
    if match:
        return int(match[2]) <= int(match[1]) <= 1000 and not match[3]
    return name in (*LOGICAL, "bit(64)") or bool(_FRACTION.fullmatch(name))


def first_known(*logical: str | None) -> str:
    """The first of several types that is named at all; `unknown` if none is."""
    return next(filter(None, logical), "unknown")


@lru_cache(maxsize=1024)  # as are the next ones: asked for each cell that is compared
def base(logical: str) -> str:
    """``decimal`` of ``decimal(10,2)``, ``uint32`` of ``uint32 zerofill 5``; every other type is its own base."""
    return logical.partition("(")[0].partition(_ZEROFILL)[0]


@lru_cache(maxsize=1024)
def family(logical: str) -> str | None:
    """The name of the type's pattern in `PATTERNS`, or None if any text fits."""
    known = base(logical)
    known = _FAMILY.get(known, known)
    return known if known in PATTERNS else None


def matches(logical: str, text: str) -> bool:
    """True if a text has the form of the type's canonical text; its value may still be out of range."""
    kind = family(logical)
    return kind is None or re.fullmatch(PATTERNS[kind], text, re.ASCII) is not None


@lru_cache(maxsize=1024)
def decimal(precision: int | None, scale: int | None) -> str:
    """The logical type of a decimal with these digits; one of any digits where a message names none, or such as none can be."""
    if precision is None or scale is None or not (0 <= scale <= precision and 0 < precision <= 1000):
        return "decimal"
    return f"decimal({precision},{scale})"


@lru_cache(maxsize=1024)
def decimal_parts(logical: str) -> tuple[int, int] | None:
    """Precision and scale of a ``decimal(p,s)``, else None."""
    match = _DECIMAL.fullmatch(logical)
    return (int(match[1]), int(match[2])) if match else None


@lru_cache(maxsize=1024)
def delta(logical: str) -> str:
    """The Delta type of a logical type, in Spark SQL."""
    parts = decimal_parts(logical)
    if parts and parts[0] <= 38:
        return f"DECIMAL({parts[0]},{parts[1]})"
    if logical == "bit(64)":
        return "DECIMAL(20,0)"
    return _DELTA.get(base(logical), "STRING")


def of_cell(logical: str) -> str:
    """The type of the texts in which the product itself writes a type's values: bytes in base64, also those that changes have as digits."""
    return "binary" if delta(logical) == "BINARY" else logical


# --- widening ------------------------------------------------------------------------------------

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}  # in order of width
_FLOATS = {"FLOAT": ("TINYINT", "SMALLINT"), "DOUBLE": ("TINYINT", "SMALLINT", "INT", "FLOAT")}
_LOGICAL_OF = {
    "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64", "FLOAT": "float32",
    "DOUBLE": "float64", "TIMESTAMP_NTZ": "datetime",
}  # fmt: skip


def widens(old: str, new: str) -> bool:
    """True if every value of the Delta type ``old`` fits the Delta type ``new`` unchanged.

    The text of a BINARY is base64, not the source's bytes, so STRING does not widen it.
    """
    if old == new:
        return True
    if new == "STRING":
        return old != "BINARY"
    if new in _FLOATS:
        return old in _FLOATS[new]
    if old in _DIGITS and new in _DIGITS:
        return _DIGITS[old] < _DIGITS[new]
    if (before := _decimal_of(old)) and (after := decimal_parts(new.lower())):
        return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]
    return (old, new) == ("DATE", "TIMESTAMP_NTZ")


def _decimal_of(name: str) -> tuple[int, int] | None:
    """Precision and scale that hold every value of an exact numeric Delta type."""
    return (_DIGITS[name], 0) if name in _DIGITS else decimal_parts(name.lower())


def _common_delta(left: str, right: str) -> str:
    """The narrowest Delta type that holds the values of both exactly; STRING holds their texts."""
    if widens(left, right):
        return right
    if widens(right, left):
        return left
    if (known_decimal := _decimal_of(left)) and (other := _decimal_of(right)):
        scale = max(known_decimal[1], other[1])
        precision = max(known_decimal[0] - known_decimal[1], other[0] - other[1]) + scale
        return f"DECIMAL({precision},{scale})" if precision <= 38 else "STRING"
    return next((name for name in _FLOATS if widens(left, name) and widens(right, name)), "STRING")


@lru_cache(maxsize=4096)
def common(old: str, new: str) -> str:
    """The logical type of a column of type ``old`` that now also has values of type ``new``.

    ``old`` itself if its Delta type holds both, else the narrowest type that does, finally ``string``. ``unknown`` is
    compatible with any type, and ``decimal`` without precision with any exact number.
    """
    old, new = unfilled(old)[0], unfilled(new)[0]
    if old == new or _says_nothing(new, old):
        return old
    if _says_nothing(old, new):
        return new
    before, after = delta(old), delta(new)
    wide = _common_delta(before, after)
    if wide == "STRING":
        return next(
            (logical for logical in (old, new) if delta(logical) == wide and logical != "decimal"), "string"
        )
    if wide == before and family(old) in (family(new), "decimal", "float", "datetime"):
        return old
    if wide == after and family(new) in (family(old), "decimal", "float", "datetime"):
        return new
    return _LOGICAL_OF.get(wide) or (wide.lower() if wide.startswith("DECIMAL") else "string")


def gains_fraction(before: str, new: str) -> bool:
    """True if exact numbers of a Delta type get more digits after the point as values of a logical type."""
    old = (0, 0) if before in _DIGITS else decimal_parts(before.lower())
    parts = decimal_parts(new)
    return old is not None and parts is not None and parts[1] > old[1]


def loses_converted(before: str, new: str) -> bool:
    """True if a column of a type cannot hold what its values become as those of a logical type, or not all of their digits: a
    DATE as DATETIME, a FLOAT as DOUBLE, a whole number as one of these.
    """
    after = delta(new)
    return (before, after) in (("DATE", "TIMESTAMP_NTZ"), ("FLOAT", "DOUBLE")) or (
        before in _DIGITS and after in _FLOATS
    )


def _says_nothing(known: str, other: str) -> bool:
    return known == "unknown" or (known == "decimal" and family(other) in ("integer", "decimal"))


def integer(number: int, least: str = "int8") -> str:
    """The narrowest integer type, not before ``least``, that holds a number; else a decimal of 38 digits."""
    first = _INTEGERS.index(least) if least in _INTEGERS else 0
    return next((name for name in _INTEGERS[first:] if number in _RANGES[name]), "decimal(38,0)")


_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_RANGES = {
    **{f"int{bits}": range(-(1 << bits - 1), 1 << bits - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": range(1 << bits) for bits in (8, 16, 32, 64)},
}


@lru_cache(maxsize=4096)
def grown(column: str, new: str) -> str:
    """The logical type of a mirror's column after rows of type ``new``: as `common`, but text stays text."""
    if delta(column) == "STRING":
        return column
    return common(column, new)


def outgrows(column: str, new: str) -> bool:
    """True if rows of type ``new`` give a mirror's column another Delta type."""
    return delta(grown(column, new)) != delta(column)


LOB = frozenset({"binary", "hex", "json", "geometry", "unknown"})
"""Logical types that may hide a large object, whose unchanged value some sources send as NULL."""

LONGEST = 300
"""Maximum length of a type's name; a longer one (an ENUM of many labels) is cut there, or before its bracket."""


def _remembered(convert: Callable[..., str]) -> Callable[..., str]:
    """Cache the conversion of type names."""
    cached = lru_cache(maxsize=4096)(convert)

    @wraps(convert)
    def of(declared: str, *more: bool) -> str:
        if len(declared) > LONGEST:
            start = declared[:LONGEST]
            declared = start if ")" in start else start.partition("(")[0]
        return cached(declared, *more)

    return of


_ARGUMENTS = re.compile(r"\([^()]*\)")
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*+)('|\Z)", re.DOTALL)


_ZEROFILL = " zerofill "


def with_zeros(logical: str, declared: str, *, lengths: bool = True) -> str:
    """A number's logical type with the digits that MySQL's ZEROFILL shows of it: ``uint32 zerofill 5``.

    Without ``lengths`` the writer leaves out the number of digits: ``uint32 zerofill 0``. Only types of messages and
    statements say so; a mirror's columns have plain types (`common`).
    """
    declared = declared[:LONGEST].lower()
    words = declared.partition(")")[2] if "(" in declared else declared
    if "zerofill" not in words.split() or family(logical) == "float":
        return logical
    if parts := decimal_parts(logical):
        return f"{logical}{_ZEROFILL}{parts[0] + (parts[1] > 0)}"
    if given := re.search(r"\(\s*(\d{1,3})\s*\)", declared):
        return f"{logical}{_ZEROFILL}{given[1]}"
    usual = _SHOWN_DIGITS.get(re.split(r"\W", declared, maxsplit=1)[0], 0) if lengths else 0
    return f"{logical}{_ZEROFILL}{usual}"


def unfilled(logical: str) -> tuple[str, int | None]:
    """A type without ZEROFILL, and the digits that ZEROFILL shows: None without it, zero if they are not known."""
    plain, zerofill, width = logical.partition(_ZEROFILL)
    return plain, int(width) if zerofill else None


_SHOWN_DIGITS = {
    **dict.fromkeys(["tinyint", "int1"], 3), **dict.fromkeys(["smallint", "int2"], 5),
    **dict.fromkeys(["mediumint", "int3", "middleint"], 8), **dict.fromkeys(["int", "integer", "int4"], 10),
    **dict.fromkeys(["bigint", "int8"], 20),
}  # fmt: skip


def labels(declared: str) -> list[str]:
    """The labels of an ENUM or SET as its type declares them."""
    return [label.replace("''", "'") for label, end in _LABEL.findall(declared) if end]


def _parts(declared: str) -> tuple[str, str | None, str]:
    """The text before, in and after the first bracket; the whole text if no bracket is closed."""
    head, _, rest = declared.partition("(")
    args, end, tail = rest.partition(")")
    return (head, args, tail) if end else (declared, None, "")


@_remembered
def mysql(declared: str) -> str:
    """The logical type of a MySQL or OceanBase MySQL-mode type name.

    Accepts what capture tools write: ``bigint(20) unsigned``, ``VARCHAR(255)``, ``int64``, ``decimal``.
    A bare ``decimal`` has no known precision. Unknown names are ``unknown``.
    """
    name, args, words = _mysql_words(declared)
    unsigned = "unsigned" in words or "zerofill" in words
    if name in _MYSQL_INTEGERS:
        width = _MYSQL_INTEGERS[name]
        return f"uint{width}" if unsigned else f"int{width}"
    if name in ("decimal", "numeric", "dec", "fixed"):
        return _decimal(args)
    if name == "float" and args and "," not in args and args.strip().isdigit() and int(args) > 24:
        return "float64"
    if name == "bit":
        return "bit(64)" if args and args.strip() == "64" else "bit"
    return _MYSQL.get(name, "unknown")


def mysql_names(declared: Mapping[str, str]) -> dict[str, str]:
    """Logical types of MySQL's type names without lengths."""
    return {column: with_zeros(mysql(name), name, lengths=False) for column, name in declared.items()}


def _mysql_words(declared: str) -> tuple[str, str | None, list[str]]:
    """The type's own name of one or two words, its arguments, and all its words."""
    head, args, tail = _parts(declared.strip().lower())
    if head.strip() in ("enum", "set"):  # labels may contain anything, including parentheses
        return head.strip(), None, []
    words = f"{head} {tail}".split()
    two = " ".join(words[:2])
    return (two if two in _MYSQL else words[0] if words else ""), args, words


def _decimal(args: str | None) -> str:
    if not args:
        return "decimal"
    parts = [part.strip() for part in args.split(",")]
    if not all(re.fullmatch(r"-?\d{1,9}", part) for part in parts):
        return "decimal"
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    if scale < 0:
        precision, scale = precision - scale, 0
    return f"decimal({max(precision, scale)},{scale})"


_MYSQL_INTEGERS = {
    "tinyint": 8, "bool": 8, "boolean": 8, "smallint": 16, "mediumint": 32, "int": 32, "integer": 32, "bigint": 64,
    "int8": 8, "int16": 16, "int32": 32, "int64": 64,
}  # fmt: skip
_MYSQL = {
    **{name: name for name in "enum set json date time datetime timestamp year".split()},
    "float": "float32", "double": "float64", "double precision": "float64", "real": "float64", "serial": "uint64",
    **dict.fromkeys("char varchar tinytext text mediumtext longtext string nchar nvarchar".split(), "string"),
    **dict.fromkeys(["char varying", "character", "character varying"], "string"),
    **dict.fromkeys("array map vector sparsevector roaringbitmap".split(), "string"),
    **dict.fromkeys("binary varbinary tinyblob blob mediumblob longblob bytes".split(), "binary"),
    **dict.fromkeys("geometry point linestring polygon multipoint multilinestring multipolygon".split(), "geometry"),
    **dict.fromkeys(["geometrycollection", "geomcollection"], "geometry"),
}  # fmt: skip


@_remembered
def oracle(declared: str) -> str:
    """The logical type of an Oracle or OceanBase Oracle-mode type name.

    ``NUMBER`` without precision is ``decimal``; DATE has a time of day and is ``datetime``;
    TIMESTAMP WITH [LOCAL] TIME ZONE is an instant.
    """
    name = " ".join(_ARGUMENTS.sub("", declared).lower().split())
    args = _parts(declared)[1]
    if name in ("number", "numeric", "decimal", "dec"):
        return "decimal" if args and args.strip().startswith("*") else _decimal(args)
    if name.startswith("interval"):
        return "interval"
    return _ORACLE.get(name, "unknown")


_ORACLE = {
    **dict.fromkeys(["integer", "int", "smallint"], "decimal(38,0)"),
    "float": "decimal", "binary_float": "float32", "binary_double": "float64", "boolean": "boolean",
    **dict.fromkeys("char nchar varchar varchar2 nvarchar2 clob nclob long rowid urowid string".split(), "string"),
    **dict.fromkeys(["raw", "long raw", "blob", "bfile"], "binary"),
    "date": "datetime", "timestamp": "datetime", "timestamp with time zone": "timestamp",
    "timestamp with local time zone": "timestamp",
    "json": "json", "xmltype": "string", "xml": "string", "sdo_geometry": "geometry",
}  # fmt: skip


@_remembered
def sqlserver(declared: str) -> str:
    """The logical type of a SQL Server type name; its tinyint has no sign, datetimeoffset is an instant."""
    name = _ARGUMENTS.sub("", declared).strip().lower().removesuffix(" identity")
    if name in ("numeric", "decimal"):
        return _decimal(_parts(declared)[1])
    return _SQLSERVER.get(name, "unknown")


_SQLSERVER = {
    "bit": "boolean", "tinyint": "uint8", "smallint": "int16", "int": "int32", "bigint": "int64",
    "money": "decimal(19,4)", "smallmoney": "decimal(10,4)", "real": "float32", "float": "float64",
    **dict.fromkeys(
        "char varchar text nchar nvarchar ntext xml uniqueidentifier sysname hierarchyid".split(), "string"
    ),
    **dict.fromkeys(["binary", "varbinary", "image", "timestamp", "rowversion"], "binary"),
    "date": "date", "time": "time", "datetimeoffset": "timestamp",
    **dict.fromkeys(["datetime", "datetime2", "smalldatetime"], "datetime"),
    **dict.fromkeys(["geometry", "geography"], "geometry"),
}  # fmt: skip


@_remembered
def db2(declared: str) -> str:
    """The logical type of a Db2 type name; its TIMESTAMP has no zone, ``FOR BIT DATA`` makes a text bytes."""
    name = " ".join(_ARGUMENTS.sub("", declared).lower().split())
    if name in ("numeric", "decimal", "dec", "num"):
        return _decimal(_parts(declared)[1])
    text, _, subtype = name.partition(" for ")
    return "binary" if subtype == "bit data" else _DB2.get(text, "unknown")


_DB2 = {
    "boolean": "boolean", "smallint": "int16", **dict.fromkeys(["int", "integer"], "int32"), "bigint": "int64",
    "real": "float32", **dict.fromkeys(["double", "double precision", "float"], "float64"), "decfloat": "decimal",
    **dict.fromkeys("char character varchar clob nchar nvarchar nclob graphic vargraphic dbclob xml".split(), "string"),
    **dict.fromkeys(["character varying", "long varchar", "long vargraphic"], "string"),
    **dict.fromkeys(["blob", "binary", "varbinary", "rowid"], "binary"),
    "date": "date", "time": "time", "timestamp": "datetime",
}  # fmt: skip


@_remembered
def oms(declared: str, oracle_mode: bool = False) -> str:
    """The logical type of OMS' name of a column type, for a MySQL or an Oracle tenant.

    OMS mixes the source's names with its own. Its INT64 is the signed 64-bit integer; its BIGINT is
    an integer of any length (unsigned ones included), so it becomes ``decimal(20,0)``.
    """
    mysql_type = _OMS.get(declared.strip().lower())
    if mysql_type is not None:
        return mysql_type
    known = oracle(declared) if oracle_mode else "unknown"
    return mysql(declared) if known == "unknown" else known


_OMS = {
    "bigint": "decimal(20,0)", "zoned_datetime": "timestamp", "zoneddatetime": "timestamp",
    "localdatetime": "datetime", "interval_day_to_second": "interval", "interval_year_to_month": "interval",
    "clob": "string", "nclob": "string",
}  # fmt: skip

OMS_LOB = frozenset(
    "tinytext text mediumtext longtext tinyblob blob mediumblob longblob bytes clob nclob bfile json "
    "xml xmltype geometry".split()
)
"""Type names, lower case without arguments, whose unchanged value OMS may send as NULL."""


def streamx(declared: str) -> str:
    """The logical type of one of StreamX's six type names; DATE counts milliseconds since 1970."""
    return _STREAMX.get(declared.strip().upper(), "unknown")


_STREAMX = {
    "BOOLEAN": "boolean", "DOUBLE": "float64", "DATE": "timestamp", "BYTES": "binary", "LONG": "int64",
    "STRING": "string",
}  # fmt: skip


@_remembered
def postgres(declared: str) -> str:
    """The logical type of a PostgreSQL type name, long or short, with or without arguments.

    Arrays, ranges, network types and bit strings are kept as text; a name that is neither built in
    nor of a usual extension (an enum, a domain) is ``unknown``.
    """
    lowered = " ".join(declared.lower().split()).replace('"', "")
    if lowered.endswith(("]", " array")) or lowered.startswith("_"):
        return "string"
    args = _parts(lowered)[1]
    name = " ".join(_ARGUMENTS.sub("", lowered).split()).removeprefix("pg_catalog.")
    if name in ("numeric", "decimal", "dec"):
        return _decimal(args)
    if name == "float" and args and args.strip().isdigit() and int(args) <= 24:
        return "float32"
    return "interval" if name.startswith("interval") else _POSTGRES.get(name, "unknown")


_POSTGRES = {
    **dict.fromkeys(["boolean", "bool"], "boolean"),
    **dict.fromkeys(["smallint", "int2", "smallserial", "serial2"], "int16"),
    **dict.fromkeys(["integer", "int", "int4", "serial", "serial4"], "int32"),
    **dict.fromkeys(["bigint", "int8", "bigserial", "serial8"], "int64"),
    **dict.fromkeys(["oid", "xid", "cid"], "uint32"),
    **dict.fromkeys(["real", "float4"], "float32"),
    **dict.fromkeys(["double precision", "float8", "float"], "float64"),
    **dict.fromkeys(
        "text varchar char bpchar character name citext uuid inet cidr macaddr macaddr8 xml money bit varbit "
        "hstore ltree tsvector tsquery int4range int8range numrange tsrange tstzrange daterange pg_lsn "
        "point line lseg box path polygon circle timetz".split(),
        "string",
    ),
    **dict.fromkeys(["character varying", "bit varying", "time with time zone"], "string"),
    **dict.fromkeys(["json", "jsonb"], "json"),
    "bytea": "binary",
    "date": "date",
    **dict.fromkeys(["time", "time without time zone"], "time"),
    **dict.fromkeys(["timestamp", "timestamp without time zone"], "datetime"),
    **dict.fromkeys(["timestamptz", "timestamp with time zone"], "timestamp"),
    **dict.fromkeys(["geometry", "geography"], "geometry"),
}
