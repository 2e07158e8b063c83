"""Deciding a mirror's schema for a job: keys, columns and types, and where a policy makes it stop.

Keys: the rule's, else the messages', else the decision's, else those of a logged CREATE.  Columns: all
that rows or applied statements have shown, as far as the policy lets them in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ingest import types
from ingest.config import Pipeline
from ingest.errors import HeldError
from ingest.gold import policy
from ingest.gold.ledger import Ledger
from ingest.gold.policy import HELD, NOTICED, Shown, Subject, Verdict
from ingest.gold.work import Job, LaneId
from ingest.lake.books import Line, merged_columns
from ingest.lake.mirrors import Column, Mirror, grown
from ingest.lake.statements import Statement


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a mirror stops, and the batch before which it does."""

    batch: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job may do: the mirror's schema, the lines it may fold, and why not all."""

    job: Job
    mirror: Mirror
    hold: Hold | None = None
    frozen: int = 0  # what a frozen mirror takes without asking, as `Subject` has it
    left_out: tuple[str, ...] = ()  # columns that the policy ``ignore`` does not let in
    noticed: int = 0  # statements that nobody could read
    told: tuple[tuple[Statement, Verdict], ...] = ()  # what the new statements do


def decide(
    pipeline: Pipeline,
    job: Job,
    mirror: Mirror | None,
    ledger: Ledger,
    applied: int,
    first: int,
    stands: Callable[[], bool],
) -> Plan:
    """The schema for a mirror's new batches: it has folded ``applied``, and ``first`` had its first rows.

    ``stands`` says whether there is a table already, which a changed key would damage.

    The mirror has no key while none is known and none is needed.

    Raises:
        HeldError: the mirror cannot have a schema; the text says what to write.
    """
    _refuse_unordered(job)
    frozen = max(applied, first)
    subjects = {name: subject_of(pipeline, job, mirror, name, frozen) for name in job.lines}
    settled = (
        applied if mirror is not None and mirror.columns else 0
    )  # before its first rows nothing was applied
    hold = min(_holds(job, ledger, subjects, settled), key=lambda one: one.batch, default=None)
    if hold is not None:
        job = job.before(hold.batch)
    last = hold.batch - 1 if hold else None
    logged = {name: ledger.of(*name, last) for name in subjects}
    declared = {name: policy.shown(logged[name], subject, applied) for name, subject in subjects.items()}
    anew = len(subjects) == 1 and any(
        step.action == "new_incarnation" and batch > applied
        for name, subject in subjects.items()
        for step, batch in policy.steps(logged[name], subject)
    )
    decided, left_out = _decided(job, mirror, declared, anew, stands)
    told = tuple(
        (one, policy.judge(one, subject))
        for name, subject in subjects.items()
        for one in logged[name]
        if one.batch > applied
    )
    noticed = sum(verdict.state == NOTICED for _, verdict in told)
    return Plan(job, decided, hold, frozen, left_out, noticed, told)


def subject_of(pipeline: Pipeline, job: Job, mirror: Mirror | None, lane: LaneId, frozen: int) -> Subject:
    """A lane's table as its policy sees it."""
    known = {one.name: one.type for one in mirror.columns} if mirror else {}
    return Subject(
        lane[1],
        job.rule.on_schema_change,
        {**known, **job.rule.columns},
        lambda table: pipeline.rule(table).exclude,
        frozen,
        job.has_changes or bool(mirror and mirror.columns),
        frozenset(job.columns_of(lane)),
    )


def _refuse_unordered(job: Job) -> None:
    if len(job.lines) > 1 and not job.rule.shard_column:
        names = " and ".join(sorted(f"{source}:{table}" for source, table in job.lines))
        raise HeldError(
            f"{job.table} is fed by {names}, whose positions cannot be compared: "
            "give its tables: entry a shard_column, or another into:."
        )


# --- holds --------------------------------------------------------------------------------------


def _holds(job: Job, ledger: Ledger, subjects: dict[LaneId, Subject], applied: int) -> Iterator[Hold]:
    """What stops the job.  A frozen mirror takes everything up to its first rows: nothing is frozen yet."""
    for name, subject in subjects.items():
        statements = ledger.of(*name)
        for one in statements:
            verdict = policy.judge(one, subject)
            if one.batch > applied and verdict.state == HELD:
                yield Hold(one.batch, _explained(job, one, verdict.does))
        if subject.policy == "freeze":
            yield from _unannounced(job, subject, job.lines[name], policy.shown(statements, subject))


def _explained(job: Job, statement: Statement, does: Iterable[str]) -> str:
    text = " ".join(statement.text.split())
    shown = text if len(text) <= 200 else text[:199] + "…"
    told = " ".join(does)
    verbs = "approve or dismiss" if "nothing: no message" not in told else "dismiss"
    way = ", and let the source send the table's rows again" if "load them again" in told else ""
    return (
        f"statement {statement.id} of batch {statement.batch} waits for a decision ({shown}): see `ingest ddl`, "
        f"then {verbs} it{way}; the changes of {job.table} from that batch on wait in silver."
    )


def _unannounced(job: Job, subject: Subject, lines: Iterable[Line], declared: Shown) -> Iterator[Hold]:
    """Columns and wider types that rows show and no statement told of, in a frozen mirror."""
    allowed = {**subject.known, **declared.columns}
    for line in lines:
        if line.batch <= subject.frozen:
            allowed.update(line.columns)
    for line in lines:
        if line.batch <= subject.frozen:
            continue
        new = [name for name in line.columns if name not in allowed]
        wider = [
            name
            for name, logical in line.columns.items()
            if name in subject.known and name not in job.rule.columns and _outgrows(allowed[name], logical)
        ]
        if new or wider:
            what = "new columns" if new else "wider types of"
            yield Hold(
                line.batch,
                f"the rows of batch {line.batch} show {what} {', '.join(new or wider)} and {job.table} is frozen: "
                "declare them under columns: of its tables: entry to let them in.",
            )


