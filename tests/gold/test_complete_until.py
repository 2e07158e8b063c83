"""Until when mirrors are complete: never later than what has been folded, decoded and read of every partition."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from typer.testing import CliRunner

from ingest.change import TableId
from ingest.cli.app import app
from ingest.config import Pipeline
from ingest.config.model import Source
from ingest.gold.complete_until import (
    CHANGES,
    ELSEWHERE,
    MARKS,
    Complete,
    of_all,
    of_mirrors,
    of_run,
    reached,
    still_fed,
)
from ingest.gold.plan.completed import Progress
from ingest.gold.plan.results import Folded
from ingest.inspect.status import status
from ingest.ledgers.mirrors import Mirror
from ingest.result import Result
from ingest.run import Warm, _complete_until, _rows
from ingest.tables.schemas import RUNS
from ingest.tables.tables import LakeReader

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
ORDERS, PARTS = ("shop", None, "orders"), ("shop", None, "parts")
NONE = (None, None, None)


def at(minutes: int) -> dt.datetime:
    """A source time, as answers have it."""
    return (NOON + dt.timedelta(minutes=minutes)).replace(tzinfo=None)


class Reader(LakeReader):
    """A reader that can be given what a lake of a run has, too."""


class Lake:
    """The tables that say how far a lake is, written without Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[tuple] = []
        self.rejects: list[tuple] = []

    def line(self, batch: int, topic: str, partition: int, table: tuple, minutes: int | None) -> Lake:
        """What one batch brought of a partition for a table, or as marks."""
        self.lines.append((batch, topic, partition, table, minutes))
        return self

    def reader(self, *, decoded: int = 3, folded: int = 3, kind: str = "kafka") -> LakeReader:
        """The lake as it is now."""
        books = {
            "batch": [one[0] for one in self.lines],
            "source": ["s"] * len(self.lines),
            "topic": [one[1] for one in self.lines],
            "partition": pa.array([one[2] for one in self.lines], pa.int32()),
            **{
                name: pa.array([one[3][i] for one in self.lines], pa.string())
                for i, name in enumerate(("database", "schema", "table"))
            },
            "event_high": pa.array(
                [None if one[4] is None else NOON + dt.timedelta(minutes=one[4]) for one in self.lines],
                pa.timestamp("us", "UTC"),
            ),
            "rejected": pa.array([0] * len(self.lines), pa.int64()),
        }
        done = CommitProperties(app_transactions=[Transaction("p/silver/books/0", decoded)])
        write_deltalake(str(self.folder / "books"), pa.table(books), commit_properties=done)
        runs = {
            "run": ["r"],
            "stage": ["gold"],
            "subject": pa.array([None], pa.string()),
            "state": ["done"],
            "batch": [folded],
            "started_at": [NOON],
            "seconds": [1.5],
        }
        write_deltalake(str(self.folder / "runs"), pa.table(runs))
        if self.rejects:
            kinds, batches = zip(*self.rejects, strict=True)
            rejects = {"kind": kinds, "batch": batches, "source": ["s"] * len(kinds)}
            write_deltalake(str(self.folder / "rejects"), pa.table(rejects))
        return Reader(Pipeline("p", Path("/p.yaml"), str(self.folder), (Source("s", kind, "debezium"),)))


def entry(table: tuple, state: str = "ok", batch: int | None = None) -> dict:
    """A mirror as `status` lists it."""
    name = f"{table[0]}.{table[2]}"
    return {"table": name, "path": name, "state": state, "batch": batch}


def completeness(lake: LakeReader, *entries: dict) -> dict[str, Complete]:
    """How far the mirrors are."""
    return of_mirrors(lake, entries, reached(lake))


def test_a_mirror_is_as_far_as_its_slowest_partition(tmp_path: Path) -> None:
    """The newest commit of all would hide what one partition has still to bring."""
    lake = (
        Lake(tmp_path).line(1, "t", 0, ORDERS, 30).line(2, "t", 1, ORDERS, 10).line(3, "other", 0, PARTS, 5)
    )
    found = completeness(lake.reader(), entry(ORDERS), entry(PARTS))
    assert (at(10), CHANGES) == (found["shop.orders"].until, found["shop.orders"].by)
    assert "partition 1 of t" in found["shop.orders"].reason
    assert (at(5), False) == (of_all(found).until, of_all(found).blocked)
    assert of_all(found).reason.startswith("shop.parts: ")


