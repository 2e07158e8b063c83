"""SharePlex JSON of OMS, of DTS and of Quest: images, order, names, damage."""

from __future__ import annotations

import json

import pytest

from ingest.change import Hints, Op, Options, TableId
from ingest.errors import Undecodable
from tests.formats.golden import read

PARTIAL = Hints(Options(key_is_full=False))


def one(name, op, data=None, key=None, hints=None, **meta):
    """The one change of a message."""
    sent = {"meta": {"op": op, "table": "SALES.ORDERS", **meta}, "data": data, "key": key}
    (change,) = read(name, json.dumps(sent).encode(), hints)
    return change


@pytest.mark.parametrize("name", ["oms-shareplex", "dts-shareplex"])
def test_update_lays_data_over_key(name):
    """Read the other way round, an update would bring back the old values."""
    change = one(name, "upd", {"a": "new", "b": None}, {"id": "1", "a": "old", "b": "x"})
    assert {"id": "1", "a": "old", "b": "x"} == change.before
    assert {"id": "1", "a": "new", "b": None} == change.after
    assert not change.partial


def test_key_columns_only_make_a_partial_row():
    """Quest sends only key columns: taken for the whole row, the others would become NULL."""
    change = one("dts-shareplex", "upd", {"a": "new"}, {"id": "1"}, PARTIAL)
    assert ({"id": "1", "a": "new"}, True) == (change.after, change.partial)


def test_update_without_key_is_partial():
    """Without the row before nothing says that ``data`` is the whole row."""
    assert one("dts-shareplex", "upd", {"id": "1", "a": "new"}).partial


@pytest.mark.parametrize(
    ("name", "kind", "dialect"),
    [
        ("oms-shareplex", None, "mysql"),
        ("oms-shareplex", "oracle", "oracle"),
        ("dts-shareplex", None, "oracle"),
    ],
)
def test_the_option_names_the_database_of_statements(name, kind, dialect):
    """Statements of an Oracle tenant were read as MySQL's: names without quotes kept their case, and '' was no NULL."""
    sent = {"meta": {"op": "ddl", "table": "S.T"}, "data": {}, "sql": {"ddl": "ALTER TABLE T ADD c NUMBER"}}
    (change,) = read(name, json.dumps(sent).encode(), Hints(Options(database_kind=kind)))
    assert dialect == change.dialect


def test_only_oms_hides_large_objects_as_null():
    """DTS's NULL is NULL; OMS's may be an unchanged CLOB."""
    key = {"id": "1", "a": None}
    assert {"id": "1"} == one("oms-shareplex", "upd", {}, key).after
    assert key == one("dts-shareplex", "upd", {}, key).after


@pytest.mark.parametrize(
    ("name", "meta", "expected"),
    [
        ("oms-shareplex", {"scn": "17180000423", "seq": 2}, (1718000042, 3, 2)),
        ("oms-shareplex", {"scn": "17180000423", "seq": "0"}, (1718000042, 3)),
        ("oms-shareplex", {"scn": "null", "time": "2024-06-10T06:14:02"}, (1718000042, 0)),
        ("oms-shareplex", {"scn": None}, ()),
        ("dts-shareplex", {"scn": "14589063118712", "seq": 1}, (14589063118712, 1)),
        ("dts-shareplex", {"scn": "14589063118712"}, (14589063118712,)),
        ("dts-shareplex", {"scn": "null", "time": "2024-06-10T06:14:02"}, ()),
    ],
)
def test_order(name, meta, expected):
    """OMS's position is a second with a counter, DTS's one number; the word null is not a position."""
    assert expected == one(name, "ins", {"id": "1"}, **meta).sequence


def test_the_clock_is_utc_for_dts_and_in_the_zone_for_oms():
    """An event time off by eight hours makes every lag figure wrong."""
    hints = Hints(Options(timezone="Asia/Shanghai"))
    found = [
        one(name, "ins", {"id": "1"}, hints=hints, time="2024-06-10T06:14:02").event_time
        for name in ("dts-shareplex", "oms-shareplex")
    ]
    assert [1718000042_000000, 1718000042_000000 - 8 * 3600 * 10**6] == found


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("INS", Op.INSERT),
        ("Insert", Op.INSERT),
        ("UPDATE", Op.UPDATE),
        ("del", Op.DELETE),
        ("UPDATE BEFORE", Op.DELETE),
        ("UPDATE AFTER", Op.UPDATE),
        ("TRUNCATE", Op.TRUNCATE),
        ("Drop Column", Op.DDL),
    ],
)
def test_operations_in_any_case(op, expected):
    """The document names whole words and prints short ones."""
    assert expected == one("dts-shareplex", op, {"id": "1"}).op


def test_halves_of_an_update():
    """The half before goes first; where it may be partial it must not delete the row."""
    before, after = (
        one("dts-shareplex", f"UPDATE {half}", {"id": "1"}, scn="5", seq=1) for half in ("BEFORE", "AFTER")
    )
    assert (0, 1) == (before.half, after.half)
    assert not after.partial
    assert Op.CONTROL == one("dts-shareplex", "UPDATE BEFORE", {"id": "1"}, hints=PARTIAL).op


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SALES.ORDERS", TableId("SALES", None, "ORDERS")),
        ("SALES.A.B", TableId("SALES", None, "A.B")),
        ("ORDERS", TableId(None, None, "ORDERS")),
    ],
)
def test_table_names(name, expected):
    """A table's own dot must not become a schema."""
    assert expected == one("dts-shareplex", "ins", {"id": "1"}, table=name).table


def test_no_table_needs_the_option():
    """A row without a table would go nowhere unseen."""
    with pytest.raises(Undecodable, match="no-table"):
        one("dts-shareplex", "del", {"id": "1"}, table=None)
    hints = Hints(Options(table=(("*", TableId("S", None, "T")),)))
    assert TableId("S", None, "T") == one("dts-shareplex", "del", {"id": "1"}, hints=hints, table=None).table
