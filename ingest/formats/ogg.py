"""Oracle GoldenGate JSON ("Using the Pluggable Formatters", JSON Formatter).

Operation-modelled messages hold ``before`` and ``after``; row-modelled ones hold the columns next to
the metadata. Quirks:

- ``pos`` is the trail's sequence number and byte address, zero-padded: the same after a replay.
- ``op_type`` is I, U, D or T unless the handler's settings rename them; the English words are read too.
- A compressed update holds only changed and key columns. ``<column>_isMissing: true`` marks a column
  that the trail does not hold: it is absent, and the mark is not a column.
- Key names are ``primary_keys`` if switched on (some versions spell it wrongly).
- ``table`` is ``OWNER.TABLE`` or ``CATALOG.SCHEMA.TABLE``.
- A date and time is written ``1994-09-30:15:33:00`` unless the ISO form is switched on.
- ``flatten`` gives columns as ``before.NAME`` and ``after.NAME``; the images' names are settings of the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.json import encode

from ingest import types, values
from ingest.change import Change, Hints, Image, Message, Op, Options, TableId
from ingest.decoding import rows
from ingest.errors import Undecodable
from ingest.formats import About, SharedEvidence
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

KEY_MEMBERS = ("primary_keys", "primaryKeys", "priamry_keys")
ALWAYS = frozenset({"table", "op_type"})
TEXTS = frozenset("op_ts current_ts pos csn xid rowid".split())  # metadata that is text, if it is sent
MEMBERS = TEXTS.union(KEY_MEMBERS, ["tokens"])
"""Metadata that a setting sends."""

ABOUT = About(
    title="Oracle GoldenGate JSON",
    document="Oracle GoldenGate for Big Data, Using the Pluggable Formatters: JSON",
    operations=("insert", "update", "delete", "truncate"),
    order="pos, the trail's position",
    strength="strong",
    keys="primary_keys, if switched on",
    types="none in the message: only `columns:` of the pipeline file",
    images="partial (compressed updates)",
    ddl="none",
    losses=(
        "DDL is not sent.",
        "op_ts names no zone: with a wrong `timezone` event times are off by hours.",
        "With omitNullValues a column that became NULL looks like one that a compressed update leaves out.",
        "A column that a compressed update leaves out cannot be distinguished from one that does not exist.",
    ),
    options={
        "timezone": "zone of op_ts and of times that name none, default UTC",
        "binary": "encoding of bytes, default base64",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "left_out": "`null` if the formatter leaves out NULLs (omitNullValues), else `unchanged`",
        "before_image": "the member that holds the row before, default before",
        "after_image": "the member that holds the row after, default after",
        "order_by": "sequence (default), arrival or event_time",
    },
    bytes_as="base64",
    leaves_out_nulls="by a setting",
    members=MEMBERS,
    before=ImagesBefore(renumbers=True),
)

OPS = {
    **dict.fromkeys(("I", "INSERT"), Op.INSERT),
    **dict.fromkeys(("U", "UPDATE"), Op.UPDATE),
    **dict.fromkeys(("D", "DELETE"), Op.DELETE),
    **dict.fromkeys(("T", "TRUNCATE"), Op.TRUNCATE),
}
MISSING = "_isMissing"
BEFORE, AFTER = "before", "after"
OTHERS = frozenset({"scn", "row_id"})
"""Metadata of another vendor's connector for Oracle, whose messages are nearly the same."""


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    envelope, note = values.opened(message.sent)
    if "op_type" not in envelope or "table" not in envelope:
        raise Undecodable("not-this-format", "op_type or table is missing")
    envelope = dict(_usual(envelope, hints.options))
    op = operation(values.text(envelope["op_type"]))
    meta = _metadata(envelope, hints, message.topic)
    texts = {name: values.member_text(meta, name) for name in ("table", "pos", "op_ts", "xid")}
    place = placed(texts, op, _keys(meta), hints.options, note)
    return (place,) if op is Op.TRUNCATE else (_row(place, envelope, meta, hints, message.topic),)


def recognise(sample: bytes) -> str | None:
    """``op_type`` and ``table``, with a position or images; without these another vendor's connector may have sent it."""
    seen = values.opened(sample)[0].keys()
    if not seen >= ALWAYS or seen >= OTHERS:
        return None
    if seen & {"pos", BEFORE, AFTER} and not seen & OTHERS:
        return "op_type and table"
    return SharedEvidence("perhaps op_type and table, without a position")


def _usual(envelope: Mapping[str, Raw], options: Options) -> Mapping[str, Raw]:
    """A message with its images under ``before`` and ``after``, whatever the handler calls or makes of them."""
    names = options.extra.get("before_image", BEFORE), options.extra.get("after_image", AFTER)
    if any(name in envelope for name in names):
        renamed = dict(zip(names, (BEFORE, AFTER), strict=True))
        return {renamed.get(name, name): raw for name, raw in envelope.items()}
    columns = [name for name in envelope if name not in ALWAYS and name not in MEMBERS]
    if columns and all(name.startswith((f"{names[0]}.", f"{names[1]}.")) for name in columns):
        return _unflattened(envelope, columns, names)
    if len(columns) in (1, 2) and all(bytes(envelope[name])[:1] == b"{" for name in columns):
        raise Undecodable(
            "renamed-images",
            f"the images seem to be the members {' and '.join(columns)}: name them by before_image and after_image under the options",
        )
    return envelope


