"""The fold in parts, of changes that one process would not hold at once, against a database and the fold at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.change import TableId
from ingest.gold.fold import arrow_files, arrow_fold, arrow_parts, arrow_shares
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.fold.key_shares import KeysOfChanges, Shares
from tests.properties import lakes
from tests.properties.histories import Kind
from tests.properties.test_arrow_fold import (
    BATCHES,
    BY_VECTORS,
    _content,
    _fold,
    _rows,
    _work,
    by_histories,
)

KINDS = (
    Kind("full", ("string",)),
    Kind("full_two", ("int64", "decimal(10,2)")),
    Kind("full_text", ("string", "decimal(10,2)")),
    Kind("cut_off", ("string",), epochs=False, truncate_at=(4, 9)),
)
NO_KEYS = KeysOfChanges(set(), set())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is folded at once, and few outcomes wait."""
    monkeypatch.setattr(arrow_parts, "READ_AT_ONCE", 7)
    monkeypatch.setattr(arrow_parts, "WAITING_ROWS", 20)


def _in_parts(
    work: MirrorWork, files: Sequence[str], most: int
) -> tuple[MirrorWork, list[arrow_files.Written]]:
    """The mirror after a batch that two tasks have dealt to parts of about so many changes."""
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    work = replace(work, changes=rows)
    cut = arrow_parts.pieces(files, work.lanes)
    shares = arrow_shares.shares_of(work, NO_KEYS, most)
    by_path = {work.path: shares}
    found = [one for at in (0, 1) for one in arrow_shares.deal([work], cut[at::2], "parts", by_path)]
    assert not any(one.refused for one in found)
    made = [arrow_shares.merged(work, found, part, shares) for part in range(shares.count)]
    if any(one.refused for one in made):
        return work, made
    replaces, vectors = any(one.replaces for one in made), arrow_parts.vectors_of(work, made)
    work = _fold(work, replace(made[0], replaces=replaces, vectors=vectors))
    for one in made[1:]:
        work = _fold(work, replace(one, replaces=False))
    return work, made


def _again(files: Sequence[str], rows: int) -> list[str]:
    """The same changes, in smaller row groups."""
    for file in files:
        pq.write_table(pq.read_table(file), file, row_group_size=rows)
    return list(files)


