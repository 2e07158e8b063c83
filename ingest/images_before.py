"""Compare what a change says its row was with the row that the fold has there.

Most dialects send with an update or a delete what the row was before, whole or in the columns that changed. If that is not
the row that the earlier changes give, a message was lost, the order or the key is wrong, or a statement changed rows
otherwise than it was understood. So each change proves the one before it, and a chain of changes that closes is proven by
the source's own words.

A difference proves nothing where the source's own ways explain it (`Excuse`): a message that came again, a row that was
loaded at no known place among the changes, another epoch, a large value that the dialect does not send.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ingest import types
from ingest.change import Change, Image, Op
from ingest.departures import MAY_BE_LARGE, transaction_of
from ingest.errors import counted
from ingest.fold import (
    OPEN,
    Key,
    KeyCellError,
    Placed,
    Row,
    SchemaStep,
    Step,
    Table,
    in_order,
    is_loaded,
    key_of_change,
    steps,
)
from ingest.order import Order, number_of
from ingest.values.same_value import same_value


class Excuse(StrEnum):
    """Why an image before that differs from the row proves nothing."""

    REPEATED = "the same change came before"
    LOADED = "the row was loaded, and the load may have read it after this change"
    EPOCH = "the source's positions started again between the two"
    LEFT_OUT = "a load that ran beside the changes may not have read the row"
    MOVED = "another message of the same place has taken the row away"


@dataclass(frozen=True, slots=True)
class ImagesBefore:
    """How a dialect writes what rows were before, and by what its repetitions are known.

    Args:
        hides_large: a large value that the source does not know is NULL.
        changed_only: an update's image has the columns that changed, maybe more; the others are those of the image after.
        key_deletes: where the images of a table's updates have no more than its key, so has that of a delete: other columns
            are NULL, zero or their default (Debezium documentation, PostgreSQL connector, replica identity). Not of rows
            whose positions are of `WHOLE_ROWS` numbers.
        renumbers: positions are counted by the task that reads the source's log: one that is put back may count on, and
            give what it sends again higher positions.
        counts_rows: a position ends with a count of rows, which may start again inside one position (`ingest.formats.About`).
        shared_reads: rows of a snapshot carry the log's position when it was taken (`ingest.formats.About`).
        clocks_messages: where a message names no transaction, its time is that of the message, not that of the change.
    """

    hides_large: bool = False
    changed_only: bool = False
    key_deletes: bool = False
    renumbers: bool = False
    counts_rows: bool = False
    shared_reads: bool = False
    clocks_messages: bool = False

    def may_fill(self, order: Order) -> bool:
        """True if the source's log may have no more than the key of a row that is deleted at a place."""
        return self.key_deletes and len(order.sequence) < WHOLE_ROWS

    def of(self, change: Change) -> Image:
        """What a change says of its row before it, as far as it does."""
        if self.changed_only and change.op is Op.UPDATE:
            return {**change.new_cells, **change.old_cells}
        return change.old_cells

    def identities(self, event: Placed) -> Iterator[Hashable]:
        """What a change has in common with its repetitions: what it says, at the source's position or moment.

        What it says does not suffice: a row may become A, B and A again, and the change between may be lost.
        """
        order, change = event
        says = change.op, _content(change.before), _content(change.after)
        if order.sequence:
            position = order.sequence[:-1] if self.counts_rows and len(order.sequence) > 1 else order.sequence
            yield order.epoch, order.phase, position, order.half, says
        if not order.sequence or (self.renumbers and change.event_time is not None):
            transaction = transaction_of(change)
            is_timed = transaction is not None or not self.clocks_messages
            yield change.event_time if is_timed else None, transaction, says


WHOLE_ROWS = 3
"""The numbers of a position in the logs of MySQL, Oracle and SQL Server, which have deleted rows whole: of PostgreSQL's, one or two."""


WHOLE = ImagesBefore()


class Mismatch(NamedTuple):
    """What an image before says otherwise than the row; an empty ``column`` if there is no such row."""

    column: str
    said: str | None
    had: str | None


