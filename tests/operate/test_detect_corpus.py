"""Every format's messages against every other, cut ones and foreign ones: a format that is named without doubt is right.

A wrong name decodes bytes and times wrongly and orders by what is no order; so what is certain must be right, and all else
must say its doubt.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from ingest import formats
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
    assert [] == [one for one in FOREIGN if certain([json.dumps(one).encode()])]


def test_cut_messages_are_of_their_format_or_of_none():
    """A damaged copy would be called a file of another format."""
    random = Random("cut messages")
    wrong = []
    for _ in range(CUT):
        name = random.choice(sorted(DIALECTS))
        sent = [message.value for message in DIALECTS[name].write(history(random.randrange(5)))]
        value = random.choice([each for each in sent if each])
        place = random.randrange(1, len(value))
        damaged = random.choice((value[:place], value[place:], value[:place] + value[place + 1 :]))
        if certain([damaged]) not in (None, DIALECTS[name].format):
            wrong.append((name, certain([damaged]), damaged))
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
