"""Write the support matrix into README.md, between its marks: ``python docs/matrix.py``."""

from __future__ import annotations

from pathlib import Path

from ingest import formats
from ingest.cli import matrix

README = Path(__file__).parents[1] / "README.md"


def main() -> None:
    """Replace what stands between the marks."""
    block = matrix.table({name: formats.load(name).ABOUT for name in formats.names()})
    README.write_text(matrix.inserted(README.read_text(), block))


if __name__ == "__main__":
    main()
