"""Tables with rows that get another name: a swap is applied where silver holds all rows of the table, else it holds the mirror."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ingest import run as running
from ingest.bronze import carried_rows
from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.ddl import Effect
from ingest.erase.plan import plan
from ingest.erase.remove import erase
from ingest.formats import ingest_snapshot
from ingest.gold.approval import approve_or_dismiss, listed
from ingest.gold.explain import explain
from ingest.gold.plan import carried
from ingest.gold.rebuild import rebuild
from ingest.inspect import status
from ingest.ledgers import decisions, rejects
from ingest.ledgers.epochs import record_start
from ingest.ledgers.former_names import moves
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.starts import Start
from ingest.operate.dry_run import foresee
from ingest.run import Warm
from ingest.silver.lift import Lifting, SourceDecoder
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.formats.protobuf_cases import encode
from tests.gold.test_late_renames import Weak, Yard
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ingest.config import Pipeline

Say = Callable[[Yard], Yard]
Script = Iterable[Say]
SWAP = "RENAME TABLE hall TO hall_old, annex TO hall"
BACK = "RENAME TABLE hall TO x, annex TO hall, x TO annex"
ROUND = "RENAME TABLE hall TO x, attic TO hall, annex TO attic, x TO annex"


def created(table: str, at: int, columns: str = "id INT PRIMARY KEY, n INT") -> Say:
    return lambda yard: yard.stated(at, f"CREATE TABLE {table} ({columns})")


def row(table: str, at: int, key: int) -> Say:
    return lambda yard: yard.inserted(table, at, key)


def said(at: int, sql: str) -> Say:
    return lambda yard: yard.stated(at, sql)


def changed(kind: str, table: str, at: int, keys: list[str], old: Any = None, **cells: str | None) -> Say:
    """Any row change; all columns are numbers."""

    def say(yard: Yard) -> Yard:
        types = dict.fromkeys(cells, "int")
        yard.say(
            at, table=table, isDdl=False, type=kind, data=[cells], mysqlType=types, old=old and [old], pkNames=keys, sql=""
        )  # fmt: skip
        return yard

    return say


def play(yard: Yard, script: Script, *, cut: bool) -> dict[str, str]:
    """Say everything in one batch, or each thing in its own; the mirrors that are held or failed after the last run, which is
    checked, and why.
    """
    *before, last = script
    for say in before:
        say(yard)
        if cut:
            yard.run()
    last(yard)
    result = yard.result(checked=True)
    return {one.mirror: one.message for one in result.mirrors if one.state in ("held", "failed")}


def complaints(yard: Yard) -> list[tuple[str, str, str]]:
    """What the checks say of mirrors; that something is late is no complaint of the mirror."""
    rows = yard.lake().ask(
        "SELECT mirror, \"check\", detail FROM {checks} WHERE state <> 'pass' AND \"check\" <> 'old_positions' ORDER BY ALL"
    )
    return [(row["mirror"], row["check"], row["detail"]) for row in rows]


def yard_of(tmp_path: Path, spark: SparkSession | None = None, **rule: Any) -> Yard:
    return Yard(spark or unstarted(), tmp_path, Warm(), TableRule("yard.*", **rule))


NIGHT = [
    created("annex", 100),
    row("annex", 110, 5),
    row("annex", 120, 6),
    said(200, SWAP),
    row("hall", 210, 7),
]
SCRIPTS: dict[str, tuple[list[Say], dict[str, list[int]]]] = {
    "blue/green": ([row("hall", 10, 1), *NIGHT], {"hall": [5, 6, 7], "annex": [5, 6]}),
    "night after night": (
        [row("hall", 10, 1), *NIGHT, said(300, "DROP TABLE hall_old"), created("annex", 310), row("annex", 320, 8), said(400, SWAP)],
        {"hall": [8], "annex": [8]},
    ),
    "emptied and loaded": (
        [row("hall", 10, 1), row("annex", 20, 2), said(100, "TRUNCATE TABLE annex"), row("annex", 110, 5), said(200, SWAP)],
        {"hall": [5]},
    ),
    "swapped and back": (
        [
            created("hall", 1), created("annex", 2), row("hall", 10, 1), row("annex", 20, 2), said(30, BACK),
            row("hall", 40, 3), row("annex", 50, 4), said(60, BACK), row("hall", 70, 5),
        ],
        {"hall": [1, 4, 5], "annex": [2, 3]},
    ),
    "three names": (
        [
            *(created(name, at) for at, name in enumerate(("hall", "annex", "attic"))), row("hall", 10, 1), row("annex", 20, 2),
            row("attic", 30, 3), said(40, ROUND), row("hall", 50, 4), row("annex", 60, 5), row("attic", 70, 6),
        ],
        {"hall": [3, 4], "annex": [1, 5], "attic": [2, 6]},
    ),
    "renamed": (
        [created("hall", 1), row("hall", 10, 1), said(20, "ALTER TABLE hall RENAME TO annex"), row("annex", 30, 2)],
        {"hall": [1], "annex": [1, 2]},
    ),
    "by way of a name that no row has": (
        [
            created("hall", 1), row("hall", 10, 1), said(20, "RENAME TABLE hall TO x"), said(30, "RENAME TABLE x TO annex"),
            row("annex", 40, 2),
        ],
        {"annex": [1, 2]},
    ),
    "emptied while it had another name": (
        [
            created("hall", 1),
            row("hall", 10, 1),
            said(20, "RENAME TABLE hall TO x"),
            said(30, "TRUNCATE TABLE x"),
            said(40, "RENAME TABLE x TO hall"),
            row("hall", 50, 2),
        ],
        {"hall": [2]},
    ),
    "away and back, and then another name": (
        [
            created("hall", 1), row("hall", 10, 1), said(20, "RENAME TABLE hall TO x"), said(30, "RENAME TABLE x TO hall"),
            row("hall", 40, 2), said(50, "RENAME TABLE hall TO attic"), row("attic", 60, 3),
        ],
        {"attic": [1, 2, 3]},
    ),
    "late rows of before": (
        [row("hall", 10, 1), *NIGHT, row("hall", 220, 9), row("annex", 115, 8), row("annex", 116, 9), row("hall", 230, 3)],
        {"hall": [3, 5, 6, 7, 8, 9]},
    ),
    "a late row of a table that has got a third name": (
        [
            created("annex", 100), row("annex", 110, 5), said(200, "RENAME TABLE annex TO hall"), row("hall", 210, 6),
            said(300, "RENAME TABLE hall TO attic"), row("attic", 310, 7), row("annex", 120, 8),
        ],
        {"hall": [5, 6, 8], "attic": [5, 6, 7, 8]},
    ),
    "said twice": ([row("hall", 10, 1), *NIGHT, said(200, SWAP), row("hall", 220, 8)], {"hall": [5, 6, 7, 8]}),
    "changed before and after": (
        [
            created("annex", 100), row("annex", 110, 5), row("annex", 120, 6), row("annex", 125, 4), row("hall", 126, 1),
            changed("DELETE", "annex", 130, ["id"], id="6", n="7"),
            changed("UPDATE", "annex", 140, ["id"], {"id": "4"}, id="9", n="7"), said(200, SWAP),
            changed("UPDATE", "hall", 210, ["id"], {"n": "7"}, id="5", n="8"), changed("DELETE", "hall", 220, ["id"], id="9", n="7"),
        ],
        {"hall": [5]},
    ),
}  # fmt: skip


@pytest.mark.one_of(2)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_swap_of_tables_whose_rows_are_all_known(tmp_path: Path, name: str, cut: bool) -> None:
    """The mirrors were held every night, or went on with the rows of another table."""
    script, keys = SCRIPTS[name]
    yard = yard_of(tmp_path)
    assert {} == play(yard, script, cut=cut)
    assert keys == {table: yard.keys(table) for table in keys}
    mirrored = {f"yard.{table}" for table in keys}
    assert ([], set()) == (complaints(yard), {each for each in yard.pending() if each[0] in mirrored})
    # what was folded batch by batch is folded at once
    for again in rebuild(yard.lake(), sorted(mirrored), dry_run=True) if cut else ():
        assert again.difference is not None
        assert again.difference.none, again.mirror


@pytest.mark.parametrize("name", ["emptied and loaded", "late rows of before"])
def test_a_table_that_is_too_large_to_fold_at_once(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key is folded by itself, with what empties the table."""
    monkeypatch.setattr(carried, "AT_ONCE", 0)
    script, keys = SCRIPTS[name]
    yard = yard_of(tmp_path)
    assert {} == play(yard, script, cut=False)
    assert keys == {table: yard.keys(table) for table in keys}


