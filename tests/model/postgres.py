"""PostgreSQL as a source: its statements, its rules for keys, and what its log tells.

The log has no statements, but what the tables' rows are afterwards; a TRUNCATE is in it once for each table.  Keys are checked
at the end of a statement where they are DEFERRABLE.  A table tells of a row before a change what its REPLICA IDENTITY says.
The model's databases are schemas here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from ingest.change import Image
from tests.formats.one_history.history import Event
from tests.model import postgres_types, values
from tests.model.histories import ROWS, Writer
from tests.model.postgres_types import ADDED, CHANGING, PostgresType
from tests.model.rows import History
from tests.model.source import Source
from tests.model.tables import Clause, Column, Default, Name, Table
from tests.model.values import RefusedError, Type, literal

TOLD = {
    "truncate": 3,
    "truncate_several": 3,
    "add_column": 9,
    "add_generated": 3,
    "drop_column": 6,
    "rename_column": 6,
    "set_default": 3,
    "modify": 4,
    "widen": 3,
    "several": 4,
    "key_grows": 3,
    "rename_table": 1,
    "rotate": 1,
    "recreate": 3,
    "drop_database": 2,
    "label_added": 4,
    "label_renamed": 4,
    "set_schema": 2,
    "nothing": 3,
}
"""Statements, and how likely each is."""
ROW_STEPS = {
    **{name: 3 * weight for name, weight in ROWS.items()},
    "upsert": 9,
    "transaction": 6,
    "interleaved": 6,
    "shift": 5,
    "swap": 5,
}
"""What changes rows, and how likely it is."""
STEPS = {**ROW_STEPS, **TOLD}


class PostgresSource(Source):
    """A server of PostgreSQL."""

    def quoted(self, name: str) -> str:
        """A name in SQL."""
        return f'"{name}"'

    def deleting(self, table: Table, row: Image) -> str:
        """DELETE of one row; without a key several may be alike."""
        name = self.full_name(table)
        return f"DELETE FROM {name} WHERE ctid = (SELECT ctid FROM {name} WHERE {self.condition(table, row)} LIMIT 1)"

    def condition(self, table: Table, row: Image) -> str:
        """What chooses one row: its key, or all of it."""
        names = table.key or tuple(one.name for one in table.columns)
        terms = []
        for name in names:
            kind, text = table.column(name).type, row[name]
            value = "NULL" if text is None else f"{literal(kind, text)}::{kind.declared}"
            terms.append(f"{self.quoted(name)} IS NOT DISTINCT FROM {value}")
        return " AND ".join(terms)

    def sent(self, table: Table) -> Table:
        """A table without its generated columns, which `pgoutput` leaves out ("Generated Column Replication" of PostgreSQL 18)."""
        return replace(table, columns=tuple(table.given)) if table.given != [*table.columns] else table

    def merge(
        self, table: Table, rows: Sequence[Image], names: Sequence[str], sql: str, *, in_pairs: bool = False
    ) -> None:
        """INSERT ... ON CONFLICT: of one key it takes one row, and a key that is checked late is none to it."""
        late = table.deferrable and self.server == "PostgreSQL"
        if late or len({table.key_of(row) for row in rows}) < len(rows):
            raise RefusedError("a row cannot be affected twice, or no arbiter")
        super().merge(table, rows, names, sql, in_pairs=in_pairs)

    def merging(self, table: Table, rows: Sequence[Image], names: Sequence[str]) -> str:
        """INSERT of some rows, which gives some columns to those that are there."""
        changes = ", ".join(f"{self.quoted(name)} = excluded.{self.quoted(name)}" for name in names)
        key = ", ".join(map(self.quoted, table.key))
        return f"{self.inserting(table, rows)} ON CONFLICT ({key}) DO UPDATE SET {changes}"

    def interleave(self, first: int, second: int, end: int, random: Random) -> None:
        """Give the events of two transactions, ``first`` and ``second`` up to ``end``, the places that they have in the log.

        They come in the order of commits. Rows of one key have a lock, so that transactions with a row in common stay apart.
        """
        events = self.events
        touched = [
            {place for event in events[begin:until] for place in _touched(event)}
            for begin, until in ((first, second), (second, end))
        ]
        if touched[0] & touched[1] or second in (first, end):
            return
        numbers = sorted(random.sample(range(first, end), second - first))
        others = [number for number in range(first, end) if number not in numbers]
        committed = numbers[-1] + 1
        for place, number in zip(range(first, end), [*numbers, *others], strict=True):
            late = place >= second and number + 1 < committed
            events[place] = events[place]._replace(logged=number + 1, committed=committed if late else 0)

    def truncate_all(self, tables: Sequence[Table], sql: str) -> None:
        """TRUNCATE of several tables: one statement, and in the log a mark for each."""
        self.transaction += 1
        for number, table in enumerate(tables):
            table.rows.clear()
            self._statement("truncate", sql if number == 0 else "", *[(table.database, table.name)] * 2)


def _text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _touched(event: Event) -> Iterator[tuple[str | None, ...]]:
    """The rows that an event locks, each by its table and its key, or by all of it."""
    for row in (event.before, event.after):
        if row is not None:
            yield event.table, *(row[name] for name in event.keys or event.columns)


class PostgresWriter(Writer):
    """Draws histories of PostgreSQL."""

    source: PostgresSource
    WIDER = postgres_types.WIDER
    COPIED = ("smallint", "integer", "bigint", "numeric", "varchar", "text", "date", "timestamp", "uuid")
    WITHIN, SERVER = "shop", "PostgreSQL"
    WHOLE: tuple[str, ...] = ("integer", "bigint")  # types of a key that may grow by one
    keys = 0
    feeling: PostgresType  # an enumeration with its labels of now
    has_other = False  # a second schema

    def new_source(self) -> Source:
        """A server whose names have their letter case."""
        return PostgresSource(
            time=1_712_345_678_000 + self.number % 1000 * 100_000,
            hurried=self.life.hurried,
            within=self.WITHIN,
            server=self.SERVER,
        )

    def write(self) -> History:
        """A history that begins with the type of its own."""
        self.feeling = postgres_types.read(CHANGING)
        self.create_type()
        if self.random.random() < 0.5:
            self.source.events.clear()  # it is older than the capture
        return super().write()

    def create_type(self) -> None:
        """CREATE TYPE of an enumeration, in the schema of the tables."""
        if CHANGING in self.life.types:
            labels = ", ".join(map(_text_literal, self.feeling.labels))
            self.source.nothing(self.database, f"CREATE TYPE {self.named(CHANGING)} AS ENUM ({labels})")

    def read_type(self, declared: str) -> Type:
        """A declared type; an enumeration has the labels of now."""
        return self.feeling if declared == CHANGING else postgres_types.read(declared)

    # --- SQL ---

    def quoted(self, name: str) -> str:
        """A name, which without quotes would be in lower case."""
        bare = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and self.random.random() < 0.5
        return name if bare else f'"{name}"'

    def definition(self, column: Column) -> str:
        """A column as CREATE and ADD write it."""
        parts = [self.quoted(column.name), self.cased(column.type.declared)]
        if column.made_of:
            return " ".join([*parts, f"GENERATED ALWAYS AS ({self.quoted(column.made_of)}) STORED"])
        parts += [] if column.nullable else ["NOT NULL"]
        if column.name == "id" and column.type.name in self.WHOLE and self.random.random() < 0.3:
            parts.append("GENERATED BY DEFAULT AS IDENTITY")
        if column.default is not None:
            parts.append(f"DEFAULT {column.default.sql}")
        return " ".join(parts)

    def position(self, _table: Table) -> str | None:
        """New columns are the last."""
        return None

    def create(self, name: str) -> Table:
        """CREATE TABLE, with what its log shall tell."""
        table = super().create(name)
        table.constraint, table.deferrable = f"k{self.keys}", self.keys % 2 == 1
        return self.identified(table)

    def key_clause(self, keys: tuple[str, ...]) -> str:
        """PRIMARY KEY with a name of its own, which stays when the table is renamed."""
        self.keys += 1
        deferred = " DEFERRABLE" if self.keys % 2 else ""
        return f"CONSTRAINT k{self.keys} {super().key_clause(keys)}{deferred}"

    def identified(self, table: Table) -> Table:
        """A table whose log tells enough of its rows: without a key that is not deferrable it must be all."""
        table.identity = "full" if table.deferrable or self.random.random() < 0.5 else "default"
        if table.identity == "full":
            sql = f"ALTER TABLE {self.named(table.name)} REPLICA IDENTITY FULL"
            self.source.alter((self.database, table.name), [], sql)
        return self.source.table((self.database, table.name))

    def alter(self, table: Table, clauses: list[Clause]) -> None:
        """ALTER TABLE, and a row that shows what it did, if one shall."""
        super().alter(table, clauses)
        if self.life.shown:
            self.show(self.source.table((table.database, table.name)))

    def show(self, table: Table) -> None:
        """A row of a table, for which another makes room if all keys are taken."""
        for _ in range(20):
            with contextlib.suppress(RefusedError):
                self.insert(table)
                return
            if table.rows:
                self.source.delete(table, [min(table.rows)])

    # --- rows ---

    def key_value(self, column: Column) -> str:
        """One of few values, so that keys come back."""
        if column.type.name in ("smallint", "integer", "bigint"):
            return str(self.random.randint(1, 9))
        if column.type.name == "numeric":
            return f"{self.random.randint(1, 9)}.00"
        if column.type.name == "uuid":
            return f"00000000-0000-4000-8000-00000000000{self.random.randint(0, 9)}"
        if column.type.name in ("varchar", "text"):
            return self.random.choice(("A", "a", "b", "ä", "1", "01", "x"))
        return values.value(column.type, self.random)

    def interleaved(self) -> None:
        """Two sessions at once, each of which is sent when it commits."""
        first = len(self.source.events)
        self.transaction()
        second = len(self.source.events)
        self.transaction()
        self.source.interleave(first, second, len(self.source.events), self.random)

    def shift(self) -> None:
        """UPDATE t SET id = id + 1: rows that move onto each other's keys."""
        table, name = self.movable()
        new = {number: {**row, name: str(int(row[name] or 0) + 1)} for number, row in table.rows.items()}
        column = self.source.quoted(name)
        self.source.update(table, new, f"UPDATE {self.source.full_name(table)} SET {column} = {column} + 1")

    def swap(self) -> None:
        """Two rows that change their keys with each other, by one statement."""
        table, name = self.movable()
        if len(table.rows) < 2 or len(table.key) > 1:
            raise RefusedError("no two rows")
        a, b = self.random.sample(list(table.rows), 2)
        keys = table.rows[a][name], table.rows[b][name]
        new = {a: {**table.rows[a], name: keys[1]}, b: {**table.rows[b], name: keys[0]}}
        column = self.source.quoted(name)
        self.source.update(
            table,
            new,
            f"UPDATE {self.source.full_name(table)} SET {column} = CASE {column} WHEN {keys[0]} THEN {keys[1]} "
            f"ELSE {keys[0]} END WHERE {column} IN ({keys[0]}, {keys[1]})",
        )

    def movable(self) -> tuple[Table, str]:
        """A table whose keys may meet within a statement, and a whole number of its key."""
        table = self.some_table()
        names = [name for name in table.key if table.column(name).type.name in self.WHOLE]
        if not table.deferrable or not names:
            raise RefusedError("no key that is checked late")
        return table, names[0]

    # --- statements ---

    def label_added(self) -> None:
        """ALTER TYPE ... ADD VALUE, at any place among the others."""
        free = [label for label in ADDED if label not in self.feeling.labels]
        if not free:
            raise RefusedError("no label is free")
        label, labels = self.random.choice(free), list(self.feeling.labels)
        where, beside = self.random.choice(("", "BEFORE", "AFTER")), self.random.choice(labels)
        labels.insert(labels.index(beside) + (where == "AFTER") if where else len(labels), label)
        place = f" {where} {_text_literal(beside)}" if where else ""
        guard = self.maybe("IF NOT EXISTS ")
        self.relabel(f"ADD VALUE {guard}{_text_literal(label)}{place}", labels, {})

    def label_renamed(self) -> None:
        """ALTER TYPE ... RENAME VALUE: all rows show the new name at once."""
        free = [label for label in ADDED if label not in self.feeling.labels]
        if not free:
            raise RefusedError("no label is free")
        old, new = self.random.choice(self.feeling.labels), self.random.choice(free)
        labels = [new if label == old else label for label in self.feeling.labels]
        self.relabel(f"RENAME VALUE {_text_literal(old)} TO {_text_literal(new)}", labels, {old: new})

    def relabel(self, clause: str, labels: Sequence[str], became: Mapping[str, str]) -> None:
        """ALTER TYPE of the enumeration, which a column has from now on, if none has."""
        users = [one for one in self.source.known() if self.has_feeling(one)]
        if not users:
            table = self.some_table()
            column = Column(self.free_name(table), self.feeling)
            self.alter(table, [Clause("add", column=column)])
            return
        self.feeling = postgres_types.labelled(labels)
        sql = f"ALTER TYPE {self.named(CHANGING)} {clause}"
        self.source.relabel(self.database, sql, self.feeling, became)
        for table in users if self.life.shown else ():
            self.show(self.source.table((table.database, table.name)))

    def has_feeling(self, table: Table) -> bool:
        """True if a table here has a column of the enumeration."""
        return table.database == self.database and any(one.type.declared == CHANGING for one in table.columns)

    def set_schema(self) -> None:
        """ALTER TABLE ... SET SCHEMA, away or back; nothing else is done to a table that is away."""
        away = [one for one in self.source.known() if one.database != self.database]
        other = f"{self.database}_old"
        if not away and not self.has_other:
            self.source.nothing(self.database, f"CREATE SCHEMA {self.quoted(other)}")
            self.has_other = True
        table = self.random.choice([*away, self.some_table()])
        to = other if table.database == self.database else self.database
        name = f"{self.quoted(table.database)}.{self.quoted(table.name)}"
        names: list[tuple[Name, Name]] = [((table.database, table.name), (to, table.name))]
        self.source.rename(names, f"ALTER TABLE {name} SET SCHEMA {self.quoted(to)}", "alter")
        self.history.doubt(self.source.table((to, table.name)), "renamed")

    def truncate_several(self) -> None:
        """TRUNCATE a, b."""
        tables = [one for one in self.source.known() if one.database == self.database]
        self.random.shuffle(tables)
        listed = ", ".join(self.named(one.name) for one in tables)
        self.source.truncate_all(tables, f"TRUNCATE {self.maybe('TABLE ')}{listed}")

    def renamed(self, _table: Table, column: Column, to: str) -> Clause:
        """RENAME COLUMN, a statement by itself."""
        names = self.column_name(column.name), self.quoted(to)
        return Clause(
            "rename", column.name, to=to, text=f"RENAME {self.maybe('COLUMN ')}{names[0]} TO {names[1]}"
        )

    def modified(self, column: Column, kind: Type) -> Clause:
        """ALTER COLUMN ... TYPE; a cast that is no assignment needs USING, and the default goes before."""
        if not postgres_types.has_cast(column.type, kind):
            raise RefusedError("no such cast")
        if self.life.shown and column.type.logical == kind.logical:
            raise RefusedError("neither a message nor a row tells of it")
        name = self.column_name(column.name)
        new = replace(column, type=kind, default=None)
        using = f" USING {name}::{kind.declared}"
        drop = f"ALTER COLUMN {name} DROP DEFAULT, " if column.default is not None else ""
        text = f"{drop}ALTER COLUMN {name} {self.maybe('SET DATA ')}TYPE {self.cased(kind.declared)}{using}"
        return Clause("change", column.name, new, text=text)

    def several(self) -> None:
        """A statement of several clauses, which all refer to the table before it."""
        table = self.some_table()
        makers = (lambda: self.added(table), lambda: self.dropped(table), lambda: self.added(table))
        self.alter(table, [self.random.choice(makers)() for _ in range(self.random.randint(2, 3))])

    def key_grows(self) -> None:
        """The key gets a column more, or loses one."""
        table = self.some_table()
        if not table.key or table.deferrable:
            raise RefusedError("no key")
        column = self.some_column(table)
        if len(table.key) > 1 and self.random.random() < 0.5:
            keys = table.key[:-1]
        elif column.type.declared in postgres_types.KEYS:
            keys = (*table.key, column.name)
        else:
            raise RefusedError("no key type")
        listed = ", ".join(map(self.quoted, keys))
        constraint = table.constraint
        clauses = [
            Clause("drop_key", text=f"DROP CONSTRAINT {constraint}"),
            Clause("add_key", keys=keys, text=f"ADD CONSTRAINT {constraint} PRIMARY KEY ({listed})"),
        ]
        self.alter(table, clauses)

    def unread_default(self, column: Column) -> Default:
        """A default whose value the statement does not show."""
        if column.type.name not in ("smallint", "integer", "bigint", "numeric", "double precision"):
            raise RefusedError("no expression is modelled")
        return Default("(1 + 2)", "3.00" if column.type.numbers else "3", known=False)

    def rename(self, pairs: list[tuple[str, str]]) -> None:
        """Other names for tables, by one statement for each."""
        for old, new in pairs:
            sql = self.renaming(old, new)
            names: list[tuple[Name, Name]] = [((self.database, old), (self.database, new))]
            self.source.rename(names, sql, "alter")
            self.history.doubt(self.source.table((self.database, new)), "renamed")

    def renaming(self, old: str, new: str) -> str:
        """ALTER TABLE ... RENAME TO."""
        return self.dressed(f"ALTER TABLE {self.named(old)} RENAME TO {self.quoted(new)}")

    def drop_database(self) -> None:
        """DROP SCHEMA ... CASCADE, and all again."""
        names = [one.name for one in self.source.known() if one.database == self.database]
        if any(
            one.type.declared == CHANGING
            for table in self.source.known()
            for one in table.columns
            if table.database != self.database
        ):
            raise RefusedError("a column elsewhere would go with its type")
        name = self.quoted(self.database)
        self.source.drop_database(self.database, f"DROP SCHEMA {name} CASCADE")
        self.source.nothing(self.database, f"CREATE SCHEMA {name}")
        self.create_type()
        for table in names:
            self.create(table)

    def nothing(self) -> None:
        """A statement that changes no row."""
        table = self.some_table()
        name = self.named(table.name)
        sql = self.random.choice(
            (
                f"ANALYZE {name}",
                f"COMMENT ON TABLE {name} IS 'x'",
                f"CREATE INDEX ON {name} ({self.quoted(table.columns[0].name)})",
                f"ALTER TABLE {name} SET (fillfactor = 70)",
                f"GRANT SELECT ON {name} TO PUBLIC",
            )
        )
        self.source.nothing(self.database, sql)
