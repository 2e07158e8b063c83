"""Faults planted in random histories through every dialect: the next change of the row must show each of them.

That right histories show none is asserted with their mirrors, by `tests.model.checks.differences`.
``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=2000`` more of them.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from ingest.change import Change, Op
from ingest.fold import Placed, SchemaStep, Table
from ingest.images_before import NEVER_CAME, NO_ROW, WHOLE, Chain, Excuse, ImagesBefore, Link
from ingest.order import RANK, Order
from ingest.values.same_value import same_value
from tests.model.checks import CAPTURES, Capture
from tests.model.planting import FAULTS, planted

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))
KEYS_ONLY = {"debezium flattened", "dts-shareplex of Quest", "ingest-snapshot", "ogg-avro rows"}
"""Dialects whose updates say nothing of the row before, or only its key."""
SHOWN = {"ogg-avro compressed without marks": 0.3}
"""How many faults the next change shows at least, of a dialect that leaves out unchanged columns and those that become NULL."""


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
def test_the_next_change_shows_a_fault(capture: Capture) -> None:
    """A lost, altered or exchanged message must not go unnoticed for longer than the row's next change."""
    tally = planted(range(max(10, COUNT // len(CAPTURES))), capture, SEED)
    assert [] == tally.missed
    if capture.name not in KEYS_ONLY:
        assert sum(tally.named.values()) > SHOWN.get(capture.name, 0.7) * tally.planted
        assert len(tally.named) >= len(FAULTS) - 1
        assert tally.named["exchange"] + tally.named["repeat"] >= tally.at_once > 0


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logical", "said", "had"),
    [
        ("decimal(10,2)", "1.50", "1.5"),
        ("decimal(10,2)", "1e2", "100.00"),
        ("decimal", "0.00", "0"),
        ("decimal(60,20)", "1.50", "1.5"),
        ("int32", "07", "7"),
        ("float32", "0.333333", "0.33333334"),
        ("float64", "1.0", "1"),
        ("json", '{"a": 1, "b": [1.0]}', '{"b":[1.00],"a":1}'),
        ("datetime", "2024-01-02 03:04:05.100", "2024-01-02 03:04:05.1"),
        ("datetime", "2024-01-02 03:04:05.123456789", "2024-01-02 03:04:05.123456"),
        ("timestamp", "2024-01-02T03:04:05+08:00", "2024-01-01T19:04:05Z"),
        ("time", "12:00:00", "12:00:00.000"),
        ("unknown", "1.0", "1"),
        ("string", "a", "a"),
    ],
)
def test_texts_of_one_value(logical: str, said: str, had: str) -> None:
    """Another spelling is no lost message."""
    assert same_value(logical, said, had)
    assert same_value(logical, had, said)


@pytest.mark.parametrize(
    ("logical", "said", "had"),
    [
        ("decimal(10,2)", "1.50", "1.51"),
        ("decimal", "1.50", "1.51"),
        ("float64", "0.333333", "0.33333334"),
        ("json", '{"a": 1}', '{"a": "1"}'),
        ("json", '{"a": 9007199254740993}', '{"a": 9007199254740992}'),
        ("datetime", "2024-01-02 03:04:05.1", "2024-01-02 03:04:05"),
        ("timestamp", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05+08:00"),
        ("string", "1.0", "1"),
        ("unknown", "a", "b"),
        ("int32", "x", "y"),
        ("string", "a ", "a"),
        ("string", None, ""),
    ],
)
def test_texts_of_two_values(logical: str, said: str | None, had: str) -> None:
    """Two values must not pass for one."""
    assert not same_value(logical, said, had)
    assert not same_value(logical, had, said)


# --- excuses --------------------------------------------------------------------------------------


def placed(op: Op, at: int, before: str | None = "", after: str | None = "", **more: int) -> Placed:
    """A change of row 1, whose column ``v`` was and is as said; an empty text says nothing."""
    images = [None if text == "" else {"id": "1", "v": text} for text in (before, after)]
    order = Order(
        more.get("epoch", 0), more.get("phase", 1), (at,) if at else (), 0, (more.get("arrival", at),), 0
    )
    types = {"id": "int32", "v": "string"}
    return Placed(
        order, Change(op=op, before=images[0], after=images[1], types=types, event_time=more.get("time"))
    )


def links(*events: Placed | SchemaStep, images: ImagesBefore = WHOLE) -> list[Link]:
    """The links of a table's changes."""
    chain = Chain(Table(("id",), {"id": "int32"}), images=images)
    return [link for _event, _done, link in chain.steps(events) if link]


def test_a_large_value_that_is_not_sent_is_no_difference() -> None:
    """OceanBase sends a large value that it does not know as NULL; only NULL, and only where the dialect says so."""
    told = placed(Op.INSERT, 1, after="long"), placed(Op.UPDATE, 2, before=None, after="longer")
    told_null = (
        told[0],
        told[1]._replace(
            change=Change(op=Op.UPDATE, before={"id": "1", "v": None}, after={"id": "1", "v": "x"})
        ),
    )
    assert not any(link.is_broken for link in links(*told_null, images=ImagesBefore(hides_large=True)))
    assert any(link.is_broken for link in links(*told_null))
    other = told[0], placed(Op.UPDATE, 2, before="else", after="x")
    assert any(link.is_broken for link in links(*other, images=ImagesBefore(hides_large=True)))


def test_the_delete_of_a_table_whose_updates_tell_nothing_has_only_its_key() -> None:
    """Else each delete of a PostgreSQL table without REPLICA IDENTITY FULL would be a false alarm."""
    images = ImagesBefore(key_deletes=True)
    silent = placed(Op.UPDATE, 2, after="b")
    delete = placed(Op.DELETE, 4)._replace(change=Change(op=Op.DELETE, before={"id": "1", "v": None}))
    first = placed(Op.INSERT, 1, after="a")
    assert [False] == [link.is_broken for link in links(first, silent, delete, images=images)]
    assert [False] == [link.is_broken for link in links(first, delete, images=images)]
    assert [True] == [link.is_broken for link in links(first, silent, delete)]
    telling = placed(Op.UPDATE, 2, "a", "b")
    other = placed(Op.DELETE, 4, before="a")
    assert [False, True] == [link.is_broken for link in links(first, telling, other, images=images)]
    # the table may have got another replica identity after the update
    assert [False, False] == [link.is_broken for link in links(first, telling, delete, images=images)]
    again = placed(Op.DELETE, 6, before="x")
    assert [False, True] == [link.is_broken for link in links(first, delete, again, images=images)]


def test_an_update_that_says_nothing_of_a_row_that_is_gone() -> None:
    """It came late, or an insert was lost: a row that was deleted was there again, and no later change of it came to say so."""
    insert, delete, alone = (
        placed(Op.INSERT, 1, after="a"),
        placed(Op.DELETE, 2, "a"),
        placed(Op.UPDATE, 3, after="b"),
    )
    found = links(insert, delete, alone)
    assert [(False, ()), (True, (NO_ROW,))] == [(link.is_broken, link.differences) for link in found]
    assert [True] == [link.is_broken for link in links(insert, placed(Op.TRUNCATE, 2, None, None), alone)]
    after = alone._replace(order=alone.order._replace(half=1))
    assert [False] == [link.is_broken for link in links(insert, delete, after)], (
        "the delete is its image before"
    )
    upserts = placed(Op.UPDATE, 1, after="a"), delete, alone
    assert [False] == [link.is_broken for link in links(*upserts)], "it may be an insert"


def test_an_update_without_an_image_before_may_come_again() -> None:
    """A stream that goes back goes forward again to the delete."""
    events = [placed(Op.INSERT, 0, after="a", arrival=0)]
    for arrival, event in enumerate(
        2 * (placed(Op.UPDATE, 0, after="b", time=5), placed(Op.DELETE, 0, "b", time=6)), 1
    ):
        events.append(event._replace(order=event.order._replace(arrival=(arrival,))))
    assert [None, Excuse.REPEATED, None] == [link.excuse for link in links(*events)]


NUMBERED = ImagesBefore(renumbers=True)


@pytest.mark.parametrize(
    ("images", "places", "times"),
    [
        (WHOLE, (1, 2, 4), (5, 5, 5)),
        (WHOLE, (0, 0, 0), (5, 6, 8)),
        (NUMBERED, (1, 2, 4), (5, 6, 8)),
    ],
    ids=["position", "arrival", "number"],
)
def test_a_change_that_happens_twice_is_no_repetition(
    images: ImagesBefore, places: tuple[int, ...], times: tuple[int, ...]
) -> None:
    """A flag that is set, cleared and set again says the same twice: the loss of what cleared it went unnoticed."""
    texts = (("", "x"), ("x", None), ("x", None))
    ops = (Op.INSERT, Op.UPDATE, Op.UPDATE)
    events = [
        placed(op, at, *text, arrival=arrival, time=time)
        for op, at, text, time, arrival in zip(ops, places, texts, times, range(3), strict=True)
    ]
    assert [False, True] == [link.is_broken for link in links(*events, images=images)]


@pytest.mark.parametrize(
    ("images", "first", "again"),
    [
        (WHOLE, {"sequence": (2,), "time": 5}, {"sequence": (2,), "time": 5}),
        (WHOLE, {"sequence": (2,)}, {"sequence": (2,)}),
        (WHOLE, {"time": 5}, {"time": 5}),
        (WHOLE, {}, {}),
        (NUMBERED, {"sequence": (2,), "time": 5}, {"sequence": (9,), "time": 5}),
        (ImagesBefore(counts_rows=True), {"sequence": (7, 4, 1)}, {"sequence": (7, 4, 3)}),
        (ImagesBefore(clocks_messages=True), {"time": 5}, {"time": 8}),
    ],
    ids=["position", "position alone", "arrival", "content alone", "number", "rows", "clock of messages"],
)
def test_a_message_that_came_again_is_an_excuse(
    images: ImagesBefore, first: dict[str, Any], again: dict[str, Any]
) -> None:
    """At-least-once connectors repeat messages after a restart: each would be a false alarm."""
    events = [placed(Op.INSERT, 1 if "sequence" in first else 0, after="a", arrival=0)]
    for arrival, said in ((1, first), (2, again)):
        order = Order(0, 1, said.get("sequence", ()), 0, (arrival,), 0)
        events.append(placed(Op.UPDATE, 0, "a", "b", time=said.get("time", 0))._replace(order=order))
    assert [None, Excuse.REPEATED] == [link.excuse for link in links(*events, images=images)]


def test_another_transaction_repeats_nothing() -> None:
    """Where the clock is that of the message, the transaction tells two changes apart."""
    events = [placed(Op.INSERT, 0, after="a", arrival=0)]
    for arrival, transaction in ((1, "7"), (2, "7"), (3, "8")):
        event = placed(Op.UPDATE, 0, "a", "b", arrival=arrival, time=5)
        change = msgspec.structs.replace(event.change, transaction=transaction)
        events.append(event._replace(change=change))
    found = links(*events, images=ImagesBefore(clocks_messages=True))
    assert [None, Excuse.REPEATED, None] == [link.excuse for link in found]


def test_another_epoch_is_an_excuse() -> None:
    """What a failover lost was decided when the epoch was."""
    found = links(placed(Op.INSERT, 9, after="a"), placed(Op.UPDATE, 2, "b", "c", epoch=1))
    assert [Excuse.EPOCH] == [link.excuse for link in found]


def test_a_loaded_row_excuses_only_its_first_change() -> None:
    """From then on the changes follow each other."""
    load = placed(Op.READ, 9, after="c", phase=0)
    found = links(load, placed(Op.UPDATE, 2, "a", "b"), placed(Op.UPDATE, 4, "x", "y"))
    assert [Excuse.LOADED, None] == [link.excuse for link in found]
    assert [False, True] == [link.is_broken for link in found]


@pytest.mark.parametrize(("loaded", "is_broken"), [("c", True), ("b", False)])
def test_a_change_that_was_written_after_the_load_is_compared(loaded: str, is_broken: bool) -> None:
    """A statement that converted a loaded row was never named, though its next change shows it; the row may be read late."""
    events = placed(Op.READ, 1, after=loaded, phase=0), placed(Op.UPDATE, 2, "a", "b")
    [link] = links(*events, images=ImagesBefore(shared_reads=True))
    assert is_broken == link.is_broken
    [link] = links(*events)
    assert not link.is_broken, "a number of the load's own does not say when it has read the row"


def read(op: Op, value: str = "", *, number: int = 8) -> Placed:
    """A row, or the end, of a snapshot whose place is right after position 1."""
    event = placed(op, 1, after=value)
    arrival = (7, RANK, number, int(op is Op.READ), 0)
    return event._replace(order=event.order._replace(sequence=(1, number), half=3, arrival=arrival))


def test_a_row_that_was_read_after_its_place_excuses_only_its_first_change() -> None:
    """A change between the place and the reading is in the row already, and the stream brings it once more."""
    later = placed(Op.UPDATE, 2, "a", "b"), placed(Op.UPDATE, 4, "x", "y")
    found = links(placed(Op.INSERT, 1, after="a"), read(Op.TRUNCATE), read(Op.READ, "b"), *later)
    assert [Excuse.LOADED, None] == [link.excuse for link in found]
    assert [False, True] == [link.is_broken for link in found]
    carried = links(
        placed(Op.INSERT, 1, after="a"), read(Op.READ, "b", number=7), *later
    )  # has nothing in between
    assert [True, True] == [link.is_broken for link in carried]


def test_a_row_that_was_gone_when_it_was_to_be_read_excuses_its_delete() -> None:
    """The reading has removed what the stream says is deleted after the place."""
    found = links(placed(Op.INSERT, 1, after="a"), read(Op.TRUNCATE), placed(Op.DELETE, 2, "a"))
    assert [Excuse.LOADED] == [link.excuse for link in found]


def test_nothing_is_said_of_a_row_that_no_message_has_shown() -> None:
    """A capture that began later does not know the rows from before."""
    assert [] == links(placed(Op.UPDATE, 2, "a", "b"))


def test_a_column_that_became_an_instant_is_not_compared() -> None:
    """Which instant a DATETIME became depends on the zone of the session that changed the column."""
    before, after = "2024-01-02 03:04:05", "2024-01-02T01:04:05Z"
    found = []
    for kinds in (("datetime", "timestamp"), ("datetime", "datetime")):
        first, second = placed(Op.INSERT, 1, after=before), placed(Op.UPDATE, 2, after, "x")
        changes = [
            event._replace(change=msgspec.structs.replace(event.change, types={"v": kind}))
            for event, kind in zip((first, second), kinds, strict=True)
        ]
        found += [link.is_broken for link in links(*changes)]
    assert [False, True] == found


def test_the_mark_of_an_epoch_shows_an_empty_table() -> None:
    """It is no message, and has arrived nowhere; a change after it of a row that no message brings has lost one."""
    mark = placed(Op.TRUNCATE, 0, None, None, phase=0)
    mark = mark._replace(order=mark.order._replace(arrival=()))
    [link] = links(mark, placed(Op.UPDATE, 6, "a", "b"))
    assert ((NEVER_CAME,), None) == (link.differences, link.excuse)
