"""SQL text as tokens, comments gone: just enough lexing to find names, types and clauses.

Quirks that matter: MySQL executes the inside of ``/*! ... */`` (with or without a version), its
``"text"`` is a string, ``--`` starts a comment only before a space, and a name may begin with a
digit; Oracle has ``q'[text]'``; PostgreSQL has ``E'text'`` and ``$tag$text$tag$``; SQL Server has names
in ``[brackets]``.  Every pattern is possessive or runs to a fixed end, so that time grows with the length of the text and no faster.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ingest.change import TableId

MAX_LENGTH = 4_000_000
MAX_TOKENS = 250_000  # a table of 4,096 columns and 8,192 partitions has fewer


class Unread(Exception):
    """The statement cannot be read to its end; the text says why, for the ledger's reason.

    ``tables`` are those that it names and may have changed, where it was read as far as that.
    """

    tables: tuple[TableId, ...] = ()


class Token(NamedTuple):
    """``kind`` is word, name (quoted), string, bits, hex, number or symbol; ``text`` is decoded.

    A string of MySQL with the name of its character set before it is ``unicode`` if it may have other characters than ASCII's
    and the set is UTF-8, and ``encoded`` if the set is one in which its bytes may mean another text.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The upper-case word, or nothing for quoted names and everything else."""
        return self.text.upper() if self.kind == "word" else ""


_STRING = r"'(?:[^'\\]++|\\.|'')*+'"
_PLAIN_STRING = r"'(?:[^']|'')*+'"
_COMMON = r"""
  (?P<space>\s++)
| (?P<backtick>`(?:[^`]|``)*+`)
| (?P<number>[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?(?![\w$\#]))
| (?P<word>[\w$\#]++)
| (?P<symbol>::|[^\w\s'"`\x00])
"""
_LEXERS = {
    "mysql": re.compile(
        rf"""
  (?P<comment>\#[^\n]*+|--(?=\s|$)[^\n]*+|/\*(?!!|M!)(?s:.*?)\*/)
| (?P<hint>/\*M?![0-9]*+|\*/)
| (?P<bits>[bB]'[01]*+'|0b[01]++(?!\w))
| (?P<hex>[xX]'[0-9a-fA-F]*+'|0x[0-9a-fA-F]++(?!\w))
| (?P<introduced>_[A-Za-z0-9]++\s*+{_STRING})
| (?P<escaped>[nN]?{_STRING}|"(?:[^"\\]++|\\.|"")*+")
| {_COMMON}""",
        re.VERBOSE | re.DOTALL,
    ),
    "oracle": re.compile(
        rf"""
  (?P<comment>--[^\n]*+|/\*(?s:.*?)\*/)
| (?P<custom>[nN]?[qQ]'(?:\[.*?\]|\(.*?\)|\{{.*?\}}|<.*?>|(?P<mark>[^\[({{<\s]).*?(?P=mark))')
| (?P<open>[nN]?[qQ]')
| (?P<plain>[nN]?{_PLAIN_STRING})
| (?P<quoted>"(?:[^"]|"")*+")
| {_COMMON}""",
        re.VERBOSE | re.DOTALL,
    ),
    "postgres": re.compile(
        rf"""
  (?P<comment>--[^\n]*+|/\*(?s:.*?)\*/)
| (?P<escaped>[eE]{_STRING})
| (?P<bits>[bB]'[01]*+')
| (?P<hex>[xX]'[0-9a-fA-F]*+')
| (?P<plain>{_PLAIN_STRING})
| (?P<dollar>\$(?P<tag>\w*+)\$.*?\$(?P=tag)\$)
| (?P<open>\$\w*+\$)
| (?P<quoted>"(?:[^"]|"")*+")
| {_COMMON}""",
        re.VERBOSE | re.DOTALL,
    ),
    "sqlserver": re.compile(
        rf"""
  (?P<comment>--[^\n]*+|/\*(?s:.*?)\*/)
| (?P<hex>0x[0-9a-fA-F]*+(?!\w))
| (?P<money>\$[0-9]++(?:\.[0-9]{{0,4}}+)?(?![\w$\#.]))
| (?P<plain>[nN]?{_PLAIN_STRING})
| (?P<bracketed>\[(?:[^\]]|\]\])++\])
| (?P<open>\[)
| (?P<quoted>"(?:[^"]|"")*+")
| {_COMMON}""",
        re.VERBOSE | re.DOTALL,
    ),
    "db2": re.compile(
        rf"""
  (?P<comment>--[^\n]*+|/\*(?s:.*?)\*/)
| (?P<hex>[bB]?[xX]'[0-9a-fA-F]*+')
| (?P<plain>[nNgG]?{_PLAIN_STRING})
| (?P<quoted>"(?:[^"]|"")*+")
| {_COMMON}""",
        re.VERBOSE | re.DOTALL,
    ),
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def grammar_of(dialect: str) -> str:
    """The dialect whose words and signs a database has; MySQL's if it has none here, as TiDB and OceanBase."""
    return dialect if dialect in _LEXERS else "mysql"


