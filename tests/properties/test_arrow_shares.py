"""Histories that are folded in shares of their keys, file by file and without Spark, against a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.gold.fold import arrow_parts, arrow_shares, key_shares
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.fold.key_shares import Shares
from ingest.gold.fold.overtaken import keys_concerned
from tests.properties import lakes
from tests.properties.kinds import Kind
from tests.properties.test_arrow_fold import (
    BATCHES,
    _column,
    _content,
    _fold,
    _lane,
    _lane_work,
    _rows,
    _work,
    by_histories,
)
from tests.properties.test_arrow_parts import _again

COUNT = 5


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few changes wait, and a page has few of them."""
    monkeypatch.setattr(arrow_parts, "READ_AT_ONCE", 11)
    monkeypatch.setattr(arrow_parts, "WAITING_ROWS", 20)


def _in_shares(work: MirrorWork, files: Sequence[str]) -> tuple[MirrorWork, int]:
    """The mirror after a batch that three tasks have dealt to shares, and how many of these have linked keys."""
    work = replace(work, shared=1)
    pieces = arrow_parts.pieces(files, work.lanes)
    linked = [one for at in range(3) for one in arrow_shares.links([work], pieces[at::3])]
    shares = Shares.of(COUNT, [pair for one in linked for pair in one.pairs])
    by_path = {work.path: shares}
    dealt = [one for at in range(3) for one in arrow_shares.deal([work], pieces[at::3], "shares", by_path)]
    assert all(one.is_made for one in dealt)
    made = [arrow_shares.merged(work, dealt, share, shares) for share in range(COUNT)]
    assert [True] * COUNT == [one.is_made for one in made]
    replaces, vectors = any(one.replaces for one in made), arrow_parts.vectors_of(work, made)
    work = _fold(work, replace(made[0], replaces=replaces, vectors=vectors))
    for one in made[1:]:
        work = _fold(work, replace(one, replaces=False))
    return work, len(shares.linked)


@pytest.mark.one_of(4, "kind")
@by_histories(25, 60)
@pytest.mark.parametrize(
    "kind", [*lakes.ANY, lakes.INHERITING, lakes.LAWLESS, lakes.TRUNCATED], ids=lambda kind: kind.name
)
def test_no_history_is_wrong(kind: Kind, histories: int, tmp_path: Path) -> None:
    """A change in another share than the row that it moves or completes loses the values that it takes along."""
    feed = (
        lakes.alone(kind, 3, BATCHES)
        if kind.truncates
        else lakes.together(kind, histories, BATCHES, ordered=False)
    )
    work, files, high, linked = _work(feed, kind, tmp_path), list[str](), "", 0
    random = Random(kind.name)
    for batch in range(1, len(feed.batches) + 1):
        files += (new := _again(_rows(feed, batch, tmp_path), 30))
        if not new:
            continue
        own, high = _lane(feed, kind, new, high), max(high, *_column(new, "order_key"))
        lane = replace(_lane_work(own), moves=kind.moves)
        if random.random() < 0.5:
            lane = replace(lane, whole=True, late_from="")
        work, links = _in_shares(replace(work, lanes=(lane,)), files)
        linked += links
    assert feed.rows == _content(work, feed.keys)
    assert (linked > 0) == kind.moves


def test_linked_keys_are_in_one_share() -> None:
    """A row may move on and on, whichever of the moves is read first."""
    keys = pa.table({"id": pa.array(range(100), pa.int64())})
    numbers = key_shares.hashes(keys).tolist()
    pairs = [(numbers[at], numbers[at + 2]) for at in [*range(0, 40, 4), *range(2, 38, 4)]]
    shares = Shares.of(7, pairs).shares(keys).tolist()
    assert 1 == len({shares[at] for at in range(0, 40, 2)})
    assert set(range(7)) == set(shares)
    assert shares[43:] == key_shares.Shares(7).shares(keys).tolist()[43:]


@pytest.mark.parametrize("text", ["a\ud800", "b"])
def test_keys_of_images_that_arrow_cannot_read(text: str) -> None:
    """Half a character in some column must not decide where its row goes."""
    image = json.dumps({"id": "7", "v": text})
    names = ("order_key", "op", "before", "after")
    rows = pa.table(dict(zip(names, (["1"], ["insert"], pa.nulls(1, pa.string()), [image]), strict=True)))

    lane = LaneWork("s", TableId("yard", None, "depot"), 1, 1)
    work = MirrorWork("m", "m", ("id",), (ColumnWork("id", "id", "int64"),), (lane,))
    assert [7] == keys_concerned(rows, lane, work)["id"].to_pylist()
