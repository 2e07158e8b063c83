"""Compare a mirror without a key as a multiset of rows, folded from its changes in plain Python.

``append`` keeps a row for each insert and read. ``full_row`` removes one row equal to the image before of a delete or
an update; a row that does not exist cannot be removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

from ingest.change import Image, Op
from ingest.errors import counted
from ingest.fold import Placed, SchemaStep, Table, identity, in_order, row_taken, steps
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.stamps import change_of
from ingest.order import order_of
from ingest.quality.cell_diff import KeyHistory
from ingest.tables.cell_values import of_text, shown

Content = tuple[object, ...]
_NUMBER = "%number"  # the name under which each row has a number of its own; no source column is called so


def folded(history: KeyHistory, mirror: Mirror, *, appends: bool) -> Counter[Content]:
    """The expected count of each row."""
    table = Table((_NUMBER,))
    wanted = [step for step in history.steps if not appends or step.empties]
    events: list[Placed | SchemaStep] = [event.decoded() for event in wanted]
    events += _once(history)
    index: dict[str, list[str]] = {}
    serial = 0
    for event in in_order(events):
        if isinstance(event, SchemaStep):
            _apply(table, event)
            index = _indexed(table, mirror)
            continue
        order, change = event
        if change.op is Op.TRUNCATE:
            _apply(table, event)
            index = {}
            continue
        if appends and change.op in (Op.UPDATE, Op.DELETE):
            continue
        taken = row_taken(order, change)
        if taken is not None and index.get(went := _name(taken, mirror)):
            del table.rows[(index[went].pop(),)]
        if change.op is not Op.DELETE:
            serial += 1
            after = {**change.old_cells, **change.new_cells}
            whole = change.__class__(op=Op.INSERT, after={**after, _NUMBER: str(serial)})
            _apply(table, Placed(order, whole))
            index.setdefault(_name(after, mirror), []).append(str(serial))
    return Counter(
        tuple(of_text(row.values.get(column.name), column.type) for column in mirror.columns)
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
            yield f"the row ({cells}) occurs {counted(present[content], 'time')}, the changes give {wanted[content]}"


def _apply(table: Table, event: Placed | SchemaStep) -> None:
    for _step in steps(table, [event]):
        pass


def _indexed(table: Table, mirror: Mirror) -> dict[str, list[str]]:
    """The numbers of the rows by their content."""
    by_content: dict[str, list[str]] = {}
    for (number,), row in table.rows.items():
        by_content.setdefault(_name(row.values, mirror), []).append(str(number))
    return by_content


def _name(values: Image, mirror: Mirror) -> str:
    """A row's content as a text: equal if all values are equal, whatever its columns."""
    kinds = mirror.logical_types
    typed = {
        name: repr(of_text(text, kinds.get(name, "unknown")))
        for name, text in values.items()
        if name != _NUMBER and text is not None
    }
    return json.dumps(typed, sort_keys=True)


def _once(history: KeyHistory) -> Iterator[Placed]:
    """Each change once, by `ingest.fold.identity`, as first delivered."""
    seen: set[tuple[Hashable, ...]] = set()
    for row in sorted(history.rows, key=lambda row: str(row["order_key"])):
        placed = Placed(order_of(row["order_key"]), change_of(row, history.shard))
        same = identity(*placed, shared_reads=history.shared_reads)
        if same not in seen:
            seen.add(same)
            yield placed