def tokens(statement: str, dialect: str) -> list[Token]:
    """Every token of the text, in order; `Unread` for a quote or comment without an end, or a character of no token."""
    if len(statement) > MAX_LENGTH:
        raise Unread(f"the statement has more than {MAX_LENGTH} characters")
    if _SURROGATE.search(statement):
        raise Unread("the statement holds half a character (a lone surrogate)")
    scanned = list(itertools.islice(_scan(statement, _LEXERS[dialect]), MAX_TOKENS + 1))
    if len(scanned) > MAX_TOKENS:
        raise Unread(f"the statement has more than {MAX_TOKENS} words and signs")
    return scanned


def _scan(statement: str, lexer: re.Pattern[str]) -> Iterator[Token]:
    position, end = 0, len(statement)
    while position < end:
        match = lexer.match(statement, position)
        if match is None:
            raise Unread(f"character {position + 1} starts no token (a quote or a comment may lack its end)")
        start, position = position, match.end()
        kind = match.lastgroup or ""
        if kind == "open" or (kind == "symbol" and statement.startswith("/*", start)):
            raise Unread(f"the text or comment at character {start + 1} has no end")
        if kind not in ("space", "comment", "hint"):
            text = _decoded(kind, match.group())
            named = _introduced(match.group(), text) if kind == "introduced" else kind
            yield Token(_KINDS.get(named, named), text, start, position)


_KINDS = (
    dict.fromkeys(["escaped", "plain", "custom", "dollar"], "string")
    | dict.fromkeys(["backtick", "quoted", "bracketed"], "name")
    | {"money": "number"}
)


_UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4"})
_OF_ASCII = _UNICODE | {"ascii", "latin1"}
"""Character sets, without ``_``, in which the bytes of ASCII mean the same."""


def _introduced(written: str, text: str) -> str:
    """The kind of a string with the name of its character set before it."""
    charset = written[1 : written.index("'")].rstrip().lower()
    if text.isascii():
        return "string" if charset in _OF_ASCII else "encoded"
    return "unicode" if charset in _UNICODE else "encoded"


def _decoded(kind: str, text: str) -> str:
    if kind in ("backtick", "quoted"):
        return text[1:-1].replace(text[0] * 2, text[0])
    if kind == "bracketed":
        return text[1:-1].replace("]]", "]")
    if kind == "plain":
        return text[text.index("'") + 1 : -1].replace("''", "'")
    if kind == "custom":
        return text[text.index("'") + 2 : -2]
    if kind == "dollar":
        return text[text.index("$", 1) + 1 : text.rindex("$", 0, -1)]
    if kind in ("escaped", "introduced"):
        quote = text[-1]
        inside = text[text.index(quote) + 1 : -1]
        return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]) or match[0][0], inside)
    if kind == "money":
        return text[1:]
    if kind in ("bits", "hex"):
        return text[text.index("'") + 1 : -1] if text.endswith("'") else text[2:]
    return text


class Cursor:
    """A place in a list of tokens; every method that reads moves on."""

    __slots__ = ("at", "items")

    def __init__(self, items: Sequence[Token]) -> None:
        self.items = items
        self.at = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token here or further on; past the end a token that equals nothing."""
        at = self.at + ahead
        return self.items[at] if at < len(self.items) else _END

    def word(self, ahead: int = 0) -> str:
        """The upper-case word here or further on, or nothing."""
        return self.peek(ahead).word

    def accept(self, *words: str) -> bool:
        """Move past these words if they come next, in this order."""
        if all(self.word(i) == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def symbol(self, text: str) -> bool:
        """Move past this symbol if it comes next."""
        if self.is_symbol(text):
            self.at += 1
            return True
        return False

    def is_symbol(self, text: str, ahead: int = 0) -> bool:
        """True if this symbol comes next or later."""
        token = self.peek(ahead)
        return token.kind == "symbol" and token.text == text

    def next(self) -> Token:
        """The token here, which must exist."""
        token = self.peek()
        if token is _END:
            raise Unread("the statement ends too early")
        self.at += 1
        return token

    def group(self) -> Sequence[Token]:
        """The tokens inside the bracket that opens here; the place moves past its end."""
        if not self.symbol("("):
            raise Unread(f"an opening bracket is missing before {self.peek().text[:40]!r}")
        start, depth = self.at, 1
        while depth:
            token = self.next()
            if token.kind == "symbol":
                depth += (token.text == "(") - (token.text == ")")
        return self.items[start : self.at - 1]

    def patience(self) -> bool:
        """Move past ``WAIT n`` or ``NOWAIT``, which say how long a statement waits for a lock."""
        if self.accept("WAIT"):
            self.next()
            return True
        return self.accept("NOWAIT")

    def rest(self) -> Sequence[Token]:
        """All tokens from here on."""
        remaining = self.items[self.at :]
        self.at = len(self.items)
        return remaining

    @property
    def done(self) -> bool:
        return self.at >= len(self.items)


_END = Token("end", "", 0, 0)


_OPEN, _CLOSE = ("(", "["), (")", "]")  # PostgreSQL: ARRAY[1, 2]


def split(items: Sequence[Token], separator: str = ",") -> list[Sequence[Token]]:
    """The tokens between separators outside every bracket; empty parts are left out."""
    parts: list[Sequence[Token]] = []
    depth = start = 0
    for i, token in enumerate(items):
        if token.kind != "symbol":
            continue
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and token.text == separator:
            parts.append(items[start:i])
            start = i + 1
    parts.append(items[start:])
    return [part for part in parts if part]
