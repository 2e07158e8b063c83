"""Which changes are one row's: keys that rows leave, and that other rows get afterwards."""

from __future__ import annotations

from ingest.fold import Key
from ingest.gold.fold.stretches import Spoken, Stretch, of_rows

A, B, C = (1,), (2,), (3,)


def found(wanted: Key, *spoken: Spoken) -> list[Stretch]:
    """The stretches of the row that a key has."""
    return of_rows(spoken, [wanted], "9")


def test_a_row_that_never_moved_has_its_key_alone() -> None:
    """Up to the end of what is known, so that what comes late is stopped, too."""
    assert [Stretch(A, "", "9")] == found(A, Spoken("1", A), Spoken("3", A), Spoken("2", B))


def test_a_key_without_changes_is_erased_all_the_same() -> None:
    """Its changes may come late."""
    assert [Stretch(A, "", "9")] == found(A)


def test_a_row_takes_all_its_keys_with_it() -> None:
    """Under its first key its first values would be left."""
    moved = Spoken("2", B, A), Spoken("4", C, B)
    for wanted in (C, B, A):
        stretches = found(wanted, Spoken("1", A), *moved)
        assert {A, B, C} == {one.key for one in stretches}
        assert {C, wanted} == {one.key for one in stretches if one.last}
    (first, second, third) = found(C, Spoken("1", A), *moved)
    assert ("", "2") == (first.low, first.high)
    assert ("", "4") == (second.low, second.high)
    assert ("", "9") == (third.low, third.high)


def test_the_next_row_of_a_key_is_another_one() -> None:
    """Erased with the first, a row would be missing that was not to be forgotten."""
    life = Spoken("1", A), Spoken("2", B, A), Spoken("3", A), Spoken("4", A)
    assert [Stretch(A, "3", "9", alone=False)] == found(A, *life)
    assert [Stretch(A, "", "2", last=False, alone=False), Stretch(B, "", "9")] == found(B, *life)


def test_rows_that_exchange_their_keys() -> None:
    """Each keeps its own values through a third key."""
    swap = Spoken("1", A), Spoken("2", B), Spoken("3", C, A), Spoken("4", A, B), Spoken("5", B, C)
    mine = {(one.key, one.low, one.high) for one in found(A, *swap)}
    assert {((1,), "4", "9"), ((2,), "", "4")} == mine
    other = {(one.key, one.low, one.high) for one in found(B, *swap)}
    assert {((1,), "", "3"), ((3,), "", "5"), ((2,), "5", "9")} == other


def test_a_move_that_is_delivered_again_is_one_move() -> None:
    """Its repetition would make a second row, and the first would be left."""
    life = Spoken("1", A), Spoken("2", B, A), Spoken("3", B, A), Spoken("4", B)
    for wanted in (A, B):
        assert {A: "", B: ""} == {one.key: one.low for one in found(wanted, *life)}
