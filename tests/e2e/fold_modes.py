"""The same batches into several lakes, in one session, each batch folded another way: by tasks, by Spark, by this process.

``python -m tests.e2e.fold_modes FILE...`` takes pipeline files, each in the folder of its messages, and prints as JSON for each lake and
batch the mirrors' states and ways, and at the end their rows.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingest.cli.spark import session_for
from ingest.config import load
from ingest.run import run
from ingest.tables.tables import LakeReader
from tests.e2e.message_batches import TABLES, history

BY_TASKS = (True, False, True, False, False)  # else by this process
WAYS = ("files", "auto", "merge", "merge", "files")


def main(files: list[str]) -> None:
    """Run all batches."""
    pipelines = [load(file) for file in files]
    found: dict[str, Any] = {}
    with session_for(pipelines[:1]) as spark:
        for batch, (tasks, way) in enumerate(zip(BY_TASKS, WAYS, strict=True), 1):
            for pipeline in pipelines:
                Path(pipeline.file).with_name(f"f{batch}.jsonl").write_text(history(7, batch), "utf-8")
                result = run(
                    spark,
                    replace(pipeline, engine="spark" if tasks else "auto", apply=way),
                    ("bronze", "silver", "gold"),
                )
                said = [[one.mirror, one.state, bool(one.why_merge)] for one in result.mirrors]
                found.setdefault(pipeline.lake, []).append([result.failures, sorted(said)])
    for pipeline in pipelines:
        query = "SELECT * FROM {mirror} AS m ORDER BY id"
        rows = {one: LakeReader(pipeline).ask_mirror(f"mirrors/depot/{one}", query) for one in TABLES}
        found[pipeline.lake].append(rows)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
