"""Rows that a renamed table had under its old name: after an approved RENAME the mirror of the new name lacks them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.approval import approve_or_dismiss, listed
from ingest.inspect import status
from ingest.quality import left_behind, report
from ingest.quality.report_data import gather
from ingest.quality.stage import last_checked
from ingest.run import Warm
from ingest.tables.schemas import CHECKS
from ingest.tables.tables import LakeReader
from tests.gold.test_late_renames import RENAME, Weak, Yard
from tests.gold.test_swaps import NIGHT, SWAP, Say, changed, created, row, said
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ingest.config import Pipeline
    from ingest.result import Result


def yard_in(folder: Path, kind: type[Yard] = Yard) -> Yard:
    return kind(unstarted(), folder, Warm(), TableRule("yard.*"))


def tell(yard: Yard, *script: Say) -> Result:
    for say in script:
        say(yard)
    return yard.result(checked=True)


def loaded(key: int, table: str = "hall", at: int = 300, keys: Sequence[str] = ("id",)) -> Say:
    """A row of a full load in a dialect without positions."""

    def say(yard: Yard) -> Yard:
        yard.say(
            at, table=table, isDdl=False, type="ROW", data=[{"id": str(key), "n": "7"}],
            mysqlType={"id": "int", "n": "int"}, old=None, pkNames=[*keys], sql="",
        )  # fmt: skip
        return yard

    return say


def reject(yard: Yard) -> Yard:
    """A message that cannot be decoded, so that rows may be lacking and cannot be carried over."""
    yard.messages.append("{")
    return yard


def keyless(table: str, at: int, key: int) -> Say:
    """A row of a table without a key."""
    return changed("INSERT", table, at, [], id=str(key), n="7")


def approve(yard: Yard) -> None:
    """Approve what waits, or what the mirror of the new name has folded only since it was approved."""
    names = {entry.statement.id for entry in listed(yard.lake()) if "RENAME" in entry.statement.text}
    [name] = names
    approve_or_dismiss(yard.lake(), name, "approve", "as it is")


def state(yard: Yard, mirror: str = "yard.hall") -> tuple[str, list[dict[str, Any]]]:
    """The state of a mirror, and its problems."""
    seen = status.status(LakeReader(yard.pipeline))
    [line] = [table for table in seen["tables"] if table["table"] == mirror]
    return line["state"], [cause for cause in seen["causes"] if cause["mirror"] == mirror]


def left_with(yard: Yard, *script: Say) -> dict[str, Any]:
    """The one problem of the mirror after an approved RENAME."""
    assert 1 == tell(yard, *script).exit_code
    approve(yard)
    assert 1 == tell(yard).exit_code, "the mirror lacks rows"
    found, [problem] = state(yard)
    assert ("incomplete", "rows_left_behind") == (found, problem["kind"])
    return problem


PART = [row("hall", 10, 1), row("annex", 110, 5), row("annex", 120, 6), said(200, SWAP), row("hall", 210, 7)]


def test_a_renamed_table_lacks_its_rows_until_they_are_loaded(tmp_path: Path) -> None:
    """After the decision that it asked for, the mirror had the newest rows alone, and every page called it up to date."""
    yard = yard_in(tmp_path, Weak)
    problem = left_with(yard, *PART)
    assert [7] == yard.keys("hall")
    assert "2 rows that came under the old name have not" in problem["text"]
    assert "yard.annex" in problem["text"]
    page = report.page(gather(LakeReader(yard.pipeline)))
    assert "rows_left_behind" in {complaint.check for complaint in page.problems}
    tell(yard, row("hall", 220, 8))
    assert "incomplete" == state(yard)[0], "rows that come are no load"
    tell(yard, loaded(5))
    found, [problem] = state(yard)
    assert "incomplete" == found
    assert "1 row that came under the old name has not" in problem["text"]
    assert 0 == tell(yard, loaded(6), loaded(9)).exit_code
    assert ("ok", []) == state(yard)
    assert [5, 6, 7, 8, 9] == yard.keys("hall")


def test_the_operator_accepts_a_mirror_without_them(tmp_path: Path) -> None:
    """The command in the message was refused, or ended nothing."""
    yard = yard_in(tmp_path)
    problem = left_with(yard, *PART)
    [entry] = [entry for entry in listed(yard.lake()) if entry.mirror == "yard.hall"]
    assert f"ingest ddl approve {yard.pipeline.file} {entry.statement.id}" in problem["text"]
    approve(yard)
    assert ("ok", []) == state(yard)
    assert 0 == tell(yard, row("hall", 220, 8)).exit_code
    assert ("ok", []) == state(yard)


@pytest.mark.parametrize("end", ["TRUNCATE TABLE hall", "CREATE TABLE hall (id INT PRIMARY KEY, n INT)"])
def test_a_table_that_was_emptied_since_lacks_nothing(tmp_path: Path, end: str) -> None:
    """Whatever it had is gone at the source, too."""
    yard = yard_in(tmp_path)
    left_with(yard, *PART)
    assert 0 == tell(yard, said(400, end), row("hall", 410, 9)).exit_code
    assert ("ok", []) == state(yard)


def test_a_mirror_that_was_held_by_late_rows_lacks_them_after_the_decision(tmp_path: Path) -> None:
    """The statement had been applied to an empty table, as it seemed, so that the decision counted as one on what is known."""
    yard = yard_in(tmp_path)
    yard.messages.append("{")
    tell(yard, created("hall", 100), said(200, RENAME), row("annex", 210, 3))
    assert 1 == tell(yard, row("hall", 110, 1), row("annex", 220, 4)).exit_code
    approve(yard)
    tell(yard)
    assert [3, 4] == yard.keys("annex")
    found, problems = state(yard, "yard.annex")
    assert ("incomplete", ["rows_left_behind"]) == (found, [problem["kind"] for problem in problems])
    approve(yard)
    assert ("ok", []) == state(yard, "yard.annex")


def test_a_table_without_a_key(tmp_path: Path) -> None:
    """Its rows are told apart by all their values: as many as it had must have been loaded."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*", no_key="full_row"))
    had = [keyless("hall", 10, 1), keyless("annex", 110, 5), keyless("annex", 120, 6)]
    problem = left_with(yard, *had, said(200, SWAP), keyless("hall", 210, 7))
    assert "2 rows that came under the old name have not" in problem["text"]


