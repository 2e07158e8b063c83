"""Barriers: which rows were erased, and up to which place in history nothing of them is decoded again.

A barrier is part of a decision (kind ``erase``), written before anything of the row is removed, so that no replay,
rebuild, snapshot or late message brings back what is older.  It holds no key: a key is named by an HMAC with a secret
that the lake makes for itself and keeps in `decisions`, too, for a barrier without its secret would let everything pass.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from ingest.change import Change, LaneId, TableId
from ingest.errors import Undecodable
from ingest.fold import Key, KeyCellError, key_of_change
from ingest.ledgers import decisions
from ingest.ledgers.decisions import ERASE, ERASE_SECRET, ERASED, Decision
from ingest.tables.tables import Tables

HEADER = "ingest.erased"  # of a bronze message that was replaced: its value's HMAC
GONE = "(erased)"  # in the place of a text that quoted an erased row


@dataclass(frozen=True, slots=True)
class Barrier:
    """A lane's erased rows by one key: from which place to which one the changes of a key's digest are erased."""

    source: str
    table: TableId
    keys: tuple[str, ...]  # the source's names of the key columns
    types: tuple[str, ...]  # their logical types when the row was erased
    # a digest's first and last order keys, both included
    stretches: Mapping[str, tuple[tuple[str, str], ...]]

    def to_value(self) -> list[Any]:
        """As a decision holds it."""
        return [self.source, list(self.table), list(self.keys), list(self.types), dict(self.stretches)]

    @classmethod
    def from_value(cls, members: list[Any]) -> Barrier:
        source, table, keys, types, stretches = members
        ends = {digest: tuple((low, high) for low, high in each) for digest, each in stretches.items()}
        return cls(source, TableId(*table), tuple(keys), tuple(types), ends)


@dataclass(frozen=True, slots=True)
class Barriers:
    """All barriers of a lake, with the secret that names keys in them."""

    secret: str = ""
    lanes: Mapping[LaneId, tuple[Barrier, ...]] = field(default_factory=dict)

    def of(self, source: str) -> Mapping[TableId, tuple[Barrier, ...]]:
        """A source's barriers by table; nothing if none of its rows was erased."""
        return {table: lane for (name, table), lane in self.lanes.items() if name == source}

    def stops(self, barriers: Iterable[Barrier], change: Change, order: str) -> bool:
        """True for a change of an erased row that is not newer than its erasure."""
        for barrier in barriers:
            try:
                types = dict(zip(barrier.keys, barrier.types, strict=True))
                concerned = key_of_change(change, barrier.keys, types)
            except KeyCellError:
                continue
            for key in concerned.texts:
                ends = barrier.stretches.get(self.digest(barrier.table, key), ())
                if any(low <= order <= high for low, high in ends):
                    return True
        return False

    def digest(self, table: TableId, key: Key) -> str:
        """The digest of a key: a guess can only be tested with the lake's secret."""
        text = json.dumps([*table, *map(_canonical, key)])
        return hmac.digest(self.secret.encode(), text.encode(), "sha256").hex()

    # --- messages in bronze -----------------------------------------------------------------------

    def replacement(self, table: TableId, erased: int, kept: Iterable[Change]) -> tuple[bytes, bytes]:
        """The replacement of a message without its erased rows, and its signature.

        Args:
            table: whose rows were erased.
            erased: how many of the message's rows.
            kept: its other changes, as they were decoded.
        """
        value = {
            "erased": erased,
            "table": list(table),
            "kept": [msgspec.to_builtins(change) for change in kept],
        }
        return self._signed(value)

    def refused(self, code: str) -> tuple[bytes, bytes]:
        """The replacement of a message that was refused and still is, for the same reason, and its signature."""
        return self._signed({"refused": code})

    def _signed(self, value: Mapping[str, Any]) -> tuple[bytes, bytes]:
        text = json.dumps(value, separators=(",", ":")).encode()  # escapes lone surrogates, too
        return text, self._signature(text)

    def is_replacement(self, headers: Iterable[tuple[str, bytes | None]], value: bytes | None) -> bool:
        """True for the bytes of `replacement`; a header from elsewhere lacks their signature."""
        return self.secret != "" and any(
            name == HEADER and hmac.compare_digest(signature or b"", self._signature(value or b""))
            for name, signature in headers
        )

    def _signature(self, value: bytes) -> bytes:
        return hmac.digest(self.secret.encode(), b"message\0" + value, "sha256")


@dataclass(frozen=True, slots=True)
class Replaced:
    """What is left of a message: its other changes, and how many were erased."""

    table: TableId
    erased: int
    kept: list[Change]


def left_of(value: bytes) -> Replaced:
    """Read the bytes of `Barriers.replacement`.

    Raises:
        Undecodable: they are those of a message that was refused, or not such bytes.
    """
    try:
        members = json.loads(value)
        if "refused" in members:
            raise Undecodable(members["refused"], GONE)
        return Replaced(
            TableId(*members["table"]), members["erased"], msgspec.convert(members["kept"], list[Change])
        )
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise Undecodable("erased", "the message was erased, and what is left of it is damaged") from error


def read(lake: Tables) -> Barriers:
    """The lake's barriers, as the decisions have them."""
    ledger = decisions.read(lake)
    secret = next((str(decision.value["secret"]) for decision in ledger.of(ERASE_SECRET)), "")
    lanes: dict[LaneId, tuple[Barrier, ...]] = {}
    for decision in ledger.of(ERASE):
        for barrier in map(Barrier.from_value, decision.value["barriers"]):
            lane = barrier.source, barrier.table
            lanes[lane] = (*lanes.get(lane, ()), barrier)
    return Barriers(secret, lanes)


def unfinished(lake: Tables) -> tuple[Decision, ...]:
    """The erasures that were begun and not completed, oldest first."""
    ledger = decisions.read(lake)
    done = {decision.value["number"] for decision in ledger.of(ERASED)}
    return tuple(decision for decision in ledger.of(ERASE) if decision.value["number"] not in done)


def _canonical(cell: object) -> str:
    """One text for all spellings of a key cell's value."""
    if isinstance(cell, bool):
        return f"b{cell}"
    if isinstance(cell, int):
        return f"n{cell}"
    if isinstance(cell, Decimal):
        if cell.is_finite() and cell == int(cell):
            return f"n{int(cell)}"
        return f"n{f'{cell:f}'.rstrip('0') if cell.is_finite() else cell}"
    return f"{type(cell).__name__}:{cell!r}"