def test_a_name_in_between_is_no_table(tmp_path: Path) -> None:
    """The operator was asked each night about a table that had been there within one statement."""
    yard = yard_of(tmp_path)
    script, _ = SCRIPTS["swapped and back"]
    play(yard, script, cut=False)
    assert set() == yard.pending()


@pytest.mark.e2e
@pytest.mark.spark
def test_a_swap_in_a_merge_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Both ways to apply a batch have to clear the table and fill it in one commit."""
    script, keys = SCRIPTS["late rows of before"]
    yard = yard_of(tmp_path, spark)
    yard.apply = "merge"
    play(yard, script, cut=True)
    assert keys["hall"] == yard.keys("hall")
    assert [] == complaints(yard)


LACKING: dict[str, tuple[list[Say], str]] = {
    "no beginning": (
        [row("hall", 10, 1), row("annex", 110, 5), said(200, SWAP)],
        "no message shows that yard.annex was created, emptied or loaded",
    ),
    "made of a query": (
        [row("hall", 10, 1), said(100, "CREATE TABLE annex AS SELECT * FROM hall"), row("annex", 110, 5), said(200, SWAP)],
        "the rows with which yard.annex was created are in no message",
    ),
    "a rejected message": (
        [row("hall", 10, 1), *NIGHT[:2], lambda yard: yard.messages.append("{") or yard, *NIGHT[2:4]],
        "messages of source s were rejected meanwhile",
    ),
    "a row that never came": (
        [row("hall", 10, 1), created("annex", 100), changed("UPDATE", "annex", 110, ["id"], {"n": "1"}, id="5", n="7"), said(200, SWAP)],
        "a row was changed that no message had brought",
    ),
    "an unread statement": (
        [row("hall", 10, 1), *NIGHT[:3], said(150, "ALTER TABLE annex FROBNICATE"), NIGHT[3]],
        "no message shows what 'ALTER TABLE annex FROBNICATE' did to its rows",
    ),
    "values that only the source knows": (
        [row("hall", 10, 1), *NIGHT[:2], said(120, "ALTER TABLE annex MODIFY n TIME"), said(130, "ALTER TABLE annex MODIFY n INT"), NIGHT[3]],
        "no message shows what 'ALTER TABLE annex MODIFY n TIME' did to its rows",
    ),
    "another key": (
        [
            row("hall", 10, 1), created("annex", 100), row("annex", 110, 5),
            said(150, "ALTER TABLE annex DROP PRIMARY KEY, ADD PRIMARY KEY (n)"), said(200, SWAP),
        ],
        "its key has changed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LACKING)
def test_a_swap_of_a_table_that_lacks_rows(tmp_path: Path, name: str) -> None:
    """The mirror would silently be a part of the table; a plan says so before the run."""
    script, why = LACKING[name]
    reason = f"The rows of yard.annex cannot be carried over: {why}"
    yard = yard_of(tmp_path)
    for say in script[:-1]:
        say(yard)
    yard.run()
    script[-1](yard)
    yard.write()
    plan = foresee(yard.pipeline, None, 200)
    [planned] = [table for table in plan["tables"] if table["table"] == "yard.hall"]
    assert ("hold", True) == (planned["action"], reason in planned["why"])
    result = yard.result()
    [hall] = [mirror for mirror in result.mirrors if mirror.mirror == "yard.hall"]
    assert ("held", True) == (hall.state, reason in hall.message)
    assert [1] == yard.keys("hall")
    assert ("yard.hall", SWAP) in yard.pending()


def test_columns_and_key_of_the_new_table(tmp_path: Path) -> None:
    """Rows would be distinguished by the key of the table that has gone, or have its columns' values."""
    yard = yard_of(tmp_path, on_schema_change="evolve")
    old = changed("INSERT", "hall", 10, ["id"], id="1", n="2", gone="3")
    new = [changed("INSERT", "annex", at, ["id", "k"], id="1", k=str(at), n="4") for at in (110, 120)]
    alter = said(150, "ALTER TABLE annex RENAME COLUMN n TO m, ADD COLUMN z INT DEFAULT 9")
    last = changed("INSERT", "hall", 210, ["id", "k"], id="1", k="1", m="5", z="6")
    create = created("annex", 100, "id INT, k INT, n INT, PRIMARY KEY (id, k)")
    play(yard, [old, create, *new, alter, said(200, SWAP), last], cut=True)
    rows = yard.lake().ask_mirror("mirrors/yard/hall", "SELECT * FROM {mirror} ORDER BY k")
    assert [(1, 1, 5, 6), (1, 110, 4, 9), (1, 120, 4, 9)] == [
        (row["id"], row["k"], row["m"], row["z"]) for row in rows
    ]
    assert {"id", "k", "m", "z"} == rows[0].keys()
    assert [] == complaints(yard)


