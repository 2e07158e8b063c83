"""The fold by Arrow, file by file and without Spark, against a database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.config.model import MadeColumn, TableRule
from ingest.fold import Placed, Table, steps
from ingest.gold.apply.planner import HISTORY_AT_MOST, _needing_history, late_from, refolds
from ingest.gold.fold import arrow_files, arrow_fold
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.plan.lane import ChangeKinds, Lane, Steps
from ingest.gold.plan.mirror_schema import recomputed
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.stamps import change_of, stamps_of
from ingest.order import order_of
from ingest.tables.schemas import CPU
from ingest.values.typed_values import value_of
from tests.lake.test_vectors import read
from tests.properties import lakes
from tests.properties.conditions import CONDITIONS
from tests.properties.histories import COLUMNS
from tests.properties.kinds import Kind

BATCHES = 6
KINDS = (
    Kind("full", ("string",)),
    Kind("full_two", ("int64", "decimal(10,2)")),
    Kind("partial", ("decimal(10,2)",), partials=True),
    Kind("moving", ("int64", "string"), moves=True),
    Kind("mixed", ("decimal(10,2)", "string"), partials=True, moves=True),
    Kind("cleared", ("string",), partials=True, moves=True, epochs=False, truncate_at=(4, 9)),
)


def _rows(feed: lakes.Feed, batch: int, folder: Path) -> list[str]:
    """One batch of `changes`, in a file."""
    messages = feed.batches[batch - 1] if batch <= len(feed.batches) else []
    pages: list[pa.RecordBatch] = []
    for epoch in sorted({sent.epoch for sent in messages}):
        decoder = lakes.decoder(lakes.pipeline_of(folder), epoch, messages)
        pages += decoder.lift(
            lakes.page(batch, [at for at, sent in enumerate(messages) if sent.epoch == epoch])
        )
    if not pages:
        return []
    rows = pa.Table.from_batches(pages)
    pq.write_table(rows.filter(pa.compute.equal(rows["kind"], "change")), folder / f"{batch}.parquet")
    return [str(folder / f"{batch}.parquet")]


def _fold(work: MirrorWork, made: arrow_files.Written) -> MirrorWork:
    """The mirror after a commit."""
    assert not made.refused
    assert made.counts[CPU] >= 0
    files = tuple(one for one in work.files if not made.replaces or one[0] in work.marked)
    for name, vector in made.vectors.items():
        gone = set(read(Path(work.folder), vector))
        kept = pa.array([row not in gone for row in range(max(gone) + 1)])
        files = (*(one for one in files if one[0] != name), (name, kept))
    files += ((made.file, None),) if made.file else ()
    return replace(work, files=files, marked=frozenset(), size=work.size + made.size)


def _made(work: MirrorWork, files: Sequence[str], random: Random | None = None) -> MirrorWork:
    """The mirror with one more batch; by lot, rows of some of its files are deleted by vectors."""
    rows = arrow_files.read(files, work.lanes)
    marked = frozenset(name for name, _ in work.files if random and random.random() < 0.8)
    if marked:
        made = arrow_files.make(replace(work, marked=marked), rows)
        if not made.refused:
            return _fold(replace(work, marked=marked), made)
        assert "all rows" in made.refused
    return _fold(work, arrow_files.make(work, rows))


def _content(work: MirrorWork, keys: Sequence[str]) -> lakes.Typed:
    rows = arrow_files.there(work).to_pylist()
    found = {tuple(row[key] for key in keys): tuple(row[name] for name in COLUMNS) for row in rows}
    assert len(found) == len(rows), "a key occurs twice"
    return found


def _work(feed: lakes.Feed, kind: Kind, folder: Path) -> MirrorWork:
    numbers = ("int64",) * (len(feed.keys) - len(kind.key_types))  # of histories that share a table
    logical = dict(zip(feed.keys, (*numbers, *kind.key_types), strict=True))
    columns = tuple(ColumnWork(name, name, one) for name, one in {**logical, **COLUMNS}.items())
    return MirrorWork("mirror", str(folder / "mirror"), feed.keys, columns, ())


BY_VECTORS = pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])


def by_histories(few: int, many: int) -> pytest.MarkDecorator:
    """Tests of few random histories, and slow ones of many."""
    return pytest.mark.parametrize("histories", [few, pytest.param(many, marks=pytest.mark.slow)])


@pytest.mark.one_of(4, "kind", "vectors")
@by_histories(50, 150)
@BY_VECTORS
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_history_is_wrong(
    kind: Kind, histories: int, tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch after batch in order: a mirror that differs from the database is wrong for its reader."""
    monkeypatch.setattr(arrow_fold, "AT_ONCE", 1 if vectors else 1_000_000)
    feed = lakes.together(kind, histories, BATCHES, ordered=True)
    images, work = not kind.partials and not kind.moves, _work(feed, kind, tmp_path)
    random = Random(kind.name) if vectors else None
    for batch in range(1, len(feed.batches) + 1):
        files = _rows(feed, batch, tmp_path)
        lane = LaneWork(lakes.SOURCE, feed.table, batch, batch, images)
        work = _made(replace(work, lanes=(lane,)), files, random)
    assert feed.rows == _content(work, feed.keys)
    assert vectors == any((tmp_path / "mirror").glob("deletion_vector_*.bin"))


