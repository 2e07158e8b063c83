"""Entries under ``tables:`` that fit no table, and nearly one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.config.patterns import matches, meant
from ingest.ledgers import idle_rules
from tests.schemas import Schemas

MEANT = [
    ("crm.*", ("crm", "s", "t"), "crm.*.*"),
    ("crm.t", ("crm", "s", "t"), "crm.*.t"),
    ("crm.s.t", ("crm", None, "t"), "crm.t"),
    ("Crm.T*", ("crm", None, "t1"), "crm.t1"),
    ("CRM.*", ("crm", "s", "t"), "crm.*.*"),
    ("*.public.*", ("crm", None, "t"), ""),  # its schema has not come yet
    ("crm.u", ("crm", "s", "t"), ""),
    ("t", ("crm", "s", "u"), ""),
    ("(crm).(.*)", ("crm", "s", "t"), ""),
]


@pytest.mark.parametrize(("pattern", "names", "expected"), MEANT)
def test_what_a_pattern_may_mean(pattern: str, names: tuple[str, str | None, str], expected: str) -> None:
    """A table that differs otherwise may be another one than that of the entry, which has not come yet."""
    table = TableId(*names)
    assert expected == meant(pattern, table)
    assert not expected or matches(expected, table)


@pytest.mark.parametrize(
    ("match", "others", "expected"),
    [
        ("db.*", (), "match: 'db.*.*'"),
        ("db.t", (), "match: 'db.*.t'"),
        ("db.*", ("db.s.*",), ""),
        ("db.s.*", (), ""),
        ("db.later", (), ""),
    ],
)
def test_an_entry_that_misses_a_table_by_its_schema_is_named(
    tmp_path: Path, match: str, others: tuple[str, ...], expected: str
) -> None:
    """Only `plan` said so: a run gave the table the mirror that it has without an entry, and `status` was green."""
    said = Schemas(tmp_path, rules=tuple(TableRule(name) for name in (match, *others))).row("s.t", id=1)
    said.run()
    assert said.result is not None
    texts = [*idle_rules.listed(said.lake)]
    assert texts == [text for text in said.result.warnings if "no table fits match" in text]
    assert bool(expected) == bool(texts)
    assert all(expected in text and "db.s.t has no entry" in text for text in texts)
