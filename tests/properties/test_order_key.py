"""`order_key`: text order is tuple order, whatever the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from ingest.order import (
    Order,
    arrival_keys,
    last_repeat,
    number_key,
    order_key,
    order_of,
    place_sql,
    same_place,
    topic_key,
)

MANY = 1_500
HUGE = 10**400
EDGES = (
    0,
    10,
    100,
    10**6,
    2**63,
    10**35,
    10**36,
    10**1296,
)  # from 36 digits on the length is written as a number
FIRST = Order(0, 1, (9,), 0, (1, 0, 0, 5), 0)
RANDOM = Random()  # what fails is shown


def number() -> int:
    """A small number, one at an edge, or one of many digits."""
    kind = RANDOM.random()
    if kind < 0.5:
        return RANDOM.randint(-3, 12)
    if kind < 0.7:
        return RANDOM.choice((-1, 1)) * (RANDOM.choice(EDGES) + RANDOM.randint(-1, 1))
    return RANDOM.choice((-1, 1)) * RANDOM.randrange(10 ** RANDOM.randint(1, 40 if kind < 0.9 else 400))


def numbers(begin: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Up to four numbers, of which the first may be given."""
    return (*begin[: RANDOM.randint(0, 4)], *(number() for _ in range(RANDOM.randint(0, 4))))[:4]


def order() -> Order:
    """Any place in history."""
    return Order(
        RANDOM.randint(0, 12),
        RANDOM.randint(0, 1),
        numbers(),
        RANDOM.randint(0, 1),
        numbers(),
        RANDOM.randint(0, 10**6),
    )


def near(one: Order) -> Order:
    """A place that differs from another in some of its parts, or in none."""
    other = order()._replace(sequence=numbers(one.sequence), arrival=numbers(one.arrival))
    return one._replace(**{name: part for name, part in other._asdict().items() if RANDOM.random() < 0.3})


def pairs() -> Iterator[tuple[Order, Order]]:
    """Places that are far apart, and some that are near each other."""
    for sequence in ((10,), (9, 0), (), (-1,)):
        yield FIRST, FIRST._replace(sequence=sequence)
    yield FIRST._replace(sequence=(-1,)), FIRST._replace(sequence=(-1, -5))
    for _ in range(MANY):
        yield (one := order()), near(one)
        yield order(), order()


def test_numbers_sort_as_numbers() -> None:
    """`"10" < "9"` as text: a fold in that order ends wrong."""
    for _ in range(MANY):
        left = number()
        for right in (number(), left + RANDOM.randint(-2, 2)):
            assert (left < right) == (number_key(left) < number_key(right))


def test_text_order_is_tuple_order() -> None:
    """Spark sorts by the text, and the definition by the tuple: they must agree."""
    equal = 0
    for left, right in pairs():
        assert (left < right) == (order_key(left) < order_key(right))
        assert (left == right) == (order_key(left) == order_key(right))
        equal += left == right
    assert equal > MANY // 60


def test_same_place_leaves_arrival_out() -> None:
    """A repeated change is found by its place before arrival; too much or too little would hide ties."""
    for one, other in pairs():
        again = one._replace(arrival=other.arrival, row=other.row)
        assert same_place(order_key(one)) == same_place(order_key(again))
        same = one[:4] == other[:4]
        assert same == (same_place(order_key(one)) == same_place(order_key(other)))


def test_all_repeats_of_a_change_are_before_the_next_place() -> None:
    """A barrier that ends before them lets erased rows come back, and one that ends later stops new ones."""
    assert last_repeat("") == ""
    for one, other in pairs():
        last = last_repeat(order_key(one))
        if one.phase and not one.sequence:  # arrival decides
            assert last == order_key(one)
            continue
        assert order_key(one) < last
        assert order_key(one._replace(arrival=other.arrival, row=other.row)) < last
        if one[:4] != other[:4]:
            assert (one < other) == (last < order_key(other))


def test_text_is_read_back() -> None:
    """A history folded again in Python needs the tuple that Spark holds as text; and Delta's statistics and Parquet
    compare bytes, Python code points: ASCII makes them one.
    """
    edges = FIRST._replace(sequence=(10**35, -(10**35), 10**36, -HUGE))
    for each in (edges, *(order() for _ in range(MANY))):
        assert order_key(each).isascii()
        assert each == order_of(order_key(each))


def test_sql_finds_the_same_place() -> None:
    """A tie that SQL sees and Python does not, or the reverse, is counted wrong."""
    orders = [order() for _ in range(MANY // 10)]
    keys = list(map(order_key, orders))
    listed = ", ".join(f"({at}, '{key}')" for at, key in enumerate(keys))
    found = duckdb.sql(f"SELECT {place_sql('k')} FROM (VALUES {listed}) t(n, k) ORDER BY n").fetchall()
    for key, one, (place,) in zip(keys, orders, found, strict=True):
        assert (same_place(key) if one.sequence else None) == place


@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=9, unique=True))
def test_topics_share_no_place(topics: list[str]) -> None:
    """Two topics count their offsets apart: without the topic, two changes have one place and one is lost."""
    count = len(topics)
    found = arrival_keys([7] * count, 0, [3] * count, [40] * count, topics)
    assert count == len(set(found))


def test_the_topic_keeps_the_order_of_what_was_written_without_it() -> None:
    """A replayed message of an older batch must stay between its neighbours, which have no topic."""
    before, after = arrival_keys([7, 7], 0, [3, 3], [40, 42], ())
    (replayed,) = arrival_keys([7], 0, [3], [41], ["shop.orders"])
    assert before + "!" < replayed + "!" < after + "!"
    assert topic_key("shop.orders").isascii()
