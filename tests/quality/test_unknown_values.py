"""Values that only the source knows are an error until the rows come again or the operator decides."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.gold.approval import approve_or_dismiss, listed
from ingest.gold.rebuild import rebuild
from ingest.inspect import status
from ingest.run import Warm
from ingest.tables.tables import LakeReader
from tests.gold.depot import Depot
from tests.schemas import Schemas
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("bronze", "silver", "gold", "quality")


def complaints(said: Schemas) -> list[tuple[str, str | None, float]]:
    """The failed checks of the last run: mirror, column, rows."""
    assert said.result is not None
    found = said.lake.ask(
        "SELECT mirror, \"column\", observed FROM {checks} WHERE \"check\" = 'unknown_values' AND state = 'fail' "
        f"AND run = '{said.result.run}' ORDER BY ALL"
    )
    assert bool(found) == any(
        "no message says" in one or "is not known" in one for one in said.result.failures
    )
    return [(row["mirror"].removeprefix("db."), row["column"], row["observed"]) for row in found]


def listed_problems(said: Schemas) -> list[tuple[str, str]]:
    """What `ingest status` lists, without another run, with the verb that leads on."""
    known = status.problems_of(LakeReader(said.pipeline))
    return [(problem.kind, problem.command.split()[1]) for problem in known]


def decide(said: Schemas, text: str) -> None:
    """Approve the statements that have these words."""
    for name in {entry.statement.id for entry in listed(said.lake) if text in entry.statement.text}:
        approve_or_dismiss(said.lake, name, "approve", "as it is")


UNKNOWN: dict[str, list[tuple[str, str | None]]] = {
    "mysql": [
        ("ALTER TABLE {} ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", "c"),
        ("ALTER TABLE {} ADD COLUMN c TIMESTAMP NOT NULL DEFAULT '2024-01-01 00:00:00'", "c"),
        ("ALTER TABLE {} ADD COLUMN c INT AS (id + 1)", "c"),
        ("ALTER TABLE {} ADD COLUMN c INT DEFAULT (rand() * 10)", "c"),
        ("ALTER TABLE {} FROBNICATE", None),
    ],
    "oracle": [("ALTER TABLE {} ADD (C DATE DEFAULT SYSDATE)", "C")],
    "postgresql": [
        ("ALTER TABLE {} ADD COLUMN c timestamptz DEFAULT now()", "c"),
        ("ALTER TABLE {} ADD COLUMN c s.never_made", "c"),
    ],
}
TABLES = {"mysql": "t", "oracle": "S.T", "postgresql": "s.t"}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_error_until_the_rows_come_again(tmp_path: Path, kind: str) -> None:
    """With exit 0 and "1 waits" a mirror with NULL for what the source has was called right."""
    said = Schemas(tmp_path, kind)
    tables = {f"{TABLES[kind]}{i}": case for i, case in enumerate(UNKNOWN[kind])}

    def filled(column: str | None) -> dict[str, str]:
        return {column: "x"} if column else {}

    def unknown(rows: float) -> list[tuple[str, str | None, float]]:
        return [(table, column, rows) for table, (_, column) in tables.items()]

    for table in tables:
        said.row(table, id=1).row(table, id=2).row(table, id=3)
    said.run(*ALL)
    assert [] == complaints(said)
    for table, (statement, column) in tables.items():
        said.ddl(statement.format(table), table).row(table, id=4, **filled(column))
    said.run(*ALL)
    assert unknown(3.0) == complaints(said)
    for table, (_, column) in tables.items():
        said.row(table, "UPDATE_AFTER", id=1, **filled(column)).row(table, "DELETE", id=2)
    said.run(*ALL)
    assert unknown(1.0) == complaints(said)
    for table, (_, column) in tables.items():
        said.row(table, "UPDATE_AFTER", id=3, **filled(column))
    said.run(*ALL)
    assert [] == complaints(said)


@pytest.mark.parametrize("verb", ["approve", "dismiss"])
def test_an_error_until_it_is_decided(tmp_path: Path, verb: str) -> None:
    """Without a way out the error would stay for ever."""
    said = Schemas(tmp_path, "mysql").row("t", id=1)
    said.run(*ALL)
    said.ddl("ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", "t").run(*ALL)
    assert [("t", "c", 1.0)] == complaints(said)
    [statement] = {one.statement.id for one in listed(said.lake)}
    assert said.result is not None
    assert f"ingest ddl approve {said.folder}/x.yaml {statement}" in " ".join(said.result.failures)
    if verb == "approve":
        approve_or_dismiss(said.lake, statement, verb, "NULL will do")
        said.row("t", id=2, c=None).run(*ALL)
        assert [] == complaints(said)


DROPPED = {  # what leaves values unknown, and what makes an end of the column, in one batch or two
    "a new column": ["ADD COLUMN c INT AS (id + 1)", "DROP COLUMN c"],
    "another type": ["MODIFY v TIME(1)", "DROP COLUMN v"],
    "another name meanwhile": ["ADD COLUMN c INT AS (id + 1)", "RENAME COLUMN c TO d", "DROP COLUMN d"],
    "a column of that name again": [
        "ADD COLUMN c INT AS (id + 1)",
        "DROP COLUMN c, ADD COLUMN c INT DEFAULT 3",
    ],
}


@pytest.mark.parametrize("at_once", [False, True])
def test_no_error_once_the_column_is_gone(tmp_path: Path, *, at_once: bool) -> None:
    """The error stayed for values that the source itself has no more."""
    said = Schemas(tmp_path, "mysql")
    tables = {f"t{i}": clauses for i, clauses in enumerate(DROPPED.values())}
    for table in tables:
        said.ddl(f"CREATE TABLE {table} (id INT PRIMARY KEY, v TIME(6))", table)
        said.row(table, id=1, v="10:00:00.960000")
    said.run(*ALL)
    for table, (unknown, *_) in tables.items():
        said.ddl(f"ALTER TABLE {table} {unknown}", table)
    if not at_once:
        said.run(*ALL)
        assert [*tables] == [table for table, *_ in complaints(said)]
    for table, (_, *clauses) in tables.items():
        for clause in clauses:
            said.ddl(f"ALTER TABLE {table} {clause}", table)
        said.row(table, id=2, **({} if "DROP COLUMN v" in clauses else {"v": "11:00:00.960000"}))
    said.run(*ALL)
    assert ([], []) == (complaints(said), listed_problems(said))
    assert 0 == status.status(LakeReader(said.pipeline))["pending_statements"]


@pytest.mark.parametrize("again", [False, True])
def test_the_key_gets_another_name_afterwards(tmp_path: Path, *, again: bool) -> None:
    """All rows from before counted as one, which the last of their deletes had removed: the mirror was wrong without an error."""
    said = Schemas(tmp_path, "mysql").ddl("CREATE TABLE t (id INT PRIMARY KEY, v TIME(6))", "t")
    for key in (1, 2, 3):
        said.row("t", id=key, v="10:00:00.960000")
    said.run(*ALL)
    said.ddl("ALTER TABLE t MODIFY v TIME(1)", "t").row("t", "DELETE", id=3, v="10:00:00.9")
    said.ddl("ALTER TABLE t CHANGE id pk INT", "t").row("t", pk=4, v="11:00:00.9")
    if again:
        said.row("t", "UPDATE_AFTER", pk=1, v="10:00:00.9").row("t", "DELETE", pk=2, v="10:00:00.9")
    said.run(*ALL)
    assert (set() if again else {("t", "v", 2.0)}) == {*complaints(said)}


KNOWN = {
    "mysql": [
        "ALTER TABLE {} ADD COLUMN c INT DEFAULT 5, ADD INDEX (c)",
        "ALTER TABLE {} ADD COLUMN c DATETIME",
        "ALTER TABLE {} MODIFY id BIGINT UNSIGNED",
    ],
    "oracle": ["ALTER TABLE {} ADD (C NUMBER DEFAULT 7)"],
    "postgresql": [
        "ALTER TABLE {} ADD COLUMN c text, ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES s.u ON DELETE CASCADE",
        "CREATE TYPE s.mood AS ENUM ('sad')",
        "ALTER TYPE s.mood ADD VALUE 'odd'",
        "CREATE INDEX i ON {} (id)",
    ],
}


@pytest.mark.parametrize("kind", KNOWN)
def test_no_error_where_all_is_known(tmp_path: Path, kind: str) -> None:
    """A false alarm at each harmless statement would teach people to look away."""
    said = Schemas(tmp_path, kind)
    tables = {f"{TABLES[kind]}{i}": statement for i, statement in enumerate(KNOWN[kind])}
    for table in tables:
        said.row(table, id=1)
    said.run(*ALL)
    for table, statement in tables.items():
        said.ddl(statement.format(table), table).row(table, id=2)
    said.run(*ALL)
    assert [] == complaints(said)


def test_no_error_where_no_rows_were_there(tmp_path: Path) -> None:
    """What comes after a statement carries its values; a TRUNCATE removes what lacked them."""
    said = Schemas(tmp_path, "mysql").ddl(
        "ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", "t"
    )
    said.row("t", id=1, c="2024-01-01 00:00:00").run(*ALL)
    assert [] == complaints(said)
    said.ddl("ALTER TABLE t ADD COLUMN d DATETIME DEFAULT CURRENT_TIMESTAMP", "t").run(*ALL)
    assert [("t", "d", 1.0)] == complaints(said)
    said.ddl("TRUNCATE TABLE t", "t").row("t", id=2, c=None, d=None).run(*ALL)
    assert [] == complaints(said)


def test_the_table_that_a_statement_reaches_is_checked(tmp_path: Path) -> None:
    """Its message names another table, and the batch has no row of it."""
    said = Schemas(tmp_path).row("s.a", id=1).row("s.b", id=1)
    said.run(*ALL)
    said.ddl("TRUNCATE s.a CASCADE", "s.a").run(*ALL)
    assert [("s.b", None, 1.0)] == complaints(said)


def test_a_conversion_that_is_not_known(tmp_path: Path) -> None:
    """TIME to DATETIME takes the day of the ALTER: the old rows keep their old values, and that is wrong."""
    said = Schemas(tmp_path, "mysql", types={"c": "TIME"}).row("t", id=1, c="10:00:00")
    said.ddl("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, c TIME)", "t").run(*ALL)
    said.ddl("ALTER TABLE t MODIFY c DATETIME", "t").run(*ALL)
    assert [("t", "c", 1.0)] == complaints(said)


def test_a_decision_settles_what_its_statement_has_left(tmp_path: Path) -> None:
    """Any statement on the column counted: one that asks for nothing kept the problem until the table's next batch."""
    said = Schemas(tmp_path, "mysql", types={"c": "TIME"}).row("t", id=1)
    said.ddl("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)", "t").run(*ALL)
    said.ddl("ALTER TABLE t ADD COLUMN c TIME DEFAULT '10:00:00'", "t").run(*ALL)
    assert [] == listed_problems(said)
    said.ddl("ALTER TABLE t MODIFY c DATETIME", "t").run(*ALL)
    said.ddl("ALTER TABLE t FROBNICATE", "t").ddl("ALTER TABLE t DEFROBNICATE", "t").run(*ALL)
    assert [("t", "c", 1.0), ("t", None, 1.0), ("t", None, 1.0)] == complaints(said)
    assert [("unknown_values", "ddl")] * 2 == listed_problems(said), "of the table, and of its column"
    decide(said, "MODIFY")
    assert [("unknown_values", "ddl")] == listed_problems(said)
    decide(said, " FROBNICATE")
    assert [("unknown_values", "ddl")] == listed_problems(said), "another one is left"
    decide(said, "DEFROBNICATE")
    assert [] == listed_problems(said)


