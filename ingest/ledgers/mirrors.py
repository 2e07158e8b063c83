"""Mirrors: which ones exist, their paths, and the columns last decided for each.

A mirror's schema is a decision (kind ``schema``), written before the Delta table is created or altered, so that the run
after a kill knows what was intended, and a rebuild uses the same types.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ingest import types
from ingest.change import LaneId, TableId
from ingest.config import Pipeline, TableRule, target
from ingest.config.model import MadeColumn
from ingest.errors import IngestError, command
from ingest.ledgers import decisions, lanes
from ingest.ledgers.decisions import DECODED, DROP, REBUILT, SCHEMA, Decision, Decisions
from ingest.store.names import column_name, folded, mirror_path
from ingest.tables.delta import Extent, Snapshot
from ingest.tables.schemas import CHANGES, RUNS
from ingest.tables.tables import Tables

UNORDERED = ("BOOLEAN", "BINARY")  # types of which Delta keeps no least and greatest values
GOLD = "gold"  # the stage that writes mirrors
EXCLUDED = "excluded"  # the state of one that `unfed` names
Shard = tuple[tuple[str, str], ...]
"""The cell that distinguishes a lane's rows from other lanes': the shard column's name at the source, and its text; empty
without a shard column."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a mirror: the source's name, its name in Delta, its logical type, the source's comment.

    A column that no message carries has the rule that makes it.
    """

    name: str
    column: str
    type: str
    comment: str = ""
    made: MadeColumn | None = None

    @property
    def expression(self) -> str:
        """What it is computed from the row's other columns by; empty if it is not."""
        return self.made.value if self.made is not None and self.made.kind == "compute" else ""

    @property
    def origin(self) -> str:
        """What its rule makes it from, in words; empty for a column that messages carry."""
        if self.made is None:
            return ""
        words = {
            "compute": "computed as {}", "constant": "always {}", "meta": "{} of the row's last change",
            "deletes": "made by deletes: {}",
        }  # fmt: skip
        return words[self.made.kind].format(self.made.value)

    @property
    def delta(self) -> str:
        return types.delta(self.type)


