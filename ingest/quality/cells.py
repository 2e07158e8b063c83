"""The check of cells: compare rows of every touched mirror with the plain fold of their changes.

No Spark job is needed for it: the changes and the rows are read as Arrow batches (`ingest.quality.arrow_rows`), and
the expected rows are folded and compared here (`cell_diff`), by other code than that which wrote the mirrors.

A batch's changes determine every row that one of them sets or deletes, and the sent cells of any other; they follow all
earlier changes, or those in between are read, too. A whole history is read if it is short and the batch has changes
that affect older rows: statements, truncates, late changes.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest import types
from ingest.change import TableId
from ingest.errors import agreeing, command, counted
from ingest.fold import DELETED, Key, KeyCellError, SchemaStep, typed
from ingest.ledgers.mirrors import Column, Mirror, Shard
from ingest.ledgers.stamps import Stamps, columns_for, stamped, stamps_of
from ingest.quality import images_before, keyless_diff, reloads
from ingest.quality.arrow_rows import (
    ALWAYS,
    CHANGE,
    Read,
    by_delta,
    by_spark,
    cell_rejects,
    changes_of_keys,
    changes_since,
    mirror_rows,
)
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.cell_diff import (
    Expected,
    KeyHistory,
    Wrong,
    began_incomplete,
    differences,
    expected,
    inserted_twice,
)
from ingest.quality.images_before import Proof
from ingest.quality.key_checks import damage_noted
from ingest.quality.subjects import NOTHING_CUT, CheckedLane, CheckedMirror, Cut, lost_sources
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.datafiles import listed
from ingest.tables.image_columns import exact_texts_of, in_bytes
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHANGES
from ingest.tables.tables import Tables

REACH = 20_000  # changes of a lane up to which its whole history is read after each batch, if needed
HELD, HELD_BYTES = 100_000, 64 << 20  # changes of a lane that are held in memory, and their bytes in Arrow
_SPACE = 1 << 32
_SHORT = 64  # bytes of a key's text up to which many are hashed at once
Hashes = npt.NDArray[np.uint32]
# of a change: the hash of its key after it and before it, the first one if a row is inserted or read, else 0, and
# whether its keys are always compared
_HASHED = ("first", "second", "added", "must")


@dataclass(frozen=True, slots=True)
class Asked:
    """What to compare: a number of keys of each mirror, and every key of some mirrors.

    ``stated`` has the batch and the place of the newest statement of each source; ``rows`` how many rows a mirror had when
    it was last checked, by its name (`rows_before`).
    """

    limit: Callable[[TableId], int]
    deep: Callable[[TableId], bool] = lambda _table: False
    stated: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)

    def compares(self, table: TableId) -> bool:
        """True if cells of a table's mirror are asked about."""
        return self.deep(table) or self.limit(table) > 0


@dataclass(slots=True)
class Compared:
    """The result for one mirror."""

    keys: int = 0
    touched: int = 0
    partly: int = 0
    filtered: int = 0  # of rows that do not meet the mirror's condition
    left_out: list[str] = field(default_factory=list)  # in words
    wrong: list[Wrong] = field(default_factory=list)
    twice: set[Key] = field(default_factory=set)  # inserted with other values while they were there
    reread: set[Key] = field(default_factory=set)  # read again with other values
    # of rows that began in new batches, with some of their columns
    begun: set[Key] = field(default_factory=set)
    texts: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    # cells that are known, and are values of their types
    filled: set[tuple[Key, str]] = field(default_factory=set)
    proof: Proof = field(default_factory=Proof)


def compare(
    lake: Lake, chosen: Sequence[CheckedMirror], since: int, asked: Asked
) -> Iterator[tuple[CheckedMirror, Compared]]:
    """Compare each mirror with the changes of batches after ``since``; 0 compares all."""
    checks = [
        _Check(lake, subject, since, asked, asked.rows.get(subject.name, -1))
        for subject in chosen
        if subject.is_readable and subject.decided.columns
        if asked.compares(subject.table)
    ]
    lanes = [reading for check in checks for reading in check.plan()]
    try:
        _feed(lake, lanes, since, by_delta)
    except Exception:  # a store or a table that delta-rs does not support
        for lane in lanes:
            lane.sample.forget()
        _feed(lake, lanes, since, by_spark)
    for check in checks:
        with damage_noted(lake, check.subject):
            yield check.subject, check.run()


