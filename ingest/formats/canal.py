"""Canal flat messages (alibaba/canal 1.1, `FlatMessage`), and what the whole family shares.

``{"type": "UPDATE", "database", "table", "data": [...], "old": [...], "mysqlType", "pkNames", ...}``:
one message holds many rows, ``old[i]`` belongs to ``data[i]`` and holds the changed columns only, a
DELETE's row is in ``data``.  Quirks of the open-source writer:

- ``id`` numbers a batch, many messages share it and it restarts: it is not a sequence, arrival decides.
- ENUM is the label's index, SET a bit mask, geometry is SRID and WKB, bytes are ISO-8859-1 text, those of
  BINARY(n) without the zeros at their end, a TIMESTAMP is text in the zone of Canal's JVM (option
  ``timezone``), ``gtid`` is a set of transactions.
- ``mysqlType`` is as the statement wrote it that Canal read last, so its case and its spaces vary.
- The ``type`` of DDL is coarse (an ALTER may be CINDEX): the statement in ``sql`` decides.
- With ``binlog_rows_query_log_events`` each statement on rows comes as a QUERY before its rows: it is an annotation.
- Flink's and TIS's sinks write the same shape without ``isDdl`` and ``id``; their INSERT may be an update.
- A statement-format binlog gives a DML type without rows but with ``sql``: such a message is refused.

A sister format is a `CanalDialect`: the few points in which it differs, handed to `changes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ingest import values
from ingest.change import NO_TABLE, Change, ChangeColumns, Hints, Image, Message, Op, RowShape, TableId
from ingest.ddl import dialect_of
from ingest.decoding import converters, database_kinds, flat_messages
from ingest.decoding.flat_messages import (
    ROW_TYPES,
    CanalDialect,
    CanalPlan,
    Found,
    Frame,
    MarkRule,
    Rows,
    evidence,
    frame_of,
    nowhere,
)
from ingest.decoding.rows import drop_hidden, emptied, noted
from ingest.errors import Undecodable, counted
from ingest.fold import may_change_key
from ingest.formats import About, SharedEvidence
from ingest.images_before import ImagesBefore
from ingest.values.json_records import Count, count_of
from ingest.values.remembered import remembered

ABOUT = About(
    title="Canal flat message, open source (Alibaba)",
    document="alibaba/canal 1.1, connector MQMessageUtils.messageConverter",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat", "control"),
    order="none: `id` numbers a batch; the order within a partition or file is the truth",
    strength="weak",
    keys="pkNames; a row-id column of RDS or PolarDB-X where there is none",
    types="mysqlType, as MySQL declares them",
    images="full (needs binlog_row_image=FULL); old holds the changed columns",
    ddl="sql",
    losses=(
        "Decimals lose trailing zeros: the last group of digits, if it is zero.",
        "Neither binlog file nor position is sent, so messages out of order cannot be put in order.",
        "A Canal that keeps the structures of tables in H2 (`tsdb`, its default) may forget the newest ones when it is killed (seen with 1.1.7): until each table's next statement it sends values under the names of other columns, which no message tells. After a kill compare the tables with `ingest reconcile`.",
        "A column that `binlog_row_image=noblob` or `minimal` leaves out is like one that was dropped: it becomes NULL, and a check says so.",
    ),
    options={
        "timezone": "the zone of TIMESTAMP texts, that of Canal's JVM (default UTC)",
        "binary": "the encoding of bytes (default iso8859-1)",
        "table": "the table of messages that name none",
    },
    bytes_as="iso8859-1",
    before=ImagesBefore(changed_only=True),
)

READ, UPDATE, DELETE = Op.READ, Op.UPDATE, Op.DELETE  # looked up in the enum they cost 0.1 us each time
DDL_TYPES = frozenset("DDL INIT_DDL CREATE ALTER ERASE DROP QUERY TRUNCATE RENAME CINDEX DINDEX".split())
ROW_ID_COLUMNS = ("__#alibaba_rds_row_id#__", "_drds_implicit_id_")  # key of tables that declare none

_json = msgspec.json.encode
_BLANK_OR_COMMENT = r"(?:\s|/\*(?!!).*?\*/|--[^\n]*+\n|#[^\n]*+\n|/\*!\d*+)*+"
_TRUNCATE = re.compile(_BLANK_OR_COMMENT + r"truncate\b", re.IGNORECASE | re.DOTALL)
_OF_ROWS = re.compile(
    _BLANK_OR_COMMENT + r"\(?\s*(?:insert|update|delete|replace|load|with)\b", re.IGNORECASE | re.DOTALL
)
_ALTER = re.compile(_BLANK_OR_COMMENT + r"alter\b", re.IGNORECASE | re.DOTALL)


TEXT_MAKERS: dict[str, converters.Maker] = {
    "timestamp": converters.instant,
    "datetime": converters.zoneless,
    "binary": converters.stored_bytes,
    "enum": converters.label,
    "set": converters.label_set,
    "geometry": converters.geometry,
}
DIALECT = CanalDialect(makers=TEXT_MAKERS)


def recognise(sample: bytes) -> str | None:
    """Evidence of the open-source writer: a batch id, types in full, and ``gtid`` if they are in upper case."""
    return evidence(
        sample,
        MarkRule(
            "",
            SharedEvidence("perhaps a sink's Canal message, without isDdl and id"),
            lacks="id is_ddl sql_type",
        ),
        # what only the clouds' services set
        MarkRule("upper_case", None, lacks="gtid"),
        MarkRule("sql_type_empty transaction of_rows", None, lacks="lengths"),  # Tencent's
        MarkRule(
            "id",
            SharedEvidence("perhaps Canal message with a batch id: no other dialect's marks"),
            lacks="epochs int_lists DDL INIT INIT_DDL",
        ),
        lacks="tidb base_names column_type",
    )


# --- one message --------------------------------------------------------------------------------


def changes(message: Message, hints: Hints, dialect: CanalDialect) -> list[Change]:
    """The changes of one message of any dialect of the family."""
    if message.value is None:
        return [Change(op=Op.CONTROL, table=hints.table_of(message.topic) or NO_TABLE, note="tombstone")]
    envelope, note = flat_messages.read(message.value, bare=dialect.bare_rows is not None)
    return changes_of(envelope, head_of(envelope, message.topic, hints, dialect, note), hints, dialect)


def changes_of(envelope: Found, head: Change, hints: Hints, dialect: CanalDialect) -> list[Change]:
    """What an envelope means, however it was written; ``head`` is what its changes share."""
    kind, op = envelope.type or "", _operation(envelope)
    if op and (
        type(envelope.data) is list
        or not (flat_messages.absent(envelope.data) and flat_messages.absent(envelope.old))
    ):
        return _row_changes(envelope, op, head, hints, dialect)
    if kind in dialect.marks:
        return [replace(head, op=dialect.marks[kind])]
    if kind == "QUERY" and _OF_ROWS.match(envelope.sql or ""):
        return [replace(head, note=noted(head.note, "the statement of rows that follow"))]
    if envelope.is_ddl is True or kind in DDL_TYPES:
        database = _kind(envelope, hints, dialect)
        return _table_events(
            kind, envelope.sql or "", head, dialect_of(database) if database else dialect.sql
        )
    raise _refusal(envelope)


parse = partial(changes, dialect=DIALECT)


def _operation(envelope: Found) -> Op | None:
    """What happens to the rows; a writer that has neither ``isDdl`` nor ``id`` inserts rows that may be there."""
    op = ROW_TYPES.get(envelope.type or "")
    return UPDATE if op is Op.INSERT and envelope.is_ddl is UNSET and envelope.id is UNSET else op


def _refusal(envelope: Found) -> Undecodable:
    if not envelope.type or not envelope.type.isupper():
        return Undecodable("not-this-format", "the member type is missing, or no Canal type")
    if envelope.type not in ROW_TYPES:
        return Undecodable("unknown-operation", f"the type {envelope.type[:40]!r} is not documented")
    if envelope.sql:
        return Undecodable("statement-binlog", "a DML statement without its rows: set binlog_format=ROW")
    return Undecodable("no-rows", f"the {envelope.type} holds no row")


def _kind(envelope: Found, hints: Hints, dialect: CanalDialect) -> str | None:
    """The database's kind by option or ``dbType``; None where neither says it, or the dialect serves one kind alone."""
    if not dialect.kinds:
        return None
    return hints.options.database_kind or (
        database_kinds.named(envelope.db_type) if envelope.db_type else None
    )


