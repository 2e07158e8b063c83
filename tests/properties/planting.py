"""Values planted in a history, each once for what it replaces, so that a file can be searched for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ingest import formats
from ingest.change import Image
from tests.formats.one_history.history import TYPES, Event, History, key_of
from tests.formats.one_history.writing import Dialect

MARK = "Zqx7Wk"  # every planted text begins with it; so many bytes that base64 keeps them apart
Row = int
"""The number of a row, whatever its key."""


@dataclass(slots=True)
class Planter:
    """Plants values, each once for what it replaces, and knows them."""

    random: Random
    columns: Sequence[str]
    is_odd: bool = (
        False  # texts with marks that careless quoting breaks, of three letters, and of five kilobytes
    )
    known: dict[tuple[Row, str, str], str] = field(default_factory=dict)
    texts: dict[Row, set[str]] = field(default_factory=dict)
    owners: dict[str, Row] = field(default_factory=dict)  # whose each text is

    def row(self, number: Row, image: Image) -> Image:
        """An image with planted values."""
        return {
            name: self.value(number, name, value) if name in self.columns and value is not None else value
            for name, value in image.items()
        }

    def value(self, number: Row, column: str, old: str) -> str:
        """The planted text that replaces a value of a row."""
        place = number, column, old
        if place not in self.known:
            made = self._made(column)
            # a search could not say whose it is
            while any(self.owners.get(text, number) != number for text in _spelt(TYPES[column], made)):
                made = self._made(column)
            self.known[place] = made
            self.owners |= dict.fromkeys(_spelt(TYPES[column], made), number)
            self.texts.setdefault(number, set()).update(_spelt(TYPES[column], made))
        return self.known[place]

    def _made(self, column: str) -> str:
        random, logical = self.random, TYPES[column]
        text = MARK + "".join(random.choice("bcdfghjk") for _ in range(8))
        day = f"18{random.randint(50, 99)}-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"
        if logical in ("int64", "uint64"):
            return f"77{random.randint(10**12, 10**13 - 1)}"
        if logical.startswith("decimal"):
            return f"88{random.randint(10**14, 10**15 - 1)}.{random.randint(10**8, 10**9 - 1)}7"
        if logical == "date":
            return day
        if logical.startswith("datetime"):
            return f"{day} 07:41:33.{random.randint(100, 998)}"
        if logical == "binary":
            return base64.b64encode(text.encode()).decode()
        if self.is_odd:
            text = (
                random.choice(_ODD)(random, text)
                if column != "lane"
                else random.choice(_ODD_KEYS).format(text)
            )
        return json.dumps({"of": text}) if logical == "json" else text


_ODD_KEYS = ("{}", '"{}"', "\\\\{}", "{}'s", "{} ä", "<{}>")
_ODD: Sequence[Callable[[Random, str], str]] = (
    *((lambda _random, text, form=form: form.format(text)) for form in (*_ODD_KEYS, "\\{}\\n", "a\n{}\t", "{}漢字", "&amp;{}")),
    lambda random, _text: "".join(chr(random.randrange(0x3400, 0x4DB0)) for _ in range(3)),  # rare signs, so that none is met by chance
    lambda _random, text: text + "x" * 5000,
)  # fmt: skip


def _spelt(logical: str, value: str) -> set[str]:
    """What a planted value may be found by."""
    if logical == "binary":
        data = base64.b64decode(value)
        return {value, data.decode(), data.hex(), data.hex().upper()}
    if logical == "json":
        return {json.loads(value)["of"]}
    return {value, value.replace(" ", "T"), value[:10]} if logical.startswith("datetime") else {value}


def planted(truth: History, planter: Planter, dialect: Dialect) -> tuple[History, list[set[Row]]]:
    """A history with planted values, and which rows each of its events is about; none for statements.

    A changed key that a dialect sends as a delete and an insert, each in a message of its own, makes another row, unless
    the two are halves of one place: then an erasure follows the key.
    """
    numbers: dict[Any, Row] = {}
    events: list[Event] = []
    rows: list[set[Row]] = []
    last = 0
    for event in truth.events:
        if event.kind == "truncate":
            numbers.clear()
        if event.before is None and event.after is None:
            sql = event.sql
            if event.kind == "alter" and "desk" in planter.columns and sql is not None:
                default = planter.value(0, "desk", "default")
                sql = f"{sql} DEFAULT '{default}' COMMENT 'as {default}'"
            events.append(event._replace(sql=sql))
            rows.append(set())
            continue
        old = numbers.pop(key_of(event.before), 0) if event.before else 0
        new = old
        moved = event.after and event.before and key_of(event.after) != key_of(event.before)
        if not old or (moved and _is_split(dialect, event)):
            last = new = last + 1
        if event.after:
            numbers[key_of(event.after)] = new
        before = None if event.before is None else planter.row(old or new, event.before)
        after = None if event.after is None else planter.row(new, event.after)
        events.append(event._replace(before=before, after=after))
        rows.append({old or new, new})
    left = {numbers[key]: planter.row(numbers[key], row) for key, row in truth.rows.items()}
    return History(truth.seed, events, {key_of(row): row for row in left.values()}), rows


def _is_split(dialect: Dialect, event: Event) -> bool:
    """True if a dialect sends a changed key as a delete and an insert that do not name each other."""
    sent, parse = dialect.write(History(0, [event])), formats.load(dialect.format).parse
    halves = {change.half for one in sent for change in parse(one, dialect.hints)}
    return len(sent) > 1 and halves != {0, 1}
