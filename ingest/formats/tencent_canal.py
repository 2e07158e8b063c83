"""Canal JSON of Tencent Cloud DTS ("Sync to Kafka", documents 571/60084 and 571/102285).

A task that synchronizes to Kafka writes Canal's flat message in one of two modes. Quirks of both:

- ``id`` is made of a timestamp and an offset inside DTS, and orders records; ``gtid`` names one transaction.
- Full load comes as type INIT; ``sqlType`` is left empty; type names have no length.

In the mode that is not fully compatible, which the option ``binary`` assumes, bytes are hexadecimal digits and a TIMESTAMP
carries its zone (``2021-05-17 07:22:42 +00:00``). In the fully compatible mode both are as the open-source writer sends them:
``binary: iso8859-1``, and ``timezone`` for texts without a zone.
"""

from __future__ import annotations

from functools import partial

from ingest import types
from ingest.decoding.converters import bytes_in, instant, truth, zoneless
from ingest.decoding.flat_messages import CanalDialect, MarkRule, evidence, id_decides
from ingest.formats import About, SharedEvidence
from ingest.formats.canal import changes, changes_as_columns
from ingest.images_before import ImagesBefore

ABOUT = About(
    title="Canal JSON, Tencent Cloud DTS",
    document="Tencent Cloud DTS, Canal Demo (571/60084, 571/102285)",
    operations=("insert", "update", "delete", "read", "truncate", "ddl"),
    order="id, which increases",
    strength="strong",
    keys="pkNames",
    types="mysqlType, without lengths",
    images="full; old holds the row before an update, to an extent that is not documented",
    ddl="sql",
    losses=(
        "Types carry no precision: a decimal is text in the mirror unless `columns:` declares it.",
        "Geometry stays the hexadecimal digits that were sent.",
    ),
    options={
        "binary": "the encoding of bytes (default hex; iso8859-1 in the fully compatible mode)",
        "timezone": "the zone of TIMESTAMP texts that name none, which the fully compatible mode sends (default UTC)",
    },
    bytes_as="hex",
    before=ImagesBefore(changed_only=True, renumbers=True),
)

DIALECT = CanalDialect(
    position=id_decides,
    makers={"boolean": truth, "timestamp": instant, "datetime": zoneless, "binary": bytes_in("hex")},
    gtid_is_transaction=True,
    types=types.mysql_names,
)


parse = partial(changes, dialect=DIALECT)
parse_many = partial(changes_as_columns, dialect=DIALECT)


def recognise(sample: bytes) -> str | None:
    """Evidence of Tencent's writer: an id, ``gtid``, an empty ``sqlType`` next to the row's types."""
    return evidence(
        sample,
        MarkRule(
            "id transaction sql_type_empty of_rows",
            "Canal message with an id, the gtid of a transaction and an empty sqlType",
        ),
        MarkRule(
            "id gtid sql_type_empty of_rows",
            SharedEvidence("perhaps Canal message with an id and an empty sqlType"),
        ),
        lacks="tidb column_type upper_case lengths",
    )