@pytest.mark.one_of(4, "kind", "vectors")
@by_histories(30, 80)
@BY_VECTORS
@pytest.mark.parametrize("kind", [*lakes.ANY, lakes.INHERITING, lakes.LAWLESS], ids=lambda kind: kind.name)
def test_no_late_history_is_wrong(kind: Kind, histories: int, tmp_path: Path, vectors: bool) -> None:
    """Late, repeated and in order by turns: the news alone, with the folded changes after the first late one, or the
    whole history.
    """
    feed = lakes.together(kind, histories, BATCHES, ordered=False)
    random, work, files, high = Random(kind.name), _work(feed, kind, tmp_path), list[str](), ""
    late: set[bool] = set()
    for batch in range(1, len(feed.batches) + 1):
        files += (new := _rows(feed, batch, tmp_path))
        if not new:
            continue
        own, high = _lane(feed, kind, new, high), max(high, *_column(new, "order_key"))
        lane = _lane_work(own)
        lane = replace(lane, whole=True, late_from="") if random.random() < 0.2 else lane
        late |= {bool(lane.late_from)} if own.late else set()
        work = _made(replace(work, lanes=(lane,)), files, random if vectors else None)
    assert feed.rows == _content(work, feed.keys)
    assert late == (
        {False} if kind.partials or kind.moves or kind.inherits or kind.lawless else {False, True}
    )


@pytest.mark.one_of(3, "kind")
@by_histories(10, 30)
@pytest.mark.parametrize(
    "kind", [Kind("parts", ("string",), partials=True), lakes.MOVING, lakes.MIXED], ids=lambda kind: kind.name
)
def test_no_late_change_to_a_long_history_is_wrong(kind: Kind, histories: int, tmp_path: Path) -> None:
    """A part of a row and a new key are folded as they come, if no folded change of their keys is later."""
    ways = Counter[str]()
    for number in range(histories):
        feed, files, high = lakes.alone(kind, number, BATCHES), list[str](), ""
        (folder := tmp_path / str(number)).mkdir()
        work = _work(feed, kind, folder)
        for batch in range(1, len(feed.batches) + 1):
            files += (new := _rows(feed, batch, folder))
            if not new:
                continue
            own = _lane(feed, kind, new, high, changes_ever=HISTORY_AT_MOST + 1)
            high = max(high, *_column(new, "order_key"))
            work = replace(work, lanes=(_lane_work(own),))
            made = arrow_files.make(work, arrow_files.read(files, work.lanes))
            ways[made.refused if work.lanes[0].late_from else "in order"] += 1
            assert (made.needs == "history") == bool(made.refused)
            if made.refused:
                work = replace(work, lanes=(replace(work.lanes[0], whole=True, late_from=""),))
                made = arrow_files.make(work, arrow_files.read(files, work.lanes))
            work = _fold(work, made)
        assert feed.rows == _content(work, feed.keys)
    assert ways[""] >= histories // 3, ways
    assert (
        ways["a later change of a late one's key has been folded, and does not carry its whole row"]
        >= histories // 3
    )


def _column(files: Sequence[str], name: str) -> list[str]:
    return [cell for file in files for cell in pq.read_table(file)[name].to_pylist()]


