"""Gold's work list: which mirrors have new batches, read from the books only.

A mirror without a new book line costs nothing: its table is not opened.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from ingest.change import LaneId, TableId, lane_of
from ingest.config import Pipeline, TableRule, target
from ingest.gold.plan.completed import folded
from ingest.gold.plan.lane import ChangeKinds, Lane
from ingest.ledgers.books import Line, announcements, merged_columns
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Era, Mirror, feeding
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.json_cells import list_in, object_in
from ingest.tables.tables import Row, Tables

LOOKS = 3  # logs that are read at once
_SUMS = ("changes", "updates", "partials", "key_changes", "inherits", "deletes", "truncates")


@dataclass(slots=True)
class LaneSums:
    """A lane's audit counts up to the last complete batch."""

    high: str = ""  # the highest place
    last: int = 0  # the last batch with changes or statements
    changes: int = 0
    updates: int = 0
    partials: int = 0
    key_changes: int = 0
    inherits: int = 0
    deletes: int = 0
    truncates: int = 0
    servers: set[str] = field(default_factory=set)
    # as messages named them: moves were counted by these
    keys: set[tuple[str, ...]] = field(default_factory=set)

    def recounted(self, keys: Collection[str], earlier: Sequence[Era]) -> LaneSums:
        """The same for a key other than that of the messages: any update may change it.

        Not if they named all its columns, or those of a key that the table had then.
        """
        if all(
            set(keys) <= set(key) or any(set(key) == set(era.keys) for era in earlier) for key in self.keys
        ):
            return self
        return replace(self, key_changes=self.updates, inherits=self.partials)

    @property
    def of_rows(self) -> int:
        """How many of its changes are of single rows."""
        return self.changes - self.truncates

    def with_statement(self, statement: Statement) -> LaneSums:
        """The same with one more folded statement."""
        return replace(self, high=max(self.high, statement.order), last=max(self.last, statement.batch))

    def add(self, line: Line) -> None:
        """Add one more folded line."""
        self.high = max(self.high, line.order_high or "")
        if line.changes or line.ddl:
            self.last = max(self.last, line.batch)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(line, name))
        self.servers = self.servers.union(line.servers)
        self.keys = self.keys.union(map(tuple, line.keys))


@dataclass(slots=True)
class Books:
    """The audit counts as gold needs them, kept between the ticks of one session.

    ``complete`` is the last batch that every mirror has folded, except lagging ones. Later lines are kept one by one;
    so are those of a lagging mirror after its own progress.
    """

    complete: int
    last: int
    sums: dict[LaneId, LaneSums] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    # by path, the last batch that a lagging mirror has folded
    lagging: dict[str, int] = field(default_factory=dict)

    def applied(self, path: str) -> int:
        """The last batch that a mirror has folded, if known without reading its log."""
        return self.lagging.get(path, self.complete)

    @property
    def lanes(self) -> set[LaneId]:
        """The source tables that have sent rows; a truncate may spell its table in another letter case."""
        of_old = {name for name, past in self.sums.items() if past.of_rows}
        return of_old | {(line.source, line.table_id) for line in self.lines if line.of_rows}

    @property
    def changes(self) -> int:
        """The number of changes in its lines."""
        return sum(line.changes for line in self.lines)

    def before(self, batch: int) -> Books:
        """The same books, cut off before a batch."""
        return replace(self, last=batch - 1)


def open_books(lake: Tables, complete: int, last: int) -> Books:
    """Read the books: sums up to ``complete``, single lines after it."""
    books = Books(complete, last)
    table = f'(SELECT * FROM {{books}} WHERE batch <= {last} AND ("table" IS NOT NULL OR ddl > 0)) AS b'
    books.sums = _sums(lake, table, f"batch <= {complete}") if complete > 0 else {}
    books.lines = _lines(lake, table, f"batch > {complete}")
    return books


def catch_up(lake: Tables, books: Books, lagging: Mapping[str, int]) -> Books:
    """The same books, with single lines for lagging mirrors after their own progress."""
    books_now = replace(books, sums=dict(books.sums), lagging=dict(lagging))
    lanes = [
        (*name[:1], *name[1], lagging[path])
        for name, (*_, path) in routes_of(lake.pipeline, books)
        if path in lagging
    ]
    if not lanes:
        return books_now
    for name in [(source, TableId(*table)) for source, *table, _ in lanes]:
        del books_now.sums[name]
    values = ", ".join(f"({', '.join(map(duck.value, lane))})" for lane in lanes)
    same = duck.same(duck.LANE, "o", "w")
    table = (
        f"(SELECT o.*, w.applied FROM {{books}} AS o JOIN (VALUES {values}) AS w({duck.LANE_SQL}, applied) ON {same} "
        f"WHERE o.batch <= {books.complete}) AS b"
    )
    books_now.sums |= _sums(lake, table, "batch <= applied")
    books_now.lines = [*_lines(lake, table, "batch > applied"), *books.lines]
    return books_now


