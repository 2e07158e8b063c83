"""What a logged statement comes to under each policy."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.fold import SchemaStep
from ingest.gold.plan.policy import APPLIED, DISMISSED, HELD, LOGGED, NOTICED, Subject, judge
from ingest.gold.plan.steps import steps
from ingest.ledgers.decisions import APPROVE, DISMISS
from tests.gold.statements import DEPOT, declared_by, said, subject
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

CASES = [
    # statement, then the state under lenient, evolve, freeze, ignore
    ("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 1", APPLIED, APPLIED, HELD, LOGGED),
    ("ALTER TABLE depot ADD COLUMN no INT", APPLIED, APPLIED, APPLIED, LOGGED),
    ("ALTER TABLE depot DROP COLUMN site", APPLIED, APPLIED, HELD, LOGGED),
    ("ALTER TABLE depot RENAME COLUMN site TO place", APPLIED, APPLIED, HELD, LOGGED),
    ("ALTER TABLE depot MODIFY no BIGINT", APPLIED, APPLIED, HELD, LOGGED),
    ("ALTER TABLE depot MODIFY no INT", APPLIED, APPLIED, APPLIED, LOGGED),
    ("DROP TABLE depot", APPLIED, APPLIED, HELD, LOGGED),
    ("CREATE TABLE depot (no INT PRIMARY KEY, other INT)", APPLIED, APPLIED, HELD, LOGGED),
    ("CREATE TABLE IF NOT EXISTS depot (no INT PRIMARY KEY, other INT)", APPLIED, APPLIED, APPLIED, LOGGED),
    ("TRUNCATE TABLE depot", APPLIED, APPLIED, APPLIED, LOGGED),
    ("ALTER TABLE depot TRUNCATE PARTITION p1", HELD, HELD, HELD, HELD),
    ("RENAME TABLE hall TO depot", HELD, HELD, HELD, HELD),
    ("RENAME TABLE depot TO _depot_del, _depot_gho TO depot", APPLIED, APPLIED, APPLIED, LOGGED),
    ("RENAME TABLE depot TO hall", APPLIED, APPLIED, APPLIED, LOGGED),
    ("ALTER TABLE depot FROBNICATE", NOTICED, NOTICED, HELD, LOGGED),
]


@pytest.mark.parametrize("policy", ["lenient", "evolve", "freeze", "ignore"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_state(case: tuple[str, ...], policy: str) -> None:
    """A statement in the wrong column changes a frozen mirror, or stops one that should go on."""
    text, *states = case
    expected = dict(zip(("lenient", "evolve", "freeze", "ignore"), states, strict=True))[policy]
    assert expected == judge(said(text), subject(policy)).state


def test_decisions_win() -> None:
    """An approved statement that stays held, or a dismissed one that is applied, makes the verbs a lie."""
    text = "ALTER TABLE depot ADD COLUMN gate INT DEFAULT 1"
    assert APPLIED == judge(said(text, decided=APPROVE), subject("freeze")).state
    assert DISMISSED == judge(said(text, decided=DISMISS), subject("lenient")).state
    assert (
        DISMISSED == judge(said("ALTER TABLE depot TRUNCATE PARTITION p1", decided=DISMISS), subject()).state
    )
    assert [] == steps([said(text, decided=DISMISS)], subject())


def test_nothing_is_frozen_before_the_first_rows() -> None:
    """A frozen mirror that is held before it exists can never begin."""
    text = "ALTER TABLE depot ADD COLUMN gate INT"
    assert APPLIED == judge(said(text, batch=5), subject("freeze", free_until=5)).state
    assert HELD == judge(said(text, batch=6), subject("freeze", free_until=5)).state


def test_several_effects_in_one_statement() -> None:
    """Operators approve what they read: each effect is named, widening and narrowing apart."""
    text = (
        "ALTER TABLE depot ADD COLUMN gate INT DEFAULT 1, DROP COLUMN site, MODIFY no BIGINT, "
        "MODIFY load DECIMAL(5,1), RENAME COLUMN no TO nr"
    )
    assert (
        "keeps column site; rows sent from there on have NULL",
        "widens column no to BIGINT",
        "keeps column load as DECIMAL(10,2), which holds the new values too",
        "adds column nr with the values of no, and keeps no",
        "adds column gate (INT); existing rows get '1'",
    ) == judge(said(text), subject()).does
    assert "drops column site" in judge(said(text), subject("evolve")).does


def test_a_description_is_not_called_a_statement_that_deletes_rows() -> None:
    """A connector's snapshot, or a message about a table, was said to delete rows, which it does not."""
    described = dataclasses.replace(said("CREATE TABLE depot (id INT PRIMARY KEY)"), kind="none")
    for policy in ("lenient", "evolve"):
        assert judge(described, subject(policy)).does == (
            f"describes {subject().table}: gives its keys and columns, and changes no rows",
        )