def _lane(feed: lakes.Feed, kind: Kind, new: Sequence[str], high: str, **given: Any) -> Lane:
    """A batch's changes as the books count them."""
    kinds, ops, [batch] = (
        ChangeKinds(kind.partials, kind.moves),
        Counter(_column(new, "op")),
        {*_column(new, "batch")},
    )
    return Lane(
        lakes.SOURCE, feed.table, int(batch), int(batch), min(_column(new, "order_key")), high, kinds, kinds,
        deletes=ops["delete"], truncates=ops["truncate"], inherits=int(kind.inherits or kind.lawless), **given,
    )  # fmt: skip


def _lane_work(lane: Lane) -> LaneWork:
    whole, images = refolds(lane, Steps()), not (lane.new.partials or lane.new.key_changes)
    from_place = "" if whole else late_from(lane, Steps())
    return LaneWork(
        lane.source,
        lane.table,
        lane.first,
        lane.last,
        images,
        stamps=lane.stamps,
        whole=whole,
        late_from=from_place,
    )


@pytest.mark.one_of(3)
@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize(
    "kind", [lakes.FULL, lakes.MIXED, lakes.CLEARED, lakes.INHERITING], ids=lambda kind: kind.name
)
def test_no_filtered_history_is_wrong(kind: Kind, where: str, tmp_path: Path) -> None:
    """A row that stops to meet a condition must leave, and one that starts to must come with columns sent long before."""
    feed = lakes.together(kind, 20, BATCHES, ordered=False)
    work, wider = _delivered(feed, kind, tmp_path, TableRule(where=where))
    expected = {key: row for key, row in feed.rows.items() if CONDITIONS[where](row)}  # type: ignore[arg-type]
    assert expected == _content(work, feed.keys)
    assert 0 < len(expected) < len(feed.rows)
    assert wider


MADE = {
    "sum": MadeColumn("compute", "coalesce(n, 0) + d * 2", "decimal(38,10)"),
    "label": MadeColumn("compute", "coalesce(s, '-') || n"),
    "origin": MadeColumn("constant", 'a "shop"'),
    "batch": MadeColumn("meta", "batch", "int64"),
    "did": MadeColumn("meta", "operation", "string"),
    "from": MadeColumn("meta", "table", "string"),
    "moment": MadeColumn("meta", "event_time", "timestamp"),
}


@pytest.mark.parametrize(
    "kind", [lakes.FULL, lakes.MIXED, lakes.CLEARED, lakes.INHERITING], ids=lambda kind: kind.name
)
def test_no_history_with_columns_of_rules_is_wrong(kind: Kind, tmp_path: Path) -> None:
    """A computed column must follow each of its inputs, and a metadata column name the last change of its row."""
    feed = lakes.together(kind, 20, BATCHES, ordered=False)
    work, _ = _delivered(feed, kind, tmp_path, TableRule(made=MADE))
    assert feed.rows == _content(work, feed.keys)
    last = _last_changes(feed, work, tmp_path)
    rows = arrow_files.there(work).to_pylist()
    for row in rows:
        n, s, d = (row[name] for name in COLUMNS)
        assert row["sum"] == (None if d is None else (n or 0) + 2 * d)
        assert row["label"] == (None if n is None else f"{'-' if s is None else s}{n}")
        assert ('a "shop"', str(feed.table)) == (row["origin"], row["from"])
        change = last[tuple(row[key] for key in feed.keys)]
        assert (change["batch"], change["op"]) == (row["batch"], row["did"])
        assert change["event_time"] == row["moment"]
    assert {"insert", "update"} <= {row["did"] for row in rows}
    assert len({row["batch"] for row in rows}) > 1


SOFT = {
    "_deleted": MadeColumn("deletes", "soft", "boolean"),
    "_deleted_at": MadeColumn("deletes", "soft", "timestamp"),
}


@pytest.mark.parametrize(
    "kind",
    [lakes.FULL, lakes.MOVING, lakes.MIXED, lakes.CLEARED, lakes.WEAK, lakes.INHERITING, lakes.LAWLESS],
    ids=lambda kind: kind.name,
)
def test_no_history_with_deleted_rows_is_wrong(kind: Kind, tmp_path: Path) -> None:
    """A deleted row must stay as it was last, with the time of its delete, and be replaced if its key comes again."""
    feed = lakes.together(kind, 20, BATCHES, ordered=False)
    work, _ = _delivered(feed, kind, tmp_path, TableRule(made=SOFT))
    live, dead = _live_and_dead(feed, work, tmp_path)
    assert live == feed.rows
    expected = {key: (*row, False, None) for key, row in live.items()} | dead
    rows = arrow_files.there(work).to_pylist()
    names = (*COLUMNS, *SOFT)
    assert expected == {
        tuple(row[key] for key in feed.keys): tuple(row[name] for name in names) for row in rows
    }
    assert len(rows) == len(expected)
    assert len(dead) > 5


