"""Readers of Avro's binary encoding (Avro specification, "Binary Encoding"), one per type.

A reader takes the bytes and a position and returns a value and the position after it.  Readers of
composed types are made once from those below them.  Every number is in range, every index inside its
list, every text UTF-8; reading past the end raises `IndexError` or `struct.error`, which
`ingest.decoding.avro` names.

Short texts, numbers of one byte and nulls, which most values are, are read inside the loop of their
record: a call for each would cost more than the reading.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ingest.errors import Undecodable

Read = Callable[[bytes, int], tuple[Any, int]]

SMALL = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
"""The numbers that take one byte, by that byte (zigzag: 0, -1, 1, -2 ...)."""


# --- primitive values ---------------------------------------------------------------------------


def long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes that fits 64 bits."""
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return SMALL[byte], pos
    number, shift = byte & 0x7F, 7
    byte = data[pos]
    if byte < 0x80:  # two bytes: years, lengths
        number |= byte << 7
        return (number >> 1) ^ -(number & 1), pos + 1
    while True:
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Undecodable("bad-avro", "a varint is longer than ten bytes")
    if number >> 64:
        raise Undecodable("bad-avro", "a varint does not fit 64 bits")
    return (number >> 1) ^ -(number & 1), pos


def int_(data: bytes, pos: int) -> tuple[int, int]:
    """A varint that fits 32 bits."""
    number, pos = long(data, pos)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise Undecodable("bad-avro", f"{number} does not fit an int")
    return number, pos


def bytes_(data: bytes, pos: int) -> tuple[bytes, int]:
    """A length and as many bytes."""
    size, pos = long(data, pos)
    end = pos + size
    if size < 0:
        raise Undecodable("bad-avro", f"a length of {size} bytes")
    if end > len(data):
        raise truncated()
    return data[pos:end], end


def string(data: bytes, pos: int) -> tuple[str, int]:
    """A length and as many bytes of UTF-8."""
    value, end = bytes_(data, pos)
    return value.decode(), end


def null(_data: bytes, pos: int) -> tuple[None, int]:
    """Nothing, in no bytes."""
    return None, pos


def boolean(data: bytes, pos: int) -> tuple[bool, int]:
    """One byte, 0 or 1."""
    byte = data[pos]
    if byte > 1:
        raise Undecodable("bad-avro", f"{byte} is no boolean")
    return byte == 1, pos + 1


def float_(data: bytes, pos: int) -> tuple[float, int]:
    """Four bytes."""
    return _FLOAT.unpack_from(data, pos)[0], pos + 4


def double(data: bytes, pos: int) -> tuple[float, int]:
    """Eight bytes."""
    return _DOUBLE.unpack_from(data, pos)[0], pos + 8


_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


# --- composed values ----------------------------------------------------------------------------


def enum(name: str, symbols: Sequence[str]) -> Read:
    """The reader of an index into a list of symbols."""

    def read(data: bytes, pos: int) -> tuple[str, int]:
        index, pos = long(data, pos)
        if not 0 <= index < len(symbols):
            raise Undecodable("bad-avro", f"{name} has no symbol {index}")
        return symbols[index], pos

    return read


def fixed(width: int) -> Read:
    """The reader of so many bytes."""

    def read(data: bytes, pos: int) -> tuple[bytes, int]:
        end = pos + width
        if end > len(data):
            raise truncated()
        return data[pos:end], end

    return read


_ANY, _TEXT, _NUMBER, _MAYBE_NUMBER, _MAYBE = range(5)


def record(fields: Sequence[tuple[str, Read, Sequence[Read]]]) -> Read:
    """The reader of a record as a dict of its fields: name, reader, and a union's readers."""
    plan = tuple((name, _way(inner, branches), inner) for name, inner, branches in fields)

    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for name, way, inner in plan:
            if way:
                byte = data[pos]
                if way == _TEXT:
                    end = pos + 1 + (byte >> 1)
                    if byte < 0x80 and not byte & 1 and end <= len(data):
                        found[name] = data[pos + 1 : end].decode()
                        pos = end
                        continue
                elif way == _NUMBER:
                    if byte < 0x80:
                        found[name] = SMALL[byte]
                        pos += 1
                        continue
                elif byte == 0:
                    found[name] = None
                    pos += 1
                    continue
                elif way == _MAYBE_NUMBER and byte == 2 and (byte := data[pos + 1]) < 0x80:
                    found[name] = SMALL[byte]
                    pos += 2
                    continue
            found[name], pos = inner(data, pos)
        return found, pos

    return read


