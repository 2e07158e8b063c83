"""Search every file of a lake for texts: what an auditor does after an erasure.

Parquet files are read as they are, so that rows which a deletion vector hides are searched, too, and files which no
version of a table needs. A file's own statistics are values of its cells. A number or a time is compared by its value, everything else by its bytes,
which may be escaped several times over, or be the beginning of the text before a mark of cutting.
"""

from __future__ import annotations

import datetime as dt
import html
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.erase.quotes import Quotes
from ingest.errors import first_line

_ROWS = 20_000  # of a Parquet file, held at a time
_BYTES = 16 << 20  # of another file
_LAYERS = 3  # of escapes: a key as JSON in a list that is JSON in a document
_BEFORE_CUT = 800  # bytes before a mark of cutting that are looked at
_CUT = re.compile("…|\\\\u2026|\\.\\.\\.".encode())
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


@dataclass(frozen=True, slots=True)
class Hit:
    """A file with one of the texts."""

    file: str  # its path under the folder
    column: str  # of a Parquet file
    number: int  # which text, from 1: the text itself is not repeated in output and logs
    values: int  # cells that contain it; 1 for a file without cells


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has found, and how much it has read."""

    files: int
    size: int
    hits: list[Hit]
    unread: list[str]  # files that could not be read


def search(folder: Path, texts: Sequence[str]) -> Searched:
    """Search all files of a folder.

    Args:
        folder: the lake's.
        texts: what to look for; none of them empty.
    """
    files, size = 0, 0
    hits: list[Hit] = []
    unread: list[str] = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(folder))
        files, size = files + 1, size + path.stat().st_size
        try:
            hits += (
                _of_parquet(path, name, texts) if path.suffix == ".parquet" else _of_bytes(path, name, texts)
            )
        except (OSError, pa.ArrowException) as error:
            unread.append(f"{name}: {first_line(error)}")
    return Searched(files, size, hits, unread)


def _of_bytes(path: Path, name: str, texts: Sequence[str]) -> Iterator[Hit]:
    wanted = {number: _spellings(text) for number, text in enumerate(texts, 1)}
    most = max(len(spelling) for each in wanted.values() for spelling in each)
    before = b""
    with path.open("rb") as file:
        while part := file.read(_BYTES):
            part = before + part
            for number in [
                number for number, each in wanted.items() if any(spelling in part for spelling in each)
            ]:
                del wanted[number]
                yield Hit(name, "", number, 1)
            for number in [number for number in wanted if _is_cut(part, texts[number - 1])]:
                del wanted[number]
                yield Hit(name, "", number, 1)
            before = part[-max(most, _BEFORE_CUT) :]


def _spellings(text: str) -> set[bytes]:
    """A text as its own bytes, and as JSON, HTML, SQL, a shell and Python escape it, JSON several times over."""
    spellings = {
        text,
        html.escape(text),
        text.replace("'", "''"),
        text.replace("'", "'\"'\"'"),
        repr(text)[1:-1],
    }
    latest = {text}
    for _ in range(_LAYERS):
        latest = {spelled for spelling in latest for spelled in _escaped(spelling)}
        spellings |= latest
    spellings |= {html.escape(spelling) for spelling in spellings}
    return {spelling.encode("utf-8", "surrogatepass") for spelling in spellings}


def _escaped(text: str) -> set[str]:
    """A text as JSON escapes it, with small or capital digits."""
    escaped = json.dumps(text)[1:-1]
    capital = _ESCAPE.sub(lambda match: rf"\u{match[1].upper()}", escaped)
    return {json.dumps(text, ensure_ascii=False)[1:-1], escaped, capital}


def _is_cut(data: bytes, text: str) -> bool:
    """True if bytes hold the beginning of a text, cut after some characters."""
    quotes = Quotes((), (text,))
    parts = (data[max(0, mark.start() - _BEFORE_CUT) : mark.start()] for mark in _CUT.finditer(data))
    return any(quotes.is_cut_in(part.decode("utf-8", "replace") + "…") for part in parts)


def _of_parquet(path: Path, name: str, texts: Sequence[str]) -> Iterator[Hit]:
    columns: dict[tuple[str, int], int] = {}
    with pq.ParquetFile(path) as file:
        for page in file.iter_batches(_ROWS):
            for column, cells in zip(page.schema.names, page.columns, strict=True):
                for leaf, values in _leaves(column, cells):
                    for number, text in enumerate(texts, 1):
                        if count := _count(values, text):
                            columns[leaf, number] = columns.get((leaf, number), 0) + count
    yield from (Hit(name, column, number, count) for (column, number), count in columns.items())


def _leaves(name: str, cells: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The plain columns of one that may be nested."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        yield from _leaves(name, cells.dictionary_decode())
    elif pa.types.is_map(kind):
        yield from _leaves(name, cells.keys)
        yield from _leaves(name, cells.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(name, cells.flatten())
    elif pa.types.is_struct(kind):
        for field, values in zip(kind, cells.flatten(), strict=True):
            yield from _leaves(f"{name}.{field.name}", values)
    else:
        yield name, cells


def _count(values: pa.Array, text: str) -> int:
    """The cells that contain a text, or are the number or the time that it is."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        whole = [pc.match_substring(values, spelling) for spelling in _spellings(text)]
        cut = pc.match_substring_regex(values, _CUT.pattern.decode())
        if not pc.any(cut).as_py():
            return _true(*whole)
        marked = [
            bool(may_hold) and _is_cut(str(cell).encode("utf-8", "surrogatepass"), text)
            for cell, may_hold in zip(values.to_pylist(), cut.to_pylist(), strict=True)
        ]
        return _true(*whole, pa.array(marked))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return sum(
            any(spelling in cell for spelling in _spellings(text))
            for cell in values.to_pylist()
            if cell is not None
        )
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return _equal(values, text)
    if pa.types.is_temporal(kind):
        with suppress(ValueError):
            dt.datetime.fromisoformat(text)
            return _true(pc.starts_with(pc.cast(values, pa.string()), text))
    return 0


def _true(*masks: pa.Array) -> int:
    whole = masks[0]
    for mask in masks[1:]:
        whole = pc.or_(whole, mask)
    return pc.sum(whole).as_py() or 0


def _equal(values: pa.Array, text: str) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return 0
    wanted: float | Decimal = float(number) if pa.types.is_floating(values.type) else number
    with suppress(pa.ArrowException, ValueError, OverflowError):  # the type has no such number
        if pa.types.is_integer(values.type) and number == int(number):
            wanted = int(number)
        return _true(pc.equal(values, pa.scalar(wanted, values.type)))
    return 0