def _outgrows(old: str, new: str) -> bool:
    return types.delta(types.grown(old, new)) != types.delta(old)


# --- keys and columns -----------------------------------------------------------------------------


def _decided(
    job: Job, mirror: Mirror | None, declared: dict[LaneId, Shown], anew: bool, stands: Callable[[], bool]
) -> tuple[Mirror, tuple[str, ...]]:
    rule = job.rule
    seen: dict[str, str] = {}
    for name in job.lines:
        mine = _with_declared(job.columns_of(name), declared[name].columns, mirror)
        seen = merged_columns(seen, mine)
    shown = bool(seen or (mirror and mirror.columns))
    if (shard := rule.shard_column) and shard in seen:
        raise HeldError(f"{job.table} has a column {shard} of its own: give shard_column another name.")
    if shard:
        seen[shard] = "string"
    keys = _keys(job, mirror, declared, anew)
    if not shown:  # a truncate alone: the key's types are not known yet, and there is nothing to hold
        keys = ()
    if mirror is not None and mirror.columns and keys != mirror.keys and not anew and stands():
        raise HeldError(
            f"the key of {job.table} is now ({', '.join(keys)}) and was ({', '.join(mirror.keys)}): "
            "its rows must be folded again by the new key, with `ingest rebuild`."
        )
    if anew and mirror is not None:  # nothing of the old rows stays, so nothing binds the types
        mirror = replace(mirror, columns=tuple(_retyped(one, job, seen) for one in mirror.columns))
    left_out: tuple[str, ...] = ()
    if rule.on_schema_change == "ignore" and mirror is not None and mirror.columns:
        have = {one.name for one in mirror.columns} | rule.columns.keys()
        left_out = tuple(name for name in seen if name not in have)
        seen = {name: "unknown" for name in seen if name in have}
    if rule.on_schema_change == "evolve" and not rule.shard_column:
        gone = _gone(job, declared)
        seen = {name: logical for name, logical in seen.items() if name not in gone}
        again = _again(declared)
        seen |= again
        if mirror is not None:
            mirror = _renewed(mirror, job, gone, again)
    told = {column: text for one in declared.values() for column, text in one.comments.items()}
    return _commented(grown(mirror, job.table, rule, keys, seen), told), left_out


def _with_declared(
    rows: dict[str, str], declared: Mapping[str, str], mirror: Mirror | None
) -> dict[str, str]:
    """What rows show of columns, and statements where rows do not tell.

    A statement's type and the type that a connector sends may differ for good (TINYINT(1) and boolean).  So a
    statement alone only widens a column, unless the rows carry no types at all.
    """
    found = dict(rows)
    known = {one.name: one.delta for one in mirror.columns} if mirror else {}
    untyped = bool(rows) and set(rows.values()) == {"unknown"}
    for name, logical in declared.items():
        if rows.get(name, "unknown") != "unknown":
            continue
        new = types.delta(logical)
        if (untyped and name in rows) or types.widens(known.get(name, new), new):
            found[name] = logical
        else:
            found.setdefault(name, "unknown")
    return found


def _commented(mirror: Mirror, told: dict[str, str]) -> Mirror:
    """The mirror with what the source says of its columns."""
    columns = tuple(replace(one, comment=told.get(one.name, one.comment)) for one in mirror.columns)
    return replace(mirror, columns=columns)


def _retyped(column: Column, job: Job, seen: dict[str, str]) -> Column:
    told = job.rule.columns.get(column.name) or seen.get(column.name, "unknown")
    return column if told == "unknown" else replace(column, type=told)


def _again(declared: dict[LaneId, Shown]) -> dict[str, str]:
    """Names that left and came again for other columns, with these columns' types as far as they are told."""
    return {
        name: told.columns[name]
        for told in declared.values()
        for name in told.again
        if told.columns.get(name, "unknown") != "unknown"
    }


def _renewed(mirror: Mirror, job: Job, gone: set[str], again: dict[str, str]) -> Mirror:
    """The mirror without the columns that went; of those that came again, nothing binds the types."""
    kept = (one for one in mirror.columns if one.name not in gone)
    return replace(
        mirror, columns=tuple(_retyped(one, job, again) if one.name in again else one for one in kept)
    )


def _gone(job: Job, declared: dict[LaneId, Shown]) -> set[str]:
    """Columns dropped at the source that no later row has shown again."""
    found = set()
    for name, told in declared.items():
        for column, order in told.gone.items():
            if not any(column in line.columns and (line.order_low or "") > order for line in job.lines[name]):
                found.add(column)
    return found


def _keys(job: Job, mirror: Mirror | None, declared: dict[LaneId, Shown], anew: bool) -> tuple[str, ...]:
    shard = (job.rule.shard_column,) if job.rule.shard_column else ()
    logged = next((told.keys for told in declared.values() if told.keys), ())
    before = mirror.keys if mirror else ()
    keys = job.rule.keys or job.keys() or (logged or before if anew else before or logged)
    keys = tuple(key for key in keys if key not in shard) + shard if keys else ()
    if mirror is None or not mirror.columns:
        if not keys and job.rule.no_key == "hold" and job.has_changes:
            raise HeldError(
                f"{job.table} has no key: write `keys: [...]` or `no_key: append` into its tables: entry."
            )
        return keys
    return before if set(keys) == set(before) else keys
