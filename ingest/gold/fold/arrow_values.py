"""Exact texts as typed Arrow columns, with a mask of those that are not values of their type."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ingest import types
from ingest.tables import datafiles
from ingest.tables.delta import type_in_log
from ingest.values.typed_values import DAY, day_number, value_of


class NotPlain(Exception):
    """Raised for what a way of folding a mirror does not do; another one may, which `needs` names."""

    needs = ""


class HistoryNeeded(NotPlain):
    """Raised where the new changes, and the folded ones after them, do not tell what becomes of a row: all do."""

    needs = "history"


class MergeNeeded(NotPlain):
    """Raised where the mirror's own rows would have to be held: a MERGE leaves them where they are."""

    needs = "merge"


class PartsNeeded(NotPlain):
    """Raised where what becomes of the keys of one part is too much to hold: there have to be more parts."""

    needs = "parts"


class Typed(NamedTuple):
    """A column's values, and which of its texts are not values of its type: there the value is NULL."""

    cells: pa.Array
    unfit: pa.BooleanArray | None = None  # None if all texts fit


_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DAY = (
    r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_NOTHING = r"[^\s\S]"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"


@cache
def arrow_type(logical: str) -> pa.DataType:
    """A logical type's Delta type in Arrow."""
    return of_delta(types.delta(logical))


def of_delta(delta: str) -> pa.DataType:
    return datafiles.arrow_type(type_in_log(delta))


@cache
def _simple(logical: str) -> str:
    """A pattern of texts that Arrow reads as `value_of` does; others are read one by one."""
    kind, parts = types.family(logical) or "", types.decimal_parts(types.delta(logical).lower())
    if parts:
        whole, scale = parts[0] - parts[1], parts[1]
        fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
        return rf"-?[0-9]{{1,{whole}}}{fraction}" if whole else _NOTHING
    return {
        "boolean": r"true|false",
        "integer": r"-?[0-9]{1,19}",
        "float": r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
        "date": rf"{_YEAR}-{_DAY}",
        "datetime": rf"{_YEAR}-{_DAY}( {_CLOCK})?",
        "timestamp": rf"{_YEAR}-{_DAY}T{_CLOCK}(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])",
        "binary": _NOTHING,
        "hex": _NOTHING,
    }[kind]


def values(texts: pa.Array, logical: str) -> Typed:
    """Canonical texts as a column's values; a NULL stays one, and a text that is no value of the type becomes one."""
    kind, target = types.family(logical), arrow_type(logical)
    if kind is None or target == pa.string():
        return Typed(texts)
    simple = pc.match_substring_regex(texts, rf"\A(?:{_simple(logical)})\z")
    if pc.all(simple, min_count=0).as_py():
        return _cast(texts, logical, kind, target)
    odd = pc.fill_null(pc.invert(simple), False)
    of_odd = _one_by_one(texts.filter(odd), logical, kind, target)
    typed = _cast(pc.if_else(odd, None, texts), logical, kind, target)
    return Typed(
        pc.replace_with_mask(typed.cells, odd, of_odd.cells), _either(typed.unfit, odd, of_odd.unfit)
    )


def _either(unfit: pa.Array | None, mask: pa.Array, more: pa.Array | None) -> pa.Array | None:
    """A mask of a column's rows, and that of those of them that another mask names, as one."""
    if more is None:
        return unfit
    unfit_before = pa.array([False] * len(mask), pa.bool_()) if unfit is None else unfit
    return pc.replace_with_mask(unfit_before, mask, more)


def _cast(texts: pa.Array, logical: str, kind: str, target: pa.DataType) -> Typed:
    """The values of simple texts: all at once, if all fit."""
    try:
        cells = texts.cast(target)
    except pa.ArrowInvalid:
        return _one_by_one(texts, logical, kind, target)
    if kind == "float" and not pc.all(pc.is_finite(cells), min_count=0).as_py():
        return _one_by_one(texts, logical, kind, target)
    return Typed(cells)


def _one_by_one(texts: pa.Array, logical: str, kind: str, target: pa.DataType) -> Typed:
    """The values by their definition (`ingest.values.typed_values`), each text that occurs once."""
    each = texts.dictionary_encode()
    made = [_stored(logical, kind, text) for text in each.dictionary.to_pylist()]
    stored = pa.array(made, _STORED.get(kind, target))
    cells = stored.cast(target).take(each.indices)
    if cells.null_count == texts.null_count:
        return Typed(cells)
    return Typed(cells, pc.and_(pc.is_valid(texts), pc.is_null(cells)))


def _stored(logical: str, kind: str, text: str) -> Any:
    """The value of a text as Arrow stores it; None if the text is no value of the type."""
    try:
        value = value_of(logical, text)
    except (ValueError, ArithmeticError):
        return None
    return _AS_STORED[kind](value, text) if kind in _AS_STORED else value


def _number(value: Any, text: str) -> float:
    """A number with its sign: the canonical text of zero has none."""
    number = float(str(value))
    return -0.0 if number == 0 and text.startswith("-") else number


def one_zero(cells: pa.Array) -> pa.Array:
    """Floating-point cells in which zero has no sign, and every NaN the same bits."""
    numbers = pc.add(cells, pa.scalar(0.0, cells.type))
    return pc.if_else(pc.is_nan(numbers), pa.scalar(float("nan"), cells.type), numbers)


_EPOCH = day_number("1970-01-01")
_STORED = {"date": pa.int32(), "datetime": pa.int64(), "timestamp": pa.int64()}
_AS_STORED: dict[str, Callable[[Any, str], Any]] = {
    "float": _number,
    "date": lambda value, _text: day_number(value) - _EPOCH,
    "datetime": lambda value, _text: (day_number(value[0][:10]) - _EPOCH) * DAY + value[1],
    "timestamp": lambda value, _text: value - _EPOCH * DAY,
}


def typed_column(texts: pa.Array, logical: str, *, is_key: bool = False) -> Typed:
    """A column's values; times are cut to microseconds, as Delta stores them, but not in a key.

    A key cell that would be cut does not fit: the change of its row is rejected. Zero has no sign in a key.
    """
    if is_key and types.family(logical) == "float":
        cells, unfit = values(texts, logical)
        return Typed(one_zero(cells), unfit)
    if not is_key and types.family(logical) in ("datetime", "timestamp"):
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    return values(texts, logical)
