"""What a database does to the values of a column whose type it changes.

``ALTER TABLE ... MODIFY`` converts the rows that exist, and no message says so: DECIMAL(10,4) to (10,2)
rounds, FLOAT to DOUBLE shows the single's exact value.  `conversion` gives the rule for a pair of types where it
is certain.  It is not where the session decides (a time zone, today's date), or the numbers of an ENUM's labels, or
a character set of which it is not known what characters it has.  The rules are MySQL's; for other databases only those hold that all share.

A value that does not fit the new type is cut or clipped: only a session without strict mode does so, and a strict
one would have refused the statement, so that no message would mention it.  Where MySQL and MariaDB give a value another
result, or an unknown character set decides, the value is `Conversion.doubted`.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple

import msgspec

from ingest import types
from ingest.values import charsets, postgres_texts
from ingest.values.numbers_and_bytes import (
    MAX_EXPONENT,
    MAX_NUMBER_LENGTH,
    NUMBER,
    base64_text,
    float32_text,
    float_text,
)
from ingest.values.typed_values import float32

Convert = Callable[[str], str]
_EXACT = Context(prec=2 * MAX_NUMBER_LENGTH)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a column's values change with its type.

    Args:
        convert: a text of the old type as one of the new type; a text that it does not know stays as it is.
        certain: False if the database's result cannot be known from the text.
        respells: True if only the text changes, not the value: it matters where a mirror keeps texts.
        doubts: True of a text whose result databases of one kind do not share.
    """

    convert: Convert | None = None
    certain: bool = True
    respells: bool = False
    doubts: Callable[[str], bool] | None = None

    def of(self, text: str) -> str:
        """The value after the statement; a text that no value of the old type has stays as it is."""
        try:
            return self.convert(text) if self.convert else text
        except (ValueError, ArithmeticError):
            return text

    def doubted(self, text: str) -> bool:
        """True if the database's result for this text is not sure."""
        try:
            return self.doubts is not None and self.doubts(text)
        except (ValueError, ArithmeticError):
            return True

    def alters(self, text: str, *, texts: bool) -> bool:
        """True if the statement gives this value another; where a mirror keeps ``texts``, another spelling is one."""
        new = self.of(text)
        if new == text or texts:
            return new != text
        old_number, other = _number(text), _number(new)
        return not self.respells if old_number is None or other is None else old_number != other

    def changes(self, *, texts: bool) -> bool:
        """True if values change; where a mirror keeps ``texts``, another spelling is another value."""
        return self.convert is not None and (texts or not self.respells)


KEEP = Conversion()
UNKNOWN = Conversion(certain=False)


def conversion(old: str, new: str, declared: str = "", *, dialect: str = "mysql") -> Conversion:
    """The rule for values of a logical type ``old`` (``unknown`` if nothing says it) in a column that is now ``new``.

    Args:
        old: logical type before.
        new: logical type after.
        declared: the new type as the source wrote it, with fraction digits, lengths, labels and CHAR, and its character set if that changes
            (`in_charset`).
        dialect: the database's kind, as `ingest.ddl` names it; empty if nothing says it.
    """
    words = " ".join(declared.split())
    old, filled = types.unfilled(old)
    if _group(new) == "unknown":
        return KEEP if old == new else UNKNOWN
    if dialect != "mysql":
        return _of_others(old, new, words.lower(), dialect)
    words, _, charset = f" {words}".partition(_CHARSET)
    words = words.strip()
    return _in_charset(_of_mysql(old, new, words, filled), old, new, words, charset)


def _of_mysql(old: str, new: str, words: str, filled: int | None) -> Conversion:
    """The rule of two types; ``filled`` is the width to which ZEROFILL fills the old one's digits, 0 if not known."""
    before, after = _group(old), _group(new)
    if before == "unknown":
        return _of_unknown(new, words)
    rule = _RULES.get((before, after))
    if rule is None:
        return KEEP if before == after else UNKNOWN
    converted = rule(old, new, words if after == "enum" else words.lower())
    if filled is not None and after == "text":
        converted = _zero_filled(converted, filled) if filled else UNKNOWN
    return _limited(converted, old, new, words.lower())


_CHARSET = " character set "
UNSAID = "unsaid"  # the character set of a table whose name nothing has said


def in_charset(declared: str, charset: str) -> str:
    """A declared type (none for all columns of a table) with the character set that its texts are changed to."""
    return f"{declared}{_CHARSET}{charset}"


def in_words(declared: str) -> str:
    """A declared type, maybe with a character set (`in_charset`), for a sentence."""
    plain, _, charset = declared.partition(_CHARSET)
    return (
        f"{plain} in the table's character set, which nothing names"
        if charset == UNSAID
        else declared.strip()
    )


def _in_charset(rule: Conversion, old: str, new: str, words: str, charset: str) -> Conversion:
    """The rule, and what becomes of the characters that the column's new character set lacks."""
    before, after = _group(old), _group(new)
    if not words and before not in ("text", "enum", "unknown"):
        return KEEP  # a table's column, but none of texts
    if before not in ("text", "enum", "json", "unknown") or after not in ("text", "enum"):
        return rule
    if not charset or charsets.keeps_all(charset):
        return rule

    def doubts(text: str) -> bool:
        made = rule.of(text)
        label = "enum" in (before, after) and not made.isascii()  # the type's labels are converted too
        return rule.doubted(text) or label or charsets.is_disputed(made, charset)

    return Conversion(lambda text: charsets.stored(rule.of(text), charset), rule.certain, doubts=doubts)


