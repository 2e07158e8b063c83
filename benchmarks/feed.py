"""What a topic is loaded with: messages of many tables, second by second, and what the mirrors must hold afterwards."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.e2e.topics import Sent
from tests.lakes import change

PARTITIONS = 2
HOT_TABLE, HOT_KEY = "meters", 0
HOT = ("orders", "lines", "visits", "stock")
LARGE_TABLE = "letters"
LONG = 1_000  # characters; longer texts are compared by their hash
_POISON = b'{"data":[{"id":"1","word":"cut off'


@dataclass(frozen=True, slots=True)
class Shape:
    """How much load."""

    seconds: int = 600
    tables: int = 1_000
    updates: int = 1_000_000  # of the hot key
    others: float = 0.25  # messages of other keys for each of these
    poison: float = 0.001
    rarely: int = 5  # seconds between two updates of tables that are not hot
    large: int = 64 << 20  # bytes of the one large message
    seed: int = 1


class Feed:
    """What is sent, and what the mirrors must hold afterwards."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.rng = random.Random(shape.seed)  # noqa: S311 - to be repeatable
        self.rows: dict[str, dict[int, str]] = {HOT_TABLE: {}, LARGE_TABLE: {}}
        self.rows |= {name: {} for name in HOT}
        self.cold = [f"t{n:04}" for n in range(shape.tables - len(self.rows))]
        self.rows |= {name: {} for name in self.cold}
        self.sent = self.changes = self.poisoned = self.serial = 0
        self._next = dict.fromkeys(self.rows, 1)

    def beginning(self) -> Iterator[Sent]:
        """The first row of every table."""
        for name in self.rows:
            yield self._put("INSERT", name, HOT_KEY, f"first of {name}")

    def second(self, number: int) -> Iterator[Sent]:
        """The messages of one second of load."""
        shape = self.shape
        before, after = (shape.updates * n // shape.seconds for n in (number, number + 1))
        for update in range(before, after):
            yield self._put("UPDATE", HOT_TABLE, HOT_KEY, f"reading {update}")
            if self.rng.random() < shape.others:
                yield self._other(self.rng.choice(HOT))
            if self.rng.random() < shape.poison * (1 + shape.others):
                yield self._poison()
        if self.cold and number % shape.rarely == 0:
            name = self.cold[number // shape.rarely % len(self.cold)]
            yield self._put("UPDATE", name, HOT_KEY, f"seen in second {number}")
        if number == shape.seconds // 3:
            yield self._put("INSERT", LARGE_TABLE, 1, "m" * (shape.large - _around()))

    def _other(self, name: str) -> Sent:
        """An insert, update or delete of a hot table."""
        rows, dice = self.rows[name], self.rng.random()
        key = self.rng.randrange(self._next[name])
        if dice < 0.25:
            key, self._next[name] = self._next[name], self._next[name] + 1
        if key not in rows:
            return self._put("INSERT", name, key, f"new {self.serial}")
        if dice < 0.90:
            return self._put("UPDATE", name, key, f"changed {self.serial}")
        return self._message("DELETE", name, key, rows.pop(key))

    def _put(self, kind: str, name: str, key: int, word: str) -> Sent:
        self.rows[name][key] = word if len(word) < LONG else hashlib.sha256(word.encode()).hexdigest()
        return self._message(kind, name, key, word)

    def _message(self, kind: str, name: str, key: int, word: str) -> Sent:
        self.serial += 1
        self.sent += 1
        self.changes += 1
        line = change(kind, name, self.serial, {"id": str(key), "word": word}).rstrip().encode()
        place = b"%s/%d" % (name.encode(), key)
        return Sent(line, place, zlib.crc32(place) % PARTITIONS)

    def _poison(self) -> Sent:
        self.sent += 1
        self.poisoned += 1
        return Sent(_POISON, None, self.poisoned % PARTITIONS)


def _around() -> int:
    """Bytes of a message around its text."""
    return len(change("INSERT", LARGE_TABLE, 1_000_000, {"id": "1", "word": ""}))
