"""What a list of column types asks for in messages of Canal's family, worked out once and not per row.

A *dialect* is a member of the family: the few points in which it differs from the others.  From it, a
message's ``mysqlType`` and ``pkNames`` and the pipeline file comes the *frame* of a table's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from ingest import types
from ingest.change import Op, TableHints, TableId
from ingest.decoding import flat_messages
from ingest.decoding.converters import Converters, Maker, Settings
from ingest.decoding.flat_messages import NOWHERE, CanalPosition, Found, Rows
from ingest.errors import Undecodable
from ingest.values.remembered import remembered

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
    """

    makers: Mapping[str, Maker]
    position: Callable[[Found], CanalPosition] = nowhere
    types: Callable[[Mapping[str, str]], dict[str, str]] = mysql_types
    bare_rows: Callable[[list[Any] | Raw, CanalPlan], Rows] | None = None
    deleted_in_old: bool = False
    gtid_is_transaction: bool = False
    large: frozenset[str] = frozenset()
    marks: Mapping[str, Op] = field(default_factory=lambda: MARKS)
    sql: str = "mysql"


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
) -> Frame:
    """The frame of a table's messages; ``tables`` returns what the pipeline file says of it.

    ``mysql_type`` and ``pk_names`` are the members' own bytes, empty where they are missing.
    """
    declared = tables(table)
    plan = _plan(mysql_type, tuple(declared.columns.items()), timezone, binary, dialect)
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
) -> CanalPlan:
    """What rows of one ``mysqlType`` need under the pipeline's ``columns:`` and options."""
    declared = flat_messages.declared_types(Raw(mysql_type))
    logical = dialect.types(declared) | dict(columns)
    converters, unlabelled = [], []
    for column, kind in logical.items():
        make = dialect.makers.get(types.base(kind))
        change = make(declared.get(column, ""), Settings(timezone, binary)) if make else None
        if change:
            converters.append((column, change))
        elif make and kind in ("enum", "set"):
            unlabelled.append(column)
    return CanalPlan(
        types=logical,
        columns=frozenset(declared),
        converters=tuple(converters),
        large=frozenset(
            column
            for column, name in declared.items()
            if logical[column] in types.LOB or name.partition("(")[0].strip().lower() in dialect.large
        ),
        bits=frozenset(column for column, kind in logical.items() if types.base(kind) == "bit"),
        note=f"labels unknown, numbers kept: {', '.join(unlabelled)}" if unlabelled else None,
    )


_names = msgspec.json.Decoder(list[str] | None)
