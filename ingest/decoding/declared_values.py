"""Values that only the pipeline file describes (``columns:``), turned into canonical text.

A message without a schema says of a value what JSON says: a text, a number, a boolean.  What a number
of a declared ``datetime`` counts, and how bytes are written, the format and its options say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ingest import types, values
from ingest.change import Image
from ingest.decoding import json_values
from ingest.decoding.converters import zoned


class Reading(NamedTuple):
    """What a format and its options say of bare values: byte encoding, bit order, units of time.

    ``binary`` is how texts of declared columns stand for bytes, ``schema_bytes`` how bytes are written
    where a schema says that they are bytes. Units are ``millis``, ``micros``, ``nanos``, or ``adaptive``:
    by the declared fraction digits. ``days`` is True if a plain number in a declared date counts days, although a schema gives each
    date its name.
    """

    binary: str = "base64"
    bits: str = "little"
    time: str = "micros"
    datetime: str = "adaptive"
    timezone: str = "UTC"
    decimal_scale: int | None = None
    schema_bytes: str = "base64"
    days: bool = True


Text = Callable[[Any], str | None]
"""One value that is not NULL as canonical text."""


class ColumnReader(NamedTuple):
    """How one column's values become canonical text: from a JSON value, from an Avro value."""

    logical: str
    json: Text
    plain: Text


def column(declared: str, reading: Reading) -> ColumnReader:
    """How a column of a declared type is read; a value that does not fit it keeps its own text."""
    convert = _DECLARED.get(types.base(declared))
    logical = without_digits(declared)
    if convert is None:
        return ColumnReader(logical, json_values.text, plain_text)
    whole = _of_whole(declared, reading)

    def using(text: Text) -> Text:
        def read(value: Any) -> str | None:
            if value is None:
                return None
            kind = type(value)
            try:
                if kind is int and whole:
                    return whole(value)
                given = value if kind is str or kind is bytes else values.Number(text(value) or "")
                return str(convert(given, declared, reading))  # encoders take no `Number`
            except (ValueError, TypeError):
                return str(text(value))

        return read

    return ColumnReader(logical, using(json_values.text), using(plain_text))


def _of_whole(declared: str, reading: Reading) -> Callable[[int], str] | None:
    """The short way for integers; None where there is none."""
    base = types.base(declared)
    if base not in _CLOCKS:
        return _WHOLE.get(base)
    try:
        return partial(
            _CLOCKS[base], unit=_ticks(reading.time if base == "time" else reading.datetime, declared)
        )
    except ValueError:
        return None


def without_digits(logical: str) -> str:
    """A declared type without the fraction digits, which only said the unit of its numbers."""
    return types.base(logical) if types.base(logical) in ("time", "datetime", "timestamp") else logical


def plain_text(value: Any) -> str | None:
    """Any Avro value as text: the value itself, or compact JSON of what is nested."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return values.float_text(value)
    if isinstance(value, bytes):
        return values.base64_text(value)
    if isinstance(value, tuple):  # a branch of a union, with its name
        return plain_text(value[1])
    return compact(value)


def compact(value: Any) -> str:
    """Decoded values as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain_text)


def variable_decimal(value: Mapping[str, Any]) -> str:
    """A decimal that brings its own scale: ``{"scale": n, "value": bytes}``."""
    scale, unscaled = value.get("scale"), value.get("value")
    data = values.bytes_of(unscaled, "base64") if isinstance(unscaled, str) else unscaled
    if not isinstance(data, bytes):
        raise ValueError("a decimal without its value")
    return values.unscaled_text(data, int(str(scale)))


def geometry(value: Mapping[str, Any]) -> str:
    """``SRID=n;`` and base64 WKB, from a struct with ``wkb`` and maybe ``srid``."""
    wkb = value.get("wkb")
    if isinstance(wkb, bytes):
        wkb = values.base64_text(wkb)
    if not isinstance(wkb, str):
        raise ValueError("a geometry without its wkb")
    return f"SRID={value.get('srid') or 0};{wkb}"


def _integer(value: str, _declared: str, _reading: Reading) -> str:
    return str(int(values.number_text(value)))


