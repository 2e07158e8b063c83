"""What a logged statement comes to under each policy, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from ingest import ddl, formats
from ingest.change import Change, Hints, Image, Message, Op, TableId
from ingest.fold import Placed, SchemaStep, copies, fold
from ingest.gold import retyped
from ingest.gold.policy import (
    APPLIED,
    DISMISSED,
    HELD,
    LOGGED,
    NOTICED,
    PARTLY,
    Subject,
    concerns,
    judge,
    shown,
    steps,
)
from ingest.lake.decisions import APPROVE, DISMISS
from ingest.lake.resolve import resolved
from ingest.lake.statements import Statement
from ingest.order import Order

DEPOT = TableId("yard", None, "depot")
KNOWN = {"no": "int32", "site": "string", "load": "decimal(10,2)"}


def said(text: str, batch: int = 5, decided: str = "") -> Statement:
    """A statement of a MySQL source at the place of its batch."""
    found = ddl.effects(text, "mysql", "yard", None, "depot")
    return Statement(
        f"s{batch}", "src", DEPOT, batch, f"{batch:03}", text, found.kind, found.effects, decided
    )


def subject(policy: str = "lenient", frozen: int = 0) -> Subject:
    """The depot's mirror."""
    return Subject(DEPOT, policy, KNOWN, frozen)


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
    assert APPLIED == judge(said(text, batch=5), subject("freeze", frozen=5)).state
    assert HELD == judge(said(text, batch=6), subject("freeze", frozen=5)).state


def test_several_effects_in_one_statement() -> None:
    """People approve what they read: each effect is told, widening and narrowing apart."""
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


def test_shown() -> None:
    """A CREATE without rows must give keys and types; under evolve dropped names must be known as gone."""
    history = [
        said("CREATE TABLE depot (no INT, site VARCHAR(9), load DECIMAL(8,3), PRIMARY KEY (no, site))", 1),
        said("ALTER TABLE depot RENAME COLUMN site TO place, DROP COLUMN load", 2),
        said("ALTER TABLE depot MODIFY no BIGINT, ADD COLUMN load INT", 3),
    ]
    lenient, evolve = shown(history, subject()), shown(history, subject("evolve"))
    assert ("no", "place") == lenient.keys
    assert {"no": "int64", "site": "string", "load": "int32", "place": "string"} == lenient.columns
    assert {"no": "int64", "load": "int32", "place": "string"} == evolve.columns
    assert {"site": "002"} == evolve.gone


def test_renamed_columns_keep_the_mirror_type() -> None:
    """A column whose type no statement told would become text under its new name."""
    assert {"nr": "int32"} == shown([said("ALTER TABLE depot RENAME COLUMN no TO nr")], subject()).columns


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


def test_a_plain_create_begins_a_table() -> None:
    """CREATE TABLE succeeds only where no such table stands; with IF NOT EXISTS, and repeated, it proves nothing."""
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


def test_concerns_both_names_of_a_rename() -> None:
    """A rename is news to the new name's mirror, whichever table the message names."""
    statement = said("RENAME TABLE hall TO annex")
    assert [True, True, False] == [
        concerns(statement, TableId("yard", None, name)) for name in ("hall", "annex", "depot")
    ]
    assert concerns(said("?"), DEPOT)


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


def folded(statements: list[Statement], row: dict[str, str | None], policy: str) -> Image:
    """What statements make of a row that stood before them, by the plain fold."""
    change = Change(op=Op.INSERT, keys=("no",), after={"no": "1", **row})
    events = [
        step._replace(order=Order(0, 1, (9,), 0, (), i))
        for i, (step, _) in enumerate(steps(statements, subject(policy)))
    ]
    return fold([Placed(Order(0, 1, (1,), 0, (), 0), change), *events], ("no",))[("1",)].values


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a": "B", "b": "A", "c": "C"}),
        ("CHANGE a b INT, CHANGE b c INT, CHANGE c a INT", {"a": "C", "b": "A", "c": "B"}),
        ("RENAME COLUMN b TO c, RENAME COLUMN c TO b, DROP COLUMN a", {"b": "C", "c": "B"}),
        ("ADD COLUMN a INT DEFAULT 5, RENAME COLUMN a TO d", {"a": "5", "b": "B", "c": "C", "d": "A"}),
        ("RENAME COLUMN a TO b, DROP COLUMN b", {"b": "A", "c": "C"}),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO c, DROP COLUMN c", {"b": "A", "c": "B"}),
        ("ADD COLUMN c INT DEFAULT 5, DROP COLUMN c", {"a": "A", "b": "B", "c": "5"}),
    ],
)
def test_clauses_apply_at_once(clauses: str, expected: dict[str, str], policy: str) -> None:
    """MySQL: every clause uses the names from before the statement, so columns may exchange theirs."""
    found = folded([said(f"ALTER TABLE depot {clauses}")], {"a": "A", "b": "B", "c": "C"}, policy)
    kept = found if policy == "evolve" else {name: found[name] for name in expected}
    assert {**expected, **({"no": "1"} if policy == "evolve" else {})} == kept


