"""What makes source values canonical: conversions that several families of formats share, and makers of them.

A *maker* takes a column's declared type and the settings and returns the column's converter, or None where the
writer's values are canonical already.  A dialect is a table of makers by logical type.  The usual form of each value
is converted the short way.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from ingest import types, values
from ingest.change import Image
from ingest.errors import Undecodable

Converter = Callable[[str], str]
"""One source value to canonical text; a `ValueError` keeps the source's own text."""


class Settings(NamedTuple):
    """The options that conversions depend on."""

    timezone: str = "UTC"
    binary: str | None = None


Maker = Callable[[str, Settings], Converter | None]
"""A column's converter from its declared type; None where nothing is to be done."""

Converters = tuple[tuple[str, Converter], ...]
LATIN = "iso8859-1"  # how Canal's own writer sends bytes as text


def convert(image: Image, converters: Converters) -> str | None:
    """Bring a row into canonical text, in place.

    What cannot be converted keeps its own text, which gold then rejects cell by cell.  Returns a
    note where bytes were lost before they were sent, which no setting can repair.
    """
    damaged = []
    for column, change in converters:
        value = image.get(column)
        if value is not None:
            try:
                image[column] = change(value)
            except (ValueError, OverflowError):
                if "\ufffd" in value:
                    damaged.append(column)
    return f"bytes were lost before they were sent (U+FFFD): {', '.join(damaged)}" if damaged else None


# --- moments ------------------------------------------------------------------------------------


def instant(_declared: str, settings: Settings) -> Converter:
    """TIMESTAMP: text in the settings' zone, or seconds since 1970 with a fraction."""
    return partial(_instant_text, settings.timezone)


def _instant_text(zone: str, value: str) -> str:
    return zoned(value, zone) if value[4:5] == "-" else values.epoch_text(value)


def zoneless(_declared: str, _settings: Settings) -> Converter:
    """DATETIME: never shifted, only brought into canonical form."""
    return zoneless_text


def truth(_declared: str, _settings: Settings) -> Converter:
    """BOOLEAN, which PostgreSQL writes as ``t`` and ``f``."""
    return values.boolean_text


# --- bytes --------------------------------------------------------------------------------------


def bytes_in(default: str) -> Maker:
    """Binary columns, in the option's encoding or else in the dialect's own."""

    def make(_declared: str, settings: Settings) -> Converter | None:
        encoding = settings.binary or default
        return None if encoding == "base64" else partial(base64_from, encoding)

    return make


def listed_or_hex(declared: str, settings: Settings) -> Converter:
    """Binary columns in the option's encoding, else a list of numbers, or hexadecimal digits where their form shows it.

    Digits without a mark are read only where MySQL has no such type: there they may be anything.
    """
    if settings.binary:
        return partial(base64_from, settings.binary)
    return _bare_hex if declared.strip().lower() in _NOT_OF_MYSQL else _marked_hex


def _bare_hex(value: str) -> str:
    return base64_from("int-list" if value.startswith("[") else "hex", value)


def _marked_hex(value: str) -> str:
    return base64_from("hex" if value[:2] in ("0x", "\\x") else "int-list", value)


_NOT_OF_MYSQL = frozenset({"bytea", "raw", "long raw", "image"})


_FIXED = re.compile(r"binary\s*(?:\(\s*(\d{1,3})\s*\))?", re.IGNORECASE)


def stored_bytes(declared: str, settings: Settings) -> Converter | None:
    """As `bytes_in`, of a writer that sends BINARY(n) as MySQL's log has it: without the zeros at its end."""
    fixed = _FIXED.fullmatch(declared.strip())
    if not fixed:
        return bytes_in(LATIN)(declared, settings)
    return partial(_padded, settings.binary or LATIN, int(fixed[1] or 1))


def _padded(encoding: str, length: int, value: str) -> str:
    return values.base64_text(bytes_from(encoding, value).ljust(length, b"\0"))


# --- what MySQL's log holds as numbers and bytes --------------------------------------------------


