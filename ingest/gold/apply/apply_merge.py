"""Apply a mirror's outcomes by Delta's own MERGE: where files cannot be committed, or where the pipeline file says so.

The outcomes come from the fold that files come from, too (`ingest.gold.fold.arrow_files.make`). Columns are added and
converted before the guarded commit, and dropped after it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ingest.errors import HeldError, StoreError
from ingest.gold.apply import merge as merging
from ingest.gold.apply import mirror_table
from ingest.gold.apply.planner import FoldPlan, Work, extent, goes_on
from ingest.gold.fold import retyped
from ingest.gold.fold.arrow_files import Written
from ingest.gold.fold.arrow_work import MirrorWork
from ingest.gold.fold.outcomes import COPIES, GONE
from ingest.gold.fold.staged import has_name, sent_name
from ingest.gold.fold.unfit import COUNTED
from ingest.gold.plan import foreign_commits
from ingest.gold.plan.mirror_schema import Plan
from ingest.gold.plan.results import MirrorCommit
from ingest.gold.plan.work import Books
from ingest.ledgers.mirrors import Mirror, Shard
from ingest.spark.pace import SMALL, narrow, pace
from ingest.spark.session import new_session
from ingest.spark.settings import USER_METADATA, is_set
from ingest.store import faults, stores
from ingest.store.names import literal, quoted
from ingest.tables.delta import Snapshot
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables

# A mirror that is small compared with its batch is rewritten, because deletion vectors cost some ten more Spark jobs.
# The old files stay on disk for the retention period: so at most this many bytes for each change, and at most `SMALL`.
REWRITTEN = 1 << 10  # bytes
_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"


def commit(
    lake: Lake, fold: FoldPlan, work: MirrorWork, made: Sequence[Written], counts: Counter[str]
) -> MirrorCommit:
    """Merge a mirror's outcomes into its table, under the batch's identifier; deletes their files.

    Args:
        lake: the lake.
        fold: the mirror's part of the batch.
        work: the same as its tasks took it.
        made: what these wrote.
        counts: what these counted.
    """
    try:
        return replace(_merged(lake, fold, work, made, counts), why_merge=fold.why_merge)
    except HeldError as error:
        return MirrorCommit(held=str(error), command=error.command)
    except Exception as error:  # a conflict, for example: the others go on
        return MirrorCommit(failed=faults.of_mirror(error, lake, fold.plan.mirror.name, work.path))
    finally:
        with contextlib.suppress(StoreError):  # `ingest maintain` deletes what is left
            stores.at(work.folder).remove_folder(f"{work.folder}/{work.staging}")


def _merged(
    lake: Lake, fold: FoldPlan, work: MirrorWork, made: Sequence[Written], counts: Counter[str]
) -> MirrorCommit:
    plan, before, mirror, books = fold.plan, fold.before, fold.plan.mirror, fold.books
    lake = with_session(lake, books, fold.work, before)
    if goes_on(fold.work):
        narrow(lake.spark, fold.changes, extent(before))
    metadata = lake.metadata(books.last, landed=True, after=before.version)
    guard = merging.Guard(fold.writer, books.last, metadata)
    if fold.again:
        mirror_table.allow_zoneless(lake, mirror, [column.delta for column in mirror.columns])
    elif before.exists:
        prepare(lake, plan, before)
    if unknown := retyped.keep(lake, mirror, fold.retyped, books.last):
        counts[COUNTED] += unknown
    source = _source(lake, mirror, work, made)
    cleared = list(dict.fromkeys(shard for part in made for shard in part.cleared))
    if not mirror.keys:
        _count_rows(lake, fold, source, guard, cleared)
    elif fold.fresh:
        guard.set_on(lake.spark)
        mirror_table.load(lake, mirror, source, plan.job.rule)
    elif work.states:
        guard.set_on(lake.spark)
        merging.replace_states(lake, mirror, source)
    else:
        guard.set_on(lake.spark)
        conditions = [f"t.{_of_shards(mirror, [shard])}" if shard else None for shard in cleared]
        partial = any(part.partial for part in made)
        merging.merge(lake, mirror, source, conditions, partial=partial, fills=work.fills)
    after = lake.snapshot(mirror.path)
    foreign_commits.refuse_between(lake, mirror, before.version, after.version)
    counts.update(counts_of(lake, mirror, after.version))
    guard.take_off(lake.spark)
    if mirror.keys and mirror_table.drop_columns(lake, mirror, after.columns):
        after = lake.snapshot(mirror.path)
    return MirrorCommit(version=after.version, size=after.known_size, counts=dict(counts))


def _count_rows(
    lake: Lake, fold: FoldPlan, source: DataFrame, guard: merging.Guard, cleared: list[Shard]
) -> None:
    """Put what becomes of a table without a key into it: no column matches its rows, so that a MERGE compares all."""
    mirror, path = fold.plan.mirror, lake.path(fold.plan.mirror.path)
    if not fold.before.exists:
        guard.set_on(lake.spark)
        mirror_table.load(lake, mirror, merging.each_copy(source), fold.plan.job.rule)
    elif fold.again:
        guard.replace(merging.rows_of(mirror, source), path)
    elif cleared:
        which = {} if () in cleared else {"replaceWhere": _of_shards(mirror, cleared)}
        guard.write(merging.rows_of(mirror, source), path, "overwrite", **which)
    elif fold.plan.job.rule.no_key == "append":
        guard.write(merging.rows_of(mirror, source), path, "append")
    else:
        merging.merge_copies(lake, mirror, source, guard)


def _of_shards(mirror: Mirror, shards: Sequence[Shard]) -> str:
    """A condition that the rows of some of several tables meet."""
    names, texts = zip(*chain.from_iterable(shards), strict=True)
    return f"{quoted(mirror.by_name[names[0]].column)} IN ({', '.join(map(literal, texts))})"


def _source(lake: Lake, mirror: Mirror, work: MirrorWork, made: Sequence[Written]) -> DataFrame:
    """What becomes of the mirror's keys or rows, as a frame."""
    columns = {GONE: "BOOLEAN"} if mirror.keys else {COPIES: "BIGINT"}
    columns |= {sent_name(number): column.delta for number, column in enumerate(mirror.columns)}
    if any(part.partial for part in made):  # the flags are NULL in files of outcomes that carry every column
        columns |= {has_name(number): "BOOLEAN" for number in range(len(mirror.columns))}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    files = [f"{work.folder}/{part.file}" for part in made]
    if lake.is_local:
        return lake.spark.read.schema(schema).parquet(*files)
    # in a lake that only Spark reaches they lie on this machine alone
    outcomes = pa.concat_tables(map(pq.read_table, files), promote_options="default")
    return lake.spark.createDataFrame(outcomes.select(list(columns)), schema)


