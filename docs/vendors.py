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
SHORT = 5_000  # bytes of a message that is shown
TITLES = {"insert": "An insert", "update": "An update", "delete": "A delete", "ddl": "A statement"}
BEGIN, END = "<!-- formats:begin, written by docs/vendors.py -->", "<!-- formats:end -->"
FAMILIES = {
    "oceanbase-oms": "oms-*",
    "oceanbase-cloud": "obcloud-*",
    "alibaba-dts": "dts-*",
    "alibaba-dataworks": "dataworks",
    "huawei-drs": "drs-*",
    "tencent-dts": "tencent-*",
    "debezium": "debezium*",
    "canal-and-ticdc": "*canal canal-protobuf",
    "maxwell-goldengate-dms": "maxwell ogg ogg-avro dms",
    "from-the-source": "ingest-snapshot",
}
"""Page by page, patterns of the formats on it; a format is on the first page that fits."""
FAMILIES |= {
    name: name for name in formats.names() if (PAGES / f"{name}.md").exists() and name not in FAMILIES
}
"""A format may have a page of its own, under its own name."""


def members(page: str) -> list[str]:
    """The formats of a page."""
    return [name for name in formats.names() if _page(name) == page]


def _page(name: str) -> str:
    if name in FAMILIES:
        return name
    fits = (page for page, patterns in FAMILIES.items() for one in patterns.split() if fnmatchcase(name, one))
    return next(fits, "")


def block(page: str) -> str:
    """The generated part of a page."""
    parts = [_format(name, formats.load(name).ABOUT) for name in members(page)]
    return "\n\n" + "\n\n".join(parts) + "\n\n"


def _format(name: str, about: About) -> str:
    head = [f"### `{name}`", "", f"{about.title}. Document: {about.document}.", ""]
    return "\n".join([*head, *_samples(name), *_lines(about)])


def _samples(name: str) -> Iterator[str]:
    """A message of each operation among the tests' cases, the plainest one, a member a line."""
    cases = {case: _ops(case) for case in sorted((CASES / name).glob("*.json")) if len(case.suffixes) == 1}
    for op, title in TITLES.items():
        plain = [
            (f"{op}.json" != case.name, not case.name.startswith(op), noted, case.stat().st_size, case)
            for case, (ops, noted) in cases.items()
            if ops == {op} and case.stat().st_size <= SHORT
        ]
        if not plain:
            continue
        members = msgspec.json.decode(min(plain)[-1].read_bytes(), type=dict[str, msgspec.Raw])
        lines = [f'  "{key}": {bytes(value).decode()}' for key, value in members.items()]
        yield from (f"{title}:", "", "```json", "{", ",\n".join(lines), "}", "```", "")


def _ops(case: Path) -> tuple[set[str], bool]:
    """What a case's message decodes to, and whether something about it is odd."""
    expected = case.with_suffix(".expected.json")
    if not expected.exists():
        return set(), True
    found = msgspec.json.decode(expected.read_bytes())
    changes = found if isinstance(found, list) else [found]
    return {str(one.get("op")) for one in changes}, any(one.get("note") for one in changes)


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
    yield "framing in files", f"`{about.framing}` by default"


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
