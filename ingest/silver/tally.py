"""Audit counts of rows: all rows of one book line are counted at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, compress, islice
from operator import gt

import orjson

from ingest import types
from ingest.change import CONTROL_OPS, LOAD_BEGUN, LOAD_ENDED, Change, ChangeColumns, ColumnSchema, Op
from ingest.fold import may_change_key
from ingest.ledgers.books import (
    Announcement,
    ColumnOrder,
    LabelList,
    Line,
    LoadMark,
    PlaceSpan,
    united_layouts,
)

_COUNTED = {op: f"{op}s" for op in (Op.READ, Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE)}
_DDL = Op.DDL  # looked up in the enum it costs 0.1 us each time
_MARKS: frozenset[Op | None] = CONTROL_OPS | {None}


def with_rows(messages: Mapping[int, Sequence[Change]]) -> Mapping[int, Sequence[Change]]:
    """The messages that contain more than marks; marks are counted and not kept."""
    if _MARKS.isdisjoint(_ops(messages.values())):
        return messages
    return {at: changes for at, changes in messages.items() if not is_control(changes)}


def with_statements(messages: Mapping[int, Sequence[Change]]) -> Mapping[int, Sequence[Change]]:
    """The statements only: those about an excluded table may affect another one."""
    if _DDL not in _ops(messages.values()):
        return {}
    statements = {at: [change for change in changes if change.op is _DDL] for at, changes in messages.items()}
    return {at: changes for at, changes in statements.items() if changes}


def count_excluded(line: Line, messages: Sequence[Sequence[Change]]) -> None:
    """Count the messages of an excluded table; only its statements are kept."""
    ddl = sum(map(holds_statement, messages)) if _DDL in _ops(messages) else 0
    line.messages += len(messages)
    line.ddl += ddl
    line.routed_out += len(messages) - ddl


def count_messages(line: Line, messages: Sequence[Sequence[Change]]) -> None:
    """Count each message by the strongest thing that it contains: a statement, a row, a mark."""
    ops = _ops(messages)
    control = 0 if _MARKS.isdisjoint(ops) else sum(map(is_control, messages))
    ddl = sum(map(holds_statement, messages)) if _DDL in ops else 0
    line.messages += len(messages)
    line.control += control
    line.ddl += ddl
    line.change_messages += len(messages) - control - ddl
    if control:  # a mark says how far the source's time is where nothing changes
        marks = (changes for changes in messages if is_control(changes))
        _count_times(line, [change.event_time for changes in marks for change in changes])


def _ops(messages: Collection[Sequence[Change]]) -> set[Op | None]:
    """The operation of each message; None for one without any."""
    return {change.op for changes in messages for change in changes} | (
        {None} if not all(messages) else set()
    )


def is_control(changes: Sequence[Change]) -> bool:
    """True of a message of marks alone, or of nothing."""
    return all(
        change.after is None and change.before is None and change.op in CONTROL_OPS for change in changes
    )


def holds_statement(changes: Sequence[Change]) -> bool:
    """True of a message that counts as a statement, whatever rows it has."""
    return any(change.op is _DDL for change in changes)


def load_mark(change: Change, offset: int) -> LoadMark | None:
    """The mark that a change is, if it says where a full load of its table begins or ends."""
    note = change.note or ""
    if change.op is not Op.CONTROL or not (LOAD_BEGUN in note or LOAD_ENDED in note):
        return None
    return LoadMark(offset, change.event_time, ends=LOAD_ENDED in note)


def count_rows(line: Line, rows: Sequence[Change], orders: Sequence[str]) -> None:
    """Count what gold and the reports need to know of a line's changes and DDL events without reading them again."""
    part = Line(line.batch, line.source, line.topic, line.partition, *line.table_id)
    part.order_low, part.order_high = min(orders), max(orders)
    times = [change.event_time for change in rows]
    _count_times(part, times)
    part.noted = len(rows) - [change.note for change in rows].count(None)
    _count_changes(part, [change for change in rows if change.op is not _DDL])
    _count_lacking(part, rows, orders)
    _count_announced(part, rows, orders)
    part.turned_back = _turned_back(line, times, orders)
    line.merge(part)


