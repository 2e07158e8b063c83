"""Which changes are one row's, where rows change their keys and keys get other rows afterwards.

A key's changes are cut after each one that takes its row to another key: what follows there is another row.  The
parts of two keys between which a row moves are parts of one row's life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ingest.fold import Key

Linked = TypeVar("Linked", bound=Hashable)


class Spoken(NamedTuple):
    """A change's place in history, its key, and the key that its row leaves."""

    order: str
    key: Key
    left: Key | None = None


class Stretch(NamedTuple):
    """All changes of a key from one place in history to another one, both included, that are one row's."""

    key: Key
    low: str  # empty: from the beginning
    high: str
    last: bool = True  # the row that the mirror has under the key, if any
    alone: bool = True  # the key never had another row


class _Part(NamedTuple):
    key: Key
    number: int


def of_rows(spoken: Iterable[Spoken], wanted: Collection[Key], newest: str) -> list[Stretch]:
    """The stretches of the rows that keys have now, or had last.

    Args:
        spoken: the changes of these keys, and of all that they are linked with.
        wanted: the keys.
        newest: the highest place in the lane's history: up to it, the wanted keys have no other row.
    """
    ordered = sorted(set(spoken), key=lambda said: said.order)
    events: dict[Key, list[tuple[str, Key | None]]] = defaultdict(list)
    for said in ordered:
        events[said.key].append((said.order, None))
        if said.left is not None:
            events[said.left].append((said.order, said.key))
    numbers = {key: _numbered([moved_to for _, moved_to in event]) for key, event in events.items()}
    place = {
        (key, order): _Part(key, number)
        for key, event in events.items()
        for (order, _), number in zip(event, numbers[key], strict=True)
    }
    links: dict[_Part, set[_Part]] = defaultdict(set)
    for said in ordered:
        if said.left is not None:
            old, new = place[said.left, said.order], place[said.key, said.order]
            links[old].add(new)
            links[new].add(old)
    ends = [_Part(key, numbers[key][-1] if key in numbers else 0) for key in wanted]
    return sorted(
        (
            _stretch(part, events[part.key], numbers.get(part.key, [0]), wanted, newest)
            for part in linked(ends, links)
        ),
        key=str,
    )


def linked(given: Iterable[Linked], links: Mapping[Linked, Iterable[Linked]]) -> set[Linked]:
    """What is given, and all that is linked with it, directly or not."""
    reached, waiting = set[Linked](), list(given)
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            waiting += links.get(each, ())
    return reached


def _numbered(moves: list[Key | None]) -> list[int]:
    """The part of each of a key's changes; the same move, delivered again, begins no other row."""
    numbers: list[int] = []
    number, before = 0, None
    for moved_to in moves:
        number += before is not None and moved_to != before
        numbers.append(number)
        before = moved_to
    return numbers


def _stretch(
    part: _Part,
    events: list[tuple[str, Key | None]],
    numbers: list[int],
    wanted: Collection[Key],
    newest: str,
) -> Stretch:
    of_part = [event for event, number in zip(events, numbers, strict=False) if number == part.number]
    is_last = part.number == numbers[-1]
    moved = bool(of_part) and of_part[-1][1] is not None
    is_open = is_last and (part.key in wanted or not moved)
    low = of_part[0][0] if part.number else ""
    high = max([newest, *(order for order, _ in of_part)]) if is_open else of_part[-1][0]
    return Stretch(part.key, low, high, is_open, numbers[-1] == 0)
