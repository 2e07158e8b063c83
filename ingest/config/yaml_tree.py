"""YAML 1.2 with positions: a tree of plain values, and where each of them is in the file.

Every scalar stays the text that the file shows (`Word`), so that ``1.10`` is not ``1.1`` and ``no``
is a column name; a field that wants a number reads the text.  ``${VAR}``, ``${VAR:-default}`` and
``${file:/path}`` are resolved here, after parsing and in values only, so that what they hold can
never become structure (``$${`` is a plain ``${``).  JSON is accepted, being YAML.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ingest.config import regular_files
from ingest.errors import ConfigError, command, first_line

Where = tuple[str | int, ...]
"""The way from the top of the file to a value: keys and list indexes."""

MAX_DEPTH = 40
MAX_VALUES = 200_000  # a handful of nested aliases can stand for more values than memory holds

_TAG = "tag:yaml.org,2002:"
SECRET = re.compile(
    r"passw|pwd|webhook|smtp|secret|token|jaas|credential|access.?key|account.?key|master.?key|api.?key|private|\bsas\b"
    r"|keystore\.(key|certificate)|truststore\.certificates|assertion|encryption\.key|basic\.auth",
    re.IGNORECASE,
)
_LARGEST = 1 << 20  # bytes of a file that a value is read from
_LARGEST_FILE = 4 << 20  # bytes of a pipeline file
_REFERENCE = re.compile(r"\$(\$\{[^}]*(?:\}|\Z))|\$\{([^}]*)(\}|\Z)")  # the first is an escaped one
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class Word(str):
    """An unquoted scalar: its text, and in ``value`` what YAML takes it for (number, boolean)."""

    __slots__ = ("value",)
    value: object


@dataclass(slots=True)
class Document:
    """A pipeline file read but not yet understood.

    ``places`` has the 1-based line and column of every key and list item, ``references`` the text as
    written of every value that holds ``${...}``, ``faults`` what is wrong with the YAML itself,
    ``unresolved`` those faults that another environment does not have.
    """

    file: Path
    tree: Any = None
    places: dict[Where, tuple[int, int]] = field(default_factory=dict)
    references: dict[Where, str] = field(default_factory=dict)
    faults: list[tuple[tuple[int, int], str]] = field(default_factory=list)
    unresolved: list[tuple[Where, str]] = field(default_factory=list)
    values: int = 0

    def place(self, where: Where) -> tuple[int, int]:
        """The position of a value, or of the nearest thing around it."""
        while where and where not in self.places:
            where = where[:-1]
        return self.places.get(where, (1, 1))

    def fault(self, where: Where, text: str) -> None:
        """Note one fault of the value at ``where``."""
        self.faults.append((self.place(where), text))

    def is_unresolved(self, where: Where, text: str) -> None:
        """Note that a reference in the value at ``where`` does not resolve here."""
        self.fault(where, text)
        self.unresolved.append((where, text))

    def problems(self) -> list[str]:
        """All faults in the order of the file, each once, as ``file:line:col text``."""
        ordered = sorted(set(self.faults))
        return [f"{self.file}:{line}:{column} {text}" for (line, column), text in ordered]


def read(path: Path) -> Document:
    """Read a file into a `Document`; a `ConfigError` unless it is YAML in UTF-8 with a mapping at the top."""
    document = Document(path)
    node = _compose(path, _text(path))
    if not isinstance(node, MappingNode):
        what = "a list" if isinstance(node, SequenceNode) else "a single value"
        raise ConfigError(
            [f"{path}:1:1 the file holds {what}; it must hold keys such as pipeline: and sources:"]
        )
    document.tree = _build(document, node, ())
    return document


def _text(path: Path) -> str:
    try:
        data = regular_files.data_of(path, _LARGEST_FILE)
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file; `{command('init', path)}` writes one"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a folder; name the pipeline file in it"]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError([f"{path}: cannot be read: {reason}"]) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError([f"{path}:{line}:{column} is not UTF-8 text; save the file as UTF-8"]) from None
    if not text.strip():
        raise ConfigError([f"{path}: is empty; `{command('init', path, '--force')}` writes a starter"])
    return text


def _compose(path: Path, text: str) -> Node:
    try:
        with warnings.catch_warnings():
            # YAML 1.2: the later anchor counts from there on
            warnings.simplefilter("ignore", ReusedAnchorWarning)
            reader = YAML(typ="rt", pure=True)
            reader.Composer = _BoundedComposer
            node: Node | None = reader.compose(text)
    except MarkedYAMLError as error:
        line, column, problem = _yaml_problem(error, text)
        raise ConfigError([f"{path}:{line}:{column} {problem}"]) from None
    except YAMLError as error:
        raise ConfigError([f"{path}:1:1 is not YAML: {first_line(error)}"]) from None
    except RecursionError:
        raise ConfigError([f"{path}:1:1 is nested too deeply"]) from None
    if node is None:
        raise ConfigError(
            [f"{path}: holds only comments; `{command('init', path, '--force')}` writes a starter"]
        )
    return node


class _BoundedComposer(Composer):
    """Ends at what is too much: the library's time for nested values grows with the cube of their depth."""

    _depth = _nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node and what is below it."""
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH + 1 or self._nodes > MAX_VALUES:
            deep = f"is nested more than {MAX_DEPTH} deep"
            text = deep if self._depth > MAX_DEPTH + 1 else f"holds more than {MAX_VALUES} values"
            raise ComposerError(None, None, f"it {text}", self.parser.peek_event().start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(frozen=True, slots=True)
class _Place:
    """A place of a text, counted from 0, as the library's marks have it."""

    line: int
    column: int
    index: int


