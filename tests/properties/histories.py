"""Random histories of one table: statements against a `Database`, and the messages that capture them.

A history is drawn from a seed, so a wrong one is its kind and its number. Messages come out in the
source's order; `tests.properties.delivery` is what happens to them on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from random import Random
from typing import NamedTuple

import msgspec

from ingest.change import Change, Image, Op, TableId
from tests.properties.database import Database, Key, Row
from tests.properties.kinds import ARRIVAL, TRANSACTION, Kind

COLUMNS = {"n": "int64", "s": "string", "d": "decimal(30,2)"}
SPELLINGS: dict[str, tuple[tuple[object, tuple[str, ...]], ...]] = {
    "int64": ((1, ("1",)), (2, ("2",)), (-3, ("-3",)), (10, ("10",))),
    "decimal(10,2)": (
        (Decimal(1), ("1", "1.0", "1.00")),
        (Decimal("0.1"), ("0.1", "0.10")),
        (Decimal(-20), ("-20", "-20.0", "-2E+1")),
        (Decimal(0), ("0", "0.00", "-0.0")),
    ),
    "string": (
        ("a", ("a",)),
        ("A", ("A",)),
        ("a ", ("a ",)),
        ("", ("",)),
        ("ä", ("ä",)),
        ("a\u0308", ("a\u0308",)),
    ),
}
"""Key cells by logical type: each value with all its spellings, near to others that are other values."""


class Sent(NamedTuple):
    """One message on its way: the epoch of its sequence, and its changes."""

    epoch: int
    changes: tuple[Change, ...]


@dataclass(slots=True)
class History:
    """Messages in the source's order, and what they must fold to."""

    kind: Kind
    seed: str
    table: TableId
    types: Mapping[str, str]
    keys: tuple[str, ...]
    sent: list[Sent] = field(default_factory=list)
    rows: dict[Key, Row] = field(default_factory=dict)
    dead: dict[Key, tuple[Row, int]] = field(default_factory=dict)  # see `Database.dead`


def moment(clock: int) -> int:
    """The time of a history's step, in microseconds."""
    return 1_714_521_600_000_000 + 1_000_000 * clock


Spelt = tuple[tuple[object, tuple[str, ...]], ...]


class Writer:
    """The source and its capture: makes statements, keeps the rows, emits messages."""

    def __init__(self, history: History, random: Random, prefix: Spelt) -> None:
        self.kind, self.random, self.history = history.kind, random, history
        self.database = Database(tuple(COLUMNS))
        pool = _pool(random, self.kind, prefix)
        self.spellings = {tuple(value for value, _ in cells): [texts for _, texts in cells] for cells in pool}
        self.counter = 0
        self.epoch = 0
        self.number = random.choice((0, 7, 95, 998, 10**18 - 3))
        self.wide = random.random() < 0.3  # a sequence of two numbers, as file and position

    # --- values ---

    def value(self, column: str) -> str | None:
        """A value that no other statement has written, or NULL."""
        self.counter += 1
        if self.random.random() < 0.15:
            return None
        number = str(self.counter)
        long = f"90071992547409930{number}.10"  # too long for a float
        return {"n": number, "s": f"s{number}", "d": long}[column]

    def row(self) -> Row:
        """A whole new row."""
        return {column: self.value(column) for column in COLUMNS}

    def changed(self) -> Row:
        """Some columns with new values."""
        names = [column for column in COLUMNS if self.random.random() < 0.5] or [self.random.choice(_NAMES)]
        return {column: self.value(column) for column in names}

    def written(self, key: Key) -> dict[str, str | None]:
        """A key's columns, each in one of its spellings."""
        return {
            column: texts[0] if len(texts) == 1 else self.random.choice(texts)
            for column, texts in zip(self.history.keys, self.spellings[key], strict=True)
        }

    def image(self, key: Key, row: Row) -> Image:
        """A full image; a NULL may be left out of it."""
        if self.random.random() < 0.2:
            row = {column: value for column, value in row.items() if value is not None}
        return {**self.written(key), **row}

    def key(self, *, live: bool) -> Key | None:
        """Any key with a row, or without one."""
        found = [key for key in self.spellings if (key in self.database.rows) is live]
        return self.random.choice(found) if found else None

    # --- places ---

    def step(self) -> None:
        """Go to the next place in history; a transaction often stays where it is."""
        if self.kind.order != TRANSACTION or self.random.random() < 0.4:
            self.number += 1

    def sequence(self) -> tuple[int, ...]:
        """The place, as the source writes it."""
        if self.kind.order == ARRIVAL:
            return ()
        return divmod(self.number, 7) if self.wide else (self.number,)

    def change(self, op: Op, *, before: Image | None = None, after: Image | None = None,
               partial: bool = False, phase: int = 1, half: int = 0) -> Change:  # fmt: skip
        """A change here and now."""
        history = self.history
        return Change(
            op=op, table=history.table, keys=history.keys, types=history.types, before=before, after=after,
            partial=partial, phase=phase, half=half, sequence=self.sequence() if phase else (),
            event_time=moment(self.database.clock),
        )  # fmt: skip

    def send(self, *changes: Change) -> None:
        """One message."""
        if len(changes) > 1:
            changes = tuple(_at(change, row) for row, change in enumerate(changes))
        self.history.sent.append(Sent(self.epoch, changes))


