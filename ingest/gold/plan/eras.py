"""The eras of a lane's history: which key identified a table's rows at which time.

An era ends where the primary key changes: rows before it are identified by the old key, rows after it by the new one.
Evidence is, in this order: the pipeline file's ``keys:`` (followed back over renamed and added columns), the
keys that messages name, and statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from ingest import types
from ingest.change import TableId
from ingest.ddl import COMPUTED, Effect
from ingest.errors import HeldError
from ingest.ledgers.books import Line
from ingest.ledgers.mirrors import Era
from ingest.ledgers.timeline import Keys, Structure, columns_made, key_after, kind
from ingest.order import order_key, order_of
from ingest.tables import duck
from ingest.tables.json_cells import list_in
from ingest.tables.tables import Tables
from ingest.values.conversions import KEEP, conversion, is_char

MANY = 50  # more changes of a key than any operator makes: the messages name two unique indexes in turn
PlacedEffects = tuple[str, Sequence[Effect]]  # its place, and those of its effects that the policy applies


@dataclass(frozen=True, slots=True)
class Run:
    """Changes that name one key (or none): the first and the last place of them."""

    keys: Keys
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the changes of a lane show of its key.

    ``runs`` name a key and do not overlap; ``unnamed`` is the range of changes that name none.
    """

    runs: tuple[Run, ...] = ()
    unnamed: Run | None = None

    @property
    def first(self) -> str | None:
        """The place of the first change."""
        lows = [run.low for run in self.runs[:1]] + ([self.unnamed.low] if self.unnamed else [])
        return min(lows, default=None)

    def names_none_after(self, place: str) -> bool:
        """True if a change after a place names no key."""
        return self.unnamed is not None and self.unnamed.high > place


def evidence_of_lines(lines: Iterable[Line]) -> Evidence:
    """Evidence from book lines: exact if they all name one key."""
    spans = [
        Run(keys, line.order_low, line.order_high)
        for line in lines
        if line.changes and line.order_low is not None and line.order_high is not None
        for keys in (map(tuple, line.keys) if line.keys else [()])
    ]
    return evidence(spans)


def evidence_of_changes(lake: Tables, source: str, table: TableId, last: int) -> Evidence:
    """What the changes of a lane show of its key, in all batches up to one."""
    of_lane = f"{duck.of_lane(source, table)} AND op <> 'truncate' AND batch <= {last}"
    changes = f"SELECT keys, batch, order_key FROM {{changes.change}} WHERE {of_lane}"
    rough = evidence(_spans(lake, changes, "batch"))
    if not overlap(rough):
        return rough
    begins = "CASE WHEN lag(keys) OVER (ORDER BY order_key) = keys THEN 0 ELSE 1 END AS begins"
    begun = f"SELECT *, {begins} FROM ({changes}) AS c WHERE keys IS NOT NULL"
    numbered = f"SELECT *, sum(begins) OVER (ORDER BY order_key) AS run FROM ({begun}) AS b"
    exact = evidence(_spans(lake, numbered, "run"))
    return replace(exact, unnamed=rough.unnamed)


def _spans(lake: Tables, changes: str, run: str) -> Iterator[Run]:
    rows = lake.ask(
        f"SELECT keys, {run}, min(order_key) AS low, max(order_key) AS high FROM ({changes}) AS m GROUP BY keys, {run}"
    )
    for row in rows:
        yield Run(tuple(list_in(row["keys"])), row["low"], row["high"])


def evidence(spans: Iterable[Run]) -> Evidence:
    """Spans of equal keys as evidence; what overlaps is ordered by where it begins."""
    named: list[Run] = []
    unnamed: Run | None = None
    for span in sorted(spans, key=lambda run: (run.low, run.high)):
        if not span.keys:
            unnamed = span if unnamed is None else _joined(unnamed, span)
        elif named and same(named[-1].keys, span.keys):
            named[-1] = _joined(named[-1], span)
        else:
            named.append(span)
    return Evidence(tuple(named), unnamed)


def overlap(shown: Evidence) -> bool:
    """True if spans of different keys overlap: then their order is not known."""
    return any(after.low <= before.high for before, after in pairwise(shown.runs))


def same(left: Keys, right: Keys) -> bool:
    """True for equal keys; the order of their columns does not matter."""
    return set(left) == set(right)


def _joined(run: Run, other: Run) -> Run:
    return Run(run.keys, min(run.low, other.low), max(run.high, other.high))


