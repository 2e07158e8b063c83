"""Types of Oracle: which values they hold, and how SQL writes them; from the SQL Language Reference, not measured.

Values are canonical text.  An empty text is NULL, and CHAR is filled up with blanks; a NUMBER is printed without zeros at its
end.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cache
from random import Random

from tests.model import values
from tests.model.values import OwnType, RefusedError, Type

DECLARED = (
    "NUMBER(9)", "NUMBER(18)", "NUMBER(10,2)", "NUMBER(20,6)", "NUMBER", "BINARY_DOUBLE", "VARCHAR2(20)", "VARCHAR2(40)",
    "CHAR(5)", "CHAR(8)", "CLOB", "DATE", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "RAW(20)",
)  # fmt: skip
KEYS = ("NUMBER(9)", "NUMBER(18)", "VARCHAR2(20)", "NUMBER", "CHAR(5)")
WIDER = {
    "NUMBER(9)": ("NUMBER(18)", "NUMBER"), "NUMBER(18)": ("NUMBER",), "NUMBER(10,2)": ("NUMBER(20,6)", "NUMBER"),
    "NUMBER(20,6)": ("NUMBER",), "VARCHAR2(20)": ("VARCHAR2(40)",), "CHAR(5)": ("CHAR(8)",), "DATE": ("TIMESTAMP(6)",),
}  # fmt: skip
"""Types to which a column with values may be modified."""
_LOGICAL = {
    "NUMBER(9)": "decimal(9,0)", "NUMBER(18)": "decimal(18,0)", "NUMBER(10,2)": "decimal(10,2)",
    "NUMBER(20,6)": "decimal(20,6)", "NUMBER": "decimal", "BINARY_DOUBLE": "float64", "DATE": "datetime",
    "TIMESTAMP(6)": "datetime(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE": "timestamp(6)", "RAW(20)": "binary",
}  # fmt: skip


class OracleType(OwnType):
    """A declared type of Oracle."""

    __slots__ = ()

    @property
    def logical(self) -> str:
        """The product's word for it."""
        return _LOGICAL.get(self.declared, "string")

    @property
    def has_default(self) -> bool:
        """A moment of the session's zone is none that its text tells."""
        return "LOCAL" not in self.declared

    def draw(self, random: Random) -> str:
        """A random value that is not NULL."""
        return _VALUES[self.name](self, random)

    def written(self, text: str) -> str:
        """A value in SQL."""
        if self.name in ("NUMBER", "BINARY_DOUBLE"):
            return text
        if self.name == "RAW":
            return f"HEXTORAW('{base64.b64decode(text).hex().upper()}')"
        quoted = (
            "'" + text.replace("T", " ").replace("Z", " +00:00") + "'" if self.name == "TIMESTAMP" else ""
        )
        return (
            f"TIMESTAMP {quoted}"
            if quoted
            else f"DATE '{text[:10]}'"
            if self.name == "DATE"
            else _text_literal(text)
        )

    def converted(self, text: str, new: Type) -> str:
        """What MODIFY makes of it: a column with values only grows."""
        if new.declared not in (self.declared, *WIDER.get(self.declared, ())):
            raise RefusedError("ORA-01439, ORA-01440 or ORA-01441")
        return text.ljust(new.digits) if new.name == "CHAR" else text


def _text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@cache
def read(declared: str) -> OracleType:
    """A declaration as a type."""
    found = re.match(r"([A-Z0-9_]+)(?:\(([\d,]+)\))?", declared)
    assert found is not None, declared
    numbers = tuple(int(part) for part in found[2].split(",")) if found[2] else ()
    return OracleType(declared, found[1], numbers)


def _number(kind: Type, random: Random) -> str:
    if len(kind.numbers) == 1:
        return str(random.choice((random.randint(-9, 99), 10 ** kind.numbers[0] - 1)))
    if not kind.numbers:
        return random.choice(("0", "1.5", "-7.25", "12345678901234567890.123", "1000"))
    text = values.value(values.read(f"decimal({kind.numbers[0]},{kind.numbers[1]})"), random)
    return text.rstrip("0").rstrip(".") or "0"


def _text(kind: Type, random: Random) -> str:
    text = random.choice([one for one in values.TEXTS if one])
    if kind.name == "CHAR":
        text = "".join(letter for letter in text if letter.isascii()) or "x"
        return text[: kind.digits].ljust(kind.digits)
    return text[: kind.digits] if kind.digits else text


_VALUES: dict[str, Callable[[Type, Random], str]] = {
    "NUMBER": _number,
    "BINARY_DOUBLE": lambda _kind, random: repr(random.randint(-999, 999) / 4).removesuffix(".0"),
    **dict.fromkeys(("VARCHAR2", "CHAR", "CLOB"), _text),
    "DATE": lambda _kind, random: values.value(values.read("date"), random) + " 00:00:00",
    "TIMESTAMP": lambda kind, random: values.value(
        values.read("timestamp(6)" if "LOCAL" in kind.declared else "datetime(6)"), random
    ),
    "RAW": lambda _kind, random: base64.b64encode(
        random.choice((b"\x01\xff", b"plain", random.randbytes(6)))
    ).decode(),
}
