"""Data files and commits without Spark: one commit or none, whoever else writes, and a log that keeps its past."""

from __future__ import annotations

import datetime as dt
import errno
import gc
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema

from ingest.tables import commits, delta, duck, tables
from ingest.tables.datafiles import Added, FilePart, Files, Layout, arrow_schema, table_of, written
from ingest.tables.delta import Snapshot
from ingest.tables.schemas import ALL, BOOKS, BRONZE, CHANGES, TableSchema

WRITER = "shop/silver/books/0"


def layout(folder: Path, schema: TableSchema = BOOKS) -> Layout:
    """A table that is there, without rows."""
    fields = json.dumps({"type": "struct", "fields": schema.fields})
    path = str(folder / schema.name)
    commits.create(path, fields, schema.partition_by, schema.properties, '{"run": "first"}')
    statistics = tuple((schema.statistics or "batch").split(","))
    return Layout(path, schema.arrow, schema.partition_by, statistics)


def books(*batches: int) -> pa.Table:
    """A line for each batch."""
    return pa.table({"batch": list(batches), "source": [f"of {one}" for one in batches]})


def append(place: Layout, batch: int, writer: str = WRITER) -> None:
    """One commit of one line."""
    commits.append(place.folder, written(place, books(batch)), json.dumps({"batch": batch}), writer, batch)


def batches(place: Layout) -> list[int]:
    """The batches of all rows."""
    return sorted(pl.read_delta(place.folder)["batch"].to_list())


@pytest.mark.parametrize("schema", ALL, ids=lambda schema: schema.name)
def test_a_table_is_created_as_delta_rs_creates_it(tmp_path: Path, schema: TableSchema) -> None:
    """Any reader and any writer of Delta tables must find in its log what they are used to."""
    place = layout(tmp_path, schema)
    fields = json.dumps({"type": "struct", "fields": schema.fields})
    theirs = DeltaTable.create(
        str(tmp_path / "theirs"),
        Schema.from_json(fields),
        partition_by=list(schema.partition_by),
        configuration=dict(schema.properties),
    )
    ours = DeltaTable(place.folder)
    for table in (ours, theirs):
        assert ([], 0) == (table.file_uris(), table.version())
    assert json.loads(theirs.schema().to_json()) == json.loads(ours.schema().to_json())
    assert theirs.protocol() == ours.protocol()
    ours_about, theirs_about = ours.metadata(), theirs.metadata()
    assert theirs_about.partition_columns == ours_about.partition_columns
    assert theirs_about.configuration == ours_about.configuration
    assert len({ours_about.id, theirs_about.id, ""}) == 3
    [created] = ours.history()
    assert ("CREATE TABLE", '{"run": "first"}') == (created["operation"], created["userMetadata"])


def test_a_table_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that create it, also at the same time, the second leaves the table of the first as it is."""
    place = layout(tmp_path)
    append(place, 1)
    layout(tmp_path)
    monkeypatch.setattr(delta, "snapshot", lambda *_: Snapshot(-1, {}))
    layout(tmp_path)
    monkeypatch.undo()
    assert ([1], 1) == (batches(place), DeltaTable(place.folder).version())


def test_small_files_become_one_before_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of each second adds 86,400 files a day, which each batch reads."""
    monkeypatch.setattr(commits, "FILES_AT_MOST", 5)
    place, most = layout(tmp_path), 0
    for batch in range(1, 31):
        commits.append(place.folder, written(place, books(batch)), f"{batch}", WRITER, batch, place)
        most = max(most, len(delta.snapshot(place.folder).files))
    assert (
        list(range(1, 31))
        == batches(place)
        == sorted(DeltaTable(place.folder).to_pyarrow_table()["batch"].to_pylist())
    )
    assert 5 <= most <= 6
    assert [20] == pl.read_delta(place.folder, version=20).sort("batch")["batch"].to_list()[-1:]
    entry = Path(place.folder, "_delta_log", f"{6:020d}.json").read_text()
    actions = [json.loads(line) for line in entry.splitlines()]
    assert 5 == sum("remove" in one for one in actions)
    assert {False} == {one["remove"]["dataChange"] for one in actions if "remove" in one}
    assert [True, False] == [one["add"]["dataChange"] for one in actions if "add" in one]
    monkeypatch.setattr(commits, "SMALL_FILE", 1)  # a large file stays
    before = delta.snapshot(place.folder).files
    commits.append(place.folder, written(place, books(31)), "31", WRITER, 31, place)
    assert len(before) + 1 == len(delta.snapshot(place.folder).files)


