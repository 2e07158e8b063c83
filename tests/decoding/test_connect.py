"""Values of Connect schemas and declared columns, against independent arithmetic."""

from __future__ import annotations

import json
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import types, values
from ingest.change import Options
from ingest.decoding import connect, connect_avro, declared_values, json_values
from ingest.decoding.connect import Field
from ingest.formats import debezium
from ingest.values import charsets


@given(st.integers(-(2**300), 2**300), st.integers(-30, 60))
def test_unscaled_decimals(number, scale):
    """A digit or a sign lost here is money lost everywhere."""
    data = number.to_bytes(40, "big", signed=True)
    text = values.unscaled_text(data, scale)
    expected = Decimal(number).scaleb(-scale) if abs(number) < 10**28 else None
    assert expected is None or expected == Decimal(text)
    assert int(text.replace(".", "")) == number * (10**-scale if scale < 0 else 1)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_single_precision_texts_read_back(number):
    """A FLOAT printed as its double grows digits that the source never had."""
    text = values.float32_text(number)
    assert number == struct.unpack("<f", struct.pack("<f", float(text)))[0]
    assert len(text) <= len(repr(number))


@pytest.mark.parametrize("data", [b"\x01" * 513])
def test_huge_decimals_are_refused(data):
    """A megabyte of digits takes a minute to print."""
    with pytest.raises(ValueError, match="not a decimal"):
        values.unscaled_text(data, 0)


@pytest.mark.parametrize("number", [0, 1200, -100000, 99900])
def test_scales_below_zero(number):
    """PostgreSQL's NUMERIC(5,-2) comes with the scale 2046: the base64 of its bytes was taken for the number, in silence."""
    meaning = connect.decimal_meaning({"scale": "2046", "connect.decimal.precision": "5"})
    unscaled = number * 10**2046
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    assert ("decimal(7,0)", "bytes", str(number)) == (meaning.logical, meaning.shape, meaning.text(data))
    for refused in (b"\x01", b"\x01" * 4000):
        with pytest.raises(ValueError, match="scale"):
            meaning.text(refused)


def test_durations():
    """A negative span must not round towards the other side."""
    assert ("PT1.5S", "-PT0.000001S", "PT3600S") == tuple(
        connect.duration(count, 10**6) for count in (1_500_000, -1, 3_600_000_000)
    )


def test_plans_are_made_once():
    """A plan for each row costs more than the row."""
    asked = []

    def fields(schema):
        asked.append(schema)
        return (Field("a", "int32"),)

    def meaningless(_field):
        return None

    reading = declared_values.Reading()
    first, second = (connect.plan("s", fields, {"b": "date"}, meaningless, reading) for _ in range(2))
    assert first is second
    assert ["s"] == asked
    assert {"a": "int32", "b": "date"} == first.types


def test_nested_values_become_compact_json():
    """A nested number through a float loses its digits."""
    plan = connect.plan(
        "n", lambda _schema: (Field("a", "map"),), {}, lambda _field: None, declared_values.Reading()
    )
    for blank in (b"", b" "):  # the fast and the careful way
        row = json_values.object_of(b'{"a":%b{"k":1.10,"n":[9007199254740993]}}' % blank)
        assert {"a": '{"k":1.10,"n":[9007199254740993]}'} == connect.json_image(row, plan)


def test_cells_that_a_change_leaves_are_read_once():
    """0.0, -0.0 and false are equal cells, and the images before and after must not share their text."""
    cells = (None, 0, 1, -1, True, False, 0.0, -0.0, 1.0, "", "1", "é", b"", b"\x01", [0.0], [-0.0])
    pairs = [(old, new) for old in cells for new in cells]
    reading = declared_values.Reading("base64", "big", "millis", "millis", "UTC")
    for kind in ("int64", "float64", "boolean", "bytes"):
        fields = tuple(Field(f"c{number}", kind) for number in range(len(pairs)))
        plan = connect.plan(b"", lambda _schema, of_kind=fields: of_kind, {}, connect.meanings, reading)
        before, after = ({f"c{number}": pair[side] for number, pair in enumerate(pairs)} for side in (0, 1))
        texts = connect.plain_image(before, plan)
        assert connect.plain_image(after, plan) == connect.plain_image(after, plan, before, texts)


LOGICAL = {
    ("int", "date"): (-1, "date", "1969-12-31"),
    ("int", "time-millis"): (86_399_999, "time", "23:59:59.999"),
    ("long", "time-micros"): (1, "time", "00:00:00.000001"),
    **{
        ("long", kind + unit): (1_718_000_000_500 * 1000**power, "datetime", "2024-06-10 06:13:20.5")
        for kind in ("timestamp-", "local-timestamp-")
        for power, unit in enumerate(("millis", "micros", "nanos"))
    },
    ("string", "uuid"): (
        "550e8400-e29b-41d4-a716-446655440000",
        "string",
        "550e8400-e29b-41d4-a716-446655440000",
    ),
}
"""The logical types of the Avro specification 1.12 with a value, and what it is."""


