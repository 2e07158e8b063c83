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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ingest.change import LaneId, TableId
from ingest.config import Pipeline, Source, target
from ingest.errors import IngestError, command, counted
from ingest.formats import ingest_snapshot
from ingest.ledgers import lanes, mirrors, targets
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.targets import AnyLake
from ingest.source import digest, snapshot
from ingest.source.chunks import key_conditions
from ingest.source.database import SourceDialect, SourceTable, clock, connected
from ingest.source.place import known
from ingest.source.range_search import RangeSearch
from ingest.source.reconciled import (
    DIFFERENT,
    MISSING,
    SURPLUS,
    Cells,
    IncomparableError,
    Reconciled,
    ReconcileOptions,
    RowDifference,
    RowKey,
)
from ingest.source.sides import (
    ComparedTable,
    MirrorSide,
    SourceConnections,
    SourceSide,
    WrittenRow,
    compared_table,
)
from ingest.source.snapshot import described
from ingest.tables import duck
from ingest.tables.tables import Tables

_LOOKS = 2  # at a key that the source seems to lack, before it is deleted
_OPEN_SECONDS = 10.0  # for which a transaction of the source is waited for
_AHEAD = 60.0  # seconds by which a stream's times may be later than its database's clock


def reconcile(
    lake: Tables,
    source: Source,
    table: TableId,
    options: ReconcileOptions,
    *,
    passed: Callable[[str], dt.datetime | None],
    tell: Callable[[Reconciled], None] = lambda _done: None,
) -> Reconciled:
    """Compare one table with its mirror.

    Args:
        lake: the lake, which is only read.
        source: the source with the database.
        table: the table as its stream names it.
        options: what it may cost, and when a difference is judged.
        passed: until which source time a mirror, by its name, is complete.
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
        with asking.connection() as (dialect, connection):
            described_table = described(
                dialect.table(connection, table), lake.pipeline, table, source,
                known(lake.pipeline, source.name, table).columns,
            )  # fmt: skip
        pair = compared_table(lake, dialect, described_table, mirror)
        side = MirrorSide(lake, pair, ends)
        theirs = SourceSide(asking, dialect, pair)
        done = Reconciled(table, mirror.name, mirror.keys, sampled=options.sample, lacking=pair.lacking)
        done.left_out = pair.left_out
        search = RangeSearch(theirs, side, pair, options, done, tell)
        keys = search.run()
        theirs.unchanged()
        judging = Judging(done, theirs, (lambda: passed(mirror.name)), options)
        if search.unkeyed:
            judging.contents(search.unkeyed, lambda: search.again(MirrorSide(lake, pair, ends)))
        else:
            judging.rows(side, keys)
        done.fetched = theirs.fetched
    done.seconds = time.monotonic() - began
    return done


Filled = Mapping[TableId, Sequence[LaneId]]
"""The source tables whose rows go into each mirror."""


def filled(lake: Tables) -> Filled:
    """The source tables whose rows go into each mirror, by the rules of a view."""
    lanes_of: dict[TableId, list[LaneId]] = {}
    for by, of in lanes.booked(lake):
        lanes_of.setdefault(target(lake.pipeline.rule(of), of), []).append((by, of))
    return lanes_of


def mirror_of(lake: Tables, source: Source, table: TableId, fills: Filled | None = None) -> Mirror:
    """The mirror of one source table alone; ``fills`` is what `filled` says, if that is asked for many tables.

    Raises:
        IncomparableError: it has other rows than the table, or its key is masked.
        IngestError: there is none yet.
    """
    rule = lake.pipeline.rule(table)
    name = target(rule, table)
    mirror = next((mirror for mirror in mirrors.known(lake).values() if mirror.table == name), None)
    if mirror is None or not lake.exists(mirror.path):
        file = lake.pipeline.file
        raise IngestError(
            f"There is no mirror of {table} yet: `{command('run', file)}`, then `{command('snapshot', file, table)}` reads it."
        )
    if mirror.where:
        raise IncomparableError(
            f"{name} holds the rows that meet {mirror.where} alone, so it cannot be compared with {table}: "
            f"`{command('quality', lake.pipeline.file, '--deep', name)}` compares it with all changes."
        )
    if mirror.soft:
        raise IncomparableError(
            f"{name} keeps rows that {table} has deleted, so it cannot be compared with it: "
            f"`{command('quality', lake.pipeline.file, '--deep', name)}` compares it with all changes."
        )
    if masked := [key for key in mirror.keys if rule.mask_of(key)]:
        raise IncomparableError(
            f"{masked[0]} is in the key of {name} and masked, so no row of it can be looked up in {table}."
        )
    into = (filled(lake) if fills is None else fills).get(name, ())
    others = [f"{of.table} of {by}" for by, of in into if (by, of) != (source.name, table)]
    if others:
        raise IncomparableError(
            f"{name} holds rows of {', '.join(sorted(others))}, too, so it cannot be compared with {table} alone."
        )
    return mirror


def views_of(lake: AnyLake, source: Source, table: TableId) -> list[AnyLake]:
    """The views of the lake whose mirror of a table can be compared with it; the first one if there is none."""
    return comparable_views(lake, source, table) or [lake]


def comparable_views(lake: AnyLake, source: Source, table: TableId) -> list[AnyLake]:
    """The views of the lake whose mirror of a table can be compared with it."""
    views = (view for view in targets.views(lake) if not view.pipeline.rule(table).exclude)
    return [view for view in views if is_comparable(view, source, table)]


def is_comparable(view: Tables, source: Source, table: TableId, fills: Filled | None = None) -> bool:
    """True unless the lake says already that a table cannot be compared with its mirror."""
    with suppress(IngestError):
        return bool(mirror_of(view, source, table, fills))
    return False


def tables_of(lake: Tables, source: Source) -> list[TableId]:
    """The tables of a source that have come by its stream."""
    booked = lanes.booked(lake, f"source = {duck.text(source.name)} AND changes > 0")
    tables = sorted((table for _, table in booked), key=str)
    known_now = {mirror.table for mirror in mirrors.known(lake).values()}
    return [table for table in tables if not known_now.isdisjoint(mirrors.names(lake.pipeline, table))]


# --- a second look -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judging:
    """What is wrong for certain: it is looked at again, once the mirror has passed the first look."""

    done: Reconciled
    theirs: SourceSide
    passed: Callable[[], dt.datetime | None]
    options: ReconcileOptions

    def rows(self, mirror_side: MirrorSide, keys: Sequence[RowKey]) -> None:
        """Judge rows by their keys."""
        if not keys:
            return
        done, pair = self.done, self.theirs.pair
        first, _ = self.theirs.rows(keys)
        done.looked_at = self.theirs.clock()
        before = mirror_side.rows(keys)
        keys = [key for key in keys if _differences(pair, key, first.get(key), before.get(key, ()))]
        is_past = self._is_past(wanted=bool(keys)) and (not keys or self._is_seen())
        now = mirror_side.rows(keys)
        again, sent = self.theirs.rows(keys)
        for key in keys:
            differences = _differences(pair, key, again.get(key), now.get(key, ()), sent.get(key))
            if not differences or again.get(key) != first.get(key) or now.get(key) != before.get(key):
                done.on_the_way += 1
            elif is_past:
                done.differences += differences
            else:
                done.not_judged += differences

    def contents(
        self, first: Mapping[int, tuple[int, int]], look: Callable[[], Mapping[int, tuple[int, int]]]
    ) -> None:
        """Judge rows without a key by how often their contents occur in the source and in the mirror."""
        self.done.looked_at = self.theirs.clock()
        is_past = self._is_past() and self._is_seen()
        again = look() if is_past else first
        for number, (source, mirror) in first.items():
            rows = abs(source - mirror)
            if again.get(number) != (source, mirror):
                self.done.on_the_way += rows
            elif is_past:
                kind = MISSING if source > mirror else SURPLUS
                self.done.unkeyed[kind] = self.done.unkeyed.get(kind, 0) + rows
            else:
                self.done.unkeyed_waiting += rows

    def _is_seen(self) -> bool:
        """Wait for what the mirror may have from the stream and a SELECT does not see yet; False if that takes too long."""
        self.done.open_long = not self.theirs.is_settled(max(self.options.wait, _OPEN_SECONDS))
        return not self.done.open_long

    def _is_past(self, *, wanted: bool = True) -> bool:
        """Wait until the mirror has passed the first look; False if it has not in time."""
        until = time.monotonic() + self.options.wait
        while not (self.options.settled or self._is_beyond()):
            if not wanted or time.monotonic() >= until:
                return False
            time.sleep(min(2.0, max(0.0, until - time.monotonic())))
        return True

    def _is_beyond(self) -> bool:
        """True once the mirror has passed the first look, by times that the source's clock has reached."""
        reached = self.passed()
        if reached is None or reached < _moment(self.done.looked_at):
            return False
        later = (reached - _moment(self.theirs.clock())).total_seconds()
        self.done.ahead = later if later > _AHEAD else 0.0
        return not self.done.ahead


