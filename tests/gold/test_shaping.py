"""Mirrors whose columns the pipeline file chooses: what a changed rule does to existing rows."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import MadeColumn, TableRule
from ingest.errors import HeldError
from ingest.gold.plan.rule_faults import refuse_unordered
from ingest.gold.plan.work import Books, LaneSums, jobs
from ingest.ledgers.books import Line
from ingest.ledgers.mirrors import Clusters, Mirror, _clusters, clusters, grown
from tests.gold.depot import Depot
from tests.shops import Shops
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = TableId("yard", None, "depot")
SEEN = {"id": "int64", "a": "string", "b": "int32", "note": "string"}
SHAPED: dict[str, Any] = {
    "without": ("note",),
    "names": {"a": "b", "b": "a"},
    "places": {"note": "x.yaml:9:7", "a": "x.yaml:10:7", "b": "x.yaml:11:7"},
}


def columns(mirror: Mirror) -> list[tuple[str, str]]:
    """Each column's name at the source and in Delta."""
    return [(one.name, one.column) for one in mirror.columns]


def test_columns_are_left_out_and_renamed() -> None:
    """Two columns that exchange their names must not take a made-up name each."""
    mirror = grown(None, TABLE, TableRule(**SHAPED), ("id",), SEEN)
    assert [("id", "id"), ("a", "b"), ("b", "a")] == columns(mirror)
    assert columns(mirror) == columns(Mirror.from_value(mirror.path, mirror.to_value()))
    assert TableRule(**SHAPED).shape == Mirror.from_value(mirror.path, mirror.to_value()).shape


def test_other_rules_keep_the_types_that_were_decided() -> None:
    """A column that was widened once would come back as narrow as its newest message."""
    before = grown(None, TABLE, TableRule(), ("id",), {**SEEN, "b": "int64"})
    mirror = grown(before, TABLE, TableRule(**SHAPED), ("id",), SEEN)
    assert [("id", "id"), ("a", "b"), ("b", "a")] == columns(mirror)
    assert "int64" == mirror.columns[2].type
    assert [one.name for one in before.columns] == [
        one.name for one in grown(mirror, TABLE, TableRule(), ("id",), SEEN).columns
    ]


