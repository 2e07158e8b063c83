"""Numbers, booleans and bytes as canonical text."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from typing import Any

NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
MAX_NUMBER_LENGTH = 2000
MAX_EXPONENT = 400


def integer(value: str | None) -> int | None:
    """Text of digits as an int, else None: for positions, counters and clocks."""
    if value is None or len(value) > 100:
        return None
    if value.isdecimal() and value.isascii():  # the usual case, without a regular expression
        return int(value)
    return int(value) if INTEGER.fullmatch(value) else None


def number_text(value: str) -> str:
    """A number's text, checked for form; ``NaN`` and infinities in any source spelling are kept."""
    if NUMBER.fullmatch(value):
        return value
    not_finite = _NOT_FINITE.get(value.lower())
    if not_finite is None:
        raise ValueError(f"{value[:40]!r} is not a number")
    return not_finite


_NOT_FINITE = {
    "nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "+infinity": "Infinity", "-inf": "-Infinity",
    "-infinity": "-Infinity",
}  # fmt: skip


def boolean_text(value: str) -> str:
    """``true`` or ``false`` from the spellings that sources use."""
    word = _BOOLEANS.get(value.lower())
    if word is None:
        raise ValueError(f"{value[:40]!r} is not a boolean")
    return word


_BOOLEANS = {"true": "true", "t": "true", "1": "true", "false": "false", "f": "false", "0": "false"}


def unscaled_text(value: bytes, scale: int) -> str:
    """A decimal from its big-endian two's-complement unscaled bytes: ``04 1a 28``, 2 is ``2688.40``."""
    if len(value) > MAX_UNSCALED or abs(scale) > MAX_EXPONENT:
        raise ValueError(f"{len(value)} bytes with scale {scale} are not a decimal of any source")
    number = int.from_bytes(value, "big", signed=True)
    if scale <= 0:
        return str(number * 10**-scale)
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


MAX_UNSCALED = 512  # bytes; 1,233 digits


def float_text(value: float) -> str:
    """The shortest text that reads back as the same double."""
    return repr(value) if math.isfinite(value) else _NOT_FINITE[repr(value)]


def float32_text(value: float) -> str:
    """The shortest text that reads back as the same single-precision number (``0.1``, not its double).

    A value that is not a single-precision number keeps its text as a double.
    """
    if abs(value) <= MAX_FLOAT32:
        for digits in (6, 7, 8, 9):
            text = f"{value:.{digits}g}"
            if abs(float(text)) <= MAX_FLOAT32 and _single.unpack(_single.pack(float(text)))[0] == value:
                return repr(float(text))
    return float_text(value)


MAX_FLOAT32 = 3.4028235677973366e38  # above it a double rounds to infinity
_single = struct.Struct("<f")


# --- bytes --------------------------------------------------------------------------------------


def base64_text(value: bytes) -> str:
    """Bytes as canonical ``binary`` text."""
    return base64.b64encode(value).decode("ascii")


def bytes_of(value: str, encoding: str) -> bytes:
    """A vendor's text for bytes, by the ``binary`` option's name for the encoding.

    Args:
        value: the text as sent.
        encoding: ``base64``, ``hex``, ``base16``, ``iso8859-1``, ``int-list`` or ``utf8``.
    """
    try:
        return _BYTES[encoding](value)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not {encoding}: {error}") from None


def hex_bytes(value: str) -> bytes:
    r"""Bytes of hexadecimal digits, with ``0x`` or PostgreSQL's ``\\x`` before them, or neither."""
    return bytes.fromhex(value[2:] if value[:2] in _HEX_MARKS else value)


_HEX_MARKS = frozenset({"0x", "0X", "\\x"})


def _int_list(value: str) -> bytes:
    inner = value.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        raise ValueError("not a list of bytes")
    numbers = [int(part) for part in inner[1:-1].split(",")] if inner[1:-1].strip() else []
    if odd := [number for number in numbers if not -128 <= number <= 255]:
        raise ValueError(f"{odd[0]} is not a byte")
    return bytes(number & 0xFF for number in numbers)


_BYTES: dict[str, Callable[[str], bytes]] = {
    "base64": lambda value: base64.b64decode(value, validate=True),
    "hex": hex_bytes,
    "base16": hex_bytes,
    "iso8859-1": lambda value: value.encode("latin-1"),
    "int-list": _int_list,
    "utf8": lambda value: value.encode("utf-8"),
}


def bit_text(value: bytes, byteorder: Any = "big") -> str:
    """A bit string's bytes as unsigned integer text."""
    return str(int.from_bytes(value, byteorder))
