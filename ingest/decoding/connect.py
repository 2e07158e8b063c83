"""Values as Kafka Connect schemas describe them, turned into canonical text.

A converter (JSON or Avro) sends a schema of fields with the row, or nothing.  `columns` makes the
plan of one such list once: for each column its logical type and two functions, one for its JSON
value, one for its Avro value.  What a field's *semantic name* means is the format's own table; `meanings` is
that of Kafka Connect (package ``org.apache.kafka.connect.data``) and Debezium (documentation, "Data type mappings" of each
connector): a name says what a physical value counts or holds.  In this order the meaning of a value is: its semantic name, the declared type (``columns:``), its physical type;
without any of them it stays as it came, with type ``unknown``.  A value that does not fit its meaning
keeps its own text: later stages set such a cell aside with its text, never the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ingest import types
from ingest.change import ColumnSchema, Image
from ingest.decoding import json_values
from ingest.decoding.converters import zoned
from ingest.decoding.declared_values import (
    ColumnReader,
    Reading,
    Text,
    compact,
    geometry,
    plain_text,
    variable_decimal,
    without_digits,
)
from ingest.decoding.declared_values import column as declared_column
from ingest.errors import Undecodable
from ingest.values import (
    MAX_EXPONENT,
    Number,
    bytes_of,
    date_text,
    datetime_text,
    float32_text,
    integer,
    seconds_of,
    strict,
    time_text,
    unscaled_text,
    zoneless_text,
)
from ingest.values.remembered import LONG, Bounded, remembered


class FieldDefault(NamedTuple):
    """A field's default as its converter writes values: ``plain`` as Avro does, else as JSON does."""

    value: Any
    plain: bool = False


class Field(NamedTuple):
    """One field of a Connect schema: physical type, semantic name and its parameters.

    ``optional`` is None where the schema does not say whether the field may be null.
    """

    name: str
    type: str
    semantic: str = ""
    parameters: Mapping[str, str] = {}
    fields: tuple[Field, ...] = ()
    optional: bool | None = None
    default: FieldDefault | None = None


class Meaning(NamedTuple):
    """A semantic name's logical type, the shape of its JSON value, and its text from that value.

    Shapes: ``int``, ``bytes`` (JSON writes base64), ``text``, ``struct`` (a dict of the members).
    """

    logical: str
    shape: str
    text: Callable[[Any], str]


Meanings = Callable[[Field], Meaning | None]

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
_ITEMS_WITH_PLACEHOLDER = frozenset(
    [(physical, "") for physical in ("string", "bytes", "int32", "int64")]
    + [("string", _DATA + name) for name in ("Json", "Uuid")]
    + [("int32", prefix + "Date") for prefix in (_CONNECT, _TIME)]
)
PHYSICAL = {
    "boolean": "boolean",
    **{width: width for width in ("int8", "int16", "int32", "int64")},
    **dict.fromkeys(["float", "float32"], "float32"),
    **dict.fromkeys(["double", "float64"], "float64"),
    "string": "string",
    "bytes": "binary",
    **dict.fromkeys(["array", "map", "struct"], "json"),
}
"""Connect's physical types (its JSON converter writes ``float`` and ``double``) as logical types."""


MAX_BITS = 512  # bytes of a bit string that become a number


class ConnectPlan(NamedTuple):
    """For each column that a schema or the pipeline file knows, how its values are read, its type, and what the schema
    says of it besides, with (``labelled``) and without the labels of enumerations and the places of columns, and where a default
    of a column that may be NULL need not be what older rows have (``unfilled``);
    for the schema's own columns those whose Avro value is not its text yet. Of ``unsure`` columns Debezium for PostgreSQL sends
    NULL for a large value that did not change.
    """

    json: Mapping[str, Text]
    plain: Mapping[str, Text]
    types: Mapping[str, str]
    schema: Mapping[str, ColumnSchema] = {}
    columns: frozenset[str] = frozenset()
    no_texts: tuple[tuple[str, Text], ...] = ()
    labelled: Mapping[str, ColumnSchema] = {}
    unfilled: Mapping[str, ColumnSchema] = {}
    unsure: frozenset[str] = frozenset()


def plan(
    schema: str | bytes,
    fields: Callable[[Any], Iterable[Field]],
    declared: Mapping[str, str],
    meanings: Meanings,
    reading: Reading,
) -> ConnectPlan:
    """The plan of one schema's rows, made once; ``fields`` reads the fields out of the schema."""
    place = (schema, fields, id(declared), meanings, reading)
    known = _recent.get(place)
    if known is None:
        known = _plan(schema, fields, tuple(declared.items()), meanings, reading), declared
        if len(schema) <= LONG:
            _recent[place] = known
    return known[0]