def rows_before(lake: Tables, since: int) -> dict[str, int]:
    """The rows of each mirror when it was last checked, up to a batch."""
    if since <= 0:
        return {}
    rows = lake.ask(
        f"""SELECT mirror, CAST(max_by(observed, batch) AS BIGINT) AS n FROM {{checks}}
        WHERE "check" = 'rows' AND mirror IS NOT NULL AND batch <= {since} GROUP BY mirror"""
    )
    return {row["mirror"]: row["n"] for row in rows}


# --- in words -------------------------------------------------------------------------------------


def metrics(lake: Lake, subject: CheckedMirror, compared: Compared) -> Iterator[Metric]:
    """A metric of what was compared, and one for each column that differs."""
    by_column: dict[str, list[Wrong]] = {}
    for wrong in compared.wrong:
        by_column.setdefault(wrong.column, []).append(wrong)
    for column, wrong_cells in sorted(by_column.items()):
        yield Metric(
            "wrong_cells", len(wrong_cells), subject.name, column=column or None, detail=_detail(lake, subject, compared, wrong_cells),
            failing=tuple(subject.named(compared.texts[wrong.key] for wrong in wrong_cells[:FAILING_KEYS] if wrong.key)),
        )  # fmt: skip
    if not compared.wrong:
        yield Metric("wrong_cells", 0, subject.name)
    if subject.keyed:
        yield _inserted_twice(lake, subject, compared)
    if compared.reread:
        keys = _named(subject, compared, compared.reread)
        detail = (
            f"{counted(len(keys), 'key')}, such as {keys[0]}, {agreeing(len(keys), 'was', 'were')} read again with other "
            f"values, and no change came in between. {reloads.advice(lake, subject)}Else the source's key has more columns or "
            f"digits than the messages show: compare {subject.name} with the source"
        )
        yield Metric.of_keys("rows_read_again", subject.name, keys, detail=detail)
    if compared.begun:
        yield Metric.of_keys("incomplete_rows", subject.name, _named(subject, compared, compared.begun))
    of = f" of {compared.touched:,}" if compared.touched > compared.keys else ""
    detail = f"{compared.keys:,}{of} {'touched keys' if subject.keyed else 'rows'} were compared cell by cell"
    if compared.partly:
        detail += f", {compared.partly:,} of them in the columns that were sent"
    if compared.filtered:
        detail += f", {compared.filtered:,} of them are rows that `where:` leaves out"
    detail += "".join(f"; {why}" for why in dict.fromkeys(compared.left_out))
    yield from images_before.metrics(lake, subject, compared.proof)
    if subject.decided.history:
        detail += "; the table of past states was not compared"
    yield Metric("cells_checked", compared.keys, subject.name, detail=detail)


def _inserted_twice(lake: Tables, subject: CheckedMirror, compared: Compared) -> Metric:
    """Whether the source's key is a different one; not if messages are known to be lost, because deletes may be among
    them.
    """
    lost = lost_sources(lake, subject)
    keys = _named(subject, compared, () if lost else compared.twice)
    detail = (
        f"not judged: messages of source {min(lost)} are lost, and deletes may be among them" if lost else ""
    )
    if keys:
        detail = (
            f"{counted(len(keys), 'key')}, such as {keys[0]}, {agreeing(len(keys), 'was', 'were')} inserted again with other "
            "values and without a delete in between. If the source sends inserts for updates, write `inserts: upsert` under its "
            f"options, then {decoded_again(lake)}. {reloads.advice(lake, subject)}Else the key of {subject.name} may have got another "
            f"column: write `keys: [...]` into its tables: entry of {lake.pipeline.file}, then "
            f"`{command('rebuild', lake.pipeline.file, subject.name)}`"
        )
    return Metric.of_keys("insert_of_a_live_key", subject.name, keys, detail=detail)


def _named(subject: CheckedMirror, compared: Compared, keys: Iterable[Key]) -> list[str]:
    """Keys that were compared as JSON, in order."""
    return sorted(subject.named(compared.texts[key] for key in keys))


def _detail(lake: Tables, subject: CheckedMirror, compared: Compared, differences: Sequence[Wrong]) -> str:
    shown = []
    for wrong in differences[:3]:
        texts = compared.texts[wrong.key]
        what = f"{f': {wrong.column}' if wrong.column else ''} {wrong.text}"
        shown.append(subject.row_in_words(lake, texts, what) if texts else wrong.text)
    more = f"; and {len(differences) - 3:,} more" if len(differences) > 3 else ""
    return "; ".join(shown) + more


# --- choosing keys --------------------------------------------------------------------------------


