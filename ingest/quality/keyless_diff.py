"""Compare a mirror without a key as a multiset of rows, folded from its changes in plain Python.

``append`` keeps a row for each insert and read. ``full_row`` removes one row equal to the image before of a delete or
an update; a row that does not exist cannot be removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ingest.change import Image, Op
from ingest.fold import Placed, SchemaStep, Table, steps
from ingest.lake.mirrors import Mirror
from ingest.lake.stamps import change_of
from ingest.order import order_of, same_place
from ingest.quality.cell_diff import KeyHistory
from ingest.quality.cell_values import of_text, shown

Content = tuple[object, ...]
_NUMBER = "%number"  # the name under which each row has a number of its own; no source column is called so


def folded(history: KeyHistory, mirror: Mirror, *, appends: bool) -> Counter[Content]:
    """The expected count of each row."""
    table = Table((_NUMBER,))
    wanted = [one for one in history.steps if not appends or one.empties]
    events: list[tuple[Any, Any]] = [(order_of(str(one.order)), one) for one in wanted]
    events += [(order_of(row["order_key"]), row) for row in _once(history.rows)]
    index: dict[str, list[str]] = {}
    serial = 0
    for order, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, SchemaStep):
            _apply(table, event.decoded())
            index = _indexed(table, mirror)
            continue
        change = change_of(event, history.shard)
        if change.op is Op.TRUNCATE:
            _apply(table, Placed(order, change))
            index = {}
            continue
        if change.op in (Op.UPDATE, Op.DELETE):
            if appends:
                continue
            went = _name({**(change.after or {}), **(change.before or {})}, mirror)
            if index.get(went):
                del table.rows[(index[went].pop(),)]
        if change.op is not Op.DELETE:
            serial += 1
            after = {**(change.before or {}), **(change.after or {})}
            whole = change.__class__(op=Op.INSERT, after={**after, _NUMBER: str(serial)})
            _apply(table, Placed(order, whole))
            index.setdefault(_name(after, mirror), []).append(str(serial))
    return Counter(
        tuple(of_text(row.values.get(one.name), one.type) for one in mirror.columns)
        for row in table.rows.values()
    )


def differences(
    wanted: Counter[Content], rows: Iterable[Sequence[object]], types: Sequence[str]
) -> Iterator[str]:
    present = Counter(map(tuple, rows))
    for content in sorted(wanted.keys() | present.keys(), key=str):
        if wanted[content] != present[content]:
            cells = ", ".join(
                shown(value, delta, 20) for value, delta in zip(content[:8], types, strict=False)
            )
            yield f"the row ({cells}) occurs {present[content]} times, the changes give {wanted[content]}"


def _apply(table: Table, event: Any) -> None:
    for _step in steps(table, [event]):
        pass


def _indexed(table: Table, mirror: Mirror) -> dict[str, list[str]]:
    """The numbers of the rows by their content."""
    found: dict[str, list[str]] = {}
    for (number,), row in table.rows.items():
        found.setdefault(_name(row.values, mirror), []).append(str(number))
    return found


def _name(values: Image, mirror: Mirror) -> str:
    """A row's content as a text: equal if all values are equal, whatever its columns."""
    kinds = {one.name: one.type for one in mirror.columns}
    typed = {
        name: repr(of_text(text, kinds.get(name, "unknown")))
        for name, text in values.items()
        if name != _NUMBER and text is not None
    }
    return json.dumps(typed, sort_keys=True)


def _once(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each change once. Without a position, and if a snapshot's rows share one, arrival distinguishes rows."""
    listed = sorted(rows, key=lambda row: str(row["order_key"]))
    snapshot: dict[str, set[str | None]] = {}
    for row in listed:
        if row["op"] == "read":
            snapshot.setdefault(same_place(row["order_key"]), set()).add(row["after"])
    seen: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for row in listed:
        key = row["order_key"]
        order, place = order_of(key), same_place(key)
        shared = row["op"] == "read" and len(snapshot[place]) > 1
        own = key if shared or not order.sequence else place
        seen.setdefault((own, order.row, row["op"], row["before"], row["after"]), row)
    return list(seen.values())
