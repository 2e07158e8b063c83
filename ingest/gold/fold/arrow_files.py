"""The files of an Arrow fold: ``changes`` to read, and a mirror's rows, new file and deletion vectors.

What cannot be folded in one way stops the work before a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ingest.change import LaneId
from ingest.errors import HeldError, StoreError
from ingest.gold.fold import arrow_states, keyless_arrow, unfit
from ingest.gold.fold.arrow_crossings import folded, refuse_doubted
from ingest.gold.fold.arrow_fold import TYPES
from ingest.gold.fold.arrow_merge import Effort, Merged, merge, pairs
from ingest.gold.fold.arrow_values import MergeNeeded, NotPlain, arrow_type, of_delta, typed_column
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork, Rows
from ingest.gold.fold.collision import CollisionError
from ingest.gold.fold.outcomes import MirrorOutcomes
from ingest.gold.fold.staged import write_outcomes
from ingest.gold.fold.unfit import Reject
from ingest.ledgers import conditions
from ingest.ledgers.mirrors import Shard
from ingest.ledgers.stamps import TIME, stamped
from ingest.store import stores
from ingest.tables import vectors
from ingest.tables.row_files import PARQUET, READ, RowFile
from ingest.tables.schemas import CPU

FILES = 16  # with this many a mirror is written whole, so that appended files stay few
SMALL = 4 << 20  # bytes of a mirror that is written whole even where rows are only added
ROWS_AT_MOST = 512 << 20  # bytes that a mirror's rows take in memory, whatever their files take
SAMPLED, SAMPLE = 256 << 10, 1024  # bytes of a file that is sampled first, and rows of a sample
_COLUMNS = (
    "source", "database", "schema", "table", "batch", "order_key", "op", "partial", "before", "after", "topic",
    "partition", "offset", "row", "transaction",
)  # fmt: skip


Gone = dict[str, vectors.Rows]
_Some = Callable[[pa.Table], pa.Table]


def _every(rows: pa.Table) -> pa.Table:
    return rows


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What a task says of its part of a mirror: why that is not made, if it is not."""

    path: str  # names the mirror
    refused: str = ""  # why it is not folded in this way
    needs: str = ""  # what it would have to be folded by: `NotPlain.needs`; empty if nothing helps
    held: str = ""  # why no way of folding it gives its rows

    @property
    def is_made(self) -> bool:
        """True unless there is a reason why it is not."""
        return not (self.refused or self.held)

    @classmethod
    def stopped(cls, path: str, error: Exception) -> Self:
        """That an error has stopped the work: whatever it is, the other mirrors go on."""
        if isinstance(error, CollisionError | conditions.RuleFailed):
            return cls(path, held=str(error.fault))
        if isinstance(error, HeldError):
            return cls(path, held=str(error))
        is_foreseen = isinstance(error, NotPlain | conditions.ConditionError | StoreError)
        why = str(error) if is_foreseen else f"{type(error).__name__}: {error}"
        return cls(path, why, getattr(error, "needs", ""))


@dataclass(frozen=True, slots=True)
class Written(MirrorReport):
    """The result of a mirror's part: a file that is not committed yet."""

    file: str = ""  # within the table's folder; empty if no row is added or kept
    size: int = 0
    stats: str = ""
    replaces: bool = False  # the table's other files are removed, except marked ones
    vectors: dict[str, dict[str, Any]] = field(default_factory=dict)  # of marked files
    gone: dict[str, bytes] = field(default_factory=dict)  # what the vectors say, where parts share the files
    counts: dict[str, int] = field(default_factory=dict)
    # of outcomes for a MERGE: the tables of which only rows with one stay
    cleared: list[Shard] = field(default_factory=list)
    partial: bool = False  # some of them do not carry every column
    effort: Effort = field(default_factory=Effort)
    rejects: list[Reject] = field(default_factory=list)  # to be written before the commit


def make(work: MirrorWork, rows: Rows) -> Written:
    """Fold one mirror's changes and write the resulting rows, or the outcomes for a MERGE; commits nothing."""
    return written(work, lambda: outcomes_of(work, rows))


