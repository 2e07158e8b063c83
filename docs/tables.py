"""Write the reference of the product's own tables, docs/tables.md: ``python -m docs.tables``.

Columns, types and what their COMMENT says come from `ingest.tables.schemas`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docs.marks import cell
from ingest.tables.schemas import ALL, TableSchema

PAGE = Path(__file__).parent / "tables.md"

_COLUMN = re.compile(r"`?(\w+)`? ((?:[A-Z]+)(?:<(?:[^<>]|<[^<>]*>)*>)?)(?: COMMENT '((?:[^']|'')*)')")
_HEAD = """\
# The product's own tables

Written by `python -m docs.tables` from the tables' definitions. All are Delta tables in the lake's folder; query them by
name with `ingest sql`. Their columns may become more, never fewer; JSON is text, read with your engine's JSON functions.
The mirrors are not listed here: they have the columns of their source tables and nothing else.
"""


def columns(schema: TableSchema) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each column."""
    for name, kind, comment in _COLUMN.findall(schema.ddl):
        yield name, kind, comment.replace("''", "'")


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(schema) for schema in ALL)])


def _section(schema: TableSchema) -> str:
    rows = [f"| `{name}` | {kind} | {cell(meaning)} |" for name, kind, meaning in columns(schema)]
    lines = [f"## {schema.name}", "", schema.about, "", "| column | type | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
