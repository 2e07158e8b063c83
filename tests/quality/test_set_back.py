"""Old changes that arrive again, or late, where only arrival orders them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ingest.cli import epoch_verb
from ingest.config.model import TableRule
from ingest.gold import evidence
from ingest.ledgers import epochs
from ingest.quality.key_sides import Side
from ingest.quality.restarted_positions import turned_files
from ingest.run import run
from ingest.tables import commits, duck
from ingest.tables.lake import Lake
from tests.quality.plain_keys import by_duckdb, by_plain_fold
from tests.shops import Shops, order_metrics
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ingest.tables.tables import Tables


def shop(folder: Path, dialect: str = "canal", **more: Any) -> Shops:
    """One table, in a dialect without positions unless it is said."""
    return Shops(folder, TableRule(match="shop_1.item"), dialect=dialect, budget=4 << 20, **more)


@pytest.fixture
def shops(tmp_path: Path) -> Shops:
    """A row that has changed twice, and another one."""
    mine = shop(tmp_path)
    assert ("done", "") == mine.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11).run()
    assert ("done", "") == mine.say(1, "UPDATE", 1, "c", at=20).run()
    return mine


def found(shops: Shops, since: int) -> float:
    """How many rows are said to be set back."""
    if shops.lines:
        assert ("done", "") == shops.run()
    return said(shops, "rows_set_back", since)


def said(shops: Shops | Lake, check: str, since: int) -> float:
    """What a check of order counts."""
    lake = shops if isinstance(shops, Lake) else shops.lake
    return sum(one.observed for one in order_metrics(lake, since) if one.check == check)


def test_an_old_file_that_is_copied_is_reported(shops: Shops) -> None:
    """Otherwise the row had its old value again, with every check green."""
    assert 1 == found(shops.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11), 2)
    assert {1: "a", 2: "b"} == shops.rows("mirrors/shop_1/item")


def test_a_row_that_was_set_back_fails_the_run(shops: Shops) -> None:
    """The mirror has a value that the source has not: with exit code 0 nobody looks at a warning."""
    shops.say(1, "INSERT", 1, "a", at=10).run()
    result = run(unstarted(), shops.pipeline, ["quality"])
    assert (1, 1) == (result.exit_code, sum("set back" in one for one in result.failures))


def test_an_old_delete_is_reported(shops: Shops) -> None:
    """Otherwise the row that came since then was missing."""
    assert 0 == found(shops.say(1, "DELETE", 1, "c", at=30), 2)
    assert 0 == found(shops.say(1, "INSERT", 1, "d", at=40), 3)
    assert 1 == found(shops.say(1, "DELETE", 1, "c", at=30), 4)


@pytest.mark.parametrize("whole", [False, True])
def test_an_old_file_of_the_same_run_is_reported(tmp_path: Path, whole: bool) -> None:
    """A first run reads a folder of a year as one batch: the row had its old value, with every check green."""
    mine = shop(tmp_path)
    mine.say(1, "INSERT", 1, "a", at=10).say(1, "UPDATE", 1, "b", at=20)
    (tmp_path / "in-1.jsonl").write_text("\n".join(mine.lines) + "\n")
    mine.lines.clear()
    mine.say(1, "INSERT", 1, "a", at=10)
    if whole:  # the file goes on to the same end
        mine.say(1, "UPDATE", 1, "b", at=20)
    assert (0 if whole else 1) == found(mine, 0)
    assert {1: "b" if whole else "a"} == mine.rows("mirrors/shop_1/item")


def test_a_task_that_is_put_back_and_counts_on_is_reported(tmp_path: Path) -> None:
    """Its repeated row lost the value that the statement had given it, with every check green."""
    mine = shop(tmp_path, dialect="dts-canal")
    for start in (10, 1010):
        mine.say(1, "INSERT", 1, "a", at=start, when=10)
        mine.ddl("ALTER TABLE item ADD COLUMN c INT DEFAULT 5", at=start + 1)
        mine.lines[-1] = mine.lines[-1].replace(str(1714521600000 + 1000 * (start + 1)), "1714521611000")
        mine.say(1, "INSERT", 2, "b", at=start + 2, when=12, c="6")
        assert (start > 10) == found(mine, 0 if start == 10 else 1)


@pytest.mark.parametrize(
    ("statements", "rows"),
    [
        (("TRUNCATE TABLE item",), 2),
        (("DROP TABLE item", "CREATE TABLE item (id bigint PRIMARY KEY, text varchar(9))"), 2),
        (("ALTER TABLE item ADD COLUMN more int DEFAULT 7",), 2),
        (("ALTER TABLE item RENAME COLUMN text TO more",), 2),
        (("ALTER TABLE item ADD COLUMN more int",), 0),
        (("ALTER TABLE item MODIFY text mediumtext",), 0),
        (("ALTER TABLE item MODIFY text binary(4)",), 2),
    ],
)
def test_old_rows_that_come_again_after_a_statement_are_reported(
    shops: Shops, statements: tuple[str, ...], rows: int
) -> None:
    """Otherwise they were there again, or as before the statement, with every check green."""
    for at, one in enumerate(statements, 30):
        shops.ddl(one, at=at)
    assert 0 == found(shops, 2)
    shops.say(1, "INSERT", 2, "b", at=11).say(1, "UPDATE", 1, "c", at=20)
    assert rows == found(shops, 3)
    for at, one in enumerate(statements, 30):
        shops.ddl(one, at=at)
    assert 0 == found(shops.say(1, "UPDATE", 9, "z", at=60), 4)
    for kind, key, text, at in (("INSERT", 2, "b", 11), ("UPDATE", 1, "c", 20)):  # the stream goes back
        shops.say(1, kind, key, text, at=at)
    for at, one in enumerate(statements, 30):  # and forward again
        shops.ddl(one, at=at)
    assert 0 == found(shops, 5)


def test_an_old_row_under_a_key_that_it_has_left_is_reported(shops: Shops) -> None:
    """Otherwise it was there under both keys, with every check green."""
    assert 0 == found(shops.say(1, "UPDATE", 7, "c", at=30, old=1), 2)
    assert 1 == found(shops.say(1, "UPDATE", 1, "c", at=20), 3)
    assert {1: "c", 2: "b", 7: "c"} == shops.rows("mirrors/shop_1/item")
    again = shops.say(1, "UPDATE", 1, "c", at=20).say(1, "UPDATE", 7, "c", at=30, old=1)
    assert 0 == found(again, 4)


def test_a_stream_that_goes_back_and_forward_is_no_surprise(shops: Shops) -> None:
    """Every restart of Canal may do so, and all ends as it was."""
    again = (
        shops.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11).say(1, "UPDATE", 1, "c", at=20)
    )
    assert 0 == found(again, 2)
    assert {1: "c", 2: "b"} == shops.rows("mirrors/shop_1/item")


def test_a_row_that_takes_its_old_value_is_no_surprise(shops: Shops) -> None:
    """The source may change it back, also by a clock that has stepped back."""
    assert 0 == found(shops.say(1, "UPDATE", 1, "a", at=30), 2)
    assert 0 == found(shops.say(1, "UPDATE", 1, "x", at=15), 3)


def test_a_file_that_comes_late_is_reported(shops: Shops) -> None:
    """Its changes win over the newer ones of a file that was read before."""
    shops.say(1, "UPDATE", 1, "b", at=15).say(1, "INSERT", 3, "n", at=16)
    shops.number = 5  # the file's
    assert 1 == found(shops, 2) == said(shops, "rows_set_back", 0)
    assert {1: "b", 2: "b", 3: "n"} == shops.rows("mirrors/shop_1/item")


def test_a_late_file_brings_back_the_key_that_a_row_has_left(shops: Shops) -> None:
    """The row is there under both keys then."""
    assert 0 == found(shops.say(1, "UPDATE", 7, "c", at=40, old=1), 2)
    shops.say(1, "UPDATE", 1, "b", at=35)
    shops.number = 5
    assert 1 == found(shops, 3)


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("TRUNCATE TABLE item", {}),
        ("CREATE TABLE item (id bigint PRIMARY KEY, text varchar(9))", {}),
        ("ALTER TABLE item ADD COLUMN more int", {1: "c", 2: "b", 3: "new"}),
        ("ALTER TABLE item RENAME COLUMN text TO more, ADD COLUMN text int DEFAULT 7", dict.fromkeys((1, 2, 3), "7")),
        ("ALTER TABLE item DROP COLUMN other", {1: "c", 2: "b", 3: "new"}),
        ("ALTER TABLE item DROP COLUMN text, ADD COLUMN text varchar(9) DEFAULT 'd'", dict.fromkeys((1, 2, 3), "d")),
    ],
)  # fmt: skip
def test_a_statement_of_a_late_file_that_changes_newer_rows_is_reported(
    shops: Shops, statement: str, kept: dict[int, str]
) -> None:
    """The rows of a file that was read before would be missing or wrong, with every check green."""
    assert 0 == found(shops.say(1, "INSERT", 3, "new", at=40).say(1, "DELETE", 9, at=41), 2)
    shops.ddl(statement, at=30)
    shops.number = 5
    assert (0 if kept and kept[3] == "new" else 1) == found(shops, 3) == said(shops, "rows_set_back", 0)
    assert kept == shops.rows("mirrors/shop_1/item")
    again = shops.ddl(statement.replace("more", "others"), at=50)
    again.number = 60
    assert 0 == found(again, 4)


def warned(shops: Shops) -> list[str]:
    """What the run of the next batch says of rows that were set back."""
    assert ("done", "") == shops.run()
    assert shops.result is not None
    return [one for one in (*shops.result.failures, *shops.result.warnings) if "set back" in one]


def test_a_row_that_was_set_back_is_in_doubt_until_it_changes(tmp_path: Path) -> None:
    """The next batch was right, and with it every check of a mirror that was still wrong."""
    mine = shop(tmp_path, stages=("bronze", "silver", "gold", "quality"))
    assert [] == warned(mine.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "a", at=11))
    assert [] == warned(mine.say(1, "UPDATE", 1, "b", at=20).say(1, "UPDATE", 2, "b", at=21))
    [message] = warned(mine.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "a", at=11))
    assert "2 rows of shop_1.item were set back" in message
    assert (
        f"if the mirror is right, `ingest quality {mine.pipeline.file} --accept shop_1.item` says so"
        in message
    )
    [again] = warned(mine.say(1, "INSERT", 3, "c", at=30))
    assert "found in batch 3 and not repaired since" in again
    assert 1 == len(warned(mine.say(1, "UPDATE", 1, "b", at=20)))  # the stream goes forward again
    assert [] == warned(mine.say(1, "UPDATE", 2, "d", at=40))
    assert {1: "b", 2: "d", 3: "c"} == mine.rows("mirrors/shop_1/item")


def moves(tmp_path: Path, *batches: tuple[str, ...]) -> tuple[dict[int, str], float]:
    """The mirror, and how many moved rows are in doubt, after batches of OMS Canal."""
    mine = moved(tmp_path, *batches)
    return mine.rows("mirrors/shop_1/item"), said(mine, "repeated_moves", len(batches) - 1)


def moved(tmp_path: Path, *batches: tuple[str, ...]) -> Shops:
    """A table after batches of OMS Canal; a move of the key leaves out an unchanged large column."""
    types = {"id": "int", "text": "longtext"}
    known = {
        "own": ("INSERT", {"id": 1, "text": "own"}, None),
        "move": ("UPDATE", {"id": 3, "text": None}, [{"id": 1}]),
        "another": ("INSERT", {"id": 1, "text": "another"}, None),
        "on": ("UPDATE", {"id": 4, "text": None}, [{"id": 3}]),
        "unseen": ("UPDATE", {"id": 10, "text": None}, [{"id": 9}]),
        "old": ("INSERT", {"id": 3, "text": "old"}, None),
        "gone": ("DELETE", {"id": 3, "text": "old"}, None),
    }
    mine = shop(tmp_path, "oms-canal")
    for batch in batches:
        for kind, data, old in (known[name] for name in batch):
            where = {
                "database": "shop_1",
                "table": "item",
                "es": 1714521600000,
                "isDdl": False,
                "pkNames": ["id"],
            }
            mine.lines.append(
                json.dumps({**where, "type": kind, "data": [data], "old": old, "mysqlType": types})
            )
        mine.number += 1
        assert ("done", "") == mine.run()
    return mine


def test_a_row_that_was_moved_in_part_is_whole(tmp_path: Path) -> None:
    """It has what it had under its old keys; `ingest quality` said that its other columns are unknown."""
    mine = moved(tmp_path, ("own", "move"), ("on", "unseen"))
    side = Side(mine.lake, mine.subject(0), 0, 0)
    found = by_duckdb(mine.lake, [side])[0]
    assert by_plain_fold(mine.lake, side) == found
    assert (2, 1) == (found["rows"], found["incomplete_rows"])


def test_a_move_that_comes_again_finds_its_row(tmp_path: Path) -> None:
    """The moved row would take the large text of the row that has its old key now."""
    again = moves(tmp_path, ("own", "move", "another"), ("move", "another"))
    assert ({1: "another", 3: "own"}, 0) == again


def test_a_move_that_does_not_find_its_row_is_reported(tmp_path: Path) -> None:
    """Its row is deleted first, because the delete of another row with its key comes again, too."""
    batches = ("old", "own", "gone", "move", "another"), ("gone", "move", "another")
    assert ({1: "another", 3: "another"}, 1) == moves(tmp_path, *batches)


def story(lake: Tables) -> tuple[list[str], evidence.Present]:
    """A row's changes, and what the mirror holds of it."""
    mirror = evidence.mirror_of(lake, "shop_1.item")
    [lane] = evidence.lanes(lake, mirror)
    found = evidence.rows_of(lake, mirror, lane, ("1",))
    assert 3 == len(found)
    return [row["after"] for row in found], evidence.present(lake, mirror, ("1",), None)


