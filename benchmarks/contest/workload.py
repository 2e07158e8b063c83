"""The workload: row changes of a few tables as Canal messages, and what the tables must hold afterwards.

The messages are those of DTS' Canal JSON, because their ``id`` is one sequence over all tables.  A value is a function
of the sequence number that wrote it, so the expected tables are computed whole, not folded: birth and last change of
each key are all that is remembered.  The same seed gives the same bytes.
"""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

COLUMNS = {
    "id": "BIGINT",
    "customer": "BIGINT",
    "amount": "DECIMAL(38,10)",
    "status": "STRING",
    "note": "STRING",
    "seen": "TIMESTAMP_NTZ",
}
DATABASE = "shop"
STATUSES = ("new", "paid", "packed", "shipped", "returned")
NOTE = "parcel number"
ROWS_OF_A_LOAD = 50  # a base load puts many rows into a message, as the writers do
BLOCK = 50_000  # messages of a stream that are drawn at once
ROWS_AT_ONCE = 1_000_000  # of an expected table: its texts are Python's own, until they are Arrow's
SKEW = 0.99
_START = dt.datetime(2024, 5, 1)  # noqa: DTZ001 - a DATETIME has no zone
_START_MS = 1_714_521_600_000
_SECONDS = 20_000_000  # within which all moments lie
_PRIME = 2_147_483_647
_TYPES = (
    '"mysqlType":{"id":"bigint","customer":"bigint","amount":"decimal","status":"varchar","note":"varchar",'
    '"seen":"datetime"}'
)
_SQL_TYPES = '"sqlType":{"id":-5,"customer":-5,"amount":3,"status":12,"note":12,"seen":93}'
_INSERT, _UPDATE, _DELETE = 0, 1, 2
_SHARES = (0.25, 0.65, 0.10)


def draw(serial: Any, salt: int) -> Any:
    """A number below 2^31 that looks random; of a Python integer and of an array of int64 alike."""
    return (((serial + salt * 7_919) % _PRIME * 48_271 + salt) % _PRIME * 69_621 + salt) % _PRIME


def place(serial: Any, key: Any) -> Any:
    """What a row's values are drawn from: a message's number and, because rows of one message differ, the key."""
    return serial * 64 + key % 64


def amount(seed: Any) -> tuple[Any, Any]:
    """Integer part and ten digits of fraction; up to 29 digits together, more than a double holds."""
    return draw(seed, 1) * _PRIME + draw(seed, 2), (draw(seed, 3) * 5 + draw(seed, 4) % 5) % 10**10


@dataclass(slots=True)
class Table:
    """One table's keys: by the key, the sequence numbers of its birth and of its last change; 0 is no row."""

    name: str
    birth: array[int] = field(default_factory=lambda: array("q", [0]))
    last: array[int] = field(default_factory=lambda: array("q", [0]))

    def insert(self, key: int, serial: int) -> None:
        """A row comes, at the next key or where one was deleted."""
        if key == len(self.last):
            self.birth.append(serial)
            self.last.append(serial)
        else:
            self.birth[key] = self.last[key] = serial


