"""Outcomes as the source of a MERGE: their columns' names, and the files that tasks write them to."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.gold.fold.arrow_work import MirrorWork
from ingest.gold.fold.outcomes import COPIES, GONE, sets
from ingest.store import stores


def sent_name(index: int) -> str:
    """The name of a column in the source of a MERGE; under its own, some names would clash with Delta's."""
    return f"%{index}"


def has_name(index: int) -> str:
    """The name of the flag: a partial outcome carries the column; NULL for one that carries all."""
    return f"%has{index}"


def write_outcomes(work: MirrorWork, table: pa.Table) -> str:
    """Write what becomes of a mirror's keys (`ingest.gold.fold.outcomes`), or of its rows if it has no key, to a new file in its
    staging folder; returns the file's path under the mirror's folder.
    """
    names = [(name, name) for name in (GONE, COPIES)]
    for number, column in enumerate(work.columns):
        names += [(column.column, sent_name(number)), (sets(column.column), has_name(number))]
    columns = {staged_name: table[name] for name, staged_name in names if name in table.schema.names}
    file = f"{work.staging}/{uuid.uuid4()}.parquet"
    store, path = stores.at(work.folder), f"{work.folder}/{file}"
    out = store.create(path)
    with stores.named(path):
        pq.write_table(pa.table(columns), out, compression="zstd", store_decimal_as_integer=True)
    store.finish(path, out)
    return file
