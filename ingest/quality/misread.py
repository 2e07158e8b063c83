"""Cells that prove that their column is of the type which a statement declares, while its rows are read without it.

Debezium sends BIGINT UNSIGNED as a signed number by default (``bigint.unsigned.handling.mode: long``), so that values past 2^63
arrive negative, and Maxwell sends a SET as a list of its labels, as it sends a list of texts in a JSON column. Where the rows'
own messages or the pipeline file name the type, they are read right; where only a statement or a structure names it, no row
shows it, but these cells do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ingest.change import LaneId
from ingest.ddl import Effect
from ingest.errors import counted
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.timeline import Structure
from ingest.quality.catalogue import TYPES_MISREAD, Metric
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.lake import Lake


class _Proof(NamedTuple):
    """What proves that rows were read without their declared type."""

    word: str  # of the statement
    stored: tuple[str, ...]  # Delta types, or how they begin, of a column that may be misread
    is_misread: str  # SQL of a cell
    cell: str


_PROOFS = {
    "uint64": _Proof("UNSIGNED", ("DECIMAL", "BIGINT"), "{} < 0", "a negative number"),
    # labels have no commas, and one that is such a list by itself is none that anybody gives
    "set": _Proof("a SET", ("STRING",), "({0} = '[]' OR {0} LIKE '[\"%\"]')", "a list of labels"),
}
"""By the logical type that a statement declares."""


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], logged: Iterable[Statement]) -> Iterator[Metric]:
    """The rows with such a cell, by mirror and column; nothing for columns without any.

    A mirror that stays as it is stays wrong, so that all its rows are looked at, not only new ones.
    """
    effects: dict[LaneId, list[Effect]] = defaultdict(list)
    for statement in logged:
        for effect in statement.effects:
            effects[statement.source, effect.table].append(effect)
    for subject in chosen:
        if not subject.has_table:
            continue
        declared: dict[str, str] = {}
        for lane in subject.lanes:
            declared |= _unshown(lake, subject, lane, effects.get(lane.id, ()))
        for column in subject.decided.sent:
            logical = declared.get(column.name, "")
            proof = _PROOFS.get(logical)
            if proof is None or not column.delta.startswith(proof.stored):
                continue
            is_misread = proof.is_misread.format(duck.name(column.column))
            query = f"SELECT count(*) AS n FROM {{mirror}} WHERE {is_misread}"
            if rows := lake.ask_mirror(subject.path, query)[0]["n"]:
                detail = (
                    f"{counted(rows, 'row has', 'rows have')} {proof.cell} in {column.name}, which a statement declares "
                    f"{proof.word}: write `{column.name}: {logical}` under columns: of its tables: entry, then "
                    f"{decoded_again(lake)}"
                )
                yield Metric(TYPES_MISREAD, rows, subject.name, column=column.name, detail=detail)


def _unshown(
    lake: Lake, subject: CheckedMirror, lane: CheckedLane, effects: Iterable[Effect]
) -> dict[str, str]:
    """The columns, with the types that statements declare, of which a lane's rows may be read as another type.

    Only rows of a format that sends a SET as a list are asked for lists, and not where the pipeline file names the column: as
    `json` or `string` it keeps the list on purpose. A negative number is wrong in every type of numbers.
    """
    has_lists = lake.pipeline.about(lane.source).sets_as_lists
    given = subject.rule(lake.pipeline, lane).columns
    return {
        name: logical
        for name, logical in _declared(effects).items()
        if logical != "set" or (has_lists and name not in given)
    }


def _declared(effects: Iterable[Effect]) -> dict[str, str]:
    """The columns of which cells may prove the type that the last of a table's effects on each declares."""
    table = Structure()
    for effect in effects:
        if effect.action == "create_table" and effect.columns:
            table = Structure()
        table = table.after(effect)
    return {
        column.name: column.type
        for column in table.columns.values()
        if column.type and column.type in _PROOFS
    }
