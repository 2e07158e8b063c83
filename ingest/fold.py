"""The fold in plain Python: what a mirror's content *is*.

A mirror at batch N is the fold, in order, of all changes of its table with batch <= N.  This module
is the definition: the fold of whole columns is tested against it, ``explain`` prints its steps, and
whatever whole columns do not tell (parts of rows, changed keys, statements) runs through it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ingest import types
from ingest.change import Change, Image, Op, instant
from ingest.departures import Crossings, Departure, content_of, transaction_of
from ingest.order import Order, order_of
from ingest.values.conversions import UNKNOWN, Conversion, conversion
from ingest.values.typed_values import misfits, value_of

Key = tuple[object, ...]
Texts = tuple[str | None, ...]
"""A key's cells in the source's spelling."""
STAYS = "stays"
DELETED, DELETED_AT = "_deleted", "_deleted_at"
"""Columns of a mirror that keeps deleted rows: whether the row is deleted, and when."""


class Placed(NamedTuple):
    """A change with its place in history."""

    order: Order
    change: Change


OPEN = "open_column"  # the action of a step that changes no row


class SchemaStep(NamedTuple):
    """A DDL effect that the table's policy applies, at its place in history.

    ``action``: ``add_column`` (``default`` fills existing rows; if ``guarded``, the column may have existed before),
    ``rename_column`` (``to`` takes over the values of ``column``), ``drop_column``, ``retype_column`` (the source
    converts the values to ``type``), ``open_column`` (existing rows got values that no message carries, and stay NULL), or
    ``new_incarnation`` (a CREATE after a DROP: the old rows are removed). ``old``
    is a retyped column's type according to earlier statements; empty if only the rows' messages have it. If the column
    becomes NOT NULL (``solid``), NULL becomes ``zero``, or stays NULL if that is not known. The values of a
    ``computed`` column are not known, nor zeros of a ``serial`` one (AUTO_INCREMENT). With a ``label`` the first text
    becomes the second, also in a list of texts, as when PostgreSQL renames a value of an enum. A step with ``since`` is that of
    a repeated statement: it changes only rows that repeated older messages have set since then. After a ``new_incarnation``
    that is ``filled`` the table may have rows that no message shows (RENAME TABLE, CREATE AS SELECT).
    """

    order: Order
    action: str
    column: str = ""
    to: str = ""
    default: str | None = None
    old: str = ""
    type: str = ""
    declared: str = ""
    dialect: str = "mysql"
    guarded: bool = False
    since: Order | None = None
    solid: bool = False
    zero: str | None = None
    computed: bool = False
    serial: bool = False
    label: tuple[str, str] | None = None
    filled: bool = False

    @property
    def empties(self) -> bool:
        """True if it removes all rows from before it."""
        return self.action == "new_incarnation"

    @property
    def changes_rows(self) -> bool:
        """True if it may change rows from before it."""
        return self.action != OPEN

    @property
    def retypes(self) -> bool:
        """True if it may give a column's values another form."""
        return self.action == "retype_column"

    def decoded(self) -> SchemaStep:
        """A step of the ledger, which stores places as order keys, as input of the fold."""
        since = order_of(str(self.since)) if self.since else None
        return self._replace(order=order_of(str(self.order)), since=since)

    def meets(self, row: Row) -> bool:
        """True if the step changes a row that was there before it."""
        return self.since is None or row.place is None or row.place > self.since

    def apply(self, row: Row) -> None:
        """Do to a row of a table without a key what the statement did, if it meets the row."""
        if self.meets(row):
            row.values = _SCHEMA[self.action](self, row)

    def conversion(self, sent: str = "") -> Conversion:
        """How values change in a row whose message names the column's type ``sent``."""
        if self.computed:
            return UNKNOWN
        if self.label is not None:
            return Conversion(_relabelling(*self.label))
        old, new = self.old or sent or "unknown", self.type
        if types.base(sent) == "timestamp" and types.base(old) in ("date", "datetime"):
            # the messages write such columns as instants, whose days depend on a zone
            if types.base(new) not in (types.base(old), "datetime"):
                return UNKNOWN
            old = new = sent
        return conversion(old, new, self.declared, dialect=self.dialect)

    def leaves_open(self, text: str | None, rule: Conversion) -> bool:
        """True if no message contains what a value becomes; ``rule`` is its `conversion`."""
        if text is None:
            return self.solid and self.zero is None
        return not rule.certain or rule.doubted(text) or (self.serial and text == "0")

    def converted(self, text: str | None, sent: str = "") -> str | None:
        """A value of a retyped column after the statement."""
        if text is None:
            return self.zero
        return self.conversion(sent).of(text)


