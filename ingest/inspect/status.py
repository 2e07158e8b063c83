"""The state of a lake as plain values: every mirror with its progress, the problems, and the command to type next."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ingest.change import TableId
from ingest.errors import HeldError, IngestError, command, counted
from ingest.gold import approval
from ingest.gold import complete_until as completeness
from ingest.gold.approval import Listed
from ingest.gold.complete_until import Complete
from ingest.gold.plan import completed, foreign_commits
from ingest.inspect import problems
from ingest.inspect.finished import is_finished
from ingest.inspect.gone_tables import departed
from ingest.inspect.problem_kinds import OK, PAUSED, worst
from ingest.inspect.problems import Problem
from ingest.ledgers import books, decoded_with, feeds, histories, pauses, rejects
from ingest.ledgers import mirrors as known_mirrors
from ingest.ledgers.mirrors import Mirror
from ingest.quality.report_model import Facts
from ingest.spark.jobs import recorded, said
from ingest.store import faults
from ingest.store.names import FEEDS, MIRRORS
from ingest.tables import duck
from ingest.tables.delta import NO_TABLE
from ingest.tables.json_cells import object_in
from ingest.tables.schemas import BRONZE, CPU
from ingest.tables.tables import Row, Tables
from ingest.values import shortened

# what a mirror's line has of its entry as it is
_OF_ENTRY = (
    "message",
    "command",
    "since",
    "seconds",
    "cpu_seconds",
    "rewritten_bytes",
    "bytes",
    "marked_files",
)
_NO_ENTRY: Mapping[str, Any] = {
    "path": None, "keys": [], "columns": [],
    **dict.fromkeys(("rows", "bytes", "marked_files", "batch", "version")),
}  # fmt: skip


def tables(lake: Tables) -> list[dict[str, Any]]:
    """One entry per mirror, including held ones without a table, and history tables."""
    mirrors = known_mirrors.known(lake)
    runs = last_runs(lake)
    states = histories_of(lake, mirrors.values())
    entries = [
        _entry(lake, states[path], runs.get(mirror.name, {}))
        for path, mirror in mirrors.items()
        if path in states
    ]
    entries += [_entry(lake, mirror, runs.pop(mirror.name, {})) for mirror in mirrors.values()]
    unfed = {lake.path(path): why for path, why in known_mirrors.unfed(lake).items()}
    entries = [
        entry | _excluded(lake, entry, unfed[entry["path"]]) if entry["path"] in unfed else entry
        for entry in entries
    ]
    gone = known_mirrors.dropped(lake)
    entries.extend(_line(name, run) for name, run in runs.items() if name not in gone)
    return sorted(entries, key=lambda entry: entry["table"])


def _excluded(lake: Tables, entry: Mapping[str, Any], why: str) -> dict[str, Any]:
    """The state of a mirror that the pipeline file gives no more rows."""
    typed = command("drop", lake.pipeline.file, entry["table"], "--reason", "excluded")
    at = "" if entry["batch"] is None else f": its rows are of batch {entry['batch']} and get no more"
    said = f"{lake.pipeline.file} {why}{at}; `{typed}` removes it"
    [later] = lake.ask(f"SELECT min(started_at) AS moment FROM {{runs}} WHERE batch > {entry['batch'] or 0}")
    since = later["moment"] or decoded_with.edited_at(lake.pipeline)  # nothing has come since
    return {"state": known_mirrors.EXCLUDED, "message": said, "command": typed, "since": _utc(since)}


def named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The entry of that name, the mirror if a history table has the same one; an `IngestError` if there is none."""
    of_name = [entry for entry in entries if entry["table"] == name]
    if not of_name:
        raise known_mirrors.unknown(name, {entry["table"] for entry in entries})
    return of_name[-1]


def histories_of(lake: Tables, mirrors: Iterable[Mirror]) -> dict[str, Mirror]:
    """The existing history tables, by their mirrors' paths."""
    if not any(rule.history for rule in lake.pipeline.every_rule):
        return {}
    states = {mirror.path: histories.table_of(mirror) for mirror in mirrors if mirror.keys}
    return {path: table for path, table in states.items() if _exists(lake, table.path)}


