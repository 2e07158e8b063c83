"""What a connector sends besides rows: positions, schema changes, transactions, heartbeats.

The members of a source block are the connector's own:
``lsn`` is PostgreSQL's, ``commit_lsn`` SQL Server's and Db2's, ``commit_scn`` and ``scn`` Oracle's, ``commit_ts`` TiCDC's,
``file`` and ``pos`` MySQL's. Also the table structures that a connector sends with a schema change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple, cast

import msgspec

from ingest import types
from ingest.change import Change, Hints, Image, Op, Options, TableId
from ingest.ddl import UNPLACED, TableStructure
from ingest.decoding import documents, json_values
from ingest.decoding.rows import emptied
from ingest.errors import Undecodable
from ingest.values import MICROS, compacted, integer, members, micros_of, strict
from ingest.values.remembered import remembered

CLOCKS = frozenset({"ts_ms", "ts_us", "ts_ns"})


def unwrapped(raw: bytes, hints: Hints, topic: str) -> json_values.ConverterMessage:
    """A message in its parts; of a CloudEvent the event, which Debezium's converter has taken apart.

    The converter leaves the images in ``data``, with the schema if it is set so, and makes the operation and each member of
    the source and of the transaction an attribute: ``ts_ms`` is ``iodebeziumtsms``, the transaction's ``id`` is
    ``iodebeziumtxid`` and the source's ``txId`` stays ``iodebeziumtxId`` (documentation, "CloudEvents"). ``data`` of a row that
    was flattened before is the row: the attributes are its metadata then, and its table's name only where ``options.table``
    gives the topic none, as that of its deletes by a null value.
    """
    if _OPERATION not in raw:
        return json_values.unwrapped(raw)
    attributes = members(raw)
    if not attributes.keys() >= {"data", "specversion", documents.DESCRIBED}:
        return json_values.unwrapped(raw)
    data = bytes(attributes["data"])
    if data == b"null":
        return json_values.ConverterMessage(b"", None)
    if data[:1] != b"{":
        raise Undecodable(
            "unsupported-source",
            "a CloudEvent whose data are not JSON: set value.converter.data.serializer.type=json at the source",
        )
    content = json_values.unwrapped(data)
    row, are_flat = content.payload, are_all_flat(hints.options)
    if row is None or (not are_flat and kind_of(row) == "row"):  # nothing was taken out
        return content
    source = json_values.object_of(
        msgspec.json.encode({name: attributes[key] for name, key in _ATTRIBUTES.items() if key in attributes})
    )
    op, transaction = source.pop("op"), source.pop("transaction", None)
    if not are_flat and (op in _NEVER_FLAT or _are_images(row)):
        event = {**row, "op": op, "source": source, "transaction": {"id": transaction}}
    else:
        known = _TABLE if hints.table_of(topic) else ()
        said = {f"__source_{name}": text for name, text in source.items() if name not in known}
        event = {**said, "__op": op, **row}
    return json_values.ConverterMessage(content.schema, event)


def are_all_flat(options: Options) -> bool:
    """True if the options say that all messages are flattened rows."""
    return options.extra.get("rows") == "flat"


def _are_images(row: Mapping[str, Any]) -> bool:
    """True for images alone; a table may have no other columns than those of their names, and their cells are no records."""
    return all(
        name in ("before", "after")
        and (value is None or isinstance(value, dict) or (isinstance(value, str) and value.startswith("{")))
        for name, value in row.items()  # a text is a document of MongoDB
    )


def kind_of(event: Mapping[str, Any]) -> str:
    """``row``, ``ddl``, ``transaction``, ``heartbeat``, ``flat``, or one of `NOT_FOR_READERS`, by a message's members.

    A flattened row may have columns of the same names, so an event's own members count: an image or a source is a
    record, and a mark of a transaction has no other members than those of marks, its clock or its tables among them. So has
    a notification, whose data are no text; the data of a signal are a record that names tables.
    """
    if "op" in event and (("before" in event and "after" in event) or _has_record(event)):
        return "row"
    names = event.keys()
    for form in () if names.isdisjoint(_TELLING) else _FORMS:
        if form.has <= names and (form.at_most is None or names <= form.at_most) and form.holds(event):
            return form.kind
    return "flat"


def _has_record(event: Mapping[str, Any]) -> bool:
    source, before, after = event.get("source"), event.get("before"), event.get("after")
    return isinstance(source, dict) or isinstance(before, dict) or isinstance(after, dict)


NOT_FOR_READERS = {  # the statements of a history are of all tables, and those of a snapshot have no place among the rows
    "history": "a statement of the connector's own history, not one for readers",
    "notification": "a notification of the connector's, which is about no row",
    "signal": "a signal to the connector, which is about no row",
}


class _Form(NamedTuple):
    """The members that show what a message without a row is; ``at_most`` are all that it may have, None if any."""

    kind: str
    has: frozenset[str]
    at_most: frozenset[str] | None = None
    holds: Callable[[Mapping[str, Any]], bool] = bool


def _names_tables(signal: Mapping[str, Any]) -> bool:
    return isinstance(signal["data"], dict) and "data-collections" in signal["data"]


_SAID = ("ddl", "tableChanges")
_MARK, _OF_MARKS_ALONE = frozenset({"status", "id", "event_count"}), frozenset({"ts_ms", "data_collections"})
_NOTIFICATION = frozenset({"aggregate_type", "type", "additional_data", "timestamp"})
_SIGNAL = frozenset({"type", "data"})
_FORMS = (  # the first of these that a message has
    *(_Form("history", frozenset({"databaseName", "position", said})) for said in _SAID),
    *(_Form("ddl", frozenset({"databaseName", said})) for said in _SAID),
    *(_Form("transaction", _MARK | {member}, _MARK | _OF_MARKS_ALONE) for member in _OF_MARKS_ALONE),
    *(_Form("heartbeat", frozenset({clock}), CLOCKS) for clock in CLOCKS),
    _Form(
        "notification",
        _NOTIFICATION,
        _NOTIFICATION | {"id"},
        lambda event: isinstance(event["additional_data"], dict | None),
    ),
    _Form("signal", _SIGNAL, _SIGNAL, _names_tables),
)
_TELLING = frozenset({"databaseName", "event_count", "additional_data", "data"}) | CLOCKS
"""Each form has one of these, and few rows have."""
_SOURCE_FIELDS = frozenset(
    "version connector name ts_ms ts_us ts_ns snapshot db sequence schema table collection keyspace txId lsn xmin "
    "server_id gtid file pos row thread query change_lsn commit_lsn event_serial_no scn commit_scn ssn lcr_position "
    "redo_thread user_name rs_id row_id commit_ts_ms start_scn start_ts_ms origin origin_lsn commit_ts cluster_id begin_lsn".split()
)
_PREFIX = documents.DESCRIBED.removesuffix("op")
_OPERATION = f'"{documents.DESCRIBED}"'.encode()
_ATTRIBUTES = {
    **{name: _PREFIX + name.replace("_", "") for name in _SOURCE_FIELDS},
    "op": documents.DESCRIBED,
    "transaction": f"{_PREFIX}txid",
}
"""By member of the source, and of the event, the attribute that has it: a name without the characters that CloudEvents does
not allow."""
_TABLE = frozenset({"db", "schema", "table", "keyspace"})
_NEVER_FLAT = ("t", "m")  # flattening drops TRUNCATE and messages
FLAT_METADATA = frozenset(
    [f"__{name}" for name in ("deleted", "op", "ts_ms", "ts_us", "ts_ns", *_SOURCE_FIELDS)]
    + [f"__source_{name}" for name in _SOURCE_FIELDS]
    + [f"__transaction_{name}" for name in ("id", "total_order", "data_collection_order")]
)


def is_metadata(name: str, columns: Collection[str]) -> bool:
    """True for a member that flattening adds to a row; a column's own name may begin with ``__``, too.

    ``columns`` are those that the pipeline file or the Kafka key names; they are never metadata.
    """
    return name in FLAT_METADATA and name not in columns


def sequence(source: Image) -> tuple[tuple[int, ...], str | None]:
    """The connector's position as numbers and as its own text; empty where there is none."""
    for names, read in _POSITIONS:
        if source.get(names[0]):
            if names == ("lsn",):
                return _postgres(source)
            written = [source.get(name) for name in names]
            # the numbers before the first missing one: none may move into another's place
            leading = cast("tuple[int, ...]", tuple(takewhile(lambda n: n is not None, map(read, written))))
            return leading, "/".join(filter(None, written)) if leading else None
    file, pos = source.get("file"), integer(source.get("pos"))
    number = file_number(file or "")
    if number is None or pos is None:
        return (), None
    row = integer(source.get("row")) or 0
    return (number, pos, row), f"{file}:{pos}:{row}"


