"""Carry the rows of a renamed table over to the mirror of its new name.

A RENAME moves a table with its rows, and no message has them under the new name. If silver holds all rows of the table,
they are folded up to the statement by `ingest.fold`, and landed again as messages of the new name that stand right after
the statement (`ingest.formats.ingest_snapshot`). So they are changes like any others, for the fold, the checks and a rebuild.
Rows that come late under the old name, from before the statement, have the table landed once more.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, takewhile
from typing import Any

import orjson

from ingest import types
from ingest.change import Op, TableId
from ingest.config import Pipeline
from ingest.config.masks import masked_with
from ingest.errors import command, counted
from ingest.fold import Key, Placed, Row, SchemaStep, Table, copies, steps
from ingest.formats import ingest_snapshot
from ingest.gold.plan import eras, policy
from ingest.gold.plan import ledger as ledgers
from ingest.gold.plan.ledger import Ledger
from ingest.gold.plan.policy import APPLIED, Subject, Timeline
from ingest.gold.plan.results import Folded
from ingest.gold.plan.steps import steps as schema_steps
from ingest.ledgers import condensed, decisions, lanes, mirrors
from ingest.ledgers.books import EXCLUDED_SQL, Line, merged_columns
from ingest.ledgers.decisions import ACCEPT_GAP, CARRIED, DISMISS, Decision
from ingest.ledgers.former_names import FormerNames, Move, Tenure, moves
from ingest.ledgers.logged_statements import COUNTING, Statement
from ingest.ledgers.rejects import open_sql
from ingest.ledgers.resolve import renamed_into
from ingest.ledgers.stamps import change_of
from ingest.ledgers.timeline import LEAVES_NAME
from ingest.order import (
    RANK,
    Order,
    arrival_key,
    arrival_sql,
    carried_to,
    is_weak,
    loaded_sql,
    order_key,
    order_of,
)
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.json_cells import list_in, object_in
from ingest.tables.snapshots import CARRIED_FOLDER, CARRIED_SQL, read_sql
from ingest.tables.tables import Row as SilverRow
from ingest.tables.tables import Tables

AT_ONCE = 500_000  # changes that are folded together; of more, each key's by themselves
# The most changes of a table: what they leave is held in the memory of the run's process, about a kilobyte each.
TOGETHER = 1_000_000  # if all are held at once
APART = 2_000_000  # if each key's are folded by themselves
_COLUMNS = 'op, partial, types, before, after, "transaction", event_time, order_key, keys'


@dataclass(frozen=True, slots=True)
class Carried:
    """The rows of a renamed table, to be landed under its new name."""

    move: Move
    rows: tuple[Row, ...]
    keys: tuple[str, ...]
    types: Mapping[str, str]
    until: int  # the last batch of whose changes they are
    masked: str = ""  # by which masks, if they are

    @property
    def source(self) -> str:
        """The source that has renamed the table."""
        return self.move.statement.source

    def topic(self, batch: int) -> str:
        """Where the messages lie, as their rows say it."""
        return f"{CARRIED_FOLDER}{self.move.table}/{batch}{ingest_snapshot.SUFFIX}"

    def messages(self, batch: int) -> Iterator[bytes]:
        """The messages that are landed in a batch: a mark after which older rows are gone, and the rows."""
        yield orjson.dumps(self._head("end", batch, 0))
        names, first = list(self.types), 0
        rows = (orjson.dumps([row.values.get(name) for name in names]) for row in self.rows)
        for number, held in enumerate(ingest_snapshot.pages(rows), 1):
            yield self._message(batch, number, held, first)
            first += len(held)

    def _message(self, batch: int, number: int, rows: Sequence[bytes], first: int) -> bytes:
        head = {**self._head("read", batch, number), "types": self.types, "first": str(first)}
        return orjson.dumps(head)[:-1] + b',"rows":[' + b",".join(rows) + b"]}"

    def _head(self, op: str, batch: int, number: int) -> dict[str, Any]:
        statement = self.move.statement
        moment = statement.event_time
        return {
            ingest_snapshot.MARK: 1,
            "op": op,
            "table": list(self.move.table),
            "keys": list(self.keys),
            "place": ingest_snapshot.place_of(
                carried_to(statement.order, batch, (batch, RANK, batch, number))
            ),
            "name": f"carried over from {self.move.rows.tenures[-1].table}",
            "carried": self.masked,
            **({"time": moment.isoformat() + "Z"} if isinstance(moment, dt.datetime) else {}),
        }

    def lines(self, batch: int) -> list[Line]:
        """The books of their messages, if a batch lands them."""
        place = order_key(carried_to(self.move.statement.order, batch, (batch, RANK, batch, 1)))
        count, keys = len(self.rows), [list(self.keys)] if self.keys else []
        line = Line(
            batch, self.source, self.topic(batch), 0, *self.move.table, changes=count, reads=count, order_low=place,
            order_high=place, keys=keys, columns=dict(self.types),
        )  # fmt: skip
        return [line] if count else []

    def decision(self, batch: int) -> Decision:
        """That the rows have landed in a batch."""
        statement = self.move.statement
        value = {
            "table": list(self.move.table),
            "source": self.source,
            "landed": batch,
            "until": self.until,
            "tenures": [[list(table), low, high] for table, low, high in self.move.rows.tenures],
        }
        reason = f"{statement.said[:200]}: {counted(len(self.rows), 'row')} carried over"
        return Decision(CARRIED, statement.id, value, statement.batch, reason)


class _Open(str):
    """What takes the place of a cell that a statement has changed by rules which only the source can apply: equal to no value."""

    __slots__ = ("place",)
    place: Order  # of the statement


class _Decided(SchemaStep):
    """A step that leaves marked cells marked."""

    __slots__ = ()

    def converted(self, text: str | None, sent: str = "") -> str | None:
        return text if isinstance(text, _Open) else super().converted(text, sent)


class _Watched(_Decided):
    """A step that marks the cells whose new values no message contains."""

    __slots__ = ()

    def converted(self, text: str | None, sent: str = "") -> str | None:
        if isinstance(text, _Open) or not self.leaves_open(text, self.conversion(sent)):
            return super().converted(text, sent)
        marked = _Open("\0open")
        marked.place = self.order
        return marked


class LackingError(Exception):
    """Why rows are not carried over, as part of a sentence."""


def due(lake: Tables, held: Iterable[Folded]) -> Iterator[Carried]:
    """The tables whose rows can be carried over to held mirrors; the message of each that lacks some says why.

    Args:
        lake: the lake, decoded.
        held: the results of mirrors that are held.
    """
    waiting = {result.path: result for result in held}
    if not waiting:
        return
    ledger = _ledger(lake)
    for move, paths in of_mirrors(lake, ledger, waiting):
        try:
            yield carried(lake, ledger, move)
        except LackingError as error:
            for path in paths:
                waiting[path].lacking = str(error)
                waiting[path].message += refused(move, error)


def of_mirrors(lake: Tables, ledger: Ledger, paths: Collection[str]) -> Iterator[tuple[Move, list[str]]]:
    """The moves of rows to some mirrors, each with the paths of these."""
    if not any(path in paths for table in _renamed(ledger) for path in _mirrors(lake, table)):
        return
    for move in moves(ledger.statements, lanes.came_between(lake)):
        if concerned := [path for path in _mirrors(lake, move.table) if path in paths]:
            yield move, concerned


def refused(move: Move, error: LackingError) -> str:
    """Why rows are not carried over: the sentence that follows what holds the mirror."""
    return f" The rows of {move.rows.tenures[-1].table} cannot be carried over: {error}."


def _ledger(lake: Tables) -> Ledger:
    return ledgers.read(lake, lanes.with_rows(lake))


def _renamed(ledger: Ledger) -> set[TableId]:
    """The names that statements without a decision give to tables."""
    return {
        to
        for statement in ledger.statements
        if not statement.decided
        for effect in statement.effects
        if (to := effect.other_table) is not None and renamed_into(effect, to)
    }


def _mirrors(lake: Tables, table: TableId) -> list[str]:
    return [mirror_path(name) for name in mirrors.names(lake.pipeline, table)]


def overtaken(lake: Tables) -> Iterator[Carried | Decision]:
    """What was carried over before rows came late that belong to it, again; or that it cannot be, so that the mirror is held."""
    late = _late(lake, _newest_moves(lake))
    if not late:
        return
    ledger = _ledger(lake)
    by_name = {statement.id: statement for statement in ledger.statements}
    for decision in late:
        if decision.subject not in by_name:
            continue  # silver was decoded again, and has no such statement any more
        names = FormerNames(tuple(_tenures(decision)))
        try:
            move = Move(by_name[decision.subject], TableId(*decision.value["table"]), names)
            yield carried(lake, ledger, move, decision.value["until"])
        except LackingError as error:
            yield replace(decision, value={**decision.value, "landed": 0}, reason=str(error))


def _newest_moves(lake: Tables) -> list[Decision]:
    """What was carried over to each name last, as the statements stand; each move's for a table whose older states are kept."""
    newest: dict[tuple[object, ...], Decision] = {}
    for decision in decisions.read(lake).of(CARRIED):
        table = TableId(*decision.value["table"])
        name = decision.value["source"], table, decision.subject if lake.pipeline.rule(table).history else ""
        before = newest.get(name)
        if before is None or _tenures(decision)[-1].high >= _tenures(before)[-1].high:
            newest[name] = decision
    return [decision for decision in newest.values() if decision.value["landed"]]