def caught_up(
    lake: Tables,
    books: Books,
    mirrors_by_path: Mapping[str, Mirror],
    lagging: Collection[str],
    resting: Collection[str],
) -> Books:
    """The same books, with single lines for each mirror that has not folded all that they sum up, unless it rests."""
    touched = {job.path for job in jobs(lake.pipeline, books)}.difference(resting)
    return catch_up(
        lake, books, incomplete(lake, books, mirrors_by_path, touched, {*lagging}.difference(resting))
    )


def incomplete(
    lake: Tables,
    books: Books,
    mirrors_by_path: Mapping[str, Mirror],
    touched: Collection[str],
    lagging: Collection[str],
) -> dict[str, int]:
    """The mirrors that have not folded all batches that the books sum up, each with the last one it has folded.

    A mirror that is not known yet lacks all of them, unless only statements and truncates ever arrived for it.

    Args:
        lake: the lake.
        books: its books.
        mirrors_by_path: each mirror's schema as last decided.
        touched: the paths of mirrors with new batches.
        lagging: those of unfinished mirrors; each repeats at least its last batch.
    """
    routes = [
        (path, books.sums[name], rule)
        for name, (rule, _, path) in routes_of(lake.pipeline, books)
        if (path in touched or path in lagging) and (path in mirrors_by_path or books.sums[name].of_rows)
    ]
    last = last_batches((path, past) for path, past, _ in routes)
    with_history = {path for path, _, rule in routes if rule.history}

    def have(path: str) -> int:
        try:
            return folded(
                lake, mirrors_by_path.get(path), states=path in with_history, lagging=path in lagging
            )
        except Exception:  # a damaged log, for example: its own fold reports it, and the others continue
            return last[path]

    with ThreadPoolExecutor(LOOKS) as pool:
        applied = dict(zip(last, pool.map(have, last), strict=True))
    applied |= {path: min(applied[path], last[path] - 1) for path in applied if path in lagging}
    return {path: max(0, batch) for path, batch in applied.items() if batch < last[path]}


def last_batches(sums: Iterable[tuple[str, LaneSums]]) -> dict[str, int]:
    """The last batch of each mirror, from the sums of its lanes, each given with the mirror's path."""
    last: dict[str, int] = {}
    for path, past in sums:
        last[path] = max(last.get(path, 0), past.last)
    return last


class _Route(NamedTuple):
    """Where a source table's rows go."""

    rule: TableRule
    mirror: TableId
    path: str


def _route(pipeline: Pipeline, table: TableId) -> _Route:
    rule = pipeline.rule(table)
    mirror = target(rule, table)
    return _Route(rule, mirror, mirror_path(mirror))


def routes_of(pipeline: Pipeline, books: Books) -> Iterator[tuple[LaneId, _Route]]:
    """The lanes in the books' sums that have mirrors."""
    for name in books.sums:
        route = _route(pipeline, name[1])
        if name[1].table is not None and not route.rule.exclude:
            yield name, route


def _sums(lake: Tables, table: str, where: str) -> dict[LaneId, LaneSums]:
    rows = lake.ask(
        f"""SELECT {duck.LANE_SQL}, coalesce(max(order_high), '') AS high,
        max(CASE WHEN changes > 0 OR ddl > 0 THEN batch END) AS last, {duck.sums(_SUMS)},
        list(DISTINCT servers) AS servers, list(DISTINCT keys) AS keys FROM {table} WHERE {where} GROUP BY {duck.LANE_SQL}"""
    )
    return {
        lane_of(row): LaneSums(
            row["high"],
            row["last"] or 0,
            servers={*chain.from_iterable(map(object_in, row["servers"] or ()))},
            keys={*map(tuple, chain.from_iterable(map(list_in, row["keys"] or ())))},
            **{name: row[name] or 0 for name in _SUMS},
        )
        for row in rows
    }


