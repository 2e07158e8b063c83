"""The columns of row images: what is searched for is what a reader of JSON finds."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.tables.image_columns import FEW, exact_texts_of, texts_of

NAMES = ("id", "b_2", "x", "é", "a,", 'a,"id', '"id"', "{", "ID", ":")
ASKED = (["id"], ["b_2", "id"], ["é"], ["a,"], [":"], ["id", "b_2", "x"])
texts = st.sampled_from(('a"b', "\\", '"id":"q"', ',"id":"z"', '{"id":"y"}', "x,", "{", "id", "\n", "é"))
cells = st.none() | texts | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
images = st.none() | st.dictionaries(st.sampled_from(NAMES), cells)
separators = st.sampled_from(((",", ":"), (", ", ": ")))


@given(st.lists(st.tuples(images, separators, st.booleans()), min_size=1, max_size=8), st.sampled_from(ASKED))
def test_a_column_is_what_the_image_has(drawn, asked: list[str]) -> None:
    """A key that is found in another cell's text belongs to another row, and the checks of both are false alarms."""
    rows = [image for image, _, _ in drawn]
    written = [
        None if row is None else json.dumps(row, separators=between, ensure_ascii=is_ascii)
        for row, between, is_ascii in drawn
    ]
    read = texts_of(pa.array(written, pa.string()), asked)
    assert [[None if row is None else row.get(name) for row in rows] for name in asked] == [
        column.to_pylist() for column in read
    ]


@pytest.mark.parametrize("asked", [["id"], ["id"] * (FEW + 1)])
def test_half_a_surrogate_pair_is_refused(asked: list[str]) -> None:
    """Callers read such images by Python's own parser; a text that is replaced would be another value."""
    with pytest.raises(pa.ArrowException):
        texts_of(pa.array([r'{"id":"\ud83d"}']), asked)


@pytest.mark.parametrize("asked", [["id"], ["id", "v", "w"]])
def test_half_a_surrogate_pair_is_read_in_bytes(asked: list[str]) -> None:
    """The key of one such row would hide those of all others that are read with it."""
    images = pa.array([r'{"id":"1","v":"\ud83d"}', None, r'{"id":"\ud83d"}', '{"id":null,"v":"b"}'])
    rows = {
        "id": [b"1", None, b"\xed\xa0\xbd", None],
        "v": [b"\xed\xa0\xbd", None, None, b"b"],
        "w": [None] * 4,
    }
    assert [rows[name] for name in asked] == [cells.to_pylist() for cells in exact_texts_of(images, asked)]


def test_images_that_are_all_null_have_no_texts() -> None:
    """A delete has no image after it, and many have none before."""
    assert [[None, None]] == [cells.to_pylist() for cells in exact_texts_of(pa.nulls(2, pa.string()), ["id"])]
