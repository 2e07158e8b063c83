"""Every regular expression of the product, and texts made to keep each of them busy.

Patterns are found in the source, so a new one is tried without being listed. Texts are made from the
pattern itself: the shortest text that each part of it takes, repeated, after the shortest text that
each beginning of it takes, with and without an end that takes nothing.
"""

from __future__ import annotations

import ast
import collections
import importlib
import itertools
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any, NamedTuple

from tests.timing import is_within

PACKAGE = Path(__file__).parents[1] / "ingest"
FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
SPARK = {"rlike": 0, "regexp_extract": 1, "regexp_extract_all": 1, "regexp_replace": 1, "regexp_like": 1}
"""Spark's functions of a regular expression, and which argument it is."""

COMMON = ("(", ")", "[", "{", '"', "'", "\\", '\\"', "\\'", " ", "1", "a", "/*", "//", ",", "://:", "${")
"""What is repeated after each beginning, whatever the pattern."""

SMALL, LARGE = 2_000, 250_000  # characters
BUSY = 0.01  # seconds for a small text, above which its growth is measured
SECONDS = 3.0  # of processor time for a large one on a busy machine; the square of its length takes minutes
ENDLESS = 4.0  # seconds of it after which any text is given up

_MAY_HAVE = re.compile(r"\bre\.[a-z]|\.rlike|regexp_")


class Pattern(NamedTuple):
    """One regular expression: where it is, how it is written there, and the methods it is used with."""

    where: str
    module: str
    written: ast.expr
    flags: ast.expr | None
    methods: tuple[str, ...]

    def compiled(self) -> re.Pattern[Any]:
        """The pattern as the module compiles it; Java's end of text as Python's.

        Raises:
            NameError: it is put together from something that only a call knows.
        """
        known = vars(importlib.import_module(self.module))
        pattern, flags = (
            eval(compile(ast.Expression(each), "<pattern>", "eval"), dict(known)) if each is not None else 0
            for each in (self.written, self.flags)
        )
        return re.compile(pattern.replace(r"\z", r"\Z") if isinstance(pattern, str) else pattern, flags)


class Slow(Exception):
    """A text that keeps a pattern busy for longer than it should."""


# --- where the patterns are ---------------------------------------------------------------------


def files() -> list[str]:
    """The files that may have patterns; parsing them all takes seconds, which every collection of tests would pay."""
    texts = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return [str(path.relative_to(PACKAGE.parent)) for path, text in texts.items() if _MAY_HAVE.search(text)]


@cache
def patterns() -> tuple[Pattern, ...]:
    """All of them, in the order of the files."""
    files = {
        path: list(ast.walk(ast.parse(path.read_text("utf-8")))) for path in sorted(PACKAGE.rglob("*.py"))
    }
    used = _methods(itertools.chain.from_iterable(files.values()))
    return tuple(pattern for path, nodes in files.items() for pattern in _of(path, nodes, used))


def _of(path: Path, nodes: list[ast.AST], used: dict[str, set[str]]) -> Iterator[Pattern]:
    file = path.relative_to(PACKAGE.parent)
    module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    names = {id(node.value): _name(node) for node in nodes if isinstance(node, ast.Assign)}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        where, function = f"{file}:{node.lineno}", getattr(node.func, "attr", "")
        if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "re":
            if function in FUNCTIONS:
                methods = used.get(names.get(id(node), ""), set()) if function == "compile" else {function}
                yield Pattern(where, module, node.args[0], _flags(node, function), tuple(sorted(methods)))
        elif function in SPARK:
            yield Pattern(where, module, node.args[SPARK[function]], None, ("search",))


