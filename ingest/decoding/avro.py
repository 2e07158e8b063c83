"""Bare Avro (Avro specification 1.11): schemas parsed by fastavro, data read by a function of each schema.

`load` refuses a schema that contains itself, and an array whose items take no bytes, by whose damaged count a reader
would be busy for ever. `read` refuses a datum that does not end with
its last byte, and what the specification forbids: a negative choice of a union or an enum, an int of more than 32
bits, a long of more than 64, a boolean that is not one byte that is 0 or 1. It gives every failure a code.

A value of a union of several named types is ``(branch, value)``, so that two records of the same shape stay
apart; every other value is bare. Logical types are not interpreted: a decimal is its bytes, a date its
day number. Aliases and defaults have no part in reading with the writer's own schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources
from struct import error as StructError
from typing import Any, NamedTuple

from ingest.decoding import avro_reader
from ingest.errors import Undecodable, counted
from ingest.values import strict

MAX_TYPES = 100_000  # of a schema with every named type written out; a wide table has 10,000
MAX_NESTING = 64
_LEFT_OUT = frozenset({"default", "aliases", "doc", "order"})  # from a schema: fastavro judges some of them


@dataclass(frozen=True)
class AvroSchema:
    """A schema that is safe to read by: its datum's type in fastavro's form, and its named types by their full names."""

    root: Any
    named: Mapping[str, Any]

    @cached_property
    def read(self) -> avro_reader.Read:
        """The function that reads a datum, put together when the first one comes."""
        return avro_reader.reader(self.root, self.resolved)

    def resolved(self, schema: Any) -> Any:
        """A type as its object or, for a union, its list; a name is replaced by what it names."""
        return (self.named.get(schema) or {"type": schema}) if isinstance(schema, str) else schema


@lru_cache(maxsize=1024)
def load(text: str | bytes, name: str | None = None) -> AvroSchema:
    """Parse a schema's JSON text; ``name`` picks the type from a list of named types. `Undecodable`: ``bad-schema``."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    try:
        tree = _prepared(_avro(strict(text.encode() if isinstance(text, str) else text)), 0)
        for entry in tree if name else ():
            parse_schema(entry, named_schemas=named)
        whole = {"type": "record", "name": _WHOLE, "fields": [{"name": _WHOLE, "type": name or tree}]}
        parsed: Any = parse_schema(whole, named_schemas=named)
        root = parsed["fields"][0]["type"]
        _Guard(named).size(root)
    except Undecodable as error:
        raise Undecodable("bad-schema", f"the schema cannot be used: {error.detail}") from None
    except UnknownType as error:
        raise _bad_schema(f"the type {str(error.name)[:80]!r} is not defined before its use") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad_schema(str(error)[:200]) from None
    return AvroSchema(root, named)


def of_other_kind(kind: str) -> str:
    """The text that replaces a registry's schema of another kind: ``PROTOBUF``, ``JSON``."""
    return json.dumps({_KIND: kind})


def _avro(tree: Any) -> Any:
    """A schema's tree, unless it replaces one of another kind."""
    if isinstance(tree, dict) and tree.keys() == {_KIND}:
        raise _bad_schema(
            f"it is a {tree[_KIND]} schema, and only Avro is read: let the source's converter write Avro, or JSON without a schema"
        )
    return tree


_KIND = "schemaType"

_WHOLE = "ingest_whole_datum"
"""The record around every schema: fastavro parses its field as any other one, whatever type that has."""


@cache
def bundled(file: str) -> bytes:
    """The text of a vendor's fixed schema from ``avro_schemas``."""
    return (resources.files("ingest.decoding") / "avro_schemas" / f"{file}.avsc").read_bytes()


def read(schema: AvroSchema, data: bytes) -> Any:
    """One datum that fills ``data`` to its last byte.

    `Undecodable`: ``truncated``, ``trailing-bytes``, ``bad-avro`` or ``bad-utf8``.
    """
    value, end = read_at(schema, data, 0)
    if end != len(data):
        raise Undecodable(
            "trailing-bytes", f"{counted(len(data) - end, 'byte is', 'bytes are')} left after the datum"
        )
    return value


def read_at(schema: AvroSchema, data: bytes, pos: int) -> tuple[Any, int]:
    """One datum from ``pos`` on, and the position after it."""
    try:
        datum, end = schema.read(data, pos)
    except UnicodeDecodeError as error:
        if _is_cut(schema, data, pos, error):
            raise _truncated() from None
        raise Undecodable("bad-utf8", f"an Avro string holds byte {error.object[error.start]:#04x}") from None
    except (IndexError, StructError):
        raise _truncated() from None
    if end > len(data):
        raise _truncated()
    return datum, end


def _is_cut(schema: AvroSchema, data: bytes, pos: int, fault: UnicodeDecodeError) -> bool:
    """True if a text that is not UTF-8 is the one with which the data end before their time: with more data it is longer."""
    if not data.endswith(fault.object):
        return False
    try:
        schema.read(data + b" ", pos)
    except UnicodeDecodeError as error:
        return len(error.object) > len(fault.object)
    return True


