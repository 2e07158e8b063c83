"""Random histories of a source database: what applications and operators do to its tables.

Names come from few, so that tables, columns and keys are used again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

from tests.formats.one_history.history import Event
from tests.model import values
from tests.model.parts import _NO_KEYS, NAMES, NOISE, TABLES, WIDER, Life
from tests.model.rows import History, Rows
from tests.model.source import Source
from tests.model.tables import Clause, Column, Default, Part, Table
from tests.model.values import RefusedError, literal

ROWS = {"insert": 8, "update": 8, "delete": 3, "move": 2}
SURE = {
    **ROWS,
    "upsert": 3,
    "replace": 1,
    "transaction": 3,
    "truncate": 1,
    "add_column": 3,
    "drop_column": 2,
    "rename_column": 2,
    "change_case": 1,
    "set_default": 1,
    "key_grows": 1,
    "key_leaves": 1,
    "key_widened": 1,
    "rename_table": 1,
    "swap_tables": 1,
    "recreate": 1,
    "nothing": 1,
    "widen": 1,
    "modify": 1,
    "reload": 1,
    "add_unread": 1,
    "drop_database": 1,
    "rotate": 1,
    "online_change": 1,
    "swap_names": 1,
    "several": 1,
    "key_renamed": 1,
    "add_generated": 1,
    "partition": 1,
    "drop_partition": 1,
    "empty_partition": 1,
    "exchange_partition": 1,
}
"""The steps of which nothing may go wrong, and how likely each is."""

NAMING = {
    **ROWS,
    **dict.fromkeys(
        (
            "truncate",
            "add_column",
            "drop_column",
            "rename_column",
            "recreate",
            "rotate",
            "widen",
            "key_renamed",
        ),
        1,
    ),
    "rename_table": 3,
    "swap_tables": 5,
}
"""The steps of a source whose tables get other names by day and by night."""


def history(number: int, life: Life, seed: str = "") -> History:
    """The history of a number, of the database that the life is one of."""
    return (life.writer or Writer)(number, life, Random(f"{seed}{number}")).write()


class Writer(Rows):
    """Draws one history, as MySQL would have it."""

    WIDER = WIDER
    COPIED: tuple[str, ...] = (*values.INTEGERS, "decimal", "varchar", "date", "datetime")
    """Types of which columns are generated: the same in every session."""

    def __init__(self, number: int, life: Life, random: Random) -> None:
        self.random, self.life, self.number = random, life, number
        self.source = self.new_source()
        self.history = History(number, self.source)
        self.database = f"h{number}"

    def new_source(self) -> Source:
        """A server; one in three is not strict."""
        return Source(
            self.life.lower,
            1_712_345_678_000 + self.number % 1000 * 100_000,
            hurried=self.life.hurried,
            strict=self.number % 3 != 2,
        )

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
            getattr(self, step)()

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

    # --- statements ---

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
        """Run an ALTER, noting what no message shows of its outcome."""
        sql = ", ".join(self.clause(one) for one in clauses)
        before = table
        name = (table.database, table.name)
        self.source.alter(name, clauses, self.dressed(f"ALTER TABLE {self.named(table.name)} {sql}"))
        self.doubtful(before, self.source.table(name), clauses)

    def some_column(self, table: Table, *, key: bool = False) -> Column:
        """A column that is not of the key, or one that is."""
        found = [one for one in table.columns if (one.name in table.key) == key]
        if not found:
            raise RefusedError("no such column")
        return self.random.choice(found)

    def drop_column(self) -> None:
        table = self.some_table()
        self.alter(table, [self.dropped(table)])

    def dropped(self, table: Table) -> Clause:
        column = self.some_column(table)
        return Clause(
            "drop", column.name, text=f"DROP {self.maybe('COLUMN ')}{self.column_name(column.name)}"
        )

    def rename_column(self) -> None:
        table = self.some_table()
        self.alter(table, [self.renamed(table, self.some_column(table), self.free_name(table))])

    def renamed(self, table: Table, column: Column, to: str) -> Clause:
        """RENAME COLUMN, or CHANGE with the same definition."""
        old = self.column_name(column.name)
        if self.life.fixed and self.life.fixed.get(to) != column.type.declared:
            raise RefusedError("a name of another type")
        if self.random.random() < 0.5:
            return Clause("rename", column.name, to=to, text=f"RENAME COLUMN {old} TO {self.quoted(to)}")
        new = replace(column, name=to)
        return Clause(
            "change", column.name, new, text=f"CHANGE {self.maybe('COLUMN ')}{old} {self.definition(new)}"
        )

    def change_case(self) -> None:
        """A rename that changes a letter's case alone."""
        table = self.some_table()
        column = self.some_column(table)
        self.alter(table, [self.renamed(table, column, column.name.swapcase())])

    def swap_names(self) -> None:
        table = self.some_table()
        found = [one for one in table.columns if one.name not in table.key]
        if len(found) < 2:
            raise RefusedError("one column")
        a, b = self.random.sample(found, 2)
        self.alter(table, [self.renamed(table, a, b.name), self.renamed(table, b, a.name)])

    def modify(self) -> None:
        table = self.some_table()
        self.alter(table, [self.modified(self.some_column(table), self.type_of(self.life.types))])

    def widen(self) -> None:
        """A MODIFY after which every value is what it was."""
        table = self.some_table()
        column = self.some_column(table)
        wider = [one for one in self.WIDER.get(column.type.declared, ()) if one in self.life.types]
        if not wider:
            raise RefusedError("nothing is wider")
        self.alter(table, [self.modified(column, self.type_of(wider))])

    def modified(self, column: Column, kind: values.Type) -> Clause:
        default = None
        if kind.name == "timestamp" and not column.nullable:
            default = self.now(replace(column, type=kind))
        nullable = column.nullable and (self.source.strict or self.random.random() < 0.6)
        new = replace(column, type=kind, default=default, nullable=nullable)
        if self.random.random() < 0.5:
            return Clause(
                "change", column.name, new, text=f"MODIFY {self.maybe('COLUMN ')}{self.definition(new)}"
            )
        name = self.column_name(column.name)
        return Clause("change", column.name, new, text=f"CHANGE {name} {self.definition(new)}")

    def set_default(self) -> None:
        """ALTER COLUMN ... SET DEFAULT: rows that are there keep what they have."""
        table = self.some_table()
        column = self.some_column(table)
        if not column.type.has_default:
            raise RefusedError("no literal default")
        text = values.value(column.type, self.random)
        default = Default(literal(column.type, text), text)
        sql = f"ALTER COLUMN {self.column_name(column.name)} SET DEFAULT {default.sql}"
        self.alter(table, [Clause("default", column.name, replace(column, default=default), text=sql)])

    def several(self) -> None:
        """A statement of several clauses, which all refer to the table before it."""
        table = self.some_table()
        makers: list[Callable[[], Clause]] = [
            lambda: self.added(table),
            lambda: self.dropped(table),
            lambda: self.renamed(table, self.some_column(table), self.random.choice(NAMES)),
            lambda: Clause("nothing", text=self.random.choice(NOISE)),
        ]
        self.alter(table, [self.random.choice(makers)() for _ in range(self.random.randint(2, 3))])

    def key_grows(self) -> None:
        """The key gets a column more, or loses one."""
        table = self.some_table()
        if not table.key:
            raise RefusedError("no key")
        if len(table.key) > 1 and self.random.random() < 0.5:
            keys = table.key[:-1]
        else:
            keys = (*table.key, self.some_column(table).name)
        listed = ", ".join(map(self.quoted, keys))
        clauses = [
            Clause("drop_key", text="DROP PRIMARY KEY"),
            Clause("add_key", keys=keys, text=f"ADD PRIMARY KEY ({listed})"),
        ]
        if any(table.column(name).type.name in _NO_KEYS for name in keys):
            raise RefusedError("no key type")
        self.alter(table, clauses)

    def key_leaves(self) -> None:
        """DROP PRIMARY KEY alone."""
        self.alter(self.some_table(), [Clause("drop_key", text="DROP PRIMARY KEY")])

    def key_returns(self) -> None:
        """ADD PRIMARY KEY alone, to a table that has lost its key: rows may have come meanwhile that the key did not tell apart."""
        table = self.some_table()
        names = [one.name for one in table.columns if one.name in ("id", "day", "uid", "order_id")]
        if not names:
            raise RefusedError("no column of a key")
        keys = tuple(names[: self.random.randint(1, len(names))])
        listed = ", ".join(map(self.quoted, keys))
        self.alter(table, [Clause("add_key", keys=keys, text=f"ADD PRIMARY KEY ({listed})")])

    def key_renamed(self) -> None:
        table = self.some_table()
        to = self.random.choice(("id", "uid", "order_id"))
        self.alter(table, [self.renamed(table, self.some_column(table, key=True), to)])

    def key_widened(self) -> None:
        table = self.some_table()
        column = self.some_column(table, key=True)
        self.alter(table, [self.modified(column, self.type_of(self.life.keys))])

    def free_name(self, table: Table) -> str:
        free = [name for name in NAMES if not table.has(name)]
        if not free:
            raise RefusedError("no name is free")
        return self.random.choice(free)

    def rotate(self) -> None:
        """RENAME TABLE away and CREATE it again: log rotation."""
        table = self.some_table()
        self.rename([(table.name, f"{table.name}_{self.random.randint(1, 3)}")])
        self.create(table.name)

    def rename_table(self) -> None:
        table = self.some_table()
        self.rename([(table.name, self.random.choice((*TABLES, "old")))])

    def swap_tables(self) -> None:
        tables = [one.name for one in self.source.known() if not one.name.startswith("_")]
        if len(tables) < 2:
            raise RefusedError("one table")
        a, b = self.random.sample(tables, 2)
        self.rename([(a, "swapping"), (b, a), ("swapping", b)])

    def rename(self, pairs: list[tuple[str, str]]) -> None:
        named = [(self.named(old), self.named(new)) for old, new in pairs]
        if len(pairs) == 1 and self.random.random() < 0.5:
            sql, kind = f"ALTER TABLE {named[0][0]} RENAME TO {named[0][1]}", "alter"
        else:
            sql, kind = "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in named), "rename"
        names = [((self.database, old), (self.database, new)) for old, new in pairs]
        self.source.rename(names, self.dressed(sql), kind)
        for _, new in names:
            if self.source.name(*new) in self.source.tables:
                self.history.doubt(self.source.table(new), "renamed")

    def recreate(self) -> None:
        table = self.some_table()
        exists = self.maybe("IF EXISTS ")
        self.source.drop([(table.database, table.name)], f"DROP TABLE {exists}{self.named(table.name)}")
        self.create(table.name)

    def drop_database(self) -> None:
        names = [one.name for one in self.source.known()]
        self.source.drop_database(self.database, f"DROP DATABASE {self.quoted(self.database)}")
        self.source.nothing(self.database, f"CREATE DATABASE {self.quoted(self.database)}")
        for name in names:
            if not name.startswith("_"):
                self.create(name)

    def nothing(self) -> None:
        one = self.some_table()
        table, column = self.named(one.name), self.quoted((one.key or tuple(one.shape))[0])
        makes = one.key and f"CREATE INDEX i{len(self.source.events)} ON {table} ({column})"
        others = (
            f"ANALYZE TABLE {table}",
            f"ALTER TABLE {table} COMMENT 'x'",
            "GRANT SELECT ON *.* TO 'reader'@'%'",
        )
        self.source.nothing(self.database, self.random.choice((makes or others[0], *others)))

    def add_generated(self) -> None:
        """ADD COLUMN ... GENERATED ALWAYS AS: rows that are there have its values, and no message says so."""
        table = self.some_table()
        column = self.column(self.free_name(table))
        bases = [one for one in table.given if one.type.name in self.COPIED]
        if self.life.fixed:
            bases = [one for one in bases if one.type == column.type]
        if not bases:
            raise RefusedError("no column to make it of")
        base = self.random.choice(bases)
        column = Column(column.name, base.type, made_of=base.name)
        self.alter(table, [Clause("add", column=column, position=self.position(table))])

    # --- partitions ---

    def partition(self) -> None:
        """PARTITION BY RANGE of a table that was whole, or other ranges; its rows stay."""
        table = self.some_table()
        if not table.key or table.column(table.key[0]).type.name not in values.INTEGERS:
            raise RefusedError("no number to divide it by")
        bounds = [*sorted(self.random.sample(range(2, 9), self.random.randint(1, 3))), None]
        parts = tuple(Part(f"p{number}", bound) for number, bound in enumerate(bounds))
        listed = ", ".join(one.sql() for one in parts)
        clause = f"PARTITION BY RANGE ({self.quoted(table.key[0])}) ({listed})"
        if table.parts and self.random.random() < 0.3:
            parts, clause = (), "REMOVE PARTITIONING"
        self.source.repartition(
            {(table.database, table.name): replace(table, parts=parts)},
            f"ALTER TABLE {self.named(table.name)} {clause}",
        )

    def drop_partition(self) -> None:
        """DROP PARTITION: its range is the next one's then."""
        table, part = self.some_part()
        if part == table.parts[-1]:
            raise RefusedError("the last one takes all others")
        self.empty(table, part, "DROP", [one for one in table.parts if one != part])

    def empty_partition(self) -> None:
        """TRUNCATE PARTITION."""
        table, part = self.some_part()
        self.empty(table, part, "TRUNCATE", table.parts)

    def empty(self, table: Table, part: Part, verb: str, parts: Sequence[Part]) -> None:
        """Take the rows of a partition away."""
        rows = {number: row for number, row in table.rows.items() if table.part_of(row) != part.name}
        changed = replace(table, rows=rows, parts=tuple(parts))
        sql = f"ALTER TABLE {self.named(table.name)} {verb} PARTITION {part.name}"
        self.source.repartition({(table.database, table.name): changed}, sql)
        self.history.doubt(changed, sql)

    def exchange_partition(self) -> None:
        """EXCHANGE PARTITION with a table that is like it, which gets its rows, and gives its own."""
        table, part = self.some_part()
        other = f"{table.name}_x"
        name, other_name = (table.database, table.name), (table.database, other)
        if not any(one.name == other for one in self.source.known()):
            self.source.create_like(
                other_name, name, f"CREATE TABLE {self.named(other)} LIKE {self.named(table.name)}"
            )
            whole = replace(self.source.table(other_name), parts=())
            self.source.repartition(
                {other_name: whole}, f"ALTER TABLE {self.named(other)} REMOVE PARTITIONING"
            )
        like = self.source.table(other_name)
        if like.parts or (like.columns, like.key) != (table.columns, table.key):
            raise RefusedError("tables have different definitions")
        if any(table.part_of(row) != part.name for row in like.rows.values()):
            raise RefusedError("a row does not match the partition")
        given = {number: row for number, row in table.rows.items() if table.part_of(row) == part.name}
        kept = {number: row for number, row in table.rows.items() if number not in given}
        sql = f"ALTER TABLE {self.named(table.name)} EXCHANGE PARTITION {part.name} WITH TABLE {self.named(other)}"
        changed = {name: replace(table, rows=kept | like.rows), other_name: replace(like, rows=given)}
        self.source.repartition(changed, sql)
        for one in changed.values():
            self.history.doubt(one, sql)

    def some_part(self) -> tuple[Table, Part]:
        """A partition of a table; one that has none gets some."""
        parted = [one for one in self.source.known() if one.parts]
        if not parted:
            self.partition()
            raise RefusedError("no partition")
        table = self.random.choice(parted)
        return table, self.random.choice(table.parts)

    def online_change(self) -> None:
        """A run of gh-ost or of pt-online-schema-change, as the binlog shows it."""
        table = self.some_table()
        ghost = self.random.random() < 0.5
        helper, old = (
            (f"_{table.name}_gho", f"_{table.name}_del")
            if ghost
            else (f"_{table.name}_new", f"_{table.name}_old")
        )
        name = (self.database, table.name)
        clauses = [self.random.choice((self.added, self.dropped))(table)]
        table.altered(clauses)  # a tool that fails leaves the table alone
        like = f"CREATE TABLE {self.named(helper)} LIKE {self.named(table.name)}"
        self.source.create_like((self.database, helper), name, like)
        sql = ", ".join(self.clause(one) for one in clauses)
        self.source.alter((self.database, helper), clauses, f"ALTER TABLE {self.named(helper)} {sql}")
        self.source.copy(name, (self.database, helper))
        pairs = [(table.name, old), (helper, table.name)]
        swap = "RENAME TABLE " + ", ".join(f"{self.named(a)} TO {self.named(b)}" for a, b in pairs)
        self.source.rename([((self.database, a), (self.database, b)) for a, b in pairs], swap)
        self.source.drop([(self.database, old)], f"DROP TABLE IF EXISTS {self.named(old)}")

    def reload(self) -> None:
        """The capture has lost changes of a table, so it is loaded again."""
        table = self.some_table()
        if self.life.keyed_reloads and not table.key:
            raise RefusedError("no key")
        way = self.random.choice(self.life.reloads)
        recent: list[Event] = []
        for event in reversed(self.source.events):
            if event.table != table.name or not event.row or event.kind == "read":
                break
            if way != "rows" or (event.kind != "delete" and not _moves(event)):
                recent.append(event)
        self.history.lost |= {one.number for one in recent if self.random.random() < 0.5}
        self.source.at_whole_second()
        for kind in {"rows": (), "drop": ("drop", "create"), "truncate": ("truncate",)}[way]:
            self.source.control(kind, table)
        self.source.read(table, again=True)
        self.source.at_whole_second()

    def doubtful(self, before: Table, after: Table, clauses: Iterable[Clause]) -> None:
        for clause in clauses:
            column = clause.column
            default = column.default if clause.action == "add" and column is not None else None
            if before.rows and default is not None and not default.known:
                self.history.doubt(after, f"default {default.sql}")
            if clause.action in ("change", "drop_key"):
                self.history.doubt(after, clause.text)


def _moves(event: Event) -> bool:
    """True for a change of the key."""
    before, after = event.before, event.after
    return bool(before and after and any(before[name] != after[name] for name in event.keys))


STEPS = (*SURE, "key_returns")
"""All that is drawn of MySQL."""
TYPING = {"modify", "widen", "key_widened"}
KEYING = {
    *("key_grows", "key_leaves", "key_returns", "key_renamed"),
    *("rotate", "rename_table", "swap_tables", "online_change"),
}
STATEMENTS = set(STEPS) - {*ROWS, "upsert", "replace", "transaction", "reload"}
"""Steps that change types, or keys and tables, and all that are statements."""