@pytest.mark.e2e
@pytest.mark.spark
def test_where_only_spark_reads_the_changes_the_same_is_said(
    spark: SparkSession, shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that one engine reads differently would find nothing, or everything."""
    shops.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11).say(1, "UPDATE", 2, "z", at=20)
    assert ("done", "") == shops.run()
    expected = story(shops.lake)
    monkeypatch.setattr(commits, "within_reach", lambda _path: False)  # as where only Hadoop reads the log
    lake = Lake(spark, shops.pipeline)
    assert expected == story(lake)
    assert [("rows_set_back", 1)] == [
        (one.check, one.observed) for one in order_metrics(lake, 2) if one.check != "old_positions"
    ]
    names = "a.b c", "a/b~'x", "id"
    pair = [duck.member("image", name) for name in names], [duck.has_member("image", name) for name in names]
    asked = f"SELECT [{', '.join(pair[0])}] AS cells, [{', '.join(pair[1])}] AS has FROM (VALUES "
    images: list[dict[str, str | None]] = [
        {"a.b c": "1", "a/b~'x": None},
        {"id": "7", "a": "x"},
        {"a/b~'x": "it''s"},
    ]
    asked += ", ".join(f"({at}, {duck.text(json.dumps(one))})" for at, one in enumerate(images))
    asked += ") AS t(number, image) ORDER BY number"
    there = [
        {"cells": [one.get(name) for name in names], "has": [name in one for name in names]} for one in images
    ]
    assert there == lake.ask(asked) == duck.rows(asked)
    monkeypatch.undo()
    shops.ddl("TRUNCATE TABLE item", at=15)
    shops.number = 5
    assert ("done", "") == shops.run()
    monkeypatch.setattr(commits, "within_reach", lambda _path: False)
    assert 1 == said(Lake(spark, shops.pipeline), "rows_set_back", 3)


# --- positions that start again ---------------------------------------------------------------------


@pytest.fixture
def numbered(tmp_path: Path) -> Shops:
    """Two rows whose changes have positions."""
    mine = shop(tmp_path, "dts-canal")
    assert ("done", "") == mine.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=500).run()
    return mine


@pytest.mark.one_of(2, "pause")
@pytest.mark.parametrize(
    "pause", [pytest.param(1, id="one by one"), pytest.param(0, id="in one transaction")]
)
@pytest.mark.parametrize(
    "lost",
    [
        pytest.param([("UPDATE", 2, "new")], id="an update"),
        pytest.param([("DELETE", 2, "b")], id="a delete"),
        pytest.param([("DELETE", 2, "b"), ("INSERT", 2, "new")], id="a row that comes again"),
        pytest.param([("TRUNCATE", 0, "")], id="a truncate"),
    ],
)
def test_positions_that_start_again_among_older_ones_are_reported(
    numbered: Shops, lost: list[tuple[str, int, str]], pause: int
) -> None:
    """A server that counts on from a lower number: its changes were taken for late ones, with every check green."""
    numbered.say(1, "UPDATE", 1, "c", at=501)
    for place, (kind, key, text) in enumerate(lost, 300):
        numbered.say(1, kind, key, text, at=place, when=1300 + pause * (place - 300))
    assert ("done", "") == numbered.run()
    assert len(lost) == said(numbered, "positions_started_again", 1)


def test_positions_that_start_again_within_a_batch_are_reported(numbered: Shops) -> None:
    """All that a topic holds may be read at once."""
    numbered.say(1, "INSERT", 3, "a", at=600).say(1, "UPDATE", 3, "b", at=610)
    numbered.say(1, "UPDATE", 3, "new", at=520, when=1000).say(1, "UPDATE", 3, "newer", at=530, when=1001)
    assert ("done", "") == numbered.run()
    assert 2 == said(numbered, "positions_started_again", 1)
    assert 2 == said(numbered, "positions_started_again", 0)
    numbered.say(1, "INSERT", 4, "a", at=700).say(1, "UPDATE", 4, "b", at=710)
    numbered.say(1, "INSERT", 4, "a", at=700).say(1, "UPDATE", 4, "b", at=710).say(
        1, "UPDATE", 4, "c", at=705
    )
    assert ("done", "") == numbered.run()
    assert 0 == said(numbered, "positions_started_again", 2)


def test_positions_that_start_again_in_the_next_file_are_reported(tmp_path: Path) -> None:
    """Several files may be read at once, in the order of their names: 9 before 10."""
    mine = shop(tmp_path, "dts-canal")
    for name, place, text, when in (("9", 600, "a", 600), ("10", 520, "new", 1000)):
        mine.say(1, "UPDATE", 1, text, at=place, when=when)
        (tmp_path / f"in-{name}.jsonl").write_text(mine.lines.pop() + "\n")
    assert ("done", "") == mine.run()
    [metric] = [one for one in order_metrics(mine.lake, 0) if one.check == "positions_started_again"]
    assert (1, True) == (metric.observed, "in-10.jsonl/" in metric.detail)


def test_late_and_repeated_changes_do_not_start_again(numbered: Shops) -> None:
    """Each is older than what came before it, and a stream that goes back goes on; a row read again is counted elsewhere."""
    numbered.say(1, "UPDATE", 2, "c", at=510).say(1, "UPDATE", 2, "d", at=490).say(
        1, "UPDATE", 1, "e", at=400
    )
    assert ("done", "") == numbered.run()
    numbered.say(1, "INSERT", 2, "b", at=500).say(1, "UPDATE", 2, "c", at=510).say(
        1, "UPDATE", 2, "x", at=520
    )
    assert ("done", "") == numbered.run()
    numbered.say(1, "INIT", 2, "y", at=505, when=2000).say(1, "UPDATE", 1, "waited", at=515, when=2001)
    assert ("done", "") == numbered.run()
    assert 0 == said(numbered, "positions_started_again", 1)
    assert {1: "waited", 2: "x"} == numbered.rows("mirrors/shop_1/item")
    for place, text in ((530, "one"), (531, "two"), (530, "one"), (531, "two")):  # a transaction comes twice
        numbered.say(1, "UPDATE", 2, text, at=place, when=3000)
    assert ("done", "") == numbered.run()
    assert 0 == said(numbered, "positions_started_again", 3)
    assert {1: "waited", 2: "two"} == numbered.rows("mirrors/shop_1/item")


@pytest.mark.e2e
@pytest.mark.spark
def test_an_epoch_from_where_the_check_says_gives_the_new_changes_their_place(
    spark: SparkSession, numbered: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed command repairs the mirror, and then the check passes."""
    numbered.say(1, "UPDATE", 1, "c", at=501).say(1, "UPDATE", 2, "new", at=300, when=1000)
    assert ("done", "") == numbered.run()
    [metric] = [one for one in order_metrics(numbered.lake, 1) if one.check == "positions_started_again"]
    assert {1: "c", 2: "b"} == numbered.rows("mirrors/shop_1/item")
    with monkeypatch.context() as only_hadoop:
        only_hadoop.setattr(commits, "within_reach", lambda _path: False)
        assert metric in order_metrics(Lake(spark, numbered.pipeline), 1)
        assert set() == turned_files(Lake(spark, numbered.pipeline), 0)
    places = re.findall(r"--from ([^ `]+)", metric.detail)
    lake = Lake(spark, numbered.pipeline)
    start = epochs.at_places(lake, "s", places)
    epoch_verb.decide(lake, "s", start, [], "", complete=False, withdraw=False)
    epoch_verb.carry_out(lake, "s", start)
    assert {1: "c", 2: "new"} == numbered.rows("mirrors/shop_1/item")
    assert [] == [one for one in order_metrics(numbered.lake, 0) if one.check == "positions_started_again"]


def dms_shop(folder: Path) -> Shops:
    """A table that AWS DMS sends, whose key and types are given."""
    columns = {"id": "int64", "text": "string"}
    return Shops(folder, TableRule(match="shop_1.item", keys=("id",), columns=columns), dialect="dms")


def dms(shops: Shops, kind: str, key: int, text: str, at: int | str, **more: str) -> None:
    """A message of AWS DMS at a second, with more members of its metadata."""
    meta = {"record-type": "data", "schema-name": "shop_1", "table-name": "item", "operation": kind}
    meta |= {"timestamp": f"2024-06-10T06:14:{at}Z", **more}
    shops.lines.append(json.dumps({"metadata": meta, "data": {"id": key, "text": text}}))


@pytest.mark.one_of(2, "name")
@pytest.mark.parametrize(
    ("late", "count"), [([("update", 1, "c", 20)], 1), ([("update", 3, "n", 20)], 0), ([], 0)]
)
@pytest.mark.parametrize("name", [5, 90], ids=["before by name", "after by name"])
def test_a_file_that_comes_late_is_reported_by_the_clock_of_its_messages(
    tmp_path: Path, late: list[tuple[str, int, str, int]], count: int, name: int
) -> None:
    """AWS DMS sends no image before that would show it, and a late file may have any name; its times are of the messages."""
    shops = dms_shop(tmp_path)
    files = [
        [("insert", 1, "a", 10), ("insert", 2, "b", 11)],
        [("update", 1, "d", 30), ("delete", 2, "b", 31)],
    ]
    for number, changes in enumerate([*files, [*late, ("insert", 4, "x", 21)]], start=1):
        for kind, key, text, at in changes:
            dms(shops, kind, key, text, at)
        shops.number = name if number == 3 else number * 10
        assert ("done", "") == shops.run()
    assert count == said(shops, "rows_set_back", 2) == said(shops, "rows_set_back", 0)


@pytest.mark.parametrize(("named", "count"), [("t1", 0), ("0", 1)])
def test_the_time_of_a_load_s_message_is_not_compared_with_that_of_a_commit(
    tmp_path: Path, named: str, count: int
) -> None:
    """AWS DMS writes a change that was made while the load ran after it, with the time of its commit if the task names these:
    each of them was called set back, and is right.
    """
    shops = dms_shop(tmp_path)
    committed = {"transaction-id": named, "commit-timestamp": "2024-06-10T06:14:03Z"}
    for kind, key, at, more in (("load", 1, "05", {}), ("load", 2, "06", {}), ("update", 1, "20", committed)):
        dms(shops, kind, key, kind, at, **more)
        if key == 2 or kind == "update":
            shops.number += 10
            assert ("done", "") == shops.run()
    assert count == said(shops, "rows_set_back", 1) == said(shops, "rows_set_back", 0)
