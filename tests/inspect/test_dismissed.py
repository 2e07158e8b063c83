"""What waits is counted by whoever looks: the last checks know nothing of what was dismissed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingest.config.model import TableRule
from ingest.inspect import status
from ingest.ledgers import rejects
from ingest.quality.report_data import gather
from ingest.result import STAGES
from ingest.tables.tables import LakeReader
from tests.shops import Shops


def shops_with(folder: Path, *texts: str) -> Shops:
    """A lake whose prices are checked once."""
    shops = Shops(folder, TableRule(match="shop_1.item", columns={"price": "decimal(4,2)"}), stages=STAGES)
    for key, text in enumerate(texts, 1):
        shops.say(1, "INSERT", key, "a", price=text)
    return shops


def dismissed(shops: Shops, raw: str) -> None:
    """Close the reject with a text."""
    rows = [row for row in rejects.listed(shops.lake, every=False) if raw in row["raw"]]
    assert 1 == len(rows)
    rejects.dismiss(shops.lake, rows, "known")


def causes(shops: Shops) -> list[dict[str, Any]]:
    """The problems of `ingest status`."""
    return status.status(LakeReader(shops.pipeline))["causes"]


def test_a_dismissed_cell_is_counted_no_longer(tmp_path: Path) -> None:
    """`status` named two cells, for example the dismissed one, while `rejects` listed the other; both reasons were one."""
    shops = shops_with(tmp_path, "abc", "123456.5", "1.5")
    assert "done" == shops.run()[0]
    [cause] = causes(shops)
    both = "2 cells do not fit: a number with more digits than DECIMAL(4,2) holds, or not a number"
    assert both in cause["text"]
    dismissed(shops, "abc")
    [cause] = causes(shops)
    said = "1 cell does not fit: a number with more digits than DECIMAL(4,2) holds, for example '123456.5'"
    assert said == cause["text"]
    [table] = gather(LakeReader(shops.pipeline)).tables
    [check] = [each for each in table.checks if each.check == "cell_rejects"]
    assert (1, said) == (check.observed, check.detail)
    dismissed(shops, "123456.5")
    assert [] == causes(shops)


def test_a_dismissed_change_is_counted_no_longer(tmp_path: Path) -> None:
    """The one that was left was not shown: the dismissed one was the example, also after a batch without faults."""
    shops = shops_with(tmp_path, "1.5")
    assert "done" == shops.run()[0]
    for key in ("first", "second"):
        shops.say(1, "INSERT", key, "a", price="1")  # type: ignore[arg-type]  # no number
    shops.run()
    assert ["2 changes were not applied"] == [cause["text"][:26] for cause in causes(shops)]
    shops.say(1, "INSERT", 7, "a", price="1").run()
    [cause] = causes(shops)
    assert "2 changes were not applied" in cause["text"]
    dismissed(shops, '"first"')
    [cause] = causes(shops)
    assert "1 change was not applied" in cause["text"]
    assert "not repaired since" in cause["text"]
    assert "second" in cause["text"]
    assert "first" not in cause["text"]
    shops.say(1, "INSERT", 8, "a", price="1").run()
    assert shops.result is not None
    [warning] = shops.result.warnings
    assert "1 change was not applied" in warning


def test_a_dismissal_of_many_closes_none_that_comes_later(tmp_path: Path) -> None:
    """A mirror that was held refused a change of the first batch when it was repaired, and nothing said so."""
    rules = TableRule("shop_1.item", keys=("id", "text")), TableRule("shop_2.item", keys=("id", "wrong"))
    shops = Shops(tmp_path, rules[0], more=rules[1:], stages=STAGES)
    shops.say(1, "INSERT", 1, None).say(1, "INSERT", 2, "a\n\u00e4'").say(1, "INSERT", 4, None)
    shops.say(2, "INSERT", 5, "x").say(2, "INSERT", 6, None).run()

    def still_open() -> list[str]:
        return [row["database"] for row in rejects.listed(shops.lake, every=False)]

    wanted = {"kind": "change"}
    many = rejects.alike(rejects.listed(shops.lake), wanted)
    assert (2, ["shop_1", "shop_1"]) == (len(many), still_open())
    rejects.dismiss_alike(shops.lake, many, wanted, "known", "somebody")
    is_dismissed = rejects.dismissed(shops.lake)
    assert ([], True) == (still_open(), all(is_dismissed(row) for row in many))
    shops.more = (TableRule("shop_2.item", keys=("id", "text")),)
    shops.run()
    assert ["shop_2"] == still_open()
    [later] = rejects.listed(shops.lake, every=False)
    assert (1, False) == (later["batch"], is_dismissed(later))
    assert "1 change was not applied" in str(causes(shops))
