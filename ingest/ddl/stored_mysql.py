"""What MySQL and MariaDB store for a literal, by type; measured on MariaDB, and unknown where the two differ."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from ipaddress import ip_address
from uuid import UUID

from ingest import types, values
from ingest.ddl.tokens import Token
from ingest.values import charsets
from ingest.values.conversions import conversion

_NUMBERS = ("integer", "decimal", "float")
_CLOCKS = ("datetime", "timestamp", "time")


def stored(literal: Token, logical: str, declared: str) -> str:
    """The canonical text of the stored value.

    Raises:
        ValueError: it is not certain.
    """
    text = _read(literal, logical, declared)
    family = types.base(logical)
    if (respelt := _OWN_TEXTS.get(declared.lower())) is not None:
        return respelt(text)
    if family == "enum":
        labels = [label.rstrip(" ") for label in types.labels(declared)]
        return next((label for label in labels if label.casefold() == text.rstrip(" ").casefold()), text)
    if (family in _CLOCKS or types.family(family) == "float") and conversion(
        family, family, declared
    ).doubted(text):
        raise ValueError(
            "MySQL rounds it, and MariaDB cuts it; of a binary fraction the rounding is not certain"
        )
    if family in ("string", "set", *_CLOCKS):
        return conversion(logical, logical, declared).of(text)
    return padded(text, declared) if family == "binary" else text


def in_charset(literal: Token, charset: str) -> Token:
    """Bits or hexadecimal digits as the text that their bytes are in a character set; zeros come before a part of a character.

    Raises:
        ValueError: they are none, or it is not certain.
    """
    raw = _raw(literal)
    short = -len(raw) % _WIDTHS.get(charset, 1)
    if short and charset not in ("ucs2", "utf16", "utf32"):
        raise ValueError("the last character lacks bytes")
    return literal._replace(kind="string", text=charsets.decoded(b"\0" * short + raw, charset))


_WIDTHS = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""The bytes of a character, or of half of one, by character set."""


def _uuid(text: str) -> str:
    if str(UUID(text)) != text.lower():
        raise ValueError(text)
    return text.lower()


def _address(text: str) -> str:
    if str(ip_address(text)) != text:
        raise ValueError(text)
    return text


_OWN_TEXTS = {"uuid": _uuid, "inet4": _address, "inet6": _address}
"""MariaDB's types that spell a value in one way; other spellings are left to the server."""


_LONG = re.compile(r"(?:(?:tiny|medium|long)?(?:text|blob)|long\b).*", re.IGNORECASE | re.DOTALL)


def _read(literal: Token, logical: str, declared: str) -> str:
    """A literal as a value of the type, whatever its length or digits."""
    family, text, is_number = types.base(logical), literal.text, literal.kind == "number"
    if literal.kind in ("bits", "hex"):
        return _bits(literal, family)
    if literal.kind == "truth" and family != "boolean":
        text, is_number = str(int(text == "true")), True
    if literal.kind == "unicode" and _LONG.fullmatch(declared):
        raise ValueError("MariaDB stores the digits of the bytes, MySQL the text")
    if literal.kind == "moment" and family not in _MOMENTS:
        text = _printed_moment(text)
    if is_number:
        text = _of_number(text, family)
    elif family == "bit" and literal.kind == "string":
        text = str(int.from_bytes(text.encode("ascii")))
    return scaled(_text_literal(text, family), logical)


def _of_number(text: str, family: str) -> str:
    """A number without quotes as what a column of the type takes it for."""
    if family in ("enum", "set", "json"):
        raise ValueError("the number of a label, or of labels")
    if family in ("string", "binary"):
        return _printed(text)
    if family == "bit":
        return scaled(_printed(text), "int64")
    return "0000" if family == "year" and not text.strip("0") else text  # '0' in quotes is 2000


def _printed(number: str) -> str:
    """A decimal literal as the server prints it: digits with an exponent are binary fractions, which it rounds."""
    digits = number.lstrip("+-")
    whole, _, fraction = digits.partition(".")
    if not (whole + fraction).isdigit() or (number != digits and not digits.strip("0.")):
        raise ValueError(number)
    sign = "-" if number.startswith("-") else ""
    return f"{sign}{whole.lstrip('0') or '0'}{'.' if fraction else ''}{fraction}"


def _bits(literal: Token, family: str) -> str:
    bits, text = literal.kind == "bits", literal.text
    if family == "year":
        raise ValueError(text)
    if types.family(family) in _NUMBERS:
        return str(int(text or "0", 2 if bits else 16))
    raw = _raw(literal)
    if family != "binary" and b"\0" in raw:
        raise ValueError("the table's character set may have several bytes for each character")
    return values.base64_text(raw) if family == "binary" else raw.decode("ascii")


