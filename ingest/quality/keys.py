"""The Spark pass: every touched mirror's keys beside what the changes say of them, in one job.

Rows of mirrors and changes meet under the hash of their typed key, so that one shuffle of numbers
counts rows, doubled and empty keys, missing and ghost rows, ties and repetitions for all mirrors.
What is found wrong is looked at again, key by key, for the report.  Nothing here is shared with the
stage that wrote the mirrors: a check that repeats the checked code's mistakes finds none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ingest.config import Pipeline
from ingest.lake import mirrors
from ingest.lake.lake import Lake
from ingest.lake.names import quoted
from ingest.lake.schemas import CHANGES
from ingest.lake.session import new_session
from ingest.quality.catalogue import CHECKS, FAILING_KEYS
from ingest.quality.places import place
from ingest.quality.statements import Statement, beginning
from ingest.quality.subjects import Lane, Subject

AT_ONCE = 50  # mirrors a job: planning grows faster than their number
EXPLAINED = 20  # complaints of one run whose keys are looked up
_KEY = "key"


@dataclass(slots=True)
class Counted:
    """What the pass found of one mirror: numbers by check, and a sample of keys for the bad ones."""

    numbers: dict[str, int]
    failing: dict[str, tuple[str, ...]] = field(default_factory=dict)


def count(
    lake: Lake, chosen: Sequence[Subject], since: int, logged: Sequence[Statement] = ()
) -> dict[str, Counted]:
    """Every mirror's key checks by its path; mirrors without a table or a known key are left out.

    Args:
        lake: the lake.
        chosen: what to check.
        since: the changes of later batches are compared; 0 compares everything.
        logged: the DDL ledger.
    """
    session = new_session(lake.spark)
    session.conf.set("spark.sql.caseSensitive", "true")
    passes = [_Pass(session, lake, one, since, logged) for one in chosen if one.exists and one.mirror]
    found: dict[str, Counted] = {}
    for start in range(0, len(passes), AT_ONCE):
        found.update(_counted(passes[start : start + AT_ONCE]))
    _explain(passes, found)
    return found


def _counted(passes: Sequence[_Pass]) -> dict[str, Counted]:
    numbers = {name: F.sum(fault).alias(name) for name, fault in faults().items()}
    rows = _groups(passes).groupBy("m").agg(F.sum("n").alias("rows"), *numbers.values()).collect()
    by_index = {row["m"]: row for row in rows}
    found = {}
    for i, one in enumerate(passes):
        row = by_index.get(i)
        names = ("rows", *(name for name in numbers if one.asks(name)))
        found[one.subject.path] = Counted({name: int((row and row[name]) or 0) for name in names})
    return found


def _groups(passes: Sequence[_Pass]) -> DataFrame:
    """One row per key of a mirror: how often it stands there, and whether it should."""
    rows, events = [], []
    for i, one in enumerate(passes):
        closed, told = one.told()
        rows.append(_there(one.rows(), i, closed=closed))
        events += [lane.withColumn("m", F.lit(i)) for lane in told]
    sides = reduce(DataFrame.unionByName, rows)
    if events:
        sides = sides.unionByName(_spoken(reduce(DataFrame.unionByName, events)))
    return sides.groupBy("m", "h").agg(
        F.sum("n").alias("n"),
        F.sum("empty").alias("empty"),
        F.max("alive").alias("alive"),
        F.max("whole").alias("whole"),
        F.sum("ties").alias("ties"),
        F.sum("repeats").alias("repeats"),
    )


def _there(rows: DataFrame, index: int, *, closed: bool) -> DataFrame:
    """A mirror's rows; ``closed``: the changes at hand are all that may be there."""
    nothing = F.lit(0).cast("bigint")
    return rows.select(
        F.lit(index).alias("m"),
        "h",
        F.lit(1).cast("bigint").alias("n"),
        F.col("empty").cast("bigint").alias("empty"),
        F.lit(0 if closed else None).cast("int").alias("alive"),
        F.lit(None).cast("int").alias("whole"),
        nothing.alias("ties"),
        nothing.alias("repeats"),
    )


def _spoken(events: DataFrame) -> DataFrame:
    """Per key: does it live after its last change, and was some change of it told twice?"""
    places = (
        events.repartition("m", "h")
        .groupBy("m", "h", "place")
        .agg(
            F.max(F.struct("order_key", "part", "gone")).alias("last"),
            F.max(F.col("reset").cast("int")).alias("whole"),
            (F.min("message") != F.max("message")).alias("again"),
            (F.min("content") == F.max("content")).alias("same"),
        )
    )
    keys = places.groupBy("m", "h").agg(
        F.max("last").alias("last"),
        F.max("whole").alias("whole"),
        F.sum((F.col("again") & ~F.col("same")).cast("bigint")).alias("ties"),
        F.sum((F.col("again") & F.col("same")).cast("bigint")).alias("repeats"),
    )
    nothing = F.lit(0).cast("bigint")
    alive = (~F.col("last.gone")).cast("int").alias("alive")
    return keys.select(
        "m", "h", nothing.alias("n"), nothing.alias("empty"), alive, "whole", "ties", "repeats"
    )


