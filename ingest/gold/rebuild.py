"""Rebuild mirrors from silver: fold them in a staging table, compare with the existing mirror, publish in one commit.

The staging table (the shadow) is filled by the same fold and MERGE as in every run. The published table carries the
next generation in its identifier, which invalidates the old progress: also after a RESTORE, whose log contains batches
that its rows have lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from ingest.config import TableRule, target
from ingest.errors import IngestError, command
from ingest.gold.apply import mirror_table
from ingest.gold.plan import completed
from ingest.gold.plan.batch import Backlog
from ingest.gold.plan.completed import STAGE
from ingest.gold.plan.results import Folded
from ingest.gold.plan.work import Books, open_books
from ingest.gold.stage import apply
from ingest.ledgers import decisions, histories, mirrors, rejects, targets
from ingest.ledgers.decisions import REBUILT, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.store import faults
from ingest.store.names import MIRRORS, mirror_path
from ingest.tables import duck, removals
from ingest.tables.commits import Staged
from ingest.tables.compare import Difference, TableState, as_sets, by_key
from ingest.tables.datafiles import table_of
from ingest.tables.lake import Lake, Tell
from ingest.tables.schemas import REJECTS, RUNS
from ingest.tables.staging import shadow_of
from ingest.tables.tables import Row, Tables

_TABLE = ("kind", "database", "schema", "table", "key", "raw")
_NAMED = {"cell": (*_TABLE, "column"), "change": (*_TABLE, "topic", "partition", "offset")}
"""The columns that identify a reject, by its kind."""


@dataclass(slots=True)
class Rebuilt:
    """The outcome of one mirror's rebuild, and whether it was published."""

    mirror: str
    state: str  # rebuilt | compared | held | failed
    batch: int
    version: int | None = None
    seconds: float = 0.0
    message: str = ""
    difference: Difference | None = None


def rebuild(
    lake: Lake, names: Sequence[str], *, dry_run: bool, tell: Tell = lambda _mirror, _step: None
) -> list[Rebuilt]:
    """Fold mirrors again and publish them, each on its own.

    Args:
        lake: the lake, whose lock the caller holds.
        names: the mirrors; none means all.
        dry_run: compare, publish nothing.
        tell: called with the mirror and the step that it begins.

    Raises:
        IngestError: there is no such mirror, or silver has nothing to fold, or lacks rows that others have taken.
    """
    removals.refuse(lake)
    mirrors_by_path = mirrors.known(lake)
    last = lake.decoded()
    if not last:
        raise IngestError(
            "Nothing has been decoded yet, so that there is nothing to fold: "
            f"`{command('run', lake.pipeline.file)}` first."
        )
    books = open_books(lake, 0, last)
    if not names:  # they get no more rows
        left = mirrors.unfed(lake)
        mirrors_by_path = {path: mirror for path, mirror in mirrors_by_path.items() if path not in left}
    wanted = chosen(mirrors_by_path, names)
    return [_apart(targets.of(lake, mirror), books, mirror, dry_run, tell) for mirror in wanted]


def _apart(lake: Lake, books: Books, mirror: Mirror, dry_run: bool, tell: Tell) -> Rebuilt:
    """Rebuild one mirror; a damaged file does not stop the others."""
    try:
        return _one(lake, books, mirror, dry_run, tell)
    except Exception as error:
        if faults.fault(error) is None:
            raise
        message = faults.of_mirror(error, lake, mirror.name, mirror.path, in_rebuild=True)
        return Rebuilt(mirror.name, "failed", books.last, message=message)


def chosen(mirrors_by_path: dict[str, Mirror], names: Sequence[str]) -> list[Mirror]:
    """The mirrors of these names; all mirrors if no name is given.

    Raises:
        IngestError: a name is not that of a mirror.
    """
    by_name = {mirror.name: mirror for mirror in mirrors_by_path.values()}
    for name in names:
        if name not in by_name:
            raise mirrors.unknown(name, by_name)
    return [by_name[name] for name in sorted(names or by_name)]


