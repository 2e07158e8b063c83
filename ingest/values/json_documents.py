"""Exact JSON: objects member by member, row images, and the slow and careful way for whatever is unusual.

Fast decoders take the last of two equal names and a float for a number.  So each result is encoded again,
and only one of the same length passes; all others go to `strict`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ingest.change import Image
from ingest.errors import Undecodable

Raw = msgspec.Raw
Scalar = str | None

_encode = msgspec.json.encode
_members = msgspec.json.Decoder(dict[str, Raw])
_texts = msgspec.json.Decoder(dict[str, str | None])
_items = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)


class Number(str):
    """A JSON number's own text."""

    __slots__ = ()


_anything = msgspec.json.Decoder(dict[str, Any], float_hook=Number)


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """One level of a JSON object, each value as its own bytes.

    Raises:
        Undecodable: not an object, malformed, or a name that occurs twice (``duplicate-key``).
    """
    try:
        by_name = _members.decode(raw)
    except Exception as error:
        raise _malformed(raw, error) from None
    if len(_encode(by_name)) != _length(raw):
        strict(raw)  # shorter: spaces or escapes, which are harmless, or a name given twice, which is refused
    return by_name


def opened(raw: bytes) -> tuple[dict[str, Raw], str | None]:
    """One message's top level, with a note if it could be read only after `lenient` repaired it.

    Raises:
        Undecodable: ``not-this-format`` for JSON that is not an object, else as `members`.
    """
    try:
        return members(raw), None
    except Undecodable as error:
        if error.code != "bad-json":
            raise
        repaired = lenient(raw)
        if repaired != raw:
            return members(repaired), "lenient: comments or trailing commas were dropped"
        if raw.lstrip()[:1] not in (b"{", b""):
            with suppress(Undecodable):
                strict(raw)
                error = Undecodable("not-this-format", "the message is JSON, but not an object")
        raise error from None


def peeked(sample: bytes) -> dict[str, Raw]:
    """The members of a sample; none where it is not a JSON object."""
    try:
        return opened(sample)[0]
    except Undecodable:
        return {}


def image(raw: bytes | Raw) -> Image:
    """A JSON object as a row image: strings as they are, numbers and booleans as their text.

    Nested objects and arrays become compact JSON text.
    """
    try:
        texts = _texts.decode(raw)
    except msgspec.ValidationError:
        return bare_image(raw)
    except Exception as error:
        raise _malformed(raw, error) from None
    if len(_encode(texts)) != _length(raw):
        strict(raw)
    return texts


def bare_image(raw: bytes | Raw) -> Image:
    """The same as `image`, faster for dialects that send bare numbers and slower for the others."""
    usual = usual_image(raw)
    return _slow_image(bytes(raw)) if usual is None else usual


def usual_image(raw: bytes | Raw, *inner: str) -> dict[str, Any] | None:
    """A JSON object as texts, with those members that are named as objects of texts, in one pass; None if it is unusual.

    Unusual are spaces, escapes, a name given twice, -0, and other objects and lists: the careful way judges them.
    """
    data = bytes(raw)
    try:
        values = _anything.decode(data)
        bare = _make_texts(values, inner)
    except Exception:
        return None
    return values if len(_encode(values)) == len(data) + bare else None


def _make_texts(values: dict[str, Any], inner: tuple[str, ...] = ()) -> int:
    """Make the values of an object texts, in place; the number of quotes that were not there before."""
    bare = 0
    for name, value in values.items():
        kind = type(value)
        if kind is str or value is None:
            continue
        if kind is dict and name in inner:
            bare += _make_texts(value)
        else:
            values[name] = str(value) if kind is int or kind is Number else _bare_text(value)
            bare += 2
    return bare


def _slow_image(raw: bytes) -> Image:
    return {name: text(value) for name, value in members(raw).items()}


def _bare_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    raise TypeError("nested")


def optional_image(raw: Raw | None) -> Image | None:
    """The same as `bare_image`; None for null and for a missing member."""
    return None if raw is None or is_null(raw) else bare_image(raw)


def image_of(raw: Raw | None) -> Image:
    """The same; empty for null and for a missing member."""
    return optional_image(raw) or {}


def names(raw: Raw | None) -> tuple[str, ...]:
    """A list of names; none for null and for a missing member."""
    if raw is None or is_null(raw):
        return ()
    return tuple(name for name in map(text, items(raw)) if name)


