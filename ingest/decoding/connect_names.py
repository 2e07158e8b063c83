"""What the semantic names of Kafka Connect's and Debezium's schemas mean.

Kafka Connect, package ``org.apache.kafka.connect.data``; Debezium documentation, "Data type mappings" of each
connector.  A name says what a physical value counts or holds; ``Decimal`` and ``Bits`` need parameters too.
"""

from __future__ import annotations

from functools import partial

from ingest.decoding import connect
from ingest.decoding.connect import Field, Meaning
from ingest.decoding.converters import zoned
from ingest.decoding.declared_values import geometry, variable_decimal
from ingest.values import date_text, datetime_text, integer, time_text, zoneless_text

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
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
    _TIME + "MicroDuration": Meaning("interval", "int", partial(connect.duration, unit=10**6)),
    _TIME + "NanoDuration": Meaning("interval", "int", partial(connect.duration, unit=10**9)),
    _DATA + "Json": Meaning("json", "text", str),
    _DATA + "Xml": Meaning("string", "text", str),
    _DATA + "Uuid": Meaning("string", "text", str),
    _DATA + "Ltree": Meaning("string", "text", str),
    _DATA + "TsVector": Meaning("string", "text", str),
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
        return connect.decimal_meaning(field.parameters)
    if field.semantic == _DATA + "Bits":
        width = integer(field.parameters.get("length")) or 1
        logical = "bit" if width < 64 else "bit(64)" if width == 64 else "string"
        return Meaning(logical, "bytes", _bits)
    if field.semantic == _DATA + "Enum" and r"\," in field.parameters.get("allowed", ""):
        return Meaning("enum", "text", _label)
    return SEMANTICS.get(field.semantic)


def _bits(value: bytes) -> str:
    return str(int.from_bytes(value[: connect.MAX_BITS], "little"))


def _label(value: str) -> str:
    """A label whose commas are escaped as in the list of labels: Debezium does so for rows of MySQL's log."""
    return value.replace(r"\,", ",")
