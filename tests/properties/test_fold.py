"""The plain fold against a database: thousands of random histories, delivered as badly as their order allows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from ingest.change import Change, Op
from ingest.fold import Table, fold, steps
from tests.properties.checks import checked
from tests.properties.delivery import deliver, placed
from tests.properties.histories import Sent, history
from tests.properties.kinds import KINDS, Kind

HISTORIES = 20_000


@pytest.mark.one_of(4)
@pytest.mark.parametrize("share", range(20))
def test_no_history_is_wrong(share: int) -> None:
    """A wrong fold is a wrong mirror: it defines what every mirror holds."""
    found = (checked(number)[1] for number in range(share, HISTORIES, 20))
    assert [] == [str(wrong) for wrong in found if wrong]


def test_any_delivery_gives_the_same_rows() -> None:
    """With a strong sequence neither order, nor repetition, nor batches may matter: complete rows, too."""
    for kind in (kind for kind in KINDS if kind.any_order):
        made = history(kind, 77)
        straight = fold(placed([made.sent]), made.keys, made.types)
        assert straight == fold(placed(deliver(made)), made.keys, made.types), made.seed


def test_a_repeated_message_inherits_what_it_did() -> None:
    """Rows of one message: the old key's new row is not what the moved row was, not the second time either."""
    sent = Sent(
        0,
        tuple(
            Change(op=op, before=before, after=after, partial=partial, sequence=(5,), row=row)
            for row, (op, before, after, partial) in enumerate(
                (
                    (Op.INSERT, None, {"k0": "1", "n": "first"}, False),
                    (Op.UPDATE, {"k0": "1"}, {"k0": "2"}, True),
                    (Op.INSERT, None, {"k0": "1", "n": "second"}, False),
                )
            )
        ),
    )
    expected = {("1",): "second", ("2",): "first"}
    for batches in ([[sent]], [[sent, sent]], [[sent], [sent], [sent]]):
        rows = fold(placed(batches), ("k0",))
        assert expected == {key: row.values["n"] for key, row in rows.items()}


def test_a_repeated_message_without_a_position_finds_the_row_that_it_moved() -> None:
    """The old key has another row now, whose values the moved row took; the messages after it come again, too."""
    first, moved, second, newer = (
        Sent(0, (Change(op=op, before=before, after=after, partial=partial, event_time=time),))
        for op, before, after, partial, time in (
            (Op.INSERT, None, {"k0": "1", "n": "first"}, False, 1),
            (Op.UPDATE, {"k0": "1"}, {"k0": "2"}, True, 2),
            (Op.INSERT, None, {"k0": "1", "n": "second"}, False, 2),
            (Op.UPDATE, {"k0": "2"}, {"k0": "2", "n": "newer"}, False, 3),
        )
    )
    for batches, expected in (
        ([[first, moved, second, moved, second]], {("1",): "second", ("2",): "first"}),
        ([[first, moved, second], [first, moved, second]], {("1",): "second", ("2",): "first"}),
        ([[first, moved, second, newer], [moved, second, newer]], {("1",): "second", ("2",): "newer"}),
    ):
        rows = fold(placed(batches), ("k0",))
        assert expected == {key: row.values["n"] for key, row in rows.items()}


def test_a_key_may_change_again_in_the_same_way() -> None:
    """The row that was moved is gone, so this is no repetition."""
    first, moved, gone, second = (
        Sent(0, (Change(op=op, before=before, after=after, partial=partial, event_time=1),))
        for op, before, after, partial in (
            (Op.INSERT, None, {"k0": "1", "n": "first"}, False),
            (Op.UPDATE, {"k0": "1"}, {"k0": "2"}, True),
            (Op.DELETE, {"k0": "2"}, None, False),
            (Op.INSERT, None, {"k0": "1", "n": "second"}, False),
        )
    )
    rows = fold(placed([[first, moved, gone, second, moved]]), ("k0",))
    assert {("2",): "second"} == {key: row.values["n"] for key, row in rows.items()}


@pytest.mark.parametrize("sequence", [(5,), ()])
def test_a_repeated_message_leaves_a_deleted_row_as_it_was(sequence: tuple[int, ...]) -> None:
    """A row that is kept after its delete would lose what a partial update before it does not carry."""
    types = {"k0": "string", "n": "string", "s": "string"}
    made = Change(
        op=Op.INSERT, after={"k0": "1", "n": "1", "s": "kept"}, sequence=sequence and (4,), types=types
    )
    changed = Change(op=Op.UPDATE, after={"k0": "1", "n": "2"}, partial=True, sequence=sequence, types=types)
    gone = Change(op=Op.DELETE, before={"k0": "1"}, sequence=sequence, types=types, row=1)
    last = Sent(0, (changed, gone))
    for batches in ([[Sent(0, (made,)), last]], [[Sent(0, (made,)), last], [last], [last]]):
        table = Table(("k0",), soft=True)
        assert len(list(steps(table, placed(batches)))) > 2
        assert {} == table.rows
        assert ("1", "2", "kept") == tuple(table.dead["1",].values[name] for name in types)


def _seen(kind: Kind, numbers: range) -> Counter[str]:
    """How often histories of a kind hold what makes them hard."""
    seen: Counter[str] = Counter()
    for number in numbers:
        made = history(kind, number)
        batches = deliver(made)
        events = placed(batches)
        messages = [sent for batch in batches for sent in batch]
        places = [event.order[:4] for event in events]
        seen["repeated"] += len(messages) - len(set(map(id, messages)))
        seen["late"] += sum(left > right for left, right in pairwise(places))
        seen["rows"] += sum(len(sent.changes) > 1 for sent in messages)
        seen["epochs"] += any(sent.epoch for sent in messages)
        seen["shared"] += sum(
            left.changes[0].sequence == right.changes[0].sequence != () for left, right in pairwise(made.sent)
        )
        for change in (event.change for event in events):
            seen[change.op] += 1
            seen["partial"] += change.partial and change.op is Op.UPDATE
            seen["half"] += change.half
            seen["moved"] += bool(
                change.before and change.op is Op.UPDATE and _moves(change.before, change.after)
            )
    return seen


def _moves(before: dict[str, str | None], after: dict[str, str | None] | None) -> bool:
    return any(
        name in before and before[name] != (after or {}).get(name, before[name]) for name in ("k0", "k1")
    )


def test_the_histories_are_hard() -> None:
    """A generator that no longer makes something tests no longer what it says."""
    kind = next(kind for kind in KINDS if kind.inherits)
    seen = _seen(kind, range(200))
    wanted = (Op.READ, Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE)
    more = ("repeated", "late", "rows", "epochs", "partial", "half", "moved")
    assert [] == [name for name in (*wanted, *more) if seen[name] < 20], seen


@pytest.mark.parametrize("order", ["transaction", "arrival"])
def test_weak_orders_are_kept_and_sent_again(order: str) -> None:
    """Histories without a place of their own per message must share places, and must be repeated."""
    kind = next(kind for kind in KINDS if kind.order == order and kind.moves)
    seen = _seen(kind, range(200))
    assert seen["repeated"] > 20
    assert (order == "transaction") == (seen["shared"] > 20)
