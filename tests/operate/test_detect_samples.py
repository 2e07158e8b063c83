"""The format of every sample file is detected, or reported as a tie."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest import formats
from ingest.config import lint, read
from ingest.operate import detection
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.lakes import FORMAT, change

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*/**/shop-*.jsonl"))
VENDOR = ROOT.parent / "shared" / "vendor-samples"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: "/".join(path.parts[-3:]))
def test_the_dialect_of_a_sample_is_detected(path):
    """A sister's name would decode times and bytes wrongly."""
    verdict = detection.judge(str(path), *detection.sample(str(path), None, 200))
    assert path.relative_to(ROOT / "samples").parts[0] == verdict["format"]


@pytest.mark.parametrize("name", formats.names())
def test_the_vendors_own_messages_are_detected_or_reported_as_a_tie(name):
    """The documents' own messages are what a newcomer tries first."""
    files = sorted((VENDOR / name).glob("*.json"))
    if not files:
        pytest.skip("the vendor's samples are not at hand")
    sampled = [path.read_bytes() for path in files]
    verdict = detection.judge(name, "document", sampled, None)
    assert name in verdict["candidates"], verdict["evidence"]


def test_one_mark_of_a_sister_outweighs_what_both_share():
    """Many messages without a mark would win against the few that have one."""
    shared = {"dialect": formats.SharedEvidence("of the family")}
    seen = [shared, shared, shared, {"sister": "its own mark"}]
    assert (0, 3) == detection._Sample([], seen).marks("dialect")
    assert (1, 0) == detection._Sample([], seen).marks("sister")


def test_a_statement_of_another_type_is_of_the_same_file():
    """DTS calls statements DDL, Canal by their kind, and a run reads both: the file need not be split."""
    row = change("INSERT", "bins", 1, {"id": "1", "word": "x"}).encode()
    kinds = [
        change(
            kind,
            "bins",
            2,
            {},
            data=None,
            isDdl=True,
            mysqlType=None,
            pkNames=None,
            sql="ALTER TABLE bins ADD more INT",
        )
        for kind in ("DDL", "ALTER")
    ]
    for one in kinds:
        verdict = detection.judge("x", "lines", [row, row, one.encode()], None)
        assert (FORMAT, {}) == (verdict["format"], verdict["odd"])
        assert detection.is_one_source(verdict)


def test_a_format_whose_schemas_are_in_a_registry_asks_for_it(tmp_path):
    """The pipeline file that `init` writes would reject every message, and `validate` would call it good."""
    sent = [message.value or b"" for message in DIALECTS["debezium-avro"].write(history(3))]
    file = tmp_path / "m.bin"
    file.write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in sent))
    block = detection.judge(str(file), *detection.sample(str(file), None, 200))["sources"]
    assert "# registry: http://host:8081" in block
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(f"pipeline: p\nlake: ./lake\n{block}")
    assert any(
        "debezium-avro needs a schema registry" in each for each in lint.warnings(read.check(pipeline))
    )
    pipeline.write_text(pipeline.read_text().replace("# registry", "registry"))
    assert not any("registry" in each for each in lint.warnings(read.check(pipeline)))


@pytest.mark.parametrize("name", ["ogg-avro", "ogg-avro wrapped"])
def test_what_no_message_shows_is_asked_for_before_the_first_run(name, tmp_path):
    """Half of the updates would be rejects, and whoever reads them would have to begin again."""
    sent = [message.value or b"" for message in DIALECTS[name].write(history(3))]
    file = tmp_path / "m.bin"
    file.write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in sent))
    verdict = detection.judge(str(file), *detection.sample(str(file), None, 200))
    assert "ogg-avro" == verdict["format"]
    for said in (verdict["sources"], detection.in_words(verdict)):
        assert "write `left_out: null` (the trail has whole rows)" in said
    assert "or the folder of the schemas' files (*.avsc)" in verdict["sources"]


@pytest.mark.parametrize("name", ["dts-avro", "obcloud-avro", "canal-protobuf", "tencent-protobuf"])
def test_bare_records_with_lengths_are_detected_without_being_told(name, tmp_path):
    """Every record shorter than 16 MB begins with a zero byte, and was taken for one in Confluent's frame."""
    sent = [message.value or b"" for message in DIALECTS[name].write(history(3))]
    file = tmp_path / "messages.bin"
    file.write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in sent))
    verdict = detection.judge(str(file), *detection.sample(str(file), None, 200))
    assert (name, "length", {}) == (verdict["format"], verdict["framing"], verdict["odd"])
    assert "framing:" not in verdict["sources"]  # it is what the format uses anyway
