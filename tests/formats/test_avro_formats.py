"""The three Avro formats, beyond what the golden messages show."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from ingest.change import ColumnSchema, Hints, Message, Op, Options, TableHints, TableId
from ingest.errors import Undecodable
from ingest.formats import dts_avro, obcloud_avro
from tests.formats import avro_cases, golden

BARE = ("dts-avro", "obcloud-avro")
NAMES = (*BARE, "debezium-avro")
HEAD = {"id": 5, "sourceTimestamp": 1714564800, "sourcePosition": "40@12"}
NO_TIME = dict.fromkeys(["year", "month", "day", "hour", "minute", "second", "millis"])


def cases(name):
    """The golden cases of a format as Python values."""
    return {case.stem: json.loads(case.read_bytes()) for case in golden.cases() if case.parent.name == name}


def decode(name, case, columns=None):
    """The changes of one case."""
    hints = Hints(tables=lambda _table: TableHints((), columns or {}))
    return list(formats.load(name).parse(Message(avro_cases.encode(name, case)), hints))


def cell(value, number=253, source="MySQL", position="40@12"):
    """One DTS value's text and type."""
    case = {
        **HEAD,
        "sourcePosition": position,
        "source": {"sourceType": source, "version": ""},
        "operation": "INSERT",
        "objectName": "a.b",
        "fields": [{"name": "c", "dataTypeNumber": number}],
        "afterImages": [value],
    }
    (change,) = decode("dts-avro", case)
    return change.after["c"], change.types["c"]


def refused(name, case):
    """The reason for which a case is rejected."""
    with pytest.raises(Undecodable) as error:
        decode(name, case)
    return error.value.code


# --- DTS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "position", "expected"),
    [
        ("MySQL", "40@12", "00:00:01.000005"),
        ("PostgreSQL", "0/1", "00:00:01.000005"),
        ("MySQL", "a<->b", "00:00:01.000000005"),
        ("Oracle", "1", "00:00:01.000000005"),
    ],
)
def test_fractions_count_by_source(source, position, expected):
    """Microseconds taken for nanoseconds move an event by a thousandth."""
    value = {"DateTime": {**NO_TIME, "hour": 0, "minute": 0, "second": 1, "millis": 5}}
    assert expected == cell(value, 11, source, position)[0]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"year": 2024}, ("2024", "year")),
        ({"year": 2024, "month": 2, "day": 3}, ("2024-02-03", "date")),
        ({"year": 0, "month": 0, "day": 0}, ("0000-00-00", "date")),
        ({"hour": 25, "minute": 0, "second": 0}, ("25:00:00", "time")),
        ({"hour": -1, "minute": 2, "second": 3, "millis": 500000}, ("-01:02:03.5", "time")),
        ({"year": 2024, "month": 2, "day": 3, "hour": 4}, ("2024-02-03 04:00:00", "datetime")),
    ],
)
def test_partial_dates(parts, expected):
    """One branch carries years, dates, times and both; the parts present decide which."""
    assert expected == cell({"DateTime": {**NO_TIME, **parts}}, 12)


@pytest.mark.parametrize(
    ("charset", "data", "expected"),
    [
        ("utf8mb3", "c3a9", "é"),
        ("latin1", "81e9", "\x81é"),
        ("gb2312", "c4e3", "你"),
        ("ucs2", "4f60", "你"),
        ("binary", "00ff", "AP8="),
        ("", "00ff", "AP8="),
    ],
)
def test_charsets(charset, data, expected):
    """Text decoded in another character set is wrong for good."""
    assert expected == cell({"Character": {"charset": charset, "value": {"$hex": data}}})[0]


@pytest.mark.parametrize(("charset", "data"), [("klingon", "00"), ("utf8", "ff")])
def test_undecodable_texts_are_rejected(charset, data):
    """A replacement character in a mirror hides that bytes were lost."""
    with pytest.raises(Undecodable, match="bad-value"):
        cell({"Character": {"charset": charset, "value": {"$hex": data}}})


@pytest.mark.parametrize(
    ("value", "number", "expected"),
    [
        ({"Integer": {"precision": 4, "value": "2147483647"}}, 3, "int32"),
        ({"Integer": {"precision": 4, "value": "4294967295"}}, 3, "uint32"),
        ({"Integer": {"precision": 4, "value": "18446744073709551615"}}, 8, "uint64"),
        ({"Integer": {"precision": 4, "value": "5"}}, 16, "bit"),
        ({"Integer": {"precision": 4, "value": "18446744073709551615"}}, 16, "bit(64)"),
        ({"Character": {"charset": "utf8", "value": {"$text": "A101"}}}, 3, "string"),
        ({"TextObject": {"type": "ENUM", "value": "x"}}, 254, "string"),
        ({"TextObject": {"type": "ENUM", "value": "x"}}, 247, "enum"),
        ({"Decimal": {"precision": 0, "scale": -127, "value": "1.5"}}, 246, "decimal"),
        ({"Decimal": {"precision": 5, "scale": 2, "value": "NaN"}}, 246, "decimal(5,2)"),
    ],
)
def test_types_believe_the_branch(value, number, expected):
    """A code that contradicts the value would make every row of the column fail later."""
    assert expected == cell(value, number)[1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", TableId("a", None, None)),
        ("a.b", TableId("a", None, "b")),
        ("a.b.c", TableId("a", "b", "c")),
        ("a\\u002Eb.c", TableId("a.b", None, "c")),
    ],
)
def test_object_names(name, expected):
    """A dot of a name taken for a separator is another table."""
    case = {**HEAD, "source": {"sourceType": "MySQL", "version": ""}, "operation": "DDL"}
    (change,) = decode("dts-avro", {**case, "objectName": name, "afterImages": "DROP TABLE x"})
    assert expected == change.table


