"""References to the environment and to files in a pipeline file: when they are resolved, and what is never printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config import load
from ingest.config.masks import Masks
from ingest.errors import ConfigError
from tests.config.pipeline_file import GOOD, KAFKA, loaded, problems, written


def test_references_are_resolved_after_parsing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value from outside could otherwise add keys to the file."""
    monkeypatch.setenv("STOCK_LAKE", "x: [y\nsources: none")
    monkeypatch.delenv("STOCK_NONE", raising=False)
    (tmp_path / "servers").write_text("b1:9092\n", "utf-8")
    text = KAFKA.replace("lake: lake", "lake: s3a://${STOCK_LAKE}/${STOCK_NONE:-d}").replace(
        "[a:9092, b:9092]", "${file:servers}"
    )
    pipeline = loaded(tmp_path, "    topics: $${t}\n    kafka: {x: 5$, y: '$$'}\n", text)
    assert "s3a://x: [y\nsources: none/d" == pipeline.lake
    source = pipeline.sources[0]
    assert ("b1:9092", ("${t}",)) == (source.bootstrap_servers, source.topics)
    assert {"x": "5$", "y": "$$"} == source.kafka


def test_numbers_may_come_from_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are what differs between machines."""
    monkeypatch.setenv("STOCK_MAX", "250")
    assert 250 == loaded(tmp_path, "    max_messages: ${STOCK_MAX}\n").sources[0].max_messages


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "${STOCK_NONE}",
            "2:1 the environment variable STOCK_NONE is not set; set it or write ${STOCK_NONE:-default}",
        ),
        (
            "${file:nope}",
            "2:1 the file {folder}/nope of ${file:...} cannot be read: No such file or directory",
        ),
        (
            "${file:/dev/zero}",
            "2:1 the file /dev/zero of ${file:...} cannot be read: it is not a regular file",
        ),
        ("${a-b}", "2:1 ${a-b} is not a reference; write ${NAME}, ${NAME:-default} or ${file:/path}"),
    ],
)
def test_references_that_lead_nowhere(tmp_path: Path, value: str, expected: str) -> None:
    """An empty lake path would put the lake into the pipeline's folder."""
    found = problems(tmp_path, GOOD.replace("./lake", value))
    assert [expected.replace("{folder}", str(tmp_path))] == found


FULL = """\
pipeline: stock
lake: ./lake
mask_secret: ${STOCK_NONE}
alerts: [{webhook: "${STOCK_NONE}"}, {webhook: "https://hooks.example.com/x"}]
openlineage: {url: "http://marquez:5000", api_key: "${STOCK_NONE}"}
bronze: {seal: {master_key: "${STOCK_NONE}"}}
catalog: {kind: unity, uri: "http://unity:8080", catalog: lake, token: "${STOCK_NONE}"}
spark: {spark.hadoop.fs.s3a.secret.key: "${STOCK_NONE}", spark.ui.enabled: "false"}
sources:
  - name: bins
    format: canal
    bootstrap_servers: ["${STOCK_NONE}"]
    topics: ["${STOCK_NONE}"]
    start: ${STOCK_NONE}
    kafka: {sasl.jaas.config: "${file:nope}", security.protocol: SASL_SSL}
    database: {url: "mysql://db:3306", user: reader, password: "${STOCK_NONE}"}
  - {name: boxes, format: canal, path: "${STOCK_NONE}/*.jsonl", storage: {secret: "${STOCK_NONE}"}}
tables:
  - {match: stock.bins, mask: {phone: hmac}}
"""


def test_what_only_runs_need_is_left_out_for_questions(tmp_path: Path) -> None:
    """The operator who asks for the state of a lake at night does not have the broker's password."""
    file = written(tmp_path, FULL)
    with pytest.raises(ConfigError, match="STOCK_NONE"):
        load(file)
    found = load(file, to_look=True)
    bins, boxes = found.sources
    assert {"security.protocol": "SASL_SSL"} == bins.kafka
    assert (None, "${STOCK_NONE}", ("${STOCK_NONE}",)) == (bins.database, bins.bootstrap_servers, bins.topics)
    assert {} == boxes.storage
    assert ((), None, "", {"spark.ui.enabled": "false"}) == (
        found.alerts,
        found.lineage,
        found.mask_secret,
        found.spark,
    )
    assert found.hides, "sealed and masked data must still not be quoted"
    assert {
        "alerts", "bronze.seal", "catalog", "mask_secret", "openlineage", "sources.0.bootstrap_servers.0", "sources.0.database",
        "sources.0.kafka.sasl.jaas.config", "sources.0.start", "sources.0.topics.0", "sources.1.path",
        "sources.1.storage.secret", "spark.spark.hadoop.fs.s3a.secret.key",
    } == set(found.unresolved)  # fmt: skip
    assert all(text.startswith(f"{file}:") for text in found.unresolved.values())
    with pytest.raises(ConfigError, match="3:1 the environment variable STOCK_NONE is not set"):
        Masks(found).of(TableId("stock", None, "bins"))
    assert Masks(found).of(TableId("stock", None, "boxes")) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lake: ./lake", "lake: ${STOCK_NONE}"),
        ("pipeline: stock", "pipeline: ${STOCK_NONE}"),
        ("match: stock.bins", "match: '${STOCK_NONE}'"),
        ("lake: ./lake", "lake: s3a://stock/lake"),
        ("format: canal, path", "format: '${STOCK_NONE}', path"),
        ("mask_secret: ${STOCK_NONE}", ""),
        ("mask_secret: ${STOCK_NONE}", "mask_secret: short"),
        ('[{webhook: "${STOCK_NONE}"}', '[{webhook: "${not a name}"}'),
    ],
)
def test_what_questions_need_is_needed_for_them(tmp_path: Path, old: str, new: str) -> None:
    """Without the lake's own keys an answer would be about another lake, or wrong."""
    assert old in FULL
    with pytest.raises(ConfigError):
        load(written(tmp_path, FULL.replace(old, new)), to_look=True)


def test_faults_of_references_do_not_print_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret put into the wrong key would reach a log."""
    monkeypatch.setenv("STOCK_SECRET", "hunter2")
    found = problems(tmp_path, GOOD + "    settle: ${STOCK_SECRET}\n    storage: {password: [hunter2]}\n")
    assert not [text for text in found if "hunter2" in text]
    assert "8:5 ${STOCK_SECRET} does not resolve to a usable value of settle" == found[0]
