"""The checks of keys for a batch with many changes, without a Spark job.

DuckDB counts under the hash of the key, as the Spark pass does (`ingest.quality.key_sql`), and writes to disk what does not
fit into its memory. A mirror is left to Spark if the type of its key, or a text of it, is one that DuckDB may read in
another way than the fold.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from ingest.lake import duck
from ingest.lake.lake import Lake
from ingest.lake.tables import scan
from ingest.order import place_sql
from ingest.quality.key_sql import Side, SideLane

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = "1GB"  # of DuckDB, before it writes to disk
_WHOLE = "-?[0-9]{1,40}"
_FORMS = {  # texts that DuckDB casts exactly, by Delta type
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _WHOLE),
    "DATE": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "TIMESTAMP_NTZ": "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?",
}
_DECIMAL = re.compile(r"DECIMAL\(\d+,(\d+)\)")


def numbers(lake: Lake, sides: Iterable[Side]) -> dict[int, dict[str, int]]:
    """Every check's number as the Spark pass counts them, by the mirror's index; some mirrors may be left out."""
    chosen = [
        one for one in sides if one.subject.keyed and all(_form(kind) is not None for kind in _kinds(one))
    ]
    with tempfile.TemporaryDirectory() as folder, closing(duck.opened()) as base:
        base.execute(f"SET memory_limit = '{MEMORY}'")
        base.execute(f"SET temp_directory = {duck.text(folder)}")
        base.execute("SET preserve_insertion_order = false")
        base.execute(_EVENTS)
        for name, lanes in _alike(chosen).items():
            for one, i, lane in lanes:
                if lane.truncates:
                    _clear(lake, one, i)
            base.execute(f"INSERT INTO events {_events(lake, name, lanes)}")
        unsure = {
            m
            for (m,) in base.execute(
                "SELECT DISTINCT m FROM events WHERE h IS NULL OR was IS NULL"
            ).fetchall()
        }
        base.execute(_STATES)
        base.execute("DROP TABLE events")
        found: dict[int, dict[str, int]] = {}
        for one in chosen:
            if one.index not in unsure:
                with suppress(Exception):  # the Spark pass reports what cannot be read
                    found[one.index] = _numbers(lake, base, one)
    return found


def _numbers(lake: Lake, base: DuckDBPyConnection, one: Side) -> dict[str, int]:
    names = [duck.name(column.column) for column in one.columns]
    empty = " OR ".join(f"{name} IS NULL" for name in names)
    kinds = _kinds(one)
    own = _hash(
        (f"CAST({name} AS {duck.type_of(kind)})" for name, kind in zip(names, kinds, strict=True)), kinds
    )
    states = f"(FROM states WHERE m = {one.index})"
    touched = f"AND {own} IN (SELECT h FROM {states})" if one.mostly_untouched else ""
    path = one.subject.path
    table = scan(lake.path(path), lake.snapshot(path), wanted={column.column for column in one.columns})
    base.execute(
        f"CREATE OR REPLACE TEMP TABLE present AS SELECT h, empty, count(*) AS n FROM (SELECT {empty} AS empty, "
        f"CASE WHEN NOT ({empty}) {touched} THEN {own} END AS h FROM {table}) GROUP BY ALL"
    )
    query = base.execute(_COUNTS.format(states=states, unknown="true" if one.closed else "false"))
    row = dict(zip([name for name, *_ in query.description or ()], query.fetchone() or (), strict=True))
    row[one.lacking] = row.pop("lacking")
    return {name: int(n) for name, n in row.items() if name == "rows" or one.asks(name)}


# --- the changes ------------------------------------------------------------------------------------


def _alike(chosen: Iterable[Side]) -> dict[tuple[tuple[str, str], ...], list[SideLane]]:
    """The lanes of mirrors by the names and Delta types of their keys: one scan of ``changes`` reads each group."""
    found: dict[tuple[tuple[str, str], ...], list[SideLane]] = {}
    for one in chosen:
        for i, lane in one.lanes:
            found.setdefault(tuple((column.name, column.delta) for column in one.columns), []).append(
                (one, i, lane)
            )
    return found


def _clear(lake: Lake, one: Side, index: int) -> None:
    """Record where a lane was last emptied: no earlier row may be in its mirror."""
    lane = one.subject.lanes[index]
    for row in lake.ask(
        f"SELECT order_key, batch FROM {{changes.change}} WHERE op = 'truncate' AND batch > {one.since} "
        f"AND batch <= {one.subject.applied} AND {duck.of_lane(lane.source, lane.table)} "
        "ORDER BY order_key DESC, batch DESC LIMIT 1"
    ):
        one.clear(index, row["order_key"], row["batch"])


_EVENTS = """CREATE TEMP TABLE events
(m INTEGER, h UBIGINT, was UBIGINT, order_key VARCHAR, gone BOOLEAN, whole BOOLEAN, place UBIGINT, message UBIGINT, content UBIGINT)"""


def _events(lake: Lake, key: Sequence[tuple[str, str]], lanes: Sequence[SideLane]) -> str:
    """Each change under the hash of its key and of the key that its row had before; NULL if that is not sure."""
    listed = ", ".join(
        f"({one.index}, {', '.join(map(_text, (lane.source, *lane.table, *one.cleared.get(i, (None,))[:1])))}, "
        f"{one.subject.applied}, {lane.key_changes > 0})"
        for one, i, lane in lanes
    )
    own, left, kinds = [], [], [kind for _, kind in key]
    for name, kind in key:
        after, before = _cell("after", "before", name), _cell("before", "after", name)
        own.append(_typed(f"CASE WHEN op = 'delete' THEN {before} ELSE {after} END", kind))
        left.append(_typed(before, kind))
    text = f"""SELECT l.m, {_hash_of(own, kinds)} AS h,
        CASE WHEN l.moves AND op IN ('insert', 'update') THEN {_hash_of(left, kinds)} ELSE {_hash_of(own, kinds)} END AS was,
        order_key, op = 'delete' AS gone, op <> 'update' OR NOT coalesce(partial, false) AS whole,
        hash(coalesce({place_sql("order_key")}, order_key)) AS place,
        hash(batch, topic, "partition", "offset") AS message, hash(op, before, after) AS content
        FROM {{changes.change}} AS c JOIN (VALUES {listed}) AS l(m, s, d, u, t, cleared, applied, moves)
        ON c.source = l.s AND c."database" IS NOT DISTINCT FROM l.d AND c."schema" IS NOT DISTINCT FROM l.u
        AND c."table" IS NOT DISTINCT FROM l.t AND batch <= l.applied
        WHERE op <> 'truncate' AND batch > {lanes[0][0].since} AND (l.cleared IS NULL OR order_key > l.cleared)"""
    return lake.sql(text)


def _cell(first: str, second: str, column: str) -> str:
    """The text of a key cell from the first image that has its column, even if it is NULL there."""
    a, b = duck.member(first, column), duck.member(second, column)
    return f"CASE WHEN {a} IS NOT NULL THEN {a} WHEN {duck.has_member(first, column)} THEN NULL ELSE {b} END"


def _typed(text: str, kind: str) -> str:
    form = _form(kind)
    return (
        f"CASE WHEN regexp_full_match({text}, '{form}') THEN TRY_CAST({text} AS {duck.type_of(kind)}) END"
        if form
        else text
    )


def _form(kind: str) -> str | None:
    """The form of the texts of a Delta type that DuckDB casts exactly; empty for any, None for none."""
    if found := _DECIMAL.fullmatch(kind):
        return rf"[+-]?[0-9]+([.][0-9]{{0,{found[1]}}}0*)?"
    return "" if kind == "STRING" else _FORMS.get(kind)


def _kinds(one: Side) -> list[str]:
    return [column.delta for column in one.columns]


def _hash(cells: Iterable[str], kinds: Iterable[str]) -> str:
    """The hash of a key. Of decimals it is that of their texts: DuckDB's own is the same for 0 and -1."""
    texts = (
        f"{one}::VARCHAR" if _DECIMAL.fullmatch(kind) else one for one, kind in zip(cells, kinds, strict=True)
    )
    return f"hash({', '.join(texts)})"


