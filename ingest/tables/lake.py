"""One lake: where its tables are, and how rows are written to them under a guard."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline, is_stored
from ingest.errors import IngestError
from ingest.spark.deferred import NoSession
from ingest.spark.tasks import Runner
from ingest.store import stores
from ingest.store.names import literal, quoted
from ingest.tables import commits, delta, duck, log, records
from ingest.tables.commits import Staged
from ingest.tables.datafiles import Added, FilePart, Layout, fitted, written
from ingest.tables.delta import NO_TABLE, DamagedError, Extent, Snapshot, UnreadableError, metadata_of
from ingest.tables.images import image_sql
from ingest.tables.removals import AGAIN
from ingest.tables.schemas import BY_NAME, TableSchema
from ingest.tables.tables import Row, Tables, filled

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_Answer = TypeVar("_Answer")
NOTHING: Mapping[str, object] = MappingProxyType({})
BatchSpan = tuple[int, int]
"""The first and the last batch of a range."""
Tell = Callable[[str, str], None]
"""Called with what is being worked on, and the step that begins: ``("gold shop.orders", "merge")``."""


@dataclass(slots=True)
class Lake(Tables):
    """A pipeline's lake folder, seen through one Spark session and one run."""

    spark: SparkSession
    pipeline: Pipeline
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    select: str = ""  # a pattern: only mirrors that fit it are folded
    stop: Callable[[], bool] = lambda: False  # True asks a run to end after the commit in flight
    shadow: str = ""  # the folder that a rebuild writes to, before its tables are compared and published
    shadowed: tuple[str, ...] = ()  # the tables in that folder: their names, or prefixes of names
    # cached reads of tables, by path, with their version
    kept: dict[str, tuple[object, object]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    _landings: dict[int, str | None] = field(default_factory=dict)
    # one thread creates or extends a table
    _creating: threading.RLock = field(default_factory=threading.RLock)
    _appending: dict[str, threading.RLock] = field(default_factory=dict)  # one thread appends to a table

    def __post_init__(self) -> None:
        if isinstance(self.spark, NoSession):
            return  # `stores.carried` brings with the task how its store is reached
        stores.remember_store(self.pipeline, writes=True)

    def __reduce__(self) -> tuple[object, ...]:
        """What a task is sent of it: it reads the same tables there, without a session."""
        return _in_task, (self.pipeline, self.run, self.select, self.shadow, self.shadowed)

    def __copy__(self) -> Lake:
        """The same lake in this process: session, caches and locks are shared."""
        return replace(self)

    @property
    def runner(self) -> Runner:
        """Runs the work of stages, by Spark's tasks or in this process."""
        carried = partial(stores.carried, lake=self.pipeline.lake)
        return Runner(self.spark, self.pipeline.name, self.pipeline.engine, carried)

    def path(self, name: str) -> str:
        """The absolute path of a table by its name under the lake."""
        root = self.shadow if self.shadowed and name.startswith(self.shadowed) else self.pipeline.lake
        return f"{root.rstrip('/')}/{name}"

    def opened_by_spark(self, name: str) -> str:
        """A table's path for Spark, which opens whatever is in the place of its files.

        Raises:
            OSError: one of them is a pipe, a device, a folder or a link.
        """
        if self.is_folder:
            with suppress(UnreadableError):
                delta.refuse_irregular(self.path(name), super(Lake, self).snapshot(name).files)
        return self.path(name)

    def named(self, name: str) -> str:
        """The table in SQL of Spark's."""
        return f"delta.{quoted(self.opened_by_spark(name))}"

    def _read(self, here: Callable[[], _Answer], by_spark: Callable[[], _Answer]) -> _Answer:
        """What is read without Spark; by Spark in a store that only Hadoop reaches, and of a log that cannot be read otherwise."""
        if self.is_local:
            try:
                return here()
            except UnreadableError as error:
                if isinstance(error, DamagedError):  # for Spark, too
                    raise
        return by_spark()

    def snapshot(self, name: str) -> Snapshot:
        """A table's version and its writers' progress; Spark reads logs that cannot be read without it."""
        return self._read(
            lambda: Tables.snapshot(self, name), lambda: log.snapshot(self.spark, self.path(name))
        )

    def extent(self, name: str, writer: str) -> Extent:
        """As `Tables.extent`; of a log that cannot be read without Spark, by Spark."""
        return self._read(lambda: Tables.extent(self, name, writer), lambda: self.snapshot(name).extent)

    def actions(self, name: str, version: int) -> list[dict[str, Any]]:
        """As `Tables.actions`; in a store that only Hadoop reaches, by Spark."""
        if self.is_local:
            return super(Lake, self).actions(name, version)
        try:
            return log.actions(self.spark, self.path(name), version)
        except Py4JJavaError:
            return []

    def recorded(self, query: str) -> list[Row]:
        """As `Tables.recorded`; in a store that only Hadoop reaches, by Spark."""
        return self._read(lambda: Tables.recorded(self, query), lambda: _rows_of(self.frame(query)))

    def far_rows(self, query: str) -> pa.Table | None:
        """As `Tables.far_rows`, by Spark."""

        def here() -> pa.Table | None:
            Tables.sql(self, query)  # which fails where DuckDB cannot read them
            return None

        return self._read(here, lambda: self.frame(query).toArrow())

    def commits(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """As `Tables.commits`; in a store that only Hadoop reaches, by Spark."""
        if self.is_local:
            yield from super(Lake, self).commits(name)
        elif self.exists(name):
            history = self.spark.sql(f"DESCRIBE HISTORY {self.named(name)}").select("version", "userMetadata")
            for version, metadata in history.collect():
                yield version, metadata_of([{"commitInfo": {"userMetadata": metadata}}])

    def ask_mirror(self, name: str, query: str) -> list[Row]:
        """As `Tables.ask_mirror`; in a store that only Hadoop reaches, by Spark."""
        return self._read(
            lambda: Tables.ask_mirror(self, name, query), lambda: _rows_of(self.mirror_frame(name, query))
        )

    def mirror_frame(self, name: str, query: str) -> DataFrame:
        """The rows of a query as in `Tables.ask_mirror`, run by Spark."""
        return self._asked(query, lambda _name, _kind: self.read(name))

    def frame(self, query: str) -> DataFrame:
        """The rows of a query as in `Tables.ask`, in DuckDB's SQL, run by Spark."""
        return self._asked(query, self._product)

    def _product(self, name: str, kind: str | None) -> DataFrame:
        schema = BY_NAME[name]
        if not self.exists(name):
            return self.spark.createDataFrame([], schema.columns)
        rows = self.rows(schema)
        return rows.where(F.col("kind") == kind) if kind else rows

    def _asked(self, query: str, table: Callable[[str, str | None], DataFrame]) -> DataFrame:
        """A query in DuckDB's SQL over temporary views of Spark."""
        import sqlglot

        views: list[str] = []

        def named(name: str, kind: str | None) -> str:
            view = f"_asked_{uuid.uuid4().hex}"
            table(name, kind).createTempView(view)
            views.append(view)
            return view

        try:
            text = of_spark(sqlglot.parse_one(filled(query, named), read="duckdb"))
            return self.spark.sql(text)
        finally:
            for view in views:
                self.spark.catalog.dropTempView(view)

    def read(self, name: str) -> DataFrame:
        """A table's rows."""
        path = self.opened_by_spark(name)
        return self.spark.read.format("delta").load(path)

    def rows(self, schema: TableSchema) -> DataFrame:
        """A product table's rows; columns missing from a table of an older version are NULL."""
        frame = self.read(schema.name)
        absent = {name: F.lit(None).cast(schema.types[name]) for name in schema.lacking(frame.columns)}
        return frame.withColumns(absent)

    def pieces(
        self, schema: TableSchema, columns: pa.Schema, kinds: Collection[str], span: BatchSpan
    ) -> list[FilePart] | None:
        """The data files with rows of some kinds and batches of `bronze` or `changes`; None if Spark must read them."""
        if not self.is_local:
            return None
        try:
            state = super(Lake, self).snapshot(schema.name)
        except UnreadableError:
            return None
        files = [
            file
            for file in state.files
            if file.partition.get("kind") in kinds and file.may_hold("batch", *span)
        ]
        if state.physical or any(file.deleted for file in files):
            return None
        folder = self.path(schema.name)
        return [
            FilePart(f"{folder}/{file.place}", columns, *span, rows=file.rows or 0, size=file.size)
            for file in files
        ]

    def pages(
        self, schema: TableSchema, columns: pa.Schema, kind: str, span: BatchSpan
    ) -> Iterator[pa.Table]:
        """The rows of one kind of `bronze` or `changes` in some batches, from first to last, piece by piece."""
        pieces = self.pieces(schema, columns, {kind}, span)
        if pieces is not None:
            for piece in pieces:
                yield from piece.read()
        elif self.exists(schema.name):
            rows = self.rows(schema).where((F.col("kind") == kind) & F.col("batch").between(*span))
            yield fitted(rows.select(*columns.names).toArrow(), columns)

    def exists(self, name: str) -> bool:
        """True if the table has been created."""
        return name in self._known or self.snapshot(name).exists

    def ensure(self, schema: TableSchema) -> None:
        """Create a product table without rows, if it does not exist."""
        with self._one_creates(schema):
            if not self._grown(schema).exists:
                if self.writes(schema):
                    records.create(self, schema, self.metadata())
                else:
                    nothing = self.spark.createDataFrame([], schema.columns)
                    self._save(self._writing(nothing, schema, NO_TABLE), schema.name, self.metadata())
                self._known.add(schema.name)

    def _one_creates(self, schema: TableSchema) -> AbstractContextManager[object]:
        """Lock out other threads while a table may have to be created or extended: Delta refuses two at once."""
        return nullcontext() if schema.name in self._known else self._creating

    def _grown(self, schema: TableSchema) -> Snapshot:
        """The existing table, with the columns added that an older version did not have."""
        state = self.snapshot(schema.name)
        if state.exists and schema.name not in self._known:
            missing = schema.lacking(state.columns)
            if missing and self.writes(schema):
                fields = [field for field in schema.fields if field["name"] in missing]
                commits.add_columns(self.path(schema.name), fields, self.metadata())
            elif missing:
                columns = schema.part_ddl(*missing)
                with self.spark_writes(schema.name):
                    self.spark.sql(f"ALTER TABLE {self.named(schema.name)} ADD COLUMNS ({columns})")
            self._known.add(schema.name)
        return state

    def _writing(self, frame: DataFrame, schema: TableSchema, state: Snapshot) -> DataFrameWriter:
        """A writer for an append; the first one creates the table in the same commit, with its comments and
        properties.
        """
        if state.exists:
            return frame.write.format("delta").mode("append")
        # Spark takes no others here, so a lake that only Spark can write has no number of its format
        properties = {
            name: text for name, text in self.properties(schema).items() if name.startswith("delta.")
        }
        writing = frame.to(schema.columns).write.format("delta").mode("append").options(**properties)
        return writing.partitionBy(*schema.partition_by) if schema.partition_by else writing

    def _save(
        self, writing: DataFrameWriter, name: str, metadata: str, writer: str = "", batch: int = 0
    ) -> None:
        """Write rows by Spark, guarded if a writer is given."""
        if writer:
            writing = writing.option("txnAppId", writer).option("txnVersion", batch)
        with self.spark_writes(name):
            writing.option("userMetadata", metadata).save(self.path(name))

    @contextmanager
    def spark_writes(self, name: str) -> Iterator[None]:
        """While Spark writes to a product table: what was known of its log is old afterwards."""
        try:
            yield
        finally:
            stores.unsettle(self.path(name))

    @property
    def is_local(self) -> bool:
        """True if logs are read without Spark: the lake is in a folder, or in a store that takes Arrow's commits."""
        lake = self.pipeline.lake
        return commits.within_reach(lake) and (not is_stored(lake) or commits.takes_commits(lake))

    @property
    def is_folder(self) -> bool:
        """True if the lake is a folder of this machine."""
        return not self.pipeline.is_stored and self.is_local

    @property
    def takes_commits(self) -> bool:
        """True if commits can be made without Spark."""
        return self.is_local and commits.takes_commits(self.pipeline.lake)

    def writes(self, schema: TableSchema) -> bool:
        """True if Arrow writes a product table: the lake takes its commits, and no feature of the table prevents it."""
        if not self.takes_commits:
            return False
        state = self.snapshot(schema.name)
        return state.is_plain or not state.exists

    def layout(self, schema: TableSchema) -> Layout:
        """How the data files of a product table are written; creates the table if it does not exist."""
        self.ensure(schema)
        return records.layout_of(self, schema)

    def append(
        self, rows: DataFrame | pa.Table | list[Added], schema: TableSchema, stage: str, batch: int
    ) -> bool:
        """Append rows in one commit, guarded: the same stage and batch is never written twice.

        Args:
            rows: a frame of Spark, a table of Arrow, or files that are written already.
            schema: the table.
            stage: the writer.
            batch: its number.

        Returns:
            False if the batch had been written before, so that nothing was written.

        Raises:
            IngestError: another run committed this batch first.
        """
        if isinstance(rows, pa.Table) and not self.writes(schema):
            rows = self.spark.createDataFrame(fitted(rows, schema.arrow), schema.columns).coalesce(1)
        # A frame may read the table that it appends to: Delta refuses it if another append, also Arrow's, was faster.
        with self._appending.setdefault(schema.name, threading.RLock()), self._one_creates(schema):
            before = self._grown(schema)
            writer = self.writer(stage, schema.name, self.generation(before, stage, schema.name))
            if before.transactions.get(writer, -1) >= batch:
                return False
            if isinstance(rows, DataFrame):
                self._save(
                    self._writing(rows, schema, before), schema.name, self.metadata(batch), writer, batch
                )
                self._check_ours(schema.name, before, batch)
            else:
                self._append_files(rows, schema, writer, batch)
            self._known.add(schema.name)
        return True

    def _append_files(
        self, rows: pa.Table | list[Added], schema: TableSchema, writer: str, batch: int
    ) -> None:
        files = rows if isinstance(rows, list) else written(self.layout(schema), rows)
        try:
            joined = self.layout(schema) if schema.joins else None
            commits.append(self.path(schema.name), files, self.metadata(batch), writer, batch, joined)
        except commits.TakenError:
            raise self._overtaken(schema.name, batch) from None

    def _check_ours(self, name: str, before: Snapshot, batch: int) -> None:
        """Delta silently skips a commit under a used identifier: check whose commit it is."""
        path = self.path(name)
        after = log.snapshot(self.spark, path)
        for version in range(before.version + 1, after.version + 1):
            if metadata_of(log.actions(self.spark, path, version)).get("run") == self.run:
                return
        raise self._overtaken(name, batch)

    def _overtaken(self, name: str, batch: int) -> IngestError:
        return IngestError(
            f"Batch {batch} of {name} was committed by another run at the same time: "
            f"nothing of this run was written; run again."
        )

    def publish(
        self,
        rows: DataFrame | Staged,
        name: str,
        writer: str,
        batch: int,
        only: str = "",
        *,
        new_schema: bool = False,
        landed: bool = False,
        again: int | None = None,
    ) -> None:
        """Replace a table's rows (those that ``only`` describes) in one commit under a new generation.

        A staged table's files are taken over as they are, with its columns. ``again``: after which batch all rows were
        made again.
        """
        metadata = self.metadata(batch, landed=landed, again=again)
        if isinstance(rows, Staged):
            commits.publish(self.path(name), rows, metadata, writer, batch)
            return
        writing = rows.write.format("delta").mode("overwrite")
        if only:
            writing = writing.option("replaceWhere", only)
        if new_schema:  # this would also drop a partitioning
            writing = writing.option("overwriteSchema", "true")
        self._save(writing, name, metadata, writer, batch)

    def append_unguarded(
        self, rows: list[tuple[Any, ...]], schema: TableSchema, marks: Mapping[str, object] = NOTHING
    ) -> None:
        """Append driver rows, in the order of the schema's columns, to a history table (`runs`, `checks`, `decisions`).

        Rebuilds into a staging folder keep no history. ``marks`` is what `last_marks` returns later without reading the table.
        """
        if not rows or self.shadow:
            return
        if self.writes(schema):
            self.ensure(schema)
            records.add(self, self.run, rows, schema, marks)
            return
        with self._one_creates(schema):
            state = self._grown(schema)
            frame = self.spark.createDataFrame(rows, schema.columns).coalesce(1)
            self._save(
                self._writing(frame, schema, state), schema.name, json.dumps({"run": self.run, **marks})
            )
            self._known.add(schema.name)

    def metadata(
        self,
        batch: int | None = None,
        *,
        landed: bool = False,
        after: int | None = None,
        again: int | None = None,
    ) -> str:
        """The ``userMetadata`` of this run's commits.

        Args:
            batch: the batch that the commit completes, if it does.
            landed: says which run landed the batch, too.
            after: the version for which the commit was planned; only a MERGE may meet a later one.
            again: after which batch the commit replaces all rows of a product table by those made again.
        """
        metadata: dict[str, object] = (
            {"run": self.run} if batch is None else {"batch": batch, "run": self.run}
        )
        if batch is not None and landed:
            metadata["landed"] = self.landed_by(batch)
        if after is not None:
            metadata["after"] = after
        if again is not None:
            metadata[AGAIN] = again
        return json.dumps(metadata)

    def landed_by(self, batch: int) -> str | None:
        """The run that landed a batch, which distinguishes batches of equal number; None if bronze's log no longer has
        it.
        """
        if batch not in self._landings:
            run = metadata_of(self.landing(batch)).get("run")
            self._landings[batch] = run if isinstance(run, str) else None
        return self._landings[batch]

    def now(self) -> dt.datetime:
        """The current time in UTC."""
        return dt.datetime.now(dt.UTC)


def _in_task(pipeline: Pipeline, run: str, select: str, shadow: str, shadowed: tuple[str, ...]) -> Lake:
    """A lake in a task, whose process may have seen it before the driver's last commits, and has one core."""
    stores.unsettle(pipeline.lake.rstrip("/"))
    duck.one_thread()
    session = cast("SparkSession", NoSession())
    return Lake(session, pipeline, run, select, shadow=shadow, shadowed=shadowed)


def _rows_of(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def of_spark(query: Expr) -> str:
    """A query of DuckDB in Spark's SQL, in which the members of images (`duck.member`) are read as `images` does."""
    from sqlglot import exp, parse_one

    def contains(image: Expr, part: Expr) -> Expr:
        """True if an image has all cells of another one, each with the same text or NULL."""
        cells, others = (f"from_json({text.sql('spark')}, 'map<string,string>')" for text in (image, part))
        same = f"map_contains_key({cells}, cell.key) AND {cells}[cell.key] <=> cell.value"
        return parse_one(f"forall(map_entries({others}), cell -> {same})", read="spark")

    def member(node: Expr) -> Expr:
        called = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if called == "json_contains":
            return contains(*node.expressions)
        if called == "epoch_us":
            return exp.func("unix_micros", *node.expressions)
        if isinstance(node, exp.RegexpReplace):  # which names groups in another way
            node.args["replacement"].set("this", re.sub(r"\\(\d)", r"$\1", node.args["replacement"].name))
        is_cell = isinstance(node, exp.JSONExtractScalar)
        if not is_cell and called != "json_exists":
            return node
        image, pointer = node.iter_expressions()
        if not isinstance(pointer, exp.Literal):  # a path, which Spark has, too
            return node
        text, name = image.sql("spark"), duck.column_of_pointer(pointer.name)
        if is_cell:
            return parse_one(f"({image_sql(text, [name])}).{quoted(name)}", read="spark")
        return parse_one(f"array_contains(json_object_keys({text}), {literal(name)})", read="spark")

    return str(query.transform(member).sql("spark"))
