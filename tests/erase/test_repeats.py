"""Messages of erased rows that are delivered again after the erasure; without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.erase import remove
from tests.erase.test_special_lakes import MERGED, decided, planned, texts
from tests.shops import Shops


def left(shops: Shops) -> list[str]:
    """The texts that the second batch has written to silver."""
    return [text.split('"')[-2] for _, text in texts(shops)]


@pytest.mark.parametrize("kind", ["UPDATE", "DELETE", "INSERT"])
def test_the_newest_change_of_a_table_does_not_pass_when_it_is_sent_again(tmp_path: Path, kind: str) -> None:
    """The same place in history comes with a later arrival: the row would be back, or the values of its delete."""
    shops = Shops(tmp_path, MERGED).say(1, "INSERT", 2, "stays", at=5)
    shops.say(1, "INSERT", 1, "gone", at=10).say(1, kind, 1, "gone, too", at=20)
    assert ("done", "") == shops.run()
    decided(shops.lake, planned(shops.lake, "1"))
    shops.say(1, "INSERT", 1, "gone", at=10).say(1, kind, 1, "gone, too", at=20)
    shops.say(1, "INSERT", 1, "new", at=30)
    shops.run()
    assert ["new"] == left(shops)
    assert 2 == shops.lake.ask("SELECT sum(erased) AS n FROM {books}")[0]["n"]


def test_the_move_of_a_row_does_not_pass_when_it_is_sent_again(tmp_path: Path) -> None:
    """Its first key has another row now, whose changes are newer; the move, which quotes the erased row, is not."""
    shops = Shops(tmp_path, MERGED).say(1, "INSERT", 1, "gone", at=10)
    shops.say(1, "UPDATE", 7, "gone, too", at=20, old=1).say(1, "INSERT", 1, "stays", at=30)
    assert ("done", "") == shops.run()
    decided(shops.lake, planned(shops.lake, "7"))
    shops.say(1, "UPDATE", 7, "gone, too", at=20, old=1).say(1, "INSERT", 1, "stays", at=30)
    shops.say(1, "UPDATE", 1, "stays, too", at=40)
    shops.run()
    assert ["stays", "stays, too"] == left(shops)


def test_alerts_that_quote_an_erased_row_lose_their_words(tmp_path: Path) -> None:
    """What held the mirror names the key of a row; what was sent is kept in `decisions`."""
    shops = Shops(tmp_path, MERGED).say(1, "INSERT", 4711, "Jo Planted")
    shops.run()
    erasure = planned(shops.lake, "4711")
    value = {"severity": "error", "since": "2026", "sent": {}, "state": "over"}
    alerts = {
        "shop.item: held": "shop.item: shop_1.item and shop_2.item both have a row with id = 4711",
        "last run: shop.item: 'Jo Planted' is no number": "it has failed",
        "shop.item: stale": "shop.item has had no change for 4 hours",
        "shop.other: held": "both have a row with id = 4711",
    }
    rows = [
        {"number": n, "kind": "alert", "subject": subject, "value": json.dumps({**value, "text": text})}
        for n, (subject, text) in enumerate(alerts.items())
    ]
    found = list(remove.quoting_alerts(rows, erasure))
    assert [("shop.item: held", "(erased)"), ("(erased)", "it has failed")] == [
        (subject, json.loads(text)["text"]) for *_, subject, text in found
    ]
    assert all(value.items() <= json.loads(text).items() for *_, text in found)
