"""Oracle and SQL Server, of which there is none here: their SQL parses, and means what their documents say."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import re
import socket
import threading
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import oracledb
import pyarrow as pa
import pytds
import pytest
import sqlglot

from ingest import types
from ingest.change import Change, Hints, Image, Message, Op, TableId
from ingest.config import load
from ingest.config.model import Database
from ingest.errors import IngestError
from ingest.formats import ingest_snapshot
from ingest.lake.mirrors import Column
from ingest.lake.tables import LakeReader
from ingest.source import database, digest, oracle, sqlserver
from ingest.source import reconcile as comparing
from ingest.source.reconcile import ReconcileBounds, Reconciled
from ingest.source.repair import repair
from ingest.source.snapshot import SnapshotProgress, described, snapshot, source_of
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
            "pipeline: shop\nlake: ./lake\nsources:\n  - {name: shop, path: ./in/*.jsonl, format: debezium, "
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

    def told(self) -> list[Change]:
        """All changes of its files."""
        return [
            change
            for file in sorted(self.file.parent.glob("lake/snapshots/shop/*/*.jsonl"))
            for line in file.read_bytes().splitlines()
            for change in ingest_snapshot.parse(Message(line), Hints())
        ]

    def images(self) -> list[Image]:
        """The rows of its snapshots."""
        return [change.after for change in self.told() if change.after is not None]

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

    def compare(self, **given: Any) -> Reconciled:
        """Hold the two against each other, the stream being settled."""
        pipeline = load(self.file)
        return comparing.reconcile(
            LakeReader(pipeline), source_of(pipeline), BINS,
            **{"passed": lambda _mirror: None, "settled": True, "limits": ReconcileBounds(parallel=1, range_rows=300), **given},
        )  # fmt: skip


@pytest.fixture(params=[oracle, sqlserver], ids=["oracle", "sqlserver"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """One of each."""
    shop = Shop(tmp_path, request.param)
    monkeypatch.setattr(oracledb if shop.oracle else pytds, "connect", shop.server.connect)
    return shop


# --- reading --------------------------------------------------------------------------------------


def test_every_row_is_read_once_as_canonical_text(shop: Shop) -> None:
    """A value that the stream writes otherwise would differ from itself, and a row between two ranges is lost."""
    shop.fill(100)
    done = shop.read(size=7)
    assert (101, 15) == (done.rows, done.chunks)
    rows = {int(row["ID"] or ""): row for row in shop.images()}
    assert {*range(100), 100_000} == set(rows)
    assert {
        "ID": "51", "NAME": "w51 ä北🚚'", "SIZE": "73.5000", "FREE": "0.125" if shop.oracle else "0.1250",
        "SEEN": "2024-03-01 00:00:23.5", "DAY": "2024-01-01 00:51:00",
        "MADE": "2024-02-29T23:59:59.000051Z" if shop.oracle else "2024-02-29 23:59:59.000051",
        "DATA": base64.b64encode(b"x51").decode(), "W": rows[51]["W"],
    } == rows[51]  # fmt: skip
    assert 17.0 == float(rows[51]["W"] or "")
    assert "2024-02-29 23:59:58" == rows[0]["SEEN"]
    assert "-6.25" == (rows[0]["FREE"] or "").removesuffix("00")
    assert {"100000", None} == set(rows[100_000].values())
    kinds = shop.told()[0].types
    for row in rows.values():
        for name, text in row.items():
            assert text is None or types.matches(kinds[name], text), (name, kinds[name], text)
    assert Op.TRUNCATE is shop.told()[-1].op


def test_keys_of_several_columns_of_any_type(shop: Shop) -> None:
    """A bound that the database reads as another value loses the rows between the two."""
    random = Random(0)
    names = ["Ab", "b'c", "ä", "\\\n", "z%", "A\tc", "🚚", "北"]
    keys = {
        (random.choice(names), f"{random.randint(-9, 9)}.{random.randint(0, 9999):04d}") for _ in range(120)
    }
    if shop.oracle:
        shop.server.columns[1] = ("NAME", "VARCHAR2", "200", None, None, "50", "B", "NO", None)
    shop.server.keys = [("NAME",), ("SIZE",)]
    shop.server.duck.executemany("INSERT INTO SHOP.APP.BINS (NAME, SIZE) VALUES (?, ?)", sorted(keys))
    assert len(keys) == shop.read(size=7).rows
    found = [(row["NAME"], row["SIZE"]) for row in shop.images()]
    assert len(found) == len(set(found))
    assert keys == set(found)


@pytest.mark.parametrize("key", ["DATA", "SEEN", "DAY", "W", "MADE"])
def test_a_key_of_each_type(shop: Shop, key: str) -> None:
    """A bound is written by the database and read by it again."""
    if shop.oracle and key in ("W", "MADE"):
        pytest.skip("functions of these two are only parsed")
    shop.fill(40)
    shop.write("DELETE FROM SHOP.APP.BINS WHERE ID = 100000")
    shop.server.keys = [(key,)]
    assert 40 == shop.read(size=7).rows
    assert 40 == len({row[key] for row in shop.images()})


def test_a_null_in_the_key_and_a_table_that_is_not_there(shop: Shop) -> None:
    """Rows that are in no range would be lost without a word."""
    shop.write("INSERT INTO SHOP.APP.BINS (NAME) VALUES ('nowhere')")
    with pytest.raises(IngestError, match="NULL in a column of its key"):
        shop.read()
    shop.server.columns = []
    with pytest.raises(IngestError, match=r"shows user 'reader' no table SHOP\.APP\.BINS: .*grant SELECT"):
        shop.read()


def test_a_table_without_a_key_is_one_range(shop: Shop) -> None:
    """Nothing says where one would end."""
    shop.fill(10)
    shop.server.keys = []
    assert (11, 1) == (shop.read(size=2).rows, shop.read(size=2).chunks)


# --- comparing ------------------------------------------------------------------------------------


def test_equal_tables_move_no_rows(shop: Shop) -> None:
    """A checksum that the two sides compute of different texts would send every row."""
    shop.fill(700)
    shop.mirror()
    done = shop.compare()
    assert ([], 0, 701, 3, 3) == (done.differences, done.fetched, done.rows, done.ranges, done.equal)
    assert () == done.left_out


def test_each_type_of_difference_is_found(shop: Shop) -> None:
    """A difference that no checksum has is never seen."""
    changes = {
        "NAME": "NAME || ' '", "SIZE": "SIZE + 0.0001", "FREE": "FREE + 1", "SEEN": "SEEN + to_microseconds(1)",
        "DAY": "NULL", "MADE": "MADE - to_microseconds(1)", "DATA": "encode('y')", "W": "W * 1.0000000000000002",
    }  # fmt: skip
    shop.fill(300)
    shop.mirror(
        "; ".join(
            f"UPDATE memory.copied SET {name} = {value} WHERE ID = {key}"
            for key, (name, value) in enumerate([*changes.items(), ("NAME", "NULL")], 120)
        )
    )
    done = shop.compare()
    assert {str(key): [name] for key, name in enumerate([*changes, "NAME"], 120)} == {
        one.key[0]: list(one.cells) for one in done.differences
    }
    assert done.fetched < 150


def test_missing_and_surplus_rows_are_read_again(shop: Shop) -> None:
    """A repair asks by key, in the database's own literals."""
    shop.fill(300)
    shop.mirror("DELETE FROM memory.copied WHERE ID IN (7, 9); INSERT INTO memory.copied (ID) VALUES (500)")
    done = shop.compare()
    assert {("7",): "missing", ("9",): "missing", ("500",): "surplus"} == {
        one.key: one.kind for one in done.differences
    }
    pipeline = load(shop.file)
    mirror = comparing.mirror_of(LakeReader(pipeline), source_of(pipeline), BINS)
    _, read, deleted = repair(
        pipeline, source_of(pipeline), BINS, mirror, [one.key for one in done.differences]
    )
    assert (2, 1) == (read, deleted)
    assert {"7", "9"} == {row["ID"] for row in shop.images()}


