"""What an erasure removes: found once, before anything changes, and kept in a file of the lake until it is done.

Silver says which changes are a row's, under all keys that it ever had; their places say which messages of bronze hold
it.  The file holds keys in the clear, as the lake itself does until the erasure is done; the decision never does.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from ingest.bronze.land import last_batch
from ingest.change import LaneId, Op
from ingest.config import conditions
from ingest.errors import IngestError, command, counted, first_line
from ingest.fold import Key
from ingest.formats import ingest_snapshot
from ingest.gold import evidence
from ingest.gold.explain import masked_key
from ingest.gold.fold.stretches import Spoken, Stretch, of_rows
from ingest.ledgers import barriers, condensed, decisions, feeds, histories, mirrors
from ingest.ledgers.barriers import Barrier, Barriers
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.rejects import PLACE
from ingest.ledgers.stamps import change_of
from ingest.order import is_weak, last_repeat, order_of, other_half, same_place
from ingest.store.names import mirror_path
from ingest.tables import duck, snapshots
from ingest.tables.json_cells import list_in
from ingest.tables.lake import Lake
from ingest.tables.tables import Row, Tables

FILE = "erasing.json"
AT_ONCE = 500  # keys or places in one question
Texts = tuple[str, ...]
_Seen = dict[tuple[str, int], tuple[Row, Spoken]]


def batched(asked: Iterable[Any]) -> Iterator[list[Any]]:
    """So many of some keys or places as one question names."""
    rest = list(asked)
    for start in range(0, len(rest), AT_ONCE):
        yield rest[start : start + AT_ONCE]


class ErasedChange(msgspec.Struct, frozen=True):
    """Where one change of an erased row lies."""

    batch: int
    source: str
    topic: str | None
    partition: int | None
    offset: int | None
    row: int | None
    order_key: str
    database: str | None
    schema: str | None
    table: str | None

    @property
    def place(self) -> tuple[Any, ...]:
        return self.source, self.topic, self.partition, self.offset


class Share(msgspec.Struct, frozen=True):
    """What an erasure removes from a further mirror of the same tables; the members are those of an `Erasure`."""

    mirror: str
    path: str
    keys: list[Texts]
    rows: list[Texts]
    alone: list[Texts]


class Erasure(msgspec.Struct):
    """One erasure: what it was asked for, what it removes, and what it has removed so far."""

    number: str
    secret: str  # what keys are named with in the barriers
    mirror: str
    path: str
    reason: str
    by: str
    started_at: str
    now: bool
    asked: int  # rows that were named
    keys: list[Texts]  # all keys of the rows
    rows: list[Texts]  # those under which the mirror may hold one of the rows, also as a deleted one
    alone: list[Texts]  # those that never had another row
    barriers: list[list[Any]]
    changes: list[ErasedChange]
    cells: list[str]  # texts that checks may quote
    done: dict[str, dict[str, int]] = {}  # by step and table
    parts: list[
        tuple[Any, ...]
    ] = []  # places of parts of split messages that nothing has read, and that hold something
    others: list[Share] = []  # of further mirrors
    # keys whose row was inserted or deleted where one of these was deleted or inserted
    doubtful: list[Texts] = []
    unplaced: int = 0  # inserts and deletes without a position, in sources that send a changed key as a delete and an insert

    @property
    def of_mirrors(self) -> list[Erasure]:
        """The same erasure for each of the mirrors."""
        return [self, *(structs.replace(self, **structs.asdict(other)) for other in self.others)]

    def save(self, lake: Tables) -> None:
        """Write the file, whole."""
        path = Path(lake.path(FILE))
        whole = path.with_suffix(".tmp")
        whole.touch(mode=0o600)
        whole.write_bytes(msgspec.json.encode(self))
        whole.replace(path)


def unfinished(lake: Tables) -> Erasure | None:
    """The erasure that was begun and not completed, as its file has it."""
    path = Path(lake.path(FILE))
    return msgspec.json.decode(path.read_bytes(), type=Erasure) if path.exists() else None


def forget(lake: Tables) -> None:
    """Delete the file of an erasure that is done."""
    Path(lake.path(FILE)).unlink(missing_ok=True)


def refuse(lake: Lake) -> None:
    """Refuse an erasure that would leave data in the lake.

    Raises:
        IngestError: the lake is in a store without folders, a batch waits, or another erasure is not done.
    """
    file = lake.pipeline.file
    if not lake.is_folder:
        raise IngestError(
            f"{lake.pipeline.lake} is not a folder of this machine: `ingest erase` works on lakes in folders."
        )
    if (waiting := unfinished(lake)) is not None:
        raise IngestError(
            f"The erasure of {waiting.mirror} from {waiting.started_at} is not finished: "
            f"`{command('erase', file, '--resume')}` completes it."
        )
    last, decoded = last_batch(lake), lake.decoded()
    if last > decoded:
        raise IngestError(
            f"Batch {decoded + 1} has landed and is not decoded, so that it may hold rows to erase: "
            f"`{command('run', file)}` first."
        )
    for source in lake.pipeline.sources:
        if waiting_files := _unlanded(lake, source.name):
            raise IngestError(
                f"Rows of source {source.name} were read into {counted(len(waiting_files), 'file')} such as {waiting_files[0]} and have "
                f"not landed, so that they may be rows to erase: `{command('run', file)}` first."
            )
    upto = condensed.read(lake).batch
    if upto and lake.ask(f"SELECT 1 FROM {{bronze.message}} WHERE batch <= {upto} LIMIT 1"):
        raise IngestError(
            f"The changes of batches 1 to {upto} are condensed and bronze still holds their messages, among which those "
            f"of a row cannot be found: `{command('maintain', file, '--drop-bronze-after', '1d')}` drops old messages, "
            f"or `{command('rebuild', file, '--layer', 'silver')}` decodes them again."
        )


def _unlanded(lake: Tables, source: str) -> list[str]:
    """The files of a source's snapshots that have not landed yet."""
    here = snapshots.folder(lake.pipeline, source)
    files = sorted(here.glob(f"*/*{ingest_snapshot.SUFFIX}")) if here.is_dir() else []
    if not files:
        return []
    topics = lake.ask(
        f"SELECT DISTINCT topic FROM {{books}} WHERE source = {duck.text(source)} AND {snapshots.read_sql()}"
    )
    landed = {Path(row["topic"]).parts[-2:] for row in topics}
    return [str(file) for file in files if file.parts[-2:] not in landed]


