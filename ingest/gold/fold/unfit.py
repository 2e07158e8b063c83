"""What does not fit a mirror: found in the same pass as the rows, and written to `rejects` before their commit.

A *cell* whose text is not a value of its column's type becomes NULL in the mirror; its text is kept here.
A *change* whose key has such a cell, or is missing, is omitted as a whole: a mirror never gets a NULL key.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ingest import types
from ingest.change import Image
from ingest.config.conditions import columns as columns_of
from ingest.fold import KeyCellError, Texts, texts_of_key
from ingest.gold.fold.arrow_values import Typed, typed_column
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork, Rows
from ingest.gold.plan.completed import STAGE
from ingest.ledgers.mirrors import Mirror
from ingest.tables import duck
from ingest.tables.datafiles import table_of
from ingest.tables.schemas import REJECTS
from ingest.values.typed_values import misfits

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

UNFIT = "%unfit"
"""A column of outcomes: the cells of a row that do not fit, as JSON of `Unfit`; NULL for most rows."""


class SentFrom(NamedTuple):
    """Where the message of a change lies."""

    topic: str | None
    partition: int | None
    offset: int | None
    batch: int


class Cell(NamedTuple):
    """A cell of a row that does not fit: its column, its text, and the change that sent it, if one did."""

    column: str
    text: str
    source: str = ""
    place: SentFrom | None = None


class Reject(NamedTuple):
    """A cell or a change that does not fit a mirror; a cell that no change sent in this form has no place."""

    source: str
    place: SentFrom | None
    key: str | None  # JSON
    reason: str
    detail: str
    raw: str | None
    column: str | None = None  # of a cell; None for a change


_Sent = tuple[str | None, str, str]  # the JSON of a row's key, a column and a text
cells_of = msgspec.json.Decoder(list[Cell]).decode
_image_of = msgspec.json.Decoder(dict[str, str | None]).decode


# --- cells ----------------------------------------------------------------------------------------


def of_rows(
    columns: Mapping[str, tuple[pa.Array, Typed]],
    sets: pa.Array,
    source: str = "",
    rows: pa.Table | None = None,
) -> pa.Array:
    """The column `UNFIT` of some rows.

    Args:
        columns: by the source's names, the texts of columns and what became of them.
        sets: which rows exist: the cells of a deleted one do not matter.
        source: their source, if it is known.
        rows: the change of each row, if some are known; one without a batch is not.
    """
    cells: dict[int, list[tuple[str, str]]] = {}
    for name, (texts, typed) in columns.items():
        if typed.unfit is not None:
            numbers = pc.indices_nonzero(pc.and_(typed.unfit, sets))
            for number, text in zip(numbers.to_pylist(), texts.take(numbers).to_pylist(), strict=True):
                cells.setdefault(number, []).append((name, text))
    if not cells:
        return pa.nulls(len(sets), pa.string())
    cells_json: list[str | None] = [None] * len(sets)
    places = [None] * len(cells) if rows is None else places_of(rows.take(pa.array(cells, pa.int64())))
    for (number, of_row), place in zip(cells.items(), places, strict=True):
        sent = place if place is not None and place.batch is not None else None
        cells_json[number] = _as_json([Cell(name, text, source, sent) for name, text in of_row])
    return pa.array(cells_json, pa.string())


def _as_json(cells: list[Cell]) -> str:
    return msgspec.json.encode(cells).decode()


def places_of(rows: pa.Table) -> list[SentFrom]:
    """Where the messages of some changes lie."""
    columns = (rows[name].to_pylist() for name in SentFrom._fields)
    return [SentFrom(*cells) for cells in zip(*columns, strict=True)]


def placed(outcomes: pa.Table, work: MirrorWork, rows: Rows) -> pa.Table:
    """Outcomes with the source and the place of each cell that does not fit: those of the newest change of the row's key
    that sent its text.
    """
    unfit = pc.indices_nonzero(pc.is_valid(outcomes[UNFIT]))
    if not len(unfit):
        return outcomes
    listed = outcomes[UNFIT].to_pylist()
    cells = {number: cells_of(listed[number]) for number in unfit.to_pylist()}
    keys = dict(zip(cells, keys_as_json(outcomes.take(unfit), work), strict=True))
    wanted = {(keys[number], cell.column, cell.text) for number, of_row in cells.items() for cell in of_row}
    sent: dict[_Sent, tuple[str, SentFrom | None]] = {}
    for lane in work.lanes:
        if lane.id in rows:
            sent_from = _sent(rows[lane.id], lane, work, wanted)
            sent.update((cell, (lane.source, place)) for cell, place in sent_from)
    nowhere = work.lanes[0].source, None
    for number, of_row in cells.items():
        places = [sent.get((keys[number], cell.column, cell.text), nowhere) for cell in of_row]
        listed[number] = _as_json(
            [
                cell._replace(source=source, place=place)
                for cell, (source, place) in zip(of_row, places, strict=True)
            ]
        )
    index = outcomes.schema.get_field_index(UNFIT)
    return outcomes.set_column(index, UNFIT, pa.array(listed, pa.string()))


def _sent(
    rows: pa.Table, lane: LaneWork, work: MirrorWork, wanted: Collection[_Sent]
) -> Iterator[tuple[_Sent, SentFrom]]:
    """The changes that sent some cells, in the order of history."""
    rows = rows.filter(pc.greater_equal(rows["row"], 0))  # others are rows under an earlier key
    shard: Image = dict(lane.shard)
    asked = {(name, text) for _, name, text in wanted}
    names, numbers, keys, images = {name for name, _ in asked}, list[int](), list[Texts](), list[Image]()
    sides = zip(*(rows[name].to_pylist() for name in ("op", "after", "before")), strict=True)
    for number, (op, after, before) in enumerate(sides):
        if after is None or op == "delete":
            continue
        image = {**shard, **_image_of(after)}
        if any((name, image.get(name)) in asked for name in names):
            with contextlib.suppress(KeyCellError):
                keys.append(
                    texts_of_key(work.keys, image, {**shard, **_image_of(before)} if before else None)
                )
                numbers.append(number)
                images.append(image)
    places = places_of(rows.take(pa.array(numbers, pa.int64())))
    for key, image, place in zip(_typed_keys(keys, work), images, places, strict=True):
        for name in names:
            text = image.get(name)
            if text is not None and (key, name, text) in wanted:
                yield (key, name, text), place


def _typed_keys(keys: Sequence[Texts], work: MirrorWork) -> list[str | None]:
    columns = {}
    for i, (name, column) in enumerate(_key_columns(work)):
        texts = pa.array([key[i] for key in keys], pa.string())
        columns[column] = typed_column(texts, work.logical[name], is_key=True).cells
    return keys_as_json(pa.table(columns), work)


def _key_columns(work: MirrorWork) -> list[tuple[str, str]]:
    columns = {column.name: column.column for column in work.columns}
    return [(name, columns[name]) for name in work.keys]


def cells(outcomes: pa.Table, work: MirrorWork) -> list[Reject]:
    """The cells of outcomes that do not fit. Of rows that the mirror's condition leaves out, only those that it needs."""
    rows = outcomes.filter(pc.is_valid(outcomes[UNFIT]))
    asked = columns_of(work.where) if work.where else ()
    rejects = []
    columns = (rows["%gone"].to_pylist(), keys_as_json(rows, work), rows[UNFIT].to_pylist())
    for gone, key, listed in zip(*columns, strict=True):
        rejects += [reject(cell, key, work) for cell in cells_of(listed) if not gone or cell.column in asked]
    return rejects