def test_a_pattern_spares_the_key_and_the_shard() -> None:
    """Without them rows cannot be identified."""
    rule = TableRule(without=("*",), include=("b",), shard_column="shard")
    mirror = grown(None, TABLE, rule, ("id", "shard"), {**SEEN, "shard": "string"})
    assert ["id", "shard", "b"] == [one.name for one in mirror.columns]


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"without": ("note",)}, "columns:"),
        ({"columns": {"a": "int32"}}, "columns:"),
        ({"shard_column": "other"}, "shard_column:"),
        ({"on_schema_change": "evolve"}, "on_schema_change:"),
        ({"keys": ("id",), "history": True}, "history:, keys:"),
    ],
)
def test_tables_with_other_rules_do_not_share_a_mirror(
    rule: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """The mirror would be folded again by turns, and hold a secret of one of them."""
    same: dict[str, Any] = {"into": "shop.t", "shard_column": "shard", "columns": {"a": "string"}}
    rules = (TableRule("a.t", **{**same, **rule}), TableRule("b.t", **same))
    pipeline = Pipeline("yard", tmp_path / "x.yaml", str(tmp_path), (), rules, engine="auto")
    first, second = TableId("a", None, "t"), TableId("b", None, "t")
    books = Books(1, 2, {("s", first): LaneSums(changes=1)}, [Line(2, "s", None, None, *second, changes=1)])
    [job] = jobs(pipeline, books)
    with pytest.raises(HeldError, match=f"have different rules for it \\({named}\\)"):
        refuse_unordered(job)


def test_files_are_ordered_by_columns_that_the_mirror_has(tmp_path: Path) -> None:
    """A name that no row has shown, or a type without an order, must not pass for an ordered mirror."""
    rule = TableRule("shop_1.item", cluster_by=("text", "id"), cluster_place="x.yaml:9:7")
    shops = Shops(tmp_path, replace(rule, names={"text": "words"})).say(1, "INSERT", 1, "a", flag="1")
    assert ("done", "") == shops.run()
    path = "mirrors/shop_1/item"
    assert {path: Clusters(("words", "id"))} == clusters(shops.lake)
    shops.rule = replace(rule, cluster_by=("txt",))
    refused = "x.yaml:9:7 cluster_by: names txt of shop_1.item, which the mirror does not have: name another column."
    assert {path: Clusters(refused=refused)} == clusters(shops.lake)
    shops.rule = replace(rule, cluster_by=())
    assert {} == clusters(shops.lake)


def test_a_type_without_an_order_is_refused() -> None:
    """Delta fails for it in the middle of `ingest maintain`."""
    mirror = grown(None, TABLE, TableRule(), ("id",), {"id": "int64", "on": "boolean"})
    found = _clusters(mirror, TableRule(cluster_by=("on",), cluster_place="x.yaml:9:7"))
    assert found.refused.startswith(
        "x.yaml:9:7 cluster_by: names on of yard.depot, whose type BOOLEAN gives files no order"
    )


@pytest.mark.e2e
@pytest.mark.spark
def test_a_changed_rule_folds_the_mirror_again(spark: SparkSession, tmp_path: Path) -> None:
    """Rows from before and from after a new rule must not be in one table."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    for number in ("1", "2"):
        depot.row(id=number, a="5", b="6", note="7")
    assert ("done", "") == depot.run(checked=True)
    plain = [{"id": number, "a": 5, "b": 6, "note": 7} for number in (1, 2)]
    assert plain == depot.rows()

    depot.rule, depot.warm = replace(depot.rule, **SHAPED), Warm()
    assert ("done", "") == depot.run(checked=True), "nothing new has come, and the rule is another"
    assert [{"id": number, "b": 5, "a": 6} for number in (1, 2)] == depot.rows()
    assert ("idle", "") == depot.run()
    depot.row("UPDATE", {"b": "6", "note": "7"}, id="2", a="5", b="8", note="9").row(
        "DELETE", id="1", a="5", b="6", note="7"
    )
    assert ("done", "") == depot.run(checked=True)
    assert [{"id": 2, "b": 5, "a": 8}] == depot.rows()

    depot.rule, depot.warm = replace(depot.rule, without=(), names={}), Warm()
    depot.row(id="3", a="1", b="2", note="3")
    assert ("done", "") == depot.run(checked=True)
    again = [{"id": 2, "a": 5, "b": 8, "note": 9}, {"id": 3, "a": 1, "b": 2, "note": 3}]
    assert again == depot.rows()
    assert [] == [
        (row["check"], row["detail"])
        for row in depot.lake().read("checks").where("state IN ('fail', 'error')").collect()
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_rows_enter_and_leave_a_filtered_mirror(spark: SparkSession, tmp_path: Path) -> None:
    """A condition that is added, changed or fails must leave no row by another one, and lose none."""
    from ingest.run import Warm

    depot = Depot(
        spark, tmp_path, Warm(), TableRule("yard.*", where="a > 4", where_place="x.yaml:9:5"), apply="merge"
    )
    depot.row(id="1", a="5", b="6").row(id="2", a="4", b="6").row(id="3", a=None, b="6").row(
        id="4", a="7", b="8"
    )
    assert ("done", "") == depot.run(checked=True)
    assert [1, 4] == [row["id"] for row in depot.rows()]
    depot.row("UPDATE", {"a": "5"}, id="1", a="1", b="6").row("UPDATE", {"a": "4"}, id="2", a="9", b="6")
    depot.row("DELETE", id="4", a="7", b="8")
    assert ("done", "") == depot.run(checked=True)
    assert [{"id": 2, "a": 9, "b": 6}] == depot.rows()

    depot.rule, depot.warm = replace(depot.rule, where="a < 4 OR a IS NULL"), Warm()
    assert ("done", "") == depot.run(checked=True)
    assert [1, 3] == [row["id"] for row in depot.rows()]
    assert [] == depot.lake().read("checks").where("state IN ('fail', 'error')").collect()

    odd = "CAST(CASE WHEN a = 1 THEN 'x' ELSE '1' END AS INT) = 1"
    depot.rule, depot.warm = replace(depot.rule, where=odd), Warm()
    state, message = depot.run()
    assert ("held", "x.yaml:9:5 where: fails on a row: ") == (state, message[: message.index("row: ") + 5])
    assert [1, 3] == [row["id"] for row in depot.rows()]
    depot.rule, depot.warm = replace(depot.rule, where="c = 1"), Warm()
    assert ("held", "x.yaml:9:5 where: needs the column c") == (depot.run()[0], depot.run()[1][:36])
    depot.rule, depot.warm = replace(depot.rule, where=""), Warm()
    depot.row(id="5", a="0", b="0")
    assert ("done", "") == depot.run(checked=True)
    assert [1, 2, 3, 5] == [row["id"] for row in depot.rows()]


def test_a_rule_that_fails_on_a_row_holds_the_mirror_without_spark(tmp_path: Path) -> None:
    """Spark's tasks ask the same engine: each run would start it for nothing."""
    from ingest.run import Warm

    started = unstarted()
    odd = "CAST(CASE WHEN a = 1 THEN 'x' ELSE '1' END AS INT)"
    made = {"text": MadeColumn("compute", odd)}
    rules = [
        (TableRule("yard.*", where=f"{odd} = 1", where_place="x.yaml:9:5"), "x.yaml:9:5 where: fails on a row: "),
        (TableRule("yard.*", made=made, places={"text": "x.yaml:10:5"}), "x.yaml:10:5 columns: text fails on a row: "),
    ]  # fmt: skip
    for number, (rule, why) in enumerate(rules):
        folder = tmp_path / str(number)
        folder.mkdir()
        depot = Depot(started, folder, Warm(), rule)
        depot.row(id="2", a="5", b="6")
        assert ("done", "") == depot.run()
        depot.row(id="1", a="1", b="6")
        for _ in range(2):
            state, message = depot.run()
            assert ("held", why) == (state, message[: len(why)])
        depot.rule, depot.warm = replace(depot.rule, where="", made={}), Warm()
        assert ("done", "") == depot.run()
        found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT id FROM {mirror} ORDER BY id")
        assert [1, 2] == [row["id"] for row in found]


def test_of_a_row_left_out_only_the_key_and_the_condition_are_read(tmp_path: Path) -> None:
    """Its other cells may not even fit: they do not matter until the row enters with its whole image."""
    from ingest.run import Warm

    started = unstarted()
    depot = Depot(started, tmp_path, Warm(), TableRule("yard.*", where="b = 1"))
    depot.row(id="1", a="1", b="1").row(id="2", a="1", b="2").row(id="3", a="1", b="1")
    assert ("done", "") == depot.run()
    depot.row("UPDATE", id="2", a="x", b="2").row("UPDATE", id="3", a="x", b="2").row(id="4", a="4", b=None)
    depot.row("DELETE", id="1", a="x", b="1").row(id="1", a="5", b="1").row("UPDATE", id="02", a="6", b="1")
    assert ("done", "") == depot.run()
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} ORDER BY id")
    assert [(1, 5, 1), (2, 6, 1)] == [(row["id"], row["a"], row["b"]) for row in found]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("apply", ["merge", "auto"])
