"""Merge mirrors by Arrow: this process or Spark's tasks write each mirror's new file, and this process commits it."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.errors import PySparkException

from ingest.gold import tables
from ingest.gold.arrow import ColumnWork, LaneWork, Work, Written, make, read
from ingest.gold.lane import Lane, Steps
from ingest.gold.planner import CELLS_AT_MOST, FoldPlan, logged, refolds, too_large
from ingest.lake.deferred import cores
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column, Mirror
from ingest.lake.schemas import CHANGES

if TYPE_CHECKING:
    from ingest.gold.apply import Tell

FEW = 50_000  # changes that this process folds itself: starting Spark's tasks costs more
_WRITES = frozenset({"deletionVectors", "timestampNtz", "invariants", "appendOnly", "vacuumProtocolCheck"})
_ZONELESS, _FEATURE = "TIMESTAMP_NTZ", "timestampNtz"
_CREATED = 0
_PLAIN, _FEATURES = (
    2,
    7,
)  # writer protocol versions: those in between do not say which features a table uses


@dataclass(frozen=True, slots=True)
class Merged:
    """A mirror's commit, or why there is none."""

    refused: str = ""
    version: int = -1
    size: int = 0
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)


def fold(lake: Lake, plans: Sequence[FoldPlan], tell: Tell) -> dict[str, Merged]:
    """Fold and commit mirrors, each on its own; returns the result of each by its path.

    A refused mirror has no commit: Spark folds it.
    """
    began = time.monotonic()
    found: dict[str, Merged] = {}
    opened: dict[str, _Target] = {}
    by_path = {one.plan.mirror.path: one for one in plans}
    with ThreadPoolExecutor(_threads(lake), thread_name_prefix="arrow") as pool:
        for path, target in zip(by_path, pool.map(lambda one: _open(lake, one), plans), strict=True):
            if isinstance(target, str):
                found[path] = Merged(target)
            else:
                opened[path] = target
        works = [one.work for one in opened.values()]
        for made in _each_made(lake, works, pool):
            fold_plan = by_path[made.path]
            tell(fold_plan.plan.mirror.name, "load" if fold_plan.fresh else "merge")
            found[made.path] = _committed(lake, fold_plan, opened[made.path], made)
    each = (time.monotonic() - began) / len(plans)
    return {path: replace(one, seconds=each) for path, one in found.items()}


def _threads(lake: Lake) -> int:
    return max(2, min(8, cores(lake.spark)))


# --- before ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    work: Work
    table: DeltaTable | None
    schema: Schema | None = None  # as it is with the batch


def _open(lake: Lake, fold: FoldPlan) -> _Target | str:
    """A mirror's table and files, or a text that says why Spark must fold it."""
    mirror, before = fold.plan.mirror, fold.before
    folder = lake.path(mirror.path).removeprefix("file://")
    lanes = tuple(_lane(*one) for one in fold.work)
    columns = tuple(ColumnWork(one.name, one.column, one.type, one.expression) for one in mirror.columns)
    work = Work(mirror.path, folder, mirror.keys, columns, lanes, changes=fold.changes, where=mirror.where)
    if not before.exists:
        return _Target(work, None)
    try:
        table = DeltaTable(folder)
        if why := _unwritable(table, fold):
            return why
        found = pa.table(table.get_add_actions(flatten=True))
        rows = sum(one or 0 for one in found["num_records"].to_pylist())
        if rows * len(mirror.columns) > CELLS_AT_MOST:
            return f"its {rows} rows are too many to hold at once"
        schema = _schema(table, mirror)
        sizes = found["size_bytes"].to_pylist()
        kept = _kept(table)
        files = tuple((name, kept.get(Path(name).name)) for name in found["path"].to_pylist())
    except Exception as error:  # whatever one mirror meets, the others go on
        return f"{type(error).__name__}: {error}"
    size = sum(sizes)
    work = replace(work, files=files, size=size, reshaped=schema != table.schema())
    return too_large(lake.pipeline, size, fold.changes) or _Target(work, table, schema)


def _lane(one: Lane, steps: Steps) -> LaneWork:
    whole = refolds(one, steps)
    return LaneWork(
        one.source,
        one.table,
        one.first,
        one.last,
        images=not (one.new.partials or one.new.key_changes),
        floor=max((str(step.order) for step in steps.incarnations), default=None),
        shard=one.shard,
        stamps=one.stamps,
        whole=whole,
        steps=steps.ever if whole else (),
        since=min((str(step.order) for step in steps.new), default="") if whole else "",
    )


