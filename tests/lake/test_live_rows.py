"""The rows that changes leave, as the checks ask for them in SQL: a wrong one is a false alarm, or hides a lost row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from ingest.change import Change, Op, TableId
from ingest.fold import Placed, fold
from ingest.order import Order
from ingest.tables import duck
from ingest.tables.live_rows import live_rows, selected


class Said(NamedTuple):
    """A change: the key after it and before it, the value of its row, and its transaction."""

    op: str
    key: str
    left: str = ""
    value: str = ""
    was: str = ""
    transaction: str = ""


def live(*changes: Said) -> dict[str, str]:
    """The value of each key after changes."""
    rows = ", ".join(
        f"({', '.join(map(duck.value, (change.op, f'{place:06}', *_images(change), change.transaction)))})"
        for place, change in enumerate(changes)
    )
    given = f'(VALUES {rows}) AS c(op, order_key, before, after, "transaction")'
    query = f"SELECT {selected(['id'])}, {duck.member('after', 'v')} AS v FROM {given}"
    return {
        row["k"][0]: row["v"]
        for row in duck.rows(f"WITH {live_rows(query, 'v')} SELECT k, v FROM live ORDER BY k")
    }


def _images(change: Said) -> tuple[str | None, str | None]:
    """The images before and after, as they are stored."""
    if change.op == "truncate":
        return None, None
    row = json.dumps({"id": change.key, "v": change.value})
    if change.op == "delete":
        return row, None
    left = change.left or change.key
    before = {"id": left, "v": change.was} if change.was else {"id": left} if change.left else None
    return before and json.dumps(before), row


def test_the_newest_change_of_a_key_counts() -> None:
    """An older value would be compared, and a deleted row would be one that is missing."""
    changes = [Said("insert", "a", value="x"), Said("update", "a", value="y"), Said("update", "a", value="z")]
    assert {"a": "z"} == live(*changes)
    assert {} == live(*changes, Said("delete", "a", value="z"))


@pytest.mark.parametrize(
    ("op", "rows"), [("update", {"b": "y"}), ("insert", {"b": "y"}), ("read", {"a": "x", "b": "y"})]
)
def test_a_row_that_comes_from_another_key_leaves_it(op: str, rows: dict[str, str]) -> None:
    """As the fold has it: an upsert may have moved its row, too; a row of a snapshot has not."""
    assert rows == live(Said("insert", "a", value="x"), Said(op, "b", "a", "y"))


def test_a_truncate_leaves_what_comes_after_it() -> None:
    """Rows from before would be counted as if they were still there."""
    assert {"b": "y"} == live(
        Said("insert", "a", value="x"), Said("truncate", ""), Said("insert", "b", value="y")
    )


@pytest.mark.parametrize("transaction", ["", "7"])
def test_a_row_whose_key_another_one_leaves_stays(transaction: str) -> None:
    """Its key was taken for one that is gone, and no check looked at the row any more."""
    moved = (
        Said("delete", "1", value="a", transaction=transaction),
        Said("insert", "2", value="a", transaction=transaction),
        Said("delete", "2", value="b", transaction=transaction),
    )
    assert {"2": "a"} == live(Said("insert", "1", value="a"), Said("insert", "2", value="b"), *moved)
    assert {} == live(
        Said("insert", "2", value="b"),
        Said("truncate", ""),
        *moved[1:2],
        Said("delete", "2", value="a", transaction=transaction),
    )


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("by_update", [True, False])
def test_rows_that_move_onto_each_other_are_there_as_the_fold_has_them(named: bool, by_update: bool) -> None:
    """Where both say it, `ingest.departures` and the query must not differ."""
    changes = [
        change
        for number in range(60)
        for change in _history(Random(number), number, named=named, by_update=by_update)
    ]
    events = [_placed(place, change) for place, change in enumerate(changes)]
    folded = {key[0]: row.values["v"] for key, row in fold(events, ("id",)).items()}
    assert folded == live(*changes)


def _history(random: Random, history: int, *, named: bool, by_update: bool) -> Iterator[Said]:
    """Transactions that insert, update and delete rows, and move several of them by one or two keys at once."""
    rows: dict[int, str] = {}
    for number in range(100 * history, 100 * history + 8):
        transaction = str(number + 1) if named else ""
        for key in random.sample(range(100 * history, 100 * history + 6), 2):
            value = f"v{number}{key}"
            if key not in rows:
                yield Said("insert", str(key), value=value, transaction=transaction)
                rows[key] = value
            elif random.random() < 0.5:
                yield Said("update", str(key), value=value, was=rows[key], transaction=transaction)
                rows[key] = value
            else:
                yield Said("delete", str(key), value=rows.pop(key), transaction=transaction)
        yield from _moves(rows, random.choice((1, 2)), f"{number}m" if named else "", by_update=by_update)


def _moves(rows: dict[int, str], step: int, transaction: str, *, by_update: bool) -> Iterator[Said]:
    """All rows have a key higher by so much: those with the lowest keys say it first."""
    before = dict(sorted(rows.items()))
    rows.clear()
    for key, value in before.items():
        rows[key + step] = value
        if by_update:
            yield Said("update", str(key + step), str(key), value, value, transaction)
        else:
            yield Said("delete", str(key), value=value, transaction=transaction)
            yield Said("insert", str(key + step), value=value, transaction=transaction)


def _placed(place: int, change: Said) -> Placed:
    before, after = (image and json.loads(image) for image in _images(change))
    said = Change(
        op=Op(change.op), table=TableId("s", None, "t"), keys=("id",), types={"id": "string", "v": "string"}, before=before, after=after,
        sequence=(place,), transaction=change.transaction,
    )  # fmt: skip
    return Placed(Order(0, 1, (place,), 0, (1, 0, 0, place), 0), said)
