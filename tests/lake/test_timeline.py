"""The columns, the key and the existence of a table after each of its statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ingest import ddl
from ingest.change import TableId
from ingest.ddl import UNREAD, Effect
from ingest.gold.plan import eras
from ingest.gold.plan.declared import departed
from ingest.gold.plan.policy import Subject, Timeline
from ingest.gold.plan.steps import steps
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Era
from ingest.ledgers.resolve import SentColumn, resolved
from ingest.ledgers.timeline import Structure, moments
from tests.gold.statements import DEPOT, declared_by, said, subject

CREATED = "CREATE TABLE depot (a INT PRIMARY KEY, b VARCHAR(9), c DATE)"


def structure(*texts: str) -> Structure:
    """The table's structure after some statements."""
    state = Structure()
    for number, text in enumerate(texts):
        for effect in said(text).effects:
            state = state.after(effect, f"{number:03}")
    return state


@pytest.mark.parametrize(
    ("clauses", "types", "key"),
    [
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a": "string", "b": "int32", "c": "date"}, "b"),
        (
            "RENAME COLUMN a TO b, RENAME COLUMN b TO c, RENAME COLUMN c TO a",
            {"a": "date", "b": "int32", "c": "string"},
            "b",
        ),
        ("RENAME COLUMN a TO A, RENAME COLUMN b TO d", {"a": "int32", "d": "string", "c": "date"}, "A"),
    ],
)
def test_columns_that_exchange_names_keep_their_types(clauses: str, types: dict[str, str], key: str) -> None:
    """One after the other, the second rename took the first one's column, and the other one's type was lost."""
    state = structure(CREATED, f"ALTER TABLE depot {clauses}")
    assert types == {name: column.type for name, column in state.columns.items()}
    assert (key,) == state.keys


def test_a_copy_like_a_table_whose_columns_have_exchanged_names_has_its_key() -> None:
    """The copy's rows were told apart by the other column."""
    copied = "CREATE TABLE other LIKE depot"
    texts = [CREATED, "ALTER TABLE depot RENAME COLUMN a TO b, RENAME COLUMN b TO a", copied]
    statements = resolved([said(text, 5 + number) for number, text in enumerate(texts)], [("src", DEPOT)])
    assert [("b",)] == [effect.keys for effect in statements[-1].effects]


def last_era(texts: Sequence[str]) -> Era:
    """The last era of a table by its statements, from place 005 on, whose messages all name the key (a)."""
    statements = [said(text, 5 + number) for number, text in enumerate(texts)]
    shown = eras.Evidence((eras.Run(("a",), "005", "020"),))
    return eras.eras(shown, Timeline.of(statements, subject()).by_statement(), (), keyless=False)[-1]


def test_a_key_column_is_judged_by_the_type_of_the_column_that_has_its_name() -> None:
    """A DATETIME(3) that got the key column's name was taken for that one's DATETIME, and its keys kept their fraction."""
    texts = [
        "CREATE TABLE depot (a DATETIME PRIMARY KEY, b DATETIME(3) NOT NULL)",
        "ALTER TABLE depot RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE depot DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        "ALTER TABLE depot MODIFY a DATETIME",
    ]
    assert "008" == last_era(texts).place


def test_an_add_of_a_column_that_is_there_changes_nothing() -> None:
    """IF NOT EXISTS: its type and its comment were taken for those of the column."""
    again = said("ALTER TABLE depot ADD COLUMN IF NOT EXISTS b INT COMMENT 'other'", 6)
    statements = [said(CREATED), again]
    assert "string" == declared_by(statements, subject()).columns["b"]
    changed = said("ALTER TABLE depot MODIFY b BIGINT", 7)
    assert ["string(9)"] == [step.old for step, _ in steps([*statements, changed], subject()) if step.retypes]


