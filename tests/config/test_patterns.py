"""Patterns of table names with groups: which tables fit, and into which mirrors they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config import load, model, patterns, target
from ingest.errors import ConfigError

HEAD = "pipeline: shop\nlake: ./lake\nsources:\n  - {name: s, path: ./x, format: dts-canal}\n"
SHARDS = r"shop_(\d+).orders_(.*)"


@pytest.mark.parametrize(
    ("pattern", "table", "groups"),
    [
        (SHARDS, ("shop_12", None, "orders_eu"), ("12", "eu")),
        (SHARDS, ("shop_x", None, "orders_eu"), None),
        (SHARDS, ("shop_12", "public", "orders_eu"), None),
        (SHARDS, ("shop_12", None, "old_orders_eu"), None),
        ("(shop|depot)_[0-9]{1,2}.*", ("shop_1", None, "x"), None),
        ("*.orders_([0-9]+)", ("any", None, "orders_7"), ("7",)),
        (r"a\.b.(t|u)", ("a.b", None, "u"), ("u",)),
        (r"([^.]*).public.t(_old)?", ("d", "public", "t"), ("d", "")),
        ("shop.orders_?", ("shop", None, "orders_1"), ()),
        ("orders", ("any", "s", "orders"), ()),
    ],
)
def test_groups_hold_parts_of_names(
    pattern: str, table: tuple[str | None, ...], groups: tuple[str, ...] | None
) -> None:
    """A dot that a regular expression repeats is not the dot between database and table."""
    assert groups == patterns.captured(pattern, TableId(*table))


def rule(tmp_path: Path, entry: str) -> str:
    """The mirror of shop_12.orders_eu by an entry, or the fault that the file has."""
    file = tmp_path / "shop.yaml"
    file.write_text(f"{HEAD}tables:\n  - {{{entry}}}\n", "utf-8")
    try:
        table = TableId("shop_12", None, "orders_eu")
        return str(target(load(file).rule(table), table))
    except ConfigError as error:
        return str(error).partition(f"{file}:")[2]


@pytest.mark.parametrize(
    ("entry", "mirror"),
    [
        (f"match: '{SHARDS}', into: 'shop.orders', shard_column: shard", "shop.orders"),
        (f"match: '{SHARDS}', into: 'shop.orders_{{2}}', shard_column: shard", "shop.orders_eu"),
        (f"match: '{SHARDS}', into: 'shop.{{2}}_{{1}}'", "shop.eu_12"),
        (f"match: '{SHARDS}', into: '{{database}}.{{2}}'", "shop_12.eu"),
    ],
)
def test_groups_are_parts_of_the_name_of_a_mirror(tmp_path: Path, entry: str, mirror: str) -> None:
    """Hundreds of sharded tables cannot be listed one by one."""
    assert mirror == rule(tmp_path, entry)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            f"match: '{SHARDS}', into: 'shop.orders_{{2}}', no_key: append",
            "brings tables of several source databases into one",
        ),
        (
            f"match: '{SHARDS}', into: 'shop.orders_{{1}}', history: true",
            "brings tables of several source tables into one",
        ),
        (
            r"match: '(a|b)\d.t', into: 'shop.{1}', no_key: full_row",
            "brings tables of several source databases into one",
        ),
        (f"match: '{SHARDS}', into: 'shop.{{3}}_{{2}}'", "{3} is not a group of match:, which has 2"),
        ("match: 'shop_*.t', into: 'shop.{1}'", "{1} is not a group of match:, which has 0"),
        (
            "match: '(shop.t', into: 'shop.t'",
            "matches no table; with groups, write a regular expression for each",
        ),
        ("match: 'shop_(a.*'", "matches no table; with groups"),
        ("match: '(shop).(t|*)'", "is not a regular expression: nothing to repeat"),
    ],
)
def test_what_would_mix_tables_or_fit_nothing_is_refused(tmp_path: Path, entry: str, fault: str) -> None:
    """Rows of two tables with one key would take each other's place."""
    assert fault in rule(tmp_path, entry)


def test_a_rule_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run asks for a table's rule some ten times: with 500 tables and as many rules that took longer than the work."""
    file = tmp_path / "shop.yaml"
    file.write_text(f"{HEAD}tables:\n  - match: shop.orders\n    exclude: true\n", "utf-8")
    pipeline, orders, names = load(file), TableId("shop", None, "orders"), list[TableId]()
    every = [orders, orders._replace(table="items"), orders]

    def matches(pattern: str, table: TableId) -> bool:
        names.append(table)
        return patterns.matches(pattern, table)

    monkeypatch.setattr(model, "matches", matches)
    assert [True, False, True] == [pipeline.rule(table).exclude for table in every]
    assert every[:2] == names
    monkeypatch.setattr(model, "_RULES_KEPT", 2)
    others = [orders._replace(table=f"t{number}") for number in range(9)]
    assert [False] * 9 == [pipeline.rule(table).exclude for table in others]
    assert 2 == len(pipeline._known_rules), "damaged messages may name any number of tables"