TWO_ROWS = Mismatch("", "two rows", "two rows")
"""Two rows have met at the key, and neither images nor a transaction say which of them leaves it."""


NEVER_CAME = Mismatch("", "a row", None)
"""No message has brought the row, although those of all rows have come: one is lost, maybe the change of its key."""


OTHER_INDEX = Mismatch("", "another index", None)
"""A delete names its row by other columns than the key, as with PostgreSQL's REPLICA IDENTITY USING INDEX."""


NO_ROW = Mismatch("", None, None)
"""The changes before have deleted or moved the row."""


class Link(NamedTuple):
    """A change with an image before, compared with the row that it changes; it closes without differences."""

    event: Placed
    key: Key
    differences: tuple[Mismatch, ...]  # `TWO_ROWS` alone if nothing says which one it changes
    excuse: Excuse | None = None

    @property
    def is_unsent(self) -> bool:
        """True if no message has brought the row."""
        return self.differences in ((NEVER_CAME,), (OTHER_INDEX,))

    @property
    def is_broken(self) -> bool:
        """True if a message was lost, or something was misread."""
        return bool(self.differences) and self.excuse is None


@dataclass(slots=True)
class Chain:
    """The changes of a table's keys in the order of history, each compared with the row that it changes.

    Args:
        table: the state of the fold; a change is compared before it is applied.
        logical: the logical type of each column for which messages name none.
        images: how the dialect writes images before.
        loads: the table was loaded, maybe while changes came.
        inserts: new rows are sent as inserts: a writer of upserts sends them as updates. Not needed of rows that came as inserts.
        tells: whether the table's last update before a place had an image with more than its key. If None, those of the
            chain's own updates say it.
    """

    table: Table
    logical: Mapping[str, str] = field(default_factory=dict)
    images: ImagesBefore = WHOLE
    loads: bool = False
    inserts: bool = False
    tells: Callable[[Order], bool] | None = None
    _empty: Order | None = None  # where the table was last known to have no row
    _said: set[Hashable] = field(default_factory=set)  # identities of the changes before this one
    _loaded: set[Key] = field(
        default_factory=set
    )  # keys that were read at no place among the changes, or after it
    _last: dict[Key, Order] = field(default_factory=dict)  # the place of each key's last change
    _inserted: set[Key] = field(default_factory=set)  # keys whose new rows come as inserts, not as updates
    _told: bool = False  # the last update's image before had more than its key
    _open: set[tuple[Key, str]] = field(
        default_factory=set
    )  # cells to which a statement gave values that no message has

    def steps(
        self, events: Iterable[Placed | SchemaStep]
    ) -> Iterator[tuple[Placed | SchemaStep, list[Step], Link | None]]:
        """Apply events in their order; yields each with what it did, and its link if it has an image before."""
        for event in in_order(events):
            link = self._link(event) if isinstance(event, Placed) else None
            done = list(steps(self.table, [event]))
            if isinstance(event, Placed):
                self._take(event, done)
            elif event.empties:
                self._empty = None if event.filled else event.order
            elif event.action == OPEN:
                self._open |= {
                    (key, event.column)
                    for key, row in self.table.rows.items()
                    if event.column not in row.values and event.meets(row)
                }
            yield event, done, link

    def remember(self, event: Placed) -> None:
        """Take note of a change, whose message may come again; also of one from before the table had its key."""
        if event.change.before is not None or event.change.op is Op.UPDATE:
            self._said.update(self.images.identities(event))

    def _link(self, event: Placed) -> Link | None:
        change = event.change
        if change.op not in (Op.UPDATE, Op.DELETE):
            return None
        try:
            concerned = key_of_change(change, self.table.keys, self.table.key_types)
        except KeyCellError:
            return None  # rejected
        key = concerned.before
        if change.before is None:
            return self._without_image(event, key)
        leaves = change.op is Op.DELETE or concerned.left is not None
        row = self.table.rows.get(key)
        if leaves:
            departure = self.table.crossings.leaving(key, event, row)
            if departure.undecided:
                return Link(event, key, (TWO_ROWS,), self._repeated(event))
            row = departure.takes
        if row is None and key not in self.table.last:
            return self._without_past(event, key)
        link_faults = tuple(self._differences(change, key, row))
        may_fill = change.op is Op.DELETE and row is not None and self.images.may_fill(event.order)
        if link_faults and may_fill and not self._tells_row(event):
            link_faults = ()
        return Link(event, key, link_faults, self._excuse(event, key, link_faults) if link_faults else None)

    def _without_image(self, event: Placed, key: Key) -> Link | None:
        """The link of an update that says nothing of its row, where there is none: the row was deleted, or has left the key.

        Only where inserts are sent as such, and not of a key's image after whose image before is a message of its own.
        """
        is_told = event.change.op is Op.UPDATE and key in self._inserted and not event.order.half
        if not is_told or key in self.table.rows:
            return None
        return Link(event, key, (NO_ROW,), self._excuse(event, key))

    def _without_past(self, event: Placed, key: Key) -> Link | None:
        """The link of a row that no message has brought, which may be right: only of a table that was empty all rows have come.

        A load that runs while changes come, and has no place among them, does not read what is deleted or moved meanwhile.
        """
        may_fill = self.images.may_fill(event.order) and lacks_key(event.change, self.table.keys)
        if may_fill and not self._tells(event.order):
            return Link(event, key, (OTHER_INDEX,))
        if self._empty is None or self._empty.epoch != event.order.epoch:
            return Link(event, key, (NEVER_CAME,), Excuse.EPOCH) if self.loads else None
        excuse = Excuse.LEFT_OUT if self.loads and not event.order.sequence else None
        return Link(event, key, (NEVER_CAME,), excuse)

    def _differences(self, change: Change, key: Key, row: Row | None) -> Iterator[Mismatch]:
        if row is None:
            yield NO_ROW
            return
        for column, said in self.images.of(change).items():
            had = row.values.get(column)
            if said == had or self._is_unsure(column, said, change, key, row):
                continue
            sent, held = change.types.get(column), row.types.get(column)
            kind = types.first_known(sent, held, self.logical.get(column))
            if not self._may_hide(change, column, said, kind) and not same_value(kind, said, had):
                yield Mismatch(column, said, had)

    def _tells_row(self, event: Placed) -> bool:
        """True if a delete's image has more than the key; the table's replica identity may be another one since its last update."""
        filled = _filled(event.change, event.change.old_cells.keys() - {*self.table.keys})
        return bool(filled) and self._tells(event.order)

    def _tells(self, order: Order) -> bool:
        """True if the table's last update before a place had an image with more than its key."""
        return self._told if self.tells is None else self.tells(order)

    def _is_unsure(self, column: str, said: str | None, change: Change, key: Key, row: Row) -> bool:
        """True if the changes before do not give the value that a row had in a column of an image before."""
        if column not in row.values and (said is None or not row.complete):
            return True
        if row.values.get(column) is None and (key, column) in self._open:
            return True
        # what an instant is without a zone depends on the session that converted the column
        return _moves_in_time(change.types.get(column), row.types.get(column))

    def _may_hide(self, change: Change, column: str, said: str | None, kind: str) -> bool:
        """True if NULL before may stand for a large value: silver leaves out such a column if it is NULL after, too."""
        if said is not None or not self.images.hides_large or types.base(kind) not in MAY_BE_LARGE:
            return False
        return change.op is not Op.UPDATE or change.new_cells.get(column) is not None

    def _excuse(self, event: Placed, key: Key, differences: Sequence[Mismatch] = ()) -> Excuse | None:
        if repeated := self._repeated(event):
            return repeated
        if key in self._loaded and not self._is_after_load(event, key, differences):
            return Excuse.LOADED
        last = self._last.get(key)
        if last is None or last.epoch != event.order.epoch:
            return Excuse.EPOCH
        if event.order.sequence and last[:4] == event.order[:4] and key not in self.table.rows:
            return Excuse.MOVED
        return None

    def _repeated(self, event: Placed) -> Excuse | None:
        return None if self._said.isdisjoint(self.images.identities(event)) else Excuse.REPEATED

    def _is_after_load(self, event: Placed, key: Key, differences: Iterable[Mismatch]) -> bool:
        """True if a change was written after the load that read its row, as PostgreSQL's positions say of both.

        A row that is already as the change makes it was read later than its position says.
        """
        read, cells = self._last[key], event.change.new_cells
        is_placed = not read.phase and bool(read.sequence) and number_of(read) is None
        return (
            self.images.shared_reads
            and is_placed
            and event.order.sequence > read.sequence
            and any(each.had != cells.get(each.column) for each in differences)
        )

    def _take(self, event: Placed, done: Iterable[Step]) -> None:
        order, change = event
        if change.op is Op.UPDATE:
            self._told = not change.old_cells.keys() <= set(self.table.keys)
        # a row of a load that was not read at a place among the changes, or that was read, or was gone, later than its place
        number = number_of(order)
        is_read = number is not None and number != order.arrival[0]
        loads = is_read or (is_loaded(order, change) and not (order.phase and order.sequence))
        # not the mark before rows that were read later than at their place
        if change.op is Op.TRUNCATE and not is_read:
            self._empty = order
        is_new = self.inserts if loads or change.op is Op.READ else change.op is Op.INSERT
        for step in done:
            self._last[step.key] = order
            if self._open:
                self._open -= {(step.key, column) for column in change.new_cells}
            if loads:
                self._loaded.add(step.key)
            else:
                self._loaded.discard(step.key)
            if is_new:
                self._inserted.add(step.key)
        self.remember(event)


