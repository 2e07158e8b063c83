"""As of batch N: each mirror at the newest version that contains no later batch.

The versions come from `runs`, or from the mirror's own log if a run was killed before it wrote its row. This is one
point of ingestion for all mirrors, within Delta's history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ingest.change import TableId
from ingest.ledgers import mirrors as decided
from ingest.ledgers.mirrors import Mirror
from ingest.store.names import mirror_path
from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class Pinned:
    """A mirror at a batch. ``version`` is None if it did not exist yet."""

    mirror: Mirror
    batch: int | None  # the last one that it holds
    version: int | None
    wanted: int  # the last one with changes for it, up to the requested batch

    @property
    def lagging(self) -> bool:
        """True if it lags: it lacks a batch that it should hold."""
        return self.batch is None or self.batch < self.wanted


def mirrors(lake: Tables, as_of: int) -> dict[TableId, Pinned]:
    """Every mirror at its newest version with a batch of at most ``as_of``."""
    wanted = _wanted(lake, as_of)
    rows = lake.ask(
        f"""SELECT subject, batch, version FROM {{runs}} WHERE stage = 'gold' AND subject IS NOT NULL
        AND state = 'done' AND batch <= {as_of} AND version >= 0
        QUALIFY row_number() OVER (PARTITION BY subject ORDER BY batch DESC, version DESC) = 1"""
    )
    recorded = {row["subject"]: (row["batch"], row["version"]) for row in rows}
    pins = {}
    for mirror in decided.known(lake).values():
        batch, version = recorded.get(mirror.name, (None, None))
        pinned = Pinned(mirror, batch, version, wanted.get(mirror.path, 0))
        pins[mirror.table] = _from_log(lake, pinned, as_of) if pinned.lagging else pinned
    return pins


def accompanying(
    lake: Tables, as_of: int, pinned: Iterable[Pinned], tables: Mapping[str, Mirror]
) -> dict[TableId, Pinned]:
    """The same for tables that accompany mirrors, by the mirrors' paths; their versions come only from their own logs."""
    wanted = {pin.mirror.path: pin.wanted for pin in pinned}
    unread = (Pinned(table, None, None, wanted[path]) for path, table in tables.items())
    return {mirror_pin.mirror.table: _from_log(lake, mirror_pin, as_of) for mirror_pin in unread}


def complaints(pinned: Mapping[TableId, Pinned], as_of: int) -> list[str]:
    """One sentence for each mirror that does not hold all of the batch."""
    texts = []
    for pin in pinned.values():
        if pin.version is None:
            texts.append(f"{pin.mirror.name} was not there yet at batch {as_of}.")
        elif pin.lagging:
            texts.append(
                f"{pin.mirror.name} is behind: it holds batch {pin.batch}, and batch {pin.wanted} is missing."
            )
    return sorted(texts)


def _wanted(lake: Tables, as_of: int) -> dict[str, int]:
    """For each mirror, the last batch up to ``as_of`` with a book line."""
    rows = lake.ask(
        f"""SELECT "database", "schema", "table", max(batch) AS batch FROM {{books}}
        WHERE "table" IS NOT NULL AND batch <= {as_of} AND changes > 0 GROUP BY "database", "schema", "table"
        """
    )
    last_batches: dict[str, int] = {}
    for row in rows:
        source = TableId.of(row)
        for path in map(mirror_path, decided.names(lake.pipeline, source)):
            last_batches[path] = max(row["batch"], last_batches.get(path, 0))
    return last_batches


def _from_log(lake: Tables, pinned: Pinned, as_of: int) -> Pinned:
    held = [
        (batch, version)
        for version, metadata in lake.commits(pinned.mirror.path)
        if isinstance(batch := metadata.get("batch"), int) and batch <= as_of
    ]
    if not held or (pinned.batch or 0) >= max(held)[0]:
        return pinned
    batch, version = max(held)
    return replace(pinned, batch=batch, version=version)