def test_rows_that_were_carried_over_are_not_left_behind(tmp_path: Path) -> None:
    """A swap of each night would be complained of each night."""
    yard = yard_in(tmp_path)
    assert 0 == tell(yard, row("hall", 10, 1), *NIGHT).exit_code
    assert ("ok", []) == state(yard)
    assert [5, 6, 7] == yard.keys("hall")


class Bootstrapped(Yard):
    """Read by Maxwell, which marks where a load begins and ends, and gives neither a place among the rows."""

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        made = super().pipeline
        return replace(made, sources=(replace(made.sources[0], format="maxwell"),))


def by_maxwell(kind: str, at: int, table: str = "hall", key: int | None = None, **members: str) -> Say:
    """A message of Maxwell."""

    def say(yard: Yard) -> Yard:
        place = {"ts": 1714521600 + at, "xid": at, "commit": True, "position": f"b.000001:{at}"}
        about = {"database": "yard", "table": table, "type": kind, "data": {} if key is None else {"id": key}}
        yard.messages.append(json.dumps(about | place | members))
        yard.number += 10  # the next batch has a file of its own
        return yard

    return say


def bootstrapped(at: int, *keys: int) -> list[Say]:
    """A load of the table with its marks."""
    rows = [by_maxwell("bootstrap-insert", at, key=key) for key in keys]
    return [by_maxwell("bootstrap-start", at), *rows, by_maxwell("bootstrap-complete", at)]


def test_a_load_of_the_former_table_is_no_load_of_the_renamed_one(tmp_path: Path) -> None:
    """The end of a load that had come before the RENAME, in its batch, ended the complaint before anybody saw it."""
    yard = Bootstrapped(unstarted(), tmp_path, Warm(), TableRule("yard.*", keys=("id",)))
    former = [by_maxwell("insert", 5, "annex", 5), by_maxwell("insert", 6, "annex", 6), *bootstrapped(10, 1)]
    swapped = [by_maxwell("table-alter", 200, sql=SWAP), by_maxwell("insert", 210, key=7)]
    problem = left_with(yard, *former, *swapped)
    assert "2 rows that came under the old name have not" in problem["text"]
    tell(yard, *bootstrapped(300, 5, 7))
    assert ("ok", []) == state(yard), "the marks of a later load say that it was whole"


@pytest.mark.parametrize("kind", [Yard, Weak])
def test_rows_of_an_earlier_table_of_the_old_name(tmp_path: Path, kind: type[Yard]) -> None:
    """They were asked for although they were never in the table that was renamed, after a load of the whole table, too."""
    yard = yard_in(tmp_path, kind)
    assert 0 == tell(yard, row("hall", 10, 1), row("annex", 90, 2)).exit_code
    again = [said(100, "DROP TABLE annex"), created("annex", 105), reject, row("annex", 110, 5)]
    problem = left_with(yard, *again, said(200, SWAP), row("hall", 210, 7))
    assert "1 row that came under the old name has not" in problem["text"]
    if kind is Weak:
        tell(yard, loaded(5), loaded(7))
        assert ("ok", []) == state(yard)


