"""A mirror held against its source table: sums over ranges of the key on both sides, halved down to rows.

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
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, LifoQueue
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ingest.change import TableId
from ingest.config import Source
from ingest.config.model import Database
from ingest.errors import IngestError
from ingest.lake import delta, duck, lanes, mirrors, targets
from ingest.lake.mirrors import Mirror
from ingest.lake.tables import Tables, scan
from ingest.lake.targets import AnyLake
from ingest.source import digest
from ingest.source.chunks import Chunk, beyond, bounds, chunks, condition, key_conditions, keys_of, literals
from ingest.source.database import (
    DatabaseError,
    Key,
    SourceColumn,
    SourceDialect,
    SourceTable,
    clock,
    connected,
    quoted,
)
from ingest.source.digest import ComparedColumn
from ingest.source.known import known
from ingest.source.snapshot import described

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RANGE_ROWS = 50_000
MOST = 100_000  # rows that differ; a table with more of them is read again as a whole
_PIECES = 32  # of a range that differs
_FEW = 64  # rows that are fetched rather than cut again
_TRIES = 4
_SAMPLE = 20  # one range of so many
_AHEAD = 60.0  # seconds by which a stream's times may be later than its database's clock
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIMESTAMP_NTZ")

_Answer = TypeVar("_Answer")
MISSING, SURPLUS, DIFFERENT = "missing", "surplus", "different"
RowKey = tuple[str | None, ...]
Cells = tuple[str | None, ...]
Sums = dict[Any, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that is not the same on both sides; a side that lacks it has no cells."""

    kind: str
    key: tuple[str, ...]
    cells: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)  # source, mirror


@dataclass(slots=True)
class Reconciled:
    """What came of one table."""

    id: TableId
    mirror: str
    keys: tuple[str, ...]
    rows: int = 0  # of the source
    mirror_rows: int = 0
    ranges: int = 0
    equal: int = 0  # ranges
    fetched: int = 0  # rows that left the source
    sampled: bool = False
    differences: list[RowDifference] = field(default_factory=list)
    on_the_way: int = 0  # rows that had changed again, or are the same by now
    not_judged: list[RowDifference] = field(default_factory=list)  # the mirror has not passed the first look
    looked_at: str = ""  # the source's clock at the first look
    ahead: float = 0.0  # seconds by which the stream's times are later than that clock, if these are too many to judge by
    lacking: tuple[str, ...] = ()  # columns of the source that the mirror has not
    left_out: tuple[str, ...] = ()  # columns that cannot be compared: masked, or of a type without one text
    unkeyed: dict[str, int] = field(default_factory=dict)  # rows without a key that differ, by how
    unkeyed_waiting: int = 0  # such rows that are not judged
    seconds: float = 0.0

    @property
    def table(self) -> str:
        """Its name in the source."""
        return str(self.id)

    def count(self, kind: str) -> int:
        """How many rows differ in one way."""
        return sum(one.kind == kind for one in self.differences) + self.unkeyed.get(kind, 0)

    @property
    def waiting(self) -> int:
        """How many rows are not judged."""
        return len(self.not_judged) + self.unkeyed_waiting

    @property
    def differs(self) -> bool:
        """True if something is wrong for certain."""
        return bool(self.differences or self.lacking or self.unkeyed)


@dataclass(frozen=True, slots=True)
class ReconcileBounds:
    """What reading may cost the source."""

    rows_per_second: int = 0  # 0: as fast as it is
    parallel: int = 2
    range_rows: int = RANGE_ROWS


