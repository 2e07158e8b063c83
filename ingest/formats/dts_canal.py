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
from ingest.decoding.flat_messages import CanalDialect, MarkRule, evidence, id_decides
from ingest.formats import About, SharedEvidence
from ingest.formats.canal import changes, changes_as_columns
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
    return evidence(
        sample,
        MarkRule("sql_type_empty transaction of_rows", None),  # another vendor's service of the same name
        MarkRule("id DDL", SharedEvidence("perhaps Canal message with an id and the type DDL")),
        MarkRule("id INIT", SharedEvidence("perhaps Canal message with an id and the type INIT")),
        MarkRule(
            "id base_names",
            SharedEvidence("perhaps Canal message with an id and type names without length"),
            lacks="old_is_full upper_case",
        ),
        lacks="tidb epochs int_lists column_type",
    )
