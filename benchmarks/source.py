"""Reading a live source: a MariaDB on this machine, its table read whole, landed, compared, damaged and compared again.

    python -m benchmarks.source                    # 5,000,000 rows, 1,000 planted differences
    python -m benchmarks.source --made             # the mirror is written by DuckDB, not landed: minutes less
    python -m benchmarks.source --rows 500000 --repair
    python -m benchmarks.source --no-key           # a table without a key, compared where it is equal

Each step is the verb that a user would type, as a process of its own.  Once the mirror is made of the rows that
`ingest snapshot` read, differences of seven kinds are written into the source, whose stream is silent: the comparison
must list each, with the columns that differ, and nothing else.  Prints seconds, processor seconds of the verb's
processes and of the database, and how much of the table left the database; exit code 1 if anything is found wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.loop import ROOT
from ingest.change import TableId
from tests.e2e.databases import PASSWORD, USER, MariaDB
from tests.source import made
from tests.timing import seconds_of_children

TABLE = "garden.rows"
_COLUMNS = {  # MySQL's type, logical type, and MySQL's and DuckDB's SQL for row n; keys are even: others fit between
    "id": ("bigint", "int64", "2 * n", "2 * n"),
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
_KINDS = {  # what is done to the row of a key in the source, how the mirror's row is wrong then, and in which columns
    "missing": ("INSERT INTO {table} SELECT {key} + 1, {rest} FROM {table} WHERE id = {key}", "missing", ()),
    "surplus": ("DELETE FROM {table} WHERE id = {key}", "surplus", ()),
    "cell": ("UPDATE {table} SET `count` = `count` + 1 WHERE id = {key}", "different", ("count",)),
    "NULL": ("UPDATE {table} SET born = NULL WHERE id = {key}", "different", ("born",)),
    "digit": ("UPDATE {table} SET price = price + 0.01 WHERE id = {key}", "different", ("price",)),
    "blank": ("UPDATE {table} SET name = CONCAT(name, ' ') WHERE id = {key}", "different", ("name",)),
    "letter": ("UPDATE {table} SET note = REPLACE(note, 'ä', 'Ä') WHERE id = {key}", "different", ("note",)),
}
_TYPES = {name: one[1] for name, one in _COLUMNS.items()}
Found = dict[int, tuple[str, tuple[str, ...]]]


@dataclass(slots=True)
class Bench:
    """A database, a pipeline over it, and what each step cost."""

    node: MariaDB
    file: Path
    lines: list[tuple[str, ...]]

    def step(self, name: str, code: int, rows: int, verb: str, *more: str) -> Any:
        """Type a verb, note its figures, and return what it prints."""
        words = [sys.executable, "-m", "ingest", verb, str(self.file), *more, "--output", "json"]
        began, own, server, sent = time.monotonic(), seconds_of_children(), self._server(), self._sent()
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        if done.returncode != code:
            raise SystemExit(
                f"{name}: exit code {done.returncode}, not {code}\n{(done.stdout + done.stderr)[-3000:]}"
            )
        self.lines.append(
            (name, f"{seconds:.1f}", f"{seconds_of_children() - own:.1f}", f"{self._server() - server:.1f}",
             f"{rows / seconds:,.0f}", f"{(self._sent() - sent) / 1e6:,.1f}", f"{os.getloadavg()[0]:.1f}")
        )  # fmt: skip
        print("  ".join(f"{text:>14}" for text in self.lines[-1]), flush=True)
        return json.loads(done.stdout)

    def execute(self, statements: Sequence[str]) -> None:
        """Statements in the source, as one transaction."""
        connection = self.node.connect()
        with connection.cursor() as cursor:
            for one in statements:
                cursor.execute(one)
        connection.commit()
        connection.close()

    def _sent(self) -> int:
        """Bytes that have left the database."""
        connection = self.node.connect()
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")
            found = cursor.fetchone()
        connection.close()
        return int(found[1])

    def _server(self) -> float:
        """Seconds of processor time that the database has used."""
        assert self.node.process is not None
        parts = Path(f"/proc/{self.node.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure; 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--planted", type=int, default=1000, help="differences, of seven kinds")
    parser.add_argument("--parallel", type=int, default=2, help="connections")
    parser.add_argument(
        "--made", action="store_true", help="write the mirror by DuckDB, without `ingest run`"
    )
    parser.add_argument("--repair", action="store_true", help="repair them, land that, and compare again")
    parser.add_argument(
        "--no-key", action="store_true", help="a table without a key; nothing is planted, and it is --made"
    )
    given = parser.parse_args()
    if given.made and given.repair:
        parser.error("--repair lands rows, which a mirror that is --made cannot take")
    if given.no_key and given.repair:
        parser.error("--no-key plants nothing, so that there is nothing to repair")
    with tempfile.TemporaryDirectory(prefix="source-") as folder, MariaDB() as node:
        file = Path(folder) / "shop.yaml"
        database = f"{{url: 'mysql://127.0.0.1:{node.port}', user: {USER}, password: {PASSWORD}}}"
        source = f"{{name: shop, path: ./in/*.jsonl, format: dts-canal, database: {database}}}"
        rule = f"tables: [{{match: {TABLE}, no_key: full_row}}]\n" if given.no_key else ""
        file.write_text(
            f"pipeline: shop\nlake: ./lake\nengine: auto\nsources:\n  - {source}\n{rule}", "utf-8"
        )
        (file.parent / "in").mkdir()
        wrong = _measured(Bench(node, file, []), given)
        print("\n".join(wrong) or "nothing is wrong")
        return 1 if wrong else 0


def _measured(bench: Bench, given: argparse.Namespace) -> list[str]:
    """What is wrong with what each step said."""
    rows, planted = given.rows, given.planted
    _fill(bench, rows, "" if given.no_key else ", PRIMARY KEY (id)")
    print(
        "  ".join(
            f"{text:>14}" for text in ("step", "s", "CPU s", "CPU s there", "rows/s", "MB sent", "load")
        )
    )
    wrong = []

    def is_so(what: bool, sentence: str) -> None:
        if not what:
            wrong.append(sentence)

    def compared(name: str, code: int, *more: str) -> dict[str, Any]:
        words = (
            TABLE,
            "--full",
            "--settled",
            "--parallel",
            str(given.parallel),
            "--most",
            str(10 * planted),
            *more,
        )
        found: dict[str, Any] = bench.step(name, code, rows, "reconcile", *words)
        return found

    [read] = bench.step("snapshot", 0, rows, "snapshot", TABLE, "--alone", "--parallel", str(given.parallel))
    is_so(read["rows"] == rows, f"{read['rows']:,} rows were read")
    if given.made or given.no_key:
        keys = [] if given.no_key else ["id"]
        made.mirror(bench.file.parent / "lake", TableId("garden", None, "rows"), _TYPES, keys, _mirror(rows))
    else:
        bench.step("run", 0, rows, "run")
    equal = compared("equal", 0)["tables"][0]
    is_so(equal["rows"] == equal["mirror_rows"] == rows, f"{equal['rows']:,} rows compared")
    if given.no_key:
        return wrong
    moved = [f"{equal['rows_moved'] / rows:.2%}"]
    wanted = _plant(bench, rows, planted)
    found = compared("planted", 1)
    moved.append(f"{found['tables'][0]['rows_moved'] / rows:.2%}")
    wrong += _judged(wanted, found["rows"])
    if given.repair:
        compared("repair", 1, "--repair")
        bench.step("run again", 0, planted, "run")
        compared("equal again", 0)
    sent = {line[0]: float(line[5].replace(",", "")) for line in bench.lines}
    shares = ", ".join(f"{sent[one] / sent['snapshot']:.2%} of the bytes" for one in ("equal", "planted"))
    print(f"rows moved: {' and '.join(moved)}; {shares} (equal, planted)")
    kinds = Counter(" in ".join((said, *columns)) for said, columns in wanted.values())
    print(f"planted: {len(wanted)} ({', '.join(f'{n} {one}' for one, n in kinds.items())})")
    return wrong


def _fill(bench: Bench, rows: int, key: str) -> None:
    declared = ", ".join(f"`{name}` {kind}" for name, (kind, *_) in _COLUMNS.items())
    bench.execute([f"CREATE TABLE {_quoted()} ({declared}{key})"])
    values = ", ".join(one[2] for one in _COLUMNS.values())
    for first in range(0, rows, 100_000):
        last = min(rows, first + 100_000) - 1
        bench.execute(
            [
                f"INSERT INTO {_quoted()} SELECT {values} FROM (SELECT seq AS n FROM seq_{first}_to_{last}) AS s"
            ]
        )


def _mirror(rows: int) -> pa.Table:
    cells = ", ".join(f'{one[3]} AS "{name}"' for name, one in _COLUMNS.items())
    found = duckdb.connect().execute(f"SELECT {cells} FROM (SELECT range AS n FROM range({rows}))")
    return found.to_arrow_table() if hasattr(found, "to_arrow_table") else found.fetch_arrow_table()


def _quoted() -> str:
    return ".".join(f"`{part}`" for part in TABLE.split("."))


def _plant(bench: Bench, rows: int, count: int) -> Found:
    """Differences of each kind, in the source; what a comparison has to say of each."""
    random = Random(7)  # noqa: S311 - no secret
    rest = ", ".join(f"`{name}`" for name in _COLUMNS if name != "id")
    wanted: Found = {}
    statements = []
    for at, number in enumerate(random.sample(range(rows), count)):
        kind = list(_KINDS)[at % len(_KINDS)]
        statement, said, columns = _KINDS[kind]
        statements.append(statement.format(table=_quoted(), key=2 * number, rest=rest))
        wanted[2 * number + (kind == "missing")] = said, columns
    bench.execute(statements)
    return wanted


def _judged(wanted: Found, rows: list[dict[str, Any]]) -> list[str]:
    """What was missed, invented, or described in another way."""
    found = {int(row["key"]["id"]): (str(row["kind"]), tuple(row["cells"])) for row in rows}
    both = found.keys() & wanted.keys()
    wrong = {
        "missed": wanted.keys() - both,
        "invented": found.keys() - both,
        "described wrongly": {key for key in both if wanted[key] != found[key]},
    }
    return [f"{len(keys)} {what}: {sorted(keys)[:5]}" for what, keys in wrong.items() if keys]


if __name__ == "__main__":
    sys.exit(main())
