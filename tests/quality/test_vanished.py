"""Rows without a column that earlier rows have: dropped at the source, or left out by it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ingest.change import Options
from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import rejects
from ingest.quality import ddl_ledger, ledgers, vanished
from ingest.quality.subjects import survey
from ingest.tables.schemas import REJECTS
from tests.quality.test_set_back import shop
from tests.shops import Shops
from tests.written_lake import commit

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.config import Pipeline

DROPPED, LEFT_OUT = {"vanished_columns": "note"}, {"partial_rows": "note"}


@pytest.fixture
def shops(tmp_path: Path) -> Shops:
    """A table whose first row has the column ``note``."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a", note="n").run()
    return mine


def found(shops: Shops, since: int = 1) -> dict[str, str]:
    """The checks that complain, each with the columns that it names."""
    if shops.lines:
        assert ("done", "") == shops.run()
    lake = shops.lake
    chosen = survey(lake, ledgers.read(lake, since, lake.decoded()).lanes, steps=steps_of(lake)).subjects
    metrics = list(vanished.of_mirrors(lake, chosen, since, ddl_ledger.counting_statements(lake)))
    return {one.check: one.detail.split(" without ")[1].split(", which")[0] for one in metrics}


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE", "INIT"])
def test_rows_without_a_column_are_reported(kind: str, shops: Shops) -> None:
    """An update under `binlog_row_image=noblob` would silently set an unchanged text to NULL."""
    assert DROPPED == found(shops.say(1, kind, 1, "b"))
    assert {} == found(shops.say(1, "UPDATE", 1, "b", note="m"), 2)


def test_rows_between_others_that_have_the_column(shops: Shops) -> None:
    """A column that comes and goes is left out by the source, which no schema change does: this is a failure."""
    assert LEFT_OUT == found(shops.say(1, "UPDATE", 1, "b").say(1, "INSERT", 2, "b", note="m"))
    assert LEFT_OUT == found(shops, 0)


def test_rows_of_two_batches_between_others(shops: Shops) -> None:
    """The check of the whole lake must see what the checks of single batches saw."""
    assert DROPPED == found(shops.say(1, "UPDATE", 1, "b"))
    assert {} == found(shops.say(1, "INSERT", 2, "b", note="m"), 2)
    assert LEFT_OUT == found(shops, 0)


@pytest.mark.parametrize(
    "text",
    [
        "DROP COLUMN Note",
        "DROP note, ADD extra INT",
        "RENAME COLUMN note TO remark",
        "CHANGE note remark varchar(9)",
    ],
)
def test_a_dropped_column_is_no_surprise(text: str, shops: Shops) -> None:
    """Each DROP COLUMN would warn for ever, because the mirror keeps the column."""
    assert {} == found(shops.ddl(f"ALTER TABLE item {text}").say(1, "INSERT", 2, "b"))
    assert {} == found(shops.say(1, "UPDATE", 2, "c"), 2)


def test_a_table_made_again_is_another_one(shops: Shops) -> None:
    """Its columns are those of its CREATE."""
    again = shops.ddl("DROP TABLE item").ddl("CREATE TABLE item (id bigint primary key, text varchar(9))")
    assert {} == found(again.say(1, "INSERT", 2, "b"))