def outcomes_of(work: MirrorWork, rows: Rows) -> MirrorOutcomes:
    """What some changes make of each key: its row, or in a table of old states all of its states; without a key, of each row.

    Raises:
        NotPlain: these changes do not tell.
    """
    if not work.keys:
        return keyless_arrow.outcomes(work, rows)
    made = arrow_states.states(work, rows) if work.states else folded(work, rows)
    refuse_doubted(made, work, there)
    return made._replace(rejected=[*made.rejected, *unfit.cells(made.table, work)])


def written(work: MirrorWork, made: Callable[[], MirrorOutcomes], part: _Some | None = None) -> Written:
    """Write the rows after the batch, or the outcomes for a MERGE; what is refused is said in the result.

    Args:
        work: the mirror.
        made: returns the outcomes.
        part: of some keys' outcomes alone, which of some rows of the mirror may have these keys.
    """

    def write() -> Written:
        began = time.monotonic()
        outcomes = made()
        folded = time.monotonic()
        if work.staging:
            file, cleared = write_outcomes(work, outcomes.table), list(outcomes.cleared)
            is_partial = outcomes.is_partial
            return Written(
                work.path, file=file, cleared=cleared, partial=is_partial, rejects=outcomes.rejected
            )
        result, gone = _after(work, outcomes, part or _every)
        scanned = time.monotonic()
        # either all parts replace the files that are not marked, or none
        replaces = part is not None and bool(outcomes.cleared or not _keeps_files(work))
        end = _write_merged(replace(work, reshaped=work.reshaped or replaces), result)
        effort = Effort(
            result.sources, result.cleared, _copied(end.counts), result.filled, fold_ms=_ms(folded - began),
            scan_ms=_ms(scanned - folded), write_ms=_ms(time.monotonic() - scanned),
        )  # fmt: skip
        end = replace(end, effort=effort, rejects=outcomes.rejected)
        if not end.replaces:
            return end
        if part is None:
            return replace(end, vectors=vectors.write(work.folder, gone))
        return replace(end, gone={name: packed(numbers) for name, numbers in gone.items()})

    return attempted(work, write)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def attempted(work: MirrorWork, write: Callable[[], Written]) -> Written:
    """What was written, with the processor time that it took, or why it was not."""
    began = time.thread_time()
    try:
        made = write()
        made.counts[CPU] = round(1000 * (time.thread_time() - began))
        return made
    except Exception as error:
        return Written.stopped(work.path, error)


def _copied(counts: Mapping[str, int]) -> int:
    """The rows that were written again as they were."""
    return max(0, counts.get("written", 0) - counts["inserted"] - counts["updated"])


def packed(rows: vectors.Rows) -> bytes:
    """Numbers of rows as a bit for each row."""
    mask = np.zeros(rows[-1] + 1, np.bool_)
    mask[rows] = True
    return np.packbits(mask).tobytes()


def _write_merged(work: MirrorWork, merged: Merged) -> Written:
    counts = {"inserted": merged.inserted, "updated": merged.updated, "deleted": merged.deleted}
    changed = merged.updated or merged.deleted or work.reshaped
    if not changed and not merged.inserted:
        return Written(work.path, counts=counts)
    if not changed and _leaves_files(work):
        result, made = merged.new, Written(work.path, counts=counts)
    else:
        result = pa.concat_tables([merged.stays, merged.put, merged.new])
        made = Written(work.path, replaces=True, counts=counts)
    file = RowFile(work.folder, work.key_columns)
    file.add(result)
    return with_file(made, file)


def with_file(made: Written, file: RowFile) -> Written:
    """The result of a part with the file that its rows were written to."""
    if (end := file.finish()) is None:
        return made
    counts = {**made.counts, "written": end.rows, "rewritten_bytes": end.size}
    return replace(made, file=end.name, size=end.size, stats=end.stats, counts=counts)


def _keeps_files(work: MirrorWork) -> bool:
    """True if parts of a batch may leave the files as they are, however many rows they change."""
    return bool(work.marked) or (work.appends and _leaves_files(work))


def _leaves_files(work: MirrorWork) -> bool:
    """True if new rows get a file next to the table's others, as these are few or large enough."""
    files = len(work.files)
    return files == len(work.marked) if work.marked else work.size > SMALL and files < FILES