def test_a_column_that_stands_is_not_added() -> None:
    """ADD COLUMN IF NOT EXISTS, or the same ALTER once more, would turn true NULLs into the default."""
    guarded = "ALTER TABLE depot ADD COLUMN IF NOT EXISTS c INT DEFAULT 5"
    plain = "ALTER TABLE depot ADD COLUMN c INT DEFAULT 5"
    assert 1 == len(steps([said(plain, 1), said(guarded, 2), said(plain, 3)], subject()))
    assert [True] == [step.guarded for step, _ in steps([said(guarded)], subject())]
    dropped = said("ALTER TABLE depot DROP COLUMN c", 2)
    assert ["add_column", "drop_column", "add_column"] == [
        step.action for step, _ in steps([said(plain, 1), dropped, said(guarded, 3)], subject())
    ]


@pytest.mark.parametrize(
    "column",
    [
        "c DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP",
        "c INT GENERATED ALWAYS AS (no + 1) STORED",
        "c BIGINT NOT NULL AUTO_INCREMENT UNIQUE",
        "c CHAR(36) DEFAULT (UUID())",
    ],
)
def test_values_that_only_the_source_knows(column: str) -> None:
    """The existing rows have values at the source and NULL in the mirror: a person must hear of it."""
    statement = said(f"ALTER TABLE depot ADD COLUMN {column}")
    assert PARTLY == judge(statement, subject()).state
    assert "existing rows have NULL" in " ".join(judge(statement, subject()).does)
    assert APPLIED == judge(said(statement.text, decided=APPROVE), subject()).state
    assert "c" in shown([statement], subject()).columns, "the column is added all the same"


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE depot RENAME COLUMN SITE TO place", {"place": "A"}),
        ("ALTER TABLE depot CHANGE Site place VARCHAR(9)", {"place": "A"}),
        ("ALTER TABLE depot RENAME COLUMN SITE TO Site", {"Site": "A"}),
        ("ALTER TABLE depot RENAME COLUMN SITE TO x, RENAME COLUMN Load TO y", {"x": "A", "y": "1.25"}),
    ],
)
def test_columns_in_another_letter_case(text: str, expected: Image, policy: str) -> None:
    """To MySQL the case of a column's name does not matter: a rename that finds no column loses its values."""
    found = folded([said(text)], {"site": "A", "load": "1.25"}, policy)
    assert expected == {name: found.get(name) for name in expected}
    retyped = steps([said("ALTER TABLE depot MODIFY LOAD DECIMAL(8,1)")], subject(policy))
    assert ["load"] == [step.column for step, _ in retyped]


def test_two_columns_that_differ_in_case_are_not_mixed_up() -> None:
    """Where both spellings stand, another spelling is neither of them."""
    both = Subject(DEPOT, "lenient", {"site": "string", "SITE": "string"})
    assert ["site", "SITE", "Site"] == [both.column(name) for name in ("site", "SITE", "Site")]


def test_a_changed_type_changes_the_rows() -> None:
    """The source converts its rows and no message says so: the mirror would keep the old values."""
    made = said(
        "CREATE TABLE IF NOT EXISTS depot (no INT PRIMARY KEY, a DECIMAL(10,4), b DATETIME(6), c FLOAT)", 1
    )
    text = "ALTER TABLE depot MODIFY a DECIMAL(10,2), MODIFY b DATE, CHANGE c d DOUBLE"
    row: dict[str, str | None] = {"a": "1.2350", "b": "2024-02-28 23:59:59.6", "c": "4.185"}
    expected = {"a": "1.24", "b": "2024-02-29", "d": "4.184999942779541"}
    found = folded([made, said(text)], row, "lenient")
    assert expected == {name: found[name] for name in expected}
    assert {"a": None} == {
        name: value
        for name, value in folded([made, said(text)], {"a": None}, "lenient").items()
        if name == "a"
    }


