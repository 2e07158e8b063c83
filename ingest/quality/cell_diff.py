"""Compare a mirror's rows cell by cell with the plain fold of their changes.

The plain fold (`ingest.fold`) is the definition of a mirror; it runs here in the driver over the changes of
some keys.  Nothing here knows Spark.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from ingest.change import Change, Image, Op
from ingest.config import conditions
from ingest.fold import (
    DELETED,
    DELETED_AT,
    STAYS,
    Key,
    KeyCellError,
    Placed,
    SchemaStep,
    Step,
    Table,
    is_loaded,
    key_of_change,
    steps,
    texts_of_key,
    typed,
)
from ingest.ledgers.conditions import met_by_texts, values_by_texts
from ingest.ledgers.mirrors import Mirror, Shard
from ingest.ledgers.stamps import change_of
from ingest.order import Order, number_of, order_of
from ingest.quality.subjects import NOTHING_CUT, Cut
from ingest.tables.cell_values import of_column, of_text, shown, text_of
from ingest.types import of_cell

Row = Mapping[str, Any]
Cells = dict[str, object]  # by the mirror's column
_LEAVES = ("delete", "nothing")  # effects of a change that takes the row from its key


@dataclass(slots=True)
class KeyHistory:
    """The changes of some keys of one lane, and the statements that change rows without messages.

    Args:
        rows: with ``op, order_key, partial, before, after, types``.
        steps: their ``order`` is an order key.
        shard: the column that distinguishes the lane's rows from other lanes', and its value.
        whole: no older changes were left out of ``rows``.
        linked: nor were changes of other keys, which rows inherit from.
        rereads: the source sends no inserts, only rows that it reads.
        begins: the order key after which no change of them was left out.
        shared_reads: rows of the source's snapshots share a position.
        cut: the transactions that a batch boundary cuts.
        earlier: changes from before the table had its key, which may come again.
    """

    rows: Iterable[Row] = ()
    steps: Sequence[SchemaStep] = ()
    shard: Shard = ()
    whole: bool = True
    linked: bool = True
    rereads: bool = False
    begins: str = ""
    shared_reads: bool = False
    cut: Cut = NOTHING_CUT
    earlier: Sequence[Row] = ()

    @property
    def events(self) -> Iterator[Placed | SchemaStep]:
        """Each change once, and the steps."""
        seen: set[tuple[object, ...]] = set()
        for row in self.rows:
            same = (row["order_key"], row["op"], row["before"], row["after"])
            if same not in seen:
                seen.add(same)
                yield Placed(order_of(row["order_key"]), change_of(row, self.shard))
        yield from (step.decoded() for step in self.steps)


@dataclass(slots=True)
class Expected:
    """Every key in the changes, and the resulting rows.

    A row has only the known cells: if its older changes were not read, those sent since.
    """

    rows: dict[Key, Cells] = field(default_factory=dict)
    known: set[Key] = field(default_factory=set)
    partly: set[Key] = field(default_factory=set)  # keys of rows with unknown cells
    # cells whose texts are not values of their types
    unfit: set[tuple[Key, str]] = field(default_factory=set)
    texts: dict[Key, tuple[str, ...]] = field(default_factory=dict)  # each key in the source's spelling
    twice: dict[Key, str] = field(default_factory=dict)  # inserted with these values while they were there
    reread: set[Key] = field(default_factory=set)  # read again with other values
    filtered: set[Key] = field(default_factory=set)  # keys of rows that do not meet the mirror's condition
    # values by the source's column, if the mirror does not have it
    beyond: dict[tuple[Key, str], str] = field(default_factory=dict)

    def add(self, other: Expected) -> None:
        """Add the result of another lane of the mirror."""
        for entry in fields(self):
            setattr(self, entry.name, getattr(self, entry.name) | getattr(other, entry.name))

    def forget(self, key: Key) -> None:
        """Remove a key from the expectation."""
        del self.rows[key]
        self.known.discard(key)
        self.partly.discard(key)


class Wrong(NamedTuple):
    """One difference: a cell, or with ``column`` empty a whole row."""

    key: Key
    column: str
    text: str
    blank: bool = False  # the mirror has NULL where the changes give a value


def expected(
    history: KeyHistory, mirror: Mirror, chosen: Callable[[Key], bool] = lambda _key: True
) -> Expected:
    """The rows that the mirror must have for the chosen keys."""
    table = Table(mirror.keys, mirror.key_types, soft=mirror.soft)
    events = list(history.events)
    sent, inserts = _Sent(history, _first_clearing(events, history.begins)), _inserts(history, mirror)
    for step in steps(table, events):
        inserts.take(step)
        if isinstance(step.event, Placed) and step.key:
            sent.take(step, table)
            if _is_cut(step, step.event.change, history):
                table.crossings.doubted.add(step.key)
    wanted, twice, reread = Expected(), inserts.twice, inserts.reread
    present = {*(column.name for column in mirror.columns), DELETED, DELETED_AT}
    for key in filter(chosen, sent.texts):
        if not history.whole and (key in table.crossings.doubted or (mirror.soft and key not in table.rows)):
            continue  # only older changes say which row has left, and what a deleted row holds
        wanted.known.add(key)
        wanted.texts[key] = sent.texts[key]
        if key in twice:
            wanted.twice[key] = twice[key]
        if key in reread:
            wanted.reread.add(key)
        if (live := table.row(key)) is not None:
            _expect(wanted, key, live.values, sent.cells_of(key), mirror, present)
    if mirror.where:
        _filter(wanted, mirror, table, sent)
    if mirror.computed:
        _compute(wanted, mirror, table, sent)
    return wanted


def _first_clearing(events: Iterable[Placed | SchemaStep], begins: str) -> Order | None:
    """Where the table was emptied first, after the place from which on all its changes are given."""
    since = order_of(begins) if begins else None
    places = (event.order for event in events if clears(event) and (since is None or event.order > since))
    return min(places, default=None)


def _is_cut(step: Step, change: Change, history: KeyHistory) -> bool:
    """True if a row leaves its key in a transaction whose beginning is not given."""
    if history.whole or step.effect not in _LEAVES:
        return False
    return change.transaction in history.cut.begun or step.key in history.cut.met


def _expect(
    wanted: Expected, key: Key, values: Image, cells: _Cells, mirror: Mirror, present: Collection[str]
) -> None:
    """Add the cells of a row that are determined; ``present`` are the columns that the mirror has."""
    if cells is not EVERY_CELL:
        wanted.partly.add(key)
    wanted.rows[key] = row = {
        column.name: of_text(values.get(column.name), column.type)
        for column in mirror.columns
        if column.name not in mirror.keys and cells.hold(column.name)
    }
    for name, value in values.items():
        if value is None:
            continue
        if name in row and row[name] is None:
            wanted.unfit.add((key, name))
        if name not in present and cells.hold(name):
            wanted.beyond[key, name] = value


def _filter(wanted: Expected, mirror: Mirror, table: Table, sent: _Sent) -> None:
    """Leave out the rows that do not meet the mirror's condition, and those for which that is unknown."""
    names = conditions.columns(mirror.where)
    columns = mirror.by_name
    for key in list(wanted.rows):
        if not sent.cells_of(key).hold_all({*names} - {*mirror.keys}):
            wanted.forget(key)
    keys = list(wanted.rows)
    texts = _texts_of(keys, names, wanted, mirror, table)
    holds = met_by_texts(mirror.where, texts, [columns[name].delta for name in names])
    for key in (key for key, met in zip(keys, holds, strict=True) if not met):
        del wanted.rows[key]
        wanted.partly.discard(key)
        wanted.filtered.add(key)


