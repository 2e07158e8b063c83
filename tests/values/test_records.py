"""Records read in one pass, against the exact and slow way by their members."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from ingest import values
from ingest.errors import Undecodable
from ingest.values.json_records import (
    Count,
    Kept,
    RecordReader,
    Text,
    Texts,
    count_of,
    kept_of,
    no_record,
    texts_of,
)


class Example(msgspec.Struct, rename="camel"):
    """One member of each kind."""

    table_name: Text = UNSET
    id: Count = UNSET
    cells: Texts = UNSET
    columns: Kept = UNSET


class Outer(msgspec.Struct):
    """A record with another one in it."""

    name: Text = UNSET
    inside: Example | UnsetType | None = UNSET


READER = RecordReader(Example)
_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([1e5, -0.0])
_DOCUMENTS = st.dictionaries(
    st.sampled_from(["tableName", "id", "columns", "other"]), _SCALARS | st.lists(_SCALARS, max_size=2)
)


@given(_DOCUMENTS, st.lists(_SCALARS, max_size=3) | st.none(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_record_holds_what_its_members_say(document, cells, separators):
    """The short way would change a number, or leave out a member, of a few messages among millions."""
    sent = json.dumps(document | {"cells": cells}, separators=separators).encode()
    record, note = READER.read(sent)
    members = values.members(sent)
    assert note is None
    for read, name in ((record.table_name, "tableName"), (record.id, "id")):
        text = None if read is None or read is UNSET else str(read)
        assert values.member_text(members, name) == text
        assert (name in members) == (read is not UNSET)
    assert record.cells == (
        None if cells is None else [values.text(cell) for cell in values.items(members["cells"])]
    )
    assert kept_of(record.columns) == (b"" if document.get("columns") is None else bytes(members["columns"]))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'{"id":1,"id":2}', "occurs twice"),
        (b'{"id":1', "truncated"),
        (b"[]", "not an object"),
    ],
)
def test_what_is_no_record_is_refused(sent, said):
    """The last of two equal names would win silently."""
    with pytest.raises(Undecodable, match=said):
        READER.read(sent)


def test_a_count_is_a_number_however_it_is_sent():
    """A position in quotes would be none, and rows would be in the order of their arrival."""
    assert [7, 7, None, None] == [count_of(each) for each in (7, "7", "x", UNSET)]


@given(st.dictionaries(st.sampled_from("abcd"), _SCALARS), st.dictionaries(st.sampled_from("ab"), _SCALARS))
def test_objects_of_texts_are_those_of_the_careful_way(outer, inner):
    """The row before would be another one where it is read with its message in one pass."""
    sent = json.dumps(outer | {"before": inner}, separators=(",", ":")).encode()
    usual = values.usual_image(sent, "before")
    if usual is not None:
        members = values.members(sent)
        before = values.bare_image(members.pop("before"))
        assert usual == {name: values.text(cell) for name, cell in members.items()} | {"before": before}
    assert usual is not None or b"\\" in sent


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'{"cells":[{"a":1}]}', "an object or a list"),
        (b'{"cells":[[]]}', "an object or a list"),
        (b'{"cells":"a"}', "not a list"),
        (b'{"cells":{}}', "not a list"),
        (b'{"cells":true}', "not a list"),
    ],
)
def test_a_member_of_another_kind_is_refused_where_it_is_asked_for(sent, said):
    """A statement would be refused for images that mean nothing in it, or a row read by cells that are none."""
    record = READER.read(sent)[0]
    with pytest.raises(Undecodable, match=said):
        texts_of(record.cells, "cells")


@pytest.mark.parametrize(
    ("sent", "cells"),
    [
        (b"{}", None),
        (b'{"cells":null}', None),
        (b'{"cells":[]}', []),
        (b'{"cells":[1, null, "a"]}', ["1", None, "a"]),
    ],
)
def test_a_list_of_values_is_given_as_it_is(sent, cells):
    """None is a row that is not there, and a list without values one of no columns."""
    assert cells == texts_of(READER.read(sent)[0].cells, "cells")


@given(
    st.fixed_dictionaries(
        {}, optional={"name": _SCALARS, "inside": _DOCUMENTS | st.none() | st.just("text") | st.just([1])}
    )
)
def test_a_record_in_a_record_is_read_as_by_itself(document):
    """The headers of a message would be those of another one, or none."""
    short, long = (
        RecordReader(Outer).read(json.dumps(document, separators=separators).encode())[0]
        for separators in ((",", ":"), (", ", ": "))
    )
    inside = document.get("inside")
    for read in (short, long):
        assert ("name" in document) == (read.name is not UNSET)
        if isinstance(inside, dict):
            alone = READER.read(json.dumps(inside).encode())[0]
            assert isinstance(read.inside, Example)
            assert (alone.table_name, alone.cells) == (read.inside.table_name, read.inside.cells)
            assert str(alone.id) == str(read.inside.id)
        else:
            assert (json.dumps(inside).encode() if inside else b"") == no_record(read.inside)
