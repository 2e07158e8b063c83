"""Debezium in framed Avro: Confluent's converter with a schema registry.

Documents: Debezium ``configuration/avro.adoc``; Confluent's wire format. What the events mean is Debezium's
and is read there; here is only how they are written:

- A byte 0, the schema's id as four big-endian bytes, then one datum. The key is framed likewise, with
  a schema of its own; where it is JSON it is read as JSON.
- Connect's types and semantic names are given next to the Avro ones as ``connect.type``, ``connect.name`` and
  ``connect.parameters``. Avro's own logical types are the fallback.
- Names that Avro does not allow were changed by the connector before sending. Statements of the schema-change topic have the
  source's own; they are read under those of the rows (`ingest.ledgers.adjusted_names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ingest.change import Change, Hints, Image, Message, TableHints
from ingest.decoding import connect, connect_avro, documents, json_values
from ingest.decoding.connect import meanings
from ingest.decoding.debezium_events import control
from ingest.decoding.declared_values import compact, plain_text
from ingest.errors import Undecodable
from ingest.formats import About, SharedEvidence, debezium
from ingest.values.remembered import remembered

ABOUT: About = replace(
    debezium.ABOUT,
    title="Debezium Avro with a schema registry",
    document="Debezium documentation, Avro serialization; Confluent wire format",
    types="the registry's schema",
    framing="length",
    binary=True,
    by_registry=True,
)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one framed datum; a DDL message may name several tables and gives one for each."""
    # a record without bytes, as files have it for a null value
    if message.value is None or (not message.value and message.key is None):
        return [debezium.no_value(message, _key(message.key, hints), hints)]
    text, row = connect_avro.unframed(message.value, hints)
    if row is None:
        return [debezium.no_value(message, _key(message.key, hints), hints)]
    if not isinstance(row, dict):
        raise Undecodable("not-this-format", "the datum is not a record")
    kind = debezium.kind_of(row, hints)
    if kind == "row":
        return [debezium.wrapped_row(AVRO, text, row, message, hints)]
    if kind == "flat":
        if documents.DESCRIBED in row:
            raise Undecodable(
                "unsupported-source",
                "a CloudEvent in Avro: set value.converter.serializer.type and value.converter.data.serializer.type to json at "
                "the source, and write `format: debezium`",
            )
        return [debezium.flat_row(AVRO, text, row, message, hints)]
    return control(kind, json_values.object_of(compact(row).encode()))


def _key(key: bytes | None, hints: Hints, declared: TableHints | None = None) -> Image | None:
    """The key's columns from framed Avro or JSON; None where it is neither."""
    if not key or key[0] != 0:
        return debezium.json_key(key, hints, declared)
    try:
        text, parsed = connect_avro.unframed(key, hints)
        columns = declared.columns if declared else {}
        plan = connect.plan(text, connect_avro.row_fields, columns, meanings, debezium.reading(hints.options))
    except Undecodable:
        return None
    return connect.plain_image(parsed, plan) if isinstance(parsed, dict) else None


def _key_columns(key: bytes | None, hints: Hints) -> tuple[str, ...]:
    """The names of the key's columns, which its schema says."""
    if not key or key[0] != 0:
        return debezium.json_key_columns(key, hints)
    try:
        return _members(hints.schema(connect_avro.frame(key).schema)) if hints.schema else ()
    except (KeyError, Undecodable):
        return ()


@remembered(1024)
def _members(schema: str) -> tuple[str, ...]:
    return tuple(field.name for field in connect_avro.row_fields(schema))


def _images(before: Any, after: Any, plan: connect.ConnectPlan) -> debezium.Images:
    if not isinstance(before, dict | None) or not isinstance(after, dict | None):
        raise Undecodable(
            "unsupported-source", "an image that is not a record is a MongoDB document, not a row"
        )
    return connect.plain_images(before, after, plan)


def _texts(record: Any) -> Image:
    if not isinstance(record, dict):
        return {}
    return {name: cell if type(cell) is str else plain_text(cell) for name, cell in record.items()}


AVRO = debezium.Encoding(
    text=plain_text,
    texts=_texts,
    images=_images,
    columns=connect.plain_image,
    key=_key,
    key_columns=_key_columns,
    envelope_fields=connect_avro.envelope_fields,
    row_fields=connect_avro.row_fields,
)


def recognise(sample: bytes) -> str | None:
    """Without the registry only the frame can be seen, and texts; a bare datum, or another sender's, may begin like one."""
    if len(sample) <= 5 or sample[0] != 0 or sample[5:6] in (b"{", b"["):  # JSON has this frame, too
        return None
    number = int.from_bytes(sample[1:5], "big")
    if not number:  # a registry counts from 1
        return None
    if source := _SOURCE.search(sample, 5):
        return f"a zero byte, schema id {number} and the connector {source[1].decode()}"
    return SharedEvidence(f"perhaps a zero byte and schema id {number}")


_SOURCE = re.compile(
    rb"\.(?:Final|CR[0-9]|Beta[0-9]|Alpha[0-9])"  # Debezium's version, and the connector's name after its length
    rb"(?:\x0a(?=mysql)|\x0e(?=mariadb)|\x14(?=postgresql)|\x0c(?=oracle)|\x12(?=sqlserver)|\x06(?=db2))"
    rb"(mysql|mariadb|postgresql|oracle|sqlserver|db2)"
)
