"""Infer column types from values, for messages that name none: a proposal with its evidence.

A pure function over decoded changes. It is careful, because a wrong type rejects or damages later values: a leading
zero makes the column text, an integer gets the widest type, a decimal gets additional digits, and only an exponent or a
non-finite value makes a float. A column with two kinds of values is text. What a statement declares is not proposed: it applies
where messages name no types, and an entry of the pipeline file would replace it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ingest.change import ROW_OPS, Change, Op, TableId
from ingest.ddl import of_change
from ingest.ddl.effect_model import definition_of
from ingest.errors import counted
from ingest.values import NUMBER

HEADROOM = (6, 2)  # digits before and after the point, above what was seen
FIXED = 10  # values after which a scale that all of them share is taken for the column's own
WIDEST = 38
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"-?[0-9]{2,3}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_MOMENTS = (10**9, 4 * 10**9)  # seconds of the years 2001 to 2096


@dataclass(slots=True)
class SeenColumn:
    """What was seen of one column."""

    kinds: dict[str, int] = field(default_factory=dict)
    nulls: int = 0
    length: int = 0
    whole: int = 0  # digits before the point
    scale: int = 0
    least_scale: int | None = None
    low: int = 0
    high: int = 0
    sent: str | None = None  # the type that the messages themselves name
    declared: str | None = None  # the type that a statement among them declares

    @property
    def count(self) -> int:
        """The number of values that are not NULL."""
        return sum(self.kinds.values())


class Proposal(NamedTuple):
    """A column's type and its evidence; no type if nothing is known, or if a statement has ``declared`` it."""

    column: str
    type: str | None
    evidence: str
    values: int
    nulls: int
    declared: str | None = None


def observe(changes: Iterable[Change]) -> dict[TableId, dict[str, SeenColumn]]:
    """Collect what the row images of changes show, by table and column."""
    seen: dict[TableId, dict[str, SeenColumn]] = {}
    declared: dict[TableId, dict[str, str]] = {}
    for change in changes:
        if change.op is Op.DDL:
            _declare(declared, change)
        if change.op not in ROW_OPS:
            continue
        columns = seen.setdefault(change.table, {})
        for image in (change.before, change.after):
            for name, value in (image or {}).items():
                column = columns.setdefault(name, SeenColumn())
                _see(column, value)
                sent = change.types.get(name, "unknown")  # a bare decimal lacks precision and scale
                column.sent = column.sent if sent in ("unknown", "decimal") else sent
    for table, columns in seen.items():
        types_of = declared.get(table.folded, {})
        for name, column in columns.items():
            column.declared = types_of.get(name.casefold())
    return seen


def _declare(declared: dict[TableId, dict[str, str]], change: Change) -> None:
    """Follow a statement: the types of columns by table, all names without letter case."""
    for effect in of_change(change).effects:
        of_table = declared.setdefault(effect.table.folded, {})
        if effect.action == "create_table" and effect.note != "if-not-exists":
            of_table.clear()
        if effect.action == "rename_table" and (to := effect.other_table) is not None:
            declared[to.folded] = declared.pop(effect.table.folded)
        if effect.action in ("drop_column", "rename_column") and (
            kind := of_table.pop(effect.name.casefold(), None)
        ):
            of_table |= {effect.new_name.casefold(): kind} if effect.new_name else {}
        made = effect.columns if effect.action == "create_table" else [definition_of(effect)]
        if effect.action in ("create_table", "add_column", "modify_column"):
            of_table |= {
                column.name.casefold(): column.type
                for column in made
                if column.type and column.type != "unknown"
            }


def propose(columns: dict[str, SeenColumn]) -> list[Proposal]:
    """A type for each column whose messages name none, in the order in which they were seen."""
    proposals = []
    for name, column in columns.items():
        if column.sent is None and column.declared:
            why = "declared by a statement: it needs no entry, which would replace it"
            proposals.append(Proposal(name, None, why, column.count, column.nulls, column.declared))
        elif column.sent is None:
            logical, why = _type(column)
            nulls = f"; {counted(column.nulls, 'NULL')}" if column.nulls else ""
            proposals.append(Proposal(name, logical, why + nulls, column.count, column.nulls))
    return proposals


