"""Reading a live source: a MariaDB on this machine, its table read whole, compared with a mirror, and repaired.

``python -m benchmarks.live [--rows 500000] [--planted 1000] [--range-rows 50000]``
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from ingest.change import TableId
from ingest.config import load
from ingest.lake.tables import LakeReader
from ingest.source import reconcile as comparing
from ingest.source.reconcile import ReconcileBounds, Reconciled
from ingest.source.snapshot import snapshot, source_of
from tests.e2e.databases import PASSWORD, USER, MariaDB
from tests.source import made

TABLE = TableId("garden", None, "rows")
_COLUMNS = {
    # column: MySQL's type, logical type, MariaDB's and DuckDB's SQL for row n
    "id": ("bigint", "int64", "n", "n"),
    "count": ("int", "int32", "n % 1000", "(n % 1000)::INTEGER"),
    "price": ("decimal(12,2)", "decimal(12,2)", "n / 100", "(n::DECIMAL(12,0) / 100)::DECIMAL(12,2)"),
    "name": ("varchar(40)", "string", "CONCAT('name of ', n)", "'name of ' || n"),
    "note": ("varchar(80)", "string", "REPEAT('ä note ', 1 + n % 9)", "repeat('ä note ', (1 + n % 9)::INTEGER)"),
    "born": ("date", "date", "'2000-01-01' + INTERVAL n % 9000 DAY", "('2000-01-01'::DATE + (n % 9000)::INTEGER)::DATE"),
    "at": ("datetime(6)", "datetime", "'2020-01-01' + INTERVAL n % 99999 SECOND", "'2020-01-01'::TIMESTAMP + to_seconds(n % 99999)"),
    "size": ("double", "float64", "n / 8e0", "n / 8.0::DOUBLE"),
    "code": ("char(8)", "string", "LEFT(MD5(n), 8)", "left(md5(n::VARCHAR), 8)"),
    "flag": ("tinyint", "int8", "n % 2", "(n % 2)::TINYINT"),
}  # fmt: skip
_KINDS = ("missing", "surplus", "cell", "NULL", "scale", "blank", "letter")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--planted", type=int, default=1000, help="differences, of seven kinds")
    parser.add_argument("--range-rows", type=int, default=50_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, MariaDB() as node:
        _fill(node, given.rows)
        file = Path(folder) / "shop.yaml"
        database = f"{{url: 'mysql://127.0.0.1:{node.port}', user: {USER}, password: {PASSWORD}}}"
        source = f"{{name: shop, path: ./in/*.jsonl, format: dts-canal, database: {database}}}"
        file.write_text(f"pipeline: shop\nlake: ./lake\nsources:\n  - {source}\n", "utf-8")
        _say("rows", rows=given.rows, columns=len(_COLUMNS))
        pipeline = load(file)
        began = time.monotonic()
        done = snapshot(pipeline, source_of(pipeline), str(TABLE), alone=True)
        _say("snapshot", seconds=time.monotonic() - began, rows_per_second=done.rows / done.seconds)
        rows = _mirror(given.rows)
        _write(Path(pipeline.lake), rows)
        limits = ReconcileBounds(range_rows=given.range_rows)
        server = _server(node)
        own = time.process_time()
        equal = _compare(file, limits)
        _say("equal", **_figures(equal), own_cpu=time.process_time() - own, server_cpu=_server(node) - server)
        planted, damaged = _damaged(rows, given.planted)
        _write(Path(pipeline.lake), damaged)
        server, own = _server(node), time.process_time()
        found = _compare(file, limits)
        used = {"own_cpu": time.process_time() - own, "server_cpu": _server(node) - server}
        keys = {int(one.key[0]) for one in found.differences}
        _say("planted", missed=len(planted - keys), invented=len(keys - planted), **_figures(found), **used)


def _fill(node: MariaDB, rows: int) -> None:
    connection = node.connect()
    with connection.cursor() as cursor:
        declared = ", ".join(f"`{name}` {kind[0]}" for name, kind in _COLUMNS.items())
        cursor.execute(f"CREATE TABLE garden.`rows` ({declared}, PRIMARY KEY (id))")
        values = ", ".join(kind[2] for kind in _COLUMNS.values())
        for first in range(0, rows, 100_000):
            last = min(rows, first + 100_000) - 1
            cursor.execute(
                f"INSERT INTO garden.`rows` SELECT {values} FROM (SELECT seq AS n FROM seq_{first}_to_{last}) AS s"
            )
            connection.commit()
    connection.close()


def _mirror(rows: int) -> pa.Table:
    cells = ", ".join(f'{kind[3]} AS "{name}"' for name, kind in _COLUMNS.items())
    found = duckdb.connect().execute(f"SELECT {cells} FROM (SELECT range AS n FROM range({rows}))")
    return found.to_arrow_table() if hasattr(found, "to_arrow_table") else found.fetch_arrow_table()


def _write(lake: Path, rows: pa.Table) -> None:
    made.mirror(lake, TABLE, {name: kind[1] for name, kind in _COLUMNS.items()}, ["id"], rows)


def _damaged(rows: pa.Table, count: int) -> tuple[set[int], pa.Table]:
    """The mirror with differences of each kind, and their keys."""
    random = Random(7)  # noqa: S311 - no secret
    keys = random.sample(range(rows.num_rows), count)
    found = rows.slice(0, 0).to_pylist()
    by_kind = {key: _KINDS[at % len(_KINDS)] for at, key in enumerate(keys)}
    chosen = rows.take(pa.array(keys)).to_pylist()
    planted = set()
    for row in chosen:
        kind = by_kind[row["id"]]
        planted.add(row["id"])
        if kind == "missing":
            continue
        if kind == "surplus":
            found.append(dict(row))
            row["id"] += 10 * rows.num_rows
            planted.add(row["id"])
            planted.discard(row["id"] - 10 * rows.num_rows)
        elif kind == "cell":
            row["count"] += 1
        elif kind == "NULL":
            row["born"] = None
        elif kind == "scale":
            row["price"] += 1
        elif kind == "blank":
            row["name"] += " "
        else:
            row["code"] = row["code"].upper() + "X"
        found.append(row)
    keep = pa.array([True] * rows.num_rows).to_pylist()
    for key in keys:
        keep[key] = False
    return planted, pa.concat_tables([rows.filter(pa.array(keep)), pa.Table.from_pylist(found, rows.schema)])


def _compare(file: Path, limits: ReconcileBounds) -> Reconciled:
    pipeline = load(file)
    return comparing.reconcile(
        LakeReader(pipeline), source_of(pipeline), TABLE, passed=lambda _mirror: None, settled=True, limits=limits
    )  # fmt: skip


def _server(node: MariaDB) -> float:
    """Seconds of processor time that the database has used."""
    assert node.process is not None
    parts = Path(f"/proc/{node.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _figures(done: Reconciled) -> dict[str, Any]:
    return {
        "seconds": done.seconds,
        "rows_per_second": done.rows / done.seconds,
        "moved": f"{done.fetched / done.rows:.2%}",
        "differences": len(done.differences),
    }


def _say(what: str, **figures: Any) -> None:
    shown = {name: round(one, 1) if isinstance(one, float) else one for name, one in figures.items()}
    print(json.dumps({"what": what, "load": round(os.getloadavg()[0], 1), **shown}), flush=True)


if __name__ == "__main__":
    main()