def keys_where(lake: Tables, name: str, condition: str) -> list[Texts]:
    """The keys of a mirror's rows that meet a condition.

    Raises:
        IngestError: the condition is not one on the mirror's columns.
    """
    mirror = evidence.mirror_of(lake, name)
    try:
        wanted = conditions.condition(condition)
        cells = ", ".join(
            f"{evidence.cell_text(key_column)} AS {duck.name(f'k{i}')}"
            for i, key_column in enumerate(mirror.key_columns)
        )
        rows = lake.ask_mirror(mirror.path, f"SELECT {cells} FROM {{mirror}} AS m WHERE ({wanted})")
    except ValueError as error:
        raise IngestError(f"--where: {error}.") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("duckdb", "_duckdb"):
            raise
        raise IngestError(f"--where cannot be evaluated on {mirror.name}: {first_line(error)}") from None
    return [tuple(str(cell) for cell in row.values()) for row in rows]


def plan(lake: Lake, name: str, asked: Sequence[Sequence[str]], reason: str, *, now: bool) -> Erasure:
    """Find everything of some rows.

    Args:
        lake: the lake, whose lock the caller holds.
        name: the mirror's name.
        asked: the rows' keys, as `ingest explain` takes them.
        reason: why they are erased.
        now: whether old files are deleted at once.

    Raises:
        IngestError: what silver or the mirror say of a key cannot be followed, or they say nothing.
    """
    mirror = evidence.mirror_of(lake, name)
    lanes = evidence.lanes(lake, mirror)
    _refuse_renamed(lake, mirror, lanes)
    texts = {
        evidence.asked_key(lake, mirror, cells): tuple(cells)
        for cells in (masked_key(lake, name, given) for given in asked)
    }
    gathered = _Found(texts, dict(texts))
    for lane in lanes:
        gathered.add(lake, mirror, lane)
    for mistyped in (text for key, text in texts.items() if key not in gathered.named):
        if not evidence.present(lake, mirror, mistyped, None).rows:
            raise IngestError(
                f"Neither {mirror.name} nor its changes have a row with the key {', '.join(mistyped)}: nothing was erased."
            )
    stretches = [stretch for of_lane in gathered.lanes.values() for stretch in of_lane]
    keys, several = (
        {stretch.key for stretch in stretches},
        {stretch.key for stretch in stretches if not stretch.alone},
    )
    _refuse_several(lake, mirror, several)
    secret, key_texts = Barriers(barriers.read(lake).secret or secrets.token_hex(32)), gathered.known
    return Erasure(
        number=uuid.uuid4().hex[:12],
        secret=secret.secret,
        mirror=mirror.name,
        path=mirror.path,
        reason=reason,
        by=decisions.user(),
        started_at=lake.now().isoformat(timespec="seconds"),
        now=now,
        asked=len(texts),
        keys=[key_texts[key] for key in keys],
        rows=[
            key_texts[key] for key in {stretch.key for stretch in stretches if stretch.last or mirror.soft}
        ],
        alone=[key_texts[key] for key in keys - several],
        barriers=[_barrier(secret, mirror, *of_lane).to_value() for of_lane in gathered.lanes.items()],
        changes=gathered.changes,
        cells=sorted(gathered.cells),
        others=_others(lake, mirror, gathered.lanes, key_texts),
        doubtful=sorted(cells for key, cells in gathered.doubtful.items() if key not in keys),
        unplaced=gathered.unplaced,
    )


