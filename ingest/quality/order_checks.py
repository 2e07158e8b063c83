"""Checks of order: cases where the place of a change or a table event depends on something that no message shows.

Each costs a query only if the books or the DDL ledger show that it may find something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ingest.change import LaneId, TableId
from ingest.quality.catalogue import Metric
from ingest.quality.key_spellings import key_spellings
from ingest.quality.not_loaded import rows_not_loaded
from ingest.quality.ordered_lane import OrderedLane, ordered_lanes
from ingest.quality.repetitions import repeated
from ingest.quality.restarted_positions import restarted, turned_files
from ingest.quality.shared_positions import turned_rows
from ingest.quality.statement_order import unsure_statements
from ingest.quality.subjects import CheckedMirror
from ingest.quality.unmarked_loads import rows_not_loaded_again
from ingest.quality.unplaced import unplaced_changes
from ingest.quality.ways_out import decoded_again
from ingest.tables.json_cells import list_in
from ingest.tables.lake import Lake
from ingest.tables.snapshots import read_sql


def of_mirrors(
    lake: Lake,
    chosen: Iterable[CheckedMirror],
    since: int,
    statements: Sequence[Mapping[str, Any]],
) -> Iterator[Metric]:
    """Count the doubtful places in the order of each mirror's changes.

    ``since`` is the last batch checked before; ``statements`` are the rows of the DDL ledger that may mean something.
    """
    by_table = _by_table(statements)
    turned = cache(partial(turned_files, lake, since))
    for lane in ordered_lanes(lake, chosen, since):
        if lane.source.options.order_by != "event_time":
            of_table = by_table.get((lane.source.name, lane.lane.table), [])
            ordered = replace(lane, statements=of_table, turned=turned)
            for check in _CHECKS:
                yield from check(ordered)


def _by_table(statements: Sequence[Mapping[str, Any]]) -> dict[LaneId, list[Mapping[str, Any]]]:
    """The statements of each source and table; unreadable ones count for their message's table."""
    by_table: dict[LaneId, list[Mapping[str, Any]]] = {}
    for row in statements:
        named = {TableId(*load["table"]) for load in list_in(row["effects"])}
        for table in named or {TableId.of(row)}:
            by_table.setdefault((row["source"], table), []).append(row)
    return by_table


def mixed_topics(ordered: OrderedLane) -> Iterator[Metric]:
    """Several topics that feed a table whose name has neither database nor schema."""
    table = ordered.lane.table
    bare = table.database is None and table.schema is None
    if ordered.source.kind != "kafka" or not bare or ordered.lane.places < 2:
        return
    query = f"SELECT count(DISTINCT topic) AS n FROM {{books}} WHERE changes > 0 AND {ordered.where} AND NOT {read_sql()}"
    if (topics := int(ordered.lake.ask(query)[0]["n"])) > 1:
        detail = (
            f"{topics} topics send rows of {table}, a name without a database, so tables of two databases may "
            f"be one mirror: give each topic its table under `options: {{table: ...}}`, then {decoded_again(ordered.lake)}"
        )
        yield ordered.metric("mixed_topics", topics, detail)


_CHECKS = (
    unsure_statements,
    unplaced_changes,
    rows_not_loaded,
    rows_not_loaded_again,
    key_spellings,
    restarted,
    repeated,
    mixed_topics,
    turned_rows,
)
