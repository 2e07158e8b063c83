"""The built-in checks: what each one measures, in words, and when it complains.

A check compares one observed number with one threshold; more is worse, always.  A check whose
threshold is None is measured and shown but never complains, unless the pipeline file's
``quality:`` entry sets a limit for it under ``thresholds:``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ingest.errors import capitalised, command, counted

PASS, WARN, FAIL, ERROR = "pass", "warn", "fail", "error"
STATES = (ERROR, FAIL, WARN, PASS)  # the worst first
HELD, FOLD_FAILED = "The table is held", "The last fold failed"  # titles of problems that need no check
FAILED_CHECK = "check"  # the state of an alarm that a check has raised, in `runs`
LAST_RUN = "last run"  # the subject of a run's alarms
FAILING_KEYS = 20
NEVER_SENT = "rows_never_sent"  # of which only a change came
LEFT_OUT = "rows_left_out"  # by a condition
ROWS_LEFT_BEHIND = "rows_left_behind"  # under the old name of a renamed table
CASCADED_ROWS = "cascaded_rows"
CELLS_CUT = "cells_cut"
CONVERTED_CELLS = "converted_cells"
KEY_SPELLINGS = "key_spellings"
TYPES_MISREAD = "types_misread"
UNKNOWN_VALUES = "unknown_values"  # values, or what a statement did, that no message contains
RECONCILED = "reconcile"  # the one check that does not run after each batch
MAX_DETAIL = 2_000
ANY_CHANGE, WHOLE_ROW = "any change", "whole row"


@dataclass(frozen=True, slots=True)
class Check:
    """One built-in check.

    Args:
        name: as it is in ``checks`` and under ``thresholds:``.
        title: the claim, in a few words.
        fault: what is wrong if the claim does not hold, in a few words.
        question: what is counted or measured, for display.
        severity: ``error`` fails the run, ``warn`` does not.
        limit: the highest accepted value; None never complains.
        unit: ``count``, ``ratio`` or ``seconds``.
        subject: ``mirror`` or ``source``.
        advice: what to do about a complaint, with the names of commands in braces (`advice`).
    """

    name: str
    title: str
    fault: str
    question: str
    severity: str
    limit: float | None
    unit: str = "count"
    subject: str = "mirror"
    advice: str = ""
    lasting: bool = False  # what one batch made wrong is still wrong when the next batch is right
    ends_with: str = ""  # the newer changes of its rows that end it: `ANY_CHANGE`, `WHOLE_ROW`, or none


_HISTORY = "Look at the history of a failing key below, and compare it with the source."
CHECKS = {
    check.name: check
    for check in (
        Check("rows", "Rows", "Rows", "rows in the mirror", "warn", None),
        Check("readable", "The mirror can be read", "The mirror cannot be read", "mirrors whose table or files are damaged", "error", 0,
              advice="Nothing of silver is lost: the mirror is made again from its changes as the message says."),
        Check("key_unique", "Each key is there once", "Keys are there more than once", "rows beyond the first of their key", "error", 0,
              advice="Another program may write to this mirror; " + _HISTORY[0].lower() + _HISTORY[1:], lasting=True, ends_with=WHOLE_ROW),
        Check("key_not_null", "No key is empty", "Keys are empty", "rows with a NULL in a key column", "error", 0,
              advice="The key in the pipeline file may be the wrong one; check keys: of this table.", lasting=True),
        Check("missing_rows", "No row is missing", "Rows are missing", "live keys among the changes that the mirror lacks", "error", 0,
              advice=_HISTORY, lasting=True, ends_with=WHOLE_ROW),
        Check(LEFT_OUT, "Rows that where: leaves out", "Rows that where: leaves out", "live keys among the changes whose rows do not meet the mirror's condition", "warn", None),
        Check("columns_left_out", "Columns that are left out", "Columns that are left out", "columns of the rows that the rules leave out of the mirror", "warn", None),
        Check("columns_masked", "Columns that are masked", "Columns that are masked", "columns of the rows whose values are masked", "warn", None),
        Check(CELLS_CUT, "Times with more digits than the mirror keeps", "Times with more digits than the mirror keeps", "cells whose digits after the sixth of a second were cut", "warn", None),
        Check("changes_erased", "Changes that were erased", "Changes that were erased", "changes of erased rows, which the changes no longer contain", "warn", None),
        Check("ghost_rows", "No deleted row lives on", "Deleted rows live on", "rows whose key the changes say is gone", "error", 0,
              advice=_HISTORY, lasting=True, ends_with=WHOLE_ROW),
        Check(CASCADED_ROWS, "Rows go with those to which they refer", "Rows refer to rows that are gone", "rows that a foreign key has deleted or changed at the source, which its log does not contain", "error", 0,
              advice="Load these rows again, or let the application delete and change them by statements of its own: these are logged.", lasting=True, ends_with=ANY_CHANGE),
        Check(CONVERTED_CELLS, "Cells are values of their column's type", "Cells were converted by no statement", "rows that hold what their column's newest type cannot", "error", 0,
              advice="Load these rows again, or the table: only the source knows their values.", lasting=True, ends_with=WHOLE_ROW),
        Check(KEY_SPELLINGS, "Each value is one key", "Keys came in several spellings", "keys whose value came in several spellings, of which each is a key of its own", "error", 0,
              advice="Remove the mirror by the command in the message, and declare the key's type under columns:, or repair the source, before it is made again.", lasting=True),
        Check("wrong_cells", "Cells are what the changes say", "Cells differ from their changes", "cells and rows that differ from the fold of their changes", "error", 0,
              advice="See the row's life with the command that is given, then fold the mirror again: `{rebuild}`.", lasting=True, ends_with=WHOLE_ROW),
        Check("images_before", "Each change finds the row that it describes", "Changes do not find the row that they describe", "keys whose rows were not as a change says that they were before it", "error", 0,
              advice="A message was lost or came in the wrong order, or a statement changed rows otherwise than was understood: look at the history of a failing key, then compare the mirror with the source.", lasting=True, ends_with=WHOLE_ROW),
        Check(NEVER_SENT, "Each changed row has come", "Rows were changed that never came", "keys of which a change says that a row was there, and no message has brought one", "error", 0,
              advice="A message was lost, maybe the change of a key, whose old row is then still there: compare the mirror with the source.", lasting=True),
        Check("changes_compared", "Changes with an image before", "Changes with an image before", "changes whose image before was compared with the row of the change before", "warn", None),
        Check("changes_proven", "Changes proven by the next one", "Changes proven by the next one", "changes whose image before is the row that it describes", "warn", None),
        Check("insert_of_a_live_key", "Inserted keys were free", "Keys were inserted twice", "keys inserted with other values while they were there", "error", 0,
              advice="If the table was loaded again, the command for an epoch in the message removes rows that the load lacks; else name the key's new column under keys: of this table, then fold the mirror again: `{rebuild}`.", lasting=True),
        Check("rows_read_again", "No row was read again with other values", "Rows were read again with other values", "keys read again with other values, without a change in between", "warn", 0,
              advice="If the table was loaded again, the command for an epoch in the message removes rows that the load lacks; else its key may have more columns or digits than the messages show.", lasting=True),
        Check("rows_not_loaded", "A load had every row", "A load lacked rows of the mirror", "rows that a later load of the table did not contain", "error", 0,
              advice="If the load was of the whole table, the command for an epoch in the message removes them; else compare the table with the source.", lasting=True),
        Check("rows_not_loaded_again", "A second load had every row", "A second load lacked rows of the mirror", "rows that a second load of the table did not contain, of which no message says whether it was whole", "warn", 0,
              advice="If the load was of the whole table, the command for an epoch in the message removes them; else accept them.", lasting=True, ends_with=ANY_CHANGE),
        Check("cells_checked", "Keys compared cell by cell", "Keys compared cell by cell", "keys whose cells were compared with the fold of their changes", "warn", None),
        Check("row_count", "As many rows as the source", "Row count differs from the source", "difference to the source's own count", "error", 0,
              advice="Count again while the source is quiet; if it still differs, load the table once in full."),
        Check(RECONCILED, "Rows are as in the source", "Rows differ from the source", "rows that differed from the source when they were last compared", "error", 0,
              advice="`{reconcile}` shows both values of each; with --repair it reads these rows again."),
        Check("up_to_date", "Every batch is applied", "Batches wait to be applied", "decoded batches that the mirror has not folded", "error", 0,
              advice="Read the message of the last batch below, correct its cause and run again; nothing is lost meanwhile."),
        Check("schema", "Columns are as decided", "Columns are not as decided", "columns whose name or type differs from the decision", "error", 0,
              advice="Another program may have altered this mirror; put the column back as decided."),
        Check("freshness", "Age of the newest change", "The newest change is old", "age of the newest source commit", "error", None, "seconds",
              advice="See whether the source still sends: a quiet table looks like a broken export."),
        Check("ambiguities", "Order decides every key", "Order leaves ties", "ties: two different changes of one key at one place", "warn", 0,
              advice="The later arrival won. Compare the key with the source if the order of arrival is not certain."),
        Check("cell_rejects", "Every cell fits its type", "Cells did not fit their type", "cells whose text did not fit, kept in rejects", "warn", 0,
              advice="Declare a type that holds them under columns:, or correct them at the source."),
        Check("bytes_misread", "Bytes are read as they are written", "Bytes are read in another encoding", "columns of bytes whose texts are all hexadecimal, and are read as base64", "error", 0,
              advice="Write `binary: hex` under the source's options, then decode its batches again: `{backfill}`.", lasting=True),
        Check(TYPES_MISREAD, "Cells are read by their declared types", "Cells are not read by their declared types", "rows with cells which show that they were read without the type that a statement declares", "error", 0,
              advice="Write the type under columns: as the message says, then decode its batches again: `{backfill}`."),
        Check("nulls_left_out", "It is known what a missing column means", "Columns are missing where NULLs may be left out", "rows that lack columns, from a source that never sends a NULL", "error", 0,
              advice="Write `left_out: null` or `left_out: unchanged` under the source's options, then decode its batches again: `{backfill}`.", lasting=True),
        Check("refused_changes", "Every change has its key", "Changes were not applied", "changes without a usable key, kept in rejects", "error", 0,
              advice="The mirror lacks them: name columns that every row has as `keys:` of this table; if its key is right, correct the rows at the source, load the table again and dismiss these rejects.", lasting=True),
        Check(UNKNOWN_VALUES, "Every value was sent", "Values are not known", "rows whose values a statement changed by rules that only the source knows, and that have not come again", "error", 0,
              advice="Load these rows again, or accept them as they are with the command for that in the message."),
        Check(ROWS_LEFT_BEHIND, "A renamed table has its rows", "Rows of a renamed table have not come", "rows that a table had under its old name, and that have not come under the new one", "error", 0,
              advice="Load the table again, or accept the mirror without these rows with the command for that in the message."),
        Check("ddl_pending", "No schema change waits", "Schema changes wait for a decision", "statements that may have moved rows, and that no one has decided on", "warn", 0,
              advice="Read the statements under schema changes below, then decide: `{ddl}` lists them with their ids."),
        Check("order_strength", "Arrival order is enough", "Arrival is trusted across partitions", "further partitions of a source without positions", "warn", 0,
              advice="Send each key's messages to one partition, or choose a dialect that carries positions."),
        Check("event_order", "TRUNCATE and DDL have their place", "The place of TRUNCATE or DDL is not sure", "rows or events whose order cannot be known", "error", 0,
              advice="Compare the table with the source; send all messages of a table to one partition.", lasting=True),
        Check("unplaced_changes", "All changes have positions, or none", "Changes without a position come before others", "changes without a position after changes with one", "error", 0,
              advice="Write `order_by: arrival` under the source's options, then decode its batches again: `{backfill}`.", lasting=True),
        Check("re_reads_ignored", "Rows that were read again count", "Rows that were read again were ignored", "rows of a load that lost against changes or statements before it", "error", 0,
              advice="The command for an epoch in the message lets them win.", lasting=True),
        Check("old_positions", "New changes are newer", "All changes come before older ones", "changes of a batch that all come before what the mirror has", "warn", 0,
              advice="If the source's positions started again, the command for an epoch in the message says from where on."),
        Check("positions_started_again", "The source's positions go on", "The source's positions started again", "changes newer than all before that lost against older ones by their positions", "error", 0,
              advice="The command for an epoch in the message places what came since after everything before; then compare the table with the source.", lasting=True),
        Check("repeated_moves", "No key change came again without all its columns", "Key changes came again without all their columns", "repeated key changes that took columns from another row", "error", 0,
              advice="Compare these rows with the source; a dialect that carries positions has no such doubt.", lasting=True),
        Check("rows_set_back", "No old change came after newer ones", "Old changes came after newer ones", "rows whose last change is an old one that came again or late", "error", 0,
              advice="Remove the copy of old messages, if there is one, and load the table again; a stream that went back goes forward again by itself.", lasting=True, ends_with=ANY_CHANGE),
        Check("partial_rows", "Whole rows came whole", "Rows lacked columns", "columns that rows lacked while rows before and after them had these", "error", 0,
              advice="The source leaves columns out of its rows: let it send all of them (MySQL: binlog_row_image=FULL), then load the table again.", lasting=True),
        Check("vanished_columns", "Every column still comes", "Columns came no more", "columns that rows lack now, and that no statement has dropped", "warn", 0,
              advice="If the source has dropped the column, exclude it under columns:; else let it send whole rows (MySQL: binlog_row_image=FULL), and load the table again."),
        Check("mixed_topics", "One topic feeds the table", "Several topics feed a table without a database", "topics of a table whose name holds no database", "error", 1,
              advice="Give each topic its table under options.table, then decode its batches again: `{backfill}`."),
        Check("lost_deletes", "Null values delete their rows", "Null values deleted no row", "null values whose row came before them and was not deleted", "error", 0, subject="source",
              advice="If the topic was compacted, load the table again. If its rows are flattened, name its table under options.table and send the key's columns as the Kafka key, or keep deletes as rows (`__deleted`); then decode its batches again: `{backfill}`.", lasting=True),
        Check("incomplete_rows", "Every row began whole", "Rows began incomplete", "live rows of which only partial updates came", "error", 0,
              advice="Their other columns are unknown and NULL in the mirror: load these rows once in full, or allow them by a limit under thresholds: of the file's quality: entry."),
        Check("duplicates", "Messages came once", "Messages came again", "changes that came again, and were applied once", "warn", None),
        Check("books_balance", "Every message is accounted for", "Messages are unaccounted for", "messages landed but not in the books, or the reverse", "error", 0,
              subject="source", advice="Keep the lake as it is and report this: it should never happen."),
        Check("gaps", "Nothing was skipped", "Messages were skipped", "ranges of files and partitions that were never read", "error", 0,
              subject="source", advice="See the alarms of the last runs, restore the file and run again."),
        Check("losses", "No loss was accepted", "Losses were accepted", "gaps in a topic that were accepted", "warn", 0,
              subject="source", advice="Compare the mirrors with the source, or load their tables once in full."),
        Check("missing_parts", "Every transaction came whole", "Transactions lack parts", "transactions of which fewer changes came than they say", "warn", 0,
              subject="source", advice="See whether a table of these transactions is not sent; then set a limit under thresholds:."),
        Check("reject_rate", "Every message could be decoded", "Messages could not be decoded", "share of messages that were rejected and still wait", "warn", 0, "ratio",
              subject="source", advice="`{rejects}` lists each reason with an example; the bytes are kept."),
    )
}  # fmt: skip


def advice(check: str, file: str | Path, mirror: str) -> str:
    """What to do about a complaint of a check, with whole commands; empty if nothing is known about it.

    Args:
        check: the check's name.
        file: the pipeline file.
        mirror: the mirror of which it complains, empty if that is a source.
    """
    if check not in CHECKS:
        return ""
    return CHECKS[check].advice.format(
        backfill=command("backfill", file, "--from-batch", 1),
        rebuild=command("rebuild", file, *filter(None, [mirror])),
        **{verb: command(verb, file) for verb in ("ddl", "reconcile", "rejects")},
    )


@dataclass(frozen=True, slots=True)
class Metric:
    """One observed number of one subject, ready to be judged.

    ``failing`` holds a bounded sample of keys, each as JSON text; ``statement`` is the id of the statement that has left what was
    counted, and whose decision settles it; ``command`` is the one that repairs it, where there is one for just this.
    """

    check: str
    observed: float
    mirror: str | None = None
    source: str | None = None
    column: str | None = None
    limit: float | None = None
    severity: str = "error"
    detail: str = ""
    failing: tuple[str, ...] = ()
    statement: str = ""
    command: str = ""

    @classmethod
    def of_keys(cls, check: str, mirror: str, keys: Sequence[str], **details: Any) -> Metric:
        """How many keys of a mirror a check has found, with some of them."""
        return cls(check, len(keys), mirror, failing=tuple(keys[:FAILING_KEYS]), **details)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A judged metric: ``state`` is pass, warn, fail, or error if it could not be judged."""

    metric: Metric
    state: str
    lasting: bool = False  # an earlier look found it, and nothing has repaired it

    @property
    def subject(self) -> str:
        """What it is about, for display."""
        return self.metric.mirror or f"source {self.metric.source}"

    def said(self) -> str:
        """What was found, in words."""
        metric = self.metric
        return metric.detail or explained(metric.check, metric.observed, metric.limit)

    def sentence(self) -> str:
        """The complaint in one sentence."""
        column = self.metric.column
        where = f"{self.subject}, column {column}" if column else self.subject
        return f"{where}: {self.said()}"


