"""What a column's character set does to the texts in it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ingest import ddl, formats
from ingest.change import Change, Hints, Message, Op
from ingest.gold.plan.steps import steps
from ingest.ledgers.logged_statements import Statement
from tests.gold.statements import DEPOT, converted, said, subject

MADE = "CREATE TABLE depot (no INT(6) ZEROFILL, site VARCHAR(20), made VARCHAR(20) CHARACTER SET gbk)"


@pytest.mark.parametrize(
    ("made", "clause", "expected", "doubted"),
    [
        (MADE, "CONVERT TO CHARACTER SET latin1", "???é ?? 7", ""),
        # nothing to lose any more
        (f"{MADE} CHARSET latin1", "MODIFY site VARCHAR(30)", "北京市é 北京 7", ""),
        (f"{MADE} CHARSET utf8mb4", "MODIFY made VARCHAR(30)", "北京市é 北京 7", ""),
        (f"{MADE} CHARSET ascii", "MODIFY made VARCHAR(30)", "北京市é ?? 7", ""),
        (f"{MADE} COLLATE utf8mb4_bin", "DEFAULT CHARSET latin1, MODIFY site TEXT", "???é 北京 7", ""),
        (MADE, "DEFAULT CHARSET latin1", "北京市é 北京 7", ""),
        (MADE, "MODIFY made VARCHAR(30)", "北京市é 北京 7", "made"),  # no statement names the table's set
        (MADE, "MODIFY site VARCHAR(30) CHARACTER SET armscii8", "北京市é 北京 7", "site"),
        (MADE, "CONVERT TO CHARACTER SET binary", "北京市é 北京 7", "site made"),
        (MADE, "CHANGE site site VARCHAR(30) COLLATE latin1_bin", "???é 北京 7", ""),
        (MADE, "MODIFY no VARCHAR(9)", "北京市é 北京 000007", ""),
        (MADE, "MODIFY no INT", "北京市é 北京 7", ""),
        (MADE, "MODIFY no INT, ADD x INT, CONVERT TO CHARACTER SET gbk", "北京市é 北京 7", ""),
    ],
)
def test_a_character_set_loses_what_it_lacks_and_zerofill_shows_in_texts(
    made: str, clause: str, expected: str, doubted: str
) -> None:
    """No message says so: a mirror would keep texts that the source has lost."""
    site, own, number = "北京市é", "北京", "7"
    after, unsure = converted(
        [made, f"ALTER TABLE depot {clause}"], {"site": site, "made": own, "no": number}
    )
    assert expected.split() == [after["site"], after["made"], after["no"]]
    assert set(doubted.split()) == unsure


@pytest.mark.parametrize(
    ("texts", "doubted"),
    [
        (["ALTER TABLE depot MODIFY site VARCHAR(30)"], "site"),
        (["ALTER TABLE depot CHANGE site site VARCHAR(30) NOT NULL COMMENT 'where'"], "site"),
        (["ALTER TABLE depot MODIFY no VARCHAR(9), MODIFY made VARCHAR(30)"], ""),  # a number, and ASCII
        (["ALTER TABLE depot MODIFY site VARCHAR(30) CHARACTER SET utf8mb4"], ""),
        (["ALTER TABLE depot DEFAULT CHARSET utf8mb4", "ALTER TABLE depot MODIFY site VARCHAR(30)"], ""),
        (["CREATE TABLE IF NOT EXISTS depot (site VARCHAR(9))", "ALTER TABLE depot MODIFY site TEXT"], ""),
        (["ALTER TABLE depot RENAME COLUMN site TO place", "ALTER TABLE depot MODIFY place TEXT"], "place"),
    ],
)
def test_a_text_column_takes_a_character_set_that_nothing_has_named(texts: list[str], doubted: str) -> None:
    """MySQL: without CHARACTER SET a MODIFY gives the column that of its table, whatever it had."""
    rows = {"site": "北京", "place": "北京", "made": "plain", "no": "7"}
    after, unsure = converted(texts, rows)
    assert rows == after
    assert set(doubted.split()) == unsure


def test_the_doubt_of_a_character_set_comes_once() -> None:
    """The first MODIFY settles it: a warning with every later one would be noise."""
    every = [said(f"ALTER TABLE depot MODIFY site VARCHAR({size})", size) for size in (30, 40, 50)]
    rules = [step.conversion("string") for step, _ in steps(every, subject())]
    assert [True, False, False] == [rule.doubted("é") for rule in rules] + [False] * (3 - len(rules))


def maxwell_alter(charset: str) -> Change:
    """A table event as Maxwell sends it: the structure before and after, with each column's character set."""
    columns = [{"type": "bigint", "name": "no", "signed": True}, {"type": "varchar", "name": "site"}]
    columns[1] |= {"charset": charset}
    table = {
        "database": "yard",
        "charset": charset,
        "table": "depot",
        "columns": columns,
        "primary-key": ["no"],
    }
    event = {"type": "table-alter", "database": "yard", "table": "depot", "old": table, "def": table}
    event |= {"ts": 1714550403000, "sql": "ALTER TABLE depot MODIFY site VARCHAR(30)"}
    [change] = formats.load("maxwell").parse(Message(json.dumps(event).encode()), Hints())
    return change


