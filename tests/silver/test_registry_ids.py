"""The numbers in messages' frames: what the registry is asked for before a batch is decoded."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ingest.config import load
from ingest.config.model import Source
from ingest.decoding import schema_folder
from ingest.errors import SetupError
from ingest.run import run
from ingest.silver import registry
from ingest.silver.messages import WANTED
from ingest.silver.registry import framed
from ingest.tables.tables import LakeReader
from tests.e2e.registry import Registry
from tests.formats.avro_cases import wrapped, written
from tests.formats.one_history.debezium import DIALECTS
from tests.formats.one_history.debezium import registry as schemas
from tests.formats.one_history.goldengate_avro import DIALECTS as GOLDENGATE
from tests.formats.one_history.history import history
from tests.unstarted import unstarted


def test_ids_are_found_wherever_a_frame_may_be() -> None:
    """A number not asked for would reject its messages; a source without a registry has no frames."""
    one, other, third = (b"\x00" + number.to_bytes(4, "big") for number in (7, 1 << 31, 9))
    rows = [
        {"source": "s", "value": one + b"datum", "key": other, "headers": [{"key": "h", "value": third}]},
        {"source": "s", "value": one, "key": None, "headers": None},
        {"source": "s", "value": None, "key": b"\x00\x00", "headers": []},
        {
            "source": "s",
            "value": b'{"id": 1}',
            "key": b"\x01\x00\x00\x00\x05",
            "headers": [{"key": "h", "value": None}],
        },
        {"source": "plain", "value": third, "key": None, "headers": None},
    ]
    pages = [pa.RecordBatch.from_pylist([row], schema=WANTED) for row in rows]
    [ids] = framed(["s"])(iter(pages))
    found = {(row["source"], int.from_bytes(row["id"], "big")): row["count"] for row in ids.to_pylist()}
    assert {("s", 7): 2, ("s", 1 << 31): 1, ("s", 9): 1} == found
    [none] = framed(["s"])(iter([]))
    assert 0 == none.num_rows


def test_framed_values_in_files_are_decoded_by_the_registry(tmp_path: Path) -> None:
    """An archive of a topic is a file, and its values name their schemas as they did in the topic."""
    written = history(1)
    values = [one.value for one in DIALECTS["debezium-avro"].write(written) if one.value]
    (tmp_path / "in.bin").write_bytes(b"".join(len(one).to_bytes(4, "big") + one for one in values))
    with Registry() as answers:
        answers.texts.update(schemas())
        (tmp_path / "yard.yaml").write_text(
            "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n  - name: s\n    path: ./in.bin\n"
            f"    format: debezium-avro\n    registry: {answers.url}\n    settle: 0s\n"
        )
        pipeline = load(tmp_path / "yard.yaml")
        result = run(unstarted(), pipeline, ("bronze", "silver"))
    assert not result.failures
    assert answers.asked
    lake = LakeReader(pipeline)
    [books] = lake.ask("SELECT sum(messages) AS messages, sum(rejected) AS rejected FROM {books}")
    assert (len(values), 0) == (books["messages"], books["rejected"])


def run_of(folder: Path, values: list[bytes], address: str, name: str = "in.bin") -> LakeReader:
    """The lake of a run over GoldenGate's records in a file, and in those of runs before."""
    (folder / name).write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in values))
    (folder / "yard.yaml").write_text(
        "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n  - name: s\n    path: ./*.bin\n    format: ogg-avro\n"
        f"    framing: length\n    registry: {address}\n    settle: 0s\n    options: {{left_out: 'null'}}\n"
    )
    pipeline = load(folder / "yard.yaml")
    failures = run(unstarted(), pipeline, ("bronze", "silver")).failures
    assert not failures, str(failures)
    return LakeReader(pipeline)


def test_records_that_name_their_schemas_by_fingerprints_are_decoded_by_a_folder(tmp_path: Path) -> None:
    """Those of GoldenGate's Kafka Handler have no registry, only the files that it writes; once read, the lake has them."""
    values = [sent.value or b"" for sent in GOLDENGATE["ogg-avro wrapped"].write(history(1))]
    stranger = wrapped("GG.DEPOT", 7, schema_folder.unwrapped(values[0]).datum)
    place = tmp_path / "schemas"
    place.mkdir()
    named = {schema_folder.unwrapped(value).schema for value in values}
    for number in named:  # the fingerprint, under which they are registered
        (place / f"{number}.avsc").write_text(schemas()[number])
    lake = run_of(tmp_path, [*values, stranger], "./schemas")
    [books] = lake.ask("SELECT sum(messages) AS messages, sum(rejected) AS rejected FROM {books}")
    assert (len(values) + 1, 1) == (books["messages"], books["rejected"])
    [reject] = lake.ask("SELECT reason, detail FROM {rejects}")
    assert "unknown-schema" == reject["reason"]
    assert "the fingerprint 7," in reject["detail"]
    kept = {row["id"] for row in lake.ask("SELECT id FROM {schemas}")}
    assert kept >= named


def scaled(scale: int, amount: bytes) -> tuple[str, bytes]:
    """A schema with a decimal of a scale, which its fingerprint leaves out, and a record of it in the wrapper."""
    names = "table op_type op_ts current_ts pos".split()
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": scale}
    columns = [{"name": name, "type": "string"} for name in names] + [{"name": "AMOUNT", "type": decimal}]
    schema = {"type": "record", "name": "ORDERS", "fields": columns}
    row = dict(zip(names, ("GG.ORDERS", "I", "2026-03-14 10:00:00", "2026-03-14T10:00:01", "1"), strict=True))
    text = json.dumps(schema)
    schema["fields"][-1]["type"] = "bytes"  # type: ignore[index]
    payload = written(schema, row | {"AMOUNT": amount})
    return text, wrapped("GG.ORDERS", schema_folder.fingerprint(text), payload)


