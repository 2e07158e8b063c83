"""Maxwell, GoldenGate and DMS: positions, partial rows, structures."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from ingest.change import Hints, Message, Op, Options, TableHints, TableId
from ingest.errors import Undecodable
from ingest.formats import dms, maxwell
from tests.formats import golden
from tests.formats.golden import read

NAMES = ("maxwell", "ogg", "dms")


def one(name, message, hints=None, key=None):
    """The one change of a message."""
    (change,) = formats.load(name).parse(Message(json.dumps(message).encode(), key, "t"), hints or Hints())
    return change


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("master.000006:800911", (6, 800911)),
        ("my.host-bin.000010:4", (10, 4)),
        ("master.000006", ()),
        ("gtid:x", ()),
        (None, ()),
    ],
)
def test_maxwell_position(position, expected):
    """Compared as text, file 10 would come before file 9."""
    assert expected == maxwell.log_position(position)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("00000002/7C007178.3.00000002/7C007178", (2, 0x7C007178, 3)),
        ("mysql-bin-changelog.000013:4567", (13, 4567)),
        ("000000a1:00b2", ()),
        (None, ()),
    ],
)
def test_dms_position(position, expected):
    """A position of an unknown engine must leave the order to arrival."""
    assert expected == dms.log_position(position)


def test_maxwell_clock_counts_seconds_or_milliseconds():
    """Read alike, table events would lie fifty thousand years ahead."""
    row = {"database": "d", "table": "t", "type": "insert", "ts": 1718000042, "data": {"id": 1}}
    event = {"database": "d", "table": "t", "type": "table-drop", "ts": 1718000042000, "sql": "drop table t"}
    assert [1718000042_000000] * 2 == [one("maxwell", each).event_time for each in (row, event)]


def test_maxwell_update_keeps_what_it_does_not_carry():
    """A minimal row image lacks columns: they must keep their values."""
    message = {"database": "d", "table": "t", "type": "update", "data": {"id": 2}, "old": {"id": 1}}
    change = one("maxwell", message, key=b'{"database":"d","table":"t","pk.id":2}')
    assert (("id",), {"id": "1"}, {"id": "2"}, True) == (
        change.keys,
        change.before,
        change.after,
        change.partial,
    )


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("text", '"text"'),
        ("", '""'),
        ("7", '"7"'),
        ("null", '"null"'),
        ('say "é"', '"say \\"é\\""'),
        ("[torn", '"[torn"'),
        ('{"a": "b"}', '{"a": "b"}'),  # the text of a column that MariaDB calls JSON
        ({"a": "b"}, '{"a":"b"}'),
        (7, "7"),
        (None, None),
    ],
)
def test_maxwell_json_is_a_document(sent, kept):
    """A document that is a string loses its quotes as any other text does, and is no JSON then."""
    hints = Hints(tables=lambda _table: TableHints(columns={"j": "json"}))
    message = {
        "database": "d",
        "table": "t",
        "type": "update",
        "data": {"id": 1, "j": sent},
        "old": {"j": sent},
    }
    change = one("maxwell", message, hints)
    assert (kept, kept) == ((change.before or {})["j"], (change.after or {})["j"])
    assert not change.note


def test_maxwell_structure():
    """A table event's own structure is surer than its statement."""
    message = {
        "type": "table-create",
        "database": "d",
        "table": "t",
        "sql": "create table t (id int unsigned)",
        "def": {"columns": [{"type": "int", "name": "id", "signed": False}], "primary-key": ["id"]},
    }
    expected = {"type": "CREATE", "keys": ["id"], "columns": {"id": "uint32"}}
    assert expected == json.loads(one("maxwell", message).structure or "")


def test_goldengate_marks_missing_columns():
    """A column that the trail does not hold would be taken for NULL."""
    after = {"ID": 1, "A": None, "A_isMissing": True, "B": None, "B_isMissing": False}
    change = one("ogg", {"table": "S.T", "op_type": "U", "pos": "01", "after": after})
    assert ({"ID": "1", "B": None}, True, (1,)) == (change.after, change.partial, change.sequence)


def test_goldengate_row_modelled():
    """Row-modelled messages hold columns next to the metadata, which is not part of the row."""
    change = one("ogg", {"table": "S.T", "op_type": "D", "op_ts": "x", "pos": "1", "ID": 1})
    assert (Op.DELETE, {"ID": "1"}, None) == (change.op, change.before, change.after)


