"""Parts of a lake that are gone are said by whoever looks, and by a run that has nothing else to do."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pytest

from ingest import run as runs
from ingest.config.entries import AlertTarget
from ingest.config.model import Pipeline, TableRule
from ingest.errors import IngestError, StoreError
from ingest.gold.plan import completed
from ingest.gold.rebuild import rebuild
from ingest.inspect import status
from ingest.inspect.idle import idle
from ingest.inspect.query import query
from ingest.ledgers import whole_files
from ingest.result import STAGES, Result
from ingest.run import Warm
from ingest.store import faults, stores
from ingest.tables import delta, vectors
from ingest.tables.delta import NO_TABLE, Commit, DataFile, Snapshot, UnreadableError
from ingest.tables.lake import Lake, Tell
from ingest.tables.tables import LakeReader
from tests.shops import Shops


@pytest.fixture
def shops(tmp_path: Path) -> Shops:
    """A lake with one mirror."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a").run()
    return mine


def test_a_run_with_nothing_new_looks_for_its_mirrors(shops: Shops) -> None:
    """A quiet table stayed broken for days for those who watch exit codes."""
    shops.warm = Warm()
    shops.run()
    assert shops.result is not None
    assert [] == shops.result.failures
    shutil.rmtree(shops.folder / "lake" / "mirrors" / "shop_1" / "item")
    shops.warm = Warm()
    shops.run()
    [failure] = shops.result.failures
    assert failure.startswith("shop_1.item: its table ")
    assert f"`ingest retry {shops.pipeline.file}` folds it again" in failure
    found = status.status(shops.lake)
    assert ["failed"] == [one["state"] for one in found["tables"]]
    [cause] = found["causes"]
    assert ("shop_1.item", True) == (cause["mirror"], bool(cause["since"]))


@pytest.mark.parametrize("done", ["deleted", "overwritten", "restored", "rebuilt"])
def test_data_files_of_a_quiet_mirror_are_looked_at_once_a_day(
    shops: Shops, monkeypatch: pytest.MonkeyPatch, done: str
) -> None:
    """A mirror that sends nothing stayed broken, and was called up to date, until somebody queried it."""

    def failures_of_a_run() -> list[str]:
        shops.warm, shops.stages = Warm(), STAGES
        shops.run()
        assert shops.result is not None
        return shops.result.failures

    assert [] == failures_of_a_run()
    [file] = (shops.folder / "lake" / "mirrors" / "shop_1" / "item").glob("*.parquet")
    whole = file.read_bytes()
    if done == "overwritten":
        file.write_bytes(b"x" * 500)
    else:
        file.unlink()
    assert ([], []) == (failures_of_a_run(), whole_files.torn(shops.lake)), "a day has not passed"
    monkeypatch.setattr(whole_files, "EVERY", dt.timedelta(0))
    assert idle(shops.pipeline, STAGES) is None
    [failure] = failures_of_a_run()
    assert f"{file.name} {'is gone' if done != 'overwritten' else 'has 500 bytes instead of '}" in failure
    monkeypatch.undo()
    found = status.status(shops.lake)
    assert ["damaged"] == [row["state"] for row in found["tables"]]
    [cause] = found["causes"]
    typed = f"ingest rebuild {shops.pipeline.file} shop_1.item"
    assert ("damaged", "shop_1.item", typed) == (cause["kind"], cause["mirror"], cause["command"])
    assert [failure] == failures_of_a_run(), "until it is repaired"
    result = idle(shops.pipeline, STAGES)
    assert result is not None, "a tick needs no session to say what the one before it has said"
    assert [failure] == result.failures
    if done == "restored":
        file.write_bytes(whole)
    else:
        assert ["rebuilt"] == [each.state for each in rebuild(shops.lake, ["shop_1.item"], dry_run=False)]
    assert [] == failures_of_a_run()
    assert [] == status.status(shops.lake)["causes"]
    assert shops.say(2, "INSERT", 2, "b").run() == ("done", "")


