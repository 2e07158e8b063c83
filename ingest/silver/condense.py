"""Log compaction of old silver: drop changes that no later history can need, in one guarded commit.

A change is dropped if, for every key that it concerns, a later one sets the whole row. Nothing from before such a row
can affect it, not even with changes that arrive late: so the fold of the remaining changes always equals the fold of
all. Kept are the last whole row of a key and everything after it: updates of some columns, its delete (a key change may
still need the deleted row's values) or a later change of its key; also truncates and statements. Keys are compared as
texts: two texts of one value are two keys here, and both are kept.

Only one thing can need a dropped change: a key change without the whole row that arrives after the window and precedes
what was kept. A lane that ever had such changes is never condensed; if the first one arrives that late, the mirror is
held (`ingest.gold.plan.forgotten`).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.change import LaneId, TableId
from ingest.config import target
from ingest.errors import counted
from ingest.ledgers import condensed, mirrors
from ingest.ledgers.condensed import Condensed
from ingest.ledgers.decisions import CONDENSE
from ingest.spark.pace import pace
from ingest.spark.session import new_session
from ingest.store.names import mirror_path
from ingest.tables.duck import LANE
from ingest.tables.images import image
from ingest.tables.keys import Texts, key_texts, moves
from ingest.tables.lake import Lake
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES

FILE = 128 << 20  # bytes of changes that are written into one file, about
LEAST = 0.1  # of the old changes must be droppable, or a rewrite is not worth it
_PLACE = (*LANE, "batch", "order_key")
_SORTED = ("database", "schema", "table", "order_key")
Keys = tuple[str, ...]


def condense(lake: Lake, before: dt.datetime, complete: int) -> int:
    """Drop superseded changes of batches that landed ``before`` and are in every mirror; returns their number.

    The caller holds the lake's lock; ``complete`` is the last batch that every mirror has folded.
    """
    session = new_session(lake.spark)
    session.conf.set("spark.sql.caseSensitive", "true")  # columns that differ only in case are two
    lake = replace(lake, spark=session)
    state = lake.snapshot(CHANGES.name)
    upto = min(_older(lake, before), complete, lake.decoded()) if state.exists else 0
    writer = lake.writer(CONDENSE, CHANGES.name, lake.generation(state, "silver", CHANGES.name))
    done = state.transactions.get(writer, 0)
    lanes = _lanes(lake, done, upto) if upto > done else {}
    if not lanes:
        return 0
    pace(session, 0, state.known_size)
    old = lake.read(CHANGES.name).where((F.col("kind") == "change") & (F.col("batch") <= upto))
    gone = reduce(DataFrame.unionByName, [_superseded(old, keys, lane) for keys, lane in lanes.items()])
    gone = gone.persist()
    try:
        counts = gone.groupBy(*LANE).agg(F.max("since").alias("floor"), F.count("*").alias("n")).collect()
        going = sum(int(row["n"]) for row in counts)
        if not going or going < LEAST * old.count():
            return 0
        floors = {(row["source"], TableId(*row[1:4])): row["floor"] for row in counts}
        condensed.record(
            lake,
            _now(lake, upto, floors, lanes),
            f"{counted(going, 'change is', 'changes are')} dropped that later ones supersede",
        )
        kept = old.alias("l").join(gone.alias("r"), _same(_PLACE), "left_anti")
        files = max(1, -(-state.known_size // FILE))
        kept = kept.repartitionByRange(files, *_SORTED).sortWithinPartitions(*_SORTED)
        lake.publish(kept, CHANGES.name, writer, upto, f"kind = 'change' AND batch <= {upto}")
    finally:
        gone.unpersist()
    return going


def _older(lake: Lake, before: dt.datetime) -> int:
    """The last batch before the first one that landed at that moment or later."""
    rows = lake.read(BRONZE.name).where(F.col("kind") != "message")
    edges = rows.agg(
        F.min(F.when(F.col("ingested_at") >= F.lit(before), F.col("batch"))).alias("young"),
        F.max("batch").alias("last"),
    ).collect()[0]
    young = edges["young"]
    return int((edges["last"] or 0) if young is None else young - 1)


def _lanes(lake: Lake, done: int, upto: int) -> dict[Keys, list[LaneId]]:
    """The lanes that can be condensed, with changes after the last condensed batch, by their keys' columns."""
    sums = (
        lake.read(BOOKS.name)
        .where(F.col("table").isNotNull() & (F.col("batch") <= upto))
        .groupBy(*LANE)
        .agg(
            F.sum(F.when(F.col("batch") > done, F.col("changes"))).alias("new"),
            F.sum("inherits").alias("inherits"),
        )
        .where("new > 0 AND coalesce(inherits, 0) = 0")
    )
    known = mirrors.known(lake)
    lane_ids: dict[Keys, list[LaneId]] = defaultdict(list)
    for row in sums.collect():
        table = TableId(*row[1:4])
        keys = _keys(lake, known, table)
        if keys:
            lane_ids[keys].append((row["source"], table))
    return lane_ids


