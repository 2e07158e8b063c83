"""Close obsolete rejects: the row is deleted, its cell has another value now, or the mirror has another key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.config import conditions
from ingest.lake import decisions, duck, rejects
from ingest.lake.decisions import DISMISS_REJECT
from ingest.lake.lake import Lake
from ingest.lake.schemas import REJECTS
from ingest.quality.arrow_rows import cell_rejects, mirror_rows
from ingest.quality.cell_diff import key_of_row
from ingest.quality.cells import Compared
from ingest.quality.subjects import GOLD, CheckedMirror

WHY = "the row has gone or has another value since"
REKEYED = "the table's changes were all applied again under another key since"


def close(lake: Lake, chosen: Sequence[CheckedMirror], compared: Mapping[str, Compared]) -> None:
    """Close the rejects of some mirrors whose values would no longer be in the mirror, or are in it now."""
    writers = lake.snapshot(REJECTS.name).transactions
    over: list[dict[str, Any]] = []
    otherwise: list[dict[str, Any]] = []
    for subject in chosen:
        head = f"{lake.pipeline.name}/{GOLD}/{subject.path}/"
        if subject.exists and subject.keyed and any(writer.startswith(head) for writer in writers):
            over += _over(lake, subject, compared.get(subject.path, Compared()))
            otherwise += _of_another_key(lake, subject)
    for found, why in ((over, WHY), (otherwise, REKEYED)):
        if found:
            rejects.dismiss(lake, found, why)


def _of_another_key(lake: Lake, subject: CheckedMirror) -> list[dict[str, Any]]:
    """Changes refused under a key that the mirror has never had, as far as its history goes now.

    A key that the pipeline file names anew holds for all changes, which were folded again.
    """
    mirror = subject.mirror
    assert mirror is not None
    if any(len(some) > 1 for *_, some in mirror.eras):
        return []  # changes of an earlier key are not judged by the present one
    mine = f"{duck.of_table(mirror.table)} AND kind = 'change'"
    found = lake.ask(f"SELECT * FROM ({rejects.open_sql(lake)}) AS o WHERE {mine}")
    return [row for row in found if row["key"] and json.loads(row["key"]).keys() != set(mirror.keys)]


def _over(lake: Lake, subject: CheckedMirror, compared: Compared) -> list[dict[str, Any]]:
    mirror = subject.mirror
    assert mirror is not None
    found = cell_rejects(lake, mirror)
    closed = {one.subject for one in decisions.read(lake).of(DISMISS_REJECT)} if found else set()
    waiting = [(key, row) for key, row in found if rejects.name_of(row) not in closed]
    kinds = [subject.types.get(one.column, "") for one in mirror.columns]
    names = {one.name: i for i, one in enumerate(mirror.columns)}
    there = {
        key_of_row(row, mirror, kinds): row
        for row in mirror_rows(lake, mirror, kinds, {key for key, _ in waiting})
    }
    judged = conditions.columns(mirror.where) if mirror.where else ()
    newest: dict[tuple[object, str], dict[str, Any]] = {}
    over = []
    for key, row in sorted(waiting, key=lambda one: (one[1]["batch"], one[1]["offset"] or 0)):
        cell = (key, row["column"])
        lives = there.get(key)
        if lives is None and row["column"] in judged:
            continue  # without its value the row does not meet the mirror's condition
        if lives is None or lives[names[row["column"]]] is not None or cell in compared.filled:
            over.append(row)
            continue
        if cell in newest:
            over.append(newest[cell])
        newest[cell] = row
    return list(over)
