"""Write what the format modules say of themselves into the vendors' pages: ``python -m docs.vendors``."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from docs.marks import cell, inserted
from ingest import formats
from ingest.formats import About

PAGES = Path(__file__).parent / "vendors"
CASES = Path(__file__).parents[1] / "tests" / "formats"
SHORT = 1_300  # bytes of a message that is shown
BEGIN, END = "<!-- formats:begin, written by docs/vendors.py -->", "<!-- formats:end -->"
FAMILIES = {
    "oceanbase-oms": "oms-*",
    "oceanbase-cloud": "obcloud-*",
    "alibaba-dts": "dts-*",
    "alibaba-dataworks": "dataworks",
    "huawei-drs": "drs-*",
    "debezium": "debezium*",
    "canal-and-ticdc": "*canal",
    "maxwell-goldengate-dms": "maxwell ogg dms",
}
"""Page by page, patterns of the formats on it; a format is on the first page that fits."""


def members(page: str) -> list[str]:
    """The formats of a page."""
    return [name for name in formats.names() if _page(name) == page]


def _page(name: str) -> str:
    fits = (page for page, patterns in FAMILIES.items() for one in patterns.split() if fnmatchcase(name, one))
    return next(fits, "")


def block(page: str) -> str:
    """The generated part of a page."""
    parts = [_format(name, formats.load(name).ABOUT) for name in members(page)]
    return "\n\n" + "\n\n".join(parts) + "\n\n"


def _format(name: str, about: About) -> str:
    head = [f"### `{name}`", "", f"{about.title}. Document: {about.document}.", ""]
    return "\n".join([*head, *_sample(name), *_lines(about)])


def _sample(name: str) -> Iterator[str]:
    """The shortest insert, else update, among the tests' cases, a member a line."""
    cases = sorted((CASES / name).glob("*.json"), key=lambda case: (case.stat().st_size, case.name))
    plain = [case for case in cases if len(case.suffixes) == 1 and case.stat().st_size <= SHORT]
    for word in ("insert", "update"):
        for case in (one for one in plain if one.name.startswith(word) or f"-{word}" in one.name):
            members = msgspec.json.decode(case.read_bytes(), type=dict[str, msgspec.Raw])
            told = [f'  "{key}": {bytes(value).decode()}' for key, value in members.items()]
            yield from ("```json", "{", ",\n".join(told), "}", "```", "")
            return


def _lines(about: About) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {cell(text)} |" for name, text in _facts(about))
    if about.options:
        yield from ("", "| option | meaning |", "|---|---|")
        yield from (f"| `{name}` | {cell(text)} |" for name, text in about.options.items())
    if about.losses:
        yield from ("", "Lost before it arrives, by the vendor's own word or design:", "")
        yield from (f"- {loss}" for loss in about.losses)


def _facts(about: About) -> Iterator[tuple[str, str]]:
    yield "operations", ", ".join(about.operations)
    yield "order", f"{about.strength.split()[0]}: {about.order}"
    yield "keys", about.keys
    yield "types", about.types
    yield "row images", about.images
    yield "DDL", about.ddl
    yield "framing in files", f"`{about.framing}` unless told"


def written(text: str, page: str) -> str:
    """A page with its generated part replaced."""
    return inserted(text, BEGIN, block(page), END)


def main() -> None:
    """Replace the generated part of every page."""
    for page in FAMILIES:
        file = PAGES / f"{page}.md"
        file.write_text(written(file.read_text("utf-8"), page), "utf-8")


if __name__ == "__main__":
    main()
