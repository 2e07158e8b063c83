"""Fold new changes into the mirrors.

Runs with ``python jobs/gold.py FILE...`` and with ``spark-submit jobs/gold.py FILE...``; exit codes as
``ingest run``.
"""

from __future__ import annotations

import sys

from ingest.cli.app import app

if __name__ == "__main__":
    app(["run", "--stage", "gold", *sys.argv[1:]], prog_name="jobs/gold.py")
