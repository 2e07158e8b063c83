"""The value of a canonical text, and of a mirror's cell, in the form in which the checks compare them: with ``==``; and the text of each.

What a text means is said by its definition (`ingest.values.typed_values`), which Arrow's casts of whole columns only repeat: a
mistake there shows as a difference here.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
from decimal import Decimal
from typing import TYPE_CHECKING

from ingest import types
from ingest.values.typed_values import DAY, day_number, held

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = day_number("1970-01-01") * DAY


def of_text(text: str | None, logical: str) -> object:
    """The value that a mirror holds for a canonical text; None for NULL and for a text that does not fit."""
    value = None if text is None else held(logical, text)
    match types.family(logical), value:
        case "decimal", Decimal():
            return Decimal(str(text)) if value else Decimal(0)  # a zero has no digits after its point
        case "float", str() | float():
            sign = -1.0 if str(text).startswith("-") else 1.0  # of zero, too
            return _bits(math.copysign(float(value), sign), types.delta(logical))
        case "datetime", (str(date), int(micros)):
            return day_number(date) * DAY - _EPOCH + micros
        case "timestamp", int():
            return value - _EPOCH
    return value


def of_column(cells: pa.Array, delta: str) -> list[object]:
    """The values of a mirror's column as `of_text` gives them, from a column of a Delta type in Arrow."""
    import pyarrow as pa

    if delta.startswith("TIMESTAMP"):
        return _list(cells.cast(pa.timestamp("us", cells.type.tz)).cast(pa.int64()))
    if delta == "DATE":
        return _list(cells.cast(pa.string()))
    if delta in ("FLOAT", "DOUBLE"):
        return [None if number is None else _bits(number, delta) for number in cells.to_pylist()]
    return _list(cells)


def _list(cells: pa.Array) -> list[object]:
    values: list[object] = cells.to_pylist()
    return values


def text_of(value: object, delta: str) -> str:
    """The canonical text of a value that `of_column` gives."""
    if isinstance(value, _Bits):
        return repr(value.number).replace("nan", "NaN").replace("inf", "Infinity")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int) and delta.startswith("TIMESTAMP"):
        return _moment(value, "Z" if delta == "TIMESTAMP" else "")
    return str(value)


def _moment(micros: int, zone: str) -> str:
    """The canonical text of a time; one outside Python's years is shown as a number."""
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)  # noqa: DTZ001 - UTC by definition
    except OverflowError:
        return str(micros)
    text = moment.isoformat(sep="T" if zone else " ")
    return (text.rstrip("0") if "." in text else text) + zone


def shown(value: object, delta: str = "", most: int = 60) -> str:
    """A value for display."""
    if value is None:
        return "NULL"
    text = text_of(value, delta)
    if isinstance(value, _Bits):
        return text
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."


class _Bits(bytes):
    """A floating-point number as its bits: NaN equals NaN, and negative zero differs from zero."""

    number: float


def _bits(number: float, delta: str) -> object:
    code = ">f" if delta == "FLOAT" else ">d"
    made = _Bits(struct.pack(code, math.nan if math.isnan(number) else number))
    made.number = struct.unpack(code, made)[0]
    return made
