"""A table in DuckDB in place of a source, with its mirror, for several tests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from ingest.change import TableId
from ingest.cli.app import app
from ingest.config import load
from ingest.source import database
from ingest.source import reconcile as comparing
from ingest.source.reconciled import Reconciled, ReconcileOptions
from ingest.source.snapshot import source_of
from ingest.tables.tables import LakeReader
from tests.source import duck_source, made

BINS = TableId("shop", None, "bins")
COLUMNS = {"id": "int64", "word": "string", "size": "float64"}
SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("size", pa.float64())])


class Bins:
    """A table, its mirror, and a pipeline over both."""

    def __init__(self, folder: Path, rows: int = 2000) -> None:
        self.source = folder / "source.duckdb"
        self.file = folder / "shop.yaml"
        self.file.write_text(
            "pipeline: shop\nlake: ./lake\nengine: auto\nsources:\n  - {name: shop, path: ./in/*.jsonl, format: dts-canal, "
            "database: {url: 'mysql://here:3306', user: reader}}\n",
            "utf-8",
        )
        self.rows: dict[int, tuple[str | None, float | None]] = {n: (f"w{n}", n / 8) for n in range(rows)}
        self.write("CREATE TABLE bins (id BIGINT, word VARCHAR, size DOUBLE)")
        self.write(f"INSERT INTO bins SELECT n, 'w' || n, n / 8 FROM range({rows}) AS r(n)")

    def write(self, statement: str) -> None:
        """A statement in the source."""
        with duckdb.connect(str(self.source)) as connection:
            connection.execute(statement)

    def mirror(
        self, columns: dict[str, str] | None = None, keys: tuple[str, ...] = ("id",), **given: Any
    ) -> None:
        """Write the mirror as it should be."""
        cells = {
            "id": list(self.rows),
            "word": [one[0] for one in self.rows.values()],
            "size": [one[1] for one in self.rows.values()],
        }
        chosen = columns or COLUMNS
        rows = pa.table(cells, SCHEMA).select(list(chosen))
        made.mirror(Path(load(self.file).lake), BINS, chosen, keys, rows, **given)

    def rule(self, text: str) -> None:
        """An entry under `tables:`."""
        self.file.write_text(f"{self.file.read_text('utf-8')}tables: [{{{text}}}]\n", "utf-8")

    def compare(
        self,
        passed: Callable[[str], dt.datetime | None] = lambda _mirror: None,
        tell: Callable[[Reconciled], None] = lambda _done: None,
        **given: Any,
    ) -> Reconciled:
        """Compare the two, with the stream settled."""
        pipeline = load(self.file)
        options = ReconcileOptions(**{"parallel": 1, "range_rows": 300, "settled": True, **given})
        return comparing.reconcile(
            LakeReader(pipeline), source_of(pipeline), BINS, options, passed=passed, tell=tell
        )

    def type(self, *words: str) -> Result:
        """The verb on the command line."""
        return CliRunner().invoke(app, ["reconcile", str(self.file), *words])


def in_place_of_a_source(folder: Path, patch: pytest.MonkeyPatch, rows: int = 2000) -> Bins:
    """A table whose mirror is not written yet, which the verbs read as their source."""
    patch.setattr(database, "dialect_of", lambda _database: duck_source)
    bins = Bins(folder, rows)
    duck_source.place.append(str(bins.source))
    return bins
