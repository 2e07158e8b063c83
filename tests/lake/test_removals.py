"""Rows that others have taken out of a lake's own tables, seen in the tables' logs without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from ingest.config import TableRule
from ingest.errors import HeldError, command
from ingest.gold.rebuild import rebuild
from ingest.inspect import status
from ingest.inspect.problems import Problem
from ingest.ledgers import decisions
from ingest.ledgers.decisions import Decision
from ingest.run import Warm
from ingest.tables import removals
from tests.shops import Shops

OURS = {"run": "r"}


def begun(folder: Path, number: int = 0) -> Shops:
    """A pipeline over a folder."""
    stages = ("bronze", "silver", "gold", "quality")
    return Shops(folder, TableRule(match="shop_1.item"), number=number, stages=stages)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Shops:
    """A lake of three batches of a row each, a statement in the second, and a decision after each."""
    made = begun(tmp_path_factory.mktemp("whole"))
    for key in (1, 2, 3):
        made.say(1, "INSERT", key, "a")
        if key == 2:
            made.ddl("ALTER TABLE item ADD COLUMN note varchar(9)")
        made.run()
        decisions.append(made.lake, [Decision(decisions.PAUSE, f"mirrors/other_{key}/item", {}, key)])
    return made


@pytest.fixture
def shops(whole: Shops, tmp_path: Path) -> Shops:
    """A copy of that lake."""
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    return begun(tmp_path, whole.number)


def table(shops: Shops, name: str) -> deltalake.DeltaTable:
    """One of the lake's own tables, for another program."""
    return deltalake.DeltaTable(shops.lake.path(name))


def commit(shops: Shops, marks: dict[str, object]) -> None:
    """A commit of `changes` with marks, and without rows."""
    about = deltalake.CommitProperties({"userMetadata": json.dumps(marks)})
    rows = pa.table(table(shops, "changes").to_pyarrow_table().slice(0, 0))
    deltalake.write_deltalake(shops.lake.path("changes"), rows, mode="append", commit_properties=about)


def listed(shops: Shops) -> list[Problem]:
    """What `status` says of the lake itself."""
    problems = [problem for problem in status.problems_of(shops.lake) if problem.kind == "rows_removed"]
    assert all(problem.since for problem in problems), "the time of the commit"
    return problems


@pytest.mark.parametrize(
    ("name", "typed"),
    [("changes", "3"), ("books", "3"), ("ddl", "2"), ("bronze", ""), ("decisions", "")],
)
def test_an_older_version_of_a_table_is_noticed_until_it_is_undone(
    shops: Shops, name: str, typed: str
) -> None:
    """Its batches count as done, so that nothing writes their rows again, and a rebuild folds mirrors without them."""
    wanted = command("backfill", shops.pipeline.file, "--from-batch", typed) if typed else ""
    assert not listed(shops)
    version, rows = table(shops, name).version(), table(shops, name).count()
    fewer = (at for at in range(version) if deltalake.DeltaTable(shops.lake.path(name), at).count() < rows)
    table(shops, name).restore(max(fewer))
    for warm in (shops.warm, Warm()):
        shops.warm = warm
        with pytest.raises(HeldError, match=rf"version {version + 1} of `{name}` .*\(RESTORE\)"):
            shops.say(1, "INSERT", 4, "a").run()
    with pytest.raises(HeldError, match=rf"`{name}`"):
        rebuild(shops.lake, [], dry_run=False)
    [problem] = listed(shops)
    assert (wanted, "error") == (problem.command, problem.severity)
    assert f"TO VERSION AS OF {version} " in problem.text
    table(shops, name).restore(version)
    assert not listed(shops)
    shops.run()
    assert {1, 2, 3, 4} == shops.rows("mirrors/shop_1/item").keys()


def test_deleted_rows_are_noticed_and_appended_ones_are_not(shops: Shops) -> None:
    """Nothing of a DELETE by hand is in the numbers of batches."""
    row = table(shops, "changes").to_pyarrow_table().slice(0, 0)
    deltalake.write_deltalake(shops.lake.path("changes"), row, mode="append")
    removals.refuse(shops.lake)
    table(shops, "changes").delete("batch = 2")
    [problem] = listed(shops)
    assert "(DELETE)" in problem.text
    assert command("backfill", shops.pipeline.file, "--from-batch", 2) == problem.command


def test_only_batches_decoded_again_from_the_first_lost_one_on_end_it(shops: Shops) -> None:
    """A backfill of fewer batches would hide those that are still gone; our other commits hide nothing."""
    table(shops, "changes").delete("batch = 2")
    commit(shops, OURS)
    commit(shops, OURS | {"batch": 3, removals.AGAIN: 2})
    with pytest.raises(HeldError, match="--from-batch 2"):
        removals.refuse(shops.lake)
    commit(shops, OURS | {"batch": 3, removals.AGAIN: 1})
    removals.refuse(shops.lake)


def upkeep(shops: Shops, name: str) -> None:
    """Files joined by others, and deleted by them."""
    table(shops, name).optimize.compact()
    table(shops, name).optimize.z_order(["batch" if name != "decisions" else "subject"])
    table(shops, name).vacuum(0, enforce_retention_duration=False, dry_run=False)


def our_deletion(shops: Shops, name: str) -> None:
    """As an erasure, a condensing and a trim commit."""
    about = deltalake.CommitProperties({"userMetadata": json.dumps(OURS)})
    table(shops, name).delete("true", commit_properties=about)


def columns(shops: Shops, name: str) -> None:
    """As an upgrade does by Spark: without a mark."""
    field = deltalake.Field("later", deltalake.schema.PrimitiveType("string"))
    table(shops, name).alter.add_columns(field)


def old_messages(shops: Shops, name: str) -> None:
    """Bronze without its decoded messages, which `maintain --bronze-older-than` drops, too."""
    if name == "bronze":
        table(shops, name).delete("kind = 'message'")


@pytest.mark.parametrize("what", [upkeep, our_deletion, columns, old_messages])
def test_what_takes_no_rows_or_is_ours_is_no_complaint(
    shops: Shops, what: Callable[[Shops, str], None]
) -> None:
    """A right lake would stop."""
    for name in ("bronze", "changes", "ddl", "books", "decisions"):
        what(shops, name)
    removals.refuse(shops.lake)
    assert not listed(shops)


def test_a_log_cut_behind_the_last_batch_is_no_complaint(shops: Shops) -> None:
    """What was cleaned up cannot be judged."""
    table(shops, "changes").delete("batch = 2")
    commit(shops, OURS)
    table(shops, "changes").create_checkpoint()
    for number in range(table(shops, "changes").version()):
        Path(shops.lake.path("changes"), "_delta_log", f"{number:020d}.json").unlink()
    removals.refuse(shops.lake)


def test_a_tick_reads_only_the_newest_entries(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that costs more with every batch, or in every process."""
    lake, read = shops.lake, list[str]()
    actions = type(lake).actions

    def counted(self: object, name: str, version: int) -> object:
        read.append(name)
        return actions(lake, name, version)

    monkeypatch.setattr(type(lake), "actions", counted)
    removals.refuse(lake)
    assert sorted(read) == ["books", "bronze", "changes", "ddl", "decisions"]
    removals.refuse(lake)
    assert 5 == len(read)