def test_shown() -> None:
    """A CREATE without rows must give keys and types; under evolve dropped names must be known as gone."""
    history = [
        said("CREATE TABLE depot (no INT, site VARCHAR(9), load DECIMAL(8,3), PRIMARY KEY (no, site))", 1),
        said("ALTER TABLE depot RENAME COLUMN site TO place, DROP COLUMN load", 2),
        said("ALTER TABLE depot MODIFY no BIGINT, ADD COLUMN load INT", 3),
    ]
    lenient, evolve = declared_by(history, subject()), declared_by(history, subject("evolve"))
    assert ("no", "place") == lenient.keys
    assert {"no": "int64", "site": "string", "load": "int32", "place": "string"} == lenient.columns
    assert {"no": "int64", "load": "int32", "place": "string"} == evolve.columns
    assert {"site": "002"} == evolve.gone


def test_renamed_columns_keep_the_mirror_type() -> None:
    """A column whose type no statement gave would become text under its new name."""
    assert {"nr": "int32"} == declared_by(
        [said("ALTER TABLE depot RENAME COLUMN no TO nr")], subject()
    ).columns


def test_a_name_that_comes_again_starts_empty() -> None:
    """The mirror keeps dropped columns: without this the new column shows the old one's values."""
    history = [
        said("ALTER TABLE depot DROP COLUMN site, RENAME COLUMN load TO weight", 1),
        said("ALTER TABLE depot ADD COLUMN site INT DEFAULT 4, ADD COLUMN load INT", 2),
    ]
    expected = [
        (SchemaStep("001", "rename_column", "load", "weight"), 1),
        (SchemaStep("002", "drop_column", "site"), 2),
        (SchemaStep("002", "add_column", "site", default="4"), 2),
        (SchemaStep("002", "drop_column", "load"), 2),
    ]
    assert expected == steps(history, subject())


def test_columns_whose_names_differ_in_letter_case_alone_are_two_columns() -> None:
    """PostgreSQL and Oracle have both: the second one must not remove the first."""
    found = declared_by([said('ALTER TABLE depot ADD COLUMN "Site" TEXT')], subject())
    assert ({}, "string") == (found.gone, found.columns["Site"])
    again = declared_by([said("ALTER TABLE depot DROP COLUMN site, ADD COLUMN `Site` TEXT")], subject())
    assert ["site"] == list(again.gone)
    created = said("CREATE TABLE depot (NO INT PRIMARY KEY, SITE TEXT)")
    assert {} == declared_by([created], subject()).gone  # rows go on to spell their columns otherwise


@pytest.mark.parametrize("rule", [TableRule("d.*", history=True), TableRule("d.*", shard_column="shard")])
def test_a_name_in_another_letter_case_stays_where_others_have_values_under_it(rule: TableRule) -> None:
    """Older states of rows, and other tables of one mirror, would lose them."""
    renamed = said("ALTER TABLE depot RENAME COLUMN site TO Site")
    assert ["site"] == list(declared_by([renamed], subject()).gone)
    assert ["rename_column", "drop_column"] == [step.action for step, _ in steps([renamed], subject())]
    kept = Subject.of(rule, DEPOT, None, 0, sent={"no": "int32", "site": "int32"})
    assert {} == declared_by([renamed], kept).gone
    assert ["rename_column"] == [step.action for step, _ in steps([renamed], kept)]


