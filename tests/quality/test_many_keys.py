"""The keys of many changes, counted by DuckDB, against the plain fold's keys."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.quality import key_checks, key_sides, many_keys
from ingest.quality.key_sides import Side
from ingest.quality.ledgers import read
from ingest.quality.subjects import survey
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.quality.plain_keys import Numbers, by_duckdb, by_plain_fold
from tests.unstarted import unstarted

KEYS = {  # by MySQL type
    "bigint": ["-9223372036854775808", "9223372036854775807", "0", "-7", "12", "13", "14"],
    "int unsigned": ["4294967295", "0", "1", "2", "3", "4", "5"],
    "bigint unsigned": ["18446744073709551615", "0", "1", "2", "3", "4", "5"],
    "decimal(20,4)": ["1.5000", "-0.0001", "9999999999999999.9999", "0.0000", "2.0000", "3.0000", "4.0000"],
    "varchar(40)": ["", " ", "a", "A", "ä\u0301", "\"'\\/\n\t", "😀"],
    "date": [
        "2026-01-01",
        "0001-01-01",
        "9999-12-31",
        "1969-12-31",
        "2026-01-02",
        "2026-01-03",
        "2026-01-04",
    ],
    "datetime": ["2026-01-01 00:00:00", *(f"2026-01-0{n} 10:11:12" for n in range(2, 8))],
    "timestamp": [f"2026-01-0{n} 10:11:12" for n in range(1, 8)],
    "varbinary(9)": ["", "AA==", "AQ==", "/w==", "AAA=", "AAAA", "YWFh"],
    "bit(1)": ["0", "1", "2", "3", "4", "5", "6"],
}


class _Story:
    """A table with a key column of the given type, and another column."""

    def __init__(self, folder: Path, kind: str = "bigint", *, keys: list[str] | None = None) -> None:
        self.depot = Depot(unstarted(2), folder, Warm(), TableRule("yard.*"))
        self.types, self.keys = {"id": kind, "n": "int"}, keys or ["id"]

    def say(self, kind: str, key: str, n: str = "0", old: dict[str, str] | None = None, at: int = 0) -> None:
        row = {"id": key, "n": n}
        members = {
            "data": [row],
            "mysqlType": self.types,
            "old": old and [old],
            "pkNames": self.keys,
            "sql": "",
        }
        self.depot.say(at, isDdl=False, type=kind, **members)

    def run(self) -> None:
        assert ("done", "") == self.depot.run()

    def sides(self, since: int) -> list[Side]:
        lake = self.depot.lake()
        subjects = survey(lake, read(lake, since, lake.decoded()).lanes, steps=steps_of(lake)).subjects
        return [Side(lake, one, since, i) for i, one in enumerate(subjects)]

    def alike(self, since: int) -> Numbers:
        """The numbers, which are the same by both ways."""
        found = by_duckdb(self.depot.lake(), self.sides(since))[0]
        assert by_plain_fold(self.depot.lake(), self.sides(since)[0]) == found
        return found

    def plant(self, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        """Put other rows into the mirror."""
        lake = self.depot.lake()
        rows = lake.ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror}")
        made = pa.Table.from_pylist(change(rows), pa.schema({"id": pa.int64(), "n": pa.int32()}))
        write_deltalake(lake.path("mirrors/yard/depot"), made, mode="overwrite")


def _of_all_kinds(story: _Story, keys: list[str]) -> None:
    """Two batches: inserts, updates, moves, deletes, a repetition and a tie."""
    for key in keys[:6]:
        story.say("INSERT", key)
    story.say("UPDATE", keys[0], "1", {"n": "0"})
    story.say("DELETE", keys[1])
    story.say("UPDATE", keys[6], "0", {"id": keys[2]})
    story.run()
    story.say("DELETE", keys[0], "1")
    story.say("INSERT", keys[1], "5")
    story.say("UPDATE", keys[2], "0", {"id": keys[6]})
    story.say("UPDATE", keys[3], "1", {"n": "0"}, at=5_000)
    story.say("UPDATE", keys[3], "1", {"n": "0"}, at=5_000)
    story.say("UPDATE", keys[4], "1", {"n": "0"}, at=5_001)
    story.say("UPDATE", keys[4], "2", {"n": "0"}, at=5_001)
    story.run()


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_each_type_are_counted_alike(kind: str, tmp_path: Path) -> None:
    """Every type that DuckDB reads, at its edges, over a first look and a batch."""
    story = _Story(tmp_path, kind)
    _of_all_kinds(story, KEYS[kind])
    for since in (0, 1):
        found = story.alike(since)
        assert [5, 0, 0, 0] == [found[name] for name in ("rows", "missing_rows", "ghost_rows", "key_unique")]
        assert [1, 1] == [found["ambiguities"], found["duplicates"]]


def test_a_key_that_changes_by_two_messages_is_no_tie(tmp_path: Path) -> None:
    """Debezium sends a changed key as a delete and an insert of one place; each would be a false alarm."""
    story = _Story(tmp_path, "bigint")
    keys = KEYS["bigint"]
    story.say("INSERT", keys[0])
    story.say("DELETE", keys[0], at=5_000)
    story.say("UPDATE", keys[1], "0", {"id": keys[0]}, at=5_000)
    story.run()
    found = story.alike(0)
    assert [1, 0, 0] == [found[name] for name in ("rows", "ambiguities", "duplicates")]


def test_a_key_of_two_columns_is_counted_alike(tmp_path: Path) -> None:
    """Each column changes in turn."""
    story = _Story(tmp_path, "varchar(9)", keys=["id", "n"])
    story.say("INSERT", "a", "1")
    story.say("INSERT", "a", "2")
    story.say("UPDATE", "a", "3", {"n": "1"})
    story.say("UPDATE", "b", "2", {"id": "a"})
    story.run()
    assert {"rows": 2, "missing_rows": 0, "ghost_rows": 0}.items() <= story.alike(0).items()


FAULTS: dict[str, tuple[Callable[[list[dict[str, Any]]], list[dict[str, Any]]], Numbers]] = {
    "missing": (lambda rows: rows[1:], {"missing_rows": 1}),
    "extra": (lambda rows: [*rows, {"id": 77, "n": 0}], {"ghost_rows": 1}),
    "deleted": (lambda rows: [*rows, {"id": 6, "n": 0}], {"ghost_rows": 1}),
    "double": (lambda rows: [*rows, rows[0], rows[0], rows[1]], {"key_unique": 3}),
    "NULL": (lambda rows: [*rows, {"id": None, "n": 0}], {"key_not_null": 1}),
    "none": (lambda rows: [], {"missing_rows": 5}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_counted_alike(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a batch sees what the batch touched."""
    story = _Story(tmp_path)
    for key in range(1, 7):
        story.say("INSERT", str(key))
    story.run()
    story.say("DELETE", "6")
    for key in range(1, 5):
        story.say("UPDATE", str(key), "1", {"n": "0"})
    story.run()
    plant, wanted = FAULTS[fault]
    story.plant(plant)
    assert wanted.items() <= story.alike(0).items()
    small = story.alike(1)
    monkeypatch.setattr(key_sides, "LARGE", 1)
    large = story.alike(1)
    assert small | {"key_unique": large["key_unique"]} == large


