"""OMS Default, its extended form, and Dataworks 2.0: order, large objects, conversions."""

from __future__ import annotations

import json

import pytest

from ingest.change import Hints, Op, Options, TableHints, TableId
from ingest.decoding.rows import clock_text, datetime_text, instant_text, integer_text
from ingest.errors import Undecodable
from ingest.formats.oms_default import AFTER_EVERY_COUNTER, split_sequence
from tests.formats.golden import read

FAMILY = ("oms-default", "oms-default-extended", "oms-dataworks")


def default(kind="UPDATE", before=None, after=None, columns=None, options=None, **meta):
    """The one change of a Default message."""
    meta_data = {
        "dbType": "OB_MYSQL",
        "db": "t.shop",
        "table_name": "orders",
        "timestamp": "1718000042",
        **meta,
    }
    message = {"recordType": kind, "allMetaData": meta_data, "prevStruct": before, "postStruct": after}
    hints = Hints(options or Options(), lambda _table: TableHints((), columns or {}))
    return read("oms-default", json.dumps(message).encode(), hints)[0]


def test_counters_order_as_numbers_padded_or_not():
    """Compared as one number an unpadded counter 10 of one second would pass the next second's 2."""
    earlier = split_sequence("171800004210", "1718000042")
    later = split_sequence("17180000432", "1718000043")
    assert earlier < later
    assert (1718000042, 10) == earlier == split_sequence("17180000420010", "1718000042")
    assert (1718000042, 0) == split_sequence("1718000042", "1718000042")
    assert (1718000042, 7) == split_sequence("17180000427", "1700000000")  # another second: ten digits


@pytest.mark.parametrize("position", [None, "", "null", "17180000**", "-1718", "١٧١٨", "1" * 41])
def test_unreadable_positions_give_no_sequence(position):
    """A masked position taken for a number would put a change anywhere in history."""
    assert () == split_sequence(position, None)


def test_statement_is_ordered_after_every_counter_of_its_second():
    """A TRUNCATE sorted before the rows of its second would leave them in the mirror."""
    row = default("INSERT", after={"id": 1}, storeDataSequence="171800004299999")
    statement = default("DDL", after={"ddl": "TRUNCATE TABLE orders"})
    following = default("INSERT", after={"id": 2}, timestamp="1718000043", storeDataSequence="17180000430")
    assert row.sequence < statement.sequence < following.sequence
    assert (Op.TRUNCATE, (1718000042, AFTER_EVERY_COUNTER)) == (statement.op, statement.sequence)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("truncate orders", ["truncate", "ddl"]),
        ("/* a */ /* b */ TRUNCATE TABLE `shop`.`orders` ;", ["truncate", "ddl"]),
        ("ALTER TABLE orders TRUNCATE PARTITION p0", ["ddl"]),
        ("CREATE TABLE truncate_log (id int)", ["ddl"]),
    ],
)
def test_only_a_statement_that_empties_the_table_truncates(sql, expected):
    """A truncated partition taken for the table would empty the mirror."""
    message = {
        "recordType": "DDL",
        "allMetaData": {"db": "shop", "table_name": "orders", "timestamp": "1718000042"},
        "postStruct": {"ddl": sql},
    }
    assert expected == [str(change.op) for change in read("oms-default", json.dumps(message).encode())]


def test_null_before_and_after_is_absent_where_a_large_object_may_hide():
    """An unchanged CLOB sent as NULL would overwrite the mirror's text."""
    columns = {"qty": "int32", "story": "string", "pic": "binary"}
    image = {"id": 1, "qty": None, "story": None, "pic": None, "untyped": None}
    change = default(before=image, after=image, columns=columns)
    assert {"id": "1", "qty": None} == change.after == change.before
    assert change.partial


@pytest.mark.parametrize(
    ("before", "after"),
    [({"a": "x"}, {"a": None}), ({"a": None}, {"a": "x"}), ({}, {"a": None}), (None, {"a": None})],
)
def test_null_on_one_side_only_is_a_real_null(before, after):
    """A column set to NULL would keep its old value for ever."""
    change = default(before=before, after=after)
    assert (after, False) == (change.after, change.partial)


def test_insert_keeps_its_nulls():
    """The rule for unchanged large objects is about updates: an insert's NULL is NULL."""
    change = default("INSERT", after={"a": None})
    assert ({"a": None}, False) == (change.after, change.partial)


