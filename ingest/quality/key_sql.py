"""The two sides of a mirror as SQL: its rows, and the keys according to the changes, under the hash of the key.

It is SQL text because a tick has few rows and spends its time on building and planning: one text is one round trip, and
mirrors with the same key columns share one scan of ``changes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ingest import types
from ingest.lake import exact, mirrors
from ingest.lake.images import image_sql
from ingest.lake.keys import cell_sql
from ingest.lake.lake import Lake
from ingest.lake.mirrors import rule_for
from ingest.lake.names import literal, quoted
from ingest.lake.schemas import CHANGES
from ingest.lake.statements import Statement
from ingest.order import place_sql
from ingest.quality.catalogue import LEFT_OUT
from ingest.quality.ddl_ledger import beginning
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.values import MAX_NUMBER_LENGTH

LARGE = 4 << 20  # bytes of a mirror whose untouched rows are only counted
FEW = 1_000_000  # changes whose keys fit in every task's memory
Cleared = tuple[str, int]  # the place and batch at which a lane was last emptied


@dataclass(slots=True)
class Side:
    """One mirror's two sides: its rows and its changes, each under the hash of the key."""

    lake: Lake
    subject: CheckedMirror
    since: int
    index: int
    cleared: dict[int, Cleared] = field(default_factory=dict)  # by the lane's place among the subject's

    @classmethod
    def of_new(cls, lake: Lake, subject: CheckedMirror, since: int) -> Side:
        """One mirror alone with the changes of batches after ``since``, also where some of them are late."""
        lanes = [replace(lane, folded_high=None) for lane in subject.lanes]
        return cls(lake, replace(subject, lanes=lanes), since, 0)

    def asks(self, check: str) -> bool:
        """True if the check can be answered for this mirror."""
        if check in ("key_unique", "key_not_null"):
            return self.subject.keyed
        if check in ("missing_rows", LEFT_OUT) and check != self.lacking:
            return False
        return self.comparable and (check != "incomplete_rows" or self.since <= 0)

    @property
    def lacking(self) -> str:
        """What a live key is that the mirror lacks: with a condition it is left out; the check of cells judges that."""
        return LEFT_OUT if self.subject.mirror is not None and self.subject.mirror.where else "missing_rows"

    @property
    def comparable(self) -> bool:
        """True if the changes contain the whole key: a shard column is only in the mirror."""
        mirror = self.subject.mirror
        if not self.subject.keyed or mirror is None or mirror.soft:
            return False  # the check of cells decides which deleted rows are kept
        if self.subject.merges(self.lake.pipeline):
            return False  # the check of cells decides which table's row a mirror holds
        rules = (rule_for(self.lake.pipeline, lane.table, self.subject.path) for lane in self.subject.lanes)
        return not {rule.shard_column for rule in rules} & set(mirror.keys)

    @property
    def lanes(self) -> list[tuple[int, CheckedLane]]:
        """The lanes with changes to compare."""
        if not self.comparable:
            return []
        return [(i, lane) for i, lane in enumerate(self.subject.lanes) if self.since <= 0 or lane.changes]

    @property
    def closed(self) -> bool:
        """True if the given changes are the complete history."""
        if not self.comparable or (self.subject.mirror is not None and self.subject.mirror.eras):
            return False
        return self.since <= 0 or any(batch > self.since for _, batch in self.cleared.values())

    @property
    def mostly_untouched(self) -> bool:
        """True if most rows are untouched by this batch and were verified earlier, so counting them is enough."""
        if not self.comparable or self.closed or self.since <= 0 or self.subject.size < LARGE:
            return False
        lanes = [lane for _, lane in self.lanes]
        return sum(lane.changes for lane in lanes) <= FEW and not any(lane.floor for lane in lanes)

    @property
    def signature(self) -> tuple[tuple[str, str], ...]:
        """Name and logical type of each key column."""
        return tuple((one.name, one.type) for one in self.columns)

    @property
    def columns(self) -> tuple[mirrors.Column, ...]:
        assert self.subject.mirror is not None
        return self.subject.mirror.key_columns

    def above(self, index: int, lane: CheckedLane) -> str:
        """The place up to which a lane's changes are not compared: its rows were emptied there, or had another key."""
        assert self.subject.mirror is not None
        eras = (era.place for era in self.subject.mirror.eras_of(lane.source, lane.table))
        return max((self.cleared.get(index, ("", 0))[0], *eras))

    def clear(self, index: int, order_key: str, batch: int) -> None:
        """Record that a lane was emptied at a place: no earlier row may be in its mirror."""
        at = order_key, batch
        self.cleared[index] = max(self.cleared.get(index, at), at)

    def begins(self, logged: Sequence[Statement]) -> None:
        """Record where lanes began again, by the DDL ledger."""
        for i, lane in self.lanes:
            rule = rule_for(self.lake.pipeline, lane.table, self.subject.path)
            found = beginning(logged, rule, lane.source, lane.table, self.subject.applied)
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

    def there(self, touched: str = "") -> str:
        """The mirror's side of the groups; with ``touched`` hashes, all other keys form one group."""
        alive = "0" if self.closed else "CAST(NULL AS INT)"
        rows = f"({self.rows()}) r"
        if touched:
            rows += f" LEFT JOIN ({touched}) t ON r.h = t.h"
        return (
            f"SELECT {self.index} AS m, {'t' if touched else 'r'}.h, 1L AS n, CAST(empty AS BIGINT) AS empty, "
            f"{alive} AS alive, CAST(NULL AS INT) AS whole, 0L AS ties, 0L AS repeats FROM {rows}"
        )

    def key_json(self) -> str:
        """SQL for a key as JSON under the source's names."""
        return exact.key_json_sql((one.name, f"k{i}") for i, one in enumerate(self.columns))


