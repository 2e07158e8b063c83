"""What a statement's names mean: its dialect, and the table that the message itself names."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.change import TableId
from ingest.ddl import columns
from ingest.ddl.effect_model import Dialect
from ingest.ddl.tokens import Cursor, Unread

DATABASE_NAMES = (
    ("oracle", "oracle"), ("postgre", "postgres"), ("gauss", "postgres"), ("kingbase", "postgres"), ("ppas", "postgres"),
    ("polardb_o", "postgres"), ("sqlserver", "sqlserver"), ("sql server", "sqlserver"), ("mssql", "sqlserver"), ("db2", "db2"),
)  # fmt: skip
"""A part of a database's own name for itself, in lower case, and whose SQL and types it has."""
LOGS_CASCADES = frozenset({"oceanbase", "tidb"})
"""Servers with MySQL's SQL whose logs have the rows that foreign keys delete or change: theirs are logs of stored rows."""


_WITH_SCHEMAS = frozenset({"postgres", "sqlserver", "db2"})


def dialect_of(kind: str | None) -> str:
    """The dialect of a source by its own name for itself, such as ``MySQL``, ``OB_ORACLE`` or ``postgresql``."""
    kind = (kind or "").lower()
    if kind.startswith(("ob_", "oceanbase")) and "oracle" not in kind:
        return "oceanbase"
    return "mysql" if "mysql" in kind else next((of for part, of in DATABASE_NAMES if part in kind), "mysql")


@dataclass(frozen=True, slots=True)
class Scope:
    """The statement's text and dialect, and the message's own table."""

    dialect: Dialect
    message: TableId
    source: str
    own_server: bool = False  # one of `LOGS_CASCADES`

    def table(self, cursor: Cursor, like: TableId | None = None) -> TableId:
        """A table's name; parts that it lacks come from ``like``, else from the message."""
        return self.identity(self.parts(cursor), like)

    def parts(self, cursor: Cursor) -> list[str]:
        """The parts of a dotted name, each unquoted by itself."""
        names = [columns.name(cursor, self.dialect)]
        while cursor.symbol("."):
            names.append(columns.name(cursor, self.dialect))
        return names

    def identity(self, parts: list[str], like: TableId | None = None) -> TableId:
        """One to three parts as a table's identity.

        A database of PostgreSQL's is the message's own: its statements reach no other. Two parts are schema and table where the message names a schema or the database has both databases and
        schemas, else database (or owner) and table.
        """
        base = like or self.message
        if len(parts) == 3:
            if self.dialect == "postgres" and base.schema is not None:
                return TableId(base.database, parts[1], parts[2])
            return TableId(parts[0], parts[1], parts[2])
        if len(parts) == 2:
            if self.dialect in _WITH_SCHEMAS or base.schema is not None:
                return TableId(base.database, parts[0], parts[1])
            return TableId(parts[0], None, parts[1])
        if len(parts) == 1:
            return TableId(base.database, base.schema, parts[0])
        raise Unread(f"a table's name has {len(parts)} parts")

    def column(self, cursor: Cursor) -> str:
        return columns.name(cursor, self.dialect)
