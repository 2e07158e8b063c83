"""What a statement does to the values of a column, and who folds it, without Spark."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.fold import SchemaStep
from ingest.gold.fold.retyped import ALTERED, OPEN, RESPELT, effect, is_open, on_defaults
from ingest.order import Order
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.scenarios.crashing import AFTER, Point, killed_at
from tests.shops import Shops
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = Order(0, 1, (3,), 0, (1,), 0)


def retype(**parts: Any) -> SchemaStep:
    """A step that makes INT of a column."""
    return SchemaStep(AT, "retype_column", "v", type="int32", declared="INT", **parts)


def test_an_effect_is_of_the_value_and_not_of_the_type() -> None:
    """A mirror is folded again, and the operator asked, only where a value gives reason to."""
    step = retype(old="string")
    assert 0 == effect(step, "12", "")
    assert RESPELT == effect(step, "012", "")
    assert ALTERED | RESPELT == effect(step, "12abc", "")
    assert OPEN & effect(step, "1.5", "")
    assert 0 == effect(step, None, "")
    assert ALTERED | RESPELT == effect(retype(solid=True, zero="0"), None, "")
    assert OPEN == effect(retype(solid=True), None, "")


def test_a_key_that_changes_is_open() -> None:
    """Two rows may have one key then."""
    assert is_open(retype(), ALTERED | RESPELT, {"v": "int32"})
    assert not is_open(retype(), RESPELT, {"v": "int32"})
    assert is_open(retype(), RESPELT, {"v": "string"})


def test_values_that_rows_have_by_a_default_are_met() -> None:
    """No message holds them."""
    added = SchemaStep(AT._replace(sequence=(2,)), "add_column", "v", default="x")
    assert ALTERED | RESPELT == on_defaults(retype(old="string"), ["v"], [added])
    assert 0 == on_defaults(retype(old="string"), ["v"], [added._replace(order=AT._replace(sequence=(4,)))])


def test_what_cannot_be_known_is_recorded_without_spark(tmp_path: Path) -> None:
    """Folded by Arrow, a mirror would lose the reject that says so, and a run that was killed would write it twice."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    texts = {"id": "int", "n": "varchar(9)"}
    for i, n in enumerate(["1", "012", "1.5"]):
        depot.say(
            isDdl=False, type="INSERT", data=[{"id": str(i), "n": n}], mysqlType=texts, pkNames=["id"], sql=""
        )
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot MODIFY COLUMN n INT").row(id="9", n="9")
    with killed_at(Point("gold", "append", "rejects", AFTER), depot.pipeline.lake):
        depot.run()
    assert ("done", "") == depot.run()
    assert "" == depot.why_merge
    lake = depot.lake()
    found = lake.ask('SELECT "column", reason FROM {rejects}')
    assert [{"column": "n", "reason": "values-not-known"}] == found
    mirror = lake.ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror} AS m ORDER BY id")
    assert [(0, "1"), (1, "12"), (2, "2"), (9, "9")] == [tuple(row.values()) for row in mirror]


CORRECTED: dict[str, tuple[list[dict[str, Any]], bool]] = {  # by what became of a row with 1.5, which MySQL and MariaDB convert otherwise: its messages, and whether the new value is not known
    "corrected": ([{"type": "UPDATE", "data": [{"id": "1", "n": "2"}], "old": [{"n": "1.5"}]}], False),
    "set to NULL": ([{"type": "UPDATE", "data": [{"id": "1", "n": None}], "old": [{"n": "1.5"}]}], False),
    "deleted": ([{"type": "DELETE", "data": [{"id": "1", "n": "1.5"}]}], False),
    "emptied": ([{"type": "DDL", "isDdl": True, "sql": "TRUNCATE TABLE {}"}], False),
    "deleted and there again": ([{"type": "DELETE", "data": [{"id": "1", "n": "1.5"}]}, {"type": "INSERT", "data": [{"id": "1", "n": "2.5"}]}], True),
    "moved and corrected": ([{"type": "UPDATE", "data": [{"id": "5", "n": "2"}], "old": [{"id": "1", "n": "1.5"}]}], False),
    "moved": ([{"type": "UPDATE", "data": [{"id": "5", "n": "1.5"}], "old": [{"id": "1"}]}], True),
    "there": ([], True),
}  # fmt: skip


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
def test_values_that_were_gone_before_the_type_changed_ask_nothing(tmp_path: Path, cut: bool) -> None:
    """A source in strict mode has values corrected first: each such MODIFY failed the run, for a value that was long gone."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    tables = {f"depot{i}": case for i, case in enumerate(CORRECTED)}
    texts = {"isDdl": False, "mysqlType": {"id": "int", "n": "varchar(9)"}, "pkNames": ["id"], "sql": ""}
    for table, case in tables.items():
        row = texts | {"table": table}
        for key, cell in (("1", "1.5"), ("3", "4")):
            depot.say(**row, type="INSERT", data=[{"id": key, "n": cell}])
        for members in CORRECTED[case][0]:
            depot.say(**row | members | {"sql": members.get("sql", "").format(table)})
    if cut:
        assert ("done", "") == depot.run(checked=True)
    for table in tables:
        depot.say(isDdl=True, sql=f"ALTER TABLE {table} MODIFY n INT", type="DDL", table=table)
    assert ("done", "") == depot.run(checked=True)
    failed = depot.lake().ask("SELECT DISTINCT mirror, \"check\" FROM {checks} WHERE state <> 'pass'")
    open_cases = {case for case, (_, is_open) in CORRECTED.items() if is_open}
    assert {(case, "unknown_values") for case in open_cases} == {
        (tables[row["mirror"].removeprefix("yard.")], row["check"]) for row in failed
    }
    rejects = depot.lake().ask('SELECT DISTINCT "table" FROM {rejects}')
    assert open_cases == {tables[row["table"]] for row in rejects}


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_column_that_has_the_name_of_a_dropped_one_is_judged_by_its_own_cells(
    tmp_path: Path, cut: int
) -> None:
    """DROP a, RENAME b TO a, MODIFY a: the dropped column's cells were looked at, so that 1.5 was converted without a word or not at
    all, and a dropped 1.5 was asked about.
    """
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    texts = {
        "isDdl": False,
        "mysqlType": {"id": "int", "a": "varchar(9)", "b": "varchar(9)"},
        "pkNames": ["id"],
        "sql": "",
    }
    cases = {"asked": ("1", "1.5"), "sure": ("1.5", "1"), "null": ("7", None)}
    for table, (dropped, kept) in cases.items():
        depot.say(**texts, table=table, type="INSERT", data=[{"id": "1", "a": dropped, "b": kept}])
    for number, clause in enumerate(("DROP a", "RENAME COLUMN b TO a", "MODIFY a INT"), 1):
        if cut == number:
            depot.run()
        for table in cases:
            depot.say(isDdl=True, sql=f"ALTER TABLE {table} {clause}", type="DDL", table=table)
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    rows = {table: lake.ask_mirror(f"mirrors/yard/{table}", "SELECT a FROM {mirror}") for table in cases}
    assert {"asked": [{"a": "2"}], "sure": [{"a": "1"}], "null": [{"a": None}]} == rows
    failed = lake.ask("SELECT mirror, \"check\" FROM {checks} WHERE state <> 'pass'")
    assert [("yard.asked", "unknown_values")] == [tuple(row.values()) for row in failed]


def moved(was: str, key: str, cell: str) -> dict[str, Any]:
    """A message of a row that gets another key and keeps its cell."""
    return {"type": "UPDATE", "data": [{"id": key, "n": cell}], "old": [{"id": was}]}


MET: dict[str, tuple[list[dict[str, Any]], str, bool]] = {  # by what rows with 1.5 and 4 did under the keys 1 and 2: the messages of one transaction, its name, and whether 1.5 may be there still
    "each to the next key": ([moved("1", "2", "1.5"), moved("2", "3", "4")], "g:2", True),
    "each to the next key, without a transaction": ([moved("1", "2", "1.5"), moved("2", "3", "4")], "", True),
    "exchanged": ([moved("1", "2", "1.5"), moved("2", "1", "4")], "g:2", True),
    "to a free key and on": ([moved("1", "5", "1.5"), moved("5", "6", "1.5"), {"type": "DELETE", "data": [{"id": "6", "n": "1.5"}]}], "g:2", False),
    "new and deleted": ([{"type": "INSERT", "data": [{"id": "5", "n": "2.5"}]}, {"type": "DELETE", "data": [{"id": "5", "n": "2.5"}]}, {"type": "DELETE", "data": [{"id": "1", "n": "1.5"}]}], "g:2", False),
}  # fmt: skip


@pytest.mark.parametrize("name", MET)
def test_a_value_is_not_gone_where_another_row_leaves_its_key(tmp_path: Path, name: str) -> None:
    """The row that had the key left it last, and the one that had come to it counted as gone, with its value."""
    messages, transaction, is_asked = MET[name]
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    texts = {"isDdl": False, "mysqlType": {"id": "int", "n": "varchar(9)"}, "pkNames": ["id"], "sql": ""}
    for key, cell in (("1", "1.5"), ("2", "4")):
        depot.say(**texts, type="INSERT", data=[{"id": key, "n": cell}], gtid="g:1")
    for message in messages:
        depot.say(**texts | message, gtid=transaction)
    depot.ddl("ALTER TABLE depot MODIFY n INT")
    assert ("done", "") == depot.run(checked=True)
    failed = depot.lake().ask("SELECT \"check\" FROM {checks} WHERE state = 'fail'")
    assert is_asked == ("unknown_values" in {row["check"] for row in failed})


@pytest.mark.parametrize("stays", [False, True])
def test_a_zero_that_was_gone_before_keys_were_numbered(tmp_path: Path, stays: bool) -> None:
    """AUTO_INCREMENT gives a row with 0 a new number: a row that was deleted asked for the whole table."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    depot.row(id="0", n="1").row(id="2", n="2")
    if not stays:
        depot.row("DELETE", id="0", n="1")
    depot.ddl("ALTER TABLE depot MODIFY id BIGINT AUTO_INCREMENT").row(id="3", n="3")
    assert ("done", "") == depot.run(checked=True)
    assert stays == bool(depot.lake().ask("SELECT 1 AS n FROM {rejects}"))


