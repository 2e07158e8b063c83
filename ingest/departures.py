"""Which row a departure takes where rows move onto each other's keys.

Oracle checks a key at the end of the statement, PostgreSQL does so for a deferrable one. So ``UPDATE t SET id = id + 1`` is
legal, and is captured row by row: 1 to 2, 2 to 3, 3 to 4. When a row arrives at a key that has a row, the older one, the
*former* row, still has to leave: it is owed a departure. The next departure from that key takes the row that its image
before describes; if this describes both or neither, the one that is owed, within one transaction.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ingest import types
from ingest.change import Change, Image, Op
from ingest.order import Order
from ingest.values.same_value import same_value


class PresentRow(Protocol):
    """A row of the fold, with the transaction in which it came to its key."""

    values: Image
    types: Mapping[str, str]
    arrived: str | None
    place: Order | None
    loaded: bool


class PlacedChange(Protocol):
    """A change with its place."""

    @property
    def order(self) -> Order: ...
    @property
    def change(self) -> Change: ...


class Departure(NamedTuple):
    """What a departure takes from a key that has a row.

    Attributes:
        takes: the row that leaves; None if it is not known or has left before.
        stays: True if the row that has the key now keeps it.
        returns: a former row that has the key alone again.
        undecided: True if another row was at the key before, and neither images nor a transaction say which one leaves.
    """

    takes: Any
    stays: bool = False
    returns: Any = None
    undecided: bool = False


class _Owed(NamedTuple):
    """A former row that still has to leave its key."""

    row: Any
    transaction: str | None
    by_move: bool  # the newcomer had another key: no source does so for what is an update

    def departure(self, change: Change, present: PresentRow) -> Departure:
        """What a departure of the same transaction takes, or one outside of transactions."""
        of_former, of_present = (_describes(change, row) for row in (self.row, present))
        if self.transaction is not None:
            if of_present and not of_former:
                return Departure(present, returns=self.row)
            return Departure(self.row, stays=True)
        if not of_former:
            return Departure(present)
        if not of_present or self._is_twin(change, present):
            return Departure(self.row, stays=True)
        return Departure(present, undecided=self.by_move and self.row.values != present.values)

    def _is_twin(self, change: Change, present: PresentRow) -> bool:
        """True if an equal row stays, whichever leaves; but a row of a load may be the one that has come."""
        if not self.by_move or self.row.loaded:
            return False
        return _says_all(change) or _are_equal(self.row.values, present.values)


class _Settled(NamedTuple):
    row: Any
    transaction: str | None
    said: Hashable
    place: Order | None  # of an insert that names its old key, before whose delete it has come


@dataclass(slots=True)
class Crossings:
    """The keys at which rows have met, in the order of history."""

    _owed: dict[Hashable, _Owed] = field(default_factory=dict)
    _settled: dict[Hashable, _Settled] = field(default_factory=dict)
    _begun: dict[Hashable, str | None] = field(
        default_factory=dict
    )  # where a row came before any other change
    _left: set[Hashable] = field(default_factory=set)  # which a row that is not known has left
    # what the move said that brought a key's row, where only that tells whether it comes again
    _moved: dict[Hashable, Hashable] = field(default_factory=dict)
    doubted: set[Any] = field(default_factory=set)
    """Keys whose row leaves that had come to them in the same transaction, if nothing is known of them before it: if a row
    was there, it may be the one that leaves."""

    def arrive(
        self, key: Hashable, event: PlacedChange, present: PresentRow | None, values: Image, *, had_row: bool
    ) -> None:
        """Take note that a row comes to a key that may have one; ``had_row`` if the key has ever had one."""
        transaction = transaction_of(event.change)
        moves_again = self._moves_again(key, event)
        owed, settled = self._owed.get(key), self._settled.get(key)
        if settled is not None and settled.transaction != transaction:
            del self._settled[key]
        if present is None:
            self._owed.pop(key, None)
            if not had_row and key not in self._left:
                self._begun[key] = transaction
            return
        owes = owed is not None and owed.transaction == transaction  # a row that was there before both
        if not owes and not moves_again and not _comes_again(event, present, values):
            self._owed[key] = _Owed(present, transaction, event.change.op is Op.UPDATE)

    def _moves_again(self, key: Hashable, event: PlacedChange) -> bool:
        """Note a move; true if it is the one that brought the key's row, sent again: without a position only its content tells."""
        if event.order.sequence or event.change.op is not Op.UPDATE:
            self._moved.pop(key, None)
            return False
        content, last_content = _said(event), self._moved.get(key)
        self._moved[key] = content
        return content == last_content

    def change(self, key: Hashable) -> None:
        """Take note that a message changes the row of a key: outside of transactions no departure is owed then."""
        self._moved.pop(key, None)
        if key in self._owed and self._owed[key].transaction is None:
            del self._owed[key]
        if self._begun.get(key, "") is None:
            del self._begun[key]

    def clear(self) -> None:
        """Forget all: no row from before is there."""
        for keys in (self._owed, self._settled, self._begun, self._moved, self.doubted):
            keys.clear()

    def leaving(self, key: Hashable, event: PlacedChange, present: PresentRow | None) -> Departure:
        """What a departure takes from a key, without applying it."""
        if present is None:
            return Departure(None)
        transaction = transaction_of(event.change)
        settled, owed = self._settled.get(key), self._owed.get(key)
        # an insert that names its old key follows the delete, or comes before it; the same message may come again
        if settled is not None and settled.transaction == transaction and _is_settled(event, settled):
            return Departure(settled.row, stays=True)
        if owed is None or owed.transaction != transaction:
            return Departure(present)
        return owed.departure(event.change, present)

    def depart(self, key: Hashable, event: PlacedChange, present: PresentRow | None) -> Departure:
        """What a departure takes from a key."""
        taken = self.leaving(key, event, present)
        transaction = transaction_of(event.change)
        self._owed.pop(key, None)
        if taken.stays:
            place = event.order if event.change.op is Op.INSERT else None
            self._settled[key] = _Settled(taken.takes, transaction, _said(event), place)
            return taken
        self._settled.pop(key, None)
        self._moved.pop(key, None)
        if present is None:
            self._left.add(key)
        elif key in self._begun:
            begun = self._begun.pop(key)
            if begun == transaction and (transaction or not _describes(event.change, present)):
                self.doubted.add(key)
        return taken


