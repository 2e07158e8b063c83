"""The ground of a contest: the message files, the start of every contestant, copies of it, and who was right.

Every pass of a contestant begins on its own copy of the same tables.  Data files never change, so they are linked; logs
are copied.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contest import duck
from benchmarks.contest.measure import ROOT, Between, Step, contest, nothing
from benchmarks.contest.steps import Script
from benchmarks.contest.workload import COLUMNS, DATABASE, Table

KINDS = {"duck": "parquet"}
PART = 20_000  # messages of a base file
FILE = 100_000  # messages of a stream's file, as landings have them
Steps = list[tuple[str, list[str]]]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A contestant: a module, the tables that it starts with, its options."""

    name: str
    module: str
    start: str  # lake | plain | vectors | auto_cdc | duckdb
    options: dict[str, Any] = field(default_factory=dict)


def every(product: Contestant) -> Contestant:
    """The product as `ingest run --every` starts it, where ``ingest run`` is how it starts else."""
    return replace(product, options=product.options | {"profile": "batch"})


PRODUCT = Contestant("product", "product", "lake")
LOOP = every(PRODUCT)
AUTO = Contestant("product, engine auto", "product", "lake", {"engine": "auto"})
RECIPE = Contestant("recipe, defaults", "recipe", "plain")
TUNED = Contestant("recipe, tuned", "recipe", "vectors", {"settings": "spark.sql.shuffle.partitions=2"})
DELTA_RS = Contestant("delta-rs + orjson", "delta_rs", "plain")
DUCKDB = Contestant("DuckDB, native", "duck", "duckdb")
AUTO_CDC = Contestant(
    "Spark's AUTO CDC, gate off",
    "auto_cdc",
    "auto_cdc",
    {"settings": "spark.sql.shuffle.partitions=2 spark.databricks.delta.snapshotPartitions=1"},
)
AUTO_LOOP = every(AUTO)
ALL = (PRODUCT, AUTO, RECIPE, TUNED, AUTO_CDC, DELTA_RS, DUCKDB)


@dataclass(slots=True)
class Verdict:
    """What the tables of one contestant's pass hold: right, or what is wrong."""

    wrong: dict[str, int] = field(default_factory=dict)
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"failed: {self.error}"
        if not self.wrong:
            return "equal"
        return "WRONG: " + ", ".join(f"{count:,} {what}" for what, count in self.wrong.items())


class Feed(Protocol):
    """What sends a base load, and says what the tables must hold."""

    tables: list[Table]

    def base(self) -> Iterator[str]: ...
    def expected(self) -> dict[str, pa.Table]: ...


