"""Every format's golden messages decode to exactly what has been read and approved."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from ingest.change import Hints, Op, Options, TableId
from tests.formats import golden
from tests.formats.test_canal_family import FAMILY

CASES = golden.cases()
SAMPLES = [path for name in formats.names() for path in sorted((golden.VENDOR / name).glob("*.json"))]
OPS = ("update-before", "insert", "update", "delete", "ddl", "heartbeat")  # in the samples' names
ALIKE = {("dataworks", "update-before"): "delete", ("oms-debezium-smt", "insert"): "update"}
RELATIVES = (FAMILY, ("oms-shareplex", "dts-shareplex"), ("oms-default", "oms-default-extended"))
UNMARKED = "01-row-only"  # as any flat row


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_golden(case, request):
    """A dialect's reading that changes unnoticed damages every mirror fed by it."""
    expected = golden.expected_of(case)
    actual = golden.decode(case)
    if request.config.getoption("--bless"):
        expected.write_text(golden.text(actual), encoding="utf-8")
    assert expected.exists(), f"{expected.name} is missing: run with --bless, and read what it writes"
    assert json.loads(expected.read_bytes()) == actual


@pytest.mark.skipif(not SAMPLES, reason="the vendors' samples are not here")
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_vendors_own_message(sample):
    """A reader of the vendor's page tries the printed message first; a relative's name means wrong encodings."""
    name, raw = sample.parent.name, sample.read_bytes()
    [change] = golden.read(name, raw, Hints(Options(table=(("*", TableId("shop", None, "orders")),))))
    named = next((op for op in OPS if op in sample.stem), None)
    assert named is None or ALIKE.get((name, named), named) == change.op
    assert change.before or change.after or change.op in (Op.DDL, Op.HEARTBEAT)
    relatives = next((family for family in RELATIVES if name in family), (name,))
    found = [other for other in relatives if formats.evidence(other, raw)]
    assert ([] if sample.stem == UNMARKED else [name]) == found


def test_no_expected_file_without_its_case():
    """An expected file whose message is gone looks like a test and proves nothing."""
    known = {golden.expected_of(case) for case in CASES}
    assert [] == [path.name for path in golden.HERE.glob("*/*.expected.json") if path not in known]


@pytest.mark.parametrize("name", formats.names())
def test_every_format_has_goldens(name):
    """A format without golden messages is a claim without proof."""
    assert [case for case in CASES if case.parent.name == name]


@pytest.mark.parametrize("name", formats.names())
def test_every_format_recognises_messages_of_its_own(name):
    """Else `ingest detect` calls each file of the format another one's, or nothing."""
    mine = [case for case in CASES if case.parent.name == name]
    assert any(formats.evidence(name, golden.message(case)[0].value or b"") for case in mine)
