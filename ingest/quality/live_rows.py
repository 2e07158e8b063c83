"""The rows that are there after changes, in SQL: what the newest change of each key leaves."""

from __future__ import annotations


def live_rows(changes: str, *kept: str) -> str:
    """Common table expressions over changes of one table: ``rows``, ``live`` with ``k``, ``place``, ``op`` and what is kept, and
    ``newest`` with ``k`` and its last change as ``last``, also of keys that were left and of rows that a TRUNCATE has removed.

    A change of a key deletes what was under the former one, as `ingest.fold.key_of_change` says; a snapshot's row does not.

    Args:
        changes: a query that gives ``op``; ``place``, by which changes are ordered; the key ``k`` after the change; the key
            ``left_key`` before it; and the columns of ``kept``.
        kept: columns of the newest change.
    """
    columns = "".join(f", {column}" for column in kept)
    return f"""rows AS ({changes}),
        written AS (SELECT k, place, op{columns} FROM rows WHERE op <> 'truncate'
            UNION ALL SELECT left_key AS k, place, 'delete' AS op{columns} FROM rows WHERE op <> 'read' AND left_key <> k),
        newest AS (SELECT k, max(struct_pack({", ".join(("place", "op", *kept))})) AS last FROM written GROUP BY k),
        live AS (SELECT k, last.* FROM newest WHERE last.op <> 'delete'
            AND coalesce(last.place > (SELECT max(place) FROM rows WHERE op = 'truncate'), TRUE))"""