@dataclass(slots=True)
class Checked:
    """The result of checking: all verdicts, and the last batch that they cover."""

    batch: int | None = None
    verdicts: list[CheckResult] = field(default_factory=list)
    open: bool = True  # some mirror or source, checked now or not, may have a fault that stays

    def counts(self) -> dict[str, int]:
        """The number of verdicts of each state."""
        return {
            state: n for state in STATES if (n := sum(verdict.state == state for verdict in self.verdicts))
        }

    def take_over(self, other: Checked, mirrors: Collection[str]) -> None:
        """Replace the verdicts on some mirrors, by name, with those of another check."""
        kept = [verdict for verdict in self.verdicts if verdict.metric.mirror not in mirrors]
        self.verdicts = kept + [verdict for verdict in other.verdicts if verdict.metric.mirror in mirrors]
        self.open = self.open or other.open

    def of(self, *states: str) -> list[CheckResult]:
        """The verdicts with one of these states, the worst first."""
        return [
            verdict
            for state in STATES
            if state in states
            for verdict in self.verdicts
            if verdict.state == state
        ]


def complains(check: str) -> bool:
    """True of a check that has a limit."""
    return check in CHECKS and CHECKS[check].limit is not None


def key_json(names: Iterable[str], cells: Iterable[object]) -> str:
    """A key as JSON under the source's names."""
    return json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False, separators=(",", ":"))


