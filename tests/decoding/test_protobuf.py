"""Protobuf's wire format: what is read, and what is refused instead of being read wrongly."""

from __future__ import annotations

import pytest

from ingest.decoding import protobuf
from ingest.errors import Undecodable
from tests.formats.protobuf_cases import varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)])
def test_numbers_of_up_to_64_bits_are_exact(number):
    """A negative offset or a large server id would become another number."""
    [(field, value)] = protobuf.fields(varint(3 << 3) + varint(number))
    assert (3, number) == (field, protobuf.signed(value, "offset"))


def test_every_kind_of_field_is_read_or_stepped_over():
    """A field that a newer writer adds would shift all fields after it."""
    data = b"\x09" + b"\x01" + bytes(7) + b"\x15" + b"\x02" + bytes(3) + b"\x1a\x03abc" + b"\x20\x96\x01"
    assert [(1, 1), (2, 2), (3, b"abc"), (4, 150)] == list(protobuf.fields(data))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x1a\x05abc", "truncated"),
        (b"\x1a", "truncated"),
        (b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "truncated"),
        (b"\x08", "truncated"),
        (b"\x08\x80\x80", "truncated"),
        (b"\x09\x01\x02", "truncated"),
        (b"\x15\x01", "truncated"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "bad-protobuf"),
        (b"\x08" + b"\x80" * 10 + b"\x00", "bad-protobuf"),
        (b"\x00\x01", "bad-protobuf"),
        (b"\x0b\x0c", "bad-protobuf"),
        (b"\x0e", "bad-protobuf"),
    ],
)
def test_what_is_cut_or_too_long_is_refused(data, code):
    """A length that is believed reads past the message, or reserves what an attacker asks for."""
    with pytest.raises(Undecodable) as refused:
        list(protobuf.fields(data))
    assert code == refused.value.code


def test_a_value_of_another_kind_is_refused():
    """A message of another type has the same numbers: its values would pass for ours."""
    for read, value in ((protobuf.number_of, b"7"), (protobuf.text_of, 7), (protobuf.bytes_of, 7)):
        with pytest.raises(Undecodable, match="of another type"):
            read(value, "a value")
    with pytest.raises(Undecodable, match="not UTF-8"):
        protobuf.text_of(b"\xff", "a value")
