"""Exact reading of bare Avro binary (Avro 1.11 specification, "Binary Encoding").

A schema is compiled once into nested functions and then reads any number of datums.  Why not the
common library: it accepts what must be refused (FORMATS.md section 12.13; a varint of 12 bytes as a
wrong number, a union or enum index of -1, bytes left over) and dies or never ends on some inputs
(RELIABILITY.md section 3.3).  Here

- a schema that contains itself is refused when it is loaded, so reading cannot run away in depth;
- an array of items that take no bytes is refused likewise, so a count cannot promise work for ever;
- every number is in range, every index inside its list, every text UTF-8, every byte consumed.

A union of null and one other type gives None or the value; a union with more branches gives None or
``(branch, value)``, so that two records of the same shape stay apart.  Logical types are not
interpreted: a decimal is its bytes, a date its day number.  Aliases and defaults have no part in
reading with the writer's own schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ingest.errors import Undecodable
from ingest.values import strict

Read = Callable[[bytes, int], tuple[Any, int]]

MAX_NODES = 100_000  # nodes of a schema with every named type written out; a wide table has 10,000
MAX_NESTING = 64
MAX_BRANCHES = 64  # so that every index is one byte


@dataclass(frozen=True, slots=True)
class Node:
    """One type of a compiled schema.

    ``props`` is the JSON object it was written as (empty for a bare name), ``least`` the fewest bytes
    that a value can take, ``nodes`` the count of types below it with every name written out.
    """

    type: str
    read: Read
    name: str = ""
    props: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[tuple[str, Node, Mapping[str, Any]], ...] = ()
    branches: tuple[Node, ...] = ()
    items: Node | None = None
    least: int = 0
    nodes: int = 1


def load(text: str | bytes, name: str | None = None) -> Node:
    """Compile a schema's JSON text; ``name`` picks the type to read from a list of named types.

    Raises:
        Undecodable: ``bad-schema``, with what is wrong.
    """
    try:
        tree = strict(text.encode() if isinstance(text, str) else text)
    except Undecodable as error:
        raise _bad_schema(error.detail) from None
    named: dict[str, Node] = {}
    if name is None:
        return _node(tree, "", named, 0)
    for entry in tree:
        found = _node(entry, "", named, 0)
        if found.name == name:
            return found
    raise _bad_schema(f"no type {name} in it")


@cache
def bundled(file: str, name: str | None = None) -> Node:
    """A vendor's fixed schema from ``avro_schemas``, compiled once."""
    return load((resources.files("ingest.decoding") / "avro_schemas" / f"{file}.avsc").read_bytes(), name)


def read(node: Node, data: bytes) -> Any:
    """One datum that fills ``data`` to its last byte.

    Raises:
        Undecodable: ``truncated``, ``trailing-bytes``, ``bad-avro`` or ``bad-utf8``.
    """
    value, end = read_at(node, data, 0)
    if end != len(data):
        raise Undecodable("trailing-bytes", f"{len(data) - end} bytes are left after the datum")
    return value


