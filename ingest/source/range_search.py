"""The search for rows that differ: sums over ranges of the key on both sides, halved down to rows."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.errors import IngestError
from ingest.source.chunks import Chunk, in_threads
from ingest.source.database import quoted
from ingest.source.reconciled import Reconciled, ReconcileOptions, RowKey
from ingest.source.sides import ComparedTable, MirrorRow, MirrorSide, SourceSide, numbered

MOST = 100_000  # rows that differ; a table with more of them is read again as a whole
_PIECES = 32  # of a range that differs
_FEW = 64  # rows that are fetched rather than cut again
_SAMPLE = 20  # one range of so many
_LOOKS = 2  # at sums that differ where no row does


@dataclass(slots=True)
class RangeSearch:
    """Down from the whole table to the keys of rows that differ."""

    theirs: SourceSide
    mirror: MirrorSide
    pair: ComparedTable
    options: ReconcileOptions
    done: Reconciled
    tell: Callable[[Reconciled], None]
    keys: dict[RowKey, None] = field(default_factory=dict)
    # how often in the source and the mirror, by number
    unkeyed: dict[int, tuple[int, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> list[RowKey]:
        """The keys of all rows that differ."""
        self.done.mirror_rows = self.mirror.rows_count
        if self.pair.ranged:
            ranges = self.theirs.ranges(self.options.range_rows)
            if self.options.sample:
                ranges = random.sample(ranges, math.ceil(len(ranges) / _SAMPLE))
            in_threads(self.options.parallel, self._range, ranges)
        elif not any(self._hashed() for _look in range(_LOOKS)):
            raise self._unnamed()
        return sorted(self.keys, key=repr)

    def again(self, mirror: MirrorSide) -> dict[int, tuple[int, int]]:
        """The contents that differ now; ``mirror`` is the mirror of now."""
        self.mirror, self.unkeyed = mirror, {}
        self.run()
        return self.unkeyed

    def _range(self, chunk: Chunk) -> None:
        for _look in range(_LOOKS):  # rows may be written between two questions
            theirs, ours = (
                self.theirs.sums(chunk, "0", self.options.range_rows),
                self.mirror.sums(chunk, "0"),
            )
            count = theirs.get("0", (0, 0))[0]
            if theirs == ours or self._cut(chunk, count, self.mirror.ordered(chunk)):
                break
        else:
            raise self._unnamed()
        with self._lock:
            self.done.rows += count
            self.done.ranges += 1
            self.done.equal += theirs == ours
        self.tell(self.done)

    def _unnamed(self) -> IngestError:
        """Sums that differ, and no row that does."""
        keys, table = ", ".join(self.pair.mirror.keys), self.pair.table.id
        return IngestError(
            f"The rows of {table} and of its mirror have other sums, and no row of a key differs: several rows of "
            f"{table} may have one key ({keys}), which GROUP BY {keys} HAVING COUNT(*) > 1 shows there; write a key under "
            "`keys:` that each row has alone."
        )

    def _cut(self, chunk: Chunk, theirs: int, mirror_rows: Sequence[MirrorRow]) -> bool:
        """Look into a range that differs; False if no row of it does."""
        if max(theirs, len(mirror_rows)) <= _FEW or not mirror_rows:
            mirrored = numbered((mirror_row.key, mirror_row.number) for mirror_row in mirror_rows)
            return self._differing(self.theirs.numbers(chunk), mirrored)
        ends = _ends(mirror_rows)
        if not ends:
            return self._hashed([chunk], max(theirs, len(mirror_rows)))
        cuts = [list(mirror_rows[end - 1].order) for end in ends]
        sums = self.theirs.sums(chunk, self.theirs.pieces(cuts))
        differs = False
        edges, places = [chunk.low, *cuts, chunk.high], [0, *ends, len(mirror_rows)]
        for piece in range(len(cuts) + 1):
            rows = mirror_rows[places[piece] : places[piece + 1]]
            count, total = sums.get(str(piece), (0, 0))
            if (count, total) != (len(rows), sum(row.number for row in rows)):
                differs |= self._cut(Chunk(edges[piece], edges[piece + 1]), count, rows)
        return differs

    def _hashed(self, ranges: Sequence[Chunk] = (), rows: int = 0) -> bool:
        """Rows by the MD5 of their key, first as sums and then, where these differ, one by one; False if sums differ and no row
        does.
        """
        top = not ranges
        ranges = ranges or self.theirs.ranges(self.options.range_rows * 4)
        digits = min(4, max(1, math.ceil(math.log(max(1, (rows or self.mirror.rows_count) / _FEW), 16))))
        left: dict[str, tuple[int, int]] = {}
        lock = threading.Lock()

        def add(chunk: Chunk) -> None:
            read = self.options.range_rows * 4 if top else 0
            for g, (count, total) in self.theirs.sums(chunk, self.theirs.key_hash(digits), read).items():
                with lock:
                    have = left.get(g, (0, 0))
                    left[g] = have[0] + count, have[1] + total

        if top:
            in_threads(self.options.parallel, add, ranges)
        else:
            add(ranges[0])
        whole = Chunk(None, None) if top else ranges[0]
        right = self.mirror.sums(whole, self.mirror.key_hash(digits))
        wrong = sorted(g for g in {**left, **right} if left.get(g) != right.get(g))
        if top:
            groups = len({**left, **right})
            self.done.rows = sum(count for count, _ in left.values())
            self.done.ranges, self.done.equal = groups, groups - len(wrong)
        explained = not wrong or not self.pair.keys
        for first in range(0, len(wrong), 500):
            names = ", ".join(quoted(column) for column in wrong[first : first + 500])
            if not self.pair.keys:
                their_contents = self.theirs.contents(f"{self.theirs.key_hash(digits)} IN ({names})")
                here = self.mirror.contents(f"{self.mirror.key_hash(digits)} IN ({names})")
                both = {
                    key: (their_contents.get(key, 0), here.get(key, 0)) for key in {**their_contents, **here}
                }
                self.unkeyed |= {key: (a, b) for key, (a, b) in both.items() if a != b}
                continue
            theirs: dict[RowKey, int | None] = {}
            for chunk in ranges:
                theirs |= self.theirs.numbers(chunk, f"{self.theirs.key_hash(digits)} IN ({names})")
            explained |= self._differing(
                theirs, self.mirror.numbers(whole, f"{self.mirror.key_hash(digits)} IN ({names})")
            )
        return explained

    def _differing(self, theirs: Mapping[RowKey, int | None], mirrored: Mapping[RowKey, int | None]) -> bool:
        """Note the keys whose rows differ; False if there is none."""
        keys = [
            key
            for key in {**theirs, **mirrored}
            if theirs.get(key) is None or theirs.get(key) != mirrored.get(key)
        ]
        with self._lock:
            self.keys.update(dict.fromkeys(keys))
            if len(self.keys) > MOST:
                raise IngestError(
                    f"More than {MOST:,} rows of {self.pair.table.id} differ from its mirror: read the table again "
                    f"with `ingest snapshot`, and compare it then."
                )
        return bool(keys)


def _ends(rows: Sequence[MirrorRow]) -> list[int]:
    """Where ordered rows are cut into pieces; rows of one place stay together."""
    step = max(1, math.ceil(len(rows) / _PIECES))
    ends: list[int] = []
    for first in range(step, len(rows), step):
        end = first
        while end < len(rows) and rows[end].order == rows[end - 1].order:
            end += 1
        if end < len(rows) and (not ends or end > ends[-1]):
            ends.append(end)
    return ends
