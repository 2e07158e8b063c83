"""Rows compared with the plain fold of their changes, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from ingest.change import Change, Op, TableId
from ingest.fold import Placed, SchemaStep, Table, steps
from ingest.ledgers.mirrors import Column, Mirror
from ingest.order import Order, order_key
from ingest.quality.cell_diff import Inserts, KeyHistory, differences, expected
from ingest.tables.cell_values import of_text

COLUMNS = (Column("id", "id", "int64"), Column("a", "a", "string"), Column("n", "n", "decimal(10,2)"))
MIRROR = Mirror(TableId("shop", None, "t"), "mirrors/shop/t", ("id",), COLUMNS)
TYPES = ["BIGINT", "STRING", "DECIMAL(10,2)"]


def place(at: int) -> str:
    return order_key(Order(0, 1, (at,), 0, (1, 0, 0, at), 0))


def row(
    at: int, op: str, key: int, was: int | None = None, partial: bool = False, **cells: Any
) -> dict[str, Any]:
    """A change as the check reads it; ``was`` is the key before."""
    image = {"id": str(key), **cells}
    before = {"id": str(key if was is None else was)} if op != "insert" else None
    return {
        "op": op, "order_key": place(at), "partial": partial, "types": None,
        "before": json.dumps(before) if before else None, "after": None if op == "delete" else json.dumps(image),
    }  # fmt: skip


def truncate(at: int) -> dict[str, Any]:
    return {
        "op": "truncate",
        "order_key": place(at),
        "partial": False,
        "types": None,
        "before": None,
        "after": None,
    }


def found(
    history: KeyHistory,
    rows: list[list[str | None]],
    sample: Collection[int] | None = None,
    closed: bool = True,
) -> list[str]:
    """What is wrong with a mirror's rows, as texts."""
    wanted = expected(history, MIRROR, lambda key: sample is None or key[0] in sample)
    there = [values(cells, MIRROR) for cells in rows]
    return [
        f"{one.key[0]} {one.column} {one.text}" for one in differences(wanted, there, MIRROR, TYPES, closed)
    ]


def values(cells: list[str | None], mirror: Mirror) -> list[object]:
    """A mirror's row from its cells' texts."""
    return [of_text(cell, one.type) for cell, one in zip(cells, mirror.columns, strict=True)]


STORY = [
    row(1, "insert", 1, a="x", n="1.10"),
    row(2, "insert", 2, a="y", n="2"),
    row(3, "update", 1, partial=True, a="z"),
    row(4, "delete", 2),
    row(5, "update", 3, was=1, partial=True),
]


def test_equal_rows_pass() -> None:
    """A false alarm on a right mirror stops every run."""
    assert [] == found(KeyHistory(STORY), [["3", "z", "1.10"]])
    assert [] == found(KeyHistory(STORY[::-1]), [["3", "z", "1.1"]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["3", "z", "1.20"]], "3 n holds '1.20', the changes give '1.10'"),
        ([["3", "x", "1.10"]], "3 a holds 'x', the changes give 'z'"),
        ([["3", None, "1.10"]], "3 a holds NULL, the changes give 'z'"),
        ([], "3  is missing, the changes give this row"),
        ([["3", "z", "1.10"], ["2", "y", "2"]], "2  is a row that the changes do not give"),
        ([["3", "z", "1.10"], ["9", "y", "2"]], "9  is a row that the changes do not give"),
        ([["3", "z", "1.10"], ["3", "z", "1.10"]], "3  is there more than once"),
    ],
)
def test_each_fault_is_named(rows: list[list[str | None]], message: str) -> None:
    """A wrong cell that passes is what the check is for."""
    assert [message] == found(KeyHistory(STORY), rows)


def test_only_the_sample_is_compared() -> None:
    """A key whose history was not read is no fault."""
    history = KeyHistory([row(1, "insert", 1, a="x"), row(2, "update", 2, was=7, a="y")])
    assert [] == found(history, [["1", "x", None]], {1, 7}, closed=False)
    assert ["1 a holds 'q', the changes give 'x'"] == found(history, [["1", "q", None]], {1}, closed=False)