CHANGED_AND_RENAMED = {
    "a new column": ("ADD m INT DEFAULT 4, RENAME TO annex", {"m": "9"}, {"n": 7, "m": 4}),
    "the new name first": ("RENAME annex, ADD m INT DEFAULT 4", {"m": "9"}, {"n": 7, "m": 4}),
    "another column's name": ("RENAME AS annex, CHANGE n m INT", {"n": None, "m": "9"}, {"n": None, "m": 7}),
}


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("name", CHANGED_AND_RENAMED)
def test_a_statement_that_changes_a_table_and_its_name(tmp_path: Path, name: str, *, cut: bool) -> None:
    """The rows that stood went over as they were before the statement, without a word."""
    clauses, cells, stood = CHANGED_AND_RENAMED[name]
    given = {column: cell for column, cell in ({"n": "8"} | cells).items() if cell is not None}
    later = changed("INSERT", "annex", 30, ["id"], id="2", **given)
    yard = yard_of(tmp_path)
    script = [created("hall", 1), row("hall", 10, 1), said(20, f"ALTER TABLE hall {clauses}"), later]
    assert {} == play(yard, script, cut=cut)
    [first] = yard.lake().ask_mirror("mirrors/yard/annex", "SELECT * FROM {mirror} WHERE id = 1")
    assert {"id": 1, **stood} == first
    assert [] == complaints(yard)


def test_equal_rows_of_a_table_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows in two messages that stand at one place would count as one."""
    monkeypatch.setattr(ingest_snapshot, "ROWS", 2)
    yard = yard_of(tmp_path, no_key="full_row")
    rows = [changed("INSERT", "annex", 110 + at, [], id="5", n="7") for at in range(5)]
    late = changed("INSERT", "annex", 105, [], id="6", n="7")
    script = [
        changed("INSERT", "hall", 10, [], id="1", n="7"),
        created("annex", 100, "id INT, n INT"),
        *rows,
        said(200, SWAP),
        late,
    ]
    play(yard, script, cut=True)
    assert [5, 5, 5, 5, 5, 6] == yard.keys("hall")
    assert [] == complaints(yard)


def test_states_end_and_begin_with_the_swap(tmp_path: Path) -> None:
    """A row of the new table was not in the old one before."""
    yard = yard_of(tmp_path, history=True)
    play(yard, [row("hall", 10, 1), *NIGHT], cut=False)
    states = yard.lake().ask_mirror("histories/yard/hall", "SELECT * FROM {mirror} ORDER BY id")
    assert [1, 5, 6, 7] == [state["id"] for state in states]
    froms, untils = ([state[name] for state in states] for name in ("valid_from", "valid_to"))
    assert froms[1] == froms[2] == untils[0]
    assert [None, None, None] == untils[1:]


def test_masked_values_are_not_masked_twice(tmp_path: Path) -> None:
    """Rows that come from silver hold masked values; a second mask would part them from those that come later."""
    yard = masked_yard(tmp_path, {"n": "hmac"}, "s" * 32)
    play(yard, [row("hall", 10, 1), *NIGHT], cut=False)
    rows = yard.lake().ask_mirror("mirrors/yard/hall", "SELECT id, n FROM {mirror} ORDER BY id")
    assert [5, 6, 7] == [row["id"] for row in rows]
    assert 1 == len({row["n"] for row in rows})
    assert [] == complaints(yard)


def test_a_run_that_is_killed_after_the_rows_have_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run must neither lose the rows nor have them twice."""
    yard = yard_of(tmp_path)
    for say in [row("hall", 10, 1), *NIGHT]:
        say(yard)

    def killed(_rows: object, _batch: int) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(carried.Carried, "decision", killed)
        with pytest.raises(RuntimeError):
            yard.run()
    yard.warm = Warm()
    assert yard.run(checked=True)[0] in ("done", "skipped")
    assert [5, 6, 7] == yard.keys("hall")
    assert [] == complaints(yard)


def test_rows_and_statement_are_applied_together(tmp_path: Path) -> None:
    """A later statement that holds the mirror would leave it without the rows, which landed after that."""
    yard = yard_of(tmp_path)
    part = "ALTER TABLE hall TRUNCATE PARTITION p1"
    yard.inserted("hall", 10, 1).run()
    for say in NIGHT:
        say(yard)
    yard.warm = Warm()
    yard.stated(300, part).run()
    assert [1] == yard.keys("hall")


