"""Digits of a time after the sixth: a mirror cuts them, and nobody would know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.quality import cut_digits
from ingest.tables.lake import Lake
from tests.shops import Shops

RULE = TableRule(
    match="*",
    keys=("ID",),
    columns={"ID": "int64", "T": "datetime", "Z": "timestamp", "NOTE": "string", "N": "decimal(20,9)"},
)
CASES = {
    "nine digits": ({"T": "2020-11-25 00:01:02.123456789"}, {"T": 1}),
    "in two columns": (
        {"T": "2020-11-25 00:01:02.0000001", "Z": "2020-11-25T00:01:02.123456700Z"},
        {"T": 1, "Z": 1},
    ),
    "zeros": ({"T": "2020-11-25 00:01:02.123456000"}, {}),
    "six digits": ({"T": "2020-11-25 00:01:02.123456"}, {}),
    "a text, and a number": ({"NOTE": "at 00:01:02.123456789", "N": "1.123456789"}, {}),
    "a text beside a time": ({"NOTE": "at 00:01:02.123456789", "T": "2020-11-25 00:01:02"}, {}),
}


def taken(folder: Path, *rows: dict[str, str]) -> Shops:
    """A lake with rows of which these cells were sent."""
    mine = Shops(folder, RULE, dialect="ogg", stages=("bronze", "silver", "gold", "quality"))
    head = {"table": "s.t", "op_type": "I", "op_ts": "2024-06-10 06:14:02.000000"}
    first = {"ID": 1, "T": "2020-11-25 00:01:02", "Z": "2020-11-25T00:01:02Z", "NOTE": "a", "N": "1"}
    mine.lines = [
        json.dumps(head | {"pos": str(key), "after": first | {"ID": key} | sent})
        for key, sent in enumerate(rows, 1)
    ]
    mine.number += 1
    assert ("done", "") == mine.run()
    return mine


@pytest.mark.parametrize("case", CASES)
def test_cells_that_lose_digits_are_counted(tmp_path: Path, case: str) -> None:
    """The count is of the batch, by column, and of no cell that the mirror has as it was sent."""
    row, cut = CASES[case]
    mine = taken(tmp_path, {}, row)
    found = list(cut_digits.of_mirrors(mine.lake, [mine.subject(0)], 0))
    assert ([sum(cut.values())] if cut else []) == [metric.observed for metric in found]
    assert all(f"1 of {name}" in metric.detail for metric in found for name in cut)
    assert mine.result is not None
    assert [] == [*mine.result.failures, *mine.result.warnings], "a declared loss is no complaint"


def test_cells_that_are_rejected_are_not_cut(tmp_path: Path) -> None:
    """They are NULL in the mirror, and have a complaint of their own."""
    times = [
        "25.11.2020 00:01:02.123456789",
        "2020-02-30 00:01:02.123456789",
        "2020-11-25 24:01:02.123456789",
        "2020-11-25 23:01:02.123456789",
        "2020-11-25 00:01:02.0000001",
    ]
    mine = taken(tmp_path, *({"T": text} for text in times))
    [metric] = cut_digits.of_mirrors(mine.lake, [mine.subject(0)], 0)
    assert 2 == metric.observed == len(times) - mine.lake.count("rejects")
    assert "2 of T." in metric.detail


def test_more_mirrors_take_no_more_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tables have times, and few of them more digits than a mirror holds."""
    mine = taken(tmp_path, {}, {})
    subject, asked = mine.subject(0), list[str]()
    ask = Lake.ask
    monkeypatch.setattr(Lake, "ask", lambda lake, query: asked.append(query) or ask(lake, query))
    assert [] == [*cut_digits.of_mirrors(mine.lake, [subject] * 3, 0)]
    assert 1 == len(asked)
