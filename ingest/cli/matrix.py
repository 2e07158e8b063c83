"""The support matrix as Markdown, made from what each format's own module says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ingest.formats import About

BEGIN, END = "<!-- matrix:begin -->", "<!-- matrix:end -->"
_COLUMNS = ("format", "what", "operations", "order", "keys from", "types from", "images", "DDL from")


def table(abouts: Mapping[str, About]) -> str:
    """One row per format, then what each loses by its own documentation."""
    rows = [_row(name, about) for name, about in abouts.items()]
    head = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    return "\n".join([*head, *map(_line, rows), "", *_losses(abouts)])


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
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _losses(abouts: Mapping[str, About]) -> list[str]:
    """Each loss once, with the formats that have it."""
    having: dict[str, list[str]] = {}
    for name, about in abouts.items():
        for loss in about.losses:
            having.setdefault(loss, []).append(f"`{name}`")
    told = [f"- {loss} ({', '.join(names)})" for loss, names in having.items()]
    return ["What dialects lose by their own documentation, before anything reaches this product:", "", *told]


def inserted(text: str, block: str) -> str:
    """A document with the block between its two marks.

    Raises:
        ValueError: the marks are not there, or not in their order.
    """
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the document must hold {BEGIN} and {END} once, in this order")
    return pattern.sub(lambda _: f"{BEGIN}\n{block}\n{END}", text)
