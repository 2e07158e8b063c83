"""Messages that are known and not read: named as what they are, and never confused with what is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ingest
from ingest import config, formats
from ingest.change import Hints, Message, Options, TableId
from ingest.decoding import unread
from ingest.errors import Undecodable
from ingest.operate import detection
from tests.formats import golden
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.operate.test_detect_corpus import OF_OTHER_PRODUCTS

TENCENT_AVRO = b"\xa4\x13\x02\x00\x20mysql-bin.000004\x0c2196@4\x0c1900@4\x80\x9b\xb2\xe6\x0c" + b"\x01" * 9
"""As "Avro Demo Description" (571/93253) describes its first members; the schema itself is not published."""
TDSQL = {
    "logtype": "mysqlbinlog",
    "eventtype": 23,
    "eventtypestr": "insert",
    "db": "d",
    "where": [],
    "field": ["1"],
}
CKAFKA = {"BINLOG_NAME": "mysql-bin.000004", "BINLOG_POS": 4, "NEW_VALUES": {"id": 1}, "TYPE": "I"}
GOLDENGATE = {
    "schema": {"type": "struct", "fields": []},
    "payload": {
        "table": "S.T",
        "op_type": "I",
        "op_ts": "2024-06-10 06:14:02",
        "pos": "1",
        "after": {"ID": 1},
    },
}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("dts-avro", TENCENT_AVRO, "choose ProtoBuf (`format: tencent-protobuf`)"),
        ("tencent-protobuf", TENCENT_AVRO, "choose ProtoBuf (`format: tencent-protobuf`)"),
        ("tencent-json", json.dumps(TDSQL).encode(), "in TDSQL's own JSON"),
        ("debezium", json.dumps(CKAFKA).encode(), "official format 1 of CKafka's connector"),
        ("debezium-avro", b"\3\0" + bytes(range(16)) + b"\2\2", "the header of AWS Glue's schema registry"),
        ("ogg-avro", b"\3\5" + bytes(range(16)) + b"\x78\x9c", "the header of AWS Glue's schema registry"),
        ("debezium-avro", b"\0" + (7).to_bytes(8, "big") + b"\2\2", "as-confluent=true"),
        ("ogg", json.dumps(GOLDENGATE).encode(), "set value.converter.schemas.enable=false (`format: ogg`)"),
    ],
)
def test_a_message_of_a_kind_that_is_not_read_is_refused_by_its_name(name, value, words):
    """A reject "truncated" would send its reader looking for damage; `detect` would say that it knows nothing."""
    with pytest.raises(Undecodable) as refused:
        list(formats.reader(name)(Message(value), Hints()))
    assert refused.value.code == "unread-format"
    assert words in refused.value.detail
    assert words in detection.in_words(detection.judge("m", "lines", [value], None))


OF_DEBEZIUM = ["Debezium, a notification", "Debezium, a signal", "Debezium's own history"]


@pytest.mark.parametrize("name", OF_DEBEZIUM)
@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("options", [Options(), Options(table=(("*", TableId("depot", None, "trips")),))])
def test_what_debezium_writes_for_itself_is_no_row(name, is_wrapped, options):
    """In the converter's default form the refusal was `no-table`; with the table that it advised it became a row."""
    sent = OF_OTHER_PRODUCTS[name]
    value = json.dumps({"schema": {"type": "struct"}, "payload": sent} if is_wrapped else sent).encode()
    with pytest.raises(Undecodable) as refused:
        list(formats.reader("debezium")(Message(value), Hints(options)))
    assert "unread-format" == refused.value.code
    assert "leave its topic out" in refused.value.detail
    assert formats.evidence("debezium", value) is None
    assert "leave its topic out" in detection.in_words(detection.judge("m", "lines", [value], None))


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "aggregate_type": "trip", "type": "MADE", "additional_data": "{}", "timestamp": 1},
        {
            "id": 1,
            "aggregate_type": "trip",
            "type": "MADE",
            "additional_data": None,
            "timestamp": 1,
            "fare": 2,
        },
        {"type": "execute-snapshot", "data": '{"data-collections": ["depot.trips"]}'},
    ],
)
def test_a_row_with_columns_as_debezium_names_its_own_is_a_row(row):
    """A table may be called so, and a column of JSON is a text; the table of signals is captured like any other."""
    hints = Hints(Options(table=(("*", TableId("depot", None, "trips")),)))
    [change] = formats.reader("debezium")(Message(json.dumps(row).encode()), hints)
    assert row.keys() == (change.after or {}).keys()


@pytest.mark.parametrize("name", [name for name in formats.names() if formats.load(name).ABOUT.binary])
def test_a_container_file_in_a_message_is_refused_by_its_name(name):
    """A broker's message has no framing to take out, and "the datum ends before its last value" tells of damage."""
    with pytest.raises(Undecodable) as refused:
        list(formats.reader(name)(Message(b"Obj\x01" + bytes(200)), Hints(framed=False)))
    assert ("unread-format", True) == (refused.value.code, "(`kind: files`)" in refused.value.detail)


def test_no_message_that_is_read_is_of_such_a_kind():
    """A damaged message of a format that is read would be refused as something else."""
    sent = [golden.message(case)[0].value for case in golden.cases()]
    sent += [message.value for dialect in DIALECTS.values() for message in dialect.write(history(1))]
    assert {None} == {unread.named(value) for value in sent if value}