NO_TRANSACTION = ("", "0")
"""What messages say that name no transaction."""


def transaction_of(change: Change) -> str | None:
    """The transaction of a change; None if its message names none."""
    return change.transaction if change.transaction not in NO_TRANSACTION else None


def _comes_again(event: PlacedChange, present: PresentRow, values: Image) -> bool:
    """True if a row that comes to a key is the one that has it: its message is repeated."""
    order, place = event.order, present.place
    if present.arrived != transaction_of(event.change) or not _are_equal(present.values, values):
        return False
    return not order.sequence or place is None or place[:4] == order[:4]


def _is_settled(event: PlacedChange, settled: _Settled) -> bool:
    """True if a departure is one that was settled before: both halves of a move have one position, and come in any order."""
    if event.change.op is Op.INSERT or settled.said == _said(event):
        return True
    place = settled.place
    return place is not None and bool(place.sequence) and place[:4] == event.order[:4]


def _said(event: PlacedChange) -> Hashable:
    order, change = event.order, event.change
    place: Hashable = (order[:4], order.row) if order.sequence else change.event_time
    return place, *content_of(change)


def content_of(change: Change) -> tuple[Hashable, ...]:
    """What a change says, wherever it is written."""
    images = (None if image is None else frozenset(image.items()) for image in (change.before, change.after))
    return change.op, *images


def _says_all(change: Change) -> bool:
    """True if an update says of the row before it what it says of that after it: all that its table has."""
    return (
        change.op is Op.UPDATE and not change.partial and change.new_cells.keys() <= change.old_cells.keys()
    )


def _are_equal(first: Image, second: Image) -> bool:
    """True if two rows have the same cells; a column that one of them lacks is NULL there."""
    return all(first.get(name) == second.get(name) for name in first.keys() | second.keys())


def _describes(change: Change, row: PresentRow) -> bool:
    """True if a row may be the one that a change says was there."""
    for column, said in change.old_cells.items():
        if column in row.values:
            kind = types.first_known(change.types.get(column), row.types.get(column))
            # where a dialect hides large values, an update whose images both have NULL says nothing of the column
            is_hidden = said is None and types.base(kind) in MAY_BE_LARGE and not _stays_null(change, column)
            if not is_hidden and not same_value(kind, said, row.values[column]):
                return False
    return True


def _stays_null(change: Change, column: str) -> bool:
    return change.after is not None and change.after.get(column, "") is None


MAY_BE_LARGE = frozenset({"string", "binary", "json", "geometry", "unknown"})
"""The logical types whose values a dialect may leave out because they are large."""
