"""The check of cells: rows of every touched mirror against the plain fold of their whole histories.

Spark only chooses keys and fetches: one job picks the keys, one reads their changes and their rows for all
mirrors at once.  What the rows have to be is folded and compared in the driver (`cell_diff`), by code that
the mirrors were not made with.

A key's history is read whole where the lane's is short, or where the batch brought what reaches back: statements,
late changes, truncates.  Of a long history only the changes are read that no earlier one can follow: they
say everything of a key that one of them sets or deletes, and a key of which they do not is left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ingest.change import TableId
from ingest.errors import command
from ingest.fold import Key, SchemaStep
from ingest.lake.images import image_sql
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import literal, quoted
from ingest.lake.schemas import CHANGES, REJECTS
from ingest.quality import row_counts
from ingest.quality.catalogue import FAILING_KEYS, Metric, key_json
from ingest.quality.cell_diff import Expected, History, Wrong, differences, expected
from ingest.quality.cell_values import selected
from ingest.quality.keys import apart
from ingest.quality.subjects import Lane, Subject

AT_ONCE = 50  # mirrors a job
ALWAYS = 1_000  # keys of a mirror that are compared whatever the setting says
SMALL = 1 << 20  # bytes of a mirror that is read whole where its changes are
SHORT = 500_000  # changes of a lane that are read whole
LONGEST = 20_000  # changes of one key that are folded here
StepsOf = Callable[[Mirror, str, TableId, int], Sequence[tuple[SchemaStep, int]]]
"""The schema steps of a mirror's lane up to a batch, each with its own batch."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be compared: so many keys of each mirror, and of some mirrors every key."""

    steps: StepsOf
    limit: Callable[[TableId], int]
    deep: Callable[[TableId], bool] = lambda _table: False


@dataclass(slots=True)
class Reading:
    """One lane of one mirror: which of its changes are asked for."""

    subject: Subject
    lane: Lane
    m: int
    l: int  # noqa: E741 - as the column is called
    limit: int
    deep: bool
    steps: Sequence[SchemaStep]
    everything: bool  # a statement or a truncate may have changed any row
    whole: bool
    shard: tuple[str, str] | None

    @property
    def names(self) -> list[tuple[list[str], str]]:
        """Each key column that the messages hold: its names, the present one first, and its Delta type."""
        mirror = self.subject.mirror
        assert mirror is not None
        found = []
        for one in mirror.key_columns:
            if self.shard is None or one.name != self.shard[0]:
                found.append((_former(one.name, self.steps), one.delta))
        return found

    @property
    def place(self) -> tuple[int, int]:
        """Which lane it is."""
        return self.m, self.l


@dataclass(slots=True)
class Compared:
    """What was found of one mirror."""

    keys: int = 0
    touched: int = 0
    left_out: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    texts: dict[Key, tuple[str, ...]] = field(default_factory=dict)


def compare(
    session: SparkSession, lake: Lake, chosen: Sequence[Subject], since: int, asked: Asked
) -> Iterator[Metric]:
    """The metrics of the check for mirrors with a key."""
    wanted = [one for one in chosen if one.exists and not one.damage and _asked(lake, one, asked)]

    def compared(some: Sequence[Subject]) -> list[Metric]:
        found = _Some(session, lake, some, since, asked).compared()
        return [
            metric for subject, one in zip(some, found, strict=True) for metric in metrics(lake, subject, one)
        ]

    for start in range(0, len(wanted), AT_ONCE):
        for part in apart(lake, wanted[start : start + AT_ONCE], compared, lambda one: one):
            yield from part


def _asked(lake: Lake, subject: Subject, asked: Asked) -> bool:
    """True if the mirror is compared: one without key as a whole, and so not if it has too many changes.

    One whose key has changed is left out: its older changes are told apart by a key that it no longer has.
    """
    if subject.mirror is not None and subject.mirror.eras:
        return False
    if asked.deep(subject.table):
        return subject.mirror is not None and bool(subject.mirror.columns)
    if not asked.limit(subject.table) or subject.mirror is None or not subject.mirror.columns:
        return False
    return subject.keyed or sum(lane.changes_ever for lane in subject.lanes) <= LONGEST


