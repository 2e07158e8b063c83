"""Oracle GoldenGate in framed Avro: its Kafka Connect Handler with Confluent's converter and a schema registry.

Documents: "Using the Kafka Connect Handler" and "Using the Pluggable Formatters" (Avro Row and Avro Operation), Oracle
GoldenGate for Big Data. What the members mean is as in GoldenGate's JSON, and is read there. Quirks:

- Operation-modelled records hold ``before`` and ``after``; row-modelled ones hold the columns next to the metadata.
- A record has every column of its table, so a column that the trail lacks is null. ``<column>_isMissing`` tells it from NULL
  where the formatter is set to write it. Without these marks an update's null means NULL where the image before has a value,
  and is unchanged where that image has other values and none of this column; of all other nulls the option ``left_out``
  has to say what they mean.
- Types are those of Connect's converter; a date and time is text unless the handler is set to write logical types.
- The Kafka Handler writes the same records without a frame, and their schemas to another topic: these are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as replaced
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from ingest.change import Change, Hints, Image, Message, Op, Options, TableHints
from ingest.decoding import connect, connect_avro, rows
from ingest.decoding.connect import ConnectPlan, meanings
from ingest.decoding.declared_values import Reading, plain_text
from ingest.errors import Undecodable
from ingest.formats import About, ogg
from ingest.formats.ogg import AFTER, ALWAYS, BEFORE, KEY_MEMBERS, MISSING, TEXTS

ABOUT: About = replaced(
    ogg.ABOUT,
    title="Oracle GoldenGate Avro with a schema registry",
    document="Oracle GoldenGate for Big Data, Using the Kafka Connect Handler; Using the Pluggable Formatters: Avro",
    keys="primary_keys, if they are included",
    types="the registry's schema; dates and times are text unless `columns:` declares them",
    images="full, or partial (compressed updates), which marks or the option `left_out` say",
    losses=(
        "DDL is not sent.",
        "op_ts names no zone: with a wrong `timezone` event times are off by hours.",
        "Without `_isMissing` marks a column that a compressed update leaves out is null, as one that became NULL is.",
        "Numbers are as GoldenGate maps them: a NUMBER may be a double, unless large ones are mapped to texts.",
    ),
    options={
        "timezone": "zone of op_ts and of times that name none, default UTC",
        "binary": "encoding of bytes in texts, default base64",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "left_out": "what a null of an update means: `null` if the trail has whole rows, `unchanged` if updates are compressed",
        "order_by": "sequence (default), arrival or event_time",
    },
    framing="length",
    binary=True,
    by_registry=True,
    leaves_out_nulls="",
)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one framed datum."""
    if message.value is None:
        return rows.TOMBSTONE
    if message.value[:1] != b"\0" and (kind := _unframed(message.value)):
        raise Undecodable("no-frame", f"{kind}: {ADVICE}")
    text, record = connect_avro.unframed(message.value, hints)
    if not isinstance(record, dict) or not record.keys() >= ALWAYS:
        raise Undecodable("not-this-format", "the datum is not a record with table and op_type")
    named: list[Any] = next((record[name] for name in KEY_MEMBERS if isinstance(record.get(name), list)), [])
    texts = {name: plain_text(record[name]) for name in METADATA if record.get(name) is not None}
    op = ogg.operation(texts.get("op_type"))
    place = ogg.placed(texts, op, tuple(map(str, named)), hints.options)
    return (place,) if op is Op.TRUNCATE else (_row(place, text, record, message, hints),)


METADATA = ALWAYS | TEXTS