def test_columns_of_rules_follow_rules_and_types(spark: SparkSession, tmp_path: Path, apply: str) -> None:
    """A value by an old rule, or by a column's old type, must not be next to one by the new."""
    from ingest.gold import rebuild
    from ingest.gold.explain import explain
    from ingest.run import Warm

    places = {name: f"x.yaml:{line}:5" for line, name in enumerate(("sum", "text", "in", "at"), 9)}
    made = {"sum": MadeColumn("compute", "a + b"), "in": MadeColumn("meta", "batch", "int64")}
    made |= {"at": MadeColumn("meta", "event_time", "timestamp")}
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", made=made, places=places), apply=apply)
    depot.row(id="1", a="5", b="6").row(id="2", a=None, b="6")
    assert ("done", "") == depot.run(checked=True)
    assert [(11, 1), (None, 1)] == [(row["sum"], row["in"]) for row in depot.rows()]
    depot.row("UPDATE", {"a": None}, id="2", a="1", b="6")
    assert ("done", "") == depot.run(checked=True)
    assert [(11, 1), (7, 2)] == [(row["sum"], row["in"]) for row in depot.rows()]
    assert [1714521610, 1714521630] == [row["at"].replace(tzinfo=dt.UTC).timestamp() for row in depot.rows()]
    for key in ("1", "2"):
        story = explain(depot.lake(), "yard.depot", [key])
        assert (True, ()) == (story.equal, story.differing)
    assert ("7", "2") == tuple((story.folded or {})[name] for name in ("sum", "in"))
    (rebuilt,) = rebuild.rebuild(depot.lake(), [], dry_run=True)
    assert rebuilt.difference is not None
    assert (2, True) == (rebuilt.difference.rows, rebuilt.difference.none)

    made = {"text": MadeColumn("compute", "a || '+' || b"), "sum": MadeColumn("compute", "a + b")}
    depot.rule, depot.warm = replace(depot.rule, made=made), Warm()
    assert ("done", "") == depot.run(checked=True)
    assert [{"id": 1, "a": 5, "b": 6, "text": "5+6", "sum": 11}] == depot.rows()[:1]

    depot.row(id="3", a="3000000000", b="1")  # more than the INT that messages have said
    assert ("done", "") == depot.run(checked=True)
    assert [11, 7, 3000000001] == [row["sum"] for row in depot.rows()]
    assert "bigint" == dict(depot.lake().read("mirrors/yard/depot").dtypes)["sum"]
    assert [] == depot.lake().read("checks").where("state IN ('fail', 'error')").collect()

    odd = {"text": MadeColumn("compute", "CAST(CASE WHEN a = 1 THEN 'x' ELSE '1' END AS INT)")}
    depot.rule, depot.warm = replace(depot.rule, made=odd), Warm()
    state, message = depot.run()
    assert ("held", "x.yaml:10:5 columns: text fails on a row: ") == (
        state,
        message[: message.index("row: ") + 5],
    )
    depot.rule, depot.warm = replace(depot.rule, made={"in": made["sum"]}), Warm()
    depot.row(id="4", a="1", b="1", IN="7")
    why = "x.yaml:11:5 columns: makes a column in, and yard.depot has a column IN of its own: give the rule another name."
    assert ("held", why) == depot.run()
    depot.rule, depot.warm = replace(depot.rule, made={}), Warm()
    assert ("done", "") == depot.run(checked=True)
    assert [{"id": 4, "a": 1, "b": 1, "IN": 7}] == depot.rows()[3:]