SideLane = tuple[Side, int, CheckedLane]


def groups(passes: Sequence[Side], view: str = "") -> str:
    """One row per key of a mirror: how often it exists, and whether it should.

    Args:
        passes: the mirrors.
        view: the view of the changes' side, if there is one.
    """
    touched = f"SELECT /*+ BROADCAST */ DISTINCT h FROM {view}"
    sides = [one.there(touched if view and one.mostly_untouched else "") for one in passes]
    if view:
        sides.append(f"SELECT * FROM {view}")
    elif found := list(events(passes)):
        sides.append(by_changes(found))
    return (
        "SELECT m, h, sum(n) AS n, sum(empty) AS empty, max(alive) AS alive, max(whole) AS whole, "
        f"sum(ties) AS ties, sum(repeats) AS repeats FROM ({' UNION ALL '.join(sides)}) GROUP BY m, h"
    )


def by_changes(found: Sequence[str]) -> str:
    """Per key: does it exist after its last change, and was some change delivered twice?"""
    places = (
        "SELECT m, h, max(struct(order_key, part, gone)) AS last, max(CAST(reset AS INT)) AS whole, "
        "min(message) <> max(message) AS again, min(content) = max(content) AS same "
        f"FROM (SELECT /*+ REPARTITION(m, h) */ * FROM ({' UNION ALL '.join(found)})) GROUP BY m, h, place"
    )
    return (
        "SELECT m, h, 0L AS n, 0L AS empty, CAST(NOT max(last).gone AS INT) AS alive, max(whole) AS whole, "
        "sum(CAST(again AND NOT same AS BIGINT)) AS ties, sum(CAST(again AND same AS BIGINT)) AS repeats "
        f"FROM ({places}) GROUP BY m, h"
    )


def events(passes: Sequence[Side]) -> Iterator[str]:
    """The effect of each change on a key; one that moves its row concerns two keys."""
    alike: dict[tuple[tuple[str, str], ...], list[SideLane]] = {}
    for one in passes:
        for i, lane in one.lanes:
            alike.setdefault(one.signature, []).append((one, i, lane))
    here = "struct(h AS h, 1 AS part, op = 'delete' AS gone)"
    left = "struct(was AS h, 0 AS part, true AS gone)"
    for signature, lanes in alike.items():
        halves = f"array({here})"
        if any(lane.key_changes for _, _, lane in lanes):
            moved = "moves AND op IN ('update', 'insert') AND was <> h"
            halves = f"CASE WHEN {moved} THEN array({left}, {here}) ELSE {halves} END"
        yield (
            "SELECT m, order_key, coalesce(place, order_key) AS place, message, content, reset, "
            f"inline({halves}) FROM ({keyed(signature, lanes)}) "
            "WHERE op <> 'truncate' AND (cleared IS NULL OR order_key > cleared)"
        )


def keyed(signature: tuple[tuple[str, str], ...], lanes: Sequence[SideLane]) -> str:
    """Each change under its new key, with the hash of the old one.

    The fold has rejected a key cell that does not fit its type, so no row can exist for it. Images are parsed only if
    needed: the one before a change only if its row is deleted, or the key may change.
    """
    columns = [name for name, _ in signature]
    again = {name: image_sql(name, columns) for name in ("before", "after")}
    needed = {
        "b": "CASE WHEN moves OR op = 'delete' THEN before END",
        "a": "CASE WHEN op <> 'delete' THEN after END",
    }
    images = ", ".join(f"{image_sql(text, columns)} AS {name}" for name, text in needed.items())
    new, old = [], []
    for name, logical in signature:
        a, b = f"a.{quoted(name)}", f"b.{quoted(name)}"
        late = f"CASE WHEN op = 'delete' THEN {again['after']}.{quoted(name)} ELSE {a} END"
        new.append(_typed(cell_sql(name, "after", a, f"{again['before']}.{quoted(name)}"), logical))
        old.append(_typed(cell_sql(name, "before", b, late), logical))
    keys = ", ".join(
        f"CASE WHEN op = 'delete' THEN {left} ELSE {right} END AS k{i}"
        for i, (left, right) in enumerate(zip(old, new, strict=True))
    )
    names = [f"k{i}" for i in range(len(signature))]
    fits = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return (
        f"SELECT *, xxhash64({', '.join(names)}) AS h FROM (SELECT m, cleared, moves, op, order_key, "
        "xxhash64(batch, topic, `partition`, `offset`) AS message, xxhash64(op, before, after) AS content, "
        f"{place_sql('order_key')} AS place, op <> 'update' OR NOT coalesce(partial, false) AS reset, {keys}, "
        f"xxhash64({', '.join(old)}) AS was FROM (SELECT *, {images} FROM ({changes(lanes)}))) "
        f"WHERE op = 'truncate' OR ({fits})"
    )


