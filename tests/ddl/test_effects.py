"""Statements and what they do: the table in ``statements.txt``, the ledger's JSON, and the classes."""

from __future__ import annotations

import json

import msgspec
import pytest

from ingest import types
from ingest.change import Change, Op, TableId
from ingest.ddl import ACTIONS, UNREAD, Ddl, Effect, effects, kind_of, of_change, pg_types
from ingest.ddl.effect_model import Dialect
from tests.ddl.cases import MESSAGE, Case, cases, lines

CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.statement[:60])
def test_statement(case: Case) -> None:
    """A misread statement would change a mirror wrongly, or not at all."""
    found = effects(case.statement, case.dialect, *MESSAGE[case.dialect])  # type: ignore[arg-type]
    assert (case.kind, case.lines) == (found.kind, lines(found)), found.reason


def test_every_action_is_shown() -> None:
    """An action without a statement in the table would be untested."""
    shown = {line.split()[0] for case in CASES for line in case.lines}
    assert set(ACTIONS) == shown


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.statement[:60])
def test_round_trip(case: Case) -> None:
    """The ledger keeps effects as JSON: what comes back must be what went in."""
    found = effects(case.statement, case.dialect, *MESSAGE[case.dialect])  # type: ignore[arg-type]
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Ddl)


def test_a_reason_is_always_given() -> None:
    """A ledger row without a reason could not be judged by the operator."""
    assert [] == [case.statement for case in CASES if not effects(case.statement, "mysql", "web").reason]


@pytest.mark.parametrize(
    ("dialect", "statement", "schema", "expected"),
    [
        ("mysql", "DROP TABLE t", None, TableId("m", None, "t")),
        ("mysql", "DROP TABLE d.t", None, TableId("d", None, "t")),
        ("mysql", 'DROP TABLE "d"."T x"', None, TableId("d", None, "T x")),
        ("mysql", "DROP TABLE `d.e`.`t.u`", None, TableId("d.e", None, "t.u")),
        ("mysql", "DROP TABLE 2024_t", None, TableId("m", None, "2024_t")),
        ("oracle", "DROP TABLE t", None, TableId("m", None, "T")),
        ("oracle", 'DROP TABLE o."t"', None, TableId("O", None, "t")),
        ("oracle", "DROP TABLE o.t", "S", TableId("m", "O", "T")),
        ("oracle", 'DROP TABLE d.s."a""b"', None, TableId("D", "S", 'a"b')),
        ("postgres", "DROP TABLE T", "public", TableId("m", "public", "t")),
        ("postgres", "DROP TABLE other.T", "public", TableId("m", "other", "t")),
        ("sqlserver", "DROP TABLE [a ]]b]", "dbo", TableId("m", "dbo", "a ]b")),
        ("sqlserver", "DROP TABLE [Sales].T", "dbo", TableId("m", "Sales", "T")),
        ("sqlserver", 'DROP TABLE d.sales."T"', "dbo", TableId("d", "sales", "T")),
        ("db2", "DROP TABLE t", "HR", TableId("m", "HR", "T")),
        ("db2", 'DROP TABLE s."t"', "HR", TableId("m", "S", "t")),
    ],
)
def test_table_names(dialect: str, statement: str, schema: str | None, expected: TableId) -> None:
    """A name taken from the message, or folded wrongly, would hit another table's mirror."""
    found = effects(statement, dialect, "m", schema, "message")  # type: ignore[arg-type]
    assert (Effect("drop_table", expected),) == found.effects


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int32", "int64", True),
        ("int64", "int32", False),
        ("uint32", "int64", True),
        ("int8", "uint64", True),  # both are DECIMAL(20,0) or narrower in the mirror
        ("uint64", "decimal(20,0)", True),
        ("int64", "decimal(10,0)", False),
        ("decimal(10,2)", "decimal(15,4)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("decimal(10,2)", "decimal(12,1)", False),
        ("float32", "float64", True),
        ("float64", "float32", False),
        ("date", "datetime", True),
        ("datetime", "date", False),
        ("datetime", "timestamp", False),
        ("int32", "string", True),
        ("binary", "string", False),
        (None, "string", True),
        (None, "int64", False),
        ("string", "int64", False),
    ],
)
def test_widens(old: str | None, new: str, *, expected: bool) -> None:
    """A narrowing taken for a widening would damage values silently."""
    effect = Effect("modify_column", TableId("shop", None, "t"), "a", type=new)
    widens = types.widens(types.delta(old), types.delta(new)) if old else kind_of((effect,)) == "safe"
    assert expected == widens


