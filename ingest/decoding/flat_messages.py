"""The flat message of Canal and its sisters as JSON: envelope, rows, and the marks of each writer.

One decoder call reads the envelope with its rows, and one encoder call proves that no name occurs
twice in it: what was decoded must be as long again as what was sent.  Spaces, escapes and unknown
members break the equality too; then the careful functions of `ingest.values` look again.

A *dialect* is a member of the family: the few points in which it differs from the others.  From it, a message's
``mysqlType`` and ``pkNames`` and the pipeline file comes the *frame* of a table's messages, worked out once and not per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ingest import types, values
from ingest.change import Image, Op, TableHints, TableId
from ingest.decoding import database_kinds
from ingest.decoding.converters import Converters, Maker, Settings
from ingest.decoding.database_kinds import TypesOf
from ingest.errors import Undecodable
from ingest.values.json_records import Count, Kept, Text, kept_of
from ingest.values.remembered import remembered

REPAIRED = "repaired: comments or trailing commas"

Rows = list[Image | None]
_Kept = TypeVar("_Kept")


class Envelope(msgspec.Struct, Generic[_Kept], gc=False, rename="camel"):
    """A flat message's documented members; ``_Kept`` is what ``data`` and ``old`` are read as."""

    type: Text = UNSET
    database: Text = UNSET
    table: Text = UNSET
    id: Count = UNSET
    es: Count = UNSET
    is_ddl: bool | UnsetType | None = UNSET
    sql: Text = UNSET
    gtid: Text = UNSET
    data: _Kept | UnsetType = UNSET
    old: _Kept | UnsetType = UNSET
    mysql_type: Kept = UNSET
    pk_names: Kept = UNSET
    sql_type: Kept = UNSET  # never read: its codes differ between writers
    ts: Kept = UNSET  # never read: the writer's clock
    tidb: Kept = msgspec.field(default=UNSET, name="_tidb")
    schema: Text = UNSET  # between database and table, where the source has it
    column_type: Kept = UNSET  # what `mysqlType` is for a source that is not MySQL
    db_type: Text = UNSET
    op_type: Kept = UNSET  # never read: `type` says the same


Decoded = Envelope[Rows | None]
Bare = Envelope[list[dict[str, Any] | None] | None]
Undecoded = Envelope[Raw]
Found = Decoded | Bare | Undecoded

_decoded = msgspec.json.Decoder(Decoded)
_bare = msgspec.json.Decoder(Bare, float_hook=Raw)
_undecoded = msgspec.json.Decoder(Undecoded)
_encode = msgspec.json.encode


def read(value: bytes, *, bare: bool = False) -> tuple[Found, str | None]:
    """A message's envelope, and a note if its text had to be repaired first, or if it has members that are not read.

    Rows of strings and nulls come decoded, all others as their own bytes. For a writer known to send bare numbers
    ``bare`` decodes those too: integers as they are, other numbers as their own bytes.

    Raises:
        Undecodable: no JSON object, malformed, a name given twice, or a member of a wrong kind.
    """
    try:
        return _read(value, bare)
    except Undecodable as error:
        repaired = values.lenient(value) if error.code == "bad-json" else value
        if repaired == value:
            raise
        try:
            envelope, note = _read(repaired, bare)
            return envelope, f"{REPAIRED}; {note}" if note else REPAIRED
        except Undecodable:
            raise error from None


def _read(value: bytes, bare: bool) -> tuple[Found, str | None]:
    envelope: Found
    try:
        envelope = (_bare if bare else _decoded).decode(value)
    except Exception:  # some value is not a string, or the message is damaged
        envelope = _read_raw(value)
    if len(_encode(envelope)) != len(value):
        unread = _unread(
            values.strict(value)
        )  # a name given twice; or only spaces, escapes and unknown members
        return _read_raw(value) if bare else envelope, unread  # -0 is an unusual zero too
    if not value.isascii():
        try:
            value.decode("utf-8")  # members that stay bytes have not been looked at
        except UnicodeDecodeError as error:
            raise Undecodable("bad-utf8", f"byte {error.start} is not UTF-8") from None
    return envelope, None


def _unread(document: Any) -> str | None:
    """A note of an envelope's members that mean nothing to this family: one might be a part of the table's name."""
    names = [name for name in document if name not in _MEMBERS] if isinstance(document, dict) else []
    return f"members of the message that are not read: {', '.join(names[:10])}" if names else None


