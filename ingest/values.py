"""Exact JSON, and source values turned into canonical text (no value ever passes through a float).

The canonical text of each logical type is listed in `ingest.types`.  Functions named ``*_text``
take one source value and return that text; they raise `ValueError` when the value cannot be what
the type says, and the caller decides whether to keep the original text or to reject.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from ingest.change import Image
from ingest.errors import Undecodable

Raw = msgspec.Raw
Scalar = str | None

_encode = msgspec.json.encode
_members = msgspec.json.Decoder(dict[str, Raw])
_texts = msgspec.json.Decoder(dict[str, str | None])
_items = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)

MAX_DEPTH = 100  # deeper nesting than this occurs in no dialect, and costs decoders their stack


# --- JSON ---------------------------------------------------------------------------------------


class Number(str):
    """A JSON number's own text."""

    __slots__ = ()


_anything = msgspec.json.Decoder(dict[str, Any], float_hook=Number)


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """One level of a JSON object, each value as its own bytes.

    Raises:
        Undecodable: not an object, malformed, or a name that occurs twice (``duplicate-key``).
    """
    try:
        found = _members.decode(raw)
    except Exception as error:
        raise _malformed(raw, error) from None
    if len(_encode(found)) != _length(raw):
        # Shorter: blanks or escapes, which are harmless, or a name given twice, which is not.
        _refuse_duplicates(raw)
    return found


def opened(raw: bytes) -> tuple[dict[str, Raw], str | None]:
    """One message's top level, with a note if it could be read only after `lenient` mended it.

    Raises:
        Undecodable: ``not-this-format`` for JSON that is no object, else as `members`.
    """
    try:
        return members(raw), None
    except Undecodable as error:
        if error.code != "bad-json":
            raise
        mended = lenient(raw)
        if mended != raw:
            return members(mended), "lenient: comments or trailing commas were dropped"
        _refuse_other_json(raw)
        raise


def _refuse_other_json(raw: bytes) -> None:
    if raw.lstrip()[:1] in (b"{", b""):
        return
    try:
        strict(raw)
    except Undecodable:
        return
    raise Undecodable("not-this-format", "the message is JSON, but no object")


def image(raw: bytes | Raw) -> Image:
    """A JSON object as a row image: strings as they are, numbers and booleans as their text.

    Nested objects and arrays become compact JSON text.
    """
    try:
        found = _texts.decode(raw)
    except msgspec.ValidationError:
        return bare_image(raw)
    except Exception as error:
        raise _malformed(raw, error) from None
    if len(_encode(found)) != _length(raw):
        _refuse_duplicates(raw)
    return found


def bare_image(raw: bytes | Raw) -> Image:
    """The same as `image`, faster for dialects that send bare numbers and slower for the others."""
    data = bytes(raw)
    try:
        found = _anything.decode(data)
        bare = 0
        for name, value in found.items():
            if type(value) is not str and value is not None:
                found[name] = str(value) if type(value) is Number else _bare_text(value)
                bare += 2  # the quotes that it now has
    except Exception:
        return _slow_image(data)
    # any other difference (blanks, escapes, a name twice, -0) is for the careful way to judge
    return found if len(_encode(found)) == len(data) + bare else _slow_image(data)


def _slow_image(raw: bytes) -> Image:
    return {name: text(value) for name, value in members(raw).items()}


def _bare_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise TypeError("nested")


def items(raw: bytes | Raw) -> list[Raw]:
    """The elements of a JSON array, each as its own bytes."""
    try:
        return _items.decode(raw)
    except Exception as error:
        raise _malformed(raw, error) from None


def text(raw: bytes | Raw) -> Scalar:
    """One JSON value as text or None: the string itself, or the number's, boolean's, object's text."""
    data = bytes(raw)
    first = data[:1]
    if first == b'"':
        return string(raw)
    if first == b"n":
        return None
    if first in b"{[":
        return compact(data)
    return data.decode("ascii")


def string(raw: bytes | Raw) -> str:
    """One JSON string, decoded."""
    try:
        return _string.decode(raw)
    except Exception as error:
        raise _malformed(raw, error) from None