def _present(work: MirrorWork) -> pa.Table:
    return work.schema.empty_table() if work.again else there(work)


def _after(work: MirrorWork, made: MirrorOutcomes, part: _Some) -> tuple[Merged, Gone]:
    """The rows after the batch, and which rows of marked files are not among these any more; of other files only the ``part`` is
    taken.
    """
    merged = arrow_states.replaced if work.states else merge if work.keys else keyless_arrow.merged
    if not work.marked:
        return merged(part(_present(work)), made.table, work, made.cleared), {}
    if made.cleared:
        raise MergeNeeded("all rows of a large mirror are deleted")
    others = tuple(file for file in work.files if file[0] not in work.marked)
    parts, gone = [part(there(replace(work, files=others)))], {}
    for name, kept in work.files:
        if name in work.marked:
            most = ROWS_AT_MOST - sum(rows.nbytes for rows in parts)
            touched, numbers = _touched(work, name, kept, made.table, most)
            parts.append(touched)
            if touched.num_rows:
                gone[name] = numbers
    return merged(pa.concat_tables(parts), made.table, work, ()), gone


# --- changes in -----------------------------------------------------------------------------------


def read(files: Sequence[str], lanes: Sequence[LaneWork]) -> dict[LaneId, pa.Table]:
    """The new changes of some lanes, each lane's in the order of history."""
    by_lane: dict[LaneId, pa.Table] = {}
    for group in ([lane for lane in lanes if not lane.whole], [lane for lane in lanes if lane.whole]):
        if group:
            by_lane.update(apart(_table(files, group), group))
    return by_lane


def _table(files: Sequence[str], lanes: Sequence[LaneWork]) -> pa.Table:
    if not files:  # a batch of statements alone
        return no_changes(lanes)
    return (
        stores.at(files[0])
        .dataset(files, format="parquet")
        .to_table(columns=list(columns_of(lanes)), filter=wanted(lanes))
    )


def no_changes(lanes: Sequence[LaneWork]) -> pa.Table:
    """No change, with the columns that the folds of some lanes need."""
    kinds = {
        "batch": pa.int64(), "partial": pa.bool_(), TIME: pa.timestamp("us"), "partition": pa.int32(),
        "offset": pa.int64(), "row": pa.int32(),
    }  # fmt: skip
    return pa.schema([(name, kinds.get(name, pa.string())) for name in columns_of(lanes)]).empty_table()


def pages(
    files: Sequence[str], lane: LaneWork, columns: Sequence[str], condition: ds.Expression
) -> Iterator[pa.RecordBatch]:
    """Some columns of a lane's changes that meet a condition, up to its last batch, a page at a time, in any order."""
    asked = condition & (ds.field("batch") <= lane.last)
    for name, value in {"source": lane.source, **lane.table._asdict()}.items():
        asked &= ds.field(name).is_null() if value is None else ds.field(name) == value
    if files:
        changes = stores.at(files[0]).dataset(list(files), format="parquet")
        batches = changes.to_batches(columns=list(columns), filter=asked, batch_size=READ)
        yield from (page for page in batches if page.num_rows)


def columns_of(lanes: Sequence[LaneWork]) -> tuple[str, ...]:
    """The columns of ``changes`` that the folds of some lanes need."""
    needed = (*_COLUMNS, TYPES) if any(lane.whole or lane.stated for lane in lanes) else _COLUMNS
    return (*needed, TIME) if any(lane.timed for lane in lanes) else needed


def wanted(lanes: Sequence[LaneWork]) -> ds.Expression:
    """A condition that the changes of some lanes meet, and few others."""
    condition = ds.field("batch") >= min(lane.from_batch for lane in lanes)
    if places := [lane.late_from for lane in lanes if lane.late_from]:
        condition |= ds.field("order_key") >= min(places)
    condition &= ds.field("batch") <= max(lane.last for lane in lanes)
    return condition & ds.field("table").isin(sorted({lane.table.name for lane in lanes}))


