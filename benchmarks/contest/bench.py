"""The contest: one batch into three tables, by the product and by what people would write today.

    python -m benchmarks            # the quick form: smaller, one round, printed
    python -m benchmarks --full     # the full form: three rounds in turn, all variants, some four hours; results.md
    python -m benchmarks --variants tenfold --rows 2000 --messages 2000    # one variant, as small as you like

Each contestant runs in a process of its own, on copies of the same tables: first cold (from the start of its process to
its last commit), then warm (the same batch again, on another copy).  The product has two processes: cold is `ingest run`,
warm is the second batch of `ingest run --every`.  No figure is printed before all results have been compared with what
the tables must hold.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.contest.form import FULL, QUICK, Form
from benchmarks.contest.ground import ALL, PRODUCT, Contestant, Ground, Verdict, every
from benchmarks.contest.measure import Failed, Step, say
from benchmarks.contest.sections import Section
from benchmarks.contest.variants import NAMES, variants
from benchmarks.contest.workload import Workload

RESULTS = Path(__file__).parents[1] / "results.md"
SEED = 20_240_501
SIZES = {
    "rows": "rows of each table",
    "messages": "messages of a batch",
    "tables": "tables of the variant `thousand`",
}


def main() -> int:
    """Run one form; 1 if the product was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="three rounds and all variants; writes results.md"
    )
    parser.add_argument(
        "--variants", nargs="*", choices=NAMES, help="these variants instead of the main workload"
    )
    parser.add_argument("--main-only", action="store_true", help="the main workload without variants")
    parser.add_argument("--rounds", type=int, help="rounds of the main workload")
    for size, what in SIZES.items():
        parser.add_argument(f"--{size}", type=int, metavar="N", help=f"{what}, instead of the form's own")
    parser.add_argument("--write", action="store_true", help="write results.md in the quick form, too")
    parser.add_argument("--work", type=Path, help="a new folder to work in, which is kept")
    parser.add_argument("--only", nargs="*", default=[], help="only contestants whose name begins so")
    options = parser.parse_args()
    form = sized(FULL if options.full else QUICK, {size: getattr(options, size) for size in SIZES})
    form = replace(form, rounds=options.rounds or form.rounds)
    main_too = options.variants is None
    wanted = options.variants or (NAMES if options.full and main_too and not options.main_only else ())
    write = options.write or (form.name == FULL.name and wanted == NAMES and not options.only)
    with ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        return run(form, folder, options.only, wanted, main_too=main_too, write=write)


def sized(form: Form, sizes: dict[str, int | None]) -> Form:
    """A form with other sizes, and a name that says so."""
    own = {size: number for size, number in sizes.items() if number}
    suffix = "".join(f", {number:,} {size}" for size, number in own.items())
    return replace(form, name=f"{form.name}{suffix}", **own)


def run(
    form: Form, folder: Path, only: list[str], wanted: Sequence[str], *, main_too: bool, write: bool
) -> int:
    """All rounds, then the verdicts, then the figures; each part is printed when it is there."""
    started = time.monotonic()
    parts, wrong = [], 0
    chosen = tuple(one for one in ALL if not only or one is PRODUCT or one.name.startswith(tuple(only)))
    for text, faults in sections(form, folder, chosen, wanted, main_too=main_too):
        print(f"{text}\n", flush=True)
        parts.append(text)
        wrong += faults
        if write:  # an error in the third hour leaves what is there
            RESULTS.write_text("\n\n".join(["# Measured", *parts]) + "\n", "utf-8")
    print(f"All of it took {(time.monotonic() - started) / 60:.0f} minutes.")
    return 1 if wrong else 0


def sections(
    form: Form, folder: Path, chosen: tuple[Contestant, ...], wanted: Sequence[str], *, main_too: bool
) -> Iterator[Section]:
    """The machine, the main workload if it is wanted, and the variants that are."""
    folder.mkdir(parents=True, exist_ok=True)
    yield machine(form), 0
    if main_too:
        yield headline(form, folder / "cdcy", chosen)
    yield from variants(folder, wanted, form, chosen)