def test_a_key_of_texts_is_compared_by_its_checksum_or_its_bytes(shop: Shop) -> None:
    """A collation that is not binary orders the two sides differently."""
    shop.fill(300)
    shop.write("DELETE FROM SHOP.APP.BINS WHERE NAME IS NULL")
    shop.server.keys = [("NAME",)]
    shop.mirror("UPDATE memory.copied SET W = 5 WHERE ID = 123")
    decisions = Path(load(shop.file).lake) / "decisions"
    _rekeyed(decisions)
    done = shop.compare()
    assert [("w123 ä北🚚'",)] == [one.key for one in done.differences]


def _rekeyed(folder: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable(str(folder)).to_pyarrow_table()
    value = json.loads(table["value"][0].as_py()) | {"keys": ["NAME"]}
    at = table.column_names.index("value")
    write_deltalake(
        str(folder), table.set_column(at, "value", pa.array([json.dumps(value)])), mode="overwrite"
    )


@pytest.mark.parametrize("module", [oracle, sqlserver])
def test_a_row_of_many_columns_is_joined_in_groups(module: ModuleType) -> None:
    """Functions take so many arguments, and texts are so long; a column left out would never be compared."""
    parts = [f"COALESCE(c{n}, '~')" for n in range(700)]
    found = digest.source_text(module, parts)  # type: ignore[arg-type]
    for n in range(700):
        assert re.search(rf"\(c{n},", found)
    for call in re.findall(r"CONCAT\(([^()]|\([^()]*\))*\)", found):
        assert call.count(",") < 254


# --- types ----------------------------------------------------------------------------------------

_ORACLE = {
    # as ALL_TAB_COLS has it: declared, logical, compared, and what its text is made by
    ("NUMBER", "22", None, None, "0", None): ("NUMBER", "decimal", True, "'TM9'), '^(-?)[.]'"),
    ("NUMBER", "22", None, "0", "0", None): ("INTEGER", "decimal(38,0)", True, "TO_CHAR(\"C\", 'TM9')"),
    ("NUMBER", "22", "5", "-2", "0", None): ("NUMBER(5,-2)", "decimal(7,0)", True, "TO_CHAR(\"C\", 'TM9')"),
    ("NUMBER", "22", "3", "5", "0", None): ("NUMBER(3,5)", "decimal(5,5)", True, "'FM0.00000'"),
    ("NUMBER", "22", "10", "2", "0", None): ("NUMBER(10,2)", "decimal(10,2)", True, "'FM99999990.0' || "),
    ("NUMBER", "22", "38", "127", "0", None): ("NUMBER(38,127)", "decimal(127,127)", True, "'TM9'"),
    ("NUMBER", "22", None, "3", "0", None): ("NUMBER(*,3)", "decimal", True, "'TM9'"),
    ("FLOAT", "22", "126", None, "0", None): ("FLOAT(126)", "decimal", True, "'TM9'"),
    ("BINARY_FLOAT", "4", None, None, "0", None): ("BINARY_FLOAT", "float32", True, "'Infinity'"),
    ("CHAR", "30", None, None, "10", "C"): ("CHAR(10 CHAR)", "string", True, '"C"'),
    ("NVARCHAR2", "200", None, None, "100", "C"): ("NVARCHAR2(100)", "string", True, '"C"'),
    ("NVARCHAR2", "4000", None, None, "2000", "C"): ("NVARCHAR2(2000)", "string", False, '"C"'),
    ("CLOB", "4000", None, None, "0", None): ("CLOB", "string", False, '"C"'),
    ("BLOB", "4000", None, None, "0", None): ("BLOB", "binary", False, '"C"'),
    ("LONG RAW", "0", None, None, "0", None): ("LONG RAW", "binary", False, '"C"'),
    ("TIMESTAMP(9)", "11", None, "9", "0", None): ("TIMESTAMP(9)", "datetime", True, "FF9"),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "11", None, "6", "0", None): (
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp", True, "AT TIME ZONE '+00:00'",
    ),
    ("INTERVAL DAY(2) TO SECOND(6)", "11", "2", "6", "0", None): ("INTERVAL DAY(2) TO SECOND(6)", "interval", False, "[+]?"),
    ("ROWID", "10", None, None, "0", None): ("ROWID", "string", True, "CAST("),
    ("XMLTYPE", "2000", None, None, "0", None): ("XMLTYPE", "string", False, "XMLSERIALIZE"),
    ("BOOLEAN", "1", None, None, "0", None): ("BOOLEAN", "boolean", True, "'true'"),
    ("SDO_GEOMETRY", "1", None, None, None, None): ("SDO_GEOMETRY", "geometry", False, ""),
    ("BFILE", "530", None, None, "0", None): ("BFILE", "binary", True, ""),
}  # fmt: skip


