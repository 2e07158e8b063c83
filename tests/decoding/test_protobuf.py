"""Protobuf by tables of fields: what is read, and what is refused instead of being read wrongly."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.decoding import protobuf
from ingest.errors import Undecodable
from ingest.formats import tencent_protobuf
from tests.formats.protobuf_cases import TENCENT, varint, written

EXAMPLE = protobuf.MessageTypes(
    "example.proto",
    {
        "Whole": {
            1: "int64 offset",
            2: "int64 kind",
            3: "string name",
            4: "repeated Part parts",
            6: "bytes content",
        },
        "Part": {1: "uint64 number"},
    },
)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)])
def test_numbers_of_up_to_64_bits_are_exact(number):
    """A negative offset or a large server id would become another number."""
    assert number == EXAMPLE.read("Whole", varint(1 << 3) + varint(number)).offset


def test_every_kind_of_field_is_read_or_stepped_over():
    """A field that a newer writer adds would shift all fields after it."""
    unknown = b"\x39" + b"\x01" + bytes(7) + b"\x45" + b"\x02" + bytes(3) + b"\x4a\x03xyz" + b"\x50\x96\x01"
    whole = EXAMPLE.read("Whole", unknown + b"\x1a\x03abc" + b"\x22\x02\x08\x07\x22\x00" + b"\x08\x96\x01")
    assert (150, "abc", [7, 0]) == (whole.offset, whole.name, [part.number for part in whole.parts])


def test_a_zero_that_is_sent_differs_from_none():
    """An entry of type 0 would pass for one whose type is left out, which is a row."""
    assert EXAMPLE.read("Whole", b"\x10\x00").HasField("kind")
    assert not EXAMPLE.read("Whole", b"").HasField("kind")


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x01\x07",
        b"\x18\x07",
        b"\x1d\x02abc",
        b"\x09" + bytes(8),
        b"\x22\x03\x0a\x01\x07",
        b"\x22\x02\x08\x07\x22\x05\x0d" + bytes(4),
        b"\x20\x07",
    ],
)
def test_a_value_of_another_kind_is_refused(data):
    """By a damaged tag a text is taken for unknown, and the row's column would be empty."""
    with pytest.raises(Undecodable, match=r"no Whole of example\.proto.*of another type"):
        EXAMPLE.read("Whole", data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x1a\x05abc",
        b"\x1a",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x08",
        b"\x08\x80\x80",
        b"\x39\x01\x02",
        b"\x45\x01",
        b"\x08" + b"\x80" * 10 + b"\x00",
        b"\x00\x01",
        b"\x0b" * 1000 + b"\x0c" * 1000,
        b"\x0e",
        b"\x22\x02\x08",
        b"\x1a\x01\xff",
    ],
)
def test_what_is_cut_or_too_long_or_no_text_is_refused(data):
    """A length that is believed reads past the message, or reserves what an attacker asks for."""
    with pytest.raises(Undecodable, match=r"no Whole of example\.proto") as refused:
        EXAMPLE.read("Whole", data)
    assert "bad-protobuf" == refused.value.code


_FIELDS = st.lists(
    st.tuples(
        st.sampled_from([*range(1, 8), 300]),  # of the table, and others
        st.sampled_from([0, 1, 2, 5]),
        st.integers(-(2**63), 2**64 - 1) | st.integers(0, 3),
        st.binary(max_size=6) | st.sampled_from([b"\x08\x07", b"\x0a\x00", b"\x10\x01", "ä".encode()]),
    ),
    max_size=5,
)


@given(_FIELDS)
def test_a_message_that_is_read_at_once_has_no_field_of_another_kind(fields):
    """By a shorter way to look for them a damaged tag would pass, and the row's column would be empty."""
    data = b"".join(_field(*field) for field in fields)
    try:
        message = EXAMPLE._parsers["Whole"](data)
        is_read = not EXAMPLE._is_foreign("Whole", [message])
    except Exception:
        is_read = False
    if not is_read:
        with pytest.raises(Undecodable):
            EXAMPLE.read("Whole", data)
        return
    read = EXAMPLE.read("Whole", data)
    for name in ("offset", "kind", "name", "content"):
        assert (getattr(message, name), message.HasField(name)) == (getattr(read, name), read.HasField(name))
    assert [part.number for part in message.parts] == [part.number for part in read.parts]


def _field(number: int, wire: int, count: int, content: bytes) -> bytes:
    tag = varint(number << 3 | wire)
    if wire == 0:
        return tag + varint(count)
    return tag + (varint(len(content)) + content if wire == 2 else bytes(8 if wire == 1 else 4))


@given(
    st.integers(0, 200),
    st.sampled_from(["", "utf8mb4", "latin1"]),
    st.text(max_size=4) | st.just("7" * 130),
    st.binary(max_size=4) | st.sampled_from([b"x" * 113, b"x" * 114, b"x" * 130]),
    st.none() | st.tuples(st.integers(0, 15), st.binary(max_size=1)),
    st.none() | st.integers(0, 15),
)
@example(13, "utf8mb4", "", b"word", None, 12)
def test_a_value_is_the_same_by_the_short_way(kind, charset, number, content, damage, length):
    """By a wrong look at its first bytes a value would be cut, or a damaged one taken for a number, or end the run."""
    members = {"dataType": kind, "charset": charset, "sv": number, "bv": {"$hex": content.hex()}}
    data = written(TENCENT, "Data", {name: value for name, value in members.items() if value})
    if damage and damage[0] < len(data):
        data = data[: damage[0]] + damage[1] + data[damage[0] + 1 :]
    data = data[:length]
    short = tencent_protobuf._short_value(data)
    if short is not None:
        value = tencent_protobuf.SUBSCRIBE.read("Data", data)
        assert short == (value.dataType, value.charset, value.sv, value.bv)


@pytest.mark.parametrize(
    ("members", "is_short"),
    [
        ({"dataType": 3, "sv": "7"}, True),
        ({"dataType": 3, "sv": "7" * 123}, True),
        ({"dataType": 3, "sv": "7" * 124}, False),
        ({"dataType": 13, "charset": "utf8mb4", "bv": "ä"}, True),
        ({"dataType": 13, "charset": "utf8mb4", "bv": "x" * 114}, True),
        ({"dataType": 13, "charset": "utf8mb4", "bv": "x" * 115}, False),
        ({"dataType": 13, "charset": "latin1", "bv": "x"}, False),
    ],
)
def test_numbers_and_texts_are_read_by_the_short_way(members, is_short):
    """If no value went this way, reading would take longer, and nothing would show it."""
    assert is_short == (tencent_protobuf._short_value(written(TENCENT, "Data", members)) is not None)
