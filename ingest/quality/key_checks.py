"""Compare every touched mirror's keys with the changes, and name the keys of faults.

DuckDB counts and names them (`ingest.quality.many_keys`). No code is shared with the stage that wrote the mirrors: a check that
repeats the checked code's mistakes finds none. For a large mirror only the batch's keys are compared; the remaining rows are
just counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame

from ingest.ledgers.cleared import Cleared
from ingest.ledgers.logged_statements import Statement, by_lane, done
from ingest.quality import many_keys
from ingest.quality.catalogue import complains
from ingest.quality.key_sides import Side
from ingest.quality.subjects import CheckedMirror
from ingest.store import faults
from ingest.store.names import quoted
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables

EXPLAINED = 20  # complaints of one run whose keys are looked up
TOGETHER, SMALL = 50, 16 << 20  # mirrors whose keys are counted by one query, and bytes of them together


@dataclass(slots=True)
class Counted:
    """The result for one mirror: numbers by check, and a sample of failing keys."""

    numbers: dict[str, int]
    failing: dict[str, tuple[str, ...]] = field(default_factory=dict)


Began = Mapping[str, dict[int, Cleared]]
"""By mirror's path: where its lanes began again, each by its place among the mirror's."""
NOWHERE: Began = MappingProxyType({})


def beginnings(
    lake: Lake, chosen: Sequence[CheckedMirror], since: int, logged: Sequence[Statement]
) -> dict[str, dict[int, Cleared]]:
    """Where tables of some mirrors began again, by the DDL ledger."""
    began: dict[str, dict[int, Cleared]] = {}
    about, states = by_lane(logged), done(lake)
    for subject in chosen:
        side = Side(lake, subject, since, 0)
        side.begins(about, states)
        if side.cleared:
            began[subject.path] = side.cleared
    return began


def count(
    lake: Lake, chosen: Sequence[CheckedMirror], since: int, began: Began = NOWHERE
) -> dict[str, Counted]:
    """Every mirror's key checks by its path; mirrors without a table or a known key are left out.

    The changes of batches after ``since`` are compared; 0 compares everything.
    """
    passes = [
        Side(lake, subject, since, i, dict(began.get(subject.path, {})))
        for i, subject in enumerate(chosen)
        if subject.is_readable
    ]
    counts: dict[str, Counted] = {}
    if not passes:
        return counts
    left = EXPLAINED
    with many_keys.opened(lake) as keys:
        try:
            keys.take(passes)
        except Exception as error:
            for side in passes:
                if side.lanes:
                    _note(lake, side.subject, error)
        for group in _together(lake, [side for side in passes if not side.subject.damage]):
            numbers: dict[int, many_keys.Numbers] = {}
            with suppress(Exception):  # of one of them, whose own query will meet it again
                numbers = keys.numbers(group)
            for side in group:
                with damage_noted(lake, side.subject):
                    answered = numbers or keys.numbers([side])
                    counted = counts[side.subject.path] = Counted(answered[side.index])
                    wrong = [name for name, n in counted.numbers.items() if n and complains(name)]
                    counted.failing |= {name: keys.failing(side, name) for name in wrong[: max(0, left)]}
                    left -= len(wrong)
    return counts


def _together(lake: Lake, sides: Sequence[Side]) -> Iterator[list[Side]]:
    """The mirrors in groups of one query: small ones together, where it reads their files."""
    group: list[Side] = []
    for side in sides:
        size = sum(each.subject.size for each in [*group, side])
        if group and (len(group) == TOGETHER or size > SMALL or not lake.is_local):
            yield group
            group = []
        group.append(side)
    if group:
        yield group


@contextmanager
def damage_noted(lake: Tables, subject: CheckedMirror) -> Iterator[None]:
    """Note why a mirror cannot be read; the others are still checked."""
    try:
        yield
    except Exception as error:
        _note(lake, subject, error)


def _note(lake: Tables, subject: CheckedMirror, error: Exception) -> None:
    subject.damage = faults.of_mirror(error, lake, subject.name, subject.path)


def changed_keys(lake: Lake, subject: CheckedMirror, since: int) -> pa.Table | None:
    """The keys of the changes after a batch, in the columns of the mirror; None if its changes do not contain them."""
    side = Side.of_new(lake, subject, since)
    if since <= 0 or not side.lanes:
        return None
    with many_keys.opened(lake) as keys:
        return keys.changed(side)


def changed_rows(lake: Lake, subject: CheckedMirror, since: int) -> DataFrame | None:
    """Rows whose key changed after a batch; None if that is unknown."""
    keys = changed_keys(lake, subject, since)
    if keys is None:
        return None
    rows, changed = lake.read(subject.path), lake.spark.createDataFrame(keys)
    return rows.join(
        changed, [rows[quoted(name)] == changed[quoted(name)] for name in keys.column_names], "left_semi"
    )
