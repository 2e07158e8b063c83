"""Resolve logged statements to the tables that have rows: names in the rows' spelling, and renames.

A statement belongs to the tables that it names, not only to its message's table. It may spell them in another letter
case than the rows. A rename may introduce a table whose rows were in no message: an empty one, the copy of an online
schema tool (gh-ost, pt-online-schema-change), or the table itself under a temporary name. Each of these cases is
expressed here as its effect on the table, so that policy and checks need not handle it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ingest import types
from ingest.change import NO_TABLE, LaneId, TableId
from ingest.ddl import EXCHANGED, MOVED, UNANNOUNCED, UNREAD, Effect
from ingest.ddl.effect_model import APART, DETACHED, LOGGED, LOGGED_AGAIN, REACHED, UNSENT
from ingest.ledgers.adjusted_names import AdjustedNames
from ingest.ledgers.decisions import APPROVE, DISMISS
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.reach import Reach
from ingest.ledgers.timeline import LEAVES_NAME, RESPELT, Presence, Structure, made_by
from ingest.order import behind, is_weak, order_of, same_place
from ingest.store.names import as_spelt

Lanes = Iterable[LaneId]


class SentColumn(NamedTuple):
    """A column that rows of a table have had: no row had it before ``low``, some row had it up to ``high``."""

    low: str
    high: str
    type: str
    batch: int = 0  # of the first row that has it


Sent = Callable[[str, TableId], Mapping[str, SentColumn]]
"""The columns that the rows of a source's table have had; one without a name is for rows that a rule excludes."""
_Sent = Callable[[TableId], Mapping[str, SentColumn]]  # the same of one source
Came = Callable[..., bool]
"""Whether a table of a source may have sent rows between two places; with a time, rows that are not newer than that; with
``surely=True`` whether it has, so that rows whose place is not known do not count."""
DOUBTED = "doubted"  # note of a create_table that may be of another table, whose name differs in letter case
EMPTY = "empty"  # note of a truncate_partition: the table that becomes a partition has sent no row
CARRIED = (
    "carried"  # note of a create_table: a table with rows has got the name, and they have come again under it
)
UNSEEN = "unseen"  # note of a swap_table: statements on the copy are not in the ledger
# statements that may legitimately occur twice within a second
_BY_TURNS = ("create_table", "drop_table", "truncate")
_OF_ROWS = ("truncate", "truncate_partition")
_OF_A_COLUMN = ("drop_column", "rename_column", "comment_column")
# notes of a column whose value no statement contains
_UNKNOWN_DEFAULTS = ("expression", "generated", "identity", UNREAD, UNANNOUNCED)


def _nothing_sent(_source: str, _table: TableId) -> Mapping[str, SentColumn]:
    return {}


def _unknown(
    _source: str, _table: TableId, _low: str, _high: str, _until: object = None, *, surely: bool = False
) -> bool:
    return not surely


def resolved(
    statements: Sequence[Statement], lanes: Lanes, sent: Sent = _nothing_sent, came: Came = _unknown
) -> list[Statement]:
    """The statements with effects on the tables under the rows' names.

    Args:
        statements: all of the ledger, in order.
        lanes: the source tables that have sent rows.
        sent: the columns of their rows; asked only where a copy that was created with columns replaces a table,
            where a CREATE names a table in another letter case, for a MODIFY of a column that no statement has made, and for a
            table that is renamed or becomes a partition.
        came: asked only where a table is renamed, or becomes a partition, whose name has rows: between its CREATE and that.
    """
    named, by_source = defaultdict[str, _Names](_Names), defaultdict[str, list[Statement]](list)
    for source, table in lanes:
        named[source].add(table)
    for statement in statements:
        by_source[statement.source].append(statement)
    sources = {
        source: _Source.of(of_source, named[source], partial(sent, source), partial(came, source))
        for source, of_source in by_source.items()
    }
    with_effects = (sources[statement.source].take(statement) for statement in statements)
    return [statement for statement in with_effects if statement is not None]


