"""A mirror's rows compared cell by cell with the plain fold of their changes.

The plain fold (`ingest.fold`) is the definition of a mirror; it runs here in the driver over the whole
histories of some keys.  Nothing here knows Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from ingest.change import Change, Image, Op
from ingest.fold import Key, KeyCellError, Placed, SchemaStep, Table, steps
from ingest.lake.mirrors import Mirror
from ingest.order import order_of
from ingest.quality.cell_values import of_cell, of_text, shown

Row = Mapping[str, Any]
Cells = dict[str, object]  # by the mirror's column


@dataclass(slots=True)
class History:
    """The changes of some keys of one lane, and the statements that change rows without messages.

    ``rows`` have ``op, order_key, partial, before, after, h, was``: the hashes of the key that a change
    gives its row and of the one that it leaves.  ``whole`` says that nothing older than ``rows`` was left out.
    """

    rows: list[Row] = field(default_factory=list)
    steps: Sequence[SchemaStep] = ()
    shard: tuple[str, str] | None = None
    whole: bool = True


@dataclass(slots=True)
class Expected:
    """The rows that the fold gives, and every key about which it says something."""

    rows: dict[Key, Cells] = field(default_factory=dict)
    known: set[Key] = field(default_factory=set)
    open: set[Key] = field(default_factory=set)  # older changes would be needed to know them
    texts: dict[Key, tuple[str, ...]] = field(default_factory=dict)  # each key as the source spells it

    def add(self, other: Expected) -> None:
        """What another lane of the mirror gives."""
        self.rows |= other.rows
        self.known |= other.known
        self.open |= other.open
        self.texts |= other.texts


class Wrong(NamedTuple):
    """One difference: a cell, or with ``column`` empty a whole row."""

    key: Key
    column: str
    text: str
    blank: bool = False  # the mirror has NULL where the changes give a value


def expected(history: History, mirror: Mirror, sample: set[int] | None) -> Expected:
    """What the mirror has to hold for the keys whose hash is in the sample; None means all of them."""
    table, found = Table(mirror.keys), Expected()
    names = _former_names(mirror.keys, history.steps)
    events: dict[tuple[object, ...], Placed] = {}
    settled: set[Key] = set()
    cleared = any(row["op"] == "truncate" for row in history.rows)
    for row in history.rows:
        identity = (row["order_key"], row["op"], row["before"], row["after"])
        if identity in events:
            continue
        change = change_of(row, mirror, names, history.shard)
        events[identity] = Placed(order_of(row["order_key"]), change)
        if change.op is Op.TRUNCATE:
            continue
        keys = _keys(table, change)
        for key, mark, images in zip(keys, (row["h"], row["was"]), _RAW, strict=True):
            if key is not None and (sample is None or mark in sample):
                found.known.add(key)
                found.texts.setdefault(key, _texts(row, images, mirror.keys, names, history.shard))
        settled |= {key for key in _settled(change, *keys) if key is not None}
    if not history.whole and not cleared:
        found.open = found.known - settled
    for _step in steps(table, [*events.values(), *_placed(history.steps)]):
        pass
    for key in found.known - found.open:
        if (live := table.rows.get(key)) is not None:
            found.rows[key] = _cells(live.values, mirror)
    return found


def differences(
    wanted: Expected, rows: Iterable[Sequence[str | None]], mirror: Mirror, types: Sequence[str], closed: bool
) -> Iterator[Wrong]:
    """What differs between the fold and the mirror's rows of the same keys.

    Args:
        wanted: what the fold gives.
        rows: the mirror's rows, each cell as `ingest.quality.cell_values.selected` writes it.
        mirror: with its columns in the order of the cells.
        types: the Delta type that each column really has.
        closed: True if a row about which no change says anything is too many.
    """
    present: dict[Key, Cells] = {}
    columns = mirror.columns
    key: Key
    for cells in rows:
        row = {one.name: of_cell(cell, delta) for one, cell, delta in zip(columns, cells, types, strict=True)}
        key = tuple(identity(row[name]) for name in mirror.keys)
        if key in present:
            yield Wrong(key, "", "stands more than once")
        present[key] = row
    for key in sorted(wanted.rows.keys() - present.keys(), key=str):
        yield Wrong(key, "", "is missing, the changes give this row")
    for key in sorted(present.keys() - wanted.rows.keys(), key=str):
        wanted.texts.setdefault(key, tuple(map(str, key)))
        if key in wanted.known - wanted.open or (closed and key not in wanted.open):
            yield Wrong(key, "", "is a row that the changes do not give")
    comparable = {
        one.name
        for one, delta in zip(columns, types, strict=True)
        if delta == one.delta and one.name not in mirror.keys
    }
    for key in sorted(wanted.rows.keys() & present.keys(), key=str):
        for name in comparable:
            value, right = present[key][name], wanted.rows[key].get(name)
            if value != right:
                text = f"holds {shown(value)}, the changes give {shown(right)}"
                yield Wrong(key, name, text, value is None)


def identity(value: object) -> str:
    """A key cell's value as a text that is equal exactly where the values are one key."""
    if value == 0 and not isinstance(value, bool | bytes | str):
        return "0"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    number = getattr(value, "number", None)
    if number is not None:
        return "0" if number == 0 else repr(number)
    return value.hex() if isinstance(value, bytes) else str(value)


