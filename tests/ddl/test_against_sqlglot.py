"""Another parser's opinion: wherever sqlglot has a tree, the columns it sees are the ones read here."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from ingest.change import TableId
from ingest.ddl import Effect, effects
from tests.ddl.cases import MESSAGE, Case, cases

Facts = list[tuple[str, str]]

READ_AS = {"mysql": "mysql", "oracle": "oracle", "postgres": "postgres", "sqlserver": "tsql"}
"""sqlglot's own names; it does not read Db2."""

MISREAD_BY_SQLGLOT: dict[str, Facts] = {
    # it drops what MySQL executes
    "ALTER TABLE users /*!50601 ADD COLUMN a INT NOT NULL */ /* why */ -- and who": [("add_column", "a")],
    # it takes the column for the table's new name
    "ALTER TABLE users RENAME a TO b": [("rename_column", "a")],
    # it takes the constraint, which is the list's last, for a column
    "ALTER TABLE dbo.t ADD c INT NOT NULL CONSTRAINT df_c DEFAULT (5), d NVARCHAR(20) NULL, CONSTRAINT uq UNIQUE (c)": [
        ("add_column", "c"),
        ("add_column", "d"),
    ],
}


def _sqlglot_facts(case: Case) -> Facts | None:
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    try:
        tree = sqlglot.parse_one(case.statement, read=READ_AS[case.dialect])
    except sqlglot.errors.SqlglotError:
        return None
    if not isinstance(tree, exp.Alter) or tree.find(exp.Command):
        return None
    facts: Facts = []
    for action in tree.args.get("actions") or []:
        facts += _facts(action)
    return facts


def _facts(action: Any) -> Facts:
    if isinstance(action, exp.ColumnDef):
        return [("add_column", action.name.lower())]
    if isinstance(action, exp.Schema):
        return [fact for inner in action.expressions for fact in _facts(inner)]
    if isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
        return [("drop_column", dropped.name.lower()) for dropped in action.args["tables"]]
    if isinstance(action, exp.RenameColumn):
        return [("rename_column", action.this.name.lower())]
    if isinstance(action, exp.AlterRename):
        return [("rename_table", action.this.name.lower())]
    return []


def _own_facts(case: Case) -> Facts:
    found = effects(case.statement, case.dialect, *MESSAGE[case.dialect]).effects  # type: ignore[arg-type]
    wanted = ("add_column", "drop_column", "rename_column", "rename_table")
    return [(effect.action, _name(effect).lower()) for effect in found if effect.action in wanted]


def _name(effect: Effect) -> str:
    return str(effect.to.table if isinstance(effect.to, TableId) else effect.column)


def _readable() -> list[Case]:
    return [case for case in cases() if case.kind != "unknown" and case.dialect in READ_AS]


def _compared() -> list[tuple[Case, Facts]]:
    pairs = [(case, _sqlglot_facts(case)) for case in _readable()]
    return [(case, facts) for case, facts in pairs if facts is not None and "CHANGE" not in case.statement]


@pytest.mark.parametrize(
    ("case", "facts"), _compared(), ids=lambda value: getattr(value, "statement", "")[:60]
)
def test_same_columns(case: Case, facts: Facts) -> None:
    """A disagreement means that one of two parsers misreads a common statement."""
    assert sorted(MISREAD_BY_SQLGLOT.get(case.statement, facts)) == sorted(_own_facts(case))


def _has_tree(case: Case) -> bool:
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    try:
        tree = sqlglot.parse_one(case.statement, read=READ_AS[case.dialect])
    except sqlglot.errors.SqlglotError:
        return False
    return tree is not None and tree.find(exp.Command) is None


def test_sqlglot_gives_no_tree_for_two_statements_in_five() -> None:
    """The reason for a reader of our own: once it is gone, so should the reader be."""
    known = {case.statement: case for case in _readable()}
    without = [statement for statement, case in known.items() if not _has_tree(case)]
    assert len(without) / len(known) > 0.35
    assert "ALTER TABLE emp MODIFY name VARCHAR2(200)" in without


def test_a_tree_has_lost_what_the_ledger_needs() -> None:
    """MySQL executes the inside of such a comment, and the ledger shows a type as the source wrote it."""
    dropped = sqlglot.parse_one("ALTER TABLE t ADD a INT /*!50601 , ADD b INT */", read="mysql")
    assert ["a"] == [column.name for column in dropped.find_all(exp.ColumnDef)]
    spelled = sqlglot.parse_one("ALTER TABLE t ADD a INT1", read="mysql")
    assert "INT1" not in spelled.sql("mysql")