def test_what_gets_no_more_rows_holds_back_nothing(tmp_path: Path) -> None:
    """One table that was excluded, and not dropped yet, and all jobs waited for the operator."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 30).line(2, "other", 0, PARTS, 5)
    found = completeness(lake.reader(), entry(ORDERS), entry(PARTS, "excluded", 1))
    assert (at(30), False) == (of_all(found).until, of_all(found).blocked)
    assert ["shop.orders"] == [*still_fed(found)]
    alone = {"shop.parts": found["shop.parts"]}
    assert (alone, "shop.parts: it is excluded") == (still_fed(alone), of_all(alone).reason)


def test_other_tables_of_the_same_partition_say_how_far_it_is(tmp_path: Path) -> None:
    """Otherwise a table without changes would hold back every job for ever."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(3, "t", 0, PARTS, 50)
    assert at(50) == completeness(lake.reader(), entry(ORDERS))["shop.orders"].until


def test_a_clock_that_is_ahead_says_nothing(tmp_path: Path) -> None:
    """Jobs that wait for a time began months before it, on tables that went on to change."""
    ahead = round((dt.datetime.now(dt.UTC) - NOON).total_seconds() / 60) + 60
    lake = Lake(tmp_path).line(1, "a", 0, ORDERS, 5).line(2, "a", 0, ORDERS, ahead).line(2, "a", 1, PARTS, 7)
    reader = lake.reader()
    assert at(5) == completeness(reader, entry(ORDERS))["shop.orders"].until
    assert at(ahead) in [row["newest"] for row in reached(reader)], "as what `status` says of the clock"


def test_marks_in_the_partition_are_the_surest(tmp_path: Path) -> None:
    """Where nothing changes only a heartbeat shows that nothing did."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 0, NONE, 40)
    found = completeness(lake.reader(), entry(ORDERS))["shop.orders"]
    assert (at(40), MARKS) == (found.until, found.by)


def test_marks_of_a_topic_of_their_own_lift_quiet_partitions(tmp_path: Path) -> None:
    """Debezium writes its heartbeats and transaction marks into topics of their own."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 1, ORDERS, 60).line(3, "beats", 0, NONE, 40)
    found = completeness(lake.reader(), entry(ORDERS))["shop.orders"]
    assert (at(40), ELSEWHERE) == (found.until, found.by)


@pytest.mark.parametrize("state", ["held", "failed", "paused", "damaged"])
def test_what_is_not_folded_is_not_complete(tmp_path: Path, state: str) -> None:
    """A job would compute a day's sums from yesterday's rows."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 0, ORDERS, 20).line(3, "t", 0, ORDERS, 30)
    found = completeness(lake.reader(), entry(ORDERS, state, 2), entry(PARTS))
    assert {"shop.orders"} == found.keys()
    assert (at(20), f"it is {state}", True) == (
        found["shop.orders"].until, found["shop.orders"].reason, found["shop.orders"].blocked,
    )  # fmt: skip


def test_a_run_that_ends_while_one_looks_does_no_harm(tmp_path: Path) -> None:
    """The tables are read one after the other, so gold may have a batch more than silver had a moment before."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 0, ORDERS, 20)
    reader = lake.reader(decoded=1, folded=2)
    assert at(20) == completeness(reader, entry(ORDERS, "ok", 2))["shop.orders"].until


def test_what_silver_has_and_gold_has_not_is_not_complete(tmp_path: Path) -> None:
    """Between two stages, and after a run that was killed there, the books are ahead of the mirrors."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 0, ORDERS, 20).line(3, "t", 0, ORDERS, 30)
    reader = lake.reader(folded=2)
    assert at(20) == completeness(reader, entry(ORDERS, "ok", 2))["shop.orders"].until
    assert at(30) == completeness(reader, entry(ORDERS, "ok", 3))["shop.orders"].until


def test_an_undecoded_message_ends_completeness_before_its_batch(tmp_path: Path) -> None:
    """It may be a change of any table; a rejected cell belongs to one row that is there."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 0, ORDERS, 20).line(3, "t", 0, ORDERS, 30)
    lake.rejects = [("cell", 1), ("message", 2), ("message", 3)]
    found = completeness(lake.reader(), entry(ORDERS))["shop.orders"]
    assert (at(1), True) == (found.until, found.blocked)
    assert "batch 2" in found.reason
    assert "ingest rejects" in found.reason


@pytest.mark.parametrize(
    ("lagging", "seen", "until"),
    [
        ((), {}, at(30)),
        (("mirrors/shop/orders",), {}, None),  # its table is not there yet
        (("mirrors/shop/parts",), {"mirrors/shop/parts": "shop.parts"}, None),
        (("mirrors/shop/parts",), {}, None),
    ],
)
def test_a_run_records_what_status_would_say(
    tmp_path: Path, lagging: tuple[str, ...], seen: dict[str, str], until: dt.datetime | None
) -> None:
    """A job that reads `runs` must not begin sooner than one that waits for `status`; what lags has no row there yet."""
    lake = Lake(tmp_path).line(1, "t", 0, ORDERS, 1).line(2, "t", 0, PARTS, 20).line(3, "t", 0, ORDERS, 30)
    orders = Mirror(TableId(*ORDERS), "mirrors/shop/orders")
    now = Progress(3, frozenset(lagging))
    assert until == of_run(lake.reader(folded=1), {orders.path: orders}, seen, now)