def reconcile(
    lake: Tables,
    source: Source,
    table: TableId,
    *,
    passed: Callable[[str], dt.datetime | None],
    wait: float = 0.0,
    settled: bool = False,
    sample: bool = False,
    limits: ReconcileBounds | None = None,
    random: Random | None = None,
    tell: Callable[[Reconciled], None] = lambda _done: None,
) -> Reconciled:
    """Compare one table with its mirror.

    Args:
        lake: the lake, which is only read.
        source: the source with the database.
        table: the table as its stream names it.
        passed: until which source time a mirror, by its name, is complete.
        wait: how many seconds to wait for the mirror to pass the first look.
        settled: the stream has delivered everything, so each difference is judged at once.
        sample: only some of the ranges.
        limits: what it may cost.
        random: which ranges a sample takes.
        tell: called after each range.

    Raises:
        IngestError: one of the two cannot be compared, or more rows differ than are worth a list.
    """
    began = time.monotonic()
    assert source.database is not None
    given = limits or ReconcileBounds()
    mirror = mirror_of(lake, source, table)
    with ExitStack() as ends:
        asking = _Connections(source.database, given)
        ends.callback(asking.close)
        with asking.one() as (dialect, connection):
            found = described(
                dialect.table(connection, table), lake.pipeline, table, source,
                known(lake.pipeline, source.name, table).columns,
            )  # fmt: skip
        pair = _pair(lake, dialect, found, mirror)
        mine = _MirrorSide(lake, pair, ends)
        theirs = _SourceSide(asking, dialect, pair)
        done = Reconciled(table, mirror.name, mirror.keys, sampled=sample, lacking=pair.lacking)
        done.left_out = pair.left_out
        search = _Search(theirs, mine, pair, given, done, sample, random or Random(), tell)  # noqa: S311 - no secret
        keys = search.run()
        theirs.unchanged()
        judging = _Judging(done, theirs, (lambda: passed(mirror.name)), wait, settled)
        if search.unkeyed:
            judging.contents(search.unkeyed, lambda: search.again(_MirrorSide(lake, pair, ends)))
        else:
            judging.rows(mine, keys)
        done.fetched = theirs.fetched
    done.seconds = time.monotonic() - began
    return done


def mirror_of(lake: Tables, source: Source, table: TableId) -> Mirror:
    """The mirror of one source table alone; an `IngestError` if there is none, or if it has rows of other tables."""
    rule = lake.pipeline.rule(table)
    target = mirrors.target(rule, table)
    found = next((one for one in mirrors.known(lake).values() if one.table == target), None)
    if found is None or not lake.exists(found.path):
        raise IngestError(f"There is no mirror of {table} yet: run the pipeline, then `ingest snapshot` it.")
    if found.where:
        raise IngestError(
            f"{target} holds the rows that meet {found.where} alone, so it cannot be held against {table}: `ingest quality "
            "--deep` compares it with all changes."
        )
    if found.soft:
        raise IngestError(
            f"{target} keeps rows that {table} has deleted, so it cannot be held against it: `ingest quality --deep` "
            "compares it with all changes."
        )
    others = [
        f"{of.table} of {name}"
        for name, of in lanes.booked(lake)
        if (name, of) != (source.name, table) and mirrors.target(lake.pipeline.rule(of), of) == target
    ]
    if others:
        raise IngestError(
            f"{target} holds rows of {', '.join(sorted(others))}, too, so it cannot be held against {table} alone."
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


# --- the two sides --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """A table and its mirror, column by column."""

    table: SourceTable
    mirror: Mirror
    columns: tuple[ComparedColumn, ...]
    keys: tuple[ComparedColumn, ...]
    ranged: tuple[tuple[SourceColumn, mirrors.Column], ...]  # the first key columns that both order alike
    lacking: tuple[str, ...]
    left_out: tuple[str, ...]  # columns that are not compared


def _pair(lake: Tables, dialect: SourceDialect, table: SourceTable, mirror: Mirror) -> _Pair:
    there = lake.snapshot(mirror.path).types
    by_name = {one.name: one for one in mirror.sent if one.column in there}
    rule = lake.pipeline.rule(table.id)
    masked = {name for name in by_name if rule.mask_of(name)}
    if hidden := [name for name in mirror.keys if name in masked]:
        raise IngestError(
            f"{hidden[0]} is in the key of {mirror.name} and masked, so no row of it can be looked up in {table.id}."
        )
    there_too = [one for one in table.columns if one.name in by_name]
    if lost := set(mirror.keys) - {one.name for one in there_too}:
        raise IngestError(f"{table.id} has no column {min(lost)!r}, which is in the key of its mirror.")
    own_form = {one.name for one in there_too if not one.comparable}
    if unlike := own_form & set(mirror.keys):
        raise IngestError(
            f"{min(unlike)!r} is in the key of {mirror.name}, and values of its type cannot be compared here "
            f"(docs/reading-the-source.md), so no row can be looked up in {table.id}."
        )
    both = {
        one.name: digest.compared(dialect, one, by_name[one.name])
        for one in there_too
        if one.name not in masked | own_form
    }
    ranged = []
    columns = {one.name: one for one in table.columns}
    for name in mirror.keys:
        mine = by_name[name]
        if mine.delta not in _WHOLE and not mine.delta.startswith("DECIMAL") and not columns[name].by_bytes:
            break
        ranged.append((columns[name], mine))
    return _Pair(
        replace(table, keys=mirror.keys),
        mirror,
        tuple(both.values()),
        tuple(both[name] for name in mirror.keys),
        tuple(ranged),
        tuple(one.name for one in table.columns if one.name not in by_name and not rule.leaves_out(one.name)),
        tuple(
            one.name
            for one in (*there_too, *table.left_out)
            if one.name in masked | own_form or one in table.left_out
        ),
    )


class _Connections:
    """A few connections to one database, each asked by one thread at a time, at no more than a pace."""

    def __init__(self, database: Database, limits: ReconcileBounds) -> None:
        self._database = database
        self._limits = limits
        self._free: LifoQueue[tuple[ExitStack, SourceDialect, Any]] = LifoQueue()
        self._lock = threading.Lock()
        self._due = 0.0

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._free.get_nowait()[0].close()

    @contextmanager
    def one(self) -> Iterator[tuple[SourceDialect, Any]]:
        """A connection of this thread's for a while: closed after an error, else kept for the next."""
        try:
            stack, dialect, connection = self._free.get_nowait()
        except Empty:
            stack = ExitStack()
            dialect, connection = stack.enter_context(connected(self._database))
        with stack:  # turns the client's own errors into a sentence
            yield dialect, connection
            self._free.put((stack.pop_all(), dialect, connection))

    def ask(self, query: str, rows: int = 0) -> list[tuple[Any, ...]]:
        """The rows of a query; ``rows`` is about how many rows of the table it reads, for the pace."""
        self._pace(rows)
        return self.again(lambda dialect, connection: dialect.values(connection, query))

    def again(self, what: Callable[[SourceDialect, Any], _Answer]) -> _Answer:
        """What the database answers, asked again on a new connection if one breaks."""
        for trial in range(_TRIES):
            try:
                with self.one() as (dialect, connection):
                    return what(dialect, connection)
            except DatabaseError:
                if trial == _TRIES - 1:
                    raise
                self.close()  # a server that went took the others with it
                time.sleep(2.0**trial)
        raise AssertionError

    def _pace(self, rows: int) -> None:
        if not self._limits.rows_per_second or not rows:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._due)
            self._due = start + rows / self._limits.rows_per_second
        time.sleep(start - now)