def test_goldengate_columns_named_as_metadata_are_kept():
    """Such columns were dropped silently: a MySQL table may well have a column rowid, tokens or xid."""
    row = {"id": 1, "rowid": "r", "tokens": "t", "csn": 5, "xid": "x", "primary_keys": "k", "op_ts": "o"}
    head = {"table": "S.T", "op_type": "I", "op_ts": "2024-06-10 06:14:02.000000", "current_ts": "x"}
    pos = {"pos": "00000000000000002928"}
    found = one("ogg", {**head, **pos, **{name: row[name] for name in row if name != "op_ts"}})
    assert {name: str(value) for name, value in row.items() if name != "op_ts"} == found.after
    assert (2928,) == found.sequence
    assert {"id": "1", "pos": "7"} == one("ogg", {"table": "S.T", "op_type": "I", "id": 1, "pos": "7"}).after
    assert {"pos": "7", "id": "1"} == one("ogg", {"table": "S.T", "op_type": "I", "pos": 7, "id": 1}).after
    with pytest.raises(Undecodable, match="table"):
        list(formats.load("ogg").parse(Message(b'{"table":"S.T","op_type":"I","id":1,"table":"x"}'), Hints()))


def test_goldengate_metadata_is_no_column():
    """Metadata that the handler's template adds would become columns of the mirror."""
    head = {"table": "S.T", "op_type": "U", "op_ts": "x", "current_ts": "x", "pos": "01"}
    extra = {"primary_keys": ["ID"], "tokens": {"TK": "1"}, "csn": "12", "xid": "0.1.2", "rowid": "AAAB"}
    found = one("ogg", {**head, **extra, "ID": 1})
    assert ({"ID": "1"}, ("ID",), "0.1.2") == (found.after, found.keys, found.transaction)


def test_goldengate_declared_columns_are_columns():
    """Where a column is first, only its name in the pipeline file can distinguish it from metadata."""
    hints = Hints(tables=lambda _table: TableHints(("rowid",), {"xid": "string"}))
    head = {"table": "S.T", "op_type": "I", "pos": "01"}
    assert {"rowid": "A", "xid": "B"} == one("ogg", {**head, "rowid": "A", "xid": "B"}, hints).after
    keyed = {**head, "primary_keys": ["rowid"], "rowid": "A", "name": "n"}
    assert {"rowid": "A", "name": "n"} == one("ogg", keyed).after


def test_dms_columns_named_as_before_images_are_kept():
    """A table's own column BI_id was taken for the row before a change, and lost."""
    meta = {"record-type": "data", "operation": "insert", "schema-name": "s", "table-name": "t"}
    row = {"id": 1, "BI_id": 7}
    assert {"id": "1", "BI_id": "7"} == one("dms", {"data": row, "metadata": meta}).after
    assert {"id": "1"} == one("dms", {"data": {"id": 1, "BI_id": None}, "metadata": meta}).after
    update = {**meta, "operation": "update"}
    moved = one("dms", {"data": row, "metadata": update})
    assert ({"id": "7"}, {"id": "1"}) == (moved.before, moved.after)
    declared = Hints(tables=lambda _table: TableHints(("id",), {"BI_id": "int32"}))
    assert {"id": "1", "BI_id": "7"} == one("dms", {"data": row, "metadata": update}, declared).after


def test_dms_key_change_and_configured_before_image():
    """The old key is in a member whose name the task chooses."""
    meta = {"record-type": "data", "operation": "update", "schema-name": "s", "table-name": "t"}
    hints = Hints(Options(extra={"before_image": "old"}), lambda _table: TableHints(("id",), {}))
    change = one("dms", {"data": {"id": 2}, "old": {"id": 1}, "metadata": meta}, hints)
    assert ({"id": "1"}, {"id": "2"}, TableId("s", None, "t")) == (change.before, change.after, change.table)


@pytest.mark.parametrize(
    ("operation", "control", "expected"),
    [
        (
            "create-table",
            {"table-def": {"columns": {"id": {"type": "INT32"}}, "primary-key": ["id"]}},
            {"type": "CREATE", "keys": ["id"], "columns": {"id": "int32"}},
        ),
        ("drop-table", {}, {"type": "DROP", "keys": [], "columns": {}}),
        ("add-column", {}, None),
    ],
)
def test_dms_structures(operation, control, expected):
    """DMS sends no statement: the structure is all there is."""
    meta = {"record-type": "control", "operation": operation, "schema-name": "s", "table-name": "t"}
    structure = one("dms", {"control": control, "metadata": meta}).structure
    assert expected == (json.loads(structure) if structure else None)


