"""Lossless JSON for verbs and the service: every digit, bytes in base64, no terminal control characters."""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec

_DRIVING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def encoded(value: Any, indent: int = 0) -> bytes:
    """A value as one JSON document; terminal and bidirectional control characters are escaped."""
    document = _ENCODER.encode(value)
    if indent:
        document = msgspec.json.format(document, indent=indent)
    if document.isascii() and b"\x7f" not in document:
        return document
    return _DRIVING.sub(lambda match: f"\\u{ord(match[0]):04x}", document.decode()).encode()


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return str(value)


_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=_as_json)