def test_a_statement_delivered_again_changes_only_what_came_again() -> None:
    """A stream that goes back brings old rows under old names, then the statement: other rows have their values."""
    swap = "ALTER TABLE depot RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    first = said(swap, 2)
    again = replace(said(swap, 5), effects=(), first=first, since=first.order)
    assert concerns(again, DEPOT)
    found = steps([first, again], subject())
    assert {2: "", 5: "002"} == {batch: str(step.since or "") for step, batch in found}
    assert [] == steps([replace(first, effects=(), decided=DISMISS), again], subject()), (
        "the first did nothing"
    )

    def row(batch: int, no: str, a: str, b: str) -> Placed:
        change = Change(op=Op.INSERT, keys=("no",), after={"no": no, "a": a, "b": b})
        return Placed(Order(0, 1, (), 0, (batch,), 0), change)

    def place(text: object) -> Order:
        return Order(0, 1, (), 0, (int(str(text)), 1), 0)

    placed = [
        step._replace(order=place(step.order), since=place(step.since) if step.since else None)
        for step, _ in found
    ]
    rows = [row(1, "1", "A", "B"), row(1, "2", "C", "D"), row(4, "2", "C", "D")]  # key 2 came again
    values = fold([*rows, *_in_row(placed)], ("no",))
    assert {"1": ("B", "A"), "2": ("D", "C")} == {
        str(one.values["no"]): (one.values["a"], one.values["b"]) for one in values.values()
    }
    mine = copies([*rows[:2], *_in_row(placed)])
    assert [("B", "A"), ("D", "C")] == [(one.values["a"], one.values["b"]) for one in mine]


def _in_row(found: list[SchemaStep]) -> list[SchemaStep]:
    """Steps of one statement one after the other."""
    return [step._replace(order=step.order._replace(row=number)) for number, step in enumerate(found)]


def retyped_by(text: str, dialect: str = "mysql") -> list[SchemaStep]:
    """The steps of one statement that retypes columns."""
    found = ddl.effects(text, dialect, "yard", None, "depot")  # type: ignore[arg-type]
    statement = Statement("s", "src", DEPOT, 5, "005", text, found.kind, found.effects)
    return [step for step, _ in steps([statement], subject())]


@pytest.mark.parametrize(
    ("clause", "zero"),
    [
        ("MODIFY no INT NOT NULL", "0"),
        ("CHANGE no nr DECIMAL(6,2) NOT NULL DEFAULT 7", None),  # MySQL's zero, or MariaDB's 7
        ("MODIFY no INT NOT NULL DEFAULT 0", "0"),
        ("MODIFY site VARCHAR(9) NOT NULL DEFAULT ''", ""),
        ("MODIFY site VARCHAR(9) NOT NULL DEFAULT 'x'", None),
        ("MODIFY site DATE NOT NULL DEFAULT '2024-01-02'", None),
        ("MODIFY site VARCHAR(9) NOT NULL", ""),
        ("MODIFY site ENUM('b','a') NOT NULL", ""),
        ("MODIFY site DATE NOT NULL", "0000-00-00"),
        ("MODIFY site DATETIME(3) NOT NULL", "0000-00-00 00:00:00"),
        ("MODIFY site TIMESTAMP NOT NULL", None),  # this moment, or a zero
        ("MODIFY site JSON NOT NULL", None),
        ("MODIFY site BINARY(2) NOT NULL", "AAA="),
    ],
)
def test_null_becomes_a_zero_in_a_column_of_mysql_that_becomes_not_null(
    clause: str, zero: str | None
) -> None:
    """Where the column has another default, MySQL and MariaDB put different values there."""
    step = retyped_by(f"ALTER TABLE depot {clause}")[-1]
    assert (True, zero) == (step.solid, step.zero)


def converted(texts: list[str], row: dict[str, str]) -> tuple[dict[str, str | None], set[str]]:
    """A row of texts after some statements, and the columns of which the result is doubted."""
    after: dict[str, str | None] = {**row}
    doubted = set()
    for step, _ in steps([said(text, 5 + at) for at, text in enumerate(texts)], subject()):
        if step.action == "retype_column" and (text := after.get(step.column)) is not None:
            rule = step.conversion()
            doubted |= {step.column} if not rule.certain or rule.doubted(text) else set()
            after[step.column] = rule.of(text)
    return after, doubted


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
    """No message tells: a mirror would keep texts that the source has lost."""
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
    """Maxwell and Debezium send each column's character set beside the statement."""
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


