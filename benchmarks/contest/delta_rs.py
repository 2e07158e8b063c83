"""delta-rs and orjson, written the obvious way: the newest change of each key in a dict, then one merge a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.contest.steps import Fold, Script, perform

_ARROW = {
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "DOUBLE": pa.float64(),
}
Rows = dict[Any, tuple[int, bool, dict[str, Any]]]  # key -> sequence, deleted, row


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass over copied tables."""

    def fold(files: list[Path]) -> None:
        newest = _newest(files, list(script.columns))
        for table, columns in script.columns.items():
            if newest[table]:
                _merge(folder / table, _source(newest[table], columns), list(columns))

    yield fold


def _newest(files: list[Path], tables: list[str]) -> dict[str, Rows]:
    found: dict[str, Rows] = {table: {} for table in tables}
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                message = orjson.loads(line)
                rows, sequence = found[message["table"]], message["id"]
                for row in message["data"]:
                    before = rows.get(row["id"])
                    if before is None or before[0] <= sequence:
                        rows[row["id"]] = (sequence, message["type"] == "DELETE", row)
    return found


def _source(rows: Rows, columns: dict[str, str]) -> pa.Table:
    arrays = {
        name: _array([row[name] for _, _, row in rows.values()], kind) for name, kind in columns.items()
    }
    return pa.table({"gone": pa.array([gone for _, gone, _ in rows.values()]), **arrays})


def _array(values: list[Any], kind: str) -> pa.Array:
    texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    if kind.startswith("DECIMAL"):
        precision, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return texts.cast(pa.decimal128(int(precision), int(scale)))
    return texts.cast(_ARROW[kind])


def _merge(path: Path, source: pa.Table, columns: list[str]) -> None:
    values = {name: f"s.{name}" for name in columns}
    merging = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merging = merging.when_matched_delete("s.gone").when_matched_update(values)
    merging.when_not_matched_insert(values, "NOT s.gone").execute()


if __name__ == "__main__":
    perform(opened)
