"""Deletion vectors as Arrow's way writes them: read back by their specification, and by other engines."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from ingest.tables import commits, delta, vectors
from ingest.tables.commits import NewRows
from ingest.tables.datafiles import Layout, written
from ingest.tables.delta import NO_TABLE
from tests.lakes import duckdb_with_delta

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def name_of(vector: Mapping[str, Any]) -> str:
    """The name of a vector's file, by Delta's protocol, not by the code under test."""
    number = 0
    for at in range(0, 20, 5):
        part = 0
        for sign in vector["pathOrInlineDv"][at : at + 5]:
            part = 85 * part + _Z85.index(sign)
        number = (number << 32) + part
    return f"deletion_vector_{UUID(int=number)}.bin"


def read(folder: Path, vector: Mapping[str, Any]) -> list[int]:
    """A vector's rows, by Delta's protocol and the roaring format, not by the code under test."""
    whole = Path(folder, name_of(vector)).read_bytes()
    assert whole[0] == 1
    at, size = vector["offset"], vector["sizeInBytes"]
    assert size == int.from_bytes(whole[at : at + 4], "big")
    data = whole[at + 4 : at + 4 + size]
    assert zlib.crc32(data) == int.from_bytes(whole[at + 4 + size : at + 8 + size], "big")
    rows = list(_rows(data))
    assert vector["cardinality"] == len(rows)
    return rows


def _rows(data: bytes) -> Iterator[int]:
    magic, bitmaps = struct.unpack_from("<IQ", data)
    assert magic == 1681511377
    at = 12
    for _ in range(bitmaps):
        (top,) = struct.unpack_from("<I", data, at)
        start = at = at + 4
        cookie, containers = struct.unpack_from("<II", data, at)
        assert cookie == 12346
        heads = struct.unpack_from(f"<{2 * containers}H", data, at + 8)
        offsets = struct.unpack_from(f"<{containers}I", data, at + 8 + 4 * containers)
        for head, less, offset in zip(heads[::2], heads[1::2], offsets, strict=True):
            at = start + offset
            if less < 4096:
                lows = struct.unpack_from(f"<{less + 1}H", data, at)
                at += 2 * (less + 1)
            else:
                bits = int.from_bytes(data[at : at + 8192], "little")
                lows = tuple(low for low in range(1 << 16) if bits >> low & 1)
                at += 8192
            yield from ((top << 32) + (head << 16) + low for low in lows)
    assert at == len(data)


@pytest.mark.parametrize(
    "rows",
    [
        [0], [65_535, 65_536], list(range(4096)), list(range(4097)), list(range(1 << 16)), [7, 70_000, 1 << 20, (1 << 32) - 1],
        [1, 1 << 32, (5 << 32) + 3], sorted(Random(1).sample(range(300_000), 90_000)),
    ],
    ids=["first", "edge", "most listed", "bits", "all", "far", "beyond 32 bits", "many"],
)  # fmt: skip
def test_vectors_hold_exactly_their_rows(rows: list[int], tmp_path: Path) -> None:
    """One bit too many is a row that every reader loses."""
    found = vectors.write(str(tmp_path), {"a": np.array(rows), "b": np.array([3])})
    assert rows == read(tmp_path, found["a"])
    assert [3] == read(tmp_path, found["b"])


def made(path: str, *files: Iterable[int]) -> None:
    """A table of one column, with these values in its files."""
    schema = pa.schema([("id", pa.int64())])
    layout = Layout(path, schema, statistics=("id",))
    added = [one for ids in files for one in written(layout, pa.table({"id": pa.array(ids)}, schema))]
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    features = ["deletionVectors"]
    rows = NewRows(
        added,
        schema=json.dumps({"type": "struct", "fields": [field]}),
        meta={
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {"delta.enableDeletionVectors": "true"},
        },
        protocol={
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
        },
    )  # fmt: skip
    assert commits.write(path, NO_TABLE, rows, "{}", "writer", 0)


def test_every_engine_leaves_out_the_rows(tmp_path: Path) -> None:
    """A vector that only its writer understands shows deleted rows to everyone else."""
    path, random = str(tmp_path / "table"), Random(2)
    made(path, range(200_000), range(200_000, 400_000))
    left, gone = set(range(400_000)), dict[str, set[int]]()
    for batch, share in enumerate((0.00002, 0.001, 0.4), 1):
        state = delta.snapshot(path)
        for file in state.files:
            first = pl.read_parquet(Path(path, file.place))["id"].min()
            assert isinstance(first, int)
            more = {row for row in range(200_000) if random.random() < share}
            gone[file.place] = gone.get(file.place, set()) | more
            left -= {first + row for row in more}
        found = vectors.write(path, {name: np.array(sorted(rows)) for name, rows in gone.items()})
        new = NewRows([], marked=gone.keys(), vectors=found)
        assert commits.write(path, state, new, "{}", "writer", batch)
        now = delta.snapshot(path)
        assert len(left) == now.rows
        connection = duckdb_with_delta()
        readers = {
            "delta-rs": pa.table(
                deltalake.QueryBuilder()
                .register("t", deltalake.DeltaTable(path))
                .execute("SELECT id FROM t")
                .read_all()
            )["id"].to_pylist(),
            "polars": pl.scan_delta(path).collect()["id"].to_list(),
            "duckdb": [row[0] for row in connection.sql(f"SELECT id FROM delta_scan('{path}')").fetchall()],
        }
        for engine, ids in readers.items():
            assert sorted(left) == sorted(ids), engine


def test_a_file_without_rows_left_goes(tmp_path: Path) -> None:
    """Readers would open it each time, for nothing."""
    path = str(tmp_path / "table")
    made(path, range(2))
    state = delta.snapshot(path)
    [file] = state.files
    found = vectors.write(path, {file.place: np.array([0, 1])})
    assert commits.write(path, state, NewRows([], marked=[file.place], vectors=found), "{}", "writer", 1)
    assert () == delta.snapshot(path).files
    assert [] == deltalake.DeltaTable(path).file_uris()
