"""Protobuf's wire format (protobuf.dev, "Encoding"): the fields of one message, read without its schema.

A field is a number and a value: an integer where it is a varint or of fixed width, else its bytes. A format knows
from its vendor's ``.proto`` what a number means and asks for it by `number_of`, `signed` or `text_of`; what it does not ask
for is skipped. Every length is compared with what is left before it is believed, nothing recurses, and a message that
does not end with its last field is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingest.errors import Undecodable

Value = int | bytes
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_WORD = 1 << 64


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message in their order, each as its number and its value.

    `Undecodable`: ``truncated`` or ``bad-protobuf``.
    """
    place, end = 0, len(data)
    while place < end:
        tag = data[place]
        place += 1
        if tag > 0x7F:
            tag, place = _varint(data, place - 1)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Undecodable("bad-protobuf", f"byte {place - 1} begins a field with the number 0")
        if kind == BYTES:
            if place < end and data[place] < 0x80:
                size, place = data[place], place + 1
            else:
                size, place = _varint(data, place)
            if size > end - place:
                raise Undecodable(
                    "truncated", f"field {number} is to have {size} bytes, {end - place} are left"
                )
            yield number, data[place : place + size]
            place += size
        elif kind == VARINT:
            value, place = _varint(data, place)
            yield number, value
        elif kind in _FIXED:
            size = _FIXED[kind]
            if size > end - place:
                raise Undecodable(
                    "truncated", f"field {number} is to have {size} bytes, {end - place} are left"
                )
            yield number, int.from_bytes(data[place : place + size], "little")
            place += size
        else:
            raise Undecodable("bad-protobuf", f"field {number} is of the unknown kind {kind}")


def repeated(data: bytes, names: Mapping[int, str]) -> dict[int, list[bytes]]:
    """The bytes of all fields with some numbers, whose ``names`` are for errors; other fields are skipped."""
    parts: dict[int, list[bytes]] = {number: [] for number in names}
    for number, value in fields(data):
        if number in parts:
            parts[number].append(bytes_of(value, names[number]))
    return parts


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits, and the position after it."""
    value = shift = 0
    for byte in data[place : place + 10]:
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            if value >= _WORD:
                break
            return value, place
        shift += 7
    if shift < 70 and value < _WORD:
        raise Undecodable("truncated", "the message ends inside a number")
    raise Undecodable("bad-protobuf", "a number has more than 64 bits")


def signed(value: Value, name: str) -> int:
    """An ``int32`` or ``int64``, which are sent as 64 bits in two's complement."""
    number = number_of(value, name)
    return number - _WORD if number >= _WORD >> 1 else number


def number_of(value: Value, name: str) -> int:
    """An unsigned number, a truth value or the number of an enum's word."""
    if isinstance(value, int):
        return value
    raise Undecodable("bad-protobuf", f"{name} is no number: the message is of another type")


def bytes_of(value: Value, name: str) -> bytes:
    """The bytes of a ``bytes`` field or of a message inside the message."""
    if isinstance(value, bytes):
        return value
    raise Undecodable("bad-protobuf", f"{name} is a number: the message is of another type")


def text_of(value: Value, name: str) -> str:
    """A ``string``, which is UTF-8."""
    try:
        return bytes_of(value, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Undecodable("bad-utf8", f"byte {error.start} of {name} is not UTF-8") from None