@dataclass(slots=True)
class _Source:
    """What the statements of one source so far show of its tables."""

    names: _Names
    spellings: _Spellings
    adjusted: AdjustedNames
    reach: Reach
    made: _Made
    deliveries: _Deliveries

    @classmethod
    def of(cls, statements: Sequence[Statement], names: _Names, sent: _Sent, came: Came) -> _Source:
        """A source before the first of all its statements."""
        reach = Reach(
            names.exact,
            partial(_types_sent, sent),
            came,
            _places(statements, names, _is_parted),
            _places(statements, names, _is_logged),
            _places((each for each in statements if each.decided != DISMISS), names, _clears),
        )
        made = _Made(names, sent, came)
        return cls(names, _Spellings(sent), AdjustedNames(sent), reach, made, _Deliveries(came))

    def take(self, statement: Statement) -> Statement | None:
        """The next statement with its effects; None if it only says what later ones reach."""
        spelt = _respelt(statement, self.names, self.spellings)
        effects, columns = self.adjusted.take(spelt, statement.order)
        table = self.names.of(statement.table)
        statement = replace(statement, table=table, effects=tuple(effects), adjusted=columns)
        statement = replace(statement, effects=tuple(self.reach.take(statement)))
        if statement.kind == "none" and not statement.effects:
            return None
        if self.deliveries.renames_again(statement):
            statement = replace(statement, effects=())
        elif statement.decided != DISMISS:
            statement = replace(statement, effects=tuple(self.made.take(statement)))
        return self.deliveries.take(statement)


def _places(
    statements: Iterable[Statement], names: _Names, holds: Callable[[Effect], bool]
) -> dict[TableId, list[str]]:
    """Where some statements of a source have certain effects, by table, in order."""
    places: dict[TableId, list[str]] = {}
    for statement in statements:
        for effect in filter(holds, statement.effects):
            places.setdefault(names.of(effect.table), []).append(statement.order)
    return places


def _is_parted(effect: Effect) -> bool:
    """True of a table that is a partition no longer, or loses its name."""
    return effect.action in ("disinherit", *LEAVES_NAME)


def _is_logged(effect: Effect) -> bool:
    """True of a table of which the source sends changes from there on."""
    return effect.note == LOGGED


def _clears(effect: Effect) -> bool:
    """True of a table that loses all its rows."""
    return effect.action in ("truncate", "drop_table")


def _types_sent(sent: _Sent, table: TableId) -> set[str]:
    return {column.type for name, column in sent(table).items() if name} or {"unknown"}


_Mark = tuple[str | None, str | None, str, object]
"""Database, schema, text and time of a statement: equal for a repeated delivery.

One migration runs the same text in several databases within a second.
"""


def _mark(statement: Statement) -> _Mark:
    database, schema, _ = statement.table
    return database, schema, *made_by(statement)


@dataclass(slots=True)
class _Deliveries:
    """The statements of a source delivered so far, for the tables as they are now."""

    came: Came
    # and the place of the last delivery
    first: dict[_Mark, tuple[Statement, str]] = field(default_factory=dict)
    of_table: dict[TableId, set[_Mark]] = field(default_factory=lambda: defaultdict(set))
    tables: dict[TableId, Presence] = field(default_factory=lambda: defaultdict(Presence))
    places: dict[_Mark, set[tuple[int, str] | None]] = field(default_factory=dict)  # of the deliveries

    def renames_again(self, statement: Statement) -> bool:
        """True for a RENAME that is delivered again and has a position: the names are other tables' by now."""
        is_rename = any(effect.action == "rename_table" for effect in statement.effects)
        mark = _mark(statement)
        known = is_rename and mark in self.first and not is_weak(statement.order)
        return known and self._is_repeated(mark, statement)

    def take(self, statement: Statement) -> Statement:
        """The statement with its effects, adjusted if it is a repeated delivery."""
        mark = _mark(statement)
        first_time = self.first.get(mark)
        if first_time is not None and self._is_repeated(mark, statement):
            statement = _again(statement, *first_time, self.came)
        self._follow(mark, statement)
        if statement.event_time is not None:
            self.first[mark] = first_time[0] if first_time else statement, statement.order
            self.places.setdefault(mark, set()).add(_place(statement.order))
            for table in statement.tables:
                self.of_table[table].add(mark)
        return statement

    def _is_repeated(self, mark: _Mark, statement: Statement) -> bool:
        """True unless it has run twice within a second, or may have."""
        place, places = _place(statement.order), self.places[mark]
        if place and place not in places and all(other and other[0] == place[0] for other in places):
            return False
        return all(
            effect.action not in _BY_TURNS
            or (effect.action == "create_table" and self.tables[effect.table].made == made_by(statement))
            for effect in statement.effects
        )

    def _follow(self, mark: _Mark, statement: Statement) -> None:
        """Track which tables exist: statements on an earlier table of the same name do not apply to this one."""
        for effect in statement.effects:
            table = effect.table
            if self.tables[table].begins(effect, statement, table):
                for other in self.of_table.pop(table, set()) - {mark}:
                    first_time = self.first.get(other)
                    if first_time and (
                        self._follows(first_time[0], mark) or not _renames(first_time[0], table)
                    ):
                        del self.first[other]

    def _follows(self, statement: Statement, mark: _Mark) -> bool:
        """True if a CREATE came before a statement when it came first: they come again in this order."""
        created = self.first.get(mark)
        return created is not None and created[0].order < statement.order