def _relabelling(old: str, new: str) -> Callable[[str], str]:
    """The change of a label of an enumeration, also in an array of labels, which is a JSON list of texts."""

    def items(value: Any) -> Any:
        return [items(each) for each in value] if isinstance(value, list) else new if value == old else value

    def relabelled(text: str) -> str:
        if text == old:
            return new
        if text[:1] != "[":
            return text
        try:
            labels = json.loads(text)
        except ValueError:  # another label, which begins so
            return text
        renamed = items(labels)
        return text if renamed == labels else json.dumps(renamed, ensure_ascii=False, separators=(",", ":"))

    return relabelled


def former(name: str, steps: Iterable[SchemaStep]) -> list[str]:
    """A column's name and the earlier names under which its values were sent."""
    names = [name]
    for step in reversed(list(steps)):
        if step.to and step.to in names and step.column not in names:
            names.append(step.column)
    return names


def names_by_place(name: str, steps: Iterable[SchemaStep]) -> list[tuple[Order | None, list[str]]]:
    """The names under which a column's values were sent, the oldest first: until the place of a step, and the last ones since.

    There are none where the name was that of another column. Of several names the first one that a row has counts, as in the
    fold. The steps are in order; places are as they have them.
    """
    names, until = [name], dict[Order | None, list[str]]()
    until[None] = names
    for step in reversed(list(steps)):
        before = names
        if step.action == "rename_column" and step.to in names:
            behind = names.index(step.to) + 1
            before = [*dict.fromkeys((*names[:behind], step.column, *names[behind:]))]
        elif step.action == "drop_column" and step.column in names and step.since is None:
            before = [each for each in names if each != step.column]
        if before != names:
            names = until[step.order] = before
    return [*reversed(until.items())]


class Step(NamedTuple):
    """What one event did to one key: for ``explain``.

    ``effect`` is one of ``set``, ``overlay``, ``delete``, ``cleared``, ``fill``, ``rename``,
    ``drop``, ``nothing``, or `STAYS` if a former row of the key leaves and the row that has it now keeps it.
    """

    key: Key
    event: Placed | SchemaStep
    effect: str
    row: Image | None
    why: str


@dataclass(slots=True)
class Row:
    """One existing row; ``complete`` is False for a row known only from a partial update.

    ``types`` are those of the messages with its values, ``place`` is that of the last one, and ``arrived`` is the
    transaction in which it came to its key. ``loaded`` is true if that message says only that it is there, as a snapshot does.
    """

    values: Image
    complete: bool = True
    types: Mapping[str, str] = field(default_factory=dict)
    place: Order | None = field(default=None, compare=False)
    arrived: str | None = field(default=None, compare=False)
    loaded: bool = field(default=False, compare=False)


@dataclass(slots=True)
class Table:
    """The state that the fold works on: the live rows, and each key's last live values.

    The last values outlive a delete, because a key change may arrive as delete(old) and
    insert(new) whose unavailable values are the old row's.  What a key change inherited is stored under its place, or
    without one under what it says: when its message is repeated, the old key may have a new row.

    With ``soft`` a row that is deleted, cleared or leaves its key is kept in ``dead`` as it was last, until its key has a
    row again. It is a row of the mirror, and nothing else: no later change takes values from it. Only if messages are
    repeated, a partial update makes a row of what it carries, and its delete ends that row: ``ended`` has the rest.
    """

    keys: tuple[str, ...]
    key_types: Mapping[str, str] = field(default_factory=dict)
    rows: dict[Key, Row] = field(default_factory=dict)
    last: dict[Key, Image] = field(default_factory=dict)
    inherited: dict[tuple[object, ...], Image | None] = field(default_factory=dict)
    soft: bool = False
    dead: dict[Key, Row] = field(default_factory=dict)
    ended: dict[Key, Row] = field(default_factory=dict)
    crossings: Crossings = field(default_factory=Crossings)

    def row(self, key: Key) -> Row | None:
        """The mirror's row of a key: the existing one, or the deleted one that is kept."""
        return self.rows.get(key) or self.dead.get(key)

    def remove(self, key: Key, event: Placed | SchemaStep) -> Row | None:
        """Remove the row of a key, if there is one."""
        row = self.rows.pop(key, None)
        if row is not None and self.soft:
            deleted_at = instant(event.change.event_time) if isinstance(event, Placed) else None
            if not row.complete and key in self.ended:
                row = replace(row, values={**self.ended[key].values, **row.values})
            row = replace(row, values={**row.values, DELETED: "true", DELETED_AT: deleted_at})
            self.dead[key] = self.ended[key] = row
        return row

    def key(self, *images: Image | None) -> Key:
        """The typed key of a row, from the first image with each column; a `KeyCellError` if a cell is missing or wrong."""
        return key_of_texts(self.keys, texts_of_key(self.keys, *images), self.key_types)