@dataclass(slots=True)
class _SourceSide:
    """The table, by questions that move sums rather than rows."""

    asking: _Connections
    dialect: SourceDialect
    pair: _Pair
    fetched: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def keys(self) -> list[Key]:
        """How the ranged columns are compared."""
        names = tuple(column.name for column, _ in self.pair.ranged)
        return keys_of(self.dialect, replace(self.pair.table, keys=names))

    def ranges(self, size: int) -> list[Chunk]:
        """The table in ranges of its ranged columns, or of its whole key where there is none."""
        names = tuple(column.name for column, _ in self.pair.ranged) or self.pair.mirror.keys
        table = replace(self.pair.table, keys=names)
        return chunks(
            self.asking.again(lambda dialect, connection: list(bounds(dialect, connection, table, "", size)))
        )

    def where(self, chunk: Chunk, and_: str = "") -> str:
        """A range's WHERE, with another condition if one is given."""
        return condition(self.keys or keys_of(self.dialect, self.pair.table), chunk, and_)

    def number(self) -> str:
        """SQL for a row's number."""
        parts = [one.source_part for one in self.pair.columns]
        return self.dialect.number(digest.source_text(self.dialect, parts))

    def key_hash(self, digits: int) -> str:
        """SQL for the first digits of the MD5 of a row's key, or of the row if it has none."""
        parts = [one.source_part for one in self.pair.keys or self.pair.columns]
        return self.dialect.md5(digest.source_text(self.dialect, parts), digits)

    def sums(self, chunk: Chunk, group: str, rows: int = 0) -> Sums:
        """Counts and sums of a range by groups."""
        inner = f"SELECT {group} AS g, {self.number()} AS d FROM {self.pair.table.name} {self.where(chunk)}"
        found = self.asking.ask(f"SELECT g, COUNT(*), SUM(d) FROM ({inner}) s GROUP BY g", rows)
        return {str(g): (int(count), int(total or 0)) for g, count, total in found}

    def pieces(self, cuts: Sequence[Sequence[str]]) -> str:
        """SQL for the number of the piece in which a row is."""
        orders = [one.order for one in self.keys]
        bounds_of = [beyond(orders, literals(self.keys, cut), "<", equal=True) for cut in cuts]
        cases = [f"WHEN {bound} THEN {at}" for at, bound in enumerate(bounds_of)]
        return f"CASE {' '.join(cases)} ELSE {len(cuts)} END" if cases else "0"

    def numbers(self, chunk: Chunk, where: str = "") -> dict[RowKey, int | None]:
        """The rows of a range by key, as numbers."""
        texts = ", ".join(f"{one.source} AS k{at}" for at, one in enumerate(self.pair.keys))
        found = self.asking.ask(
            f"SELECT {texts}, {self.number()} AS d FROM {self.pair.table.name} {self.where(chunk, where)}"
        )
        with self._lock:
            self.fetched += len(found)
        return {tuple(row[:-1]): None if row[-1] is None else int(row[-1]) for row in found}

    def contents(self, where: str) -> dict[int, int]:
        """How often each number occurs among some rows."""
        inner = f"SELECT {self.number()} AS d FROM {self.pair.table.name} WHERE {where}"
        found = self.asking.ask(f"SELECT d, COUNT(*) FROM ({inner}) s GROUP BY d")
        self.fetched += len(found)
        return {int(number): int(count) for number, count in found}

    def rows(self, keys: Sequence[RowKey]) -> tuple[dict[RowKey, Cells], dict[RowKey, Cells]]:
        """Rows by key, cell by cell: as they are compared, and as the source has them."""
        both = [one.source for one in (*self.pair.keys, *self.pair.columns)]
        own = {at: one.sent for at, one in enumerate(self.pair.columns) if one.sent}
        texts = ", ".join(f"{one} AS c{at}" for at, one in enumerate([*both, *own.values()]))
        rows: dict[RowKey, Cells] = {}
        sent: dict[RowKey, Cells] = {}
        size, end = len(self.pair.keys), len(both)
        for wanted in key_conditions(self.dialect, self.pair.table, keys):
            found = self.asking.ask(f"SELECT {texts} FROM {self.pair.table.name} WHERE {wanted}")
            self.fetched += len(found)
            for row in found:
                key, cells = tuple(row[:size]), row[size:end]
                rows[key] = tuple(cells)
                texts_of = dict(zip(own, row[end:], strict=True))
                sent[key] = tuple(texts_of.get(at) if one is None else one for at, one in enumerate(cells))
        return rows, sent

    def clock(self) -> str:
        """The database's own time."""
        return self.asking.again(clock)

    def unchanged(self) -> None:
        """Complain of columns that are not what they were."""
        now = self.asking.again(lambda dialect, connection: dialect.table(connection, self.pair.table.id))
        if now is None or now.shape != self.pair.table.shape:
            what = "vanished" if now is None else "got other columns"
            raise IngestError(
                f"{self.pair.table.id} {what} while it was compared: run the same command again."
            )


