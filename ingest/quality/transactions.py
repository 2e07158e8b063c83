"""Incomplete transactions: those that name their number of changes, but of which fewer arrived.

Two kinds of messages name that number: the mark that ends a transaction with its ``event_count`` (and, for each table, its
share), and a change that is part ``i/n`` of its set. Both are read from bronze, because marks are not kept as changes.
Parts may arrive a batch later, from other partitions; so a run judges what ended before its newest batch, and the check
of a whole lake judges everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from ingest.errors import counted
from ingest.ledgers import condensed
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.sent_messages import SentMessages
from ingest.quality.subjects import Booked
from ingest.tables import duck
from ingest.tables.lake import Lake

SPAN = 20  # batches over which the parts of one transaction may be spread
_SHARES = '[{"data_collection": "VARCHAR", "event_count": "BIGINT"}]'


def missing(lake: Lake, booked: Mapping[str, Booked], since: int, last: int) -> Iterator[Metric]:
    """Incomplete transactions of each source whose messages show them."""
    marked, numbered = _shown_by(lake, booked)
    if not marked and not numbered:
        return
    messages = SentMessages(lake)
    incomplete: dict[str, tuple[int, list[str]]] = {name: (0, []) for name in (*marked, *numbered)}
    if marked:
        last_condensed = condensed.read(lake).batch if condensed.ever(lake) else 0
        begin = max(since, last_condensed + SPAN + 1 if last_condensed else 0)  # before, changes are missing
        tables = {name: booked[name].tables for name in marked}
        incomplete |= _ask(messages, marked, _ended(begin, last), '"event_count"', _by_marks(tables, begin))
    if numbered:
        span = max(0, since - SPAN), last
        incomplete |= _ask(messages, numbered, span, '"idx"', _by_numbers(_ended(since, last)))
    for name, (n, described) in incomplete.items():
        what = f"{counted(n, 'transaction lacks', 'transactions lack')} changes"
        detail = f"{what}: {'; '.join(described[:FAILING_KEYS])}" if n else ""
        yield Metric("missing_parts", n, source=name, detail=detail)


def _shown_by(lake: Lake, booked: Mapping[str, Booked]) -> tuple[list[str], list[str]]:
    """The sources whose marks count a transaction's changes, and those that number its parts."""
    abouts = {source.name: source.about for source in lake.pipeline.sources if source.name in booked}
    marked = [
        name
        for name, about in abouts.items()
        if booked[name].control_ever and booked[name].tables  # there may be marks, and their tables are known
        if "commit" in about.operations and not about.binary
    ]
    return marked, [name for name, about in abouts.items() if about.numbers_parts]


def _ended(since: int, last: int) -> tuple[int, int]:
    """The batches whose transactions are judged."""
    return (since, last - 1) if since > 0 else (0, last)


def _ask(
    messages: SentMessages, sources: Iterable[str], span: tuple[int, int], word: str, query: str
) -> dict[str, tuple[int, list[str]]]:
    """The number of incomplete sets of each source, with a description of some.

    Args:
        messages: of the lake.
        sources: whose messages are read.
        span: the first and the last batch of these messages.
        word: a text that they contain.
        query: asks ``messages`` (source, batch, text) for sets, once; a text is NULL if it is not JSON.
    """
    wanted = f"source IN ({', '.join(map(duck.text, sources))})"
    with closing(duck.opened()) as base:
        sent = messages.sent(base, "opened", "source, batch, value", wanted, span)
        rows = base.execute(
            messages.filled(_SHORT.format(sent=sent, word=duck.text(word), sets=query))
        ).fetchall()
    return {source: (n, described) for source, n, described in rows}


_SHORT = f"""WITH sent AS ({{sent}}),
messages AS (SELECT source, batch, CASE WHEN json_valid(text) THEN text END AS text
    FROM (SELECT source, batch, TRY(decode(value)) AS text FROM sent) WHERE contains(text, {{word}})),
sets AS ({{sets}})
SELECT source, count(*), list_sort(list(id || ' has ' || came || ' of ' || announced))[1:{FAILING_KEYS}]
FROM sets WHERE came < announced GROUP BY source"""


def _by_marks(tables: Mapping[str, Iterable[str]], since: int) -> str:
    """Compare ends of transactions with the changes that name them; excluded tables are not expected."""
    wanted = duck.listed((name, spelling) for name, table in tables.items() for spelling in table)
    members = ", ".join(
        f"coalesce({_member(f'payload.{member}')}, {_member(member)}) AS {member}"
        for member in ("status", "id", "event_count", "data_collections")
    )
    shares = duck.text(_SHARES)
    return f"""WITH ends AS MATERIALIZED (SELECT source, {members} FROM messages),
    shares AS (SELECT source, id, unnest(coalesce(TRY(json_transform(data_collections, {shares})),
            [{{'data_collection': '*', 'event_count': TRY_CAST(event_count AS BIGINT)}}])) AS share
        FROM ends WHERE status = 'END' AND id IS NOT NULL),
    expected AS (SELECT source, id, max(share.event_count) AS announced FROM shares AS s
        SEMI JOIN (VALUES {wanted}) AS t(name, one)
        ON s.source = t.name AND s.share.data_collection IN (t.one, '*') GROUP BY source, id, share.data_collection),
    came AS (SELECT source, "transaction" AS id, count(*) AS came FROM {{changes.change}}
        WHERE source IN ({", ".join(map(duck.text, tables))}) AND batch >= {since - SPAN} GROUP BY ALL)
    SELECT source, id, e.announced, coalesce(c.came, 0) AS came
    FROM (SELECT source, id, sum(announced) AS announced FROM expected GROUP BY source, id) AS e
    LEFT JOIN came AS c USING (source, id)"""


def _by_numbers(span: tuple[int, int]) -> str:
    """Sets by the numbers of their parts; a writer whose numbers never differ does not count them."""
    return f"""WITH parts AS MATERIALIZED (SELECT source, batch, {_member("meta.trans")} AS id, {_member("meta.scn")} AS scn,
        {_member("meta.idx")} AS idx FROM messages),
    counted AS (SELECT source, id, scn, min(batch) AS first,
        max(TRY_CAST(split_part(idx, '/', 2) AS BIGINT)) AS announced,
        count(DISTINCT TRY_CAST(split_part(idx, '/', 1) AS BIGINT)) AS came
        FROM parts WHERE id IS NOT NULL AND contains(idx, '/') GROUP BY source, id, scn),
    most AS (SELECT source, id, first, announced, came, max(came) OVER (PARTITION BY source) AS most FROM counted)
    SELECT source, id, announced, came FROM most WHERE most > 1 AND first BETWEEN {span[0]} AND {span[1]} AND announced > 0"""


def _member(path: str) -> str:
    return f"json_extract_string(text, '$.{path}')"
