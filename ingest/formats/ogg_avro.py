"""Oracle GoldenGate in framed Avro: its Kafka Connect Handler with Confluent's converter and a schema registry.

Documents: "Using the Kafka Connect Handler" and "Using the Pluggable Formatters" (Avro Row and Avro Operation), Oracle
GoldenGate for Big Data. What the members mean is as in GoldenGate's JSON, and is read there. Quirks:

- Operation-modelled records hold ``before`` and ``after``; row-modelled ones hold the columns next to the metadata.
- A record has every column of its table, so a column that the trail lacks is null. ``<column>_isMissing`` tells it from NULL
  where the formatter is set to write it. Without these marks a null of an image before says nothing.
- By default the image before has all columns that the source logs beside the changed ones (LOGALLSUPCOLS), and the image
  after only the key and what changed (COMPRESSUPDATES, which holds for images after). So without marks an update's null may
  mean unchanged even where the image before has a value. A column outside the key that is equal in both images is in no
  compressed image: there such a null is NULL. What all other nulls mean the option ``left_out`` has to say; large values
  that did not change are in no trail, so where both images are null nothing shows it.
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
        "Without `_isMissing` marks a column that a compressed update or delete leaves out is null, as one that became NULL is.",
        "With `left_out: unchanged` and without marks a column that became NULL keeps its value.",
        "Of rows a first column that is a text named `rowid`, `csn` or `xid` is taken for metadata unless `columns:` has it.",
        "Numbers are as GoldenGate maps them: a NUMBER may be a double, unless large ones are mapped to texts.",
    ),
    options={
        "timezone": "zone of op_ts and of times that name none, default UTC",
        "binary": "encoding of bytes in texts, default base64",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "left_out": "what a null without a mark means: `null` if the trail has whole rows, `unchanged` if updates are compressed",
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
    modelled_by_row = not _has_images(text, record)
    meta = _metadata(record, hints, message.topic) if modelled_by_row else record
    texts = {name: plain_text(cell) for name, cell in meta.items() if cell is not None and name in METADATA}
    op = ogg.operation(texts.get("op_type"))
    place = ogg.placed(texts, op, _keys(meta), hints.options)
    if op is Op.TRUNCATE:
        return (place,)
    if not modelled_by_row:
        return (
            _row(
                place,
                text,
                connect_avro.envelope_fields,
                record.get(BEFORE),
                record.get(AFTER),
                message,
                hints,
            ),
        )
    row = {name: cell for name, cell in record.items() if name not in meta}
    old, new = (row, None) if op is Op.DELETE else (None, row)
    return (_row(place, text, connect_avro.row_fields, old, new, message, hints),)


METADATA = ALWAYS | TEXTS
Fields = Callable[[str], tuple[connect.Field, ...]]


def _has_images(text: str, record: Mapping[str, Any]) -> bool:
    """True for an operation-modelled record; a row-modelled one may have columns of the same names, which are no records."""
    return (BEFORE in record or AFTER in record) and _describes_images(text)


@lru_cache(maxsize=1024)
def _describes_images(text: str) -> bool:
    return bool(connect_avro.envelope_fields(text))


def _keys(meta: Mapping[str, Any]) -> tuple[str, ...]:
    named: list[Any] = next((meta[name] for name in KEY_MEMBERS if isinstance(meta.get(name), list)), [])
    return tuple(map(str, named))


def _metadata(record: Mapping[str, Any], hints: Hints, topic: str) -> Mapping[str, Any]:
    """What a row-modelled record has before its columns."""
    return ogg.leading_metadata(
        record, plain_text(record["table"]), _keys(record), hints, topic, _is_metadata
    )


def _is_metadata(name: str, cell: Any) -> bool:
    if cell is None:
        return name in TEXTS or name in KEY_MEMBERS or name == "tokens"
    if name in KEY_MEMBERS:
        return isinstance(cell, list)
    return (name in TEXTS and isinstance(cell, str)) or (name == "tokens" and isinstance(cell, dict))


def _row(
    place: Change, text: str, fields: Fields, old: Any, new: Any, message: Message, hints: Hints
) -> Change:
    """The change of a row, from its cells before and after."""
    table = rows.named_table(place.table, hints, message.topic)
    declared = hints.tables(table)
    keys = declared.keys or place.keys
    plan = connect.plan(text, fields, declared.columns, meanings, _reading(hints.options))
    before = None if place.op is Op.INSERT else _image(old, plan, declared)
    after = None if place.op is Op.DELETE else _image(new, plan, declared)
    rows.require_images(before, after, place.op)
    is_marked, missing = _is_marked(plan.columns), []
    if is_marked:
        is_marked = any(name.endswith(MISSING) for image in (before, after) for name in image or ())
        ogg.drop_missing(before)
        missing = ogg.drop_missing(after)
    left_out = hints.options.left_out
    if not is_marked and left_out != "null":
        if place.op is Op.UPDATE and after is not None:
            if left_out is None:
                _require_sure(before or {}, after, frozenset({*keys, *place.keys} if place.keys else ()))
            else:
                missing = _drop_nulls(after)
        if before is not None:
            _drop_nulls(before)
    shown = after if after is not None else before or {}
    return replace(
        place,
        table=table,
        keys=keys,
        before=before,
        after=after,
        types=rows.present(plan.types, shown),
        schema=rows.present(plan.schema, shown),
        partial=bool(missing),
        note=rows.noted(place.note, rows.listed("columns that were not sent are absent", missing)),
    )


@lru_cache(maxsize=1024)
def _is_marked(columns: frozenset[str]) -> bool:
    """True if a schema has a mark next to a column."""
    return any(name.endswith(MISSING) for name in columns)


def _image(cells: Any, plan: ConnectPlan, declared: TableHints) -> Image | None:
    if cells is None:
        return None
    if not isinstance(cells, dict):
        raise Undecodable("bad-message", "an image is not a record of columns")
    ogg.separate(cells, declared.columns)
    return connect.plain_image(cells, plan)


def _require_sure(before: Image, after: Image, keys: frozenset[str]) -> None:
    """Refuse an update without marks that has a null of which nothing shows what it means.

    ``keys`` are the columns that a compressed image has though they did not change; none where the message does not say.
    """
    nulls = [name for name, cell in after.items() if cell is None]
    is_whole = bool(keys) and any(
        cell is not None and before.get(name) == cell for name, cell in after.items() if name not in keys
    )
    unsure = [name for name in nulls if not is_whole or before.get(name) is None]
    if unsure:
        raise Undecodable(
            "unsure-null",
            f"nothing shows whether the update's null in {unsure[0][:80]!r} means NULL or unchanged: write `left_out: null` under "
            "the options if the trail has whole rows, `left_out: unchanged` if its updates are compressed",
        )


def _drop_nulls(image: Image) -> list[str]:
    """Take what is null out of an image in which nothing tells NULL from a column that was not sent; the columns' names."""
    nulls = [name for name, cell in image.items() if cell is None]
    for name in nulls:
        del image[name]
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