def _renames(statement: Statement, table: TableId) -> bool:
    """True if a statement gave a table another name, so that a repetition after its next CREATE is one of before it."""
    effects = statement.effects
    gone = any(effect.action in LEAVES_NAME and effect.table == table for effect in effects)
    return gone and any(effect.action == "rename_table" or effect.table != table for effect in effects)


def _place(order: str) -> tuple[int, str] | None:
    """A statement's epoch and the position that its message has; None if only its second or arrival places it."""
    parsed = order_of(order)
    return (parsed.epoch, same_place(order)) if parsed.sequence and not parsed.half else None


def _again(statement: Statement, first: Statement, since: str, came_between: Came) -> Statement:
    """A repeated statement: it has changed the rows already, but not those that were repeated before it.

    If arrival decides, a rewound stream delivers older rows again, and then the statement. What was landed again for its
    first delivery does not come once more: with older rows under that name it is a move of its own.
    """
    if not is_weak(statement.order):
        return replace(statement, effects=())
    if first.carried:
        span = behind(since), statement.order, statement.event_time
        moved = {table for table in first.carried if came_between(table, *span)}
        renames = [effect for effect in statement.effects if effect.other_table in moved]
        return replace(statement, effects=tuple(renames))
    renames = [effect for effect in statement.effects if effect.action == "rename_table"]
    came = {rename.to for rename in renames} | {
        effect.table for effect in statement.effects if effect.action == "swap_table"
    }
    # tables that came in empty: rows repeated before the statement are those of the tables that it took away
    empty = [
        effect.table for effect in first.effects if effect.action == "create_table" and effect.table in came
    ]
    gone = [rename.table for rename in renames if rename.table not in came]
    made = [Effect("drop_table", table) for table in (*gone, *empty)] + [
        Effect("create_table", table) for table in empty
    ]
    return replace(
        statement, effects=tuple(made), decided=statement.decided or first.decided, first=first, since=since
    )


def leaves_open(effect: Effect, table: TableId) -> bool:
    """True if the source gave a table's existing rows values that no message contains, or will."""
    if effect.table != table:
        return False
    if effect.action == "add_foreign_key":
        return True
    if effect.action == "add_column":
        return effect.note in _UNKNOWN_DEFAULTS
    if effect.action == "modify_column":  # made again of another column's new values
        return effect.type is None and effect.note in ("generated", MOVED)
    if effect.action == "relabel_column":
        return effect.to is None
    return effect.action == "swap_table" and effect.note == UNSEEN


def hides_rows(effect: Effect) -> bool:
    """True if rows of a partition vanish or come, and no message says which they are."""
    return effect.action == "truncate_partition" and effect.note not in (EMPTY, APART, UNSENT, LOGGED_AGAIN)


def is_pinned(effect: Effect, declared: Mapping[str, str]) -> bool:
    """True if a statement gives a column a wider type than the pipeline file declares: the mirror keeps the declared one."""
    pinned = declared.get(effect.name)
    retyped = effect.action == "modify_column" and effect.type is not None
    return retyped and pinned is not None and types.outgrows(pinned, effect.type or "")


