"""The variants of the full form, by name, and the base load that some of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmarks.contest import batches, degrade, scale, semantics
from benchmarks.contest.form import Form
from benchmarks.contest.ground import PRODUCT, RECIPE, TUNED, Ground
from benchmarks.contest.measure import say
from benchmarks.contest.sections import SEED, Chosen, Section, crowded, of
from benchmarks.contest.workload import Workload

# The last ones are left out where the disk is too full for them.
LARGE = ("tenfold", "fiftyfold", "thousand", "large", "degrade")
NAMES = ("apart", "ticks", "row", "late", "skewed", "starts", "many", "bare", "cells", "semantics", *LARGE)


def variants(folder: Path, wanted: Sequence[str], form: Form, chosen: Chosen) -> Iterator[Section]:
    """Those of `NAMES` that are wanted, by some contestants, over one base load where they can share it."""
    known = sections(folder, form, chosen)
    for name in NAMES:
        if name in wanted:
            yield left_out(name, folder, form) or known[name]()


def left_out(name: str, folder: Path, form: Form) -> Section | None:
    """The section of a variant that is left out because the disk lacks space; None if it fits."""
    if name not in LARGE or not (why := crowded(folder, form)):
        return None
    say(f"{name} is left out: {why}")
    return f"## {name.capitalize()}\n\nLeft out: {why}.", 0


def sections(folder: Path, form: Form, chosen: Chosen) -> dict[str, Callable[[], Section]]:
    """By name, what makes a variant's section; nothing is done before it is called."""

    @cache
    def shared() -> Ground:
        ground = Ground(folder / "variants", Workload(SEED, 3, form.rows))
        ground.prepare(of(chosen, PRODUCT, RECIPE, TUNED))
        return ground

    return {
        "apart": lambda: batches.apart(shared(), form.messages),
        "ticks": lambda: batches.ticks(shared(), chosen),
        "row": lambda: batches.in_a_row(shared(), form.messages, chosen),
        "late": lambda: batches.late(shared(), form.messages, chosen),
        "skewed": lambda: batches.skewed(shared(), form.messages),
        "starts": lambda: (batches.starts(shared()), 0),
        "many": lambda: batches.many(folder / "many", form.rows // 50, chosen),
        "bare": lambda: batches.bare(folder, form.rows // 5, form.messages // 5, chosen),
        "cells": lambda: batches.battery(folder / "cells"),
        "semantics": lambda: semantics.section(folder / "semantics"),
        "tenfold": lambda: scale.manifold(shared(), "tenfold", form.messages, 10),
        "fiftyfold": lambda: scale.manifold(shared(), "fiftyfold", form.messages, 50),
        "thousand": lambda: scale.thousand(folder / "thousand", form.tables),
        "large": lambda: scale.large(folder / "large", form.rows, form.messages),
        "degrade": lambda: degrade.degrade(shared(), form.messages // 5),
    }
