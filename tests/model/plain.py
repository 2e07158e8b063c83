"""Messages to mirrors without Spark: silver's own decoder in the worker, the policy's steps, the plain fold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from ingest import formats
from ingest.change import Message, Op, TableId
from ingest.config import Pipeline
from ingest.config.model import Source as Origin
from ingest.config.model import TableRule
from ingest.fold import KeyCellError, Placed, Row, SchemaStep, Table, copies, former, key_of_change
from ingest.gold.fold import past_keys, retyped
from ingest.gold.fold.past_keys import inserted
from ingest.gold.plan import declared, eras, policy
from ingest.gold.plan.eras import Run, evidence
from ingest.gold.plan.policy import APPLIED, HELD, NOTICED, PARTLY, Subject, Timeline
from ingest.gold.plan.steps import steps as schema_steps
from ingest.images_before import Chain, Link
from ingest.ledgers.books import merged_columns
from ingest.ledgers.logged_statements import Statement, _effects
from ingest.ledgers.mirrors import Era
from ingest.ledgers.resolve import SentColumn, resolved
from ingest.ledgers.stamps import change_of
from ingest.order import AFTER_ITS_ROW, order_of
from ingest.quality.cell_diff import Inserts
from ingest.quality.statement_order import Arrived, Delivered, sent_again, unsure
from ingest.silver.anchors import Event, event_rows, rows_before, stream_of
from ingest.silver.lift import Lifting, SourceDecoder
from ingest.silver.split_messages import Spot
from tests.formats.one_history.debezium import registry
from tests.formats.one_history.writing import Dialect

SOURCE = "capture"
Batches = Sequence[Sequence[Message]]


@dataclass(slots=True)
class Lane:
    """What silver holds of one table."""

    changes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Mirror:
    """A folded mirror, and what is said about it."""

    keys: tuple[str, ...] = ()
    columns: set[str] = field(default_factory=set)  # of a lake's mirror
    rows: dict[Any, dict[str, str | None]] = field(default_factory=dict)
    loud: set[str] = field(default_factory=set)
    twice: set[Any] = field(default_factory=set)  # keys that the checks call inserted while they were there
    links: list[Link] = field(default_factory=list)  # changes with an image before, compared


def pipeline_of(dialect: Dialect, rules: Sequence[TableRule] = ()) -> Pipeline:
    """A pipeline of one source in a dialect."""
    origin = Origin(SOURCE, "files", dialect.format, dialect.hints.options, path="/nowhere")
    return Pipeline("model", Path("/nowhere.yaml"), "/nowhere", (origin,), tuple(rules))


def silver(pipeline: Pipeline, batches: Batches) -> list[dict[str, Any]]:
    """The rows of `changes` of all batches."""
    found: list[dict[str, Any]] = []
    how = Lifting(pipeline, schemas={SOURCE: registry()})
    landed: list[pa.RecordBatch] = []
    for number, messages in enumerate(batches, start=1):
        if messages:
            landed.append(bronze(number, messages))
            decoder = SourceDecoder(replace(how, anchors=_anchors(how, landed)), SOURCE)
            for page in decoder.lift(landed[-1]):
                found += page.select(_COLUMNS).to_pylist()
    return found


def _anchors(how: Lifting, landed: Sequence[pa.RecordBatch]) -> dict[Spot, tuple[int, ...]] | None:
    """The rows before the table events of the last batch that have no position, as `ingest.silver.events` finds them."""
    marks = formats.load(how.pipeline.sources[0].format).ABOUT.event_marks
    if not marks:
        return None
    look = event_rows(how, {SOURCE: marks})
    rows = [row for page in look(iter(landed[-1:])) for row in page.to_pylist()]
    events = [
        Event(stream_of(how.pipeline, *spot[:3]), spot, row["second"])
        for row in rows
        for spot in [Spot.of(row)]
    ]
    if not events:
        return {}
    found: dict[Spot, tuple[int, ...]] = {event.spot: () for event in events}
    last = [row for page in rows_before(how, events)(iter(landed)) for row in page.to_pylist()]
    for row in sorted(last, key=lambda row: (row["batch"], row["offset"])):
        found[events[row["number"]].spot] = tuple(json.loads(row["sequence"]))
    return found


_COLUMNS = [
    *("kind", "batch", "topic", "partition", "offset", "row", "op", "database", "schema", "table"),
    *("order_key", "transaction", "keys", "before", "after", "types", "partial", "payload", "event_time"),
]


def bronze(batch: int, messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages as bronze holds them: each topic is a stream of its own."""
    count = len(messages)
    columns = {
        "batch": pa.array([batch] * count, pa.int64()),
        "source": pa.array([SOURCE] * count),
        "topic": pa.array([one.topic or "messages" for one in messages]),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "key": pa.array([one.key for one in messages], pa.binary()),
        "value": pa.array([one.value for one in messages], pa.binary()),
        "headers": pa.array(
            [[{"key": name, "value": value} for name, value in one.headers] for one in messages],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    return pa.record_batch(columns)


def mirrors(pipeline: Pipeline, rows: Iterable[dict[str, Any]]) -> dict[TableId, Mirror]:
    """The mirrors that the rows of `changes` make."""
    lanes: dict[TableId, Lane] = {}
    statements: list[Statement] = []
    rejected = 0
    for row in sorted(rows, key=lambda row: row["order_key"] or ""):
        if row["kind"] == "change":
            lanes.setdefault(_table(row), Lane()).changes.append(row)
        elif row["kind"] == "ddl":
            statements.append(_statement(row))
        elif row["kind"] == "reject":
            rejected += 1
    sent = [
        (SOURCE, table) for table, one in lanes.items() if any(row["op"] != "truncate" for row in one.changes)
    ]
    columns = {table: _columns(lane) for table, lane in lanes.items()}
    statements = resolved(statements, sent, lambda _source, table: columns.get(table, {}))
    for statement in statements:
        for effect in statement.effects:
            for table in (effect.table, effect.to):
                if isinstance(table, TableId):
                    lanes.setdefault(table, Lane())
    found = {table: _folded(pipeline, table, lane, statements) for table, lane in lanes.items()}
    return {table: mirror for table, mirror in found.items() if mirror is not None}


def _columns(lane: Lane) -> dict[str, SentColumn]:
    """The columns that a table's rows have had, as `ingest.ledgers.lanes` reads them from the books."""
    found: dict[str, SentColumn] = {}
    for row in lane.changes:
        place = row["order_key"]
        for name, logical in json.loads(row["types"] or "{}").items() if row["op"] != "truncate" else ():
            sent = found.get(name, SentColumn(place, place, "", row["batch"]))
            first = min(sent.batch, row["batch"])
            found[name] = SentColumn(min(sent.low, place), max(sent.high, place), logical, first)
    return found


def _table(row: dict[str, Any]) -> TableId:
    return TableId(row["database"], row["schema"], row["table"])


def _statement(row: dict[str, Any]) -> Statement:
    payload = json.loads(row["payload"])
    parsed = payload["parsed"]
    place = f"{row['batch']}/{row['topic']}/{row['partition']}/{row['offset']}/{row['row']}"
    effects = _effects.decode(json.dumps(parsed["effects"]))
    return Statement(
        place,
        SOURCE,
        _table(row),
        row["batch"],
        row["order_key"],
        payload["statement"],
        parsed["kind"],
        effects,
        event_time=row["event_time"],
    )


def _folded(pipeline: Pipeline, table: TableId, lane: Lane, statements: Sequence[Statement]) -> Mirror | None:
    rule = pipeline.rule(table)
    if rule.exclude:
        return None
    types: dict[str, str] = {}
    for row in lane.changes:
        types = merged_columns(types, json.loads(row["types"] or "{}"))
    subject = Subject(table, rule.on_schema_change, {**types, **rule.columns})
    mine = [one for one in statements if one.kind != "none" and table in one.tables]
    mirror, changes = Mirror(), lane.changes
    states = {one.id: policy.judge(one, subject).state for one in mine}
    held = [one for one in mine if states[one.id] == HELD]
    if held:
        mirror.loud.add(f"held: {held[0].text}")
        first = min(one.batch for one in held)
        changes = [row for row in changes if row["batch"] < first]
        mine = [one for one in mine if one.batch < first]
    mirror.loud |= {f"noticed: {one.text}" for one in mine if states[one.id] in (NOTICED, PARTLY)}
    applied = [one for one in mine if states[one.id] in (APPLIED, PARTLY)]
    found = [step for step, _batch in schema_steps(applied, subject)]
    own_eras = _eras(rule, changes, applied, subject)
    mirror.keys = own_eras[-1].keys if own_eras else declared.declared_by(Timeline.of(mine, subject)).keys
    if not mirror.keys:
        mirror.loud |= {"no key"} if changes else set()
        return mirror
    mirror.loud |= _open(own_eras or (Era("", mirror.keys),), changes, types, found)
    mirror.loud |= _unsure(changes, mine)
    base: list[Placed] = []
    rereads = "insert" not in formats.load(pipeline.sources[0].format).ABOUT.operations
    for era, after in zip_longest(own_eras, own_eras[1:]):
        begin, end = era.place, after.place if after else "~"
        rows = [row for row in changes if begin < row["order_key"] <= end]
        events: list[Placed | SchemaStep] = [
            *base,
            *(Placed(order_of(row["order_key"]), change_of(row)) for row in rows),
            *(step.decoded() for step in found if begin < str(step.order) <= end),
        ]
        earlier = [
            Placed(order_of(row["order_key"]), change_of(row)) for row in changes if row["order_key"] <= begin
        ]
        live = _live(mirror, era.keys, types, events, earlier, rereads=rereads, pipeline=pipeline)
        if after is None:
            continue
        base = [Placed(order_of(event.place), event.change) for event in inserted(live, 0)]
        if after.keys:
            _refuse(mirror, after.keys, types, base)
    return mirror


def _eras(
    rule: TableRule, changes: Sequence[dict[str, Any]], applied: Sequence[Statement], subject: Subject
) -> tuple[Era, ...]:
    """The keys of a table in their order."""
    places = [row for row in changes if row["op"] != "truncate"]
    spans = [
        Run(tuple(json.loads(row["keys"] or "[]")), row["order_key"], row["order_key"]) for row in places
    ]
    timeline = Timeline.of(applied, subject)
    timeline = timeline if rule.keys else timeline.rekeying()
    return eras.eras(evidence(spans), timeline.by_statement(), rule.keys, keyless=False)


def _live(
    mirror: Mirror,
    keys: tuple[str, ...],
    types: dict[str, str],
    events: Sequence[Placed | SchemaStep],
    earlier: Iterable[Placed],
    *,
    rereads: bool,
    pipeline: Pipeline,
) -> list[Row]:
    """The rows that live after some events, which may come again from before the key was this; they are the mirror's, too."""
    if not keys:
        return list(copies(events, shared_reads=pipeline.shared_reads(SOURCE)))
    state = Table(keys, {name: types.get(name, "unknown") for name in keys})
    inserts = Inserts(rereads)
    chain = Chain(state, types, pipeline.images_before(SOURCE))
    for event in earlier:
        chain.remember(event)
    mirror.links.clear()  # the checks compare rows that have the last key
    for event, done, link in chain.steps(events):
        mirror.links += [link] if link else []
        for step in done:
            inserts.take(step)
            if step.why.startswith("rejected") and event.change.op is not Op.TRUNCATE:  # type: ignore[union-attr]
                mirror.loud.add(step.why)
    mirror.rows = {key: row.values for key, row in state.rows.items()}
    mirror.twice = {*inserts.twice}  # as the checks find them under the last key
    return list(state.rows.values())


def _open(
    own_eras: Sequence[Era],
    changes: Sequence[dict[str, Any]],
    types: dict[str, str],
    found: Sequence[SchemaStep],
) -> set[str]:
    """What the source has converted and no message shows, as `ingest.gold.fold.retyped` rejects it."""
    renames = [step for step in found if step.action == "rename_column"]
    loud: set[str] = set()
    for step in found:
        if step.action != "retype_column":
            continue
        names, key = (
            former(step.column, renames),
            _key_after(own_eras, changes, types, found, str(step.order)),
        )
        if step.since and step.column not in key:
            continue
        if retyped.is_open(step, retyped.on_defaults(step, names, found), key):
            loud.add(f"values of {step.column} not known")
        for row in changes:
            is_reached = str(step.since or "") < row["order_key"] <= str(step.order)
            if row["op"] not in ("read", "insert", "update") or not is_reached:
                continue
            after, sent = json.loads(row["after"] or "{}"), json.loads(row["types"] or "{}")
            text = next((after[name] for name in names if after.get(name) is not None), None)
            is_sent = any(name in after for name in names) or row["op"] != "update" or not row["partial"]
            if text is not None or (step.solid and is_sent):
                does = retyped.effect(step, text, next((sent[name] for name in names if name in sent), ""))
                if retyped.is_open(step, does, key):
                    loud.add(f"values of {step.column} not known")
    return loud


def _key_after(
    own_eras: Sequence[Era],
    changes: Sequence[dict[str, Any]],
    types: dict[str, str],
    found: Sequence[SchemaStep],
    place: str,
) -> Mapping[str, str]:
    """The key by which changes after a statement find their rows; nothing where another key follows before one comes."""
    key = past_keys.key_at(place, own_eras, found, types)
    met = (row["op"] != "truncate" and place < row["order_key"] <= key.ends for row in changes)
    return key.columns if not key.ends or any(met) else {}


def _unsure(changes: Sequence[dict[str, Any]], mine: Sequence[Statement]) -> set[str]:
    """Where arrival does not say which rows came before a table event, as `ingest.quality` finds it."""

    def by_second(found: Iterable[tuple[str, str]]) -> dict[tuple[int, ...], list[Arrived]]:
        seconds: dict[tuple[int, ...], list[Arrived]] = {}
        for place, text in found:
            order = order_of(place)
            one = Arrived((SOURCE, None), order.arrival, order.sequence, text)
            seconds.setdefault((order.epoch, order.phase, *order.sequence[:1]), []).append(one)
        return seconds

    events = by_second((one.order, one.text) for one in mine if order_of(one.order).half == AFTER_ITS_ROW)
    rows = by_second((row["order_key"], "") for row in changes if row["op"] != "truncate")
    found = {f"order in second {at}" for at, some in events.items() if unsure(some, rows.get(at, []))}
    arrived = [
        (row["order_key"], (row["batch"], row["offset"])) for row in changes if row["op"] != "truncate"
    ]
    said = [Delivered(one.text, one.event_time, one.order, (one.batch, _offset(one.order))) for one in mine]
    for earlier, later in sent_again(said):
        if any(earlier.order < place <= later.order and at > later.at for place, at in arrived):
            found.add(f"sent again: {later.text}")
    return found


def _offset(order_key: str) -> int:
    return order_of(order_key).arrival[-1]


def _refuse(mirror: Mirror, keys: tuple[str, ...], types: dict[str, str], base: Sequence[Placed]) -> None:
    """Rows that cannot give the next key, or have the same: the mirror is held."""
    known = {name: types.get(name, "unknown") for name in keys}
    try:
        found = [key_of_change(one.change, keys, known).key for one in base]
    except KeyCellError as error:
        mirror.loud.add(f"held: {error}")
        return
    if len(set(found)) < len(found):
        mirror.loud.add("held: two rows have the same new key")