def _compute(wanted: Expected, mirror: Mirror, table: Table, sent: _Sent) -> None:
    """Add the computed columns of the rows whose cells they need are known."""
    columns = mirror.by_name
    for column in mirror.computed:
        names = conditions.columns(column.expression)
        keys = []
        for key, row in wanted.rows.items():
            row.pop(column.name, None)
            if sent.cells_of(key).hold_all({*names} - {*mirror.keys}):
                keys.append(key)
        texts = _texts_of(keys, names, wanted, mirror, table)
        made = values_by_texts(column, texts, [columns[name].delta for name in names])
        for key, cell in zip(keys, of_column(made, column.delta), strict=True):
            wanted.rows[key][column.name] = cell


def _texts_of(
    keys: Sequence[Key], names: Sequence[str], wanted: Expected, mirror: Mirror, table: Table
) -> list[list[str | None]]:
    """Some rows' texts of some columns; None for one that is not a value of its column's type."""
    types = mirror.logical_types
    texts = []
    for key in keys:
        row = table.row(key)
        assert row is not None
        values = row.values | dict(zip(mirror.keys, wanted.texts[key], strict=True))
        cells = {name: of_text(values.get(name), types[name]) for name in names}
        texts.append([None if cells[name] is None else values.get(name) for name in names])
    return texts


