"""Schemas of framed values: fetched once from the registry or its folder, stored in the lake, sent to the workers.

Before a batch is decoded the driver collects the schema ids in its frames, fetches those that the lake does not hold,
and stores them there: decoding the same bytes again needs no registry.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ingest.config import Source
from ingest.decoding import schema_folder, schema_registry
from ingest.errors import SetupError, Undecodable
from ingest.silver.lift import Batches
from ingest.silver.messages import Messages
from ingest.store.envelope import NOT_SEALED, Opener
from ingest.tables.lake import Lake
from ingest.tables.schemas import SCHEMAS

FRAMED = "source STRING, id BINARY, count BIGINT"
_FRAMED = pa.schema({"source": pa.string(), "id": pa.binary(), "count": pa.int64()})
_SECONDS = 300.0  # for all schemas of one source and batch
_MOST = 10_000  # ids fetched for one batch, the most frequent first: random bytes can look like a frame

Texts = Mapping[str, Mapping[int, str]]
"""Source name to schema id to the schema's JSON text; a source without a registry has no entry."""


def schemas(lake: Lake, messages: Messages, opener: Opener = NOT_SEALED) -> Texts:
    """Every schema that the framed values of these bronze messages may need.

    An id that the registry does not know is left out; its messages are rejected, and a replay fetches it again.

    Raises:
        SetupError: a registry that is needed does not answer, or a folder that may hold a needed schema cannot be read.
    """
    sources = [source for source in lake.pipeline.sources if source.registry]
    asked = [source.name for source in sources if not schema_folder.is_folder(source.registry)]
    if not sources:
        return {}
    stored: dict[str, dict[int, str]] = {}
    for row in lake.ask("SELECT source, id, schema FROM {schemas}"):
        stored.setdefault(row["source"], {})[row["id"]] = row["schema"]
    ids = _framed(messages, asked, opener) if asked else {}
    texts: dict[str, Mapping[int, str]] = {}
    for source in sources:
        have = stored.get(source.name, {})
        if source.name in asked:
            fetched = _fetched(source, sorted(ids.get(source.name, set()) - have.keys()))
            texts[source.name] = {**have, **fetched}
        else:
            texts[source.name] = _read(source, have, messages, opener)
        fresh = texts[source.name].keys() - have.keys()
        rows = [(source.name, number, texts[source.name][number], lake.now()) for number in sorted(fresh)]
        lake.append_unguarded(rows, SCHEMAS)
    return texts


def _framed(messages: Messages, sources: list[str], opener: Opener) -> dict[str, set[int]]:
    """The ids after a zero byte in values, keys and headers; some may not be real ids, and fetching them fails."""
    counts: Counter[tuple[str, int]] = Counter()
    for row in messages.through(framed(sources, opener), FRAMED):
        counts[row["source"], int.from_bytes(row["id"], "big")] += row["count"]
    ids: dict[str, set[int]] = {}
    for (source, number), _ in counts.most_common(_MOST):
        ids.setdefault(source, set()).add(number)
    return ids


def framed(sources: Sequence[str], opener: Opener = NOT_SEALED) -> Callable[[Batches], Batches]:
    """The function that counts the ids in messages' frames, as rows of `FRAMED`."""
    return partial(_counted, sources, _in_frames, opener)


def wrapped(source: str, opener: Opener = NOT_SEALED) -> Callable[[Batches], Batches]:
    """The function that counts the fingerprints in the generic wrappers of a source's values, as rows of `FRAMED`."""
    return partial(_counted, [source], _in_wrappers, opener)


def _counted(sources: Sequence[str], numbers: _Numbers, opener: Opener, batches: Batches) -> Batches:
    """How often each number comes in a source's messages, the most frequent ones alone."""
    counts: Counter[tuple[str, bytes]] = Counter()
    for batch in map(opener.opened, batches):
        for source in sources:
            for number, count in numbers(batch.filter(pc.equal(batch.column("source"), source))):
                counts[source, number] += count
    rows = [
        {"source": source, "id": number, "count": count}
        for (source, number), count in counts.most_common(_MOST)
    ]
    yield pa.RecordBatch.from_pylist(rows, _FRAMED)


def _in_frames(messages: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
    """The ids after a zero byte, and how often each comes."""
    headers = messages.column("headers").flatten()
    for part in (messages.column("key"), messages.column("value"), headers.field("value")):
        is_framed = pc.and_(pc.greater_equal(pc.binary_length(part), 5), pc.starts_with(part, b"\x00"))
        for count in pc.value_counts(pc.binary_slice(part.filter(is_framed), 1, 5)).to_pylist():
            yield count["values"], count["counts"]


def _in_wrappers(messages: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
    """The fingerprint of each wrapper."""
    for value in messages.column("value").drop_null().to_pylist():
        with suppress(Undecodable):
            yield schema_folder.unwrapped(value).schema.to_bytes(8, "big", signed=True), 1


_Numbers = Callable[[pa.RecordBatch], Iterator[tuple[bytes, int]]]
"""The numbers that some messages name their schemas by, each with a count."""


def _read(
    source: Source, have: Mapping[int, str], messages: Messages, opener: Opener
) -> schema_folder.Schemas:
    """The schemas of a source's folder and of the lake; messages wait only for one that a faulty file may hold."""
    texts = schema_folder.schemas(source.registry, have)
    if texts.faults:
        numbers = {
            int.from_bytes(row["id"], "big", signed=True)
            for row in messages.through(wrapped(source.name, opener), FRAMED)
        }
        if numbers - texts.keys() - texts.unsure.keys():
            raise SetupError(f"source {source.name}: {texts.faults[0]}: its messages wait in bronze.")
    return texts


def _fetched(source: Source, numbers: Iterable[int]) -> dict[int, str]:
    texts: dict[int, str] = {}
    deadline = time.monotonic() + _SECONDS
    for number in numbers:
        if time.monotonic() > deadline:
            raise SetupError(
                f"source {source.name}: the registry takes more than {_SECONDS:g} s for the schemas of one batch: "
                "its messages wait in bronze; run again when it answers faster."
            )
        with suppress(KeyError):  # unknown to the registry: each of its messages is rejected with that reason
            try:
                texts[number] = schema_registry.fetch(source.registry, number)
            except SetupError as error:
                raise SetupError(f"source {source.name}: {error}: its messages wait in bronze.") from None
    return texts
