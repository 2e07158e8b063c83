"""What statements do to rows: columns that come, go and change, defaults, and statements delivered again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest import ddl
from ingest.change import Change, Image, Op
from ingest.fold import Placed, SchemaStep, copies, fold
from ingest.gold.fold import retyped
from ingest.gold.plan.declared import departed
from ingest.gold.plan.policy import APPLIED, HELD, LOGGED, PARTLY, Subject, judge
from ingest.gold.plan.steps import steps
from ingest.ledgers.decisions import APPROVE, DISMISS
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.resolve import resolved
from ingest.ledgers.timeline import rings
from ingest.order import Order
from tests.gold.statements import DEPOT, KNOWN, declared_by, retyped_by, said, subject


def folded(statements: list[Statement], row: dict[str, str | None], policy: str) -> Image:
    """What statements make of a row that is older than they are, by the plain fold."""
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


def test_an_existing_column_is_not_added() -> None:
    """ADD COLUMN IF NOT EXISTS, or the same ALTER once more, would turn true NULLs into the default."""
    guarded = "ALTER TABLE depot ADD COLUMN IF NOT EXISTS c INT DEFAULT 5"
    plain = "ALTER TABLE depot ADD COLUMN c INT DEFAULT 5"
    assert 1 == len(steps([said(plain, 1), said(guarded, 2), said(plain, 3)], subject()))
    assert [True] == [step.guarded for step, _ in steps([said(guarded)], subject())]
    dropped = said("ALTER TABLE depot DROP COLUMN c", 2)
    assert ["add_column", "drop_column", "add_column"] == [
        step.action for step, _ in steps([said(plain, 1), dropped, said(guarded, 3)], subject())
    ]


def test_a_script_that_finds_its_table_brings_no_column_back() -> None:
    """CREATE TABLE IF NOT EXISTS does nothing, so that a former column leaves when its name is given again."""
    texts = ["CREATE TABLE depot (a INT, c INT)", "ALTER TABLE depot DROP COLUMN c"]
    script = "CREATE TABLE IF NOT EXISTS depot (a INT, c INT)"
    again = "ALTER TABLE depot ADD COLUMN c INT DEFAULT 5"
    statements = [said(text, 5 + number) for number, text in enumerate([*texts, script, again])]
    cleared, *others = steps(statements, subject())
    assert "new_incarnation" == cleared[0].action
    assert ["drop_column", "add_column"] == [step.action for step, _ in others if step.column == "c"]
    before, evolving = statements[:3], subject("evolve")
    assert {"c": "006"} == departed(before, subject())
    assert "006" == declared_by(before, evolving).gone["c"]
    assert ["a"] == [*declared_by(before, evolving).columns]
    begun = [*statements[:2], said("DROP TABLE depot", 7), said(script, 8)]
    assert {} == departed(begun, subject())
    described = replace(said(script, 7), kind="none")
    added = steps([*statements[:2], described, statements[3]], subject())[1:]
    assert ["add_column"] == [step.action for step, _ in added]
    assert {} == departed([*statements[:2], described], subject())


def test_a_description_shows_columns_that_are_in_another_letter_case_by_now() -> None:
    """A CHANGE that the ledger lacks has renamed the column, whose mirror would have both."""
    texts = ["CREATE TABLE depot (a INT, b INT)", "CREATE TABLE IF NOT EXISTS depot (a INT, B INT)"]
    created, script = (said(text, 5 + number) for number, text in enumerate(texts))
    described = declared_by([created, replace(script, kind="none")], subject())
    assert (["a", "B"], {"b": "006"}) == ([*described.columns], described.gone)
    assert ["a", "b", "B"] == [*declared_by([created, script], subject()).columns]


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
    """The existing rows have values at the source and NULL in the mirror: the operator must be warned."""
    statement = said(f"ALTER TABLE depot ADD COLUMN {column}")
    assert PARTLY == judge(statement, subject()).state
    assert "existing rows have NULL" in " ".join(judge(statement, subject()).does)
    assert APPLIED == judge(said(statement.text, decided=APPROVE), subject()).state
    assert "c" in declared_by([statement], subject()).columns, "the column is added all the same"


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


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("RENAME COLUMN A TO tmp, RENAME COLUMN b TO A", "RENAME COLUMN tmp TO B"), {"A": "2", "B": "1"}),
        (("DROP COLUMN b", "ADD COLUMN B INT DEFAULT 5"), {"A": "1", "B": "5"}),
        (("DROP COLUMN b", "RENAME COLUMN A TO B"), {"B": "1"}),
    ],
)
def test_a_former_name_in_another_letter_case(texts: tuple[str, ...], expected: Image, policy: str) -> None:
    """The fold kept the former column beside the new one, and the check of cells called it no column of the mirror."""
    statements = [said(f"ALTER TABLE depot {text}", 5 + n) for n, text in enumerate(texts)]
    row = folded(statements, {"A": "1", "b": "2"}, policy)
    assert expected == {name: row[name] for name in expected}
    assert "b" not in row


def test_a_dropped_column_that_is_there_again_keeps_its_values() -> None:
    """A statement between, which could not be read, made it again, and its new name in another letter case emptied it."""
    texts = ("ALTER TABLE depot DROP COLUMN b", "ALTER TABLE depot RENAME COLUMN b TO B")
    statements = [said(text, 5 + n) for n, text in enumerate(texts)]
    assert "2" == folded(statements, {"A": "1", "b": "2"}, "lenient")["B"]


def test_two_columns_that_differ_in_case_are_not_mixed_up() -> None:
    """Where both spellings exist, another spelling is neither of them."""
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
    assert DEPOT in again.tables
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


@pytest.mark.parametrize(
    ("clause", "zero"),
    [
        ("MODIFY no INT NOT NULL", "0"),
        ("CHANGE no nr DECIMAL(6,2) NOT NULL DEFAULT 7", None),  # MySQL's zero, or MariaDB's 7
        ("MODIFY no INT NOT NULL DEFAULT 0", "0"),
        ("MODIFY no DECIMAL(6,2) NOT NULL DEFAULT 0.00", "0"),  # the same, spelt otherwise
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


CREATED = "CREATE TABLE depot (no INT PRIMARY KEY, n INT{})"
SOLID = "ALTER TABLE depot MODIFY n INT NOT NULL"


@pytest.mark.parametrize(
    ("texts", "zero"),
    [
        ([CREATED.format(" DEFAULT 3"), SOLID], None),
        ([CREATED.format(" DEFAULT (1 + 1)"), SOLID], None),
        ([CREATED.format(" DEFAULT 3"), SOLID + " DEFAULT 4"], None),
        ([CREATED.format(" DEFAULT 0"), SOLID + " DEFAULT 4"], "0"),
        ([CREATED.format(""), SOLID + " DEFAULT 4"], "0"),
        ([CREATED.format(" DEFAULT NULL"), SOLID + " DEFAULT 4"], "0"),
        ([CREATED.format(" DEFAULT 3"), "ALTER TABLE depot ALTER n SET DEFAULT NULL", SOLID], "0"),
        ([CREATED.format(""), "ALTER TABLE depot ALTER n SET DEFAULT 3", SOLID], None),
        ([CREATED.format(""), "ALTER TABLE depot ALTER n SET DEFAULT (uuid_short())", SOLID], None),
        ([CREATED.format(""), "ALTER TABLE depot MODIFY n INT DEFAULT 3", SOLID], None),
        ([CREATED.format(" DEFAULT 3"), "ALTER TABLE depot MODIFY n INT", SOLID], "0"),
        ([CREATED.format(" DEFAULT 3"), "ALTER TABLE depot CHANGE n m INT NOT NULL"], None),
        (["CREATE TABLE depot (no INT PRIMARY KEY)", "ALTER TABLE depot ADD n INT DEFAULT 3", SOLID], None),
        (["CREATE TABLE depot (no INT PRIMARY KEY)", "ALTER TABLE depot ADD n INT", SOLID + " DEFAULT 4"], "0"),
        (["CREATE TABLE depot (no INT PRIMARY KEY, n INT DEFAULT 3, m INT)",
          "ALTER TABLE depot RENAME COLUMN n TO m, RENAME COLUMN m TO n", SOLID], "0"),
        ([CREATED.format(" DEFAULT 3"), "DROP TABLE depot", CREATED.format(""), SOLID], "0"),
    ],
)  # fmt: skip
def test_null_becomes_the_default_that_the_column_had(texts: list[str], zero: str | None) -> None:
    """MariaDB, altering in place, puts the former DEFAULT (10.11, executed): the mirror had 0. The new one is not asked by any server."""
    found = steps([said(text, n) for n, text in enumerate(texts, 1)], subject())
    [step] = [step for step, _ in found if step.solid]
    assert zero == step.zero


@pytest.mark.parametrize(
    "clause", ["ALTER d SET DEFAULT 2", "ALTER COLUMN D SET DEFAULT (1 + 1)", "ALTER d DROP DEFAULT"]
)
@pytest.mark.parametrize("added", ["ADD d INT DEFAULT 1", "ADD d INT NOT NULL"])
def test_a_default_beside_the_column_that_it_is_of(added: str, clause: str) -> None:
    """MariaDB gives existing rows the second DEFAULT (10.11, executed), PostgreSQL 15 the first: the mirror had the first."""
    for text in (f"ALTER TABLE depot {added}, {clause}", f"ALTER TABLE depot {clause}, {added}"):
        [step] = [step for step, _ in steps([said(text)], subject()) if step.action != "retype_column"]
        assert ("open_column", "d") == (step.action, step.column)


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
    """``ALTER TYPE ... USING`` gives every row a value that no message contains."""
    [step] = retyped_by(f"ALTER TABLE depot ALTER COLUMN load TYPE numeric(10,2) {using}", "postgres")
    assert certain == step.conversion("decimal(10,4)").certain


@pytest.mark.parametrize(
    ("dialect", "clause", "kept"),
    [
        ("sqlserver", "ALTER COLUMN site {}", "ab   "),
        ("db2", "ALTER COLUMN site SET DATA TYPE {}", "ab   "),
        ("oracle", "MODIFY (site {})", "ab   "),
        ("postgres", "ALTER COLUMN site TYPE {}", "ab"),
    ],
)
@pytest.mark.parametrize(
    "made", ["CREATE TABLE depot (no INT PRIMARY KEY, site {})", "ALTER TABLE depot ADD site {}"]
)
def test_a_char_keeps_its_blanks_where_the_database_does(
    dialect: str, clause: str, kept: str, made: str
) -> None:
    """The statements say which database it is; ``site = 'ab   '`` found no row of the mirror any more."""
    texts = [made.format("CHAR(5)"), f"ALTER TABLE depot {clause.format('VARCHAR(10)')}"]
    read = [ddl.effects(text, dialect, "yard", None, "depot") for text in texts]
    statements = [
        Statement(f"s{batch}", "src", DEPOT, batch, f"{batch:03}", "", one.kind, one.effects)
        for batch, one in enumerate(read, 5)
    ]
    site = "ab   "
    for step, _ in steps(statements, subject()):
        site = str(step.converted(site, "string")) if step.action == "retype_column" else site
    assert kept == site


def test_a_column_that_becomes_generated_has_values_that_no_message_contains() -> None:
    """MODIFY computes them for every row."""
    [step] = retyped_by(
        "ALTER TABLE depot MODIFY site VARCHAR(9) GENERATED ALWAYS AS (concat(no, 'x')) STORED"
    )
    assert not step.conversion("string").certain


def test_a_partition_is_exchanged_with_a_table_that_holds_too() -> None:
    """Its rows are others from there on, and no message says which."""
    statement = said("ALTER TABLE hall EXCHANGE PARTITION p0 WITH TABLE depot")
    assert HELD == judge(statement, subject()).state
    assert DEPOT in statement.tables


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
    """MODIFY ... AUTO_INCREMENT gives them numbers that no message contains."""
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
    assert LOGGED == judge(statement, replace(ignoring, free_until=statement.batch)).state


@pytest.mark.parametrize(
    ("clause", "zeros"),
    [
        ("ADD PRIMARY KEY (no, load)", {"load": "0"}),
        ("ADD CONSTRAINT p PRIMARY KEY (NO, Site, load)", {"site": "", "load": "0"}),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (no)", {}),
        ("ADD UNIQUE KEY (no, load)", {}),
    ],
)
def test_null_becomes_a_zero_in_the_columns_of_a_new_key_of_mysql(clause: str, zeros: dict[str, str]) -> None:
    """Rows would keep NULL where the source has zeros by now: by another key of the pipeline file, or by one that is gone again."""
    declared = replace(subject(), keyed_by=("no",))
    made = [step for step, _ in steps([said(f"ALTER TABLE depot {clause}")], declared)]
    assert zeros == {step.column: step.zero for step in made if step.solid}
    keyed_by_messages = steps(
        [said("ALTER TABLE depot ADD PRIMARY KEY (no)"), said(f"ALTER TABLE depot {clause}")], subject()
    )
    assert {"no": "0", **zeros} == {step.column: step.zero for step, _ in keyed_by_messages if step.solid}


@pytest.mark.parametrize(
    ("texts", "filled"),
    [
        (["CREATE TABLE depot (no int, load int, PRIMARY KEY (no))"], ["load"]),
        (["CREATE TABLE depot (no int, load int NOT NULL, PRIMARY KEY (no))"], []),
        (["CREATE TABLE depot (no int PRIMARY KEY, load int)", "ALTER TABLE depot MODIFY load INT NOT NULL"], []),
        (["CREATE TABLE depot (no int, load int, PRIMARY KEY (no, load))", "ALTER TABLE depot DROP PRIMARY KEY"], []),
        (
            [
                "CREATE TABLE depot (no int, load int, PRIMARY KEY (no, load))",
                "ALTER TABLE depot DROP PRIMARY KEY",
                "ALTER TABLE depot MODIFY load INT NULL",
            ],
            ["load"],
        ),
        (["CREATE TABLE depot (no int, old int, PRIMARY KEY (no, old))", "ALTER TABLE depot RENAME COLUMN old TO load"], []),
        (["CREATE TABLE depot (no int PRIMARY KEY)", "ALTER TABLE depot ADD COLUMN load int DEFAULT 7 NOT NULL"], []),
    ],
)  # fmt: skip
def test_a_column_that_has_no_null_is_not_filled_again(texts: list[str], filled: list[str]) -> None:
    """What MySQL makes of NULL may not be known, and would be reported of a column that cannot have it."""
    statements = [said(text) for text in (*texts, "ALTER TABLE depot ADD PRIMARY KEY (no, load)")]
    made = [step for step, _ in steps(statements, subject()) if step.declared == "NOT NULL"]
    assert filled == [step.column for step in made]


@pytest.mark.parametrize(
    ("known", "text", "zero"),
    [
        ("binary", "Af8=", None),  # a zero byte of BINARY, or none of VARBINARY
        ("binary(6)", "Af8=", None),
        ("enum", "large", ""),
        ("set", "large,red", ""),
        ("float32", "4.185", "0"),
        ("datetime", "2024-01-02 03:04:05.6", "0000-00-00 00:00:00"),
        ("timestamp", "2024-01-02T03:04:05.6Z", None),
        ("unknown", "x", None),
    ],
)
def test_a_new_key_of_mysql_changes_nothing_but_null(known: str, text: str, zero: str | None) -> None:
    """Each value of an ENUM was reported as not known, and NULL in bytes became a byte that the source does not have."""
    depot = Subject(DEPOT, "lenient", {"no": "int32", "size": known}, keyed_by=("no",))
    [(step, _)] = steps([said("ALTER TABLE depot ADD PRIMARY KEY (no, size)")], depot)
    assert [0, 0] == [retyped.effect(step, text, sent) for sent in ("", known)]
    open_or_zero = retyped.OPEN if zero is None else retyped.ALTERED | retyped.RESPELT
    assert (zero, open_or_zero) == (step.converted(None), retyped.effect(step, None, known))


@pytest.mark.parametrize(
    "declared",
    ["uuid", "inet6", "binary(3)", "varbinary(3)", "char(3)", "year", "enum('b','a')", "timestamp"],
)
def test_a_new_key_of_mysql_fills_null_as_a_modify_does(declared: str) -> None:
    """MariaDB's own types are read as texts, and their zero is no empty one; a statement says whether bytes are filled up."""

    def zeros(alter: str) -> list[str | None]:
        made = steps(
            [said(f"CREATE TABLE depot (no INT PRIMARY KEY, c {declared} NULL)"), said(alter)], subject()
        )
        return [step.zero for step, _ in made if step.solid]

    filled = zeros("ALTER TABLE depot DROP PRIMARY KEY, ADD PRIMARY KEY (no, c)")
    assert filled == zeros(f"ALTER TABLE depot MODIFY c {declared} NOT NULL")


