"""What PostgreSQL stores for a literal, by type: as the type prints the value, measured on a server."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal

from ingest import types, values
from ingest.ddl.stored_mysql import instant
from ingest.ddl.tokens import Token
from ingest.values import postgres_texts
from ingest.values.conversions import rounded_clock, rounded_number


def stored(literal: Token, logical: str, declared: str) -> str:
    """The canonical text of the stored value.

    Raises:
        ValueError: it is not certain, or PostgreSQL refuses it.
    """
    name, sizes = _parts(declared)
    if literal.kind in ("bits", "hex"):
        return _bits(literal, name, sizes)
    if literal.kind == "truth":
        if types.base(logical) != "boolean":
            raise ValueError("PostgreSQL takes no truth value for this type")
        return literal.text
    if not name:
        return literal.text
    if name.endswith("]"):
        return _array(literal.text, _parts(name.partition("[")[0])[0])
    if name in _READERS:
        return _READERS[name](literal.text, sizes)
    if logical == "unknown":
        return literal.text  # an enum, or a domain, whose type `ingest.ledgers.reach` knows
    raise ValueError(f"how {declared} prints a value is not known here")


def keeps(cast: str, declared: str) -> bool:
    """True if a cast to a type before the column's own changes no text: to the column's type, or to any text."""
    name, sizes = _parts(cast)
    column_type, own_sizes = _parts(declared)
    return (name == column_type and sizes in ([], own_sizes)) or (
        not sizes and name in ("text", "varchar", "bpchar", "unknown")
    )


def _parts(declared: str) -> tuple[str, list[int]]:
    """A type's short name and the numbers in its brackets: ``character varying(3)`` is varchar and 3."""
    lowered = " ".join(declared.lower().replace('"', "").split())
    in_brackets = "".join(re.findall(r"\(([^()]*)\)", lowered))
    sizes = [int(digits) for digits in re.findall(r"-?[0-9]+", in_brackets)]
    bare = " ".join(re.sub(r"\([^()]*\)", " ", lowered).split()).removeprefix("pg_catalog.")
    return _SHORT.get(bare, bare), sizes


_SHORT = {
    "character varying": "varchar", "char varying": "varchar", "character": "char", "decimal": "numeric", "dec": "numeric",
    "integer": "int4", "int": "int4", "smallint": "int2", "bigint": "int8", "boolean": "bool", "real": "float4",
    "double precision": "float8", "float": "float8", "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz", "time without time zone": "time", "bit varying": "varbit",
}  # fmt: skip


# --- numbers and bits -----------------------------------------------------------------------------------


def _numeric(text: str, sizes: list[int]) -> str:
    """With all fraction digits of its column; without a precision with those that it is written with."""
    number = Decimal(values.number_text(text.strip()))
    if not number.is_finite():
        return values.number_text(text.strip())
    if not sizes:
        return f"{number:f}" if number else f"{abs(number):f}"
    return rounded_number(str(number), sizes[1] if len(sizes) > 1 else 0)


def _whole(bits: int) -> Callable[[str, list[int]], str]:
    def read(text: str, _sizes: list[int]) -> str:
        rounded = rounded_number(values.number_text(text.strip()), 0)
        if not -(2**bits) <= int(rounded) < 2**bits:
            raise ValueError("out of range")
        return rounded

    return read


def _float(text: str, _sizes: list[int]) -> str:
    return values.number_text(text.strip())


def _bits(literal: Token, name: str, sizes: list[int]) -> str:
    """B'101' and X'1F' are bit strings."""
    text = literal.text
    if literal.kind == "hex":
        text = f"{int(text, 16):0{4 * len(text)}b}" if text else ""
    return _bit_string(text, sizes) if name == "bit" else _varbit(text, sizes)


def _bit_string(text: str, sizes: list[int]) -> str:
    if not re.fullmatch("[01]+", text) or len(text) != (sizes[0] if sizes else 1):
        raise ValueError("not as many bits as the column has")
    return text


def _varbit(text: str, _sizes: list[int]) -> str:
    if not re.fullmatch("[01]*", text):
        raise ValueError("no bits")
    return text


def _boolean(text: str, _sizes: list[int]) -> str:
    """Any beginning of true, false, yes, no, on and off that is one of them alone."""
    word = text.strip().lower()
    truths = {
        truth for words, truth in _TRUTHS for spelling in words.split() if word and spelling.startswith(word)
    }
    if len(truths) != 1 or word == "o":
        raise ValueError("no truth value")
    return truths.pop()


_TRUTHS = (("true yes on 1", "true"), ("false no off 0", "false"))


# --- texts and bytes ------------------------------------------------------------------------------------


def _text(text: str, _sizes: list[int]) -> str:
    return text


def _varchar(text: str, sizes: list[int]) -> str:
    """Blanks beyond the length are cut; other characters there are an error."""
    if not sizes or len(text) <= sizes[0]:
        return text
    if text[sizes[0] :].strip(" "):
        raise ValueError("too long")
    return text[: sizes[0]]