def test_no_operations_are_marks():
    """The service's 48-byte fillers would otherwise fill the rejects."""
    parse = formats.load("dts-avro").parse
    (change,) = parse(Message(b"\xff" * 48), Hints())
    assert Op.CONTROL is change.op
    with pytest.raises(Undecodable):
        parse(Message(b"\xff" * 47), Hints())


def test_a_trailing_long_is_read_and_nothing_more():
    """Two producers differ by one long at the end; more than that is damage."""
    data = avro_cases.encode("dts-avro", cases("dts-avro")["heartbeat"])
    parse = formats.load("dts-avro").parse
    assert Op.HEARTBEAT is parse(Message(data + b"\x02"), Hints())[0].op
    with pytest.raises(Undecodable, match="trailing-bytes"):
        parse(Message(data + b"\x02\x02"), Hints())


# --- OceanBase ----------------------------------------------------------------------------------


def test_key_indexes_stay_inside_the_fields():
    """A negative index would name the last column as the key."""
    case = cases("obcloud-avro")["update-null-on-both-sides"]
    assert "bad-message" == refused("obcloud-avro", {**case, "pkIndexes": [-1]})
    assert "bad-message" == refused("obcloud-avro", {**case, "pkIndexes": [5]})


@pytest.mark.parametrize("indexes", [[[1], [0]], [[0], [1]], [[], [0], [1, 0]]])
def test_without_a_primary_key_one_unique_index_is_the_key(indexes):
    """The key must not change because the indexes are listed in another order."""
    record = {"pkIndexes": None, "ukIndexes": indexes}
    assert ("id",) == obcloud_avro._key_columns(record, ["id", "name"])


@pytest.mark.parametrize(
    "info", ['{"b": ["x"], "a": ["y"]}', '{"a": ["y"], "b": ["x"]}', '{"0": [], "a": ["y"]}']
)
def test_the_key_is_not_the_first_member_of_an_object(info):
    """A writer may list the indexes in any order, and another one in each message."""
    assert ("y",) == dts_avro.key_columns(info)


def test_a_name_given_twice_is_refused():
    """Of two values for one column, one would be lost silently."""
    case = cases("obcloud-avro")["update-null-on-both-sides"]
    fields = [{**field, "name": "id"} for field in case["fields"]]
    assert "duplicate-key" == refused("obcloud-avro", {**case, "fields": fields})


def test_declared_unsigned_numbers_are_corrected():
    """An unsigned 64-bit number travels as a signed one."""
    case = cases("obcloud-avro")["insert-every-branch"]
    image = [{"type_info": "LONG", "value": {"long": -1}}, *case["afterImages"][1:]]
    (change,) = decode("obcloud-avro", {**case, "afterImages": image}, {"id": "uint64"})
    assert ("18446744073709551615", "uint64") == (change.after["id"], change.types["id"])


@pytest.mark.parametrize("text", ["12x", "-1", ""])
def test_bad_bit_strings_are_rejected(text):
    """A bit string of an unknown spelling must not become a number by chance."""
    case = cases("obcloud-avro")["insert-every-branch"]
    cells = [{"type_info": "BIT", "value": {"BitObject": {"bit_length": 9, "value": text}}}]
    with pytest.raises(Undecodable, match="bad-value"):
        decode("obcloud-avro", {**case, "fields": case["fields"][:1], "afterImages": cells})


# --- Debezium -----------------------------------------------------------------------------------


def test_frames():
    """Without its schema a datum is noise, and noise must be named as such."""
    parse = formats.load("debezium-avro").parse

    def unknown(number):
        raise KeyError(number)

    for value, schema, expected in [
        (b"{}", unknown, "no-frame"),
        (b"\0\0\0\0", unknown, "no-frame"),
        (b"\0\0\0\0\1\2", unknown, "unknown-schema"),
        (b"\0\0\0\0\1\2", None, "unknown-schema"),
        (b"\0\0\0\0\1\2", lambda _number: "{", "bad-schema"),
        (b"\0\0\0\0\1\2", lambda _number: '"long"', "not-this-format"),
    ]:
        with pytest.raises(Undecodable) as error:
            list(parse(Message(value), Hints(schema=schema)))
        assert expected == error.value.code


