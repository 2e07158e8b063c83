"""Logical types: the vocabulary, the vendors' names for them, and their Delta types.

A logical type is its own name as text (``int64``, ``decimal(10,2)``).  The canonical text of each
value is given with its pattern in `PATTERNS`; gold casts only text that matches in full.
"""

from __future__ import annotations

import re
from functools import lru_cache

LOGICAL = (
    "boolean int8 int16 int32 int64 uint8 uint16 uint32 uint64 decimal float32 float64 string enum "
    "set json interval geometry binary date time datetime timestamp year bit unknown"
).split()

_DELTA = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "binary": "BINARY",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP",
    "year": "INT",
    "bit": "BIGINT",
}

PATTERNS = {
    "boolean": r"true|false",
    "integer": r"-?[0-9]{1,40}",
    "decimal": r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?",
    "float": r"NaN|-?Infinity|[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "datetime": r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?",
    "timestamp": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})",
    "binary": r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
}
"""Full-match patterns of canonical text, in the common subset of Python's and Java's syntax."""

_FAMILY = {
    **dict.fromkeys("int8 int16 int32 int64 uint8 uint16 uint32 uint64 year bit".split(), "integer"),
    **dict.fromkeys(["float32", "float64"], "float"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def is_logical(name: str) -> bool:
    """True if ``name`` is a word of the vocabulary; a decimal may carry precision and scale."""
    found = _DECIMAL.fullmatch(name)
    return bool(found and int(found[2]) <= int(found[1]) <= 1000) or name in (*LOGICAL, "bit(64)")


def base(logical: str) -> str:
    """``decimal`` of ``decimal(10,2)``; every other type is its own base."""
    return logical.partition("(")[0]


def family(logical: str) -> str | None:
    """The name of the type's pattern in `PATTERNS`, or None where any text fits."""
    known = base(logical)
    known = _FAMILY.get(known, known)
    return known if known in PATTERNS else None


def decimal_parts(logical: str) -> tuple[int, int] | None:
    """Precision and scale of a ``decimal(p,s)``, else None."""
    found = _DECIMAL.fullmatch(logical)
    return (int(found[1]), int(found[2])) if found else None


def delta(logical: str) -> str:
    """The Delta type of a logical type, as Spark SQL writes it."""
    parts = decimal_parts(logical)
    if parts and parts[0] <= 38:
        return f"DECIMAL({parts[0]},{parts[1]})"
    if logical == "bit(64)":
        return "DECIMAL(20,0)"
    return _DELTA.get(logical, "STRING")


LOB = frozenset({"binary", "json", "geometry", "unknown"})
"""Logical types that may hide a large object, whose unchanged value some sources send as NULL."""

_ARGUMENTS = re.compile(r"\(([^)]*)\)")


@lru_cache(maxsize=4096)
def mysql(declared: str) -> str:
    """The logical type of a MySQL or OceanBase MySQL-mode type name.

    Takes what captures write: ``bigint(20) unsigned``, ``VARCHAR(255)``, ``int64``, ``decimal``.
    A bare ``decimal`` says nothing of its precision. Unknown names are ``unknown``.
    """
    name, args, words = _mysql_words(declared)
    unsigned = "unsigned" in words or "zerofill" in words
    if name in _MYSQL_INTEGERS:
        width = _MYSQL_INTEGERS[name]
        return f"uint{width}" if unsigned else f"int{width}"
    if name in ("decimal", "numeric", "dec", "fixed"):
        return _decimal(args, 0)
    if name == "float" and args and "," not in args and args.strip().isdigit() and int(args) > 24:
        return "float64"
    if name == "bit":
        return "bit(64)" if args and args.strip() == "64" else "bit"
    return _MYSQL.get(name, "unknown")


def _mysql_words(declared: str) -> tuple[str, str | None, list[str]]:
    """The type's own name of one or two words, its arguments, and all its words."""
    lowered = declared.strip().lower()
    found = _ARGUMENTS.search(lowered)
    head, args = (lowered[: found.start()], found[1]) if found else (lowered, None)
    if head.strip() in ("enum", "set"):  # labels may hold anything, parentheses included
        return head.strip(), None, []
    words = (head + " " + lowered[found.end() :] if found else head).split()
    two = " ".join(words[:2])
    return (two if two in _MYSQL else words[0] if words else ""), args, words


def _decimal(args: str | None, default_scale: int) -> str:
    if not args:
        return "decimal"
    parts = [part.strip() for part in args.split(",")]
    if not all(re.fullmatch(r"-?\d+", part) for part in parts):
        return "decimal"
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) > 1 else default_scale
    if scale < 0:
        precision, scale = precision - scale, 0
    return f"decimal({max(precision, scale)},{scale})"


_MYSQL_INTEGERS = {
    "tinyint": 8,
    "bool": 8,
    "boolean": 8,
    "smallint": 16,
    "mediumint": 32,
    "int": 32,
    "integer": 32,
    "bigint": 64,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
}
_MYSQL = {
    "float": "float32",
    "double": "float64",
    "double precision": "float64",
    "real": "float64",
    "serial": "uint64",
    **dict.fromkeys(
        ["char", "varchar", "tinytext", "text", "mediumtext", "longtext", "string", "nchar", "nvarchar"], "string"
    ),
    "char varying": "string",
    "character": "string",
    "character varying": "string",
    **dict.fromkeys(["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bytes"], "binary"),
    "enum": "enum",
    "set": "set",
    "json": "json",
    "date": "date",
    "time": "time",
    "datetime": "datetime",
    "timestamp": "timestamp",
    "year": "year",
    **dict.fromkeys(
        "geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection geomcollection".split(),
        "geometry",
    ),
    **dict.fromkeys(["array", "map", "vector", "sparsevector", "roaringbitmap"], "string"),
}


@lru_cache(maxsize=4096)
def oracle(declared: str) -> str:
    """The logical type of an Oracle or OceanBase Oracle-mode type name.

    ``NUMBER`` without precision is ``decimal``; DATE has a time of day and is ``datetime``;
    TIMESTAMP WITH [LOCAL] TIME ZONE is an instant.
    """
    name = re.sub(r"\s+", " ", re.sub(r"\([^)]*\)", "", declared)).strip().lower()
    found = re.search(r"\(([^)]*)\)", declared)
    args = found[1] if found else None
    if name in ("number", "numeric", "decimal", "dec"):
        return "decimal" if args and args.strip().startswith("*") else _decimal(args, 0)
    if name.startswith("interval"):
        return "interval"
    return _ORACLE.get(name, "unknown")


_ORACLE = {
    **dict.fromkeys(["integer", "int", "smallint"], "decimal(38,0)"),
    "float": "decimal",
    "binary_float": "float32",
    "binary_double": "float64",
    **dict.fromkeys(
        "char nchar varchar varchar2 nvarchar2 clob nclob long rowid urowid string".split(), "string"
    ),
    **dict.fromkeys(["raw", "long raw", "blob", "bfile"], "binary"),
    "date": "datetime",
    "timestamp": "datetime",
    "timestamp with time zone": "timestamp",
    "timestamp with local time zone": "timestamp",
    "json": "json",
    "xmltype": "string",
    "xml": "string",
    "sdo_geometry": "geometry",
    "boolean": "boolean",
}
