"""How far every source has been read, from the receipts in bronze."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ingest.bronze.offsets import KafkaReceipt, Place, Position, reached
from ingest.bronze.receipts import FileState, Receipt
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

Receipts = list[tuple[str, int, bytes]]
"""Source, batch, and the columns of each receipt."""
CARRIED = "carried"  # of a receipt of rows that were carried over (`ingest.bronze.carried_rows`)


@dataclass(slots=True)
class Positions:
    """The read position of every source of a lake, kept between the ticks of one session."""

    batch: int = 0
    files: dict[str, dict[str, FileState]] = field(default_factory=dict)
    places: dict[str, dict[Place, Position]] = field(default_factory=dict)

    @property
    def sources(self) -> set[str]:
        """The names of the sources with landed messages."""
        return self.files.keys() | self.places.keys()

    def catch_up(self, lake: Lake, last: int) -> None:
        """Read the receipts of batches that are new to this session."""
        if last <= self.batch:
            return
        for source, batch, value in receipts(lake, self.batch + 1, last):
            self.note(source, batch, value)
        self.batch = last

    def note(self, source: str, batch: int, value: bytes) -> None:
        """Add one receipt, if it says how far a source was read."""
        if CARRIED not in json.loads(bytes(value)):
            self.add(source, batch, value)

    def add(self, source: str, batch: int, value: bytes) -> Receipt | KafkaReceipt:
        """Add one receipt in the form that bronze stores."""
        members = json.loads(bytes(value))
        if "file" in members:
            receipt = Receipt.from_json(value)
            self.files.setdefault(source, {}).setdefault(receipt.file, FileState()).add(receipt)
            return receipt
        read = msgspec.convert(members, KafkaReceipt)
        of_source = self.places.setdefault(source, {})
        before = of_source.get(read.place)
        of_source[read.place] = before.after(read, batch) if before else reached(read, batch)
        return read


def receipts(lake: Lake, first: int, last: int) -> Receipts:
    """The receipts of some batches."""
    columns = ("source", "batch", "value")
    pages = lake.pages(BRONZE, BRONZE.part(*columns), "receipt", (first, last))
    return [row for page in pages for row in zip(*(page[name].to_pylist() for name in columns), strict=True)]


def read_so_far(lake: Tables) -> Positions:
    """The positions of all landed batches, without Spark."""
    positions = Positions()
    for row in lake.ask("SELECT source, batch, value FROM {bronze.receipt} ORDER BY batch"):
        positions.note(row["source"], row["batch"], row["value"])
    return positions