@pytest.mark.parametrize(("declared", "state"), [("decimal(20,2)", "partly"), ("decimal(24,4)", "applied")])
def test_a_declared_type_that_a_statement_outgrows(tmp_path: Path, declared: str, state: str) -> None:
    """The list said "applied: widens", the mirror kept the declared type, and new values became NULL."""
    rule = TableRule("db.t", columns={"c": declared})
    said = Schemas(tmp_path, "mysql", (rule,)).row("t", id=1, c="1.25")
    said.run(*ALL)
    said.ddl("ALTER TABLE t MODIFY c DECIMAL(24,4)", "t").run(*ALL)
    assert {("t", state)} == said.states()
    [does] = listed(said.lake)[0].verdict.does
    assert ("write decimal(24,4) under columns:" in does) == (state == "partly")
    waits = said.lake.ask(
        "SELECT observed FROM {checks} WHERE \"check\" = 'ddl_pending' ORDER BY batch DESC LIMIT 1"
    )
    assert float(state == "partly") == waits[0]["observed"]


def test_a_declared_type_that_is_written_wider(tmp_path: Path) -> None:
    """The statement waited for ever although the mirror had the wider type: its way out led nowhere."""
    said = Schemas(tmp_path, "mysql", (TableRule("db.t", columns={"c": "decimal(20,2)"}),)).row(
        "t", id=1, c="1.25"
    )
    said.run(*ALL)
    said.ddl("ALTER TABLE t MODIFY c DECIMAL(24,4)", "t").run(*ALL)
    assert [True] == [entry.pending for entry in listed(said.lake)]
    rebuild(said.lake, ["db.t"], dry_run=False)
    assert [True] == [entry.pending for entry in listed(said.lake)], "it is still declared so"
    said.rules = (TableRule("db.t", columns={"c": "decimal(24,4)"}),)
    rebuild(said.lake, ["db.t"], dry_run=False)
    assert {("t", "applied")} == said.states()
    assert [False] == [entry.pending for entry in listed(said.lake)]


