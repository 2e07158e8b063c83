"""Whether a text quotes given values, in whatever form the product and its libraries write them.

A text may escape a value several times over (a key as JSON in a list that is JSON, a command for a shell within a
sentence, a page in HTML), may cut it after some characters, and may print a number or a time in another form.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

LONG = 4  # characters from which a value is looked for anywhere; shorter ones are looked for as words
SURE = 8  # characters from which a value is hardly another row's, or a word of a sentence
_SEEN = 6  # characters of a value that is cut, from which a search finds it
_LAYERS = 6  # of escapes
_CUT = 2_000  # characters of which a text at its limit may end within a value
_SHOWN = 200  # characters of a value that is cut, at most
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HALF_ESCAPE = re.compile(r"(?<!\\)\\++(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?\Z")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d+)?")
_IN_SHELL = ("'\"'\"'", "'")
_IN_SQL = ("''", "'")


@dataclass(frozen=True, slots=True)
class Quotes:
    """What finds some rows' keys and cells in a text.

    Args:
        keys: texts of keys, which are found as words.
        cells: texts of other cells: those of some length are found anywhere, shorter ones as words, and single
            characters and short numbers only where they are quoted.
    """

    keys: Collection[str]
    cells: Collection[str]
    _pattern: re.Pattern[str] = field(init=False)
    _sure: re.Pattern[str] = field(init=False)
    _numbers: frozenset[Decimal] = field(init=False)
    _heads: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        every = {form for text in (*self.keys, *self.cells) if text for form in _forms(text)}
        cells = {form for text in self.cells if text for form in _forms(text)}
        parts = [_as_word(text) for text in self.keys if text] + [_as_cell(text) for text in cells]
        sure = [re.escape(text) for text in every if len(text) >= SURE]
        heads: dict[str, list[str]] = {}
        for text in every:
            if len(text) > LONG:
                heads.setdefault(text[:LONG], []).append(text)
        numbers = filter(None, (_number(text) for text in self.cells if len(text) >= LONG))
        object.__setattr__(self, "_pattern", _any_of(parts))
        object.__setattr__(self, "_sure", _any_of(sure))
        object.__setattr__(self, "_numbers", frozenset(numbers))
        object.__setattr__(self, "_heads", heads)

    def found_in(self, text: str | None) -> bool:
        """True if a text about the rows' table quotes one of them."""
        return text is not None and any(
            self._pattern.search(layer) or self._has_number(layer) or self._is_cut(layer)
            for layer in layers(text)
        )

    def surely_in(self, text: str | None) -> bool:
        """True if a text about anything holds one of the longer values, whole or cut."""
        return text is not None and any(
            self._sure.search(layer) or self._is_cut(layer, SURE) for layer in layers(text)
        )

    def is_cut_in(self, text: str) -> bool:
        """True if a text holds the beginning of one of the values, cut after some characters."""
        return any(self._is_cut(layer, _SEEN) for layer in layers(text))

    def is_number_of(self, number: float | None) -> bool:
        """True if a number is that of a cell, of whatever length."""
        return number is not None and any(_same(text, number) for text in (*self.keys, *self.cells))

    def _has_number(self, text: str) -> bool:
        return bool(self._numbers) and any(
            _number(number) in self._numbers for number in _NUMBER.findall(text)
        )

    def _is_cut(self, text: str, least: int = LONG) -> bool:
        """True if a value begins before a mark of cutting, or at the end of a text that is as long as one may be."""
        ends = [cut.start() for cut in re.finditer("…|\\.\\.\\.", text)]
        if len(text) >= _CUT - _SHOWN:
            ends.append(len(text))
        return any(
            self._begins_before(_HALF_ESCAPE.sub("", text[max(0, end - _SHOWN) : end]), least) for end in ends
        )

    def _begins_before(self, shown: str, least: int) -> bool:
        for start in range(len(shown) - least + 1):
            for value in self._heads.get(shown[start : start + LONG], ()):
                if value.startswith(shown[start:]):
                    return True
        return False


def layers(text: str) -> Iterator[str]:
    """A text as it is, and with one layer of escapes after the other taken off."""
    seen = {text}
    yield text
    waiting = [text]
    for _ in range(_LAYERS):
        waiting = [bared for text in waiting for bared in dict.fromkeys(_bared(text)) if bared not in seen]
        if not waiting:
            return
        seen.update(waiting)
        yield from waiting


def _bared(text: str) -> Iterator[str]:
    """A text without one layer of escapes of each kind that it has."""
    if "\\" in text:
        plain = _ESCAPE.sub(_character, text)
        yield _SURROGATES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), plain)
    if "&" in text:
        yield html.unescape(text)
    for written, plain in (_IN_SHELL, _IN_SQL):
        if written in text:
            yield text.replace(written, plain)


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _PLAIN.get(match[3], match[3])


def _forms(text: str) -> Iterator[str]:
    """A value as it is, and a time as a mirror and a sentence write it."""
    yield text
    if re.match(r"\d{4}-\d\d-\d\dT\d\d:", text):
        spaced = text.replace("T", " ")
        yield spaced
        yield spaced.removesuffix("Z")


def _as_word(text: str) -> str:
    return rf"(?<!\w){re.escape(text)}(?!\w)"


def _as_cell(text: str) -> str:
    """How a cell is looked for: a short one must be a word, or quoted, so that not every sentence is taken for one."""
    if len(text) >= LONG or not text.isascii():
        return re.escape(text)
    if len(text) == 1 or _number(text) is not None:
        return rf"""(?<=['"]){re.escape(text)}(?=['"])"""
    return _as_word(text)


def _any_of(parts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(sorted({*parts}, key=len, reverse=True)) or r"(?!)")


def _number(text: str) -> Decimal | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None


def _same(text: str, number: float) -> bool:
    try:
        return float(text) == number
    except ValueError:
        return False
