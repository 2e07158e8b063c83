"""Statements whose clock is another than that of the rows around them: OMS sends them without a position."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

RULE = TableRule(match="*", keys=("id",), columns={"id": "int64"})
STAGES = ("bronze", "silver", "gold", "quality")
SECOND = 1671177149


class Emptied(Shops):
    """One table of OMS that a TRUNCATE empties."""

    def row(self, key: int, second: int) -> None:
        """An insert, captured at a second."""
        if self.dialect == "oms-shareplex":
            meta = {"op": "ins", "seq": 1, "time": "2022-12-16T15:52:29", "scn": f"{second}00001"}
            message: dict[str, Any] = {
                "data": {"id": key},
                "meta": {**meta, "rowid": "s.t-1", "table": "s.t"},
            }
        else:
            place = {"storeDataSequence": int(f"{second}00001"), "timestamp": str(second - 90)}
            names = {"record_primary_key": "id", "dbType": "OB_MYSQL", "table_name": "t", "db": "ten.s"}
            message = {"allMetaData": {**names, **place}, "recordType": "INSERT", "prevStruct": None}
            message["postStruct"] = {"id": key}
        self.lines.append(json.dumps(message))

    def truncate(self) -> None:
        """The statement, by its own clock: SharePlex's is of China, that of the other is when it was executed."""
        if self.dialect == "oms-shareplex":
            meta = {"op": "ddl", "time": "2022-12-16T15:53:29", "seq": 0, "table": "s.t", "rowid": "s.t-"}
            message: dict[str, Any] = {
                "data": {},
                "meta": {**meta, "scn": "null"},
                "sql": {"ddl": "truncate table t"},
            }
        else:
            meta = {"dbType": "OB_MYSQL", "storeDataSequence": None, "db": "s", "timestamp": str(SECOND - 80)}
            message = {
                "allMetaData": {**meta, "ddlType": "TRUNCATE_TABLE", "table_name": "t"},
                "prevStruct": None,
            }
            message |= {"recordType": "DDL", "postStruct": {"ddl": "truncate table t"}}
        self.lines.append(json.dumps(message))

    def left(self) -> tuple[set[int], list[str]]:
        """The keys of the mirror, and what the checks complain about."""
        self.number += 1
        self.run()
        assert self.result is not None
        found = {row["id"] for row in self.lake.ask_mirror("mirrors/s/t", "SELECT id FROM {mirror}")}
        return found, [*self.result.failures, *self.result.warnings]


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("dialect", ["oms-shareplex", "oms-default"])
def test_a_truncate_stands_where_it_arrived(tmp_path: Path, dialect: str, cut: bool) -> None:
    """It deleted the rows of the next eight hours, or spared all rows before it, and the advice led away from both."""
    mine = Emptied(tmp_path, RULE, dialect=dialect, stages=STAGES, budget=4 << 20)
    mine.row(1, SECOND)
    if cut:
        assert ({1}, []) == mine.left()
        mine.row(5, SECOND + 1)
    mine.truncate()
    mine.row(2, SECOND + 120)
    mine.row(3, SECOND + 3660)
    assert ({2, 3}, []) == mine.left()


def test_a_truncate_that_no_row_precedes_is_a_doubt(tmp_path: Path) -> None:
    """Only its clock places it, and a clock of another zone places it after the rows that came after it."""
    mine = Emptied(tmp_path, RULE, dialect="oms-shareplex", stages=STAGES, budget=4 << 20)
    mine.truncate()
    mine.row(2, SECOND + 120)
    _, complaints = mine.left()
    assert any("`timezone:`" in one for one in complaints)


@pytest.mark.parametrize("whole", [False, True])
def test_a_truncate_that_is_sent_again_with_the_rows_after_it(tmp_path: Path, whole: bool) -> None:
    """A capture that starts again at the statement cleared the rows that came after it, unless the row before comes, too."""
    mine = Emptied(tmp_path, RULE, dialect="oms-default", stages=STAGES, budget=4 << 20)
    mine.row(1, SECOND)
    for first in (True, False):
        if not first and whole:
            mine.row(1, SECOND)
        mine.truncate()
        mine.row(2, SECOND + 120)
    mine.row(3, SECOND + 180)
    left, complaints = mine.left()
    assert ({2, 3} if whole else {3}) == left
    assert whole != any("came again together with" in one for one in complaints)
    assert not whole or not complaints
