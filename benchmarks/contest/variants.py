"""The sections of the contest, by name: how long each may take, what makes it, and the ground that most of them share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.contest import batches, cores, degrade, headline, others, scale, semantics, shapes
from benchmarks.contest.form import Form
from benchmarks.contest.ground import AUTO_CDC, PRODUCT, Ground
from benchmarks.contest.limits import Late, limited
from benchmarks.contest.measure import Step, say
from benchmarks.contest.sections import SEED, Chosen, Section, crowded, of
from benchmarks.contest.workload import Workload

MAIN = "headline"
# Each with the minutes that it may take in the full form, about twice what it takes; the most valuable ones first.
FULL_FORM = {
    MAIN: 26, "ticks": 6, "million": 7, "fiftyfold": 11, "many": 4, "thousand": 4, "apart": 4, "degrade": 8, "auto_cdc": 10,
    "statements": 7, "wide": 4, "row": 4, "partial": 4, "late": 4, "skewed": 4, "snapshot": 5, "promises": 7, "cores": 7,
    "verbs": 3, "decode": 3, "cells": 5, "memory": 4, "checks": 4, "semantics": 8,
}  # fmt: skip
FURTHER = {"tenfold": 10, "bare": 20, "large": 60}  # only if asked for
LIMITS = FULL_FORM | FURTHER
NAMES = tuple(LIMITS)
LARGE = {
    "tenfold": 6,
    "fiftyfold": 20,
    "thousand": 2,
    "large": 40,
    "degrade": 10,
    "statements": 8,
    "cores": 8,
}
"""GB of disk that a large section wants to find free in the full form; else it is left out."""


@dataclass(frozen=True, slots=True)
class Done:
    """A section as it came out, and its minutes."""

    name: str
    text: str
    wrong: int  # results of the product that were, or 1 if it failed or its time was over
    minutes: float


def variants(
    folder: Path, wanted: Sequence[str], form: Form, chosen: Chosen, patience: float = 1
) -> Iterator[Done]:
    """Those that are wanted, in their order; none of them can end the run, neither by an error nor by its slowness."""
    began = time.monotonic()
    makers = sections(folder, form, chosen)
    for name in NAMES:
        if name in wanted:
            section_began = time.monotonic()
            seconds_left = 60 * form.minutes * patience - (section_began - began)
            text, wrong = left_out(name, folder, form, seconds_left) or _bounded(
                name, makers[name], min(seconds_left, 60 * LIMITS[name] * patience)
            )
            yield Done(name, text, wrong, (time.monotonic() - section_began) / 60)


def _bounded(name: str, make: Callable[[], Section], seconds: float) -> Section:
    try:
        with limited(seconds):
            return make()
    except Late:
        why = f"Not done within {seconds / 60:.0f} minutes."
    except Exception as error:
        why = f"Failed: {type(error).__name__}: {str(error)[-1500:]}"
    say(f"{name}: {why}")
    return f"## {name.capitalize()}\n\n{why}", 1


def left_out(name: str, folder: Path, form: Form, seconds_left: float) -> Section | None:
    """The section of a variant that is left out because the disk lacks space, or the run's time is over, which counts as wrong.

    None if it fits.
    """
    is_over = seconds_left <= 0
    why = "the run's time is over" if is_over else ""
    if name in LARGE:
        why = why or crowded(folder, form, LARGE[name])
    if not why:
        return None
    say(f"{name} is left out: {why}")
    return f"## {name.capitalize()}\n\nLeft out: {why}.", int(is_over)


def sections(folder: Path, form: Form, chosen: Chosen) -> dict[str, Callable[[], Section]]:
    """By name, what makes a section; nothing is done before it is called."""
    loaded: list[tuple[Ground, Step]] = []
    tries = count(1)

    def base() -> tuple[Ground, Step]:
        if not loaded:
            say(f"base load: 3 tables of {form.rows:,} rows")
            ground = Ground(folder / f"shared-{next(tries)}", Workload(SEED, 3, form.rows))
            loaded.append((ground, ground.prepare(of(chosen))))
        loaded[0][0].clear()
        return loaded[0]

    def shared() -> Ground:
        return base()[0]

    return {
        MAIN: lambda: headline.section(*base(), form, [one for one in chosen if one is not AUTO_CDC]),
        "ticks": lambda: batches.ticks(shared(), chosen),
        "million": lambda: scale.million(shared(), form.messages, 5 * form.messages, chosen),
        "fiftyfold": lambda: scale.manifold(shared(), "fiftyfold", form.messages, 50),
        "many": lambda: batches.many(folder / "many", form.rows // 50),
        "thousand": lambda: scale.thousand(folder / "thousand", form.tables),
        "apart": lambda: batches.apart(shared(), form.messages),
        "degrade": lambda: degrade.degrade(shared(), form.messages // 5),
        "auto_cdc": lambda: headline.auto_cdc(shared(), form, of(chosen, PRODUCT, AUTO_CDC)),
        "statements": lambda: shapes.statements(folder / "statements", 10 * form.rows),
        "wide": lambda: shapes.wide(folder / "wide"),
        "row": lambda: batches.in_a_row(shared(), form.messages),
        "partial": lambda: batches.partial(shared(), form.messages),
        "late": lambda: batches.late(shared(), form.messages),
        "skewed": lambda: batches.skewed(shared(), form.messages),
        "promises": lambda: cores.promises(shared(), form.messages),
        "cores": lambda: cores.cores(shared(), form.messages, 10),
        "cells": lambda: batches.battery(folder / "cells", chosen),
        "semantics": lambda: semantics.section(folder / "semantics"),
        "tenfold": lambda: scale.manifold(shared(), "tenfold", form.messages, 10),
        "bare": lambda: batches.bare(folder, form.rows // 5, form.messages // 5, chosen),
        "large": lambda: scale.large(folder / "large", form.rows, form.messages),
        **{name: lambda name=name: others.command(name, form.rows) for name in others.COMMANDS},  # type: ignore[misc]
    }