@pytest.mark.parametrize("kind", list(LOGICAL))
def test_logical_types_of_avro_without_names_of_connect(kind):
    """Writers that are not Kafka Connect send no other names: a moment stayed a number, with the type int64."""
    physical, name = kind
    value, logical, text = LOGICAL[kind]
    column = {"name": "c", "type": ["null", {"type": physical, "logicalType": name}]}
    schema = json.dumps({"type": "record", "name": "R", "fields": [column]})
    plan = connect.plan(schema, connect_avro.row_fields, {}, connect.meanings, declared_values.Reading())
    assert ({"c": text}, {"c": logical}) == (connect.plain_image({"c": value}, plan), plan.types)


def test_null_in_a_list_stays_null():
    """A NULL among texts printed as the word None is a value that the source never stored."""
    item = Field("", "string", "Uuid")
    plan = connect.plan(
        "l",
        lambda _schema: (Field("a", "array", fields=(item,)),),
        {},
        lambda field: connect.Meaning("string", "text", str) if field.semantic else None,
        declared_values.Reading(),
    )
    row = {"a": ["x", None]}
    assert {"a": '["x",null]'} == connect.json_image(row, plan) == connect.plain_image(row, plan)


@pytest.mark.parametrize("described", [1, 2], ids=["by the innermost items alone", "with each of its arrays"])
def test_items_of_arrays_in_arrays_have_their_meaning(described):
    """Dates in an array of two dimensions would stay counts of days; PostgreSQL's type says nothing of its dimensions."""
    item = Field("", "int32", "Date")
    for _ in range(described):
        item = Field("a", "array", fields=(item,))
    plan = connect.plan(
        f"d{described}",
        lambda _schema: (item,),
        {},
        lambda field: connect.Meaning("date", "int", "day {}".format) if field.semantic else None,
        declared_values.Reading(),
    )
    row = {"a": [[1, None], None, [[2]]]}
    told = {"a": '[["day 1",null],null,[["day 2"]]]'}
    assert told == connect.json_image(row, plan) == connect.plain_image(row, plan)


@pytest.mark.parametrize(
    ("physical", "parameters", "expected"),
    [
        ("int64", {"type": "INT UNSIGNED ZEROFILL", "length": "5"}, "int64 zerofill 5"),
        ("int64", {"type": "INT UNSIGNED ZEROFILL"}, "int64 zerofill 10"),
        ("int64", {"type": "INT UNSIGNED", "length": "5"}, "int64"),
        ("float", {"type": "FLOAT UNSIGNED ZEROFILL", "length": "7", "scale": "2"}, "float32"),
    ],
)
def test_zerofill_is_read_from_the_propagated_type(physical, parameters, expected):
    """Debezium's ``column.propagate.source.type`` is the only place where rows say it."""
    given = {f"__debezium.source.column.{name}": value for name, value in parameters.items()}
    field = Field("no", physical, parameters=given)
    plan = connect.plan(str(given), lambda _s: (field,), {}, lambda _f: None, declared_values.Reading())
    assert {"no": expected} == plan.types


def test_charsets():
    """A set's name is written with and without its separators."""
    assert "é" == charsets.decoded(b"\xc3\xa9", "UTF-8") == charsets.decoded(b"\xe9", "latin1")
    with pytest.raises(ValueError, match="not known"):
        charsets.decoded(b"", "klingon")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bit", "boolean"), ("tinyint", "uint8"), ("decimal(10,2)", "decimal(10,2)"), ("int identity", "int32")],
)
def test_sqlserver_types(name, expected):
    """SQL Server's tinyint has no sign and its bit is a boolean."""
    assert expected == types.sqlserver(name)


def test_fraction_digits_in_declared_types():
    """``datetime(3)`` gives the units of numbers and must still become a timestamp in the mirror."""
    assert types.is_logical("datetime(3)")
    assert not types.is_logical("date(3)")
    assert "TIMESTAMP_NTZ" == types.delta("datetime(3)")


@given(
    st.integers(-(2**70), 2**70), st.sampled_from(["int64", "uint64", "bit", "date", "time", "decimal(9,2)"])
)
def test_integers_of_declared_columns(number, logical):
    """The short way of integers must not part from the way of every other number."""
    column = declared_values.column(logical, declared_values.Reading())
    assert column.json(values.Number(number)) == column.json(number)


