"""Compare a mirror with its source table: sums over ranges of the key on both sides, halved down to rows.

The source computes counts and sums of `ingest.source.digest` over ranges that its own index has; DuckDB computes them
once over the mirror's files.  A range that differs is cut at keys of the mirror, until its rows are few enough to be
fetched by key.  Where the database orders the key otherwise than its bytes, rows are grouped by the MD5 of their key
instead, which takes a second pass over the table.  Rows without a key are grouped by the MD5 of their content, and
counted.

A row that differs is looked at again once the mirror has passed the time of the first look: what was on its way has
arrived by then, and a row that has changed again in the source is not judged.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from random import Random

from ingest.change import TableId
from ingest.config import Source, target
from ingest.errors import IngestError
from ingest.lake import duck, lanes, mirrors, targets
from ingest.lake.mirrors import Mirror
from ingest.lake.tables import Tables
from ingest.lake.targets import AnyLake
from ingest.source.judging import Judging
from ingest.source.known import known
from ingest.source.range_search import RangeSearch
from ingest.source.reconciled import Reconciled, ReconcileOptions
from ingest.source.sides import MirrorSide, SourceConnections, SourceSide, compared_table
from ingest.source.snapshot import described


def reconcile(
    lake: Tables,
    source: Source,
    table: TableId,
    options: ReconcileOptions,
    *,
    passed: Callable[[str], dt.datetime | None],
    random: Random | None = None,
    tell: Callable[[Reconciled], None] = lambda _done: None,
) -> Reconciled:
    """Compare one table with its mirror.

    Args:
        lake: the lake, which is only read.
        source: the source with the database.
        table: the table as its stream names it.
        options: what it may cost, and when a difference is judged.
        passed: until which source time a mirror, by its name, is complete.
        random: which ranges a sample takes.
        tell: called after each range.

    Raises:
        IngestError: one of the two cannot be compared, or more rows differ than are worth a list.
    """
    began = time.monotonic()
    assert source.database is not None
    mirror = mirror_of(lake, source, table)
    with ExitStack() as ends:
        asking = SourceConnections(source.database, options)
        ends.callback(asking.close)
        with asking.one() as (dialect, connection):
            found = described(
                dialect.table(connection, table), lake.pipeline, table, source,
                known(lake.pipeline, source.name, table).columns,
            )  # fmt: skip
        pair = compared_table(lake, dialect, found, mirror)
        mine = MirrorSide(lake, pair, ends)
        theirs = SourceSide(asking, dialect, pair)
        done = Reconciled(table, mirror.name, mirror.keys, sampled=options.sample, lacking=pair.lacking)
        done.left_out = pair.left_out
        search = RangeSearch(theirs, mine, pair, options, done, random or Random(), tell)  # noqa: S311 - no secret
        keys = search.run()
        theirs.unchanged()
        judging = Judging(done, theirs, (lambda: passed(mirror.name)), options)
        if search.unkeyed:
            judging.contents(search.unkeyed, lambda: search.again(MirrorSide(lake, pair, ends)))
        else:
            judging.rows(mine, keys)
        done.fetched = theirs.fetched
    done.seconds = time.monotonic() - began
    return done


def mirror_of(lake: Tables, source: Source, table: TableId) -> Mirror:
    """The mirror of one source table alone; an `IngestError` if there is none, or if it has rows of other tables."""
    rule = lake.pipeline.rule(table)
    name = target(rule, table)
    found = next((one for one in mirrors.known(lake).values() if one.table == name), None)
    if found is None or not lake.exists(found.path):
        raise IngestError(f"There is no mirror of {table} yet: run the pipeline, then `ingest snapshot` it.")
    if found.where:
        raise IngestError(
            f"{name} holds the rows that meet {found.where} alone, so it cannot be compared with {table}: `ingest quality "
            "--deep` compares it with all changes."
        )
    if found.soft:
        raise IngestError(
            f"{name} keeps rows that {table} has deleted, so it cannot be compared with it: `ingest quality --deep` "
            "compares it with all changes."
        )
    others = [
        f"{of.table} of {by}"
        for by, of in lanes.booked(lake)
        if (by, of) != (source.name, table) and target(lake.pipeline.rule(of), of) == name
    ]
    if others:
        raise IngestError(
            f"{name} holds rows of {', '.join(sorted(others))}, too, so it cannot be compared with {table} alone."
        )
    return found


def views_of(lake: AnyLake, source: Source, table: TableId) -> list[AnyLake]:
    """The views of the lake whose mirror of a table can be compared with it; the first one if there is none."""
    found = (view for view in targets.views(lake) if not view.pipeline.rule(table).exclude)
    return [view for view in found if _is_comparable(view, source, table)] or [lake]


def _is_comparable(view: Tables, source: Source, table: TableId) -> bool:
    with suppress(IngestError):
        return bool(mirror_of(view, source, table))
    return False


def tables_of(lake: Tables, source: Source) -> list[TableId]:
    """The tables of a source that have come by its stream."""
    booked = lanes.booked(lake, f"source = {duck.text(source.name)} AND changes > 0")
    found = sorted((table for _, table in booked), key=str)
    known_now = {one.table for one in mirrors.known(lake).values()}
    return [one for one in found if not known_now.isdisjoint(mirrors.names(lake.pipeline, one))]