def unwrap(image: Image | None, columns: Mapping[str, str]) -> None:
    """Correct unsigned 64-bit numbers that a typed format carried as signed ones, by the declared types."""
    for name, logical in columns.items():
        value = image.get(name) if image and logical == "uint64" else None
        if image and value and value.startswith("-") and value[1:].isdecimal():
            image[name] = str(int(value) + 2**64)


def _unwrapped(number: int) -> str:
    return str(number + 2**64 if -(2**63) <= number < 0 else number)


def _number(value: str, _declared: str, _reading: Reading) -> str:
    return values.number_text(value)


def _decimal(value: str | bytes, declared: str, reading: Reading) -> str:
    """A number's text, or unscaled bytes where ``decimal_scale`` says that texts are base64.

    Without that option a base64 text is not a number and is left: ``1234`` would be both.
    """
    parts = types.decimal_parts(declared)
    scale = parts[1] if parts else reading.decimal_scale
    if isinstance(value, bytes) and scale is not None:
        return values.unscaled_text(value, scale)
    if isinstance(value, values.Number):
        return variable_decimal(_object(value)) if value[:1] == "{" else values.number_text(value)
    if reading.decimal_scale is None or scale is None:
        return values.number_text(str(value))
    return values.unscaled_text(values.bytes_of(str(value), "base64"), scale)


def _date(value: str, _declared: str, _reading: Reading) -> str:
    if isinstance(value, values.Number):
        return values.date_text(int(value))
    return value.removesuffix("Z")


def _clock(value: str, declared: str, reading: Reading) -> str:
    form = types.base(declared)
    if not isinstance(value, values.Number):
        if form == "timestamp":
            return zoned(value, reading.timezone)
        bare = value.removesuffix("Z")
        return values.zoneless_text(bare) if form == "datetime" else bare
    return _CLOCKS[form](int(value), _ticks(reading.time if form == "time" else reading.datetime, declared))


_CLOCKS: dict[str, Callable[..., str]] = {
    "time": values.time_text,
    "datetime": values.datetime_text,
    "timestamp": values.timestamp_text,
}


def _ticks(units: str, declared: str) -> int:
    """Ticks a second: up to three declared fraction digits are sent as milliseconds, six as microseconds."""
    if units in TICKS:
        return TICKS[units]
    if not declared.endswith(")"):
        raise ValueError("nothing says what the number counts")
    digits = int(declared[-2])
    return 10**3 if digits <= 3 else 10**6 if digits <= 6 else 10**9


TICKS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def _binary(value: str | bytes, _declared: str, reading: Reading) -> str:
    return values.base64_text(value if isinstance(value, bytes) else values.bytes_of(value, reading.binary))


def _bit(value: str | bytes, _declared: str, reading: Reading) -> str:
    if isinstance(value, values.Number):
        return _BITS.get(value) or str(int(value))
    # Debezium's `binary.handling.mode` is for columns of bytes: it writes BIT(n) as base64 in every mode
    data = value if isinstance(value, bytes) else values.bytes_of(value, reading.schema_bytes)
    return values.bit_text(data, reading.bits)


_BITS = {"true": "1", "false": "0"}


def _object(value: str) -> Mapping[str, Any]:
    parsed = values.strict(value.encode())
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")
    return parsed


_DECLARED: dict[str, Callable[[Any, str, Reading], str]] = {
    **dict.fromkeys(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "year"], _integer),
    # captures carry unsigned 64-bit numbers as signed ones: 2^64-1 arrives as -1
    "uint64": lambda value, _declared, _reading: _unwrapped(int(values.number_text(value))),
    **dict.fromkeys(["float32", "float64"], _number),
    "decimal": _decimal,
    "boolean": lambda value, _declared, _reading: values.boolean_text(value),
    "date": _date,
    **dict.fromkeys(["time", "datetime", "timestamp"], _clock),
    "binary": _binary,
    "bit": _bit,
    "geometry": lambda value, _declared, _reading: geometry(_object(value)) if value[:1] == "{" else value,
}

_WHOLE: dict[str, Callable[[int], str]] = {
    **{base: str for base, convert in _DECLARED.items() if convert in (_integer, _number, _decimal, _bit)},
    "uint64": _unwrapped,
    "date": values.date_text,
}
"""What those make of integers, in one step."""
