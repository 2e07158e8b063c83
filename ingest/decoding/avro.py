"""Bare Avro read by fastavro, with the checks that it leaves out (Avro specification 1.11).

`load` refuses a schema that contains itself, and an array whose items take no bytes: by the one fastavro
crashes, by the other a damaged count keeps it busy for ever. `read` refuses a datum that does not end with
its last byte, and what the specification forbids: a negative choice of a union or an enum, an int of more than 32
bits, a long of more than 64, a boolean that is not one byte that is 0 or 1. It gives every failure a code.

A value of a union of several named types is ``(branch, value)``, so that two records of the same shape stay
apart; every other value is bare. Logical types are not interpreted: a decimal is its bytes, a date its
day number. Aliases and defaults have no part in reading with the writer's own schema.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from ingest.errors import Undecodable, counted
from ingest.values import strict

MAX_TYPES = 100_000  # of a schema with every named type written out; a wide table has 10,000
MAX_NESTING = 64
_LEFT_OUT = frozenset({"default", "aliases", "doc", "order"})  # from a schema: fastavro judges some of them


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that is safe to read by: fastavro's form of it, and its named types by their full names."""

    parsed: Any  # with `_bounded`
    root: Any
    named: Mapping[str, Any]
    has_branches: bool  # whether a union has several named types, which need their branch
    plain_option: bool  # whether a union may have one named type, which then needs no branch

    def resolved(self, schema: Any) -> Any:
        """A type as its object or, for a union, its list; a name is replaced by what it names."""
        return (self.named.get(schema) or {"type": schema}) if isinstance(schema, str) else schema


@lru_cache(maxsize=1024)
def load(text: str | bytes, name: str | None = None) -> AvroSchema:
    """Parse a schema's JSON text; ``name`` picks the type from a list of named types. `Undecodable`: ``bad-schema``."""
    from fastavro.read import LOGICAL_READERS
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    LOGICAL_READERS.update({f"int-{name}": check for name, check in _CHECKED.values()})
    named: dict[str, Any] = {}
    try:
        tree = _prepared(strict(text.encode() if isinstance(text, str) else text), 0)
        for entry in tree if name else ():
            parse_schema(entry, named_schemas=named)
        whole = {"type": "record", "name": _WHOLE, "fields": [{"name": _WHOLE, "type": name or tree}]}
        parsed: Any = parse_schema(whole, named_schemas=named)
        root = parsed["fields"][0]["type"]
        guard = _Guard(named)
        guard.size(root)
    except Undecodable as error:
        raise Undecodable("bad-schema", f"the Avro schema cannot be used: {error.detail}") from None
    except UnknownType as error:
        raise _bad_schema(f"the type {str(error.name)[:80]!r} is not defined before its use") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad_schema(str(error)[:200]) from None
    return AvroSchema(_bounded(parsed), root, named, guard.has_branches, guard.plain_option)


_WHOLE = "ingest_whole_datum"
"""The record around every schema (it takes no bytes): fastavro parses any other type again for each datum."""


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
    from fastavro.read import schemaless_reader

    source = io.BytesIO(data)
    source.seek(pos)
    try:
        # the options let fastavro look through each union once more, so only where they are needed
        datum: Any = schemaless_reader(
            source,
            schema.parsed,
            None,
            return_named_type=schema.has_branches,
            return_named_type_override=schema.has_branches and schema.plain_option,
        )
    except EOFError:
        raise Undecodable("truncated", "the Avro datum ends before its last value") from None
    except UnicodeDecodeError as error:
        raise Undecodable("bad-utf8", f"an Avro string holds byte {error.object[error.start]:#04x}") from None
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise Undecodable("bad-avro", f"the Avro datum cannot be read: {error}") from None
    if (_NINE in data.translate(_HIGH) or _FALSE in data or _TRUE in data) and _UNSURE.search(data, pos):
        _skipped(schema, schema.root, data, pos)
    return datum[_WHOLE], source.tell()


_UNSURE = re.compile(rb"[\x80-\xff]{9}[^\x00\x01]|[\x80\x81]\x00")
"""What a number of more than 64 bits begins with, which fastavro wraps, or a boolean of several bytes ends with, which is
read as a number; texts and lengths may hold both.
"""

_HIGH = bytes(0x80) + b"\xff" * 0x80
_NINE, _FALSE, _TRUE = b"\xff" * 9, b"\x80\x00", b"\x81\x00"
"""One of them is in whatever the pattern matches (the first where high bytes are all alike), and is found five times as fast."""


