"""Incomplete transactions: those that name their number of changes, and of which fewer arrived.

Two kinds of messages name it: the mark that ends a transaction with its ``event_count`` (and, for each table, its
share), and a change that is part ``i/n`` of its set. Both are read from bronze, because marks are not kept as changes.
Parts may arrive a batch later, from other partitions; so a run judges what ended before its newest batch, and the check
of a whole lake judges everything.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping

from pyspark.sql import functions as F

from ingest import formats
from ingest.errors import counted
from ingest.lake import condensed, sealing
from ingest.lake.envelope import COLUMNS, Opener
from ingest.lake.lake import Lake
from ingest.lake.names import literal
from ingest.lake.schemas import BRONZE, CHANGES
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.subjects import Booked

SPAN = 20  # batches over which the parts of one transaction may be spread
_NUMBERED = "meta.seq"  # occurs in the order keys of dialects whose messages number the parts of their set
_SHARES = "ARRAY<STRUCT<data_collection: STRING, event_count: BIGINT>>"


def missing(lake: Lake, booked: Mapping[str, Booked], since: int, last: int) -> Iterator[Metric]:
    """Incomplete transactions of each source whose messages show them."""
    known = {
        source.name: formats.load(source.format).ABOUT
        for source in lake.pipeline.sources
        if source.name in booked
    }
    marked = [
        name
        for name, about in known.items()
        if booked[name].control_ever and booked[name].tables  # there may be marks, and their tables are known
        if "commit" in about.operations and not about.binary
    ]
    numbered = [name for name, about in known.items() if _NUMBERED in about.order]
    if not marked and not numbered:
        return
    opener = sealing.opener(lake)
    bronze = _opened(lake, opener, since, last) if opener.spans else lake.named(BRONZE.name)
    asked = []
    if marked:
        last_condensed = condensed.read(lake).batch if condensed.ever(lake) else 0
        begin = max(since, last_condensed + SPAN + 1 if last_condensed else 0)  # before, changes are missing
        tables = {name: booked[name].tables for name in marked}
        asked.append(_by_marks(lake, bronze, tables, begin, _batches(begin, last)))
    if numbered:
        asked.append(_by_numbers(bronze, numbered, since, last, _batches(since, last)))
    found: dict[str, tuple[int, list[str]]] = {name: (0, []) for name in (*marked, *numbered)}
    try:
        for row in lake.spark.sql(" UNION ALL ".join(asked)).collect():
            found[row["source"]] = (row["n"], sorted(json.loads(row["listed"])))
    finally:
        if opener.spans:
            lake.spark.catalog.dropTempView(bronze)
    for name, (n, some) in found.items():
        what = f"{counted(n, 'transaction')} {'lacks' if n == 1 else 'lack'} changes"
        detail = f"{what}: {'; '.join(some[:FAILING_KEYS])}" if n else ""
        yield Metric("missing_parts", n, source=name, detail=detail)


def _opened(lake: Lake, opener: Opener, since: int, last: int) -> str:
    """A temporary view of the messages in question as they were sent, without those that nothing can open any more."""
    first = max(0, since - SPAN)
    messages = lake.read(BRONZE.name).where(
        (F.col("kind") == "message") & F.col("batch").between(first, last)
    )
    wanted = sealing.readable(opener, messages)
    sealing.refuse_unreadable_rows(opener, wanted)
    columns = ", ".join(f"`{name}` {BRONZE.types[name]}" for name in COLUMNS)
    view = f"_opened_{uuid.uuid4().hex}"
    opened = wanted.select(*COLUMNS).mapInArrow(opener.batches, columns)
    opened.withColumn("kind", F.lit("message")).createTempView(view)
    return view


def _batches(since: int, last: int) -> str:
    return f"BETWEEN {since} AND {last - 1}" if since > 0 else f"<= {last}"


def _by_marks(lake: Lake, bronze: str, tables: Mapping[str, Iterable[str]], since: int, batches: str) -> str:
    """Compare ends of transactions with the changes that name them; excluded tables are not expected."""
    wanted = ", ".join(f"({literal(name)}, {literal(one)})" for name, some in tables.items() for one in some)
    names = ", ".join(map(literal, tables))
    member = "coalesce(get_json_object(text, '$.payload.{0}'), get_json_object(text, '$.{0}')) AS {0}"
    members = ", ".join(member.format(one) for one in ("status", "id", "event_count", "data_collections"))
    ends = (
        f"SELECT source, {members} FROM (SELECT source, CAST(value AS STRING) AS text "
        f"FROM {bronze} WHERE kind = 'message' AND source IN ({names}) AND batch {batches} "
        "AND contains(CAST(value AS STRING), '\"event_count\"'))"
    )
    shares = (
        "SELECT source, id, explode(coalesce(from_json(data_collections, '" + _SHARES + "'), "
        "array(named_struct('data_collection', '*', 'event_count', CAST(event_count AS BIGINT))))) AS share "
        f"FROM ({ends}) WHERE status = 'END' AND id IS NOT NULL"
    )
    expected = (
        f"SELECT s.source, s.id, max(s.share.event_count) AS announced FROM ({shares}) s "
        f"LEFT SEMI JOIN (VALUES {wanted}) t(source, name) ON s.source = t.source "
        "AND (s.share.data_collection = t.name OR s.share.data_collection = '*') "
        "GROUP BY s.source, s.id, s.share.data_collection"
    )
    came = (
        f"SELECT source, transaction AS id, count(*) AS came FROM {lake.named(CHANGES.name)} WHERE "
        f"kind = 'change' AND source IN ({names}) AND batch >= {since - SPAN} GROUP BY source, transaction"
    )
    return _short(
        f"SELECT e.source, e.id, e.announced, coalesce(c.came, 0) AS came FROM (SELECT source, id, "
        f"sum(announced) AS announced FROM ({expected}) GROUP BY source, id) e LEFT JOIN ({came}) c "
        "ON e.source = c.source AND e.id = c.id"
    )


def _by_numbers(bronze: str, sources: Iterable[str], since: int, last: int, batches: str) -> str:
    """Sets by the numbers of their parts; a writer whose numbers never differ does not count them."""
    names = ", ".join(map(literal, sources))
    parts = (
        "SELECT source, batch, get_json_object(text, '$.meta.trans') AS id, "
        "get_json_object(text, '$.meta.scn') AS scn, get_json_object(text, '$.meta.idx') AS idx FROM ("
        f"SELECT source, batch, CAST(value AS STRING) AS text FROM {bronze} WHERE "
        f"kind = 'message' AND source IN ({names}) AND batch BETWEEN {since - SPAN} AND {last})"
    )
    sets = (
        "SELECT source, id, scn, min(batch) AS first, max(TRY_CAST(split_part(idx, '/', 2) AS BIGINT)) AS announced, "
        "count(DISTINCT TRY_CAST(split_part(idx, '/', 1) AS BIGINT)) AS came "
        f"FROM ({parts}) WHERE id IS NOT NULL AND idx LIKE '%/%' GROUP BY source, id, scn"
    )
    counting = f"SELECT *, max(came) OVER (PARTITION BY source) AS most FROM ({sets})"
    return _short(
        f"SELECT source, id, announced, came FROM ({counting}) WHERE most > 1 AND first {batches} AND announced > 0"
    )


def _short(sets: str) -> str:
    """The number of incomplete sets of each source, with a description of some."""
    words = "concat(id, ' has ', CAST(came AS STRING), ' of ', CAST(announced AS STRING))"
    return (
        f"SELECT source, count(*) AS n, to_json(slice(array_sort(collect_list({words})), 1, {FAILING_KEYS})) "
        f"AS listed FROM ({sets}) WHERE came < announced GROUP BY source"
    )