@remembered(1024)
def file_number(file: str) -> int | None:
    """The number at the end of a log file's name."""
    suffix = re.search(r"\.([0-9]{1,18})$", file, re.ASCII)
    return None if suffix is None else int(suffix[1])


def _postgres(source: Image) -> tuple[tuple[int, ...], str | None]:
    """The log's position; after the last commit before it, if that is greater.

    A transaction that began to write before others committed has smaller positions than theirs.  For one row
    that does not matter, because of its lock; but a row that an incremental snapshot reads meanwhile is
    older than the transaction, and has the greater position.
    """
    position = source["lsn"]
    lsn, both = integer(position), None
    if lsn is None:
        return (), None
    with suppress(Undecodable):  # the positions of the last commit before the event, and of the event
        both = strict((source.get("sequence") or "null").encode())
    first = both[0] if isinstance(both, list) and both else None
    committed = integer(first) if isinstance(first, str) else None
    return ((committed, lsn) if committed is not None and committed > lsn else (lsn,)), position


def names_position(source: Image) -> bool:
    """True if the connector has a member for its position, though it may be empty."""
    return any(names[0] in source for names, _ in _POSITIONS) or "file" in source


def _log_number(value: str | None) -> int | None:
    """SQL Server's ``00000027:00000ac0:0002`` as one number, Db2's with 16 digits at its end; plain numbers as they are."""
    if value is None or not _LSN.fullmatch(value):
        return integer(value)
    high, middle, low = value.split(":")
    width = 4 * len(low)
    return ((int(high, 16) << 32 + width) | (int(middle, 16) << width) | int(low, 16)) or None


