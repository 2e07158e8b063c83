"""Statements that make the source convert a column's values: which mirrors they concern, and what cannot be known.

A mirror whose values change with a type is folded again as a whole. If the source's result cannot be known, its rows
keep their values, and a reject of the column says so until they are loaded again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from ingest.change import Op
from ingest.fold import SchemaStep, former, names_by_place
from ingest.gold.fold import past_keys
from ingest.gold.fold.arrow_files import apart
from ingest.gold.fold.arrow_parts import RowGroup, pages_of, pieces
from ingest.gold.fold.arrow_work import LaneWork
from ingest.gold.fold.change_files import ChangeFiles, change_files
from ingest.gold.plan.completed import STAGE
from ingest.gold.plan.lane import Lane, Steps
from ingest.ledgers import kept_texts
from ingest.ledgers.mirrors import Era, Mirror
from ingest.ledgers.rejects import A_DEFAULT, VALUES_NOT_KNOWN
from ingest.ledgers.stamps import types_of
from ingest.spark.tasks import Load, Work, one_each
from ingest.tables import duck
from ingest.tables.datafiles import table_of
from ingest.tables.lake import Lake
from ingest.tables.live_rows import live_rows, selected
from ingest.tables.schemas import REJECTS
from ingest.tables.tables import Tables
from ingest.types import delta
from ingest.values.conversions import KEEP, in_words
from ingest.values.typed_values import misfits, value_of

_SETTING = ("read", "insert", "update")
RESPELT, ALTERED, OPEN = 1, 2, 4
"""What a step does to a value: gives it another text; another value; a value that no message contains."""
Names = Mapping[SchemaStep, Sequence[str]]  # of the columns of steps, now and before


class Retyped(NamedTuple):
    """A new step, and all that it does to values; ``key`` has the columns, with their types, by which later changes find rows."""

    lane: Lane
    step: SchemaStep
    does: int
    key: Mapping[str, str] = {}


def effect(step: SchemaStep, text: str | None, sent: str) -> int:
    """What a step does to a value of a row whose message says that the column's type is ``sent``."""
    rule = step.conversion(sent)
    unsure = OPEN * step.leaves_open(text, rule)
    if text is None:
        return unsure or (ALTERED | RESPELT) * step.solid
    return RESPELT * rule.alters(text, texts=True) | ALTERED * rule.alters(text, texts=False) | unsure


def found(lake: Lake, work: Iterable[tuple[Lane, Steps]], mirror: Mirror) -> list[Retyped]:
    """The new steps of all lanes that change existing values, with what they do to them."""
    return [
        change
        for lane, steps in work
        for change in (*_rekeyed(lake, lane, steps, mirror), *_of_lane(lake, lane, steps, mirror))
    ]


def _naming(steps: Iterable[SchemaStep]) -> list[SchemaStep]:
    """The steps that say under which names columns were sent."""
    return [step for step in steps if step.action in ("rename_column", "add_column")]


def _spellings(step: SchemaStep, steps: Sequence[SchemaStep]) -> list[str]:
    """The names of a step's column, the oldest first where a column that had its name before was dropped."""
    earlier = [other for other in steps if other.order < step.order]
    return [*dict.fromkeys(name for _, names in names_by_place(step.column, earlier) for name in names)]


def _of_lane(lake: Lake, lane: Lane, steps: Steps, mirror: Mirror) -> Iterator[Retyped]:
    others = _naming(steps.ever)
    named = {step: _spellings(step, steps.ever) for step in steps.new if step.retypes}
    changes = f"{duck.of_lane(lane.source, lane.table)} AND batch <= {lane.last}"
    names = {
        step: columns
        for step, columns in named.items()
        if not kept_texts.stays_text(lake, changes, steps.ever, step)
    }
    new = [*names]
    if not new:
        return
    asked = _converting(lake, lane, names)
    with change_files(lake) as files:
        does = _met(files, lane, asked) if asked else {}
    for step in new:
        key, met = _key_of(lake, lane, steps, step, mirror), does.get(step, 0)
        if is_open(step, met, key):
            standing = _standing(lake, lane, steps, step, mirror.keys_without(mirror.shard))
            met = met if standing is None else _on_cells(step, standing, names[step])
        met |= on_defaults(step, names[step], others)
        if step.solid and step.zero is None and _has_nulls(lake, lane, steps, step, mirror.keys):
            met |= OPEN
        if met:
            yield Retyped(lane, step, met, key)