def _live_and_dead(feed: lakes.Feed, work: MirrorWork, folder: Path) -> tuple[lakes.Typed, lakes.Typed]:
    """The existing rows and the deleted ones, by watching the fold that knows nothing of deleted rows.

    A partial update that is repeated makes a row of what it carries: its delete leaves the rest as it was.
    """
    kinds = {one.name: one.type for one in work.columns}
    table = Table(feed.keys, {key: kinds[key] for key in feed.keys})
    by_place = {row["order_key"]: row for row in _all_changes(folder)}
    times = {order_of(place): row["event_time"] for place, row in by_place.items()}
    events = [Placed(order_of(place), change_of(row)) for place, row in by_place.items()]
    there, dead, ended = dict[Any, Any](), dict[Any, Any](), dict[Any, Any]()
    for step in steps(table, events):
        for key in there.keys() - table.rows.keys():
            ended[key] = ended.get(key, {}) | there[key]
            dead[key] = *_cells(ended[key], kinds), True, times[step.event.order]
        there = {
            key: dict.fromkeys(COLUMNS if row.complete else ()) | row.values
            for key, row in table.rows.items()
        }
        dead = {key: row for key, row in dead.items() if key not in there}
    return {key: _cells(row, kinds) for key, row in there.items()}, dead


def _cells(row: dict[str, str | None], kinds: dict[str, str]) -> tuple[object, ...]:
    return tuple(_value(row.get(name), kinds[name]) for name in COLUMNS)


def _value(text: str | None, logical: str) -> object:
    value = None if text is None else value_of(logical, text)
    return Decimal(str(value)) if value is not None and logical.startswith("decimal") else value


def _all_changes(folder: Path) -> list[dict[str, Any]]:
    return [
        row for batch in range(1, BATCHES + 9) if (folder / f"{batch}.parquet").exists()
        for row in pq.read_table(folder / f"{batch}.parquet").to_pylist()
    ]  # fmt: skip


def _last_changes(feed: lakes.Feed, work: MirrorWork, folder: Path) -> dict[Any, Any]:
    """The last change of each row in the order of history, by the plain fold of all of them."""
    rows = _all_changes(folder)
    kinds = {one.name: one.type for one in work.columns if one.name in feed.keys}
    table, found = Table(feed.keys, kinds), dict[Any, Any]()
    by_place = {row["order_key"]: row for row in rows}
    places = {order_of(place): row for place, row in by_place.items()}
    events = [Placed(order_of(row["order_key"]), change_of(row)) for row in by_place.values()]
    for step in steps(table, events):
        if step.row is not None and step.effect != "nothing":
            found[step.key] = places[step.event.order]
    return found


def _delivered(feed: lakes.Feed, kind: Kind, folder: Path, rule: TableRule) -> tuple[MirrorWork, int]:
    """A mirror with rules after all batches, and how often it has got another size."""
    work, files, high, wider = _work(feed, kind, folder), list[str](), "", 0
    random = Random(kind.name)
    plain = tuple(Column(*one[:3]) for one in work.columns)
    mirror = recomputed(rule, Mirror(feed.table, work.path, work.keys, plain, shape=rule.shape))
    columns = tuple(ColumnWork(one.name, one.column, one.type, one.expression) for one in mirror.columns)
    work = replace(work, columns=columns, where=rule.where)
    stamps = stamps_of(mirror, lakes.SOURCE, feed.table)
    for batch in range(1, len(feed.batches) + 1):
        files += (new := _rows(feed, batch, folder))
        if not new:
            continue
        lane = _needing_history(_lane(feed, kind, new, high, stamps=stamps), mirror)
        high = max(high, *_column(new, "order_key"))
        work = replace(work, lanes=(_lane_work(lane),))
        before = work.size
        work = _made(work, files, random)
        wider += work.size != before
    return work, wider
