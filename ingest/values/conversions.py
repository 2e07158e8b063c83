"""What a database does to the values of a column whose type it changes.

``ALTER TABLE ... MODIFY`` converts the rows that exist, and no message says so: DECIMAL(10,4) to (10,2)
rounds, FLOAT to DOUBLE shows the single's exact value.  `conversion` gives the rule for a pair of types where it
is certain.  It is not where the session decides (a time zone, today's date), or a column's character set, or the
numbers of an ENUM's labels.  The rules are MySQL's; for other databases only those hold that all share.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from ingest import types
from ingest.values.cells import float32
from ingest.values.numbers_and_bytes import MAX_EXPONENT, MAX_NUMBER_LENGTH, NUMBER, float32_text, float_text

Convert = Callable[[str], str]
_EXACT = Context(prec=2 * MAX_NUMBER_LENGTH)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a column's values change with its type.

    Args:
        convert: a text of the old type as one of the new type; a text that it does not know stays as it is.
        certain: False if the database's result cannot be known from the text.
        respells: True if only the text changes, not the value: it matters where a mirror keeps texts.
    """

    convert: Convert | None = None
    certain: bool = True
    respells: bool = False

    def of(self, text: str) -> str:
        """The value after the statement; a text that no value of the old type has stays as it is."""
        try:
            return self.convert(text) if self.convert else text
        except (ValueError, ArithmeticError):
            return text

    def changes(self, *, texts: bool) -> bool:
        """True if values change; where a mirror keeps ``texts``, another spelling is another value."""
        return self.convert is not None and (texts or not self.respells)


KEEP = Conversion()
UNKNOWN = Conversion(certain=False)


def conversion(old: str, new: str, declared: str = "", *, mysql: bool = True) -> Conversion:
    """The rule for values of a logical type ``old`` (``unknown`` if nothing says it) in a column that is now ``new``.

    Args:
        old: logical type before.
        new: logical type after.
        declared: the new type as the source wrote it, which shows fraction digits and CHAR.
        mysql: whether the database is of MySQL's kind.
    """
    before, after = _group(old), _group(new)
    if after == "unknown":
        return KEEP if old == new else UNKNOWN
    if not mysql and (before, after) not in _SHARED and before != after:
        return UNKNOWN
    if before == "unknown":
        before = "text" if after in ("whole", "exact") else "unknown"
        if before == "unknown":
            return UNKNOWN if after in ("single", "double") else KEEP
    rule = _RULES.get((before, after))
    if rule is None:
        return KEEP if before == after and before not in _OPAQUE else UNKNOWN
    return rule(old, new, " ".join(declared.lower().split()))


_GROUPS = {
    "boolean": "boolean", "year": "year", "bit": "bit", "float32": "single", "float64": "double",
    "decimal": "exact", "string": "text", "enum": "enum", "set": "enum", "json": "json", "binary": "binary",
    "date": "date", "time": "time", "datetime": "datetime", "timestamp": "timestamp",
    "interval": "interval", "geometry": "geometry", "unknown": "unknown",
}  # fmt: skip
_OPAQUE = frozenset({"enum"})  # a list of labels may be another one
_SHARED = frozenset(
    {
        ("exact", "exact"), ("whole", "exact"), ("single", "double"), ("date", "datetime"), ("whole", "text"),
        ("text", "json"), ("json", "text"), ("unknown", "text"),
    }
)  # fmt: skip


def _group(logical: str) -> str:
    return _GROUPS.get(types.base(logical), "whole")


def _always(convert: Convert, *, certain: bool = True, respells: bool = False) -> Callable[..., Conversion]:
    def rule(_old: str, _new: str, _declared: str) -> Conversion:
        return Conversion(convert, certain, respells)

    return rule


def _keep(_old: str, _new: str, _declared: str) -> Conversion:
    return KEEP


# --- numbers --------------------------------------------------------------------------------------


def _number(text: str) -> Decimal | None:
    """A number of bounded length and size."""
    bare = text.strip(" ")
    if len(bare) > MAX_NUMBER_LENGTH or not NUMBER.fullmatch(bare):
        return None
    value = Decimal(bare)
    return value if abs(value.adjusted()) <= MAX_EXPONENT else None


def _scaled(text: str, scale: int) -> str:
    """Rounded half away from zero, with all fraction digits."""
    value = _number(text)
    if value is None:
        return text
    found = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    return f"{found or abs(found):f}"


def _clipped(text: str, new: str) -> str:
    """A whole number, or the nearest that an integer type holds: a strict session refuses the statement instead."""
    bare = text.removeprefix("-")
    unsigned, bits = new.startswith("u"), new.removeprefix("u").removeprefix("int")
    if not (bare.isdecimal() and bare.isascii() and bits.isdecimal()):
        return text
    top = 1 << (int(bits) if unsigned else int(bits) - 1)
    low, high = (0 if unsigned else -top), top - 1
    number = int(text)
    return text if low <= number <= high else str(max(low, min(high, number)))