def test_a_conversion_that_changes_key_values(tmp_path: Path) -> None:
    """Rows that kept the keys that they had would not be met by later changes: each would leave a row that is not there."""
    said = Schemas(tmp_path, "mysql", types={"id": "DECIMAL(10,2)"}).row("t", id="1.50").row("t", id="7.25")
    said.ddl("CREATE TABLE IF NOT EXISTS t (id DECIMAL(10,2) PRIMARY KEY)", "t").run(*ALL)
    assert [] == complaints(said)
    said.ddl("ALTER TABLE t MODIFY id DECIMAL(10,1)", "t").row("t", "UPDATE_AFTER", id="7.3").run(*ALL)
    rows = said.lake.ask_mirror("mirrors/db/t", "SELECT CAST(id AS VARCHAR) AS id FROM {mirror} ORDER BY id")
    assert ["1.5", "7.3"] == [f"{Decimal(row['id']).normalize()}" for row in rows]
    assert [] == complaints(said)


CONVERTED = {  # statements without the column in an effect of their own
    "a label of the key": (
        "postgresql",
        ["CREATE TYPE s.mood AS ENUM ('sad', 'ok')", "CREATE TABLE IF NOT EXISTS s.t (id s.mood PRIMARY KEY, c text)"],
        "ALTER TYPE s.mood RENAME VALUE 'sad' TO 'blue'",
        {"id": "sad", "c": "x"},
        ["id"],
    ),
    "a character set of bytes": (
        "mysql",
        ["CREATE TABLE IF NOT EXISTS t (id varchar(9) PRIMARY KEY, c varchar(9)) CHARSET utf8mb4"],
        "ALTER TABLE t CONVERT TO CHARACTER SET binary",
        {"id": "sad", "c": "日本"},
        ["c", "id"],
    ),
    "a NULL in a new key": (
        "mysql",
        [],  # no statement says whether its bytes are filled up
        "ALTER TABLE t ADD PRIMARY KEY (c)",
        {"id": "sad", "c": None},
        ["c"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVERTED)
def test_a_column_that_no_effect_names(tmp_path: Path, case: str) -> None:
    """A warning of cells, with exit 0, was all that was said of rows that the source has under other keys or with other values."""
    kind, made, statement, cells, columns = CONVERTED[case]
    rules = (TableRule("*", keys=("id",), columns={"id": "string", "c": "binary"}),) if "NULL" in case else ()
    said, table = Schemas(tmp_path, kind, rules, {"id": "STRING"}), TABLES[kind]
    for text in made:
        said.ddl(text, table)
    said.row(table, **cells).row(table, **cells | {"id": "ok", "c": "QQ=="}).run(*ALL)
    assert [] == complaints(said)
    said.ddl(statement, table).row(table, **cells | {"id": "later", "c": "QQ=="}).run(*ALL)
    assert [(table, column, 2.0) for column in columns] == complaints(said)
    assert [("unknown_values", "ddl")] * len(columns) == listed_problems(said)
    decide(said, statement)
    assert [] == listed_problems(said), "without another batch"


@pytest.mark.parametrize(
    ("statement", "asks"),
    [
        ("MODIFY c DATETIME", [("t", "c", 1.0)]),
        ("ADD d DATETIME DEFAULT CURRENT_TIMESTAMP", []),
    ],
)
def test_what_a_statement_leaves_after_it_was_held_and_approved(
    tmp_path: Path, statement: str, asks: list[tuple[str, str, float]]
) -> None:
    """The operator has let it do what the list says, which says nothing of values that only the source can convert."""
    said = Schemas(tmp_path, "mysql", (TableRule("db.t", on_schema_change="freeze"),), types={"c": "TIME"})
    said.row("t", id=1, c="10:00:00")
    said.ddl("CREATE TABLE IF NOT EXISTS t (id bigint PRIMARY KEY, c TIME)", "t").run(*ALL)
    assert {"t": "held"} == said.ddl(f"ALTER TABLE t {statement}", "t").run(*ALL)
    decide(said, "ALTER")
    said.row("t", id=2, c="10:00:00").run(*ALL)
    assert asks == complaints(said)
    assert [("unknown_values", "ddl")] * len(asks) == listed_problems(said)
    decide(said, "ALTER")
    assert [] == listed_problems(said)
    said.row("t", id=3, c="10:00:00").run(*ALL)
    assert [] == complaints(said)


def test_what_a_statement_leaves_in_the_mirror_that_was_held(tmp_path: Path) -> None:
    """Another mirror of the table had folded it before it was approved, so nothing was said of the one that had not."""
    frozen = TableRule("db.t", into="db.held", on_schema_change="freeze")
    said = Schemas(tmp_path, "mysql", (TableRule("db.t", also=(frozen,)),), types={"c": "TIME"})
    said.row("t", id=1, c="10:00:00")
    said.ddl("CREATE TABLE IF NOT EXISTS t (id bigint PRIMARY KEY, c TIME)", "t").run(*ALL)
    assert {"t": "done", "held": "held"} == said.ddl("ALTER TABLE t MODIFY c DATETIME", "t").run(*ALL)
    assert [("t", "c", 1.0)] == complaints(said)
    decide(said, "ALTER")
    said.row("t", id=2, c="10:00:00").run(*ALL)
    assert [("held", "c", 1.0)] == complaints(said)
    assert [("unknown_values", "ddl")] == listed_problems(said)
    decide(said, "ALTER")
    assert [] == listed_problems(said)


def test_a_row_to_whose_key_it_has_moved_while_another_one_left_it_is_asked_about(tmp_path: Path) -> None:
    """Its key counted as gone, so that nothing asked for the value which the source gave it."""
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))
    row = {"isDdl": False, "mysqlType": {"id": "int", "n": "int"}, "pkNames": ["id"], "sql": ""}
    for key in ("1", "2"):
        depot.say(**row, type="INSERT", data=[{"id": key, "n": key}], gtid="g:1")
    for kind, key, n in (("DELETE", "1", "1"), ("INSERT", "2", "1"), ("DELETE", "2", "2")):
        depot.say(**row, type=kind, data=[{"id": key, "n": n}], gtid="g:2")
    depot.ddl("ALTER TABLE depot ADD COLUMN u CHAR(36) DEFAULT (uuid())")
    assert ("done", "") == depot.run(checked=True)
    failed = depot.lake().ask('SELECT "check", "column", observed FROM {checks} WHERE state = \'fail\'')
    assert [("unknown_values", "u", 1)] == [tuple(row.values()) for row in failed]
