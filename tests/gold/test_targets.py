"""Several mirrors of one source table: each has its own rules, and nothing else of the lake is different."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.config.model import MadeColumn, TableRule
from ingest.gold import approval, explain, preview, rebuild
from ingest.inspect import status
from ingest.inspect import story as telling
from ingest.inspect.idle import idle
from ingest.ledgers import decisions, decoded_with, dropping, mirrors, targets
from ingest.ledgers.mirrors import Clusters
from ingest.ledgers.targets import Mistyped
from ingest.run import Warm
from ingest.tables.tables import LakeReader
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

ITEM = TableRule(match="shop_1.item")
EU = TableRule(
    match="shop_1.item", into="eu.item", where="region = 'EU'", without=("text",),
    made={"twice": MadeColumn("compute", "id * 2", "int64")}, into_place="x.yaml:9:11", places={"twice": "x.yaml:10:9"},
)  # fmt: skip


def shops(folder: Path, *further: TableRule, rule: TableRule = ITEM) -> Shops:
    """A table with one mirror of all rows, and further ones."""
    return Shops(folder, replace(rule, also=further))


def rows(shops: Shops, path: str) -> list[tuple[Any, ...]]:
    """A mirror's rows in order."""
    return sorted(tuple(row.values()) for row in shops.lake.ask_mirror(path, "SELECT * FROM {mirror} AS m"))


def states(shops: Shops) -> dict[str, str]:
    """What the last run says of each mirror."""
    assert shops.result is not None
    return {one.mirror: one.state for one in shops.result.mirrors}


def test_each_mirror_follows_its_own_rules(tmp_path: Path) -> None:
    """Otherwise a further mirror would hold rows or columns that its rule leaves out, or the first would lack them."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").say(1, "INSERT", 2, "b", region="US").run()
    assert {"shop_1.item": "done", "eu.item": "done"} == states(mine)
    mine.say(1, "UPDATE", 1, "c", region="US").say(1, "UPDATE", 2, "d", region="EU").run()
    assert [(1, "c", "US"), (2, "d", "EU")] == rows(mine, "mirrors/shop_1/item")
    assert [(2, "EU", 4)] == rows(mine, "mirrors/eu/item")
    mine.say(1, "DELETE", 2, "d", region="EU").run()
    assert [] == rows(mine, "mirrors/eu/item")
    assert [(1, "c", "US")] == rows(mine, "mirrors/shop_1/item")


def test_further_mirrors_are_seen_by_the_run_s_own_session(tmp_path: Path) -> None:
    """A view that had none would fail every fold of a further mirror, or not hear that the run is to end."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    lake = replace(mine.lake, stop=lambda: True)
    _, further = targets.views(lake)
    assert (lake.spark, lake.stop) == (further.spark, further.stop)
    assert further.kept is lake.kept


def test_a_mirror_is_added_later_without_new_messages(tmp_path: Path) -> None:
    """Otherwise it would be empty until the next message, or have only the rows that come after it."""
    mine = shops(tmp_path)
    mine.say(1, "INSERT", 1, "a", region="EU").say(1, "INSERT", 2, "b", region="US").run()
    mine.rule, mine.warm = replace(ITEM, also=(EU,)), Warm()
    assert idle(mine.pipeline, ("bronze", "silver", "gold")) is None
    [foreseen] = [
        one
        for view, state in preview.states_by_view(mine.lake)
        for one in preview.foresee(view, state, (), ())
    ]
    assert ("eu.item", preview.CREATE, 2) == (foreseen.mirror, foreseen.action, foreseen.changes)
    mine.run()
    assert {"eu.item": "done"} == states(mine)
    assert [(1, "EU", 2)] == rows(mine, "mirrors/eu/item")
    assert idle(mine.pipeline, ("bronze", "silver", "gold")) is not None
    mine.run()
    assert {} == states(mine)


def test_a_changed_rule_folds_only_its_mirror_again(tmp_path: Path) -> None:
    """Otherwise the mirror would mix rows of two rules, or the other mirrors would be folded again, too."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").say(1, "INSERT", 2, "b", region="US").run()
    mine.rule, mine.warm = replace(ITEM, also=(replace(EU, where="region = 'US'"),)), Warm()
    mine.run()
    assert {"eu.item": "done"} == states(mine)
    assert [(2, "US", 4)] == rows(mine, "mirrors/eu/item")
    known = mirrors.known(mine.lake)
    assert (0, 1) == (known["mirrors/shop_1/item"].generation, known["mirrors/eu/item"].generation)


def test_a_mirror_that_is_taken_out_stays_as_it_is(tmp_path: Path) -> None:
    """Otherwise its readers would lose it, or the next batches would still change it."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.rule, mine.warm = ITEM, Warm()
    mine.say(1, "INSERT", 2, "b", region="EU").run()
    assert {"shop_1.item": "done"} == states(mine)
    assert [(1, "EU", 2)] == rows(mine, "mirrors/eu/item")