def machine(form: Form) -> str:
    """What the figures were measured on, when, and how much they say."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    text = (
        f"{form.name.capitalize()}, {form.rounds} round{'s' * (form.rounds > 1)}, "
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores of "
        f"{platform.machine()}, {memory:.0f} GiB, Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()}; load before {load}."
    )
    if form.name.startswith(QUICK.name):
        text += (
            "\nThis is the quick form: smaller tables, one round. `make bench-full` has the figures to quote."
        )
    return text


# --- the headline ---


def headline(form: Form, folder: Path, chosen: tuple[Contestant, ...]) -> Section:
    """The table of the main workload, and how many of the product's results were wrong."""
    workload = Workload(SEED, 3, form.rows)
    ground = Ground(folder, workload)
    say(f"base load: 3 tables of {form.rows:,} rows")
    base = ground.prepare(chosen)
    lines = workload.batch(form.messages)
    file = ground.batch("batch-1", lines)
    ground.expect("after", workload)
    size = sum(map(len, lines)) // len(lines)
    rounds: dict[str, list[list[Step]]] = {one.name: [] for one in chosen}
    for number in range(form.rounds):
        for one in chosen:
            say(f"round {number + 1} of {form.rounds}: {one.name}")
            label = f"{one.name} {number + 1}"
            passes = [([("cold", [file])], "after"), ([("warm", [file])], "after")]
            try:
                if one.module == PRODUCT.module:  # a single run and `--every` are two ways to start it
                    cold = ground.run(one, label, passes[:1])
                    steps = [*cold, *ground.run(every(one), f"{label} every", passes)[1:]]
                else:
                    steps = ground.run(one, label, passes)
                rounds[one.name].append(steps)
            except Failed as error:
                say(str(error))
    say("comparing")
    verdicts = ground.verdicts()
    wrong = sum(
        verdict.error != "" or bool(verdict.wrong)
        for label, verdict in verdicts.items()
        if label.startswith("product")
    )
    heading = (
        f"## {form.messages:,} messages into 3 tables of {form.rows:,} rows\n\n"
        f"{size} bytes a message, 25 % inserts, 65 % updates ({workload.reborn:,} of them met a deleted row and are "
        f"inserts), 10 % deletes, keys zipfian 0.99.\n"
        f"Base load by the product: {base.wall:.1f} s, {base.cpu:.1f} CPU-s, {base.peak:.2f} GiB.\n\n"
    )
    ours = [one.name for one in chosen if one.module == PRODUCT.module and rounds[one.name]]
    return heading + table(rounds, verdicts) + "".join(stages(name, rounds[name]) for name in ours), wrong


def table(rounds: dict[str, list[list[Step]]], verdicts: dict[str, Verdict]) -> str:
    """One line for each contestant: medians over the rounds, and the ratio of each to the product."""
    head = "| contestant | cold s | CPU-s | warm s | CPU-s | peak GiB | warm wall / product's | CPU / product's | result |\n"
    lines = [head + "|---|---|---|---|---|---|---|---|---|"]
    ours = rounds[PRODUCT.name]
    for name, found in rounds.items():
        if not found:
            lines.append(f"| {name} | | | | | | | | failed |")
            continue
        cold, warm = middle(found, 0), middle(found, 1)
        wall, cpu = warm[0] / middle(ours, 1)[0], warm[1] / middle(ours, 1)[1]
        results = {str(verdict) for label, verdict in verdicts.items() if label.startswith(f"{name} ")}
        peak = max(step.peak for steps in found for step in steps)
        lines.append(
            f"| {name} | {cold[0]:.1f} | {cold[1]:.1f} | {warm[0]:.1f} | {warm[1]:.1f} | {peak:.2f} | "
            f"{wall:.2f} | {cpu:.2f} | {'; '.join(sorted(results))} |"
        )
    return "\n".join(lines)


def middle(rounds: list[list[Step]], place: int) -> tuple[float, float]:
    """Median wall and processor seconds of one step."""
    steps = [steps[place] for steps in rounds]
    return statistics.median(step.wall for step in steps), statistics.median(step.cpu for step in steps)


def stages(name: str, rounds: list[list[Step]]) -> str:
    """A product's stages of the last round, from its own result."""
    texts = []
    for step in rounds[-1]:
        stage_times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in step.result["stages"].items())
        folds = ", ".join(f"{seconds:.1f}" for seconds in step.result["mirrors"].values())
        texts.append(f"- {name}, {step.name}: {stage_times}; each mirror {folds} s")
    return "\n\n" + "\n".join(texts)


if __name__ == "__main__":
    sys.exit(main())