def metrics(lake: Lake, subject: Subject, found: Compared) -> Iterator[Metric]:
    """What was compared, and one metric for each column that differs."""
    by_column: dict[str, list[Wrong]] = {}
    for one in found.wrong:
        by_column.setdefault(one.column, []).append(one)
    for column, some in sorted(by_column.items()):
        yield Metric(
            "wrong_cells", len(some), subject.name, column=column or None, detail=_detail(lake, subject, found, column, some),
            failing=tuple(_key_json(subject, found, one) for one in some[:FAILING_KEYS] if one.key),
        )  # fmt: skip
    if not found.wrong:
        yield Metric("wrong_cells", 0, subject.name)
    of = f" of {found.touched:,}" if found.touched > found.keys else ""
    what = "touched keys" if subject.keyed else "rows"
    detail = f"{found.keys:,}{of} {what} were compared cell by cell"
    if found.left_out:
        detail += f"; {found.left_out:,} have too long a history for every batch: `ingest quality --deep` compares them"
    yield Metric("cells_checked", found.keys, subject.name, detail=detail)


def _detail(lake: Lake, subject: Subject, found: Compared, column: str, some: Sequence[Wrong]) -> str:
    assert subject.mirror is not None
    told = []
    for one in some[:3]:
        texts = found.texts[one.key]
        key = ", ".join(f"{name} = {text}" for name, text in zip(subject.mirror.keys, texts, strict=True))
        words = ("--", *texts) if any(text.startswith("-") for text in texts) else texts
        asks = command("explain", lake.pipeline.file, subject.name, *words)
        subject_of = f"{key}{f': {column}' if column else ''} "
        told.append(f"{subject_of}{one.text} (see `{asks}`)" if texts else one.text)
    more = f"; and {len(some) - 3:,} more" if len(some) > 3 else ""
    return "; ".join(told) + more


def _key_json(subject: Subject, found: Compared, one: Wrong) -> str:
    assert subject.mirror is not None
    return key_json(subject.mirror.keys, found.texts[one.key])


def _former(key: str, steps: Iterable[SchemaStep]) -> list[str]:
    """A key column's name and the ones that it had before."""
    found = [key]
    for step in reversed(list(steps)):
        if step.action == "rename_column" and step.to == found[-1]:
            found.append(step.column)
    return found


def reading(lake: Lake, subject: Subject, place: tuple[int, int], since: int, asked: Asked) -> Reading:
    """How a lane's changes are read."""
    m, at = place
    lane, mirror = subject.lanes[at], subject.mirror
    assert mirror is not None
    steps = asked.steps(mirror, lane.source, lane.table, subject.applied)
    few = sum(one.changes_ever for one in subject.lanes) <= ALWAYS and subject.size <= SMALL
    deep = few or asked.deep(subject.table) or not subject.keyed
    everything = since <= 0 or bool(lane.truncates) or any(batch > since for _, batch in steps)
    whole = deep or everything or lane.changes_ever <= SHORT
    shard_column = lake.pipeline.rule(lane.table).shard_column
    named = str(lane.table) if len(lake.pipeline.sources) == 1 else f"{lane.source}:{lane.table}"
    return Reading(
        subject, lane, m, at, asked.limit(subject.table), deep, tuple(step for step, _ in steps), everything,
        whole, (shard_column, named) if shard_column else None,
    )  # fmt: skip