def _differences(
    pair: ComparedTable,
    key: RowKey,
    source: Cells | None,
    mirrored: Sequence[WrittenRow],
    sent: Cells | None = None,
) -> list[RowDifference]:
    """What differs of one key; ``sent`` has the source's cells as they are shown.

    Of several rows that the mirror has of it, in a text each, the most alike is the source's, and all others are surplus.
    """
    names = _texts(key)
    written = tuple(_texts(row.key) for row in mirrored)
    if written in ((), (names,)):
        written = ()
    surplus = RowDifference(SURPLUS, names, written=written)
    if source is None:
        return [surplus] * len(mirrored)
    if not mirrored:
        return [RowDifference(MISSING, names)]
    cells = min((_unlike(pair, source, row.cells, sent or source) for row in mirrored), key=len)
    different = [RowDifference(DIFFERENT, names, cells, written)] if cells else []
    return different + [surplus] * (len(mirrored) - 1)


def _texts(key: RowKey) -> tuple[str, ...]:
    return tuple(text or "" for text in key)


def _unlike(
    pair: ComparedTable, source: Cells, mirror: Cells, sent: Cells
) -> dict[str, tuple[str | None, str | None]]:
    """The cells of a row that differ, by column: the source's and the mirror's."""
    return {
        column.name: (shown, b)
        for column, a, b, shown in zip(pair.columns, source, mirror, sent, strict=True)
        if a != b
    }


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC).replace(tzinfo=None)


