"""`order_key`: text order is tuple order, whatever the numbers."""

from __future__ import annotations

import duckdb
from hypothesis import example, given, settings
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

HUGE = 10**400
NUMBERS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from(
        [9, 10, 99, 100, 999_999, 1_000_000, -9, -10, -99, -100, 2**63, -(2**63), 10**35, 10**36 - 1]
    ),
    st.integers(-(10**40), 10**40),
    st.integers(-HUGE, HUGE),
)
ORDERS = st.builds(
    Order,
    epoch=st.integers(0, 12),
    phase=st.integers(0, 1),
    sequence=st.lists(NUMBERS, max_size=4).map(tuple),
    half=st.integers(0, 1),
    arrival=st.lists(NUMBERS, max_size=4).map(tuple),
    row=st.integers(0, 10**6),
)
FIRST = Order(0, 1, (9,), 0, (1, 0, 0, 5), 0)


@given(NUMBERS, NUMBERS)
@example(10**35 - 1, 10**35)  # from here on the length is written as a number
@example(-(10**35), -(10**35) + 1)
@example(10**1295, 10**1296)
@settings(max_examples=2000, deadline=None)
def test_numbers_sort_as_numbers(left: int, right: int) -> None:
    """`"10" < "9"` as text: a fold in that order ends wrong."""
    assert (left < right) == (number_key(left) < number_key(right))


@given(ORDERS, ORDERS)
@example(FIRST, FIRST._replace(sequence=(10,)))
@example(FIRST, FIRST._replace(sequence=(9, 0)))
@example(FIRST, FIRST._replace(sequence=()))
@example(FIRST, FIRST._replace(sequence=(-1,)))
@example(FIRST._replace(sequence=(-1,)), FIRST._replace(sequence=(-1, -5)))
@settings(max_examples=3000, deadline=None)
def test_text_order_is_tuple_order(left: Order, right: Order) -> None:
    """Spark sorts by the text, and the definition by the tuple: they must agree."""
    assert (left < right) == (order_key(left) < order_key(right))
    assert (left == right) == (order_key(left) == order_key(right))


@given(ORDERS, st.lists(NUMBERS, max_size=4).map(tuple), st.integers(0, 99))
@settings(max_examples=1000, deadline=None)
def test_same_place_leaves_arrival_out(order: Order, arrival: tuple[int, ...], row: int) -> None:
    """A repeated change is found by its place before arrival; too much or too little would hide ties."""
    again = order._replace(arrival=arrival, row=row)
    assert same_place(order_key(order)) == same_place(order_key(again))
    assert same_place(order_key(order)) != same_place(order_key(order._replace(half=1 - order.half)))


@given(ORDERS, ORDERS, st.lists(NUMBERS, max_size=4).map(tuple), st.integers(0, 99))
@settings(max_examples=1000, deadline=None)
def test_all_repeats_of_a_change_are_before_the_next_place(
    order: Order, other: Order, arrival: tuple[int, ...], row: int
) -> None:
    """A barrier that ends before them lets erased rows come back, and one that ends later stops new ones."""
    if order.phase and not order.sequence:  # arrival decides
        assert last_repeat(order_key(order)) == order_key(order)
        return
    last = last_repeat(order_key(order))
    assert order_key(order) < last
    assert order_key(order._replace(arrival=arrival, row=row)) < last
    if order[:4] != other[:4]:
        assert (order < other) == (last < order_key(other))
    assert last_repeat("") == ""


@given(ORDERS)
def test_text_is_bytes(order: Order) -> None:
    """Delta's statistics and Parquet compare bytes, Python code points: ASCII makes them one."""
    assert order_key(order).isascii()


@given(ORDERS)
@example(FIRST._replace(sequence=(10**35, -(10**35), 10**36, -HUGE)))
@settings(max_examples=2000, deadline=None)
def test_text_is_read_back(order: Order) -> None:
    """A history folded again in Python needs the tuple that Spark holds as text."""
    assert order == order_of(order_key(order))


@given(st.lists(ORDERS, min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_sql_finds_the_same_place(orders: list[Order]) -> None:
    """A tie that SQL sees and Python does not, or the reverse, is counted wrong."""
    keys = list(map(order_key, orders))
    listed = ", ".join(f"('{key}')" for key in keys)
    found = duckdb.sql(f"SELECT {place_sql('k')} FROM (VALUES {listed}) t(k)").fetchall()
    assert [same_place(key) if order.sequence else None for key, order in zip(keys, orders, strict=True)] == [
        place for (place,) in found
    ]


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