def _into_whole(convert: Convert) -> Callable[[str, str, str], Conversion]:
    def rule(_old: str, new: str, _declared: str) -> Conversion:
        return Conversion(lambda text: _clipped(convert(text), new))

    return rule


def _narrowed(old: str, new: str, _declared: str) -> Conversion:
    if types.widens(types.delta(old), types.delta(new)):  # a negative number that becomes unsigned is refused
        return KEEP
    return Conversion(lambda text: _clipped(text, new))


def _to_exact(old: str, new: str, declared: str) -> Conversion:
    parts = types.decimal_parts(new)
    if parts is None:
        return UNKNOWN if declared.startswith(("dec", "num", "fixed")) and declared[:6] != "number" else KEEP
    scale, before = parts[1], types.decimal_parts(old)
    if before == parts:
        return KEEP
    wider = _group(old) == "whole" or (before is not None and before[1] <= scale)
    return Conversion(lambda text: _scaled(text, scale), respells=wider)


def _single_to_exact(_old: str, new: str, _declared: str) -> Conversion:
    parts = types.decimal_parts(new)
    return UNKNOWN if parts is None else Conversion(lambda text: _scaled(_widened(text), parts[1]))


def _widened(text: str) -> str:
    """A single's exact value as a double's text: 4.185 is 4.184999942779541."""
    return text if _number(text) is None else float_text(float32(text))


def _as_single(text: str) -> str:
    return text if _number(text) is None else float32_text(float32(text))


def _as_double(text: str) -> str:
    return text if _number(text) is None else float_text(float(text))


def _even(text: str) -> str:
    """A floating number as a whole one: half to even, as the processor rounds."""
    value = _number(text)
    return text if value is None else str(round(float(value)))


def _whole_to_floating(old: str, new: str, _declared: str) -> Conversion:
    if types.widens(types.delta(old), types.delta(new)):
        return KEEP
    return Conversion(_as_single if new == "float32" else _as_double)


def _year_of(text: str) -> str:
    """Of one or two digits: 1 to 69 are 2001 to 2069, 70 to 99 are 1970 to 1999."""
    if not text.isdecimal() or not 1 <= int(text) <= 99:
        return text
    return str(int(text) + (2000 if int(text) < 70 else 1900))


def _padded(old: str, _new: str, declared: str) -> Conversion:
    """A decimal as text has all its fraction digits."""
    parts = types.decimal_parts(old)
    return UNKNOWN if parts is None else Conversion(lambda text: _scaled(text, parts[1]), respells=True)


# --- text and bytes ---------------------------------------------------------------------------------


def _to_text(_old: str, _new: str, declared: str) -> Conversion:
    """CHAR is read without the spaces at its end."""
    if re.match(r"(national )?(char|nchar|character)\b(?! varying)", declared):
        return Conversion(lambda text: text.rstrip(" "))
    return KEEP


def _printed(text: str) -> str:
    """A floating number as MySQL prints it, where that is plain digits."""
    value = _number(text)
    if value is None or (value and not -5 < value.adjusted() < 15):
        return text
    return f"{value.normalize():f}" if value else "0"


def _decoded(text: str) -> str:
    """Bytes that are ASCII are the same text in every character set of a column."""
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except ValueError:
        return text


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() if text.isascii() else text


def _fixed(_old: str, _new: str, declared: str) -> Conversion:
    """BINARY(n) is filled up with zero bytes."""
    found = re.match(r"binary\s*\(\s*(\d{1,3})\s*\)", declared)
    width = int(found[1]) if found else 1 if re.match(r"binary\b", declared) else 0
    if not width:
        return KEEP
    return Conversion(lambda text: base64.b64encode(base64.b64decode(text).ljust(width, b"\0")).decode())


# --- dates and times ----------------------------------------------------------------------------------

