"""How far statements reach: the tables, besides those that they name, whose rows or columns the database changes, too.

PostgreSQL empties referencing tables with CASCADE and children without, changes the columns of children, and keeps labels,
defaults and attributes in types; a schema's new name is that of all its tables. In every database generated columns
follow the columns of which they are made. Rows of a partition come under its own name, or under that of the table above it
(PostgreSQL, CREATE PUBLICATION: ``publish_via_partition_root``): then that table's mirror loses them with the partition, and
the partition's mirror lacks them when it stands alone. What tables have to do with each other only earlier statements say. A table
whose CREATE nothing has logged may have to do with any: where a statement reaches further by its own words, such a table
gets the effect ``unread``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest import types
from ingest.change import TableId
from ingest.ddl import ColumnDefinition, Effect
from ingest.ddl.effect_model import (
    APART,
    DESCRIBING,
    DETACHED,
    LOGGED_AGAIN,
    NOT_LOGGED,
    OF_TYPES,
    REACHED,
    UNSENT,
)
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.timeline import Structure, kind
from ingest.order import LAST_PLACE
from ingest.values.conversions import KEEP, conversion

_OF_COLUMNS = frozenset("add_column drop_column rename_column modify_column".split())
_OF_OWN_TYPES = frozenset(
    {"string", "enum", "unknown", "json"}
)  # as messages name the types that a database has made
_OF_CHILDREN = _OF_COLUMNS | {"add_primary_key", "drop_primary_key"}


@dataclass(frozen=True, slots=True)
class _Reference:
    """A foreign key: the table that it refers to, and whether rows go with the rows of that."""

    to: TableId
    cascades: bool


@dataclass(slots=True)
class _Relation:
    """What statements have said of one table; ``whole`` if they include its CREATE with all columns."""

    whole: bool = False
    structure: Structure = field(default_factory=Structure)
    references: list[_Reference] = field(default_factory=list)
    parents: dict[TableId, bool] = field(default_factory=dict)  # True if it is a partition of that
    since: str = ""  # the place of the statement that made it a partition, if it is known
    # the names under which its rows came, each with the place from which on it is this table's; empty for only one, all along
    names: list[tuple[TableId, str]] = field(default_factory=list)


@dataclass(slots=True)
class Reach:
    """The relations of one source's tables, as its statements so far show them.

    ``rows`` are the tables that have sent rows, in the spelling of the rows; ``sent`` gives the types of their columns, ``came``
    says whether rows came between two places (`ingest.ledgers.resolve.Came`, of this source). ``parted`` has the places where a
    table is a partition no longer, or another one has its name, in order; ``cleared`` those where a table loses all its rows.
    ``statement`` is the last one. ``logged`` has those from which the source sends changes of a table again.
    """

    rows: Collection[TableId]
    sent: Callable[[TableId], Collection[str]] = lambda _table: ("unknown",)
    came: Callable[..., bool] = lambda *_span, surely=False: not surely
    parted: Mapping[TableId, Sequence[str]] = field(default_factory=dict)
    logged: Mapping[TableId, Sequence[str]] = field(default_factory=dict)
    cleared: Mapping[TableId, Sequence[str]] = field(default_factory=dict)
    statement: Statement = field(init=False)
    tables: dict[TableId, _Relation] = field(default_factory=dict)
    made: dict[TableId, Effect] = field(default_factory=dict)  # types and domains, by their names
    # a place up to which rows have come under a name since another one: each answer reads all rows of the name
    known: dict[tuple[TableId, str], str] = field(default_factory=dict)

    def take(self, statement: Statement) -> Iterator[Effect]:
        """A statement's effects, each followed by what it does to other tables."""
        self.statement = statement
        if statement.kind == "unknown" and not statement.effects and statement.table.table is None:
            yield from (
                _unread(table, "the statement could not be read")
                for table in self._of_database(statement.table)
            )
        reached: set[tuple[str, TableId]] = {(effect.action, effect.table) for effect in statement.effects}
        for effect in statement.effects:
            for spread in self._spread(effect):
                name = spread.action, spread.table
                if name == (effect.action, effect.table) or name not in reached or spread.column is not None:
                    reached.add(name)
                    yield spread

    def _spread(self, effect: Effect) -> Iterator[Effect]:
        """What an effect comes to, for its own table and others."""
        if effect.action == "add_column":
            effect = self._typed(effect)
        if instead := _INSTEAD.get(effect.action):
            yield from instead(self, effect)
        else:
            yield effect
            for also in _ALSO.get(effect.action, ()):
                yield from also(self, effect)
            yield from self._of_children(effect)
        self._follow(effect)

    def _described(self, _effect: Effect) -> Iterator[Effect]:
        """Nothing: only later statements reach further."""
        yield from ()

    def _inherited(self, effect: Effect) -> Iterator[Effect]:
        """What an attached partition leaves open above it."""
        self._follow(effect)
        if effect.note == "partition-of":
            yield from self._stale_above(effect.table)

    def _of_partition_or_log(self, effect: Effect) -> Iterator[Effect]:
        if effect.note == NOT_LOGGED:
            yield self._not_logged(effect)
        else:
            yield from self._of_partition(effect)

    def _made_of_dropped(self, effect: Effect) -> Iterator[Effect]:
        """The columns that go with the one of which they are made."""
        generated = self._made_of(effect.table, effect.name) if effect.cascade else ()
        yield from (Effect("drop_column", effect.table, column) for column in generated)

    def _of_children(self, effect: Effect) -> Iterator[Effect]:
        """What an effect on a table does to its children."""
        if effect.action not in _OF_CHILDREN or effect.only:
            return
        for child in self._children(effect.table, partitions=effect.action not in _OF_COLUMNS):
            yield from self._spread_to(child, effect)

    def _spread_to(self, child: TableId, effect: Effect) -> Iterator[Effect]:
        """The same effect on a child, and on the columns that are made of its column there."""
        yield replace(effect, table=child)
        if effect.action == "modify_column":
            yield from self._regenerated(replace(effect, table=child))
        relation = self.tables[child]
        relation.structure = relation.structure.after(replace(effect, table=child))

    # --- relations ------------------------------------------------------------------------------

    def _follow(self, effect: Effect) -> None:
        """Keep what later statements need to know of an effect."""
        table, to = effect.table, effect.other_table
        match effect.action:
            case "make_type":
                self.made[table] = effect
            case "rename_type" if table in self.made and to is not None:
                self._rename_type(table, to)
            case "domain_default" if (domain := self.made.get(table)) is not None:
                self.made[table] = replace(
                    domain,
                    default=effect.default,
                    has_default=effect.has_default,
                    note=effect.note or "domain",
                )
            case "references" if to is not None:
                deletes = "ON DELETE CASCADE" in (effect.note or "")
                self._relation(table).references.append(_Reference(to, deletes))
            case "inherit" if to is not None:
                relation = self._relation(table)
                relation.parents[to] = effect.note == "partition-of"
                relation.since = self.statement.order
            case "disinherit" if to is not None:
                self._relation(table).parents.pop(to, None)
            case "drop_table":
                self.tables.pop(table, None)
            case "create_table":
                self._create(effect)
            case "rename_table" if to is not None:
                self._rename(table, to)
            case _ if effect.column is not None:
                relation = self._relation(table)
                relation.structure = relation.structure.after(effect)

    def _create(self, effect: Effect) -> None:
        """A new table, with the columns of the table that it is like or a partition of."""
        before = self.tables.get(effect.table)  # then it is the same table, whose CREATE comes again
        names = [(effect.table, self.statement.order)] if before is None else before.names
        relation = self._relation(effect.table) if effect.note == "if-not-exists" else _Relation(names=names)
        self.tables[effect.table] = relation
        if effect.other_table and (like := self.tables.get(effect.other_table)):
            relation.whole, relation.structure = like.whole, like.structure
        relation.whole |= bool(effect.columns and effect.note in (None, "if-not-exists"))
        relation.structure = relation.structure.after(effect)

    def _is_known(self, table: TableId) -> bool:
        """True if statements say all of a table's columns and references."""
        return self.tables.get(table, _Relation()).whole

    def _relation(self, table: TableId) -> _Relation:
        return self.tables.setdefault(table, _Relation())

    def _rename(self, old: TableId, new: TableId) -> None:
        """A table under its new name, also where other tables name it."""
        moved = self.tables[new] = self.tables.pop(old, _Relation())
        moved.names = [*(moved.names or [(old, "")]), (new, self.statement.order)]
        for table in self.tables.values():
            table.references = [
                replace(each, to=new) if each.to == old else each for each in table.references
            ]
            if old in table.parents:
                table.parents[new] = table.parents.pop(old)

    def _rename_type(self, old: TableId, new: TableId) -> None:
        """A type under its new name, also where columns are declared by the old one."""
        users = list(self._users(old))
        self.made[new] = self.made.pop(old)
        for table, name, single in users:
            relation = self.tables[table]
            declared = ".".join(filter(None, new[1:])) + ("" if single else "[]")
            column = replace(relation.structure.columns[name], declared=declared)
            columns = {**relation.structure.columns, name: column}
            relation.structure = replace(relation.structure, columns=columns)

    def _children(self, table: TableId, *, partitions: bool = False) -> list[TableId]:
        """All tables that inherit from one, their own children after them; with ``partitions`` these alone."""
        table_ids: list[TableId] = []
        waiting = [table]
        while waiting:
            parent = waiting.pop()
            for child, relation in self.tables.items():
                if (
                    child not in table_ids
                    and child != table
                    and (relation.parents.get(parent) or (parent in relation.parents and not partitions))
                ):
                    table_ids.append(child)
                    waiting.append(child)
        return table_ids

    def _of_database(self, table: TableId, but: Collection[TableId] = ()) -> list[TableId]:
        """The tables with rows of a database, or of all where it is not known."""
        return sorted(
            (row for row in self.rows if (table.database in (None, row.database)) and row not in but), key=str
        )

    # --- rows ------------------------------------------------------------------------------------

    def _emptied(self, effect: Effect) -> Iterator[Effect]:
        """The tables that TRUNCATE empties besides the one that it names, which is a child of others or not."""
        reached = [effect.table, *([] if effect.only else self._children(effect.table))]
        for table in reached if effect.cascade else ():
            for child, relation in self.tables.items():
                if child not in reached and any(each.to == table for each in relation.references):
                    reached += [child, *self._children(child)]
        yield from (Effect("truncate", table, note=REACHED) for table in reached[1:])
        if effect.cascade:
            why = f"TRUNCATE {effect.table} CASCADE empties it if it refers to that table, and no CREATE TABLE says so"
            for table in self._of_database(effect.table, but=reached):
                if not self._is_known(table):
                    yield _unread(table, why)

    def _dropped(self, effect: Effect) -> Iterator[Effect]:
        """Partitions are dropped with their table, and with CASCADE its other children, too."""
        children = self._children(effect.table, partitions=not effect.cascade)
        for child in children:
            yield Effect("drop_table", child)
            self.tables.pop(child, None)
        for relation in self.tables.values():
            relation.references = [each for each in relation.references if each.to != effect.table]

    # --- partitions --------------------------------------------------------------------------------

    def _not_logged(self, effect: Effect) -> Effect:
        """What is done to a table whose changes are not sent from there on, unless a later statement ends that."""
        ends = max(self.logged.get(effect.table, ()), default="") > self.statement.order
        return replace(effect, note=LOGGED_AGAIN) if ends else effect

    def _of_partition(self, effect: Effect) -> Iterator[Effect]:
        """What is done to a table's partition, and what that does to the partition's own mirror."""
        tables, attached = [effect.table, *self._above(effect.table)], effect.other_table
        table = next((table for table in tables if attached and self._has_sent(table, LAST_PLACE)), None)
        if attached is not None and table is not None:
            yield replace(effect, table=table)
            if attached in self.rows and self.came(table, self.statement.order, LAST_PLACE, surely=True):
                yield _unread(attached, f"its rows come under the name of {table} from there on")
            return
        relations = (each for each in self.statement.effects if each.action == "disinherit")
        detached = next((each.table for each in relations if each.to == effect.table), None)
        if detached is None:  # it is no table, as in MySQL, or it is emptied
            yield effect if attached is None else replace(effect, note=UNSENT)
            return
        holding = [table for table in tables if self._comes_under(table, detached)]
        yield from (replace(effect, table=table) for table in holding)
        if not holding:
            yield replace(effect, to=detached, note=APART)
        elif detached in self.rows:
            yield Effect("truncate_partition", detached, to=holding[0], note=DETACHED)
        else:
            yield Effect("truncate_partition", detached, note=UNSENT)

    def _lost_above(self, effect: Effect) -> Iterator[Effect]:
        """The tables above a partition that is emptied or dropped by itself, if its rows are in their mirrors."""
        named = {each.table for each in self.statement.effects if each.action == effect.action}
        for table in self._above(effect.table):
            if table not in named and self._comes_under(table, effect.table):
                words = f"{effect.action.partition('_')[0].upper()} of its partition {effect.table}"
                yield Effect("truncate_partition", table, note=words)

    def _stale_above(self, partition: TableId) -> Iterator[Effect]:
        """The tables above a partition that were loaded with its rows, which have come under its own name since then."""
        begins, ends = self.statement.order, self._parts(partition)
        if partition not in self.rows or not self.came(partition, begins, ends, surely=True):
            return
        why = f"rows of its partition {partition} come under that name, and those in this mirror do not change with them"
        for table in self._above(partition):
            if self._has_sent(table, LAST_PLACE, since=self._cleared(table)):
                yield _unread(table, why)

    def _parts(self, table: TableId) -> str:
        """The next place where a table is a partition no longer, or another one has its name."""
        places = self.parted.get(table, ())
        return next((place for place in places if place > self.statement.order), LAST_PLACE)

    def _cleared(self, table: TableId) -> str:
        """The last place where a table loses all rows while it has its name; empty for none."""
        names = self.tables.get(table, _Relation()).names
        begins, ends = names[-1][1] if names else "", self._parts(table)
        return max((place for place in self.cleared.get(table, ()) if begins <= place <= ends), default="")

    def _above(self, partition: TableId) -> list[TableId]:
        """The tables of which one is a partition, at any distance."""
        above, waiting = list[TableId](), [partition]
        while waiting:
            parents = self.tables.get(waiting.pop(), _Relation()).parents
            new = [table for table, is_partition in parents.items() if is_partition and table not in above]
            above += new
            waiting += new
        return above

    def _comes_under(self, table: TableId, partition: TableId) -> bool:
        """True if rows of a partition may have come under the name of a table above it: none has come under its own."""
        place = self.statement.order
        if table not in self.rows or not self._has_sent(table, place):
            return False
        since = self.tables.get(partition, _Relation()).since
        return not any(
            self.came(name, max(low, since), high, surely=True)
            for name, low, high in self._names(partition, place)
        )

    def _has_sent(self, table: TableId, until: str, since: str = "") -> bool:
        """True if a table may have sent rows between two places, under any of its names; others had the name before it."""
        for name, begins, high in self._names(table, until):
            low = max(begins, since)
            if low > high:
                continue
            if (name, low) in self.known and self.known[name, low] <= high:
                return True
            ever = not low or self.came(name, low, LAST_PLACE)  # a name in `rows` has sent some
            if ever and (high == LAST_PLACE or self.came(name, low, high)):
                self.known[name, low] = high
                return True
        return False

    def _names(self, table: TableId, until: str) -> Iterator[tuple[TableId, str, str]]:
        """The names under which a table's rows came up to a place, each with the places between which it was this table's."""
        names = self.tables.get(table, _Relation()).names or [(table, "")]
        for number, (name, low) in enumerate(names, 1):
            if name in self.rows:
                yield name, low, names[number][1] if number < len(names) else until

    def _schema(self, effect: Effect) -> Iterator[Effect]:
        """Every table of a schema or database under its new name."""
        old, new = effect.table, effect.to
        if not isinstance(new, TableId):
            return
        for table in sorted({*self.rows, *self.tables}, key=str):
            if table.database == old.database and old.schema in (None, table.schema):
                schema = table.schema if old.schema is None else new.schema
                renamed = Effect("rename_table", table, to=TableId(new.database, schema, table.table))
                yield renamed
                self._follow(renamed)
        for name in [table for table in self.made if table[:2] == old[:2]]:
            self._rename_type(name, TableId(new.database, new.schema, name.table))

    # --- columns ---------------------------------------------------------------------------------

    def _made_of(self, table: TableId, column: str) -> list[str]:
        """The generated columns of a table that are made of a column, as far as statements show."""
        relation = self.tables.get(table, _Relation())
        wanted = column.casefold()
        return [
            column.name
            for column in relation.structure.columns.values()
            if wanted in {each.casefold() for each in column.made_of}
        ]

    def _regenerated(self, effect: Effect) -> Iterator[Effect]:
        """Generated columns whose values are made again, because a column of their expression has other values now."""
        relation = self.tables.get(effect.table, _Relation())
        texts = [
            column
            for column in relation.structure.columns.values()
            if types.base(column.type or "") in ("string", "enum", "set")
        ]
        changed = texts if effect.action == "convert_charset" else []
        if effect.action == "modify_column" and self._changes_values(relation, effect):
            changed = [ColumnDefinition(effect.name)]
        names = dict.fromkeys(name for column in changed for name in self._made_of(effect.table, column.name))
        for name in names:
            if name.casefold() != effect.name.casefold():
                yield Effect("modify_column", effect.table, name, note="generated")

    @staticmethod
    def _changes_values(relation: _Relation, effect: Effect) -> bool:
        if effect.type is None:
            return False
        old = relation.structure.column(effect.name)
        if old.type is None:
            return True
        rule = conversion(kind(old, effect.rules), effect.type, effect.written, dialect=effect.rules)
        exact = {types.family(old.type), types.family(effect.type)} <= {"integer", "decimal"}
        same = rule == KEEP or (exact and types.widens(types.delta(old.type), types.delta(effect.type)))
        return not same or (effect.solid and old.nullable is not False)

    # --- types -----------------------------------------------------------------------------------

    def _type_named(self, declared: str | None, table: TableId) -> TableId | None:
        """The type or domain that a declaration names: with its schema, in the table's, or the only one of that name."""
        parts = (declared or "").replace('"', "").split(".")
        name = parts[-1]
        if len(parts) > 1:
            schemas = [TableId(table.database, parts[-2], name)]
        else:
            schemas = [TableId(table.database, table.schema, name), TableId(table.database, "public", name)]
            alike = [kind for kind in self.made if (kind.database, kind.table) == (table.database, name)]
            schemas += alike if len(alike) == 1 else []
        return next((type_id for type_id in schemas if type_id in self.made), None)

    def _typed(self, effect: Effect) -> Effect:
        """A new column of a domain, with the domain's type and default; of a type that nothing has made its default is not known."""
        if effect.dialect != "postgres" or effect.type != "unknown":
            return effect
        name = self._type_named(effect.declared, effect.table)
        if name is None:
            return effect if effect.has_default else replace(effect, has_default=True, note="expression")
        domain = self.made[name]
        if domain.note == "type":
            return effect
        logical = domain.type or "unknown"
        if effect.has_default:
            return replace(effect, type=logical)
        note = "expression" if domain.note == "expression" else effect.note
        return replace(
            effect, type=logical, default=domain.default, has_default=domain.has_default, note=note
        )

    def _users(self, name: TableId) -> Iterator[tuple[TableId, str, bool]]:
        """The columns of a type, by table and folded name, and whether each value is one of the type and no array."""
        for table, relation in self.tables.items():
            for column, definition in relation.structure.columns.items():
                declared = definition.written.replace(" array", "").rstrip("[]0123456789 ")
                if definition.declared and self._type_named(declared, table) == name:
                    yield table, column, declared == definition.declared

    def _of_type(self, effect: Effect) -> Iterator[Effect]:
        """What a statement on a type does to the columns that have it."""
        name = self._as_made(effect.table)
        for table, column, single in [*self._users(name)]:
            spelt = self.tables[table].structure.columns[column].name
            if effect.action == "drop_type":
                yield Effect("drop_column", table, spelt)
            elif effect.action == "rename_label" and single:
                yield Effect("relabel_column", table, spelt, to=effect.to, default=effect.column)
            else:
                yield Effect("modify_column", table, spelt, note="generated")
        if effect.action == "drop_type" and name not in self.made:
            return
        why = f"a type was changed ({effect.table}), and no CREATE TABLE says which columns are of it"
        for table in self._of_database(effect.table):
            may_be_of_it = any(types.base(sent_type) in _OF_OWN_TYPES for sent_type in self.sent(table))
            if may_be_of_it and not self._is_known(table):
                yield _unread(table, why)

    def _as_made(self, name: TableId) -> TableId:
        return name if name in self.made else self._type_named(name.table, name) or name


def _unread(table: TableId, why: str) -> Effect:
    return Effect("unread", table, note=why)


_Spreads = Callable[[Reach, Effect], Iterator[Effect]]
_INSTEAD: Mapping[str, _Spreads] = {
    **dict.fromkeys(OF_TYPES, Reach._of_type),
    **dict.fromkeys(DESCRIBING, Reach._described),
    "inherit": Reach._inherited,
    "rename_schema": Reach._schema,
    "truncate_partition": Reach._of_partition_or_log,
}
"""What takes the place of an effect that is none on the rows or the columns of the table that it names."""
_ALSO: Mapping[str, Sequence[_Spreads]] = {
    "truncate": (Reach._emptied, Reach._lost_above),
    "drop_table": (Reach._dropped, Reach._lost_above),
    "modify_column": (Reach._regenerated,),
    "convert_charset": (Reach._regenerated,),
    "drop_column": (Reach._made_of_dropped,),
}
"""What an effect on a table does to others, and to other columns, besides."""
