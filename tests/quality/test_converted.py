"""Columns whose type changes between two messages without a statement, as PostgreSQL's do."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.run import Warm, run
from tests.unstarted import unstarted


def kind(type_: str, semantic: str = "", **parameters: str) -> dict[str, Any]:
    """A Connect field."""
    named = {"name": semantic, "parameters": parameters} if semantic else {}
    return {"field": "n", "type": type_, "optional": True, **named}


def decimal(scale: int) -> dict[str, Any]:
    """NUMERIC(8,scale)."""
    name = "org.apache.kafka.connect.data.Decimal"
    return kind("bytes", name, scale=str(scale), **{"connect.decimal.precision": "8"})


def unscaled(number: int) -> str:
    """A decimal as Connect's JSON has it."""
    return base64.b64encode(number.to_bytes(4, "big")).decode()


@dataclass(slots=True)
class Sums:
    """A table of PostgreSQL, as Debezium sends it; each batch is a run."""

    folder: Path
    number: int = 0
    warm: Warm = field(default_factory=Warm)

    def batch(self, *rows: tuple[str, int, dict[str, Any], object]) -> list[str]:
        """Land changes of an operation, a key, a type and a value; what the checks of types say of them."""
        lines = [self._message(*row) for row in rows]
        (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(lines) + "\n")
        source = Source("s", "files", "debezium", path=str(self.folder / "in-*.jsonl"), settle=0)
        rule = TableRule(match="**", keys=("id",))
        pipeline = Pipeline(
            "x", self.folder / "x.yaml", str(self.folder / "lake"), (source,), (rule,), engine="auto"
        )
        return [one for one in run(unstarted(), pipeline, warm=self.warm).failures if "converted" in one]

    def _message(self, op: str, key: int, column: dict[str, Any], value: object) -> str:
        self.number += 1
        source = {
            "connector": "postgresql",
            "db": "shop",
            "schema": "public",
            "table": "sums",
            "lsn": self.number,
        }
        fields = [{"field": "id", "type": "int32", "optional": False}, column]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        payload = {"op": op, "before": None, "after": {"id": key, "n": value}, "source": source}
        return json.dumps({"schema": schema, "payload": payload})


MICROS = kind("int64", "io.debezium.time.MicroTimestamp")
ZONED = kind("string", "io.debezium.time.ZonedTimestamp")


@pytest.mark.parametrize(
    ("old", "value", "new", "other"),
    [
        (decimal(4), unscaled(123456), decimal(1), unscaled(5)),
        (kind("double"), 1.5, kind("int32"), 2),
        (MICROS, 1718000000000000, ZONED, "2024-06-10T06:13:20Z"),
        (kind("bytes"), "AQID", kind("string"), "010203"),
        (ZONED, "2024-06-10T06:13:20Z", kind("string"), "2024-06-10 06:13:20+00"),
    ],
)
def test_rows_that_the_source_has_converted_are_named(
    tmp_path: Path, old: dict[str, Any], value: object, new: dict[str, Any], other: object
) -> None:
    """The old rows kept values that the column at the source can no longer hold, with every check green."""
    sums = Sums(tmp_path)
    assert [] == sums.batch(("c", 1, old, value), ("c", 2, old, value), ("c", 3, old, None))
    [said] = sums.batch(("u", 2, new, other))
    assert 'such as {"id":"1"}' in said
    assert "1 row from before" in said
    assert [] == sums.batch(("u", 1, new, other), ("c", 4, new, other))


@pytest.mark.parametrize(
    ("old", "value", "new", "other"),
    [
        (decimal(4), unscaled(1230000), decimal(1), unscaled(5)),  # 123.0000
        (kind("int32"), 5, kind("string"), "x5"),
        (MICROS, 1718000000000000, kind("string"), "soon"),
        (
            kind("int64"),
            70000,
            kind("int16"),
            5,
        ),  # the source would have refused it: the types are not the column's
        (kind("string"), "1.50", decimal(2), unscaled(5)),  # a setting of the connector
    ],
)
def test_values_of_both_types_are_no_complaint(
    tmp_path: Path, old: dict[str, Any], value: object, new: dict[str, Any], other: object
) -> None:
    """Their conversion has changed nothing, whatever it was."""
    sums = Sums(tmp_path)
    assert [] == sums.batch(("c", 1, old, value))
    assert [] == sums.batch(("c", 2, new, other))


def test_two_types_in_turn_are_no_conversion(tmp_path: Path) -> None:
    """Two producers of one topic may describe a column otherwise."""
    sums = Sums(tmp_path)
    old, new = (decimal(4), unscaled(123456)), (decimal(1), unscaled(5))
    assert [] == sums.batch(("c", 1, *old), ("c", 2, *new), ("c", 3, *old), ("c", 4, *new))
