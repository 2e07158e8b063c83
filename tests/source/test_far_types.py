"""The columns of Oracle and SQL Server: their types, their texts, and the literals that their rows are asked for by."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
import sqlglot

from ingest.ledgers.mirrors import Column
from ingest.source import database, digest, oracle, sqlserver


@pytest.mark.parametrize("module", [oracle, sqlserver])
def test_a_row_of_many_columns_is_joined_in_groups(module: ModuleType) -> None:
    """Functions take so many arguments, and texts are so long; a column left out would never be compared."""
    parts = [f"COALESCE(c{n}, '~')" for n in range(700)]
    found = digest.source_text(module, parts)  # type: ignore[arg-type]
    for n in range(700):
        assert re.search(rf"\(c{n},", found)
    for call in re.findall(r"CONCAT\(([^()]|\([^()]*\))*\)", found):
        assert call.count(",") < 254


# --- types ----------------------------------------------------------------------------------------

_ORACLE = {
    # as ALL_TAB_COLS has it: declared, logical, compared, and what its text is made by
    ("NUMBER", "22", None, None, "0", None): ("NUMBER", "decimal", True, "'TM9'), '^(-?)[.]'"),
    ("NUMBER", "22", None, "0", "0", None): ("INTEGER", "decimal(38,0)", True, "TO_CHAR(\"C\", 'TM9')"),
    ("NUMBER", "22", "5", "-2", "0", None): ("NUMBER(5,-2)", "decimal(7,0)", True, "TO_CHAR(\"C\", 'TM9')"),
    ("NUMBER", "22", "3", "5", "0", None): ("NUMBER(3,5)", "decimal(5,5)", True, "'FM0.00000'"),
    ("NUMBER", "22", "10", "2", "0", None): ("NUMBER(10,2)", "decimal(10,2)", True, "'FM99999990.0' || "),
    ("NUMBER", "22", "38", "127", "0", None): ("NUMBER(38,127)", "decimal(127,127)", True, "'TM9'"),
    ("NUMBER", "22", None, "3", "0", None): ("NUMBER(*,3)", "decimal", True, "'TM9'"),
    ("FLOAT", "22", "126", None, "0", None): ("FLOAT(126)", "decimal", True, "'TM9'"),
    ("BINARY_FLOAT", "4", None, None, "0", None): ("BINARY_FLOAT", "float32", True, "'Infinity'"),
    ("CHAR", "30", None, None, "10", "C"): ("CHAR(10 CHAR)", "string", True, '"C"'),
    ("NVARCHAR2", "200", None, None, "100", "C"): ("NVARCHAR2(100)", "string", True, '"C"'),
    ("NVARCHAR2", "4000", None, None, "2000", "C"): ("NVARCHAR2(2000)", "string", False, '"C"'),
    ("CLOB", "4000", None, None, "0", None): ("CLOB", "string", False, '"C"'),
    ("BLOB", "4000", None, None, "0", None): ("BLOB", "binary", False, '"C"'),
    ("LONG RAW", "0", None, None, "0", None): ("LONG RAW", "binary", False, '"C"'),
    ("TIMESTAMP(9)", "11", None, "9", "0", None): ("TIMESTAMP(9)", "datetime", True, "FF9"),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "11", None, "6", "0", None): (
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp", True, "AT TIME ZONE '+00:00'",
    ),
    ("INTERVAL DAY(2) TO SECOND(6)", "11", "2", "6", "0", None): ("INTERVAL DAY(2) TO SECOND(6)", "interval", False, "[+]?"),
    ("ROWID", "10", None, None, "0", None): ("ROWID", "string", True, "CAST("),
    ("XMLTYPE", "2000", None, None, "0", None): ("XMLTYPE", "string", False, "XMLSERIALIZE"),
    ("BOOLEAN", "1", None, None, "0", None): ("BOOLEAN", "boolean", True, "'true'"),
    ("SDO_GEOMETRY", "1", None, None, None, None): ("SDO_GEOMETRY", "geometry", False, ""),
    ("BFILE", "530", None, None, "0", None): ("BFILE", "binary", True, ""),
}  # fmt: skip


@pytest.mark.parametrize("given", list(_ORACLE))
def test_columns_of_oracle(given: tuple[Any, ...]) -> None:
    """A type that is taken for another is wrong in every row."""
    wanted = _ORACLE[given]
    kind, length, precision, scale, characters, counted = given
    found = oracle._column(
        "AL32UTF8", oracle._Listed("C", kind, length, precision, scale, characters, counted, "NO", None)
    )
    assert wanted[:3] == (found.declared, found.type, found.comparable)
    assert wanted[3].partition("' || ")[0] in found.text
    assert bool(wanted[3]) == bool(found.text)
    _parses(oracle, found, "oracle")


_SQLSERVER = {
    ("bit", 1, 1, 0): ("bit", "boolean", "'true'"),
    ("tinyint", 1, 3, 0): ("tinyint", "uint8", "varchar(41)"),
    ("money", 8, 19, 4): ("money", "decimal(19,4)", ", 2)"),
    ("smallmoney", 4, 10, 4): ("smallmoney", "decimal(10,4)", ", 2)"),
    ("real", 4, 24, 0): ("real", "float32", ", 3)"),
    ("numeric", 17, 38, 10): ("numeric(38,10)", "decimal(38,10)", "varchar(41)"),
    ("nchar", 20, 0, 0): ("nchar(10)", "string", "nvarchar(10)"),
    ("varchar", -1, 0, 0): ("varchar(max)", "string", "nvarchar(max)"),
    ("varchar", 8000, 0, 0): ("varchar(8000)", "string", "nvarchar(max)"),
    ("sysname", 256, 0, 0): ("nvarchar(128)", "string", "nvarchar(128)"),
    ("ntext", 16, 0, 0): ("ntext", "string", "nvarchar(max)"),
    ("xml", -1, 0, 0): ("xml", "string", "nvarchar(max)"),
    ("uniqueidentifier", 16, 0, 0): ("uniqueidentifier", "string", "char(36)"),
    ("timestamp", 8, 0, 0): ("timestamp", "binary", "[C]"),
    ("image", 16, 0, 0): ("image", "binary", "[C]"),
    ("date", 3, 10, 0): ("date", "date", ", 23)"),
    ("time", 5, 16, 7): ("time(7)", "time", "varchar(16)"),
    ("smalldatetime", 4, 16, 0): ("smalldatetime", "datetime", "121"),
    ("datetimeoffset", 10, 34, 7): ("datetimeoffset(7)", "timestamp", "SWITCHOFFSET"),
    ("hierarchyid", 892, 0, 0): ("hierarchyid", "string", "ToString"),
    ("sql_variant", 8016, 0, 0): ("sql_variant", "unknown", ""),
}  # fmt: skip


@pytest.mark.parametrize("given", list(_SQLSERVER))
def test_columns_of_sql_server(given: tuple[str, int, int, int]) -> None:
    """A type that is taken for another is wrong in every row."""
    wanted = _SQLSERVER[given]
    found = sqlserver._column("C", *given, None, False, 65001)
    assert wanted[:2] == (found.declared, found.type)
    assert wanted[2] in found.text
    assert bool(wanted[2]) == bool(found.text)
    _parses(sqlserver, found, "tsql")


def _parses(module: Any, column: database.SourceColumn, dialect: str) -> None:
    """Everything that may be asked of a column."""
    if not column.text or column.declared == "XMLTYPE":  # sqlglot does not know XMLSERIALIZE(CONTENT ...)
        return
    key = module.key(column)
    texts = [column.text, module.md5(column.text), module.real_date(column), key.order, key.text,
             key.literal.format(database.quoted("it's")), *module.double(column), module.bits(column)]  # fmt: skip
    compared = digest.compared(module, column, Column("C", "C", column.type))
    texts += [compared.source_part, module.number(digest.source_text(module, [compared.source_part]))]
    for one in texts:
        sqlglot.parse_one(f"SELECT {one} AS x FROM t", read=dialect, error_level=sqlglot.ErrorLevel.RAISE)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("datetimeoffset", "2024-02-29T15:59:59.25Z"), ("varbinary", "AP8="), ("bit", "true"), ("nvarchar", "it's\\\n北"),
        ("datetime", "2024-01-01 00:00:00.003"), ("uniqueidentifier", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
        ("money", "-0.5000"),
    ],
)  # fmt: skip
def test_a_row_is_asked_for_by_its_canonical_text_in_sql_server(kind: str, text: str) -> None:
    """A key in a form that the database reads otherwise finds no row, or another."""
    found = sqlserver.equal(
        sqlserver._column("C", kind, 10, 3, 3, "X_CI_AS" if "char" in kind else None, False, 1), text
    )
    wanted = {
        "datetimeoffset": "[C] = CAST('2024-02-29 15:59:59.25 +00:00' AS datetimeoffset(3))",
        "varbinary": "[C] = 0x00ff",
        "bit": "[C] = 1",
        "nvarchar": f"[C] = CAST(CAST(0x{text.encode('utf-16-le').hex()} AS nvarchar(4000)) COLLATE X_CI_AS AS nvarchar(5))",
        "datetime": "[C] = CONVERT(datetime, '2024-01-01 00:00:00.003', 121)",
        "uniqueidentifier": f"[C] = CAST('{text}' AS uniqueidentifier)",
        "money": "[C] = CAST('-0.5000' AS money)",
    }
    assert wanted[kind] == found


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("TIMESTAMP(6) WITH TIME ZONE", "2024-02-29T15:59:59.25Z",
         "FROM_TZ(TO_TIMESTAMP('2024-02-29 15:59:59.25', 'YYYY-MM-DD HH24:MI:SS.FF9'), '+00:00')"),
        ("RAW", "AP8=", "HEXTORAW('00ff')"),
        ("NUMBER", "-0.5", "TO_NUMBER('-0.5')"),
        ("DATE", "2024-02-29 00:00:01", "TO_DATE('2024-02-29 00:00:01', 'YYYY-MM-DD HH24:MI:SS')"),
        ("NVARCHAR2", "é\\'🚚", "UNISTR('\\00E9\\005C''\\D83D\\DE9A')"),
        ("VARCHAR2", "it's \\", "'it''s \\'"),
        ("BINARY_DOUBLE", "1.5", "TO_BINARY_DOUBLE('1.5')"),
    ],
)  # fmt: skip
def test_a_row_is_asked_for_by_its_canonical_text_in_oracle(kind: str, text: str, wanted: str) -> None:
    """A key in a form that the database reads otherwise finds no row, or another."""
    column = oracle._column("AL32UTF8", oracle._Listed("C", kind, "10", None, None, "5", None, "NO", None))
    assert f'"C" = {wanted}' == oracle.equal(column, text)


def test_interval_texts_are_as_the_product_writes_them() -> None:
    """The stream of Alibaba's DTS has 3-06 and 5 04:03:02.1 for what the database prints with signs and zeros."""
    import duckdb

    for kind, printed, wanted in (
        ("INTERVAL YEAR(2) TO MONTH", "+03-06", "3-06"),
        ("INTERVAL YEAR(2) TO MONTH", "-00-03", "-0-03"),
        ("INTERVAL DAY(2) TO SECOND(6)", "+05 04:03:02.100000", "5 04:03:02.1"),
        ("INTERVAL DAY(9) TO SECOND(0)", "+000000010 00:00:00", "10 00:00:00"),
        ("INTERVAL DAY(2) TO SECOND(6)", "-10 00:00:00.000000", "-10 00:00:00"),
    ):
        text = oracle._column(
            "AL32UTF8", oracle._Listed("C", kind, "11", "2", "6", "0", None, "NO", None)
        ).text
        query = f"""SELECT {text.replace('TO_CHAR("C")', "C")} FROM (SELECT '{printed}' AS C)"""
        assert [(wanted,)] == duckdb.connect().execute(query).fetchall()
