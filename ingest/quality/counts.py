"""Checks that need no rows of mirrors: from books, receipts, rejects, the DDL ledger and the logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ingest.change import TableId
from ingest.errors import agreeing, command, counted
from ingest.ledgers import pauses
from ingest.ledgers.rejects import CONVERTED_SQL, open_sql
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.ledgers import Ledgers
from ingest.quality.subjects import Booked, CheckedMirror
from ingest.tables import duck
from ingest.tables.schemas import REJECTS
from ingest.tables.tables import Row, Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake


Receipt = tuple[str, Mapping[str, Any]]  # source, bronze's receipt of a range that it read
Stretch = tuple[str, str]  # a file, or a topic's partition with the topic's id
Ranges = Mapping[Stretch, list[tuple[int, int]]]


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror]) -> Iterator[Metric]:
    """Freshness, progress, order strength and columns of each mirror, from the books and the logs."""
    now = dt.datetime.now(dt.UTC)
    paused = pauses.paused(lake)
    for subject in chosen:
        if (newest := subject.newest(now)) is not None:
            yield Metric("freshness", max(0.0, (now - newest).total_seconds()), subject.name)
        if subject.path in paused:  # as the operator has decided
            yield Metric("up_to_date", 0, subject.name, detail="not judged while the mirror is paused")
        else:
            yield _up_to_date(lake, subject)
        yield _order_strength(lake, subject)
        if subject.has_table:
            actual = subject.types
            wanted = {
                column.column: column.delta.upper().replace(" ", "") for column in subject.decided.columns
            }
            names = sorted(
                name for name in actual.keys() | wanted.keys() if actual.get(name) != wanted.get(name)
            )
            texts = (
                f"{name} is {actual.get(name, 'absent')}, decided {wanted.get(name, 'absent')}"
                for name in names[:FAILING_KEYS]
            )
            yield Metric("schema", len(names), subject.name, detail="; ".join(texts))


def _up_to_date(lake: Lake, subject: CheckedMirror) -> Metric:
    has_had_rows = subject.exists or any(lane.changes_ever > lane.truncates_ever for lane in subject.lanes)
    if subject.applied >= subject.last or not has_had_rows:
        return Metric("up_to_date", 0, subject.name)
    lanes = " OR ".join(f"({lane.where})" for lane in subject.lanes)
    [waiting] = lake.ask(
        f"""SELECT count(DISTINCT batch) AS n, CAST(sum(changes) AS BIGINT) AS changes FROM {{books}}
        WHERE batch > {subject.applied} AND changes > 0 AND ({lanes or "false"})"""
    )
    batches, changes = counted(waiting["n"], "decoded batch", "decoded batches"), waiting["changes"] or 0
    typed = command("run", lake.pipeline.file)
    detail = f"{batches} with {counted(changes, 'change')} not applied yet: `{typed}` folds what waits, or says why it does not"
    return Metric("up_to_date", float(waiting["n"]), subject.name, detail=detail)


def _order_strength(lake: Lake, subject: CheckedMirror) -> Metric:
    """A dialect without positions is reliable only within one partition: Kafka has no order across partitions."""
    sources = lake.pipeline.by_source
    extra, names = 0, []
    for lane in subject.lanes:
        source = sources.get(lane.source)
        if source is None or source.kind != "kafka" or lane.places < 2:
            continue
        if source.about.strength == "weak":
            extra += lane.places - 1
            names.append(f"{source.name} has no positions and was read from {lane.places} partitions")
    detail = "; ".join(names) and "; ".join(names) + ": changes of one key may have been folded out of order"
    return Metric("order_strength", extra, subject.name, detail=detail)


REFUSED = {"cell": "cell_rejects", "change": "refused_changes"}
"""The check of each kind of reject that a fold writes."""
_REASONS = 3  # of a column's cells that do not fit


def rejects(lake: Lake, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """Cells that did not fit, by column, and changes without a usable key, with some of their keys."""
    by_table = {subject.table: subject for subject in chosen}
    reported: set[tuple[str, str]] = set()
    for row in _rejected(lake, since):
        subject = by_table.get(TableId.of(row))
        if subject is None:
            continue
        metric = _refused(row, subject.name)
        reported.add((metric.check, subject.name))
        yield metric
    for sound in by_table.values():
        yield from (
            Metric(check, 0, sound.name) for check in REFUSED.values() if (check, sound.name) not in reported
        )


def open_refusals(lake: Tables) -> dict[tuple[TableId, str, str | None], Metric]:
    """What `rejects` says of all that are open by now, by table, check and column: some were dismissed since the last look."""
    metrics = ((TableId.of(row), _refused(row)) for row in _rejected(lake, 0))
    return {(table, metric.check, metric.column): metric for table, metric in metrics}


def _refused(row: Row, mirror: str = "") -> Metric:
    """The rejects of one kind, table and column, in words."""
    n, whys = row["n"], sorted(set(row["whys"]))
    what, why = counted(n, "cell does", "cells do") + " not fit", ", or ".join(whys[:_REASONS])
    if row["kind"] == "change":  # each reason names its own key
        what, why = counted(n, "change was", "changes were") + " not applied", row["why"]
    example = f", for example {_short(row['raw'])}" if row["raw"] else ""
    failing = tuple(sorted(filter(None, row["keys"]))[:FAILING_KEYS])
    check = REFUSED[row["kind"]]
    return Metric(
        check, n, mirror or None, column=row["column"], detail=f"{what}: {why}{example}", failing=failing
    )


def _rejected(lake: Tables, since: int) -> list[Row]:
    """Read only if some fold has written there, according to the table's log."""
    folds = lake.pipeline.name + "/gold/"
    writers = lake.snapshot(REJECTS.name).transactions
    if not any(batch > since for writer, batch in writers.items() if writer.startswith(folds)):
        return []
    names = ", ".join(map(duck.name, ("kind", *TableId._fields, "column")))
    why = "regexp_replace(detail, '; row [0-9]+$', '')"
    return lake.ask(
        f"SELECT {names}, count(*) AS n, first({why}) AS why, array_agg(DISTINCT {why}) AS whys, first(raw) AS raw, "
        f"array_agg(DISTINCT key) AS keys "
        f"FROM ({open_sql(lake)}) WHERE kind IN ({', '.join(map(duck.text, REFUSED))}) AND NOT {CONVERTED_SQL} AND batch > {since} "
        f"GROUP BY {names} ORDER BY {names}"
    )


