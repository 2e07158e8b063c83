"""Messages that hold several documents, or one inside a frame or an envelope."""

from __future__ import annotations

import json

import pytest

from ingest import api, formats, framing
from ingest.change import Change, Hints, Message, Options, TableId
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


ATTRIBUTES = {
    "id": "name:rail;lsn:29274832;txId:565",
    "source": "/debezium/postgresql/rail",
    "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "time": "2024-06-10T06:13:20.123Z",
    "datacontenttype": "application/json",
    "iodebeziumversion": "3.0.0.Final",
    "iodebeziumconnector": "postgresql",
    "iodebeziumname": "rail",
    "iodebeziumtsms": "1718000000123",
    "iodebeziumsnapshot": "false",
    "iodebeziumdb": "depot",
    "iodebeziumsequence": '["29274000","29274832"]',
    "iodebeziumschema": "rail",
    "iodebeziumtable": "trip",
    "iodebeziumtxId": "565",
    "iodebeziumlsn": "29274832",
    "iodebeziumxmin": None,
    "iodebeziumtxid": "565:29274832",
    "iodebeziumtxtotalorder": "1",
}
"""As the converter's documentation prints them."""
IMAGES = {"c": (None, {"id": 2, "fare": "1.10"}), "d": ({"id": 2, "fare": "1.10"}, None)}


@pytest.mark.parametrize("op", list(IMAGES))
@pytest.mark.parametrize("shape", ["images", "schema"])
def test_a_cloud_event_of_debezium(op: str, shape: str) -> None:
    """Its attributes have what the row lacks: operation, table and place. The images were taken for columns of a row."""
    before, after = IMAGES[op]
    data: object = {"before": before, "after": after}
    if shape == "schema":
        columns = [{"field": "id", "type": "int64"}, {"field": "fare", "type": "string"}]
        images = [{"field": name, "type": "struct", "fields": columns} for name in ("before", "after")]
        data = {"schema": {"type": "struct", "fields": images}, "payload": data}
    event = json.dumps(ATTRIBUTES | {"iodebeziumop": op, "data": data})
    [found] = read("debezium", event, b'{"id": 2}')
    texts = {"id": "2", "fare": "1.10"}
    assert (op[0], ("depot", "rail", "trip")) == (found.op.replace("insert", "c")[0], found.table)
    assert (texts if before else None, texts if after else None) == (found.before, found.after)
    assert ((29274832,), "565:29274832", ("id",)) == (found.sequence, found.transaction, found.keys)
    assert 1718000000123000 == found.event_time
    assert ({"id": "int64", "fare": "string"} if shape == "schema" else {}) == found.types
    assert "op" in (formats.evidence("debezium", event.encode()) or "")


def flattened(op: str, data: object, **options: object) -> Change:
    """The change of a CloudEvent whose data are a row."""
    event = json.dumps(ATTRIBUTES | {"iodebeziumop": op, "data": data})
    hints = Hints(Options(**options))  # type: ignore[arg-type]
    [change] = formats.reader("debezium")(Message(event.encode(), b'{"id": 2}', "trips"), hints)
    return change


OF_TRIPS = TableId("depot", "rail", "trip")
METADATA = {"__deleted": "false", "__op": "u", "__lsn": 29274832}


