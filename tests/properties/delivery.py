"""What happens to messages on their way: reordering, repetition, and cuts into batches."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from ingest.fold import Placed
from ingest.order import Order
from tests.properties.histories import History, Sent

Item = TypeVar("Item")
Batches = list[list[Sent]]


def deliver(history: History, batches: int = 6, *, twice: float = 0.25, resend: float = 0.3) -> Batches:
    """The messages of a history in batches, every one at least once, in whatever order its kind allows.

    Args:
        history: its seed decides what happens, too.
        batches: how many batches there are at most.
        twice: how likely a message comes twice.
        resend: how likely a batch, or what came last, comes again as a whole.
    """
    random = Random(f"{history.seed}/delivery")
    if history.kind.any_order:
        stream = _repeated(_disordered(list(history.sent), random), random, twice)
        return _replayed(_cut(stream, batches, random), random, resend)
    return _cut(_sent_again(history.sent, random, resend), batches, random)


def _disordered(stream: list[Item], random: Random) -> list[Item]:
    style = random.randrange(3)
    if style == 0:
        return stream
    if style == 1:
        random.shuffle(stream)
        return stream
    late = [i + 4 * random.random() for i in range(len(stream))]  # neighbours change places
    return [item for _, item in sorted(zip(late, stream, strict=True), key=lambda pair: pair[0])]


def _repeated(stream: list[Item], random: Random, likely: float) -> list[Item]:
    again = [item for item in stream if random.random() < likely]
    for item in again:
        stream.insert(random.randrange(len(stream) + 1), item)
    return stream


def _cut(stream: list[Item], most: int, random: Random) -> list[list[Item]]:
    """The stream in up to ``most`` pieces; empty ones are left in, for other tables have rows there."""
    ends = sorted(random.randrange(len(stream) + 1) for _ in range(most - 1))
    return [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


def _replayed(batches: list[list[Item]], random: Random, likely: float) -> list[list[Item]]:
    """Some batch comes again, whole, with a later one: what a source does after a crash."""
    if random.random() < likely:
        batch = random.randrange(len(batches))
        later = random.randrange(batch, len(batches))
        batches[later] = batches[later] + batches[batch]
    return batches


def _sent_again(stream: list[Item], random: Random, likely: float) -> list[Item]:
    """At least once, in order: from time to time the source goes back some messages, and on from there."""
    sent: list[Item] = []
    for at, item in enumerate(stream):
        sent.append(item)
        if random.random() < likely / 3:
            sent.extend(stream[max(0, at - random.randrange(6)) : at + 1])
    return sent


def in_order(messages: list[Sent], batches: int) -> Batches:
    """Messages of many histories in one order, cut so that no batch holds anything older than the last one."""
    ordered = sorted(messages, key=_place)
    size = -(-len(ordered) // batches)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _place(sent: Sent) -> tuple[object, ...]:
    first = sent.changes[0]
    return (sent.epoch, first.phase, first.sequence, first.half)


def placed(batches: Batches) -> list[Placed]:
    """The changes with their places, as silver would give them."""
    found = []
    for number, batch in enumerate(batches, start=1):
        for offset, (epoch, changes) in enumerate(batch):
            for change in changes:
                arrival = (number, 0, 0, offset)
                order = Order(epoch, change.phase, change.sequence, change.half, arrival, change.row)
                found.append(Placed(order, change))
    return found
