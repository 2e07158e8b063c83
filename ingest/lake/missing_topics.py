"""Topics that a source names and its broker does not have, or not show, as the last run that looked found.

Who looks at a lake does not ask its brokers; so a run notes in the ledger of decisions what has changed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ingest.lake import decisions
from ingest.lake.decisions import MISSING_TOPICS, Decision
from ingest.lake.schemas import DECISIONS
from ingest.lake.tables import Tables

if TYPE_CHECKING:
    from ingest.lake.lake import Lake

_TEXTS = "topics"
Missing = Mapping[str, Mapping[str, str]]
"""What to say of each topic, or pattern, that a source lacks, by source and topic; without topics for a source that lacks none."""


class MissingTopics(NamedTuple):
    """The topics that a source lacks, what to say of them, and when a run first found so (in UTC without a zone)."""

    source: str
    text: str
    since: dt.datetime | None


def note(lake: Lake, missing: Missing) -> None:
    """Keep what sources lack, where it is not what is known, in a lake that has mirrors."""
    if not missing or not lake.snapshot(DECISIONS.name).exists:
        return
    noted = decisions.read(lake).newest(MISSING_TOPICS)
    known = {name: decision.value[_TEXTS] for name, decision in noted.items()}
    decisions.append(
        lake,
        [
            Decision(MISSING_TOPICS, source, {_TEXTS: dict(texts)})
            for source, texts in missing.items()
            if known.get(source, {}) != texts
        ],
    )


def listed(lake: Tables) -> list[MissingTopics]:
    """What the sources of the pipeline file lack, of the topics that it still names."""
    noted = decisions.read(lake).newest(MISSING_TOPICS)
    missing = []
    for source in lake.pipeline.sources:
        if not source.enabled or source.name not in noted:
            continue
        named = {*source.topics, source.topic_pattern}
        texts = [text for topic, text in noted[source.name].value[_TEXTS].items() if topic in named]
        if texts:
            missing.append(MissingTopics(source.name, "; ".join(texts), noted[source.name].decided_at))
    return missing
