"""Statements that move rows onto each other's keys, row by row, through whole runs without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from ingest import run as running
from ingest.change import Change, Op, TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.fold import Placed, SchemaStep, Table
from ingest.images_before import Chain
from ingest.order import Order
from ingest.quality.arrow_rows import read
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

TABLES, BATCHES = 24, 3
Rows = dict[int, str]


class Moved(NamedTuple):
    """What one row of a statement was, and what it is: a key with a value, or nothing."""

    before: tuple[int, str] | None
    after: tuple[int, str] | None


class Life:
    """The rows of one table, and its transactions: as Oracle and PostgreSQL allow, keys are checked at a statement's end."""

    def __init__(self, seed: str, values: str, *, net: bool = False) -> None:
        self.random, self.values = Random(seed), values
        self.statements = (1,) if net else (1, 1, 2)  # TiCDC sends what a transaction does in all
        self.rows: Rows = {}
        self.number = 0

    def value(self) -> str:
        """One of few values, so that rows are alike; or a new one."""
        self.number += 1
        return self.random.choice(self.values) if self.values else f"v{self.number}"

    def transactions(self, count: int) -> Iterator[list[Moved]]:
        """Transactions of one or two statements, with the rows of each in any order."""
        for _ in range(count):
            found = [moved for _ in range(self.random.choice(self.statements)) for moved in self.statement()]
            if found:
                yield found

    def statement(self) -> list[Moved]:
        """An UPDATE of keys, an INSERT, an UPDATE of values or a DELETE."""
        kind = self.random.choice(
            ("shift", "swap", "rotate", "insert", "insert", "insert", "change", "delete")
        )
        if kind == "insert":
            key = min(set(range(1, 20)) - self.rows.keys())
            self.rows[key] = self.value()
            return [Moved(None, (key, self.rows[key]))]
        chosen = self.random.sample(sorted(self.rows), min(len(self.rows), self.random.randint(1, 4)))
        if kind in ("change", "delete"):
            before = [(key, self.rows.pop(key)) for key in chosen[:1]]
            after = [(key, self.value()) for key, _ in before] if kind == "change" else [None] * len(before)
        else:
            chosen = sorted(self.rows) if kind == "shift" else chosen
            before = [(key, self.rows.pop(key)) for key in chosen]
            targets = [key + 1 for key in chosen] if kind == "shift" else [*chosen[1:], *chosen[:1]]
            after = [(key, value) for key, (_, value) in zip(targets, before, strict=True)]
        self.rows.update(one for one in after if one is not None)
        moves = [Moved(*pair) for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        self.random.shuffle(moves)
        return moves


def image(row: tuple[int, str] | None) -> dict[str, Any] | None:
    """A row as JSON has it."""
    return None if row is None else {"ID": row[0], "V": row[1]}


def by_debezium(table: str, moved: Moved, place: int, transaction: str) -> Iterator[Mapping[str, Any]]:
    """Debezium's connectors write a changed key as a delete and an insert at one position."""
    source = {
        "connector": "oracle", "db": "ORCL", "schema": "S", "table": table, "ts_ms": 1_700_000_000_000,
        "scn": str(place), "commit_scn": f"9{transaction}", "txId": transaction, "snapshot": "false",
    }  # fmt: skip
    before, after = image(moved.before), image(moved.after)
    if before and after and before["ID"] == after["ID"]:
        yield {"op": "u", "before": before, "after": after, "source": source}
        return
    if before:
        yield {"op": "d", "before": before, "after": None, "source": source}
    if after:
        yield {"op": "c", "before": None, "after": after, "source": source}


def by_ogg(table: str, moved: Moved, place: int, transaction: str) -> Iterator[Mapping[str, Any]]:
    """GoldenGate writes one message with both images."""
    kind = "U" if moved.before and moved.after else "I" if moved.after else "D"
    yield {
        "table": f"S.{table}", "op_type": kind, "op_ts": "2024-01-01 00:00:00.000000", "pos": f"{place:020}",
        "before": image(moved.before), "after": image(moved.after), "xid": f"0.1.{transaction}",
    }  # fmt: skip


def by_ogg_alone(table: str, moved: Moved, place: int, transaction: str) -> Iterator[Mapping[str, Any]]:
    """GoldenGate without the transaction's token: only the images tell."""
    for message in by_ogg(table, moved, place, transaction):
        yield {name: value for name, value in message.items() if name != "xid"}


def by_ticdc(table: str, moved: Moved, _place: int, transaction: str) -> Iterator[Mapping[str, Any]]:
    """TiCDC's rows of a transaction share its commitTs, and come in any order."""
    before, after = (
        None if row is None else {name: str(cell) for name, cell in row.items()}
        for row in (image(moved.before), image(moved.after))
    )
    kind = "UPDATE" if before and after else "INSERT" if after else "DELETE"
    yield {
        "id": 0, "database": "S", "table": table, "pkNames": ["ID"], "isDdl": False, "type": kind, "es": 1, "ts": 2,
        "sql": "", "sqlType": {"ID": -5, "V": 12}, "mysqlType": {"ID": "bigint", "V": "varchar"},
        "data": [after or before], "old": [before] if before and after else None,
        "_tidb": {"commitTs": int(transaction)},
    }  # fmt: skip


WRITERS = {
    "debezium": (by_debezium, ("ORCL", "S")),
    "ogg": (by_ogg, ("S", None)),
    "ticdc-canal": (by_ticdc, ("S", None)),
    "ogg without xid": (by_ogg_alone, ("S", None)),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", WRITERS)
def test_rows_that_move_onto_each_other_are_kept(name: str, tmp_path: Path) -> None:
    """`UPDATE t SET id = id + 1` lost all rows but one, with every check green: the departure of the row that was at a key
    took the row that had just come to it.
    """
    _, database = WRITERS[name]
    prefix = "".join(f"{part}." for part in database if part)
    lives = {
        f"T{n}": Life(f"{name} {n}", "" if "without" in name else "ab", net=name == "ticdc-canal")
        for n in range(TABLES)
    }
    columns = {"ID": "int64", "V": "string"}
    rules = tuple(TableRule(f"{prefix}{table}", keys=("ID",), columns=columns) for table in lives)
    source = Source("s", "files", name.split(maxsplit=1)[0], path=str(tmp_path / "in" / "*.jsonl"))
    pipeline = Pipeline("moves", tmp_path / "x.yaml", str(tmp_path / "lake"), (source,), rules, engine="auto")
    (tmp_path / "in").mkdir()
    for number, lines in enumerate(batches(name, lives)):
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        running.run(unstarted(), pipeline)
    lake = Lake(unstarted(), pipeline)
    complaints = lake.ask("SELECT mirror, \"check\", detail FROM {checks} WHERE state <> 'pass'")
    held = {table: rows_of(lake, TableId(*database, table)) for table in lives}
    assert {table: life.rows for table, life in lives.items()} == held
    assert "" == "\n".join(str(one)[:230] for one in complaints)


def batches(name: str, lives: Mapping[str, Life]) -> Iterator[list[str]]:
    """The messages of some tables, batch by batch; each batch ends within a transaction of each table, and the last one has
    only the rest of these.
    """
    write, _ = WRITERS[name]
    place, waiting = 100, dict[str, list[str]]()
    for batch in range(BATCHES):
        lines: list[str] = []
        for table, life in lives.items():
            lines += waiting.pop(table, [])
            transactions = []
            for moves in life.transactions(4 if batch + 1 < BATCHES else 0):
                place += 1
                transaction, sent = str(place), []
                for moved in moves:
                    place += 1
                    sent += [json.dumps(one) for one in write(table, moved, place, transaction)]
                again = life.random.random() < 0.2 and "without" not in name
                transactions.append(sent * (2 if again else 1))
            if transactions and batch + 1 < BATCHES:
                cut = life.random.randrange(len(transactions[-1]))
                transactions[-1], waiting[table] = transactions[-1][:cut], transactions[-1][cut:]
            lines += [line for sent in transactions for line in sent]
        yield lines


def rows_of(lake: Lake, table: TableId) -> Rows:
    """The mirror's rows."""
    path = mirror_path(table)
    pages = read(lake, path, ["ID", "V"], "true") if lake.exists(path) else []
    return {row["ID"]: row["V"] for page in pages for row in page.to_pylist()}


@pytest.mark.parametrize("reverse", [False, True])
def test_the_halves_of_a_move_come_in_any_order(reverse: bool) -> None:
    """Debezium's delete and insert of one move are of two keys, so maybe of two partitions: the delete, when it came last, took
    the row that had just come to the key, and the images before were called wrong.
    """
    table = Table(("id",), {"id": "int32"})
    chain = Chain(table)
    events = [
        _half(Op.INSERT, 1, after={"id": "1", "v": "a"}),
        _half(Op.INSERT, 2, after={"id": "2", "v": "b"}),
    ]
    for place, (old, text) in enumerate((("1", "a"), ("2", "b")), start=3):
        new = str(int(old) + 1)
        halves = [
            _half(Op.DELETE, place, before={"id": old, "v": text}),
            _half(Op.INSERT, place, before={"id": old}, after={"id": new, "v": text}),
        ]
        events += [half._replace(order=half.order._replace(arrival=(place, turn)))
                   for turn, half in enumerate(reversed(halves) if reverse else halves)]  # fmt: skip
    links = [link for _, _, link in chain.steps(events) if link]
    assert {(2,): "a", (3,): "b"} == {key: row.values["v"] for key, row in table.rows.items()}
    assert [] == [link for link in links if link.is_broken]


def _half(
    op: Op,
    place: int,
    before: dict[str, str | None] | None = None,
    after: dict[str, str | None] | None = None,
) -> Placed:
    """A change of the statement's transaction at one of its positions."""
    change = Change(
        op=op,
        before=before,
        after=after,
        types={"id": "int32", "v": "string"},
        transaction="7" if place > 2 else "6",
    )
    return Placed(Order(0, 1, (place,), 0, (place, 0), 0), change)


ALIKE: dict[str, tuple[dict[str, str | None], dict[str, str | None], str]] = {
    "equal rows": ({"v": "x"}, {"v": "x"}, "update"),
    "a row that is older than a column": ({}, {"v": None}, "update"),
    "rows that differ in a column that was dropped": ({"v": "x", "w": "1"}, {"v": "x", "w": "2"}, "update"),
    "equal rows, one of which is deleted": ({"v": "x"}, {"v": "x"}, "delete"),
    "NULL in both images": ({"v": None}, {"v": "x"}, "update"),
}
"""What two rows of a swap have besides their keys, of a table whose column ``w`` was dropped, and how the first one leaves."""


@pytest.mark.parametrize("name", ALIKE)
def test_rows_that_look_alike_change_places_without_a_transaction(name: str) -> None:
    """DTS, DRS and OMS name no transaction: one of two equal rows was lost by a swap, or a check called it undecided."""
    first, second, how = ALIKE[name]
    table = Table(("id",), {"id": "int32"})
    events = [
        _half(Op.INSERT, 1, after={"id": "1", **first}),
        _half(Op.INSERT, 2, after={"id": "2", **second}),
        _moved(3, {"id": "2", "v": second["v"]}, {"id": "1", "v": second["v"]}),
        _moved(
            4, {"id": "1", "v": first.get("v")}, {"id": "2", "v": first.get("v")} if how == "update" else None
        ),
    ]
    links = [link for _, _, link in Chain(table).steps(events) if link]
    kept = {(1,): second["v"]} | ({(2,): first.get("v")} if how == "update" else {})
    assert kept == {key: row.values.get("v") for key, row in table.rows.items()}
    assert [] == [link for link in links if link.is_broken]


def test_a_move_comes_again_after_a_statement_has_changed_its_row() -> None:
    """Where only arrival orders messages, a stream that went back brought the row to its key once more, without the column that
    had been added since: it was taken for another row, and the key kept one when its row left.
    """
    table = Table(("id",), {"id": "int32"})
    insert = _half(Op.INSERT, 1, after={"id": "1", "v": "a"})
    move = _moved(2, {"id": "1"}, {"id": "7", "v": "a"})
    added = SchemaStep(Order(0, 1, (), 0, (3, 0), 0), "add_column", "w", default="x")
    again = [
        _arrived(4, insert),
        _arrived(5, move),
        added._replace(order=Order(0, 1, (), 0, (6, 0), 0), since=added.order),
    ]
    leaves = _moved(7, {"id": "7"}, {"id": "8", "v": "a", "w": "x"})
    events = [_arrived(1, insert), _arrived(2, move), added, *again, _arrived(7, leaves)]
    links = [link for _, _, link in Chain(table).steps(events) if link]
    assert {(8,)} == table.rows.keys()
    assert [] == [link for link in links if link.is_broken]


def test_a_row_that_came_by_two_ways_comes_again_by_the_first() -> None:
    """Where only arrival orders messages, a stream went back to an earlier move to the key that the row has, whose image leaves out a
    column that is NULL: it was taken for another row, and the key kept one when its row left.
    """
    table = Table(("id",), {"id": "int32"})
    insert = _half(Op.INSERT, 1, after={"id": "1", "v": "a", "w": None})
    comes = _moved(2, {"id": "1", "v": "a"}, {"id": "0", "v": "a"})
    leaves = _moved(3, {"id": "0"}, {"id": "1", "v": "a", "w": None})
    comes_back = _moved(4, {"id": "1"}, {"id": "0", "v": "a", "w": None})
    history = [insert, comes, leaves, comes_back, comes, leaves, comes_back, leaves]
    list(Chain(table).steps([_arrived(number, event) for number, event in enumerate(history, 1)]))
    assert {(1,)} == table.rows.keys()


def test_a_move_that_says_the_same_is_another_ones_once_its_row_has_changed() -> None:
    """Without the source's time two moves along one way look alike; the first row changed meanwhile, and is still there."""
    table = Table(("id",), {"id": "int32"})
    first = _half(Op.INSERT, 1, after={"id": "1", "v": "a"})
    moves = _moved(1, {"id": "1", "v": "a"}, {"id": "7", "v": "a"})
    changes = _moved(1, {"id": "7", "v": "a"}, {"id": "7", "v": "b"})
    moves_on = _moved(1, {"id": "7", "v": "b"}, {"id": "13", "v": "b"})
    history = [first, moves, changes, first, moves, moves_on]
    list(Chain(table).steps([_arrived(number, event) for number, event in enumerate(history, 1)]))
    assert {(7,), (13,)} == table.rows.keys()


def test_a_row_that_moves_on_again_by_repeated_messages_is_no_fault() -> None:
    """A stream that went back brought a row to a key that another one had got since: the row that left there before was called lost."""
    table = Table(("id",), {"id": "int32"})
    one, other = ({"id": "6", "v": "a"}, {"id": "4", "v": "b"})
    history = [
        _half(Op.INSERT, 1, after=one),
        _moved(2, {"id": "6"}, {**one, "id": "7"}),
        _moved(3, {"id": "7"}, {**one, "id": "2"}),
        _half(Op.INSERT, 4, after=other),
        _moved(5, {"id": "4"}, {**other, "id": "7"}),
    ]
    events = [_arrived(number, event) for number, event in enumerate([*history, *history], 1)]
    links = [link for _, _, link in Chain(table).steps(events) if link]
    assert {(2,), (7,)} == table.rows.keys()
    assert [] == [link for link in links if link.is_broken]


def _arrived(arrival: int, event: Placed) -> Placed:
    """A change that has no place but its arrival, and names no transaction."""
    change = msgspec.structs.replace(event.change, transaction=None, event_time=event.order.sequence[0])
    return Placed(Order(0, 1, (), 0, (arrival, 0), 0), change)


def _moved(place: int, before: dict[str, str | None], after: dict[str, str | None] | None) -> Placed:
    """A change of a row that no transaction is known of."""
    event = _half(Op.UPDATE if after else Op.DELETE, place, before, after)
    return event._replace(change=msgspec.structs.replace(event.change, transaction=None))
