"""As of batch N: each mirror at the newest version that holds nothing later.

A mirror's versions are told by `runs`; where a run was killed before it could write its row, by the
mirror's own log.  It is one point of ingestion for all mirrors, as far as Delta's history goes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.lake import mirrors as decided
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import mirror_path
from ingest.lake.schemas import BOOKS, RUNS


@dataclass(frozen=True, slots=True)
class Pinned:
    """A mirror at a batch. ``version`` is None if it was not there yet."""

    mirror: Mirror
    batch: int | None  # the last one it holds
    version: int | None
    wanted: int  # the last one, up to the batch asked for, that brought anything for it

    @property
    def behind(self) -> bool:
        """True if it lacks a batch that it should hold."""
        return self.batch is None or self.batch < self.wanted


def mirrors(lake: Lake, as_of: int) -> dict[TableId, Pinned]:
    """Every mirror at its newest version with a batch of at most ``as_of``."""
    wanted = _wanted(lake, as_of)
    recorded = _recorded(lake, as_of)
    found = {}
    for mirror in decided.known(lake).values():
        batch, version = recorded.get(mirror.name, (None, None))
        pinned = Pinned(mirror, batch, version, wanted.get(mirror.path, 0))
        found[mirror.table] = _from_log(lake, pinned, as_of) if pinned.behind else pinned
    return found


def beside(
    lake: Lake, as_of: int, pinned: Iterable[Pinned], tables: Mapping[str, Mirror]
) -> dict[TableId, Pinned]:
    """The same for tables beside mirrors, by the mirrors' paths; of their versions only their own logs tell."""
    wanted = {one.mirror.path: one.wanted for one in pinned}
    unread = (Pinned(table, None, None, wanted[path]) for path, table in tables.items())
    return {one.mirror.table: _from_log(lake, one, as_of) for one in unread}


def complaints(pinned: Mapping[TableId, Pinned], as_of: int) -> list[str]:
    """One sentence for each mirror that does not hold all of the batch."""
    texts = []
    for one in pinned.values():
        if one.version is None:
            texts.append(f"{one.mirror.name} was not there yet at batch {as_of}.")
        elif one.behind:
            texts.append(
                f"{one.mirror.name} is behind: it holds batch {one.batch}, and batch {one.wanted} is missing."
            )
    return sorted(texts)


def _wanted(lake: Lake, as_of: int) -> dict[str, int]:
    """The last batch up to ``as_of`` with a book line of each mirror."""
    if not lake.exists(BOOKS.name):
        return {}
    rows = (
        lake.read(BOOKS.name)
        .where(F.col("table").isNotNull() & (F.col("batch") <= as_of) & (F.col("changes") > 0))
        .groupBy("database", "schema", "table")
        .agg(F.max("batch").alias("batch"))
        .collect()
    )
    found: dict[str, int] = {}
    for database, schema, table, batch in rows:
        source = TableId(database, schema, table)
        path = mirror_path(decided.target(lake.pipeline.rule(source), source))
        found[path] = max(batch, found.get(path, 0))
    return found


def _recorded(lake: Lake, as_of: int) -> dict[str, tuple[int, int]]:
    if not lake.exists(RUNS.name):
        return {}
    newest = F.max(F.struct("batch", "version")).alias("newest")
    rows = (
        lake.read(RUNS.name)
        .where((F.col("stage") == "gold") & F.col("subject").isNotNull() & (F.col("state") == "done"))
        .where((F.col("batch") <= as_of) & (F.col("version") >= 0))
        .groupBy("subject")
        .agg(newest)
        .collect()
    )
    return {row["subject"]: (row["newest"]["batch"], row["newest"]["version"]) for row in rows}


def _from_log(lake: Lake, pinned: Pinned, as_of: int) -> Pinned:
    path = lake.path(pinned.mirror.path)
    if not lake.snapshot(pinned.mirror.path).exists:
        return pinned
    commits = DeltaTable.forPath(lake.spark, path).history().select("version", "userMetadata").collect()
    held = [(batch, row["version"]) for row in commits if (batch := _batch(row["userMetadata"])) is not None]
    fitting = [one for one in held if one[0] <= as_of]
    if not fitting or (pinned.batch or 0) >= max(fitting)[0]:
        return pinned
    batch, version = max(fitting)
    return replace(pinned, batch=batch, version=version)


def _batch(metadata: str | None) -> int | None:
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return None
    return found.get("batch") if isinstance(found, dict) else None