def test_a_new_key_of_another_database_changes_no_value() -> None:
    """PostgreSQL and Oracle refuse the statement where there are NULLs."""
    for dialect in ("postgres", "oracle"):
        read = ddl.effects("ALTER TABLE depot ADD PRIMARY KEY (no, load)", dialect, "yard", None, "depot")
        statement = Statement("s", "src", DEPOT, 5, "005", "", read.kind, read.effects)
        assert [] == [
            step for step, _ in steps([statement], replace(subject(), keyed_by=("no",))) if step.solid
        ]


@pytest.mark.parametrize("last", ["X", "x"])
def test_names_exchanged_in_another_letter_case_are_one_group(last: str) -> None:
    """Its end was not found: all later effects were lost in it, and the mirror got a column ``None``."""
    ring = [
        ddl.Effect("rename_column", DEPOT, old, to=new, note=ddl.EXCHANGED)
        for old, new in (("x", "Y"), ("Y", last))
    ]
    statement = said("ALTER TABLE depot RENAME COLUMN x TO Y, RENAME COLUMN Y TO x")
    effects = [*ring, ddl.Effect("add_column", DEPOT, "c", type="int32")]
    assert [2, 1] == [len(group) for _, group in rings((statement, effect) for effect in effects)]


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("known", [KNOWN, {"no": "int32", "A": "string", "B": "string"}])
def test_an_exchange_in_another_letter_case_leaves_no_old_name(policy: str, known: dict[str, str]) -> None:
    """The old spellings stayed beside the new ones; once the mirror had these alone, the renames were misspelt."""
    exchanged = said("ALTER TABLE depot RENAME COLUMN a TO B, RENAME COLUMN b TO A")
    depot = Subject(DEPOT, policy, known)
    row = Placed(Order(0, 1, (1,), 0, (), 0), Change(op=Op.INSERT, after={"no": "1", "a": "a", "b": "b"}))
    made = [
        step._replace(order=Order(0, 1, (9,), 0, (), at))
        for at, (step, _) in enumerate(steps([exchanged], depot))
    ]
    assert {"no": "1", "A": "b", "B": "a"} == fold([row, *made], ("no",))[("1",)].values
    declared = declared_by([exchanged], depot)
    assert ({"A", "B"}, {"a", "b"}) == (set(declared.columns), declared.dropped)
    back = said("ALTER TABLE depot RENAME COLUMN A TO b, RENAME COLUMN B TO a", 6)
    declared = declared_by([exchanged, back], depot)
    assert ({"a", "b"}, {"A", "B"}) == (set(declared.columns), declared.dropped)


def test_old_spellings_stay_where_rows_of_other_tables_may_have_them() -> None:
    """Under one mirror several tables' rows may have values in a column that one of them has respelt."""
    exchanged = said("ALTER TABLE depot RENAME COLUMN a TO B, RENAME COLUMN b TO A")
    shared = Subject(DEPOT, "lenient", KNOWN, respells=False)
    assert not {("drop_column", "a"), ("drop_column", "b")} & {
        (step.action, step.column) for step, _ in steps([exchanged], shared)
    }
    assert set() == declared_by([exchanged], shared).dropped