def repair(
    pipeline: Pipeline, source: Source, table: TableId, mirror: Mirror, differences: Sequence[RowDifference]
) -> tuple[Path, int, int]:
    """Read the rows that differ by their keys, and write them as messages; a key that the source has not is a delete.

    As for a whole snapshot, the rows' place among the changes of the stream is chosen before they are read. A key that the
    mirror keeps as a text which is not the source's, as ``0.00`` for ``0``, is deleted in the mirror's own text.

    Returns:
        The folder, how many rows were read, and how many are deleted.

    Raises:
        IngestError: the database refused, or the table is not there.
    """
    assert source.database is not None
    now = known(pipeline, source.name, table)
    with connected(source.database) as (dialect, connection):
        described_table = snapshot.described(
            dialect.table(connection, table), pipeline, table, source, now.columns
        )
        place = snapshot.place_of(pipeline, source, table, now)
        snapshot.wait_for_open_transactions(source.database, dialect, connection, table)
        plan = snapshot.SnapshotPlan(
            table, counted(len(differences), "key"), described_table.shape, mirror.keys, place, []
        )
        here = snapshot.begin(pipeline, source, plan)
        now_there = clock(dialect, connection)
        rows, gone = _rows_of_keys(
            dialect, connection, replace(described_table, keys=mirror.keys), mirror, differences
        )
    reading = snapshot.TableReading(source, described_table, plan, here)
    if gone:  # before the rows: one text of a key leaves the mirror, and another one comes
        types = {column.name: column.type for column in described_table.columns if column.name in mirror.keys}
        order = [list(mirror.keys).index(name) for name in types]
        deletes = [orjson.dumps([key[i] for i in order]) for key in gone]
        snapshot.write(
            here / f"chunk-000001{ingest_snapshot.SUFFIX}",
            reading.messages(0, iter(deletes), now_there, "delete", types),
        )
    if rows:
        snapshot.write(
            here / f"chunk-000002{ingest_snapshot.SUFFIX}", reading.messages(1, iter(rows), now_there)
        )
    snapshot.close(here)
    return here, len(rows), len(gone)


def _rows_of_keys(
    dialect: SourceDialect,
    connection: Any,
    table: SourceTable,
    mirror: Mirror,
    differences: Sequence[RowDifference],
) -> tuple[list[bytes], list[RowKey]]:
    """The rows of some keys, and the keys to delete: those that the source has denied twice, as the mirror writes them, and
    other texts of those that it has.
    """
    named = {column.name: column for column in table.columns}
    compared = [
        digest.compared(dialect, named[key_column.name], key_column, is_key=True)
        for key_column in mirror.key_columns
    ]
    columns = [*(key.source for key in compared), *(column.text for column in table.columns)]
    size = len(compared)
    places = [size + list(named).index(key.name) if key.delta == "STRING" else i for i, key in enumerate(compared)]  # fmt: skip
    by_key = {digest.row_key(compared, difference.key): difference for difference in differences}
    texts_of_mirror: dict[RowKey, Sequence[RowKey]] = {
        key: difference.written or (key,) for key, difference in by_key.items()
    }
    wanted, replaced, rows = {*by_key}, list[RowKey](), list[bytes]()
    for _look in range(_LOOKS):
        for where in key_conditions(dialect, table, sorted(wanted, key=repr)):
            for line in dialect.rows(connection, columns, f"{table.name} WHERE {where}"):
                row = orjson.loads(line)
                key = digest.row_key(compared, row[:size])
                if key not in wanted:
                    continue  # the database takes another text for this key, and it is a row of its own
                wanted.discard(key)
                rows.append(orjson.dumps(row[size:]))
                text = tuple(row[place] if place >= size else key[place] for place in places)
                if by_key[key].kind != MISSING:
                    replaced += [written for written in texts_of_mirror[key] if written != text]
    return rows, [
        *replaced,
        *(written for key in sorted(wanted, key=repr) for written in texts_of_mirror[key]),
    ]