def is_null(raw: bytes | Raw | None) -> bool:
    """True for a missing member and for JSON null."""
    return raw is None or bytes(raw) == b"null"


def compact(raw: bytes) -> str:
    """A JSON object or array as compact text, its numbers kept to the last digit."""
    return json.dumps(strict(raw), ensure_ascii=False, separators=(",", ":"), cls=_NumberEncoder)


def strict(raw: bytes | Raw) -> Any:
    """Any JSON document as Python values, numbers as `Number`, no name twice, no NaN.

    The slow and careful way: for control members and for what the fast decoders refuse.
    """
    data = bytes(raw)
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Undecodable("bad-utf8", f"byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(
            decoded,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise _malformed(data, error) from None
    if "\\u" in decoded:
        _refuse_surrogates(value)
    return value


def lenient(raw: bytes) -> bytes:
    """Mend what documents print and machines do not send: ``//`` comments and trailing commas.

    Returns the input itself where there is nothing of the kind. Strings are left alone.
    """
    return _LENIENT.sub(lambda m: m.group(1) or b"", raw)


_LENIENT = re.compile(rb'("(?:[^"\\]|\\.)*+")|//[^\r\n]*|,(?=(?:\s|//[^\r\n]*)*+[}\]])', re.DOTALL)
"""Strings (kept), comments and trailing commas; possessive, so that no input takes long."""


class _NumberEncoder(json.JSONEncoder):
    def iterencode(self, o: Any, _one_shot: bool = False) -> Any:
        return _write(o)


def _write(value: Any) -> Any:
    if isinstance(value, Number):
        yield str(value)
    elif isinstance(value, dict):
        yield "{"
        for i, (name, member) in enumerate(value.items()):
            yield ("," if i else "") + json.dumps(name, ensure_ascii=False) + ":"
            yield from _write(member)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for i, member in enumerate(value):
            if i:
                yield ","
            yield from _write(member)
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=False)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Undecodable("duplicate-key", f"the name {twice!r} occurs twice in one JSON object")
    return found


def _refuse_constant(name: str) -> None:
    raise Undecodable("bad-json", f"{name} is no JSON value")


def _refuse_surrogates(value: Any) -> None:
    try:
        _encode(value, enc_hook=str)  # str: a Number is no plain text to msgspec
    except UnicodeEncodeError:
        raise Undecodable("bad-unicode", "a lone surrogate is no character") from None


def _refuse_duplicates(raw: bytes | Raw) -> None:
    strict(raw)


def _length(raw: bytes | Raw) -> int:
    return len(raw) if type(raw) is bytes else len(memoryview(raw))