class _MirrorRow(NamedTuple):
    """One row of the mirror: its place among the ranges, its key, its number."""

    order: tuple[str, ...]
    key: RowKey
    number: int


class _MirrorSide:
    """The mirror at one version: its rows' numbers in a table of DuckDB's own, in a file that ``ends`` removes."""

    def __init__(self, lake: Tables, pair: _Pair, ends: ExitStack) -> None:
        self._lake = lake
        self._pair = pair
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="reconcile-"))
        self._base: DuckDBPyConnection = duck.opened(str(Path(folder) / "mirror.duckdb"))
        orders = [f"{duck.name(mine.column)} AS o{at}" for at, (_, mine) in enumerate(self._pair.ranged)]
        texts = [f"{one.mirror} AS k{at}" for at, one in enumerate(self._pair.keys)]
        ends.callback(self._base.close)
        hashed = "'' AS h"
        if len(orders) < len(texts) or not texts:  # else every place among the ranges has one row
            parts = [one.mirror_part for one in self._pair.keys or self._pair.columns]
            hashed = f"md5({digest.mirror_text(parts)}) AS h"
        number = digest.mirror_number(digest.mirror_text([one.mirror_part for one in self._pair.columns]))
        sort = f"ORDER BY {', '.join(f'o{at}' for at in range(len(orders)))}" if orders else ""
        self._base.execute(
            f"CREATE TABLE m AS SELECT {', '.join([*orders, *texts, hashed, f'{number} AS d'])} "
            f"FROM {self._scan()} {sort}"
        )
        self.rows_count: int = self._ask("SELECT count(*) FROM m")[0][0]

    def _scan(self) -> str:
        folder = self._lake.path(self._pair.mirror.path)
        return scan(folder, delta.snapshot(folder))

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._base.cursor().execute(query).fetchall()

    def where(self, chunk: Chunk, and_: str = "") -> str:
        """A range's WHERE, with another condition if one is given."""
        keys = [
            Key(f"o{at}", "", f"CAST({{}} AS {duck.type_of(mine.delta)})")
            for at, (_, mine) in enumerate(self._pair.ranged)
        ]
        return condition(keys, chunk, and_, duck.text)

    def sums(self, chunk: Chunk, group: str) -> Sums:
        """Counts and sums of a range by groups."""
        inner = f"SELECT {group} AS g, d FROM m {self.where(chunk)}"
        found = self._ask(f"SELECT g, count(*), sum(d) FROM ({inner}) GROUP BY g")
        return {str(g): (int(count), int(total or 0)) for g, count, total in found}

    def ordered(self, chunk: Chunk) -> list[_MirrorRow]:
        """The rows of a range, in the order of its bounds."""
        orders = [f"o{at}" for at in range(len(self._pair.ranged))]
        bound = ", ".join(f"CAST({one} AS VARCHAR)" for one in orders)
        key = ", ".join(f"k{at}" for at in range(len(self._pair.keys)))
        found = self._ask(f"SELECT {bound}, {key}, d FROM m {self.where(chunk)} ORDER BY {', '.join(orders)}")
        size = len(orders)
        return [_MirrorRow(row[:size], row[size:-1], row[-1]) for row in found]

    @staticmethod
    def key_hash(digits: int) -> str:
        """SQL for the first digits of the MD5 of a row's key."""
        return f"substr(h, 1, {digits})"

    def numbers(self, chunk: Chunk, where: str = "") -> dict[RowKey, int | None]:
        """The rows of a range by key, as numbers."""
        texts = ", ".join(f"k{at}" for at in range(len(self._pair.keys)))
        found = self._ask(f"SELECT {texts}, d FROM m {self.where(chunk, where)}")
        return {tuple(row[:-1]): row[-1] for row in found}

    def contents(self, where: str) -> dict[int, int]:
        """How often each number occurs among some rows."""
        return dict(self._ask(f"SELECT d, count(*) FROM m WHERE {where} GROUP BY d"))

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, Cells]:
        """Rows by key, cell by cell, as the mirror is now."""
        if not keys:
            return {}
        ks = [f"k{at}" for at in range(len(self._pair.keys))]
        texts = [f"{one.mirror} AS k{at}" for at, one in enumerate(self._pair.keys)]
        cells = [f"{one.mirror} AS c{at}" for at, one in enumerate(self._pair.columns)]
        base = self._base.cursor()
        base.execute(f"CREATE OR REPLACE TEMP TABLE wanted ({', '.join(f'{one} VARCHAR' for one in ks)})")
        for first in range(0, len(keys), 1000):
            base.execute(f"INSERT INTO wanted VALUES {duck.listed(keys[first : first + 1000])}")
        found = base.execute(
            f"SELECT {', '.join([*ks, *(f'c{at}' for at in range(len(cells)))])} FROM (SELECT "
            f"{', '.join([*texts, *cells])} FROM {self._scan()}) JOIN wanted USING ({', '.join(ks)})"
        ).fetchall()
        return {tuple(row[: len(ks)]): tuple(row[len(ks) :]) for row in found}


