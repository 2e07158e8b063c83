"""Types of the source database: which values they hold, and how SQL writes them.

Values are canonical text (DESIGN: the logical types), as the source stores them. The server's zone is +08:00.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from random import Random

from ingest import types

ZONE = dt.timedelta(hours=8)
WIDE = Context(prec=80)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - counts, no instants
INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
CLOCKS = ("datetime", "timestamp")


class RefusedError(Exception):
    """The source refuses the statement: nothing changes, and nothing is logged."""


@dataclass(frozen=True, slots=True)
class Type:
    """A declared type of MySQL, read once."""

    declared: str
    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    unsigned: bool = False

    @property
    def logical(self) -> str:
        """The product's word for it, with the digits that the declaration gives."""
        found = types.mysql(self.declared)
        digits = f"({self.numbers[0]})" if self.numbers and self.name in CLOCKS else ""
        return found + digits if found == self.name else found

    @property
    def digits(self) -> int:
        """Fraction digits of a time, or characters of a text."""
        return self.numbers[0] if self.numbers else 0

    @property
    def has_default(self) -> bool:
        """True if a column of the type takes a literal DEFAULT whose value does not depend on the session."""
        return self.name not in ("text", "json", "timestamp")


class OwnType(Type):
    """A type of a server other than MySQL, which knows its values itself."""

    __slots__ = ()

    @abstractmethod
    def draw(self, random: Random) -> str:
        """A random value."""

    @abstractmethod
    def written(self, text: str) -> str:
        """A value in SQL."""

    @abstractmethod
    def converted(self, text: str, new: Type) -> str:
        """What a value becomes as one of another type."""


@cache
def read(declared: str) -> Type:
    """A declaration as `Type`."""
    head = re.match(r"(\w+)", declared)
    assert head is not None, declared
    name = head[1].lower()
    if name in ("enum", "set"):
        labels = [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", declared)]
        return Type(declared, name, (), tuple(labels))
    inside = re.search(r"\(([\d, ]*)\)", declared)
    numbers = tuple(int(part) for part in inside[1].split(",")) if inside else ()
    return Type(declared, name, numbers, (), "unsigned" in declared.lower())


# --- values -------------------------------------------------------------------------------------

TEXTS = ("", "plain", "null", "1.10", "7", "ä北🚚", 'quo"te', "it's", "back\\slash", "x y", "007", "12")


def value(kind: Type, random: Random) -> str:
    """A random value of a type."""
    if isinstance(kind, OwnType):
        return kind.draw(random)
    return _VALUES[kind.name](kind, random)


def bounds(kind: Type) -> tuple[int, int]:
    """The least and the largest number of an integer type, BIT or YEAR."""
    if kind.name == "bit":
        return 0, (1 << (kind.digits or 1)) - 1
    if kind.name == "year":
        return 1901, 2155
    bits = INTEGERS[kind.name]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _integer(kind: Type, random: Random) -> str:
    low, high = bounds(kind)
    small = random.randint(max(low, -9), min(high, 99)) if kind.name != "year" else 2024
    return str(random.choice((small, small, small, low, high, random.randint(low, high))))


def _decimal(kind: Type, random: Random) -> str:
    precision, scale = (*kind.numbers, 10, 0)[:2] if len(kind.numbers) != 1 else (kind.numbers[0], 0)
    digits = random.choice((2, scale + 1, precision, precision))
    number = random.randint(0, 10 ** min(digits, precision) - 1) * random.choice((1, 1, -1))
    return scaled(Decimal(number).scaleb(-scale, WIDE), scale)


def scaled(number: Decimal, scale: int) -> str:
    text = f"{number:.{scale}f}"
    return text.removeprefix("-") if not number else text


def _double(_kind: Type, random: Random) -> str:
    return repr(random.randint(-999, 999) / 4)


def _text(kind: Type, random: Random) -> str:
    found = random.choice(TEXTS)
    return found[: kind.digits] if kind.digits else found


def _day(random: Random) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(  # noqa: DTZ001
        days=random.randint(-9000, 3000), seconds=random.choice((0, 1, 86_399, random.randint(0, 86_399)))
    )


def _fraction(digits: int, random: Random) -> str:
    text = str(random.randint(0, 10**digits - 1)).rjust(digits, "0") if digits else ""
    text = random.choice(("", text)).rstrip("0")
    return "." + text if text else ""


def _datetime(kind: Type, random: Random) -> str:
    return _day(random).isoformat(" ") + _fraction(kind.digits, random)


def _timestamp(kind: Type, random: Random) -> str:
    return _day(random).isoformat() + _fraction(kind.digits, random) + "Z"


def _time(kind: Type, random: Random) -> str:
    hours, minutes, seconds = random.choice((0, 7, 23, 99)), random.randint(0, 59), random.randint(0, 59)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}" + _fraction(kind.digits, random)


def _binary(kind: Type, random: Random) -> str:
    raw = random.choice((b"", b"\x01\xff", b"plain", random.randbytes(6)))
    return base64.b64encode(raw[: kind.digits]).decode()


_VALUES: dict[str, Callable[[Type, Random], str]] = {
    **dict.fromkeys((*INTEGERS, "bit", "year"), _integer),
    "decimal": _decimal,
    **dict.fromkeys(("float", "double"), _double),
    **dict.fromkeys(("varchar", "text", "longtext"), _text),
    "date": lambda _kind, random: _day(random).date().isoformat(),
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "varbinary": _binary,
    "enum": lambda kind, random: random.choice(kind.labels),
    "json": lambda _kind, random: random.choice(('{"a": 1}', "[]", "[1, 2.5]")),
}


def literal(kind: Type, text: str | None) -> str:
    """A value in SQL, for a session whose zone is the server's."""
    if text is None:
        return "NULL"
    if isinstance(kind, OwnType):
        return kind.written(text)
    if kind.name in (*INTEGERS, "bit", "year", "decimal"):
        return text
    if kind.name in ("float", "double"):
        return f"{text}e0"
    if kind.name == "varbinary":
        raw = base64.b64decode(text)
        return f"x'{raw.hex()}'" if raw else "''"
    if kind.name == "timestamp":
        text = wall(text)
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def wall(text: str) -> str:
    """An instant as the server's clock shows it."""
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    return (dt.datetime.fromisoformat(whole) + ZONE).isoformat(" ") + dot + fraction


def instant(text: str) -> str:
    """A clock's text of the server as an instant."""
    whole, dot, fraction = text.partition(".")
    return (dt.datetime.fromisoformat(whole) - ZONE).isoformat() + dot + fraction + "Z"


def zero(kind: Type) -> str | None:
    """What a NOT NULL column without a default gives the rows that are there already; None if it is refused."""
    if isinstance(kind, OwnType):
        return None
    if kind.name in (*INTEGERS, "bit"):
        return "0"
    if kind.name == "decimal":
        return scaled(Decimal(0), (*kind.numbers, 0, 0)[1])
    if kind.name == "enum":
        return kind.labels[0]
    return {"float": "0.0", "double": "0.0", "varchar": "", "varbinary": "", "time": "00:00:00"}.get(
        kind.name
    )
