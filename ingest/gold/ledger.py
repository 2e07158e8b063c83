"""The DDL ledger for gold: logged statements by lane, with the operator's decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ingest import types
from ingest.change import TableId
from ingest.gold import policy
from ingest.gold.work import Books, Job, LaneSums
from ingest.lake.adjusted_names import alike
from ingest.lake.announced import announced
from ingest.lake.books import Line
from ingest.lake.duck import name
from ingest.lake.lanes import came_between, sent_columns
from ingest.lake.logged_statements import COUNTING, Statement, carried, counting, decided, done, recorded
from ingest.lake.mirrors import Mirror
from ingest.lake.resolve import Lanes, resolved
from ingest.lake.tables import Tables

_COLUMNS = (
    "batch", "source", "topic", "partition", "offset", "row", "database", "schema", "table", "order_key",
    "statement", "class", "effects", "event_time",
)  # fmt: skip


@dataclass(slots=True)
class Ledger:
    """Statements in order. Those that a connector emits for its own snapshot only describe their tables."""

    statements: list[Statement] = field(default_factory=list)
    recorded: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    done: dict[tuple[str, str], str] = field(
        default_factory=dict
    )  # the states by which rows were folded last

    def of(self, source: str, table: TableId, last: int | None = None) -> list[Statement]:
        """The statements about a lane's table, of batches up to ``last``."""
        return [
            statement
            for statement in self.statements
            if statement.source == source
            and (last is None or statement.batch <= last)
            and policy.concerns(statement, table)
        ]

    def states(self, path: str, statements: Iterable[Statement]) -> dict[str, str]:
        """By which states a mirror's rows were folded, by the statements' ids: what was decided since counts from now on."""
        states = {
            statement.id: self.done.get((path, statement.id), "")
            for statement in statements
            if not statement.decided
        }
        return {name: state for name, state in states.items() if state}


def read(lake: Tables, lanes: Lanes, last: int | None = None) -> Ledger:
    """Read the ledger: DDL is rare, so one read serves all mirrors.

    Args:
        lake: the lake.
        lanes: the source tables that have sent rows; statements refer to their names.
        last: the last batch whose statements are read; None for all.
    """
    until = "" if last is None else f" AND batch <= {last}"
    rows = lake.ask(f"SELECT {', '.join(map(name, _COLUMNS))} FROM {{ddl}} WHERE {COUNTING}{until}")
    said = decided(lake)
    logged = counting(rows, said, carried(lake, last)) if rows else []
    statements = resolved(logged, lanes, sent_columns(lake), came_between(lake)) if rows else []
    statements = announced(lake, statements, said, last)
    return Ledger(statements, recorded(lake), done(lake)) if statements else Ledger()


def of_batch(lake: Tables, books: Books, work: Iterable[Job], decided: Mapping[str, Mirror]) -> Ledger:
    """The ledger up to the books' last batch; empty if no job of it needs one."""
    if not _is_needed(books, work, decided):
        return Ledger()
    return read(lake, books.lanes, books.last)


def _is_needed(books: Books, work: Iterable[Job], decided: Mapping[str, Mirror]) -> bool:
    """True if the mirror is new or lags, if there are new statements or columns, if changes are older than a statement of
    their source or than other changes, or if a mirror's earlier rows are folded again, which statements have changed, or if it
    has a column under two names, as an older version left it.

    A statement may concern other tables than its message names, and rows may stand for one (`ingest.lake.announced`).
    """
    if books.lagging or any(line.ddl for line in books.lines):
        return True
    highest: dict[str, str] = {}
    for (source, _), past in books.sums.items():
        highest[source] = max(highest.get(source, ""), past.stated)
    for line in books.lines:
        past = books.sums.get((line.source, line.table_id), LaneSums())
        if (line.order_low or "") <= max(highest.get(line.source, ""), past.high):
            return True
    return any(
        job.merged
        or job.path not in decided
        or alike(decided[job.path].by_name)
        or any(_reads_history(job, decided[job.path], line) for line in job.every_line)
        for job in work
    )


def _reads_history(job: Job, mirror: Mirror, line: Line) -> bool:
    """True if the changes of a line may require earlier ones: without a key, for values that a changed key, a deleted
    row or an expression needs, for old states, and for a column that is new or of another type; or if they name no key,
    which an earlier statement may have dropped.
    """
    keys = set(mirror.keys) - {job.rule.shard_column}
    of_mirror = mirror.logical_types
    rekeys = not all(keys <= set(key) for key in line.keys)
    return (
        not keys
        or mirror.soft
        or job.rule.history
        or bool(line.changes and not line.keys and not job.rule.keys)
        or bool(mirror.expressions or line.inherits)
        or bool(line.partials and rekeys)
        or bool(line.lacks)
        or any(
            types.outgrows(of_mirror[name], column) if name in of_mirror else not job.rule.leaves_out(name)
            for name, column in line.columns.items()
        )
    )