def feeds_of(lake: Tables) -> list[dict[str, Any]]:
    """One entry per existing change feed."""
    entries = []
    for mirror in known_mirrors.known(lake).values():
        for feed in feeds.existing(lake, [mirror]):
            columns = feeds.schema_of(mirror).types.items()
            shown = [{"name": name, "source": "", "type": kind} for name, kind in columns]
            entries.append({**_entry(lake, feed, {}), "columns": shown})
    return entries


def _entry(lake: Tables, mirror: Mirror, run: dict[str, Any]) -> dict[str, Any]:
    rows = None
    try:
        extent = lake.extent(mirror.path, known_mirrors.writer(lake, mirror))
        if extent.exists:
            rows = lake.count(mirror.path) if extent.rows is None else extent.rows
            if state_of(run) == OK and not extent.is_ours and not mirror.path.startswith(FEEDS):
                run = _as_held(foreign_commits.newest_foreign(lake, mirror, extent.version)) or run
    except Exception as error:  # one damaged table must not hide the state of the others
        said = faults.of_mirror(error, lake, mirror.name, mirror.path)
        is_sound = faults.fault(error) is not None and not faults.damaged(error)  # it only cannot be read now
        state = "failed" if is_sound else "damaged"
        extent, run = NO_TABLE.extent, {"state": state, "message": said, "since": run.get("done")}
    have = known_mirrors.folded_until(lake, mirror, extent)
    if mirror.path.startswith(MIRRORS):  # an old history table may be left unchanged
        run = _without_rest(run, have, lake.pipeline.file)
    entry = {
        "path": lake.path(mirror.path),
        "keys": list(mirror.keys),
        "columns": [
            {"name": column.column, "source": "" if column.made else column.name, "type": column.delta}
            for column in mirror.columns
        ],
        "rows": rows,
        "bytes": extent.size,
        "marked_files": extent.marked,
        "batch": None if have < 0 else have,
        "version": extent.version if extent.exists else None,
    }
    return _line(mirror.name, run, entry)


def _as_held(foreign: HeldError | None) -> dict[str, Any] | None:
    """The last run of a mirror as the next one would end, if others have changed its rows since."""
    if foreign is None:
        return None
    return {"state": "held", "message": str(foreign), "command": foreign.command, "since": foreign.since}


def _without_rest(run: dict[str, Any], have: int, file: Path) -> dict[str, Any]:
    """A mirror's last run as failed if its table lacks what that has folded, as after a restored backup."""
    if run.get("state") != "done" or max(have, 0) >= (run.get("batch") or 0):
        return run
    holds = f"batch {have}" if have > 0 else "none"
    text = f"batch {run['batch']} was folded and its table holds {holds}"
    said = f"{text}: `{command('retry', file)}` folds the rest again"
    return {"state": "failed", "message": said, "since": run.get("done")}  # it was there then


def _line(name: str, run: dict[str, Any], entry: Mapping[str, Any] = _NO_ENTRY) -> dict[str, Any]:
    """An entry with the state of its last run; CPU time is not known for a mirror that Spark folded."""
    counts = object_in(run.get("counts"))
    cpu = counts.get(CPU)
    return {
        "table": name,
        **entry,
        "state": state_of(run),
        "message": run.get("message") or "",
        "command": run.get("command") or "",
        "since": _utc(run.get("since")),
        "seconds": run.get("seconds"),
        "cpu_seconds": None if cpu is None else cpu / 1000,
        "rewritten_bytes": counts.get("rewritten_bytes"),
    }


def state_of(run: dict[str, Any]) -> str:
    state = run.get("state", "done")
    return "ok" if state == "done" else str(state)


def last_runs(lake: Tables) -> dict[str, Row]:
    """The newest gold row of `runs` for each mirror, with the time when it was ``done`` last, and ``since`` when it has not been."""
    rows = lake.ask(
        """SELECT subject, state, message, command, batch, seconds, counts, done,
            min(CASE WHEN done IS NULL OR started_at > done THEN started_at END) OVER (PARTITION BY subject) AS since
        FROM (SELECT *, max(CASE WHEN state = 'done' THEN started_at END) OVER (PARTITION BY subject) AS done FROM {runs}
            WHERE stage = 'gold' AND subject IS NOT NULL) AS r
        QUALIFY row_number() OVER (PARTITION BY subject ORDER BY started_at DESC, batch DESC NULLS LAST) = 1"""
    )
    return {row["subject"]: row for row in rows}


