"""The checks of keys without a Spark job.

The last change of each key says whether the mirror must have its row; delta-rs and DuckDB read the mirror's keys. Many
changes are counted by DuckDB alone (`ingest.quality.many_keys`). A mirror with a fault is left to the Spark pass (`ingest.quality.key_checks`), which names the keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.change import Op, TableId
from ingest.fold import Key, KeyCellError, key_of_change
from ingest.lake import duck
from ingest.lake.lake import Lake
from ingest.lake.schemas import CHANGES
from ingest.order import is_weak, same_place
from ingest.quality import many_keys
from ingest.quality.arrow_rows import FOUND, changes_since, mirror_rows, read
from ingest.quality.catalogue import CHECKS
from ingest.quality.cell_diff import change_of, key_of_row
from ingest.quality.key_sql import LARGE, Side
from ingest.quality.subjects import CheckedMirror
from ingest.spark.deferred import patience

MOST = 20_000  # changes of all mirrors together
_LANE = ("source", "database", "schema", "table")
_COLUMNS = (*_LANE, "batch", "topic", "partition", "offset", "op", "order_key", "partial", "before", "after")
_INEXACT = ("FLOAT", "DOUBLE")


@dataclass(slots=True)
class _KeyState:
    """The changes' result for one key."""

    last: tuple[str, int, bool] = ("", 0, True)  # order key, half of the change, whether the row is deleted
    whole: bool = False  # some change set all columns
    places: dict[str, tuple[object, object, bool, bool]] = field(default_factory=dict)

    def take(self, row: Mapping[str, Any], half: int, *, gone: bool) -> None:
        """Add one change; with `half` 0 the row leaves this key for another."""
        self.last = max(self.last, (row["order_key"], half, gone))
        self.whole |= row["op"] != Op.UPDATE or not row["partial"]
        place = row["order_key"] if is_weak(row["order_key"]) else same_place(row["order_key"])
        message = tuple(row[name] for name in ("batch", "topic", "partition", "offset"))
        content = tuple(row[name] for name in ("op", "before", "after"))
        first = self.places.get(place)
        if first is None:
            self.places[place] = message, content, False, True
        else:
            again, same = first[2] or message != first[0], first[3] and content == first[1]
            self.places[place] = (*first[:2], again, same)


def sound(lake: Lake, sides: Sequence[Side]) -> dict[str, dict[str, int]]:
    """The numbers of the mirrors without faults, by path; other mirrors are left out."""
    if not lake.is_local:
        return {}
    simple = [one for one in sides if _is_simple(one)]
    most = MOST * patience(lake.spark, 2)
    if _changes(simple) > most:  # those with late changes may be too many because of their histories
        simple = [one for one in simple if not _is_late(one)]
    counted: dict[int, dict[str, int]] = {}
    with suppress(Exception):  # the Spark pass reports what cannot be read
        if _changes(simple) <= most:
            counted = _of_few(lake, simple)
        else:
            simple = [one for one in simple if one.subject.mirror is not None and not one.subject.mirror.eras]
            counted = {one.index: _of_all_rows(lake, one) for one in simple if not one.subject.keyed}
            counted |= many_keys.numbers(lake, simple)
    return {
        one.subject.path: counted[one.index]
        for one in simple
        if one.index in counted and not any(n and complains(name) for name, n in counted[one.index].items())
    }


def changed(lake: Lake, subject: CheckedMirror, since: int) -> Collection[Key] | None:
    """The keys of the changes after a batch; None if Spark has to look for them."""
    one = Side.of_new(lake, subject, since)
    if not one.lanes or not _is_simple(one) or _changes([one]) > MOST:
        return None
    return _states(lake, [one])[0].keys()


def complains(check: str) -> bool:
    """True of a check that has a limit."""
    return check in CHECKS and CHECKS[check].limit is not None


def _is_simple(one: Side) -> bool:
    """True if the changes determine which of their keys have rows, and no large mirror is counted for late ones."""
    mirror, there = one.subject.mirror, one.subject.types
    assert mirror is not None
    kinds = [column.delta for column in mirror.key_columns]
    if any(there.get(column.column) != column.delta for column in mirror.key_columns):
        return False
    found = all(kind in FOUND or kind.startswith("DECIMAL") for kind in kinds)
    return (one.subject.size < LARGE or (found and not _is_late(one))) and not set(kinds) & {*_INEXACT}


def _is_late(one: Side) -> bool:
    return any(lane.floor for _, lane in one.lanes)


def _changes(some: Iterable[Side]) -> int:
    """The changes that may have to be read."""
    lanes = (lane for one in some for _, lane in one.lanes)
    return sum(
        10 + lane.changes_ever if lane.floor else lane.changes for lane in lanes
    )  # late ones are listed


