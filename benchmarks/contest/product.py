"""The product: bronze, silver and gold of one pipeline file, in the session that ``ingest run`` starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contest.steps import Fold, Script, perform
from benchmarks.contest.workload import DATABASE

_STACK = ExitStack()
_PIPELINE = """pipeline: bench
lake: ./lake
engine: {engine}
sources:
  - {{name: orders, kind: files, path: {landing}/*.jsonl, format: dts-canal, settle: 1s}}
tables:
{tables}{more}"""
_LOGICAL = {"BIGINT": "int64", "STRING": "string", "TIMESTAMP_NTZ": "datetime", "DOUBLE": "float64"}


def write_pipeline(folder: Path, script: Script) -> Path:
    """The pipeline file of one pass; the option ``logical`` declares what no type of SQL says."""
    tables = []
    for table, columns in script.columns.items():
        kinds = {name: _LOGICAL.get(kind, kind.lower()) for name, kind in columns.items()}
        kinds |= script.options.get("logical", {}).get(table, {})
        declared = ", ".join(f'{name}: "{kind}"' for name, kind in kinds.items())
        rule = f"columns: {{{declared}}}" if declared else "on_schema_change: evolve"
        tables.append(f"  - {{match: {DATABASE}.{table}, {rule}}}\n")
    file = folder / "bench.yaml"
    text = _PIPELINE.format(
        engine=script.options.get("engine", "spark"),
        landing=script.options["landing"],
        tables="".join(tables),
        more=script.options.get("more", ""),
    )
    file.write_text(text, "utf-8")
    return file


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass over a lake; an idle run first makes it one of ``ingest run --every``."""
    from ingest.cli.spark import session_for
    from ingest.config import load
    from ingest.run import Warm, run

    if cores := script.options.get("cores"):  # Java, which starts later, and Python's workers have no others
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    landing = Path(script.options["landing"])
    pipeline = load(write_pipeline(folder, script))
    spark = getattr(_STACK, "spark", None)
    if spark is None:
        spark = _STACK.spark = _STACK.enter_context(  # type: ignore[attr-defined]
            session_for([pipeline], script.options.get("profile", "tick"))
        )
    warm = Warm()
    stages = script.options.get("stages", ["bronze", "silver", "gold"])
    linked: list[Path] = []

    def fold(files: list[Path]) -> dict[str, Any]:
        for file in files:
            linked.append(landing / file.name)
            os.link(file, linked[-1])
        result = run(spark, pipeline, stages, warm)
        assert not result.failures, result.failures
        return {
            "read": result.read,
            "stages": {name: round(seconds, 2) for name, seconds in result.stages.items()},
            "mirrors": {one.mirror: round(one.seconds, 2) for one in result.mirrors if one.state == "done"},
        }

    try:
        if idle:
            run(spark, pipeline, stages, warm)
        yield fold
    finally:
        for file in linked:
            file.unlink()


if __name__ == "__main__":
    with _STACK:
        perform(opened)
