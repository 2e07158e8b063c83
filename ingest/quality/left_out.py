"""What the rules of a mirror leave out, counted: rows, columns, masked columns, and changes of erased rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ingest.change import LaneId
from ingest.errors import counted
from ingest.ledgers import decisions, lanes
from ingest.ledgers.decisions import ERASED
from ingest.quality.catalogue import LEFT_OUT, Metric
from ingest.quality.subjects import CheckedMirror
from ingest.tables import duck
from ingest.tables.schemas import CHANGES
from ingest.tables.tables import Tables

SHOWN = 20  # columns that are named


def of_mirrors(lake: Tables, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """Columns that the batches' rows have and the mirror lacks or masks, and what was erased; nothing without such
    rules.
    """
    with_columns = [subject for subject in chosen if subject.decided.columns]
    chosen_lanes = [lane for subject in with_columns if _chooses(lake, subject) for lane in subject.lanes]
    tables = ", ".join(sorted({duck.text(lane.table.name) for lane in chosen_lanes}))
    seen = lanes.columns_seen(lake, f'batch > {since} AND "table" IN ({tables})') if chosen_lanes else {}
    removed: dict[str, int] = {}  # changes that erasures have removed from silver, by the mirror's path
    for decision in decisions.read(lake).of(ERASED) if with_columns else ():
        n = decision.value.get("removed", {}).get(CHANGES.name, {}).get("rows", 0)
        removed[decision.subject] = removed.get(decision.subject, 0) + n
    for subject in with_columns:
        if _chooses(lake, subject):
            yield from _of_columns(lake, subject, seen)
        stopped = sum(lane.erased_ever for lane in subject.lanes)
        if gone := removed.get(subject.path, 0) + stopped:
            detail = f"{counted(gone, 'change')} of erased rows, {stopped:,} of them not written because they came later"
            yield Metric("changes_erased", gone, subject.name, detail=detail)


def source_rows(
    chosen: Iterable[CheckedMirror], metrics: Collection[Metric], since: int
) -> dict[str | None, int]:
    """The rows of each mirror's source table, as far as the mirror holds or counts them all."""
    rows = {metric.mirror: int(metric.observed) for metric in metrics if metric.check == "rows"}
    without = {metric.mirror: int(metric.observed) for metric in metrics if metric.check == LEFT_OUT}
    for subject in chosen:
        if subject.decided.where:
            held = rows.pop(subject.name, None)
            if since <= 0 and held is not None and subject.name in without:
                rows[subject.name] = held + without[subject.name]
    return rows


def _chooses(lake: Tables, subject: CheckedMirror) -> bool:
    rules = [subject.rule(lake.pipeline, lane) for lane in subject.lanes]
    return any(rule.without or rule.mask or rule.ignores for rule in rules)


def _of_columns(
    lake: Tables, subject: CheckedMirror, seen: Mapping[LaneId, Mapping[str, str]]
) -> Iterator[Metric]:
    names = {*subject.decided.by_name}
    without, masked = dict[str, str](), dict[str, str]()
    for lane in subject.lanes:
        rule = subject.rule(lake.pipeline, lane)
        for name in seen.get(lane.id, {}):
            if name not in names:
                without[name] = name
            elif how := rule.mask_of(name):
                masked[name] = f"{name} ({how})"
    for check, columns in (("columns_left_out", without), ("columns_masked", masked)):
        more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
        yield Metric(
            check, len(columns), subject.name, detail=", ".join(list(columns.values())[:SHOWN]) + more
        )