def _zero_filled(rule: Conversion, width: int) -> Conversion:
    """The rule of a number with ZEROFILL: its text has all digits of its width."""
    return replace(rule, convert=lambda text: rule.of(text).zfill(width), respells=True)


def _of_others(old: str, new: str, declared: str, dialect: str) -> Conversion:
    """Of other databases only what all do, and PostgreSQL's own texts; none converts what does not fit."""
    before, after = _group(old), _group(new)
    if dialect == "postgres" and (cast := _CAST_BY_POSTGRES.get((before, after))):
        return cast
    if known := _kept_or_filled_up(old, after, declared, dialect):
        return known
    if not _is_shared(before, after, declared):
        return UNKNOWN
    if dialect == "sqlserver" and after == "datetime":
        return _to_sqlserver_clock(before, declared)
    if before in ("text", "json", "unknown") and after in ("text", "json"):
        return _of_other_texts(old, new, declared, dialect)
    rule = _RULES.get((before, after))
    if after == "text":  # PostgreSQL's USING v::varchar(3) cuts; without it the statement fails
        made = _limited(KEEP, old, new, declared)
        return _asked(made) if dialect in ("sqlserver", "db2") else made
    if rule is None or (after == "time" and "(" not in declared):
        return KEEP
    return _by_shared_rule(rule(old, new, declared), before, dialect)


def _of_other_texts(old: str, new: str, declared: str, dialect: str) -> Conversion:
    """The rule of a text that stays one, or becomes JSON."""
    printed = _printed_otherwise(_type_within(old), declared, strips=dialect in _STRIPPING)
    is_json = _group(new) == "json"
    return printed if is_json or not printed.certain else _cut_too(printed, old, new, declared)


def _by_shared_rule(rule: Conversion, before: str, dialect: str) -> Conversion:
    """A rule of MySQL's, as far as another database is known to have it."""
    if dialect == "db2":
        return _asked(rule)
    return rule if rule == KEEP else replace(rule, doubts=_UNREAD.get(before))


def _asked(rule: Conversion) -> Conversion:
    """The rule of a database of which no document says what becomes of a value that loses a part."""
    return rule if rule == KEEP else replace(rule, doubts=lambda text: rule.alters(text, texts=False))


def _to_sqlserver_clock(before: str, declared: str) -> Conversion:
    """What SQL Server makes of days and times in a column of another such type (Transact-SQL reference, ``datetime``,
    ``smalldatetime``, ``datetime2``).

    A DATETIME has ticks of a 300th of a second, a SMALLDATETIME minutes. A DATETIME that becomes a DATETIME2 with more than three
    digits gets the rest of its ticks by the newer compatibility levels only, and nothing says whether it was one.
    """
    is_day = before == "date"
    as_moment = _RULES["date", "datetime"]("date", "datetime", "datetime2(7)") if is_day else KEEP
    name, digits = _bare(declared), _digits(declared, _DATETIME2_DIGITS)
    if name == "smalldatetime":
        return replace(as_moment, doubts=lambda text: not as_moment.of(text).endswith(":00"))
    if name == "datetime":
        return Conversion(
            lambda text: _in_ticks(as_moment.of(text)) or text,
            respells=is_day,
            doubts=lambda text: _in_ticks(as_moment.of(text)) is None,
        )

    def doubts(text: str) -> bool:
        fraction = text.partition(".")[2]
        return digits > len(fraction) == _MILLIS and fraction[-1] in "37"

    return Conversion(lambda text: rounded_clock(as_moment.of(text), digits), respells=is_day, doubts=doubts)


_DATETIME2_DIGITS, _MILLIS = 7, 3


def _in_ticks(text: str) -> str | None:
    """A date and time in 300ths of a second, as they are printed: .000, .003 and .007; None if that is after the year 9999."""
    whole, _, fraction = text.partition(".")
    ticks = (int(fraction.ljust(7, "0")[:7]) * 300 + 5_000_000) // 10_000_000
    millis = (ticks * 20 + 3) // 6
    if millis < 1000:
        return rounded_clock(f"{whole}.{millis:03}", 3)
    rounded = rounded_clock(f"{whole}.9999", 0)
    return None if "." in rounded else rounded


def _kept_or_filled_up(old: str, after: str, declared: str, dialect: str) -> Conversion | None:
    """The rule of databases that change no other value; None where they have none of their own."""
    before = _group(old)
    if dialect == "oracle" and before == "unknown" and _is_kept_by_oracle(after, declared):
        return KEEP
    # other databases make texts of numbers and times, too
    is_text = before == "text" or (before == "unknown" and dialect == "oracle")
    if dialect in _FILLING and is_text and after == "text" and _CHAR.match(declared):
        return _filled_up(old, declared)
    return None