@pytest.mark.parametrize(("nights", "declared"), [(1, {}), (2, {}), (2, {"id": "int32", "n": "int32"})])
def test_a_swap_leaves_no_mirror_behind(tmp_path: Path, nights: int, declared: dict[str, str]) -> None:
    """The mirror that was folded before the rows were carried over was called failed: its table "holds batch 2 of 3".

    Each night somebody was asked about the old table's new name, which has no mirror, and could not decide: `dismiss` was
    refused because the new table had been taken over.
    """
    yard = yard_of(tmp_path, columns=declared)
    row("hall", 10, 1)(yard)
    yard.run()
    for night in range(nights):
        at = 1000 * night
        if night:
            said(at, "DROP TABLE hall_old")(yard)
        for say in (
            created("annex", 100 + at), row("annex", 110 + at, 5 + night), said(200 + at, SWAP), row("hall", 210 + at, 7 + night),
        ):  # fmt: skip
            say(yard)
        result = yard.result(checked=True)
        assert [] == result.failures
        assert [5 + night, 7 + night] == yard.keys("hall")
        assert [] == status.problems_of(LakeReader(yard.pipeline)), "the old table's new name has no mirror"


ADDED = "ADD COLUMN w INT"
COLUMNS_OF_A_LIFE: dict[str, list[Say]] = {
    "a second name": [
        said(20, f"ALTER TABLE hall {ADDED}"), said(30, "RENAME TABLE hall TO attic"), said(40, "RENAME TABLE attic TO annex"),
    ],
    "under the name between": [
        said(20, "RENAME TABLE hall TO attic"), said(30, f"ALTER TABLE attic {ADDED}"), said(40, "RENAME TABLE attic TO annex"),
    ],
    "a tool's copy": [
        said(20, "CREATE TABLE _hall_gho LIKE hall"), said(25, f"ALTER TABLE _hall_gho {ADDED}"),
        said(30, "RENAME TABLE hall TO _hall_del, _hall_gho TO hall"), said(40, "RENAME TABLE hall TO annex"),
    ],
    "before a tool's copy": [
        said(20, f"ALTER TABLE hall {ADDED}"), said(22, "CREATE TABLE _hall_gho LIKE hall"),
        said(25, "ALTER TABLE _hall_gho ENGINE=InnoDB"),
        said(30, "RENAME TABLE hall TO _hall_del, _hall_gho TO hall"), said(40, "RENAME TABLE hall TO annex"),
    ],
    "before a tool's copy of a renamed table": [
        said(20, f"ALTER TABLE hall {ADDED}"), said(21, "RENAME TABLE hall TO attic"), said(22, "CREATE TABLE _attic_new LIKE attic"),
        said(25, "ALTER TABLE _attic_new ENGINE=InnoDB"),
        said(30, "RENAME TABLE attic TO _attic_old, _attic_new TO attic"), said(40, "ALTER TABLE attic RENAME TO annex"),
    ],
    "before a tool's copy that is made if it is not there": [
        said(20, f"ALTER TABLE hall {ADDED}"), said(22, "CREATE TABLE IF NOT EXISTS _hall_gho LIKE hall"),
        said(25, "ALTER TABLE _hall_gho ENGINE=InnoDB"),
        said(30, "RENAME TABLE hall TO _hall_del, _hall_gho TO hall"), said(40, "RENAME TABLE hall TO annex"),
    ],
    "made if it is not there": [
        said(20, f"ALTER TABLE hall {ADDED}"), said(25, "CREATE TABLE IF NOT EXISTS hall (id INT PRIMARY KEY, n INT)"),
        said(40, "RENAME TABLE hall TO annex"),
    ],
}  # fmt: skip


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("name", COLUMNS_OF_A_LIFE)
def test_a_column_from_before_the_last_rename_is_announced(tmp_path: Path, name: str, *, cut: bool) -> None:
    """What was done to the table under an earlier name, or to the tool's copy, was forgotten when its rows were carried over: the
    first row with the column was said to have it without a statement, and the mirror not to know what older rows have.
    """
    yard = yard_of(tmp_path)
    script = [created("hall", 1), row("hall", 10, 1), *COLUMNS_OF_A_LIFE[name]]
    assert {} == play(yard, [*script, changed("INSERT", "annex", 50, ["id"], id="2", n="4", w="3")], cut=cut)
    assert [1, 2] == yard.keys("annex")
    assert [] == complaints(yard)


IF_NOT_THERE = "CREATE TABLE IF NOT EXISTS {} (id INT PRIMARY KEY, n INT)"


def test_a_table_that_was_dropped_and_made_if_it_is_not_there(tmp_path: Path) -> None:
    """The DROP of before went over to the new name, and the next such CREATE took away the rows that were carried over."""
    yard = yard_of(tmp_path)
    script = [said(1, "DROP TABLE IF EXISTS hall"), said(5, IF_NOT_THERE.format("hall")), row("hall", 10, 1)]
    script += [said(40, "RENAME TABLE hall TO annex"), said(45, IF_NOT_THERE.format("annex"))]
    assert {} == play(yard, [*script, changed("INSERT", "annex", 50, ["id"], id="2", n="4")], cut=False)
    assert [1, 2] == yard.keys("annex")
    assert [] == complaints(yard)


@pytest.mark.parametrize("more", [0, 1])
def test_rows_that_are_carried_over_again_are_no_positions_that_started_again(
    tmp_path: Path, more: int
) -> None:
    """A late row under the old name lands all rows once more: they were counted as changes older than the mirror's, and the
    complaint offered an epoch.
    """
    yard = yard_of(tmp_path)
    for say in [row("hall", 10, 1), *NIGHT, row("hall", 220, 8)]:
        say(yard)
    yard.run(checked=True)
    for say in [row("annex", 115, 9), *[row("hall", 205, 4)] * more]:
        say(yard)
    yard.run(checked=True)
    assert sorted([5, 6, 7, 8, 9, *[4] * more]) == yard.keys("hall")
    late = yard.lake().ask(
        """SELECT detail FROM {checks} WHERE "check" = 'old_positions' AND mirror = 'yard.hall' AND state <> 'pass'"""
    )
    assert more == len(late)
    assert all("(1 change)" in each["detail"] for each in late)


