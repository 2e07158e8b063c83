"""Wrong edits of a pipeline file as people make them at night: each is named with line, column and the right word."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config import load
from tests.config.pipeline_file import problems

FILE = """\
pipeline: shop
lake: ./lake
engine: auto
sources:
  - name: orders
    kind: files
    path: ./landing/*.jsonl
    format: dts-canal
    settle: 60s
    options: {timezone: Asia/Shanghai}
  - name: live
    kind: kafka
    bootstrap_servers: localhost:9092
    topics: [shop.orders]
    format: canal
    start: earliest
tables:
  - match: shop.orders
    keys: [id]
    columns: {price: "decimal(38,10)"}
    on_schema_change: evolve
  - match: shop.*
    no_key: full_row
quality:
  - table: shop.orders
    freshness: 1h
    expect:
      - {type: expect_column_values_to_not_be_null, column: id}
alerts:
  - webhook: https://alerts.example.com/in
    severity: warn
"""
EDITS = [  # what was written, what it became, where that is reported, and the word that is right
    ("pipeline: shop", "pipline: shop", "1:1", "pipeline"),
    ("lake: ./lake", "lakes: ./lake", "2:1", "lake?"),
    ("engine: auto", "engine: automatic", "3:1", "auto?"),
    ("engine: auto", "egnine: auto", "3:1", "engine"),
    ("sources:", "source:", "4:1", "sources?"),
    ("kind: files", "kind: file", "6:5", "files?"),
    ("kind: files", "knid: files", "6:5", "kind?"),
    ("path: ./landing", "paths: ./landing", "7:5", "path?"),
    ("format: dts-canal", "format: dts-cannal", "8:5", "dts-canal"),
    ("format: dts-canal", "format: DTS_Canal", "8:5", "dts-canal"),
    ("settle: 60s", "settle: 60 sec", "9:5", "60s"),
    ("settle: 60s", "setle: 60s", "9:5", "settle?"),
    ("Asia/Shanghai", "Asia/Shangai", "10:15", "Asia/Shanghai"),
    ("timezone:", "time_zone:", "10:15", "timezone"),
    ("{timezone: Asia/Shanghai}", "{registry: 'http://registry'}", "10:15", "next to options:"),
    ("name: live", "name: orders", "11:5", "line 5"),
    ("bootstrap_servers:", "bootstrap.servers:", "13:5", "bootstrap_servers?"),
    ("topics: [", "topic: [", "14:5", "topics"),
    ("start: earliest", "start: earlist", "16:5", "earliest"),
    ("start: earliest", "start: 2024-13-01", "16:5", "2024-05-01T00:00:00Z"),
    ("keys: [id]", "key: [id]", "19:5", "keys"),
    ('"decimal(38,10)"', "decimal(38,10)", "20:15", "in quotes"),
    ('"decimal(38,10)"', "number(10)", "20:15", "decimal(10,0)?"),
    ("on_schema_change: evolve", "on_schema_change: evolved", "21:5", "evolve?"),
    ("on_schema_change:", "on_schema_changes:", "21:5", "on_schema_change?"),
    ("no_key: full_row", "no_key: fullrow", "23:5", "full_row?"),
    ("- table: shop.orders", "- tables: shop.orders", "25:5", "table?"),
    ("freshness: 1h", "freshness: 1 hour", "26:5", "2h"),
    ("freshness: 1h", "freshnes: 1h", "26:5", "freshness"),
    ("values_to_not_be_null", "values_not_null", "28:10", "expect_column_values_to_not_be_null"),
    ("alerts:", "sources:", "29:1", "keep one"),
    ("webhook:", "webhok:", "30:5", "webhook?"),
    ("webhook: https://", "webhook: ", "30:5", "https://"),
    ("severity: warn", "severity: warning", "31:5", "warn?"),
    ("pipeline: shop", "pipeline shop", "1:1", "a colon is missing"),
    ("lake: ./lake", "lake ./lake", "2:1", "a colon is missing"),
    ("    kind: files", "    kind files", "6:5", "a colon is missing"),
    ("sources:", "sources", "4:1", "a colon is missing"),
    ("pipeline: shop", "pipeline:shop", "1:9", "a space is missing"),
    ("lake: ./lake", "lake:./lake", "2:5", "a space is missing"),
    ("- name: orders", "- name:orders", "5:9", "a space is missing"),
    ("lake: ./lake", "  lake: ./lake", "2:3", "indented further"),
    ("lake: ./lake", "\n  lake: ./lake", "3:3", "indented further"),
    ("lake: ./lake", "# where\n  lake: ./lake", "3:3", "indent"),
    ("    kind: files", "     kind: files", "6:6", "indented further"),
    ("    kind: kafka", "        kind: kafka", "12:9", "indented further"),
    ("- name: live", "- name live", "11:5", "a colon is missing"),
    ("  - name: live", "    - name: live", "11:5", "indent"),
    ("  - name: live", "   - name: live", "11:4", "indent"),
    ("Asia/Shanghai}", "Asia/Shanghai", "10:14", "}"),
    ("topics: [shop.orders]", "topics: [shop.orders", "14:13", "]"),
    ("{timezone: Asia/Shanghai}", "timezone: Asia/Shanghai", "10:22", "line of its own"),
    ("column: id}", "column id}", "28:9", "column"),
    ("null, column", "null column", "28:58", "comma"),
    ("    kind: files", "\tkind: files", "6:1", "spaces"),
    ("    keys: [id]", "   keys: [id]", "19:4", "indent"),
]


def test_the_file_itself_is_right(tmp_path: Path) -> None:
    """Each fault below would be that of another line."""
    file = tmp_path / "shop.yaml"
    file.write_text(FILE, "utf-8")
    assert "shop" == load(file).name


@pytest.mark.parametrize(("old", "new", "place", "word"), EDITS)
def test_a_wrong_edit_is_named_with_its_place_and_the_right_word(
    tmp_path: Path, old: str, new: str, place: str, word: str
) -> None:
    """At three in the morning "invalid configuration" costs an hour, and a wrong guess that is accepted costs more."""
    said = problems(tmp_path, FILE.replace(old, new, 1))
    assert any(fault.startswith(f"{place} ") and word in fault for fault in said), said
