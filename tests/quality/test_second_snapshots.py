"""A second snapshot of Debezium for PostgreSQL: its rows are changes at its position, those of a first one come before all changes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.ledgers import epochs
from ingest.order import order_of
from ingest.silver.decode import decode
from ingest.tables.staging import shadow_of
from tests.quality.test_unplaced import RULE
from tests.shops import Shops, metrics_by_spark, order_metrics


class Postgres(Shops):
    """One table, and the complaints about its rows that were read again."""

    connector = "postgresql"

    def row(self, op: str, key: int, text: str, lsn: int, snapshot: str = "false") -> str:
        """A change (c, u, d), or a row of a snapshot (r)."""
        place = (
            {"schema": "p", "lsn": lsn}
            if self.connector == "postgresql"
            else {"file": "bin.1", "pos": lsn, "row": 0}
        )
        source = {"connector": self.connector, "db": "cut", "table": "t", **place}
        row = {"id": key, "text": text}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return json.dumps({**images, "source": {**source, "snapshot": snapshot}, "op": op})

    def snapshot(self, lsn: int, rows: dict[int, str]) -> list[str]:
        """All rows that the table had at a position."""
        last = [*rows][-1]
        return [
            self.row("r", key, text, lsn, "last_in_data_collection" if key == last else "true")
            for key, text in rows.items()
        ]

    def batch(self, *lines: str) -> dict[str, tuple[float, str, tuple[str, ...], str]]:
        """What the checks of order say of another file: number, severity, keys, words."""
        self.number += 1
        self.lines += lines
        assert ("done", "") == self.run()
        found = order_metrics(self.lake, self.lake.decoded() - 1)
        assert len(found) == len({metric.check for metric in found})
        return {
            metric.check: (metric.observed, metric.severity, metric.failing, metric.detail)
            for metric in found
        }


@pytest.fixture
def table(tmp_path: Path) -> Postgres:
    """A table without a row."""
    return Postgres(tmp_path, RULE, dialect="debezium", budget=4 << 20)


def parts(table: Postgres, batches: bool, *files: list[str]) -> dict[str, Any]:
    """What is said at the end: of each file in a batch of its own, or of all in one."""
    if not batches:
        return table.batch(*(line for lines in files for line in lines))
    said = [table.batch(*lines) for lines in files]
    assert all(not complaints for complaints in said[:-1])
    return said[-1]


FIRST = {1: "a", 2: "b", 3: "c"}


def stream(table: Postgres) -> list[str]:
    """Changes after the first snapshot."""
    return [
        table.row("u", 2, "b2", 200),
        table.row("c", 4, "d", 210),
        table.row("c", 5, "e", 220),
        table.row("d", 3, "c", 230),
    ]


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [False, True])
def test_what_changed_while_the_place_was_lost_is_said(table: Postgres, batches: bool) -> None:
    """The connector lost its offsets: its second snapshot has a row that was changed unseen, and lacks two that were deleted."""
    again = table.snapshot(300, {2: "b3", 4: "d", 3: "again"})
    said = parts(table, batches, table.snapshot(100, FIRST), stream(table), again)
    assert {1: "a", 2: "b3", 3: "again", 4: "d", 5: "e"} == table.rows("mirrors/cut/p.t")
    assert {"rows_not_loaded"} == said.keys()
    missing, severity, keys, words = said["rows_not_loaded"]
    assert (2, "error", ('{"id":"1"}', '{"id":"5"}')) == (missing, severity, keys)
    assert "--complete" in words


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [False, True])
def test_a_second_snapshot_of_what_the_stream_has_said_is_no_complaint(
    table: Postgres, batches: bool
) -> None:
    """Somebody starts a connector again to be sure: the mirror is right, and no alarm may say otherwise."""
    again = table.snapshot(300, {1: "a", 2: "b2", 4: "d", 5: "e"})
    assert {} == parts(table, batches, table.snapshot(100, FIRST), stream(table), again)
    assert {} == table.batch(table.row("u", 1, "a2", 400))


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_rows_that_a_load_lacked_are_named_where_it_is_cut_into_batches(
    table: Postgres, dialect: str
) -> None:
    """What was folded last are rows of the load itself then, and nothing seemed to be older than it."""
    table.connector = dialect
    first, *rest = table.snapshot(300, {2: "b2", 4: "d"})
    assert {} == table.batch(*table.snapshot(100, FIRST), *stream(table))
    assert {} == table.batch(first)
    assert ('{"id":"1"}', '{"id":"5"}') == table.batch(*rest)["rows_not_loaded"][2]


def test_rows_that_no_mirror_has_are_not_said_to_be_missing_in_a_load(tmp_path: Path) -> None:
    """A condition leaves rows out of the mirror: those cannot be wrong there, and the others are."""
    rule = replace(RULE, where="text <> 'e'")
    table = Postgres(tmp_path, rule, dialect="debezium", budget=4 << 20)
    said = parts(
        table, False, table.snapshot(100, FIRST), stream(table), table.snapshot(300, {2: "b2", 4: "d"})
    )
    assert (1, ('{"id":"1"}',)) == (said["rows_not_loaded"][0], said["rows_not_loaded"][2])


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_a_second_snapshot_of_a_table_without_a_key_is_said(
    tmp_path: Path, dialect: str, batches: bool
) -> None:
    """Each of its rows would be there twice, with every check green."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    table.connector = dialect
    more = [table.row("c", 4, "d", 200), table.row("d", 1, "a", 210)]
    said = parts(
        table, batches, table.snapshot(100, {1: "a", 2: "b"}), more, table.snapshot(300, {2: "b", 4: "d"})
    )
    [(missing, severity, _, words)] = said.values()
    assert (2, "error") == (missing, severity)
    assert "--complete" in words