PLANNED = {
    "blue/green": (4, 2),
    "renamed": (2, 1),
    "emptied and loaded": (4, 1),
    "by way of a name that no row has": (2, 1),
}
"""Scripts by the number of their RENAME, and how many rows it moves."""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("is_read", [True, False])
def test_a_plan_foresees_the_swap(tmp_path: Path, name: str, *, is_read: bool) -> None:
    """It said that the mirror would be held, and the run carried the rows over, as it does above."""
    script, _ = SCRIPTS[name]
    at, count = PLANNED[name]
    yard = yard_of(tmp_path)
    for say in script[: at if is_read else 1]:
        say(yard)
    yard.run()
    for say in script[at if is_read else 1 :]:
        say(yard)
    yard.write()
    plan = foresee(yard.pipeline, None, 200)
    assert [] == plan["problems"]
    rows = f"the {count} row{'s' * (count > 1)}" if is_read else "the rows"
    assert [True] == [
        why.startswith(rows) for table in plan["tables"] if "carried over" in (why := table["why"])
    ]


def test_a_swap_in_a_run_of_some_mirrors_leaves_the_others_for_the_next(tmp_path: Path) -> None:
    """They counted as folded, and had old rows until their next changes."""
    yard = yard_of(tmp_path)
    for say in [row("hall", 10, 1), row("kiln", 20, 1)]:
        say(yard)
    yard.run()
    for say in [*NIGHT, row("kiln", 220, 2)]:
        say(yard)
    yard.result(select="yard.hall")
    assert ([5, 6, 7], [1]) == (yard.keys("hall"), yard.keys("kiln"))
    yard.warm = Warm()
    yard.result()
    assert [1, 2] == yard.keys("kiln")


def test_nothing_is_carried_over_while_a_batch_waits_to_be_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows would be landed again and again: behind that batch none of them is decoded."""
    yard = yard_of(tmp_path)
    for say in [row("hall", 10, 1), *NIGHT]:
        say(yard)
    with monkeypatch.context() as patched:
        patched.setattr(running, "last_batch", lambda lake: lake.decoded() + 1)
        patched.setattr(carried_rows, "land", lambda *_: pytest.fail("it would never come to an end"))
        yard.run()
    yard.inserted("hall", 230, 8).run()
    assert [5, 6, 7, 8] == yard.keys("hall")


@pytest.mark.parametrize("rewound", [False, True])
def test_where_arrival_decides(tmp_path: Path, rewound: bool) -> None:
    """A RENAME that comes again is no second swap; with rows before it, which are the other table's, it asks."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    again = [row("hall", 10, 1), said(200, SWAP)] if rewound else [said(200, SWAP)]
    held = play(yard, [row("hall", 10, 1), *NIGHT, *again], cut=True)
    assert rewound == ("yard.hall" in held)
    assert rewound or [5, 6, 7] == yard.keys("hall")


@pytest.mark.e2e
@pytest.mark.spark
def test_an_erased_row_does_not_come_back(tmp_path: Path, spark: SparkSession) -> None:
    """Neither by the swap, nor by rows that come late, nor by its own message, which comes again."""
    yard = yard_of(tmp_path, spark)
    play(yard, [row("hall", 10, 1), *NIGHT[:3]], cut=False)
    lake = yard.lake()
    erase(lake, plan(lake, "yard.annex", [["5"]], "asked for", now=True))
    yard.warm = Warm()
    play(yard, [said(200, SWAP)], cut=False)
    assert [6] == yard.keys("hall")
    play(yard, [row("annex", 115, 8), row("annex", 110, 5)], cut=False)
    assert [6, 8] == yard.keys("hall")
    assert [] == complaints(yard)


def test_the_story_of_a_row_that_was_carried_over(tmp_path: Path) -> None:
    """It says under which name the row came before."""
    yard = yard_of(tmp_path)
    play(yard, [row("hall", 10, 1), *NIGHT], cut=False)
    story = explain(yard.lake(), "yard.hall", ["5"])
    assert story.equal
    assert [("carried over", "carried over from yard.annex", ())] == [
        (event.note, event.sequence, event.remarks) for event in story.events
    ]


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that are asked from now on."""
    queries: list[str] = []
    ask = Lake.ask

    def noted(lake: Lake, query: str) -> list[dict[str, Any]]:
        queries.append(query)
        return ask(lake, query)

    monkeypatch.setattr(Lake, "ask", noted)
    return queries


def test_what_was_carried_over_costs_each_run_one_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each swap ever carried over cost one, in each pass."""
    yard = yard_of(tmp_path)
    play(yard, SCRIPTS["swapped and back"][0], cut=False)
    lake, queries = yard.lake(), asked(monkeypatch)
    assert 4 == len(list(decisions.read(lake).of(decisions.CARRIED)))
    queries.clear()
    list(carried.overtaken(lake))
    assert 1 == len([query for query in queries if "s.number" in query])
    assert [] == [query for query in queries if query.startswith("SELECT 1 FROM {books}")]


def test_a_mirror_that_is_held_for_something_else_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connector's snapshot prints a CREATE IF NOT EXISTS of each table, and each was looked for among all changes."""
    yard = yard_of(tmp_path)
    for at in range(5):
        created(f"hall{at}", 1 + at)(yard)
    for at in range(5):
        row(f"hall{at}", 10 + at, 1)(yard)
        yard.stated(20 + at, f"CREATE TABLE IF NOT EXISTS hall{at} (id INT PRIMARY KEY, n INT)")
    row("hall", 30, 1)(yard).stated(40, "ALTER TABLE hall TRUNCATE PARTITION p1")
    held = [mirror for mirror in yard.result().mirrors if mirror.state == "held"]
    lake, queries = yard.lake(), asked(monkeypatch)
    list(carried.due(lake, held))
    assert [] == [query for query in queries if "routed_out" in query and "changes.change" in query]


