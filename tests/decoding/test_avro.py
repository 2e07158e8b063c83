"""Reading Avro: values as they were written, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.decoding import avro
from ingest.errors import Undecodable
from tests.timing import is_within

ROW = {
    "type": "record",
    "name": "Row",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": "int"},
        {"name": "ok", "type": "boolean"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
        {"name": "many", "type": {"type": "array", "items": ["null", "long", "string"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
    ],
}
LONG = st.integers(-(2**63), 2**63 - 1)
DATUM = st.fixed_dictionaries(
    {
        "id": LONG,
        "n": st.integers(-(2**31), 2**31 - 1),
        "ok": st.booleans(),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "raw": st.binary(),
        "text": st.none() | st.text(),
        "kind": st.sampled_from("AB"),
        "again": st.none() | st.sampled_from("AB"),
        "mark": st.binary(min_size=3, max_size=3),
        "many": st.lists(st.none() | LONG | st.text()),
        "tags": st.dictionaries(st.text(), LONG),
    }
)


def node(schema: object) -> avro.AvroSchema:
    """A schema compiled from its Python form."""
    return avro.load(json.dumps(schema))


def refused(schema: object, data: bytes) -> str:
    """The code with which a datum is refused."""
    with pytest.raises(Undecodable) as error:
        avro.read(node(schema), data)
    return error.value.code


@settings(max_examples=200, deadline=None)
@given(DATUM)
def test_reads_what_the_library_writes(datum):
    """A value that the schema's preparation changes is a wrong value in every row."""
    assert datum == avro.read(node(ROW), written(ROW, datum))


@settings(max_examples=300, deadline=None)
@given(DATUM, st.data())
def test_damaged_bytes_are_refused_or_read(datum, data):
    """An exception without a code stops every message after it."""
    whole = written(ROW, datum)
    place = data.draw(st.integers(0, len(whole) - 1))
    torn = whole[:place] + data.draw(st.binary(max_size=2)) + whole[place + 1 :]
    with contextlib.suppress(Undecodable):
        assert datum.keys() == avro.read(node(ROW), torn).keys()


def test_a_schema_says_only_how_bytes_are_read():
    """A date made of a number, or a schema refused for its default, changes or loses rows."""
    fields = [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 40}},
        {"name": "größe-1", "type": ["null", {"type": {"type": "long"}, "connect.name": "n"}], "default": 7},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "again", "type": {"type": "Kind", "connect.name": "n"}},
        {"name": "one", "type": ["null", "Kind", "string"]},
    ]
    schema = {"type": "record", "name": "R", "namespace": "my-shop.2", "fields": fields}
    expected = {"day": 1, "price": b"\x01", "größe-1": -1, "kind": "A", "again": "A", "one": "A"}
    assert expected == avro.read(node(schema), b"\x02\x02\x01\x02\x01\x00\x00\x02\x00")


def test_records_of_any_width():
    """A table of thousands of columns is read as any other."""
    kinds = (
        "long",
        ["null", "string"],
        "double",
        {"type": "map", "values": "int"},
        ["null", "bytes"],
        ["string", "null"],
    )
    cells = (-(1 << 40), None, 0.5, {"a": 3}, b"\xff", "x")
    fields = [{"name": f"column {number}", "type": kinds[number % 6]} for number in range(3_000)]
    schema = {"type": "record", "name": "R", "fields": fields}
    row = {f"column {number}": cells[number % 6] for number in range(3_000)}
    assert row == avro.read(node(schema), written(schema, row))


def test_unions_of_any_number_of_types():
    """The choice that is named must be taken, and none that is not there."""
    enums = [{"type": "enum", "name": f"E{number}", "symbols": ["A"]} for number in range(99)]
    schema = node(["null", *enums])
    of_branch = {number: avro.read(schema, written("long", number) + b"\x00") for number in (1, 99)}
    assert {1: ("E0", "A"), 99: ("E98", "A")} == of_branch
    assert None is avro.read(schema, b"\x00")
    for beyond in (-1, 100, 1 << 62):
        with pytest.raises(Undecodable, match="no choice") as error:
            avro.read(schema, written("long", beyond) + b"\x00")
        assert "bad-avro" == error.value.code