class Era(NamedTuple):
    """A part of a lane's history with one key; it begins after ``place``, the first one with the first change."""

    place: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mirror:
    """One mirror table. ``keys`` are source column names; empty means that no key is known.

    ``eras`` has the lanes whose primary key has changed: source and table, and their keys in order.
    """

    table: TableId
    path: str  # under the lake
    keys: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    generation: int = 0
    history: tuple[str, ...] = ()  # the own columns of its history table, once it has one
    eras: tuple[tuple[str, TableId, tuple[Era, ...]], ...] = ()
    shape: str = ""  # the rules for its rows and columns, in the form of `TableRule.shape`
    shard: str | None = None  # its column that names the source table
    ignores: bool = False  # statements, and columns that they add
    keyed_by: tuple[str, ...] = ()  # what the pipeline file said of its key
    # the source tables whose rows it has; empty for the one of its own name alone
    fed_by: tuple[TableId, ...] = ()
    names_sources: bool = False  # its shard column does
    # what only older states in its history table need, see `ingest.ledgers.histories.kept`
    former: tuple[Column, ...] = ()

    def shard_of(self, lane: LaneId) -> Shard:
        """A lane's shard as its rows have it: the pipeline file may say otherwise until the next run folds them again."""
        source, table = lane
        if self.shard is None or self.shard not in self.by_name:
            return ()
        return ((self.shard, f"{source}:{table}" if self.names_sources else str(table)),)

    def is_shaped_by(self, rule: TableRule) -> bool:
        """True if a rule leaves its rows as they are; one that no longer ignores statements applies old ones, too, and one that
        asks for all states of its rows wants those that they had before.
        """
        is_alike = (self.shape, self.shard) == (rule.shape, rule.shard_column)
        has_states = bool(self.history) or not (rule.history and self.keys)
        return is_alike and has_states and (rule.ignores or not self.ignores)

    def is_named_by(self, pipeline: Pipeline, rule: TableRule) -> bool:
        """True if its rows name their source tables as a pipeline does now, or need not name them."""
        return not rule.shard_column or self.names_sources == pipeline.names_sources

    def is_made_by(self, pipeline: Pipeline, rule: TableRule) -> bool:
        """True if the pipeline file says the same of it as when it was decided."""
        alike = self.is_shaped_by(rule) and self.is_named_by(pipeline, rule)
        return alike and self.keyed_by == rule.keys

    @property
    def sources(self) -> frozenset[TableId]:
        """The source tables whose rows it has."""
        return frozenset(self.fed_by) or frozenset((self.table,))

    def is_fed_by(self, tables: Mapping[TableId, int], reached: Callable[[], int]) -> bool:
        """True if it has the rows of these source tables alone.

        A table that has sent its first rows after what the mirror has folded just comes with them.

        Args:
            tables: each with the batch of its first rows.
            reached: says the last batch that the mirror has folded, or had nothing of.
        """
        fed = self.sources
        joined = [first for table, first in tables.items() if table not in fed]
        return fed <= tables.keys() and (not joined or min(joined) > reached())

    def eras_of(self, source: str, table: TableId) -> tuple[Era, ...]:
        """A lane's eras; empty if its key has never changed."""
        return next((eras for *lane, eras in self.eras if lane == [source, table]), ())

    def rekeyed_at(self, source: str, table: TableId) -> str:
        """The place since which a lane has its last key; empty if it has had it from the beginning."""
        return max((era.place for era in self.eras_of(source, table)), default="")

    @property
    def where(self) -> str:
        """The condition of its rows; empty if it holds all rows."""
        return str(json.loads(self.shape).get("where", "")) if self.shape else ""

    @property
    def soft(self) -> bool:
        """True if it keeps deleted rows."""
        return any(column.made is not None and column.made.kind == "deletes" for column in self.columns)

    @property
    def sent(self) -> tuple[Column, ...]:
        """The columns that messages carry."""
        return tuple(column for column in self.columns if column.made is None)

    @property
    def computed(self) -> tuple[Column, ...]:
        """The columns that are computed from the others of a row."""
        return tuple(column for column in self.columns if column.expression)

    @property
    def expressions(self) -> tuple[str, ...]:
        """Everything that is evaluated on whole rows."""
        return tuple(filter(None, (self.where, *(column.expression for column in self.columns))))

    @property
    def name(self) -> str:
        """The displayed name: the parts joined by dots."""
        return str(self.table)

    @property
    def by_name(self) -> dict[str, Column]:
        """Its columns by the source's names."""
        return {column.name: column for column in self.columns}

    @property
    def logical_types(self) -> dict[str, str]:
        """The logical type of each column, by the source's name."""
        return {column.name: column.type for column in self.columns}

    @property
    def delta_types(self) -> dict[str, str]:
        """Delta's type of each column, by the source's name."""
        return {column.name: column.delta for column in self.columns}

    def keys_without(self, shard_column: str | None = None) -> tuple[str, ...]:
        """The key as the source has it: without the column that names the source table."""
        return tuple(key for key in self.keys if key != shard_column)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in the key's order."""
        by_name = self.by_name
        return tuple(by_name[key] for key in self.keys)

    @property
    def key_types(self) -> dict[str, str]:
        """The logical types of the key's columns."""
        return {key_column.name: key_column.type for key_column in self.key_columns}

    def to_value(self) -> dict[str, Any]:
        """The schema decision's value, for JSON."""
        members = {name: value for name in _IF_ANY if (value := getattr(self, name))}
        return {
            "table": list(self.table),
            "keys": list(self.keys),
            "columns": list(map(_column_value, self.columns)),
            "generation": self.generation,
            **members,
            **({"former": list(map(_column_value, self.former))} if self.former else {}),
        }

    @classmethod
    def from_value(cls, path: str, members: Mapping[str, Any]) -> Mirror:
        names = [field.name for field in fields(Column)]
        columns = {
            each: [dict(zip(names, values, strict=False)) for values in members[each]]
            for each in ("columns", "former")
            if each in members
        }
        return msgspec.convert({**members, "path": path, **columns}, cls)


_IF_ANY = ("history", "eras", "shape", "shard", "ignores", "keyed_by", "fed_by", "names_sources")


def _column_value(column: Column) -> list[Any]:
    rest = [column.comment, *([column.made] if column.made else [])] if column.comment or column.made else []
    return [column.name, column.column, column.type, *rest]


def names(pipeline: Pipeline, source: TableId) -> list[TableId]:
    """The mirrors of a source table: the first, and the further ones of its entry."""
    rule = pipeline.rule(source)
    return [target(mirror_rule, source) for mirror_rule in (rule, *rule.also)]


