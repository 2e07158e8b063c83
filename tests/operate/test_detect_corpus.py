"""Every format's messages against every other, cut ones and foreign ones: a format that is named without doubt is right.

A wrong name decodes bytes and times wrongly and orders by what is no order; so what is certain must be right, and all else
must say its doubt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest

from ingest import formats
from ingest.change import Hints, Message
from ingest.decoding import unread
from ingest.errors import Undecodable
from ingest.operate import detection, starter
from tests.formats import golden
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS

SENT_BY_ANOTHER = {
    ("canal", "reject-other-dialect"): "maxwell",
    ("dataworks", "other-dialect"): "oms-dataworks",
    ("oms-dataworks", "other-dialect"): "dataworks",
}
"""Cases that hold another format's message on purpose."""
FOREIGN = (
    {"name": "shop", "version": "1.0.0", "dependencies": {"left-pad": "^1.3.0"}},
    {"timestamp": "2024-06-10T06:13:20Z", "level": "INFO", "message": "started", "logger": "main"},
    {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": None, "properties": {}}]},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}},
    {"id": "1", "source": "/shop", "specversion": "1.0", "type": "order.made", "data": {"order": 7}},
    {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": []}]},
    {"event": "click", "user": {"id": 7}, "ts": 1718000000000, "data": {"x": 1, "y": 2}},
    {"table": "orders", "operation": "upsert", "rows": [{"id": 1}]},
    {"op": "replace", "path": "/price", "value": 2},
    {"before": 10, "after": 20, "op": "resize"},
    {"headers": {"content-type": "text/plain"}, "data": "hello"},
    {"schema": {"type": "string"}, "payload": "hello"},
    {"magic": "wand", "message": {"data": 1}},
    {"meta": {"count": 2}, "data": [1, 2]},
    {"database": "shop", "table": "orders", "rows": 12},
    [1, 2, 3],
    "a text",
    42,
)
CUT = 500
MIXED = 100
RENAMED = 100
ROW = {"id": 1, "name": "a"}
OF_OTHER_PRODUCTS = {
    "wal2json, a transaction": {
        "change": [{"kind": "insert", "table": "t", "columnnames": ["id"], "columnvalues": [1]}]
    },
    "wal2json, a transaction with its number": {
        "xid": 7,
        "timestamp": "2024-06-10 06:14:02+00",
        "change": [],
    },
    "wal2json, a row": {
        "action": "I",
        "schema": "public",
        "table": "t",
        "columns": [{"name": "id", "type": "integer", "value": 1}],
    },
    "wal2json, a delete": {
        "action": "D",
        "schema": "public",
        "table": "t",
        "identity": [{"name": "id", "type": "integer", "value": 1}],
    },
    "wal2json, a TRUNCATE": {"action": "T", "schema": "public", "table": "t"},
    "wal2json, a mark": {"action": "B"},
    "TiCDC's Simple protocol": {
        "version": 1,
        "database": "simple",
        "table": "user",
        "type": "INSERT",
        "commitTs": 447984084414103554,
        "buildTs": 1708923662983,
        "data": {"id": "1"},
    },
    "TiCDC's Simple protocol, a statement": {
        "version": 1,
        "type": "CREATE",
        "sql": "CREATE TABLE `user` (id int)",
        "commitTs": 447984074911121426,
        "buildTs": 1708923657421,
        "tableSchema": {"schema": "simple", "table": "user", "columns": []},
    },
    "TiCDC's Open Protocol": b"\0\0\0\0\0\0\0\x26" + b'{"u":{"id":{"t":3,"h":true,"v":1}}}    ',
    "Debezium, a notification": {
        "id": "5563ae14",
        "aggregate_type": "Initial Snapshot",
        "type": "STARTED",
        "additional_data": {"connector_name": "rail"},
        "timestamp": 1718000042000,
    },
    "Debezium, a signal": {
        "type": "execute-snapshot",
        "data": {"data-collections": ["shop.t"], "type": "INCREMENTAL"},
    },
    "Debezium's own history": {
        "source": {"server": "rail"},
        "position": {"transaction_id": None, "file": "binlog.000003", "pos": 154, "snapshot": True},
        "ts_ms": 1718000042000,
        "databaseName": "shop",
        "ddl": "DROP TABLE IF EXISTS `shop`.`t`",
        "tableChanges": [{"type": "DROP", "id": '"shop"."t"', "table": None}],
    },
    "MongoDB's change stream": {
        "_id": {"_data": "82"},
        "operationType": "insert",
        "ns": {"db": "d", "coll": "c"},
        "documentKey": {"_id": 1},
        "fullDocument": {"_id": 1},
    },
    "Amazon EventBridge": {
        "version": "0",
        "id": "6a7e8feb",
        "detail-type": "cdc",
        "source": "shop",
        "region": "eu-west-1",
        "resources": [],
        "detail": {"data": ROW, "metadata": {"operation": "insert"}},
    },
    "DynamoDB": {
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {"NewImage": {"Id": {"N": "1"}}, "SequenceNumber": "1"},
    },
    "Airbyte": {"type": "RECORD", "record": {"stream": "users", "data": ROW, "emitted_at": 1718000042000}},
    "Airbyte, a raw record": {
        "_airbyte_raw_id": "x",
        "_airbyte_extracted_at": 1718000042000,
        "_airbyte_data": ROW,
    },
    "Fivetran": ROW | {"_fivetran_synced": "2024-06-10T06:14:02Z", "_fivetran_deleted": False},
    "PeerDB": ROW | {"_peerdb_synced_at": "2024-06-10 06:14:02", "_peerdb_is_deleted": 0},
    "HVR": {"hvr_op": 1, "hvr_cap_tstamp": "2024-06-10 06:14:02"} | ROW,
    "Striim": {
        "metadata": {"TableName": "S.T", "OperationName": "INSERT", "TxnID": "1.2.3"},
        "data": ROW,
        "before": None,
        "userdata": None,
    },
    "CockroachDB": {"after": ROW, "key": [1], "updated": "1718000042000000000.0000000000"},
    "CockroachDB, a mark": {"resolved": "1718000042000000000.0000000000"},
    "Datastream": {
        "uuid": "d7989206",
        "read_method": "mysql-cdc-binlog",
        "object": "d_t",
        "source_metadata": {"table": "t", "log_file": "f", "log_position": 1},
        "payload": ROW,
    },
    "MaxScale": {"domain": 0, "server_id": 1, "sequence": 2, "event_number": 1, "event_type": "insert"} | ROW,
    "Supabase": {"type": "INSERT", "table": "t", "schema": "public", "record": ROW, "old_record": None},
}
"""Messages as the documents of other products show them; the name before a comma is in the words of the refusal."""
SAME_BY_OTHER_PRODUCTS = {
    "Pulsar's Debezium source": (
        "debezium",
        {
            "before": None,
            "after": ROW,
            "source": {
                "version": "1.9.7.Final",
                "connector": "mysql",
                "name": "n",
                "ts_ms": 1718000042000,
                "snapshot": "false",
                "db": "d",
                "table": "t",
                "server_id": 1,
                "file": "f.000003",
                "pos": 154,
                "row": 0,
            },
            "op": "c",
            "ts_ms": 1718000042456,
        },
    ),
    "TiCDC's Debezium protocol": (
        "debezium",
        {
            "before": None,
            "after": ROW,
            "source": {
                "version": "v8.1.1",
                "connector": "TiCDC",
                "name": "c",
                "ts_ms": 1707103832263,
                "snapshot": "false",
                "db": "d",
                "table": "t",
                "file": "",
                "pos": 0,
                "row": 0,
                "commit_ts": 447507027004751877,
            },
            "op": "c",
            "ts_ms": 1707103832957,
        },
    ),
    "Flink CDC's debezium-json": (
        "debezium",
        {"before": None, "after": ROW, "op": "c", "source": {"db": "d", "table": "t"}},
    ),
    "Flink CDC's canal-json": (
        "canal",
        {"old": None, "data": [ROW], "type": "INSERT", "database": "d", "table": "t", "pkNames": ["id"]},
    ),
    "TiCDC's Canal-JSON": (
        "ticdc-canal",
        {
            "id": 0,
            "database": "d",
            "table": "t",
            "pkNames": ["id"],
            "isDdl": False,
            "type": "INSERT",
            "es": 1639633141221,
            "ts": 1639633142960,
            "sql": "",
            "sqlType": {"id": 4, "name": 12},
            "mysqlType": {"id": "int", "name": "varchar"},
            "old": None,
            "data": [{"id": "1", "name": "a"}],
            "_tidb": {"commitTs": 429918007904436226},
        },
    ),
}
"""Messages of other products in formats that are read: the format and the message."""


def certain(messages: list[bytes]) -> str | None:
    """The format that is named without doubt."""
    verdict = detection.judge("messages", "lines", messages, None)
    return verdict["format"] if verdict["certain"] and not verdict["odd"] else None


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialects_own_messages_are_never_certainly_anothers(name):
    """A pipeline file with a sister's name would be written, and believed."""
    for seed in range(2):
        sent = [message.value for message in DIALECTS[name].write(history(seed)) if message.value]
        verdict = detection.judge("messages", "lines", sent, None)
        if verdict["certain"]:
            assert DIALECTS[name].format == verdict["format"]
        else:
            assert verdict["format"] is None or detection.doubt(verdict)


@pytest.mark.parametrize("name", formats.names())
def test_no_single_message_is_certainly_anothers(name):
    """A newcomer tries one message first."""
    for case in golden.cases():
        if case.parent.name == name and (value := golden.message(case)[0].value):
            expected = SENT_BY_ANOTHER.get((name, case.stem), name)
            assert certain([value]) in (None, expected), case.stem


def test_foreign_messages_are_of_no_format():
    """A topic of something else would be landed as rows."""
    assert [] == [each for each in FOREIGN if certain([bytes_of(each)])]


def bytes_of(message: object) -> bytes:
    """A message as it is sent."""
    return message if isinstance(message, bytes) else json.dumps(message).encode()


@pytest.mark.parametrize("product", OF_OTHER_PRODUCTS)
def test_a_message_of_another_product_is_refused_by_its_name(product):
    """The word "not this format" leads nowhere, and a reject for a missing table leads to `options: table`, which would take the
    envelope for a row.
    """
    value = bytes_of(OF_OTHER_PRODUCTS[product])
    verdict = detection.judge("m", "lines", [value], None)
    assert ([], True) == (verdict["candidates"], product.partition(",")[0] in verdict["unread"])
    for name in ("debezium", "maxwell", "canal", "dms"):
        if product == "TiCDC's Simple protocol, a statement" and name == "canal":
            continue  # a statement of Canal has the same members
        with pytest.raises(Undecodable) as refused:
            list(formats.reader(name)(Message(value), Hints()))
        assert ("unread-format", verdict["unread"]) == (refused.value.code, refused.value.detail)


@pytest.mark.parametrize("product", SAME_BY_OTHER_PRODUCTS)
def test_a_message_of_another_product_in_a_format_that_is_read(product):
    """The writer of a topic is often another one than the format's name says."""
    name, message = SAME_BY_OTHER_PRODUCTS[product]
    assert name == detection.judge("m", "lines", [bytes_of(message)], None)["format"]
    [change] = formats.reader(name)(Message(bytes_of(message)), Hints())
    assert ({"id": "1", "name": "a"}, "d", "t") == (change.after, change.table.database, change.table.table)


@pytest.mark.parametrize("name", ["maxwell", "canal", "debezium"])
def test_a_row_whose_columns_are_called_as_another_products_members(name):
    """A table that holds such events would be refused as if it were they."""
    columns = [
        "action",
        "schema",
        "table",
        "columns",
        "hvr_op",
        "_fivetran_synced",
        "updated",
        "OperationName",
    ]
    row = dict.fromkeys(columns, "x")
    message: object = {"database": "d", "table": "t", "type": "insert", "ts": 1718000042, "data": row}
    if name == "canal":
        message = SAME_BY_OTHER_PRODUCTS["Flink CDC's canal-json"][1] | {"data": [row]}
    if name == "debezium":
        message = SAME_BY_OTHER_PRODUCTS["Pulsar's Debezium source"][1] | {"after": row}
    assert unread.named(bytes_of(message)) is None


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_mark_that_sisters_share_is_worth_a_sisters_reading(is_alike, monkeypatch):
    """A dialect that reads a sister's own message otherwise would still speak for it."""
    readings = {"canal": ["insert"], "oms-canal": ["insert" if is_alike else "delete"]}
    monkeypatch.setattr(detection, "_reading", lambda name, _message: readings[name])
    evidence = {"canal": "its own mark", "oms-canal": formats.SharedEvidence("the mark of both")}
    assert is_alike == detection._reads_as("oms-canal", b"{}", evidence)


def mixed(random: Random) -> list[tuple[bytes, str]]:
    """A few messages each of two formats, and their format."""
    while True:
        chosen = [(each, DIALECTS[each].format) for each in random.sample(sorted(DIALECTS), 2)]
        if chosen[0][1] != chosen[1][1]:
            break
    of_both: list[tuple[bytes, str]] = []
    for dialect, name in chosen:
        sent = [message.value for message in DIALECTS[dialect].write(history(1)) if message.value]
        of_both += [(value, name) for value in random.sample(sent, min(4, len(sent)))]
    return of_both


def is_read_alike(named: str, messages: list[tuple[bytes, str]]) -> bool:
    """True if a format reads messages as their own formats do."""
    return all(
        name == named or (reading is not None and reading == detection._reading(name, value))
        for value, name in messages
        for reading in (detection._reading(named, value),)
    )


def renamed(value: bytes, random: Random) -> bytes:
    """A JSON message of which one of the first members has another name; as it is if it is none."""
    try:
        message = json.loads(value)
    except ValueError:
        return value
    objects = [message, *(each for each in message.values() if isinstance(each, dict) and each)]
    chosen = random.choice(objects[:3])
    name = random.choice(sorted(chosen))
    members = [("x_" + each if each == name else each, value) for each, value in chosen.items()]
    chosen.clear()
    chosen.update(members)
    return json.dumps(message).encode()


def cut(value: bytes, random: Random) -> bytes:
    """A message without its beginning, its end, or one byte."""
    place = random.randrange(1, len(value))
    return random.choice((value[:place], value[place:], value[:place] + value[place + 1 :]))


def changed(random: Random, change: Callable[[bytes, Random], bytes]) -> tuple[str, bytes]:
    """A message of some dialect's history that was changed, with the dialect's name."""
    name = random.choice(sorted(DIALECTS))
    sent = [message.value for message in DIALECTS[name].write(history(random.randrange(5)))]
    return name, change(random.choice([each for each in sent if each]), random)


def test_messages_of_two_formats_are_not_certainly_of_one():
    """A topic with two writers would be declared as one source, and the half of it read wrongly."""
    random = Random("mixed messages")
    wrong = []
    for _ in range(MIXED):
        messages = mixed(random)
        named = certain([value for value, _ in messages])
        if named and not is_read_alike(named, messages):
            wrong.append(({name for _, name in messages}, named))
    assert [] == wrong


def test_messages_with_a_renamed_member_are_of_their_format_or_of_none():
    """A sister's name, whose mark is that a member is missing."""
    random = Random("renamed members")
    wrong = []
    for _ in range(RENAMED):
        name, value = changed(random, renamed)
        if certain([value]) not in (None, DIALECTS[name].format):
            wrong.append((name, certain([value]), value))
    assert [] == wrong


def test_cut_messages_are_of_their_format_or_of_none():
    """A damaged copy would be called a file of another format."""
    random = Random("cut messages")
    wrong = []
    for _ in range(CUT):
        name, value = changed(random, cut)
        if certain([value]) not in (None, DIALECTS[name].format):
            wrong.append((name, certain([value]), value))
    assert [] == wrong


def test_a_frame_alone_is_no_mark_of_a_format():
    """Any bare datum may begin with a zero byte, and every sender to a registry uses this frame."""
    datum = b"\0\0\0\0\x07\x02\x02\x08plain text, in a record of anything"
    assert certain([datum]) is None
    sent = [message.value or b"" for message in DIALECTS["debezium-avro"].write(history(1))]
    assert certain([max(sent, key=len)]) == "debezium-avro"


def test_rows_that_two_sisters_send_alike_are_of_neither():
    """A table without TIMESTAMP is the same in both of Huawei's formats, until a row is deleted."""
    row = {
        "mysqlType": {"id": "int", "seal": "varbinary"},
        "id": 7,
        "es": 1718000000000,
        "database": "depot",
        "table": "parcels",
        "type": "INSERT",
        "isDdl": False,
        "sql": "",
        "data": [{"id": "1", "seal": "[106, 103]"}],
        "old": None,
        "pkNames": ["id"],
    }
    assert certain([json.dumps(row).encode()]) is None
    deleted = row | {"type": "DELETE"}
    assert certain([json.dumps(deleted).encode()]) == "drs-json-c"
    assert certain([json.dumps(deleted | {"data": None, "old": row["data"]}).encode()]) == "drs-json"


def test_a_rowid_that_is_not_oracles_marks_no_writer_of_shareplex():
    """A message of OMS whose table's name was damaged would be called DTS's."""
    meta = {"op": "ins", "tabe": "depot.parcels", "scn": "171234581200001", "rowid": "depot.parcels-10"}
    assert certain([json.dumps({"meta": meta, "data": {"id": 10}}).encode()]) is None
    meta |= {"rowid": "AAATGpAAIAAItcIAAA"}
    assert certain([json.dumps({"meta": meta, "data": {"id": 10}}).encode()]) == "dts-shareplex"


def test_a_doubt_says_who_else_reads_the_messages_and_what_otherwise():
    """Two candidates that differ in one column would be chosen between by their names."""
    row = {
        "data": [{"id": "1", "seal": "AAEC"}],
        "database": "depot",
        "es": 1718000000000,
        "id": 7,
        "isDdl": False,
        "mysqlType": {"id": "int", "seal": "blob"},
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "seal": 2004},
        "table": "parcels",
        "ts": 1718000000456,
        "type": "INSERT",
    }
    verdict = detection.judge("m.jsonl", "lines", [json.dumps(row).encode()], None)
    assert not verdict["certain"]
    words = detection.in_words(verdict)
    assert "in doubt: canal reads these messages, but none has a mark of it alone" in words
    assert "dts-canal (reads otherwise: the place of message 1 in the order)" in words
    assert "# in doubt: canal" in verdict["sources"]


def test_init_writes_a_doubt_into_the_file(tmp_path):
    """A file that was written on a guess would be run as if somebody had chosen."""
    sent = [
        message.value or b"" for message in DIALECTS["ticdc-canal without the extension"].write(history(1))
    ]
    (tmp_path / "m.jsonl").write_bytes(b"\n".join(sent) + b"\n")
    read = starter.found(str(tmp_path / "m.jsonl"), None)
    text = starter.text(tmp_path / "p.yaml", "p", read, "./lake")
    assert "  # in doubt: canal reads these messages, but none has a mark of it alone" in text
    named = starter.found(str(tmp_path / "m.jsonl"), "ticdc-canal")
    assert "in doubt" not in starter.text(tmp_path / "p.yaml", "p", named, "./lake")


def test_two_candidates_are_shown_with_what_tells_them_apart():
    """A choice between two names without a difference is a guess."""
    sent = [message.value or b"" for message in DIALECTS["oms-debezium-smt"].write(history(1))]
    verdict = detection.judge("m.jsonl", "lines", sent, None)
    assert ["debezium", "oms-debezium-smt"] == verdict["candidates"]
    words = detection.in_words(verdict)
    assert "  debezium and oms-debezium-smt read them alike while `columns:` declares no type" in words
