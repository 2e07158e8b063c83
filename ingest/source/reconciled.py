"""What a comparison of a table with its mirror was asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.change import TableId
from ingest.errors import IngestError

MISSING, SURPLUS, DIFFERENT = "missing", "surplus", "different"
RowKey = tuple[str | None, ...]
Cells = tuple[str | None, ...]


class IncomparableError(IngestError):
    """A mirror that cannot be compared with a table as long as both, and the pipeline file, are as they are."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that is not the same on both sides; a side that lacks it has no cells."""

    kind: str
    key: tuple[str, ...]
    cells: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)  # source, mirror
    # the key as the mirror's rows of it write it, where that is not how both sides know it, or several rows have it
    written: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class Reconciled:
    """What came of one table."""

    id: TableId
    mirror: str
    keys: tuple[str, ...]
    rows: int = 0  # of the source
    mirror_rows: int = 0
    ranges: int = 0
    equal: int = 0  # ranges
    fetched: int = 0  # rows that left the source
    sampled: bool = False
    differences: list[RowDifference] = field(default_factory=list)
    on_the_way: int = 0  # rows that had changed again, or are the same by now
    not_judged: list[RowDifference] = field(default_factory=list)  # the mirror has not passed the first look
    looked_at: str = ""  # the source's clock at the first look
    ahead: float = 0.0  # seconds by which the stream's times are later than that clock, if these are too many to judge by
    open_long: bool = False  # a transaction of the source was open all the while, so nothing is judged
    lacking: tuple[str, ...] = ()  # columns of the source that the mirror has not
    left_out: tuple[str, ...] = ()  # columns that cannot be compared: masked, or of a type without one text
    unkeyed: dict[str, int] = field(default_factory=dict)  # rows without a key that differ, by how
    unkeyed_waiting: int = 0  # such rows that are not judged
    seconds: float = 0.0

    @property
    def table(self) -> str:
        """Its name in the source."""
        return str(self.id)

    def count(self, kind: str) -> int:
        """How many rows differ in one way."""
        return sum(difference.kind == kind for difference in self.differences) + self.unkeyed.get(kind, 0)

    @property
    def waiting(self) -> int:
        """How many rows are not judged."""
        return len(self.not_judged) + self.unkeyed_waiting

    @property
    def differs(self) -> bool:
        """True if something is wrong for certain."""
        return bool(self.differences or self.lacking or self.unkeyed)


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """What reading may cost the source, and when a difference is judged."""

    rows_per_second: int = 0  # 0: as fast as it is
    parallel: int = 2
    range_rows: int = 50_000
    sample: bool = False  # only one range of twenty
    wait: float = 0.0  # seconds to wait for the mirror to pass the first look
    settled: bool = False  # the stream has delivered everything, so each difference is judged at once


def listed(differences: Sequence[RowDifference], most: int) -> Iterator[RowDifference]:
    """The first differences, of each kind as many."""
    for kind in (MISSING, SURPLUS, DIFFERENT):
        yield from [difference for difference in differences if difference.kind == kind][:most]
