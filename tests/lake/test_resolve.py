"""What logged statements mean for the tables that have rows, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ingest import ddl
from ingest.change import TableId
from ingest.ddl import UNREAD, Effect
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.resolve import (
    DOUBTED,
    EMPTY,
    UNSEEN,
    SentColumn,
    hides_rows,
    is_archive,
    is_copy,
    leaves_open,
    resolved,
)
from ingest.ledgers.timeline import moments
from ingest.order import Order, order_key


def table(name: str, database: str = "yard") -> TableId:
    """A table of MySQL's."""
    return TableId(database, None, name)


def said(
    *texts: str, message: str | None = "depot", at: object = None, sequence: tuple[int, ...] = ()
) -> list[Statement]:
    """Statements of one source, one after the other; without a sequence arrival alone decides."""
    found = []
    for number, text in enumerate(texts, 1):
        parsed = ddl.effects(text, "mysql", "yard", None, message)
        place = TableId("yard", None, message)
        found.append(
            Statement(
                f"s{number}",
                "src",
                place,
                number,
                order_key(Order(0, 1, sequence, 0, (number,), 0)),
                text,
                parsed.kind,
                parsed.effects,
                "",
                at,
            )
        )
    return found


def meant(statements: list[Statement], *lanes: str) -> list[list[tuple[str, str]]]:
    """Action and table of each statement's effects."""
    sent = [("src", table(name)) for name in lanes]
    return [
        [(effect.action, str(effect.table.table)) for effect in one.effects]
        for one in resolved(statements, sent)
    ]


def test_a_copy_without_a_renamed_column_drops_it_by_its_name() -> None:
    """A mirror would keep the column, for which no row has a value any more, and be asked to drop one that it has not."""
    *_, effects = [
        [(effect.action, effect.column) for effect in statement.effects if effect.table == table("depot")]
        for statement in resolved(
            said(
                "CREATE TABLE depot (id INT PRIMARY KEY, A INT)",
                "ALTER TABLE depot RENAME COLUMN A TO B",
                "CREATE TABLE _depot_gho (id INT PRIMARY KEY)",
                "RENAME TABLE depot TO _depot_del, _depot_gho TO depot",
            ),
            [("src", table("depot"))],
        )
    ]
    assert ("drop_column", "B") in effects


def test_another_letter_case_means_the_only_such_table() -> None:
    """With lower_case_table_names = 1 the text keeps its own spelling; rows carry the server's."""
    [one] = resolved(said("ALTER TABLE `Depot` ADD COLUMN gate INT"), [("src", table("depot"))])
    [two] = resolved(said("ALTER TABLE YARD.DEPOT ADD COLUMN gate INT"), [("src", table("depot"))])
    assert [table("depot")] == one.tables == two.tables


def test_two_tables_that_differ_in_case_stay_two() -> None:
    """On a server that keeps the case, a statement on one of them must not change the other."""
    sent = [("src", table("depot")), ("src", table("Depot"))]
    named = [one.tables for one in resolved(said("DROP TABLE Depot", "DROP TABLE DEPOT"), sent)]
    assert [[table("Depot")], [table("DEPOT")]] == named


def test_a_table_made_in_another_letter_case() -> None:
    """A server that keeps the case has two tables; the rows of the first would go with the CREATE of the second."""
    create, drop = "CREATE TABLE Depot (id INT PRIMARY KEY)", "DROP TABLE {}"

    def notes(*texts: str, decided: str = "", low: str = "0") -> list[tuple[str | None, str | None]]:
        statements = said(*texts)
        statements[-1] = replace(statements[-1], decided=decided)
        seen = {"id": SentColumn(low, "9", "int32")}
        last = resolved(statements, [("src", table("depot"))], lambda _source, _table: seen)[-1]
        return [(one.table.table, one.note) for one in last.effects]

    assert [("depot", DOUBTED)] == notes(create)
    assert [("depot", DOUBTED)] == notes(drop.format("Depot"), create), (
        "the dropped one may be the second, too"
    )
    assert [("depot", None)] == notes(drop.format("depot"), create)
    assert [("depot", None)] == notes(create, low="9"), "no row came before it"
    assert [("depot", None)] == notes(create, drop.format("Depot"), create, low="9")
    assert [("depot", None)] == notes(create, decided="approve")
    assert [("Depot", DOUBTED)] == notes(create, decided="dismiss")
    assert [("depot", "if-not-exists")] == notes(create.replace("TABLE", "TABLE IF NOT EXISTS"))
    assert [("depot", DOUBTED)] == notes(create.lower(), create, low="9")