def _lines(lake: Tables, table: str, where: str) -> list[Line]:
    return [_line(row) for row in lake.ask(f"SELECT b.* FROM {table} WHERE {where}")]


def stated(pipeline: Pipeline, books: Books, statements: Iterable[Statement]) -> Books:
    """The books with statements counted under the tables that they name, too.

    A message is counted under its own table, if it names one; its statement may concern other tables.
    """
    sums, lines = dict(books.sums), list(books.lines)
    applied = cache(lambda table: books.applied(_route(pipeline, table).path))
    for statement in statements:
        for table in statement.tables:
            name = statement.source, table
            if statement.batch <= applied(table):
                sums[name] = sums.get(name, LaneSums()).with_statement(statement)
            elif statement.batch <= books.last:
                line = Line(statement.batch, statement.source, None, None, *table, ddl=1)
                line.order_low = line.order_high = statement.order
                lines.append(line)
    return replace(books, sums=sums, lines=lines)


def _line(row: Row) -> Line:
    row.pop("applied", None)
    row["keys"] = list_in(row["keys"])
    for name in ("columns", "lacks", "servers"):
        row[name] = object_in(row.get(name))
    row["announced"] = announcements(row.get("announced"))
    row.pop("layouts", None)  # the statements that they stand for are in the ledger
    row.pop("load_marks", None)  # gold folds what a load has, and only the checks look at what it lacks
    row["event_low"] = row["event_high"] = None  # gold never orders by a clock
    return Line(**row)


@dataclass(slots=True)
class Job:
    """One mirror with new batches: its lanes' lines, and the keys and columns in them."""

    table: TableId
    path: str
    rule: TableRule
    lines: dict[LaneId, list[Line]] = field(default_factory=dict)
    applied: int = 0  # the last batch that the mirror has folded, if known without reading its log
    first_rows: int = 0  # the batch of the first rows, or the last one folded if that is later
    differing: frozenset[str] = frozenset()  # what the rules of its tables say otherwise, new lines or not
    lanes: frozenset[LaneId] = frozenset()  # all that have sent rows, if several may feed one mirror
    older: frozenset[TableId] = frozenset()  # the tables of those that have sent some before its new lines

    @property
    def merged(self) -> bool:
        """True if rows of several lanes are distinguished by their key alone."""
        return len(self.lanes) > 1 and not self.rule.shard_column

    @property
    def every_line(self) -> Iterator[Line]:
        """The lines of all its lanes."""
        return chain.from_iterable(self.lines.values())

    @property
    def first(self) -> int:
        """The oldest batch that the job may fold."""
        return min(line.batch for line in self.every_line)

    @property
    def has_changes(self) -> bool:
        """True if there are changes of rows, not statements and truncates alone."""
        return any(line.of_rows for line in self.every_line)

    @property
    def feeding(self) -> dict[TableId, int]:
        """The source tables with rows, if several may feed the mirror, each with the batch of its first ones.

        It is 0 before the new lines, and beyond all batches for rows that are not folded yet, because a statement holds them.
        """
        first = {table: 0 if table in self.older else sys.maxsize for _, table in self.lanes}
        for (_, table), lines in self.lines.items():
            if table in first:
                first[table] = min([first[table], *(line.batch for line in lines if line.changes)])
        return first

    def before(self, batch: int) -> Job:
        """The job without that batch and later ones."""
        lines = {name: [line for line in lines if line.batch < batch] for name, lines in self.lines.items()}
        return replace(self, lines=lines)

    def columns_of(self, name: LaneId) -> dict[str, str]:
        """All columns that a lane's new rows show, with their logical types, in order."""
        seen: dict[str, str] = {}
        for line in sorted(self.lines.get(name, ()), key=lambda line: (line.batch, line.order_high or "")):
            seen = merged_columns(seen, line.columns)
        return seen


def jobs(pipeline: Pipeline, books: Books, mirrors_by_path: Mapping[str, Mirror] | None = None) -> list[Job]:
    """The mirrors that have something to fold, in stable order; ``mirrors_by_path`` are those decided before, by path."""
    by_path: dict[str, Job] = {}
    for line in books.lines:
        rule, table, path = _route(pipeline, line.table_id)
        if line.table is None or rule.exclude or not (line.changes or line.ddl):
            continue
        job = by_path.setdefault(path, Job(table, path, rule, applied=books.applied(path)))
        lines = job.lines.setdefault((line.source, line.table_id), [])
        lines += [line]
    for job in by_path.values():
        batches = [line.batch for line in job.every_line if line.changes]
        is_old = any(name in books.sums for name in job.lines)
        job.first_rows = job.applied if is_old else min(batches, default=books.last)
    ruled = any(rule.shape or rule.into for rule in pipeline.tables)
    if (
        ruled
        or len(pipeline.sources) > 1
        or any(mirror.fed_by for mirror in (mirrors_by_path or {}).values())
    ):
        _add_other_lanes(pipeline, books, by_path)
    return [by_path[path] for path in sorted(by_path)]


