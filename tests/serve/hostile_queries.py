"""Hostile queries, made of DuckDB's own lists of keywords, functions and settings, for `test_hostile_queries`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb

_ARGUMENTS = (
    "NULL", "1", "-1", "0", "9223372036854775807", "-9223372036854775808", "1e308", "'nan'::DOUBLE", "''", "'x'", "'%'",
    "'{path}'", "'{folder}/*'", "'SELECT * FROM read_text(''{path}'')'", "'depot.bins'", "'_table_0_'", "[1, NULL]", "[]",
    "['{path}']", "{'a': 1}", "MAP {'a': 1}", "x -> x", "repeat('x', 300000000)", "range(200000000)", "DATE '9999-12-31'",
    "'infinity'::TIMESTAMP", "INTERVAL 1 DAY", "'\\xAA'::BLOB", "'1'::BIT", "uuid()", "id", "word", "*", "(SELECT max(id) FROM depot.bins)",
    "1::HUGEINT", "0.1::DECIMAL(38, 38)", "TIME '24:00:00'", "[[[[1]]]]", "'[1]'::JSON", "repeat('(', 100000)",
)  # fmt: skip
_TABLES = (
    "depot.bins",
    "bronze",
    "changes",
    "range(1000000000)",
    "'{path}'",
    '"{path}"',
    "duckdb_settings()",
    "sqlite_master",
)
_LARGE = (
    "SELECT count(*) FROM range(100000000000) a, range(100000000000) b", "SELECT {deep}", "SELECT {many}",
    "SELECT string_agg(repeat('x', 1000000), ',') FROM range(100000)", "SELECT list(range(10000)) FROM range(100000)",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "SELECT array_agg(x) FROM (SELECT unnest(range(100000000)) AS x)", "SELECT regexp_matches(repeat('a', 100000), '(a*)*b')",
    "SELECT * FROM {joins}", "SELECT {cases}", "SELECT '{wide}'", "SELECT bins.* EXCLUDE (id) FROM depot.bins",
)  # fmt: skip

_OF_TYPES = {  # what fits a parameter, as far from what is usual as its type allows
    "VARCHAR": ("''", "'x'", "'{path}'", "word", "repeat('(', 100000)", "repeat('x', 300000000)", "'\u202e'", "'%s%n'", "'9' || chr(0)"),
    "BIGINT": ("0", "-1", "9223372036854775807", "-9223372036854775808", "id", "NULL"),
    "INTEGER": ("0", "-1", "2147483647", "-2147483648", "NULL"),
    "DOUBLE": ("0", "-0.0", "1e308", "5e-324", "'nan'::DOUBLE", "'-infinity'::DOUBLE"),
    "BOOLEAN": ("true", "NULL"),
    "DATE": ("DATE '9999-12-31'", "'infinity'::DATE", "DATE '5877642-06-25 (BC)'", "NULL"),
    "TIMESTAMP": ("'-infinity'::TIMESTAMP", "TIMESTAMP '294247-01-10 04:00:54.775806'", "NULL"),
    "TIMESTAMP WITH TIME ZONE": ("TIMESTAMPTZ '290309-12-22 (BC) 00:00:00+00'", "'infinity'::TIMESTAMPTZ"),
    "TIME": ("TIME '24:00:00'", "TIME '00:00:00.000001'"),
    "INTERVAL": ("INTERVAL 2147483647 MONTH", "INTERVAL (-9223372036854775807) MICROSECOND", "INTERVAL 0 DAY"),
    "BLOB": ("''::BLOB", "'\\xAA'::BLOB", "repeat('a', 100000000)::BLOB"),
    "BIT": ("'1'::BIT", "'10'::BIT"),
    "HUGEINT": ("170141183460469231731687303715884105727::HUGEINT", "-1::HUGEINT"),
    "DECIMAL": ("99999999999999999999999999999999999999::DECIMAL(38, 0)", "0.1::DECIMAL(38, 38)"),
    "ANY": ("NULL", "id", "word", "[NULL, 1]", "{'a': NULL}", "MAP {'a': 1}", "*", "range(200000000)"),
    "T[]": ("[]", "[NULL]", "range(100000000)", "[[1]]"),
    "JSON": ("'[1]'::JSON", "repeat('[', 100000)"),
    "MAP": ("MAP {}", "MAP {'a': [1]}"),
    "STRUCT": ("{'a': 1}", "row(1, 'x')"),
    "UUID": ("uuid()",),
}  # fmt: skip
_WORDS_OF_TYPES = {
    "INT": "BIGINT",
    "FLOAT": "DOUBLE",
    "[]": "T[]",
    "MAP": "MAP",
    "STRUCT": "STRUCT",
    "DECIMAL": "DECIMAL",
}


def _fitting(kind: str) -> tuple[str, ...]:
    """What may be given for a parameter of a type."""
    kind = kind.upper()
    known = (
        kind
        if kind in _OF_TYPES
        else next((to for word, to in _WORDS_OF_TYPES.items() if word in kind), "ANY")
    )
    return _OF_TYPES[known]


class Names:
    """DuckDB's own words."""

    def __init__(self) -> None:
        base = duckdb.connect()

        def column(query: str) -> list[str]:
            return sorted({str(row[0]) for row in base.execute(query).fetchall()})

        self.keywords = column("SELECT keyword_name FROM duckdb_keywords()")
        self.tables = column(
            "SELECT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro', 'pragma')"
        )
        self.scalars = column(
            "SELECT function_name FROM duckdb_functions() WHERE function_type NOT IN ('table', 'table_macro', 'pragma')"
        )
        self.signatures = [
            (str(name), [str(kind) for kind in kinds])
            for name, kinds in base.execute(
                "SELECT DISTINCT function_name, parameter_types FROM duckdb_functions() "
                "WHERE function_type IN ('scalar', 'aggregate', 'macro') AND regexp_full_match(function_name, '\\w+') ORDER BY ALL"
            ).fetchall()
        ]
        self.types = column("SELECT logical_type FROM duckdb_types()")
        self.settings = column("SELECT name FROM duckdb_settings()")
        base.close()


