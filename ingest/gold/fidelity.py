"""Conversion statistics of a mirror's columns: every cell of its changes, counted by its outcome.

A cell that is not NULL is one of four: *rejected* (not a value of the column's type: NULL in the mirror, its text
in ``rejects``), *truncated* (a time with more than six fraction digits: a declared loss), *widened* (the
message's own type is narrower than the column's: no loss) or *fit*.  They are counted from silver in one pass, so
nothing has to be kept up to date, and cells that later changes have overwritten count, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest import types
from ingest.gold import evidence
from ingest.gold.fold.arrow_values import typed_column
from ingest.gold.plan.completed import folded
from ingest.ledgers import mirrors
from ingest.ledgers.mirrors import Column, Mirror
from ingest.tables import duck
from ingest.tables.compare import TableState
from ingest.tables.tables import Tables
from ingest.values.dates_and_times import CUT_DIGITS

AT_ONCE = 50_000  # changes in memory
COUNTS = ("fit", "widened", "truncated", "rejected", "nulls", "absent")


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One column of a mirror: its types, and the number of sent cells with each outcome."""

    column: str
    type: str
    delta: str
    counts: Counter[str]


def described(lake: Tables, name: str) -> list[dict[str, object]]:
    """Conversion statistics of a mirror as plain values; empty for a table that is not a mirror."""
    return [
        {"column": fidelity.column, "logical": fidelity.type, "type": fidelity.delta}
        | {count: fidelity.counts[count] for count in COUNTS}
        for mirror in mirrors.known(lake).values()
        if mirror.name == name
        for fidelity in of_mirror(lake, mirror)
    ]


def of_mirror(lake: Tables, mirror: Mirror, since: int = 0) -> list[Fidelity]:
    """Every column of a mirror with its cells, for the changes after a batch up to the last one folded."""
    lanes = " OR ".join(f"({duck.of_lane(*lane)})" for lane in evidence.lanes(lake, mirror)) or "false"
    where = f"batch > {since} AND batch <= {folded(lake, mirror)} AND ({lanes})"
    changes = f"SELECT types, after FROM {{changes.change}} WHERE {where}"
    return count(TableState.asked(lake, changes), mirror.sent, mirror.keys)


def count(changes: TableState, columns: Sequence[Column], keys: Sequence[str] = ()) -> list[Fidelity]:
    """The cells of changes, by column.

    Args:
        changes: ``types`` and ``after`` of changes of one mirror.
        columns: its columns.
        keys: its key columns, whose cells are never truncated: their change is rejected.
    """
    counted = [Fidelity(column.name, column.type, column.delta, Counter()) for column in columns]
    texts = [f"{duck.member('after', column.name)} AS text{number}" for number, column in enumerate(columns)]
    sent = [
        f"{duck.has_member('after', column.name)} AS sent{number}" for number, column in enumerate(columns)
    ]
    asked = ", ".join(["coalesce(types, '{}') AS types", *texts, *sent])
    base = duck.connection().cursor()
    rows = base.execute(f"SELECT {asked} FROM {changes.within(base, 'changes')} AS o WHERE after IS NOT NULL")
    for page in rows.to_arrow_reader(AT_ONCE):
        for kinds in pc.unique(page["types"]).to_pylist():
            of_kinds, sent_types = page.filter(pc.equal(page["types"], kinds)), json.loads(kinds)
            for number, fidelity in enumerate(counted):
                kind = types.delta(sent_types.get(fidelity.column, fidelity.type))
                widened = kind != fidelity.delta and types.widens(kind, fidelity.delta)
                cells = _cells(of_kinds[f"text{number}"], fidelity.type, is_key=fidelity.column in keys)
                cells["widened" if widened else "fit"] = cells.pop("exact")
                was_sent = of_kinds[f"sent{number}"].true_count
                cells |= {"nulls": was_sent - cells.pop("there"), "absent": of_kinds.num_rows - was_sent}
                fidelity.counts.update(cells)
    return counted


def _cells(texts: pa.StringArray, logical: str, *, is_key: bool) -> dict[str, int]:
    """The cells of one column that are there, and how many of them are rejected, truncated, and neither."""
    present, cut = len(texts) - texts.null_count, 0
    unfit = typed_column(texts, logical, is_key=is_key).unfit
    rejected = 0 if unfit is None else unfit.true_count
    if types.family(logical) in ("datetime", "timestamp") and not is_key:
        loses = pc.fill_null(pc.match_substring_regex(texts, CUT_DIGITS), False)
        cut = (loses if unfit is None else pc.and_not(loses, unfit)).true_count
    return {"there": present, "rejected": rejected, "truncated": cut, "exact": present - rejected - cut}
