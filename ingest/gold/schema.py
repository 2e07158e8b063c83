"""Decide a mirror's schema for a job: keys, columns and types, and where a policy holds it.

Keys: those of the rule, else of the messages, else of the decision, else of a logged CREATE. Columns: all that rows or
applied statements have shown, as far as the policy accepts them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ingest import types
from ingest.change import LaneId
from ingest.config import Pipeline, conditions
from ingest.config.model import KEEP, TableRule
from ingest.errors import HeldError, command
from ingest.gold import eras, policy
from ingest.gold.eras import Evidence, Run, evidence_of_lines
from ingest.gold.lane import lane_name
from ingest.gold.ledger import Ledger
from ingest.gold.policy import APPLIED, HELD, NOTICED, Shown, Subject, Verdict
from ingest.gold.work import Job
from ingest.lake import histories
from ingest.lake.books import Line, merged_columns
from ingest.lake.conditions import ConditionError, refused, type_of
from ingest.lake.mirrors import Column, Era, Mirror, grown, is_full_row
from ingest.lake.names import column_name, folded
from ingest.lake.statements import Statement

_EXACT = ("integer", "decimal")
REKEYED = "its key has changed"
RESHAPED = "the rules of its tables: entry have changed"
RENAMED = "its shard_column names the source, too, where the pipeline has several"
RETYPED = "the type of a column that its rules use has changed"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a mirror is held, and the batch before which it stops."""

    batch: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job may do: the mirror's schema, the lines it may fold, and why not all."""

    job: Job
    mirror: Mirror
    hold: Hold | None = None
    frozen: int = 0  # the batch up to which a frozen mirror accepts everything, see `Subject`
    whole: str = ""  # why it is folded again from its first change, as part of a sentence
    left_out: tuple[str, ...] = ()  # columns that the policy ``ignore`` omits, or that a rule excludes
    noticed: int = 0  # statements that could not be read, or leave rows elsewhere
    verdicts: tuple[tuple[Statement, Verdict], ...] = ()  # what the new statements do

    @property
    def is_keyless(self) -> bool:
        """True for a mirror with columns, without a key, and with a rule for this case."""
        return not self.mirror.keys and bool(self.mirror.columns) and self.job.rule.no_key != "hold"


def decide(
    pipeline: Pipeline,
    job: Job,
    mirror: Mirror | None,
    ledger: Ledger,
    applied: int,
    first: int,
    exists: Callable[[], bool],
    asked: Callable[[LaneId, int | None], Evidence] | None = None,
) -> Plan:
    """The schema for a mirror's new batches: it has folded ``applied``, and ``first`` had its first rows.

    ``exists`` says whether the table exists; it is folded again if its key has changed. ``asked`` returns what all
    changes of a lane up to a batch show of its key, if the lines do not say. The mirror has no key while none is known
    and none is needed.

    Raises:
        HeldError: the mirror's schema cannot be decided; the text says what to write.
    """
    _refuse_unordered(job)
    before = mirror
    if mirror is not None and not mirror.is_sharded_by(job.rule.shard_column):
        mirror = replace(mirror, keys=tuple(key for key in mirror.keys if key != mirror.shard))
    frozen = max(applied, first)
    subjects = {name: subject_of(pipeline, job, mirror, name, frozen) for name in job.lines}
    # before its first rows nothing was applied
    settled = applied if mirror is not None and mirror.columns else 0
    hold = min(_holds(job, ledger, subjects, settled), key=lambda one: one.batch, default=None)
    if hold is not None:
        job = job.before(hold.batch)
    last = hold.batch - 1 if hold else None
    logged = {name: ledger.of(*name, last) for name in subjects}
    declared = {name: policy.shown(logged[name], subject, applied) for name, subject in subjects.items()}
    from_scratch = (
        len(job.lanes | subjects.keys()) == 1
        and not job.rule.soft
        and any(
            step.action == "new_incarnation" and batch > applied
            for name, subject in subjects.items()
            for step, batch in policy.steps(logged[name], subject)
        )
    )
    lanes = {
        name: _eras(job, mirror, name, logged[name], subject, applied, asked and partial(asked, name, last))
        for name, subject in subjects.items()
    }
    keys = _keys(job, mirror, lanes)
    _refuse_lossy(pipeline, job, keys)
    decided, left_out = _decided(job, mirror, declared, keys, from_scratch)
    _refuse_made(job, mirror, declared)
    departed = {name: policy.departed(logged[name], subjects[name]) for name in subjects}
    _refuse_condition(job, decided, departed)
    decided = recomputed(job.rule, decided)
    decided = replace(decided, names_sources=pipeline.names_sources if job.rule.shard_column else None)
    decided = replace(decided, eras=tuple((*name, one) for name, one in lanes.items() if len(one) > 1))
    if job.rule.history and decided.keys:
        decided = histories.named(decided, before)
    whole = _why_whole(pipeline, job, before, decided, logged, applied)
    if whole and not exists():
        whole = ""
    if job.rule.history and (whole == REKEYED or decided.eras):
        raise HeldError(
            f"the key of {job.table} has changed, which its table of old states cannot follow: write `history: false` "
            "into its tables: entry; the states up to here stay as they are."
        )
    verdicts = tuple(
        (one, policy.judge(one, subject))
        for name, subject in subjects.items()
        for one in logged[name]
        if one.batch > applied
    )
    noticed = sum(verdict.state == NOTICED for _, verdict in verdicts)
    return Plan(job, decided, hold, frozen, whole, left_out, noticed, verdicts)


