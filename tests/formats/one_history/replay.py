"""Messages as they arrive, decoded, placed as silver places them, folded, and compared with the truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from random import Random
from typing import Any

from ingest import formats, types
from ingest.change import ROW_OPS, Change, Image, Message, Op
from ingest.fold import Placed, fold
from ingest.order import Order
from ingest.values import instant_micros
from tests.formats.one_history.history import KEYS, TYPES, History
from tests.formats.one_history.writing import Dialect, View


def delivered(messages: list[Message], seed: int, *, any_order: bool, once: bool) -> list[Message]:
    """As they arrive: shuffled and some twice; or in order, from some points sent again; or as they are."""
    random = Random(seed)
    if any_order:
        found = messages + random.choices(messages, k=len(messages) // 3)
        random.shuffle(found)
        return found
    found = []
    for place in range(len(messages)):
        if random.random() < 0.15 and not once:
            found += messages[max(0, place - random.randint(1, 4)) : place]
        found.append(messages[place])
    return found


def decoded(dialect: Dialect, messages: Iterable[Message]) -> list[Placed]:
    """The changes of messages, each at its place."""
    parse = formats.load(dialect.format).parse
    return [
        Placed(Order(0, change.phase, change.sequence, change.half, (1, 0, 0, offset), change.row), change)
        for offset, message in enumerate(messages)
        for change in parse(message, dialect.hints)
    ]


def folded(placed: Iterable[Placed]) -> dict[Any, Image]:
    """The rows that the changes leave, by their typed key."""
    rows = [each for each in placed if each.change.op in ROW_OPS]
    found = fold(rows, KEYS, {name: TYPES[name] for name in KEYS})
    return {key: row.values for key, row in found.items()}


def differences(history: History, found: dict[Any, Image], views: Mapping[str, View]) -> list[str]:
    """What differs between the truth and what was found, value by value."""
    wanted = {(int(key[0] or 0), key[1]): row for key, row in history.rows.items()}
    faults = [f"row {key} is missing" for key in wanted.keys() - found.keys()]
    faults += [f"row {key} should not be" for key in found.keys() - wanted.keys()]
    for key in wanted.keys() & found.keys():
        faults += [f"row {key}: unknown column {name}" for name in found[key].keys() - TYPES.keys()]
        for name in TYPES:
            truth, value = wanted[key].get(name), found[key].get(name)
            truth = views[name](truth) if truth is not None and name in views else truth
            if typed(name, truth) != typed(name, value):
                faults.append(f"row {key}, {name}: {truth!r} became {value!r}")
    return faults


def typed(column: str, text: str | None) -> object:
    """A value as what it is; text that is not canonical for its type is never equal to any value."""
    logical = types.base(TYPES[column])
    if text is None:
        return None
    if logical == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text, text)
    pattern = types.PATTERNS.get(types.family(logical) or "")
    if pattern and not re.fullmatch(pattern, text):
        return ("not canonical", text)
    return _TYPED.get(logical, str)(text)


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


_TYPED: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("int64", "int32", "uint64", "bit"), int),
    "decimal": Decimal,
    "float64": float,
    "time": _without_zeros,
    "datetime": _without_zeros,
    "timestamp": lambda text: instant_micros(text, "UTC"),
}


def statements(changes: Iterable[Change]) -> set[str]:
    """The statements that the changes carry."""
    return {change.ddl for change in changes if change.op is Op.DDL and change.ddl}
