"""Types of PostgreSQL: which values they hold, how SQL writes them, and what ALTER COLUMN ... TYPE ... USING makes of them.

Values are canonical text (DESIGN: the logical types) where there is one, else what the server prints.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from random import Random

from tests.model import values
from tests.model.values import WIDE, OwnType, RefusedError, Type

LABELS = ("sad", "ok", "happy")
CHANGING = "feeling"  # an enumeration whose labels change
BEGINNING = ("calm", "tense")  # its first labels
ADDED = ("glad", "shy", "bored", "it's fine", "calm", "tense")  # and those of which it gets some
LONG = "a text so long that the server keeps it outside of its row " * 2
INTERVALS = ("01:30:00", "1 day 02:00:00", "3 mons", "-00:00:05")
DECLARED = (
    "smallint", "integer", "bigint", "numeric(10,2)", "numeric", "double precision", "boolean", "text", "varchar(20)",
    "varchar(40)", "char(5)", "date", "time", "timestamp", "timestamp with time zone", "interval", "bytea", "jsonb", "uuid",
    "inet", "money", "integer[]", "text[]", "mood", CHANGING,
)  # fmt: skip
KEYS = ("integer", "bigint", "varchar(20)", "text", "uuid", "numeric(10,2)")
WIDER = {
    "smallint": ("integer", "bigint", "numeric"), "integer": ("bigint", "numeric"), "bigint": ("numeric",),
    "numeric(10,2)": ("numeric",), "varchar(20)": ("varchar(40)", "text"), "varchar(40)": ("text",), "date": ("timestamp",),
}  # fmt: skip
"""Types that hold every value of another, unchanged."""
_LOGICAL = {
    "smallint": "int16", "integer": "int32", "bigint": "int64", "double precision": "float64", "boolean": "boolean",
    "date": "date", "time": "time", "timestamp": "datetime(6)", "timestamp with time zone": "timestamp(6)",
    "interval": "interval", "bytea": "binary", "jsonb": "json", "mood": "enum", CHANGING: "enum", "numeric": "decimal",
    "numeric(10,2)": "decimal(10,2)", "money": "decimal(19,2)",
}  # fmt: skip
_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_TEXTS = ("text", "varchar", "char")


class PostgresType(OwnType):
    """A declared type of PostgreSQL."""

    __slots__ = ()

    @property
    def logical(self) -> str:
        """The product's word for it; arrays, network addresses and UUIDs are texts."""
        return _LOGICAL.get(self.declared, "string")

    @property
    def has_default(self) -> bool:
        """Every type takes a literal."""
        return True

    def draw(self, random: Random) -> str:
        """A random value."""
        return _VALUES[self.name](self, random)

    def written(self, text: str) -> str:
        """A value in SQL: numbers and truths bare, all else as a text that takes the column's type."""
        if self.name in (*_BITS, "numeric", "double precision") and re.fullmatch(r"-?[\d.]+", text):
            return text
        if self.name == "boolean":
            return text
        return "'" + self.printed(text).replace("'", "''") + "'"

    def printed(self, text: str) -> str:
        """A value as the server reads and prints it."""
        if self.name == "bytea":
            return "\\x" + base64.b64decode(text).hex()
        if self.name == "timestamp with time zone":
            return text.replace("T", " ").replace("Z", "+00")
        return text

    def converted(self, text: str, new: Type) -> str:
        """What a cast to another type makes of it.

        Raises:
            RefusedError: the server refuses it, or the session decides.
        """
        if self.declared == new.declared:
            return text
        if not has_cast(self, new):
            raise RefusedError(f"no cast from {self.declared} to {new.declared} is modelled")
        return _CONVERT[new.name](self, text, new)


@cache
def read(declared: str) -> PostgresType:
    """A declaration as a type."""
    name, _, inside = declared.partition("(")
    numbers = tuple(int(part) for part in inside.rstrip(")").split(",")) if inside else ()
    return PostgresType(declared, name, numbers, {"mood": LABELS, CHANGING: BEGINNING}.get(name, ()))


def labelled(labels: Sequence[str]) -> PostgresType:
    """The enumeration whose labels change, with those that it has now."""
    return PostgresType(CHANGING, CHANGING, (), tuple(labels))


def _whole(kind: Type, random: Random) -> str:
    most = 1 << _BITS[kind.name] - 1
    small = random.randint(-9, 99)
    return str(random.choice((small, small, small, -most, most - 1, random.randint(-most, most - 1))))


def _numeric(kind: Type, random: Random) -> str:
    if kind.numbers:
        return values.value(values.read(f"decimal({kind.numbers[0]},{kind.numbers[1]})"), random)
    return random.choice(("0", "1.50", "-7.250", "12345678901234567890.123", "1e3", "NaN")).replace(
        "1e3", "1000"
    )


def _double(_kind: Type, random: Random) -> str:
    return random.choice(
        (
            str(random.randint(-99, 99)),
            repr(random.randint(-999, 999) / 4).removesuffix(".0"),
            "NaN",
            "Infinity",
        )
    )


def _text(kind: Type, random: Random) -> str:
    text = random.choice((*values.TEXTS, LONG))
    if kind.name == "char":
        return text[: kind.digits].ljust(kind.digits)
    return text[: kind.digits] if kind.digits else text


