"""Rows that lack columns although their source may leave out NULLs: then an update to NULL looks like an unchanged column.

AWS DMS leaves out NULLs by default, GoldenGate by a setting, and no message says so. A source that sends one NULL does not
leave them out. Of one that never does, a row that lacks a column which rows before it have is a doubt, until the option
``left_out`` decides it. An insert has all columns, so it proves it; an update proves it where updates are never compressed.

Debezium for PostgreSQL sends NULL in the place of some large values that did not change, and notes say which (`UNSURE_NULLS`).
There the doubt is of rows that had such a value, which may have been stored apart from its row: PostgreSQL stores values apart
if they are longer than the pointer to them, of rows of more than 2 KB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ingest.change import UNSURE_NULLS
from ingest.errors import agreeing, counted
from ingest.fold import SchemaStep
from ingest.ledgers import lanes
from ingest.quality import renamed_cells
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.ordered_lane import OrderedLane, ordered_lanes
from ingest.quality.subjects import CheckedMirror
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.lake import Lake

_PROOFS = {"by default": ("insert", "update"), "by a setting": ("insert",)}


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """Count the new rows of each mirror that lack columns in doubt; nothing for sources that always send NULLs."""
    for ordered in ordered_lanes(lake, (subject for subject in chosen if subject.mirror), since):
        about = ordered.source.about
        if ordered.source.options.left_out is not None:
            continue
        if proofs := _PROOFS.get(about.leaves_out_nulls):
            yield _of_lane(ordered, proofs)
        elif about.nulls_for_large and ordered.subject.keyed:
            yield _of_large(ordered)


def _of_lane(ordered: OrderedLane, proofs: Iterable[str]) -> Metric:
    short = {name: n for name in _columns(ordered) if (n := _lacking(ordered, name, proofs))}
    if not short or lanes.sends_nulls(ordered.lake, ordered.source):
        return ordered.metric("nulls_left_out", 0, "")
    n = max(short.values())
    detail = (
        f"{counted(n, 'row')} of {ordered.lane.table} {agreeing(n, 'lacks', 'lack')} {', '.join(list(short)[:FAILING_KEYS])}, which "
        f"rows before have, and source {ordered.source.name} has never sent a NULL: if it leaves NULLs out, write "
        f"`left_out: null` under its options, if it leaves out what is unchanged, `left_out: unchanged`; then run {decoded_again(ordered.lake)}"
    )
    return ordered.metric("nulls_left_out", n, detail)


def _columns(lane: OrderedLane) -> list[str]:
    keys = {*lane.subject.decided.keys}
    return [column.name for column in lane.subject.decided.sent if column.name not in keys]


def _lacking(lane: OrderedLane, name: str, proofs: Iterable[str]) -> int:
    """The number of new rows that lack a column which an earlier row has."""
    kinds = ", ".join(map(duck.text, proofs))
    has = duck.has_member("after", name)
    [row] = lane.lake.ask(
        f"""WITH rows AS (SELECT op, batch, order_key, {has} AS has FROM {{changes.change}}
            WHERE {duck.HAS_ROW} AND {lane.where}),
        firsts AS (SELECT min(order_key) AS place FROM rows WHERE has)
        SELECT count(*) AS n FROM rows, firsts WHERE NOT has AND op IN ({kinds}) AND batch > {lane.since} AND order_key > place"""
    )
    return int(row["n"])


# --- large values that did not change ---------------------------------------------------------------


def _of_large(ordered: OrderedLane) -> Metric:
    """The new rows with a NULL that may stand for a large value, where the row had one."""
    by_column: dict[str, list[str]] = {}
    for row in ordered.lake.ask(
        f"SELECT DISTINCT note FROM {{changes.change}} WHERE {ordered.where} AND batch > {ordered.since} "
        f"AND note LIKE '%{UNSURE_NULLS}%'"
    ):
        for name in _LIST.raw_decode(row["note"].partition(UNSURE_NULLS)[2])[
            0
        ]:  # another remark may follow it
            by_column.setdefault(name, []).append(row["note"])
    notes = {note for of_column in by_column.values() for note in of_column}
    if not notes or not _may_be_large(ordered, notes):
        by_column = {}
    short = {name: n for name, noted in by_column.items() if (n := _emptied(ordered, name, noted))}
    if not short:
        return ordered.metric("nulls_left_out", 0, "")
    n = max(short.values())
    detail = (
        f"{counted(n, 'row')} of {ordered.lane.table} came with NULL in {', '.join(list(short)[:FAILING_KEYS])} and had a large "
        f"value there, and for one that did not change the connector of source {ordered.source.name} sends NULL, too: if no "
        f"statement sets such values to NULL, write `left_out: unchanged` under its options, then run {decoded_again(ordered.lake)}; else "
        "set REPLICA IDENTITY FULL at the source and load these rows again"
    )
    return ordered.metric("nulls_left_out", n, detail)


_LIST = json.JSONDecoder()


def _may_be_large(ordered: OrderedLane, notes: Iterable[str]) -> bool:
    """True if a row with such a note may have been large: most tables have no such rows, and the images' lengths show that."""
    return bool(
        ordered.lake.ask(
            f"""WITH {_unsure(ordered, notes)} SELECT 1 AS n FROM {{changes.change}} WHERE {ordered.where} AND {duck.HAS_ROW}
            AND {_large_row(ordered)} AND {_own_key(ordered)} IN (SELECT own_key FROM unsure) LIMIT 1"""
        )
    )


