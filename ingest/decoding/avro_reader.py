"""Functions that read the values of one Avro schema (Avro specification 1.11, "Binary encoding").

A function is ``read(data, pos)``, which gives a value and the position after it. `reader` puts one together for a schema, once: it
asks the schema nothing while it reads, so it takes about half the time of a reader that walks through the schema.

Lengths are not compared with what is left: a slice that is too short leaves the position after the end, where the
next byte is an `IndexError`, and `avro.read_at` looks at the last position. A number in one byte, as lengths, choices and
small numbers are, is read in place, a longer one by `long`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ingest.errors import Undecodable

Read = Callable[[bytes, int], tuple[Any, int]]


def reader(root: Any, resolved: Callable[[Any], Any]) -> Read:
    """The function that reads a type of a schema that `avro.load` has checked; ``resolved`` gives a type as its object."""
    return _Readers(resolved).of(root)


class _Readers:
    """The functions of a schema's types; a named type has one, however often it comes."""

    def __init__(self, resolved: Callable[[Any], Any]) -> None:
        self._resolved = resolved
        self._by_name: dict[str, Read] = {}

    def of(self, kind: Any) -> Read:
        """The function that reads a type."""
        if isinstance(kind, list):
            return _union([(self.of(branch), self._name(branch)) for branch in kind])
        resolved = self._resolved(kind)
        if not (name := self._name(kind)):
            return self._made(resolved)
        if name not in self._by_name:
            self._by_name[name] = self._made(resolved)
        return self._by_name[name]

    def _name(self, kind: Any) -> str:
        """A named type's full name; empty for other types that are no union."""
        resolved = self._resolved(kind)
        return str(resolved["name"]) if resolved["type"] in ("record", "error", "enum", "fixed") else ""

    def _made(self, kind: Mapping[str, Any]) -> Read:
        match kind["type"]:
            case "record" | "error":
                return _record([self._field(field) for field in kind["fields"]])
            case "array":
                return _array(self.of(kind["items"]))
            case "map":
                return _map(self.of(kind["values"]))
            case "enum":
                return _enum(tuple(map(str, kind["symbols"])))
            case "fixed":
                return _fixed(int(kind["size"]))
            case scalar:
                return _SCALARS[scalar]

    def _field(self, field: Mapping[str, Any]) -> _Field:
        kind = field["type"]
        whole = value = self.of(kind)
        is_optional = isinstance(kind, list) and len(kind) == 2 and self.of(kind[0]) is _null
        if is_optional:
            value = self.of(kind[1])
        return _Field(field["name"], is_optional, value is _text, value, whole)


class _Field(NamedTuple):
    """How a record's field is read: ``value`` reads it where it is there, ``whole`` with the choice before it."""

    name: str
    is_optional: bool  # a union of null and one other type
    is_text: bool
    value: Read
    whole: Read


def _record(fields: Sequence[_Field]) -> Read:
    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        record: dict[str, Any] = {}
        for name, is_optional, is_text, value, whole in fields:
            if is_optional:
                byte = data[pos]
                if not byte:
                    record[name] = None
                    pos += 1
                    continue
                if byte != 2:
                    record[name], pos = whole(data, pos)
                    continue
                pos += 1
            if is_text:  # in place, because most fields are texts
                byte = data[pos]
                pos += 1
                if byte & 0x81:
                    byte, pos = _length(data, pos - 1)
                    end = pos + byte
                else:
                    end = pos + (byte >> 1)
                record[name] = data[pos:end].decode()
                pos = end
            else:
                record[name], pos = value(data, pos)
        return record, pos

    return read


def _union(branches: Sequence[tuple[Read, str]]) -> Read:
    """A value of one of several named types comes with the name of its type."""
    has_names = sum(bool(name) for _, name in branches) > 1
    named = [(read, name if has_names else "") for read, name in branches]
    of_byte = {2 * index: branch for index, branch in enumerate(named[:64])}

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        choice = of_byte.get(data[pos])
        if choice:
            pos += 1
        else:
            index, pos = long(data, pos)
            if not 0 <= index < len(named):
                raise _no_choice(index)
            choice = named[index]
        branch, name = choice
        if not name:
            return branch(data, pos)
        value, pos = branch(data, pos)
        return (name, value), pos

    return read


