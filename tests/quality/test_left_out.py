"""What the rules of a mirror leave out is counted, and what is equal is judged with it; without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from ingest.config.entries import QualityRule
from ingest.config.model import TableRule
from ingest.ledgers import decisions
from ingest.ledgers.decisions import ERASED, Decision
from ingest.quality import key_checks, left_out, source_counts
from ingest.quality.catalogue import Metric
from tests.shops import Shops

PATH = "mirrors/shop_1/item"


def numbers(shops: Shops, since: int) -> dict[str, int]:
    """What the checks of keys count of batches after one."""
    return key_checks.count(shops.lake, [shops.subject(since)], since)[PATH].numbers


def others(shops: Shops, since: int) -> dict[str, tuple[float, str]]:
    """What is left out besides rows."""
    found = left_out.of_mirrors(shops.lake, [shops.subject(since)], since)
    return {one.check: (one.observed, one.detail) for one in found}


def filtered(folder: Path) -> Shops:
    """Three rows meet the condition, and two do not, one of them since the second batch."""
    shops = Shops(folder, TableRule("shop_1.item", where="text <> 'out'"))
    shops.say(1, "INSERT", 1, "in").say(1, "INSERT", 2, "out").say(1, "INSERT", 3, "in")
    shops.say(1, "INSERT", 4, "in").say(1, "INSERT", 5, "in")
    assert ("done", "") == shops.run()
    shops.say(1, "UPDATE", 3, "out").say(1, "DELETE", 4, "in").say(1, "UPDATE", 5, "in again")
    shops.say(1, "INSERT", 6, "in")
    assert ("done", "") == shops.run()
    return shops


def test_rows_that_a_condition_leaves_out_are_counted(tmp_path: Path) -> None:
    """A mirror of 3 rows and a source of 5 differ by what the rule promises, and by nothing else."""
    shops = filtered(tmp_path)
    assert {1: "in", 5: "in again", 6: "in"} == shops.rows("mirrors/shop_1/item")
    every, batch = numbers(shops, 0), numbers(shops, 1)
    assert (3, 2, 0) == (every["rows"], every["rows_left_out"], every["ghost_rows"])
    assert (3, 1, 0) == (batch["rows"], batch["rows_left_out"], batch["ghost_rows"])
    assert "missing_rows" not in every


def test_the_source_s_count_is_compared_with_both(tmp_path: Path) -> None:
    """A count of the source has the rows that the condition leaves out; a batch alone does not know them all."""
    shops = filtered(tmp_path)
    counts = tmp_path / "counts.csv"
    counts.write_text("table,rows\nshop_1.item,6\n")
    rules = QualityRule("shop_1.item", source_counts=str(counts))
    pipeline = replace(shops.pipeline, quality=(rules,))
    for since, difference in ((0, [1.0]), (1, [])):
        found = [Metric(name, n, "shop_1.item") for name, n in numbers(shops, since).items()]
        chosen = [shops.subject(since)]
        rows = left_out.source_rows(chosen, found, since)
        metrics, broken = source_counts.compared(pipeline, chosen, rows, {"shop_1.item"})
        assert (difference, []) == ([one.observed for one in metrics], broken)


def test_a_deleted_row_that_lives_on_is_found_in_spite_of_a_condition(tmp_path: Path) -> None:
    """Keys of a filtered mirror were not compared at all."""
    shops = filtered(tmp_path)
    assert 0 == numbers(shops, 0)["ghost_rows"]
    row = pa.table({"id": pa.array([4], pa.int64()), "text": ["in"]})
    write_deltalake(shops.lake.path(PATH), row, mode="append")
    assert 1 == numbers(shops, 0)["ghost_rows"]


def test_columns_that_rules_leave_out_or_mask_are_named(tmp_path: Path) -> None:
    """An excluded or masked column must not look like one that the source does not send."""
    rule = TableRule("shop_1.item", without=("tmp_*", "note"), mask={"card": "last4", "text": "null"})
    shops = Shops(tmp_path, rule).say(1, "INSERT", 1, "a", tmp_a="1", note="n", card="12345678", rest="r")
    assert ("done", "") == shops.run()
    expected = {"columns_left_out": (2, "note, tmp_a"), "columns_masked": (2, "card (last4), text (null)")}
    assert expected == {
        name: (n, ", ".join(sorted(text.split(", ")))) for name, (n, text) in others(shops, 0).items()
    }
    plain = Shops(tmp_path, TableRule("shop_1.item"))
    assert {} == others(plain, 0)


def test_erased_changes_are_counted(tmp_path: Path) -> None:
    """The report must say why there are fewer changes than the audit counts say."""
    shops = filtered(tmp_path)
    assert {} == others(shops, 0)
    value = {"number": 1, "removed": {"changes": {"rows": 3}}}
    decisions.append(shops.lake, [Decision(ERASED, PATH, value)])
    expected = (3, "3 changes of erased rows, 0 of them not written because they came later")
    assert {"changes_erased": expected} == others(shops, 0)
    subject = shops.subject(0)
    subject.lanes = [replace(one, erased_ever=2) for one in subject.lanes]
    [found] = left_out.of_mirrors(shops.lake, [subject], 0)
    assert "5 changes of erased rows, 2 of them not written because they came later" == found.detail
