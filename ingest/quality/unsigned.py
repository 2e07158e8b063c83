"""Negative numbers in columns that a statement has declared BIGINT UNSIGNED.

Debezium sends such a column as a signed number by default (``bigint.unsigned.handling.mode: long``), so that values past 2^63
arrive negative. Where the rows' own messages say UNSIGNED (``column.propagate.source.type``), they are read right; where only
a statement or a structure says it, no row shows it, but a negative number proves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ingest.change import TableId
from ingest.errors import command, counted
from ingest.lake import duck
from ingest.lake.lake import Lake
from ingest.lake.logged_statements import Statement
from ingest.quality.catalogue import UNKNOWN_VALUES, Metric
from ingest.quality.subjects import CheckedMirror

UNSIGNED = "uint64"


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], logged: Iterable[Statement]) -> Iterator[Metric]:
    """The rows with such a number, by mirror and column; nothing for columns without any."""
    statements = list(logged)
    for subject in chosen:
        if subject.mirror is None or not subject.exists:
            continue
        unsigned = {name for lane in subject.lanes for name in _declared(statements, lane.source, lane.table)}
        for column in subject.decided.sent:
            if column.name not in unsigned or not column.delta.startswith(("DECIMAL", "BIGINT")):
                continue
            query = f"SELECT count(*) AS n FROM {{mirror}} WHERE {duck.name(column.column)} < 0"
            if rows := lake.ask_mirror(subject.path, query)[0]["n"]:
                detail = (
                    f"{counted(rows, 'row has', 'rows have')} a negative number in {column.name}, which a "
                    f"statement declares UNSIGNED: write `{column.name}: {UNSIGNED}` under columns: of its tables: entry, then "
                    f"`{command('backfill', lake.pipeline.file, '--last', lake.decoded())}`"
                )
                yield Metric(UNKNOWN_VALUES, rows, subject.name, column=column.name, detail=detail)


def _declared(statements: Iterable[Statement], source: str, table: TableId) -> set[str]:
    """The columns that the last statement on each declares so."""
    types: dict[str, str | None] = {}
    for statement in statements:
        for effect in statement.effects if statement.source == source else ():
            if effect.table != table:
                continue
            if effect.action == "create_table" and effect.columns:
                types = {column.name: column.type for column in effect.columns}
            elif effect.action == "rename_column":
                types[effect.new_name] = types.pop(effect.column or "", None)
            elif effect.action == "drop_column":
                types.pop(effect.column or "", None)
            elif effect.column and effect.type is not None:
                types[effect.column] = effect.type
    return {name for name, logical in types.items() if logical == UNSIGNED}