def head_of(envelope: Found, topic: str, hints: Hints, dialect: CanalDialect, note: str | None) -> Change:
    """What all changes of one message share; each has an operation of its own."""
    place = dialect.position(envelope)
    if envelope.table:
        table, odd = _named(envelope.database or None, envelope.schema or None, envelope.table)
    else:
        table = hints.table_of(topic) or TableId.named(envelope.database, envelope.schema, None)
        odd = _odd_name(table.name)
    if note or odd or place.note:
        note = noted(note, place.note, odd)
    return Change(
        op=Op.CONTROL,
        table=table,
        sequence=place.sequence,
        position=place.text,
        event_time=_event_time(envelope.es),
        transaction=_transaction(envelope, dialect),
        note=note,
    )


@remembered(1024)
def _named(database: str | None, schema: str | None, table: str) -> tuple[TableId, str | None]:
    return TableId(database, schema, table), _odd_name(table)


def _odd_name(table: str) -> str | None:
    return "the table name begins or ends with a space" if table != table.strip() else None


def _transaction(envelope: Found, dialect: CanalDialect) -> str | None:
    return envelope.gtid or None if dialect.gtid_is_transaction else None


def _event_time(es: Count) -> int | None:
    """Microseconds from ``es``, whose milliseconds are padded seconds in the open-source writer."""
    return values.clock_of(count_of(es), 1000)