def faults() -> dict[str, Column]:
    """How much each check finds in a key's group; ``alive`` is NULL where no change spoke of the key."""
    there, full = F.col("n") > 0, F.col("empty") == 0
    lives, gone = F.col("alive").eqNullSafe(F.lit(1)), F.col("alive").eqNullSafe(F.lit(0))
    return {
        "key_not_null": F.col("empty"),
        "key_unique": F.when(there & full, F.col("n") - 1).otherwise(0),
        "missing_rows": (lives & ~there).cast("bigint"),
        "ghost_rows": (gone & there & full).cast("bigint"),
        "ambiguities": F.col("ties"),
        "duplicates": F.col("repeats"),
        "incomplete_rows": (lives & there & (F.col("whole") == 0)).cast("bigint"),
    }


@dataclass(slots=True)
class _Pass:
    """One mirror's two sides: its rows and its changes, each under the hash of the key."""

    session: SparkSession
    lake: Lake
    subject: Subject
    since: int
    logged: Sequence[Statement] = ()

    def asks(self, check: str) -> bool:
        """True if the check can be answered for this mirror."""
        if check in ("key_unique", "key_not_null"):
            return self.subject.keyed
        return self.comparable and (check != "incomplete_rows" or self.since <= 0)

    @property
    def comparable(self) -> bool:
        """True if the changes hold the whole key: a shard column stands in the mirror only."""
        if not self.subject.keyed or self.subject.mirror is None:
            return False
        shard = {_shard_column(self.lake.pipeline, lane) for lane in self.subject.lanes}
        return not shard & set(self.subject.mirror.keys)

    def told(self) -> tuple[bool, list[DataFrame]]:
        """What should be there: whether the changes at hand tell all of it, and each lane's events."""
        if not self.comparable:
            return False, []
        lanes = [lane for lane in self.subject.lanes if self.since <= 0 or lane.changes]
        changes = [(lane, *self._standing(lane)) for lane in lanes]
        closed = self.since <= 0 or any(cleared for _, _, cleared in changes)
        return closed, [_events(rows, lane) for lane, rows, _ in changes]

    def _standing(self, lane: Lane) -> tuple[DataFrame, bool]:
        """A lane's changes behind the place where it was last emptied, and whether that is among them."""
        changes = self.changes(lane)
        rows = changes.where(F.col("op") != "truncate")
        emptied = self._emptied(changes, lane)
        if emptied is None:
            return rows, False
        place, batch = emptied
        return rows.where(F.col("order_key") > place), batch > self.since

    def _emptied(self, changes: DataFrame, lane: Lane) -> tuple[str, int] | None:
        """Place and batch of the newest truncate or new beginning."""
        found = beginning(self.logged, self.lake.pipeline, lane.source, lane.table, self.subject.applied)
        if lane.truncates or (lane.truncates_ever and lane.floor):
            truncates = changes.where(F.col("op") == "truncate")
            newest = truncates.agg(F.max(F.struct("order_key", "batch")).alias("at")).first()
            if newest is not None and newest["at"] is not None:
                found = max(filter(None, (found, tuple(newest["at"]))))
        return found

    def rows(self) -> DataFrame:
        """The mirror's keys with their hash."""
        frame = self.session.read.format("delta").load(self.lake.path(self.subject.path))
        if not self.subject.keyed:
            return frame.select(F.monotonically_increasing_id().alias("h"), F.lit(False).alias("empty"))
        keys = [F.col(quoted(one.column)) for one in self._keys()]
        named = [key.alias(name) for key, name in zip(keys, self._names(), strict=True)]
        empty = reduce(Column.__or__, [key.isNull() for key in keys])
        return frame.select(F.xxhash64(*keys).alias("h"), empty.alias("empty"), *named)

    def changes(self, lane: Lane) -> DataFrame:
        """A lane's changes with typed keys and hashes, as far as the mirror has folded them."""
        wanted = F.col("batch") > self.since
        if lane.floor is not None:
            wanted |= F.col("order_key") >= lane.floor
        frame = self.session.read.format("delta").load(self.lake.path(CHANGES.name))
        mine = frame.where(_of(lane) & (F.col("batch") <= self.subject.applied) & wanted)
        return self._keyed(mine)

    def _keyed(self, changes: DataFrame) -> DataFrame:
        """Each change under its new key, with the hash of the old one beside it."""
        image = StructType([StructField(one.name, StringType()) for one in self._keys()])
        parsed = changes.select(
            "op",
            "batch",
            "order_key",
            place(F.col("order_key")).alias("place"),
            F.xxhash64("batch", "topic", "partition", "offset").alias("message"),
            F.xxhash64("op", "before", "after").alias("content"),
            ((F.col("op") != "update") | ~F.coalesce("partial", F.lit(False))).alias("reset"),
            F.from_json("before", image).alias("b"),
            F.from_json("after", image).alias("a"),
        )
        kept = [name for name in parsed.columns if name not in ("a", "b")]
        new = [self._typed(one.name, one.delta, "a", "b") for one in self._keys()]
        old = [self._typed(one.name, one.delta, "b", "a") for one in self._keys()]
        gone = F.col("op") == "delete"
        key = [F.when(gone, left).otherwise(right) for left, right in zip(old, new, strict=True)]
        named = [one.alias(name) for one, name in zip(key, self._names(), strict=True)]
        typed = parsed.select(*kept, *named, F.xxhash64(*key).alias("h"), F.xxhash64(*old).alias("was"))
        return typed.where((F.col("op") == "truncate") | self._fits())

    def _fits(self) -> Column:
        """A key cell that does not fit was rejected by the fold: no row can stand for it."""
        return reduce(Column.__and__, [F.col(name).isNotNull() for name in self._names()])

    def _typed(self, name: str, delta: str, first: str, second: str) -> Column:
        """The key cell as the mirror's type; NULL where it does not fit."""
        text = F.coalesce(F.col(first)[name], F.col(second)[name])
        return F.unbase64(text) if delta == "BINARY" else text.try_cast(delta)

    def _keys(self) -> tuple[mirrors.Column, ...]:
        assert self.subject.mirror is not None
        return self.subject.mirror.key_columns

    def _names(self) -> list[str]:
        return [f"k{i}" for i in range(len(self._keys()))]

    def texts(self, frame: DataFrame, hashes: Sequence[int]) -> tuple[str, ...]:
        """The keys behind hashes, as JSON."""
        cells = [F.col(name).alias(one.name) for name, one in zip(self._names(), self._keys(), strict=True)]
        key = F.to_json(F.struct(*cells), {"ignoreNullFields": "false"}).alias(_KEY)
        found = frame.where(F.col("h").isin(list(hashes))).select(key).distinct().limit(FAILING_KEYS)
        return tuple(sorted(row[_KEY] for row in found.collect()))


