"""The columns of the product's own tables; ``docs`` and ``init`` describe them from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A product table: its columns as Spark SQL DDL, its partitioning, its properties."""

    name: str
    ddl: str
    partition_by: tuple[str, ...] = ()
    statistics: str = ""  # the columns that Delta keeps statistics of

    @property
    def columns(self) -> StructType:
        """Its columns as Spark knows them, comments among them; needs a running session."""
        return cast("StructType", StructType.fromDDL(self.ddl))

    @property
    def properties(self) -> dict[str, str]:
        """Delta table properties."""
        return {"delta.dataSkippingStatsColumns": self.statistics} if self.statistics else {}


BRONZE = TableSchema(
    "bronze",
    """kind STRING COMMENT 'message, receipt of what was read, or replay of an older message',
    batch BIGINT COMMENT 'number of the run that landed it',
    source STRING, topic STRING COMMENT 'Kafka topic or file path',
    `partition` INT COMMENT 'Kafka partition, or the file''s rank in its batch',
    `offset` BIGINT COMMENT 'Kafka offset, or the record''s byte offset in its file',
    timestamp TIMESTAMP, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>,
    ingested_at TIMESTAMP, day DATE""",
    partition_by=("kind", "day"),
    statistics="batch,source,topic,partition,offset",
)

POSITION = "source STRING, topic STRING, `partition` INT, `offset` BIGINT"
TABLE = "`database` STRING, `schema` STRING, `table` STRING"

CHANGES = TableSchema(
    "changes",
    f"""kind STRING COMMENT 'change, ddl, reject or book',
    batch BIGINT, {POSITION}, row INT COMMENT 'index in its message',
    op STRING, {TABLE},
    order_key STRING COMMENT 'place in history; text order is history''s order',
    sequence STRING COMMENT 'the position as the vendor wrote it',
    event_time TIMESTAMP, transaction STRING,
    keys STRING COMMENT 'JSON array of key column names',
    before STRING COMMENT 'JSON object, every value exact text or null',
    after STRING COMMENT 'JSON object, every value exact text or null',
    types STRING COMMENT 'JSON object: column to logical type',
    partial BOOLEAN COMMENT 'a column missing from after keeps its value',
    note STRING, payload STRING COMMENT 'JSON of a ddl event, reject or book line'""",
    partition_by=("kind",),
    statistics="batch,database,table,order_key",
)

DDL = TableSchema(
    "ddl",
    f"""batch BIGINT, {POSITION}, row INT, {TABLE}, order_key STRING, sequence STRING,
    event_time TIMESTAMP, statement STRING,
    class STRING COMMENT 'safe, lossy, none or unknown', reason STRING,
    effects STRING COMMENT 'JSON array of parsed effects', note STRING""",
)

REJECTS = TableSchema(
    "rejects",
    f"""{POSITION}, batch BIGINT, stage STRING,
    kind STRING COMMENT 'message, cell, change or late',
    {TABLE}, key STRING COMMENT 'JSON of the row''s key (cells, changes)',
    `column` STRING, reason STRING, detail STRING, raw STRING COMMENT 'the cell''s text as it came',
    decoder STRING""",
)

BOOKS = TableSchema(
    "books",
    f"""batch BIGINT, source STRING, topic STRING, `partition` INT, {TABLE},
    messages BIGINT, change_messages BIGINT, ddl BIGINT, control BIGINT, routed_out BIGINT,
    rejected BIGINT, changes BIGINT, reads BIGINT, inserts BIGINT, updates BIGINT, deletes BIGINT,
    truncates BIGINT, partials BIGINT, key_changes BIGINT, inherits BIGINT, noted BIGINT,
    order_low STRING, order_high STRING, event_low TIMESTAMP, event_high TIMESTAMP,
    keys STRING COMMENT 'JSON: key columns named by the messages',
    columns STRING COMMENT 'JSON: columns seen with their logical types, in order',
    replayed BIGINT COMMENT 'of the batch''s rejects, those decoded after all',
    replayed_in BIGINT COMMENT 'by that later batch'""",
)

RUNS = TableSchema(
    "runs",
    """run STRING, pipeline STRING, batch BIGINT, stage STRING, subject STRING COMMENT 'source or mirror',
    state STRING COMMENT 'done, failed, held, alarm or skipped', started_at TIMESTAMP, seconds DOUBLE,
    version BIGINT COMMENT 'the mirror''s Delta version after the batch',
    counts STRING COMMENT 'JSON', message STRING""",
)

DECISIONS = TableSchema(
    "decisions",
    """decided_at TIMESTAMP, kind STRING COMMENT 'schema, column, approve, dismiss, epoch, pause ...',
    subject STRING COMMENT 'mirror, lane or source', batch BIGINT, value STRING COMMENT 'JSON',
    reason STRING, by STRING""",
)

CHECKS = TableSchema(
    "checks",
    """run STRING, batch BIGINT, mirror STRING, check STRING, `column` STRING, severity STRING,
    state STRING COMMENT 'pass, warn, fail or error', observed DOUBLE, threshold STRING,
    detail STRING, checked_at TIMESTAMP, failing STRING COMMENT 'JSON array of up to 20 keys',
    source STRING COMMENT 'for checks of a source; such rows have no mirror'""",
)

SCHEMAS = TableSchema(
    "schemas",
    """source STRING, id BIGINT COMMENT 'the registry''s number, as it stands in the messages'' frames',
    schema STRING COMMENT 'JSON, with what it refers to written into it', fetched_at TIMESTAMP""",
)

ALL = (BRONZE, CHANGES, DDL, REJECTS, BOOKS, RUNS, DECISIONS, CHECKS, SCHEMAS)
