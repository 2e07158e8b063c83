"""The benchmark's messages: repeatable, and what they say is what the tables are expected to hold."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from benchmarks.contest.batches import Spoiled
from benchmarks.contest.cells import CELLS, Numbers, is_right
from benchmarks.contest.workload import Workload


def sent(seed: int, **given: Any) -> tuple[Workload, list[str]]:
    """A small workload and all its messages."""
    workload = Workload(seed, 3, 60, **given)
    return workload, [*workload.base(), *workload.batch(900)]


def folded(lines: list[str]) -> dict[str, dict[int, dict[str, Any]]]:
    """The tables that the messages make, read by the standard library and applied one by one."""
    tables: dict[str, dict[int, dict[str, Any]]] = {}
    for line in lines:
        message = json.loads(line, parse_float=Decimal)
        rows = tables.setdefault(message["table"], {})
        for row in message["data"]:
            key = int(row["id"])
            if message["type"] == "UPDATE":
                changed = {name: rows[key][name] for name in message["old"][0]}
                assert message["old"][0] == changed
            if message["type"] == "DELETE":
                del rows[key]
            else:
                assert (message["type"] == "UPDATE") == (key in rows)
                rows[key] = row
    return tables


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Two rounds of a benchmark would not have measured the same thing."""
    assert sent(7)[1] == sent(7)[1]
    assert sent(7)[1] != sent(8)[1]


def test_a_stream_is_batches_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large batch would be of another kind than the one that it is compared with."""
    monkeypatch.setattr("benchmarks.contest.workload.BLOCK", 400)
    streamed = [*sent(7)[0].stream(900, 2)]
    other = sent(7)[0]
    assert streamed == [*other.batch(400, 2), *other.batch(400, 2), *other.batch(100, 2)]


def test_a_stream_is_not_drawn_ahead() -> None:
    """Ten million messages would be held at once."""
    workload = sent(7)[0]
    before = workload.serial
    next(workload.stream(10**12))
    assert before + 1 == workload.serial


def test_births_are_rows_of_every_table() -> None:
    """A batch would not bring the tables that it is said to bring."""
    workload = Workload(7, 3, 4)
    made = folded(list(workload.births(4)))
    assert {"orders0": 4, "orders1": 4, "orders2": 4} == {name: len(rows) for name, rows in made.items()}
    assert [4, 4, 4] == [table.num_rows for table in workload.expected().values()]


def test_expected_tables_do_not_depend_on_how_many_rows_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large table would be called wrong at the border of two blocks."""
    whole = sent(7)[0].expected()
    monkeypatch.setattr("benchmarks.contest.workload.ROWS_AT_ONCE", 7)
    assert whole == sent(7)[0].expected()


@pytest.mark.parametrize("bare", [False, True])
def test_the_expected_tables_are_what_the_messages_make(bare: bool) -> None:
    """Wrong expectations would fail every contestant, or none."""
    workload, lines = sent(7, bare=bare)
    made = folded(lines)
    for name, table in workload.expected().items():
        rows = {
            row["id"]: {
                "id": str(row["id"]),
                "customer": str(row["customer"]),
                "note": row["note"],
                "amount": str(row["amount"]),
                "status": row["status"],
                "seen": str(row["seen"]),
            }
            for row in table.to_pylist()
        }
        assert {key: {n: str(v) for n, v in row.items()} for key, row in made[name].items()} == rows


def test_short_images_say_the_same() -> None:
    """Partial images would be compared with other changes than the whole ones."""
    whole, short = sent(7)[0], sent(7)[0]
    short.minimal = True
    both = [*zip(whole.batch(600), short.batch(600), strict=True)]
    assert whole.expected() == short.expected()
    for line, other in both:
        full, part = json.loads(line), json.loads(other)
        assert full["type"] == part["type"]
        missing = {"customer", "note"} if part["type"] != "INSERT" else set()
        assert missing == full["data"][0].keys() - part["data"][0].keys()
        assert part["data"][0].items() <= full["data"][0].items()


def test_cells_that_do_not_fit_are_expected_to_be_null() -> None:
    """A tick would be called wrong for what it must refuse, or right without having refused it."""
    workload = sent(7)[0]
    spoiled = Spoiled(workload, 10)
    lines = [*spoiled.batch(400), *spoiled.batch(400)]
    large = [json.loads(line) for line in lines if "99999999999999999999999" in line]
    assert 20 == len(large)
    assert 10 <= len(spoiled.keys) < 20  # some rows of the first batch were changed by the second
    empty = {
        f"{name}/{row['id']}"
        for name, rows in spoiled.expected().items()
        for row in rows.to_pylist()
        if row["customer"] is None
    }
    assert spoiled.keys == empty


def test_a_batch_has_the_promised_kinds() -> None:
    """The figures would be those of another workload than the one they are quoted for."""
    workload = Workload(7, 3, 20_000)
    list(workload.base())
    kinds = [json.loads(line)["type"] for line in workload.batch(4_000)]
    assert 0.25 == pytest.approx((kinds.count("INSERT") - workload.reborn) / 4_000, abs=0.03)
    assert 0.10 == pytest.approx(kinds.count("DELETE") / 4_000, abs=0.03)


def test_a_number_is_sent_as_it_is_written() -> None:
    """A cell would be judged by a number that was never sent."""
    for cell, line in zip(CELLS, Numbers().batch().values(), strict=True):
        assert cell.sent == json.loads(line, parse_int=str, parse_float=str)["data"][0]["value"]


def test_only_the_number_itself_is_right() -> None:
    """A contestant that loses digits would be praised."""
    by_name = {cell.what: cell for cell in CELLS}
    assert is_right(by_name["2^53 + 1"], "9007199254740993", None)
    assert not is_right(by_name["2^53 + 1"], "9007199254740992", None)
    assert not is_right(by_name["zeros after the point"], "1.23", None)
    assert not is_right(by_name["-0.0"], "0.0", None)
    assert is_right(by_name["1E400, a double: to be refused"], None, "1E400")
    assert not is_right(by_name["1E400, a double: to be refused"], "Infinity", None)
