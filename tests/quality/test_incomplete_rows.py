"""Rows that an update has begun: known as a whole only if the update shows that it was sent whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.quality import ledgers
from ingest.quality.arrow_rows import changes_of_keys
from ingest.quality.key_sides import Side
from ingest.quality.subjects import survey
from ingest.tables.lake import Lake
from tests.quality.plain_keys import by_duckdb, by_plain_fold
from tests.shops import Shops

RULE = TableRule(
    match="*", keys=("id",), columns={"id": "int64", "a": "string", "b": "string", "~/'": "string"}
)
WHOLE = {"id": 1, "a": "new", "b": None, "~/'": "z"}
FIRST = {"id": 9, "a": "x", "b": "y", "~/'": "z"}


def maxwell(
    op: str, row: dict[str, object], old: dict[str, object] | None, xid: int, table: str = "t"
) -> str:
    """One of Maxwell's messages."""
    place = {"database": "cut", "table": table, "ts": 1718000000 + xid, "xid": xid}
    return json.dumps({**place, "type": op, "data": row, **({} if old is None else {"old": old})})


CASES = {
    "all columns, of which one was changed": ([(WHOLE, {"a": "old"})], 0),
    "the key and what was changed": ([({"id": 1, "a": "new"}, {"a": "old"})], 1),
    "all columns, but no word of what was changed": ([(WHOLE, {})], 1),
    "all columns, and all were changed": ([(WHOLE, {"a": "o", "b": "o", "~/'": "o"})], 1),
    "first in part, then whole": ([({"id": 1, "a": "new"}, {"a": "old"}), (WHOLE, {"a": "older"})], 0),
}


def count(mine: Shops, incomplete: list[int]) -> None:
    """Expect so many incomplete rows of each table, by DuckDB, by the plain fold and by the checks of the run."""
    assert mine.result is not None
    assert {("done", "")} == {(mirror.state, mirror.message) for mirror in mine.result.mirrors}
    subjects = survey(
        mine.lake, ledgers.read(mine.lake, 0, mine.lake.decoded()).lanes, steps=steps_of(mine.lake)
    ).subjects
    sides = [Side(mine.lake, subject, 0, i) for i, subject in enumerate(subjects)]
    counted = by_duckdb(mine.lake, sides)
    assert counted == {side.index: by_plain_fold(mine.lake, side) for side in sides}
    expected = {f"cut.t{i}": rows for i, rows in enumerate(incomplete)}
    assert expected == {str(side.subject.table): counted[side.index]["incomplete_rows"] for side in sides}
    failed = mine.lake.ask("SELECT DISTINCT mirror, \"check\" FROM {checks} WHERE state = 'fail'")
    assert {(mirror, "incomplete_rows") for mirror, rows in expected.items() if rows} == {
        (row["mirror"], row["check"]) for row in failed
    }


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_stream_that_begins_in_the_middle(tmp_path: Path, batches: int) -> None:
    """Whoever begins without a load would get a failing run for each row that is right, or a green one over NULLs."""
    mine = Shops(tmp_path, RULE, dialect="maxwell", stages=("bronze", "silver", "gold", "quality"))
    mine.lines = [maxwell("insert", FIRST, None, 10 * i, f"t{i}") for i, _ in enumerate(CASES)]
    if batches == 2:
        mine.number += 1
        assert ("done", "") == mine.run()
    for i, (updates, _) in enumerate(CASES.values()):
        mine.lines += [
            maxwell("update", row, old, xid, f"t{i}") for xid, (row, old) in enumerate(updates, 10 * i + 1)
        ]
    mine.number += 1
    mine.run()
    count(mine, [incomplete for _, incomplete in CASES.values()])


def ogg(
    op: str, before: dict[str, object] | None, after: dict[str, object] | None, pos: int, table: str
) -> str:
    """One of GoldenGate's messages."""
    head = {
        "table": f"cut.{table}",
        "op_type": op,
        "op_ts": "2024-06-10 06:14:02.000000",
        "pos": str(pos),
        "primary_keys": ["id"],
    }
    return json.dumps(head | ({"before": before} if before else {}) | ({"after": after} if after else {}))