def test_loaded_rows_of_a_weak_dialect_are_placed_by_arrival():
    """A table that is dropped, created and loaded again would end empty, its rows before the DROP.

    These rows were phase 0 once, before every change whatever arrived first; arrival is the only order of these
    dialects, so it decides between loaded rows and changes, too.
    """
    load = {"record-type": "data", "operation": "load", "schema-name": "s", "table-name": "t"}
    canal = {"database": "d", "table": "t", "data": [{"id": "1"}], "pkNames": ["id"], "es": 1, "isDdl": False}
    dataworks = {
        "version": "2.0",
        "schema": {"source": {"dbType": "ob_mysql", "dbName": "d", "table": "t"}, "column": [], "pk": ["id"]},
        "payload": {"op": "ROW", "after": {"data": {"id": 1}}, "timestamp": {"eventTime": 1}, "scn": "null"},
    }
    found = [
        one("dms", {"data": {"id": 1}, "metadata": load}),
        one("maxwell", {"database": "d", "table": "t", "type": "bootstrap-insert", "data": {"id": 1}}),
        one("canal", {**canal, "type": "INIT"}),
        one("oms-canal", {**canal, "type": "ROW"}),
        one("oms-dataworks", dataworks),
    ]
    assert [(Op.READ, 1, ())] * 5 == [(change.op, change.phase, change.sequence) for change in found]


def test_loaded_rows_of_a_strong_dialect_without_a_place_come_first():
    """A change can arrive before the load of its row ends: the load must not undo it."""
    canal = {"database": "d", "table": "t", "data": [{"id": "1"}], "pkNames": ["id"], "es": 1, "isDdl": False}
    meta = {"db": "d", "table_name": "t", "record_primary_key": "id", "storeDataSequence": None}
    streamx = {
        "version": "1.0.0",
        "schema": {
            "source": {"dbType": "mysql", "dbName": "d", "tableName": "t"},
            "dataColumn": [],
            "primaryKey": ["id"],
        },
        "payload": {"op": "INSERT", "after": {"dataColumn": {"id": 1}}, "sequenceId": "-1"},
    }
    found = [
        one("oms-default", {"recordType": "ROW", "allMetaData": meta, "postStruct": {"id": 1}}),
        one("dts-canal", {**canal, "type": "INIT"}),
        one("drs-json", {**canal, "type": "INIT"}),
        one("dataworks", streamx),
    ]
    assert [(0, ())] * 4 == [(change.phase, change.sequence) for change in found]


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (None, "1718000042123"),
        ("millis", "2024-06-10T06:14:02.123Z"),
        ("micros", "1970-01-20T21:13:20.042123Z"),
    ],
)
def test_whole_number_times_need_their_unit(units, expected):
    """A number read in a guessed unit is some other moment; left alone it is a cell reject."""
    hints = Hints(Options(time_units=units), lambda _table: TableHints((), {"at": "timestamp(6)"}))
    change = one("ogg", {"table": "S.T", "op_type": "I", "after": {"at": 1718000042123}}, hints)
    assert ({"at": expected}, {"at": "timestamp"}) == (change.after, change.types)


def test_bytes_in_another_encoding_are_refused():
    """Text of another encoding that happens to be base64 would be stored as other bytes."""
    hints = Hints(Options(binary="hex"), lambda _table: TableHints((), {"b": "binary"}))
    with pytest.raises(Undecodable, match="bad-binary"):
        one("ogg", {"table": "S.T", "op_type": "I", "after": {"b": "AAEC"[::-1] + "zz=="}}, hints)


@pytest.mark.parametrize("name", NAMES)
def test_recognised_by_itself_alone(name):
    """A message taken for a relative's is decoded wrongly."""
    for raw in golden.samples(name):
        others = [other for other in NAMES if other != name and formats.evidence(other, raw)]
        assert [] == others


@pytest.mark.parametrize("name", NAMES)
def test_null_value_is_a_tombstone(name):
    """A null value is not a row: it must be counted and pass."""
    assert [Op.CONTROL] == [change.op for change in read(name, None)]


