"""Decode a sample of messages in the command's process, by the same code as a batch, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingest.config import Pipeline
from ingest.decoding import schema_registry
from ingest.decoding.split import SPLIT
from ingest.errors import SetupError
from ingest.ledgers.books import Line, merged
from ingest.tables.schemas import BRONZE

if TYPE_CHECKING:
    import pyarrow as pa

_DDL = (
    "batch", "source", "topic", "partition", "offset", "row", "database", "schema", "table", "order_key", "event_time"
)  # fmt: skip


@dataclass(slots=True)
class Foretold:
    """What silver would write of some messages."""

    lines: list[Line] = field(default_factory=list)
    statements: list[Mapping[str, Any]] = field(default_factory=list)  # columns of `ddl`, by name
    changes: list[Mapping[str, Any]] = field(default_factory=list)  # of `changes`, if a rule asks for cells
    rejects: list[tuple[str, str, str, str]] = field(default_factory=list)  # source, topic, reason, detail
    faults: dict[str, str] = field(default_factory=dict)  # by source: a registry that does not answer


class _Asked(dict[int, str]):
    """A registry's schemas, fetched when needed; after its first failure nothing more is fetched."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._ask = schema_registry.client(url)
        self.fault = ""

    def __missing__(self, schema_id: int) -> str:
        if self.fault:
            raise KeyError(schema_id)
        try:
            return self.setdefault(schema_id, self._ask(schema_id))
        except SetupError as error:
            self.fault = str(error)
            raise KeyError(schema_id) from None


def decode(pipeline: Pipeline, messages: Iterable[tuple[Any, ...]]) -> Foretold:
    """Decode messages, given as the columns `INPUT` of bronze."""
    foretold, given = Foretold(), list(messages)
    if not given:
        return foretold
    import pyarrow as pa  # importing it takes longer than most plans

    from ingest.silver.lift import INPUT, Lifting, lift

    asked = {source.name: _Asked(source.registry) for source in pipeline.sources if source.registry}
    rows = [dict(zip(INPUT, message, strict=True)) for message in given]
    batch = pa.RecordBatch.from_pylist(rows, schema=BRONZE.part(*INPUT))
    asks = any(rule.where or rule.made for rule in pipeline.every_rule)
    for page in lift(Lifting(pipeline, schemas=asked))(iter([batch])):
        _sort(page, foretold)
        if asks:
            foretold.changes += [row for row in page.to_pylist() if row["kind"] == "change"]
    foretold.lines = merged(foretold.lines)
    foretold.faults = {name: schemas.fault for name, schemas in asked.items() if schemas.fault}
    foretold.rejects = [  # a sample need not have all parts of a message
        reject for reject in foretold.rejects if reject[0] not in foretold.faults and reject[2] != SPLIT
    ]
    return foretold


def _sort(page: pa.RecordBatch, foretold: Foretold) -> None:
    """Keep the DDL, rejects and book lines of one page of rows."""
    for number, kind in enumerate(page.column("kind").to_pylist()):
        if kind == "change":
            continue
        row = page.slice(number, 1).to_pylist()[0]
        payload = json.loads(row["payload"])
        if row["kind"] == "book":
            foretold.lines.append(Line.from_json(row["payload"]))
        elif row["kind"] == "reject":
            foretold.rejects.append((row["source"], row["topic"], payload["reason"], payload["detail"]))
        else:
            parsed = payload["parsed"]
            statement = {name: row[name] for name in _DDL} | {"statement": payload["statement"]}
            foretold.statements.append(
                statement | {"class": parsed["kind"], "effects": json.dumps(parsed["effects"])}
            )