def _tenures(decision: Decision) -> list[Tenure]:
    return [Tenure(TableId(*table), low, high) for table, low, high in decision.value["tenures"]]


def _late(lake: Tables, made: Sequence[Decision]) -> list[Decision]:
    """Those to whose rows others, or statements, have come since that belong to them.

    What comes now without a place in the stream is of a load that was read after the statement.
    """
    if not made:
        return []
    spans = duck.listed(
        (
            number,
            decision.value["source"],
            *table,
            orjson.dumps([*table]).decode(),
            low,
            high,
            decision.value["until"],
        )
        for number, decision in enumerate(made)
        for table, low, high in _tenures(decision)
    )
    same = duck.same(("source", "database", "schema", "table"), "c", "s")
    of_effects = "list_contains(CAST(json_extract(c.effects, '$[*].table') AS VARCHAR[]), s.named)"
    rows = lake.ask(
        f"""WITH spans AS (
            SELECT * FROM (VALUES {spans}) AS v(number, source, "database", "schema", "table", named, low, high, until)
        )
        SELECT s.number FROM {{books}} AS c JOIN spans AS s
            ON {same} AND c.batch > s.until AND c.order_low < s.high AND c.order_high > s.low
            WHERE c.changes > 0 AND c.batch > {min(decision.value["until"] for decision in made)}
            AND NOT {loaded_sql("c.order_high")}
        UNION SELECT s.number FROM {{ddl}} AS c JOIN spans AS s
            ON c.source = s.source AND c.batch > s.until AND c.order_key < s.high AND c.order_key > s.low
            AND CASE WHEN c.effects = '[]' THEN {same} ELSE {of_effects} END
            WHERE {COUNTING}
        ORDER BY number"""
    )
    return [made[row["number"]] for row in rows]


