"""The skeleton of a new format works as it is written, and is not forgotten half filled in."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from docs import new_format
from ingest.change import Message, describe
from tests.formats.one_history.history import history
from tests.formats.one_history.replay import decoded, delivered, differences, folded, statements
from tests.formats.one_history.test_one_history import unsaid


def test_every_format_is_filled_in():
    """A skeleton's words in a format would pass for the vendor's."""
    assert [] == list(new_format.to_fill_in())


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The modules of a skeleton, the format's and its writer's, made in a folder of their own."""
    new_format.make("acme-json", tmp_path)
    found = []
    for path in ("ingest/formats/acme_json.py", "tests/formats/one_history/acme_json.py"):
        spec = importlib.util.spec_from_file_location(f"skeleton_{len(found)}", tmp_path / path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        found.append(module)
    return found


def test_each_line_to_fill_in_is_listed(tmp_path):
    """A line that is not listed stays the skeleton's."""
    new_format.make("acme-json", tmp_path)
    listed = list(new_format.to_fill_in(tmp_path))
    texts = [path.read_text("utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(listed) == sum(text.count(new_format.MARK) for text in texts) > 10
    assert listed[0].startswith("docs/vendors") or listed[0].startswith("ingest/formats/acme_json.py:1: ")


def test_nothing_is_written_over(tmp_path):
    """A name typed twice would lose a day's work."""
    new_format.make("acme-json", tmp_path)
    with pytest.raises(SystemExit, match="exists"):
        new_format.make("acme-json", tmp_path)
    with pytest.raises(SystemExit, match="letters"):
        new_format.make("Acme JSON", tmp_path)


@pytest.mark.parametrize("op", ["insert", "update", "delete"])
def test_the_samples_decode(made, tmp_path, op):
    """If the skeleton failed, its user would look for the fault in it."""
    form, writer = made
    sent = Message((tmp_path / f"tests/formats/acme-json/{op}.json").read_bytes())
    (change,) = form.parse(sent, writer.DIALECTS["acme-json"].hints)
    assert (op, "shop.orders") == (json.loads(json.dumps(describe(change)))["op"], str(change.table))
    assert form.recognise(sent.value)


def test_histories_end_in_the_same_rows(made, monkeypatch):
    """A skeleton that folds wrongly teaches the fault."""
    form, writer = made
    monkeypatch.setattr("ingest.formats.load", lambda _name: form)
    dialect = writer.DIALECTS["acme-json"]
    for seed in range(20):
        truth = history(seed)
        sent = delivered(dialect.write(truth), seed, any_order=True, once=False)
        found = decoded(dialect, sent)
        assert [] == differences(truth, folded(found), {})
        assert [] == unsaid(truth, statements(one.change for one in found))
