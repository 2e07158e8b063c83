"""What `import ingest` offers: the examples of docs/python.md, and that importing it starts nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ingest
from tests.lakes import ROOT, example
from tests.operate.test_alerts import Hook, hook  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_without_spark_run() -> None:
    """The first thing that a reader pastes must work."""
    exec(EXAMPLES[0], {})


@pytest.mark.spark
def test_the_pipeline_example_runs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hook: Hook,  # noqa: F811 - the fixture
) -> None:
    """A notebook's session is used and not stopped."""
    file = example("dts-canal", tmp_path)
    file.rename(file.with_name("shop.yaml"))
    monkeypatch.chdir(file.parent)
    exec(EXAMPLES[1], {})
    assert "29 29" == capsys.readouterr().out.split("\n")[-2]
    assert 1 == spark.range(1).count()
    with file.with_name("shop.yaml").open("a", encoding="utf-8") as text:
        text.write(f"alerts: [{{webhook: {hook.url!r}, severity: warn}}]\n")
    exec(EXAMPLES[2], {})
    (body,) = hook.bodies
    causes = {one["cause"] for one in body["alerts"]}
    assert causes == {
        line.split(" ", 1)[1].rsplit(" ", 1)[0] for line in capsys.readouterr().out.splitlines()
    }
    pipeline = ingest.load("shop.yaml")
    assert [] == ingest.send_alerts(pipeline, spark, ingest.LockedError("another run is under way"))
    assert [] == ingest.send_alerts(pipeline, spark)
    assert 1 == len(hook.bodies)  # nothing is sent twice
    hook.status = 500
    (text,) = ingest.send_alerts(pipeline, spark, RuntimeError("the disk is full"))
    assert "no alert was sent to webhook of 127.0.0.1" in text
    hook.status = 200
    assert [] == ingest.send_alerts(pipeline, spark, RuntimeError("the disk is full"))
    assert ["RuntimeError: the disk is full"] == [one["text"] for one in hook.bodies[1]["alerts"]]
    with pytest.raises(ingest.IngestError, match=r"no table shop[.]nothing"):
        ingest.read(ingest.load("shop.yaml"), spark, "shop.nothing")


def test_every_name_is_documented_and_there() -> None:
    """A name that the page lacks is not found; one that the package lacks is an error at night."""
    for name in ingest.__all__:
        assert getattr(ingest, name)
        assert f"`{name}" in PAGE, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ingest.nothing  # noqa: B018


def test_importing_starts_nothing() -> None:
    """`import ingest` in a program that only decodes must not bring Spark."""
    code = "import sys, ingest; ingest.decode; print([m for m in ('pyspark', 'pyarrow', 'pydantic') if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "[]" == found.stdout.strip()