def apart(changes: pa.Table, lanes: Sequence[LaneWork]) -> Iterator[tuple[LaneId, pa.Table]]:
    """The changes of each lane, in the order of history."""
    names = list(_COLUMNS[:4])
    numbered = changes.select(names).append_column("%row", pa.array(np.arange(changes.num_rows)))
    groups = numbered.group_by(names, use_threads=False).aggregate([("%row", "list")])
    ids = zip(*(groups[name].to_pylist() for name in names), strict=True)
    places = {identity: rows.values for identity, rows in zip(ids, groups["%row_list"], strict=True)}
    for lane in lanes:
        rows = places.get((lane.source, *lane.table), pa.array([], pa.int64()))
        batch, place = changes["batch"].take(rows), changes["order_key"].take(rows)
        asked = pc.greater_equal(batch, lane.from_batch)
        if lane.late_from:
            asked = pc.or_(asked, pc.greater_equal(place, lane.late_from))
        asked = pc.and_(asked, pc.less_equal(batch, lane.last))
        if lane.between is not None:
            begins, ends = lane.between
            inside = pc.and_(pc.greater(place, begins), pc.less_equal(place, ends))
            asked = pc.and_(asked, pc.or_(inside, pc.less(changes["row"].take(rows), 0)))
        rows, place = rows.filter(asked.combine_chunks()), place.filter(asked)
        if not pc.all(pc.less_equal(place[:-1], place[1:]), min_count=0).as_py():
            rows = rows.take(pc.sort_indices(place))
        # images may be large, and are copied only if they must
        of_lane = changes if rows.equals(pa.array(np.arange(changes.num_rows))) else changes.take(rows)
        yield lane.id, stamped(of_lane, lane.stamps)


# --- files ----------------------------------------------------------------------------------------


def there(work: MirrorWork) -> pa.Table:
    """The mirror's rows, as new statements leave them."""
    stored = stored_columns(work)
    parts, left = [stored.empty_table()], ROWS_AT_MOST
    for name, kept in work.files:
        part = _rows_of(f"{work.folder}/{name}", stored, left)
        left -= part.nbytes
        if kept is not None:  # it may stop short: after its last deleted row
            rest = pa.array([True] * (part.num_rows - len(kept)), pa.bool_())
            part = part.filter(pa.concat_arrays([kept, rest]))
        parts.append(part)
    return as_they_become(pa.concat_tables(parts), work)


def stored_columns(work: MirrorWork) -> pa.Schema:
    """The columns of the mirror's files whose values its rows keep, or take over, as they are stored."""
    old, filled = dict(work.old), {fill.column for fill in work.fills}
    stored = {
        stored.name: stored.with_type(of_delta(old[stored.name])) if stored.name in old else stored
        for stored in work.schema
        if old.get(stored.name, "same") and stored.name not in filled
    }
    for fill in work.fills:
        if fill.of and fill.column in work.schema.names:
            stored[fill.of] = pa.field(fill.of, work.schema.field(fill.column).type)
    return pa.schema(stored.values())


def as_they_become(stored: pa.Table, work: MirrorWork) -> pa.Table:
    """Rows of the mirror's files with its columns, and what new statements put into these."""
    columns = dict(zip(stored.schema.names, stored.columns, strict=True))
    fills, nothing = {fill.column: fill for fill in work.fills}, pa.nulls(stored.num_rows, pa.null())
    cells = []
    for column in work.columns:
        fill, kind = fills.get(column.column), arrow_type(column.type)
        if fill is not None and fill.text is not None:
            text = typed_column(pa.array([fill.text], pa.string()), column.type).cells
            cells.append(text.take(pa.array(np.zeros(stored.num_rows, np.int64))))
        else:
            cells.append(_widened(columns.get(fill.of if fill else column.column, nothing), kind))
    return pa.table(cells, schema=work.schema)


def _rows_of(file: str, stored: pa.Schema, most: int) -> pa.Table:
    """A file's rows, if they take no more than so many bytes: a text that repeats takes next to nothing in a file.

    Raises:
        MergeNeeded: they take more.
    """
    rows = None
    if stores.at(file).size(file) < SAMPLED:
        rows = _small(file, stored)
    elif _likely_bytes(file) <= most:
        rows = stores.at(file).dataset([file], schema=stored, format=PARQUET).to_table()
    if rows is None or rows.nbytes > most:
        raise _too_much()
    return rows


