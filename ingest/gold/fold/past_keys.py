"""A lane's earlier primary keys by the plain fold: the rows that exist where a key ends are inserts under the next one.

`ingest.gold.fold.era_shares` does the same with a history that one process does not hold, with the rules from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

from ingest import types
from ingest.change import Change, Image, LaneId, Op
from ingest.errors import HeldError
from ingest.fold import Key, KeyCellError, Placed, Row, SchemaStep, Table, copies
from ingest.fold import steps as fold_steps
from ingest.ledgers.mirrors import Era
from ingest.order import Order, order_key, order_of

_WAY_OUT = (
    "write `keys: [...]` with columns that every row has into its tables: entry, or read the table again from its "
    "source and, when that has landed, give `ingest epoch FILE {0} --from-batch BATCH --resnapshot {1} --complete` with "
    "its first batch."
)


class LaneEvent(NamedTuple):
    """A change of a lane, with its order key and its batch."""

    place: str
    batch: int
    change: Change


class Ending(NamedTuple):
    """A primary key of which rows may exist where the next one begins; keys are columns with their types."""

    begins: str
    ends: str
    keys: Mapping[str, str]
    next_keys: Mapping[str, str]
    steps: tuple[SchemaStep, ...]  # that its rows meet

    def has(self, place: str) -> bool:
        """True if changes at a place have this key."""
        return self.begins < place <= self.ends

    def next_key(self, row: Image) -> Key | None:
        """A row's key from then on; None if it has no usable one."""
        try:
            return Table(tuple(self.next_keys), self.next_keys).key(row)
        except KeyCellError:
            return None


def endings(
    eras: tuple[Era, ...], steps: Sequence[SchemaStep], truncates: Iterable[str], logical: Mapping[str, str]
) -> Iterator[Ending]:
    """The earlier eras of a lane whose rows were not all removed later.

    Args:
        eras: the lane's eras.
        steps: its schema steps; their ``order`` is an order key.
        truncates: the places of its truncates.
        logical: the mirror's columns with their types.
    """
    created = (str(step.order) for step in steps if step.empties)
    cleared = max([*created, *truncates], default="")
    of_keys = [
        _key_types(logical, era.keys, [step for step in steps if not is_last and str(step.order) > era.place])
        for era, is_last in zip(eras, [*(False for _ in eras[1:]), True], strict=True)
    ]
    for (era, after), (keys, next_keys) in zip(pairwise(eras), pairwise(of_keys), strict=True):
        if after.place > cleared:
            ending = Ending(era.place, after.place, keys, next_keys, ())
            yield ending._replace(steps=tuple(step for step in steps if ending.has(str(step.order))))


class KeyAt(NamedTuple):
    """A key at some place: its columns with their types, and where the next one begins (empty for the last one)."""

    columns: Mapping[str, str]
    ends: str


def key_at(place: str, eras: Sequence[Era], steps: Sequence[SchemaStep], logical: Mapping[str, str]) -> KeyAt:
    """The key that a lane has at a place; the arguments are those of `endings`."""
    before = [era for era in eras if era.place < place]
    era, later = before[-1], eras[len(before) :]
    met = [step for step in steps if later and str(step.order) > era.place]
    return KeyAt(_key_types(logical, era.keys, met), later[0].place if later else "")


def rebased(
    events: Sequence[LaneEvent],
    eras: tuple[Era, ...],
    steps: tuple[SchemaStep, ...],
    logical: Mapping[str, str],
    batch: int,
    lane: LaneId,
    *,
    shared_reads: bool = False,
) -> list[LaneEvent]:
    """A lane's changes with its earlier eras folded: their last rows, then the changes of the last era.

    Args:
        events: all changes of the lane.
        eras: its eras.
        steps: its schema steps; their ``order`` is an order key.
        logical: the mirror's columns with their types.
        batch: the batch that rows of earlier eras are assigned to.
        lane: the lane's source and table, for the command in an error.
        shared_reads: rows of its snapshots share a position.

    Raises:
        HeldError: a row that exists where an era ends has no usable key in the next one, or two rows have the same.
    """
    base: list[LaneEvent] = []
    truncates = (event.place for event in events if event.change.op is Op.TRUNCATE)
    for ending in endings(eras, steps, truncates, logical):
        part = [*base, *(event for event in events if ending.has(event.place))]
        left = standing(ending, part, shared_reads=shared_reads)
        refuse([row.values for row in left.rows], ending, lane)
        base = [*inserted(left.rows, batch), *left.lacking]
    return [*base, *(event for event in events if event.place > eras[-1].place)]


