"""Canal JSON of OceanBase OMS ("Data formats", section Canal JSON message format).

- No ``id`` and no other position: arrival decides. Full-load rows have the type ROW.
- Numbers are bare JSON numbers, kept to the last digit; bytes are base64.
- TIMESTAMP is ``seconds[.fraction]`` since 1970, before OMS 3.3.0 bare seconds; an invalid one is
  ``0000-00-00 00:00:00`` and stays so. DATETIME may carry a zone's name, which shifts nothing.
- BIT is base64, with leading zero bytes or without, before OMS 3.3.0 a bare number: an integer here.
- ``mysqlType`` mixes OMS' own names with the source's, without length (`ocean_types`).
- An unchanged large column is sent as NULL: NULL before and after an update, it is absent.
- ``pkNames`` and ``old`` of the printed examples name columns that the row lacks: a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Raw

from ingest import types, values
from ingest.change import Image
from ingest.decoding import database_kinds, json_values
from ingest.decoding.converters import bytes_in, instant
from ingest.decoding.flat_messages import CanalDialect, CanalPlan, MarkRule, Rows, evidence, raw_rows
from ingest.formats import About, SharedEvidence
from ingest.formats.canal import changes, changes_as_columns
from ingest.images_before import ImagesBefore

ABOUT = About(
    title="Canal JSON, OceanBase Migration Service (OMS)",
    document="OceanBase OMS, Data formats, Canal JSON message format",
    operations=("insert", "update", "delete", "read", "truncate", "ddl"),
    order="none; the order within a partition or file is the truth",
    strength="weak",
    keys="pkNames",
    types="mysqlType, without lengths",
    images="full (updates lack unchanged large columns); old holds the changed columns",
    ddl="sql",
    losses=(
        "A large column set to NULL where it was NULL cannot be distinguished from an unchanged one.",
        "Types carry no precision: a decimal is text in the mirror unless `columns:` declares it.",
    ),
    options={
        "timezone": "the zone of TIMESTAMP texts without one (default UTC)",
        "binary": "the encoding of bytes (default base64)",
        "database_kind": "oracle for a tenant of Oracle whose types MySQL has, too",
    },
    bytes_as="base64",
    before=ImagesBefore(hides_large=True, changed_only=True),
)

_ORACLE_ONLY = frozenset(
    "number varchar2 nvarchar2 clob nclob raw long rowid urowid bfile binary_float binary_double interval".split()
)


def oracle_tenant(declared: Iterable[str]) -> bool:
    """True if a type name occurs that only Oracle has."""
    return any(
        re.split(r"[ (]", name.lower(), maxsplit=1)[0] in _ORACLE_ONLY or "time zone" in name.lower()
        for name in declared
    )


def ocean_types(declared: Mapping[str, str]) -> dict[str, str]:
    """Logical types of the names in ``mysqlType``, of a MySQL or an Oracle tenant.

    One name that only Oracle has makes all columns Oracle's (DATE then has a time of day); a row of
    names that both have is read as MySQL's, unless one of its DATEs has a time of day.
    """
    return _read(declared, oracle=oracle_tenant(declared.values()))


def _read(declared: Mapping[str, str], *, oracle: bool) -> dict[str, str]:
    return {column: types.with_zeros(types.oms(name, oracle), name) for column, name in declared.items()}


def _zoneless_text(value: str) -> str:
    moment = values.DATETIME.match(value)
    if moment is None or not _ZONE.fullmatch(value, moment.end()):
        raise ValueError("not a date and time")
    return values.zoneless_text(moment.group())


_ZONE = re.compile(r"(?: ?(?:Z|[+-][0-9]{2}:?[0-9]{2})| [A-Za-z][A-Za-z0-9_+/-]*)?", re.ASCII)


def _bare_rows(kept: list[Any] | Raw, plan: CanalPlan) -> Rows:
    """Rows as texts; among BITs only those in quotes are base64."""
    if not isinstance(kept, Raw):
        return [_bare_row(row, plan.bits) if row else row for row in kept]
    rows: Rows = []  # something about the message is unusual, so each value is looked at on its own
    for row in raw_rows(kept):
        if values.is_null(row):
            rows.append(None)
            continue
        members = values.members(row)
        image = {name: values.text(raw) for name, raw in members.items()}
        for column in plan.bits & image.keys():
            value = image[column]
            if value and bytes(members[column])[:1] == b'"':
                image[column] = _bit_text(value)
        rows.append(image)
    return rows


def _bare_row(row: dict[str, Any], bits: frozenset[str]) -> Image:
    image = json_values.texts(row)
    for column in bits:
        value = row.get(column)
        if type(value) is str:
            image[column] = _bit_text(value)
    return image


def _bit_text(value: str) -> str:
    try:
        return values.bit_text(values.bytes_of(value, "base64"))
    except ValueError:
        return value


DIALECT = CanalDialect(
    makers={"timestamp": instant, "datetime": lambda *_: _zoneless_text, "binary": bytes_in("base64")},
    types=ocean_types,
    kinds={database_kinds.ORACLE: partial(_read, oracle=True)},
    bare_rows=_bare_rows,
    large=types.OMS_LOB,
)


parse = partial(changes, dialect=DIALECT)
parse_many = partial(changes_as_columns, dialect=DIALECT)


def recognise(sample: bytes) -> str | None:
    """Evidence of OMS: no id, yet ``sqlType`` as Canal sends it."""
    shown = "Canal message without an id, with bare numbers or TIMESTAMP as seconds"
    return evidence(
        sample,
        MarkRule("sql_type bare_numbers", shown, lacks="int_lists"),
        MarkRule("sql_type epochs", shown, lacks="int_lists"),
        MarkRule("sql_type", SharedEvidence("perhaps Canal message without an id")),
        lacks="id tidb",
    )
