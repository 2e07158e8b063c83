"""What a good pipeline file means: every key, its default and its form."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ingest.change import TableHints, TableId
from ingest.config import Expectation, Pipeline, QualityRule, Source, TableRule, schema
from ingest.config.entries import AlertTarget, Database, Lineage
from ingest.config.lint import leaves
from ingest.errors import ConfigError
from tests.config.pipeline_file import GOOD, KAFKA, loaded

# --- what a good file means ---------------------------------------------------------------------


def test_paths_are_taken_from_the_files_own_folder(tmp_path: Path) -> None:
    """Run from another folder, a pipeline would read and write elsewhere."""
    pipeline = loaded(tmp_path)
    assert str(tmp_path / "lake") == pipeline.lake
    assert str(tmp_path.parent / "in/*.jsonl") == pipeline.sources[0].path
    assert tmp_path / "stock.yaml" == pipeline.file


def test_a_change_feed_needs_a_file_system(tmp_path: Path) -> None:
    """In a store the first run would fail after the mirror's commit."""
    rule = "tables: [{changes_of: true}]\n"
    assert loaded(tmp_path, text=GOOD.replace("./lake", "file:///srv/lake") + rule).tables[0].changes_of
    with pytest.raises(
        ConfigError, match=r"changes_of: needs a lake in a file system, and this one is in a store"
    ):
        loaded(tmp_path, text=GOOD.replace("./lake", "s3a://bucket/lake") + rule)


@pytest.mark.parametrize("uri", ["s3a://bucket/lake", "oss://b/l", "abfss://c@a.net/l"])
def test_uris_stay_as_they_are(tmp_path: Path, uri: str) -> None:
    """A bucket would become a folder named after it."""
    assert uri == loaded(tmp_path, text=GOOD.replace("./lake", uri)).lake


@pytest.mark.parametrize("uri", ["file:/srv/lake", "file:///srv/lake/", "file://localhost/srv/./lake"])
def test_a_file_uri_is_the_folder_that_it_names(tmp_path: Path, uri: str) -> None:
    """A local lake would be taken for one in a store: read by Spark alone, its snapshots and change tables refused."""
    counts = f"quality: [{{table: depot.bins, source_counts: '{uri}/counts.csv'}}]\n"
    found = loaded(tmp_path, text=GOOD.replace("./lake", uri) + counts)
    assert ("/srv/lake", False) == (found.lake, found.is_stored)
    assert "/srv/lake/counts.csv" == found.quality[0].source_counts


@pytest.mark.parametrize("uri", ["file://server/lake", "file:///srv/my%20lake"])
def test_a_file_uri_that_readers_take_differently_is_refused(tmp_path: Path, uri: str) -> None:
    """Spark and delta-rs would each make a lake of their own."""
    with pytest.raises(
        ConfigError, match=r"stock.yaml:2:1 'file:.* is not the URI of a local path; write the path itself"
    ):
        loaded(tmp_path, text=GOOD.replace("./lake", uri))


def test_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    """A changed default changes what every short file means."""
    source = loaded(tmp_path).sources[0]
    expected = Source(name="bins", kind="files", format="canal", path=source.path)
    assert expected == source


@pytest.mark.parametrize(
    ("keys", "meaning"),
    [
        (schema.PipelineKeys, Pipeline), (schema.FileKeys, Source), (schema.KafkaKeys, Source), (schema.TableKeys, TableRule),
        (schema.QualityKeys, QualityRule), (schema.DatabaseKeys, Database), (schema.LineageKeys, Lineage),
        (schema.AlertKeys, AlertTarget),
    ],
)  # fmt: skip
def test_a_key_that_is_left_out_means_what_its_class_says(keys: type[BaseModel], meaning: Any) -> None:
    """A default is written in both: if the two differ, a file and a class made in Python mean different things."""
    own = {one.name: one.default for one in fields(meaning) if one.default is not MISSING}
    own |= {one.name: one.default_factory() for one in fields(meaning) if one.default_factory is not MISSING}
    read = {name: key.default for name, key in keys.model_fields.items() if not key.is_required()}
    both = {name for name, value in read.items() if value is not None and name in own} - {"options"}
    assert both
    assert {name: own[name] for name in both} == {name: read[name] for name in both}