class KeyCellError(ValueError):
    """A change without a usable key: it is rejected, because a mirror never gets a NULL key."""

    def __init__(self, column: str, what: str) -> None:
        super().__init__(f"the key column {column!r} {what}")
        self.column = column


def fold(
    events: Iterable[Placed | SchemaStep], keys: tuple[str, ...], key_types: Mapping[str, str] | None = None
) -> dict[Key, Row]:
    """The existing rows after all events, given in any order."""
    table = Table(keys, key_types or {})
    for _step in steps(table, events):
        pass
    return table.rows


def place_in_history(event: Placed | SchemaStep) -> tuple[Order, bool]:
    """An event's place; a step for a column that a row announces has the row's place, and comes before it."""
    return event.order, isinstance(event, Placed)


def in_order(events: Iterable[Placed | SchemaStep]) -> list[Placed | SchemaStep]:
    """Events in the order of history."""
    return sorted(events, key=place_in_history)


def steps(table: Table, events: Iterable[Placed | SchemaStep]) -> Iterator[Step]:
    """Apply events to ``table`` in their order; yield what each did to each key that it touched."""
    for event in in_order(events):
        if isinstance(event, SchemaStep):
            yield from _schema(table, event)
        else:
            try:
                yield from _APPLY[event.change.op](table, event)
            except KeyCellError as error:
                yield Step((), event, "nothing", None, f"rejected: {error}")


def typed(logical: str, text: str, column: str = "") -> object:
    """A key cell's value: ``1.0`` and ``1.00`` are one key; a `KeyCellError` if the text is not a value of the type."""
    try:
        return value_of(logical, text)
    except (ValueError, ArithmeticError):
        form, value = misfits(logical)
        why = form if not types.matches(logical, text) else value
        raise KeyCellError(column, f"is {why}: {text[:40]!r}") from None


class Concerned(NamedTuple):
    """The keys that a change concerns: the key of its row, and the old key if it changes; ``texts`` are those of each."""

    key: Key
    left: Key | None
    texts: Mapping[Key, Texts]

    @property
    def before(self) -> Key:
        """The key that the row had before the change."""
        return self.key if self.left is None else self.left


def key_of_change(change: Change, keys: tuple[str, ...], key_types: Mapping[str, str]) -> Concerned:
    """The keys that a row change concerns: the one rule, which `ingest.tables.keys` implements for Spark.

    A cell is taken from the first image that has its column, even if it is NULL there: for a delete the image before,
    for any other change the image after. A ``before`` that lacks every key column is not a change of the key;
    a row that was read (``read``) keeps its key.

    Raises:
        KeyCellError: a key cell is missing, NULL, or does not fit its type.
    """
    after, before = change.after, change.before
    texts = texts_of_key(keys, *((before, after) if change.op is Op.DELETE else (after, before)))
    key = key_of_texts(keys, texts, key_types)
    if before is not None and change.op is not Op.READ and not before.keys().isdisjoint(keys):
        texts_left = texts_of_key(keys, before, after)
        left = key_of_texts(keys, texts_left, key_types) if texts_left != texts else key
        if left != key:
            return Concerned(key, left, {key: texts, left: texts_left})
    return Concerned(key, None, {key: texts})


def texts_of_key(keys: Sequence[str], *images: Image | None) -> Texts:
    """A key's cells as texts, each from the first image that has its column.

    Raises:
        KeyCellError: no image has one.
    """
    texts = []
    for name in keys:
        for image in images:
            if image is not None and name in image:
                texts.append(image[name])
                break
        else:
            raise KeyCellError(name, "is missing")
    return tuple(texts)


def key_of_texts(keys: Sequence[str], texts: Iterable[str | None], key_types: Mapping[str, str]) -> Key:
    """The key with some texts as its cells, in their order.

    Raises:
        KeyCellError: one is NULL, or does not fit its type.
    """
    cells: list[object] = []
    for name, text in zip(keys, texts, strict=True):
        if text is None:
            raise KeyCellError(name, "is NULL")
        cells.append(typed(key_types.get(name, "unknown"), text, name))
    return tuple(cells)