def label(declared: str, _settings: Settings) -> Converter | None:
    """ENUM sent as its index, which counts from 1; 0 is MySQL's mark of an invalid value."""
    labels = types.labels(declared)
    return partial(_label_text, ["", *labels]) if labels else None


def _label_text(labels: list[str], value: str) -> str:
    index = values.integer(value)
    if index is None or not 0 <= index < len(labels):
        raise ValueError("no label has this index")
    return labels[index]


def label_set(declared: str, _settings: Settings) -> Converter | None:
    """SET sent as a bit mask, whose lowest bit is the first label."""
    labels = types.labels(declared)
    return partial(_label_set_text, labels) if labels else None


def _label_set_text(labels: list[str], value: str) -> str:
    mask = values.integer(value)
    if mask is None or not 0 <= mask < 1 << len(labels):
        raise ValueError("the mask has bits without a label")
    return ",".join(name for bit, name in enumerate(labels) if mask >> bit & 1)


def geometry(_declared: str, settings: Settings) -> Converter:
    """Geometry as MySQL stores it: four bytes of SRID, lowest first, then WKB."""
    return partial(_geometry_text, settings.binary or LATIN)


def _geometry_text(encoding: str, value: str) -> str:
    stored = values.bytes_of(value, encoding)
    if len(stored) < 9 or stored[4] > 1:  # WKB begins with its byte order, 0 or 1
        raise ValueError("no geometry as MySQL stores it")
    return f"SRID={int.from_bytes(stored[:4], 'little')};{values.base64_text(stored[4:])}"


# --- single values ------------------------------------------------------------------------------


def zoned(value: str, zone: str) -> str:
    """An instant, as `ingest.values.zoned_text` reads it."""
    second, rest = value[:19], value[19:]
    is_utc = zone == "UTC" if not rest else rest in _UTC
    usual = len(second) == 19 and (is_utc or not rest)
    if usual and value[7] == "-" and value[13] == ":" == value[16] and value[10] in " T":
        dt.datetime.fromisoformat(second)  # refuses what is in no calendar
        hour = f"{value[:10]}T{value[11:13]}" if is_utc else _hour(value[:13], zone)
        if hour is not None:
            return f"{hour}{second[13:]}Z"
    return values.zoned_text(value, zone)


_UTC = frozenset({"Z", "+00:00", " +00:00"})


@lru_cache(maxsize=16_384)
def _hour(text: str, zone: str) -> str | None:
    """UTC's date and hour at an hour of a zone's clocks, because the instants of a stream are not far apart.

    None where they are not whole hours apart, or clocks are changed in that hour.
    """
    start, clock = dt.datetime.fromisoformat(text), values.zone_of(zone)
    offset, end = clock.utcoffset(start), start.replace(minute=59, second=59)
    others = {clock.utcoffset(when) for when in (end, start.replace(fold=1), end.replace(fold=1))}
    if not offset or offset % _HOUR or others != {offset}:
        return None
    try:
        return (start - offset).isoformat()[:13]
    except OverflowError:
        return None


_HOUR = dt.timedelta(hours=1)


def zoneless_text(value: str) -> str:
    """A date and time, never shifted, only brought into canonical form."""
    usual = len(value) == 19 and value[10] == " "
    return value if usual else values.zoneless_text(value)


def base64_from(encoding: str, value: str) -> str:
    """Bytes as canonical text; raises as `bytes_from`."""
    return values.base64_text(bytes_from(encoding, value))


def bytes_from(encoding: str, value: str) -> bytes:
    """The bytes that a text encodes.

    Raises:
        ValueError: the text is not of the encoding, and no canonical text either.
        Undecodable: it is canonical text already; kept as it came, it would be taken for other bytes.
    """
    try:
        return values.bytes_of(value, encoding)
    except ValueError:
        if len(value) % 4 == 0 and _BASE64.fullmatch(value):
            raise Undecodable(
                "bad-binary", f"a binary value is not {encoding}: see the option binary"
            ) from None
        raise


_BASE64 = re.compile(types.PATTERNS["binary"])
