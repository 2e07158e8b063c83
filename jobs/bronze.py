"""Land what is new in a pipeline's sources.

Runs with ``python jobs/bronze.py FILE...`` and with ``spark-submit jobs/bronze.py FILE...``; exit codes as
``ingest run``.
"""

from __future__ import annotations

import sys

from ingest.cli.app import app

if __name__ == "__main__":
    app(["run", "--stage", "bronze", *sys.argv[1:]], prog_name="jobs/bronze.py")