@pytest.mark.parametrize("given", list(_ORACLE))
def test_columns_of_oracle(given: tuple[Any, ...]) -> None:
    """A type that is taken for another is wrong in every row."""
    wanted = _ORACLE[given]
    kind, length, precision, scale, characters, counted = given
    found = oracle._column("AL32UTF8", "C", kind, length, precision, scale, characters, counted, "NO", None)
    assert wanted[:3] == (found.declared, found.type, found.comparable)
    assert wanted[3].partition("' || ")[0] in found.text
    assert bool(wanted[3]) == bool(found.text)
    _parses(oracle, found, "oracle")


_SQLSERVER = {
    ("bit", 1, 1, 0): ("bit", "boolean", "'true'"),
    ("tinyint", 1, 3, 0): ("tinyint", "uint8", "varchar(41)"),
    ("money", 8, 19, 4): ("money", "decimal(19,4)", ", 2)"),
    ("smallmoney", 4, 10, 4): ("smallmoney", "decimal(10,4)", ", 2)"),
    ("real", 4, 24, 0): ("real", "float32", ", 3)"),
    ("numeric", 17, 38, 10): ("numeric(38,10)", "decimal(38,10)", "varchar(41)"),
    ("nchar", 20, 0, 0): ("nchar(10)", "string", "nvarchar(10)"),
    ("varchar", -1, 0, 0): ("varchar(max)", "string", "nvarchar(max)"),
    ("varchar", 8000, 0, 0): ("varchar(8000)", "string", "nvarchar(max)"),
    ("sysname", 256, 0, 0): ("nvarchar(128)", "string", "nvarchar(128)"),
    ("ntext", 16, 0, 0): ("ntext", "string", "nvarchar(max)"),
    ("xml", -1, 0, 0): ("xml", "string", "nvarchar(max)"),
    ("uniqueidentifier", 16, 0, 0): ("uniqueidentifier", "string", "char(36)"),
    ("timestamp", 8, 0, 0): ("timestamp", "binary", "[C]"),
    ("image", 16, 0, 0): ("image", "binary", "[C]"),
    ("date", 3, 10, 0): ("date", "date", ", 23)"),
    ("time", 5, 16, 7): ("time(7)", "time", "varchar(16)"),
    ("smalldatetime", 4, 16, 0): ("smalldatetime", "datetime", "121"),
    ("datetimeoffset", 10, 34, 7): ("datetimeoffset(7)", "timestamp", "SWITCHOFFSET"),
    ("hierarchyid", 892, 0, 0): ("hierarchyid", "string", "ToString"),
    ("sql_variant", 8016, 0, 0): ("sql_variant", "unknown", ""),
}  # fmt: skip


