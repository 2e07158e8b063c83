"""The messages of bronze as they were sent, for DuckDB's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.ledgers import sealing
from ingest.store.envelope import COLUMNS
from ingest.tables import duck
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_PAGE = 10_000  # sealed messages that are opened together


class SentMessages:
    """A lake's messages, without those that nothing can open any more."""

    def __init__(self, lake: Tables) -> None:
        self.filled = lake.sql
        self._lake, self._opener = lake, sealing.opener(lake)

    def sent(
        self, base: DuckDBPyConnection, name: str, columns: str, wanted: str, span: tuple[int, int]
    ) -> str:
        """A query of messages, for `filled`; it may be asked once, because sealed ones are a stream.

        Args:
            base: where it is asked.
            name: for the stream in that database.
            columns: the columns of bronze that are needed.
            wanted: a condition on columns that are not sealed.
            span: the first and the last batch of these messages.
        """
        wanted += f" AND batch BETWEEN {span[0]} AND {span[1]}"
        if not any(self._opener.seals(batch) for batch in range(span[0], span[1] + 1)):
            return f"SELECT {columns} FROM {{bronze.message}} WHERE {wanted}"
        base.register(name, self._opened(wanted, span))
        return f"SELECT {columns} FROM {name}"

    def _opened(self, wanted: str, span: tuple[int, int]) -> pa.RecordBatchReader:
        import pyarrow as pa

        sealing.refuse_unreadable(self._lake, self._opener, span, new=True)
        names = ", ".join(map(duck.name, COLUMNS))
        query = self._lake.sql(f"SELECT {names} FROM {{bronze.message}} WHERE {wanted}")
        sealed = duck.connection().cursor().execute(query).to_arrow_reader(_PAGE)
        return pa.RecordBatchReader.from_batches(sealed.schema, map(self._opener.opened, sealed))