def test_rows_without_a_key_that_were_removed_from_the_old_name(tmp_path: Path) -> None:
    """They were counted as rows that the renamed table had."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*", no_key="full_row"))
    assert 0 == tell(yard, keyless("hall", 10, 1), keyless("annex", 90, 2), keyless("annex", 91, 3)).exit_code
    emptied = [said(100, "TRUNCATE TABLE annex"), reject, keyless("annex", 110, 5)]
    problem = left_with(yard, *emptied, said(200, SWAP), keyless("hall", 210, 7))
    assert "1 row that came under the old name has not" in problem["text"]
    tell(yard, loaded(5, keys=()), loaded(7, keys=()))
    assert ("ok", []) == state(yard)


def test_a_row_that_has_another_key_under_the_new_name_has_come(tmp_path: Path) -> None:
    """It was asked for under its old key, which no load has any more."""
    yard = yard_in(tmp_path, Weak)
    left_with(yard, *PART)
    tell(yard, changed("UPDATE", "hall", 220, ["id"], old={"id": "5"}, id="50", n="7"))
    assert "1 row that came under the old name has not" in state(yard)[1][0]["text"]
    tell(yard, loaded(6), loaded(7), loaded(50))
    assert ("ok", []) == state(yard)
    assert [6, 7, 50] == yard.keys("hall")


def test_a_row_without_a_key_that_was_changed_under_the_new_name_has_come(tmp_path: Path) -> None:
    """Only rows of loads counted, so that a load of the rest was never enough."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*", no_key="full_row"))
    had = [keyless("hall", 10, 1), *(keyless("annex", 100 + key, key) for key in (4, 5, 6, 8))]
    changed_first = changed("UPDATE", "annex", 150, [], old={"id": "4"}, id="14", n="7")
    left_with(yard, *had, changed_first, said(200, SWAP), keyless("hall", 210, 7))
    tell(
        yard,
        changed("UPDATE", "hall", 220, [], old={"n": "7"}, id="5", n="8"),
        changed("DELETE", "hall", 230, [], id="14", n="7"),
        keyless("hall", 240, 6),
        keyless("hall", 250, 9),
    )
    assert "1 row that came under the old name has not" in state(yard)[1][0]["text"]
    tell(yard, loaded(8, keys=()))
    assert ("ok", []) == state(yard)


@pytest.mark.parametrize("sql", [SWAP, "RENAME TABLE annex TO hall"])
def test_a_mirror_that_both_names_feed_has_kept_the_rows(tmp_path: Path, sql: str) -> None:
    """It was called incomplete for rows that were there; a new table of the old name takes them away."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*", into="all.hall"))
    assert (
        1
        == tell(
            yard, row("annex", 110, 5), row("annex", 120, 6), said(200, sql), row("hall", 210, 7)
        ).exit_code
    )
    approve(yard)
    assert 0 == tell(yard).exit_code
    assert ("ok", []) == state(yard, "all.hall")
    assert [5, 6, 7] == keys_of_all(yard)
    assert 1 == tell(yard, created("annex", 300), row("annex", 310, 8)).exit_code
    assert [7, 8] == keys_of_all(yard)
    assert "2 rows that came under the old name have not" in state(yard, "all.hall")[1][0]["text"]
    tell(yard, loaded(5), loaded(6))
    assert ("ok", []) == state(yard, "all.hall")


def keys_of_all(yard: Yard) -> list[int]:
    """The keys of the mirror that several tables feed."""
    return [
        row["id"] for row in yard.lake().ask_mirror("mirrors/all/hall", "SELECT id FROM {mirror} ORDER BY id")
    ]


def test_names_that_a_shard_column_tells_apart(tmp_path: Path) -> None:
    """The rows under the old name are not those of the new one."""
    yard = Weak(unstarted(), tmp_path, Warm(), TableRule("yard.*", into="all.hall", shard_column="src"))
    assert 1 == tell(yard, *PART).exit_code
    approve(yard)
    assert 1 == tell(yard).exit_code
    assert "2 rows that came under the old name have not" in state(yard, "all.hall")[1][0]["text"]


def test_an_equal_comparison_ends_it_only_after_the_statement(tmp_path: Path) -> None:
    """One that was made while the mirror was held, so without the statement, ended the complaint before anybody saw it."""
    yard = yard_in(tmp_path, Weak)
    assert 1 == tell(yard, *PART).exit_code
    compared_equal(yard)
    approve(yard)
    assert 1 == tell(yard).exit_code
    assert "incomplete" == state(yard)[0]
    compared_equal(yard)
    assert 0 == tell(yard, row("hall", 220, 8)).exit_code
    assert ("ok", []) == state(yard)


def compared_equal(yard: Yard) -> None:
    """A comparison with the source in which every row was equal."""
    lake = yard.lake()
    look = {
        "run": "r", "batch": last_checked(lake), "mirror": "yard.hall", "check": "reconcile", "severity": "warn", "state": "pass",
        "observed": 0.0, "checked_at": lake.now(),
    }  # fmt: skip
    lake.append_unguarded([tuple((dict.fromkeys(CHECKS.arrow.names) | look).values())], CHECKS)


def test_the_rows_of_both_names_are_not_counted_again_once_none_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run read the whole history of both names, for ever."""
    yard = yard_in(tmp_path, Weak)
    left_with(yard, *PART)
    tell(yard, loaded(5), loaded(6))
    assert ("ok", []) == state(yard)
    monkeypatch.setattr(left_behind, "_left", lambda *_: pytest.fail("counted again"))
    monkeypatch.setattr(left_behind, "_is_over", lambda *_: pytest.fail("looked for again"))
    assert 0 == tell(yard, row("hall", 400, 20)).exit_code
    assert ("ok", []) == state(yard)
