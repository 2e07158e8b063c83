"""Random transactions against a real database: all that changes rows, and what takes it back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from random import Random
from typing import Any

from tests.e2e.typed_tables import Column, Table, decimals, integers, moments, one_of, texts


class History:
    """Writes random transactions to the tables of one connection.

    A transaction holds one to four statements' worth of inserts, updates, deletes and key changes; one in
    ten is rolled back, and so is one that meets a key that is there.
    """

    def __init__(self, connection: Any, tables: list[Table], seed: int, quote: str) -> None:
        self.connection = connection
        self.tables = tables
        self.random = Random(seed)
        self.quote = quote
        self.calm = True  # only values that a snapshot can read
        self.committed = self.rolled_back = self.statements = 0
        self.shapes: defaultdict[str, set[frozenset[str]]] = defaultdict(
            set
        )  # columns after each ALTER TABLE

    def name(self, name: str) -> str:
        """A name as this database quotes it."""
        return f"{self.quote}{name}{self.quote}"

    def create(self, table: Table) -> None:
        """Make a table."""
        columns = [
            f"{self.name(name)} {one.type}{'' if one.null or 'NOT NULL' in one.type else ' NOT NULL'}"
            for name, one in table.columns.items()
        ]
        if table.keys:
            columns.append(f"PRIMARY KEY ({', '.join(map(self.name, table.keys))})")
        self.execute(f"CREATE TABLE {self.name(table.name)} ({', '.join(columns)})")
        self.connection.commit()

    def transactions(self, count: int) -> None:
        """Write so many."""
        for _ in range(count):
            self.transaction()

    def transaction(self) -> None:
        """One transaction, to its commit or its rollback."""
        before = {id(table): list(table.live) for table in self.tables}
        try:
            for _ in range(self.random.randint(1, 4)):
                (table,) = self.random.choices(self.tables, [one.weight for one in self.tables])
                self._write(table)
            fails = self.random.random() < 0.1
        except Exception as error:
            if type(error).__name__ not in ("IntegrityError", "UniqueViolation"):
                raise
            fails = True
        if not fails:
            self.connection.commit()
            self.committed += 1
            return
        self.connection.rollback()
        self.rolled_back += 1
        for table in self.tables:
            table.live = before[id(table)]

    def execute(self, text: str, values: Iterable[object] = ()) -> None:
        """One statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(text, tuple(values) or None)
        self.statements += 1

    def truncate(self, table: Table) -> None:
        """Empty a table."""
        self.execute(f"TRUNCATE TABLE {self.name(table.name)}")
        self.connection.commit()
        table.live = []

    # --- rows ---------------------------------------------------------------------------------

    def _write(self, table: Table) -> None:
        if not table.keys:
            self._write_keyless(table)
            return
        doing = self.random.choices([self._insert, self._update, self._delete, self._move], [10, 9, 3, 2])[0]
        if doing == self._insert or not table.live:
            self._insert(table)
        else:
            doing(table)

    def _insert(self, table: Table) -> None:
        rows = []
        for _ in range(self.random.choice([1, 1, 1, 5])):
            row = {name: one.make(self.random, calm=self.calm) for name, one in table.columns.items()}
            rows.append(row)
            if table.keys:
                table.live.append(tuple(row[name] for name in table.keys))
        self._insert_rows(table, rows)

    def _insert_rows(self, table: Table, rows: list[dict[str, object]]) -> None:
        names = ", ".join(map(self.name, table.columns))
        places = ", ".join(f"({', '.join(['%s'] * len(table.columns))})" for _ in rows)
        values = [value for row in rows for value in row.values()]
        self.execute(f"INSERT INTO {self.name(table.name)} ({names}) VALUES {places}", values)

    def _update(self, table: Table) -> None:
        free = [name for name in table.columns if name not in table.keys]
        names = self.random.sample(free, self.random.randint(1, min(3, len(free))))
        self._set(table, self.random.choice(table.live), names)

    def _set(self, table: Table, key: tuple[object, ...], names: Iterable[str]) -> tuple[object, ...]:
        made = {name: table.columns[name].make(self.random, calm=self.calm) for name in names}
        sets = ", ".join(f"{self.name(name)} = %s" for name in made)
        where = " AND ".join(f"{self.name(name)} = %s" for name in table.keys)
        self.execute(f"UPDATE {self.name(table.name)} SET {sets} WHERE {where}", [*made.values(), *key])
        return tuple(made.get(name, value) for name, value in zip(table.keys, key, strict=True))

    def _move(self, table: Table) -> None:
        """Change a row's key, or a part of it, and sometimes another column with it."""
        key = self.random.choice(table.live)
        free = [name for name in table.columns if name not in table.keys]
        names = [self.random.choice(table.keys), *self.random.sample(free, self.random.randint(0, 1))]
        new = self._set(table, key, names)
        table.live[table.live.index(key)] = new

    def _delete(self, table: Table) -> None:
        key = table.live.pop(self.random.randrange(len(table.live)))
        where = " AND ".join(f"{self.name(name)} = %s" for name in table.keys)
        self.execute(f"DELETE FROM {self.name(table.name)} WHERE {where}", key)

    def _write_keyless(self, table: Table) -> None:
        """Rows are met by their number alone: several equal ones at a time."""
        doing, number = self.random.random(), self.random.randint(-9, 9)
        name, column = self.name(table.name), self.name("n")
        if doing < 0.6:
            self._insert(table)
        elif doing < 0.8:
            self.execute(f"UPDATE {name} SET {column} = {number} WHERE {column} = %s", [-number])
        else:
            self.execute(f"DELETE FROM {name} WHERE {column} = %s", [number])