def test_a_dismissed_create_is_of_another_table() -> None:
    """What is done to the second table later must not change the first."""
    create, alter = said("CREATE TABLE Depot (id INT PRIMARY KEY)", "ALTER TABLE Depot ADD COLUMN a INT")
    seen = {"id": SentColumn("0", "9", "int32")}
    found = resolved(
        [replace(create, decided="dismiss"), alter],
        [("src", table("depot"))],
        lambda _source, _table: seen,
    )
    assert [table("Depot")] == found[1].tables


def test_a_dropped_database_drops_its_tables() -> None:
    """No message names the tables that go with a database."""
    assert [[("drop_database", "None"), ("drop_table", "depot"), ("drop_table", "hall")]] == meant(
        said("DROP DATABASE Yard", message=None), "hall", "depot"
    )
    other = resolved(said("DROP DATABASE garden"), [("src", table("depot"))])
    assert [] == [one for one in other[0].effects if one.action == "drop_table"]


def test_an_empty_table_renamed_into_another() -> None:
    """Log rotation swaps an empty copy in: its rows are known, for it has none."""
    texts = said(
        "CREATE TABLE next LIKE depot",
        "ALTER TABLE next ADD c INT",
        "RENAME TABLE depot TO old, next TO depot",
    )
    swap = meant(texts, "depot")[2]
    assert [
        ("rename_table", "depot"),
        ("drop_table", "next"),
        ("create_table", "depot"),
        ("add_column", "depot"),
    ] == swap
    assert ("rename_table", "next") in meant(texts, "depot", "next")[2], "its rows are in another mirror"


def test_a_table_with_left_out_rows_renamed_into_another() -> None:
    """A filled table that a rule excludes must not pass for an empty one: its rows would be missing, unseen."""
    texts = said("CREATE TABLE next LIKE depot", "RENAME TABLE depot TO old, next TO depot")
    out = {"": SentColumn("", "", "unknown")}
    last = resolved(
        texts, [("src", table("depot"))], lambda _source, one: out if one.table == "next" else {}
    )[-1]
    assert [("rename_table", "depot"), ("rename_table", "next")] == [
        (one.action, one.table.table) for one in last.effects
    ]


def test_the_copy_of_an_online_schema_tool() -> None:
    """What the tool did to its copy happens to the table where the copy takes its place."""
    texts = said(
        "CREATE /* gh-ost */ TABLE `yard`.`_depot_gho` LIKE `yard`.`depot`",
        "ALTER /* gh-ost */ TABLE `yard`.`_depot_gho` ADD COLUMN c INT NOT NULL DEFAULT 7, DROP COLUMN d",
        "RENAME /* gh-ost */ TABLE `yard`.`depot` TO `yard`.`_depot_del`, `yard`.`_depot_gho` TO `yard`.`depot`",
    )
    last = resolved(texts, [("src", table("depot"))])[2]
    mine = [one for one in last.effects if one.table == table("depot")]
    assert ["rename_table", "swap_table", "drop_column", "add_column"] == [one.action for one in mine]
    assert (None, "7") == (mine[1].note, mine[3].default)


def test_a_copy_whose_statements_were_not_sent() -> None:
    """The table's columns after the swap are unknown: that must not count as no change."""
    [swap] = resolved(
        said("RENAME TABLE depot TO _depot_old, _depot_new TO depot"), [("src", table("depot"))]
    )
    assert Effect("swap_table", table("depot"), to=table("_depot_new"), note=UNSEEN) in swap.effects


