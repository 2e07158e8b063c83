"""Which database a message's type names are those of, where a dialect serves several.

Huawei's DRS and Alibaba's DTS send rows of MySQL, PostgreSQL, Oracle and SQL Server in one shape, and the same name means
another type in each: Oracle's DATE has a time of day, its TIMESTAMP no zone, PostgreSQL's ``int8`` has eight bytes. What the
option ``database_kind`` says decides, then the member ``dbType``, then names that one database alone has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from ingest import types
from ingest.ddl.scope import DATABASE_NAMES

MYSQL, ORACLE, POSTGRES, SQLSERVER, DB2 = KINDS = ("mysql", "oracle", "postgres", "sqlserver", "db2")

TypesOf = Callable[[Mapping[str, str]], dict[str, str]]
"""Logical types of a message's type names, by column."""


def _each(read: Callable[[str], str]) -> TypesOf:
    return lambda declared: {column: read(name) for column, name in declared.items()}


TYPES: Mapping[str, TypesOf] = {
    MYSQL: types.mysql_names,
    ORACLE: _each(types.oracle),
    POSTGRES: _each(types.postgres),
    SQLSERVER: _each(types.sqlserver),
    DB2: _each(types.db2),
}
"""How each database's type names without lengths are read."""

_OF_ONE = {
    ORACLE: r"(number|varchar2|nvarchar2|nclob|raw|long|rowid|urowid|bfile|binary_float|binary_double|xmltype)\b"
    r"|.*with local time zone|interval (day|year)",
    POSTGRES: r"(int[248]|float[48]|bool|boolean|timestamptz|timetz|bytea|jsonb|bpchar|uuid|inet|cidr|macaddr|tsvector"
    r"|hstore|citext|character varying|bigserial|smallserial|double precision)\b|.*without time zone|_|.*\[\]",
    SQLSERVER: r"(nvarchar|ntext|uniqueidentifier|datetime2|datetimeoffset|smalldatetime|smallmoney|rowversion|sql_variant"
    r"|hierarchyid|sysname|image)\b",
    DB2: r"(decfloat|graphic|vargraphic|dbclob|long varchar|long vargraphic)\b|.*for bit data",
}
"""Names that no other of these databases has, in lower case."""
_PATTERNS = {kind: re.compile(text) for kind, text in _OF_ONE.items()}


def named(database: str) -> str:
    """The kind of a database by its own name, such as ``PostgreSQL`` or ``OB_ORACLE``; GaussDB for MySQL is MySQL."""
    name = database.lower()
    if "mysql" in name:
        return MYSQL
    return next((kind for part, kind in DATABASE_NAMES if part in name), MYSQL)


def of_names(declared: Iterable[str], kinds: Collection[str]) -> str | None:
    """The database of some kinds that alone has some of these type names, by most of them; None where all have them."""
    patterns = [(kind, names) for kind, names in _PATTERNS.items() if kind in kinds]
    hits = Counter(kind for name in declared for kind, names in patterns if names.match(name.strip().lower()))
    return hits.most_common(1)[0][0] if hits else None
