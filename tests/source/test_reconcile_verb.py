"""What `ingest reconcile` says, keeps and repairs."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from ingest.change import Change, Hints, Message, Op
from ingest.config import load
from ingest.errors import IngestError
from ingest.fold import Placed, fold
from ingest.formats import ingest_snapshot
from ingest.inspect import due
from ingest.ledgers import decisions
from ingest.ledgers.decisions import SCHEDULE, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.order import Order
from ingest.source import reconcile as comparing
from ingest.tables import records
from ingest.tables.schemas import CHECKS
from ingest.tables.tables import LakeReader
from tests.fleet import Clock
from tests.source import duck_source
from tests.source.bins import BINS, Bins

LONG_AGO = dt.datetime.fromisoformat("2024-05-01")  # as the lake's tables have it


def test_the_verb_says_both_values_the_cause_and_the_next_command(bins: Bins) -> None:
    """A difference without its values and its history cannot be acted on."""
    bins.rows[-3] = ("surplus", 0.0)
    bins.rows[4] = ("wrong", 0.5)
    bins.mirror()
    done = bins.type("shop.bins", "--settled")
    assert 1 == done.exit_code
    assert "different: shop.bins id=4: word: source 'w4', mirror 'wrong'. " in done.stdout
    assert f"ingest explain {bins.file} shop.bins 4" in done.stdout.replace("\n", "")
    assert f"explain {bins.file} shop.bins -- -3" in done.stdout.replace("\n", "")
    assert "was not written by this pipeline" in " ".join(done.stdout.split()), "which is the likeliest cause"
    assert "--repair" in done.stderr


def test_the_outcome_is_kept_for_the_report(bins: Bins) -> None:
    """A difference that only the terminal showed is forgotten with it."""
    bins.rows[4] = ("wrong", 0.5)
    bins.mirror()
    assert 1 == bins.type("--settled", "--output", "json").exit_code
    query = 'SELECT "check", state, observed, failing, mirror FROM {checks} ORDER BY checked_at'
    lake = LakeReader(load(bins.file))
    assert [("reconcile", "fail", 1.0, '["{\\"id\\":\\"4\\"}"]', "shop.bins")] == [
        tuple(row.values()) for row in lake.ask(query)
    ]
    bins.rows[4] = ("w4", 0.5)
    bins.mirror()
    done = bins.type("--output", "json")
    assert (0, True) == (done.exit_code, json.loads(done.stdout)["tables"][0]["equal_to_source"])
    assert ["fail", "pass"] == [row["state"] for row in lake.ask(query)]


def test_rows_on_their_way_have_an_exit_code_of_their_own(bins: Bins) -> None:
    """A job that alarms while the stream is late alarms every night."""
    bins.rows[4] = ("late", 0.5)
    bins.mirror()
    done = bins.type()
    assert 3 == done.exit_code
    assert "not judged" in done.stdout
    bins.mirror(reached="2024-05-01T00:00:30")  # the stream has passed the look
    assert 1 == bins.type().exit_code


def test_a_table_that_could_not_be_compared_has_an_exit_code_of_its_own(bins: Bins) -> None:
    """A job that takes "could not look" for "they differ" reads tables again that are equal."""
    bins.rows[4] = ("wrong", 0.5)
    bins.mirror()
    done = bins.type("shop.bins", "shop.nope", "--settled")
    assert 2 == done.exit_code
    assert 1 == done.stderr.count("There is no mirror of shop.nope")
    assert f"`ingest snapshot {bins.file} shop.nope`" in done.stderr
    assert "different: shop.bins id=4" in done.stdout
    assert 2 == bins.type("shop.nope", "shop.bins", "--settled").exit_code


def test_a_column_that_waits_for_no_decision_is_not_called_so(bins: Bins) -> None:
    """The list of statements is empty, and the reader of the hint is lost."""
    bins.mirror({"id": "int64", "word": "string"})
    done = bins.type("--settled")
    said = " ".join(done.stderr.split())
    assert 1 == done.exit_code
    assert "ingest ddl" not in said
    assert (
        f"They come with the next change that has them, or by `ingest snapshot {bins.file} shop.bins`" in said
    )


def test_rows_without_a_key_are_compared_by_their_values(bins: Bins) -> None:
    """Zeros in all columns of the result say that nothing differs, and a repair that does nothing says that all is well."""
    bins.rows[3], bins.rows[5], bins.rows[-1] = ("w4", 0.5), ("w7", 0.875), ("w7", 0.875)
    bins.mirror(keys=())
    done = bins.type("--settled", "--repair", "--output", "json")
    [one] = json.loads(done.stdout)["tables"]
    assert (1, 2, 3, 0, 2000, 2001) == (
        done.exit_code, *map(one.get, ("missing", "surplus", "different", "rows", "mirror_rows"))
    )  # fmt: skip
    said = " ".join(bins.type("--settled", "--repair").stderr.split())
    assert (
        "shop.bins has no key, so its rows were compared by all their values: 2 of the source are not in the mirror"
        in said
    )
    assert "and 3 of the mirror not in the source. No single row can be read again: `ingest snapshot" in said
    assert "next:" not in said
    assert [] == list(bins.file.parent.glob("lake/snapshots/**/*.jsonl"))
    query = "SELECT state, observed, detail FROM {checks} ORDER BY checked_at"
    [row, _] = LakeReader(load(bins.file)).ask(query)
    assert ("fail", 5.0) == (row["state"], row["observed"])
    assert "2,000 rows without a key in" in row["detail"]


def test_equal_rows_without_a_key_are_counted(bins: Bins) -> None:
    """Two equal rows and one are not the same table."""
    bins.write(
        "CREATE OR REPLACE TABLE bins AS SELECT 1::BIGINT AS id, 'w' AS word, 1.5::DOUBLE AS size FROM range(5)"
    )
    bins.rows = dict.fromkeys((1,), ("w", 1.5))
    bins.mirror(keys=())
    done = bins.compare()
    assert ({"missing": 4}, 5, 1) == (done.unkeyed, done.rows, done.mirror_rows)
    bins.write("DELETE FROM bins; INSERT INTO bins VALUES (1, 'w', 1.5)")
    assert not bins.compare().differs


def test_rows_without_a_key_wait_for_the_stream(bins: Bins) -> None:
    """A row in flight reported as lost has the whole table read again for nothing."""
    bins.rows[4] = ("late", 0.5)
    bins.mirror(keys=())
    done = bins.type("--output", "json")
    assert (3, 2) == (done.exit_code, json.loads(done.stdout)["tables"][0]["not_judged"])
    bins.mirror(keys=(), reached="2024-05-01T00:00:30")
    assert 1 == bins.type().exit_code

    def arrive(_mirror: str) -> dt.datetime:
        bins.rows[4] = ("w4", 0.5)
        bins.mirror(keys=())
        return dt.datetime.fromisoformat("2024-05-01T00:00:30")

    late = bins.compare(settled=False, passed=arrive)
    assert (False, 2, 0) == (late.differs, late.on_the_way, late.waiting)


def test_a_repair_is_messages_and_never_a_write(bins: Bins) -> None:
    """A write to the mirror or the source that bypasses the stream could not be explained later."""
    bins.rows[-3] = ("surplus", 0.0)
    del bins.rows[6]
    bins.mirror()
    mirror = Path(load(bins.file).lake) / "mirrors"
    before = sorted((str(one), one.stat().st_mtime_ns) for one in mirror.rglob("*"))
    assert 1 == bins.type("--settled", "--repair").exit_code
    assert before == sorted((str(one), one.stat().st_mtime_ns) for one in mirror.rglob("*"))
    changes = [
        change
        for file in sorted(bins.file.parent.glob(f"lake/snapshots/shop/*/*{ingest_snapshot.SUFFIX}"))
        for line in file.read_bytes().splitlines()
        for change in ingest_snapshot.parse(Message(line), Hints())
    ]
    assert [("delete", {"id": "-3"}), ("read", {"id": "6", "word": "w6", "size": "0.75"})] == [
        (one.op.value, dict(one.after or one.before or {})) for one in changes
    ]
    assert {(5, 5, 2)} == {one.sequence for one in changes}  # right after the newest change of the stream
    bins.write("UPDATE bins SET word = 'newer' WHERE id = 6")
    assert 1 == bins.type("--settled", "--repair").exit_code
    [again] = list(bins.file.parent.glob("lake/snapshots/shop/*-3/chunk-000002*"))
    [row] = ingest_snapshot.parse(Message(again.read_bytes().strip()), Hints())
    # it wins, although none has landed
    assert ((5, 5, 3), "newer") == (row.sequence, (row.after or {})["word"])


def test_a_comparison_is_due_after_a_while(bins: Bins) -> None:
    """A schedule that compares everything each time reads the source day and night."""
    text = bins.file.read_text("utf-8")
    bins.file.write_text(
        text.replace("user: reader", "user: reader, reconcile_every: 1h, connections: 1"), "utf-8"
    )
    bins.mirror()
    tables = [len(json.loads(bins.type("--due", "--output", "json").stdout)["tables"]) for _ in range(2)]
    assert [1, 0] == tables
    bins.file.write_text(text, "utf-8")
    assert 1 == len(json.loads(bins.type("--due", "--output", "json").stdout)["tables"])


def scheduled(bins: Bins, rule: str = "") -> LakeReader:
    """A lake of which each mirror is to be compared once an hour, as a run has seen it just now."""
    text = bins.file.read_text("utf-8").replace(
        "user: reader", "user: reader, reconcile_every: 1h, connections: 1"
    )
    bins.file.write_text(f"mask_secret: 0123456789abcdef\n{text}", "utf-8")
    if rule:
        bins.rule(rule)
    bins.mirror()
    lake = LakeReader(load(bins.file))
    decisions.append_alone(lake, Decision(SCHEDULE, "shop", {"every": 3600.0}))
    return lake


def test_an_overdue_comparison_is_a_problem_until_it_is_made(
    bins: Bins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that a problem names must end it, and one that cannot be made must not be asked for."""
    lake = scheduled(bins)
    assert 0 == bins.type("--settled").exit_code
    assert [] == list(due.overdue(lake))
    clock = Clock(monkeypatch, dt.datetime.now(dt.UTC) + dt.timedelta(hours=3))
    [late] = due.overdue(lake)
    assert (("shop.bins",), 3600.0) == (late.mirrors, late.every)
    assert [] == list(due.overdue(lake, {"shop.bins"})), "its table is gone"
    clock.ahead -= dt.timedelta(hours=3)  # outcomes have the real time
    assert 0 == bins.type("--due", "--source=shop", "--settled").exit_code
    clock.ahead += dt.timedelta(hours=1, minutes=59)
    assert [] == list(due.overdue(lake))


