"""Messages damaged on purpose, over all formats: each must be decoded or refused with a reason, in time.

The corpus is every golden and the messages of random histories. A chunk of damaged messages is drawn from
its own name, so that whatever one finds is found again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

from ingest import formats, types
from ingest.change import Change, Hints, Message, Options, TableHints, TableId, describe
from ingest.errors import Undecodable
from tests.formats import golden
from tests.formats.one_history.history import TYPES, history
from tests.formats.one_history.test_one_history import DIALECTS

HISTORIES = 12
LARGE = 100  # one of so many messages has 100 KB to 1 MB, and most of these are cut off
ANY_TABLE = Options(table=(("*", TableId("shop", None, "any")),), timezone="Asia/Shanghai")
OPTIONS = (
    ANY_TABLE,
    replace(ANY_TABLE, decimal_scale=2),
    replace(ANY_TABLE, swap_old_data=True, binary="hex", timezone="America/New_York"),
)
LOGICAL = sorted({*TYPES.values(), *types.LOGICAL, "decimal(10,2)"})


class Known(NamedTuple):
    """One message that decodes, and what its source says."""

    message: Message
    hints: Hints


@dataclass(slots=True)
class Outcome:
    """What became of damaged messages; ``escapes`` are those that neither decoded nor were refused."""

    decoded: int = 0
    refused: int = 0
    slowest: float = 0.0  # seconds of processor time of one call: to decode, or to recognise
    slowest_large: float = 0.0  # of messages of 100 KB to 1 MB
    escapes: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Take over another outcome's counts."""
        self.decoded += other.decoded
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.slowest_large = max(self.slowest_large, other.slowest_large)
        self.escapes += other.escapes


def tried(name: str, chunk: int, count: int, large_of: int = LARGE) -> Outcome:
    """One chunk of damaged messages of a format, decoded or refused; one of ``large_of`` is large."""
    random = Random(f"{name}/{chunk}")
    module = formats.load(name)
    found = Outcome()
    known = corpus(name)
    for number in range(count):
        each = random.choice(known)
        is_large = random.randrange(large_of) == 0
        if is_large:
            value = large(each.message.value or b"", random)
        else:
            value = damaged(each.message.value or b"", random.choice(known).message.value or b"", random)
        hints = each.hints if number % 3 else _declared(each.hints, value, random)
        key = each.message.key
        if key and number % 4 == 0:
            key = damaged(key, value, random)
        started = time.process_time()
        try:
            changes = list(module.parse(each.message._replace(value=value, key=key), hints))
            json.dumps([describe(change) for change in changes], ensure_ascii=False).encode()
            found.escapes += _strange(changes, name, value)
            found.decoded += 1
        except Undecodable as error:
            found.refused += 1
            if not error.code or not error.detail:
                found.escapes.append(f"{name}: no reason for {value!r:.2000}")
        except Exception as error:
            found.escapes.append(f"{name}: {type(error).__name__}: {error}: {value!r:.2000}")
        took = time.process_time() - started
        if is_large or number % 2 == 0:
            started = time.process_time()
            found.escapes += _recognised(name, value)
            took = max(took, time.process_time() - started)
        if is_large:
            found.slowest_large = max(found.slowest_large, took)
        else:
            found.slowest = max(found.slowest, took)
    return found


def _recognised(name: str, value: bytes) -> Iterator[str]:
    try:
        formats.evidence(name, value)
    except Exception as error:
        yield f"{name}, recognise: {type(error).__name__}: {error}: {value!r:.2000}"


def _strange(changes: list[Change], name: str, value: bytes) -> Iterator[str]:
    """Changes whose images hold anything but texts and nulls."""
    for change in changes:
        for image in (change.before, change.after):
            if image and not all(type(k) is str and (v is None or type(v) is str) for k, v in image.items()):
                yield f"{name}: an image holds more than texts, which no encoder takes: {value!r:.2000}"


@cache
def corpus(name: str) -> tuple[Known, ...]:
    """The goldens of a format, and the messages of histories as its dialects write them."""
    found = [golden_case(case) for case in golden.cases() if case.parent.name == name]
    for dialect in DIALECTS.values():
        if dialect.format == name:
            for seed in range(HISTORIES):
                found += [Known(message, dialect.hints) for message in dialect.write(history(seed))]
    return tuple(each for each in found if each.message.value)


def golden_case(case) -> Known:
    """A golden's message and hints."""
    return Known(*golden.message(case))