def _raw(literal: Token) -> bytes:
    """The bytes of bits or of hexadecimal digits."""
    bits, text = literal.kind == "bits", literal.text
    number = int(text or "0", 2 if bits else 16)
    return number.to_bytes((len(text) + 7) // 8 if bits else (len(text) + 1) // 2)


def scaled(text: str, logical: str) -> str:
    """A number as a column of whole numbers, or of so many fraction digits, stores it: rounded, or with zeros after it.

    A mirror may keep it as text, where a key's ``0`` is another one than ``0.00``.
    """
    return conversion("string", logical).of(text) if types.family(logical) in ("integer", "decimal") else text


def fitted(text: str, logical: str) -> str:
    """The same without zeros, as Oracle gives its numbers: rounded if it must be."""
    number = scaled(text, logical)
    try:
        return text if types.family(logical) == "decimal" and Decimal(number) == Decimal(text) else number
    except ArithmeticError:  # NaN, or no number
        return text


def _text_literal(text: str, family: str) -> str:
    if family == "binary":
        return values.base64_text(text.encode("utf-8"))
    if family == "boolean":
        return values.boolean_text(text)
    if (read := _MOMENTS.get(family)) is not None:
        return read(text.strip())
    if types.family(family) is None:
        return text
    number = values.number_text(text.strip())
    return number.lstrip("-") if types.family(family) == "float" and not float(number) else number


def padded(base64: str, declared: str | None) -> str:
    """Bytes as BINARY(n) stores them, which CHAR(n) CHARACTER SET binary is, too: filled up with zeros."""
    size = re.fullmatch(
        r"(?:binary|char|character) ?(?:\(([0-9]{1,3})\))?(?: byte)?", (declared or "").lower()
    )
    if size is None:
        return base64
    return values.base64_text(values.bytes_of(base64, "base64").ljust(int(size[1] or 1), b"\0"))


# --- dates and times ----------------------------------------------------------------------------------


def _date(text: str) -> str:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day = (int(part) for part in match.groups())
    return dt.date(year, month, day).isoformat()


def _printed_moment(text: str) -> str:
    """What a text column stores for ``DATE '2024-1-2'`` and its like: the moment as the server prints it."""
    whole, dot, fraction = text.partition(".")
    if dot and not re.fullmatch("[0-9]{1,6}", fraction):
        raise ValueError(text)
    if _CLOCK.fullmatch(whole):
        return _time(whole) + dot + fraction
    return (_date if len(whole) < 11 and not dot else _datetime)(whole) + dot + fraction


def _datetime(text: str) -> str:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return values.zoneless_text(text if len(text) > 10 else text + " 00:00:00")
    return f"{_date(match['date'])} {_time(match['time']) if match['time'] else '00:00:00'}"


def instant(text: str) -> str:
    """A date and time with its offset, in UTC; a `ValueError` where the session's zone decides."""
    if not _OFFSET.search(text):
        raise ValueError("the session's zone is not known")
    return values.zoned_text(text, "UTC")


def _time(text: str) -> str:
    clock = _CLOCK.fullmatch(text) or _CLOCK_DIGITS.fullmatch(text)
    if clock is None:
        raise ValueError(text)
    hours, minutes, seconds = (int(clock[name] or 0) for name in ("h", "m", "s"))
    if minutes > 59 or seconds > 59:
        raise ValueError(text)
    time = f"{hours:02}:{minutes:02}:{seconds:02}{values.fraction(clock['f'] or '')}"
    return f"{clock['sign']}{time}" if time.strip("0:.") else time


def _year(text: str) -> str:
    number = int(text)
    return str(number if len(text) > 2 else number + (2000 if number < 70 else 1900))


_DATE = re.compile(r"([0-9]{4})[-/.]?([0-9]{1,2})[-/.]?([0-9]{1,2})")
_DATE_TIME = re.compile(
    r"(?P<date>[0-9]{8}|[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2})(?:[ T]?(?P<time>[0-9:.]{4,15}))?"
)
_CLOCK = re.compile(
    r"(?P<sign>-?)(?P<h>[0-9]{1,3}):(?P<m>[0-9]{1,2})(?::(?P<s>[0-9]{1,2})(?:\.(?P<f>[0-9]{1,9}))?)?"
)
_CLOCK_DIGITS = re.compile(
    r"(?P<sign>-?)(?:(?:(?P<h>[0-9]{1,3})(?=[0-9]{4}(?![0-9])))?(?P<m>[0-9]{1,2})(?=[0-9]{2}(?![0-9])))?(?P<s>[0-9]{1,2})"
    r"(?:\.(?P<f>[0-9]{1,9}))?"
)
_OFFSET = re.compile(r"(?:[0-9]Z|:[0-9]{2}(?:\.[0-9]+)? ?[+-][0-9]{2}(?::?[0-9]{2})?)\Z")
_MOMENTS = {"date": _date, "datetime": _datetime, "timestamp": instant, "time": _time, "year": _year}
