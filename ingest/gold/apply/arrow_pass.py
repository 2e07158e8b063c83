"""Write the files of a large mirror again one after the other, because its columns change: a pass over its rows in tasks.

One task folds the batch's changes (`outcomes`). Then each task takes some of the mirror's files, gives each row its new
cells, or the outcome of its key, and writes one new file (`passed`). Outcomes whose keys no file has are new rows
(`inserted`). Nothing is committed here, and each attempt of a task writes files of names of their own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.gold.fold.arrow_files import (
    Written,
    as_they_become,
    attempted,
    outcomes_of,
    stored_columns,
    with_file,
)
from ingest.gold.fold.arrow_merge import Effort, merge, pairs
from ingest.gold.fold.arrow_values import MergeNeeded
from ingest.gold.fold.arrow_work import MirrorWork, Rows
from ingest.gold.fold.outcomes import GONE
from ingest.store import stores
from ingest.tables.row_files import RowFile, kept_rows

FILE_BYTES = 64 << 20  # of the files that one task writes again as one
PAGE_ROWS, PAGE_BYTES = 256 << 10, 32 << 20  # of a file's rows in memory
CHANGE_ROWS = 20  # rows that are written again in the time that the fold of a change takes


class FilesPart(NamedTuple):
    """Some files of a mirror, and the outcomes of the batch's changes, in a file of its folder."""

    work: MirrorWork
    outcomes: str


class NewRowsPart(NamedTuple):
    """The outcomes of a mirror, and for each file's part which of them it has matched."""

    work: MirrorWork
    outcomes: str
    matched: Sequence[bytes]


def outcomes(work: MirrorWork, rows: Rows, folder: str) -> Written:
    """Fold the batch's changes, and write what they make of each key into a folder of the mirror's folder."""

    def write() -> Written:
        began = time.monotonic()
        made = outcomes_of(work, rows)
        if made.cleared:
            raise MergeNeeded("all rows of a large mirror are deleted")
        name = f"{folder}/{uuid.uuid4()}.arrow"
        path = f"{work.folder}/{name}"
        file = stores.at(path).create(path)
        with stores.named(path), pa.ipc.new_file(file, made.table.schema) as writer:
            writer.write_table(made.table)
        stores.at(path).finish(path, file)
        effort = Effort(made.table.num_rows, fold_ms=round(1000 * (time.monotonic() - began)))
        return Written(work.path, file=name, effort=effort, rejects=made.rejected)

    return attempted(work, write)


def _read(work: MirrorWork, name: str) -> pa.Table:
    path = f"{work.folder}/{name}"
    with pa.ipc.open_file(stores.at(path).source(path)) as file:
        return file.read_all()


def passed(part: FilesPart) -> Written:
    """Write the rows of some files again, as new statements and the batch's changes leave them."""

    def write() -> Written:
        began, work = time.monotonic(), part.work
        source = _read(work, part.outcomes)
        keys = source.select(work.key_columns)
        file, matched = RowFile(work.folder, work.key_columns), np.zeros(source.num_rows, np.bool_)
        counts, filled = dict.fromkeys(("inserted", "updated", "deleted"), 0), 0
        for page in _pages(work):
            _, of = pairs(page.select(work.key_columns), keys)
            matched[of.to_numpy()] = True
            result = merge(page, source.take(of), work, ())
            file.add(result.stays)
            file.add(result.put)
            counts["updated"] += result.updated
            counts["deleted"] += result.deleted
            filled += result.filled
        made = Written(
            work.path, replaces=True, counts=counts, gone={MATCHED: np.packbits(matched).tobytes()}
        )
        made = with_file(made, file)
        copied = max(0, counts.get("written", 0) - counts["updated"])
        spent = round(1000 * (time.monotonic() - began))
        return replace(made, effort=Effort(copied=copied, filled=filled, write_ms=spent))

    return attempted(part.work, write)


MATCHED = ""
"""In `Written.gone` of a part of files: which outcomes' keys these have, a bit for each."""


def _pages(work: MirrorWork) -> Iterator[pa.Table]:
    """The rows of a mirror's files as new statements leave them, some at a time."""
    waiting: list[pa.Table] = []
    for name, kept in work.files:
        for rows in kept_rows(f"{work.folder}/{name}", stored_columns(work), kept):
            waiting.append(rows)
            if (
                sum(page.num_rows for page in waiting) >= PAGE_ROWS
                or sum(page.nbytes for page in waiting) >= PAGE_BYTES
            ):
                yield as_they_become(pa.concat_tables(waiting), work)
                waiting = []
    if waiting:
        yield as_they_become(pa.concat_tables(waiting), work)


def inserted(part: NewRowsPart) -> Written:
    """Write the rows whose keys the mirror does not have yet."""

    def write() -> Written:
        began, work = time.monotonic(), part.work
        source = _read(work, part.outcomes)
        matched = np.zeros(source.num_rows, np.bool_)
        for bits in part.matched:
            matched |= np.unpackbits(np.frombuffer(bits, np.uint8), count=source.num_rows).astype(np.bool_)
        new = source.filter(pc.and_not(pc.invert(source[GONE]), pa.chunked_array([pa.array(matched)])))
        file = RowFile(work.folder, work.key_columns)
        file.add(new.select(work.schema.names).cast(work.schema))
        made = with_file(Written(work.path, counts={"inserted": new.num_rows}), file)
        return replace(made, effort=Effort(write_ms=round(1000 * (time.monotonic() - began))))

    return attempted(part.work, write)