SWAP = "RENAME TABLE depot TO _depot_old, _depot_new TO depot"
COPY = (
    "CREATE TABLE _depot_new (id INT PRIMARY KEY, a VARCHAR(9), gate INT NOT NULL DEFAULT 7, n INT NOT NULL)"
)


def onto(*texts: str, sent: dict[str, SentColumn] | None = None) -> list[Effect]:
    """What the last statement does to the table's columns and key."""
    found = resolved(said(*texts), [("src", table("depot"))], lambda _source, _table: sent or {})[-1]
    return [one for one in found.effects if one.action not in ("rename_table", "swap_table")]


def test_a_copy_that_was_created_with_a_new_column() -> None:
    """No ALTER names the column, and rows that are not sent again would have NULL instead of its default."""
    made = "CREATE TABLE depot (id INT PRIMARY KEY, a VARCHAR(9))"
    for texts, sent in (
        ((made,), None),
        ((), {"id": SentColumn("0", "0", "int32"), "A": SentColumn("0", "0", "string")}),
        (
            (),
            {
                "id": SentColumn("0", "0", "int32"),
                "a": SentColumn("0", "0", "string"),
                "gate": SentColumn("9", "9", "int32"),
            },
        ),  # sent by later rows
    ):
        found = onto(*texts, COPY, SWAP, sent=sent)
        assert [("add_column", "gate", "7", True), ("add_column", "n", "0", True)] == [
            (one.action, one.column, one.default, one.guarded) for one in found
        ]
    assert [] == onto(made, "CREATE TABLE _depot_new LIKE depot", SWAP)
    assert [] == onto(
        made.replace("depot", "_depot_new"),
        SWAP,
        sent={"id": SentColumn("0", "0", "int32"), "a": SentColumn("0", "0", "string")},
    )


def test_a_copy_that_was_created_with_another_type_key_or_without_a_column() -> None:
    """What the copy's own definition changes happens to rows that are not sent again, as by an ALTER."""
    made = "CREATE TABLE depot (id INT PRIMARY KEY, price DECIMAL(10,4), note TEXT)"
    copy = "CREATE TABLE _depot_new (id INT, price DECIMAL(10,2) NOT NULL, PRIMARY KEY (id, price))"
    retyped, dropped, rekeyed = onto(made, copy, SWAP)
    assert ("modify_column", "price", "decimal(10,2)", True) == (
        retyped.action, retyped.column, retyped.type, retyped.solid,
    )  # fmt: skip
    assert ("drop_column", "note") == (dropped.action, dropped.column)
    assert ("add_primary_key", ("id", "price")) == (rekeyed.action, rekeyed.keys)
    sent = {"id": SentColumn("0", "0", "int32"), "price": SentColumn("0", "0", "float64")}
    assert [("modify_column", "price")] == [(one.action, one.column) for one in onto(copy, SWAP, sent=sent)]


def test_a_column_of_a_copy_that_may_have_been_renamed() -> None:
    """One column goes and another comes: whether it has the values of the first no message says."""
    made = "CREATE TABLE depot (id INT PRIMARY KEY, a VARCHAR(9))"
    copy = "CREATE TABLE _depot_new (id INT PRIMARY KEY, b VARCHAR(9) DEFAULT 'x')"
    added, dropped = onto(made, copy, SWAP)
    assert ("b", None, UNREAD) == (added.column, added.default, added.note)
    assert leaves_open(added, table("depot"))
    assert ("drop_column", "a") == (dropped.action, dropped.column)


def test_names_of_helper_tables() -> None:
    """A helper taken for another table's changes the wrong mirror."""
    assert is_copy(table("_depot_gho"), table("depot"))
    assert is_copy(table("__depot_new"), table("depot"))
    assert is_archive(table("_depot_old"), table("Depot"))
    assert not is_copy(table("_hall_new"), table("depot"))
    assert not is_copy(table("_depot_new", "garden"), table("depot"))
    assert not is_copy(table("depot_new"), table("depot"))


