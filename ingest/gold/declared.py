"""What the statements that a policy applies say of a table: its key and columns, and which of these rows lose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ingest.ddl import EXCHANGED, Effect
from ingest.gold.policy import DISMISSED, Subject, applied, columns_made, drops_column, judge, recased, rings
from ingest.lake.logged_statements import Statement, touched
from ingest.lake.names import folded
from ingest.lake.resolve import CARRIED, Presence


@dataclass(slots=True)
class Declared:
    """What applied statements say of a table: its key, its columns, and which columns were dropped, and when."""

    keys: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)  # column -> order key; only where drops are applied
    # those that the mirror may have, because new statements dropped them
    dropped: set[str] = field(default_factory=set)
    comments: dict[str, str] = field(default_factory=dict)
    # names that were dropped and given again since: other columns now
    renewed: set[str] = field(default_factory=set)
    # per new statement its order key, and the names that it gives to other columns than rows before it may show: by name,
    # the column whose values come under it, empty for a new one
    taken_over: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def declared_by(statements: Iterable[Statement], subject: Subject, since: int = 0) -> Declared:
    """Keys and columns as applied statements declare them; later ones win.

    Args:
        statements: of one table, in order.
        subject: the table.
        since: the last batch that the mirror has folded.
    """
    statements, columns = list(statements), _Columns(subject)
    for statement, effects in rings(applied(statements, subject)):
        columns.take(effects, statement, new=statement.batch > since)
    for statement in statements:
        for effect in statement.first.effects if statement.first else ():
            columns.lose_again(effect, statement.order, new=statement.batch > since)
    return columns.declared


@dataclass(slots=True)
class _Columns:
    """What the statements so far show of a table, and which of its columns' names are free."""

    subject: Subject
    declared: Declared = field(default_factory=Declared)
    presence: Presence = field(default_factory=Presence)
    vacant: set[str] = field(default_factory=set)  # names that columns have had, and no column has now
    lost: set[str] = field(default_factory=set)  # those of columns that rows have lost, too

    def take(self, effects: Sequence[Effect], statement: Statement, *, new: bool) -> None:
        """Add one effect, or renames that exchange names; ``new`` if the mirror has not folded their statement."""
        exchanged, begins = len(effects) > 1, self.presence.begins(effects[0], statement, self.subject.table)
        is_rename = effects[0].action == "rename_column"
        taken = self._rename(effects) if is_rename else self._declare(effects[0])
        if new and taken:
            self.declared.taken_over.append((statement.order, taken))
        for effect in recased(effects) if exchanged else effects:
            self._lose(effect, statement.order, new=new, begins=begins)
        if exchanged and new and self.subject.policy == "evolve":
            self.declared.renewed |= taken.keys()

    def _lose(self, effect: Effect, order: str, *, new: bool, begins: bool) -> None:
        """Note which columns rows lose by an effect, and which name of a lost one now belongs to another."""
        declared, name = self.declared, effect.name
        came = {"add_column": name, "rename_column": effect.new_name}.get(effect.action)
        if came in self.lost:
            self.lost.remove(came)
            declared.renewed |= {came} if new else set()
        lost = _respelt(effect, self.vacant, self.subject)
        if effect.action in ("drop_column", "rename_column") and drops_column(effect, self.subject):
            lost.add(name)
        if begins and self.subject.policy == "evolve":
            subject = self.subject
            lost |= self._not_made_again(
                effect, declared.columns.keys() | subject.known.keys() | subject.sent.keys()
            )
        self.lost |= lost
        declared.renewed -= lost
        declared.dropped |= lost if new else set()
        for past in lost:
            declared.columns.pop(past, None)
            declared.gone[past] = order

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
        if not effect.columns or effect.note not in (None, "if-not-exists", CARRIED):
            return set()  # of LIKE and AS SELECT some columns are in no statement
        made = {folded(column.name) for column in effect.columns}
        return {name for name in names if folded(name) not in made and name not in self.declared.keys}

    def _declare(self, effect: Effect) -> dict[str, str]:
        """Add one effect but a rename; returns the free name that it gives to a new column, with none."""
        declared, name = self.declared, effect.name
        taken: dict[str, str] = {}
        match effect.action:
            case "create_table":
                self.vacant = (self.vacant | declared.columns.keys()) - {
                    column.name for column in effect.columns
                }
                declared.keys = effect.keys or declared.keys
                for column in effect.columns:
                    self._show(column.name, column.type or "unknown", column.comment)
            case "add_column" | "modify_column":
                if effect.action == "add_column" and name in self.vacant:
                    taken = {name: ""}
                    self.vacant.remove(name)
                self._show(name, effect.type or self._type_of(name), effect.comment)
            case "add_primary_key":
                declared.keys = effect.keys or declared.keys
            case "comment_column" if effect.comment is not None:
                declared.comments[name] = effect.comment
            case "drop_column":
                self.vacant.add(name)
        return taken

    def _rename(self, renames: Sequence[Effect]) -> dict[str, str]:
        """Add a rename, or several that exchange names: columns keep their types, comments and places in the key; returns the
        names that other columns have had, each with the one under which the values were.
        """
        declared, names = self.declared, {rename.name: rename.new_name for rename in renames}
        taken = {new: old for old, new in names.items() if len(renames) > 1 or new in self.vacant}
        self.vacant = (self.vacant | names.keys()) - {*names.values()}
        shown = [(new, self._type_of(old), declared.comments.get(old)) for old, new in names.items()]
        for column in shown:
            self._show(*column)
        declared.keys = tuple(names.get(key, key) for key in declared.keys)
        return taken

    def _show(self, name: str, logical: str, comment: str | None) -> None:
        self.declared.columns[name] = logical
        self.declared.gone.pop(name, None)
        self.declared.dropped.discard(name)
        if comment is not None:
            self.declared.comments[name] = comment

    def _type_of(self, name: str) -> str:
        subject = self.subject
        return (
            self.declared.columns.get(name) or subject.known.get(name) or subject.sent.get(name) or "unknown"
        )


def _respelt(effect: Effect, vacant: Collection[str], subject: Subject) -> set[str]:
    """Names of former columns that an effect gives again in another letter case: a mirror cannot have both."""
    made, seen = columns_made(effect), subject.sent.keys() | subject.known.keys()
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
    for statement in statements:
        if judge(statement, subject).state == DISMISSED:
            continue
        for effect in statement.effects:
            if subject.table not in touched(effect) or effect.note == EXCHANGED:
                continue
            if effect.action in ("drop_column", "rename_column"):
                gone[subject.column(effect.name)] = statement.order
            for name in columns_made(effect):
                gone.pop(name, None)
    return gone
