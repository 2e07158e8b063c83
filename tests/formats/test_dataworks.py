"""StreamX JSON of DataWorks: pairs, full load, dates, keys."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from ingest.change import Hints, Op, Options, TableHints
from ingest.errors import Undecodable
from ingest.fold import Placed, fold
from ingest.order import Order
from tests.formats.golden import read

COLUMNS = [{"name": "id", "type": "LONG"}, {"name": "v", "type": "STRING"}]


def message(op, before=None, after=None, sequence="1718000000000000017", columns=COLUMNS, **payload):
    """One StreamX message as bytes."""
    content = {
        "schema": {
            "dataColumn": columns,
            "primaryKey": ["id"],
            "source": {"dbType": "mysql", "dbName": "shop", "tableName": "t"},
        },
        "payload": {
            "before": before and {"dataColumn": before},
            "after": after and {"dataColumn": after},
            "sequenceId": sequence,
            "timestamp": {"eventTime": 1718000042000},
            "op": op,
            "ddl": None,
            **payload,
        },
        "version": "0.0.1",
    }
    return json.dumps(content).encode()


def test_update_pair_gives_one_row_in_any_order():
    """The two halves of an update may come in any order and in different batches."""
    messages = [
        message("INSERT", after={"id": 1, "v": "a"}, sequence="1"),
        message("UPDATE_BEFOR", before={"id": 1, "v": "a"}, sequence="2"),
        message("UPDATE_AFTER", after={"id": 2, "v": "b"}, sequence="2"),
    ]
    for arrival in permutations(messages):
        placed = []
        for place, raw in enumerate(arrival):
            (change,) = read("dataworks", raw)
            placed.append(Placed(Order(0, change.phase, change.sequence, change.half, (place,), 0), change))
        rows = fold(placed, ("id",), {"id": "int64"})
        assert {(2,): {"id": "2", "v": "b"}} == {key: row.values for key, row in rows.items()}


def test_one_message_with_both_images_is_no_half():
    """Taken for a half, an update that changes the key would leave the old row."""
    (change,) = read("dataworks", message("UPDATE_AFTER", {"id": 1, "v": "a"}, {"id": 2, "v": "a"}))
    assert (Op.UPDATE, 0) == (change.op, change.half)
    assert {"id": "1", "v": "a"} == change.before


def test_full_load_is_ordered_before_all_changes():
    """A full-load row with sequence -1 must not beat a change that came earlier."""
    (loaded,) = read("dataworks", message("INSERT", after={"id": 1, "v": "a"}, sequence="-1"))
    assert (Op.READ, 0, (), "-1") == (loaded.op, loaded.phase, loaded.sequence, loaded.position)
    assert loaded.note is None


@pytest.mark.parametrize("sequence", [None, "", "x", "-2"])
def test_missing_position_is_noted(sequence):
    """A row without its position is placed by arrival, and that must be visible."""
    (change,) = read("dataworks", message("INSERT", after={"id": 1, "v": "a"}, sequence=sequence))
    assert (1, ()) == (change.phase, change.sequence)
    assert "the position is missing or unreadable" == change.note


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (None, "2024-06-09T23:00:00.5Z"),
        ("timestamp", "2024-06-09T23:00:00.5Z"),
        ("datetime", "2024-06-10 07:00:00.5"),
        ("date", "2024-06-10"),
        ("time", "07:00:00.5"),
    ],
)
def test_dates_are_read_in_the_zone(declared, expected):
    """A date read in the wrong zone is the day before."""
    columns = {"at": declared} if declared else {}
    hints = Hints(Options(timezone="Asia/Shanghai"), lambda _table: TableHints((), columns))
    raw = message("INSERT", after={"at": 1717974000500}, columns=[{"name": "at", "type": "DATE"}])
    assert {"at": expected} == read("dataworks", raw, hints)[0].after


def test_row_without_a_listed_column_is_partial():
    """A column that is not sent must keep its value, not become NULL."""
    assert read("dataworks", message("UPDATE_AFTER", after={"id": 1}))[0].partial
    assert not read("dataworks", message("UPDATE_AFTER", after={"id": 1, "v": None}))[0].partial


def test_java_object_is_left_alone():
    """Reading a serialized Java object runs what its sender likes."""
    raw = message("ALTER", ddl={"text": "ALTER TABLE t ADD c int", "ddlMeta": "rO0ABXNy"})
    (change,) = read("dataworks", raw)
    assert ("ALTER TABLE t ADD c int", True) == (change.ddl, "left unread" in (change.note or ""))


@pytest.mark.parametrize(
    ("op", "expected"),
    [("MHEARTBEAT", Op.HEARTBEAT), ("TRANSACTION_BEGIN", Op.BEGIN), ("TRANSACTION_END", Op.COMMIT)]
    + [(mark, Op.CONTROL) for mark in ("GTID", "XACOMMIT", "XAROLLBACK")]
    + [(kind, Op.DDL) for kind in ("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX")],
)
def test_what_changes_no_row(op, expected):
    """A mark taken for a row, or refused, upsets the books."""
    assert [expected] == [change.op for change in read("dataworks", message(op))]


@pytest.mark.parametrize("op", ["insert", "UPDATE", "", None])
def test_operations_are_case_sensitive_and_known(op):
    """An unknown operation applied by guess damages the mirror."""
    with pytest.raises(Undecodable):
        read("dataworks", message(op, after={"id": 1, "v": "a"}))
