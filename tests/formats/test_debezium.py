"""Rows and statements in Debezium's JSON and OMS's three variants of it, beyond what the golden messages show."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from ingest.change import Hints, Message, Op, Options, TableHints, TableId
from tests.formats import golden
from tests.formats.debezium_rows import POSTGRES, SOURCE, code, decode, one, row

# --- rows ---------------------------------------------------------------------------------------


def test_deletes_without_an_image_need_a_key():
    """A delete of an unknown row must not vanish."""
    assert {"id": "1"} == one(row("d", POSTGRES, after=None), key={"id": 1}).before
    assert "no-image" == code(row("d", POSTGRES, after=None))


def test_null_values():
    """A tombstone is a mark; only a topic whose table is named has deletes without a value."""
    table = Options(table=(("t", TableId("shop", None, "orders")),))
    assert Op.CONTROL is one(None, key={"id": 1}).op
    assert Op.CONTROL is one(None, options=table).op
    assert Op.CONTROL is one({"schema": None, "payload": None}, key={"id": 1}).op
    found = one(None, key={"id": 1}, options=table)
    assert (Op.DELETE, {"id": "1"}, ("id",)) == (found.op, found.before, found.keys)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("debezium", b"null"),
        ("debezium", b"null "),
        ("oms-debezium", b"null"),
        ("oms-debezium-flatten", b"null"),
        ("debezium-avro", b""),
    ],
)
def test_null_values_of_files(name, value):
    """A file has no other way to write a null value: each tombstone of a wrapped delete was a reject."""
    hints = Hints(Options(), lambda _table: TableHints((), {}))
    [found] = formats.reader(name)(Message(value, None, "f.jsonl"), hints)
    assert (Op.CONTROL, "tombstone") == (found.op, found.note)


@pytest.mark.parametrize(
    "value",
    [
        "__debezium_unavailable_value",
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
        ["__debezium_unavailable_value"],
        list(b"__debezium_unavailable_value"),
        {"__debezium_unavailable_value": "__debezium_unavailable_value"},
    ],
)
def test_unavailable_values_are_absent(value):
    """The placeholder written into a mirror destroys the real value."""
    found = one(row("u", POSTGRES, after={"id": 1, "story": value}))
    assert ({"id": "1"}, True) == (found.after, found.partial)


def test_the_placeholder_can_be_named():
    """Connectors let their users choose another placeholder."""
    options = Options(extra={"unavailable_value": "?"})
    assert {"id": "1"} == one(row("u", after={"id": 1, "story": "?"}), options=options).after


def test_a_changed_key_links_to_the_old_one():
    """Without the link the new row never gets the values that were not sent."""
    headers = (("__debezium.oldkey", b'{"schema":null,"payload":{"id":1}}'),)
    found = one(row("c", after={"id": 2}), key={"id": 2}, headers=headers)
    assert ({"id": "1"}, {"id": "2"}) == (found.before, found.after)


@pytest.mark.parametrize(
    ("field", "zero"),
    [
        ({"type": "string", "name": "io.debezium.time.Interval"}, "P0Y0M0DT0H0M0S"),
        ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, 0),
        ({"type": "string", "name": "io.debezium.time.ZonedTime"}, "00:00:00Z"),
        ({"type": "string", "name": "io.debezium.data.Json"}, "{}"),
        ({"type": "array", "items": {"type": "int32"}}, []),
        ({"type": "boolean"}, False),
        ({"type": "double"}, 0.0),
        ({"type": "string"}, ""),
    ],
)
def test_an_image_before_that_the_connector_has_filled_says_nothing(field, zero):
    """It was compared with the row, and each such update of a right mirror failed; a column that may be NULL is never filled."""
    images = []
    for optional in (False, True):
        cells = [{"type": "int64", "field": "id"}, {**field, "field": "c", "optional": optional}]
        schema = {"type": "struct", "fields": [{"type": "struct", "fields": cells, "field": "after"}]}
        payload = row("u", POSTGRES, before={"id": 1, "c": zero}, after={"id": 1, "c": zero})
        images.append(one({"schema": schema, "payload": payload}, key={"id": 1}).before)
    assert (None, {"id", "c"}) == (images[0], {*images[1]})


def test_declared_numbers_without_units_stay():
    """A guess between milli- and microseconds is a thousandfold error."""
    columns = {"a": "datetime", "b": "datetime(3)", "c": "datetime(6)", "d": "datetime(9)", "e": "time"}
    after = dict.fromkeys(columns, 86_400_000_000)
    found = one(row(after=after), columns=columns).after
    assert {
        "a": "86400000000",
        "b": "1972-09-27 00:00:00",
        "c": "1970-01-02 00:00:00",
        "d": "1970-01-01 00:01:26.4",
        "e": "24:00:00",
    } == found
    micros = one(row(after=after), columns=columns, options=Options(time_units="micros")).after
    assert "1970-01-02 00:00:00" == micros["a"]


def test_decimals_as_text_are_base64_only_if_said():
    """``1234`` is a number and also the base64 of another."""
    columns = {"p": "decimal(10,2)"}
    assert "1234" == one(row(after={"p": "1234"}), columns=columns).after["p"]
    scaled = one(row(after={"p": "1234"}), columns=columns, options=Options(decimal_scale=2)).after["p"]
    assert "-26588.24" == scaled


def test_a_value_that_does_not_fit_keeps_its_text():
    """One bad cell must not cost the row, nor be lost itself."""
    columns = {"d": "date", "u": "uint64", "b": "binary", "n": "int32"}
    after = {"d": "not a day", "u": -(2**63) - 1, "b": "%%%", "n": "12a"}
    assert {name: str(value) for name, value in after.items()} == one(row(after=after), columns=columns).after


def test_declared_instants_from_zoneless_numbers():
    """A column declared timestamp must not be set aside for the lack of a zone."""
    schema = {
        "type": "struct",
        "fields": [
            {
                "field": "after",
                "type": "struct",
                "fields": [{"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp"}],
            }
        ],
    }
    value = {"schema": schema, "payload": row(after={"at": 0})}
    options = Options(timezone="Asia/Shanghai")
    assert "1969-12-31T16:00:00Z" == one(value, columns={"at": "timestamp"}, options=options).after["at"]
    assert "1970-01-01 00:00:00" == one(value).after["at"]


def test_the_option_for_bytes_leaves_typed_bytes_alone():
    """Bytes that a schema describes are always base64; ``abcd`` read as hex is another value."""
    fields = [
        {"field": "a", "type": "bytes"},
        {"field": "b", "type": "bytes"},
        {"field": "c", "type": "string"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    value = {"schema": schema, "payload": row(after={"a": "abcd", "b": "abcd", "c": "abcd"})}
    columns = {"b": "bit", "c": "binary"}
    found = one(value, columns=columns, options=Options(binary="hex")).after
    assert {"a": "abcd", "b": str(int.from_bytes(bytes.fromhex("69b71d"), "little")), "c": "q80="} == found


def test_unknown_operation_of_a_flattened_row():
    """An unknown operation must not be taken for an upsert."""
    assert "unknown-operation" == code({"id": 1, "__op": "x", "__table": "t"})


def test_positions_with_a_gap_end_before_it():
    """A number moved into another's place compares with what it is not."""
    source = {"connector": "sqlserver", "db": "a", "schema": "b", "table": "c", "event_serial_no": 2}
    source |= {"commit_lsn": "00000000:00000000:0007", "change_lsn": None}
    assert (7,) == one(row("u", source)).sequence