def _table_events(kind: str, sql: str, head: Change, dialect: str) -> list[Change]:
    """The DDL event, and before it the truncates that it means."""
    statement = replace(head, op=Op.DDL, ddl=sql, dialect=dialect)
    tables = emptied(statement, sql)
    if not tables and (_TRUNCATE.match(sql) or (kind == "TRUNCATE" and not _ALTER.match(sql))):
        tables = [head.table]
    if not tables:
        return [statement]
    if head.table.table is None and not all(table.database and table.table for table in tables):
        raise Undecodable("no-table", "a TRUNCATE without its table: set the option table")
    cleared = [replace(head, op=Op.TRUNCATE, table=table, row=row) for row, table in enumerate(tables)]
    return [*cleared, replace(statement, row=len(cleared))] if sql else cleared


# --- its rows -----------------------------------------------------------------------------------

Pair = tuple[Image | None, Image | None]
"""One row before and after."""


def _stored(image: Image | None) -> bytes | None:
    return None if image is None else _json(image)


def _whole_image(pair: Pair) -> Image:
    """The image of a pair that has all columns of its row."""
    before, after = pair
    return (before if after is None else after) or {}


def _row_changes(envelope: Found, op: Op, head: Change, hints: Hints, dialect: CanalDialect) -> list[Change]:
    if head.table.table is None:
        raise Undecodable("no-table", "the message names no table: set the option table")
    kind = _kind(envelope, hints, dialect)
    frame = _frame(head.table, _members_of(envelope), hints, dialect, kind)
    pairs = _pairs(envelope, op, hints.options.swap_old_data, dialect, frame.plan)
    if frame.plan.dates and any(_has_clock(image, frame.plan.dates) for pair in pairs for image in pair):
        frame = _frame(head.table, _members_of(envelope), hints, dialect, database_kinds.ORACLE)
    if not pairs:
        raise _refusal(envelope)
    if not frame.keys:
        first = _whole_image(pairs[0])
        frame = frame._replace(keys=tuple(column for column in ROW_ID_COLUMNS if column in first))
    return [_row_change(op, head, frame, pair, row, dialect) for row, pair in enumerate(pairs)]


def _has_clock(image: Image | None, dates: Iterable[str]) -> bool:
    """True if a DATE has a time of day, which only Oracle's has."""
    return image is not None and any(len(image.get(column) or "") > len("2024-01-31") for column in dates)


def _members_of(envelope: Found) -> tuple[bytes, bytes]:
    """The bytes of the columns' types and of ``pkNames``, empty where they are missing."""
    mysql_type, pk_names = flat_messages.types_of(envelope), envelope.pk_names
    return b"" if mysql_type is UNSET else bytes(mysql_type), b"" if pk_names is UNSET else bytes(pk_names)


def _frame(
    table: TableId, members: tuple[bytes, bytes], hints: Hints, dialect: CanalDialect, kind: str | None
) -> Frame:
    options = hints.options
    return frame_of(table, *members, hints.tables, options.timezone, options.binary, dialect, kind)