@pytest.mark.parametrize(
    "columns",
    [
        {"change": "0.1"},
        {"change": ["a"]},
        *({name: "x", "__op": "u"} for name in ("change", "hvr_op", "_fivetran_synced")),
    ],
)
def test_a_flattened_row_is_not_called_after_its_columns(columns):
    """The name of another product would hide what leads out: to give the topic its table."""
    with pytest.raises(Undecodable, match="no-table"):
        list(formats.reader("debezium")(Message(json.dumps({"id": 1, **columns}).encode()), Hints()))


def test_a_row_without_marks_whose_columns_are_those_of_another_product_says_both_ways_out():
    """A warehouse that Fivetran loads may be captured, too, and flattened without `add.fields`."""
    row = json.dumps({"id": 1, "_fivetran_synced": "2024-06-10"}).encode()
    with pytest.raises(Undecodable, match=r"as Fivetran loads it: .*under options\.table"):
        list(formats.reader("debezium")(Message(row), Hints()))


@pytest.mark.parametrize("member", [b"hvr_op", b"specversion"])
def test_a_name_that_is_not_utf8_is_refused_as_such(member):
    """A file in GBK ended `detect` with a traceback, and its rejects did not say what is wrong."""
    value = b'{"\xd0\xd5": 1, "%s": 1}' % member
    with pytest.raises(Undecodable, match="bad-utf8"):
        list(formats.reader("debezium")(Message(value), Hints()))
    assert "none of 1 message is of a known format" in detection.in_words(
        detection.judge("m", "lines", [value], None)
    )


@pytest.mark.parametrize("name", ["dts-avro", "canal-protobuf", "tencent-protobuf"])
def test_a_file_of_lengths_that_was_read_as_one_message_is_read_all_the_same(name):
    """Its bytes have landed, so a source whose `framing: raw` is wrong would never get them again."""
    sent = [message.value or b"" for message in DIALECTS[name].write(history(1))]
    whole = b"".join(len(value).to_bytes(4, "big") + value for value in sent)
    apart = [change for value in sent for change in formats.load(name).parse(Message(value), Hints())]
    together = list(formats.reader(name)(Message(whole), Hints()))
    assert [(each.op, each.after, each.sequence) for each in apart] == [
        (each.op, each.after, each.sequence) for each in together
    ]
    assert [*range(len(together))] == [each.row for each in together]
    with pytest.raises(Undecodable):
        formats.reader(name)(Message(whole[:-1]), Hints())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("dts-avro", b"Obj\x01\x04\x16avro.schema", "take `framing:` out of the source"),
        ("maxwell", b"{\n", "write `framing: document` for the source"),
        ("maxwell", b'  "database": "shop",', "write `framing: document` for the source"),
        ("canal", b"},", "write `framing: document` for the source"),
    ],
)
def test_a_message_that_is_cut_wrongly_names_the_framing(name, value, words):
    """The word malformed would send its reader looking for damage in a file that is whole."""
    with pytest.raises(Undecodable) as refused:
        list(formats.reader(name)(Message(value), Hints()))
    assert ("wrong-framing", True) == (refused.value.code, words in refused.value.detail)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("maxwell", b"{\n", "bad-json"),
        ("canal", b"[", "bad-json"),
        ("ogg", b"}", "bad-json"),
        ("debezium", b'  "database": "shop",', "bad-json"),
        ("dts-avro", b"Obj\x01\x04\x16avro.schema", None),
    ],
)
def test_a_message_of_a_broker_that_is_cut_is_not_said_to_be_framed_wrongly(name, value, code, tmp_path):
    """A topic has no `framing:` and no name to change: the advice would hide that the sender has cut the message."""
    [of_topic, of_file] = _sources(tmp_path, name)
    with pytest.raises(Undecodable) as refused:
        list(formats.reader(name)(Message(value), of_topic))
    assert code in (refused.value.code, None)
    assert "framing" not in str(refused.value)
    with pytest.raises(Undecodable, match="wrong-framing"):
        list(formats.reader(name)(Message(value), of_file))
    [record, of_bytes] = ingest.decode(name, [Message(value, topic="orders"), value])
    assert ("wrong-framing", refused.value.code) == (of_bytes["reject"], record["reject"])


def _sources(folder: Path, name: str) -> list[Hints]:
    """What a pipeline file says of a topic and of files of one format."""
    file = folder / "p.yaml"
    file.write_text(
        f"pipeline: shop\nlake: {folder}/lake\nsources:\n"
        f"  - {{name: a, kind: kafka, bootstrap_servers: 'b:9092', topics: [t], format: {name}}}\n"
        f"  - {{name: b, kind: files, path: '{folder}/*', format: {name}}}\n"
    )
    pipeline = config.load(file)
    return [pipeline.hints(source) for source in pipeline.sources]


def test_a_canal_packet_is_named_where_tencents_envelopes_are_read():
    """The two are the Protobuf formats of one product: "not this format" would not say which is right."""
    [packet, *_] = DIALECTS["canal-protobuf"].write(history(1))
    with pytest.raises(Undecodable, match="a packet of Canal: write `format: canal-protobuf`"):
        formats.load("tencent-protobuf").parse(packet, Hints())