_KEPT_BY_ORACLE = frozenset({"exact", "whole", "single", "double", "binary", "datetime"})
"""MODIFY to these takes a column with values only from a type whose values stay: another NUMBER, RAW, DATE or TIMESTAMP (SQL
Language Reference, ALTER TABLE, `modify_col_properties`).
"""


def _is_kept_by_oracle(after: str, declared: str) -> bool:
    """True unless the values may lose a part, as a TIMESTAMP WITH LOCAL TIME ZONE that becomes another TIMESTAMP or a DATE does."""
    is_cut = "zone" in declared or (after == "datetime" and not declared.startswith("timestamp"))
    return after in _KEPT_BY_ORACLE and not is_cut


_FILLING = frozenset({"oracle", "sqlserver", "db2"})


def _filled_up(old: str, declared: str) -> Conversion:
    """A text that CHAR fills up with blanks.

    Some captures send it without them: a text is sure if it ends with a blank, or is as long as its CHAR was. How many bytes other
    characters than ASCII take depends on the database.
    """
    size = re.search(r"\((\d+)", declared)
    width = int(size[1]) if size else 1
    length_before = _length_within(old)[1:-1] if _CHAR.match(_type_within(old)) else ""

    def doubts(text: str) -> bool:
        is_filled = text.endswith(" ") or str(len(text)) == length_before
        return not text.isascii() or len(text) > width or (len(text) < width and not is_filled)

    return Conversion(lambda text: text.ljust(width), doubts=doubts)


def _is_shared(before: str, after: str, declared: str) -> bool:
    """True if all databases convert between two groups of types alike; CHAR is filled up with spaces."""
    is_padded = after == "text" and _CHAR.match(declared)
    return after != "enum" and not is_padded and ((before, after) in _SHARED or before == after)


def _cut_too(printed: Conversion, old: str, new: str, declared: str) -> Conversion:
    """A text that is printed otherwise, and cut where the new type is shorter."""
    cut = _limited(KEEP, re.sub(r"\(.*", "", old) + _length_within(old), new, declared)
    if printed == KEEP:
        return cut
    if cut == KEEP:
        return printed
    return replace(printed, convert=lambda text: cut.of(printed.of(text)))


def _type_within(old: str) -> str:
    """The declared type that `named` keeps of a text outside of MySQL: ``char(5)`` of ``string(char(5))``; empty without one."""
    inside = re.fullmatch(r"(?:string|json)\((.*)\)", old)
    if inside is None:
        return ""
    return "varchar" if inside[1].isdecimal() else inside[1]


def _length_within(old: str) -> str:
    size = re.match(r"(?:string|json)\((?:[a-z ]*\()?(\d+)", old)
    return f"({size[1]})" if size and old.endswith(")") else ""


def _printed_otherwise(old: str, new: str, *, strips: bool) -> Conversion:
    """A text of one type as another prints it; the old type is empty where no statement has declared it.

    ``strips`` if the database, as PostgreSQL, takes the blanks away that fill up CHAR.
    """
    before, after = _bare(old), _bare(new)
    if before == after or after in _KEEP_BLANKS or (not strips and after in _PLAIN):
        return KEEP
    if after in _READ_AGAIN:
        return Conversion(_READ_AGAIN[after])
    if after not in _PLAIN:
        return UNKNOWN
    if before in ("inet", "cidr"):
        return Conversion(postgres_texts.inet_as_text)
    if _CHAR.match(old):
        return Conversion(lambda text: text.rstrip(" "))
    if before:
        return KEEP
    # it may have been CHAR, whose blanks go, or an address, which gets its network
    return Conversion(_same, doubts=lambda text: text.endswith(" ") or bool(_ADDRESS.fullmatch(text)))


def _bare(declared: str) -> str:
    return declared.lower().partition("(")[0].strip()


_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f.]*")
_READ_AGAIN = {"jsonb": postgres_texts.jsonb, "uuid": postgres_texts.uuid, "macaddr": postgres_texts.macaddr}
_PLAIN = frozenset(
    (
        "", "text", "varchar", "character varying", "char varying", "national character varying",
        "national char varying", "nchar varying", "citext", "json", "xml",
    )
)  # fmt: skip
_KEEP_BLANKS = frozenset(
    (
        "varchar2", "nvarchar2", "clob", "nclob", "long", "nvarchar", "ntext", "long varchar", "vargraphic",
        "long vargraphic", "dbclob",
    )
)  # fmt: skip
"""Types of Oracle, SQL Server and Db2, which keep the blanks of what was CHAR."""
_STRIPPING = ("postgres", "")  # the empty one may be PostgreSQL


def _of_unknown(new: str, declared: str) -> Conversion:
    """Nothing says what the texts were: numbers written plainly are the same whatever they were."""
    after = _group(new)
    if after in ("whole", "exact"):
        rule = conversion("string", new, declared)
        plain = _DIGITS if after == "whole" else NUMBER
        convert: Convert = lambda text: rule.of(text) if plain.fullmatch(text) else text  # noqa: E731
        return replace(rule, convert=convert, doubts=lambda text: not plain.fullmatch(text))
    return UNKNOWN if after in ("single", "double") else KEEP


_DIGITS = re.compile(r"-?[0-9]{1,40}")
_CHAR = re.compile(r"(national )?(bpchar|char|nchar|character)\b(?! var(?:ying|char)\b)")