@pytest.mark.parametrize("given", list(_SQLSERVER))
def test_columns_of_sql_server(given: tuple[str, int, int, int]) -> None:
    """A type that is taken for another is wrong in every row."""
    wanted = _SQLSERVER[given]
    found = sqlserver._column("C", *given, None, False, 65001)
    assert wanted[:2] == (found.declared, found.type)
    assert wanted[2] in found.text
    assert bool(wanted[2]) == bool(found.text)
    _parses(sqlserver, found, "tsql")


def _parses(module: Any, column: database.SourceColumn, dialect: str) -> None:
    """Everything that may be asked of a column."""
    if not column.text or column.declared == "XMLTYPE":  # sqlglot does not know XMLSERIALIZE(CONTENT ...)
        return
    key = module.key(column)
    texts = [column.text, module.md5(column.text), module.real_date(column), key.order, key.text,
             key.literal.format(database.quoted("it's")), *module.double(column), module.bits(column)]  # fmt: skip
    compared = digest.compared(module, column, Column("C", "C", column.type))
    texts += [compared.source_part, module.number(digest.source_text(module, [compared.source_part]))]
    for one in texts:
        sqlglot.parse_one(f"SELECT {one} AS x FROM t", read=dialect, error_level=sqlglot.ErrorLevel.RAISE)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("datetimeoffset", "2024-02-29T15:59:59.25Z"), ("varbinary", "AP8="), ("bit", "true"), ("nvarchar", "it's\\\n北"),
        ("datetime", "2024-01-01 00:00:00.003"), ("uniqueidentifier", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
        ("money", "-0.5000"),
    ],
)  # fmt: skip
def test_a_row_is_asked_for_by_its_canonical_text_in_sql_server(kind: str, text: str) -> None:
    """A key in a form that the database reads otherwise finds no row, or another."""
    found = sqlserver.equal(
        sqlserver._column("C", kind, 10, 3, 3, "X_CI_AS" if "char" in kind else None, False, 1), text
    )
    wanted = {
        "datetimeoffset": "[C] = CAST('2024-02-29 15:59:59.25 +00:00' AS datetimeoffset(3))",
        "varbinary": "[C] = 0x00ff",
        "bit": "[C] = 1",
        "nvarchar": f"[C] = CAST(CAST(0x{text.encode('utf-16-le').hex()} AS nvarchar(4000)) COLLATE X_CI_AS AS nvarchar(5))",
        "datetime": "[C] = CONVERT(datetime, '2024-01-01 00:00:00.003', 121)",
        "uniqueidentifier": f"[C] = CAST('{text}' AS uniqueidentifier)",
        "money": "[C] = CAST('-0.5000' AS money)",
    }
    assert wanted[kind] == found


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("TIMESTAMP(6) WITH TIME ZONE", "2024-02-29T15:59:59.25Z",
         "FROM_TZ(TO_TIMESTAMP('2024-02-29 15:59:59.25', 'YYYY-MM-DD HH24:MI:SS.FF9'), '+00:00')"),
        ("RAW", "AP8=", "HEXTORAW('00ff')"),
        ("NUMBER", "-0.5", "TO_NUMBER('-0.5')"),
        ("DATE", "2024-02-29 00:00:01", "TO_DATE('2024-02-29 00:00:01', 'YYYY-MM-DD HH24:MI:SS')"),
        ("NVARCHAR2", "é\\'🚚", "UNISTR('\\00E9\\005C''\\D83D\\DE9A')"),
        ("VARCHAR2", "it's \\", "'it''s \\'"),
        ("BINARY_DOUBLE", "1.5", "TO_BINARY_DOUBLE('1.5')"),
    ],
)  # fmt: skip
def test_a_row_is_asked_for_by_its_canonical_text_in_oracle(kind: str, text: str, wanted: str) -> None:
    """A key in a form that the database reads otherwise finds no row, or another."""
    column = oracle._column("AL32UTF8", "C", kind, "10", None, None, "5", None, "NO", None)
    assert f'"C" = {wanted}' == oracle.equal(column, text)