def is_copy(copy: TableId, table: TableId) -> bool:
    """True if one name is that of the copy that an online schema tool makes of the other table."""
    return _helps(copy, table, ("_gho", "_new"))


def is_archive(old: TableId, table: TableId) -> bool:
    """True if one name is that under which an online schema tool archives the other table."""
    return _helps(old, table, ("_del", "_old"))


def renamed_into(effect: Effect, table: TableId) -> bool:
    """True if a table gets rows that were sent under another name, in whose mirror they are."""
    return (
        effect.action == "rename_table"
        and effect.to == table != effect.table
        and not is_archive(table, effect.table)
        and not is_copy(effect.table, table)
    )


def _helps(helper: TableId, table: TableId, ends: tuple[str, str]) -> bool:
    name = helper.table or ""
    if helper[:2] != table[:2] or not (name.startswith("_") and name.endswith(ends)):
        return False
    return name[:-4].lstrip("_").casefold() == table.name.lstrip("_").casefold()


# --- names --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Names:
    """The tables of one source that have rows."""

    exact: set[TableId] = field(default_factory=set)
    folded: dict[TableId, set[TableId]] = field(default_factory=lambda: defaultdict(set))

    def add(self, table: TableId) -> None:
        self.exact.add(table)
        self.folded[table.folded].add(table)

    def of(self, table: TableId) -> TableId:
        """The table of this name; letter case is ignored if only one table matches."""
        if table in self.exact:
            return table
        matching = self.folded.get(table.folded, ())
        return next(iter(matching)) if len(matching) == 1 else table


@dataclass(slots=True)
class _Spellings:
    """Which names in another letter case are known to mean the same table.

    A server that keeps the case may have two tables; the rows of the second one come after its CREATE.
    """

    sent: _Sent
    same: set[tuple[TableId, TableId]] = field(default_factory=set)
    there: set[TableId] = field(default_factory=set)  # tables that statements have created
    gone: set[TableId] = field(default_factory=set)  # dropped or renamed away in the rows' spelling

    def note(self, statement: Statement, effect: Effect, table: TableId) -> str | None:
        """The note of an effect on a table; takes account of it."""
        spelling = effect.table, table
        is_same = effect.table == table or spelling in self.same
        if effect.action in LEAVES_NAME and is_same:
            self.gone.add(table)
        if effect.action != "create_table" or (effect.note == "if-not-exists" and table not in self.gone):
            return effect.note
        if not is_same and table not in self.gone and statement.decided != APPROVE:
            seen = self.sent(table).values()
            if table in self.there or any(sent.low < statement.order for sent in seen):
                return DOUBTED
        self.same.add(spelling)
        self.there.add(table)
        self.gone.discard(table)
        return effect.note


def _respelt(statement: Statement, names: _Names, spellings: _Spellings) -> Iterator[Effect]:
    for effect in statement.effects:
        if effect.action == "drop_database":
            yield from _dropped(effect, names)
            continue
        table, to = names.of(effect.table), effect.to
        if isinstance(to, TableId) and names.of(to) != table:
            to = names.of(to)
        note = spellings.note(statement, effect, table)
        if note == DOUBTED and statement.decided == DISMISS:  # another table, which has sent no row yet
            names.add(effect.table)
            table = effect.table
        if effect.action == "truncate" and table != effect.table:
            note = RESPELT
        yield replace(effect, table=table, to=to, note=note)


def _dropped(effect: Effect, names: _Names) -> Iterator[Effect]:
    """A dropped database as drops of its tables."""
    wanted = effect.table
    parts = 1 if wanted.schema is None else 2
    tables = [table for table in names.exact if table[:parts] == wanted[:parts]]
    if not tables:
        tables = [table for table in names.exact if table.folded[:parts] == wanted.folded[:parts]]
    yield effect
    yield from (Effect("drop_table", table) for table in sorted(tables, key=str))


