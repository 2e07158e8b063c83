"""Canal JSON of Alibaba Cloud DTS ("Data formats of a Kafka cluster", section Canal Json).

- ``id`` is made from a timestamp and an inner offset, and orders records.
- Full load comes as type INIT, every DDL as type DDL; ``gtid`` names one transaction.
- Type names have no length (``varchar``); ``sqlType`` is documented in two ways and not read.
- Instances created before 2022-03-20 put a deleted row into ``old`` and send no ``data``, which its
  content shows; and their UPDATE has its images exchanged (``old`` is the row after), which nothing
  in the message shows: option ``swap_old_data``.
- How bytes and TIMESTAMP are written is not documented: base64, and text in ``timezone`` or seconds
  since 1970, are assumed.
"""

from __future__ import annotations

from functools import partial

from ingest import types
from ingest.decoding import database_kinds
from ingest.decoding.converters import bytes_in, instant, truth, zoneless
from ingest.decoding.flat_messages import CanalDialect, glimpse, id_decides
from ingest.formats import About, SharedEvidence
from ingest.formats.canal import ROW_TYPES, changes, changes_as_columns
from ingest.images_before import ImagesBefore

ABOUT = About(
    title="Canal JSON, Alibaba Cloud DTS",
    document="Alibaba DTS, Data formats of a message queue, Canal Json",
    operations=("insert", "update", "delete", "read", "truncate", "ddl"),
    order="id, which increases",
    strength="strong",
    keys="pkNames",
    types="mysqlType, without lengths",
    images="full; old holds the row before an update, to an extent that is not documented",
    ddl="sql",
    losses=("Types carry no precision: a decimal is text in the mirror unless `columns:` declares it.",),
    options={
        "swap_old_data": "true for updates of instances created before 2022-03-20 (default false)",
        "timezone": "the zone of TIMESTAMP texts (default UTC)",
        "binary": "the encoding of bytes (default base64)",
        "database_kind": "the database whose type names are sent, if no name shows it",
    },
    bytes_as="base64",
    before=ImagesBefore(changed_only=True, renumbers=True),
)

DIALECT = CanalDialect(
    position=id_decides,
    makers={"boolean": truth, "timestamp": instant, "datetime": zoneless, "binary": bytes_in("base64")},
    gtid_is_transaction=True,
    types=types.mysql_names,
    kinds=database_kinds.TYPES,
)


parse = partial(changes, dialect=DIALECT)
parse_many = partial(changes_as_columns, dialect=DIALECT)


def recognise(sample: bytes) -> str | None:
    """Evidence of DTS: an id, and the types INIT or DDL or type names without length."""
    seen = glimpse(sample)
    if seen is None or not seen.id or seen.tidb or seen.epochs or seen.int_lists or seen.column_type:
        return None
    if seen.sql_type_empty and seen.transaction and seen.type in ROW_TYPES:
        return None  # another vendor's service of the same name
    if seen.type in ("DDL", "INIT"):
        return SharedEvidence(f"perhaps Canal message with an id and the type {seen.type}")
    if seen.base_names and not seen.old_is_full and not seen.upper_case:
        return SharedEvidence("perhaps Canal message with an id and type names without length")
    return None