def test_interval_texts_are_as_the_product_writes_them() -> None:
    """The stream of Alibaba's DTS has 3-06 and 5 04:03:02.1 for what the database prints with signs and zeros."""
    import duckdb

    for kind, printed, wanted in (
        ("INTERVAL YEAR(2) TO MONTH", "+03-06", "3-06"),
        ("INTERVAL YEAR(2) TO MONTH", "-00-03", "-0-03"),
        ("INTERVAL DAY(2) TO SECOND(6)", "+05 04:03:02.100000", "5 04:03:02.1"),
        ("INTERVAL DAY(9) TO SECOND(0)", "+000000010 00:00:00", "10 00:00:00"),
        ("INTERVAL DAY(2) TO SECOND(6)", "-10 00:00:00.000000", "-10 00:00:00"),
    ):
        text = oracle._column("AL32UTF8", "C", kind, "11", "2", "6", "0", None, "NO", None).text
        query = f"""SELECT {text.replace('TO_CHAR("C")', "C")} FROM (SELECT '{printed}' AS C)"""
        assert [(wanted,)] == duckdb.connect().execute(query).fetchall()


# --- what cannot be done --------------------------------------------------------------------------


def test_columns_without_a_text_are_refused_or_left_out(shop: Shop) -> None:
    """A value that cannot be read must not land as NULL."""
    shop.fill(3)
    odd = (
        ("ODD", "ANYDATA", "1", None, None, None, None, "NO", None)
        if shop.oracle
        else ("ODD", "sql_variant", 1, 0, 0, None, False, 1)
    )
    shop.server.columns.append(odd)
    with pytest.raises(
        IngestError, match=r"A value of \w+, as in 'ODD' of .* cannot be read: leave the column out"
    ):
        shop.read()
    with shop.file.open("a", encoding="utf-8") as file:
        file.write("tables:\n  - {match: SHOP.APP.BINS, columns: {ODD: exclude}}\n")
    assert 4 == shop.read().rows
    assert "ODD" not in shop.images()[0]


