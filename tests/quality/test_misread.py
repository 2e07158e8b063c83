"""Cells of a column whose rows do not say what only a statement does: that it is UNSIGNED, or a SET."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.gold.approval import approve_or_dismiss, listed
from ingest.inspect import status
from ingest.run import run
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = {"connector": "mysql", "db": "d", "table": "t", "file": "b.000001", "row": 0, "ts_ms": 1718000000000}


def structure(altered: str = "", **types: str) -> dict[str, Any]:
    """A message of the schema-change topic: a CREATE, or the statement that has altered the table."""
    columns = [{"name": name, "typeName": kind, "typeExpression": kind} for name, kind in types.items()]
    table = {"primaryKeyColumnNames": ["id"], "columns": columns}
    text = ", ".join(f"{name} {kind}" for name, kind in types.items())
    return {
        "source": SOURCE | {"pos": 5 if altered else 1}, "databaseName": "d",
        "ddl": altered or f"CREATE TABLE t ({text}, PRIMARY KEY (id))",
        "tableChanges": [{"type": "ALTER" if altered else "CREATE", "id": '"d"."t"', "table": table}],
    }  # fmt: skip


def failures(
    folder: Path, rule: TableRule, *messages: dict[str, Any], dialect: str = "debezium"
) -> list[str]:
    """What a run over the messages complains of."""
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, messages)) + "\n")
    source = Source("s", "files", dialect, path=str(folder / "in.jsonl"), settle=0)
    pipeline = Pipeline("x", folder / "x.yaml", str(folder / "lake"), (source,), (rule,), engine="auto")
    found = run(unstarted(), pipeline, ("bronze", "silver", "gold", "quality")).failures
    assert Lake(unstarted(), pipeline).exists("checks")
    return found


def row(**cells: int) -> dict[str, Any]:
    """An insert without a schema."""
    return {"op": "c", "before": None, "after": cells, "source": SOURCE | {"pos": 10 + cells["n"] % 10}}


def test_a_negative_number_in_an_unsigned_column_is_an_error(tmp_path: Path) -> None:
    """18446744073709551615 arrives as -1: the mirror was wrong, and all checks passed."""
    made = structure(id="BIGINT", big="BIGINT UNSIGNED", n="BIGINT")
    [said] = failures(
        tmp_path, TableRule("*", keys=("id",)), made, row(id=-7, big=-1, n=-1), row(id=2, big=5, n=2)
    )
    assert "1 row has a negative number in big" in said
    assert "`big: uint64`" in said


def test_a_declared_column_is_read_right(tmp_path: Path) -> None:
    """What the message says to write is the way out; signed columns are no complaint."""
    made = structure(id="BIGINT", big="BIGINT UNSIGNED", n="BIGINT")
    rule = TableRule("*", keys=("id",), columns={"big": "uint64"})
    assert [] == failures(tmp_path, rule, made, row(id=-7, big=-1, n=-1))


def of_maxwell(kind: str, **more: Any) -> dict[str, Any]:
    """A row or a table event of Maxwell's."""
    return {"database": "d", "table": "t", "type": kind, "ts": 1718000000, "position": "b.000001:7", **more}


MADE = of_maxwell(
    "table-create",
    sql="CREATE TABLE t (id INT PRIMARY KEY, tags SET('a','b'), doc JSON)",
    **{"def": {"columns": [{"type": "int", "name": "id"}, {"type": "set", "name": "tags"}, {"type": "json", "name": "doc"}], "primary-key": ["id"]}},
)  # fmt: skip


@pytest.mark.parametrize(("labels", "rows"), [(["a", "b"], 1), ([], 1), (None, 0)])
def test_a_list_of_labels_in_a_set_is_an_error(tmp_path: Path, labels: list[str] | None, rows: int) -> None:
    """Maxwell's list stayed JSON text in the mirror, where the source has `a,b`; a JSON column may have such a list."""
    row = of_maxwell("insert", data={"id": 1, "tags": labels, "doc": ["a"]}, primary_key_columns=["id"])
    said = failures(tmp_path, TableRule("*"), MADE, row, dialect="maxwell")
    assert rows == len(said)
    for each in said:
        assert (
            "1 row has a list of labels in tags, which a statement declares a SET: write `tags: set`" in each
        )


