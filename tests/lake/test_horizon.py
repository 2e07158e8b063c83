"""How far back mirrors can be read that Arrow alone has written, commit after commit; without Spark."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from ingest.config import Pipeline
from ingest.config.model import TableRule
from ingest.ledgers import maintenance
from ingest.run import Warm
from ingest.tables import commits
from ingest.tables.lake import Lake
from tests.gold.depot import Depot
from tests.unstarted import unstarted

DAYS, DAY = 40, 86_400
EDGE, LAST = 7, 13  # the newest version that is older than the horizon, and the newest of all


class Kept(Depot):
    """A depot whose versions are kept for `DAYS`."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return replace(super().pipeline, horizon_days=DAYS)


@pytest.mark.parametrize("plain", [False, True])
def test_versions_are_kept_to_the_edge_of_the_horizon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    """Checkpoints and maintenance drop only versions older than the horizon."""
    monkeypatch.setattr(commits, "_MIRROR_CHECKPOINT", 5)
    spark = unstarted(2)
    depot = Kept(spark, tmp_path, Warm(), TableRule("yard.*", plain_tables=plain))  # type: ignore[arg-type]
    folder = tmp_path / "lake" / "mirrors" / "yard" / "depot"
    log = folder / "_delta_log"

    def age(version: int) -> float:  # in days
        return DAYS + 0.01 + EDGE - version if version <= EDGE else DAYS - 0.01 - version

    for version in range(LAST + 1):
        kind = "UPDATE" if version else "INSERT"
        assert ("done", "") == depot.row(kind, {"n": "?"} if version else None, id="1", n=str(version)).run()
        for file in log.glob(f"{version:020d}*"):
            moment = time.time() - age(version) * DAY
            os.utime(file, (moment, moment))
    assert {5, 10} == {int(one.name[:20]) for one in log.glob("*.checkpoint.parquet")}
    assert list(range(LAST + 1)) == [found(folder, version) for version in range(LAST + 1)]

    maintenance.clean_log(Lake(spark, depot.pipeline), "mirrors/yard/depot")  # type: ignore[arg-type]
    assert not (log / f"{0:020d}.json").exists()
    for version in range(EDGE, LAST + 1):
        assert version == found(folder, version)
    with pytest.raises((DeltaError, OSError)):
        found(folder, 0)
    assert ("done", "") == depot.row("UPDATE", {"n": "?"}, id="1", n="99").run()
    assert (99, LAST) == (found(folder, LAST + 1), found(folder, LAST))


def found(folder: Path, version: int) -> int:
    """The number in the mirror's row as of a version, read by a process that has not seen the table."""
    table = deltalake.DeltaTable(folder, version=version)
    rows = deltalake.QueryBuilder().register("t", table).execute("SELECT n FROM t").read_all()
    [row] = pa.table(rows).to_pylist()
    return int(row["n"])