@pytest.mark.one_of(4, "batches", "dialect")
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_snapshot_that_comes_again_at_its_position_is_said(
    tmp_path: Path, dialect: str, batches: bool, whole: bool
) -> None:
    """It was begun again while nothing was written: each row was there twice, and a delete took one of the two."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    table.connector = dialect
    rows = table.snapshot(100, {1: "a", 2: "b"})
    said = parts(table, batches, rows, rows if whole else rows[-1:])
    [(count, severity, _, words)] = said.values()
    assert (2 if whole else 1, "error") == (count, severity)
    assert ("--complete" in words) == whole
    table.batch(table.row("d", 2, "b", 200), table.row("t", 0, "", 210))
    assert {} == table.batch(*table.snapshot(300, {1: "a", 2: "b"}))


@pytest.mark.one_of(4, "batches", "dialect")
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
@pytest.mark.parametrize("begins", ["first", "first_in_data_collection"])
def test_a_snapshot_that_was_broken_off_and_begun_again_at_its_position_is_said(
    tmp_path: Path, dialect: str, batches: bool, begins: str
) -> None:
    """The rows that it had read until then were there twice: only the first row of the second one is marked as such."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    table.connector = dialect
    _, *rest = table.snapshot(100, {1: "a", 2: "b", 3: "c"})
    rows = [table.row("r", 1, "a", 100, begins), *rest]
    said = parts(table, batches, rows[:2], rows)
    [(count, severity, _, words)] = said.values()
    assert (2, "error") == (count, severity)
    assert "--complete" in words
    table.batch(table.row("t", 0, "", 210))
    _, *rest = table.snapshot(300, {1: "a", 2: "b"})
    assert {} == table.batch(table.row("r", 1, "a", 300, begins), *rest)


@pytest.mark.parametrize("batches", [False, True])
def test_one_snapshot_with_a_first_row_is_no_complaint(tmp_path: Path, batches: bool) -> None:
    """It has come to its end once, in whatever batches."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    _, *rest = table.snapshot(100, {1: "a", 2: "b", 3: "c"})
    first = [table.row("r", 1, "a", 100, "first")]
    assert {} == parts(table, batches, first, rest)


def test_equal_rows_of_one_snapshot_are_no_complaint(tmp_path: Path) -> None:
    """A table without a key may have them."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    first, last = table.snapshot(100, {1: "a", 2: "b"})
    assert {} == table.batch(first, first, last)


