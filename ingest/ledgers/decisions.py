"""The ledger of decisions by the operator and by this software, in their order.

It is read once for each version of its table. The order is a counter in the rows, never the clock, which may step back
between two decisions.
"""

from __future__ import annotations

import datetime as dt
import getpass
import heapq
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from ingest.tables.duck import name
from ingest.tables.json_cells import object_in
from ingest.tables.schemas import DECISIONS
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

SCHEMA, CONDENSE, EPOCH, RESNAPSHOT = "schema", "condense", "epoch", "resnapshot"
LOAD = "load"  # of a table that had sent changes before: its rows are changes at their position
PAUSE, RESUME, APPROVE, DISMISS = "pause", "resume", "approve", "dismiss"
REPLAYED, RETRIED = "replay", "retry"  # who requested it; its results are in the tables
DISMISS_REJECT, ACCEPT_GAP = "dismiss-reject", "accept-gap"
DECODED, REBUILT = "decoded-again", "rebuilt"  # for changes that mirrors have folded before; for a mirror
FOLDED = "statement"  # what a statement did to a mirror
SEALED, KEY_DROPPED = "sealed", "drop-key"  # whether bronze is sealed from a batch on; a day's key
ALERT = "alert"  # what was sent about a problem, and to whom
DROP = "drop"  # a mirror that was removed
CARRIED = "carried"  # rows of a renamed table that were landed again under its new name
REGISTERED, CATALOG = (
    "registered",
    "catalog",
)  # a table in a catalog; how the last attempt to register all of them ended
ACKNOWLEDGE = "acknowledge"  # a problem of which the operator knows
ERASE, ERASED = "erase", "erased"  # rows to be removed, with their barriers; what was removed
ERASED_LATE = "erased-late"  # the batch up to which late messages of erased rows are removed
ERASE_SECRET = "erase-secret"  # noqa: S105 - the kind of the decision that holds the secret of the keys' digests
SCHEDULE = "schedule"  # how often a source's mirrors are to be compared with its database, from the run that saw it first
MISSING_INPUTS = "missing-inputs"  # of a source, as the last run found that found others
WHOLE_FILES = (
    "whole-files"  # mirrors whose data files are not those that were written, as the last look has found
)
MOVED_FOLDER = "moved-folder"  # of a source: from where to where
INCOMPARABLE = "incomparable"  # a mirror that a comparison refused
_NUMBERING = Lock()  # mirrors decide side by side
_COLUMNS = ("number", "kind", "subject", "value", "batch", "reason", "by", "decided_at")


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision: its kind, its subject, and what was decided."""

    kind: str
    subject: str  # mirror, source, table or reject
    value: dict[str, Any] = field(default_factory=dict)
    batch: int | None = None
    reason: str = ""
    by: str = ""  # the run, if it is not given
    decided_at: dt.datetime | None = field(
        default=None, compare=False
    )  # in UTC without a zone, once it is in the ledger


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """All decisions, oldest first; only the newest schema of each mirror. Equal to no other reading of the ledger."""

    all: tuple[Decision, ...] = ()
    last: int = 0  # the newest one's number
    # with their places in all: each mirror is asked about, and each has decisions of other kinds
    _by_kind: dict[str, list[tuple[int, Decision]]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for place, decision in enumerate(self.all):
            self._by_kind.setdefault(decision.kind, []).append((place, decision))

    def of(self, *kinds: str, subject: str | None = None) -> Iterator[Decision]:
        """Those of some kinds, oldest first."""
        placed = heapq.merge(*(self._by_kind.get(kind, ()) for kind in set(kinds)), key=itemgetter(0))
        return (decision for _, decision in placed if subject in (None, decision.subject))

    def newest(self, *kinds: str) -> dict[str, Decision]:
        """The last decision of these kinds on each subject."""
        return {decision.subject: decision for decision in self.of(*kinds)}


def user() -> str:
    """Who decides: INGEST_USER if another process decides for a user, else the account's name."""
    try:
        return os.environ.get("INGEST_USER") or getpass.getuser()
    except (KeyError, OSError):  # no name in the user database, as in some containers
        return "somebody"


def read(lake: Tables) -> Decisions:
    """The ledger as it is now."""
    state = lake.snapshot(DECISIONS.name)
    if not state.exists:
        return Decisions()
    return lake.made_once(DECISIONS.name, (state.table_id, state.version), lambda: _read(lake))


def append(lake: Lake, decisions: Iterable[Decision]) -> None:
    """Append decisions, in their order."""
    made = list(decisions)
    if not made:
        return
    with _NUMBERING:
        lake.append_unguarded(_numbered(lake, made, lake.now(), lake.run), DECISIONS)


def append_alone(lake: Tables, decision: Decision) -> None:
    """Append a decision by a verb that only reads otherwise.

    Raises:
        IngestError: the table can only be written with Spark.
    """
    from ingest.tables import records  # with Arrow, which who only reads does without

    with _NUMBERING:
        rows = _numbered(lake, [decision], dt.datetime.now(dt.UTC), user())
        records.append(lake, uuid.uuid4().hex, rows, DECISIONS, {})


def _numbered(lake: Tables, made: list[Decision], now: dt.datetime, by: str) -> list[tuple[Any, ...]]:
    """Rows of the ledger."""
    rows = list[tuple[Any, ...]]()
    for number, decision in enumerate(made, read(lake).last + 1):
        value = json.dumps(decision.value, ensure_ascii=False) if decision.value else None
        said_by = decision.by or by
        rows.append(
            (now, decision.kind, decision.subject, decision.batch, value, decision.reason, said_by, number)
        )
    return rows


def _read(lake: Tables) -> Decisions:
    rows = lake.ask(f"SELECT {', '.join(map(name, _COLUMNS))} FROM {{decisions}}")
    rows.sort(key=itemgetter("number", "decided_at"))
    newest_schemas = {row["subject"]: row["number"] for row in rows if row["kind"] == SCHEMA}
    every = []
    for row in rows:
        if row["kind"] == SCHEMA and row["number"] < newest_schemas[row["subject"]]:
            continue
        value, reason, by = object_in(row["value"]), row["reason"] or "", row["by"] or ""
        decided_at = row["decided_at"]
        every.append(Decision(row["kind"], row["subject"], value, row["batch"], reason, by, decided_at))
    return Decisions(tuple(every), rows[-1]["number"] if rows else 0)