def reject(cell: Cell, key: str | None, work: MirrorWork) -> Reject:
    """One cell that is not a value of its column's type."""
    logical = work.logical[cell.column]
    form, value = misfits(logical)
    why = value if types.matches(logical, cell.text) else form
    return Reject(cell.source, cell.place, key, "does-not-fit", why, cell.text, cell.column)


def keys_as_json(rows: pa.Table, work: MirrorWork) -> list[str | None]:
    """The keys of rows as JSON under the source's names; NULL without a key."""
    if not work.keys:
        return [None] * rows.num_rows
    shown = []
    for name, column in _key_columns(work):
        kind, texts = rows[column].type, _texts(rows[column])
        if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)):
            texts = [json.dumps(text, ensure_ascii=False) for text in texts]
        label = json.dumps(name, ensure_ascii=False)
        shown.append([f"{label}:{text or 'null'}" for text in texts])
    return [f"{{{','.join(cells)}}}" for cells in zip(*shown, strict=True)]


def _texts(cells: pa.ChunkedArray) -> list[str | None]:
    """Typed cells as texts for display."""
    kind = cells.type
    if pa.types.is_binary(kind):
        return [
            None if cell is None else msgspec.json.encode(cell).decode()[1:-1] for cell in cells.to_pylist()
        ]
    texts: list[str | None] = cells.cast(pa.string()).to_pylist()
    if pa.types.is_timestamp(kind):
        return [None if text is None else text.replace(" ", "T", 1) for text in texts]
    return texts