def test_a_plain_create_begins_a_table() -> None:
    """CREATE TABLE succeeds only where no such table exists; with IF NOT EXISTS, and repeated, it proves nothing."""
    create, drop = "CREATE TABLE depot (no INT PRIMARY KEY)", "DROP TABLE depot"
    guarded, away = (
        "CREATE TABLE IF NOT EXISTS depot (no INT PRIMARY KEY)",
        "RENAME TABLE depot TO depot_2024",
    )
    assert [(SchemaStep("001", "new_incarnation"), 1)] == steps([said(create, 1), said(create, 2)], subject())
    assert [] == steps([said(guarded, 1)], subject())
    for gone in (drop, away):
        expected = [(SchemaStep("002", "new_incarnation"), 2)]
        assert expected == steps([said(gone, 1), said(guarded, 2)], subject())
        assert expected == steps([said(gone, 1), said(create, 2)], subject())
        assert [] == steps([said(gone, 1), said(create, 2)], subject("ignore"))


def test_a_create_that_proves_nothing_is_not_said_to_delete_rows() -> None:
    """`ingest ddl` called rows deleted that were still there, and right."""
    guarded = judge(said("CREATE TABLE IF NOT EXISTS depot (no INT PRIMARY KEY)"), subject()).does
    assert "deleted only if it was dropped before" in " ".join(guarded)
    plain = judge(said("CREATE TABLE depot (no INT PRIMARY KEY)"), subject()).does
    assert "earlier rows are deleted" in " ".join(plain)


def test_concerns_both_names_of_a_rename() -> None:
    """A rename concerns the new name's mirror, too, whichever table the message names."""
    statement = said("RENAME TABLE hall TO annex")
    assert [True, True, False] == [
        TableId("yard", None, name) in statement.tables for name in ("hall", "annex", "depot")
    ]
    assert DEPOT in said("?").tables


def test_a_statement_that_converts_values_is_a_step() -> None:
    """Rows that exist would keep their old values; a type that only widens must not fold a mirror again."""
    history = [
        said("CREATE TABLE depot (no INT, load DECIMAL(10,4), at DATETIME(6), PRIMARY KEY (no))", 1),
        said("ALTER TABLE depot MODIFY no BIGINT, MODIFY load DECIMAL(10,2)", 2),
        said("ALTER TABLE depot CHANGE at seen DATETIME(3)", 3),
        said("ALTER TABLE depot MODIFY seen DATETIME(6), MODIFY load DECIMAL(10,2) NOT NULL", 4),
        said("ALTER TABLE depot MODIFY site VARCHAR(9)", 5),  # no statement has said its old type
    ]
    found = [(step.column, step.old, step.type) for step, _ in steps(history, subject()) if step.type]
    expected = [
        ("load", "decimal(10,4)", "decimal(10,2)"),
        ("seen", "datetime(6)", "datetime"),
        ("load", "decimal(10,2)", "decimal(10,2)"),  # NULL becomes zero
        ("site", "", "string"),
    ]
    assert expected == found