def eras(
    shown: Evidence, statements: Sequence[PlacedEffects], declared: Keys, *, keyless: bool
) -> tuple[Era, ...]:
    """The eras of a lane that has changes; without evidence, one era without a key.

    Args:
        shown: what its changes name.
        statements: what they do to its table, in order.
        declared: ``keys:`` of the pipeline file.
        keyless: its mirror exists without a key.

    Raises:
        HeldError: messages alternate between different keys.
    """
    if declared:
        result = _declared(declared, statements)
    elif shown.runs:
        result = _named(shown, statements, keyless=keyless)
    else:
        result = _stated(statements)
    result = _reformed(_distinct(_without_unused(result, shown)), statements)
    if len(result) > MANY:
        names = sorted({f"({', '.join(era.keys)})" for era in result})
        raise HeldError(
            f"its messages name the keys {' and '.join(names)} by turns: write the one that every row has as "
            "`keys: [...]` into its tables: entry."
        )
    first = shown.first
    if not result or first is None:
        return tuple(Era("", era.keys) for era in result[-1:])
    ends = [era.place for era in result[1:]]
    living = [era for era, end in zip_longest(result, ends) if end is None or end > first]
    return (Era("", living[0].keys), *living[1:])


def _without_unused(result: Sequence[Era], shown: Evidence) -> list[Era]:
    """The eras, without those after the last change that another one follows: no row has to have their keys."""
    ends = [run.high for run in (*shown.runs[-1:], shown.unnamed) if run is not None]
    unused = [era for era in result if era.place >= max(ends, default="~")][:-1]
    return [era for era in result if era not in unused]


def _distinct(result: Iterable[Era]) -> list[Era]:
    distinct: list[Era] = []
    for era in result:
        if not distinct or not same(distinct[-1].keys, era.keys):
            distinct.append(era)
    return distinct


def _reformed(result: Sequence[Era], statements: Iterable[PlacedEffects]) -> list[Era]:
    """The eras, with one more for each statement after which columns of the key have names that others had, or values of another
    form.
    """
    reformed, structure = list(result), Structure()
    begun, former = 0, dict[str, str]()
    for place, effects in statements:
        before = [era for era in reformed if era.place < place]
        keys = before[-1].keys if before else ()
        former = _former_names(effects, former if len(before) == begun else {})
        begun = len(before)
        names = tuple(former.get(key, key) for key in keys)
        takes = names != keys and all(names)
        reforms = takes or any(effect.name in keys and _reforms(effect, structure) for effect in effects)
        if reforms and not any(era.place == place for era in reformed):
            reformed.insert(len(before), Era(place, keys))
        for effect in effects:
            structure = structure.after(effect)
    return reformed


def _former_names(effects: Sequence[Effect], former: Mapping[str, str]) -> dict[str, str]:
    """The names that columns had before some statements, by those that they have after one more; empty for a column that was
    not there, and for a name that no column has. Others have the name that they had.
    """
    if any(effect.action == "create_table" for effect in effects):
        return {}
    renamed = {effect.new_name: effect.name for effect in effects if effect.action == "rename_column"}
    changed = {effect.name for effect in effects if effect.action in ("add_column", "drop_column")}
    unnamed = dict.fromkeys({*changed, *renamed.values()}, "")
    return {**former, **unnamed, **{name: former.get(was, was) for name, was in renamed.items()}}


def _reforms(effect: Effect, structure: Structure) -> bool:
    """True if a MODIFY gives existing values another form, and it is known which: later changes find their rows by that.

    Where no statement names the old type it is one like the new one.
    """
    if effect.action != "modify_column" or effect.type is None or effect.note in (COMPUTED, "generated"):
        return False
    old = structure.column(effect.name)
    if old.type is not None and (old.type, old.written.lower()) == (effect.type, effect.written.lower()):
        return False
    if types.base(effect.type) == "string" and (
        old.type is None or is_char(old.written) == is_char(effect.written)
    ):
        return False  # as long as before, for the server refuses to cut a key
    before = kind(old, effect.rules) or types.base(effect.type)
    rule = conversion(before, effect.type, effect.written, dialect=effect.rules)
    return rule.certain and rule != KEEP


# --- messages -------------------------------------------------------------------------------------


def _named(shown: Evidence, statements: Sequence[PlacedEffects], *, keyless: bool) -> list[Era]:
    result = _first_named(shown, statements, keyless=keyless)
    result += (Era(_since(before, run, statements), run.keys) for before, run in pairwise(shown.runs))
    result += _after_messages(shown, statements)
    end = max(shown.runs[-1].high, result[-1].place)
    if result[-1].keys and shown.names_none_after(end) and not last(statements, shown.runs[0].keys):
        result.append(Era(end, ()))  # a row from before the statement was delivered again after it
    return result if shown.unnamed is None else _interrupted(result, shown.unnamed, statements)


def _first_named(shown: Evidence, statements: Sequence[PlacedEffects], *, keyless: bool) -> list[Era]:
    """The era of the first key that messages name, after one without a key if the table had none before."""
    first, unnamed = shown.runs[0], shown.unnamed
    if unnamed is None or unnamed.low >= first.low:
        return [Era("", first.keys)]
    added = _added(statements, unnamed.low, first.low)
    if not (keyless or added):
        return [Era("", first.keys)]
    return [Era("", ()), Era(added or _just_before(first.low), first.keys)]


