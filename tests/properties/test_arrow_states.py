"""Tables of old states, file by file and without Spark, against the steps of the plain fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.fold import Placed, SchemaStep, Table, steps
from ingest.gold.fold import arrow_files, arrow_parts, arrow_shares, arrow_states
from ingest.gold.fold.arrow_values import typed_column
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.fold.key_shares import KeysOfChanges
from ingest.ledgers.histories import CURRENT, FROM, TO
from ingest.ledgers.stamps import change_of, micros
from ingest.order import order_key, order_of
from tests.properties import lakes
from tests.properties.histories import COLUMNS
from tests.properties.kinds import Kind
from tests.properties.test_arrow_fold import BATCHES, _column, _fold, _rows, _work
from tests.properties.test_arrow_parts import _again

OWN = (
    ColumnWork(FROM, "valid_from", "timestamp"),
    ColumnWork(TO, "valid_to", "timestamp"),
    ColumnWork(CURRENT, "is_current", "boolean"),
)
KINDS = [*lakes.ANY, lakes.PARTIAL, lakes.INHERITING, lakes.LAWLESS, lakes.TRUNCATED]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few changes wait, and a page has few of them."""
    monkeypatch.setattr(arrow_parts, "READ_AT_ONCE", 11)
    monkeypatch.setattr(arrow_parts, "WAITING_ROWS", 20)


def _expected(files: Sequence[str], work: MirrorWork) -> Counter[tuple[Any, ...]]:
    """Every state by its definition: each key's rows after each step, of which equal neighbours are one."""
    [lane] = work.lanes
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    moments = {order_of(place): moment for place, moment in lane.moments or ()}
    moments |= {order_of(row["order_key"]): micros(row["event_time"].replace(tzinfo=None)) for row in rows}
    events = [Placed(order_of(row["order_key"]), change_of(row)) for row in rows]
    by_key: dict[tuple[object, ...], list[tuple[Any, int | None]]] = {}
    for step in steps(Table(work.keys, work.logical), [*events, *(one.decoded() for one in lane.steps)]):
        if step.effect != "nothing":
            row = None if step.row is None else dict(step.row)
            by_key.setdefault(step.key, []).append((row, moments.get(step.event.order)))
    found = Counter[tuple[Any, ...]]()
    names = [one.name for one in work.columns[: -len(OWN)]]
    for key, rows_of_key in by_key.items():
        texts = dict(zip(work.keys, map(str, key), strict=True))  # which a part of a row may lack
        distinct = [next(group) for _, group in groupby(rows_of_key, lambda one: one[0])]
        for (row, since), (_, until) in pairwise([*distinct, (None, None)]):
            if row is not None:
                cells = ({**row, **texts}.get(name) for name in names)
                found[(*cells, since, until, row is distinct[-1][0])] += 1
    return found


def _content(work: MirrorWork) -> Counter[tuple[Any, ...]]:
    rows = arrow_files.there(work)
    moments = [rows[name].cast(pa.int64()) for name in ("valid_from", "valid_to")]
    columns = [rows[one.column] for one in work.columns[: -len(OWN)]]
    cells = [column.to_pylist() for column in (*columns, *moments, rows["is_current"])]
    return Counter(zip(*cells, strict=True))


def _typed(found: Counter[tuple[Any, ...]], work: MirrorWork) -> Counter[tuple[Any, ...]]:
    rows = list(found.elements())
    cells = [[row[at] for row in rows] for at in range(len(work.columns))]
    for at, one in enumerate(work.columns[: -len(OWN)]):
        cells[at] = typed_column(pa.array(cells[at], pa.string()), one.type).cells.to_pylist()
    return Counter(zip(*cells, strict=True))


def _in_shares(work: MirrorWork, files: Sequence[str]) -> MirrorWork:
    """The table after a batch that three tasks have dealt to shares."""
    work = replace(work, shared=1)
    keys = KeysOfChanges(set(), set())
    if (asked := arrow_shares.looked_through(work)) is not None:
        pieces = arrow_parts.pieces(files, asked.lanes)
        for found in (one for at in range(3) for one in arrow_shares.links([asked], pieces[at::3])):
            keys.links.update(found.pairs)
            keys.touched.update(found.touched)
    shares = replace(arrow_shares.shares_of(work, keys, 100), count=5)
    pieces = arrow_parts.pieces(files, work.lanes)
    by_path = {work.path: shares}
    dealt = [one for at in range(3) for one in arrow_shares.deal([work], pieces[at::3], "shares", by_path)]
    made = [arrow_shares.merged(work, dealt, share, shares) for share in range(shares.count)]
    assert all(one.is_made for one in made)
    replaces, vectors = any(one.replaces for one in made), arrow_parts.vectors_of(work, made)
    work = _fold(work, replace(made[0], replaces=replaces, vectors=vectors))
    for one in made[1:]:
        work = _fold(work, replace(one, replaces=False))
    return work