def read_at(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    """One datum from ``pos`` on, and the position after it."""
    try:
        return node.read(data, pos)
    except (IndexError, struct.error):
        raise _truncated() from None
    except UnicodeDecodeError as error:
        raise Undecodable("bad-utf8", f"an Avro string holds byte {error.object[error.start]:#04x}") from None


# --- primitive values ---------------------------------------------------------------------------


def long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes that fits 64 bits."""
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    number, shift = byte & 0x7F, 7
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


def _int(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    number, pos = long(data, pos)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise Undecodable("bad-avro", f"{number} does not fit an int")
    return number, pos


def _bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = long(data, pos)
    end = pos + size
    if size < 0:
        raise Undecodable("bad-avro", f"a length of {size} bytes")
    if end > len(data):
        raise _truncated()
    return data[pos:end], end


def _string(data: bytes, pos: int) -> tuple[str, int]:
    size = data[pos]
    if size < 0x80 and not size & 1:  # the common short text, without a second call
        pos += 1
        end = pos + (size >> 1)
        if end > len(data):
            raise _truncated()
        return data[pos:end].decode(), end
    value, end = _bytes(data, pos)
    return value.decode(), end


def _null(_data: bytes, pos: int) -> tuple[None, int]:
    return None, pos


def _boolean(data: bytes, pos: int) -> tuple[bool, int]:
    byte = data[pos]
    if byte > 1:
        raise Undecodable("bad-avro", f"{byte} is no boolean")
    return byte == 1, pos + 1


def _float(data: bytes, pos: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, pos)[0], pos + 4


def _double(data: bytes, pos: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, pos)[0], pos + 8


_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")

PRIMITIVES: dict[str, Node] = {
    "null": Node("null", _null, "null"),
    "boolean": Node("boolean", _boolean, "boolean", least=1),
    "int": Node("int", _int, "int", least=1),
    "long": Node("long", long, "long", least=1),
    "float": Node("float", _float, "float", least=4),
    "double": Node("double", _double, "double", least=8),
    "bytes": Node("bytes", _bytes, "bytes", least=1),
    "string": Node("string", _string, "string", least=1),
}


# --- schemas ------------------------------------------------------------------------------------

_OPEN = Node("record", _null)  # stands for a named type while its own members are compiled


def _node(schema: Any, namespace: str, named: dict[str, Node], depth: int) -> Node:
    if depth > MAX_NESTING:
        raise _bad_schema(f"it is nested more than {MAX_NESTING} deep")
    if isinstance(schema, list):
        found = _union(schema, namespace, named, depth)
    elif isinstance(schema, dict):
        found = _written(schema, namespace, named, depth)
    else:
        found = _reference(schema, namespace, named)
    if found.nodes > MAX_NODES:
        raise _bad_schema(f"written out it has more than {MAX_NODES} types")
    return found


def _reference(name: Any, namespace: str, named: dict[str, Node]) -> Node:
    if not isinstance(name, str):
        raise _bad_schema(f"{str(name)[:40]} is no type")
    found = PRIMITIVES.get(name) or named.get(f"{namespace}.{name}") or named.get(name)
    if found is None:
        raise _bad_schema(f"the type {name[:80]!r} is not defined before its use")
    if found is _OPEN:
        raise _bad_schema(f"the type {name[:80]!r} contains itself")
    return found


def _written(schema: dict[str, Any], namespace: str, named: dict[str, Node], depth: int) -> Node:
    kind = schema.get("type")
    if isinstance(kind, (dict, list)) or (isinstance(kind, str) and kind not in _COMPLEX):
        inner = _node(kind, namespace, named, depth + 1)  # {"type": "long", "logicalType": ...}
        return Node(
            inner.type, inner.read, inner.name, {**inner.props, **schema}, inner.fields, inner.branches,
            inner.items, inner.least, inner.nodes,
        )  # fmt: skip
    if kind in ("array", "map"):
        return _collection(kind, schema, namespace, named, depth)
    if not isinstance(kind, str):
        raise _bad_schema("a type has no name")
    return _named(kind, schema, namespace, named, depth)


_COMPLEX = ("record", "error", "enum", "fixed", "array", "map")


def _named(kind: str, schema: dict[str, Any], namespace: str, named: dict[str, Node], depth: int) -> Node:
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise _bad_schema(f"a {kind} has no name")
    space, _, short = name.rpartition(".")
    space = space or str(schema.get("namespace", namespace))
    full = f"{space}.{short}"
    if full in named:
        raise _bad_schema(f"the type {name[:80]!r} is defined twice")
    named[full] = _OPEN
    if kind == "enum":
        found = _enum(schema, short)
    elif kind == "fixed":
        found = _fixed(schema, short)
    else:
        found = _record(schema, short, space, named, depth)
    named[full] = found
    return found


def _enum(schema: dict[str, Any], name: str) -> Node:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise _bad_schema(f"the enum {name[:80]!r} has no symbols")
    known = tuple(map(str, symbols))

    def read(data: bytes, pos: int) -> tuple[str, int]:
        index, pos = long(data, pos)
        if not 0 <= index < len(known):
            raise Undecodable("bad-avro", f"{name} has no symbol {index}")
        return known[index], pos

    return Node("enum", read, name, schema, least=1)


def _fixed(schema: dict[str, Any], name: str) -> Node:
    size = str(schema.get("size"))
    if not (size.isascii() and size.isdigit() and len(size) < 10):
        raise _bad_schema(f"the fixed {name[:80]!r} has no size")
    width = int(size)

    def read(data: bytes, pos: int) -> tuple[bytes, int]:
        if pos + width > len(data):
            raise _truncated()
        return data[pos : pos + width], pos + width

    return Node("fixed", read, name, schema, least=width)


def _record(schema: dict[str, Any], name: str, namespace: str, named: dict[str, Node], depth: int) -> Node:
    members = schema.get("fields")
    if not isinstance(members, list) or not all(isinstance(m, dict) for m in members):
        raise _bad_schema(f"the record {name[:80]!r} has no fields")
    fields = tuple(
        (str(m.get("name")), _node(m.get("type"), namespace, named, depth + 1), m) for m in members
    )
    if len({field_name for field_name, _, _ in fields}) != len(fields):
        raise _bad_schema(f"the record {name[:80]!r} names a field twice")
    reads = tuple((field_name, node.read) for field_name, node, _ in fields)

    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for field_name, inner in reads:
            found[field_name], pos = inner(data, pos)
        return found, pos

    least = sum(node.least for _, node, _ in fields)
    nodes = 1 + sum(node.nodes for _, node, _ in fields)
    return Node("record", read, name, schema, fields, least=least, nodes=nodes)


def _union(schema: list[Any], namespace: str, named: dict[str, Node], depth: int) -> Node:
    branches = tuple(_node(branch, namespace, named, depth + 1) for branch in schema)
    if not branches or any(branch.type == "union" for branch in branches):
        raise _bad_schema("a union is empty or holds a union")
    if len(branches) > MAX_BRANCHES:
        raise _bad_schema(f"a union has more than {MAX_BRANCHES} types")
    if sum(branch.type != "null" for branch in branches) > 1:
        read = _tagged_reader(branches)
    else:
        read = _optional_reader(branches)
    least = 1 + min(branch.least for branch in branches)
    return Node(
        "union", read, branches=branches, least=least, nodes=1 + sum(branch.nodes for branch in branches)
    )


def _optional_reader(branches: tuple[Node, ...]) -> Read:
    reads = tuple(branch.read for branch in branches)
    end = 2 * len(reads)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        byte = data[pos]  # zigzag: an index below 64 is one byte, and even
        if byte & 0x81 or byte >= end:
            raise _bad_index(len(reads))
        pos += 1
        return reads[byte >> 1](data, pos)

    return read


def _tagged_reader(branches: tuple[Node, ...]) -> Read:
    reads = tuple((branch.name or branch.type, branch.read) for branch in branches)
    end = 2 * len(reads)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        byte = data[pos]  # zigzag: an index below 64 is one byte, and even
        if byte & 0x81 or byte >= end:
            raise _bad_index(len(reads))
        pos += 1
        tag, inner = reads[byte >> 1]
        value, pos = inner(data, pos)
        return (None if value is None else (tag, value)), pos

    return read


def _collection(
    kind: str, schema: dict[str, Any], namespace: str, named: dict[str, Node], depth: int
) -> Node:
    items = _node(schema.get("items" if kind == "array" else "values"), namespace, named, depth + 1)
    if kind == "map":
        read = _map_reader(items)
    elif items.least:
        read = _array_reader(items)
    else:
        raise _bad_schema("the items of an array take no bytes, so that its length means nothing")
    return Node(kind, read, kind, schema, items=items, least=1, nodes=1 + items.nodes)


def _array_reader(items: Node) -> Read:
    inner = items.read

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


def _map_reader(items: Node) -> Read:
    inner = items.read

    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, pos = _block(data, pos)
            if not count:
                return found, pos
            for _ in range(count):
                name, pos = _string(data, pos)
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
            raise _truncated()
    if count > len(data) - pos:  # every item takes at least a byte
        raise _truncated()
    return count, pos


def _truncated() -> Undecodable:
    return Undecodable("truncated", "the Avro datum ends before its last value")


def _bad_index(branches: int) -> Undecodable:
    return Undecodable("bad-avro", f"a union of {branches} types has no type of the index given")


def _bad_schema(detail: str) -> Undecodable:
    return Undecodable("bad-schema", f"the Avro schema cannot be used: {detail}")