def ddl(statement: str | None, note: str | None, kind: str = "CREATE") -> Ddl:
    structure = json.dumps({"type": kind, "keys": ["id"], "columns": {"id": "int32", "n": "string"}})
    change = Change(
        op=Op.DDL, table=TableId("shop", None, "orders"), ddl=statement, note=note, structure=structure
    )
    return of_change(change)


def test_a_structure_printed_for_a_snapshot_gives_the_key() -> None:
    """Some connectors print no statement that can be read: without the structure no key is known."""
    found = ddl(None, "snapshot")
    assert ("none", [("create_table", ("id",))]) == (
        found.kind,
        [(one.action, one.keys) for one in found.effects],
    )


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("DEFAULT 'x'", ("x", True, None)),
        ("DEFAULT (uuid())", (None, True, "expression")),
        ("", (None, False, None)),
    ],
)
def test_a_structure_leaves_a_created_column_its_default(
    default: str, expected: tuple[str | None, bool, str | None]
) -> None:
    """Maxwell and Debezium print types without it: after an online schema change, old rows had NULL in a new column."""
    [created] = ddl(f"CREATE TABLE orders (id INT PRIMARY KEY, n VARCHAR(9) {default})", None).effects
    columns = {one.name: (one.default, one.has_default, one.note) for one in created.columns}
    assert expected == columns["n"]
    assert {"id": "int32", "n": "string"} == {one.name: one.type for one in created.columns}


@pytest.mark.parametrize("kind", ["CREATE", "DROP"])
def test_a_renamed_table_is_not_a_created_one(kind: str) -> None:
    """Taken for a CREATE, the table had no rows under its new name, and nothing was held."""
    found = ddl("RENAME TABLE shop.orders TO archive.orders", None, kind)
    assert ["rename_table"] == [one.action for one in found.effects]


@pytest.mark.parametrize("columns", [{}, {"id": "int32"}])
def test_a_renamed_table_whose_other_name_is_not_said(columns: dict[str, str]) -> None:
    """AWS DMS names one table of a rename: the other one's rows were missing under it, and nothing was held."""
    structure = json.dumps({"type": "RENAME", "keys": [], "columns": columns})
    [effect] = of_change(
        Change(op=Op.DDL, table=TableId("shop", None, "orders"), structure=structure)
    ).effects
    assert ("truncate_partition", "orders") == (effect.action, effect.table.table)


def test_a_structure_gives_the_key_of_a_statement_that_was_not_understood() -> None:
    """A key known from structures alone must follow a change of it, or two source rows become one."""
    found = ddl("ALTER TABLE orders WIBBLE", None, "ALTER")
    assert [("id",)] == [one.keys for one in found.effects if one.action == "add_primary_key"]


@pytest.mark.parametrize("statement", [None, "", "N/A", "ALTER TABLE orders WIBBLE"])
def test_a_structure_alone_does_not_show_what_became_of_the_rows(statement: str | None) -> None:
    """SQL Server and DMS send no statement: a column may have been renamed, converted, or filled."""
    found = ddl(statement, None, "ALTER")
    assert {UNREAD} == {one.note for one in found.effects if one.action == "add_column"}
    change = Change(op=Op.DDL, table=TableId("shop", None, "orders"), ddl="ALTER TABLE orders ADD n TEXT")
    assert {None} == {one.note for one in of_change(change).effects}


