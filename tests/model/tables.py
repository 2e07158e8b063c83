"""The tables of a source database, and what ALTER TABLE makes of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from ingest.change import Image
from tests.formats.one_history.history import Column as Shape
from tests.model.conversions import convert, nothing
from tests.model.values import OwnType, RefusedError, Type, zero

Key = tuple[object, ...]
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Default:
    """A DEFAULT: its SQL, and the value that it gives; ``known`` if the statement alone gives the value."""

    sql: str
    value: str | None
    known: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A column's definition."""

    name: str
    type: Type
    nullable: bool = True
    default: Default | None = None
    made_of: str = ""  # the column of which it is generated, as a copy

    def shape(self) -> Shape:
        """What writers of messages know of it."""
        known = self.default is not None and self.default.known
        default = self.default.value if self.default is not None and known else None
        labels = self.type.labels if isinstance(self.type, OwnType) else ()
        return Shape(self.type.logical, self.type.declared, self.nullable, default, labels)

    def filler(self) -> str | None:
        """What rows that are already there get when the column is added."""
        if self.default is not None:
            return self.default.value
        if self.nullable:
            return None
        found = zero(self.type)
        if found is None:
            raise RefusedError(f"{self.type.declared} has no zero that is allowed")
        return found


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of ALTER TABLE.

    ``action``: add, drop, rename, change, default, drop_key, add_key or nothing.  ``name`` is the column as it
    is called before the statement, ``column`` its new definition, ``position`` first or a column's name.
    """

    action: str
    name: str = ""
    column: Column | None = None
    to: str = ""
    keys: tuple[str, ...] = ()
    position: str | None = None
    guarded: bool = False
    text: str = ""


class Part(NamedTuple):
    """A partition: its name, and the number below which the key's first column is there; None for all others."""

    name: str
    below: int | None

    def sql(self) -> str:
        """As CREATE and ALTER TABLE write it."""
        bound = "MAXVALUE" if self.below is None else f"({self.below})"
        return f"PARTITION {self.name} VALUES LESS THAN {bound}"


@dataclass(slots=True)
class Table:
    """One table: columns, key and rows, these by a number of their own.

    ``parts`` are the ranges of the key's first column by which it is partitioned, the last one open.

    ``identity`` is what its log tells of rows before a change (full, or default: the key); ``deferrable`` if rows may have one
    key within a statement, ``constraint`` the key's name.
    """

    database: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rows: dict[int, Image] = field(default_factory=dict)
    identity: str = "full"
    deferrable: bool = False
    constraint: str = ""
    parts: tuple[Part, ...] = ()
    shape: dict[str, Shape] = field(init=False)

    def __post_init__(self) -> None:
        self.shape = {one.name: one.shape() for one in self.columns}

    def column(self, name: str) -> Column:
        """A column by its name in any letter case."""
        for one in self.columns:
            if one.name.lower() == name.lower():
                return one
        raise RefusedError(f"{self.name} has no column {name}")

    def has(self, name: str) -> bool:
        """True if there is a column of the name."""
        return any(one.name.lower() == name.lower() for one in self.columns)

    @property
    def given(self) -> list[Column]:
        """The columns that statements give values, which are not generated."""
        return [one for one in self.columns if not one.made_of]

    def computed(self, row: Image) -> Image:
        """A row with its generated columns."""
        return dict(row) | {one.name: row[one.made_of] for one in self.columns if one.made_of}

    def part_of(self, row: Image) -> str:
        """The name of the partition in which a row is."""
        number = int(row[self.key[0]] or 0)
        return next(one.name for one in self.parts if one.below is None or number < one.below)

    def key_of(self, row: Mapping[str, str | None]) -> Key:
        """A row's typed key."""
        return tuple(_typed(self.shape[name].logical, row[name]) for name in self.key)

    def check(self, rows: Mapping[int, Image]) -> None:
        """Refuse two rows of one key, and NULL where there must be none."""
        if self.key and len({self.key_of(row) for row in rows.values()}) < len(rows):
            raise RefusedError("a key twice")
        solid = [one.name for one in self.columns if not one.nullable]
        if any(row[name] is None for row in rows.values() for name in solid):
            raise RefusedError("NULL in a column that is NOT NULL")

    def _refuse(self, clauses: Sequence[Clause]) -> None:
        """Refuse what servers refuse of generated columns, of those of which they are made, and of a partition's, or what is not modelled."""
        made = {one.name.lower() for one in self.columns if one.made_of}
        fixed = made | {one.made_of.lower() for one in self.columns if one.made_of}
        fixed |= {name.lower() for name in self.key[:1] if self.parts}
        for clause in clauses:
            name = clause.name.lower()
            if name in fixed and not (clause.action == "drop" and name in made):
                raise RefusedError(f"{clause.name} is generated, or others are of it")
            if clause.action in ("drop_key", "add_key") and (
                self.parts or made & {*map(str.lower, clause.keys)}
            ):
                raise RefusedError("a key of generated columns, or of partitions")

    def retyped(self, kind: Type, became: Mapping[str, str]) -> Table:
        """The table after its columns' type of that name has other labels; ``became`` has those with another name."""
        names = [one.name for one in self.columns if one.type.declared == kind.declared]
        columns = [
            replace(one, type=kind, default=_relabelled(one.default, became)) if one.name in names else one
            for one in self.columns
        ]
        rows = {
            number: {
                name: became.get(text or "", text) if name in names else text for name, text in row.items()
            }
            for number, row in self.rows.items()
        }
        return replace(self, columns=tuple(columns), rows=rows)

    def altered(self, clauses: Sequence[Clause], *, strict: bool = True) -> Table:
        """The table after an ALTER, whose clauses all refer to the table before it."""
        self._refuse(clauses)
        columns: list[tuple[str | None, Column]] = [(one.name, one) for one in self.columns]
        key = self.key
        for clause in sorted(clauses, key=lambda one: one.action == "add"):  # new columns come last
            key = _apply(clause, self, columns, key)
        names = [one.name.lower() for _, one in columns]
        if not names or len(set(names)) < len(names):
            raise RefusedError("a column twice, or none")
        if any(name.lower() not in names for name in key):
            raise RefusedError("a key column that is not there")
        key = tuple(next(one.name for _, one in columns if one.name.lower() == name.lower()) for name in key)
        columns = [(old, replace(one, nullable=one.nullable and one.name not in key)) for old, one in columns]
        rows = {number: _converted(self, row, columns, strict=strict) for number, row in self.rows.items()}
        found = replace(self, columns=tuple(one for _, one in columns), key=key, rows=rows)
        found.check(found.rows)
        return found