class Ground:
    """One workload in a folder: its files, its starts, and the claims to be compared."""

    def __init__(
        self,
        folder: Path,
        workload: Feed,
        columns: dict[str, dict[str, str]] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.workload = workload
        self.columns = columns or {table.name: COLUMNS for table in workload.tables}
        self.options = {"landing": str(folder / "landing"), **(options or {})}
        self.landing = folder / "landing"
        self.claims: list[dict[str, str]] = []
        for name in ("landing", "files", "start", "expected", "passes", "logs"):
            (folder / name).mkdir(parents=True)

    # --- what is made before anything is measured ---

    def prepare(self, peers: tuple[Contestant, ...] = ALL) -> Step:
        """Make the base load and every contestant's start; gives what the product's own base load cost."""
        self._write_base()
        self.expect("base", self.workload)
        starts = {one.start for one in peers}
        if "duckdb" in starts:
            self._duckdb()
        self._delta(starts)
        step = self.load()
        self._claim("product, base load", PRODUCT, self.folder / "start" / "lake", "base")
        return step

    def load(self) -> Step:
        """The product's start, of what lies in `landing`."""
        base = self.folder / "start" / "lake"
        base.mkdir()
        script = Script([{"folder": str(base), "steps": [("base", [])]}], self.columns, self.options)
        return contest("product", script, self.folder / "logs" / "base.log")[0]

    def _write_base(self) -> None:
        for number, lines in enumerate(_cut(self.workload.base(), PART), 1):
            self._write(self.landing / f"base-{number}.jsonl", lines)

    def _write(self, path: Path, lines: list[str]) -> None:
        path.write_text("".join(lines), "utf-8")
        still = time.time() - 3600
        os.utime(path, (still, still))

    def batch(self, name: str, lines: list[str]) -> str:
        """A message file."""
        path = self.folder / "files" / f"{name}.jsonl"
        self._write(path, lines)
        return str(path)

    def stream(self, name: str, lines: Iterable[str]) -> list[str]:
        """Message files of `FILE` messages each, written as the messages come."""
        return [self.batch(f"{name}-{number:04d}", part) for number, part in enumerate(_cut(lines, FILE), 1)]

    def forget(self, files: Iterable[str]) -> None:
        """Delete message files, once every contestant has read them: the next ones need the space."""
        for file in files:
            Path(file).unlink()

    def expect(self, moment: str, workload: Feed) -> None:
        """Keep what the tables must hold now under a name."""
        folder = self.folder / "expected" / moment
        folder.mkdir()
        for name, table in workload.expected().items():
            pq.write_table(table, folder / f"{name}.parquet")

    def _duckdb(self) -> None:
        (self.folder / "start" / "duckdb").mkdir()
        with duckdb.connect(str(self.folder / "start" / "duckdb" / duck.NAME)) as connection:
            for name in self.columns:
                file = self.folder / "expected" / "base" / f"{name}.parquet"
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{file}'")

    def prepare_auto_cdc(self) -> None:
        """Its tables carry a column and states of its own, so it loads them itself, as the product does.

        Raises:
            Failed: its base load ended early.
        """
        folder = self.folder / "start" / AUTO_CDC.start
        folder.mkdir()
        files = [str(file) for file in sorted(self.landing.glob("base-*.jsonl"))]
        steps = [("base", files)]
        script = Script([{"folder": str(folder), "steps": steps}], self.columns, AUTO_CDC.options)
        contest(AUTO_CDC.module, script, self.folder / "logs" / "auto_cdc_base.log")
        shutil.rmtree(folder / "landing")

    def _delta(self, starts: set[str]) -> None:
        properties = {"plain": {}, "vectors": {"delta.enableDeletionVectors": "true"}}
        job = [
            {
                "source": str(self.folder / "expected" / "base" / f"{name}.parquet"),
                "target": str(self.folder / "start" / kind / name),
                "properties": properties[kind],
            }
            for kind in sorted(starts & properties.keys())
            for name in self.columns
        ]
        if job:
            self._tables("write", job)

    def _tables(self, what: str, job: list[dict[str, Any]]) -> list[dict[str, Any]]:
        file = self.folder / f"{what}.json"
        file.write_text(json.dumps(job), "utf-8")
        command = [sys.executable, "-m", "benchmarks.contest.tables", what, str(file)]
        with (self.folder / "logs" / f"{what}.log").open("w") as errors:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=errors, check=True, text=True, cwd=ROOT
            )
        return [json.loads(line) for line in done.stdout.splitlines()]

    # --- measured ---

    def place(self, label: str, number: int = 0) -> Path:
        """Where the tables of one pass lie."""
        name = re.sub(
            r"[^\w-]", "", f"{label} {number}".replace(" ", "_")
        )  # a quote would be another in a URI
        return self.folder / "passes" / name

    def run(
        self,
        one: Contestant,
        label: str,
        passes: list[tuple[Steps, str]],
        between: Between = nothing,
        options: list[dict[str, Any]] | None = None,
    ) -> list[Step]:
        """One process of a contestant: its passes, each with its steps and the moment that it must end in.

        Of a pass whose moment has no name nothing is claimed: the caller compares.  A pass may have options of its own.
        """
        described = []
        for number, (steps, moment) in enumerate(passes):
            folder = self.place(label, number)
            start(self.folder / "start" / one.start, folder)
            own = options[number] if options else {}
            described.append({"folder": str(folder), "idle": bool(number), "steps": steps, "options": own})
            if moment:
                self._claim(f"{label}|{number}", one, folder, moment)
        script = Script(described, self.columns, self.options | one.options)
        log = self.folder / "logs" / f"{label.replace(' ', '_')}.log"
        return contest(one.module, script, log, between)

    def run_apart(self, file: str, parts: list[tuple[str, list[str], list[str]]], moment: str) -> list[Step]:
        """Stages of the product one by one, each with its name and new files, on one lake, in a session that a run has warmed."""
        folders = [self.place(f"product apart {number}") for number in range(2)]
        for folder in folders:
            start(self.folder / "start" / PRODUCT.start, folder)
        self._claim("product apart|1", PRODUCT, folders[1], moment)
        passes: list[dict[str, Any]] = [{"folder": str(folders[0]), "steps": [("cold", [file])]}]
        for name, files, stages in parts:
            passes.append(
                {"folder": str(folders[1]), "steps": [(name, files)], "options": {"stages": stages}}
            )
        script = Script(passes, self.columns, self.options | LOOP.options)
        return contest(PRODUCT.module, script, self.folder / "logs" / "apart.log")[1:]

    def run_cells(self, one: Contestant, files: dict[str, str]) -> dict[str, Path]:
        """Each table's file in a pass of its own, so that what one refuses does not end the others; where they lie."""
        passes, places = [], {}
        names = [list(files)] if one is PRODUCT else [[name] for name in files]
        for number, tables in enumerate(names):
            folder = self.folder / "passes" / f"{one.name} cell {number}"
            start(self.folder / "start" / one.start, folder)
            columns = {name: self.columns[name] for name in tables}
            steps = [("cells", [files[name] for name in tables])]
            passes.append({"folder": str(folder), "steps": steps, "columns": columns})
            places.update(dict.fromkeys(tables, folder))
        script = Script(passes, self.columns, self.options | one.options, forgiving=one is not PRODUCT)
        contest(one.module, script, self.folder / "logs" / f"{one.name} cells.log")
        return places

    def read_cells(self, one: Contestant, places: dict[str, Path]) -> dict[str, dict[str, str | None]]:
        """By table, the text of the cell that the file put there, or of its reject."""
        job = [
            {"label": name, "kind": KINDS.get(one.module, "delta"), "path": str(folder / self._place(one, name)),
             "rejects": str(folder / "lake" / "rejects") if one is PRODUCT else ""}
            for name, folder in places.items()
        ]  # fmt: skip
        return {line.pop("label"): line for line in self._tables("cells", job)}

    def _place(self, one: Contestant, table: str) -> str:
        return {"product": f"lake/mirrors/{DATABASE}/{table}", "duck": f"{table}.parquet"}.get(
            one.module, table
        )

    def _claim(self, label: str, one: Contestant, folder: Path, moment: str) -> None:
        for name in self.columns:
            self.claims.append(
                {
                    "label": label,
                    "kind": KINDS.get(one.module, "delta"),
                    "path": str(folder / self._place(one, name)),
                    "expected": str(self.folder / "expected" / moment / f"{name}.parquet"),
                }
            )

    def clear(self) -> None:
        """Forget what a section left that was ended before its verdicts."""
        self.claims.clear()
        for folder in (self.folder / "passes").iterdir():
            shutil.rmtree(folder)

    def verdicts(self) -> dict[str, Verdict]:
        """Verdicts since the last call, by label; the passes of a process are one claim.  Deletes their folders."""
        found: dict[str, Verdict] = {}
        claims, self.claims = self.claims, []
        for line in self._tables("compare", claims):
            verdict = found.setdefault(line["label"].partition("|")[0], Verdict())
            verdict.error = verdict.error or line["error"]
            for what, count in line["wrong"].items():
                verdict.wrong[what] = verdict.wrong.get(what, 0) + count
        shutil.rmtree(self.folder / "passes")
        (self.folder / "passes").mkdir()
        return found


def _cut(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of so many lines each, the last one of what is left."""
    rest = iter(lines)
    while part := list(islice(rest, size)):
        yield part


def start(tables: Path, folder: Path) -> None:
    """A copy of tables, in which data files are links."""

    def take(source: str, target: str) -> str:
        if source.endswith(".parquet") and "_delta_log" not in source:
            os.link(source, target)
        else:
            shutil.copy2(source, target)
        return target

    shutil.copytree(tables, folder, copy_function=take)