@pytest.mark.parametrize("logical", ["datetime", "datetime(3)", "timestamp(6)", "datetime(9)", "time(3)"])
@pytest.mark.parametrize("units", ["adaptive", "millis", "nanos"])
def test_clocks_of_declared_columns(logical, units):
    """What a number counts is worked out once for its column, and is the same for each value."""
    column = declared_values.column(logical, declared_values.Reading(time=units, datetime=units))
    for number in (0, -1, 1_714_551_617_123, 10**30):
        assert column.json(values.Number(number)) == column.json(number)


def test_schemas_alike_in_length_and_end():
    """A schema taken for another one gives every value the wrong type."""
    message = b'{"schema":{"fields":[{"field":"a","type":"%s"}],"tail":"%s"},"payload":{"a":1}}'
    first, second = (message % (width, b"x" * 99) for width in (b"int32", b"int64"))
    for _ in range(2):
        found = [json_values.unwrapped(raw).schema for raw in (first, second)]
        assert [b"int32" in found[0], b"int64" in found[1]] == [True, True]


def test_plans_of_columns_that_come_and_go():
    """A plan found by columns that are gone would be that of other columns."""

    def fields(_schema):
        return ()

    def meaningless(_field):
        return None

    for number in range(3 * connect.MAX_PLANS):
        name = f"c{number % 7}"
        plan = connect.plan("p", fields, {name: "date"}, meaningless, declared_values.Reading())
        assert {name: "date"} == plan.types


@given(
    st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text(max_size=3), max_size=3),
    st.sampled_from(["plain", "payload", "schema", "array"]),
    st.none() | st.integers(0, 30),
)
def test_the_names_of_a_key_are_those_of_its_columns(key, shape, cut):
    """Rows would have another key than the deletes that name only it."""
    schema = {"type": "struct", "fields": [{"field": name, "type": "string"} for name in key]}
    sent = {
        "plain": key,
        "payload": {"payload": key},
        "schema": {"schema": schema, "payload": key},
        "array": [key],
    }[shape]
    data = json.dumps(sent).encode()[:cut]
    reading = declared_values.Reading("base64", "big", "micros", "micros", "UTC")
    image = connect.json_key(
        data, lambda schema: connect.plan(schema, connect.row_fields, {}, connect.meanings, reading)
    )
    assert tuple(image or ()) == connect.json_key_columns(data)


def _enumeration(allowed: str) -> dict[str, object]:
    return {"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": allowed}}


LABELS = [
    ("a,b", ("a", "b")),
    ("a", ("a",)),
    ("", ()),
    (r"a\,b, c", ("a,b", " c")),  # a comma of a label's own
    ("a,b,a,b", ()),  # PostgreSQL's labels with commas
]


@pytest.mark.parametrize(("allowed", "labels"), LABELS)
def test_labels_of_an_enumeration(allowed, labels):
    """Only this list says that a label has another name by now."""
    column = _enumeration(allowed) | {"field": "v", "optional": True}
    listed = {"type": "array", "items": _enumeration(allowed), "optional": True, "field": "w"}
    schema = json.dumps({"type": "struct", "fields": [column, listed]}).encode()
    plan = connect.plan(schema, connect.row_fields, {}, connect.meanings, declared_values.Reading())
    avro = {
        "type": "string",
        "connect.name": "io.debezium.data.Enum",
        "connect.parameters": {"allowed": allowed},
    }
    record = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "v", "type": ["null", avro]},
            {"name": "w", "type": {"type": "array", "items": avro}},
        ],
    }
    plain = connect.plan(
        json.dumps(record), connect_avro.row_fields, {}, connect.meanings, declared_values.Reading()
    )
    for each in (plan, plain):
        assert [labels, labels] == [each.labelled[name].labels for name in "vw"]
        assert [(), ()] == [each.schema[name].labels for name in "vw"]


@pytest.mark.parametrize(
    ("semantic", "options", "expected"),
    [
        ("", Options(), "19843"),
        ("", Options(time_units="millis"), "2024-04-30"),
        ("com.example.Date", Options(), "2024-04-30"),
        ("io.debezium.time.Date", Options(), "2024-04-30"),
    ],
)
def test_a_plain_number_is_no_date(semantic, options, expected):
    """A number that somebody declared a date became one, without a word: whether it counts days, no message says."""
    field = Field("d", "int32", semantic)
    read = connect.column(field, "date", connect.meanings, debezium.reading(options))
    assert ("date", expected, expected) == (read.logical, read.json(19843), read.plain(19843))
    assert "2024-04-30" == declared_values.column("date", debezium.reading(Options())).json(19843)