def test_statements_take_part() -> None:
    """Wrong fills and lost renames show in no row message."""
    steps = [
        SchemaStep(place(2), "add_column", "n", default="7"),
        SchemaStep(place(3), "rename_column", "b", "a"),
    ]
    history = KeyHistory([row(1, "insert", 1, b="old"), row(4, "insert", 2, a="new")], steps)
    assert [] == found(history, [["1", "old", "7"], ["2", "new", None]])
    assert ["1 n holds NULL, the changes give '7'"] == found(
        history, [["1", "old", None], ["2", "new", None]]
    )
    assert ["1 a holds NULL, the changes give 'old'"] == found(
        history, [["1", None, "7"], ["2", "new", None]]
    )


def test_truncates_and_incarnations_clear() -> None:
    """Rows from before a TRUNCATE are surplus rows."""
    cleared = KeyHistory([row(1, "insert", 1, a="x"), truncate(2), row(3, "insert", 2, a="y")])
    again = KeyHistory(
        [row(1, "insert", 1, a="x"), row(3, "insert", 2, a="y")], [SchemaStep(place(2), "new_incarnation")]
    )
    for history in (cleared, again):
        assert [] == found(history, [["2", "y", None]])
        assert ["1  is a row that the changes do not give"] == found(
            history, [["1", "x", None], ["2", "y", None]]
        )


def test_part_of_a_history_says_only_what_it_can() -> None:
    """A partial update without its row's beginning says nothing of the cells that it does not carry."""
    history = KeyHistory([row(5, "update", 1, partial=True, a="z"), row(6, "insert", 2, a="y")], whole=False)
    assert {(1,)} == expected(history, MIRROR).partly
    right = [["1", "z", "3"], ["2", "y", None]]
    assert [] == found(history, right, closed=False)
    assert ["1 a holds 'q', the changes give 'z'"] == found(
        history, [["1", "q", "3"], right[1]], closed=False
    )
    assert ["2 a holds 'q', the changes give 'y'"] == found(
        history, [right[0], ["2", "q", None]], closed=False
    )
    assert ["1  is missing, the changes give this row"] == found(history, right[1:], closed=False)


def test_a_moved_row_without_its_beginning() -> None:
    """A row inherits from changes that were not read: those cells are not known, and the old key is gone."""
    story = [row(5, "update", 2, was=1, partial=True, a="z"), row(6, "update", 2, partial=True, n="4")]
    history = KeyHistory(story, whole=False)
    assert [] == found(history, [["2", "z", "4"]], closed=False)
    assert ["2 n holds '3', the changes give '4'"] == found(history, [["2", "z", "3"]], closed=False)
    message = "1  is a row that the changes do not give"
    assert [message] == found(history, [["1", "old", None], ["2", "z", "4"]], closed=False)
    assert {(2,)} == expected(KeyHistory(story, linked=False), MIRROR).partly
    assert set() == expected(KeyHistory(story), MIRROR).partly


def test_nothing_from_before_a_truncate_is_unknown() -> None:
    """A row that a partial update makes after a TRUNCATE has NULL where it sends nothing."""
    story = [row(4, "update", 1, partial=True, a="x"), truncate(5), row(6, "update", 1, partial=True, a="z")]
    history = KeyHistory(story, whole=False)
    assert set() == expected(history, MIRROR).partly
    assert ["1 n holds '3', the changes give NULL"] == found(history, [["1", "z", "3"]], closed=False)


def test_rows_between_a_truncate_and_the_changes_that_were_read_are_unknown() -> None:
    """After a changed key only later changes are read: a row may have come after the table was created and before."""
    created = [SchemaStep(place(2), "new_incarnation")]
    story = [row(6, "update", 1, partial=True, a="z")]
    later = KeyHistory(story, created, whole=False, begins=place(4))
    assert {(1,)} == expected(later, MIRROR).partly
    assert [] == found(later, [["1", "z", "3"]], closed=False)
    all_since = KeyHistory(story, created, whole=False, begins=place(1))
    assert ["1 n holds '3', the changes give NULL"] == found(all_since, [["1", "z", "3"]], closed=False)


def test_keys_are_typed() -> None:
    """Two spellings of one instant are one key."""
    columns = (Column("id", "id", "timestamp"), Column("a", "a", "string"))
    mirror = Mirror(MIRROR.table, MIRROR.path, ("id",), columns)
    rows = [row(1, "insert", 0, a="x"), row(2, "insert", 0, a="y")]
    for one, text in zip(rows, ("2024-01-01T08:00:00+08:00", "2024-01-01T00:00:00.000Z"), strict=True):
        one["after"] = json.dumps({"id": text, "a": json.loads(one["after"])["a"]})
    there = [values(["2024-01-01T00:00:00Z", "y"], mirror)]
    assert [] == list(
        differences(expected(KeyHistory(rows), mirror), there, mirror, ["TIMESTAMP", "STRING"], closed=True)
    )


