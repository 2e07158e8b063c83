"""A table's log read through Spark: the same from every thread, whatever its log consists of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from ingest.tables import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_checkpoint_is_read_in_a_thread_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """Delta reads it with the thread's active session, which a new thread does not have: a mirror failed for that."""
    folder = str(tmp_path / "table")
    deltalake.write_deltalake(
        folder,
        pa.table({"id": pa.array([1], pa.int64())}),
        commit_properties=deltalake.CommitProperties(app_transactions=[deltalake.Transaction("w", 7)]),
    )
    deltalake.DeltaTable(folder).create_checkpoint()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(log.snapshot, spark, folder).result()
    assert (0, {"w": 7}, {"id": "long"}) == (found.version, dict(found.transactions), dict(found.types))
