"""OceanBase OMS, Default serialization ("Data formats", section "Default JSON message format").

One object per row change: ``prevStruct`` and ``postStruct`` are the images, ``allMetaData`` names the
table, the key and the place, ``recordType`` the operation. Quirks:

- ``storeDataSequence`` is a second followed by a counter of at most five digits, maybe unpadded, so
  it is split and never compared as one number. Full-load rows (``ROW``) carry none, DDL carries null.
- ``db`` is ``tenant.database`` for OceanBase itself, and bare for other sources and in DDL.
- Key names are joined by U+0001. Their values are joined so too, and a text may hold U+0001 itself,
  so the values are taken from the images.
- Values are bare numbers or text; types are not sent (the extended serialization sends them in
  ``__light_type`` inside an image). TIMESTAMP is ``seconds.fraction``, BIT and bytes are base64.
  Before OMS 3.3.0 TIMESTAMP is whole seconds, BIT a number, and other times have a ``T``.
- An unchanged large object is NULL in both images of an update.

The other OMS dialects take the reading of rows from here, and `ingest.decoding.rows` that of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw
from msgspec.json import encode

from ingest import types, values
from ingest.change import ROW_OPS, Change, Hints, Image, Message, Op, Options, TableId
from ingest.ddl import dialect_of
from ingest.decoding import rows
from ingest.errors import Undecodable
from ingest.formats import About, SharedEvidence
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

ABOUT = About(
    title="OceanBase OMS, Default JSON",
    document="OceanBase Migration Service, Data formats: Default JSON message format",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat"),
    order="storeDataSequence: the second, then its counter; DDL after the row that came before it",
    strength="strong",
    keys="allMetaData.record_primary_key",
    types="none in the message: only `columns:` of the pipeline file",
    images="full (an unchanged large object is left out)",
    ddl="postStruct.ddl, its kind in allMetaData.ddlType",
    losses=(
        "FLOAT comes with 7 significant digits and DOUBLE with 16, so the last bits of a double may be gone.",
        "A large object that is NULL before and after an update cannot be distinguished from an unchanged one.",
        "The zone name of a DATETIME is dropped; its date and time stay as they were sent.",
        "DDL has no sequence: its place among the rows is known only in one partition or file.",
    ),
    options={
        "timezone": "zone of TIMESTAMP texts that name none, default UTC",
        "binary": "encoding of bytes, default base64",
        "time_units": "unit of whole-number times, default seconds",
        "order_by": "sequence (default), arrival or event_time",
    },
    event_marks=('"ddl"',),
    bytes_as="base64",
    before=ImagesBefore(hides_large=True, renumbers=True),
)

OPS = {
    "INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE, "ROW": Op.READ, "HEARTBEAT": Op.HEARTBEAT,
    "DDL": Op.DDL,
}  # fmt: skip
OCEANBASE = frozenset({"OCEANBASE", "OB_IN_ORACLE_MODE", "OB_MYSQL", "OB_ORACLE"})
ORACLE_MODE = frozenset({"ORACLE", "OB_ORACLE", "OB_IN_ORACLE_MODE"})
AFTER_EVERY_COUNTER = 10**9
LIGHT_TYPE = "__light_type"
SECONDS = 1  # ticks a second of whole-number times, before OMS 3.3.0
KEY_SEPARATOR = "\x01"


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one message; a TRUNCATE statement makes two, the truncation and the statement."""
    envelope, note = values.opened(message.sent)
    if "allMetaData" not in envelope or "recordType" not in envelope:
        raise Undecodable("not-this-format", "allMetaData and recordType are missing")
    meta = values.bare_image(envelope["allMetaData"])
    op = rows.operation(OPS, values.text(envelope["recordType"]) or "", "recordType")
    place = _place(meta, op, note)
    if op is Op.HEARTBEAT:
        return (place,)
    if op is Op.DDL:
        sql = values.image_of(envelope.get("postStruct")).get("ddl")
        kind = meta.get("ddlType")
        return rows.statement(place, sql, kind, truncates=kind == "TRUNCATE_TABLE")
    return (_row(place, meta, envelope, hints, message.topic),)


def recognise(sample: bytes) -> str | None:
    """``allMetaData`` and ``recordType``, and no column types in an image."""
    if not looks_like(sample) or b'"__light_type"' in sample:
        return None
    if not _has_row(sample):
        return SharedEvidence("perhaps allMetaData and recordType: a message without a row")
    return "allMetaData and recordType, no __light_type"