@dataclass(slots=True)
class _Some:
    """Mirrors whose keys are chosen in one job and read in another."""

    session: SparkSession
    lake: Lake
    subjects: Sequence[Subject]
    since: int
    asked: Asked
    readings: list[Reading] = field(default_factory=list)
    touched: dict[int, int] = field(default_factory=dict)

    def compared(self) -> list[Compared]:
        """What was found of each mirror."""
        self.readings = [
            reading(self.lake, subject, (m, i), self.since, self.asked)
            for m, subject in enumerate(self.subjects)
            for i in range(len(subject.lanes))
        ]
        sample = self._sample()
        changes, rows = self._read(sample)
        return [
            self._of(m, subject, sample, changes, rows.get(m, [])) for m, subject in enumerate(self.subjects)
        ]

    def _of(
        self,
        m: int,
        subject: Subject,
        sample: Mapping[tuple[int, int], set[int]],
        changes: Mapping[tuple[int, int], list[Mapping[str, Any]]],
        rows: list[list[str | None]],
    ) -> Compared:
        mirror = subject.mirror
        assert mirror is not None
        if not subject.keyed:
            return self._of_rows(m, subject, changes, rows)
        wanted = Expected()
        mine = [one for one in self.readings if one.m == m]
        too_long = 0
        for one in mine:
            told = changes.get(one.place, [])
            told, long = (told, set()) if one.deep else _short(told)
            too_long += len(long)
            marks = None if one.deep else sample.get(one.place, set()) - long
            wanted.add(expected(History(told, one.steps, one.shard, one.whole), mirror, marks))
        types = _types(self.lake, subject, mirror)
        closed = bool(mine) and all(one.deep for one in mine)
        found = Compared(len(wanted.known - wanted.open), self.touched.get(m, 0), len(wanted.open) + too_long)
        found.wrong = self._without_rejected(
            subject, list(differences(wanted, rows, mirror, types, closed)), wanted
        )
        found.texts = wanted.texts
        return found

    def _of_rows(
        self,
        m: int,
        subject: Subject,
        changes: Mapping[tuple[int, int], list[Mapping[str, Any]]],
        rows: list[list[str | None]],
    ) -> Compared:
        """A mirror without key: all its rows, as often as they are there."""
        mirror = subject.mirror
        assert mirror is not None
        wanted: Counter[row_counts.Content] = Counter()
        for one in self.readings:
            if one.m == m:
                appends = self.lake.pipeline.rule(one.lane.table).no_key == "append"
                history = History(changes.get(one.place, []), one.steps, one.shard)
                wanted += row_counts.folded(history, mirror, appends=appends)
        found = Compared(sum(wanted.values()))
        told = row_counts.differences(wanted, rows, _types(self.lake, subject, mirror))
        found.wrong = [Wrong((), "", text) for text in told]
        found.texts = {(): ()}
        return found

    def _without_rejected(self, subject: Subject, wrong: list[Wrong], wanted: Expected) -> list[Wrong]:
        """Leave out cells that did not fit when they came: `rejects` keeps them, and their check counts them."""
        if not any(one.blank for one in wrong) or not self.lake.exists(REJECTS.name):
            return wrong
        where = " AND ".join(
            f"{quoted(name)} <=> {_text(part)}"
            for name, part in zip(("database", "schema", "table"), subject.table, strict=True)
        )
        told = self.session.sql(
            f"SELECT DISTINCT key, `column` FROM {self.lake.named(REJECTS.name)} WHERE kind = 'cell' AND {where}"
        )
        known = {(_texts_of(row["key"]), row["column"]) for row in told.collect()}
        return [one for one in wrong if not (one.blank and (wanted.texts[one.key], one.column) in known)]

    # --- choosing -------------------------------------------------------------------------------

    def _sample(self) -> dict[tuple[int, int], set[int]]:
        """The hashes of the keys to compare, closed over the keys from which rows inherit."""
        chosen = [one for one in self.readings if not one.deep]
        asked = list(self._chosen(chosen))
        links = [one for one in chosen if one.lane.inherits_ever]
        asked += [
            f"SELECT m, l, 'link' AS what, h, was, 0L AS n FROM ({part}) "
            "WHERE partial AND h <> was AND op IN ('update', 'insert')"
            for part in self._changes(links, self._all)
        ]
        found: dict[tuple[int, int], set[int]] = {}
        pairs: dict[tuple[int, int], dict[int, set[int]]] = {}
        for row in self.session.sql(" UNION ALL ".join(asked)).collect() if asked else ():
            place = (row["m"], row["l"])
            if row["what"] == "link":
                pairs.setdefault(place, {}).setdefault(row["h"], set()).add(row["was"])
            else:
                found.setdefault(place, set()).add(row["h"])
                self.touched[row["m"]] = max(self.touched.get(row["m"], 0), row["n"])
        for place, known in pairs.items():
            _close(found.get(place, set()), known)
        return found

    def _chosen(self, lanes: Sequence[Reading]) -> Iterator[str]:
        """Some keys of each lane by the hash of their hash, other ones in every batch."""
        parts = " UNION ALL ".join(self._changes(lanes, self._touching))
        if not parts:
            return
        halves = "explode(array_distinct(array(h, was))) AS h"
        must = "partial OR h <> was OR coalesce(order_key <= high, false) OR everything"
        keys = (
            f"SELECT m, l, h, max(must) AS must, max(lim) AS lim FROM (SELECT m, l, lim, {must} AS must, {halves} "
            f"FROM ({parts}) WHERE op <> 'truncate') GROUP BY m, l, h"
        )
        ranked = (
            "SELECT *, row_number() OVER (PARTITION BY m, l, must ORDER BY xxhash64(h, "
            f"{self.since}), h) AS place, count(*) OVER (PARTITION BY m) AS n FROM ({keys})"
        )
        yield (
            "SELECT m, l, 'key' AS what, h, 0L AS was, n FROM "
            f"({ranked}) WHERE place <= CASE WHEN must THEN greatest({ALWAYS}, lim) ELSE lim END"
        )

    def _touching(self, one: Reading) -> str:
        """Which changes touch keys: those of the new batches; any if all rows may have changed."""
        return "true" if one.everything else f"c.batch > {self.since}"

    def _needed(self, one: Reading) -> str:
        """Which changes have to be read: all, or those that no older one follows."""
        if one.whole:
            return "true"
        floor = f" OR c.order_key >= {literal(one.lane.floor)}" if one.lane.floor else ""
        return f"(c.batch > {self.since}{floor})"

    def _all(self, _one: Reading) -> str:
        return "true"

    def _changes(self, lanes: Sequence[Reading], which: Callable[[Reading], str]) -> Iterator[str]:
        """SQL for the lanes' changes with the hashes of their keys; lanes with equal key columns share a scan."""
        alike: dict[str, list[Reading]] = {}
        for one in lanes:
            alike.setdefault(str(one.names), []).append(one)
        for some in alike.values():
            names = some[0].names
            texts = list(dict.fromkeys(name for former, _ in names for name in former))
            a, b = (image_sql(text, texts) if texts else "NULL" for text in ("after", "before"))
            new = ", ".join(_key_cell(former, delta, "a", "b") for former, delta in names)
            old = ", ".join(_key_cell(former, delta, "b", "a") for former, delta in names)
            wanted = " OR ".join(
                f"(c.source = {literal(one.lane.source)} AND c.batch <= {one.subject.applied} AND {which(one)} AND "
                f"l.m = {one.m} AND l.l = {one.l})"
                for one in some
            )
            listed = ", ".join(_listed(one) for one in some)
            tables = sorted({one.lane.table.table or "" for one in some})
            ranges = " OR ".join(sorted({which(one) for one in some}))
            yield (
                f"SELECT m, l, lim, everything, high, op, order_key, partial, before, after, moment, "
                f"{_hash(new)} AS h, {_hash(old)} AS was FROM (SELECT l.*, "
                "c.op, c.order_key, coalesce(c.partial, false) AS partial, c.before, c.after, "
                f"unix_micros(c.event_time) AS moment, {a} AS a, {b} AS b "
                f"FROM (SELECT c.* FROM {self.lake.named(CHANGES.name)} c WHERE c.kind = 'change' AND ({ranges}) AND "
                f"coalesce(`table`, '') IN ({', '.join(map(literal, tables))})) c JOIN (VALUES {listed}) "
                "l(m, l, lim, everything, high, d, s, t) ON c.`database` <=> l.d AND c.`schema` <=> l.s "
                f"AND c.`table` <=> l.t WHERE {wanted})"
            )

    # --- reading --------------------------------------------------------------------------------

    def _read(
        self, sample: Mapping[tuple[int, int], set[int]]
    ) -> tuple[dict[tuple[int, int], list[Mapping[str, Any]]], dict[int, list[list[str | None]]]]:
        """The changes of the chosen keys by lane, and their rows by mirror."""
        listed = [(m, at, h) for (m, at), marks in sample.items() for h in sorted(marks)]
        table = pa.Table.from_arrays(
            [
                pa.array([one[i] for one in listed], kind)
                for i, kind in enumerate((pa.int32(), pa.int32(), pa.int64()))
            ],
            names=["m", "l", "h"],
        )
        nothing = "SELECT 0 AS m, 0 AS l, 0L AS h WHERE false"
        frame = self.session.createDataFrame(table) if listed else self.session.sql(nothing)
        frame.createOrReplaceTempView(_SAMPLE)
        parts = [*self._histories(), *self._rows()]
        changes: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        rows: dict[int, list[list[str | None]]] = {}
        for batch in self.session.sql(" UNION ALL ".join(parts)).toArrow().to_batches():
            for row in batch.to_pylist():
                if row["cells"] is not None:
                    rows.setdefault(row["m"], []).append(row["cells"])
                else:
                    changes.setdefault((row["m"], row["l"]), []).append(row)
        return changes, rows

    def _histories(self) -> Iterator[str]:
        """SQL for the changes of the chosen keys.

        Of a key with many changes only the last that sets or deletes its row and those after it are fetched, if
        no row of its lane ever inherited from another.
        """
        columns = "m, l, op, order_key, partial, before, after, moment, h, was"
        nothing = "CAST(NULL AS ARRAY<STRING>) AS cells"
        some = [one for one in self.readings if not one.deep]
        for part in self._changes(some, self._needed):
            halves = (
                f"SELECT *, explode(array_distinct(array(h, was))) AS k FROM ({part}) WHERE op <> 'truncate'"
            )
            mine = (
                f"SELECT /*+ BROADCAST(s) */ p.* FROM ({halves}) p LEFT SEMI JOIN {_SAMPLE} s "
                "ON p.m = s.m AND p.l = s.l AND p.k = s.h"
            )
            sets = "CASE WHEN op = 'delete' OR h <> was OR op <> 'update' OR NOT partial THEN order_key END"
            kept = "".join(f" OR (m = {one.m} AND l = {one.l})" for one in some if one.lane.inherits_ever)
            window = "OVER (PARTITION BY m, l, k)"
            counted = f"SELECT *, count(*) {window} AS n, max({sets}) {window} AS at FROM ({mine})"
            yield (
                f"SELECT {columns}, {nothing} FROM ({counted}) "
                f"WHERE n <= 1000 OR at IS NULL OR order_key >= at{kept}"
            )
        emptied = [one for one in some if one.lane.truncates_ever]
        for part in self._changes(emptied, self._needed):
            yield f"SELECT {columns}, {nothing} FROM ({part}) WHERE op = 'truncate'"
        for part in self._changes([one for one in self.readings if one.deep], self._all):
            yield f"SELECT {columns}, {nothing} FROM ({part})"

    def _rows(self) -> Iterator[str]:
        """SQL for the mirrors' rows of the chosen keys; all rows where all keys are compared."""
        head = (
            "m, -1 AS l, '' AS op, '' AS order_key, false AS partial, '' AS before, '' AS after, 0L AS moment"
        )
        chosen: list[str] = []
        for m, subject in enumerate(self.subjects):
            mine = [one for one in self.readings if one.m == m]
            if not mine:
                continue
            if mine[0].deep:
                yield f"SELECT {head}, 0L AS h, 0L AS was, cells FROM ({self._hashed(m, subject, mine[0])})"
            elif subject.size <= SMALL:
                chosen.append(self._hashed(m, subject, mine[0]))
            else:  # of a large mirror only the chosen rows' cells are turned into texts
                yield self._found(head, self._hashed(m, subject, mine[0], where=True))
        if chosen:
            yield self._found(head, " UNION ALL ".join(chosen))

    @staticmethod
    def _found(head: str, rows: str) -> str:
        return (
            f"SELECT /*+ BROADCAST(s) */ {head}, 0L AS h, 0L AS was, cells FROM ({rows}) r "
            f"LEFT SEMI JOIN {_SAMPLE} s ON r.m = s.m AND r.h = s.h"
        )

    def _hashed(self, m: int, subject: Subject, one: Reading, *, where: bool = False) -> str:
        """SQL for a mirror's rows as texts, under the hash of the key; ``where`` leaves out what nobody asks for."""
        mirror = subject.mirror
        assert mirror is not None
        cells = ", ".join(
            selected(column.column, delta) if delta else "CAST(NULL AS STRING)"
            for column, delta in zip(mirror.columns, _types(self.lake, subject, mirror), strict=True)
        )
        shard = one.shard[0] if one.shard else None
        keys = ", ".join(quoted(column.column) for column in mirror.key_columns if column.name != shard)
        some = (
            f" LEFT SEMI JOIN (SELECT /*+ BROADCAST */ h FROM {_SAMPLE} WHERE m = {m}) s ON {_hash(keys)} = s.h"
            if where
            else ""
        )
        return f"SELECT {m} AS m, {_hash(keys)} AS h, array({cells}) AS cells FROM {self.lake.named(subject.path)}{some}"