def _of_few(lake: Lake, sides: Sequence[Side]) -> dict[int, dict[str, int]]:
    """Every mirror's numbers, by its index; mirrors that cannot be read are left out."""
    found: dict[int, dict[str, int]] = {}
    states = _states(lake, sides)
    for one in sides:
        with suppress(Exception):
            found[one.index] = _numbers(lake, one, states[one.index])
    return found


def _states(lake: Lake, sides: Sequence[Side]) -> dict[int, dict[Key, _KeyState]]:
    """The new changes' results for each mirror's keys, by the mirror's index."""
    lanes: dict[tuple[str, TableId], list[tuple[Side, int, str]]] = {}
    for one in sides:
        for i, lane in one.lanes:  # a table's changes go into several mirrors with ``also:``
            lanes.setdefault((lane.source, lane.table), []).append((one, i, lane.floor or ""))
    found: dict[int, dict[Key, _KeyState]] = {one.index: {} for one in sides}
    if not lanes:
        return found
    rows = []
    late = {name: floor for name, some in lanes.items() for _, _, floor in some if floor}
    since, floor = sides[0].since, min(late.values(), default="")
    wanted = changes_since(since, (table.table for _, table in lanes), late, floor)
    for row in (row for page in read(lake, CHANGES.name, _COLUMNS, wanted) for row in page.to_pylist()):
        table = TableId.of(row)
        for one, i, floor in lanes.get((row["source"], table), ()):
            early = row["batch"] <= since and not (floor and row["order_key"] >= floor)
            if row["batch"] > one.subject.applied or early:
                continue
            if row["op"] == Op.TRUNCATE:
                one.clear(i, row["order_key"], row["batch"])
            else:
                rows.append((one, i, row))
    above = {(one.index, i): one.above(i, lane) for one in sides for i, lane in one.lanes}
    for one, i, row in rows:
        if row["order_key"] <= above[one.index, i]:
            continue
        change = change_of({**row, "types": None}, None)
        try:
            concerned = key_of_change(change, tuple(name for name, _ in one.signature), dict(one.signature))
        except KeyCellError:  # rejected by the fold: it has no row
            continue
        states = found[one.index]
        states.setdefault(concerned.key, _KeyState()).take(row, 1, gone=change.op is Op.DELETE)
        if concerned.left is not None:
            states.setdefault(concerned.left, _KeyState()).take(row, 0, gone=True)
    return found


def _numbers(lake: Lake, one: Side, states: Mapping[Key, _KeyState]) -> dict[str, int]:
    """Every check's number, as the Spark pass counts them."""
    found = _of_all_rows(lake, one)
    if not one.comparable:
        return found
    present = _present(lake, one, None if one.closed else states)
    alive = {key for key, each in states.items() if not each.last[2]}
    gone = present.keys() - alive if one.closed else present.keys() & (states.keys() - alive)
    again = [place[3] for each in states.values() for place in each.places.values() if place[2]]
    found[one.lacking] = len(alive - present.keys())
    found["ghost_rows"] = len(gone)
    found["key_unique"] = max(found["key_unique"], sum(n - 1 for n in present.values()))
    found["ambiguities"], found["duplicates"] = again.count(False), again.count(True)
    if one.asks("incomplete_rows"):
        found["incomplete_rows"] = sum(not states[key].whole for key in alive & present.keys())
    return found


def _of_all_rows(lake: Lake, one: Side) -> dict[str, int]:
    """The numbers that need no changes; the uniqueness of keys is skipped for a large mirror, because few batches can
    affect it.
    """
    if not one.subject.keyed:
        return dict(lake.ask_mirror(one.subject.path, "SELECT count(*) AS rows FROM {mirror}")[0])
    names = [duck.name(column.column) for column in one.columns]
    empty = " OR ".join(f"{name} IS NULL" for name in names)
    keys = (
        "0" if one.mostly_untouched else f"count(DISTINCT ({', '.join(names)})) FILTER (WHERE NOT ({empty}))"
    )
    query = (
        f"SELECT count(*) AS rows, count(*) FILTER (WHERE {empty}) AS empty, {keys} AS keys FROM {{mirror}}"
    )
    row = lake.ask_mirror(one.subject.path, query)[0]
    double = 0 if one.mostly_untouched else row["rows"] - row["empty"] - row["keys"]
    return {"rows": row["rows"], "key_not_null": row["empty"], "key_unique": double}


def _present(lake: Lake, one: Side, keys: Iterable[Key] | None) -> Counter[Key]:
    """How often the mirror has each of these keys, or each of its own keys."""
    assert one.subject.mirror is not None
    mirror = replace(one.subject.mirror, columns=one.columns)
    kinds = [column.delta for column in one.columns]
    rows = mirror_rows(lake, mirror, kinds, keys)
    wanted = None if keys is None else set(keys)
    found = (key_of_row(row, mirror, kinds) for row in rows)
    return Counter(key for key in found if key is not None and (wanted is None or key in wanted))
