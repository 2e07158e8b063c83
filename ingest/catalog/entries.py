"""What a catalog has of a mirror: its place, its columns as the Delta table has them, and a comment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.change import TableId
from ingest.ledgers import histories
from ingest.ledgers.mirrors import Mirror
from ingest.tables.delta import type_of_log
from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class RegisteredColumn:
    """One column as the Delta table has it, and the source's name and type."""

    name: str
    delta: str
    source: str
    source_type: str
    comment: str = ""  # as the Delta table has it


@dataclass(frozen=True, slots=True)
class Registered:
    """One mirror; without a path it is not there yet, and ``why`` says so."""

    table: TableId
    path: str = ""
    fields: tuple[RegisteredColumn, ...] = ()
    keys: tuple[str, ...] = ()
    states: bool = False  # it keeps every state of each row, so that a key occurs more than once
    why: str = ""

    @property
    def title(self) -> str:
        """What the table is, in words."""
        keys = ", ".join(self.keys)
        if self.states:
            return (
                f"history of {str(self.table).removesuffix('__history')}: every state of each row, "
                f"key ({keys}) and valid_from"
            )
        return f"mirror of {self.table}{f', key ({keys})' if keys else ', no key'}"


def entry(lake: Tables, mirror: Mirror) -> Registered | None:
    """A mirror, or the history table of one, with the columns and comments that its table has; None without a table."""
    state = lake.snapshot(mirror.path)
    if not state.exists:
        return None
    decided = {column.column: column for column in mirror.columns}
    fields = []
    for name, kind in state.types.items():
        column = decided.get(name)
        source = (column.name, column.type) if column else (name, "unknown")
        comment = histories.MEANINGS.get(source[0]) or state.comments.get(name, "")
        fields.append(RegisteredColumn(name, type_of_log(kind), *source, comment))
    states = histories.is_history(mirror)
    return Registered(mirror.table, lake.path(mirror.path), tuple(fields), mirror.keys, states=states)


def with_histories(lake: Tables, mirrors: Iterator[Mirror]) -> Iterator[Mirror]:
    """Mirrors, and the history tables that they may have."""
    kept = any(rule.history for rule in lake.pipeline.every_rule)
    for mirror in mirrors:
        yield mirror
        if kept and mirror.keys:
            yield histories.table_of(mirror)