def _rekeyed(lake: Tables, lane: Lane, steps: Steps, mirror: Mirror) -> Iterator[Retyped]:
    """The new repeated statements by which a column takes a key column's name, as steps of the column that has it then."""
    for step in steps.new:
        if step.action == "rename_column" and step.since and _rekeys(lake, lane, steps, step, mirror):
            key = _key_of(lake, lane, steps, step, mirror)
            yield Retyped(lane, step._replace(column=step.to), OPEN, key)


def _rekeys(lake: Tables, lane: Lane, steps: Steps, step: SchemaStep, mirror: Mirror) -> bool:
    """True if rows that came again before a repeated statement have another value in the column that takes a key column's name
    from another one: they are there once more, under the key that they had.
    """
    keys = mirror.keys_without(mirror.shard)
    if step.to not in keys:
        return False
    cells = [duck.member("after", name) for name in (step.column, step.to)]
    both = " AND ".join(duck.has_member("after", name) for name in (step.column, step.to))
    changes = f"""SELECT {selected(keys)}, {both} AND {cells[0]} IS DISTINCT FROM {cells[1]} AS differs
        FROM {{changes.change}} WHERE {_reached(lane, steps, step)}"""
    rows = lake.ask(f"WITH {live_rows(changes, 'differs')} SELECT 1 AS n FROM live WHERE differs LIMIT 1")
    return bool(rows)


def _key_of(lake: Tables, lane: Lane, steps: Steps, step: SchemaStep, mirror: Mirror) -> Mapping[str, str]:
    """The key by which changes after a step find their rows; nothing where another key follows before a change comes."""
    logical = {
        column.name: "string" if column.delta == "STRING" else column.type for column in mirror.columns
    }
    key = past_keys.key_at(str(step.order), lane.eras or (Era("", mirror.keys),), steps.ever, logical)
    if not key.ends or step.column not in key.columns:
        return key.columns
    place = f"order_key > {duck.text(str(step.order))} AND order_key <= {duck.text(key.ends)}"
    of_lane = f"{duck.of_lane(lane.source, lane.table)} AND batch <= {lane.last} AND op <> 'truncate'"
    rows = lake.ask(f"SELECT 1 AS n FROM {{changes.change}} WHERE {of_lane} AND {place} LIMIT 1")
    return key.columns if rows else {}


def _standing(
    lake: Tables, lane: Lane, steps: Steps, step: SchemaStep, keys: Collection[str]
) -> list[tuple[str | None, str]] | None:
    """The cells of a column, with the types that their messages name, in the rows that were there at a step: a source that
    would refuse the step, or round a value, has had values corrected and rows deleted before.

    None where single changes do not tell: of a table without a key or whose key has changed, of updates that do not show the
    whole row, of rows that have met at a key which may not keep the one that has come.
    """
    if not keys or any({*era.keys} != {*keys} for era in lane.eras):
        return None
    naming = _naming(steps.ever)
    spellings = [former(key, naming) for key in keys]
    cells = ", ".join(duck.member("after", name) for name in _spellings(step, steps.ever))
    changes = f"""SELECT {selected(spellings)}, coalesce({cells}) AS cell, types,
        (op = 'update' AND coalesce(partial, false)) OR list_aggregate(k, 'count') < {len(spellings)} AS untold
        FROM {{changes.change}} WHERE {_reached(lane, steps, step)}"""
    rows = lake.ask(
        f"""WITH {live_rows(changes, "cell", "types")}
        SELECT cell, types, false AS untold FROM live
        UNION SELECT NULL, NULL, true FROM met_departures WHERE NOT keeps
        UNION SELECT NULL, NULL, true FROM rows WHERE untold AND op <> 'truncate'
            AND coalesce(place > (SELECT max(place) FROM rows WHERE op = 'truncate'), true)"""
    )
    return None if any(row["untold"] for row in rows) else [(row["cell"], row["types"]) for row in rows]


def _reached(lane: Lane, steps: Steps, step: SchemaStep) -> str:
    """The condition of a lane's changes before a step, and after the last one that removed all rows; of a repeated statement
    those that came again before it.
    """
    place = str(step.order)
    floor = max(steps.emptied(place), str(step.since or ""))
    before = (
        f"{duck.of_lane(lane.source, lane.table)} AND batch <= {lane.last} AND order_key < {duck.text(place)}"
    )
    return f"{before} AND order_key > {duck.text(floor)}"


