"""Write rows of the product's own tables without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.errors import IngestError
from ingest.tables import commits
from ingest.tables.datafiles import Layout, arrow_schema, table_of, written
from ingest.tables.schemas import TableSchema
from ingest.tables.tables import Tables


def append(
    lake: Tables, run: str, rows: Sequence[Sequence[object]], schema: TableSchema, marks: Mapping[str, Any]
) -> None:
    """Append rows to a history table (`checks`), for verbs that need no Spark for anything else; see `add`.

    Raises:
        IngestError: the table can only be written with Spark.
    """
    state = lake.snapshot(schema.name)
    if commits.why_no_commits(lake.pipeline.lake) or (state.exists and not state.is_plain):
        path = lake.path(schema.name)
        raise IngestError(f"{path} can only be written with Spark, so the result was not kept.")
    if not state.exists:
        create(lake, schema, json.dumps({"run": run}))
    add(lake, run, rows, schema, marks)


def add(
    lake: Tables, run: str, rows: Sequence[Sequence[object]], schema: TableSchema, marks: Mapping[str, Any]
) -> None:
    """Add rows to an existing table, in the order of the schema's columns, in a commit without an identifier.

    ``marks`` are what `Tables.last_marks` returns later, without reading the table.
    """
    layout = layout_of(lake, schema)
    files = written(layout, table_of(rows, schema.arrow.names, layout.columns))
    commits.append(layout.folder, files, json.dumps({"run": run, **marks}))


def create(lake: Tables, schema: TableSchema, metadata: str) -> None:
    """Create a table without rows."""
    fields = json.dumps({"type": "struct", "fields": schema.fields})
    commits.create(lake.path(schema.name), fields, schema.partition_by, lake.properties(schema), metadata)


def layout_of(lake: Tables, schema: TableSchema) -> Layout:
    """How the data files of an existing table are written."""
    return Layout(
        lake.path(schema.name),
        arrow_schema(lake.snapshot(schema.name).types),
        schema.partition_by,
        tuple((schema.statistics or "batch").split(",")),
        tuple(schema.repeated.split(",")) if schema.repeated else (),
    )
