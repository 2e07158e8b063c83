"""Converters of single values that several families of formats share; the usual form of each goes fast."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache

from ingest import types, values
from ingest.errors import Undecodable


def zoned(value: str, zone: str) -> str:
    """An instant, as `ingest.values.zoned_text` reads it."""
    size = len(value)
    usual = size == 19 or (size == 20 and value[19] == "Z")
    if usual and value[7] == "-" and value[13] == ":" == value[16] and value[10] in " T":
        second = value[:19]
        dt.datetime.fromisoformat(second)  # refuses what is in no calendar
        hour = f"{value[:10]}T{value[11:13]}" if size == 20 or zone == "UTC" else _hour(value[:13], zone)
        if hour is not None:
            return f"{hour}{second[13:]}Z"
    return values.zoned_text(value, zone)


@lru_cache(maxsize=16_384)
def _hour(text: str, zone: str) -> str | None:
    """UTC's date and hour at an hour of a zone's clocks, for the instants of a stream are not far apart.

    None where they are not whole hours apart, or no longer so when the hour ends.
    """
    start, clock = dt.datetime.fromisoformat(text), values.zone_of(zone)
    offset = clock.utcoffset(start)
    if not offset or offset % _HOUR or offset != clock.utcoffset(start.replace(minute=59, second=59)):
        return None
    try:
        return (start - offset).isoformat()[:13]
    except OverflowError:
        return None


_HOUR = dt.timedelta(hours=1)


def zoneless(value: str) -> str:
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