def test_a_truncate_is_counted_alike(tmp_path: Path) -> None:
    """Rows from before it are gone, whether it came in a first look or in a batch."""
    story = _Story(tmp_path)
    story.say("INSERT", "1")
    story.run()
    story.say("INSERT", "2")
    story.depot.say(0, isDdl=True, type="TRUNCATE", sql="TRUNCATE TABLE depot")
    story.say("INSERT", "3")
    story.run()
    for since in (0, 1):
        assert {"rows": 1, "missing_rows": 0, "ghost_rows": 0}.items() <= story.alike(since).items()


def test_a_first_look_needs_no_spark(tmp_path: Path) -> None:
    """Counting rows needs no Spark, also with a second mirror that has no key."""
    story = _Story(tmp_path)
    story.say("INSERT", "1")
    story.depot.say(
        0,
        isDdl=False,
        type="INSERT",
        table="loose",
        data=[{"n": "1"}],
        mysqlType={"n": "int"},
        pkNames=None,
        sql="",
    )
    story.depot.rule = TableRule("yard.*", no_key="append")
    story.depot.run()
    found = key_checks.count(story.depot.lake(), [one.subject for one in story.sides(0)], 0)
    assert {"mirrors/yard/depot": 1, "mirrors/yard/loose": 1} == {
        name: one.numbers["rows"] for name, one in found.items()
    }


def test_large_rows_fit_into_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of large texts failed every check of its mirror: JSON functions keep what they read of two thousand rows."""
    monkeypatch.setattr(many_keys, "MEMORY", "40MB")
    story = _Story(tmp_path)
    story.types["n"] = "longtext"
    for key in range(40):
        story.say("INSERT", str(key), chr(97 + key % 26) * (1 << 18))
    story.run()
    story.say("UPDATE", "7", "y" * (1 << 18), {"id": "8"})
    story.say("DELETE", "9", "z" * (1 << 18))
    story.run()
    for since in (0, 1):
        assert 0 == story.alike(since)["ghost_rows"]


def test_one_database_serves_check_after_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening another one for each check was an eighth of a small lake's tick; two checks at once share nothing."""
    story, databases = _Story(tmp_path), list[many_keys.KeyFunctions]()

    class Counted(many_keys.KeyFunctions):
        def __init__(self) -> None:
            super().__init__()
            databases.append(self)

    monkeypatch.setattr(many_keys, "_idle", [])
    monkeypatch.setattr(many_keys, "KeyFunctions", Counted)
    story.say("INSERT", "1", "a")
    story.run()
    databases.clear()
    monkeypatch.setattr(many_keys, "_idle", [])
    assert story.alike(0) == story.alike(0)
    assert 1 == len(databases)
    lake = story.depot.lake()
    with many_keys.opened(lake) as first, many_keys.opened(lake) as second:
        for keys in (first, second):
            keys._base.execute("CREATE TEMP TABLE states AS SELECT 1 AS m")
    assert 2 == len(databases) == len(many_keys._idle)


def test_a_database_that_has_written_to_disk_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB cannot take another folder then; and nothing of the changes stays on disk."""
    monkeypatch.setattr(many_keys, "_idle", [])
    monkeypatch.setattr(many_keys, "MEMORY", "40MB")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lake = _Story(tmp_path / "story").depot.lake()
    with many_keys.opened(lake) as keys:
        keys._base.execute(
            "CREATE TEMP TABLE hashes AS SELECT hash(range) AS h, hash(-range) AS g FROM range(5_000_000)"
        )
        assert list(tmp_path.glob("tmp*/*"))
    assert [] == many_keys._idle == list(tmp_path.glob("tmp*"))
    with many_keys.opened(lake):
        pass
    assert 1 == len(many_keys._idle)
