"""The same random history in every dialect ends in the same rows, but for what is listed here.

``ONE_HISTORY_SEEDS=5000 pytest tests/formats/one_history`` tries more than the usual number of histories.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from ingest import formats
from tests.formats.one_history import canal, oms, relatives
from tests.formats.one_history.history import History, history
from tests.formats.one_history.replay import View, decoded, delivered, differences, folded, statements
from tests.formats.one_history.writing import Dialect

SEEDS = int(os.environ.get("ONE_HISTORY_SEEDS", "200"))
DIALECTS = {**canal.DIALECTS, **oms.DIALECTS, **relatives.DIALECTS}


LOSSES: dict[str, Mapping[str, View]] = {}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_history_ends_in_the_same_rows_in_every_dialect(name):
    """A dialect whose values, keys or order are misread would leave another table."""
    dialect = DIALECTS[name]
    assert {} == {seed: found for seed in range(SEEDS) if (found := wrong(dialect, seed, name))}


def wrong(dialect: Dialect, seed: int, name: str) -> list[str]:
    """What differs after one history went through a dialect."""
    truth = history(seed, truncates=dialect.truncates)
    arrived = delivered(dialect.write(truth), seed, any_order=dialect.any_order)
    placed = decoded(dialect, arrived)
    found = differences(truth, folded(placed), LOSSES.get(name, {}))
    return found + lost_statements(dialect, truth, statements(each.change for each in placed))


def lost_statements(dialect: Dialect, truth: History, found: set[str]) -> list[str]:
    """Statements of the history that no change carries."""
    sent = {event.sql for event in truth.events if event.sql}
    return [f"lost: {sql}" for sql in sent - found] if dialect.statements else []


def test_every_format_is_written_by_some_dialect():
    """A format without a writer here would be proven by nothing."""
    assert set(formats.names()) == {dialect.format for dialect in DIALECTS.values()}
