"""Close obsolete cell rejects: the row is deleted, or its cell has another value now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.config import conditions
from ingest.lake import decisions, rejects
from ingest.lake.decisions import DISMISS_REJECT
from ingest.lake.lake import Lake
from ingest.lake.schemas import REJECTS
from ingest.quality.arrow_rows import cell_rejects, mirror_rows
from ingest.quality.cell_diff import key_of_row
from ingest.quality.cells import Compared
from ingest.quality.subjects import GOLD, CheckedMirror

WHY = "the row has gone or has another value since"


def close(lake: Lake, chosen: Sequence[CheckedMirror], compared: Mapping[str, Compared]) -> None:
    """Close the cell rejects of some mirrors whose rejected values would no longer be in the mirror."""
    writers = lake.snapshot(REJECTS.name).transactions
    over: list[dict[str, Any]] = []
    for subject in chosen:
        head = f"{lake.pipeline.name}/{GOLD}/{subject.path}/"
        if subject.exists and subject.keyed and any(writer.startswith(head) for writer in writers):
            over += _over(lake, subject, compared.get(subject.path, Compared()))
    if over:
        rejects.dismiss(lake, over, WHY)


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