@pytest.mark.parametrize(("logical", "texts"), [("hex", ("0xFE12", "fe12")), ("binary", ("/hI=", "/hI="))])
def test_keys_of_bytes_are_bytes(logical: str, texts: tuple[str, str]) -> None:
    """Keys that changes have as digits were read from the mirror in base64: no row of the table was where the check looked."""
    columns = (Column("id", "id", logical), Column("a", "a", "string"))
    mirror = Mirror(MIRROR.table, MIRROR.path, ("id",), columns)
    rows = [row(1, "insert", 0, a="x"), row(2, "update", 0, a="y")]
    for change, text in zip(rows, texts, strict=True):
        change["after"] = json.dumps({"id": text, "a": json.loads(change["after"])["a"]})
        change["before"] = None
    present = [values([texts[1], "y"], mirror)]
    assert [] == list(
        differences(expected(KeyHistory(rows), mirror), present, mirror, ["BINARY", "STRING"], closed=True)
    )


def twice(*rows: dict[str, Any]) -> list[int]:
    """The keys that were inserted while they were there."""
    return sorted(key[0] for key in expected(KeyHistory(rows), MIRROR).twice)


def weak(one: dict[str, Any], at: int) -> dict[str, Any]:
    """The change in a dialect without positions."""
    return one | {"order_key": order_key(Order(0, 1, (), 0, (1, 0, 0, at), 0))}


def load(one: dict[str, Any], at: int) -> dict[str, Any]:
    """A row of a full load, which has no position."""
    return one | {"order_key": order_key(Order(0, 0, (), 0, (1, 0, 0, at), 0))}


def test_a_key_that_grew_unnoticed_is_found() -> None:
    """Two rows of the source are one in the mirror, and every other check compares what was merged."""
    assert [1] == twice(
        row(1, "insert", 1, a="mon"), row(2, "insert", 2, a="x"), row(3, "insert", 1, a="tue")
    )
    assert [1] == twice(row(1, "insert", 1, a="x"), row(2, "update", 1, a="y"), row(3, "insert", 1, a="z"))


def test_a_key_that_left_may_come_again() -> None:
    """A false alarm would end every run with 1."""
    first, second = row(1, "insert", 1, a="x"), row(9, "insert", 1, a="y")
    assert [] == twice(first, row(2, "delete", 1), second)
    assert [] == twice(second, row(2, "delete", 1), first)  # whatever order they come in
    assert [] == twice(first, row(2, "update", 5, was=1, a="x"), second)
    assert [] == twice(first, truncate(2), second)
    assert [] == twice(row(1, "read", 1, a="x"), second)
    assert [] == twice(first, row(2, "read", 1, a="x"), second)  # what was lost in between is not known


def test_a_repeated_insert_is_no_other_row() -> None:
    """At its place, at a new place after a failover, with the key's whole history, or without any place."""
    assert [] == twice(row(1, "insert", 1, a="x"), row(1, "insert", 1, a="y"))
    life = [row(1, "insert", 1, a="x"), row(2, "delete", 1), row(3, "insert", 1, a="y")]
    again = [one | {"order_key": place(10 + i)} for i, one in enumerate(life)]
    assert [] == twice(*life, *again)
    assert [] == twice(*(weak(one, i) for i, one in enumerate([*life, *life, *life[1:], *life[2:]])))


def test_a_key_that_is_too_short_is_found_without_positions() -> None:
    """A dialect that sends milliseconds of a key with microseconds makes two rows one, in a stream or in a load."""
    assert [1] == twice(weak(row(1, "insert", 1, a="x"), 1), weak(row(2, "insert", 1, a="y"), 2))
    assert [] == twice(
        weak(row(1, "insert", 1, a="x"), 1),
        weak(row(2, "delete", 1), 2),
        weak(row(3, "insert", 1, a="y"), 3),
    )
    for op in ("read", "insert"):
        loaded = [load(row(1, op, 1, a="x"), 1), load(row(2, op, 1, a="y"), 2)]
        assert [] == twice(*loaded)  # a table with one row that was loaded again
        loaded.append(load(row(3, op, 2, a="x"), 3))
        assert [1] == twice(*loaded)
        assert [1] == twice(*loaded, row(3, "update", 1, a="z"))
        assert [] == twice(*loaded, truncate(3))


