"""Rows of one position whose counter starts again: a compressed transaction of MySQL is one event with many inside.

MySQL's log position is that of the outer event for all of them, and Debezium counts the rows of each inner one from 0. Inside
one position the order of arrival is the truth, so a counter that starts again goes on from the last one. Messages that
come again from an earlier position get the numbers that they had, so they are known as repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from ingest.change import Change, Op

Stream = tuple[str, int]
"""Topic and partition: what they send arrives in its order."""
_ARRIVING = frozenset({Op.INSERT, Op.UPDATE})


@dataclass(slots=True)
class _Last:
    """The last row of a stream: its change as sent, and the number that it got."""

    change: Change
    number: int


class Restarts:
    """Numbers the rows of each position in the order of their arrival, where the source counts some of them alike."""

    def __init__(self) -> None:
        self.last: dict[Stream, _Last] = {}

    def numbered(self, stream: Stream, change: Change) -> Change:
        """The change, whose sequence ends with a higher number than that of the row before it at its position.

        A changed key comes as a delete and an insert with one number, and a message that comes again as it was.
        """
        *position, number = change.sequence
        last = self.last.get(stream)
        if last is None or list(last.change.sequence[:-1]) != position:
            self.last[stream] = _Last(change, number)
            return change
        counted = last.change.sequence[-1]
        if number > counted:
            now = last.number + number - counted
        elif number == counted and (_is_move(last.change, change) or _is_same(last.change, change)):
            now = last.number
        else:
            now = last.number + 1 + number
        self.last[stream] = _Last(change, now)
        return change if now == number else replace(change, sequence=(*position, now))


def _is_move(before: Change, after: Change) -> bool:
    return before.op is Op.DELETE and after.op in _ARRIVING and before.table == after.table


def _is_same(change: Change, other: Change) -> bool:
    return (change.table, change.op, change.before, change.after) == (
        other.table,
        other.op,
        other.before,
        other.after,
    )