def test_a_schedule_is_overdue_by_the_time_that_a_run_saw_it(
    bins: Bins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that was compared by hand in May was overdue the moment that a schedule was written in June."""
    lake = scheduled(bins)
    old = {"mirror": "shop.bins", "state": "pass", "checked_at": LONG_AGO}
    monkeypatch.setattr(due, "_last", lambda _lake: {"shop.bins": old})
    clock = Clock(monkeypatch, dt.datetime.now(dt.UTC) + dt.timedelta(hours=1, minutes=59))
    assert [] == list(due.overdue(lake))
    clock.ahead += dt.timedelta(minutes=2)
    os.utime(bins.file, (clock.now().timestamp(),) * 2)  # whatever deploys the file writes it each hour
    assert 1 == len(list(due.overdue(lake)))
    bins.file.write_text(
        bins.file.read_text("utf-8").replace("reconcile_every: 1h", "reconcile_every: 1m"), "utf-8"
    )
    assert [] == list(due.overdue(LakeReader(load(bins.file)))), "no run has seen the new one"


@pytest.mark.parametrize("incomparable", ["masked", "soft", "type"])
def test_a_key_that_cannot_be_compared_is_not_asked_for_again_and_again(
    bins: Bins, monkeypatch: pytest.MonkeyPatch, incomparable: str
) -> None:
    """The command of the problem failed each time, and nothing but an acknowledgement ended the problem."""
    rule = "match: shop.bins, mask: {id: hmac}" if incomparable == "masked" else ""
    lake = scheduled(bins, rule)
    if incomparable == "soft":
        monkeypatch.setattr(Mirror, "soft", True)
    if incomparable == "type":
        real = duck_source.table
        monkeypatch.setattr(
            duck_source, "table",
            lambda *given: (table := real(*given)) and replace(
                table, columns=tuple(column._replace(comparable=column.name != "id") for column in table.columns)
            ),
        )  # fmt: skip
    monkeypatch.setattr(due, "_begun", lambda _lake: {"shop.bins": LONG_AGO})
    clock = Clock(monkeypatch, dt.datetime.now(dt.UTC) + dt.timedelta(hours=3))
    assert (incomparable == "type") == bool(list(due.overdue(lake))), "what the lake knows is not asked for"
    clock.ahead -= dt.timedelta(hours=3)
    done = bins.type("--due", "--source=shop", "--settled")
    assert (0, True) == (done.exit_code, "shop.bins" in done.stderr), done.output
    clock.ahead += dt.timedelta(minutes=59)
    done = bins.type("--due", "--source=shop", "--settled")
    assert (0, "") == (done.exit_code, done.stderr), "it is due in an hour again"
    clock.ahead += dt.timedelta(hours=1)
    assert [] == list(due.overdue(lake))
    assert 2 == bins.type("shop.bins").exit_code, "who asks for it by name has not got it"


def test_overdue_comparisons_cost_no_question_for_each_table(
    bins: Bins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ingest status` of 300 tables read the books 600 times, as soon as there was a schedule."""
    lake = scheduled(bins)
    monkeypatch.setattr(due, "_begun", lambda _lake: {"shop.bins": LONG_AGO})
    Clock(monkeypatch, dt.datetime.now(dt.UTC) + dt.timedelta(hours=3))
    asked = list[str]()
    real = LakeReader.ask
    monkeypatch.setattr(
        LakeReader, "ask", lambda self, query, *rest: asked.append(query) or real(self, query, *rest)
    )
    counts = []
    for tables in (1, 20):
        monkeypatch.setattr(comparing, "tables_of", lambda *_, tables=tables: [BINS] * tables)
        asked.clear()
        assert 1 == len(list(due.overdue(lake)))
        counts.append(len(asked))
    assert counts[0] >= counts[1]


def test_a_question_that_fails_is_asked_again_and_then_ends_in_one_sentence(
    bins: Bins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short cut of the network must not cost an hour of comparing, nor pass as equal."""
    bins.mirror()
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    real, failures = duck_source.values, [0, 1]

    def values(connection: Any, query: str) -> list[tuple[Any, ...]]:
        if "SUM(d)" in query and failures[0] < failures[1]:
            failures[0] += 1
            raise duckdb.Error("the query took longer than\n600 seconds")
        return real(connection, query)

    monkeypatch.setattr(duck_source, "values", values)
    assert not bins.compare().differs
    failures[:] = [0, 1000]
    with pytest.raises(
        IngestError, match="here:3306 failed: the query took longer than 600 seconds"
    ) as caught:
        bins.compare()
    assert "\n" not in str(caught.value)


def test_a_database_that_cannot_be_reached_is_a_sentence_without_the_password(tmp_path: Path) -> None:
    """A password in a log is a password lost; a traceback says nothing of what to correct."""
    bins = Bins(tmp_path)
    text = bins.file.read_text("utf-8").replace("here:3306", "127.0.0.1:1")
    bins.file.write_text(text.replace("user: reader", "user: reader, password: hunter2-x"), "utf-8")
    bins.mirror()
    done = bins.type("shop.bins")
    assert 2 == done.exit_code
    assert "at 127.0.0.1:1 cannot be reached: Connection refused. Look at url" in " ".join(
        done.stderr.split()
    )
    assert "hunter2-x" not in done.stdout + done.stderr


def test_null_in_a_key_is_named(bins: Bins) -> None:
    """Rows that are in no range would never be compared."""
    bins.mirror()
    bins.write("INSERT INTO bins VALUES (NULL, 'nowhere', 1)")
    with pytest.raises(IngestError, match="NULL in a column of its key"):
        bins.compare()


def test_the_report_shows_the_comparison_next_to_the_checks_of_each_batch(bins: Bins) -> None:
    """The newest checks alone would hide all others after a comparison, and the comparison after the next batch."""
    from ingest.inspect.status import verdicts
    from ingest.quality.report_data import gather

    def checked(year: int, *names: str) -> None:
        at = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
        rows = [
            ("run", 1, "shop.bins", name, None, "error", "pass", 0.0, "0.0", "", at, None, None, None, None)
            for name in names
        ]
        records.append(lake, "run", rows, CHECKS, {"checked": 1})

    def shown() -> list[tuple[str, str]]:
        return [(one.check, one.state) for table in gather(lake).tables for one in table.checks]

    bins.rows[4] = ("wrong", 0.5)
    bins.mirror()
    lake = LakeReader(load(bins.file))
    checked(2024, "rows")
    assert 1 == bins.type("--settled").exit_code
    assert [("reconcile", "fail"), ("rows", "pass")] == shown()
    assert 1 == lake.last_marks(CHECKS.name)["checked"]
    checked(2124, "rows", "key_unique")
    assert [("key_unique", "pass"), ("reconcile", "fail"), ("rows", "pass")] == shown()
    assert {"pass": 2, "fail": 1} == verdicts(lake)


def test_doctor_names_tables_that_cannot_be_read(bins: Bins) -> None:
    """A right that is missing would be found in the middle of the night, by the comparison itself."""
    from ingest.operate.doctor import examine

    def database_of() -> tuple[str, str]:
        one = next(one for one in examine(load(bins.file)) if one.check == "database of shop")
        return one.state, one.found

    shown = "here:3306 lets reader in, and its clock is 2024-05-01T00:00:00Z; which tables it may read shows once one is known"
    assert ("ok", shown) == database_of()
    bins.rule("match: shop.nope")
    absent = "look at its name, or exclude it if it was dropped."
    assert (
        "wrong",
        f"here:3306 lets reader in, but: The database has no table shop.nope: {absent}",
    ) == database_of()
    bins.mirror()
    assert (
        "ok",
        "here:3306 lets reader in to 1 table, and its clock is 2024-05-01T00:00:00Z",
    ) == database_of()
    bins.write("DROP TABLE bins")
    assert (
        "wrong",
        f"here:3306 lets reader in, but: The database has no table shop.bins: {absent}",
    ) == database_of()


@pytest.mark.parametrize("seed", range(3))
def test_the_way_back_after_lost_messages(bins: Bins, seed: int) -> None:
    """Rows that are read again must win over all that came before them, and lose against all that comes after."""
    random = Random(seed)
    log: list[Placed] = []
    bins.write("DELETE FROM bins")
    bins.rows = {}

    def write(serials: range) -> None:
        """Statements in the source, and their messages."""
        statements = []
        for serial in serials:
            key, deleted = random.randrange(30), random.random() < 0.3
            statements.append(f"DELETE FROM bins WHERE id = {key}")
            if not deleted:
                statements.append(f"INSERT INTO bins VALUES ({key}, '{serial}', {serial})")
            image = {"id": str(key), "word": str(serial), "size": str(serial)}
            change = Change(
                op=Op.DELETE if deleted else Op.UPDATE, keys=("id",), before=image if deleted else None,
                after=None if deleted else image,
            )  # fmt: skip
            log.append(Placed(Order(0, 1, (5, serial), 0, (1, 0, 0, serial), 0), change))
        bins.write("; ".join(statements))

    def folded(changes: list[Placed]) -> dict[int, tuple[str | None, float]]:
        found = fold(changes, ("id",)).values()
        return {
            int(one.values["id"] or ""): (one.values["word"], float(one.values["size"] or ""))
            for one in found
        }

    write(range(1, 40))
    delivered = [one for one in log if random.random() < 0.5]  # the others are lost
    bins.rows = dict(folded(delivered))
    bins.mirror(high=Order(0, 1, (5, 39), 0, (1, 0, 0, 0), 0))
    assert 1 == bins.type("--settled", "--repair").exit_code
    place = len(log)
    write(range(40, 60))
    read = [
        Placed(Order(0, one.phase, one.sequence, one.half, one.arrival, one.row), one)
        for file in bins.file.parent.glob(f"lake/snapshots/shop/*/*{ingest_snapshot.SUFFIX}")
        for line in file.read_bytes().splitlines()
        for one in ingest_snapshot.parse(Message(line), Hints())
    ]
    everything = delivered + read + log[place:]
    random.shuffle(everything)
    bins.rows = dict(folded(everything))
    bins.mirror()
    done = bins.compare()
    assert not done.differs, done.differences
    assert done.rows == len(bins.rows) > 5