# --- renames ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Made:
    """What was done to tables since they were created or renamed."""

    names: _Names
    sent: _Sent
    came: Came
    effects: dict[TableId, list[Effect]] = field(default_factory=dict)
    # the same under all names that a table has had; a copy LIKE another one begins with what was done to that
    lives: dict[TableId, list[Effect]] = field(default_factory=dict)
    created: dict[TableId, str] = field(default_factory=dict)  # the place of each plain CREATE
    origin: dict[TableId, TableId] = field(default_factory=dict)  # new name to old name
    unread: set[TableId] = field(default_factory=set)
    # by name; of a name that is unused now, the last one
    structures: dict[TableId, Structure] = field(default_factory=dict)

    def take(self, statement: Statement) -> Iterator[Effect]:
        """One statement's effects, with renames replaced by what they do."""
        if statement.kind == "unknown":
            self.unread |= {statement.table, *(effect.table for effect in statement.effects)}
        for said in self._exchanging(statement):
            effect = self._with_copied_key(said, statement)
            if effect.action == "rename_table" and (renamed := effect.other_table):
                yield from self._renamed(effect, effect.table, renamed, statement)
                continue
            if self._attaches_empty(effect, statement):
                yield replace(effect, note=EMPTY)
                continue
            life = self.lives.get(effect.table)
            if effect.action in ("create_table", "drop_table"):
                self._forget(effect.table)
            if effect.action == "create_table":
                self._replace(effect.table)
                self.effects[effect.table] = [effect]
                self.lives[effect.table] = self._begun(effect, life)
                if effect.note != "if-not-exists":
                    self.created[effect.table] = statement.order
            for spelt in self._cased(effect, statement):
                if effect.action not in ("create_table", "drop_table"):
                    self._record(effect.table, spelt)
                self._structure(spelt)
                yield spelt

    def _with_copied_key(self, effect: Effect, statement: Statement) -> Effect:
        """A CREATE ... LIKE with the other table's key, as far as statements show it: messages may name none.

        One for a table that is there already does nothing.
        """
        like = _copied_from(effect)
        if like not in self.structures or (
            effect.note == "if-not-exists" and self._was_there(effect.table, statement)
        ):
            return effect
        return replace(effect, keys=self.structures[like].keys)

    def _was_there(self, table: TableId, statement: Statement) -> bool:
        sent = self.sent(table)
        return bool(self.lives.get(table)) or any(column.low < statement.order for column in sent.values())

    def _record(self, table: TableId, done: Effect) -> None:
        """Keep what a statement has done to a table."""
        if done.note == UNSENT:  # under another name it may have sent rows
            done = replace(done, note=None)
        self.lives.setdefault(table, []).append(done)
        if table in self.effects:
            self.effects[table].append(done)

    def _begun(self, created: Effect, life: list[Effect] | None) -> list[Effect]:
        """What was done to a table that is created, or to the one that it is LIKE; it may exist, with a ``life``."""
        if created.note == "if-not-exists" and life:
            return life
        like = _copied_from(created)
        if like not in self.lives:
            return [created]
        # it has none of the other one's rows
        return [effect for effect in self.lives[like] if effect.action not in _OF_ROWS]

    def _attaches_empty(self, effect: Effect, statement: Statement) -> bool:
        """True if a table without rows becomes a partition; from there on rows of any such table may come under the other name."""
        partition = effect.other_table
        if effect.action != "truncate_partition" or effect.note in (APART, DETACHED) or partition is None:
            return False
        is_empty = self._is_empty(partition, statement)
        self._forget(partition)
        return is_empty

    def _is_empty(self, table: TableId, statement: Statement) -> bool:
        """True if a table has been created, as no partition, and has sent no row since, up to a statement."""
        done: Sequence[Effect] = self.effects.get(table, ())
        if (
            table not in self.created
            or table in self.unread
            or done[0].brings_rows
            or done[0].note == "partition-of"
        ):
            return False
        if any(effect.action in _BRING_ROWS for effect in done):
            return False
        # most partitions send no row under their own name, and `sent` asks for all of them at once
        has_sent = table in self.names.exact or bool(self.sent(table))
        return not has_sent or not self.came(table, self.created[table], statement.order)

    def _exchanging(self, statement: Statement) -> list[Effect]:
        """The effects; renames that exchange names are spelt all together, by the names from before the statement."""
        given = {effect.new_name for effect in statement.effects if effect.note == EXCHANGED}
        return [
            self._spelt(effect, self.structures.get(effect.table, Structure()), statement, given)
            if effect.note == EXCHANGED
            else effect
            for effect in statement.effects
        ]

    def _spelt(
        self, effect: Effect, structure: Structure, statement: Statement, given: Collection[str] = ()
    ) -> Effect:
        """The effect with existing columns in the spelling of statements or of rows, also of columns that a mirror has lost:
        MySQL ignores their letter case.
        """
        if effect.action not in ("add_primary_key", *_OF_A_COLUMN):
            return effect  # and the lake is not asked what rows have had
        rows = self.sent(effect.table)
        sent = rows.keys()
        if effect.note == EXCHANGED:  # rows after the statement show each name under another column
            earlier = {name for name, column in rows.items() if column.low < statement.order}
            made = (
                effect.name.casefold() in structure.names
            )  # else names that it gives may be of later rows in its batch
            spelling = structure.spelling(effect.name, earlier if made else earlier.difference(given))
            return replace(
                effect, column=spelling if spelling in earlier else structure.spelling(spelling, earlier)
            )
        if effect.action == "add_primary_key":
            return replace(effect, keys=tuple(structure.spelling(key, sent) for key in effect.keys))
        spelling = structure.spelling(effect.name, sent - {effect.to})
        # a column that has its new name already is not renamed
        return effect if spelling == effect.to else replace(effect, column=spelling)

    def _cased(self, effect: Effect, statement: Statement) -> Iterator[Effect]:
        """A MODIFY that writes a column in another letter case is also a rename: MySQL gives the column that name."""
        structure = self.structures.get(effect.table, Structure())
        if effect.action == "rename_column" and effect.name == effect.new_name:
            yield from self._respelling(effect, structure, statement)
            return
        if effect.note != EXCHANGED:
            effect = self._spelt(effect, structure, statement)
        name = effect.name
        folded, is_mysql = name.casefold(), effect.dialect in (None, "mysql")
        made = structure.names.get(folded)
        if effect.action == "modify_column" and effect.type is not None and is_mysql and made != name:
            sent = self.sent(effect.table)
            old = made or (name if folded in structure.gone else as_spelt(name, sent.keys() - {name}))
            if old != name and _takes(sent, old, name, statement.order):
                yield Effect("rename_column", effect.table, old, to=name)
        yield effect

    def _respelling(self, effect: Effect, structure: Structure, statement: Statement) -> Iterator[Effect]:
        """``RENAME COLUMN c TO c`` as the change of letter case that it is; nothing if the column has that name."""
        rows = self.sent(effect.table)
        spelt = self._spelt(effect, structure, statement)
        old, name = spelt.name, spelt.new_name
        if old != name and (name in rows or old not in rows or rows[old].high <= statement.order):
            yield spelt

    def _structure(self, effect: Effect) -> None:
        if effect.action != "create_table":
            structure = self.structures.get(effect.table, Structure())
        elif effect.note != "if-not-exists" or effect.table not in self.structures:
            structure = self.structures.get(effect.other_table or NO_TABLE, Structure())
        else:
            return
        self.structures[effect.table] = structure.after(effect)

    def _renamed(self, effect: Effect, old: TableId, new: TableId, statement: Statement) -> Iterator[Effect]:
        """What a rename does to both tables: it takes rows along, brings in a copy, or names an empty table."""
        # what is known of the old name goes over to the new one, whose own table is gone
        before = self.structures.get(new, Structure())
        self.structures[new] = self.structures.get(old, Structure())
        done, origin = self.effects.get(old), self.origin.get(old)
        life = self.lives.get(old, [])
        unread, of_others = old in self.unread, self._rows_are_of_others(old, statement)
        self._forget(old)
        self._forget(new)
        self._replace(new)
        self.lives[new] = life
        if new in statement.carried:  # its rows have come again under the new name, after the statement
            yield Effect("drop_table", old)
            yield from self._carried(new, life, statement)
        elif is_copy(old, new):
            yield Effect("swap_table", new, to=old, note=UNSEEN if done is None or unread else None)
            yield from self._copied(new, done or (), before, statement)
        elif (old in self.names.exact and not of_others) or done is None or unread:
            # a table with rows, or one of which it is not known: the rows go along
            self.origin[new] = old
            self.effects[new] = []
            yield effect
        elif origin == new:
            # it was renamed away and comes back, with what was done to it meanwhile
            yield Effect("swap_table", new, to=old)
            yield from (self._spelt(_emptied(_onto(new, change)), before, statement) for change in done)
        elif _is_created(done) and (of_others or not self.sent(old)):
            # a table that a rule excludes has sent rows, too
            yield Effect("drop_table", old)  # it was empty, and its name is unused
            create, *changes = done
            yield _onto(new, replace(create, note=None))
            yield from (_onto(new, change) for change in changes)
        else:
            # nothing of it has been sent yet: its statements wait under the new name
            self.origin[new] = origin or old
            self.effects[new] = done
            yield effect

    def _carried(self, table: TableId, life: Sequence[Effect], statement: Statement) -> Iterator[Effect]:
        """The creation of a table under another name, with its columns and its key if statements show them, and later effects."""
        known = next((effect for effect in life if effect.action == "create_table"), None)
        created = _onto(table, replace(known or Effect("create_table", table), note=CARRIED))
        self.effects[table], self.created[table] = [created], statement.order
        yield created
        yield from (_onto(table, change) for change in life if change.action != "create_table")

    def _copied(
        self, table: TableId, done: Sequence[Effect], before: Structure, statement: Statement
    ) -> Iterator[Effect]:
        """The columns that were given to a migration tool's copy, which takes the table's place."""
        if done and done[0].action == "create_table" and done[0].columns:
            sent = self.sent(table).items()
            earlier = {name: column.type for name, column in sent if name and column.high < statement.order}
            yield from (_onto(table, change) for change in before.changed_to(done[0], earlier))
        for change in done:
            if change.action != "create_table":
                yield self._spelt(_onto(table, change), before, statement)

    def _rows_are_of_others(self, table: TableId, statement: Statement) -> bool:
        """True if a table's name has rows before a statement or after it, but this table has sent none of them."""
        rows, since = self.sent(table).values(), self.created.get(table)
        if rows and all(statement.order < row.low for row in rows):
            return True
        return bool(rows) and since is not None and not self.came(table, since, statement.order)

    def _replace(self, table: TableId) -> None:
        """Another table has the name now: the earlier table, now elsewhere, is no longer its history."""
        for moved, origin in self.origin.items():
            if origin == table:
                self.origin[moved] = NO_TABLE

    def _forget(self, table: TableId) -> None:
        self.effects.pop(table, None)
        self.lives.pop(table, None)
        self.created.pop(table, None)
        self.origin.pop(table, None)
        self.unread.discard(table)