def _pairs(envelope: Found, op: Op, swap: bool, dialect: CanalDialect, plan: CanalPlan) -> list[Pair]:
    """Each row's images before and after, distinguished by content where writers differ."""
    if not swap and not dialect.bare_rows and (pair := _only_pair(envelope, op)):
        return [pair]
    data, old = _rows(envelope.data, dialect, plan), _rows(envelope.old, dialect, plan)
    if op is DELETE:
        first, second = (old, data) if dialect.deleted_in_old else (data, old)
        return [(image, None) for image in _whole(first or second)]
    if op is not UPDATE:
        return [(None, image) for image in _whole(data or (old if swap else []))]
    return _pairs_of_update(_whole(data), old, swap)


def _only_pair(envelope: Found, op: Op) -> Pair | None:
    """The images of a message of one row as nearly all are, found at once; None for any other message."""
    data, old = envelope.data, envelope.old
    if type(data) is not list or len(data) != 1 or data[0] is None:
        return None
    if op is UPDATE:
        return (old[0], data[0]) if type(old) is list and len(old) == 1 else None
    if not flat_messages.absent(old):
        return None
    return (data[0], None) if op is DELETE else (None, data[0])


def _pairs_of_update(after: list[Image], old: Rows, swap: bool) -> list[Pair]:
    if not old:
        return [(None, image) for image in after]
    if len(old) != len(after):
        raise Undecodable("images-differ", f"old holds {counted(len(old), 'row')}, data {len(after)}")
    if swap:  # old is the row after the change, or what changed of it
        return [(image, image | (old[row] or {})) for row, image in enumerate(after)]
    return [(old[row], image) for row, image in enumerate(after)]


def _rows(kept: Any, dialect: CanalDialect, plan: CanalPlan) -> Rows:
    if kept is None:
        return []
    if not dialect.bare_rows:
        return kept if type(kept) is list else flat_messages.rows(kept)
    return [] if flat_messages.absent(kept) else dialect.bare_rows(kept, plan)


def _whole(rows: Rows) -> list[Image]:
    if None in rows:
        raise Undecodable("bad-message", "a row of data is null")
    return rows  # type: ignore[return-value]  # None has just been looked for


def _row_change(op: Op, head: Change, frame: Frame, pair: Pair, row: int, dialect: CanalDialect) -> Change:
    (plan, keys, keys_listed), (before, after) = frame, pair
    remarks: list[str | None] = [*_converted(pair, plan)] if plan.converters else []
    hidden = _drop_unchanged(op, frame, pair) if dialect.large else None
    remarks.append(hidden)
    image = _whole_image(pair)
    columns = image.keys()
    whole = plan.columns <= columns
    if not (whole and keys_listed and (not before or before is image or plan.columns.issuperset(before))):
        remarks += _odd(before, image, keys)
    return replace(
        head,
        op=op,
        keys=keys,
        before=before,
        after=after,
        types=plan.types,
        partial=hidden is not None or not whole,
        phase=0 if _is_loaded(op, head.sequence, dialect) else 1,
        row=row,
        note=noted(head.note, plan.note, *remarks),
    )


def _is_loaded(op: Op, sequence: tuple[int, ...], dialect: CanalDialect) -> bool:
    """True for a row of a full load without a place, in a dialect whose changes have one."""
    return op is READ and not sequence and dialect.position is not nowhere


def _drop_unchanged(op: Op, frame: Frame, pair: Pair) -> str | None:
    """Take an update's unchanged large values out of its images; the remark that says so, if any."""
    plan, keys, _ = frame

    def hides(name: str) -> bool:
        return (name in plan.large or name not in plan.types) and name not in keys

    # `old` lists the changed columns: one that it lacks is NULL there too
    return drop_hidden(op, pair[0] or {}, pair[1], hides, absent=None)


def _converted(pair: Pair, plan: CanalPlan) -> list[str]:
    """Convert a row's values to canonical texts in place; remarks about those that are not of their type."""
    remarks = [converters.convert(image, plan.converters) for image in pair if image]
    return [remark for remark in remarks if remark]


def _odd(before: Image | None, image: Image, keys: tuple[str, ...]) -> list[str]:
    """What the message names and the row lacks."""
    missing = [f"the key column {key} is not in the row" for key in keys if key not in image]
    lacking = [column for column in before or () if column not in image]
    return [*missing, f"old names columns that data lacks: {', '.join(lacking)}"] if lacking else missing


# --- many messages at once ------------------------------------------------------------------------


