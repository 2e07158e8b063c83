"""The variants of one ordinary batch: stage by stage, in ticks, in a row, late, skewed, of many tables, of bare numbers.

Each is a function from a ground or a folder to a section of text and the number of wrong results of the product in it.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path

from benchmarks.contest import cells
from benchmarks.contest.ground import AUTO, LOOP, PRODUCT, RECIPE, TUNED, Ground, every
from benchmarks.contest.measure import ROOT, Step
from benchmarks.contest.sections import SEED, Chosen, Section, branched, faults_of, of, ratio, rows_of, run
from benchmarks.contest.workload import Workload

LATE = 0.01
PARTITIONS = 8


def apart(ground: Ground, count: int) -> Section:
    """What each stage costs, and what it leaves on disk."""
    branch = branched(ground)
    file = ground.batch("apart", branch.batch(count))
    ground.expect("apart", branch)
    lines = [
        "| stage | s | CPU-s | messages a second | messages a CPU-second | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for step in ground.run_apart(file, "apart", ("bronze", "silver", "gold", "quality")):
        lines.append(
            f"| {step.name} | {step.wall:.1f} | {step.cpu:.1f} | {count / step.wall:,.0f} | {count / step.cpu:,.0f} | "
            f"{step.peak:.2f} |"
        )
    lines += ["", "| table | files | bytes | bytes a message | commits |", "|---|---|---|---|---|"]
    lines += _grown(ground.folder / "start" / "lake", ground.folder / "passes" / "apart 1", count)
    verdicts = ground.verdicts()
    title = f"## Stage by stage, {count:,} messages, warm"
    return f"{title}\n\n" + "\n".join(lines), faults_of(verdicts, "apart")


def _grown(before: Path, after: Path, count: int) -> list[str]:
    """A line for each table of a lake: what a batch has added to it."""
    lines = []
    for log in sorted(after.glob("lake/**/_delta_log")):
        name = log.parent.relative_to(after)
        new = _data(after / name) - _data(before / name)
        size = sum((after / name / file).stat().st_size for file in new)
        commits = len(list(log.glob("*.json"))) - len(list((before / name / "_delta_log").glob("*.json")))
        title = str(name).removeprefix("lake/")
        lines.append(f"| {title} | {len(new)} | {size:,} | {size / count:.1f} | {commits} |")
    return lines


def _data(table: Path) -> set[Path]:
    files = (file for kind in ("parquet", "bin") for file in table.glob(f"**/*.{kind}"))
    return {file.relative_to(table) for file in files if "_delta_log" not in file.parts}


def ticks(ground: Ground, chosen: Chosen, count: int = 1_000, often: int = 6) -> Section:
    """Small batches into large tables: the first from a cold start, the others in the same session."""
    branch = branched(ground)
    files = [ground.batch(f"tick-{n}", branch.batch(count)) for n in range(often)]
    ground.expect("ticked", branch)
    lines = [
        "| contestant | cold s | CPU-s | warm s | CPU-s | peak GiB | result |",
        "|---|---|---|---|---|---|---|",
    ]
    steps = [("cold" if n == 0 else f"tick {n}", [file]) for n, file in enumerate(files)]
    found = {
        one.name: run(ground, one, f"{one.name} ticks", [(steps, "ticked")])
        for one in of(chosen, PRODUCT, RECIPE, TUNED)
    }
    for product in of(chosen, PRODUCT, AUTO):
        name = f"{product.name} --every"
        found[name] = run(ground, every(product), f"{name} ticks", [(steps, "ticked")])
    verdicts = ground.verdicts()
    for name, steps_run in found.items():
        cold, warm = steps_run[0], steps_run[2:]  # the first warm one still compiles
        lines.append(
            f"| {name} | {cold.wall:.1f} | {cold.cpu:.1f} | {statistics.median(s.wall for s in warm):.2f} | "
            f"{statistics.median(s.cpu for s in warm):.2f} | {max(s.peak for s in steps_run):.2f} | "
            f"{verdicts[f'{name} ticks']} |"
        )
    title = f"## {count:,} messages into 3 tables of {rows_of(ground)} rows"
    text = (
        f"{title}\n\nWarm is the median of {often - 2} ticks. Row `product` is the session of `ingest run`: read its cold "
        "figures. Row `product --every` is that of `--every`: read its warm ones.\n\n"
    )
    return text + "\n".join(lines), faults_of(verdicts, "ticks")


def in_a_row(ground: Ground, count: int, chosen: Chosen, often: int = 5) -> Section:
    """Batch after batch into the same tables, without maintenance."""
    branch = branched(ground)
    files = []
    for n in range(1, often + 1):
        files.append(ground.batch(f"row-{n}", branch.batch(count)))
        ground.expect(f"row-{n}", branch)
    steps = [(f"batch {n}", [file]) for n, file in enumerate(files, 1)]
    lines = ["| contestant | batch | s | CPU-s |", "|---|---|---|---|"]
    texts = []
    for one in of(chosen, LOOP, TUNED):
        passes = [([("cold", [files[0]])], "row-1"), (steps, f"row-{often}")]
        found = run(ground, one, f"{one.name} in a row", passes)[1:]
        lines += [f"| {one.name} | {n} | {s.wall:.1f} | {s.cpu:.1f} |" for n, s in enumerate(found, 1)]
        texts.append(
            f"{one.name}: batch {often} / batch 1 = {found[-1].wall / found[0].wall:.2f} in time, "
            f"{found[-1].cpu / found[0].cpu:.2f} in CPU-s."
        )
    verdicts = ground.verdicts()
    texts += [f"{label}: {verdict}." for label, verdict in verdicts.items() if label.endswith("in a row")]
    title = f"## {often} batches of {count:,} messages in a row, no OPTIMIZE"
    return f"{title}\n\n" + "\n".join(lines) + "\n\n" + "\n".join(texts), faults_of(verdicts, "in a row")


def late(ground: Ground, count: int, chosen: Chosen) -> Section:
    """One message of a hundred comes a batch late; in order and late in turn, in one process."""
    branch = branched(ground)
    first, second = branch.batch(count), branch.batch(count)
    ground.expect("second", branch)
    every = round(1 / LATE)
    held = first[::every]
    files = {
        "first": ground.batch("late-1", first),
        "second": ground.batch("late-2", second),
        "fewer": ground.batch("late-fewer", [line for n, line in enumerate(first) if n % every]),
        "more": ground.batch("late-more", second + held),
    }
    order = [("first", [files["first"]]), ("in order", [files["second"]])]
    late_order = [("first", [files["fewer"]]), ("late", [files["more"]])]
    passes = [(order, "second"), (late_order, "second"), (order, "second"), (late_order, "second")]
    ours = run(ground, LOOP, "product late", passes)
    peers = {
        one.name: run(ground, one, f"{one.name} late", [(late_order, "second")])[-1]
        for one in of(chosen, TUNED)
    }
    verdicts = ground.verdicts()
    in_order, tardy = ours[5], ours[7]
    text = (
        f"## {LATE:.0%} of {count:,} messages come a batch late, 3 tables of {rows_of(ground)} rows\n\n"
        f"product: {ratio('in order', in_order, 'late', tardy)}: {verdicts['product late']}."
    )
    for name, step in peers.items():
        text += f"\n{name}: {step.cpu:.1f} CPU-s: {verdicts[f'{name} late']}."
    return text, faults_of(verdicts, "product late")


def skewed(ground: Ground, count: int) -> Section:
    """Eight partitions, the slowest a batch behind the first: in each, and so for each key, all is in order."""
    branch = branched(ground)
    lines = [*branch.batch(count), *branch.batch(count)]
    ground.expect("skewed", branch)
    partitions = [zlib.crc32(key.encode()) % PARTITIONS for key in map(_key, lines)]
    parts = {"even": _parts(lines, partitions, count, 0), "skew": _parts(lines, partitions, count, count)}
    files = {
        (name, n): [ground.batch(f"{name}-{n}-{p}", part) for p, part in enumerate(batch) if part]
        for name, batches in parts.items()
        for n, batch in enumerate(batches)
    }
    even = [("first", files["even", 0]), ("second", files["even", 1])]
    skew = [("first", files["skew", 0]), ("second", files["skew", 1]), ("rest", files["skew", 2])]
    passes = [(even, "skewed"), (skew, "skewed"), (even, "skewed"), (skew, "skewed")]
    found = run(ground, LOOP, "product skewed", passes)
    verdicts = ground.verdicts()
    level, askew = found[6], found[8]
    text = (
        f"## {PARTITIONS} partitions, a skew of one batch of {count:,} messages, 3 tables of {rows_of(ground)} rows\n\n"
        f"product: {ratio('even', level, 'skewed', askew)}: {verdicts['product skewed']}."
    )
    return text, faults_of(verdicts, "skewed")


def _key(line: str) -> str:
    found = re.search(r'"data":\[{"id":"?(\d+).*"table":"(\w+)"', line)
    assert found is not None
    return f"{found[2]}/{found[1]}"


def _parts(lines: list[str], partitions: list[int], count: int, skew: int) -> list[list[list[str]]]:
    """By batch and partition; the last partition comes so many messages later than the first."""
    found: list[list[list[str]]] = [[[] for _ in range(PARTITIONS)] for _ in range(3)]
    for number, (line, partition) in enumerate(zip(lines, partitions, strict=True)):
        found[(number + skew * partition // (PARTITIONS - 1)) // count][partition].append(line)
    return found


def many(folder: Path, rows: int, chosen: Chosen, tables: int = 50, touched: int = 5) -> Section:
    """Many small tables: all of them touched, then a few."""
    workload = Workload(SEED, tables, rows)
    ground = Ground(folder, workload)
    ground.prepare(of(chosen, PRODUCT, TUNED))
    all_of_them = [ground.batch(f"all-{n}", workload.batch(tables * 400)) for n in range(2)]
    few = [ground.batch(f"few-{n}", workload.batch(touched * 400, touched)) for n in range(2)]
    ground.expect("after", workload)
    steps = [("cold", [all_of_them[0]]), ("all", [all_of_them[1]]), ("few once", [few[0]]), ("few", [few[1]])]
    lines = ["| contestant | touched | s | CPU-s | s for each touched table |", "|---|---|---|---|---|"]
    for one in of(chosen, LOOP, TUNED):
        found = run(ground, one, f"{one.name} many", [(steps, "after")])
        for step, number in ((found[1], tables), (found[3], touched)):
            lines.append(
                f"| {one.name} | {number} of {tables} | {step.wall:.1f} | {step.cpu:.1f} | {step.wall / number:.2f} |"
            )
    verdicts = ground.verdicts()
    faults = "; ".join(f"{label}: {verdict}" for label, verdict in verdicts.items() if "many" in label)
    title = f"## {tables} tables of {rows:,} rows, 400 messages for each touched table, warm"
    return f"{title}\n\n" + "\n".join(lines) + f"\n\n{faults}.", faults_of(verdicts, "product")


def bare(folder: Path, rows: int, count: int, chosen: Chosen) -> Section:
    """The same messages with their numbers bare instead of quoted, and what becomes of the decimals."""
    lines = ["| contestant | numbers | warm s | CPU-s | result |", "|---|---|---|---|---|"]
    wrong = 0
    for how in ("quoted", "bare"):
        workload = Workload(SEED, 3, rows, bare=how == "bare")
        ground = Ground(folder / how, workload)
        ground.prepare(of(chosen))
        file = ground.batch("batch", workload.batch(count))
        ground.expect("after", workload)
        steps: dict[str, Step] = {}
        for one in of(chosen):
            passes = [([("cold", [file])], "after"), ([("warm", [file])], "after")]
            session = LOOP if one is PRODUCT else one
            steps[one.name] = run(ground, session, one.name, passes)[1]
        verdicts = ground.verdicts()
        for name, step in steps.items():
            lines.append(f"| {name} | {how} | {step.wall:.1f} | {step.cpu:.1f} | {verdicts[name]} |")
        wrong += faults_of(verdicts, "product")
    return f"## Bare numbers against quoted, {count:,} messages, 3 tables of {rows:,} rows\n\n" + "\n".join(
        lines
    ), wrong


def battery(folder: Path) -> Section:
    """Thirteen numbers that break."""
    text, wrong = cells.fidelity(folder)
    return f"## Thirteen numbers, sent bare\n\n{text}", wrong


def starts(ground: Ground, often: int = 5) -> str:
    """What the command line takes for the least that it can do, and for a report of the lake."""
    file = str(ground.folder / "start" / "lake" / "bench.yaml")
    report = ["report", file, "--out", str(ground.folder / "report.html")]
    lines = ["## Command line", "", f"| command | median s of {often} |", "|---|---|"]
    for words in (["--help"], ["validate", file], report):
        taken = []
        for _ in range(often):
            begun = time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "ingest", *words], check=True, capture_output=True, cwd=ROOT
            )
            taken.append(time.monotonic() - begun)
        lines.append(f"| `ingest {words[0]}` | {statistics.median(taken):.2f} |")
    return "\n".join(lines)