def qlik(
    op: str, before: dict[str, object] | None, after: dict[str, object] | None, pos: int, table: str
) -> str:
    """One of Qlik Replicate's messages."""
    headers = {
        "operation": {"I": "INSERT", "U": "UPDATE"}[op],
        "changeSequence": f"20240610061320250000{pos:015}",
    }
    headers |= {"timestamp": "2024-06-10T06:13:20.250", "schema": "cut", "table": table}
    message = {"data": after, "beforeData": before, "headers": headers}
    return json.dumps({"magic": "atMSG", "type": "DT", "headers": None, "message": message})


TWO_IMAGES = {
    "one was changed": (WHOLE | {"a": "old"}, WHOLE, 0),
    "none was changed": (WHOLE, WHOLE, 0),
    "a NULL was changed": (WHOLE | {"b": "x"}, WHOLE, 0),
    "all were changed": ({"id": 1, "a": "o", "b": "o", "~/'": "o"}, WHOLE, 1),
    "only the key and what was changed": ({"id": 1, "a": "o"}, {"id": 1, "a": "n"}, 1),
    "without one of them": ({"id": 1, "a": "o", "b": "x"}, {"id": 1, "a": "n", "b": "x"}, 1),
}


@pytest.mark.parametrize("dialect", ["ogg", "qlik-replicate"])
def test_two_whole_images_of_a_stream_that_begins_in_the_middle(tmp_path: Path, dialect: str) -> None:
    """The image before has all columns, too: one with the value that it has after the update shows that all were sent."""
    mine = Shops(tmp_path, RULE, dialect=dialect, stages=("bronze", "silver", "gold", "quality"))
    write = ogg if dialect == "ogg" else qlik
    for i, (before, after, _) in enumerate(TWO_IMAGES.values()):
        mine.lines.append(write("I", None, FIRST, 10 * i + 1, f"t{i}"))
        mine.lines.append(write("U", before, after, 10 * i + 2, f"t{i}"))
    mine.number += 1
    mine.run()
    count(mine, [incomplete for *_, incomplete in TWO_IMAGES.values()])


RENAMED = "ALTER TABLE t CHANGE id k INT"
KEYS = {  # of a table that has rows: the first key, the statement, the key after it, a row's key then
    "another column": (["id"], "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)", ["a"], {"a": "x"}),
    "one more column": (["id"], "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", ["id", "a"], {"id": 9, "a": "x"}),
    "another name": (["id"], RENAMED, ["k"], {"k": 9}),
    "the first one": ([], "ALTER TABLE t ADD PRIMARY KEY (id)", ["id"], {"id": 9}),
}  # fmt: skip


@pytest.mark.parametrize("case", KEYS)
def test_a_row_from_before_its_key_changed_is_whole(tmp_path: Path, case: str) -> None:
    """A table whose key has changed failed each first and each deep check, for rows that came whole under the earlier key."""
    first, sql, then, key = KEYS[case]
    mine = Shops(tmp_path, TableRule(match="*"), dialect="maxwell", stages=("bronze", "silver", "gold", "quality"))  # fmt: skip
    row = {"id": 9, "a": "x", "b": "y"}
    place = {"database": "cut", "table": "t", "ts": 1718000000123, "sql": sql}
    mine.lines = [
        json.dumps(json.loads(maxwell("insert", row, None, 1)) | {"primary_key_columns": first}),
        json.dumps(place | {"type": "table-alter"}),
        json.dumps(
            json.loads(maxwell("update", key | {"b": "new"}, {"b": "y"}, 3)) | {"primary_key_columns": then}
        ),
    ]
    mine.number += 1
    assert ("done", "") == mine.run()
    assert mine.lake.ask("SELECT DISTINCT \"check\" FROM {checks} WHERE state = 'fail'") == []


def postgres(op: str, before: dict[str, object] | None, after: dict[str, object] | None, lsn: int) -> str:
    """One of Debezium's messages of PostgreSQL."""
    source = {"connector": "postgresql", "db": "shop", "schema": "cut", "table": "t", "lsn": lsn, "txId": lsn}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1})