@dataclass(slots=True)
class _Found:
    """What some rows have left in the lake, lane by lane."""

    asked: Mapping[Key, Texts]  # the keys that were asked for
    known: dict[Key, Texts]  # the texts of all keys that the rows ever had
    named: set[Key] = field(default_factory=set)  # keys of which there are changes
    lanes: dict[LaneId, list[Stretch]] = field(default_factory=dict)
    changes: list[ErasedChange] = field(default_factory=list)
    cells: set[str] = field(default_factory=set)
    doubtful: dict[Key, Texts] = field(default_factory=dict)
    unplaced: int = 0

    def add(self, lake: Tables, mirror: Mirror, lane: LaneId) -> None:
        """Add what a lane has of them."""
        stretches, rows = _of_lane(lake, mirror, lane, self)
        if stretches:
            self.lanes[lane] = stretches
        self.doubtful |= _beside(lake, mirror, lane, rows)
        if lake.pipeline.about(lane[0]).split_moves:
            self.unplaced += sum(
                is_weak(row["order_key"]) and (row["before"] is None or row["op"] == Op.DELETE)
                for row in rows
            )
        for row in rows:
            place = {name: row[name] for name in ("batch", *PLACE, "row", "order_key")}
            self.changes.append(msgspec.convert(place | lane[1]._asdict(), ErasedChange))
            images = (json.loads(row[side]) for side in ("before", "after") if row[side])
            texts = (text for image in images for text in image.values())
            self.cells.update(filter(None, texts))


def _refuse_several(lake: Tables, mirror: Mirror, several: Collection[object]) -> None:
    """Refuse keys that had other rows, too, where a table cannot distinguish them."""
    for path, what, rule in (
        (histories.path_of(mirror), "old states of the two in {}'s history table", "history:"),
        (feeds.path_of(mirror), "changes of the two in {}'s change feed", "changes_of:"),
    ):
        if several and lake.exists(path):
            raise IngestError(
                f"A key of these rows has had another row, too, and {what.format(mirror.name)} cannot be distinguished: end "
                f"`{rule}` in the pipeline file and drop the table first."
            )
    if several and mirror.soft:
        raise IngestError(
            f"A key of these rows has had another row, too, and the deleted rows of the two that {mirror.name} keeps cannot "
            "be distinguished: take `deletes: soft` out of the pipeline file, run it, erase the rows, and write it again."
        )


