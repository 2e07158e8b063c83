"""The catalogue of problems: each kind with its title, severity, the state that it gives a mirror, and the verb that leads out.

Kinds are the names of checks, and those here, which the state of a lake shows without any check. docs/problems.md lists all
of them: ``python -m docs.problems`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ingest.ledgers.mirrors import EXCLUDED
from ingest.quality.catalogue import (
    CHECKS,
    FOLD_FAILED,
    HELD,
    LAST_RUN,
    RECONCILED,
    ROWS_LEFT_BEHIND,
    TYPES_MISREAD,
    UNKNOWN_VALUES,
)

ERROR, WARN = "error", "warn"
# the worst first; a mirror is up to date only if it is ok
DAMAGED, FAILED, SUSPECT, INCOMPLETE, PAUSED, OK = (
    "damaged", "failed", "suspect", "incomplete", "paused", "ok",
)  # fmt: skip
STATES = (DAMAGED, FAILED, "held", SUSPECT, INCOMPLETE, EXCLUDED, PAUSED, OK)
AGE = "freshness"
_INCOMPLETE = {
    "incomplete_rows", "partial_rows", "vanished_columns", "unknown_values", "cell_rejects", ROWS_LEFT_BEHIND,
}  # fmt: skip
_SUSPECT = {
    check.name for check in CHECKS.values() if check.lasting and check.subject == "mirror"
} - _INCOMPLETE
_SUSPECT |= {"row_count", RECONCILED, "schema", "mixed_topics", "images_before", "left_out", TYPES_MISREAD}
_OF_A_ROW = ("explain", "report")  # the life of a row that the check names, else all about the check
_VERBS = {
    **dict.fromkeys(("positions_started_again", "re_reads_ignored"), ("epoch", *_OF_A_ROW)),
    **dict.fromkeys(("reject_rate", "cell_rejects", "refused_changes"), ("rejects",)),
    **dict.fromkeys((UNKNOWN_VALUES, ROWS_LEFT_BEHIND), ("ddl", *_OF_A_ROW)),
    "ddl_pending": ("ddl",), "up_to_date": ("run",), "wrong_cells": ("rebuild",), AGE: ("plan",),
}  # fmt: skip


class Kind(NamedTuple):
    """One kind of problem.

    Args:
        name: what programs read.
        title: what is wrong, in a few words.
        severity: error or warn.
        verbs: those that its command may have; none if only the source can repair it.
        about: what it is about, if that is no mirror.
    """

    name: str
    title: str
    severity: str
    verbs: tuple[str, ...]
    about: str = ""


OF_THE_LAKE = {
    kind.name: kind
    for kind in (
        Kind(DAMAGED, CHECKS["readable"].fault, ERROR, ("rebuild",)),
        Kind(FAILED, FOLD_FAILED, ERROR, ("retry", "rebuild", "run")),
        Kind("held", HELD, ERROR, ("retry", "rebuild", "epoch", "ddl", "run")),
        Kind(EXCLUDED, "the pipeline file gives it no more rows, and it is there", WARN, ("drop",)),
        Kind(PAUSED, "The table is paused", WARN, ("resume",)),
        Kind(
            "pipeline_file",
            "its lake cannot be looked at",
            ERROR,
            ("validate", "run", "status", "alerts"),
            "pipeline file",
        ),
        Kind("lake", "it is not whole", ERROR, ("rebuild",), "lake"),
        Kind("rows_removed", "others have taken rows out of its own tables", ERROR, ("backfill",), "lake"),
        Kind("interrupted", "it did not come to its end", ERROR, ("run",), "run"),
        Kind("message_rejects", CHECKS["reject_rate"].fault, WARN, ("rejects",), "rejects"),
        Kind("cell_rejects", CHECKS["cell_rejects"].fault, WARN, ("rejects",), "rejects"),
        Kind("change_rejects", CHECKS["refused_changes"].fault, WARN, ("rejects",), "rejects"),
        Kind("ddl_pending", CHECKS["ddl_pending"].fault, WARN, ("ddl",), "schema changes"),
        Kind("outdated", "folded from changes that were decoded again", WARN, ("rebuild",)),
        Kind(
            "declared_types",
            "it has other types than its tables: entry declares",
            WARN,
            ("rebuild", "backfill"),
        ),
        Kind("not_plain", "it has deletion vectors, and is to have none", WARN, ("rebuild",)),
        Kind("left_out", "It lacks rows that came while its table was excluded", ERROR, ("backfill",)),
        Kind("idle_rules", "an entry fits no table, and nearly one", WARN, ("plan",), "pipeline file"),
        Kind("missing_inputs", "its topics, or its folder, are not there", WARN, ("plan",), "source"),
        Kind("decoded_before", "decoded otherwise than today", WARN, ("backfill",), "source"),
        Kind("not_compared", "not compared with its database in time", WARN, ("reconcile",), "source"),
        Kind("masks", "silver has others", ERROR, ("rebuild",), "masks"),
        Kind("catalog", "it is not in step", WARN, ("catalog",), "catalog"),
        Kind("key_lost", "the key of sealed messages is lost", ERROR, ("maintain",), "bronze"),
        Kind("erasure", "an erasure is not finished", ERROR, ("erase",)),
        Kind("misdated", "times of another unit", WARN, ()),
        Kind("ahead", "times in the future", WARN, ("sql",)),
        Kind("last_run", "it ended with a failure or an alarm", ERROR, ("run",), LAST_RUN),
    )
}
"""The kinds that need no check, by their names."""
OF_CHECKS = {
    check.name: Kind(check.name, check.fault, check.severity, _VERBS.get(check.name, _OF_A_ROW))
    for check in CHECKS.values()
    if check.limit is not None or check.name == AGE
}
"""The kinds that a built-in check finds, by the check's name."""
OF_THRESHOLDS = {
    check.name: Kind(check.name, check.fault, check.severity, _OF_A_ROW)
    for check in CHECKS.values()
    if check.name not in OF_CHECKS
}
"""What a check only counts: a kind of problem once the pipeline file gives it a limit."""


def state_of(kind: str) -> str:
    """The state that a problem of a kind gives its mirror; ok if the mirror is right in spite of it."""
    if kind in STATES:
        return kind
    return SUSPECT if kind in _SUSPECT else INCOMPLETE if kind in _INCOMPLETE else OK


def verb_of(check: str) -> str:
    """The verb that leads out of a complaint of a check; empty if that depends on the row."""
    verbs = _VERBS.get(check, ())
    return verbs[0] if len(verbs) == 1 else ""


def worst(states: Iterable[str]) -> str:
    """The worst of some states; one that is not known is bad."""
    return min(states, key=lambda state: STATES.index(state) if state in STATES else 0, default=OK)