def changes_as_columns(values: Sequence[bytes | None], hints: Hints, dialect: CanalDialect) -> ChangeColumns:
    """What `changes` reads of the first messages, up to one that is not as usual.

    It takes half the time: no change becomes an object, and each image is JSON again before the next message is read.
    """
    usual = _Usual(hints, dialect)
    rows: list[_Row] = []
    for number, value in enumerate(values):
        try:
            more = usual.rows(number, value or b"")
        except Exception:  # `changes` says what is wrong with it
            break
        if not more:
            break
        rows += more
    return ChangeColumns.of_rows(usual.shapes, rows)


parse_many = partial(changes_as_columns, dialect=DIALECT)

_Row = tuple[Any, ...]
"""One change, as `ChangeColumns.of_rows` takes it."""


_Described = tuple[bytes, bytes, str | None, str | None]
"""What a message says of its table: types, key names, the database's kind (`_kind`), and a note about the envelope."""


class _UsualTable(NamedTuple):
    """A table's frame, with what it was made of."""

    frame: Frame
    described: _Described
    table: TableId
    is_usual: bool
    shape: int
    hiding: frozenset[str]  # columns whose NULL may mean an unchanged value

    def fits(self, op: Op, pair: Pair) -> bool:
        """True for a row with all columns of its table and no other, no NULL that may hide a value, and no clock in a DATE."""
        columns, dates = self.frame.plan.columns, self.frame.plan.dates
        (before, after), image = pair, _whole_image(pair)
        if image.keys() != columns or (before and not columns.issuperset(before)):
            return False
        if dates and (_has_clock(before, dates) or _has_clock(after, dates)):
            return False
        return not (self.hiding and op is UPDATE and any(image[column] is None for column in self.hiding))


class _Usual:
    """A reader of messages whose rows have a key and all columns of their table, and nothing to remark."""

    def __init__(self, hints: Hints, dialect: CanalDialect) -> None:
        self.hints, self.dialect = hints, dialect
        self.shapes: list[RowShape] = []
        self.tables: dict[tuple[str | None, str | None, str], _UsualTable] = {}

    def rows(self, number: int, value: bytes) -> list[_Row]:
        """The changes of one message; none if it is not as usual."""
        dialect = self.dialect
        envelope, note = flat_messages.read(value, bare=dialect.bare_rows is not None)
        op, place = _operation(envelope), dialect.position(envelope)
        if op is None or place.note or not envelope.table or _is_loaded(op, place.sequence, dialect):
            return []
        usual = self._table_of(envelope, note)
        if usual is None:
            return []
        plan, keys = usual.frame.plan, usual.frame.keys
        shared = place.sequence, place.text, _event_time(envelope.es), _transaction(envelope, dialect)
        rows = []
        pairs = _pairs(envelope, op, self.hints.options.swap_old_data, dialect, plan)
        for row, pair in enumerate(pairs):
            if not usual.fits(op, pair) or (plan.converters and _converted(pair, plan)):
                return []
            before, after = pair
            moved = before is not None and after is not None and may_change_key(before, after, keys)
            rows.append((number, usual.shape, op, _stored(before), _stored(after), moved, row, *shared))
        if rows and usual.shape == len(self.shapes):
            columns = tuple(_whole_image(pairs[-1]))
            self.shapes.append(RowShape(usual.table, keys, columns, plan.types, noted(note, plan.note)))
        return rows

    def _table_of(self, envelope: Found, note: str | None) -> _UsualTable | None:
        """The table of a message whose members are those of the table's first message; None if they are not, or are odd."""
        name = envelope.database or None, envelope.schema or None, envelope.table or ""
        described = *_members_of(envelope), _kind(envelope, self.hints, self.dialect), note
        if name not in self.tables:
            self.tables[name] = self._described(_named(*name), described)
        usual = self.tables[name]
        return usual if usual.is_usual and usual.described == described else None

    def _described(self, name: tuple[TableId, str | None], described: _Described) -> _UsualTable:
        (table, odd), (mysql_type, pk_names, kind, _note) = name, described
        frame = _frame(table, (mysql_type, pk_names), self.hints, self.dialect, kind)
        is_usual = bool(frame.keys) and frame.keys_listed and not odd
        hiding = frame.plan.large.difference(frame.keys) if self.dialect.large else frozenset()
        return _UsualTable(frame, described, table, is_usual, len(self.shapes), hiding)
