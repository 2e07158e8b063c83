"""Functions that read the values of one Avro schema (Avro specification 1.11, "Binary encoding"), written for it in Python.

A function is ``read(data, pos)``, which gives a value and the position after it. Each record, array and map has one; scalars
and unions are read where they are. Such a function knows its fields' names, types and choices, so it asks the schema
nothing while it reads: it takes less than half the time of a reader that walks through the schema.

Lengths are not compared with what is left: a slice that is too short leaves the position after the end, where the
next byte is an `IndexError`, and `avro.read_at` looks at the last position. A number in one byte, as lengths, choices and
small numbers are, is read in place, a longer one by `long`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ingest.errors import Undecodable

Read = Callable[[bytes, int], tuple[Any, int]]
WIDE = 256  # fields of a record that are read in place; those of a wider one by a loop, whose code is compiled faster
MANY = 32  # branches of a union, likewise: Python does not compile any number of choices


def reader(root: Any, named: Mapping[str, Any]) -> Read:
    """The function that reads a type of a schema that `avro.load` has checked; ``named`` are its types by full name."""
    source = _Source(named)
    name = source.function(root)
    exec(compile("\n".join(source.lines), "<Avro schema>", "exec"), source.scope)  # noqa: S102 - words of the schema are only in `repr`
    return source.scope[name]  # type: ignore[no-any-return]


class _Source:
    """The text of the functions, and what they use."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = dict(_HELPERS)
        self._named = named
        self._functions: dict[str, str] = {}  # by type

    def function(self, kind: Any) -> str:
        """The name of the function that reads a type."""
        resolved = self._resolved(kind)
        place = _name(resolved) or repr(kind)
        if place not in self._functions:
            name = self._functions[place] = f"read_{len(self._functions)}"
            body = list(self._body(resolved))  # first, because it writes the functions below
            self.lines += [f"def {name}(data, pos):", *(f"    {line}" for line in body)]
        return self._functions[place]

    def _resolved(self, kind: Any) -> Any:
        """A type as its object; a union as one that has the branches."""
        if isinstance(kind, list):
            return {"type": kind}
        return (self._named.get(kind) or {"type": kind}) if isinstance(kind, str) else kind

    def _body(self, kind: Mapping[str, Any]) -> Iterator[str]:
        match kind["type"]:
            case "record" | "error":
                yield from self._record(kind["fields"])
            case "array":
                yield from ("items = []", "append = items.append")
                yield from self._blocks([*self._value(kind["items"]), "append(value)"])
            case "map":
                yield "items = {}"
                yield from self._blocks(
                    [*_TEXT, "key = value", *self._value(kind["values"]), "items[key] = value"]
                )
            case _:
                yield from self._value(kind)
                yield "return value, pos"

    def _record(self, fields: list[Mapping[str, Any]]) -> Iterator[str]:
        if len(fields) > WIDE:
            names = f"fields_{len(self._functions)}"
            pairs = [f"({field['name']!r}, {self.function(field['type'])})" for field in fields]
            self.lines.append(f"{names} = ({', '.join(pairs)})")
            yield from (
                "record = {}",
                f"for name, read in {names}:",
                "    record[name], pos = read(data, pos)",
            )
            yield "return record, pos"
            return
        for number, field in enumerate(fields):
            yield from self._value(field["type"], f"value_{number}")
        members = (f"{field['name']!r}: value_{number}" for number, field in enumerate(fields))
        yield f"return {{{', '.join(members)}}}, pos"

    @staticmethod
    def _blocks(item: list[str]) -> Iterator[str]:
        yield "while True:"
        yield from (
            f"    {line}" for line in (*_BYTE, "if byte & 129:", "    byte, pos = count(data, pos - 1)")
        )
        yield from ("    else:", "        byte >>= 1", "    if not byte:", "        return items, pos")
        yield "    for _ in range(byte):"
        yield from (f"        {line}" for line in item)

    def _value(self, kind: Any, target: str = "value") -> Iterator[str]:
        """The lines that read a type's value into a variable."""
        resolved = self._resolved(kind)
        of_type = resolved["type"]
        if isinstance(of_type, list):
            yield from self._union(of_type, target)
        elif of_type == "enum":
            symbols = repr(tuple(map(str, resolved["symbols"])))
            yield f"{target}, pos = symbol(data, pos, {symbols})"
        elif of_type == "fixed":
            yield from (f"end = pos + {int(resolved['size'])}", f"{target} = data[pos:end]", "pos = end")
        elif of_type in _SCALARS:
            yield from (line.replace("value", target) for line in _SCALARS[of_type])
        else:
            yield f"{target}, pos = {self.function(kind)}(data, pos)"

    def _union(self, branches: list[Any], target: str) -> Iterator[str]:
        named = [_name(self._resolved(branch)) for branch in branches]
        names = named if sum(map(bool, named)) > 1 else [""] * len(named)
        yield from (*_BYTE, "if byte > 127:", "    byte, pos = choice(data, pos - 1)")
        if len(branches) > MANY:
            readers = ", ".join(
                f"({name!r}, {self.function(branch)})" for branch, name in zip(branches, names, strict=True)
            )
            yield from (f"name, read = branch(byte, ({readers}))", f"{target}, pos = read(data, pos)")
            yield from ("if name:", f"    {target} = (name, {target})")
            return
        for index, (branch, name) in enumerate(zip(branches, names, strict=True)):
            yield f"{'elif' if index else 'if'} byte == {2 * index}:"
            yield from (f"    {line}" for line in self._value(branch, target))
            if name:
                yield f"    {target} = ({name!r}, {target})"
        yield from ("else:", "    raise no_choice(byte)")