def _malformed(raw: bytes | Raw, error: BaseException) -> Undecodable:
    if isinstance(error, Undecodable):
        return error
    if isinstance(error, RecursionError):
        return Undecodable("too-deep", "the JSON is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return Undecodable("bad-utf8", f"byte {error.start} is not UTF-8")
    if bytes(raw)[:3] == b"\xef\xbb\xbf":
        return Undecodable("bad-json", "the message starts with a byte order mark")
    return Undecodable("bad-json", str(error))


# --- numbers ------------------------------------------------------------------------------------

NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
MAX_NUMBER_LENGTH = 2000
MAX_EXPONENT = 400


def integer(value: str | None) -> int | None:
    """Text of digits as an int, else None: for positions, counters and clocks."""
    if value is None or len(value) > 100 or not INTEGER.fullmatch(value):
        return None
    return int(value)


def number_text(value: str) -> str:
    """A number's text, checked for form; ``NaN`` and infinities in any source spelling are kept."""
    if NUMBER.fullmatch(value):
        return value
    known = _NOT_FINITE.get(value.lower())
    if known is None:
        raise ValueError(f"{value[:40]!r} is no number")
    return known


_NOT_FINITE = {
    "nan": "NaN",
    "inf": "Infinity",
    "infinity": "Infinity",
    "+infinity": "Infinity",
    "-inf": "-Infinity",
    "-infinity": "-Infinity",
}


def boolean_text(value: str) -> str:
    """``true`` or ``false`` from the spellings that sources use."""
    known = _BOOLEANS.get(value.lower())
    if known is None:
        raise ValueError(f"{value[:40]!r} is no boolean")
    return known


_BOOLEANS = {"true": "true", "t": "true", "1": "true", "false": "false", "f": "false", "0": "false"}


def unscaled_text(value: bytes, scale: int) -> str:
    """A decimal from its big-endian two's-complement unscaled bytes: ``04 1a 28``, 2 is ``2688.40``."""
    if len(value) > MAX_UNSCALED or abs(scale) > MAX_EXPONENT:
        raise ValueError(f"{len(value)} bytes with scale {scale} are no decimal of any source")
    number = int.from_bytes(value, "big", signed=True)
    if scale <= 0:
        return str(number * 10**-scale)
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


MAX_UNSCALED = 512  # bytes; 1,233 digits


def float_text(value: float) -> str:
    """The shortest text that reads back as the same double."""
    return _finite_text(value, repr(value))


def float32_text(value: float) -> str:
    """The shortest text that reads back as the same single-precision number (``0.1``, not its double).

    A value that is no single-precision number keeps its text as a double.
    """
    if abs(value) <= MAX_FLOAT32:
        for digits in (6, 7, 8, 9):
            found = f"{value:.{digits}g}"
            if abs(float(found)) <= MAX_FLOAT32 and _single.unpack(_single.pack(float(found)))[0] == value:
                return repr(float(found))
    return float_text(value)


MAX_FLOAT32 = 3.4028235677973366e38  # above it a double rounds to infinity
_single = struct.Struct("<f")


def _finite_text(value: float, found: str) -> str:
    return found if math.isfinite(value) else _NOT_FINITE[found]


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


def _int_list(value: str) -> bytes:
    inner = value.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        raise ValueError("not a list of bytes")
    numbers = [int(part) for part in inner[1:-1].split(",")] if inner[1:-1].strip() else []
    return bytes(number & 0xFF if -128 <= number <= 255 else _out_of_range(number) for number in numbers)


def _out_of_range(number: int) -> int:
    raise ValueError(f"{number} is no byte")


_BYTES: dict[str, Callable[[str], bytes]] = {
    "base64": lambda value: base64.b64decode(value, validate=True),
    "hex": bytes.fromhex,
    "base16": bytes.fromhex,
    "iso8859-1": lambda value: value.encode("latin-1"),
    "int-list": _int_list,
    "utf8": lambda value: value.encode("utf-8"),
}


def bit_text(value: bytes, byteorder: Any = "big") -> str:
    """A bit string's bytes as unsigned integer text."""
    return str(int.from_bytes(value, byteorder))


# --- dates and times ----------------------------------------------------------------------------

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - zone-less texts are counted from here
_EPOCH_DATE = dt.date(1970, 1, 1).toordinal()
MICROS = 1_000_000


def fraction(digits: str) -> str:
    """``.digits`` without trailing zeros, or nothing: the canonical fraction of a second."""
    digits = digits.rstrip("0")
    return "." + digits if digits else ""


@lru_cache(maxsize=8192)
def _second_text(seconds: int) -> str:
    try:
        return (EPOCH + dt.timedelta(seconds=seconds)).isoformat(" ")
    except OverflowError:
        raise ValueError(f"{seconds} seconds lie outside the years 1 to 9999") from None


def datetime_text(count: int, unit: int) -> str:
    """A zone-less moment from a count since 1970; ``unit`` is the number of ticks in a second."""
    seconds, rest = divmod(count, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0") if unit > 1 else ""
    return _second_text(seconds) + fraction(digits)


def timestamp_text(count: int, unit: int) -> str:
    """An instant from a count since 1970 UTC, as ``YYYY-MM-DDTHH:MM:SS[.f]Z``."""
    return datetime_text(count, unit).replace(" ", "T") + "Z"


def epoch_text(value: str) -> str:
    """An instant from ``seconds[.fraction]`` text (OMS and DRS write TIMESTAMP so)."""
    found = _EPOCH_NUMBER.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:40]!r} is no count of seconds")
    sign, whole, digits = found.groups()
    digits = digits or ""
    seconds = int(whole)
    if sign:
        nanos = -(seconds * 10**9 + int(digits.ljust(9, "0")))
        return timestamp_text(nanos, 10**9)
    return _second_text(seconds).replace(" ", "T") + fraction(digits) + "Z"


