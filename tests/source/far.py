"""A table of Oracle or SQL Server, of which there is none here, with its mirror, for several tests."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from ingest.change import Change, Hints, Image, Message, TableId
from ingest.config import load
from ingest.formats import ingest_snapshot
from ingest.source import oracle
from ingest.source import reconcile as comparing
from ingest.source.reconciled import Reconciled, ReconcileOptions
from ingest.source.snapshot import SnapshotProgress, snapshot, source_of
from ingest.tables.tables import LakeReader
from tests.source import made, pretend

BINS = TableId("SHOP", "APP", "BINS")
# name, type, length, precision, scale, characters, counted in, virtual, collation: as ALL_TAB_COLS has them
ORACLE_BINS = [
    ("ID", "NUMBER", "22", "10", "0", "0", None, "NO", None),
    ("NAME", "VARCHAR2", "200", None, None, "50", "C", "NO", "USING_NLS_COMP"),
    ("SIZE", "NUMBER", "22", "12", "4", "0", None, "NO", None),
    ("FREE", "NUMBER", "22", None, None, "0", None, "NO", None),
    ("SEEN", "TIMESTAMP(6)", "11", None, "6", "0", None, "NO", None),
    ("DAY", "DATE", "7", None, None, "0", None, "NO", None),
    ("MADE", "TIMESTAMP(6) WITH TIME ZONE", "13", None, "6", "0", None, "NO", None),
    ("DATA", "RAW", "16", None, None, "0", None, "NO", None),
    ("W", "BINARY_DOUBLE", "8", None, None, "0", None, "NO", None),
]
# name, type, max_length, precision, scale, collation, is_computed, whether UTF-8 is known: as sys.columns has them
SQLSERVER_BINS = [
    ("ID", "int", 4, 10, 0, None, False, 65001),
    ("NAME", "nvarchar", 100, 0, 0, "Chinese_PRC_CI_AS", False, 65001),
    ("SIZE", "decimal", 9, 12, 4, None, False, 65001),
    ("FREE", "money", 8, 19, 4, None, False, 65001),
    ("SEEN", "datetime2", 8, 27, 7, None, False, 65001),
    ("DAY", "datetime", 8, 23, 3, None, False, 65001),
    ("MADE", "datetime2", 8, 27, 6, None, False, 65001),
    ("DATA", "varbinary", 16, 0, 0, None, False, 65001),
    ("W", "float", 8, 53, 0, None, False, 65001),
]
COLUMNS = "ID INTEGER, NAME VARCHAR, SIZE DECIMAL(12, 4), FREE {any}, SEEN TIMESTAMP, DAY TIMESTAMP, MADE TIMESTAMP, DATA BLOB, W DOUBLE"


class Shop:
    """A table of one of the two, its mirror, and a pipeline over both."""

    def __init__(self, folder: Path, module: ModuleType) -> None:
        self.module = module
        self.oracle = module is oracle
        self.server: pretend.Server = pretend.Oracle() if self.oracle else pretend.SQLServer()
        self.server.columns = list(ORACLE_BINS if self.oracle else SQLSERVER_BINS)
        self.server.keys = [("ID",)]
        url = "oracle://db:1521/SHOP" if self.oracle else "sqlserver://db:1433/SHOP?encrypt=no"
        self.file = folder / "shop.yaml"
        self.file.write_text(
            "pipeline: shop\nlake: ./lake\nengine: auto\nsources:\n  - {name: shop, path: ./in/*.jsonl, format: debezium, "
            f"database: {{url: '{url}', user: reader, password: hunter2-x}}}}\n",
            "utf-8",
        )
        any_type = "DECIMAL(38, 10)" if self.oracle else "DECIMAL(19, 4)"
        self.write(
            "ATTACH ':memory:' AS SHOP", "CREATE SCHEMA SHOP.APP", "CREATE SCHEMA APP",
            f"CREATE TABLE SHOP.APP.BINS ({COLUMNS.format(any=any_type)})", "CREATE VIEW APP.BINS AS FROM SHOP.APP.BINS",
        )  # fmt: skip

    def write(self, *statements: str) -> None:
        """Statements in the source."""
        for one in statements:
            self.server.duck.execute(one)

    def fill(self, rows: int) -> None:
        """Rows with every kind of value, and NULL in each column."""
        self.write(
            f"INSERT INTO SHOP.APP.BINS SELECT n, CASE WHEN n % 7 THEN 'w' || n || ' ä北🚚''' END, n * 1.5 - 3, (n - 50) / 8, "
            "TIMESTAMP '2024-02-29 23:59:58' + to_microseconds(n * 500000), "
            "TIMESTAMP '2024-01-01 00:00:00' + to_minutes(n), TIMESTAMP '2024-02-29 23:59:59' + to_microseconds(n), "
            f"encode('x' || n), n / 3 FROM range({rows}) r(n)",
            "INSERT INTO SHOP.APP.BINS (ID) VALUES (100000)",
        )

    def read(self, **given: Any) -> SnapshotProgress:
        """One snapshot."""
        pipeline = load(self.file)
        return snapshot(pipeline, source_of(pipeline), str(BINS), **{"alone": True, "parallel": 1, **given})

    def changes(self) -> list[Change]:
        """All changes of its files."""
        return [
            change
            for file in sorted(self.file.parent.glob("lake/snapshots/shop/*/*.jsonl"))
            for line in file.read_bytes().splitlines()
            for change in ingest_snapshot.parse(Message(line), Hints())
        ]

    def images(self) -> list[Image]:
        """The rows of its snapshots."""
        return [change.after for change in self.changes() if change.after is not None]

    def mirror(self, change: str = "") -> None:
        """The mirror as a stream would have made it, or with a change."""
        copy = self.server.duck.cursor()
        copy.execute("CREATE OR REPLACE TABLE memory.copied AS FROM SHOP.APP.BINS")
        if change:
            copy.execute(change)
        any_text = (
            "CASE WHEN FREE > 0 AND FREE < 1 THEN substr(FREE::VARCHAR, 2) ELSE FREE::VARCHAR END"
            if self.oracle
            else "FREE"
        )
        rows = copy.execute(
            f"SELECT * REPLACE ({any_text} AS FREE, MADE::TIMESTAMP AS MADE) FROM memory.copied"
        ).to_arrow_table()
        place = rows.column_names.index("MADE")
        zone = "us" if not self.oracle else pa.timestamp("us", "UTC")
        if self.oracle:
            rows = rows.set_column(place, "MADE", rows["MADE"].cast(zone))
        columns = {
            "ID": "decimal(10,0)" if self.oracle else "int32", "NAME": "string", "SIZE": "decimal(12,4)",
            "FREE": "decimal" if self.oracle else "decimal(19,4)", "SEEN": "datetime", "DAY": "datetime",
            "MADE": "timestamp" if self.oracle else "datetime", "DATA": "binary", "W": "float64",
        }  # fmt: skip
        if self.oracle:
            rows = rows.set_column(0, "ID", rows["ID"].cast(pa.decimal128(10, 0)))
        made.mirror(Path(load(self.file).lake), BINS, columns, ["ID"], rows)

    def compare(self) -> Reconciled:
        """Compare the two, with the stream settled."""
        pipeline = load(self.file)
        options = ReconcileOptions(parallel=1, range_rows=300, settled=True)
        return comparing.reconcile(
            LakeReader(pipeline), source_of(pipeline), BINS, options, passed=lambda _mirror: None
        )