def _exists(lake: Tables, path: str) -> bool:
    """True if there is a table that can be opened."""
    try:
        return lake.exists(path)
    except Exception:
        return False


# --- status -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LakeLook:
    """What a lake says of itself without its checks; looking takes longer than telling."""

    rows: list[dict[str, Any]]  # one for each mirror
    waits: int  # mirrors that are sound and wait for a run
    open_rejects: dict[str, int]  # by kind
    undecided: int  # statements that wait for a decision
    logged: list[Listed]  # all of them
    gone: dict[str, str]  # mirrors whose source tables are, with what became of them
    problems: list[Problem]
    done: int  # the batch that all mirrors have folded
    landed: int  # the newest batch
    complete: Complete
    last_run: dict[str, Any] | None
    is_idle: bool  # no batch waits


def status(lake: Tables) -> dict[str, Any]:
    """The health of a lake: one line per mirror, the problems in words, the next command."""
    seen = look(lake)
    return summary(lake, seen, problems.found_by_checks(lake, seen.gone, seen.logged))


def look(lake: Tables) -> LakeLook:
    """Look at the mirrors, and at what waits."""
    entries = tables(lake)
    lines = completeness.reached(lake)
    folded = completed.progress(lake)
    lanes, complete = _lanes(lake, lines), completeness.of_mirrors(lake, entries, lines, folded)
    logged = approval.listed(lake)
    gone = departed(lake, logged)
    lagging = {lake.path(path) for path in folded.lagging}
    rows, waits = [], 0
    for entry in map(partial(_as_decided, lake, _undecided(lake, logged)), entries):
        name = entry["table"]
        said = entry["message"] or gone.get(name, "")
        if entry["state"] == "ok" and entry["path"] in lagging:
            said = f"later batches wait: `{command('run', lake.pipeline.file)}` folds them"
            waits += 1
        rows.append(_row(entry | {"message": said}, lanes.get(name, {}), complete.get(name, Complete())))
    waiting: dict[str, int] = {}  # open rejects, by kind
    began = dict[str, int]()  # the first batch of what waits
    for row in rejects.counted(lake):
        waiting[row["kind"]] = waiting.get(row["kind"], 0) + row["n"]
        began[row["kind"]] = min(began.get(row["kind"], row["batch"]), row["batch"])
    pending = {entry.statement.id: entry.statement.batch for entry in logged if entry.pending}
    if pending:
        began["ddl"] = min(pending.values())
    landed = lake.progress("bronze", BRONZE.name)
    is_idle = is_finished(lake, landed, ("silver", "gold"))
    return LakeLook(
        rows,
        waits,
        waiting,
        len(pending),
        logged,
        gone,
        list(problems.of_state(lake, rows, waiting, len(pending), _started(lake, began), gone)),
        min(folded.complete, lake.decoded()),
        landed,
        completeness.of_all(complete),
        _last_run(lake),
        is_idle,
    )


def summary(lake: Tables, seen: LakeLook, facts: Facts) -> dict[str, Any]:
    """What `ingest status` says; a mirror's state is the worst of its open problems."""
    last = seen.last_run
    merged = problems.merged(seen.problems, facts, seen.logged, failed=bool(last and last["stuck"]))
    listed = problems.with_acknowledged(lake, merged)
    states: dict[str, list[str]] = {}
    for problem in listed:
        states.setdefault(problem.mirror, []).append(problem.state)
    rows = [row | {"state": worst([row["state"], *states.get(row["table"], [])])} for row in seen.rows]
    bad = [row for row in rows if row["state"] != OK]
    waits = min(seen.waits, len(rows) - len(bad))
    headline = (
        f"{lake.pipeline.name}: {len(rows) - len(bad) - waits} of {counted(len(rows), 'mirror is', 'mirrors are')} "
        + (
            f"as of batch {seen.done}, and batch {seen.landed} has landed"
            if seen.landed > seen.done
            else f"up to date with batch {seen.done}"
        )
    )
    needing = [problem for problem in listed if not problem.acknowledged]
    if needing:
        headline += f"; {counted(len(needing), 'problem needs', 'problems need')} the operator"
    return {
        "pipeline": lake.pipeline.name,
        "headline": f"{headline}.",
        **_until(seen.complete),
        "tables": rows,
        "problems": [problem.sentence for problem in needing],
        "causes": [problem.described() for problem in listed],
        "open_rejects": seen.open_rejects,
        "pending_statements": seen.undecided - len(problems.over(facts, seen.logged)),
        "last_run": last,
        **_next(lake, needing, seen),
    }


