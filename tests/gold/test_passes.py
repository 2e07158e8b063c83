"""Statements as a pass over a mirror's rows, compared with a fold of its whole history and with the source's own rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from ingest.config.model import TableRule
from ingest.gold.apply import arrow_pass, planner
from ingest.gold.apply.planner import FoldPlan
from ingest.gold.fold import retyped
from ingest.gold.fold.arrow_files import Written
from ingest.gold.plan import passes
from ingest.gold.plan.passes import StatementPass
from ingest.run import Warm
from ingest.spark import tasks
from ingest.tables import commits
from ingest.tables.commits import NewRows
from tests.gold.depot import Depot
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIRROR = "lake/mirrors/yard/depot"
HELD, FILE_BY_FILE = (
    None,
    1,
)  # rewrite budgets: rows are held at once, or files are written one after the other


def depot_of(
    folder: Path, budget: int | None = HELD, spark: SparkSession | None = None, **given: Any
) -> Depot:
    """A table of which nothing was said yet."""
    folder.mkdir(exist_ok=True)
    rule = TableRule("yard.*", on_schema_change=given.pop("policy", "lenient"))
    session = unstarted(2) if spark is None else spark
    return Depot(session, folder, Warm(), rule, budget=budget, **given)


def rows_of(depot: Depot) -> list[dict[str, Any]]:
    """The mirror's rows, by id."""
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    return [dict(row) for row in found]


@dataclass(slots=True)
class World:
    """A MySQL table whose history several depots hear: rows come, change in parts or in whole, move and go; columns, too."""

    random: Random
    depots: list[Depot]
    columns: dict[str, str] = field(default_factory=lambda: {"id": "int", "a": "int", "b": "varchar(9)"})
    rows: dict[str, dict[str, str | None]] = field(default_factory=dict)
    named: int = 0

    def value(self, kind: str) -> str | None:
        """Some value of a type."""
        return self.random.choice((None, str(self.random.randrange(9))))

    def change(self) -> None:
        """One change of a row."""
        key = str(self.random.randrange(12))
        old = self.rows.get(key)
        if old is None:
            self.rows[key] = {"id": key} | {
                name: self.value(kind) for name, kind in self.columns.items() if name != "id"
            }
            self.say("INSERT", self.rows[key])
        elif self.random.random() < 0.2:
            del self.rows[key]
            self.say("DELETE", old)
        elif self.random.random() < 0.1 and (free := {str(at) for at in range(12)} - self.rows.keys()):
            self.rows.pop(key)
            new = self.random.choice(sorted(free))
            self.rows[new] = old | {"id": new}
            self.say("UPDATE", self.rows[new], {"id": key})
        else:
            name = self.random.choice(sorted(self.columns.keys() - {"id"}) or ["id"])
            changed = {name: self.value(self.columns[name])} if name != "id" else {}
            self.rows[key] = old | changed
            sent = self.rows[key] if self.random.random() < 0.5 else {"id": key} | changed
            self.say("UPDATE", sent, {name: old[name]})

    def say(self, kind: str, row: dict[str, str | None], old: dict[str, str | None] | None = None) -> None:
        """A message about a row; one that lacks some of the table's columns carries a part."""
        for depot in self.depots:
            members = {"data": [row], "mysqlType": self.columns, "pkNames": ["id"], "sql": ""}
            depot.say(isDdl=False, type=kind, old=old and [old], **members)

    def state(self) -> None:
        """One statement."""
        others = sorted(self.columns.keys() - {"id"})
        kind = self.random.choice(("add", "add", "null", "text", "rename", "drop", "wider"))
        name = self.random.choice(others) if others else ""
        if kind in ("rename", "drop", "wider") and not name:
            kind = "add"
        self.named += 1
        new = f"c{self.named}"
        match kind:
            case "add":
                self.add(new, "int", str(self.random.randrange(9)))
            case "text":
                self.add(new, "varchar(9)", f"t{self.named}")
            case "null":
                self.add(new, "int", None)
            case "rename":
                self.ddl(f"RENAME COLUMN {name} TO {new}")
                self.columns[new] = self.columns.pop(name)
                for row in self.rows.values():
                    row[new] = row.pop(name)
            case "drop":
                self.ddl(f"DROP COLUMN {name}")
                del self.columns[name]
                for row in self.rows.values():
                    del row[name]
            case "wider" if self.columns[name] == "int":
                self.ddl(f"MODIFY COLUMN {name} BIGINT")
                self.columns[name] = "bigint"

    def add(self, name: str, kind: str, default: str | None) -> None:
        """A new column."""
        self.ddl(f"ADD COLUMN {name} {kind}" + (f" DEFAULT '{default}'" if default is not None else ""))
        self.columns[name] = kind
        for row in self.rows.values():
            row[name] = default

    def ddl(self, clause: str) -> None:
        """A statement about the table."""
        for depot in self.depots:
            depot.ddl(f"ALTER TABLE depot {clause}")

    def typed(self) -> list[dict[str, Any]]:
        """The rows as an evolving mirror has them."""
        found = []
        for _, row in sorted(self.rows.items(), key=lambda one: int(one[0])):
            cells = {name: row[name] for name in self.columns}
            found.append(
                {
                    name: None if cell is None else int(cell) if "int" in self.columns[name] else cell
                    for name, cell in cells.items()
                }
            )
        return found