_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)
_TIME = re.compile(r"(-?)(\d{2,3}):(\d{2}):(\d{2})(?:\.(\d+))?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _digits(declared: str) -> int:
    """The fraction digits of a declared time type: none if it does not say."""
    found = re.search(r"\(\s*(\d)\s*\)", declared)
    return int(found[1]) if found else 0


def _rounded(text: str, digits: int) -> str:
    """A date and time rounded half up to some fraction digits."""
    found = _DATETIME.fullmatch(text)
    if found is None or len((found[3] or "").rstrip("0")) <= digits:
        return text
    fraction = int(found[3][:digits] or "0") + (found[3][digits] >= "5")
    over, fraction = divmod(fraction, 10**digits)
    moment = f"{found[1]} {found[2]}"
    if over:
        try:
            moment = str(dt.datetime.fromisoformat(moment) + dt.timedelta(seconds=1))
        except (ValueError, OverflowError):  # a zero date, or the end of time
            return text
    moment = moment.replace(" ", text[10])
    return moment + (f".{fraction:0{digits}}" if digits else "") + (found[4] or "")


def named(logical: str, declared: str) -> str:
    """A logical type with the fraction digits that MySQL's declaration gives its clock: none are none."""
    name = declared.lower().partition("(")[0].strip()
    clock = name == logical and name in ("datetime", "timestamp", "time")
    return f"{logical}({_digits(declared)})" if clock else logical


def _clock_to_text(old: str, _new: str, _declared: str) -> Conversion:
    """A clock is printed with all fraction digits of its column."""
    if "(" not in old:
        return UNKNOWN
    digits = _digits(old)

    def printed(text: str) -> str:
        whole, _, fraction = text.partition(".")
        return f"{whole}.{fraction[:digits].ljust(digits, '0')}" if digits else whole

    return Conversion(printed, respells=True)


def _to_digits(old: str, new: str, declared: str) -> Conversion:
    """Where MySQL rounds to the digits declared, or to none; Oracle's own TIMESTAMP has six without saying so."""
    name = declared.partition("(")[0].strip()
    own = (types.base(new), name) == ("datetime", "timestamp") and "(" not in declared
    digits = 6 if own else _digits(declared)
    clock = name in ("datetime", "timestamp", "time")
    if not clock or digits >= 6 or ("(" in old and _digits(old) <= digits):
        return KEEP
    rounds = _rounded_time if types.base(new) == "time" else _rounded
    return Conversion(lambda text: rounds(text, digits))


def _rounded_time(text: str, digits: int) -> str:
    found = _TIME.fullmatch(text)
    if found is None or len((found[5] or "").rstrip("0")) <= digits:
        return text
    ticks = int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4])
    ticks = ticks * 10**digits + int(found[5][:digits] or "0") + (found[5][digits] >= "5")
    seconds, fraction = divmod(ticks, 10**digits)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return found[1] + clock + (f".{fraction:0{digits}}" if digits else "")


def _date_of(text: str) -> str:
    """MySQL rounds the fraction before it drops the time."""
    return _rounded(text, 0)[:10] if _DATETIME.fullmatch(text) else text


def _time_of(_old: str, _new: str, declared: str) -> Conversion:
    digits = _digits(declared)
    return Conversion(lambda text: _rounded(text, digits)[11:] if _DATETIME.fullmatch(text) else text)


def _midnight(text: str) -> str:
    return f"{text} 00:00:00" if _DATE.fullmatch(text) else text


def _number_of(text: str) -> str:
    """A date or time written as digits: 2024-01-02 is 20240102."""
    time = _TIME.fullmatch(text)
    text = _rounded_time(text, 0) if time else _rounded(text, 0)
    return str(int(("-" if text.startswith("-") else "") + re.sub(r"\D", "", text) or "0"))


_RULES: dict[tuple[str, str], Callable[[str, str, str], Conversion]] = {
    **{(one, "exact"): _to_exact for one in ("whole", "year", "exact", "double", "text")},
    ("single", "exact"): _single_to_exact,
    ("bit", "exact"): _to_exact,
    ("whole", "whole"): _narrowed,
    **{(one, "whole"): _keep for one in ("year", "bit", "boolean")},
    **{(one, "whole"): _into_whole(lambda text: _scaled(text, 0)) for one in ("exact", "text")},
    **{(one, "whole"): _into_whole(_even) for one in ("single", "double")},
    **{(one, "whole"): _always(_number_of) for one in ("date", "time", "datetime")},
    ("whole", "bit"): _keep,
    ("whole", "boolean"): _keep,
    ("boolean", "boolean"): _keep,
    ("whole", "year"): _always(_year_of),
    ("whole", "single"): _whole_to_floating,
    ("whole", "double"): _whole_to_floating,
    ("single", "double"): _always(_widened),
    **{(one, "single"): _always(_as_single) for one in ("double", "exact", "text")},
    **{(one, "double"): _always(_as_double) for one in ("exact", "text")},
    ("whole", "text"): _keep,
    ("year", "text"): _always(lambda text: text.zfill(4), respells=True),
    ("exact", "text"): _padded,
    **{(one, "text"): _to_text for one in ("text", "enum", "date", "json")},
    **{(one, "text"): _always(_printed, certain=False) for one in ("single", "double")},
    **{(one, "text"): _clock_to_text for one in ("datetime", "time")},
    ("text", "enum"): _keep,
    ("binary", "text"): _always(_decoded, certain=False),
    ("text", "binary"): _always(_encoded, certain=False),
    ("binary", "binary"): _fixed,
    ("date", "datetime"): _always(_midnight, respells=True),
    ("text", "datetime"): _always(_midnight, certain=False),
    ("datetime", "date"): _always(_date_of),
    ("text", "date"): _always(_date_of, certain=False),
    ("datetime", "time"): _time_of,
    ("datetime", "datetime"): _to_digits,
    ("timestamp", "timestamp"): _to_digits,
    ("time", "time"): _to_digits,
    ("date", "time"): _always(lambda _text: "00:00:00"),
    **{(one, "year"): _always(lambda text: str(int(text[:4])) if text[:4].isdecimal() else text)
       for one in ("date", "datetime")},
}  # fmt: skip