# --- the search -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    """Down from the whole table to the keys of rows that differ."""

    theirs: _SourceSide
    mine: _MirrorSide
    pair: _Pair
    limits: ReconcileBounds
    done: Reconciled
    sample: bool
    random: Random
    tell: Callable[[Reconciled], None]
    found: dict[RowKey, None] = field(default_factory=dict)
    unkeyed: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # how often in the source and the mirror, by number
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> list[RowKey]:
        """The keys of all rows that differ."""
        self.done.mirror_rows = self.mine.rows_count
        if self.pair.ranged:
            ranges = self.theirs.ranges(self.limits.range_rows)
            if self.sample:
                ranges = self.random.sample(ranges, math.ceil(len(ranges) / _SAMPLE))
            self._each(self._range, ranges)
        else:
            self._hashed()
        return sorted(self.found, key=repr)

    def again(self, mine: _MirrorSide) -> dict[int, tuple[int, int]]:
        """The contents that differ now; ``mine`` is the mirror of now."""
        self.mine, self.unkeyed = mine, {}
        self.run()
        return self.unkeyed

    def _each(self, do: Callable[[Chunk], None], ranges: Iterable[Chunk]) -> None:
        with ThreadPoolExecutor(self.limits.parallel) as pool:
            tasks = [pool.submit(do, one) for one in ranges]
            try:
                for one in tasks:
                    one.result()
            finally:
                for one in tasks:
                    one.cancel()

    def _range(self, chunk: Chunk) -> None:
        theirs, mine = self.theirs.sums(chunk, "0", self.limits.range_rows), self.mine.sums(chunk, "0")
        with self._lock:
            self.done.rows += theirs.get("0", (0, 0))[0]
            self.done.ranges += 1
            self.done.equal += theirs == mine
        if theirs != mine:
            self._cut(chunk, theirs.get("0", (0, 0))[0], self.mine.ordered(chunk))
        self.tell(self.done)

    def _cut(self, chunk: Chunk, theirs: int, mine: Sequence[_MirrorRow]) -> None:
        """Look into a range that differs."""
        if max(theirs, len(mine)) <= _FEW or not mine:
            self._differing(self.theirs.numbers(chunk), {one.key: one.number for one in mine})
            return
        ends = _ends(mine)
        if not ends:
            self._hashed([chunk], max(theirs, len(mine)))
            return
        cuts = [list(mine[end - 1].order) for end in ends]
        found = self.theirs.sums(chunk, self.theirs.pieces(cuts))
        edges, places = [chunk.low, *cuts, chunk.high], [0, *ends, len(mine)]
        for at in range(len(cuts) + 1):
            rows = mine[places[at] : places[at + 1]]
            count, total = found.get(str(at), (0, 0))
            if (count, total) != (len(rows), sum(one.number for one in rows)):
                self._cut(Chunk(edges[at], edges[at + 1]), count, rows)

    def _hashed(self, ranges: Sequence[Chunk] = (), rows: int = 0) -> None:
        """Rows by the MD5 of their key, first as sums and then, where these differ, one by one."""
        top = not ranges
        ranges = ranges or self.theirs.ranges(self.limits.range_rows * 4)
        digits = min(4, max(1, math.ceil(math.log(max(1, (rows or self.mine.rows_count) / _FEW), 16))))
        left: dict[str, tuple[int, int]] = {}
        lock = threading.Lock()

        def add(chunk: Chunk) -> None:
            read = self.limits.range_rows * 4 if top else 0
            for g, (count, total) in self.theirs.sums(chunk, self.theirs.key_hash(digits), read).items():
                with lock:
                    have = left.get(g, (0, 0))
                    left[g] = have[0] + count, have[1] + total

        if top:
            self._each(add, ranges)
        else:
            add(ranges[0])
        whole = Chunk(None, None) if top else ranges[0]
        right = self.mine.sums(whole, self.mine.key_hash(digits))
        wrong = sorted(g for g in {**left, **right} if left.get(g) != right.get(g))
        if top:
            groups = len({**left, **right})
            self.done.rows = sum(count for count, _ in left.values())
            self.done.ranges, self.done.equal = groups, groups - len(wrong)
        for first in range(0, len(wrong), 500):
            names = ", ".join(quoted(one) for one in wrong[first : first + 500])
            if not self.pair.keys:
                there = self.theirs.contents(f"{self.theirs.key_hash(digits)} IN ({names})")
                here = self.mine.contents(f"{self.mine.key_hash(digits)} IN ({names})")
                both = {one: (there.get(one, 0), here.get(one, 0)) for one in {**there, **here}}
                self.unkeyed |= {one: (a, b) for one, (a, b) in both.items() if a != b}
                continue
            theirs: dict[RowKey, int | None] = {}
            for chunk in ranges:
                theirs |= self.theirs.numbers(chunk, f"{self.theirs.key_hash(digits)} IN ({names})")
            self._differing(theirs, self.mine.numbers(whole, f"{self.mine.key_hash(digits)} IN ({names})"))

    def _differing(self, theirs: Mapping[RowKey, int | None], mine: Mapping[RowKey, int | None]) -> None:
        keys = [
            key for key in {**theirs, **mine} if theirs.get(key) is None or theirs.get(key) != mine.get(key)
        ]
        with self._lock:
            self.found.update(dict.fromkeys(keys))
            if len(self.found) > MOST:
                raise IngestError(
                    f"More than {MOST:,} rows of {self.pair.table.id} differ from its mirror: read the table again "
                    f"with `ingest snapshot`, and compare it then."
                )


