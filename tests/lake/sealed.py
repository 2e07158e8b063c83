"""A depot with sealed bronze, and a day that the test chooses."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.bronze import land as bronze
from ingest.bronze.land import land
from ingest.bronze.positions import Positions
from ingest.ledgers import sealing
from ingest.silver.decode import Decoded, decode
from ingest.silver.lift import INPUT
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from tests.lakes import Depot
from tests.silver.test_without_spark import everything

KEYS = {"one": "11" * 32, "two": "22" * 32}
SEALED = "bronze:\n  seal: {master_key: '${file:key}'}\n"
DAY = dt.datetime(2026, 3, 14, 9, 26, 53, tzinfo=dt.UTC)


class Sealed(Depot):
    """The depot with sealed bronze, and a day that the test chooses."""

    def __init__(self, folder: Path, more: str = SEALED) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.key("one", folder)
        super().__init__(folder, more)

    def key(self, name: str, folder: Path | None = None, file: str = "key") -> None:
        """Put a master key there."""
        ((folder or self.folder) / file).write_text(KEYS[name] + "\n", "utf-8")

    def says(self, more: str) -> None:
        """Another end of the pipeline file."""
        head = self.file.read_text("utf-8").partition("bronze:")[0]
        self.file.write_text(head + more, "utf-8")

    def lake(self, session: Any = None) -> Lake:
        """The lake as the pipeline file is now, for a process that knows nothing yet."""
        sealing._kept.clear()
        return Lake(session, self.pipeline)

    def land(self, session: Any = None) -> None:
        """Land what is new, as a process that knows nothing yet."""
        land(self.lake(session), Positions(), 2)

    def decode(self, session: Any = None) -> Decoded:
        """Decode what has landed."""
        return decode(self.lake(session), bronze.last_batch(self.lake()), 2)

    def work(self, session: Any = None) -> Decoded:
        """Both."""
        self.land(session)
        return self.decode(session)

    @property
    def key_files(self) -> list[str]:
        """The names of the data keys' files."""
        return sorted(one.name for one in (self.folder / "lake" / sealing.FOLDER).iterdir())


def held(folder: Path) -> bytes:
    """Every byte that a reader of a table's folder can get: files as they are, their values, and their statistics."""
    parts = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            parts.append(file.read_bytes())
        if file.suffix == ".parquet":
            parts.append(repr(pq.read_table(file, partitioning=None).to_pylist()).encode())
            parts.append(repr(pq.read_metadata(file).to_dict()).encode())
    return b"\n".join(parts)


def without_bytes(lake: Lake) -> dict[str, Counter[str]]:
    """All rows of all tables but the messages of bronze, and without what rejects quote of them."""
    found = everything(lake)
    found["bronze"] = Counter(one for one in found["bronze"].elements() if "'kind': 'receipt'" in one)
    found["rejects"] = Counter({"rejects": found["rejects"].total()})
    found["changes"] = Counter(one for one in found["changes"].elements() if "'kind': 'reject'" not in one)
    return found


def batches_of(lake: Lake) -> list[pa.RecordBatch]:
    """The messages of the first batch of bronze, as they are stored."""
    wanted = pa.schema([BRONZE.arrow.field(name) for name in INPUT])
    return [
        batch
        for page in lake.pages(BRONZE, wanted, "message", (1, 1))
        for batch in page.combine_chunks().to_batches()
    ]
