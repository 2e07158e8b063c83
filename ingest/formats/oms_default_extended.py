"""OceanBase OMS, DefaultExtendColumnType serialization (section "DefaultExtendColumnType JSON message format").

The Default serialization with column types: each image holds one member more, ``__light_type``, an
object ``{column: {"schemaType": name}}``. It is not a column. A delete has it in ``prevStruct``. The
names are OMS's own (INT64, BIGINT for integers of any length, ZONED_DATETIME) or the source's.
DDL and heartbeats look like those of the Default serialization.
"""

from __future__ import annotations

from dataclasses import replace

from ingest.formats import oms_default

parse = oms_default.parse

ABOUT = replace(
    oms_default.ABOUT,
    title="OceanBase OMS, DefaultExtendColumnType JSON",
    document="OceanBase Migration Service, Data formats: DefaultExtendColumnType JSON message format",
    types="__light_type in the image; DECIMAL comes without precision",
    losses=(*oms_default.ABOUT.losses, "DECIMAL names no precision: without `columns:` it stays text."),
)


def recognise(sample: bytes) -> str | None:
    """A Default message with column types in an image."""
    if b'"__light_type"' in sample and oms_default.looks_like(sample):
        return "allMetaData, recordType and __light_type"
    return None
