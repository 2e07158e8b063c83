"""The ways out of a complaint that several checks name, each with the command to type."""

from __future__ import annotations

from ingest.config import Pipeline
from ingest.errors import command
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.tables.tables import Tables


def loaded_again(pipeline: Pipeline, lane: CheckedLane) -> str:
    """How rows come again, with the command to type if the source has a database."""
    source = pipeline.by_source.get(lane.source)
    if source is None or source.database is None:
        return "load these rows again at the source"
    return f"`{command('snapshot', pipeline.file, lane.table)}` reads them from the source"


def decoded_again(lake: Tables) -> str:
    """The command that decodes what has landed again, of all batches, as changed options need it."""
    return f"`{command('backfill', lake.pipeline.file, '--from-batch', 1)}`"


def accepted(lake: Tables, subject: CheckedMirror) -> str:
    """The command that says that a mirror is right as it is, so that faults which stay end."""
    return f"`{command('quality', lake.pipeline.file, '--accept', subject.name)}`"