def test_a_statement_that_spells_all_names_otherwise_than_the_rows_takes_none_away() -> None:
    """A column that later rows do not name, for it is NULL in them, was dropped with its values."""
    created = said("CREATE TABLE depot (NO INT PRIMARY KEY, SITE INT, NOTE INT)")
    known = dict.fromkeys(("no", "site", "note", "NO", "SITE", "NOTE"), "int32")
    rows = {"no": "int32", "site": "int32"}
    assert {} == declared_by([created], Subject(DEPOT, "lenient", known, sent=rows)).gone
    assert {} == declared_by([created], Subject(DEPOT, "lenient", known)).gone  # a batch without rows
    assert {"site", "note"} <= declared_by(
        [created], Subject(DEPOT, "lenient", known, sent={**rows, "NO": ""})
    ).gone.keys()


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
def test_a_table_created_again_has_its_new_columns_only(tmp_path: Path, cut: bool) -> None:
    """Under evolve a mirror has the source's columns: those of the table before were left, with NULL in each row."""
    shops = Shops(tmp_path, TableRule("shop_1.item", on_schema_change="evolve"), dialect="canal")
    shops.ddl("CREATE TABLE item (id BIGINT PRIMARY KEY, text VARCHAR(9), shelf INT, note VARCHAR(9))")
    shops.say(1, "INSERT", 1, "a", note="x")
    if cut:
        assert ("done", "") == shops.run()
    shops.ddl("DROP TABLE item").ddl("CREATE TABLE item (id BIGINT PRIMARY KEY, text VARCHAR(9), place INT)")
    for key in range(2, 4):
        assert ("done", "") == shops.say(1, "INSERT", key, "b").run()
        found = shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT * FROM {mirror}")
        assert {"id": 2, "text": "b", "place": None} in found
    # what rows have, though no statement named it, stays
    assert ("done", "") == shops.say(1, "INSERT", 4, "c", note="y").run()
    assert ("done", "") == shops.say(1, "INSERT", 5, "d").run()
    found = shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT * FROM {mirror} WHERE id = 4")
    assert [{"id": 4, "text": "c", "place": None, "note": "y"}] == found


def test_a_dropped_column_that_rows_have_again(tmp_path: Path) -> None:
    """No statement said that it was added again: the next one of any kind deleted its new values."""
    shops = Shops(tmp_path, TableRule("shop_1.item", on_schema_change="evolve"), dialect="canal")
    shops.ddl("CREATE TABLE item (id BIGINT PRIMARY KEY, text VARCHAR(9), note VARCHAR(9))")
    assert ("done", "") == shops.say(1, "INSERT", 1, "a", note="x").run()
    assert ("done", "") == shops.ddl("ALTER TABLE item DROP COLUMN note").run()
    assert ("done", "") == shops.say(1, "INSERT", 2, "b", note="y").run()
    shops.ddl("ALTER TABLE item ADD COLUMN shelf INT")
    assert ("done", "") == shops.say(1, "INSERT", 3, "c").run()
    found = shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT id, note FROM {mirror}")
    assert {1: None, 2: "y", 3: None} == {row["id"]: row["note"] for row in found}


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE item DROP COLUMN note"],
        ["DROP TABLE item", "CREATE TABLE item (id BIGINT PRIMARY KEY, text VARCHAR(9))"],
    ],
)
def test_rows_around_a_statement_in_one_batch(statements: list[str], tmp_path: Path) -> None:
    """Rows before it, of the same batch, made the column of the rows after it seem gone."""
    shops = Shops(tmp_path, TableRule("shop_1.item", on_schema_change="evolve"), dialect="canal")
    shops.ddl("CREATE TABLE item (id BIGINT PRIMARY KEY, text VARCHAR(9), note VARCHAR(9))")
    shops.say(1, "INSERT", 1, "a", note="x")
    for text in statements:
        shops.ddl(text)
    assert ("done", "") == shops.say(1, "INSERT", 3, "c").say(1, "INSERT", 2, "b", note="y").run()
    found = shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT note FROM {mirror} WHERE id = 2")
    assert [{"note": "y"}] == found


def test_a_key_that_no_statement_names(tmp_path: Path) -> None:
    """OMS numbers the rows of a table without a key in a column of its own, which the CREATE does not have."""
    shops = Shops(tmp_path, TableRule("shop_1.item", on_schema_change="evolve", keys=("id",)))
    shops.say(1, "INSERT", 1, "a").ddl("DROP TABLE item").ddl("CREATE TABLE item (text VARCHAR(9))")
    assert ("done", "") == shops.say(1, "INSERT", 2, "b").say(1, "UPDATE", 2, "c").run()
    assert {2: "c"} == shops.rows("mirrors/shop_1/item")