_NOWHERE = _Place(0, 0, sys.maxsize)
Problem = tuple[int, int, str]
"""Line and column, from 1, and what is wrong there."""


@dataclass(frozen=True, slots=True)
class _YamlFault:
    """What the library says of a document that is not YAML, and what the document has there."""

    document: str
    mark: Any  # the library's, or `_Place`
    opened: Any  # where what it was reading begins
    said: str
    context: str

    @classmethod
    def of(cls, error: MarkedYAMLError, document: str) -> _YamlFault:
        mark = error.problem_mark or error.context_mark or _NOWHERE
        said = str(error.problem or "the file is not YAML").strip()
        return cls(document, mark, error.context_mark or mark, said, str(error.context or "").strip())

    @property
    def line(self) -> int:
        """Its line, from 1."""
        return int(self.mark.line) + 1

    def here(self, problem: str) -> Problem:
        """A problem at its place."""
        return self.line, self.mark.column + 1, problem


def _yaml_problem(error: MarkedYAMLError, text: str) -> Problem:
    """Where and what is wrong, by what the file has at the error's place if it is a frequent mistake."""
    fault = _YamlFault.of(error, text)
    said = ": ".join(filter(None, (fault.context, fault.said)))
    return next(filter(None, (rule(fault) for rule in _MISTAKES)), fault.here(f"is not YAML: {said}"))


def _out_of_place(fault: _YamlFault) -> Problem | None:
    for words, problem in _REFUSED.items():
        if fault.document.startswith(words, fault.mark.index):
            return fault.here(problem)
    return None


_REFUSED = {
    "\t": "a tab is where YAML wants spaces; indent with spaces",
    "---": "a second document starts here; keep one pipeline in one file",
}


def _not_closed(fault: _YamlFault) -> Problem | None:
    bracket = fault.document[fault.opened.index :][:1]
    closing = _CLOSES.get(bracket)
    if not closing or not fault.context.startswith("while parsing a flow"):
        return None
    if fault.opened.line == fault.mark.line:
        return fault.here(f"a comma or the {closing} is missing before this")
    is_open = f"this {bracket} is not closed: a comma or the {closing} is missing behind it"
    return fault.opened.line + 1, fault.opened.column + 1, is_open


def _second_value(fault: _YamlFault) -> Problem | None:
    """A colon where there can be no value: of a second key on the line, or as the text of a line above goes on in this one."""
    if not fault.said.startswith("mapping values are not allowed"):
        return None
    lines, line = fault.document.splitlines(), fault.line
    if re.search(r":\s", lines[line - 1][: fault.mark.column]):
        return fault.here("a second key on this line; write each key on a line of its own")
    before = next((n for n in range(line - 1, 0, -1) if _COMMENT.sub("", lines[n - 1]).strip()), line)
    if not re.search(r":\s", _COMMENT.sub("", lines[before - 1])):
        return _without_colon(lines, before)
    start = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
    is_indented = "this line is indented further than the one it belongs to"
    return line, start, f"{is_indented}; indent all keys of an entry alike"


def _no_value(fault: _YamlFault) -> Problem | None:
    if not fault.said.startswith("could not find expected ':'"):
        return None
    return _without_colon(fault.document.splitlines(), fault.opened.line + 1)


def _not_aligned(fault: _YamlFault) -> Problem | None:
    if "expected <block end>" not in fault.said:
        return None
    is_not_aligned = "this line is not indented as the lines are that it belongs to"
    return fault.here(f"{is_not_aligned}; indent all keys of an entry alike")


_MISTAKES = (_out_of_place, _not_closed, _second_value, _no_value, _not_aligned)
"""The rules of frequent mistakes, of which the first that fits says what is wrong."""
_CLOSES = {"{": "}", "[": "]"}
_COMMENT = re.compile(r"(?:^|\s)#.*")
_GLUED = re.compile(
    r"[\s-]*[A-Za-z_][\w.]*:(?=\S)(?!//)"
)  # a key up to its colon, after which there is no space


def _without_colon(lines: list[str], number: int) -> Problem:
    """Line, column and what is wrong where a key is taken for a text."""
    if glued := _GLUED.match(lines[number - 1]):
        return number, glued.end(), "a space is missing after the colon: a key is written as `key: value`"
    start = len(lines[number - 1]) - len(lines[number - 1].lstrip(" -")) + 1
    return number, start, "a colon is missing: a key is written as `key: value`"


