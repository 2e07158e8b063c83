"""Several mirrors of one source table: the lake as seen by the rules of one further mirror at a time.

Everything that folds, checks or compares knows one rule for a source table. A view has it: the same lake, with the rules
of the further mirrors at one place in ``also:``, and no others (`ingest.config.model.Pipeline.views`).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from ingest import types
from ingest.change import TableId
from ingest.config import Pipeline, TableRule, target
from ingest.errors import agreeing, command, counted
from ingest.ledgers import decoded_with, feeds, lanes
from ingest.ledgers.decoded_with import Outdated
from ingest.ledgers.mirrors import (
    Column,
    Mirror,
    fed_before,
    known,
    may_move,
    path_for,
    reshaped,
    rule_for,
    rules,
    unfed,
)
from ingest.store import faults
from ingest.store.names import mirror_path
from ingest.tables import commits
from ingest.tables.tables import Tables

AnyLake = TypeVar("AnyLake", bound=Tables)
_SINGLY = 3  # mirrors of one edit that are each said in a sentence
_TYPED = 20  # mirrors that a command names at most


@dataclass(frozen=True, slots=True)
class Contested:
    """A further mirror of a table that another entry's rows go into."""

    table: TableId
    mirror: TableId
    place: str  # file:line:column of its name
    other: TableId  # a table whose rows go into it

    @property
    def text(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"{self.place} rows of {self.table} would go into {self.mirror}, which holds rows of {self.other} by another "
            "entry of tables: or of also:; none of them went there: give one of the two another name.".lstrip()
        )


def views(lake: AnyLake) -> list[AnyLake]:
    """The lake itself, then once for each place in ``also:`` with the rules of the further mirrors there.

    A further mirror holds rows of its entry alone: what `contested` lists is left out.
    """
    if not _several(lake):
        return [lake]
    return [lake, *(_seen(lake, view) for view in _split(lake.pipeline, _tables(lake))[0][1:])]


def contested(lake: Tables) -> list[Contested]:
    """The further mirrors that another entry's rows go into."""
    return _split(lake.pipeline, _tables(lake))[1] if _several(lake) else []


def of(lake: AnyLake, mirror: Mirror) -> AnyLake:
    """The lake by the rules that fill a mirror; the lake itself if nothing fills it."""
    return next((view for view in views(lake)[1:] if mirror.path in paths(view)), lake)


def paths(view: Tables) -> frozenset[str]:
    """The mirrors of the tables that have sent rows, by the rules of a view."""
    return frozenset(path_for(view.pipeline, table) for table in _tables(view)) - {""}


def shared(lake: AnyLake, paths_found: Collection[str]) -> list[tuple[AnyLake, frozenset[str]]]:
    """The views, each with its own of some mirrors' paths; the first has those that no rule fills any more, too."""
    first, *further = views(lake)
    by_view = [frozenset(paths_found) & paths(view) for view in further]
    return [(first, frozenset(paths_found).difference(*by_view)), *zip(further, by_view, strict=True)]


def unfinished(lake: Tables) -> frozenset[str]:
    """The paths of mirrors that a run has to fold without new messages.

    Their rules have changed, their change feed has not begun, or a further mirror was added, or has taken another's place; that one
    may be dropped by now.
    """
    unfinished_paths = frozenset[str]()
    left = unfed(lake) if may_move(lake.pipeline, known(lake).values()) else ()
    moved = {table for path in left for table in known(lake)[path].sources}
    moved |= fed_before(lake)
    for view in views(lake):
        unfinished_paths |= reshaped(view) | feeds.missing(view)
        if _several(lake):
            unfinished_paths |= paths(view) - known(view).keys()
        elif moved:
            filled = {path_for(view.pipeline, table) for table in moved} - {""}
            if new := filled - known(view).keys():
                unfinished_paths |= new & paths(view)
    return unfinished_paths


@dataclass(frozen=True, slots=True)
class Mistyped:
    """A mirror whose columns, each with the type that is declared for it, keep others until all its rows are folded again."""

    mirror: Mirror
    columns: tuple[tuple[Column, str], ...]
    backfill: str  # the command that decodes its batches again and then folds them; empty if they need not be decoded

    @property
    def said(self) -> str:
        """Which type each has."""
        return ", ".join(
            f"{column.name} is {column.delta} instead of {declared}" for column, declared in self.columns
        )


