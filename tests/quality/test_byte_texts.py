"""Bytes that are sent as hexadecimal digits and read as base64, and the other way round."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import Options
from ingest.config.model import TableRule
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.config import Pipeline

RULE = TableRule(match="*", keys=("ID",), columns={"ID": "int64", "RAW": "binary"})
STAGES = ("bronze", "silver", "gold", "quality")
MARK = base64.b64encode(b"a mark of 20 bytes..").decode()


class Binaries(Shops):
    """One table with a column of bytes, in a dialect that says nothing of their encoding."""

    encoding: str | None = None

    @property
    def pipeline(self) -> Pipeline:
        found = super().pipeline
        return replace(found, sources=(replace(found.sources[0], options=Options(binary=self.encoding)),))

    def load(self, *texts: str) -> list[str]:
        """The complaints about bytes after one more batch, whose rows have these texts."""
        self.number += 1
        self.lines += [json.dumps(self.message(i, text)) for i, text in enumerate(texts, 10 * self.number)]
        self.run()
        assert self.result is not None
        return [one for one in (*self.result.failures, *self.result.warnings) if "base64" in one]

    def message(self, key: int, text: str) -> dict[str, Any]:
        """An insert."""
        row = {"ID": str(key), "RAW": text}
        if self.dialect == "ogg":
            place = {"table": "s.t", "op_ts": "2024-06-10 06:14:02.000000", "pos": f"{key:020}"}
            return {**place, "op_type": "I", "after": row}
        if self.dialect == "dts-shareplex":
            meta = {"op": "ins", "table": "s.t", "scn": str(key), "time": "2024-06-10T06:14:02"}
            return {"meta": meta, "data": row}
        if self.dialect == "debezium":
            place = {"connector": "mysql", "db": "s", "table": "t", "file": "b.000001", "pos": key, "row": 0}
            return {"op": "c", "before": None, "after": row, "source": place}
        if self.dialect == "dms":
            meta = {"record-type": "data", "operation": "insert", "schema-name": "s", "table-name": "t"}
            return {"data": row, "metadata": {**meta, "timestamp": "2024-06-10T06:14:02Z"}}
        kinds = {"ID": "bigint", "RAW": "varbinary"}
        place = {"database": "s", "table": "t", "id": key, "es": 1, "ts": 1, "sql": "", "isDdl": False}
        return {**place, "type": "INIT", "data": [row], "old": None, "mysqlType": kinds, "pkNames": ["ID"]}

    def held(self, path: str) -> set[bytes | None]:
        """The bytes that the mirror has."""
        return {row["RAW"] for row in self.lake.ask_mirror(path, 'SELECT "RAW" FROM {mirror}')}


BASE64 = ["dts-canal", "ogg", "dts-shareplex", "debezium", "obcloud-canal"]
WRITTEN = ["48656C6C6F21", "deadbeefcafe", "0x48656C6C6F", "DEADBEEF", "48656c6c6f212121"]


@pytest.mark.parametrize(("dialect", "text"), list(zip(BASE64, WRITTEN, strict=True)))
def test_hexadecimal_texts_read_as_base64_are_named(tmp_path: Path, dialect: str, text: str) -> None:
    """The mirror had nine wrong bytes for six right ones, with every check green."""
    [complaint] = Binaries(tmp_path, RULE, dialect=dialect, stages=STAGES).load(text)
    assert "`binary: hex`" in complaint
    assert "RAW" in complaint
    assert "ingest backfill" in complaint
    assert " --from-batch 1`" in complaint, "the command does not run without it"


@pytest.mark.parametrize("texts", [["AAAA"], ["AAAAAAAB", "AAAAAAAC"], [MARK], ["DEADBEEF", MARK], [""]])
def test_base64_is_not_suspected(tmp_path: Path, texts: list[str]) -> None:
    """A complaint about right bytes would send the operator after a fault that is not there."""
    assert [] == Binaries(tmp_path, RULE, stages=STAGES).load(*texts)


def test_few_texts_of_several_batches(tmp_path: Path) -> None:
    """A table that gets one short text in each batch would never be suspected."""
    mine = Binaries(tmp_path, RULE, stages=STAGES)
    assert [] == mine.load("4865")
    assert [] != mine.load("6C6C6F21")


@pytest.mark.parametrize(
    ("dialect", "text"),
    list(
        zip(
            BASE64, ["48656C6C6F", "0x48656C6C6F", "0X48656c6c6f", "\\x48656c6c6f", "48656c6c6f"], strict=True
        )
    ),
)
def test_the_option_that_is_named_reads_them(tmp_path: Path, dialect: str, text: str) -> None:
    """With a mark before the digits, ``binary: hex`` rejected whole messages: no option read them."""
    mine = Binaries(tmp_path, RULE, dialect=dialect, stages=STAGES)
    mine.encoding = "hex"
    assert [] == mine.load(text)
    assert {b"Hello"} == mine.held("mirrors/s/t")


@pytest.mark.parametrize("text", ["48656C6C6F21", "0x48656C6C6F21"])
@pytest.mark.parametrize("declared", [True, False])
def test_dms_sends_hexadecimal_texts(tmp_path: Path, text: str, declared: bool) -> None:
    """Its documented default was read as base64, where a control message alone says that a column holds bytes, too."""
    rule = RULE if declared else TableRule(match="*")
    mine = Binaries(tmp_path, rule, dialect="dms", stages=STAGES)
    columns = {"ID": {"type": "INT64"}, "RAW": {"type": "BYTES", "length": 16}}
    meta = {"record-type": "control", "operation": "create-table", "schema-name": "s", "table-name": "t"}
    structure = {"table-def": {"columns": columns, "primary-key": ["ID"]}}
    mine.lines = [
        json.dumps({"control": structure, "metadata": {**meta, "timestamp": "2024-06-10T06:14:01Z"}})
    ]
    assert [] == mine.load(text)
    assert {b"Hello!"} == mine.held("mirrors/s/t")
    assert mine.result is not None
    assert [] == mine.result.failures
