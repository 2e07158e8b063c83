"""The variants of one ordinary batch: stage by stage, in ticks, in a row, late, skewed, partial, of many tables, of bare numbers.

Each is a function from a ground or a folder to a section of text and the number of wrong results of the product in it.
"""

from __future__ import annotations

import re
import statistics
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contest import cells
from benchmarks.contest.ground import AUTO, AUTO_LOOP, DELTA_RS, LOOP, PRODUCT, RECIPE, TUNED, Ground
from benchmarks.contest.measure import Step
from benchmarks.contest.sections import SEED, Chosen, Section, branched, faults_of, of, ratio, rows_of, run
from benchmarks.contest.workload import Workload

LATE = 0.01
PARTITIONS = 8
TICK = 1_000  # messages
UNFIT = 10  # cells of a tick that do not fit
STAGES = ("bronze", "silver", "gold", "quality")
_CUSTOMER = re.compile(r'"customer":"?\d+"?')
_TOO_LARGE = '"customer":"99999999999999999999999"'  # no BIGINT


def apart(ground: Ground, count: int) -> Section:
    """What each stage costs, and what it leaves on disk."""
    branch = branched(ground)
    file, tick = ground.batch("apart", branch.batch(count)), ground.batch("apart-tick", branch.batch(TICK))
    ground.expect("apart", branch)
    parts = [(name, [] if number else [file], [name]) for number, name in enumerate(STAGES)]
    parts += [("a tick", [tick], list(STAGES[:3])), ("quality of the tick", [], ["quality"])]
    lines = [
        "| stage | s | CPU-s | messages a second | messages a CPU-second | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for step in ground.run_apart(file, parts, "apart"):
        rates = f"{count / step.wall:,.0f} | {count / step.cpu:,.0f}" if step.name in STAGES else " | "
        lines.append(f"| {step.name} | {step.wall:.2f} | {step.cpu:.2f} | {rates} | {step.peak:.2f} |")
    lines += ["", "| table | files | bytes | bytes a message | commits |", "|---|---|---|---|---|"]
    lines += _grown(ground.folder / "start" / "lake", ground.place("product apart 1"), count)
    verdicts = ground.verdicts()
    title = f"## Stage by stage, {count:,} messages, warm"
    about = f"Quality looks at all rows here, for the first time, and then at those of a tick of {TICK:,} messages."
    return f"{title}\n\n{about}\n\n" + "\n".join(lines), faults_of(verdicts, "apart")


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


def ticks(ground: Ground, chosen: Chosen, often: int = 6, unfit: int = 4) -> Section:
    """Small batches into large tables: the first from a cold start, the others in the same session; then some with cells that do not fit."""
    branch = branched(ground)
    files = []
    for n in range(1, often + 1):
        files.append(ground.batch(f"tick-{n}", branch.batch(TICK)))
        if n in (1, 3):
            ground.expect(f"ticked-{n}", branch)
    spoiled = Spoiled(branch, UNFIT)
    files += [ground.batch(f"unfit-{n}", spoiled.batch(TICK)) for n in range(unfit)]
    ground.expect("unfit", spoiled)
    steps = [("cold" if n == 0 else f"tick {n}", [file]) for n, file in enumerate(files)]
    found: dict[str, list[Step]] = {}
    for one in of(chosen, PRODUCT, AUTO, RECIPE):  # of the product only its start: ticks are `--every`
        number = 3 if one is RECIPE else 1
        found[one.name] = run(ground, one, f"{one.name} ticks", [(steps[:number], f"ticked-{number}")])
    for product in (LOOP, AUTO_LOOP):
        name = f"{product.name} --every"
        found[name] = run(ground, product, f"{name} ticks", [(steps, "unfit")])
    verdicts = ground.verdicts()
    lines = [
        f"| contestant | cold s | CPU-s | warm s | CPU-s | {UNFIT} cells do not fit, s | CPU-s | peak GiB | result |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, taken in found.items():
        # the first warm tick of a session still compiles, and so does the first that meets a cell which does not fit
        parts = [taken[:1], taken[2:often], taken[often + 1 :]]
        figures = " | ".join(_medians(part) for part in parts)
        peak = max(step.peak for step in taken)
        lines.append(f"| {name} | {figures} | {peak:.2f} | {verdicts[f'{name} ticks']} |")
    title = f"## {TICK:,} messages into 3 tables of {rows_of(ground)} rows"
    text = (
        f"{title}\n\nCold is from the start of a process to its end, `ingest run`. Warm is the median of {often - 2} ticks of a session of "
        f"`--every`, of the recipe one tick; with cells that do not fit, which become NULL and are listed, the median of {unfit - 1}.\n\n"
    )
    return text + "\n".join(lines), faults_of(verdicts, "ticks")


def _medians(steps: list[Step]) -> str:
    """Seconds and CPU-seconds; nothing of no steps."""
    if not steps:
        return " | "
    return f"{statistics.median(s.wall for s in steps):.2f} | {statistics.median(s.cpu for s in steps):.2f}"


class Spoiled:
    """A workload whose batches hold cells that do not fit their column, and what its tables must hold: NULL there."""

    def __init__(self, workload: Workload, cells: int) -> None:
        self.workload, self.tables, self.cells = workload, workload.tables, cells
        self.keys: set[str] = set()  # table/key of the rows whose customer does not fit now

    def base(self) -> Iterator[str]:
        """The workload's."""
        return self.workload.base()

    def batch(self, count: int) -> list[str]:
        """So many changes; of some rows the last one has a customer that no BIGINT holds."""
        lines, names, spoiled = self.workload.batch(count), set[str](), set[str]()
        for n in range(len(lines) - 1, -1, -1):
            name = _key(lines[n])
            if name not in names and len(spoiled) < self.cells and '"type":"DELETE"' not in lines[n]:
                lines[n] = _CUSTOMER.sub(_TOO_LARGE, lines[n], count=1)
                spoiled.add(name)
            names.add(name)
        self.keys = self.keys - names | spoiled
        return lines

    def expected(self) -> dict[str, pa.Table]:
        """The workload's, without the cells that do not fit."""
        tables = self.workload.expected()
        for name, rows in tables.items():
            gone = pa.array(
                [int(key.rpartition("/")[2]) for key in self.keys if key.startswith(f"{name}/")], pa.int64()
            )
            cells = pc.if_else(pc.is_in(rows["id"], gone), None, rows["customer"])
            tables[name] = rows.set_column(rows.column_names.index("customer"), "customer", cells)
        return tables


def in_a_row(ground: Ground, count: int, often: int = 5) -> Section:
    """Batch after batch into the same tables, without maintenance."""
    branch = branched(ground)
    files = []
    for n in range(1, often + 1):
        files.append(ground.batch(f"row-{n}", branch.batch(count)))
        if n in (1, often):
            ground.expect(f"row-{n}", branch)
    steps = [(f"batch {n}", [file]) for n, file in enumerate(files, 1)]
    passes = [([("cold", [files[0]])], "row-1"), (steps, f"row-{often}")]
    taken = run(ground, LOOP, "product in a row", passes)[1:]
    lines = ["| batch | s | CPU-s |", "|---|---|---|"]
    lines += [f"| {n} | {s.wall:.1f} | {s.cpu:.1f} |" for n, s in enumerate(taken, 1)]
    verdicts = ground.verdicts()
    title = f"## {often} batches of {count:,} messages in a row, no OPTIMIZE"
    summary = (
        f"Batch {often} / batch 1 = {taken[-1].wall / taken[0].wall:.2f} in time, {taken[-1].cpu / taken[0].cpu:.2f} in "
        f"CPU-s: {verdicts['product in a row']}."
    )
    return f"{title}\n\n" + "\n".join(lines) + f"\n\n{summary}", faults_of(verdicts, "in a row")


def late(ground: Ground, count: int) -> Section:
    """One message of a hundred comes a batch late; late and in order in turn, in one process."""
    branch = branched(ground)
    first, second = branch.batch(count), branch.batch(count)
    ground.expect("second", branch)
    every = round(1 / LATE)
    files = {
        "first": ground.batch("late-1", first),
        "second": ground.batch("late-2", second),
        "fewer": ground.batch("late-fewer", [line for n, line in enumerate(first) if n % every]),
        "more": ground.batch("late-more", second + first[::every]),
    }
    order = [("first", [files["first"]]), ("in order", [files["second"]])]
    late_order = [("first", [files["fewer"]]), ("late", [files["more"]])]
    passes = [(order, "second"), (late_order, "second"), (order, "second")]
    taken = run(ground, LOOP, "product late", passes)
    verdicts = ground.verdicts()
    text = (
        f"## {LATE:.0%} of {count:,} messages come a batch late, 3 tables of {rows_of(ground)} rows\n\n"
        f"product: {ratio('in order', taken[5], 'late', taken[3])}: {verdicts['product late']}."
    )
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
    passes = [(even, "skewed"), (skew, "skewed"), (even, "skewed")]
    taken = run(ground, LOOP, "product skewed", passes)
    verdicts = ground.verdicts()
    level, askew = taken[6], taken[3]  # second batches
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


def partial(ground: Ground, count: int) -> Section:
    """The same changes with whole images and with images of the key and what changed."""
    whole, short = branched(ground), branched(ground)
    short.minimal = True
    files = {
        "whole": ground.batch("whole", whole.batch(count)),
        "partial": ground.batch("partial", short.batch(count)),
    }
    ground.expect("partial", whole)
    passes = [
        ([(name, [files[name]])], "partial") for name in ("whole", "whole", "partial", "whole", "partial")
    ]
    taken = run(ground, LOOP, "product partial", passes)
    verdicts = ground.verdicts()
    text = (
        f"## Partial images, {count:,} messages into 3 tables of {rows_of(ground)} rows\n\n"
        "Updates and deletes without the two columns that no update changes, as minimal row images through Canal.\n\n"
        f"product: {ratio('whole', taken[3], 'partial', taken[4])}; the round before: "
        f"{ratio('whole', taken[1], 'partial', taken[2])}: {verdicts['product partial']}."
    )
    return text, faults_of(verdicts, "product partial")


def many(folder: Path, rows: int, tables: int = 50, touched: int = 5) -> Section:
    """Many small tables: all of them touched, then a few; the product under both engines."""
    workload = Workload(SEED, tables, rows)
    ground = Ground(folder, workload)
    ground.prepare((PRODUCT,))
    all_of_them = [ground.batch(f"all-{n}", workload.batch(tables * 400)) for n in range(2)]
    few = [ground.batch(f"few-{n}", workload.batch(touched * 400, touched)) for n in range(2)]
    ground.expect("after", workload)
    steps = [("cold", [all_of_them[0]]), ("all", [all_of_them[1]]), ("few once", [few[0]]), ("few", [few[1]])]
    lines = ["| contestant | touched | s | CPU-s | s for each touched table |", "|---|---|---|---|---|"]
    for one in (LOOP, AUTO_LOOP):
        taken = run(ground, one, f"{one.name} many", [(steps, "after")])
        for step, number in ((taken[1], tables), (taken[3], touched)):
            lines.append(
                f"| {one.name} | {number} of {tables} | {step.wall:.2f} | {step.cpu:.2f} | {step.wall / number:.2f} |"
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
        contestants = of(chosen, PRODUCT, RECIPE, TUNED, DELTA_RS)
        ground.prepare(contestants)
        file = ground.batch("batch", workload.batch(count))
        ground.expect("after", workload)
        steps: dict[str, Step] = {}
        for one in contestants:
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


def battery(folder: Path, chosen: Chosen) -> Section:
    """Thirteen numbers that break."""
    text, wrong = cells.fidelity(folder, of(chosen, PRODUCT, RECIPE, DELTA_RS))
    return f"## Thirteen numbers, sent bare\n\n{text}", wrong
