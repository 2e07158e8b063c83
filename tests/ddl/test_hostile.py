"""Any text at all must give a `Ddl`, soon."""

from __future__ import annotations

import random

import msgspec
import pytest

from ingest.ddl import Ddl, effects
from ingest.ddl.tokens import MAX_LENGTH
from tests.ddl.cases import cases
from tests.timing import is_within

N = 50_000
DIALECTS = ("mysql", "oracle", "postgres", "sqlserver", "db2")
HUGE = {
    "brackets": "CREATE TABLE t (a INT DEFAULT " + "(" * N,
    "closed brackets": "CREATE TABLE t (a INT DEFAULT " + "(" * N + "1" + ")" * N + ")",
    "closing brackets": "ALTER TABLE t ADD a INT" + ")" * N,
    "open quote": "ALTER TABLE t ADD a VARCHAR(9) DEFAULT '" + "x" * N,
    "quotes": "'" * N,
    "backslashes": "ALTER TABLE t ADD a INT COMMENT '" + "\\" * N,
    "open comment": "/*" * N,
    "comment ends": "*/" * N,
    "hints": "/*!" * N,
    "dashes": "-" * N,
    "q quotes": "q'[" * N,
    "dollar quotes": " $a$ $b$" * (N // 8),
    "dots": "DROP TABLE " + "a." * N,
    "columns": "CREATE TABLE t (" + ",".join(f"c{i} INT" for i in range(N // 10)) + ")",
    "clauses": "ALTER TABLE t " + ",".join(f"ADD c{i} INT" for i in range(N // 15)),
    "oracle clauses": "ALTER TABLE t " + " ".join(f"ADD (c{i} INT)" for i in range(N // 15)),
    "semicolons": ";" * N,
    "statements": "DROP TABLE a;" * (N // 13),
    "statements in a row": "DROP TABLE a " * (N // 4),
    "words": "ALTER TABLE t ADD a INT " + "x " * N,
    "one word": "A" * N,
    "digits": "ALTER TABLE t ADD a INT DEFAULT " + "9" * N,
    "hex digits": "ALTER TABLE t ADD a INT DEFAULT 0x" + "f" * N,
    "precision": f"ALTER TABLE t ADD a DECIMAL({'9' * N},2)",
    "introducer": "ALTER TABLE t ADD a INT DEFAULT _" + "a" * N,
    "casts": "ALTER TABLE t ADD a INT DEFAULT 1" + "::int" * (N // 5),
}


@pytest.mark.one_of(6)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", HUGE)
def test_huge_text(name: str, dialect: str) -> None:
    """One endless statement must not stop a batch: time grows with length, no faster."""

    def read() -> None:
        assert isinstance(effects(HUGE[name], dialect, "web"), Ddl)  # type: ignore[arg-type]

    assert is_within(5, read)


def test_too_long_is_unknown() -> None:
    """A text beyond the limit is kept for the operator and not read."""
    assert "unknown" == effects("x" * (MAX_LENGTH + 1), "mysql", "web").kind


@pytest.mark.parametrize(
    "statement", ["\0", "DROP TABLE \0t", "DROP TABLE `t", 'DROP TABLE "t', "DROP TABLE t\0"]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_broken_text_has_no_effects(statement: str, dialect: str) -> None:
    """A half-read DROP must not be applied."""
    found = effects(statement, dialect, "web")  # type: ignore[arg-type]
    assert ("unknown", ()) == (found.kind, found.effects)


def test_fuzz() -> None:
    """Statements cut, shuffled and sprinkled with odd characters never raise."""
    dice = random.Random(20240229)
    known = [case.statement for case in cases()]
    odd = [
        "'",
        '"',
        "`",
        "(",
        ")",
        ",",
        ";",
        "\\",
        "\0",
        "/*",
        "*/",
        "--",
        "#",
        "\ud800",
        "é",
        " ",
        "::",
        "$$",
        "q'[",
    ]
    for _ in range(1000):
        pieces = dice.choice(known).split(" ") + dice.choice(known).split(" ")[: dice.randrange(4)]
        for _ in range(dice.randrange(4)):
            pieces[dice.randrange(len(pieces))] = dice.choice(odd + pieces)
        text = " ".join(pieces)[: dice.randrange(1, 400)]
        found = effects(text, dice.choice(DIALECTS), dice.choice([None, "web"]))  # type: ignore[arg-type]
        assert isinstance(found, Ddl)
        if "\ud800" not in text:
            assert found == msgspec.json.decode(msgspec.json.encode(found), type=Ddl)
