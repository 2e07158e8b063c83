"""What a statement does to mirrors, how dangerous that is, and its JSON for the ledger.

Kinds, by the worst effect:

- ``safe``: create, add column, comment, a change of default or nullability only, and a retyping into text;
- ``lossy``: drop, truncate (also of a partition), rename, any other retyping, and a conversion to a character set
  that lacks characters;
- ``none``: no effect on a mirror (indexes, keys, grants, views, options, comments only);
- ``unknown``: not read to its end, so no effects are listed.

A statement does not name a column's old type, so a retyping into a number or a date counts as lossy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from ingest import types
from ingest.change import TableId
from ingest.values.charsets import keeps_all

Dialect = Literal["mysql", "oracle", "postgres", "sqlserver", "db2"]
Kind = Literal["safe", "lossy", "none", "unknown"]

ACTIONS = tuple(
    "create_table drop_table drop_database rename_table truncate truncate_partition add_column drop_column "
    "rename_column modify_column comment_column add_primary_key drop_primary_key add_foreign_key drop_foreign_key "
    "default_charset convert_charset unread references inherit disinherit make_type rename_type drop_type alter_type rename_label "
    "domain_default rename_schema".split()
)
OF_TYPES = frozenset("make_type rename_type drop_type alter_type rename_label domain_default".split())
"""Effects whose ``table`` is the name of a type; `ingest.ledgers.reach` makes of them what they do to tables."""
DESCRIBING = frozenset(
    "drop_foreign_key references inherit disinherit make_type rename_type domain_default".split()
)
"""Effects that change no row and no column: later statements reach further because of them."""
REACHED = "reached"  # note of a table that is emptied because of another one, without a change that says so
APART = "apart"  # note of a truncate_partition: the partition's rows come under its own name, which is ``to``
DETACHED = "detached"  # note of a truncate_partition: the rows that a former partition has came under the name ``to``
# notes of a truncate_partition: changes between the two come in no message
NOT_LOGGED, LOGGED = "SET UNLOGGED", "SET LOGGED"
LOGGED_AGAIN = "logged again"  # note of a truncate_partition: a table that was not logged until a later statement, which holds
UNSENT = "unsent"  # note of a truncate_partition: the table has sent no row so far
EXCHANGED = "exchanged"  # note of consecutive renames that exchange names
UNREAD = "unread"  # note of a column that a structure has after a change that could not be read
UNANNOUNCED = "unannounced"  # note of a column that rows have brought without a statement or a default
COPIED = "copied"  # note of a column that the copy of a table was created with
MOVED = "moved"  # note of a column that has another place among the others, so that it is another column
COMPUTED = "computed"  # note of a retyped column whose values an expression of the statement gives
_LOSSY = frozenset(
    "drop_table drop_database rename_table truncate truncate_partition drop_column rename_column drop_type alter_type "
    "rename_label rename_schema relabel_column".split()
)


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as a statement defines it.

    Args:
        type: logical type, or None where the statement leaves the type alone.
        declared: the type as the source wrote it; SQL Server's by the name of the system type.
        default: canonical text of a literal default; None for NULL and for what is not a literal.
        has_default: True if existing rows get a value: ``default``, or unless ``note``
            says ``expression``, ``generated`` or ``identity``, NULL. ``note`` is ``implicit`` where
            MySQL fills a NOT NULL column by its own rules.
        charset: MySQL's character set, where the statement gives the column one of its own.
        position: ``first``, ``after NAME`` or None.
        made_of: the names in a generated column's expression.
    """

    name: str
    type: str | None = None
    declared: str | None = None
    nullable: bool | None = None
    default: str | None = None
    has_default: bool = False
    comment: str | None = None
    position: str | None = None
    note: str | None = None
    charset: str | None = None
    made_of: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """Its type as the statement writes it; empty without one."""
        return self.declared or ""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a statement does; the members of `ColumnDefinition` hold for the column actions.

    ``to`` is the new column name, or the new table's identity.  For ``create_table``, ``columns`` and
    ``keys`` are the definition; ``note`` says ``like``, ``as-select``, ``partition-of`` or
    ``if-not-exists``; ``filled`` is True of one that is created IF NOT EXISTS, and as SELECT.  For ``truncate_partition``, ``note`` is the clause, and ``to`` the table
    whose rows it brings, if it names one.  For ``add_primary_key``, ``keys`` are its columns in their order; there are
    none where an index gives them (``note`` says ``using-index``).
    For ``add_foreign_key``, ``note`` is what MySQL does to rows by it, which its binary log does not contain; ``keys`` are
    its columns, and ``made_of`` those of the table ``to`` to which they refer, if the statement names both.
    For ``drop_database``, ``table`` names the database, or its schema, alone.  ``guarded`` is True of a column that
    is added only IF NOT EXISTS; ``solid`` of one that MySQL changes to NOT NULL, so that NULLs become zeros, and of a
    primary key that it adds, whose columns it changes so;
    ``dialect`` is whose rules convert the values of a retyped column, where they are not MySQL's.  ``charset`` is also
    that of a table's new columns (``create_table``, ``default_charset``), or of all its texts (``convert_charset``).
    ``only`` is True where the statement leaves a table's children alone, ``cascade`` where it says CASCADE.

    ``unread`` is of a table to which the statement may have done what is not known; ``note`` says why.  ``references``,
    ``inherit`` and ``disinherit`` are of a table that depends on ``to``: its foreign key (``note`` says CASCADE if it
    deletes rows), or the table of which it is a child or (``note`` ``partition-of``) a partition.  Those of types name
    a type in the place of a table (`OF_TYPES`): ``rename_label`` has the old label as ``column``, and
    ``relabel_column``, which `ingest.ledgers.reach` and `ingest.ledgers.announced` make of it, as ``default``, without ``to`` where
    nothing says what became of it.  ``rename_schema`` names a schema or a
    database alone.
    """

    action: str
    table: TableId
    column: str | None = None
    to: str | TableId | None = None
    type: str | None = None
    declared: str | None = None
    nullable: bool | None = None
    default: str | None = None
    has_default: bool = False
    comment: str | None = None
    position: str | None = None
    columns: tuple[ColumnDefinition, ...] = ()
    keys: tuple[str, ...] = ()
    note: str | None = None
    charset: str | None = None
    guarded: bool = False
    solid: bool = False
    dialect: str | None = None
    made_of: tuple[str, ...] = ()
    only: bool = False
    cascade: bool = False
    filled: bool = False

    @property
    def brings_rows(self) -> bool:
        """True of a table that is created with rows, or columns, that its statement does not name."""
        return self.action == "create_table" and (self.filled or self.note == "as-select")

    @property
    def name(self) -> str:
        """The column's name; empty of what is not about one column."""
        return self.column or ""

    @property
    def new_name(self) -> str:
        """The column's new name; empty where ``to`` is none."""
        return self.to if isinstance(self.to, str) else ""

    @property
    def other_table(self) -> TableId | None:
        """The table that ``to`` names, if it names one."""
        return self.to if isinstance(self.to, TableId) else None

    @property
    def rules(self) -> str:
        """The dialect whose rules convert values; empty if nothing says which it is."""
        return self.dialect or ("mysql" if self.table.schema is None else "")

    @property
    def written(self) -> str:
        """The column's type as the statement writes it; empty without one."""
        return self.declared or ""


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement's effects in its own order, its kind, and the reason in a few words."""

    effects: tuple[Effect, ...]
    kind: Kind
    reason: str


def of_column(action: str, table: TableId, column: ColumnDefinition) -> Effect:
    """A column definition as the effect that makes or changes the column."""
    given = {field.name: getattr(column, field.name) for field in fields(column) if field.name != "name"}
    return Effect(action, table, column.name, **given)


def definition_of(effect: Effect) -> ColumnDefinition:
    """The column definition of an effect that makes or changes a column."""
    given = {
        field.name: getattr(effect, field.name) for field in fields(ColumnDefinition) if field.name != "name"
    }
    return ColumnDefinition(effect.name, **given)


def kind_of(effects: Sequence[Effect]) -> Kind:
    """``safe``, ``lossy`` or (for no effects, or none on rows and columns) ``none``."""
    if any(map(_is_lossy, effects)):
        return "lossy"
    return "safe" if any(effect.action not in DESCRIBING for effect in effects) else "none"


def _is_lossy(effect: Effect) -> bool:
    if effect.action == "convert_charset":
        return not keeps_all(effect.charset or "")
    if effect.action == "modify_column":
        return effect.type is not None and types.delta(effect.type) != "STRING"
    return effect.action in _LOSSY