def test_a_first_snapshot_of_a_table_without_a_key_is_no_complaint(tmp_path: Path) -> None:
    """Nor is one after all older rows have gone."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    assert {} == table.batch(*table.snapshot(100, {1: "a"}), table.row("d", 1, "a", 200))
    assert {} == table.batch(*table.snapshot(300, {2: "b"}), table.row("c", 4, "d", 400))


@pytest.mark.parametrize("repeated", ["c", "d"])
def test_what_came_twice_before_a_second_snapshot_counts_once(tmp_path: Path, repeated: str) -> None:
    """An insert that came twice would look like a row that stands, a delete like one that has gone."""
    table = Postgres(tmp_path, TableRule(match="*", no_key="full_row"), dialect="debezium", budget=4 << 20)
    twice = table.row("c", 1, "a", 100) if repeated == "c" else table.row("d", 1, "a", 120)
    more = [] if repeated == "c" else [table.row("c", 2, "b", 110)]
    said = table.batch(
        table.row("c", 1, "a", 100), *more, table.row("d", 1, "a", 120), twice, *table.snapshot(300, {3: "c"})
    )
    assert ({"rows_not_loaded"} if more else set()) == {*said} & {"rows_not_loaded"}


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [False, True])
def test_a_change_that_a_first_snapshot_did_not_see_is_no_complaint(table: Postgres, batches: bool) -> None:
    """It was written before the snapshot and committed after it: it wins though its position is the lower one."""
    assert {} == parts(table, batches, table.snapshot(100, FIRST), [table.row("u", 2, "b2", 90)])
    assert {1: "a", 2: "b2", 3: "c"} == table.rows("mirrors/cut/p.t")


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [False, True])
def test_a_snapshot_after_a_truncate_is_not_in_vain(table: Postgres, batches: bool) -> None:
    """Its rows come after the TRUNCATE by their position."""
    emptied = [json.dumps(json.loads(table.row("t", 0, "", 250)) | {"after": None})]
    assert {} == parts(table, batches, [*table.snapshot(100, FIRST), *emptied], table.snapshot(300, {7: "g"}))
    assert {7: "g"} == table.rows("mirrors/cut/p.t")


AGAIN = {1: "a", 2: "b3", 4: "d", 5: "e"}


def with_cells(line: str, cells: dict[str, Any]) -> str:
    """A message whose row has more cells."""
    message = json.loads(line)
    return json.dumps({**message, "after": message["after"] | cells})


@pytest.mark.one_of(2)
@pytest.mark.parametrize("text", ["b3", "late"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"gone": "x"}, {}, id="dropped"),
        pytest.param({"name": "x"}, {"title": "x"}, id="renamed"),
        pytest.param({"price": 1}, {"price": "1.00"}, id="retyped"),
    ],
)
def test_a_second_snapshot_after_the_columns_have_changed(
    table: Postgres, before: dict[str, Any], after: dict[str, Any], text: str
) -> None:
    """The stream is sent again with the columns of before: only what another cell says has lost."""
    table.rule = replace(RULE, columns={**RULE.columns, "price": "decimal(9,2)"})
    first = [with_cells(line, before) for line in table.snapshot(100, FIRST)]
    again = [with_cells(line, after) for line in table.snapshot(300, AGAIN)]
    behind = with_cells(table.row("u", 2, text, 290), before)
    said = table.batch(
        *first, *stream(table), *again, behind, with_cells(table.row("u", 4, "d2", 310), after)
    )
    assert ({"positions_started_again"} if text == "late" else set()) == said.keys()


def at(line: str, second: int) -> str:
    """A message with the source's clock."""
    message = json.loads(line)
    return json.dumps(
        {**message, "source": {**message["source"], "ts_ms": 1_700_000_000_000 + 1000 * second}}
    )


@pytest.mark.one_of(2)
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("clocked", [False, True])
@pytest.mark.parametrize("change", [("u", 2, "late"), ("d", 2, "b3")])
def test_a_change_that_a_second_snapshot_did_not_see_is_said(
    table: Postgres, batches: bool, clocked: bool, change: tuple[str, int, str]
) -> None:
    """It was written before the snapshot and committed after it, so its position is lower than that of the row that it changes.

    Its clock says so, or a change behind the snapshot's position: all that was committed before it has come by then.
    """
    again = [at(line, 5) for line in table.snapshot(300, AGAIN)]
    late = (
        [at(table.row(*change, 290), 6)]
        if clocked
        else [table.row(*change, 290), table.row("u", 4, "d2", 310)]
    )
    said = parts(table, batches, table.snapshot(100, FIRST), stream(table), again, late)
    lost, severity, _, words = said["positions_started_again"]
    assert (1, "error") == (lost, severity)
    assert "--resnapshot" in words