@dataclass(slots=True)
class KeyHashes:
    """Hashes of keys, by which some are chosen: equal for equal keys in any spelling."""

    mirror: Mirror
    seed: int
    shard: Shard = ()
    _columns: list[Column] = field(init=False)
    _weights: npt.NDArray[np.uint64] = field(
        init=False
    )  # of the bytes of a text, by their places, and of the text

    def __post_init__(self) -> None:
        names = self.mirror.keys_without(*dict(self.shard))
        self._columns = [column for column in self.mirror.key_columns if column.name in names]
        self._weights = np.random.PCG64(self.seed).random_raw(_SHORT + 1)

    def of(self, rows: pa.RecordBatch) -> tuple[Hashes, Hashes]:
        """The hashes of the keys that each change may concern: from the image after it, and from the image before."""
        if not self._columns:  # without a key, or by the shard alone
            every = np.full(rows.num_rows, self._of_text(b""), np.uint32)
            return every, every
        names = [column.name for column in self._columns]
        after, before = (exact_texts_of(rows.column(name), names) for name in ("after", "before"))
        first = self._hashes([pc.coalesce(a, b) for a, b in zip(after, before, strict=True)])
        changed = reduce(
            pc.or_,
            (pc.fill_null(pc.not_equal(b, a), pc.is_valid(b)) for a, b in zip(after, before, strict=True)),
            pa.repeat(pa.scalar(value=False), rows.num_rows),
        )
        second = first
        if at := np.flatnonzero(np.asarray(changed)).tolist():
            second = first.copy()
            sides = [pc.coalesce(b, a).take(pa.array(at)) for a, b in zip(after, before, strict=True)]
            second[at] = self._hashes(sides)
        return first, second

    def _hashes(self, cells: Sequence[pa.BinaryArray]) -> Hashes:
        """The hash of each key; 0 where a cell is missing, or is not a value of its type."""
        read = [_canonical(texts, column.type) for column, texts in zip(self._columns, cells, strict=True)]
        texts = read[0] if len(read) == 1 else pc.binary_join_element_wise(*read, pa.scalar(b"\x1f"))
        is_long = pc.fill_null(pc.greater(pc.binary_length(texts), _SHORT), False)
        hashes = self._of_short(pc.fill_null(pc.if_else(is_long, b"", texts), b""))
        for row in np.flatnonzero(np.array(is_long, bool)).tolist():
            hashes[row] = zlib.crc32(texts[row].as_py(), self.seed)
        return np.where(np.array(pc.is_valid(texts)), hashes, np.uint32(0))

    def _of_short(self, texts: pa.BinaryArray) -> Hashes:
        """The upper half of the sum of all bytes of a text, each times the weight of its place: no call for each text."""
        ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
        ends = ends - ends[0]
        places = np.arange(len(data)) - np.repeat(ends[:-1], np.diff(ends))
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum(self._weights[places] * (data + np.uint64(1)), out=sums[1:])
        totals = sums[ends[1:]] - sums[ends[:-1]] + self._weights[_SHORT]
        return np.asarray(totals >> np.uint64(32), np.uint32)

    def of_key(self, key: Key) -> int:
        """The hash of a key, without the shard's cell."""
        shard = dict(self.shard)
        cells = (cell for name, cell in zip(self.mirror.keys, key, strict=True) if name not in shard)
        return self._of_text("\x1f".join(map(str, cells)).encode("utf-8", "surrogatepass"))

    def _of_text(self, text: bytes) -> int:
        """The hash of one text, as `_hashes` gives it."""
        if len(text) > _SHORT:
            return zlib.crc32(text, self.seed)
        weights: list[int] = self._weights.tolist()
        total = (
            sum(weight * (byte + 1) for weight, byte in zip(weights, text, strict=False)) + weights[_SHORT]
        )
        return total >> 32 & 0xFFFFFFFF


def _canonical(texts: pa.BinaryArray, logical: str) -> pa.BinaryArray:
    """The texts of key cells, one for each value; NULL where a text is not a value of the type."""
    if types.delta(logical) == "STRING":
        return texts
    whole = types.family(logical) == "integer"
    if whole and pc.all(pc.match_substring_regex(texts, _WHOLE), min_count=0).as_py():
        return texts
    read = int if whole else partial(typed, logical)
    remembered: dict[bytes | None, bytes | None] = {None: None}
    cells = listed(texts)
    for text in set(cells) - {None}:
        with contextlib.suppress(KeyCellError, ValueError):
            remembered[text] = in_bytes(str(read((text or b"").decode("utf-8", "surrogatepass"))))
    return pa.array([remembered.get(text) for text in cells], pa.binary())


_WHOLE = r"\A(?:0|-?[1-9][0-9]*)\z"  # integers in the form that Python writes