MAX_PLANS = 1024  # kept at a time
_recent = Bounded[tuple[object, ...], tuple[ConnectPlan, Mapping[str, str]]](MAX_PLANS)
"""Plans by the declared columns' identity, which costs less than to look at each of them for every row.

The columns are kept with their plan: as long as they live, no other columns have their identity.
"""


@remembered(MAX_PLANS)
def _plan(
    schema: str | bytes,
    fields: Callable[[Any], Iterable[Field]],
    declared: tuple[tuple[str, str], ...],
    meanings: Meanings,
    reading: Reading,
) -> ConnectPlan:
    declared_types = dict(declared)
    readers: dict[str, ColumnReader] = {}
    described: dict[str, ColumnSchema] = {}
    members = tuple(fields(schema))
    for field in members:
        reader = column(field, declared_types.pop(field.name, _unsigned(field)), meanings, reading)
        readers[field.name] = _as_declared(field, reader)
        if field.optional is not None:
            is_plain = field.default is not None and field.default.plain
            described[field.name] = column_schema(field, reader.plain if is_plain else reader.json)
    labels = {
        field.name: listed for field in members if field.name in described and (listed := labels_of(field))
    }
    placed = _placed(members)
    for name, logical in declared_types.items():
        readers[name] = declared_column(logical, reading)
    return ConnectPlan(
        {name: each.json for name, each in readers.items()},
        {name: each.plain for name, each in readers.items()},
        {name: each.logical for name, each in readers.items() if each.logical != "unknown"},
        described,
        frozenset(field.name for field in members),
        tuple(
            (field.name, readers[field.name].plain)
            for field in members
            if field.type != "string" or readers[field.name].plain is not plain_text
        ),
        {
            name: each._replace(labels=labels.get(name, ()), is_placed=name in placed)
            for name, each in described.items()
        },
        {
            name: each._replace(known=each.known and not (each.nullable and each.default is not None))
            for name, each in described.items()
        },
        frozenset(field.name for field in members if _may_lack_placeholder(field)),
    )


def _placed(fields: Iterable[Field]) -> frozenset[str]:
    """The names of the fields without those that flattening adds after the columns."""
    names = [field.name for field in fields]
    while names and names[-1].startswith("__"):
        names.pop()
    return frozenset(names)


def _may_lack_placeholder(field: Field) -> bool:
    """True if Debezium for PostgreSQL has no placeholder for a large value of this field, and sends NULL if it did not change.

    Seen with its version 3.6: arrays have one for texts, JSON, UUIDs, bytes, dates, ``integer`` and ``bigint`` alone, and
    numbers of any precision, bit strings and geometries have none.
    """
    if field.type == "array":
        item = _innermost(field)
        return (item.type, item.semantic) not in _ITEMS_WITH_PLACEHOLDER
    name = field.semantic
    return (
        name in (_DATA + "VariableScaleDecimal", _CONNECT + "Decimal", _DATA + "Bits") or "geometry." in name
    )


def column_schema(field: Field, text: Text) -> ColumnSchema:
    """What a field's ``optional`` and ``default`` say of the rows that were there before the column; ``text`` reads values.

    Debezium writes a placeholder for a default that a function gives (``PostgresDefaultValueConverter``,
    ``MySqlDefaultValueConverter``): the first instant of 1970, or a UUID of zeros. So these are not known.
    """
    nullable = bool(field.optional)
    if field.default is None:
        return ColumnSchema(nullable, known=nullable)
    default = text(field.default.value)
    return ColumnSchema(nullable, default, known=not is_placeholder(default or ""))


def is_placeholder(text: str) -> bool:
    """True of the value that Debezium writes for a default or a cell that it does not know."""
    if text.startswith("1970-01-01"):
        return not text[10:].strip("T 0:.Z+-")
    return text == "00000000-0000-0000-0000-000000000000"


def labels_of(field: Field) -> tuple[str, ...]:
    """The labels of an enumeration, or of an array of its labels, in their order; none of any other field.

    Debezium escapes commas of MySQL's labels only, so a list of PostgreSQL's may be cut within a label. It is certainly so where
    a label comes twice, which no type has: such a list is not read.
    """
    item = _innermost(field)
    allowed = item.parameters.get("allowed", "") if item.semantic == _DATA + "Enum" else ""
    labels = tuple(map(_label, _BETWEEN_LABELS.split(allowed))) if allowed else ()
    return labels if len(set(labels)) == len(labels) else ()