def _pool(random: Random, kind: Kind, prefix: Spelt) -> list[Spelt]:
    """Four keys of a history, or as many as there are."""
    everything = list(product(*[SPELLINGS[one] for one in kind.key_types]))
    return [(*prefix, *cells) for cells in random.sample(everything, min(4, len(everything)))]


_NAMES = tuple(COLUMNS)


def _at(change: Change, row: int) -> Change:
    """The change as one row of a message of several; its row number gives its place."""
    return msgspec.structs.replace(change, row=row, half=0)


# --- statements: each changes the database and returns what the capture says of it ---


def _insert(writer: Writer) -> list[Change]:
    key = writer.key(live=False)
    if key is None:
        return []
    row = writer.row()
    writer.database.insert(key, row)
    # a format that does not promise full images calls them all partial
    partial = writer.kind.partials and writer.random.random() < 0.5
    return [writer.change(Op.INSERT, after=writer.image(key, row), partial=partial)]


def _update(writer: Writer) -> list[Change]:
    key = writer.key(live=True)
    if key is None:
        return []
    random, changed = writer.random, writer.changed()
    old = dict(writer.database.rows[key])
    if writer.kind.partials and random.random() < 0.6:
        writer.database.update(key, changed, whole=False)
        if random.random() < 0.2:  # only the image before holds the key
            return [writer.change(Op.UPDATE, before=writer.written(key), after=dict(changed), partial=True)]
        return [writer.change(Op.UPDATE, after={**writer.written(key), **changed}, partial=True)]
    row = writer.database.update(key, changed, whole=True)
    some = {column: old[column] for column in changed}
    before = random.choice((None, {**writer.written(key), **old}, some))
    return [writer.change(Op.UPDATE, before=before, after=writer.image(key, row))]


def _delete(writer: Writer) -> list[Change]:
    key = writer.key(live=True)
    if key is None:
        return []
    old = writer.database.delete(key)
    before = writer.written(key) if writer.random.random() < 0.5 else {**writer.written(key), **old}
    return [writer.change(Op.DELETE, before=before)]


def _truncate(writer: Writer) -> list[Change]:
    writer.database.truncate()
    return [writer.change(Op.TRUNCATE)]


def _move(writer: Writer) -> list[Change]:
    """A changed key, in one of the shapes in which captures write it."""
    old, new = writer.key(live=True), writer.key(live=False)
    if old is None or new is None:
        return []
    random = writer.random
    inherits = writer.kind.inherits and random.random() < 0.6
    before = {**writer.written(old), **writer.database.rows[old]}
    changed = writer.changed() if random.random() < 0.5 else {}
    row = writer.database.move(old, new, changed, whole=not inherits)
    shape = random.random()
    if inherits:
        return _inheriting(writer, old, new, changed, shape)
    after = writer.image(new, row)
    if shape < 0.3:
        return [writer.change(Op.DELETE, before=before), writer.change(Op.UPDATE, after=after, half=1)]
    if shape < 0.5:
        before = {name: before[name] for name in (*_moved(writer, old, new), *changed)}  # only what changed
    elif shape < 0.7:
        before = {name: before[name] for name in writer.history.keys}
    return [writer.change(Op.UPDATE, before=before, after=after)]


def _inheriting(writer: Writer, old: Key, new: Key, changed: Row, shape: float) -> list[Change]:
    before = writer.written(old)
    after = {**writer.written(new), **changed}
    if shape < 0.3:  # a delete, then an insert that names the old key
        gone = writer.change(Op.DELETE, before=before)
        return [gone, writer.change(Op.INSERT, before=writer.written(old), after=after, partial=True, half=1)]
    if shape < 0.6:
        kept = (*_moved(writer, old, new), *changed)
        after = {name: after[name] for name in kept}
    return [writer.change(Op.UPDATE, before=before, after=after, partial=True)]