@pytest.mark.parametrize("choice", [b"\x02", b"\x82\x00", b"\x82\x80\x00"])
@pytest.mark.parametrize("kind", ["string", "long", {"type": "enum", "name": "E", "symbols": ["A", "B"]}])
def test_a_choice_may_be_written_longer_than_it_needs(choice, kind):
    """Java reads such a number, too: optional fields are read by a short way that one byte alone may take."""
    schema = node({"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", kind]}]})
    assert {"f": {"string": "a", "long": -49}.get(str(kind), "B")} == avro.read(
        schema, choice + {"string": b"\x02a", "long": b"\x61"}.get(str(kind), b"\x02")
    )


def test_unions_of_several_named_types_name_their_branch():
    """Nothing else distinguishes two records of the same shape."""
    records = [
        {"type": "record", "name": name, "fields": [{"name": "n", "type": "long"}]} for name in ("A", "B")
    ]
    schema = node(["null", *records])
    assert [None, ("A", {"n": 1}), ("B", {"n": 1})] == [
        avro.read(schema, data) for data in (b"\x00", b"\x02\x02", b"\x04\x02")
    ]
    assert {"n": 1} == avro.read(node(["null", records[0]]), b"\x02\x02")


def written(schema: object, datum: object) -> bytes:
    """A datum in the independent library's encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


@pytest.mark.parametrize(
    ("schema", "data", "code"),
    [
        ("long", b"\x80" * 7, "truncated"),
        (["null", "long"], b"\x01", "bad-avro"),  # index -1
        (["int", "null"], b"\x01", "bad-avro"),  # of which the last one takes no bytes
        (["null", "int"], b"\x03\x06", "bad-avro"),  # index -2
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "bad-avro"),
        ({"type": "array", "items": ["null", "int"]}, b"\x02\x01\x00", "bad-avro"),
        ("int", b"\x80\x80\x80\x80\x80\x80\x01", "bad-avro"),
        ("int", b"\x80\x80\x80\x80\x10", "bad-avro"),  # 2^31
        (["null", "int"], b"\x02\x80\x80\x80\x80\x10", "bad-avro"),
        ("boolean", b"\x07", "bad-avro"),
        ("boolean", b"\x02", "bad-avro"),
        ("boolean", b"\x80\x80\x80\x00", "bad-avro"),  # a number of several bytes that is 0
        ("boolean", b"\x81\x00", "bad-avro"),  # and one that is -1, as the byte of a true would be
        ({"type": "array", "items": ["null", "boolean"]}, b"\x02\x02\x80\x00\x00", "bad-avro"),
        ({"type": "map", "values": "boolean"}, b"\x02\x02a\x80\x00\x00", "bad-avro"),
        ({"type": "map", "values": "boolean"}, b"\x02\x02a\x03\x00", "bad-avro"),
        ("long", b"\xff" * 9 + b"\x7f", "bad-avro"),
        ("long", b"\xff" * 10 + b"\x01", "bad-avro"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "s", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
            },
            b"\x02a\x02" + b"\xff" * 9 + b"\x02",
            "bad-avro",
        ),
        ({"type": "array", "items": "long"}, b"\x02" + b"\xff" * 9 + b"\x02\x00", "bad-avro"),
        ({"type": "map", "values": "long"}, b"\x02\x02a" + b"\xff" * 9 + b"\x02\x00", "bad-avro"),
        (["null", "long"], b"\x04\x00", "bad-avro"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "bad-avro"),
        ("bytes", b"\x01", "truncated"),  # length -1
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "truncated"),  # length 2^62
        ("string", b"\x04\xff\xff", "bad-utf8"),
        ("string", b"\x06\xe5\x88", "truncated"),  # in the middle of a character
        ("string", b"\x04\xe5\x88", "bad-utf8"),  # which is the whole text
        ({"type": "array", "items": "string"}, b"\x04\x02\xff\x06\xe5", "bad-utf8"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "truncated"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 3}}, b"\x7eabc", "truncated"),
        ("long", b"\x02\x00", "trailing-bytes"),
        ("long", b"", "truncated"),
        ("double", b"\x00" * 7, "truncated"),
    ],
)
def test_refuses_damage(schema, data, code):
    """Bytes that are not a datum of the schema must become a reject, each by its own name."""
    assert code == refused(schema, data)


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("int", b"\xff\xff\xff\xff\x0f", -(2**31)),
        ("int", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("long", b"\xff" * 9 + b"\x01", -(2**63)),
        ("long", b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1),
        ("boolean", b"\x00", False),
        ("boolean", b"\x01", True),
        (["null", "boolean"], b"\x02\x01", True),
        ({"type": "map", "values": "boolean"}, b"\x02\x04\xc4\x80\x00\x00", {"\u0100": False}),
        ({"type": "array", "items": "long"}, b"\x02\x80\x80\x00\x00", [0]),
        ("string", b"\x28" + "删除订单".encode() + b"12345678", "删除订单12345678"),
        ({"type": "array", "items": "string"}, b"\x01\x2a\x28" + "删除订单".encode() + b"12345678\x00", ["删除订单12345678"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x02", "B"),
    ],
)  # fmt: skip
def test_reads_what_is_at_the_edge(schema, data, value):
    """A check that refuses a sound message loses it; a Chinese text has bytes like those of a number without end."""
    found = avro.read(node(schema), data)
    assert (value, type(value)) == (found, type(found))


@pytest.mark.parametrize("number", [b"\x80" * 11 + b"\x01", b"\xff" * 9 + b"\x02"])
def test_a_place_in_the_log_is_not_wrapped(number):
    """A record's first numbers order it: one of more than 64 bits would be read as another place."""
    fields = [{"name": "version", "type": "int"}, {"name": "id", "type": "long"}]
    assert "bad-avro" == refused({"type": "record", "name": "R", "fields": fields}, b"\x02" + number)