def _hash_of(cells: Sequence[str], kinds: Iterable[str]) -> str:
    return (
        f"CASE WHEN {' AND '.join(f'({cell}) IS NOT NULL' for cell in cells)} THEN {_hash(cells, kinds)} END"
    )


def _text(value: str | None) -> str:
    return "NULL::VARCHAR" if value is None else duck.text(value)


# --- the counts -------------------------------------------------------------------------------------

# Order keys are no prefixes of each other, so the order of these texts is that of (order key, half, deleted).
_STATES = """CREATE TEMP TABLE states AS
WITH halves AS (
    SELECT m, h, order_key || '1' || CAST(gone AS INTEGER) AS last, whole, place, message, content FROM events
    UNION ALL SELECT m, was, order_key || '01', whole, place, message, content FROM events WHERE was <> h),
places AS (SELECT m, h, max(last) AS last, bool_or(whole) AS whole, min(message) <> max(message) AS again,
    min(content) = max(content) AS same FROM halves GROUP BY m, h, place)
SELECT m, h, right(max(last), 1) = '0' AS alive, bool_or(whole) AS whole,
    count(*) FILTER (again AND NOT same) AS ties, count(*) FILTER (again AND same) AS repeats FROM places GROUP BY m, h"""
_COUNTS = """WITH keys AS (
    SELECT alive, whole, coalesce(ties, 0) AS ties, coalesce(repeats, 0) AS repeats, coalesce(n, 0) AS n
    FROM {states} AS s FULL JOIN (FROM present WHERE h IS NOT NULL) AS p USING (h)),
counts AS (SELECT count(*) FILTER (alive AND n = 0) AS lacking,
    count(*) FILTER (n > 0 AND (NOT alive OR (alive IS NULL AND {unknown}))) AS ghost_rows,
    coalesce(sum(n - 1) FILTER (n > 0), 0) AS key_unique,
    count(*) FILTER (alive AND n > 0 AND NOT whole) AS incomplete_rows,
    coalesce(sum(ties), 0) AS ambiguities, coalesce(sum(repeats), 0) AS duplicates FROM keys)
SELECT (SELECT coalesce(sum(n), 0) FROM present) AS rows,
    (SELECT coalesce(sum(n) FILTER (empty), 0) FROM present) AS key_not_null, counts.* FROM counts"""
