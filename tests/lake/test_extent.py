"""What a table's newest commit says that it holds: the same as the whole log, and nothing where another writer was last."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from ingest.tables import commits, delta, vectors
from ingest.tables.commits import NewRows
from ingest.tables.datafiles import Layout, written
from ingest.tables.delta import Extent
from tests.lake.test_vectors import made


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has read no log."""
    monkeypatch.setattr(delta, "_last", {})


def extent(path: str, monkeypatch: pytest.MonkeyPatch) -> Extent:
    """As a process sees it that has just begun; not more than the newest entry of the log may be read."""
    with monkeypatch.context() as patch:
        patch.setattr(delta, "_last", {})
        patch.setattr(delta, "_checkpoint", None)
        return delta.extent(path, "writer")


def rows_of(path: str) -> int:
    """How many rows delta-rs reads."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    return len(pa.table(query.execute("SELECT id FROM t").read_all()))


def without(path: str, *gone: int) -> NewRows:
    """A commit that marks rows of the table's first file."""
    files = [file.place for file in delta.snapshot(path).files]
    return NewRows([], marked=files, vectors=vectors.write(path, {files[0]: np.array(gone)}))


def with_rows(path: str, *ids: int) -> NewRows:
    """A commit whose rows replace all others."""
    schema = pa.schema([("id", pa.int64())])
    layout = Layout(path, schema, statistics=("id",))
    return NewRows(list(written(layout, pa.table({"id": pa.array(ids)}, schema))))


def test_the_newest_commit_says_what_the_table_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` would show other rows than the mirror has: after new files, marked rows, and rows that replace all others."""
    path = str(tmp_path / "table")
    made(path, range(10), range(10, 30))
    steps = [
        (partial(without, path, 1, 2), 28, 1),
        (partial(without, path, *range(10)), 18, 2),
        (partial(without, path, *range(10)), 10, 1),  # the first file again, which has no row left
        (lambda: with_rows(path, 7, 8)._replace(replaces=False), 12, 1),
        (partial(with_rows, path, 7), 1, 0),
        (partial(NewRows, []), 0, 0),
    ]
    for batch, (change, rows, files) in enumerate(steps, 1):
        assert commits.write(path, delta.snapshot(path), change(), "{}", "writer", batch)
        deltalake.DeltaTable(path).create_checkpoint()
        seen, whole = extent(path, monkeypatch), delta.snapshot(path)
        assert (batch, rows, files) == (seen.version, seen.rows, seen.marked)
        assert (rows_of(path), whole.size, batch) == (seen.rows, seen.size, seen.transactions["writer"])


def test_another_writer_s_commit_is_looked_behind(tmp_path: Path) -> None:
    """After somebody else's rows, `status` would go on showing what the product's last commit held."""
    path = str(tmp_path / "table")
    made(path, range(10))
    deltalake.write_deltalake(path, pa.table({"id": pa.array([99], pa.int64())}), mode="append")
    seen = delta.extent(path, "writer")
    assert (1, 11, 0) == (seen.version, seen.rows, seen.transactions["writer"])


def test_another_generation_s_commit_is_looked_behind(tmp_path: Path) -> None:
    """A mirror whose progress is under another name would be called not folded."""
    path = str(tmp_path / "table")
    made(path, range(10))
    assert commits.write(path, delta.snapshot(path), NewRows([], replaces=False), "{}", "other", 5)
    delta._last.clear()
    assert {"writer": 0, "other": 5} == delta.extent(path, "writer").transactions


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    """A mirror that was never folded would have rows."""
    assert not delta.extent(str(tmp_path / "none"), "writer").exists


def test_a_damaged_newest_commit_is_said(tmp_path: Path) -> None:
    """A mirror that nobody can read would look as it was."""
    path = str(tmp_path / "table")
    made(path, range(3))
    log = Path(path, "_delta_log", f"{0:020d}.json")
    log.write_text(log.read_text("utf-8")[:-20], "utf-8")
    with pytest.raises(delta.UnreadableError, match="damaged"):
        delta.extent(path, "writer")
