"""Cast canonical text to Delta types, natively in Spark: full-match pattern first, then the cast.

Spark's ``try_cast`` alone rounds ``1.239``, makes ``1e39`` an infinity, reads ``12:30:00`` as a time
today and drops zones. So a text is cast only if it is canonical; what does not fit gives NULL, which the caller
distinguishes from a source's own NULL.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest import types
from ingest.values import MAX_NUMBER_LENGTH


def cast(text: Column, logical: str) -> Column:
    """The value of a canonical text in the logical type's Delta type; NULL if it does not fit."""
    kind = types.family(logical)
    target = types.delta(logical)
    if target == "STRING" or kind is None:
        return text
    return F.when(_matches(text, types.PATTERNS[kind]), _CASTS.get(kind, _plain)(text, target, logical))


def _matches(text: Column, pattern: str) -> Column:
    return text.rlike(rf"^(?:{pattern})\z")


def _plain(text: Column, target: str, _logical: str) -> Column:
    return text.try_cast(target)


def _decimal(text: Column, target: str, logical: str) -> Column:
    """Exact or NULL: Spark would silently round more fraction digits than the scale."""
    parts = types.decimal_parts(logical)
    scale = parts[1] if parts else 0
    fits = F.when(text.rlike("[eE]"), _scale_of_scientific(text) <= scale).otherwise(
        _matches(text, rf"[^.]*(\.[0-9]{{0,{scale}}}0*)?")
    )
    short = F.length(text) <= MAX_NUMBER_LENGTH
    return F.when(short & fits, text.try_cast(target))


def _scale_of_scientific(text: Column) -> Column:
    """The number of fraction digits of ``12.50e-3`` written out: those of the mantissa minus the exponent."""
    mantissa = F.regexp_extract(text, r"^[+-]?([0-9.]*)", 1)
    exponent = F.regexp_extract(text, r"[eE]([+-]?[0-9]+)\z", 1).cast("int")
    whole = F.regexp_extract(mantissa, r"^[0-9]*", 0)
    fraction = F.rtrim(F.regexp_extract(mantissa, r"\.([0-9]*)\z", 1), F.lit("0"))
    zeros = F.length(whole) - F.length(F.rtrim(whole, F.lit("0")))
    return F.when(fraction == "", -zeros).otherwise(F.length(fraction)) - exponent


def _float(text: Column, target: str, _logical: str) -> Column:
    value = text.try_cast(target)
    finite = (~F.isnan(value)) & (F.abs(value.cast("double")) < float("inf"))
    short = F.length(text) <= MAX_NUMBER_LENGTH
    return F.when(short & (finite | text.isin("NaN", "Infinity", "-Infinity")), value)


def truncates(text: Column, logical: str) -> Column | None:
    """True where the cast cuts fraction digits of a time, a declared loss; None if it never does."""
    if types.family(logical) not in ("datetime", "timestamp"):
        return None
    return text.rlike(r"\.[0-9]{6}[0-9]*[1-9]")


_CASTS: dict[str, Callable[[Column, str, str], Column]] = {
    "decimal": _decimal,
    "float": _float,
    "boolean": lambda text, _target, _logical: text == "true",
    "datetime": lambda text, target, _logical: F.substring(text, 1, 26).try_cast(target),
    "timestamp": lambda text, target, _logical: F.regexp_replace(text, r"(\.[0-9]{6})[0-9]+", "$1").try_cast(
        target
    ),
    "binary": lambda text, _target, _logical: F.when(F.length(text) % 4 == 0, F.unbase64(text)),
    "hex": lambda text, _target, _logical: F.unhex(F.regexp_replace(text, r"^(0[xX]|\\x)", "")),
}