@dataclass(slots=True)
class KeySample:
    """Changes of one lane, of which those of the chosen keys are kept."""

    hashes: KeyHashes
    high: str  # changes up to it precede others that were folded earlier
    limit: int  # how many keys are compared
    every: bool = False  # compare all keys, regardless of the limit
    bounded: bool = False  # keep fewer keys, rather than more bytes than are held in memory
    space: int = _SPACE  # if not all changes fit in memory, those with lower hashes are kept
    pages: list[pa.RecordBatch] = field(default_factory=list)  # of changes, with the columns `_HASHED`
    truncates: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0  # of the pages

    def add(self, rows: pa.RecordBatch) -> None:
        cleared = pc.equal(rows.column("op"), "truncate")
        if (emptied := rows.filter(cleared)).num_rows:
            self.truncates.append(emptied)
            rows = rows.filter(pc.invert(cleared))
        first, second = self.hashes.of(rows)
        late = np.array(pc.less_equal(rows.column("order_key"), self.high), bool)
        partial = np.array(pc.fill_null(rows.column("partial"), False), bool)
        adds = np.array(pc.is_in(rows.column("op"), pa.array(["insert", "read"])), bool)
        hashed = (first, second, np.where(adds, first, 0), partial | late | (first != second) | self.every)
        columns, names = [*rows.columns, *map(pa.array, hashed)], [*rows.schema.names, *_HASHED]
        self.pages.append(self._below(pa.RecordBatch.from_arrays(columns, names)))
        self._bytes += self.pages[-1].nbytes
        while self.bounded and self._bytes > HELD_BYTES and self.space > 1:
            self.space //= 2
            self.pages = list(map(self._below, self.pages))
            self._bytes = sum(page.nbytes for page in self.pages)

    def _below(self, page: pa.RecordBatch) -> pa.RecordBatch:
        """The changes of the keys that have the lower hashes."""
        if self.space == _SPACE:
            return page
        return page.filter(
            pc.or_(pc.less(page.column("first"), self.space), pc.less(page.column("second"), self.space))
        )

    def chosen(self) -> tuple[list[Mapping[str, Any]], Hashes | None, int]:
        """The changes of the chosen keys with the truncates, their keys' hashes (None: all), and how many keys there are."""
        truncates = [row for rows in self.truncates for row in rows.to_pylist()]
        if not self.pages:
            return truncates, None, 0
        table = pa.Table.from_batches(self.pages)
        first, second, added, must = (table.column(name).to_numpy() for name in _HASHED)
        moved = second[second != first]
        rows, both = table.drop_columns([*_HASHED]), _distinct(np.concatenate([first, moved]))
        touched = int(len(both) * (_SPACE / self.space))
        if self.space == _SPACE and len(both) <= self.limit:
            return [*truncates, *rows.to_pylist()], None, touched
        always = np.concatenate([first[must], second[must], _added_again(rows, first, second, added)])
        hashes = np.union1d(both[: self.limit], _distinct(always)[: max(ALWAYS, self.limit)])
        # of the other keys of a changed key, changes may have been left out
        hashes = hashes[hashes < self.space]
        kept = pa.array(np.isin(first, hashes) | np.isin(second, hashes))
        return [*truncates, *rows.filter(kept).to_pylist()], hashes, touched

    def table(self) -> pa.Table | None:
        """The changes that were kept, with the hashes of their keys; None if there are none."""
        return pa.Table.from_batches(self.pages) if self.pages else None

    @property
    def emptied(self) -> list[str]:
        """The order keys of the TRUNCATEs."""
        return [key for rows in self.truncates for key in rows.column("order_key").to_pylist()]

    def forget(self) -> None:
        """Begin again."""
        self.pages.clear()
        self.truncates.clear()
        self._bytes = 0


def _distinct(hashes: Hashes) -> Hashes:
    """Each hash once, in their order: to sort them takes a tenth of what `numpy.unique` does."""
    ordered: Hashes = np.sort(hashes)
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    distinct: Hashes = ordered[is_new]
    return distinct


