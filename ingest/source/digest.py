"""One number for a row, made of the same texts by the source database and by DuckDB over its mirror.

The number is the first 60 bits of an MD5 over the texts of the columns; ranges are compared by the sum of their rows'
numbers, which both sides count exactly.  A text that may hold anything has its length before it, and NULL has a mark
of its own, so two different rows never have one text.  Where the database bounds the text of a row, texts that may hold
anything go in as their MD5.  Columns are joined in groups, whose MD5s are joined again: databases bound the number of
a function's arguments.

Databases print large and small floating numbers in forms of their own.  A database that gives the bits of a number is
compared by these.  With others, beyond the range in which all print alike, both sides take the number's digits and the
place of its point out of what they print (`digits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ingest import types
from ingest.ledgers.mirrors import Column
from ingest.source.database import SourceColumn, SourceDialect, concat_call
from ingest.source.reconciled import RowKey
from ingest.tables import duck
from ingest.values import float_text

BITS = 60
_TOGETHER = 24  # columns; each takes up to four of the 100 arguments of PostgreSQL's functions
_LEAST, _MOST = "1e-4", "1e15"  # of a floating number that every database prints with its digits alone
_NOT_A_NUMBER = "7FF8000000000000"  # the bits of the one that databases and Delta write


class ComparedColumn(NamedTuple):
    """A column on both sides: its text as SQL of each, and the text that goes into the number."""

    name: str
    delta: str
    source: str
    mirror: str
    source_part: str
    mirror_part: str
    sent: str = ""  # SQL for the source's own text, if it has one where ``source`` is NULL: a date of zeros
    is_key: bool = False

    @property
    def is_float(self) -> bool:
        """True if the two sides print equal values in forms of their own."""
        return self.delta in ("FLOAT", "DOUBLE")

    def canonical(self, text: str | None) -> str | None:
        """The one text of a value that one of the two sides has printed: in a key the two zeros are one."""
        if text is None or not self.is_float:
            return text
        canonical = float_text(float(text))
        return "0.0" if self.is_key and canonical == "-0.0" else canonical


def row_key(keys: Sequence[ComparedColumn], texts: Sequence[str | None]) -> RowKey:
    """The key of a row by which both sides know it, from the texts that one of them has printed."""
    return tuple(key.canonical(text) for key, text in zip(keys, texts, strict=True))


def compared(
    dialect: SourceDialect, column: SourceColumn, mirror: Column, *, is_key: bool = False
) -> ComparedColumn:
    """How a column is compared, in the type that the mirror gives it; one of the mirror's key has one zero."""
    delta = mirror.delta
    if delta in ("FLOAT", "DOUBLE"):
        return _floating(dialect, column, mirror, is_key=is_key)
    source, sent = column.text, ""
    if delta in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        source = dialect.real_date(column)
        sent = column.text if source != column.text else ""
    source, text = _alike(dialect, column, mirror, source)
    # what goes into the checksums of a range
    in_source, in_mirror = _marked(source), _marked(text)
    if delta in ("STRING", "BINARY") and dialect.BOUNDED_TEXTS:
        in_source = _marked(dialect.md5(source, binary=delta == "BINARY"))
        in_mirror = _marked(f"md5({duck.name(mirror.column) if delta == 'BINARY' else text})")
    elif delta == "STRING":
        in_source, in_mirror = _measured(source, "CHAR_LENGTH"), _measured(text, "length")
    return ComparedColumn(column.name, delta, source, text, in_source, in_mirror, sent, is_key)


def _alike(dialect: SourceDialect, column: SourceColumn, mirror: Column, source: str) -> tuple[str, str]:
    """SQL for the source and for the mirror that prints equal values alike; ``source`` prints the source's."""
    name, delta = duck.name(mirror.column), mirror.delta
    text, logical = f"CAST({name} AS VARCHAR)", types.base(column.type)
    if delta.startswith("DECIMAL") and _has_other_scale(column, delta):
        return _bare(dialect, source), _bare_here(text)
    if delta == "BINARY":
        return source, f"base64({name})"
    if delta == "TIMESTAMP":
        return source, f"(replace({text}, ' ', 'T') || 'Z')"
    if delta == "TIMESTAMP_NTZ" and logical == "date":
        return f"CASE WHEN {source} IS NOT NULL THEN CONCAT({source}, ' 00:00:00') END", text
    if delta != "STRING":
        return source, text
    if logical == "time":
        return source, _bare_here(name)
    if column.type == "decimal":  # without a scale vendors write zeros as they like
        return _bare(dialect, source), _bare_here(f"regexp_replace({name}, '^(-?)[.]', '\\10.')")
    if dialect.SPACES_JSON and column.declared.lower() == "json":
        return source, _spaced_json(name)
    return source, name


def _has_other_scale(column: SourceColumn, delta: str) -> bool:
    """True if the source prints other digits after the point than a mirror's decimal has."""
    mirrored, declared = types.decimal_parts(delta.lower()), types.decimal_parts(column.type)
    if mirrored is None:
        return False
    if declared is None:
        return types.family(column.type) != "integer" or mirrored[1] != 0
    return mirrored[1] != declared[1]


