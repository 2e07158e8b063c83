"""Schemas of framed values: fetched once from the registry, kept in the lake, shipped to the workers.

Before a batch is decoded the driver collects the schema ids in its frames, asks the registry for those
that the lake does not hold, and stores them there: decoding the same bytes again needs no registry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.config import Source
from ingest.decoding import schema_registry
from ingest.errors import SetupError
from ingest.lake.lake import Lake
from ingest.lake.schemas import SCHEMAS

_SECONDS = 300.0  # for all schemas of one source and batch
_MOST = 10_000  # ids asked for in one batch, the commonest first: rubbish can look like a frame

Texts = Mapping[str, Mapping[int, str]]
"""Source name to schema id to the schema's JSON text; a source without a registry has no entry."""


def schemas(lake: Lake, messages: Callable[[], DataFrame]) -> Texts:
    """Every schema that the framed values of these bronze messages may need.

    An id that the registry does not know stays out; its messages are rejected, and a replay asks again.

    Raises:
        SetupError: a registry that must be asked gives no answer.
    """
    sources = [source for source in lake.pipeline.sources if source.registry]
    if not sources:
        return {}
    known = _stored(lake)
    found = _framed(messages(), [source.name for source in sources])
    texts: dict[str, dict[int, str]] = {}
    for source in sources:
        have = known.get(source.name, {})
        fresh = _fetched(source, sorted(found.get(source.name, set()) - have.keys()))
        _store(lake, source.name, fresh)
        texts[source.name] = {**have, **fresh}
    return texts


def _stored(lake: Lake) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    if lake.exists(SCHEMAS.name):
        for source, number, text in lake.read(SCHEMAS.name).select("source", "id", "schema").collect():
            found.setdefault(source, {})[number] = text
    return found


def _framed(messages: DataFrame, sources: list[str]) -> dict[str, set[int]]:
    """The ids behind a zero byte in values, keys and headers; some may be none, and are asked for in vain."""
    parts = F.concat(F.array("key", "value"), F.coalesce(F.transform("headers", _value), F.array()))
    one = F.col("part")
    framed = (
        messages.where(F.col("source").isin(sources))
        .select("source", F.explode(parts).alias("part"))
        .where((F.length(one) >= 5) & (F.hex(F.substring(one, 1, 1)) == "00"))
        .groupBy("source", F.hex(F.substring(one, 2, 4)).alias("id"))
        .count()
        .orderBy(F.desc("count"))
        .limit(_MOST)
    )
    found: dict[str, set[int]] = {}
    for source, number, _ in framed.collect():
        found.setdefault(source, set()).add(int(number, 16))
    return found


def _value(header: Column) -> Column:
    return header["value"]


def _fetched(source: Source, numbers: Iterable[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    deadline = time.monotonic() + _SECONDS
    for number in numbers:
        if time.monotonic() > deadline:
            raise SetupError(
                f"source {source.name}: the registry takes more than {_SECONDS:g} s for the schemas of one batch: "
                "its messages wait in bronze; run again when it answers faster."
            )
        with suppress(KeyError):  # unknown to the registry: the messages say so, one by one
            try:
                found[number] = schema_registry.fetch(source.registry, number)
            except SetupError as error:
                raise SetupError(f"source {source.name}: {error}: its messages wait in bronze.") from None
    return found


def _store(lake: Lake, source: str, texts: Mapping[int, str]) -> None:
    lake.append_unguarded([(source, number, text, lake.now()) for number, text in texts.items()], SCHEMAS)
