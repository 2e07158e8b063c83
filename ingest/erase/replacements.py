"""Messages of bronze without the rows of an erasure: each is decoded again, and replaced by the changes that it keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from ingest.change import ROW_OPS, Change, Message
from ingest.decoding.split import SPLIT
from ingest.erase import unread_parts
from ingest.erase.plan import Erasure, batched
from ingest.errors import IngestError, command
from ingest.ledgers import sealing
from ingest.ledgers.barriers import GONE, HEADER, Barrier, Barriers, left_of
from ingest.ledgers.rejects import PLACE, REPLAY
from ingest.silver import split_lookup
from ingest.silver.lift import Lifting, SourceDecoder
from ingest.silver.messages import Messages
from ingest.silver.registry import schemas
from ingest.silver.split_messages import Spot, Wholes
from ingest.store.envelope import Opener, Parts
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import Row, Tables

SEALED = "sealed"  # a row's bytes as bronze has them, next to what they were sealed from


class Replacement(NamedTuple):
    """What replaces a message, its signature, and the changes that are gone."""

    value: bytes
    signature: bytes
    erased: list[Change]


def replaced(lake: Lake, erasure: Erasure) -> list[tuple[Any, ...]]:
    """Replacements of the rows' messages, and of the rows of replays; what parts the rows touch is added to the erasure.

    Raises:
        IngestError: a message is no longer decoded as it was.
    """
    wanted: dict[tuple[Any, ...], dict[int, set[tuple[int | None, str]]]] = {}
    for change in erasure.changes:
        if change.topic is not None:  # a complete re-snapshot's deletes have no message
            wanted.setdefault(change.place, {}).setdefault(change.batch, set()).add(
                (change.row, change.order_key)
            )
    going: list[tuple[Any, ...]] = []
    replayed_in: set[int] = set()
    replays = _rows_at(lake, REPLAY, wanted)
    for row in replays:
        how = wanted[_place(row)]
        if row["batch"] in how:
            replayed_in.add(row["batch"])
            how.setdefault(json.loads(row["value"])["batch"], set()).update(how[row["batch"]])
            going.append(replay_row(row))
    keys = sealing.opener(lake)
    rows = [
        opened(keys, row)
        for row in _rows_at(lake, "message", wanted)
        if row["batch"] in wanted[_place(row)]
        and not (keys.seals(row["batch"]) and keys.is_lost(row["value"]))
    ]
    secret = Barriers(erasure.secret)
    batches = {row["batch"] for row in rows}
    decoders = _decoders(lake, secret, keys, {row["source"] for row in rows}, batches)
    wholes = split_lookup.wholes_of(
        lake, batches | (_with_parts(lake, replayed_in) if replayed_in else set()), keys
    )
    texts = {*erasure.cells, *(text for key in erasure.keys for text in key)}
    replacing = Replacing(lake, keys, secret, wholes, texts)
    for row in rows:
        numbers = {number for number, _ in wanted[_place(row)][row["batch"]]}
        going += replacing.without(decoders[row["source"]], row, numbers)
    sources = {Barrier.from_value(barrier).source for barrier in erasure.barriers}
    parts = list(replacing.unread_parts(sources))
    erasure.parts = [*erasure.parts, *(row[: len(PLACE)] for row in parts)]
    return going + parts


class Replacing:
    """Replaces messages, and gathers what their rows hold, by which parts of split ones are recognised that nothing has read."""

    def __init__(
        self, lake: Lake, keys: Opener, secret: Barriers, wholes: Wholes, texts: Iterable[str] = ()
    ) -> None:
        self.lake, self.keys, self.secret, self.wholes = lake, keys, secret, wholes
        self.texts, self.messages = set(texts), dict[Spot, bytes]()

    def without(self, decoder: SourceDecoder, row: Row, numbers: set[int | None]) -> list[tuple[Any, ...]]:
        """Replacements of a message without the rows of some numbers, and of its other parts; none if it lacks them already."""
        whole = row | {"value": self.wholes.read.get(Spot.of(row), row["value"])}
        new = replacement(decoder, self.secret, whole, numbers)
        if new is None:
            return []
        self._add(new, whole)
        return [
            message_row(self.keys, row, new.value, new.signature),
            *self._without_parts(row, new.value),
        ]

    def _without_parts(self, row: Row, replaced: bytes) -> Iterator[tuple[Any, ...]]:
        """Replacements of the other parts of a message, which hold nothing any more; ``replaced`` is that of the last one."""
        for other in rows_of(self.lake, self.wholes.others.get(Spot.of(row), ())):
            empty = self.secret.replacement(left_of(replaced).table, 0, [])
            yield message_row(self.keys, opened(self.keys, other), *empty)

    def _add(self, new: Replacement, whole: Row) -> None:
        """Add a whole message, with the changes that it loses: as they were sent, before anything was masked."""
        images = (image for change in new.erased for image in (change.before, change.after) if image)
        self.texts.update(text for image in images for text in image.values() if text)
        if message := whole["value"]:
            self.messages[Spot.of(whole)] = bytes(message)

    def unread_parts(self, sources: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """Replacements of the parts of some sources' messages that nothing has read, which are refused like the parts."""
        spots = unread_parts.touched(self.lake, self.keys, sources, self.texts, self.messages)
        for row in rows_of(self.lake, spots):
            yield message_row(self.keys, opened(self.keys, row), *self.secret.refused(SPLIT))


