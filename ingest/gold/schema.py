"""Deciding a mirror's schema for a batch: keys, columns and types, from rules, messages and DDL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.errors import HeldError
from ingest.gold.work import Job
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror, grown
from ingest.lake.schemas import DDL


def decide(
    lake: Lake, todo: list[Job], decided: dict[str, Mirror]
) -> Iterator[tuple[Job, Mirror | HeldError]]:
    """Each job with its mirror's schema, or the reason why it cannot have one."""
    new = any(job.path not in decided for job in todo)  # then older statements may tell of it, too
    logged = _logged(lake, [job for job in todo if new or _has_ddl(job)], whole=new)
    for job in todo:
        try:
            yield job, _decide(job, decided.get(job.path), logged)
        except HeldError as error:
            yield job, error


def _decide(job: Job, mirror: Mirror | None, logged: dict[TableId, list[dict[str, object]]]) -> Mirror:
    if len(job.lines) > 1 and not job.rule.shard_column:
        names = " and ".join(sorted(f"{source}:{table}" for source, table in job.lines))
        raise HeldError(
            f"{job.table} is fed by {names}, whose positions cannot be compared: "
            "give their tables: entry a shard_column, or another into:."
        )
    seen = job.columns()
    keys = job.rule.keys or job.keys() or (mirror.keys if mirror else ())
    for _source, table in job.lines:
        for effect in logged.get(table, ()):
            ddl_keys, columns = _of_effect(effect)
            keys = keys or ddl_keys
            for name, logical in columns.items():
                if seen.get(name, "unknown") == "unknown":
                    seen[name] = logical
    if not keys and any(line.changes for lines in job.lines.values() for line in lines):
        raise HeldError(
            f"{job.table} has no key: write `keys: [...]` or `no_key: append` into its tables: entry."
        )
    return grown(mirror, job.table, job.rule, keys, seen)


def _has_ddl(job: Job) -> bool:
    return any(line.ddl for lines in job.lines.values() for line in lines)


def _logged(lake: Lake, todo: Iterable[Job], *, whole: bool) -> dict[TableId, list[dict[str, object]]]:
    """The effects of the new DDL events by source table, in order; one read for all mirrors."""
    first = min((job.first for job in todo), default=None)
    if first is None or not lake.exists(DDL.name):
        return {}
    rows = (
        lake.read(DDL.name)
        .where((F.col("batch") >= (0 if whole else first)) & F.col("effects").isNotNull())
        .orderBy("order_key")
        .select("effects")
        .collect()
    )
    found: dict[TableId, list[dict[str, object]]] = {}
    for row in rows:
        for effect in json.loads(row["effects"]):
            found.setdefault(TableId(*effect["table"]), []).append(effect)
    return found


def _of_effect(effect: dict[str, object]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The key and the columns that one DDL effect shows."""
    if effect["action"] == "create_table":
        columns = {one["name"]: one.get("type") or "unknown" for one in effect.get("columns") or ()}  # type: ignore[attr-defined]
        return tuple(effect.get("keys") or ()), columns  # type: ignore[arg-type]
    if effect["action"] in ("add_column", "modify_column"):
        return (), {str(effect["column"]): str(effect.get("type") or "unknown")}
    return (), {}
