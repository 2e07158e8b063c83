"""Canal-JSON of TiDB's TiCDC (tiflow, canal_json_row_event_encoder.go).

- ``id`` is always 0. With the protocol's TiDB extension ``_tidb.commitTs`` orders transactions; the rows of one share it,
  in any order: all rows that leave their keys come before all that arrive. Without it arrival decides.
- ``old`` holds the whole row before an update, or the changed columns by option.
- ``_tidb.onlyHandleKey``: the message was too large and holds the key columns only, a partial row.
  ``_tidb.claimCheckLocation``: the row is stored elsewhere, and the message is refused.
- ``TIDB_WATERMARK`` says how far the stream is complete: a heartbeat, its place is the watermark.
- Values are written as the open-source writer does (ISO-8859-1 bytes, ENUM index, SET mask).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from ingest import types, values
from ingest.change import Change, Hints, Message, Op
from ingest.decoding.flat_messages import (
    MARKS,
    NOWHERE,
    CanalDialect,
    CanalPosition,
    Found,
    MarkRule,
    evidence,
    position_of,
    read,
)
from ingest.errors import Undecodable
from ingest.fold import may_change_key
from ingest.formats import About
from ingest.formats.canal import TEXT_MAKERS, changes
from ingest.images_before import ImagesBefore
from ingest.values.json_records import kept_of

ABOUT = About(
    title="Canal-JSON, TiDB TiCDC",
    document="TiDB, TiCDC Canal-JSON Protocol; pingcap/tiflow, codec/canal",
    operations=("insert", "update", "delete", "truncate", "ddl", "heartbeat"),
    order="_tidb.commitTs, with the TiDB extension switched on; else none",
    strength="strong for transactions, arrival within one; weak without the extension",
    keys="pkNames",
    types="mysqlType",
    images="full (key columns only for rows too large)",
    ddl="sql",
    losses=("A row stored elsewhere by claim check cannot be read.",),
    options={
        "timezone": "the zone of TIMESTAMP texts, that of the TiCDC server (default UTC)",
        "binary": "the encoding of bytes (default iso8859-1)",
    },
    bytes_as="iso8859-1",
    by_keys=(Op.UPDATE, Op.DELETE),  # an update of the key is split into a DELETE and an INSERT
    before=ImagesBefore(changed_only=True),
)


def _extension(envelope: Found) -> dict[str, Raw]:
    extension = kept_of(envelope.tidb) or b"{}"
    if extension[:1] != b"{":
        raise Undecodable("bad-message", "_tidb is not an object")
    return values.members(extension)


def _commit(envelope: Found) -> CanalPosition:
    extension = _extension(envelope)
    if "claimCheckLocation" in extension:
        raise Undecodable("stored-elsewhere", "the row was too large and is stored by claim check")
    for name in ("commitTs", "watermarkTs"):
        if name in extension:
            return position_of(values.text(extension[name]), name)
    return NOWHERE


DIALECT = CanalDialect(
    position=_commit,
    makers=TEXT_MAKERS,
    marks={**MARKS, "TIDB_WATERMARK": Op.HEARTBEAT},
    types=types.mysql_names,
    sql="tidb",
)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    decoded = changes(message, hints, DIALECT)
    if message.value and b"onlyHandleKey" in message.value:
        extension = _extension(read(message.value)[0])
        if values.member_text(extension, "onlyHandleKey") == "true":
            decoded = [msgspec.structs.replace(change, partial=True) for change in decoded]
    return [half for change in decoded for half in _halves(change)]


def _halves(change: Change) -> Iterable[Change]:
    """A change of a transaction at its place: first what leaves its key, then what arrives or stays (``half``)."""
    if not change.sequence or change.op not in (Op.INSERT, Op.UPDATE):
        return [change]
    before, after = change.before, change.new_cells
    arrives = msgspec.structs.replace(change, half=1)
    if change.op is Op.INSERT or not before or change.partial or not change.keys:
        return [arrives]
    if not may_change_key(before, after, change.keys):
        return [arrives]
    leaves = msgspec.structs.replace(change, op=Op.DELETE, before={**after, **before}, after=None)
    return [leaves, msgspec.structs.replace(arrives, op=Op.INSERT, before=None)]


def recognise(sample: bytes) -> str | None:
    """Evidence of TiCDC: the extension ``_tidb``, or a watermark."""
    return evidence(
        sample,
        MarkRule("TIDB_WATERMARK", "Canal message of the type TIDB_WATERMARK"),
        MarkRule("tidb", "Canal message with the extension _tidb"),
    )