def test_columns_that_a_statement_does_not_name() -> None:
    """The columns of LIKE and AS SELECT are in no message; a CREATE of a table that exists changes nothing."""
    known = {"no": "int32", "site": "string"}
    for text in (
        "CREATE TABLE depot LIKE hall", "CREATE TABLE depot (no INT) AS SELECT * FROM hall",
        "CREATE TABLE IF NOT EXISTS depot (no INT PRIMARY KEY)",
    ):  # fmt: skip
        assert {} == declared_by([said(text)], Subject(DEPOT, "evolve", known)).gone, text
    again = said("CREATE TABLE depot (no INT PRIMARY KEY)")
    assert {"site"} == declared_by([again], Subject(DEPOT, "evolve", known)).gone.keys()
    assert {} == declared_by([again], Subject(DEPOT, "lenient", known)).gone


def pending(shops: Shops) -> list[tuple[str, str]]:
    """What the checks of statements that wait, and of values that only the source knows, say after the next batch."""
    shops.stages = ("bronze", "silver", "gold", "quality")
    shops.run()
    found = shops.lake.ask(
        "SELECT mirror, state FROM {checks} WHERE \"check\" IN ('ddl_pending', 'unknown_values') AND observed > 0"
    )
    return [(row["mirror"], row["state"]) for row in found]


@pytest.mark.parametrize("placed", [True, False])
def test_a_truncate_that_only_the_schema_topic_contains(tmp_path: Path, placed: bool) -> None:
    """With ``skipped.operations: t`` no message says so: its rows stayed, though the ledger said applied."""
    source: dict[str, Any] = {"connector": "mysql", "name": "cap", "ts_ms": 1714564800250, "snapshot": "false", "db": "shop",
                              "table": "orders", "server_id": 1, "row": 0}  # fmt: skip
    row = {
        "source": source | {"file": "b.1", "pos": 4},
        "op": "c",
        "before": None,
        "after": {"id": 1},
        "ts_ms": 1,
    }
    position = source | ({"file": "b.1", "pos": 90} if placed else {})
    empties = {
        "source": position,
        "databaseName": "shop",
        "schemaName": None,
        "ddl": "TRUNCATE TABLE orders",
        "tableChanges": [],
    }
    shops = Shops(tmp_path, TableRule("shop.orders", keys=("id",)), dialect="debezium")
    shops.lines = [json.dumps(row)]
    assert ("done", "") == shops.run()
    shops.lines, shops.number = [json.dumps(empties)], 1
    assert ([] if placed else [("shop.orders", "fail")]) == pending(shops)
    left = [] if placed else [{"id": "1"}]
    assert left == shops.lake.ask_mirror(
        "mirrors/shop/orders", "SELECT CAST(id AS VARCHAR) AS id FROM {mirror}"
    )


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("ALTER TABLE item ADD COLUMN made DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", "fail"),
        ("ALTER TABLE item ADD COLUMN made INT GENERATED ALWAYS AS (id + 1)", "fail"),
        (
            "RENAME TABLE item TO _item_del, _item_gho TO item",
            "warn",
        ),  # the copy's own statements were not sent
        ("ALTER TABLE item FROBNICATE", "fail"),
    ],
)
def test_what_only_the_source_knows_is_asked_for(statement: str, state: str, tmp_path: Path) -> None:
    """Existing rows have NULL, or what was done to a copy is missing: green checks would say that all is right."""
    shops = Shops(tmp_path, TableRule("shop_1.item")).say(1, "INSERT", 1, "a")
    shops.ddl(statement)
    assert [("shop_1.item", state)] == pending(shops.say(1, "INSERT", 2, "b"))


def test_a_doubtful_create_holds(tmp_path: Path) -> None:
    """If the server keeps the case of names, the rows of the first table would go with the CREATE of the second."""
    shops = Shops(tmp_path, TableRule("shop_1.item")).say(1, "INSERT", 1, "a")
    assert ("done", "") == shops.run()
    state, why = shops.ddl("CREATE TABLE Item (id BIGINT PRIMARY KEY, text VARCHAR(9))").run()
    assert (state, {1: "a"}) == ("held", shops.rows("mirrors/shop_1/item"))
    assert "waits for a decision (CREATE TABLE Item" in why
