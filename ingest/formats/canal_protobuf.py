"""Canal's packets, its default on a queue (alibaba/canal 1.1, ``CanalProtocol.proto`` and ``EntryProtocol.proto``).

With ``canal.mq.flatMessage = false`` a message is a ``Packet`` of type MESSAGES; its body is a list of entries, each of
which is one event of the binary log: a header, and a ``RowChange`` or the beginning or end of a transaction. What rows and
statements mean is as in flat messages, and is read there. Quirks:

- The header names the log's file and the offset at which the event begins, which flat messages leave out: an order.
- The events of a compressed transaction all carry the offset of the compressed event: among them arrival decides.
- Values are the texts of flat messages (bytes as ISO-8859-1); an empty text is left out by Protobuf, NULL is a mark.
- An update holds the whole row before. A column that the log leaves out (``binlog_row_image``) is missing, and the
  others keep their ``index``: a gap shows it, but for a column at the table's end.
- ``canal.mq.filter.transaction.entry`` leaves out beginnings and ends of transactions; rows lose nothing by it.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ingest import values
from ingest.change import Change, Hints, Image, Message, Op
from ingest.decoding import protobuf, rows
from ingest.decoding.flat_messages import ROW_TYPES, CanalDialect, Decoded
from ingest.errors import Undecodable, counted
from ingest.formats import About
from ingest.formats.canal import TEXT_MAKERS, changes_of, head_of
from ingest.values.remembered import remembered

ABOUT = About(
    title="Canal packet in Protobuf, open source (Alibaba)",
    document="alibaba/canal 1.1, CanalProtocol.proto and EntryProtocol.proto",
    operations=("insert", "update", "delete", "truncate", "ddl", "heartbeat", "begin", "commit", "control"),
    order="logfileName and logfileOffset of each entry",
    strength="strong",
    keys="the columns marked isKey; a row-id column of RDS or PolarDB-X where there is none",
    types="mysqlType of each column, as MySQL declares it",
    images="full (needs binlog_row_image=FULL)",
    ddl="sql",
    losses=(
        "Decimals lose trailing zeros: the last group of digits, if it is zero.",
        "The events of a compressed transaction (`binlog_transaction_compression`) share one offset: among them the order of arrival is the order.",
        "A Canal that keeps the structures of tables in H2 (`tsdb`, its default) may forget the newest ones when it is killed: until each table's next statement it sends values under the names of other columns, which no message tells. After a kill compare the tables with `ingest reconcile`.",
        "A column at a table's end that `binlog_row_image=noblob` or `minimal` leaves out is like one that was dropped: it becomes NULL, and a check says so.",
    ),
    options={
        "timezone": "the zone of TIMESTAMP texts, that of Canal's JVM (default UTC)",
        "binary": "the encoding of bytes (default iso8859-1)",
        "order_by": "sequence (default), arrival or event_time",
    },
    framing="length",
    binary=True,
    bytes_as="iso8859-1",
)

DIALECT = CanalDialect(makers=TEXT_MAKERS)
MESSAGES = 7
UNCOMPRESSED = frozenset({0, 1})
BEGIN, ROWS, END, HEARTBEAT, GTID = range(1, 6)
MARKS = {BEGIN: Op.BEGIN, END: Op.COMMIT, HEARTBEAT: Op.HEARTBEAT, GTID: Op.CONTROL}
EVENTS = (
    "",
    *"INSERT UPDATE DELETE CREATE ALTER ERASE QUERY TRUNCATE RENAME CINDEX DINDEX".split(),
    *"GTID XACOMMIT XAROLLBACK MHEARTBEAT".split(),
)
"""The words of flat messages by their numbers here."""

_json = msgspec.json.encode


def parse(message: Message, hints: Hints) -> list[Change]:
    """The changes of a packet's entries; one entry that cannot be read refuses all."""
    entries = packet(message.sent)
    if len(entries) == 1:
        return _changes(entries[0], message.topic, hints)
    changes = chain.from_iterable(_changes(entry, message.topic, hints) for entry in entries)
    return [replace(change, row=row) for row, change in enumerate(changes)] or [
        Change(op=Op.CONTROL, note="a packet without entries")
    ]


def recognise(sample: bytes) -> str | None:
    """A packet of messages, to the last byte, whose first entry names a log's file."""
    entries = packet(sample)
    file = CANAL.read("Entry", entries[0]).header.logfileName if entries else None
    return f"a Canal packet with {counted(len(entries), 'entry', 'entries')} of {file}" if file else None