def _on_cells(step: SchemaStep, cells: Iterable[tuple[str | None, str]], names: Sequence[str]) -> int:
    """What a step does to cells, each with the types that its message names."""
    does = 0
    for text, kinds in cells:
        if text is not None or step.zero is not None:
            does |= effect(step, text, _sent(types_of(kinds), names))
    return does


def _has_nulls(lake: Tables, lane: Lane, steps: Steps, step: SchemaStep, keys: Collection[str]) -> bool:
    """True if some row had NULL when its column became NOT NULL; a source in strict mode has had it filled before.

    An update that gives a row another key and does not show the column takes its NULL along: it ends nothing.
    """
    earlier = [other for other in steps.ever if other.order < step.order]
    names = former(step.column, _naming(earlier))
    added = [str(other.order) for other in earlier if other.action == "add_column" and other.column in names]
    has = " OR ".join(duck.has_member("after", name) for name in names)
    cells = ", ".join(duck.member("after", name) for name in names)
    spellings = [former(key, _naming(steps.ever)) for key in keys]
    changes = f"""SELECT {selected(spellings)},
        CASE WHEN {has} THEN coalesce({cells}) IS NULL ELSE order_key > {duck.text(max(added, default=""))} END AS missing
        FROM {{changes.change}} WHERE {_reached(lane, steps, step)}
        AND (op <> 'update' OR NOT coalesce(partial, false) OR {has})"""
    rows = lake.ask(f"WITH {live_rows(changes, 'missing')} SELECT 1 AS n FROM live WHERE missing LIMIT 1")
    return bool(rows)


def _converting(lake: Tables, lane: Lane, names: Names) -> dict[SchemaStep, Sequence[str]]:
    """The steps that may convert a value of the types that the lane's messages name: only for these are values read."""
    of_lane = f"{duck.of_lane(lane.source, lane.table)} AND batch <= {lane.last}"
    rows = lake.ask(f"SELECT DISTINCT types FROM {{changes.change}} WHERE {of_lane}")
    sent = [types_of(row["types"]) for row in rows]

    def keeps(step: SchemaStep, columns: Sequence[str]) -> bool:
        rules = (step.conversion(_sent(types, columns)) for types in sent)
        return not (step.solid or step.serial) and all(rule == KEEP for rule in rules)

    return {step: columns for step, columns in names.items() if not keeps(step, columns)}


def _sent(types: Mapping[str, str], columns: Sequence[str]) -> str:
    """The type that a message names of a column, by any of its names."""
    return next((types[name] for name in columns if types.get(name)), "")


_COLUMNS = ("order_key", "op", "partial", "after", "types")


def _met(files: ChangeFiles, lane: Lane, names: Names) -> dict[SchemaStep, int]:
    """What each step does to the values that a lane's messages hold."""
    work = LaneWork(lane.source, lane.table, lane.first, lane.last, whole=True)
    groups = pieces(files.of([work]), [work])

    def run(groups: Sequence[RowGroup]) -> Iterator[pa.RecordBatch]:
        changes = (rows for page in pages_of(groups, [work]) for _, rows in apart(page, [work]))
        effects = _met_in((page for rows in changes for page in rows.to_batches()), names)
        yield pa.RecordBatch.from_pydict({"at": range(len(effects)), "does": effects})

    load = Load(sum(group.rows for group in groups))
    steps, does = list(names), dict.fromkeys(names, 0)
    for row in files.rows(Work(STAGE, groups, run, "at LONG, does LONG", one_each, load)):
        does[steps[row["at"]]] |= row["does"]
    return does


