"""The variant of long use: batch after batch of one session, `ingest maintain` now and then, and what readers notice.

Every batch adds small files and deletion vectors.  `ingest maintain` runs after each tenth batch in a process
of its own while the session waits, and its time is measured apart: that is how a schedule runs it next to
`ingest run --every`.  The product alone.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.contest import readers
from benchmarks.contest.ground import LOOP, Ground
from benchmarks.contest.measure import Failed, Step, contest
from benchmarks.contest.sections import Section, branched, faults_of, rows_of, run
from benchmarks.contest.steps import Script
from benchmarks.contest.workload import DATABASE

LABEL = "product degrade"
READS = 3  # of a mirror by each reader; the first one warms up


@dataclass(frozen=True, slots=True)
class Files:
    """What some tables consist of."""

    data: int  # files that the newest version reads
    hollow: int  # of them, files with a deletion vector
    on_disk: int  # data files and deletion vectors, with those of older versions


@dataclass(frozen=True, slots=True)
class Look:
    """A lake between two batches."""

    when: str
    mirrors: Files
    changes: Files
    log: tuple[int, int]  # files and bytes of one mirror's log, checksums included
    seconds: dict[str, float]  # by reader, to read one mirror
    agreed: bool  # that all readers found the same in it


@dataclass(slots=True)
class Diary:
    """Looks at a lake and keeps it in shape, between the batches that a session takes into it."""

    ground: Ground
    each: int  # batches from one `ingest maintain` to the next
    looks: list[Look] = field(default_factory=list)
    upkeep: list[Step] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        """A batch is done, and the session waits; batches are named by their numbers."""
        number = int(step.name)
        if number % self.each == 0:
            self.looks.append(self._look(step.name))
        if number % self.each == 0:
            self.upkeep += self._contest("upkeep", [{"steps": [("cold", [])]}], step.name)
            self.looks.append(self._look(f"{step.name}, maintained"))

    def _contest(self, module: str, passes: list[dict[str, object]], when: str) -> list[Step]:
        folder = str(self.ground.place(LABEL))
        script = Script([{"folder": folder, **one} for one in passes], {}, {})
        try:
            return contest(module, script, self.ground.folder / "logs" / f"{module} {when}.log")
        except Failed as error:  # no fault of the product, whose process waits meanwhile
            raise RuntimeError(f"{module} after batch {when}: {error}") from error

    def _look(self, when: str) -> Look:
        lake = self.ground.place(LABEL) / "lake"
        mirrors = [lake / "mirrors" / DATABASE / name for name in self.ground.columns]
        log = [
            file for file in (mirrors[0] / "_delta_log").iterdir() if file.is_file() and file.name[0] != "."
        ]
        seconds, agreed = self._read(mirrors[0], when)
        return Look(
            when,
            files_of(mirrors),
            files_of([lake / "changes"]),
            (len(log), sum(file.stat().st_size for file in log)),
            seconds,
            agreed,
        )

    def _read(self, mirror: Path, when: str) -> tuple[dict[str, float], bool]:
        names = list(readers.READERS)
        passes: list[dict[str, object]] = [
            {"options": {"reader": name}, "steps": [(name, [str(mirror)])] * READS} for name in names
        ]
        steps = self._contest("readers", passes, f"{when} read")
        seconds = {
            name: statistics.median([step.wall for step in steps if step.name == name][1:]) for name in names
        }
        return seconds, all(step.result == steps[0].result for step in steps)


def files_of(tables: list[Path]) -> Files:
    """The files of Delta tables, together."""
    opened = [DeltaTable(table) for table in tables]
    return Files(
        sum(len(one.file_uris()) for one in opened),
        sum(one.deletion_vectors().read_all().num_rows for one in opened),
        sum(len([*table.rglob("part-*.parquet"), *table.rglob("*.bin")]) for table in tables),
    )


def degrade(ground: Ground, count: int, often: int = 20, each: int = 10) -> Section:
    """Batch after batch, and upkeep after each tenth one."""
    branch = branched(ground)
    files = [ground.batch(f"degrade-{n}", branch.batch(count)) for n in range(1, often + 1)]
    ground.expect("degraded", branch)
    diary = Diary(ground, each)
    steps = [(str(n), [file]) for n, file in enumerate(files, 1)]
    found = run(ground, LOOP, LABEL, [(steps, "degraded")], diary)
    verdicts = ground.verdicts()
    ground.forget(files)
    title = f"## {often} batches of {count:,} messages in a row, 3 tables of {rows_of(ground)} rows"
    text = "\n\n".join([title, _times(found, each), _upkeep(diary), _looks(diary)])
    disagreed = sum(not look.agreed for look in diary.looks)
    return f"{text}\n\nResult: {verdicts[LABEL]}.", faults_of(verdicts, "degrade") + disagreed


def _times(found: list[Step], each: int) -> str:
    """Medians of each run of batches between two `maintain`, and the ratio of the last one to the second."""
    lines = ["| batches | median s | median CPU-s | peak GiB |", "|---|---|---|---|"]
    medians = []
    for first in range(0, len(found), each):
        part = found[first : first + each]
        wall, cpu = (statistics.median(getattr(step, name) for step in part) for name in ("wall", "cpu"))
        medians.append((wall, cpu))
        peak = max(step.peak for step in part)
        lines.append(f"| {first + 1} to {first + len(part)} | {wall:.1f} | {cpu:.1f} | {peak:.2f} |")
    last, second = medians[-1], medians[min(1, len(medians) - 1)]
    summary = (
        f"The last {each} to the second {each}, for the first warm the session up: {last[0] / second[0]:.2f} in time, "
        f"{last[1] / second[1]:.2f} in CPU-s."
    )
    return "\n\n".join(["\n".join(lines), summary])


def _upkeep(diary: Diary) -> str:
    lines = ["| `ingest maintain` after batch | s | CPU-s | peak GiB |", "|---|---|---|---|"]
    for n, step in enumerate(diary.upkeep, 1):
        lines.append(f"| {n * diary.each} | {step.wall:.1f} | {step.cpu:.1f} | {step.peak:.2f} |")
    summary = (
        "A process of its own each time, its start counted, while the session waits. It joins small files; the files that "
        "it replaces stay on disk for `horizon_days`, 7 days, as they do in any lake."
    )
    return "\n\n".join(["\n".join(lines), summary])


def _looks(diary: Diary) -> str:
    names = list(readers.READERS)
    heads = [
        "after batch",
        *("data files of the mirrors", "with deletion vectors", "on disk"),
        *("of `changes`", "with deletion vectors", "on disk"),
        *("log of a mirror: files", "KB"),
        *(f"{name} reads it, s" for name in names),
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in diary.looks:
        tables = " | ".join(
            f"{each.data} | {each.hollow} | {each.on_disk}" for each in (one.mirrors, one.changes)
        )
        seconds = " | ".join(f"{one.seconds[name]:.2f}" for name in names)
        lines.append(f"| {one.when} | {tables} | {one.log[0]} | {one.log[1] / 1000:,.0f} | {seconds} |")
    agreed = "found the same" if diary.looks and all(one.agreed for one in diary.looks) else "DISAGREED"
    text = (
        f"A mirror is read whole, `{readers.QUERY}`, warm, the median of {READS - 1}; delta-rs asks with its own engine. "
        f"The readers {agreed} each time."
    )
    return "\n\n".join(["\n".join(lines), text])