def _skipped(schema: AvroSchema, kind: Any, data: bytes, pos: int) -> int:
    """The position after a value that fastavro could read; `Undecodable` if one of its numbers or booleans is too long."""
    kind = schema.resolved(kind)
    if isinstance(kind, list):
        index, pos = long(data, pos)
        return _skipped(schema, kind[index], data, pos)
    name = kind["type"]
    if name in ("record", "error"):
        for field in kind["fields"]:
            pos = _skipped(schema, field["type"], data, pos)
        return pos
    if name in ("array", "map"):
        return _skipped_items(schema, kind, data, pos)
    if name in ("bytes", "string"):
        length, pos = long(data, pos)
        return pos + length
    if name in ("int", "long", "enum"):
        return long(data, pos)[1]
    if name == "boolean" and data[pos] > 1:
        raise Undecodable("bad-avro", f"the Avro datum cannot be read: {_NO_BOOLEAN}")
    return pos + (int(kind["size"]) if name == "fixed" else _LEAST[name])


def _skipped_items(schema: AvroSchema, kind: Mapping[str, Any], data: bytes, pos: int) -> int:
    is_map = kind["type"] == "map"
    while True:
        count, pos = long(data, pos)
        if not count:
            return pos
        if count < 0:  # the block's size follows
            _, pos = long(data, pos)
        for _ in range(abs(count)):
            if is_map:
                pos = _skipped(schema, "string", data, pos)
            pos = _skipped(schema, kind["values" if is_map else "items"], data, pos)


def long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), pos
    raise Undecodable("bad-avro", "a number does not fit 64 bits")


# --- what fastavro does not check ----------------------------------------------------------------


class _Choices(list[Any]):
    """The branches of a union, or the symbols of an enum: a negative index is none of them, as in the specification.

    fastavro takes -1 for the last one, because a list does. It adds the length to it before it asks, so the length is 0.
    """

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            raise IndexError(f"there is no choice {index}")
        return list.__getitem__(self, index)


def _int(value: int, _writer: Any = None, _reader: Any = None) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} does not fit the 32 bits of an int")
    return value


def _boolean(value: int, _writer: Any = None, _reader: Any = None) -> bool:
    """The byte of a boolean, read as a number: 0 is 0, and 1 is -1."""
    if value not in (0, -1):
        raise ValueError(_NO_BOOLEAN)
    return value == -1


_NO_BOOLEAN = "a boolean is not one byte that is 0 or 1"
_CHECKED = {"int": ("ingest-int", _int), "boolean": ("ingest-boolean", _boolean)}


def _bounded(schema: Any) -> Any:
    """A parsed schema by which fastavro refuses what the specification forbids; what it reads stays the same."""
    if isinstance(schema, list):
        return _Choices(map(_bounded, schema))
    if isinstance(schema, str):
        return {"type": "int", "logicalType": _CHECKED[schema][0]} if schema in _CHECKED else schema
    bounded = dict(schema)
    if bounded["type"] in _CHECKED:
        bounded |= {"type": "int", "logicalType": _CHECKED[bounded["type"]][0]}
    if "symbols" in bounded:
        bounded["symbols"] = _Choices(bounded["symbols"])
    for below in ("items", "values"):
        if below in bounded:
            bounded[below] = _bounded(bounded[below])
    if "fields" in bounded:
        bounded["fields"] = [{**field, "type": _bounded(field["type"])} for field in bounded["fields"]]
    if "__named_schemas" in bounded:
        bounded["__named_schemas"] = {
            name: _bounded(named) for name, named in bounded["__named_schemas"].items()
        }
    return bounded


# --- schemas ------------------------------------------------------------------------------------


def _prepared(schema: Any, depth: int) -> Any:
    """A schema as fastavro takes it, without what could fail or change a value.

    ``logicalType`` becomes ``logical``, so that fastavro leaves the value alone.
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
    """Refuses what fastavro would crash or hang on; the names in a schema are full by then."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.has_branches = False  # a union of several named types
        self.plain_option = False  # a union of one named type and others
        self._named = named
        self._sizes: dict[str, _Size | None] = {}  # of named types; None while one is open

    def size(self, schema: Any) -> _Size:
        """The size of values of a type."""
        if isinstance(schema, list):
            if any(isinstance(branch, list) for branch in schema):
                raise _bad_schema("a union holds a union")
            names = sum("name" in each if isinstance(each, dict) else each in self._named for each in schema)
            self.has_branches |= names > 1
            self.plain_option |= names == 1
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