def is_char(declared: str) -> bool:
    """True of CHAR and its other names, whose values are filled up with spaces."""
    return bool(_CHAR.match(declared.lower()))


_GROUPS = {
    "boolean": "boolean", "year": "year", "bit": "bit", "float32": "single", "float64": "double",
    "decimal": "exact", "string": "text", "enum": "enum", "set": "enum", "json": "json", "binary": "binary",
    "date": "date", "time": "time", "datetime": "datetime", "timestamp": "timestamp",
    "interval": "interval", "geometry": "geometry", "unknown": "unknown",
}  # fmt: skip
_SHARED = frozenset(
    {
        ("exact", "exact"), ("whole", "exact"), ("single", "double"), ("date", "datetime"), ("whole", "text"),
        ("text", "json"), ("json", "text"), ("unknown", "text"),
    }
)  # fmt: skip


def _group(logical: str) -> str:
    return _GROUPS.get(types.base(logical), "whole")


def _always(
    convert: Convert,
    doubts: Callable[[str], bool] | None = None,
    *,
    certain: bool = True,
    respells: bool = False,
) -> Callable[..., Conversion]:
    def rule(_old: str, _new: str, _declared: str) -> Conversion:
        return Conversion(convert, certain, respells, doubts)

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


def rounded_number(text: str, scale: int) -> str:
    """Rounded half away from zero, with all fraction digits."""
    value = _number(text)
    if value is None:
        return text
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    return f"{rounded or abs(rounded):f}"


def _clipped(text: str, new: str, declared: str = "") -> str:
    """A whole number, or the nearest that a type holds."""
    if not _WHOLE.fullmatch(text):
        return text
    number, (low, high) = int(text), _bounds(new, declared)
    if _group(new) == "bit" and number < low:  # the bits of a negative number are all set
        return str(high)
    return text if low <= number <= high else str(max(low, min(high, number)))


_WHOLE = re.compile(r"-?[0-9]{1,400}")


def _bounds(new: str, declared: str) -> tuple[int, int]:
    if _group(new) == "bit":
        length = re.match(r"bit\s*\(\s*(\d{1,2})\s*\)", declared)
        return 0, (1 << (int(length[1]) if length else 1)) - 1
    bits = int(new.removeprefix("u").removeprefix("int"))
    if declared.startswith("mediumint"):
        bits = 24
    return (0, (1 << bits) - 1) if new.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _into_whole(
    convert: Convert, doubts: Callable[[str], bool] | None = None
) -> Callable[[str, str, str], Conversion]:
    def rule(_old: str, new: str, declared: str) -> Conversion:
        def doubted(text: str) -> bool:
            """MariaDB clips a number that no BIGINT UNSIGNED holds to the most of a BIGINT."""
            huge = (
                new == "uint64" and _clipped(made := convert(text), new) != made and not made.startswith("-")
            )
            return huge or (doubts is not None and doubts(text))

        return Conversion(lambda text: _clipped(convert(text), new, declared), doubts=doubted)

    return rule


def _narrowed(old: str, new: str, declared: str) -> Conversion:
    """A negative number becomes zero in an unsigned column."""
    fits = types.widens(types.delta(old), types.delta(new)) and _group(new) != "bit"
    if fits and old.startswith("u") and not declared.startswith("mediumint"):
        return KEEP
    if fits and not new.startswith("u") and not declared.startswith("mediumint"):
        return KEEP
    return Conversion(lambda text: _clipped(text, new, declared))


_PREFIX = re.compile(r"[ \t-\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")


def _begun(text: str) -> str:
    """The number that a text begins with; zero if it begins with none."""
    prefix = _PREFIX.match(text[:MAX_NUMBER_LENGTH])
    if prefix is None:
        return "0"
    number = prefix[1].removeprefix("+")
    return number if abs(Decimal(number).adjusted()) <= MAX_EXPONENT else "0"


def _too_long(text: str) -> bool:
    """True of a number that is not read here."""
    prefix = _PREFIX.match(text[: MAX_NUMBER_LENGTH + 1])
    return prefix is not None and (
        len(prefix[0]) > MAX_NUMBER_LENGTH or abs(Decimal(prefix[1]).adjusted()) > MAX_EXPONENT
    )


def _not_whole(text: str) -> bool:
    """True of a text whose number has a fraction or an exponent: MySQL rounds it, MariaDB stops before it."""
    prefix = _PREFIX.match(text[:MAX_NUMBER_LENGTH])
    return _too_long(text) or (prefix is not None and not prefix[1].lstrip("+-").isdecimal())


def _is_unsigned(declared: str) -> bool:
    """ZEROFILL makes a type unsigned."""
    return "unsigned" in declared or "zerofill" in declared


def _to_exact(old: str, new: str, declared: str) -> Conversion:
    parts, group = types.decimal_parts(new), _group(old)
    if parts is None:
        without_digits = declared.startswith(("dec", "num", "fixed")) and declared[:6] != "number"
        return UNKNOWN if without_digits or group == "single" else KEEP
    before, unsigned = types.decimal_parts(old), _is_unsigned(declared)
    if before == parts and not unsigned:
        return KEEP
    number_of = {"text": _begun, "single": _widened}.get(group, _same)

    def convert(text: str) -> str:
        return _fitted(rounded_number(number_of(text), parts[1]), parts, unsigned=unsigned)

    wider = types.widens(types.delta(old), types.delta(new)) and not unsigned
    return Conversion(convert, respells=wider, doubts=_too_long if group == "text" else None)


