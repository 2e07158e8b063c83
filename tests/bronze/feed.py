"""A folder of a file source, read run by run without Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ingest.bronze.files import FilePlan, plan
from ingest.bronze.moved import Move
from ingest.bronze.reading import read
from ingest.bronze.receipts import FileState, Receipt
from ingest.config import Source


class Feed:
    """A folder read run by run, without Spark: plan, read, take in the receipts."""

    def __init__(self, folder: Path, pattern: str = "*.jsonl", **given: Any) -> None:
        self.folder, self.given = folder, {name: value for name, value in given.items() if name != "format"}
        defaults: dict[str, Any] = {"format": "canal", "framing": "lines", "settle": 3600.0}
        self.source = Source("feed", "files", path=str(folder / pattern), **defaults | given)
        self.states: dict[str, FileState] = {}
        self.moves: list[Move] = []
        self.alarms: list[str] = []

    def plan(self) -> FilePlan:
        """What the next run would read."""
        return plan(self.source, 0, self.states, 2, lambda: self.moves)

    def run(self) -> list[bytes | None]:
        """The values of one run."""
        planned = self.plan()
        self.alarms = list(planned.alarms)
        self.moves += planned.moves
        values: list[bytes | None] = []
        for one in planned.ranges:
            reader = read(one)
            while True:
                try:
                    values.extend(value for _, value, _ in next(reader))
                except StopIteration as done:
                    receipt = Receipt.from_json(done.value.to_json())
                    self.states.setdefault(receipt.file, FileState()).add(receipt)
                    self.alarms.extend([receipt.fault] if receipt.fault else [])
                    break
        return values

    def write(self, name: str, data: bytes, age: float = 0) -> Path:
        """Write a file, as if so many seconds ago."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        self.age(file, age)
        return file

    def age(self, file: Path, seconds: float) -> None:
        """Make a file look as if last written so many seconds ago."""
        moment = time.time() - seconds
        os.utime(file, (moment, moment))