def _has_row(sample: bytes) -> bool:
    """True for a message of a row, in which the extended serializer would write its types."""
    members, _note = values.opened(sample)
    return OPS.get(values.member_text(members, "recordType") or "") in ROW_OPS


def looks_like(sample: bytes) -> bool:
    """True for an object with the two members that every OMS Default message has."""
    members, _note = values.opened(sample)
    return "recordType" in members and bool(values.members(members.get("allMetaData", b"")))


# --- place and table ----------------------------------------------------------------------------


def _place(meta: Image, op: Op, note: str | None) -> Change:
    """Everything of a change but its row: table, key names, order, clock and transaction."""
    database = meta.get("db")
    if database and meta.get("dbType") in OCEANBASE:
        database = database.partition(".")[2] or database
    second = values.integer(meta.get("timestamp"))
    position = meta.get("storeDataSequence")
    sequence, event = split_sequence(position, meta.get("timestamp")), False
    if not position and op is not Op.READ and second is not None:
        sequence, event = (second, AFTER_EVERY_COUNTER if op is Op.DDL else 0), op is Op.DDL
    return Change(
        op=op,
        table=TableId.named(database, None, meta.get("table_name")),
        keys=key_names(meta.get("record_primary_key")),
        phase=0 if op is Op.READ and not sequence else 1,
        sequence=sequence,
        position=position,
        event_time=values.micros_of(second, 1),
        transaction=meta.get("transId") or meta.get("uniqueId"),
        note=rows.noted(note, rows.unreadable(position, sequence)),
        dialect=dialect_of(meta.get("dbType")),
        second_only=event,
    )


def split_sequence(position: str | None, second: str | None) -> tuple[int, ...]:
    """Second and counter of an OMS position, whether the counter is padded or not; nothing unless it is digits.

    ``second`` is the message's own, which usually is the position's beginning.
    """
    if position is None or not position.isdecimal() or not position.isascii() or len(position) > 40:
        return ()
    width = len(second) if second and position.startswith(second) else 10
    return int(position[:width]), int(position[width:] or 0)


def key_names(joined: str | None) -> tuple[str, ...]:
    """Key columns from names joined by U+0001."""
    return tuple(joined.split(KEY_SEPARATOR)) if joined else ()


# --- rows ---------------------------------------------------------------------------------------


def _row(place: Change, meta: Image, envelope: Mapping[str, Raw], hints: Hints, topic: str) -> Change:
    old, new = rows.images_of(place.op, envelope.get("prevStruct"), envelope.get("postStruct"))
    (before, old_light), (after, light) = _image(old), _image(new)
    rows.require_images(before, after, place.op)
    table = rows.named_table(place.table, hints, topic)
    declared = hints.tables(table)
    oracle_mode = meta.get("dbType") in ORACLE_MODE
    plan = plan_of(light or old_light or b"", oracle_mode, tuple(declared.columns.items()), hints.options)
    kept = rows.convert_both(before, after, plan, old, new)
    keys, hide = declared.keys or place.keys, place.op is Op.UPDATE
    return rows.finish(place, table, keys, before, after, plan, kept, nulls_may_hide=hide)


def _image(raw: Raw | None) -> tuple[Image | None, bytes | None]:
    """An image, and the column types that the extended serialization hides in it."""
    if raw is None or values.is_null(raw):
        return None, None
    data = bytes(raw)
    if b'"__light_type"' not in data:
        return values.bare_image(data), None
    parts = values.members(data)
    light = parts.pop(LIGHT_TYPE, None)
    return values.bare_image(encode(parts)), None if light is None else bytes(light)


# --- types --------------------------------------------------------------------------------------


def plan_of(light: bytes, oracle_mode: bool, declared: rows.Declared, options: Options) -> rows.RowPlan:
    """The plan for rows with these types; the common case of none at all costs nothing."""
    if not light and not declared:
        return rows.NO_PLAN
    return _plan(light, oracle_mode, declared, options.timezone, options.binary, options.time_units)


@remembered(1024)
def _plan(
    light: bytes, oracle_mode: bool, declared: rows.Declared, zone: str, binary: str | None, units: str | None
) -> rows.RowPlan:
    listed = values.members(light) if light not in (b"", b"null") else {}
    names = {column: values.bare_image(entry).get("schemaType") or "" for column, entry in listed.items()}
    sent = {column: types.with_zeros(types.oms(name, oracle_mode), name) for column, name in names.items()}
    large = {column for column, name in names.items() if rows.large(name)}
    return rows.plan(sent, declared, zone, binary, units, SECONDS, large=large)