class Unlike(NamedTuple):
    """A mirror, or many, that are not as the pipeline file says until a command folds them again; of many there is no name."""

    kind: str  # of the problem
    mirror: str
    sentence: str
    command: str


def of_other_settings(lake: Tables) -> tuple[list[Unlike], list[Outdated]]:
    """What was made, folded or decoded with other settings than today's, each table in one place.

    Batches are named where more is to be said of a table than that its mirror has other types than are declared.
    """
    batches = decoded_with.outdated(lake, lake.decoded())
    wrong = mistyped(lake, batches)
    of_types = {table for each in wrong for table in each.mirror.sources}
    left = [more for each in batches if (more := each.without_said(of_types))]
    of_batches = {table for each in left for table in each.by_table}
    alone = [each for each in wrong if not each.mirror.sources & of_batches]
    return [
        *_of_types(lake.pipeline, alone),
        *_of_vectors(lake.pipeline, not_plain(lake)),
    ], decoded_with.by_one_command(left)


def settings_said(lake: Tables) -> list[str]:
    """The same in sentences."""
    return [each.sentence for listed in of_other_settings(lake) for each in listed]


def _of_types(pipeline: Pipeline, wrong: Iterable[Mistyped]) -> Iterator[Unlike]:
    """The mirrors with other types; many, as after an edit of an entry for all of them, in one sentence."""
    listed = sorted(wrong, key=lambda each: each.mirror.name)
    if len(listed) > _SINGLY:
        rebuilt = [each.mirror.name for each in listed if not each.backfill]
        commands = [*dict.fromkeys(each.backfill for each in listed if each.backfill)]
        commands += [_rebuild(pipeline, rebuilt)] if rebuilt else []
        said = "; ".join(f"{each.mirror.name}: {each.said}" for each in listed[:_SINGLY])
        have = f"{counted(len(listed), 'mirror')} have not the types that columns: declares"
        typed = " and then ".join(f"`{each}`" for each in commands)
        folds = f"{typed} {agreeing(len(commands), 'folds', 'fold')} their rows again with these."
        more = f"{said}; and {len(listed) - _SINGLY} more"
        yield Unlike("declared_types", "", f"{have} ({more}): {folds}", commands[0])
        return
    for each in listed:
        typed = each.backfill or _rebuild(pipeline, [each.mirror.name])
        has = f"{each.mirror.name} has not the types that columns: declares"
        folds = f"`{typed}` folds its rows again with these."
        yield Unlike("declared_types", each.mirror.name, f"{has} ({each.said}): {folds}", typed)


def _of_vectors(pipeline: Pipeline, wrong: Sequence[Mirror]) -> Iterator[Unlike]:
    """The mirrors that are to be plain; many in one sentence."""
    names = sorted(mirror.name for mirror in wrong)
    for group in [names] if len(names) > _SINGLY else [[name] for name in names]:
        typed, is_one = _rebuild(pipeline, group), len(group) == 1
        asking = (
            f"{group[0]} asks its"
            if is_one
            else f"{counted(len(group), 'mirror')}, such as {group[0]}, ask their"
        )
        asks = f"{asking} readers to know deletion vectors, though plain_tables: is true"
        makes = f"`{typed}` makes {agreeing(len(group), 'it', 'them')} plain"
        yield Unlike("not_plain", group[0] if is_one else "", f"{asks}: {makes}.", typed)


def _rebuild(pipeline: Pipeline, names: Sequence[str]) -> str:
    """The command that folds mirrors again: all that there are, if a command cannot name so many."""
    return command("rebuild", pipeline.file, *(names if len(names) <= _TYPED else ()))


def not_plain(lake: Tables) -> list[Mirror]:
    """The mirrors that a rebuild makes plain, which they were to be and are not.

    Where only Spark commits, a rebuild keeps what a table asks of its readers.
    """
    pipeline = lake.pipeline
    if not any(rule.plain_tables for rule in pipeline.every_rule) and not pipeline.plain_tables:
        return []
    if commits.why_no_commits(pipeline.lake) or pipeline.rewrite_budget == 0:
        return []
    by_path = {
        path: mirror
        for path, mirror in known(lake).items()
        if _may_be_plain(pipeline, mirror) and _can_be_made_plain(lake, path)
    }
    if not by_path:
        return []  # without the books
    return [
        mirror
        for view in views(lake)
        for path, of_mirror in rules(view).items()
        if (mirror := by_path.get(path)) and (pipeline.plain_tables or of_mirror[0].plain_tables)
    ]