def _added_again(changes: pa.Table, first: Hashes, second: Hashes, added: Hashes) -> Hashes:
    """The hashes of keys that were read again, or at which a row was inserted although none had left it just before.

    Only their histories say whether rows have met there. Those of the others, which come and go, are among a batch's longest.
    """
    keys, counts = np.unique(added, return_counts=True)
    several = keys[(counts > 1) & (keys > 0)]
    concerned = np.flatnonzero(np.isin(first, several) | np.isin(second, several))
    in_order = pc.sort_indices(changes["order_key"].take(pa.array(concerned)))
    concerned = concerned[in_order.to_numpy()]
    ops = changes["op"].take(pa.array(concerned))
    deletes, reads = (np.array(pc.equal(ops, op), bool) for op in ("delete", "read"))
    first, second = first[concerned], second[concerned]
    moves = np.flatnonzero((first != second) & ~deletes)
    # each change at its key, then those that move their row at the key that this has left
    rows, hashes = np.concatenate([np.arange(len(first)), moves]), np.concatenate([first, second[moves]])
    leaves = np.concatenate([deletes, np.ones(len(moves), bool)])
    adds = np.concatenate([added[concerned] > 0, np.zeros(len(moves), bool)])
    order = np.lexsort((rows, hashes))
    rows, hashes, leaves, adds = rows[order], hashes[order], leaves[order], adds[order]
    again = (hashes[1:] == hashes[:-1]) & adds[1:] & (reads[rows[1:]] | ~leaves[:-1])
    return np.unique(hashes[1:][again])


# --- reading changes ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """The changes of a lane to read: all up to a batch, those from a place on, or those of new batches."""

    lane: CheckedLane
    applied: int
    sample: KeySample
    steps: Sequence[SchemaStep]
    shard: Shard
    stamps: Stamps
    whole: bool  # all changes
    low: str = ""  # or those from this place on
    above: str = ""  # none up to this place
    rereads: bool = False  # the source sends no inserts
    shared_reads: bool = False  # rows of its snapshots share a position
    cut: Cut = NOTHING_CUT

    def history(self, rows: Iterable[Mapping[str, Any]], *, linked: bool) -> KeyHistory:
        """The changes as input of the fold."""
        folded = "" if self.whole or self.low else self.lane.folded_high
        begins = max(self.above, self.low, folded)
        whole = self.whole and not self.above
        return KeyHistory(
            rows, self.steps, self.shard, whole, linked, self.rereads, begins, self.shared_reads, self.cut
        )

    @property
    def reaches_back(self) -> bool:
        """True if changes of earlier batches are read, too, by a scan of their own; the new ones of all lanes share one."""
        return bool((self.whole and self.lane.folded_high) or self.low)

    @property
    def where(self) -> str:
        """The condition of a separate scan."""
        later = f" AND order_key >= {duck.text(self.low)}" if self.low else ""
        lane = self.lane.where
        return f"kind = 'change' AND {lane} AND batch <= {self.applied}{later}"

    def take(self, rows: pa.RecordBatch) -> int:
        """Add changes; returns their number."""
        kept = pc.less_equal(rows.column("batch"), self.applied)
        if self.above:
            kept = pc.and_(kept, pc.greater(rows.column("order_key"), self.above))
        if not pc.all(kept).as_py():  # else the images would be copied
            rows = rows.filter(kept)
        if rows.num_rows:
            self.sample.add(stamped(rows, self.stamps).select(columns_for([self.stamps], CHANGE)))
        return int(rows.num_rows)


def _feed(lake: Lake, lanes: Sequence[_Reading], since: int, read: Read) -> None:
    """Read the changes of all lanes; those that need only new changes, or have no others, share one scan."""
    new = []
    for reading in lanes:
        if reading.reaches_back:
            if _fed(lake, reading, read):
                continue
            reading.sample.forget()  # too many for every batch: the new changes determine most keys
            reading.low, reading.above = "", max(reading.above, reading.lane.folded_high)
        new.append(reading)
    if not new:
        return
    by_name: dict[str, list[_Reading]] = {}  # several where a table has further mirrors
    for reading in new:
        name = "\x1f".join(text or "\0" for text in (reading.lane.source, *reading.lane.table))
        by_name.setdefault(name, []).append(reading)
    columns = (*duck.LANE, *columns_for((reading.stamps for reading in new), CHANGE))
    for rows in read(
        lake, CHANGES.name, columns, changes_since(since, (reading.lane.table.table for reading in new))
    ):
        texts = [pc.fill_null(rows.column(name), "\0") for name in duck.LANE]
        coded = pc.binary_join_element_wise(*texts, "\x1f").dictionary_encode()
        lanes_of = coded.indices.to_numpy()
        # those of a lane together, in their order: as many filters as lanes take the square of their number
        is_together = bool(np.all(lanes_of[1:] >= lanes_of[:-1]))  # as they are written
        by_lane = rows if is_together else rows.take(pa.array(np.argsort(lanes_of, kind="stable")))
        ends = np.cumsum(np.bincount(lanes_of, minlength=len(coded.dictionary))).tolist()
        for name, begin, end in zip(coded.dictionary.to_pylist(), [0, *ends], ends, strict=False):
            for reading in by_name.get(name, ()):
                reading.take(by_lane.slice(begin, end - begin))