def count_excluded_columns(line: Line, changes: ChangeColumns, shape: int) -> None:
    """Count the messages of one shape, whose table is excluded."""
    count = sum(number == shape for number, row in zip(changes.shape, changes.row, strict=True) if not row)
    line.messages += count
    line.routed_out += count


def count_columns(line: Line, changes: ChangeColumns, orders: Sequence[str], shape: int) -> None:
    """Count the messages and the changes of one shape."""
    about = changes.shapes[shape]
    is_of_shape = [number == shape for number in changes.shape]
    places = list(compress(orders, is_of_shape))
    times = list(compress(changes.event_time, is_of_shape))
    part = Line(line.batch, line.source, line.topic, line.partition, *line.table_id)
    part.messages = part.change_messages = list(compress(changes.row, is_of_shape)).count(0)
    part.changes = len(places)
    part.order_low, part.order_high = min(places), max(places)
    _count_times(part, times)
    part.noted = len(places) if about.note else 0
    _count_operations(part, Counter(compress(changes.op, is_of_shape)))
    part.keys.append(list(about.keys))
    part.key_changes = sum(compress(changes.moved, is_of_shape))
    part.columns = {name: types.common("unknown", about.types.get(name, "unknown")) for name in about.columns}
    after = compress(changes.after, is_of_shape)
    part.whole = _span([place for place, image in zip(places, after, strict=True) if image is not None])
    part.turned_back = _turned_back(line, times, places)
    line.merge(part)


def _turned_back(line: Line, times: Sequence[int | None], orders: Sequence[str]) -> int:
    """The number of changes that are newer by the source's clock than all before them, at lower positions.

    ``line`` counts what came before.
    """
    highest = line.order_high or ""
    if not any(map(gt, chain((highest,), orders), orders)):  # as in most batches
        return 0
    turned_back, newest = 0, line.event_high
    for at, order in zip(times, orders, strict=True):
        if at is not None and newest is not None and at > newest and order < highest:
            turned_back += 1
        highest = max(highest, order)
        newest = at if newest is None else max(newest, at or newest)
    return turned_back


def _count_times(line: Line, event_times: Sequence[int | None]) -> None:
    times = [time for time in event_times if time is not None]
    if times:
        line.event_low = min(times) if line.event_low is None else min(line.event_low, *times)
        line.event_high = max(times) if line.event_high is None else max(line.event_high, *times)


def count_servers(line: Line, epoch: int, rows: Sequence[Change], offsets: Sequence[int]) -> None:
    """The servers that counted the rows' positions, each with the offset of its first row."""
    named = [change.servers for change in rows]
    # Backwards, so that the first offset of each name is kept.
    for servers, offset in dict(zip(reversed(named), reversed(offsets), strict=True)).items():
        for server in servers:
            name = f"{epoch} {server}"
            line.servers[name] = min(offset, line.servers.get(name, offset))


def _count_changes(line: Line, rows: list[Change]) -> None:
    line.changes += len(rows)
    _count_operations(line, Counter([change.op for change in rows]))
    line.partials += sum(change.partial and not _begins_row(change) for change in rows)
    line.keys.extend(
        keys
        for keys in map(list, dict.fromkeys(change.keys for change in rows))
        if keys and keys not in line.keys
    )
    for change in rows:
        before, after = change.before, change.after
        if before is not None and after is not None and may_change_key(before, after, change.keys):
            line.key_changes += 1
            line.inherits += change.partial
    _count_columns(line.columns, rows)


def _count_operations(line: Line, counts: Mapping[Op, int]) -> None:
    for op, count in counts.items():
        name = _COUNTED.get(op)
        if name:
            setattr(line, name, getattr(line, name) + count)