def unusable(file: Path, fault: IngestError, name: str = "") -> dict[str, Any]:
    """What `status` says of a pipeline whose lake cannot be looked at; its name is looked up unless it is given."""
    problem, name = problems.unusable(file, fault, "status"), name or problems.name_of(file)
    return {
        "pipeline": name,
        "headline": f"{name}: its lake cannot be looked at; 1 problem needs the operator.",
        **_until(Complete()),
        "tables": [],
        "problems": [problem.sentence],
        "causes": [problem.described()],
        "open_rejects": None,
        "pending_statements": None,
        "last_run": None,
        "next": problem.command,
        "next_note": "",
    }


def problems_of(lake: Tables) -> list[Problem]:
    """All open problems, errors first; the age of the newest change is as of now."""
    return [problems.of_described(cause) for cause in status(lake)["causes"]]


def _undecided(lake: Tables, logged: Iterable[Listed]) -> set[str]:
    """The mirrors that are paused, or that a statement holds until it is decided, with their tables of old states."""
    known, paused = known_mirrors.known(lake).values(), pauses.paused(lake)
    waiting = {entry.mirror for entry in logged if entry.holds}
    waiting |= {mirror.name for mirror in known if mirror.path in paused}
    return waiting | {
        histories.table_of(mirror).name for mirror in known if mirror.name in waiting and mirror.keys
    }


def _as_decided(lake: Tables, undecided: Container[str], entry: dict[str, Any]) -> dict[str, Any]:
    """A mirror's entry; what its last fold waited for may have been decided since."""
    typed = command("run", lake.pipeline.file)
    if entry["table"] in undecided:
        return entry
    if entry["state"] == PAUSED:
        return entry | {"state": OK, "message": ""}
    if entry["command"] == command("ddl", lake.pipeline.file):
        said = f"what held it is decided: `{typed}` folds the batches that wait"
        return entry | {"message": said, "command": typed}
    return entry


def _started(lake: Tables, batches: Mapping[str, int]) -> dict[str, str | None]:
    """When the runs of some batches began."""
    began = problems.runs_began(lake, batches.values())
    return {name: _utc(began.get(batch)) for name, batch in batches.items()}


def _row(entry: Mapping[str, Any], lane: Mapping[str, Any], complete: Complete) -> dict[str, Any]:
    """A mirror's line, from its entry, what its source has sent, and how far it is complete."""
    newest, ahead = lane.get("newest"), None
    if newest is not None and newest > _now() + books.CLOCKS_DIFFER:
        # a time in the future says nothing of the others
        newest, ahead = lane["passed"] or newest, newest
    return {
        "table": entry["table"],
        "state": entry["state"],
        "batch": entry["batch"],
        "newest commit": _utc(newest),
        "ahead": _utc(ahead),
        **_lag(newest),
        **_until(complete),
        "rows": entry["rows"],
        "rejected": lane.get("rejected", 0),
        **{name: entry[name] for name in _OF_ENTRY},
    }


def complete(lake: Tables) -> dict[str, Complete]:
    """The source time up to which each mirror is complete."""
    return completeness.of_mirrors(lake, tables(lake), completeness.reached(lake))


def _until(complete: Complete) -> dict[str, Any]:
    return {
        "complete_until": _utc(complete.until),
        "complete_by": complete.by or None,
        "complete_reason": complete.reason,
    }