def inserted_twice(
    history: KeyHistory, mirror: Mirror, *, others: bool
) -> tuple[Inserts, dict[Key, tuple[str, ...]]]:
    """The inserts of some keys, and each key in the source's spelling; ``others`` if other keys were read, too."""
    table = Table(mirror.keys, mirror.key_types)
    inserts, texts = replace(_inserts(history, mirror), others=others), dict[Key, tuple[str, ...]]()
    for step in steps(table, history.events):
        inserts.take(step)
        if step.row is not None:
            texts[step.key] = _texts(mirror.keys, step.row)
    return inserts, texts


def began_incomplete(history: KeyHistory, mirror: Mirror) -> tuple[set[Key], dict[Key, tuple[str, ...]]]:
    """The keys whose row an update of some columns has begun, and each key in the source's spelling.

    A row that has another key now is left out: the changes of the new one may not be given.
    """
    table = Table(mirror.keys, mirror.key_types)
    texts: dict[Key, tuple[str, ...]] = {}
    whole: set[Key] = set()
    for step in steps(table, history.events):
        if step.row is None:
            whole.discard(step.key)
        elif step.effect == "overlay":
            texts[step.key] = _texts(mirror.keys, step.row)
            if isinstance(step.event, Placed) and _is_whole(step.event.change, mirror):
                whole.add(step.key)
    begun = texts.keys() & table.rows.keys() - whole
    incomplete = {key for key in begun if not table.rows[key].complete}
    return incomplete, {key: texts[key] for key in incomplete}


def _is_whole(change: Change, mirror: Mirror) -> bool:
    """True if an update has every column of the mirror, and its image before shows that it has not changed one outside the key:
    by leaving it out while it has others, or with the same value.

    So the update has columns that it has not changed: it was sent whole. A source that sends only key and changed columns may
    have columns that no message has shown yet.
    """
    after, before = change.new_cells, change.old_cells
    others = [column.name for column in mirror.sent if column.name not in mirror.keys]
    is_full = all(column.name in after for column in mirror.sent)
    changed = sum(name in before and before[name] != after[name] for name in others) if is_full else 0
    return is_full and any(name in before for name in others) and changed < len(others)


def _inserts(history: KeyHistory, mirror: Mirror) -> Inserts:
    made = frozenset(column.name for column in mirror.columns if column.made is not None)
    return Inserts(history.rereads, made, cut=history.cut.last)


