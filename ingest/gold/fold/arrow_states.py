"""Fold a table of old states (``history: true``): every state of each key that the new changes concern.

The whole history of such a key is folded again by `ingest.fold`, so that a late change needs no special case; its states
then replace those that the table has. One that the table has already stays in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Image, Op
from ingest.fold import Key, KeyCellError, Table, Texts, steps
from ingest.gold.fold.arrow_fold import Events, events_of, texts_read
from ingest.gold.fold.arrow_merge import Merged, bits, pairs
from ingest.gold.fold.arrow_values import arrow_type
from ingest.gold.fold.arrow_work import Cleared, LaneWork, MirrorWork, Rows
from ingest.gold.fold.key_shares import Numbers, Shares, concerned, keys_of
from ingest.gold.fold.outcomes import GONE, MirrorOutcomes
from ingest.gold.fold.unfit import UNFIT
from ingest.ledgers.histories import CURRENT, FROM, TO
from ingest.ledgers.stamps import TIME
from ingest.order import Order, order_of

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(slots=True)
class State:
    """What a row was, from one change of it to the next, with the times of these in microseconds since 1970 UTC."""

    row: Image | None
    since: int | None
    until: int | None = None
    is_current: bool | None = True


_THERE = State(None, None, is_current=None)
"""Stands for all states of a key that the table has."""


def states(work: MirrorWork, rows: Rows) -> MirrorOutcomes:
    """All states of the keys that new changes concern, and for each key a row that is `GONE`: it takes the place of all the
    states that the table has.

    Args:
        work: the table of old states.
        rows: by lane, all its changes, in the order of history, at least those of such keys.
    """
    tables = [
        _typed(_of_lane(_concerned(rows[lane.id], lane, work), lane, work), work) for lane in work.lanes
    ]
    return MirrorOutcomes(pa.concat_tables(tables), (), [])


def _concerned(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> pa.Table:
    """The changes of keys that the new ones concern, and of keys linked with these; truncates concern all."""
    if lane.everything or not rows.num_rows:
        return rows
    links, touched = concerned(rows, lane, work)
    wanted = Shares.of(1, links).only(touched).wants(keys_of(rows, lane, work).every.slice(0, rows.num_rows))
    clears = pc.equal(rows["op"], str(Op.TRUNCATE)).to_numpy()
    return rows.filter(pa.array(wanted | clears))


@dataclass(slots=True)
class _KeyStates:
    """The states of a key, and its texts."""

    key: Texts
    states: list[State]

    def note(self, row: Image | None, moment: int | None) -> None:
        """Apply one step: it ends the current state, and begins another unless the row is deleted."""
        current = self.states[-1] if self.states and self.states[-1].is_current else None
        if current is not None:
            if current.row == row:
                return
            current.until, current.is_current = moment, False
        if row is not None:
            self.states.append(State(dict(row), moment))


def _of_lane(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> list[_KeyStates]:
    """The states of each key of a lane, by the plain fold of its changes."""
    table = Table(work.keys, work.logical)
    events = Events(work.keys, work.logical, [step.decoded() for step in lane.own_steps])
    moments: dict[Order, int | None] = {order_of(place): moment for place, moment in lane.moments or ()}
    times = rows[TIME].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    for event, moment in zip(events_of(rows, lane, work.logical), times, strict=True):
        moments[order_of(event.place)] = moment
        with suppress(KeyCellError):  # the mirror's own fold rejects such a change
            events.add(event.place, event.change)
    by_key: dict[Key, _KeyStates] = {key: _KeyStates(texts, []) for key, texts in events.texts.items()}
    for step in steps(table, events.placed):
        by_key[step.key].note(step.row, moments.get(step.event.order))
    return list(by_key.values())


def _typed(of_keys: Sequence[_KeyStates], work: MirrorWork) -> pa.Table:
    """States as typed columns by Delta's names, those of each key after a row for the key."""
    placed = [(of_key.key, state) for of_key in of_keys for state in (_THERE, *of_key.states)]
    keys, every = [key for key, _ in placed], [state for _, state in placed]
    of_state = {
        CURRENT: pa.array([state.is_current for state in every], pa.bool_()),
        FROM: pa.array([state.since for state in every], pa.int64()),
        TO: pa.array([state.until for state in every], pa.int64()),
    }
    columns: dict[str, pa.Array] = {GONE: pa.array([state is _THERE for state in every], pa.bool_())}
    for column in work.columns:
        if column.name in of_state:
            columns[column.column] = of_state[column.name].cast(arrow_type(column.type))
        else:
            _, typed = texts_read(column, work, keys, [state.row for state in every])
            columns[column.column] = typed.cells
    return pa.table({**columns, UNFIT: pa.nulls(len(every), pa.string())})


# --- the table ------------------------------------------------------------------------------------


def replaced(mirror_rows: pa.Table, source: pa.Table, work: MirrorWork, _cleared: Cleared) -> Merged:
    """Replace the states of some keys; one that does not change is not touched.

    Args:
        mirror_rows: the table's rows.
        source: what `states` returns of the keys.
        work: the table of old states.
    """
    keys, put = (
        source.filter(source[GONE]),
        source.filter(pc.invert(source[GONE])).select(mirror_rows.schema.names),
    )
    row_numbers, _ = pairs(mirror_rows.select(work.key_columns), keys.select(work.key_columns))
    places = np.unique(row_numbers.to_numpy(zero_copy_only=False))
    stays, known = _common(mirror_rows.take(pa.array(places)), put)
    goes = np.zeros(mirror_rows.num_rows, np.bool_)
    goes[places[~stays]] = True
    new = put.filter(pa.array(~known))
    none = mirror_rows.schema.empty_table()
    deleted = int(goes.sum())
    return Merged(mirror_rows.filter(pa.array(~goes)), none, new, new.num_rows, 0, deleted, source.num_rows)


def _common(old: pa.Table, new: pa.Table) -> tuple[Mask, Mask]:
    """Which rows of two tables are in both, each as often as in the one that has fewer of it."""
    both = pa.concat_tables([old, new.cast(old.schema)])
    names = [str(number) for number in range(both.num_columns)]
    rows = pa.table([bits(column) for column in both.columns], names=names)
    rows = rows.append_column("row", pa.array(np.arange(both.num_rows)))
    groups = rows.group_by(names, use_threads=False).aggregate([("row", "list")])["row_list"].combine_chunks()
    numbers: Numbers = groups.values.to_numpy()
    starts = groups.offsets.to_numpy()
    group = np.repeat(np.arange(len(groups)), np.diff(starts))
    place = np.arange(both.num_rows) - starts[group]  # in its group, in which the old rows are first
    is_old = numbers < old.num_rows
    olds = np.bincount(group[is_old], minlength=len(groups))
    fewer = np.minimum(olds, np.diff(starts) - olds)
    common = np.zeros(both.num_rows, np.bool_)
    common[numbers] = np.where(is_old, place, place - olds[group]) < fewer[group]
    return common[: old.num_rows], common[old.num_rows :]