def test_a_zero_stays_in_keys_that_were_numbered_before(tmp_path: Path) -> None:
    """A server copies zeros from one AUTO_INCREMENT column to another (`mysql_alter_table`); the whole table was asked for."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    depot.ddl("CREATE TABLE depot (id INT AUTO_INCREMENT PRIMARY KEY, n INT)").row(id="0", n="1")
    depot.ddl("ALTER TABLE depot MODIFY id BIGINT AUTO_INCREMENT").row(id="3", n="3")
    depot.ddl("ALTER TABLE depot CHANGE id key_id BIGINT UNSIGNED AUTO_INCREMENT")
    assert ("done", "") == depot.run(checked=True)
    assert [] == depot.lake().ask("SELECT reason FROM {rejects}")


FILLED: dict[str, tuple[list[Any], bool]] = {  # by what rows have in the column when it becomes NOT NULL: statements and rows before it, and whether some value is not known
    "a default": (["ALTER TABLE depot ADD n INT DEFAULT 3"], False),
    "a default of NOT NULL": (["ALTER TABLE depot ADD n INT NOT NULL DEFAULT 3"], False),
    "NULL before, now a value": (["ALTER TABLE depot ADD n INT DEFAULT 3", {"id": "1", "n": None}, {"id": "1", "n": "5"}], False),
    "NULL in a row that is gone": (["ALTER TABLE depot ADD n INT DEFAULT 3", {"id": "1", "n": None}, "DELETE"], False),
    "NULL in a row before all were": (["ALTER TABLE depot ADD n INT DEFAULT 3", {"id": "1", "n": None}, "TRUNCATE TABLE depot"], False),
    "NULL in a row that has got another key": (["ALTER TABLE depot ADD n INT DEFAULT 3", {"id": "1", "n": None}, {"id": "2", "n": "5", "was": "1"}], False),
    "NULL in a row that has taken it to another key": (["ALTER TABLE depot ADD n INT DEFAULT 3", {"id": "1", "n": None}, {"id": "2", "n": None, "was": "1"}], True),
    "NULL": (["ALTER TABLE depot ADD n INT DEFAULT 3", {"id": "1", "n": None}], True),
    "NULL of a row of before": (["ALTER TABLE depot ADD n INT", "ALTER TABLE depot ALTER n SET DEFAULT 3"], True),
}  # fmt: skip


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
def test_not_null_asks_only_where_a_row_had_null(tmp_path: Path, cut: bool) -> None:
    """A source in strict mode has every NULL filled first: each such MODIFY failed the run, for a NULL that was long gone."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    tables = {f"depot{i}": case for i, case in enumerate(FILLED)}
    of_rows = {"isDdl": False, "mysqlType": {"id": "int", "n": "int"}, "pkNames": ["id"], "sql": ""}
    held: dict[str, str | None] = {}  # what the row of each table has; at first the default

    def say(table: str, step: Any) -> None:
        row = of_rows | {"table": table}
        if isinstance(step, dict):
            image = {name: value for name, value in step.items() if name != "was"}
            left = {"id": step["was"]} if "was" in step else {}
            depot.say(**row, type="UPDATE", data=[image], old=[{"n": held.get(table, "3"), **left}])
            held[table] = step["n"]
        elif step == "DELETE":
            depot.say(**row, type="DELETE", data=[{"id": "1", "n": None}])
        else:
            depot.say(isDdl=True, sql=step.replace("depot", table), type="DDL", table=table)

    for table, case in tables.items():
        row = of_rows | {"table": table, "mysqlType": {"id": "int"}}
        depot.say(**row, type="INSERT", data=[{"id": "1"}])
        for step in FILLED[case][0]:
            say(table, step)
    if cut:
        assert ("done", "") == depot.run(checked=True)
    for table in tables:
        say(table, "ALTER TABLE depot MODIFY n INT NOT NULL")
        depot.say(**of_rows | {"table": table}, type="INSERT", data=[{"id": "9", "n": "9"}])
    assert ("done", "") == depot.run(checked=True)
    failed = depot.lake().ask("SELECT DISTINCT mirror, \"check\" FROM {checks} WHERE state = 'fail'")
    rejects = depot.lake().ask('SELECT DISTINCT "table" FROM {rejects}')
    is_open = {case for case, (_, is_open) in FILLED.items() if is_open}
    assert {(case, "unknown_values") for case in is_open} == {
        (tables[row["mirror"].removeprefix("yard.")], row["check"]) for row in failed
    }
    assert is_open == {tables[row["table"]] for row in rejects}
    assert {"9"} == {
        str(row["n"])
        for table in tables
        for row in depot.lake().ask_mirror(f"mirrors/yard/{table}", "SELECT n FROM {mirror} WHERE id = 9")
    }