@dataclass(slots=True)
class Inserts:
    """Keys that were inserted with other values while they existed: the source's own key is a different one.

    Contents that came before are a repetition: a stream goes back, or a table is loaded again. In one load each key is
    read once: if some keys were read with other values, but none with the same and others only once, they are not one
    row either. Readings with a change of any key between them, or with other positions in the log, are of two loads. A
    source that says all by reading (``rereads``) proves nothing by that. What a snapshot of the source itself has read may
    have any values: it was read because the stream had missed something.
    """

    rereads: bool = False
    made: frozenset[str] = frozenset()  # columns that no message carries
    others: bool = False  # keys that are not seen here were read once
    cut: str | None = None  # a transaction in which the former row of a key may still leave
    inserted: dict[Key, str] = field(default_factory=dict)  # with these values
    _there: dict[Key, tuple[object, ...]] = field(default_factory=dict)  # with the place of its last insert
    _contents: dict[Key, set[str]] = field(default_factory=dict)
    _read: dict[Key, tuple[Image, Order, int]] = field(
        default_factory=dict
    )  # with the number of changes before it
    _differ: dict[Key, _Readings] = field(default_factory=dict)
    _changes: list[tuple[int, ...]] = field(default_factory=list)  # the arrival of each
    _loaded: set[Key] = field(default_factory=set)  # keys that were read
    _same: bool = False  # some key was read again with the same values, or after a change

    def _again(self) -> set[Key]:
        """The keys that may have been read by two loads."""
        if self._same or (len(self._differ) == len(self._loaded) and not self.others):
            return {*self._differ}
        changes = sorted(self._changes) if self._differ else []
        return {key for key, readings in self._differ.items() if readings.apart or readings.holds(changes)}

    @property
    def twice(self) -> dict[Key, str]:
        """The keys of several rows, each with the content of the last one."""
        again = self._again()
        return {
            key: _content(readings.sent) for key, readings in self._differ.items() if key not in again
        } | self.inserted

    @property
    def reread(self) -> set[Key]:
        """Keys that were read again with other values, in the course of loading the table again or not."""
        return self._again()

    def take(self, step: Step) -> None:
        """Add what one event did to one key."""
        if step.effect == STAYS:
            # what looked like a second insert was a row that moved onto the key of another one
            self.inserted.pop(step.key, None)
        elif step.effect == "cleared":  # merged rows are gone
            for noted in (self._there, self.inserted, self._read, self._differ, self._loaded, self._changes):
                noted.clear()
            self._same = False
        elif isinstance(step.event, Placed):
            self._take_change(step, *step.event)
        elif step.event.retypes:
            self._there.pop(step.key, None)
            self._read.pop(step.key, None)

    def _take_change(self, step: Step, order: Order, change: Change) -> None:
        key = step.key
        sent = {name: text for name, text in change.new_cells.items() if name not in self.made}
        if is_loaded(order, change):
            self._there.pop(key, None)
            if not self.rereads:
                self._take_read(key, sent, order)
            return
        self._changes.append(order.arrival)
        self._read.pop(key, None)
        if key in self._differ and self._differ[key].holds([order.arrival]):
            del self._differ[key]  # what changed the row between its two readings
        if step.row is None or change.op not in (Op.INSERT, Op.UPDATE):
            self._there.pop(key, None)
        elif change.op is Op.INSERT:
            self._take_insert(key, sent, order, change)

    def _take_insert(self, key: Key, sent: Image, order: Order, change: Change) -> None:
        # an upsert of StreamX is not an insert; rows from under an earlier key come again where a stream goes back beyond it
        if order.half or order.row < 0:
            return
        content = _content(sent)
        contents = self._contents.setdefault(key, set())
        place = order[:4] if order.sequence else order
        ends = self.cut is None or change.transaction != self.cut
        if self._there.get(key, place) != place and content not in contents and ends:
            self.inserted[key] = content
        self._there[key] = place
        contents.add(content)

    def _take_read(self, key: Key, sent: Image, order: Order) -> None:
        if key in self._loaded and key not in self._read:  # a change came in between
            self._same = True
        self._loaded.add(key)
        if key in self._read and not _is_of_another_snapshot(order, self._read[key][1]):
            before, order_then, changes = self._read[key]
            if all(before[name] == sent[name] for name in before.keys() & sent.keys()):
                self._same = True
            else:
                first, last = sorted((order_then.arrival, order.arrival))
                apart = order_then.sequence[:-1] != order.sequence[:-1] or changes < len(self._changes)
                self._differ[key] = _Readings(sent, first, last, apart)
        self._read[key] = sent, order, len(self._changes)


def _is_of_another_snapshot(later: Order, earlier: Order) -> bool:
    """True for the place of a row that a snapshot of the source itself has read after another reading."""
    number = number_of(later)
    return number is not None and number != number_of(earlier)


class _Readings(NamedTuple):
    """Two readings of a key with different values."""

    sent: Image  # the last one
    first: tuple[int, ...]  # arrivals
    last: tuple[int, ...]
    apart: bool  # they have other positions in the log, whatever number the row has there, or changes between them

    def holds(self, arrivals: Sequence[tuple[int, ...]]) -> bool:
        """True if one of the sorted arrivals lies between the two readings."""
        index = bisect_right(arrivals, self.first)
        return index < len(arrivals) and arrivals[index] < self.last


def _content(sent: Image) -> str:
    return json.dumps(sent, sort_keys=True)


def clears(event: Placed | SchemaStep) -> bool:
    """True of what leaves a mirror without a row: a TRUNCATE, and the beginning of a new table."""
    return event.empties if isinstance(event, SchemaStep) else event.change.op is Op.TRUNCATE


class _Cells(NamedTuple):
    """Which cells of a row the given changes determine."""

    names: frozenset[str] | None  # None: every column's

    def hold(self, name: str) -> bool:
        """True if a column's cell is among them."""
        return self.names is None or name in self.names

    def hold_all(self, names: Collection[str]) -> bool:
        """True if the cells of all these columns are among them."""
        return self.names is None or self.names.issuperset(names)

    def and_also(self, names: Iterable[str]) -> _Cells:
        """With further columns."""
        return self if self.names is None else _Cells(self.names.union(names))


