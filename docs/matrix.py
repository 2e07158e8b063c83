"""Write the support matrix into README.md from what the format modules say: ``python -m docs.matrix``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.marks import cell, inserted
from ingest import formats
from ingest.formats import About

README = Path(__file__).parents[1] / "README.md"

BEGIN, END = "<!-- matrix:begin -->", "<!-- matrix:end -->"
_COLUMNS = ("format", "what", "operations", "order", "keys from", "types from", "images", "DDL from")


def table(abouts: Mapping[str, About]) -> str:
    """One row per format."""
    rows = [_row(name, about) for name, about in abouts.items()]
    head = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    return "\n".join([*head, *map(_line, rows)])


def _row(name: str, about: About) -> list[str]:
    strength = "**strong**" if about.strength.startswith("strong") else "weak"
    return [
        f"`{name}`",
        about.title,
        " ".join(about.operations),
        f"{strength}: {about.order}",
        about.keys,
        about.types,
        about.images,
        about.ddl,
    ]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"


def written(text: str) -> str:
    """A document with the matrix between its two marks."""
    block = table({name: formats.load(name).ABOUT for name in formats.names()})
    return inserted(text, BEGIN, f"\n{block}\n", END)


def main() -> None:
    """Replace the text between the marks of the README."""
    README.write_text(written(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
