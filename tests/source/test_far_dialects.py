"""Oracle and SQL Server, of which there is none here: their SQL parses, and means what their documents say."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from ingest import types
from ingest.change import Op
from ingest.config import load
from ingest.errors import IngestError
from ingest.source import reconcile as comparing
from ingest.source.reconcile import repair
from ingest.source.snapshot import source_of
from ingest.tables.tables import LakeReader
from tests.source.far import BINS, Shop


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
    kinds = shop.changes()[0].types
    for row in rows.values():
        for name, text in row.items():
            assert text is None or types.matches(kinds[name], text), (name, kinds[name], text)
    assert Op.TRUNCATE is shop.changes()[-1].op


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
    """Rows that are in no range would be lost silently."""
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
    _, read, deleted = repair(pipeline, source_of(pipeline), BINS, mirror, done.differences)
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
