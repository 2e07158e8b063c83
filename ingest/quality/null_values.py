"""Null values that deleted no row: nothing names their table, or the broker has compacted their delete away.

Debezium sends a delete twice: as a row, and as a null value of the same key, after which the broker may drop all messages
of the key. In a topic that has been compacted, only the null value may be left. It has no place in the source's
order, so it is not a delete; and flattened topics may be set to send no other delete at all. Each null value is compared
with the message of its key before it, in bronze: if that is a row that was not deleted, the row is still in the mirror.

A null value without a key, as in files, names no row. Where deletes are sent as rows, too, there are never more of these values
than deletes before; each further one may be the only word of a delete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from ingest.decoding import json_values
from ingest.errors import Undecodable, agreeing, counted
from ingest.quality.catalogue import Metric
from ingest.quality.sent_messages import SentMessages
from ingest.quality.subjects import Booked
from ingest.tables import duck
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
_JSON_NULL = f"""(octet_length(value) <= {_LONGEST} AND contains(hex(value), '{b"null".hex().upper()}')
    AND (octet_length(value) < 16 OR contains(hex(value), '{b"payload".hex().upper()}')))"""
_MAY_BE_NULL = f"(value IS NULL OR octet_length(value) = 0 OR {_JSON_NULL})"
"""The condition of messages that `_is_null` has to look at."""


class _Told(NamedTuple):
    """What the books have of a source up to a batch: marks, among which null values are, and what may be their deletes."""

    marks: int
    deletes: int


def _told(lake: Tables, names: Iterable[str], last: int) -> dict[str, _Told]:
    """The books of sources up to a batch, in which later replays have not read any reject yet.

    A delete that was rejected, or of a table that the pipeline file excludes, counts as one.
    """
    rows = lake.ask(
        f"""SELECT source, CAST(coalesce(sum(control), 0) AS BIGINT) AS marks, CAST(coalesce(sum(deletes), 0)
            + coalesce(sum(routed_out), 0) + coalesce(sum(rejected), 0) - coalesce(sum(replayed) FILTER (replayed_in <= {last}), 0) AS BIGINT) AS deletes
        FROM {{books}} WHERE {_of_sources(names)} AND batch <= {last} GROUP BY source"""
    )
    return {row["source"]: _Told(row["marks"], row["deletes"]) for row in rows}


def _of_sources(names: Iterable[str]) -> str:
    return f"source IN ({', '.join(map(duck.text, names))})"


def _without_key(
    lake: Tables, messages: SentMessages, names: list[str], since: int, last: int
) -> dict[str, _Nameless]:
    """New null values without a key that are more than the deletes of their source up to them, by source.

    A null value may come batches after its delete. All messages are read only where the new ones need older deletes.
    """
    before, now = _told(lake, names, since), _told(lake, names, last)
    none = _Told(0, 0)
    new_deletes = {name: told.deletes - before.get(name, none).deletes for name, told in now.items()}

    def needs_older(name: str, new: int) -> bool:
        return new > new_deletes[name] and now[name].marks > now[name].deletes

    asked = [name for name in now if needs_older(name, now[name].marks - before.get(name, none).marks)]
    if not asked:
        return {}
    with closing(duck.opened()) as base:
        new = _nulls(messages, base, asked, (since + 1, last))
        asked = [name for name in asked if needs_older(name, new[name].total())]
        if not asked:
            return {}
        old = _nulls(messages, base, asked, (0, since))
    nameless = {}
    for name in asked:
        count = old[name].total()
        lost = max(0, count - before.get(name, none).deletes)
        lost_now = max(0, count + new[name].total() - now[name].deletes)
        if lost_now > lost:
            nameless[name] = _Nameless(lost_now - lost, sorted(new[name] or old[name]))
    return nameless


def _nulls(
    messages: SentMessages, base: DuckDBPyConnection, names: Iterable[str], span: tuple[int, int]
) -> dict[str, Counter[str]]:
    """The number of null values without a key in some batches, by source and topic or file."""
    nulls = {name: Counter[str]() for name in names}
    sent = messages.sent(base, f"marks_from_{span[0]}", "source, topic, key, value", _of_sources(names), span)
    rows = base.execute(
        messages.filled(f"""WITH sent AS ({sent}) SELECT source, topic, value, count(*) FROM sent
        WHERE key IS NULL AND {_MAY_BE_NULL} GROUP BY ALL""")
    ).fetchall()
    for source, topic, value, n in rows:
        if _is_null(value):
            nulls[source][topic] += n
    return nulls


def _is_null(value: bytes | None) -> bool:
    """True of a null value, in whatever way it is written."""
    if not value or json_values.is_null(value):
        return True
    with suppress(Undecodable):
        return json_values.repaired(value, json_values.unwrapped)[0].payload is None
    return False


def _lost(messages: SentMessages, names: list[str], since: int, last: int) -> dict[str, dict[str, int]]:
    """Null values whose row is still there: their number by source and topic."""
    sources = _of_sources(names)
    with closing(duck.opened()) as base:
        new = messages.sent(base, "new", f"{_PLACE}, key, value", sources, (since + 1, last))
        # a delete that was sent as a row comes right before its null value
        base.execute(
            messages.filled(f"""CREATE TEMP TABLE nulls AS
            WITH new AS ({new}), deleted AS (SELECT {_PLACE} FROM {{changes.change}}
                WHERE op = 'delete' AND {sources} AND batch BETWEEN {since} AND {last})
            SELECT source, topic, n."partition", n."offset", n.key, n.value FROM new AS n ANTI JOIN deleted AS d
            ON n.source = d.source AND n.topic = d.topic AND n."partition" = d."partition" AND n."offset" = d."offset" + 1
            WHERE n.key IS NOT NULL AND {_MAY_BE_NULL}""")
        )
        written = base.execute("SELECT DISTINCT value FROM nulls WHERE value IS NOT NULL").fetchall()
        forms = [duck.text(value.hex().upper()) for (value,) in written if _is_null(value)]
        base.execute(
            f"DELETE FROM nulls WHERE NOT list_contains([{', '.join(forms)}]::VARCHAR[], hex(value))"
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