def carried(lake: Tables, ledger: Ledger, move: Move, since: int = 0) -> Carried:
    """The rows that a table had when it got another name.

    Args:
        lake: the lake, decoded.
        ledger: its statements.
        move: the RENAME.
        since: the last batch of which rows were carried over before.

    Raises:
        LackingError: silver does not hold all of them.
    """
    until = lake.decoded()
    if move.rows.lacks:
        raise LackingError(move.rows.lacks)
    move = move._replace(rows=_begun(lake, move))
    _refuse_unplaced(lake, move)
    _refuse_lost(lake, move, until, since)
    where = _where(move, until)
    told = _told(lake, move, where)
    subject = Subject(move.table, "evolve", told.types)
    spoken = list(_spoken(ledger, move))
    for statement in spoken:
        if policy.judge(statement, subject).state != APPLIED:
            raise LackingError(f"no message shows what {statement.said[:120]!r} did to its rows")
    keys = _key(lake.pipeline, move, told, Timeline.of(spoken, subject).by_statement())
    placed = [step.decoded() for step, _ in schema_steps(spoken, subject)]
    undecided = {order_of(statement.order): statement for statement in spoken if not statement.decided}
    watched = [(_Watched if step.order in undecided else _Decided)(*step) for step in placed]
    rows = tuple(_rows(lake, move, told, keys, watched, where))
    if not all(row.complete for row in rows):
        raise LackingError("some of its rows came in part only")
    for cell in chain.from_iterable(row.values.values() for row in rows):
        if isinstance(cell, _Open):
            raise LackingError(f"no message shows what {undecided[cell.place].said[:120]!r} did to its rows")
    kinds = dict(told.types)
    for name in chain.from_iterable(row.values for row in rows):
        kinds.setdefault(name, "unknown")
    named = {name for row in rows for name in row.values}
    sent = {name: kind for name, kind in kinds.items() if name in named or name in keys}
    retyped = {step.column: step.type for step in placed if step.retypes and step.type}
    masked = masked_with(lake.pipeline, move.table)
    return Carried(move, rows, keys, _newest(sent, retyped, told), until, masked)