def member_text(envelope: Mapping[str, Raw], name: str) -> Scalar:
    """One member as `text`; None if it is missing."""
    raw = envelope.get(name)
    return None if raw is None else text(raw)


def items(raw: bytes | Raw) -> list[Raw]:
    """The elements of a JSON array, each as its own bytes."""
    try:
        return _items.decode(raw)
    except Exception as error:
        raise _malformed(raw, error) from None


def text(raw: bytes | Raw) -> Scalar:
    """One JSON value as text or None: the string itself, or the number's, boolean's, object's text."""
    data = bytes(raw)
    first = data[:1]
    if first == b'"':
        return string(raw)
    if first == b"n":
        return None
    if first in b"{[":
        return compact(data)
    return data.decode("ascii")


def string(raw: bytes | Raw) -> str:
    """One JSON string, decoded."""
    try:
        return _string.decode(raw)
    except Exception as error:
        raise _malformed(raw, error) from None


def is_null(raw: bytes | Raw | None) -> bool:
    """True for a missing member and for JSON null."""
    return raw is None or bytes(raw) == b"null"


def compact(raw: bytes) -> str:
    """A JSON object or array as compact text, its numbers kept to the last digit."""
    return compacted(strict(raw)).decode()


def compacted(value: Any) -> bytes:
    """A list or an object as compact JSON, its numbers to the last digit."""
    return _encode(value, enc_hook=lambda number: Raw(str(number).encode()))


def strict(raw: bytes | Raw) -> Any:
    """Any JSON document as Python values, numbers as `Number`, no name twice, no NaN.

    The slow and careful way: for control members and for what the fast decoders refuse.
    """
    data = bytes(raw)
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(data, error) from None
    try:
        value = json.loads(
            decoded,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise _malformed(data, error) from None
    if "\\u" in decoded:
        try:
            _encode(value, enc_hook=str)  # str: a Number is not plain text to msgspec
        except UnicodeEncodeError:
            raise Undecodable("bad-unicode", "a lone surrogate is not a character") from None
    return value


def lenient(raw: bytes) -> bytes:
    """Replace what documents print and machines do not send, ``//`` comments and trailing commas, by spaces.

    Returns the input itself where there is nothing of the kind. Strings are left alone, and every byte
    keeps its place.
    """
    return _LENIENT.sub(lambda match: match[1] or b" " * len(match[0]), raw)


_LENIENT = re.compile(rb'("(?:[^"\\]++|\\.)*+"?)|//[^\r\n]*|,(?=(?:\s|//[^\r\n]*)*+[}\]])', re.DOTALL)
"""Strings (kept), comments and trailing commas.

A string without its end is a string, too: else each escaped quote in it is tried as the start of one.
"""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise Undecodable("duplicate-key", f"the name {twice!r} occurs twice in one JSON object")
    return document


def _refuse_constant(name: str) -> None:
    raise Undecodable("bad-json", f"{name} is not a JSON value")


def _length(raw: bytes | Raw) -> int:
    return len(raw) if type(raw) is bytes else len(memoryview(raw))


_NAMED = "send it unpacked, or end the file's name in {}"
_PACKED = {
    b"\x1f\x8b": ("gzip", _NAMED.format("`.gz`")),
    b"BZh": ("bzip2", _NAMED.format("`.bz2`")),
    b"\x28\xb5\x2f\xfd": ("zstd", _NAMED.format("`.zst`")),
    b"\xfd7zXZ": ("xz", "send it unpacked"),
    b"PK\x03\x04": ("zip", "send it unpacked"),
}
"""What is not JSON but holds some, by its first bytes, and what to do."""


def _malformed(raw: bytes | Raw, error: BaseException) -> Undecodable:
    if isinstance(error, Undecodable):
        return error
    if isinstance(error, RecursionError):
        return Undecodable("too-deep", "the JSON is nested too deeply")
    for head, (kind, advice) in _PACKED.items():
        if bytes(raw).startswith(head):
            return Undecodable("bad-utf8", f"it begins as {kind} data: {advice}")
    if 3 * bytes(raw).count(0) > len(bytes(raw)):
        return Undecodable("bad-utf8", "every other byte is zero, as in UTF-16: it must be written in UTF-8")
    if isinstance(error, UnicodeDecodeError):
        return Undecodable("bad-utf8", f"byte {error.start} is not UTF-8")
    if bytes(raw)[:3] == b"\xef\xbb\xbf":
        return Undecodable("bad-json", "the message starts with a byte order mark")
    return Undecodable("bad-json", str(error))