def test_a_table_that_comes_back_under_its_name() -> None:
    """RENAME away and back again changes no row; what was done in between happens to the table."""
    texts = said("RENAME TABLE depot TO t", "ALTER TABLE t ADD c INT DEFAULT 1", "RENAME TABLE t TO depot")
    assert [("swap_table", "depot"), ("add_column", "depot")] == meant(texts, "depot")[2]


def empties(statements: list[Statement]) -> list[tuple[str, bool]]:
    """What statements do to the depot, and whether it loses all its rows by that."""
    about = resolved(statements, [("s", table("depot"))])
    effects = ((each, effect) for each in about for effect in each.effects if effect.table == table("depot"))
    return [(moment.effect.action, moment.empties) for moment in moments(effects, table("depot"))]


def test_a_table_that_comes_back_empty() -> None:
    """The rows were under its own name, and the TRUNCATE's change is of the other: all of them stayed."""
    texts = said("RENAME TABLE depot TO t", "TRUNCATE TABLE t", "RENAME TABLE t TO depot")
    assert ("truncate", True) == empties(texts)[-1]


def test_an_emptied_copy_empties_no_table() -> None:
    """A tool that begins its copy anew goes on with the table's rows."""
    texts = said(
        "CREATE TABLE _depot_gho LIKE depot", "TRUNCATE TABLE _depot_gho", "RENAME TABLE depot TO _depot_del, _depot_gho TO depot"
    )  # fmt: skip
    assert not any(is_emptied for _, is_emptied in empties(texts))


def test_a_table_that_comes_back_to_another() -> None:
    """The old table's rows are in the mirror no longer: the CREATE in between removed them."""
    texts = said(
        "RENAME TABLE depot TO t",
        "CREATE TABLE depot (no INT)",
        "RENAME TABLE t TO u, depot TO t, u TO depot",
    )
    assert ("rename_table", "u") in meant(texts, "depot")[2]


def test_the_same_message_again_does_nothing() -> None:
    """A dialect without positions delivers an ALTER twice at two places: it must not swap names back."""
    text = "ALTER TABLE depot RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    assert [2, 0] == [len(effects) for effects in meant(said(text, text, at=1714521600), "depot")]
    assert [1, 1] == [
        len(effects) for effects in meant(said(*["DROP TABLE depot"] * 2, at=1714521600), "depot")
    ]


def test_structures_without_a_statement_are_distinguished() -> None:
    """The change of a table's structure, sent without text in the second of its creation, was taken for its repetition."""
    create, alter = said("", "", at=7)
    create = replace(create, effects=(Effect("create_table", table("depot")),))
    alter = replace(alter, effects=(Effect("add_column", table("depot"), "gate", type="int32", note=UNREAD),))
    again = replace(alter, id="s3", order=order_key(Order(0, 1, (), 0, (3,), 0)))
    *found, repeated = resolved([create, alter, again], [("src", table("depot"))])
    assert [(None, create.effects), (None, alter.effects)] == [(one.first, one.effects) for one in found]
    assert "s2" == getattr(repeated.first, "id", None)


def test_a_statement_delivered_again_names_its_first_delivery() -> None:
    """Where arrival decides, older rows may have come again before it: the fold must know since when."""
    text = "ALTER TABLE depot RENAME COLUMN a TO b"
    one, two, three = resolved(said(text, text, text, at=1714521600), [("src", table("depot"))])
    assert [None, one, one] == [one.first, two.first, three.first]
    assert [one.order, two.order] == [two.since, three.since]
    assert [table("depot")] == three.tables
    same = resolved(said(text, text, at=1714521600, sequence=(7,)), [("src", table("depot"))])
    assert [None, None] == [one.first for one in same], "positions bring the older rows back to their places"


