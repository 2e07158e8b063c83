"""Topics that a source names and its broker does not have, or not show, as the last run that looked found.

Who looks at a lake does not ask its brokers; so a run notes in the ledger of decisions which topics are missing, where these
are others than before. What is said of a topic (how many others its user sees, which name is like it) is that of the first run
that missed it: a broker's other topics come and go.
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
    """The topics that a source lacks, what to say of them, and since when it lacks the first (in UTC without a zone)."""

    source: str
    text: str
    since: dt.datetime | None


class _Missed(NamedTuple):
    """What the first run said of a topic that missed it, and when."""

    text: str
    since: dt.datetime | None


def note(lake: Lake, missing: Missing) -> None:
    """Keep which topics sources lack, where these are not the known ones, in a lake that has mirrors."""
    if not missing or not lake.snapshot(DECISIONS.name).exists:
        return
    known = _missed(lake)
    decisions.append(
        lake,
        [
            Decision(MISSING_TOPICS, source, {_TEXTS: dict(texts)})
            for source, texts in missing.items()
            if known.get(source, {}).keys() != texts.keys()
        ],
    )


def _missed(lake: Tables) -> dict[str, dict[str, _Missed]]:
    """By source and topic, what is missing now; a topic that was there meanwhile begins again."""
    missed: dict[str, dict[str, _Missed]] = {}
    for decision in decisions.read(lake).of(MISSING_TOPICS):
        before = missed.get(decision.subject, {})
        missed[decision.subject] = {
            topic: before.get(topic) or _Missed(text, decision.decided_at)
            for topic, text in decision.value[_TEXTS].items()
        }
    return missed


def listed(lake: Tables) -> list[MissingTopics]:
    """What the sources of the pipeline file lack, of the topics that it still names."""
    missed = _missed(lake)
    missing = []
    for source in lake.pipeline.sources:
        named = {*source.topics, source.topic_pattern}
        lacks = [said for topic, said in missed.get(source.name, {}).items() if topic in named]
        if lacks and source.enabled:
            since = min((said.since for said in lacks if said.since), default=None)
            missing.append(MissingTopics(source.name, "; ".join(said.text for said in lacks), since))
    return missing