# --- the session and the table --------------------------------------------------------------------


def own_session(lake: Lake) -> Lake:
    """The lake through a session of the mirror's own: MERGE takes its identifier from the session's settings."""
    session = new_session(lake.spark)
    session.conf.set("spark.sql.caseSensitive", "true")  # columns that differ only in case are two
    session.conf.set(USER_METADATA, lake.metadata())  # all its commits are marked as ours
    return replace(lake, spark=session)


def with_session(lake: Lake, books: Books, work: Work, before: Snapshot) -> Lake:
    """The lake through a mirror's own session, with settings for the sizes of its batch and table."""
    lake = own_session(lake)
    pace(lake.spark, books.changes, extent(before))
    small = extent(before) <= min(SMALL, sum(lane.changes for lane, _ in work) * REWRITTEN)
    if before.exists and small and not is_set(lake.spark, _VECTORS):
        lake.spark.conf.set(_VECTORS, "false")
    return lake


def prepare(lake: Lake, plan: Plan, before: Snapshot) -> None:
    """Do what must precede the guarded commit to a table that exists; all of it is safe to repeat."""
    if plan.job.rule.change_feed:  # one that others have turned on stays on
        mirror_table.turn_feed_on(lake, plan.mirror, before)
    mirror_table.add_columns(lake, plan.mirror, before.columns)
    mirror_table.reshape(lake, plan.mirror, before.columns)


def finish(lake: Lake, mirror: Mirror, before: Snapshot) -> None:
    """Finish what a run killed after its merge left undone: drop columns whose values the merge has carried to their
    new names.
    """
    if mirror.keys and before.exists and mirror_table.left(mirror, before.columns):
        lake = own_session(lake)
        pace(lake.spark, 0, extent(before))
        mirror_table.drop_columns(lake, mirror, before.columns)


def counts_of(lake: Tables, mirror: Mirror, version: int) -> dict[str, int]:
    """A batch's counts, from its own commit."""
    for action in lake.actions(mirror.path, version):
        metrics = action.get("commitInfo", {}).get("operationMetrics", {})
        if metrics and "numTargetRowsInserted" not in metrics:  # the commit that made the table
            rows, size = int(metrics.get("numOutputRows", 0)), int(metrics.get("numOutputBytes", 0))
            return {"inserted": rows, "written": rows, mirror_table.REWRITTEN: size}
        if metrics:
            return {
                mirror_table.METRICS[name]: int(value)
                for name, value in metrics.items()
                if name in mirror_table.METRICS
            }
    return {}
