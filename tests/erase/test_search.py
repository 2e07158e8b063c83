"""Texts found in every kind of file that a lake has."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.erase.search import Hit, search

NAME, WIDE = "Mällory", "漢字𝄞"
QUOTED, CAPITAL = 'the "quoted" name', "Éve with small letters"
NESTED = pa.struct([("stats", pa.map_(pa.string(), pa.list_(pa.string())))])


def lake(folder: Path) -> Path:
    """Files as Delta tables have them: texts, numbers, times, bytes, nested columns, and a log."""
    (folder / "t" / "_delta_log").mkdir(parents=True)
    cells = {
        "id": pa.array([774_100_001, None], pa.int64()),
        "price": pa.array([Decimal("987.6500"), None], pa.decimal128(10, 4)),
        "rate": pa.array([0.5, float("nan")]),
        "born": pa.array([dt.date(1931, 2, 3), None]),
        "seen": pa.array([dt.datetime(2031, 2, 3, 4, 5), None], pa.timestamp("us", "UTC")),  # noqa: DTZ001 - of UTC
        "note": pa.array([f"about {NAME} only", None]),
        "payload": pa.array([json.dumps({"name": WIDE}), None]),
        "document": pa.array([json.dumps({"name": QUOTED}), '{"name":"\\u00C9ve with small letters"}']),
        "value": pa.array([f"raw {NAME}".encode(), None], pa.binary()),
        "add": pa.array([{"stats": [("low", ["deeply hidden"])]}, None], NESTED),
        "live": pa.array([True, None]),
    }
    table = pa.table(cells)
    pq.write_table(table, folder / "t" / "part-1.zstd.parquet", compression="zstd")
    (folder / "t" / "_delta_log" / "0.json").write_text(
        '{"add":{"stats":"{\\"minValues\\":\\"in the log\\"}"}}'
    )
    return folder


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("774100001", ["id"]),
        ("987.65", ["price"]),
        ("0.5", ["rate"]),
        ("1931-02-03", ["born"]),
        ("2031-02-03 04:05:00", ["seen"]),
        (NAME, ["note", "value"]),
        (WIDE, ["payload"]),
        (QUOTED, ["document"]),
        (CAPITAL, ["document"]),
        ("deeply", ["add.stats"]),
        ("in the log", [""]),
    ],
)
def test_a_text_is_found_wherever_it_is(tmp_path: Path, text: str, columns: list[str]) -> None:
    """A column, or a file, that is passed over lets an auditor sign what is wrong."""
    found = search(lake(tmp_path), ["is not there", text])
    assert columns == sorted(hit.column for hit in found.hits)
    assert {(2, 1)} == {(hit.number, hit.values) for hit in found.hits}
    assert (2, []) == (found.files, found.unread)


@pytest.mark.parametrize(
    "text", ["77410000", "987.6", "87.65", "1931-02-0", "true", "NaN", "Infinity", "1e400", "Mallory"]
)
def test_what_only_looks_like_a_value_is_not_found(tmp_path: Path, text: str) -> None:
    """A key that is found in every longer number proves nothing."""
    assert [] == search(lake(tmp_path), [text]).hits


def test_a_text_across_two_reads_and_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read is not searched, and must not pass as clean."""
    monkeypatch.setattr("ingest.erase.search._BYTES", 4)
    (tmp_path / "log.json").write_text("xx split in pieces yy")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    found = search(tmp_path, ["split in pieces"])
    assert [Hit("log.json", "", 1, 1)] == found.hits
    assert ["broken.parquet"] == [one.partition(":")[0] for one in found.unread]


def test_the_verb_exits_with_1_where_a_text_is_left(tmp_path: Path) -> None:
    """The exit code must say so to a script; the text itself stays out of output that a log may keep."""
    lake(tmp_path / "lake")
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nlake: ./lake\nengine: auto\nsources:\n  - {name: s, kind: files, path: ./none/*, format: canal}\n"
    )
    found = CliRunner().invoke(app, ["erase", str(file), "--verify", "gone", "--verify", NAME])
    assert 1 == found.exit_code
    assert "part-1.zstd.parquet" in found.output
    assert NAME not in found.output
    clean = CliRunner().invoke(app, ["erase", str(file), "--verify", "gone", "--output", "json"])
    assert (0, []) == (clean.exit_code, json.loads(clean.stdout)["hits"])
    assert 2 == CliRunner().invoke(app, ["erase", str(file), "--verify", ""]).exit_code
    assert 2 == CliRunner().invoke(app, ["erase", str(file), "depot.people", "--verify", "x"]).exit_code