def subject_of(pipeline: Pipeline, job: Job, mirror: Mirror | None, lane: LaneId, frozen: int) -> Subject:
    """A lane's table, as input of its policy."""
    known = {one.name: one.type for one in mirror.sent} if mirror else {}
    return Subject(
        lane[1],
        job.rule.on_schema_change,
        {**known, **job.rule.declared},
        frozen,
        job.has_changes or bool(mirror and mirror.columns),
        frozenset(job.columns_of(lane)),
        is_full_row(job.rule, mirror),
    )


def _refuse_unordered(job: Job) -> None:
    if job.differing:
        listed = ", ".join(f"{name}:" for name in sorted(job.differing))
        raise HeldError(
            f"{job.table} is fed by tables whose entries in tables: have different rules for it ({listed}): "
            "write the same rules into each of them, or another into:."
        )
    if job.merged and (job.rule.history or job.rule.soft or job.rule.no_key != "hold"):
        what = "a history" if job.rule.history else "deleted rows" if job.rule.soft else "no key"
        named = {lane_name(job.lanes, name) for name in job.lanes}
        raise HeldError(
            f"{job.table} is fed by {' and '.join(sorted(named))}, whose positions cannot be compared, and its rows have "
            f"{what}: give their tables: entry a shard_column, or another into:."
        )


def _refuse_lossy(pipeline: Pipeline, job: Job, keys: Collection[str]) -> None:
    """Rows are identified by their key; without one by all their values, which also identify a repeated message."""
    # no message contains it
    named = {key: job.rule.mask_of(key) for key in keys if key != job.rule.shard_column}
    if not keys and job.rule.no_key != "hold":
        named = {name: "" if how == KEEP else how for name, how in job.rule.mask.items()}
    for name, how in named.items():
        if how not in ("", "hmac"):
            what = f"the column {name} is part of the key" if keys else "it has no key"
            raise HeldError(
                f"{job.table}: {what}, and {how} gives different values one text: write `{name}: hmac` under mask: of its "
                f"tables: entry, then `{command('rebuild', pipeline.file, '--layer', 'silver')}`."
            )


# --- holds --------------------------------------------------------------------------------------


def _holds(job: Job, ledger: Ledger, subjects: dict[LaneId, Subject], applied: int) -> Iterator[Hold]:
    """What stops the job. A frozen mirror accepts everything up to its first rows: until then nothing is frozen."""
    for name, subject in subjects.items():
        statements = ledger.of(*name)
        for one in statements:
            verdict = policy.judge(one, subject)
            did, _ = ledger.recorded.get((job.path, one.id), ("", ()))
            if verdict.state == HELD and (
                one.batch > applied or did == APPLIED
            ):  # or late rows tell otherwise
                yield Hold(max(one.batch, applied + 1), _explained(job, one, verdict.does))
        if subject.policy == "freeze":
            yield from _unannounced(job, subject, job.lines[name], policy.shown(statements, subject))