def _row(place: Change, text: str, record: Mapping[str, Any], message: Message, hints: Hints) -> Change:
    table = rows.named_table(place.table, hints, message.topic)
    declared = hints.tables(table)
    keys = declared.keys or place.keys
    if BEFORE in record or AFTER in record:
        fields: Fields = connect_avro.envelope_fields
        old, new = record.get(BEFORE), record.get(AFTER)
    else:  # a row-modelled record has one image, next to its metadata
        fields = connect_avro.row_fields
        columns = {*declared.columns, *keys}
        row = {name: cell for name, cell in record.items() if name in columns or name not in BESIDE}
        old, new = (row, None) if place.op is Op.DELETE else (None, row)
    plan = connect.plan(text, fields, declared.columns, meanings, _reading(hints.options))
    before = None if place.op is Op.INSERT else _image(old, plan, declared)
    after = None if place.op is Op.DELETE else _image(new, plan, declared)
    rows.require_images(before, after, place.op)
    is_marked = any(name.endswith(MISSING) for name in after or ())
    ogg.drop_missing(before)
    missing = ogg.drop_missing(after)
    if place.op is Op.UPDATE and after is not None and not is_marked:
        missing = _unsent(before or {}, after, keys, hints.options.left_out)
    shown = after if after is not None else before or {}
    return replace(
        place,
        table=table,
        keys=keys,
        before=before,
        after=after,
        types=rows.present(plan.types, shown),
        schema={name: said for name, said in plan.schema.items() if name in shown},
        partial=bool(missing),
        note=rows.noted(place.note, rows.listed("columns that were not sent are absent", missing)),
    )


Fields = Callable[[str], tuple[connect.Field, ...]]
BESIDE = METADATA | {*KEY_MEMBERS, "tokens"}
"""What a row-modelled record has next to its columns."""


def _image(cells: Any, plan: ConnectPlan, declared: TableHints) -> Image | None:
    if cells is None:
        return None
    if not isinstance(cells, dict):
        raise Undecodable("bad-message", "an image is not a record of columns")
    ogg.separate(cells, declared.columns)
    return connect.plain_image(cells, plan)


def _unsent(before: Image, after: Image, keys: tuple[str, ...], left_out: str | None) -> list[str]:
    """Take the columns of an update that were not sent out of it, where no mark says which of its nulls are NULL."""
    nulls = [name for name, cell in after.items() if cell is None and before.get(name) is None]
    if left_out == "null" or not nulls:
        return []
    has_values = any(cell is not None for name, cell in before.items() if name not in keys)
    if left_out is None and not has_values:
        raise Undecodable(
            "unsure-null",
            f"nothing shows whether the update's null in {nulls[0][:80]!r} means NULL or unchanged: write `left_out: null` under "
            "the options if the trail has whole rows, `left_out: unchanged` if its updates are compressed",
        )
    for name in nulls:
        del after[name]
        before.pop(name, None)
    return nulls


@lru_cache(maxsize=256)
def _reading_of(binary: str | None, units: str | None, timezone: str) -> Reading:
    unit = units or "millis"
    return Reading(binary or "base64", "big", unit, unit, timezone)


def _reading(options: Options) -> Reading:
    return _reading_of(options.binary, options.time_units, options.timezone)


# --- without a frame ----------------------------------------------------------------------------

ADVICE = (
    "its schema is in another topic, which is not read: send through the Kafka Connect Handler with Confluent's Avro converter, "
    "or set gg.handler.NAME.format=json and write `format: ogg`"
)
_RECORD = re.compile(
    rb"(?:\x02)?[\x02-\x7e][\w$#.\x80-\xff]{1,62}(?:\x02)?\x02[IUDT](?:\x02)?.\d{4}-\d\d-\d\d", re.DOTALL
)
"""The table's name, ``op_type`` and ``op_ts``, with which a record begins; each may be a choice of a union."""
_WRAPPER = re.compile(
    rb"[\x02-\x7e][\w$#]{1,40}\.[\w$#.]{1,62}[\x00-\xff]{1,10}?.{1,3}(?:\x02)?[\x02-\x7e][\w$#.]{1,62}\x02[IUDT]",
    re.DOTALL,
)


def _unframed(value: bytes) -> str:
    """What a value without a frame is, if it is a record of GoldenGate; else empty."""
    if _RECORD.match(value):
        return "a record of the Kafka Handler without a frame"
    if _WRAPPER.match(value):
        return "a record in the Kafka Handler's generic wrapper"
    return ""


def recognise(sample: bytes) -> str | None:
    """A frame, and the beginning of a record; without a frame the same, which is refused with what to do."""
    if sample[:1] == b"\0" and len(sample) > 5 and _RECORD.match(sample, 5):
        return f"a zero byte, schema id {int.from_bytes(sample[1:5], 'big')}, a table's name and op_type"
    kind = _unframed(sample)
    return f"{kind}, which is not read" if kind else None