def _array(item: Read) -> Read:
    def read(data: bytes, pos: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            byte = data[pos]
            if not byte:
                return items, pos + 1
            count, pos = _count(data, pos) if byte & 0x81 else (byte >> 1, pos + 1)
            if not count:
                return items, pos
            for _ in range(count):
                value, pos = item(data, pos)
                items.append(value)

    return read


def _map(of_value: Read) -> Read:
    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while True:
            count, pos = _count(data, pos)
            if not count:
                return items, pos
            for _ in range(count):
                key, pos = _text(data, pos)
                items[key], pos = of_value(data, pos)

    return read


def _enum(symbols: Sequence[str]) -> Read:
    def read(data: bytes, pos: int) -> tuple[str, int]:
        index, pos = long(data, pos)
        if not 0 <= index < len(symbols):
            raise _no_choice(index)
        return symbols[index], pos

    return read


def _fixed(size: int) -> Read:
    return lambda data, pos: (data[pos : pos + size], pos + size)


# --- scalars ------------------------------------------------------------------------------------


def long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes and 64 bits, and the position after it."""
    byte = data[pos]
    if byte < 0x80:
        return (~(byte >> 1) if byte & 1 else byte >> 1), pos + 1
    number, shift = byte & 0x7F, 7
    while byte > 0x7F and shift < 70:
        pos += 1
        byte = data[pos]
        number |= (byte & 0x7F) << shift
        shift += 7
    if shift == 70 and (byte > 0x7F or number >> 64):
        raise Undecodable("bad-avro", "a number does not fit 64 bits")
    return (number >> 1) ^ -(number & 1), pos + 1


def _int(data: bytes, pos: int) -> tuple[int, int]:
    value, pos = long(data, pos)
    if not -(1 << 31) <= value < 1 << 31:
        raise _unreadable(f"{value} does not fit the 32 bits of an int")
    return value, pos


def _null(_data: bytes, pos: int) -> tuple[None, int]:
    return None, pos


def _boolean(data: bytes, pos: int) -> tuple[bool, int]:
    byte = data[pos]
    if byte > 1:
        raise _unreadable("a boolean is not one byte that is 0 or 1")
    return byte == 1, pos + 1


def _text(data: bytes, pos: int) -> tuple[str, int]:
    byte = data[pos]
    if byte & 0x81:
        byte, pos = _length(data, pos)
        end = pos + byte
    else:
        pos += 1
        end = pos + (byte >> 1)
    return data[pos:end].decode(), end


def _bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = _length(data, pos)
    return data[pos : pos + size], pos + size


def _float(data: bytes, pos: int) -> tuple[float, int]:
    return _FLOAT(data, pos)[0], pos + 4


def _double(data: bytes, pos: int) -> tuple[float, int]:
    return _DOUBLE(data, pos)[0], pos + 8


_FLOAT, _DOUBLE = struct.Struct("<f").unpack_from, struct.Struct("<d").unpack_from
_SCALARS: Mapping[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _text,
}


def _length(data: bytes, pos: int) -> tuple[int, int]:
    size, pos = long(data, pos)
    if not 0 <= size <= len(data) - pos:
        raise IndexError
    return size, pos


def _count(data: bytes, pos: int) -> tuple[int, int]:
    """The number of items of a block; after a negative one is the block's size in bytes. Each item takes a byte at least."""
    count, pos = long(data, pos)
    if count < 0:
        count, pos = -count, long(data, pos)[1]
    if count > len(data) - pos:
        raise IndexError
    return count, pos


def _no_choice(index: int) -> Undecodable:
    return _unreadable(f"there is no choice {index}")


def _unreadable(why: str) -> Undecodable:
    return Undecodable("bad-avro", f"the Avro datum cannot be read: {why}")
