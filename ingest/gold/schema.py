"""Deciding a mirror's schema for a batch: keys, columns and types, from rules, messages and DDL."""

from __future__ import annotations

from ingest.errors import HeldError
from ingest.gold.ledger import Ledger, shown
from ingest.gold.work import Job
from ingest.lake.mirrors import Mirror, grown


def decide(job: Job, mirror: Mirror | None, ledger: Ledger) -> Mirror:
    """The schema that a mirror needs for its new batches; without a key while none is known or needed.

    Raises:
        HeldError: the mirror cannot have one; the text says what to write.
    """
    if len(job.lines) > 1 and not job.rule.shard_column:
        names = " and ".join(sorted(f"{source}:{table}" for source, table in job.lines))
        raise HeldError(
            f"{job.table} is fed by {names}, whose positions cannot be compared: "
            "give its tables: entry a shard_column, or another into:."
        )
    seen = job.columns()
    keys = job.rule.keys or job.keys() or (mirror.keys if mirror else ())
    for source, table in job.lines:
        logged_keys, columns = shown(ledger.of(source, table))
        keys = keys or logged_keys
        for name, logical in columns.items():
            if seen.get(name, "unknown") == "unknown":
                seen[name] = logical
    if not keys and any(line.changes for lines in job.lines.values() for line in lines):
        raise HeldError(
            f"{job.table} has no key: write `keys: [...]` or `no_key: append` into its tables: entry."
        )
    return grown(mirror, job.table, job.rule, keys, seen)
