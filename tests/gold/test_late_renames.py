"""Rows that come late under a name that their table has lost, after its RENAME was taken for that of an empty table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import MadeColumn, TableRule
from ingest.fold import DELETED, DELETED_AT
from ingest.gold.approval import approve_or_dismiss, listed, refusal
from ingest.gold.rebuild import rebuild
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.config import Pipeline

RENAME = "RENAME TABLE hall TO annex"


class Yard(Depot):
    """Several tables, small enough to need no Spark."""

    def stated(self, at: int, sql: str) -> Yard:
        """A statement at its place."""
        self.say(at, isDdl=True, type="DDL", sql=sql, table="hall")
        return self

    def inserted(self, table: str, at: int, key: int) -> Yard:
        """A row at its place."""
        types = {"id": "int", "n": "int"}
        self.say(
            at, table=table, isDdl=False, type="INSERT", data=[{"id": str(key), "n": "7"}], mysqlType=types,
            old=None, pkNames=["id"], sql="",
        )  # fmt: skip
        return self

    def pending(self) -> set[tuple[str, str]]:
        """The mirrors with statements that wait for a decision."""
        return {(one.mirror, one.statement.text) for one in listed(self.lake()) if one.pending}

    def keys(self, table: str) -> list[int]:
        """The keys of a mirror."""
        rows = self.lake().ask_mirror(f"mirrors/yard/{table}", "SELECT id FROM {mirror} ORDER BY id")
        return [row["id"] for row in rows]


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    """A table that is created and renamed before any row has come."""
    spark = unstarted()
    made = Yard(spark, tmp_path, Warm(), TableRule("yard.*"))
    return made.stated(100, "CREATE TABLE hall (id INT PRIMARY KEY, n INT)")


@pytest.mark.parametrize("more", ["nothing", "again"])
def test_the_new_name_asks_for_the_rows_of_the_old_one(yard: Yard, more: str) -> None:
    """The mirror of the new name lacked the rows, and neither a run nor a check nor a statement said so."""
    yard.stated(200, RENAME).run()
    assert set() == yard.pending(), "it was empty, as far as anything shows"
    yard.inserted("hall", 110, 1)
    if more == "again":
        yard.stated(200, RENAME)
    yard.run()
    assert {("yard.annex", RENAME)} == yard.pending()
    yard.inserted("hall", 120, 2).run()
    assert {("yard.annex", RENAME)} == yard.pending()
    assert [1, 2] == yard.keys("hall")


def test_the_new_name_gets_the_rows_as_soon_as_it_has_a_mirror(yard: Yard) -> None:
    """Before its first rows or statement there is no mirror that could lack them."""
    yard.stated(200, RENAME).run()
    yard.inserted("hall", 110, 1).stated(300, "ALTER TABLE annex MODIFY n BIGINT").run()
    assert (set(), [1]) == (yard.pending(), yard.keys("annex"))
    yard.inserted("hall", 120, 2).run()
    assert (set(), [1, 2]) == (yard.pending(), yard.keys("annex"))


def test_the_new_name_is_held_until_decided(yard: Yard) -> None:
    """It is held as it is if rows may be lacking; folded again, it is held for the same reason."""
    yard.messages.append("{")
    yard.stated(200, RENAME).inserted("annex", 210, 3).run()
    assert [3] == yard.keys("annex")
    state, message = yard.inserted("hall", 110, 1).inserted("annex", 220, 4).run(checked=True)
    assert "held" == state
    assert RENAME in message
    assert "held" == yard.inserted("annex", 230, 5).run()[0]
    waits = yard.lake().ask(
        "SELECT state FROM {checks} WHERE \"check\" = 'ddl_pending' AND mirror = 'yard.annex'"
    )
    assert ["warn"] == [row["state"] for row in waits]
    [again] = rebuild(yard.lake(), ["yard.annex"], dry_run=True)
    assert "held" == again.state
    [statement] = {one.statement.id for one in listed(yard.lake()) if one.pending}
    approve_or_dismiss(yard.lake(), statement, "approve", "loaded again")
    assert ("done", "") == yard.run()
    assert set() == yard.pending()
    assert ([1], [3, 4, 5]) == (yard.keys("hall"), yard.keys("annex"))


def test_a_chain_of_names(yard: Yard) -> None:
    """The rows would be in the mirror of the last name, which has none yet: it gets them with its first row."""
    last = "RENAME TABLE annex TO attic"
    yard.stated(200, RENAME).run()
    yard.stated(250, last).run()
    yard.inserted("hall", 110, 1).run()
    assert {("yard.annex", RENAME)} == yard.pending()
    [logged] = [entry for entry in listed(yard.lake()) if entry.mirror == "yard.attic" and not entry.pending]
    assert "which has on_schema_change: ignore, or no rows yet" in refusal(logged, "approve")
    assert ("done", "") == yard.inserted("attic", 260, 2).run()
    assert [1, 2] == yard.keys("attic")


def test_exchanged_names(yard: Yard) -> None:
    """Only the name that the table with rows has got lacks them, also in the mirror that its first row makes."""
    yard.stated(150, "CREATE TABLE annex (id INT PRIMARY KEY, n INT)")
    swap = "RENAME TABLE hall TO x, annex TO hall, x TO annex"
    yard.stated(200, swap).run()
    yard.inserted("hall", 110, 1).run()
    assert {("yard.annex", swap)} == yard.pending()
    yard.inserted("annex", 210, 2).run()
    assert ({("yard.annex", swap)}, [2]) == (yard.pending(), yard.keys("annex"))


def test_rows_of_the_next_table_of_the_name(yard: Yard) -> None:
    """A log that is rotated while empty: its next rows were never in the renamed table."""
    yard.stated(200, RENAME).inserted("annex", 210, 3).run()
    yard.stated(300, "CREATE TABLE hall (id INT PRIMARY KEY, n INT)").inserted("hall", 310, 1).run()
    assert ("done", "") == yard.inserted("annex", 320, 4).run()
    assert set() == yard.pending()
    assert ([1], [3, 4]) == (yard.keys("hall"), yard.keys("annex"))


CREATE = "CREATE TABLE hall (id INT PRIMARY KEY, n INT)"


def test_a_name_that_another_table_had_before(yard: Yard) -> None:
    """The renamed table was empty: rows of its name were of the one before, and are of the next one."""
    yard.inserted("hall", 50, 1).stated(60, "DROP TABLE hall").stated(200, RENAME).stated(300, CREATE)
    yard.inserted("hall", 310, 2).inserted("annex", 320, 3).run()
    assert set() == yard.pending()
    assert ([2], [3]) == (yard.keys("hall"), yard.keys("annex"))


def test_a_name_that_was_perhaps_created_again(yard: Yard) -> None:
    """IF NOT EXISTS proves nothing: the rows before it are those of the renamed table."""
    yard.inserted("hall", 120, 1).stated(150, CREATE.replace("TABLE", "TABLE IF NOT EXISTS")).stated(
        200, RENAME
    )
    yard.inserted("annex", 210, 3).run()
    assert (set(), [1, 3]) == (yard.pending(), yard.keys("annex"))


class Weak(Yard):
    """In a dialect without positions."""

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        made = super().pipeline
        return replace(made, sources=(replace(made.sources[0], format="canal"),))


@pytest.mark.parametrize("since", range(4))
def test_a_stream_that_goes_back_over_the_rename_of_an_empty_table(tmp_path: Path, since: int) -> None:
    """The rename came again after rows of the next table of the name, which it had not: the mirror was held."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    for n in (0, since):
        said = [
            lambda: yard.stated(100, CREATE),
            lambda: yard.stated(200, RENAME),
            lambda: yard.stated(300, CREATE),
            lambda: yard.inserted("hall", 310, 2),
        ]
        for one in said[n:]:
            one()
        assert ("done", "") == yard.inserted("annex", 320, 3).run()
        assert set() == yard.pending()
        assert ([2], [3]) == (yard.keys("hall"), yard.keys("annex"))