def _declared(hints: Hints, value: bytes, random: Random) -> Hints:
    """Hints that give columns types which they do not have, to reach every conversion."""
    words = {word.decode() for word in re.findall(rb'"(\w{1,30})"', value[:20_000])}
    columns = {name: random.choice(LOGICAL) for name in sorted({*words, *TYPES})}
    return Hints(random.choice(OPTIONS), lambda _table: TableHints(("id",), columns), hints.schema)


# --- damage -------------------------------------------------------------------------------------

NESTED = b"[" * 5000 + b"]" * 5000
DEEP = b'{"a":' * 300 + b"1" + b"}" * 300
NUMBERS = (
    *(
        b"1e999999999",
        b"-1e-999999999",
        b"9" * 5000,
        b"0." + b"0" * 3000 + b"1",
        b"-0",
        b"1E400",
        b"NaN",
        b"Infinity",
    ),
    *(b"18446744073709551616", b"-9223372036854775809", b"253402300800000000", b"00", b"1.", b"+1", b"0x1F"),
)
TOKENS = (
    *(
        b"null",
        b"true",
        b"{}",
        b"[]",
        b'""',
        b"[[[[",
        b'{"a":{"a":1}}',
        b'"a":1,"a":2,',
        b"// x\n",
        b",}",
        b"\\u0000",
    ),
    *(
        b"\\ud800",
        b"\\udc00\\ud800",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\x00",
        b"\xef\xbb\xbf",
        b"\r\n{}",
    ),
    *(b'"2020-13-45 25:61:61"', b'"0000-00-00"', b'"99999-01-01"', b'"-838:59:60"', b'"[106,]"', b'"====="'),
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-", b"//", b"9" * 400, b'"x"', b"0.5", b"1e5"),
)
VALUES = (
    *(None, True, 0, -1, 1.5, 10**30, 10**4000, "", "x", "null", "x" * 50, "1234", "\ud800", "\ufffd"),
    *([], {}, [[]], [None], [{}], [1], ["a", "b"], {"a": {}}, {"a": []}, {"no": "timestamp"}),
    *("2020-02-30 00:00:00", "0000-00-00 00:00:00", "9999-12-31 23:59:59", "0001-01-01 00:00:00"),
    *(
        "1e999999999",
        "-9" * 40,
        "9" * 5000,
        "[1, -200]",
        "UPDATE",
        "DELETE",
        "INIT",
        "TRUNCATE",
        "truncate t",
    ),
)
"""What a member of another kind may hold."""
TEXTS = (
    rb"{\"name\":\"a \\\"quoted\\\" name\",\"path\":\"C:\\\\temp\\\\\"},",
    rb"\u0434\ud83d\ude00\n\t\/",
    rb"\\",
    "\u0442\u0435\u043a\u0441\u0442, \u9577\u3044\u6587 \U0001f600 ".encode(),
    b"words // and /* no comment */, [1] {2} (3) ",
    b"%s${x}''`--\n",
    b"12345678",
)
"""What a long TEXT column may hold, as it is written inside a string of JSON."""
Damage = Callable[[bytearray, bytes, Random], None]


def damaged(value: bytes, other: bytes, random: Random) -> bytes:
    """A message with one to three wounds; ``other`` is one to splice with."""
    torn = bytearray(value)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(_DAMAGES)(torn, other, random)
    return bytes(torn[:200_000])


def large(value: bytes, random: Random) -> bytes:
    """A message with a cell, or a name, of 100 KB to 1 MB, cut off inside it or whole."""
    strings = [found.span() for found in re.finditer(rb'"(?:[^"\\]|\\.)*+"', value[:20_000])]
    place = random.randrange(len(value) + 1)
    start, end = random.choice(strings) if strings else (place, place)
    size = int(10 ** random.uniform(5, 6))
    kind = random.choice(_LONG)
    return value[:start] + kind(size, random) + (value[end:] if kind is _whole else b"")