def _one(lake: Lake, books: Books, mirror: Mirror, dry_run: bool, tell: Tell) -> Rebuilt:
    started = time.monotonic()
    state = lake.snapshot(mirror.path)
    applied = mirrors.reached(lake, mirror)  # later batches than its last one may have changes of it by now
    applied = books.last if applied < 0 else applied
    result = Rebuilt(mirror.name, "failed", applied)
    with shadow_of(lake, MIRRORS, histories.FOLDER, REJECTS.name) as shadow:
        folded, fresh = _folded(lake, shadow, books, applied, mirror, tell)
        if folded.state != "done":
            result.state, result.message = folded.state, folded.message
            return result
        tell(mirror.name, "compare")
        try:
            result.difference = _difference(lake, shadow, fresh, exists=state.exists)
        except Exception as error:  # what cannot be read is what has to be replaced
            if not faults.damaged(error):
                raise
            result.difference = _difference(lake, shadow, fresh, exists=False)
            result.message = f"{faults.said(error)}: all rows are counted as missing"
        if dry_run:
            result.state, result.version = "compared", state.version
        else:
            tell(mirror.name, "publish")
            _publish(lake, shadow, _next(lake, fresh), applied, books.last, folded.verdicts)
            result.state, result.version = "rebuilt", lake.snapshot(mirror.path).version
    result.seconds = time.monotonic() - started
    if not dry_run:
        row = (
            lake.run, lake.pipeline.name, result.batch, STAGE, result.mirror, "done", lake.now(), result.seconds,
            result.version, "{}", "rebuilt", *[None] * 6,
        )  # fmt: skip
        # how far gold is stays known: without it each later run would take itself for one with work
        lake.append_unguarded([row], RUNS, completed.progress(lake).marks)
    return result


def within_run(lake: Lake, mirror: Mirror, last: int, tell: Tell) -> tuple[Folded, Mirror]:
    """Fold a mirror whose key or rules have changed, from its first change up to a batch, and publish it.

    After a kill between the commit and the decision, the next run still finds the old key decided and repeats the fold.

    Returns:
        what happened, and the mirror as now decided; unchanged if it could not be folded.
    """
    with shadow_of(lake, MIRRORS, histories.FOLDER, REJECTS.name) as shadow:
        folded, fresh = _folded(lake, shadow, open_books(lake, 0, last), last, mirror, tell)
        if folded.state != "done":
            return folded, mirror
        tell(mirror.name, "publish")
        fresh = _next(lake, fresh)
        reason = "folded again by another key or other rules"
        _publish(lake, shadow, fresh, last, last, folded.verdicts, reason)
    state_now = lake.snapshot(mirror.path)
    return replace(folded, version=state_now.version, size=state_now.known_size), fresh


def _folded(
    lake: Lake, shadow: Lake, books: Books, last: int, mirror: Mirror, tell: Tell
) -> tuple[Folded, Mirror]:
    """Fold one mirror into the staging table up to a batch: what happened, and the mirror as decided by that."""
    decided = {mirror.path: mirror}
    backlog = Backlog(paused=_paths(lake, books) - {mirror.path}, settled=last)
    upto = replace(books, last=last, lines=[line for line in books.lines if line.batch <= last])
    nothing = Folded(mirror.name, mirror.path, "failed", message="silver holds no change of it")
    folded = apply(shadow, upto, decided, tell, backlog=backlog)
    result = next((result for result in folded if result.path == mirror.path), nothing)
    if result.state != "done":
        state = "held" if result.state == "held" else "failed"
        result = replace(result, state=state, message=result.message or "it was skipped")
    return result, decided[mirror.path]


def _paths(lake: Tables, books: Books) -> frozenset[str]:
    """The mirrors in the books. All lines are kept: a statement may concern other tables than its own."""
    tables = {line.table_id for line in books.lines if line.table is not None}
    return frozenset(mirror_path(target(lake.pipeline.rule(table), table)) for table in tables)