def _small(file: str, stored: pa.Schema) -> pa.Table:
    """A small file's rows: as plain Parquet where its columns are already what they must be, else as a dataset."""
    store = stores.at(file)
    with pq.ParquetFile(store.source(file), coerce_int96_timestamp_unit="us") as parquet:
        if parquet.schema_arrow.equals(stored):
            return pa.Table.from_arrays(parquet.read(use_threads=False).columns, schema=stored)
    return store.dataset([file], schema=stored, format=PARQUET).to_table()


def _too_much() -> MergeNeeded:
    return MergeNeeded(f"its rows take more than {ROWS_AT_MOST >> 20} MiB of memory")


def _likely_bytes(file: str) -> int:
    """What a file's rows take in memory, by the first rows of each row group: a group can only be read whole."""
    with pq.ParquetFile(stores.at(file).source(file)) as parquet:
        groups = range(parquet.num_row_groups)
        samples = [next(parquet.iter_batches(SAMPLE, row_groups=[group]), None) for group in groups]
        rows = [parquet.metadata.row_group(group).num_rows for group in groups]
    return sum(
        sample.nbytes * n // sample.num_rows for sample, n in zip(samples, rows, strict=True) if sample
    )


def _touched(
    work: MirrorWork, name: str, kept: pa.BooleanArray | None, source: pa.Table, most: int
) -> tuple[pa.Table, vectors.Rows]:
    """A file's rows with a key of some outcomes, and the numbers of all its rows that are gone then.

    Row groups without such a key are not read, except for their keys.

    Raises:
        MergeNeeded: the rows take more memory than so many bytes.
    """
    dataset = stores.at(work.folder).dataset([f"{work.folder}/{name}"], schema=work.schema, format=PARQUET)
    [file] = dataset.get_fragments()
    firsts = np.cumsum([0, *(group.num_rows for group in file.row_groups)])
    left = np.ones(firsts[-1], np.bool_)
    if kept is not None:
        left[: len(kept)] = kept.to_numpy(zero_copy_only=False)
    keys, parts = source.select(work.key_columns), [work.schema.empty_table()]
    for part in file.split_by_row_group(_between(keys), work.schema):
        first = firsts[part.row_groups[0].id]
        row_numbers, _ = pairs(part.to_table(schema=work.schema, columns=work.key_columns), keys)
        row_numbers = row_numbers.filter(pa.array(left[row_numbers.to_numpy() + first]))
        places = np.sort(row_numbers.to_numpy())
        left[places + first] = False
        if len(places):
            parts += _rows_at(part, work.schema, places)
        if sum(taken.nbytes for taken in parts) > most:
            raise _too_much()
    return pa.concat_tables(parts), np.flatnonzero(~left)


def _rows_at(group: ds.ParquetFileFragment, schema: pa.Schema, places: vectors.Rows) -> Iterator[pa.Table]:
    """Some rows of a row group, which is read bit by bit: it may take far more memory than its file."""
    first = 0
    for batch in group.to_batches(schema=schema, batch_size=READ, batch_readahead=2, fragment_readahead=1):
        low, high = np.searchsorted(places, [first, first + batch.num_rows])
        if low < high:
            yield pa.Table.from_batches([batch.take(pa.array(places[low:high] - first))])
        first += batch.num_rows


def _between(keys: pa.Table) -> ds.Expression | None:
    """A condition that all keys meet, for the statistics of row groups; None if there is none to rely on."""
    name = keys.schema.names[0]
    if not keys.num_rows or not pa.types.is_integer(keys.schema.field(0).type):
        return None
    ends = pc.min_max(keys[name])
    return (ds.field(name) >= ends["min"]) & (ds.field(name) <= ends["max"])


def _widened(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column's values in its wider type, through their texts where only these are exact: FLOAT 0.1 is DOUBLE 0.1."""
    if column.type == pa.float32() and kind == pa.float64():
        column = column.cast(pa.string())
    return column.cast(kind)
