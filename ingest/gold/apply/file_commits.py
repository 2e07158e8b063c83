"""Put a mirror's new files into its table: one commit under the batch's identifier, after what does not fit is kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ingest.errors import IngestError, StoreError
from ingest.gold.apply import merge_entry, mirror_table
from ingest.gold.apply.planner import FoldPlan
from ingest.gold.fold import outgrown, retyped, unfit
from ingest.gold.fold.arrow_files import Written
from ingest.gold.fold.arrow_work import MirrorWork
from ingest.gold.fold.change_files import ChangeFiles
from ingest.gold.fold.unfit import COUNTED
from ingest.gold.plan.results import MirrorCommit
from ingest.store import faults
from ingest.tables import commits, delta
from ingest.tables.commits import NewRows
from ingest.tables.datafiles import Added
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables


def stopped(
    files: ChangeFiles, fold: FoldPlan, work: MirrorWork, made: Sequence[Written], counts: Counter[str]
) -> MirrorCommit | None:
    """Why a mirror's outcomes are not applied; None if they are: then what does not fit is in `rejects` already.

    ``counts`` gets what its tasks have counted.
    """
    for part in made:
        if not part.is_made:
            return MirrorCommit(part.held, failed=part.refused)
        counts.update(part.counts)
    mirror, announced = fold.plan.mirror, retyped.rejected_defaults(fold.retyped)
    rejects = [
        each
        for part in made
        for each in part.rejects
        if each.place or (each.column, each.raw) not in announced
    ]
    try:
        narrow = outgrown.narrow(mirror, fold.plan.job.rule, rejects)
        changes = files.of(work.lanes) if narrow else []
        if narrow and (wider := outgrown.widened(mirror, narrow, changes, work.lanes)):
            return MirrorCommit(wider=wider)
        if rejected := unfit.keep(files.lake, mirror, rejects, fold.books.last):
            counts[COUNTED] = rejected
    except StoreError as error:
        return MirrorCommit(failed=str(error))
    return None


def committed(
    lake: Lake, fold: FoldPlan, work: MirrorWork, made: Sequence[Written], counts: Counter[str], engine: str
) -> MirrorCommit:
    """Add a mirror's new files to its log, under the batch's identifier, unless another writer was first."""
    before, now = fold.before, int(time.time() * 1000)
    files = [Added(part.file, part.size, {}, part.stats, now) for part in made if part.file]
    replaces, added = any(part.replaces for part in made), sum(part.size for part in made)
    vectors = {name: vector for part in made for name, vector in part.vectors.items()}
    rows = NewRows(files, replaces, work.described, marked=work.marked, vectors=vectors)
    if not before.exists:
        rows = rows._replace(**_described(lake, fold))
    effort = merge_entry.total(part.effort for part in made)
    said = merge_entry.entry(work, before, rows, counts, effort)
    rows = rows._replace(**said._asdict(), engine=engine)
    last, metadata = fold.books.last, lake.metadata(fold.books.last, landed=True)
    try:
        if unknown := retyped.keep(lake, fold.plan.mirror, fold.retyped, last):
            counts[COUNTED] += unknown
        if not commits.write(work.folder, before, rows, metadata, fold.writer, last):
            return MirrorCommit(overtaken=True)
    except (OSError, IngestError) as error:  # a full disk, for example: the others go on
        return MirrorCommit(
            failed=faults.of_mirror(error, lake, fold.plan.mirror.name, fold.plan.mirror.path)
        )
    size = added if replaces and not fold.marks else work.size + added
    return MirrorCommit(version=before.version + 1, size=size, counts=dict(counts))


def _described(lake: Tables, fold: FoldPlan) -> dict[str, Any]:
    """A new mirror's metadata and protocol, as Spark would create the table.

    delta-rs would require features that the table does not use.
    """
    rule = fold.plan.job.rule
    meta = {
        "description": mirror_table.description(fold.plan.mirror),
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": mirror_table.properties(lake.pipeline, rule),
    }
    if mirror_table.is_plain(lake.pipeline, rule):
        return {"meta": meta, "protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    vectors = [delta.VECTORS_FEATURE]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": vectors,
        "writerFeatures": [*vectors, *commits.IMPLIED],
    }
    return {"meta": meta, "protocol": protocol}