_BRING_ROWS = ("truncate_partition", "unread", "rename_table", "swap_table")  # or may bring them


def _copied_from(effect: Effect) -> TableId | None:
    """The table that a CREATE ... LIKE copies."""
    is_copy = effect.action == "create_table" and effect.note in ("like", "if-not-exists")
    return effect.other_table if is_copy else None


def _is_created(done: Sequence[Effect]) -> bool:
    """True if the statements on a table begin with its creation, without rows."""
    return bool(done) and done[0].action == "create_table" and not done[0].brings_rows


def _takes(sent: Mapping[str, SentColumn], old: str, name: str, order: str) -> bool:
    """True if rows have a column's other letter case from a statement on, or may have it as far as they show.

    Oracle sends all names in capitals, in whatever letter case its statements write them.
    """
    if name in sent:
        return old in sent or sent[name].low > order
    all_capitals = all(other == other.upper() for other in sent)
    return old not in sent or not (sent[old].high > order or all_capitals)


def _onto(table: TableId, effect: Effect) -> Effect:
    return replace(effect, table=table)


def _emptied(effect: Effect) -> Effect:
    """The effect; a TRUNCATE under another name, for no change of the table says it."""
    return replace(effect, note=REACHED) if effect.action == "truncate" else effect


def leaves_values(effect: Effect, table: TableId) -> bool:
    """True if a statement gave a column of a table's rows values that no message contains."""
    return effect.action in ("add_column", "modify_column", "relabel_column") and leaves_open(effect, table)
