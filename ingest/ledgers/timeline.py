"""The timeline of a table: what its statements, one after the other, say of its columns, its key and its existence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ingest import types
from ingest.change import TableId
from ingest.ddl import EXCHANGED, UNREAD, ColumnDefinition, Effect
from ingest.ddl.columns import implicit
from ingest.ddl.effect_model import COPIED, REACHED, definition_of, of_column
from ingest.ledgers.logged_statements import Statement
from ingest.store.names import as_spelt, folded
from ingest.values.conversions import UNSAID, named

LEAVES_NAME = ("drop_table", "rename_table")
"""After these no table has the name."""
RESPELT = "respelt"  # note of a truncate whose change names the table in another letter case than the rows
OF_KEYS = frozenset({"create_table", "add_primary_key", "drop_primary_key"})
_OF_CHARSETS = frozenset({"create_table", "default_charset", "convert_charset"})
Keys = tuple[str, ...]


def kind(column: ColumnDefinition, rules: str) -> str:
    """A column's type with what its declaration adds, by the rules of a dialect; empty if no statement has said it."""
    return named(column.type or "", column.written, mysql=rules == "mysql")


def key_after(effects: Iterable[Effect], keys: Keys, fold: Callable[[str], str] = str) -> Keys:
    """The key after some effects of a statement: its renames apply at once, and its own key uses the new names."""
    effects = list(effects)
    renamed = {fold(effect.name): effect.new_name for effect in effects if effect.action == "rename_column"}
    keys = tuple(renamed.get(fold(key), key) for key in keys)
    for effect in effects:
        if effect.action == "drop_primary_key":
            keys = ()
        elif effect.action == "add_primary_key":
            keys = effect.keys or keys
        # one for an existing table does not change a known key
        elif effect.action == "create_table" and (effect.note != "if-not-exists" or not keys):
            keys = effect.keys or (() if effect.columns else keys)
    return keys


def columns_made(effect: Effect) -> tuple[str, ...]:
    """The column names that exist after an effect, in its order."""
    match effect.action:
        case "create_table":
            return tuple(column.name for column in effect.columns)
        case "add_column":
            return (effect.name,)
        case "rename_column":
            return (effect.new_name,)
    return ()


_Value = TypeVar("_Value")


def _without(values: Mapping[str, _Value], names: Iterable[str]) -> dict[str, _Value]:
    rest = dict(values)
    for name in names:
        rest.pop(name, None)
    return rest


def gone_after(
    gone: Mapping[str, str], ring: Sequence[Effect], place: str, fold: Callable[[str], str] = str
) -> dict[str, str]:
    """The folded names that columns have had and no column has after an effect, or renames that exchange names, at a place.

    Args:
        gone: those before, with the places where columns left them.
        ring: the effect or the renames. A MODIFY shows its column, but not a change of a default alone: it may mean another one.
        place: the statement's.
        fold: makes names alike.
    """
    left = [fold(effect.name) for effect in ring if effect.action in ("drop_column", "rename_column")]
    shown = [effect.name for effect in ring if effect.action == "modify_column" and effect.type is not None]
    shown += (name for effect in ring for name in columns_made(effect))
    return _without({**gone, **dict.fromkeys(left, place)}, map(fold, shown))


