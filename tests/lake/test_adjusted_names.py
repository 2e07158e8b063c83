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
from ingest.lake.adjusted_names import AdjustedNames, adjusted
from ingest.lake.resolve import SentColumn
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
    names = {"id": "1", "a": "1", "x_y": "5", "old_y": "1", "sent_y": "5", "sent-y": "5"}
    sent = {name: SentColumn(low, "9", "string") for name, low in names.items()}
    resolved = AdjustedNames(lambda _table: sent).take(effects, "3")
    assert columns == [effect.column for effect in resolved if effect.column]


class Debezium(Shops):
    """A table and its schema changes, in one stream."""

    place = 0

    def event(self, **members: Any) -> None:
        self.place += 10
        source = {"connector": "mysql", "db": "cut", "table": "t", "file": "b.1", "pos": self.place, "row": 0}
        self.lines.append(json.dumps(members | {"source": source}))

    def statement(self, text: str, *columns: str) -> None:
        listed = [{"name": name, "typeName": "INT", "typeExpression": "INT"} for name in columns]
        table = {"primaryKeyColumnNames": ["id"], "columns": listed}
        change = {"type": text.split(maxsplit=1)[0], "id": '"cut"."t"', "table": table}
        self.event(databaseName="cut", ddl=text, tableChanges=[change])


def test_a_column_and_the_default_of_its_statement(tmp_path: Path) -> None:
    """The column that the statement adds stood beside that of the rows, which had NULL where the default belongs."""
    mine = Debezium(tmp_path, TableRule(match="*", keys=("id",)), dialect="debezium")
    mine.statement("CREATE TABLE t (id INT PRIMARY KEY, `x-y` INT)", "id", "x-y")
    mine.event(op="c", before=None, after={"id": 1, "x_y": 7})
    assert ("done", "") == mine.run()
    mine.number += 1
    mine.statement("ALTER TABLE t ADD COLUMN `new-c` INT DEFAULT 5", "id", "x-y", "new-c")
    mine.event(op="c", before=None, after={"id": 2, "x_y": 8, "new_c": 9})
    assert ("done", "") == mine.run()
    rows = mine.lake.ask_mirror("mirrors/cut/t", "SELECT * FROM {mirror} ORDER BY id")
    assert [{"id": 1, "x_y": 7, "new_c": 5}, {"id": 2, "x_y": 8, "new_c": 9}] == rows
