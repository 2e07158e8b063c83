"""Rows of a history table, written without Spark."""

from __future__ import annotations

import json

from ingest.config import Pipeline
from ingest.tables import records
from ingest.tables.schemas import CHECKS
from ingest.tables.tables import LakeReader


def test_a_created_table_promises_what_the_pipeline_file_does(tmp_path):
    """`ingest reconcile` may create `checks`, whose old versions a VACUUM would then delete after Delta's seven days."""
    lake = LakeReader(Pipeline("p", tmp_path / "p.yaml", str(tmp_path), (), horizon_days=40))
    records.append(lake, "run", [[None] * len(CHECKS.types)], CHECKS, {})
    log = (tmp_path / "checks" / "_delta_log" / "00000000000000000000.json").read_text()
    [table] = [one["metaData"] for one in map(json.loads, log.splitlines()) if "metaData" in one]
    kept = {name: text for name, text in table["configuration"].items() if "Retention" in name}
    assert {
        "delta.deletedFileRetentionDuration": "interval 40 days",
        "delta.logRetentionDuration": "interval 40 days",
    } == kept