def _rule(lake: Tables, mirror: Mirror) -> TableRule:
    """The rule of a mirror, whatever its source tables are called."""
    return next(iter(mirrors.rules(lake).get(mirror.path, ())), lake.pipeline.rule(mirror.table))


def _difference(lake: Lake, shadow: Lake, mirror: Mirror, *, exists: bool) -> Difference:
    if not exists:
        rows = shadow.count(mirror.path)
        return Difference(rows, missing=rows)
    present, rebuilt = TableState.of(lake, mirror.path), TableState.of(shadow, mirror.path)
    keys = [key_column.column for key_column in mirror.key_columns]
    if keys and not _rule(lake, mirror).history:
        return by_key(present, rebuilt, keys)
    have = {*lake.snapshot(mirror.path).columns}
    return as_sets(present, rebuilt, [name for name in shadow.snapshot(mirror.path).columns if name in have])


def _next(lake: Tables, mirror: Mirror) -> Mirror:
    """The next generation, also after a rebuild that was killed with one of the two tables published."""
    paths = (mirror.path, histories.path_of(mirror))
    generations = (lake.generation(lake.snapshot(path), STAGE, path) for path in paths)
    return replace(mirror, generation=max(mirror.generation, *generations) + 1)


def _publish(
    lake: Lake,
    shadow: Lake,
    mirror: Mirror,
    batch: int,
    decided_at: int,
    verdicts: Sequence[Decision],
    reason: str = "rebuilt",
) -> None:
    """Publish the history table and the mirror, in one commit each, then the decision that names their generation.

    What does not fit is written to rejects first, as in every fold.

    After a kill between the two, the old generation continues; its progress is the same batch.
    """
    _add_misfits(lake, shadow, mirror, batch)
    states = histories.table_of(mirror)
    for table in (states, mirror):
        if table is states and not shadow.exists(states.path):
            continue
        writer = lake.writer(STAGE, table.path, mirror.generation)
        lake.publish(_rows(lake, shadow, table), table.path, writer, batch, new_schema=True, landed=True)
    now = mirrors.decision(mirror, decided_at, reason)
    decisions.append(lake, [now, Decision(REBUILT, mirror.path, batch=batch), *verdicts])


def _rows(lake: Lake, shadow: Lake, mirror: Mirror) -> Staged | DataFrame:
    """The staged table, whose files are taken over, or its rows, which Spark writes into the table."""
    if lake.takes_commits and lake.pipeline.rewrite_budget != 0:
        staged = Staged(shadow.path(mirror.path), shadow.snapshot(mirror.path))
        if staged.fits(lake.path(mirror.path)):
            return staged
    if lake.snapshot(mirror.path).exists:
        mirror_table.allow_zoneless(lake, mirror, [column.delta for column in mirror.columns])
    else:
        mirror_table.create(lake, mirror, _rule(lake, mirror))
    return shadow.read(mirror.path)


def _add_misfits(lake: Lake, shadow: Lake, mirror: Mirror, batch: int) -> None:
    """Write cells and changes that did not fit and have no reject yet; close the mirror's other rejects."""
    every = f"(SELECT * FROM {{rejects}} WHERE {duck.of_table(mirror.table)} AND kind <> 'message')"
    misfits = shadow.ask(f"SELECT o.* FROM {every} AS o")
    recorded, again = (
        set(map(_named, rows)) for rows in (lake.ask(f"SELECT o.* FROM {every} AS o"), misfits)
    )
    waiting = lake.ask(rejects.open_sql(lake, every))
    over = [row for row in waiting if row["key"] and _named(row) not in again]
    rejects.dismiss(lake, over, "the mirror was folded again, and it fits now")
    new = [tuple(row.values()) for row in misfits if _named(row) not in recorded]
    if new:
        rows = table_of(new, list(misfits[0]), REJECTS.arrow)
        lake.append(rows, REJECTS, f"{STAGE}/{mirror.path}/{mirror.generation}", batch)


def _named(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in _NAMED[row["kind"]])
