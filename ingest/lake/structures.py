"""What statements say of a table's columns and its key, one effect after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ingest import types
from ingest.ddl import EXCHANGED, UNREAD, ColumnDefinition, Effect
from ingest.ddl.columns import implicit
from ingest.ddl.effect_model import COPIED, definition_of, of_column


@dataclass(slots=True)
class Structure:
    """A table's columns and key, as far as statements show them."""

    columns: dict[str, ColumnDefinition] = field(default_factory=dict)  # by folded name
    gone: set[str] = field(default_factory=set)  # folded names
    keys: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)  # of columns that statements made, by folded name

    def copy(self) -> Structure:
        """The same for another table."""
        return Structure(dict(self.columns), set(self.gone), self.keys, dict(self.names))

    def spelling(self, name: str, sent: Collection[str]) -> str:
        """A column's name as the statement wrote it that made the column, else as rows have it."""
        made = self.names.get(name.casefold())
        if made is not None and (made in sent or name not in sent):
            return made
        others = [other for other in sent if other.casefold() == name.casefold()]
        return name if name in sent or len(others) != 1 else others[0]

    def take(self, effect: Effect) -> None:
        """Follow one effect on the table's columns or its key."""
        name, to = effect.name.casefold(), effect.new_name.casefold()
        match effect.action:
            case "create_table":
                self.columns |= {column.name.casefold(): column for column in effect.columns}
                self.keys = effect.keys or self.keys
                self.names |= {column.name.casefold(): column.name for column in effect.columns}
            case "add_column" | "modify_column":
                if effect.type is not None or name not in self.columns:
                    self.columns[name] = definition_of(effect)
                if effect.action == "add_column":
                    self.names.setdefault(name, effect.name)
                self.gone.discard(name)
            case "drop_column":
                self.columns.pop(name, None)
                self.names.pop(name, None)
                self.gone.add(name)
            case "rename_column":
                column = self.columns.pop(name, ColumnDefinition(effect.name))
                self.columns[to] = replace(column, name=effect.new_name)
                if effect.note != EXCHANGED:  # else another column takes the name
                    self.names.pop(name, None)
                self.names[to] = effect.new_name
                self.gone = (self.gone | {name}) - {to}
                self.keys = tuple(effect.new_name if key.casefold() == name else key for key in self.keys)
            case "add_primary_key" | "drop_primary_key":
                self.keys = effect.keys

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
            elif self._retypes(copied, self.columns.get(name), kinds.get(name, "unknown")):
                column = replace(copied, note=copied.note or COPIED)
                effect, old = of_column("modify_column", made.table, column), self.columns.get(name)
                was_nullable = old is not None and old.type is not None and old.nullable is not False
                yield replace(effect, solid=copied.nullable is False and was_nullable)
        for name in sorted(lost & self.columns.keys()):
            yield Effect("drop_column", made.table, self.columns[name].name)
        if self.keys and made.keys and self.keys != made.keys:
            yield Effect("add_primary_key", made.table, keys=made.keys)

    @staticmethod
    def _retypes(new: ColumnDefinition, old: ColumnDefinition | None, sent: str) -> bool:
        if new.type is None or new.note == "generated":
            return False
        if old is not None and old.type is not None:
            kept = old.nullable is False or new.nullable is not False
            return (new.type, new.declared) != (old.type, old.declared) or not kept
        return sent != "unknown" and types.delta(sent) != types.delta(new.type)