def _typed(logical: str, text: str | None) -> object:
    if text is None or not logical.startswith(_NUMBERS):
        return text
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def _relabelled(default: Default | None, became: Mapping[str, str]) -> Default | None:
    if default is None or default.value not in became:
        return default
    return replace(default, sql=f"'{became[default.value]}'", value=became[default.value])


_NUMBERS = ("int", "uint", "decimal", "year", "bit")


def _apply(
    clause: Clause, before: Table, columns: list[tuple[str | None, Column]], key: tuple[str, ...]
) -> tuple[str, ...]:
    """Apply one clause to the columns, each with its name before the statement; the key after it."""
    if clause.action == "drop_key":
        if not key:
            raise RefusedError("no key to drop")
        return ()
    if clause.action == "add_key":
        if key:
            raise RefusedError("two keys")
        return clause.keys
    if clause.action == "add":
        assert clause.column is not None
        if before.has(clause.column.name) and clause.guarded:
            return key
        columns.append((None, clause.column))
        _moved(columns, len(columns) - 1, clause.position)
        return key
    if clause.action == "nothing":
        return key
    was = before.column(clause.name).name
    at = next((i for i, (old, _) in enumerate(columns) if old == was), None)
    if at is None or columns[at][1] is not before.column(was):
        raise RefusedError(f"{was} twice in one statement")
    old, column = columns[at]
    if clause.action == "drop":
        if column.name in key:
            raise RefusedError("a column of the key")
        del columns[at]
        return key
    if clause.action == "rename":
        columns[at] = (old, replace(column, name=clause.to))
    elif clause.action == "default":
        assert clause.column is not None
        columns[at] = (old, replace(column, default=clause.column.default))
    else:
        assert clause.column is not None
        columns[at] = (old, clause.column)
        _moved(columns, at, clause.position)
    new = columns[at][1].name if clause.position is None else (clause.column or column).name
    return tuple(new if name == column.name else name for name in key)


def _moved(columns: list[tuple[str | None, Column]], at: int, position: str | None) -> None:
    if position is None:
        return
    one = columns.pop(at)
    if position == "first":
        columns.insert(0, one)
        return
    for i, (_, column) in enumerate(columns):
        if column.name.lower() == position.lower():
            columns.insert(i + 1, one)
            return
    raise RefusedError(f"no column {position} to put it after")


def _converted(
    table: Table, row: Image, columns: Iterable[tuple[str | None, Column]], *, strict: bool
) -> Image:
    found: Image = {}
    for old, column in columns:
        if old is None:
            found[column.name] = row[column.made_of] if column.made_of else column.filler()
        else:
            found[column.name] = convert(row[old], table.column(old).type, column.type, strict=strict)
            if found[column.name] is None and not column.nullable:
                if strict:
                    raise RefusedError("NULL in a column that becomes NOT NULL")
                found[column.name] = nothing(column.type)
    return found