def _add_other_lanes(pipeline: Pipeline, books: Books, by_path: Mapping[str, Job]) -> None:
    """Add the lanes that have fed the jobs' mirrors before, and how the rules of all their tables differ."""
    for name, (rule, _, path) in routes_of(pipeline, books):
        if path in by_path:
            by_path[path].differing |= {*rule.differing(by_path[path].rule)}
            if books.sums[name].changes:
                by_path[path].lanes |= {name}
                by_path[path].older |= {name[1]}
    for job in by_path.values():
        rules = (pipeline.rule(table) for _, table in job.lines)
        job.differing |= {name for rule in rules for name in rule.differing(job.rule)}
        rows = (name for name, lines in job.lines.items() if any(line.changes for line in lines))
        job.lanes = feeding(pipeline, job.lanes.union(rows))


class LaneKeys(NamedTuple):
    """How a lane's rows are identified: by which columns now and before.

    If they are ``declared``, moves were counted by the declared names, whatever the columns were called then; if the lane
    is ``merged`` with others, rows of several lanes are distinguished by their key alone.
    """

    keys: Collection[str] = ()
    eras: tuple[Era, ...] = ()
    declared: bool = False
    merged: bool = False

    def counted(self, sums: LaneSums) -> LaneSums:
        """The counts by these keys."""
        return sums.recounted(self.keys, () if self.declared else self.eras)


def pending_lane(
    books: Books, name: LaneId, lines: Iterable[Line], applied: int, by: LaneKeys
) -> Lane | None:
    """A lane for `gather`, of a mirror that has folded up to ``applied``; None if it is up to date and not merged."""
    past, new = replace(books.sums.get(name, LaneSums())), LaneSums()
    lows: list[str] = []
    first = books.last + 1
    for line in sorted(lines, key=lambda line: line.batch):
        if line.batch <= applied:
            past.add(line)
            continue
        first = min(first, line.batch)
        new.add(line)
        if line.changes and line.order_low is not None:
            lows.append(line.order_low)
    if first > books.last and not by.merged:
        return None
    return _lane(name, past, new, by, first=first, last=books.last, order_low=min(lows, default=""))


def lanes_of(pipeline: Pipeline, books: Books, path: str) -> list[LaneId]:
    """Every lane whose rows a mirror holds, including those without new batches."""
    lanes_with_rows = [
        *books.sums,
        *((line.source, line.table_id) for line in books.lines if line.batch <= books.last),
    ]
    named = [
        name
        for name in dict.fromkeys(lanes_with_rows)
        if name[1].table is not None and _route(pipeline, name[1]).path == path
    ]
    kept = feeding(pipeline, named)
    return [name for name in named if name in kept]


def whole_lane(books: Books, name: LaneId, by: LaneKeys) -> Lane:
    """A lane as in a mirror's first run: everything is new."""
    every = replace(books.sums.get(name, LaneSums()))
    for line in books.lines:
        if (line.source, line.table_id) == name and line.batch <= books.last:
            every.add(line)
    return _lane(name, LaneSums(), every, by, first=0, last=books.last, order_low="")


def _lane(name: LaneId, past: LaneSums, new: LaneSums, by: LaneKeys, **given: Any) -> Lane:
    """A lane with the counts of what its mirror has folded and of what it has not."""
    past, new = by.counted(past), by.counted(new)
    return Lane(
        *name,
        folded_high=past.high if past.changes else "",
        last_folded=past.last,
        changes=new.changes,
        inserts=new.of_rows - new.updates - new.deletes,
        new=ChangeKinds(bool(new.partials), bool(new.key_changes)),
        ever=ChangeKinds(bool(new.partials + past.partials), bool(new.key_changes + past.key_changes)),
        deletes=new.deletes,
        truncates=new.truncates,
        inherits=new.inherits,
        inherits_ever=new.inherits + past.inherits,
        changes_ever=new.changes + past.changes,
        eras=by.eras,
        merged=by.merged,
        **given,
    )