def _met_in(batches: Iterable[pa.RecordBatch], names: Names) -> list[int]:
    effects = [0] * len(names)
    for batch in batches:
        for place, op, partial, after, kinds in zip(
            *(batch.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            if op not in _SETTING:
                continue
            image, types = json.loads(after) if after else {}, types_of(kinds)
            whole = not (op == Op.UPDATE and partial)
            for i, (step, every) in enumerate(names.items()):
                text = next((image[name] for name in every if image.get(name) is not None), None)
                carried = step.zero is not None and (whole or any(name in image for name in every))
                # a repeated statement has converted only what was repeated before it
                is_reached = str(step.since or "") < place < str(step.order)
                if is_reached and (text is not None or carried):
                    effects[i] |= effect(step, text, _sent(types, every))
    return effects


def on_defaults(step: SchemaStep, names: Collection[str], others: Iterable[SchemaStep]) -> int:
    """What a step does to values that come from a default and not from a message."""
    does = 0
    for other in others:
        is_reached = other.order < step.order and not (step.since and other.order < step.since)
        if other.action == "add_column" and other.column in names and is_reached:
            does |= effect(step, other.default, "")
    return does


def changes_values(mirror: Mirror, retyped: Iterable[Retyped]) -> bool:
    """True if rows of the mirror get other values; in a text column another spelling counts."""
    texts = _texts(mirror)
    return any(_changes(change.step, change.does, texts) for change in retyped)


def steps_that_alter(mirror: Mirror, retyped: Iterable[Retyped]) -> frozenset[SchemaStep]:
    """The steps that give rows of the mirror other values, or values that no message contains."""
    texts = _texts(mirror)
    return frozenset(
        change.step for change in retyped if change.does & OPEN or _changes(change.step, change.does, texts)
    )


def _changes(step: SchemaStep, does: int, texts: Collection[str]) -> bool:
    return bool(does & (RESPELT if step.column in texts else ALTERED))


def _texts(mirror: Mirror) -> set[str]:
    return {column.name for column in mirror.columns if column.delta == "STRING"}


def unfit_defaults(mirror: Mirror, work: Iterable[tuple[Lane, Steps]]) -> list[Retyped]:
    """The new steps that add a column with a default which is not a value of the column's type in the mirror."""
    kinds = {column.name: column.type for column in mirror.columns if column.name not in mirror.keys}
    unfit = []
    for lane, steps in work:
        for i, step in enumerate(steps.fills):
            if step.action != "add_column" or step.default is None:
                continue
            name = step.column
            for later in steps.fills[i + 1 :]:
                if later.action == "rename_column" and later.column == name:
                    name = later.to
            kind = kinds.get(name, "unknown")
            try:
                value_of(kind, step.default)
            except ValueError:
                unfit.append(Retyped(lane, step._replace(column=name, type=kind), OPEN))
    return unfit


def rejected_defaults(retyped: Iterable[Retyped]) -> set[tuple[str, str]]:
    """The columns, each with the text, of which one reject says that existing rows have it by a default."""
    return {
        (change.step.column, change.step.default)
        for change in retyped
        if not change.step.retypes and change.step.default is not None
    }


def keep(lake: Lake, mirror: Mirror, retyped: Iterable[Retyped], batch: int) -> int:
    """Write what cannot be known to `rejects`, guarded; returns the number of columns.

    Of a repeated statement only keys: rows that came again have their old one once more, besides the one that they were given.
    """
    rows = [
        _reject(mirror, change, batch)
        for change in retyped
        if (not change.step.since or change.step.column in change.key)
        and is_open(change.step, change.does, change.key)
    ]
    if not rows:
        return 0
    table = table_of(list(dict.fromkeys(rows)), REJECTS.arrow.names, REJECTS.arrow)
    appended = lake.append(table, REJECTS, f"gold/{mirror.path}/{mirror.generation}/retyped", batch)
    return len(set(rows)) if appended else 0


def is_open(step: SchemaStep, does: int, key: Mapping[str, str]) -> bool:
    """True if no message contains the new values of existing rows, or the keys that they were given.

    ``key`` has the columns of the key at the step's place, with their types.
    """
    texts = {name for name, logical in key.items() if delta(logical) == "STRING"}
    return bool(does & OPEN) or (step.column in key and _changes(step, does, texts))


def _reject(mirror: Mirror, retyped: Retyped, batch: int) -> tuple[object, ...]:
    step, what = retyped.step, _what(retyped.step)
    values = {
        "stage": "gold",
        "kind": "cell",
        "source": retyped.lane.source,
        "batch": batch,
        **mirror.table._asdict(),
        "column": step.column,
        "reason": VALUES_NOT_KNOWN,
        "detail": f"{what}, until {mirror.name} is loaded again{'; dismiss this then' * what.startswith(A_DEFAULT)}",
    }
    return tuple(values.get(name) for name in REJECTS.arrow.names)


def _what(step: SchemaStep) -> str:
    if step.label:
        before, after = step.label
        return (
            f"existing rows whose key has {before!r} have {after!r} there now: here they have their old key"
        )
    if step.action == "rename_column":
        return f"rows came again that were there before another column got the name {step.column!r}: they have their old key"
    if step.retypes:
        return (
            f"no message says how the source has converted existing rows to {in_words(step.declared or step.type)}: "
            "here they have their old values, or what MySQL makes of these"
        )
    form, _ = misfits(step.type)
    return f"{A_DEFAULT}{step.default!r}, which is {form}: here they have NULL"
