"""Rows read from a source database itself: the messages that the verb of the same name writes, one a line.

``{"ingest-snapshot": 1, "op": "read", "table": [database, schema, table], "keys": [...],
"types": {column: logical type}, "place": {...}, "rows": [[text or null, ...], ...]}``.  Quirks:

- ``rows`` holds many rows, each value its canonical text, in the order of ``types``.
- ``op`` is ``read``, ``delete`` (rows that the source does not have; key columns are enough), or ``end``: rows
  that stand before ``place`` and that the snapshot did not contain go.
- ``place`` is where the rows are placed among the stream's changes: ``phase``, ``sequence``, ``half`` and ``arrival``
  of an order, numbers as text, because they may be of any size.  It is known before the rows are read: what the
  stream says after it wins, what it said before it loses.
- ``time`` is the source's own clock as the rows were read.
- ``carried`` is of rows of a renamed table that come from ``changes`` and are landed again under its new name: their
  values are masked already.  ``first`` is then the number of the message's first row: equal rows of a table without a
  key are distinguished by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from ingest import values
from ingest.change import Change, ChangeColumns, Hints, Image, Message, Op, RowShape, TableId
from ingest.decoding.rows import TOMBSTONE, moment
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.order import Order
from ingest.values.remembered import remembered

ABOUT = About(
    title="rows read from the source database itself",
    document="the page on rows read from the source itself",
    operations=("read", "delete", "truncate"),
    order="place, which is known before the rows are read",
    strength="strong",
    keys="keys",
    types="types, in full",
    images="full",
    ddl="none",
    losses=(
        "A row that changed its key while it was read may be seen twice or not at all: its stream says which.",
    ),
)

MARK = "ingest-snapshot"
SUFFIX = ".ingest-snapshot.jsonl"
"""How a file of such messages ends, whatever the format of the source that it lies in."""
CARRIED = "carried over"
"""The note of rows of a renamed table that were landed again under its new name."""
MASKED = "carried over, masked before"
"""The same where values were masked when they were landed."""
ROWS, BYTES = 500, 1 << 20  # of a message, at most
OPS = {"read": Op.READ, "delete": Op.DELETE, "end": Op.TRUNCATE}
_MAX_DIGITS, _MAX_NUMBERS, _HALVES = 40, 20, 3
_rows = msgspec.json.Decoder(list[list[str | None]])
_json = msgspec.json.encode
_T = TypeVar("_T")


def holds(topic: str) -> bool:
    """True if what was read there is a snapshot's: a file, never a Kafka topic, whose names have no slash."""
    return "/" in topic and topic.endswith(SUFFIX)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The rows of one message, each at the message's place."""
    if message.value is None:
        return TOMBSTONE
    shared, images = _read(message.value, hints)
    if shared.op is Op.TRUNCATE:
        return (shared,)
    phase, sequence, half, arrival = shared.phase, shared.sequence, shared.half, shared.arrival
    return [
        Change(
            op=shared.op,
            table=shared.table,
            keys=shared.keys,
            before=image if shared.op is Op.DELETE else None,
            after=None if shared.op is Op.DELETE else image,
            types=shared.types,
            phase=phase,
            sequence=sequence,
            half=half,
            arrival=arrival,
            row=row,
            position=shared.position,
            event_time=shared.event_time,
            note=shared.note,
        )
        for row, image in enumerate(images, shared.row)
    ]


def parse_many(messages: Sequence[bytes | None], hints: Hints) -> ChangeColumns:
    """What `parse` reads of the first messages, up to one without rows that were read, or of another kind than the first.

    The rows of a large table are most of what it ever sends: none of them becomes an object.
    """
    shapes: dict[TableId, RowShape] = {}
    usual: list[Change] = []  # what the rows of each message share
    rows: list[list[Image]] = []
    for value in messages:
        try:
            shared, images = _read(value or b"", hints)
        except Exception:  # `parse` says what is wrong with it
            break
        shape = RowShape(shared.table, shared.keys, tuple(shared.types), shared.types, shared.note)
        is_usual = (
            shared.note != MASKED
            and shared.op is Op.READ
            and shared.keys
            and shared.types.keys() >= set(shared.keys)
        )
        is_alike = not usual or (usual[0].phase, usual[0].half) == (shared.phase, shared.half)
        if not is_usual or not is_alike or shapes.setdefault(shared.table, shape) != shape:
            break
        usual.append(shared)
        rows.append(images)
    return _columns(usual, rows, shapes)


def _columns(
    usual: Sequence[Change], rows: Sequence[list[Image]], shapes: Mapping[TableId, RowShape]
) -> ChangeColumns:
    """The rows of usual messages; ``usual`` is what those of each message share."""
    counts = list(map(len, rows))

    def of_each(values: Iterable[_T]) -> list[_T]:
        """A message's value for each of its rows."""
        return list(chain.from_iterable(map(repeat, values, counts)))

    count = sum(counts)
    nothing = [None] * count
    numbers = {table: number for number, table in enumerate(shapes)}
    first = usual[0] if usual else Change(op=Op.READ)
    return ChangeColumns(
        shapes=list(shapes.values()),
        at=of_each(range(len(usual))),
        shape=of_each(numbers[shared.table] for shared in usual),
        op=[Op.READ] * count,
        before=nothing,
        after=[_json(image) for images in rows for image in images],
        moved=[False] * count,
        row=[
            row
            for shared, count in zip(usual, counts, strict=True)
            for row in range(shared.row, shared.row + count)
        ],
        sequence=of_each(shared.sequence for shared in usual),
        position=of_each(shared.position for shared in usual),
        event_time=of_each(shared.event_time for shared in usual),
        transaction=nothing,
        phase=first.phase,
        half=first.half,
        arrivals={at: shared.arrival for at, shared in enumerate(usual) if shared.arrival},
    )


