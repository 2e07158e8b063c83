"""Faults that stay: what a batch has made wrong is still wrong when the next one is right.

A run measures what its batches touched. A fault that it found there is found again by each later look at the mirror,
as a warning of the run that keeps the mirror's state, until something happened that can have repaired it: everything was checked
again (`ingest quality`, which `ingest rebuild` does, too), an epoch or a decoding again, an equal comparison with the source; or
until the operator accepts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from ingest.errors import IngestError
from ingest.lake import duck
from ingest.lake.decisions import DECODED, EPOCH, RESNAPSHOT
from ingest.lake.lake import Lake
from ingest.lake.schemas import CHECKS as TABLE
from ingest.lake.tables import Row
from ingest.quality.catalogue import (
    CHECKS,
    FAIL,
    MAX_DETAIL,
    PASS,
    RECONCILED,
    WARN,
    CheckResult,
    Metric,
    explained,
)
from ingest.quality.subjects import CheckedMirror

_LASTING = ", ".join(duck.text(one.name) for one in CHECKS.values() if one.lasting)
_OPEN = f"""SELECT c.* FROM (SELECT * FROM {{checks}} WHERE "check" <> '{RECONCILED}'
    QUALIFY rank() OVER (PARTITION BY mirror, source ORDER BY checked_at DESC) = 1) AS c
    WHERE state IN ('{FAIL}', '{WARN}') AND "check" IN ({_LASTING})"""
"""The faults of the last look at each mirror and source."""
OPEN = "open"  # the mark in the log of `checks` that says whether faults are left
_FOUND = "found in batch "


def may_be_open(lake: Lake) -> bool:
    """False if the last check has marked that no fault is left, so that nothing has to be read to know it."""
    return lake.last_marks(TABLE.name).get(OPEN) is not False


def found_before(
    lake: Lake, subjects: Iterable[CheckedMirror], sources: Iterable[str], verdicts: Sequence[CheckResult]
) -> tuple[list[CheckResult], bool]:
    """What earlier looks have found.

    Returns:
        The verdicts, with the faults in these mirrors and sources that nothing has repaired; and whether there are any in others.
    """
    lanes: dict[tuple[str | None, str | None], set[str]] = {
        (one.name, None): {lane.source for lane in one.lanes} for one in subjects
    }
    lanes |= {(None, name): {name} for name in sources}
    rows = lake.ask(_OPEN)
    mine = [row for row in rows if (row["mirror"], row["source"]) in lanes]
    there = {_place(one) for one in verdicts if one.state != PASS}
    kept = [
        _again(row, lake.pipeline.file.name)
        for row in _unrepaired(lake, mine, lanes)
        if (row["mirror"], row["source"], row["check"], row["column"]) not in there
    ]
    over = {_place(one)[:3] for one in kept}
    sound = [one for one in verdicts if one.state != PASS or _place(one)[:3] not in over]
    return sound + kept, len(mine) < len(rows)


def are_left(verdicts: Iterable[CheckResult]) -> bool:
    """True if some of the verdicts are faults that stay."""
    return any(one.state != PASS and _lasts(one.metric.check) for one in verdicts)


def _lasts(check: str) -> bool:
    return check in CHECKS and CHECKS[check].lasting


def _place(one: CheckResult) -> tuple[str | None, str | None, str, str | None]:
    metric = one.metric
    return metric.mirror, metric.source, metric.check, metric.column


def _unrepaired(
    lake: Lake, rows: list[Row], lanes: dict[tuple[str | None, str | None], set[str]]
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
        mine = lanes[row["mirror"], row["source"]]
        times = [one["at"] for one in decided if one["kind"] == DECODED or one["subject"] in mine]
        times += [at for at in [compared.get(row["mirror"])] if at is not None]
        return any(at > row["checked_at"] for at in times)

    return [row for row in rows if not is_repaired(row)]


def _again(row: Row, file: str) -> CheckResult:
    """A fault as it was found, with the batch in which that was, and what ends it."""
    detail = row["detail"] or explained(row["check"], row["observed"], None)
    if not detail.startswith(_FOUND):
        subject = row["mirror"] or row["source"]
        detail = (
            f"{_FOUND}{row['batch']}, and nothing has mended it (`ingest quality {file}` checks everything again, and with "
            f"--accept {subject} accepts it): {detail}"
        )
    failing = tuple(json.loads(row["failing"] or "[]"))
    limit = None if row["threshold"] is None else float(row["threshold"])
    metric = Metric(
        row["check"], row["observed"], row["mirror"], row["source"], row["column"], limit, row["severity"], detail, failing
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
    found, now = [], lake.now()
    for row in look:
        row |= {"run": lake.run, "checked_at": now}
        if row["state"] in (FAIL, WARN) and _lasts(row["check"]):
            found.append(row["detail"] or explained(row["check"], row["observed"], None))
            row |= {"state": PASS, "detail": f"{why}: {found[-1]}"[:MAX_DETAIL]}
    if not found:
        raise IngestError(f"Nothing that stays was found wrong in {subject}: see `ingest quality --last`.")
    lake.append_unguarded([tuple(row[name] for name in names) for row in look], TABLE)
    return found