def _count(document: Document, node: Node, depth: int) -> None:
    document.values += 1
    if document.values > MAX_VALUES or depth > MAX_DEPTH:
        line, column = _mark(node)
        text = "the file is too large or nested too deeply (an alias that holds itself?)"
        raise ConfigError([f"{document.file}:{line}:{column} {text}"])


def _build(document: Document, node: Node, where: Where) -> Any:
    _count(document, node, len(where))
    document.places.setdefault(where, _mark(node))
    if isinstance(node, MappingNode):
        return _mapping(document, node, where)
    if isinstance(node, ScalarNode):
        return _scalar(document, node, where)
    return [_build(document, item, (*where, i)) for i, item in enumerate(node.value)]


def _mapping(document: Document, node: MappingNode, where: Where, merging: int = 0) -> dict[str, Any]:
    """A mapping; ``merging`` is how many merges lead to it."""
    mapping: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            document.faults.append((_mark(key), "a key must be plain text, not a list or a mapping"))
        elif key.tag == _TAG + "merge":
            merged |= _merged(document, value, where, merging + 1)
        elif key.value in mapping:
            document.faults.append((_mark(key), f"the key {key.value!r} is here a second time; keep one"))
        else:
            document.places[(*where, key.value)] = _mark(key)
            mapping[key.value] = _build(document, value, (*where, key.value))
    return {**merged, **mapping}


def _merged(document: Document, node: Node, where: Where, merging: int) -> dict[str, Any]:
    """What ``<<: *anchor`` brings; the first of several wins, as in YAML 1.1."""
    _count(document, node, len(where) + merging)
    if isinstance(node, MappingNode):
        return _mapping(document, node, where, merging)
    if isinstance(node, SequenceNode) and all(isinstance(item, MappingNode) for item in node.value):
        inherited: dict[str, Any] = {}
        for item in reversed(node.value):
            _count(document, item, len(where) + merging)
            inherited |= _mapping(document, item, where, merging)
        return inherited
    document.faults.append((_mark(node), "<< takes a mapping, such as *an_anchor"))
    return {}


def _scalar(document: Document, node: ScalarNode, where: Where) -> Any:
    kind = str(node.tag).removeprefix(_TAG)
    if kind == "null":
        return None
    if kind not in ("str", "int", "float", "bool", "timestamp", "merge"):
        document.faults.append((_mark(node), f"the tag {node.tag} is not allowed; write the plain value"))
        return None
    text = _whole_characters(document, node)
    if "$" in text:
        return _resolve(document, text, where)
    word = Word(text)
    word.value = _typed(kind, text)
    return word


def _typed(kind: str, text: str) -> object:
    """A scalar as YAML reads it: for the arguments of expectations, which take real numbers."""
    try:
        if kind == "int":
            return int(text.replace("_", ""), 0 if text.lstrip("+-")[:2] in ("0x", "0o", "0b") else 10)
        if kind == "float":
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    return text.lower() == "true" if kind == "bool" else text


def _whole_characters(document: Document, node: ScalarNode) -> str:
    """JSON writes characters past U+FFFF as two escapes, which YAML leaves apart."""
    text = str(node.value)
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        document.faults.append((_mark(node), "half of a surrogate pair is not a character"))
        return ""


def _resolve(document: Document, text: str, where: Where) -> str:
    def resolved(reference: re.Match[str]) -> str:
        if not reference[0].endswith("}"):  # without its end it is plain text
            return reference[0]
        if reference[1]:
            return reference[1]
        document.references[where] = text
        return _reference(document, reference[2], where)

    return _REFERENCE.sub(resolved, text)


def _reference(document: Document, inner: str, where: Where) -> str:
    if inner.startswith("file:"):
        return _file_reference(document, inner[5:], where)
    match = _VARIABLE.fullmatch(inner)
    if match is None:
        document.fault(
            where, f"${{{inner}}} is not a reference; write ${{NAME}}, ${{NAME:-default}} or ${{file:/path}}"
        )
        return ""
    name, default = match.groups()
    value = os.environ.get(name)
    if default is not None:
        return value or default
    if value is None:
        document.is_unresolved(
            where, f"the environment variable {name} is not set; set it or write ${{{name}:-default}}"
        )
    return value or ""


def _file_reference(document: Document, name: str, where: Where) -> str:
    path = document.file.parent / name
    try:
        return regular_files.data_of(path, _LARGEST).decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        document.is_unresolved(where, f"the file {path} of ${{file:...}} cannot be read: {reason}")
        return ""


def _mark(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def is_secret(where: Where, value: object) -> bool:
    """True for a value whose key says that it is secret, or a URL that carries a password."""
    if where[:1] == ("tables",):  # names of columns, which may be password or token
        return False
    if any(SECRET.search(str(step)) for step in where):
        return True
    return isinstance(value, str) and bool(re.search(r"://[^/@:\s]*:[^/@\s]+@", value))