def folded(monkeypatch: pytest.MonkeyPatch, depot: Depot) -> tuple[str, str]:
    """Run a depot whose statements fold the whole history, as if there were no pass."""
    with monkeypatch.context() as patched:
        patched.setattr(passes, "statement_pass", lambda *_: StatementPass(why_not="a test wants it"))
        return depot.run()


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("budget", [HELD, FILE_BY_FILE], ids=["held", "file by file"])
@pytest.mark.one_of(8)
@pytest.mark.parametrize("seed", range(8))
def test_a_pass_gives_the_rows_of_the_whole_history(
    seed: int, budget: int | None, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that a statement does not reach, or reaches twice, keeps the wrong value until it changes again."""
    made, decide = list[StatementPass](), passes.statement_pass
    monkeypatch.setattr(passes, "statement_pass", lambda *given: (made.append(decide(*given)), made[-1])[1])
    monkeypatch.setattr(arrow_pass, "PAGE_ROWS", 3)
    passing = depot_of(tmp_path / "passing", budget, policy=policy)
    whole = depot_of(tmp_path / "whole", policy=policy)
    world = World(Random(f"{seed}{policy}"), [passing, whole])
    for batch in range(6):
        for _ in range(world.random.randrange(1, 9)):
            (world.change if batch < 1 or world.random.random() < 0.7 else world.state)()
        assert ("done", "") == folded(monkeypatch, whole)
        assert ("done", "") == passing.run()
        assert rows_of(whole) == rows_of(passing), batch
        if policy == "evolve":
            assert world.typed() == rows_of(passing), batch
    assert any(not one.why_not for one in made), made


def test_more_rows_than_before_the_statement(tmp_path: Path) -> None:
    """Rows that come with the statement would be lost, or be there twice, where files are written one after the other."""
    depot = depot_of(tmp_path, FILE_BY_FILE)
    for key in range(5):
        depot.row(id=str(key), a="1")
    assert ("done", "") == depot.run()
    depot.row("DELETE", id="3", a="1").row("UPDATE", old={"a": "1"}, id="4", a="2")
    depot.row(id="7", a="7").ddl("ALTER TABLE depot ADD COLUMN w INT DEFAULT 5")
    depot.row(id="8", a="8", w="6").row("UPDATE", old={"w": "5"}, id="0", a="1", w="9")
    assert ("done", "") == depot.run()
    expected = [(0, 1, 9), (1, 1, 5), (2, 1, 5), (4, 2, 5), (7, 7, 5), (8, 8, 6)]
    assert expected == [tuple(row.values()) for row in rows_of(depot)]
    metrics = {
        name: int(value)
        for name, value in DeltaTable(tmp_path / MIRROR).history(1)[0]["operationMetrics"].items()
    }
    names = ("Inserted", "MatchedUpdated", "NotMatchedBySourceUpdated", "Deleted", "Copied")
    assert [2, 2, 2, 1, 0] == [metrics[f"numTargetRows{name}"] for name in names]


def test_a_wider_type_needs_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each MODIFY would read the whole history, though the types in the messages say that no value changes."""
    depot = depot_of(tmp_path).row(id="1", a="7")
    assert ("done", "") == depot.run()
    monkeypatch.setattr(retyped, "_met", lambda *_: pytest.fail("values were read"))
    assert ("done", "") == depot.ddl("ALTER TABLE depot MODIFY a BIGINT").run()
    assert [{"id": 1, "a": 7}] == rows_of(depot)
    assert "long" == depot.lake().snapshot("mirrors/yard/depot").types["a"]


@pytest.mark.parametrize(
    ("statements", "more", "why"),
    [
        (["ADD COLUMN w INT DEFAULT 5", "RENAME COLUMN a TO c", "MODIFY b VARCHAR(20)"], [], ""),
        (["ADD COLUMN w INT DEFAULT 5", "RENAME COLUMN w TO x"], [], ""),
        (["DROP COLUMN a", "ADD COLUMN a INT DEFAULT 5"], [], ""),
        (["ADD COLUMN c INT DEFAULT 4", "RENAME COLUMN a TO c, RENAME COLUMN c TO a"], [], ""),
        (["RENAME COLUMN a TO b, RENAME COLUMN b TO a"], [], "again"),
        (["MODIFY a VARCHAR(9)"], [], "again"),
        (["MODIFY a INT NOT NULL"], [], "again"),
        (["ADD COLUMN w INT DEFAULT 5"], [{"kind": "TRUNCATE"}], "empties it"),
        (["ADD COLUMN w INT DEFAULT 5"], [{"at": 5}], "come late"),
    ],
)  # fmt: skip
def test_where_the_rows_tell(
    statements: list[str],
    more: list[dict[str, Any]],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass where only the messages tell would leave wrong rows for good, a fold where rows tell takes hours."""
    made, decide = list[FoldPlan](), planner.marking
    monkeypatch.setattr(planner, "marking", lambda *given: (made.append(given[1]), decide(*given))[1])
    depot = depot_of(tmp_path)
    for key in range(2):
        depot.say(isDdl=False, type="INSERT", data=[{"id": str(key), "a": None, "b": "1"}], old=None,
                  mysqlType={"id": "int", "a": "int", "b": "varchar(9)"}, pkNames=["id"], sql="")  # fmt: skip
    assert ("done", "") == depot.run()
    for one in more:
        if one.get("kind") == "TRUNCATE":
            depot.say(isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE")
        else:
            depot.row("UPDATE", {"a": "1"}, at=one["at"], id="1", a="3", b="1")
    for clause in statements:
        depot.ddl(f"ALTER TABLE depot {clause}")
    depot.run()
    found = "again" if made[-1].again else made[-1].why_folded
    assert (why, True) == (why, why in found if why else found == ""), found


@pytest.mark.e2e
def test_a_merge_fills_the_rows_without_an_outcome(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's MERGE touches only rows that its source names, unless it is told what becomes of the others."""
    depots = [
        depot_of(tmp_path / "merge", spark=spark, policy="evolve", apply="merge"),
        depot_of(tmp_path / "files", policy="evolve", apply="files"),
    ]
    world = World(Random(3), depots)
    for _ in range(9):
        world.change()
    assert [("done", "")] * 2 == [depot.run() for depot in depots]
    for kind, default in (
        ("decimal(9,3)", "1.5"), ("varchar(9)", "it\\'s \\\\"), ("date", "2024-02-29"), ("tinyint(1)", "1"),
        ("datetime", "2024-02-29 23:59:59"), ("double", "0.1"), ("float", "0.1"),
    ):  # fmt: skip
        world.named += 1
        world.ddl(f"ADD COLUMN c{world.named} {kind} DEFAULT '{default}'")
    assert [("done", "")] * 2 == [depot.run() for depot in depots]
    assert rows_of(depots[1]) == rows_of(depots[0])
    for depot in depots:
        depot.ddl("ALTER TABLE depot RENAME COLUMN a TO z").ddl("ALTER TABLE depot DROP COLUMN b")
        depot.row("UPDATE", {"z": "?"}, id="1", z="77").row("INSERT", id="99", z="99")
    assert [("done", "")] * 2 == [depot.run() for depot in depots]
    assert rows_of(depots[1]) == rows_of(depots[0])
    merges = [one for one in DeltaTable(depots[0].folder / MIRROR).history() if one["operation"] == "MERGE"]
    filled = [one["operationMetrics"]["numTargetRowsNotMatchedBySourceUpdated"] for one in merges]
    assert int(filled[-1]) == len(world.rows), filled


def stated(depot: Depot) -> Depot:
    """Some rows of two files, some of them marked as gone, and a statement with rows before and after it."""
    for key in range(6):
        depot.row(id=str(key), a="1")
    assert ("done", "") == depot.run()
    depot.row("UPDATE", old={"a": "1"}, id="2", a="2").row(id="6", a="6")
    assert ("done", "") == depot.run()
    depot.row("DELETE", id="0", a="1").ddl("ALTER TABLE depot ADD COLUMN w INT DEFAULT 5")
    return depot.row(id="7", a="7", w="8")


AFTER = [(1, 1, 5), (2, 2, 5), (3, 1, 5), (4, 1, 5), (5, 1, 5), (6, 6, 5), (7, 7, 8)]


def cells(depot: Depot) -> list[tuple[Any, ...]]:
    """The mirror's rows in order."""
    return [tuple(row.values()) for row in rows_of(depot)]


def test_a_kill_before_the_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files without a commit are no rows; the next run must write them again, and not add a second copy."""
    depot = stated(depot_of(tmp_path, FILE_BY_FILE))
    monkeypatch.setattr(commits, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        depot.run()
    monkeypatch.undo()
    depot.warm = Warm()
    assert ("done", "") == depot.run()
    assert cells(depot) == AFTER


def killed(*_given: object) -> bool:
    """What a process does that dies now."""
    raise KeyboardInterrupt


def test_another_writer_s_commit_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass writes every row again: those that somebody has deleted since the plan would be there again."""
    depot = stated(depot_of(tmp_path, FILE_BY_FILE))
    passing = arrow_pass.passed

    def late(part: arrow_pass.FilesPart) -> Written:
        monkeypatch.setattr(arrow_pass, "passed", passing)
        commits.write(
            str(tmp_path / MIRROR), depot.lake().snapshot("mirrors/yard/depot"), NewRows([]), "{}", "x", 1
        )
        return passing(part)

    monkeypatch.setattr(arrow_pass, "passed", late)
    state, message = depot.run()
    assert ("held", True) == (state, "was not written by this pipeline" in message), message


def test_tasks_that_run_twice(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark repeats tasks that are slow or lost: what a first attempt has written must not be in the table, too."""
    depot = stated(depot_of(tmp_path, FILE_BY_FILE, spark, engine="spark", apply="files"))
    jobs, each = list[int](), tasks._each

    def twice(shares: Any, work: Any) -> tasks.InArrow:
        jobs.append(len(shares))
        once = each(shares, work)

        def run_twice(batches: tasks.Pages) -> tasks.Pages:
            numbers = list(batches)
            list(once(iter(numbers)))  # the attempt whose report nobody takes
            yield from once(iter(numbers))

        return run_twice

    monkeypatch.setattr(tasks, "_each", twice)
    assert ("done", "") == depot.run()
    assert cells(depot) == AFTER
    assert max(jobs) > 1


@pytest.mark.parametrize(("filled", "complaints"), [("5", set()), ("6", {"wrong_cells"})])
def test_the_checks_tell_a_right_pass_from_a_wrong_one(
    filled: str, complaints: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass never reads the messages: where it is wrong, only the checks can say so, and must not where it is right."""
    depot = stated(depot_of(tmp_path))
    given = StatementPass((passes.Fill("w", text=filled),))
    monkeypatch.setattr(passes, "statement_pass", lambda *_: given)
    assert ("done", "") == depot.run(checked=True)
    rows = depot.lake().ask("SELECT * FROM {checks} WHERE batch = 3")
    assert complaints == {row["check"] for row in rows if row["state"] != "pass"}
