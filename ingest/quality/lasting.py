"""Faults that stay: what a batch has made wrong is still wrong when the next one is right.

A run measures what its batches touched. A fault that it found there is found again by each later look at the mirror,
as a warning of the run that keeps the mirror's state, until something happened that can have repaired it: everything was
checked again (`ingest quality`, which `ingest rebuild` does, too; not for `OF_BATCHES`), an epoch or a decoding again, an equal
comparison with the source; or until the operator accepts it. If it names its rows, it also ends when a newer batch has written
or deleted each of them: what a batch writes is judged by the check of that batch. A change that came late is no newer one, but
may be the one that was missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ingest.change import TableId
from ingest.errors import IngestError, command
from ingest.ledgers import mirrors
from ingest.ledgers.decisions import DECODED, EPOCH, RESNAPSHOT
from ingest.quality import images_before
from ingest.quality.catalogue import (
    CHECKS,
    FAIL,
    FAILING_KEYS,
    FOUND,
    MAX_DETAIL,
    NEVER_SENT,
    PASS,
    RECONCILED,
    WARN,
    WHOLE_ROW,
    CheckResult,
    Metric,
    as_found,
    explained,
    key_cells,
    with_said,
)
from ingest.quality.counts import open_refusals
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.tables import duck
from ingest.tables.json_cells import list_in
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHECKS as TABLE
from ingest.tables.tables import Row, Tables

_LASTING = ", ".join(duck.text(check.name) for check in CHECKS.values() if check.lasting)
_OPEN = f"""SELECT c.* FROM (SELECT * FROM {{checks}} WHERE "check" <> '{RECONCILED}'
    QUALIFY rank() OVER (PARTITION BY mirror, source ORDER BY checked_at DESC) = 1) AS c
    WHERE state IN ('{FAIL}', '{WARN}') AND "check" IN ({_LASTING})"""
"""The faults of the last look at each mirror and source."""
OF_BATCHES = frozenset({"unplaced_changes", "re_reads_ignored", "positions_started_again"})
"""The checks that compare a batch with what was folded before it: to look at all batches at once finds nothing of it."""
_REFUSED = "refused_changes"
_CLOSED_LATE = ("images_before", NEVER_SENT)  # a message that was missing may come late
OPEN = "open"  # the mark in the log of `checks` that says whether faults are left


def may_be_open(lake: Tables) -> bool:
    """False if the last check has marked that no fault is left, so that nothing has to be read to know it."""
    return lake.last_marks(TABLE.name).get(OPEN) is not False


def found_before(
    lake: Lake,
    subjects: Iterable[CheckedMirror],
    sources: Iterable[str],
    verdicts: Sequence[CheckResult],
    since: int,
) -> tuple[list[CheckResult], bool]:
    """What earlier looks have found.

    Where everything was judged again (after batch 0), only what compares a batch with those before it is left.

    Returns:
        The verdicts on batches after ``since``, with the faults in these mirrors and sources that are not repaired; and whether
        there are any in others.
    """
    subjects = list(subjects)
    lanes: dict[tuple[str | None, str | None], set[str]] = {
        (subject.name, None): {lane.source for lane in subject.lanes} for subject in subjects
    }
    lanes |= {(None, name): {name} for name in sources}
    rows = lake.ask(_OPEN)
    of_lanes = [row for row in rows if (row["mirror"], row["source"]) in lanes]
    names = (
        mirrors.by_name(lake).keys() | lake.pipeline.by_source.keys()
    )  # some faults are of mirrors that are gone
    rest = {row["mirror"] or row["source"] for row in rows if (row["mirror"], row["source"]) not in lanes}
    if since == 0:
        of_lanes = [row for row in of_lanes if row["check"] in OF_BATCHES]
    of, refused = {subject.name: subject for subject in subjects}, _refused_now(lake, of_lanes)
    judged, kept = list(verdicts), list[CheckResult]()
    for row in _unrepaired(lake, of_lanes, lanes):
        left = _left(lake, of[row["mirror"]], row, since, refused) if row["mirror"] else row
        if row["check"] == "images_before" and len(of[row["mirror"]].lanes) == 1:
            judged = _known_as_late(judged, row, left)
        if left is None:
            continue
        result = _again(left, lake.pipeline.file)
        if (again := _found_again(judged, result)) is None:
            kept.append(result)
        else:
            judged[again] = _united(judged[again], result)
    over = {_place(result)[:3] for result in kept}
    sound = [result for result in judged if result.state != PASS or _place(result)[:3] not in over]
    return sound + kept, not rest.isdisjoint(names)


def _refused_now(lake: Tables, rows: Iterable[Row]) -> dict[TableId, Metric]:
    """What is said now of the refused changes of each table, if one of some faults is about such."""
    if not any(row["check"] == _REFUSED for row in rows):
        return {}
    return {table: metric for (table, check, _), metric in open_refusals(lake).items() if check == _REFUSED}


def _left(
    lake: Lake,
    subject: CheckedMirror,
    row: Row,
    since: int,
    refused: Mapping[TableId, Metric],
) -> Row | None:
    """A fault without the rows that newer changes have written or deleted; None if no other was wrong.

    ``refused`` are the open rejects of changes, by table.
    """
    if row["check"] == _REFUSED:
        return _still_refused(row, refused.get(subject.table))
    ends = CHECKS[row["check"]].ends_with
    keys: Sequence[str] = list_in(row["failing"])
    if (
        not (ends or row["check"] in _CLOSED_LATE)
        or len(keys) != row["observed"]
        or subject.mirror is None
        or subject.mirror.soft
    ):
        return row  # not all of its rows are named, or their state depends on earlier changes
    condition = f" AND {duck.SENT_WHOLE}" if ends == WHOLE_ROW else ""
    condition += f" AND batch > {since} AND batch <= {subject.applied}"
    for lane in subject.lanes:
        if ends and keys and lane.changes:
            keys = _not_written(lake, lane, keys, subject.mirror.keys, condition)
    if keys and row["check"] in _CLOSED_LATE:
        keys = _still_broken(lake, subject, row["check"], keys, since)
    return row | {"failing": json.dumps(keys), "observed": float(len(keys))} if keys else None


def _still_refused(row: Row, now: Metric | None) -> Row | None:
    """A fault of refused changes as the open rejects of its table are now: it ends when they are closed."""
    if now is None:
        return None
    said = with_said(row["detail"] or "", now.detail)
    return row | {"failing": json.dumps(now.failing), "observed": now.observed, "detail": said}


def _still_broken(
    lake: Lake, subject: CheckedMirror, check: str, keys: Iterable[str], since: int
) -> list[str]:
    """Those keys whose images before do not fit each other, or whose rows never came.

    Changes that came late may have closed the gap, and a table that was emptied has no old row. A key with other columns
    than those of the mirror's is none of its keys: with another key all was checked again.
    """
    mirror = subject.decided
    cells = {
        key: tuple(str(named[name]) for name in mirror.keys)
        for key in keys
        if (named := key_cells(key)).keys() == {*mirror.keys}
    }
    begun = (batch > since for lane in subject.lanes for step, batch in subject.steps(lane) if step.empties)
    if not (any(lane.floor or lane.truncates for lane in subject.lanes) or any(begun)):
        return [*cells]
    is_unsent = check == NEVER_SENT
    open_still = images_before.still_broken(lake, subject, cells.values(), unsent=is_unsent)
    return [key for key in cells if cells[key] in open_still]


def _known_as_late(verdicts: list[CheckResult], before: Row, left: Row | None) -> list[CheckResult]:
    """Verdicts without the doubt whether changes are late or positions started again, if each fits a gap that was named.

    A change that lies between two that did not fit each other, and fits both, can only be the one that was missing.
    """
    open_still = json.loads(left["failing"]) if left else []
    closed = {_cells(key) for key in list_in(before["failing"]) if key not in open_still}
    return [
        replace(verdict, state=PASS)
        if verdict.metric.check == "old_positions"
        and verdict.metric.mirror == before["mirror"]
        and verdict.metric.failing
        and closed.issuperset(map(_cells, verdict.metric.failing))
        else verdict
        for verdict in verdicts
    ]


def _cells(key: str) -> tuple[str | None, ...]:
    return tuple(key_cells(key).values())


def _not_written(
    lake: Tables, lane: CheckedLane, keys: Sequence[str], names: Sequence[str], condition: str
) -> list[str]:
    """Those keys that no newer change of a lane, of those that meet a condition, has written or deleted."""
    texts = [[str(cell) for cell in key_cells(key).values()] for key in keys]
    listed = ", ".join(f"[{', '.join(map(duck.text, cells))}]" for cells in texts)
    rows = lake.ask(
        f"""SELECT DISTINCT k FROM (SELECT [{duck.cells(names)}] AS k FROM {{changes.change}}
        WHERE {lane.where} AND op <> 'truncate'
        AND order_key > {duck.text(lane.folded_high)}{condition}) AS c WHERE k IN ({listed})"""
    )
    written = [row["k"] for row in rows]
    return [key for key, cells in zip(keys, texts, strict=True) if cells not in written]


def _found_again(verdicts: Iterable[CheckResult], fault: CheckResult) -> int | None:
    """The number of the verdict that has found a fault again; None if none has."""
    alike = (i for i, each in enumerate(verdicts) if each.state != PASS and _place(each) == _place(fault))
    return next(alike, None)


def _united(new: CheckResult, old: CheckResult) -> CheckResult:
    """A fault that was found again, with the rows that were wrong before."""
    more = [key for key in old.metric.failing if key not in new.metric.failing]
    if not CHECKS[new.metric.check].ends_with or not more:
        return new
    unnamed = old.metric.observed - len(old.metric.failing)
    observed = new.metric.observed + unnamed + len(more)
    return replace(
        new,
        metric=replace(new.metric, observed=observed, failing=(*new.metric.failing, *more)[:FAILING_KEYS]),
    )


def are_left(verdicts: Iterable[CheckResult]) -> bool:
    """True if some of the verdicts are faults that stay."""
    return any(verdict.state != PASS and _lasts(verdict.metric.check) for verdict in verdicts)


def _lasts(check: str) -> bool:
    return check in CHECKS and CHECKS[check].lasting


def _place(result: CheckResult) -> tuple[str | None, str | None, str, str | None]:
    metric = result.metric
    return metric.mirror, metric.source, metric.check, metric.column


def _unrepaired(
    lake: Tables, rows: list[Row], lanes: dict[tuple[str | None, str | None], set[str]]
) -> list[Row]:
    if not rows:
        return []
    equal = lake.ask(
        f"""SELECT mirror, max(checked_at) AS at FROM {{checks}} WHERE "check" = '{RECONCILED}' AND state = '{PASS}' GROUP BY mirror"""
    )
    decided = lake.ask(
        f"SELECT kind, subject, max(decided_at) AS at FROM {{decisions}} WHERE kind IN ('{DECODED}', '{EPOCH}', '{RESNAPSHOT}') "
        "GROUP BY kind, subject"
    )
    compared = {row["mirror"]: row["at"] for row in equal}

    def is_repaired(row: Row) -> bool:
        names = lanes[row["mirror"], row["source"]]
        times = [
            decision["at"]
            for decision in decided
            if decision["kind"] == DECODED or decision["subject"] in names
        ]
        times += [moment for moment in [compared.get(row["mirror"])] if moment is not None]
        return any(moment > row["checked_at"] for moment in times)

    return [row for row in rows if not is_repaired(row)]


def _again(row: Row, file: Path) -> CheckResult:
    """A fault as it was found, with the batch in which that was, and what ends it."""
    limit = None if row["threshold"] is None else float(row["threshold"])
    detail = row["detail"] or explained(row["check"], row["observed"], limit)
    if as_found(detail) == detail:
        subject = row["mirror"] or row["source"]
        typed = command("quality", file)
        ends = f"`{typed} --accept {subject}` accepts it"
        if row["check"] not in OF_BATCHES:
            ends = f"`{typed}` checks everything again, and with --accept {subject} accepts it"
        detail = f"{FOUND}{row['batch']} and not repaired since ({ends}): {detail}"
    failing = tuple(list_in(row["failing"]))
    metric = Metric(
        row["check"], row["observed"], row["mirror"], row["source"], row["column"], limit, row["severity"], detail, failing,
        command=row["command"] or "",
    )  # fmt: skip
    return CheckResult(metric, row["state"], lasting=True)


def accept(lake: Lake, subject: str, why: str) -> list[str]:
    """Record that a mirror's or source's lasting faults are accepted, as one more look at it.

    Returns:
        The faults, in words.

    Raises:
        IngestError: it has none.
    """
    names = TABLE.arrow.names
    listed, is_subject = ", ".join(map(duck.name, names)), f"{duck.text(subject)} IN (mirror, source)"
    look = lake.ask(
        f"""SELECT {listed} FROM {{checks}} WHERE {is_subject} AND "check" <> '{RECONCILED}'
        QUALIFY rank() OVER (ORDER BY checked_at DESC) = 1"""
    )
    accepted, now = [], lake.now()
    for row in look:
        row |= {"run": lake.run, "checked_at": now}
        if row["state"] in (FAIL, WARN) and _lasts(row["check"]):
            accepted.append(row["detail"] or explained(row["check"], row["observed"], None))
            row |= {"state": PASS, "detail": f"{why}: {accepted[-1]}"[:MAX_DETAIL]}
    if not accepted:
        listed_by = command("quality", lake.pipeline.file, "--last")
        raise IngestError(f"Nothing that stays was found wrong in {subject}: see `{listed_by}`.")
    lake.append_unguarded([tuple(row[name] for name in names) for row in look], TABLE)
    return accepted
