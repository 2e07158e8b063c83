"""The check of images before: each change must find the row that it says was there.

Two looks find keys whose chain of changes may not close, and cost little: one compares neighbours among a batch's changes
of a key, as texts; the other compares the first change of some keys with the rows that the mirror had before the batch.
Only what they suspect is judged, by the plain fold of the whole history of the key (`ingest.images_before`), so that a
late change, a repetition or a statement raises no complaint.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest import images_before
from ingest.change import Image, Op
from ingest.errors import command, counted
from ingest.fold import (
    Key,
    KeyCellError,
    Placed,
    SchemaStep,
    Step,
    Table,
    key_of_change,
    texts_of_key,
)
from ingest.images_before import (
    NEVER_CAME,
    NO_ROW,
    OTHER_INDEX,
    Chain,
    ImagesBefore,
    Mismatch,
    in_words,
    lacks_key,
)
from ingest.ledgers import barriers
from ingest.ledgers.lanes import tells_inserts
from ingest.ledgers.mirrors import Mirror, Shard
from ingest.ledgers.stamps import change_of
from ingest.order import SECOND_HALF, Order, is_weak, order_of
from ingest.quality.arrow_rows import changes_of_keys, mirror_rows
from ingest.quality.catalogue import NEVER_SENT, Metric
from ingest.quality.cell_diff import KeyHistory, clears, key_of_row
from ingest.quality.not_loaded import ENDS
from ingest.quality.subjects import NOTHING_CUT, CheckedLane, CheckedMirror, lost_sources
from ingest.tables import duck
from ingest.tables.cell_values import of_text
from ingest.tables.datafiles import listed
from ingest.tables.delta import Snapshot, snapshot
from ingest.tables.json_cells import list_in
from ingest.tables.lake import Lake
from ingest.tables.snapshots import CARRIED_SQL, read_sql

Names = Callable[[], Collection[str]]
"""Gives names of columns, when they are needed."""
FIRSTS = 100  # keys of a mirror whose first change is compared with the row that the mirror had before
BEGUN = 20_000  # such keys if the mirror has got more rows than were inserted
COMMITS = 64  # of a mirror's log that are searched for its state before a batch
JUDGED = 200  # suspected keys of a lane that are judged after one batch
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Broken:
    """A change that says its row was otherwise than the changes before it give."""

    key: Key
    texts: tuple[str, ...]  # the key's cells as the source writes them
    batch: int
    differences: tuple[Mismatch, ...]
    certain: bool = True  # no load while changes came may have left the row out
    op: Op = Op.UPDATE
    silent: bool = False  # the change says nothing of its row before

    @property
    def is_unsent(self) -> bool:
        """True if no message has brought the row."""
        return self.differences[0] in (NEVER_CAME, OTHER_INDEX)

    @property
    def may_be_filtered(self) -> bool:
        """True of an update of a row that was deleted: a filter at the source may have left out that it is there again."""
        return self.op is Op.UPDATE and self.differences == (NO_ROW,)


@dataclass(slots=True)
class Proof:
    """What the images before of one mirror's new changes prove."""

    compared: int = 0
    proven: int = 0
    unjudged: int = 0  # suspected keys beyond those that are judged at once
    undecided: int = 0  # such keys without a row before
    strong: bool = True  # each change has a position of its source
    broken: list[Broken] = field(default_factory=list)
    unsent: list[Broken] = field(default_factory=list)  # changes of rows that no message has brought

    def add(self, lane: Proof) -> None:
        """Add what another lane's changes prove."""
        self.compared += lane.compared
        self.proven += lane.proven
        self.unjudged += lane.unjudged
        self.undecided += lane.undecided
        self.strong &= lane.strong
        self.broken += lane.broken
        self.unsent += lane.unsent


# --- suspecting -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Screened:
    """What the look at a lane's new changes has found."""

    compared: int = 0
    proven: int = 0
    suspects: set[int] = field(default_factory=set)  # hashes of keys
    unsent: set[int] = field(default_factory=set)  # of keys that had no row before their first change
    missing: set[int] = field(default_factory=set)  # those of them that an earlier change may have removed
    unsaid: set[int] = field(
        default_factory=set
    )  # of keys that an update without an image before finds removed
    firsts: list[Mapping[str, Any]] = field(default_factory=list)  # the first changes of some keys
    hashes: list[int] = field(default_factory=list)  # of the keys of these
    alone: set[int] = field(default_factory=set)  # those of changes whose images before may have only the key
    other: set[int] = field(default_factory=set)  # those of deletes that name their rows by other columns


