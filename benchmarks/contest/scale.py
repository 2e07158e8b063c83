"""The variants of size: batches of ten and fifty times the usual, a thousand tables in one batch, a large mirror.

In the session and with the memory of ``ingest run --every``: but for a million messages the question is not who is faster but
whether a message costs the same and the memory stays where it was.  What is read is generated as it is written, and
deleted before the next variant's is.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.contest import readers
from benchmarks.contest.ground import AUTO_LOOP, LOOP, PRODUCT, RECIPE, Ground, Verdict
from benchmarks.contest.measure import Step, say
from benchmarks.contest.sections import (
    SEED,
    Chosen,
    Section,
    branched,
    faults_of,
    of,
    rows_of,
    run,
    stages,
)
from benchmarks.contest.workload import COLUMNS, DATABASE, Workload

EACH = 20  # messages for each table, where there are so many
FEW = 10  # tables that the last batch touches there
LARGER = 20  # times the usual rows
SMALL, OFTEN = 1_000, 5  # messages of a small batch into a large mirror, and how many such batches


def million(ground: Ground, usual: int, count: int, chosen: Chosen) -> Section:
    """A batch of five times the usual size, by the product under both engines and by the recipe."""
    branch = branched(ground)
    first = ground.batch("million-first", branch.batch(usual))
    large = ground.stream("million", branch.stream(count))
    ground.expect("million", branch)
    steps = [("cold", [first]), ("million", large)]
    lines = [
        "| contestant | s | CPU-s | peak GiB | s / product's | CPU-s / product's | result |",
        "|---|---|---|---|---|---|---|",
    ]
    taken = {
        one.name: run(ground, one, f"{one.name} million", [(steps, "million")])[1]
        for one in of(chosen, LOOP, AUTO_LOOP, RECIPE)
    }
    verdicts = ground.verdicts()
    ground.forget([first, *large])
    ours = taken[LOOP.name]
    for name, step in taken.items():
        lines.append(
            f"| {name} | {step.wall:.1f} | {step.cpu:.1f} | {step.peak:.2f} | {step.wall / ours.wall:.2f} | "
            f"{step.cpu / ours.cpu:.2f} | {verdicts[f'{name} million']} |"
        )
    title = f"## {count:,} messages into 3 tables of {rows_of(ground)} rows"
    text = f"{title}\n\nWarm: the second batch of a session, after one of {usual:,}.\n\n" + "\n".join(lines)
    return text, faults_of(verdicts, "million")


def manifold(ground: Ground, name: str, count: int, factor: int) -> Section:
    """A batch of many times the usual size compared with a usual one, both in one warm session."""
    branch = branched(ground)
    usual = [ground.batch(f"{name}-{part}", branch.batch(count)) for part in ("first", "usual")]
    say(f"{name}: writing {factor * count:,} messages")
    large = ground.stream(name, branch.stream(factor * count))
    ground.expect(name, branch)
    steps = [("cold", [usual[0]]), ("usual", [usual[1]]), (name, large)]
    found = run(ground, LOOP, f"product {name}", [(steps, name)])[1:]
    verdicts = ground.verdicts()
    ground.forget([*usual, *large])
    title = f"## {name.capitalize()}: one batch of {factor * count:,} messages, 3 tables of {rows_of(ground)} rows"
    result = f"Result: {verdicts[f'product {name}']}."
    text = "\n\n".join([title, _manifold(found[0], found[1], count, factor), result])
    return text, faults_of(verdicts, name)


def _manifold(usual: Step, large: Step, count: int, factor: int) -> str:
    lines = [
        "| messages | s | CPU-s | messages a second | messages a CPU-second | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for step, messages in ((usual, count), (large, factor * count)):
        lines.append(
            f"| {messages:,} | {step.wall:.1f} | {step.cpu:.1f} | {messages / step.wall:,.0f} | "
            f"{messages / step.cpu:,.0f} | {step.peak:.2f} |"
        )
    wall, cpu = large.wall / usual.wall, large.cpu / usual.cpu
    summary = (
        f"{factor} times the messages take {wall:.1f} times the seconds ({wall / factor:.2f} of linear), {cpu:.1f} times "
        f"the CPU-seconds ({cpu / factor:.2f} of linear) and {large.peak / usual.peak:.2f} times the memory.\n"
        f"Both are batches of one session, after a first one of {count:,}."
    )
    return "\n\n".join(["\n".join(lines), summary, stages((usual, large))])


# --- a thousand tables ---


def thousand(folder: Path, tables: int) -> Section:
    """One batch that brings all tables into an empty lake, one that touches all, one that touches a few; under both engines."""
    workload = Workload(SEED, tables, EACH)
    ground = Ground(folder, workload, {"*": COLUMNS})  # one entry of the pipeline file for all of them
    (folder / "start" / PRODUCT.start).mkdir()
    few = min(FEW, tables)
    batches = {
        "new": (tables, ground.stream("new", workload.births(EACH))),
        "all": (tables, ground.stream("all", workload.stream(EACH * tables))),
        "few": (few, ground.stream("few", workload.stream(EACH * few, few))),
    }
    steps = [(name, files) for name, (_, files) in batches.items()]
    lines = [
        "| contestant | batch | messages | tables touched | s | CPU-s | s a table | CPU-s a table | peak GiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    expected, verdicts, texts = workload.expected(), [], []
    for one in (LOOP, AUTO_LOOP):
        taken = run(ground, one, f"{one.name} thousand", [(steps, "")])
        say("thousand: comparing")
        verdicts.append(compared(ground.place(f"{one.name} thousand"), expected))
        shutil.rmtree(ground.place(f"{one.name} thousand"))
        for step, (touched, _) in zip(taken, batches.values(), strict=True):
            lines.append(
                f"| {one.name} | {step.name} | {touched * EACH:,} | {touched:,} | {step.wall:.1f} | {step.cpu:.1f} | "
                f"{step.wall / touched:.3f} | {step.cpu / touched:.3f} | {step.peak:.2f} |"
            )
        texts.append(f"{one.name}:\n\n{stages(taken)}")
    title = f"## {tables:,} tables in one batch, {EACH} messages for each"
    summary = (
        "The first batch finds an empty lake and makes all mirrors; the three are one session, whose start is not counted. "
        f"Every cell of all {tables:,} mirrors, read by delta-rs, under the one engine and the other: {verdicts[0]}, {verdicts[1]}."
    )
    text = "\n\n".join([title, "\n".join(lines), summary, *texts])
    return text, sum(bool(verdict.error or verdict.wrong) for verdict in verdicts)


def compared(place: Path, tables: Mapping[str, pa.Table]) -> Verdict:
    """Every mirror of a pass with what it must hold, without Spark, to which each table is a dozen jobs."""
    verdict = Verdict()
    for name, expected in tables.items():
        try:
            wrong = readers.wrong_rows(place / "lake" / "mirrors" / DATABASE / name, expected)
        except Exception as error:
            verdict.error = verdict.error or f"{name}: {error}"[:300]
        else:
            if wrong:
                verdict.wrong["rows"] = verdict.wrong.get("rows", 0) + wrong
    return verdict


# --- a large mirror ---


@dataclass(frozen=True, slots=True)
class Mirror:
    """What it took to make a mirror and to go on with it."""

    rows: int
    base: Step
    usual: Step
    small: Step  # medians of several
    verdict: Verdict


def large(folder: Path, rows: int, count: int) -> Section:
    """Base load and batches of one mirror of many rows, compared with those of one of the usual size."""
    usual, larger = _mirror(folder / "usual", rows, count), _mirror(folder / "larger", LARGER * rows, count)
    heads = ["rows", "base load s", "CPU-s", "peak GiB", f"{count:,} messages s", "CPU-s", "peak GiB"]
    heads += [f"{SMALL:,} messages s", "CPU-s", "result"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in (usual, larger):
        lines.append(
            f"| {one.rows:,} | {one.base.wall:.1f} | {one.base.cpu:.1f} | {one.base.peak:.2f} | {one.usual.wall:.1f} | "
            f"{one.usual.cpu:.1f} | {one.usual.peak:.2f} | {one.small.wall:.2f} | {one.small.cpu:.2f} | {one.verdict} |"
        )
    pairs = ((usual.base, larger.base), (usual.usual, larger.usual), (usual.small, larger.small))
    ratios = [f"{hard.wall / plain.wall:.2f} and {hard.cpu / plain.cpu:.2f}" for plain, hard in pairs]
    title = f"## One mirror of {larger.rows:,} rows, warm batches"
    summary = (
        f"{LARGER} times the rows, in seconds and CPU-seconds: {ratios[0]} times for the base load (`ingest run`), {ratios[1]} "
        f"for {count:,} messages, {ratios[2]} for {SMALL:,} (median of {OFTEN - 1}) in the session of `--every`."
    )
    text = "\n\n".join([title, "\n".join(lines), summary])
    return text, sum(bool(one.verdict.error or one.verdict.wrong) for one in (usual, larger))


def _mirror(folder: Path, rows: int, count: int) -> Mirror:
    workload = Workload(SEED, 1, rows)
    ground = Ground(folder, workload)
    say(f"large: a base load of {rows:,} rows")
    base = ground.prepare((PRODUCT,))
    ground.forget(map(str, ground.landing.glob("base-*")))
    usual = [ground.batch(f"usual-{n}", workload.batch(count)) for n in range(2)]
    small = [ground.batch(f"small-{n}", workload.batch(SMALL)) for n in range(OFTEN)]
    ground.expect("after", workload)
    steps = [(f"step {n}", [file]) for n, file in enumerate([*usual, *small])]
    found = run(ground, LOOP, "product large", [(steps, "after")])
    verdicts = ground.verdicts()
    ground.forget([*usual, *small])
    settled = found[3:]  # Spark plans the first small batch again, as the first of its kind
    middle = Step(
        "small",
        statistics.median(step.wall for step in settled),
        statistics.median(step.cpu for step in settled),
        max(step.peak for step in settled),
    )
    return Mirror(rows, base, found[1], middle, verdicts["product large"])
