"""Every format's golden messages decode to exactly what people have read and approved."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from tests.formats import golden

CASES = golden.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_golden(case, request):
    """A dialect's reading that changes unnoticed damages every mirror fed by it."""
    expected = golden.expected_of(case)
    actual = golden.decode(case)
    if request.config.getoption("--bless"):
        expected.write_text(golden.text(actual), encoding="utf-8")
    assert expected.exists(), f"{expected.name} is missing: run with --bless, and read what it writes"
    assert json.loads(expected.read_bytes()) == actual


def test_no_expected_file_without_its_case():
    """An expected file whose message is gone looks like a test and proves nothing."""
    known = {golden.expected_of(case) for case in CASES}
    assert [] == [path.name for path in golden.HERE.glob("*/*.expected.json") if path not in known]


@pytest.mark.parametrize("name", formats.names())
def test_every_format_has_goldens(name):
    """A format without golden messages is a claim without proof."""
    assert [case for case in CASES if case.parent.name == name]
