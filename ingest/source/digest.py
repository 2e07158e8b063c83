"""One number for a row, made of the same texts by the source database and by DuckDB over its mirror.

The number is the first 60 bits of an MD5 over the texts of the columns; ranges are compared by the sum of their rows'
numbers, which both sides count exactly.  A text that may hold anything has its length before it, and NULL has a mark
of its own, so two different rows never have one text.

Databases print large and small floating numbers in forms of their own.  Beyond the range in which all print alike,
the two sides put different marks, so such a row always differs here and is compared by its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ingest import types
from ingest.lake import duck
from ingest.lake.mirrors import Column
from ingest.source.database import SourceColumn, SourceDialect

BITS = 60
_LEAST, _MOST = "1e-4", "1e15"  # of a floating number that every database prints with its digits alone


class ComparedColumn(NamedTuple):
    """A column on both sides: its text as SQL of each, and the text that goes into the number."""

    name: str
    delta: str
    source: str
    mirror: str
    source_part: str
    mirror_part: str

    @property
    def is_float(self) -> bool:
        """True if equal values may have different texts."""
        return self.delta in ("FLOAT", "DOUBLE")


def compared(dialect: SourceDialect, column: SourceColumn, mirror: Column) -> ComparedColumn:
    """How a column is compared, in the type that the mirror gives it."""
    name, text = duck.name(mirror.column), f"CAST({duck.name(mirror.column)} AS VARCHAR)"
    source, delta, logical = column.text, mirror.delta, types.base(column.type)
    if delta in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        source = dialect.real_date(column)
    if delta in ("FLOAT", "DOUBLE"):
        return _floating(dialect, column, mirror)
    if delta.startswith("DECIMAL"):
        mine, own = types.decimal_parts(delta.lower()), types.decimal_parts(column.type)
        if mine and mine[1] != (own[1] if own else 0 if types.family(column.type) == "integer" else -1):
            source, text = _bare(source), _bare(text, mirror=True)
    elif delta == "BINARY":
        text = f"base64({name})"
    elif delta == "TIMESTAMP":
        text = f"(replace({text}, ' ', 'T') || 'Z')"
    elif delta == "TIMESTAMP_NTZ" and logical == "date":
        source = f"CASE WHEN {source} IS NOT NULL THEN CONCAT({source}, ' 00:00:00') END"
    elif delta == "STRING" and logical == "time":
        text = _bare(name, mirror=True)
    elif delta == "STRING" and column.declared.lower() == "json":
        source, text = _dense(source), _dense(name)
    elif delta == "STRING":
        text = name
    if delta != "STRING":
        return ComparedColumn(column.name, delta, source, text, _marked(source), _marked(text))
    return ComparedColumn(
        column.name, delta, source, text, _measured(source, "CHAR_LENGTH"), _measured(text, "length")
    )


def _floating(dialect: SourceDialect, column: SourceColumn, mirror: Column) -> ComparedColumn:
    """A floating number, as the double that it is."""
    number, text = dialect.double(column)
    mine = f"CAST({duck.name(mirror.column)} AS DOUBLE)"
    digits = f"CASE WHEN {mine} = trunc({mine}) THEN replace(CAST({mine} AS VARCHAR), '.0', '') ELSE CAST({mine} AS VARCHAR) END"
    return ComparedColumn(
        column.name, mirror.delta, text, f"CAST({mine} AS VARCHAR)", _near(number, text, "?"), _near(mine, digits, "!")
    )  # fmt: skip


def _near(number: str, text: str, else_: str) -> str:
    near = f"{number} = 0 OR (ABS({number}) >= {_LEAST} AND ABS({number}) < {_MOST})"
    return f"CASE WHEN {number} IS NULL THEN '~' WHEN {near} THEN {text} ELSE '{else_}' END"


def _bare(text: str, *, mirror: bool = False) -> str:
    """A text without the zeros at the end of its fraction."""
    cut = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    if mirror:
        cut = f"rtrim(rtrim({text}, '0'), '.')"
    return f"CASE WHEN {text} LIKE '%.%' THEN {cut} ELSE {text} END"


def _dense(text: str) -> str:
    """JSON without the blanks that databases and connectors put between its members, or do not."""
    return f"REPLACE(REPLACE({text}, ': ', ':'), ', ', ',')"


def _marked(text: str) -> str:
    return f"COALESCE({text}, '~')"


def _measured(text: str, length: str) -> str:
    return f"COALESCE({length}({text}), -1), ':', COALESCE({text}, '')"


def joined(parts: Sequence[str]) -> str:
    """SQL of both sides for the text of a row."""
    return f"CONCAT({', '.join([part for one in parts for part in (one, chr(39) + ',' + chr(39))])})"


def mirror_number(text: str) -> str:
    """DuckDB's SQL for the number of a text."""
    return f"('0x' || substr(md5({text}), 1, {BITS // 4}))::UBIGINT"
