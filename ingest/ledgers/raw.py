"""Look up messages in bronze by their places."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ingest.change import NO_TABLE, TableId
from ingest.ledgers import sealing
from ingest.ledgers.rejects import PLACE
from ingest.store.envelope import NOT_SEALED, Opener, SealError
from ingest.tables import duck
from ingest.tables.tables import Row, Tables

RAW_CHARACTERS = 2_000
RAW_BYTES = 4 * RAW_CHARACTERS
HIDDEN = "(not shown, because its table may have masked columns; bronze holds it)"


@dataclass(frozen=True, slots=True)
class Raw:
    """A message as in bronze; binary is base64, and long values are cut."""

    text: str
    length: int
    binary: bool = False


NOTHING = Raw("", 0)


def raw(lake: Tables, rows: Iterable[Row], table: TableId = NO_TABLE) -> dict[tuple[Any, ...], Raw]:
    """The messages that rows were decoded from, by their places; not those of a ``table`` with masked columns.

    A message without a table name, such as a rejected one, may contain masked values of any table.
    """
    hidden = bool(lake.pipeline.masking(table).mask) if table.table else lake.pipeline.masks
    named = (row for row in rows if row["topic"] is not None)  # a complete re-snapshot has no message
    places = sorted({tuple(row[name] for name in PLACE) for row in named}, key=str)
    if not places:
        return {}
    topics = ", ".join(sorted({duck.text(place[1]) for place in places}))
    offsets = [place[3] for place in places]
    names = ", ".join(map(duck.name, PLACE))
    opener = NOT_SEALED if hidden else sealing.opener(lake)
    head = f"unhex(left(hex(value), {2 * RAW_BYTES}))" if opener is NOT_SEALED else "value"
    messages = lake.ask(
        f"""SELECT {names}, batch, {head} AS head, octet_length(value) AS length
        FROM {{bronze.message}} WHERE topic IN ({topics}) AND "offset" BETWEEN {min(offsets)} AND {max(offsets)}
        AND ({names}) IN ({duck.listed(places)}) ORDER BY batch"""
    )
    return {
        tuple(row[name] for name in PLACE): Raw(HIDDEN, row["length"] or 0)
        if hidden
        else _opened(opener, row)
        for row in messages
    }


def _opened(opener: Opener, row: Row) -> Raw:
    """The message, or why it cannot be opened."""
    if not opener.seals(row["batch"]):
        return shown(None if row["head"] is None else bytes(row["head"])[:RAW_BYTES], row["length"])
    try:
        value = opener.open(row["batch"], tuple(row[name] for name in PLACE), row["head"]).value
    except SealError as error:
        return Raw(f"({error})", 0)
    return shown(None if value is None else value[:RAW_BYTES], None if value is None else len(value))


def shown(head: bytes | bytearray | None, length: int | None) -> Raw:
    """Bytes for display: text if they are text, else base64, cut to `RAW_CHARACTERS`."""
    if head is None or length is None:
        return NOTHING
    whole = len(head) == length
    try:
        text = bytes(head).decode("utf-8", "strict" if whole else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if any(char < " " and char not in "\t\r\n" for char in text):
        return Raw(
            base64.b64encode(bytes(head)[: RAW_CHARACTERS * 3 // 4]).decode("ascii"), length, binary=True
        )
    return Raw(text[:RAW_CHARACTERS], length)
