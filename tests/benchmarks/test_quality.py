"""The benchmark of the checks looks at mirrors that are right."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import quality
from ingest.config import load


@pytest.mark.spark
def test_a_lake_is_checked_without_a_complaint(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time of checks that fail, and name what they find, would be taken for that of others."""
    file = tmp_path / "yard.yaml"
    file.write_text(quality.PIPELINE, "utf-8")
    given = Namespace(mirrors=2, rows=60, touched=20)
    counts = quality.all_checked(spark, load(file), given)
    assert [set(states) for states in counts] == [{"pass"}] * 4
    assert "2 mirrors of 60 rows, 20 changes of each" in capsys.readouterr().out