def test_registry_trouble_is_no_reject():
    """A registry that is down must stop the run, not turn its messages into rejects."""

    def down(_number):
        raise ConnectionError

    with pytest.raises(ConnectionError):
        list(formats.load("debezium-avro").parse(Message(b"\0\0\0\0\1\2"), Hints(schema=down)))


def test_json_keys_with_avro_values():
    """Key and value converters are set apart, and a delete may have nothing but its key."""
    case = cases("debezium-avro")["delete-key-only"]
    message = Message(avro_cases.encode("debezium-avro", case), b'{"id": 7}')
    (change,) = formats.load("debezium-avro").parse(message, Hints(schema=avro_cases.lookup(case)))
    assert {"id": "7"} == change.before


# --- all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BARE)
def test_the_two_schemas_do_not_read_each_other(name):
    """Bytes of the one vendor that decode under the other's schema become rows of nonsense."""
    for case in golden.cases():
        if case.parent.name in BARE:
            sample = avro_cases.encode(case.parent.name, json.loads(case.read_bytes()))
            assert (case.parent.name == name) == (formats.evidence(name, sample) is not None)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"uk_b": ["b"], "PRIMARY": ["id", "day"]}, ("id", "day")),
        ({"uk_b": ["b"], "uk_a": ["a", "c"]}, ("a", "c")),
        ({"uk_a": ["a", "c"], "uk_b": ["b"]}, ("a", "c")),
        ({"uk_a": [], "uk_b": ["b"]}, ("b",)),
        ({}, ()),
    ],
)
def test_the_key_does_not_depend_on_the_order_of_indexes(info, expected):
    """A key that flips between two unique indexes from message to message holds the mirror."""
    assert expected == dts_avro.key_columns(json.dumps(info))


def test_what_a_registrys_schema_says_of_columns():
    """By it the rows before a new column get their values: a default read otherwise than cells would be no value."""
    decimal = {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "number", "type": {"type": "int", "connect.default": 7}, "default": 7},
        {"name": "empty", "type": ["null", "string"], "default": None},
        {"name": "optional", "type": ["int", "null"], "default": 5},
        {
            "name": "price",
            "type": decimal | {"connect.parameters": {"scale": "2"}},
            "default": "\u0001\u0002",
        },
        {"name": "flag", "type": "boolean", "default": False},
    ]
    row = {"type": "record", "name": "Row", "fields": fields}
    schema = json.dumps(row | {"fields": [*fields, {"name": "__deleted", "type": ["null", "string"]}]})
    datum = b"\x02\x02\x00\x00\x02\x02\x01\x00\x00"
    message = Message(b"\x00\x00\x00\x00\x01" + datum, topic="t")
    hints = Hints(options=Options(table=(("*", TableId("d", "s", "t")),)), schema=lambda _number: schema)
    [change] = formats.load("debezium-avro").parse(message, hints)
    assert {
        "id": ColumnSchema(nullable=False, known=False),
        "number": ColumnSchema(nullable=False, default="7"),
        "empty": ColumnSchema(nullable=True),
        "optional": ColumnSchema(nullable=True, default="5"),
        "price": ColumnSchema(nullable=False, default="2.58"),
        "flag": ColumnSchema(nullable=False, default="false"),
    } == {name: column for name, column in change.schema.items() if name != "__deleted"}


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(
    "table",
    [
        "SHOP.ORDERS",
        "ORDERS",
        "T",
        "SHOP.订单",
        "SHOP.ORDER-ITEMS",
        "SHOP.ORDER ITEMS",
        ".".join(("P" * 30, "S" * 128, "T" * 128)),
    ],
)
def test_a_record_in_the_generic_wrapper_may_be_of_any_table(table, optional):
    """Oracle takes every character in a quoted name, and 128 bytes of it; each record would be refused as one without a frame."""
    names = "op_type op_ts current_ts pos ID".split()
    kind = ["null", "string"] if optional else "string"
    fields = [{"name": name, "type": kind} for name in names]
    schema = {"type": "record", "name": "R", "fields": [{"name": "table", "type": "string"}, *fields]}
    cells = ("I", "2026-03-14 10:00:00", "2026-03-14T10:00:01", "1", "7")
    record = avro_cases.written(schema, {"table": table} | dict(zip(names, cells, strict=True)))
    value = avro_cases.wrapped(table, -77124123, record)
    reader = formats.load("ogg-avro")
    assert "a table's name, a schema's fingerprint and a record of the table" == reader.recognise(value)
    [change] = reader.parse(Message(value), Hints(schema={-77124123: json.dumps(schema)}.__getitem__))
    assert (table, {"ID": "7"}) == (str(change.table), change.after)
    for bare in (record, record[:-1]):
        assert "without a frame, which is not read" in reader.recognise(bare)
        with pytest.raises(Undecodable, match="without a frame"):
            list(reader.parse(Message(bare), Hints()))
    with pytest.raises(Undecodable, match="does not end with its last byte"):
        list(reader.parse(Message(value[:-1]), Hints()))