class Standing(NamedTuple):
    """What an earlier key leaves to the next one.

    Attributes:
        rows: the rows that exist where it ends.
        lacking: changes without a usable key: only the next one can identify their rows.
    """

    rows: list[Row]
    lacking: list[LaneEvent]


def standing(ending: Ending, part: Sequence[LaneEvent], *, shared_reads: bool) -> Standing:
    """What the changes under an earlier key leave to the next one.

    Args:
        ending: the key.
        part: the changes, after the rows that the key before it has left.
        shared_reads: rows of its snapshots share a position.
    """
    placed = [Placed(order_of(event.place), event.change) for event in part]
    every: list[Placed | SchemaStep] = [*(step.decoded() for step in ending.steps), *placed]
    rows, lacking = copies(every, shared_reads=shared_reads), list[LaneEvent]()
    if ending.keys:
        table = Table(tuple(ending.keys), ending.keys)
        given = {id(placed_event): event for placed_event, event in zip(placed, part, strict=True)}
        lacking = [given[id(step.event)] for step in fold_steps(table, every) if not step.key]
        rows = iter(table.rows.values())
    return Standing(list(rows), lacking)


def _key_types(
    logical: Mapping[str, str], keys: tuple[str, ...], steps: Sequence[SchemaStep]
) -> dict[str, str]:
    """The types of a key's columns, to which the steps after it may have given other names, and other types.

    Such a name may belong to another column by now, of another type.  A type holds the key's values from before a MODIFY, too.
    """
    types_then = dict(logical)
    for step in reversed(steps):
        if step.action == "rename_column" and step.to in types_then:
            types_then[step.column] = types_then[step.to]
        elif step.retypes and step.column in types_then:
            before = step.old or logical.get(step.column, "string")
            types_then[step.column] = types.common(types_then[step.column], before)
    return {key: types_then.get(key, "unknown") for key in keys}


def inserted(rows: Iterable[Row], batch: int, first: int = 0) -> Iterator[LaneEvent]:
    """Rows that exist where an era ends, as inserts of a batch, numbered from ``first``.

    Each keeps the place of its last change: a statement that comes again later concerns only rows that came again before it.
    """
    for number, row in enumerate(rows, first):
        place = cast("Order", row.place)._replace(row=-2 - number)
        yield LaneEvent(order_key(place), batch, Change(op=Op.INSERT, after=row.values, types=row.types))


def refuse(rows: Iterable[Image], ending: Ending, lane: LaneId) -> None:
    """Refuse rows from before a key that are no rows under the next one.

    Raises:
        HeldError: one has no usable next key, or two have the same.
    """
    if not ending.next_keys:
        return
    images: dict[Key, list[Image]] = {}
    for row in rows:
        images.setdefault(_next_key(row, ending, lane), []).append(row)
    for same in images.values():
        if len(same) > 1:
            raise HeldError(same_key(ending, len(same), _text(same[0]), lane))


def refuse_unusable(rows: Iterable[Image], ending: Ending, lane: LaneId) -> None:
    """Refuse rows from before a key without a usable next one.

    Raises:
        HeldError: there is one.
    """
    if ending.next_keys:
        for row in rows:
            _next_key(row, ending, lane)


def _next_key(row: Image, ending: Ending, lane: LaneId) -> Key:
    key = ending.next_key(row)
    if key is None:
        raise HeldError(without_key(ending, _text(row), lane))
    return key


def _text(row: Image) -> str:
    return json.dumps(row, ensure_ascii=False)


def without_key(ending: Ending, row: str, lane: LaneId) -> str:
    """Why a mirror is held: a row has no usable new key."""
    return (
        f"its key has changed from ({', '.join(ending.keys)}) to ({', '.join(ending.next_keys)}), and rows from before "
        f"have no value of it, such as {_shown(row)}: {_WAY_OUT.format(*lane)}"
    )


def same_key(ending: Ending, count: int, row: str, lane: LaneId) -> str:
    """Why a mirror is held: some rows have one new key."""
    return (
        f"its key has changed from ({', '.join(ending.keys)}) to ({', '.join(ending.next_keys)}), and {count} rows from "
        f"before have the same new key, such as {_shown(row)}; a delete may still be on its way. If not: "
        f"{_WAY_OUT.format(*lane)}"
    )


def _shown(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"
