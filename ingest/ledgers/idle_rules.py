"""Entries of the pipeline file that fit no table, while one that no entry fits differs by its schema or its letter case alone."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.config import matches
from ingest.config.patterns import meant
from ingest.errors import command
from ingest.ledgers import lanes
from ingest.tables.tables import Tables


def listed(lake: Tables) -> Iterator[str]:
    """What is wrong and what to write, in a sentence for each such entry.

    An entry for a table that has not come yet looks as one with any other typing error: only `ingest plan` says that.
    """
    rules = lake.pipeline.tables
    if not rules:
        return
    tables = {table for _, table in lanes.booked(lake)}
    idle = [rule for rule in rules if not any(matches(rule.match, table) for table in tables)]
    if not idle:
        return
    unruled = [table for table in tables if not any(matches(rule.match, table) for rule in rules)]
    unruled.sort(key=str)
    for rule in idle:
        near = next(((table, fit) for table in unruled if (fit := meant(rule.match, table))), None)
        if near is None:
            continue
        table, fit = near
        yield (
            f"no table fits match: {rule.match}, and {table} has no entry: if it is meant, write `match: '{fit}'`, then "
            f"`{command('plan', lake.pipeline.file)}` says what follows"
        )