def test_a_held_mirror_does_not_hold_the_others(tmp_path: Path) -> None:
    """Otherwise a rule that fails for one mirror would stop all mirrors of its table."""
    mine = shops(tmp_path, replace(EU, where="length(colour) > 1"))
    for key in (1, 2):
        mine.say(1, "INSERT", key, "a", region="EU").run()
        assert {"shop_1.item": "done", "eu.item": "held"} == states(mine)
    mine.rule, mine.warm = replace(ITEM, also=(EU,)), Warm()
    mine.run()
    assert {"eu.item": "done"} == states(mine)
    assert [(1, "EU", 2), (2, "EU", 4)] == rows(mine, "mirrors/eu/item")


def test_shards_are_merged_in_a_further_mirror_alone(tmp_path: Path) -> None:
    """Otherwise shards would need the same name in all mirrors, or their rows would replace each other."""
    match = r"shop_(\d).item"
    merged = TableRule(match=match, into="all.item", shard_column="shard")
    mine = shops(tmp_path, merged, rule=TableRule(match=match))
    mine.say(1, "INSERT", 1, "a").say(2, "INSERT", 1, "b").run()
    mine.say(2, "DELETE", 1, "b").say(2, "INSERT", 3, "c").run()
    assert [(1, "a")] == rows(mine, "mirrors/shop_1/item")
    assert [(3, "c")] == rows(mine, "mirrors/shop_2/item")
    found = mine.lake.ask_mirror("mirrors/all/item", "SELECT shard, id, text FROM {mirror} ORDER BY 1")
    assert [("shop_1.item", 1, "a"), ("shop_2.item", 3, "c")] == [tuple(row.values()) for row in found]
    assert {"all.item": 3, "shop_1.item": 1, "shop_2.item": 2} == {
        name: one.keys for name, one in mine.compared(0).items() if not one.wrong
    }


def test_rows_of_two_entries_never_share_a_further_mirror(tmp_path: Path) -> None:
    """Otherwise rows by two rules would be mixed in one table; the first keeps its rows, and the run fails with the place."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    other = TableRule(match="shop_2.item", also=(replace(EU, match="shop_2.item", into_place="x.yaml:12:7"),))
    mine.more, mine.warm = (other,), Warm()
    mine.say(2, "INSERT", 2, "b", region="EU").run()
    assert mine.result is not None
    [failure] = mine.result.failures
    assert failure.startswith(
        "x.yaml:12:7 rows of shop_2.item would go into eu.item, which holds rows of shop_1.item "
    )
    assert [(1, "EU", 2)] == rows(mine, "mirrors/eu/item")
    assert [(2, "b", "EU")] == rows(mine, "mirrors/shop_2/item")


def test_the_checks_know_each_mirrors_rules(tmp_path: Path) -> None:
    """Otherwise filtered rows would be missing ones, a changed cell would not be found, or columns would be counted for
    the wrong mirror.
    """
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").say(1, "INSERT", 2, "b", region="US").run()
    compared = mine.compared(0)
    assert {"shop_1.item": ([], 2, 0), "eu.item": ([], 2, 1)} == {
        name: (one.wrong, one.keys, one.filtered) for name, one in compared.items()
    }
    mine.rule = replace(ITEM, also=(replace(EU, where=""),))  # the mirror has the old rule
    assert mine.compared(0)["eu.item"].wrong == []  # it is compared by the rule that it was folded by


def test_files_are_ordered_by_the_rule_of_each_mirror(tmp_path: Path) -> None:
    """Otherwise `ingest maintain` would order a mirror by columns that it does not have."""
    mine = shops(tmp_path, replace(EU, cluster_by=("region",)), rule=replace(ITEM, cluster_by=("text",)))
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    found = {path: one for view in targets.views(mine.lake) for path, one in mirrors.clusters(view).items()}
    assert {"mirrors/shop_1/item": Clusters(("text",)), "mirrors/eu/item": Clusters(("region",))} == found


def test_a_feed_belongs_to_one_mirror(tmp_path: Path) -> None:
    """Otherwise a consumer of a filtered mirror would see changes of rows that it does not have."""
    mine = shops(tmp_path, replace(EU, changes_of=True))
    mine.say(1, "INSERT", 1, "a", region="EU").say(1, "INSERT", 2, "b", region="US").run()
    mine.say(1, "UPDATE", 1, "a", region="US").run()
    found = mine.lake.ask_mirror("feeds/eu/item", "SELECT operation FROM {mirror} ORDER BY number")
    assert ["insert", "delete"] == [row["operation"] for row in found]
    assert not mine.lake.exists("feeds/shop_1/item")
    assert [("eu.item__changes", 2)] == [(one["table"], one["rows"]) for one in status.feeds_of(mine.lake)]


def test_a_row_is_explained_by_the_rules_of_the_mirror_that_is_asked_for(tmp_path: Path) -> None:
    """Otherwise a row that the mirror leaves out would be reported as missing."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 2, "b", region="US").run()
    first, further = (
        explain.explain(mine.lake, "shop_1.item", ["2"]),
        explain.explain(mine.lake, "eu.item", ["2"]),
    )
    assert (True, "", True, "region = 'EU'") == (first.equal, first.left_out, further.equal, further.left_out)


