"""The numbers of the key checks by the plain fold's rule, key by key: what DuckDB's must equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.change import Change, Op
from ingest.fold import Key, KeyCellError, key_of_change
from ingest.ledgers.cleared import Cleared
from ingest.ledgers.stamps import change_of
from ingest.order import is_weak, same_place
from ingest.quality import many_keys
from ingest.quality.arrow_rows import mirror_rows
from ingest.quality.cell_diff import key_of_row
from ingest.quality.key_sides import Side
from ingest.tables import duck
from ingest.tables.lake import Lake

Numbers = dict[str, int]


def by_duckdb(lake: Lake, sides: Sequence[Side]) -> dict[int, Numbers]:
    """Each mirror's numbers by its index, as the checks count them: of several mirrors together as of each alone."""
    with many_keys.opened(lake) as keys:
        keys.take(sides)
        together = keys.numbers(sides)
        for one in sides:
            assert {one.index: together[one.index]} == keys.numbers([one])
        return together


@dataclass(slots=True)
class KeyState:
    """The changes' result for one key."""

    last: tuple[str, int, bool] = ("", 0, True)  # order key, half of the change, whether the row is deleted
    whole: bool = False  # some change set all columns
    places: dict[str, list[tuple[object, object, bool]]] = field(default_factory=dict)

    def take(self, row: Mapping[str, Any], half: int, *, gone: bool, shows_all: bool = False) -> None:
        """Add one change; with `half` 0 the row leaves this key for another."""
        self.last = max(self.last, (row["order_key"], half, gone))
        self.whole |= row["op"] != Op.UPDATE or not row["partial"] or shows_all
        place = row["order_key"] if is_weak(row["order_key"]) else same_place(row["order_key"])
        message = tuple(row[name] for name in ("batch", "topic", "partition", "offset"))
        content = tuple(row[name] for name in ("op", "before", "after"))
        self.places.setdefault(place, []).append((message, content, gone))

    def again(self) -> list[bool]:
        """For each place with several messages, whether they say the same; without those whose order decides nothing."""
        some = [each for each in self.places.values() if len({message for message, _, _ in each}) > 1]
        told = [
            (len({content for _, content, _ in each}) == 1, all(gone for *_, gone in each)) for each in some
        ]
        return [same for same, all_gone in told if same or not all_gone]


def by_plain_fold(lake: Lake, one: Side) -> Numbers:
    """One mirror's numbers."""
    if not one.subject.keyed:
        return dict(lake.ask_mirror(one.subject.path, "SELECT count(*) AS rows FROM {mirror}")[0])
    states = _states(lake, one)
    assert one.subject.mirror is not None
    mirror, kinds = replace(one.subject.mirror, columns=one.columns), [column.delta for column in one.columns]
    rows = mirror_rows(lake, mirror, kinds, None)
    keys = [key_of_row(row, mirror, kinds) for row in rows if None not in row]
    present = Counter(key for key in keys if key in states or not one.mostly_untouched)
    found = {
        "rows": len(rows),
        "key_not_null": len(rows) - len(keys),
        "key_unique": sum(n - 1 for n in present.values()),
    }
    if one.comparable:
        alive = {key for key, each in states.items() if not each.last[2]}
        gone = present.keys() - alive if one.closed else present.keys() & (states.keys() - alive)
        again = [same for each in states.values() for same in each.again()]
        found[one.lacking], found["ghost_rows"] = len(alive - present.keys()), len(gone)
        found["ambiguities"], found["duplicates"] = again.count(False), again.count(True)
        if one.asks("incomplete_rows"):
            found["incomplete_rows"] = sum(not states[key].whole for key in alive & present.keys() if key)
    return found


def _states(lake: Lake, one: Side) -> dict[Key, KeyState]:
    found: dict[Key, KeyState] = {}
    for i, lane in one.lanes:
        rows = [
            row
            for row in lake.ask(
                f"SELECT * FROM {{changes.change}} WHERE {duck.of_lane(lane.source, lane.table)} "
                f"AND batch <= {one.subject.applied}"
            )
            if row["batch"] > one.since or (lane.floor and row["order_key"] >= lane.floor)
        ]
        for row in rows:
            if row["op"] == Op.TRUNCATE:
                one.clear(i, Cleared(row["order_key"], row["batch"]))
        for row in sorted(rows, key=lambda row: str(row["order_key"])):
            if row["op"] == Op.TRUNCATE or row["order_key"] <= one.above(i, lane):
                continue
            change = change_of({**row, "types": None})
            try:
                concerned = key_of_change(
                    change, tuple(name for name, _ in one.signature), dict(one.signature)
                )
            except KeyCellError:  # rejected by the fold: it has no row
                continue
            state = found.setdefault(concerned.key, KeyState())
            state.take(row, 1, gone=change.op is Op.DELETE, shows_all=_shows_all(one, change))
            if concerned.left is not None:
                left = found.setdefault(concerned.left, KeyState())
                state.whole |= left.whole  # what the change lacks is that of the row that it moves
                left.take(row, 0, gone=True, shows_all=_shows_all(one, change))
    return found


def _shows_all(one: Side, change: Change) -> bool:
    """True if the image after has all columns of the mirror, and that before shows that some were not changed."""
    assert one.subject.mirror is not None
    columns = {column.name for column in one.subject.mirror.columns if column.made is None}
    after, before = change.after or {}, change.before or {}
    others = columns - set(one.subject.mirror.keys)
    same = {name for name in others & after.keys() & before.keys() if after[name] == before[name]}
    return columns <= after.keys() and bool(others & before.keys()) and bool(others - before.keys() | same)
