"""Null values that deleted no row: nothing names their table, or the broker has compacted their delete away.

Debezium sends a delete twice: as a row, and as a null value of the same key, after which the broker may drop all messages
of the key. In a topic that has been compacted, only the null value may be left. It has no place in the source's
order, so it is not a delete; and flattened topics may be set to send no other delete at all. Each null value is compared
with the message of its key before it, in bronze: if that is a row that was not deleted, the row is still in the mirror.

A null value without a key, as in files, names no row. Where deletes are sent as rows, too, there are no more of these values than
deletes; each further one may be the only word of a delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from ingest.decoding import json_values
from ingest.errors import agreeing, counted
from ingest.lake import duck
from ingest.lake.tables import Tables
from ingest.quality.catalogue import Metric
from ingest.quality.sent_messages import SentMessages
from ingest.quality.subjects import Booked

_PLACE = 'source, topic, "partition", "offset"'


def not_deleted(lake: Tables, booked: Mapping[str, Booked], since: int, last: int) -> Iterator[Metric]:
    """The number of such null values of each source that sends any, in the batches after ``since``."""
    names = [
        source.name
        for source in lake.pipeline.sources
        if source.name in booked and booked[source.name].control_ever
        if source.about.null_deletes
    ]
    if not names:
        return
    messages = SentMessages(lake)
    topics_of = {source.name for source in lake.pipeline.sources if source.kind == "kafka"}
    streamed = [name for name in names if name in topics_of]
    lost = _lost(messages, streamed, since, last) if streamed else {}
    nameless = _without_key(lake, messages, names, since, last)
    for name in names:
        topics = lost.get(name, {})
        n, more = sum(topics.values()), nameless.get(name)
        texts = [_sentence(n, topics)] if n else []
        if more is not None:
            texts.append(_of_no_key(more))
            n += more.number
        yield Metric("lost_deletes", n, source=name, detail="; ".join(texts))


def _sentence(n: int, topics: Iterable[str]) -> str:
    return (
        f"{counted(n, 'null value')} in {', '.join(sorted(topics))} deleted no row, though the message before it has the row of "
        "its key: compare these rows with the source, or load the tables again"
    )


class _Nameless(NamedTuple):
    """Null values without a key that are more than the deletes of their source, and where such values are."""

    number: int
    places: list[str]


def _of_no_key(nameless: _Nameless) -> str:
    n, places = nameless
    some = ", ".join(places[:_SHOWN]) + (" and others" if places[_SHOWN:] else "")
    return (
        f"{counted(n, 'null value')} without a key in {some} {agreeing(n, 'names', 'name')} no row, and there are fewer deletes that were sent as "
        f"rows: {agreeing(n, 'it', 'each')} may be a delete of which nothing else came, whose row is still in its mirror; compare the tables with "
        "the source, or load them again"
    )


_SHOWN = 3  # files in a sentence
_LONGEST = 64  # bytes of a null value, with an empty schema around it


def _without_key(
    lake: Tables, messages: SentMessages, names: list[str], since: int, last: int
) -> dict[str, _Nameless]:
    """Null values without a key that are more than the deletes of their source, by source.

    A delete that was rejected, or of a table that the pipeline file excludes, counts as one.
    """
    of_names = f"source IN ({', '.join(map(duck.text, names))})"
    sums = lake.ask(
        f"""SELECT source, CAST(coalesce(sum(control) FILTER (batch > {since}), 0) AS BIGINT) AS marks,
        CAST(sum(deletes + routed_out + rejected) AS BIGINT) AS told
        FROM {{books}} WHERE {of_names} AND batch BETWEEN {since} AND {last} GROUP BY source"""
    )
    told = {row["source"]: row["told"] for row in sums if row["marks"] > row["told"]}
    if not told:
        return {}
    sources = f"source IN ({', '.join(map(duck.text, told))})"
    with closing(duck.opened()) as base:
        new = messages.sent(base, "marks", "source, topic, key, value", sources, (since + 1, last))
        rows = base.execute(
            messages.filled(f"""WITH new AS ({new}) SELECT source, topic, value, count(*) FROM new
            WHERE key IS NULL AND coalesce(octet_length(value), 0) <= {_LONGEST} GROUP BY ALL""")
        ).fetchall()
    nulls = [(source, topic, n) for source, topic, value, n in rows if _is_null(value)]
    nameless = {}
    for name, deletes in told.items():
        count = sum(n for source, _, n in nulls if source == name)
        if count > deletes:
            places = sorted({topic for source, topic, _ in nulls if source == name})
            nameless[name] = _Nameless(count - deletes, places)
    return nameless


def _is_null(value: bytes | None) -> bool:
    """True of a null value, in whatever way it is written."""
    if not value or json_values.is_null(value):
        return True
    document = json_values.peeked(value, json_values.unwrapped)
    return document is not None and document.payload is None


def _lost(messages: SentMessages, names: list[str], since: int, last: int) -> dict[str, dict[str, int]]:
    """Null values whose row is still there: their number by source and topic."""
    sources = f"source IN ({', '.join(map(duck.text, names))})"
    with closing(duck.opened()) as base:
        new = messages.sent(base, "new", f"{_PLACE}, key, value", sources, (since + 1, last))
        # a delete that was sent as a row comes right before its null value
        base.execute(
            messages.filled(f"""CREATE TEMP TABLE nulls AS
            WITH new AS ({new}), deleted AS (SELECT {_PLACE} FROM {{changes.change}}
                WHERE op = 'delete' AND {sources} AND batch BETWEEN {since} AND {last})
            SELECT source, topic, n."partition", n."offset", n.key FROM new AS n ANTI JOIN deleted AS d
            ON n.source = d.source AND n.topic = d.topic AND n."partition" = d."partition" AND n."offset" = d."offset" + 1
            WHERE n.value IS NULL AND n.key IS NOT NULL""")
        )
        null_topics = base.execute("SELECT DISTINCT topic FROM nulls").fetchall()
        if not null_topics:
            return {}
        topics = f"topic IN ({', '.join(duck.text(topic) for (topic,) in null_topics)})"
        sent = messages.sent(base, "sent", f"{_PLACE}, key", f"{sources} AND {topics}", (0, last))
        rows = base.execute(
            messages.filled(f"""WITH sent AS ({sent}),
            changes AS (SELECT {_PLACE}, op, order_key FROM {{changes.change}} WHERE {sources} AND {topics}),
            of_key AS (SELECT n.source, n.topic, n."partition", n.key, n."offset", s."offset" AS at FROM nulls AS n JOIN sent AS s
                ON n.source = s.source AND n.topic = s.topic AND n."partition" = s."partition" AND n.key = s.key),
            judged AS (SELECT k.source, k.topic, k."partition", k.key, k."offset",
                max_by(c.op, k.at) FILTER (k.at < k."offset") AS before, max(c.op) FILTER (k.at > k."offset") AS later,
                max_by(c.order_key, k.at) FILTER (k.at < k."offset") AS place,
                max(c.order_key) FILTER (k.at = k."offset" AND c.op = 'delete') AS own
                FROM of_key AS k JOIN changes AS c ON c.source = k.source AND c.topic = k.topic
                AND c."partition" = k."partition" AND c."offset" = k.at GROUP BY ALL)
            SELECT source, topic, count(DISTINCT ("partition", key)) FROM judged
            WHERE before <> 'delete' AND later IS NULL AND (own IS NULL OR own < place) GROUP BY ALL""")
        ).fetchall()
    by_source: dict[str, dict[str, int]] = {}
    for source, topic, n in rows:
        by_source.setdefault(source, {})[topic] = n
    return by_source