@pytest.mark.parametrize("policy", ["freeze", "ignore"])
def test_a_statement_is_judged_for_each_mirror(tmp_path: Path, policy: str) -> None:
    """Otherwise a mirror that ignores statements could not be approved elsewhere, or a frozen one would change."""
    further = replace(EU, on_schema_change=policy, where="", without=())
    mine = shops(tmp_path, further)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.ddl("ALTER TABLE item ADD COLUMN extra int DEFAULT 7").run()
    found = {one.mirror: one.state for one in approval.listed(mine.lake)}
    assert {"shop_1.item": "applied", "eu.item": {"freeze": "held", "ignore": "logged"}[policy]} == found


def test_a_row_is_shown_in_all_mirrors(tmp_path: Path) -> None:
    """Otherwise an operator who asks where a row is would have to know all mirrors of its table."""
    match = r"shop_(\d).item"
    merged = TableRule(match=match, into="all.item", shard_column="shard")
    mine = shops(tmp_path, replace(EU, match=match, into="eu_{1}.item"), merged, rule=TableRule(match=match))
    mine.say(1, "INSERT", 1, "a", region="US").say(2, "INSERT", 1, "b", region="EU").run()
    [row] = explain.explain(mine.lake, "shop_1.item", ["1"]).elsewhere["all.item"]
    assert ("a", "shop_1.item") == (row["text"], row["shard"])
    story = explain.explain(mine.lake, "all.item", ["1", "shop_2.item"])
    assert {"shop_2.item": 1, "eu_2.item": 1} == {name: len(some) for name, some in story.elsewhere.items()}
    assert "eu_1.item holds no row of it" in telling.lines(explain.explain(mine.lake, "shop_1.item", ["1"]))


def test_a_table_that_was_renamed_is_held_in_every_mirror(tmp_path: Path) -> None:
    """Otherwise rows that come under another table's name would be missing where that table has no further mirror."""
    mine = shops(tmp_path, replace(EU, where="", without=()))
    mine.more = (TableRule(match="shop_1.other"),)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.ddl("ALTER TABLE other RENAME TO item").run()
    assert {"shop_1.item": "held", "eu.item": "held", "shop_1.other": "skipped"} == states(mine)


def test_a_mirror_is_rebuilt_by_its_own_rule(tmp_path: Path) -> None:
    """Otherwise `ingest rebuild` would publish the rows of the first mirror, or find none."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").say(1, "INSERT", 2, "b", region="US").run()
    [mirror] = [one for one in mirrors.known(mine.lake).values() if one.name == "eu.item"]
    view = targets.of(mine.lake, mirror)
    found, fresh = rebuild.within_run(view, mirror, view.decoded(), lambda *_: None)
    assert ("done", 1) == (found.state, fresh.generation)
    assert [(1, "EU", 2)] == rows(mine, "mirrors/eu/item")


def test_a_feed_that_is_added_begins_without_new_messages(tmp_path: Path) -> None:
    """Otherwise `ingest run` would say that there is nothing to do until the next message comes."""
    mine = shops(tmp_path, EU)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.rule, mine.warm = replace(ITEM, also=(replace(EU, changes_of=True),)), Warm()
    assert idle(mine.pipeline, ("bronze", "silver", "gold")) is None
    mine.run()
    assert mine.lake.exists("feeds/eu/item")
    assert idle(mine.pipeline, ("bronze", "silver", "gold")) is not None


def test_a_mirror_that_takes_another_s_place_is_filled_though_that_was_dropped(tmp_path: Path) -> None:
    """`status` prints the command that drops the former one at once: typed before the next run, the new one stayed away."""
    mine = shops(tmp_path)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.rule, mine.warm = replace(ITEM, into="moved.item"), Warm()
    assert ["mirrors/shop_1/item"] == dropping.drop(mine.lake, "shop_1.item", "excluded")
    assert idle(mine.pipeline, ("bronze", "silver", "gold")) is None
    mine.run()
    assert {"moved.item": "done"} == states(mine)
    assert [(1, "a", "EU")] == rows(mine, "mirrors/moved/item")
    assert idle(mine.pipeline, ("bronze", "silver", "gold")) is not None


def test_declared_types_are_compared_without_the_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run with nothing to do grouped the whole books, as soon as one table had `columns:`."""
    mine = shops(tmp_path)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.rule = replace(ITEM, columns={"id": "int64"})
    reader = LakeReader(mine.pipeline)
    outdated = decoded_with.outdated(reader, reader.decoded())
    ledger = decisions.read(mine.lake)
    with monkeypatch.context() as patched:
        patched.setattr(LakeReader, "ask", lambda _lake, query: pytest.fail(query))
        patched.setattr(decisions, "read", lambda _lake: ledger)
        assert [] == targets.mistyped(LakeReader(mine.pipeline), outdated)
    mine.rule = replace(ITEM, columns={"region": "int32"})
    reader = LakeReader(mine.pipeline)
    [mistyped] = targets.mistyped(reader, decoded_with.outdated(reader, reader.decoded()))
    assert "region is STRING instead of int32" == mistyped.said


