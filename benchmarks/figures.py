"""The README's and docs/scaling.md's figures of speed, which are those of benchmarks/results.md.

python -m benchmarks.figures      # write them again; `python -m benchmarks --full` does it at its end
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.md"
BEGIN = "<!-- figures:begin -->"
END = "<!-- figures:end -->"
_NAMES = {
    "product": "`ingest` (`engine: spark`)",
    "product, engine auto": "`ingest`, `engine: auto`",
    "recipe, defaults": "the documented recipe (`from_json`, `foreachBatch`, MERGE), with defaults",
    "recipe, tuned": "the same, tuned",
    "Spark's AUTO CDC, gate off": "Spark's AUTO CDC, its refusal of Delta taken out",
    "delta-rs + orjson": "delta-rs by hand, without Spark",
    "DuckDB, native": "DuckDB's own tables, without Spark",
}
Table = list[list[str]]
"""Cells line by line, the heads first."""


def write() -> None:
    """Write the figures of the results into every page that quotes them."""
    results = RESULTS.read_text("utf-8")
    for page, block in PAGES.items():
        text = page.read_text("utf-8")
        page.write_text(replaced(text, block(results)), "utf-8")


def replaced(text: str, block: str) -> str:
    """A page with other text between the two marks.

    Raises:
        ValueError: it does not have both marks, once each.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after:
        raise ValueError(f"the page lacks {BEGIN} and {END}, or has several")
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"


def in_readme(results: str) -> str:
    """The usual batch by every contestant, then other batches under both engines."""
    if not (contestants := _contestants(results)):
        return "(The last run has no result of the usual batch.)"
    heads = [
        "| the usual batch, warm | seconds | CPU-seconds | memory of all processes |",
        "|---|---|---|---|",
    ]
    blocks = [[*heads, *contestants]]
    if batches := [line for each in _BATCHES if (line := _line(results, *each))]:
        engines = "`engine: spark`: seconds | CPU-seconds | `engine: auto`: seconds | CPU-seconds"
        blocks.append([f"| batch, warm | {engines} |", "|---|---|---|---|---|", *batches])
    return "\n\n".join("\n".join(block) for block in blocks)


def _contestants(results: str) -> list[str]:
    """A line for each that was in the main workload, and for AUTO CDC, which runs in a section of its own."""
    lines = []
    for title, blocks in sections(results):
        for heads, *rows in blocks:
            if "warm wall / product's" in heads:
                seconds, peak = heads.index("warm s"), heads.index("peak GiB")
                is_auto_cdc = title.startswith("Spark's AUTO CDC")  # the product is there, too, for the ratio
                lines += [
                    f"| {_NAMES.get(row[0], row[0])} | {row[seconds]} | {row[seconds + 1]} | {row[peak]} GiB |"
                    for row in rows
                    if row[seconds] and not (is_auto_cdc and row[0] == "product")
                ]
    return lines


_BATCHES = (  # what it is called, the section's title, what a line begins with (`{}` the contestant), the head of its seconds
    (
        "1,000 messages into the same three tables",
        r"1,000 messages into 3 tables of .*",
        ("{} --every",),
        "warm s",
    ),
    (
        "the same with ten cells that do not fit",
        r"1,000 messages into 3 tables of .*",
        ("{} --every",),
        "10 cells do not fit, s",
    ),
    ("20,000 messages into 50 tables of 20,000 rows", r"50 tables of .*", ("{}", "50 of 50"), "s"),
    ("20,000 messages into 1,000 small tables", r"1,000 tables in one batch.*", ("{}", "all"), "s"),
    ("20,000 messages that create these 1,000 tables", r"1,000 tables in one batch.*", ("{}", "new"), "s"),
    (
        "1,000,000 messages into the same three tables",
        r"1,000,000 messages into 3 tables of .*",
        ("{}",),
        "s",
    ),
    ("10,000,000 messages into the same three tables", r"Fiftyfold: .*", ("10,000,000",), "s"),
)


def _line(results: str, name: str, title: str, begin: tuple[str, ...], head: str) -> str:
    """A batch's figures under both engines; nothing if it was not measured."""
    cells: list[str] = []
    for engine in ("product", "product, engine auto"):
        if engine != "product" and "{}" not in begin[0]:
            cells += ["", ""]  # its section is of one engine alone
            continue
        row = cells_of(results, title, tuple(part.format(engine) for part in begin), head)
        cells += row or ["", ""]
    return f"| {name} | {' | '.join(cells)} |" if any(cells) else ""