def _unwritable(table: DeltaTable, fold: FoldPlan) -> str:
    mirror = fold.plan.mirror
    if table.version() != fold.before.version:
        return "another writer has committed to it"
    protocol, about = table.protocol(), table.metadata()
    if more := {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _WRITES:
        return f"its table has the features {', '.join(sorted(more))}"
    if _PLAIN < protocol.min_writer_version < _FEATURES or not all(map(_takes_any, table.schema().fields)):
        return "its table has constraints"
    settings = about.configuration
    if settings.get("delta.enableChangeDataFeed", "false") == "true" or about.partition_columns:
        return "its table has a change feed or partitions"
    if settings.get("delta.appendOnly", "false") == "true" or "delta.columnMapping.mode" in settings:
        return "its table is append-only or maps its columns"
    new = [one for one in mirror.columns if one.column not in fold.before.types]
    if any(one.delta == _ZONELESS for one in new) and _FEATURE not in (protocol.writer_features or ()):
        return "its table lacks the feature that a new column needs"
    return ""


def _takes_any(field: Field) -> bool:
    """True for a column that accepts every value of its type."""
    return field.nullable and not field.metadata.keys() & {"delta.invariants", "delta.generationExpression"}


def _schema(table: DeltaTable, mirror: Mirror) -> Schema:
    """The table's columns after the batch: those of the mirror; existing ones keep their metadata."""
    there = {one["name"]: one for one in json.loads(table.schema().to_json())["fields"]}
    fields = {}
    for one in mirror.columns:
        field = there.get(one.column) or _field(one)
        if one.comment:
            field = {**field, "metadata": {**field["metadata"], "comment": tables.comment_of(one)}}
        fields[one.column] = field
    if fields == there:  # in whatever order
        return table.schema()
    return Schema.from_json(json.dumps({"type": "struct", "fields": list(fields.values())}))


def _field(one: Column) -> dict[str, Any]:
    """A column as the log describes it."""
    comment = tables.comment_of(one)
    return {
        "name": one.column,
        "type": logged(one.delta),
        "nullable": True,
        "metadata": {"comment": comment} if comment else {},
    }


def _kept(table: DeltaTable) -> dict[str, pa.BooleanArray]:
    """By file name, the rows that deletion vectors leave."""
    found = pa.table(table.deletion_vectors())
    names = (str(one).rpartition("/")[2] for one in found["filepath"].to_pylist())
    return {
        name: one.values for name, one in zip(names, found["selection_vector"], strict=True) if one.is_valid
    }


def _changes(lake: Lake, works: Sequence[Work]) -> list[str]:
    """The files of ``changes`` that may contain the new batches."""
    first = min(lane.from_batch for work in works for lane in work.lanes)
    folder = lake.path(CHANGES.name).removeprefix("file://")
    found = []
    for one in lake.snapshot(CHANGES.name).files:
        high = json.loads(one.stats or "{}").get("maxValues", {}).get("batch")
        if one.partition["kind"] == "change" and (high is None or high >= first):
            if one.deleted:
                raise OSError("silver's files have deletion vectors")
            found.append(f"{folder}/{one.place}")
    return found


# --- the folds ------------------------------------------------------------------------------------


def _each_made(lake: Lake, works: Sequence[Work], pool: ThreadPoolExecutor) -> Iterator[Written]:
    """The result of each mirror; if ``changes`` cannot be read this way, Spark folds all of them."""
    done: set[str] = set()
    try:
        for made in _made(lake, works, pool):
            done.add(made.path)
            yield made
    except (DeltaError, OSError, pa.ArrowException, PySparkException) as error:
        yield from (
            Written(work.path, f"{type(error).__name__}: {error}") for work in works if work.path not in done
        )


def _made(lake: Lake, works: Sequence[Work], pool: ThreadPoolExecutor) -> Iterator[Written]:
    """The result of each mirror: by threads of this process if there are few changes, else by Spark's tasks."""
    if not works:
        return
    files = _changes(lake, works)
    if sum(work.changes for work in works) <= FEW:
        rows = read(files, [lane for work in works for lane in work.lanes])
        yield from pool.map(lambda work: make(work, rows), works)
        return
    groups = _groups(works, cores(lake.spark))
    frame = lake.spark.range(0, len(groups), 1, len(groups)).mapInArrow(
        _task(groups, files), "written STRING"
    )
    for row in frame.collect():
        yield msgspec.json.decode(row["written"], type=Written)


def _groups(works: Sequence[Work], cores: int) -> list[list[Work]]:
    """Mirrors in groups of about equal numbers of changes and bytes."""
    groups: list[list[Work]] = [[] for _ in range(min(len(works), cores))]
    weights = [0] * len(groups)
    for work in sorted(works, key=_weight, reverse=True):
        least = weights.index(min(weights))
        groups[least].append(work)
        weights[least] += _weight(work)
    return groups


def _weight(work: Work) -> int:
    return 50_000 + work.size + 1_000 * work.changes


def _task(groups: Sequence[Sequence[Work]], files: Sequence[str]) -> Any:
    """For ``mapInArrow``: each task folds its group, mirror by mirror."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                rows = read(files, [lane for work in groups[at] for lane in work.lanes])
                told = [msgspec.json.encode(make(work, rows)).decode() for work in groups[at]]
                yield pa.RecordBatch.from_arrays([pa.array(told, pa.string())], names=["written"])

    return run


# --- the commits ----------------------------------------------------------------------------------


def _committed(lake: Lake, fold: FoldPlan, target: _Target, made: Written) -> Merged:
    """Add a mirror's new file to its log, under the batch's identifier, unless another writer was first."""
    if made.refused:
        return Merged(made.refused)
    add: list[AddAction | RemoveAction] = []
    if made.file:
        now = int(time.time() * 1000)
        add = [AddAction(made.file, made.size, {}, now, True, made.stats)]
    try:
        if target.table is None:
            _create(lake, fold, target.work, made)
            version = 0
        else:
            # delta-rs writes a checkpoint now and then. The checksum that Hadoop's client keeps next to a file that
            # it wrote would then report the pointer to it as damaged
            Path(target.work.folder, "_delta_log", "._last_checkpoint.crc").unlink(missing_ok=True)
            target.table.create_write_transaction(
                add,
                "overwrite" if made.replaces else "append",
                target.schema or target.table.schema(),
                commit_properties=CommitProperties(
                    {
                        "userMetadata": lake.metadata(fold.books.last, landed=True),
                        "operationMetrics": _metrics(made),
                    },
                    max_commit_retries=0,
                    app_transactions=[Transaction(fold.writer, fold.books.last)],
                ),
                # `maintain` cleans up the log, and keeps the promised versions
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
            version = fold.before.version + 1
    except (DeltaError, FileExistsError) as error:
        return Merged(f"another writer has committed to it: {error}")
    except OSError as error:  # a full disk, for example: the others go on
        return Merged(f"{type(error).__name__}: {error}")
    size = made.size if made.replaces else target.work.size + made.size
    return Merged("", version, size, counts=made.counts)


def _metrics(made: Written) -> dict[str, str]:
    return {name: str(made.counts.get(count, 0)) for name, count in tables.METRICS.items()}


def _create(lake: Lake, fold: FoldPlan, work: Work, made: Written) -> None:
    """Write the first entry of a mirror's log, as Spark would create the table; fails if there is one.

    delta-rs would require features that the table does not use.
    """
    mirror = fold.plan.mirror
    given = tables.Made.of(lake.pipeline, fold.plan.job.rule)
    now = int(time.time() * 1000)
    fields = list(map(_field, mirror.columns))
    zoneless = any(one.delta == _ZONELESS for one in mirror.columns)
    read = [name for name, holds in (("deletionVectors", not given.plain), (_FEATURE, zoneless)) if holds]
    protocol = (
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": read,
            "writerFeatures": [*read, "appendOnly", "invariants"],
        }
        if read
        else {"minReaderVersion": 1, "minWriterVersion": 2}
    )
    configuration = given.properties(lake.pipeline.horizon_days)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "CREATE TABLE AS SELECT",
                "operationParameters": {
                    "partitionBy": "[]",
                    "description": f"mirror of {mirror.name}",
                    "isManaged": "false",
                    "properties": json.dumps(configuration),
                },
                "isolationLevel": "Serializable",
                "isBlindAppend": True,
                "operationMetrics": _metrics(made),
                "userMetadata": lake.metadata(fold.books.last, landed=True),
                "engineInfo": "ingest",
                "txnId": str(uuid.uuid4()),
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": f"mirror of {mirror.name}",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": configuration,
                "createdTime": now,
            }
        },
        {"protocol": protocol},
        {"txn": {"appId": fold.writer, "version": fold.books.last, "lastUpdated": now}},
    ]
    if made.file:
        about = {"path": made.file, "partitionValues": {}, "size": made.size, "modificationTime": now}
        actions.append({"add": {**about, "dataChange": True, "stats": made.stats}})
    folder = Path(work.folder, "_delta_log")
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f".{uuid.uuid4()}.tmp"
    whole.write_text("".join(json.dumps(one) + "\n" for one in actions), "utf-8")
    try:
        os.link(whole, folder / f"{_CREATED:020d}.json")  # fails if it is there
    finally:
        whole.unlink()