def test_a_structure_says_the_type_that_a_column_has_after_an_unread_statement() -> None:
    """The column was known already, so that the new type was dropped; its default is not in the structure."""
    retyped = Effect("add_column", DEPOT, "b", type="int64", note=UNREAD)
    unread = replace(said("ALTER TABLE depot FROB b", 6), kind="lossy", effects=(retyped,))
    statements = [said("CREATE TABLE depot (a INT PRIMARY KEY, b INT NOT NULL DEFAULT 7)"), unread]
    assert "int64" == declared_by(statements, subject()).columns["b"]
    state = Structure()
    for statement in statements:
        for effect in statement.effects:
            state = state.after(effect)
    column = state.column("b")
    assert ("int64", None, False, "7") == (column.type, column.declared, column.nullable, column.default)


@pytest.mark.parametrize("begins", ["CREATE TABLE depot LIKE other", CREATED.replace(" b ", " d ")])
def test_a_new_table_has_none_of_the_columns_of_the_former_one(begins: str) -> None:
    """A MODIFY of its column was judged by the type of the former table's column of that name."""
    statements = [said(CREATED), said(begins, 6), said("ALTER TABLE depot MODIFY b INT", 7)]
    assert [""] == [step.old for step, _ in steps(statements, subject()) if step.retypes]


def test_a_script_that_finds_a_table_adds_a_column_all_the_same() -> None:
    """CREATE TABLE IF NOT EXISTS names columns that the table, which is there, may lack until they are added."""
    script = "CREATE TABLE IF NOT EXISTS depot (a INT PRIMARY KEY, d INT)"
    statements = [said(CREATED), said(script, 6), said("ALTER TABLE depot ADD COLUMN d INT DEFAULT 5", 7)]
    assert ["5"] == [step.default for step, _ in steps(statements, subject()) if step.column == "d"]


def test_moments_say_what_was_there_before_and_what_is_there_after() -> None:
    """Each walk over statements asks these."""
    texts = [CREATED, "ALTER TABLE depot DROP COLUMN c", "DROP TABLE depot", CREATED]
    statements = [replace(said(text, 5 + number), event_time=number) for number, text in enumerate(texts)]
    seen = [
        (moment.begins, {*moment.before.columns}, {*moment.after.columns}, {*moment.after.left})
        for moment in moments(((each, effect) for each in statements for effect in each.effects), DEPOT)
    ]
    assert [
        (True, set(), {"a", "b", "c"}, set()),
        (False, {"a", "b", "c"}, {"a", "b"}, {"c"}),
        (False, {"a", "b"}, {"a", "b"}, {"c"}),
        (True, {"a", "b"}, {"a", "b", "c"}, set()),
    ] == seen


def test_a_new_table_has_its_own_key_only() -> None:
    """Created again by a script it kept the former table's key."""
    script = "CREATE TABLE IF NOT EXISTS depot (c DATE PRIMARY KEY, b INT)"
    statements = [said(CREATED), said("DROP TABLE depot", 6), said(script, 7)]
    assert ("c",) == declared_by(statements, subject()).keys


def test_columns_do_not_outlive_their_table_where_a_walk_has_no_statements() -> None:
    """An ADD COLUMN in the next table of the name was taken for a repetition, and its keys kept their fraction."""
    texts = [
        "CREATE TABLE depot (a DATETIME PRIMARY KEY)",
        "DROP TABLE depot",
        "CREATE TABLE depot LIKE other",
        "ALTER TABLE depot ADD COLUMN a DATETIME(3)",
        "ALTER TABLE depot MODIFY a DATETIME",
    ]
    assert "009" == last_era(texts).place


def test_a_default_leaves_the_character_set_and_the_comment_of_a_column() -> None:
    """A later MODIFY was taken for a change of the character set, and the comment from the CREATE came back."""
    texts = [
        "ALTER TABLE depot CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE depot ALTER COLUMN b SET DEFAULT 'x'",
    ]
    assert "latin1" == structure(*texts).column("b").charset
    commented = replace(
        said(CREATED, 6), effects=(Effect("comment_column", DEPOT, "b", comment="new"),), kind="none"
    )
    created = said("CREATE TABLE depot (a INT PRIMARY KEY, b INT COMMENT 'old')")
    statements = [created, commented, said("ALTER TABLE depot ALTER COLUMN b SET DEFAULT 4", 7)]
    assert {"b": "new"} == declared_by(statements, subject()).comments