def test_other_databases_refuse_not_null_where_there_are_nulls() -> None:
    """Oracle's ENABLE NOVALIDATE keeps them."""
    for dialect in ("oracle", "postgres"):
        text = "ALTER TABLE depot MODIFY (SITE VARCHAR2(9) NOT NULL ENABLE NOVALIDATE)"
        if dialect == "postgres":
            text = "ALTER TABLE depot ALTER site TYPE varchar(9), ALTER site SET NOT NULL"
        assert not any(step.solid for step in retyped_by(text, dialect))


@pytest.mark.parametrize(
    ("using", "certain"),
    [
        ("", True),
        ("USING load", True),
        ("USING load::numeric(10,2)", True),
        ("USING load * 100", False),
        ("USING load::int", False),
        ("USING (site::numeric)", False),
    ],
)
def test_what_an_expression_computes_is_not_known(using: str, certain: bool) -> None:
    """``ALTER TYPE ... USING`` gives every row a value that no message tells."""
    [step] = retyped_by(f"ALTER TABLE depot ALTER COLUMN load TYPE numeric(10,2) {using}", "postgres")
    assert certain == step.conversion("decimal(10,4)").certain


def test_a_column_that_becomes_generated_has_values_that_no_message_tells() -> None:
    """MODIFY computes them for every row."""
    [step] = retyped_by(
        "ALTER TABLE depot MODIFY site VARCHAR(9) GENERATED ALWAYS AS (concat(no, 'x')) STORED"
    )
    assert not step.conversion("string").certain


def test_a_partition_is_exchanged_with_a_table_that_holds_too() -> None:
    """Its rows are others from there on, and no message tells which."""
    statement = said("ALTER TABLE hall EXCHANGE PARTITION p0 WITH TABLE depot")
    assert HELD == judge(statement, subject()).state
    assert concerns(statement, DEPOT)


def test_a_new_unique_key_takes_rows_away_where_a_tool_copies_them() -> None:
    """gh-ost and pt-online-schema-change copy with INSERT IGNORE."""
    made = resolved(
        [
            said("CREATE TABLE _depot_gho LIKE depot", 1),
            said("ALTER TABLE _depot_gho ADD UNIQUE KEY u (site)", 2),
            said("RENAME TABLE depot TO _depot_del, _depot_gho TO depot", 3),
        ],
        [("src", DEPOT)],
    )
    assert HELD == judge(made[-1], subject()).state


def test_a_change_without_a_statement_asks_for_attention() -> None:
    """A structure has the new columns; a renamed one looks like a new one."""
    structure = '{"type":"ALTER","keys":["no"],"columns":{"no":"int32","gate":"string"}}'
    found = ddl.of_change(Change(op=Op.DDL, table=DEPOT, structure=structure))
    statement = Statement("s5", "src", DEPOT, 5, "005", "", found.kind, found.effects)
    verdict = judge(statement, subject())
    assert PARTLY == verdict.state
    assert "has column gate (STRING); what became of the rows is not known" in verdict.does


def test_a_truncate_that_spells_its_table_in_another_case_empties_it() -> None:
    """Its change is another table's, as the message names it, and would empty nothing."""
    for text, made in (("TRUNCATE TABLE Depot", ["new_incarnation"]), ("TRUNCATE TABLE depot", [])):
        found = resolved([said(text)], [("src", DEPOT)])
        assert made == [step.action for step, _ in steps(found, subject())]


def test_zeros_are_numbered_where_a_column_counts_by_itself() -> None:
    """MODIFY ... AUTO_INCREMENT gives them numbers that no message tells."""
    [step] = retyped_by("ALTER TABLE depot MODIFY no INT AUTO_INCREMENT")
    assert retyped.OPEN == retyped.effect(step, "0", "int32")
    assert 0 == retyped.effect(step, "7", "int32")


@pytest.mark.parametrize(
    "text", ["ALTER TABLE depot DROP COLUMN site", "ALTER TABLE depot RENAME COLUMN site TO place"]
)
def test_a_column_that_left_a_table_without_a_key(text: str) -> None:
    """All values identify a row: with the old column's among them, no later delete finds its row."""
    statement = said(text)
    for name in ("lenient", "evolve"):
        found = steps([statement], Subject(DEPOT, name, KNOWN, keyless=True))
        assert ("drop_column", "site") == (found[-1][0].action, found[-1][0].column)
    assert not any(
        step.action == "drop_column" for step, _ in steps([statement], Subject(DEPOT, "lenient", KNOWN))
    )
    ignoring = Subject(DEPOT, "ignore", KNOWN, keyless=True)
    assert HELD == judge(statement, ignoring).state
    assert LOGGED == judge(statement, replace(ignoring, keyless=False)).state
    assert LOGGED == judge(statement, replace(ignoring, frozen=statement.batch)).state