def test_a_decimal_whose_scale_changed_is_not_read_by_the_scale_that_the_lake_has(tmp_path: Path) -> None:
    """GoldenGate writes the new schema over the old one, and both have one fingerprint: 12.3456 would become 1234.56."""
    place = tmp_path / "schemas"
    place.mkdir()
    (text, first), (changed, second) = scaled(2, b"\x04\xd2"), scaled(4, b"\x01\xe2\x40")
    (place / "GG.ORDERS.avsc").write_text(text)
    lake = run_of(tmp_path, [first], "./schemas")
    assert [{"count": 1}] == lake.ask("SELECT sum(changes) AS count FROM {books}")
    (place / "GG.ORDERS.avsc").write_text(changed)
    lake = run_of(tmp_path, [second], "./schemas", "later.bin")
    assert [{"count": 1}] == lake.ask("SELECT sum(changes) AS count FROM {books}")
    [reject] = lake.ask("SELECT reason, detail FROM {rejects}")
    assert "unsure-schema" == reject["reason"]
    assert "GG.ORDERS.avsc and the schema that the lake has" in reject["detail"]


def test_a_file_that_cannot_be_read_keeps_only_records_of_unknown_schemas(tmp_path: Path) -> None:
    """GoldenGate may be writing it, and the folder may be away: what the lake has the schema of would wait for it."""
    place = tmp_path / "schemas"
    place.mkdir()
    text, first = scaled(2, b"\x04\xd2")
    (place / "GG.ORDERS.avsc").write_text(text)
    run_of(tmp_path, [first], "./schemas")
    (place / "GG.DEPOT.avsc").write_text('{"type": "rec')
    run_of(tmp_path, [first], "./schemas", "broken.bin")
    lake = run_of(tmp_path, [first], "./elsewhere", "away.bin")
    assert [{"count": 3}] == lake.ask("SELECT sum(changes) AS count FROM {books}")
    with pytest.raises(
        AssertionError,
        match=r"no folder of Avro schemas .*; correct `registry:` of the source: its messages wait",
    ):
        run_of(tmp_path, [wrapped("GG.DEPOT", 7, b"")], "./elsewhere", "unknown.bin")


def test_a_schema_of_another_subject_is_named(tmp_path: Path) -> None:
    """Whoever looks for the sender of a foreign record has only the number of its schema; one of another kind ended every run."""
    frame = b"\0\0\0\0"
    numbers = '{"type": "record", "name": "Numbers", "fields": [{"name": "n", "type": "long"}]}'
    with Registry() as answers:
        answers.texts.update({7: numbers, 8: numbers, 9: '"nothing"'})
        answers.texts[11], answers.kinds[11] = 'syntax = "proto3"; message A {}', "PROTOBUF"
        answers.texts[12], answers.kinds[12] = '{"type": "object"}', "JSON"
        others = [frame + b"\x0b\x00\x0a\x01a", frame + b"\x0c" + b"\x02"]
        foreign = [
            *others,
            frame + b"\x07\x02",
            frame + b"\x08\x02\x02",
            frame + b"\x09\x02",
            frame + b"\x0a\x02",
        ]
        lake = run_of(tmp_path, foreign, answers.url)
    found = sorted(row["detail"] for row in lake.ask("SELECT detail FROM {rejects}"))
    begin = [
        "by the registry's schema 11: the schema cannot be used: it is a PROTOBUF schema, and only Avro is read",
        "by the registry's schema 12: the schema cannot be used: it is a JSON schema, and only Avro is read",
        "by the registry's schema 8: 1 byte is left",
        "by the registry's schema 9: the type 'nothing'",
        "the registry does not know schema 10",
        "the registry's schema 7 is of no record of GoldenGate",
    ]
    assert begin == [detail[: len(words)] for detail, words in zip(found, begin, strict=True)]


def test_a_slow_registry_ends_the_batch_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ids, one by one and each within its own limit, would hold a run for days."""
    seconds = iter(range(0, 10_000, 100))
    asked: list[int] = []

    def fetch(_address: str, number: int) -> str:
        asked.append(number)
        return "{}"

    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(registry, "schema_registry", SimpleNamespace(fetch=fetch))
    source = Source("s", "kafka", "debezium-avro", registry="http://registry")
    with pytest.raises(SetupError, match=r"takes more than 300 s .*messages wait in bronze"):
        registry._fetched(source, range(10_000))
    assert [0, 1, 2] == asked


def test_random_bytes_do_not_crowd_out_real_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value that begins with a zero byte looks framed; the ids asked for are those that occur most."""
    monkeypatch.setattr(registry, "_MOST", 2)
    frames = [7, 9, 7, 1234567, 9, 7654321, 7]
    rows = [
        {"source": "s", "value": b"\x00" + one.to_bytes(4, "big"), "key": None, "headers": None}
        for one in frames
    ]
    [ids] = framed(["s"])(iter([pa.RecordBatch.from_pylist(rows, schema=WANTED)]))
    assert {7, 9} == {int.from_bytes(row["id"], "big") for row in ids.to_pylist()}
