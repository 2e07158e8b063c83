"""The same random history in every dialect ends in the same rows, but for what is listed here.

``ONE_HISTORY_SEEDS=5000 pytest tests/formats/one_history`` tries more histories than every run does.
"""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module

import pytest

from ingest import formats
from tests.formats import one_history
from tests.formats.one_history import debezium
from tests.formats.one_history.debezium import key
from tests.formats.one_history.history import KEYS, SHAPE, History, history
from tests.formats.one_history.relatives import sent_document
from tests.formats.one_history.replay import decoded, delivered, differences, folded, statements
from tests.formats.one_history.writing import Dialect, Loss

SEEDS = int(os.environ.get("ONE_HISTORY_SEEDS", "30"))
MORE = range(SEEDS, SEEDS + 400)  # of `make slow`
WRITERS = [
    import_module(f"{one_history.__name__}.{module.name}")
    for module in pkgutil.iter_modules(one_history.__path__)
    if not module.name.startswith("test_")
]
DIALECTS: dict[str, Dialect] = {
    name: each for writer in WRITERS for name, each in getattr(writer, "DIALECTS", {}).items()
}


def _milliseconds(value: str) -> str:
    whole, dot, fraction = value.removesuffix("Z").partition(".")
    return whole + dot + fraction[:3] + ("Z" if value.endswith("Z") else "")


NONE = Loss()
ARRIVAL = Loss(order=True)
UNSENT = Loss(order=True, once=True)  # unchanged large columns are not sent
ROWS_ONLY = Loss(truncates=True, statements=True)
OMS_DEBEZIUM = Loss(truncates=True, statements=True, views={"packed_at": _milliseconds})
MAXWELL = Loss(truncates=True, views={"extras": sent_document})
STREAMX = Loss(views={"packed_at": _milliseconds, "seen_at": _milliseconds})

LOSSES: dict[str, Loss] = {
    # no position in the message, or one that does not order
    "canal": ARRIVAL,
    "oms-canal": UNSENT,
    "oms-dataworks": UNSENT,
    "ticdc-canal without the extension": ARRIVAL,
    # rows alone, moments in milliseconds
    "oms-debezium": OMS_DEBEZIUM,
    "oms-debezium with schema": OMS_DEBEZIUM,
    "oms-debezium-flatten": OMS_DEBEZIUM,
    "oms-debezium-smt": OMS_DEBEZIUM._replace(order=True),
    "dataworks": STREAMX,
    "dataworks in pairs": STREAMX,
    # rows alone
    "debezium flattened": ROWS_ONLY,
    "debezium flattened with null values": ROWS_ONLY._replace(order=True),
    "maxwell": MAXWELL._replace(order=True),
    "maxwell with position": MAXWELL,
    "ingest-snapshot": Loss(statements=True),
    "ogg": Loss(statements=True),
    "ogg compressed": Loss(statements=True),
    "dms": Loss(order=True, statements=True),
    "dms with position": ROWS_ONLY,  # a control message has no position
}
for _writer in WRITERS:
    LOSSES |= getattr(_writer, "LOSSES", {})
"""All that a dialect may lose, here or as ``LOSSES`` of its writer's module; one that is not named loses nothing."""


@pytest.mark.parametrize("name", DIALECTS)
def test_a_history_ends_in_the_same_rows_in_every_dialect(name):
    """A dialect whose values, keys or order are misread would leave another table."""
    assert {} == {seed: found for seed in range(SEEDS) if (found := wrong(name, seed))}


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALECTS)
def test_more_histories_end_in_the_same_rows_in_every_dialect(name):
    """What the first ones do not show."""
    assert {} == {seed: found for seed in MORE if (found := wrong(name, seed))}


def wrong(name: str, seed: int, lose: int | None = None) -> list[str]:
    """What differs after one history went through a dialect; ``lose`` is the message that never arrives."""
    dialect, loss = DIALECTS[name], LOSSES.get(name, NONE)
    truth = history(seed, truncates=not loss.truncates)
    sent = dialect.write(truth)
    if lose is not None:
        del sent[lose]
    placed = decoded(dialect, delivered(sent, seed, any_order=not loss.order, once=loss.once))
    found = differences(truth, folded(placed), loss.views)
    return found if loss.statements else found + unsaid(truth, statements(each.change for each in placed))


def unsaid(truth: History, found: set[str]) -> list[str]:
    """Statements of the history that no change carries."""
    return [f"no {event.sql}" for event in truth.events if event.sql and event.sql not in found]


def test_every_format_is_written_by_some_dialect():
    """A format without a writer here would be proven by nothing."""
    assert set(formats.names()) == {dialect.format for dialect in DIALECTS.values()}


@pytest.mark.parametrize("name", formats.names())
def test_a_format_is_called_strong_if_it_comes_right_in_any_order(name):
    """The support matrix would promise an order that the messages do not carry, or hide one."""
    assert formats.load(name).ABOUT.strength.startswith("weak") == LOSSES.get(name, NONE).order


@pytest.mark.parametrize("name", ["canal", "oms-default", "debezium-avro", "dms"])
def test_a_message_that_never_arrives_is_seen(name):
    """A comparison that sees no loss would prove nothing."""
    assert any(wrong(name, seed, lose=-1) for seed in range(10))


def test_every_kind_of_event_and_every_null_occurs():
    """A generator that never makes something would prove nothing of it."""
    events = [event for seed in range(SEEDS) for event in history(seed).events]
    assert {"read", "insert", "update", "delete", "truncate", "alter"} == {event.kind for event in events}
    assert any(
        key(event, event.before) != key(event, event.after) for event in events if event.kind == "update"
    )
    assert set(SHAPE) - set(KEYS) == {
        name for event in events for name in event.row if event.row[name] is None
    }


def test_no_dialect_is_declared_that_does_not_exist():
    """An entry under a misspelt name would declare nothing, and its dialect would have to be perfect."""
    assert set() == LOSSES.keys() - DIALECTS.keys()


def test_messages_do_not_depend_on_those_written_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema ids that other tests had used made a test pass or fail by the order of the files."""
    write, made = DIALECTS["debezium-avro"].write, [history(1), history(2)]
    monkeypatch.setattr(debezium, "_SCHEMAS", {})
    alone = write(made[1])
    monkeypatch.setattr(debezium, "_SCHEMAS", {})
    write(made[0])
    assert alone == write(made[1])