@pytest.mark.parametrize("kind", ["set", "json", "string"])
def test_a_column_of_the_pipeline_file_is_of_its_type(tmp_path: Path, kind: str) -> None:
    """What the complaint says to write is the way out; who wants the list as it is sent was told of it in each run."""
    row = of_maxwell("insert", data={"id": 1, "tags": ["a", "b"], "doc": ["a"]}, primary_key_columns=["id"])
    rule = TableRule("*", columns={"tags": kind, "doc": "json"})
    assert [] == failures(tmp_path, rule, MADE, row, dialect="maxwell")


def test_only_rows_of_a_format_that_sends_lists_are_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run read a column of the whole mirror, in all dialects."""
    asked: list[str] = []
    ask = Lake.ask_mirror
    monkeypatch.setattr(
        Lake, "ask_mirror", lambda lake, name, query: asked.append(query) or ask(lake, name, query)
    )
    rows = {"op": "c", "before": None, "after": {"id": 1, "tags": "a,b"}, "source": SOURCE | {"pos": 10}}
    made = structure(id="BIGINT", tags="SET('a','b')")
    assert [] == failures(tmp_path, TableRule("*", keys=("id",)), made, rows)
    assert [] == [query for query in asked if "tags" in query]


@pytest.mark.parametrize("kind", ["int64", "decimal(20,0)"])
def test_a_negative_number_is_wrong_in_every_type_of_numbers(tmp_path: Path, kind: str) -> None:
    """Who declares a type that is wide enough believes that the mirror is right."""
    made = structure(id="BIGINT", big="BIGINT UNSIGNED", n="BIGINT")
    rule = TableRule("*", keys=("id",), columns={"big": kind})
    [said] = failures(tmp_path, rule, made, row(id=-7, big=-1, n=-1))
    assert "1 row has a negative number in big" in said


ADDED = {  # a table with a row, a statement that adds a column, and a row whose cell is misread
    "maxwell": (
        [of_maxwell("insert", data={"id": 1}, primary_key_columns=["id"])],
        of_maxwell("table-alter", sql="ALTER TABLE t ADD COLUMN tags SET('a','b')", **{"def": MADE["def"]}),
        of_maxwell("insert", data={"id": 2, "tags": ["a", "b"]}, primary_key_columns=["id"]),
    ),
    "debezium": (
        [structure(id="BIGINT", n="BIGINT"), row(id=1, n=2)],
        structure("ALTER TABLE t ADD COLUMN big BIGINT UNSIGNED", id="BIGINT", n="BIGINT", big="BIGINT UNSIGNED"),
        row(id=2, big=-1, n=3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", ADDED)
def test_an_approved_statement_does_not_settle_how_its_column_is_read(tmp_path: Path, dialect: str) -> None:
    """The run failed, and `status`, alerts and pages were green for ever: the column's statement was decided."""
    made, added, misread = ADDED[dialect]
    rule = TableRule("*", keys=("id",), on_schema_change="freeze")
    source = Source("s", "files", dialect, path=str(tmp_path / "in-*.jsonl"), settle=0)
    pipeline = Pipeline("x", tmp_path / "x.yaml", str(tmp_path / "lake"), (source,), (rule,), engine="auto")
    lake = Lake(unstarted(), pipeline)

    def ran(*messages: dict[str, Any]) -> list[str]:
        number = len([*tmp_path.glob("in-*")])
        (tmp_path / f"in-{number}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in messages))
        return run(unstarted(), pipeline, ("bronze", "silver", "gold", "quality")).failures

    ran(*made)
    ran(added)
    [statement] = {entry.statement.id for entry in listed(lake) if entry.pending}
    approve_or_dismiss(lake, statement, "approve", "known")
    [said] = ran(misread)
    kinds = [(problem.kind, problem.state) for problem in status.problems_of(LakeReader(pipeline))]
    assert [("types_misread", "suspect")] == kinds, said