def _truncated() -> Undecodable:
    return Undecodable("truncated", "the Avro datum ends before its last value")


# --- schemas ------------------------------------------------------------------------------------


def _prepared(schema: Any, depth: int) -> Any:
    """A schema as fastavro takes it, without what it judges although reading does not need it.

    ``logicalType`` becomes ``logical``, so that fastavro does not judge it.
    """
    if depth > MAX_NESTING:
        raise _bad_schema(f"it is nested more than {MAX_NESTING} deep")
    if isinstance(schema, list):
        if not schema:
            raise _bad_schema("a union is empty")
        return [_prepared(branch, depth + 1) for branch in schema]
    return _prepared_object(schema, depth) if isinstance(schema, dict) else str(schema)


def _prepared_object(schema: dict[str, Any], depth: int) -> Any:
    prepared = {name: value for name, value in schema.items() if name not in _LEFT_OUT}
    if "logicalType" in prepared:
        prepared["logical"] = prepared.pop("logicalType")
    kind = prepared.get("type")
    if isinstance(kind, list):
        return _prepared(kind, depth + 1)
    if isinstance(kind, dict):  # {"type": {"type": "long"}, "connect.name": ...}
        return {**_prepared(kind, depth + 1), **{name: prepared[name] for name in prepared if name != "type"}}
    if kind not in _COMPLEX and kind not in _LEAST:
        return str(kind)  # a named type: what else the object says belongs to its definition
    for below in ("items", "values"):
        if below in prepared:
            prepared[below] = _prepared(prepared[below], depth + 1)
    if kind in ("record", "error"):
        prepared["fields"] = _fields(prepared, depth)
    if kind == "fixed":
        prepared["size"] = _size_of_fixed(prepared)
    return prepared


def _size_of_fixed(schema: dict[str, Any]) -> int:
    size = str(schema.get("size"))
    if re.fullmatch(r"[0-9]{1,9}", size) is None:
        raise _bad_schema(f"the fixed {str(schema.get('name'))[:80]!r} has no size")
    return int(size)


def _fields(schema: dict[str, Any], depth: int) -> list[dict[str, Any]]:
    name, fields = str(schema.get("name"))[:80], schema.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise _bad_schema(f"the record {name!r} has no fields")
    names = [str(field.get("name")) for field in fields]
    if len(set(names)) != len(names):
        raise _bad_schema(f"the record {name!r} names a field twice")
    return [
        {"name": name, "type": _prepared(field.get("type"), depth + 1), DEFAULT: field.get("default")}
        for name, field in zip(names, fields, strict=True)
    ]


DEFAULT = "default_as_written"
"""A field's default, by a name that fastavro leaves alone; None for null and for none."""


_COMPLEX = frozenset({"record", "error", "fixed", "array", "map"})
_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "bytes": 1, "string": 1, "enum": 1}
_LEAST |= {"float": 4, "double": 8}


class _Size(NamedTuple):
    least: int  # the fewest bytes that a value can take
    types: int  # with every named type written out


class _Guard:
    """Refuses what a reader would crash or hang on; the names in a schema are full by then."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._sizes: dict[str, _Size | None] = {}  # of named types; None while one is open

    def size(self, schema: Any) -> _Size:
        """The size of values of a type."""
        if isinstance(schema, list):
            if any(isinstance(branch, list) for branch in schema):
                raise _bad_schema("a union holds a union")
            branches = [self.size(branch) for branch in schema]
            return _sum(1 + min(each.least for each in branches), branches)
        if isinstance(schema, str):
            schema = self._named.get(schema) or {"type": schema}
        kind = schema["type"]
        if kind in _LEAST:
            return _Size(_LEAST[kind], 1)
        if kind == "fixed":
            return _Size(schema["size"], 1)
        if kind in ("array", "map"):
            items = self.size(schema["items" if kind == "array" else "values"])
            if kind == "array" and not items.least:
                raise _bad_schema("the items of an array take no bytes, so that its length means nothing")
            return _sum(1, [items])
        return self._record(schema)

    def _record(self, schema: Mapping[str, Any]) -> _Size:
        name = schema["name"]
        if name not in self._sizes:
            self._sizes[name] = None
            fields = [self.size(field["type"]) for field in schema["fields"]]
            self._sizes[name] = _sum(sum(each.least for each in fields), fields)
        size = self._sizes[name]
        if size is None:
            raise _bad_schema(f"the type {name[:80]!r} contains itself")
        return size


def _sum(least: int, below: list[_Size]) -> _Size:
    types = 1 + sum(each.types for each in below)
    if types > MAX_TYPES:
        raise _bad_schema(f"written out it has more than {MAX_TYPES} types")
    return _Size(least, types)


def _bad_schema(detail: str) -> Undecodable:
    return Undecodable("bad-schema", detail)