def _keys(lake: Lake, known: Mapping[str, mirrors.Mirror], table: TableId) -> Keys:
    """The key that identifies a table's changes in all of its mirrors; empty if all changes are needed."""
    first = lake.pipeline.rule(table)
    keys = set[Keys]()
    for rule in (first, *first.also):
        mirror = known.get(mirror_path(target(rule, table)))
        if mirror is None or mirror.eras or rule.history or rule.soft or rule.exclude:
            return ()
        keys.add(mirror.keys_without(rule.shard_column))
    return keys.pop() if len(keys) == 1 else ()


def _superseded(old: DataFrame, keys: Keys, lanes: Sequence[LaneId]) -> DataFrame:
    """The places of the changes that nothing can need any more, and the place after which that holds."""
    rows = _of(old, lanes).where(F.col("op") != "truncate")
    after, before = (image(name, keys) for name in ("after", "before"))
    sent = rows.select(*_PLACE, "op", "partial", "after", "before", after.alias("a"), before.alias("b"))
    new, left = key_texts(keys)
    both = F.array_distinct(F.array(_text(new), _text(left)))
    sent = sent.select(*_PLACE, _sets(new, left).alias("sets"), both.alias("keys"))
    last = (
        sent.where("sets")
        .groupBy(*LANE, F.col("keys")[0].alias("key"))
        .agg(F.max("order_key").alias("since"))
    )
    halves = sent.select(*_PLACE, F.size("keys").alias("n"), F.explode("keys").alias("key"))
    later = [*_same(LANE), F.col("l.key") == F.col("r.key"), F.col("l.order_key") < F.col("r.since")]
    followed = halves.alias("l").join(last.alias("r"), later).select("l.*", "r.since")
    counted = followed.groupBy(*_PLACE, "n").agg(F.count("*").alias("found"), F.max("since").alias("since"))
    return counted.where("found = n").select(*_PLACE, "since")


def _of(old: DataFrame, lanes: Iterable[LaneId]) -> DataFrame:
    spark = old.sparkSession
    text = "source STRING, `database` STRING, `schema` STRING, `table` STRING"
    wanted = spark.createDataFrame([(source, *table) for source, table in lanes], text)
    return old.alias("l").join(F.broadcast(wanted).alias("r"), _same(LANE), "left_semi")


def _text(cells: Texts) -> Column:
    """A key's texts as one; NULL if one is missing."""
    there = reduce(lambda a, b: a & b, [cell.isNotNull() for cell in cells])
    return F.when(there, F.to_json(F.struct(*[cell.alias(f"k{i}") for i, cell in enumerate(cells)])))


def _sets(new: Texts, left: Texts) -> Column:
    """True for a change that carries its whole row, under a key that it does not change, and that is not NULL."""
    whole = F.col("op").isin("insert", "read") | ((F.col("op") == "update") & ~F.col("partial"))
    return reduce(lambda a, b: a & b, [whole & cell.isNotNull() for cell in new]) & ~moves(new, left)


def _same(names: Sequence[str]) -> list[Column]:
    """The columns are equal in both sides of a join, ``l`` and ``r``."""
    return [F.col(f"l.{name}").eqNullSafe(F.col(f"r.{name}")) for name in names]


def _now(
    lake: Lake, batch: int, floors: Mapping[LaneId, str], lanes: Mapping[Keys, Sequence[LaneId]]
) -> Condensed:
    """The state of compaction after this run, including earlier ones."""
    earlier = condensed.read(lake)
    merged, keys = dict(earlier.floors), dict(earlier.keys)
    under = {lane: by for by, of_key in lanes.items() for lane in of_key}
    for lane, floor in floors.items():
        merged[lane] = max(floor, merged.get(lane, ""))
        again = lane in earlier.floors and keys.get(lane) != under[lane]
        keys[lane] = () if again else under[lane]  # condensed by two keys: no key is safe
    return Condensed(max(batch, earlier.batch), merged, keys)
