"""What emptied a table last: gold and the checks agree, up to the batch that a mirror has folded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.config import load
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import mirrors, rejects
from ingest.quality import ledgers, obsolete_rejects
from ingest.quality.arrow_rows import read
from ingest.quality.subjects import survey
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from ingest.tables.schemas import REJECTS
from tests.lakes import change
from tests.lakes import statement as statement_of
from tests.schemas import Schemas
from tests.unstarted import unstarted
from tests.written_lake import WrittenLake, commit

FILE = """pipeline: yard
lake: ./lake
engine: auto
sources:
  - {name: s, kind: files, format: debezium, path: './in-*.jsonl', settle: 0s}
"""


def event(at: int, *, snapshot: bool = False, **members: Any) -> str:
    """A message of MySQL's connector."""
    place = {"file": "binlog.000012", "pos": at, "row": 0, "server_id": 1, "ts_ms": 1714564800000 + at}
    source = {
        "connector": "mysql",
        "name": "c",
        "db": "yard",
        "table": "box",
        "snapshot": str(snapshot).lower(),
    }
    return json.dumps({"source": {**source, **place}, "ts_ms": place["ts_ms"], **members})


def row(at: int, number: int, op: str = "c", *, snapshot: bool = False) -> str:
    """A row that was inserted, or read."""
    return event(at, snapshot=snapshot, op=op, before=None, after={"id": number, "n": at})


def statement(at: int, text: str, *, snapshot: bool = False) -> str:
    """A statement, which may be printed for a snapshot."""
    types = {"id": ("INT", 4), "n": ("INT", 4)}
    columns = [
        {"name": name, "typeName": kind, "jdbcType": number, "optional": name != "id"}
        for name, (kind, number) in types.items()
    ]
    made = {
        "type": "CREATE",
        "id": '"yard"."box"',
        "table": {"primaryKeyColumnNames": ["id"], "columns": columns},
    }
    changes = [made] if text.startswith("CREATE") else [{"type": "DROP", "id": '"yard"."box"'}]
    return event(at, snapshot=snapshot, databaseName="yard", ddl=text, tableChanges=changes)


