"""What Oracle stores for a literal, by type: from the SQL Language Reference (Data Types, Literals), not measured.

A text for a date or a time is read by the session's NLS formats, so it is not certain; nor is a DATE's fraction.
"""

from __future__ import annotations

import re
from decimal import Decimal

from ingest import types, values
from ingest.ddl.stored_mysql import fitted, instant
from ingest.ddl.tokens import Token
from ingest.values.conversions import rounded_clock, rounded_number


def stored(literal: Token, logical: str, declared: str) -> str:
    """The canonical text of the stored value.

    Raises:
        ValueError: it is not certain.
    """
    family, text = types.base(logical), literal.text
    name, sizes = _parts(declared)
    if literal.kind == "truth":
        return text if family == "boolean" else str(int(text == "true"))
    if literal.kind == "moment":
        return _moment(text, family, sizes)
    if literal.kind not in ("string", "number"):
        raise ValueError("Oracle has no such literal")
    if family in ("decimal", "float32", "float64") or types.family(family) == "integer":
        return _number(values.number_text(text.strip()), logical, sizes)
    if family == "binary":
        return values.base64_text(bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}"))
    if name in ("char", "nchar", "character", "national character"):
        return filled(text, int(sizes[0]) if sizes else 1)
    if name in _TEXTS or (family == "unknown" and not name):
        return text
    raise ValueError("the session's formats, or the type, are not known")


_TEXTS = frozenset(
    {"varchar2", "nvarchar2", "varchar", "character varying", "char varying", "clob", "nclob", "long",
     "national character varying", "national char varying", "nchar varying"}
)  # fmt: skip


def _parts(declared: str) -> tuple[str, list[str]]:
    """A type's name and the numbers in its brackets: ``number(5,-2)`` has 5 and -2."""
    name, _, rest = declared.lower().partition("(")
    return " ".join(name.split()), re.findall(r"-?[0-9]+", rest.partition(")")[0])


def _number(text: str, logical: str, sizes: list[str]) -> str:
    if len(sizes) == 2 and int(sizes[1]) < 0:
        return rounded_number(text, int(sizes[1]))
    number = fitted(text, logical)
    return format(Decimal(number), "f") if types.family(logical) == "decimal" else number


def filled(text: str, size: int) -> str:
    """A CHAR of so many bytes or characters, which is the same only for ASCII."""
    if not text.isascii():
        raise ValueError("a character may have several bytes")
    return text.ljust(size)


def _moment(text: str, family: str, sizes: list[str]) -> str:
    digits = int(sizes[0]) if sizes else 6
    if family == "timestamp":
        return rounded_clock(instant(text), digits)
    if family != "datetime":
        raise ValueError(text)
    moment = values.zoneless_text(text if len(text) > 10 else f"{text} 00:00:00")
    return rounded_clock(moment, digits)
