"""Random histories of tables with several mirrors: each mirror is its own rule applied to the exact table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import MadeColumn, TableRule
from ingest.fold import DELETED, DELETED_AT
from ingest.run import Warm
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

TABLES, BATCHES, CHANGES, KEYS = 12, 4, 9, 5
Row = Mapping[str, Any]
CONDITIONS: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "": ("", lambda _row: True),
    "region = 'EU'": ("region", lambda row: row["region"] == "EU"),
    "id % 3 <> 1": ("id", lambda row: row["id"] % 3 != 1),
    "region IS NULL OR length(text) > 1": (
        "region text",
        lambda row: row["region"] is None or len(row["text"]) > 1,
    ),
}
SOFT = {
    name: MadeColumn("deletes", "soft", kind)
    for name, kind in ((DELETED, "boolean"), (DELETED_AT, "timestamp"))
}


@dataclass
class Delivered:
    """A change of one table: its place in history, the key before and after, and the row; None for a delete."""

    at: int
    old: int
    row: Row | None


@dataclass
class Table:
    """A source table and its changes, delivered or not."""

    shop: int
    rules: list[TableRule]
    delivered: list[Delivered] = field(default_factory=list)

    def rows(self) -> tuple[dict[int, Row], dict[int, Row]]:
        """The rows by key, and the deleted ones as they were, after what was delivered in the order of history."""
        there, gone = dict[int, Row](), dict[int, Row]()
        for one in sorted(self.delivered, key=lambda one: one.at):
            if one.row is None or one.row["id"] != one.old:
                gone |= {one.old: there.pop(one.old)} if one.old in there else {}
            if one.row is not None:
                there[one.row["id"]] = one.row
                gone.pop(one.row["id"], None)
        return there, gone

    def expected(self, rule: TableRule) -> list[Row]:
        """What a mirror must hold."""
        there, gone = self.rows()
        found = [(row, False) for row in there.values() if CONDITIONS[rule.where][1](row)]
        found += [(row, True) for row in gone.values()] if rule.soft else []
        return [
            _by_rule(rule, row, deleted=deleted)
            for row, deleted in sorted(found, key=lambda one: one[0]["id"])
        ]


def _by_rule(rule: TableRule, row: Row, *, deleted: bool) -> Row:
    made = {"origin": "x", "twice": 2 * row["id"], DELETED: deleted}
    own = {rule.names.get(name, name): cell for name, cell in row.items() if not rule.leaves_out(name)}
    return own | {name: made[name] for name in rule.made if name != DELETED_AT}


def a_rule(random: Random, shop: int, into: str) -> TableRule:
    """A rule with some of what a rule may say."""
    soft = random.random() < 0.25
    where = "" if soft else random.choice(sorted(CONDITIONS))
    free = [name for name in ("text", "region") if name not in CONDITIONS[where][0]]
    without = tuple(name for name in free if random.random() < 0.3)
    made = {"origin": MadeColumn("constant", "x"), "twice": MadeColumn("compute", "id * 2", "int64")}
    chosen = {name: one for name, one in made.items() if random.random() < 0.4}
    return TableRule(
        match=f"shop_{shop}.item", into=into, where=where, without=without,
        names={} if "text" in without or random.random() < 0.5 else {"text": "words"},
        made=chosen | (SOFT if soft else {}), places=dict.fromkeys((*made, *SOFT), "x.yaml:1:1"),
    )  # fmt: skip


def tables(random: Random) -> Iterator[Table]:
    """Each with a first mirror and two further ones."""
    for shop in range(TABLES):
        yield Table(
            shop, [a_rule(random, shop, into) for into in ("", f"eu.item_{shop}", f"last.item_{shop}")]
        )


def change(random: Random, shops: Shops, table: Table) -> None:
    """Deliver a change of a table; it may come late, or give its row another key."""
    key, text = random.randrange(KEYS), random.choice(("a", "bb", "c"))
    at = random.randrange(1, shops.number + 20) * 10 + table.shop % 10 if random.random() < 0.2 else 0
    at = at or (shops.number + 10) * 10
    if at in {one.at for one in table.delivered}:
        return
    kind = random.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
    region = random.choice(("EU", "US", None))
    old = random.randrange(KEYS) if kind == "UPDATE" and random.random() < 0.3 else None
    shops.say(table.shop, kind, key, text, at, old if old != key else None, region=region)
    row = None if kind == "DELETE" else {"id": key, "text": text, "region": region}
    table.delivered.append(Delivered(at, key if old is None else old, row))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("seed", range(3))
def test_each_mirror_is_its_rule_applied_to_the_exact_table(tmp_path: Path, seed: int) -> None:
    """A mirror that one rule fills would be changed by another one's, or miss what came before it was added."""
    random = Random(seed)
    some = list(tables(random))
    shops = Shops(tmp_path, TableRule())
    for batch in range(BATCHES):
        if batch == 2:  # a further mirror of each table gets another rule, and the last one is added
            shops.warm = Warm()
            for one in some:
                one.rules[1] = a_rule(random, one.shop, one.rules[1].into)
        shown = 3 if batch >= 2 else 2
        entries = [replace(one.rules[0], also=tuple(one.rules[1:shown])) for one in some]
        shops.rule, shops.more = entries[0], tuple(entries[1:])
        for _ in range(CHANGES * TABLES):
            change(random, shops, random.choice(some))
        shops.run()
        assert shops.result is not None
        assert [] == shops.result.failures
        for one in some:
            for rule in one.rules[:shown]:
                path = f"mirrors/{rule.into.replace('.', '/') or f'shop_{one.shop}/item'}"
                found = shops.lake.ask_mirror(path, "SELECT * FROM {mirror} ORDER BY id")
                wanted = one.expected(rule)
                cells = [{name: cell for name, cell in row.items() if name != DELETED_AT} for row in found]
                assert wanted == cells, (seed, batch, rule)
    assert {} == {name: one.wrong for name, one in shops.compared(0).items() if one.wrong}