class _Entries(NamedTuple):
    """Places in the changes of each key, one key after another, each in the order of history.

    A change of the key has two: ``leaves`` is True for that of the old key.
    """

    row: Numbers
    hashes: Numbers
    leaves: npt.NDArray[np.bool_]


def screen(
    changes: pa.Table,
    truncates: Iterable[str],
    since: int,
    images: ImagesBefore,
    firsts: int,
    *,
    gained: bool,
    made: Names = frozenset,
) -> Screened:
    """Compare neighbours among the changes of each key.

    Args:
        changes: of one lane, with ``batch, op, order_key, partial, before, after`` and the hashes ``first`` and
            ``second`` of their keys after and before.
        truncates: the order keys of the lane's TRUNCATEs among them.
        since: changes up to this batch are not judged again.
        images: how the lane's dialect writes images before.
        firsts: how many keys' first changes are taken.
        gained: those without an image before, too: the mirror may have got more rows than were inserted.
        made: gives the columns to which statements gave values in rows that were there, so that a row that lacks one may have
            another value than NULL.
    """
    screened = Screened()
    if not changes.num_rows:
        return screened
    changes = _in_order(changes)
    says = np.array(
        pc.and_(pc.is_valid(changes["before"]), pc.is_in(changes["op"], pa.array(["update", "delete"]))), bool
    )
    new = changes["batch"].to_numpy() > since
    entries = _entries(changes, says)
    if not len(entries.row):
        return screened
    starts = np.flatnonzero(np.r_[True, entries.hashes[1:] != entries.hashes[:-1]])
    asked = says[entries.row] & new[entries.row] & (entries.hashes != 0)
    # a change of the key is compared where it leaves
    moved = np.zeros(len(changes), bool)
    moved[entries.row[entries.leaves]] = True
    asked &= entries.leaves | ~moved[entries.row]
    follows = np.ones(len(asked), bool)
    follows[starts] = False
    alone = _keys_alone(changes, images)
    emptied = sorted(truncates)
    _neighbours(
        screened, changes, _Pairs(entries, np.flatnonzero(asked & follows), images, alone, made), emptied
    )
    silent = _silent(changes)[entries.row] & new[entries.row] & (entries.hashes != 0)
    unsaid = np.flatnonzero(silent & follows)
    gone = _gone(changes, entries, unsaid, emptied)
    screened.unsaid = set(entries.hashes[unsaid[gone]].tolist())
    if gained:
        asked |= silent
    first = starts[asked[starts]][:firsts]
    rows, hashes = entries.row[first], entries.hashes[first].tolist()
    screened.firsts = changes.take(pa.array(rows)).to_pylist()
    screened.hashes = hashes
    screened.alone = {
        hashed for hashed, is_alone in zip(hashes, alone[rows].tolist(), strict=True) if is_alone
    }
    return screened


def _in_order(changes: pa.Table) -> pa.RecordBatch:
    """The changes in the order of history, each column in one piece: to join its pieces takes longer than to compare them."""
    [whole] = changes.combine_chunks().to_batches()
    keys = whole["order_key"]
    if len(keys) > 1 and not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        return whole.take(pc.sort_indices(keys))
    return whole


def _keys_alone(changes: pa.RecordBatch, images: ImagesBefore) -> npt.NDArray[np.bool_]:
    """The deletes of a table whose updates have no image before, if those of its source may have only the key."""
    deletes = pc.equal(changes["op"], "delete")
    told = pc.and_(pc.equal(changes["op"], "update"), pc.is_valid(changes["before"]))
    first = changes["order_key"].filter(deletes)[:1].to_pylist()
    if not any(images.may_fill(order_of(place)) for place in first) or pc.any(told).as_py():
        return np.zeros(len(changes), bool)
    return np.array(deletes, bool)


