"""Decide a mirror's schema for a job: keys, columns and types, and where a policy holds it.

Keys: those of the rule, else of the messages, else of the decision, else of a logged CREATE. Columns: all that rows or
applied statements have shown, as far as the policy accepts them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from ingest import types
from ingest.change import LaneId, TableId
from ingest.config import Pipeline, conditions
from ingest.config.model import TableRule
from ingest.errors import HeldError, command
from ingest.gold.plan import eras, policy, rule_faults
from ingest.gold.plan.declared import Declared, declared_by, departed
from ingest.gold.plan.eras import Evidence, Run, evidence_of_lines
from ingest.gold.plan.ledger import Ledger
from ingest.gold.plan.policy import APPLIED, HELD, NOTICED, Subject, Timeline, Verdict
from ingest.gold.plan.work import Job
from ingest.ledgers import histories
from ingest.ledgers.adjusted_names import Adjusted
from ingest.ledgers.books import Line, merged_columns
from ingest.ledgers.conditions import type_of
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Column, Era, Mirror, grown
from ingest.ledgers.timeline import Moment

_EXACT = ("integer", "decimal")
REKEYED = "its key has changed"
RESHAPED = "the rules of its tables: entry have changed"
FED_OTHERWISE = "the pipeline file sends it the rows of other source tables"
MISNAMED = "its rows have shown how they call a column that a statement made before"
RENAMED = "its shard_column names the source, too, where the pipeline has several"
RETYPED = "the type of a column that its rules use has changed"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a mirror is held, and the batch before which it stops."""

    batch: int
    why: str
    command: str = ""  # that resolves it; empty if something else is to be done first


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job may do: the mirror's schema, the lines it may fold, and why not all."""

    job: Job
    mirror: Mirror
    hold: Hold | None = None
    free_until: int = 0  # the batch up to which a frozen mirror accepts everything, see `Subject`
    why_rebuilt: str = ""  # why it is folded again from its first change, as part of a sentence
    left_out: tuple[str, ...] = ()  # columns that the policy ``ignore`` omits, or that a rule excludes
    noticed: int = 0  # statements that could not be read, or leave rows elsewhere
    verdicts: tuple[tuple[Statement, Verdict], ...] = ()  # what the new statements do
    before: Mirror | None = None  # the mirror as it was decided last

    @property
    def is_keyless(self) -> bool:
        """True for a mirror with columns, without a key, and with a rule for this case."""
        return not self.mirror.keys and bool(self.mirror.columns) and self.job.rule.no_key != "hold"