@pytest.mark.parametrize(("filled", "is_open"), [((1, 2), False), ((2,), True)])
def test_not_null_after_the_key_has_another_name(
    tmp_path: Path, filled: tuple[int, ...], is_open: bool
) -> None:
    """Rows of before the rename are told apart by the key's name of then."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row: dict[str, Any] = {
        "isDdl": False,
        "sql": "",
        "mysqlType": {"id": "int", "n": "int"},
        "pkNames": ["id"],
    }
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n INT DEFAULT 3)")
    for number in (1, 2):
        depot.say(**row, type="INSERT", data=[{"id": str(number), "n": None}])
    for number in filled:
        depot.say(**row, type="UPDATE", data=[{"id": str(number), "n": "5"}], old=[{"n": None}])
    depot.ddl("ALTER TABLE depot RENAME COLUMN id TO k")
    depot.ddl("ALTER TABLE depot MODIFY n INT NOT NULL")
    renamed = {"mysqlType": {"k": "int", "n": "int"}, "pkNames": ["k"]}
    depot.say(**row | renamed, type="INSERT", data=[{"k": "9", "n": "9"}])
    assert ("done", "") == depot.run()
    assert is_open == bool(depot.lake().ask("SELECT reason FROM {rejects}"))


RENAMED = "ALTER TABLE depot RENAME COLUMN id TO uid"
MOVED = "ALTER TABLE depot DROP PRIMARY KEY, ADD PRIMARY KEY (n)"
OLD_KEYS: dict[str, tuple[list[Any], list[tuple[int, int]], bool]] = {  # statements and rows after a MODIFY that makes 0 of the key 'x'; keys with values after them, and whether the MODIFY is reported without a CREATE that says what the key was
    "another name": ([RENAMED], [(0, 1)], False),
    "another name, and a row": ([RENAMED, {"uid": "9", "n": "9"}], [(0, 1), (9, 9)], False),
    "another name after a row": ([{"id": "5", "n": "5"}, RENAMED], [(0, 1), (5, 5)], True),
    "another name after a row is gone": (["DELETE", RENAMED, {"uid": "9", "n": "9"}], [(0, 1), (9, 9)], True),
    "another key after a row is gone": (["DELETE", MOVED, {"id": "9", "n": "9"}], [(0, 1), (9, 9)], True),
    "another key": ([MOVED, {"id": "9", "n": "9"}], [(0, 1), (9, 9)], False),
}  # fmt: skip


@pytest.mark.one_of(4, "cut", "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("case", OLD_KEYS)
def test_a_key_that_changes_before_the_key_is_another_one(
    tmp_path: Path, case: str, cut: bool, policy: Any
) -> None:
    """The row was lost, as its text was no value of the key's last type; or it stayed after its delete, and nothing said so.

    Where a CREATE says what the key was, the row has the key that the statement has given it.
    """
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*", on_schema_change=policy))
    said, expected, is_reported = OLD_KEYS[case]
    row: dict[str, Any] = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    if policy == "lenient":  # else only messages name the old type
        depot.ddl("CREATE TABLE depot (id VARCHAR(9) PRIMARY KEY, n INT)")
    depot.say(**row, data=[{"id": "x", "n": "1"}], mysqlType={"id": "varchar(9)", "n": "int"})
    if cut:
        assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot MODIFY id INT NOT NULL")
    for one in said:
        if isinstance(one, dict):
            row["pkNames"] = ["uid" if "uid" in one else "n" if MOVED in said else "id"]
            depot.say(**row, data=[one], mysqlType=dict.fromkeys(one, "int"))
        elif one == "DELETE":
            cells = {"id": "0", "n": "1"}
            depot.say(**row | {"type": one}, data=[cells], mysqlType=dict.fromkeys(cells, "int"))
        else:
            depot.ddl(one)
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    name = "uid" if RENAMED in said else "id"
    found = lake.ask_mirror(
        "mirrors/yard/depot", f"SELECT CAST({name} AS INT) AS k, n FROM {{mirror}} ORDER BY n"
    )
    is_reported = is_reported and policy != "lenient"
    if "DELETE" in said and not is_reported:
        expected = expected[1:]
    assert expected == [(one["k"], one["n"]) for one in found]
    failed = lake.ask("SELECT \"check\" FROM {checks} WHERE state = 'fail'")
    assert ({"unknown_values"} if is_reported else set()) == {one["check"] for one in failed}


WIDER: dict[str, tuple[str, str, str, str, str]] = {  # types before and after, as messages name them too, and a key before and after, and a new one
    "zeros after bytes": ("binary(4)", "BINARY(6)", "AQIDBA==", "AQIDBAAA", "AQIDBAUG"),
    "bytes of a length that messages do not say": ("binary", "BINARY(6)", "AQIDBA==", "AQIDBAAA", "AQIDBAUG"),
    "zeros after bytes of any length": ("varbinary(4)", "BINARY(6)", "AQI=", "AQIAAAAA", "AQIDBAUG"),
    "a longer fraction": ("decimal(10,2)", "DECIMAL(12,4)", "1.50", "1.5000", "2.5000"),
    "a fraction that messages do not say": ("decimal", "DECIMAL(12,4)", "1.50", "1.5000", "2.5000"),
    "a text of a number": ("int", "VARCHAR(9)", "5", "5", "x"),
    "a number of a text": ("varchar(9)", "INT", "007", "7", "8"),
    "spaces": ("char(4)", "CHAR(6)", "ab", "ab", "cd"),
    "texts of any length": ("varchar(4)", "CHAR(6)", "ab", "ab", "cd"),
}  # fmt: skip
SAID = {"decimal": "decimal(10,2)", "binary": "binary(4)"}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("cut", ["none", "before", "both"])
@pytest.mark.parametrize("name", WIDER)
def test_a_key_of_another_type_is_what_the_statement_makes_of_it(tmp_path: Path, name: str, cut: str) -> None:
    """Rows stayed under their old key beside those of the new one; that was reported, although both types say what the key becomes."""
    old, new, key, made, other = WIDER[name]
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row: dict[str, Any] = {"isDdl": False, "pkNames": ["k"], "sql": ""}
    before, after = (
        {"k": old, "n": "int"},
        {"k": new.lower() if "(" in old else new.lower().partition("(")[0], "n": "int"},
    )
    depot.ddl(f"CREATE TABLE depot (k {SAID.get(old, old)} PRIMARY KEY, n INT)")
    depot.say(**row, type="INSERT", data=[{"k": key, "n": "7"}], mysqlType=before)
    if cut != "none":
        assert ("done", "") == depot.run(checked=True)
    depot.ddl(f"ALTER TABLE depot MODIFY k {new} NOT NULL")
    if cut == "both":
        assert ("done", "") == depot.run(checked=True)
    depot.say(**row, type="INSERT", data=[{"k": other, "n": "8"}], mysqlType=after)
    depot.say(**row, type="UPDATE", data=[{"k": made, "n": "9"}], old=[{"n": "7"}], mysqlType=after)
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    found = lake.ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} ORDER BY n")
    assert [8, 9] == [one["n"] for one in found]
    assert [] == lake.ask("SELECT \"check\", detail FROM {checks} WHERE state <> 'pass'")
    assert [] == (lake.ask("SELECT * FROM {rejects}") if lake.exists("rejects") else [])


@pytest.mark.parametrize(
    ("text", "sent", "is_asked"),
    [
        ('{"b" : 1,  "a":[1.50, 1e2] }', "longtext", False),
        ('{"b" : 1,  "a":[1.50, 1e2] }', "json", True),
        ('{"b" : 1,  "a":[1.50, 1e2] }', "", True),
        ('"a b"', "json", False),
        ("[7]", "", False),
        ("1.50", "json", True),
    ],
)
def test_a_text_becomes_json(tmp_path: Path, text: str, sent: str, is_asked: bool) -> None:
    """MySQL prints documents in its own form; MariaDB's JSON is a text, which stays as it is (measured on 10.11), and was asked about."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row: dict[str, Any] = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n TEXT)")
    depot.say(**row, data=[{"id": "1", "n": text}], mysqlType={"id": "int", "n": "text"})
    depot.ddl("ALTER TABLE depot MODIFY n JSON")
    if sent:
        depot.say(**row, data=[{"id": "2", "n": "7"}], mysqlType={"id": "int", "n": sent})
    assert ("done", "") == depot.run()
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} ORDER BY id")
    assert text == found[0]["n"]
    assert is_asked == bool(
        depot.lake().ask("SELECT reason FROM {rejects}") if depot.lake().exists("rejects") else []
    )