def _former_names(keys: Sequence[str], schema: Iterable[SchemaStep]) -> dict[str, list[str]]:
    """The names that each key column had before it was renamed, the newest first."""
    found: dict[str, list[str]] = {key: [] for key in keys}
    for step in reversed(list(schema)):
        if step.action == "rename_column":
            for key, names in found.items():
                if step.to == (names[-1] if names else key):
                    names.append(step.column)
    return found


def change_of(
    row: Row, mirror: Mirror, names: Mapping[str, list[str]], shard: tuple[str, str] | None
) -> Change:
    """A row of `changes` as the plain fold takes it."""
    kinds = {one.name: one.type for one in mirror.columns}
    return Change(
        op=Op(row["op"]),
        keys=mirror.keys,
        before=_image(row["before"], kinds, names, shard),
        after=_image(row["after"], kinds, names, shard),
        partial=bool(row["partial"]),
    )


def _image(
    text: str | None, kinds: Mapping[str, str], names: Mapping[str, list[str]], shard: tuple[str, str] | None
) -> Image | None:
    """An image whose key cells are spelt one way each; a cell that does not fit is NULL, as no key may be."""
    if text is None:
        return None
    image: Image = json.loads(text)
    if shard is not None:
        image[shard[0]] = shard[1]
    for key, former in names.items():
        known = next((name for name in (key, *former) if name in image), None)
        if known is not None:
            image[key] = image[known]
        if key in image:
            value = of_text(image[key], kinds[key], key=True)
            image[key] = None if value is None else identity(value)
    return image


def _keys(table: Table, change: Change) -> tuple[Key | None, Key | None]:
    """The key that a change gives its row, and the one that it had."""
    found: list[Key | None] = []
    for images in ((change.after, change.before), (change.before, change.after)):
        try:
            found.append(table.key(*images))
        except KeyCellError:
            found.append(None)
    return found[0], found[1]


_RAW = (("after", "before"), ("before", "after"))


def _texts(
    row: Row,
    images: Iterable[str],
    keys: Sequence[str],
    names: Mapping[str, list[str]],
    shard: tuple[str, str] | None,
) -> tuple[str, ...]:
    """A key's cells as the source spells them."""
    found: Image = dict([shard] if shard else [])
    for image in images:
        found = json.loads(row[image] or "{}") | found if found else json.loads(row[image] or "{}")
    return tuple(
        str(next((found[name] for name in (key, *names[key]) if found.get(name) is not None), ""))
        for key in keys
    )


def _settled(change: Change, new: Key | None, old: Key | None) -> Iterator[Key | None]:
    """The keys of which a change says everything, whatever they were before."""
    if change.op is Op.DELETE or new != old:
        yield old
    if change.op is not Op.DELETE and (change.op is not Op.UPDATE or not change.partial):
        yield new if new == old or not change.partial else None


def _placed(schema: Iterable[SchemaStep]) -> Iterator[SchemaStep]:
    for step in schema:
        yield step.decoded()


def _cells(values: Image, mirror: Mirror) -> Cells:
    return {
        one.name: of_text(values.get(one.name), one.type)
        for one in mirror.columns
        if one.name not in mirror.keys
    }
