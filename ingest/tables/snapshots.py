"""Snapshot files: rows read from a source database that wait to be landed with the source's stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ingest.config import Pipeline, Source
from ingest.formats import ingest_snapshot


def read_sql() -> str:
    """SQL: true for a change that a snapshot has read, by the file that it lay in."""
    return f"ends_with(topic, '{ingest_snapshot.SUFFIX}')"


CARRIED_FOLDER = "carried/"
"""Where rows of renamed tables lie that were carried over, as their messages say it."""
CARRIED_SQL = f"(starts_with(topic, '{CARRIED_FOLDER}') AND {read_sql()})"
"""True for a change that has been carried over from a table's former name."""


def folder(pipeline: Pipeline, source: str) -> Path:
    """The folder of one source's snapshots, with one subfolder for each."""
    return Path(pipeline.lake) / "snapshots" / source


def source_of(pipeline: Pipeline, source: Source) -> Source | None:
    """The files of a source's snapshots as a source of the same name; None if there are none."""
    if pipeline.is_stored or not folder(pipeline, source.name).is_dir():
        return None
    return replace(
        source,
        kind="files",
        format=ingest_snapshot.MARK,
        path=str(folder(pipeline, source.name) / "*" / f"*{ingest_snapshot.SUFFIX}"),
        framing="lines",
        settle=0.0,
        order_files_by="name",
        storage={},
        max_messages=None,
        max_bytes=None,
    )
