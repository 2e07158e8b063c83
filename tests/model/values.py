"""Types of the source database: which values they hold, how SQL writes them, and how MODIFY converts them.

Values are canonical text (DESIGN: the logical types), as the source stores them. The server's zone is +08:00.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from random import Random

from ingest import types

ZONE = dt.timedelta(hours=8)
WIDE = Context(prec=80)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - counts, no instants
INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_CLOCKS = ("datetime", "timestamp")


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
        digits = f"({self.numbers[0]})" if self.numbers and self.name in _CLOCKS else ""
        return found + digits if found == self.name else found

    @property
    def digits(self) -> int:
        """Fraction digits of a time, or characters of a text."""
        return self.numbers[0] if self.numbers else 0


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
    return _scaled(Decimal(number).scaleb(-scale, WIDE), scale)


def _scaled(number: Decimal, scale: int) -> str:
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
    if kind.name in (*INTEGERS, "bit"):
        return "0"
    if kind.name == "decimal":
        return _scaled(Decimal(0), (*kind.numbers, 0, 0)[1])
    if kind.name == "enum":
        return kind.labels[0]
    return {"float": "0.0", "double": "0.0", "varchar": "", "varbinary": "", "time": "00:00:00"}.get(
        kind.name
    )


# --- MODIFY ---------------------------------------------------------------------------------------


def convert(text: str | None, old: Type, new: Type, *, strict: bool = True) -> str | None:
    """The value after a MODIFY, as a session with strict mode or without one converts it.

    Raises:
        RefusedError: the source refuses the statement because of this value.
    """
    if text is None or old.declared == new.declared:
        return text
    found = _CONVERT.get(_family(new))
    if found is None:
        raise RefusedError(f"no conversion into {new.declared} is modelled")
    try:
        return found(text, old, new)
    except RefusedError:
        loosely = None if strict else _LOOSELY.get(_family(new))
        if loosely is None:
            raise
        return loosely(text, old, new)


def _family(kind: Type) -> str:
    return _FAMILY.get(kind.name, kind.name)


_FAMILY = {
    **dict.fromkeys((*INTEGERS, "bit"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("varchar", "text", "longtext"), "text"),
}


def _number_of(text: str, old: Type) -> Decimal:
    """The number that a value is."""
    if _family(old) in ("integer", "decimal", "float", "year"):
        return Decimal(text)
    if _family(old) == "text" and re.fullmatch(r"-?\d+(\.\d+)?", text):
        return Decimal(text)
    raise RefusedError(f"{text!r} is no number")


def _to_integer(text: str, old: Type, new: Type) -> str:
    if _family(old) == "text" and not re.fullmatch(r"-?\d+", text):
        raise RefusedError(f"{text!r} is no integer")
    number = _number_of(text, old)
    if _family(old) == "float" and number % 1:
        raise RefusedError("how a half is rounded differs between servers")
    whole = int(number.quantize(Decimal(1), ROUND_HALF_UP, WIDE))
    low, high = bounds(new)
    if not low <= whole <= high:
        raise RefusedError(f"{whole} is out of range")
    return str(whole)


def _to_decimal(text: str, old: Type, new: Type) -> str:
    precision, scale = (*new.numbers, 0)[:2]
    number = _number_of(text, old)
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE)
    if abs(rounded) >= Decimal(10) ** (precision - scale):
        raise RefusedError(f"{rounded} is out of range")
    if new.unsigned and rounded < 0:
        raise RefusedError(f"{rounded} is negative")
    if _family(old) == "text" and rounded != number:
        raise RefusedError("text with more digits is truncated with a warning")
    return _scaled(rounded, scale)


def _to_float(text: str, old: Type, new: Type) -> str:
    number = float(_number_of(text, old))
    if new.name == "float" and (number * 64 % 1 or abs(number) > 2**20):
        raise RefusedError("a float's text depends on the writer")
    if _family(old) in ("integer", "decimal") and abs(number) > 2**53:
        raise RefusedError("the nearest double depends on the writer")
    return repr(number)


def _to_text(text: str, old: Type, new: Type) -> str:
    family = _family(old)
    if family == "float":
        text = text.removesuffix(".0")
    elif family in _CLOCKS or family == "time":
        text = wall(text) if family == "timestamp" else text
        whole, _, fraction = text.partition(".")
        text = f"{whole}.{fraction.ljust(old.digits, '0')}" if old.digits else whole
    elif family in ("varbinary", "json") or old.name == "bit":
        raise RefusedError("bytes are not converted here")
    if new.name == "varchar" and len(text) > new.digits:
        raise RefusedError(f"{text!r} is too long")
    return text


def _to_date(text: str, old: Type, _new: Type) -> str:
    if _family(old) == "datetime":
        return text[:10]
    if _family(old) == "text" and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return text
    raise RefusedError("no date")


def _to_datetime(text: str, old: Type, new: Type) -> str:
    family = _family(old)
    if family == "date":
        return text + " 00:00:00"
    if family in _CLOCKS:
        return _fitted(wall(text) if family == "timestamp" else text, new.digits)
    if family == "text" and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text):
        return text
    raise RefusedError("no date and time")


def _fitted(text: str, digits: int) -> str:
    """A clock's text rounded to its new digits, without zeros behind."""
    if len(text.partition(".")[2]) > digits:
        raise RefusedError("servers round or cut, as they are set")
    return text


