"""What SQL Server stores for a literal, by type: from the Transact-SQL reference (Data types), not measured.

A DATETIME's text is read by the session's language unless it is one of the two ISO forms; other texts than ASCII depend on
a collation.
"""

from __future__ import annotations

import re

from ingest import types, values
from ingest.ddl.stored_mysql import scaled
from ingest.ddl.stored_oracle import filled
from ingest.ddl.tokens import Token
from ingest.values.conversions import rounded_clock

_LENGTH = re.compile(r"\((\d{1,9})\)")
_DAY = re.compile(r"\d{8}|\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,7})?")
_TIME = re.compile(r"\d\d:\d\d:\d\d(?:\.\d{1,7})?")
_DIGITS = 7  # of a second, where a type names none
_EXACT = frozenset({"integer", "decimal"})


_SYNONYMS = {
    "binary varying": "varbinary", "char varying": "varchar", "character": "char", "character varying": "varchar",
    "dec": "decimal", "double precision": "float", "integer": "int", "national character": "nchar", "national char": "nchar",
    "national character varying": "nvarchar", "national char varying": "nvarchar", "national text": "ntext",
}  # fmt: skip
"""Transact-SQL reference, Data type synonyms: the server keeps no record of them."""
_OF_SINGLE = range(1, 25)  # the bits of a FLOAT that is stored as a REAL


def system_type(declared: str) -> str:
    """A type, its name free of quotes, as the server keeps it: a synonym is its system type, and no type has the schema ``sys``."""
    name, bracket, rest = declared.partition("(")
    if name.lower().startswith("sys."):
        name = name[len("sys.") :]
    length = _LENGTH.search(declared)
    if name.lower() == "float" and length and int(length[1]) in _OF_SINGLE:
        return "real"
    return _SYNONYMS.get(name.lower(), name) + bracket + rest


def stored(literal: Token, logical: str, declared: str) -> str:
    """The canonical text of the stored value.

    Raises:
        ValueError: it is not certain.
    """
    family, text = types.base(logical), literal.text
    name = declared.lower().partition("(")[0].strip()
    if literal.kind == "hex" and name == "varbinary":
        return values.base64_text(bytes.fromhex(text))
    if literal.kind not in ("string", "number"):
        raise ValueError("SQL Server has no such literal, or its length matters")
    if family == "boolean":
        return _truth(text.strip().lower())
    if types.family(family) in _EXACT:
        number = values.number_text(text.strip())
        if scaled(number, logical) != number and types.family(family) == "integer":
            raise ValueError("a whole number is cut, not rounded")
        return scaled(number, logical)
    if family == "float64" and literal.kind == "number":
        return text
    if literal.kind == "string":
        return _of_text(text, name, declared)
    raise ValueError("the type is not known")


def _truth(text: str) -> str:
    if text in ("true", "false"):
        return text
    return "true" if int(text) else "false"


def _day(text: str) -> str:
    """A day with its hyphens, which a text of eight digits lacks."""
    return text if "-" in text else f"{text[:4]}-{text[4:6]}-{text[6:]}"


def _of_text(text: str, name: str, declared: str) -> str:
    length = _LENGTH.search(declared)
    if name in ("char", "nchar"):
        return filled(text, int(length[1]) if length else 1)
    if name in ("varchar", "nvarchar"):
        if not text.isascii():
            raise ValueError("a collation decides")
        return text
    digits = int(length[1]) if length else _DIGITS
    if name == "date" and _DAY.fullmatch(text):
        return _day(text)
    if name == "datetime2" and (_CLOCK.fullmatch(text) or _DAY.fullmatch(text)):
        clock = text if _CLOCK.fullmatch(text) else f"{_day(text)} 00:00:00"
        return rounded_clock(values.zoneless_text(clock), digits)
    if name == "time" and _TIME.fullmatch(text):
        clock = rounded_clock(text, digits)
        if clock.startswith("24"):
            raise ValueError("no time of a day, what the rounding makes of it")
        return clock
    raise ValueError("the session's language, or the type, is not known")
