"""What the books are compared with: a count that leaves out replays would call each replay's books wrong."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa

from ingest.bronze.land import land
from ingest.bronze.positions import Positions
from ingest.ledgers.books import newest_of
from ingest.quality import ledgers
from ingest.quality.counts import of_sources
from ingest.quality.subjects import Booked
from ingest.silver.decode import decode
from ingest.tables.datafiles import fitted
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from tests.lakes import Depot


def test_a_replay_is_counted_as_what_landed(tmp_path: Path) -> None:
    """Its batch has no receipt: the messages that it decodes again landed with another one."""
    depot = Depot(tmp_path)
    depot.grow()
    lake = Lake(None, depot.pipeline)
    land(lake, Positions(), 1)
    decode(lake, 1, 1)
    now = lake.now()
    place = lake.ask('SELECT source, topic, "partition", "offset" FROM {rejects}')[0]
    row = {
        **place,
        "kind": "replay",
        "batch": 2,
        "value": b'{"batch": 1}',
        "ingested_at": now,
        "day": now.date(),
    }
    lake.append(fitted(pa.Table.from_pylist([row]), BRONZE.arrow), BRONZE, "bronze", 2)
    assert [("bins", {"count": 1})] == ledgers.read(lake, 1, 2).receipts
    assert [6, 1] == [receipt["count"] for _, receipt in ledgers.read(lake, 0, 2).receipts]
    booked = {"bins": Booked(messages=1, messages_ever=7)}
    found = {one.check: one.observed for one in of_sources(booked, ledgers.read(lake, 1, 2), {}, 1, 2)}
    assert 0 == found["books_balance"]


def test_an_accepted_loss_belongs_to_one_look() -> None:
    """Accepted after a batch had landed and before its checks, it was reported by these and by the next ones."""
    gap = {"topic": "t", "partition": 0, "offset": 4, "reason": "retention", "batch": 5}
    books = ledgers.Ledgers([], [], [], [("bus", gap)])

    def losses(since: int, last: int) -> list[float]:
        found = of_sources({"bus": Booked()}, books, {}, since, last)
        return [one.observed for one in found if one.check == "losses"]

    looks = [*((batch - 1, batch) for batch in range(2, 8)), (4, 6), (0, 5), (0, 9)]
    assert [[0]] * 4 + [[1], [0], [1], [1], [1]] == [losses(*look) for look in looks]


def test_one_table_of_a_mirror_in_the_future_does_not_hide_how_old_the_others_are() -> None:
    """The newest of all was taken, and a mirror whose stream has stopped was fresh until next year."""
    now = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
    old, future = now - dt.timedelta(hours=5), now + dt.timedelta(days=400)
    assert old == newest_of([future, old], now)
    assert future == newest_of([future], now)
    assert newest_of([], now) is None