def _unflattened(
    envelope: Mapping[str, Raw], columns: Iterable[str], names: tuple[str, str]
) -> Mapping[str, Raw]:
    images: dict[str, dict[str, Raw]] = {}
    for column in columns:
        image, _, name = column.partition(".")
        images.setdefault((BEFORE, AFTER)[names.index(image)], {})[name] = envelope[column]
    members = {name: raw for name, raw in envelope.items() if "." not in name or name not in columns}
    return members | {name: Raw(encode(image)) for name, image in images.items()}


def operation(word: str | None) -> Op:
    """The operation of an ``op_type``."""
    return rows.operation(OPS, (word or "").upper(), "op_type")


def placed(
    texts: Mapping[str, str | None], op: Op, keys: tuple[str, ...], options: Options, note: str | None = None
) -> Change:
    """A change at its place in the trail, from a message's metadata as texts, yet without its row."""
    position = texts.get("pos") or None
    sequence = rows.numbered(position)
    return Change(
        op=op,
        table=_table(texts.get("table")),
        keys=() if op is Op.TRUNCATE else keys,
        sequence=sequence,
        position=position,
        event_time=rows.moment(texts.get("op_ts"), options.timezone),
        transaction=texts.get("xid"),
        note=rows.noted(note, rows.unreadable(position, sequence)),
        dialect="oracle",
    )


@remembered(4096)
def _table(name: str | None) -> TableId:
    parts = (name or "").split(".")
    if len(parts) == 3:
        return TableId.named(*parts)
    owner, dot, table = (name or "").partition(".")
    return TableId.named(owner, None, table) if dot else TableId.named(None, None, owner)


def _keys(envelope: Mapping[str, Raw]) -> tuple[str, ...]:
    named = next((envelope[name] for name in KEY_MEMBERS if name in envelope), None)
    return () if named is None or bytes(named)[:1] != b"[" else values.names(named)


def _metadata(envelope: Mapping[str, Raw], hints: Hints, topic: str) -> Mapping[str, Raw]:
    """The members of a message that are not columns: all of an operation-modelled one, the beginning of a row-modelled one.

    A column may be named as metadata is.  It is one if the pipeline file or the key names it, if another
    column precedes it, or if its value is none that such metadata has.
    """
    if BEFORE in envelope or AFTER in envelope:
        return envelope
    table = values.member_text(envelope, "table")
    return leading_metadata(envelope, table, _keys(envelope), hints, topic, _is_metadata)


_Cell = TypeVar("_Cell")


def leading_metadata(
    members: Mapping[str, _Cell],
    table: str | None,
    keys: tuple[str, ...],
    hints: Hints,
    topic: str,
    is_metadata: Callable[[str, _Cell], bool],
) -> Mapping[str, _Cell]:
    """The members of a row-modelled record that come before its columns, and those that every record has."""
    named = _table(table)
    declared = hints.tables(named if named.table else hints.table_of(topic) or named)
    columns = {*declared.columns, *declared.keys, *keys}
    meta = {name: cell for name, cell in members.items() if name in ALWAYS}
    for name, cell in members.items():
        if name not in ALWAYS:
            if name in columns or not is_metadata(name, cell):
                break
            meta[name] = cell
    return meta


def _is_metadata(name: str, raw: Raw) -> bool:
    first = bytes(raw)[:1]
    if name in KEY_MEMBERS:
        return first in (b"[", b"n")
    return (name in TEXTS and first in (b'"', b"n")) or (name == "tokens" and first in (b"{", b"n"))


def _row(
    place: Change, envelope: Mapping[str, Raw], meta: Mapping[str, Raw], hints: Hints, topic: str
) -> Change:
    if BEFORE in envelope or AFTER in envelope:
        old, new = envelope.get(BEFORE), envelope.get(AFTER)
    else:  # a row-modelled message has one image, next to its metadata
        row = Raw(encode({name: raw for name, raw in envelope.items() if name not in meta}))
        old, new = (row, None) if place.op is Op.DELETE else (None, row)
    before, after = map(_image, rows.images_of(place.op, old, new))
    rows.require_images(before, after, place.op)
    table = rows.named_table(place.table, hints, topic)
    declared = hints.tables(table)
    plan = rows.plan_of_declared(declared.columns, hints.options)
    separate(before, plan.types)
    separate(after, plan.types)
    kept = rows.convert_both(before, after, plan, old, new)
    keys = declared.keys or place.keys
    return rows.finish(
        place,
        table,
        keys,
        before,
        after,
        plan,
        kept,
        partial=rows.may_lack_columns(place.op, hints),
    )


def separate(image: dict[str, Any] | None, logical: Mapping[str, str]) -> None:
    """Put a space between date and time in the texts of an image, where GoldenGate's own form has a colon."""
    for column, value in image.items() if image and logical else ():
        if isinstance(value, str) and value[10:11] == ":" and types.base(logical.get(column, "")) in _MOMENTS:
            image[column] = f"{value[:10]} {value[11:]}"  # type: ignore[index]  # there is one


_MOMENTS = frozenset({"date", "datetime", "timestamp"})


def _image(raw: Raw | None) -> Image | None:
    image = values.optional_image(raw)
    drop_missing(image)
    return image


def drop_missing(image: Image | None) -> list[str]:
    """Take the marks out of an image, and the columns that they say are missing; the columns' names."""
    missing = []
    for mark in [name for name in image or () if name.endswith(MISSING)]:
        assert image is not None
        column = mark.removesuffix(MISSING)
        if column in image:
            if image.pop(mark) == "true":
                del image[column]
                missing.append(column)
        elif image[mark] == "true":
            del image[mark]
            missing.append(column)
    return missing
