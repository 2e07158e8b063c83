"""A lane's earlier primary keys by the plain fold: the rows that exist where a key ends are inserts under the next one.

`ingest.gold.rekeyed` does the same by Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ingest.change import Change, Image, LaneId, Op
from ingest.errors import HeldError
from ingest.fold import Key, KeyCellError, Placed, Row, SchemaStep, Table, copies, fold
from ingest.lake.mirrors import Era
from ingest.order import order_key, order_of

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


def rebased(
    events: Sequence[LaneEvent],
    eras: tuple[Era, ...],
    steps: tuple[SchemaStep, ...],
    logical: Mapping[str, str],
    batch: int,
    lane: LaneId,
) -> list[LaneEvent]:
    """A lane's changes with its earlier eras folded: their last rows, then the changes of the last era.

    Args:
        events: all changes of the lane.
        eras: its eras.
        steps: its schema steps; their ``order`` is an order key.
        logical: the mirror's columns with their types.
        batch: the batch that rows of earlier eras are assigned to.
        lane: the lane's source and table, for the command in an error.

    Raises:
        HeldError: a row that exists where an era ends has no usable key in the next one, or two rows have the same.
    """
    base: list[LaneEvent] = []
    created = (str(step.order) for step in steps if step.action == "new_incarnation")
    truncates = (one.place for one in events if one.change.op is Op.TRUNCATE)
    cleared = max([*created, *truncates], default="")
    for era, after in pairwise(eras):
        if after.place <= cleared:  # no row of it exists
            continue
        part = [one for one in events if era.place < one.place <= after.place]
        own = [step.after(era.place) for step in steps if era.place < str(step.order) <= after.place]
        within = key_types(logical, era.keys, steps)
        every: list[Placed | SchemaStep] = [step.decoded() for step in own]
        every += [Placed(order_of(one.place), one.change) for one in [*base, *part]]
        rows: Iterable[Row] = fold(every, era.keys, within).values() if era.keys else copies(every)
        base = [_insert(after.place, number, row, batch) for number, row in enumerate(rows)]
        if after.keys:
            next_key = Table(after.keys, key_types(logical, after.keys, steps))
            _refuse([one.change.after or {} for one in base], next_key, era.keys, lane)
    return [*base, *(one for one in events if one.place > eras[-1].place)]


def key_types(
    logical: Mapping[str, str], keys: tuple[str, ...], steps: Sequence[SchemaStep]
) -> dict[str, str]:
    """The types of an earlier key's columns, which may have other names by now."""
    known = dict(logical)
    for step in reversed(steps):
        if step.action == "rename_column" and step.column not in known and step.to in known:
            known[step.column] = known[step.to]
    return {key: known.get(key, "unknown") for key in keys}


def inserted(place: str, number: int) -> str:
    """The order key of a row that exists where an era ends."""
    return order_key(order_of(place)._replace(row=-2 - number))


def _insert(place: str, number: int, row: Row, batch: int) -> LaneEvent:
    change = Change(op=Op.INSERT, after=row.values, types=row.types)
    return LaneEvent(inserted(place, number), batch, change)


def _refuse(rows: Iterable[Image], next_key: Table, keys: tuple[str, ...], lane: LaneId) -> None:
    found: dict[Key, list[Image]] = {}
    for row in rows:
        try:
            found.setdefault(next_key.key(row), []).append(row)
        except KeyCellError:
            raise HeldError(without_key(keys, next_key.keys, _text(row), lane)) from None
    for same in found.values():
        if len(same) > 1:
            raise HeldError(same_key(keys, next_key.keys, len(same), _text(same[0]), lane))


def _text(row: Image) -> str:
    return json.dumps(row, ensure_ascii=False)


def without_key(keys: Sequence[str], after: Sequence[str], row: str, lane: LaneId) -> str:
    """Why a mirror is held: a row has no usable new key."""
    return (
        f"its key has changed from ({', '.join(keys)}) to ({', '.join(after)}), and rows from before have no value of it, "
        f"such as {_shown(row)}: {_WAY_OUT.format(*lane)}"
    )


def same_key(keys: Sequence[str], after: Sequence[str], count: int, row: str, lane: LaneId) -> str:
    """Why a mirror is held: some rows have one new key."""
    return (
        f"its key has changed from ({', '.join(keys)}) to ({', '.join(after)}), and {count} rows from before have the "
        f"same new key, such as {_shown(row)}; a delete may still be on its way. If not: {_WAY_OUT.format(*lane)}"
    )


def _shown(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"