def _read(value: bytes, hints: Hints) -> tuple[Change, list[Image]]:
    """What all rows of a message share, and the rows; an end mark has none."""
    envelope, _note = values.opened(value)
    if bytes(envelope.get(MARK, b"")) != b"1":
        raise Undecodable("not-this-format", f"{MARK} is not 1")
    op = OPS.get(_text(envelope, "op"))
    if op is None:
        raise Undecodable("unknown-operation", "op is not read, delete or end")
    table, keys = _table(envelope), _texts(envelope, "keys")
    place = _place(envelope, op, table, hints.tables(table).keys or keys)
    if op is Op.TRUNCATE:
        return place, []
    types = _types(_bytes(envelope, "types"))
    return msgspec.structs.replace(place, types=types), _images(_bytes(envelope, "rows"), tuple(types))


def recognise(sample: bytes) -> str | None:
    """The member that gives the format its name."""
    return MARK if bytes(values.opened(sample)[0].get(MARK, b"")) == b"1" else None


def place_of(order: Order) -> dict[str, Any]:
    """A place as messages say it."""
    return {
        "phase": str(order.phase),
        "sequence": list(map(str, order.sequence)),
        "half": str(order.half),
        "arrival": list(map(str, order.arrival)),
    }


def pages(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Rows, as many together as a message takes."""
    held, size = list[bytes](), 0
    for row in rows:
        held.append(row)
        size += len(row)
        if len(held) >= ROWS or size >= BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _place(envelope: Mapping[str, Raw], op: Op, table: TableId, keys: tuple[str, ...]) -> Change:
    place = values.members(_bytes(envelope, "place"))
    phase, half = _number(_text(place, "phase")), _number(_text(place, "half"))
    if phase > 1 or half > _HALVES:
        raise Undecodable("bad-place", "phase is 0 or 1, half is 0 to 3")
    time = envelope.get("time")
    return Change(
        op=op,
        table=table,
        keys=keys if op is not Op.TRUNCATE else (),
        phase=phase,
        sequence=tuple(map(_number, _texts(place, "sequence"))),
        half=half,
        arrival=tuple(map(_number, _texts(place, "arrival"))),
        position=_text(envelope, "name") if "name" in envelope else None,
        event_time=None if values.is_null(time) else moment(_text(envelope, "time"), "UTC"),
        row=_number(_text(envelope, "first")) if "first" in envelope else 0,
        note=_note(envelope),
    )


def _note(envelope: Mapping[str, Raw]) -> str | None:
    if "carried" not in envelope:
        return None
    return MASKED if values.text(envelope["carried"]) else CARRIED


def masked_with(value: bytes) -> str:
    """By which masks a message's values were masked when it was landed (`ingest.config.masks.masked_with`); empty if by
    none.
    """
    return values.text(values.members(value).get("carried", Raw(b"null"))) or ""


def _table(envelope: Mapping[str, Raw]) -> TableId:
    parts = [values.text(part) for part in values.items(_bytes(envelope, "table"))]
    if len(parts) != 3 or not parts[2]:
        raise Undecodable("no-table", "table is not [database, schema, table]")
    return TableId(parts[0], parts[1], parts[2])


@remembered(1024)
def _types(raw: bytes) -> Mapping[str, str]:
    image = values.image(raw)
    if not image or not all(image.values()):
        raise Undecodable("no-image", "types names no column, or one without a type")
    return {column: logical for column, logical in image.items() if logical}


def _images(raw: bytes, columns: tuple[str, ...]) -> list[Image]:
    try:
        rows = _rows.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable("bad-json", f"rows: {error}") from None
    wanted = len(columns)
    if not rows or any(len(row) != wanted for row in rows):
        raise Undecodable(
            "no-image", f"a row does not have one value for each column that types names (there are {wanted})"
        )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _bytes(envelope: Mapping[str, Raw], name: str) -> bytes:
    raw = envelope.get(name)
    if raw is None:
        raise Undecodable("missing-member", f"{name} is missing")
    return bytes(raw)


def _text(envelope: Mapping[str, Raw], name: str) -> str:
    text = values.text(_bytes(envelope, name))
    if text is None:
        raise Undecodable("missing-member", f"{name} is null")
    return text


def _texts(envelope: Mapping[str, Raw], name: str) -> tuple[str, ...]:
    texts = tuple(values.text(raw) for raw in values.items(_bytes(envelope, name)))
    if not all(texts):
        raise Undecodable("missing-member", f"{name} holds an empty text")
    return tuple(text for text in texts if text)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise Undecodable("bad-place", f"{text[:_MAX_DIGITS]!r} is not a number of a place")
    return int(text)
