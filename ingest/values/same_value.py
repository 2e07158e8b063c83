"""Whether two texts are the same value of a type, whichever way a source has written them."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation

from ingest import types
from ingest.values.typed_values import value_of


def same_value(logical: str, said: str | None, had: str | None) -> bool:
    """True if two texts are the same value of a type, whichever way they were written.

    A number may be written with more zeros, a JSON text by another program, a FLOAT with the six digits that MySQL prints,
    a time with fraction digits beyond those that a mirror keeps.
    """
    if said == had:
        return True
    if said is None or had is None:
        return False
    kind = types.base(logical)
    try:
        if kind in _BY_KIND:
            return _BY_KIND[kind](said) == _BY_KIND[kind](had)
        return value_of(logical, said) == value_of(logical, had)
    except (ValueError, ArithmeticError, RecursionError):
        return False


def _json(text: str) -> object:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def _clock(text: str) -> str:
    """A time without the fraction digits that a mirror cuts, and without zeros at the end of those that it keeps."""
    whole, point, rest = text.partition(".")
    if not point:
        return text
    zone = rest.lstrip("0123456789")
    kept = rest.removesuffix(zone)[:6].rstrip("0")
    return f"{whole}.{kept}{zone}" if kept else whole + zone


def _instant(text: str) -> object:
    return value_of("timestamp", _clock(text))


def _single(text: str) -> object:
    value = value_of("float32", text)
    return f"{value:.6g}" if isinstance(value, float) else value


def _number(text: str) -> object:
    """A number's or a document's value, else the text."""
    if text[:1] in "{[":
        try:
            return _json(text)
        except ValueError:
            return text
    try:
        return Decimal(text) if len(text) <= _DIGITS and _NUMBER.fullmatch(text) else text
    except InvalidOperation:
        return text


_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_DIGITS = 400
_BY_KIND = {
    "json": _json,
    "datetime": _clock,
    "timestamp": _instant,
    "time": _clock,
    "float32": _single,
    "decimal": _number,  # of any precision: a mirror may keep it as text
    "unknown": _number,
}