def _with_parts(lake: Tables, replays: set[int]) -> set[int]:
    """The batches of the parts that some batches have replayed: a message of theirs may begin in one and end in another."""
    rows = lake.ask(
        f"SELECT DISTINCT CAST(json_extract_string(decode(value), '$.batch') AS BIGINT) AS batch FROM {{bronze.{REPLAY}}} "
        f"WHERE batch IN ({', '.join(map(str, replays))}) "
        f"AND json_extract_string(decode(value), '$.reject.reason') = {duck.text(SPLIT)}"
    )
    return {row["batch"] for row in rows}


def opened(keys: Opener, row: Row) -> Row:
    """A message's row of bronze as it was sent, with its sealed bytes if it is sealed.

    Raises:
        SealError: the key of its day is not there.
    """
    if not keys.seals(row["batch"]):
        return row
    return row | keys.open(row["batch"], _place(row), row["value"])._asdict() | {SEALED: row["value"]}


def message_row(keys: Opener, row: Row, value: bytes, signature: bytes) -> tuple[Any, ...]:
    """A message's replacement, sealed as the message was, for `ingest.erase.remove.Removal.messages`."""
    place, batch = _place(row), row["batch"]
    if SEALED not in row:
        return *place, batch, "message", bytearray(value), bytearray(signature)
    parts = Parts(None, value, [{"key": HEADER, "value": signature}])
    return *place, batch, "message", bytearray(keys.sealed_again(batch, place, row[SEALED], parts)), None


def replay_row(row: Row) -> tuple[Any, ...]:
    """A replay's replacement, without what its reject quotes of the message."""
    replayed = json.loads(row["value"])
    replayed["reject"] = replayed.get("reject", {}) | {"detail": GONE}
    value = json.dumps(replayed, ensure_ascii=False).encode()
    return *_place(row), row["batch"], REPLAY, bytearray(value), None


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def _rows_at(
    lake: Tables, kind: str, places: Iterable[tuple[Any, ...]], of_batches: str = ""
) -> Iterator[Row]:
    names = ", ".join(map(duck.name, PLACE))
    for places_of_batch in batched(places):
        yield from lake.ask(
            f'SELECT {names}, batch, "key", "value", headers FROM {{bronze.{kind}}} '
            f"WHERE ({names}) IN ({duck.listed(places_of_batch)}){of_batches}"
        )


def rows_of(lake: Tables, spots: Iterable[Spot]) -> Iterator[Row]:
    """The messages at some places."""
    wanted = {*spots}
    places = {(*spot[:3], spot.offset) for spot in wanted}
    of_batches = f" AND batch IN ({', '.join(map(str, {spot.batch for spot in wanted}))})"
    return (row for row in _rows_at(lake, "message", places, of_batches) if Spot.of(row) in wanted)


def _decoders(
    lake: Lake, secret: Barriers, keys: Opener, sources: set[str], batches: set[int]
) -> dict[str, SourceDecoder]:
    """What decodes the messages of some sources."""
    messages = Messages(
        lake,
        lambda: lake.read(BRONZE.name).where(
            (F.col("kind") == "message") & F.col("batch").isin(sorted(batches))
        ),
    )
    how = Lifting(lake.pipeline, schemas=schemas(lake, messages, keys) if sources else {}, barriers=secret)
    return {name: SourceDecoder(how, name) for name in sources}


def replacement(
    decoder: SourceDecoder, secret: Barriers, row: Row, numbers: set[int | None]
) -> Replacement | None:
    """The replacement of a message without the rows of some numbers; None if it lacks them already.

    ``decoder`` decodes the message, ``secret`` signs the replacement, ``row`` is the message's row of bronze.

    Raises:
        IngestError: it does not hold these rows.
    """
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    value = None if row["value"] is None else bytes(row["value"])
    erased, table = 0, None
    if secret.is_replacement(headers, value):
        before = left_of(value or b"")
        changes, erased, table = before.kept, before.erased, before.table
        if not any(change.op in ROW_OPS and change.row in numbers for change in changes):
            return None
    else:
        key = None if row["key"] is None else bytes(row["key"])
        changes = decoder.parsed(Message(value, key, row["topic"], headers))
    going = [change for change in changes if change.op in ROW_OPS and change.row in numbers]
    if {change.row for change in going} != numbers or len(going) != len(numbers):
        place = "/".join(str(row[name]) for name in PLACE)
        raise IngestError(
            f"The message at {place} is decoded otherwise today than when its changes were written: "
            f"`{command('rebuild', decoder.pipeline.file, '--layer', 'silver')}` first."
        )
    kept = [change for change in changes if change not in going]
    return Replacement(*secret.replacement(table or going[0].table, erased + len(going), kept), going)