def test_a_table_that_is_loaded_again_is_no_other_table() -> None:
    """The rows that have not changed in between show that it is the same load again."""
    first = [load(row(1, "read", key, a="x"), key) for key in (1, 2, 3)]
    again = [load(row(1, "read", key, a=a), key + 10) for key, a in ((1, "x"), (2, "y"), (3, "x"))]
    found = expected(KeyHistory([*first, *again]), MIRROR)
    assert ({}, {(2,)}) == (found.twice, found.reread)
    changed = row(5, "update", 2, a="y") | {"order_key": order_key(Order(0, 1, (5,), 0, (1, 0, 0, 7), 0))}
    found = expected(KeyHistory([*first, changed, *again]), MIRROR)
    assert ({}, set()) == (found.twice, found.reread)  # the change came between the two readings
    lost = [
        weak(one, at)
        for at, one in enumerate([*first, row(4, "update", 1, a="z"), *again[:2], row(5, "read", 4, a="x")])
    ]
    found = expected(KeyHistory(lost), MIRROR)
    assert ({}, {(2,)}) == (found.twice, found.reread)  # a change of row 2 was lost, and one of row 1 came


@pytest.mark.parametrize("placed", [load, weak], ids=["loads before all changes", "by arrival"])
def test_a_change_of_another_row_between_two_readings_shows_two_loads(placed: Callable[..., Any]) -> None:
    """A capture that had lost changes was begun again: with a new row, all but the readings of row 1 was no evidence."""
    first, again = row(1, "read", 1, a="x"), row(9, "read", 1, a="y")
    other = row(10, "read", 2, a="x")
    assert [1] == twice(placed(first, 1), placed(again, 9), placed(other, 10))
    for change in (row(5, "insert", 3, a="z"), row(5, "delete", 3)):
        place = order_key(Order(0, 1, () if placed is weak else (5,), 0, (1, 0, 0, 5), 0))
        rows = placed(first, 1), change | {"order_key": place}, placed(again, 9), placed(other, 10)
        found = expected(KeyHistory(rows), MIRROR)
        assert ({}, {(1,)}) == (found.twice, found.reread)
    late = row(5, "delete", 3) | {"order_key": order_key(Order(0, 1, (5,), 0, (2, 0, 0, 0), 0))}
    positions = [one | {"order_key": order_key(Order(0, 1, (at,), 0, (1, 0, 0, at), 0))}
                 for one, at in ((first, 1), (again, 9), (other, 10))]  # fmt: skip
    assert [] == twice(positions[0], late, *positions[1:])  # it came last, and its place is between them
    assert [1] == twice(*positions)


def test_two_positions_in_the_log_show_two_loads() -> None:
    """All rows of a load have its position; one number alone may count the rows."""

    def rows(*places: tuple[int, ...]) -> list[dict[str, Any]]:
        keys = ((1, "x"), (1, "y"), (2, "x"))
        return [
            row(at, "read", key, a=a) | {"order_key": order_key(Order(0, 1, place, 0, (1, 0, 0, at), 0))}
            for at, (place, (key, a)) in enumerate(zip(places, keys, strict=True))
        ]

    assert [1] == twice(*rows((7, 400, 0), (7, 400, 1), (7, 400, 2)))
    assert [1] == twice(*rows((400,), (401,), (402,)))
    found = expected(KeyHistory(rows((7, 400, 0), (7, 500, 0), (7, 500, 0))), MIRROR)
    assert ({}, {(1,)}) == (found.twice, found.reread)


def test_what_was_merged_and_is_gone_is_no_longer_wrong() -> None:
    """A table that was emptied since holds nothing wrong."""
    assert [] == twice(row(1, "insert", 1, a="x"), row(2, "insert", 1, a="y"), truncate(3))


@pytest.mark.parametrize(("row", "again"), [(-2, set()), (0, {(1,)})])
def test_a_row_from_under_an_earlier_key_may_be_inserted_again(row: int, again: set[object]) -> None:
    """A stream that goes back beyond the statement sends what the table had then, under the key of now."""
    inserts, places = Inserts(), (Order(0, 1, (), 0, (5,), row), Order(0, 1, (), 0, (6,), 0))
    events = [
        Placed(place, Change(op=Op.INSERT, after={"id": "1", "n": n}))
        for place, n in zip(places, "yx", strict=True)
    ]
    for step in steps(Table(("id",), {"id": "int32"}), events):
        inserts.take(step)
    assert again == {*inserts.twice}
