"""A Spark session that must not start."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from ingest.spark.deferred import Deferred

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def unstarted(cores: int = 1) -> SparkSession:
    """A session for what needs none: if something starts it, the test fails."""
    return cast("SparkSession", Deferred(_fail, f"local[{cores}]"))


def _fail() -> SparkSession:
    pytest.fail("Spark was started")
