"""What the variants of the contest share: a contestant's run that may fail, and the words for what it took."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest.form import FULL, Form
from benchmarks.contest.ground import ALL, AUTO_LOOP, LOOP, PRODUCT, Contestant, Ground, Steps, Verdict
from benchmarks.contest.measure import Between, Failed, Step, nothing, say
from benchmarks.contest.workload import Workload

SEED = 20_240_502
Section = tuple[str, int]
"""A section of text, and how many results of the product in it were wrong."""
Chosen = Sequence[Contestant]


def crowded(folder: Path, form: Form, room: int) -> str:
    """Why a variant that wants so many GB of disk in the full form is left out; nothing if its folder's disk has them."""
    free = shutil.disk_usage(folder).free / 10**9
    wanted = room * max(form.rows / FULL.rows, form.messages / FULL.messages)
    return "" if free >= wanted else f"{free:.0f} GB of the disk are free, {wanted:.0f} are wanted"


def ratio(usual: str, plain: Step, other: str, hard: Step) -> str:
    """What a harder batch costs compared with a usual one of the same size."""
    costs = [
        f"{name} {step.cpu:.1f} CPU-s, {step.wall:.1f} s" for name, step in ((usual, plain), (other, hard))
    ]
    return f"{'; '.join(costs)}; ratio {hard.cpu / plain.cpu:.2f} in CPU-s"


def stages(steps: Iterable[Step]) -> str:
    """A line for each step of the product: its stages, as its result lists them."""
    taken_by = [(step.name, (step.result or {}).get("stages", {})) for step in steps]
    return "\n".join(
        f"- {name}: " + ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in taken.items())
        for name, taken in taken_by
    )


def of(chosen: Chosen, *some: Contestant) -> tuple[Contestant, ...]:
    """The product, and of the contestants that a variant is for those that take part."""
    return tuple(one for one in some or ALL if one in (PRODUCT, LOOP, AUTO_LOOP) or one in chosen)


def branched(ground: Ground) -> Workload:
    """A copy of the workload after the base load, for a variant of its own."""
    assert isinstance(ground.workload, Workload)
    return copy.deepcopy(ground.workload)


def run(
    ground: Ground,
    one: Contestant,
    label: str,
    passes: list[tuple[Steps, str]],
    between: Between = nothing,
    options: list[dict[str, Any]] | None = None,
) -> list[Step]:
    """A contestant's steps; one that fails has steps that took no time, and its verdict says so."""
    say(f"{ground.folder.name}: {label}")
    try:
        return ground.run(one, label, passes, between, options)
    except Failed as error:
        say(str(error))
        nan = float("nan")
        return [Step(name, nan, nan, nan) for steps, _ in passes for name, _ in steps]


def faults_of(verdicts: dict[str, Verdict], word: str) -> int:
    """How many of the product's results under labels with a word in them are not right."""
    ours = [verdict for label, verdict in verdicts.items() if label.startswith("product") and word in label]
    return sum(bool(verdict.error or verdict.wrong) for verdict in ours)


def rows_of(ground: Ground) -> str:
    """The rows of each table after the base load."""
    assert isinstance(ground.workload, Workload)
    return f"{ground.workload.rows:,}"
