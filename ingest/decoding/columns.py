"""What makes one column's values canonical: a converter, made once from its declared type.

A *maker* takes the declared type and the settings and returns the converter, or None where the
writer's values are canonical already.  A dialect is a table of makers by logical type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ingest import types, values
from ingest.change import Image
from ingest.decoding import converters
from ingest.decoding.converters import base64_from, bytes_from, zoned

Converter = Callable[[str], str]
"""One source value to canonical text; a `ValueError` keeps the source's own text."""


class Settings(NamedTuple):
    """The options that conversions depend on."""

    timezone: str = "UTC"
    binary: str | None = None


Maker = Callable[[str, Settings], Converter | None]
"""A column's converter from its declared type; None where nothing is to be done."""

Converters = tuple[tuple[str, Converter], ...]


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
    return converters.zoneless


# --- bytes --------------------------------------------------------------------------------------


def bytes_in(default: str) -> Maker:
    """Binary columns, in the option's encoding or else in the dialect's own."""

    def make(_declared: str, settings: Settings) -> Converter | None:
        encoding = settings.binary or default
        return None if encoding == "base64" else partial(base64_from, encoding)

    return make


_FIXED = re.compile(r"binary\s*(?:\(\s*(\d{1,3})\s*\))?", re.IGNORECASE)


def stored_bytes_in(default: str) -> Maker:
    """As `bytes_in`, of a writer that sends BINARY(n) as MySQL's log has it: without the zeros at its end."""
    plain = bytes_in(default)

    def make(declared: str, settings: Settings) -> Converter | None:
        fixed = _FIXED.fullmatch(declared.strip())
        if not fixed:
            return plain(declared, settings)
        return partial(_padded, settings.binary or default, int(fixed[1] or 1))

    return make


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


def geometry_in(default: str) -> Maker:
    """Geometry as MySQL stores it: four bytes of SRID, lowest first, then WKB."""
    return lambda _declared, settings: partial(_geometry_text, settings.binary or default)


def _geometry_text(encoding: str, value: str) -> str:
    stored = values.bytes_of(value, encoding)
    if len(stored) < 9 or stored[4] > 1:  # WKB begins with its byte order, 0 or 1
        raise ValueError("no geometry as MySQL stores it")
    return f"SRID={int.from_bytes(stored[:4], 'little')};{values.base64_text(stored[4:])}"
