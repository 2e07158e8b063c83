"""OpenLineage events of real runs, as a service on loopback takes them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ingest.config import Pipeline, Source, load
from ingest.errors import IngestError
from ingest.result import Result
from ingest.run import run
from ingest.tables import lineage
from tests.lakes import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
pytest.importorskip("openlineage.client", reason="pip install -e '.[e2e]' brings the OpenLineage client")
DEAD = "http://127.0.0.1:9"


class Service(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    taken: ClassVar[list[tuple[str, str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        self.taken.append((self.path, self.headers.get("Authorization", ""), body))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        """Log nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    """The URL of a running service."""
    Service.taken.clear()
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def _valid(event: dict[str, Any]) -> bool:
    """What the specification of a run event requires, and nothing that JSON cannot hold."""
    datasets = [*event["inputs"], *event["outputs"]]
    facets = [
        facet
        for one in [event["run"], event["job"], *datasets]
        for facet in (one.get("facets") or {}).values()
    ]
    return (
        datetime.fromisoformat(event["eventTime"]).tzinfo is not None
        and str(uuid.UUID(event["run"]["runId"])) == event["run"]["runId"]
        and event["schemaURL"].startswith("https://openlineage.io/spec/")
        and bool(event["producer"])
        and all(one["namespace"] and one["name"] for one in [event["job"], *datasets])
        and all({"_producer", "_schemaURL"} <= facet.keys() for facet in facets)
    )


def _names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("/data/lake/bins", "file", "/data/lake/bins"),
        ("s3a://bucket/lake/bins", "s3://bucket", "lake/bins"),
        ("s3://bucket/in/*.jsonl", "s3://bucket", "in/*.jsonl"),
        ("hdfs://node:8020/lake/bins", "hdfs://node:8020", "/lake/bins"),
    ],
)
def test_places_are_named_as_others_name_them(path: str, namespace: str, name: str) -> None:
    """Under another name the same table would be in the graph twice, with nothing between."""
    assert (namespace, name) == lineage.place(path)


def test_topics_are_inputs_by_name(tmp_path: Path) -> None:
    """A pattern names no topic: those that were read are inputs, and the named ones even when silent."""
    servers = {"bootstrap_servers": "one:9092,two:9092", "format": "canal", "kind": "kafka"}
    sources = (Source("a", topics=("x", "y"), **servers), Source("b", topic_pattern="z.*", **servers))
    pipeline = Pipeline("p", tmp_path / "p.yaml", "/lake", sources)
    read = {("a", "x"): 3, ("b", "z1"): 4}
    inputs = [
        (one.namespace, one.name, [facet.rowCount for facet in one.inputFacets.values()])
        for one in lineage._inputs(pipeline, read)
    ]
    place = "kafka://one:9092"
    assert [(place, "x", [3]), (place, "y", []), (place, "z1", [4])] == inputs


def test_a_run_reports_what_it_read_and_wrote(spark: SparkSession, service: str, tmp_path: Path) -> None:
    """A lineage graph with wrong names, columns or counts is worse than none."""
    depot = Depot(tmp_path, f"openlineage: {{url: '{service}', namespace: house, api_key: k-1}}\n")
    depot.grow()
    result = run(spark, depot.pipeline)
    assert [] == [text for text in result.warnings if "openlineage" in text]
    assert {("/api/v1/lineage", "Bearer k-1")} == {taken[:2] for taken in Service.taken}
    started, complete = [event for _, _, event in Service.taken]
    assert ["START", "COMPLETE"] == [started["eventType"], complete["eventType"]]
    assert [True, True] == [_valid(started), _valid(complete)]
    assert ("house", "depot") == (complete["job"]["namespace"], complete["job"]["name"])
    assert uuid.UUID(result.run) == uuid.UUID(complete["run"]["runId"]) == uuid.UUID(started["run"]["runId"])
    assert (
        [("file", str(tmp_path / "bins-*.jsonl"))] == _names(started["inputs"]) == _names(complete["inputs"])
    )
    assert depot.lines == complete["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"]
    lake = tmp_path / "lake/mirrors/depot"
    outputs = {one["name"]: one for one in complete["outputs"]}
    assert {str(lake / "bins"), str(lake / "shelf0")} == outputs.keys()
    bins = outputs[str(lake / "bins")]
    columns = [(each["name"], each["type"]) for each in bins["facets"]["schema"]["fields"]]
    assert [("id", "bigint"), ("word", "string")] == columns
    assert 1 == bins["outputFacets"]["outputStatistics"]["rowCount"]
    assert [("house", "depot.bins")] == _names(bins["facets"]["symlinks"]["identifiers"])


def test_a_run_with_nothing_to_do_tells_nothing(spark: SparkSession, service: str, tmp_path: Path) -> None:
    """A run every half minute would bury the service."""
    depot = Depot(tmp_path, f"openlineage: {{url: '{service}'}}\n")
    depot.grow()
    run(spark, depot.pipeline)
    sent = len(Service.taken)
    run(spark, depot.pipeline)
    assert (2, 2) == (sent, len(Service.taken))


def test_a_run_that_fails_sends_an_event(
    spark: SparkSession, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that broke off would look like one that never ends."""
    depot = Depot(tmp_path, f"openlineage: {{url: '{service}'}}\n")
    depot.grow()

    def broken(*given: Any) -> Result:
        raise IngestError("the sky fell")

    monkeypatch.setattr("ingest.run.decode", broken)
    with pytest.raises(IngestError, match="the sky fell"):
        run(spark, depot.pipeline)
    states = [event["eventType"] for _, _, event in Service.taken]
    assert ["START", "FAIL"] == states
    failed = Service.taken[-1][2]
    assert _valid(failed)
    assert "silver stopped: the sky fell" == failed["run"]["facets"]["errorMessage"]["message"]


def test_a_service_that_is_down_fails_no_run(spark: SparkSession, tmp_path: Path) -> None:
    """Data must not wait for those who want to know about it."""
    depot = Depot(tmp_path, f"openlineage: {{url: '{DEAD}'}}\n")
    depot.grow()
    result = run(spark, depot.pipeline)
    assert (0, 1) == (result.exit_code, len([text for text in result.warnings if "openlineage" in text]))
    assert depot.expected() == depot.found(spark)


def test_events_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Without a service the same events are in a file, one a line, the next run's after them."""
    depot = Depot(tmp_path, "openlineage: {file: ./events.jsonl}\n")
    for _ in range(2):
        depot.grow()
        run(spark, load(depot.file))
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text("utf-8").splitlines()]
    assert ["START", "COMPLETE"] * 2 == [event["eventType"] for event in events]
    assert [True] * 4 == [_valid(event) for event in events]
