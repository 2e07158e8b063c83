"""Convert a canonical text to a Delta value in plain Python: the rule by which cells are compared.

It implements only the table of logical types and shares no code with the casts that fill the mirrors, so a mistake
there shows as a difference here.  Values of equal type compare with ``==``.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal

import pyarrow as pa

from ingest import types
from ingest.values import MAX_NUMBER_LENGTH, hex_bytes

_INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
# A bare date means its midnight.
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?)?")
_PATTERNS = dict(zip(types.PATTERNS, map(re.compile, types.PATTERNS.values()), strict=True))
_EXACT = Context(prec=5000, Emax=999999, Emin=-999999)


def of_text(text: str | None, logical: str) -> object:
    """The value that a mirror holds for a canonical text; None for NULL and for a text that does not fit."""
    delta, kind = types.delta(logical), types.family(logical)
    if text is None or delta == "STRING" or kind is None:
        return text
    if not _PATTERNS[kind].fullmatch(text):
        return None
    return _READERS[kind](text, delta)


def of_column(cells: pa.Array, delta: str) -> list[object]:
    """The values of a mirror's column as `of_text` gives them, from a column of a Delta type in Arrow."""
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


def _integer(text: str, delta: str) -> object:
    value = int(text)
    if delta in _INTEGERS:
        return value if -(1 << _INTEGERS[delta]) <= value < 1 << _INTEGERS[delta] else None
    return _decimal(text, delta)


def _decimal(text: str, delta: str) -> object:
    precision, scale = map(int, delta.removeprefix("DECIMAL(").rstrip(")").split(","))
    if len(text) > MAX_NUMBER_LENGTH:
        return None
    value = _EXACT.create_decimal(text)
    _sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = "".join(map(str, digits)).rstrip("0")
    if not whole:
        return Decimal(0)
    exponent += len(digits) - len(whole)
    fits = -exponent <= scale and len(whole.lstrip("0")) + exponent <= precision - scale
    return value if fits else None


def _float(text: str, delta: str) -> object:
    if text in ("NaN", "Infinity", "-Infinity"):
        return _bits(float(text), delta)
    if len(text) > MAX_NUMBER_LENGTH:
        return None
    try:
        number = _single(text) if delta == "FLOAT" else float(text)
    except OverflowError:
        return None
    return None if math.isinf(number) else _bits(number, delta)


def _single(text: str) -> float:
    """The nearest single-precision value of a decimal text, rounded once: through a double it would be rounded
    twice.
    """
    double = float(text)
    below, above = (_packed(math.nextafter(double, way)) for way in (-math.inf, math.inf))
    exact = _EXACT.create_decimal(text)
    if below != above and exact != _EXACT.create_decimal(double):
        return above if exact > _EXACT.create_decimal(double) else below
    return _packed(double)


def _packed(number: float) -> float:
    single: float = struct.unpack(">f", struct.pack(">f", number))[0]
    return single


def _micros(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970, in the zone's own clock or in UTC; fraction digits beyond six are cut."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i] or 0) for i in range(1, 7))
    days = _days(year, month, day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = int(((match[7] or "") + "000000")[:6])
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    if zoned:
        offset = _offset(match[8])
        if offset is None:
            return None
        seconds -= offset
    return seconds * 1_000_000 + micros


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970; None for no date of the Gregorian calendar. The year 0, which Python lacks, is as long as 400."""
    try:
        days = dt.date(year or 400, month, day).toordinal() - 719_163
    except ValueError:
        return None
    return days if year else days - 146_097


def _offset(zone: str) -> int | None:
    """Seconds east of Greenwich; None beyond 18 hours, which no zone has."""
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        return None
    return (hours * 60 + minutes) * 60 * (-1 if zone[0] == "-" else 1)


_READERS: dict[str, Callable[[str, str], object]] = {
    "boolean": lambda text, _delta: text == "true",
    "integer": _integer,
    "decimal": _decimal,
    "float": _float,
    "date": lambda text, _delta: None if _days(*map(int, text.split("-"))) is None else text,
    "datetime": lambda text, _delta: _micros(text, zoned=False),
    "timestamp": lambda text, _delta: _micros(text, zoned=True),
    "binary": lambda text, _delta: base64.b64decode(text) if len(text) % 4 == 0 else None,
    "hex": lambda text, _delta: hex_bytes(text),
}
