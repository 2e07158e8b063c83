"""The basic types: a message as received, and the changes that it carries.

A `Message` goes into a format's ``parse``; `Change` objects come out, in the order in which the
message holds them.  A change's place in history is an `ingest.order.Order`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from ingest.errors import NoValueError

Image = dict[str, str | None]
"""One row image: every value its exact canonical text, or None for SQL NULL; absent is not NULL."""


class Op(StrEnum):
    """The operation of a change. The first five change rows; the others are kept but never applied."""

    READ = "read"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    DDL = "ddl"
    HEARTBEAT = "heartbeat"
    BEGIN = "begin"
    COMMIT = "commit"
    CONTROL = "control"

    __hash__ = str.__hash__  # that of an enum is a call of Python


ROW_OPS = frozenset({Op.READ, Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE})
LOAD_ENDS = "the last row of a load"
"""The note of a row after which a full load of its table has nothing more."""
LOAD_STARTS = "the first row of a load"
"""The note of a row before which a full load of its table had none."""
READ_MEANWHILE = "read while the stream went on"
"""The note of a row of a load that runs while its table changes, and whose end no message says."""
LOAD_BEGUN = "bootstrap-start"
"""The note of a mark that comes before the first row of a full load."""
LOAD_ENDED = "bootstrap-complete"
"""The note of a mark that comes after the last row of a full load."""
NULL_VALUE = "null value"
"""The note of a delete that is nothing but a null value, which has no place of its own."""
UNSURE_NULLS = "NULL may be an unchanged large value in "
"""The note of a row whose NULLs are in doubt begins so; a JSON list of their columns ends it."""
CONTROL_OPS = frozenset({Op.HEARTBEAT, Op.BEGIN, Op.COMMIT, Op.CONTROL})


_Part = str | msgspec.UnsetType | None


class TableId(NamedTuple):
    """A source table's name in its parts, never joined and split again."""

    database: str | None
    schema: str | None
    table: str | None

    def __str__(self) -> str:
        return ".".join(part for part in self if part)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> TableId:
        """The table of a row with columns of these names."""
        return cls(row["database"], row["schema"], row["table"])

    @classmethod
    def named(cls, database: _Part, schema: _Part, table: _Part) -> TableId:
        """The table that a message names: a part that is empty or unset is none, as in `NO_TABLE`."""
        return cls(database or None, schema or None, table or None)

    @property
    def name(self) -> str:
        """Its name in its schema; empty without one."""
        return self.table or ""

    @property
    def folded(self) -> TableId:
        """The table in whatever letters statements and rows spell it."""
        return TableId(*(part and part.casefold() for part in self))


NO_TABLE = TableId(None, None, None)
LaneId = tuple[str, TableId]
"""A source's name and one of its tables."""


def lane_of(row: Mapping[str, Any]) -> LaneId:
    """The lane of a row with columns of these names."""
    return row["source"], TableId.of(row)


class Message(NamedTuple):
    """One message as received: Kafka record, line, document or Avro datum."""

    value: bytes | None
    key: bytes | None = None
    topic: str = ""
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def sent(self) -> bytes:
        """The value.

        Raises:
            NoValueError: it has none.
        """
        if self.value is None:
            raise NoValueError
        return self.value


class ColumnSchema(NamedTuple):
    """What a message's own schema says of one column, and so of the rows that were there before the column.

    Such a row has the ``default`` (None: NULL) if that is ``known``: no default of a column that may be NULL is NULL.
    ``labels`` are those of an enumeration, in their order, where no statement says what becomes of them. ``is_placed`` is True
    where no statement says what becomes of columns either, and the fields of the schema are in the order of the table's columns.
    """

    nullable: bool
    default: str | None = None  # canonical text
    known: bool = True
    labels: tuple[str, ...] = ()
    is_placed: bool = False


