"""How keys are distributed over the parts and shares of a large mirror's work: by a hash that is the same in every process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.gold.fold import overtaken
from ingest.gold.fold.arrow_merge import comparable
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
_SPREAD = 0x9E3779B97F4A7C15  # consecutive numbers, multiplied by it, fall into different parts
_NOTHING: Numbers = np.array([], np.int64)


def hashes(keys: pa.Table) -> Numbers:
    """A number for each key; equal keys have the same one in every process, and so have keys with a NULL."""
    keys = comparable(keys)
    if keys.num_columns == 1 and pa.types.is_integer(keys.schema.field(0).type):
        whole = pc.fill_null(keys.column(0).cast(pa.int64()), 0)
        numbers = whole.to_numpy().view(np.uint64) * np.uint64(_SPREAD)
        high: Numbers = (numbers >> np.uint64(33)).astype(np.int64)
        return high
    columns = [_texts(column) for column in keys.columns]
    texts = columns[0] if len(columns) == 1 else map("\0".join, zip(*columns, strict=True))
    return np.array([crc32(text.encode()) for text in texts], np.int64)


def _texts(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_binary(column.type):
        return [(cell or b"").hex() for cell in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    texts: list[str] = pc.fill_null(column.cast(pa.string()), "").to_pylist()
    return texts


@dataclass(frozen=True, slots=True)
class Shares:
    """How a mirror's keys are distributed: by the hashes of keys, except linked ones by that of the first of these."""

    count: int
    linked: Numbers = field(default_factory=lambda: _NOTHING)  # in ascending order
    first: Numbers = field(default_factory=lambda: _NOTHING)
    wanted: Numbers | None = None  # of these keys and those linked with them, if not all are dealt

    @classmethod
    def of(cls, count: int, pairs: Iterable[tuple[int, int]]) -> Shares:
        """So many shares, with the keys of each pair in one."""
        first = dict[int, int]()

        def root(number: int) -> int:
            while first.setdefault(number, number) != number:
                first[number] = number = first[first[number]]
            return number

        for left, right in pairs:
            first[root(left)] = root(right)
        linked = sorted(first)
        return cls(count, np.array(linked, np.int64), np.array([root(number) for number in linked], np.int64))

    def shares(self, keys: pa.Table) -> Numbers:
        """The share of each key: equal keys have the same one in every process."""
        if self.count == 1:
            return np.zeros(keys.num_rows, np.int64)
        share: Numbers = np.mod(self._first_of(hashes(keys)), self.count)
        return share

    def rows_of(self, work: MirrorWork, share: int, rows: pa.Table) -> pa.Table:
        """Those of some rows of a mirror whose keys are in a share; without a key, whose cells are."""
        names = work.key_columns or work.schema.names
        return rows.filter(pa.array(self.shares(rows.select(names)) == share))

    def only(self, numbers: Iterable[int]) -> Shares:
        """The same, of which only keys with some hashes, and those linked with them, are dealt."""
        asked = np.array(sorted(set(numbers)), np.int64)
        return replace(self, wanted=np.unique(self._first_of(asked)))

    def wants(self, keys: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of some keys are dealt."""
        if self.wanted is None:
            return np.ones(keys.num_rows, np.bool_)
        return np.isin(self._first_of(hashes(keys)), self.wanted)

    def _first_of(self, numbers: Numbers) -> Numbers:
        if not len(self.linked):
            return numbers
        places = np.minimum(np.searchsorted(self.linked, numbers), len(self.linked) - 1)
        return np.where(self.linked[places] == numbers, self.first[places], numbers)


class Keys(NamedTuple):
    """The keys that changes concern: of each its own, then those that some of them leave, with the numbers of these."""

    every: pa.Table
    leaving: Numbers


def keys_of(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> Keys:
    keys = overtaken.keys_concerned(rows, lane, work)
    for name, text in lane.shard:
        [column] = [column.column for column in work.columns if column.name == name]
        keys = keys.append_column(column, pa.array([text] * keys.num_rows, pa.string()))
    return Keys(keys.select(work.key_columns), keys[overtaken.ROW].to_numpy()[rows.num_rows :])


class KeysOfChanges(NamedTuple):
    """Keys of some changes, by their hashes: pairs of those that a change links, and those that new changes concern."""

    links: set[tuple[int, int]]
    touched: set[int]


def concerned(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> KeysOfChanges:
    """Which keys some changes of a lane link, and which its new ones concern."""
    every, leaving = keys_of(rows, lane, work)
    numbers = hashes(every)
    reached, left = numbers[: rows.num_rows], numbers[rows.num_rows :]
    new = pc.greater_equal(rows["batch"], lane.first).to_numpy()
    links = set(zip(left.tolist(), reached[leaving].tolist(), strict=True)) if lane.moves else set()
    return KeysOfChanges(links, {*reached[new].tolist(), *left[new[leaving]].tolist()})
