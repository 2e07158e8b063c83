"""A section that fails or is late is named, what it started is ended, and the next one begins."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.contest import variants as all_variants
from benchmarks.contest.form import QUICK
from benchmarks.contest.limits import Late, limited
from benchmarks.contest.sections import Section
from benchmarks.contest.variants import variants
from tests.timing import PATIENCE


def test_what_is_late_is_ended_with_all_that_it_started() -> None:
    """A contestant that hangs would hold the run for ever, or go on beside the next section."""
    started = []

    def work() -> None:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        with limited(0.3):  # a part of the section
            started[0].wait()

    with pytest.raises(Late), limited(PATIENCE):
        work()
    assert started[0].wait(PATIENCE)
    assert not psutil.pid_exists(started[0].pid)


def test_what_was_started_before_goes_on() -> None:
    """The Java of this process' session would be gone, and each test after this one that asks it would fail."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        with pytest.raises(Late), limited(0.1):
            time.sleep(30)
        assert process.poll() is None
        process.kill()


def test_the_earlier_of_two_limits_ends_both() -> None:
    """A part with a limit of its own would take its section's limit away."""

    def is_ended(limit: float) -> bool:
        ended = []
        try:
            with limited(limit):
                with limited(PATIENCE):
                    pass
                with pytest.raises(Late), limited(0.1):
                    time.sleep(20 * limit)
                ended.append("the part")
                time.sleep(20 * limit)
        except Late:
            ended.append("the section")
        return ended == ["the part", "the section"]

    assert any(map(is_ended, (0.4, 4.0))), "on a busy machine both limits may be over at once"


def test_a_limit_that_was_kept_ends_nothing_later() -> None:
    """The next section would be ended by the last one's limit."""
    with limited(2):
        pass
    assert (0, 0) == signal.getitimer(signal.ITIMER_REAL)


def test_neither_an_error_nor_slowness_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One section would cost all that come after it."""

    def broken() -> Section:
        raise KeyError("no such column")

    def slow() -> Section:
        time.sleep(60)
        return "never", 0

    made = {"ticks": broken, "many": slow, "late": lambda: ("## Late rows\n\nequal", 0)}
    monkeypatch.setattr(all_variants, "sections", lambda *_: made)
    monkeypatch.setattr(all_variants, "LIMITS", {"ticks": PATIENCE, "many": 0.3 / 60, "late": PATIENCE})
    done = list(variants(tmp_path, tuple(made), QUICK, (), patience=1))
    assert ["ticks", "many", "late"] == [each.name for each in done]
    assert [1, 1] == [each.wrong for each in done[:2]]
    assert "KeyError: 'no such column'" in done[0].text
    assert "Not done within" in done[1].text
    assert "## Late rows" in done[2].text
    assert 2 == len(capsys.readouterr().err.splitlines())


def test_no_section_begins_when_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour would become four again."""
    made = {"ticks": lambda: (time.sleep(PATIENCE) or "## Ticks", 0), "late": lambda: ("## Late", 0)}
    moments = chain([0, 0], repeat(1))  # the first section takes a second
    monkeypatch.setattr(all_variants, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    monkeypatch.setattr(all_variants, "sections", lambda *_: made)
    monkeypatch.setattr(all_variants, "LIMITS", dict.fromkeys(made, 10**6))
    done = list(variants(tmp_path, tuple(made), QUICK, (), patience=0.1 / 60 / QUICK.minutes))
    assert "Not done within 0 minutes." in done[0].text
    assert "Left out: the run's time is over." in done[1].text
    assert [1, 1] == [each.wrong for each in done]  # the run has not measured all that it was asked for