def test_texts_are_plain(tmp_path: Path) -> None:
    """An unquoted text knows what YAML takes it for, and encoders refuse such a text."""
    more = """    options: {timezone: UTC, binary: hex, order_by: arrival, table: {bins: w.bin}}
    framing: lines
    storage: {endpoint: here}
    database: {url: 'mysql://here:3306', user: me, password: hidden}
  - {name: shelves, bootstrap_servers: 'here:9092', topics: [one, two], format: debezium, start: {one: {0: 7}}, kafka: {kafka.acks: all}}
tables:
  - match: w.*
    into: all.{table}
    keys: [no]
    mask: {label: hmac, note: null}
    where: size > 1
    columns: {no: int64, at: {rename: moment, type: date}, old: exclude, double: {compute: size * 2}, from: {meta: source}}
    cluster_by: at
    no_key: hold
mask_secret: 0123456789abcdef
quality: [{table: w.bin, expect: [{type: expect_column_values_to_be_in_set, column: label, value_set: [a, b]}], thresholds: {duplicates: 5}}]
spark: {spark.sql.x: y}
master: local
openlineage: {file: ./events, namespace: here}
alerts: [{webhook: 'https://here/x', style: slack, severity: warn}]
catalog: {kind: unity, uri: 'http://unity:8080', catalog: lake, token: hidden, database: 'd_{database}'}
"""
    found = asdict(loaded(tmp_path, more))
    odd = [where for where, value in leaves(found) if isinstance(value, str) and type(value) is not str]
    assert [] == odd


def test_every_source_key_is_read(tmp_path: Path) -> None:
    """A key that is accepted and forgotten is worse than an unknown one."""
    more = (
        "    framing: document\n    settle: 2m\n    order_files_by: mtime\n    max_record_bytes: 10MiB\n"
        "    max_messages: 1_000\n    max_bytes: 1GB\n    storage: {endpoint: 'http://x', retries: 3}\n"
    )
    source = loaded(tmp_path, more).sources[0]
    assert ("document", 120.0, "mtime", 10 * 2**20) == (
        source.framing,
        source.settle,
        source.order_files_by,
        source.max_record_bytes,
    )
    assert (1000, 10**9) == (source.max_messages, source.max_bytes)
    assert {"endpoint": "http://x", "retries": "3"} == source.storage


def test_options_are_read(tmp_path: Path) -> None:
    """Options decide what values mean."""
    more = (
        "    options: {timezone: Asia/Shanghai, binary: hex, swap_old_data: true, key_is_full: false,\n"
        "      decimal_scale: 0, order_by: arrival, table: {bins-*: w.bin, other: '`a.b`.s.t'}}\n"
    )
    options = loaded(tmp_path, more).sources[0].options
    assert ("Asia/Shanghai", "hex", True, False, 0, "arrival") == (
        options.timezone,
        options.binary,
        options.swap_old_data,
        options.key_is_full,
        options.decimal_scale,
        options.order_by,
    )
    assert (("bins-*", TableId("w", None, "bin")), ("other", TableId("a.b", "s", "t"))) == options.table


def test_one_table_may_be_named_for_all_topics(tmp_path: Path) -> None:
    """Messages that name no table would find none."""
    options = loaded(tmp_path, "    options: {table: w.s.bin}\n").sources[0].options
    assert (("*", TableId("w", "s", "bin")),) == options.table


def test_rules_are_read_and_the_first_that_matches_applies(tmp_path: Path) -> None:
    """Keys and types of the wrong rule would build a wrong mirror."""
    more = (
        "tables:\n  - {match: w.bin, keys: [no, on], columns: {at: datetime(6), n: 'decimal(38,10)'},\n"
        "     no_key: append, on_schema_change: freeze, change_feed: true}\n"
        "  - {match: w.*, into: 'all.{table}', exclude: false}\n"
    )
    pipeline = loaded(tmp_path, more)
    expected = TableRule(
        match="w.bin",
        keys=("no", "on"),
        columns={"at": "datetime(6)", "n": "decimal(38,10)"},
        no_key="append",
        on_schema_change="freeze",
        change_feed=True,
    )
    assert expected == pipeline.rule(TableId("w", None, "bin"))
    assert "all.{table}" == pipeline.rule(TableId("w", None, "other")).into
    hints = pipeline.hints(pipeline.sources[0])
    assert TableHints(("no", "on"), expected.columns) == hints.tables(TableId("w", None, "bin"))


def test_rules_for_columns_are_taken_apart(tmp_path: Path) -> None:
    """A parser must see the types alone; the place of each rule is needed where it cannot be followed."""
    more = (
        "tables:\n  - match: w.bin\n    columns:\n      '*_at': exclude\n      made_at: include\n"
        "      n: {rename: number, type: 'decimal(38,10)'}\n      v: int64\n      w: exclude\n"
    )
    rule = loaded(tmp_path, more).rule(TableId("w", None, "bin"))
    assert ({"n": "decimal(38,10)", "v": "int64"}, {"n": "number"}) == (rule.columns, rule.names)
    kept = [name for name in ("n", "v", "w", "made_at", "seen_at", "other") if not rule.leaves_out(name)]
    assert ["n", "v", "made_at", "other"] == kept
    assert rule.places["n"].endswith(":13:7")


def test_a_type_alone_leaves_the_mirror_as_it_is(tmp_path: Path) -> None:
    """Otherwise an existing lake would be folded again for nothing."""
    rule = loaded(tmp_path, "tables: [{match: w.bin, columns: {v: int64}}]\n").rule(TableId("w", None, "bin"))
    assert ("", TableRule(match="w.bin", columns={"v": "int64"})) == (rule.shape, rule)


