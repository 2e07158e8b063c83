"""Lands one large file, a fifth of it, or very many small ones, and looks at the memory that this takes.

    python -m benchmarks.bigfile                    # a file of 5 GB, then one of 1 GB: bronze
    python -m benchmarks.bigfile --gb 2 --stages bronze,silver
    python -m benchmarks.bigfile --files 100000     # instead: so many files of one message each

Each stage is a process of its own.  Prints MB/s, messages/s and the peak of what its processes hold in memory
together.  Ends with exit code 1 if the counts in bronze or in the books are not those of the files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.tree import Watch
from tests.lakes import FORMAT, touch
from tests.scenarios.processes import started

GB, MB = 10**9, 10**6
ROOM = 12  # GB that must be free for a file of 5
BLOCK = 20_000  # messages that are written at once
NOISE = 1 << 20


@dataclass(frozen=True, slots=True)
class Landed:
    """What one run did."""

    input: str
    bytes: int
    messages: int
    stages: dict[str, tuple[float, int]]  # seconds, and bytes at the peak
    faults: tuple[str, ...] = ()


def main() -> int:
    """Write, land, compare, print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--gb", type=float, default=5.0, help="size of the large file")
    options.add_argument("--files", type=int, default=0, help="land so many files of one message instead")
    options.add_argument("--stages", default="bronze", help="bronze, or bronze,silver")
    options.add_argument("--folder", default=None, help="where to work; the system's temporary folder")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        free, needed = shutil.disk_usage(folder).free / GB, max(1.0, ROOM * given.gb / 5)
        if not given.files and free < needed:
            print(
                f"{folder} has {free:.1f} GB free; a file of {given.gb:g} GB and its lake need {needed:.0f}"
            )
            return 2
        if given.files:
            found = [small(Path(folder), given.files, given.stages)]
        else:
            sizes = (given.gb, given.gb / 5)
            found = [large(Path(folder) / f"{size:g}", size, given.stages) for size in sizes]
    return report(found)


def large(folder: Path, size: float, stages: str) -> Landed:
    """One file of so many GB, written as a stream and deleted after its run."""
    folder.mkdir()
    file = folder / "big-1.jsonl"
    count = 0
    with file.open("wb", buffering=1 << 20) as out:
        for block in blocks():
            out.write(block)
            count += BLOCK
            if out.tell() >= size * GB:
                break
    touch(file)
    try:
        return landed(folder, f"{size:g} GB", stages, file.stat().st_size, count)
    finally:
        shutil.rmtree(folder)


def small(folder: Path, count: int, stages: str) -> Landed:
    """Many files of one message, a thousand to a folder."""
    size = 0
    lines = (line for block in blocks() for line in block.splitlines(keepends=True))
    for number, line in zip(range(count), lines, strict=False):
        file = folder / f"{number // 1000:05}" / f"big-{number:07}.jsonl"
        if number % 1000 == 0:
            file.parent.mkdir()
        file.write_bytes(line)
        touch(file)
        size += len(line)
    return landed(folder, f"{count:,} files", stages, size, count)


def blocks() -> Iterator[bytes]:
    """Messages of about 530 bytes without end, no two of them equal."""
    noise = random.Random(1).randbytes(NOISE).hex()  # noqa: S311 - to be repeatable
    serial = 0
    while True:
        yield "".join(message(number, noise) for number in range(serial, serial + BLOCK)).encode()
        serial += BLOCK


def message(serial: int, noise: str) -> str:
    """One inserted row as a line of Canal's JSON."""
    at = serial * 61 % (2 * NOISE - 240)
    moment = 1_700_000_000_000 + serial
    return (
        f'{{"data":[{{"id":"{serial}","word":"{noise[at : at + 240]}"}}],"database":"depot","es":{moment},'
        f'"id":{serial},"isDdl":false,"mysqlType":{{"id":"bigint","word":"varchar(400)"}},"old":null,'
        f'"pkNames":["id"],"sql":"","table":"bins","ts":{moment},"type":"INSERT"}}\n'
    )


def landed(folder: Path, name: str, stages: str, size: int, count: int) -> Landed:
    """Run the stages in a process of their own, and compare the counts."""
    pipeline = folder / "big.yaml"
    pipeline.write_text(
        "pipeline: big\nlake: ./lake\nengine: auto\nsources:\n"
        f"  - {{name: big, kind: files, path: '{folder}/**/big-*.jsonl', format: {FORMAT}, settle: 1s}}\n",
        "utf-8",
    )
    done: dict[str, tuple[float, int]] = {}
    faults: list[str] = []
    for stage, counted in (("bronze", "read"), ("silver", "changes")):
        if stage not in stages.split(","):
            continue
        result, peak = ran(pipeline, stage)
        done[stage] = result["stages"][stage], peak
        faults += result["failures"]
        if result[counted] != count:
            faults.append(f"{result[counted]:,} {counted} in {stage}, the input has {count:,}")
    return Landed(name, size, count, done, tuple(faults))


def ran(pipeline: Path, stage: str) -> tuple[dict[str, Any], int]:
    """One stage in a process of its own: its result, and the peak of its memory."""
    with started("run", pipeline, "--stage", stage, "--output", "json") as process:
        watch = Watch(psutil.Process(process.popen.pid))
        process.popen.wait()
        process.end(0)
        peak = watch.stop()
    text = "".join(process.printed)
    if not text:
        raise SystemExit("".join(process.stderr))
    return json.loads(text), peak


def report(found: list[Landed]) -> int:
    """Print the figures; 1 if a count is wrong."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    print(f"{'input':>14} {'stage':>7} {'seconds':>8} {'MB/s':>7} {'messages/s':>11} {'peak MB':>8}")
    for one in found:
        for stage, (seconds, peak) in one.stages.items():
            print(
                f"{one.input:>14} {stage:>7} {seconds:8.1f} {one.bytes / MB / seconds:7.1f} "
                f"{one.messages / seconds:11,.0f} {peak / MB:8,.0f}"
            )
        for fault in one.faults:
            print(f"{one.input:>14} WRONG: {fault}")
    return 1 if any(one.faults for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