LATER: dict[str, tuple[str, str, str, bool]] = {  # what comes after a MODIFY to JSON: statements, a row's column and its type, and whether the text may be another one
    "a text again": ("MODIFY n LONGTEXT", "n", "longtext", True),
    "a short text": ("MODIFY n VARCHAR(100)", "n", "varchar(100)", True),
    "JSON again": ("MODIFY n JSON COMMENT 'x'", "n", "longtext", False),
    "another name": ("RENAME COLUMN n TO m", "m", "longtext", False),
    "another name and JSON": ("RENAME COLUMN n TO m", "m", "json", True),
    "a text of another name": ("RENAME COLUMN n TO m; MODIFY m LONGTEXT", "m", "longtext", True),
    "the name of another column": ("RENAME COLUMN n TO m, RENAME COLUMN m TO n", "m", "longtext", False),
    "another column with the name": ("DROP COLUMN n; ADD COLUMN n LONGTEXT", "n", "longtext", True),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER)
def test_rows_say_what_json_was_until_their_column_changes_again(tmp_path: Path, name: str) -> None:
    """MySQL has printed the documents anew by the time that the column is a text again, and nothing asked."""
    later, column, sent, is_asked = LATER[name]
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row: dict[str, Any] = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n TEXT, m INT)")
    before = {"id": "int", "n": "text", "m": "int"}
    depot.say(**row, data=[{"id": "1", "n": '{"b" : 1,  "a":[1.50, 1e2] }', "m": "3"}], mysqlType=before)
    depot.ddl("ALTER TABLE depot MODIFY n JSON")
    for statement in later.split("; "):
        depot.ddl(f"ALTER TABLE depot {statement}")
    after = {"id": "int", "n": "int", "m": "int"} | {column: sent}
    depot.say(**row, data=[{"id": "2", "n": "7", "m": "7"}], mysqlType=after)
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    assert is_asked == bool(lake.ask("SELECT * FROM {rejects}") if lake.exists("rejects") else [])


