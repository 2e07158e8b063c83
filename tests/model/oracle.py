"""Oracle as a source: its statements and its rules for keys, from the SQL Language Reference, not measured.

Keys are checked at the end of a statement.  A column with values only grows, and DDL commits by itself.  The model's databases
are its schemas.
"""

from __future__ import annotations

from dataclasses import replace

from tests.model import oracle_types
from tests.model.parts import NAMES
from tests.model.postgres import ROW_STEPS, PostgresWriter
from tests.model.tables import Clause, Column, Table
from tests.model.values import RefusedError, Type

STEPS = {
    **ROW_STEPS,
    "truncate": 3,
    "add_column": 9,
    "drop_column": 5,
    "rename_column": 5,
    "set_default": 3,
    "widen": 4,
    "key_widened": 1,
    "several": 4,
    "rename_table": 1,
    "rotate": 1,
    "recreate": 3,
    "nothing": 3,
}
"""What happens, and how likely it is."""


class OracleWriter(PostgresWriter):
    """Draws histories of Oracle: rows move as in PostgreSQL, statements are its own."""

    WIDER = oracle_types.WIDER
    WITHIN, SERVER = "ORCL", "Oracle"
    WHOLE = ("NUMBER",)

    def read_type(self, declared: str) -> Type:
        """A declared type."""
        return oracle_types.read(declared)

    # --- SQL ---

    def quoted(self, name: str) -> str:
        """A name, which without quotes would be in upper case."""
        return f'"{name}"'

    def cased(self, declared: str) -> str:
        """A type in either letter case."""
        return declared if self.random.random() < 0.7 else declared.lower()

    def definition(self, column: Column) -> str:
        """A column as CREATE and ADD write it: DEFAULT comes before NOT NULL."""
        default = "" if column.default is None else f" DEFAULT {column.default.sql}"
        return f"{self.quoted(column.name)} {self.cased(column.type.declared)}{default}{'' if column.nullable else ' NOT NULL'}"

    def clause(self, one: Clause) -> str:
        """ADD in brackets or bare; all others as they are."""
        if one.action != "add":
            return one.text
        assert one.column is not None
        definition = self.definition(one.column)
        return f"ADD ({definition})" if self.random.random() < 0.6 else f"ADD {definition}"

    def key_clause(self, keys: tuple[str, ...]) -> str:
        """PRIMARY KEY with a name of its own; each is checked late."""
        self.keys += 1
        listed = ", ".join(map(self.quoted, keys))
        return f'CONSTRAINT "K{self.keys}" PRIMARY KEY ({listed})'

    def identified(self, table: Table) -> Table:
        """Its log tells all of a row, by supplemental logging of all columns."""
        table.deferrable = True
        return table

    def key_value(self, column: Column) -> str:
        """One of few values, so that keys come back."""
        if column.type.name == "NUMBER":
            return str(self.random.randint(1, 9))
        return self.random.choice(("A", "a", "b", "1", "01", "x")).ljust(
            column.type.digits * (column.type.name == "CHAR")
        )

    # --- statements ---

    def renamed(self, _table: Table, column: Column, to: str) -> Clause:
        """RENAME COLUMN, a statement by itself."""
        text = f"RENAME COLUMN {self.quoted(column.name)} TO {self.quoted(to)}"
        return Clause("rename", column.name, to=to, text=text)

    def dropped(self, table: Table) -> Clause:
        """DROP COLUMN, or a list of one."""
        column = self.some_column(table)
        name = self.quoted(column.name)
        text = f"DROP COLUMN {name}" if self.random.random() < 0.5 else f"DROP ({name})"
        return Clause("drop", column.name, text=text)

    def modified(self, column: Column, kind: Type) -> Clause:
        """MODIFY to a wider type; the default stays."""
        inside = f"{self.quoted(column.name)} {self.cased(kind.declared)}"
        text = f"MODIFY ({inside})" if self.random.random() < 0.5 else f"MODIFY {inside}"
        return Clause("change", column.name, replace(column, type=kind), text=text)

    def key_widened(self) -> None:
        """MODIFY of a key's column to a wider type, which fills a CHAR up with more blanks."""
        table = self.some_table()
        column = self.some_column(table, key=True)
        wider = self.WIDER.get(column.type.declared)
        if wider is None:
            raise RefusedError("nothing is wider")
        self.alter(table, [self.modified(column, self.type_of(wider))])

    def set_default(self) -> None:
        """MODIFY ... DEFAULT: rows that are there keep what they have."""
        table = self.some_table()
        column = self.some_column(table)
        made = self.default(replace(column, nullable=True), added=False)
        if made is None:
            raise RefusedError("no default")
        text = f"MODIFY ({self.quoted(column.name)} DEFAULT {made.sql})"
        self.alter(table, [Clause("default", column.name, replace(column, default=made), text=text)])

    def several(self) -> None:
        """ADD of two columns in one pair of brackets."""
        table = self.some_table()
        names = self.random.sample(NAMES, 2)
        added = [self.column(name, added=True) for name in names]
        text = "ADD (" + ", ".join(self.definition(one) for one in added) + ")"
        table.altered([Clause("add", column=one) for one in added])  # refused before anything is written
        clauses = [Clause("add", column=one) for one in added]
        self.source.alter(
            (table.database, table.name), clauses, f"ALTER TABLE {self.named(table.name)} {text}"
        )

    def renaming(self, old: str, new: str) -> str:
        """ALTER TABLE ... RENAME TO, or RENAME in the session's schema."""
        sql = f"ALTER TABLE {self.named(old)} RENAME TO {self.quoted(new)}"
        if self.random.random() < 0.3:
            sql = f"RENAME {self.quoted(old)} TO {self.quoted(new)}"
        return sql

    def recreate(self) -> None:
        """DROP TABLE, and CREATE of the same name."""
        table = self.some_table()
        name = self.named(table.name)
        words = self.random.choice(("", " PURGE", " CASCADE CONSTRAINTS", " CASCADE CONSTRAINTS PURGE"))
        self.source.drop([(table.database, table.name)], f"DROP TABLE {name}{words}")
        self.create(table.name)

    def truncate(self) -> None:
        """TRUNCATE TABLE."""
        table = self.some_table()
        words = self.random.choice(("", " REUSE STORAGE", " DROP STORAGE", " PURGE MATERIALIZED VIEW LOG"))
        self.source.truncate((table.database, table.name), f"TRUNCATE TABLE {self.named(table.name)}{words}")

    def nothing(self) -> None:
        """A statement that changes no row."""
        table = self.some_table()
        name, column = self.named(table.name), self.quoted(table.columns[0].name)
        sql = self.random.choice(
            (
                f"COMMENT ON TABLE {name} IS 'x'",
                f'CREATE INDEX "I{len(self.source.events)}" ON {name} ({column}, 1)',
                f"ALTER TABLE {name} MOVE",
                f"ALTER TABLE {name} SHRINK SPACE CASCADE",
                f"ALTER TABLE {name} ENABLE ROW MOVEMENT",
                f"ALTER TABLE {name} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
                f"GRANT SELECT ON {name} TO READER",
            )
        )
        self.source.nothing(self.database, sql)