def between(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Something happens once, between a look at the table and the commit that follows it."""
    original = commits._put

    def slow(*given: Any) -> bool:
        monkeypatch.setattr(commits, "_put", original)
        happens()
        return original(*given)

    monkeypatch.setattr(commits, "_put", slow)


def test_files_are_joined_once_more_after_a_lost_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was joined for the commit that lost lacks the other's file; it stays unnamed until upkeep deletes it."""
    monkeypatch.setattr(commits, "FILES_AT_MOST", 3)
    place = layout(tmp_path)
    for batch in (1, 2, 3):
        append(place, batch)
    between(monkeypatch, lambda: append(place, 7, "elsewhere"))
    commits.append(place.folder, written(place, books(4)), "4", WRITER, 4, place)
    assert [1, 2, 3, 4, 7] == batches(place)
    assert 2 == len(delta.snapshot(place.folder).files)
    assert 4 + 3 == len(list(Path(place.folder).glob("*.parquet")))


def test_a_batch_is_never_committed_twice(tmp_path: Path) -> None:
    """The log's writer records identifiers and does not enforce them."""
    place = layout(tmp_path)
    append(place, 3)
    for batch in (3, 2):
        with pytest.raises(commits.TakenError):
            append(place, batch)
    assert [3] == batches(place)


def test_of_two_runs_at_once_one_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run commits the same batch between this one's look and its commit."""
    place = layout(tmp_path)
    between(monkeypatch, lambda: append(place, 1))
    with pytest.raises(commits.TakenError):
        append(place, 1)
    assert [1] == batches(place)


def test_a_foreign_commit_in_between_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer's commit takes the version: this one comes after it, once."""
    place = layout(tmp_path)
    between(monkeypatch, lambda: append(place, 7, "elsewhere"))
    append(place, 1)
    assert [1, 7] == batches(place)
    assert {"elsewhere": 7, WRITER: 1} == delta.snapshot(place.folder).transactions
    assert {"batch": 1} == delta.metadata_of(delta.actions(place.folder, 2))


@pytest.mark.parametrize("stored", [False, True])
def test_identifiers_and_old_versions_outlive_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """A checkpoint that lost an identifier would land a batch again; one that cleaned the log would break time travel.

    In a store it is made from a copy of the log.
    """
    monkeypatch.setattr(commits, "is_stored", lambda _path: stored)
    place = layout(tmp_path)
    append(place, 1, "rare")
    for batch in range(1, 12):
        append(place, batch)
    log = Path(place.folder, "_delta_log")
    long_ago = time.time() - 400 * 86_400
    for file in log.iterdir():
        os.utime(file, (long_ago, long_ago))
    for batch in range(12, 25):
        append(place, batch)
    assert len([*log.glob("*.checkpoint.parquet")]) >= 2
    assert {"rare": 1, WRITER: 24} == delta.snapshot(place.folder).transactions
    assert 1 == DeltaTable(place.folder).transaction_version("rare")
    for version in (2, 11, 13, 20):
        assert version == pl.read_delta(place.folder, version=version).height

    commits.clean(place.folder)  # versions 0 to 12 are older than the log's retention
    assert not (log / f"{1:020d}.json").exists()
    for version in range(12, 26):  # and version 12 is what the oldest promised moment shows
        assert version == pl.read_delta(place.folder, version=version).height
    assert {"rare": 1, WRITER: 24} == delta.snapshot(place.folder).transactions


def test_a_checkpoint_leaves_no_wrong_checksum(tmp_path: Path) -> None:
    """Hadoop's client writes a checksum next to each file, and reports a file replaced since as damaged."""
    place = layout(tmp_path)
    checksum = Path(place.folder, "_delta_log", "._last_checkpoint.crc")
    checksum.write_bytes(b"crc")
    for batch in range(1, 10):
        append(place, batch)
    assert checksum.exists()  # of the file that is still there
    append(place, 10)
    assert (checksum.with_name("_last_checkpoint").exists(), checksum.exists()) == (True, False)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_links_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A mounted bucket can have none: every commit would fail."""
    assert commits.takes_commits(str(tmp_path / "ext4" / "lake"))
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(number, "no links")))
    assert not commits.takes_commits(str(tmp_path))
    assert not commits.takes_commits(str(tmp_path / "not" / "made" / "yet"))
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EACCES, "read-only for this account")))
    assert commits.takes_commits(str(tmp_path / "another"))  # the commit says what is wrong
    assert [] == [*tmp_path.iterdir()]


def test_files_describe_themselves(tmp_path: Path) -> None:
    """A wrong bound would have readers pass over the file."""
    place = layout(tmp_path, CHANGES)
    lower, upper = "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{GRINNING FACE}"
    rows = {
        "kind": ["change"] * 3,
        "batch": [5, 2, 9],
        "database": [upper, None, lower],
        "table": ["x" * 999] * 3,
    }
    [found] = written(place, pa.table(rows))
    stats = json.loads(found.stats)
    assert {"batch": 2, "database": lower} == stats["minValues"]
    assert {"batch": 9, "database": upper} == stats["maxValues"]
    assert {"batch": 0, "database": 1, "table": 0, "order_key": 3} == stats["nullCount"]
    assert 3 == stats["numRecords"]
    file = Path(place.folder, found.path)
    assert found.size == file.stat().st_size
    assert {"kind": "change"} == found.partition
    assert found == Added.from_json(found.to_json())
    assert CHANGES.arrow.names[1:] == pq.read_schema(file).names


def test_each_partition_has_its_file(tmp_path: Path) -> None:
    """Rows of several kinds may come together."""
    place = layout(tmp_path / "a lake #1% \N{LATIN SMALL LETTER E WITH ACUTE}'", BRONZE)
    day = pa.array([20_000, 20_000, 20_001], pa.date32())
    rows = pa.table(
        {"kind": ["message", "receipt", "message"], "day": day, "batch": [1, 1, 1], "offset": [1, 2, 3]}
    )
    files = written(place, rows)
    commits.append(place.folder, files, "{}")
    found = sorted(DeltaTable(place.folder).to_pyarrow_table().to_pylist(), key=lambda row: row["offset"])
    assert ["message", "receipt", "message"] == [row["kind"] for row in found]
    assert day.to_pylist() == [row["day"] for row in found]


def test_rows_whose_partition_is_null_are_kept(tmp_path: Path) -> None:
    """NULL is equal to nothing, not even to itself; its rows would be dropped silently."""
    place = layout(tmp_path, BRONZE)
    day = pa.array([20_000, None, None], pa.date32())
    rows = pa.table({"kind": ["message"] * 3, "day": day, "batch": [1, 1, 1], "offset": [1, 2, 3]})
    commits.append(place.folder, written(place, rows), "{}")
    expected = [(1, day[0].as_py()), (2, None), (3, None)]
    scanned = tables.scan(place.folder, delta.snapshot(place.folder))
    for found in (pl.read_delta(place.folder).to_dicts(), duck.rows(f"SELECT * FROM {scanned} AS m")):
        assert expected == [
            (row["offset"], row["day"]) for row in sorted(found, key=lambda row: row["offset"])
        ]


def _forgotten(folder: str) -> Snapshot:
    """The table as a process reads it that has never seen it."""
    delta._last.clear()
    delta._read.cache_clear()
    return delta.snapshot(folder)


def _ordered(found: Snapshot) -> Snapshot:
    return replace(found, files=tuple(sorted(found.files, key=lambda one: one.path)))


def test_of_a_table_that_grows_only_the_newest_state_is_kept(tmp_path: Path) -> None:
    """A service looks at each commit of fifty lakes for months: what it kept of each would fill its memory."""
    place = layout(tmp_path)
    for batch in range(1, 10):
        append(place, batch)
        assert batch == len(delta.snapshot(place.folder).files)
    paths = {one.path for one in delta.snapshot(place.folder).files}
    gc.collect()
    kept = [
        one for one in gc.get_objects() if isinstance(one, Snapshot) and paths & {it.path for it in one.files}
    ]
    assert 1 == len(kept)


def test_a_log_is_read_on_from_where_it_was_read(tmp_path: Path) -> None:
    """A process that goes on must see what a new one sees: after checkpoints, deletes, upkeep, and another table."""
    place = layout(tmp_path)
    for batch in range(1, 25):
        append(place, batch)
        if batch % 8 == 0:
            DeltaTable(place.folder).delete(f"batch = {batch - 3}")
        if batch == 18:
            DeltaTable(place.folder).optimize.compact()
        if batch == 21:
            DeltaTable(place.folder).alter.add_columns([Field("later", "string")])
        if batch % 3:
            continue  # several commits at once
        seen = delta.snapshot(place.folder)
        whole = _forgotten(place.folder)
        assert _ordered(whole) == _ordered(seen)
        assert {WRITER: batch} == seen.transactions
    before = delta.snapshot(place.folder)
    shutil.rmtree(place.folder)
    place = layout(tmp_path)
    for batch in range(40, 41 + before.version):
        append(place, batch)
    seen = delta.snapshot(place.folder)
    assert seen.version > before.version
    assert _ordered(_forgotten(place.folder)) == _ordered(seen)
    assert before.table_id != seen.table_id


def test_a_snapshot_stays_what_it_was(tmp_path: Path) -> None:
    """What is read on from it is another one: a version that was promised would grow files."""
    place = layout(tmp_path)
    append(place, 1)
    first = delta.snapshot(place.folder)
    append(place, 2)
    assert ({WRITER: 2}, 2) == (delta.snapshot(place.folder).transactions, len(batches(place)))
    assert ({WRITER: 1}, 1) == (first.transactions, len(first.files))
    assert first == delta.snapshot(place.folder, first.version)


def test_what_an_error_interrupts_is_removed(tmp_path: Path) -> None:
    """Half a file would remain until a vacuum."""
    place = layout(tmp_path)

    def write() -> None:
        with Files(place) as files:
            for _ in range(60):
                files.add(books(*range(1000)))
            assert [*Path(place.folder).glob("*.parquet")]
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write()
    assert [] == [*Path(place.folder).glob("*.parquet")]


def test_pieces_give_the_wanted_batches(tmp_path: Path) -> None:
    """Files that upkeep has joined hold many batches; an older one lacks columns."""
    file = tmp_path / "joined.parquet"
    pq.write_table(books(1, 2, 3, 4, 5), file, row_group_size=2)
    wanted = arrow_schema({"source": "string", "note": "string"})
    piece = FilePart(str(file), wanted, 2, 4)
    for parts in ([piece], piece.parts()):
        rows = pa.concat_tables([page for part in parts for page in part.read()]).to_pylist()
        assert [{"source": f"of {one}", "note": None} for one in (2, 3, 4)] == rows


@pytest.mark.parametrize("schema", ALL, ids=lambda one: one.name)
def test_every_table_can_be_written(tmp_path: Path, schema: TableSchema) -> None:
    """A type that only Spark knows would be found at the first row."""
    place = layout(tmp_path, schema)
    assert schema.arrow == arrow_schema(delta.snapshot(place.folder).types)
    assert schema.ddl.count("COMMENT") == len(schema.fields)
    values = {"kind": "x", "day": 20_000}
    names = [name for name in schema.arrow.names if name in (*values, *schema.partition_by)]
    rows = table_of([tuple(values[name] for name in names)], names, schema.arrow)
    commits.append(place.folder, written(place, rows), "{}")
    assert 1 == pl.read_delta(place.folder).height


def test_a_file_of_long_messages_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a row group holds all of it in memory."""
    monkeypatch.setattr("ingest.tables.datafiles._GROUP_BYTES", 1000)
    rows = pa.table({"batch": list(range(20)), "source": ["x" * 500] * 20})
    place = layout(tmp_path)
    [found] = written(place, rows)
    with pq.ParquetFile(Path(place.folder, found.path)) as file:
        assert 4 >= max(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))
    assert 20 == json.loads(found.stats)["numRecords"]


