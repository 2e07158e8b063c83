"""The Spark pass: every touched mirror's keys beside what the changes say of them, in one job.

Rows of mirrors and changes meet under the hash of their typed key, so that one shuffle of numbers
counts rows, doubled and empty keys, missing and ghost rows, ties and repetitions for all mirrors.
What is found wrong is looked at again, key by key, for the report.  Nothing here is shared with the
stage that wrote the mirrors: a check that repeats the checked code's mistakes finds none.

The pass is written as SQL text, for a tick has few rows and its time goes into building and planning:
one text is one round trip, and mirrors with the same key columns share one scan of ``changes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Row, SparkSession

from ingest.config import Pipeline
from ingest.lake import mirrors
from ingest.lake.lake import Lake
from ingest.lake.names import literal, quoted
from ingest.lake.schemas import CHANGES
from ingest.lake.session import new_session
from ingest.quality.catalogue import CHECKS, FAILING_KEYS
from ingest.quality.places import place
from ingest.quality.statements import Statement, beginning
from ingest.quality.subjects import Lane, Subject

AT_ONCE = 50  # mirrors a job: planning grows faster than their number
EXPLAINED = 20  # complaints of one run whose keys are looked up
Cleared = tuple[str, int]  # place and batch at which a lane was last emptied

# How much each check finds in a key's group; `alive` is NULL where no change spoke of the key.
FAULTS = {
    "key_not_null": "empty",
    "key_unique": "CASE WHEN n > 0 AND empty = 0 THEN n - 1 ELSE 0 END",
    "missing_rows": "CAST(alive <=> 1 AND n = 0 AS BIGINT)",
    "ghost_rows": "CAST(alive <=> 0 AND n > 0 AND empty = 0 AS BIGINT)",
    "ambiguities": "ties",
    "duplicates": "repeats",
    "incomplete_rows": "CAST(alive <=> 1 AND n > 0 AND whole = 0 AS BIGINT)",
}


@dataclass(slots=True)
class Counted:
    """What the pass found of one mirror: numbers by check, and a sample of keys for the bad ones."""

    numbers: dict[str, int]
    failing: dict[str, tuple[str, ...]] = field(default_factory=dict)


def count(
    lake: Lake, chosen: Sequence[Subject], since: int, logged: Sequence[Statement] = ()
) -> dict[str, Counted]:
    """Every mirror's key checks by its path; mirrors without a table or a known key are left out.

    Args:
        lake: the lake.
        chosen: what to check.
        since: the changes of later batches are compared; 0 compares everything.
        logged: the DDL ledger.
    """
    session = _session(lake)
    passes = [_Pass(lake, one, since, i) for i, one in enumerate(chosen) if one.exists and one.mirror]
    found: dict[str, Counted] = {}
    for start in range(0, len(passes), AT_ONCE):
        some = _Some(session, passes[start : start + AT_ONCE])
        some.clear(logged)
        found.update(some.counted())
        some.explain(found, EXPLAINED - sum(len(one.failing) for one in found.values()))
    return found


def changed_rows(lake: Lake, subject: Subject, since: int) -> DataFrame | None:
    """A mirror's rows whose keys the changes behind a batch speak of; None where that cannot be told."""
    lanes = [replace(lane, folded_high=None) for lane in subject.lanes]
    one = _Pass(lake, replace(subject, lanes=lanes), since, 0)
    events = list(_events([one])) if since > 0 else []
    if not events:
        return None
    names = ", ".join(f"r.{quoted(column.column)}" for column in one.columns)
    return _session(lake).sql(
        f"SELECT r.* FROM {lake.named(subject.path)} r LEFT SEMI JOIN ({events[0]}) e "
        f"ON xxhash64({names}) = e.h"
    )


def _session(lake: Lake) -> SparkSession:
    """A session in which names mean what they say."""
    session = new_session(lake.spark)
    session.conf.set("spark.sql.caseSensitive", "true")
    session.conf.set("spark.sql.variable.substitute", "false")
    return session


