"""Which options each batch was decoded with, so that a changed one does not hold for new batches alone.

A source's format, options and table rules decide what its messages mean.  Silver writes them down as a decision
(kind ``decoding``) whenever they differ from the last ones; a backfill writes down the batch from which on today's
hold.  What is not on record, as in lakes of older versions, is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ingest.change import Options
from ingest.config import Pipeline, Source
from ingest.errors import command
from ingest.lake import decisions
from ingest.lake.decisions import Decision
from ingest.lake.tables import Tables

if TYPE_CHECKING:
    from ingest.lake.lake import Lake

DECODING = "decoding"


@dataclass(frozen=True, slots=True)
class Outdated:
    """Batches of a source that were decoded otherwise than the pipeline file says now."""

    source: str
    first: int
    last: int
    differences: tuple[str, ...]  # "timezone was UTC and is Asia/Shanghai"

    def sentence(self, pipeline: Pipeline, newest: int) -> str:
        """What is wrong and what helps, for people."""
        count = newest - self.first + 1
        backfill = command("backfill", pipeline.file, "--last", count)
        which = f"batch {self.first}" if self.first == self.last else f"batches {self.first} to {self.last}"
        return (
            f"{which} of source {self.source} {'was' if self.first == self.last else 'were'} decoded with other "
            f"settings ({'; '.join(self.differences)}): `{backfill}` decodes them again, and with --accept leaves "
            "them as they are."
        )


def settings_of(pipeline: Pipeline, source: Source) -> dict[str, Any]:
    """What decides how a source's messages are decoded, as the ledger keeps it."""
    options = {one.name: getattr(source.options, one.name) for one in fields(Options)}
    options["table"] = [[pattern, *table] for pattern, table in source.options.table]
    options["extra"] = dict(source.options.extra)
    rules = [
        {"match": one.match, "exclude": one.exclude, "keys": list(one.keys), "columns": dict(one.columns)}
        for one in pipeline.tables
        if one.exclude or one.keys or one.columns
    ]
    return {"format": source.format, "options": options, "tables": rules}


def note(lake: Lake, sources: Iterable[str], first: int) -> None:
    """Write down today's settings of these sources, for batches from ``first`` on, where others are on record."""
    known = _by_source(lake)
    named = {source.name: source for source in lake.pipeline.sources}
    found = []
    for name in sorted(set(sources) & named.keys()):
        now = settings_of(lake.pipeline, named[name])
        before = known.get(name, [])
        if not before or before[-1][1] != now or before[-1][0] > first:
            found.append(Decision(DECODING, name, now, first))
    decisions.append(lake, found)


def outdated(lake: Tables, newest: int) -> list[Outdated]:
    """The batches up to ``newest`` that were decoded with other settings than today's."""
    found = []
    named = {source.name: source for source in lake.pipeline.sources}
    for name, spans in _by_source(lake).items():
        if name not in named:
            continue
        now = settings_of(lake.pipeline, named[name])
        ends = [batch - 1 for batch, _ in spans[1:]] + [newest]
        for (first, then), last in zip(spans, ends, strict=True):
            if then != now and first <= last:
                found.append(Outdated(name, first, last, tuple(_differences(then, now))))
    return found


def _by_source(lake: Tables) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """Each source's settings with the batch from which on they hold; a later decision beats those at or after it."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for one in decisions.read(lake).of(DECODING):
        first = one.batch or 1
        kept = [span for span in found.get(one.subject, []) if span[0] < first]
        if not kept or kept[-1][1] != one.value:
            kept.append((first, one.value))
        found[one.subject] = kept
    return found


def _differences(then: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if then["format"] != now["format"]:
        yield f"format was {then['format']} and is {now['format']}"
    for name in now["options"]:
        if then["options"].get(name) != now["options"][name]:
            yield f"{name} was {_word(then['options'].get(name))} and is {_word(now['options'][name])}"
    if then["tables"] != now["tables"]:
        yield "keys:, columns: or exclude: of its tables"


def _word(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "not set"}[value]
    return str(value)
