"""``python -m ingest`` is the command ``ingest``."""

from __future__ import annotations

from ingest.cli.app import main

if __name__ == "__main__":
    main()