def _newest(kinds: Mapping[str, str], retyped: Mapping[str, str], told: _Told) -> dict[str, str]:
    """The types of columns; of one that no row has shown since a statement changed it, that of the statement."""
    return {
        name: kind if name in told.newest or name not in retyped else retyped[name]
        for name, kind in kinds.items()
    }


# --- what silver holds ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """What the changes of a table tell of it before they are read."""

    count: int
    keys: tuple[tuple[str, ...], ...]  # that its messages name
    types: Mapping[str, str]
    newest: frozenset[str]  # columns of the newest changes
    moves: bool  # some change may leave its key


def _begun(lake: Tables, move: Move) -> FormerNames:
    """The tenures, from where the table was empty or its load begins.

    Raises:
        LackingError: neither is known.
    """
    rows = move.rows
    if rows.begins:
        return rows
    first = rows.tenures[0]
    of_lane = f"{duck.of_lane(move.statement.source, first.table)} AND order_key < {duck.text(first.high)}"
    [begun] = lake.ask(
        f"""SELECT max(order_key) FILTER (op = 'truncate') AS emptied,
        bool_or((op = 'read' AND NOT {loaded_sql("order_key")}) OR {_is_loaded_within(first)}) AS loaded
        FROM {{changes.change}} WHERE {of_lane}"""
    )
    if begun["emptied"]:
        return replace(rows, tenures=(first._replace(low=begun["emptied"]), *rows.tenures[1:]))
    if begun["loaded"]:
        return rows
    raise LackingError(f"no message shows that {first.table} was created, emptied or loaded")


def _refuse_unplaced(lake: Tables, move: Move) -> None:
    """Refuse rows that could not be placed right after their statement, before all that came after it.

    Raises:
        LackingError: the statement's place does not say what came after it.
    """
    from ingest.ledgers import epochs  # with Arrow, which a plan without renamed tables does without

    statement = move.statement
    source = lake.pipeline.by_source.get(statement.source)
    if source is not None and source.options.order_by == "event_time":
        raise LackingError(
            f"source {statement.source} is ordered by time, and one time may have rows before and after"
        )
    newest = len(epochs.read(lake).starts.get(statement.source, ()))
    if order_of(statement.order).epoch != newest:
        raise LackingError(f"an epoch of source {statement.source} has begun since")
    if not order_of(statement.order).has_second_only:
        return
    tables = dict.fromkeys((move.table, *(tenure.table for tenure in move.rows.tenures)))
    [sent] = lake.ask(
        f"""SELECT max(order_key) AS high FROM {{changes.change}} WHERE source = {duck.text(statement.source)}
        AND ({" OR ".join(f"({duck.of_table(table)})" for table in tables)}) AND NOT {read_sql()} AND NOT {loaded_sql("order_key")}"""
    )
    if sent["high"] and len(order_of(sent["high"]).sequence) > 1:
        raise LackingError("the statement has no exact position")


