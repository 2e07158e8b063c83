"""Complete re-snapshots: rows from before an epoch have no effect after it, in whatever order they arrive."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ingest.change import Change, Op
from ingest.fold import Placed, fold
from ingest.ledgers.starts import beginning
from ingest.order import order_of
from tests.properties.delivery import deliver, placed
from tests.properties.histories import history
from tests.properties.kinds import KINDS, Kind

HISTORIES = 60
EPOCHS = [replace(kind, name=f"{kind.name}_anew") for kind in KINDS if kind.any_order and not kind.inherits]


def with_epochs(kind: Kind) -> list[tuple[str, list[Placed], dict[str, str], tuple[str, ...], int]]:
    """Histories that have a second epoch: seed, changes in their order of arrival, types, keys, last epoch."""
    found = []
    for number in range(HISTORIES):
        made = history(kind, number)
        last = max((sent.epoch for sent in made.sent), default=0)
        if last:
            found.append((made.seed, placed(deliver(made)), dict(made.types), made.keys, last))
    return found


@pytest.mark.parametrize("kind", EPOCHS, ids=lambda kind: kind.name)
def test_a_complete_snapshot_stands_alone(kind: Kind) -> None:
    """Keys that the new epoch lacks are deleted; those that it has inherit nothing from before."""
    histories = with_epochs(kind)
    assert len(histories) > HISTORIES // 20
    for seed, events, types, keys, last in histories:
        sweep = Placed(order_of(beginning(last)), Change(op=Op.TRUNCATE))
        alone = fold([event for event in events if event.order.epoch == last], keys, types)
        for shuffled in range(3):
            mixed = [*events, sweep]
            Random(f"{seed}/{shuffled}").shuffle(mixed)
            actual = fold(mixed, keys, types)
            assert {key: row.values for key, row in alone.items()} == {
                key: row.values for key, row in actual.items()
            }, seed


@pytest.mark.parametrize("kind", EPOCHS, ids=lambda kind: kind.name)
def test_the_epoch_decides_before_the_sequence(kind: Kind) -> None:
    """Positions that started again are smaller: without the epoch the old rows would stay for ever."""
    differs = 0
    for seed, events, types, keys, _last in with_epochs(kind):
        expected = {key: row.values for key, row in fold(events, keys, types).items()}
        shuffled = list(events)
        Random(seed).shuffle(shuffled)
        assert expected == {key: row.values for key, row in fold(shuffled, keys, types).items()}
        flat = [Placed(event.order._replace(epoch=0), event.change) for event in events]
        differs += expected != {key: row.values for key, row in fold(flat, keys, types).items()}
    assert differs > 0