def test_times_are_read_as_any_writer_stores_them(tmp_path: Path) -> None:
    """Spark writes INT96 if it is set to; as nanoseconds the year 9999 would be another."""
    moment = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    rows = pa.table({"batch": [1], "event_time": pa.array([moment], pa.timestamp("us", tz="UTC"))})
    for deprecated in (False, True):
        file = tmp_path / f"{deprecated}.parquet"
        pq.write_table(rows, file, use_deprecated_int96_timestamps=deprecated)
        [page] = FilePart(str(file), rows.schema, 1, 1).read()
        assert [moment] == page["event_time"].to_pylist()


@pytest.mark.parametrize(
    ("protocol", "plain"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, True),
        ({"minReaderVersion": 1, "minWriterVersion": 4}, False),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["deletionVectors"]}, True),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, False),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["columnMapping"]}, False),
    ],
)
def test_tables_that_ask_more_of_writers_are_left_to_spark(
    tmp_path: Path, protocol: dict[str, Any], plain: bool
) -> None:
    """The library commits files without column names of a mapping, and refuses other features for good."""
    place = layout(tmp_path)
    first = Path(place.folder, "_delta_log", f"{0:020d}.json")
    actions = [json.loads(line) for line in first.read_text("utf-8").splitlines()]
    replaced = [{"protocol": protocol} if "protocol" in one else one for one in actions]
    first.write_text("\n".join(map(json.dumps, replaced)), "utf-8")
    assert plain == delta.snapshot(place.folder).is_plain


def test_what_only_spark_reaches_is_left_to_it() -> None:
    """Stores beyond the file system, and names that the library would take for others."""
    reached = ("/a b/c#%", "/a%2", "/a%zz")
    assert all(commits.within_reach(one) for one in reached)
    assert not any(commits.within_reach(one) for one in ("s3a://bucket/lake", "/a%20b", "/lake/%2F"))