def _batch(place: str) -> int:
    """The batch in which a statement arrived; 0 for no place."""
    arrival = order_of(place).arrival if place else ()
    return arrival[0] if arrival else 0


def _is_booked_within(tenure: Tenure) -> str:
    """The condition of the books' lines that may have rows of a tenure, or such as were left out, which have no place."""
    within = f"order_low < {duck.text(tenure.high)} AND order_high > {duck.text(tenure.low)}"
    left_out = f"{EXCLUDED_SQL} AND batch >= {_batch(tenure.low)}"
    return f"({duck.of_table(tenure.table)} AND ((changes > 0 AND {within}) OR ({left_out})))"


def _refuse_lost(lake: Tables, move: Move, until: int, since: int) -> None:
    """Refuse rows of which silver may lack some; what was known up to batch ``since`` was looked at before.

    Raises:
        LackingError: it may.
    """
    statement, tenures, of_source = move.statement, move.rows.tenures, _of_source(move)
    begins = [tenure.low for tenure in tenures if tenure.low]
    if any(order_of(place).epoch != order_of(statement.order).epoch for place in begins):
        raise LackingError("its history is in two epochs of the source")
    stream = f'CASE WHEN NOT {read_sql()} THEN (topic, "partition") END'
    [seen] = lake.ask(
        f"""SELECT min(batch) AS first, coalesce(bool_or({EXCLUDED_SQL} AND batch > {since}), false) AS out,
        count(DISTINCT {stream}) AS streams, min(topic) FILTER (NOT {read_sql()}) AS topic,
        min("partition") FILTER (NOT {read_sql()}) AS part
        FROM {{books}} WHERE {of_source} AND ({" OR ".join(map(_is_booked_within, tenures))}) AND batch <= {until}"""
    )
    if seen["out"]:
        raise LackingError("the pipeline file has excluded its rows")
    begun = min(_batch(tenures[0].low) or statement.batch, seen["first"] or statement.batch)
    _refuse_lost_messages(lake, move, max(begun, since + 1), until)
    floors = condensed.read(lake).floors
    for tenure in tenures:
        if floors.get((statement.source, tenure.table), "") > statement.order:
            raise LackingError("its changes from before the statement are condensed")
    masked = [lake.pipeline.masking(tenure.table).mask for tenure in tenures]
    if any(mask != lake.pipeline.masking(move.table).mask for mask in masked):
        raise LackingError("the pipeline file masks its columns otherwise than those of its new name")
    source = lake.pipeline.by_source.get(statement.source)
    if is_weak(statement.order) and source is not None and source.kind == "kafka":
        _refuse_another_partition(lake, move, seen)


def _of_source(move: Move) -> str:
    return f"source = {duck.text(move.statement.source)}"


def _refuse_lost_messages(lake: Tables, move: Move, first: int, until: int) -> None:
    """Refuse if messages of some batches of the source were rejected or lost.

    Raises:
        LackingError: some were.
    """
    source = move.statement.source
    rejects = lake.ask(
        f"""SELECT 1 FROM ({open_sql(lake)}) AS o WHERE {_of_source(move)} AND kind = 'message' AND NOT {CARRIED_SQL}
        AND batch BETWEEN {first} AND {until} LIMIT 1"""
    )
    if rejects:
        typed = command("rejects", lake.pipeline.file)
        raise LackingError(f"messages of source {source} were rejected meanwhile, as `{typed}` shows")
    for decision in decisions.read(lake).of(ACCEPT_GAP, subject=source):
        if decision.batch is None or decision.batch >= first:
            raise LackingError(f"messages of source {source} are lost, as was accepted")


def _refuse_another_partition(lake: Tables, move: Move, seen: SilverRow) -> None:
    """Refuse rows whose order among the statement's partition is not known; ``seen`` are the streams that they came in.

    Raises:
        LackingError: they came in another one.
    """
    order = duck.text(move.statement.order)
    places = lake.ask(
        f'SELECT DISTINCT topic, "partition" AS part FROM {{ddl}} WHERE order_key = {order} AND {_of_source(move)}'
    )
    alike = {(seen["topic"], seen["part"])} == {(place["topic"], place["part"]) for place in places}
    if seen["streams"] > 1 or (seen["streams"] and not alike):
        raise LackingError(
            "it came in another partition than the statement, and its messages have no position"
        )