def _after_messages(shown: Evidence, statements: Sequence[PlacedEffects]) -> Iterator[Era]:
    """The eras that statements begin after the last change that names a key; one without a key begins with a row that has none."""
    newest = shown.runs[-1]
    keys = newest.keys
    for place, effects in statements:
        after = key_after(effects, keys)
        if place >= newest.high and after != keys and (after or shown.names_none_after(place)):
            keys = after
            yield Era(place, keys)


def _interrupted(result: Sequence[Era], unnamed: Run, statements: Sequence[PlacedEffects]) -> list[Era]:
    """The eras, with one more wherever a statement takes the key away, rows come that name none, and then there is a key again.

    The messages before and after may name the same key, so that only statements tell its eras apart.
    """
    interrupted = list(result)
    for number, (dropped, effects) in enumerate(statements):
        before = [era for era in interrupted if era.place < dropped]
        keys, begins = before[-1].keys, [era.place for era in interrupted[len(before) :][:1]]
        if not keys or key_after(effects, keys) or begins == [dropped]:
            continue
        later = statements[number + 1 :]
        gives = [other for other, did in later if key_after(did, ())][:1]
        end = min(gives + begins, default="")
        # where a stream has gone back, rows from before the statement come again, and then the statement
        place = max([dropped, *(other for other, did in later if other < end and not key_after(did, keys))])
        if unnamed.low < end and unnamed.high > place:
            again = [] if begins == [end] else [Era(end, keys)]
            interrupted[len(before) : len(before)] = [Era(place, ()), *again]
    return interrupted


def last(statements: Sequence[PlacedEffects], keys: Keys) -> Keys:
    """The key after all statements."""
    for _, effects in statements:
        keys = key_after(effects, keys)
    return keys


def rekeys(run: Run, statements: Iterable[PlacedEffects]) -> bool:
    """True if a statement gives or removes a primary key, leaves a table that has a run's keys with others, or begins it again
    after the run's first change.
    """
    return any(
        not same(key_after(effects, run.keys), run.keys)
        or any(effect.action.endswith("primary_key") for effect in effects)
        or (place > run.low and _begins_anew(effects))
        for place, effects in statements
    )


def _since(before: Run, run: Run, statements: Sequence[PlacedEffects]) -> str:
    """Where a run's key begins: at the statement that creates it, else just before the first row that names it."""
    keys = before.keys
    for place, effects in statements:
        if before.high < place <= run.low:  # what rows announce has the place of the first of them
            keys = key_after(effects, keys)
            if same(keys, run.keys):
                return place
    return _just_before(run.low)


def _just_before(place: str) -> str:
    """A place just before a message's first row, used by no change."""
    return order_key(order_of(place)._replace(row=-1))


def _added(statements: Sequence[PlacedEffects], low: str, high: str) -> str:
    """The place of a statement that gives a table without a primary key one, or begins a new table; empty if there is none."""
    for place, effects in statements:
        actions = {effect.action for effect in effects}
        adds = "add_primary_key" in actions and "drop_primary_key" not in actions
        if low < place < high and (adds or (_begins_anew(effects) and key_after(effects, ()))):
            return place
    return ""


def _begins_anew(effects: Iterable[Effect]) -> bool:
    """True of a statement before which there was no table of the name, or another one, whose rows are gone."""
    return any(effect.action == "create_table" and effect.note != "if-not-exists" for effect in effects)


# --- statements -----------------------------------------------------------------------------------


def _stated(statements: Sequence[PlacedEffects]) -> list[Era]:
    result: list[Era] = []
    for place, effects in statements:
        keys = result[-1].keys if result else ()
        after = key_after(effects, keys)
        if not result and any(effect.action == "create_table" for effect in effects):
            result.append(Era("", after))
        elif after != keys:
            result += [] if result else [Era("", ())]
            result.append(Era(place, after))
    return result


# --- the pipeline file ----------------------------------------------------------------------------


def _declared(declared: Keys, statements: Sequence[PlacedEffects]) -> list[Era]:
    """The declared key under the names that its columns had, without those that were not there yet.

    A name that was given again means the new column; a column that is added again has been there before.
    """
    last_names, added = {name: name for name in declared}, set[str]()
    # each place with the former names by the new ones, and the new columns
    done: list[tuple[str, dict[str, str], set[str]]] = []
    for place, effects in statements:
        renamed = {effect.name: effect.new_name for effect in effects if effect.action == "rename_column"}
        new = {effect.name for effect in effects if effect.action == "add_column"} - added
        made = {name for effect in effects for name in columns_made(effect)}
        last_names = {
            name: name if name in made else renamed.get(last_name, last_name)
            for name, last_name in last_names.items()
        }
        added |= new
        done.append((place, {to: was for was, to in renamed.items()}, new))
    keys = tuple(dict.fromkeys(last_names.values()))
    result: list[Era] = []
    for place, former, new in reversed(done):
        before = tuple(former.get(key, key) for key in keys if key not in new) or keys
        if before != keys:
            result.append(Era(place, keys))
            keys = before
    return [Era("", keys), *reversed(result)]