@pytest.mark.one_of(3, "batches")
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_table_that_was_dropped_and_snapshotted_again(tmp_path: Path, batches: int) -> None:
    """The CREATE that a connector prints for its snapshot begins the new table: its checks missed the rows of the old one."""
    create = "CREATE TABLE box (id INT PRIMARY KEY, n INT)"
    first = [statement(100, create, snapshot=True), *(row(100, n, "r", snapshot=True) for n in (1, 2, 3))]
    dropped = [statement(200, "DROP TABLE box")]
    again = [statement(300, create, snapshot=True), *(row(300, n, "r", snapshot=True) for n in (2, 4))]
    parts = {1: [first + dropped + again], 2: [first, dropped + again], 3: [first, dropped, again]}[batches]
    (tmp_path / "x.yaml").write_text(FILE, "utf-8")
    pipeline, warm = load(tmp_path / "x.yaml"), Warm()
    for number, lines in enumerate(parts):
        (tmp_path / f"in-{number}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        result = run(unstarted(), pipeline, warm=warm)
        assert [] == result.failures
    lake = Lake(unstarted(), pipeline)
    pages = read(lake, "mirrors/yard/box", ["id"], "true")
    assert [2, 4] == sorted(number for page in pages for number in page["id"].to_pylist())
    assert [] == lake.ask("SELECT \"check\", detail FROM {checks} WHERE state <> 'pass'")


@pytest.mark.parametrize(("applied", "open_rejects"), [(1, 1), (2, 0)])
def test_a_reject_stays_while_its_mirror_waits(tmp_path: Path, applied: int, open_rejects: int) -> None:
    """A paused mirror still lacks the refused change after a TRUNCATE that it has not folded, and nothing would say so."""
    depot = WrittenLake(tmp_path)
    depot.take([change("INSERT", "bins", 1, {"id": "1", "word": "a"})])
    depot.take([statement_of("bins", 2, "TRUNCATE TABLE bins")], fold=False)
    lake = Lake(unstarted(), depot.pipeline)
    [mirror] = mirrors.known(lake).values()
    [bad] = [one for one in depot.changes if one["op"] == "insert"]
    refused = {
        "stage": "gold", "kind": "change", "reason": "key-does-not-fit", "detail": "", "key": '{"id":1}', "batch": 1,
        **{name: bad[name] for name in (*rejects.PLACE, "database", "table")},
    }  # fmt: skip
    writer = (f"depot/gold/{mirror.path}/0/rejects", 1)
    commit(depot.lake / REJECTS.name, REJECTS.types, [refused], by=REJECTS.partition_by, writer=writer)
    [subject] = survey(lake, ledgers.read(lake, 0, 2).lanes, steps=steps_of(lake)).subjects
    subject.applied = applied
    obsolete_rejects.close(lake, [subject], {})
    assert open_rejects == len(rejects.waiting(lake))


EMPTIED_BY_OTHERS = {
    "a foreign key": (
        "postgresql",
        ["CREATE TABLE s.a (id int PRIMARY KEY)", "CREATE TABLE s.b (id int PRIMARY KEY REFERENCES s.a)"],
        "TRUNCATE s.a CASCADE",
    ),
    "its root": (
        "postgresql",
        ["CREATE TABLE s.a (id int PRIMARY KEY) PARTITION BY RANGE (id)",
         "CREATE TABLE s.b PARTITION OF s.a FOR VALUES FROM (0) TO (9)"],
        "TRUNCATE s.a",
    ),
    "another spelling": ("mysql", ["CREATE TABLE b (id int PRIMARY KEY)"], "TRUNCATE TABLE B"),
}  # fmt: skip


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("by", EMPTIED_BY_OTHERS)
def test_rows_that_another_table_took_along_are_not_missed(tmp_path: Path, by: str, again: bool) -> None:
    """A TRUNCATE ... CASCADE failed `missing_rows` for the tables that it reached: by the changes their rows were there."""
    kind, created, truncate = EMPTIED_BY_OTHERS[by]
    table, named = ("s.b", "s.a") if kind == "postgresql" else ("b", "B")
    said, stages = Schemas(tmp_path, kind), ("bronze", "silver", "gold", "quality")
    for text in created:
        said.ddl(text, table)
    if table != named and by == "a foreign key":
        said.row(named, id=1)
    said.row(table, id=1).row(table, id=2).run(*stages)
    said.ddl(truncate, named).run(*stages)
    if again:
        said.row(table, id=2).row(table, id=3).run(*stages)
    assert ([(2,), (3,)] if again else []) == said.rows(table)
    failed = said.lake.ask("SELECT DISTINCT mirror, \"check\", detail FROM {checks} WHERE state <> 'pass'")
    assert [] == failed


@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_a_truncate_of_a_table_that_has_sent_no_row_is_no_complaint(tmp_path: Path, kind: str) -> None:
    """A staging table that is emptied before each load held a mirror that nobody had, for want of a key."""
    said, stages = Schemas(tmp_path, kind), ("bronze", "silver", "gold", "quality")
    for n in (1, 2):
        said.ddl("TRUNCATE TABLE s.staging", "s.staging").row("s.b", id=n)
        assert {"s.b": "done"} == {
            name: state for name, state in said.run(*stages).items() if state != "skipped"
        }
    assert said.result is not None
    assert ([], []) == (said.result.failures, said.result.warnings)
    said.ddl("TRUNCATE TABLE s.staging", "s.staging").row("s.staging", id=1).run(*stages)
    assert [(1,)] == said.rows("s.staging")
    assert [] == said.lake.ask("SELECT mirror, \"check\", detail FROM {checks} WHERE state <> 'pass'")
