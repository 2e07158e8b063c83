"""What a random history is made of: types, columns, defaults, and names and clauses in SQL of several spellings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.model import values
from tests.model.conversions import convert
from tests.model.source import Source
from tests.model.tables import Clause, Column, Default
from tests.model.values import literal

DECLARED = (
    "tinyint", "smallint", "int", "bigint", "tinyint unsigned", "smallint unsigned", "int unsigned",
    "bigint unsigned", "decimal(6,2)", "decimal(10,2)", "decimal(10,4)", "decimal(20,6)", "float", "double",
    "varchar(4)", "varchar(20)", "varchar(40)", "text", "date", "datetime", "datetime(6)", "timestamp", "timestamp(6)",
    "time", "time(3)", "year", "varbinary(6)", "varbinary(20)", "bit(8)", "bit(16)", "enum('new','old')",
    "enum('new','old','it''s')",
)  # fmt: skip
_INTS = ("tinyint", "smallint", "int", "bigint")
WIDER: dict[str, tuple[str, ...]] = {
    **{name: (*_INTS[at + 1 :], "decimal(20,6)") for at, name in enumerate(_INTS[:3])},
    **{
        f"{name} unsigned": tuple(f"{one} unsigned" for one in _INTS[at + 1 :])
        for at, name in enumerate(_INTS[:3])
    },
    "decimal(6,2)": ("decimal(10,2)", "decimal(20,6)"),
    "decimal(10,2)": ("decimal(20,6)",),
    "varchar(20)": ("varchar(40)", "text"),
    "varchar(40)": ("text",),
    "float": ("double",),
    "date": ("datetime", "datetime(6)"),
    "datetime": ("datetime(6)",),
    "timestamp": ("timestamp(6)",),
    "time": ("time(3)",),
    "varbinary(6)": ("varbinary(20)",),
    "bit(8)": ("bit(16)",),
    "enum('new','old')": ("enum('new','old','it''s')", "varchar(20)"),
}
"""Types that hold every value of another, unchanged."""
NOISE = ("ENGINE=InnoDB", "COMMENT = 'x'", "ALGORITHM=COPY", "ROW_FORMAT=DYNAMIC")
KEYS = ("int", "bigint", "varchar(20)", "smallint unsigned")
_NO_KEYS = ("text", "json", "timestamp", "float", "double")
NAMES = ("a", "b", "c", "d", "Total", "note")
TABLES = ("orders", "items")


@dataclass(frozen=True, slots=True)
class Life:
    """What may happen in a history: how likely each step is, and what the source is like.

    Args:
        steps: each step with its weight.
        types: what columns are declared as.
        length: the most steps.
        lower: True for a source whose tables' names ignore letter case.
        hurried: True if statements and rows may share a second.
        guards: True for ADD COLUMN IF NOT EXISTS.
        cases: True if statements spell columns in any letter case.
        keys: what key columns are declared as.
        reloads: how a table is loaded again: ``rows``, or before them ``drop`` and ``truncate``.
        keyed_reloads: True if only a table with a key is loaded again.
        fixed: names whose columns are always declared alike, as a pipeline file declares them.
        writer: what draws the history; None for MySQL's.
        shown: True if a row of the table follows each statement at once: where no message tells of statements, only a row can.
    """

    steps: dict[str, int]
    types: tuple[str, ...] = DECLARED
    length: int = 18
    lower: bool = False
    hurried: bool = False
    guards: bool = False
    cases: bool = False
    keys: tuple[str, ...] = KEYS
    reloads: tuple[str, ...] = ()
    keyed_reloads: bool = False
    fixed: Mapping[str, str] = field(default_factory=dict)
    writer: Callable[..., Any] | None = None
    shown: bool = False


class Parts:
    """Draws the parts of one history's statements."""

    random: Random
    life: Life
    source: Source
    database: str

    def read_type(self, declared: str) -> values.Type:
        """A declared type of the database."""
        return values.read(declared)

    def type_of(self, declared: Iterable[str]) -> values.Type:
        return self.read_type(self.random.choice(tuple(declared)))

    def key_type(self, name: str) -> values.Type:
        return self.read_type(self.life.fixed[name]) if self.life.fixed else self.type_of(self.life.keys)

    def column(self, name: str, *, added: bool = False) -> Column:
        kind = self.read_type(self.life.fixed[name]) if self.life.fixed else self.type_of(self.life.types)
        column = Column(name, kind, nullable=self.random.random() < 0.7)
        return replace(column, default=self.default(column, added=added))

    def default(self, column: Column, *, added: bool) -> Default | None:
        """A default of any sort that the type takes."""
        sort = self.random.choice(("none", "literal", "literal", "null"))
        if sort == "null" and column.nullable:
            return Default("NULL", None)
        if column.type.name == "timestamp" and not column.nullable:
            return None if added else self.now(column)
        if sort == "literal" and column.type.has_default:
            text = values.value(column.type, self.random)
            return Default(literal(column.type, text), text)
        return None

    def unread_default(self, column: Column) -> Default:
        """A default whose value no statement shows: a moment, an expression, a clock's text of the server's zone."""
        if column.type.name not in ("datetime", "timestamp"):
            text = convert("3", values.read("int"), column.type)
            return Default(self.random.choice(("(1 + 2)", "(greatest(1, 3))")), text, known=False)
        if column.type.name == "timestamp" and self.random.random() < 0.5:
            text = values.value(column.type, self.random)
            return Default(literal(column.type, text), text, known=False)
        return self.now(column)

    def now(self, column: Column) -> Default:
        digits = f"({column.type.digits})" if column.type.digits else ""
        moment = values.wall(_instant(self.source.time // 1000))
        text = values.instant(moment) if column.type.name == "timestamp" else moment
        return Default(f"CURRENT_TIMESTAMP{digits}", text, known=False)

    def definition(self, column: Column) -> str:
        parts = [self.quoted(column.name), self.cased(column.type.declared)]
        if column.made_of:
            expression = self.quoted(column.made_of)
            kind = self.random.choice(("VIRTUAL", "STORED"))
            return " ".join([*parts, self.maybe("GENERATED ALWAYS ") + f"AS ({expression})", kind])
        parts.append("NULL" if column.nullable else "NOT NULL")
        if column.default is not None:
            parts.append(f"DEFAULT {column.default.sql}")
        return " ".join(parts)

    def clause(self, one: Clause) -> str:
        where = ""
        if one.position is not None:
            where = " FIRST" if one.position == "first" else f" AFTER {self.quoted(one.position)}"
        if one.action == "add":
            assert one.column is not None
            word = (
                self.random.choice(("ADD COLUMN ", "ADD "))
                if not one.guarded
                else "ADD COLUMN IF NOT EXISTS "
            )
            return word + self.definition(one.column) + where
        return one.text

    def maybe(self, word: str) -> str:
        return self.random.choice((word, ""))

    def column_name(self, name: str) -> str:
        """A column's name in any letter case, for columns ignore it."""
        if self.life.cases and self.random.random() < 0.3:
            name = self.random.choice((name.upper(), name.lower(), name.title()))
        return self.quoted(name)

    def quoted(self, name: str) -> str:
        return f"`{name}`" if self.random.random() < 0.5 else name

    def named(self, table: str) -> str:
        """A table's name in a statement: alone or with its database, in any letter case if that does not matter."""
        if self.life.lower:
            table = self.random.choice((table, table.upper(), table.title()))
        if self.random.random() < 0.3:
            return f"{self.quoted(self.database)}.{self.quoted(table)}"
        return self.quoted(table)

    def cased(self, declared: str) -> str:
        return declared if "'" in declared or self.random.random() < 0.7 else declared.upper()

    def dressed(self, sql: str) -> str:
        return f"/* app */ {sql}" if self.random.random() < 0.1 else sql


def _instant(seconds: int) -> str:
    return (values.EPOCH + dt.timedelta(seconds=seconds)).isoformat() + "Z"
