"""Change feeds: their paths, names and columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping

from ingest.ledgers import mirrors
from ingest.ledgers.mirrors import Mirror
from ingest.store.names import FEEDS, MIRRORS
from ingest.tables.schemas import TableSchema
from ingest.tables.tables import Tables

STAGE = "feed"
SUFFIX = "__changes"
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_DDL = """
    number BIGINT COMMENT 'its place in the feed: every later row has a greater one',
    batch BIGINT COMMENT 'the batch that the mirror then contained',
    operation STRING COMMENT 'insert, update or delete',
    before STRING COMMENT 'the mirror''s row before, as a JSON object of texts; NULL for an insert',
    after STRING COMMENT 'the mirror''s row after; NULL for a delete',
    transaction STRING COMMENT 'the source''s transaction of the last change of the row''s key in the batch, if known',
    event_time TIMESTAMP COMMENT 'the time of that change at the source, if known'
"""


def path_of(mirror: Mirror) -> str:
    """The path of a mirror's feed under the lake."""
    return FEEDS + mirror.path.removeprefix(MIRRORS)


def table_of(mirror: Mirror) -> Mirror:
    """The feed as a table that queries can name."""
    name = mirror.table._replace(table=f"{mirror.table.table}{SUFFIX}")
    return Mirror(name, path_of(mirror))


def schema_of(mirror: Mirror) -> TableSchema:
    """The feed's columns."""
    return TableSchema(
        path_of(mirror), "one row of a mirror that a batch has changed", _DDL, statistics="number,batch"
    )


def existing(lake: Tables, mirrors: Iterable[Mirror]) -> list[Mirror]:
    if not any(rule.changes_of for rule in lake.pipeline.every_rule):
        return []
    return [feed for mirror in mirrors if _is_there((feed := table_of(mirror)), lake)]


def _is_there(feed: Mirror, lake: Tables) -> bool:
    """True of a feed that has begun, also of one whose log cannot be read: whoever opens it says why."""
    try:
        return lake.exists(feed.path)
    except Exception:
        return True


def wanted(lake: Tables, mirrors_by_path: Mapping[str, Mirror]) -> list[Mirror]:
    """The mirrors that have a feed by their rules in a view of the lake."""
    if not mirrors_by_path or not any(rule.changes_of for rule in lake.pipeline.tables):
        return []
    paths = {path for path, rules in mirrors.rules(lake).items() if any(rule.changes_of for rule in rules)}
    return [mirror for path, mirror in mirrors_by_path.items() if path in paths and mirror.keys]


def missing(lake: Tables) -> frozenset[str]:
    """The paths of existing mirrors whose feed has not begun, or cannot be read."""
    if not any(rule.changes_of for rule in lake.pipeline.tables):
        return frozenset()
    with_feed = wanted(lake, mirrors.known(lake))
    return frozenset(
        mirror.path for mirror in with_feed if _has_to_begin(lake, mirror) and lake.exists(mirror.path)
    )


def _has_to_begin(lake: Tables, mirror: Mirror) -> bool:
    """True where the next run has to look at a mirror's feed, though nothing comes for it."""
    try:
        return version(lake, mirror) < 0
    except Exception:  # a damaged log: the run says it of this feed alone
        return True


def version(lake: Tables, mirror: Mirror) -> int:
    """The version of the mirror that its feed has reached; -1 before the first."""
    return lake.progress(STAGE, path_of(mirror))


def replayed(rows: Iterable[Mapping[str, object]]) -> list[dict[str, str]]:
    """The rows of a mirror without their NULLs, by its feed's rows in the order of their numbers.

    Raises:
        ValueError: a row that the feed removes is not there.
    """
    replays = Counter[str]()
    for row in rows:
        for name, sign in (("before", -1), ("after", 1)):
            if (image := row[name]) is None:
                continue
            cells = {name: text for name, text in json.loads(str(image)).items() if text is not None}
            content = json.dumps(cells, sort_keys=True)
            replays[content] += sign
            if replays[content] < 0:
                raise ValueError(f"the feed's row {row['number']} replaces one that is not there: {content}")
    return [json.loads(content) for content in sorted(replays.elements())]
