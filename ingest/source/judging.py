"""Which of the rows that differ are wrong for certain, and which are on their way or not judged."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ingest.source.reconciled import (
    DIFFERENT,
    MISSING,
    SURPLUS,
    Cells,
    Reconciled,
    ReconcileOptions,
    RowDifference,
    RowKey,
)
from ingest.source.sides import ComparedTable, MirrorSide, SourceSide

_AHEAD = 60.0  # seconds by which a stream's times may be later than its database's clock


@dataclass(frozen=True, slots=True)
class Judging:
    """What is wrong for certain: it is looked at again, once the mirror has passed the first look."""

    done: Reconciled
    theirs: SourceSide
    passed: Callable[[], dt.datetime | None]
    options: ReconcileOptions

    def rows(self, mine: MirrorSide, keys: Sequence[RowKey]) -> None:
        """Judge rows by their keys."""
        if not keys:
            return
        done, pair = self.done, self.theirs.pair
        first, _ = self.theirs.rows(keys)
        done.looked_at = self.theirs.clock()
        before = mine.rows(keys)
        keys = [key for key in keys if _difference(pair, key, first.get(key), before.get(key))]
        is_past = self._is_past(wanted=bool(keys))
        now = mine.rows(keys)
        again, sent = self.theirs.rows(keys)
        for key in keys:
            one = _difference(pair, key, again.get(key), now.get(key), sent.get(key))
            if one is None or again.get(key) != first.get(key) or now.get(key) != before.get(key):
                done.on_the_way += 1
            elif is_past:
                done.differences.append(one)
            else:
                done.not_judged.append(one)

    def contents(
        self, first: Mapping[int, tuple[int, int]], look: Callable[[], Mapping[int, tuple[int, int]]]
    ) -> None:
        """Judge rows without a key by how often their contents occur in the source and in the mirror."""
        self.done.looked_at = self.theirs.clock()
        is_past = self._is_past()
        again = first if self.options.settled or not is_past else look()
        for number, (source, mirror) in first.items():
            rows = abs(source - mirror)
            if again.get(number) != (source, mirror):
                self.done.on_the_way += rows
            elif is_past:
                kind = MISSING if source > mirror else SURPLUS
                self.done.unkeyed[kind] = self.done.unkeyed.get(kind, 0) + rows
            else:
                self.done.unkeyed_waiting += rows

    def _is_past(self, *, wanted: bool = True) -> bool:
        """Wait until the mirror has passed the first look; False if it has not in time."""
        until = time.monotonic() + self.options.wait
        while not (self.options.settled or self._is_beyond()):
            if not wanted or time.monotonic() >= until:
                return False
            time.sleep(min(2.0, max(0.0, until - time.monotonic())))
        return True

    def _is_beyond(self) -> bool:
        """True once the mirror has passed the first look, by times that the source's clock has reached."""
        reached = self.passed()
        if reached is None or reached < _moment(self.done.looked_at):
            return False
        later = (reached - _moment(self.theirs.clock())).total_seconds()
        self.done.ahead = later if later > _AHEAD else 0.0
        return not self.done.ahead


def _difference(
    pair: ComparedTable, key: RowKey, source: Cells | None, mirror: Cells | None, sent: Cells | None = None
) -> RowDifference | None:
    """What differs; ``sent`` has the source's cells as they are shown."""
    names = tuple(text or "" for text in key)
    if source is None or mirror is None:
        if source is mirror:
            return None
        return RowDifference(SURPLUS if source is None else MISSING, names)
    cells = {
        one.name: (shown, b)
        for one, a, b, shown in zip(pair.columns, source, mirror, sent or source, strict=True)
        if a != b and not (one.is_float and _same_number(a, b))
    }
    return RowDifference(DIFFERENT, names, cells) if cells else None


def _same_number(one: str | None, other: str | None) -> bool:
    """True for two texts of one floating number, in forms of different databases."""
    try:
        return repr(float(one or "")) == repr(float(other or ""))  # one form for NaN, two for the zeros
    except ValueError:
        return False


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC).replace(tzinfo=None)