def _name(kind: Mapping[str, Any]) -> str:
    """A named type's full name; empty for other types."""
    return str(kind["name"]) if kind["type"] in ("record", "error", "enum", "fixed") else ""


_BYTE = ("byte = data[pos]", "pos += 1")
_END = ("if byte & 129:", "    byte, pos = length(data, pos - 1)", "    end = pos + byte", "else:")
_LENGTH = (*_BYTE, *_END, "    end = pos + (byte >> 1)")
_TEXT = (*_LENGTH, "value = data[pos:end].decode()", "pos = end")


def _number(longer: str) -> tuple[str, ...]:
    in_place = ("elif byte & 1:", "    value = ~(byte >> 1)", "else:", "    value = byte >> 1")
    return (*_BYTE, "if byte > 127:", f"    value, pos = {longer}(data, pos - 1)", *in_place)


_SCALARS = {
    "null": ("value = None",),
    "boolean": (*_BYTE, "if byte > 1:", "    raise no_boolean()", "value = byte == 1"),
    "int": _number("int_"),
    "long": _number("long"),
    "float": ("value = float_(data, pos)[0]", "pos += 4"),
    "double": ("value = double(data, pos)[0]", "pos += 8"),
    "bytes": (*_LENGTH, "value = data[pos:end]", "pos = end"),
    "string": _TEXT,
}


# --- what the functions call --------------------------------------------------------------------


def long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes and 64 bits, and the position after it."""
    byte = data[pos]
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


def _choice(data: bytes, pos: int) -> tuple[int, int]:
    """Twice the number of a union's branch, as one byte has it."""
    index, pos = long(data, pos)
    return 2 * index, pos


def _symbol(data: bytes, pos: int, symbols: tuple[str, ...]) -> tuple[str, int]:
    index, pos = long(data, pos)
    if not 0 <= index < len(symbols):
        raise _no_choice(2 * index)
    return symbols[index], pos


def _branch(doubled: int, branches: tuple[tuple[str, Read], ...]) -> tuple[str, Read]:
    if doubled & 1 or not 0 <= doubled >> 1 < len(branches):
        raise _no_choice(doubled)
    return branches[doubled >> 1]


def _no_choice(doubled: int) -> Undecodable:
    return _unreadable(f"there is no choice {-(doubled + 1 >> 1) if doubled & 1 else doubled >> 1}")


def _no_boolean() -> Undecodable:
    return _unreadable("a boolean is not one byte that is 0 or 1")


def _unreadable(why: str) -> Undecodable:
    return Undecodable("bad-avro", f"the Avro datum cannot be read: {why}")


_HELPERS = {
    "long": long,
    "int_": _int,
    "length": _length,
    "count": _count,
    "choice": _choice,
    "symbol": _symbol,
    "branch": _branch,
    "no_choice": _no_choice,
    "no_boolean": _no_boolean,
    "float_": struct.Struct("<f").unpack_from,
    "double": struct.Struct("<d").unpack_from,
}
