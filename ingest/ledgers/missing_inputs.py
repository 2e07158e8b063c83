"""Inputs that a source names and that are not there, as the last run that looked found: topics of a broker, a folder of files.

Who looks at a lake does not ask its brokers, and may be on a machine without the folders; so a run notes in the ledger of
decisions which inputs are missing, where these are others than before. What is said of a topic (how many others its user sees,
which name is like it) is that of the first run that missed it: a broker's other topics come and go.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ingest.ledgers import decisions
from ingest.ledgers.decisions import MISSING_INPUTS, Decision
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

_TEXTS = "inputs"
Missing = Mapping[str, Mapping[str, str]]
"""What to say of each topic, pattern or path of which a source lacks all, by source and input; none for a source that lacks nothing."""


class MissingInputs(NamedTuple):
    """A source that lacks inputs, what to say of them, and since when it lacks the first (in UTC without a zone)."""

    source: str
    text: str
    since: dt.datetime | None


class _Missed(NamedTuple):
    """What the first run said of an input that missed it, and when."""

    text: str
    since: dt.datetime | None


def note(lake: Lake, missing: Missing) -> None:
    """Keep which inputs sources lack, where these are not the known ones."""
    news = unknown(lake, missing)
    decisions.append(
        lake, [Decision(MISSING_INPUTS, source, {_TEXTS: dict(texts)}) for source, texts in news.items()]
    )


def unknown(lake: Tables, missing: Missing) -> Missing:
    """What some sources lack, of those of which the lake knows otherwise."""
    missed = _missed(lake) if missing else {}
    return {
        source: texts for source, texts in missing.items() if missed.get(source, {}).keys() != texts.keys()
    }


def _missed(lake: Tables) -> dict[str, dict[str, _Missed]]:
    """By source and input, what is missing now; one that was there meanwhile begins again."""
    missed: dict[str, dict[str, _Missed]] = {}
    for decision in decisions.read(lake).of(MISSING_INPUTS):
        before = missed.get(decision.subject, {})
        missed[decision.subject] = {
            name: before.get(name) or _Missed(text, decision.decided_at)
            for name, text in decision.value[_TEXTS].items()
        }
    return missed


def listed(lake: Tables) -> list[MissingInputs]:
    """What the sources of the pipeline file lack, of the inputs that it still names."""
    missed = _missed(lake)
    missing = []
    for source in lake.pipeline.sources:
        named = {*source.topics, source.topic_pattern, source.path}
        lacks = [said for name, said in missed.get(source.name, {}).items() if name in named]
        if lacks and source.enabled:
            since = min((said.since for said in lacks if said.since), default=None)
            missing.append(MissingInputs(source.name, "; ".join(said.text for said in lacks), since))
    return missing
