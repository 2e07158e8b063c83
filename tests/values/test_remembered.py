"""Results that are remembered: as often as by `lru_cache`, in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.values.remembered import KEPT, LONG, remembered

Calls = list[tuple[object, ...]]


def counting(most: int) -> tuple[Calls, Any]:
    """A function that is remembered, and the calls that reached it."""
    calls: Calls = []

    @remembered(most)
    def of(*given: object) -> int:
        if "bad" in given:
            raise ValueError("bad")
        calls.append(given)
        return len(calls)

    return calls, of


def test_known_arguments_are_not_asked_again():
    """Plans of tables would be made for every message."""
    calls, of = counting(4)
    assert [1, 2, 1, 2] == [of("a"), of(("b", b"c")), of("a"), of(("b", b"c"))]
    assert 2 == len(calls)


def test_the_longest_unused_is_forgotten():
    """As with `lru_cache`, which bounds the number."""
    calls, of = counting(2)
    for one in ("a", "b", "a", "c", "a", "b"):
        of(one)
    assert [("a",), ("b",), ("c",), ("b",)] == calls


@pytest.mark.parametrize("long", ["x" * (LONG + 1), b"x" * (LONG + 1), ("x" * LONG, ("y",))])
def test_a_long_text_does_not_stay(long):
    """A thousand of a megabyte each would be a gigabyte."""
    _calls, of = counting(1024)
    of(long)
    assert 1 == of.cache_info().currsize
    of("a")
    assert 1 == of.cache_info().currsize
    assert (3, 2) == (of(long), of("a"))


def test_all_together_are_bounded():
    """Texts just below the limit are as many as come."""
    _calls, of = counting(1 << 20)
    for number in range(3 * KEPT // LONG):
        of(str(number), "x" * (LONG - 10))
        assert of.cache_info().currsize <= KEPT // (LONG - 10) + 2


def test_errors_are_not_remembered():
    """As with `lru_cache`: a text that is refused is refused each time."""
    _calls, of = counting(4)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            of("bad")
    assert 0 == of.cache_info().currsize