def _floating(
    dialect: SourceDialect, column: SourceColumn, mirror: Column, *, is_key: bool
) -> ComparedColumn:
    """A floating number, as the double that it is; databases and mirrors take the two zeros for one key."""
    number, text = dialect.double(column)
    number_here = f"CAST({duck.name(mirror.column)} AS DOUBLE)"
    shown = f"CAST({number_here} AS VARCHAR)"
    if bits := dialect.bits(column):
        bits_here = f"hex(CAST(CAST({number_here} AS BIT) AS BLOB))"
        in_source, in_mirror = (
            _marked(bits),
            _marked(f"CASE WHEN isnan({number_here}) THEN '{_NOT_A_NUMBER}' ELSE {bits_here} END"),
        )
    else:
        plain = (
            f"CASE WHEN {number_here} = trunc({number_here}) THEN replace({shown}, '.0', '') ELSE {shown} END"
        )
        in_source, in_mirror = _printed(number, text, text), _printed(number_here, plain, shown)
    if is_key:
        in_source = f"CASE WHEN {number} = 0 THEN '0' ELSE {in_source} END"
        in_mirror = f"CASE WHEN {number_here} = 0 THEN '0' ELSE {in_mirror} END"
    return ComparedColumn(column.name, mirror.delta, text, shown, in_source, in_mirror, is_key=is_key)


def _printed(number: str, plain: str, text: str) -> str:
    """A floating number by what is printed of it: as it is where every database prints the digits alone."""
    near = f"{number} = 0 OR (ABS({number}) >= {_LEAST} AND ABS({number}) < {_MOST})"
    return f"CASE WHEN {number} IS NULL THEN '~' WHEN {near} THEN {plain} ELSE {digits(text)} END"


def digits(text: str) -> str:
    """SQL for the digits of a printed floating number and the place of its point: one text for ``1e20``, ``1e+20`` and
    ``100000000000000000000``.

    It is the SQL of MySQL and of DuckDB.
    """
    mantissa = f"REPLACE(LEFT({text}, POSITION('e' IN CONCAT({text}, 'e')) - 1), '-', '')"
    exponent = f"CAST(SUBSTR({text}, POSITION('e' IN {text}) + 1) AS DECIMAL(4, 0))"
    whole = f"POSITION('.' IN CONCAT({mantissa}, '.')) - 1"
    written = f"REPLACE({mantissa}, '.', '')"
    counted = f"TRIM(LEADING '0' FROM {written})"
    point = f"{whole} - LENGTH({written}) + LENGTH({counted}) + CASE WHEN {text} LIKE '%e%' THEN {exponent} ELSE 0 END"
    sign = f"CASE WHEN {text} LIKE '-%' THEN '-' ELSE '' END"
    return f"CONCAT({sign}, TRIM(TRAILING '0' FROM {counted}), 'e', {point})"


def _bare(dialect: SourceDialect, text: str) -> str:
    """A text without the zeros at the end of its fraction, in the source."""
    return f"CASE WHEN {text} LIKE '%.%' THEN {dialect.trimmed(text)} ELSE {text} END"


def _bare_here(text: str) -> str:
    """The same in DuckDB."""
    return f"CASE WHEN {text} LIKE '%.%' THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"


def _spaced_json(text: str) -> str:
    """JSON with one space after each colon and comma, and none elsewhere but within strings, in DuckDB.

    A comma at the end lets the pattern reach it, so that it never begins within a string.
    """
    string = r'"(?:[^"\\]|\\.)*"'
    bare = rf"regexp_replace({text}, '({string}|[^\s\"])\s*', '\1', 'g')"
    spaced = rf"regexp_replace(trim({bare}) || ',', '((?:{string}|[^\",:])*)([,:])', '\1\2 ', 'g')"
    return f"left({spaced}, -2)"


def _marked(text: str) -> str:
    return f"COALESCE({text}, '~')"


def _measured(text: str, length: str) -> str:
    return f"COALESCE({length}({text}), -1), ':', COALESCE({text}, '')"


def source_text(dialect: SourceDialect, parts: Sequence[str]) -> str:
    """SQL of the source for the text of a row."""
    return _joined(parts, dialect.concat, dialect.md5)


def mirror_text(parts: Sequence[str]) -> str:
    """SQL of DuckDB for the text of a row."""
    return _joined(parts, concat_call, lambda text: f"md5({text})")


def _joined(parts: Sequence[str], concat: Callable[[Sequence[str]], str], md5: Callable[[str], str]) -> str:
    while len(parts) > _TOGETHER:
        groups = [parts[first : first + _TOGETHER] for first in range(0, len(parts), _TOGETHER)]
        parts = [md5(_joined(group, concat, md5)) for group in groups]
    return concat([part for text_part in parts for part in (text_part, "','")])


def mirror_number(text: str) -> str:
    return f"('0x' || substr(md5({text}), 1, {BITS // 4}))::UBIGINT"
