"""Compare every touched mirror's keys with the changes: for many changes by Spark, in one job.

Rows of mirrors and changes meet under the hash of their typed key, so that one shuffle of numbers
counts rows, doubled and empty keys, missing and ghost rows, ties and repetitions for all mirrors.
Faults are looked up again, key by key, for the report. No code is shared with the stage that wrote the mirrors: a check
that repeats the checked code's mistakes finds none. For a large mirror only the batch's keys are compared; the
remaining rows are just counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from ingest.lake import faults
from ingest.lake.lake import Lake
from ingest.lake.names import quoted
from ingest.lake.statements import Statement
from ingest.quality.catalogue import FAILING_KEYS, LEFT_OUT
from ingest.quality.key_sql import Side, by_changes, changes, events, groups, keyed
from ingest.quality.subjects import CheckedMirror
from ingest.quality.touched_keys import complains, sound
from ingest.spark.session import new_session

AT_ONCE = 50  # mirrors per job: planning time grows faster than their number
EXPLAINED = 20  # complaints of one run whose keys are looked up
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
BY_CHANGES = "by_changes"  # view of what the changes say

# What each check counts in a key's group; `alive` is NULL if no change concerns the key, and `h` is NULL for the one
# group of all rows that need no separate group.
FAULTS = {
    "key_not_null": "empty",
    "key_unique": "CASE WHEN n > 0 AND empty = 0 AND h IS NOT NULL THEN n - 1 ELSE 0 END",
    "missing_rows": "CAST(alive <=> 1 AND n = 0 AS BIGINT)",
    LEFT_OUT: "CAST(alive <=> 1 AND n = 0 AS BIGINT)",
    "ghost_rows": "CAST(alive <=> 0 AND n > 0 AND empty = 0 AS BIGINT)",
    "ambiguities": "ties",
    "duplicates": "repeats",
    "incomplete_rows": "CAST(alive <=> 1 AND n > 0 AND whole = 0 AS BIGINT)",
}


@dataclass(slots=True)
class Counted:
    """The result for one mirror: numbers by check, and a sample of failing keys."""

    numbers: dict[str, int]
    failing: dict[str, tuple[str, ...]] = field(default_factory=dict)


def count(
    lake: Lake, chosen: Sequence[CheckedMirror], since: int, logged: Sequence[Statement] = ()
) -> dict[str, Counted]:
    """Every mirror's key checks by its path; mirrors without a table or a known key are left out.

    The changes of batches after ``since`` are compared; 0 compares everything. ``logged`` is the DDL ledger.
    """
    passes = [
        Side(lake, one, since, i)
        for i, one in enumerate(chosen)
        if one.exists and one.mirror and not one.damage
    ]
    for one in passes:
        one.begins(logged)
    found = {path: Counted(numbers) for path, numbers in sound(lake, passes).items()}
    passes = [one for one in passes if one.subject.path not in found]
    if not passes:
        return found
    own = session(lake)

    def counted(some: Sequence[Side]) -> dict[str, Counted]:
        work = _Some(own, some)
        work.clear()
        new = work.counted()
        work.explain(new, EXPLAINED - sum(len(one.failing) for one in (found | new).values()))
        return new

    for start in range(0, len(passes), AT_ONCE):
        for part in apart(lake, passes[start : start + AT_ONCE], counted, lambda one: one.subject):
            found.update(part)
    return found


def apart(
    lake: Lake,
    some: Sequence[_Item],
    work: Callable[[Sequence[_Item]], _Found],
    subject: Callable[[_Item], CheckedMirror],
) -> Iterator[_Found]:
    """Do work for many mirrors at once; if that fails, for each alone, so that only damaged ones have no result."""
    try:
        yield work(some)
        return
    except Exception as error:
        if len(some) == 1:
            mine = subject(some[0])
            mine.damage = faults.of_mirror(error, lake, mine.name, mine.path)
            return
    for one in some:
        yield from apart(lake, [one], work, subject)


def changed_rows(lake: Lake, subject: CheckedMirror, since: int) -> DataFrame | None:
    """Rows whose key changed after a batch; None if that is unknown."""
    one = Side.of_new(lake, subject, since)
    found = list(events([one])) if since > 0 else []
    if not found:
        return None
    names = ", ".join(f"r.{quoted(column.column)}" for column in one.columns)
    return session(lake).sql(
        f"SELECT r.* FROM {lake.named(subject.path)} r LEFT SEMI JOIN ({found[0]}) e "
        f"ON xxhash64({names}) = e.h"
    )


def session(lake: Lake) -> SparkSession:
    """A session with case-sensitive names."""
    found = new_session(lake.spark)
    found.conf.set("spark.sql.caseSensitive", "true")
    found.conf.set("spark.sql.variable.substitute", "false")
    return found


@dataclass(slots=True)
class _Some:
    """Mirrors that are counted in one job."""

    session: SparkSession
    passes: Sequence[Side]

    def clear(self) -> None:
        """Record where each lane was last emptied: no earlier row may be in its mirror."""
        lanes = [
            (one, i, lane)
            for one in self.passes
            for i, lane in one.lanes
            if lane.truncates or (lane.truncates_ever and lane.floor)
        ]
        if not lanes:
            return
        newest = "max(struct(order_key, batch)) AS at"
        text = f"SELECT m, lane, {newest} FROM ({changes(lanes)}) WHERE op = 'truncate' GROUP BY m, lane"
        by_index = {one.index: one for one in self.passes}
        for row in self.session.sql(text).collect():
            by_index[row["m"]].clear(row["lane"], row["at"]["order_key"], row["at"]["batch"])

    def counted(self) -> dict[str, Counted]:
        """Every check's number."""
        sums = ", ".join(f"sum({fault}) AS {name}" for name, fault in FAULTS.items())
        with self._changes_once() as view:
            text = f"SELECT m, sum(n) AS rows, {sums} FROM ({groups(self.passes, view)}) GROUP BY m"
            by_index = {row["m"]: row for row in self.session.sql(text).collect()}
        found = {}
        for one in self.passes:
            row, names = by_index.get(one.index), ("rows", *(name for name in FAULTS if one.asks(name)))
            found[one.subject.path] = Counted({name: int((row and row[name]) or 0) for name in names})
        return found

    @contextmanager
    def _changes_once(self) -> Iterator[str]:
        """The name of a view of the changes' side if it is needed more than once, else empty."""
        found = list(events(self.passes))
        if not found or not any(one.mostly_untouched for one in self.passes):
            yield ""
            return
        held = self.session.sql(by_changes(found)).persist()
        try:
            held.createOrReplaceTempView(BY_CHANGES)
            yield BY_CHANGES
        finally:
            held.unpersist()

    def explain(self, found: Mapping[str, Counted], left: int) -> None:
        """Look up the keys of faults; a limit keeps a broken lake from taking all day."""
        for one in self.passes:
            counted = found[one.subject.path]
            wrong = [name for name, n in counted.numbers.items() if n and complains(name)]
            for check in wrong[: max(0, left)]:
                counted.failing[check] = self._failing(one, check)
            left -= len(wrong)

    def _failing(self, one: Side, check: str) -> tuple[str, ...]:
        if check in ("key_unique", "key_not_null"):
            return self._failing_rows(one, check)
        hashes = self._hashes(f"SELECT h FROM ({groups([one])}) WHERE {FAULTS[check]} > 0")
        lanes = [(one, i, lane) for i, lane in enumerate(one.subject.lanes)]
        found = one.rows() if check == "ghost_rows" else keyed(one.signature, lanes)
        return self._keys(one, found, hashes)

    def _failing_rows(self, one: Side, check: str) -> tuple[str, ...]:
        """Doubled or empty keys, from the mirror alone."""
        bad = f"SELECT h FROM ({one.rows()}) WHERE empty"
        if check == "key_unique":
            names = ", ".join(f"k{i}" for i in range(len(one.columns)))
            bad = f"SELECT h FROM ({one.rows()}) WHERE NOT empty GROUP BY h, {names} HAVING count(*) > 1"
        return self._keys(one, one.rows(), self._hashes(bad))

    def _hashes(self, text: str) -> list[int]:
        return [row["h"] for row in self.session.sql(f"{text} LIMIT {FAILING_KEYS}").collect()]

    def _keys(self, one: Side, found: str, hashes: Iterable[int]) -> tuple[str, ...]:
        """The keys of hashes, as JSON."""
        wanted = ", ".join(f"CAST('{h}' AS BIGINT)" for h in hashes) or "NULL"
        text = f"SELECT DISTINCT {one.key_json()} AS key FROM ({found}) WHERE h IN ({wanted})"
        return tuple(sorted(row["key"] for row in self.session.sql(f"{text} LIMIT {FAILING_KEYS}").collect()))
