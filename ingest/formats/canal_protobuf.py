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

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ingest import values
from ingest.change import Change, Hints, Image, Message, Op
from ingest.decoding import protobuf, rows
from ingest.decoding.flat_messages import CanalDialect, Decoded
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.formats.canal import ROW_TYPES, TEXT_MAKERS, changes_of, head_of
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
    if message.value is None:
        return list(rows.TOMBSTONE)
    entries = packet(message.value)
    if len(entries) == 1:
        return _changes(entries[0], message.topic, hints)
    changes = chain.from_iterable(_changes(entry, message.topic, hints) for entry in entries)
    return [replace(change, row=row) for row, change in enumerate(changes)] or [
        Change(op=Op.CONTROL, note="a packet without entries")
    ]


def recognise(sample: bytes) -> str | None:
    """A packet of messages, to the last byte, whose first entry names a log's file."""
    try:
        entries = packet(sample)
        header = _entry(entries[0]).header if entries else None
    except Undecodable:
        return None
    return f"a Canal packet with {len(entries)} entries of {header.file}" if header and header.file else None


# --- the layers ---------------------------------------------------------------------------------


def packet(data: bytes) -> list[bytes]:
    """The entries of a packet, still in bytes."""
    kind = compression = 0
    body = None
    for number, value in protobuf.fields(data):
        if number == 4 and isinstance(value, bytes):
            raise Undecodable(
                "another-protobuf",
                "an envelope of Tencent Cloud DTS's data subscription: write `format: tencent-protobuf`",
            )
        if number == 3:
            kind = protobuf.number_of(value, "the packet's type")
        elif number == 4:
            compression = protobuf.number_of(value, "compression")
        elif number == 5:
            body = protobuf.bytes_of(value, "body")
    if kind != MESSAGES or body is None:
        raise Undecodable(
            "not-this-format", f"no Canal packet of messages: its type is {kind}, not {MESSAGES}"
        )
    if compression not in UNCOMPRESSED:
        raise Undecodable(
            "compressed-packet", "the packet is compressed, which Canal's own connectors cannot do"
        )
    return protobuf.repeated(body, {2: "a message"})[2]


class Header(NamedTuple):
    """What an entry says of its event."""

    file: str
    offset: int
    server: str
    milliseconds: int
    database: str
    table: str
    event: int
    transaction: str | None


class LogEntry(NamedTuple):
    """One event of the log; its content depends on its kind."""

    header: Header
    kind: int
    content: bytes


def _entry(data: bytes) -> LogEntry:
    header, kind, content = None, ROWS, b""
    for number, value in protobuf.fields(data):
        if number == 1:
            header = _header(protobuf.bytes_of(value, "header"))
        elif number == 2:
            kind = protobuf.number_of(value, "entryType")
        elif number == 3:
            content = protobuf.bytes_of(value, "storeValue")
    if header is None:
        raise Undecodable("not-this-format", "an entry has no header")
    return LogEntry(header, kind, content)


_WORDS = {2: "logfileName", 8: "schemaName", 9: "tableName"}
_COUNTS = {3: "logfileOffset", 4: "serverId", 6: "executeTime", 11: "eventType"}


def _header(data: bytes) -> Header:
    words: dict[int, str] = {}
    counts: dict[int, int] = {}
    transaction = None
    for number, value in protobuf.fields(data):
        if number in _WORDS:
            words[number] = protobuf.text_of(value, _WORDS[number])
        elif number in _COUNTS:
            counts[number] = protobuf.signed(value, _COUNTS[number])
        elif number == 12:
            name, text = _pair(protobuf.bytes_of(value, "props"))
            transaction = text if name == "curtGtid" else transaction
    file, database, table = (words.get(number, "") for number in _WORDS)
    offset, server, milliseconds, event = (counts.get(number, 0) for number in _COUNTS)
    return Header(file, offset, str(server), milliseconds, database, table, event, transaction)


def _pair(data: bytes) -> tuple[str, str]:
    texts = {number: protobuf.text_of(value, "props") for number, value in protobuf.fields(data)}
    return texts.get(1, ""), texts.get(2, "")


class RowChange(NamedTuple):
    """The content of an entry of rows or of a statement."""

    event: int
    is_ddl: bool
    sql: str
    rows: list[bytes]


def _row_change(data: bytes) -> RowChange:
    event, is_ddl, sql, row_data = 0, False, "", []
    for number, value in protobuf.fields(data):
        if number == 2:
            event = protobuf.number_of(value, "eventType")
        elif number == 10:
            is_ddl = bool(protobuf.number_of(value, "isDdl"))
        elif number == 11:
            sql = protobuf.text_of(value, "sql")
        elif number == 12:
            row_data.append(protobuf.bytes_of(value, "rowDatas"))
    return RowChange(event, is_ddl, sql, row_data)