_EPOCH_NUMBER = re.compile(r"(-)?([0-9]{1,12})(?:\.([0-9]{1,9}))?", re.ASCII)


def date_text(days: int) -> str:
    """A date from a count of days since 1970."""
    try:
        return dt.date.fromordinal(_EPOCH_DATE + days).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"{days} days lie outside the years 1 to 9999") from None


def time_text(count: int, unit: int) -> str:
    """A time of day or span ``[-]HH:MM:SS[.f]`` from a count of ticks; hours may pass 24."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    seconds, rest = divmod(count, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0") if unit > 1 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction(digits)}"


DATETIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?", re.ASCII
)
OFFSET = re.compile(r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)", re.ASCII)


def zoneless_text(value: str) -> str:
    """``YYYY-MM-DD HH:MM:SS[.f]`` from text with a blank or a ``T`` and optional seconds."""
    found = DATETIME.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:40]!r} is no date and time")
    day, clock, digits = found.groups()
    return f"{day} {clock if len(clock) == 8 else clock + ':00'}{fraction(digits or '')}"


def zoned_text(value: str, zone: str) -> str:
    """An instant as ``...Z`` from text that carries an offset or zone name, else read in ``zone``.

    Args:
        value: ``YYYY-MM-DD HH:MM:SS[.f]`` with ``Z``, ``+08:00``, `` Asia/Shanghai`` or nothing.
        zone: the IANA zone for text without one.
    """
    found = DATETIME.match(value)
    if found is None:
        raise ValueError(f"{value[:40]!r} is no date and time")
    rest = value[found.end() :].strip()
    day, clock, digits = found.groups()
    local = dt.datetime.fromisoformat(f"{day} {clock}")
    if not rest:
        offset = zone_of(zone).utcoffset(local)
    elif OFFSET.fullmatch(rest):
        offset = _offset(rest)
    else:
        offset = zone_of(rest).utcoffset(local)
    try:
        instant = local - (offset or dt.timedelta())
    except OverflowError:
        raise ValueError(f"{value[:40]!r} lies outside the years 1 to 9999") from None
    return instant.isoformat("T") + fraction(digits or "") + "Z"


def _offset(text_: str) -> dt.timedelta:
    if text_ == "Z":
        return dt.timedelta()
    digits = text_[1:].replace(":", "").ljust(4, "0")
    span = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -span if text_[0] == "-" else span


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """An IANA zone, or `ValueError` with its name."""
    try:
        return ZoneInfo(name)
    except Exception:
        raise ValueError(f"{name[:40]!r} is no time zone") from None


def micros_of(value: int | None, unit: int) -> int | None:
    """An event time in microseconds from a count in ``unit`` ticks a second; None stays None."""
    return None if value is None else value * MICROS // unit


def wall_text(count: int, unit: int, zone: str) -> str:
    """The zone-less date and time that clocks in ``zone`` showed at an instant counted since 1970 UTC."""
    seconds, rest = divmod(count, unit)
    try:
        local = (_EPOCH_UTC + dt.timedelta(seconds=seconds)).astimezone(zone_of(zone))
    except OverflowError:
        raise ValueError(f"{seconds} seconds lie outside the years 1 to 9999") from None
    digits = str(rest).rjust(len(str(unit)) - 1, "0") if unit > 1 else ""
    return local.replace(tzinfo=None).isoformat(" ") + fraction(digits)


_EPOCH_UTC = EPOCH.replace(tzinfo=dt.UTC)


@lru_cache(maxsize=8192)
def instant_micros(value: str, zone: str) -> int:
    """Microseconds since 1970 UTC of text as in `zoned_text`; digits past the sixth are cut."""
    found = DATETIME.fullmatch(zoned_text(value, zone)[:-1])
    if found is None:
        raise ValueError(f"{value[:40]!r} is no date and time")
    day, clock, digits = found.groups()
    span = dt.datetime.fromisoformat(f"{day} {clock}") - EPOCH
    return (span.days * 86400 + span.seconds) * MICROS + int((digits or "")[:6].ljust(6, "0"))