# --- what is no row -----------------------------------------------------------------------------


def test_structure_of_a_schema_change():
    """Types read from the statement alone miss what the connector already resolved."""
    column = {"name": "id", "typeName": "INT UNSIGNED", "typeExpression": "INT UNSIGNED", "length": 10}
    price = {"name": "price", "typeName": "DECIMAL", "typeExpression": "DECIMAL", "length": 12, "scale": 2}
    bits = [{"name": f"bit{n}", "typeName": "BIT", "typeExpression": "BIT", "length": n} for n in (1, 8)]
    table = {"primaryKeyColumnNames": ["id"], "columns": [column, price, *bits]}
    value = {
        "source": SOURCE,
        "databaseName": "shop",
        "ddl": "...",
        "tableChanges": [
            {"type": "CREATE", "id": '"shop"."a ""b"""', "table": table},
            {"type": "DROP", "id": '"shop"."c"', "table": None},
        ],
    }
    made, dropped = decode(value)
    assert (TableId("shop", None, 'a "b"'), TableId("shop", None, "c")) == (made.table, dropped.table)
    assert {
        "type": "CREATE",
        "keys": ["id"],
        "columns": {"id": "uint32", "price": "decimal(12,2)", "bit1": "boolean", "bit8": "bit"},
    } == json.loads(made.structure)
    assert {"type": "DROP", "keys": [], "columns": {}} == json.loads(dropped.structure)
    assert (0, 1) == (made.row, dropped.row)


def test_structure_of_a_postgres_table_keeps_three_parts():
    """A schema taken for a database sends rows into another mirror."""
    value = {
        "source": {**POSTGRES, "table": ""},
        "databaseName": "crm",
        "schemaName": "sales",
        "ddl": None,
        "tableChanges": [
            {
                "type": "ALTER",
                "id": '"crm"."sales"."leads"',
                "table": {"columns": [{"name": "at", "typeName": "timestamptz"}]},
            }
        ],
    }
    found = one(value)
    assert (TableId("crm", "sales", "leads"), "postgres") == (found.table, found.dialect)
    assert {"at": "timestamp"} == json.loads(found.structure)["columns"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, "no-table"),
        (42, "not-this-format"),
        ([], "not-this-format"),
        ({"id": 1}, "no-table"),
        (row("x"), "unknown-operation"),
        (row("u", after=None), "no-image"),
        (row("c", {"connector": "mongodb", "db": "a", "collection": "b"}, after="{}"), "unsupported-source"),
        (row("c", {"db": "a"}), "no-table"),
        ({"status": "MAYBE", "id": "1", "event_count": None, "ts_ms": 1}, "unknown-operation"),
        ({"databaseName": "a", "ddl": None, "tableChanges": []}, "bad-message"),
    ],
)
def test_rejects(value, expected):
    """A message of no known kind must be set aside with its reason, never counted as a mark."""
    assert expected == code(value)