@dataclass(frozen=True, slots=True)
class Structure:
    """A table's columns and key at a place of its history, as far as statements show them.

    Names that ``fold`` makes alike are one name: any letter case, or with `str` only the same, as in a table of PostgreSQL that
    was created with names that differ in letter case alone. A column of the key is NOT NULL,
    and a column without a character set of its own has that of its table.
    """

    columns: Mapping[str, ColumnDefinition] = field(default_factory=dict)  # by folded name
    # folded names that columns have had and no column has now, with the places of the statements
    gone: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()  # those of them that columns have left since the table began
    keys: Keys = ()
    names: Mapping[str, str] = field(default_factory=dict)  # of columns that statements made, by folded name
    # folded names of columns that were not there before their statements; CREATE TABLE IF NOT EXISTS may have found others
    made: frozenset[str] = frozenset()
    fold: Callable[[str], str] = str.casefold
    charset: str = UNSAID  # of new columns
    converted: str = ""  # that of columns which no statement has defined
    ring: tuple[Effect, ...] = ()  # the first of renames that exchange names
    # the last effect, if it was a CREATE, and whether it found the table
    created: tuple[Effect, bool] | None = None

    def column(self, name: str) -> ColumnDefinition:
        """A column as statements have defined it so far."""
        return self.columns.get(self.fold(name)) or ColumnDefinition(name, charset=self.converted)

    def begun(self, place: str, effect: Effect) -> Structure:
        """A new table in the place of this one, whose columns are gone, with those that its beginning names."""
        gone = {**self.gone, **dict.fromkeys(self.columns, place)}
        made = frozenset(map(self.fold, columns_made(effect)))
        keys = () if effect.keys else self.keys
        return Structure(gone=gone, keys=keys, made=made, fold=self.fold)

    def spelling(self, name: str, sent: Collection[str]) -> str:
        """A column's name as the statement wrote it that made the column, else as rows have it."""
        made = self.names.get(self.fold(name))
        if made is not None and (made in sent or name not in sent):
            return made
        return as_spelt(name, sent)

    def after(self, effect: Effect, place: str = "", *, finds: bool = False) -> Structure:
        """The structure after an effect at a place; renames that exchange names apply together, with the last of them.

        A script that ``finds`` its table leaves the names free that columns have left.
        """
        ring, fold = (*self.ring, effect), self.fold
        if is_open(ring):
            return replace(self, ring=ring)
        created = (effect, finds) if effect.action == "create_table" else None
        if created is not None and created == self.created:
            return self  # one snapshot after the other describes the same table
        given = {*columns_made(effect)}
        if len({*map(fold, given)}) < len(given):
            return replace(self, fold=str).after(effect, place, finds=finds)
        left = {fold(each.name) for each in ring if each.action in ("drop_column", "rename_column")}
        made = {fold(name): name for each in ring for name in columns_made(each)}
        gone = self.gone if finds else gone_after(self.gone, ring, place, fold)
        changed, charset = _without(self._changed(ring), gone), effect.charset or UNSAID
        columns = _without(self.columns, left) | changed
        for key in effect.keys if effect.action in OF_KEYS else ():
            columns[fold(key)] = replace(columns.get(fold(key), self.column(key)), nullable=False)
        names = _without(self.names, left)
        return replace(
            self,
            columns=columns,
            gone=gone,
            left=(self.left | left) & gone.keys(),
            keys=key_after(ring, self.keys, fold),
            names={**made, **names} if effect.action == "add_column" else {**names, **made},
            made=self._made_after(effect, left, made),
            charset=charset if effect.action in _OF_CHARSETS else self.charset,
            converted=charset if effect.action == "convert_charset" else self.converted,
            ring=(),
            created=created,
        )

    def _made_after(self, effect: Effect, left: set[str], made: Iterable[str]) -> frozenset[str]:
        """The columns that were not there before their statements; those of a table that leaves its name are gone with it."""
        if effect.action in LEAVES_NAME:
            return frozenset()
        return (self.made - left).union(() if effect.note == "if-not-exists" else made)

    def _changed(self, ring: Sequence[Effect]) -> dict[str, ColumnDefinition]:
        """The columns that an effect, or renames that exchange names, make or define otherwise, by folded name."""
        effect, fold = ring[-1], self.fold
        charset = effect.charset or UNSAID
        match effect.action:
            case "create_table":
                columns = [replace(each, charset=each.charset or charset) for each in effect.columns]
            case "add_column" | "modify_column":
                columns = [self._defined(effect)]
            case "rename_column":
                columns = [replace(self.column(each.name), name=each.new_name) for each in ring]
            case "convert_charset":
                columns = [replace(each, charset=charset) for each in self.columns.values()]
            case _:
                columns = []
        return {fold(column.name): column for column in columns}

    def _defined(self, effect: Effect) -> ColumnDefinition:
        """A column as an effect leaves it: one that is there is not added, and one without a type may change its default.

        A structure that comes with a statement which could not be read says the type that a column has by now.
        """
        name, definition = self.fold(effect.name), definition_of(effect)
        column = self.columns.get(name) or replace(definition, charset=definition.charset or self.converted)
        if effect.action == "add_column" and name in self.made:
            is_retyped = effect.note == UNREAD and effect.type not in (None, column.type)
            return replace(column, type=effect.type, declared=effect.declared) if is_retyped else column
        if effect.type is not None:
            return replace(definition, charset=effect.charset or self.charset)
        sets_default = effect.has_default or effect.note == "expression"
        default = definition if sets_default else column
        return replace(column, default=default.default, has_default=default.has_default, note=default.note)

    def changed_to(self, made: Effect, rows: Mapping[str, str]) -> Iterator[Effect]:
        """What differs in a copy of the table, which was created with its columns and filled from it.

        Args:
            made: the CREATE of the copy.
            rows: the columns that rows have had before, with their types.
        """
        kinds = {name.casefold(): kind for name, kind in rows.items()}
        had = self.columns.keys() | (kinds.keys() - self.gone)
        lost = had - {column.name.casefold() for column in made.columns}
        for copied in made.columns:
            name = copied.name.casefold()
            if name not in had:
                column = implicit(copied)
                if lost:  # it may have the values of a column that it replaces
                    column = replace(column, default=None, has_default=True, note=UNREAD)
                yield replace(of_column("add_column", made.table, column), guarded=True)
            elif self._retypes(copied, kinds.get(name, "unknown")):
                column, old = replace(copied, note=copied.note or COPIED), self.column(name)
                effect = of_column("modify_column", made.table, column)
                was_nullable = old.type is not None and old.nullable is not False
                yield replace(effect, solid=copied.nullable is False and was_nullable)
        for name in sorted(lost & self.columns.keys()):
            yield Effect("drop_column", made.table, self.columns[name].name)
        if self.keys and made.keys and self.keys != made.keys:
            yield Effect("add_primary_key", made.table, keys=made.keys)

    def _retypes(self, new: ColumnDefinition, sent: str) -> bool:
        old = self.column(new.name)
        if new.type is None or new.note == "generated":
            return False
        if old.type is None:
            return sent != "unknown" and types.delta(sent) != types.delta(new.type)
        kept = old.nullable is False or new.nullable is not False
        return (new.type, new.declared) != (old.type, old.declared) or not kept