@pytest.mark.parametrize(
    ("sent", "again"), [("longtext", ""), ("json", ""), ("longtext", "MODIFY n LONGTEXT")]
)
def test_a_text_that_became_json_is_asked_about_until_rows_show_a_text(
    tmp_path: Path, sent: str, again: str
) -> None:
    """The rows of a later batch say so as well, and the check stayed failed."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row: dict[str, Any] = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n TEXT)")
    depot.say(**row, data=[{"id": "1", "n": '{"b" : 1,  "a":[1.50] }'}], mysqlType={"id": "int", "n": "text"})
    depot.ddl("ALTER TABLE depot MODIFY n JSON")
    assert ("done", "") == depot.run(checked=True)
    newest = "SELECT state FROM {checks} WHERE \"check\" = 'unknown_values' ORDER BY batch DESC LIMIT 1"
    assert [{"state": "fail"}] == depot.lake().ask(newest)
    if again:
        depot.ddl(f"ALTER TABLE depot {again}")
    depot.say(**row, data=[{"id": "2", "n": "7"}], mysqlType={"id": "int", "n": sent})
    assert ("done", "") == depot.run(checked=True)
    is_known = sent == "longtext" and not again
    assert [{"state": "pass" if is_known else "fail"}] == depot.lake().ask(newest)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("cut", ["none", "after", "both"])
@pytest.mark.parametrize("created", [True, False])
def test_a_whole_number_gets_a_fraction_that_only_the_statement_gives(
    tmp_path: Path, cut: str, created: bool
) -> None:
    """Some dialects say DECIMAL without its digits: in a column of INT the new value would be a reject."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    if created:
        depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n INT)")
    depot.row(id="1", n="7")
    for at, (digits, text) in enumerate([("10,2", "2.25"), ("14,4", "2.1234")]):
        if cut == "both":
            assert ("done", "") == depot.run(checked=True)
        depot.ddl(f"ALTER TABLE depot MODIFY n DECIMAL({digits})")
        if cut != "none":
            assert ("done", "") == depot.run(checked=True)
        depot.say(**row, data=[{"id": str(2 + at), "n": text}], mysqlType={"id": "int", "n": "decimal"})
    assert ("done", "") == depot.run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} AS m ORDER BY id")
    assert [Decimal(7), Decimal("2.25"), Decimal("2.1234")] == [one["n"] for one in found]


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", ["after", "both"])
def test_values_that_a_wider_type_converts_are_held_before_a_row_has_it(tmp_path: Path, cut: str) -> None:
    """The column stayed DATE, FLOAT or INT: its values became NULL, or lost what a DOUBLE has of a FLOAT, as keys do, which
    no later change found again.
    """
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    columns = {
        "day": ("date", "2024-01-02", "datetime", "2024-01-03 04:05:06"),
        "ratio": ("float", "0.1", "double", "0.3"),
        "count": ("int", "2147483647", "float", "0.5"),
        "total": ("bigint", "9007199254740993", "double", "0.5"),
    }
    keyed = {"table": "ratios", "pkNames": ["ratio"], "isDdl": False, "sql": ""}
    first = {name: text for name, (_, text, *_) in columns.items()}
    depot.say(
        isDdl=False, sql="", type="INSERT", pkNames=["id"], data=[{"id": "1"} | first],
        mysqlType={"id": "int"} | {name: old for name, (old, *_) in columns.items()},
    )  # fmt: skip
    depot.say(isDdl=True, sql="CREATE TABLE ratios (ratio FLOAT PRIMARY KEY)", type="DDL", table="ratios")
    depot.say(**keyed, type="INSERT", data=[{"ratio": "0.1"}], mysqlType={"ratio": "float"})
    if cut == "both":
        assert ("done", "") == depot.run(checked=True)
    clauses = ", ".join(f"MODIFY {name} {new}" for name, (*_, new, _) in columns.items())
    depot.ddl(f"ALTER TABLE depot {clauses}")
    depot.say(isDdl=True, sql="ALTER TABLE ratios MODIFY ratio DOUBLE", type="DDL", table="ratios")
    assert ("done", "") == depot.run(checked=True)
    depot.say(
        isDdl=False, sql="", type="INSERT", pkNames=["id"],
        data=[{"id": "2"} | {name: text for name, (*_, text) in columns.items()}],
        mysqlType={"id": "int"} | {name: new for name, (*_, new, _) in columns.items()},
    )  # fmt: skip
    gone = [{"ratio": "0.10000000149011612"}]
    depot.say(**keyed, type="DELETE", data=gone, mysqlType={"ratio": "double"})
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    mirror = lake.ask_mirror("mirrors/yard/depot", "SELECT * EXCLUDE (id) FROM {mirror} AS m ORDER BY id")
    assert [str(cell) for cell in mirror[0].values()] == [
        *("2024-01-02 00:00:00", "0.10000000149011612", "2147483600.0", "9007199254740992.0")
    ]
    assert [] == lake.ask_mirror("mirrors/yard/ratios", "SELECT ratio FROM {mirror} AS m")
    assert [] == lake.ask("SELECT reason FROM {rejects}")


@pytest.mark.parametrize("word", ["REAL", "real unsigned"])
def test_a_key_that_becomes_real_stays_what_its_rows_show(tmp_path: Path, word: str) -> None:
    """REAL is a FLOAT by MySQL's mode and for Debezium: a DOUBLE's 0.10000000149011612 was found by no later change."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    keyed = {
        "table": "ratios",
        "pkNames": ["ratio"],
        "isDdl": False,
        "sql": "",
        "mysqlType": {"ratio": "float"},
    }
    depot.say(isDdl=True, sql="CREATE TABLE ratios (ratio FLOAT PRIMARY KEY)", type="DDL", table="ratios")
    depot.say(**keyed, type="INSERT", data=[{"ratio": "0.1"}, {"ratio": "0.3"}])
    assert ("done", "") == depot.run(checked=True)
    depot.say(isDdl=True, sql=f"ALTER TABLE ratios MODIFY ratio {word}", type="DDL", table="ratios")
    assert ("done", "") == depot.run(checked=True)
    depot.say(**keyed, type="DELETE", data=[{"ratio": "0.1"}])
    assert ("done", "") == depot.run(checked=True)
    rows = depot.lake().ask_mirror(
        "mirrors/yard/ratios", "SELECT CAST(ratio AS VARCHAR) AS ratio FROM {mirror} AS m"
    )
    assert [{"ratio": "0.3"}] == rows


def test_a_whole_key_that_becomes_a_double_is_no_text(tmp_path: Path) -> None:
    """As a text it was `5.0`, which no message that says `5` found: its rows stayed, without a word."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    keyed = {"table": "ratios", "pkNames": ["n"], "isDdl": False, "sql": ""}
    depot.say(isDdl=True, sql="CREATE TABLE ratios (n BIGINT PRIMARY KEY)", type="DDL", table="ratios")
    depot.say(**keyed, type="INSERT", data=[{"n": "5"}], mysqlType={"n": "bigint"})
    assert ("done", "") == depot.run(checked=True)
    depot.say(isDdl=True, sql="ALTER TABLE ratios MODIFY n DOUBLE", type="DDL", table="ratios")
    state, why = depot.run()
    assert "held" == state
    assert "rows from before have no value of it" in why


def test_keys_whose_type_comes_later_stay_the_texts_that_came(tmp_path: Path) -> None:
    """As numbers `01` and `1` are one key: two source rows would become one, or a text that is not a number be lost."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    for key in ("01", "x"):
        depot.say(**row, data=[{"id": key, "n": "007"}], mysqlType=None)
    assert ("done", "") == depot.run()
    for kind, key in (("INSERT", "1"), ("UPDATE", "01")):
        depot.say(
            **row | {"type": kind}, data=[{"id": key, "n": "8"}], mysqlType={"id": "bigint", "n": "int"}
        )
    assert ("done", "") == depot.run()
    lake = depot.lake()
    mirror = lake.ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror} AS m ORDER BY id")
    assert [("01", "8"), ("1", "8"), ("x", "007")] == [tuple(row.values()) for row in mirror]
    assert [] == (lake.ask("SELECT * FROM {rejects}") if lake.exists("rejects") else [])


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("policy", "cut"), [("lenient", "none"), ("lenient", "both"), ("evolve", "after")])
@pytest.mark.parametrize(
    ("statements", "old"),
    [
        (["ALTER TABLE depot MODIFY N BIGINT"], 7),
        (["ALTER TABLE depot CHANGE n N BIGINT"], 7),
        (["ALTER TABLE depot RENAME COLUMN n TO N"], 7),
        (["ALTER TABLE depot RENAME COLUMN n TO x", "ALTER TABLE depot RENAME COLUMN x TO N"], 7),
        (["ALTER TABLE depot DROP COLUMN n", "ALTER TABLE depot ADD COLUMN N INT DEFAULT 5"], 5),
        (["DROP TABLE depot", "CREATE TABLE depot (id INT PRIMARY KEY, N INT)"], None),
    ],
)
def test_a_column_in_another_letter_case_replaces_the_old_one(
    tmp_path: Path, statements: list[str], old: int | None, policy: Any, cut: str
) -> None:
    """Queries ignore letter case: if the old `n` stayed, `SELECT N` would find old values, and none of later rows."""
    rule = TableRule("yard.*", on_schema_change=policy)
    depot = Depot(unstarted(), tmp_path, Warm(), rule)
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n INT)").row(id="1", n="7").row(id="2", n="8")
    if cut == "both":
        depot.run()
    for text in statements:
        depot.ddl(text)
    if cut != "none":
        depot.run()
    depot.row(id="3", N="50").row("UPDATE", {"N": "8"}, id="2", N="9")
    assert ("done", "") == depot.run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    rows = [(2, 9), (3, 50)] if old is None else [(1, old), (2, 9), (3, 50)]
    assert rows == [(row["id"], row["N"]) for row in found]
    assert "n" not in found[0]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("cut", ["none", "after", "both"])
@pytest.mark.parametrize("text", ["MODIFY n BIGINT", "CHANGE N n BIGINT", "RENAME COLUMN N TO n"])
def test_a_capital_column_gets_a_small_name(tmp_path: Path, text: str, cut: str) -> None:
    """Names in capitals are also Oracle's, whose rows keep them whatever a statement writes; other columns show that it is MySQL."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, N INT)").row(id="1", N="7").row(id="2", N="8")
    if cut == "both":
        depot.run()
    depot.ddl(f"ALTER TABLE depot {text}")
    if cut != "none":
        assert ("done", "") == depot.run(checked=True)
    depot.row(id="3", n="50").row("UPDATE", {"n": "8"}, id="2", n="9")
    assert ("done", "") == depot.run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id")
    assert [(1, 7), (2, 9), (3, 50)] == [(row["id"], row["n"]) for row in found]