@pytest.mark.one_of(6)
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE depot RENAME COLUMN N TO m"],
        ["ALTER TABLE depot CHANGE COLUMN N m int"],
        ["ALTER TABLE depot ADD COLUMN K int", "ALTER TABLE depot DROP COLUMN k, RENAME COLUMN N TO m"],
        [
            "CREATE TABLE _depot_gho LIKE depot",
            "ALTER TABLE _depot_gho RENAME COLUMN N TO m",
            "RENAME TABLE depot TO _depot_del, _depot_gho TO depot",
        ],
    ],
)
def test_a_column_that_is_renamed_in_another_letter_case(
    tmp_path: Path, statements: list[str], cut: bool, policy: Any
) -> None:
    """MySQL ignores it; the values were lost where the policy drops the old column, and with them a key's column."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", on_schema_change=policy))
    depot.row(id="1", n="7").row(id="2", n="8")
    assert ("done", "") == depot.run()
    for text in statements:
        depot.ddl(text)
    if cut:
        depot.run()
    depot.row(id="3", m="9").run(checked=True)
    depot.ddl("ALTER TABLE depot ADD COLUMN z INT DEFAULT 5").row(id="4", m="10", z="1").run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    assert [7, 8, 9, 10] == [row["m"] for row in found]
    assert (policy == "evolve") == ("n" not in found[0])
    assert [] == depot.lake().ask("SELECT * FROM {checks} WHERE state = 'fail'")


@pytest.mark.one_of(4, "cut", "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("cut", [False, True])
def test_names_that_are_exchanged_and_back_in_another_letter_case(
    tmp_path: Path, cut: bool, policy: Any
) -> None:
    """Rows of later have the name in that case, too, so that the second exchange was taken for other columns."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", on_schema_change=policy))
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n INT, m INT)").row(id="1", n="7", m="8")
    depot.ddl("ALTER TABLE depot RENAME COLUMN m TO n, RENAME COLUMN n TO m")
    if cut:
        depot.run()
    depot.ddl("ALTER TABLE depot RENAME COLUMN N TO m, RENAME COLUMN M TO n")
    depot.ddl("ALTER TABLE depot ADD k INT DEFAULT 3").ddl("ALTER TABLE depot RENAME COLUMN K TO k")
    depot.ddl("ALTER TABLE depot CHANGE COLUMN N N INT").row(id="2", N="9", m="10", k="4")
    assert ("done", "") == depot.run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    assert [(7, 8, 3), (9, 10, 4)] == [(row["N"], row["m"], row["k"]) for row in found]


