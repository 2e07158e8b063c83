"""Random changes of rows, and the tables that they need."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.change import Image, TableId
from tests.formats.one_history.history import Column as Shape
from tests.formats.one_history.history import Event
from tests.model import values
from tests.model.conversions import convert
from tests.model.parts import NAMES, TABLES, Parts
from tests.model.source import Source
from tests.model.tables import Column, Name, Table
from tests.model.values import RefusedError


@dataclass(slots=True)
class History:
    """A history: the binlog, the tables that it leaves, and what no message shows of them.

    Only where ``doubts`` notes that may a mirror differ, and then it must say so. ``view`` is what a dialect leaves of a
    value, ``statements`` is False if it sends none.
    """

    number: int
    source: Source
    log: list[str] = field(default_factory=list)
    doubts: dict[Name, set[str]] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    statements: bool = True
    view: Callable[[Shape, str], str | None] = lambda _column, text: text

    def table_id(self, table: Table) -> TableId:
        """A table's name as messages have it."""
        if self.source.within is None:
            return TableId(table.database, None, table.name)
        return TableId(self.source.within, table.database, table.name)

    @property
    def events(self) -> list[Event]:
        """The binlog, without what its capture has lost."""
        return [one for one in self.source.events if one.number not in self.lost]

    def doubt(self, table: Table, why: str) -> None:
        """Note what no message shows of a table."""
        self.doubts.setdefault((table.database, table.name), set()).add(why)


class Rows(Parts):
    """Draws the changes of one history's rows."""

    history: History

    def create(self, name: str) -> Table:
        known = self.history.keys.get(name) if self.life.fixed else None
        key = [
            Column(one, self.key_type(one), nullable=False)
            for one in known or self.random.choice((("id",), ("id",), ("id", "day")))
        ]
        names = self.random.sample(NAMES, self.random.randint(1, 3))
        columns = [*key, *(self.column(one) for one in names)]
        keys = tuple(one.name for one in key)
        definitions = [self.definition(one) for one in columns]
        definitions.append(self.key_clause(keys))
        sql = f"CREATE TABLE {self.named(name)} ({', '.join(definitions)})"
        self.source.create((self.database, name), columns, keys, self.dressed(sql))
        self.history.keys[name] = keys
        return self.source.table((self.database, name))

    def key_clause(self, keys: tuple[str, ...]) -> str:
        """PRIMARY KEY, as CREATE TABLE writes it."""
        return f"PRIMARY KEY ({', '.join(self.quoted(one) for one in keys)})"

    def some_table(self) -> Table:
        tables = [
            one
            for one in self.source.known()
            if not one.name.startswith("_") and one.database == self.source.name(self.database, "")[0]
        ]
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
            return convert(str(self.random.randint(1, 9)), values.read("int"), column.type) or "1"
        if column.type.name == "varchar":
            return self.random.choice(("A", "a", "b", "ä", "1", "01", "x"))
        return values.value(column.type, self.random)

    def insert(self, table: Table | None = None) -> None:
        table = table or self.some_table()
        self.source.insert(table, [self.new_row(table) for _ in range(self.random.choice((1, 1, 2, 3)))])

    def upsert(self) -> None:
        """INSERT ... ON DUPLICATE KEY UPDATE: of a row that is there the log has an update."""
        table = self.some_table()
        names = [one.name for one in table.given if one.name not in table.key]
        if not names or not table.key:
            raise RefusedError("no key, or nothing but a key")
        rows = [self.new_row(table) for _ in range(self.random.choice((1, 2, 3)))]
        chosen = self.random.sample(names, self.random.randint(1, len(names)))
        self.source.merge(table, rows, chosen, self.source.merging(table, rows, chosen))

    def replace(self) -> None:
        """REPLACE, which servers do in both ways ("REPLACE Statement" of MySQL): an update, or a delete and an insert."""
        table = self.some_table()
        rows = [self.new_row(table) for _ in range(self.random.choice((1, 2, 3)))]
        sql = self.source.inserting(table, rows).replace("INSERT", "REPLACE", 1)
        names = [one.name for one in table.given]
        self.source.merge(table, rows, names, sql, in_pairs=self.random.random() < 0.5)

    def transaction(self) -> None:
        """Several statements of one transaction, some of which are taken back."""
        self.some_table()
        with self.source.transacted():
            for _ in range(self.random.randint(2, 4)):
                taken_back = self.random.random() < 0.2
                with self.source.undone() if taken_back else contextlib.nullcontext():
                    self.change()

    def change(self) -> None:
        """A statement that changes rows, unless it is refused."""
        with contextlib.suppress(RefusedError):
            getattr(self, self.random.choice(("insert", "update", "update", "delete", "move", "upsert")))()

    def some_rows(self, table: Table) -> list[int]:
        if not table.rows:
            raise RefusedError("no rows")
        numbers = list(table.rows)
        return self.random.sample(numbers, min(len(numbers), self.random.choice((1, 1, 1, 2, 3))))

    def update(self) -> None:
        table = self.some_table()
        names = [one.name for one in table.given if one.name not in table.key]
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
