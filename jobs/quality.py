"""Check the mirrors.

Runs with ``python jobs/quality.py FILE...`` and with ``spark-submit jobs/quality.py FILE...``; exit codes as
``ingest run``.
"""

from __future__ import annotations

import sys

from ingest.cli.app import app

if __name__ == "__main__":
    app(["run", "--stage", "quality", *sys.argv[1:]], prog_name="jobs/quality.py")