def _short(text: str | None, most: int = 40) -> str:
    shown = repr(text or "")
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def ddl_pending(chosen: Iterable[CheckedMirror], waiting: Mapping[str, list[str]]) -> Iterator[Metric]:
    """Statements that could not be read and have no decision."""
    for subject in chosen:
        texts = waiting.get(subject.path, [])
        detail = ""
        if texts:
            waits = counted(len(texts), "statement waits", "statements wait")
            detail = f"{waits} for a decision, the last: {_short(texts[-1], 120)}"
        yield Metric("ddl_pending", len(texts), subject.name, detail=detail)


def of_sources(
    booked: Mapping[str, Booked], ledgers: Ledgers, rejected: Mapping[str, int], since: int, last: int
) -> Iterator[Metric]:
    """Compare books with receipts; count holes in what was read, and the share of rejects, by source."""
    landed = _landed(ledgers.receipts)
    for source in sorted(booked.keys() | landed.keys()):
        books = booked.get(source, Booked())
        messages, ranges = landed.get(source, (0, {}))
        off = abs(messages - books.messages) + books.off
        detail = f"{counted(messages, 'message')} landed, {books.messages:,} in the books" if off else ""
        yield Metric("books_balance", off, source=source, detail=detail)
        accepted = [gap for name, gap in ledgers.accepted if name == source]
        places = [f"{gap.get('topic')}/{gap.get('partition')}" for gap in accepted]
        offsets = [int(gap.get("offset") or 0) for gap in accepted]
        yield _gaps(source, ranges, set(zip(places, offsets, strict=True)))
        texts = [  # known, but still a reason to compare with the source
            f"{place} {gap.get('reason') or ''}".strip()
            for place, gap in zip(places, accepted, strict=True)
            # it was accepted after that batch, and lacks in the next one; a look at all batches has those before the next, too
            if gap["batch"] >= since and (gap["batch"] < last or not since)
        ]
        yield Metric("losses", len(texts), source=source, detail="; ".join(texts[:FAILING_KEYS]))
        waiting = rejected.get(source, 0)
        share = min(1.0, waiting / books.messages_ever) if books.messages_ever else 0.0
        detail = ""
        if share:
            wait = agreeing(waiting, "waits: it", "wait: each")
            detail = f"{counted(waiting, 'message')} could not be decoded and {wait} may belong to any table of {source}"
        yield Metric("reject_rate", share, source=source, detail=detail)


def undecoded_messages(lake: Lake, booked: Mapping[str, Booked]) -> dict[str, int]:
    """Rejected messages by source, neither decoded later nor dismissed; read only if any was ever rejected."""
    if not any(of_source.rejected_ever for of_source in booked.values()):
        return {}
    rows = lake.ask(
        f"SELECT source, count(*) AS n FROM ({open_sql(lake)}) WHERE kind = 'message' GROUP BY source"
    )
    return {row["source"]: row["n"] for row in rows}


def _landed(receipts: Iterable[Receipt]) -> dict[str, tuple[int, Ranges]]:
    """Messages by the receipts of the batches in the books, and the ranges read of each file or partition."""
    by_source: dict[str, tuple[int, dict[Stretch, list[tuple[int, int]]]]] = {}
    for source, receipt in receipts:
        count, ranges = by_source.get(source, (0, {}))
        if "file" in receipt and "start" in receipt:
            ranges.setdefault((receipt["file"], ""), []).append((receipt["start"], receipt["end"]))
        elif "from" in receipt:
            place = f"{receipt['topic']}/{receipt['partition']}"
            read = (receipt["from"], receipt["to"])
            ranges.setdefault((place, receipt.get("topic_id") or "-"), []).append(read)
        by_source[source] = (count + int(receipt.get("count") or 0), ranges)
    return dict(by_source)


def _gaps(source: str, ranges: Ranges, accepted: Collection[tuple[str, int]]) -> Metric:
    """Holes between the ranges of one file or partition; the part before the first belongs to an earlier batch."""
    holes = []
    for (place, topic_id), read in ranges.items():
        reached = min(start for start, _ in read)
        for start, end in sorted(read):
            if start > reached and (place, reached) not in accepted:
                holes.append(f"{place} {'offsets' if topic_id else 'bytes'} {reached} to {start}")
            reached = max(reached, end)
    return Metric("gaps", len(holes), source=source, detail="; ".join(holes[:FAILING_KEYS]))