def _typed(text: str, logical: str) -> str:
    """The key cell as a value of the mirror's type; NULL if it does not fit, or would be rounded or cut."""
    kind, delta = types.family(logical), types.delta(logical)
    if kind is None or delta == "STRING":
        return text
    value = _VALUES.get(kind, "TRY_CAST({text} AS {delta})").format(text=text, delta=delta)
    fits = [_like(text, f"^(?:{types.PATTERNS[kind]})\\z"), *_exact(text, delta, kind)]
    return f"CASE WHEN {' AND '.join(fits)} THEN {value} END"


_VALUES = {
    "boolean": "({text} = 'true')",
    "binary": "unbase64({text})",
    "datetime": "TRY_CAST(substring({text}, 1, 26) AS {delta})",
    "timestamp": "TRY_CAST(regexp_replace({text}, '([.][0-9]{{6}})0+', '$1') AS {delta})",
}


def _like(text: str, pattern: str) -> str:
    return f"{text} RLIKE {literal(pattern)}"


def _exact(text: str, delta: str, kind: str) -> Iterator[str]:
    """Further conditions on a well-formed text under which Spark's cast gives its exact value."""
    if kind in ("decimal", "float"):
        yield f"length({text}) <= {MAX_NUMBER_LENGTH}"
    if (parts := types.decimal_parts(delta.lower())) and kind == "decimal":
        plain = _like(text, f"^[^.]*([.][0-9]{{0,{parts[1]}}}0*)?$")
        yield f"CASE WHEN {_like(text, '[eE]')} THEN {_scientific_scale(text)} <= {parts[1]} ELSE {plain} END"
    elif kind == "float":
        finite = f"abs(CAST(TRY_CAST({text} AS {delta}) AS DOUBLE)) < CAST('Infinity' AS DOUBLE)"
        yield f"({text} IN ('NaN', 'Infinity', '-Infinity') OR {finite})"
    elif kind in ("datetime", "timestamp"):
        yield f"NOT {_like(text, '[.][0-9]{6}[0-9]*[1-9]')}"
    elif kind == "binary":
        yield f"length({text}) % 4 = 0"


def _scientific_scale(text: str) -> str:
    """The number of fraction digits of ``12.50e-3`` written out: those of the mantissa minus the exponent."""
    mantissa = f"regexp_extract({text}, '^[+-]?([0-9.]*)', 1)"
    fraction = f"regexp_extract({mantissa}, '[.]([0-9]*?)0*$', 1)"
    zeros = f"length(regexp_extract({mantissa}, '(0*)(?:[.]0*)?$', 1))"
    digits = f"CASE WHEN {fraction} = '' THEN -{zeros} ELSE length({fraction}) END"
    return f"({digits}) - CAST(regexp_extract({text}, '[eE]([+-]?[0-9]+)$', 1) AS INT)"


def changes(lanes: Sequence[SideLane]) -> str:
    """The lanes' changes that their mirrors have folded."""
    one = lanes[0][0]
    floors = [lane.floor for _, _, lane in lanes if lane.floor is not None]
    wanted = f"batch > {one.since}" + (f" OR order_key >= {literal(min(floors))}" if floors else "")
    tables = {lane.table.table for _, _, lane in lanes}
    some = "" if None in tables else f"AND `table` IN ({', '.join(map(_text, sorted(map(str, tables))))})"
    listed = ", ".join(_listed(*found) for found in lanes)
    return (
        f"SELECT c.*, l.m, l.lane, l.cleared, l.moves FROM (SELECT * FROM {one.lake.named(CHANGES.name)} "
        f"WHERE kind = 'change' AND ({wanted}) {some}) c JOIN (VALUES {listed}) "
        "l(m, lane, moves, source, d, s, t, applied, floor, cleared) ON c.source = l.source "
        "AND c.`database` <=> l.d AND c.`schema` <=> l.s AND c.`table` <=> l.t AND c.batch <= l.applied "
        f"AND (c.batch > {one.since} OR c.order_key >= l.floor)"
    )


def _listed(one: Side, index: int, lane: CheckedLane) -> str:
    texts = (lane.source, *lane.table)
    return (
        f"({one.index}, {index}, {'true' if lane.key_changes else 'false'}, {', '.join(map(_text, texts))}, "
        f"{one.subject.applied}L, {_text(lane.floor)}, {_text(one.above(index, lane) or None)})"
    )


def _text(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else literal(value)
