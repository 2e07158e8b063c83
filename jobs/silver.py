"""Decode what has landed into changes.

Runs with ``python jobs/silver.py FILE...`` and with ``spark-submit jobs/silver.py FILE...``; exit codes as
``ingest run``.
"""

from __future__ import annotations

import sys

from ingest.cli.app import app

if __name__ == "__main__":
    app(["run", "--stage", "silver", *sys.argv[1:]], prog_name="jobs/silver.py")