_BETWEEN_LABELS = re.compile(r"(?<!\\),")
"""A comma that is none of a label's own (`_label`)."""


def _unsigned(field: Field) -> str | None:
    """``uint64`` for what a connector carries as a signed number although its column's own type is unsigned."""
    words = field.parameters.get(_SOURCE_TYPE + "type", "").upper().split()
    is_unsigned = words[:1] == ["BIGINT"] and words[1:2] == ["UNSIGNED"]
    return "uint64" if is_unsigned and field.type == "int64" and not field.semantic else None


def _as_declared(field: Field, reader: ColumnReader) -> ColumnReader:
    """The reader with what Debezium's ``column.propagate.source.type`` adds to the physical type: ZEROFILL."""
    name, _, words = field.parameters.get(_SOURCE_TYPE + "type", "").partition(" ")
    if not words or reader.logical == "unknown":
        return reader
    length = field.parameters.get(_SOURCE_TYPE + "length")
    declared = f"{name}({length}) {words}" if length and "(" not in name else f"{name} {words}"
    return reader._replace(logical=types.with_zeros(reader.logical, declared))


_SOURCE_TYPE = "__debezium.source.column."


def column(field: Field, declared: str | None, meanings: Meanings, reading: Reading) -> ColumnReader:
    """The plan of one column."""
    meaning = meanings(field)
    if meaning:
        return _meant(meaning, declared, reading)
    item = _innermost(field)
    if item is not field and meanings(item):
        return _listed(column(item, None, meanings, reading))
    if field.type == "bytes":
        reading = reading._replace(binary=reading.schema_bytes)
    as_it_is = (PHYSICAL.get(field.type), "string", "enum", "set", "json", "interval", "unknown", None, "")
    if (
        types.base(declared or "") == "date"
        and field.type in _NUMBERS
        and not (reading.days or "date" in field.semantic.lower())
    ):
        # the schema calls a date by name, so that this is a number: no guess makes days of it
        return ColumnReader("date", json_values.text, plain_text)
    if declared not in as_it_is:
        return declared_column(str(declared), reading)
    if field.type == "bytes" and reading.binary != "base64":
        return declared_column("binary", reading)
    logical = declared or PHYSICAL.get(field.type, "unknown")
    return ColumnReader(without_digits(logical), json_values.text, _PLAIN.get(field.type, plain_text))


_NUMBERS = frozenset(("int8", "int16", "int32", "int64"))


def _innermost(field: Field) -> Field:
    """The item of an array, of an array of arrays and so on; any other field itself."""
    while field.type == "array" and field.fields:
        field = field.fields[0]
    return field


def _listed(item: ColumnReader) -> ColumnReader:
    """The plan of an array whose items have a meaning: a JSON list of their canonical texts, or of such lists."""

    def listed(of_item: Text, of_other: Text) -> Text:
        def texts(value: Any) -> Any:
            if type(value) is list:
                return [texts(each) for each in value]
            return None if value is None else of_item(value)

        return lambda value: compact(texts(value)) if type(value) is list else of_other(value)

    return ColumnReader("json", listed(item.json, json_values.text), listed(item.plain, plain_text))


def json_key(key: bytes | None, plan_of: Callable[[bytes], ConnectPlan]) -> Image | None:
    """A Kafka key's columns, by the plan of its schema; None for no key and for no JSON object."""
    if not key or key.lstrip()[:1] != b"{":
        return None
    try:
        document = json_values.unwrapped(key)
        return json_image(document.payload, plan_of(document.schema)) if document.payload else None
    except Undecodable:
        return None


def json_key_columns(key: bytes | None) -> tuple[str, ...]:
    """The names of a Kafka key's columns; none for no key and for no JSON object."""
    if not key or key.lstrip()[:1] != b"{":
        return ()
    try:
        return tuple(json_values.unwrapped(key).payload or ())
    except Undecodable:
        return ()


def envelope_fields(schema: bytes) -> tuple[Field, ...]:
    """The columns that the envelope's schema gives to ``after`` (or ``before``)."""
    by_name = {field.name: field.fields for field in row_fields(schema)}
    return by_name.get("after") or by_name.get("before") or ()


def row_fields(schema: bytes) -> tuple[Field, ...]:
    """The fields of a schema as Connect's JSON converter writes it."""
    return json_field(strict(schema)).fields if schema else ()


