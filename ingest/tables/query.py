"""Queries by name: mirrors and product tables named in SQL become Delta tables by path.

The names are replaced in the text, and comments are removed: if the reader here and Spark's disagreed about a comment's
end, Spark would run text that was never checked. The rest reaches Spark as it was written, and `refuse_commands` checks
with Spark's own parser that it is a query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ingest.change import TableId
from ingest.errors import IngestError, first_line
from ingest.store.names import quoted
from ingest.tables import duck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Engine = Literal["spark", "duckdb"]

_REFUSED = frozenset({"reflect", "java_method", "try_reflect", "identifier"})
"""Functions that call any Java method, or name any function or table."""
TABLE_FUNCTIONS = frozenset({"generate_series", "range", "unnest"})
"""DuckDB's functions of tables that a query may call: the others read files, settings, or run text as a query."""
_ONLY_QUERIES = (
    "Only queries are run here: start with SELECT or WITH. `ingest tables FILE --output json` lists the columns of mirrors, "
    "docs/tables.md those of all other tables."
)
_COMMANDS = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
    "org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation",
    "org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement",
    "org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate",
)


_NO_PIVOT = (
    "PIVOT and UNPIVOT as statements are not run here: write SELECT ..., count(*) FILTER (WHERE state = 'open') AS open FROM ... "
    "GROUP BY ..., with one such column for each value."
)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A query for its engine, and the SQL of each table that it names."""

    text: str
    used: frozenset[str]


def rewrite(
    query: str,
    mirrors: Mapping[TableId, str],
    tables: Mapping[str, str],
    lake: str = "",
    engine: Engine = "spark",
) -> Rewritten:
    """The query with every known table named by its path.

    Args:
        query: one SELECT in the engine's SQL; for DuckDB, names may be in backticks, too.
        mirrors: SQL for each mirror, addressed as `` `db`.`t` ``, `` `db`.`schema`.`t` `` or
            `` `db.schema.t` ``.
        tables: SQL for each product table by its name.
        lake: the folder or URI in which tables may be named by path, as ``delta.`...` ``.
        engine: the engine whose SQL it is.

    Raises:
        IngestError: not a query, a name that is not a table (the text lists the nearest names), or
            something that does more than read the lake.
    """
    import sqlglot
    from sqlglot import exp

    try:
        query = _plain(query, engine)
        tree = sqlglot.parse_one(query, read=engine)
    except IngestError:
        raise
    except RecursionError:
        raise IngestError("The query is nested too deeply.") from None
    except Exception as error:
        raise IngestError(f"The query cannot be read: {first_line(error)[:500]}") from None
    if not isinstance(tree, exp.Query):
        raise IngestError(_ONLY_QUERIES)
    names = _addresses(mirrors, tables)
    spans = [
        span for table in tree.find_all(exp.Table) if (span := _span(table, names, lake, engine)) is not None
    ]
    for span in sorted(spans, key=lambda span: span.start, reverse=True):
        query = f"{query[: span.start]}{span.sql}{span.alias}{query[span.end :]}"
    return Rewritten(query, frozenset(span.sql for span in spans))


def _plain(query: str, engine: Engine) -> str:
    """The query without comments and without a semicolon at its end, with names quoted for its engine.

    Raises:
        IngestError: it calls Java, or a program.
    """
    tokens = _tokens(query, engine)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    if engine == "duckdb" and tokens and tokens[0].token_type.name in ("PIVOT", "UNPIVOT"):
        raise IngestError(_NO_PIVOT)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        opens = following is not None and following.token_type.name == "L_PAREN"
        if token.text.lower() in _REFUSED and opens:
            raise IngestError(f"Only the lake is read here: {token.text} is refused.")
        if token.token_type.name == "USING" and not opens:
            raise IngestError("Only the lake is read here: a program (USING '...') is refused.")
    text = "".join(_pieces(query, tokens, engine))
    if tokens and tokens[0].token_type.name == "TABLE":  # TABLE shop.orders
        text = "SELECT * FROM" + text.lstrip()[len("TABLE") :]
    return text


def _tokens(query: str, engine: Engine) -> list[Any]:
    import sqlglot
    from sqlglot.dialects import DuckDB

    class BothQuotes(DuckDB):  # type: ignore[misc]
        class Tokenizer(DuckDB.Tokenizer):  # type: ignore[misc]
            IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]

    return list(sqlglot.tokenize(query, read="spark" if engine == "spark" else BothQuotes))


def _pieces(query: str, tokens: list[Any], engine: Engine) -> Iterator[str]:
    last_end = 0
    for token in tokens:
        start, end = token.start, token.end + 1
        yield " " if start > last_end else ""
        foreign = engine == "duckdb" and query[start] == "`"
        yield duck.name(token.text) if foreign else query[start:end]
        last_end = end


def refuse_commands(spark: SparkSession, query: str) -> None:
    """Check with Spark's own parser that a text is a query: Spark runs a command as soon as it is given one.

    Raises:
        IngestError: it is a command, or contains one.
    """
    session: Any = spark
    loader = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    commands = [loader.loadClass(name) for name in _COMMANDS]
    waiting = [session._jsparkSession.sessionState().sqlParser().parsePlan(query)]
    while waiting:
        node = waiting.pop()
        if any(command.isInstance(node) for command in commands):
            raise IngestError(_ONLY_QUERIES)
        for below in (node.children(), node.innerChildren()):
            waiting += [below.apply(place) for place in range(below.size())]


def _addresses(mirrors: Mapping[TableId, str], tables: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    names: dict[tuple[str, ...], str] = {}
    for table, sql in mirrors.items():
        parts = tuple(part for part in table if part is not None)
        names[parts] = sql
        names[".".join(parts),] = sql
    names.update({(name,): sql for name, sql in tables.items()})
    return names


@dataclass(frozen=True, slots=True)
class _Span:
    """A table's name in the text of a query, and what takes its place."""

    start: int
    end: int
    sql: str
    alias: str


