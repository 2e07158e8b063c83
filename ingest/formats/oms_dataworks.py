"""OceanBase OMS, Dataworks 2.0 serialization ("Data formats", section "Dataworks JSON message format").

The frame is that of DataWorks' own messages, with other member names: ``schema.column`` and ``pk``,
``source.schema`` and ``table``, images in ``before.data`` and ``after.data``. Quirks:

- An update is one UPDATE with both images; the heartbeat is HEARTBEAT and has no ``schema``.
- Column types are SQL names and OMS's own, values are those of the Default serialization. The
  template prints a time as a bare number of milliseconds, the examples as text in seconds: a number
  of twelve whole digits or more counts milliseconds.
- ``scn`` is the text ``null`` in every example: then arrival decides.
- Column types and key names of the printed examples name no column of the row; that is only noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from msgspec import Raw

from ingest import types, values
from ingest.change import Op
from ingest.decoding import rows
from ingest.formats import About, dataworks
from ingest.formats.dataworks import Columns, RowPlace, StreamxDialect, read
from ingest.formats.oms_default import SECONDS
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

ABOUT = About(
    title="OceanBase OMS, Dataworks 2.0 JSON",
    document="OceanBase Migration Service, Data formats: Dataworks JSON message format",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat", "begin", "commit"),
    order="payload.scn where it is a number, which no printed example shows; else arrival decides",
    strength="weak",
    keys="schema.pk",
    types="schema.column, SQL names; DECIMAL comes without precision",
    images="full (an unchanged large object is left out)",
    ddl="payload.ddl.text",
    losses=(
        "Without a numeric scn the order of arrival is the only order.",
        "FLOAT comes with 7 significant digits and DOUBLE with 16, so the last bits of a double may be gone.",
        "DECIMAL names no precision: without `columns:` it stays text.",
        "A large object that is NULL before and after an update cannot be distinguished from an unchanged one.",
    ),
    options={
        "timezone": "zone of TIMESTAMP texts that name none, default UTC",
        "binary": "encoding of bytes, default base64",
        "order_by": "sequence (default), arrival or event_time",
    },
    before=ImagesBefore(hides_large=True),
)

OPS = {
    **{name: op for name, op in dataworks.OPS.items() if not name.startswith(("UPDATE", "MHEART"))},
    "UPDATE": Op.UPDATE,
    "ROW": Op.READ,
    "HEARTBEAT": Op.HEARTBEAT,
}
MILLISECOND_DIGITS = 12  # seconds have at most eleven before the year 5138


def recognise(sample: bytes) -> str | None:
    return dataworks.evidence(sample, "HEARTBEAT", "column", "pk")


def _place(payload: Mapping[str, Raw], _row: bool) -> RowPlace:
    position = values.text(payload.get("scn", b"null"))
    position = None if position in ("null", "") else position
    sequence = rows.numbered(position)
    return RowPlace(position, sequence, note=rows.unreadable(position, sequence))


@remembered(1024)
def _plan(
    columns: Columns, oracle: bool, declared: rows.Declared, zone: str, binary: str | None
) -> rows.RowPlan:
    sent = {name: types.with_zeros(types.oms(kind, oracle), kind) for name, kind in columns}
    by_kind = {
        kind: partial(_moment_text, zone=zone, instant=kind == "timestamp")
        for kind in ("timestamp", "datetime")
    }
    large = {name for name, kind in columns if rows.large(kind)}
    return rows.plan(sent, declared, zone, binary, whole=SECONDS, large=large, by_kind=by_kind)


def _moment_text(value: str, zone: str, instant: bool) -> str:
    """A moment from text, from seconds, or from milliseconds with a fraction of them."""
    match = _NUMBER.fullmatch(value)
    if match is None or len(match[2]) < MILLISECOND_DIGITS:
        return rows.instant_text(value, zone) if instant else rows.datetime_text(value, zone)
    nanos = int(match[2]) * 10**6 + int((match[3] or "")[:6].ljust(6, "0"))
    nanos = -nanos if match[1] else nanos
    return values.timestamp_text(nanos, 10**9) if instant else values.wall_text(nanos, 10**9, zone)


_NUMBER = re.compile(r"(-)?([0-9]{1,18})(?:\.([0-9]{1,12}))?", re.ASCII)

DIALECT = StreamxDialect(
    ops=OPS,
    names=("column", "pk", "schema", "table"),
    image="data",
    place=_place,
    plan=_plan,
    nulls_may_hide=True,
)
parse = partial(read, dialect=DIALECT)
