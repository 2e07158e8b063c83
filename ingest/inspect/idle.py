"""Decide from the lake and the folders whether a run has anything to do, before Spark is started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from ingest.bronze import files, moved
from ingest.bronze.positions import read_so_far
from ingest.config import Pipeline, Source
from ingest.errors import StoreError
from ingest.gold.plan import completed
from ingest.inspect.finished import is_finished
from ingest.ledgers import missing_inputs, targets, whole_files
from ingest.result import Result
from ingest.store import stores
from ingest.tables import identity, snapshots
from ingest.tables.identity import Seen
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import LakeReader


def idle(
    pipeline: Pipeline,
    stages: Collection[str],
    busy: Callable[[], None] = lambda: None,
    kept: dict[str, tuple[object, object]] | None = None,
) -> Result | None:
    """The result of a run with nothing to do; None if there is work, an alarm, or if only Spark can decide.

    ``busy`` is called if messages certainly wait to be read or decoded; ``kept`` is what earlier looks have read, as
    `Tables.kept`.

    An `IngestError` if the lake is another pipeline's, or was restored in parts.
    """
    sources = [source for source in pipeline.sources if source.enabled]
    if not stores.is_readable(pipeline.lake) or not all(_is_of_files(pipeline, source) for source in sources):
        return None
    lake = LakeReader(pipeline, {} if kept is None else kept)
    try:
        is_new = not lake.exists(BRONZE.name)
    except StoreError:  # Spark may have settings for the store that the environment lacks
        return None
    if is_new:
        if "bronze" in stages and any(files.plan(source, 0, {}, 1).ranges for source in sources):
            busy()
        return None
    return _of_known(lake, sources, stages, busy)


def _of_known(
    lake: LakeReader, sources: Iterable[Source], stages: Collection[str], busy: Callable[[], None]
) -> Result | None:
    """The same for a lake in which something has landed."""
    pipeline = lake.pipeline
    identity.check(lake, Seen())
    last = lake.progress("bronze", BRONZE.name)
    if not is_finished(lake, last, stages):
        if "silver" in stages and lake.decoded() < last:
            busy()
        return None
    result = Result(pipeline.name, "", str(pipeline.file), stages=dict.fromkeys(stages, 0.0))
    if "bronze" in stages and _has_messages(lake, sources, result, busy):
        return None
    lost = completed.lost(lake) if "gold" in stages else []
    if not _is_as_recorded(lake, lost) or ("gold" in stages and whole_files.is_due(lake)):
        return None
    for mirror in lost:
        result.fail(mirror.said, mirror.name)
    result.warnings += targets.settings_said(lake)
    return result


def _is_as_recorded(lake: LakeReader, lost: Collection[completed.LostMirror]) -> bool:
    """True if what is wrong is what the last run has recorded.

    A run that finds another thing wrong than the one before it records that, and one that finds nothing ends the alarms;
    alerts are repeated by runs that start.
    """
    is_same = completed.alarms(lake) == {mirror.said for mirror in lost}
    return is_same and not (lost and lake.pipeline.alerts)


def _is_of_files(pipeline: Pipeline, source: Source) -> bool:
    """True for a source whose news are seen without Spark: a folder, and no snapshot of a database is on its way."""
    return source.kind == "files" and snapshots.source_of(pipeline, source) is None


def _has_messages(
    lake: LakeReader, sources: Iterable[Source], result: Result, busy: Callable[[], None]
) -> bool:
    """True if files wait to be read, were moved, or something is wrong that is not recorded; what is only odd becomes a warning."""
    read_files = read_so_far(lake).files
    identity.refuse_missing_sources(lake, read_files)
    for source in sources:
        recorded = partial(moved.known_moves, lake, source.name)
        planned = files.plan(source, 0, read_files.get(source.name, {}), 1, recorded)
        if planned.ranges:
            busy()
        lacks = {} if planned.missing is None else {source.name: planned.missing}
        if planned.ranges or planned.alarms or planned.moves or missing_inputs.unknown(lake, lacks):
            return True
        result.warnings += [f"source {source.name}: {text}" for text in planned.warnings]
    return False
