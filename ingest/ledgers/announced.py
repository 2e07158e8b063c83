"""What rows announce of which no statement tells: columns, and labels of enumerations.

Some rows of a table have a column, those before them lack it, and no statement has added it.

PostgreSQL sends no statements, and Debezium of MySQL none without its schema-change topic. A message's own schema counts as
the statement then (Kafka Connect: ``optional`` and ``default``): the rows before the column have its default, or NULL if it
may be NULL and has none. Without such a schema, or if a column must not be NULL and has no default, no message says what
these rows have. Only the first row with a column counts: a default that changes later fills nothing, and a column that rows
have from the first one on was never added.

The same schema lists the labels of an enumeration (Debezium: `io.debezium.data.Enum`, ``allowed``). PostgreSQL renames a label
without changing a row: where a later list has another label in its place, the rows before it have that one now
(`ingest.ddl.pg_types.relabelled`). A place in history, not arrival, says which list is later, so a late message renames
nothing back; where arrival alone orders rows, a list that has come before is taken for late.

The fields of PostgreSQL's rows are in the order of the table's columns, which shows columns that have other names since, and
those that were dropped and made again (`ingest.ddl.layouts.rearranged`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import Self

from ingest.change import LaneId, TableId
from ingest.ddl.alter import one_by_one
from ingest.ddl.effect_model import MOVED, UNANNOUNCED, UNREAD, Effect, kind_of
from ingest.ddl.layouts import Rearranged, rearranged
from ingest.ddl.pg_types import relabelled
from ingest.ledgers import lanes
from ingest.ledgers.books import (
    WHOLE_OR_NOT,
    Announcement,
    ColumnOrder,
    LabelList,
    Line,
    summed,
    united_lists,
)
from ingest.ledgers.logged_statements import Decided, Statement, by_lane
from ingest.order import behind, is_weak
from ingest.tables import duck
from ingest.tables.tables import Tables


@dataclass(slots=True)
class _SentColumn:
    """Where the whole rows of a lane lack a column, and where they, or the schemas of any rows, have it."""

    lacking: str = ""  # the lowest place; empty for none
    last_lacking: str = ""
    having: str = ""
    batch: int = 0  # of the first row that has it
    type: str = "unknown"
    says: Announcement | None = None

    def add(self, line: Line, name: str) -> None:
        """Add some rows."""
        without, having = line.spans(name)
        if without and (not self.lacking or without[0] < self.lacking):
            self.lacking = without[0]
        self.last_lacking = max([self.last_lacking, *without])
        says = line.announced.get(name)
        if says:
            self.says = says if self.says is None else self.says.united(says)
        # a schema has the column also where its row is deleted, or not sent whole
        first = min([*having[:1], *([says.low] if says else [])], default="")
        if first and (not self.having or first < self.having):
            self.having, self.batch, self.type = first, line.batch, line.columns[name]

    @classmethod
    def first(cls, line: Line, name: str, place: str) -> Self:
        """A column that rows have from a place on; what only later schemas say of it is not known of the rows before."""
        says = line.announced.get(name)
        return cls(
            having=place,
            batch=line.batch,
            type=line.columns.get(name, "unknown"),
            says=says if says and says.low == place else None,
        )


@dataclass(frozen=True, slots=True)
class _SentLabels:
    """The lists of an enumeration's labels in the schemas of a lane's rows, each with the batch of these rows."""

    column: str
    sent: Sequence[tuple[LabelList, int]]

    def renamings(self) -> Iterator[_Relabelling]:
        """What became of labels, from each list to the next one."""
        lists = united_lists(*(each for each, _ in self.sent))
        # the connector does not escape commas: only rows show labels that have some
        shown = {label for each in lists for label in each.strays}
        is_of_arrival = any(is_weak(each.high) for each in lists)
        ordered = sorted(lists, key=attrgetter("low" if is_of_arrival else "high"))
        whole = [replace(each, labels=tuple(_joined(each.labels, shown))) for each in ordered]
        for number, (old, new) in enumerate(pairwise(ordered), 1):
            if became := relabelled(whole[number - 1].labels, whole[number].labels):
                # rows of the old list, and older rows that came with a newer one
                last = max(old.high, *(_last_stray(label, whole[number:]) for label in became))
                yield _Relabelling(self.column, old.labels, new.labels, became, *self._begins(new, last))

    def _begins(self, new: LabelList, last: str) -> tuple[str, int]:
        """Where a list of labels begins to hold, after the last row to which it does not apply, and the batch that shows it."""
        alike = [(each, batch) for each, batch in self.sent if each.labels == new.labels]
        around = [batch for each, batch in alike if each.low <= last <= each.high]
        later = [(each.low, batch) for each, batch in alike if each.low > last]
        if later and not around:
            return min(later)
        of_last = [batch for each, batch in self.sent if last in (each.high, *each.strays.values())]
        return behind(last), max(min(of_last), min(around, default=0))


@dataclass(frozen=True, slots=True)
class _Relabelling:
    """What became of labels where a new list begins: the new label, or None if the lists do not tell."""

    column: str
    old: Sequence[str]
    new: Sequence[str]
    became: Mapping[str, str | None]
    place: str
    batch: int

    @property
    def text(self) -> str:
        """In words, as there is no statement."""
        renamed = [f"{label!r} is {new!r} now" for label, new in self.became.items() if new is not None]
        lost = [repr(label) for label, new in self.became.items() if new is None]
        what = [*renamed, *([f"nothing says what {', '.join(lost)} became"] if lost else [])]
        return f"rows came with other labels of column {self.column}, by no statement: {'; '.join(what)}"


def _joined(labels: Sequence[str], whole: Iterable[str]) -> Sequence[str]:
    """A list of labels that was cut at their commas too, with those put together again that are known to be ``whole``."""
    for label in sorted((label for label in whole if "," in label), key=len, reverse=True):
        parts = label.split(",")
        for begin in range(len(labels) - len(parts) + 1):
            end = begin + len(parts)
            if [*labels[begin:end]] == parts:
                labels = [*labels[:begin], label, *labels[end:]]
                break
    return labels


def _last_stray(label: str, lists: Sequence[LabelList]) -> str:
    """The place of the last row with a label that its list lacks, up to a list that has it again."""
    again = next((number for number, each in enumerate(lists) if label in each.labels), len(lists))
    return max((each.strays.get(label, "") for each in lists[:again]), default="")


@dataclass(frozen=True, slots=True)
class _Rearrangement:
    """What became of columns where their order is another one from a row on."""

    old: ColumnOrder
    new: ColumnOrder
    became: Rearranged
    made_again: Mapping[str, _SentColumn]  # by name; those before have been dropped, or have other names
    batch: int
    known: frozenset[str]  # all columns that there have been

    @property
    def text(self) -> str:
        """In words, as there is no statement."""
        said = [f"{was} is {name} now" for was, name in self.became.renamed.items()]
        said += [f"{name} is another column than before" for name in self.made_again]
        if self.became.unknown:
            said.append(f"nothing says what older rows have in {', '.join(self.became.unknown)}")
        return f"rows came with other columns, by no statement: {'; '.join(said)}"

    def effects(self, table: TableId) -> Iterator[Effect]:
        """What that did to the rows before."""
        yield from one_by_one(
            [Effect("rename_column", table, was, to=name) for was, name in self.became.renamed.items()]
        )
        for name in self.became.unknown:
            if name in self.known:
                yield Effect("modify_column", table, name, note=MOVED)
            else:
                yield Effect("add_column", table, name, note=UNANNOUNCED)
        for name, column in self.made_again.items():
            yield Effect("drop_column", table, name)
            yield _addition(table, name, column)


def _added(old: ColumnOrder, new: ColumnOrder, renamed: Collection[str]) -> list[str]:
    """The columns at the end that were not there before, also by another name."""
    before = {*old.columns, *renamed}
    return [*reversed([*takewhile(lambda name: name not in before, reversed(new.columns))])]


@dataclass(slots=True)
class _SentRows:
    """The lines of one lane."""

    lines: list[Line] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def sometimes(self) -> Iterator[tuple[str, _SentColumn]]:
        """The columns that some whole rows lack and others have."""
        names = dict.fromkeys(name for line in self.lines for name in line.columns if name not in self.keys)
        for name in names:
            column = _SentColumn()
            for line in self.lines:
                column.add(line, name)
            if column.lacking and column.having:
                yield name, column

    def enumerations(self) -> Iterator[_SentLabels]:
        """The columns whose schemas list labels."""
        names = dict.fromkeys(
            name for line in self.lines for name, says in line.announced.items() if says.lists
        )
        for name in names:
            lines = [line for line in self.lines if name in line.announced]
            yield _SentLabels(
                name, [(each, line.batch) for line in lines for each in line.announced[name].lists]
            )

    def rearrangements(self) -> Iterator[_Rearrangement]:
        """What became of columns, from each order of them to the next one.

        None where rows of both came by turns, or arrival alone orders them: nothing says which is the later one. A column that
        comes back at the end is another one than before, and a new one like any other; PostgreSQL puts none in front of others, so
        that rows may have lacked it there by the connector's settings.
        """
        seen: set[str] = set()
        gone: set[str] = set()  # names that columns have had
        for (old, _), (new, line) in pairwise(self._orders()):
            seen.update(old.columns)
            if old.columns == new.columns or old.high >= new.low:
                continue
            renamed, unknown = rearranged(old.columns, new.columns, new.unchanged)
            is_back = (gone & {*new.columns}) - {*renamed.values(), *unknown}
            gone = (gone | {*old.columns}) - {*new.columns}
            made_again = [name for name in _added(old, new, renamed.values()) if name in is_back - self.keys]
            is_shown_again = is_back.difference(made_again)
            unknown += [name for name in new.columns if name in is_shown_again and self._may_be_null(name)]
            # another key column may be one that was filled with the same values
            if {*old.columns} != {*new.columns}:
                unknown = [name for name in unknown if name not in self.keys]
            if len(new.columns) < len(old.columns):  # another key may as well be that of another table
                renamed = {was: name for was, name in renamed.items() if was not in self.keys}
            if renamed or unknown or made_again:
                came = {name: _SentColumn.first(line, name, new.low) for name in made_again}
                became = Rearranged(renamed, unknown)
                yield _Rearrangement(old, new, became, came, line.batch, frozenset(seen))

    def _orders(self) -> list[tuple[ColumnOrder, Line]]:
        """The orders of columns by their first places in history, each with the line that has it."""
        placed = [(each, line) for line in self.lines for each in line.layouts if not is_weak(each.low)]
        return sorted(placed, key=lambda each: each[0].low)

    def _may_be_null(self, name: str) -> bool:
        return any(line.announced[name].nullable for line in self.lines if name in line.announced)


def announced(lake: Tables, statements: Sequence[Statement], said: Decided, last: int) -> list[Statement]:
    """The statements, in order, with one more for each column that rows announce, and for each other list of labels.

    Args:
        lake: the lake.
        statements: those of the ledger, in order.
        said: the decisions on statements.
        last: the last batch whose rows count.
    """
    unannounced, about = [], by_lane(statements)
    leaves_out_nulls = cache(partial(lanes.leaves_out_nulls, lake))
    for lane, rows in _sent(lake, last).items():
        # statements that are sent say what becomes of columns and labels
        moves = (
            [_rearrangement(lane, each, said) for each in rows.rearrangements()] if lane not in about else []
        )
        unannounced += moves
        for name, column in rows.sometimes():
            if (
                column.having < column.lacking
                or _is_null(column)
                or _is_explained(lane[1], name, column, about.get(lane, moves))
            ):
                continue
            if column.says is None and _is_null_there(column, leaves_out_nulls(lane[0])):
                continue
            unannounced.append(_statement(lane, name, column, said))
        renamings = [each for column in rows.enumerations() for each in column.renamings()]
        if renamings and lane not in about:
            unannounced += [_relabelling(lane, each, said) for each in renamings]
    if not unannounced:
        return list(statements)
    return sorted([*statements, *unannounced], key=lambda statement: (statement.order, statement.batch))


def required(lake: Tables) -> dict[LaneId, list[str]]:
    """The columns, by lane, that some whole rows lack and that must not be NULL, by the schema of the newest rows."""
    return {
        lane: [
            name
            for name, column in rows.sometimes()
            if column.says is not None and not column.says.nullable and column.says.high > column.last_lacking
        ]
        for lane, rows in _sent(lake, lake.decoded()).items()
    }


def _is_null_there(column: _SentColumn, leaves_out_nulls: bool | None) -> bool:
    """True if rows lack a column because it is NULL there.

    Where it is not known whether the source leaves NULLs out, a column that all rows have from some place on is new.
    """
    if leaves_out_nulls is None:
        return column.last_lacking > column.having
    return leaves_out_nulls


def _is_null(column: _SentColumn) -> bool:
    """True if the rows before a column are known to have NULL there: nothing is to be done to them."""
    return column.says is not None and column.says.known and column.says.default is None


def _statement(lane: LaneId, name: str, column: _SentColumn, said: Decided) -> Statement:
    source, table = lane
    mark = [column.batch, source, *table, name]
    text = f"rows came with the new column {name}, which no statement has added"
    effects = (_addition(table, name, column),)
    return _announced_by(lane, mark, column.batch, column.having, text, "safe", effects, said)


def _addition(table: TableId, name: str, column: _SentColumn) -> Effect:
    """What a statement would have done that added a column."""
    says = column.says
    has_default = says is not None and says.known
    return Effect(
        "add_column",
        table,
        name,
        type=column.type,
        nullable=None if says is None else says.nullable,
        default=says.default if says is not None and has_default else None,
        has_default=has_default,
        note=None if has_default else UNANNOUNCED,
    )


def _rearrangement(lane: LaneId, change: _Rearrangement, said: Decided) -> Statement:
    source, table = lane
    effects = tuple(change.effects(table))
    mark = [source, *table, change.old.columns, change.new.columns]
    return _announced_by(
        lane, mark, change.batch, change.new.low, change.text, kind_of(effects), effects, said
    )


def _relabelling(lane: LaneId, change: _Relabelling, said: Decided) -> Statement:
    source, table = lane
    effects = tuple(
        Effect("relabel_column", table, change.column, to=new, default=label)
        for label, new in change.became.items()
    )
    mark = [source, *table, change.column, change.old, change.new]
    return _announced_by(lane, mark, change.batch, change.place, change.text, kind_of(effects), effects, said)


def _announced_by(
    lane: LaneId,
    mark: Sequence[object],
    batch: int,
    place: str,
    text: str,
    kind: str,
    effects: tuple[Effect, ...],
    said: Decided,
) -> Statement:
    """The statement that a lane's rows stand for; it has the same number for the same ``mark``, by which it is decided."""
    source, table = lane
    number = hashlib.sha256(json.dumps(mark).encode()).hexdigest()[:8]
    decision = said.get((number, batch), "")
    return Statement(number, source, table, batch, place, text, kind, effects, decision, is_announced=True)