# --- changes --------------------------------------------------------------------------------------


def changes(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> list[Reject]:
    """Changes without a usable key."""
    kinds = ", ".join(f"{name} ({work.logical[name]})" for name in work.keys)
    shard: Image = dict(lane.shard)
    sides = zip(rows["after"].to_pylist(), rows["before"].to_pylist(), rows["row"].to_pylist(), strict=True)
    rejects = []
    for place, (after, before, row) in zip(places_of(rows), sides, strict=True):
        images = [{**shard, **json.loads(image)} for image in (after, before) if image is not None]
        texts = {name: next((image[name] for image in images if name in image), None) for name in work.keys}
        detail = f"a cell of the key {kinds} is missing, NULL or no value of its type; row {row}"
        key = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        raw = after if after is not None else before
        rejects.append(Reject(lane.source, place, key, "key-does-not-fit", detail, raw))
    return rejects


# --- rejects --------------------------------------------------------------------------------------


def keep(lake: Lake, mirror: Mirror, rejects: Sequence[Reject], batch: int) -> int:
    """Append what does not fit to `rejects`, guarded.

    A change can be folded more than once: after a kill, or with later or older changes of its key. Its existing rejects
    are not written again.

    Args:
        lake: the lake.
        mirror: with its columns as decided.
        rejects: what does not fit.
        batch: the batch that is about to be folded.

    Returns:
        how many rows were written.
    """
    unfit = dict.fromkeys(_row(misfit, mirror, batch) for misfit in rejects)
    if not unfit:
        return 0
    names = ", ".join(map(duck.name, (*_NAMED, *_MESSAGE)))
    of_mirror = f"stage = '{STAGE}' AND {duck.of_table(mirror.table)}"
    rows = lake.ask(f"SELECT {names} FROM {{rejects}} WHERE {of_mirror}")
    recorded = {tuple(row.values()) for row in rows}
    new = [
        row for row in unfit if not recorded & {_named(row), (*_named(row)[: len(_NAMED)], None, None, None)}
    ]
    if not new:
        return 0
    table = table_of(new, REJECTS.arrow.names, REJECTS.arrow)
    return len(new) if lake.append(table, REJECTS, f"{STAGE}/{mirror.path}/{mirror.generation}", batch) else 0


COUNTED = "rejected"
"""Among a mirror's counts: cells and changes that did not fit."""
_NAMED = ("kind", "source", "key", "column", "raw")
_MESSAGE = ("topic", "partition", "offset")
_named = itemgetter(*map(REJECTS.arrow.names.index, (*_NAMED, *_MESSAGE)))
"""What distinguishes a row of `rejects` from the mirror's others."""


def _row(misfit: Reject, mirror: Mirror, batch: int) -> tuple[object, ...]:
    """A row of `rejects`; a cell that no change sent in this form belongs to the batch that is folded."""
    place = misfit.place or SentFrom(None, None, None, batch)
    known = {
        "stage": STAGE, "kind": "cell" if misfit.column else "change", "source": misfit.source, **place._asdict(),
        **mirror.table._asdict(), "key": misfit.key, "column": misfit.column, "reason": misfit.reason, "detail": misfit.detail,
        "raw": misfit.raw,
    }  # fmt: skip
    return tuple(known.get(name) for name in REJECTS.arrow.names)
