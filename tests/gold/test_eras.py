"""Which key identified a table's rows when, by what messages, statements and the pipeline file say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ingest.change import Change, LaneId, Op, TableId
from ingest.config.model import TableRule
from ingest.ddl import effects
from ingest.errors import HeldError
from ingest.gold.fold.past_keys import LaneEvent, rebased
from ingest.gold.plan import eras, mirror_schema
from ingest.gold.plan.eras import Evidence, Run, evidence, overlap
from ingest.gold.plan.policy import Subject, Timeline
from ingest.gold.plan.work import Job
from ingest.ledgers.books import Line
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Era, Mirror
from ingest.order import Order, order_key
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.shops import Shops
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = TableId("shop", None, "item")
CHANGED = "ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (id, day)"
DROPPED = "ALTER TABLE item DROP PRIMARY KEY"
MADE = "CREATE TABLE item (id INT PRIMARY KEY, day INT)"
RENAMED = "ALTER TABLE item RENAME COLUMN id TO order_id"


def at(place: int, row: int = 0) -> str:
    """A place in history."""
    return order_key(Order(0, 1, (place,), 0, (1, 0, 0, place), row))


def run(low: int, high: int, *keys: str) -> Run:
    """Changes that name a key, from one place to another."""
    return Run(keys, at(low), at(high))


def eras_of(
    *spans: Run,
    statements: dict[int, str] | None = None,
    declared: str = "",
    keyless: bool = False,
) -> list[tuple[str, str]]:
    """The eras: where each begins, and its key."""
    found = [
        (at(place), effects(sql, "mysql", "shop", None, "item").effects)
        for place, sql in sorted((statements or {}).items())
    ]
    keys = tuple(declared.split())
    return [
        (era.place, " ".join(era.keys)) for era in eras.eras(evidence(spans), found, keys, keyless=keyless)
    ]


@pytest.mark.parametrize(
    ("spans", "statements", "expected"),
    [
        ([run(1, 9, "id")], {}, [("", "id")]),
        ([run(1, 4, "id"), run(6, 9, "id")], {}, [("", "id")]),
        ([run(1, 4, "a", "b"), run(6, 9, "b", "a")], {}, [("", "a b")]),
        ([run(1, 4, "id"), run(6, 9, "id", "day")], {5: CHANGED}, [("", "id"), (at(5), "id day")]),
        ([run(1, 4, "id"), run(6, 9, "id", "day")], {}, [("", "id"), (at(6, -1), "id day")]),
        ([run(6, 9, "id", "day"), run(1, 4, "id")], {}, [("", "id"), (at(6, -1), "id day")]),
        ([run(1, 4, "id"), run(6, 9, "order_id")], {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        # as rows announce it, at the place of the first of them
        ([run(1, 4, "id"), run(5, 9, "order_id")], {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ([run(1, 4, "id")], {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ([run(1, 4, "id")], {5: "ALTER TABLE item DROP PRIMARY KEY"}, [("", "id")]),
        (  # a row of before has come again after the statement
            [run(1, 1, "id"), run(6, 6, "id"), run(7, 9)],
            {5: "ALTER TABLE item DROP PRIMARY KEY"},
            [("", "id"), (at(6), "")],
        ),
        (  # a capture that stops naming keys
            [run(1, 6, "id"), run(7, 9)],
            {5: "ALTER TABLE item ADD c INT"},
            [("", "id")],
        ),
        (
            [run(1, 4, "id"), run(6, 6)],
            {5: "ALTER TABLE item DROP PRIMARY KEY"},
            [("", "id"), (at(5), "")],
        ),
        (
            [run(1, 2), run(6, 9, "id")],
            {4: "ALTER TABLE item ADD PRIMARY KEY (id)"},
            [("", ""), (at(4), "id")],
        ),
        ([run(1, 2), run(6, 9, "id")], {}, [("", "id")]),
        ([run(5, 9)], {1: "CREATE TABLE item (id int PRIMARY KEY, day int)"}, [("", "id")]),
        (
            [run(5, 9)],
            {1: "CREATE TABLE item (id int PRIMARY KEY, day int)", 7: CHANGED},
            [("", "id"), (at(7), "id day")],
        ),
        (
            [run(5, 9)],
            {1: "CREATE TABLE item (id int PRIMARY KEY)", 7: "ALTER TABLE item CHANGE id order_id bigint"},
            [("", "id"), (at(7), "order_id")],
        ),
        (
            [run(1, 4, "a"), run(6, 9, "b")],
            {5: "ALTER TABLE item RENAME COLUMN a TO b, RENAME COLUMN b TO a"},
            [("", "a"), (at(5), "b")],
        ),
        (
            [run(1, 9, "a", "b")],
            {5: "ALTER TABLE item RENAME COLUMN a TO b, RENAME COLUMN b TO a"},
            [("", "a b"), (at(5), "a b")],
        ),
        (
            [run(1, 4, "id"), run(6, 7), run(9, 10, "id")],
            {5: DROPPED, 8: "ALTER TABLE item ADD PRIMARY KEY (id)"},
            [("", "id"), (at(5), ""), (at(8), "id")],
        ),
        (
            [run(1, 4, "id"), run(6, 7), run(9, 10, "id")],
            {5: DROPPED, 8: MADE},
            [("", "id"), (at(5), ""), (at(8), "id")],
        ),
        (
            [run(1, 4, "id"), run(6, 7), run(9, 10, "day")],
            {5: DROPPED, 8: "ALTER TABLE item ADD PRIMARY KEY (day)"},
            [("", "id"), (at(5), ""), (at(8), "day")],
        ),
        (
            [run(1, 4, "id"), run(6, 7), run(9, 10, "day")],
            {5: DROPPED},
            [("", "id"), (at(5), ""), (at(9, -1), "day")],
        ),
        (  # the stream has gone back to before the statement
            [run(1, 4, "id"), run(6, 6, "id"), run(8, 9), run(11, 12, "id")],
            {5: DROPPED, 7: DROPPED, 10: "ALTER TABLE item ADD PRIMARY KEY (id)"},
            [("", "id"), (at(7), ""), (at(10), "id")],
        ),
        (  # no row has come in between
            [run(1, 4, "id"), run(9, 10, "id")],
            {5: DROPPED, 8: "ALTER TABLE item ADD PRIMARY KEY (id)"},
            [("", "id")],
        ),
        (  # no row had to have the key that is gone again
            [run(1, 4, "id")],
            {5: CHANGED, 6: DROPPED, 7: "ALTER TABLE item ADD PRIMARY KEY (id)"},
            [("", "id")],
        ),
        (
            [run(1, 4, "id")],
            {5: CHANGED, 6: "ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (day)"},
            [("", "id"), (at(6), "day")],
        ),
        (
            [run(1, 4, "id"), run(6, 6)],
            {5: DROPPED, 7: "ALTER TABLE item ADD PRIMARY KEY (id, day)", 8: RENAMED},
            [("", "id"), (at(5), ""), (at(8), "order_id day")],
        ),
        (
            [run(2, 2, "id"), run(3, 3), run(7, 7, "id"), run(12, 12), run(15, 15, "id")],
            {1: MADE, 5: DROPPED, 6: MADE, 11: DROPPED, 13: MADE},
            [("", "id"), (at(5), ""), (at(6), "id"), (at(11), ""), (at(13), "id")],
        ),
        ([run(1, 2), run(6, 9, "id")], {3: "DROP TABLE item", 4: MADE}, [("", ""), (at(4), "id")]),
        ([run(1, 2), run(6, 9, "id")], {4: MADE.replace("TABLE", "TABLE IF NOT EXISTS")}, [("", "id")]),
        ([run(5, 9)], {}, []),
        (
            [run(1, 2, "id"), run(3, 4, "id", "day"), run(5, 6, "id")],
            {},
            [("", "id"), (at(3, -1), "id day"), (at(5, -1), "id")],
        ),
    ],
)
def test_eras(spans: list[Run], statements: dict[int, str], expected: list[tuple[str, str]]) -> None:
    """A change of the key that is not seen merges two source rows into one; one that is not there refolds for nothing."""
    assert expected == eras_of(*spans, statements=statements)


@pytest.mark.parametrize(
    ("declared", "statements", "expected"),
    [
        ("id", {}, [("", "id")]),
        ("order_id", {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ("id", {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ("id", {5: RENAMED, 6: "ALTER TABLE item ADD COLUMN id int"}, [("", "id")]),
        ("id day", {5: "ALTER TABLE item ADD COLUMN day int DEFAULT 7"}, [("", "id"), (at(5), "id day")]),
        (
            "id day",
            {5: "ALTER TABLE item ADD COLUMN day int", 7: "ALTER TABLE item ADD COLUMN day int"},
            [("", "id"), (at(5), "id day")],
        ),
        ("day", {5: "ALTER TABLE item ADD COLUMN day int"}, [("", "day")]),
        ("id", {5: CHANGED}, [("", "id")]),
    ],
)
def test_a_declared_key(declared: str, statements: dict[int, str], expected: list[tuple[str, str]]) -> None:
    """The operator names the columns as they are now; the rows from before have them under their old names."""
    assert expected == eras_of(run(1, 9, "id"), statements=statements, declared=declared)


def test_an_existing_mirror_without_a_key() -> None:
    """Its rows from before were distinguished by all their cells, also where no statement gives the key."""
    assert [("", ""), (at(6, -1), "id")] == eras_of(run(1, 2), run(6, 9, "id"), keyless=True)


def test_keys_named_by_turns() -> None:
    """A writer that names one unique index, then another, for ever, would fold the mirror again in each batch."""
    spans = [run(n, n, "ab"[n % 2]) for n in range(1, 2 * eras.MANY)]
    with pytest.raises(HeldError, match="by turns: write the one that every row has"):
        eras_of(*spans)


def test_spans_that_lie_over_each_other() -> None:
    """Book lines know only the first and last place of a batch: which key came when must then be looked up."""
    assert overlap(evidence([run(1, 9, "id"), run(4, 6, "uid")]))
    assert not overlap(evidence([run(1, 3, "id"), run(4, 6, "uid"), run(1, 9)]))
    assert Evidence() == evidence([])


LANE: LaneId = ("s", ITEM)
KEYS = ((), ("id",), ("order_id",), ("id", "day"))
STATEMENTS = (
    CHANGED, RENAMED, "ALTER TABLE item DROP PRIMARY KEY", "ALTER TABLE item ADD PRIMARY KEY (id)",
    "CREATE TABLE item (id INT, day INT)", "CREATE TABLE item (id INT PRIMARY KEY, day INT)",
    "ALTER TABLE item ADD note INT",
)  # fmt: skip


def statement(place: int, sql: str) -> Statement:
    """A logged statement."""
    found = effects(sql, "mysql", "shop", None, "item")
    return Statement(str(place), "s", ITEM, 1, at(place), sql, found.kind, found.effects)


def lines(spans: list[Run], random: Random) -> list[Line]:
    """The book lines of changes in a batch or two; a line names keys, and not that some changes have none."""
    cut = random.choice((len(spans), random.randint(1, len(spans))))
    return [
        Line(
            batch, "s", "t", 0, *ITEM, changes=len(part), order_low=part[0].low, order_high=part[-1].high,
            keys=[list(keys) for keys in dict.fromkeys(one.keys for one in part) if keys],
        )
        for batch, part in enumerate((spans[:cut], spans[cut:]), 1)
        if part
    ]  # fmt: skip


def test_a_batch_of_several_keys_is_looked_up() -> None:
    """A table whose first batch holds all its life would be folded by its last key alone, without its older rows."""
    several = 0
    for number in range(3000):
        random = Random(number)
        keys, spans, said = random.choice(KEYS), [], []
        for place in range(1, random.randint(3, 9)):
            if random.random() < 0.3:
                keys = random.choice(KEYS)
                said += [statement(place, random.choice(STATEMENTS))] * random.choice((0, 1, 1))
            else:
                spans.append(run(place, place, *keys))
        if not spans:
            continue
        timeline = Timeline.of(said, Subject(ITEM, "lenient", {}))
        exact = evidence(spans)
        expected = eras.eras(exact, timeline.by_statement(), (), keyless=False)
        job = Job(ITEM, "mirrors/shop/item", TableRule("*"), {LANE: lines(spans, random)})
        lane = mirror_schema._Logged(LANE, job.lines[LANE], timeline, 0)
        found = mirror_schema._eras(job, Mirror(ITEM, job.path), lane, lambda exact=exact: exact)
        assert [(one.place, set(one.keys)) for one in expected] == [
            (one.place, set(one.keys)) for one in found
        ], (number, spans, said)
        several += len(found) > 1
    assert several > 900


@pytest.mark.one_of(3)
@pytest.mark.parametrize("cuts", [(), (3,), (3, 4), (2, 4)])
@pytest.mark.parametrize(
    ("pk", "kinds"), [("id", "INT NOT NULL, k DATETIME"), ("id, k", "INT NOT NULL, k VARCHAR(9)")]
)
def test_columns_of_a_key_exchange_their_names(
    pk: str, kinds: str, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    """Rows that are older than the statement were gone, for their key was read by the other column's type."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    row = {
        "isDdl": False,
        "type": "INSERT",
        "pkNames": None,
        "mysqlType": None,
        "sql": "",
    }  # neither key nor types
    moments = [f"2024-05-0{day} 00:00:00" if pk == "id" else f"v{day}" for day in range(5)]
    said: list[Callable[[], object]] = [
        lambda: depot.ddl(f"CREATE TABLE depot (id {kinds}, PRIMARY KEY ({pk}))"),
        lambda: depot.say(**row, data=[{"id": "1", "k": moments[1]}]),
        lambda: depot.say(**row, data=[{"id": "2", "k": moments[2]}]),
        lambda: depot.ddl("ALTER TABLE depot RENAME COLUMN id TO k, RENAME COLUMN k TO id"),
        lambda: depot.say(**{**row, "type": "DELETE"}, data=[{"k": "2", "id": moments[2]}]),
        lambda: depot.say(**row, data=[{"k": "3", "id": moments[3]}]),
    ]
    for number, one in enumerate(said):
        if number in cuts:
            assert ("done", "") == depot.run(checked=True)
        one()
    assert ("done", "") == depot.run(checked=True)
    found = depot.lake().ask_mirror(
        "mirrors/yard/depot",
        "SELECT CAST(k AS VARCHAR) AS k, CAST(id AS VARCHAR) AS id FROM {mirror} ORDER BY k",
    )
    assert [("1", moments[1]), ("3", moments[3])] == [tuple(one.values()) for one in found]