def json_field(schema: Any) -> Field:
    """A field as Connect's JSON converter describes it, with the fields below it."""
    if not isinstance(schema, dict):
        raise Undecodable("bad-schema", "a field of the message's schema is not a JSON object")
    below = schema.get("fields") or ([schema["items"]] if isinstance(schema.get("items"), dict) else [])
    given = schema.get("parameters")
    parameters = {name: str(value) for name, value in given.items()} if isinstance(given, dict) else {}
    if not isinstance(below, list):
        raise Undecodable("bad-schema", "the fields of the message's schema are not a list")
    optional, default = schema.get("optional"), schema.get("default")
    return Field(
        name=str(schema.get("field") or ""),
        type=str(schema.get("type")).lower(),
        semantic=str(schema.get("name") or ""),
        parameters=parameters,
        fields=tuple(map(json_field, below)),
        optional=optional if isinstance(optional, bool) else None,
        default=None if default is None else FieldDefault(default),
    )


def json_image(row: Mapping[str, Any], plan: ConnectPlan) -> Image:
    """A JSON object as a row image by its plan."""
    known, text = plan.json.get, json_values.text
    return {name: None if value is None else known(name, text)(value) for name, value in row.items()}


_NO_CELLS: dict[str, Any] = {}


def plain_image(
    row: Mapping[str, Any], plan: ConnectPlan, was: Mapping[str, Any] = _NO_CELLS, texts: Image = _NO_CELLS
) -> Image:
    """A decoded Avro record as a row image by its plan.

    ``was`` is the record before its change, and ``texts`` its image: most values do not change, and are read once.
    """
    if row.keys() <= plan.columns:
        image: Image = {**row}
        for name, text in plan.no_texts:
            value: Any = image.get(name)
            if value is not None:
                old = was.get(name)
                is_same = old == value and type(old) is type(value) in _EXACT
                image[name] = texts[name] if is_same else text(value)
        if _TEXTS.issuperset(map(type, image.values())):  # a schema may call texts what are none
            return image
    known = plan.plain.get
    return {name: None if value is None else known(name, plain_text)(value) for name, value in row.items()}


def plain_images(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, plan: ConnectPlan
) -> tuple[Image | None, Image | None]:
    """The records before and after a change as row images by their plan, each None where there is none."""
    old = None if before is None else plain_image(before, plan)
    return old, None if after is None else plain_image(after, plan, before or _NO_CELLS, old or _NO_CELLS)


_EXACT = frozenset({str, bytes, int})
"""Types of which equal values have the same text; 0.0 and -0.0 are equal, too."""
_TEXTS = frozenset({str, type(None)})


def decimal_meaning(parameters: Mapping[str, str]) -> Meaning:
    """Connect's Decimal: unscaled bytes, scale and maybe precision among the parameters."""
    scale, precision = _small(parameters.get("scale")), _small(parameters.get("connect.decimal.precision"))
    written = integer(parameters.get("scale")) or 0
    if precision is not None and _SCALES - _MOST_PLACES <= written < _SCALES:
        # PostgreSQL's scale below 0, read as if its 11 bits had no sign: NUMERIC(5,-2) comes with 2046
        return Meaning(
            f"decimal({precision + _SCALES - written},0)", "bytes", partial(_whole_text, scale=written)
        )
    if scale is None:
        return Meaning("decimal", "text", str)
    return Meaning(types.decimal(precision, scale), "bytes", lambda value: unscaled_text(value, scale))


_SCALES = 1 << 11
_MOST_PLACES = 1000  # digits before the point that PostgreSQL rounds away, at most


def _whole_text(value: bytes, scale: int) -> str:
    """A whole number from its unscaled bytes.

    Raises:
        ValueError: it is none, or of more digits than a source has.
    """
    if len(value) > _SCALES:
        raise ValueError(f"no source has a decimal of scale {scale} and so many digits")
    number, fraction_digits = divmod(int.from_bytes(value, "big", signed=True), 10**scale)
    if fraction_digits:
        raise ValueError("a fraction below a scale of less than 0")
    return str(number)