def _others(
    lake: Tables, mirror: Mirror, of_lanes: Mapping[LaneId, Sequence[Stretch]], key_texts: Mapping[Key, Texts]
) -> list[Share]:
    """What is removed from the further mirrors of the tables."""
    existing = mirrors.known(lake)
    shares: dict[str, Share] = {}
    for lane, stretches in of_lanes.items():
        for path in map(mirror_path, mirrors.names(lake.pipeline, lane[1])):
            other = existing.get(path)
            if path == mirror.path or other is None:
                continue
            shard = other.shard_of(lane)
            _refuse_unlike(lake, mirror, other, merged=not shard)
            keys = dict[Key, Texts]()
            for stretch in stretches:
                if (key_there := evidence.key_in(mirror, key_texts[stretch.key], other, lane)) is None:
                    raise IngestError(
                        f"{other.name} holds the rows of {mirror.name} under another key, so they cannot be found there: "
                        "take it out of also: and drop its table first."
                    )
                keys[stretch.key] = key_there
            several = {keys[stretch.key] for stretch in stretches if not stretch.alone}
            _refuse_several(lake, other, several)
            share = shares.setdefault(path, Share(other.name, path, [], [], []))
            share.keys.extend(keys.values())
            share.rows.extend({keys[stretch.key] for stretch in stretches if stretch.last or other.soft})
            share.alone.extend(set(keys.values()) - several)
    return list(shares.values())


def _refuse_unlike(lake: Tables, mirror: Mirror, other: Mirror, *, merged: bool) -> None:
    """Refuse a further mirror in which the rows cannot be distinguished from others."""
    lanes = evidence.lanes(lake, other)
    _refuse_renamed(lake, other, lanes)
    if merged and not {*lanes} <= {*evidence.lanes(lake, mirror)}:
        raise IngestError(
            f"{other.name} holds rows of other tables than {mirror.name}, too, which only their keys distinguish: "
            f"`{command('erase', lake.pipeline.file, other.name)}` with the key removes the row from both."
        )


def _refuse_renamed(lake: Tables, mirror: Mirror, lanes: Iterable[LaneId]) -> None:
    """Refuse to erase rows whose older changes are under other names: they would be left in the lake."""
    for lane in lanes:
        if mirror.eras_of(*lane):
            raise IngestError(
                f"The primary key of {mirror.name} has changed, and rows under an old key are not erased yet."
            )
    names = {table for _, table in lanes}
    for row in lake.ask("SELECT effects FROM {ddl} WHERE effects LIKE '%\"rename\\_%' ESCAPE '\\'"):
        for load in list_in(row["effects"]):
            table, to = _table(load.get("table")), load.get("to")
            if (
                load["action"] == "rename_column"
                and table in names
                and {load["column"], to} & set(mirror.keys)
            ):
                raise IngestError(
                    f"The key column {to} of {mirror.name} was renamed, and rows under its old name are not erased yet."
                )
            if load["action"] == "rename_table" and {table, _table(to)} & names:
                raise IngestError(
                    f"{mirror.name} or its source was renamed, and rows under the old name are not erased yet."
                )


