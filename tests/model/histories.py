"""Random histories of a source database: what applications and operators do to its tables.

Names come from few, so that tables, columns and keys are used again.  ``doubts`` notes, per table, what no
message tells: only there may a mirror differ, and then it must say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

from ingest.change import Image
from tests.formats.one_history.history import Event
from tests.model import values
from tests.model.source import Clause, Column, Default, Name, Source, Table
from tests.model.values import RefusedError, literal

DECLARED = (
    "tinyint", "smallint", "int", "bigint", "tinyint unsigned", "smallint unsigned", "int unsigned",
    "bigint unsigned", "decimal(6,2)", "decimal(10,2)", "decimal(10,4)", "decimal(20,6)", "float", "double",
    "varchar(20)", "varchar(40)", "text", "date", "datetime", "datetime(6)", "timestamp", "timestamp(6)",
    "time", "time(3)", "year", "varbinary(6)", "varbinary(20)", "bit(8)", "bit(16)", "enum('new','old')",
    "enum('new','old','it''s')",
)  # fmt: skip
KEYS = ("int", "bigint", "varchar(20)", "smallint unsigned")
NAMES = ("a", "b", "c", "d", "Total", "note")
TABLES = ("orders", "items")


@dataclass(frozen=True, slots=True)
class Life:
    """What may happen in a history: how likely each step is, and what the source is like."""

    steps: dict[str, int]
    types: tuple[str, ...] = DECLARED
    length: int = 18
    lower: bool = False
    hurried: bool = False
    guards: bool = False


@dataclass(slots=True)
class History:
    """A history: the binlog, the tables that it leaves, and what no message tells of them."""

    number: int
    source: Source
    log: list[str] = field(default_factory=list)
    doubts: dict[Name, set[str]] = field(default_factory=dict)

    @property
    def events(self) -> list[Event]:
        """The binlog."""
        return self.source.events

    def doubt(self, table: Table, why: str) -> None:
        """Note what no message tells of a table."""
        self.doubts.setdefault((table.database, table.name), set()).add(why)


ROWS = {"insert": 8, "update": 8, "delete": 3, "move": 2}
SIMPLE = Life({**ROWS, "add_column": 3, "truncate": 1})


def history(number: int, life: Life, seed: str = "") -> History:
    """The history of a number."""
    return _Writer(number, life, Random(f"{seed}{number}")).write()


class _Writer:
    def __init__(self, number: int, life: Life, random: Random) -> None:
        self.random, self.life, self.number = random, life, number
        self.source = Source(life.lower, 1_712_345_678_000 + number % 1000 * 100_000, hurried=life.hurried)
        self.history = History(number, self.source)
        self.database = f"h{number}"
        self.step = 0

    def write(self) -> History:
        for table in TABLES[: self.random.choice((1, 1, 2))]:
            self.begin(table)
        steps = list(self.life.steps)
        weights = list(self.life.steps.values())
        for _ in range(self.random.randint(self.life.length // 2, self.life.length)):
            self.take(self.random.choices(steps, weights)[0])
        return self.history

    def take(self, step: str) -> None:
        """One step; one that the source refuses did not happen."""
        self.source.tick(self.random.choice((0, 0, 3, 250, 1000, 61_000)))
        with contextlib.suppress(RefusedError):
            _STEPS[step](self)

    def begin(self, name: str) -> None:
        """A table from before the capture, sent as a full load, or one that is created under its eyes."""
        mark = len(self.source.events)
        table = self.create(name)
        for _ in range(self.random.randint(0, 4)):
            with contextlib.suppress(RefusedError):
                self.insert(table)
        if self.random.random() < 0.5:
            del self.source.events[mark:]
            self.source.read(table)

    # --- rows ---

    def some_table(self) -> Table:
        tables = [one for one in self.source.known() if not one.name.startswith("_")]
        if not tables:
            self.create(self.random.choice(TABLES))
            return self.some_table()
        return self.random.choice(tables)

    def new_row(self, table: Table) -> Image:
        return {one.name: self.value(table, one) for one in table.columns}

    def value(self, table: Table, column: Column) -> str | None:
        if column.name in table.key:
            return self.key_value(column)
        if column.nullable and self.random.random() < 0.2:
            return None
        return values.value(column.type, self.random)

    def key_value(self, column: Column) -> str:
        if column.type.name in values.INTEGERS or column.type.name == "decimal":
            return values.convert(str(self.random.randint(1, 9)), values.read("int"), column.type) or "1"
        if column.type.name == "varchar":
            return self.random.choice(("A", "a", "b", "ä", "1", "01", "x"))
        return values.value(column.type, self.random)

    def insert(self, table: Table | None = None) -> None:
        table = table or self.some_table()
        self.source.insert(table, [self.new_row(table) for _ in range(self.random.choice((1, 1, 2, 3)))])

    def some_rows(self, table: Table) -> list[int]:
        if not table.rows:
            raise RefusedError("no rows")
        numbers = list(table.rows)
        return self.random.sample(numbers, min(len(numbers), self.random.choice((1, 1, 1, 2, 3))))

    def update(self) -> None:
        table = self.some_table()
        names = [one.name for one in table.columns if one.name not in table.key]
        if not names:
            raise RefusedError("nothing but a key")
        chosen = self.random.sample(names, self.random.randint(1, len(names)))
        changed = {}
        for number in self.some_rows(table):
            new = {name: self.value(table, table.column(name)) for name in chosen}
            changed[number] = {**table.rows[number], **new}
        self.source.update(table, changed)

    def move(self) -> None:
        """An update of the key."""
        table = self.some_table()
        number = self.some_rows(table)[0]
        chosen = self.random.sample(table.key, self.random.randint(1, len(table.key))) if table.key else []
        new = {name: self.value(table, table.column(name)) for name in chosen}
        self.source.update(table, {number: {**table.rows[number], **new}})

    def delete(self) -> None:
        table = self.some_table()
        self.source.delete(table, self.some_rows(table))

    # --- statements ---

    def create(self, name: str) -> Table:
        key = [
            Column(one, self.type_of(KEYS), nullable=False)
            for one in self.random.choice((("id",), ("id",), ("id", "day")))
        ]
        names = self.random.sample(NAMES, self.random.randint(1, 3))
        columns = [*key, *(self.column(one) for one in names)]
        keys = tuple(one.name for one in key)
        definitions = [self.definition(one) for one in columns]
        definitions.append(f"PRIMARY KEY ({', '.join(self.quoted(one) for one in keys)})")
        sql = f"CREATE TABLE {self.named(name)} ({', '.join(definitions)})"
        self.source.create((self.database, name), columns, keys, self.dressed(sql))
        return self.source.table((self.database, name))

    def truncate(self) -> None:
        table = self.some_table()
        sql = f"TRUNCATE {self.random.choice(('TABLE ', ''))}{self.named(table.name)}"
        self.source.truncate((table.database, table.name), sql)

    def add_column(self) -> None:
        table = self.some_table()
        self.alter(table, [self.added(table)])

    def add_unread(self) -> None:
        """ADD COLUMN with a default that is no plain literal."""
        table = self.some_table()
        one = self.added(table)
        assert one.column is not None
        column = replace(one.column, default=self.unread_default(one.column))
        self.alter(table, [replace(one, column=column)])

    def added(self, table: Table) -> Clause:
        self.source.at_whole_second()
        column = self.column(self.random.choice(NAMES), added=True)
        guarded = self.life.guards and self.random.random() < 0.3
        return Clause("add", column=column, position=self.position(table), guarded=guarded)

    def position(self, table: Table) -> str | None:
        if self.random.random() < 0.7:
            return None
        return self.random.choice(("first", *(one.name for one in table.columns)))

    def alter(self, table: Table, clauses: list[Clause]) -> None:
        """Run an ALTER, noting what no message tells of its outcome."""
        sql = ", ".join(self.clause(one) for one in clauses)
        before = table
        name = (table.database, table.name)
        self.source.alter(name, clauses, self.dressed(f"ALTER TABLE {self.named(table.name)} {sql}"))
        self.doubtful(before, self.source.table(name), clauses)

    def doubtful(self, before: Table, after: Table, clauses: Iterable[Clause]) -> None:
        for clause in clauses:
            column = clause.column
            default = column.default if clause.action == "add" and column is not None else None
            if before.rows and default is not None and not default.known:
                self.history.doubt(after, f"default {default.sql}")

    # --- parts ---

    def type_of(self, declared: Iterable[str]) -> values.Type:
        return values.read(self.random.choice(tuple(declared)))

    def column(self, name: str, *, added: bool = False) -> Column:
        kind = self.type_of(self.life.types)
        column = Column(name, kind, nullable=self.random.random() < 0.7)
        return replace(column, default=self.default(column, added=added))

    def default(self, column: Column, *, added: bool) -> Default | None:
        """A default of any sort that the type takes."""
        sort = self.random.choice(("none", "literal", "literal", "null"))
        if sort == "null" and column.nullable:
            return Default("NULL", None)
        if column.type.name == "timestamp" and not column.nullable:
            return None if added else self.now(column)
        if sort == "literal" and column.type.name not in ("text", "json", "timestamp"):
            text = values.value(column.type, self.random)
            return Default(literal(column.type, text), text)
        return None

    def unread_default(self, column: Column) -> Default:
        """A default whose value no statement tells: a moment, an expression, a clock's text of the server's zone."""
        if column.type.name not in ("datetime", "timestamp"):
            text = values.convert("3", values.read("int"), column.type)
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
    import datetime as dt

    return (values.EPOCH + dt.timedelta(seconds=seconds)).isoformat() + "Z"


_STEPS: dict[str, Callable[[_Writer], None]] = {
    "insert": _Writer.insert,
    "update": _Writer.update,
    "delete": _Writer.delete,
    "move": _Writer.move,
    "truncate": _Writer.truncate,
    "add_column": _Writer.add_column,
    "add_unread": _Writer.add_unread,
}