def lacks_key(change: Change, keys: Sequence[str]) -> bool:
    """True of a delete whose row is named by some other columns than the key, which has the values that mean an unknown one.

    An image with all other columns is that of a row whose key is zero, by REPLICA IDENTITY FULL.
    """
    others = change.old_cells.keys() - {*keys}
    said = _filled(change, change.old_cells)
    return change.op is Op.DELETE and bool(said) and said < others


def _filled(change: Change, names: Iterable[str]) -> set[str]:
    """Those of some columns in which an image before has neither NULL nor a zero, as the log has it in place of no value."""
    return {name for name in names if (change.old_cells.get(name) or "").strip("0.")}


def _moves_in_time(now: str | None, then: str | None) -> bool:
    """True if a column's type was, between two messages, changed to or from an instant."""
    if now == then:
        return False
    kinds = {types.base(now or "unknown"), types.base(then or "unknown")}
    return "timestamp" in kinds and bool(kinds & {"datetime", "date"})


def _content(image: Image | None) -> frozenset[tuple[str, str | None]]:
    return frozenset((image or {}).items())


def in_words(differences: Sequence[Mismatch]) -> str:
    """What a change says of its row that is not so."""
    if differences[0] in _ALONE:
        return _ALONE[differences[0]]
    parts = [
        f"{each.column} was {_shown(each.said)}, the changes before give {_shown(each.had)}"
        for each in differences[:_SHOWN]
    ]
    more = f" and {counted(len(differences) - _SHOWN, 'more column')}" if len(differences) > _SHOWN else ""
    return f"a change says that {', '.join(parts)}{more}"


_ALONE = {
    TWO_ROWS: (
        "a row leaves this key to which another one has moved, and neither its image before nor a transaction says which "
        "of the two it is: the later one is taken"
    ),
    OTHER_INDEX: (
        "a delete names its row by other columns than this key, as with PostgreSQL's REPLICA IDENTITY USING INDEX: write the "
        "index' columns as `keys:` of the table"
    ),
    NEVER_CAME: "a change says that a row was there, and no message has brought one",
    NO_ROW: "a change says that a row was there, and the changes before it give none",
}
_SHOWN = 2


def _shown(text: str | None, most: int = 60) -> str:
    if text is None:
        return "NULL"
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."
