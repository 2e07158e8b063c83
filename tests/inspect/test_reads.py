"""What a look at a lake reads: once each, however many mirrors there are, and however many questions are asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.config import load
from ingest.gold import approval
from ingest.inspect import status
from ingest.inspect.idle import idle
from ingest.ledgers import decisions, lanes
from ingest.ledgers.mirrors import Mirror
from ingest.result import STAGES
from ingest.tables import delta, duck
from ingest.tables.tables import LakeReader
from tests.fleet import typed

_PIPELINE = """pipeline: p
lake: ./lake
engine: auto
sources: [{name: c, kind: files, path: ./land/*.jsonl, format: canal, settle: 0s}]
quality: [{table: "*", freshness: 1h}]
"""


def _insert(table: str) -> str:
    return json.dumps({
        "database": "depot", "table": table, "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1772000000000,
        "ts": 1772000000000, "mysqlType": {"id": "int"}, "data": [{"id": "1"}], "old": None,
    })  # fmt: skip


def _reads(folder: Path, monkeypatch: pytest.MonkeyPatch, mirrors: int) -> Counter[str]:
    """How often a status of a lake with so many mirrors does what takes long."""
    (folder / "land").mkdir(parents=True)
    file = folder / "p.yaml"
    file.write_text(_PIPELINE, "utf-8")
    lines = "\n".join(_insert(f"t{number}") for number in range(mirrors))
    (folder / "land" / "a.jsonl").write_text(lines + "\n", "utf-8")
    code, said = typed(f"ingest run {file}")
    assert code == 1, said  # by far too old, as each mirror's problem says
    for table in (folder / "lake" / "mirrors" / "depot").iterdir():
        DeltaTable(table).create_checkpoint()  # as each hundredth commit makes it
    counted = Counter[str]()

    def count(place: object, name: str) -> None:
        real = getattr(place, name)

        def counting(*given: Any, **named: Any) -> Any:
            counted[name] += 1
            return real(*given, **named)

        monkeypatch.setattr(place, name, counting)

    for place, name in (
        (decisions, "_read"), (Mirror, "from_value"), (duck, "rows"), (approval, "listed"), (status, "departed")
    ):  # fmt: skip
        count(place, name)
    monkeypatch.setattr(delta, "_last", {})  # of a process that has just begun
    problems = status.status(LakeReader(load(file)))["causes"]
    assert ["freshness"] * mirrors == [problem["kind"] for problem in problems]
    monkeypatch.undo()
    return counted


def test_a_status_reads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status of 500 mirrors took three times as long as it should: most was read and made several times, and each
    mirror's checkpoint was a query of its own.
    """
    few, many = (_reads(tmp_path / str(mirrors), monkeypatch, mirrors) for mirrors in (1, 6))
    assert many == few | {"from_value": 6}, "no question is asked for each mirror"
    assert {"_read": 1, "from_value": 1, "listed": 1, "departed": 1} == {
        name: few[name] for name in few.keys() - {"rows"}
    }


@pytest.mark.parametrize(
    "rules", ["", "tables: [{match: depot.t0, where: id > 0, columns: {id: int64}, plain_tables: true}]\n"]
)
def test_a_look_for_work_reads_no_books_and_a_second_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    """The service looks each second: all books and all decisions of each lake were read again, though nothing was written."""
    (tmp_path / "land").mkdir()
    file = tmp_path / "p.yaml"
    file.write_text(_PIPELINE.partition("quality:")[0] + rules, "utf-8")
    (tmp_path / "land" / "a.jsonl").write_text(_insert("t0") + "\n", "utf-8")
    code, said = typed(f"ingest run {file}")
    assert code == 0, said
    kept: dict[str, tuple[object, object]] = {}
    monkeypatch.setattr(lanes, "first_batches", lambda _lake: pytest.fail("the books are grouped"))
    assert idle(load(file), STAGES, kept=kept) is not None
    monkeypatch.setattr(duck, "rows", lambda query, *_: pytest.fail(query))
    assert idle(load(file), STAGES, kept=kept) is not None
