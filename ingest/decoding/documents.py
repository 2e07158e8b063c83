"""Messages inside a message: what lies between a record and the JSON document that a format reads.

- several documents one after another (GoldenGate's ``mode=tx``, Firehose), or an array of them;
- Confluent's frame of JSON with a registered schema: a zero byte, four bytes of schema id, the document;
- records with a length before each (a file of such that was read as one message);
- CloudEvents: the document is the member ``data``, maybe with Connect's schema around it.

Every format may come so, from files and Kafka alike. Nothing is read here: each document is handed on as it was sent.
"""

from __future__ import annotations

import json

import msgspec

FRAME = 5  # bytes: a zero, and the schema's id
MOST = 100_000  # documents in one message

_decoder = json.JSONDecoder()
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CLOUD_EVENT = b'"specversion"'
_EVENT = frozenset({"specversion", "type", "source", "id"})


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
        text = value.decode("utf-8")
        documents: list[bytes] = []
        place = _next(text, 0)
        while place < len(text):
            document, end = _decoder.raw_decode(text, place)
            if isinstance(document, list):
                documents += _elements(text[place:end])
            elif isinstance(document, dict):
                documents.append(text[place:end].encode())
            else:
                return []
            if len(documents) > MOST:
                return []
            place = _next(text, end)
    except (ValueError, RecursionError):  # also of bytes that are not UTF-8
        return []
    return documents


def measured(value: bytes) -> list[bytes]:
    """The records of a message that has a length of four bytes before each; none if the lengths do not lead to its end."""
    records: list[bytes] = []
    place = 0
    while place < len(value):
        begin = place + 4
        place = begin + int.from_bytes(value[place:begin], "big")
        if place == begin or place > len(value) or len(records) == MOST:
            return []
        records.append(value[begin:place])
    return records


def _elements(text: str) -> list[bytes]:
    elements = [bytes(element) for element in msgspec.json.decode(text, type=list[msgspec.Raw])]
    if any(element[:1] != b"{" for element in elements):
        raise ValueError("an element of the array is not an object")
    return elements


def _next(text: str, place: int) -> int:
    """Where the next document begins: after spaces, and commas that some writers put between documents."""
    while place < len(text) and text[place] in " \t\r\n,":
        place += 1
    return place


def _content(document: bytes) -> bytes:
    """What a CloudEvent carries; any other document as it is."""
    if _CLOUD_EVENT not in document:
        return document
    try:
        members = _members.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return document
    data = members.get("data")
    if data is None or not members.keys() >= _EVENT or bytes(data)[:1] != b"{":
        return document
    return bytes(data)