_LSN = re.compile(r"[0-9a-fA-F]{8}:[0-9a-fA-F]{8}:(?:[0-9a-fA-F]{4}|[0-9a-fA-F]{16})")
_POSITIONS = (
    (("lsn",), integer),
    (("commit_lsn", "change_lsn", "event_serial_no"), _log_number),
    (("commit_scn", "scn", "ssn"), integer),
    (("scn",), integer),
    (("commit_ts",), integer),  # TiCDC's; the rows of one transaction share it, and arrive in its order
)


def event_time(source: Image) -> int | None:
    """Microseconds from ``ts_us`` or ``ts_ms``; zero means unknown."""
    micros = micros_of(integer(source.get("ts_us")), MICROS)
    return micros or micros_of(integer(source.get("ts_ms")), 1000) or None


def changed_table(change: Any, of_event: TableId) -> TableId:
    """The table of one structure; its id is quoted: ``"shop"."orders"``."""
    parts = _QUOTED.findall(str(change.get("id"))) if isinstance(change, dict) else []
    names = [part[1:-1].replace('""', '"') for part in parts]
    if len(names) == 3:
        return TableId(*names)
    if len(names) == 2:  # PostgreSQL leaves the database out, MySQL has no schema
        return TableId(of_event.database, *names) if of_event.schema else TableId(names[0], None, names[1])
    return of_event


_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def structure(change: Any, source: Image) -> str | None:
    """A table's structure as `Change.structure` wants it, or None if it is damaged."""
    try:
        table = change.get("table") or {}
        columns = table.get("columns") or ()
        described = TableStructure(
            str(change.get("type")),
            tuple(str(name) for name in table.get("primaryKeyColumnNames") or ()),
            {str(column["name"]): _logical(column, source) for column in columns},
        ).with_charsets(
            table.get("defaultCharsetName"),
            {str(column["name"]): column.get("charsetName") for column in columns},
        )
    except (AttributeError, KeyError, TypeError):
        return None
    return described.text()