def _explained(job: Job, statement: Statement, does: Iterable[str]) -> str:
    text = " ".join(statement.text.split())
    shown = text if len(text) <= 200 else text[:199] + "…"
    effects = " ".join(does)
    verbs = "approve or dismiss" if "nothing: no message" not in effects else "dismiss"
    way = ", and let the source send the table's rows again" if "load them again" in effects else ""
    return (
        f"statement {statement.id} of batch {statement.batch} waits for a decision ({shown}): see `ingest ddl`, "
        f"then {verbs} it{way}; the changes of {job.table} from that batch on wait in silver."
    )


def _unannounced(job: Job, subject: Subject, lines: Iterable[Line], declared: Shown) -> Iterator[Hold]:
    """Columns and wider types of a frozen mirror that rows show and no statement announced."""
    allowed = {**subject.known, **declared.columns}
    for line in lines:
        if line.batch <= subject.frozen:
            allowed.update(line.columns)
    for line in lines:
        if line.batch <= subject.frozen:
            continue
        new = [name for name in line.columns if name not in allowed and not job.rule.leaves_out(name)]
        wider = [
            name
            for name, logical in line.columns.items()
            if name in subject.known
            and name not in job.rule.declared
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
    job: Job, mirror: Mirror | None, declared: dict[LaneId, Shown], keys: tuple[str, ...], from_scratch: bool
) -> tuple[Mirror, tuple[str, ...]]:
    rule = job.rule
    seen: dict[str, str] = {}
    for name in job.lines:
        mine = _with_declared(job.columns_of(name), declared[name].columns, mirror)
        mine = _with_reused(mine, job.lines[name], declared[name], mirror)
        seen = merged_columns(seen, mine)
    _refuse_lost_key(job, keys)
    without = tuple(name for name in seen if name not in keys and rule.leaves_out(name))
    seen = {name: logical for name, logical in seen.items() if name not in without}
    shown = bool(seen or (mirror and mirror.columns))
    if (shard := rule.shard_column) and shard in seen:
        raise HeldError(f"{job.table} has a column {shard} of its own: give shard_column another name.")
    if shard:
        seen[shard] = "string"
    if not shown:  # only a truncate: the key's types are not known yet, and there is nothing to hold
        keys = ()
    if from_scratch and mirror is not None:  # no old row is kept, so the types may change freely
        mirror = replace(mirror, columns=tuple(_retyped(one, job, seen) for one in mirror.columns))
    left_out: tuple[str, ...] = ()
    if rule.ignores and mirror is not None and mirror.columns:
        have = {one.name for one in mirror.columns} | rule.declared.keys() | {*rule.include}
        left_out = tuple(name for name in seen if name not in have)
        seen = {name: "unknown" for name in seen if name in have}
    if not rule.shard_column and not job.merged:
        gone = _not_again(job, {name: one.gone for name, one in declared.items()})
        seen = {name: logical for name, logical in seen.items() if name not in gone}
        again = {
            name: one.columns[name]
            for one in declared.values()
            for name in one.again
            if one.columns.get(name, "unknown") != "unknown"
        }
        seen |= again
        if mirror is not None:
            mirror = _renewed(mirror, job, gone, again)
    comments = {column: text for one in declared.values() for column, text in one.comments.items()}
    found = grown(mirror, job.table, rule, keys, seen)
    _refuse_names(job, found)
    return _commented(found, comments), (*left_out, *without)


def _refuse_lost_key(job: Job, keys: Iterable[str]) -> None:
    """A pattern never excludes the key; a key that is excluded by name is a mistake."""
    for name in keys:
        if name in job.rule.without:
            raise HeldError(
                f"{job.rule.places[name]} leaves out {name}, a column of the key of {job.table}, without which its rows "
                "cannot be told apart: leave the key in, or give it another with `keys:`."
            )


def _refuse_condition(job: Job, mirror: Mirror, departed: Mapping[LaneId, Mapping[str, str]]) -> None:
    """Hold for a condition that no row can meet any more, or that fails on rows: it would empty or stop the mirror.

    The same holds for a computed column.
    """
    rule = job.rule
    rules: list[tuple[str, str, Callable[[str, Sequence[str]], str]]] = []
    if rule.where:
        rules.append((f"{rule.where_place} where:", rule.where, refused))
    for name, one in rule.made.items():
        expression = one.value if one.kind == "compute" else ""
        what = "deletes: soft" if one.kind == "deletes" else f"columns: {name}"
        rules.append((f"{rule.places[name]} {what}", expression, _untyped))
    if not rules or not mirror.columns:
        return
    if not mirror.keys:
        raise HeldError(f"{rules[0][0]} needs rows with a key: write `keys: [...]` for {job.table}.")
    deltas, gone = {one.name: one.delta for one in mirror.columns}, _not_again(job, departed)
    for what, expression, refusal in rules:
        names = conditions.columns(expression) if expression else ()
        for name in names:
            if name not in deltas or name in gone:
                why = "a statement has dropped or renamed" if name in gone else "the mirror does not have"
                raise HeldError(
                    f"{what} needs the column {name} of {job.table}, which {why}: correct the expression there."
                )
        if expression and (why := refusal(expression, [deltas[name] for name in names])):
            raise HeldError(f"{what} cannot be asked of {job.table}: {why}.")