@pytest.mark.parametrize("name", ["debezium", "oms-debezium-smt"])
def test_null_value_of_a_named_table_deletes_its_key(name):
    """Flattening may send a delete as nothing but a null value; after a row that says so it changes nothing."""
    table = TableId("shop", None, "orders")
    hints = Hints(Options(table=(("t", table),)))
    [found] = formats.load(name).parse(Message(None, b'{"id": 1}', "t", ()), hints)
    assert (Op.DELETE, table, {"id": "1"}, ("id",)) == (found.op, found.table, found.before, found.keys)


def test_maxwell_leaves_nulls_out():
    """With ``output_nulls=false`` a cell that became NULL is named by ``old`` alone, and would keep its value."""
    row = {"database": "d", "table": "t", "type": "update", "ts": 1718000042, "data": {"id": 1, "b": 2}}
    found = one("maxwell", row | {"old": {"a": "x", "b": 1}})
    assert {"id": "1", "b": "2", "a": None} == found.after


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("bit(8)", {"0x05": "5", "0x00": "0"}), ("boolean", {"0x01": "true", "0x00": "false"})],
)
@pytest.mark.parametrize("name", ["dms", "qlik-replicate", "tencent-json"])
def test_bits_in_hexadecimal_digits(name, kind, expected):
    """``0x05`` is base64 of other bytes, too: a BIT of 5 became 13835577 without a word, and a 0 became true."""
    for digits, value in expected.items():
        hints = Hints(
            Options(table=(("t", TableId("d", None, "t")),)), lambda _table: TableHints((), {"b": kind})
        )
        assert {"b": value} == one(name, HEXADECIMAL[name](digits), hints).after


HEXADECIMAL = {
    "dms": lambda digits: {
        "data": {"b": digits},
        "metadata": {"record-type": "data", "operation": "load", "schema-name": "d", "table-name": "t"},
    },
    "qlik-replicate": lambda digits: {
        "data": {"b": digits},
        "headers": {"operation": "INSERT", "changeSequence": "20240610061320250000000000000000042"},
    },
    "tencent-json": lambda digits: {
        "messageType": "INSERT", "fileName": "bin.1", "position": 4, "id": 7, "schemaName": "d", "tableName": "t",
        "columns": [{"name": "b", "originalType": "bit(8)"}], "oldColumns": None, "newColumns": [digits],
    },
}  # fmt: skip
"""A row with one value, as a writer of hexadecimal bytes sends it."""


@pytest.mark.parametrize(
    ("message", "is_goldengate", "is_confluent"),
    [
        ({"op_type": "R", "scn": "7", "ID": 1}, None, True),  # a row of the snapshot, which has no row_id
        ({"op_type": "R", "scn": "7", "row_id": None, "op_ts": None, "ID": 1}, False, True),
        ({"op_type": "I", "scn": "7", "row_id": "AAA", "ID": 1}, False, True),
        ({"op_type": "I", "pos": "7", "ID": 1}, True, False),
        ({"op_type": "I", "after": {"ID": 1}}, True, False),
        ({"op_type": "I", "scn": "7", "ID": 1}, None, False),  # nobody's for certain
        ({"op_type": "I", "ID": 1}, None, False),
    ],
)
def test_two_vendors_of_one_shape(message, is_goldengate, is_confluent):
    """Confluent's snapshot comes first, and `detect` called it GoldenGate's with certainty: then a position orders nothing."""
    raw = json.dumps({"table": "ORCL.HR.EMP"} | message).encode()
    evidence = formats.evidence("ogg", raw)
    certain = None if isinstance(evidence, formats.SharedEvidence) else evidence is not None
    assert (is_goldengate, is_confluent) == (certain, bool(formats.evidence("confluent-oracle", raw)))


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize(
    ("names", "members", "image"),
    [
        ({}, '"ID":1,"":{"a":1}', {"ID": "1", "": '{"a":1}'}),
        ({}, '"ID":1,"":[1]', {"ID": "1", "": "[1]"}),
        ({"after_image": "row"}, '"row":{}', {}),
        ({"after_image": "row"}, '"row":{"":7}', {"": "7"}),
    ],
)
def test_confluent_oracle_reads_an_image_the_same_in_one_pass_and_carefully(names, members, image, space):
    """A member without a name is no image: an object among the texts of a row would stop its mirror for good."""
    value = f'{{"op_type":"I","table":"A.B.C","scn":"5",{space}{members}}}'.encode()
    hints = Hints(Options(extra=names))
    (change,) = formats.load("confluent-oracle").parse(Message(value, None, "t"), hints)
    assert image == change.after
