"""What MySQL makes of a value when MODIFY gives its column another type."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

from tests.model.values import (
    CLOCKS,
    INTEGERS,
    WIDE,
    OwnType,
    RefusedError,
    Type,
    bounds,
    instant,
    read,
    scaled,
    wall,
    zero,
)


def convert(text: str | None, old: Type, new: Type, *, strict: bool = True) -> str | None:
    """The value after a MODIFY, as a session with strict mode or without one converts it.

    Raises:
        RefusedError: the source refuses the statement because of this value.
    """
    if text is None or old.declared == new.declared:
        return text
    if isinstance(old, OwnType):
        return old.converted(text, new)
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
    return scaled(rounded, scale)


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
    elif family in CLOCKS or family == "time":
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
    if family in CLOCKS:
        return _fitted(wall(text) if family == "timestamp" else text, new.digits)
    if family == "text" and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text):
        return text
    raise RefusedError("no date and time")


def _fitted(text: str, digits: int) -> str:
    """A clock's text rounded to its new digits, without trailing zeros."""
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
    return scaled(max(-most, min(most, rounded)), scale)


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