def _may_be_plain(pipeline: Pipeline, mirror: Mirror) -> bool:
    """True unless no rule of the mirror's tables asks for it: most logs need no look then."""
    return pipeline.plain_tables or any(
        rule_for(pipeline, source, mirror.path).plain_tables for source in mirror.sources
    )


def _can_be_made_plain(lake: Tables, path: str) -> bool:
    """True for a table with deletion vectors and no other feature; of one that is damaged other things are said."""
    try:
        state = lake.snapshot(path)
    except Exception as error:
        if not faults.damaged(error):
            raise
        return False
    return state.takes_vectors and state.is_plain


def mistyped(lake: Tables, outdated: Sequence[Outdated]) -> list[Mistyped]:
    """The mirrors with columns of which the pipeline file declares a type that does not hold what their rows may have.

    A wider type needs no command: the mirror's next batch brings it. Where several source tables feed a mirror, a type counts
    that all their entries declare.
    """
    if not any(rule.columns for rule in lake.pipeline.every_rule):
        return []
    by_path = known(lake)
    if not any(_may_be_mistyped(lake.pipeline, mirror) for mirror in by_path.values()):
        return []  # without the books, which each run with nothing to do would ask
    pairs = [
        (mirror, columns)
        for view in views(lake)
        for path, of_mirror in rules(view).items()
        if (mirror := by_path.get(path)) and (columns := _other_types(mirror, of_mirror))
    ]
    return [Mistyped(mirror, columns, _backfill(mirror, outdated)) for mirror, columns in pairs]


def _backfill(mirror: Mirror, outdated: Collection[Outdated]) -> str:
    """The command that decodes a mirror's batches again if they lack its declared types, else nothing.

    It decodes those of all sources, so that the widest one serves for all mirrors.
    """

    def is_of_mirror(batches: Outdated) -> bool:
        return bool(batches.by_table.keys() & mirror.sources)

    if not any(map(is_of_mirror, outdated)):
        return ""
    serving = (batches for batches in outdated if batches.left_out is None or is_of_mirror(batches))
    return min(serving, key=lambda batches: batches.first).command


def _may_be_mistyped(pipeline: Pipeline, mirror: Mirror) -> bool:
    """True if the rule for one of the tables that feed a mirror declares another type of a column."""
    ruled = (rule_for(pipeline, source, mirror.path) for source in mirror.sources)
    return any(_other_types(mirror, [rule]) for rule in ruled if rule.columns)


def _other_types(mirror: Mirror, of_mirror: Sequence[TableRule]) -> tuple[tuple[Column, str], ...]:
    first, *others = (rule.declared for rule in of_mirror)
    return tuple(
        (column, declared)
        for column in mirror.sent
        if (declared := first.get(column.name)) is not None
        and not types.widens(column.delta, types.delta(declared))
        and all(other.get(column.name) == declared for other in others)
    )


def _several(lake: Tables) -> bool:
    return any(rule.also for rule in lake.pipeline.tables)


def _tables(lake: Tables) -> list[TableId]:
    return sorted({table for _, table in lanes.with_rows(lake)}, key=str)


def _seen(lake: AnyLake, pipeline: Pipeline) -> AnyLake:
    view = copy.copy(lake)
    view.pipeline = pipeline
    return view


def _split(pipeline: Pipeline, tables: Collection[TableId]) -> tuple[list[Pipeline], list[Contested]]:
    """The views of a pipeline, each without the tables whose further mirror another entry's rows go into."""
    fills: dict[str, tuple[object, TableId]] = {}
    split, left_out = list[Pipeline](), list[Contested]()
    for place, view in enumerate(pipeline.views):
        barred = set[TableId]()
        for table in tables:
            rule = view.rule(table)
            if rule.exclude:
                continue
            mirror = target(rule, table)
            entry = (place, rule.match, rule.into) if place else ()
            owner, other = fills.setdefault(mirror_path(mirror), (entry, table))
            if place and owner != entry:
                barred.add(table)
                left_out.append(Contested(table, mirror, rule.into_place, other))
        split.append(replace(view, barred=frozenset(barred)) if barred else view)
    return split, left_out
