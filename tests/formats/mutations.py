"""What the tests of flat JSON dialects share: vendor samples, and messages damaged from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ingest import formats
from ingest.change import Change, Hints, Message, Options, TableHints, TableId, describe
from ingest.errors import Undecodable

HERE = Path(__file__).parent
VENDOR = HERE.parents[2] / "shared" / "vendor-samples"
TYPES = "int8 uint64 decimal(10,2) float64 boolean date time datetime timestamp bit binary set json year string".split()
TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-0", b"1e999", b"9" * 30, b"{}", b"[[[["),
    *(b"\\u0001", b"\\ud800", b"\xff", b"\x00", b'"x"', b'"2020-13-45 25:61:61"', b"// x\n", b",}"),
)
VALUES = (
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    "",
    "null",
    "x" * 50,
    "2020-02-30 00:00:00",
    "1234",
    [],
    {},
    [{}],
    {"a": []},
)
ANY_TABLE = (("*", TableId("shop", None, "any")),)


def samples(name: str) -> list[bytes]:
    """Every golden message of a format, and the vendor's own where they are at hand."""
    cases = [p for p in sorted((HERE / name).glob("*.json")) if p.suffixes == [".json"]]
    return [p.read_bytes() for p in [*cases, *sorted((VENDOR / name).glob("*.json"))] if p.stat().st_size]


def damaged(name: str, count: int) -> Iterator[bytes]:
    """Messages with members replaced or lost, and with bytes replaced, lost or doubled."""
    rng = random.Random(name)  # the same on every run
    known = samples(name)
    parsed = [document for document in map(_parsed, known) if document is not None]
    for number in range(count):
        if number % 2:
            yield json.dumps(_changed(rng.choice(parsed), rng)).encode()
        else:
            yield _torn(bytearray(rng.choice(known)), rng)


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _changed(document: Any, rng: random.Random) -> Any:
    if isinstance(document, dict) and document:
        chosen = rng.choice(sorted(document))
        changed = dict(document)
        if rng.random() < 0.2:
            del changed[chosen]
        else:
            changed[chosen] = _changed(document[chosen], rng)
        return changed
    if isinstance(document, list) and document and rng.random() < 0.7:
        place = rng.randrange(len(document))
        return [*document[:place], _changed(document[place], rng), *document[place + 1 :]]
    return rng.choice(VALUES)


def _torn(raw: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(raw) + 1)
        end = place + rng.choice((0, 0, 1, 4, 30))
        raw[place:end] = rng.choice(
            (b"", bytes([rng.randrange(256)]), bytes(raw[place:end]) * 2, rng.choice(TOKENS))
        )
    return bytes(raw)


def declared(message: bytes) -> Hints:
    """Hints that declare a type for each column that the message may have, to reach every conversion."""
    words = sorted({word for word in message.decode("latin-1").split('"')[1::2] if word})
    columns = {word: TYPES[place % len(TYPES)] for place, word in enumerate(words)}
    return Hints(
        Options(table=ANY_TABLE, timezone="Asia/Shanghai"), lambda _table: TableHints(("id",), columns)
    )


def read(name: str, message: bytes | None, hints: Hints | None = None) -> list[Change]:
    """The changes of one message."""
    return list(formats.load(name).parse(Message(message, topic="t"), hints or Hints()))


def survives(name: str, count: int = 5000) -> tuple[int, int]:
    """How many damaged messages were decoded and how many refused; anything else is an exception."""
    decoded = refused = 0
    for message in damaged(name, count):
        formats.load(name).recognise(message)
        for hints in (Hints(Options(table=ANY_TABLE)), declared(message)):
            try:
                json.dumps([describe(change) for change in read(name, message, hints)]).encode("utf-8")
                decoded += 1
            except Undecodable:
                refused += 1
    return decoded, refused
