"""plan over a topic: offsets of every partition, tables from a sample, and nothing written."""

from __future__ import annotations

import uuid

import pytest

from ingest.cli import dry_run
from ingest.config import load
from ingest.run import run
from tests.e2e.topics import Sent
from tests.lakes import FORMAT, change


@pytest.fixture
def file(tmp_path, broker, topics):
    """A pipeline of one topic of two partitions."""
    name = topics.make(f"depot-{uuid.uuid4().hex[:8]}", 2)
    path = tmp_path / "depot.yaml"
    path.write_text(
        f"pipeline: depot\nlake: ./lake\nsources:\n"
        f"  - {{name: bins, kind: kafka, format: {FORMAT}, bootstrap_servers: '{broker.address}', topics: [{name}]}}\n"
    )
    return path


def test_offsets_and_tables(spark, file, topics):
    """Whoever reads a topic for the first time wants to know from where to where."""
    pipeline = load(file)
    (name,) = pipeline.sources[0].topics
    assert None is dry_run.foresee(pipeline, spark, 2)["next_batch"]  # an empty topic is no batch
    lines = [change("INSERT", "bins", n, {"id": str(n), "word": "x"}) for n in range(3)]
    topics.send(name, [Sent(line.encode(), partition=1) for line in lines])
    found = dry_run.foresee(pipeline, spark, 2)
    (source,) = found["sources"]
    assert [(name, 0, 0, 0), (name, 1, 0, 3)] == [
        (one["topic"], one["partition"], one["start"], one["end"]) for one in source["reads"]
    ]
    assert (3, 2, False) == (source["messages"], source["sampled"], found["lake_exists"])
    assert [("depot.bins", "create", 2)] == [
        (one["table"], one["action"], one["changes"]) for one in found["tables"]
    ]
    assert not (file.parent / "lake").exists()
    assert ["depot.bins"] == [one.mirror for one in run(spark, pipeline).mirrors]
    again = dry_run.foresee(pipeline, spark, 2)
    assert (None, 0, []) == (again["next_batch"], again["sources"][0]["messages"], again["tables"])
