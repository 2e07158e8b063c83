"""The rows that are there after changes, in SQL: what the newest change of each key leaves.

Where rows move onto each other's keys, a departure may leave a key its row, because the row that was there before leaves. The
rule is that of `ingest.departures`, by the texts of the images: in one transaction the first departure from a key after a row has
come to it that had one takes the former row, unless its image before is that of the row that has come. Without a transaction it
has to be the next change of the key, and its image that of the former row alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ingest.departures import NO_TRANSACTION
from ingest.tables import duck

IMAGES = f'before, after, CASE WHEN "transaction" NOT IN {NO_TRANSACTION} THEN "transaction" END AS tx'
"""The columns of changes that tell which row leaves a key."""


def selected(keys: Sequence[str | Sequence[str]], place: str = "order_key") -> str:
    """The columns that `live_rows` needs of ``changes``, with the key's columns by their names, or by several spellings each.

    Without a key each change has one of its own.
    """
    key = left_key = "order_key"
    if keys:
        key, left_key = (
            f"[{duck.cells(keys, *images)}]" for images in (("after", "before"), ("before", "after"))
        )
    return f"op, {place} AS place, {IMAGES}, {key} AS k, {left_key} AS left_key"


def live_rows(changes: str, *kept: str) -> str:
    """Common table expressions over changes of one table: ``rows``, ``live`` with ``k``, ``place``, ``op`` and what is kept, and
    ``newest`` with ``k`` and its last change as ``last``, also of keys that were left and of rows that a TRUNCATE has removed;
    ``met_departures`` with ``k``, ``place`` and ``keeps``, of departures from a key to which another row has come before: it may keep that.

    A change of a key deletes what was under the former one, as `ingest.fold.key_of_change` says; a snapshot's row does not.
    Where rows move onto each other's keys, a row that leaves is the former one.

    Args:
        changes: a query that gives ``op``; ``place``, by which changes are ordered; the key ``k`` after the change; the key
            ``left_key`` before it; `IMAGES`; and the columns of ``kept``.
        kept: columns of the newest change.
    """
    sent = "(SELECT * FROM rows WHERE op <> 'truncate') AS sent"
    return f"""rows AS ({changes}),
        {_met_departures()},
        events AS ({under_both_keys(sent, ("place", "op", *kept), {"op": "'delete'"})}),
        written AS (SELECT events.* FROM events
            ANTI JOIN met_departures AS met ON op = 'delete' AND met.keeps AND events.k = met.k AND events.place = met.place),
        newest AS (SELECT k, max(struct_pack({", ".join(("place", "op", *kept))})) AS last FROM written GROUP BY k),
        live AS (SELECT k, last.* FROM newest WHERE last.op <> 'delete'
            AND coalesce(last.place > (SELECT max(place) FROM rows WHERE op = 'truncate'), TRUE))"""


def under_both_keys(
    changes: str, columns: Sequence[str], leaving: Mapping[str, str] = MappingProxyType({})
) -> str:
    """SQL: some columns of changes under the key ``k`` after each, and once more under ``left_key`` where a row leaves another key.

    Args:
        changes: a relation with ``op``, ``k``, ``left_key`` and the columns.
        columns: their names.
        leaving: what some of them are under the key that is left.
    """
    left = ", ".join(f"{leaving.get(column, column)} AS {column}" for column in columns)
    return f"""SELECT k, {", ".join(columns)} FROM {changes}
            UNION ALL SELECT left_key AS k, {left} FROM {changes} WHERE op <> 'read' AND left_key <> k"""


def _met_departures() -> str:
    """Common table expressions, the last of which is ``met_departures``: ``k`` and ``place`` of the departures from a key where rows
    have met, and whether it ``keeps`` the row that has come.

    They ask ``rows``, which has the changes of one table with ``op``; ``place``, by which changes are ordered; the key ``k`` after
    the change; the key ``left_key`` before it; and `IMAGES`.
    """
    in_key, in_transaction = "PARTITION BY k ORDER BY place", "PARTITION BY k, tx ORDER BY place"
    earlier = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    of_former, of_present = (
        f"coalesce(json_contains({image}, image), false)" for image in ("former", "present")
    )
    return f"""reached AS (SELECT k, place, tx, op = 'insert' OR (op = 'update' AND left_key <> k) AS arrives, op = 'delete' AS departs,
            CASE op WHEN 'delete' THEN before ELSE after END AS image FROM rows WHERE op <> 'truncate'
            UNION ALL SELECT left_key, place, tx, false, true, before FROM rows WHERE op IN ('insert', 'update') AND left_key <> k),
        met_keys AS (SELECT k FROM reached GROUP BY k
            HAVING bool_or(departs) AND min(place) FILTER (NOT departs) < max(place) FILTER (arrives)),
        neighbours AS (SELECT *, last_value(CASE WHEN NOT departs THEN image END IGNORE NULLS) OVER ({in_key} {earlier}) AS present,
                lag(arrives) OVER ({in_key}) AND lag(tx) OVER ({in_key}) IS NOT DISTINCT FROM tx AS after_arrival
            FROM reached SEMI JOIN met_keys USING (k) WHERE coalesce(place > (SELECT max(place) FROM rows WHERE op = 'truncate'), true)),
        freed AS (SELECT *, coalesce(lag(departs AND NOT (after_arrival AND NOT {of_present})) OVER ({in_key}), true) AS is_free FROM neighbours),
        meetings AS (SELECT *, CASE WHEN arrives AND NOT is_free AND present <> image THEN present END AS met FROM freed),
        owed AS (SELECT k, place, tx, departs, image, present, CASE WHEN tx IS NULL THEN lag(met) OVER ({in_key})
            WHEN coalesce(max(place) FILTER (met IS NOT NULL) OVER ({in_transaction})
                > max(place) FILTER (departs) OVER ({in_transaction} {earlier}), true)
                OR last_value(CASE WHEN departs THEN image END IGNORE NULLS) OVER ({in_transaction} {earlier}) = image
            THEN last_value(met IGNORE NULLS) OVER ({in_transaction}) END AS former FROM meetings),
        met_departures AS (SELECT k, place,
            CASE WHEN tx IS NULL THEN {of_former} AND NOT {of_present} ELSE {of_former} OR NOT {of_present} END AS keeps
            FROM owed WHERE departs AND former IS NOT NULL)"""
