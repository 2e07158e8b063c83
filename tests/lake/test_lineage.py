"""What is sent to a lineage service about failures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.config import Pipeline, Source
from ingest.config.entries import Lineage
from ingest.tables import lineage

PASSWORD = "hush-hush-pw"
TRACE = (
    f"gold: Py4JJavaError: user shop with {PASSWORD} was refused\n\tat org.apache.Spark.run(Spark.java:1)\n"
    f"Caused by: {PASSWORD}"
)


@pytest.fixture
def lake() -> Any:
    """Of a lake, what lineage looks at: a pipeline with a password."""
    source = Source("s", "kafka", "canal", kafka={"ssl.key.password": PASSWORD})
    return SimpleNamespace(
        pipeline=Pipeline("p", Path("p.yaml"), "lake", (source,), lineage=Lineage(file="events.jsonl"))
    )


def emitted(lake: Any, failures: list[str], monkeypatch: pytest.MonkeyPatch) -> list[lineage._Event]:
    """What is sent at the start and the end of a run."""
    events: list[lineage._Event] = []
    monkeypatch.setattr(lineage, "_client", lambda _where: SimpleNamespace(emit=events.append))
    monkeypatch.setattr(lineage, "_run_event", lambda _lake, _where, word: word)
    lineage.Emitter(lake).end(failures, {}, [])
    return events


def test_failures_hold_no_secrets_and_no_traces(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's error would carry a password into a service that others read."""
    start, end = emitted(lake, [TRACE, f"second {PASSWORD}"], monkeypatch)
    assert ("START", "FAIL") == (start.state, end.state)
    assert ["gold: Py4JJavaError: user shop with *** was refused", "second ***"] == end.failures


def test_long_failures_are_cut_after_secrets_are_struck(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a password at the cut would not be known as one."""
    (_, end) = emitted(lake, ["x" * 495 + PASSWORD + "y" * 1_000_000], monkeypatch)
    assert [500] == [len(text) for text in end.failures]
    assert "hush" not in end.failures[0]


def test_errors_of_the_service_hold_no_secrets(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning is printed, and kept in the lake."""

    def refuse(_where: Lineage) -> None:
        raise OSError(f"no connection with {PASSWORD}\n\tat java")

    monkeypatch.setattr(lineage, "_client", refuse)
    emitter = lineage.Emitter(lake)
    emitter.end([], {}, [])
    (warning,) = emitter.warnings
    assert "OSError: no connection with ***" in warning
    assert PASSWORD not in warning
    assert "java" not in warning
