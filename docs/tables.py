"""Write the reference of the product's own tables, docs/tables.md: ``python -m docs.tables``.

Columns, types and what their COMMENT says come from `ingest.lake.schemas`; what is said here is the
meaning of the tables, and of the columns whose names were thought to say enough for one who knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ingest.lake.schemas import ALL, TableSchema

PAGE = Path(__file__).parent / "tables.md"

TABLES = {
    "bronze": "Everything as it was received. Partitioned by kind and day; nothing is ever changed in it.",
    "changes": "Everything that was decoded, in one total order. The mirrors are folds of its rows of kind `change`.",
    "ddl": "The ledger of DDL statements: what was said, and what was understood of it.",
    "rejects": "What could not be used. Rows stay; `ingest rejects` leaves out what was replayed or dismissed since.",
    "books": "Where the messages of a batch went, per partition and table: "
    "messages = change_messages + ddl + control + routed_out + rejected.",
    "runs": "What each stage of each run did, and with each mirror.",
    "decisions": "What was decided, by this software or by a person. The newest row of a kind and subject holds.",
    "checks": "What was checked after each batch, and what came out.",
    "schemas": "The Avro schemas that a registry has given, so that old bytes can be decoded without it.",
}
"""What one row of each table is for."""

_POSITION = {
    "source": "name of the source in the pipeline file",
    "topic": "Kafka topic or file path",
    "partition": "Kafka partition, or the file's rank in its batch",
    "offset": "Kafka offset, or the record's byte offset in its file",
    "batch": "number of the batch",
    "row": "index of the change in its message",
    "database": "database of the source table; NULL where the source has none",
    "schema": "schema of the source table; NULL where the source has none",
    "table": "name of the source table; NULL for messages that name none",
}
MEANINGS = {
    "bronze": {
        "timestamp": "time that the broker or producer gave the message; NULL for files",
        "key": "the Kafka key; NULL for files",
        "value": "the message's bytes; of a receipt, its JSON",
        "headers": "Kafka headers, and `ingest.oversize` with the length of a record too large to keep",
        "ingested_at": "when it was landed",
        "day": "the day of it, for partitioning",
    },
    "changes": {
        "op": "insert, update, delete, read (full load), truncate, ddl",
        "event_time": "when the source committed it, as far as the message says",
        "transaction": "the source's transaction, as the message names it",
        "note": "what was odd about the message, in words",
    },
    "ddl": {
        "order_key": "its place in history, as in `changes`",
        "sequence": "the position as the vendor wrote it",
        "event_time": "when the source ran it",
        "statement": "its text",
        "reason": "why it is of that class",
        "note": "what was odd about the message, in words",
    },
    "rejects": {
        "stage": "silver (messages) or gold (cells, changes)",
        "column": "the column of a cell",
        "reason": "a stable code to group by",
        "detail": "what is wrong, in one sentence",
        "decoder": "version of the decoder that refused it",
    },
    "books": {
        "messages": "messages received",
        "change_messages": "of these, with row changes",
        "ddl": "with statements",
        "control": "heartbeats and transaction marks alone",
        "routed_out": "of tables that a rule excludes",
        "rejected": "not decoded",
        "changes": "row changes decoded",
        "reads": "of these, rows of a full load",
        "inserts": "inserts",
        "updates": "updates",
        "deletes": "deletes",
        "truncates": "truncates",
        "partials": "updates that do not carry every column",
        "key_changes": "updates that may change the key",
        "inherits": "of these, without the whole row",
        "noted": "changes with a note",
        "order_low": "the lowest place in history",
        "order_high": "the highest place in history",
        "event_low": "the earliest commit at the source",
        "event_high": "the latest commit at the source: what lag is counted from",
    },
    "runs": {
        "run": "identifier of the run, also in the metadata of its commits",
        "pipeline": "name of the pipeline",
        "batch": "the newest batch it dealt with",
        "stage": "bronze, silver, gold, quality, or alarm",
        "started_at": "when the row was written, at the end of the run",
        "seconds": "how long it took",
        "message": "what went wrong or is waited for",
    },
    "decisions": {
        "decided_at": "when",
        "batch": "the batch at which it was decided",
        "reason": "why, in words",
        "by": "the run, or the user",
    },
    "checks": {
        "run": "identifier of the run",
        "mirror": "name of the mirror",
        "check": "name of the check, or type of the expectation",
        "column": "the column that it is about",
        "severity": "warn or error: an error that fails makes the run exit with 1",
        "observed": "the number that was judged",
        "threshold": "what it was judged by",
        "detail": "the outcome in words",
        "checked_at": "when",
    },
    "schemas": {"source": "name of the source", "fetched_at": "when the registry gave it"},
}
"""Columns that the schemas leave without a COMMENT; positions are the same everywhere."""

_COLUMN = re.compile(r"`?(\w+)`? ((?:[A-Z]+)(?:<(?:[^<>]|<[^<>]*>)*>)?)(?: COMMENT '((?:[^']|'')*)')?")
_HEAD = """\
# The product's own tables

Written by `python -m docs.tables` from the tables' definitions. All are Delta tables in the lake's folder; query them by
name with `ingest sql`. Their columns may become more, never fewer; JSON is text, read with your engine's JSON functions.
The mirrors are not listed here: they have the columns of their source tables and nothing else.
"""


def columns(schema: TableSchema) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each column.

    Raises:
        KeyError: a column has no meaning, neither in the schema nor here.
    """
    for name, kind, comment in _COLUMN.findall(schema.ddl):
        told = comment.replace("''", "'") or MEANINGS.get(schema.name, {}).get(name) or _POSITION[name]
        yield name, kind, told


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(schema) for schema in ALL)])


def _section(schema: TableSchema) -> str:
    rows = [f"| `{name}` | {kind} | {_cell(told)} |" for name, kind, told in columns(schema)]
    lines = [f"## {schema.name}", "", TABLES[schema.name], "", "| column | type | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
