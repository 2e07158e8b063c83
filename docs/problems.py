"""Write the catalogue of problems, docs/problems.md, from the code's own: ``python -m docs.problems``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ingest.inspect.problem_kinds import OF_CHECKS, OF_THE_LAKE, OF_THRESHOLDS, Kind, state_of
from ingest.quality.catalogue import CHECKS
from tests.problem_tests import named_tests

PAGE = Path(__file__).parent / "problems.md"
_HEAD = """\
# Problems

Written by `python -m docs.problems` from the code's own catalogue. `ingest status`, `ingest alerts`, the report, the pages of
`ingest serve` and the metric `ingest_problems` list the same problems; `kind` is their field of that name. A mirror's state is
the worst that one of its problems gives it ([operations.md](operations.md#watching)); `-` leaves it as it is, for what concerns
a source, the lake, or how sure something is. The command is printed whole, with every argument; where it depends on the row,
`explain` is printed for one that the check names, else `report`. The last column names tests that bring the problem about, or
let a check find it, and type the command that is printed. The operator's own expectations under `quality:` are problems, too,
with the severity that they are given.
"""
_COLUMNS = "| kind | what is wrong | severity | state | command | tests |\n|---|---|---|---|---|---|"


def page() -> str:
    """The whole page."""
    parts = [
        _HEAD, "## What the lake itself shows\n", _table(OF_THE_LAKE.values()), "## What checks find\n",
        _table(kind for kind in OF_CHECKS.values() if kind.name not in OF_THE_LAKE),
        "## What is only counted, until `thresholds:` gives it a limit\n", _table(OF_THRESHOLDS.values()),
    ]  # fmt: skip
    return "\n".join(parts)


def _table(kinds: Iterable[Kind]) -> str:
    return "\n".join([_COLUMNS, *_rows(kinds)]) + "\n"


def _rows(kinds: Iterable[Kind]) -> Iterator[str]:
    for kind in kinds:
        state = state_of(kind.name)
        of_source = kind.name in CHECKS and CHECKS[kind.name].subject == "source"
        shown = "-" if state == "ok" or of_source else f"`{state}`"
        verbs = ", ".join(f"`{verb}`" for verb in kind.verbs) or "none: only the source can repair it"
        tests = ", ".join(f"`{test}`" for test in named_tests(kind.name))
        title = f"{kind.about}: {kind.title}" if kind.about else f"{kind.title[:1].upper()}{kind.title[1:]}"
        yield f"| `{kind.name}` | {title} | {kind.severity} | {shown} | {verbs} | {tests} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
