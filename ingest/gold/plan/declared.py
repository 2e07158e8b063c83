"""What the statements that a policy applies say of a table: its key and columns, and which of these rows lose."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ingest import types
from ingest.ddl import Effect
from ingest.ddl.effect_model import ColumnDefinition
from ingest.gold.plan.policy import Subject, Timeline, drops_column, recased, spelt
from ingest.ledgers.decisions import DISMISS
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.resolve import CARRIED
from ingest.ledgers.timeline import Moment, columns_made, events, gone_after
from ingest.store.names import folded


@dataclass(slots=True)
class Declared:
    """What applied statements say of a table: its key, its columns, and which columns were dropped, and when."""

    keys: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)  # column -> order key; only where drops are applied
    # those that the mirror may have, because new statements dropped them
    dropped: set[str] = field(default_factory=set)
    comments: dict[str, str] = field(default_factory=dict)
    lists_all: bool = False  # whether one of the statements lists all columns of the table
    # names that were dropped and given again since: other columns now
    renewed: set[str] = field(default_factory=set)
    # per new statement its order key, and the names that it gives to other columns than rows before it may show: by name,
    # the column whose values come under it, empty for a new one
    taken_over: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def declared_by(timeline: Timeline, since: int = 0) -> Declared:
    """Keys and columns as applied statements declare them; later ones win.

    Args:
        timeline: the table's.
        since: the last batch that the mirror has folded.
    """
    columns = _Columns(timeline.subject)
    for moment in timeline.moments:
        columns.take(moment, new=moment.statement.batch > since)
    for statement in timeline.statements:
        for effect in statement.first.effects if statement.first else ():
            columns.lose_again(effect, statement.order, new=statement.batch > since)
    return columns.declared


@dataclass(slots=True)
class _Columns:
    """What the moments of a table so far show of it."""

    subject: Subject
    declared: Declared = field(default_factory=Declared)
    lost: set[str] = field(default_factory=set)  # names of columns that rows have lost, and no column has now

    def take(self, moment: Moment, *, new: bool) -> None:
        """Add a moment; ``new`` if the mirror has not folded its statement."""
        effects, taken = moment.effects, self._show(moment)
        exchanges = len(effects) > 1
        if new and taken:
            self.declared.taken_over.append((moment.place, taken))
        for effect in recased(effects) if exchanges else effects:
            self._lose(effect, moment, new=new)
        if exchanges and new and self.subject.policy == "evolve":
            self.declared.renewed |= taken.keys()

    def _lose(self, effect: Effect, moment: Moment, *, new: bool) -> None:
        """Note which columns rows lose by an effect, and which name of a lost one now belongs to another."""
        declared, name = self.declared, effect.name
        came = {"add_column": name, "rename_column": effect.new_name}.get(effect.action)
        if came in self.lost:
            self.lost.remove(came)
            declared.renewed |= {came} if new else set()
        lost = _respelt(effect, _vacant(moment), self.subject)
        if effect.action in ("drop_column", "rename_column") and drops_column(effect, self.subject):
            lost.add(name)
        if moment.begins and self.subject.policy == "evolve":
            subject = self.subject
            lost |= self._not_made_again(
                effect, declared.columns.keys() | subject.known.keys() | subject.sent.keys()
            )
        self.lost |= lost
        declared.renewed -= lost
        declared.dropped |= lost if new else set()
        for past in lost:
            declared.columns.pop(past, None)
            declared.gone[past] = moment.place

    def lose_again(self, effect: Effect, order: str, *, new: bool) -> None:
        """Add an effect of a repeated statement: rows before it were repeated, and they lose the same columns."""
        declared = self.declared
        match effect.action:
            case "create_table":
                lost = self._not_made_again(effect, declared.gone.keys())
            case "drop_column" | "rename_column":
                lost = {self.subject.column(effect.name)} & declared.gone.keys()
            case _:
                return
        declared.gone |= {name: max(declared.gone[name], order) for name in lost}
        declared.dropped |= lost if new else set()

    def _not_made_again(self, effect: Effect, names: Collection[str]) -> set[str]:
        """Columns that a table does not have any more since it was created again."""
        if not _lists_all(effect):
            return set()
        made = {folded(column.name) for column in effect.columns}
        return {name for name in names if folded(name) not in made and name not in self.declared.keys}

    def _show(self, moment: Moment) -> dict[str, str]:
        """Add the columns that a moment makes or changes: renamed ones keep their types and comments. Returns the names that other
        columns have had before, each with the one under which its values were, empty for a new column.
        """
        declared, effect = self.declared, moment.effect
        was = {rename.new_name: rename.name for rename in moment.effects if rename.action == "rename_column"}
        declared.keys = moment.after.keys
        if effect.action == "comment_column":
            declared.comments[effect.name] = effect.comment or ""
        shown = {name: moment.after.column(name) for name in moment.made}
        if effect.action == "modify_column":
            shown[effect.name] = moment.after.column(effect.name)
        logical = {name: self._declared_type(column, was.get(name, name)) for name, column in shown.items()}
        # an effect that leaves the column's definition alone has no comment of its own
        said = {column.name: column.comment for column in effect.columns} or {effect.name: effect.comment}
        adds_again = effect.action == "add_column" and effect.name in moment.before.made
        comments = {
            name: declared.comments.get(was[name]) if name in was else said.get(name)
            for name in shown
            if not adds_again
        }
        declared.columns |= logical
        declared.comments |= {name: comment for name, comment in comments.items() if comment is not None}
        declared.gone = {name: place for name, place in declared.gone.items() if name not in shown}
        declared.dropped -= shown.keys()
        if effect.action == "create_table":
            declared.lists_all |= _lists_all(effect)
            return {}
        exchanges = len(moment.effects) > 1
        return {name: was.get(name, "") for name in moment.made if exchanges or name in moment.before.gone}

    def _declared_type(self, column: ColumnDefinition, before: str) -> str:
        """A column's type by its statement, else that of the name ``before``.

        MySQL's REAL is a DOUBLE, or a FLOAT by the server's mode and for Debezium; rows that showed one of them decide.
        """
        shown = self._type_of(before)
        is_real = column.type == "float64" and column.written.casefold().startswith("real")
        return shown if is_real and types.family(shown) == "float" else column.type or shown

    def _type_of(self, name: str) -> str:
        subject = self.subject
        return (
            self.declared.columns.get(name) or subject.known.get(name) or subject.sent.get(name) or "unknown"
        )


def _vacant(moment: Moment) -> set[str]:
    """Names that columns have had, and that may be given again in another letter case: all before a description of the table."""
    if moment.finds:
        return set()
    return {*moment.after.gone, *(moment.before.columns if moment.describes else ())}


def _lists_all(effect: Effect) -> bool:
    """True of a CREATE, unless some columns are in no statement, as of LIKE and AS SELECT."""
    return bool(effect.columns) and effect.note in (None, "if-not-exists", CARRIED)


def _respelt(effect: Effect, vacant: Collection[str], subject: Subject) -> set[str]:
    """Names of former columns that an effect gives again in another letter case: a mirror cannot have both."""
    made, seen = {*columns_made(effect)}, subject.sent.keys() | subject.known.keys()
    spellings = {folded(name) for name in made}
    lost = {name for name in vacant if folded(name) in spellings}
    # rows that spell all names otherwise, as those of an Oracle table may, go on under theirs
    if effect.action == "create_table" and made & subject.sent.keys():
        shown = {folded(name) for name in made & seen}
        lost |= {name for name in seen if folded(name) in shown}
    return lost - made if subject.respells else set()


def departed(statements: Iterable[Statement], subject: Subject) -> dict[str, str]:
    """Columns that the source has dropped or renamed, under any policy, with the statements' places."""
    gone: dict[str, str] = {}
    counting = (statement for statement in statements if statement.decided != DISMISS)
    for event in events(spelt(counting, subject), subject.table):
        if not event.finds:
            gone = gone_after(gone, event.effects, event.place)
    return gone