@pytest.mark.one_of(6)
@pytest.mark.parametrize("cut", [(), (2,), (3,), (2, 3), (2, 4)])
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["ALTER TABLE depot RENAME COLUMN v TO n, RENAME COLUMN n TO v"], ["text", None]),
        (["ALTER TABLE depot DROP COLUMN n", "ALTER TABLE depot RENAME COLUMN v TO n"], ["text", None]),
        (["ALTER TABLE depot DROP COLUMN n", "ALTER TABLE depot CHANGE v n VARCHAR(9)"], ["text", None]),
        (["ALTER TABLE depot DROP COLUMN n, ADD COLUMN n VARCHAR(9) DEFAULT 'x'"], ["x", "x"]),
    ],
)
def test_a_name_that_another_column_takes_holds_its_values_without_rows_of_it(
    tmp_path: Path, statements: list[str], expected: list[str | None], policy: Any, cut: tuple[int, ...]
) -> None:
    """Rows showed a number under this name, so its column became one, and texts that came under it were lost."""
    rule = TableRule("yard.*", on_schema_change=policy)
    depot = Depot(unstarted(), tmp_path, Warm(), rule)
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    texts = {"id": "int", "v": "varchar", "n": "int"}
    created = "CREATE TABLE depot (id INT PRIMARY KEY, v VARCHAR(9), n INT)"
    first, second = ({"id": str(at), "v": v, "n": "7"} for at, v in enumerate(["text", None]))
    said: list[dict[str, Any]] = [
        {"isDdl": True, "sql": created, "type": "DDL"},
        {**row, "data": [first], "mysqlType": texts},
        {**row, "data": [second], "mysqlType": texts},
        *({"isDdl": True, "sql": one, "type": "DDL"} for one in statements),
    ]
    for at, one in enumerate(said):
        if at in cut:
            assert ("done", "") == depot.run()
        depot.say(**one)
    assert ("done", "") == depot.run(checked=True)
    assert "" == depot.why_merge
    lake = depot.lake()
    found = lake.ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} AS m ORDER BY id")
    assert expected == [one["n"] for one in found]
    assert [] == (lake.ask("SELECT * FROM {rejects}") if lake.exists("rejects") else [])


@pytest.mark.one_of(3, "cut")
@pytest.mark.parametrize("cut", ["none", "before", "alone"])
@pytest.mark.parametrize("apply", ["auto", pytest.param("merge", marks=[pytest.mark.spark, pytest.mark.e2e])])
def test_bytes_and_a_text_exchange_their_names(request: Any, tmp_path: Path, apply: str, cut: str) -> None:
    """Without a later row nothing said that the name of bytes has texts now, and Spark wrote bytes as text."""
    session = unstarted() if apply == "auto" else request.getfixturevalue("spark")
    depot = Depot(session, tmp_path, Warm(), TableRule("yard.*"), budget=4 << 20, apply=apply)
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    types = {"id": "int", "v": "varchar(9)", "n": "varbinary(6)"}
    depot.say(**row, data=[{"id": "1", "v": "a", "n": "Af8="}], mysqlType=types)
    if cut == "before":
        depot.run()
    depot.say(**row, data=[{"id": "2", "v": "b", "n": None}], mysqlType=types)
    if cut == "alone":
        depot.run()
    depot.ddl("ALTER TABLE depot RENAME COLUMN v TO n, RENAME COLUMN n TO v")
    assert ("done", "") == depot.run(checked=True)
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT v, n FROM {mirror} AS m ORDER BY id")
    assert [("Af8=", "a"), (None, "b")] == [tuple(one.values()) for one in found]


@pytest.mark.parametrize("second", ["decimal(10,2)", "bigint"])
def test_a_name_that_a_column_of_a_table_created_again_takes_holds_its_values(
    tmp_path: Path, second: str
) -> None:
    """Rows of the table that was dropped showed another type under the name."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n SMALLINT)")
    depot.say(**row, data=[{"id": "1", "n": "7"}], mysqlType={"id": "int", "n": "smallint"})
    depot.ddl("DROP TABLE depot").ddl(f"CREATE TABLE depot (id INT PRIMARY KEY, v {second})")
    depot.say(**row, data=[{"id": "1", "v": "1234567"}], mysqlType={"id": "int", "v": second})
    depot.ddl("ALTER TABLE depot RENAME COLUMN v TO n")
    assert ("done", "") == depot.run(checked=True)
    assert "" == depot.why_merge
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} AS m")
    assert [{"n": 1234567}] == found


def exchanged(depot: Depot, cut: str) -> list[str]:
    """Names exchanged between a DECIMAL, sent without its digits, and a whole number: the DECIMAL's values under its new name."""
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    before = {"id": "1", "v": "2.25", "n": "7"}, {"id": "int", "v": "decimal", "n": "int"}
    after = {"id": "2", "v": "8", "n": "3.5"}, {"id": "int", "v": "int", "n": "decimal"}
    if cut != "before":
        depot.say(**row, data=[before[0]], mysqlType=before[1])
    if cut == "between":
        assert ("done", "") == depot.run(checked=True)
    depot.ddl("ALTER TABLE depot RENAME COLUMN v TO n, RENAME COLUMN n TO v")
    if cut != "after":
        depot.say(**row, data=[after[0]], mysqlType=after[1])
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    assert [] == (lake.ask("SELECT * FROM {rejects}") if lake.exists("rejects") else [])
    return [
        one["n"]
        for one in lake.ask_mirror(
            "mirrors/yard/depot", "SELECT CAST(n AS VARCHAR) AS n FROM {mirror} ORDER BY id"
        )
    ]


