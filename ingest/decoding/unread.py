"""Messages that are known and not read: what sent them, and what to set at the source instead.

A reject that only says what is missing sends its reader looking for damage. Each entry is known by the beginning of a message
as its vendor's public documents describe it; the documents are named with the entry.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WRONG_FRAMING = "wrong-framing"
HEAD = 4096  # bytes of a message that are looked at


class UnreadKind(NamedTuple):
    """One kind of message: how its beginning looks, what it is, what to choose at the source, and names that it holds.

    ``code`` is ``unread-format``, or `WRONG_FRAMING` of what is not cut into messages as it should be.
    """

    begins: re.Pattern[bytes]
    words: str
    code: str = "unread-format"
    members: tuple[bytes, ...] = ()


_OBJECT = re.compile(rb"\A\s*\{")
KINDS = (
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
        (kind for kind in kinds if kind.begins.match(head) and all(name in head for name in kind.members)),
        None,
    )