def _ends(rows: Sequence[_MirrorRow]) -> list[int]:
    """Where ordered rows are cut into pieces; rows of one place stay together."""
    step = max(1, math.ceil(len(rows) / _PIECES))
    ends: list[int] = []
    for first in range(step, len(rows), step):
        end = first
        while end < len(rows) and rows[end].order == rows[end - 1].order:
            end += 1
        if end < len(rows) and (not ends or end > ends[-1]):
            ends.append(end)
    return ends


# --- what differs ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Judging:
    """What is wrong for certain: it is looked at again, once the mirror has passed the first look."""

    done: Reconciled
    theirs: _SourceSide
    passed: Callable[[], dt.datetime | None]
    wait: float
    settled: bool

    def rows(self, mine: _MirrorSide, keys: Sequence[RowKey]) -> None:
        """Judge rows by their keys."""
        if not keys:
            return
        done, pair = self.done, self.theirs.pair
        first, _ = self.theirs.rows(keys)
        done.looked_at = self.theirs.clock()
        before = mine.rows(keys)
        keys = [key for key in keys if _difference(pair, key, first.get(key), before.get(key))]
        is_past = self._is_past(wanted=bool(keys))
        now = mine.rows(keys)
        again, sent = self.theirs.rows(keys)
        for key in keys:
            one = _difference(pair, key, again.get(key), now.get(key), sent.get(key))
            if one is None or again.get(key) != first.get(key) or now.get(key) != before.get(key):
                done.on_the_way += 1
            elif is_past:
                done.differences.append(one)
            else:
                done.not_judged.append(one)

    def contents(
        self, first: Mapping[int, tuple[int, int]], look: Callable[[], Mapping[int, tuple[int, int]]]
    ) -> None:
        """Judge rows without a key by how often their contents occur in the source and in the mirror."""
        self.done.looked_at = self.theirs.clock()
        is_past = self._is_past()
        again = first if self.settled or not is_past else look()
        for number, (source, mirror) in first.items():
            rows = abs(source - mirror)
            if again.get(number) != (source, mirror):
                self.done.on_the_way += rows
            elif is_past:
                kind = MISSING if source > mirror else SURPLUS
                self.done.unkeyed[kind] = self.done.unkeyed.get(kind, 0) + rows
            else:
                self.done.unkeyed_waiting += rows

    def _is_past(self, *, wanted: bool = True) -> bool:
        """Wait until the mirror has passed the first look; False if it has not in time."""
        until = time.monotonic() + self.wait
        while not (self.settled or self._is_beyond()):
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


def _difference(
    pair: _Pair, key: RowKey, source: Cells | None, mirror: Cells | None, sent: Cells | None = None
) -> RowDifference | None:
    """What differs; ``sent`` has the source's cells as they are shown."""
    names = tuple(text or "" for text in key)
    if source is None or mirror is None:
        if source is mirror:
            return None
        return RowDifference(SURPLUS if source is None else MISSING, names)
    cells = {
        one.name: (shown, b)
        for one, a, b, shown in zip(pair.columns, source, mirror, sent or source, strict=True)
        if a != b and not (one.is_float and _same_number(a, b))
    }
    return RowDifference(DIFFERENT, names, cells) if cells else None


def _same_number(one: str | None, other: str | None) -> bool:
    """True for two texts of one floating number, in forms of different databases."""
    try:
        return repr(float(one or "")) == repr(float(other or ""))  # one form for NaN, two for the zeros
    except ValueError:
        return False


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC).replace(tzinfo=None)


def listed(differences: Sequence[RowDifference], most: int) -> Iterator[RowDifference]:
    """The first differences, of each kind as many."""
    for kind in (MISSING, SURPLUS, DIFFERENT):
        yield from [one for one in differences if one.kind == kind][:most]
