"""The variants of what a lake is given: its promises one by one, one core or two, one executor or two."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.contest.ground import LOOP, Ground, Steps
from benchmarks.contest.measure import Step
from benchmarks.contest.sections import Section, branched, faults_of, rows_of, run

ALL_STAGES = ["bronze", "silver", "gold", "quality"]
PROMISES: dict[str, dict[str, Any]] = {  # what is given up -> options of its pass
    "nothing": {"stages": ALL_STAGES},
    "the comparison of cells (`cells_checked: 0`)": {
        "stages": ALL_STAGES, "more": "quality: [{table: '*', cells_checked: 0}]\n"
    },
    "all checks (stages bronze, silver, gold)": {"stages": ALL_STAGES[:3]},
}  # fmt: skip
EXECUTOR = "master: 'local-cluster[{},1,1536]'\n"


def promises(ground: Ground, count: int) -> Section:
    """What a warm batch costs without some of what it promises: each on a copy of the same lake, in one session."""
    branch = branched(ground)
    batches = [ground.batch(f"promise-{n}", branch.batch(count)) for n in range(3)]
    ground.expect("promises", branch)
    steps = [(f"batch {n}", [file]) for n, file in enumerate(batches)]
    order = [*PROMISES, *PROMISES]  # in turn, twice: the first one of the session is its cold one
    passes = [(steps, "promises") for _ in order]
    taken = run(ground, LOOP, "product promises", passes, options=[PROMISES[name] for name in order])
    verdicts = ground.verdicts()
    each: dict[str, list[Step]] = {name: [] for name in PROMISES}
    for number, name in enumerate(order):
        each[name] += taken[number * 3 + 1 : number * 3 + 3]  # the first batch of a lake is looked at whole
    whole = statistics.median(step.cpu for step in each["nothing"])
    lines = [
        "| given up | s | CPU-s | saved | microseconds of a core a message | stages, s |",
        "|---|---|---|---|---|---|",
    ]
    for name, batch_steps in each.items():
        wall = statistics.median(step.wall for step in batch_steps)
        cpu = statistics.median(step.cpu for step in batch_steps)
        stages = {
            stage: statistics.median(step.result["stages"].get(stage, 0) for step in batch_steps)
            for stage in (batch_steps[0].result or {"stages": {}})["stages"]
        }
        listed = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items())
        lines.append(
            f"| {name} | {wall:.1f} | {cpu:.1f} | {1 - cpu / whole:.1%} | {(whole - cpu) / count * 1e6:.1f} | {listed} |"
        )
    title = f"## The cost of each promise, {count:,} messages into 3 tables of {rows_of(ground)} rows"
    about = "Medians of four batches in two turns of one session, after the batch in which quality looks at all rows."
    text = "\n\n".join([title, about, "\n".join(lines), f"Result: {verdicts['product promises']}."])
    return text, faults_of(verdicts, "promises")


def cores(ground: Ground, count: int, factor: int) -> Section:
    """A usual batch and a large one with one core and with two; the usual one with one executor of one core and with two."""
    branch = branched(ground)
    usual = [ground.batch(f"cores-{n}", branch.batch(count)) for n in range(2)]
    ground.expect("usual", branch)
    large = ground.stream("cores-large", branch.stream(factor * count))
    ground.expect("large", branch)
    steps = [("cold", [usual[0]]), ("usual", [usual[1]])]
    lines = ["| given | messages | s | CPU-s | speed-up |", "|---|---|---|---|---|"]
    plans: list[tuple[str, dict[str, Any], Steps, str]] = [
        ("one core", {"cores": 1}, [*steps, ("large", large)], "large"),
        ("two cores", {"cores": 2}, [*steps, ("large", large)], "large"),
        ("one executor of one core", {"more": EXECUTOR.format(1)}, steps, "usual"),
        ("two executors of one core", {"more": EXECUTOR.format(2)}, steps, "usual"),
    ]
    before: list[float] = []
    for name, options, parts, moment in plans:
        taken = run(ground, LOOP, f"product {name}", [(parts, moment)], options=[options])[1:]
        for n, (step, messages) in enumerate(zip(taken, (count, factor * count), strict=False)):
            gain = f"{before[n] / step.wall:.2f}" if name.startswith("two") else ""
            lines.append(f"| {name} | {messages:,} | {step.wall:.1f} | {step.cpu:.1f} | {gain} |")
        before = [step.wall for step in taken]
    verdicts = ground.verdicts()
    ground.forget([*usual, *large])
    results = "; ".join(f"{label}: {verdict}" for label, verdict in verdicts.items())
    title = f"## One core against two, 3 tables of {rows_of(ground)} rows"
    about = (
        "Cores by the processes' affinity. Executors are processes of their own (`local-cluster`) next to the driver, which "
        "shares the machine's cores with them; their processor time is counted."
    )
    return "\n\n".join([title, about, "\n".join(lines), f"{results}."]), faults_of(verdicts, "product")
