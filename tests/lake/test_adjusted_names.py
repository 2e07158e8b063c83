"""Columns whose names the connector changed for Avro, beside the statements that call them by their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.ddl import Effect
from ingest.ddl.effect_model import ColumnDefinition
from ingest.ledgers.adjusted_names import AdjustedNames, adjusted
from ingest.ledgers.resolve import SentColumn
from tests.shops import Shops

TABLE = TableId("cut", None, "t")


@pytest.mark.parametrize(
    ("name", "sent"),
    [("x-y", "x_y"), ("备注", "__"), ("9a", "_9a"), ("a b.c", "a_b_c"), ("_plain9", "_plain9"), ("", "")],
)
def test_names_as_the_connector_writes_them(name: str, sent: str) -> None:
    """By Debezium's documentation (``field.name.adjustment.mode``, ``avro``)."""
    assert sent == adjusted(name)


def create(*names: str) -> Effect:
    return Effect("create_table", TABLE, columns=tuple(map(ColumnDefinition, names)), keys=names[:1])


def add(name: str) -> Effect:
    return Effect("add_column", TABLE, name)


def drop(name: str) -> Effect:
    return Effect("drop_column", TABLE, name)


@pytest.mark.parametrize(
    ("effects", "columns"),
    [
        pytest.param([create("id", "x-y"), drop("x-y")], ["x_y"], id="of a table whose statement is known"),
        pytest.param([create("id", "x-y", "x_y"), drop("x-y")], ["x-y"], id="both are columns"),
        pytest.param([create("id", "x-y", "x y"), drop("x y")], ["x y"], id="two columns have one name"),
        pytest.param([create("id", "x_y"), add("x-y")], ["x-y"], id="an older column has the name"),
        pytest.param([add("x-y"), drop("x-y")], ["x_y", "x_y"], id="rows have it after the statement alone"),
        pytest.param([add("old-y")], ["old-y"], id="rows have had it before the statement"),
        pytest.param([add("sent-y")], ["sent-y"], id="rows have its own name"),
        pytest.param([add("late-y")], ["late_y"], id="later rows have its own name"),
        pytest.param([add("x-y"), drop("x-y"), add("x y")], ["x_y"] * 3, id="one after the other is added"),
        pytest.param([drop("x-y")], ["x-y"], id="nothing says which column it is"),
        pytest.param(
            [create("id", "x-y"), drop("x-y"), add("x y")], ["x_y", "x_y"], id="one after the other has the name"
        ),
        pytest.param(
            [create("id", "a"), Effect("rename_column", TABLE, "a", to="x-y"), drop("x-y")], ["a", "x_y"], id="renamed"
        ),
    ],
)  # fmt: skip
def test_which_column_a_statement_means(effects: list[Effect], columns: list[str]) -> None:
    """A wrong guess would give a column another one's values; without one, it is NULL beside the one that rows have."""
    names = {
        "id": "1",
        "a": "1",
        "x_y": "5",
        "old_y": "1",
        "sent_y": "5",
        "sent-y": "5",
        "late_y": "5",
        "late-y": "7",
    }
    sent = {name: SentColumn(low, "9", "string") for name, low in names.items()}
    resolved, _ = AdjustedNames(lambda _table: sent).take(effects, "3")
    assert columns == [effect.column for effect in resolved if effect.column]


def test_a_name_that_is_free_again() -> None:
    """Rows had it before the second statement: of the column that the statement before has dropped."""
    sent = {"x_y": SentColumn("4", "9", "string")}
    names = AdjustedNames(lambda _table: sent)
    for order, effects in ("3", [add("x-y")]), ("6", [drop("x-y")]), ("7", [add("x-y")]):
        resolved, _ = names.take(effects, order)
        assert ["x_y"] == [effect.column for effect in resolved]


class Debezium(Shops):
    """A table and its schema changes, in one stream."""

    place = 0
    database = "cut"

    def event(self, **members: Any) -> None:
        self.place += 10
        source = {
            "connector": "mysql",
            "db": self.database,
            "table": "t",
            "file": "b.1",
            "pos": self.place,
            "row": 0,
        }
        self.lines.append(json.dumps(members | {"source": source}))

    def statement(self, text: str, *columns: str) -> None:
        listed = [{"name": name, "typeName": "INT", "typeExpression": "INT"} for name in columns]
        table = {"primaryKeyColumnNames": ["id"], "columns": listed}
        change = {"type": text.split(maxsplit=1)[0], "id": f'"{self.database}"."t"', "table": table}
        self.event(databaseName=self.database, ddl=text, tableChanges=[change])

    def row(self, **row: int) -> None:
        self.event(op="c", before=None, after=row)

    def mirror(self, path: str = "mirrors/cut/t") -> list[dict[str, Any]]:
        return self.lake.ask_mirror(path, "SELECT * FROM {mirror} ORDER BY id")