def test_one_edit_of_many_mirrors_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of the pipeline file that concerns 500 mirrors brought 500 lines of `status`, and as many alerts."""
    mine = shops(tmp_path)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.rule = replace(ITEM, columns={"region": "int32"}, plain_tables=True)
    reader = LakeReader(mine.pipeline)
    types, vectors = targets.of_other_settings(reader)[0]
    assert ["shop_1.item"] * 2 == [types.mirror, vectors.mirror]
    [mistyped] = targets.mistyped(reader, decoded_with.outdated(reader, reader.decoded()))
    named = [
        replace(mistyped.mirror, table=mistyped.mirror.table._replace(table=f"t{i:02}")) for i in range(30)
    ]
    monkeypatch.setattr(targets, "mistyped", lambda *_: [replace(mistyped, mirror=each) for each in named])
    monkeypatch.setattr(targets, "not_plain", lambda _: named)
    types, vectors = targets.of_other_settings(reader)[0]
    assert ("", "", mistyped.backfill) == (types.mirror, vectors.mirror, types.command)
    assert "30 mirrors have not the types" in types.sentence
    assert "; and 27 more)" in types.sentence
    assert ["ingest", "rebuild"] == vectors.command.split()[:-1], "all of them"
    monkeypatch.setattr(targets, "not_plain", lambda _: named[:4])
    assert targets.of_other_settings(reader)[0][1].command.endswith("shop_1.t02 shop_1.t03")
    folded = [Mistyped(each, mistyped.columns, "") for each in named[4:]]  # as after `backfill --accept`
    monkeypatch.setattr(targets, "mistyped", lambda *_: folded)
    types, _ = targets.of_other_settings(reader)[0]
    assert ["ingest", "rebuild"] == types.command.split()[:-1], "all of them"
    monkeypatch.setattr(targets, "mistyped", lambda *_: [*folded[:4], replace(mistyped, mirror=named[0])])
    types, _ = targets.of_other_settings(reader)[0]
    assert mistyped.backfill == types.command
    assert f"`{mistyped.backfill}` and then `ingest rebuild " in types.sentence
    assert types.sentence.endswith("shop_1.t06 shop_1.t07` fold their rows again with these.")


def test_one_backfill_is_named_for_the_tables_of_all_sources(tmp_path: Path) -> None:
    """Of two commands for many mirrors each, one was never shown: the other had the same subject."""
    mine = shops(tmp_path)
    mine.say(1, "INSERT", 1, "a", region="EU").run()
    mine.rule = replace(ITEM, columns={"region": "int32"})
    reader = LakeReader(mine.pipeline)
    [late] = decoded_with.outdated(reader, 1)
    table = TableId("elsewhere", None, "item")
    first = replace(
        late, source="b", by_table={table: ("x",)}, seen={table: (1, 1)}, typed="--from {}".format
    )
    late = replace(late, seen=dict.fromkeys(late.seen, (5, 6)))
    excluded = replace(first, seen={table: (0, 0)}, left_out=table)
    for outdated in ([late, first, excluded], [excluded, first, late]):
        [mistyped] = targets.mistyped(reader, outdated)
        assert "--from 1" == mistyped.backfill
    assert [""] == [each.backfill for each in targets.mistyped(reader, [first])]