def _see(column: SeenColumn, value: str | None) -> None:
    if value is None:
        column.nulls += 1
        return
    kind = _kind(value)
    column.kinds[kind] = column.kinds.get(kind, 0) + 1
    column.length = max(column.length, len(value))
    if kind in ("integer", "decimal"):
        whole, _, fraction = value.lstrip("-").partition(".")
        column.whole = max(column.whole, len(whole))
        column.scale = max(column.scale, len(fraction))
        least = column.least_scale
        column.least_scale = len(fraction) if least is None else min(least, len(fraction))
        if len(whole) <= WIDEST:
            number = int(value.partition(".")[0])
            column.low, column.high = min(column.low, number), max(column.high, number)


def _kind(value: str) -> str:
    if _INTEGER.fullmatch(value) and value != "-0":
        return "integer"
    if _DECIMAL.fullmatch(value):
        return "decimal"
    if value in ("true", "false"):
        return "boolean"
    if value in _NOT_FINITE or (NUMBER.fullmatch(value) and "e" in value.lower()):
        return "float"
    if _DATE.fullmatch(value):
        return "date" if _exists(value) else "text"
    if _TIME.fullmatch(value):
        return "time"
    moment = _MOMENT.fullmatch(value)
    if moment is None or not _exists(moment[1]):
        return "text"
    return "timestamp" if moment[2] else "datetime"


def _exists(value: str) -> bool:
    try:
        dt.datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


# --- proposals ----------------------------------------------------------------------------------


def _type(column: SeenColumn) -> tuple[str | None, str]:
    kinds = set(column.kinds)
    if not kinds:
        return None, "no value was seen"
    all_ = f"{column.count:,} of {column.count:,}"
    if kinds == {"integer"}:
        return _integer(column, all_)
    if kinds <= {"integer", "decimal"}:
        return _decimal(column, all_)
    if kinds <= {"integer", "decimal", "float"}:
        return "float64", f"{all_} are numbers, {column.kinds['float']:,} with an exponent or not finite"
    if len(kinds) == 1 and kinds != {"text"}:
        kind = next(iter(kinds))
        return kind, f"{all_} are of the form of a {kind}"
    mixed = "".join(f"; {count:,} look like {kind}" for kind, count in column.kinds.items() if kind != "text")
    text = f"{column.kinds.get('text', 0):,} of {column.count:,} are texts, at most {counted(column.length, 'character')}"
    return "string", text + mixed


def _integer(column: SeenColumn, all_: str) -> tuple[str, str]:
    why = f"{all_} are integers, at most {counted(column.whole, 'digit')}{_maybe_moment(column)}"
    if column.low >= -(2**63) and column.high < 2**63 and column.whole < 20:
        return "int64", why
    if column.low >= 0 and column.high < 2**64 and column.whole <= 20:
        return "uint64", why
    return ("decimal(38,0)", why) if column.whole <= WIDEST else ("string", f"{why}, too many for a number")


def _decimal(column: SeenColumn, all_: str) -> tuple[str, str]:
    seen = f"decimal({column.whole + column.scale},{column.scale})"
    if column.whole + column.scale > WIDEST:
        return "string", f"{all_} are numbers, but {seen} is too wide for a number"
    whole = min(column.whole + HEADROOM[0], WIDEST - column.scale)
    if column.least_scale == column.scale and column.count >= FIXED:  # as databases print what they declare
        room = f"each with {counted(column.scale, 'digit')} after the point, and {whole - column.whole} of head-room before it"
        return (
            f"decimal({whole + column.scale},{column.scale})",
            f"{all_} fit {seen}, {room}{_maybe_moment(column)}",
        )
    scale = min(column.scale + HEADROOM[1], WIDEST - whole)
    room = f"{counted(whole - column.whole, 'digit')} of head-room before the point, {scale - column.scale} after"
    return f"decimal({whole + scale},{scale})", f"{all_} fit {seen}; {room}{_maybe_moment(column)}"


def _maybe_moment(column: SeenColumn) -> str:
    """A hint: numbers of this size are often timestamps, which only the operator can know."""
    seconds = column.low >= 0 and any(
        low <= column.high < high for low, high in (_MOMENTS, tuple(1000 * each for each in _MOMENTS))
    )
    return (
        "; maybe a moment since 1970: then declare timestamp" if seconds and column.whole in (10, 13) else ""
    )
