"""Converters of single values that several families of formats share; the usual form of each goes fast."""

from __future__ import annotations

import datetime as dt
import re

from ingest import types, values
from ingest.errors import Undecodable


def zoned(value: str, zone: str) -> str:
    """An instant, as `ingest.values.zoned_text` reads it."""
    size = len(value)
    usual = (size == 20 and value[19] == "Z") or (size == 19 and zone == "UTC")
    if usual and value[7] == "-" and value[13] == ":" == value[16] and value[10] in " T":
        return dt.datetime.fromisoformat(value[:19]).isoformat() + "Z"
    return values.zoned_text(value, zone)


def zoneless(value: str) -> str:
    """A date and time, never shifted, only brought into canonical form."""
    usual = len(value) == 19 and value[10] == " "
    return value if usual else values.zoneless_text(value)


def base64_from(encoding: str, value: str) -> str:
    """Bytes as canonical text.

    Raises:
        ValueError: the text is not of the encoding, and no canonical text either.
        Undecodable: it is canonical text already; kept as it came, it would be taken for other bytes.
    """
    try:
        return values.base64_text(values.bytes_of(value, encoding))
    except ValueError:
        if len(value) % 4 == 0 and _BASE64.fullmatch(value):
            raise Undecodable(
                "bad-binary", f"a binary value is not {encoding}: see the option binary"
            ) from None
        raise


_BASE64 = re.compile(types.PATTERNS["binary"])