def test_positions_that_start_again_after_a_second_snapshot(table: Postgres) -> None:
    """The server was restored: an epoch from the load would leave the changes of its former log above the new ones."""
    again = [at(line, 5) for line in table.snapshot(300, AGAIN)]
    former = at(table.row("u", 4, "d2", 310), 6)
    assert {} == table.batch(*table.snapshot(100, FIRST), *stream(table), *again, former)
    restored = [at(table.row("u", 2, "b4", 120), 20), at(table.row("u", 4, "d4", 130), 21)]
    lost, _, _, words = table.batch(*restored)["positions_started_again"]
    assert 2 == lost
    assert "as if the source's positions had started again" in words
    assert "--resnapshot" not in words


@pytest.mark.parametrize("clocked", [False, True])
def test_a_stream_that_is_behind_its_second_snapshot_is_no_complaint(table: Postgres, clocked: bool) -> None:
    """What a kept slot sends again comes to the snapshot's state with a later batch."""
    again = [at(line, 5) for line in table.snapshot(300, AGAIN)]
    behind = [at(table.row("u", 2, "b25", 280), 4) if clocked else table.row("u", 2, "b25", 280)]
    assert {} == parts(table, True, table.snapshot(100, FIRST), stream(table), again, behind)
    assert {} == table.batch(table.row("u", 2, "b3", 290), table.row("u", 4, "d2", 310))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("sent", "rows"),
    [
        pytest.param([("u", 2, "b3", 290)], {}, id="what the snapshot has"),
        pytest.param(
            [("u", 2, "b25", 280), ("u", 2, "b3", 290), ("u", 1, "a2", 310)],
            {1: "a2"},
            id="all that led to it",
        ),
        pytest.param([("c", 6, "f", 240), ("d", 6, "f", 250)], {}, id="a row that has gone"),
        pytest.param([("c", 9, "i", 295), ("u", 9, "j", 310)], {9: "j"}, id="a row that it did not see"),
        pytest.param(
            [("u", 2, "late", 290), ("u", 2, "last", 310)], {2: "last"}, id="what a newer one follows"
        ),
    ],
)
def test_a_stream_that_goes_back_behind_its_second_snapshot_is_no_complaint(
    table: Postgres, batches: bool, sent: list[tuple[str, int, str, int]], rows: dict[int, str]
) -> None:
    """A slot that was kept sends again what came before the snapshot: the mirror is right, and no alarm may say otherwise."""
    again = [table.row(*change) for change in sent]
    assert {} == parts(
        table, batches, table.snapshot(100, FIRST), stream(table), table.snapshot(300, AGAIN), again
    )
    assert AGAIN | rows == table.rows("mirrors/cut/p.t")


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [False, True])
def test_the_rows_of_a_third_snapshot_are_placed_too(table: Postgres, batches: bool) -> None:
    """Each load is beyond what came before it."""
    third = table.snapshot(500, {1: "a", 2: "b4", 4: "d"})
    parts(table, False, table.snapshot(100, FIRST), stream(table))
    parts(
        table,
        batches,
        table.snapshot(300, AGAIN),
        [table.row("d", 5, "e", 310), table.row("u", 2, "x", 400)],
        third,
    )
    assert {1: "a", 2: "b4", 4: "d"} == table.rows("mirrors/cut/p.t")


def places(table: Postgres) -> list[tuple[int, int]]:
    """Epoch and phase of the rows that were read at the second snapshot's position, as all messages are decoded anew."""
    with shadow_of(table.lake, "changes", "books", "ddl", "rejects") as shadow:
        decode(shadow, table.lake.decoded(), 1)
        rows = shadow.ask("SELECT order_key FROM {changes.change} WHERE op = 'read' AND sequence = '300'")
    return [order_of(row["order_key"])[:2] for row in rows]


