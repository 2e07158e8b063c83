"""Databases that are not there: their dictionaries as they document them, and DuckDB in the place of their tables.

Every statement is first parsed as the database's own SQL.  Functions that DuckDB lacks do here what the database's
documents say of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Self

import duckdb
import sqlglot
from sqlglot import exp


class Cursor:
    """What the dialects use of a DB-API cursor."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.arraysize = 100
        self.prefetchrows = 2
        self._found: list[tuple[Any, ...]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._found = []

    def execute(self, statement: str) -> None:
        """Answer one statement."""
        self._found = list(self.server.answer(statement))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.fetchmany(len(self._found))

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows."""
        size = self.arraysize if size is None else size
        found, self._found = self._found[:size], self._found[size:]
        return found


class Server:
    """A server, and each connection to it."""

    dialect = ""

    def __init__(self) -> None:
        self.duck = duckdb.connect()
        self.asked: list[str] = []
        self.given: dict[str, Any] = {}  # to `connect`
        self.columns: list[tuple[Any, ...]] = []
        self.keys: list[tuple[str]] = []
        self.prepare()

    def connect(self, **given: Any) -> Self:
        """The client's function."""
        self.given = given
        return self

    def cursor(self) -> Cursor:
        """A new cursor."""
        return Cursor(self)

    def close(self) -> None:
        """There is nothing to close."""

    def answer(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement."""
        self.asked.append(statement)
        if statement.startswith(("SET ", "ALTER SESSION ")):
            return []
        tree = sqlglot.parse_one(statement, read=self.dialect, error_level=sqlglot.ErrorLevel.RAISE)
        if (known := self.dictionary(statement)) is not None:
            return known
        return self.duck.cursor().execute(self.translated(statement, tree)).fetchall()

    def prepare(self) -> None:
        """Functions that DuckDB lacks."""

    def dictionary(self, statement: str) -> Sequence[tuple[Any, ...]] | None:
        """The rows of a statement about the database itself; None for all others."""
        raise NotImplementedError

    def translated(self, statement: str, tree: exp.Expression) -> str:
        """A statement in DuckDB's words."""
        raise NotImplementedError


class Oracle(Server):
    """ALL_TAB_COLS, ALL_CONS_COLUMNS and the functions that the dialect uses."""

    dialect = "oracle"
    charset = "AL32UTF8"
    is_old = False  # without collations

    def prepare(self) -> None:
        """As the SQL Language Reference has them."""
        text = "VARCHAR"
        self.duck.create_function("ora_char", to_char, [text, text, text], text)  # type: ignore[list-item,arg-type]
        for one in (
            "to_char(x) AS ora_char(typeof(x), CAST(x AS VARCHAR), ''), (x, f) AS ora_char(typeof(x), CAST(x AS VARCHAR), f)",
            "standard_hash(x, method) AS unhex(md5(x))",
            "rawtohex(x) AS hex(x)",
            "hextoraw(x) AS unhex(x)",
            "convert(x, charset) AS x",
            "to_number(x) AS CAST(x AS DECIMAL(38, 10)), (x, f) AS CAST('0x' || x AS UBIGINT)",
            "to_date(x, f) AS CAST(x AS TIMESTAMP)",
            "to_timestamp(x, f) AS CAST(x AS TIMESTAMP)",
            "to_binary_double(x) AS CAST(x AS DOUBLE)",
        ):
            self.duck.execute(f"CREATE MACRO {one}")
        self.duck.execute("CREATE SCHEMA utl_raw")
        self.duck.execute(
            "CREATE MACRO utl_raw.cast_from_binary_double(x, e) AS CAST(CAST(x AS BIT) AS BLOB)"
        )

    def dictionary(self, statement: str) -> Sequence[tuple[Any, ...]] | None:
        """Rows as the Database Reference describes them, numbers as digits."""
        import oracledb

        if "all_tab_cols" in statement:
            if self.is_old and "collation" in statement:
                raise oracledb.DatabaseError(Fault(904, 'ORA-00904: "COLLATION": invalid identifier'))
            return self.columns
        if "all_cons_columns" in statement:
            return self.keys
        if "nls_database_parameters" in statement:
            return [(self.charset,)]
        if "SYSTIMESTAMP" in statement:
            return [("2024-05-01T00:00:00.000000Z",)]
        return None

    def translated(self, statement: str, tree: exp.Expression) -> str:
        """Most of it is DuckDB's SQL already."""
        found = re.sub(r"OFFSET (\d+) ROWS FETCH NEXT 1 ROWS ONLY", r"LIMIT 1 OFFSET \1", statement)
        found = re.sub(r"""(TO_BINARY_DOUBLE\("\w+"\)|"\w+") IS NAN""", r"isnan(\1)", found)
        found = re.sub(r"""(TO_BINARY_DOUBLE\("\w+"\)|"\w+") IS INFINITE""", r"isinf(\1)", found)
        return re.sub(r"""\("(\w+)" AT TIME ZONE '\+00:00'\)""", r'"\1"', found)


class Fault:
    """What the client puts into its errors."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


def to_char(kind: str, text: str, form: str) -> str:
    """``TO_CHAR`` of numbers, dates and texts."""
    if kind in ("DOUBLE", "FLOAT"):
        head, _, tail = f"{float(text):.16E}".partition("E")
        return f"{head}E{int(tail):+04d}"
    if kind.startswith("TIMESTAMP"):
        date, _, clock = text.partition(" ")
        clock, _, fraction = clock.partition(".")
        between = "T" if '"T"' in form else " "
        said = f"{' ' if form.startswith('S') else ''}{date}{between}{clock}"
        return said + (f".{fraction.ljust(9, '0')}" if "FF9" in form else "")
    if kind == "VARCHAR":
        return text
    number = Decimal(text)
    if form == "TM9":
        digits = format(number.normalize(), "f")
        bare = digits.replace("0.", ".", 1) if digits.lstrip("-").startswith("0.") else digits
        return bare if len(bare) <= 64 else f"{number.normalize():E}"
    assert re.fullmatch(r"FM9*0\.0+", form), form
    places = len(form.partition(".")[2])
    assert len(form.partition(".")[0]) - 2 >= len(str(abs(int(number)))), f"{form} would show ####"
    return f"{number:.{places}f}"


class SQLServer(Server):
    """sys.columns, sys.indexes and the functions that the dialect uses."""

    dialect = "tsql"

    def prepare(self) -> None:
        """As the T-SQL reference has them."""
        for name, do, given, found in (
            ("utf16_of", lambda text: text.encode("utf-16-le"), "VARCHAR", "BLOB"),
            ("of_utf16", lambda data: data.decode("utf-16-le"), "BLOB", "VARCHAR"),
        ):
            self.duck.create_function(name, do, [given], found)  # type: ignore[list-item,arg-type]
        for one in (
            "bits_of(x) AS hex(CAST(CAST(x AS BIT) AS BLOB))",
            "style_3(x) AS printf('%.16e', x)",
            "style_121(x) AS strftime(x, '%Y-%m-%d %H:%M:%S.%f') || '0'",
            "charindex(part, x) AS instr(x, part)",
        ):
            self.duck.execute(f"CREATE MACRO {one}")

    def dictionary(self, statement: str) -> Sequence[tuple[Any, ...]] | None:
        """Rows as the documents describe them."""
        if "sys.indexes" in statement:
            return self.keys
        if "sys.columns" in statement:
            return self.columns
        if "SYSUTCDATETIME" in statement:
            return [("2024-05-01T00:00:00.0000000Z",)]
        return None

    def translated(self, statement: str, tree: exp.Expression) -> str:
        """Converted by what the styles mean."""
        return tree.transform(_of_sqlserver).sql(dialect="duckdb")


def _call(name: str, *arguments: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _of_sqlserver(node: exp.Expression) -> exp.Expression:
    match node:
        case exp.Collate():
            return node.this.transform(_of_sqlserver)
        case exp.National():
            return exp.Literal.string(node.this)
        case exp.HexString():
            return _call(
                "unhex", exp.Literal.string(f"{int(node.this):X}" if node.this.isdigit() else node.this)
            )
        case exp.Add() if node.expression.is_string or not isinstance(node.expression, exp.Literal):
            left, right = (one.transform(_of_sqlserver) for one in (node.this, node.expression))
            return exp.DPipe(this=left, expression=right)
        case exp.Convert():
            return _converted(node.this, node.expression, node.args.get("style"))
        case exp.Cast():
            return _converted(node.args["to"], node.this, None)
    return node


_TYPES = {
    "nvarchar": "text", "nchar": "text", "varchar": "text", "char": "text", "datetime2": "timestamp",
    "datetime": "timestamp", "float": "double", "bit": "boolean",
}  # fmt: skip


def _converted(kind: exp.Expression, value: exp.Expression, style: exp.Expression | None) -> exp.Expression:
    """CONVERT and CAST of one type into another."""
    found = re.match(r"(\w+)(?:\((\w+)\))?", kind.sql("tsql").lower())
    assert found
    name, size, said = found[1], found[2], style.sql() if style else ""
    inner = value.transform(_of_sqlserver)
    of = value.args["to"].sql("tsql").lower() if type(value) is exp.Cast else ""
    length = exp.Literal.number(size) if (size or "").isdigit() else None
    if isinstance(value, exp.MD5) or of.startswith("binary"):  # bytes, by their digits
        hashed = _call("upper", inner) if isinstance(value, exp.MD5) else inner
        return _call("substr", hashed, exp.Literal.number(1), length or exp.Literal.number(99))
    if name == "bigint" and isinstance(value, exp.Convert):  # of eight bytes
        return exp.cast(
            exp.DPipe(this=exp.Literal.string("0x"), expression=inner), "ubigint", dialect="duckdb"
        )
    if name == "binary":
        return inner if said == "2" else _call("bits_of", inner)
    if name == "varbinary":
        return (
            _call("unhex", inner)
            if said == "2"
            else _call("utf16_of", inner)
            if of.startswith("nvarchar")
            else inner
        )
    if said == "2" and (of.startswith("varbinary") or size == "max"):
        return _call("hex", inner)
    if name == "nvarchar" and isinstance(value, exp.Convert | exp.HexString):
        return _call("of_utf16", inner)
    if said == "121" and name == "varchar":
        return _call("style_121", inner)
    if said == "3":
        return _call("style_3", inner)
    return exp.cast(inner, _TYPES.get(name, kind.sql("tsql").lower()), dialect="duckdb")