def _untyped(expression: str, deltas: Sequence[str]) -> str:
    """Why an expression gives no value for a column; empty if it does."""
    try:
        type_of(expression, deltas)
    except ConditionError as error:
        return str(error)
    return ""


def _refuse_made(job: Job, mirror: Mirror | None, declared: Mapping[LaneId, Shown]) -> None:
    """Hold if the source has a column with the name of one that a rule makes: one of them would hide the other."""
    if not job.rule.made:
        return
    sent = {one.name for one in mirror.sent} if mirror else set()
    sent |= {column for name in job.lines for column in (*job.columns_of(name), *declared[name].columns)}
    names = {folded(job.rule.names.get(name) or column_name(name, set())): name for name in sorted(sent)}
    names |= {folded(name): name for name in sorted(sent)}
    for name in job.rule.made:
        if other := names.get(folded(name)):
            by, way = "columns:", "give the rule another name"
            if job.rule.made[name].kind == "deletes":
                by, way = (
                    "deletes: soft",
                    "keep its deleted rows in a table of their own with `history: true` instead",
                )
            raise HeldError(
                f"{job.rule.places[name]} {by} makes a column {name}, and {job.table} has a column {other} of its own: {way}."
            )


def recomputed(rule: TableRule, mirror: Mirror) -> Mirror:
    """The mirror with the columns that its rule makes, each with the type that the row's other columns give it."""
    if not rule.made or not mirror.columns:
        return mirror
    deltas = {one.name: one.delta for one in mirror.sent}
    made = []
    for name, one in rule.made.items():
        logical = one.type or "string"
        if one.kind == "compute" and not one.type:
            logical = type_of(one.value, [deltas[column] for column in conditions.columns(one.value)])
        made.append(Column(name, name, logical, made=one))
    return replace(mirror, columns=(*mirror.sent, *made))


def _refuse_names(job: Job, mirror: Mirror) -> None:
    """Hold for two columns of one name: some readers would confuse their values."""
    given = job.rule.names
    for one in mirror.columns:
        if one.name not in given:
            continue
        others = {folded(column_name(two.name, set())) for two in mirror.columns if two.name not in given}
        others |= {folded(given[two.name]) for two in mirror.columns if two.name in given and two != one}
        if folded(one.column) in others or column_name(one.column, set()) != one.column:
            raise HeldError(
                f"{job.rule.places[one.name]} renames {one.name} to {one.column}, which is the name of another column of "
                f"{job.table} or one that Delta uses itself: choose another."
            )


def _with_declared(
    rows: dict[str, str], declared: Mapping[str, str], mirror: Mirror | None
) -> dict[str, str]:
    """Columns as rows show them, and as statements declare them where rows do not.

    A statement's type and the type that a connector sends may differ permanently (TINYINT(1) and boolean). So a
    statement alone only widens a column, unless the rows carry no types at all. But it may give digits after the point to
    numbers: rows may say DECIMAL without them, and the old values get them at once.
    """
    found = dict(rows)
    known = {one.name: one.delta for one in mirror.columns} if mirror else {}
    untyped = bool(rows) and set(rows.values()) == {"unknown"}
    for name, logical in declared.items():
        sent = rows.get(name, "unknown")
        whole = types.delta(sent) if types.family(sent) == "integer" else ""
        before = known.get(name, "") if sent in ("decimal", "unknown") else whole
        if types.gains_fraction(before, logical):
            found[name] = types.common(sent, logical)
            continue
        if sent != "unknown":
            continue
        new = types.delta(logical)
        if (untyped and name in rows) or types.widens(known.get(name, new), new):
            found[name] = logical
        else:
            found.setdefault(name, "unknown")
    return found