def test_what_was_decided_of_a_second_snapshot_holds_until_an_epoch_begins_with_it(table: Postgres) -> None:
    """Also for its rows of a later batch, and for every decoding; in an epoch of its own it is a first one."""
    first, *rest = table.snapshot(300, AGAIN)
    table.batch(*table.snapshot(100, FIRST), *stream(table))
    table.batch(first)
    table.batch(*rest)
    assert [(0, 1)] * 4 == places(table)
    epochs.record_start(table.lake, "s", epochs.with_batch(2, 3), "the load is whole")
    assert [(1, 0)] * 4 == places(table)


class Life:
    """A table whose connector loses its place once or twice, at random; ``sent`` is what the topic has of it."""

    def __init__(self, table: Postgres, random: Random) -> None:
        self.table, self.random, self.place = table, random, 100
        self.rows = {key: f"first {key}" for key in range(1, 5)}
        self.sent = table.snapshot(self.place, self.rows)
        self.sent += self.changes(1, 10)
        for _ in range(random.randint(1, 2)):
            unseen = self.changes(0, 8)
            while not self.rows:  # of an empty table no message comes
                unseen.append(self.change())
            self.place += 1
            self.sent += table.snapshot(self.place, self.rows)
            self.sent += unseen if random.random() < 0.5 else []  # its slot was kept
            self.sent += self.changes(1, 8)

    def changes(self, least: int, most: int) -> list[str]:
        """So many changes of the table, as messages."""
        return [self.change() for _ in range(self.random.randint(least, most))]

    def change(self) -> str:
        self.place += self.random.randint(1, 5)
        text, key = f"v{self.place}", self.random.randint(1, 8)
        drawn = self.random.random()
        if drawn < 0.05:
            self.rows.clear()
            return json.dumps(json.loads(self.table.row("t", 0, "", self.place)) | {"after": None})
        if drawn < 0.3 and key in self.rows:
            return self.table.row("d", key, self.rows.pop(key), self.place)
        op = "u" if key in self.rows else "c"
        self.rows[key] = text
        return self.table.row(op, key, text, self.place)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_lives_of_a_table_that_is_read_again(table: Postgres, seed: int) -> None:
    """However messages are cut into batches, the mirror is right but for rows that are named, and nothing else is said."""
    random = Random(f"read again {seed}")
    life = Life(table, random)
    ends = sorted(random.choices(range(1, len(life.sent)), k=random.randint(0, 3)))
    named = set[str]()
    for start, end in pairwise([0, *dict.fromkeys(ends), len(life.sent)]):
        said = table.batch(*life.sent[start:end])
        named |= {json.loads(key)["id"] for key in said.pop("rows_not_loaded", (0, "", (), ""))[2]}
        assert {} == said
    mirror = table.rows("mirrors/cut/p.t")
    assert life.rows == {key: text for key, text in mirror.items() if key in life.rows}
    assert {str(key) for key in mirror.keys() - life.rows.keys()} <= named


@pytest.mark.e2e
@pytest.mark.spark
def test_where_only_spark_reads_the_changes_the_same_is_said(
    table: Postgres, request: pytest.FixtureRequest
) -> None:
    """The questions are asked in words that Spark has, too."""
    late = [table.row("u", 2, "late", 290), table.row("u", 4, "d2", 310)]
    table.batch(*table.snapshot(100, FIRST), *stream(table), *table.snapshot(300, {2: "b3", 4: "d"}), *late)
    said = order_metrics(table.lake, 0)
    assert {"positions_started_again", "rows_not_loaded"} == {metric.check for metric in said}
    assert said == metrics_by_spark(table.lake, 0, request)


def test_rows_that_come_late_in_another_file_are_no_error(table: Postgres) -> None:
    """Files may come in any order: a snapshot at an older place than the changes has lost rightly, and a warning names it."""
    assert {} == table.batch(table.row("u", 1, "b", 200))
    said = table.batch(*table.snapshot(100, {1: "a"}))
    assert {"re_reads_ignored": "warn"} == {check: severity for check, (_, severity, *_) in said.items()}
    assert {1: "b"} == table.rows("mirrors/cut/p.t")