def path_for(pipeline: Pipeline, source: TableId) -> str:
    """The path of a source table's first mirror; empty if the table is excluded."""
    rule = pipeline.rule(source)
    return "" if rule.exclude else mirror_path(target(rule, source))


def rule_for(pipeline: Pipeline, source: TableId, path: str) -> TableRule:
    """The rule by which a source table's rows go into the mirror of a path; that of its first mirror if none does."""
    rule = pipeline.rule(source)
    fitting = (mirror_rule for mirror_rule in rule.also if mirror_path(target(mirror_rule, source)) == path)
    return rule if not rule.also or mirror_path(target(rule, source)) == path else next(fitting, rule)


def feeding(pipeline: Pipeline, lanes: Iterable[LaneId]) -> frozenset[LaneId]:
    """The lanes, each a source with one of its tables, whose rows a mirror holds.

    A source that the pipeline file no longer has is left out if another one delivers the same table now.
    """
    given, named = {source.name for source in pipeline.sources}, frozenset(lanes)
    delivered = {table for source, table in named if source in given}
    return frozenset((source, table) for source, table in named if source in given or table not in delivered)


def unknown(name: str, names: Iterable[str]) -> IngestError:
    """The error for the name of no mirror."""
    return IngestError(
        f"There is no mirror {name}; there are {', '.join(sorted(names)) or 'none yet: run the pipeline first'}."
    )


def by_name(lake: Tables) -> dict[str, Mirror]:
    """Every mirror by its name, as `known`."""
    return {mirror.name: mirror for mirror in known(lake).values()}


def named(lake: Tables, name: str) -> Mirror:
    """The mirror of a name.

    Raises:
        IngestError: there is none.
    """
    mirrors_by_name = by_name(lake)
    if name not in mirrors_by_name:
        raise unknown(name, mirrors_by_name)
    return mirrors_by_name[name]


def known(lake: Tables) -> dict[str, Mirror]:
    """Every mirror by its path, as last decided, but those that were dropped since; made once for each state of the ledger."""
    ledger = decisions.read(lake)
    return lake.made_once("decisions/mirrors", ledger, lambda: _decided(ledger)).copy()


def _decided(ledger: Decisions) -> dict[str, Mirror]:
    newest = ledger.newest(SCHEMA, DROP)
    return {
        path: Mirror.from_value(path, decision.value)
        for path, decision in newest.items()
        if decision.kind == SCHEMA
    }


def dropped(lake: Tables) -> frozenset[str]:
    """The names of mirrors that were dropped, and not made again since."""
    newest = decisions.read(lake).newest(SCHEMA, DROP)
    return frozenset(decision.value["table"] for decision in newest.values() if decision.kind == DROP)


def fed_before(lake: Tables) -> frozenset[TableId]:
    """The source tables that fed the mirrors which were dropped, and not made again since."""
    ledger = decisions.read(lake)
    schemas = ledger.newest(SCHEMA)
    paths = (path for path, newest in ledger.newest(SCHEMA, DROP).items() if newest.kind == DROP)
    return frozenset().union(
        *(Mirror.from_value(path, schemas[path].value).sources for path in paths if path in schemas)
    )


def unfed(lake: Tables) -> dict[str, str]:
    """The mirrors that get no more rows by the pipeline file, by path, with what it does: it excludes their tables, or sends
    their rows to other mirrors.
    """
    ruled = {table: lake.pipeline.rule(table) for _, table in lanes.booked(lake)}
    fed = {
        mirror_path(name)
        for source, rule in ruled.items()
        if not rule.exclude
        for name in names(lake.pipeline, source)
    }
    left = {}
    for path, mirror in known(lake).items():
        if path not in fed and mirror.sources <= ruled.keys():
            excluding = sorted(ruled[source].match for source in mirror.sources if ruled[source].exclude)
            others = ", ".join(sorted(map(str, mirror.sources)))
            left[path] = (
                f"excludes it (match: {excluding[0]})"
                if excluding
                else f"sends the rows of {others} elsewhere"
            )
    return left


