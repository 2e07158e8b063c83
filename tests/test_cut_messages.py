"""A message cut off by a crash is refused at once, however long it is."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest import formats, framing
from ingest.change import Hints, Message, Options, TableId
from ingest.errors import Undecodable
from tests.formats import golden
from tests.timing import is_within

SECONDS = 2.0  # of processor time for 1 MB on a busy machine; a quiet one takes less than a tenth
FORMATS = sorted(
    {case.parent.name for case in golden.cases() if (golden.message(case)[0].value or b"")[:1] == b"{"}
)
CELL = json.dumps({"name": 'a "quoted" name, // no comment', "path": "C:\\temp\\", "of": ["x", {"y": 1}]})
DOCUMENT = json.dumps([CELL] * 7_000)  # JSON in a TEXT column, as an application stores it
HINTS = Hints(Options(table=(("*", TableId("shop", None, "any")),)))

CUTS: dict[str, Callable[[str], str]] = {
    "inside a string": lambda text: text,
    "after a backslash": lambda text: text[: text.rindex("\\")] + "\\",
    "inside an escape": lambda text: text + "\\u00",
    "inside brackets": lambda text: text + '","other":' + "[" * 150_000,
    "inside a number": lambda text: text + '","other":[' + "1.5," * 70_000 + "1e",
    "after commas": lambda text: text + '","other":[' + ", " * 150_000,
    "after comments": lambda text: text + '","other":[' + ",//\n" * 70_000,
}


def cut(kind: str) -> bytes:
    """A message of 1 MB whose last member has no end."""
    start = '{"id":1,"type":"INSERT","database":"shop","table":"t","data":[{"id":"1","doc":' + json.dumps(
        DOCUMENT
    )
    return CUTS[kind](start[:1_000_000]).encode()


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "after a backslash") for name in FORMATS), *(("debezium", kind) for kind in CUTS)],
)
def test_a_cut_message_is_refused_at_once(name: str, kind: str) -> None:
    """A message of some MB would hold its worker for hours, and every later run of the pipeline with it."""
    module = formats.load(name)

    def decode() -> None:
        with pytest.raises(Undecodable):
            list(module.parse(Message(cut(kind)), HINTS))

    assert is_within(SECONDS, decode)
    assert is_within(SECONDS, lambda: formats.evidence(name, cut(kind)))


@pytest.mark.parametrize("kind", CUTS)
def test_a_cut_file_is_looked_at_at_once(kind: str, tmp_path: Path) -> None:
    """A file that is still being written would hold `detect` and each run under `framing: document`."""
    value = b"[" + cut(kind)
    file = tmp_path / "part.json"
    file.write_bytes(value)
    assert is_within(SECONDS, lambda: framing.is_document(value))
    assert is_within(SECONDS, lambda: list(framing.records(value, "document")))
    assert is_within(SECONDS, lambda: list(framing.sniffed(io.BytesIO(value), binary=False)[1]))


def test_an_array_with_comments_is_cut_at_once() -> None:
    """Each element would be looked for to the end of the file, because its text is not there as it is."""
    value = b"[" + b'{"a": 1, "b": "//",}, // one\n' * 100_000 + b"]"
    found: list[framing.Record] = []

    def read() -> None:
        found[:] = framing.records(value, "document")

    assert is_within(SECONDS, read)
    assert 100_000 == len(found)
    assert 1 + 29 * 99_999 == found[-1].offset
    assert {"a": 1, "b": "//"} == json.loads(found[-1].value)


def test_a_name_given_twice_among_many_is_found_at_once() -> None:
    """An object of many members would be compared member by member with all others."""
    value = ("{" + ",".join(f'"n{i}":1' for i in range(60_000)) + ',"n59999":2}').encode()

    def decode() -> None:
        with pytest.raises(Undecodable, match="'n59999' occurs twice"):
            list(formats.load("canal").parse(Message(value), HINTS))

    assert is_within(SECONDS, decode)
