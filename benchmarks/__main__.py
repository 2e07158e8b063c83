"""``python -m benchmarks``: the contest, in its quick or full form."""

import sys

from benchmarks.contest.bench import main

sys.exit(main())