def _table(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# --- one lane -----------------------------------------------------------------------------------


def _of_lane(
    lake: Tables, mirror: Mirror, lane: LaneId, all_found: _Found
) -> tuple[list[Stretch], list[Row]]:
    """The stretches of the rows in a lane, and the changes in them; what is known of their keys is added."""
    shard = mirror.shard_of(lane)
    fixed = {cell for cell in shard if cell[0] in mirror.keys}
    wanted = {
        key: cells
        for key, cells in all_found.asked.items()
        if fixed <= {*zip(mirror.keys, cells, strict=True)}
    }
    if not wanted:
        return [], []
    seen = _linked(lake, mirror, lane, wanted, all_found.known)
    all_found.named |= {key for _, spoken in seen for key in (spoken.key, spoken.left) if key is not None}
    [books] = lake.ask(f"SELECT max(order_high) AS newest FROM {{books}} WHERE {duck.of_lane(*lane)}")
    stretches = of_rows([spoken for _, spoken in seen], wanted.keys(), books["newest"] or "")
    ends: dict[Key, list[Stretch]] = {}
    for stretch in stretches:
        ends.setdefault(stretch.key, []).append(stretch)
    return stretches, [row for row, spoken in seen if _is_in(ends, spoken)]


def _linked(
    lake: Tables, mirror: Mirror, lane: LaneId, wanted: Mapping[Key, Texts], key_texts: dict[Key, Texts]
) -> list[tuple[Row, Spoken]]:
    """The changes of some keys in a lane, and of each key that a row of these has had before or since.

    The texts of the keys that are met are added to ``key_texts``.
    """
    types_of, shard_cells = mirror.key_types, dict(mirror.shard_of(lane))
    linked, asked = dict(wanted), set[Key]()
    seen: _Seen = {}
    while new := linked.keys() - asked:
        asked |= new
        for keys in batched(sorted(new, key=str)):
            rows = [*evidence.candidates(lake, mirror, lane, [linked[key] for key in keys], shard_cells)]
            for halves in batched(sorted({_other_half(row) for row in rows} - {""})):
                rows += evidence.at_places(lake, mirror, lane, halves, shard_cells)
            for row in rows:
                place = row["order_key"], row["batch"]
                if place not in seen and (texts := evidence.keys_of(change_of(row), mirror.keys, types_of)):
                    key, *left = texts
                    seen[place] = row, Spoken(row["order_key"], key, left[0] if left else None)
                    key_texts |= {key: cells for key, cells in texts.items() if key not in key_texts}
        # a change of a key links it with the key that the row had before
        seen = _paired(seen)
        for _, spoken in seen.values():
            pair = {spoken.key, spoken.left or spoken.key}
            if not pair.isdisjoint(linked):
                linked |= {key: key_texts[key] for key in pair - linked.keys()}
    return [
        (row, spoken)
        for row, spoken in seen.values()
        if {spoken.key, spoken.left or spoken.key} & linked.keys()
    ]


def _beside(lake: Tables, mirror: Mirror, lane: LaneId, rows: Sequence[Row]) -> dict[Key, Texts]:
    """The keys that were inserted at the very places at which rows were deleted, or deleted where they were inserted.

    A source that sends a changed key as a delete and an insert gives both one place; messages that name neither the old
    key nor the new one leave open whether they are one row's.
    """
    types_of = mirror.key_types
    shard = dict(mirror.shard_of(lane))
    deletes = {
        same_place(row["order_key"]): row["op"] == Op.DELETE for row in rows if not is_weak(row["order_key"])
    }
    keys: dict[Key, Texts] = {}
    for places in batched(sorted(deletes)):
        for row in evidence.at_places(lake, mirror, lane, places, shard):
            if (row["op"] == Op.DELETE) != deletes[same_place(row["order_key"])]:
                keys |= evidence.keys_of(change_of(row), mirror.keys, types_of)
    return keys


def _other_half(row: Row) -> str:
    """Where the rest of a change is that may be half of a changed key; empty if it is whole."""
    half = order_of(row["order_key"]).half
    is_half = row["op"] == Op.DELETE if half == 0 else row["before"] is None
    return other_half(row["order_key"]) if is_half else ""


def _paired(seen: _Seen) -> _Seen:
    """The changes; what follows a delete as the other half of a changed key takes the row from the deleted key."""
    left = {same_place(spoken.order): spoken.key for row, spoken in seen.values() if row["op"] == Op.DELETE}
    pairs = {}
    for place, (row, spoken) in seen.items():
        old = left.get(_other_half(row)) if row["op"] != Op.DELETE else None
        pairs[place] = row, spoken if old in (None, spoken.key) else spoken._replace(left=old)
    return pairs


def _is_in(ends: dict[Key, list[Stretch]], spoken: Spoken) -> bool:
    return any(
        stretch.low <= spoken.order <= stretch.high
        for key in (spoken.key, spoken.left)
        if key is not None
        for stretch in ends.get(key, ())
    )


def _barrier(secret: Barriers, mirror: Mirror, lane: LaneId, stretches: Sequence[Stretch]) -> Barrier:
    """The lane's barrier; the cell of a shard column is not in messages, and not in its digests."""
    shard = dict(mirror.shard_of(lane))
    columns = [(i, column) for i, column in enumerate(mirror.key_columns) if column.name not in shard]
    ends: dict[str, list[tuple[str, str]]] = {}
    for stretch in stretches:
        key = tuple(stretch.key[i] for i, _ in columns)
        # a repeat of the newest change arrives later, and must not pass
        high = last_repeat(stretch.high) if stretch.last else stretch.high
        ends.setdefault(secret.digest(lane[1], key), []).append((stretch.low, high))
    return Barrier(
        lane[0],
        lane[1],
        tuple(column.name for _, column in columns),
        tuple(column.type for _, column in columns),
        {digest: tuple(end) for digest, end in ends.items()},
    )
