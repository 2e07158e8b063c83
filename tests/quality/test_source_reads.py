"""Rows that were read from the source itself, or loaded again, next to a stream that goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.cli import epoch_verb
from ingest.config.model import TableRule
from ingest.formats import ingest_snapshot
from ingest.ledgers import epochs
from ingest.quality import cells
from ingest.quality.catalogue import Metric
from ingest.quality.cells import Asked
from ingest.quality.reloads import advice
from ingest.run import run
from ingest.source import place
from ingest.tables import snapshots
from ingest.tables.lake import Lake
from tests.quality.test_unplaced import RULE, Loads
from tests.shops import Shops
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPLAINTS = {"rows_read_again", "insert_of_a_live_key"}


def read(
    shops: Shops,
    table: TableId,
    rows: list[tuple[str, ...]],
    *,
    whole: bool = False,
    deleted: Sequence[str] = (),
) -> None:
    """Rows of a snapshot, or of a repair unless it is ``whole``, at the place that is right now."""
    known = place.known(shops.pipeline, "s", table)
    number = place.number_after(known.high, known.batch)
    where = place.after(known.high, known.batch, number, known.epoch)
    write(shops, table, where, rows, whole=whole, deleted=deleted)


def write(
    shops: Shops, table: TableId, where: place.SnapshotPlace, rows: list[tuple[str, ...]], *,
    whole: bool = False, deleted: Sequence[str] = (),
) -> None:  # fmt: skip
    """The files of a snapshot at a place."""
    types = {"id": "int64", "text": "string"}
    head: dict[str, Any] = {
        "ingest-snapshot": 1,
        "op": "read",
        "table": list(table),
        "keys": ["id"],
        "time": "2024-06-10T06:14:02Z",
    }
    lines = [{**head, "place": where.of(0, 0), "types": types, "rows": rows}]
    if deleted:
        lines.append(
            {
                **head,
                "op": "delete",
                "place": where.of(1, 0),
                "types": {"id": "int64"},
                "rows": [[one] for one in deleted],
            }
        )
    if whole:
        lines.append({**head, "op": "end", "place": where.end()})
    here = snapshots.folder(shops.pipeline, "s") / f"one-{where.number}"
    here.mkdir(parents=True)
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
    (here / f"chunk-000001{ingest_snapshot.SUFFIX}").write_text(text, "utf-8")


def complaints(shops: Shops) -> dict[str, int]:
    """What the check of cells says of rows that came again, in the last batch; of those that say something."""
    lake = shops.lake
    since = lake.decoded() - 1
    subject = shops.subject(since)
    asked = Asked(lambda _table: 200)
    [(_, found)] = cells.compare(lake, [subject], since, asked)
    assert [] == found.wrong
    said = [one for one in cells.metrics(lake, subject, found) if one.check in COMPLAINTS and one.observed]
    return {one.check: int(one.observed) for one in said}


ITEM = TableId("shop_1", None, "item")
MERGED = TableRule("shop_*.item", keys=("id",))


@pytest.mark.parametrize("first", ["read", "inserted"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_read_to_repair_a_mirror_is_no_complaint(tmp_path: Path, first: str, whole: bool) -> None:
    """A run that fails after a repair, with a command that removes all rows that were right, makes it worse than before."""
    mine = Shops(tmp_path, MERGED)
    mine.say(1, "INSERT", 99, "z")
    if first == "read":
        assert "done" == mine.run()[0]
        read(mine, ITEM, [("1", "a"), ("2", "b"), ("3", "c")])
    else:
        mine.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "b").say(1, "INSERT", 3, "c")
    assert "done" == mine.run()[0]
    repaired = [("1", "other"), ("2", "else"), ("99", "z")] + ([("3", "c")] if whole else [])
    read(mine, ITEM, repaired, whole=whole, deleted=[] if whole else ["3"])
    assert "done" == mine.run()[0]
    [path] = {one.path for one in [mine.subject(0)]}
    assert {1: "other", 2: "else", 99: "z"} | ({3: "c"} if whole else {}) == mine.rows(path)
    assert {} == complaints(mine)
    assert "" == advice(mine.lake, mine.subject(0))
    mine.say(1, "INSERT", 1, "as the stream says it later")
    assert "done" == mine.run()[0]
    assert {} == complaints(mine)


def test_a_key_of_several_rows_is_still_seen_in_what_is_read(tmp_path: Path) -> None:
    """Of two rows with one key only one is in the mirror."""
    mine = Shops(tmp_path, MERGED)
    mine.say(1, "INSERT", 99, "z")
    assert "done" == mine.run()[0]
    read(mine, ITEM, [("1", "a"), ("1", "b"), ("2", "c")])
    assert "done" == mine.run()[0]
    subject = mine.subject(1)
    [(_, found)] = cells.compare(mine.lake, [subject], 1, Asked(lambda _table: 200))
    assert 1 == len(found.twice | found.reread)


@pytest.mark.parametrize("dialect", ["dts-canal", "debezium"])
def test_a_row_read_while_the_stream_goes_on_loses_without_a_word(tmp_path: Path, dialect: str) -> None:
    """Its place was chosen before the changes that beat it: an alarm would name a command that makes right rows wrong."""
    mine = Shops(tmp_path, MERGED) if dialect == "dts-canal" else Loads(tmp_path, RULE, dialect=dialect)
    table = ITEM if dialect == "dts-canal" else TableId("cut", "p", "t")

    def change(key: int, text: str, at: int) -> list[Metric]:
        if isinstance(mine, Loads):
            return mine.batch(mine.row("INSERT", key, text, at))
        mine.say(1, "UPDATE", key, text, at=at)
        assert "done" == mine.run()[0]
        return order(mine)

    assert [] == change(3, "a", 10)
    known = place.known(mine.pipeline, "s", table)
    where = place.after(known.high, known.batch, place.number_after(known.high, known.batch), known.epoch)
    assert [] == change(3, "b", 20)
    write(mine, table, where, [("3", "c"), ("4", "d")])
    assert [] == change(3, "c", 30)
    [path] = {one.path for one in [mine.subject(0)]}
    assert {3: "c", 4: "d"} == mine.rows(path)


def order(mine: Shops) -> list[Metric]:
    """What the checks of order find in the last batch."""
    from tests.shops import order_metrics

    return order_metrics(mine.lake, mine.lake.decoded() - 1)


@pytest.mark.parametrize("dialect", ["oms-default", "dataworks"])
def test_a_load_of_what_the_stream_has_just_said_lost_nothing(tmp_path: Path, dialect: str) -> None:
    """A table that changes and is loaded in one batch would give an alarm every night, though its mirror is right."""
    mine = Loads(tmp_path, RULE, dialect=dialect, budget=4 << 20)
    assert [] == mine.batch(mine.row("INSERT", 1, "a", 7), mine.row("INSERT", 2, "b", 8))
    update = "UPDATE_AFTER" if dialect == "dataworks" else "UPDATE"
    assert [] == mine.batch(
        mine.row(update, 1, "c", 9), mine.row("INSERT", 1, "c"), mine.row("INSERT", 2, "b")
    )
    lost = mine.batch(mine.row(update, 1, "d", 10), mine.row("INSERT", 1, "e"), mine.row("INSERT", 2, "b"))
    assert [("re_reads_ignored", 1)] == [(one.check, one.observed) for one in lost]


def test_rows_of_a_second_snapshot_that_lose_by_their_position_are_not_called_unplaced(
    tmp_path: Path,
) -> None:
    """The advice for changes without a position would give up the order of a whole source for ever."""
    mine = Loads(tmp_path, RULE, dialect="debezium", budget=4 << 20)
    assert [] == mine.batch(
        mine.row("INSERT", 1, "a"), mine.row("INSERT", 1, "b", 60), mine.row("INSERT", 2, "x", 70)
    )
    lost = mine.batch(mine.row("INSERT", 1, "newer"))
    checks = {one.check: one.detail for one in lost}
    assert "--resnapshot" in checks["re_reads_ignored"]
    assert "unplaced_changes" not in checks


class Mysql(Loads):
    """A table of MySQL as Debezium sends it, whose snapshots carry the position that they were made at."""

    def row(self, op: str, key: int, text: str, counter: int = 0, snapshot: str = "false") -> str:
        """A change, or a row of a snapshot."""
        source = {
            "connector": "mysql",
            "db": "cut",
            "table": "t",
            "file": "bin.000001",
            "pos": counter,
            "row": 0,
            "snapshot": snapshot,
        }
        after, before = {"id": key, "text": text}, None
        if op == "d":
            before, after = after, None
        return json.dumps({"before": before, "after": after, "source": source, "op": op})


def test_rows_that_a_second_snapshot_lacks_are_named(tmp_path: Path) -> None:
    """The source deleted them while the connector had lost its place: they would stay in the mirror for ever, all checks green."""
    mine = Mysql(tmp_path, RULE, dialect="debezium", budget=4 << 20)
    first = [
        mine.row("r", 1, "a", 100, "first"),
        mine.row("r", 2, "b", 100, "true"),
        mine.row("r", 4, "d", 100, "last"),
    ]
    assert [] == mine.batch(*first)
    assert [] == mine.batch(
        mine.row("u", 1, "a2", 200), mine.row("d", 4, "d", 300), mine.row("c", 5, "e", 400)
    )
    found = mine.batch(
        mine.row("r", 1, "a2", 9000, "first"),
        mine.row("r", 3, "c", 9000, "last"),
        mine.row("c", 6, "f", 9100),
    )
    [metric] = [one for one in found if one.check == "rows_not_loaded"]
    assert (2, ('{"id":"2"}', '{"id":"5"}')) == (metric.observed, metric.failing)
    assert f"epoch {mine.pipeline.file} s --from " in metric.detail
    assert "in-3.jsonl/0/0 --resnapshot cut.t --complete`" in metric.detail
    assert 1 == run(unstarted(), mine.pipeline, ["quality"]).exit_code, "the rows are not in the source"


@pytest.mark.slow
def test_the_epoch_that_is_named_leaves_the_rows_of_the_load(spark: SparkSession, tmp_path: Path) -> None:
    """A command that the product prints is typed as it is, by somebody who trusts it."""
    mine = Mysql(tmp_path, RULE, dialect="debezium", budget=4 << 20)
    mine.batch(mine.row("r", 1, "a", 100, "first"), mine.row("r", 2, "b", 100, "last"))
    found = mine.batch(
        mine.row("u", 1, "a2", 200), mine.row("r", 1, "a2", 9000, "first"), mine.row("r", 3, "c", 9000, "last"),
        mine.row("c", 6, "f", 9100),
    )  # fmt: skip
    [metric] = [one for one in found if one.check == "rows_not_loaded"]
    lake = Lake(spark, mine.pipeline)
    start = epochs.at_places(lake, "s", re.findall("--from ([^ `]+)", metric.detail))
    epoch_verb.decide(lake, "s", start, ["cut.t"], "", complete=True, withdraw=False)
    epoch_verb.carry_out(lake, "s", start)
    [path] = {one.path for one in [mine.subject(0)]}
    assert {1: "a2", 3: "c", 6: "f"} == mine.rows(path)
    assert [] == mine.batch(mine.row("c", 8, "d", 9200))


@pytest.mark.parametrize("last", ["true", "last"])
def test_a_whole_second_snapshot_is_no_complaint(tmp_path: Path, last: str) -> None:
    """Nor is a part of one: what comes next may have the other rows."""
    mine = Mysql(tmp_path, RULE, dialect="debezium", budget=4 << 20)
    assert [] == mine.batch(mine.row("r", 1, "a", 100, "first"), mine.row("r", 2, "b", 100, "last"))
    whole = [mine.row("r", 2, "b", 9000, last)] if last == "last" else []
    found = mine.batch(mine.row("r", 1, "a", 9000, "first"), *whole, mine.row("d", 1, "a", 9100))
    assert [] == [one for one in found if one.check == "rows_not_loaded"]
