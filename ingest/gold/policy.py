"""Schema policy: what a logged statement means for one mirror, by its table's ``on_schema_change``.

Rules that hold whatever the policy says:

- A TRUNCATE of a partition holds the mirror: no message tells which rows were in it.
- A table renamed into a mirror's name holds that mirror: what the table held under its old name is in
  another mirror.  The swap of an online schema tool is no such rename, for its helpers are excluded.
- DROP TABLE removes nothing; a CREATE behind it begins a new incarnation, which does.
- A statement that a person has dismissed does nothing; an approved one does what the policy
  ``lenient`` would, or ``evolve`` where that is the table's policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest import types
from ingest.change import TableId
from ingest.ddl import Effect
from ingest.fold import SchemaStep
from ingest.lake.decisions import APPROVE, DISMISS
from ingest.values.conversions import KEEP, named

HELD, NOTICED, APPLIED, LOGGED, DISMISSED = "held", "noticed", "applied", "logged", "dismissed"


@dataclass(frozen=True, slots=True)
class Statement:
    """One logged statement at its place; ``decided`` is what a person said of it, if anything."""

    id: str
    source: str
    table: TableId
    batch: int
    order: str
    text: str
    kind: str
    effects: tuple[Effect, ...] = ()
    decided: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The table whose mirror is asked about: its policy, its columns' types, its excluded neighbours.

    ``frozen`` is the last batch before which nothing is frozen yet: the mirror's first one, or what it has
    folded since.
    """

    table: TableId
    policy: str
    known: Mapping[str, str] = field(default_factory=dict)
    excluded: Callable[[TableId], bool] = lambda _table: False
    frozen: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a statement comes to: a state, and what it does (or would do, once approved) in words."""

    state: str
    does: tuple[str, ...] = ()


def concerns(statement: Statement, table: TableId) -> bool:
    """True if the statement is about the table; one that could not be read is about its message's table."""
    if not statement.effects:
        return statement.table == table
    return any(table in (effect.table, effect.to) for effect in statement.effects)


def judge(statement: Statement, subject: Subject) -> Verdict:
    """What a statement comes to under a table's policy."""
    effects = [one for one in statement.effects if subject.table in (one.table, one.to)]
    does = tuple(_phrase(effect, subject) for effect in effects)
    if statement.kind == "unknown":
        does = ("nothing: the statement could not be read",)
    if statement.decided == DISMISS:
        return Verdict(DISMISSED, does)
    return Verdict(_state(statement, effects, subject), does)


def _state(statement: Statement, effects: list[Effect], subject: Subject) -> str:
    if any(effect.action == "truncate_partition" for effect in effects):
        return HELD
    if statement.decided == APPROVE:
        return APPLIED
    if any(_renamed_into(effect, subject) for effect in effects):
        return HELD
    if subject.policy == "ignore":
        return LOGGED
    freezes = subject.policy == "freeze" and statement.batch > subject.frozen
    if statement.kind == "unknown":
        return HELD if freezes else NOTICED
    if freezes and any(_changes_schema(effect, subject) for effect in effects):
        return HELD
    return APPLIED


def _renamed_into(effect: Effect, subject: Subject) -> bool:
    return (
        effect.action == "rename_table"
        and effect.to == subject.table
        and effect.table != subject.table
        and not subject.excluded(effect.table)
    )


def _changes_schema(effect: Effect, subject: Subject) -> bool:
    """True if the effect would change a frozen mirror's columns, or take its rows away."""
    match effect.action:
        case "add_column":
            return effect.column not in subject.known
        case "modify_column":
            return effect.type is not None and effect.type != subject.known.get(effect.column or "")
        case "create_table":
            return effect.note != "if-not-exists" and any(
                one.name not in subject.known for one in effect.columns
            )
    return effect.action in (
        "drop_table", "drop_column", "rename_column", "add_primary_key", "drop_primary_key"
    )  # fmt: skip


# --- in words -----------------------------------------------------------------------------------


def _phrase(effect: Effect, subject: Subject) -> str:
    """What an effect does to the mirror, for people; `steps` and `shown` do just that."""
    column, drops = effect.column, subject.policy == "evolve"
    match effect.action:
        case "add_column":
            filled = f"; standing rows get {effect.default!r}" if effect.default is not None else ""
            return f"adds column {column} ({types.delta(effect.type or 'unknown')}){filled}"
        case "drop_column":
            return (
                f"drops column {column}"
                if drops
                else f"keeps column {column}; rows sent from there on have NULL"
            )
        case "rename_column":
            kept = "" if drops else f", and keeps {column}"
            return f"adds column {effect.to} with the values of {column}{kept}"
        case "modify_column":
            return _retyped(effect, subject)
    return _WORDS[effect.action].format(table=effect.table, to=effect.to)


def _retyped(effect: Effect, subject: Subject) -> str:
    column, old = effect.column, subject.known.get(effect.column or "")
    if effect.type is None:
        return f"leaves column {column} as it is"
    new = types.delta(effect.type)
    if old is None:
        return f"declares column {column} as {new}"
    before, after = types.delta(old), types.delta(types.grown(old, effect.type))
    if before == new:
        return f"leaves column {column} as it is"
    if before == after:
        return f"keeps column {column} as {before}, which holds the new values too"
    if after == new and types.widens(before, after):
        return f"widens column {column} to {after}"
    return f"changes column {column} to {after}, which holds old and new values, once rows of type {new} come"


_WORDS = {
    "create_table": "gives the keys and columns of {table}; behind a DROP, the rows from before it go",
    "drop_table": "keeps the rows of {table} until it is created again",
    "rename_table": "goes on with the rows sent under the name {to}; those sent under {table} stay there",
    "truncate": "removes the rows of {table}",
    "truncate_partition": "nothing: no message tells which rows the partition of {table} held",
    "comment_column": "nothing to the rows: a comment",
    "add_primary_key": "gives the key of {table}",
    "drop_primary_key": "keeps the key of {table} until a row or a statement names another",
}


