r"""JSON of Huawei Cloud DRS ("Kafka Message Format", section JSON).

- ``id`` increases and orders messages.
- ``old`` holds the whole row before an UPDATE, and the row of a DELETE.
- Bytes are a list of numbers as text (``"[106, 103]"``), TIMESTAMP is seconds since 1970 as text.
- Databases with schemas have a second shape: ``columnType`` and ``dbType`` where MySQL has ``mysqlType``, and
  ``schema``, which is a part of the table's name. Bytes may be hexadecimal digits there, with ``\x`` or without.
- Full load comes as INIT, its tables as INIT_DDL (newer documents); type names have no length.
"""

from __future__ import annotations

from functools import partial

from ingest import types
from ingest.decoding import database_kinds
from ingest.decoding.converters import instant, listed_or_hex, truth, zoneless
from ingest.decoding.flat_messages import CanalDialect, MarkRule, evidence, id_decides
from ingest.formats import About, SharedEvidence
from ingest.formats.canal import changes, changes_as_columns
from ingest.images_before import ImagesBefore

ABOUT = About(
    title="JSON, Huawei Cloud DRS",
    document="Huawei DRS, Kafka Message Format, JSON",
    operations=("insert", "update", "delete", "read", "truncate", "ddl"),
    order="id, which increases",
    strength="strong",
    keys="pkNames",
    types="mysqlType or columnType, without lengths",
    images="full, before and after",
    ddl="sql",
    losses=("Types carry no precision: a decimal is text in the mirror unless `columns:` declares it.",),
    options={
        "binary": "the encoding of bytes (default int-list; bytea and RAW may be hex)",
        "database_kind": "the database whose type names are sent, if neither dbType nor a name shows it",
    },
    bytes_as="int-list",
    before=ImagesBefore(renumbers=True),
)

DIALECT = CanalDialect(
    makers={"boolean": truth, "timestamp": instant, "datetime": zoneless, "binary": listed_or_hex},
    position=id_decides,
    deleted_in_old=True,
    types=types.mysql_names,
    kinds=database_kinds.TYPES,
)


parse = partial(changes, dialect=DIALECT)
parse_many = partial(changes_as_columns, dialect=DIALECT)


# JSON-C says the same as long as no TIMESTAMP is sent
PERHAPS_LISTS = SharedEvidence("perhaps Canal message with an id and bytes as lists of numbers")


def recognise(sample: bytes) -> str | None:
    """Evidence of DRS: an id, and bytes as lists of numbers or TIMESTAMP as seconds."""
    seconds = "Canal message with an id and TIMESTAMP as seconds"
    return evidence(
        sample,
        MarkRule("upper_case", None, lacks="column_type"),
        MarkRule("id column_type", "Canal message with an id and columnType"),
        MarkRule("id epochs gtid", SharedEvidence(f"perhaps {seconds}")),
        MarkRule("id epochs", seconds),
        MarkRule(
            "id int_lists deleted_in_old",
            "Canal message with an id, bytes as lists of numbers and the row of a DELETE in old",
            lacks="moments",
        ),
        MarkRule("id int_lists", PERHAPS_LISTS, lacks="moments deleted_in_data"),
        MarkRule("id INIT_DDL", SharedEvidence("perhaps Canal message with the type INIT_DDL")),
    )