@pytest.mark.parametrize("rejects", [[], [("message", 1)]])
def test_the_row_of_a_run_says_what_status_says(tmp_path: Path, rejects: list[tuple]) -> None:
    """Two numbers of one name that differ are worse than none."""
    written = Lake(tmp_path).line(1, "t", 0, ORDERS, 30)
    written.rejects = rejects
    lake = written.reader(decoded=1, folded=1)
    done = Folded("shop.orders", "mirrors/shop/orders", "done")
    result = Result("p", "r", batch=1, mirrors=[done], stages={"gold": 1.0}, began={"gold": NOON})
    warm = Warm(decided={done.path: Mirror(TableId(*ORDERS), done.path)}, progress=Progress(1))
    result.complete_until = _complete_until(lake, warm, result)
    assert (None if rejects else at(30)) == result.complete_until
    assert completeness(lake, entry(ORDERS))["shop.orders"].until == result.complete_until
    lake.run, lake.now = "r", lambda: NOON  # type: ignore[attr-defined]
    moments = [dict(zip(RUNS.types, row, strict=True))["complete_until"] for row in _rows(lake, result)]
    assert [None if rejects else NOON + dt.timedelta(minutes=30), None] == moments


def test_files_of_a_source_are_one_partition(tmp_path: Path) -> None:
    """Each file would be the slowest, for ever, once it has been read to its end."""
    lake = Lake(tmp_path).line(1, "a.jsonl", 0, ORDERS, 1).line(2, "b.jsonl", 0, ORDERS, 20)
    assert at(20) == completeness(lake.reader(kind="files"), entry(ORDERS))["shop.orders"].until


def test_messages_without_a_time_complete_nothing(tmp_path: Path) -> None:
    """No time is not the beginning of time, nor now."""
    found = completeness(Lake(tmp_path).line(1, "t", 0, ORDERS, None).reader(), entry(ORDERS))["shop.orders"]
    assert (None, False) == (found.until, found.blocked)
    assert "has a time" in found.reason


@pytest.mark.parametrize(
    ("until", "complete", "code"),
    [
        ("2024-05-01T12:10", Complete(at(10), CHANGES, "r"), 0),
        ("2024-05-01T14:10+02:00", Complete(at(10), CHANGES, "r"), 0),
        ("2024-05-01T12:10:01Z", Complete(at(10), CHANGES, "r"), 3),
        ("2024-05-01T12:10:01Z", Complete(at(10), CHANGES, "r", blocked=True), 1),
        ("2024-05-01", Complete(at(10), CHANGES, "r", blocked=True), 0),
        ("now", Complete(reason="r"), 3),
    ],
)
def test_wait_ends_with_a_code_for_schedulers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: str, complete: Complete, code: int
) -> None:
    """A job that begins on a wrong code computes from half the rows."""
    (tmp_path / "lake").mkdir()
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nlake: ./lake\nengine: auto\nsources: [{name: s, path: ./*.jsonl, format: dts-canal}]\n",
        "utf-8",
    )
    excluded = Complete(reason="it is excluded", blocked=True, ended=True)
    found = {"shop.orders": complete, "shop.parts": excluded}
    monkeypatch.setattr("ingest.inspect.status.complete", lambda _lake: found)
    words = ["wait", str(file), "--until", until, "--timeout", "0s", "--output", "json"]
    done = CliRunner().invoke(app, words)
    assert code == done.exit_code, done.output
    assert (code == 0) == json.loads(done.stdout)["reached"]
    assert 2 == CliRunner().invoke(app, [*words, "--tables", "shop.order"]).exit_code
    assert code == CliRunner().invoke(app, [*words, "--tables", "shop.*"]).exit_code
    named = CliRunner().invoke(app, [*words, "--tables", "shop.orders,shop.parts"])
    assert 1 == named.exit_code, "it holds nothing of before the moment, and never will"


def test_wait_refuses_what_is_no_time(tmp_path: Path) -> None:
    """A job would wait an hour for it."""
    done = CliRunner().invoke(app, ["wait", str(tmp_path / "p.yaml"), "--until", "yesterday"])
    assert 2 == done.exit_code


def test_status_has_the_number_of_a_lake_without_mirrors(tmp_path: Path) -> None:
    """The first look may come before the first batch."""
    found = status(Lake(tmp_path).line(1, "t", 0, NONE, 3).reader())
    assert (None, "there is no mirror yet") == (found["complete_until"], found["complete_reason"])
