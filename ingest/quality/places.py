"""A change's place in history, taken apart in Spark: what `ingest.change.same_place` does in Python."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"


def place(order_key: Column) -> Column:
    """The part of an order key before arrival; NULL where the message held no position at all."""
    end = F.instr(order_key, "!")
    half = end + 1 + _value(order_key, end + 1)
    return F.when(~_is_weak(order_key, end), F.substr(order_key, F.lit(1), half))


def _is_weak(order_key: Column, end: Column) -> Column:
    """Epoch and phase and nothing else before the mark: arrival alone decides."""
    epoch = 1 + _value(order_key, F.lit(1))
    phase = 1 + _value(order_key, epoch + 1)
    return end == epoch + phase + 1


def _value(order_key: Column, at: Column) -> Column:
    """The number that the length mark at a place stands for."""
    return F.instr(F.lit(_MARKS), F.substr(order_key, at, F.lit(1))) - 1