_MEMBERS = frozenset(Envelope.__struct_encode_fields__)


def _read_raw(value: bytes) -> Undecoded:
    try:
        return _undecoded.decode(value)
    except Exception:  # the decoder leaks exceptions of other modules
        return _read_member_by_member(value)


def _read_member_by_member(value: bytes) -> Undecoded:
    """The slow and tolerant way: a damaged counter must not make good rows undecodable."""
    if value.lstrip()[:1] not in (b"{", b""):
        values.strict(value)  # names a malformed document as such
        raise Undecodable("not-this-format", "the message is JSON, but not an object")
    members = values.members(value)
    return Envelope(
        **{name: reader(sent, members[sent]) for name, sent, reader in _MEMBER_READERS if sent in members}
    )


def _word(name: str, raw: Raw) -> str | None:
    if values.is_null(raw):
        return None
    if bytes(raw)[:1] != b'"':
        code = "not-this-format" if name == "type" else "bad-message"
        raise Undecodable(code, f"the member {name} is not a string")
    return values.string(raw)


_READERS: dict[Any, Callable[[str, Raw], Any]] = {
    Text: _word,
    Count: lambda _name, raw: values.text(raw),
    bool | UnsetType | None: lambda _name, raw: values.text(raw) == "true",
}
_MEMBER_READERS: list[tuple[str, str, Callable[[str, Raw], Any]]] = [
    (field.name, field.encode_name, _READERS.get(field.type, lambda _name, raw: raw))
    for field in msgspec.structs.fields(Undecoded)
]
"""Each member by its name here and as it is sent, with what reads it alone."""


def absent(kept: object) -> bool:
    """True for a member that is missing or null, decoded or not."""
    return kept is UNSET or kept is None or (type(kept) is Raw and values.is_null(kept))


def rows(kept: Rows | Raw | UnsetType | None) -> Rows:
    """The row images of ``data`` or ``old``, none if absent; null where the writer had no row."""
    if not isinstance(kept, Raw):
        return kept or []
    if values.is_null(kept):
        return []
    return [None if values.is_null(row) else values.image(row) for row in raw_rows(kept)]


def raw_rows(kept: Raw) -> list[Raw]:
    """The rows of a ``data`` or ``old`` that was kept as bytes, each as its own bytes."""
    if bytes(kept)[:1] != b"[":
        raise Undecodable("not-this-format", "data and old must be lists of rows")
    raws = values.items(kept)
    if any(bytes(row)[:1] not in b"{n" for row in raws):
        raise Undecodable("bad-message", "a row is not an object")
    return raws


def types_of(envelope: Found) -> Kept:
    """The member with the types of the columns: ``mysqlType``, or ``columnType`` from a source that is not MySQL."""
    if envelope.column_type is UNSET or not absent(envelope.mysql_type):
        return envelope.mysql_type
    return envelope.column_type


def declared_types(raw: Kept) -> dict[str, str]:
    """``mysqlType`` or ``columnType``: each column's type as the writer names it."""
    listed = kept_of(raw) or b"{}"
    if listed[:1] != b"{":
        raise Undecodable("bad-message", "mysqlType is not an object")
    return {column: name or "" for column, name in values.image(listed).items()}


class CanalPosition(msgspec.Struct, frozen=True, gc=False):
    """A message's place: the sequence, the vendor's own text of it, and what is wrong with it."""

    sequence: tuple[int, ...] = ()
    text: str | None = None
    note: str | None = None


NOWHERE = CanalPosition()


def id_decides(envelope: Found) -> CanalPosition:
    """For dialects whose ``id`` is documented to increase."""
    count = envelope.id
    return CanalPosition((count,), str(count)) if type(count) is int else position_of(count, "id")


def position_of(count: Count, name: str) -> CanalPosition:
    """A position of one integer; masked or missing, it leaves a note and arrival decides."""
    if isinstance(count, int):
        return CanalPosition((count,), str(count))
    if not isinstance(count, str):
        return CanalPosition(note=f"{name} is missing, arrival decides")
    number = values.integer(count)
    if number is None:
        return CanalPosition((), count, f"{name} is not an integer, arrival decides")
    return CanalPosition((number,), count)