def test_a_generated_column_is_read_if_the_stream_has_it(shop: Shop) -> None:
    """Streams leave such columns out: a value that was read once would stay although the row changes."""
    pipeline = load(shop.file)
    source = source_of(pipeline)
    assert source.database
    with database.connected(source.database) as (dialect, connection):
        table = dialect.table(connection, BINS)
    assert table
    columns = (*table.columns, database.SourceColumn("SUM", "NUMBER", "decimal", '"SUM"', generated=True))
    table = database.SourceTable(BINS, table.name, columns, table.keys)

    def read(streamed: dict[str, str]) -> bool:
        found = described(table, pipeline, BINS, source, streamed)
        assert found.shape == table.shape
        return "SUM" in [one.name for one in found.columns]

    assert [True, False, True] == [
        read({}),
        read({"ID": "unknown"}),
        read({"ID": "unknown", "SUM": "unknown"}),
    ]


def test_an_older_server_says_what_it_cannot_compare(shop: Shop) -> None:
    """Texts before UTF-8 would differ in every row that is not English."""
    shop.fill(20)
    if shop.oracle:
        assert isinstance(shop.server, pretend.Oracle)
        shop.server.is_old, shop.server.charset = True, "ZHS16GBK"
        shop.server.columns.append(("LONGER", "VARCHAR2", "4000", None, None, "4000", "B", "NO"))
        shop.server.columns = [(*one[:8], None) for one in shop.server.columns]
        shop.write(
            "ALTER TABLE SHOP.APP.BINS ADD COLUMN LONGER VARCHAR",
            "CREATE OR REPLACE VIEW APP.BINS AS FROM SHOP.APP.BINS",
        )
    else:
        shop.server.columns = [(*one[:7], None) for one in shop.server.columns]
    shop.mirror()
    if not shop.oracle:
        assert ("NAME",) == shop.compare().left_out
        return
    assert [] == shop.compare().differences
    with database.connected(source_of(load(shop.file)).database) as (dialect, connection):  # type: ignore[arg-type]
        table = dialect.table(connection, BINS)
    assert {"NAME": True, "LONGER": False} == {
        one.name: one.comparable for one in table.columns if one.declared.startswith("VARCHAR2")
    }  # type: ignore[union-attr]