def test_a_promise_of_many_items_ends_at_once():
    """Seven bytes that promise 2^40 items kept a reader busy for ever."""
    data = b"\x80\x80\x80\x80\x80\x80\x01"

    def read() -> None:
        assert "truncated" == refused({"type": "array", "items": "long"}, data)
        assert "truncated" == refused({"type": "map", "values": "null"}, data)

    assert is_within(1, read)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "contains itself",
        ),
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "Unknown"}]}, "not defined"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "a field twice"),
        (["null", ["int", "null"]], "holds a union"),
        ({"type": "fixed", "name": "F", "size": -1}, "no size"),
        ({"type": "record", "name": "R"}, "no fields"),
        (42, "not defined"),
    ],
)
def test_refuses_schemas(schema, why):
    """A schema that contains itself crashed the process that read by it."""
    with pytest.raises(Undecodable, match=why) as error:
        node(schema)
    assert "bad-schema" == error.value.code


def test_refuses_schemas_that_grow_when_written_out():
    """Forty types, each twice in the next, are a trillion fields of no bytes."""
    tree = [{"type": "record", "name": "R0", "fields": []}]
    tree += [
        {
            "type": "record",
            "name": f"R{i + 1}",
            "fields": [{"name": "a", "type": f"R{i}"}, {"name": "b", "type": f"R{i}"}],
        }
        for i in range(40)
    ]
    with pytest.raises(Undecodable, match="more than"):
        avro.load(json.dumps(tree), "R40")


def test_refuses_deep_schemas():
    """A schema nested a hundred thousand deep killed the interpreter."""
    with pytest.raises(Undecodable):
        avro.load('{"type":"array","items":' * 5000 + '"int"' + "}" * 5000)


def test_blocks_of_an_array():
    """Writers may send an array in several blocks, with or without their size in bytes."""
    schema = {"type": "array", "items": "long"}
    assert [1, 2, 3] == avro.read(node(schema), b"\x02\x02\x03\x04\x04\x06\x00")


def test_names_follow_their_namespace():
    """A short name inside a namespace is the namespace's type, not one of the same name outside."""
    schema = {
        "type": "record",
        "name": "a.Outer",
        "fields": [
            {"name": "x", "type": {"type": "enum", "name": "K", "symbols": ["IN"]}},
            {"name": "y", "type": "K"},
            {"name": "z", "type": "a.K"},
        ],
    }
    assert {"x": "IN", "y": "IN", "z": "IN"} == avro.read(node(schema), b"\x00\x00\x00")
