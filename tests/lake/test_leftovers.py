"""What killed processes leave in a lake: whoever deletes data must know all places that hold it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.config import Pipeline
from ingest.errors import IngestError
from ingest.tables import commits, staging
from ingest.tables.lake import Lake
from tests.unstarted import unstarted


def test_a_killed_rebuild_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    """Its tables would keep erased rows, and take disk space for ever."""
    lake = Lake(
        unstarted(),
        Pipeline("p", tmp_path / "p.yaml", str(tmp_path / "lake"), ()),
    )
    assert 0 == staging.clean(lake)
    for name in (
        "_rebuild/a/mirrors/shop/item/part-1.parquet",
        "_rebuild/b/changes/part-2.parquet",
        "changes/part-3.parquet",
    ):
        (tmp_path / "lake" / name).parent.mkdir(parents=True)
        (tmp_path / "lake" / name).touch()
    assert 2 == staging.clean(lake)
    assert ["part-3.parquet"] == [one.name for one in tmp_path.rglob("*.parquet")]
    assert not (tmp_path / "lake" / "_rebuild").exists()


def test_halves_of_log_entries_are_forgotten_with_old_ones(tmp_path: Path) -> None:
    """They hold the least and the greatest value of each column of the files that they were to add."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    kept = ["00000000000000000002.json", "00000000000000000002.checkpoint.parquet", "_last_checkpoint"]
    gone = [
        "00000000000000000001.json", "00000000000000000001.crc", ".00000000000000000001.json.crc",
        ".4f2c.tmp", "_commit_4f2c.json.tmp", ".00000000000000000003.json.4f2c.tmp",
    ]  # fmt: skip
    for name in [*kept[:1], *gone]:
        (log / name).touch()
    with pytest.raises(IngestError, match="no checkpoint"):
        commits.forget(str(tmp_path), 2)
    assert {one.name for one in log.iterdir()} == {*kept[:1], *gone}
    for name in kept:
        (log / name).touch()
    commits.forget(str(tmp_path), 2)
    assert {one.name for one in log.iterdir()} == {*kept}


def test_rebuilds_at_once_keep_each_others_folder(tmp_path: Path) -> None:
    """A mirror failed because another one, folded again at the same time, had deleted the empty folder of both."""
    lake = Lake(unstarted(), Pipeline("p", tmp_path / "p.yaml", str(tmp_path / "lake"), ()))

    def rebuild(_number: int) -> None:
        with staging.shadow_of(lake, "mirrors") as shadow:
            Path(shadow.path("mirrors/depot/bins")).mkdir(parents=True)

    with ThreadPoolExecutor(8) as pool:
        assert [None] * 4000 == list(pool.map(rebuild, range(4000)))
    assert not Path(lake.path("_rebuild")).exists()
