"""What the books say of rows: counted for all rows of one line at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.change import CONTROL_OPS, Change, Op
from ingest.lake.books import Line

_COUNTED = {
    Op.READ: "reads",
    Op.INSERT: "inserts",
    Op.UPDATE: "updates",
    Op.DELETE: "deletes",
    Op.TRUNCATE: "truncates",
}


def is_control(changes: Sequence[Change]) -> bool:
    """True for the changes of a message that holds nothing but marks, which are counted and not kept."""
    return all(
        change.after is None and change.before is None and change.op in CONTROL_OPS for change in changes
    )


def count_messages(line: Line, messages: Sequence[Sequence[Change]]) -> None:
    """Count each message by the strongest thing that it holds: a statement, a row, a mark."""
    line.messages += len(messages)
    control = sum(map(is_control, messages))
    ddl = sum(any(change.op is Op.DDL for change in changes) for changes in messages)
    line.control += control
    line.ddl += ddl
    line.change_messages += len(messages) - control - ddl


def count_rows(line: Line, rows: Sequence[Change], orders: Sequence[str]) -> None:
    """What gold and the reports want to know of a line's rows without reading them again.

    Args:
        line: the book line.
        rows: its changes and DDL events.
        orders: their order keys.
    """
    line.order_low = min(orders) if line.order_low is None else min(line.order_low, *orders)
    line.order_high = max(orders) if line.order_high is None else max(line.order_high, *orders)
    times = [change.event_time for change in rows if change.event_time is not None]
    if times:
        line.event_low = min(times) if line.event_low is None else min(line.event_low, *times)
        line.event_high = max(times) if line.event_high is None else max(line.event_high, *times)
    line.noted += sum(change.note is not None for change in rows)
    _count_changes(line, [change for change in rows if change.op is not Op.DDL])


def _count_changes(line: Line, rows: list[Change]) -> None:
    line.changes += len(rows)
    ops = [change.op for change in rows]
    for op, name in _COUNTED.items():
        setattr(line, name, getattr(line, name) + ops.count(op))
    line.partials += sum(change.partial for change in rows)
    line.keys.extend(
        keys
        for keys in map(list, dict.fromkeys(change.keys for change in rows))
        if keys and keys not in line.keys
    )
    for change in rows:
        before, after = change.before, change.after
        if before is not None and after is not None and _moves(before, after, change.keys):
            line.key_changes += 1
            line.inherits += change.partial
    _count_columns(line.columns, rows)


def _count_columns(known: dict[str, str], rows: list[Change]) -> None:
    """Every column seen with its type: a known type beats ``unknown``, else the later one stands."""
    told: dict[int, Mapping[str, str]] = {}
    for change in rows:
        image = change.before if change.after is None else change.after
        if image is not None and not image.keys() <= known.keys():
            for column in image:
                known.setdefault(column, "unknown")
        told[id(change.types)] = change.types
    for types in told.values():
        for column, logical in types.items():
            if logical != "unknown" and column in known:
                known[column] = logical


def _moves(before: Mapping[str, Any], after: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    """True if the row may change its key; without known keys any update may."""
    if not keys:
        return True
    return any(key in before and before[key] != after.get(key, before[key]) for key in keys)
