"""No text makes a regular expression slow: time grows with length, not with its square."""

from __future__ import annotations

import ast
import re
import time
from contextlib import suppress

import pytest

from ingest import types
from ingest.ddl import effects, tokens
from tests import growth

WRITTEN_BY_OPERATORS = {
    "given['regex']": "an expectation of the pipeline file",
    "source.topic_pattern": "the pipeline file",
    "'.*' if part == '*' else part": "a pattern of the pipeline file for names of tables",
    "text": "a pattern of the pipeline file, which is compiled to see if it is one",
    "f'(.*/)?{glob}'": "a glob of the pipeline file's `table` option",
}
MADE_OF_OTHERS = {
    "PATTERNS[kind]": "types.PATTERNS, tried below",
    "types.PATTERNS[name]": "the same",
    "'|'.join(sorted({*parts}, key=len, reverse=True)) or '(?!)'": "escaped texts, each found as it is",
}
BY_STEPS = {"ingest/ddl/tokens.py": "a statement is read from token to token, tried below"}


@pytest.mark.parametrize("file", growth.files())
def test_patterns_are_linear(file: str) -> None:
    """One cut message would hold a worker for hours: each escaped quote was tried as a string's start."""
    for found in growth.patterns():
        if found.where.split(":")[0] != file or file in BY_STEPS:
            continue
        if ast.unparse(found.written) not in (*WRITTEN_BY_OPERATORS, *MADE_OF_OTHERS):
            try:
                growth.check(found.compiled(), found.methods)
            except growth.Slow as slow:
                pytest.fail(f"{found.where}: {slow}")


@pytest.mark.parametrize("family", sorted(types.PATTERNS))
def test_patterns_of_values_are_linear(family: str) -> None:
    """One long cell would hold gold's cast, or a decoder, for hours."""
    growth.check(re.compile(types.PATTERNS[family]), ("fullmatch",))


@pytest.mark.parametrize("dialect", sorted(tokens._LEXERS))
def test_statements_are_read_in_linear_time(dialect: str) -> None:
    """One long statement with an open comment or quote would hold a worker for hours."""

    def read(text: str) -> None:
        with suppress(tokens.Unread):
            tokens.tokens(text, dialect)

    growth.check_use(read, growth.hostile(tokens._LEXERS[dialect]), dialect)


@pytest.mark.parametrize(
    "clause", ["RENAME COLUMN c{n} TO d{n}", "RENAME COLUMN c{n} TO c{m}", "CHANGE c{n} c{m} INT"]
)
def test_clauses_are_put_in_order_in_linear_time(clause: str) -> None:
    """One statement that gives thousands of columns new names, each perhaps its neighbour's, would hold a worker for minutes."""

    def seconds(count: int) -> float:
        text = f"ALTER TABLE t {', '.join(clause.format(n=n, m=n + 1) for n in range(count))}"
        began = time.process_time()
        assert count <= len(effects(text, "mysql", "d", None, "t").effects)
        return time.process_time() - began

    seconds(100)  # what is made once
    few, many = (
        min(seconds(count) for _ in range(3)) for count in (1_000, 4_000)
    )  # the least is the least disturbed
    assert many < 10 * few


@pytest.mark.parametrize("name", ["mysql", "oracle", "postgres", "sqlserver", "oms", "streamx", "labels"])
def test_type_names_are_read_in_linear_time(name: str) -> None:
    """A type of many opening brackets would cost its length squared, and be remembered, too."""
    growth.check_use(getattr(types, name), growth.hostile(types._ARGUMENTS), name)
    growth.check_use(getattr(types, name), growth.hostile(types._LABEL), name)


def test_every_pattern_is_found() -> None:
    """A pattern written in another way would not be tried."""
    assert len(growth.patterns()) > 80
    assert {found.where.split(":")[0] for found in growth.patterns()} <= {*growth.files()}
    for word in (*WRITTEN_BY_OPERATORS, *MADE_OF_OTHERS):
        assert any(ast.unparse(found.written) == word for found in growth.patterns()), word


@pytest.mark.parametrize(
    "pattern",
    [
        rb'("(?:[^"\\]|\\.)*+")',
        r"\(([^)]*)\)",
        r"(a+)+b",
        r"'(?:[^'\\]|\\.|'')*'",
    ],
)
def test_slow_patterns_are_found(pattern: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would pass whatever it is given."""
    monkeypatch.setattr(growth, "ENDLESS", 0.4)
    monkeypatch.setattr(growth, "SECONDS", 0.2)
    with pytest.raises(growth.Slow):
        growth.check(re.compile(pattern), ("finditer",))