@pytest.mark.spark
@pytest.mark.slow
def test_a_rule_that_cannot_be_followed_holds_the_mirror(spark: SparkSession, tmp_path: Path) -> None:
    """The message must lead to the line; what waits is folded once the rule is right."""
    from ingest.run import Warm

    shaped = TableRule("yard.*", names={"a": "b"}, places=SHAPED["places"])
    depot = Depot(spark, tmp_path, Warm(), shaped).row(id="1", a="5", b="6")
    state, message = depot.run()
    assert ("held", True) == (state, message.startswith("x.yaml:10:7 renames a to b"))
    depot.rule, depot.warm = replace(shaped, names={}, without=("id",), places={"id": "x.yaml:3:4"}), Warm()
    state, message = depot.run()
    assert ("held", True) == (state, message.startswith("x.yaml:3:4 leaves out id"))
    depot.rule, depot.warm = replace(shaped, names={"a": "c"}), Warm()
    assert ("done", "") == depot.run()
    assert [{"id": 1, "c": 5, "b": 6}] == depot.rows()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("apply", ["merge", "auto"])
def test_deleted_rows_stay_where_the_rule_keeps_them(spark: SparkSession, tmp_path: Path, apply: str) -> None:
    """The line that is added must bring back what was deleted before; the line that is removed must take all of it."""
    from ingest.gold import rebuild
    from ingest.gold.explain import explain
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"), apply=apply)
    depot.row(id="1", a="5").row(id="2", a="6").row("DELETE", id="1", a="5")
    assert ("done", "") == depot.run(checked=True)
    soft = {"_deleted": "boolean", "_deleted_at": "timestamp"}
    made = {name: MadeColumn("deletes", "soft", logical) for name, logical in soft.items()}
    places = dict.fromkeys(soft, "x.yaml:9:5")
    depot.rule, depot.warm = TableRule("yard.*", made=made, places=places), Warm()
    assert ("done", "") == depot.run(checked=True)
    assert [(1, 5, True), (2, 6, False)] == [(row["id"], row["a"], row["_deleted"]) for row in depot.rows()]
    assert [1714521630, None] == [
        at and at.replace(tzinfo=dt.UTC).timestamp() for at in (row["_deleted_at"] for row in depot.rows())
    ]
    depot.row(id="1", a="7").row(id="3", a="8")  # no delete: the new images alone are folded
    assert ("done", "") == depot.run(checked=True)
    assert [(1, 7, False), (2, 6, False), (3, 8, False)] == [
        (row["id"], row["a"], row["_deleted"]) for row in depot.rows()
    ]
    depot.row("DELETE", id="3", a="8").row("UPDATE", {"id": "2"}, id="20", a="6")
    assert ("done", "") == depot.run(checked=True)
    kept = {2: True, 3: True, 1: False, 20: False}
    assert kept == {row["id"]: row["_deleted"] for row in depot.rows()}
    for key in kept:
        story = explain(depot.lake(), "yard.depot", [str(key)])
        assert (True, ()) == (story.equal, story.differing)
    (rebuilt,) = rebuild.rebuild(depot.lake(), [], dry_run=True)
    assert rebuilt.difference is not None
    assert (4, True) == (rebuilt.difference.rows, rebuilt.difference.none)
    assert [] == depot.lake().read("checks").where("state IN ('fail', 'error')").collect()

    depot.row(id="4", a="1", _DELETED="7")
    why = (
        "x.yaml:9:5 deletes: soft makes a column _deleted, and yard.depot has a column _DELETED of its own: keep its deleted "
        "rows in a table of their own with `history: true` instead."
    )
    assert ("held", why) == depot.run()
    depot.rule, depot.warm = TableRule("yard.*"), Warm()
    assert ("done", "") == depot.run(checked=True)
    assert [1, 4, 20] == [row["id"] for row in depot.rows()]
    assert "_deleted" not in depot.rows()[0]