def _moved(writer: Writer, old: Key, new: Key) -> list[str]:
    """The key columns whose values differ."""
    pairs = zip(writer.history.keys, old, new, strict=True)
    return [name for name, left, right in pairs if left != right]


Statement = Callable[[Writer], list[Change]]


def _statements(kind: Kind) -> list[Statement]:
    """The statements of a kind, each as often as it is likely."""
    own = [_truncate] if kind.truncates and not kind.truncate_at else []
    return [_insert] * 6 + [_update] * 8 + [_delete] * 4 + [_move] * (5 * kind.moves) + own


# --- histories ---


def history(kind: Kind, number: int, *, table: TableId | None = None, shared: bool = False) -> History:
    """The history of a kind and number.

    Args:
        kind: what it may hold.
        number: its seed.
        table: its table's name; the kind's unless given.
        shared: many histories in one table, each under its own number as the key's first column.
    """
    seed = f"{kind.name}/{number}"
    random = Random(seed)
    keys = ("h", *kind.keys) if shared else kind.keys
    types = dict(zip(keys, (*(["int64"] if shared else []), *kind.key_types), strict=True))
    made = History(kind, seed, table or TableId("shop", None, kind.name), _types({**types, **COLUMNS}), keys)
    prefix: Spelt = ((number, (str(number),)),) if shared else ()
    writer = Writer(made, random, prefix)
    if kind.truncate_at:  # every table has the truncates, so it has their places, too
        writer.number, writer.wide = 95, False
    (_scribble if kind.lawless else _write)(writer)
    made.rows, made.dead = writer.database.known(), writer.database.dead
    return made


def _types(types: dict[str, str]) -> Mapping[str, str]:
    """One object for equal types, as parsers give."""
    return _SHARED_TYPES.setdefault(tuple(types.items()), types)


_SHARED_TYPES: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}


def _write(writer: Writer) -> None:
    kind, random = writer.kind, writer.random
    statements = _statements(kind)
    _begin(writer)
    late = 0 if kind.inherits else random.randrange(kind.steps)  # a load gives a moved row two pasts
    snapshot = random.choice((-1, 0, late))
    restart = random.randrange(1, kind.steps) if kind.epochs and random.random() < 0.2 else -1
    for step in range(kind.steps):
        if step == restart:
            _restart(writer)
        elif step == snapshot:
            _snapshot(writer)
        writer.step()
        writer.database.clock = step
        if step in kind.truncate_at:
            writer.send(*_truncate(writer))
        else:
            _speak(writer, statements)


def _begin(writer: Writer) -> None:
    """Add rows from before the capture began."""
    for _ in range(writer.random.choice((0, 1, 2))):
        key = writer.key(live=False)
        if key is not None:
            writer.database.add_unseen(key, writer.row())


def _snapshot(writer: Writer) -> None:
    """A full load next to the stream: its rows have no sequence, and are ordered before the whole stream."""
    for key, row in writer.database.read().items():
        writer.send(writer.change(Op.READ, after=writer.image(key, row), phase=0))


def _restart(writer: Writer) -> None:
    """The sequence begins again from a low number, in a new epoch, with a full load or without."""
    writer.epoch += 1
    writer.number = writer.random.choice((0, 3))
    if writer.random.random() < 0.5:
        _snapshot(writer)


def _speak(writer: Writer, statements: list[Statement]) -> None:
    """One message of one or a few statements; where halves share a number, a message each."""
    random = writer.random
    count = random.choice((2, 3)) if random.random() < 0.12 else 1
    changes = [change for _ in range(count) for change in random.choice(statements)(writer)]
    halves = any(change.half for change in changes)
    if halves and writer.kind.any_order and count == 1 and random.random() < 0.5:
        for change in changes:  # two messages that share a number on purpose, distinguished by their half
            writer.send(change)
    elif changes:
        writer.send(*changes)


def _scribble(writer: Writer) -> None:
    """Changes without regard to the table's rows: updates of deleted rows, inserts over live ones."""
    random = writer.random
    keys = list(writer.spellings)
    for _ in range(writer.kind.steps):
        writer.step()
        op = random.choice((Op.INSERT, Op.UPDATE, Op.UPDATE, Op.UPDATE, Op.DELETE))
        old, new = random.choice(keys), random.choice(keys)
        if op is Op.DELETE:
            after = writer.written(old) if random.random() < 0.3 else None
            writer.send(writer.change(op, before=writer.written(old), after=after))
        elif random.random() < 0.3:
            writer.send(writer.change(op, before=writer.written(old), after=writer.image(new, writer.row())))
        else:
            partial = random.random() < 0.6
            row = writer.changed() if partial else writer.row()
            writer.send(writer.change(op, after={**writer.written(new), **row}, partial=partial))
