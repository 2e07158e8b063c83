"""Compare the mirrors of the five example pipelines with each other and with the shop's own end state.

``python samples/compare.py`` after ``ingest run conf/*.yaml``, ``python samples/compare.py demo`` after ``make demo``; exits 1
if a cell differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ingest.config import load
from ingest.inspect.query import query
from ingest.tables.tables import LakeReader, Tables

HERE = Path(__file__).resolve().parent
CONF = HERE.parent / "conf"
MIRRORS = {"customers": "id", "orders": "id", "order_lines": "order_id, line_no"}
SHOWN = 6  # rows of each mirror


def cells(lake: Tables, mirror: str) -> list[dict[str, Any]]:
    """The mirror's rows in key order, every cell as a JSON value without loss."""
    names, rows, _ = query(lake, f"SELECT * FROM shop.{mirror} ORDER BY {MIRRORS[mirror]}")
    return [dict(zip(names, row, strict=True)) for row in rows]


def text(cell: object) -> str | None:
    """A cell as the expected files write it; numbers and texts compare by what they say."""
    if cell is None:
        return None
    return (
        bytes(cell).decode()
        if not isinstance(cell, str | int | float) and hasattr(cell, "__buffer__")
        else str(cell)
    )


def differing(found: list[dict[str, Any]], expected: list[dict[str, str | None]]) -> int:
    """Cells that differ, missing and surplus rows counted by their cells."""
    if len(found) != len(expected):
        return abs(len(found) - len(expected)) * max(len(expected[0]), 1)
    return sum(
        text(left.get(name)) != value
        for left, right in zip(found, expected, strict=True)
        for name, value in right.items()
    )


def main(files: Iterable[Path], ends: Path = HERE / "expected") -> int:
    """Print the mirrors of the first of these pipelines, then the comparison of all with what the folder ``ends`` has."""
    pipelines = [load(path) for path in files]
    expected = {
        mirror: json.loads((ends / f"{mirror}.json").read_text("utf-8"))["rows"] for mirror in MIRRORS
    }
    console = Console(width=140)
    wrong = 0
    verdict = Table(title="the same three mirrors from five dialects", title_justify="left")
    for column in ("pipeline", *MIRRORS, "differing cells"):
        verdict.add_column(column)
    for number, pipeline in enumerate(pipelines):
        lake = LakeReader(pipeline)
        found = {mirror: cells(lake, mirror) for mirror in MIRRORS}
        if number == 0:
            for mirror, rows in found.items():
                _show(console, mirror, rows)
        different = sum(differing(found[mirror], expected[mirror]) for mirror in MIRRORS)
        wrong += different
        verdict.add_row(pipeline.name, *(f"{len(found[mirror])} rows" for mirror in MIRRORS), str(different))
    console.print(verdict)
    return 1 if wrong else 0


def _show(console: Console, mirror: str, rows: list[dict[str, Any]]) -> None:
    shown = Table(title=f"shop.{mirror}, the first {SHOWN} of {len(rows)} rows", title_justify="left")
    for name in rows[0]:
        shown.add_column(name)
    for row in rows[:SHOWN]:
        shown.add_row(*("NULL" if cell is None else text(cell) or "''" for cell in row.values()))
    console.print(shown)


if __name__ == "__main__":
    if sys.argv[1:]:
        folder = Path(sys.argv[1])
        sys.exit(main(sorted(folder.glob("*.yaml")), folder / "messages" / "expected"))
    sys.exit(main(sorted(CONF.glob("*.yaml"))))