Made = tuple[str, object]
"""What a CREATE says, and when the source ran it: equal for a repeated delivery."""


def made_by(statement: Statement) -> Made:
    """The text of a statement, or the structure that it gives without one, and its time."""
    return statement.text or str(statement.effects), statement.event_time


@dataclass(slots=True)
class Presence:
    """Whether a table exists, by its statements in order."""

    left: tuple[Statement, Effect] | None = None  # by which no table has the name
    made: Made | None = None  # the CREATE by which it exists

    def begins(self, effect: Effect, statement: Statement, table: TableId) -> bool:
        """Apply one effect; True if a new table begins here, to which the rows so far do not belong.

        A plain CREATE proves that no such table existed, whatever was seen before; a repetition of the same statement,
        and CREATE TABLE IF NOT EXISTS for an existing table, prove nothing.
        """
        if effect.table == table and effect.action in LEAVES_NAME:
            self.left, self.made = (statement, effect), None
        elif effect.action == "swap_table":
            self.left = None
        elif effect.action == "rename_table" and effect.to == table:
            self.left = None
            return True
        elif effect.action == "create_table":
            made = made_by(statement)
            proves = self.left is not None or (effect.note != "if-not-exists" and self.made != made)
            if proves:
                self.left, self.made = None, made
            return proves
        return False


@dataclass(frozen=True, slots=True)
class TableEvent:
    """One effect on a table, or renames that exchange names; it ``begins`` a new table with it, or not."""

    statement: Statement
    effects: tuple[Effect, ...]
    begins: bool

    @property
    def effect(self) -> Effect:
        """The effect, or the first of the renames."""
        return self.effects[0]

    @property
    def empties(self) -> bool:
        """True if all rows so far are gone: a new table begins, or a TRUNCATE of which no change of the table tells, because its
        message names another table, or another spelling.
        """
        return self.begins or (self.effect.action == "truncate" and self.effect.note in (RESPELT, REACHED))

    @property
    def finds(self) -> bool:
        """True of a script for a table that is there: CREATE TABLE IF NOT EXISTS, but not a snapshot's description of it."""
        return self._guarded and self.statement.kind != "none"

    @property
    def describes(self) -> bool:
        """True of a snapshot's description of a table that is there: it has all of the table's columns."""
        return self._guarded and self.statement.kind == "none"

    @property
    def _guarded(self) -> bool:
        return self.effect.note == "if-not-exists" and not self.begins

    @property
    def place(self) -> Any:
        """Its order key; a step of the ledger has one in the place of an order."""
        return self.statement.order


@dataclass(frozen=True, slots=True)
class Moment(TableEvent):
    """An event, and the table's structure before and after it."""

    before: Structure
    after: Structure

    @property
    def made(self) -> list[str]:
        """The names that columns get, in order; a script that finds its table does not bring a column back."""
        names = dict.fromkeys(name for effect in self.effects for name in columns_made(effect))
        gone = {folded(name) for name in self.before.gone} if self.finds else set()
        return [name for name in names if folded(name) not in gone]


def events(effects: Iterable[tuple[Statement, Effect]], table: TableId) -> Iterator[TableEvent]:
    """What happened to a table, by the effects on it, in order, each with its statement."""
    presence = Presence()
    for statement, ring in rings(effects):
        yield TableEvent(statement, ring, presence.begins(ring[0], statement, table))


def departure(effects: Iterable[tuple[Statement, Effect]], table: TableId) -> tuple[Statement, Effect] | None:
    """The drop or the rename by which no table has the name after the effects on it, with its statement; None if one has it."""
    presence = Presence()
    for statement, effect in effects:
        presence.begins(effect, statement, table)
    return presence.left


def moments(effects: Iterable[tuple[Statement, Effect]], table: TableId) -> Iterator[Moment]:
    """The timeline of a table by the effects on it, in order, each with its statement; names are as their rows spell them."""
    structure = Structure(fold=str)
    for event in events(effects, table):
        before = structure
        structure = structure.begun(event.place, event.effect) if event.begins else structure
        for effect in event.effects:
            structure = structure.after(effect, event.place, finds=event.finds)
        yield Moment(event.statement, event.effects, event.begins, before, structure)


def rings(effects: Iterable[tuple[Statement, Effect]]) -> Iterator[tuple[Statement, tuple[Effect, ...]]]:
    """Group effects: renames that exchange names, in whatever letter case, form one group, every other effect is alone."""
    ring: tuple[Effect, ...] = ()
    for statement, effect in effects:
        ring = (*ring, effect)
        if not is_open(ring):
            yield statement, ring
            ring = ()


def is_open(ring: Sequence[Effect]) -> bool:
    """True of the first of some renames that exchange names, which others follow."""
    last = ring[-1]
    exchanges = last.action == "rename_column" and last.note == EXCHANGED
    return exchanges and folded(last.new_name) != folded(ring[0].name)
