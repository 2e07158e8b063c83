"""One fault planted in each history: what a capture or a topic can do to messages, and whether the next change shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ingest import types
from ingest.change import Image
from ingest.config import Pipeline
from ingest.images_before import Excuse, Link
from tests.formats.one_history.history import Event
from tests.model import plain, values
from tests.model.checks import Capture
from tests.model.histories import history
from tests.model.rows import History

FAULTS = ("drop", "alter", "exchange", "repeat")
STEPS = {"insert": 6, "update": 10, "upsert": 3, "transaction": 3, "delete": 2, "move": 2}
"""Without statements and loads, so that each fault leaves a wrong cell until the next change of its row."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the messages of one row, whose ``column`` is wrong until the event ``shown`` says what it was.

    ``until`` is the place of that event among those with the fault.
    """

    kind: str
    event: Event
    shown: Event
    column: str
    until: int


@dataclass(slots=True)
class Tally:
    """What became of the faults planted in one dialect."""

    planted: int = 0
    named: Counter[str] = field(default_factory=Counter)  # by the kind of fault
    at_once: int = 0  # of these, before the row's next change: by the messages of the fault itself
    loaded: int = 0  # the row was loaded just before, at no place among the changes
    unsaid: int = 0  # the next change says nothing of the column
    hidden: int = 0  # it says NULL, which stands for a large value in this dialect
    missed: list[str] = field(default_factory=list)


def planted(numbers: Iterable[int], capture: Capture, seed: str = "") -> Tally:
    """Plant one fault in each history, and look whether the next change of its row does not fit."""
    tally, dialect = Tally(), capture.dialect
    made: list[tuple[History, Fault]] = []
    for number in numbers:
        one = history(number, capture.life(STEPS, length=30), seed)
        fault = plant(one, Random(f"fault {seed}{number}"))
        if fault is not None:
            made.append((one, fault))
    pipeline = plain.pipeline_of(dialect, capture.rules([one for one, _ in made]))
    rows = _rows(pipeline, capture, [one for one, _ in made])
    early = _rows(pipeline, capture, [_ended(one, fault.until) for one, fault in made])
    for one, fault in made:
        tally.planted += 1
        links = _links(pipeline, rows, one)
        if any(link.is_broken for link in links):
            tally.named[fault.kind] += 1
            tally.at_once += any(link.is_broken for link in _links(pipeline, early, one))
        elif any(link.excuse is Excuse.LOADED for link in links):
            tally.loaded += 1
        elif pipeline.images_before(plain.SOURCE).hides_large and _may_be_hidden(fault):
            tally.hidden += 1
        elif any(_is_of(link, fault) for link in links):
            tally.missed.append(f"history {one.number} in {capture.name}: {fault}")
        else:
            tally.unsaid += 1
    return tally


_Rows = dict[str, list[dict[str, Any]]]


def _rows(pipeline: Pipeline, capture: Capture, made: Iterable[History]) -> _Rows:
    """The decoded rows of some histories, by their databases."""
    # statements without a position stand behind a row of their stream
    messages = [
        message._replace(topic=f"h{one.number}")
        for one in made
        for message in capture.dialect.write(one)  # type: ignore[arg-type]
    ]
    rows: _Rows = {}
    for row in plain.silver(pipeline, [messages]):
        rows.setdefault(row["database"], []).append(row)
    return rows


def _links(pipeline: Pipeline, rows: _Rows, made: History) -> list[Link]:
    """The changes with an image before in a history's tables."""
    mirrors = plain.mirrors(pipeline, rows.get(f"h{made.number}", ()))
    return [link for mirror in mirrors.values() for link in mirror.links]


def _ended(made: History, until: int) -> History:
    """A history that ends before the event at a place."""
    ended = copy(made)
    ended.source = copy(made.source)
    ended.source.events = made.source.events[:until]
    return ended


def _is_of(link: Link, fault: Fault) -> bool:
    """True if a link compared the column at the event that should show the fault."""
    change, shown = link.event.change, fault.shown
    after = (change.after or {}).get(fault.column, (shown.after or {}).get(fault.column))
    return (
        fault.column in (change.before or {})
        and after == (shown.after or {}).get(fault.column)  # else it is an earlier change from the same value
        and all((change.before or {}).get(key) == (shown.before or {}).get(key) for key in shown.keys)
        and (change.after is None) == (shown.after is None)
        and (change.before or {}).get(fault.column) == (shown.before or {}).get(fault.column)
    )


def _may_be_hidden(fault: Fault) -> bool:
    """True if NULL before the next change may stand for a large value of the column's type."""
    large = types.base(fault.shown.shape[fault.column].logical) in ("string", "binary", "json")
    return large and (fault.shown.before or {}).get(fault.column) is None


def plant(made: History, random: Random) -> Fault | None:
    """Change a history's messages; its tables stay as they are. None if it has no place for a fault."""
    events = made.source.events
    places = list(_places(events))
    if not places:
        return None
    at, following = random.choice(places)
    event, shown = events[at], events[following]
    moves = _moves(event)
    column = _changed(shown if moves else event)
    assert column is not None
    assert event.after is not None
    # updates of different columns may have each other's place, if only these are sent
    commute = (shown.before or {}).get(column) == (shown.after or {}).get(column)
    kinds = ["drop"] if moves else [fault for fault in FAULTS if not (commute and fault == "exchange")]
    kind = random.choice(kinds)
    if kind == "drop":
        made.lost.add(event.number)
    elif kind == "alter":
        events[at] = event._replace(after={**event.after, column: (event.before or {})[column]})
    elif kind == "repeat":  # it comes again, with another content
        events.insert(
            at + 1, event._replace(after={**event.after, column: _other_value(event, column, random)})
        )
    else:  # two changes of the row have each other's place
        before, after = events[following].before, events[following].after
        events[following] = events[following]._replace(before=event.before, after=event.after)
        events[at] = event._replace(before=before, after=after)
    return Fault(kind, event, shown, column, following + (kind == "repeat"))


def _places(events: list[Event]) -> Iterator[tuple[int, int]]:
    """Updates of a row, or of its key, that another change of the same row follows."""
    for at, event in enumerate(events):
        moves = _moves(event)
        if event.kind != "update" or (_changed(event) is None and not moves):
            continue
        for later in range(at + 1, len(events)):
            other = events[later]
            if other.table == event.table and _key(other, other.before) == _key(event, event.after):
                if other.kind == "update" and not _moves(other) and (not moves or _changed(other)):
                    yield at, later
                break


def _other_value(event: Event, column: str, random: Random) -> str | None:
    """A value that an update's column neither had nor got; NULL if none is drawn."""
    known = [(image or {})[column] for image in (event.before, event.after)]
    kind = values.read(event.shape[column].declared)
    drawn = [values.value(kind, random) for _ in range(20)]
    return next((text for text in drawn if text not in known), None)


def _changed(event: Event) -> str | None:
    """A column that an update changes."""
    before, after = event.before or {}, event.after or {}
    return next((name for name in before if name not in event.keys and before[name] != after.get(name)), None)


def _moves(event: Event) -> bool:
    return _key(event, event.before) != _key(event, event.after)


def _key(event: Event, image: Image | None) -> tuple[str | None, ...] | None:
    return None if image is None else tuple(image.get(name) for name in event.keys)
