"""`ingest sql` reads the lake and does nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.change import TableId
from ingest.errors import IngestError
from ingest.tables.query import refuse_commands, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIRRORS = {TableId("shop", None, "t"): "delta.`/lake/mirrors/shop/t`"}


def rewritten(query: str) -> str:
    """The query as Spark gets it."""
    return rewrite(query, MIRRORS, {"checks": "delta.`/lake/checks`"}, "/lake").text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT reflect('java.lang.System', 'getenv', 'DB_PASSWORD')",
        "SELECT Java_Method ('java.lang.System', 'getenv', 'DB_PASSWORD')",
        "SELECT `reflect`('java.lang.System', 'getenv', 'DB_PASSWORD')",
        "SELECT system.builtin.try_reflect('java.lang.System', 'getenv', 'DB_PASSWORD')",
        "SELECT * FROM shop.t WHERE 1 IN (SELECT reflect/* */('java.lang.System', 'getenv', 'X'))",
        "SELECT IDENTIFIER('re' || 'flect')('java.lang.System', 'getenv', 'X')",
        "SELECT * FROM IDENTIFIER('csv.`/etc/passwd`')",
        "SELECT TRANSFORM(id) USING 'sh -c id' AS (x) FROM shop.t",
        "FROM shop.t MAP id USING 'cat' AS (x)",
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM delta.`/other/lake/mirrors/t`",
        "SELECT * FROM delta.`/lake/../other/t`",
        "SELECT * FROM delta.`/lakes/t`",
        "SELECT * FROM DELTA.`/other/t`",
        "SELECT * FROM shop.t WHERE id IN (SELECT _c0 FROM csv.`/etc/passwd`)",
        "SELECT * FROM read_files('/etc/passwd')",
        "DELETE FROM shop.t",
        "INSERT INTO shop.t SELECT 1",
        "WITH q AS (SELECT 1) INSERT INTO shop.t SELECT * FROM q",
        "CREATE TABLE x AS SELECT 1",
        "SET spark.sql.variable.substitute=true",
        "SELECT 1; DELETE FROM shop.t",
        "EXPLAIN SELECT 1",
        "DESCRIBE HISTORY shop.t",
        "CALL x()",
        "ADD JAR '/tmp/x.jar'",
    ],
)
def test_what_does_more_than_read_the_lake_is_refused(query: str) -> None:
    """A service that runs the command for its users would give them access to the host."""
    with pytest.raises(IngestError):
        rewritten(query)


def test_who_asks_for_columns_is_sent_where_they_are() -> None:
    """`DESCRIBE` is what most users type first."""
    with pytest.raises(IngestError, match=r"`ingest tables FILE --output json` .* docs/tables.md"):
        rewritten("DESCRIBE shop.t")


@pytest.mark.parametrize(
    "trick",
    [
        "\n-- \\\nSELECT 1 /*\nDELETE FROM delta.`/lake/mirrors/shop/t` -- */",
        "SELECT 1 -- \\\n, 2",
        "SELECT 1 /* /* */ , 2 -- */",
    ],
)
def test_comments_do_not_reach_spark(trick: str) -> None:
    """Spark goes on with a comment over a backslash at the line's end; the reader here does not."""
    try:
        text = rewritten(trick)
    except IngestError:
        return
    assert "--" not in text
    assert "/*" not in text
    assert "DELETE" not in text


def test_queries_stay_what_they_are() -> None:
    """Literals, hints and names would be changed with the comments."""
    assert (
        "SELECT /*+ COALESCE(1) */ 'a -- b', '/* c */', r'\\', `-- d`, 1.10, reflect "
        "FROM delta.`/lake/mirrors/shop/t` AS `t` JOIN delta.`/lake/checks` AS c USING (id)"
    ) == rewritten(
        "SELECT /*+ COALESCE(1) */ 'a -- b', '/* c */', r'\\', `-- d`, 1.10, reflect -- e\n"
        "FROM shop.t JOIN checks AS c USING (id) /* f */"
    )
    assert "SELECT * FROM delta.`/lake/mirrors/shop/t`" == rewritten(
        "SELECT * FROM delta.`/lake/mirrors/shop/t`"
    )


@pytest.mark.spark
def test_spark_itself_judges(spark: SparkSession) -> None:
    """A statement that the reader here takes for a query would be run."""
    for query in ("SELECT 1", "WITH q AS (SELECT 1) SELECT * FROM q", "VALUES (1)", "SELECT * FROM range(3)"):
        refuse_commands(spark, query)
    for command in (
        "DELETE FROM x",
        "WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q",
        "FROM q INSERT INTO a SELECT 1 INSERT INTO b SELECT 2",
        "SET x=1",
        "CREATE TABLE x AS SELECT 1",
        "SELECT TRANSFORM(a) USING 'cat' AS (b) FROM VALUES (1) AS t(a)",
        "WITH q AS (SELECT TRANSFORM(a) USING 'cat' AS (b) FROM VALUES (1) AS t(a)) SELECT * FROM q",
        "SELECT (SELECT TRANSFORM(a) USING 'cat' AS (b) FROM VALUES (1) AS t(a))",
        "EXECUTE IMMEDIATE 'DELETE FROM x'",
        "BEGIN DELETE FROM x; END",
        "\n-- \\\nSELECT 1 /*\nDELETE FROM delta.`/x` -- */",
    ):
        with pytest.raises(IngestError, match="Only queries"):
            refuse_commands(spark, command)