def test_a_statement_at_another_position_has_run_again() -> None:
    """A column that is dropped and added again within a second by the same text would keep its old values."""
    add, drop = "ALTER TABLE depot ADD COLUMN gate INT", "ALTER TABLE depot DROP COLUMN gate"
    texts = add, drop, add, add
    placed = [
        replace(one, order=order_key(Order(0, 1, (number,), 0, (at,), 0)))
        for at, (number, one) in enumerate(zip((7, 8, 9, 9), said(*texts, at=1714521600), strict=True))
    ]
    assert [1, 1, 1, 0] == [len(effects) for effects in meant(placed, "depot")]
    failed_over = [*placed[:1], replace(placed[0], order=order_key(Order(1, 1, (2,), 0, (5,), 0)))]
    assert [1, 0] == [len(effects) for effects in meant(failed_over, "depot")], "positions began again"
    seconds = [
        replace(one, order=order_key(Order(0, 1, (7, at), 2, (at,), 0)))
        for at, one in enumerate(placed[:1] * 2)
    ]
    assert [1, 0] == [len(effects) for effects in meant(seconds, "depot")], "placed by its second alone"


def test_the_same_statement_in_another_database_has_run_there() -> None:
    """One migration runs in the databases of all tenants within a second."""
    [one] = said("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 7", at=1714521600)
    effects = tuple(replace(effect, table=TableId("lot", None, "depot")) for effect in one.effects)
    other = replace(one, table=TableId("lot", None, "depot"), effects=effects)
    assert [1, 1, 0] == [len(found) for found in meant([one, other, one], "depot")]


def test_a_table_that_was_renamed_away_is_gone_again() -> None:
    """RENAME away and CREATE delivered again: rows of the old table may have come again before them."""
    away, swap = "RENAME TABLE depot TO depot_1", "RENAME TABLE depot TO x, hall TO depot, x TO hall"
    ghost = "RENAME TABLE depot TO _depot_del, _depot_gho TO depot"
    assert [("drop_table", "depot")] == meant(said(away, away, at=1714521600), "depot")[1]
    assert [] == meant(said(swap, swap, at=1714521600), "depot", "hall")[1], (
        "another table has the name at once"
    )
    assert [] == meant(said(ghost, ghost, at=1714521600), "depot")[1]


def test_an_empty_table_that_took_a_name_is_empty_again() -> None:
    """A rotation delivered again after rows of the old table, but not its CREATE: those rows stayed in the new one."""
    create, rotated = (
        "CREATE TABLE hall LIKE depot",
        "RENAME TABLE depot TO depot_1, hall TO depot",
    )
    found = meant(said(create, rotated, rotated, at=1714521600), "depot")[2]
    assert [("drop_table", "depot"), ("create_table", "depot")] == [one for one in found if one[1] == "depot"]
    dropped = said(create, "DROP TABLE depot", "RENAME TABLE hall TO depot", at=1714521600)
    again = meant([*dropped, *dropped[1:]], "depot")[-1]
    assert [("drop_table", "depot"), ("create_table", "depot")] == [one for one in again if one[1] == "depot"]
    assert [] == meant(said(create, rotated, rotated, at=1714521600, sequence=(7,)), "depot")[2]


def test_a_create_delivered_again_takes_nothing_back() -> None:
    """The key that an ALTER has changed since would be the old one again."""
    create, alter, drop = (
        "CREATE TABLE depot (no INT, day INT, PRIMARY KEY (no))",
        "ALTER TABLE depot DROP PRIMARY KEY",
        "DROP TABLE depot",
    )
    assert [1, 1, 0, 0] == [
        len(effects) for effects in meant(said(create, alter, create, alter, at=1714521600), "depot")
    ]
    found = meant(said(create, alter, drop, create, alter, at=1714521600), "depot")
    assert [1] * 5 == [len(effects) for effects in found], "another table, whose key leaves, too"