def _logical(column: Mapping[str, Any], source: Image) -> str:
    name = str(column.get("typeExpression") or column.get("typeName") or "")
    length, scale = column.get("length"), column.get("scale")
    if length is not None and "(" not in name:
        head, _, rest = name.partition(" ")
        arguments = f"({length},{scale})" if scale is not None else f"({length})"
        unsigned = rest.lower().startswith(("unsigned", "zerofill"))
        name = f"{head}{arguments} {rest}" if unsigned else name + arguments
    logical = _TYPE_NAMES.get(source.get("connector") or "", types.mysql)(name)
    # of one bit the connector sends true and false, whatever the statement calls it
    return "boolean" if logical == "bit" and str(length or 1) == "1" else logical


_TYPE_NAMES = {"postgresql": types.postgres, "oracle": types.oracle, "sqlserver": types.sqlserver}


_DIALECTS = {"postgresql": "postgres", "oracle": "oracle", "sqlserver": "sqlserver", "db2": "db2"}


def renames_labels(source: Image) -> bool:
    """True of rows from a database that may give an enumeration's label another name without changing a row: PostgreSQL.

    Its connector sends no statements. MySQL and MariaDB convert the rows by a statement, which is sent. A flattened row that does
    not name its connector shows it by ``lsn``, which is PostgreSQL's alone.
    """
    connector = source.get("connector")
    return connector.lower() == "postgresql" if connector else bool(source.get("lsn"))


def may_leave_nulls(source: Image) -> bool:
    """True of rows from a database that gives older rows the default of a new column that may be NULL only on request: SQL Server's
    ``WITH VALUES``, of which no message tells. A flattened row that does not name its connector shows it by ``event_serial_no``.
    """
    connector = source.get("connector")
    return connector.lower() == "sqlserver" if connector else bool(source.get("event_serial_no"))


# --- schema changes, transactions, heartbeats -----------------------------------------------------


def control(kind: str, event: Mapping[str, Any]) -> list[Change]:
    """The changes of a message that is not a row, from its JSON values; ``kind`` as `kind_of` says."""
    if kind == "ddl":
        return _schema_change(event)
    if kind in NOT_FOR_READERS:
        raise Undecodable("not-this-format", NOT_FOR_READERS[kind])
    if kind == "heartbeat":
        return [Change(op=Op.HEARTBEAT)]
    texts = json_values.texts(event)
    status, count = texts["status"], texts["event_count"]
    if status not in ("BEGIN", "END"):
        raise Undecodable("unknown-operation", f"a transaction's status is {status!r}, not BEGIN or END")
    op = Op.BEGIN if status == "BEGIN" else Op.COMMIT
    note = f"event_count={count}" if count else None
    when = micros_of(integer(texts.get("ts_ms")), 1000)
    return [Change(op=op, transaction=texts["id"], event_time=when, note=note)]


def _schema_change(event: Mapping[str, Any]) -> list[Change]:
    texts = json_values.texts({name: value for name, value in event.items() if name != "tableChanges"})
    source = json_values.texts(event.get("source"))
    places, position = sequence(source)
    table_id = TableId(texts.get("databaseName"), texts.get("schemaName"), source.get("table") or None)
    changes = strict(compacted(event.get("tableChanges") or []))
    snapshot = source.get("snapshot") not in (None, "", "false")
    common = Change(
        op=Op.DDL,
        table=table_id,
        sequence=places,
        position=position,
        event_time=event_time(source) or micros_of(integer(texts.get("ts_ms")), 1000),
        ddl=texts.get("ddl"),
        note="snapshot" if snapshot else None,
        dialect=_DIALECTS.get(source.get("connector") or "", "mysql"),
    )
    if not isinstance(changes, list) or (not changes and common.ddl is None):
        raise Undecodable("bad-message", "a schema change has neither a statement nor a list of structures")
    statements = [
        msgspec.structs.replace(
            common, table=changed_table(change, table_id), structure=structure(change, source)
        )
        for change in changes
    ] or [common]
    tables = [] if snapshot else emptied(statements[0], common.ddl or "")
    if tables and not places:
        statements = [msgspec.structs.replace(statement, note=UNPLACED) for statement in statements]
        tables = []
    cleared = [msgspec.structs.replace(common, op=Op.TRUNCATE, table=table, ddl=None) for table in tables]
    return [msgspec.structs.replace(change, row=row) for row, change in enumerate([*cleared, *statements])]
