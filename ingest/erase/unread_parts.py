"""Parts of split messages that no decoder has read: those that hold something of erased rows.

What a broken-off message holds, or a part that came twice, no decoding says.  So its bytes are searched, joined with those of
its neighbours, because a value may begin in one part and end in the next.  A message of which all parts are there is left: a
replay decodes it, the barrier stops the rows, and `ingest maintain` replaces it.  So is one whose last parts may still come:
that it holds a value of a row does not say that it is a change of the row.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ingest.decoding.split import SPLIT, MessagePart
from ingest.erase.quotes import LONG, SURE
from ingest.silver import split_lookup
from ingest.silver.split_messages import LENGTH, Spot
from ingest.store.envelope import Opener
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.values.charsets import CHARSETS

_CUT = 6  # bytes of a value that is cut where a neighbour is missing; fewer are found anywhere
_PIECE = 32  # bytes of a message; fewer are frames and names, which messages of other rows have, too


def touched(
    lake: Lake, keys: Opener, sources: Iterable[str], texts: Collection[str], messages: Mapping[Spot, bytes]
) -> list[Spot]:
    """The places of the parts that no message was read with and that hold something of some rows.

    Args:
        lake: the lake.
        keys: what opens sealed messages.
        sources: whose parts are searched.
        texts: values of the rows; of short ones nothing can be said, for other rows have them, too, or bytes by chance.
        messages: whole messages with changes of the rows, which are replaced, by the place of the last part; another may
            have come before or again.
    """
    listed = ", ".join(map(duck.text, sources))
    batches = lake.ask(
        f"SELECT DISTINCT batch FROM {{rejects}} WHERE kind = 'message' AND reason = '{SPLIT}' AND source IN ({listed or 'NULL'})"
    )
    if not batches:
        return []
    parts, wholes = split_lookup.parts_of(lake, {row["batch"] for row in batches}, keys)
    spots = holding(parts, sought(texts), messages.values())
    holds = {spot: parts[spot] for spot in spots}
    kept = {
        *wholes.read,
        *needed(holds, wholes.others.keys(), messages.keys(), lambda spot: _ends(lake, spot)),
    }
    return [spot for spot in holds if spot not in kept]


def needed(
    parts: Mapping[Spot, MessagePart],
    wholes: Collection[Spot],
    replaced: Collection[Spot],
    ends: Callable[[Spot], bool],
) -> Iterator[Spot]:
    """The places of the parts from the first of a message to its last one, as far as it is whole or may become so.

    A part that came twice between them is among them: without it the next would not follow.

    Args:
        parts: by their places.
        wholes: the places of the last parts of whole messages.
        replaced: those of messages that are replaced, so that nothing puts them together again.
        ends: says whether nothing has come after a part.
    """
    for together in _neighbours(parts.items()):
        spots = [spot for spot, _ in together]
        end = next((i for i, spot in enumerate(spots) if spot in wholes), len(spots) - 1)
        begin = max((i for i in range(end + 1) if together[i][1].number == 0), default=None)
        number, total, *_ = together[end][1]
        is_kept = spots[end] not in replaced if spots[end] in wholes else number + 1 < total
        if begin is not None and is_kept and (spots[end] in wholes or ends(spots[end])):
            yield from spots[begin : end + 1]


def _ends(lake: Lake, spot: Spot) -> bool:
    """True if no message that is decoded has come after that of a place."""
    source, topic, partition, batch, offset = spot
    return not lake.ask(
        f"SELECT 1 FROM {{bronze.message}} WHERE source = {duck.text(source)} AND topic = {duck.text(topic)} "
        f'AND "partition" = {partition} AND (batch > {batch} OR (batch = {batch} AND "offset" > {offset})) '
        f"AND batch <= {lake.decoded()} LIMIT 1"
    )


def sought(texts: Iterable[str]) -> set[bytes]:
    """The bytes of the values that are looked for: a shorter one, such as a town or a year, is another row's, too."""
    long = (text for text in texts if len(text) >= LONG and len(text.encode(errors="replace")) >= SURE)
    return {value for text in long for value in _as_bytes(text) if len(value) >= _CUT}


def holding(
    parts: Mapping[Spot, MessagePart], values: Collection[bytes], messages: Collection[bytes]
) -> Iterator[Spot]:
    """The places of the parts that hold something of some values, or are pieces of some messages; with all of its message."""
    for together in _neighbours(parts.items()):
        data = b"".join({part.number: part.data for _, part in together}.values())
        if _holds(data, values) or (len(data) >= _PIECE and any(data in whole for whole in messages)):
            yield from (spot for spot, _ in together)


Neighbours = list[tuple[Spot, MessagePart]]


def _neighbours(parts: Iterable[tuple[Spot, MessagePart]]) -> Iterator[Neighbours]:
    """Parts of what was one message, as far as they follow each other; one that came twice lies there twice."""
    together: Neighbours = []
    for spot, part in sorted(parts, key=lambda placed: placed[0]):
        if together:
            last, before = together[-1]
            follows = (
                last[:3] == spot[:3]
                and spot.offset in (last.offset + 1, last.offset + LENGTH + before.size)
                and part.total == before.total
                and (part == before or part.number == before.number + 1)
            )
            if not follows:
                yield together
                together = []
        together.append((spot, part))
    if together:
        yield together


def _holds(data: bytes, values: Iterable[bytes]) -> bool:
    """True if bytes hold a value, or a piece of one at their beginning or end, where others are missing."""
    return any(
        value in data
        or (len(data) >= _CUT and data in value)
        or _overlap(data, value)
        or _overlap(value, data)
        for value in values
    )


def _overlap(first: bytes, second: bytes) -> bool:
    """True if the end of some bytes is the beginning of others, in a time that grows with their length only."""
    most = min(len(first), len(second)) - 1
    at = first.find(second[:_CUT], len(first) - most) if most >= _CUT else -1
    if at < 0:
        return False
    end = first[at:]
    if second.startswith(end):
        return True
    text = [*second[: len(end)], -1, *end]
    borders = [0]  # of each beginning of the text the longest shorter one that also ends it
    for byte in text[1:]:
        size = borders[-1]
        while size and byte != text[size]:
            size = borders[size - 1]
        borders.append(size + (byte == text[size]))
    return borders[-1] >= _CUT


def _as_bytes(text: str) -> Iterator[bytes]:
    """A value in the character sets of sources, and the bytes that a mirror has as base64."""
    for codec in {"utf-8", *CHARSETS.values()}:
        try:
            yield text.encode(codec)
        except UnicodeError:
            continue
    try:
        yield base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return