# --- the marks of writers -----------------------------------------------------------------------


class MarkRule(NamedTuple):
    """What a message with all of some marks, and none of others, shows: ``text``, or None that it is another dialect's."""

    has: str
    text: str | None
    lacks: str = ""


def evidence(sample: bytes, *rows: MarkRule, lacks: str = "") -> str | None:
    """What the first fitting row says of a message; None for one with a mark that its dialect ``lacks``, or that is not flat."""
    marks = marks_of(sample)
    if not marks or not marks.isdisjoint(lacks.split()):
        return None
    fitting = (row for row in rows if marks.issuperset(row.has.split()))
    return next((row.text for row in fitting if marks.isdisjoint(row.lacks.split())), None)


def marks_of(sample: bytes) -> frozenset[str]:
    """The marks of a writer in one message, the ``type`` itself among them; none if it is not a flat message.

    Raises:
        Undecodable: it cannot be read.
    """
    envelope, _ = read(sample)
    data, old = rows(envelope.data), rows(envelope.old)
    declared = declared_types(types_of(envelope))
    row = next(filter(None, data + old), {})
    if not envelope.type or not envelope.type.isupper() or (envelope.is_ddl is UNSET and not row):
        return frozenset()
    moments = _values_of("timestamp", row, declared)
    marks = {
        "id": envelope.id is not UNSET,
        "gtid": isinstance(envelope.gtid, str),  # be it empty
        "transaction": envelope.gtid not in ("", None, UNSET),
        "tidb": envelope.tidb is not UNSET,  # TiDB's extension
        "sql_type": envelope.sql_type is not UNSET,
        "sql_type_empty": envelope.sql_type is not UNSET and kept_of(envelope.sql_type) in (b"", b"{}"),
        # types without the length that MySQL's declarations have: varchar
        "base_names": any(_NEEDS_LENGTH.fullmatch(name) for name in declared.values()),
        "lengths": any("(" in name for name in declared.values()),
        "upper_case": any(name[:1].isupper() for name in declared.values()),  # of types
        "column_type": envelope.column_type is not UNSET,  # types under another name than MySQL's
        "old_is_full": bool(data) and any(before and before.keys() >= row.keys() for before in old[:1]),
        "bare_numbers": Raw in (type(envelope.data), type(envelope.old)),
        "int_lists": any(value.startswith("[") for value in _values_of("binary", row, declared)),
        "epochs": any(values.NUMBER.fullmatch(value) for value in moments),  # 1624614713.201
        "moments": any(value[4:5] == "-" for value in moments),  # 2021-06-25 17:51:53
        "is_ddl": envelope.is_ddl is not UNSET,  # be it false
        "of_rows": envelope.type in ROW_TYPES,
        "deleted_in_data": envelope.type == "DELETE" and data,
        "deleted_in_old": envelope.type == "DELETE" and old and not data,
        envelope.type: True,
    }
    return frozenset(name for name, is_set in marks.items() if is_set)


_NEEDS_LENGTH = re.compile(r"varchar|char|varbinary|decimal|enum|set", re.IGNORECASE)


def _values_of(logical: str, row: Image, declared: Mapping[str, str]) -> list[str]:
    texts = [row.get(column) for column, name in declared.items() if types.mysql(name) == logical]
    return [value for value in texts if value is not None]


# --- what a list of column types asks for ---------------------------------------------------------


ROW_TYPES = {
    "INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE, "INIT": Op.READ, "ROW": Op.READ,
}  # fmt: skip
MARKS = {
    **dict.fromkeys(("MHEARTBEAT", "HEARTBEAT"), Op.HEARTBEAT),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), Op.CONTROL),
}


def mysql_types(declared: Mapping[str, str]) -> dict[str, str]:
    """Logical types of MySQL's own type names."""
    return {column: types.with_zeros(types.mysql(name), name) for column, name in declared.items()}


class CanalPlan(NamedTuple):
    """What one list of column types asks for, worked out once per distinct list."""

    types: dict[str, str]
    columns: frozenset[str]  # the message's own list; a row that lacks one of them is partial
    converters: Converters
    large: frozenset[str]
    bits: frozenset[str]
    note: str | None
    dates: tuple[str, ...] = ()  # of type DATE, where nothing shows yet of which database