def test_quality_keeps_real_numbers_for_expectations_only(tmp_path: Path) -> None:
    """Great Expectations compares numbers; a text 0.95 would fail every check."""
    more = (
        "quality:\n  - table: w.bin\n    freshness: 2h\n    thresholds: {reject_rate: 0.1%, gaps: 3}\n    expect:\n"
        "      - {type: expect_column_values_to_be_between, column: 5x, min_value: 1, max_value: 2.5,\n"
        "         strict_max: true, notes: [1, a], severity: warn}\n"
    )
    arguments = {"column": "5x", "min_value": 1, "max_value": 2.5, "strict_max": True, "notes": [1, "a"]}
    expectation = Expectation("expect_column_values_to_be_between", arguments, "warn")
    expected = QualityRule("w.bin", (expectation,), 7200.0, {"reject_rate": 0.001, "gaps": 3.0})
    assert (expected,) == loaded(tmp_path, more).quality


def test_spark_settings_keep_their_text(tmp_path: Path) -> None:
    """1.10 passed through a number would become 1.1."""
    more = "spark: {spark.a: 1.10, spark.b: true, spark.c: 0x10}\nmaster: local[2]\nplain_tables: true\n"
    pipeline = loaded(tmp_path, more)
    assert {"spark.a": "1.10", "spark.b": "true", "spark.c": "0x10"} == pipeline.spark
    assert ("local[2]", True) == (pipeline.master, pipeline.plain_tables)


def test_kafka_sources_are_read(tmp_path: Path) -> None:
    """Settings of the broker would be lost."""
    more = (
        "    topics: [bins, moves]\n    registry: http://r:8081\n    max_messages: 5\n"
        "    kafka: {security.protocol: SSL, kafka.retries: 3}\n"
    )
    source = loaded(tmp_path, more, KAFKA).sources[0]
    assert ("kafka", "a:9092,b:9092", ("bins", "moves")) == (
        source.kind,
        source.bootstrap_servers,
        source.topics,
    )
    assert {"security.protocol": "SSL", "retries": "3"} == source.kafka
    assert ("http://r:8081", 5, "earliest") == (source.registry, source.max_messages, source.start)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", "latest"),
        ("2024-05-01T08:00:00+08:00", "2024-05-01T00:00:00Z"),
        ("2024-05-01 00:00:00", "2024-05-01T00:00:00Z"),
        ("{bins: {0: 12, 1: 0}}", {"bins": {0: 12, 1: 0}}),
    ],
)
def test_kafka_starts(tmp_path: Path, start: str, expected: object) -> None:
    """Reading from a wrong place loses messages or repeats them."""
    source = loaded(tmp_path, f"    topic_pattern: b.*\n    start: {start}\n", KAFKA).sources[0]
    assert expected == source.start


def test_json_is_accepted(tmp_path: Path) -> None:
    """JSON is YAML, tabs and escapes included."""
    text = (
        '{\n\t"pipeline": "stock",\n\t"lake": "l\\ud83d\\ude00",\n\t"sources": [{"name": "b", "kind": "files",'
        ' "path": "\\/x", "format": "canal", "options": {"swap_old_data": true}}]\n}'
    )
    pipeline = loaded(tmp_path, text=text)
    assert str(tmp_path / "l\U0001f600") == pipeline.lake
    assert ("/x", True) == (pipeline.sources[0].path, pipeline.sources[0].options.swap_old_data)


def test_a_source_without_kind_is_of_the_kind_of_its_keys(tmp_path: Path) -> None:
    """The short form would be refused."""
    assert "files" == loaded(tmp_path, text=GOOD.replace("    kind: files\n", "")).sources[0].kind
    kafka = KAFKA.replace("    kind: kafka\n", "") + "    topics: t\n"
    assert "kafka" == loaded(tmp_path, text=kafka).sources[0].kind


def test_aliases_and_merges_work(tmp_path: Path) -> None:
    """Shared options would have to be written twice."""
    more = (
        "    options: &zone {timezone: Asia/Tokyo}\n  - {name: two, path: x, format: canal, options: *zone}\n"
        "  - {name: three, path: x, format: canal, options: {<<: *zone, binary: hex}}\n"
    )
    sources = loaded(tmp_path, more).sources
    assert ["Asia/Tokyo"] * 3 == [source.options.timezone for source in sources]
    assert "hex" == sources[2].options.binary


def test_a_key_without_a_value_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    """A list whose entries are all commented out would be refused."""
    pipeline = loaded(tmp_path, "    options:\ntables:\n  # - match: x\nquality:\nmaster:\n")
    assert ((), (), "") == (pipeline.tables, pipeline.quality, pipeline.master)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    assert "stock" == loaded(tmp_path, text="\ufeff" + GOOD).name
