"""OceanBase Migration Service, serializer DebeziumSmt (OMS "Data formats", section of that name).

- A message is the row alone: ``{"column": value, ..., "__deleted": "false"}``. Inserts and updates look
  alike, so both are upserts; ``__deleted`` is the text ``true`` for a delete and may be missing.
- It names no table, no key, no position and no types: they come from ``options.table``, ``keys:`` and
  ``columns:``, and arrival is the order.
- A null value deletes the row of its Kafka key; after a delete that was sent as a row it changes nothing.
- Values are written as OMS Debezium writes them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingest.change import NO_TABLE, Change, Hints, Message, Op
from ingest.decoding import connect, json_values
from ingest.decoding.debezium_events import FLAT_METADATA, is_metadata
from ingest.decoding.rows import named_table
from ingest.errors import Undecodable
from ingest.formats import About, debezium, oms_debezium

ABOUT = About(
    title="OceanBase OMS, DebeziumSmt: the row alone",
    document="OMS Data formats, section DebeziumSmt JSON format",
    operations=("update", "delete"),
    order="none; arrival decides",
    strength="weak",
    keys="the Kafka key's columns where it is a JSON object, else keys:",
    types="columns:",
    images="full",
    ddl="none",
    losses=(
        "The message names no table, no key, no time and no position.",
        "An insert cannot be distinguished from an update.",
        "A changed key leaves the old row in place unless its delete is sent.",
    ),
    options={
        "table": "required; the table of each topic or file",
        "timezone": "UTC; the zone of timestamp texts without one",
        "binary": "base16; how bytes are written",
        "time_units": "millis; what bare numbers in columns declared datetime or timestamp count",
    },
    members=FLAT_METADATA,
)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    reading = oms_debezium.reading(hints.options)
    table = hints.table_of(message.topic) or NO_TABLE
    declared = hints.tables(table)
    plan = connect.plan(b"", connect.row_fields, declared.columns, oms_debezium.no_meaning, reading)
    if message.value is None:
        return [debezium.no_value(message, connect.json_key(message.key, lambda _schema: plan), hints)]
    table = named_table(table, hints, message.topic)
    members, note = json_values.repaired(message.value, json_values.object_of)
    keys = declared.keys or connect.json_key_columns(message.key)
    columns = {*declared.columns, *keys}
    row = connect.json_image(
        {name: value for name, value in members.items() if not is_metadata(name, columns)}, plan
    )
    if not row:
        raise Undecodable("not-this-format", "the message has no columns")
    deleted = is_metadata("__deleted", columns) and json_values.text(members.get("__deleted")) == "true"
    return [
        Change(
            op=Op.DELETE if deleted else Op.UPDATE,
            table=table,
            keys=keys,
            before=row if deleted else None,
            after=None if deleted else row,
            types=plan.types,
            note=note,
        )
    ]


def recognise(sample: bytes) -> str | None:
    """A flat row whose only mark is ``__deleted``."""
    members, _note = json_values.repaired(sample, json_values.object_of)
    marks = {name for name in members if name.startswith("__")}
    return "a flat row with __deleted" if marks == {"__deleted"} else None