def _with_reused(
    found: dict[str, str], lines: Iterable[Line], declared: Shown, mirror: Mirror | None
) -> dict[str, str]:
    """Columns that can hold the values that statements put under a name which rows show for another column.

    Rows after the statement show the type, too, but there may be none. What a statement declares counts only for new
    columns of text: a connector may send other types otherwise, as in `_with_declared`.
    """
    known = {one.name: one.type for one in mirror.sent} if mirror else {}
    lows = [one.order_low or "" for one in lines if one.columns]
    first = "" if known else min(lows, default="")
    shown = (known, *(one.columns for one in lines))
    typed = {name for one in shown for name, logical in one.items() if logical != "unknown"}
    for order, taken in declared.reused:
        before = known | {name: logical for name, logical in found.items() if logical != "unknown"}
        for name, old in taken.items():
            column = types.common(known.get(name, "unknown"), before.get(name, "unknown"))
            for logical in [known.get(old), found.get(old)] if old else [declared.columns.get(name)]:
                text = types.delta(logical or "unknown") == "STRING"
                if order <= first or name not in typed or logical in (None, "unknown") or not (old or text):
                    continue
                # the mirror may know its digits; a whole number has none
                digitless = before[name] == "decimal"
                lost = types.family(column) == "integer" if text else types.family(logical) not in _EXACT
                if types.delta(before[name]) != "STRING" or (digitless and lost):
                    found = found | {name: "string" if text else types.common(before[name], logical)}
    return found


def _commented(mirror: Mirror, comments: dict[str, str]) -> Mirror:
    """The mirror with the source's comments on its columns."""
    columns = tuple(replace(one, comment=comments.get(one.name, one.comment)) for one in mirror.columns)
    return replace(mirror, columns=columns)


def _retyped(column: Column, job: Job, seen: dict[str, str]) -> Column:
    logical = job.rule.declared.get(column.name) or seen.get(column.name, "unknown")
    return column if logical == "unknown" else replace(column, type=logical)


def _renewed(mirror: Mirror, job: Job, gone: set[str], again: dict[str, str]) -> Mirror:
    """The mirror without dropped columns; a reused name may have any type."""
    kept = (one for one in mirror.columns if one.name not in gone)
    return replace(
        mirror, columns=tuple(_retyped(one, job, again) if one.name in again else one for one in kept)
    )


def _not_again(job: Job, gone: Mapping[LaneId, Mapping[str, str]]) -> set[str]:
    found = set()
    for name, places in gone.items():
        for column, order in places.items():
            if not any(column in line.columns and (line.order_low or "") > order for line in job.lines[name]):
                found.add(column)
    return found


def _keys(job: Job, mirror: Mirror | None, lanes: Mapping[LaneId, tuple[Era, ...]]) -> tuple[str, ...]:
    """The mirror's key: that of its lanes' last eras."""
    shard = (job.rule.shard_column,) if job.rule.shard_column else ()
    before = mirror.keys if mirror else ()
    exists = mirror is not None and bool(mirror.columns)
    finals = {name: found[-1].keys for name, found in lanes.items() if found}
    if len({frozenset(keys) for keys in finals.values()}) > 1:
        named = " and ".join(f"({', '.join(keys)}) of {table}" for (_, table), keys in finals.items())
        raise HeldError(
            f"the tables that feed {job.table} have different keys, {named}: write `keys: [...]` into its tables: "
            "entry, or wait until all of them have the new one."
        )
    keys = next(iter(finals.values()), ())
    if not finals and exists:  # no new evidence of a key
        return before
    keys = tuple(key for key in keys if key not in shard) + shard if keys else ()
    if not keys and job.rule.no_key == "hold" and (before or (job.has_changes and not exists)):
        what = "has no primary key any more" if before else "has no key"
        also = "" if before else " or `no_key: append`"
        raise HeldError(
            f"{job.table} {what}: write `keys: [...]`{also or ' or `no_key: full_row`'} into its tables: entry."
        )
    return before if set(keys) == set(before) else keys