def _where(move: Move, until: int) -> str:
    """The condition of the table's changes."""
    parts = [
        f"({duck.of_lane(move.statement.source, tenure.table)} AND order_key > {duck.text(tenure.low)} "
        f"AND order_key < {duck.text(tenure.high)} AND (NOT {loaded_sql('order_key')} OR {_is_loaded_within(tenure)}))"
        for tenure in move.rows.tenures
    ]
    return f"batch <= {until} AND ({' OR '.join(parts)})"


def _is_loaded_within(tenure: Tenure) -> str:
    """The condition of rows of a full load that arrived in a tenure: later ones are of the next table of that name."""
    arrived = arrival_sql()
    low = arrival_key(order_of(tenure.low).arrival) if tenure.low else ""
    high = arrival_key(order_of(tenure.high).arrival)
    return f"({loaded_sql('order_key')} AND {arrived} > {duck.text(low)} AND {arrived} < {duck.text(high)})"


def _told(lake: Tables, move: Move, where: str) -> _Told:
    """What the changes that meet a condition tell.

    Raises:
        LackingError: rows of a full load have no place among the statements.
    """
    for tenure in move.rows.tenures:
        loads = f"{duck.of_lane(move.statement.source, tenure.table)} AND op <> 'truncate' AND {_is_loaded_within(tenure)}"
        if tenure.low and lake.ask(f"SELECT 1 FROM {{changes.change}} WHERE {loads} LIMIT 1"):
            raise LackingError("rows of its full load have no place in the stream")
    spans = lake.ask(
        f"""SELECT keys, types, count(*) AS n, max(order_key) AS high,
        bool_or(op = 'update' AND before IS NOT NULL) AS moves FROM {{changes.change}}
        WHERE op <> 'truncate' AND {where} GROUP BY keys, types ORDER BY max(order_key)"""
    )
    kinds: dict[str, str] = {}
    for span in spans:
        sent = object_in(span["types"])
        kinds = merged_columns(kinds, sent) | {name: kind for name, kind in sent.items() if kind != "unknown"}
    keys = {tuple(list_in(span["keys"])) for span in spans}
    newest = frozenset(object_in(spans[-1]["types"])) if spans else frozenset[str]()
    return _Told(
        sum(span["n"] for span in spans),
        tuple(sorted(keys)),
        kinds,
        newest,
        any(span["moves"] for span in spans),
    )


def _spoken(ledger: Ledger, move: Move) -> Iterator[Statement]:
    """The statements on the table, under whatever name it had, as statements on its new one.

    The statement that ends a name may change the table before (``ALTER TABLE a ADD c INT DEFAULT 1, RENAME TO b``).
    """
    for tenure in move.rows.tenures:
        for statement in ledger.statements:
            inside = tenure.low <= statement.order <= tenure.high
            is_of_lane = statement.source == move.statement.source and statement.decided != DISMISS
            if not is_of_lane or not inside:
                continue
            of_table = [effect for effect in statement.effects if effect.table == tenure.table]
            if statement.order == tenure.high:
                of_table = [*takewhile(lambda effect: effect.action not in LEAVES_NAME, of_table)]
            effects = tuple(
                replace(effect, table=move.table)
                for effect in of_table
                if effect.action not in (*LEAVES_NAME, "swap_table")
            )
            if effects or (statement.kind == "unknown" and tenure.table in statement.tables):
                yield replace(statement, effects=effects, table=move.table, first=None, since="")


def _key(
    pipeline: Pipeline, move: Move, told: _Told, placed: Sequence[eras.PlacedEffects]
) -> tuple[str, ...]:
    """The key of the table's rows; empty if all their values are.

    Raises:
        LackingError: it has had several.
    """
    declared = pipeline.rule(move.rows.tenures[-1].table).keys or pipeline.rule(move.table).keys
    if declared:
        return declared
    stated = eras.last(placed, ())
    named = {key for key in told.keys if key}
    if len({frozenset(key) for key in (*named, *([stated] if stated else []))}) > 1:
        raise LackingError("its key has changed")
    return next(iter(named), stated)


