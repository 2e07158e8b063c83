"""The columns of the product's own tables; ``docs`` and ``init`` describe them from here."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = 1
"""The format of lakes that this version writes; a version that knows only lower numbers must not touch them."""
FORMAT_PROPERTY = "ingest.format"  # of a lake's first table
_COLUMN = re.compile(r"`?\b(\w++)`? ([A-Z]+(?:<.*?>>)?) COMMENT '((?:[^']|'')*)'")


def _field(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_PAIRS = {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]}
_TYPES: dict[str, Any] = {
    "STRING": "string", "BIGINT": "long", "INT": "integer", "DOUBLE": "double", "BOOLEAN": "boolean",
    "BINARY": "binary", "DATE": "date", "TIMESTAMP": "timestamp",
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": {
        "type": "array", "elementType": _PAIRS, "containsNull": True,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A product table: its columns as Spark SQL DDL, its partitioning, its properties."""

    name: str
    about: str  # what one row of it is for
    ddl: str
    partition_by: tuple[str, ...] = ()
    statistics: str = ""  # the columns that Delta keeps statistics of
    # the columns whose values repeat often: their files contain each value once (dictionary)
    repeated: str = ""
    # its small files are joined by whoever appends, because each batch reads all its rows
    joins: bool = False

    @property
    def columns(self) -> StructType:
        """Its columns in Spark, with comments; needs a running session."""
        from pyspark.sql.types import StructType

        return cast("StructType", StructType.fromDDL(self.ddl))

    @property
    def types(self) -> dict[str, str]:
        """Its columns with their SQL types."""
        return {column[1]: column[2] for column in _COLUMN.finditer(self.ddl)}

    @property
    def arrow(self) -> pa.Schema:
        """Its columns in Arrow."""
        return _arrow(self)

    def part(self, *names: str) -> pa.Schema:
        """Some of its columns in Arrow."""
        import pyarrow as pa

        whole = self.arrow
        return pa.schema([whole.field(name) for name in names])

    def part_ddl(self, *names: str) -> str:
        """Some of its columns as Spark SQL DDL."""
        types = self.types
        return ", ".join(f"`{name}` {types[name]}" for name in names)

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Its columns in the form of Delta's log, with comments."""
        return [
            _field(column[1], _TYPES[column[2]]) | {"metadata": {"comment": column[3].replace("''", "'")}}
            for column in _COLUMN.finditer(self.ddl)
        ]

    def lacking(self, present: Container[str]) -> list[str]:
        """Its columns that a table of an older version does not have."""
        return [name for name in self.types if name not in present]

    @property
    def properties(self) -> dict[str, str]:
        """Delta table properties."""
        return {"delta.dataSkippingStatsColumns": self.statistics} if self.statistics else {}


@lru_cache  # asked for with each row of some tables
def _arrow(schema: TableSchema) -> pa.Schema:
    from ingest.tables.datafiles import arrow_schema

    return arrow_schema({field["name"]: field["type"] for field in schema.fields})


# Columns that several tables share: a message's origin, and its source table.
_PLACE = """source STRING COMMENT 'name of the source in the pipeline file',
    topic STRING COMMENT 'Kafka topic or file path',
    `partition` INT COMMENT 'Kafka partition, or the file''s rank in its batch'"""
_OFFSET = "`offset` BIGINT COMMENT 'Kafka offset, or the record''s byte offset in its file'"
_TABLE = """`database` STRING COMMENT 'database of the source table; NULL where the source has none',
    `schema` STRING COMMENT 'schema of the source table; NULL where the source has none',
    `table` STRING COMMENT 'name of the source table; NULL for messages that name none'"""

BRONZE = TableSchema(
    "bronze",
    "Everything as it was received. Partitioned by kind and day; nothing but `ingest erase` changes it.",
    f"""kind STRING COMMENT 'message, receipt of what was read, or replay of an older message',
    batch BIGINT COMMENT 'number of the batch that it was landed with',
    {_PLACE},
    {_OFFSET},
    timestamp TIMESTAMP COMMENT 'time that the broker or producer gave the message; NULL for files',
    key BINARY COMMENT 'the Kafka key; NULL for files, and where the message is sealed',
    value BINARY COMMENT 'the message''s bytes, or the sealed message with its key and headers; of a receipt, its JSON',
    headers ARRAY<STRUCT<key: STRING, value: BINARY>> COMMENT 'Kafka headers, and `ingest.oversize` with the length of a record too large to keep, or `ingest.erased`',
    ingested_at TIMESTAMP COMMENT 'when it was landed',
    day DATE COMMENT 'the day of it, for partitioning'""",
    partition_by=("kind", "day"),
    statistics="batch,source,topic,partition,offset",
    repeated="source,topic",
)

