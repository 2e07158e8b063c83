"""The source database: tables, rows and statements with MySQL's semantics, and the binlog that they leave.

It knows nothing of messages, orders, policies or folds, so that it can judge them.  A statement that the
server refuses raises `RefusedError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ingest.change import Image
from tests.formats.one_history.history import Event
from tests.model.conversions import convert
from tests.model.tables import Clause, Column, Name, Table
from tests.model.values import RefusedError, Type, literal


@dataclass(slots=True)
class Source:
    """A server with its databases, its clock and its binlog.

    Args:
        lower: True for lower_case_table_names=1: names are stored in lower case and compared without case.
        within: the database, where the model's databases are its schemas.
        strict: False if sessions cut and clip what does not fit a column's new type.

    ``by_server`` is True once a NULL has come into a column that is NOT NULL and has a default: a server that copies the
    table (MySQL) puts the type's zero there, one that alters it in place (MariaDB) the default.
    """

    lower: bool = False
    time: int = 1_712_345_678_000
    counter: int = 0
    tables: dict[Name, Table] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    script: list[tuple[int, str]] = field(default_factory=list)
    numbered: int = 0
    hurried: bool = False
    strict: bool = True
    by_server: bool = False
    transaction: int = 0
    is_open: bool = False  # a transaction of several statements
    within: str | None = None
    server: str = "MySQL"

    # --- names and clock ---

    def name(self, database: str, table: str) -> Name:
        """The name as it is stored."""
        return (database.lower(), table.lower()) if self.lower else (database, table)

    def table(self, name: Name) -> Table:
        """A table by any spelling of its name."""
        found = self.tables.get(self.name(*name))
        if found is None:
            raise RefusedError(f"no table {name}")
        return found

    def tick(self, milliseconds: int) -> None:
        """Let time pass."""
        before = self.time // 1000
        self.time += milliseconds
        if self.time // 1000 != before:
            self.counter = 0

    def at_whole_second(self) -> None:
        """Let a new second begin, unless statements and rows may share one."""
        if not self.hurried and (self.counter or self.time % 1000):
            self.tick(1000 - self.time % 1000)

    # --- rows ---

    def insert(self, table: Table, rows: Sequence[Image], kind: str = "insert") -> None:
        """Rows of one INSERT."""
        staged = dict(table.rows)
        numbers = []
        for row in rows:
            self.numbered += 1
            staged[self.numbered] = table.computed(row)
            numbers.append(self.numbered)
        table.check(staged)
        table.rows = staged
        self.counter += 1
        self._begun()
        for number in numbers:
            self._row(kind, table, None, table.rows[number])
        self._ran(self.inserting(table, rows))

    def update(self, table: Table, changed: Mapping[int, Image], sql: str = "") -> None:
        """Rows of one UPDATE, each to its new image; ``sql`` if one statement changes them all."""
        changed = {number: table.computed(row) for number, row in changed.items()}
        staged = {**table.rows, **changed}
        table.check(staged)
        self._begun()
        changed = {number: row for number, row in changed.items() if row != table.rows[number]}
        before = {number: table.rows[number] for number in changed}
        table.rows = staged
        for number, row in changed.items():
            self._row("update", table, before[number], row)
            if not sql:
                self._ran(self.updating(table, before[number], row))
        if sql:
            self._ran(sql)

    def delete(self, table: Table, numbers: Sequence[int]) -> None:
        """Rows of one DELETE."""
        self._begun()
        for number in numbers:
            row = table.rows.pop(number)
            self._row("delete", table, row, None)
            self._ran(self.deleting(table, row))

    def merge(
        self, table: Table, rows: Sequence[Image], names: Sequence[str], sql: str, *, in_pairs: bool = False
    ) -> None:
        """Rows of one statement, each of which is new, or gives the columns ``names`` to the row that has its key.

        With ``in_pairs`` the log has a delete and an insert of a row that was there.
        """
        staged, known = (
            dict(table.rows),
            {table.key_of(row): number for number, row in table.rows.items() if table.key},
        )
        changes: list[tuple[Image | None, Image]] = []
        for row in rows:
            table.check({0: row})
            number = known.get(table.key_of(row))
            before = None if number is None else staged[number]
            if number is None:
                self.numbered += 1
                number = self.numbered
                if table.key:
                    known[table.key_of(row)] = number
            after = table.computed(row if before is None else before | {name: row[name] for name in names})
            staged[number] = after
            if after != before:
                changes.append((before, after))
        table.check(staged)
        table.rows = staged
        self._begun()
        for before, after in changes:
            if before is None or not in_pairs:
                self._row("insert" if before is None else "update", table, before, after)
            else:
                self._row("delete", table, before, None)
                self._row("insert", table, None, after)
        self._ran(sql)

    @contextmanager
    def transacted(self) -> Iterator[None]:
        """Several statements in one transaction."""
        self._begun()
        self.is_open = True
        self._ran("BEGIN")
        yield
        self._ran("COMMIT")
        self.is_open = False

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Statements that a session takes back to a savepoint: the log has none of them."""
        mark, rows = len(self.events), {name: dict(table.rows) for name, table in self.tables.items()}
        self._ran("SAVEPOINT taken")
        yield
        self._ran("ROLLBACK TO SAVEPOINT taken")
        del self.events[mark:]
        for name, table in self.tables.items():
            table.rows = rows[name]

    def _begun(self) -> None:
        """A statement is a transaction of its own, unless one is open."""
        if not self.is_open:
            self.transaction += 1

    def read(self, table: Table, *, again: bool = False) -> None:
        """Rows of a full load: no statement, and not in the binlog."""
        for row in table.rows.values():
            self._row("read", table, None, row, again=again)

    def control(self, kind: str, table: Table) -> None:
        """What a capture does to its target before it loads a table: drop, create or truncate."""
        self._row(kind, table, None, None)

    def _row(
        self, kind: str, table: Table, before: Image | None, after: Image | None, *, again: bool = False
    ) -> None:
        self.counter += 1
        shape = {one.name: table.shape[one.name] for one in self.sent(table).columns}
        before, after = (
            None if row is None else {name: row[name] for name in shape} for row in (before, after)
        )
        self.events.append(
            Event(
                len(self.events) + 1, self.time, self.counter, kind, before, after, tuple(shape), None, shape, table.key, table.database, table.name, again, self.transaction, table.identity,
                self.within, self.server,
            )
        )  # fmt: skip

    def sent(self, table: Table) -> Table:
        """A table with the columns that its log tells of."""
        return table

    # --- statements on rows, in SQL ---

    def inserting(self, table: Table, rows: Sequence[Image]) -> str:
        """INSERT of some rows."""
        listed = ", ".join(f"({', '.join(_literals(table, row))})" for row in rows)
        names = ", ".join(self.quoted(one.name) for one in table.given)
        return f"INSERT INTO {self.full_name(table)} ({names}) VALUES {listed}"

    def merging(self, table: Table, rows: Sequence[Image], names: Sequence[str]) -> str:
        """INSERT of some rows, which gives some columns to those that are there."""
        changes = ", ".join(f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in names)
        return f"{self.inserting(table, rows)} ON DUPLICATE KEY UPDATE {changes}"

    def updating(self, table: Table, before: Image, row: Image) -> str:
        """UPDATE of one row."""
        changes = ", ".join(
            f"{self.quoted(one.name)} = {literal(one.type, row[one.name])}" for one in table.given
        )
        return f"UPDATE {self.full_name(table)} SET {changes} WHERE {self.condition(table, before)}"

    def deleting(self, table: Table, row: Image) -> str:
        """DELETE of one row."""
        return f"DELETE FROM {self.full_name(table)} WHERE {self.condition(table, row)} LIMIT 1"

    def condition(self, table: Table, row: Image) -> str:
        """What chooses one row: its key, or all of it."""
        names = table.key or tuple(one.name for one in table.columns)
        return " AND ".join(
            f"{self.quoted(name)} <=> {literal(table.column(name).type, row[name])}" for name in names
        )

    def full_name(self, table: Table) -> str:
        """A table's name with its database's."""
        return f"{self.quoted(table.database)}.{self.quoted(table.name)}"

    def quoted(self, name: str) -> str:
        """A name in SQL."""
        return f"`{name}`"

    # --- statements ---

    def alter(self, name: Name, clauses: Sequence[Clause], sql: str, named: Name | None = None) -> None:
        """ALTER TABLE."""
        table = self.table(name)
        altered = table.altered(clauses, strict=self.strict)
        self.by_server |= any(
            not one.nullable and one.default is not None and table.has(one.name)
            and any(row[table.column(one.name).name] is None for row in table.rows.values())
            for one in altered.columns
        )  # fmt: skip
        self.tables[self.name(*name)] = altered
        self._statement("alter", sql, named or name, name)

    def create(
        self, name: Name, columns: Sequence[Column], key: tuple[str, ...], sql: str, *, guarded: bool = False
    ) -> None:
        """CREATE TABLE."""
        stored = self.name(*name)
        if stored in self.tables and not guarded:
            raise RefusedError(f"{name} exists")
        solid = tuple(replace(one, nullable=one.nullable and one.name not in key) for one in columns)
        self.tables.setdefault(stored, Table(*stored, solid, key))
        self._statement("create", sql, name, name)

    def create_like(self, name: Name, like: Name, sql: str) -> None:
        """CREATE TABLE ... LIKE."""
        known = self.table(like)
        self.create(name, known.columns, known.key, sql)
        self.table(name).parts = known.parts

    def copy(self, name: Name, into: Name) -> None:
        """Copy the rows of a table into one with more columns, or others: an online schema tool's INSERT."""
        old, new = self.table(name), self.table(into)
        rows: list[Image] = []
        for row in old.rows.values():
            found: Image = {}
            for column in new.columns:
                if not old.has(column.name):
                    found[column.name] = column.filler()
                    continue
                known = old.column(column.name)
                found[column.name] = convert(row[known.name], known.type, column.type)
            rows.append(found)
        if rows:
            self.insert(new, rows)

    def drop(self, names: Sequence[Name], sql: str) -> None:
        """DROP TABLE."""
        for name in names:
            self.table(name)
        self._statement("drop", sql, names[0], names[0])
        for name in names:
            del self.tables[self.name(*name)]

    def rename(self, pairs: Sequence[tuple[Name, Name]], sql: str, kind: str = "rename") -> None:
        """RENAME TABLE: its pairs apply one after the other."""
        tables = dict(self.tables)
        for old, new in pairs:
            if self.name(*old) not in tables or self.name(*new) in tables:
                raise RefusedError(f"{old} to {new}")
            stored = self.name(*new)
            tables[stored] = replace(tables.pop(self.name(*old)), database=stored[0], name=stored[1])
        self.tables = tables
        self._statement(kind, sql, pairs[0][0], pairs[0][0])

    def repartition(self, changed: Mapping[Name, Table], sql: str) -> None:
        """ALTER TABLE of a table's partitions, which may take rows away or bring some: the log has none of them."""
        self.tables |= {self.name(*name): table for name, table in changed.items()}
        first = next(iter(changed))
        self._statement("alter", sql, first, first)

    def truncate(self, name: Name, sql: str) -> None:
        """TRUNCATE TABLE."""
        self.transaction += 1
        self.table(name).rows.clear()
        self._statement("truncate", sql, name, name)

    def drop_database(self, database: str, sql: str) -> None:
        """DROP DATABASE with all its tables."""
        stored = database.lower() if self.lower else database
        self.tables = {name: table for name, table in self.tables.items() if name[0] != stored}
        self._statement("query", sql, (database, ""), (database, ""))

    def relabel(self, database: str, sql: str, kind: Type, became: Mapping[str, str]) -> None:
        """ALTER TYPE of an enumeration: columns of it have other labels."""
        self.tables = {name: table.retyped(kind, became) for name, table in self.tables.items()}
        self.nothing(database, sql)

    def nothing(self, database: str, sql: str) -> None:
        """A statement that changes no table."""
        self._statement("query", sql, (database, ""), (database, ""))

    def _statement(self, kind: str, sql: str, named: Name, about: Name) -> None:
        """Log a statement under the table that its message names; CURRENT_TIMESTAMP is the event's second."""
        self.at_whole_second()
        self.counter += 1
        known = self.tables.get(self.name(*about))
        shape = known.shape if known else {}
        key = known.key if known else ()
        self.events.append(
            Event(
                len(self.events) + 1, self.time, self.counter, kind, None, None, tuple(shape), sql, shape, key,
                named[0], named[1] or None, transaction=self.transaction, within=self.within, server=self.server,
            )
        )  # fmt: skip
        self._ran(sql)
        self.at_whole_second()

    def _ran(self, sql: str) -> None:
        self.script.append((self.time // 1000, sql))

    def known(self) -> Iterator[Table]:
        """All tables."""
        yield from self.tables.values()


def _literals(table: Table, row: Image) -> list[str]:
    return [literal(one.type, row[one.name]) for one in table.given]