def outdated(lake: Tables) -> list[Mirror]:
    """Mirrors that hold rows of changes which were decoded again later, and that have not been rebuilt since."""
    paths: set[str] = set()
    for decision in decisions.read(lake).of(DECODED, REBUILT):
        paths = (
            paths | set(decision.value["mirrors"]) if decision.kind == DECODED else paths - {decision.subject}
        )
    by_path = known(lake) if paths else {}
    left = unfed(lake) if paths else {}
    return [by_path[path] for path in sorted(paths) if path in by_path and path not in left]


def outdated_since(lake: Tables, mirror: Mirror) -> dt.datetime | None:
    """When changes that a mirror holds were decoded again last, in UTC without a zone."""
    again = decisions.read(lake).of(DECODED)
    return max(
        (each.decided_at for each in again if each.decided_at and mirror.path in each.value["mirrors"]),
        default=None,
    )


def not_created_yet(lake: Tables) -> frozenset[str]:
    """Paths of mirrors that did not exist before old changes were decoded again, and are not created yet."""
    paths = {path for decision in decisions.read(lake).of(DECODED) for path in decision.value.get("new", ())}
    return frozenset(paths - known(lake).keys()) if paths else frozenset()


def reshaped(lake: Tables, decided: Mapping[str, Mirror] | None = None) -> frozenset[str]:
    """Paths of mirrors whose rules in the pipeline file differ, or may differ, from those that they were folded by."""
    by_path = known(lake) if decided is None else decided
    if not may_move(lake.pipeline, by_path.values()) and all(
        _is_ruled_as_before(lake.pipeline, mirror) for mirror in by_path.values()
    ):
        return frozenset()  # without the books, which each run with nothing to do would ask
    return frozenset(
        path
        for path, feeding_table in _feeding_tables(lake).items()
        if path in by_path
        and by_path[path].columns
        and (
            _is_ruled_otherwise(lake, by_path[path], feeding_table)
            or not by_path[path].is_fed_by(feeding_table, partial(reached, lake, by_path[path]))
        )
    )


def may_move(pipeline: Pipeline, mirrors: Iterable[Mirror]) -> bool:
    """False if each table feeds the mirror of its own name alone, and always has."""
    return any(rule.into for rule in pipeline.tables) or any(mirror.fed_by for mirror in mirrors)


def _is_ruled_as_before(pipeline: Pipeline, mirror: Mirror) -> bool:
    """True of the mirror of one table if the rule of that has not changed, or fills it no more."""
    rule = pipeline.rule(mirror.table)
    return rule.exclude or mirror.is_made_by(pipeline, rule)


def _is_ruled_otherwise(lake: Tables, mirror: Mirror, tables: Mapping[TableId, int]) -> bool:
    rules = [lake.pipeline.rule(table) for table in tables]
    alike = len({(rule.shape, rule.shard_column, rule.ignores, rule.keys) for rule in rules}) == 1
    return alike and not mirror.is_made_by(lake.pipeline, rules[0])


def writer(lake: Tables, mirror: Mirror) -> str:
    """The name under which gold's progress is in the log of a mirror's table."""
    return lake.writer(GOLD, mirror.path, mirror.generation)


def folded_until(lake: Tables, mirror: Mirror, state: Snapshot | Extent) -> int:
    """The last batch that a mirror has folded, by its table's log; -1 before the first."""
    return state.transactions.get(writer(lake, mirror), -1)


def reached(lake: Tables, mirror: Mirror) -> int:
    """The last batch that a mirror has folded, or had nothing of."""
    marks = lake.last_marks(RUNS.name)
    folded = folded_until(lake, mirror, lake.snapshot(mirror.path))
    lags = mirror.path in (marks.get("lagging") or ())
    return folded if lags else max(folded, marks.get("complete", -1))


def rules(lake: Tables) -> dict[str, list[TableRule]]:
    """The rules of each mirror's source tables, by its path."""
    return {path: list(map(lake.pipeline.rule, tables)) for path, tables in _feeding_tables(lake).items()}


def _feeding_tables(lake: Tables) -> dict[str, dict[TableId, int]]:
    """The source tables that have sent changes for each mirror, by its path, with the batch of their first ones."""
    by_path: dict[str, dict[TableId, int]] = {}
    for source, first in lanes.first_batches(lake).items():
        if path := path_for(lake.pipeline, source):
            by_path.setdefault(path, {})[source] = first
    return by_path


@dataclass(frozen=True, slots=True)
class Clusters:
    """The columns by which a mirror's files are ordered, by Delta's names, or why they cannot be."""

    columns: tuple[str, ...] = ()
    refused: str = ""


