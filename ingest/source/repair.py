"""Single rows of a table read again, as messages that the next run lands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from ingest.change import TableId
from ingest.config import Pipeline, Source
from ingest.formats import ingest_snapshot
from ingest.lake.mirrors import Mirror
from ingest.source import digest, snapshot
from ingest.source.chunks import key_conditions
from ingest.source.database import clock, connected
from ingest.source.known import known


def repair(
    pipeline: Pipeline, source: Source, table: TableId, mirror: Mirror, keys: Sequence[Sequence[str]]
) -> tuple[Path, int, int]:
    """Read the rows of some keys, and write them as messages; a key that the source has not is a delete.

    As for a whole snapshot, the rows' place among the changes of the stream is chosen before they are read.

    Returns:
        The folder, how many rows were read, and how many are deleted.

    Raises:
        IngestError: the database refused, or the table is not there.
    """
    assert source.database is not None
    now = known(pipeline, source.name, table)
    with connected(source.database) as (dialect, connection):
        found = snapshot.described(dialect.table(connection, table), pipeline, table, source, now.columns)
        place = snapshot.place_of(pipeline, source, table, now)
        snapshot.wait_for_open_transactions(dialect, connection, table)
        plan = snapshot.SnapshotPlan(table, f"{len(keys)} keys", found.shape, mirror.keys, place, [])
        here = snapshot.begin(pipeline, source, plan)
        wanted = {tuple(key) for key in keys}
        named = {one.name: one for one in found.columns}
        texts = [digest.compared(dialect, named[one.name], one).source for one in mirror.key_columns]
        now_there = clock(dialect, connection)
        rows: list[bytes] = []
        ordered = sorted(wanted)
        columns = [*texts, *(one.text for one in found.columns)]
        for where in key_conditions(dialect, replace(found, keys=mirror.keys), ordered):
            for line in dialect.rows(connection, columns, f"{found.name} WHERE {where}"):
                row = orjson.loads(line)
                key = tuple(row[: len(texts)])
                if key in wanted:
                    wanted.discard(key)
                    rows.append(orjson.dumps(row[len(texts) :]))
    reading = snapshot.TableReading(source, found, plan, here)
    if rows:
        snapshot.write(
            here / f"chunk-000001{ingest_snapshot.SUFFIX}", reading.messages(0, iter(rows), now_there)
        )
    if wanted:
        types = {one.name: one.type for one in found.columns if one.name in mirror.keys}
        order = [list(mirror.keys).index(name) for name in types]
        gone = [orjson.dumps([key[at] for at in order]) for key in sorted(wanted)]
        snapshot.write(
            here / f"chunk-000002{ingest_snapshot.SUFFIX}",
            reading.messages(1, iter(gone), now_there, "delete", types),
        )
    snapshot.close(here)
    return here, len(rows), len(wanted)
