"""Refuse a lake that this pipeline file would damage: one of another pipeline, or one restored in parts.

A lake's tables name their pipeline in each writer's identifier, and their progress in its number, so nothing has to be
stored outside of them.  Every refusal ends the run before anything is read or written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ingest.config import Pipeline
from ingest.errors import IngestError, command
from ingest.tables import removals
from ingest.tables.delta import Snapshot
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES, DDL, FORMAT, FORMAT_PROPERTY, REJECTS
from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class Seen:
    """The bronze table that a process has worked with, and its newest batch at that time."""

    table_id: str = ""
    batch: int = 0


def refuse_shared(pipelines: Iterable[Pipeline]) -> None:
    """Refuse two pipeline files with the same lake: they would number each other's batches.

    Raises:
        IngestError: two do.
    """
    by_lake: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        other = by_lake.setdefault(pipeline.lake.rstrip("/"), pipeline)
        if other is not pipeline:
            raise IngestError(
                f"{other.file} and {pipeline.file} name the same lake {pipeline.lake}: give each pipeline a lake of its own."
            )


def look(lake: Tables) -> Seen:
    """The bronze table as it is now.

    Raises:
        IngestError: the lake belongs to another pipeline, or was written by a newer version.
    """
    bronze = lake.snapshot(BRONZE.name)
    _refuse_newer(lake, bronze)
    _refuse_another_name(lake, bronze)
    return Seen(bronze.table_id, max(0, bronze.transactions.get(lake.writer("bronze", BRONZE.name), 0)))


def check(lake: Tables, before: Seen) -> None:
    """Compare the lake with its pipeline file and with its earlier state in this process.

    Raises:
        IngestError: the lake belongs to another pipeline, lacks a table that others were made from, or was
            replaced since ``before``.
        HeldError: others have taken rows out of its own tables.
    """
    now = look(lake)
    _refuse_parts(lake, now.batch)
    removals.refuse(lake)
    if before.table_id and (now.table_id != before.table_id or now.batch < before.batch):
        what = "is another one or an older copy" if now.table_id else "is gone"
        raise IngestError(
            f"The lake {lake.pipeline.lake} was replaced while this process was working on it: its bronze table "
            f"{what}. Nothing was written. Restore the lake, or stop this process and start it again to go on "
            "from what is there now."
        )


def _refuse_newer(lake: Tables, bronze: Snapshot) -> None:
    """Refuse a lake whose tables this version would misread."""
    properties = bronze.configuration
    number = properties.get(FORMAT_PROPERTY, "1")
    if not number.isdigit() or int(number) > FORMAT:
        raise IngestError(
            f"The lake {lake.pipeline.lake} was written by a newer version of ingest (format {number}; this version "
            f"knows formats up to {FORMAT}): use that version. Nothing was read or written."
        )


def _refuse_another_name(lake: Tables, bronze: Snapshot) -> None:
    names = {writer.rsplit("/", 3)[0] for writer in bronze.transactions if writer.count("/") >= 3}
    name = lake.pipeline.name
    if not names or names == {name}:
        return
    if name in names:
        raise IngestError(
            f"The lake {lake.pipeline.lake} holds batches of several pipelines ({', '.join(sorted(names))}), whose "
            "numbers collide: restore it from before the second one, or begin a new lake."
        )
    raise IngestError(
        f"The lake {lake.pipeline.lake} belongs to the pipeline {' and '.join(sorted(names))}, and "
        f"{lake.pipeline.file} calls itself {name}: write `pipeline: {min(names)}` there, or give it a lake of its own."
    )


def _refuse_parts(lake: Tables, landed: int) -> None:
    """Refuse a table that is ahead of its input: it would skip the next batches as done."""
    decoded = lake.progress("silver", CHANGES.name)
    pairs = [(CHANGES, decoded, BRONZE, landed)]
    pairs += [
        (schema, lake.progress("silver", schema.name), CHANGES, decoded) for schema in (DDL, REJECTS, BOOKS)
    ]
    for made, done, origin, present in pairs:
        if done > max(0, present):
            file = lake.pipeline.file
            typed = command("rebuild", file, "--layer", "silver") if origin is CHANGES else ""
            way = f", or `{typed}`" if typed else ""
            raise IngestError(
                f"The lake {lake.pipeline.lake} is incomplete: `{made.name}` has batch {done} and `{origin.name}`, "
                f"which it is made from, ends with batch {max(0, present)}: a part was deleted or restored from a "
                f"backup. Restore the whole lake folder as of one time{way}; until then nothing is read.",
                typed,
            )


def refuse_missing_sources(lake: Tables, landed: Collection[str]) -> None:
    """Refuse a pipeline file that no longer names a source whose messages the lake holds.

    Raises:
        IngestError: with the ways out: its old name, its entry with ``enabled: false``, another lake.
    """
    named = {source.name for source in lake.pipeline.sources}
    if missing := sorted(set(landed) - named):
        raise IngestError(
            f"The lake {lake.pipeline.lake} holds messages of the source {missing[0]}, which "
            f"{lake.pipeline.file} does not name. If it was renamed, write its old name back (under a new name all "
            "its messages would be read again); if it has ended, keep its entry with `enabled: false`, so that what "
            "it sent can still be decoded; if this is another pipeline, give it a lake of its own."
        )
