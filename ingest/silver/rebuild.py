"""Rebuild silver from bronze: decode into staging tables, compare with the existing tables, publish one by one.

``changes`` is published first and the books last, each in one commit under its own next generation. If a run is killed
in between, the tables still agree on every batch, or rebuilding again repairs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.errors import IngestError, command, counted
from ingest.ledgers import condensed, decisions, decoded_with, mirrors, sealing
from ingest.silver.decode import STAGE, decode, landed_with
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.compare import Difference, TableState, as_sets, groups
from ingest.tables.lake import Lake, Tell
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES, DDL, REJECTS, TableSchema
from ingest.tables.staging import shadow_of

TABLES = (CHANGES, DDL, REJECTS, BOOKS)  # in the order in which they are published
_REJECT = ("reason", "detail", "decoder")  # JSON from several writers, with different spacing
_UNORDERED = ("keys", "columns")  # of books: in the order in which tasks first saw them


@dataclass(slots=True)
class SilverRebuild:
    """What a rebuild of silver found, and whether it was published."""

    batch: int
    published: bool
    differences: Mapping[str, Difference]

    @property
    def none(self) -> bool:
        """True if every table already equals what bronze gives."""
        return all(difference.none for difference in self.differences.values())


def rebuild(
    lake: Lake, cores: int, *, since: int = 0, dry_run: bool, tell: Tell = lambda _subject, _step: None
) -> SilverRebuild:
    """Decode bronze after batch ``since`` with today's parsers and options, and publish the outcome unless ``dry_run``.

    The caller holds the lake's lock. An `IngestError` if bronze lacks messages, or if the new books do not balance.
    """
    last = lake.decoded()
    refuse_trimmed(lake, since, last)
    decoded_with.refuse_mixed_masks(lake, since)
    was = condensed.read(lake)
    with shadow_of(lake, *[schema.name for schema in TABLES]) as shadow:
        tell("silver", "decoding")
        done = decode(shadow, last, cores, since)
        if done.unbalanced:
            raise IngestError(f"The books do not balance, so nothing was published: {done.unbalanced[0]}.")
        tell("silver", "comparing")
        differences = {schema.name: _difference(lake, shadow, schema, since) for schema in TABLES}
        if not dry_run:
            _announce(lake, shadow, since, last, differences)
            for schema in TABLES:
                tell("silver", f"publishing {schema.name}")
                _publish(lake, shadow, schema, since, last)
            decoded_with.note(lake, [source.name for source in lake.pipeline.sources], since + 1)
            if not since and was.batch:
                condensed.record(lake, condensed.Condensed(), "silver was decoded again from all of bronze")
    return SilverRebuild(last, not dry_run, differences)


def _announce(lake: Lake, shadow: Lake, since: int, last: int, differences: Mapping[str, Difference]) -> None:
    """Record which mirrors hold rows of changes that are about to differ.

    If the run is killed before their rebuild, the next one knows that they are outdated.
    """
    if differences[CHANGES.name].none:
        return
    present, rebuilt = _rows(lake, CHANGES, since), _rows(shadow, CHANGES, since)
    rows = groups(present, rebuilt, _columns(CHANGES), ("kind", "database", "schema", "table"))
    by_path = mirrors.known(lake)
    # a statement may concern other tables than its own
    everything = any(kind == "ddl" for kind, *_ in rows)
    paths = set(by_path) if everything else set()
    for kind, *names in rows:
        table = TableId(*names)
        if kind == "change" and not lake.pipeline.rule(table).exclude:
            paths.update(map(mirror_path, mirrors.names(lake.pipeline, table)))
    if paths:
        decisions.append(lake, [mirrors.announced(paths, by_path, last)])


def _only(schema: TableSchema, since: int) -> str:
    """The rows to replace, as a SQL condition; empty for all. Gold's rejects are in silver's table and are kept."""
    batch = "coalesce(replayed_in, batch)" if schema is BOOKS else "batch"
    parts = ["stage = 'silver'"] if schema is REJECTS else []
    return " AND ".join(parts + ([f"{batch} > {since}"] if since else []))


def refuse_trimmed(lake: Lake, since: int, last: int) -> None:
    """An `IngestError` if bronze lacks messages after ``since``, cannot open them, or changes are condensed."""
    if since >= last:
        raise IngestError(
            "Nothing has been decoded yet, so that there is nothing to rebuild: "
            f"`{command('run', lake.pipeline.file)}` first."
        )
    condensed.refuse(lake, since)
    sealing.refuse_unreadable(lake, sealing.opener(lake), (since + 1, last))
    rows = lake.read(BRONZE.name)
    kind = F.col("kind")
    counts = {
        row["batch"]: (row["kept"], row["landed"])
        for row in rows.where(F.col("batch").between(since + 1, last))
        .groupBy("batch")
        .agg(
            F.count(F.when(kind == "message", 1)).alias("kept"),
            F.coalesce(F.sum(F.when(kind == "receipt", landed_with(F.col("value")))), F.lit(0)).alias(
                "landed"
            ),
        )
        .collect()
    }
    missing = [
        batch
        for batch in range(since + 1, last + 1)
        if batch not in counts or counts[batch][0] < counts[batch][1]
    ]
    if missing:
        raise IngestError(
            f"Bronze no longer holds all messages of batch {missing[0]} ({counted(len(missing), 'batch lacks', 'batches lack')} some), "
            "so silver cannot be made from it: mirrors can still be rebuilt from silver."
        )


def _difference(lake: Lake, shadow: Lake, schema: TableSchema, since: int) -> Difference:
    present, rebuilt = _rows(lake, schema, since), _rows(shadow, schema, since)
    return as_sets(present, rebuilt, _columns(schema))


def _columns(schema: TableSchema) -> list[str]:
    """The columns in which a table is compared."""
    left_out = _UNORDERED if schema is BOOKS else ()
    return [field["name"] for field in schema.fields if field["name"] not in left_out]


def _rows(lake: Lake, schema: TableSchema, since: int) -> TableState:
    """A table's rows of this stage; for ``changes`` without book lines, which are in the books, merged."""
    where = _only(schema, since) or "true"
    cells = {name: duck.name(name) for name in _columns(schema)}
    if schema is CHANGES:
        members = " || ', ' || ".join(f"coalesce({duck.member('payload', member)}, '')" for member in _REJECT)
        cells["payload"] = f"CASE WHEN kind = 'reject' THEN {members} ELSE payload END"
        where = f"kind <> 'book' AND {where}"
    listed = ", ".join(f"{cell} AS {duck.name(name)}" for name, cell in cells.items())
    return TableState.asked(lake, f"SELECT {listed} FROM {{{schema.name}}} AS o WHERE {where}")


def _publish(lake: Lake, shadow: Lake, schema: TableSchema, since: int, batch: int) -> None:
    is_staged = shadow.exists(schema.name)
    state = lake.snapshot(schema.name)
    if not is_staged and not state.exists:
        return
    lake.ensure(schema)
    state = lake.snapshot(schema.name)
    writer = lake.writer(STAGE, schema.name, lake.generation(state, STAGE, schema.name) + 1)
    rows = shadow.read(schema.name) if is_staged else lake.spark.createDataFrame([], schema.columns)
    lake.publish(
        rows.select(*lake.read(schema.name).columns),
        schema.name,
        writer,
        batch,
        _only(schema, since),
        again=since,
    )