_SAMPLE = "cells_to_compare"


def _close(marks: set[int], links: Mapping[int, set[int]]) -> None:
    """Add the keys whose rows went over into the marked ones, and theirs."""
    todo = list(marks)
    while todo:
        for one in links.get(todo.pop(), ()):
            if one not in marks:
                marks.add(one)
                todo.append(one)


def _short(rows: list[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], set[int]]:
    """The changes of keys that have not too many, and the hashes of the others."""
    counts: dict[int, int] = {}
    for row in rows:
        for mark in {row["h"], row["was"]}:
            counts[mark] = counts.get(mark, 0) + 1
    long = {mark for mark, n in counts.items() if n > LONGEST and mark}
    if not long:
        return rows, long
    return [row for row in rows if not {row["h"], row["was"]} <= long], long


def _hash(cells: str) -> str:
    return f"xxhash64({cells})" if cells else "0L"


def _key_cell(names: Sequence[str], delta: str, first: str, second: str) -> str:
    """A key cell in the mirror's type, from whichever image has it: its hash finds the key."""
    text = f"coalesce({', '.join(f'{image}.{quoted(name)}' for image in (first, second) for name in names)})"
    return f"unbase64({text})" if delta == "BINARY" else f"TRY_CAST({text} AS {delta})"


def _listed(one: Reading) -> str:
    texts = (one.lane.folded_high, *one.lane.table)
    return (
        f"({one.m}, {one.l}, {one.limit}, {'true' if one.everything else 'false'}, "
        f"{', '.join(map(_text, texts))})"
    )


def _texts_of(key: str | None) -> tuple[str, ...]:
    """The cells of a key that is kept as JSON, numbers as they are written."""
    found = json.loads(key or "{}", parse_int=str, parse_float=str)
    return tuple(map(str, found.values()))


def _text(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else literal(value)


def _types(lake: Lake, subject: Subject, mirror: Mirror) -> list[str]:
    """The Delta type that each column really has; nothing for one that is not there."""
    there = subject.types_in(lake)
    return [there.get(one.column, "") for one in mirror.columns]