def key_cells(text: str) -> dict[str, str | None]:
    """The cells of a key that a check names as JSON, as texts by column; empty if the text is not such a key."""
    try:
        cells = json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        return {}
    if not isinstance(cells, dict):
        return {}
    return {
        name: cell if cell is None or isinstance(cell, str) else json.dumps(cell)
        for name, cell in cells.items()
    }


FOUND = "found in batch "
"""How a fault that was found before begins."""
_SINCE = re.compile(rf"{FOUND}[0-9]+ and not repaired since \(.*? accepts it\): ", re.IGNORECASE)


def as_found(detail: str) -> str:
    """What was said of a fault when it was found."""
    since = _SINCE.match(detail)
    return capitalised(detail[since.end() :]) if since else detail


def with_said(detail: str, now: str) -> str:
    """The detail of a fault with what is to be said of it now, and when it was found, if that was said."""
    since = _SINCE.match(detail)
    return f"{since[0]}{now}" if since else now


def explained(check: str, observed: float, limit: float | None) -> str:
    """A number in the words of its check: ``Rows with a NULL in a key column: 2 (at most 0)``."""
    kind = CHECKS.get(check)
    if kind is None:
        return f"{check}: {number(observed)}"
    allowed = "" if limit is None else f" (at most {shown(limit, kind.unit)})"
    return f"{capitalised(kind.question)}: {shown(observed, kind.unit)}{allowed}"


def shown(value: float, unit: str) -> str:
    """A number with its unit, for display."""
    if unit == "ratio":
        return f"{number(round(value * 100, 2))}%"
    return duration(value) if unit == "seconds" else number(value)


def number(value: float) -> str:
    """A number without trailing zeros, digits in groups of three."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.3f}".rstrip("0")


_SPANS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def duration(seconds: float) -> str:
    """A duration in the largest unit that gives at least two: ``36 hours``, ``3 days``; below zero ``36 hours ahead``."""
    whole = int(abs(seconds))
    span, name = next(each for each in _SPANS if whole >= 2 * each[0] or each[0] == 1)
    said = counted(whole // span, name)
    return f"{said} ahead" if int(seconds) < 0 else said


def with_limit(metric: Metric, thresholds: dict[str, float]) -> Metric:
    """The metric with its effective limit and severity; a metric may be less severe than its check, never more."""
    kind = CHECKS[metric.check]
    limit = thresholds.get(metric.check, metric.limit if metric.limit is not None else kind.limit)
    severity = "warn" if "warn" in (kind.severity, metric.severity) else kind.severity
    return replace(metric, limit=limit, severity=severity)