def debezium_alter(charset: str) -> Change:
    """A schema change as Debezium's MySQL connector sends it."""
    columns = [
        {"name": "no", "jdbcType": 4, "typeName": "INT", "typeExpression": "INT", "charsetName": None},
        {"name": "site", "jdbcType": 12, "typeName": "VARCHAR", "typeExpression": "VARCHAR", "length": 30}
        | {"charsetName": charset},
    ]
    table = {"defaultCharsetName": charset, "primaryKeyColumnNames": ["no"], "columns": columns}
    event = {
        "source": {"connector": "mysql", "name": "s", "db": "yard", "table": "depot", "file": "b.000001", "pos": 4},
        "databaseName": "yard", "schemaName": None, "ddl": "ALTER TABLE depot MODIFY site VARCHAR(30)",
        "tableChanges": [{"type": "ALTER", "id": '"yard"."depot"', "table": table}],
    }  # fmt: skip
    [change] = formats.load("debezium").parse(Message(json.dumps(event).encode()), Hints())
    return change


@pytest.mark.parametrize("event", [maxwell_alter, debezium_alter])
@pytest.mark.parametrize(
    ("charset", "expected", "doubted"),
    [("latin1", "???é", False), ("utf8mb4", "北京市é", False), ("armscii8", "北京市é", True)],
)
def test_a_structure_names_the_character_set_that_a_statement_leaves_out(
    event: Callable[[str], Change], charset: str, expected: str, doubted: bool
) -> None:
    """Maxwell and Debezium send each column's character set with the statement."""
    change = event(charset)
    assert DEPOT == change.table
    found = ddl.of_change(change)
    statement = Statement("s", "src", DEPOT, 5, "005", change.ddl or "", found.kind, found.effects)
    [(step, _)] = steps([statement], subject())
    rule = step.conversion("string")
    assert (expected, doubted) == (rule.of("北京市é"), rule.doubted("北京市é"))


def test_a_created_structure_names_character_sets_too() -> None:
    """A later MODIFY takes the table's set, and what the column had before is known."""
    structure = '{"type":"CREATE","keys":["no"],"columns":{"site":"string"},"charset":"latin1","charsets":{"site":"utf8mb4"}}'
    found = ddl.of_change(Change(op=Op.DDL, table=DEPOT, structure=structure))
    made = Statement("s1", "src", DEPOT, 1, "001", "", found.kind, found.effects)
    later = said("ALTER TABLE depot MODIFY site VARCHAR(30)", 5)
    [step] = [step for step, _ in steps([made, later], subject()) if step.action == "retype_column"]
    assert "??é" == step.conversion().of("北京é")
