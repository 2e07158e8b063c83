"""What Db2 stores for a literal, by type: from the SQL reference (Assignments, ALTER TABLE), not measured."""

from __future__ import annotations

import re

from ingest import types, values
from ingest.ddl.stored_mysql import fitted, scaled
from ingest.ddl.stored_oracle import filled
from ingest.ddl.tokens import Token

_LENGTH = re.compile(r"\((\d{1,9})(?: (?:octets|codeunits\d\d))?\)", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[ T-]\d\d[:.]\d\d[:.]\d\d(?:\.\d{1,6})?")
_CHAR = frozenset({"char", "character"})
_VARCHAR = frozenset({"varchar", "character varying", "char varying"})
_EXACT = frozenset({"integer", "decimal"})
_DECFLOAT_DIGITS = 16  # of the shorter of its two lengths


def stored(literal: Token, logical: str, declared: str) -> str:
    """The canonical text of the stored value.

    Raises:
        ValueError: it is not certain.
    """
    name = " ".join(declared.lower().partition("(")[0].split())
    if literal.kind == "number":
        return _of_number(literal.text, logical, name)
    if literal.kind in ("string", "moment") and logical != "binary":  # a text's bytes depend on its code page
        return _of_text(literal.text, name, declared)
    raise ValueError("the type, or the literal, is not known")


def _of_number(text: str, logical: str, name: str) -> str:
    family = types.base(logical)
    if family == "float64":
        return text
    if types.family(family) not in _EXACT:
        raise ValueError("the type, or the literal, is not known")
    if fitted(text, logical) != text:
        raise ValueError("Db2 cuts what MySQL rounds")
    if name == "decfloat" and sum(map(str.isdigit, text)) > _DECFLOAT_DIGITS:
        raise ValueError("a mode of the database rounds it")
    return scaled(text, logical)


def _of_text(text: str, name: str, declared: str) -> str:
    length = _LENGTH.search(declared)
    if "(" in declared and length is None:
        raise ValueError("the length is not known")
    if name in _VARCHAR and text.isascii():
        return text
    if name in _CHAR:
        return filled(text, int(length[1]) if length else 1)
    if name == "date" and _DAY.fullmatch(text):
        return text
    if name == "timestamp" and not length and _CLOCK.fullmatch(text):
        return values.zoneless_text(f"{text[:10]} {text[11:19].replace('.', ':')}{text[19:]}")
    raise ValueError("the type, or the text's form, is not known")


def of_type(logical: str | None, declared: str) -> str:
    """What ``WITH DEFAULT`` without a value gives existing rows.

    Raises:
        ValueError: it is not certain.
    """
    name = " ".join(declared.lower().partition("(")[0].split())
    if logical and types.family(types.base(logical)) in _EXACT:
        return scaled("0", logical)
    if name in _VARCHAR:
        return ""  # bytes, too
    raise ValueError("blanks, the first day of the calendar, or what the type has as its own")