CHANGES = TableSchema(
    "changes",
    "Everything that was decoded, in one total order. The mirrors are folds of its rows of kind `change`.",
    f"""kind STRING COMMENT 'change, ddl, reject or book',
    batch BIGINT COMMENT 'number of the batch',
    {_PLACE},
    {_OFFSET},
    row INT COMMENT 'index in its message',
    op STRING COMMENT 'insert, update, delete, read (full load), truncate, ddl',
    {_TABLE},
    order_key STRING COMMENT 'place in history; text order is history''s order',
    sequence STRING COMMENT 'the position as the vendor wrote it',
    event_time TIMESTAMP COMMENT 'when the source committed it, as far as the message says',
    transaction STRING COMMENT 'the source''s transaction, as the message names it',
    keys STRING COMMENT 'JSON array of key column names',
    before STRING COMMENT 'JSON object, every value exact text or null',
    after STRING COMMENT 'JSON object, every value exact text or null',
    types STRING COMMENT 'JSON object: column to logical type',
    partial BOOLEAN COMMENT 'a column missing from after keeps its value',
    note STRING COMMENT 'what was odd about the message, in words',
    payload STRING COMMENT 'JSON of a ddl event, reject or book line'""",
    partition_by=("kind",),
    statistics="batch,database,table,order_key",
    repeated="source,topic,op,database,schema,table,keys,types,note",
)

DDL = TableSchema(
    "ddl",
    "The ledger of DDL statements: what was said, and what was understood of it.",
    f"""batch BIGINT COMMENT 'number of the batch',
    {_PLACE},
    {_OFFSET},
    row INT COMMENT 'index of the change in its message',
    {_TABLE},
    order_key STRING COMMENT 'its place in history, as in `changes`',
    sequence STRING COMMENT 'the position as the vendor wrote it',
    event_time TIMESTAMP COMMENT 'when the source ran it',
    statement STRING COMMENT 'its text',
    class STRING COMMENT 'safe, lossy, none or unknown',
    reason STRING COMMENT 'why it is of that class',
    effects STRING COMMENT 'JSON array of parsed effects',
    note STRING COMMENT 'what was odd about the message, in words'""",
)

REJECTS = TableSchema(
    "rejects",
    "What could not be used. Rows stay; `ingest rejects` leaves out what was replayed or dismissed since.",
    f"""{_PLACE},
    {_OFFSET},
    batch BIGINT COMMENT 'number of the batch',
    stage STRING COMMENT 'silver (messages) or gold (cells, changes)',
    kind STRING COMMENT 'message, cell, change or late',
    {_TABLE},
    key STRING COMMENT 'JSON of the row''s key (cells, changes)',
    `column` STRING COMMENT 'the column of a cell',
    reason STRING COMMENT 'a stable code to group by',
    detail STRING COMMENT 'what is wrong, in one sentence',
    raw STRING COMMENT 'the cell''s text as it came',
    decoder STRING COMMENT 'version of the decoder that refused it'""",
)

BOOKS = TableSchema(
    "books",
    "Where the messages of a batch went, per partition and table: messages = change_messages + ddl + control + routed_out + rejected.",
    f"""batch BIGINT COMMENT 'number of the batch',
    {_PLACE},
    {_TABLE},
    messages BIGINT COMMENT 'messages received',
    change_messages BIGINT COMMENT 'of these, with row changes',
    ddl BIGINT COMMENT 'with statements',
    control BIGINT COMMENT 'heartbeats and transaction marks alone',
    routed_out BIGINT COMMENT 'of tables that a rule excludes',
    rejected BIGINT COMMENT 'not decoded',
    changes BIGINT COMMENT 'row changes decoded',
    reads BIGINT COMMENT 'of these, rows of a full load',
    inserts BIGINT COMMENT 'inserts',
    updates BIGINT COMMENT 'updates',
    deletes BIGINT COMMENT 'deletes',
    truncates BIGINT COMMENT 'truncates',
    partials BIGINT COMMENT 'updates that do not carry every column',
    key_changes BIGINT COMMENT 'updates that may change the key',
    inherits BIGINT COMMENT 'of these, without the whole row',
    noted BIGINT COMMENT 'changes with a note',
    order_low STRING COMMENT 'the lowest place in history',
    order_high STRING COMMENT 'the highest place in history',
    event_low TIMESTAMP COMMENT 'the earliest commit at the source',
    event_high TIMESTAMP COMMENT 'the latest commit or mark of the source: what lag and completeness are counted from',
    keys STRING COMMENT 'JSON: key columns named by the messages',
    columns STRING COMMENT 'JSON: columns seen with their logical types, in order',
    servers STRING COMMENT 'JSON: epoch and server or log that counted the positions, to the offset of its first row',
    replayed BIGINT COMMENT 'of the batch''s rejects, those decoded after all',
    replayed_in BIGINT COMMENT 'by that later batch',
    erased BIGINT COMMENT 'changes left out, because their rows were erased',
    lacks STRING COMMENT 'JSON: columns that some whole rows lack, to the lowest and highest place of the whole rows without and with each',
    turned_back BIGINT COMMENT 'changes newer by the source''s clock than all before them in their partition, at lower positions',
    announced STRING COMMENT 'JSON: columns of which the messages'' own schemas say whether they may be NULL, to the first and the last place of such a row, that, what older rows have, if it is known, and the labels of an enumeration',
    layouts STRING COMMENT 'JSON: the columns in the order of a PostgreSQL table, by the messages'' own schemas, each with the first and the last place of such a row, and the columns that the first one leaves unchanged',
    load_marks STRING COMMENT 'JSON: marks before and after full loads, each with its offset, the source''s clock in microseconds, and whether it ends the load',
    left_out BIGINT COMMENT 'changes of a table that a rule excludes, in messages that are counted for another table or as a statement'""",
    joins=True,
)