def _char(text: str, sizes: list[int]) -> str:
    size = sizes or [1]
    return _varchar(text, size).ljust(size[0])


def _bpchar(text: str, sizes: list[int]) -> str:
    return _char(text, sizes) if sizes else text


def _bytea(text: str, _sizes: list[int]) -> str:
    if text.startswith("\\x"):
        return values.base64_text(bytes.fromhex(text[2:]))
    raw = re.sub(
        rb"\\(?:\\|([0-3][0-7]{2}))",
        lambda match: bytes([int(match[1], 8)]) if match[1] else b"\0\\",
        text.encode(),
    )
    if b"\\" in raw.replace(b"\0\\", b""):
        raise ValueError("a backslash that begins nothing")
    return values.base64_text(raw.replace(b"\0\\", b"\\"))


def _of_text(convert: Callable[[str], str]) -> Callable[[str, list[int]], str]:
    return lambda text, _sizes: convert(text)


def _range(text: str, _sizes: list[int]) -> str:
    """Of whole numbers, as a half open one."""
    match = re.fullmatch(r"\s*([\[(])\s*(-?[0-9]{1,18})\s*,\s*(-?[0-9]{1,18})\s*([\])])\s*", text)
    if match is None:
        raise ValueError("no range with two bounds")
    low, high = int(match[2]) + (match[1] == "("), int(match[3]) + (match[4] == "]")
    if low > high:
        raise ValueError("no range")
    return f"[{low},{high})" if low < high else "empty"


def _array(text: str, of: str) -> str:
    """Empty, or of whole numbers or plain words: other elements may need quotes, or another form."""
    braced = text.strip()
    if not (braced[:1] == "{" and braced[1:].endswith("}")):
        raise ValueError("no array")
    inside = braced[1:-1].strip()
    parts = [part.strip() for part in inside.split(",")] if inside else []
    element = _ELEMENTS.get(of)
    if parts and (
        element is None or not all(element.fullmatch(part) and part.lower() != "null" for part in parts)
    ):
        raise ValueError("elements whose form is not known here")
    return "{" + ",".join(parts) + "}"


_ELEMENTS = {
    **dict.fromkeys(["int2", "int4", "int8"], re.compile(r"-?(?:0|[1-9][0-9]{0,17})")),
    **dict.fromkeys(["text", "varchar"], re.compile(r"[A-Za-z0-9_]+")),
}


# --- dates and times ------------------------------------------------------------------------------------

_DAY = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?"


def _date(text: str, _sizes: list[int]) -> str:
    day = re.fullmatch(_DAY, text.strip()) or re.fullmatch(r"([0-9]{4})([0-9]{2})([0-9]{2})", text.strip())
    if day is None:
        raise ValueError("another form than ISO's: the session decides")
    return dt.date(*map(int, day.groups())).isoformat()


def _time(text: str, sizes: list[int]) -> str:
    match = re.fullmatch(_CLOCK, text.strip())
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise ValueError("no time of a day")
    clock = f"{int(match[1]):02}:{match[2]}:{match[3] or '00'}{values.fraction(match[4] or '')}"
    return rounded_clock(clock, sizes[0] if sizes else 6)


def _timestamp(text: str, sizes: list[int]) -> str:
    match = re.fullmatch(rf"({_DAY})(?:[ T]({_CLOCK}))?", text.strip())
    if match is None:
        raise ValueError("another form than ISO's: the session decides")
    clock = _time(match[5], []) if match[5] else "00:00:00"
    return _rounded(f"{_date(match[1], [])} {clock}", sizes)


def _timestamptz(text: str, sizes: list[int]) -> str:
    return _rounded(instant(text.strip()), sizes)


def _rounded(moment: str, sizes: list[int]) -> str:
    """Half away from the year 2000, where its count of time begins: before it a half is refused."""
    digits = sizes[0] if sizes else 6
    dropped = moment.removesuffix("Z").partition(".")[2][digits:]
    if moment < "2000" and dropped.rstrip("0") == "5":
        raise ValueError("a half before 2000")
    return rounded_clock(moment, digits)


_READERS: dict[str, Callable[[str, list[int]], str]] = {
    "numeric": _numeric,
    "int2": _whole(15), "int4": _whole(31), "int8": _whole(63),
    "float4": _float, "float8": _float,
    "bool": _boolean,
    **dict.fromkeys(["text", "citext", "json", "varchar2"], _text),
    "varchar": _varchar, "char": _char, "bpchar": _bpchar,
    "bytea": _bytea,
    **{function.__name__: _of_text(function) for function in (postgres_texts.jsonb, postgres_texts.uuid, postgres_texts.inet,
                                               postgres_texts.cidr, postgres_texts.macaddr)},
    "bit": _bit_string, "varbit": _varbit,
    "int4range": _range, "int8range": _range,
    "date": _date, "time": _time, "timestamp": _timestamp, "timestamptz": _timestamptz,
}  # fmt: skip