@pytest.mark.parametrize(
    ("cut", "expected"), [("after", ["2.25"]), ("before", ["3.5"]), ("between", ["2.25", "3.5"])]
)
def test_a_number_without_its_digits_keeps_its_fraction_under_the_name_of_a_whole_number(
    tmp_path: Path, cut: str, expected: list[str]
) -> None:
    """DECIMAL without its digits agrees with whole numbers, but they do not hold its values."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    assert expected == exchanged(depot, cut)


@pytest.mark.spark
def test_rows_of_both_kinds_under_one_name_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The books join their types to that of whole numbers: only the cells show that some have a fraction."""
    assert ["2.25", "3.5"] == exchanged(Depot(spark, tmp_path, Warm(), TableRule("yard.*")), "")


def test_names_exchanged_before_the_first_row_widen_nothing(tmp_path: Path) -> None:
    """Each name has one type in all rows."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    depot.ddl("ALTER TABLE depot RENAME COLUMN v TO n, RENAME COLUMN n TO v")
    members = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    texts = {"id": "int", "v": "varchar", "n": "int"}
    depot.say(**members, data=[{"id": "1", "v": "text", "n": "7"}], mysqlType=texts)
    assert ("done", "") == depot.run(checked=True)
    assert [{"n": 7}] == depot.lake().ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} AS m")


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [True, False])
def test_a_time_comes_under_the_name_of_a_number_without_its_digits(tmp_path: Path, cut: bool) -> None:
    """The mirror knows the digits, and its column holds no times."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    depot.ddl("CREATE TABLE depot (id INT PRIMARY KEY, n DECIMAL(10,2), v DATETIME)")
    for key in ("1", "2"):
        if cut and key == "2":
            assert ("done", "") == depot.run(checked=True)
        cells = {"id": key, "n": "7.25", "v": "2024-02-11 06:00:00"}
        depot.say(**row, data=[cells], mysqlType={"id": "int", "n": "decimal", "v": "datetime"})
    depot.ddl("ALTER TABLE depot RENAME COLUMN v TO n, RENAME COLUMN n TO v")
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    found = lake.ask_mirror("mirrors/yard/depot", "SELECT n FROM {mirror} AS m ORDER BY id")
    assert ["2024-02-11 06:00:00"] * 2 == [one["n"] for one in found]
    assert [] == (lake.ask("SELECT * FROM {rejects}") if lake.exists("rejects") else [])


@pytest.mark.spark
def test_a_default_that_is_no_value_of_the_column(spark: SparkSession, tmp_path: Path) -> None:
    """Existing rows had NULL, and nothing said so."""
    rule = TableRule("yard.*", columns={"at": "timestamp", "flag": "boolean"})
    depot = Depot(spark, tmp_path, Warm(), rule)
    depot.row(id="1")
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot ADD COLUMN at DATE DEFAULT '2024-02-15', ADD COLUMN n INT DEFAULT 3")
    cells = {"id": "2", "at": None, "n": None, "flag": None, "mark": "y"}
    texts = {"id": "int", "at": "date", "n": "int", "flag": "tinyint", "mark": "varchar"}
    depot.ddl(
        "ALTER TABLE depot ADD COLUMN mark TINYINT(1) DEFAULT 1, ADD COLUMN flag VARCHAR(9) DEFAULT 'x'"
    )
    depot.ddl("ALTER TABLE depot RENAME COLUMN mark TO flag, RENAME COLUMN flag TO mark")
    depot.say(isDdl=False, type="INSERT", data=[cells], mysqlType=texts, pkNames=["id"], sql="")
    assert ("done", "") == depot.run(checked=True)
    lake = depot.lake()
    found = lake.ask_mirror("mirrors/yard/depot", 'SELECT n, "at", flag, mark FROM {mirror} ORDER BY id')
    assert [(3, None, None, "x"), (None, None, None, "y")] == [tuple(row.values()) for row in found]
    rejects = lake.ask('SELECT "column", reason, detail FROM {rejects} ORDER BY "column"')
    assert [("at", "values-not-known"), ("flag", "values-not-known")] == [
        (row["column"], row["reason"]) for row in rejects
    ]
    assert rejects[0]["detail"].startswith("existing rows have the default '2024-02-15', which is not")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("date", "datetime", ("2024-05-15T00:00:00Z", True)),
        ("datetime", "datetime", ("2024-05-15T00:00:00Z", True)),
        ("datetime", "date", ("2024-05-15T00:00:00Z", False)),
        ("date", "string", ("2024-05-15T00:00:00Z", False)),
    ],
)
def test_a_date_that_the_messages_write_as_an_instant(old: str, new: str, expected: tuple[str, bool]) -> None:
    """Its text became one of neither type."""
    step = SchemaStep(AT, "retype_column", "v", old=old, type=new, declared=new.upper())
    text = "2024-05-15T00:00:00Z"
    assert expected == (step.converted(text, "timestamp"), step.conversion("timestamp").certain)


@pytest.mark.spark
@pytest.mark.e2e
def test_a_name_used_again_is_widened_by_the_values_of_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The second try, with the wider type, found the old column under the name that the first had given it."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", on_schema_change="evolve"), apply="merge")
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    depot.say(**row, data=[{"id": "1", "v": "5000"}], mysqlType={"id": "int", "v": "bigint"})
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot RENAME COLUMN v TO w").ddl("ALTER TABLE depot ADD COLUMN v SMALLINT")
    depot.say(**row, data=[{"id": "2", "v": "7"}], mysqlType={"id": "int", "v": "smallint"})
    depot.say(**row, data=[{"id": "3", "v": "99999"}], mysqlType={"id": "int", "v": "smallint"})
    assert ("done", "") == depot.run(checked=True)
    found = [(row["id"], row["w"], row["v"]) for row in depot.rows()]
    assert [(1, 5000, None), (2, None, 7), (3, None, 99999)] == found
    assert {"id", "v", "w"} == {*depot.lake().read("mirrors/yard/depot").columns}


@pytest.mark.one_of(3, "cut")
@pytest.mark.parametrize("cut", ["together", "after the rows", "alone"])
def test_a_new_key_fills_the_nulls_of_its_columns(tmp_path: Path, cut: str) -> None:
    """A server that is not strict stores an empty text for NULL, and no message of the row says so."""
    mine = Shops(tmp_path, TableRule("shop_*.item", keys=("id",)))
    mine.say(1, "INSERT", 1, None).say(1, "INSERT", 2, "b")
    if cut != "together":
        assert "done" == mine.run()[0]
    mine.ddl("ALTER TABLE item ADD PRIMARY KEY (id, text)")
    if cut == "alone":
        assert "done" == mine.run()[0]
    mine.say(1, "INSERT", 3, "c")
    assert "done" == mine.run()[0]
    assert {1: "", 2: "b", 3: "c"} == mine.rows(mine.subject(0).path)
    [compared] = mine.compared(0).values()
    assert [] == compared.wrong


