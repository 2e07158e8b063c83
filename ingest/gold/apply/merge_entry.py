"""What a mirror's commit says of itself in the table's log, in Delta's words: `DESCRIBE HISTORY` reads like that of any
table that a MERGE maintains.

Names and forms are those that delta-spark 4.4.0 writes for `DeltaTable.merge` and CREATE TABLE AS SELECT (its
DeltaOperations and MergeIntoMetrics). The mirror is ``t`` in predicates, and the outcomes of the changes are ``s``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import NamedTuple

from ingest.gold.fold.arrow_merge import Effort
from ingest.gold.fold.arrow_work import MirrorWork
from ingest.store.names import quoted
from ingest.tables.commits import NewRows
from ingest.tables.delta import DataFile, Snapshot

CREATE, REPLACE = "CREATE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT"
_GONE = "s.`%gone`"


class Entry(NamedTuple):
    """An operation of a table's history."""

    operation: str
    parameters: Mapping[str, str | None]
    metrics: Mapping[str, str]


def entry(
    work: MirrorWork, before: Snapshot, rows: NewRows, counts: Mapping[str, int], effort: Effort
) -> Entry:
    """The history's entry for a mirror's batch.

    A table without a key has nothing to match rows by: its rows are written.

    Args:
        work: the mirror's part of the batch.
        before: its table before the commit.
        rows: what the commit changes.
        counts: the rows that are inserted, updated, deleted and written.
        effort: what the merge took.
    """
    if not before.exists or (work.again and work.keys):
        properties = (before.meta or rows.meta).get("configuration") or {}
        parameters = {
            "partitionBy": "[]", "clusterBy": "[]", "description": rows.meta.get("description"),
            "isManaged": "false", "properties": json.dumps(properties, separators=(",", ":")),
        }  # fmt: skip
        return Entry(REPLACE if before.exists else CREATE, parameters, _written(before, rows, counts))
    if not work.keys:
        mode = {"mode": "Overwrite" if rows.replaces else "Append", "partitionBy": "[]"}
        return Entry("WRITE", mode, _written(before, rows, counts))
    return Entry("MERGE", _clauses(work, effort), _merged(before, rows, counts, effort))


def _clauses(work: MirrorWork, effort: Effort) -> dict[str, str | None]:
    """A MERGE's parameters; rows without an outcome are deleted where a truncate cleared the table."""
    key_columns = work.key_columns
    keys = [quoted(name) for name in key_columns]
    on = " AND ".join(f"(t.{name} = s.{name})" for name in keys)
    if work.states:  # the states of a key are replaced
        return {
            "predicate": _json([f"(({_GONE}) AND {on})"]),
            "matchedPredicates": _json([{"actionType": "delete"}]),
            "notMatchedPredicates": _json([_action("insert", f"NOT {_GONE}")]),
            "notMatchedBySourcePredicates": "[]",
        }
    rest = [quoted(column.column) for column in work.columns if column.column not in key_columns]
    differs = " OR ".join(f"(NOT (t.{name} <=> s.{name}))" for name in rest)
    matched = [_action("delete", _GONE)] + ([_action("update", differs)] if rest else [])
    return {
        "predicate": _json([f"({on})" if len(keys) > 1 else on]),
        "matchedPredicates": _json(matched),
        "notMatchedPredicates": _json([_action("insert", f"NOT {_GONE}")]),
        "notMatchedBySourcePredicates": _json(
            [{"actionType": action} for action in _without_outcome(effort)]
        ),
    }


def _without_outcome(effort: Effort) -> list[str]:
    """What is done to rows without an outcome."""
    done = {"delete": effort.cleared, "update": effort.filled}
    return [action for action, rows in done.items() if rows]


def _action(kind: str, predicate: str) -> dict[str, str]:
    return {"predicate": predicate, "actionType": kind}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _merged(before: Snapshot, rows: NewRows, counts: Mapping[str, int], effort: Effort) -> dict[str, str]:
    touched = [file for file in before.files if file.place in rows.vectors]
    emptied = [file for file in touched if _is_emptied(file, rows)]
    removed = [*_replaced(before, rows), *emptied]
    marked = [file for file in touched if file not in emptied]
    had = [file for file in marked if file.vector]
    inserted, updated, deleted = (counts.get(name, 0) for name in ("inserted", "updated", "deleted"))
    return _texts(
        numSourceRows=effort.sources,
        numTargetRowsInserted=inserted,
        numTargetRowsUpdated=updated,
        numTargetRowsMatchedUpdated=updated - effort.filled,
        numTargetRowsNotMatchedBySourceUpdated=effort.filled,
        numTargetRowsDeleted=deleted,
        numTargetRowsMatchedDeleted=deleted - effort.cleared,
        numTargetRowsNotMatchedBySourceDeleted=effort.cleared,
        numTargetRowsCopied=effort.copied,
        numOutputRows=counts.get("written", 0),
        numTargetFilesAdded=len(rows.files),
        numTargetBytesAdded=sum(file.size for file in rows.files),
        numTargetFilesRemoved=len(removed),
        numTargetBytesRemoved=sum(file.size for file in removed),
        numTargetDeletionVectorsAdded=len(marked),
        numTargetDeletionVectorsUpdated=len(had),
        numTargetDeletionVectorsRemoved=len(had) + sum(bool(file.vector) for file in removed),
        numTargetChangeFilesAdded=0,
        executionTimeMs=effort.fold_ms + effort.scan_ms + effort.write_ms,
        materializeSourceTimeMs=effort.fold_ms,
        scanTimeMs=effort.scan_ms,
        rewriteTimeMs=effort.write_ms,
    )


def _written(before: Snapshot, rows: NewRows, counts: Mapping[str, int]) -> dict[str, str]:
    removed = _replaced(before, rows)
    return _texts(
        numFiles=len(rows.files),
        numOutputRows=counts.get("written", 0),
        numOutputBytes=sum(file.size for file in rows.files),
        numRemovedFiles=len(removed),
        numRemovedBytes=sum(file.size for file in removed),
    )


def _replaced(before: Snapshot, rows: NewRows) -> list[DataFile]:
    """The files of which the new ones have taken over the rows."""
    return [file for file in before.files if rows.replaces and file.place not in rows.marked]


def _is_emptied(file: DataFile, rows: NewRows) -> bool:
    """True if a new deletion vector leaves no row of a file."""
    return file.rows is not None and rows.vectors[file.place]["cardinality"] == file.rows + file.deleted


def _texts(**numbers: int) -> dict[str, str]:
    return {name: str(number) for name, number in numbers.items()}


def total(efforts: Iterable[Effort]) -> Effort:
    """The sum of what the parts of a merge took."""
    return Effort(*map(sum, zip(*map(astuple, efforts), strict=True)))
