"""Null values of Debezium's topics: tombstones, and deletes that were lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from ingest.config import load
from ingest.config.model import TableRule
from ingest.decoding import json_values
from ingest.ledgers import sealing
from ingest.quality import null_values
from ingest.quality.subjects import Booked
from ingest.result import STAGES
from ingest.run import run
from ingest.silver import replay
from ingest.silver.decode import lifted, lifting
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.store.envelope import Opener, Seal
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE, CHANGES
from ingest.tables.tables import LakeReader
from tests.shops import Shops
from tests.written_lake import NOW, WrittenLake, commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sent = tuple[int, int, bytes | None]
"""A key, the message's partition, its value."""
SEAL = Seal(b"one data", bytes(range(32)))


class Topic(WrittenLake):
    """A Debezium topic and its changes in silver, without a broker."""

    def __init__(self, folder: Path, more: str = "", seal: Seal | None = None) -> None:
        super().__init__(folder)
        self.file.write_text(
            "pipeline: depot\nlake: ./depot-lake\nengine: auto\nsources:\n  - {name: bus, kind: kafka, format: debezium, "
            f"bootstrap_servers: 'nowhere:9092', topics: [shop.t]{more}}}\n",
            "utf-8",
        )
        self.pipeline, self.seal, self.places = load(self.file), seal, {0: 0, 1: 0}

    def lost(self, *messages: Sent, since: int | None = None) -> tuple[int, str]:
        """One batch; how many deletes were lost in it, and the sentence."""
        self.batch += 1
        rows: list[dict[str, Any]] = []
        for key, partition, value in messages:
            rows.append({"kind": "message", "batch": self.batch, "source": "bus", "topic": "shop.t", "partition": partition,
                         "offset": self.places[partition], "key": json.dumps({"id": key}).encode(), "value": value,
                         "ingested_at": NOW, "day": NOW.date()})  # fmt: skip
            self.places[partition] += 1
        batch = pa.RecordBatch.from_pylist(rows, BRONZE.part(*INPUT))
        found = [row for page in lift(Lifting(self.pipeline))(iter([batch])) for row in page.to_pylist()]
        if self.seal:
            page = pa.RecordBatch.from_pylist(rows, BRONZE.arrow)
            rows = self.seal.page(page, self.batch).to_pylist()
        commit(self.lake / "bronze", BRONZE.types, rows, by=BRONZE.partition_by)
        commit(self.lake / "changes", CHANGES.types, found, by=CHANGES.partition_by)
        lake = cast("Lake", LakeReader(self.pipeline))
        before = self.batch - 1 if since is None else since
        [metric] = null_values.not_deleted(lake, {"bus": Booked(control_ever=1)}, before, self.batch)
        return int(metric.observed), metric.detail


def wrapped(key: int, op: str, pos: int, partition: int = 0, word: str = "") -> Sent:
    """A row with its position in the binary log, at which its word was written unless another one is given."""
    source = {"connector": "mysql", "db": "shop", "table": "t", "file": "log.000001", "pos": pos, "row": 0}
    row = {"id": key, "word": word or f"at {pos}"}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return key, partition, json.dumps({**images, "op": op, "source": source}).encode()


def flat(key: int, partition: int = 0) -> Sent:
    """A row that names its table."""
    return (
        key,
        partition,
        json.dumps({"id": key, "word": "w", "__db": "shop", "__table": "t", "__op": "c"}).encode(),
    )


def null(key: int, partition: int = 0, written: bytes | None = None) -> Sent:
    """A null value."""
    return key, partition, written