EVERY_CELL, NO_CELL = _Cells(None), _Cells(frozenset())


@dataclass(slots=True)
class _Sent:
    """The cells of a row that the given changes determine: without the older ones, only the sent cells."""

    history: KeyHistory
    cleared: Order | None  # no earlier row exists after it
    cells: dict[Key, _Cells] = field(default_factory=dict)
    texts: dict[Key, tuple[str, ...]] = field(default_factory=dict)

    def cells_of(self, key: Key) -> _Cells:
        """The cells of a key's row that are determined."""
        return self.cells.get(key, EVERY_CELL)

    def take(self, step: Step, table: Table) -> None:
        """Add what a change says of a key."""
        assert isinstance(step.event, Placed)
        order, change = step.event
        key = step.key
        if step.effect == STAYS:
            return
        if change.op is Op.TRUNCATE:
            self.cells.pop(key, None)
            return
        concerned = key_of_change(change, table.keys, table.key_types)
        self.texts.setdefault(key, tuple(map(str, concerned.texts[key])))
        if step.row is None:
            self.cells.pop(key, None)
            return
        before = self._cells_before(step, order, change, moved=concerned.left is not None)
        self.cells[key] = before.and_also(change.new_cells)

    def _cells_before(self, step: Step, order: Order, change: Change, *, moved: bool) -> _Cells:
        """Which cells of a row are determined in addition to those that a change sends."""
        if change.partial and moved:
            return EVERY_CELL if self.history.whole and self.history.linked else NO_CELL
        if step.effect != "overlay":
            return EVERY_CELL
        begins = self.history.whole or (self.cleared is not None and order > self.cleared)
        return self.cells.get(step.key, EVERY_CELL if begins else NO_CELL)


def differences(
    wanted: Expected, rows: Iterable[Sequence[object]], mirror: Mirror, types: Sequence[str], closed: bool
) -> Iterator[Wrong]:
    """The differences between the fold and the mirror's rows.

    Args:
        wanted: the result of the fold.
        rows: the mirror's rows, each cell as `ingest.tables.cell_values.of_column` gives it.
        mirror: with its columns in the order of the cells.
        types: the Delta type that each column really has.
        closed: True if a row without any change is surplus.
    """
    columns = mirror.columns
    present: dict[Key, Sequence[object]] = {}
    for row in rows:
        key = key_of_row(row, mirror, types)
        if key is None or not (closed or key in wanted.known):
            continue
        if key in present:
            yield Wrong(key, "", "is there more than once")
        present[key] = row
    for key in sorted(wanted.rows.keys() - present.keys(), key=str):
        yield Wrong(key, "", "is missing, the changes give this row")
    for key in sorted(present.keys() - wanted.rows.keys(), key=str):
        wanted.texts.setdefault(key, tuple(map(str, key)))
        yield Wrong(key, "", "is a row that the changes do not give")
    comparable = [
        (i, column.name, delta)
        for i, (column, delta) in enumerate(zip(columns, types, strict=True))
        if delta == column.delta and column.name not in mirror.keys
    ]
    for key in sorted(wanted.rows.keys() & present.keys(), key=str):
        right = wanted.rows[key]
        for i, name, delta in comparable:
            if name in right and present[key][i] != right[name]:
                text = f"holds {shown(present[key][i], delta)}, the changes give {shown(right[name], delta)}"
                yield Wrong(key, name, text, present[key][i] is None)


def key_of_row(row: Sequence[object], mirror: Mirror, types: Sequence[str]) -> Key | None:
    """The key of a mirror's row, in the fold's form; None for one that no change can have."""
    cells = []
    for column, value, delta in zip(mirror.columns, row, types, strict=True):
        if column.name in mirror.keys:
            if value is None:
                return None
            try:
                cells.append((column.name, typed(of_cell(column.type), text_of(value, delta))))
            except KeyCellError:
                return None
    by_name = dict(cells)
    return tuple(by_name[name] for name in mirror.keys)


def _texts(keys: Sequence[str], *images: Image | None) -> tuple[str, ...]:
    """A key's cells in the source's spelling."""
    return tuple(map(str, texts_of_key(keys, *images)))