# --- what statements show and do ------------------------------------------------------------------


@dataclass(slots=True)
class Shown:
    """What applied statements say of a table: its key, its columns, and which are gone since when."""

    keys: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)  # column -> order key; only where drops are applied
    comments: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)  # names that left and came again since: other columns now


def applied(statements: Iterable[Statement], subject: Subject) -> Iterator[tuple[Statement, Effect]]:
    """The effects on a table that its policy applies, in order."""
    for statement in statements:
        if judge(statement, subject).state == APPLIED:
            for effect in statement.effects:
                if effect.table == subject.table:
                    yield statement, effect


def shown(statements: Iterable[Statement], subject: Subject, since: int = 0) -> Shown:
    """Keys and columns as applied statements declare them; later ones win.

    Args:
        statements: of one table, in order.
        subject: the table.
        since: the last batch that its mirror has folded.
    """
    found = Shown()
    drops, left = subject.policy == "evolve", set[str]()
    for statement, effect in applied(statements, subject):
        name = effect.column or ""
        match effect.action:
            case "create_table":
                found.keys = effect.keys or found.keys
                for one in effect.columns:
                    _declare(found, one.name, one.type or "unknown")
                    _note(found, one.name, one.comment)
            case "add_column" | "modify_column":
                _declare(found, name, effect.type or _type_of(found, name, subject))
                _note(found, name, effect.comment)
            case "add_primary_key":
                found.keys = effect.keys or found.keys
            case "comment_column":
                _note(found, name, effect.comment)
            case "rename_column":
                _declare(found, str(effect.to), _type_of(found, name, subject))
                _note(found, str(effect.to), found.comments.get(name))
                found.keys = tuple(str(effect.to) if key == name else key for key in found.keys)
        _come_again(found, left, effect, new=statement.batch > since)
        if drops and effect.action in ("drop_column", "rename_column"):
            left.add(name)
            found.again.discard(name)
            found.columns.pop(name, None)
            found.gone[name] = statement.order
    return found


def _declare(found: Shown, name: str, logical: str) -> None:
    found.columns[name] = logical
    found.gone.pop(name, None)


def _come_again(found: Shown, left: set[str], effect: Effect, *, new: bool) -> None:
    """A name that had left is another column's from here on; only a new statement makes that news."""
    came = {"add_column": effect.column, "rename_column": effect.to}.get(effect.action)
    if came is not None and came in left:
        left.remove(came)
        found.again |= {came} if new else set()


def _note(found: Shown, name: str, comment: str | None) -> None:
    if comment is not None:
        found.comments[name] = comment


def _type_of(found: Shown, name: str, subject: Subject) -> str:
    return found.columns.get(name) or subject.known.get(name) or "unknown"


def steps(statements: Iterable[Statement], subject: Subject) -> list[tuple[SchemaStep, int]]:
    """The steps that change rows without row messages, each with its batch."""
    found: list[tuple[SchemaStep, int]] = []
    walk = _Walk(drops=subject.policy == "evolve")
    for statement, effect in applied(statements, subject):
        found.extend((step, statement.batch) for step in walk.take(effect, statement.order))
    return found


@dataclass(slots=True)
class _Walk:
    """The columns and the table that are gone at the source but still stand in the mirror."""

    drops: bool
    stale: set[str] = field(default_factory=set)
    types: dict[str, str] = field(default_factory=dict)  # as statements have declared columns so far
    dropped: bool = False

    def take(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """One effect's steps.  A name that comes again starts empty: its old values are another column's."""
        name, to = effect.column or "", str(effect.to)
        match effect.action:
            case "modify_column" if effect.type is not None:
                yield from self._retype(effect, order)
            case "add_column":
                yield from self._revive(name, order)
                if effect.default is not None:
                    yield SchemaStep(order, "add_column", name, default=effect.default)
            case "rename_column":
                yield from self._revive(to, order)
                yield SchemaStep(order, "rename_column", name, to)
                yield from self._leave(name, order)
            case "drop_column":
                yield from self._leave(name, order)
            case "drop_table":
                self.dropped = True
            case "create_table" if self.dropped:
                self.dropped = False
                self.stale.clear()
                yield SchemaStep(order, "new_incarnation")
        self._declare(effect)

    def _declare(self, effect: Effect) -> None:
        if effect.action == "create_table":
            self.types.update({one.name: named(one.type or "", one.declared or "") for one in effect.columns})
        elif effect.action == "rename_column":
            self.types[str(effect.to)] = self.types.pop(effect.column or "", "")
        elif effect.column and effect.type:
            self.types[effect.column] = named(effect.type, effect.declared or "")

    def _retype(self, effect: Effect, order: Any) -> Iterator[SchemaStep]:
        """What the source does to its rows; where no statement has said the old type, their messages may."""
        name = effect.column or ""
        step = SchemaStep(
            order,
            "retype_column",
            name,
            old=self.types.get(name, ""),
            type=effect.type or "",
            declared=effect.declared or "",
            mysql=effect.table.schema is None,
        )
        if not step.old or step.conversion() != KEEP:
            yield step

    def _revive(self, name: str, order: Any) -> Iterator[SchemaStep]:
        if name in self.stale:
            self.stale.discard(name)
            yield SchemaStep(order, "drop_column", name)

    def _leave(self, name: str, order: Any) -> Iterator[SchemaStep]:
        self.stale.add(name)
        if self.drops:
            yield SchemaStep(order, "drop_column", name)