@dataclass(slots=True)
class _Pass:
    """One mirror's two sides: its rows and its changes, each under the hash of the key."""

    lake: Lake
    subject: Subject
    since: int
    index: int
    cleared: dict[int, Cleared] = field(default_factory=dict)  # by the lane's place among the subject's

    def asks(self, check: str) -> bool:
        """True if the check can be answered for this mirror."""
        if check in ("key_unique", "key_not_null"):
            return self.subject.keyed
        return self.comparable and (check != "incomplete_rows" or self.since <= 0)

    @property
    def comparable(self) -> bool:
        """True if the changes hold the whole key: a shard column stands in the mirror only."""
        if not self.subject.keyed or self.subject.mirror is None:
            return False
        shard = {_shard_column(self.lake.pipeline, lane) for lane in self.subject.lanes}
        return not shard & set(self.subject.mirror.keys)

    @property
    def lanes(self) -> list[tuple[int, Lane]]:
        """The lanes whose changes are at hand."""
        if not self.comparable:
            return []
        return [(i, lane) for i, lane in enumerate(self.subject.lanes) if self.since <= 0 or lane.changes]

    @property
    def closed(self) -> bool:
        """True if the changes at hand are all that may be there."""
        if not self.comparable:
            return False
        return self.since <= 0 or any(batch > self.since for _, batch in self.cleared.values())

    @property
    def signature(self) -> tuple[tuple[str, str], ...]:
        """Name and Delta type of each key column."""
        return tuple((one.name, one.delta) for one in self.columns)

    @property
    def columns(self) -> tuple[mirrors.Column, ...]:
        """The key's columns."""
        assert self.subject.mirror is not None
        return self.subject.mirror.key_columns

    def begins(self, logged: Sequence[Statement]) -> None:
        """Note where lanes began anew, by the DDL ledger."""
        for i, lane in self.lanes:
            found = beginning(logged, self.lake.pipeline, lane.source, lane.table, self.subject.applied)
            if found is not None:
                self.cleared[i] = found

    def rows(self) -> str:
        """The mirror's keys with their hash."""
        table = self.lake.named(self.subject.path)
        if not self.subject.keyed:
            return f"SELECT monotonically_increasing_id() AS h, false AS empty FROM {table}"
        keys = [quoted(one.column) for one in self.columns]
        named = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        empty = " OR ".join(f"{key} IS NULL" for key in keys)
        return f"SELECT xxhash64({', '.join(keys)}) AS h, {empty} AS empty, {named} FROM {table}"

    def there(self) -> str:
        """The mirror's side of the groups."""
        alive = "0" if self.closed else "CAST(NULL AS INT)"
        return (
            f"SELECT {self.index} AS m, h, 1L AS n, CAST(empty AS BIGINT) AS empty, {alive} AS alive, "
            f"CAST(NULL AS INT) AS whole, 0L AS ties, 0L AS repeats FROM ({self.rows()})"
        )

    def key_json(self) -> str:
        """SQL for a key as JSON under the source's names."""
        cells = ", ".join(f"{literal(one.name)}, k{i}" for i, one in enumerate(self.columns))
        return f"to_json(named_struct({cells}), map('ignoreNullFields', 'false'))"


def _shard_column(pipeline: Pipeline, lane: Lane) -> str:
    return pipeline.rule(lane.table).shard_column


