"""A million hostile names through the path encoder: how many are one folder, leave the lake or are too long.

    python -m benchmarks.names                  # 1,000,000 names
    python -m benchmarks.names --names 20000

The exit code is 1 if any is.
"""

from __future__ import annotations

import argparse
import posixpath
import sys
import time

from ingest.change import TableId
from ingest.store.names import mirror_path
from tests.lake.hostile import names

LONGEST = len("mirrors") + 2 * 101


def main() -> int:
    """Encode, count, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.names", description=__doc__.splitlines()[0])
    parser.add_argument("--names", type=int, default=1_000_000)
    wanted = parser.parse_args().names
    made = list(names(wanted))
    started = time.perf_counter()
    paths = [mirror_path(TableId(name, None, name)) for name in made]
    seconds = time.perf_counter() - started
    shared = wanted - len({path.lower() for path in paths})
    outside = sum(posixpath.normpath(path) != path or not path.startswith("mirrors/") for path in paths)
    long = sum(len(path) > LONGEST for path in paths)
    sys.stdout.write(
        f"{wanted:,} names in {seconds:.1f} s ({seconds / wanted * 1e6:.1f} us each): "
        f"{shared} share a path, {outside} leave the lake, {long} are too long\n"
    )
    return 1 if shared or outside or long else 0


if __name__ == "__main__":
    sys.exit(main())