def _eras(
    job: Job,
    mirror: Mirror | None,
    name: LaneId,
    logged: Iterable[Statement],
    subject: Subject,
    applied: int,
    asked: Callable[[], Evidence] | None,
) -> tuple[Era, ...]:
    """A lane's eras: as decided before, unless a new line or statement says otherwise."""
    logged, lines = list(logged), job.lines[name]
    statements = policy.by_statement(logged, subject)
    exists = mirror is not None and bool(mirror.columns)
    own = tuple(key for key in mirror.keys if key != job.rule.shard_column) if mirror else ()
    if mirror is not None and exists and not _is_news(job, mirror, lines, logged, subject, applied):
        return mirror.eras_of(*name) or ((Era("", own),) if own else ())
    keyless = exists and mirror is not None and not mirror.keys
    found = evidence_of_lines(lines)
    if asked is None and own:
        found = replace(found, runs=(Run(own, "", ""), *found.runs))
    lane_eras = _lane_eras(job, found, statements, keyless=keyless)
    # a line says neither in which order its changes name several keys, nor that others name none
    mixed = eras.overlap(found) or any(eras.rekeys(run.keys, statements) for run in found.runs)
    if asked is not None and (exists or mixed or len(lane_eras) > 1):
        lane_eras = _lane_eras(job, asked(), statements, keyless=keyless)
    return lane_eras


def _lane_eras(
    job: Job, found: Evidence, statements: Sequence[eras.Statement], *, keyless: bool
) -> tuple[Era, ...]:
    try:
        return eras.eras(found, statements, job.rule.keys, keyless=keyless)
    except HeldError as error:
        raise HeldError(f"{job.table}: {error}") from None


_OF_KEYS = frozenset({"create_table", "add_primary_key", "drop_primary_key"})


def _is_news(
    job: Job,
    mirror: Mirror,
    lines: Iterable[Line],
    logged: Iterable[Statement],
    subject: Subject,
    applied: int,
) -> bool:
    """True if something that the mirror has not folded yet names another key."""
    keys = set(mirror.keys) - {job.rule.shard_column}
    decided = [keys, *(set(era.keys) for *_, some in mirror.eras for era in some)]
    if job.rule.keys and set(job.rule.keys) not in decided:
        return True
    if not job.rule.keys and any(
        set(one) != keys for line in lines if line.batch > applied for one in line.keys
    ):
        return True
    new = not job.rule.keys and any(line.batch > applied and line.changes for line in lines)
    if new and keys and not eras.last(policy.by_statement(logged, subject), mirror.keys):
        return True  # perhaps the first rows without the key
    return any(
        effect.column in keys or effect.to in keys
        if effect.action == "rename_column"
        else effect.action in _OF_KEYS and set(effect.keys) != keys and bool(effect.keys or not job.rule.keys)
        for statement, effect in policy.applied(logged, subject)
        if statement.batch > applied
    )


def _why_whole(
    pipeline: Pipeline,
    job: Job,
    before: Mirror | None,
    now: Mirror,
    logged: Mapping[LaneId, Sequence[Statement]],
    applied: int,
) -> str:
    """Why the existing rows are folded again; empty if they are not."""
    if before is None:
        return ""
    if _is_rekeyed(job, before, now, logged, applied):
        return REKEYED
    if before.columns and not before.is_shaped_by(job.rule):
        return RESHAPED
    if before.columns and not before.is_named_by(pipeline, job.rule):
        return RENAMED
    return RETYPED if is_recomputed(before, now) else ""


def is_recomputed(before: Mirror, now: Mirror) -> bool:
    """True if a rule may give existing rows other values, because a column that it uses has another type."""
    needed = {name for one in now.expressions for name in conditions.columns(one)}
    old = {one.name: one.delta for one in before.columns}
    return any(old.get(one.name, one.delta) != one.delta for one in now.columns if one.name in needed)


def _is_rekeyed(
    job: Job, before: Mirror, now: Mirror, logged: Mapping[LaneId, Sequence[Statement]], applied: int
) -> bool:
    """True if the existing rows were identified by another key than now."""
    if not before.columns or not (before.keys or now.keys):
        return False
    if set(before.keys) != set(now.keys):
        return True
    for name, lines in job.lines.items():
        old, new = ([set(era.keys) for era in one.eras_of(*name)] for one in (before, now))
        if new and old[-len(new) :] != new:
            return True
        last = now.eras_of(*name)[-1].place if new else ""
        late = [line.order_low for line in lines if line.batch > applied and line.changes and line.order_low]
        late += [statement.order for statement in logged[name] if statement.batch > applied]
        if last and min(late, default=last + "~") <= last:
            return True
    return False
