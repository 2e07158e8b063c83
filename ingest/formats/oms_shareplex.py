"""OceanBase OMS, SharePlex serialization ("Data formats", section "SharePlex JSON message format").

``meta`` names operation, table and place, ``data`` holds the row of an insert or delete and the changed
columns of an update, ``key`` the row before an update, ``sql.ddl`` a statement. Quirks:

- The row after an update is ``key`` overlaid by ``data``; whether ``key`` is the whole row or only its
  key columns the message does not say (option ``key_is_full``; OMS sends the whole row).
- ``scn`` is a second followed by a counter, as in the Default serialization, or the text ``null``;
  ``seq`` orders inside it, and 0 means none.
- ``time`` names no zone (option ``timezone``): it places a statement only where no row came before it.
- No key names, no types. ``rowid`` is the table and the key values joined by U+0001.
- An unchanged large object is NULL in ``key``, so it is left out of the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from ingest import values
from ingest.change import NO_TABLE, Change, Hints, Image, Message, Op, Options, TableId
from ingest.decoding import rows
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.formats.oms_default import AFTER_EVERY_COUNTER, SECONDS, split_sequence
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

ABOUT = About(
    title="OceanBase OMS, SharePlex JSON",
    document="OceanBase Migration Service, Data formats: SharePlex JSON message format",
    operations=("insert", "update", "delete", "truncate", "ddl"),
    order="meta.scn: the second, then its counter, then meta.seq; DDL after the row before it",
    numbers_parts=True,
    strength="strong",
    keys="none in the message: `keys:` of the pipeline file",
    types="none in the message: only `columns:` of the pipeline file",
    images="full (an unchanged large object is left out)",
    ddl="sql.ddl",
    losses=(
        "Key columns are not named, so `keys:` must name them.",
        "meta.time names no zone: with a wrong `timezone` the event times of DDL are off by hours.",
        "Full-load rows cannot be distinguished from inserts.",
        "A large object that is NULL before and after an update cannot be distinguished from an unchanged one.",
    ),
    options={
        "timezone": "zone of meta.time and of TIMESTAMP texts that name none, default UTC",
        "key_is_full": "true (default): key holds the whole row before an update; false: only key columns",
        "binary": "encoding of bytes, default base64",
        "time_units": "unit of whole-number times, default seconds",
        "order_by": "sequence (default), arrival or event_time",
        "database_kind": "oracle for a tenant of Oracle, whose statements are none of MySQL's",
    },
    event_marks=('"ddl"', '"truncate"', '"drop column"'),
    bytes_as="base64",
    before=ImagesBefore(hides_large=True, renumbers=True),
)

OPS = {
    "ins": Op.INSERT, "insert": Op.INSERT, "upd": Op.UPDATE, "update": Op.UPDATE, "update after": Op.UPDATE,
    "update before": Op.DELETE, "del": Op.DELETE, "delete": Op.DELETE, "truncate": Op.TRUNCATE, "ddl": Op.DDL,
    "drop column": Op.DDL, "commit": Op.COMMIT,
}  # fmt: skip

Order = Callable[[Image, Op, Options], tuple[int, ...]]


class SharePlexDialect(NamedTuple):
    """What distinguishes one writer of SharePlex JSON from another.

    Args:
        order: the sequence from ``meta``.
        nulls_may_hide: True where an unchanged large object is sent as NULL.
        utc: True where ``meta.time`` is UTC whatever the options say.
        sql: the SQL dialect of statements, unless the options name the database.
        whole: ticks a second of whole-number times, None where the document does not say.
    """

    order: Order
    nulls_may_hide: bool
    utc: bool
    sql: str
    whole: int | None


def recognise(sample: bytes) -> str | None:
    """``meta.op``, and a rowid that starts with the table's own name."""
    meta = meta_of(sample)
    if meta is None or not (meta.get("rowid") or "").startswith(f"{meta.get('table')}-"):
        return None
    return "meta.op, and meta.rowid is the table's name and a key"


def meta_of(sample: bytes) -> Image | None:
    """``meta`` of a sample that is SharePlex JSON, else None."""
    members, _note = values.opened(sample)
    meta = values.bare_image(members.get("meta", b""))
    parts = members.keys() & {"data", "key", "sql"}
    return meta if parts and (meta.get("op") or "").lower() in OPS else None


# --- any writer ---------------------------------------------------------------------------------