def _of_mysql(declared: str) -> Callable[[Type, Random], str]:
    return lambda _kind, random: values.value(values.read(declared), random)


def _clock(_kind: Type, random: Random) -> str:
    hour, minute, second = random.choice((0, 7, 23)), random.randint(0, 59), random.randint(0, 59)
    return f"{hour:02}:{minute:02}:{second:02}" + random.choice(("", ".5", ".000001"))


def _among(*texts: str) -> Callable[[Type, Random], str]:
    return lambda _kind, random: random.choice(texts)


_VALUES: dict[str, Callable[[Type, Random], str]] = {
    **dict.fromkeys(_BITS, _whole),
    "numeric": _numeric,
    "double precision": _double,
    "boolean": _among("true", "false"),
    **dict.fromkeys(_TEXTS, _text),
    "date": _of_mysql("date"),
    "time": _clock,
    "timestamp": _of_mysql("datetime(6)"),
    "timestamp with time zone": _of_mysql("timestamp(6)"),
    "interval": _among(*INTERVALS),
    "bytea": _of_mysql("varbinary(20)"),
    "jsonb": _among('{"a": 1}', "[]", "[1, 2.50]", '{"b": null}', '{"k": "' + LONG + '"}'),
    "uuid": _among("11111111-2222-3333-4444-555555555555", "00000000-0000-4000-8000-00000000000a"),
    "inet": _among("10.0.0.1", "192.168.0.0/24", "::1"),
    "money": lambda _kind, random: f"{random.randint(-999, 999) / 4:.2f}",
    "integer[]": _among("{}", "{1,2}", "{-7,NULL}"),
    "text[]": _among("{}", "{a,b}", '{"x y",NULL}'),
    **dict.fromkeys(("mood", CHANGING), lambda kind, random: random.choice(kind.labels)),
}


# --- casts --------------------------------------------------------------------------------------


def _number_of(old: Type, text: str) -> Decimal:
    if old.name in (*_BITS, "numeric", "double precision") or old.name in _TEXTS:
        text = text.strip(" ")
        if re.fullmatch(r"-?\d+(\.\d+)?", text):
            return Decimal(text)
    raise RefusedError(f"{text!r} is no number")


def _to_whole(old: Type, text: str, new: Type) -> str:
    number = _number_of(old, text)
    if number % 1 and (old.name in _TEXTS or old.name == "double precision"):
        raise RefusedError("a fraction in a text, or one whose half goes to the even number")
    whole = int(number.quantize(Decimal(1), ROUND_HALF_UP, WIDE))
    if not -(1 << _BITS[new.name] - 1) <= whole < 1 << _BITS[new.name] - 1:
        raise RefusedError(f"{whole} is out of range")
    return str(whole)


def _to_numeric(old: Type, text: str, new: Type) -> str:
    if text == "NaN" and old.name == "numeric":
        return text
    number = _number_of(old, text)
    if not new.numbers:
        return text.strip(" ")
    rounded = number.quantize(Decimal(1).scaleb(-new.numbers[1]), ROUND_HALF_UP, WIDE)
    if abs(rounded) >= Decimal(10) ** (new.numbers[0] - new.numbers[1]):
        raise RefusedError(f"{rounded} is out of range")
    return values.scaled(rounded, new.numbers[1])


def _to_double(old: Type, text: str, _new: Type) -> str:
    number = _number_of(old, text)
    if abs(number) > 2**53 or number * 64 % 1:
        raise RefusedError("the nearest double depends on the writer")
    return repr(float(number)).removesuffix(".0")


def _to_text(old: OwnType, text: str, new: Type) -> str:
    if old.name in ("timestamp with time zone", "money", "double precision", "time", "timestamp"):
        raise RefusedError("the session decides how it is printed, or how many digits are written")
    shown = old.printed(text) if isinstance(old, PostgresType) else text
    if old.name == "char":
        shown = shown.rstrip(" ")
    if old.name == "inet" and "/" not in shown:
        shown += "/128" if ":" in shown else "/32"  # a cast shows what the type's own output leaves out
    if new.name == "char":
        return shown[: new.digits].ljust(new.digits)
    return shown[: new.digits] if new.digits else shown


def _to_date(old: Type, text: str, _new: Type) -> str:
    if old.name == "timestamp":
        return text[:10]
    if old.name in _TEXTS and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return text
    raise RefusedError("no date")


def _to_timestamp(old: Type, text: str, _new: Type) -> str:
    if old.name == "date":
        return text + " 00:00:00"
    raise RefusedError("the session's zone decides, or it is none")


_CONVERT: dict[str, Callable[[OwnType, str, Type], str]] = {
    **dict.fromkeys(_BITS, _to_whole),
    "numeric": _to_numeric,
    "double precision": _to_double,
    **dict.fromkeys(_TEXTS, _to_text),
    "date": _to_date,
    "timestamp": _to_timestamp,
}
_NUMBERS = (*_BITS, "numeric", "double precision")
_CAST_FROM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_NUMBERS, (*_NUMBERS, *_TEXTS)),
    **dict.fromkeys(_TEXTS, tuple(_VALUES)),
    "date": ("timestamp", *_TEXTS),
    "timestamp": ("date", *_TEXTS),
}


def has_cast(old: Type, new: Type) -> bool:
    """True if there is a cast that is modelled, whatever the values."""
    return old.name in _CAST_FROM.get(new.name, ())