def in_scaling(results: str) -> str:
    """A table of the usual batch and of larger ones in the same session, each size once; then what follows for more cores."""
    heads = [
        "| messages in a batch | s | CPU-s | messages a second | messages a CPU-second | memory of all processes |",
        "|---|---|---|---|---|---|",
    ]
    lines: dict[str, str] = {}  # by the messages of a batch
    for title, blocks in sections(results):
        if re.match(r"(Tenfold|Fiftyfold): ", title) and blocks:
            for messages, *cells, peak in blocks[0][1:]:
                lines.setdefault(messages, f"| {' | '.join([messages, *cells])} | {peak} GiB |")
    if not lines:
        return "(The last run had no such batches; what follows is older.)"
    blocks_of_page = ["\n".join([*heads, *lines.values()])]
    if law := Law.of(results):
        blocks_of_page.append(_forecast(law, _measured(results, "10,000,000", "s")))
    return "\n\n".join(blocks_of_page)


@dataclass(frozen=True, slots=True)
class Law:
    """The seconds of a batch into few mirrors: ``fixed``, and for each message ``alone``, and ``shared`` among all cores."""

    fixed: float
    alone: float
    shared: float

    @classmethod
    def of(cls, results: str) -> Law | None:
        """By two sizes of batch, each with one core and with two; None if they were not measured."""
        taken = {
            (given, _number(messages)): float(seconds)
            for title, blocks in sections(results)
            if title.startswith("One core against two")
            for given, messages, seconds, *_ in blocks[0][1:]
            if given in ("one core", "two cores") and seconds
        }
        sizes = sorted({messages for _, messages in taken})
        if len(taken) != 4 or len(sizes) != 2:
            return None
        small, large = sizes
        one, two = (
            (taken[given, large] - taken[given, small]) / (large - small)
            for given in ("one core", "two cores")
        )
        fixed = (taken["one core", small] - one * small + taken["two cores", small] - two * small) / 2
        return cls(fixed, max(0.0, 2 * two - one), min(one, 2 * (one - two)))

    def seconds(self, messages: int, cores: int) -> float:
        """What a batch of so many messages takes."""
        return self.fixed + messages * (self.alone + self.shared / cores)


_SIZES = (200_000, 2_000_000, 10_000_000)
_CORES = (1, 2, 4, 16, 64, 256)


def _forecast(law: Law, measured: str) -> str:
    """A table of what a law says of batches on so many cores, with what it says of the largest that was measured on two."""
    largest = _SIZES[-1]
    lines = [
        f"By these and the section *One core against two*, a batch into a few mirrors takes {law.fixed:.1f} s, and for each million "
        f"messages {law.alone * 1e6:.1f} s that more cores do not shorten, and {law.shared * 1e6:.1f} s divided by the cores"
        + (
            f" ({law.seconds(largest, 2):.0f} s of {largest:,} on two, where {measured} were measured):"
            if measured
            else ":"
        ),
        "",
        f"| cores | {' | '.join(f'{size:,} messages, s' for size in _SIZES)} | messages a second of the largest |",
        "|---|---|---|---|---|",
    ]
    for cores in _CORES:
        taken = [law.seconds(size, cores) for size in _SIZES]
        lines.append(
            f"| {cores} | {' | '.join(f'{each:.1f}' for each in taken)} | {largest / taken[-1]:,.0f} |"
        )
    return "\n".join(lines)


def _measured(results: str, messages: str, head: str) -> str:
    cells = cells_of(results, "Fiftyfold: .*", (messages,), head)
    return cells[0] if cells else ""


def _number(text: str) -> int:
    return int(text.replace(",", ""))


PAGES: dict[Path, Callable[[str], str]] = {
    ROOT / "README.md": in_readme,
    ROOT / "docs" / "scaling.md": in_scaling,
}


def cells_of(results: str, title: str, begin: tuple[str, ...], head: str) -> list[str]:
    """The cell under a head, and the one after it, of the line that begins so; nothing if there is none."""
    for name, blocks in sections(results):
        if re.fullmatch(title, name):
            for heads, *rows in blocks:
                for row in rows:
                    if head in heads and tuple(row[: len(begin)]) == begin:
                        column = heads.index(head)
                        return row[column : column + 2]
    return []


def sections(results: str) -> list[tuple[str, list[Table]]]:
    """Each section's title and its tables."""
    parts = re.split(r"^## ", results, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0].strip(), tables(part)) for part in parts]


def tables(text: str) -> list[Table]:
    """The tables of a text in Markdown, without their second lines."""
    blocks: list[Table] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            if not re.fullmatch(r"[|\-]+", line):
                blocks[-1].append([cell.strip() for cell in line.strip()[1:-1].split("|")])
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


if __name__ == "__main__":
    write()