TAKEN_OVER = {  # statements after which a name of the key is another column's, the key, and the columns then
    "dropped": ("DROP PRIMARY KEY, DROP COLUMN id, RENAME COLUMN k TO id, ADD PRIMARY KEY (id)", "id", "id"),
    "dropped last": ("CHANGE k id INT NOT NULL, DROP COLUMN id, ADD PRIMARY KEY (id)", "id", "id"),
    "dropped before": ("DROP COLUMN id; CHANGE k id INT NOT NULL PRIMARY KEY", "id", "id"),
    "renamed": ("RENAME COLUMN id TO was; DROP PRIMARY KEY, CHANGE k id INT, ADD PRIMARY KEY (id)", "id", "id was"),
    "exchanged": ("DROP PRIMARY KEY, CHANGE id k INT, CHANGE k id INT, ADD PRIMARY KEY (id)", "id", "id k"),
    "by three": ("RENAME COLUMN id TO was; RENAME COLUMN k TO id; RENAME COLUMN was TO k", "id k", "id k"),
    "back": ("RENAME COLUMN id TO was; RENAME COLUMN was TO id", "id", "k id"),
}  # fmt: skip


@pytest.mark.one_of(3, "cuts")
@pytest.mark.parametrize("cuts", [(), (4,), (4, 5)])
@pytest.mark.parametrize("name", TAKEN_OVER)
def test_another_column_takes_the_name_of_a_key(name: str, cuts: tuple[int, ...], tmp_path: Path) -> None:
    """The messages name the same key before and after: rows stayed under what they had in the former column."""
    statements, pk, columns = TAKEN_OVER[name]
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))

    def say(kind: str, cells: dict[str, str], was: dict[str, str] | None = None) -> None:
        types = dict.fromkeys(cells, "int") | {"text": "varchar(9)"}
        old = None if was is None else [was]
        depot.say(isDdl=False, type=kind, data=[cells], old=old, pkNames=pk.split(), mysqlType=types, sql="")

    def now(key: str, other: str, text: str) -> dict[str, str]:
        """A row after the statements."""
        return dict(zip(columns.split(), (other, key), strict=False)) | {"text": text}

    said: list[Callable[[], object]] = [
        lambda: depot.ddl(
            f"CREATE TABLE depot (id INT, k INT, text VARCHAR(9), PRIMARY KEY ({pk.replace(' ', ',')}))"
        ),
        lambda: say("INSERT", {"id": "1", "k": "20", "text": "a"}),
        lambda: say("INSERT", {"id": "2", "k": "10", "text": "b"}),
        lambda: say("INSERT", {"id": "10", "k": "30", "text": "c"}),
        lambda: [depot.ddl(f"ALTER TABLE depot {statement}") for statement in statements.split(";")],
        lambda: say("UPDATE", now("1", "20", "new"), {"text": "a"}),
        lambda: say("DELETE", now("10", "30", "c")),
    ]
    for number, event in enumerate(said):
        if number in cuts:
            assert ("done", "") == depot.run(checked=True)
        event()
    assert ("done", "") == depot.run(checked=True)
    left = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT id, text FROM {mirror} ORDER BY text")
    wanted = [("2", "b"), ("1", "new")] if name == "back" else [("10", "b"), ("20", "new")]
    assert wanted == [(str(row["id"]), row["text"]) for row in left]
    assert [] == depot.lake().ask("SELECT 1 FROM {rejects}")


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("again", "is_asked"),
    [("row alter", True), ("alter", False), ("equal alter", False), ("row gone alter", False)],
)
def test_rows_come_again_with_a_statement_that_gives_them_another_key(
    tmp_path: Path, again: str, is_asked: bool
) -> None:
    """They were there once more under their old key, and nothing said so."""
    shops = Shops(tmp_path, TableRule(match="shop_1.item"), dialect="canal")
    shops.ddl("CREATE TABLE item (id INT PRIMARY KEY, k INT, text VARCHAR(9))")
    shops.say(1, "INSERT", 1, "a", k="10").say(1, "INSERT", 2, "b", k="2").say(1, "DELETE", 1, "a", k="10")
    shops.ddl("ALTER TABLE item DROP PRIMARY KEY, DROP COLUMN id, CHANGE k id INT NOT NULL PRIMARY KEY")
    lines = dict(zip(("create", "row", "equal", "gone", "alter"), shops.lines, strict=True))
    names = again.split()
    for said in (["create", *([] if "row" in names else ["row"]), *names], names):
        shops.lines, shops.number = [lines[name] for name in said], shops.number + 1
        assert ("done", "") == shops.run()
    asked = shops.lake.ask('SELECT "column", reason FROM {rejects}')
    assert [{"column": "id", "reason": "values-not-known"}] * is_asked == asked


