"""Files of rows that a snapshot read: landed, decoded and folded like the messages of the stream."""

from __future__ import annotations

from pathlib import Path

from ingest.tables.snapshots import folder
from tests.lakes import Depot


def test_files_of_rows_are_read_next_to_the_sources_own(tmp_path: Path) -> None:
    """The source's own file would be taken for one that vanished from the snapshots, or the rows never be read."""
    from ingest.bronze import files
    from ingest.bronze.receipts import FileState

    depot = Depot(tmp_path)
    depot.grow()
    pipeline = depot.pipeline
    [source] = pipeline.sources
    assert [source] == files.parts(pipeline, source)
    here = folder(pipeline, "bins") / "depot.bins-1"
    here.mkdir(parents=True)
    (here / "plan.json").write_text("{}", "utf-8")
    (here / ".chunk-2.part").write_text("half", "utf-8")
    (here / "chunk-1.ingest-snapshot.jsonl").write_text("{}\n", "utf-8")
    own, read = files.parts(pipeline, source)
    assert (own, read.name, read.kind) == (source, "bins", "files")
    half_read = {str(depot.feed): FileState(position=1, size=9)}
    plan = files.plan(read, 0, files.known_of(read, half_read), 2)
    assert [str(here / "chunk-1.ingest-snapshot.jsonl")] == [one.file for one in plan.ranges]
    assert () == plan.alarms
    assert [str(depot.feed)] == list(files.known_of(own, half_read))