def _silent(changes: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """The updates that say nothing of their rows before; not those whose images before are messages of their own."""
    silent = np.array(pc.and_(pc.equal(changes["op"], "update"), pc.is_null(changes["before"])), bool)
    if silent.any():
        silent &= ~np.array(pc.match_substring_regex(changes["order_key"], SECOND_HALF), bool)
    return silent


def _entries(changes: pa.RecordBatch, says: npt.NDArray[np.bool_]) -> _Entries:
    first, second = changes["first"].to_numpy(), changes["second"].to_numpy()
    leaving = np.flatnonzero(says & (first != second))
    row = np.concatenate([np.arange(len(first)), leaving])
    hashes = np.concatenate([first, second[leaving]]).astype(np.int64)
    leaves = np.arange(len(row)) >= len(first)
    order = np.lexsort((row, hashes))
    return _Entries(row[order], hashes[order], leaves[order])


class _Pairs(NamedTuple):
    """Changes to compare with the entry just before them."""

    entries: _Entries
    later: Numbers
    images: ImagesBefore
    alone: npt.NDArray[np.bool_]  # changes whose images before may have only the key
    made: Names  # columns to which statements gave values


def _neighbours(screened: Screened, changes: pa.RecordBatch, pairs: _Pairs, truncates: Sequence[str]) -> None:
    """Compare changes with the ones just before them of the same key, as texts."""
    entries, later = pairs.entries, pairs.later
    now, then = pa.array(entries.row[later]), pa.array(entries.row[later - 1])
    before, after, rows = (
        listed(changes[name].take(numbers).cast(pa.binary()))
        for name, numbers in (("before", now), ("after", now), ("after", then))
    )
    did = changes["op"].take(then)
    gone = _gone(changes, entries, later, truncates)
    parts = np.array(pc.fill_null(changes["partial"].take(then), False), bool)
    parts &= np.array(pc.equal(did, "update"), bool)  # of an inserted row what is not sent is NULL
    updates = pc.equal(changes["op"].take(now), "update")
    filled = np.array(updates, bool) & pairs.images.changed_only
    hashes = entries.hashes[later].tolist()
    alone = pairs.alone[entries.row[later]]
    screened.compared += len(hashes)
    for hashed, said, new, row, is_filled, is_gone, is_part, is_alone in zip(
        hashes,
        before,
        after,
        rows,
        filled.tolist(),
        gone.tolist(),
        parts.tolist(),
        alone.tolist(),
        strict=True,
    ):
        is_row = not is_gone and row is not None
        if is_row and (
            is_alone or _is_in(said, new if is_filled else None, row, pairs.made, is_part=is_part)
        ):
            screened.proven += 1
        else:
            screened.suspects.add(hashed)


def _gone(
    changes: pa.RecordBatch, entries: _Entries, later: Numbers, truncates: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """Of some entries those before which the entry just before them, or a TRUNCATE since then, has removed the row."""
    now, then = pa.array(entries.row[later]), pa.array(entries.row[later - 1])
    gone = np.array(pc.equal(changes["op"].take(then), "delete"), bool)
    gone |= entries.leaves[later - 1]
    if truncates:
        places = [listed(changes["order_key"].take(numbers)) for numbers in (then, now)]
        cleared = [
            bisect_left(truncates, a) < bisect_left(truncates, b) for a, b in zip(*places, strict=True)
        ]
        gone |= np.array(cleared, bool)
    return gone


_cells = msgspec.json.Decoder(dict[str, str | None]).decode


def _is_in(said: bytes, filled: bytes | None, row: bytes, made: Names, *, is_part: bool) -> bool:
    """True if an image before is in the row that an earlier change has sent, both as JSON.

    ``filled`` is the image after, if it has the columns that the image before lacks. Of a partial row, ``is_part``, only
    the columns that it has can differ. What it lacks of the columns ``made`` by statements is not known to be NULL.
    """
    if filled is None and (said == row or (b"\\" not in said and said[1:-1] in row)):
        return True
    cells, held = _cells(said), _cells(row)
    if filled is not None:
        cells = _cells(filled) | cells
    if cells == held:  # the usual case
        return True
    if is_part:
        return all(cells[name] == held[name] for name in cells.keys() & held.keys())
    return all(
        held.get(name) == cell and (name in held or name not in made()) for name, cell in cells.items()
    )


# --- over batches ---------------------------------------------------------------------------------


def compare_firsts(screened: Screened, lane: ProvenLane, since: int, made: Names) -> None:
    """Compare the first changes of some keys with the rows that the mirror had before the new batches."""
    if not screened.firsts:
        return
    mirror, screened.other = lane.mirror, _by_other_columns(screened, lane, since)
    if since <= 0 or not lane.lane.folded_high:
        screened.unsent = set(screened.hashes)
        return
    asked = _firsts(screened, lane)
    state = _before(lane.lake, mirror, since)
    if state is None or not asked:
        return
    types = state.delta_types
    kinds = [types.get(column.column, "") for column in mirror.columns]
    if any(kinds[i] != column.delta for i, column in enumerate(mirror.columns) if column.name in mirror.keys):
        return
    for row in mirror_rows(lane.lake, mirror, kinds, [first.key for first in asked.values()], state):
        key = key_of_row(row, mirror, kinds)
        first = asked.pop(key, None) if key is not None else None
        if first is None or first.hash in screened.alone or not first.said:
            continue
        screened.compared += 1
        if _agrees(first.said, row, mirror, kinds, made):
            screened.proven += 1
        else:
            screened.suspects.add(first.hash)
    screened.unsent = screened.missing = {first.hash for first in asked.values()}


def _by_other_columns(screened: Screened, lane: ProvenLane, since: int) -> set[int]:
    """The hashes of keys whose first change is a delete that names its row by other columns."""
    keys, shard = lane.mirror.keys, lane.shard
    hashes = {
        hashed
        for hashed, row in zip(screened.hashes, screened.firsts, strict=True)
        if hashed in screened.alone and lacks_key(change_of(row, shard), keys)
    }
    return set() if hashes and _shows_keys(lane, since) else hashes


def _shows_keys(lane: ProvenLane, since: int) -> bool:
    """True if images before of new changes have keys other than zero: those of another index have none."""
    named = lane.mirror.keys_without(*dict(lane.shard))
    shows = " OR ".join(f"trim({duck.member('before', name)}, '0.') <> ''" for name in named)
    return bool(
        lane.lake.ask(
            f"""SELECT 1 AS n FROM {{changes.change}} WHERE {lane.lane.where} AND batch > {since}
            AND op IN ('update', 'delete') AND ({shows}) LIMIT 1"""
        )
    )


class _First(NamedTuple):
    key: Key
    said: Image  # empty if the change says nothing of its row
    hash: int


def _firsts(screened: Screened, lane: ProvenLane) -> dict[Key, _First]:
    firsts: dict[Key, _First] = {}
    mirror, shard, images = lane.mirror, lane.shard, lane.images
    for row, hashed in zip(screened.firsts, screened.hashes, strict=True):
        change = change_of(row, shard)
        try:
            concerned = key_of_change(change, mirror.keys, mirror.key_types)
        except KeyCellError:
            continue  # rejected
        key = concerned.before
        said = {} if change.before is None else images.of(change)
        firsts.setdefault(key, _First(key, said, hashed))
    return firsts


def _before(lake: Lake, mirror: Mirror, since: int) -> Snapshot | None:
    """The mirror's table as it was with the batches up to one; None if its log no longer says so, or only Spark reads it."""
    if not lake.is_local:
        return None
    for version, metadata in islice(lake.commits(mirror.path), COMMITS):
        batch = metadata.get("batch")
        if isinstance(batch, int) and batch <= since:
            return snapshot(lake.path(mirror.path), version)
    return None


def _agrees(said: Image, row: Sequence[object], mirror: Mirror, kinds: Sequence[str], made: Names) -> bool:
    """True if an image before is what the mirror's row holds, as far as the mirror has its columns.

    A column that the mirror did not have yet was NULL by all changes before, unless it is one of those ``made`` by statements.
    """
    for column, kind, cell in zip(mirror.columns, kinds, row, strict=True):
        if column.name not in said or kind not in ("", column.delta) or column.made is not None:
            continue
        text = said[column.name]
        if not kind and column.name in made():
            return False
        value = of_text(text, column.type)
        if value != cell and (text is None or value is not None):
            return False
    return True


# --- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProvenLane:
    """One lane's new changes, and what is needed to judge some of their keys.

    Args:
        lake: the lake.
        subject: the mirror.
        lane: the lane.
        changes: the new ones, and maybe older ones, as `screen` takes them.
        truncates: the order keys of TRUNCATEs among them.
        gained: the mirror may have got more rows than were inserted.
    """

    lake: Lake
    subject: CheckedMirror
    lane: CheckedLane
    changes: pa.Table
    truncates: Sequence[str] = ()
    gained: bool = False

    @property
    def mirror(self) -> Mirror:
        """The mirror as it was decided."""
        return self.subject.decided

    @property
    def shard(self) -> Shard:
        """The column that distinguishes the lane's rows from other lanes', and its value."""
        return self.mirror.shard_of(self.lane.id)

    @property
    def images(self) -> ImagesBefore:
        """How the lane's dialect writes images before."""
        return self.lake.pipeline.images_before(self.lane.source)

    @property
    def met(self) -> Mapping[Key, tuple[str, ...]]:
        """Keys at which rows may have met outside of transactions, each with its cells as texts."""
        return self.subject.cut.get(self.lane.id, NOTHING_CUT).met

    @property
    def steps(self) -> list[SchemaStep]:
        """The schema steps of the lane's statements that the mirror has folded."""
        return self.subject.schema_steps(self.lane)

    def made(self) -> frozenset[str]:
        """The columns to which statements gave values in rows that were there."""
        return frozenset(
            step.to or step.column for step in self.steps if step.action in ("add_column", "rename_column")
        )

    def tells(self, order: Order) -> bool:
        """True if the table's last update before a place had an image before."""
        images = self._images
        last = bisect_left(images, (str(order),)) - 1
        return last >= 0 and images[last][1]

    @cached_property
    def _images(self) -> list[tuple[str, bool]]:
        """The updates from which on others of the table have an image before, or none, each by its place."""
        rows = self.lake.ask(
            f"""SELECT order_key, has_image FROM (
                SELECT order_key, has_image, lag(has_image) OVER (ORDER BY order_key) AS had_image FROM (
                    SELECT order_key, before IS NOT NULL AS has_image FROM {{changes.change}}
                    WHERE {self.lane.where} AND op = 'update'))
            WHERE has_image IS DISTINCT FROM had_image ORDER BY order_key"""
        )
        return [(row["order_key"], row["has_image"]) for row in rows]

    @property
    def was_emptied(self) -> bool:
        """True if the table was empty once, so that each of its rows must have come since."""
        return self.lane.truncates_ever > 0 or any(step.empties for step in self.steps)


def prove(lane: ProvenLane, since: int) -> Proof:
    """Compare the images before of a lane's changes after batch ``since`` with the rows that they change."""
    many = lane.gained and (lane.lane.last_read > 0 or lane.was_emptied)
    made = cache(lane.made)  # most batches never ask
    screened = screen(
        lane.changes,
        lane.truncates,
        since,
        lane.images,
        BEGUN if many else FIRSTS,
        gained=lane.gained,
        made=made,
    )
    compare_firsts(screened, lane, since, made)
    proof = Proof(screened.compared, screened.proven)
    loaded = bool(screened.unsent) and _is_loaded(lane, since)
    unsent, gone = _unsent_keys(screened, lane, loaded=loaded), _gone_keys(screened, lane, since)
    begun = _not_erased(lane, _keys_of(unsent, lane)) if unsent else {}
    if not screened.suspects and not lane.met and not begun and not gone:
        return proof
    keys = _keys_of(screened.suspects, lane) | dict(islice(lane.met.items(), JUDGED))
    removed = _keys_of(gone, lane)
    proof.unjudged = max(0, len(screened.suspects) - JUDGED)
    proof.undecided = max(0, len(unsent) - JUDGED)
    history = _history(lane, keys | removed | begun)
    for each in broken(history, keys | removed, since, lane, begun, loaded=loaded):
        (proof.unsent if each.is_unsent else proof.broken).append(each)
    proof.compared += sum(each.silent or each.key not in keys for each in proof.broken)  # with no row
    proof.strong = not any(is_weak(row["order_key"]) for row in history.rows if row["batch"] > since)
    proof.proven = proof.compared - len(proof.broken) - proof.unjudged
    return proof


def _unsent_keys(screened: Screened, lane: ProvenLane, *, loaded: bool) -> set[int]:
    """The hashes of keys whose rows no message may have brought, although all rows must have come."""
    if not screened.unsent or loaded or lane.was_emptied:
        return screened.unsent
    return screened.unsent & screened.other


def _gone_keys(screened: Screened, lane: ProvenLane, since: int) -> set[int]:
    """The hashes of keys whose rows may have been removed before a change finds them."""
    gone = screened.missing if screened.missing and _has_removed(lane, since) else set[int]()
    return gone | screened.unsaid if screened.unsaid and tells_inserts(lane.lake, lane.lane.id) else gone


def _not_erased(lane: ProvenLane, keys: dict[Key, tuple[str, ...]]) -> dict[Key, tuple[str, ...]]:
    """Those keys of which no row was erased here: the source may go on with a row whose messages have been removed."""
    hidden, shard = barriers.read(lane.lake), dict(lane.shard)
    digests = {digest for barrier in hidden.lanes.get(lane.lane.id, ()) for digest in barrier.stretches}

    def is_erased(key: Key) -> bool:
        cells = tuple(cell for name, cell in zip(lane.mirror.keys, key, strict=True) if name not in shard)
        return hidden.digest(lane.lane.table, cells) in digests

    return {key: texts for key, texts in keys.items() if not is_erased(key)} if digests else keys


def _has_removed(lane: ProvenLane, since: int) -> bool:
    """True if a lane may have removed a row, or moved it to another key, up to a batch: else no row that is missing was there.

    Moves are counted by the keys that the messages named: by others any update may be one.
    """
    named = {*lane.mirror.keys_without(*dict(lane.shard))}
    return lane.was_emptied or any(
        line["removes"] or not all(named <= {*key} for key in list_in(line["keys"]))
        for line in lane.lake.ask(
            f"""SELECT DISTINCT deletes + key_changes > 0 AS removes, keys FROM {{books}}
            WHERE {lane.lane.where} AND batch <= {since} AND deletes + updates > 0"""
        )
    )


def _is_loaded(lane: ProvenLane, since: int) -> bool:
    """True if a full load of all rows had come to its end before the batches after one, as far as its rows tell.

    Maxwell's loads may be of a part; so are Debezium's that run while the table changes, and rows that are read for a repair.
    """
    source = lane.lake.pipeline.by_source.get(lane.lane.source)
    if source is None or not 0 < lane.lane.last_read <= since:
        return False
    ends = source.about.load_ends
    reads = lane.lake.ask(
        f"""SELECT DISTINCT coalesce({read_sql()}, false) AS by_snapshot FROM {{books}}
        WHERE {lane.lane.where} AND batch <= {since} AND reads > 0"""
    )
    by_snapshot = {row["by_snapshot"] for row in reads}
    if not ends and False in by_snapshot:
        return True
    if ends == "marks" and True not in by_snapshot:
        return False
    is_end = ENDS if ends == "last row" else "false"
    return bool(
        lane.lake.ask(
            f"""SELECT 1 AS n FROM {{changes.change}} WHERE {lane.lane.where} AND batch <= {since}
            AND CASE WHEN {read_sql()} THEN op = 'truncate' AND NOT {CARRIED_SQL} ELSE op = 'read' AND {is_end} END LIMIT 1"""
        )
    )


def _history(lane: ProvenLane, keys: Mapping[Key, tuple[str, ...]]) -> KeyHistory:
    """All changes of some keys since the table has its key, and the lane's statements."""
    shard, applied = lane.shard, lane.subject.applied
    rows = changes_of_keys(lane.lake, lane.mirror, lane.lane, shard, applied, keys.values())
    begins = lane.mirror.rekeyed_at(*lane.lane.id)
    earlier = [row for row in rows if row["order_key"] <= begins and row["op"] != "truncate"]
    rows = [row for row in rows if row["order_key"] > begins]  # before it rows had another key
    steps = [step for step in lane.steps if str(step.order) > begins]
    return KeyHistory(rows, steps, shard, earlier=earlier)


def still_broken(
    lake: Lake, subject: CheckedMirror, texts: Iterable[tuple[str, ...]], *, unsent: bool
) -> set[tuple[str, ...]]:
    """The keys, of some that were found broken, that are so although late changes have come.

    A late message closes the chain that lacked it, if that is what was missing. With ``unsent`` the keys are those of rows
    that never came.
    """
    broken_keys = set[tuple[str, ...]]()
    # a key may have got another type, so that no row of the mirror can have it
    keys = subject.usable_keys(texts)
    for lane_now in subject.lanes if keys else ():
        lane = ProvenLane(lake, subject, lane_now, pa.table({}))
        begun = _not_erased(lane, keys) if unsent else {}
        loaded = unsent and _is_loaded(lane, lane_now.last)
        broken_keys |= {
            keys[each.key]
            for each in broken(_history(lane, keys), keys, 0, lane, begun, loaded=loaded)
            if each.is_unsent == unsent
        }
    return broken_keys


def _keys_of(hashes: set[int], lane: ProvenLane) -> dict[Key, tuple[str, ...]]:
    """The keys with some hashes, each with its cells as the source writes them; at most `JUDGED`."""
    if not hashes:
        return {}
    chosen = np.array(sorted(hashes)[:JUDGED])
    first, second = lane.changes["first"].to_numpy(), lane.changes["second"].to_numpy()
    rows = lane.changes.filter(pa.array(np.isin(first, chosen) | np.isin(second, chosen)))
    names, shard, named = lane.mirror.keys, lane.shard, []
    for row in rows.to_pylist():
        change = change_of(row, shard)
        for images in ((change.before, change.after), (change.after, change.before)):
            with suppress(KeyCellError):  # rejected
                named.append(tuple(map(str, texts_of_key(names, *images))))
    return lane.subject.usable_keys(named)


def broken(
    history: KeyHistory,
    suspected: Iterable[Key],
    since: int,
    lane: ProvenLane,
    begun: Collection[Key],
    *,
    loaded: bool,
) -> Iterator[Broken]:
    """The changes after batch ``since`` of some keys whose images before differ from the fold of all earlier ones.

    Those of rows that a later batch has set whole, or deleted, are left out. Of the keys that a change has ``begun`` those are
    added that had a row which no message has brought: what it had for a key before may still be in the mirror. If the table
    was ``loaded`` as a whole before, a row counts that stays: the load must have read it. While a ``lane`` loads, rows are
    deleted and moved that no load has read, unless positions say what came after it.
    """
    mirror, wanted, loads = lane.mirror, set(suspected), lane.lane.last_read > 0
    placed = {order_of(row["order_key"]): row["batch"] for row in history.rows}
    table = Table(mirror.keys, mirror.key_types, soft=mirror.soft)
    inserts = loads and tells_inserts(lane.lake, lane.lane.id)
    chain = Chain(table, mirror.logical_types, lane.images, loads, inserts, lane.tells)
    for row in history.earlier:
        chain.remember(Placed(order_of(row["order_key"]), change_of(row, history.shard)))
    open_breaks: dict[Key, list[Broken]] = {}
    unsent = _Unsent(mirror, begun, loaded)
    for event, done, link in chain.steps(history.events):
        batch = placed.get(event.order, 0)
        for step in done:  # what a newer batch has written whole is judged by its own changes
            if step.effect in _WHOLE and batch > open_breaks.get(step.key, [_NEVER])[-1].batch:
                del open_breaks[step.key]
        new = link if batch > since else None
        unsent.see(event, done, new, batch)
        if clears(event):  # nothing of what was wrong is left
            open_breaks.clear()
        if new is not None and new.is_broken and not new.is_unsent and new.key in wanted:
            open_breaks.setdefault(new.key, []).append(_broken(mirror, new, batch))
    for breaks in (*open_breaks.values(), unsent.rows.values()):
        yield from breaks


@dataclass(slots=True)
class _Unsent:
    """The rows of begun keys that no message has brought, and that may still be in the mirror."""

    mirror: Mirror
    begun: Collection[Key]
    loaded: bool
    rows: dict[Key, Broken] = field(default_factory=dict)

    def see(
        self, event: Placed | SchemaStep, done: Iterable[Step], link: images_before.Link | None, batch: int
    ) -> None:
        """Take out those that an event removes, and add that of its link, if it is a new one."""
        left = {step.key for step in done if step.effect in _LEAVES}
        for key in left:
            if not self.rows.get(key, _NEVER).certain:
                del self.rows[key]
        if clears(event):  # the row under the old key, too, is gone
            self.rows.clear()
        if link is not None and link.is_unsent and link.key in self.begun:
            stays = link.key not in left
            if (stays and self.loaded) or link.excuse is None:
                self.rows[link.key] = _broken(self.mirror, link, batch)


_WHOLE = frozenset({"set", "delete", "cleared"})
_LEAVES = frozenset({"delete", "cleared", "nothing"})
_NEVER = Broken((), (), sys.maxsize, ())


def _broken(mirror: Mirror, link: images_before.Link, batch: int) -> Broken:
    change = link.event.change
    images: list[Image] = [image for image in (change.before, change.after) if image is not None]
    texts = tuple(str(next((image[name] for image in images if name in image), "")) for name in mirror.keys)
    is_silent = change.before is None
    return Broken(link.key, texts, batch, link.differences, link.excuse is None, change.op, is_silent)


# --- in words -------------------------------------------------------------------------------------


def metrics(lake: Lake, subject: CheckedMirror, proof: Proof) -> Iterator[Metric]:
    """The metrics of changes that do not find the row that they say was there, of all that were compared, and of the proven ones."""
    lost = lost_sources(lake, subject)
    if proof.unsent and not lost:
        yield _unsent(lake, subject, proof.unsent, proof.undecided)
    if not proof.compared:
        return
    differing = [] if lost else proof.broken
    if lost and proof.broken:
        detail = f"not judged: messages of source {min(lost)} are lost, and these changes may follow them"
    else:
        detail = _detail(lake, subject, proof) if differing else ""
    severity = "error" if proof.strong else "warn"
    yield Metric.of_keys(
        "images_before", subject.name, _keys(subject, differing), detail=detail, severity=severity
    )
    left = proof.unjudged + proof.undecided
    later = f"; {counted(left, 'key was', 'keys were')} not judged" if left else ""
    yield Metric("changes_compared", proof.compared, subject.name)
    yield Metric(
        "changes_proven", proof.proven, subject.name,
        detail=f"{proof.proven:,} of {counted(proof.compared, 'change')} with an image before found the row that it describes{later}",
    )  # fmt: skip


def _unsent(lake: Lake, subject: CheckedMirror, unsent: Sequence[Broken], undecided: int) -> Metric:
    """The metric of changes whose rows no message has brought; a warning if a load may have left them out."""
    certain = [each for each in unsent if each.certain]
    since = "created or emptied" if certain else "loaded"
    why = (
        f"All rows since {subject.name} was {since} must have come. A message was lost: the one that inserted the row, or that "
        "gave it this key, and then the row under its old key is still there. "
        if any(each.differences == (NEVER_CAME,) for each in unsent)
        else ""
    )
    reconcile = command("reconcile", lake.pipeline.file)
    beyond = f"; {counted(undecided, 'more key was', 'more keys were')} not judged" if undecided else ""
    filtered = f"{_of_filter(lake, subject, NEVER_SENT)}. " if why else ""
    detail = (
        f"{_shown(lake, subject, unsent)}{beyond}. {why}{filtered}Compare {subject.name} with the source (`{reconcile}`), "
        "or load it again"
    )
    severity = "error" if certain else "warn"
    return Metric.of_keys(NEVER_SENT, subject.name, _keys(subject, unsent), detail=detail, severity=severity)


def _keys(subject: CheckedMirror, broken: Iterable[Broken]) -> list[str]:
    return [*dict.fromkeys(subject.named(each.texts for each in broken))]


def _of_filter(lake: Lake, subject: CheckedMirror, check: str) -> str:
    """What to do about a check where the source leaves rows out: one that comes into its filter may be sent as an update."""
    rule, entry = lake.pipeline.quality_rule(subject.table), f"thresholds: {{{check}: 1000000}}"
    listed = f"`- {{table: {subject.name}, {entry}}}` under quality:"
    line = f"`{entry}` into the quality: entry `table: {rule.table}`" if rule else listed
    return f"If the source sends only rows that meet a condition, one that comes to meet it looks alike: then write {line}"


def _shown(lake: Lake, subject: CheckedMirror, broken: Sequence[Broken]) -> str:
    """Some changes that do not find their rows, in words."""
    shown = [subject.row_in_words(lake, each.texts, f": {in_words(each.differences)}") for each in broken[:3]]
    keys = len({each.key for each in broken})
    return "; ".join(shown) + (f"; and {counted(keys - 3, 'more key')}" if keys > 3 else "")


def _detail(lake: Lake, subject: CheckedMirror, proof: Proof) -> str:
    is_filtered = any(each.may_be_filtered for each in proof.broken)
    filtered = f". {_of_filter(lake, subject, 'images_before')}" if is_filtered else ""
    return (
        f"{_shown(lake, subject, proof.broken)}. A message before was lost or is late, came in the wrong order, or a statement changed "
        f"the row otherwise: compare {subject.name} with the source, or load it again{filtered}"
    )