def _emptied(ordered: OrderedLane, name: str, notes: Iterable[str]) -> int:
    """The number of new rows with such a note whose newest earlier image had a large value in a column."""
    large_cell = "cell IS NOT NULL" if _is_masked(ordered) else f"length(cell) >= {_LARGE}"
    steps = _steps(ordered)
    cell, has = renamed_cells.cell(name, steps, "after"), renamed_cells.has_cell(name, steps, "after")
    [row] = ordered.lake.ask(
        f"""WITH {_unsure(ordered, notes)},
        earlier AS (SELECT order_key, {_own_key(ordered)} AS own_key, {cell} AS cell,
            {_large_row(ordered)} AS is_large FROM {{changes.change}} WHERE {ordered.where} AND {duck.HAS_ROW}
            AND (note IS NULL OR note NOT IN ({_listed(notes)})) AND {has}),
        had AS (SELECT arg_max_null(e.cell, e.order_key) AS cell, arg_max(e.is_large, e.order_key) AS is_large
            FROM unsure AS u JOIN earlier AS e ON e.own_key = u.own_key AND e.order_key < u.order_key GROUP BY u.order_key)
        SELECT count(*) AS n FROM had WHERE {large_cell} AND is_large"""
    )
    return int(row["n"])


def _unsure(ordered: OrderedLane, notes: Iterable[str]) -> str:
    """The new rows with such a note, in SQL: their places and their keys before them."""
    return f"""unsure AS (SELECT order_key, {_own_key(ordered, "before", "after")} AS own_key FROM {{changes.change}}
        WHERE {ordered.where} AND batch > {ordered.since} AND note IN ({_listed(notes)}))"""


def _own_key(ordered: OrderedLane, first: str = "after", second: str = "before") -> str:
    return renamed_cells.key(ordered.subject.decided.keys, _steps(ordered), first, second)


def _steps(ordered: OrderedLane) -> list[SchemaStep]:
    return ordered.subject.schema_steps(ordered.lane)


def _large_row(ordered: OrderedLane) -> str:
    """The condition in SQL that a row may be large; a mask hides how long a value is."""
    return "true" if _is_masked(ordered) else f"(partial OR length(after) >= {_MAY_BE_APART})"


def _is_masked(ordered: OrderedLane) -> bool:
    return bool(ordered.lake.pipeline.rule(ordered.lane.table).mask)


def _listed(notes: Iterable[str]) -> str:
    return ", ".join(map(duck.text, notes))


_LARGE = 40  # characters of a value that may be longer than a pointer
_MAY_BE_APART = 500  # characters of an image that may take 2 KB: a double of 8 bytes may be `1,`
