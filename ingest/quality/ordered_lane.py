"""One lane of a mirror, as the checks of order look at it, and the commands that their complaints name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ingest.change import LaneId
from ingest.config import Source
from ingest.errors import command
from ingest.fold import SchemaStep
from ingest.ledgers import later_loads
from ingest.ledgers.cleared import NEVER, last_cleared
from ingest.order import is_weak
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.tables import Row

_HAS_SPELLINGS = re.compile("TINYINT|SMALLINT|INT|BIGINT|DECIMAL|FLOAT|DOUBLE|DATE|TIMESTAMP")


@dataclass(frozen=True, slots=True)
class OrderedLane:
    """A lane whose changes are not ordered by a clock, and what the books and the ledger say of it.

    Args:
        since: the last batch checked before.
        statements: the rows of the DDL ledger that name its table.
        turned: the lanes of which one file of a new batch has only newer changes than another one, and lower positions.
    """

    lake: Lake
    subject: CheckedMirror
    lane: CheckedLane
    source: Source
    since: int
    statements: Sequence[Mapping[str, Any]] = ()
    turned: Callable[[], set[LaneId]] = set

    @property
    def where(self) -> str:
        """The condition in SQL for rows of the lane."""
        return self.lane.where

    @property
    def is_weak(self) -> bool:
        """True if the first new change has no position, so that arrival decides."""
        return bool(self.lane.order_low) and is_weak(self.lane.order_low)

    @property
    def in_files(self) -> bool:
        """True if its source is files, which are read one after the other."""
        return self.source.kind == "files"

    @property
    def stream_columns(self) -> tuple[str, ...]:
        """The columns whose values have no common order of arrival; none for files, which come in the order of their names."""
        return ("topic", '"partition"') if self.source.kind == "kafka" else ()

    @property
    def later_load(self) -> str | None:
        """The place of the last load that is placed among the lane's changes by its position; None if there is none."""
        return later_loads.place_of_last(self.lake, self.lane.id)

    def cells(self, first: str, second: str) -> str:
        """The key cells in SQL, each from one image or else from the other."""
        return duck.cells(self.subject.decided.keys, first, second)

    def says_same(self, change: str, read: str) -> str:
        """The condition in SQL that the image of a change has no other cells than that of a row that was read.

        A column that one of them lacks was added, dropped or renamed between them, and says nothing. Texts that the mirror
        holds as one value are equal: a column may have got another type. A delete, which has no image, says another thing.
        """
        image = f"nullif({change}, '')"
        types = self.subject.types
        differ = [
            _differ(column.name, types.get(column.column, ""), image, read)
            for column in self.subject.decided.columns
        ]
        is_same = f"OR NOT ({' OR '.join(differ)})" if differ else ""
        return f"({image} IS NOT NULL AND (coalesce(json_contains({read}, {image}), false) {is_same}))"

    def taken(self) -> Sequence[tuple[SchemaStep, int]]:
        """The lane's schema steps, each with its batch."""
        return self.subject.steps(self.lane) if self.statements else ()

    def emptied(self, before: str = "") -> str:
        """The place of the last statement that has removed all rows, of those before a place if it is given; empty if there is
        none.
        """
        lane = self.lane.id
        return (last_cleared(self.lake, lane, self.taken(), self.lake.decoded(), before) or NEVER).place

    def metric(
        self,
        check: str,
        n: int,
        detail: str,
        failing: tuple[str, ...] = (),
        *,
        severity: str = "error",
        command: str = "",
    ) -> Metric:
        """What a check has counted in this lane, in words; ``warn`` if it may be right. The command repairs it."""
        return Metric(
            check, n, self.subject.name, severity=severity, detail=detail, failing=failing, command=command
        )

    def begin_of_load(self, place: str) -> list[Row]:
        """The ``first`` messages of the rows that were read at one position, by ``topic`` and ``part``, each with its ``batch``, those
        of the first batch first.
        """
        streams = self.lake.ask(
            f"""SELECT batch, topic, "partition" AS part, min("offset") AS first FROM {{changes.change}}
            WHERE op = 'read' AND {self.where} AND starts_with(order_key, {duck.text(place)}) GROUP BY ALL ORDER BY batch, part, topic"""
        )
        begun: dict[tuple[str, int], Row] = {}
        for row in streams:
            begun.setdefault((row["topic"], row["part"]), row)
        return [*begun.values()]

    def places_of(self, streams: Sequence[Mapping[str, Any]]) -> list[str]:
        """The first messages of some streams, as options of `ingest epoch`; of files only the first one."""
        return from_places(streams[:1] if self.in_files else streams)

    def named(self, keys: Iterable[Sequence[object]]) -> tuple[str, ...]:
        """The first of some keys as JSON."""
        return tuple(self.subject.named(islice(keys, FAILING_KEYS)))

    def epoch(self, batch: int | None = None, places: Sequence[str] = (), **given: bool) -> str:
        """`epoch_command`, in a sentence."""
        return f"`{self.epoch_command(batch, places, **given)}`"

    def epoch_command(
        self,
        batch: int | None = None,
        places: Sequence[str] = (),
        *,
        loaded: bool = True,
        complete: bool = False,
    ) -> str:
        """The command for an epoch: from places, from a batch, or from the next one.

        ``loaded`` is for a table that is loaded again, ``complete`` for a load that has come to its end.
        """
        where = places or ("--from-batch", self.lake.decoded() + 1 if batch is None else batch)
        words = [
            *(("--resnapshot", self.lane.table) if loaded else ()),
            *(["--complete"] if complete else []),
        ]
        return command("epoch", self.lake.pipeline.file, self.lane.source, *where, *words)

    def epoch_of_load(self, batch: int | None, places: Sequence[str] = ()) -> str:
        """The commands that let a load win: where it begins, and when it has come to its end."""
        begin, end = self.epoch(batch, places), self.epoch(batch, places, complete=True)
        return f"{begin}, and when the load has come to its end, {end}"


def ordered_lanes(lake: Lake, chosen: Iterable[CheckedMirror], since: int) -> Iterator[OrderedLane]:
    """The lanes of some mirrors whose sources the pipeline file has; ``since`` is the last batch checked before."""
    for subject in chosen:
        for lane in subject.lanes:
            if source := lake.pipeline.by_source.get(lane.source):
                yield OrderedLane(lake, subject, lane, source, since)


def _differ(name: str, delta: str, image: str, other: str) -> str:
    """The condition in SQL that two images have a column of a Delta type, and not the same in it."""
    cells = duck.member(image, name), duck.member(other, name)
    differ = f"{duck.has_member(image, name)} AND {duck.has_member(other, name)} AND {' IS DISTINCT FROM '.join(cells)}"
    if _HAS_SPELLINGS.match(delta):
        values = (f"TRY_CAST({cell} AS {duck.type_of(delta)})" for cell in cells)
        differ += f" AND NOT coalesce({' = '.join(values)}, false)"
    return f"({differ})"


def from_places(streams: Iterable[Mapping[str, Any]]) -> list[str]:
    """The first messages of some streams, as options of `ingest epoch`."""
    places = (f"{row['topic']}/{row['part']}/{row['first']}" for row in streams)
    return [word for place in places for word in ("--from", place)]
