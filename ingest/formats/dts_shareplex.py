"""SharePlex JSON of Alibaba DTS ("Data formats of a Kafka cluster", Shareplex Json) and of Quest itself.

The members are those that OMS writes, and only those that the writer was configured to send. Quirks:

- ``scn`` is a number that grows with every transaction, ``seq`` counts the operations in it from 1.
- ``time`` is UTC, though the printed examples carry no ``Z``.
- The document names whole words (INSERT, UPDATE BEFORE, DROP COLUMN) and prints short ones (``ins``).
- Quest's own writer sends only key columns in ``key`` and omits NULL columns of a row; its ``meta`` may
  hold no more than operation and table (option ``key_is_full: false``; arrival then decides).
- A delete may name no table (the printed one does not): the option ``table`` then does.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from ingest import values
from ingest.change import Image, Op, Options
from ingest.decoding import rows
from ingest.formats import SharedEvidence, oms_shareplex
from ingest.formats.oms_shareplex import SharePlexDialect, known, meta_of, read

ABOUT = replace(
    oms_shareplex.ABOUT,
    title="Alibaba DTS (and Quest) SharePlex JSON",
    document="Alibaba Cloud DTS, Data formats of a message queue: Shareplex Json",
    order="meta.scn as a number, then meta.seq; without them arrival decides",
    numbers_parts=True,
    strength="strong where meta.scn is sent",
    event_marks=(),
    leaves_out_nulls="with the key alone",
    images="full while `key_is_full` holds, else updates are partial",
    losses=(
        "Key columns are not named, so `keys:` must name them.",
        "meta may lack scn and seq: such messages are in the order of their arrival.",
        "With `key_is_full: false` an update may lack unchanged columns, and a row NULL ones.",
        "A table's name may be missing from a message.",
    ),
    options={
        **oms_shareplex.ABOUT.options,
        "timezone": "zone of TIMESTAMP texts that name none, default UTC; meta.time is always UTC",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "database_kind": "the database whose statements these are, default oracle",
        "table": "the table of messages that name none",
    },
)


def recognise(sample: bytes) -> str | None:
    """``meta.op`` with a rowid of Oracle, which is not the one that OMS builds from table and key."""
    meta = meta_of(sample)
    if meta is None or oms_shareplex.recognise(sample):
        return None
    if not _ROWID.fullmatch(meta.get("rowid") or ""):
        return SharedEvidence("perhaps meta.op with one of data, key and sql")
    return "meta.op with one of data, key and sql, and a rowid of Oracle"


_ROWID = re.compile(r"[A-Za-z0-9+/]{18}")
"""Oracle's ROWID as it prints it."""


def _order(meta: Image, _op: Op, _options: Options) -> tuple[int, ...]:
    scn, seq = rows.numbered(known(meta.get("scn"))), values.integer(meta.get("seq"))
    return (*scn, seq) if scn and seq else scn


DTS = SharePlexDialect(_order, nulls_may_hide=False, utc=True, sql="oracle", whole=None)
parse = partial(read, dialect=DTS)