def test_where_rows_begin_is_asked_of_renamed_tables_only() -> None:
    """Of all other tables the answer changes nothing."""
    tables = [TableId("yard", None, f"hall{at}") for at in range(3)]
    effects = [(Effect("create_table", table, note="if-not-exists"),) for table in tables]
    effects.append((Effect("rename_table", tables[0], to=TableId("yard", None, "annex")),))
    statements = [
        Statement(str(at), "s", tables[0], 1, f"1011{at}", "", "other", said)
        for at, said in enumerate(effects)
    ]
    looked: list[TableId] = []

    def came(_source: str, table: TableId, *_span: object) -> bool:
        looked.append(table)
        return True

    assert 1 == len(moves(statements, came))
    assert tables[:1] == looked


@pytest.mark.parametrize(("is_known", "limit"), [(True, "APART"), (False, "TOGETHER")])
def test_a_table_that_is_too_large_to_fold(
    tmp_path: Path, is_known: bool, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would die for want of memory, in each attempt."""
    monkeypatch.setattr(carried, "AT_ONCE", 0)
    monkeypatch.setattr(carried, limit, 1)
    yard = yard_of(tmp_path)
    moved = [] if is_known else [changed("UPDATE", "annex", 130, ["id"], {"id": "6"}, id="8", n="7")]
    script = [row("hall", 10, 1), *NIGHT[:3], *moved, *NIGHT[3:]]
    message = play(yard, script, cut=False)["yard.hall"]
    assert f"its {2 + len(moved)} changes are too many to fold at once" in message


@pytest.mark.parametrize(("kind", "spellings"), [("decimal(4,1)", ("1.0", "1")), ("int", ("1", "01"))])
def test_a_key_in_two_spellings(
    tmp_path: Path, kind: str, spellings: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was deleted under another spelling of its key would live."""
    monkeypatch.setattr(carried, "AT_ONCE", 0)
    yard = yard_of(tmp_path)
    row("hall", 10, 1)(yard).stated(100, f"CREATE TABLE annex (id {kind} PRIMARY KEY, n INT)")
    for at, said_as, text in (
        (110, "INSERT", spellings[0]),
        (120, "DELETE", spellings[1]),
        (130, "INSERT", "5"),
    ):
        yard.say(
            at, table="annex", isDdl=False, type=said_as, data=[{"id": text, "n": "7"}], mysqlType={"id": kind, "n": "int"},
            old=None, pkNames=["id"], sql="",
        )  # fmt: skip
    assert {} == play(yard, [said(200, SWAP)], cut=False)
    assert [5] == yard.keys("hall")


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("made", ["LIKE hall", "(LIKE hall)", "IF NOT EXISTS"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_copy_has_the_key_of_the_other_table(tmp_path: Path, made: str, *, cut: bool) -> None:
    """Messages without keys, as in files of Debezium's or Maxwell's: the copy was held for the want of one."""
    guard, like = ("IF NOT EXISTS", "LIKE hall") if made == "IF NOT EXISTS" else ("", made)
    yard = yard_of(tmp_path)
    script = [
        created("hall", 1), said(5, "ALTER TABLE hall DROP PRIMARY KEY, ADD PRIMARY KEY (n)"),
        changed("INSERT", "hall", 10, [], id="1", n="1"), said(20, f"CREATE TABLE {guard} annex {like}"),
        changed("INSERT", "annex", 30, [], id="1", n="2"), changed("UPDATE", "annex", 40, [], {"id": "1"}, id="3", n="2"),
    ]  # fmt: skip
    assert {} == play(yard, script, cut=cut)
    assert ([1], [3]) == (yard.keys("hall"), yard.keys("annex"))
    assert [] == complaints(yard)


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_table_that_is_there_gets_no_key_of_another_one(tmp_path: Path, *, is_stated: bool) -> None:
    """``IF NOT EXISTS`` does nothing then; rows without a key that had one ``id`` became one row."""
    yard = yard_of(tmp_path, no_key="full_row")
    script = [
        created("hall", 1), *[created("annex", 2, "id INT, n INT")] * is_stated,
        changed("INSERT", "annex", 10, [], id="1", n="1"), said(20, "CREATE TABLE IF NOT EXISTS annex LIKE hall"),
        changed("INSERT", "annex", 30, [], id="1", n="2"),
    ]  # fmt: skip
    assert {} == play(yard, script, cut=False)
    assert [1, 1] == yard.keys("annex")
    assert [] == complaints(yard)


class ByTime(Yard):
    """A source that is ordered by its clock."""

    @property
    def pipeline(self) -> Pipeline:
        made = super().pipeline
        options = replace(made.sources[0].options, order_by="event_time")
        return replace(made, sources=(replace(made.sources[0], options=options),))


class Oms(Yard):
    """A dialect whose statements have no position but that of the row before them in their file."""

    @property
    def pipeline(self) -> Pipeline:
        made = super().pipeline
        return replace(made, sources=(replace(made.sources[0], format="oms-default"),))

    def say(self, at: int = 0, **members: Any) -> Yard:
        self.number += 10
        second = 1714521600 + at // 10
        meta = {
            "dbType": "MYSQL",
            "db": "yard",
            "table_name": members["table"],
            "record_primary_key": "id",
            "timestamp": str(second),
        }
        is_ddl = members["isDdl"]
        meta |= {"storeDataSequence": None if is_ddl else int(f"{second}{1 + at % 10:05d}")}
        row = {"ddl": members["sql"]} if is_ddl else members["data"][0]
        self.messages.append(
            json.dumps({"postStruct": row, "allMetaData": meta, "recordType": members["type"]})
        )
        return self


class Tencent(Yard):
    """A dialect whose statements have a number, and whose rows have one of their own in the number of their event."""

    @property
    def pipeline(self) -> Pipeline:
        made = super().pipeline
        return replace(made, sources=(replace(made.sources[0], format="tencent-protobuf"),))

    def say(self, at: int = 0, **members: Any) -> Yard:
        self.number += 10
        head = {"sourceType": "MYSQL", "timestamp": 1714521600 + at, "seqId": 7000 + at}
        head |= {"schemaName": "yard", "tableName": members["table"], "messageType": "DML"}
        if members["isDdl"]:
            head["messageType"] = "DDL"
            event = {"ddlEvent": {"schemaName": "yard", "sql": members["sql"]}}
        else:
            columns = [
                {"name": name, "originalType": kind, "isKey": name in members["pkNames"]}
                for name, kind in members["mysqlType"].items()
            ]
            rows = [
                {"newColumns": [{"dataType": "INT32", "sv": cell} for cell in cells.values()]}
                for cells in members["data"]
            ]
            event = {"dmlEvent": {"dmlEventType": "INSERT", "columns": columns, "rows": rows}}
        envelope = {"version": 1, "total": 1, "data": {"items": [{"header": head, "event": event}]}}
        self.messages.append(encode("tencent-protobuf", envelope).hex())
        return self

    def write(self) -> None:
        """Each message after its length."""
        with (self.folder / f"in-{self.number}.jsonl").open("wb") as stream:
            for message in map(bytes.fromhex, self.messages):
                stream.write(len(message).to_bytes(4, "big") + message)
        self.messages.clear()


@pytest.mark.parametrize("name", ["night after night", "swapped and back"])
def test_statements_whose_places_are_shorter_than_those_of_rows(tmp_path: Path, name: str) -> None:
    """A statement with a number of its own has an exact place: every RENAME held its mirrors."""
    script, keys = SCRIPTS[name]
    yard = Tencent(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    assert {} == play(yard, script, cut=False)
    assert keys == {table: yard.keys(table) for table in keys}


def test_a_source_that_is_ordered_by_time(tmp_path: Path) -> None:
    """Rows of the statement's second would be wiped by the mark before those that are carried over."""
    yard = ByTime(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    script = [row("hall", 10, 1), *NIGHT[:4], row("hall", 200, 7)]
    assert "is ordered by time" in play(yard, script, cut=False)["yard.hall"]


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
def test_a_statement_with_no_more_than_a_second(tmp_path: Path, cut: bool) -> None:
    """A row of the same second stood before the mark that empties the table, which wiped it."""
    yard = Oms(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    held = play(yard, [row("hall", 10, 1), *NIGHT[:4], row("hall", 205, 7)], cut=cut)
    assert cut == ("the statement has no exact position" in held.get("yard.hall", ""))
    assert cut or [5, 6, 7] == yard.keys("hall")


def test_an_epoch_that_has_begun_since_the_statement(tmp_path: Path) -> None:
    """Rows that land now would be of the new epoch, after all that its messages say."""
    yard = yard_of(tmp_path)
    play(yard, [row("hall", 10, 1), *NIGHT], cut=False)
    record_start(yard.lake(), "s", Start(99), "failover")
    held = play(yard, [row("annex", 115, 8), row("hall", 230, 9)], cut=False)
    assert "an epoch of source s has begun since" in held["yard.hall"]


def loaded(table: str, key: int) -> Say:
    """A row of a full load, which has no place in the stream."""

    def say(yard: Yard) -> Yard:
        yard.say(
            1, id=None, table=table, isDdl=False, type="INIT", data=[{"id": str(key), "n": "7"}],
            mysqlType={"id": "int", "n": "int"}, old=None, pkNames=["id"], sql="",
        )  # fmt: skip
        return yard

    return say


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
def test_rows_of_a_load_that_began_after_the_rename(tmp_path: Path, cut: bool) -> None:
    """They are of the next table of that name, and were carried over with those of the one before."""
    yard = yard_of(tmp_path)
    first = [loaded("hall", 1), loaded("annex", 5), row("annex", 110, 6)]
    script = [*first, said(200, SWAP), loaded("annex", 8), row("hall", 210, 7)]
    assert {} == play(yard, script, cut=cut)
    assert [5, 6, 7] == yard.keys("hall")


def test_rows_of_a_load_within_a_later_name(tmp_path: Path) -> None:
    """They may be the table's, and were left out in silence."""
    yard = yard_of(tmp_path)
    first = [
        row("hall", 1, 1),
        created("attic", 10),
        row("attic", 20, 5),
        said(30, "RENAME TABLE attic TO annex"),
    ]
    held = play(yard, [*first, loaded("annex", 6), said(200, SWAP), row("hall", 210, 7)], cut=False)
    assert "rows of its full load have no place in the stream" in held["yard.hall"]


@pytest.mark.parametrize("what", ["dismissed", "before the table"])
def test_messages_that_were_rejected_and_are_of_no_concern(tmp_path: Path, what: str) -> None:
    """A problem that was settled, or is older than the table, held the mirror for ever."""
    yard = yard_of(tmp_path)
    if what == "before the table":
        row("annex", 5, 9)(yard).run()
        yard.messages.append("{")
        play(yard, [row("hall", 10, 1)], cut=False)
    play(yard, [row("hall", 12, 1), *NIGHT[:2]], cut=False)
    if what == "dismissed":
        yard.messages.append("{")
        play(yard, [row("hall", 13, 1)], cut=False)
        rejects.dismiss(yard.lake(), rejects.listed(yard.lake()), "noise")
    assert {} == play(yard, NIGHT[2:], cut=False)
    assert [5, 6, 7] == yard.keys("hall")


def test_late_rows_after_a_problem_from_before(tmp_path: Path) -> None:
    """What was no obstacle when the rows were carried over is none when one more comes."""
    yard = yard_of(tmp_path)
    play(yard, [row("hall", 10, 1), *NIGHT], cut=False)
    decisions.append(yard.lake(), [decisions.Decision(decisions.ACCEPT_GAP, "s", batch=1)])
    assert {} == play(yard, [row("annex", 115, 8), row("hall", 230, 9)], cut=False)
    assert [5, 6, 7, 8, 9] == yard.keys("hall")


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
def test_a_late_statement_of_the_name_before(tmp_path: Path, cut: bool) -> None:
    """Rows that were carried over before it came had NULL in its column, and no check said so."""
    yard = yard_of(tmp_path)
    *before, swap, _ = NIGHT
    wide = [
        changed("INSERT", "hall", at, ["id"], id=str(key), n="7", c="1") for at, key in ((210, 7), (220, 8))
    ]
    late = said(125, "ALTER TABLE annex ADD c INT DEFAULT 4")
    play(yard, [row("hall", 10, 1), *before, swap, wide[0]], cut=cut)
    assert {} == play(yard, [late, wide[1]], cut=cut)
    rows = yard.lake().ask_mirror("mirrors/yard/hall", "SELECT id, c FROM {mirror} ORDER BY id")
    assert [(5, 4), (6, 4), (7, 1), (8, 1)] == [(each["id"], each["c"]) for each in rows]
    assert [] == complaints(yard)


@pytest.mark.parametrize(
    ("verb", "clause"), [("approve", "FROBNICATE"), ("dismiss", "FROBNICATE"), ("approve", "MODIFY n TIME")]
)
def test_an_unread_statement_that_the_operator_has_decided(tmp_path: Path, verb: str, clause: str) -> None:
    """The mirror was held by a statement that is known to change no rows."""
    yard = yard_of(tmp_path)
    play(yard, [row("hall", 10, 1), *NIGHT[:3], said(150, f"ALTER TABLE annex {clause}")], cut=False)
    [statement] = {each.statement.id for each in listed(yard.lake()) if clause in each.statement.text}
    approve_or_dismiss(yard.lake(), statement, verb, "an index")
    assert {} == play(yard, NIGHT[3:], cut=False)
    assert [5, 6, 7] == yard.keys("hall")


def test_a_decided_statement_after_one_whose_values_only_the_source_knows(tmp_path: Path) -> None:
    """It converted the mark of such a value, so that the mark's letters were carried over as a value."""
    yard = yard_of(tmp_path)
    changed_twice = [said(150, f"ALTER TABLE annex MODIFY n {kind}") for kind in ("TIME", "VARCHAR(3)")]
    play(yard, [row("hall", 10, 1), *NIGHT[:3], *changed_twice], cut=False)
    [statement] = {each.statement.id for each in listed(yard.lake()) if "VARCHAR" in each.statement.text}
    approve_or_dismiss(yard.lake(), statement, "approve", "three letters")
    assert (
        "'ALTER TABLE annex MODIFY n TIME' did to its rows" in play(yard, NIGHT[3:], cut=False)["yard.hall"]
    )


def test_values_that_only_the_source_knew_and_that_have_come_again(tmp_path: Path) -> None:
    """What a statement did to a row is of no concern once the row's new values are in a message."""
    again = changed("UPDATE", "annex", 130, ["id"], {"n": "7"}, id="5", n="8")
    yard = yard_of(tmp_path)
    script = [row("hall", 10, 1), *NIGHT[:2], said(120, "ALTER TABLE annex MODIFY n TIME"), again, *NIGHT[3:]]
    assert {} == play(yard, script, cut=False)
    assert [5, 7] == yard.keys("hall")


def masked_yard(tmp_path: Path, mask: dict[str, str], secret: str) -> Yard:
    class Masked(Yard):
        @property
        def pipeline(self) -> Pipeline:
            return replace(super().pipeline, mask_secret=secret)

    return Masked(unstarted(), tmp_path, Warm(), TableRule("yard.*", mask=mask))


@pytest.fixture(scope="module")
def carried_over(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, pa.RecordBatch]:
    """Rows that were carried over and are in bronze: without a mask, and with one of a column."""
    pages = {}
    for is_masked in (False, True):
        yard = masked_yard(tmp_path_factory.mktemp("carried"), {"n": "hmac"} if is_masked else {}, "s" * 32)
        for say in (row("hall", 10, 1), *NIGHT):
            say(yard)
        yard.run()
        rows = yard.lake().ask(
            'SELECT batch, source, topic, "partition", "offset", key, value FROM {bronze.message} '
            "WHERE starts_with(topic, 'carried/') ORDER BY \"offset\""
        )
        page = pa.RecordBatch.from_pylist([{**each, "headers": None} for each in rows])
        headers = pa.nulls(len(rows), pa.list_(pa.string()))
        pages[is_masked] = page.set_column(page.num_columns - 1, "headers", headers)
    return pages


@pytest.mark.parametrize(
    ("then", "now", "secret", "expected"),
    [
        (True, {"n": "hmac"}, "s", "kept"),
        (False, {}, "s", "kept"),
        (False, {"n": "hmac"}, "s", "masked"),
        (True, {"n": "hmac"}, "t", "other-masks"),
        (True, {"n": "hmac", "id": "hmac"}, "s", "other-masks"),
        (True, {}, "s", "other-masks"),
    ],
)
def test_rows_that_were_carried_over_before_their_masks_changed(
    tmp_path: Path,
    carried_over: dict[bool, pa.RecordBatch],
    then: bool,
    now: dict[str, str],
    secret: str,
    expected: str,
) -> None:
    """A mask of later never reached them: their values stayed plain, or had two forms."""
    pipeline = masked_yard(tmp_path, now, secret * 32).pipeline
    lifted = pa.Table.from_batches(list(SourceDecoder(Lifting(pipeline), "s").lift(carried_over[then])))
    kinds, afters, payloads = (lifted.column(name).to_pylist() for name in ("kind", "after", "payload"))
    values = {json.loads(after)["n"] for after in afters if after}
    assert (expected == "other-masks") == ("reject" in kinds)
    if expected == "other-masks":
        assert not values
        assert "other-masks" in str(payloads)
    else:
        assert 1 == len(values)
        assert (expected == "masked" or then) == ("7" not in values)