def may_change_key(before: Image, after: Image, keys: tuple[str, ...]) -> bool:
    """True if a change may change its key, judged by texts; without known keys any change may."""
    for key in keys:
        if key in before and before[key] != after.get(key, before[key]):
            return True
    return not keys


def _upsert(table: Table, event: Placed) -> Iterator[Step]:
    change = event.change
    after = change.new_cells
    key, old, _ = key_of_change(change, table.keys, table.key_types)
    if old is not None:
        departure = table.crossings.depart(old, event, table.rows.get(old))
        inherited = _inherited(table, departure, (old, key), event) if change.partial else None
        yield from _take_away(table, old, event, departure, "its key changed")
        if change.partial:
            yield _inherit(table, key, event, inherited)
            return
    elif change.op is Op.UPDATE and change.partial:
        yield _overlay(table, key, event)
        return
    arrives = old is not None or change.op is Op.INSERT
    why = f"{change.op} carries the row"
    yield _set(table, key, event, dict(after), complete=True, effect="set", why=why, arrives=arrives)


def _inherited(table: Table, departure: Departure, keys: tuple[Key, Key], event: Placed) -> Image | None:
    """The values that a key change inherits from the row that leaves; the same ones when its message is repeated.

    Without a position a repetition is known by what it says, and by the row that it has moved, which still has the new
    key.
    """
    order, change = event
    old, new = keys
    values = departure.takes.values if departure.takes else table.last.get(old)
    if order.sequence:
        return table.inherited.setdefault((*order[:4], order.row, old, new), values)
    images = (frozenset((image or {}).items()) for image in (change.before, change.after))
    said = (change.event_time, order.row, old, new, *images)
    moved = table.rows.get(new) if said in table.inherited else None
    table.inherited[said] = values
    return moved.values if moved else values


def _inherit(table: Table, key: Key, event: Placed, inherited: Image | None) -> Step:
    after = event.change.new_cells
    if inherited is None and key in table.rows:  # a repeated message: the row has moved already
        inherited = table.rows[key].values
    values = {**(inherited or {}), **after}
    why = "the key changed; columns not sent come from the old key" if inherited else "the old key is unknown"
    complete = inherited is not None
    return _set(table, key, event, values, complete=complete, effect="set", why=why, arrives=True)


def _overlay(table: Table, key: Key, event: Placed) -> Step:
    row = table.rows.get(key)
    values = {**(row.values if row else {}), **event.change.new_cells}
    why = "only the columns sent change" if row else "a partial update of a row never seen"
    return _set(table, key, event, values, complete=bool(row and row.complete), effect="overlay", why=why)


def _set(
    table: Table,
    key: Key,
    event: Placed,
    values: Image,
    *,
    complete: bool,
    effect: str,
    why: str,
    arrives: bool = False,
) -> Step:
    types, row_before = event.change.types, table.rows.get(key)
    if effect == "overlay" and row_before and row_before.types != types:
        types = {**row_before.types, **types}
    table.dead.pop(key, None)
    arrived = row_before.arrived if row_before else None
    if arrives:
        table.crossings.arrive(key, event, row_before, values, had_row=key in table.last)
        arrived = transaction_of(event.change)
    elif row_before:
        table.crossings.change(key)
    loaded = is_loaded(event.order, event.change)
    table.rows[key] = Row(values, complete, types, event.order, arrived, loaded)
    table.last[key] = values
    return Step(key, event, effect, values, why)


def _delete(table: Table, event: Placed) -> Iterator[Step]:
    yield from _remove(table, key_of_change(event.change, table.keys, table.key_types).key, event, "deleted")


def _remove(table: Table, key: Key, event: Placed, why: str) -> Iterator[Step]:
    departure = table.crossings.depart(key, event, table.rows.get(key))
    yield from _take_away(table, key, event, departure, why)


def _take_away(table: Table, key: Key, event: Placed, departure: Departure, why: str) -> Iterator[Step]:
    if departure.stays:
        why = f"{why}: that of the row that had this key before, and the row that came to the key stays"
        yield Step(key, event, STAYS, table.rows[key].values, why)
        return
    gone = table.remove(key, event)
    if departure.returns is not None:
        table.rows[key] = departure.returns
        table.dead.pop(key, None)
        table.last[key] = departure.returns.values
        yield Step(
            key,
            event,
            "set",
            departure.returns.values,
            f"{why}; the row that had the key before has it again",
        )
        return
    yield Step(
        key, event, "delete" if gone else "nothing", None, why if gone else f"{why}, but there was no row"
    )