def test_changes_without_a_usable_key_are_left_to_the_next_one() -> None:
    """They were silently left out of the rows that exist where a key ends."""
    said = [Change(op=Op.INSERT, after={"a": a, "b": b}) for a, b in (("1", "10"), ("x1", "11"), ("3", "12"))]
    events = [LaneEvent(at(place), 1, one) for place, one in enumerate(said, 1)]
    keys = (Era("", ("a",)), Era(at(9), ("b",)))
    found = rebased(events, keys, (), {"a": "int32", "b": "int32"}, 0, ("s", ITEM))
    assert ["10", "12", "11"] == [(one.change.after or {})["b"] for one in found]
    assert (at(2), 1) == found[-1][:2]  # its place and batch, for a reject


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("apply", ["files", "merge"])
def test_a_row_whose_old_key_did_not_fit_its_type_stays(
    spark: SparkSession, tmp_path: Path, apply: str, cut: bool
) -> None:
    """It has a usable key since the key changed; the row was lost, and nothing said so."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", columns={"a": "int32"}), apply=apply)
    row = {"isDdl": False, "type": "INSERT", "sql": "", "mysqlType": {"a": "varchar(9)", "b": "int"}}
    depot.say(**row, data=[{"a": "1", "b": "10"}], pkNames=["a"])
    depot.say(**row, data=[{"a": "x1", "b": "11"}], pkNames=["a"])
    if cut:
        depot.run()
    depot.ddl("ALTER TABLE depot DROP PRIMARY KEY, ADD PRIMARY KEY (b)")
    depot.say(**row, data=[{"a": "3", "b": "12"}], pkNames=["b"])
    assert "done" == depot.run(checked=True)[0]
    lake = depot.lake()
    found = lake.ask_mirror("mirrors/yard/depot", "SELECT a, b FROM {mirror} AS m ORDER BY b")
    assert [(1, 10), (None, 11), (3, 12)] == [tuple(one.values()) for one in found]
    assert any("x1" in str(one) for one in lake.ask("SELECT * FROM {rejects}"))
