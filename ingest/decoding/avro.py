"""Exact reading of bare Avro (Apache Avro specification 1.11, "Schemas" and "Binary Encoding").

A schema is compiled once into readers (`ingest.decoding.avro_binary`) and then reads any number of
datums.  Why the common library, fastavro, does not read here: it takes varints of twelve bytes, an
index of -1 and bytes left over for values, and it crashes or never ends on some schemas.  Proving its
result by writing it again takes 37 to 45 microseconds for a row of 12 columns and about 400 for one of 22
with records inside, this reader 16 and 70; fastavro without the proof 16 and 110 (``benchmarks/notes.md``).
It is the measure that the tests hold this reader against.  Here

- a schema that contains itself is refused when it is loaded, so reading cannot run away in depth;
- an array of items that take no bytes is refused likewise, so a count cannot promise work for ever;
- what no writer may write is refused, and what differs only in form (several blocks, long varints) is read.

A union of null and one other type gives None or the value; a union with more branches gives None or
``(branch, value)``, so that two records of the same shape stay apart.  Logical types are not
interpreted: a decimal is its bytes, a date its day number.  Aliases and defaults have no part in
reading with the writer's own schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from ingest.decoding import avro_binary as binary
from ingest.decoding.avro_binary import Read, long, truncated
from ingest.errors import Undecodable
from ingest.values import strict

__all__ = ["PRIMITIVES", "Node", "bundled", "knowing", "load", "long", "read", "read_at"]

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
    fields: Fields = ()
    branches: tuple[Node, ...] = ()
    items: Node | None = None
    least: int = 0
    nodes: int = 1


Fields = tuple[tuple[str, Node, Mapping[str, Any]], ...]
"""A record's fields: name, type, and the JSON object it was written as."""


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


def knowing(node: Node, **made: Callable[[Any], Any]) -> Node:
    """The same record, its named fields known again by their bytes and made into something else once."""
    fields = tuple(
        (
            name,
            replace(below, read=binary.seen_before(below.read, made[name])) if name in made else below,
            props,
        )
        for name, below, props in node.fields
    )
    return replace(node, fields=fields, read=_record_reader(fields))


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
        raise truncated() from None
    except UnicodeDecodeError as error:
        raise Undecodable("bad-utf8", f"an Avro string holds byte {error.object[error.start]:#04x}") from None


PRIMITIVES: dict[str, Node] = {
    "null": Node("null", binary.null, "null"),
    "boolean": Node("boolean", binary.boolean, "boolean", least=1),
    "int": Node("int", binary.int_, "int", least=1),
    "long": Node("long", long, "long", least=1),
    "float": Node("float", binary.float_, "float", least=4),
    "double": Node("double", binary.double, "double", least=8),
    "bytes": Node("bytes", binary.bytes_, "bytes", least=1),
    "string": Node("string", binary.string, "string", least=1),
}


# --- schemas ------------------------------------------------------------------------------------

_OPEN = Node("record", binary.null)  # stands for a named type while its own members are compiled


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
    return Node("enum", binary.enum(name, tuple(map(str, symbols))), name, schema, least=1)


def _fixed(schema: dict[str, Any], name: str) -> Node:
    size = str(schema.get("size"))
    if not (size.isascii() and size.isdigit() and len(size) < 10):
        raise _bad_schema(f"the fixed {name[:80]!r} has no size")
    return Node("fixed", binary.fixed(int(size)), name, schema, least=int(size))


def _record(schema: dict[str, Any], name: str, namespace: str, named: dict[str, Node], depth: int) -> Node:
    members = schema.get("fields")
    if not isinstance(members, list) or not all(isinstance(m, dict) for m in members):
        raise _bad_schema(f"the record {name[:80]!r} has no fields")
    fields = tuple(
        (str(m.get("name")), _node(m.get("type"), namespace, named, depth + 1), m) for m in members
    )
    if len({field_name for field_name, _, _ in fields}) != len(fields):
        raise _bad_schema(f"the record {name[:80]!r} names a field twice")
    least = sum(node.least for _, node, _ in fields)
    nodes = 1 + sum(node.nodes for _, node, _ in fields)
    return Node("record", _record_reader(fields), name, schema, fields, least=least, nodes=nodes)


def _record_reader(fields: Fields) -> Read:
    return binary.record(
        [(name, node.read, [each.read for each in node.branches]) for name, node, _ in fields]
    )


def _union(schema: list[Any], namespace: str, named: dict[str, Node], depth: int) -> Node:
    branches = tuple(_node(branch, namespace, named, depth + 1) for branch in schema)
    if not branches or any(branch.type == "union" for branch in branches):
        raise _bad_schema("a union is empty or holds a union")
    if len(branches) > MAX_BRANCHES:
        raise _bad_schema(f"a union has more than {MAX_BRANCHES} types")
    if sum(branch.type != "null" for branch in branches) > 1:
        read = binary.tagged([(branch.name or branch.type, branch.read) for branch in branches])
    else:
        read = binary.optional([branch.read for branch in branches])
    least = 1 + min(branch.least for branch in branches)
    return Node(
        "union", read, branches=branches, least=least, nodes=1 + sum(branch.nodes for branch in branches)
    )


def _collection(
    kind: str, schema: dict[str, Any], namespace: str, named: dict[str, Node], depth: int
) -> Node:
    items = _node(schema.get("items" if kind == "array" else "values"), namespace, named, depth + 1)
    if kind == "map":
        read = binary.map_(items.read)
    elif items.least:
        read = binary.array(items.read)
    else:
        raise _bad_schema("the items of an array take no bytes, so that its length means nothing")
    return Node(kind, read, kind, schema, items=items, least=1, nodes=1 + items.nodes)


def _bad_schema(detail: str) -> Undecodable:
    return Undecodable("bad-schema", f"the Avro schema cannot be used: {detail}")
