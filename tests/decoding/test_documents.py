"""Messages that hold several documents, or one inside a frame or an envelope."""

from __future__ import annotations

import json

import pytest

from ingest import api, formats, framing
from ingest.change import Change, Hints, Message
from ingest.decoding import documents
from ingest.errors import Undecodable


def ogg(op: str, key: int, pos: int) -> str:
    """An operation of GoldenGate."""
    image = {"ID": key, "V": "a } b"}
    images = {"before": image} if op == "D" else {"after": image}
    return json.dumps({"table": "S.T", "op_type": op, "pos": f"{pos:020}", "primary_keys": ["ID"], **images})


def debezium(key: int) -> str:
    """An envelope without its schema."""
    source = {"connector": "mysql", "db": "s", "table": "t", "file": "b.000001", "pos": key, "row": 0}
    return json.dumps({"op": "c", "before": None, "after": {"id": key}, "source": source})


def read(name: str, value: bytes | str, key: bytes | None = None) -> list[Change]:
    """The changes of one message."""
    data = value.encode() if isinstance(value, str) else value
    return list(formats.reader(name)(Message(data, key), Hints()))


@pytest.mark.parametrize("join", ["", " ", "\n", ",\n"])
def test_documents_one_after_another(join: str) -> None:
    """A transaction in one message was a reject, "JSON is malformed", and its rows were missing."""
    found = read("ogg", join.join([ogg("I", 1, 7), ogg("I", 2, 8), ogg("D", 1, 9)]))
    assert [("insert", (7,), 0), ("insert", (8,), 1), ("delete", (9,), 2)] == [
        (one.op, one.sequence, one.row) for one in found
    ]


def test_an_array_of_documents() -> None:
    """GoldenGate writes arrays, too; files could be read by their framing, topics could not."""
    found = read("ogg", f"[{ogg('I', 1, 7)}, {ogg('D', 1, 9)}]")
    assert ["insert", "delete"] == [one.op for one in found]


@pytest.mark.parametrize(
    "value",
    [ogg("I", 1, 7) + '{"table": "S.', f"[{ogg('I', 1, 7)}, 5]", ogg("I", 1, 7) + "{}", "[]", "{", '"x"'],
)
def test_a_part_that_cannot_be_read_refuses_all(value: str) -> None:
    """Half of a transaction in the mirror is worse than none: the message stays in bronze."""
    with pytest.raises(Undecodable):
        read("ogg", value)


def test_a_frame_of_confluents_registry() -> None:
    """JSON with a registered schema was taken for Avro, or for damaged JSON; its key has the same frame."""
    frame = b"\0\0\0\0\5"
    [found] = read("debezium", frame + debezium(3).encode(), frame + b'{"id": 3}')
    assert (("id",), {"id": "3"}) == (found.keys, found.after)


def test_a_cloud_event() -> None:
    """The members of its envelope were taken for the columns of a row."""
    event = {"id": "x", "source": "/debezium", "specversion": "1.0", "type": "io.debezium"}
    [found] = read("debezium", json.dumps({**event, "data": {"payload": json.loads(debezium(3))}}))
    assert ("t", {"id": "3"}) == (found.table.table, found.after)


def test_a_row_that_names_the_version_is_a_row() -> None:
    """A column may have any name."""
    [found] = read("debezium", debezium(3).replace('"id": 3', '"id": 3, "specversion": 4'))
    assert {"id": "3", "specversion": "4"} == found.after


def test_pretty_documents_of_a_file() -> None:
    """Each line of a file of pretty-printed documents was a reject."""
    parts = [json.dumps(json.loads(debezium(key)), indent=1) for key in (3, 4)]
    data = "\n".join(parts).encode()
    found = list(framing.records(data, "document"))
    assert parts == [one.value.decode() for one in found]
    assert [0, data.index(b"{", 5 + len(parts[0]) - 5)] == [one.offset for one in found]


def test_detection_looks_inside() -> None:
    """A frame or an envelope hid the format."""
    assert "ogg" == api.detect([(ogg("I", 1, 7) + ogg("I", 2, 8)).encode()])["format"]
    assert "debezium" == api.detect([b"\0\0\0\0\5" + debezium(3).encode()])["format"]


def test_a_message_of_one_document_is_not_changed() -> None:
    """Offsets and bytes of a record are those of bronze."""
    value = debezium(3).encode()
    assert [value] == documents.inside(value)