def _name(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _flags(node: ast.Call, function: str) -> ast.expr | None:
    given = {word.arg: word.value for word in node.keywords}.get("flags")
    place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(function, 2)
    return given or (node.args[place] if len(node.args) > place else None)


def _methods(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """With which methods each name of a pattern is used anywhere."""
    by_name: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS:
            owner = node.value
            if name := getattr(owner, "attr", getattr(owner, "id", "")):
                by_name.setdefault(name, set()).add(node.attr)
    return by_name


# --- texts made from a pattern ------------------------------------------------------------------


def hostile(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], Any]]:
    """Texts as functions of their length: a beginning, something repeated, and an end that fits nothing."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    parts = list(dict.fromkeys(_samples(tree)))
    repeated = [*dict.fromkeys(part for part in parts if part)][:8]
    pairs = ["".join(two) for two in itertools.permutations(repeated[:3], 2)]
    begins = [*dict.fromkeys(["", *(_text(tree[:end]) for end in range(1, len(tree) + 1))])][:4]
    ends = ("", "\0")
    is_bytes = isinstance(pattern.pattern, bytes)
    for begin, again, end in itertools.product(begins, dict.fromkeys([*COMMON, *repeated, *pairs]), ends):
        yield lambda size, b=begin, a=again, e=end: _sized(b, a, e, size, is_bytes)


def _sized(begin: str, again: str, end: str, size: int, is_bytes: bool) -> Any:
    text = begin + again * (size // len(again)) + end
    return text.encode("latin-1", "replace") if is_bytes else text


def _samples(tree: Any) -> Iterator[str]:
    """The shortest text of each part, of each run of parts, and of each part within."""
    items = list(tree)
    for place, (code, given) in enumerate(items):
        yield _text(items[place : place + 1])
        yield _text(items[: place + 1])
        yield _text(items[place:])
        for inner in _inside(code, given):
            yield from _samples(inner)


def _inside(code: Any, given: Any) -> Iterator[Any]:
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        yield given[2]
    elif code is codes.SUBPATTERN:
        yield given[3]
    elif code is codes.BRANCH:
        yield from given[1]
    elif code in (codes.ASSERT, codes.ASSERT_NOT):
        yield given[1]
    elif code is codes.ATOMIC_GROUP:
        yield given


def _text(items: Any) -> str:
    """A short text that a run of parts takes; a part that may be missing is there once."""
    return "".join(itertools.chain.from_iterable(_one(code, given) for code, given in items))


def _one(code: Any, given: Any) -> Iterator[str]:
    if code is codes.LITERAL:
        yield chr(given)
    elif code is codes.NOT_LITERAL:
        yield "a" if given != ord("a") else "b"
    elif code is codes.IN:
        yield _member(given)
    elif code is codes.ANY:
        yield "a"
    elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        yield _text(given[2]) * max(1, min(given[0], 4))
    elif code is codes.BRANCH:
        yield _text(given[1][0])
    elif code in (codes.SUBPATTERN, codes.ATOMIC_GROUP):
        yield _text(given[3] if code is codes.SUBPATTERN else given)


_CHARACTERS = (codes.LITERAL, codes.RANGE)


def _member(given: Any) -> str:
    tried = "a1 (\"'[{\\/.,:-xZ_\n" if given[0][0] is codes.NEGATE else ""
    matcher = re.compile("[" + "".join(map(_class, given)) + "]")
    named = (
        chr(item) if code is codes.LITERAL else chr(item[0]) for code, item in given if code in _CHARACTERS
    )
    candidates = (*tried, *(chr(number) for number in range(32, 256)), "\n", "\t", "\ud800", *named)
    return next(char for char in candidates if matcher.match(char))


def _class(item: Any) -> str:
    code, given = item
    if code is codes.NEGATE:
        return "^"
    if code is codes.RANGE:
        return "-".join(re.escape(chr(end)) for end in given)
    if code is codes.LITERAL:
        return re.escape(chr(given))
    return {codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_WORD: r"\w",
            codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_NOT_WORD: r"\W"}[given]  # fmt: skip


# --- time ---------------------------------------------------------------------------------------


def check(pattern: re.Pattern[Any], methods: tuple[str, ...] = ()) -> None:
    """Use the pattern on hostile texts: see `check_use`."""
    for method in methods or ("fullmatch", "finditer"):
        check_use(partial(_used, pattern, method), hostile(pattern), method)


def check_use(use: Callable[[Any], object], texts: Iterable[Callable[[int], Any]], what: str) -> None:
    """Use all texts when they are small, and the slowest one when it is large.

    Raises:
        Slow: the time for a text grows faster than its length.
    """
    slowest = max(texts, key=lambda text: _growing(use, text, what))
    large = slowest(LARGE)
    if not is_within(SECONDS, lambda: _seconds(use, large)):
        raise Slow(f"{what}: more than {SECONDS} s for {LARGE:,} characters of {slowest(40)!r}")


def _growing(use: Callable[[Any], object], text: Callable[[int], Any], what: str) -> float:
    taken = _seconds(use, text(SMALL))
    if taken > BUSY:  # or the machine was
        for _ in range(3):
            once, twice, four = (_seconds(use, text(times * SMALL)) for times in (1, 2, 4))
            if four <= 8 * once:
                break
        else:
            raise Slow(f"{what}: {once:.3f}, {twice:.3f}, {four:.3f} s for n, 2n, 4n of {text(40)!r}")
        taken = once
    return taken


def _seconds(use: Callable[[Any], object], text: Any) -> float:
    with _ending(text):
        started = time.process_time()
        use(text)
        return time.process_time() - started


def _used(pattern: re.Pattern[Any], method: str, text: Any) -> None:
    if method in ("sub", "subn"):
        pattern.sub(text[:0], text)
    elif method in ("finditer", "findall", "split", "search"):
        collections.deque(pattern.finditer(text), maxlen=0)
    else:
        getattr(pattern, method)(text)


@contextmanager
def _ending(text: Any) -> Iterator[None]:
    """End what would take for ever."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Slow(f"more than {ENDLESS} s for {len(text)} of {text[:40]!r}")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, ENDLESS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
