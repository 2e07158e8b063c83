"""OceanBase Cloud data subscription, Avro ("Data subscription message formats", section Avro).

``avro_schemas/oceanbase.avsc`` is the document's schema without its namespace, which is masked there
and has no part in the bytes, and without the default of ``DateTimeObject.nanos``, which no int can have.

- A message is one bare datum. Images are lists parallel to ``fields``; ``pkIndexes`` and ``ukIndexes`` point
  into ``fields``.
- The union branch says how a value is written, ``type_info`` what it is; JSON, XML and intervals are
  STRING, an Oracle DATE may come as date or as date with a time. STRING and BINARY hold small and large
  values alike.
- A record too large for one message is split (``total`` above 1). How its pieces are encoded inside is
  not documented, and one piece is never applied alone.
- An unchanged large value is sent as NULL on both sides of an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from msgspec.structs import replace

from ingest import types, values
from ingest.change import ROW_OPS, Change, Hints, Image, Message, Op, TableId
from ingest.ddl import dialect_of
from ingest.decoding import avro
from ingest.decoding.declared_values import unwrap
from ingest.decoding.rows import drop_hidden, require_images, statement
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore

ABOUT = About(
    title="OceanBase Cloud data subscription, Avro",
    document="OceanBase Cloud data subscription, section Avro JSON message format",
    operations=("insert", "update", "delete", "truncate", "ddl", "heartbeat", "begin", "commit"),
    order="id",
    strength="strong",
    keys="pkIndexes, else the one of ukIndexes whose column names come first",
    types="type_info and union branch of each value",
    images="full (unchanged large values of updates may be missing)",
    ddl="sql holds the statement",
    losses=(
        "Large and small texts, JSON and intervals have one type.",
        "A record split over several messages cannot be read and is set aside.",
        "An Oracle TIMESTAMP without a zone is sent as an instant.",
    ),
    options={"order_by": "sequence"},
    framing="length",
    binary=True,
    by_keys=(Op.UPDATE,),
    before=ImagesBefore(hides_large=True, renumbers=True),
)

OPS = {
    "INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE, "DDL": Op.DDL, "BEGIN": Op.BEGIN,
    "COMMIT": Op.COMMIT, "HEARTBEAT": Op.HEARTBEAT,
}  # fmt: skip
SMALL = frozenset(
    "INTEGER LONG FLOAT DOUBLE DECIMAL TIMESTAMP DATE TIME DATETIME BOOLEAN BIT ENUM SET".split()
)
"""Types of ``type_info`` that never hold a large value, so that their NULL is one."""

_SAME = "DECIMAL STRING BINARY TIMESTAMP TIME DATETIME BOOLEAN BIT GEOMETRY ENUM SET"
NULL_TYPES = {
    **{name: name.lower() for name in _SAME.split()},
    "INTEGER": "int32", "LONG": "int64", "FLOAT": "float32", "DOUBLE": "float64", "RAW": "binary",
}  # fmt: skip
"""What a NULL says of its column's type; DATE says nothing (an Oracle one has a time of day)."""


# --- one message --------------------------------------------------------------------------------


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    record = avro.read(_schema(), message.sent)
    op = OPS.get(record["operation"] or "")
    if op is None:
        raise Undecodable("unknown-operation", "the record has no operation")
    database, name = record["schemaName"], record["tableName"]
    common = Change(
        op=op,
        table=TableId.named(database, None, name),
        sequence=(record["id"],),
        position=record["position"] or None,
        event_time=values.micros_of(record["timestamp"], 1) or None,
        transaction=record["xid"] or None,
    )
    if op is Op.DDL:
        if not record["sql"]:
            raise Undecodable("bad-message", "a DDL record has no statement in sql")
        dialect = dialect_of((record["source"] or {}).get("sourceType") or "oceanbase")
        return statement(replace(common, dialect=dialect), record["sql"], None)
    return [_row(record, common, hints) if op in ROW_OPS else common]


@cache
def _schema() -> avro.AvroSchema:
    return avro.load(avro.bundled("oceanbase").replace(b'"float"', _FLOAT), "AvroRecord")


_FLOAT = b'{"type": "record", "name": "Float", "fields": [{"name": "value", "type": "float"}]}'
"""A float in a record has the same bytes; without the record it would be read as a double is."""


def _row(record: dict[str, Any], common: Change, hints: Hints) -> Change:
    if record["total"] > 1:
        raise Undecodable(
            "incomplete-shard",
            f"piece {record['index']} of {record['total']} of a record; pieces are not read",
        )
    if common.table.table is None:
        raise Undecodable("no-table", "a row record has no tableName")
    op, declared = common.op, hints.tables(common.table)
    names = [field["name"] for field in record["fields"] or ()]
    if len(set(names)) != len(names):
        raise Undecodable("duplicate-key", "a column name occurs twice in one list of fields")
    keys = declared.keys or _key_columns(record, names)
    types_sent: dict[str, str] = {}
    before = _image(record["beforeImages"], names, types_sent)
    after = _image(record["afterImages"], names, types_sent)
    require_images(before, after, op)
    for image in (before, after):
        unwrap(image, declared.columns)

    def hides(name: str) -> bool:
        cells = [record[images][names.index(name)] for images in ("beforeImages", "afterImages")]
        return name not in keys and all(cell["type_info"] not in SMALL for cell in cells)

    hidden = drop_hidden(op, before, after, hides)
    return replace(
        common,
        keys=keys,
        before=before,
        after=None if op is Op.DELETE else after,
        types={**types_sent, **declared.columns} if declared.columns else types_sent,
        partial=hidden is not None,
        note=hidden,
    )