def decide(
    pipeline: Pipeline,
    job: Job,
    before: Mirror | None,
    ledger: Ledger,
    applied: int,
    first: int,
    reached: Callable[[], int | None],
    evidence: Callable[[LaneId, int], Evidence] | None = None,
) -> Plan:
    """The schema for a mirror's new batches. The mirror has no key while none is known and none is needed.

    Args:
        pipeline: with the rules of all tables.
        job: the mirror's new lines.
        before: the mirror as last decided; None if it is new.
        ledger: the statements.
        applied: the last batch that the mirror has folded.
        first: the batch of its first rows.
        reached: says the last batch that the mirror has folded, or had nothing of; None if there is no table yet.
        evidence: what all changes of a lane up to a batch show of its key, for lines that do not say.

    Raises:
        HeldError: the mirror's schema cannot be decided; the text says what to write.
    """
    rule_faults.refuse_unordered(job)
    mirror = before or Mirror(job.table, job.path)  # a new one has neither columns nor a key
    if mirror.shard != job.rule.shard_column:
        mirror = replace(mirror, keys=mirror.keys_without(mirror.shard))
    free_until = max(applied, first)
    subjects = {name: subject_of(job, mirror, name, free_until) for name in job.lines}
    lanes = [
        _Logged(name, job.lines[name], Timeline.of(ledger.of(*name), subject), applied)
        for name, subject in subjects.items()
    ]
    # before its first rows nothing was applied
    judged = applied if mirror.columns else 0
    hold = min(_holds(pipeline, job, ledger, lanes, judged), key=lambda held: held.batch, default=None)
    last = sys.maxsize
    if hold is not None:
        hold = _whole_moves(hold, lanes)
        job, last = job.before(hold.batch), hold.batch - 1
        lanes = [lane.until(last, job.lines[lane.name]) for lane in lanes]
    lane_eras = {
        lane.name: _eras(job, mirror, lane, evidence and partial(evidence, lane.name, last)) for lane in lanes
    }
    keys = _keys(job, mirror, lane_eras)
    rule_faults.refuse_lossy_key(pipeline, job, keys)
    declared = {lane.name: declared_by(lane.timeline, applied) for lane in lanes}
    misnamed = _misnamed(job, mirror, lanes, declared, reached) - {*keys}
    mirror = replace(
        mirror, columns=tuple(column for column in mirror.columns if column.name not in misnamed)
    )
    mirror = _as_declared(job.rule, mirror, reached)
    decided, left_out = _decided(job, mirror, declared, keys, _is_emptied(job, lanes))
    rule_faults.refuse_hidden_columns(job, mirror, declared)
    gone = {lane.name: departed(lane.timeline.statements, lane.timeline.subject) for lane in lanes}
    rule_faults.refuse_unanswerable_rules(job, decided, gone)
    decided = replace(
        recomputed(job.rule, decided),
        names_sources=pipeline.names_sources and job.rule.shard_column is not None,
        eras=tuple((*name, of_lane) for name, of_lane in lane_eras.items() if len(of_lane) > 1),
        fed_by=_fed_by(job, before),
    )
    decided = _with_states(job, before, decided, reached)
    why_rebuilt = _why_rebuilt(pipeline, job, before, decided, lanes, reached, misnamed)
    if why_rebuilt and reached() is None:
        why_rebuilt = ""
    rule_faults.refuse_history_of_new_key(job, bool(why_rebuilt == REKEYED or decided.eras))
    verdicts = tuple((new, policy.judge(new, lane.timeline.subject)) for lane in lanes for new in lane.new)
    noticed = sum(verdict.state == NOTICED for _, verdict in verdicts)
    return Plan(job, decided, hold, free_until, why_rebuilt, left_out, noticed, verdicts, before)


def _with_states(
    job: Job, before: Mirror | None, decided: Mirror, reached: Callable[[], int | None]
) -> Mirror:
    """The mirror with what its table of old states has, if there is one."""
    if not job.rule.history:
        return replace(decided, history=(), former=())  # it will lack the states that come now
    if not decided.keys:
        return decided
    states = before and _as_declared(job.rule, before, reached)
    return histories.kept(histories.named(decided, before), states, _rows(job))


def _rows(job: Job) -> dict[str, str]:
    """The columns of a job's rows that the pipeline file neither types nor leaves out, with their types."""
    shown: dict[str, str] = reduce(merged_columns, map(job.columns_of, job.lines), {})
    return {} if job.rule.ignores else {name: shown[name] for name in shown if name not in job.rule.columns}


