"""Where epochs begin: which bronze rows belong to which epoch."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from ingest.ledgers.starts import MessagePlace, Start, beginning, parted
from ingest.order import Order, order_key, order_of

WHOLE = Start(3)
FILES = Start(3, (MessagePlace(2, "b", 1, 40), MessagePlace(2, "c", 2, 0)))
KAFKA = Start(4, (MessagePlace(2, "t", 0, 10), MessagePlace(3, "t", 1, 7)))


def epochs_of(starts: list[Start], *rows: tuple[int, str, int, int]) -> list[int]:
    """Each row's epoch, by way of `parted`."""
    columns = dict(zip(("batch", "topic", "partition", "offset"), zip(*rows, strict=True), strict=True))
    batch = pa.record_batch({"source": ["s"] * len(rows), **{name: list(v) for name, v in columns.items()}})
    found = {}
    for name, epoch, part in parted(batch, {"s": starts, "other": [Start(1)]}):
        assert "s" == name
        for row in part.to_pylist():
            found[tuple(row[one] for one in ("batch", "topic", "partition", "offset"))] = epoch
    return [found[row] for row in rows]


def test_without_a_start() -> None:
    """An epoch that was never decided would order old changes after new ones."""
    assert [0, 0] == epochs_of([], (1, "a", 0, 0), (9, "a", 0, 5))


def test_from_a_batch() -> None:
    """A batch too many, or one too few, is in the new epoch."""
    assert [0, 0, 1, 1] == epochs_of([WHOLE], (1, "a", 0, 0), (2, "z", 9, 99), (3, "a", 0, 0), (4, "a", 0, 1))


def test_from_a_byte_of_a_file() -> None:
    """The files that a batch reads after the named one are later in history, those before it earlier."""
    rows = [(2, "a", 0, 99), (2, "b", 1, 39), (2, "b", 1, 40), (2, "c", 2, 0), (3, "b", 0, 80)]
    assert [0, 0, 1, 1, 1] == epochs_of([FILES], *rows)


def test_from_places_in_partitions() -> None:
    """Each partition has its own place; one that is not named begins after them all."""
    rows = [
        (1, "t", 0, 11), (2, "t", 0, 9), (2, "t", 0, 10), (3, "t", 0, 0),
        (2, "t", 1, 8), (3, "t", 1, 6), (3, "t", 1, 7), (3, "t", 2, 50), (4, "t", 2, 51),
    ]  # fmt: skip
    assert [0, 0, 1, 1, 0, 0, 1, 0, 1] == epochs_of([KAFKA], *rows)


def test_starts_count() -> None:
    """A second epoch that began as the first one would let its changes mingle with theirs."""
    rows = [(1, "a", 0, 0), (2, "b", 1, 40), (3, "a", 0, 0), (7, "a", 0, 0)]
    assert [0, 1, 2, 3] == epochs_of([FILES, WHOLE, Start(7)], *rows)


def test_starts_in_other_partitions_of_one_batch() -> None:
    """Two tables are loaded again in one batch: what clears the second one has the second epoch, and its rows must have it, too."""
    first, second = (Start(3, (MessagePlace(2, topic, 0, 10),)) for topic in ("a", "b"))
    rows = [(2, "a", 0, 9), (2, "a", 0, 10), (2, "b", 0, 9), (2, "b", 0, 10), (3, "a", 0, 20), (3, "c", 0, 0)]
    assert [0, 1, 0, 2, 2, 2] == epochs_of([first, second], *rows)
    assert [first, second] == sorted([second, first], key=lambda start: (start.first, start.places))


@pytest.mark.parametrize("start", [WHOLE, FILES, KAFKA], ids=str)
def test_kept_as_text(start: Start) -> None:
    """A decision that is not read back as it was written loses the epoch with the next process."""
    assert start == Start.from_json(start.to_json())


def test_an_epoch_begins_before_all_its_changes() -> None:
    """A change ordered before the beginning would be cleared with the epochs before it."""
    random = Random(7)

    def number() -> int:
        return random.choice((0, 1, -5, 17, 10**40, -(10**40)))

    for epoch in (0, 1, 9, 10, 123):
        place = beginning(epoch)
        assert epoch == order_of(place).epoch
        for _ in range(200):
            sequence = tuple(number() for _ in range(random.randrange(4)))
            arrival = tuple(abs(number()) for _ in range(4))
            own = Order(
                epoch, random.randrange(2), sequence, random.randrange(2), arrival, random.randrange(3)
            )
            assert place < order_key(own)
            assert order_key(own) < beginning(epoch + 1)
