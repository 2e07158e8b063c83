"""The number of a lake's format: an older program leaves the lake of a newer one alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.errors import IngestError
from ingest.run import Warm, run
from ingest.tables import identity
from ingest.tables.schemas import FORMAT
from ingest.tables.tables import LakeReader
from tests.unstarted import unstarted


def made(folder: Path) -> Path:
    """A pipeline file whose lake has a batch."""
    file = folder / "x.yaml"
    file.write_text(
        "pipeline: shop\nlake: ./lake\nengine: auto\nsources:\n  - {name: s, kind: files, format: dts-canal, path: './in-*.jsonl', settle: 0s}\n",
        "utf-8",
    )
    row = {
        "data": [{"id": "1"}],
        "mysqlType": {"id": "int"},
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "isDdl": False,
    }
    place = {
        "database": "d",
        "table": "t",
        "es": 1714521600000,
        "ts": 1714521600000,
        "id": 1,
        "type": "INSERT",
    }
    (folder / "in-1.jsonl").write_text(json.dumps({**place, **row}) + "\n", "utf-8")
    assert [] == run(unstarted(), load(file), warm=Warm()).failures
    return file


def numbered(folder: Path, number: str) -> None:
    """Give the lake's first table another number, or take its number away."""
    log = folder / "lake" / "bronze" / "_delta_log"
    for entry in log.glob("*.json"):
        text = entry.read_text("utf-8")
        assert entry.name != f"{0:020}.json" or f'"ingest.format":"{FORMAT}"' in text
        entry.write_text(text.replace(f'"ingest.format":"{FORMAT}"', number), "utf-8")


def test_a_newer_lake_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """After a rollback an older program landed a batch and then crashed in the middle."""
    file = made(tmp_path)
    numbered(tmp_path, f'"ingest.format":"{FORMAT + 1}"')
    (tmp_path / "in-2.jsonl").write_bytes((tmp_path / "in-1.jsonl").read_bytes())
    before = sorted(tmp_path.rglob("*"))
    for words in (["run"], ["status"], ["plan"], ["rejects"]):
        done = CliRunner().invoke(app, [*words, str(file)])
        assert 2 == done.exit_code, done.output
        assert (
            "was written by a newer version of ingest (format 2; this version knows formats up to 1)"
            in " ".join(done.output.split())
        )
    assert before == [
        one for one in sorted(tmp_path.rglob("*")) if one.name != "_lock" and "lock" not in one.name
    ]


@pytest.mark.parametrize("number", ['"x":"1"', f'"ingest.format":"{FORMAT}"'])
def test_a_lake_without_a_number_goes_on(tmp_path: Path, number: str) -> None:
    """Lakes of before the number must not be refused."""
    file = made(tmp_path)
    numbered(tmp_path, number)
    assert identity.look(LakeReader(load(file))).batch == 1
    assert [] == run(unstarted(), load(file), warm=Warm()).failures


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    """A later version may number its lakes otherwise."""
    file = made(tmp_path)
    numbered(tmp_path, '"ingest.format":"2.1"')
    with pytest.raises(IngestError, match="newer version"):
        identity.look(LakeReader(load(file)))
