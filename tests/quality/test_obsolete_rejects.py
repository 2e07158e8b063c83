"""Rejects of cells end with the cells: a warning about one that has gone hides the next one.

Without Spark: the lake is written by hand, `tests/gold/test_misfits.py` has the same with real folds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.change import TableId
from ingest.fold import Key
from ingest.ledgers import mirrors, rejects
from ingest.quality import obsolete_rejects
from ingest.quality.cells import Compared
from ingest.quality.subjects import CheckedMirror
from ingest.tables.lake import Lake
from ingest.tables.schemas import REJECTS
from tests.lakes import change
from tests.unstarted import unstarted
from tests.written_lake import WrittenLake, commit

BINS = TableId("depot", None, "bins")
Bad = tuple[int, int, str]  # batch, offset and key of a rejected cell


def bad_cell(batch: int, offset: int, key: str) -> dict[str, Any]:
    """A cell's reject as gold writes it."""
    return {
        "stage": "gold", "kind": "cell", "source": "bins", "topic": "bins-1.jsonl", "partition": 0, "offset": offset,
        "batch": batch, "database": "depot", "table": "bins", "key": f'{{"id":{key}}}', "column": "word",
        "reason": "does-not-fit", "detail": "is no number", "raw": "A1",
    }  # fmt: skip


def left_open(
    folder: Path,
    rows: dict[str, str | None],
    bad: list[Bad],
    filled: frozenset[tuple[Key, str]] = frozenset(),
) -> list[Bad]:
    """The rejects that are open after the checks of a mirror with these rows."""
    depot = WrittenLake(folder)
    depot.take([change("INSERT", "bins", int(key), {"id": key, "word": word}) for key, word in rows.items()])
    lake = Lake(unstarted(), depot.pipeline)
    [mirror] = mirrors.known(lake).values()
    writer = (f"depot/gold/{mirror.path}/0/rejects", 1)
    found = [bad_cell(*one) for one in bad]
    commit(depot.lake / REJECTS.name, REJECTS.types, found, by=REJECTS.partition_by, writer=writer)
    kinds = {one.column: one.delta for one in mirror.columns}
    subject = CheckedMirror(BINS, mirror.path, mirror, 1, exists=True, types=kinds)
    settled = obsolete_rejects.settled_by(lake, subject, Compared(filled=set(filled)))
    obsolete_rejects.close(lake, [subject], {mirror.path: settled})
    waiting = rejects.waiting(depot.reader)
    return sorted((row["batch"], row["offset"], row["key"].strip('{"id:}')) for row in waiting)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"1": None, "2": None}, [(1, 0, "1"), (3, 90, "2")]),  # folded again: only its newest reject is open
        ({"1": "5", "2": None}, [(3, 90, "2")]),
        ({"2": None}, [(3, 90, "2")]),  # the row has gone
        ({"1": "5", "2": "6"}, []),
    ],
)
def test_a_cell_has_one_open_reject_until_it_has_a_value(
    tmp_path: Path, rows: dict[str, str | None], expected: list[Bad]
) -> None:
    """Two bad cells that ever came are two, however often late changes fold their keys again."""
    bad = [(1, 0, "1"), (1, 40, "2"), (3, 90, "2")]
    assert expected == left_open(tmp_path, rows, bad)


def test_a_null_that_the_source_has_sent_ends_a_reject(tmp_path: Path) -> None:
    """NULL in the mirror may be the rejected cell, or the NULL that replaced it: the comparison knows."""
    bad = [(1, 0, "1"), (1, 40, "2")]
    assert [(1, 40, "2")] == left_open(tmp_path, {"1": None, "2": None}, bad, frozenset({((1,), "word")}))
