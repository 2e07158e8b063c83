"""Hold a mirror whose entry in the pipeline file cannot be followed: its rules contradict its tables, rows or columns.

Each function raises `HeldError` with what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ingest.change import LaneId
from ingest.config import Pipeline, conditions
from ingest.config.model import KEEP, TableRule
from ingest.config.scalars import nearest
from ingest.errors import HeldError, command
from ingest.gold.plan.declared import Declared
from ingest.gold.plan.lane import lane_name
from ingest.gold.plan.work import Job
from ingest.ledgers.conditions import ConditionError, refused, type_of
from ingest.ledgers.mirrors import Mirror
from ingest.store.names import column_name, folded


def refuse_unordered(job: Job) -> None:
    """Hold if several tables feed the mirror by different rules, or without an order between their rows that it needs."""
    if job.differing:
        listed = ", ".join(f"{name}:" for name in sorted(job.differing))
        raise HeldError(
            f"{job.table} is fed by tables whose entries in tables: have different rules for it ({listed}): "
            "write the same rules into each of them, or another into:."
        )
    if job.merged and (job.rule.history or job.rule.soft or job.rule.no_key != "hold"):
        what = "a history" if job.rule.history else "deleted rows" if job.rule.soft else "no key"
        named = {lane_name(job.lanes, name) for name in job.lanes}
        raise HeldError(
            f"{job.table} is fed by {' and '.join(sorted(named))}, whose positions cannot be compared, and its rows have "
            f"{what}: give their tables: entry a shard_column, or another into:."
        )


def refuse_lossy_key(pipeline: Pipeline, job: Job, keys: Collection[str]) -> None:
    """Rows are identified by their key; without one by all their values, which also identify a repeated message."""
    # no message contains it
    named = {key: job.rule.mask_of(key) for key in keys if key != job.rule.shard_column}
    if not keys and job.rule.no_key != "hold":
        named = {name: "" if how == KEEP else how for name, how in job.rule.mask.items()}
    for name, how in named.items():
        if how not in ("", "hmac"):
            what = f"the column {name} is part of the key" if keys else "it has no key"
            raise HeldError(
                f"{job.table}: {what}, and {how} gives different values one text: write `{name}: hmac` under mask: of its "
                f"tables: entry, then `{command('rebuild', pipeline.file, '--layer', 'silver')}`."
            )


def refuse_history_of_new_key(job: Job, has_changed: bool) -> None:
    """Hold if a mirror has a table of old states and its key has changed, which that table cannot follow."""
    if job.rule.history and has_changed:
        raise HeldError(
            f"the key of {job.table} has changed, which its table of old states cannot follow: write `history: false` "
            "into its tables: entry; the states up to here stay as they are."
        )


def refuse_absent_key(job: Job, keys: Iterable[str], shown: Collection[str]) -> None:
    """Hold if `keys:` names a column that the table does not have: each change would be refused, and the mirror get an empty column.

    ``shown`` are the columns of its rows, or all that a CREATE lists; a statement that changes some columns says nothing of others.
    """
    given = {*job.rule.made, job.rule.shard_column}
    for name in keys:
        if shown and name in job.rule.keys and name not in shown and name not in given:
            listed = ", ".join(sorted(shown)[:_SHOWN]) + (" ..." if len(shown) > _SHOWN else "")
            raise HeldError(
                f"`keys:` of the tables: entry of {job.table} names {name}, and none of its rows has such a column{nearest(name, sorted(shown))}: "
                f"they have {listed}; correct `keys:`."
            )


_SHOWN = 20  # columns in a sentence


def refuse_lost_key(job: Job, keys: Iterable[str]) -> None:
    """A pattern never excludes the key; a key that is excluded by name is a mistake."""
    for name in keys:
        if name in job.rule.without:
            raise HeldError(
                f"{job.rule.places[name]} leaves out {name}, a column of the key of {job.table}, without which its rows "
                "cannot be told apart: leave the key in, or give it another with `keys:`."
            )


def refuse_hidden_columns(job: Job, mirror: Mirror, declared: Mapping[LaneId, Declared]) -> None:
    """Hold if the source has a column with the name of one that a rule makes: one of them would hide the other."""
    if not job.rule.made:
        return
    sent = {column.name for column in mirror.sent}
    sent |= {column for name in job.lines for column in (*job.columns_of(name), *declared[name].columns)}
    names = {folded(job.rule.names.get(name) or column_name(name, set())): name for name in sorted(sent)}
    names |= {folded(name): name for name in sorted(sent)}
    for name in job.rule.made:
        if other := names.get(folded(name)):
            by, way = "columns:", "give the rule another name"
            if job.rule.made[name].kind == "deletes":
                by = "deletes: soft"
                way = "keep its deleted rows in a table of their own with `history: true` instead"
            raise HeldError(
                f"{job.rule.places[name]} {by} makes a column {name}, and {job.table} has a column {other} of its own: {way}."
            )


def refuse_taken_shard_column(job: Job, columns: Collection[str]) -> None:
    """Hold if rows have a column with the name of the one that says of which table they are."""
    shard = job.rule.shard_column
    if shard in columns:
        raise HeldError(f"{job.table} has a column {shard} of its own: give shard_column another name.")


def refuse_ambiguous_names(job: Job, mirror: Mirror) -> None:
    """Hold for two columns of one name: some readers would confuse their values."""
    given = job.rule.names
    for column in mirror.columns:
        if column.name not in given:
            continue
        others = {folded(column_name(two.name, set())) for two in mirror.columns if two.name not in given}
        others |= {folded(given[two.name]) for two in mirror.columns if two.name in given and two != column}
        if folded(column.column) in others or column_name(column.column, set()) != column.column:
            raise HeldError(
                f"{job.rule.places[column.name]} renames {column.name} to {column.column}, which is the name of another column of "
                f"{job.table} or one that Delta uses itself: choose another."
            )


def refuse_unanswerable_rules(job: Job, mirror: Mirror, departed: Mapping[LaneId, Mapping[str, str]]) -> None:
    """Hold for a condition that no row can meet any more, or that fails on rows: it would empty or stop the mirror.

    The same holds for a computed column.
    """
    rules = list(_rules_of_rows(job.rule))
    if not rules or not mirror.columns:
        return
    if not mirror.keys:
        raise HeldError(f"{rules[0].place} needs rows with a key: write `keys: [...]` for {job.table}.")
    deltas, gone = mirror.delta_types, gone_for_good(job, departed)
    for rule in rules:
        if not rule.expression:
            continue
        names = conditions.columns(rule.expression)
        for name in names:
            if name not in deltas or name in gone:
                why = "a statement has dropped or renamed" if name in gone else "the mirror does not have"
                raise HeldError(
                    f"{rule.place} needs the column {name} of {job.table}, which {why}: correct the expression there."
                )
        if why := rule.refusal(rule.expression, [deltas[name] for name in names]):
            raise HeldError(f"{rule.place} cannot be evaluated on {job.table}: {why}.")


class _RuleOfRows(NamedTuple):
    """A rule that needs rows with a key, and perhaps evaluates an expression on them."""

    place: str  # where the pipeline file says it
    expression: str
    refusal: Callable[[str, Sequence[str]], str]  # why columns of these types cannot be used so


def _rules_of_rows(rule: TableRule) -> Iterator[_RuleOfRows]:
    if rule.where:
        yield _RuleOfRows(f"{rule.where_place} where:", rule.where, refused)
    for name, making in rule.made.items():
        expression = making.value if making.kind == "compute" else ""
        what = "deletes: soft" if making.kind == "deletes" else f"columns: {name}"
        yield _RuleOfRows(f"{rule.places[name]} {what}", expression, _untyped)


def _untyped(expression: str, deltas: Sequence[str]) -> str:
    """Why an expression gives no value for a column; empty if it does."""
    try:
        type_of(expression, deltas)
    except ConditionError as error:
        return str(error)
    return ""


def gone_for_good(job: Job, gone: Mapping[LaneId, Mapping[str, str]]) -> set[str]:
    """The columns that no new row has from the place on at which a statement dropped them."""
    lost = set()
    for name, places in gone.items():
        for column, order in places.items():
            if all(line.last_with(column) <= order for line in job.lines[name]):
                lost.add(column)
    return lost