@pytest.fixture
def debezium(tmp_path: Path) -> Debezium:
    """A table of a column whose name Avro does not take, with a row."""
    table = Debezium(tmp_path, TableRule(match="*", keys=("id",)), dialect="debezium")
    table.statement("CREATE TABLE t (id INT PRIMARY KEY, `x-y` INT)", "id", "x-y")
    table.row(id=1, x_y=7)
    assert ("done", "") == table.run()
    table.number += 1
    return table


ADDED = "ADD COLUMN `new-c` INT DEFAULT 5", {"x_y": 8, "new_c": 9}, {"new_c": 5}, {}
RENAMED = "RENAME COLUMN `x-y` TO `z-y`", {"z_y": 9}, {"z_y": 7}, {"x_y": None}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("text", "row", "there", "left"), [ADDED, RENAMED], ids=["added", "renamed"])
def test_a_column_that_a_statement_makes(
    debezium: Debezium,
    text: str,
    row: dict[str, int],
    there: dict[str, int],
    left: dict[str, None],
    apart: bool,
) -> None:
    """It stood beside that of the rows, which had NULL where the statement's value belongs: also where the statement has come
    in a batch of its own, as it does unless rows follow at once.
    """
    debezium.statement(f"ALTER TABLE t {text}")
    if apart:
        assert ("done", "") == debezium.run()
        debezium.number += 1
    debezium.row(id=2, **row)
    assert ("done", "") == debezium.run()
    assert [{"id": 1, "x_y": 7, **there}, {"id": 2, **row, **left}] == debezium.mirror()
    debezium.number += 1
    debezium.row(id=3, **row)
    assert ("done", "") == debezium.run()
    assert debezium.result
    assert not debezium.result.mirrors[0].rebuilt


def test_a_lake_in_which_the_column_has_two_names(
    debezium: Debezium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that knew no names of Avro folded the statement and the rows apart, and said so: the next one makes it good."""
    debezium.statement("ALTER TABLE t ADD COLUMN `new-c` INT DEFAULT 5", "id", "x-y", "new-c")
    debezium.row(id=2, x_y=8, new_c=9)
    with monkeypatch.context() as older:
        older.setattr(AdjustedNames, "take", lambda _names, effects, _order: (list(effects), ()))
        debezium.run()
    assert {"new-c", "new_c"} < debezium.mirror()[0].keys()
    debezium.number += 1
    debezium.row(id=3, x_y=1, new_c=1)
    assert ("done", "") == debezium.run()
    assert [5, 9, 1] == [row["new_c"] for row in debezium.mirror()]
    assert "new-c" not in debezium.mirror()[0]


def test_tables_of_a_mirror_whose_rows_come_one_after_the_other(tmp_path: Path) -> None:
    """A column of the one table's statement is not that of the other's rows, before these have shown it."""
    rule = TableRule(match="*", into="cut.t", keys=("id",), shard_column="shard")
    table = Debezium(tmp_path, rule, dialect="debezium")

    def both(text: str, **row: int) -> None:
        for table.database in ("cut", "more"):
            table.statement(text)
            if row:
                table.row(**row)
        table.number += 1
        assert ("done", "") == table.run()

    def cells() -> list[int | None]:
        return [row.get("new_c") for row in sorted(table.mirror(), key=lambda row: (row["shard"], row["id"]))]

    both("CREATE TABLE t (id INT PRIMARY KEY, a INT)", id=1, a=7)
    both("ALTER TABLE t ADD COLUMN `new-c` INT DEFAULT 5")
    for table.database, expected in ("cut", [5, 9, None]), ("more", [5, 9, 5, 9]):
        table.number += 1
        table.row(id=2, a=8, new_c=9)
        assert ("done", "") == table.run()
        assert expected == cells()
    assert "new-c" not in table.mirror()[0]