def by_id(depot: Depot) -> list[dict[str, Any]]:
    """The rows of the mirror, read without Spark."""
    return list(depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY id"))


@pytest.mark.one_of(3, "cut")
@pytest.mark.parametrize("cut", ["together", "after the rows", "alone"])
@pytest.mark.parametrize("default", [None, "0", "7"])
def test_a_column_that_leaves_the_key_again_keeps_what_filled_it(
    tmp_path: Path, cut: str, default: str | None
) -> None:
    """No row came while it was in the key, so that the mirror kept NULL without a word.

    MariaDB fills in the default where it alters in place, MySQL the zero: if these differ, the value is not known.
    """
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    if default:
        depot.ddl(f"ALTER TABLE depot ALTER COLUMN v SET DEFAULT {default}")
    depot.row(id="1", v=None).row(id="2", v="5")
    if cut != "together":
        assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)")
    depot.ddl("ALTER TABLE depot DROP PRIMARY KEY").ddl("ALTER TABLE depot ADD PRIMARY KEY (id)")
    if cut == "alone":
        assert ("done", "") == depot.run()
    depot.row(id="3", v="6")
    assert ("done", "") == depot.run(checked=True)
    known = default != "7"
    assert [0 if known else None, 5, 6] == [row["v"] for row in by_id(depot)]
    assert ([] if known else ["v"]) == [
        row["column"] for row in depot.lake().ask('SELECT "column" FROM {rejects}')
    ]
    failed = depot.lake().ask("SELECT \"check\" FROM {checks} WHERE state <> 'pass'")
    assert known == (not failed)


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("declared", "filled"),
    [("int", "0"), ("int DEFAULT 7", "7"), ("varchar(9)", ""), ("enum('b','a')", "b")],
)
def test_a_column_that_is_added_to_the_key_is_filled_in_strict_mode_too(
    tmp_path: Path, declared: str, filled: str, cut: bool
) -> None:
    """The mirror was held for rows without a value of their new key, which the source gives them."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    depot.row(id="1").row(id="2")
    if cut:
        assert ("done", "") == depot.run()
    depot.ddl(f"ALTER TABLE depot ADD COLUMN c {declared}, DROP PRIMARY KEY, ADD PRIMARY KEY (id, C)")
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id", "c"], "sql": ""}
    depot.say(
        **row, data=[{"id": "3", "c": filled}], mysqlType={"id": "int", "c": declared.partition(" ")[0]}
    )
    assert ("done", "") == depot.run(checked=True)
    assert [filled] * 3 == [str(row["c"]) for row in by_id(depot)]
    assert [] == depot.lake().ask("SELECT \"check\" FROM {checks} WHERE state = 'fail'")


@pytest.mark.one_of(4, "cut", "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_new_key_leaves_labels_and_says_which_bytes_nothing_says(
    tmp_path: Path, cut: bool, policy: Any
) -> None:
    """All labels were reported, although no statement changes them, and NULL in VARBINARY became a zero byte."""
    rule = TableRule("yard.*", keys=("id",), on_schema_change=policy)
    depot = Depot(unstarted(), tmp_path, Warm(), rule)
    row = {"isDdl": False, "type": "INSERT", "pkNames": ["id"], "sql": ""}
    kinds = {"id": "int", "size": "enum('s','l')", "hash": "varbinary(6)"}
    for cells in ({"id": "1", "size": "l", "hash": "Af8="}, {"id": "2", "size": None, "hash": None}):
        depot.say(**row, data=[cells], mysqlType=kinds)
    if cut:
        assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot ADD PRIMARY KEY (id, size, hash)")
    assert ("done", "") == depot.run(checked=True)
    assert [("l", True), ("", False)] == [(one["size"], one["hash"] is not None) for one in by_id(depot)]
    [reject] = depot.lake().ask('SELECT "column", detail FROM {rejects}')
    assert "hash" == reject["column"]
    assert "existing rows to NOT NULL" in reject["detail"]


REPEATED = {  # the key of a row, what comes again, and whether a row has a key which the source does not give it
    "of a text that is no number": ("a", ("row", "alter", "delete"), True),
    "of a number that is written otherwise": ("01", ("row", "alter", "delete"), True),
    "of a number": ("1", ("row", "alter", "delete"), False),
    "without its row": ("a", ("alter", "delete"), False),
    "of a text that is deleted before": ("a", ("row", "gone", "alter"), False),
    "of a text that is there again": ("a", ("row", "gone", "row", "alter", "delete"), True),
    "of a text, and of one that is deleted before": (
        "01",
        ("row", "other", "gone other", "alter", "delete"),
        True,
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_key_whose_rows_come_again_with_its_type(tmp_path: Path, name: str) -> None:
    """Outside of strict mode 'a' becomes 0: the row was there again under its old key, and no later delete found it."""
    key, again, is_asked = REPEATED[name]

    def said(place: int, **members: Any) -> str:
        moment = 1714521600000 + 1000 * place
        return json.dumps(
            {"database": "shop_1", "table": "item", "es": moment, "ts": moment, "id": place, **members}
        )

    def row(place: int, kind: str, text: str, logical: str) -> str:
        cells, types = {"id": text, "text": "x"}, {"id": logical, "text": "varchar(9)"}
        return said(
            place, type=kind, isDdl=False, data=[cells], old=None, pkNames=["id"], sql="", mysqlType=types
        )

    now = "0" if key == "a" else "1"
    lines = {
        "create": said(1, type="CREATE", isDdl=True, sql="CREATE TABLE item (id varchar(9) PRIMARY KEY, text varchar(9))"),
        "row": row(2, "INSERT", key, "varchar(9)"),
        "gone": row(3, "DELETE", key, "varchar(9)"),
        "other": row(2, "INSERT", "b", "varchar(9)"),
        "gone other": row(3, "DELETE", "b", "varchar(9)"),
        "alter": said(4, type="ALTER", isDdl=True, sql="ALTER TABLE item MODIFY id INT NOT NULL"),
        "delete": row(5, "DELETE", now, "int"),
    }  # fmt: skip
    shops = Shops(tmp_path, TableRule(match="shop_1.item"), dialect="canal")
    first = ("create", *(() if "row" in again else ("row",)), *again)
    for number, names in enumerate((first, again), 1):
        shops.lines, shops.number = [lines[name] for name in names], number
        assert ("done", "") == shops.run()
    rows = shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT id FROM {mirror}")
    asked = shops.lake.ask('SELECT "column", reason FROM {rejects}')
    wanted = [{"column": "id", "reason": "values-not-known"}] if is_asked else []
    assert ([{"id": key}] if is_asked else [], wanted) == (rows, asked)