# --- folding ------------------------------------------------------------------------------------------


def _rows(
    lake: Tables, move: Move, told: _Told, keys: tuple[str, ...], placed: Sequence[SchemaStep], where: str
) -> Iterator[Row]:
    """The rows that live just before the statement, of changes that meet a condition.

    Raises:
        LackingError: a change has no usable key, or there are too many to fold.
    """
    query = f"SELECT {_COLUMNS} FROM {{changes.change}} WHERE {where}"
    is_apart = told.count > AT_ONCE and not told.moves and _are_keys_by_text(lake, query, told, keys)
    if told.count > (APART if is_apart else TOGETHER):
        raise LackingError(f"its {counted(told.count, 'change')} are too many to fold at once")
    if is_apart:
        yield from _key_by_key(lake, query, told, keys, placed)
        return
    events = _events(lake.ask(query))
    if not keys:
        source = lake.pipeline.shared_reads(move.statement.source)
        yield from copies([*events, *placed], shared_reads=source)
        return
    yield from _folded([*events, *placed], told, keys)


def _events(rows: Iterable[SilverRow]) -> list[Placed | SchemaStep]:
    return [Placed(order_of(row["order_key"]), change_of(row)) for row in rows]


def _folded(events: Iterable[Placed | SchemaStep], told: _Told, keys: tuple[str, ...]) -> list[Row]:
    table, met = Table(keys, {name: told.types.get(name, "unknown") for name in keys}), set[Key]()
    for event, of_event in groupby(steps(table, events), key=lambda step: step.event):
        keys_met = [step.key for step in of_event]
        if not all(keys_met):
            raise LackingError("a change of it has no usable key")
        # the first key of a change is that of the row that it found
        if isinstance(event, Placed) and event.change.op is Op.UPDATE and keys_met[0] not in met:
            raise LackingError("a row was changed that no message had brought")
        met.update(keys_met)
    return list(table.rows.values())


def _are_keys_by_text(lake: Tables, query: str, told: _Told, keys: tuple[str, ...]) -> bool:
    """True if two keys are one only where their texts are equal: ``1.0`` and ``1`` are one decimal number."""
    kinds = {name: told.types.get(name, "unknown") for name in keys}
    spelt = [name for name, kind in kinds.items() if not _is_text(kind)]
    if not keys or any(types.family(kinds[name]) != "integer" for name in spelt):
        return False
    images = [duck.member(image, name) for name in spelt for image in ("after", "before")]
    odd = " OR ".join(f"NOT regexp_full_match({cell}, '0|-?[1-9][0-9]*')" for cell in images)
    return not odd or not lake.ask(f"SELECT 1 FROM ({query}) AS c WHERE {odd} LIMIT 1")


def _is_text(kind: str) -> bool:
    """True if each text of a type is a value of its own."""
    return types.family(kind) is None or types.delta(kind) == "STRING"


def _key_by_key(
    lake: Tables, query: str, told: _Told, keys: tuple[str, ...], placed: Sequence[SchemaStep]
) -> Iterator[Row]:
    """The same for a table that is too large to hold, none of whose rows changes its key."""
    clears = _events(lake.ask(f"SELECT * FROM ({query}) AS c WHERE op = 'truncate'"))
    cells = duck.cells(keys)
    ordered = f"SELECT *, to_json([{cells}]) AS own_key FROM ({query}) AS c WHERE op <> 'truncate' ORDER BY own_key, order_key"
    cursor = duck.connection().cursor().execute(lake.sql(ordered))
    names = [column[0] for column in cursor.description or ()]
    rows = (dict(zip(names, row, strict=True)) for row in iter(cursor.fetchone, None))
    for _, of_key in groupby(rows, key=lambda row: row["own_key"]):
        yield from _folded([*_events(of_key), *clears, *placed], told, keys)