class Change(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One decoded change, DDL event or control mark.

    ``before`` holds what the message says of the row before (maybe only the changed columns).
    ``sequence`` is the vendor's position as zero to four integers; empty means that arrival
    decides. ``position`` is the same as the vendor wrote it. ``event_time`` counts microseconds
    since 1970 UTC. ``partial`` says that a column missing from ``after`` keeps its value; in a full
    image a missing column is NULL. ``types`` maps columns to logical types (`ingest.types`), ``schema`` to what the
    message's schema says of them, where it says whether they may be NULL.
    ``structure`` is a DDL message's own description of the table, which takes precedence over its SQL text: compact
    JSON ``{"type": "CREATE|ALTER|DROP|RENAME", "keys": [...], "columns": {name: logical type}}``.
    ``servers`` names the servers that counted the sequence, if the message says so (`ingest.decoding.rows.binlog`).
    ``second_only`` says that a table event has no position: its sequence is its second, after every counter,
    until silver finds the rows around it (`ingest.silver.anchors`). ``arrival`` is the place that the message claims
    among arriving messages, for rows read from the source itself; if empty, its place in bronze counts. ``phase``,
    ``half`` and ``row`` are those of `ingest.order.Order`.
    """

    op: Op
    table: TableId = NO_TABLE
    keys: tuple[str, ...] = ()
    before: Image | None = None
    after: Image | None = None
    types: Mapping[str, str] = msgspec.field(default_factory=dict)
    schema: Mapping[str, ColumnSchema] = msgspec.field(default_factory=dict)
    partial: bool = False
    phase: int = 1
    sequence: tuple[int, ...] = ()
    half: int = 0
    row: int = 0
    position: str | None = None
    event_time: int | None = None
    transaction: str | None = None
    ddl: str | None = None
    note: str | None = None
    structure: str | None = None
    dialect: str = "mysql"
    servers: tuple[str, ...] = ()
    second_only: bool = False
    arrival: tuple[int, ...] = ()

    @property
    def old_cells(self) -> Image:
        """The cells of ``before``; none without it."""
        return self.before or {}

    @property
    def new_cells(self) -> Image:
        """The cells of ``after``; none without it."""
        return self.after or {}


class RowShape(NamedTuple):
    """What many changes of one table share."""

    table: TableId
    keys: tuple[str, ...]
    columns: tuple[str, ...]  # of every row, in the order first seen
    types: Mapping[str, str]
    note: str | None


class ChangeColumns(NamedTuple):
    """Row changes as columns: those of messages that say nothing unusual, and follow each other.

    Every row has a key and all columns of its table, and all share phase and half. No table has two shapes.
    """

    shapes: Sequence[RowShape]
    at: Sequence[int]  # of each change its message, counted from the first one
    shape: Sequence[int]
    op: Sequence[Op]
    before: Sequence[bytes | None]  # the image as JSON
    after: Sequence[bytes | None]
    moved: Sequence[bool]  # the key may have changed
    row: Sequence[int]
    sequence: Sequence[tuple[int, ...]]
    position: Sequence[str | None]
    event_time: Sequence[int | None]
    transaction: Sequence[str | None]
    phase: int = 1
    half: int = 0
    arrivals: Mapping[int, tuple[int, ...]] = MappingProxyType(
        {}
    )  # of messages that name their arrival, by `at`

    @classmethod
    def of_rows(cls, shapes: Sequence[RowShape], rows: Sequence[tuple[Any, ...]]) -> ChangeColumns:
        """The same from one tuple for each change, with its values from ``at`` to ``transaction``."""
        columns = zip(*rows, strict=True) if rows else [()] * (cls._fields.index("phase") - 1)
        return cls._make([shapes, *columns, 1, 0, {}])

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.at[-1] + 1 if self.at else 0


def describe(change: Change) -> dict[str, object]:
    """A change as the JSON object that ``decode`` prints, its members in their fixed order."""
    return {
        "op": str(change.op),
        "database": change.table.database,
        "schema": change.table.schema,
        "table": change.table.table,
        "keys": list(change.keys),
        "before": change.before,
        "after": change.after,
        "types": dict(change.types),
        "partial": change.partial,
        "order": [0, change.phase, list(change.sequence), change.half, change.row],
        "sequence": change.position,
        "event_time": instant(change.event_time),
        "transaction": change.transaction,
        "ddl": change.ddl,
        "note": change.note,
    }


def instant(micros: int | None) -> str | None:
    """Microseconds since 1970 as canonical ``timestamp`` text; None outside the years 1 to 9999."""
    if micros is None:
        return None
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)  # noqa: DTZ001 - UTC by definition
    except OverflowError:
        return None
    text = moment.isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


@dataclass(frozen=True, slots=True)
class Options:
    """A source's ``options:``; every format accepts all of them and ignores those without a meaning.

    ``table`` maps topic or file patterns to a table, for messages that name none; the key ``*``
    means every topic. ``binary`` and ``time_units`` are None where the format's own default
    holds, ``database_kind`` where the message says which database it is of, ``left_out`` where nothing says what a
    column means that a row lacks.
    """

    table: tuple[tuple[str, TableId], ...] = ()
    timezone: str = "UTC"
    binary: str | None = None
    time_units: str | None = None
    swap_old_data: bool = False
    key_is_full: bool = True
    decimal_scale: int | None = None
    order_by: str = "sequence"
    database_kind: str | None = None
    inserts: str = "insert"
    left_out: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


class TableHints(NamedTuple):
    """The pipeline file's declarations for one table: its key columns and logical types."""

    keys: tuple[str, ...] = ()
    columns: Mapping[str, str] = {}


NO_HINTS = TableHints()


@dataclass(frozen=True, slots=True)
class Hints:
    """A parser's input besides the message: the source's options and its tables' declarations.

    ``schema`` gives the JSON text of a registry's schema by its id, and raises `KeyError` for an id
    that the registry does not know; None where the source has no registry. ``framed`` is True for messages that
    were cut out of files; a broker hands its messages on whole.
    """

    options: Options = Options()
    tables: Callable[[TableId], TableHints] = lambda _table: NO_HINTS
    schema: Callable[[int], str] | None = None
    framed: bool = True

    def table_of(self, topic: str) -> TableId | None:
        """The table that ``options.table`` gives a topic or file, or None."""
        return _table_of(self.options.table, topic) if self.options.table else None


@lru_cache(maxsize=4096)
def _table_of(patterns: tuple[tuple[str, TableId], ...], topic: str) -> TableId | None:
    for pattern, table in patterns:
        glob = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        if pattern in ("*", topic) or re.fullmatch(f"(.*/)?{glob}", topic):
            return table
    return None