def queries(seed: int, count: int, path: str, folder: str) -> Iterator[str]:
    """So many queries that read, ask for too much, or make no sense; ``path`` is a file that none may read."""
    names, dice = Names(), random.Random(seed)
    for number in range(count):
        kind = number % 10
        function = f'"{dice.choice(names.scalars)}"'
        given = ", ".join(dice.choices(_ARGUMENTS, k=dice.randint(0, 4)))
        table = dice.choice(_TABLES)
        called = dice.choice(names.tables)
        named, kinds = dice.choice(names.signatures)
        typed = f"{named}({', '.join(dice.choice(_fitting(kind)) for kind in kinds)})"
        text = (
            f"SELECT {function}({given}) FROM {table}",
            f"SELECT * FROM {called}({given})",
            f"WITH {called} AS (SELECT 1) SELECT * FROM {called}({given})",
            f"SELECT * FROM depot.bins, LATERAL {called}({given})",
            f"SELECT {function}({given}), {function}({given}) OVER (ORDER BY id) FROM depot.bins",
            f"{dice.choice(names.keywords)} {' '.join(dice.choices([*names.keywords, table, function, '(', ')', ',', ';', '1'], k=dice.randint(1, 30)))}",
            f"SELECT current_setting('{dice.choice(names.settings)}'), CAST({dice.choice(_ARGUMENTS)} AS {dice.choice(names.types)})",
            dice.choice(_LARGE),
            f"SELECT {typed} FROM depot.bins",
            f"SELECT {typed} AS a, typeof(a) FROM depot.bins GROUP BY ALL ORDER BY 1 LIMIT 3",
        )[kind]
        deep = dice.choice([50, 500, 5000])
        yield (
            text.replace("{path}", path).replace("{folder}", folder)
            .replace("{deep}", "(" * deep + "1" + ")" * deep)
            .replace("{many}", "+".join(["1"] * min(deep, 4000)))
            .replace("{joins}", ", ".join(f"depot.bins b{n}" for n in range(min(deep, 400))))
            .replace("{cases}", "CASE WHEN true THEN " * min(deep, 500) + "1" + " END" * min(deep, 500))
            .replace("{wide}", "x" * deep)
        )  # fmt: skip