def duration(count: int, unit: int) -> str:
    """An ISO 8601 span of seconds from a count of ticks."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    seconds, part = seconds_of(count, unit)
    return f"{sign}PT{seconds}{part}S"


def _whole(value: Any) -> str | None:
    return str(value) if type(value) is int else plain_text(value)


_PLAIN: dict[str, Callable[[Any], str | None]] = {
    "float": float32_text,
    "float32": float32_text,
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _whole),
}


# --- values with a semantic name ----------------------------------------------------------------


def _meant(meaning: Meaning, declared: str | None, reading: Reading) -> ColumnReader:
    convert = meaning.text
    logical = meaning.logical
    if declared:
        if types.base(declared) == "timestamp" and logical == "datetime":
            zoneless, zone = meaning.text, reading.timezone
            convert = lambda value: zoned(zoneless(value), zone)  # noqa: E731
        logical = without_digits(declared)
    usual, unpack = _UNPACK[meaning.shape]

    def read(value: Any) -> str | None:
        try:
            return convert(value if type(value) is usual else unpack(value))
        except (ValueError, TypeError):
            return json_values.text(value)

    def plain(value: Any) -> str | None:
        try:
            return convert(value)
        except (ValueError, TypeError):
            return plain_text(value)

    return ColumnReader(logical, read, plain)


def _int(value: Any) -> int:
    if type(value) is not Number:
        raise ValueError("not an integer")
    return int(value)


def _bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise ValueError("not a text of bytes")
    return bytes_of(value, "base64")


def _struct(value: Any) -> dict[str, str | None]:
    if type(value) is not dict:
        raise ValueError("not an object")
    return json_values.texts(value)


_UNPACK: dict[str, tuple[type | None, Callable[[Any], Any]]] = {
    "int": (int, _int),
    "bytes": (None, _bytes),
    "text": (str, json_values.text),
    "struct": (None, _struct),
}
"""By shape, the type of a JSON value that is ready as it is, and what makes others ready."""


def _small(value: str | None) -> int | None:
    if value is None or not value.lstrip("-").isdecimal() or len(value) > 5:
        return None
    return int(value) if abs(int(value)) <= MAX_EXPONENT else None


# --- what the semantic names mean -----------------------------------------------------------------

SEMANTICS: dict[str, Meaning] = {
    _CONNECT + "Date": Meaning("date", "int", date_text),
    _CONNECT + "Time": Meaning("time", "int", partial(time_text, unit=10**3)),
    _CONNECT + "Timestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**3)),
    _TIME + "Date": Meaning("date", "int", date_text),
    _TIME + "Time": Meaning("time", "int", partial(time_text, unit=10**3)),
    _TIME + "MicroTime": Meaning("time", "int", partial(time_text, unit=10**6)),
    _TIME + "NanoTime": Meaning("time", "int", partial(time_text, unit=10**9)),
    _TIME + "Timestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**3)),
    _TIME + "MicroTimestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**6)),
    _TIME + "NanoTimestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**9)),
    _TIME + "ZonedTimestamp": Meaning("timestamp", "text", partial(zoned, zone="UTC")),
    _TIME + "ZonedTime": Meaning("string", "text", str),
    _TIME + "IsoDate": Meaning("date", "text", lambda value: value.removesuffix("Z")),
    _TIME + "IsoTime": Meaning("time", "text", lambda value: value.removesuffix("Z")),
    _TIME + "IsoTimestamp": Meaning("datetime", "text", lambda value: zoneless_text(value.removesuffix("Z"))),
    _TIME + "Year": Meaning("year", "int", str),
    _TIME + "Interval": Meaning("interval", "text", str),
    _TIME + "MicroDuration": Meaning("interval", "int", partial(duration, unit=10**6)),
    _TIME + "NanoDuration": Meaning("interval", "int", partial(duration, unit=10**9)),
    _DATA + "Json": Meaning("json", "text", str),
    **{_DATA + name: Meaning("string", "text", str) for name in ("Xml", "Uuid", "Ltree", "TsVector")},
    _DATA + "Enum": Meaning("enum", "text", str),
    _DATA + "EnumSet": Meaning("set", "text", str),
    _DATA + "VariableScaleDecimal": Meaning("decimal", "struct", variable_decimal),
    **{
        _DATA + "geometry." + shape: Meaning("geometry", "struct", geometry)
        for shape in ("Geometry", "Geography", "Point")
    },
}
"""Semantic names whose meaning needs no parameters; ``Decimal`` and ``Bits`` do."""


def meanings(field: Field) -> Meaning | None:
    """What a field's semantic name says of its values."""
    if field.semantic == _CONNECT + "Decimal":
        return decimal_meaning(field.parameters)
    if field.semantic == _DATA + "Bits":
        width = integer(field.parameters.get("length")) or 1
        logical = "bit" if width < 64 else "bit(64)" if width == 64 else "string"
        return Meaning(logical, "bytes", _bits)
    if field.semantic == _DATA + "Enum" and r"\," in field.parameters.get("allowed", ""):
        return Meaning("enum", "text", _label)
    return SEMANTICS.get(field.semantic)


def _bits(value: bytes) -> str:
    return str(int.from_bytes(value[:MAX_BITS], "little"))


def _label(value: str) -> str:
    """A label whose commas are escaped as in the list of labels: Debezium does so for rows of MySQL's log."""
    return value.replace(r"\,", ",")