def _shard_column(pipeline: Pipeline, lane: Lane) -> str:
    return pipeline.rule(lane.table).shard_column


def _of(lane: Lane) -> Column:
    parts = zip(("database", "schema", "table"), lane.table, strict=True)
    same = [F.col(name).eqNullSafe(F.lit(part)) for name, part in parts]
    return reduce(Column.__and__, same, (F.col("kind") == "change") & (F.col("source") == lane.source))


def _events(changes: DataFrame, lane: Lane) -> DataFrame:
    """What each change says of a key; one that moves its row speaks of two."""
    here = F.struct(F.col("h").alias("h"), F.lit(1).alias("part"), (F.col("op") == "delete").alias("gone"))
    halves = F.array(here)
    if lane.key_changes:
        left = F.struct(F.col("was").alias("h"), F.lit(0).alias("part"), F.lit(True).alias("gone"))
        moved = (F.col("op") == "update") & (F.col("was") != F.col("h"))
        halves = F.when(moved, F.array(left, here)).otherwise(halves)
    at = F.coalesce("place", "order_key").alias("place")
    return changes.select("order_key", at, "message", "content", "reset", F.inline(halves))


def _explain(passes: Sequence[_Pass], found: dict[str, Counted]) -> None:
    """Look up the keys behind what is wrong; a limit keeps a broken lake from taking all day."""
    left = EXPLAINED
    for one in passes:
        counted = found[one.subject.path]
        wrong = [
            name
            for name, n in counted.numbers.items()
            if n and name in CHECKS and CHECKS[name].limit is not None
        ]
        for check in wrong[:left]:
            counted.failing[check] = _failing(one, check)
        left -= min(left, len(wrong))


def _failing(one: _Pass, check: str) -> tuple[str, ...]:
    if check in ("key_unique", "key_not_null"):
        return _failing_rows(one, check)
    hashes = [
        row["h"]
        for row in _groups([one]).where(faults()[check] > 0).select("h").limit(FAILING_KEYS).collect()
    ]
    if check == "ghost_rows":
        return one.texts(one.rows(), hashes)
    return one.texts(reduce(DataFrame.unionByName, [one.changes(lane) for lane in one.subject.lanes]), hashes)


def _failing_rows(one: _Pass, check: str) -> tuple[str, ...]:
    """Doubled or empty keys, from the mirror alone."""
    if check == "key_not_null":
        rows = one.rows().where("empty")
    else:
        rows = one.rows().where("NOT empty").groupBy("h", *one._names()).count().where("count > 1")
    hashes = [row["h"] for row in rows.select("h").limit(FAILING_KEYS).collect()]
    return one.texts(one.rows(), hashes)