@pytest.mark.parametrize(
    ("kind", "database", "expected"),
    [
        ("OB_MYSQL", "tenant.shop", "shop"),
        ("OB_ORACLE", "tenant.SALES", "SALES"),
        ("OCEANBASE", "tenant.a.b", "a.b"),
        ("OB_MYSQL", "shop", "shop"),
        ("MYSQL", "my.shop", "my.shop"),
    ],
)
def test_tenant_is_dropped_for_oceanbase_only(kind, database, expected):
    """A dot in a MySQL database's name would send its rows to another mirror."""
    change = default("INSERT", after={"id": 1}, dbType=kind, db=database)
    assert TableId(expected, None, "orders") == change.table


def test_numbers_keep_every_digit():
    """A value that passes through a float comes out as another value."""
    digits = "9." + "7" * 700 + "E-308"
    raw = (
        '{"recordType":"INSERT","allMetaData":{"table_name":"t","db":"d"},'
        f'"postStruct":{{"a":{digits},"b":1.10,"c":10223372036854775806,"d":-0,"e":{{"x": [1.0]}}}}}}'
    )
    after = read("oms-default", raw.encode())[0].after
    assert {"a": digits, "b": "1.10", "c": "10223372036854775806", "d": "-0", "e": '{"x":[1.0]}'} == after


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1606233662.012345", "2020-11-24T16:01:02.012345Z"),
        ("1606233662", "2020-11-24T16:01:02Z"),
        ("-1.5", "1969-12-31T23:59:58.5Z"),
        ("2020-11-25 00:01:02.012345000 Asia/Shanghai", "2020-11-24T16:01:02.012345Z"),
        ("2020-11-25T00:01", "2020-11-24T16:01:00Z"),
        ("2020-11-25 00:01:02 +09:00", "2020-11-24T15:01:02Z"),
    ],
)
def test_instants(value, expected):
    """Each way in which OMS versions write an instant must name the same one."""
    assert expected == instant_text(value, "Asia/Shanghai")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2020-11-25 00:01:02.1200 Asia/Shanghai", "2020-11-25 00:01:02.12"),
        ("2020-11-25T00:01", "2020-11-25 00:01:00"),
        ("2020-11-25", "2020-11-25 00:00:00"),
        ("1606233662.5", "2020-11-25 00:01:02.5"),
    ],
)
def test_zoneless_times_are_never_shifted(value, expected):
    """A DATETIME moved by its session's zone is another time of day."""
    assert expected == datetime_text(value, "Asia/Shanghai")


@pytest.mark.parametrize("value", ["", "tomorrow", "2020-11-25 00:01:02 Mars/Base", "1606233662.1234567890"])
def test_no_moment_is_refused(value):
    """What is not a time must stay as sent and become a cell reject, not some time."""
    for convert in (instant_text, datetime_text):
        with pytest.raises(ValueError):
            convert(value, "UTC")


def test_small_conversions():
    """Spellings that older versions send must meet the canonical text."""
    assert "1" == integer_text("true")
    assert "1000" == integer_text("1E3")
    assert "06:14:00" == clock_text("06:14")
    assert "-838:59:59.5" == clock_text("-838:59:59.500")
    for wrong in ("1.5", "1e999999", "x"):
        with pytest.raises(ValueError):
            integer_text(wrong)


def test_bit_is_one_number_however_it_is_sent():
    """Incremental and full rows pad BIT differently: as text they would be two values."""
    values = ["Bg==", "AAAAAAAAAAY=", 6, ""]
    found = [default("INSERT", after={"b": value}, columns={"b": "bit"}).after for value in values]
    assert [{"b": "6"}, {"b": "6"}, {"b": "6"}, {"b": "0"}] == found


def test_declared_type_beats_the_message():
    """The type in the pipeline file must win against a type that the message sends."""
    row = {"id": 1, "__light_type": {"id": {"schemaType": "VARCHAR"}, "x": {"schemaType": "INT"}}}
    change = default("INSERT", after=row, columns={"id": "int64"})
    assert {"id": "int64"} == change.types
    assert "typed columns not in the row: x" == change.note


def test_decimal_option_of_binary_encoding():
    """Bytes in another encoding than base64 would be stored as other bytes."""
    change = default("INSERT", after={"b": "00ff"}, columns={"b": "binary"}, options=Options(binary="hex"))
    assert {"b": "AP8="} == change.after


@pytest.mark.parametrize(
    ("name", "message", "member"),
    [
        ("oms-default", {"recordType": None, "allMetaData": {}}, "recordType"),
        ("oms-debezium", {"payload": {"op": None, "source": {}}}, "op"),
    ],
)
def test_an_operation_that_is_null_is_called_so(name, message, member):
    """The text 'None' or '' looks like one that was sent."""
    with pytest.raises(Undecodable, match=f"{member} is null or empty"):
        read(name, json.dumps(message).encode())