_QUOTED: dict[Engine, Callable[[str], str]] = {"spark": quoted, "duckdb": duck.name}


def _span(table: Any, names: Mapping[tuple[str, ...], str], lake: str, engine: Engine) -> _Span | None:
    """What takes the place of a table's name; None for one that stays: a part of the query itself.

    Raises:
        IngestError: it is no table of the lake.
    """
    from sqlglot import exp

    if isinstance(table.this, exp.Func):
        function = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.sql_name()
        if engine == "duckdb" and function.lower() in TABLE_FUNCTIONS:
            return None
        raise IngestError(f"Only tables are read here: the function {function[:80]} is refused.")
    parts = table.parts
    path = tuple(part.name for part in parts)
    if len(path) == 1 and _is_local(table):
        return None
    if engine == "spark" and path[0].lower() == "delta":
        if len(path) != 2 or not _is_in(lake, path[-1]):
            raise IngestError(f"Only tables of the lake are read here: {path[-1]} is outside of {lake}.")
        return None
    if not all(part.meta.get("start") is not None for part in parts):
        raise IngestError(f"Only tables are read here: {table.sql()[:80]} is refused.")
    sql = _sql_of(names, path)
    if sql is None:
        raise IngestError(f"There is no table {'.'.join(path)}; there are {_near(names, path)}.")
    is_named = table.alias or isinstance(table.parent, (exp.Describe, exp.Summarize))
    alias = "" if is_named else f" AS {_QUOTED[engine](path[-1])}"
    return _Span(parts[0].meta["start"], parts[-1].meta["end"] + 1, sql, alias)


def _is_in(lake: str, folder: str) -> bool:
    """True for a folder below the lake's that is written without a way back."""
    if not lake or ".." in folder.split("/"):
        return False
    return os.path.normpath(folder).startswith(os.path.normpath(lake) + os.sep)


def _is_local(table: Any) -> bool:
    """True if a name without a dot is that of a WITH whose scope it is in.

    In the list of a WITH, each query knows those before it, and itself if the list is recursive.
    """
    from sqlglot import exp

    name, node = table.name.lower(), table
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With):
            earlier = parent.expressions[: node.index + bool(parent.recursive)]
        else:
            earlier = [] if isinstance(node, exp.With) else getattr(parent, "ctes", [])
        if any(cte.alias_or_name.lower() == name for cte in earlier):
            return True
        node = parent
    return False


def _sql_of(names: Mapping[tuple[str, ...], str], path: tuple[str, ...]) -> str | None:
    """A table by its name, or in another letter case, if there is only one: SQL ignores case, sources may not."""
    if path in names:
        return names[path]
    lowered = [part.lower() for part in path]
    matching = {sql for name, sql in names.items() if [part.lower() for part in name] == lowered}
    return matching.pop() if len(matching) == 1 else None


def _near(names: Mapping[tuple[str, ...], str], path: tuple[str, ...]) -> str:
    import difflib

    listed = sorted({".".join(name) for name in names})
    near = difflib.get_close_matches(".".join(path), listed, 4, 0.3) or listed[:8]
    return ", ".join(near) if near else "none yet: run the pipeline first"