@pytest.mark.parametrize("structure", [None, '{"type":"ALTER","keys":[],"columns":{}}'])
def test_a_schema_change_that_says_nothing_is_unknown(structure: str | None) -> None:
    """As ``none`` it would be passed over, whatever it did to the rows."""
    change = Change(op=Op.DDL, table=TableId("shop", None, "orders"), structure=structure)
    assert ("unknown", ()) == (of_change(change).kind, of_change(change).effects)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE orders (id INT PRIMARY KEY, n BIT(1) DEFAULT b'1')", "true"),
        ("ALTER TABLE orders ADD COLUMN n BIT(1) DEFAULT b'1'", "true"),
        ("ALTER TABLE orders ADD COLUMN n BIT(1) NOT NULL", "false"),
        ("ALTER TABLE orders ADD COLUMN n BIT(1)", None),
    ],
)
def test_a_default_has_the_type_of_the_structure(statement: str, expected: str | None) -> None:
    """Debezium sends BIT(1) as true and false: rows that had the default 1 had NULL in the mirror."""
    kind = statement.split(maxsplit=1)[0]
    structure = json.dumps({"type": kind, "keys": ["id"], "columns": {"id": "int32", "n": "boolean"}})
    change = Change(op=Op.DDL, table=TableId("shop", None, "orders"), ddl=statement, structure=structure)
    [effect] = of_change(change).effects
    column = effect if kind == "ALTER" else next(one for one in effect.columns if one.name == "n")
    assert ("boolean", expected) == (column.type, column.default)


@pytest.mark.parametrize(
    ("kind", "statement", "named", "expected"),
    [
        ("ALTER", "ALTER TABLE t MODIFY c DECIMAL(30,2)", "decimal", "decimal(30,2)"),
        ("ALTER", "ALTER TABLE t ADD c NUMERIC(6,1) DEFAULT 1", "decimal", "decimal(6,1)"),
        ("CREATE", "CREATE TABLE t (c DECIMAL(30,2))", "decimal", "decimal(30,2)"),
        ("ALTER", "ALTER TABLE t MODIFY c DECIMAL(30,2)", "decimal(30,2)", "decimal(30,2)"),
        ("ALTER", "ALTER TABLE t MODIFY c VARCHAR(5)", "decimal", "decimal"),
        ("ALTER", "ALTER TABLE t MODIFY c DECIMAL(3,1)", "int32", "int32"),
    ],
)
def test_a_decimal_has_the_digits_of_its_statement(
    kind: str, statement: str, named: str, expected: str
) -> None:
    """Maxwell's structure has none: each MODIFY to DECIMAL was called a conversion of which nobody knows the result."""
    structure = json.dumps({"type": kind, "keys": [], "columns": {"c": named}})
    change = Change(op=Op.DDL, table=TableId("d", None, "t"), ddl=statement, structure=structure)
    [effect] = of_change(change).effects
    assert expected == (effect.columns[0].type if effect.columns else effect.type)


RELABELLED = [
    (("a", "b"), ("a", "b"), {}),
    (("a", "b"), ("x", "a", "y", "b", "z"), {}),
    (("a", "b"), ("x", "b"), {"a": "x"}),
    (("a", "b"), ("a", "x", "new"), {"b": None}),  # which of the two it is does not show
    (("a", "b", "c"), ("new", "a", "x", "c"), {"b": "x"}),
    (("a",), ("x",), {"a": "x"}),
    (("a", "b"), ("x", "y"), {"a": None, "b": None}),  # or those of a type that was made again
    (("a", "b"), ("b", "a"), {}),  # made again, and the rows have kept theirs
    (("a", "b", "a", "b"), ("x", "b", "a", "b"), {}),  # cut within labels
    (("a", "b", "c"), ("x", "b", "b"), {}),
    (("a", "b", "c"), ("a", "c"), {"b": None}),
    (("a", "b", "c"), ("c", "b", "a", "d"), {"a": None, "c": None}),
    (("a", "b"), ("b", "x"), {"a": None}),
    # RENAME VALUE a TO x and ADD VALUE a: the order shows it, unless the new one stands beside the old one, as where x is added
    (("a", "b"), ("x", "b", "a"), {"a": None, "b": None}),
    (("b", "a"), ("b", "x", "a"), {}),
]


