"""Barriers: what they stop, what they let pass, and what bronze keeps of a message whose rows were erased."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from ingest.change import Change, Op, TableId
from ingest.errors import Undecodable
from ingest.ledgers.barriers import HEADER, Barrier, Barriers, left_of
from ingest.order import Order, order_key

PEOPLE = TableId("town", None, "people")
OPEN = Barriers("a secret")


def at(sequence: int) -> str:
    """A place in history."""
    return order_key(Order(0, 1, (sequence,), 0, (1, 0, 0, 0), 0))


def barrier(key: tuple[object, ...], low: str, high: str, kind: str = "int64") -> Barrier:
    """A barrier before one row."""
    return Barrier("s", PEOPLE, ("id",), (kind,), {OPEN.digest(PEOPLE, key): ((low, high),)})


def test_what_is_older_than_an_erasure_is_stopped() -> None:
    """A late message would bring the row back; a new row under the key is another one."""
    mine = [barrier((7,), "", at(50))]
    row = Change(op=Op.INSERT, table=PEOPLE, after={"id": "07", "name": "Ada"})
    assert [True, True, False] == [OPEN.stops(mine, row, at(place)) for place in (1, 50, 51)]
    other = Change(op=Op.INSERT, table=PEOPLE, after={"id": "8", "name": "Ada"})
    assert not OPEN.stops(mine, other, at(1))


def test_both_keys_of_a_change_count() -> None:
    """An update that takes the row to a new key, or away from it, holds its values."""
    mine = [barrier((7,), at(10), at(20))]
    leaves = Change(op=Op.UPDATE, table=PEOPLE, before={"id": "7"}, after={"id": "8", "name": "Ada"})
    comes = Change(op=Op.UPDATE, table=PEOPLE, before={"id": "6"}, after={"id": "7", "name": "Ada"})
    gone = Change(op=Op.DELETE, table=PEOPLE, before={"id": "7", "name": "Ada"})
    for change in (leaves, comes, gone):
        assert [False, True, True, False] == [
            OPEN.stops(mine, change, at(place)) for place in (9, 10, 20, 21)
        ]


def test_what_has_no_key_passes() -> None:
    """A truncate, or a change whose key is missing, belongs to no erased row; the mirror would lack it."""
    mine = [barrier((7,), "", at(50))]
    assert not OPEN.stops(mine, Change(op=Op.TRUNCATE, table=PEOPLE), at(1))
    assert not OPEN.stops(mine, Change(op=Op.UPDATE, table=PEOPLE, after={"name": "Ada"}), at(1))


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, Decimal("5.00")), (Decimal("1.5"), Decimal("1.50")), (Decimal(50), Decimal("5E+1"))],
)
def test_equal_keys_have_one_name(one: object, other: object) -> None:
    """A type that has widened since would let the row back in."""
    assert OPEN.digest(PEOPLE, (one,)) == OPEN.digest(PEOPLE, (other,))


def test_different_keys_have_different_names() -> None:
    """Another row would be left out, and nothing would say so."""
    keys: list[tuple[object, ...]] = [
        (1,),
        ("1",),
        (True,),
        (1, 2),
        ("1, 2",),
        (Decimal("1.01"),),
        (-1,),
        (b"1",),
    ]
    assert len(keys) == len({OPEN.digest(PEOPLE, key) for key in keys})
    lanes = {OPEN.digest(PEOPLE, (1,)), OPEN.digest(PEOPLE._replace(table="pets"), (1,))}
    assert 2 == len(lanes)
    assert OPEN.digest(PEOPLE, (1,)) != replace(OPEN, secret="another").digest(PEOPLE, (1,))


def test_a_barrier_comes_back_as_it_was_written() -> None:
    """A run after the next start reads it from a decision."""
    one = barrier((7,), at(10), at(20))
    assert one == Barrier.from_value(one.to_value())


def test_what_bronze_keeps_of_a_message_holds_its_other_changes() -> None:
    """Other rows of the message would be lost, or written otherwise, at the next rebuild."""
    kept = Change(
        op=Op.UPDATE, table=PEOPLE, keys=("id",), before={"id": "1"}, after={"id": "1", "name": None, "odd": "\ud800"},
        types={"id": "int64"}, sequence=(1, 2), half=1, row=4, event_time=5, servers=("7",), arrival=(1, 2),
    )  # fmt: skip
    value, signature = OPEN.replacement(PEOPLE, 2, [kept])
    assert OPEN.is_replacement([("x", b"y"), (HEADER, signature)], value)
    found = left_of(value)
    assert (PEOPLE, 2, [kept]) == (found.table, found.erased, found.kept)


def test_a_header_from_somewhere_else_is_not_believed() -> None:
    """A sender of messages could write any change into any table."""
    value, signature = OPEN.replacement(PEOPLE, 1, [])
    assert not OPEN.is_replacement([(HEADER, b"guessed")], value)
    assert not OPEN.is_replacement([(HEADER, None)], value)
    assert not OPEN.is_replacement([(HEADER, signature)], value + b" ")
    assert not Barriers("another").is_replacement([(HEADER, signature)], value)
    assert not Barriers().is_replacement([(HEADER, Barriers()._signature(value))], value)


def test_damaged_bytes_are_a_reject() -> None:
    """One damaged message may not end a run."""
    with pytest.raises(Undecodable, match="damaged"):
        left_of(b'{"erased": 1}')