# --- DDL -------------------------------------------------------------------------------------------

ADDED: list[tuple[Column, str]] = [
    (Column("INT NOT NULL DEFAULT 7", integers(-99, 99), null=False, default=7), ""),
    (Column("VARCHAR(20)", texts(20), default="Ähre 's"), "DEFAULT 'Ähre \\'s'"),
    (Column("DECIMAL(12,4)", decimals(12, 4), default=Decimal("1.5")), "DEFAULT 1.5"),
    (Column("DATETIME(6)", moments(6), default="2024-02-29 01:02:03.4"), "DEFAULT '2024-02-29 01:02:03.4'"),
    (Column("ENUM('x','y') NOT NULL", one_of("x", "y"), null=False), ""),
    (Column("BIGINT UNSIGNED", integers(0, 2**64 - 1)), ""),
    (Column("BIT(9)", integers(0, 511), default=5), "DEFAULT b'101'"),
    (Column("DOUBLE", one_of(1.5, -2.25), default="-0.5"), "DEFAULT -0.5"),
    (Column("SMALLINT NOT NULL", integers(-9, 9), null=False), ""),
]
"""Columns that come, and the default that they bring: some have none though they are NOT NULL."""
WIDER = {"INT": "BIGINT", "SMALLINT": "INT", "VARCHAR(20)": "VARCHAR(60)", "DECIMAL(12,4)": "DECIMAL(20,6)"}


def alter(history: History, table: Table) -> str:
    """One ALTER TABLE as MariaDB writes it: a column comes, goes, is renamed or widened."""
    random = history.random
    later = [name for name in table.columns if name not in table.keys]
    doings: list[Callable[[], str]] = [lambda: _add(history, table)]
    if len(later) > 3:
        doings += [lambda: _drop(table, random.choice(later)), lambda: _rename(history, table, later)]
    wider = [name for name in later if table.columns[name].type in WIDER]
    if wider:
        doings.append(lambda: _widen(table, random.choice(wider)))
    text = f"ALTER TABLE `{table.name}` {random.choice(doings)()}"
    history.execute(text)
    history.shapes[text.strip()].add(tuple(table.columns))
    return text


def _add(history: History, table: Table) -> str:
    random = history.random
    name = _free(history, table, "x")
    column, default = random.choice(ADDED)
    table.columns[name] = column
    return f"ADD COLUMN `{name}` {column.type} {default}"


def _free(history: History, table: Table, letter: str) -> str:
    """One of a few names, so that what was dropped or renamed comes again for another column."""
    free = [name for name in (f"{letter}{n}" for n in range(100)) if name not in table.columns]
    return history.random.choice(free[:3])


def _drop(table: Table, name: str) -> str:
    del table.columns[name]
    return f"DROP COLUMN `{name}`"


def _rename(history: History, table: Table, later: list[str]) -> str:
    old = history.random.choice(later)
    new = _free(history, table, "r")
    table.columns = {new if name == old else name: one for name, one in table.columns.items()}
    return f"RENAME COLUMN `{old}` TO `{new}`"


def _widen(table: Table, name: str) -> str:
    old = table.columns[name]
    wider = WIDER[old.type]
    table.columns[name] = Column(wider, old.value)
    return f"MODIFY COLUMN `{name}` {wider}"
