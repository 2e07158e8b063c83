"""Null values that deleted no row: nothing names their table, or the broker has compacted their delete away.

Debezium sends a delete twice: as a row, and as a null value of the same key, after which the broker may drop all messages
of the key. In a topic that has been compacted, only the null value may be left. It has no place in the source's
order, so it is not a delete; and flattened topics may be set to send no other delete at all. Each null value is compared
with the message of its key before it, in bronze: if that is a row that was not deleted, the row is still in the mirror.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from ingest.errors import counted
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
        if source.kind == "kafka" and source.name in booked and booked[source.name].control_ever
        if source.about.null_deletes
    ]
    if not names:
        return
    lost = _lost(SentMessages(lake), names, since, last)
    for name in names:
        topics = lost.get(name, {})
        n = sum(topics.values())
        yield Metric("lost_deletes", n, source=name, detail=_sentence(n, topics) if n else "")


def _sentence(n: int, topics: Iterable[str]) -> str:
    return (
        f"{counted(n, 'null value')} in {', '.join(sorted(topics))} deleted no row, though the message before it has the row of "
        "its key: compare these rows with the source, or load the tables again"
    )


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
