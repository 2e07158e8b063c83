"""Rows that move onto each other's keys in two batches, of a source whose messages name no transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest import run as running
from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.tables.lake import Lake
from tests.model.test_key_moves import Moved, Rows, image, rows_of
from tests.unstarted import unstarted

TABLE = TableId("S", None, "T")
A, B, C = (1, "a"), (2, "b"), (3, "c")
INSERTS = [Moved(None, row) for row in (A, B, C)]
Batches = Sequence[Sequence[Moved]]


def message(place: int, moved: Moved, *, key_only: bool = False) -> str:
    """A change as GoldenGate writes it without the transaction's token."""
    before = image(moved.before)
    if key_only and before:
        before = {"ID": before["ID"]}
    kind = "U" if moved.before and moved.after else "I" if moved.after else "D"
    return json.dumps(
        {
            "table": "S.T", "op_type": kind, "op_ts": "2024-01-01 00:00:00.000000", "pos": f"{place:020}",
            "before": before, "after": image(moved.after),
        }
    )  # fmt: skip


def after_runs(folder: Path, batches: Batches, *, key_only: bool = False) -> tuple[Rows, list[str]]:
    """The mirror's rows after the last batch, and the checks that any batch failed."""
    rule = TableRule("S.T", keys=("ID",), columns={"ID": "int64", "V": "string"})
    source = Source("s", "files", "ogg", path=str(folder / "in" / "*.jsonl"))
    pipeline = Pipeline("cut", folder / "x.yaml", str(folder / "lake"), (source,), (rule,), engine="auto")
    (folder / "in").mkdir()
    for number, batch in enumerate(batches):
        lines = [message(100 * number + i, moved, key_only=key_only) for i, moved in enumerate(batch, 1)]
        (folder / "in" / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        running.run(unstarted(), pipeline)
    lake = Lake(unstarted(), pipeline)
    failed = lake.ask("SELECT \"check\", detail FROM {checks} WHERE state <> 'pass'")
    return rows_of(lake, TABLE), [f"{row['check']}: {row['detail']}"[:40] for row in failed]


@pytest.mark.parametrize(
    ("batches", "rows"),
    [
        ([INSERTS, [Moved(A, (2, "a"))], [Moved(B, None)]], {2: "a", 3: "c"}),
        (
            [INSERTS, [Moved(A, (2, "a"))], [Moved(B, (3, "b")), Moved(C, (4, "c"))]],
            {2: "a", 3: "b", 4: "c"},
        ),
        ([INSERTS, [Moved(A, (9, "a"))], [Moved((9, "a"), None)]], {2: "b", 3: "c"}),
        (
            [INSERTS, [Moved(A, (9, "a")), Moved((9, "a"), (9, "z"))], [Moved((9, "z"), None)]],
            {2: "b", 3: "c"},
        ),
    ],
    ids=["delete", "shift", "ordinary", "changed between"],
)
def test_the_image_before_says_which_row_leaves(tmp_path: Path, batches: Batches, rows: Rows) -> None:
    """A batch that ended between the two took away the newcomer, without a word; an ordinary delete is no complaint."""
    assert (rows, []) == after_runs(tmp_path, batches)


@pytest.mark.parametrize(
    ("batches", "rows", "is_said"),
    [
        ([INSERTS, [Moved(A, (2, "a"))], [Moved(B, None)]], {3: "c"}, True),
        ([INSERTS, [Moved(A, (2, "a")), Moved(B, None)]], {3: "c"}, True),
        ([INSERTS, [Moved(A, (9, "a"))], [Moved((9, "a"), None)]], {2: "b", 3: "c"}, False),
    ],
    ids=["cut", "in one batch", "ordinary"],
)
def test_where_nothing_says_which_row_leaves_a_check_fails(
    tmp_path: Path, batches: Batches, rows: Rows, is_said: bool
) -> None:
    """Images of keys alone describe both rows: one of the two answers is wrong, and nobody would know."""
    found, failed = after_runs(tmp_path, batches, key_only=True)
    assert rows == found
    assert (["images_before: ID = 2: a row leaves this"] if is_said else []) == [each[:40] for each in failed]
