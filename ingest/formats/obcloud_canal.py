"""Canal JSON of OceanBase Cloud data subscription ("Message formats", section Canal JSON).

- ``id`` increases and orders messages; type names are written in full and in upper case.
- ENUM and SET come as text. How bytes and TIMESTAMP are written is not documented: base64, and text
  in ``timezone`` or seconds since 1970, are assumed.
- One type name that only Oracle has marks an Oracle tenant, whose DATE has a time of day.
- An unchanged large column is sent as NULL: NULL before and after an update, it is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ingest import types
from ingest.decoding import database_kinds
from ingest.decoding.converters import bytes_in, instant, zoneless
from ingest.decoding.flat_messages import CanalDialect, MarkRule, evidence, id_decides, mysql_types
from ingest.formats import About, SharedEvidence
from ingest.formats.canal import changes, changes_as_columns
from ingest.formats.oms_canal import oracle_tenant
from ingest.images_before import ImagesBefore

ABOUT = About(
    title="Canal JSON, OceanBase Cloud data subscription",
    document="OceanBase Cloud, Message formats for subscriptions, Canal JSON message format",
    operations=("insert", "update", "delete", "truncate", "ddl"),
    order="id, which increases",
    strength="strong",
    keys="pkNames",
    types="mysqlType, in full",
    images="full (updates lack unchanged large columns); old holds the changed columns",
    ddl="sql",
    losses=("A large column set to NULL where it was NULL cannot be distinguished from an unchanged one.",),
    options={
        "timezone": "the zone of TIMESTAMP texts (default UTC)",
        "binary": "the encoding of bytes (default base64)",
        "database_kind": "oracle for a tenant of Oracle whose types MySQL has, too",
    },
    bytes_as="base64",
    before=ImagesBefore(hides_large=True, changed_only=True, renumbers=True),
)


def _types(declared: Mapping[str, str]) -> dict[str, str]:
    return _oracle_types(declared) if oracle_tenant(declared.values()) else mysql_types(declared)


def _oracle_types(declared: Mapping[str, str]) -> dict[str, str]:
    return {column: types.oracle(name) for column, name in declared.items()}


DIALECT = CanalDialect(
    position=id_decides,
    makers={"timestamp": instant, "datetime": zoneless, "binary": bytes_in("base64")},
    types=_types,
    kinds={database_kinds.ORACLE: _oracle_types},
    large=types.OMS_LOB,
    sql="oceanbase",
)


parse = partial(changes, dialect=DIALECT)
parse_many = partial(changes_as_columns, dialect=DIALECT)


def recognise(sample: bytes) -> str | None:
    """Evidence of OceanBase Cloud: an id, type names in upper case, and no ``gtid``, which Canal itself sends."""
    return evidence(
        sample,
        MarkRule(
            "id upper_case lengths",
            "Canal message with an id, without gtid, and type names with lengths in upper case",
        ),
        # other sources than MySQL have such names in other vendors' messages
        MarkRule(
            "id upper_case",
            SharedEvidence("perhaps Canal message with an id, without gtid, and type names in upper case"),
        ),
        lacks="gtid column_type",
    )