@pytest.mark.one_of(4, "cut", "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("created", [True, False])
def test_columns_that_are_renamed_to_what_the_statement_calls_them(
    tmp_path: Path, created: bool, cut: bool, policy: Any
) -> None:
    """``RENAME COLUMN c TO c`` makes ``C`` into ``c``: it was taken for no rename, and a key that it respelt held the mirror."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", on_schema_change=policy))
    if created:
        depot.ddl("CREATE TABLE depot (Id INT PRIMARY KEY, C INT, d INT)")
    first = {"Id": "1", "C": "7", "d": "5"}
    types = dict.fromkeys(first, "int")
    depot.say(isDdl=False, type="INSERT", data=[first], mysqlType=types, old=None, pkNames=["Id"], sql="")
    if cut:
        assert ("done", "") == depot.run(checked=True)
    depot.ddl("ALTER TABLE depot RENAME COLUMN c TO c, RENAME COLUMN id TO id, RENAME COLUMN d TO d")
    depot.row(id="2", c="8", d="5").row(id="1", c="9", d="5")
    assert ("done", "") == depot.run(checked=True)
    rows = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    assert [(1, 9, 5), (2, 8, 5)] == [(row["id"], row["c"], row["d"]) for row in rows]
    depot.ddl("ALTER TABLE depot DROP COLUMN c").row(id="3", d="5").run(checked=True)
    assert [] == depot.lake().ask("SELECT * FROM {checks} WHERE state = 'fail'")


EXCHANGES = [
    ("RENAME COLUMN X TO Y, RENAME COLUMN Y TO X", {"Y": 1, "X": 2, "z": 3}),
    ("RENAME COLUMN x TO Y, RENAME COLUMN y TO X", {"Y": 1, "X": 2, "z": 3}),
    ("CHANGE x Y INT, CHANGE Y X INT", {"Y": 1, "X": 2, "z": 3}),
    ("RENAME COLUMN y TO x, RENAME COLUMN X TO Y", {"Y": 1, "x": 2, "z": 3}),
    ("RENAME COLUMN X TO y, RENAME COLUMN Y TO x", {"y": 1, "x": 2, "z": 3}),
    ("CHANGE X Y INT, CHANGE Y Z INT, CHANGE Z X INT", {"Y": 1, "Z": 2, "X": 3}),
    ("RENAME COLUMN x TO y, RENAME COLUMN Y TO Z, RENAME COLUMN z TO x", {"y": 1, "Z": 2, "x": 3}),
]


@pytest.mark.one_of(8)
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("created", [True, False])
@pytest.mark.parametrize(("clauses", "expected"), EXCHANGES)
def test_names_that_are_exchanged_in_another_letter_case(
    tmp_path: Path, clauses: str, expected: dict[str, int], created: bool, cut: bool, policy: Any
) -> None:
    """A column took its own values, or none, and both spellings stayed in the mirror, one of them under a made-up name."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", on_schema_change=policy))
    if created:
        depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, x INT, y INT, z INT)")
    depot.row(id="1", x="1", y="2", z="3")
    depot.ddl(f"ALTER TABLE depot {clauses}")
    if cut:
        assert ("done", "") == depot.run()
    now = {name: str(value + 3) for name, value in expected.items()}
    depot.row(id="2", **now)
    assert ("done", "") == depot.run(checked=True)
    assert ("done", "") == depot.row(id="3", **now).run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]
    later = {name: int(text) for name, text in now.items()}
    assert [{"id": 1, **expected}, {"id": 2, **later}, {"id": 3, **later}] == rows
    assert [] == depot.lake().ask("SELECT * FROM {checks} WHERE state = 'fail'")


def test_deleted_rows_of_a_table_that_is_created_again_lose_its_columns(tmp_path: Path) -> None:
    """Every run failed with the cells of columns that the mirror rightly no longer has."""
    kinds = {DELETED: "boolean", DELETED_AT: "timestamp"}
    made = {name: MadeColumn("deletes", "soft", kind) for name, kind in kinds.items()}
    rule = TableRule("yard.*", on_schema_change="evolve", made=made, places=dict.fromkeys(made, "x.yaml:9:7"))
    depot = Depot(unstarted(), tmp_path, Warm(), rule)
    depot.row(id="1", n="7", m="8").ddl("DROP TABLE depot").ddl(
        "CREATE TABLE depot (id INT PRIMARY KEY, m INT)"
    )
    assert ("done", "") == depot.row(id="2", m="9").run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    assert [(1, 8, True), (2, 9, False)] == [(row["id"], row["m"], row[DELETED]) for row in found]
    assert [] == depot.lake().ask("SELECT * FROM {checks} WHERE state = 'fail'")