CPU = "cpu_ms"
"""Among a mirror's counts: CPU milliseconds of the thread that folded it by Arrow. Spark's tasks serve many mirrors, so
theirs cannot be assigned to one."""

RUNS = TableSchema(
    "runs",
    "What each stage of each run did, and with each mirror.",
    """run STRING COMMENT 'identifier of the run, also in the metadata of its commits',
    pipeline STRING COMMENT 'name of the pipeline',
    batch BIGINT COMMENT 'the newest batch it dealt with; of an alarm the batch whose messages it is about',
    stage STRING COMMENT 'bronze, silver, gold, quality, or alarm',
    subject STRING COMMENT 'source or mirror',
    state STRING COMMENT 'done, failed, held, alarm, check (a failed one) or skipped',
    started_at TIMESTAMP COMMENT 'when the stage or mirror was begun; of what was only found, when it was recorded',
    seconds DOUBLE COMMENT 'how long it took',
    version BIGINT COMMENT 'the mirror''s Delta version after the batch',
    counts STRING COMMENT 'JSON; of a mirror rewritten_bytes and, where Arrow folded it, cpu_ms: the milliseconds of the thread that did',
    message STRING COMMENT 'what went wrong or is waited for',
    complete_until TIMESTAMP COMMENT 'of stage gold, for all mirrors together: the source time before which no change is expected any more; NULL where it is not known, and in all other rows',
    command STRING COMMENT 'of a mirror, the command that resolves what the message says; NULL where it says what to do itself',
    ran STRING COMMENT 'of a stage: spark if Spark jobs did its work, driver if the driver''s process did; NULL in all other rows',
    jobs BIGINT COMMENT 'of a stage: its Spark jobs',
    tasks BIGINT COMMENT 'of a stage: the tasks of these',
    executors BIGINT COMMENT 'of a stage: the executors that ran these; 0 where driver and executors are one process'""",
)

DECISIONS = TableSchema(
    "decisions",
    "What was decided, by this software or by the operator. The newest row of a kind and subject holds.",
    """decided_at TIMESTAMP COMMENT 'when, for reading: the order is that of number',
    kind STRING COMMENT 'schema, column, approve, dismiss, epoch, pause, erase ...',
    subject STRING COMMENT 'mirror, lane or source',
    batch BIGINT COMMENT 'the batch at which it was decided',
    value STRING COMMENT 'JSON',
    reason STRING COMMENT 'why, in words',
    by STRING COMMENT 'the run, or the user',
    number BIGINT COMMENT 'the place of the decision among all, counted from 1'""",
)

CHECKS = TableSchema(
    "checks",
    "What was checked after each batch, and what came out.",
    """run STRING COMMENT 'identifier of the run',
    batch BIGINT COMMENT 'number of the batch',
    mirror STRING COMMENT 'name of the mirror',
    check STRING COMMENT 'name of the check, or type of the expectation',
    `column` STRING COMMENT 'the column that it is about',
    severity STRING COMMENT 'warn or error: an error that fails makes the run exit with 1',
    state STRING COMMENT 'pass, warn, fail or error',
    observed DOUBLE COMMENT 'the number that was judged',
    threshold STRING COMMENT 'what it was judged by',
    detail STRING COMMENT 'the outcome in words',
    checked_at TIMESTAMP COMMENT 'when',
    failing STRING COMMENT 'JSON array of up to 20 keys',
    source STRING COMMENT 'for checks of a source; such rows have no mirror',
    statement STRING COMMENT 'id of the statement that has left what was counted; a decision on it settles the verdict',
    command STRING COMMENT 'the command that repairs what was counted, where there is one for just this'""",
)

SCHEMAS = TableSchema(
    "schemas",
    "The Avro schemas that a registry has given, so that old bytes can be decoded without it.",
    """source STRING COMMENT 'name of the source',
    id BIGINT COMMENT 'the registry''s number, as it is in the messages'' frames',
    schema STRING COMMENT 'JSON, with what it refers to written into it',
    fetched_at TIMESTAMP COMMENT 'when the registry gave it'""",
)

ALL = (BRONZE, CHANGES, DDL, REJECTS, BOOKS, RUNS, DECISIONS, CHECKS, SCHEMAS)
BY_NAME = {schema.name: schema for schema in ALL}