def _to_timestamp(text: str, old: Type, new: Type) -> str:
    if _family(old) == "timestamp":
        return _fitted(text.removesuffix("Z"), new.digits) + "Z"
    found = instant(_to_datetime(text, old, new))
    if not "1970-01-02" < found < "2038-01-01":
        raise RefusedError("no instant that a TIMESTAMP holds")
    return found


def _to_time(text: str, old: Type, new: Type) -> str:
    if _family(old) == "time":
        return _fitted(text, new.digits)
    if _family(old) == "datetime":
        return _fitted(text[11:], new.digits)
    raise RefusedError("no time")


def _to_enum(text: str, old: Type, new: Type) -> str:
    if _family(old) in ("text", "enum") and text in new.labels:
        return text
    raise RefusedError(f"{text!r} is no label")


def _to_bytes(text: str, old: Type, new: Type) -> str:
    if old.name != "varbinary" or len(base64.b64decode(text)) > new.digits:
        raise RefusedError("bytes are not converted here")
    return text


# --- without strict mode ------------------------------------------------------------------------


def nothing(kind: Type) -> str:
    """What a NULL becomes where its column becomes NOT NULL."""
    if kind.name == "enum":
        return ""
    found = "0" if kind.name == "year" else "" if kind.name.endswith("text") else zero(kind)
    if found is None:
        raise RefusedError("a zero date, or this moment")
    return found


def _begun(text: str, old: Type) -> Decimal:
    """The number that a value is, or that a text begins with."""
    if _family(old) in ("integer", "decimal", "float", "year"):
        return Decimal(text)
    if _family(old) != "text":
        raise RefusedError("no conversion is modelled")
    found = re.match(r" *[+-]?\d+(\.\d+)?", text, re.ASCII)
    if found and text[found.end() : found.end() + 1] in (".", "e", "E"):
        raise RefusedError("a number that is cut in its midst")
    return Decimal(found[0].strip()) if found else Decimal(0)


def _clipped_integer(text: str, old: Type, new: Type) -> str:
    number = _begun(text, old)
    if number % 1 and _family(old) != "decimal":
        raise RefusedError("how a fraction is read differs between servers")
    low, high = bounds(new)
    if new.name == "year" or (new.declared == "bigint unsigned" and _family(old) in ("text", "float")):
        raise RefusedError("what is clipped differs between servers")
    whole = int(number.quantize(Decimal(1), ROUND_HALF_UP, WIDE))
    if new.name == "bit" and _family(old) == "decimal" and whole < 0:
        raise RefusedError("MariaDB's own zero")
    return str(high) if new.name == "bit" and whole < 0 else str(max(low, min(high, whole)))


def _clipped_decimal(text: str, old: Type, new: Type) -> str:
    precision, scale = (*new.numbers, 0)[:2]
    most = Decimal(10**precision - 1).scaleb(-scale, WIDE)
    number = _begun(text, old)
    rounded = (
        number if abs(number) > most else number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE)
    )
    return _scaled(max(-most, min(most, rounded)), scale)


def _begun_float(text: str, old: Type, new: Type) -> str:
    return _to_float(str(_begun(text, old)), read("decimal(65,30)"), new)


def _cut_text(text: str, old: Type, new: Type) -> str:
    return _to_text(text, old, read("longtext"))[: new.digits]


def _cut_bytes(text: str, old: Type, new: Type) -> str:
    if old.name != "varbinary":
        raise RefusedError("bytes are not converted here")
    return base64.b64encode(base64.b64decode(text)[: new.digits]).decode()


def _no_label(text: str, old: Type, new: Type) -> str:
    text = text.rstrip(" ")
    if _family(old) not in ("text", "enum") or text.isdecimal() or text.lower() in map(str.lower, new.labels):
        raise RefusedError("a label's number, or one in another case")
    return ""


_LOOSELY: dict[str, Callable[[str, Type, Type], str]] = {
    "integer": _clipped_integer,
    "decimal": _clipped_decimal,
    "float": _begun_float,
    "text": _cut_text,
    "enum": _no_label,
    "varbinary": _cut_bytes,
}

_CONVERT: dict[str, Callable[[str, Type, Type], str]] = {
    "integer": _to_integer,
    "year": _to_integer,
    "decimal": _to_decimal,
    "float": _to_float,
    "text": _to_text,
    "date": _to_date,
    "datetime": _to_datetime,
    "timestamp": _to_timestamp,
    "time": _to_time,
    "enum": _to_enum,
    "varbinary": _to_bytes,
}