# --- what statements say ----------------------------------------------------------------------------


def _is_explained(table: TableId, name: str, column: _SentColumn, about: Iterable[Statement]) -> bool:
    """True if a statement on the table may explain that its first rows lack a column."""
    return any(_explains(statement, table, name, column.lacking) for statement in about)


def _explains(statement: Statement, table: TableId, name: str, lacking: str) -> bool:
    if statement.kind == "unknown" and not statement.effects:
        return True
    return any(_brings(effect, table, name, later=statement.order > lacking) for effect in statement.meant)


def _brings(effect: Effect, table: TableId, name: str, *, later: bool) -> bool:
    """True if an effect gives a table a column; ``later`` if it came after rows without it."""
    folded = name.casefold()
    match effect.action:
        case "create_table" if effect.columns:
            has = any(column.name.casefold() == folded for column in effect.columns)
            # one that only describes a table says nothing of what its rows had before
            return effect.table == table and has and not (later and effect.note == "if-not-exists")
        case "create_table" | "rename_table" | "swap_table" | "drop_table" | "drop_database" | "unread":
            return later
        case "rename_column":
            return folded in (effect.name.casefold(), effect.new_name.casefold())
    return effect.note == UNREAD or (effect.column or "").casefold() == folded


# --- what the books say -------------------------------------------------------------------------------


def _sent(lake: Tables, last: int) -> dict[LaneId, _SentRows]:
    """The books' lines up to a batch, by lane, those with the same columns as one.

    Lanes whose rows all have the same columns in one order, none of them an enumeration, are left out: no row lacks a column of
    another one.
    """
    sent: dict[LaneId, _SentRows] = {}
    for row in lake.ask(
        f"""SELECT {duck.LANE_SQL}, keys, columns, lacks, announced, layouts, {duck.sums(WHOLE_OR_NOT)}, min(order_low) AS low,
        max(order_high) AS high, arg_min(batch, order_low) AS batch FROM {{books}} WHERE changes > 0 AND batch <= {last}
        GROUP BY {duck.LANE_SQL}, keys, columns, lacks, announced, layouts
        QUALIFY count(*) OVER (PARTITION BY {duck.LANE_SQL}) > 1 OR lacks <> '{{}}' OR announced LIKE '%"labels"%'
        OR json_array_length(layouts) > 1"""
    ):
        line = summed(row)
        rows = sent.setdefault((line.source, line.table_id), _SentRows())
        rows.lines.append(line)
        rows.keys.update(name for keys in line.keys for name in keys)
    return sent
