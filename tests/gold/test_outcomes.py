"""The interface between the fold and what applies it: made by the fold, understood alike by files and by a MERGE's source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.change import TableId
from ingest.gold.fold.arrow_fold import outcomes
from ingest.gold.fold.arrow_merge import merge
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.fold.outcomes import GONE, MirrorOutcomes, sets
from ingest.gold.fold.staged import has_name, sent_name, write_outcomes
from ingest.order import Order

LANE = LaneWork("s", TableId("yard", None, "depot"), 1, 1)
COLUMNS = (ColumnWork("id", "id", "int64"), ColumnWork("n", "n", "int32"), ColumnWork("w", "w", "string"))


def work_in(folder: Path = Path("/nowhere"), **more: Any) -> MirrorWork:
    """A mirror of one table."""
    return MirrorWork("m", str(folder), ("id",), COLUMNS, (LANE,), **more)


def change(place: int, op: str, after: dict[str, str | None] | None = None, **more: Any) -> dict[str, Any]:
    """A row of ``changes``."""
    images = {"after": after, "before": more.pop("before", None)}
    texts = {side: None if image is None else json.dumps(image) for side, image in images.items()}
    order = f"00.00.{place:04}"
    where = {"topic": "t", "partition": 0, "offset": place, "row": 0, "batch": 1, "transaction": None}
    return {"order_key": order, "op": op, "partial": False, **texts, **where, **more}


def folded(*changes: dict[str, Any]) -> MirrorOutcomes:
    """What the fold makes of some changes."""
    kinds = dict.fromkeys(("before", "after", "transaction"), pa.string())
    columns = {name: pa.array([one[name] for one in changes], kinds.get(name)) for name in changes[0]}
    return outcomes(work_in(), {LANE.id: pa.table(columns)})


ROW = {"id": "1", "n": "5", "w": "a"}


def test_each_key_has_one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MERGE fails if two rows of its source have one key, and files would hold the key twice."""
    monkeypatch.setattr(
        "ingest.gold.fold.arrow_fold.order_of", lambda place: Order(0, 1, (int(place[-4:]),), 0, (1,), 0)
    )
    made = folded(
        change(1, "insert", ROW),
        change(2, "update", {**ROW, "n": "6"}),
        change(3, "delete", before={**ROW, "id": "2"}),
    )
    rows = {row["id"]: row for row in made.table.to_pylist()}
    assert (2, (), [], False) == (made.table.num_rows, made.cleared, made.rejected, made.is_partial)
    assert (False, 6, "a", True) == (rows[1][GONE], rows[1]["n"], rows[1]["w"], rows[2][GONE])


def test_what_a_change_does_not_send_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that a change leaves out would become NULL in the mirror, beside columns that it sets to NULL."""
    monkeypatch.setattr(
        "ingest.gold.fold.arrow_fold.order_of", lambda place: Order(0, 1, (int(place[-4:]),), 0, (1,), 0)
    )
    made = folded(
        change(1, "update", {"id": "1", "n": None}, partial=True),
        change(2, "insert", {"id": "2", "n": "7"}),
    )
    rows = {row["id"]: row for row in made.table.to_pylist()}
    assert made.is_partial
    assert [(True, False), (True, True)] == [(rows[key][sets("n")], rows[key][sets("w")]) for key in (1, 2)]


def table(*rows: dict[str, Any]) -> pa.Table:
    """Outcomes as a fold would make them."""
    kinds = [("id", pa.int64()), ("n", pa.int32()), ("w", pa.string()), (GONE, pa.bool_())]
    flags = [(sets(name), pa.bool_()) for name in ("id", "n", "w") if any(sets(name) in row for row in rows)]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(kinds + flags))


THERE = [{"id": 1, "n": 1, "w": "x"}, {"id": 2, "n": 2, "w": "y"}, {"id": 3, "n": 3, "w": "z"}]
ALL = {sets("id"): True, sets("n"): True, sets("w"): True}
CASES: dict[str, tuple[list[dict[str, Any]], tuple[tuple[()], ...], list[dict[str, Any]]]] = {
    "set, gone and new": (
        [
            {"id": 1, "n": 9, "w": None, GONE: False},
            {"id": 2, GONE: True},
            {"id": 4, "n": 4, "w": "q", GONE: False},
        ],
        (),
        [{"id": 1, "n": 9, "w": None}, THERE[2], {"id": 4, "n": 4, "w": "q"}],
    ),
    "what is not set stays": (
        [{"id": 1, "n": None, "w": None, GONE: False, **ALL, sets("n"): False}],
        (),
        [{"id": 1, "n": 1, "w": None}, *THERE[1:]],
    ),
    "only rows with an outcome stay": (
        [{"id": 1, "n": 7, "w": "x", GONE: False}, {"id": 3, GONE: True}],
        ((),),
        [{"id": 1, "n": 7, "w": "x"}],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_files_take_outcomes_as_they_are_meant(
    case: tuple[list[dict[str, Any]], tuple[tuple[()], ...], list[dict[str, Any]]],
) -> None:
    """Whatever makes outcomes, a mirror must hold what they say and keep what they do not."""
    rows, cleared, expected = case
    there = pa.Table.from_pylist(THERE, schema=work_in().schema)
    merged = merge(there, table(*rows), work_in(), cleared)
    found = pa.concat_tables([merged.stays, merged.put, merged.new]).to_pylist()
    assert expected == sorted(found, key=lambda row: row["id"])
    assert len(rows) == merged.sources


def test_a_merge_reads_the_same_outcomes(tmp_path: Path) -> None:
    """A column's name may be one that Delta's MERGE takes for its own, so its source names them by number."""
    rows = CASES["what is not set stays"][0]
    work = work_in(tmp_path, staging="parts-1")
    file = write_outcomes(work, table(*rows))
    found = pq.read_table(tmp_path / file).to_pylist()
    numbers = range(len(COLUMNS))
    assert [[1, None, None]] == [[row[sent_name(number)] for number in numbers] for row in found]
    assert [[True, False, True]] == [[row[has_name(number)] for number in numbers] for row in found]
    assert [False] == [row[GONE] for row in found]
    whole = pq.read_table(tmp_path / write_outcomes(work, table(*CASES["set, gone and new"][0])))
    assert {GONE, *map(sent_name, numbers)} == set(whole.schema.names)