def test_an_empty_object_is_no_flattened_row():
    """``{}`` in a topic whose table is known would be an upsert of nothing."""
    options = Options(table=(("*", TableId("shop", None, "orders")),))
    assert "not-this-format" == code({}, options=options)


# --- OMS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("5@1714564800", (1714564800, 5)),
        ("mysql-bin.000123@4567", (123, 4567)),
        ("mysql-bin@4567", ()),
        ("mysql-bin.000123@45**", ()),
        ("5@17145****", ()),
        ("", (1714564800, 0)),
        (None, (1714564800, 0)),
    ],
)
def test_oms_positions(position, expected):
    """Left of the @ counts inside the second on its right, or names a log file; a masked one must not cost the message."""
    source = {"name": "OMS", "ts_ms": 1714564800999, "db": "shop", "table": "orders", "pos": position}
    assert expected == one({"payload": row(source=source)}, name="oms-debezium").sequence


@pytest.mark.parametrize(
    ("stamp", "micros"), [(1714564800, 1714564800 * 10**6), (1714564800123, 1714564800123000)]
)
def test_oms_clock_is_seconds_or_milliseconds(stamp, micros):
    """The document says seconds and shows milliseconds."""
    source = {"name": "OMS", "ts_ms": stamp, "db": "shop", "table": "orders", "pos": "1@2"}
    assert micros == one(row(source=source), name="oms-debezium-flatten").event_time


def test_oms_true_nulls_of_small_columns_stay():
    """A NULL of a small column is a value, of a large or untyped one an unchanged value."""
    source = {"name": "OMS", "db": "shop", "table": "orders", "pos": "1@2"}
    image = {"id": 1, "n": None, "pdf": None, "what": None}
    value = row("u", source, before=image, after=image)
    found = one(value, name="oms-debezium-flatten", columns={"n": "int32", "pdf": "binary"}, keys=("id",))
    assert ({"id": "1", "n": None}, True) == (found.after, found.partial)


def test_oms_smt_needs_a_table():
    """A row without a table cannot be guessed into one."""
    assert "no-table" == code({"id": 1}, name="oms-debezium-smt")


def test_recognition_distinguishes_the_family():
    """A wrong guess decodes with the wrong units and the wrong byte encoding."""
    for case in golden.cases():
        raw = case.read_bytes()
        if case.parent.name == "debezium" and "flat" not in case.name:
            assert formats.evidence("oms-debezium", raw) is None
        if case.parent.name in ("oms-debezium", "oms-debezium-flatten") and "heartbeat" not in case.name:
            assert formats.evidence("debezium", raw) is None
            assert formats.evidence(case.parent.name, raw) is not None


@pytest.mark.parametrize(("connector", "known"), [("sqlserver", False), ("db2", True), ("mysql", True)])
def test_a_default_of_a_nullable_column_is_not_that_of_sql_servers_older_rows(
    connector: str, known: bool
) -> None:
    """Only WITH VALUES gives it to them, and no message says so: the mirror had 5 where the source has NULL."""
    fields = [{"field": "id", "type": "int32", "optional": False}]
    fields += [{"field": name, "type": "int32", "optional": name == "q", "default": 5} for name in "qr"]
    image = {"type": "struct", "optional": True, "fields": fields, "field": "after"}
    source = {
        "connector": connector,
        "db": "d",
        "schema": "dbo",
        "table": "t",
        "commit_lsn": "00000027:00000ac0:0002",
    }
    payload = {"op": "c", "source": source, "before": None, "after": {"id": 1, "q": 2, "r": 3}}
    found = one({"schema": {"type": "struct", "fields": [image]}, "payload": payload}, key={"id": 1}).schema
    assert {"q": known, "r": True} == {name: found[name].known for name in "qr"}


def test_informix_begin_of_a_transaction_is_no_column() -> None:
    """Flattening adds it where `add.fields` names it."""
    flat = {"id": 1, "__op": "c", "__deleted": "false", "__source_begin_lsn": "7", "__source_commit_lsn": "9"}
    assert {"id": "1"} == one(
        flat, key={"id": 1}, options=Options(table=(("t", TableId("shop", None, "orders")),))
    ).after