def aged(described: dict[str, Any]) -> dict[str, Any]:
    """The same status some time later: its mirrors lag by that much more."""
    moments = (row["newest commit"] for row in described["tables"])
    newest = [
        None if moment is None else dt.datetime.fromisoformat(moment).replace(tzinfo=None)
        for moment in moments
    ]
    rows = [row | _lag(moment) for row, moment in zip(described["tables"], newest, strict=True)]
    return described | {"tables": rows}


def _lag(newest: dt.datetime | None) -> dict[str, Any]:
    if newest is None:
        return {"lag": None, "lag_seconds": None}
    span = _now() - newest
    return {"lag": _span(span), "lag_seconds": max(0, int(span.total_seconds()))}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


def verdicts(lake: Tables) -> dict[str, int]:
    """The number of checks by state, from the last check of each mirror and source."""
    rows = lake.ask(
        """SELECT state, count(*) AS n FROM (SELECT mirror, source, state FROM {checks}
        QUALIFY rank() OVER (PARTITION BY mirror, source, "check" = 'reconcile' ORDER BY checked_at DESC) = 1) AS c GROUP BY state"""
    )
    return {row["state"]: row["n"] for row in rows}


def _next(lake: Tables, needing: Sequence[Problem], seen: LakeLook) -> dict[str, str]:
    """The command that resolves the first problem, or does what the lake waits for; and what is to be known before it is typed."""
    file = lake.pipeline.file
    typed = next((problem.command for problem in needing if problem.command), "")
    note = ""
    if needing and needing[0].kind == "held" and typed == command("retry", file):
        note = f"after {file} says what the message asks for"
    elif not typed:
        typed = command("plan" if seen.is_idle else "run", file)
        note = "the lake waits for nothing; this says what a run would read" if seen.is_idle else ""
    return {"next": typed, "next_note": note}


def _last_run(lake: Tables) -> dict[str, Any] | None:
    """When the newest run with work ended, how long it took, where its stages were done, and whether something failed."""
    runs = lake.ask(
        """SELECT run, max(started_at) AS moment, sum(CASE WHEN subject IS NULL THEN seconds END) AS seconds,
        max(CASE WHEN state IN ('failed', 'held', 'alarm') AND (stage = 'alarm' OR subject IS NOT NULL) THEN 1 ELSE 0 END) = 1 AS stuck,
        max(CASE WHEN state = 'check' THEN 1 ELSE 0 END) = 1 AS complained
        FROM {runs} GROUP BY run ORDER BY moment DESC LIMIT 1"""
    )
    if not runs:
        return None
    last = runs[0]
    stages = lake.ask(
        f"""SELECT stage, ran, jobs, tasks, executors FROM {{runs}}
        WHERE run = {duck.text(last["run"])} AND subject IS NULL AND ran IS NOT NULL ORDER BY started_at"""
    )
    places = {row["stage"]: place for row in stages if (place := recorded(row)) is not None}
    return {
        "ended": _utc(last["moment"]),
        "seconds": last["seconds"],
        "failed": last["stuck"] or last["complained"],
        "stuck": last["stuck"],  # by more than what checks have found, which they may find no longer
        "ran": {stage: place.document() for stage, place in places.items()},
        "where": said(places),
    }


def _lanes(lake: Tables, lines: Iterable[Row]) -> dict[str, dict[str, Any]]:
    lanes: dict[str, dict[str, Any]] = {}
    for row in lines:
        source = TableId.of(row)
        if not source.table:
            continue
        for name in map(str, known_mirrors.names(lake.pipeline, source)):
            kept = lanes.setdefault(name, {"newest": None, "passed": None, "rejected": 0})
            for which in ("newest", "passed"):
                times = [time for time in (kept[which], row[which]) if time is not None]
                kept[which] = max(times, default=None)
            kept["rejected"] += row["rejected"]
    return lanes


def _span(span: dt.timedelta) -> str:
    """A lag in the largest unit that gives at least two; below zero the source's clock is ahead of this machine's."""
    seconds = int(span.total_seconds())
    if seconds < 0:
        return f"clock {_span(-span)} ahead"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _utc(moment: dt.datetime | None) -> str | None:
    return None if moment is None else shortened(moment.isoformat("T")) + "Z"
