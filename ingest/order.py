"""A change's place in history, and its only text form.

`Order` is compared field by field as numbers; `order_key` writes it as text whose byte order is the same
order, so that any engine can sort by it. Only this module knows the text's encoding: in Python, for many rows at once,
and in SQL.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ingest.change import Change, ChangeColumns

RANK = (
    2**31 - 1
)  # of the source, in the arrival of rows that this product has read or carried over: after all that a batch holds
LAST_PLACE = "~"  # sorts after the key of every place
AFTER_ITS_ROW = 2  # the half of a table event without a position, which is placed by the row before it


class Order(NamedTuple):
    """A change's place in history. Python's own tuple comparison is the order.

    Args:
        epoch: the part of the source's history whose positions can be compared.
        phase: 0 for a row of a full load whose place among the changes is not known: it comes before them; else 1.
        sequence: the source's own position, by which repeats are known; empty if arrival decides.
        half: of changes at one position, 1 for the image after where that before is a message of its own, then
            `AFTER_ITS_ROW`, then those of `ingest.source.place`; else 0.
        arrival: where the message was read, see `arrival_keys`: decides between changes at one position.
        row: the number of the change in its message.
    """

    epoch: int
    phase: int
    sequence: tuple[int, ...]
    half: int
    arrival: tuple[int, ...]
    row: int

    @property
    def has_second_only(self) -> bool:
        """True for a table event that came before all rows of its stream, so that its second alone places it."""
        return self.half == AFTER_ITS_ROW and len(self.sequence) == 1


def number_of(order: Order) -> int | None:
    """The number of the snapshot to which a place belongs, as a row or an end mark of it; None for the stream's.

    It is higher than that of the last batch before; rows that are carried over have that of their batch.
    """
    return order.arrival[2] if len(order.arrival) > 2 and order.arrival[1] == RANK else None


def number_key(n: int) -> str:
    """Write an integer so that text order is number order: a length mark, then the digits."""
    if n < 0:
        digits = str(-n).translate(_NINES)
        return "-" + _length_mark(len(digits)).translate(_INVERT) + digits
    digits = str(n)
    return _length_mark(len(digits)) + digits


def order_key(order: Order) -> str:
    """`Order` as one text whose code-point order equals tuple order (a property test proves it)."""
    epoch, phase, sequence, half, arrival, row = order
    return (
        number_key(epoch)
        + number_key(phase)
        + "".join(map(number_key, sequence))
        + _END
        + number_key(half)
        + arrival_key(arrival)
        + _END
        + number_key(row)
    )


def same_place(key: str) -> str:
    """The part of an order key before arrival: equal for repeats of one change, and for ties."""
    end = key.index(_END)
    mark = end + 1
    return key[: mark + 1 + _MARKS.index(key[mark])]


def other_half(key: str) -> str:
    """`same_place` of the other half of a key change that is sent as a delete and an insert; empty if there is none."""
    order = order_of(key)
    if not order.sequence or order.half not in (0, 1):
        return ""
    return key[: key.index(_END) + 1] + number_key(1 - order.half)


def last_repeat(key: str) -> str:
    """A text after the order keys of all repeats of a change, whenever they arrive; the same key where arrival decides.

    Rows of a snapshot are placed before all changes, so they repeat each other.
    """
    if not key:
        return key
    head, _ = _numbers(key, 0)
    return key if head[1] and not head[2:] else f"{same_place(key)}~~"


def behind(key: str) -> str:
    """A place after all rows that were landed again for a statement (`carried_to`) where arrival decides, and before what
    arrived after it.
    """
    order = order_of(key)
    return order_key(order._replace(arrival=(*order.arrival, _FEW)))


def carried_to(key: str, number: int, arrival: tuple[int, ...]) -> Order:
    """The place of rows that are landed again right after a statement, as what it brought to its table.

    Args:
        key: the statement's place.
        number: of this landing: a later one comes after it.
        arrival: where the rows lie among those of the landing; the mark before them, which empties the table, is number 0.
    """
    order = order_of(key)
    if not order.sequence:
        return order._replace(arrival=(*order.arrival, number, *arrival[2:]), row=0)
    half = _OF_OWN if arrival[-1] else _OF_OWN - 1
    return order._replace(sequence=(*order.sequence, number), half=half, arrival=arrival, row=0)


def is_weak(key: str) -> bool:
    """True if an order key has no sequence, so that arrival decides."""
    return not order_of(key).sequence


def phase_of(key: str) -> int:
    """The phase in an order key, or in a `same_place` of one."""
    return _numbers(key, 0)[0][1]


def order_of(key: str) -> Order:
    """Decode an order key to its `Order`."""
    head, place = _numbers(key, 0)
    half, place = _number(key, place)
    arrival, place = _numbers(key, place)
    row, _ = _number(key, place)
    return Order(head[0], head[1], head[2:], half, arrival, row)


def _numbers(key: str, place: int) -> tuple[tuple[int, ...], int]:
    """The numbers up to the next end mark, and the place after it."""
    numbers: list[int] = []
    while key[place] != _END:
        number, place = _number(key, place)
        numbers.append(number)
    return tuple(numbers), place + 1


def _number(key: str, place: int) -> tuple[int, int]:
    """The number that is written at a place, and the place after it."""
    if (length := _LENGTHS.get(key[place], -1)) >= 0:  # nearly every number
        return int(key[place + 1 : place + 1 + length]), place + 1 + length
    if key[place] == "-":
        length, place = _length(key, place + 1, _UNINVERT)
        return -int(key[place : place + length].translate(_NINES)), place + length
    length, place = _length(key, place, {})
    return int(key[place : place + length]), place + length


def _length(key: str, place: int, marks: Mapping[int, int]) -> tuple[int, int]:
    """The number of digits that the mark at a place means; 36 and more are written as a number themselves."""
    mark = key[place].translate(marks)
    if mark != "~":
        return _MARKS.index(mark), place + 1
    if not marks:
        return _number(key, place + 1)
    digits = _MARKS.index(key[place + 1].translate(marks))
    end = place + 2 + digits
    return int(key[place + 2 : end].translate(marks)), end


_MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTHS = {mark: length for length, mark in enumerate(_MARKS)}
_END = "!"  # sorts before every length mark and before "-": a shorter sequence comes first
_NINES = str.maketrans("0123456789", "9876543210")
_INVERT = str.maketrans(_MARKS + "~", (_MARKS + "~")[::-1])
_UNINVERT = {
    ord(inverted): ord(mark) for mark, inverted in zip(_MARKS + "~", (_MARKS + "~")[::-1], strict=True)
}


def _length_mark(n: int) -> str:
    if n < len(_MARKS):
        return _MARKS[n]
    return "~" + number_key(n)  # recursion: 36 digits and more carry the length as a number


# --- many rows at once ----------------------------------------------------------------------------

_OF_OWN = 3  # the half of rows that this product has placed itself, as `ingest.source.place` does
_FEW = 10**35  # numbers below it have one length mark before their digits
_DIGITS = ["", *(number_key(10**digits)[0] for digits in range(35))]
small_key = lru_cache(maxsize=4096)(number_key)
"""`number_key` for the numbers that recur: phases, halves, rows."""
SECOND_HALF = f"^[^{_END}]*{_END}{number_key(1)}"
"""A pattern of the order keys of images after whose images before are messages of their own."""


def number_keys(numbers: Sequence[int]) -> list[str]:
    """`number_key` of many numbers; those below 36 digits need no call each."""
    if not numbers or min(numbers) < 0 or max(numbers) >= _FEW:
        return list(map(number_key, numbers))
    if _are_one(numbers):
        return [number_key(numbers[0])] * len(numbers)
    return [_DIGITS[len(digits)] + digits for digits in map(str, numbers)]


def _are_one(values: Sequence[object]) -> bool:
    """True if all of some values are equal; where the last is not as the first, no other is looked at."""
    return values[0] == values[-1] and values.count(values[0]) == len(values)


def order_keys(
    rows: Sequence[Change], message_rows: Sequence[int], arrivals: Sequence[str], epoch: int, order_by: str
) -> list[str]:
    """`order_key` of many changes; ``message_rows`` is the bronze row of each, ``arrivals`` are as `arrival_keys` writes them."""
    numbers, times = [change.sequence for change in rows], [change.event_time for change in rows]
    sequences = _sequences(numbers, times, order_by)
    phases, halves = {change.phase for change in rows}, {change.half for change in rows}
    if len(phases) == len(halves) == 1:  # as in most batches
        place = epoch, phases.pop(), halves.pop()
        return _keys_of_one_half(place, sequences, message_rows, arrivals, [change.row for change in rows])
    era = number_key(epoch)
    return [
        f"{era}{small_key(change.phase)}{sequence}!{small_key(change.half)}{arrivals[place]}!{small_key(change.row)}"
        for change, sequence, place in zip(rows, sequences, message_rows, strict=True)
    ]


def order_keys_of_columns(
    changes: ChangeColumns, arrivals: Sequence[str], epoch: int, order_by: str
) -> list[str]:
    """The same of changes as columns."""
    sequences = _sequences(changes.sequence, changes.event_time, order_by)
    place = epoch, changes.phase, changes.half
    return _keys_of_one_half(place, sequences, changes.at, arrivals, changes.row)


def _keys_of_one_half(
    place: tuple[int, int, int],
    sequences: Sequence[str],
    message_rows: Sequence[int],
    arrivals: Sequence[str],
    rows: Sequence[int],
) -> list[str]:
    """Order keys that share epoch, phase and half; ``rows`` are the numbers of the rows in their messages."""
    epoch, phase, half = map(number_key, place)
    head, middle = epoch + phase, f"!{half}"
    return [
        f"{head}{sequence}{middle}{arrivals[message]}!{number}"
        for sequence, message, number in zip(sequences, message_rows, map(small_key, rows), strict=True)
    ]


def _sequences(
    sequences: Sequence[tuple[int, ...]], times: Sequence[int | None], order_by: str
) -> Sequence[str]:
    """The encoded sequence of each row; empty if arrival decides."""
    if order_by == "arrival":
        return [""] * len(sequences)
    if order_by == "event_time":
        return number_keys([time or 0 for time in times])
    if sequences and _are_one(sequences):  # rows of a snapshot share their place
        return ["".join(map(number_key, sequences[0]))] * len(sequences)
    if len(set(map(len, sequences))) > 1:
        return ["".join(map(number_key, numbers)) for numbers in sequences]
    places = [number_keys(numbers) for numbers in zip(*sequences, strict=True)]
    if len(places) == 1:
        return places[0]
    return list(map("".join, zip(*places, strict=True))) if places else [""] * len(sequences)


def arrival_keys(
    batches: Sequence[int],
    rank: int,
    partitions: Sequence[int],
    offsets: Sequence[int],
    topics: Sequence[str],
) -> list[str]:
    """The written arrival of messages of one source: batch, source, partition, offset, topic.

    ``rank`` is the source's place in the pipeline file; a file's partition is its rank. Offsets of two topics are counted
    separately, so the topic of Kafka messages is part of the place. It comes last, so batches written before the topic was
    part of the place keep their order.
    """
    keys = (number_keys(batches), number_keys(partitions), number_keys(offsets))
    place = number_key(rank)
    names = map(topic_key, topics) if topics else [""] * len(offsets)
    return [
        batch + place + partition + offset + topic
        for batch, partition, offset, topic in zip(*keys, names, strict=True)
    ]


def arrival_key(arrival: Sequence[int]) -> str:
    """The written arrival of a message that carries its own place."""
    return "".join(map(number_key, arrival))


@lru_cache(maxsize=4096)
def topic_key(topic: str) -> str:
    """A topic as a number that other topics do not share."""
    return number_key(int.from_bytes(hashlib.sha256(topic.encode()).digest()[:8], "big"))


def natural(path: str) -> tuple[object, ...]:
    """Sort key of files in one batch, which puts ``part-2`` before ``part-10``."""
    return tuple(
        (0, int(piece), piece) if i % 2 else (1, 0, piece)
        for i, piece in enumerate(re.split(r"([0-9]+)", path))
    )


# --- SQL ------------------------------------------------------------------------------------------


def place_sql(order_key: str) -> str:
    """SQL for `same_place` of an order key; NULL where arrival alone decides."""
    end = f"instr({order_key}, '{_END}')"
    half = f"{end} + 1 + {_mark_sql(order_key, f'{end} + 1')}"
    return f"CASE WHEN NOT {weak_sql(order_key)} THEN substr({order_key}, 1, {half}) END"


def weak_sql(order_key: str) -> str:
    """SQL: true where an order key holds epoch and phase but no sequence, so that arrival decides."""
    return f"(instr({order_key}, '{_END}') = {_head_sql(order_key)} + 1)"


def loaded_sql(order_key: str) -> str:
    """SQL: true where an order key has phase 0, a row of a full load without a place among the changes."""
    return f"starts_with(substr({order_key}, 2 + {_mark_sql(order_key, '1')}), '{number_key(0)}')"


def arrival_sql() -> str:
    """SQL for the arrival in the column ``order_key``, in its written form."""
    place = f"split_part(order_key, '{_END}', 2)"
    return f"substr({place}, 2 + {_mark_sql(place, '1')})"


def stream_sql(order_key: str) -> str:
    """SQL for the part of an order key after epoch and phase: its place in the stream, also if its row was loaded."""
    return f"substr({order_key}, {_head_sql(order_key)} + 1)"


def _head_sql(order_key: str) -> str:
    """The length of epoch and phase."""
    epoch = f"(1 + {_mark_sql(order_key, '1')})"
    return f"({epoch} + 1 + {_mark_sql(order_key, f'{epoch} + 1')})"


def _mark_sql(order_key: str, place: str) -> str:
    """The number that the length mark at a place means."""
    return f"(instr('{_MARKS}', substr({order_key}, {place}, 1)) - 1)"
