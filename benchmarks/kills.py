"""Kills real runs with SIGKILL at random moments and proves that nothing is lost or doubled.

    python -m benchmarks.kills              # 20 kills
    python -m benchmarks.kills 200 --seed 3

Each kill finds new messages; every fifth is followed by a whole run.  Ends with the mirrors compared
with what they must hold, and with exit code 1 if anything is missing, doubled or different.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from ingest.spark.session import session, stop
from ingest.tables.lake import Lake
from tests.lakes import Depot, counted, doubled
from tests.scenarios.processes import finished, killed, says

WORDS = (" bronze", " silver", "gold: reading", "schema", "merge")


def main() -> int:
    """Run the kills, then look."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kills", type=int, nargs="?", default=20)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    rng = random.Random(given.seed)  # noqa: S311 - to be repeatable
    with tempfile.TemporaryDirectory() as folder:
        depot = Depot(Path(folder))
        orphans = 0
        for number in range(given.kills):
            depot.grow()
            begun = time.monotonic()
            found = killed(depot.file, says(rng.choice(WORDS)), rng.random() * 2)
            orphans += not found.alone
            print(f"kill {number + 1} after {time.monotonic() - begun:.1f} s: {found.last}", flush=True)
            if number % 5 == 4:
                print(f"  whole run: {finished(depot.file)['wall']:.1f} s", flush=True)
        finished(depot.file)
        return verdict(depot, given.kills, orphans)


def verdict(depot: Depot, kills: int, orphans: int) -> int:
    """Compare the lake with what it must hold."""
    spark = session("kills", master="local[2]")
    try:
        lake = Lake(spark, depot.pipeline)
        twice = {name: count for name, count in doubled(lake).items() if count}
        found = counted(lake)
        lost = depot.lines - found["messages"]
        same = depot.expected() == depot.found(spark)
    finally:
        stop(spark)
    print(f"{kills} kills, {depot.lines} messages: {lost} lost, doubled {twice or 'none'}, "
          f"mirrors {'equal' if same else 'DIFFERENT'}, {orphans} orphaned JVMs")  # fmt: skip
    return 0 if same and not lost and not twice and not orphans else 1


if __name__ == "__main__":
    sys.exit(main())
