"""The main workload: one batch into three tables, by every contestant, cold and warm, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.contest.form import Form
from benchmarks.contest.ground import AUTO, PRODUCT, RECIPE, Contestant, Ground, Verdict, every
from benchmarks.contest.measure import Failed, Step, say
from benchmarks.contest.sections import Section, branched, faults_of, rows_of
from benchmarks.contest.workload import Workload

Rounds = dict[str, dict[int, list[Step]]]
"""A contestant's cold and warm step by the number of the round; one that failed is not there."""


def section(ground: Ground, base: Step, form: Form, chosen: Sequence[Contestant]) -> Section:
    """The table of the main workload, and how many of the product's results were wrong."""
    branch, file, size = batch(ground, "batch", form.messages)
    rounds = raced(ground, chosen, form.rounds, file, "batch")
    say("comparing")
    verdicts = ground.verdicts()
    heading = (
        f"## {form.messages:,} messages into 3 tables of {form.rows:,} rows\n\n"
        f"{size} bytes a message, 25 % inserts, 65 % updates ({branch.reborn:,} of them met a deleted row and are "
        f"inserts), 10 % deletes, keys zipfian 0.99.\n"
        f"Base load by the product: {base.wall:.1f} s, {base.cpu:.1f} CPU-s, {base.peak:.2f} GiB.\n\n"
    )
    ours = [one.name for one in chosen if one.module == PRODUCT.module and rounds[one.name]]
    text = heading + table(rounds, verdicts) + "".join(stages(name, rounds[name]) for name in ours)
    return text, faults_of(verdicts, "product")


def auto_cdc(ground: Ground, form: Form, chosen: Sequence[Contestant]) -> Section:
    """The same for Spark's AUTO CDC and the product, once, for its base load alone takes minutes."""
    _, file, _ = batch(ground, "auto_cdc", form.messages)
    say("auto_cdc: base load")
    ground.prepare_auto_cdc()
    rounds = raced(ground, chosen, 1, file, "auto_cdc")
    verdicts = ground.verdicts()
    title = f"## Spark's AUTO CDC: {form.messages:,} messages into 3 tables of {rows_of(ground)} rows"
    about = (
        "It refuses Delta 4.4 as shipped: its one check on the target is replaced on the driver's class path, an experiment that is "
        "offered to no user. It keeps neither messages nor changes."
    )
    return f"{title}\n\n{about}\n\n{table(rounds, verdicts)}", faults_of(verdicts, "product")


def batch(ground: Ground, name: str, count: int) -> tuple[Workload, str, int]:
    """A batch of the workload: the tables after it are expected under its name; its file and a message's bytes."""
    branch = branched(ground)
    lines = branch.batch(count)
    ground.expect(name, branch)
    return branch, ground.batch(name, lines), sum(map(len, lines)) // len(lines)


def repeated(rounds: int, one: Contestant) -> int:
    """How often a contestant runs: what is compared most closely in each round, the recipe once less, the others once."""
    return {PRODUCT.name: rounds, AUTO.name: rounds, RECIPE.name: max(1, rounds - 1)}.get(one.name, 1)


def raced(ground: Ground, chosen: Sequence[Contestant], often: int, file: str, moment: str) -> Rounds:
    """All contestants in turn, round after round: each cold, then warm on another copy of the tables."""
    rounds: Rounds = {one.name: {} for one in chosen}
    passes = [([("cold", [file])], moment), ([("warm", [file])], moment)]
    for number in range(often):
        for one in chosen:
            if number >= repeated(often, one):
                continue
            say(f"round {number + 1} of {often}: {one.name}")
            label = f"{one.name} {number + 1}"
            try:
                if one.module == PRODUCT.module:  # a single run and `--every` are two ways to start it
                    cold = ground.run(one, label, passes[:1])
                    steps = [*cold, *ground.run(every(one), f"{label} every", passes)[1:]]
                else:
                    steps = ground.run(one, label, passes)
                rounds[one.name][number] = steps
            except Failed as error:
                say(str(error))
    return rounds


def table(rounds: Rounds, verdicts: dict[str, Verdict]) -> str:
    """One line for each contestant: medians over the rounds, and the ratios of each to the product in the same round."""
    head = "| contestant | rounds | cold s | CPU-s | warm s | CPU-s | peak GiB | warm wall / product's | CPU / product's | result |\n"
    lines = [head + "|---|---|---|---|---|---|---|---|---|---|"]
    ours = rounds[PRODUCT.name]
    for name, taken in rounds.items():
        if not taken:
            lines.append(f"| {name} | 0 | | | | | | | | failed |")
            continue
        cold, warm = middle(taken.values(), 0), middle(taken.values(), 1)
        results = {str(verdict) for label, verdict in verdicts.items() if _is_of(label, name)}
        peak = max(step.peak for steps in taken.values() for step in steps)
        lines.append(
            f"| {name} | {len(taken)} | {cold[0]:.1f} | {cold[1]:.1f} | {warm[0]:.1f} | {warm[1]:.1f} | {peak:.2f} | "
            f"{ratios(taken, ours, lambda step: step.wall)} | {ratios(taken, ours, lambda step: step.cpu)} | "
            f"{'; '.join(sorted(results))} |"
        )
    return "\n".join(lines)


def _is_of(label: str, name: str) -> bool:
    """True of a contestant's rounds, and not of those of one whose name begins with its name."""
    return label.removesuffix(" every").rpartition(" ")[0] == name


def ratios(
    taken: Mapping[int, list[Step]], ours: Mapping[int, list[Step]], cost: Callable[[Step], float]
) -> str:
    """The median of the warm ratios of the rounds that both were in, with the least and the greatest of several."""
    each = sorted(cost(taken[number][1]) / cost(ours[number][1]) for number in taken.keys() & ours)
    if not each:
        return ""
    spread = f" ({each[0]:.2f} to {each[-1]:.2f})" if len(each) > 1 and taken is not ours else ""
    return f"{statistics.median(each):.2f}{spread}"


def middle(rounds: Iterable[list[Step]], place: int) -> tuple[float, float]:
    """Median wall and processor seconds of one step."""
    steps = [steps[place] for steps in rounds]
    return statistics.median(step.wall for step in steps), statistics.median(step.cpu for step in steps)


def stages(name: str, rounds: Mapping[int, list[Step]]) -> str:
    """A product's stages of the last round, from its own result."""
    texts = []
    for step in rounds[max(rounds)]:
        stage_times = ", ".join(
            f"{stage} {seconds:.1f} s" for stage, seconds in step.result["stages"].items()
        )
        folds = ", ".join(f"{seconds:.1f}" for seconds in step.result["mirrors"].values())
        texts.append(f"- {name}, {step.name}: {stage_times}; each mirror {folds} s")
    return "\n\n" + "\n".join(texts)