def test_a_refused_connection_is_a_sentence_without_the_password(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in a log is a password lost."""
    error: Exception = pytds.LoginError("Login failed for user 'reader' with hunter2-x.\n")
    if shop.oracle:
        error = oracledb.DatabaseError(
            pretend.Fault(1017, "ORA-01017: invalid credential hunter2-x\nHelp: see")
        )

    def refuse(**_given: Any) -> None:
        raise error

    monkeypatch.setattr(oracledb if shop.oracle else pytds, "connect", refuse)
    monkeypatch.setattr(database, "_silent", lambda _url: "")
    with pytest.raises(
        IngestError, match=r"The database at db:(1521|1433) does not let user 'reader' in"
    ) as caught:
        shop.read()
    assert "hunter2-x" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["oracle", "sqlserver"])
def test_a_server_of_another_kind_is_a_sentence(scheme: str) -> None:
    """A wrong port is the commonest mistake; a traceback says nothing of what to correct."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as one:
                        one.recv(4096)
                        one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/SHOP"
        shop = Database(url=url, user="reader", password="hunter2-x")
        wanted = r"does not let user 'reader' in: [^.]"
        with pytest.raises(IngestError, match=wanted) as caught, database.connected(shop):
            pass
        assert "hunter2-x" not in str(caught.value)


def test_doctor_names_the_table_that_cannot_be_read(shop: Shop) -> None:
    """A right that is missing would be found in the middle of the night."""
    from ingest.cli.doctor import examine

    def found() -> tuple[str, str]:
        one = next(one for one in examine(load(shop.file)) if one.check == "database of shop")
        return one.state, one.found

    port = 1521 if shop.oracle else 1433
    assert ("ok", f"db:{port} lets reader in, and its clock is 2024-05-01T00:00:00") == (
        found()[0],
        found()[1].partition(".")[0],
    )
    shop.mirror()
    shop.server.columns = []
    shown = (
        "The database shows user 'reader' no table SHOP.APP.BINS: look at its name, and grant SELECT on it."
    )
    assert ("wrong", f"db:{port} lets reader in, but: {shown}") == found()


def test_the_session_is_in_utc_and_loses_nothing(shop: Shop) -> None:
    """Settings of the server or of the user's profile would change the texts."""
    shop.fill(1)
    shop.read()
    said = " ".join(shop.server.asked[:2])
    for one in (
        ("TIME_ZONE = '+00:00'", "NLS_NUMERIC_CHARACTERS = '.,'", "NLS_SORT = 'BINARY'")
        if shop.oracle
        else ("TEXTSIZE 2147483647", "CONCAT_NULL_YIELDS_NULL ON")
    ):
        assert one in said
    given = shop.server.given
    assert ("reader", "hunter2-x") == (given["user"], given["password"])
    assert (
        ("SHOP", 1521) == (given["service_name"], given["port"])
        if shop.oracle
        else ("SHOP", None) == (given["database"], given["cafile"])
    )


def test_tls_is_asked_for_unless_it_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password would go over the network for all to read."""
    server = pretend.SQLServer()
    monkeypatch.setattr(pytds, "connect", server.connect)
    for url, wanted in (
        ("sqlserver://db/s", True),
        ("sqlserver://db/s?encrypt=no", False),
        ("sqlserver://db/s?cafile=/etc/a.pem", "/etc/a.pem"),
    ):
        sqlserver.connect(urlsplit(url), "reader", "x")
        assert wanted == (server.given["cafile"] if isinstance(wanted, str) else bool(server.given["cafile"]))


@pytest.mark.parametrize(
    ("names", "common", "host", "wanted"),
    [
        (["db.shop.example"], "other", "db.shop.example", True),
        (["*.shop.example"], "other", "DB.shop.example", True),
        (["*.shop.example"], "db", "a.db.shop.example", False),
        (["else.example"], "db.shop.example", "db.shop.example", False),
        ([], "db.shop.example", "db.shop.example", True),
        ([], "x", "db.shop.example", False),
    ],
)
def test_a_certificate_is_of_the_host(names: list[str], common: str, host: str, wanted: bool) -> None:
    """A certificate of anybody would do."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from OpenSSL import crypto

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    day = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(day).not_valid_after(day + dt.timedelta(1))
    if names:
        made = made.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False
        )
    signed = crypto.X509.from_cryptography(made.sign(key, hashes.SHA256()))
    assert wanted == sqlserver._is_of_host(signed, host.encode())


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("oracle://db:1521/SHOP", True), ("oracle://db:1521/SHOP?protocol=tcps", True), ("oracle://db:1521", False),
        ("sqlserver://db/shop?cafile=/etc/a.pem", True), ("sqlserver://db:1433/", False), ("jdbc:oracle:thin:@db", False),
    ],
)  # fmt: skip
def test_a_url_names_its_database(url: str, good: bool) -> None:
    """Without one a client connects to what the server thinks of."""
    from ingest.config import scalars

    if good:
        assert url == scalars.database(url)
        return
    with pytest.raises(ValueError, match="oracle://host:1521/service"):
        scalars.database(url)