def _statements(random: Random, places: Sequence[str]) -> list[SchemaStep]:
    """Some statements, each after some change."""
    column = random.choice(list(COLUMNS))
    kinds = (
        {"action": "drop_column", "column": column},
        {"action": "add_column", "column": "d", "default": "7.5"},
        {"action": "rename_column", "column": "s", "to": "n"},
        {"action": "new_incarnation"},
    )
    orders = [order_of(place) for place in random.sample(sorted(places), 2)]
    later = [order_key(one._replace(row=one.row + 1000)) for one in orders]
    return [SchemaStep(order=place, **random.choice(kinds)) for place in later]  # type: ignore[arg-type]


@pytest.mark.one_of(6)
@pytest.mark.parametrize("way", ["files", "vectors", "shares"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_state_is_wrong(kind: Kind, way: str, tmp_path: Path) -> None:
    """Late, repeated, partial and key-changing messages and statements: a state that is lost, open twice or in the wrong
    order makes every question about the past wrong.
    """
    feed = (
        lakes.alone(kind, 3, BATCHES) if kind.truncates else lakes.together(kind, 40, BATCHES, ordered=False)
    )
    work = _work(feed, kind, tmp_path)
    work = replace(work, columns=(*work.columns, *OWN), states=True)
    files, stated, random = list[str](), list[SchemaStep](), Random(kind.name + way)
    for batch in range(1, len(feed.batches) + 1):
        new = _again(_rows(feed, batch, tmp_path), 30)
        files += new
        if not new:
            continue
        said = _statements(random, _column(files, "order_key")) if batch in (3, 5) else []
        stated += said
        clears = "truncate" in _column(new, "op")
        lane = LaneWork(
            lakes.SOURCE, feed.table, batch, batch, whole=True, moves=kind.moves or kind.lawless,
            everything=batch == 1 or bool(said) or clears, steps=tuple(stated),
            moments=tuple((str(one.order), number) for number, one in enumerate(stated)),
        )  # fmt: skip
        work = replace(work, lanes=(lane,))
        if way != "files":
            work = replace(work, marked=frozenset(name for name, _ in work.files if random.random() < 0.7))
        if way == "shares":
            work = _in_shares(work, files)
        else:
            work = _fold(work, arrow_files.make(work, arrow_files.read(files, work.lanes)))
        assert _typed(_expected(files, work), work) == _content(work), batch
    assert len(_content(work)) > 3 * len(feed.rows)


def test_only_touched_keys_are_folded(tmp_path: Path) -> None:
    """A batch of one change would else fold the history of the whole table."""
    feed = lakes.together(lakes.FULL, 40, BATCHES, ordered=False)
    work = _work(feed, lakes.FULL, tmp_path)
    files = [file for batch in (1, 2) for file in _rows(feed, batch, tmp_path)]
    lane = LaneWork(lakes.SOURCE, feed.table, 2, 2, whole=True, moments=())
    work = replace(work, columns=(*work.columns, *OWN), lanes=(lane,), states=True)
    touched = {row["k0"] for row in _keys(files[1:], work)}
    found = arrow_states.states(work, arrow_files.read(files, work.lanes)).table
    assert (
        {row[work.keys[0]] for row in found.to_pylist()}
        == touched
        != {row["k0"] for row in _keys(files, work)}
    )


def _keys(files: Sequence[str], work: MirrorWork) -> list[dict[str, object]]:
    changes = [change_of(row) for file in files for row in pq.read_table(file).to_pylist()]
    table = Table(work.keys, work.logical)
    return [{"k0": table.key(one.after or one.before)[0]} for one in changes]


def test_states_that_stay_are_not_written_again(tmp_path: Path) -> None:
    """A repeated message would rewrite the table, and show its states as inserted and deleted."""
    feed = lakes.together(lakes.FULL, 40, BATCHES, ordered=True)
    work = _work(feed, lakes.FULL, tmp_path)
    files = _rows(feed, 1, tmp_path)
    lane = LaneWork(lakes.SOURCE, feed.table, 1, 1, whole=True, moments=())
    work = replace(work, columns=(*work.columns, *OWN), lanes=(lane,), states=True)
    made = [arrow_files.make(work, arrow_files.read(files, work.lanes))]
    work = _fold(work, made[0])
    made.append(arrow_files.make(work, arrow_files.read(files, work.lanes)))
    assert 0 < made[0].counts["inserted"] == arrow_files.there(work).num_rows
    assert ("", [0, 0]) == (made[1].file, [made[1].counts[name] for name in ("inserted", "deleted")])
