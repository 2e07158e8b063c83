"""JSON objects whose members are known: read in one pass, and proven by writing them again.

A record is a `msgspec.Struct` with a field for each member that its document names, of one of the kinds below, or a record
itself (``Inner | UnsetType | None``; of a member that is no object its bytes are kept). What was
read must be as long again as what was sent; a name given twice, spaces, escapes, a member that is not known or of another
kind break the equality. Then the members are taken one by one, exactly and slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ingest.errors import Undecodable
from ingest.values.json_documents import is_null, items, opened, text
from ingest.values.numbers_and_bytes import integer

Text = str | None | UnsetType
"""A member's text; whatever else is sent becomes its text, too."""
Count = int | str | None | UnsetType
"""A number, or the text of one."""
Texts = list[str | None] | None | UnsetType
"""A list of values without lists and objects in it; of anything else its bytes, which `texts_of` refuses."""
Kept = Raw | UnsetType
"""A member as it is sent."""

_Record = TypeVar("_Record", bound=msgspec.Struct)
_encode = msgspec.json.encode


class RecordReader(Generic[_Record]):
    """What reads records of one kind."""

    def __init__(self, kind: type[_Record]) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._readers = [
            (field.name, field.encode_name, _reader_of(field.type)) for field in msgspec.structs.fields(kind)
        ]

    def read(self, raw: bytes | Raw) -> tuple[_Record, str | None]:
        """A record, with a note if its text had to be repaired first; `Undecodable` as `ingest.values.opened`."""
        try:
            record = self._decode(raw)
        except Exception:  # a member of another kind, or the message is damaged
            record = None
        if record is not None and len(_encode(record)) == len(memoryview(raw)):
            return record, None
        members, note = opened(bytes(raw))
        read = {name: reader(members[sent]) for name, sent, reader in self._readers if sent in members}
        return self._kind(**read), note


def _reader_of(kind: Any) -> Callable[[Raw], Any]:
    """What reads a member of one kind by itself."""
    records = [each for each in get_args(kind) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if not records:
        return _READERS[kind]
    reader = RecordReader(records[0])
    return lambda raw: reader.read(raw)[0] if bytes(raw)[:1] == b"{" else None if is_null(raw) else raw


def count_of(value: Count) -> int | None:
    """The number of a member; None for a missing one and for a text that is none."""
    return value if type(value) is int else integer(value) if isinstance(value, str) else None


def no_record(value: object) -> bytes:
    """The bytes of a member that should be a record and is something else; empty for a record, null and a missing one."""
    return bytes(value) if isinstance(value, Raw) else b""


def kept_of(value: Kept) -> bytes:
    """A member as it is sent; empty for a missing one and for null."""
    data = b"" if value is UNSET else bytes(value)
    return b"" if data == b"null" else data


def texts_of(value: Texts | Raw, name: str) -> list[str | None] | None:
    """The values of a member that means something in its record; None for a missing one and for null."""
    if not isinstance(value, Raw):
        return None if value is UNSET else value
    if bytes(value)[:1] != b"[":
        raise Undecodable("bad-message", f"{name} is not a list of values")
    raise Undecodable("bad-message", f"{name} holds a value that is an object or a list")


def _texts(raw: Raw) -> list[str | None] | Raw | None:
    if is_null(raw):
        return None
    if bytes(raw)[:1] != b"[":
        return raw
    cells = items(raw)
    return raw if any(bytes(cell)[:1] in (b"{", b"[") for cell in cells) else [text(cell) for cell in cells]


_READERS: dict[Any, Callable[[Raw], Any]] = {Text: text, Count: text, Texts: _texts, Kept: lambda raw: raw}