@pytest.mark.parametrize(("old", "new", "became"), RELABELLED)
def test_what_became_of_labels(
    old: tuple[str, ...], new: tuple[str, ...], became: dict[str, str | None]
) -> None:
    """A guess would give rows another label than the source has, in silence."""
    assert became == pg_types.relabelled(old, new)


_NAMED = (
    "ALTER TABLE t ADD {} INT, ADD x INT",
    "ALTER TABLE t ADD x INT, ADD {} INT",
    "ALTER TABLE t DROP {}",
    "ALTER TABLE t DROP {}, ADD x INT",
)
_NAMED_IN = {
    "mysql": (
        *_NAMED, "ALTER TABLE t MODIFY {} BIGINT", "ALTER TABLE t CHANGE {} c INT, ADD x INT", "ALTER TABLE t RENAME {}",
        "ALTER TABLE t ALTER {} SET DEFAULT 5", "ALTER TABLE t ADD INDEX {} (v), ADD x INT",
        "ALTER TABLE t DROP INDEX {}, ADD x INT", "ALTER TABLE {} ADD x INT", "TRUNCATE TABLE {}", "TRUNCATE {}",
    ),
    "postgres": (
        *_NAMED, "ALTER TABLE t DROP {} CASCADE", "ALTER TABLE t ALTER {} TYPE BIGINT", "ALTER TABLE t RENAME {} TO c",
        "ALTER TABLE t ALTER {} DROP NOT NULL, ADD x INT",
    ),
}  # fmt: skip


@pytest.mark.parametrize("statement", [(one, text) for one, texts in _NAMED_IN.items() for text in texts])
def test_a_name_that_is_a_word_of_other_clauses(statement: tuple[str, str]) -> None:
    """A column called ``partitions`` or ``identity`` would be taken for a partition or a property, and its clause would do nothing."""
    dialect, text = statement
    words = "partitions subpartitions identity unused lob nested varray supplemental columns only cluster"
    if dialect == "postgres":
        words = "partition partitions subpartition identity unused key index lob nested columns"
    differing = []
    for word in words.split():
        quoted = f"`{word}`" if dialect == "mysql" else f'"{word}"'
        bare, named = (effects(text.format(name), dialect, "d", "public", "t") for name in (word, quoted))
        if (bare.kind, bare.effects) != (named.kind, named.effects):
            differing.append((word, bare.effects))
    assert differing == []


@pytest.mark.parametrize(
    ("dialect", "clause", "kind"),
    [
        ("mysql", "DROP PARTITION p", "lossy"),
        ("mysql", "DROP SUBPARTITION p, q", "lossy"),
        ("mysql", "ADD PARTITION PARTITIONS 4", "none"),
        ("mysql", "RENAME INDEX a TO b", "none"),
        ("postgres", "ADD PARTITION p VALUES LESS THAN (5)", "none"),
        ("postgres", "DROP PARTITION p", "lossy"),
        ("postgres", "DROP INDEX i", "none"),
        ("postgres", "RENAME PARTITION p TO q", "none"),
        ("oracle", "DROP UNUSED COLUMNS", "none"),
        ("oracle", "DROP PARTITIONS p, q", "lossy"),
        ("oracle", "MODIFY LOB (c) (CACHE)", "none"),
        ("mysql", "PAGE_CHECKSUM=1, TRANSACTIONAL 0, ENCRYPTED=YES, ENCRYPTION_KEY_ID=1", "none"),
        ("mysql", "SHARD_ROW_ID_BITS=4, PRE_SPLIT_REGIONS=2", "none"),
        ("mysql", "PLACEMENT POLICY=p", "none"),
        ("mysql", "BROADCAST", "none"),
        ("mysql", "AUTOEXTEND_SIZE=4M, ENGINE_ATTRIBUTE='{}', PAGE_COMPRESSION_LEVEL=3", "none"),
    ],
)
def test_what_is_no_column(dialect: Dialect, clause: str, kind: str) -> None:
    """A partition taken for a column would leave its rows, and an option that is not known would hold the mirror."""
    assert effects(f"ALTER TABLE t {clause}", dialect, "d", "public", "t").kind == kind
