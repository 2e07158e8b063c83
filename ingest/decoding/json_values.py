"""JSON objects as Python values that keep every digit, and those values as canonical text.

One decoder call reads an object with all that is in it, and one encoder call proves that no name occurs
twice at any depth: what was decoded must be as long again as what was sent. Spaces, escapes and minus
zero break the equality too; then `ingest.values.strict` reads again, slowly. So a value is a `str`, None,
a `bool`, an `int`, a list or a dict; any other number is a `Raw` of its own bytes, or a `Number`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ingest.errors import Undecodable
from ingest.values import Number, compacted, lenient, members, opened, strict
from ingest.values.remembered import Bounded

Values = dict[str, Any]
_Read = TypeVar("_Read")


class ConverterMessage(msgspec.Struct, gc=False):
    """A converter's message: the schema's bytes (empty without one), the payload (None where it is null)."""

    schema: bytes
    payload: Values | None
    wrapped: bool = True


class _Wrapped(msgspec.Struct, gc=False):
    """A converter's two members; the schema stays bytes, by which its plan is found."""

    schema: Raw | UnsetType = UNSET
    payload: Values | UnsetType | None = UNSET


_plain = msgspec.json.Decoder(Values, float_hook=Raw)
_wrapped = msgspec.json.Decoder(_Wrapped, float_hook=Raw)
_encode = msgspec.json.encode
_WRAPPED = (b'{"schema":', b'{"payload":')
MAX_SCHEMAS = 1024  # kept at a time


def object_of(raw: bytes) -> Values:
    """A JSON object with all that is in it; `Undecodable` as of `ingest.values.strict`, or if it is not an object."""
    try:
        parsed = _plain.decode(raw)
        if len(_encode(parsed)) == len(raw):
            return parsed
    except Exception:  # noqa: S110  # the decoder leaks exceptions of other modules
        pass
    careful = strict(raw)
    if not isinstance(careful, dict):
        raise Undecodable("not-this-format", "the message is JSON, but not an object")
    return careful


def is_null(value: bytes | None) -> bool:
    """True of a message without a value: a file has no other way to write it than JSON's ``null``."""
    return value is None or (len(value) < _SHORT and value.strip() == b"null")


_SHORT = 16  # bytes: no row is as short


def unwrapped(raw: bytes) -> ConverterMessage:
    """A message in its parts; an object not made of ``schema`` and ``payload`` is a payload itself."""
    if raw.startswith(_WRAPPED):
        try:
            message = _wrapped.decode(raw)
            if len(_encode(message)) == len(raw) and not isinstance(message.payload, UnsetType):
                return ConverterMessage(_schema(message.schema), message.payload)
        except Exception:  # noqa: S110  # as above
            pass
    root = object_of(raw)
    if "payload" not in root or not root.keys() <= {"schema", "payload"}:
        return ConverterMessage(b"", root, wrapped=False)
    payload = root["payload"]
    if payload is not None and not isinstance(payload, dict):
        raise Undecodable("not-this-format", "the payload is not a JSON object")
    return ConverterMessage(_schema(members(raw).get("schema", UNSET)), payload)


def _schema(raw: Raw | UnsetType) -> bytes:
    schema = b"" if isinstance(raw, UnsetType) else bytes(raw)
    return b"" if schema == b"null" else _known_again(schema)


_schemas = Bounded[tuple[int, bytes], bytes](MAX_SCHEMAS)


def _known_again(schema: bytes) -> bytes:
    """The same object for the same bytes: a hash of kilobytes costs far more than their comparison."""
    mark = (len(schema), schema[-60:])  # a table's name is near the end
    remembered = _schemas.get(mark)
    if remembered == schema:
        return remembered
    _schemas[mark] = schema
    return schema


def repaired(raw: bytes, read: Callable[[bytes], _Read]) -> tuple[_Read, str | None]:
    """What ``read`` makes of a message, with a note if its text had to be repaired first."""
    try:
        return read(raw), None
    except Undecodable as error:
        if error.code != "bad-json":
            raise
        note = opened(raw)[1]  # refuses JSON that is not an object in its own words
        return read(lenient(raw)), note


def text(value: Any) -> str | None:
    """A value as text: a string itself, a number's digits, compact JSON of what is nested."""
    kind = type(value)
    if kind is str or value is None:
        return value  # type: ignore[no-any-return]
    if kind is int or kind is Number:
        return str(value)
    if kind is bool:
        return str(value).lower()
    return (bytes(value) if kind is Raw else compacted(value)).decode()


def texts(parsed: Any) -> dict[str, str | None]:
    """A small object's members as text; none where it is not an object."""
    if not isinstance(parsed, dict):
        return {}
    return {name: value if type(value) is str else text(value) for name, value in parsed.items()}