class Columns(NamedTuple):
    """One image of a row, and what its columns say of themselves."""

    image: Image
    types: dict[str, str]
    keys: list[str]
    has_gap: bool  # between its columns' places in the table


def _columns(parts: Sequence[bytes]) -> Columns:
    image: Image = {}
    types: dict[str, str] = {}
    keys: list[str] = []
    has_gap = False
    for place, part in enumerate(parts):
        index, name, value, declared, is_key, is_null = 0, "", "", "", False, False
        for number, field in protobuf.fields(part):
            if number == 1:
                index = protobuf.signed(field, "index")
            elif number == 3:
                name = protobuf.text_of(field, "a column's name")
            elif number == 4:
                is_key = field != 0
            elif number == 6:
                is_null = field != 0
            elif number == 8:
                value = protobuf.text_of(field, "a value")
            elif number == 10:
                declared = protobuf.text_of(field, "mysqlType")
        if not name:
            raise Undecodable("bad-message", f"column {index} of a row has no name")
        if name in types:
            raise Undecodable("duplicate-name", f"the column {name[:80]!r} occurs twice in a row")
        image[name], types[name] = None if is_null else value, declared
        has_gap = has_gap or index != place
        if is_key:
            keys.append(name)
    return Columns(image, types, keys, has_gap)


# --- its changes --------------------------------------------------------------------------------


def _changes(data: bytes, topic: str, hints: Hints) -> list[Change]:
    header, kind, content = _entry(data)
    if kind in MARKS:
        return [_placed(Change(op=MARKS[kind], event_time=_time(header)), header)]
    if kind != ROWS:
        raise Undecodable("unknown-operation", f"entry type {kind} is not documented")
    change = _row_change(content)
    event = change.event or header.event
    if not 0 < event < len(EVENTS):
        raise Undecodable("unknown-operation", f"event type {event} is not documented")
    word = EVENTS[event]
    if change.rows and word not in ROW_TYPES:
        raise Undecodable("bad-message", f"the {word} of a table holds rows")
    pairs = [_pair_of_images(row) for row in change.rows]
    envelope = _envelope(word, header, change, pairs)
    head = _placed(head_of(envelope, topic, hints, DIALECT, None), header)
    changes = changes_of(envelope, head, hints, DIALECT)
    if not pairs:
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


_ROW_IMAGES = {1: "a column", 2: "a column"}


def _pair_of_images(data: bytes) -> Pair:
    parts = protobuf.repeated(data, _ROW_IMAGES)
    return Pair(_columns(parts[1]), _columns(parts[2]))


def _envelope(kind: str, header: Header, change: RowChange, pairs: list[Pair]) -> Decoded:
    """The entry as the flat message that Canal would make of it, but with the whole row before."""
    decoded = Decoded(
        type=kind,
        database=header.database,
        table=header.table,
        id=header.offset,
        es=header.milliseconds,
        is_ddl=change.is_ddl,
        sql=change.sql,
    )
    if pairs:
        types = pairs[0].before.types | pairs[0].after.types
        keys = dict.fromkeys(chain(pairs[0].before.keys, pairs[0].after.keys))
        decoded.mysql_type, decoded.pk_names = Raw(_json(types)), Raw(_json(list(keys)))
        decoded.data, decoded.old = _images(kind, pairs)
    return decoded


def _images(kind: str, pairs: list[Pair]) -> tuple[list[Image | None], list[Image | None] | None]:
    """``data`` and ``old``; a column that only the row before an update holds did not change."""
    if any(not (pair.before if kind == "DELETE" else pair.after).image for pair in pairs):
        raise Undecodable("no-image", f"a row of the {kind} has no columns")
    if kind == "DELETE":
        return [pair.before.image for pair in pairs], None
    if kind != "UPDATE":
        return [pair.after.image for pair in pairs], None
    after: list[Image | None] = [pair.before.image | pair.after.image for pair in pairs]
    return after, [pair.before.image for pair in pairs]


def _time(header: Header) -> int | None:
    return values.micros_of(header.milliseconds, 1000) if header.milliseconds > 0 else None


def _placed(change: Change, header: Header) -> Change:
    """A change at its event's place in the log."""
    number = _file_number(header.file)
    readable = number is not None and header.offset >= 0
    return replace(
        change,
        sequence=(number, header.offset) if number is not None and readable else (),
        position=f"{header.file}:{header.offset}",
        transaction=header.transaction,
        servers=rows.binlog(header.server, header.file),
        note=change.note
        if readable
        else rows.noted(change.note, "the log file has no number, arrival decides"),
    )


@remembered(1024)
def _file_number(file: str) -> int | None:
    number = values.integer(file.rpartition(".")[2])
    return number if number is not None and number >= 0 else None