def _fitted(text: str, parts: tuple[int, int], *, unsigned: bool) -> str:
    """A number, or the nearest that so many digits hold."""
    value = _number(text)
    if value is None:
        return text
    if unsigned and value < 0:
        return rounded_number("0", parts[1])
    most = Decimal(10) ** (parts[0] - parts[1])
    if abs(value) < most:
        return text
    nines = Decimal("9" * parts[0]).scaleb(-parts[1], _EXACT)
    return f"{nines.copy_sign(value):f}"


def _widened(text: str) -> str:
    """A single's exact value as a double's text: 4.185 is 4.184999942779541."""
    return text if _number(text) is None else float_text(float32(text))


def _as_single(text: str) -> str:
    if _number(text) is None:
        return text
    near = float32(text)
    return float32_text(max(-_MOST_SINGLE, min(_MOST_SINGLE, near)))


def _as_double(text: str) -> str:
    if _number(text) is None:
        return text
    return float_text(max(-sys.float_info.max, min(sys.float_info.max, float(text))))


_MOST_SINGLE = (2 - 2**-23) * 2.0**127
_PLACES = re.compile(r"(?:float|double|real|double precision)\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def _floating(convert: Convert) -> Callable[[str, str, str], Conversion]:
    """Into FLOAT or DOUBLE: UNSIGNED has no negative numbers, and FLOAT(7,2) rounds."""

    def rule(old: str, _new: str, declared: str) -> Conversion:
        text, unsigned = _group(old) == "text", _is_unsigned(declared)
        places = _PLACES.match(declared)
        if convert is _same and not unsigned and not places:
            return KEEP

        def made(old: str) -> str:
            old = _begun(old) if text else old
            value = _number(old)
            return convert("0.0" if unsigned and value is not None and value < 0 else old)

        def doubts(old: str) -> bool:
            return (text and _too_long(old)) or (places is not None and not _has_room(places, _number(old)))

        return Conversion(made, doubts=doubts if text or places else None)

    return rule


def _has_room(places: re.Match[str], value: Decimal | None) -> bool:
    """True if FLOAT(M,D) takes a value as it is: it has D digits after the point at most, and M - D before it."""
    if value is None:
        return True
    digits, scale = int(places[1]), int(places[2])
    return abs(value) < Decimal(10) ** (digits - scale) and value == value.quantize(
        Decimal(1).scaleb(-scale), context=_EXACT
    )


def _same(text: str) -> str:
    return text


def _even(text: str) -> str:
    """A floating number as a whole one: half to even, as the processor rounds."""
    value = _number(text)
    return text if value is None else str(round(float(value)))


def _from_whole(delta: str, convert: Convert) -> Callable[[str, str, str], Conversion]:
    def rule(old: str, new: str, declared: str) -> Conversion:
        plain = not _is_unsigned(declared) and not _PLACES.match(declared)
        if plain and types.widens(types.delta(old), delta):
            return KEEP
        return _floating(convert)(old, new, declared)

    return rule


def _year_of(text: str) -> str:
    """Of one or two digits: 1 to 69 are 2001 to 2069, 70 to 99 are 1970 to 1999; zero is all that a YEAR cannot hold."""
    if not _WHOLE.fullmatch(text):
        return text
    year = int(text)
    if 1 <= year <= 99:
        year += 2000 if year < 70 else 1900
    return str(year) if 1901 <= year <= 2155 else "0"


def _padded(old: str, _new: str, declared: str) -> Conversion:
    """A decimal as text has all its fraction digits."""
    parts = types.decimal_parts(old)
    return (
        UNKNOWN if parts is None else Conversion(lambda text: rounded_number(text, parts[1]), respells=True)
    )


# --- text and bytes ---------------------------------------------------------------------------------


def _limited(rule: Conversion, old: str, new: str, declared: str) -> Conversion:
    """The rule, and what a column of limited length cuts off."""
    limit = _limit_of(new, declared)
    if limit is None or (rule == KEEP and not limit.strips and _width(old, limit.name) <= limit.most):
        return rule

    def convert(text: str) -> str:
        return limit.cut(rule.of(text))

    def doubts(text: str) -> bool:
        """Of a limit in bytes, a character set decides."""
        made = rule.of(text)
        is_cut = limit.counts_bytes and limit.cut(made) != made
        return rule.doubted(text) or (is_cut and not made.isascii())

    return replace(rule, convert=convert, doubts=doubts, respells=False)


class _Limit(NamedTuple):
    """How much a column holds: characters of a text, or bytes."""

    name: str  # the type's, as declared
    most: int
    binary: bool

    @property
    def strips(self) -> bool:
        """True if values change also where they are short: zeros or spaces at their end."""
        return self.name == "binary" if self.binary else bool(_CHAR.match(self.name))

    @property
    def counts_bytes(self) -> bool:
        """True of a text whose length counts in bytes."""
        return not self.binary and self.name in _MOST

    def cut(self, text: str) -> str:
        """What the column holds of a value."""
        if self.binary:
            return _cut_bytes(text, self.most, padded=self.name == "binary")
        return _cut_text(text, self.most, self.name)


def _limit_of(new: str, declared: str) -> _Limit | None:
    group = _group(new)
    size = _LENGTH.match(declared) if group in ("text", "binary") else None
    if size is None:
        return None
    name = size["name"]
    bare = 1 if name.startswith(("char", "nchar", "binary")) else 0
    most = _MOST.get(name) or int(size["size"] or 0) or bare
    return _Limit(name, most, group == "binary") if most else None


def _width(old: str, name: str) -> float:
    """The most that a value of the old type needs: characters, or bytes where the new type counts these."""
    match = re.fullmatch(r"(?:string|binary)\((\d+)\)", old)
    width = int(match[1]) * (4 if name in _MOST and old.startswith("string") else 1) if match else None
    return width or _WIDTHS.get(_group(old)) or float("inf")


_WIDTHS = {"whole": 20, "date": 10, "year": 4}


_SIZES = (("tiny", 0xFF), ("", 0xFFFF), ("medium", 0xFFFFFF))  # in bytes
_MOST = {f"{size}{kind}": most for size, most in _SIZES for kind in ("text", "blob")}
_LENGTH = re.compile(
    r"(?:national )?(?P<name>tinytext|mediumtext|text|tinyblob|mediumblob|blob|varchar2?|nvarchar|varcharacter"
    r"|character varying|n?char varying|nchar varchar|char|nchar|character|varbinary|binary)\b(?:\s*\(\s*(?P<size>\d{1,9})\s*\))?"
)


def _cut_text(text: str, most: int, name: str) -> str:
    if name in _MOST:
        return text if len(text) * 4 <= most else text.encode()[:most].decode(errors="ignore")
    text = text[:most]
    return text.rstrip(" ") if _CHAR.match(name) else text


def _cut_bytes(text: str, most: int, *, padded: bool) -> str:
    raw = base64.b64decode(text)
    if len(raw) > most or padded:
        return base64_text(raw[:most].ljust(most if padded else 0, b"\0"))
    return text


def _to_label(old: str, _new: str, declared: str) -> Conversion:
    """A label, or the one of a text's number, or none: the empty text.  A collation may take other cases for equal."""
    names = types.labels(declared)
    if not names:
        return UNKNOWN if _group(old) == "enum" else KEEP
    numbered = dict(enumerate(names, 1)) if _group(old) == "text" else {}
    folded = {name.casefold(): name for name in names}
    labels = _Labels(names, numbered, folded, several=declared.lower().startswith("set"))
    return Conversion(labels.convert, doubts=labels.doubts)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of an enumeration, or of a set, which has several of them."""

    names: Sequence[str]
    numbered: Mapping[int, str]  # by the numbers that a text may have for them
    folded: Mapping[str, str]  # by their small letters
    several: bool

    def convert(self, text: str) -> str:
        """What the server makes of a text."""
        if not self.several:
            return self._label(text)
        wanted = set(map(self._label, self._parts(text)))
        return ",".join(name for name in self.names if name in wanted)

    def doubts(self, text: str) -> bool:
        """True if a text has a label only by a collation, or a number."""
        others = [part for part in self._parts(text) if part not in self.names]
        return any(part.rstrip(" ").casefold() in self.folded or part.isdecimal() for part in others)

    def _label(self, text: str) -> str:
        padded = text.rstrip(" ")
        if text in self.names or padded in self.names:
            return padded
        if text.isdecimal() and text.isascii():
            return self.numbered.get(int(text), text)
        return self.folded.get(padded.casefold(), "")

    def _parts(self, text: str) -> list[str]:
        if not self.several or text in self.names:
            return [text]
        listed = _listed(text)  # as Maxwell sends it
        return text.split(",") if listed is None else listed


def _listed(text: str) -> list[str] | None:
    """The texts of a JSON list; None if it is none."""
    if text[:1] != "[":
        return None
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return None


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


# --- dates and times ----------------------------------------------------------------------------------

_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)
_TIME = re.compile(r"(-?)(\d{2,3}):(\d{2}):(\d{2})(?:\.(\d+))?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _digits(declared: str, otherwise: int = 0) -> int:
    """The fraction digits of a declared time type; Db2's have up to twelve."""
    match = re.search(r"\(\s*(\d{1,2})\s*\)", declared)
    return int(match[1]) if match else otherwise


def _rounded(text: str, digits: int) -> str:
    """A date and time rounded half up to some fraction digits."""
    match = _DATETIME.fullmatch(text)
    if match is None or len((match[3] or "").rstrip("0")) <= digits:
        return text
    fraction = int(match[3][:digits] or "0") + (match[3][digits] >= "5")
    over, fraction = divmod(fraction, 10**digits)
    moment = f"{match[1]} {match[2]}"
    if over:
        try:
            moment = str(dt.datetime.fromisoformat(moment) + dt.timedelta(seconds=1))
        except (ValueError, OverflowError):  # a zero date, or the end of time
            return text
    moment = moment.replace(" ", text[10])
    return moment + (f".{fraction:0{digits}}" if digits else "") + (match[4] or "")


def named(logical: str, declared: str, *, mysql: bool = True) -> str:
    """A logical type with what its declaration adds: the digits of a clock, a length, ZEROFILL.

    In MySQL a clock without digits has none, elsewhere it has six, and there a text keeps its declared type.
    """
    name = declared.lower().partition("(")[0].strip()
    if not mysql:
        if logical in ("string", "json") and declared:
            return f"{logical}({' '.join(declared.lower().split())})"
        digits = str(_digits(declared)) if "(" in declared else "6"
        return f"{logical}({digits})" if logical in _CLOCKS and declared else logical
    if (filled := types.with_zeros(logical, declared)) != logical:
        return filled
    if logical in ("string", "binary") and (length := _LENGTH.match(declared.lower())) and length["size"]:
        return f"{logical}({length['size']})"
    return f"{logical}({_digits(declared)})" if name == logical and name in _CLOCKS else logical


_CLOCKS = ("datetime", "timestamp", "time")


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
    name = re.split(r"[( ]", declared, maxsplit=1)[0]
    bare = "(" not in declared and (
        (types.base(new), name) == ("datetime", "timestamp") or name in ("timestamptz", "datetime2")
    )
    digits = 6 if bare else _digits(declared)
    if (
        name not in (*_CLOCKS, "timestamptz", "datetime2")
        or digits >= 6
        or ("(" in old and _digits(old) <= digits)
    ):
        return KEEP
    rounds = _rounded_time if types.base(new) == "time" else _rounded
    return Conversion(lambda text: rounds(text, digits), doubts=_rounds_up(digits))


def _rounds_up(digits: int) -> Callable[[str], bool]:
    """True of a clock that rounding makes another than cutting: MariaDB cuts, unless it is set to round."""
    return lambda text: text.partition(".")[2][digits : digits + 1] in tuple("56789")


def rounded_clock(text: str, digits: int) -> str:
    """A date and time, an instant or a time of day, rounded half up to some fraction digits, without zeros at their end."""
    rounded = _rounded_time(text, digits) if _TIME.fullmatch(text) else _rounded(text, digits)
    whole, point, rest = rounded.partition(".")
    fraction = rest.rstrip("Z").rstrip("0")
    zone = "Z" if rounded.endswith("Z") and point else ""
    return whole + (f".{fraction}" if fraction else "") + zone


def _rounded_time(text: str, digits: int) -> str:
    match = _TIME.fullmatch(text)
    if match is None or len((match[5] or "").rstrip("0")) <= digits:
        return text
    ticks = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    ticks = ticks * 10**digits + int(match[5][:digits] or "0") + (match[5][digits] >= "5")
    seconds, fraction = divmod(ticks, 10**digits)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return match[1] + clock + (f".{fraction:0{digits}}" if digits else "")


def _date_of(text: str) -> str:
    """MySQL rounds the fraction before it drops the time."""
    return _rounded(text, 0)[:10] if _DATETIME.fullmatch(text) else text


def _time_of(_old: str, _new: str, declared: str) -> Conversion:
    digits = _digits(declared)
    return Conversion(
        lambda text: _rounded(text, digits)[11:] if _DATETIME.fullmatch(text) else text,
        doubts=_rounds_up(digits),
    )


def _midnight(text: str) -> str:
    return f"{text} 00:00:00" if _DATE.fullmatch(text) else text.replace("T", " ", 1)


def _number_of(text: str) -> str:
    """A date or time written as digits: 2024-01-02 is 20240102."""
    time = _TIME.fullmatch(text)
    text = _rounded_time(text, 0) if time else _rounded(text, 0)
    return str(int(("-" if text.startswith("-") else "") + re.sub(r"\D", "", text) or "0"))


def _is_no_date(text: str) -> bool:
    """True of a text that is not written as a date is: what a server makes of it is not tried here."""
    try:
        return not (_DATE.fullmatch(text) and dt.date.fromisoformat(text))
    except ValueError:
        return True


def _is_no_datetime(text: str) -> bool:
    match = _DATETIME.fullmatch(text)
    if match is None:
        return _is_no_date(text)
    return _is_no_date(match[1]) or bool(match[3] or match[4]) or match[2] > "23:59:59"


def _has_fraction(text: str) -> bool:
    value = _number(text)
    return value is not None and value % 1 != 0


def _is_no_year(text: str) -> bool:
    return not (re.fullmatch(r"[0-9]{4}", text) and 1901 <= int(text) <= 2155)


def _is_far(text: str) -> bool:
    """True of a date that is not written as one of the years 0 to 9999; infinity is the same in all types.

    PostgreSQL writes ``0044-03-15 BC`` and ``12024-05-06``, Debezium ``-0044-03-15``.
    """
    clock = _DATETIME.fullmatch(text)
    is_plain = not clock[4] if clock else _DATE.fullmatch(text) or text in ("infinity", "-infinity")
    return not is_plain


def _is_far_fraction(text: str) -> bool:
    """True of a fraction that is not rounded here."""
    return "." in text and not _DATETIME.fullmatch(text)


_UNREAD = {"date": _is_far, "datetime": _is_far_fraction, "timestamp": _is_far_fraction}
"""By the old type: the texts of which it is not known here what another database makes of them."""
_CAST_BY_POSTGRES = {
    ("exact", "whole"): Conversion(lambda text: rounded_number(text, 0)),  # half away from zero
    ("datetime", "date"): Conversion(lambda text: text if _is_far(text) else text[:10], doubts=_is_far),
}
"""What an ALTER COLUMN ... TYPE ... USING makes, measured on a server; what does not fit it refuses."""

_DIGITS_OF = {"true": "1", "false": "0"}


def _of_bits(rule: Callable[[str, str, str], Conversion]) -> Callable[[str, str, str], Conversion]:
    """The rule of a number, for BIT(1), which Debezium sends as true and false."""

    def of_bits(old: str, new: str, declared: str) -> Conversion:
        plain = rule(old, new, declared)
        respells = plain.respells or plain.convert is None
        return replace(plain, convert=lambda text: plain.of(_DIGITS_OF.get(text, text)), respells=respells)

    return of_bits


_SCALAR = r'null|true|false|0|-?[1-9][0-9]{0,17}|"[ !#-\[\]-~]*"|\{\}'
_PRINTED_ALIKE = re.compile(rf"(?:{_SCALAR})|\[(?:{_SCALAR})?\]")


def _may_be_reprinted(text: str) -> bool:
    """True of JSON that MySQL may print otherwise than it was written (order of members, numbers, blanks): MariaDB keeps the text."""
    return not _PRINTED_ALIKE.fullmatch(text)


_RULES: dict[tuple[str, str], Callable[[str, str, str], Conversion]] = {
    **{(kind, "exact"): _to_exact for kind in ("whole", "year", "exact", "single", "double", "text")},
    **{(kind, "exact"): _of_bits(_to_exact) for kind in ("bit", "boolean")},
    **{(kind, "whole"): _narrowed for kind in ("whole", "year")},
    **{(kind, "whole"): _of_bits(_narrowed) for kind in ("bit", "boolean")},
    ("exact", "whole"): _into_whole(lambda text: rounded_number(text, 0)),
    ("text", "whole"): _into_whole(lambda text: rounded_number(_begun(text), 0), _not_whole),
    **{(kind, "whole"): _into_whole(_even) for kind in ("single", "double")},
    **{(kind, "whole"): _into_whole(_number_of, _rounds_up(0)) for kind in ("date", "time", "datetime")},
    ("whole", "bit"): _narrowed,
    **{(kind, "bit"): _of_bits(_narrowed) for kind in ("bit", "boolean")},
    **{(kind, "boolean"): _always(lambda text: "true" if _number(text) else "false", respells=True) for kind in ("whole", "bit")},
    ("boolean", "boolean"): _keep,
    ("whole", "year"): _always(_year_of),
    ("exact", "year"): _always(lambda text: _year_of(rounded_number(text, 0))),
    **{(kind, "year"): _always(lambda text: _year_of(_even(text)), _has_fraction) for kind in ("single", "double")},
    ("text", "year"): _always(lambda text: _year_of(rounded_number(_begun(text), 0)), _is_no_year),
    ("whole", "single"): _from_whole("FLOAT", _as_single),
    ("whole", "double"): _from_whole("DOUBLE", _as_double),
    ("single", "double"): _floating(_widened),
    ("single", "single"): _floating(_same),
    ("double", "double"): _floating(_same),
    **{(kind, "single"): _floating(_as_single) for kind in ("double", "exact", "text")},
    **{(kind, "double"): _floating(_as_double) for kind in ("exact", "text")},
    ("whole", "text"): _keep,
    ("year", "text"): _always(lambda text: text.zfill(4), respells=True),
    ("exact", "text"): _padded,
    **{(kind, "text"): _keep for kind in ("text", "enum", "date", "json")},
    **{(kind, "text"): _always(_printed, certain=False) for kind in ("single", "double")},
    **{(kind, "text"): _clock_to_text for kind in ("datetime", "time")},
    ("text", "json"): _always(_same, _may_be_reprinted),
    **{(kind, "enum"): _to_label for kind in ("text", "enum")},
    ("binary", "text"): _always(_decoded, lambda text: not base64.b64decode(text).isascii()),
    ("text", "binary"): _always(lambda text: base64_text(text.encode()), lambda text: not text.isascii()),
    ("binary", "binary"): _keep,
    ("date", "datetime"): _always(_midnight, respells=True),
    ("text", "datetime"): _always(_midnight, _is_no_datetime),
    ("datetime", "date"): _always(_date_of, _rounds_up(0)),
    ("text", "date"): _always(_date_of, _is_no_date),
    ("datetime", "time"): _time_of,
    ("datetime", "datetime"): _to_digits,
    ("timestamp", "timestamp"): _to_digits,
    ("time", "time"): _to_digits,
    ("date", "time"): _always(lambda _text: "00:00:00"),
    **{(kind, "year"): _always(lambda text: _year_of(str(int(text[:4]))) if text[:4].isdecimal() else text)
       for kind in ("date", "datetime")},
}  # fmt: skip