def test_an_added_column_is_no_surprise(tmp_path: Path) -> None:
    """Rows from before it lack it rightly, also those that come late."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    assert {} == found(mine.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "a", note="n"), 0)
    assert {} == found(mine.say(1, "INSERT", 3, "a", at=11))


def test_a_deleted_row_says_nothing(shops: Shops) -> None:
    """A delete may carry its key alone."""
    assert {} == found(shops.say(1, "DELETE", 1, ""))


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("statement", ["ADD note varchar(9)", "ADD note varchar(9) DEFAULT 'n'"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_stream_that_goes_back_before_a_new_column(statement: str, batches: int, tmp_path: Path) -> None:
    """Its repeated rows lack the column rightly, and the run would end with 1 after each restart of the capture."""
    mine = shop(tmp_path)
    mine.say(1, "INSERT", 1, "a", at=10).say(1, "UPDATE", 1, "b", at=11).ddl(
        f"ALTER TABLE item {statement}", at=12
    )
    mine.say(1, "INSERT", 2, "c", at=13, note="n")
    if batches == 2:
        assert {} == found(mine, 0)
    mine.say(1, "UPDATE", 1, "b", at=11).ddl(f"ALTER TABLE item {statement}", at=12)
    assert {} == found(mine.say(1, "INSERT", 2, "c", at=13, note="n"), batches - 1)
    assert {} == found(
        mine.say(1, "UPDATE", 1, "b", at=11), batches
    )  # the repetition has not come to the statement
    assert LEFT_OUT == found(mine.say(1, "UPDATE", 2, "d").say(1, "INSERT", 3, "e", note="n"), batches + 1)


def test_refused_rows_leave_nothing_out(shops: Shops) -> None:
    """The mirror never had them: a check that claims NULLs which are not there is switched off."""
    assert LEFT_OUT == found(shops.say(1, "INSERT", 2, "b").say(1, "INSERT", 3, "b", note="m"))
    [bad] = shops.lake.ask(
        "SELECT * FROM {changes.change} WHERE batch = 2 AND NOT list_contains(json_keys(after), 'note')"
    )
    refused = {"stage": "gold", "kind": "change", "reason": "key-does-not-fit", "batch": 2, "detail": ""}
    place = {name: bad[name] for name in (*rejects.PLACE, "database", "table")}
    folder = shops.folder / "lake" / REJECTS.name
    commit(folder, REJECTS.types, [{**refused, **place}], by=REJECTS.partition_by)
    assert {} == found(shops)


def shareplex(op: str, data: dict[str, str], key: dict[str, str] | None, place: int) -> str:
    """A row of SharePlex."""
    meta = {"op": op, "table": "shop.t", "time": "2022-12-16T07:52:29", "seq": 1, "trans": "x", "rowid": "r"}
    return json.dumps(
        {"data": data, "meta": meta | {"scn": f"1671177149{place:05}"}} | ({"key": key} if key else {})
    )


WITH_KEYS = {
    "the key alone": ({"ID": "1"}, {"N": "b"}, "key_is_full: false"),
    "the key alone, and a changed key": ({"ID": "1"}, {"ID": "9", "N": "b"}, "key_is_full: false"),
    "the row before without a dropped column": (
        {"ID": "1", "N": "a"},
        {"N": "b"},
        "no statement has dropped",
    ),
    "the whole row before": ({"ID": "1", "N": "a", "Z": "z"}, {"N": "b"}, ""),
    "the key alone, and all columns": ({"ID": "1"}, {"N": "b", "Z": "y"}, ""),
}


@pytest.mark.one_of(2, "dialect")
@pytest.mark.parametrize("case", WITH_KEYS)
@pytest.mark.parametrize("dialect", ["oms-shareplex", "dts-shareplex"])
def test_updates_with_the_key_alone_name_the_option(tmp_path: Path, dialect: str, case: str) -> None:
    """Unchanged columns became NULL with a warning at exit 0, which did not name the one option that reads such updates right."""
    key, data, said = WITH_KEYS[case]
    mine = Shops(tmp_path, TableRule(match="*", keys=("ID",)), dialect=dialect, stages=(*STAGES, "quality"))
    mine.lines = [shareplex("ins", {"ID": "1", "N": "a", "Z": "z"}, None, 1)]
    mine.number += 1
    assert ("done", "") == mine.run()
    mine.lines = [shareplex("upd", data, key, 2)]
    mine.number += 1
    assert ("done", "") == mine.run()
    assert mine.result is not None
    told = [text for text in (*mine.result.failures, *mine.result.warnings) if "came without" in text]
    assert bool(said) == bool(told)
    assert all(said in text for text in told)
    assert ("key_is_full" in said) == bool(mine.result.failures), "NULLs that are wrong are no warning"


@pytest.mark.parametrize("key_is_full", [True, False])
def test_a_writer_that_sends_the_key_alone_leaves_nulls_out(tmp_path: Path, key_is_full: bool) -> None:
    """Quest's own SharePlex leaves out a new row's NULLs: each batch of rows with a NULL was called one without the column."""

    class Quest(Shops):
        @property
        def pipeline(self) -> Pipeline:
            made = super().pipeline
            options = Options(key_is_full=key_is_full)
            return replace(made, sources=(replace(made.sources[0], options=options),))

    mine = Quest(
        tmp_path, TableRule(match="*", keys=("ID",)), dialect="dts-shareplex", stages=(*STAGES, "quality")
    )
    for place, row in enumerate([{"ID": "1", "N": "a"}, {"ID": "2"}], start=1):
        mine.lines = [shareplex("ins", row, None, place)]
        mine.number += 1
        assert ("done", "") == mine.run()
    assert mine.result is not None
    told = [text for text in mine.result.warnings if "came without N" in text]
    assert key_is_full == bool(told)


STAGES = ("bronze", "silver", "gold")