def _text(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else literal(value)


@dataclass(slots=True)
class _Some:
    """Mirrors that are counted in one job."""

    session: SparkSession
    passes: Sequence[_Pass]

    def clear(self, logged: Sequence[Statement]) -> None:
        """Note where each lane was last emptied: nothing from before has to stand in its mirror."""
        asked = []
        for one in self.passes:
            one.begins(logged)
            asked += [
                (one, i, lane)
                for i, lane in one.lanes
                if lane.truncates or (lane.truncates_ever and lane.floor)
            ]
        if not asked:
            return
        lanes = [(one, i, lane) for one, i, lane in asked]
        newest = "max(struct(order_key, batch)) AS at"
        text = f"SELECT m, lane, {newest} FROM ({_mine(lanes)}) WHERE op = 'truncate' GROUP BY m, lane"
        by_index = {one.index: one for one in self.passes}
        for row in self.session.sql(text).collect():
            cleared, at = by_index[row["m"]].cleared, (row["at"]["order_key"], row["at"]["batch"])
            cleared[row["lane"]] = max(cleared.get(row["lane"], at), at)

    def counted(self) -> dict[str, Counted]:
        """Every check's number."""
        sums = ", ".join(f"sum({fault}) AS {name}" for name, fault in FAULTS.items())
        text = f"SELECT m, sum(n) AS rows, {sums} FROM ({_groups(self.passes)}) GROUP BY m"
        by_index = {row["m"]: row for row in self.session.sql(text).collect()}
        return {one.subject.path: _numbers(one, by_index.get(one.index)) for one in self.passes}

    def explain(self, found: Mapping[str, Counted], left: int) -> None:
        """Look up the keys behind what is wrong; a limit keeps a broken lake from taking all day."""
        for one in self.passes:
            counted = found[one.subject.path]
            wrong = [name for name, n in counted.numbers.items() if n and _complains(name)]
            for check in wrong[: max(0, left)]:
                counted.failing[check] = self._failing(one, check)
            left -= len(wrong)

    def _failing(self, one: _Pass, check: str) -> tuple[str, ...]:
        if check in ("key_unique", "key_not_null"):
            return self._failing_rows(one, check)
        hashes = self._hashes(f"SELECT h FROM ({_groups([one])}) WHERE {FAULTS[check]} > 0")
        lanes = [(one, i, lane) for i, lane in enumerate(one.subject.lanes)]
        told = one.rows() if check == "ghost_rows" else _keyed(one.signature, lanes)
        return self._keys(one, told, hashes)

    def _failing_rows(self, one: _Pass, check: str) -> tuple[str, ...]:
        """Doubled or empty keys, from the mirror alone."""
        bad = f"SELECT h FROM ({one.rows()}) WHERE empty"
        if check == "key_unique":
            names = ", ".join(f"k{i}" for i in range(len(one.columns)))
            bad = f"SELECT h FROM ({one.rows()}) WHERE NOT empty GROUP BY h, {names} HAVING count(*) > 1"
        return self._keys(one, one.rows(), self._hashes(bad))

    def _hashes(self, text: str) -> list[int]:
        return [row["h"] for row in self.session.sql(f"{text} LIMIT {FAILING_KEYS}").collect()]

    def _keys(self, one: _Pass, told: str, hashes: Iterable[int]) -> tuple[str, ...]:
        """The keys behind hashes, as JSON."""
        wanted = ", ".join(f"CAST('{h}' AS BIGINT)" for h in hashes) or "NULL"
        text = f"SELECT DISTINCT {one.key_json()} AS key FROM ({told}) WHERE h IN ({wanted})"
        return tuple(sorted(row["key"] for row in self.session.sql(f"{text} LIMIT {FAILING_KEYS}").collect()))


def _complains(check: str) -> bool:
    return check in CHECKS and CHECKS[check].limit is not None


def _numbers(one: _Pass, row: Row | None) -> Counted:
    names = ("rows", *(name for name in FAULTS if one.asks(name)))
    return Counted({name: int((row and row[name]) or 0) for name in names})


# --- the pass as SQL ---

Told = tuple[_Pass, int, Lane]


def _groups(passes: Sequence[_Pass]) -> str:
    """One row per key of a mirror: how often it stands there, and whether it should."""
    sides = [one.there() for one in passes]
    events = list(_events(passes))
    if events:
        sides.append(_spoken(" UNION ALL ".join(events)))
    return (
        "SELECT m, h, sum(n) AS n, sum(empty) AS empty, max(alive) AS alive, max(whole) AS whole, "
        f"sum(ties) AS ties, sum(repeats) AS repeats FROM ({' UNION ALL '.join(sides)}) GROUP BY m, h"
    )


def _spoken(events: str) -> str:
    """Per key: does it live after its last change, and was some change of it told twice?"""
    places = (
        "SELECT m, h, max(struct(order_key, part, gone)) AS last, max(CAST(reset AS INT)) AS whole, "
        "min(message) <> max(message) AS again, min(content) = max(content) AS same "
        f"FROM (SELECT /*+ REPARTITION(m, h) */ * FROM ({events})) GROUP BY m, h, place"
    )
    return (
        "SELECT m, h, 0L AS n, 0L AS empty, CAST(NOT max(last).gone AS INT) AS alive, max(whole) AS whole, "
        "sum(CAST(again AND NOT same AS BIGINT)) AS ties, sum(CAST(again AND same AS BIGINT)) AS repeats "
        f"FROM ({places}) GROUP BY m, h"
    )


def _events(passes: Sequence[_Pass]) -> Iterator[str]:
    """What each change says of a key; one that moves its row speaks of two."""
    alike: dict[tuple[tuple[str, str], ...], list[Told]] = {}
    for one in passes:
        for i, lane in one.lanes:
            alike.setdefault(one.signature, []).append((one, i, lane))
    here = "struct(h AS h, 1 AS part, op = 'delete' AS gone)"
    left = "struct(was AS h, 0 AS part, true AS gone)"
    for signature, lanes in alike.items():
        halves = f"array({here})"
        if any(lane.key_changes for _, _, lane in lanes):
            moved = "moves AND op = 'update' AND was <> h"
            halves = f"CASE WHEN {moved} THEN array({left}, {here}) ELSE {halves} END"
        yield (
            "SELECT m, order_key, coalesce(place, order_key) AS place, message, content, reset, "
            f"inline({halves}) FROM ({_keyed(signature, lanes)}) "
            "WHERE op <> 'truncate' AND (cleared IS NULL OR order_key > cleared)"
        )


def _keyed(signature: tuple[tuple[str, str], ...], lanes: Sequence[Told]) -> str:
    """Each change under its new key, with the hash of the old one beside it.

    A key cell that does not fit its type was rejected by the fold: no row can stand for it.
    """
    image = literal(", ".join(f"{quoted(name)} STRING" for name, _ in signature))
    new = [_typed(name, delta, "a", "b") for name, delta in signature]
    old = [_typed(name, delta, "b", "a") for name, delta in signature]
    keys = ", ".join(
        f"CASE WHEN op = 'delete' THEN {left} ELSE {right} END AS k{i}"
        for i, (left, right) in enumerate(zip(old, new, strict=True))
    )
    names = [f"k{i}" for i in range(len(signature))]
    fits = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return (
        f"SELECT *, xxhash64({', '.join(names)}) AS h FROM (SELECT m, cleared, moves, op, order_key, "
        "xxhash64(batch, topic, `partition`, `offset`) AS message, xxhash64(op, before, after) AS content, "
        f"{place('order_key')} AS place, op <> 'update' OR NOT coalesce(partial, false) AS reset, {keys}, "
        f"xxhash64({', '.join(old)}) AS was FROM (SELECT *, from_json(before, {image}) AS b, "
        f"from_json(after, {image}) AS a FROM ({_mine(lanes)}))) WHERE op = 'truncate' OR ({fits})"
    )


def _typed(name: str, delta: str, first: str, second: str) -> str:
    """The key cell as the mirror's type; NULL where it does not fit."""
    text = f"coalesce({first}.{quoted(name)}, {second}.{quoted(name)})"
    return f"unbase64({text})" if delta == "BINARY" else f"TRY_CAST({text} AS {delta})"


def _mine(lanes: Sequence[Told]) -> str:
    """The lanes' changes, as far as their mirrors have folded them."""
    one = lanes[0][0]
    floors = [lane.floor for _, _, lane in lanes if lane.floor is not None]
    wanted = f"batch > {one.since}" + (f" OR order_key >= {literal(min(floors))}" if floors else "")
    tables = {lane.table.table for _, _, lane in lanes}
    some = "" if None in tables else f"AND `table` IN ({', '.join(map(_text, sorted(map(str, tables))))})"
    listed = ", ".join(_listed(*told) for told in lanes)
    return (
        f"SELECT c.*, l.m, l.lane, l.cleared, l.moves FROM (SELECT * FROM {one.lake.named(CHANGES.name)} "
        f"WHERE kind = 'change' AND ({wanted}) {some}) c JOIN (VALUES {listed}) "
        "l(m, lane, moves, source, d, s, t, applied, floor, cleared) ON c.source = l.source "
        "AND c.`database` <=> l.d AND c.`schema` <=> l.s AND c.`table` <=> l.t AND c.batch <= l.applied "
        f"AND (c.batch > {one.since} OR c.order_key >= l.floor)"
    )


def _listed(one: _Pass, index: int, lane: Lane) -> str:
    cleared = one.cleared.get(index)
    texts = (lane.source, *lane.table)
    return (
        f"({one.index}, {index}, {'true' if lane.key_changes else 'false'}, {', '.join(map(_text, texts))}, "
        f"{one.subject.applied}L, {_text(lane.floor)}, {_text(cleared and cleared[0])})"
    )