LARGE = {"a": "__debezium_unavailable_value"}


def moved(old: int, new: int, lsn: int) -> list[str]:
    """A row gets another key, and then another value, while its large value stays as it is."""
    return [
        postgres("d", {"id": old}, None, lsn),
        postgres("c", None, {"id": new, "b": "y", "~/'": "z"} | LARGE, lsn),
        postgres("u", None, {"id": new, "b": "later", "~/'": "z"} | LARGE, lsn + 1),
    ]


LOADED = [postgres("c", None, WHOLE, 1)]
MOVES = {
    "whole before": ([LOADED, moved(1, 2, 5)], 0),
    "whole before it moved twice": ([LOADED, moved(1, 2, 5), moved(2, 3, 7)], 0),
    "whole before it moved and came back": ([LOADED, moved(1, 2, 5), moved(2, 1, 7)], 0),
    "never sent": ([[postgres("c", None, FIRST, 1)], moved(1, 2, 5)], 1),
}


@pytest.mark.parametrize("case", MOVES)
def test_a_row_is_as_whole_as_under_the_key_that_it_had(tmp_path: Path, case: str) -> None:
    """Each changed key of a row with an unchanged large value failed a check of a right mirror, if an update followed."""
    batches, incomplete = MOVES[case]
    mine = Shops(tmp_path, RULE, dialect="debezium", stages=("bronze", "silver", "gold", "quality"))
    for lines in batches:
        mine.lines += lines
        mine.number += 1
        assert ("done", "") == mine.run()
    failed = mine.lake.ask("SELECT DISTINCT \"check\" FROM {checks} WHERE state = 'fail'")
    assert ([{"check": "incomplete_rows"}] if incomplete else []) == failed


def keys_of_the_last(lake: Lake) -> set[tuple[str, ...]]:
    """The keys that rows have after the changes that are looked at for the row which the second batch updates."""
    [subject] = survey(lake, ledgers.read(lake, 0, 2).lanes, steps=steps_of(lake)).subjects
    updated = "SELECT own_key FROM rows WHERE batch = 2"
    changes = changes_of_keys(lake, subject.decided, subject.lanes[0], (), 2, updated, inherited=True)
    return {(json.loads(change["after"])["id"],) for change in changes}


@pytest.fixture
def shifted(tmp_path: Path) -> Shops:
    """Five rows, all moved up by one key in one statement, and then the last of them twice more."""
    mine = Shops(tmp_path, RULE, dialect="maxwell", stages=("bronze", "silver", "gold", "quality"))
    mine.lines = [maxwell("insert", WHOLE | {"id": i}, None, i) for i in range(1, 6)]
    mine.lines += [maxwell("update", WHOLE | {"id": i + 1}, {"id": i}, 20 - i) for i in range(5, 0, -1)]
    mine.lines += [maxwell("update", WHOLE | {"id": i + 1}, {"id": i}, 30 + i) for i in (6, 7)]
    mine.number += 1
    assert ("done", "") == mine.run()
    mine.lines.append(maxwell("update", WHOLE | {"id": 8, "a": "newer"}, {"a": "new"}, 50))
    mine.number += 1
    assert ("done", "") == mine.run()
    return mine


def test_only_keys_that_the_row_had_are_looked_at(shifted: Shops) -> None:
    """Where keys move up together, each was taken for that of the row before: a whole history was read for one row."""
    assert {("5",), ("6",), ("7",), ("8",)} == keys_of_the_last(shifted.lake)


@pytest.mark.e2e
@pytest.mark.spark
def test_where_only_spark_reads_the_same_keys_are_looked_at(
    shifted: Shops, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its SQL may refuse a query that DuckDB answers, and the check would end the run."""
    expected = keys_of_the_last(shifted.lake)
    monkeypatch.setattr(Lake, "is_local", False)
    assert expected == keys_of_the_last(Lake(request.getfixturevalue("spark"), shifted.pipeline))
