"""Exact texts as typed Arrow columns: what fits a column's type, or `NotPlain`."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from ingest import types
from ingest.values.typed_values import value_of


class NotPlain(Exception):
    """Raised for a case that Arrow leaves to Spark."""


_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_NOTHING = r"[^\s\S]"
# whose values Arrow converts exactly as `value_of` does
_DEFINED = frozenset({"integer", "decimal", "float", "binary", "hex"})
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_FIXED = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BINARY": pa.binary(), "DATE": pa.date32(),
    "TIMESTAMP_NTZ": pa.timestamp("us"), "TIMESTAMP": pa.timestamp("us", tz="UTC"), "STRING": pa.string(),
}  # fmt: skip


@cache
def arrow_type(logical: str) -> pa.DataType:
    """A logical type's Delta type in Arrow."""
    return of_delta(types.delta(logical))


def of_delta(delta: str) -> pa.DataType:
    parts = types.decimal_parts(delta.lower())
    return pa.decimal128(*parts) if parts else _FIXED[delta]


@cache
def _simple(logical: str) -> str:
    """A pattern of texts that Arrow reads as Spark does; others are read one by one."""
    kind, parts = types.family(logical) or "", types.decimal_parts(types.delta(logical).lower())
    if parts:
        whole, scale = parts[0] - parts[1], parts[1]
        fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
        return rf"-?[0-9]{{1,{whole}}}{fraction}" if whole else _NOTHING
    return {
        "boolean": r"true|false",
        "integer": r"-?[0-9]{1,19}",
        "float": r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
        "date": rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}",
        "datetime": rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}( {_CLOCK})?",
        "timestamp": rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}T{_CLOCK}(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])",
        "binary": _NOTHING,
        "hex": _NOTHING,
    }[kind]


def values(texts: pa.Array, logical: str) -> pa.Array:
    """Canonical texts as a column's values; a NULL stays one.

    Raises:
        NotPlain: a text is not a value of the type, or is at the ends of its range.
    """
    kind, target = types.family(logical), arrow_type(logical)
    if kind is None or target == pa.string():
        return texts
    simple = pc.match_substring_regex(texts, rf"\A(?:{_simple(logical)})\z")
    if not pc.all(simple, min_count=0).as_py():
        return _one_by_one(texts, logical, kind, target)
    try:
        found = texts.cast(target)
    except pa.ArrowInvalid as error:
        raise NotPlain(f"a cell does not fit {logical}: {error}") from None
    if kind == "float" and not pc.all(pc.is_finite(found), min_count=0).as_py():
        raise NotPlain(f"a cell does not fit {logical}")
    return found


def _one_by_one(texts: pa.Array, logical: str, kind: str, target: pa.DataType) -> pa.Array:
    """The same by the definition of a value (`ingest.values.typed_values`), for the texts that Arrow may misread."""
    if kind not in _DEFINED:
        raise NotPlain(f"a cell does not fit {logical}, or is at its far end")
    value = _float if kind == "float" else value_of
    try:
        return pa.array(
            [None if text is None else value(logical, text) for text in texts.to_pylist()], target
        )
    except (ValueError, ArithmeticError, pa.ArrowInvalid) as error:
        raise NotPlain(f"a cell does not fit {logical}: {error}") from None


def _float(logical: str, text: str) -> float:
    """A number with its sign: the canonical text of zero has none."""
    number = float(str(value_of(logical, text)))
    return -0.0 if number == 0 and text.startswith("-") else number


def typed_column(texts: pa.Array, logical: str, key: int | None = None) -> pa.Array:
    """A column's values; times are cut to microseconds, as Delta stores them.

    A key that would be cut has been refused before.
    """
    if key is None and types.family(logical) in ("datetime", "timestamp"):
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    return values(texts, logical)