def _way(read: Read, branches: Sequence[Read]) -> int:
    """How a record's loop may read a field by itself before it asks the field's own reader."""
    if read is string:
        return _TEXT
    if read in (long, int_):
        return _NUMBER
    if not branches or branches[0] is not null:
        return _ANY
    return _MAYBE_NUMBER if len(branches) == 2 and branches[1] in (long, int_) else _MAYBE


def optional(branches: Sequence[Read]) -> Read:
    """The reader of a union in which at most one type is not null: None or the value."""
    reads = tuple(branches)
    end = 2 * len(reads)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        byte = data[pos]  # zigzag: an index below 64 is one byte, and even
        if byte & 0x81 or byte >= end:
            raise _bad_index(len(reads))
        return reads[byte >> 1](data, pos + 1)

    return read


def tagged(branches: Sequence[tuple[str, Read]]) -> Read:
    """The reader of a union of several types: None or ``(branch, value)``."""
    reads = tuple((name, None if inner is null else inner) for name, inner in branches)
    end = 2 * len(reads)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        byte = data[pos]
        if byte & 0x81 or byte >= end:
            raise _bad_index(len(reads))
        name, inner = reads[byte >> 1]
        if inner is None:
            return None, pos + 1
        value, pos = inner(data, pos + 1)
        return (name, value), pos

    return read


def array(inner: Read) -> Read:
    """The reader of an array, in one block or several."""

    def read(data: bytes, pos: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, pos = _block(data, pos)
            if not count:
                return found, pos
            for _ in range(count):
                value, pos = inner(data, pos)
                found.append(value)

    return read


def map_(inner: Read) -> Read:
    """The reader of a map; a name that occurs twice is refused."""

    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, pos = _block(data, pos)
            if not count:
                return found, pos
            for _ in range(count):
                name, pos = string(data, pos)
                if name in found:
                    raise Undecodable("duplicate-key", f"the name {name[:80]!r} occurs twice in one map")
                found[name], pos = inner(data, pos)

    return read


def _block(data: bytes, pos: int) -> tuple[int, int]:
    """The count of the next block; a negative one is followed by the block's size in bytes."""
    count, pos = long(data, pos)
    if count < 0:
        size, pos = long(data, pos)
        count = -count
        if not 0 <= size <= len(data) - pos:
            raise truncated()
    if count > len(data) - pos:  # every item takes at least a byte
        raise truncated()
    return count, pos


# --- values that come again and again -------------------------------------------------------------

_HEAD = 48  # bytes by which a value seen before is looked for
_LONGEST = 1 << 16
_MOST = 512  # so that no more than 32 MiB are kept


def seen_before(inner: Read, made: Callable[[Any], Any]) -> Read:
    """A reader that knows values again by their bytes, such as the columns beside every row of a table.

    Avro's bytes tell their own end, so bytes that begin as those of a value read before are that value.
    Of each value is returned what ``made`` makes of it, once: nobody may change it.
    """
    known: dict[bytes, tuple[bytes, Any]] = {}

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        head = data[pos : pos + _HEAD]
        found = known.get(head)
        if found is not None and data.startswith(found[0], pos):
            return found[1], pos + len(found[0])
        value, end = inner(data, pos)
        value = made(value)
        if end - pos <= _LONGEST:
            if len(known) >= _MOST:
                known.clear()
            known[head] = data[pos:end], value
        return value, end

    return read


def truncated() -> Undecodable:
    """What is raised where the bytes end too early."""
    return Undecodable("truncated", "the Avro datum ends before its last value")


def _bad_index(branches: int) -> Undecodable:
    return Undecodable("bad-avro", f"a union of {branches} types has no type of the index given")