@dataclass(frozen=True, slots=True)
class _Logged:
    """A lane's new lines, and the timeline of its table."""

    name: LaneId
    lines: list[Line]
    timeline: Timeline
    applied: int  # the last batch that the mirror has folded

    def until(self, last: int, lines: list[Line]) -> _Logged:
        """The lane with its statements up to a batch."""
        statements = [statement for statement in self.timeline.statements if statement.batch <= last]
        return replace(self, lines=lines, timeline=Timeline.of(statements, self.timeline.subject))

    @property
    def new(self) -> list[Statement]:
        """The statements that the mirror has not folded yet."""
        return [statement for statement in self.timeline.statements if statement.batch > self.applied]

    @property
    def new_moments(self) -> Iterator[Moment]:
        """What these do that the policy applies."""
        return (moment for moment in self.timeline.moments if moment.statement.batch > self.applied)

    def last_key(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """What a key is after all statements; empty if they drop it."""
        return eras.last(self.timeline.by_statement(), keys)

    @property
    def adjusted(self) -> list[tuple[Statement, Adjusted]]:
        """The columns that rows have by other names than the statements that made them."""
        return [
            (statement, column)
            for statement in self.timeline.statements
            for column in statement.adjusted
            if column.table == self.name[1]
        ]


def _as_declared(rule: TableRule, mirror: Mirror, reached: Callable[[], int | None]) -> Mirror:
    """The mirror with the types that the pipeline file declares, if it has no table: these need not hold what its rows had."""
    declared = rule.declared
    columns = tuple(_retyped(column, declared) for column in mirror.columns)
    return replace(mirror, columns=columns) if columns != mirror.columns and reached() is None else mirror


def _is_emptied(job: Job, lanes: Sequence[_Logged]) -> bool:
    """True if a new statement removes all rows that the mirror has."""
    if len(job.lanes | {lane.name for lane in lanes}) != 1 or job.rule.soft:
        return False
    return any(moment.empties for lane in lanes for moment in lane.new_moments)


def subject_of(job: Job, mirror: Mirror, lane: LaneId, free_until: int) -> Subject:
    """A lane's table, as input of its policy."""
    rows = job.has_changes or bool(mirror.columns)
    return Subject.of(job.rule, lane[1], mirror, free_until, rows=rows, sent=job.columns_of(lane))


# --- holds --------------------------------------------------------------------------------------


def _holds(
    pipeline: Pipeline, job: Job, ledger: Ledger, lanes: Iterable[_Logged], applied: int
) -> Iterator[Hold]:
    """What stops the job. A frozen mirror accepts everything up to its first rows: until then nothing is frozen."""
    for lane in lanes:
        for statement in lane.timeline.statements:
            verdict = policy.judge(statement, lane.timeline.subject)
            did, _ = ledger.recorded.get((job.path, statement.id), ("", ()))
            late = did == APPLIED  # before late rows have shown otherwise
            if verdict.state == HELD and (statement.batch > applied or late):
                typed = command("ddl", pipeline.file)
                why = _explained(job, statement, verdict, typed, _exact(pipeline, lane))
                yield Hold(max(statement.batch, applied + 1), why, typed)
        if job.rule.freezes:
            yield from _unannounced(job, lane.timeline.subject, lane.lines, declared_by(lane.timeline))


def _whole_moves(hold: Hold, lanes: Iterable[_Logged]) -> Hold:
    """The hold, before each RENAME that it would leave without the rows that were landed for it in a later batch."""
    for lane in lanes:
        for statement in sorted(lane.new, key=lambda statement: -statement.batch):
            landed = statement.carried.get(lane.name[1], 0)
            if statement.batch < hold.batch <= landed:
                hold = replace(hold, batch=statement.batch)
    return hold


def _exact(pipeline: Pipeline, lane: _Logged) -> str:
    """What makes a mirror exact after a statement of which no message says what it did."""
    source = pipeline.by_source.get(lane.name[0])
    if source is None or source.database is None:
        return (
            "load the table again at the source: the checks name the rows that the load lacks, with the command that "
            "removes them"
        )
    typed = command("reconcile", pipeline.file, lane.timeline.subject.table, "--repair")
    return f"make the mirror exact by `{typed}`"


def _explained(job: Job, statement: Statement, verdict: Verdict, typed: str, exact: str) -> str:
    """Why a statement holds the mirror, and what ends that; ``exact`` is what is to be done where it can only be dismissed."""
    text = statement.said
    shown = text if len(text) <= 200 else text[:199] + "…"
    verbs = "approve or dismiss" if verdict.approvable else "dismiss"
    way = ", and let the source send the table's rows again" if verdict.reload else ""
    if not (verdict.approvable or way):
        way = f", and after the next run {exact}"
    return (
        f"statement {statement.id} of batch {statement.batch} waits for a decision ({shown}): see `{typed}`, "
        f"then {verbs} it{way}; the changes of {job.table} from that batch on wait in silver."
    )


def _unannounced(job: Job, subject: Subject, lines: Iterable[Line], declared: Declared) -> Iterator[Hold]:
    """Columns and wider types of a frozen mirror that rows show and no statement announced."""
    allowed = {**subject.known, **declared.columns}
    for line in lines:
        if line.batch <= subject.free_until:
            allowed.update(line.columns)
    for line in lines:
        if line.batch <= subject.free_until:
            continue
        new = [name for name in line.columns if name not in allowed and not job.rule.leaves_out(name)]
        wider = [
            name
            for name, logical in line.columns.items()
            if name in subject.known
            and name not in job.rule.columns
            and types.outgrows(allowed[name], logical)
        ]
        if new or wider:
            what = "new columns" if new else "wider types of"
            yield Hold(
                line.batch,
                f"the rows of batch {line.batch} show {what} {', '.join(new or wider)} and {job.table} is frozen: "
                "declare them under columns: of its tables: entry to let them in.",
            )


# --- keys and columns -----------------------------------------------------------------------------


def _decided(
    job: Job,
    mirror: Mirror,
    declared: dict[LaneId, Declared],
    keys: tuple[str, ...],
    from_scratch: bool,
) -> tuple[Mirror, tuple[str, ...]]:
    """The mirror with a key and its columns, and those that it leaves out; ``from_scratch`` if no old row is kept."""
    rule, seen, comments = job.rule, dict[str, str](), dict[str, str]()
    for name, lines in job.lines.items():
        comments |= declared[name].comments
        of_lane = _with_declared(job.columns_of(name), declared[name].columns, mirror, keys)
        seen = merged_columns(seen, _with_taken_over(of_lane, lines, declared[name], mirror))
    shown = _shown(job, mirror, declared)
    rule_faults.refuse_lost_key(job, keys)
    rule_faults.refuse_absent_key(job, keys, shown)
    left_out = tuple(name for name in seen if name not in keys and rule.leaves_out(name))
    seen = {name: logical for name, logical in seen.items() if name not in left_out}
    rule_faults.refuse_taken_shard_column(job, seen)
    if not shown and not seen.keys() >= {*keys}:
        keys = ()  # a truncate or an ALTER alone: the key's types are not known yet, and there is nothing to hold
    if rule.shard_column:
        seen[rule.shard_column] = "string"
    if from_scratch:  # so the types may change freely
        now = seen | dict(rule.declared)
        mirror = replace(mirror, columns=tuple(_retyped(column, now) for column in mirror.columns))
    if rule.ignores and mirror.columns:
        have = {*mirror.by_name} | rule.columns.keys() | {*rule.include}
        left_out = (*(name for name in seen if name not in have), *left_out)
        seen = {name: "unknown" for name in seen if name in have}
    if not rule.shard_column and not job.merged:
        mirror, seen = _without_dropped(job, mirror, declared, keys, seen)
    mirror_now = grown(mirror, job.table, rule, keys, seen)
    rule_faults.refuse_ambiguous_names(job, mirror_now)
    columns = (
        replace(column, comment=comments.get(column.name, column.comment)) for column in mirror_now.columns
    )
    return replace(mirror_now, columns=tuple(columns)), left_out


def _shown(job: Job, mirror: Mirror, declared: Mapping[LaneId, Declared]) -> set[str]:
    """The columns of the mirror and of new rows, and all of a table that a statement lists."""
    shown = {*mirror.by_name}
    for name in job.lines:
        of_rows = job.columns_of(name)
        if of_rows or declared[name].lists_all:
            shown |= of_rows.keys() | declared[name].columns.keys()
    return shown


def _without_dropped(
    job: Job,
    mirror: Mirror,
    declared: dict[LaneId, Declared],
    keys: tuple[str, ...],
    seen: dict[str, str],
) -> tuple[Mirror, dict[str, str]]:
    """The mirror and the columns seen, without what statements have dropped; renewed names have new types."""
    gone = rule_faults.gone_for_good(
        job, {name: lane_declared.gone for name, lane_declared in declared.items()}
    ) - {*keys}
    renewed = {
        name: lane_declared.columns[name]
        for lane_declared in declared.values()
        for name in lane_declared.renewed
        if lane_declared.columns.get(name, "unknown") != "unknown"
    }
    seen = {name: logical for name, logical in seen.items() if name not in gone} | renewed
    # rows of later batches may have a column again that an old statement dropped
    dropped = {name for lane_declared in declared.values() for name in lane_declared.dropped & gone}
    kept = (column for column in mirror.columns if column.name not in dropped)
    types_now = renewed | dict(job.rule.declared)
    columns = (_retyped(column, types_now) if column.name in renewed else column for column in kept)
    return replace(mirror, columns=tuple(columns)), seen


def recomputed(rule: TableRule, mirror: Mirror) -> Mirror:
    """The mirror with the columns that its rule makes, each with the type that the row's other columns give it."""
    if not rule.made or not mirror.columns:
        return mirror
    deltas = {column.name: column.delta for column in mirror.sent}
    made = []
    for name, making in rule.made.items():
        logical = making.type or "string"
        if making.kind == "compute" and not making.type:
            logical = type_of(making.value, [deltas[column] for column in conditions.columns(making.value)])
        made.append(Column(name, name, logical, made=making))
    return replace(mirror, columns=(*mirror.sent, *made))


def _with_declared(
    rows: dict[str, str], declared: Mapping[str, str], mirror: Mirror, keys: Collection[str]
) -> dict[str, str]:
    """Columns as rows show them, and as statements declare them where rows do not.

    A statement's type and the type that a connector sends may differ permanently (TINYINT(1) and boolean). So a
    statement alone only widens a column, unless the rows carry no types at all. But it may give digits after the point to
    numbers: rows may say DECIMAL without them, and the old values get them at once. So do those of a DATE that becomes a
    DATETIME, of a FLOAT that becomes a DOUBLE and of a whole number that becomes one of these: they are converted in the
    statement's own batch, which may have rows of the old type alone.
    """
    merged = dict(rows)
    delta_types, known = mirror.delta_types, mirror.logical_types
    untyped = bool(rows) and set(rows.values()) == {"unknown"}
    for name, logical in declared.items():
        sent = rows.get(name, "unknown")
        whole = types.delta(sent) if types.family(sent) == "integer" else ""
        before = delta_types.get(name, "") if sent in ("decimal", "unknown") else whole
        if types.gains_fraction(before, logical):
            merged[name] = types.common(sent, logical)
            continue
        shown = known.get(name, "unknown") if sent == "unknown" else sent
        wider = types.common(shown, logical)
        # a key of text would have the form of its former values, or of the new ones, and find no row
        finds = name not in keys or types.delta(wider) != "STRING"
        if finds and types.loses_converted(types.delta(shown), logical):
            merged[name] = wider
            continue
        if sent != "unknown":
            continue
        new = types.delta(logical)
        if (untyped and name in rows) or types.widens(delta_types.get(name, new), new):
            merged[name] = logical
        else:
            merged.setdefault(name, "unknown")
    return merged


def _with_taken_over(
    columns: dict[str, str], lines: Iterable[Line], declared: Declared, mirror: Mirror
) -> dict[str, str]:
    """Columns that can hold the values that statements put under a name which rows show for another column.

    Rows after the statement show the type, too, but there may be none. What a statement declares counts only for new
    columns of text: a connector may send other types otherwise, as in `_with_declared`.
    """
    sent_types = {column.name: column.type for column in mirror.sent}
    lows = [line.order_low or "" for line in lines if line.columns]
    first = "" if sent_types else min(lows, default="")
    shown = (sent_types, *(line.columns for line in lines))
    typed = {
        name for columns_shown in shown for name, logical in columns_shown.items() if logical != "unknown"
    }
    for order, taken in declared.taken_over:
        if order <= first:
            continue
        before = sent_types | {name: logical for name, logical in columns.items() if logical != "unknown"}
        for name, old in taken.items():
            if name not in typed:
                continue
            held = before.get(name, "unknown")
            column = types.common(sent_types.get(name, "unknown"), held)
            put = [of.get(old, "unknown") for of in (sent_types, columns)]
            for logical in put if old else [declared.columns.get(name, "unknown")]:
                if _fits(held, column, logical, is_new=not old):
                    continue
                is_text = types.delta(logical) == "STRING"
                wider = "string" if is_text else types.common(held, logical)
                columns = columns | {name: wider}
    return columns


def _fits(before: str, column: str, logical: str, *, is_new: bool) -> bool:
    """True if a column can hold values of another type, as far as it is known.

    Args:
        before: the column's type, as rows or the mirror show it.
        column: the one that can hold both.
        logical: the values' type.
        is_new: a statement alone says that type, of a new column.
    """
    is_text = types.delta(logical) == "STRING"
    if logical == "unknown" or (is_new and not is_text):
        return True
    if types.delta(before) != "STRING":
        return False
    # the mirror may know the digits of a decimal without any; a whole number has none
    lost = types.family(column) == "integer" if is_text else types.family(logical) not in _EXACT
    return not (before == "decimal" and lost)


def _retyped(column: Column, types_now: Mapping[str, str]) -> Column:
    logical = types_now.get(column.name, "unknown")
    return column if logical == "unknown" else replace(column, type=logical)


def _keys(job: Job, mirror: Mirror, lanes: Mapping[LaneId, tuple[Era, ...]]) -> tuple[str, ...]:
    """The mirror's key: that of its lanes' last eras."""
    shard = (job.rule.shard_column,) if job.rule.shard_column else ()
    before = mirror.keys
    finals = {name: lane[-1].keys for name, lane in lanes.items() if lane}
    if len({frozenset(keys) for keys in finals.values()}) > 1:
        named = " and ".join(f"({', '.join(keys)}) of {table}" for (_, table), keys in finals.items())
        raise HeldError(
            f"the tables that feed {job.table} have different keys, {named}: write `keys: [...]` into its tables: "
            "entry, or wait until all of them have the new one."
        )
    keys = next(iter(finals.values()), ())
    if not finals and mirror.columns:  # no new evidence of a key
        return before
    keys = tuple(key for key in keys if key not in shard) + shard if keys else ()
    if not keys and job.rule.no_key == "hold" and (before or (job.has_changes and not mirror.columns)):
        what = "has no primary key any more" if before else "has no key"
        raise HeldError(
            f"{job.table} {what}: write `keys: [...]` or `no_key: full_row` into its tables: entry."
        )
    return before if set(keys) == set(before) else keys


def _eras(
    job: Job, mirror: Mirror, lane: _Logged, evidence: Callable[[], Evidence] | None
) -> tuple[Era, ...]:
    """A lane's eras: as decided before, unless a new line or statement says otherwise."""
    timeline = lane.timeline if job.rule.keys else lane.timeline.rekeying()
    statements = timeline.by_statement()
    exists = bool(mirror.columns)
    old_key = mirror.keys_without(job.rule.shard_column)
    if exists and not _is_news(job, mirror, lane):
        return mirror.eras_of(*lane.name) or ((Era("", old_key),) if old_key else ())
    keyless = exists and not mirror.keys
    shown = evidence_of_lines(lane.lines)
    if evidence is None and old_key:
        shown = replace(shown, runs=(Run(old_key, "", ""), *shown.runs))
    lane_eras = _lane_eras(job, shown, statements, keyless=keyless)
    # a line says neither in which order its changes name several keys, nor that others name none
    mixed = eras.overlap(shown) or any(eras.rekeys(run, statements) for run in shown.runs)
    if evidence is not None and (exists or mixed or len(lane_eras) > 1):
        lane_eras = _lane_eras(job, evidence(), statements, keyless=keyless)
    return lane_eras


def _lane_eras(
    job: Job, shown: Evidence, statements: Sequence[eras.PlacedEffects], *, keyless: bool
) -> tuple[Era, ...]:
    try:
        return eras.eras(shown, statements, job.rule.keys, keyless=keyless)
    except HeldError as error:
        raise HeldError(f"{job.table}: {error}") from None


def _is_news(job: Job, mirror: Mirror, lane: _Logged) -> bool:
    """True if something that the mirror has not folded yet names another key."""
    lines = [line for line in lane.lines if line.batch > lane.applied]
    keys = set(mirror.keys) - {job.rule.shard_column}
    declared = set(job.rule.keys)
    if declared:
        decided = [keys, *(set(era.keys) for *_, eras_of_lane in mirror.eras for era in eras_of_lane)]
        if declared not in decided:
            return True
    elif any(set(key) != keys for line in lines for key in line.keys):
        return True
    elif keys and not lane.last_key(mirror.keys) and any(line.changes for line in lines):
        return True  # perhaps the first rows without the key
    effects = (effect for moment in lane.new_moments for effect in moment.effects)
    return any(policy.rekeys(effect, keys, is_declared=bool(declared)) for effect in effects)


def _why_rebuilt(
    pipeline: Pipeline,
    job: Job,
    before: Mirror | None,
    now: Mirror,
    lanes: Sequence[_Logged],
    reached: Callable[[], int | None],
    misnamed: Collection[str],
) -> str:
    """Why the existing rows are folded again; empty if they are not, or if there are none."""
    if before is None or not before.columns:
        return ""
    if _is_rekeyed(before, now, lanes):
        return REKEYED
    if not before.is_shaped_by(job.rule):
        return RESHAPED
    if not before.is_named_by(pipeline, job.rule):
        return RENAMED
    if is_recomputed(before, now):
        return RETYPED
    if job.feeding and not before.is_fed_by(job.feeding, lambda: reached() or -1):
        return FED_OTHERWISE
    return MISNAMED if misnamed or _is_named_now(before, lanes) else ""


def _misnamed(
    job: Job,
    mirror: Mirror,
    lanes: Sequence[_Logged],
    declared: Mapping[LaneId, Declared],
    reached: Callable[[], int | None],
) -> set[str]:
    """The mirror's columns that only statements have made, by names that no rows have (`ingest.ledgers.adjusted_names`).

    Of a mirror of several tables these are known where all its changes are folded again: another table's rows may have them.
    """
    names = {adjusted.name for lane in lanes for _, adjusted in lane.adjusted} & {*mirror.by_name}
    for lane in lanes:
        names -= declared[lane.name].columns.keys() | job.columns_of(lane.name).keys()
    names -= dict(job.rule.declared).keys()
    is_single = len(job.lanes | {lane.name for lane in lanes}) == 1
    return names if names and (is_single or reached() is None) else set()


def _is_named_now(before: Mirror, lanes: Iterable[_Logged]) -> bool:
    """True if the new rows show that columns which the mirror has by folded statements are others."""
    return any(
        statement.batch <= lane.applied < adjusted.batch <= max(line.batch for line in lane.lines)
        and adjusted.name in before.by_name
        for lane in lanes
        if lane.lines
        for statement, adjusted in lane.adjusted
    )


def _fed_by(job: Job, before: Mirror | None) -> tuple[TableId, ...]:
    """The source tables whose rows the mirror has, as `Mirror.fed_by`."""
    if not job.feeding:
        return before.fed_by if before is not None else ()
    return () if job.feeding.keys() == {job.table} else tuple(sorted(job.feeding, key=str))


def is_recomputed(before: Mirror, now: Mirror) -> bool:
    """True if a rule may give existing rows other values, because a column that it uses has another type."""
    needed = {name for expression in now.expressions for name in conditions.columns(expression)}
    old = before.delta_types
    return any(
        old.get(column.name, column.delta) != column.delta for column in now.columns if column.name in needed
    )


def _is_rekeyed(before: Mirror, now: Mirror, lanes: Sequence[_Logged]) -> bool:
    """True if the existing rows were identified by another key than now."""
    if not (before.keys or now.keys):
        return False
    if set(before.keys) != set(now.keys):
        return True
    for lane in lanes:
        old, new = ([set(era.keys) for era in version.eras_of(*lane.name)] for version in (before, now))
        if new and old[-len(new) :] != new:
            return True
        last = now.eras_of(*lane.name)[-1].place if new else ""
        lines = (line for line in lane.lines if line.batch > lane.applied and line.changes)
        late = [line.order_low for line in lines if line.order_low]
        late += [statement.order for statement in lane.new]
        if last and min(late, default=last + "~") <= last:
            return True
    return False