def clusters(lake: Tables) -> dict[str, Clusters]:
    """For each mirror of a view by its path, what the pipeline file says of the order of its files; those without are
    left out.
    """
    if not any(rule.cluster_by for rule in lake.pipeline.tables):
        return {}
    asked = {
        path: rule
        for path, of_mirror in rules(lake).items()
        if (rule := next((rule for rule in of_mirror if rule.cluster_by), None)) is not None
    }
    return {path: _clusters(mirror, asked[path]) for path, mirror in known(lake).items() if path in asked}


def _clusters(mirror: Mirror, rule: TableRule) -> Clusters:
    columns = mirror.by_name
    for name in rule.cluster_by:
        why = ""
        if name not in columns:
            why = "which the mirror does not have"
        elif columns[name].delta in UNORDERED:
            why = f"whose type {columns[name].delta} gives files no order"
        if why:
            refused = (
                f"{rule.cluster_place} cluster_by: names {name} of {mirror.name}, {why}: name another column."
            )
            return Clusters(refused=refused)
    return Clusters(tuple(columns[name].column for name in rule.cluster_by))


def announced(paths: Iterable[str], mirrors_of_lake: Container[str], batch: int) -> Decision:
    """The decision that these mirrors' changes are decoded again; unknown mirrors are to be created."""
    announced_paths = sorted(path for path in paths if path in mirrors_of_lake)
    new = sorted(path for path in paths if path not in mirrors_of_lake)
    return Decision(DECODED, CHANGES.name, {"mirrors": announced_paths, "new": new}, batch)


def outdated_text(lake: Tables, mirror: Mirror) -> str:
    """What is wrong with such a mirror, and what to do."""
    return (
        f"{mirror.name} was folded from changes that have been decoded again since: "
        f"`{command('rebuild', lake.pipeline.file, mirror.name)}` folds it again."
    )


def decision(mirror: Mirror, batch: int, reason: str) -> Decision:
    return Decision(SCHEMA, mirror.path, mirror.to_value(), batch, reason)


def grown(
    mirror: Mirror | None, table: TableId, rule: TableRule, keys: tuple[str, ...], seen: Mapping[str, str]
) -> Mirror:
    """The mirror with all columns that rows or DDL have shown, none is removed, and without those that rules make.

    ``mirror`` is as last decided, or None for a new one. A type that ``rule`` declares takes precedence. ``keys`` are those of
    the decision once known. ``seen`` are source columns with their logical types, in order.
    """
    path = mirror_path(table)
    mirror = mirror or Mirror(table, path)
    before = {column.name: column for column in mirror.sent}
    reshaped = not mirror.is_shaped_by(rule)
    if mirror.shard is not None and mirror.shard not in (rule.shard_column, *seen):
        before.pop(mirror.shard, None)
    columns = [] if reshaped else list(before.values())
    have = {column.name for column in columns}
    taken = {folded(column.column) for column in columns}
    declared = rule.declared
    for name in dict.fromkeys((*before, *keys, *seen) if reshaped else (*keys, *seen)):
        if name not in have and (name in keys or not rule.leaves_out(name)):
            logical = types.first_known(declared.get(name), seen.get(name))
            column = before.get(name, Column(name, "", logical))
            columns.append(replace(column, column=rule.names.get(name) or column_name(name, taken)))
    columns = [_typed(column, declared.get(column.name), seen) for column in columns]
    grown_mirror = replace(mirror, table=table, path=path, keys=keys, columns=tuple(columns))
    return replace(
        grown_mirror, shape=rule.shape, shard=rule.shard_column, ignores=rule.ignores, keyed_by=rule.keys
    )


def _typed(column: Column, declared: str | None, seen: Mapping[str, str]) -> Column:
    """The column with a type that also holds what rows show; a type from the pipeline file is never exceeded."""
    if declared is not None:
        new = declared if types.widens(column.delta, types.delta(declared)) else column.type
    else:
        new = types.grown(column.type, seen.get(column.name, "unknown"))
    return replace(column, type=new)


def is_full_row(rule: TableRule, mirror: Mirror | None) -> bool:
    """True if all of their values identify a mirror's rows."""
    return mirror is not None and bool(mirror.columns) and not mirror.keys and rule.no_key == "full_row"