def _fed(lake: Lake, reading: _Reading, read: Read) -> bool:
    """Read one lane's changes; False if there are too many."""
    n = 0
    for rows in read(lake, CHANGES.name, columns_for([reading.stamps], CHANGE), reading.where):
        n += reading.take(rows)
        if not reading.whole and n > REACH + reading.lane.changes:
            return False
    return True


# --- one mirror -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Check:
    """One mirror against its changes."""

    lake: Lake
    subject: CheckedMirror
    since: int
    asked: Asked
    before: int = -1  # its rows when it was checked before, if known
    lanes: list[_Reading] = field(default_factory=list)
    compared: Compared = field(default_factory=Compared)

    @property
    def mirror(self) -> Mirror:
        return self.subject.decided

    @property
    def deep(self) -> bool:
        """True to compare every key."""
        return self.asked.deep(self.subject.table)

    @property
    def merged(self) -> bool:
        """True if a key that one lane has deleted may be another one's."""
        return self.subject.merges(self.lake.pipeline)

    def _deeply(self) -> str:
        """The command that compares all rows."""
        return f"`{command('quality', self.lake.pipeline.file, '--deep', self.mirror.name)}`"

    def plan(self) -> list[_Reading]:
        """How each lane's changes are read; none of them if its rows are not compared."""
        self.lanes = [
            self._planned(lane)
            for lane in self.subject.lanes
            if lane.changes or self.since <= 0 or self._is_exhaustive
        ]
        if why := self._why_not():
            self.compared.left_out.append(why)
            self.lanes = []
        return self.lanes

    def _why_not(self) -> str:
        """Why its rows are not compared; empty if they are."""
        is_long = sum(lane.changes_ever for lane in self.subject.lanes) > REACH
        if self.merged and is_long and not self.deep:
            return f"rows of several tables without a shard_column are compared by {self._deeply()}"
        if self.subject.keyed:
            return ""
        if any(reading.above for reading in self.lanes):
            tables = sorted({str(lane.table) for lane in self.subject.lanes})
            typed = command("reconcile", self.lake.pipeline.file, *tables)
            return f"its rows are not compared, since it has lost its key: only `{typed}` compares them"
        is_left = not self.deep and (self.since > 0 or is_long)
        return f"without a key, its rows are compared by {self._deeply()}" if is_left else ""

    def _planned(self, lane: CheckedLane) -> _Reading:
        """Which of a lane's changes are read, and how their keys are sampled."""
        pipeline, mirror = self.lake.pipeline, self.mirror
        all_changes = self._needs_all_changes(lane)
        steps = self._steps_that_count(lane, all_changes)
        began = mirror.rekeyed_at(*lane.id)
        if began and self.subject.keyed:
            self.compared.left_out.append(
                "rows are compared by the changes since its primary key has changed"
            )
        if mirror.soft and not all_changes:
            self.compared.left_out.append(f"deleted rows that are kept are compared by {self._deeply()}")
        shard = mirror.shard_of(lane.id)
        return _Reading(
            lane,
            self.subject.applied,
            self._sample(lane, shard, steps, lane.changes_ever if all_changes else lane.changes),
            tuple(step for step, _ in steps),
            shard,
            stamps_of(mirror, lane.source, lane.table),
            whole=all_changes,
            low=lane.order_low if lane.is_late and not all_changes else "",
            above=began,
            rereads=pipeline.sends_no_inserts(lane.source),
            shared_reads=pipeline.shared_reads(lane.source),
            cut=self._cut(lane),
        )

    @property
    def _is_exhaustive(self) -> bool:
        """True if every key is compared, from its first change on."""
        return self.deep or self.merged

    def _needs_all_changes(self, lane: CheckedLane) -> bool:
        """True if a lane's new changes alone do not say what its rows are.

        Of a long history that is left to `--deep`: the new changes determine most keys.
        """
        if self._is_exhaustive or self.since <= 0 or not lane.folded_high:
            return True
        if lane.changes_ever > REACH:
            return False
        reaches_back = lane.is_late or self._has_new_statement(lane) or lane.truncates > 0
        return reaches_back or self.mirror.soft or self._cut(lane).is_open

    def _has_new_statement(self, lane: CheckedLane) -> bool:
        return self.asked.stated.get(lane.source, (0, ""))[0] > self.since

    def _cut(self, lane: CheckedLane) -> Cut:
        return self.subject.cut.get(lane.id, NOTHING_CUT)

    def _steps_that_count(self, lane: CheckedLane, all_changes: bool) -> Sequence[tuple[SchemaStep, int]]:
        """The steps of a lane's statements with their batches, if the changes that are read may come before one of them."""
        batch, place = self.asked.stated.get(lane.source, (0, ""))
        comes_first = batch > 0 and (all_changes or place >= lane.order_low)
        if not comes_first and not self._has_new_statement(lane):
            return ()
        return self.subject.steps(lane)

    def _sample(
        self,
        lane: CheckedLane,
        shard: Shard,
        steps: Sequence[tuple[SchemaStep, int]],
        changes: int,
    ) -> KeySample:
        """The keys to compare: all if every row may have changed, else as many as are asked for."""
        changes_every_row = lane.truncates > 0 or any(batch > self.since for _, batch in steps)
        sample = KeySample(
            KeyHashes(self.mirror, self.since & 0xFFFFFFFF, shard),
            lane.folded_high,
            _SPACE if self._is_exhaustive else self.asked.limit(self.subject.table),
            every=self._is_exhaustive or changes_every_row,
            bounded=self.subject.keyed and not self._is_exhaustive,
        )
        if not self.deep and changes > HELD:
            sample.space = _SPACE * HELD // changes
        return sample

    def run(self) -> Compared:
        """Compare the chosen keys' rows with the fold of their changes."""
        if not self.subject.keyed:
            return self._of_rows() if self.lanes else self.compared
        types = self.subject.types
        if any(types.get(column.column) != column.delta for column in self.mirror.key_columns):
            return self.compared  # another check reports it
        gained = self._gained()
        wanted, closed, beyond = self._expected(gained)
        if self.compared.touched and not wanted.known:
            self.compared.left_out.append("no change has all columns of its key")
        rows = mirror_rows(self.lake, self.mirror, self.subject.kinds, None if closed else wanted.known)
        self.compared.keys, self.compared.partly = len(wanted.known), len(wanted.partly)
        self.compared.filtered = len(wanted.filtered)
        self.compared.wrong = self._without_rejected(
            list(differences(wanted, rows, self.mirror, self.subject.kinds, closed))
        ) + [wrong for wrong in beyond if wrong.key in wanted.rows]
        self.compared.texts, self.compared.reread = wanted.texts, wanted.reread
        self.compared.twice = set(wanted.twice) - self._repeated(wanted)
        if gained > 0:
            self._find_begun()
        elif gained < 0:
            self._find_inserted_twice()
        self.compared.filled = {
            (key, name) for key, row in wanted.rows.items() for name in row if (key, name) not in wanted.unfit
        }
        return self.compared

    def _expected(self, gained: int) -> tuple[Expected, bool, list[Wrong]]:
        """What all lanes give, whether a row without any change is surplus, and values of columns that the mirror lacks."""
        wanted, closed, beyond = Expected(), self.deep, list[Wrong]()
        for reading in self.lanes:
            changes, hashes, touched = reading.sample.chosen()
            self.compared.touched += touched
            if reading.above and reading.above == reading.lane.folded_high:
                self.compared.left_out.append(
                    f"of keys whose changes came late, only newer ones: {self._deeply()} compares all"
                )
            folded = expected(
                reading.history(changes, linked=hashes is None),
                self.mirror,
                among(reading.sample.hashes, hashes),
            )
            wanted.add(folded)
            self.compared.proof.add(self._proof(reading, gained))
            beyond += self._without_a_column(reading, folded)
            closed &= reading.whole and not reading.above
        return wanted, closed, beyond

    def _proof(self, reading: _Reading, gained: int) -> Proof:
        """What the images before of one lane's new changes prove."""
        changes = reading.sample.table()
        if changes is None:
            return Proof()
        emptied = reading.sample.emptied
        lane = images_before.ProvenLane(self.lake, self.subject, reading.lane, changes, emptied, gained > 0)
        return images_before.prove(lane, self.since)

    def _find_begun(self) -> None:
        """Find rows that updates in new batches may have begun, with some of their columns."""
        updated = f"SELECT own_key FROM rows WHERE batch > {self.since} AND op = 'update' AND partial"
        for lane in self.lanes:
            if not lane.above:
                history = lane.history(self._of_keys(lane, updated, inherited=True), linked=False)
                begun, texts = began_incomplete(history, self.mirror)
                self.compared.texts |= texts
                self.compared.begun |= begun

    def _find_inserted_twice(self) -> None:
        """Find keys that new batches insert or read again, where only new changes have been read so far."""
        again = f"""SELECT n.own_key FROM rows AS n JOIN rows AS o ON o.own_key = n.own_key
            WHERE n.batch > {self.since} AND n.op IN ('insert', 'read') AND o.batch <= {self.since}"""
        for reading in self.lanes:
            if not reading.whole and not reading.above:
                met = self._of_keys(reading, again)
                read = sum(row["op"] == "read" and row["batch"] > self.since for row in met)
                others = read < min(reading.lane.reads, ALWAYS)
                inserts, texts = inserted_twice(
                    reading.history(met, linked=False), self.mirror, others=others
                )
                self.compared.texts |= texts
                self.compared.twice |= inserts.twice.keys()
                self.compared.reread |= inserts.reread

    def _without_a_column(self, reading: _Reading, folded: Expected) -> Iterator[Wrong]:
        """Values of rows under names that are no column of the mirror, though its rule does not leave them out."""
        rule = self.subject.rule(self.lake.pipeline, reading.lane)
        for (key, name), value in () if rule.ignores else folded.beyond.items():
            # a deleted row's columns go with those of its table
            if not rule.leaves_out(name) and folded.rows.get(key, {}).get(DELETED) is not True:
                text = f"is no column of the mirror, the changes give {value!r}"
                yield Wrong(key, name, text)

    def _of_rows(self) -> Compared:
        """A mirror without a key: compare all its rows as a multiset."""
        wanted: Counter[keyless_diff.Content] = Counter()
        for reading in self.lanes:
            rule = self.subject.rule(self.lake.pipeline, reading.lane)
            appends = rule.no_key == "append"
            changes, *_ = reading.sample.chosen()
            wanted += keyless_diff.folded(reading.history(changes, linked=True), self.mirror, appends=appends)
        self.compared.keys = sum(wanted.values())
        rows = mirror_rows(self.lake, self.mirror, self.subject.kinds, None)
        texts = keyless_diff.differences(wanted, rows, self.subject.kinds)
        self.compared.wrong = [Wrong((), "", text) for text in texts]
        self.compared.texts = {(): ()}
        return self.compared

    def _gained(self) -> int:
        """How many rows the mirror has more than its new changes have inserted; 0 if that is not known.

        If it has fewer, some may have met a row of their key; if it has more, updates may have begun rows.
        """
        mirror, lanes = self.mirror, self.subject.lanes
        if self.before < 0 or mirror.soft or mirror.where or any(lane.truncates for lane in lanes):
            return 0
        rows = self.lake.snapshot(mirror.path).rows
        given = sum(lane.inserts + lane.reads - lane.deletes for lane in lanes)
        return 0 if rows is None else rows - self.before - given

    def _of_keys(self, reading: _Reading, keys: str, *, inherited: bool = False) -> list[dict[str, Any]]:
        """All changes of the first keys that a query finds in the lane's ``rows``."""
        return changes_of_keys(
            self.lake, self.mirror, reading.lane, reading.shard, reading.applied, keys, inherited=inherited
        )

    def _repeated(self, wanted: Expected) -> set[Key]:
        """The keys inserted twice in new batches whose last content was inserted in an earlier one already."""
        repeated: set[Key] = set()
        names = dict(zip(self.mirror.keys, map(str, range(len(self.mirror.keys))), strict=True))
        for reading in self.lanes if wanted.twice else ():
            if reading.whole:
                continue
            sent = self.mirror.keys_without(*dict(reading.shard))
            cells = ", ".join(duck.member("after", name) for name in sent)
            listed = ", ".join(
                f"({', '.join(duck.value(wanted.texts[key][int(names[name])]) for name in sent)})"
                for key in wanted.twice
            )
            rows = self.lake.ask(
                f"SELECT after FROM {{changes.change}} WHERE {reading.lane.where} "
                f"AND op IN ('insert', 'read') AND batch <= {self.since} AND ({cells}) IN ({listed})"
            )
            contents = {
                json.dumps(json.loads(row["after"]) | dict(reading.shard), sort_keys=True) for row in rows
            }
            repeated |= {key for key, content in wanted.twice.items() if content in contents}
        return repeated

    def _without_rejected(self, wrong: list[Wrong]) -> list[Wrong]:
        """Leave out cells that did not fit: `rejects` has them, and their own check counts them."""
        if not any(difference.blank for difference in wrong):
            return wrong
        rejected = {(key, row["column"]) for key, row in cell_rejects(self.lake, self.mirror)}
        return [
            difference
            for difference in wrong
            if not (difference.blank and (difference.key, difference.column) in rejected)
        ]


def among(hashes: KeyHashes, chosen: Hashes | None) -> Callable[[Key], bool]:
    """A mask of the keys that are among the chosen ones."""
    if chosen is None:
        return lambda _key: True
    kept = set(chosen.tolist())
    return lambda key: hashes.of_key(key) in kept
