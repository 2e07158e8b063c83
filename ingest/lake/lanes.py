"""The source tables that have sent rows, by their names in the books."""

from __future__ import annotations

from ingest.change import TableId
from ingest.lake.tables import Tables


def with_rows(lake: Tables) -> set[tuple[str, TableId]]:
    """Each source's tables with rows; a truncate may spell its table in another letter case."""
    rows = lake.ask(
        'SELECT DISTINCT source, "database", "schema", "table" FROM {books} WHERE "table" IS NOT NULL AND changes > truncates'
    )
    return {(row["source"], TableId(row["database"], row["schema"], row["table"])) for row in rows}