def _image(cells: list[dict[str, Any]] | None, names: list[str], types_sent: dict[str, str]) -> Image | None:
    if cells is None:
        return None
    if len(cells) != len(names):
        raise Undecodable(
            "bad-message", f"an image does not have one value for each of its fields (there are {len(names)})"
        )
    image: Image = {}
    for name, cell in zip(names, cells, strict=True):
        value, info = cell["value"], cell["type_info"]
        if value is None:
            image[name] = None
            if info in NULL_TYPES:
                types_sent.setdefault(name, NULL_TYPES[info])
            continue
        tag, content = value if isinstance(value, tuple) else (type(value).__name__, value)
        try:
            image[name], types_sent[name] = READERS[tag](content, info)
        except ValueError as error:
            raise Undecodable(
                "bad-value", f"a {tag} of column {name[:80]!r} cannot be read: {error}"
            ) from None
    return image


def _key_columns(record: dict[str, Any], names: list[str]) -> tuple[str, ...]:
    unique = [index for index in record["ukIndexes"] or () if index]
    choices = [record["pkIndexes"]] if record["pkIndexes"] else unique
    if any(not 0 <= index < len(names) for indexes in choices for index in indexes):
        raise Undecodable("bad-message", "an index of a key column points past the fields")
    return min((tuple(names[index] for index in indexes) for indexes in choices), default=())


# --- values -------------------------------------------------------------------------------------

Read = tuple[str, str]  # canonical text and logical type


def _whole(value: int, info: str) -> Read:
    logical = NULL_TYPES.get(info, "int64")
    if logical == "int32" and not -(2**31) <= value < 2**31:
        logical = "int64"
    return str(value), logical if logical in ("int32", "int64", "bit", "decimal") else "int64"


def _text(value: str, info: str) -> Read:
    if info == "DECIMAL":
        return values.number_text(value), "decimal"
    return value, {"ENUM": "enum", "SET": "set"}.get(info, "string")


def _decimal(value: Any, _info: str) -> Read:
    return values.number_text(value["value"]), types.decimal(value["precision"], value["scale"])


def _day(value: Any) -> str:
    if value["year"] < 0 or not 0 <= value["month"] <= 12 or not 0 <= value["day"] <= 31:
        raise ValueError("it is not a date")
    return f"{value['year']:04d}-{value['month']:02d}-{value['day']:02d}"


def _clock(value: Any) -> str:
    if value["hours"] < 0 or not 0 <= value["minutes"] < 60 or not 0 <= value["seconds"] < 60:
        raise ValueError("it is not a time of day")
    return f"{value['hours']:02d}:{value['minutes']:02d}:{value['seconds']:02d}{_nanos(value['nanos'])}"


def _nanos(value: int) -> str:
    if not 0 <= value < 10**9:
        raise ValueError(f"{value} are not nanoseconds of a second")
    return values.fraction(f"{value:09d}")


def _bit(value: Any, _info: str) -> Read:
    """A number's digits, or as many binary digits as the column has bits (never both)."""
    text, width = value["value"], value["bit_length"]
    number = int(text, 2) if len(text) == width and not text.strip("01") else values.integer(text)
    if number is None or number < 0:
        raise ValueError("its text is not a bit string")
    return str(number), "bit(64)" if width == 64 else "bit"


READERS: dict[str, Callable[[Any, str], Read]] = {
    "bool": lambda value, _info: (str(bool(value)).lower(), "boolean"),
    "int": _whole,
    "Float": lambda value, _info: (values.float32_text(value["value"]), "float32"),
    "float": lambda value, _info: (values.float_text(value), "float64"),
    "bytes": lambda value, _info: (values.base64_text(value), "binary"),
    "str": _text,
    "StringObject": lambda value, info: _text(value["value"], info),
    "DecimalObject": _decimal,
    "DateObject": lambda value, _info: (_day(value), "date"),
    "TimeObject": lambda value, _info: (f"{'-' if value['negative'] else ''}{_clock(value)}", "time"),
    "DateTimeObject": lambda value, _info: (f"{_day(value)} {_clock(value)}", "datetime"),
    "TimestampObject": lambda value, _info: (
        values.timestamp_text(value["seconds"], 1)[:-1] + _nanos(value["nanos"]) + "Z",
        "timestamp",
    ),
    "BitObject": _bit,
    "EnumSetValue": lambda value, info: (value["value"], "set" if info == "SET" else "enum"),
    "GeometryValue": lambda value, _info: (
        f"SRID={value['srid']};{values.base64_text(value['wkb'])}",
        "geometry",
    ),
}


def recognise(sample: bytes) -> str | None:
    """The whole sample is one record of the schema."""
    if sample[:1] == b"{":
        return None
    operation = avro.read(_schema(), sample)["operation"]
    return f"one {operation} record of the OceanBase schema, to the last byte"
