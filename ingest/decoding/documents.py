"""Messages inside a message: what lies between a record and the JSON document that a format reads.

- several documents one after another (GoldenGate's ``mode=tx``, Firehose), or an array of them;
- Confluent's frame of JSON with a registered schema: a zero byte, four bytes of schema id, the document;
- records with a length before each (a file of such that was read as one message);
- CloudEvents: the document is the member ``data``, maybe with Connect's schema around it. An event whose attributes say the
  operation (``DESCRIBED``) is left whole: its data are images alone, and its format reads both.

Every format may come so, from files and Kafka alike. Nothing is read here: each document is handed on as it was sent.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec

FRAME = 5  # bytes: a zero, and the schema's id
MOST = 100_000  # documents in one message

_value = msgspec.json.Decoder(msgspec.Raw)
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_BETWEEN = re.compile(rb"[ \t\r\n,]*+")  # some writers put commas between documents
_SPACES = b" \t\r\n"
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CLOUD_EVENT = b'"specversion"'
_EVENT = frozenset({"specversion", "type", "source", "id"})
DESCRIBED = "iodebeziumop"
"""The attribute by which Debezium's converter for CloudEvents says the operation (its documentation, "CloudEvents")."""


def is_enclosed(value: bytes) -> bool:
    """True for a message whose document is inside a frame or an envelope, which a format would take for its own."""
    return value[:1] == b"\0" or _CLOUD_EVENT in value


def unframed(value: bytes) -> bytes:
    """The document after Confluent's frame; the bytes as they are where there is none."""
    is_framed = value[:1] == b"\0" and value[FRAME:].lstrip()[:1] in (b"{", b"[")
    return value[FRAME:] if is_framed else value


def inside(value: bytes) -> list[bytes]:
    """The documents of a message in their order; the message itself where it is one document, or is damaged."""
    return [_content(document) for document in split(unframed(value)) or [value]]


def split(value: bytes) -> list[bytes]:
    """The documents of a text, those of an array each by itself; none if it is anything else."""
    try:
        documents = [document for _, document in itertools.islice(documents_in(value), MOST + 1)]
    except (msgspec.DecodeError, RecursionError):
        return []
    return documents if len(documents) <= MOST else []


def are_several(value: bytes) -> bool:
    """True if the text is at least two documents, and nothing else; there may be any number."""
    try:
        return sum(1 for _ in documents_in(value)) > 1
    except (msgspec.DecodeError, RecursionError):
        return False


def documents_in(value: bytes) -> Iterator[tuple[int, bytes]]:
    """The documents of a text, those of an array each by itself, one at a time and each with its place.

    Raises:
        msgspec.DecodeError: something else is among them.
        RecursionError: one is nested too deeply.
    """
    for place, document in _values(value, 0, len(value)):
        inside_it = elements(document) if document[:1] == b"[" else [(0, document)]
        for begin, each in inside_it:
            if each[:1] != b"{":
                raise msgspec.DecodeError(f"the value at byte {place + begin} is not an object")
            yield place + begin, each


def elements(array: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a valid JSON array, one at a time, each with its place."""
    return _values(array, array.index(b"[") + 1, array.rindex(b"]"))


def measured(value: bytes) -> list[bytes]:
    """The records of a message that has a length of four bytes before each; none if the lengths do not lead to its end."""
    records: list[bytes] = []
    for begin, end in by_length(value):
        if end == begin or end > len(value) or len(records) == MOST:
            return []
        records.append(value[begin:end])
    return records


def by_length(data: bytes, place: int = 0) -> Iterator[tuple[int, int]]:
    """Where each record begins and ends that has a length of four bytes before it; the last may end after the data."""
    while place < len(data):
        begin = place + 4
        place = begin + int.from_bytes(data[place:begin], "big")
        yield begin, place


def _values(data: bytes, place: int, last: int) -> Iterator[tuple[int, bytes]]:
    """The JSON values between two places, each with the place where it begins.

    A value is passed over, not built: a megabyte in an archive may hold a hundred million of them.
    """
    view = memoryview(data)[:last]
    while (between := _BETWEEN.match(data, place)) and (place := between.end()) < last:
        end = _end(view, place)
        yield place, data[place:end].rstrip(_SPACES)
        place = end


def _end(view: memoryview, place: int) -> int:
    """Where the JSON value ends that begins at a place, with the spaces after it; the decoder names the next byte."""
    try:
        _value.decode(view[place:])
    except msgspec.DecodeError as error:
        trailing = _TRAILING.search(str(error))
        if trailing is None:
            raise
        return place + int(trailing[1]) - 1
    return len(view)


def _content(document: bytes) -> bytes:
    """What a CloudEvent carries; any other document as it is."""
    if _CLOUD_EVENT not in document:
        return document
    try:
        members = _members.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return document
    data = members.get("data")
    if data is None or DESCRIBED in members or not members.keys() >= _EVENT or bytes(data)[:1] != b"{":
        return document
    return bytes(data)
