"""plan over a topic: offsets of every partition, tables from a sample, and nothing written."""

from __future__ import annotations

import uuid

import pytest

from ingest.bronze import kafka as java
from ingest.bronze import native_broker
from ingest.bronze.kafka_settings import why_java
from ingest.config import load
from ingest.config.model import Source
from ingest.operate import dry_run
from ingest.run import run
from tests.e2e.topics import Sent
from tests.lakes import FORMAT, change


@pytest.fixture
def file(tmp_path, broker, topics):
    """A pipeline of one topic of two partitions."""
    name = topics.make(f"depot-{uuid.uuid4().hex[:8]}", 2)
    path = tmp_path / "depot.yaml"
    path.write_text(
        f"pipeline: depot\nlake: ./lake\nengine: auto\nsources:\n"
        f"  - {{name: bins, kind: kafka, format: {FORMAT}, bootstrap_servers: '{broker.address}', topics: [{name}]}}\n"
    )
    return path


def test_both_clients_say_the_same(spark, broker, topics):
    """Another id of a topic is a gap, and another end a batch that waits for an open transaction."""
    name, empty = (topics.make(f"depot-{uuid.uuid4().hex[:8]}", 3) for _ in range(2))
    topics.send(name, [Sent(b"%d" % n, partition=n % 2) for n in range(7)])
    topics.trim(name, 0, 2)
    for settings in ({}, {"isolation.level": "read_uncommitted"}):
        named = {"kind": "kafka", "format": FORMAT, "bootstrap_servers": broker.address, "kafka": settings}
        for wanted in ({"topics": (name, empty, "never-made")}, {"topic_pattern": f"{name[:9]}.*"}):
            source = Source("bins", **named, **wanted)
            assert "" == why_java(source)
            with java.connected(spark, source) as expected, native_broker.connected(source) as found:
                assert (expected.id, expected.topics) == (found.id, found.topics)
                assert (expected.begins, expected.ends) == (found.begins, found.ends)
                for moment in (0, 1_714_521_600_000, 4_102_444_800_000):
                    assert expected.since(moment) == found.since(moment)


def test_a_plan_without_java(file, topics):
    """Nothing is started: the same offsets, sample and tables as by Spark."""
    pipeline = load(file)
    (name,) = pipeline.sources[0].topics
    lines = [change("INSERT", "bins", n, {"id": str(n), "word": "x"}) for n in range(3)]
    topics.send(name, [Sent(line.encode(), partition=1) for line in lines])
    assert "" == dry_run.why_spark(pipeline)
    found = dry_run.foresee(pipeline, None, 2)
    (source,) = found["sources"]
    assert [(name, 0, 0, 0), (name, 1, 0, 3)] == [
        (one["topic"], one["partition"], one["start"], one["end"]) for one in source["reads"]
    ]
    assert (3, 2, 1) == (source["messages"], source["sampled"], found["next_batch"])
    assert [("depot.bins", "create", 2)] == [
        (one["table"], one["action"], one["changes"]) for one in found["tables"]
    ]


def test_a_plan_after_a_run_without_java(spark, file, topics):
    """The receipts of a run by Spark's client, topic ids included, are those that the other client asks about."""
    pipeline = load(file)
    (name,) = pipeline.sources[0].topics
    topics.send(name, [Sent(change("INSERT", "bins", 1, {"id": "1"}).encode())])
    run(spark, pipeline)
    assert (None, []) == (
        dry_run.foresee(pipeline, None, 2)["next_batch"],
        dry_run.foresee(pipeline, None, 2)["problems"],
    )
    topics.send(name, [Sent(change("INSERT", "bins", 2, {"id": "2"}).encode())])
    found = dry_run.foresee(pipeline, None, 2)
    assert (2, 1, []) == (found["next_batch"], found["sources"][0]["messages"], found["problems"])
    assert ["fold"] == [one["action"] for one in found["tables"]]


def test_offsets_and_tables(spark, file, topics):
    """The plan of a topic's first read must say from where to where."""
    pipeline = load(file)
    (name,) = pipeline.sources[0].topics
    assert None is dry_run.foresee(pipeline, spark, 2)["next_batch"]  # an empty topic gives no batch
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