class Workload:
    """Tables, and batches of changes to them."""

    def __init__(self, seed: int, tables: int, rows: int, *, bare: bool = False) -> None:
        self.tables = [Table(f"orders{n}") for n in range(tables)]
        self.rows = rows
        self.mark = "" if bare else '"'  # around numbers
        self.serial = 0
        self.reborn = 0  # updates whose key had been deleted, sent as inserts
        self.minimal = (
            False  # updates and deletes send the key and what updates change, as minimal row images do
        )
        self._random = np.random.default_rng(seed)
        weights = 1.0 / np.arange(1, rows + 1) ** SKEW
        self._zipf = np.cumsum(weights / weights.sum())
        self._scrambled = [self._random.permutation(rows) + 1 for _ in self.tables]

    def base(self) -> Iterator[str]:
        """The base load: every table's rows, many to a message."""
        for table in self.tables:
            for first in range(1, self.rows + 1, ROWS_OF_A_LOAD):
                self.serial += 1
                keys = range(first, min(first + ROWS_OF_A_LOAD, self.rows + 1))
                for key in keys:
                    table.insert(key, self.serial)
                rows = ",".join(self._row(table, key) for key in keys)
                yield self._message(table, "INIT", rows, "null")

    def batch(self, count: int, tables: int | None = None) -> list[str]:
        """So many changes, one to a message, in order; of the first ``tables`` tables only if that is given."""
        return list(self._changes(count, tables))

    def stream(self, count: int, tables: int | None = None) -> Iterator[str]:
        """The same for counts that no list should hold: batches of `BLOCK` messages, one after the other."""
        for first in range(0, count, BLOCK):
            yield from self._changes(min(BLOCK, count - first), tables)

    def births(self, each: int) -> Iterator[str]:
        """So many new rows for each table, one to a message, the tables in turn."""
        for _ in range(each):
            for number in range(len(self.tables)):
                yield self._change(number, _INSERT, 0)

    def _changes(self, count: int, tables: int | None) -> Iterator[str]:
        which = self._random.integers(0, tables or len(self.tables), count)
        kinds = self._random.choice(3, count, p=_SHARES)
        ranks = np.minimum(np.searchsorted(self._zipf, self._random.random(count)), self.rows - 1)
        for number, kind, rank in zip(which.tolist(), kinds.tolist(), ranks.tolist(), strict=True):
            yield self._change(number, kind, rank)

    def _change(self, number: int, kind: int, rank: int) -> str:
        self.serial += 1
        table = self.tables[number]
        key = len(table.last) if kind == _INSERT else int(self._scrambled[number][rank])
        if kind != _INSERT and not table.last[key]:
            self.reborn += 1
            kind = _INSERT
        if kind == _INSERT:
            table.insert(key, self.serial)
            return self._message(table, "INSERT", self._row(table, key), "null")
        image = self._short if self.minimal else self._row
        if kind == _DELETE:
            row = image(table, key)
            table.last[key] = 0
            return self._message(table, "DELETE", row, "null")
        old = self._changed(place(table.last[key], key))
        table.last[key] = self.serial
        return self._message(table, "UPDATE", image(table, key), f"[{{{old}}}]")

    def _short(self, table: Table, key: int) -> str:
        return f'{{"id":{self.mark}{key}{self.mark},{self._changed(place(table.last[key], key))}}}'

    def _row(self, table: Table, key: int) -> str:
        seed, mark = place(table.birth[key], key), self.mark
        return (
            f'{{"id":{mark}{key}{mark},"customer":{mark}{draw(seed, 5) % 100_000}{mark},'
            f'"note":"{NOTE} {draw(seed, 6)}",{self._changed(place(table.last[key], key))}}}'
        )

    def _changed(self, seed: int) -> str:
        """The columns that an update changes."""
        whole, part = amount(seed)
        return (
            f'"amount":{self.mark}{whole}.{part:010d}{self.mark},"status":"{STATUSES[seed % 5]}",'
            f'"seen":"{_START + dt.timedelta(seconds=seed % _SECONDS)}"'
        )

    def _message(self, table: Table, kind: str, rows: str, old: str) -> str:
        at = _START_MS + self.serial * 7
        return (
            f'{{"data":[{rows}],"database":"{DATABASE}","es":{at},"id":{self.serial},"isDdl":false,{_TYPES},'
            f'"old":{old},"pkNames":["id"],"sql":"",{_SQL_TYPES},"table":"{table.name}","ts":{at + 310},'
            f'"type":"{kind}"}}\n'
        )

    def expected(self) -> dict[str, pa.Table]:
        """What every table must hold now."""
        return {table.name: _expected(table) for table in self.tables}


def _expected(table: Table) -> pa.Table:
    keys = np.nonzero(np.frombuffer(table.last, dtype=np.int64))[0]
    blocks = range(0, max(len(keys), 1), ROWS_AT_ONCE)
    return pa.concat_tables(_rows(table, keys[first : first + ROWS_AT_ONCE]) for first in blocks)


def _rows(table: Table, keys: Any) -> pa.Table:
    births = place(np.frombuffer(table.birth, dtype=np.int64)[keys], keys)
    changed = place(np.frombuffer(table.last, dtype=np.int64)[keys], keys)
    whole, part = amount(changed)
    decimals = [f"{a}.{b:010d}" for a, b in zip(whole.tolist(), part.tolist(), strict=True)]
    columns = {
        "id": pa.array(keys),
        "customer": pa.array(draw(births, 5) % 100_000),
        "amount": pa.array(decimals).cast(pa.decimal128(38, 10)),
        "status": pa.array(STATUSES).take(pa.array(changed % 5)),
        "note": pa.array([f"{NOTE} {number}" for number in draw(births, 6).tolist()]),
        "seen": pa.array(np.datetime64(_START, "us") + (changed % _SECONDS) * np.timedelta64(10**6, "us")),
    }
    return pa.table(columns)
