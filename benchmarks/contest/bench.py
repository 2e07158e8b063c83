"""The contest: one batch into three tables, by the product and by what people would write today.

    python -m benchmarks            # the quick form: smaller, one round, printed
    python -m benchmarks --full     # the full form: its sections, about an hour; writes results.md, at its end README's figures
    python -m benchmarks --variants million --rows 2000 --messages 2000    # one section, as small as you like

Each contestant runs in a process of its own, on copies of the same tables: first cold (from the start of its process to
its last commit), then warm (the same batch again, on another copy).  The product has two processes: cold is `ingest run`,
warm is the second batch of `ingest run --every`.  No figure is printed before all results have been compared with what
the tables must hold.  Each section is printed and written as soon as it is there; one that fails or is late is named, and
the next one begins.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks import figures
from benchmarks.contest.form import FULL, QUICK, Form
from benchmarks.contest.ground import ALL, PRODUCT
from benchmarks.contest.measure import ROOT, say
from benchmarks.contest.variants import FULL_FORM, LIMITS, MAIN, NAMES, Done, variants

SIZES = {
    "rows": "rows of each table",
    "messages": "messages of a batch",
    "tables": "tables of the section `thousand`",
}


def main() -> int:
    """Run one form; 1 if the product was wrong, or a section failed or had no time left."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="the sections of the full form; writes results.md"
    )
    parser.add_argument(
        "--variants", nargs="*", choices=NAMES, help="these sections instead of the main workload"
    )
    parser.add_argument("--main-only", action="store_true", help="the main workload alone")
    for size, what in SIZES.items():
        parser.add_argument(f"--{size}", type=int, metavar="N", help=f"{what}, instead of the form's own")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of the main workload")
    parser.add_argument(
        "--patience",
        type=float,
        default=1,
        metavar="N",
        help="so many times the minutes that each section may take",
    )
    parser.add_argument("--write", action="store_true", help="write results.md in other forms, too")
    parser.add_argument("--work", type=Path, help="a new folder to work in, which is kept")
    parser.add_argument("--only", nargs="*", default=[], help="only contestants whose name begins so")
    options = parser.parse_args()
    form = sized(FULL if options.full else QUICK, {size: getattr(options, size) for size in SIZES})
    form = replace(form, rounds=options.rounds or form.rounds)
    whole = options.full and options.variants is None and not options.main_only
    usual = (MAIN,) if options.main_only else (MAIN, "auto_cdc")
    wanted = options.variants or (tuple(FULL_FORM) if whole else usual)
    is_quoted = form == FULL and whole and not options.only
    with ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        write = options.write or is_quoted
        status = run(form, folder, options.only, wanted, patience=options.patience, write=write)
        if is_quoted:
            figures.write()
        return status


def sized(form: Form, sizes: dict[str, int | None]) -> Form:
    """A form with other sizes, and a name that says so."""
    given = {size: number for size, number in sizes.items() if number}
    suffix = "".join(f", {number:,} {size}" for size, number in given.items())
    return replace(form, name=f"{form.name}{suffix}", **given)  # type: ignore[arg-type]


def run(
    form: Form, folder: Path, only: list[str], wanted: Sequence[str], *, patience: float, write: bool
) -> int:
    """All sections; each is printed, and written if it is wanted, when it is there."""
    began, done = time.monotonic(), list[Done]()
    chosen = tuple(one for one in ALL if not only or one is PRODUCT or one.name.startswith(tuple(only)))
    folder.mkdir(parents=True, exist_ok=True)
    about = machine(form)
    print(f"{about}\n", flush=True)
    for section in variants(folder, wanted, form, chosen, patience):
        print(f"{section.text}\n", flush=True)
        say(f"{section.name} took {section.minutes:.1f} minutes")
        done.append(section)
        if write:  # an error in the last quarter of an hour leaves what is there
            minutes = (time.monotonic() - began) / 60
            missing = len(wanted) - len(done)
            text = f"{about}\n{minutes:.0f} minutes{f' so far, {missing} sections are missing' if missing else ' in all'}."
            parts = ["# Measured", text, *(each.text for each in done), budget(done, patience)]
            figures.RESULTS.write_text("\n\n".join(parts) + "\n", "utf-8")
    print(budget(done, patience))
    return 1 if any(section.wrong for section in done) else 0


def budget(done: list[Done], patience: float) -> str:
    """How long each section took, and how long it may take."""
    lines = ["## Minutes", "", "| section | minutes | at most |", "|---|---|---|"]
    lines += [f"| {each.name} | {each.minutes:.1f} | {LIMITS[each.name] * patience:g} |" for each in done]
    return "\n".join([*lines, f"| all | {sum(each.minutes for each in done):.1f} | |"])


def machine(form: Form) -> str:
    """What the figures were measured on, when, on which state of the code, and how much they say."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    rounds = f"{form.rounds} round{'s' * (form.rounds > 1)} of the main workload"
    text = (
        f"{form.name.capitalize()}, {rounds}, {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, commit {commit()}, load before {load}; "
        f"{os.cpu_count()} cores of {platform.machine()}, {memory:.0f} GiB, Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()}."
    )
    if form.name.startswith(QUICK.name):
        text += (
            "\nThis is the quick form: smaller tables, one round. `make bench-full` has the figures to quote."
        )
    return text


def commit() -> str:
    """The state of the code that runs; unknown outside of a working copy."""
    words = ["git", "describe", "--always", "--dirty=, with changes"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
