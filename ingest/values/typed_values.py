"""A canonical text as the value that Spark's cast gives it, so that both folds compare keys alike.

Also why a text is not a value of its type, in words for reports.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from ingest import types
from ingest.values.numbers_and_bytes import MAX_NUMBER_LENGTH, hex_bytes

_FULL = {name: re.compile(types.PATTERNS[name], re.ASCII) for name in types.PATTERNS}
_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_MICROS = re.compile(r"(\.[0-9]{6})[0-9]+")


def value_of(logical: str, text: str) -> object:
    """The value of a text in a logical type: equal values are one key, whatever their spelling.

    A `ValueError` if the text is not a value of the type, or would be rounded or cut.
    """
    kind, delta = types.family(logical), types.delta(logical)
    if kind is None or delta == "STRING":
        return text
    if not _FULL[kind].fullmatch(text):
        raise ValueError(text)
    return _VALUES[kind](text, delta)


def fits(logical: str, text: str) -> bool:
    """True if a text is a value of a logical type."""
    try:
        value_of(logical, text)
    except (ValueError, ArithmeticError):
        return False
    return True


def held(logical: str, text: str) -> object:
    """The value that a mirror holds for a text: without the digits after the sixth of a second. None if the text does not fit."""
    is_time = types.family(logical) in ("datetime", "timestamp")
    try:
        return value_of(logical, _MICROS.sub(r"\1", text) if is_time else text)
    except (ValueError, ArithmeticError):
        return None


def _integer(text: str, delta: str) -> object:
    number = int(text)
    bits = _BITS.get(delta)
    if abs(number) >= 10**20 if bits is None else not -(1 << bits) <= number < 1 << bits:
        raise ValueError(text)
    return number


def _decimal(text: str, delta: str) -> object:
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(text)
    parts = types.decimal_parts(delta.lower())
    assert parts is not None
    _sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    while digits and not digits[-1]:
        digits, exponent = digits[:-1], exponent + 1
    digits = digits[next((i for i, digit in enumerate(digits) if digit), len(digits)) :]
    if not digits:
        return Decimal(0)
    if -exponent > parts[1] or len(digits) + exponent > parts[0] - parts[1]:
        raise ValueError(text)
    return Decimal((_sign, digits, exponent))


def _float(text: str, delta: str) -> object:
    if text in _NOT_FINITE:
        return text
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(text)
    number = float32(text) if delta == "FLOAT" else float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number + 0.0  # to SQL, -0.0 is 0.0


def float32(text: str) -> float:
    """The single nearest to a number's text; an infinity if it is too large.

    By way of a double alone, a text close to the middle of two singles could be rounded twice.
    """
    near = _single(float(text))
    if math.isinf(near):
        return near
    exact = Fraction(Decimal(text))
    close = (near, _neighbour(near, 1), _neighbour(near, -1))
    return min(close, key=lambda single: (abs(Fraction(single) - exact), _bits(single) & 1))


def _single(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _bits(single: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", single))[0])


def _neighbour(single: float, step: int) -> float:
    """The next single away from zero, or towards it; the last one has none."""
    bits = _bits(single)
    moved = struct.unpack("<f", struct.pack("<i", bits + step if bits & 0x7FFFFFFF or step > 0 else bits))[0]
    return single if math.isinf(moved) or math.isnan(moved) else float(moved)


def _date(text: str, _delta: str) -> object:
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    dt.date(year or 2000, month, day)  # year 0 is a leap year to Spark, and none to Python
    return text


def _micros_of_day(clock: str) -> int:
    """Microseconds since midnight; a bare date has no clock."""
    if not clock:
        return 0
    moment = dt.time(int(clock[:2]), int(clock[3:5]), int(clock[6:8]))
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    fraction = clock[9:].rstrip("0")
    if len(fraction) > 6:
        raise ValueError(clock)
    return seconds * 1_000_000 + int(fraction.ljust(6, "0"))


_ZONE = re.compile(r"(Z|[+-][0-9]{2}:[0-9]{2})$")


def _timestamp(text: str, _delta: str) -> object:
    zone = _ZONE.search(text)
    assert zone is not None
    date, clock = text[:10], text[11 : zone.start()]
    _date(date, "")
    return day_number(date) * DAY + _micros_of_day(clock) - _offset(zone[0])


DAY = 86_400_000_000
"""Microseconds of a day."""


def day_number(date: str) -> int:
    """The number of a date, year 0 included: that of the first day of year 1 is 1."""
    year = int(date[:4])
    # 400 years are always as many days
    return dt.date(year or 400, int(date[5:7]), int(date[8:])).toordinal() - (0 if year else 146_097)


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:])
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise ValueError(zone)
    micros = (hours * 60 + minutes) * 60_000_000
    return -micros if zone[0] == "-" else micros


def _binary(text: str, _delta: str) -> object:
    if len(text) % 4:
        raise ValueError(text)
    return base64.b64decode(text)


_VALUES: dict[str, Callable[[str, str], object]] = {
    "boolean": lambda text, _delta: text == "true",
    "integer": _integer,
    "decimal": _decimal,
    "float": _float,
    "date": _date,
    "datetime": lambda text, _delta: (_date(text[:10], ""), _micros_of_day(text[11:])),
    "timestamp": _timestamp,
    "binary": _binary,
    "hex": lambda text, _delta: hex_bytes(text),
}


# --- in words -----------------------------------------------------------------------------------

_NOUNS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "decimal": "a number",
    "float": "a number",
    "date": "a date (2024-01-31)",
    "datetime": "a date and time without zone (2024-01-31 23:59:59)",
    "timestamp": "a date and time with zone (2024-01-31T23:59:59Z)",
    "binary": "base64",
    "hex": "hexadecimal digits, two for each byte",
}


def misfits(logical: str) -> tuple[str, str]:
    """Why a text does not fit a type, in words: where its form is wrong, and where only its value is."""
    kind, delta = types.family(logical), types.delta(logical)
    noun = _NOUNS[kind or "decimal"]
    return f"not {noun}", {
        "integer": f"a number outside the range of {delta}",
        "decimal": f"a number with more digits than {delta} holds",
        "float": f"a number too large for {delta}",
        **dict.fromkeys(
            ("date", "datetime", "timestamp"),
            "not a day or time that exists; a column declared `string` under columns: keeps texts such as MySQL's zero dates",
        ),
    }.get(kind or "", f"not {noun}")