def read(message: Message, hints: Hints, dialect: SharePlexDialect) -> tuple[Change, ...]:
    """The changes of one message as a dialect writes them."""
    envelope, note = values.opened(message.sent)
    meta = values.optional_image(envelope.get("meta"))
    kind = (meta or {}).get("op")
    if meta is None or kind is None or not envelope.keys() & {"data", "key", "sql"}:
        raise Undecodable("not-this-format", "meta.op, or every one of data, key and sql, is missing")
    sent, kind = kind, kind.lower()
    op = rows.operation(OPS, kind, "meta.op")
    place = _place(meta, op, kind, dialect, hints.options, note)
    if kind == "update before" and not hints.options.key_is_full:
        # deleting the row would lose the columns that the second half does not carry
        return (replace(place, op=Op.CONTROL),)
    if op is Op.COMMIT:
        return (place,)
    if op in (Op.DDL, Op.TRUNCATE):
        sql = values.image_of(envelope.get("sql")).get("ddl")
        return rows.statement(place, sql, sent if kind != "ddl" else None, truncates=op is Op.TRUNCATE)
    return (_row(place, envelope, kind, dialect, hints, message.topic),)


def _place(
    meta: Image, op: Op, kind: str, dialect: SharePlexDialect, options: Options, note: str | None
) -> Change:
    position = known(meta.get("scn"))
    sequence = dialect.order(meta, op, options)
    note = rows.noted(note, rows.unreadable(position, sequence))
    zone = "UTC" if dialect.utc else options.timezone
    event = op in (Op.DDL, Op.TRUNCATE) and sequence[1:] == (AFTER_EVERY_COUNTER,)
    return Change(
        op=op,
        table=table_named(meta.get("table")),
        sequence=sequence,
        half=1 if kind == "update after" else 0,
        position=position,
        event_time=rows.moment(meta.get("time"), zone),
        transaction=known(meta.get("trans")),
        note=rows.noted("update-before", note) if kind == "update before" else note,
        dialect=options.database_kind or dialect.sql,
        second_only=event,
    )


def known(value: str | None) -> str | None:
    """A member's text; the word ``null`` and an empty text are none."""
    return value if value and value != "null" else None


@remembered(4096)
def table_named(name: str | None) -> TableId:
    """``OWNER.TABLE`` in its parts, maybe in double quotes; a table's own name may hold further dots."""
    if not known(name) or name is None:
        return NO_TABLE
    if quoted := _QUOTED.fullmatch(name):
        owner, table = (part and part.replace('""', '"') for part in quoted.groups())
        return TableId(owner, None, table)
    owner, dot, table = name.partition(".")
    return TableId.named(owner, None, table) if dot else TableId(None, None, name)


_QUOTED = re.compile(r'(?:"((?:[^"]|"")+)"\.)?"((?:[^"]|"")+)"')


def _row(
    place: Change, envelope: Mapping[str, Raw], kind: str, dialect: SharePlexDialect, hints: Hints, topic: str
) -> Change:
    table = rows.named_table(place.table, hints, topic)
    declared = hints.tables(table)
    plan = rows.plan_of_declared(declared.columns, hints.options, dialect.whole)
    sent, sent_key = envelope.get("data"), envelope.get("key")
    data, key = values.optional_image(sent), values.optional_image(sent_key)
    kept = rows.convert_both(key, data, plan, sent_key, sent)
    both = {**key, **data} if key and data else key or data  # an update's data lies over its key
    before, after = key, dict(both) if both else None
    if place.op is Op.INSERT:
        before, after = None, data
    elif place.op is Op.DELETE:
        before, after = both or None, None
    rows.require_images(before, after, place.op)
    update = place.op is Op.UPDATE
    whole = hints.options.key_is_full and (key is not None or kind == "update after")
    hide = update and dialect.nulls_may_hide
    return rows.finish(
        place, table, declared.keys, before, after, plan, kept,
        partial=update and not whole, nulls_may_hide=hide,
    )  # fmt: skip


# --- OMS ----------------------------------------------------------------------------------------


def _oms_order(meta: Image, op: Op, options: Options) -> tuple[int, ...]:
    sequence = split_sequence(known(meta.get("scn")), None)
    if sequence:
        number = values.integer(meta.get("seq"))
        return (*sequence, number) if number else sequence
    micros = rows.moment(meta.get("time"), options.timezone)
    if known(meta.get("scn")) or micros is None:
        return ()
    return micros // values.MICROS, AFTER_EVERY_COUNTER if op in (Op.DDL, Op.TRUNCATE) else 0


OMS = SharePlexDialect(_oms_order, nulls_may_hide=True, utc=False, sql="mysql", whole=SECONDS)
parse = partial(read, dialect=OMS)
