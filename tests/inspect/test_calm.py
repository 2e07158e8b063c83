"""The list of problems after each of a few days: no alarm without a cause, and a way out of each that leads out."""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet import Clock, Plant, typed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves."""
    return Clock(monkeypatch, dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC))


def begun(plant: Plant, *tables: str) -> Plant:
    """A pipeline whose tables have three days of rows, in one batch."""
    plant.begin()
    plant.tables |= {name: {} for name in tables}
    ran(plant, 0)
    return plant


def ran(plant: Plant, day: int) -> set[str]:
    """The kinds of problems after another day."""
    plant.ordinary(day)
    plant.deliver()
    code, out = typed(f"ingest run {shlex.quote(str(plant.file))}")
    assert code in (0, 1), out
    plant.clock.next_day()
    return {one["kind"] for one in plant.problems()}


@pytest.mark.parametrize("dialect", ["dts-canal", "debezium with schema"])
def test_the_message_that_was_missing_comes_late(dialect: str, clock: Clock, tmp_path: Path) -> None:
    """The alarm stayed although the change that it missed had come, and its chain closed: for ever, on a right mirror."""
    plant = begun(Plant(dialect, tmp_path / "p", clock, columns=dialect != "dts-canal"), "bins")
    plant.update("bins", 1, word="first")
    first = [message.value or b"" for message in plant.taken()]
    plant.update("bins", 1, word="second")
    second = [message.value or b"" for message in plant.taken()]
    plant.update("bins", 3, word="third")
    third = [message.value or b"" for message in plant.taken()]
    plant.update("bins", 1, word="last")
    assert {"images_before"} == ran(plant, 1)
    plant.land(*third)
    assert {"images_before"} == ran(plant, 2), "another change that was late repairs nothing"
    plant.land(*first)
    assert {"images_before"} == ran(plant, 3), "one of two is still missing"
    plant.land(*second)
    assert set() == ran(plant, 4)
    assert set() == plant.differences()


def test_an_insert_of_an_upsert_stream_begins_a_whole_row(clock: Clock, tmp_path: Path) -> None:
    """Each new row was called incomplete in dialects whose rows may lack columns: a warning with every batch."""
    plant = Plant("maxwell with position", tmp_path / "p", clock, {"inserts": "upsert"}, columns=True)
    begun(plant, "bins")
    plant.load("bins", kind="insert")
    assert set() == ran(plant, 1)
    assert set() == plant.differences()


def test_a_table_that_sends_no_more_does_not_grow_old(clock: Clock, tmp_path: Path) -> None:
    """A mirror that was dropped, or whose table is excluded, failed `freshness:` every day from then on."""
    plant = begun(Plant("drs-json", tmp_path / "p", clock, columns=True), "bins", "boxes", "racks")
    plant.rewrite("tables:\n", "tables:\n  - {match: depot.boxes, exclude: true}\n")
    plant.quiet = {"boxes", "racks"}
    assert {"excluded"} == ran(plant, 1), (
        "what was decoded of a table that is excluded now is no other setting"
    )
    for day in (2, 3):
        ran(plant, day)
    listed = {(one["kind"], one["mirror"]): one["command"] for one in plant.problems()}
    assert {("excluded", "depot.boxes"), ("freshness", "depot.racks")} == listed.keys(), listed
    assert [] == [one["kind"] for one in plant.problems() if not one["since"]], "nobody knows since when"
    page = plant.folder / "page.html"
    typed(f"ingest report {plant.file} --out {page}")
    assert 1 == page.read_text("utf-8").count("<strong>The newest change is old</strong>"), (
        "the report has one list, too"
    )
    assert 0 == typed(listed["excluded", "depot.boxes"])[0]
    plant.quiet = {"boxes"}
    assert set() == ran(plant, 4)


def test_times_of_another_unit_are_said_since_the_batch_that_brought_them(
    clock: Clock, tmp_path: Path
) -> None:
    """Who looks at a lag of half a century wants to know which release of the source began it."""
    plant = Plant("dts-canal", tmp_path / "p", clock)
    plant.begin()
    plant.tables |= {"bins": {}}
    plant.ordinary(0)
    for message in plant.taken():
        sent = json.loads(message.value or b"")
        plant.land(json.dumps(sent | {"es": sent["es"] // 1000}).encode())  # seconds
    began = clock.now()
    code, out = typed(f"ingest run {shlex.quote(str(plant.file))}")
    assert code in (0, 1), out
    clock.next_day()
    typed(f"ingest run {shlex.quote(str(plant.file))}")
    [problem] = [one for one in plant.problems() if one["kind"] == "misdated"]
    assert f"{began:%Y-%m-%dT%H:%M}" == problem["since"][:16]


def land_ahead(plant: Plant) -> None:
    """Let what the source did arrive with times of 500 days later."""
    for message in plant.taken():
        sent = json.loads(message.value or b"")
        plant.land(json.dumps(sent | {"es": sent["es"] + 500 * 86_400_000}).encode())


def test_a_row_whose_clock_is_ahead_is_said_and_hides_no_lag(clock: Clock, tmp_path: Path) -> None:
    """One row of next year made its mirror fresh until then: a negative lag, `freshness:` silent, and nothing listed."""
    plant = begun(Plant("dts-canal", tmp_path / "p", clock), "bins")
    plant.insert("bins", 77)
    land_ahead(plant)
    began = clock.now()
    assert 0 == typed(f"ingest run {plant.file}")[0]
    [problem] = plant.problems()
    assert ("ahead", "depot.bins", "warn") == (problem["kind"], problem["mirror"], problem["severity"])
    assert "is dated `2027-07-16 06:00" in problem["text"]
    assert f"{began:%Y-%m-%dT%H:%M}" == problem["since"][:16]
    code, out = typed(f"{problem['command']} --output json")
    assert (0, 1) == (code, out.count("2027-07-16")), out
    said = plant.status()
    assert ["ok"] == [row["state"] for row in said["tables"]], "its cells are right"
    assert 0 < said["tables"][0]["lag_seconds"] < 2 * 86_400, "by its other rows"
    clock.ahead += dt.timedelta(days=4)
    assert {"ahead", "freshness"} == {one["kind"] for one in plant.problems()}, "the others have stopped"
    assert 0 == typed(f"ingest alerts ack {plant.file} {problem['id']} --reason known")[0]
    plant.insert("bins", 78)
    land_ahead(plant)
    assert 1 == typed(f"ingest run {plant.file}")[0], "the check itself judges by the others, too"
    assert {"freshness"} == {one["kind"] for one in plant.problems()}, "such a row is known"


def test_a_table_that_is_taken_back_says_which_rows_it_lacks(clock: Clock, tmp_path: Path) -> None:
    """It was called up to date without the rows that had come meanwhile; only its source was said to be decoded otherwise."""
    plant = begun(Plant("dts-canal", tmp_path / "p", clock), "bins", "boxes")
    rule = "  - {match: depot.boxes, exclude: true}\n"
    plant.rewrite("tables:\n", f"tables:\n{rule}")
    ran(plant, 1)
    plant.rewrite(rule, "")
    for day in (2, 3):  # before and after a batch with its changes
        [problem] = plant.problems()
        assert ("left_out", "depot.boxes", "error") == (
            problem["kind"],
            problem["mirror"],
            problem["severity"],
        )
        assert f"ingest backfill {plant.file} --from-batch 2" == problem["command"]
        assert "came in batch 2 of source feed" in problem["text"]
        assert {"depot.bins": "ok", "depot.boxes": "suspect"} == {
            row["table"]: row["state"] for row in plant.status()["tables"]
        }
        assert plant.differences()
        if day == 2:
            ran(plant, day)


def test_a_reject_says_how_it_is_closed(clock: Clock, tmp_path: Path) -> None:
    """The list leads to the reject, and there the trail ended."""
    plant = begun(Plant("drs-json", tmp_path / "p", clock, columns=True), "bins")
    plant.land(b'{"broken": ')
    assert {"reject_rate"} == ran(plant, 1)
    code, out = typed(f"ingest rejects show {plant.file} 1")
    file = plant.file
    said = f"next: ingest replay {file}, or ingest rejects dismiss {file} 1 --reason bad-json\n"
    assert (0, True) == (code, said in out), out
    assert 0 == typed(said.strip().rpartition(", or ")[2])[0]
    assert [] == plant.problems()
    assert "next:" not in typed(f"ingest rejects show {file} 1")[1]


@pytest.mark.parametrize("way", [0, 1], ids=["approved", "dismissed"])
def test_a_statement_that_cannot_be_read_is_one_problem_with_a_way_out(
    clock: Clock, tmp_path: Path, way: int
) -> None:
    """One statement was two problems, and the command of the first, a report, led nowhere."""
    plant = begun(Plant("dts-canal", tmp_path / "p", clock), "bins")
    plant.emit("alter", "bins", None, None, "ALTER TABLE bins FROBNICATE word")
    plant.quiet = {"bins"}
    assert {"unknown_values"} == ran(plant, 1)
    [problem] = plant.problems()
    assert (f"ingest ddl {plant.file}", "depot.bins") == (problem["command"], problem["mirror"])
    assert f"`ingest ddl approve {plant.file} " in problem["text"]
    code, out = typed(problem["command"])
    assert 0 == code, out
    assert 0 == typed(out.strip().rpartition("next: ")[2].split(", or ")[way])[0]
    assert 0 == typed(f"ingest run {plant.file}")[0]
    assert [] == plant.problems()
    assert set() == plant.differences()


def test_a_new_schedule_has_its_time(clock: Clock, tmp_path: Path) -> None:
    """A schedule that is written into the file of an old lake was overdue at once."""
    plant = Plant("dts-canal", tmp_path / "p", clock)
    plant.begin()
    plant.tables |= {"bins": {}}
    assert set() == ran(plant, 0)
    clock.ahead += dt.timedelta(days=1)
    database = '"database": {"url": "mysql://127.0.0.1:1", "user": "reader", "reconcile_every": "20h"}'
    plant.rewrite('"settle": "1s"', f'"settle": "1s", {database}')
    os.utime(plant.file, (clock.now().timestamp(),) * 2)
    assert set() == ran(plant, 2)
    clock.ahead += dt.timedelta(days=1)
    os.utime(plant.file, (clock.now().timestamp(),) * 2)  # whatever deploys the file writes it each day
    assert {"not_compared"} == ran(plant, 3)


def test_a_comparison_that_no_schedule_makes_is_said(clock: Clock, tmp_path: Path) -> None:
    """A timer that is gone, or a password that is wrong for days, was in no list: everybody took the mirrors for proven."""
    plant = Plant("dts-canal", tmp_path / "p", clock)
    plant.begin()
    database = '"database": {"url": "mysql://127.0.0.1:1", "user": "reader", "reconcile_every": "20h"}'
    plant.rewrite('"settle": "1s"', f'"settle": "1s", {database}')
    plant.tables |= {"bins": {}}
    assert set() == ran(plant, 0), "it is due, and may be under way"
    assert {"not_compared"} == ran(plant, 1)
    [problem] = plant.problems()
    assert f"ingest reconcile {shlex.quote(str(plant.file))} --due --source=feed" == problem["command"]
    assert problem["text"].startswith(
        "depot.bins was not compared with the database of source feed since 2026-03-02 09:0"
    )
    assert ("2026-03-02T09:0", "warn") == (problem["since"][:15], problem["severity"])
    code, out = typed(problem["command"])
    assert (2, True) == (code, "127.0.0.1:1" in out), "the command says what is wrong"


def test_a_limit_of_age_counts_as_soon_as_it_is_written(clock: Clock, tmp_path: Path) -> None:
    """Of a stream that had stopped, a new `freshness:` said nothing until the next batch, for which it was meant."""
    plant = begun(Plant("dts-canal", tmp_path / "p", clock), "bins")
    clock.next_day()
    plant.rewrite("freshness: 60h", "cells_checked: 5")
    assert [] == plant.problems()
    plant.rewrite("cells_checked: 5", "freshness: 2h")
    [problem] = plant.problems()
    assert ("freshness", "depot.bins", "error") == (problem["kind"], problem["mirror"], problem["severity"])
    assert "`freshness:` allows 2 h" in problem["text"]
    assert problem["since"]
    plant.rewrite("freshness: 2h", "freshness: 80h")
    assert [] == plant.problems()


def test_a_table_that_the_source_has_dropped_does_not_grow_old(clock: Clock, tmp_path: Path) -> None:
    """Its mirror stays as it was, as its line says, and failed `freshness:` every day from then on."""
    plant = begun(Plant("dts-canal", tmp_path / "p", clock), "bins", "boxes", "racks")
    plant.emit("drop", "boxes", None, None, "DROP TABLE boxes")
    plant.quiet = {"boxes", "racks"}
    for day in (1, 2, 3):
        ran(plant, day)
    aged = [one["mirror"] for one in plant.problems() if one["kind"] == "freshness"]
    assert ["depot.racks"] == aged


def broken(plant: Plant) -> str:
    """A line that is no message."""
    plant.land(b'{"broken": ')
    return "reject_rate"


def lost(plant: Plant) -> str:
    """A change that never arrives, and one that shows it."""
    plant.update("bins", 1, word="lost")
    plant.taken()
    plant.update("bins", 1, word="after")
    return "images_before"


def refused(plant: Plant) -> str:
    """A change whose key is no number."""
    plant.insert("bins", 555)
    key = f'"abc{plant.number}"'.encode()
    plant.land(*((message.value or b"").replace(b"555", key, 1) for message in plant.taken()))
    del plant.tables["bins"]["555"]
    return "refused_changes"


def reconfigured(plant: Plant) -> str:
    """Another option of the source."""
    plant.rewrite('"options": {', '"options": {"inserts": "upsert"')
    return "decoded_before"


@pytest.mark.parametrize("faults", [(broken, lost, refused), (reconfigured,)])
def test_an_acknowledgement_outlives_ordinary_days(
    faults: tuple[Callable[[Plant], str], ...], clock: Clock, tmp_path: Path
) -> None:
    """The list counted all messages, and named a command for one batch more each day: what was acknowledged rang again."""
    plant = begun(Plant("oms-default", tmp_path / "p", clock, columns=True), "bins")
    kinds = {fault(plant) for fault in faults}
    assert kinds == ran(plant, 1)
    for problem in plant.problems():
        words = f"{shlex.quote(str(plant.file))} {problem['id']} --reason known"
        assert 0 == typed(f"ingest alerts ack {words}")[0]
    for day in (2, 3):
        assert set() == ran(plant, day)
    assert kinds == {problem["kind"] for problem in plant.status()["causes"]}
    assert 0 == typed(f"ingest run {shlex.quote(str(plant.file))}")[0]
    again = {fault(plant) for fault in faults if fault in (broken, refused)}  # and another one
    assert not again or again == ran(plant, 4)