def nowhere(_found: Found) -> CanalPosition:
    """The place of a message in a dialect that documents none: arrival decides."""
    return NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class CanalDialect:
    """Where a member of the family differs from the others.

    Args:
        makers: by base logical type, what makes a column's converter.
        position: the documented place of a message, if there is one.
        types: logical types of the names in ``mysqlType``.
        bare_rows: makes texts of rows that hold bare numbers, where the writer sends such.
        deleted_in_old: a DELETE's row is looked for in ``old`` first.
        gtid_is_transaction: ``gtid`` names one transaction, not the set of all executed ones.
        large: text types whose unchanged value is sent as NULL, as binary and JSON then are too;
            empty where the writer does no such thing.
        marks: message types that carry no row.
        sql: the dialect of statements.
        kinds: logical types by the database's kind, where the dialect serves several; ``types`` is for all other.
    """

    makers: Mapping[str, Maker]
    position: Callable[[Found], CanalPosition] = nowhere
    types: TypesOf = mysql_types
    bare_rows: Callable[[list[Any] | Raw, CanalPlan], Rows] | None = None
    deleted_in_old: bool = False
    gtid_is_transaction: bool = False
    large: frozenset[str] = frozenset()
    marks: Mapping[str, Op] = field(default_factory=lambda: MARKS)
    sql: str = "mysql"
    kinds: Mapping[str, TypesOf] = field(default_factory=dict)


class Frame(NamedTuple):
    """What all messages of one table with one list of types share; no keys where only the rows show them."""

    plan: CanalPlan
    keys: tuple[str, ...]
    keys_listed: bool  # among the message's own columns


@remembered(1024)
def frame_of(
    table: TableId,
    mysql_type: bytes,
    pk_names: bytes,
    tables: Callable[[TableId], TableHints],
    timezone: str,
    binary: str | None,
    dialect: CanalDialect,
    kind: str | None,
) -> Frame:
    """The frame of a table's messages; ``tables`` returns what the pipeline file says of it.

    ``mysql_type`` and ``pk_names`` are the members' own bytes, empty where they are missing; ``kind`` is that of the
    database, None where the names of the types decide.
    """
    declared = tables(table)
    plan = _plan(mysql_type, tuple(declared.columns.items()), timezone, binary, dialect, kind)
    try:
        keys = declared.keys or (tuple(_names.decode(pk_names) or ()) if pk_names else ())
    except Exception:  # the decoder leaks exceptions of other modules
        raise Undecodable("bad-message", "pkNames is not a list of names") from None
    return Frame(plan, keys, plan.columns.issuperset(keys))


@remembered(1024)
def _plan(
    mysql_type: bytes,
    columns: tuple[tuple[str, str], ...],
    timezone: str,
    binary: str | None,
    dialect: CanalDialect,
    kind: str | None,
) -> CanalPlan:
    """What rows of one ``mysqlType`` need under the pipeline's ``columns:`` and options."""
    declared = declared_types(Raw(mysql_type))
    if kind is None:
        kind = database_kinds.of_names(declared.values(), dialect.kinds)
    is_doubtful = kind is None and bool(dialect.kinds)
    sent = dialect.kinds.get(kind or "", dialect.types)(declared)
    logical = sent | dict(columns)
    made = {column: dialect.makers.get(types.base(named)) for column, named in logical.items()}
    settings = Settings(timezone, binary)
    changes = {column: make(declared.get(column, ""), settings) for column, make in made.items() if make}
    unlabelled = [name for name, change in changes.items() if not change and logical[name] in _LABELLED]
    return CanalPlan(
        types=logical,
        columns=frozenset(declared),
        converters=tuple((column, change) for column, change in changes.items() if change),
        large=frozenset(
            column
            for column, name in declared.items()
            if logical[column] in types.LOB or name.partition("(")[0].strip().lower() in dialect.large
        ),
        bits=frozenset(column for column, named in logical.items() if types.base(named) == "bit"),
        note=f"labels unknown, numbers kept: {', '.join(unlabelled)}" if unlabelled else None,
        dates=tuple(name for name, named in sent.items() if named == "date") if is_doubtful else (),
    )


_LABELLED = ("enum", "set")
_names = msgspec.json.Decoder(list[str] | None)
