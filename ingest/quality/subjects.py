"""What is to be checked: each mirror with its lanes, as the books, the decisions and the logs have them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ingest.change import TableId, same_place
from ingest.config import matches
from ingest.lake import mirrors
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror, target
from ingest.lake.names import mirror_path
from ingest.lake.schemas import BOOKS

GOLD = "gold"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LANE = ("source", "database", "schema", "table")


@dataclass(frozen=True, slots=True)
class Lane:
    """One source table of one source: what its books say of the batches to check and of those before."""

    source: str
    table: TableId
    last: int  # the last batch with changes; 0 if there is none
    changes: int
    deletes: int
    key_changes: int
    truncates: int
    truncates_ever: int
    order_low: str | None  # of the batches to check
    folded_high: str | None  # of the batches before
    newest: dt.datetime | None  # source commit time
    places: int  # topics and partitions that it was read from

    @property
    def floor(self) -> str | None:
        """From which place on earlier batches matter too: some new change is not newer than all of them."""
        if not self.order_low or not self.folded_high:
            return None
        low = same_place(self.order_low)
        return low if low <= self.folded_high else None


@dataclass(slots=True)
class Subject:
    """One mirror to check. ``mirror`` is None while no schema has been decided, as for a held table."""

    table: TableId
    path: str
    mirror: Mirror | None = None
    applied: int = -1  # the last batch that it has folded
    exists: bool = False
    lanes: list[Lane] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name people use."""
        return str(self.table)

    @property
    def last(self) -> int:
        """The last batch with changes for it."""
        return max((lane.last for lane in self.lanes), default=0)

    @property
    def newest(self) -> dt.datetime | None:
        """The newest source commit that was read for it."""
        return max((lane.newest for lane in self.lanes if lane.newest), default=None)

    @property
    def keyed(self) -> bool:
        """True if its rows can be told apart and every lane's key is in the messages."""
        return self.mirror is not None and bool(self.mirror.keys)


@dataclass(slots=True)
class Booked:
    """What the books say of one source's batches to check; ``off`` counts messages that are in no column."""

    messages: int = 0
    rejected: int = 0
    off: int = 0


@dataclass(slots=True)
class Survey:
    """The mirrors to check and the sources that fed the batches to check."""

    subjects: list[Subject] = field(default_factory=list)
    booked: dict[str, Booked] = field(default_factory=dict)


def survey(
    lake: Lake, since: int, also: Iterable[str] = (), decided: Mapping[str, Mirror] | None = None
) -> Survey:
    """The mirrors that batches after ``since`` touched, those of the paths ``also``, and the books' sums."""
    if not lake.exists(BOOKS.name):
        return Survey()
    known = mirrors.known(lake) if decided is None else decided
    made, found, touched = Survey(), dict[str, Subject](), set(also)
    for row in _lines(lake, since).collect():
        booked = made.booked.setdefault(row["source"], Booked())
        for name in _SUMS:
            setattr(booked, name, getattr(booked, name) + (row[name] or 0))
        if row["table"] is None or not row["active"]:
            continue
        source = TableId(row["database"], row["schema"], row["table"])
        table = target(lake.pipeline.rule(source), source)
        path = mirror_path(table)
        found.setdefault(path, Subject(table, path, known.get(path))).lanes.append(_lane(row, source))
        if row["new"]:
            touched.add(path)
    made.subjects = [
        found[path] for path in sorted(found) if path in touched and _selected(lake, found[path])
    ]
    for subject in made.subjects:
        _look_up(lake, subject)
    return made


def _lane(row: Row, source: TableId) -> Lane:
    return Lane(
        source=row["source"],
        table=source,
        last=row["last"] or 0,
        **{name: row[name] or 0 for name in _COUNTS},
        order_low=row["order_low"],
        folded_high=row["folded_high"],
        newest=None if row["newest"] is None else EPOCH + dt.timedelta(microseconds=row["newest"]),
    )


def _selected(lake: Lake, subject: Subject) -> bool:
    return not lake.select or matches(lake.select, subject.table)


_COUNTS = ("changes", "deletes", "key_changes", "truncates", "truncates_ever", "places")


_SUMS = ("messages", "rejected", "off")
_PARTS = ("change_messages", "ddl", "control", "routed_out", "rejected")


def _lines(lake: Lake, since: int) -> DataFrame:
    """The books by lane, in one read: what is to be checked beside what was before."""
    new, active = F.col("batch") > since, (F.col("changes") > 0) | (F.col("ddl") > 0)
    changed = F.col("changes") > 0
    parts = sum((F.coalesce(part, F.lit(0)) for part in _PARTS), F.lit(0))
    return (
        lake.read(BOOKS.name)
        .withColumn("off", F.abs(F.col("messages") - parts))
        .groupBy("source", *_LANE)
        .agg(
            F.max(active).alias("active"),
            F.max(new & active).alias("new"),
            F.max(F.when(changed, F.col("batch"))).alias("last"),
            *[F.sum(F.when(new, F.col(name))).alias(name) for name in (*_COUNTS[:4], *_SUMS)],
            F.sum("truncates").alias("truncates_ever"),
            F.min(F.when(new & changed, F.col("order_low"))).alias("order_low"),
            F.max(F.when(~new, F.col("order_high"))).alias("folded_high"),
            F.unix_micros(F.max("event_high")).alias("newest"),
            F.countDistinct("topic", "partition").alias("places"),
        )
    )


def _look_up(lake: Lake, subject: Subject) -> None:
    state = lake.snapshot(subject.path)
    generation = subject.mirror.generation if subject.mirror else 0
    subject.exists = state.exists
    subject.applied = state.transactions.get(lake.writer(GOLD, subject.path, generation), -1)