def _text(size: int, random: Random) -> bytes:
    """A long text as JSON writes it, without its closing quote."""
    parts = random.sample(TEXTS, random.randrange(1, len(TEXTS)))
    return b'"' + (b"".join(parts) * (size // len(b"".join(parts)) + 1))[:size]


def _whole(size: int, random: Random) -> bytes:
    part = random.choice(TEXTS)
    return b'"' + part * (size // len(part)) + b'"'


def _in_an_escape(size: int, random: Random) -> bytes:
    return _text(size, random) + random.choice((b"\\", b"\\\\", b"\\u", b"\\u00", b"\\ud83d", b"\\ud83d\\u"))


def _after_a_backslash(size: int, random: Random) -> bytes:
    text = _text(size, random) + TEXTS[0]
    return text[: text.rindex(b"\\") + 1]


def _in_a_character(size: int, random: Random) -> bytes:
    character = random.choice(("\u0436", "\u8a9e", "\U0001f600")).encode()
    return _text(size, random) + character[: random.randrange(1, len(character))]


def _in_a_number(size: int, random: Random) -> bytes:
    before = random.choice((b"[", b"", b'{"n":'))
    part = random.choice((b"1.5,", b"-12e3, ", b"9", b"0.0", b'1,"n":'))
    return before + part * (size // len(part)) + random.choice((b"1", b"-", b"1.", b"1e", b"1e+"))


def _in_brackets(size: int, random: Random) -> bytes:
    part = random.choice(
        (b"[", b'{"a":', b'[{"a":[', b"[1,", b"[[],", b"{},", b",", b" ", b"//\n", b"(", b"\x02")
    )
    return part * (size // len(part))


_LONG = (_whole, _text, _in_an_escape, _after_a_backslash, _in_a_character, _in_a_number, _in_brackets)


def _flip(torn: bytearray, _other: bytes, random: Random) -> None:
    if torn:
        torn[random.randrange(len(torn))] ^= 1 << random.randrange(8)


def _cut(torn: bytearray, _other: bytes, random: Random) -> None:
    start = random.randrange(len(torn) + 1)
    del torn[start : random.choice((start + 1, start + 8, len(torn)))]


def _splice(torn: bytearray, other: bytes, random: Random) -> None:
    start, end = sorted((random.randrange(len(other) + 1), random.randrange(len(other) + 1)))
    place = random.randrange(len(torn) + 1)
    torn[place : place + random.choice((0, end - start))] = other[start:end]


def _token(torn: bytearray, _other: bytes, random: Random) -> None:
    place = random.randrange(len(torn) + 1)
    torn[place : place + random.choice((0, 1, 4))] = random.choice(TOKENS)


def _number(torn: bytearray, _other: bytes, random: Random) -> None:
    """Another number in the place of digits."""
    places = [found.span() for found in re.finditer(rb"\d+(?:\.\d+)?", bytes(torn[:20_000]))]
    start, end = random.choice(places) if places else (0, 0)
    torn[start:end] = random.choice(NUMBERS)


def _member(torn: bytearray, _other: bytes, random: Random) -> None:
    """A member given twice, or with a deep value, in one of the objects."""
    places = [found.end() for found in re.finditer(rb"\{", bytes(torn[:20_000]))]
    names = [*re.findall(rb'"(\w{1,30})"\s*:', bytes(torn[:20_000])), b""]
    value = random.choice((b"1", b'"x"', b"null", DEEP, NESTED if random.random() < 0.1 else b"{}"))
    if places:
        place = random.choice(places)
        torn[place:place] = b'"' + random.choice(names) + b'":' + value + b","


def _kinds(torn: bytearray, _other: bytes, random: Random) -> None:
    """Members that are lost, or have values of other kinds."""
    with suppress(ValueError, RecursionError):  # no JSON, or damaged already
        document = json.loads(bytes(torn))
        for _ in range(random.randint(1, 3)):
            document = _changed(document, random)
        torn[:] = json.dumps(document, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")


def _changed(node: Any, random: Random) -> Any:
    if isinstance(node, dict) and node and random.random() < 0.9:
        name = random.choice(sorted(node))
        kept = {other: value for other, value in node.items() if other != name}
        return kept if random.random() < 0.2 else {**node, name: _changed(node[name], random)}
    if isinstance(node, list) and node and random.random() < 0.7:
        place = random.randrange(len(node))
        return [*node[:place], _changed(node[place], random), *node[place + 1 :]]
    return random.choice(VALUES)


def _varint(torn: bytearray, _other: bytes, random: Random) -> None:
    place = random.randrange(len(torn) + 1)
    lengths = (b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\x01", b"\xfe\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x01")
    torn[place : place + random.choice((0, 1))] = random.choice(lengths)


_DAMAGES: tuple[Damage, ...] = (_flip, _cut, _splice, _token, _number, _member, _varint, *[_kinds] * 4)
