"""OceanBase Migration Service, serializer DebeziumFlatten (OMS "Data formats", section of that name).

The payload of OMS Debezium as the message itself, without ``schema`` and ``payload``: everything
else is as there, types come from ``columns:`` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ingest.change import Change, Hints, Message, Op
from ingest.decoding import json_values
from ingest.formats import About, oms_debezium

ABOUT: About = replace(
    oms_debezium.ABOUT,
    title="OceanBase OMS, DebeziumFlatten: the payload alone",
    document="OMS Data formats, section DebeziumFlatten JSON format",
    types="columns:",
    losses=("The message has no types.", *oms_debezium.ABOUT.losses[1:]),
)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    if json_values.is_null(message.value):
        return [Change(op=Op.CONTROL, note="tombstone")]
    members, note = json_values.repaired(message.sent, json_values.object_of)
    return [oms_debezium.event(b"", members, message, hints, note)]


def recognise(sample: bytes) -> str | None:
    """The constant source name OMS next to the operation."""
    return oms_debezium.evidence(json_values.repaired(sample, json_values.object_of)[0])