def test_a_table_renamed_before_the_first_row_of_its_name() -> None:
    """Those rows are of the next table of the name: the renamed one was empty."""
    texts = said("CREATE TABLE hall (no INT)", "RENAME TABLE hall TO annex", "CREATE TABLE hall (no INT)")

    def effects(low: str) -> list[str]:
        sent = {"no": SentColumn(low, low, "int32")}
        found = resolved(
            texts, [("src", table("hall"))], lambda _source, one: sent if one.table == "hall" else {}
        )
        return [one.action for one in found[1].effects]

    assert ["drop_table", "create_table"] == effects(texts[2].order + "~")
    assert ["rename_table"] == effects(texts[0].order + "~")


CASED = "ALTER TABLE depot MODIFY N BIGINT"


def cased(*texts: str, sent: dict[str, SentColumn] | None = None) -> list[list[tuple[Any, ...]]]:
    """What statements do to columns, as action, column and new name; rows have had the columns ``sent``."""
    found = resolved(said(*texts), [("src", table("depot"))], lambda _source, _table: sent or {})
    return [[(one.action, one.column, one.to) for one in each.effects if one.column] for each in found]


def test_a_column_modified_in_another_letter_case_has_that_name() -> None:
    """MySQL takes the statement's spelling, and so do the rows: existing values would stay under the former name."""
    both, alone = [("rename_column", "n", "N"), ("modify_column", "N", None)], [("modify_column", "N", None)]
    create = "CREATE TABLE depot (id INT PRIMARY KEY, n INT)"
    assert [[], both, alone] == cased(create, CASED, CASED)
    assert [[("add_column", "n", None)], both] == cased("ALTER TABLE depot ADD n INT", CASED)
    assert both == cased("CREATE TABLE other (n INT)", "CREATE TABLE depot LIKE other", CASED)[-1]
    changed = cased(create, "ALTER TABLE depot CHANGE n N INT", CASED, "ALTER TABLE depot MODIFY n INT")
    assert [alone, [("rename_column", "N", "n"), ("modify_column", "n", None)]] == changed[2:]
    assert alone == cased(create, "ALTER TABLE depot DROP n", "ALTER TABLE depot ADD N INT", CASED)[-1]


def test_rows_show_the_letter_case_of_a_modified_column() -> None:
    """Of a table without a CREATE only they do; those of Oracle are in capitals whatever a text says."""
    early, late, now = (order_key(Order(0, 1, (), 0, (number,), 0)) for number in (0, 9, 1))
    old, new = SentColumn(early, early, "int32"), SentColumn(now, late, "int64")
    alone = [[("modify_column", "N", None)]]
    both = [[("rename_column", "n", "N"), *alone[0]]]
    assert both == cased(CASED, sent={"n": old, "N": new})
    assert both == cased(CASED, sent={"n": old}), "the next rows will have it"
    assert alone == cased(CASED, sent={"n": old._replace(high=late)}), "later rows kept the name"
    assert alone == cased(CASED, sent={"N": old})
    assert alone == cased("CREATE TABLE depot (n INT)", CASED, sent={"N": old})[1:], (
        "they never had the other"
    )
    small, plain = "ALTER TABLE depot MODIFY n BIGINT", ("modify_column", "n", None)
    assert [[plain]] == cased(small, sent={"N": old})
    assert [[plain]] == cased(small, sent={"N": old, "ID": old})
    assert [[("rename_column", "N", "n"), plain]] == cased(small, sent={"N": old, "id": old}), (
        "so it is MySQL"
    )
    assert [[("rename_column", "N", "n"), plain]] == cased(small, sent={"N": old, "n": new})


def test_rows_are_asked_only_where_they_may_show_another_spelling() -> None:
    """A question to the lake for each table that was ever created or extended made every batch wait for all of them."""

    def asked(_source: str, _table: TableId) -> dict[str, SentColumn]:
        pytest.fail("the lake is asked")

    texts = (
        "CREATE TABLE depot (no INT)",
        "ALTER TABLE depot ADD gate INT",
        "TRUNCATE TABLE depot",
        "DROP TABLE depot",
    )
    found = resolved(said(*texts), [("src", table("depot"))], asked)
    assert ["create_table", "add_column", "truncate", "drop_table"] == [
        one.effects[0].action for one in found
    ]