@pytest.mark.one_of(4, "kind", "vectors")
@by_histories(50, 150)
@BY_VECTORS
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_history_is_wrong(
    kind: Kind, histories: int, tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key dealt to two parts, or an older outcome that wins, is a wrong row; a part forgotten, many lost ones."""
    monkeypatch.setattr(arrow_fold, "AT_ONCE", 1 if vectors else 1_000_000)
    feed = lakes.together(kind, histories, BATCHES, ordered=True)
    work, random, several = _work(feed, kind, tmp_path), Random(kind.name), 0
    for batch in range(1, len(feed.batches) + 1):
        files = _again(_rows(feed, batch, tmp_path), 30)
        lane = LaneWork(lakes.SOURCE, feed.table, batch, batch, images=True)
        work = replace(work, lanes=(lane,))
        marked = (
            frozenset(name for name, _ in work.files) if vectors and random.random() < 0.8 else frozenset()
        )
        after, made = _in_parts(replace(work, marked=marked), files, 40)
        if any(one.refused for one in made):
            assert "all rows" in made[0].refused
            after, made = _in_parts(work, files, 40)
        work, several = after, max(several, len(made))
    assert feed.rows == _content(work, feed.keys)
    assert several > 2  # the first load


def _page(*rows: tuple[str, str, str]) -> pa.Table:
    """Changes of a table: table, place, and the row after; a row without a value is deleted."""
    return pa.Table.from_pylist(
        [
            {
                "source": "s", "database": "yard", "schema": None, "table": table, "batch": 1, "order_key": place,
                "op": "truncate" if not row else "delete" if '"v"' not in row else "insert", "partial": False,
                "before": row or None, "after": row or None, "topic": "t", "partition": 0, "offset": offset, "row": 0, "transaction": "x",
            }
            for offset, (table, place, row) in enumerate(rows)
        ]
    )  # fmt: skip


def _mirror(folder: Path, *tables: str, key: str = "int64") -> MirrorWork:
    lanes = tuple(LaneWork("s", TableId("yard", None, one), 1, 1, images=True) for one in tables)
    columns = (ColumnWork("id", "id", key), ColumnWork("v", "v", "string"))
    return MirrorWork("m", str(folder / "m"), ("id",), columns, lanes)


def _written(folder: Path, page: pa.Table) -> list[str]:
    pq.write_table(page, folder / "changes.parquet", row_group_size=1)
    return [str(folder / "changes.parquet")]


def test_tables_that_send_one_key_are_refused(tmp_path: Path) -> None:
    """Which of two tables' rows stays is not decided by their places."""
    files = _written(tmp_path, _page(("a", "1", '{"id":"1","v":"x"}'), ("b", "2", '{"id":"1","v":"y"}')))
    _, made = _in_parts(_mirror(tmp_path, "a", "b"), files, 1)
    assert {"", "several tables send rows of one key"} == {one.refused for one in made}


def test_a_truncate_ends_the_rows_of_its_own_table(tmp_path: Path) -> None:
    """It is in another piece than the rows that it ends, and the other table's rows are as old as these."""
    rows = [
        ("a", "1", '{"id":"1","v":"x"}'),
        ("a", "3", ""),
        ("b", "2", '{"id":"2","v":"y"}'),
        ("a", "4", '{"id":"3","v":"z"}'),
    ]
    work, _ = _in_parts(_mirror(tmp_path, "a", "b"), _written(tmp_path, _page(*rows)), 1)
    assert [(2, "y"), (3, "z")] == sorted(
        (row["id"], row["v"]) for row in arrow_files.there(work).to_pylist()
    )


@pytest.mark.parametrize(
    ("key", "texts"),
    [("decimal(10,2)", ("1.5", "1.50")), ("datetime", ("2024-05-01", "2024-05-01 00:00:00")), ("string", ("a\0", "a\0"))],
)  # fmt: skip
def test_a_key_is_one_however_it_is_written(tmp_path: Path, key: str, texts: tuple[str, str]) -> None:
    """Its texts may differ from message to message, and then lie in different parts: a key would be there twice."""
    rows = [
        ("a", str(at), f'{{"id":"{text}","v":"{at}"}}'.replace("\0", "\\u0000"))
        for at, text in enumerate(texts)
    ]
    work, _ = _in_parts(_mirror(tmp_path, "a", key=key), _written(tmp_path, _page(*rows)), 1)
    assert ["1"] == [row["v"] for row in arrow_files.there(work).to_pylist()]


def test_what_does_not_fit_is_rejected_in_its_own_task(tmp_path: Path) -> None:
    """A change whose key is no value of its type would be lost without a word."""
    files = _written(tmp_path, _page(("a", "1", '{"id":"x","v":"x"}'), ("a", "2", '{"id":"1","v":"y"}')))
    work = replace(_mirror(tmp_path, "a"), changes=2)
    by_path = {work.path: Shares(1)}
    [dealt] = arrow_shares.deal([work], arrow_parts.pieces(files, work.lanes), "parts", by_path)
    [rejected] = dealt.rejected
    assert ("", "key-does-not-fit", '{"id":"x"}', 0) == (
        dealt.refused,
        rejected.reason,
        rejected.key,
        rejected.place and rejected.place.offset,
    )
    assert [1] == [row["id"] for row in arrow_files.there(_in_parts(work, files, 1)[0]).to_pylist()]


def test_more_rows_than_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed for its memory takes the whole batch with it."""
    monkeypatch.setattr(arrow_parts, "PART_BYTES", 10)
    files = _written(tmp_path, _page(("a", "2", '{"id":"1","v":"y"}')))
    _, made = _in_parts(_mirror(tmp_path, "a"), files, 1)
    assert "memory" in made[0].refused
