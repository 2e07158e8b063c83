"""Cells that each change gets when it is read, as if its source had sent them: constants, and what is known of the
change itself.

So a metadata column holds what is known of the last change of its row in the order of history, in every fold and check.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ingest.change import Change, Op, TableId
from ingest.fold import DELETED
from ingest.ledgers.mirrors import Mirror
from ingest.tables.json_cells import object_in
from ingest.values.remembered import remembered

if TYPE_CHECKING:
    import pyarrow as pa

Rows = TypeVar("Rows", "pa.Table", "pa.RecordBatch")
TIME = "event_time"
# metadata: the column of `changes` that has it
_COLUMNS = {"batch": "batch", "event_time": TIME, "operation": "op"}


@dataclass(frozen=True, slots=True)
class Stamps:
    """The cells of one lane's changes, by the mirror's columns: fixed texts, and columns of ``changes``."""

    fixed: Mapping[str, str] = field(default_factory=dict)
    moving: Mapping[str, str] = field(default_factory=dict)
    soft: bool = False  # the mirror keeps deleted rows, with the time of the delete

    @property
    def timed(self) -> bool:
        """True if the event time of changes is needed."""
        return self.soft or TIME in self.moving.values()

    @property
    def members(self) -> list[str]:
        """The fixed cells as members of a JSON object."""
        return [
            f"{json.dumps(name, ensure_ascii=False)}:{json.dumps(text, ensure_ascii=False)}"
            for name, text in self.fixed.items()
        ]

    def cells(self, row: Mapping[str, Any]) -> dict[str, str | None]:
        """The cells of one change."""
        texts: dict[str, str | None] = dict(self.fixed)
        for name, column in self.moving.items():
            value = row[column]
            if column == TIME and value is not None:
                value = value.replace(tzinfo=None).isoformat() + "Z"
            texts[name] = None if value is None else str(value)
        return texts


NO_STAMPS = Stamps()


def micros(moment: dt.datetime | int | None) -> int | None:
    """An event time as a change has it: microseconds since 1970 UTC."""
    if moment is None or isinstance(moment, int):
        return moment
    return (moment.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def change_of(row: Mapping[str, Any], shard: Iterable[tuple[str, str]] = ()) -> Change:
    """A row of ``changes`` as the plain fold takes it, with the cell that distinguishes its lane's rows, if there is one."""
    before, after = (json.loads(row[side]) if row[side] else None for side in ("before", "after"))
    if shard:
        before, after = (image if image is None else image | dict(shard) for image in (before, after))
    return Change(
        op=Op(row["op"]),
        before=before,
        after=after,
        partial=bool(row["partial"]),
        types=types_of(row["types"]),
        event_time=micros(row.get(TIME)),
        transaction=row.get("transaction"),
    )


@remembered(1024)
def types_of(text: str | None) -> Mapping[str, str]:
    """The types of a message, cached: most messages of a table name the same ones."""
    return object_in(text)


def columns_for(stamps: Iterable[Stamps], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of ``changes``, and the event time if something needs it."""
    return (*columns, *({TIME} if any(stamp.timed for stamp in stamps) else ()))


def stamps_of(mirror: Mirror, source: str, table: TableId) -> Stamps:
    """What a mirror's rules want to know of a lane's changes."""
    lane = {"source": source, "table": str(table)}
    fixed, moving = dict[str, str](), dict[str, str]()
    for column in mirror.columns:
        if column.made is None or column.expression:
            continue
        if column.made.kind == "deletes":  # the fold itself sets them in a deleted row
            fixed |= {DELETED: "false"}
            continue
        if column.made.kind == "meta" and column.made.value in _COLUMNS:
            moving[column.name] = _COLUMNS[column.made.value]
        else:
            fixed[column.name] = (
                column.made.value if column.made.kind == "constant" else lane[column.made.value]
            )
    return Stamps(fixed, moving, mirror.soft) if fixed or moving else NO_STAMPS


def stamped(rows: Rows, stamps: Stamps) -> Rows:
    """Changes with the cells in their images."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if stamps == NO_STAMPS:
        return rows
    parts: list[Any] = ["{", ",".join(stamps.members)]
    for name, column in stamps.moving.items():
        cells = rows.column(column)
        if column == TIME:
            text = cells.cast(pa.timestamp("us", cells.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
            cells = pc.binary_join_element_wise(
                pc.replace_substring(text.cast(pa.string()), " ", "T"), "Z", ""
            )
        quoted = pc.binary_join_element_wise('"', cells.cast(pa.string()), '"', "")
        comma = "" if len(parts) == 2 and not parts[1] else ","
        parts += [f"{comma}{json.dumps(name, ensure_ascii=False)}:", pc.coalesce(quoted, "null")]
    after = rows.column("after")
    parts += [pc.if_else(pc.equal(after, "{}"), "", ","), pc.utf8_slice_codeunits(after, 1)]
    images = pc.binary_join_element_wise(*parts, "")
    return rows.set_column(rows.schema.get_field_index("after"), "after", images)
