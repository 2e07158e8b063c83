"""Read row images of ``changes`` as columns, with Arrow: JSON objects whose values are texts or null."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, ReadOptions, read_json

FEW = 2  # columns that are cheaper to search for than to read each image for
_WORD = re.compile(r"\w+", re.ASCII)


def texts_of(images: pa.StringArray, names: Sequence[str]) -> list[pa.StringArray]:
    """The texts of some columns of each image; NULL where an image is NULL or lacks the column.

    Raises:
        pa.ArrowInvalid: an image that Arrow cannot read, for example with half a surrogate pair; or there is none.
    """
    if not 0 < len(names) <= FEW or not all(map(_WORD.fullmatch, names)):
        return _parsed(images, names)
    columns = [_searched(images, name) for name in names]
    unread = pc.and_(pc.is_valid(images), reduce(pc.or_, map(pc.is_null, columns)))
    if not pc.any(unread).as_py():
        return columns
    rest = images.filter(unread)
    if _lack(rest, names):  # as images before that have only what was changed
        return columns
    return [
        pc.replace_with_mask(column, unread, texts)
        for column, texts in zip(columns, _parsed(rest, names), strict=True)
    ]


def exact_texts_of(images: pa.StringArray, names: Sequence[str]) -> list[pa.BinaryArray]:
    """As `texts_of`, in bytes, also of images with half a surrogate pair, which Python's own parser accepts and Arrow does not."""
    if images.null_count == len(images):
        return [pa.nulls(len(images), pa.binary())] * len(names)
    try:
        return [column.cast(pa.binary()) for column in texts_of(images, names)]
    except pa.ArrowInvalid:
        rows = [{} if image is None else json.loads(image) for image in images.to_pylist()]
        return [pa.array([in_bytes(row.get(name)) for row in rows], pa.binary()) for name in names]


def first_texts_of(
    first: pa.StringArray, second: pa.StringArray, names: Sequence[str]
) -> list[pa.BinaryArray]:
    """The texts of some columns in bytes, each from the first of two images that has it, even if it is NULL there.

    So says `ingest.fold.texts_of_key`: a change that sets a key's column to NULL has no usable key.
    """
    pairs = zip(names, exact_texts_of(first, names), exact_texts_of(second, names), strict=True)
    return [
        pc.if_else(_has_null(first, name, here, other), None, pc.coalesce(here, other))
        for name, here, other in pairs
    ]


def _has_null(
    images: pa.StringArray, name: str, texts: pa.BinaryArray, others: pa.BinaryArray
) -> pa.BooleanArray:
    """Where images have NULL in a column, whose ``texts`` are known, and others have a text."""
    has_null = np.zeros(len(images), np.bool_)
    doubtful = pc.and_(pc.and_(pc.is_null(texts), pc.is_valid(others)), pc.is_valid(images))
    for row in np.flatnonzero(np.array(doubtful)).tolist():
        image = images[row].as_py()
        # most images before have only what was changed, and need not be read
        has_null[row] = (f'"{name}"' in image or "\\" in image) and name in json.loads(image)
    return pa.array(has_null)


def in_bytes(text: str | None) -> bytes | None:
    """A text in UTF-8, half a surrogate pair, too."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _searched(images: pa.StringArray, name: str) -> pa.StringArray:
    """The texts of a column, as far as they have no escapes; also NULL where an image has spaces between its members.

    What begins a member cannot be within a text: a quote there is escaped, and one that ends a text is not followed by a
    letter.
    """
    found = pc.extract_regex(images, rf'[{{,]"{name}":"(?P<text>[^"\\]*)"')
    return pc.struct_field(found, 0)


def _lack(images: pa.StringArray, names: Sequence[str]) -> bool:
    """True if images certainly have none of the columns: neither a name of them nor an escape, by which one may be written."""
    data = (images.buffers()[2] or pa.py_buffer(b"")).to_pybytes()
    return b"\\" not in data and not any(f'"{name}"'.encode() in data for name in names)


def _parsed(images: pa.StringArray, names: Sequence[str]) -> list[pa.StringArray]:
    """The texts of columns, of images that are read to their ends."""
    filled = pc.fill_null(images, "{}")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(filled)], filled), "\n")[0].as_buffer()
    parsed = read_json(
        pa.BufferReader(lines),
        ReadOptions(use_threads=False, block_size=len(lines) + 1),
        ParseOptions(
            explicit_schema=pa.schema([(name, pa.string()) for name in names]),
            unexpected_field_behavior="ignore",
        ),
    )
    return [parsed[name].combine_chunks() for name in names]