@pytest.mark.parametrize("op", ["c", "u", "d"])
@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"id": 2, "fare": "1.10"}, {}),
        ({"id": 2, "n": "x", "source": "web"}, {"extra": {"rows": "flat"}}),
        ({"id": 2, "op": "sum", "before": {"a": 1}, "after": None}, {"extra": {"rows": "flat"}}),
        ({"id": 2, "payload": {"a": 1}}, {}),
        ({"id": 2, "payload": "a text"}, {}),
        ({"id": 2, "payload": None}, {}),
        ({"id": 2, "op": "d"}, {}),
        ({"id": 2, "after": "a text"}, {}),
        ({"before": "2", "after": "3"}, {}),
    ],
)
def test_a_cloud_event_of_a_flattened_row(
    op: str, row: dict[str, object], options: dict[str, object]
) -> None:
    """All of its members are columns; those with the names of an event's or a converter's lost the row, or its delete."""
    change = flattened(op, row, **options)
    texts = {name: json.dumps(cell, separators=(",", ":")) for name, cell in row.items()}
    image = {name: None if row[name] is None else texts[name].strip('"') for name in row}
    assert (None, image) == ((change.after, change.before) if op == "d" else (change.before, change.after))
    assert (OF_TRIPS, {"c": "insert", "u": "update", "d": "delete"}[op]) == (change.table, change.op)
    # a later delete may be a null value, which has no position and would lose against one
    assert (1718000000123000, ()) == (change.event_time, change.sequence)


@pytest.mark.parametrize("op", ["u", "d"])
def test_the_metadata_of_a_flattened_row_in_a_cloud_event_are_no_columns(op: str) -> None:
    """They were. Where deletes are rows, each row has its place."""
    row = {"id": 2, "fare": "1.10", **METADATA, "__op": op, "__deleted": str(op == "d").lower()}
    change = flattened(op, row)
    assert {"id": "2", "fare": "1.10"} == (change.before if op == "d" else change.after)
    assert ((29274832,), OF_TRIPS) == (change.sequence, change.table)


def test_the_schema_of_a_flattened_row_in_a_cloud_event_is_that_of_the_row() -> None:
    """It was taken for an envelope's, so that moments stayed numbers."""
    seen = {"field": "seen", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, seen]}
    change = flattened("u", {"schema": schema, "payload": {"id": 2, "seen": 1718000000123000}})
    assert ({"id": "int64", "seen": "datetime"}, "2024-06-10 06:13:20.123") == (
        change.types,
        (change.after or {})["seen"],
    )


def test_the_table_of_the_options_is_that_of_a_flattened_row_and_its_delete() -> None:
    """A null value has no attributes: its table is that of the options, and so has to be that of the rows."""
    options = {"table": (("trips", TableId("shop", None, "journeys")),)}
    assert TableId("shop", None, "journeys") == flattened("u", {"id": 2}, **options).table


@pytest.mark.parametrize("data", [None, {"schema": None, "payload": None}])
def test_a_cloud_event_without_data_is_what_a_null_value_is(data: object) -> None:
    """It was refused by a setting that changes nothing here, or by the decoder's words."""
    assert ("control", "tombstone") == (flattened("d", data).op, flattened("d", data).note)
    options = {"table": (("trips", OF_TRIPS),)}
    change = flattened("d", data, **options)
    assert ("delete", OF_TRIPS, {"id": "2"}) == (change.op, change.table, change.before)


def test_a_cloud_event_of_avro_is_refused_by_its_setting() -> None:
    """Nothing but the converter's setting makes it readable, so the reject names it."""
    event = json.dumps(ATTRIBUTES | {"iodebeziumop": "r", "data": "AAAAAAEAAgICAg=="})
    with pytest.raises(Undecodable, match=r"data\.serializer\.type=json"):
        read("debezium", event)


def test_a_cloud_event_in_avro_is_refused_by_its_setting() -> None:
    """With a table for the topic its attributes were read as the columns of a flattened row."""
    fields = [{"name": name, "type": "string"} for name in ("id", "specversion", "iodebeziumop")]
    schema = json.dumps({"type": "record", "name": "E", "fields": fields})
    options = Options(table=(("*", TableId("depot", None, "trip")),))
    hints = Hints(options, schema={7: schema}.__getitem__)
    with pytest.raises(Undecodable, match=r"a CloudEvent in Avro: .*format: debezium"):
        list(formats.reader("debezium-avro")(Message(b"\0\0\0\0\7\2a\0061.0\2c"), hints))


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
