"""Outcomes as the source of a MERGE: their columns' names, and the files that tasks write them to."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.gold.arrow_work import MirrorWork
from ingest.gold.outcomes import GONE, MirrorOutcomes, sets
from ingest.lake import stores

__all__ = ["GONE", "has_name", "renamed", "sent_name", "stage"]


def sent_name(index: int) -> str:
    """The name of a column in the source of a MERGE; under its own, some names would clash with Delta's."""
    return f"%{index}"


def has_name(index: int) -> str:
    """The name of the flag: a partial outcome carries the column."""
    return f"%has{index}"


def renamed(work: MirrorWork, outcomes: MirrorOutcomes) -> pa.Table:
    """Outcomes under the names that they have in the source of a MERGE."""
    columns = {GONE: outcomes.table[GONE]}
    for number, one in enumerate(work.columns):
        columns[sent_name(number)] = outcomes.table[one.column]
        if outcomes.is_partial:
            columns[has_name(number)] = outcomes.table[sets(one.column)]
    return pa.table(columns)


def stage(work: MirrorWork, outcomes: MirrorOutcomes) -> str:
    """Write a mirror's outcomes to a new file in its staging folder; returns the file's path under the mirror's folder."""
    file = f"{work.staging}/{uuid.uuid4()}.parquet"
    store, path = stores.at(work.folder), f"{work.folder}/{file}"
    out = store.create(path)
    pq.write_table(renamed(work, outcomes), out, compression="zstd", store_decimal_as_integer=True)
    store.finish(path, out)
    return file
