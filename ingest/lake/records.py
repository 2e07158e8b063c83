"""Write rows of a history table (`checks`) without Spark, for verbs that need it for nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.errors import IngestError
from ingest.lake import commits
from ingest.lake.datafiles import Layout, arrow_schema, table_of, written
from ingest.lake.schemas import TableSchema
from ingest.lake.tables import Tables


def append(
    lake: Tables, run: str, rows: Sequence[Sequence[object]], schema: TableSchema, marks: Mapping[str, Any]
) -> None:
    """Append rows in the order of the schema's columns; ``marks`` are what `Tables.last_marks` returns later.

    Raises:
        IngestError: the table can only be written with Spark.
    """
    path, metadata = lake.path(schema.name), json.dumps({"run": run, **marks})
    state = lake.snapshot(schema.name)
    if commits.why_no_commits(lake.pipeline.lake) or (state.exists and not state.is_plain):
        raise IngestError(f"{path} can only be written with Spark, so the result was not kept.")
    if not state.exists:
        fields = json.dumps({"type": "struct", "fields": schema.fields})
        commits.create(path, fields, schema.partition_by, lake.properties(schema), metadata)
        state = lake.snapshot(schema.name)
    columns = arrow_schema(state.types)
    layout = Layout(path, columns, schema.partition_by, tuple((schema.statistics or "batch").split(",")))
    commits.append(path, written(layout, table_of(rows, schema.arrow.names, columns)), metadata)
