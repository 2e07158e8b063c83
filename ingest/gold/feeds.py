"""Fill change feeds: what each batch has changed in the rows of a mirror, for incremental consumers.

A feed is the difference between versions of its mirror, so that it is exact whatever made them: Arrow, Spark, late changes,
another rule or a rebuild. The version that it has reached is the identifier of its own commit, so that none is added
twice. Only files that one of two versions lacks are compared, by DuckDB, which needs no Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from ingest.change import LaneId
from ingest.errors import HeldError, first_line
from ingest.fold import Key, KeyCellError, key_of_texts
from ingest.gold import evidence
from ingest.ledgers.feeds import DELETE, INSERT, STAGE, UPDATE, schema_of, version
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.stamps import change_of
from ingest.tables import delta, duck
from ingest.tables.datafiles import Files
from ingest.tables.delta import Snapshot, UnreadableError
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables, scan

AT_ONCE = 50_000  # rows in memory
CAUSES_AT_MOST = 200_000  # changes of a lane, of which the last one of each key is looked for
_LOGICAL = {"binary": "binary", "float": "float32", "double": "float64", "timestamp": "timestamp"}
Cause = tuple[str | None, dt.datetime | None]


def follow(lake: Lake, mirror: Mirror) -> int:
    """Add to a mirror's feed what has changed since the version that it has reached; returns the number of rows.

    Raises:
        HeldError: that version can no longer be read.
    """
    now, reached = lake.snapshot(mirror.path), version(lake, mirror)
    if now.version == reached:
        return 0
    if now.version < reached:
        raise HeldError(
            f"{mirror.name} was created again: delete {lake.path(schema_of(mirror).name)}, and the next run begins its change "
            "feed again with all rows as inserts."
        )
    try:
        before = delta.snapshot(lake.path(mirror.path), reached) if reached >= 0 else Snapshot(-1, {})
        return _add(lake, mirror, before, now)
    except (UnreadableError, duckdb.IOException) as error:
        raise HeldError(
            f"the change feed of {mirror.name} has reached version {reached} of the mirror, which can no longer be read "
            f"({first_line(error)}): delete {lake.path(schema_of(mirror).name)}, and the next run begins it again "
            "with all rows as inserts."
        ) from None


def _add(lake: Lake, mirror: Mirror, before: Snapshot, now: Snapshot) -> int:
    schema = schema_of(mirror)
    layout = lake.layout(schema)
    batch, since = (_batch(lake, mirror, state.version) for state in (now, before))
    causes = _Causes(lake, mirror, since, batch)
    first = count = now.version << 32
    with Files(layout) as files:
        for rows in _differences(lake.path(mirror.path), before, now, mirror):
            images = [rows.column(name).to_pylist() for name in ("before", "after")]
            caused = [causes.of(key) for key in rows.column("key").to_pylist()]
            columns = {
                "number": range(count, count + rows.num_rows),
                "batch": [batch] * rows.num_rows,
                "operation": [
                    INSERT if old is None else DELETE if new is None else UPDATE
                    for old, new in zip(*images, strict=True)
                ],
                "before": images[0],
                "after": images[1],
                "transaction": [transaction for transaction, _ in caused],
                "event_time": [moment for _, moment in caused],
            }
            cells = {
                name: pa.array(column, layout.columns.field(name).type) for name, column in columns.items()
            }
            files.add(pa.table(cells))
            count += rows.num_rows
        added = files.finish()
    lake.append(added, schema, STAGE, now.version)
    return count - first


def skip(lake: Lake, mirror: Mirror) -> None:
    """Record that a mirror's last commits changed no rows."""
    lake.append([], schema_of(mirror), STAGE, lake.snapshot(mirror.path).version)


def _batch(lake: Tables, mirror: Mirror, version: int) -> int:
    """The last batch that the mirror contains at a version."""
    commits = lake.commits(mirror.path) if version >= 0 else ()
    return next((marks["batch"] for number, marks in commits if number <= version and "batch" in marks), 0)