def _truncate(table: Table, event: Placed | SchemaStep) -> Iterator[Step]:
    why = "the table was truncated" if isinstance(event, Placed) else "the table was created again"
    table.crossings.clear()
    for key in list(table.rows):
        table.remove(key, event)
        yield Step(key, event, "cleared", None, why)


def _schema(table: Table, event: SchemaStep) -> Iterator[Step]:
    if event.empties:
        yield from _truncate(table, event)
        return
    change = _SCHEMA[event.action]
    for key, row in (*table.rows.items(), *table.dead.items()):
        if not event.meets(row):
            continue
        values = change(event, row)
        if event.to and event.column in row.types:
            row.types = {**row.types, event.to: row.types[event.column]}
        if values is not row.values:
            row.values = values
            if key in table.rows:
                table.last[key] = values
            yield Step(key, event, event.action.partition("_")[0], values, f"{event.action} {event.column}")


def _fill(event: SchemaStep, row: Row) -> Image:
    values = row.values
    return values if event.column in values else {**values, event.column: event.default}


def _rename(event: SchemaStep, row: Row) -> Image:
    """The new name takes over the values; the policy decides whether the old column stays."""
    values = row.values
    if event.to in values or event.column not in values:
        return values
    return {**values, event.to: values[event.column]}


def _retype(event: SchemaStep, row: Row) -> Image:
    name = event.column
    if name not in row.values and not row.complete:
        return row.values
    text = row.values.get(name)
    new = event.converted(text, row.types.get(name, ""))
    return row.values if new == text else {**row.values, name: new}


_SCHEMA: dict[str, Callable[[SchemaStep, Row], Image]] = {
    "add_column": _fill,
    "rename_column": _rename,
    "drop_column": lambda event, row: {
        name: text for name, text in row.values.items() if name != event.column
    },
    "retype_column": _retype,
    OPEN: lambda _event, row: row.values,
}
_APPLY: dict[Op, Callable[[Table, Placed], Iterator[Step]]] = {
    Op.READ: _upsert,
    Op.INSERT: _upsert,
    Op.UPDATE: _upsert,
    Op.DELETE: _delete,
    Op.TRUNCATE: _truncate,
}


def identity(order: Order, change: Change, *, shared_reads: bool = False) -> tuple[Hashable, ...]:
    """What a change has in common with its own repetitions, and with no other change: the one rule of "the same again".

    A change repeats another one if the source's position, the row's number in the message, the operation and both images
    are equal. Where a position does not identify a change, only arrival does: if there is none, and for rows of a snapshot
    that all carry the log's position when it was taken (``shared_reads``: `ingest.formats.About`). Two equal rows of such
    a snapshot are two rows, and one that is delivered twice counts twice.
    """
    by_arrival = not order.sequence or (shared_reads and change.op is Op.READ)
    place: Hashable = order if by_arrival else (order[:4], order.row)
    return place, *content_of(change)


def is_loaded(order: Order, change: Change) -> bool:
    """True for a row that is there already when it is sent: of a snapshot, or of a full load that sends inserts."""
    return change.op is Op.READ or (change.op is Op.INSERT and not order.phase)


def copies(events: Iterable[Placed | SchemaStep], *, shared_reads: bool = False) -> Iterator[Row]:
    """The rows of a table without a key, each as often as it exists.

    A delete removes a row with all cells of its image; a repeated change counts once, by `identity`.
    """
    rows: list[Row] = []
    seen: set[tuple[Hashable, ...]] = set()
    for event in in_order(events):
        if isinstance(event, SchemaStep):
            if event.empties:
                rows = []
            for row in rows:
                event.apply(row)
            continue
        change, order = event.change, event.order
        if change.op is Op.TRUNCATE:
            rows = []
            continue
        same = identity(order, change, shared_reads=shared_reads)
        if same in seen:
            continue
        seen.add(same)
        taken = row_taken(order, change)
        if taken is not None:
            _take(rows, taken)
        if change.op is not Op.DELETE:
            rows.append(Row({**change.old_cells, **change.new_cells}, types=change.types, place=order))
    return iter(rows)


def row_taken(order: Order, change: Change) -> Image | None:
    """The row that a change takes from a table without a key, one image completed from the other; None if it takes none.

    An update whose image before is a message of its own takes none: that message has taken the row.
    """
    if change.op not in (Op.UPDATE, Op.DELETE) or (order.half == 1 and change.before is None):
        return None
    return {**change.new_cells, **change.old_cells}


def _take(rows: list[Row], image: Image) -> None:
    for i, row in enumerate(rows):
        if all(row.values.get(name) == value for name, value in image.items()):
            del rows[i]
            return
