"""A change's place in history, taken apart in Spark: what `ingest.change.same_place` does in Python."""

from __future__ import annotations

_MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"


def place(order_key: str) -> str:
    """SQL for the part of an order key before arrival; NULL where the message held no position at all."""
    end = f"instr({order_key}, '!')"
    half = f"{end} + 1 + {_value(order_key, f'{end} + 1')}"
    return f"CASE WHEN NOT {_is_weak(order_key, end)} THEN substr({order_key}, 1, {half}) END"


def _is_weak(order_key: str, end: str) -> str:
    """Epoch and phase and nothing else before the mark: arrival alone decides."""
    epoch = f"(1 + {_value(order_key, '1')})"
    phase = f"(1 + {_value(order_key, f'{epoch} + 1')})"
    return f"({end} = {epoch} + {phase} + 1)"


def _value(order_key: str, at: str) -> str:
    """The number that the length mark at a place stands for."""
    return f"(instr('{_MARKS}', substr({order_key}, {at}, 1)) - 1)"