# --- the difference -------------------------------------------------------------------------------


def _differences(folder: str, before: Snapshot, now: Snapshot, mirror: Mirror) -> Iterator[pa.RecordBatch]:
    """The rows that differ: their keys, and the images before and after, removed rows before new ones."""
    sides = [before, now]
    if (before.types, before.physical) == (now.types, now.physical):
        contents = [{file.content for file in state.files} for state in sides]
        both = contents[0] & contents[1]
        sides = [
            replace(state, files=tuple(file for file in state.files if file.content not in both))
            for state in sides
        ]
    names = {**before.types, **now.types}
    keys = [key_column.column for key_column in mirror.key_columns]
    old, new = (_images(folder, state, names, keys) for state in sides)
    cursor = duck.connection().cursor()
    held, distinct = cursor.execute(f'SELECT count(*), count(DISTINCT "%key") FROM {old}').fetchone() or (
        0,
        0,
    )
    same = "%key" if held == distinct else "%row"  # rows that another key identified are not updated
    query = (
        f'SELECT coalesce(n."%key", o."%key") AS key, o."%row" AS before, n."%row" AS after FROM {old} o '
        f'FULL JOIN {new} n ON o."{same}" = n."{same}" WHERE o."%row" IS DISTINCT FROM n."%row" '
        'ORDER BY o."%row" IS NULL, 1'
    )
    yield from cursor.execute(query).to_arrow_reader(AT_ONCE)


def _images(folder: str, state: Snapshot, names: Mapping[str, object], keys: Sequence[str]) -> str:
    """A version's rows as JSON objects of texts, with the texts of their keys, as a subquery."""
    texts = {
        name: _text(name, state.types[name]) if name in state.types else "NULL::VARCHAR" for name in names
    }
    image = ", ".join(f"{duck.text(name)}, {text}" for name, text in texts.items())
    key = ", ".join(texts.get(name, "NULL::VARCHAR") for name in keys)
    rows = scan(folder, state) if state.types else "(SELECT 1 WHERE false)"
    return f'(SELECT [{key}] AS "%key", CAST(json_object({image}) AS VARCHAR) AS "%row" FROM {rows})'


def _text(name: str, kind: object) -> str:
    """A cell's canonical text."""
    return evidence.cell_text(Column(name, name, _LOGICAL.get(str(kind), "string")))


# --- what made it ---------------------------------------------------------------------------------


class _Causes:
    """The transaction and the time of the last change of each key in some batches."""

    def __init__(self, lake: Tables, mirror: Mirror, since: int, last: int) -> None:
        self._types = mirror.key_types
        self._keys = mirror.keys
        self._found: dict[Key, Cause] = {}
        batches = f"batch > {since} AND batch <= {last} AND op <> 'truncate'"
        for lane in evidence.lanes(lake, mirror):
            wanted = f"{duck.of_lane(*lane)} AND {batches}"
            (asked,) = lake.ask(f"SELECT count(*) AS n FROM {{changes.change}} WHERE {wanted}")
            if asked["n"] <= CAUSES_AT_MOST:
                self._read(lake, mirror, lane, wanted)

    def _read(self, lake: Tables, mirror: Mirror, lane: LaneId, wanted: str) -> None:
        shard = mirror.shard_of(lane)
        rows = lake.ask(
            'SELECT op, partial, types, before, after, "transaction", event_time FROM {changes.change} '
            f"WHERE {wanted} ORDER BY order_key"
        )
        for row in rows:
            for key in evidence.keys_of(change_of(row, shard), self._keys, self._types):
                self._found[key] = row["transaction"], row["event_time"]

    def of(self, texts: Sequence[str | None]) -> Cause:
        """The cause of a row's change; unknown if no message of its key came with the batches."""
        try:
            key = key_of_texts(self._keys, texts, self._types)
        except KeyCellError:
            return None, None
        return self._found.get(key, (None, None))