@pytest.fixture(params=[None, SEAL], ids=["plain", "sealed"])
def topic(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topic:
    """An empty topic, whose messages in bronze are sealed or not."""
    if request.param:
        opener = Opener(((0, None),), {SEAL.id: SEAL.data_key}, {SEAL.id: str(NOW.date())})
        monkeypatch.setattr(sealing, "opener", lambda _lake: opener)
    return Topic(tmp_path, seal=request.param)


def test_a_tombstone_after_its_delete_says_nothing(topic: Topic) -> None:
    """Even if the delete was the last message of the batch before."""
    assert (0, "") == topic.lost(
        wrapped(1, "c", 10), wrapped(2, "r", 11, 1), wrapped(1, "d", 12), null(1), wrapped(2, "d", 13, 1)
    )
    assert (0, "") == topic.lost(null(2, 1))
    assert (0, "") == topic.lost(wrapped(1, "c", 14))


def test_a_delete_that_was_compacted_away_is_reported(topic: Topic) -> None:
    """Only its tombstone is left, without a place in the source's order: the row would stay, and every check pass."""
    assert (0, "") == topic.lost(wrapped(1, "c", 10), wrapped(2, "r", 11, 1), wrapped(3, "u", 12))
    n, detail = topic.lost(null(1), wrapped(3, "u", 14), null(2, 1), null(1))
    assert 2 == n
    assert "2 null values in shop.t deleted no row" in detail
    assert (1, 1) == (
        topic.lost(wrapped(4, "c", 20), null(4))[0],
        topic.lost(wrapped(5, "c", 30), null(5))[0],
    )
    assert 4 == topic.lost(since=0)[0]


@pytest.mark.parametrize(
    "written", [b"", b"null", b" null\n", b'{"schema":null,"payload":null}', b'{"payload": null}']
)
def test_a_lost_delete_is_reported_in_whatever_way_its_null_is_written(topic: Topic, written: bytes) -> None:
    """With a key it is a null value like any other: what a sender wrote as text was counted nowhere."""
    short = (*flat(4)[:2], b'{"id": 4, "w": null}')
    last = [wrapped(3, "c", 12), wrapped(3, "d", 13), null(3, written=written)]
    assert (0, "") == topic.lost(wrapped(1, "c", 10), wrapped(2, "c", 11), short, short, *last)
    n, detail = topic.lost(null(1, written=written), null(2), null(9, written=written))
    assert (2, True) == (n, "2 null values in shop.t deleted no row" in detail)


def test_a_tombstone_of_a_row_that_never_came_or_came_again_is_none(topic: Topic) -> None:
    """A topic read from its start holds many that delete nothing."""
    assert 0 == topic.lost(null(1), null(2), null(2))[0]
    assert 0 == topic.lost(wrapped(2, "c", 9), wrapped(3, "c", 10), null(3), wrapped(3, "c", 12))[0]
    assert 0 == topic.lost(wrapped(2, "d", 13), wrapped(9, "c", 14), null(2))[0]


@pytest.mark.parametrize(
    ("first", "options", "expected"),
    [
        pytest.param(flat(1), "", 1, id="flattened rows"),
        pytest.param(flat(1), ", options: {table: shop.t}", 0, id="flattened rows of a named table"),
        pytest.param(
            wrapped(1, "c", 10), ", options: {table: shop.t}", 1, id="wrapped rows of a named table"
        ),
    ],
)
def test_null_values_are_deletes_of_named_tables(
    tmp_path: Path, first: Sent, options: str, expected: int
) -> None:
    """Arrival orders flattened rows and so their deletes; it does not order rows that have positions."""
    topic = Topic(tmp_path, options)
    assert 0 == topic.lost(first)[0]
    assert expected == topic.lost(null(1))[0]


def line(sent: Sent) -> str:
    """A message as a file has it."""
    return "null" if sent[2] is None else sent[2].decode()


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        pytest.param(
            [wrapped(1, "c", 10), wrapped(2, "c", 11), wrapped(1, "d", 12, word="at 10"), null(1)],
            0,
            id="wrapped",
        ),
        pytest.param([flat(1), flat(2), null(1)], 1, id="flattened"),
    ],
)
def test_null_values_of_a_file(tmp_path: Path, lines: list[Sent], lost: int) -> None:
    """After a delete that is a row they say nothing; else they may be its only word, and name no row."""
    rule = TableRule(match="*", keys=("id",))
    feed = Shops(
        tmp_path, rule, dialect="debezium", stages=STAGES, lines=[line(sent) for sent in lines], number=1
    )
    feed.run()
    assert feed.result is not None
    assert (0, lost) == (feed.result.rejected, feed.result.exit_code)
    said = [text for text in feed.result.failures if "without a key" in text]
    assert lost == len(said)
    assert all("1 null value without a key in" in text and "names no row" in text for text in said)


def test_a_null_line_may_come_batches_after_its_delete(tmp_path: Path) -> None:
    """The deletes of the last batch alone were counted, so a right mirror had a complaint."""
    feed = Shops(tmp_path, TableRule(match="*", keys=("id",)), dialect="debezium", stages=STAGES)

    def lost(*sent: Sent) -> list[str]:
        feed.number += 1
        feed.lines = [line(each) for each in sent]
        feed.run()
        assert feed.result is not None
        return [text for text in feed.result.failures if "without a key" in text]

    assert [] == lost(wrapped(1, "c", 10), wrapped(2, "c", 11), wrapped(1, "d", 12))
    assert [] == lost(wrapped(3, "c", 13))
    assert [] == lost(null(1))
    [text] = lost(null(2), wrapped(4, "c", 14))
    assert "1 null value without a key" in text
    assert [] == lost(wrapped(3, "d", 15), null(3)), "what was reported is not reported again"
    assert ["1 null value"] == [text[text.index("1 null") :][:12] for text in lost(null(4))]


def test_null_lines_that_a_replay_reads_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version rejected them, which was an alarm; nothing was one any more when they had been replayed."""
    lines = [line(sent) for sent in (wrapped(1, "c", 10), wrapped(2, "c", 11), null(1), null(2))]
    feed = Shops(
        tmp_path, TableRule(match="*", keys=("id",)), dialect="debezium", stages=STAGES, lines=lines, number=1
    )
    with monkeypatch.context() as earlier:
        earlier.setattr(json_values, "is_null", lambda value: value is None)
        feed.run()
    assert feed.result is not None
    assert (2, []) == (
        feed.result.rejected,
        [text for text in feed.result.failures if "without a key" in text],
    )
    replay.appoint(Lake(spark, feed.pipeline), lifting, lifted)
    failures = run(spark, feed.pipeline, STAGES).failures
    [said] = [text for text in failures if "without a key" in text]
    assert "2 null values without a key in" in said
    assert "in-1.jsonl" in said
