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
- The Kafka Handler writes the same records without a frame, and their schemas to files and another topic. In its generic
  wrapper (table, fingerprint of the schema, record) they are read by the files, of which ``registry`` is the folder; without it
  nothing shows by which version of its table's schema a record was written, so these are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as replaced
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from ingest.change import Change, Hints, Image, Message, Op, Options, TableHints
from ingest.decoding import avro_reader, connect, connect_avro, rows, schema_folder
from ingest.decoding.connect import meanings
from ingest.decoding.declared_values import Reading, plain_text
from ingest.errors import Undecodable
from ingest.formats import About, ogg
from ingest.formats.ogg import AFTER, ALWAYS, BEFORE, KEY_MEMBERS, MEMBERS, MISSING, TEXTS

ABOUT: About = replaced(
    ogg.ABOUT,
    by_keys=(Op.UPDATE,),
    title="Oracle GoldenGate Avro with a schema registry, or with its schemas' files",
    document="Oracle GoldenGate for Big Data, Using the Kafka Connect Handler; Using the Kafka Handler; Using the Pluggable Formatters: Avro",
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
    schema_files=True,
    to_decide="If the records have no `_isMissing` marks, write `left_out: null` (the trail has whole rows) or `left_out: unchanged` "
    "(its updates are compressed) under the options: else updates with a null are rejects.",
    leaves_out_nulls="",
)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one framed datum."""
    named = _named(message.sent, hints)
    text, record = connect_avro.read(named, hints)
    if not isinstance(record, dict) or not record.keys() >= ALWAYS:
        raise Undecodable(
            "not-this-format",
            f"the registry's schema {named.schema} is of no record of GoldenGate, which has table and op_type",
        )
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
        return name in MEMBERS
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
    old, new = (_cells(cells, declared) for cells in rows.images_of(place.op, old, new))
    before, after = connect.plain_images(old, new, plan)
    rows.require_images(before, after, place.op)
    missing: list[str] = []
    images = (before or {}, after or {})
    if _has_marks(plan.columns) and any(name.endswith(MISSING) for image in images for name in image):
        ogg.drop_missing(before)
        missing = ogg.drop_missing(after)
    elif hints.options.left_out != "null":
        certain = frozenset({*keys, *place.keys} if place.keys else ())
        missing = _drop_unsent(place.op, before, after, certain, hints.options.left_out)
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
def _has_marks(columns: frozenset[str]) -> bool:
    """True if a schema has a mark next to a column."""
    return any(name.endswith(MISSING) for name in columns)


def _cells(cells: Any, declared: TableHints) -> dict[str, Any] | None:
    """An image's cells by their columns' names; None where there is none."""
    if cells is None:
        return None
    if not isinstance(cells, dict):
        raise Undecodable("bad-message", "an image is not a record of columns")
    ogg.separate(cells, declared.columns)
    return cells


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


def _drop_unsent(
    op: Op, before: Image | None, after: Image | None, keys: frozenset[str], left_out: str | None
) -> list[str]:
    """Take out of images without marks what is null and was not sent; the names of those of an update's image after."""
    missing: list[str] = []
    if op is Op.UPDATE and left_out is None:
        _require_sure(before or {}, after or {}, keys)
    elif op is Op.UPDATE:
        missing = _drop_nulls(after)
    _drop_nulls(before)
    return missing


def _drop_nulls(image: Image | None) -> list[str]:
    """Take what is null out of an image in which nothing tells NULL from a column that was not sent; the columns' names."""
    image = image or {}
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
    "nothing shows its schema: set gg.handler.NAME.format.wrapMessageInGenericAvroMessage=true and write `registry:` with the "
    "folder of its schemas (*.avsc) into the source, or set gg.handler.NAME.format=json (in place of avro_row, avro_op, avro_row_ocf or avro_op_ocf) and write `format: ogg`"
)
FILES = "`registry:` with the folder of GoldenGate's schemas (*.avsc)"
_OPERATION = re.compile(rb"(?:\x02)?\x02[IUDT](?:\x02)?.\d{4}-\d\d-\d\d", re.DOTALL)
"""``op_type`` and ``op_ts``, which follow the table's name in a record; each may be a choice of a union."""
_LONGEST = 1_024  # bytes of a table's name: those of its database, schema and table have 128 each in Oracle


def _named(value: bytes, hints: Hints) -> connect_avro.NamedDatum:
    """A record and the number of its schema, out of a frame or of the generic wrapper."""
    if _is_record(value, 0):
        raise Undecodable("no-frame", f"a record of the Kafka Handler without a frame: {ADVICE}")
    if value[:1] == b"\0":
        return connect_avro.frame(value)
    try:
        named = schema_folder.unwrapped(value)
    except Undecodable:
        if not _is_wrapped(value):
            return connect_avro.frame(value)
        raise
    if hints.schema is None:
        raise Undecodable(
            "unknown-schema", f"a record in GoldenGate's generic wrapper: write {FILES} into the source"
        )
    try:
        hints.schema(named.schema)
    except KeyError:
        raise Undecodable(
            "unknown-schema",
            f"no schema of the source's registry has the fingerprint {named.schema}, which the generic wrapper names: write "
            f"{FILES} into the source; hashes (genericWrapperUseFingerprint=false) are not read",
        ) from None
    return named


def recognise(sample: bytes) -> str | None:
    """A frame or the generic wrapper, and the beginning of a record; a record alone is refused with what to do."""
    if sample[:1] == b"\0" and _is_record(sample, 5):
        return f"a zero byte, schema id {int.from_bytes(sample[1:5], 'big')}, a table's name and op_type"
    if _is_record(sample, 0):
        return "a record of the Kafka Handler without a frame, which is not read"
    return "a table's name, a schema's fingerprint and a record of the table" if _is_wrapped(sample) else None


def _is_wrapped(sample: bytes) -> bool:
    """True for the generic wrapper around the beginning of a record."""
    end = _after_name(sample, 0)
    try:
        return end is not None and _is_record(
            sample, avro_reader.long(sample, avro_reader.long(sample, end)[1])[1]
        )
    except (IndexError, Undecodable):
        return False


def _is_record(sample: bytes, place: int) -> bool:
    """True if a record begins at a place: the table's name, which may be a choice of a union, and the operation."""
    starts = (place, place + 1) if sample[place : place + 1] == b"\x02" else (place,)
    ends = [_after_name(sample, start) for start in starts]
    return any(end is not None and _OPERATION.match(sample, end) for end in ends)


def _after_name(sample: bytes, place: int) -> int | None:
    """The place after the name of a table; None if there is none."""
    try:
        size, place = avro_reader.long(sample, place)
        name = sample[place : place + size].decode() if 0 < size <= _LONGEST else ""
    except (IndexError, UnicodeDecodeError, Undecodable):
        return None
    return place + size if name.isprintable() and name else None
