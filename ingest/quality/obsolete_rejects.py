"""Close obsolete rejects: the row is gone, its cell has another value now, or the mirror has another key."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ingest.change import TableId
from ingest.config import conditions
from ingest.ledgers import rejects
from ingest.ledgers.cleared import last_cleared
from ingest.ledgers.mirrors import GOLD
from ingest.quality.arrow_rows import cell_rejects, rows_by_key
from ingest.quality.cells import Compared
from ingest.quality.subjects import CheckedMirror
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.schemas import REJECTS
from ingest.tables.tables import Tables

WHY = "the row has gone or has another value since"
REKEYED = "the table's changes were all applied again under another key since"
EMPTIED = "the table was emptied or created again since"


def close(lake: Lake, chosen: Sequence[CheckedMirror], settled: Mapping[str, Collection[str]]) -> None:
    """Close the rejects of some mirrors whose values would no longer be in the mirror, or are in it now.

    ``settled`` are those that the comparison of each mirror's cells has settled, by its path.
    """
    asked = [subject for subject in chosen if has_rejects(lake, subject)]
    every = lake.ask(f"SELECT * {rejects.refused_sql(lake)}") if asked else []
    for subject in asked:
        refused = [row for row in every if TableId.of(row) == subject.table]
        for over, why in (
            (_over(lake, subject, settled.get(subject.path, ())), WHY),
            (_of_another_key(subject, refused), REKEYED),
            (_cleared(lake, subject, refused), EMPTIED),
        ):
            if over:
                rejects.dismiss(lake, over, why)


def has_rejects(lake: Tables, subject: CheckedMirror) -> bool:
    """True if some change or cell of a mirror with a key was ever rejected."""
    head = f"{lake.pipeline.name}/{GOLD}/{subject.path}/"
    writers = lake.snapshot(REJECTS.name).transactions
    return subject.exists and subject.keyed and any(writer.startswith(head) for writer in writers)


def settled_by(lake: Lake, subject: CheckedMirror, compared: Compared) -> list[str]:
    """The names of the rejected cells that have values of their types since, or the NULL that the source has sent."""
    if not compared.filled or not has_rejects(lake, subject):
        return []
    return [
        rejects.name_of(row)
        for key, row in cell_rejects(lake, subject.decided)
        if (key, row["column"]) in compared.filled
    ]


def _of_another_key(subject: CheckedMirror, refused: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes refused under a key that the mirror has never had, as far as its history goes now.

    Another key in the pipeline file holds for all changes, which were folded again.
    """
    mirror = subject.decided
    if any(len(eras) > 1 for *_, eras in mirror.eras):
        return []  # changes of an earlier key are not judged by the present one
    return [row for row in refused if row["key"] and json.loads(row["key"]).keys() != set(mirror.keys)]


def _cleared(lake: Tables, subject: CheckedMirror, refused: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes whose row would be gone, because the table was emptied or created again after them."""
    gone = set[tuple[Any, ...]]()
    for lane in subject.lanes if refused else ():
        of_lane = f"FROM {{changes.change}} WHERE {lane.where}"
        cleared = last_cleared(lake, lane.id, subject.steps(lane), subject.applied)
        if cleared is None:
            continue
        names = ", ".join(map(duck.name, rejects.PLACE))
        older = f"""SELECT DISTINCT {names} {of_lane} AND op <> 'truncate' AND order_key < {duck.text(cleared.place)}
            AND ({names}) IN (SELECT {names} {rejects.refused_sql(lake)} AND {duck.of_table(subject.table)})"""
        gone |= {tuple(row.values()) for row in lake.ask(older)}
    return [row for row in refused if tuple(row[name] for name in rejects.PLACE) in gone]


def _over(lake: Lake, subject: CheckedMirror, settled: Collection[str]) -> list[dict[str, Any]]:
    mirror = subject.decided
    rejected = cell_rejects(lake, mirror)
    is_closed = rejects.dismissed(lake)
    waiting = [(key, row) for key, row in rejected if not is_closed(row)]
    names = {column.name: i for i, column in enumerate(mirror.columns)}
    present = rows_by_key(lake, mirror, subject.kinds, {key for key, _ in waiting})
    judged = conditions.columns(mirror.where) if mirror.where else ()
    newest: dict[tuple[object, str], dict[str, Any]] = {}
    over = []
    for key, row in sorted(waiting, key=lambda reject: (reject[1]["batch"], reject[1]["offset"] or 0)):
        cell = (key, row["column"])
        lives = present.get(key)
        if lives is None and row["column"] in judged:
            continue  # without its value the row does not meet the mirror's condition
        at = names.get(row["column"])  # None for a column that is gone
        if lives is None or at is None or lives[at] is not None or rejects.name_of(row) in settled:
            over.append(row)
            continue
        if cell in newest:
            over.append(newest[cell])
        newest[cell] = row
    return over
