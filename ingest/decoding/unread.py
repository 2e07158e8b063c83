"""Messages that are known and not read: what sent them, and what to set at the source instead.

A reject that only says what is missing sends its reader looking for damage. Each entry is known by the beginning of a message
as its vendor's public documents describe it; the documents are named with the entry.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ingest import values

WRONG_FRAMING = "wrong-framing"
HEAD = 4096  # bytes of a message in which its beginning and ``members`` are looked for


class UnreadKind(NamedTuple):
    """One kind of message: how its beginning looks, what it is, what to choose at the source, and names that it holds.

    ``members`` are anywhere in its beginning, ``outermost`` are those of the object itself. ``code`` is ``unread-format``, or
    `WRONG_FRAMING` of what is not cut into messages as it should be.
    """

    begins: re.Pattern[bytes]
    words: str
    code: str = "unread-format"
    members: tuple[bytes, ...] = ()
    outermost: frozenset[str] = frozenset()


_OBJECT = re.compile(rb"\A\s*\{")
_PGOUTPUT = "read the slot by Debezium with plugin.name=pgoutput (`format: debezium`)"
_TICDC = "write protocol=canal-json&enable-tidb-extension=true into the changefeed's sink-uri (`format: ticdc-canal`)"
_CONFLUENT = "let Confluent's Avro converter and its registry write it (`format: debezium-avro`), or JSON (`format: debezium`)"
_INSTEAD = "capture its tables by Debezium (`format: debezium`) or another writer that `ingest formats` lists"
_OR_COLUMNS = "; if it is a flattened row of a table that has such columns, give the topic this table under options.table"
_NO_ROWS = "which is about no row: leave its topic out of the source"
_NOT_FOR_READERS = (
    "which is not for readers: leave its topic out, and read the one named like topic.prefix, to which "
    "include.schema.changes=true sends statements"
)
_OTHER_PRODUCTS = (  # the outermost members, others, what it is and what to do
    # docs.pingcap.com, "TiCDC Simple Protocol"
    ("version type commitTs buildTs", "", f"a message of TiCDC's Simple protocol: {_TICDC}"),
    # debezium.io, "Receiving notifications", "Sending signals", "schema.history.internal.kafka.topic": topics that a pattern of topics may match
    (
        "aggregate_type type additional_data timestamp",
        "",
        f"a notification of Debezium's (notification.sink.topic.name), {_NO_ROWS}",
    ),
    (
        "source position databaseName",
        "",
        f"a statement of Debezium's own history (schema.history.internal.kafka.topic), {_NOT_FOR_READERS}",
    ),
    ("type data", "data-collections", f"a signal to Debezium (signal.kafka.topic), {_NO_ROWS}"),
    # mongodb.com/docs, "Change Events"
    (
        "operationType ns documentKey",
        "coll",
        "an event of MongoDB's change stream: documents of MongoDB are not rows; capture a relational source",
    ),
    # docs.aws.amazon.com: "EventBridge event structure"; DynamoDB streams, "Record"
    (
        "detail-type source detail",
        "",
        "an event of Amazon EventBridge: write InputPath=$.detail for the rule's target, and the format of what is inside",
    ),
    (
        "eventSource dynamodb",
        "",
        "a record of DynamoDB's stream: its items are not rows; capture a relational source",
    ),
    # docs.airbyte.com, "Airbyte Protocol", "Raw tables"
    ("type record", "emitted_at", f"a record of Airbyte's protocol: {_INSTEAD}"),
    ("_airbyte_data", "", f"a raw record of Airbyte's: {_INSTEAD}{_OR_COLUMNS}"),
    # fivetran.com/docs, "System columns"; docs.peerdb.io; HVR, "Integrate" (columns of a time key)
    ("_fivetran_synced", "", f"a row as Fivetran loads it: {_INSTEAD}{_OR_COLUMNS}"),
    ("_peerdb_synced_at", "", f"a row as PeerDB loads it: {_INSTEAD}{_OR_COLUMNS}"),
    ("hvr_op", "", f"a row with HVR's extra columns: {_INSTEAD}{_OR_COLUMNS}"),
    # striim.com/docs, "WAEvent contents for change data"
    ("metadata data", "OperationName", f"an event of Striim's (WAEvent): {_INSTEAD}"),
    # cloud.google.com/datastream/docs, "Events and streams"
    ("read_method source_metadata payload", "", f"an event of Google's Datastream: {_INSTEAD}"),
    # mariadb.com/kb, "Avrorouter"
    ("domain event_number event_type", "", f"a row of MaxScale's Avro router: {_INSTEAD}{_OR_COLUMNS}"),
    # supabase.com/docs, "Database Webhooks"
    ("type table schema record old_record", "", f"a webhook of Supabase's: {_INSTEAD}"),
)
KINDS = (
    *(
        UnreadKind(
            _OBJECT,
            words,
            members=tuple(f'"{name}"'.encode() for name in members.split()),
            outermost=frozenset(outermost.split()),
        )
        for outermost, members, words in _OTHER_PRODUCTS
    ),
    # eulerto/wal2json, README, format version 1, and rows and marks of version 2; columns may have these names, too
    UnreadKind(
        re.compile(
            rb'\A\s*\{(?:\s*"(?:xid|nextlsn|timestamp|origin)"\s*:[^,{\[]*,)*\s*"change"\s*:\s*\[\s*[{\]]'
        ),
        f"a transaction of PostgreSQL's plugin wal2json, whose rows have no position: {_PGOUTPUT}",
    ),
    UnreadKind(
        re.compile(rb'\A\s*\{\s*"action"\s*:\s*"[IUDT]"\s*,'),
        f"a row of PostgreSQL's plugin wal2json: {_PGOUTPUT}",
        outermost=frozenset({"schema", "table"}),
    ),
    UnreadKind(
        re.compile(rb'\A\s*\{\s*"action"\s*:\s*"[BC]"\s*[,}]'),
        f"a transaction's mark of PostgreSQL's plugin wal2json: {_PGOUTPUT}",
    ),
    # docs.pingcap.com, "TiCDC Open Protocol": a length of eight bytes, then the event
    UnreadKind(
        re.compile(rb'\A\0{5}...\{\s*"[updq]"\s*:', re.DOTALL), f"an event of TiCDC's Open Protocol: {_TICDC}"
    ),
    # cockroachlabs.com/docs, "Changefeed Messages"
    UnreadKind(
        re.compile(rb'\A\s*\{.*"(?:updated|resolved|mvcc_timestamp)"\s*:\s*"\d{18,20}\.\d{10}"', re.DOTALL),
        "a message of CockroachDB's changefeed, which is not read",
    ),
    # "Avro Demo Description" (571/93253): id, version, messageType, then fileName and position as in the JSON records
    UnreadKind(
        re.compile(
            rb"[\x80-\xff]{0,9}[\x00-\x7f]\x02[\x00-\x18]\x02?.[ -~]{1,60}\.\d{6}\x02?.\d{1,20}@\d", re.DOTALL
        ),
        "an Avro record of Tencent Cloud DTS's data subscription, whose schema is only in the vendor's demo programs: choose "
        "ProtoBuf (`format: tencent-protobuf`) or JSON (`format: tencent-json`) when the subscription is made",
    ),
    # "Binlog Consumption Format" (237/35420)
    UnreadKind(
        _OBJECT,
        "the binary log's events in TDSQL's own JSON, whose values have no names: subscribe through Tencent Cloud DTS "
        "(`format: tencent-protobuf`)",
        members=(b'"logtype"', b'"eventtypestr"'),
    ),
    # "Official Format Description for MySQL Subscription Messages" (597/64334)
    UnreadKind(
        _OBJECT,
        "official format 1 of CKafka's connector: choose its default format there (`format: debezium`)",
        members=(b'"BINLOG_NAME"', b'"NEW_VALUES"'),
    ),
    # Oracle GoldenGate for Big Data, "Using the Kafka Connect Handler", JSON converter
    UnreadKind(
        _OBJECT,
        "a record of GoldenGate inside Kafka Connect's schema: set value.converter.schemas.enable=false (`format: ogg`), or use "
        "Confluent's Avro converter (`format: ogg-avro`)",
        members=(b'"schema"', b'"payload"', b'"op_type"', b'"op_ts"', b'"pos"'),
    ),
    # awslabs/aws-glue-schema-registry, "SerializationDataEncoder": version, compression, 16 bytes of schema
    UnreadKind(
        re.compile(rb"\x03[\x00\x05].{17}", re.DOTALL),
        f"a record with the header of AWS Glue's schema registry, which is not read: {_CONFLUENT}",
    ),
    # apicurio/apicurio-registry, "DefaultIdHandler": ids of eight bytes unless as-confluent is set; a registry counts from 1
    UnreadKind(
        re.compile(rb"\0\0{4}.{5}", re.DOTALL),
        "a record with Apicurio's id of eight bytes: set key.converter.apicurio.registry.as-confluent=true and "
        "value.converter.apicurio.registry.as-confluent=true at the source",
    ),
    UnreadKind(
        re.compile(rb"Obj\x01"),
        "a whole Avro container file: take `framing:` out of the source, and give the file a new name, so that it is read again",
        WRONG_FRAMING,
    ),
    UnreadKind(  # in Kafka
        re.compile(rb"Obj\x01"),
        "a whole Avro container file as one message: let its sender write each record as a message of its own, or write the files "
        "to a folder or a bucket, and read them there (`kind: files`)",
    ),
    UnreadKind(
        re.compile(rb'\A\s*(?:[{\[]\s*\Z|[}\]]+,?\s*\Z|"(?:[^"\\]|\\.){0,200}"\s*:)'),
        "a line of a document whose lines are broken: write `framing: document` for the source, and give the file a new name, so "
        "that it is read again",
        WRONG_FRAMING,
    ),
)


def named(value: bytes, *, framed: bool = True) -> UnreadKind | None:
    """The kind of a message, if it is one that is known and not read; of `WRONG_FRAMING` only where it is ``framed`` here."""
    head = value[:HEAD]
    kinds = (kind for kind in KINDS if framed or kind.code != WRONG_FRAMING)
    return next(
        (
            kind
            for kind in kinds
            if kind.begins.match(head)
            and all(name in head for name in kind.members)
            and _has_outermost(value, kind.outermost)
        ),
        None,
    )


def _has_outermost(value: bytes, names: frozenset[str]) -> bool:
    """True if an object has all of these members, and is not a row of a flattened topic, whose columns may be called so.

    A converter of Kafka Connect's may have added the schema to the object.
    """
    if not names:
        return True
    if any(f'"{name}"'.encode() not in value for name in names):  # so few large messages are parsed
        return False
    document = values.peeked(value)
    if document.keys() == {"schema", "payload"}:
        document = values.peeked(bytes(document["payload"]))
    outermost = document.keys()
    is_flattened = any(name.startswith("__") for name in outermost)  # as `__op` and `__deleted` of Debezium
    return outermost >= names and not is_flattened