# --- the layers ---------------------------------------------------------------------------------

CANAL = protobuf.MessageTypes(
    "CanalProtocol.proto and EntryProtocol.proto",
    {
        "Packet": {
            1: "int64 magic_number",
            2: "int64 version",
            3: "uint64 type",
            4: "int64 compression",
            5: "bytes body",
        },
        "Messages": {1: "int64 batch_id", 2: "repeated bytes messages"},
        "Entry": {1: "Header header", 2: "uint64 entryType", 3: "bytes storeValue"},
        "Header": {
            1: "int64 version",
            2: "string logfileName",
            3: "int64 logfileOffset",
            4: "int64 serverId",
            5: "bytes serverenCode",
            6: "int64 executeTime",
            7: "int64 sourceType",
            8: "string schemaName",
            9: "string tableName",
            10: "int64 eventLength",
            11: "uint64 eventType",
            12: "repeated Pair props",
            13: "bytes gtid",
        },
        "Pair": {1: "string key", 2: "string value"},
        "RowChange": {
            1: "int64 tableId",
            2: "uint64 eventType",
            10: "bool isDdl",
            11: "string sql",
            12: "repeated RowData rowDatas",
            13: "repeated bytes props",
            14: "bytes ddlSchemaName",
        },
        "RowData": {
            1: "repeated Column beforeColumns",
            2: "repeated Column afterColumns",
            3: "repeated bytes props",
        },
        "Column": {
            1: "int64 index",
            2: "int64 sqlType",
            3: "string name",
            4: "bool isKey",
            5: "bool updated",
            6: "bool isNull",
            7: "repeated bytes props",
            8: "string value",
            9: "int64 length",
            10: "string mysqlType",
        },
        "Envelope": {1: "int64 version", 4: "bytes data"},
    },
)
"""What is in them; a text that is not read stays bytes. An ``Envelope`` is a message of Tencent Cloud DTS's subscription."""


def packet(data: bytes) -> Any:
    """The entries of a packet, still in bytes."""
    try:
        envelope = CANAL.read("Packet", data)
    except Undecodable:
        _refuse_envelope(data)
        raise
    if envelope.type != MESSAGES or not envelope.HasField("body"):
        _refuse_envelope(data)
        raise Undecodable(
            "not-this-format", f"no Canal packet of messages: its type is {envelope.type}, not {MESSAGES}"
        )
    if envelope.compression not in UNCOMPRESSED:
        raise Undecodable(
            "compressed-packet", "the packet is compressed, which Canal's own connectors cannot do"
        )
    return CANAL.read("Messages", envelope.body).messages


def _refuse_envelope(data: bytes) -> None:
    """Refuse a message of Tencent's by its name."""
    try:
        is_envelope = CANAL.read("Envelope", data).HasField("data")
    except Undecodable:
        return
    if is_envelope:
        raise Undecodable(
            "another-protobuf",
            "an envelope of Tencent Cloud DTS's data subscription: write `format: tencent-protobuf`",
        )


class Columns(NamedTuple):
    """One image of a row, and what its columns say of themselves."""

    image: Image
    types: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    has_gap: bool  # between its columns' places in the table


def _columns(columns: list[Any]) -> Columns:
    image: Image = {}
    types, keys, has_gap = [], [], False
    for place, column in enumerate(
        columns
    ):  # once, because each look at a member of the library's costs a tenth of a microsecond
        name = column.name
        image[name] = None if column.isNull else column.value
        types.append((name, column.mysqlType))
        if column.isKey:
            keys.append(name)
        if column.index != place:
            has_gap = True
    if "" in image:
        place = next(column.index for column in columns if not column.name)
        raise Undecodable("bad-message", f"column {place} of a row has no name")
    if len(image) != len(types):
        twice = next(name for number, (name, _) in enumerate(types) if name in dict(types[:number]))
        raise Undecodable("duplicate-name", f"the column {twice[:80]!r} occurs twice in a row")
    return Columns(image, tuple(types), tuple(keys), has_gap)


# --- its changes --------------------------------------------------------------------------------


