"""Protobuf by tables of fields: what is read, and what is refused instead of being read wrongly."""

from __future__ import annotations

import pytest

from ingest.decoding import protobuf
from ingest.errors import Undecodable
from tests.formats.protobuf_cases import varint

EXAMPLE = protobuf.MessageTypes(
    "example.proto",
    {
        "Whole": {
            1: "int64 offset",
            2: "optional int64 kind",
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
