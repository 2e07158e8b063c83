"""Where the rows that were read from a source database wait to be landed: files of the source, with its stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ingest.config import Pipeline, Source
from ingest.formats import ingest_snapshot


def folder(pipeline: Pipeline, source: str) -> Path:
    """The folder of one source's snapshots, one folder in it for each."""
    return Path(pipeline.lake) / "snapshots" / source


def source_of(pipeline: Pipeline, source: Source) -> Source | None:
    """The files of a source's snapshots as a source of its name; None where there are none."""
    if "://" in pipeline.lake or not folder(pipeline, source.name).is_dir():
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