@pytest.mark.parametrize("created", [True, False])
@pytest.mark.parametrize(
    "clauses",
    [
        "RENAME COLUMN X TO Y, RENAME COLUMN Y TO X",
        "RENAME COLUMN x TO Y, RENAME COLUMN y TO X",
        "CHANGE X Y INT, CHANGE y X INT",
    ],
)
def test_exchanged_names_are_those_from_before_the_statement(clauses: str, created: bool) -> None:
    """The second rename was given the first one's new name, and later the first, too, once rows had both spellings."""
    texts = ["CREATE TABLE depot (id INT PRIMARY KEY, x INT, y INT)"] * created
    statements = said(*texts, f"ALTER TABLE depot {clauses}")
    before, after = "0", statements[-1].order + "~"
    rows = {name: SentColumn(before, before, "int32") for name in "xy"}
    # of one batch no row's place is known but the lowest
    for low in (after, before):
        seen = rows | {name: SentColumn(low, after, "int32") for name in "XY"}
        made = resolved(statements, [("src", table("depot"))], lambda _source, _table, seen=seen: seen)  # type: ignore[misc]
        renames = [effect for effect in made[-1].effects if effect.action == "rename_column"]
        assert {("x", "Y"), ("y", "X")} == {(rename.column, rename.to) for rename in renames}


def test_names_that_a_copy_exchanged_are_those_of_the_table() -> None:
    """The copy's rows were in no message: only the table's show how its columns are spelt."""
    statements = said(
        "CREATE TABLE _depot_gho LIKE depot",
        "ALTER TABLE _depot_gho RENAME COLUMN X TO Y, RENAME COLUMN Y TO X",
        "RENAME TABLE depot TO _depot_del, _depot_gho TO depot",
    )
    rows = {name: SentColumn("0", "0", "int32") for name in "xy"}
    depot = table("depot")
    made = resolved(statements, [("src", depot)], lambda _source, of: rows if of == depot else {})
    renames = [effect for effect in made[-1].effects if effect.action == "rename_column"]
    assert {("x", "Y"), ("y", "X")} == {(rename.column, rename.to) for rename in renames}


def test_of_a_partition_that_has_sent_no_row_none_are_counted() -> None:
    """Each partition that was ever attached cost a query over all changes, at each reading of the ledger."""
    texts = ("CREATE TABLE part (LIKE root)", "ALTER TABLE root ATTACH PARTITION part DEFAULT")
    statements = [
        replace(statement, effects=ddl.effects(statement.text, "postgres", "db", "s").effects)
        for statement in said(*texts)
    ]
    root = TableId("db", "s", "root")
    made = resolved(statements, [("src", root)], came=lambda *_span: pytest.fail("rows are counted"))
    assert [("truncate_partition", root, EMPTY)] == [
        (effect.action, effect.table, effect.note) for effect in made[-1].effects
    ]


@pytest.mark.parametrize(
    ("texts", "holding"),
    [
        (("ALTER TABLE depot SET UNLOGGED",), [0]),
        (("ALTER TABLE depot SET UNLOGGED", "ALTER TABLE depot SET LOGGED"), [1]),
        (("ALTER TABLE depot SET LOGGED", "ALTER TABLE depot SET UNLOGGED"), [0, 1]),
        (("ALTER TABLE depot SET UNLOGGED", "ALTER TABLE other SET LOGGED"), [0, 1]),
    ],
)
def test_a_bulk_load_that_is_not_logged_asks_once(texts: tuple[str, ...], holding: list[int]) -> None:
    """Both statements of one load held the mirror, each for a decision of its own; a table that stays so sends nothing."""
    statements = [
        replace(statement, effects=ddl.effects(statement.text, "postgres", "db", "s").effects)
        for statement in said(*texts)
    ]
    made = resolved(statements, [("src", TableId("db", "s", name)) for name in ("depot", "other")])
    assert holding == [number for number, each in enumerate(made) if any(map(hides_rows, each.effects))]