def test_columns_that_a_new_table_has_lost_at_its_beginning_are_vacant() -> None:
    """What was done to it under its former name has the place of the rename."""
    effects = [
        Effect("rename_table", TableId("yard", None, "other"), to=DEPOT),
        Effect("drop_column", DEPOT, "c"),
    ]
    renamed = said("RENAME TABLE other TO depot", 6)
    created = said(CREATED)
    seen = [(created, created.effects[0]), *((renamed, effect) for effect in effects)]
    assert {"c"} == [*moments(seen, DEPOT)][-1].after.left


def test_rows_that_keep_a_former_spelling_are_converted() -> None:
    """Their column was taken for one that is gone, though a column has its name in another letter case."""
    texts = [
        "ALTER TABLE depot DROP COLUMN site",
        "ALTER TABLE depot ADD COLUMN SITE VARCHAR(9)",
        "ALTER TABLE depot CONVERT TO CHARACTER SET latin1",
    ]
    statements = [said(text, 5 + number) for number, text in enumerate(texts)]
    assert {"SITE", "site"} == {step.column for step, _ in steps(statements, subject()) if step.retypes}


def test_a_repeated_create_begins_no_new_table_after_a_script() -> None:
    """A CREATE TABLE IF NOT EXISTS, or a snapshot's description, that came between was taken for the table's CREATE."""
    script = "CREATE TABLE IF NOT EXISTS depot (a INT PRIMARY KEY, b VARCHAR(9), c DATE)"
    texts = [(CREATED, 1), (script, 2), (CREATED, 1)]
    statements = [
        replace(said(text, 5 + number), event_time=time) for number, (text, time) in enumerate(texts)
    ]
    effects = ((each, effect) for each in statements for effect in each.effects)
    assert [True, False, False] == [moment.begins for moment in moments(effects, DEPOT)]


def test_columns_that_differ_in_letter_case_alone_are_told_apart() -> None:
    """In PostgreSQL a table may have both: DROP COLUMN took the other one, or either by the order of a set."""
    table, sent = TableId("yard", "s", "depot"), SentColumn("000", "999", "int32")
    texts = ['CREATE TABLE depot ("a" int, "A" int, b int)', 'ALTER TABLE depot DROP COLUMN "a"']
    read = [ddl.effects(text, "postgres", "yard", "s", "depot") for text in texts]
    statements = [
        Statement(f"s{number}", "src", table, 5 + number, f"{5 + number:03}", text, each.kind, each.effects)
        for number, (text, each) in enumerate(zip(texts, read, strict=True))
    ]
    rows = dict.fromkeys(["a", "A", "b"], sent)
    dropped = resolved(statements, [("src", table)], lambda _source, _table: rows)[-1].effects
    assert ["a"] == [effect.name for effect in dropped]


def test_declared_columns_are_in_the_order_of_their_statements() -> None:
    """A mirror's new columns had the order of a set."""
    names = [f"c{number}" for number in range(20)]
    created = said(f"CREATE TABLE depot ({', '.join(f'{name} INT' for name in names)})")
    assert names == list(declared_by([created], subject()).columns)


def test_columns_that_are_gone_are_told_apart_by_their_letter_case() -> None:
    """The mirror may have both, and a rule that names the former one is to be corrected."""
    statements: list[Statement] = [said(CREATED), said("ALTER TABLE depot RENAME COLUMN b TO B", 6)]
    both = Subject(DEPOT, "lenient", {"b": "string", "B": "string"})
    assert {"b": "006"} == departed(statements, both)
    assert {"b": "006"} == departed(statements, Subject(DEPOT, "lenient", {"B": "string"}))