def _count_columns(columns: dict[str, str], rows: list[Change]) -> None:
    """Every column seen, with a type that can hold the values of all rows."""
    names = columns.keys()
    for change in rows:
        image = change.before if change.after is None else change.after
        if image is not None and not image.keys() <= names:
            for column in image:
                columns.setdefault(column, "unknown")
    distinct = {id(change.types): change.types for change in rows}
    for named in distinct.values():
        for column, logical in named.items():
            if column in columns:
                columns[column] = types.common(columns[column], logical)


def _begins_row(change: Change) -> bool:
    """True if nothing is left of an earlier row, so that a column which is not sent has no value."""
    return change.before is None and change.op in (Op.INSERT, Op.READ)


def _count_lacking(line: Line, rows: Sequence[Change], orders: Sequence[str]) -> None:
    """The columns that some whole rows lack, with the places of the whole rows without and with each."""
    whole = [
        (row.after, order)
        for row, order in zip(rows, orders, strict=True)
        if row.after is not None and (not row.partial or _begins_row(row))
    ]
    line.whole = _span([order for _, order in whole])
    short = [image for image, _ in whole if len(image) < len(line.columns)]
    for column in {name for image in short for name in line.columns.keys() - image.keys()}:
        without = [order for image, order in whole if column not in image]
        line.lacks[column] = _span(without), _span([order for image, order in whole if column in image])


def _count_announced(line: Line, rows: Sequence[Change], orders: Sequence[str]) -> None:
    """What the schemas of the rows say of their columns."""
    placed: dict[int, list[tuple[str, Change]]] = {}
    for row, order in zip(rows, orders, strict=True):
        if row.schema:
            placed.setdefault(id(row.schema), []).append((order, row))
    for alike in placed.values():
        places = [order for order, _ in alike]
        low, high = min(places), max(places)
        schema = alike[0][1].schema
        columns = tuple(name for name, column in schema.items() if column.is_placed)
        if columns:
            line.layouts = united_layouts([*line.layouts, _layout(columns, alike, low, high)])
        for name, column in schema.items():
            if name in line.columns:
                lists = tuple(_labels(name, column, alike, low, high))
                announced = Announcement(low, high, column.nullable, column.known, column.default, lists)
                before = line.announced.get(name)
                line.announced[name] = announced if before is None else before.united(announced)


def _layout(columns: tuple[str, ...], rows: Sequence[tuple[str, Change]], low: str, high: str) -> ColumnOrder:
    """The columns of some rows, with those that the first row does not have although it is there."""
    first = next(row for order, row in rows if order == low)
    is_partial = first.partial and not _begins_row(first)
    unchanged = tuple(name for name in columns if name not in first.new_cells) if is_partial else ()
    return ColumnOrder(columns, low, high, unchanged)


def _labels(
    name: str, column: ColumnSchema, rows: Sequence[tuple[str, Change]], low: str, high: str
) -> Iterator[LabelList]:
    """The labels of an enumeration, with those of the rows that its list lacks."""
    if not column.labels:
        return
    listed, strays = frozenset(column.labels), dict[str, str]()
    for order, row in rows:
        text = row.new_cells.get(name)
        if text is not None and text not in listed:
            for label in _items(text):
                if label not in listed:
                    strays[label] = max(order, strays.get(label, ""))
    yield LabelList(column.labels, low, high, dict(islice(strays.items(), MAX_STRAYS)))


def _items(text: str) -> list[str]:
    """The labels of a cell: those of an array, which is a JSON list of texts or of such lists, or the only one."""
    try:
        waiting = orjson.loads(text) if text[:1] == "[" else [text]
    except orjson.JSONDecodeError:  # a label that begins so
        return [text]
    labels: list[str] = []
    for item in waiting:
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str):
            labels.append(item)
    return labels or [text]


MAX_STRAYS = 64  # a list that lacks more labels of one batch is none


def _span(orders: Sequence[str]) -> PlaceSpan:
    return [min(orders), max(orders)] if orders else []