def test_a_lake_that_was_copied_is_as_whole_as_before(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies have other times, and an alarm after each move would be switched off."""
    monkeypatch.setattr(whole_files, "EVERY", dt.timedelta(0))
    for file in (shops.folder / "lake").rglob("*.parquet"):
        os.utime(file)
    whole_files.look(shops.lake)
    assert [] == whole_files.torn(shops.lake)


@pytest.fixture
def two(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> Shops:
    """A lake with a further mirror, and one whose file is gone, as a run has found."""
    shops.stages = STAGES
    shops.say(2, "INSERT", 1, "b").run()
    next((shops.folder / "lake" / "mirrors" / "shop_1" / "item").glob("*.parquet")).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(whole_files, "EVERY", dt.timedelta(0))
        whole_files.look(shops.lake)
    return shops


def test_until_a_day_is_over_only_torn_mirrors_are_looked_at(
    two: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one of 500 mirrors lacked a file, each tick listed the folders of all, and started a session."""
    looked, sizes = list[str](), stores.Disk.sizes
    monkeypatch.setattr(stores.Disk, "sizes", lambda disk, at: (looked.append(at), sizes(disk, at))[1])
    assert not whole_files.is_due(two.lake)
    whole_files.look(two.lake)
    assert {two.lake.path("mirrors/shop_1/item")} == {*looked}
    assert ["shop_1.item"] == [torn.mirror.name for torn in whole_files.torn(two.lake)]


@pytest.mark.parametrize("error", [StoreError("it does not answer"), OSError(5, "Input/output error")])
def test_a_folder_that_cannot_be_listed_is_as_it_was_found(
    two: Shops, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A run whose work was done ended by a store's 503, and was missing in `runs`."""

    def refused(_disk: stores.Disk, _folder: str) -> dict[str, int]:
        raise error

    before = whole_files.torn(two.lake)
    monkeypatch.setattr(whole_files, "EVERY", dt.timedelta(0))
    monkeypatch.setattr(stores.Disk, "sizes", refused)
    two.warm = Warm()
    two.run()
    assert two.result is not None
    assert [f"shop_1.item damaged: {torn.said}" for torn in before] == two.result.failures
    [runs_with_it] = two.lake.ask(f"SELECT count(*) AS n FROM {{runs}} WHERE run = '{two.result.run}'")
    assert runs_with_it["n"]


def test_files_that_are_written_during_the_look_are_not_gone(
    shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote the mirror's files again between its listing and the reading of its log made it damaged."""
    shops.say(1, "INSERT", 2, "b").run()
    table = deltalake.DeltaTable(shops.folder / "lake" / "mirrors" / "shop_1" / "item")
    looked, sizes, looks = Lake.snapshot, stores.Disk.sizes, list[str]()

    def between(look: str) -> None:
        looks.append(look)
        if len(looks) == 1:
            table.delete("id = 2")

    def snapshot(lake: Lake, name: str) -> Snapshot:
        state = looked(lake, name)
        if name.startswith("mirrors/"):
            between("log")
        return state

    def listed(disk: stores.Disk, folder: str) -> dict[str, int]:
        there = sizes(disk, folder)
        between("folder")
        return there

    monkeypatch.setattr(Lake, "snapshot", snapshot)
    monkeypatch.setattr(stores.Disk, "sizes", listed)
    monkeypatch.setattr(whole_files, "EVERY", dt.timedelta(0))
    whole_files.look(shops.lake)
    assert {"log", "folder"} == {*looks}
    assert [] == whole_files.torn(shops.lake)


@pytest.mark.parametrize("pattern", ["day=*/*.parquet", "*.bin"])
def test_files_in_folders_and_of_deletion_vectors_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """A table that somebody has given partitions, or one with marked rows, has files that nobody would look at."""
    folder = tmp_path / "mirrors" / "t"
    for name, data in {"a.parquet": b"a", "day=1%2F2/part 1.parquet": b"bc"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    marked = vectors.write(str(folder), {"a.parquet": np.array([0])})["a.parquet"]
    files = (
        DataFile("a.parquet", 1, {}, vector=marked),
        DataFile("day=1%252F2/part%201.parquet", 2, {"day": "1/2"}),
    )
    monkeypatch.setattr(LakeReader, "snapshot", lambda _lake, _name: Snapshot(0, {}, files=files))
    lake = LakeReader(Pipeline("x", tmp_path / "x.yaml", str(tmp_path), ()))
    assert [] == [*whole_files._wrong_files(lake, "mirrors/t")]
    [gone] = folder.glob(pattern)
    gone.unlink()
    assert [f"{gone.relative_to(folder)} is gone"] == [*whole_files._wrong_files(lake, "mirrors/t")]


@pytest.mark.parametrize(
    "refusal", [StoreError("only Spark reads it"), UnreadableError("only Spark reads it")]
)
def test_a_mirror_that_only_spark_can_read_is_not_lost(
    shops: Shops, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """Each quiet tick on a store that only Hadoop reaches would fail, and raise an alarm for each mirror."""

    def refused(_path: str) -> Commit:
        raise refusal

    monkeypatch.setattr(completed, "newest_commit", refused)
    assert [] == completed.lost(shops.lake)
    looked = Lake.snapshot

    def without_mirrors(lake: Lake, name: str) -> Snapshot:
        return NO_TABLE if name.startswith("mirrors/") else looked(lake, name)

    monkeypatch.setattr(Lake, "snapshot", without_mirrors)
    assert ["shop_1.item"] == [mirror.name for mirror in completed.lost(shops.lake)]


def test_a_mirror_that_stays_gone_needs_no_session(shops: Shops) -> None:
    """Each tick started Spark to say what the one before it had said."""
    shops.stages = STAGES
    shops.run()
    mirror = shops.folder / "lake" / "mirrors" / "shop_1" / "item"
    away = mirror.rename(mirror.with_name("away"))
    assert idle(shops.pipeline, STAGES) is None, "a run has to record it"
    shops.warm = Warm()
    shops.run()
    assert shops.result is not None
    result = idle(shops.pipeline, STAGES)
    assert result is not None
    assert (shops.result.failed, 1) == (result.failed, result.exit_code)
    assert idle(replace(shops.pipeline, alerts=(AlertTarget("http://127.0.0.1:9"),)), STAGES) is None, (
        "it is sent again"
    )
    away.rename(mirror)
    assert idle(shops.pipeline, STAGES) is None, "a run has to end the alarm"


def test_a_rebuild_leaves_the_next_run_nothing_to_do(shops: Shops) -> None:
    """After it each run started a session to say "nothing new", and `status` named `ingest run` next, until a message came."""
    shops.stages = STAGES
    shops.run()
    assert idle(shops.pipeline, STAGES) is not None
    [rebuilt] = rebuild(shops.lake, ["shop_1.item"], dry_run=False)
    assert "rebuilt" == rebuilt.state
    assert idle(shops.pipeline, STAGES) is not None
    assert "the lake waits for nothing" in status.status(LakeReader(shops.pipeline))["next_note"]


def test_looking_for_mirrors_reads_one_file_of_each(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 mirrors with a hundred commits each, a run with nothing to do read 50,000 files."""
    for number in (2, 3):
        shops.say(number, "INSERT", number, "b").run()
    read, actions = list[str](), delta._actions

    def counting(path: str) -> Iterator[dict[str, Any]]:
        read.append(path)
        return actions(path)

    monkeypatch.setattr(delta, "_actions", counting)
    monkeypatch.setattr(delta, "_last", {})
    assert [] == completed.lost(shops.lake)
    assert 1 == len([path for path in read if "mirrors/shop_1/item" in path])


@pytest.mark.parametrize("table", ["mirrors", "histories"])
def test_rows_of_another_writer_in_a_quiet_mirror_are_said_at_once(tmp_path: Path, table: str) -> None:
    """A mirror without changes of its own stayed wrong and was called up to date, by runs, too, until a batch touched it."""
    quiet = Shops(tmp_path, TableRule(match="shop_1.item", history=True), stages=STAGES)
    quiet.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "b").run()
    folder = quiet.folder / "lake" / table / "shop_1" / "item"
    assert completed.lost(quiet.lake) == status.status(LakeReader(quiet.pipeline))["causes"] == []
    deltalake.DeltaTable(folder).delete("id = 1")
    deltalake.DeltaTable(folder).optimize.compact()
    typed = f"ingest rebuild {quiet.pipeline.file} shop_1.item"
    names = ["shop_1.item", "shop_1.item__history"]
    name, other = names if table == "mirrors" else reversed(names)
    for _ in range(2):  # before and after a run has said it
        found = status.status(LakeReader(quiet.pipeline))
        assert {name: "held", other: "ok"} == {entry["table"]: entry["state"] for entry in found["tables"]}
        [cause] = found["causes"]
        assert ("held", name, typed) == (cause["kind"], cause["mirror"], cause["command"])
        assert cause["since"]
        quiet.warm = Warm()
        quiet.run()
        assert quiet.result is not None
        [failure] = quiet.result.failures
        assert failure.startswith(f"{name} held: version ")
        assert (
            f"was not written by this pipeline (DELETE), so what it holds is no longer the fold of its changes: `{typed}`"
            in failure
        )
    [rebuilt, *_] = rebuild(quiet.lake, ["shop_1.item"], dry_run=False)
    assert "rebuilt" == rebuilt.state
    quiet.warm = Warm()
    quiet.run()
    assert [] == quiet.result.failures
    assert [] == status.status(LakeReader(quiet.pipeline))["causes"]


def test_an_alarm_ends_with_the_run_that_finds_its_cause_repaired(shops: Shops) -> None:
    """`status` named the alarm of a mirror that was there again until the next message came, and `ingest run` ended nothing."""
    mirror = shops.folder / "lake" / "mirrors" / "shop_1" / "item"
    shops.stages = STAGES
    shops.run()
    away = mirror.rename(mirror.with_name("away"))
    shops.warm = Warm()
    shops.run()
    assert shops.result is not None
    assert 1 == len(shops.result.failures)
    away.rename(mirror)
    assert ["last_run"] == [one["kind"] for one in status.status(LakeReader(shops.pipeline))["causes"]]
    assert completed.alarms(LakeReader(shops.pipeline))
    shops.warm = Warm()
    shops.run()
    assert [] == shops.result.failures
    assert [] == status.status(LakeReader(shops.pipeline))["causes"]
    before = LakeReader(shops.pipeline).snapshot("runs").version
    shops.run()
    assert before == LakeReader(shops.pipeline).snapshot("runs").version


def test_an_alarm_of_a_batch_is_not_ended_by_a_run_without_one(
    shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was wrong with a batch's messages is not looked for again: a run with nothing to read knows nothing of it."""
    shops.stages = STAGES
    shops.run()
    stage = runs._STAGES["silver"]

    def alarmed(lake: Lake, warm: Warm, result: Result, tell: Tell) -> bool:
        done = stage(lake, warm, result, tell)
        result.fail("messages are unaccounted for", of_batch=True)
        return done

    with monkeypatch.context() as patch:
        patch.setitem(runs._STAGES, "silver", alarmed)
        shops.say(2, "INSERT", 2, "b").run()
    for warm in (shops.warm, Warm()):
        shops.warm = warm
        shops.run()
        assert shops.result is not None
        assert (None, []) == (shops.result.batch, shops.result.failures)
        assert ["last_run"] == [one["kind"] for one in status.status(LakeReader(shops.pipeline))["causes"]]


def test_a_run_with_nothing_new_looks_whether_its_mirrors_can_be_read(shops: Shops) -> None:
    """`status` called the mirror damaged, and a scheduler that watches exit codes was told that all is well."""
    folder = shops.folder / "lake" / "mirrors" / "shop_1" / "item"
    for log in (folder / "_delta_log").glob("*.json"):
        log.write_text("{", "utf-8")
    [lost] = completed.lost(LakeReader(shops.pipeline))
    assert lost.said.startswith("shop_1.item: ")
    assert (
        f"move the folder {folder} away, and `ingest rebuild {shops.pipeline.file} shop_1.item` makes"
        in lost.said
    )
    [row] = status.status(LakeReader(shops.pipeline))["tables"]
    assert ("damaged", True) == (row["state"], bool(row["since"]))


@pytest.mark.parametrize("content", [b"x" * 500, b""], ids=["overwritten", "emptied"])
def test_a_rebuild_replaces_a_mirror_whose_files_cannot_be_read(shops: Shops, content: bytes) -> None:
    """The printed command ended at the file that it was to replace; a run said one damage in two ways."""
    for file in (shops.folder / "lake" / "mirrors" / "shop_1" / "item").glob("*.parquet"):
        file.write_bytes(content)
    shops.stages = STAGES
    assert "failed" == shops.say(1, "UPDATE", 1, "b").run()[0]
    assert shops.result is not None
    typed = f"ingest rebuild {shops.pipeline.file} shop_1.item"
    [failure] = shops.result.failures
    assert failure.endswith(f"missing; `{typed}` makes the mirror again from its changes.")
    assert [typed] == [one["command"] for one in status.status(LakeReader(shops.pipeline))["causes"]]
    [rebuilt] = rebuild(shops.lake, ["shop_1.item"], dry_run=False)
    assert ("rebuilt", True) == (rebuilt.state, "is damaged or missing" in rebuilt.message)
    assert rebuilt.difference is not None
    assert (1, 1) == (rebuilt.difference.rows, rebuilt.difference.missing)
    shops.warm = Warm()
    assert ("done", "") == shops.run()
    assert {1: "b"} == shops.rows("mirrors/shop_1/item")
    assert [] == status.status(LakeReader(shops.pipeline))["causes"]


def test_silver_that_is_gone_is_a_problem(shops: Shops) -> None:
    """All mirrors were called up to date while no run could go on."""
    shutil.rmtree(shops.folder / "lake" / "changes")
    found = status.status(shops.lake)
    [problem] = [one for one in found["causes"] if one["kind"] == "lake"]
    assert "is incomplete" in problem["text"]
    assert f"ingest rebuild {shops.pipeline.file} --layer silver" == problem["command"]
    [last] = shops.lake.ask("SELECT max(started_at) AS moment FROM {runs}")
    assert f"{last['moment']:%Y-%m-%dT%H:%M:%SZ}" == problem["since"], "it was whole when the last run began"


def test_a_query_of_a_damaged_mirror_names_the_command_that_repairs_it(shops: Shops) -> None:
    """It had DuckDB's words alone, and `status` was green until the next day's look."""
    [file] = (shops.folder / "lake" / "mirrors" / "shop_1" / "item").glob("*.parquet")
    assert [[1]] == query(LakeReader(shops.pipeline), "SELECT id FROM shop_1.item").rows
    whole = file.read_bytes()
    file.write_bytes(whole[:300])
    typed = f"ingest rebuild {shops.pipeline.file} shop_1.item"
    with pytest.raises(IngestError, match=r"shop_1\.item cannot be read: a data file is damaged") as met:
        query(LakeReader(shops.pipeline), "SELECT id FROM shop_1.item")
    assert (typed, True) == (met.value.command, f"`{typed}`" in str(met.value))
    [cause] = status.status(LakeReader(shops.pipeline))["causes"]
    assert ("damaged", typed) == (cause["kind"], cause["command"])
    file.write_bytes(whole)
    shops.warm = Warm()
    shops.run()
    assert [] == status.status(LakeReader(shops.pipeline))["causes"], "it is back"


def test_a_path_with_spaces_is_named_whole() -> None:
    """The part after the last space was no file."""
    error = OSError('No files found that match the pattern "/tmp/my lake/mirrors/a b/part-1.parquet"')
    assert str(faults.fault(error)).endswith("damaged or missing at /tmp/my lake/mirrors/a b/part-1.parquet")
