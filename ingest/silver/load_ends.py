"""The last row of a load whose end is said by a mark after it: Maxwell's ``bootstrap-complete``.

A mark is no row and is not kept. The row before it of the same table says then, as those of Debezium's snapshots do by
themselves, that the table had nothing more: what the mirror has besides was deleted at the source while nothing was sent.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from msgspec.structs import replace

from ingest.change import LOAD_ENDED, LOAD_ENDS, Change, Op, TableId
from ingest.decoding.rows import noted

Stream = tuple[str, int]
"""Topic and partition: what they send arrives in its order."""


def mark_last_rows(taken: MutableMapping[int, Sequence[Change]], streams: Sequence[Stream]) -> None:
    """Note `LOAD_ENDS` at each row after which a mark says that the load of its table has ended.

    A load whose last row came in an earlier page of messages stays without the note.

    Args:
        taken: the changes of each message, in the order of arrival; changed in place.
        streams: the stream of each message.
    """
    ended: set[tuple[Stream, TableId]] = set()
    for at in reversed(list(taken)):
        for change in taken[at]:
            stream_table = streams[at], change.table
            if change.op is Op.CONTROL and LOAD_ENDED in (change.note or ""):
                ended.add(stream_table)
            elif change.op is Op.CONTROL:  # it begins, and had no row
                ended.discard(stream_table)
            elif change.op is Op.READ and stream_table in ended:
                ended.remove(stream_table)
                last_row = replace(change, note=noted(change.note, LOAD_ENDS))
                taken[at] = [last_row if other is change else other for other in taken[at]]
