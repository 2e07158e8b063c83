"""Compare the source's own row counts, from an exported file, with the rows of the mirrors."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ingest.change import TableId
from ingest.config import Pipeline, QualityRule, matches, scalars
from ingest.errors import counted
from ingest.quality.catalogue import ERROR, CheckResult, Metric
from ingest.quality.subjects import CheckedMirror

NAME = "row_count"


def compared(
    pipeline: Pipeline,
    chosen: Iterable[CheckedMirror],
    rows: Mapping[str | None, int],
    names_of_mirrors: Container[str],
) -> tuple[list[Metric], list[CheckResult]]:
    """Each mirror's difference to its source's count, and what could not be compared.

    Args:
        pipeline: its ``quality:`` entries name the files.
        chosen: the mirrors that are checked.
        rows: the rows of their source tables by their own account, by name; one with a condition may be missing.
        names_of_mirrors: of all: a counted table that is not among them is missing.
    """
    metrics: list[Metric] = []
    broken: list[CheckResult] = []
    subjects = {subject.name: subject for subject in chosen}
    for rule in pipeline.quality:
        if not rule.source_counts:
            continue
        try:
            counts = read(Path(rule.source_counts))
        except ValueError as error:
            about = [subject.name for subject in subjects.values() if matches(rule.table, subject.table)]
            broken += [
                CheckResult(Metric(NAME, 0.0, name, detail=str(error)), ERROR)
                for name in about or [rule.table]
            ]
            continue
        metrics += _metrics(rule, counts, subjects, rows, names_of_mirrors)
    return metrics, broken


def _metrics(
    rule: QualityRule,
    counts: Mapping[str, int],
    subjects: Mapping[str, CheckedMirror],
    rows: Mapping[str | None, int],
    names_of_mirrors: Container[str],
) -> Iterator[Metric]:
    for table, expected in counts.items():
        subject = subjects.get(table)
        if subject is None:
            if table not in names_of_mirrors and matches(rule.table, _table(table)):
                yield Metric(
                    NAME,
                    expected,
                    table,
                    detail=f"the source counts {counted(expected, 'row')}, there is no mirror",
                )
        elif matches(rule.table, subject.table) and not subject.decided.soft:
            leaves_out = subject.decided.where
            if leaves_out and subject.name not in rows:
                continue
            held = rows.get(subject.name, 0)
            detail = f"the source counts {counted(expected, 'row')}, the mirror has {held:,}"
            detail += " with those that `where:` leaves out" if leaves_out else ""
            yield Metric(NAME, abs(held - expected), table, detail=detail)


def _table(name: str) -> TableId:
    """The table that a file of counts names; a missing database is accepted."""
    try:
        return scalars.table(name)
    except ValueError:
        return TableId(None, None, name)


def read(file: Path) -> dict[str, int]:
    """Rows by table, from CSV with a head line ``table,rows``, or JSON: an object, or a list of objects.

    Raises:
        ValueError: one sentence about what is wrong with the file.
    """
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"the row counts {file} cannot be read: {reason}") from None
    listed = list(_json(file, text) if text.lstrip()[:1] in ("{", "[") else _csv(file, text))
    by_table: dict[str, int] = {}
    for place, table, rows in listed:
        if not table or not str(rows).strip().isdecimal():
            raise ValueError(
                f"{file}, {place}: a table's name and a whole number of rows belong here, not {table!r} and {rows!r}"
            )
        by_table[table] = int(str(rows).strip())
    return by_table


def _csv(file: Path, text: str) -> Iterator[tuple[str, str, Any]]:
    lines = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    if not {"table", "rows"} <= set(lines.fieldnames or ()):
        raise ValueError(f"the row counts {file} begin with no line that names the columns table,rows")
    for line in lines:
        yield f"line {lines.line_num}", (line["table"] or "").strip(), line["rows"]


def _json(file: Path, text: str) -> Iterator[tuple[str, str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the row counts {file} are not JSON: {error}") from None
    if isinstance(document, dict):
        yield from ((f"member {table!r}", table, rows) for table, rows in document.items())
        return
    for i, entry in enumerate(document, 1):
        given = entry if isinstance(entry, dict) else {}
        yield f"entry {i}", str(given.get("table") or ""), given.get("rows")
