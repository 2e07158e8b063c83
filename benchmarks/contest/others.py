"""Sections that are commands of their own: what they print is their text."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.contest.measure import ROOT, say
from benchmarks.contest.sections import Section

COMMANDS = {  # by the variant's name: its title, the module, its words
    "snapshot": ("First load of a snapshot, and comparisons with the source", "source", "--rows {rows} --planted {planted}"),
    "verbs": ("Verbs that only ask", "questions", "--tables 50 --pipelines 3 --tries 3"),
    "decode": (
        "Silver: messages a second of one core",
        "decode",
        "--count {few} --no-spark --only dts-canal canal debezium oms-default dts-avro maxwell dataworks",
    ),
    "checks": ("The checks of many mirrors", "quality", "--mirrors 20 --rows {few} --tables 100"),
    "memory": ("Memory of a process that folds a large mirror", "memory", ""),
}  # fmt: skip


def command(name: str, rows: int) -> Section:
    """Run one; a failure is a fault."""
    title, module, words = COMMANDS[name]
    given = words.format(rows=rows, planted=max(7, min(1000, rows // 100)), few=max(200, rows // 200)).split()
    say(f"{name}: benchmarks.{module} {' '.join(given)}")
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *given],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    text = f"## {title}\n\n`python -m benchmarks.{module}{''.join(f' {word}' for word in given)}`\n\n"
    text += done.stdout if "|---" in done.stdout else f"```text\n{done.stdout.strip()}\n```"
    if done.returncode:
        text += f"\n\nIt ended with {done.returncode}.\n\n```text\n{done.stderr.strip()[-1500:]}\n```"
    return text.rstrip(), int(done.returncode != 0)