def _changes(data: bytes, topic: str, hints: Hints) -> list[Change]:
    entry = CANAL.read("Entry", data)
    if not entry.HasField("header"):
        raise Undecodable("not-this-format", "an entry has no header")
    header, kind = entry.header, entry.entryType if entry.HasField("entryType") else ROWS
    place = _place(header)
    if kind in MARKS:
        return [_placed(Change(op=MARKS[kind], event_time=values.clock_of(header.executeTime, 1000)), place)]
    if kind != ROWS:
        raise Undecodable("unknown-operation", f"entry type {kind} is not documented")
    change = CANAL.read("RowChange", entry.storeValue)
    event = change.eventType or header.eventType
    if not 0 < event < len(EVENTS):
        raise Undecodable("unknown-operation", f"event type {event} is not documented")
    word = EVENTS[event]
    if change.rowDatas and word not in ROW_TYPES:
        raise Undecodable("bad-message", f"the {word} of a table holds rows")
    pairs = [_pair(row, word) for row in change.rowDatas]
    envelope = _envelope(word, header, change, pairs)
    head = _placed(head_of(envelope, topic, hints, DIALECT, None), place)
    changes = changes_of(envelope, head, hints, DIALECT)
    if not any(pair.has_gap for pair in pairs):
        return changes
    return [
        replace(row, partial=True) if pair.has_gap and row.op is not Op.DELETE else row
        for row, pair in zip(changes, pairs, strict=True)
    ]


class Pair(NamedTuple):
    """A row before and after its change."""

    before: Columns
    after: Columns

    @property
    def has_gap(self) -> bool:
        """True if a column of the table is missing between others."""
        return self.before.has_gap or self.after.has_gap


def _pair(row: Any, kind: str) -> Pair:
    """The images of a row; the first without columns refuses a message that may have half a million of them."""
    pair = Pair(_columns(row.beforeColumns[:]), _columns(row.afterColumns[:]))
    if not (pair.before if kind == "DELETE" else pair.after).image:
        raise Undecodable("no-image", f"a row of the {kind} has no columns")
    return pair


def _envelope(kind: str, header: Any, change: Any, pairs: list[Pair]) -> Decoded:
    """The entry as the flat message that Canal would make of it, but with the whole row before."""
    decoded = Decoded(
        type=kind,
        database=header.schemaName,
        table=header.tableName,
        id=header.logfileOffset,
        es=header.executeTime,
        is_ddl=change.isDdl,
        sql=change.sql,
    )
    if pairs:
        before, after = pairs[0]
        decoded.mysql_type, decoded.pk_names = _described(before.types, after.types, before.keys, after.keys)
        decoded.data, decoded.old = _images(kind, pairs)
    return decoded


_Types = tuple[tuple[str, str], ...]


@remembered(1024)
def _described(
    old: _Types, new: _Types, old_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> tuple[Raw, Raw]:
    """``mysqlType`` and ``pkNames`` of what the images' columns say of themselves."""
    return Raw(_json(dict(old) | dict(new))), Raw(_json(list(dict.fromkeys(old_keys + new_keys))))


def _images(kind: str, pairs: list[Pair]) -> tuple[list[Image | None], list[Image | None] | None]:
    """``data`` and ``old``; a column that only the row before an update holds did not change."""
    if kind == "DELETE":
        return [pair.before.image for pair in pairs], None
    if kind != "UPDATE":
        return [pair.after.image for pair in pairs], None
    after: list[Image | None] = [pair.before.image | pair.after.image for pair in pairs]
    return after, [pair.before.image for pair in pairs]


class LogPlace(NamedTuple):
    """An event's place in the log: its sequence (none if the file has no number), its text, transaction and servers."""

    sequence: tuple[int, ...]
    text: str
    transaction: str | None
    servers: tuple[str, ...]


def _place(header: Any) -> LogPlace:
    file, offset = header.logfileName, header.logfileOffset
    numbers = _file_number(file)
    transaction = {pair.key: pair.value for pair in header.props}.get("curtGtid")
    return LogPlace(
        (*numbers, offset) if numbers and offset >= 0 else (),
        f"{file}:{offset}",
        transaction,
        rows.binlog(str(header.serverId), file),
    )


def _placed(change: Change, place: LogPlace) -> Change:
    """A change at its event's place in the log."""
    note = change.note
    return replace(
        change,
        sequence=place.sequence,
        position=place.text,
        transaction=place.transaction,
        servers=place.servers,
        note=note if place.sequence else rows.noted(note, "the log file has no number, arrival decides"),
    )


@remembered(1024)
def _file_number(file: str) -> tuple[int, ...]:
    return rows.numbered(file.rpartition(".")[2])
