"""What the tables hold of one row: its changes, its table's events, the raw bytes, the rejects, the mirror.

`ingest.gold.explain` builds the story from it. Everything read here is bounded: one key's changes, their messages, and
a sample of the rejects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from ingest import types
from ingest.change import Change, Image, LaneId
from ingest.errors import IngestError, counted
from ingest.fold import Key, KeyCellError, SchemaStep, key_of_change, key_of_texts
from ingest.gold.fold.past_keys import LaneEvent, rebased
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import lanes as sent
from ingest.ledgers import mirrors
from ingest.ledgers import rejects as rejected
from ingest.ledgers.announced import announced
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.rejects import PLACE
from ingest.ledgers.stamps import NO_STAMPS, change_of, stamps_of
from ingest.tables import duck
from ingest.tables.schemas import DDL
from ingest.tables.tables import Tables
from ingest.values.typed_values import held

ROW = (
    "order_key", "op", "partial", "before", "after", "batch", *PLACE, "row", "sequence", "event_time",
    "transaction", "note", "types",
)  # fmt: skip
SUSPECTS = 20
SHARDS = 8  # values of a shard column in one sentence
_ROW_SQL = ", ".join(f'"{name}"' for name in ROW)
ROUNDS = 50  # key changes from key to key; no real row has more

Row = dict[str, Any]


def mirror_of(lake: Tables, name: str) -> Mirror:
    """The mirror of that name; letter case is ignored if only one matches.

    Raises:
        IngestError: there is none, or it has no key.
    """
    mirrors_by_name = mirrors.by_name(lake)
    alike = [mirror for mirror in mirrors_by_name.values() if mirror.name.lower() == name.lower()]
    mirror = mirrors_by_name.get(name) or (alike[0] if len(alike) == 1 else None)
    if mirror is None:
        raise mirrors.unknown(name, mirrors_by_name)
    if not mirror.keys:
        raise IngestError(f"{mirror.name} has no key, so that its rows cannot be distinguished.")
    return mirror


def asked_key(lake: Tables, mirror: Mirror, texts: Sequence[str]) -> Key:
    """The key of a row that the operator names, as `typed_key` has it.

    Raises:
        IngestError: too many or too few cells, or one that does not fit its type.
    """
    if len(texts) != len(mirror.keys):
        lane_shards = [mirror.shard_of(lane) for lane in lanes(lake, mirror)]
        shards = sorted({cell for cell in chain.from_iterable(lane_shards) if cell[0] in mirror.keys})
        named = ", ".join(value for _, value in shards[:SHARDS])
        more = f" and {len(shards) - SHARDS} more" if shards[SHARDS:] else ""
        raise IngestError(
            f"The key of {mirror.name} is {', '.join(mirror.keys)}: "
            f"give {counted(len(mirror.keys), 'value')} in that order, not {len(texts)}"
            + (f"; {shards[0][0]} is one of {named}{more}." if shards else ".")
        )
    return typed_key(mirror, texts)


def typed_key(mirror: Mirror, texts: Sequence[str]) -> Key:
    """The key as the fold compares it.

    Raises:
        IngestError: a cell does not fit its type.
    """
    try:
        return key_of_texts(mirror.keys, texts, mirror.key_types)
    except KeyCellError as error:
        raise IngestError(f"{mirror.name}: {error}.") from None


def lanes(lake: Tables, mirror: Mirror) -> list[LaneId]:
    """The source tables that feed a mirror, by their names in the books."""
    named = sent.booked(lake)
    return sorted((lane for lane in named if mirror.table in mirrors.names(lake.pipeline, lane[1])), key=str)


def was_loaded(lake: Tables, lane: LaneId) -> bool:
    """True if rows of a full load of a source table have come."""
    asked = f"SELECT 1 AS n FROM {{books}} WHERE {duck.of_lane(*lane)} AND reads > 0 LIMIT 1"
    return bool(lake.ask(asked))


def key_in(mirror: Mirror, texts: Sequence[str], other: Mirror, lane: LaneId) -> tuple[str, ...] | None:
    """The key of a lane's row of one mirror as another mirror has it; None if that identifies rows by other columns."""
    shard = other.shard_of(lane)
    cells = dict(zip(mirror.keys, texts, strict=True)) | dict(shard)
    if not other.keys or not cells.keys() >= {*other.keys}:
        return None
    return tuple(cells[name] for name in other.keys)


# --- changes ------------------------------------------------------------------------------------


def rows_of(lake: Tables, mirror: Mirror, lane: LaneId, texts: Sequence[str]) -> list[Row]:
    """All changes of a key, and of every key linked with it by key changes."""
    shard = dict(mirror.shard_of(lane))
    rebased_rows = _under_last_key(lake, mirror, lane, shard) if mirror.eras_of(*lane) else None
    types_of = mirror.key_types
    wanted: dict[Key, tuple[str, ...]] = {typed_key(mirror, texts): tuple(texts)}
    asked: set[Key] = set()
    seen: dict[tuple[str, int], tuple[Row, dict[Key, tuple[str, ...]]]] = {}
    for _ in range(ROUNDS):
        if not (new := wanted.keys() - asked):
            break
        asked |= new
        rows = rebased_rows
        if rows is None:
            rows = list(candidates(lake, mirror, lane, [wanted[key] for key in new], shard))
        for row in rows:
            place = row["order_key"], row["batch"]
            if place not in seen and (keys := keys_of(change_of(row), mirror.keys, types_of)):
                seen[place] = row, keys
        for _, keys in seen.values():
            if not wanted.keys().isdisjoint(keys):
                wanted |= {key: cells for key, cells in keys.items() if key not in wanted}
    return [seen[place][0] for place in sorted(seen) if not wanted.keys().isdisjoint(seen[place][1])]


def _under_last_key(lake: Tables, mirror: Mirror, lane: LaneId, shard: Mapping[str, str]) -> list[Row]:
    """All changes of a table whose primary key has changed, as they are under its last one."""
    rows = {
        (row["order_key"], row["batch"]): row
        for row in (*_rows(lake, mirror, lane, "true", shard), *truncates(lake, lane))
    }
    events = [LaneEvent(*place, change_of(rows[place])) for place in sorted(rows)]
    steps = tuple(step for step, _ in schema_steps(lake, mirror, lane))
    logical = mirror.logical_types
    changes = rebased(
        events, mirror.eras_of(*lane), steps, logical, 0, lane, shared_reads=lake.pipeline.shared_reads(lane[0])
    )  # fmt: skip
    last_rows = (rows.get((change.place, change.batch)) or _standing(change) for change in changes)
    return [row for row in last_rows if row["op"] != "truncate"]


def _standing(event: LaneEvent) -> Row:
    """A row that existed where an earlier key ended, as a change."""
    place, batch, change = event
    return dict.fromkeys(ROW) | {
        "order_key": place, "batch": batch, "op": "insert", "partial": False, "row": 0,
        "after": json.dumps(change.after, ensure_ascii=False), "types": json.dumps(dict(change.types)),
        "note": "the row as it was when the primary key changed",
    }  # fmt: skip


def candidates(
    lake: Tables, mirror: Mirror, lane: LaneId, keys: Iterable[tuple[str, ...]], shard: Mapping[str, str]
) -> Iterator[Row]:
    """Changes that may concern one of some keys: a superset, because values have several spellings."""
    asked = [
        (i, key_column) for i, key_column in enumerate(mirror.key_columns) if key_column.name not in shard
    ]
    likely = " OR ".join(
        "(" + " AND ".join(["true", *(_likely(column, key[i]) for i, column in asked)]) + ")" for key in keys
    )
    yield from _rows(lake, mirror, lane, likely, shard)


def at_places(
    lake: Tables, mirror: Mirror, lane: LaneId, places: Iterable[str], shard: Mapping[str, str]
) -> Iterator[Row]:
    """Changes at some places in history, which are those of `ingest.order.same_place`."""
    begins = " OR ".join(f"starts_with(order_key, {duck.text(place)})" for place in places)
    yield from _rows(lake, mirror, lane, begins, shard)


def _rows(
    lake: Tables, mirror: Mirror, lane: LaneId, condition: str, shard: Mapping[str, str]
) -> Iterator[Row]:
    """A lane's changes that meet a condition, with the cells that the mirror adds to a message's."""
    rows = lake.ask(
        f"""SELECT {_ROW_SQL} FROM {{changes.change}} WHERE op <> 'truncate' AND {duck.of_lane(*lane)} AND ({condition})"""
    )
    stamps = stamps_of(mirror, *lane)
    for row in rows:
        if stamps != NO_STAMPS and row["after"] is not None:
            row["after"] = json.dumps(stamps.cells(row) | json.loads(row["after"]), ensure_ascii=False)
        for image in ("before", "after") if shard else ():
            if row[image] is not None:
                row[image] = json.dumps({**shard, **json.loads(row[image])}, ensure_ascii=False)
        yield row


def _likely(column: Column, text: str) -> str:
    """A condition that holds for every row with this key cell in one of its images."""
    cells = [duck.member(image, column.name) for image in ("after", "before")]
    kind = types.family(column.type)
    if kind is None or types.delta(column.type) == "STRING" or kind in ("date", "boolean"):
        return f"({' OR '.join(f'{cell} = {duck.text(text)}' for cell in cells)})"
    if kind in ("integer", "decimal") and abs(number := float(text)) < 1e300:
        near = f"BETWEEN {number - abs(number) * 1e-9!r} AND {number + abs(number) * 1e-9!r}"
        return f"({' OR '.join(f'TRY_CAST({cell} AS DOUBLE) {near}' for cell in cells)})"
    return "true"


def keys_of(change: Change, keys: tuple[str, ...], types_of: Mapping[str, str]) -> dict[Key, tuple[str, ...]]:
    """The keys that a change concerns, each with its texts; nothing if it has no usable one."""
    try:
        concerned = key_of_change(change, keys, types_of)
    except KeyCellError:
        return {}
    return {key: tuple(map(str, texts)) for key, texts in concerned.texts.items()}


def truncates(lake: Tables, lane: LaneId) -> list[Row]:
    """The table's truncates."""
    return lake.ask(
        f"SELECT {_ROW_SQL} FROM {{changes.change}} WHERE op = 'truncate' AND {duck.of_lane(*lane)}"
    )


FOLDED = 2**62  # what is explained has been folded: nothing is pending


def schema_steps(lake: Tables, mirror: Mirror, lane: LaneId) -> list[tuple[SchemaStep, Row]]:
    """The DDL effects that take part in the fold, each with its statement's row."""
    steps = [step for step, _ in steps_of(lake)(mirror, *lane, FOLDED)]
    if not steps:
        return []
    wanted = ", ".join(duck.text(str(step.order)) for step in steps)
    rows = lake.ask(f"SELECT * FROM {{ddl}} WHERE source = {duck.text(lane[0])} AND order_key IN ({wanted})")
    statements = {row["order_key"]: row for row in rows}
    placed: list[tuple[SchemaStep, Row]] = []
    for step in steps:
        row = statements.get(str(step.order)) or _announcement(lake, lane, step)
        if row is not None:
            placed.append((step, row))
    return placed


def _announcement(lake: Tables, lane: LaneId, step: SchemaStep) -> Row | None:
    """A step that rows stand for, as a row of `ddl`; no message has a statement of it."""
    for statement in announced(lake, (), {}, lake.decoded()):
        names = [effect.column for effect in statement.effects]
        place = statement.source, statement.table, statement.order
        if place == (*lane, str(step.order)) and step.column in names:
            said = {
                "source": statement.source,
                "batch": statement.batch,
                "order_key": statement.order,
                "statement": statement.text,
            }
            return dict.fromkeys(DDL.arrow.names) | said
    return None


# --- rejects ------------------------------------------------------------------------------------


def suspects(lake: Tables, mirror: Mirror, feeding: Sequence[LaneId], texts: Sequence[str]) -> list[Row]:
    """Open rejects that may concern the row: its own cells, and messages whose table is not known."""
    columns = ", ".join(map(duck.name, (*PLACE, "batch", "kind", "column", "reason", "detail", "raw", "key")))
    sources = ", ".join(sorted({duck.text(source) for source, _ in feeding})) or "NULL"
    order = ", ".join(f"{duck.name(name)} NULLS FIRST" for name in ("kind", "batch", *PLACE))
    rows = lake.ask(
        f"""SELECT {columns} FROM ({rejected.open_sql(lake)}) AS o
        WHERE (kind <> 'message' AND {duck.of_table(mirror.table)}) OR (kind = 'message' AND source IN ({sources})) ORDER BY {order}"""
    )
    key = typed_key(mirror, texts)
    suspected = (
        row for row in rows if row["kind"] == "message" or rejected.key_of(mirror, row["key"]) == key
    )
    return [
        {name: cell for name, cell in row.items() if name != "key"} for row in islice(suspected, SUSPECTS)
    ]


# --- the mirror ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Present:
    """The mirror's rows with the key, as text, and the columns that differ from the fold's row."""

    rows: tuple[Image, ...]
    differing: tuple[str, ...]


def present(lake: Tables, mirror: Mirror, texts: Sequence[str], folded: Image | None) -> Present:
    """Look the key up in the mirror, and compare cell by cell with the row that the fold gives."""
    state = lake.snapshot(mirror.path)
    columns = [column for column in mirror.columns if column.column in state.types]
    cells = ", ".join(f"{cell_text(column)} AS {duck.name(f'v{i}')}" for i, column in enumerate(columns))
    same = " AND ".join(
        equals(key_column, text) for key_column, text in zip(mirror.key_columns, texts, strict=True)
    )
    stored = lake.ask_mirror(mirror.path, f"SELECT {cells} FROM {{mirror}} AS m WHERE {same} LIMIT 10")
    rows = [{column.name: row[f"v{i}"] for i, column in enumerate(columns)} for row in stored]
    differing = {
        column.name
        for row in rows
        for column in columns
        if column.name not in mirror.keys
        and not _same(column.type, row[column.name], (folded or {}).get(column.name))
    }
    return Present(tuple(rows), tuple(sorted(differing)))


def equals(column: Column, text: str) -> str:
    """The condition that a mirror's key cell has the value of a canonical text."""
    cell, literal, kind = duck.name(column.column), duck.text(text), column.delta
    if kind == "BINARY":
        value = held(column.type, text)
        return f"{cell} = unhex({duck.text(value.hex())})" if isinstance(value, bytes) else "false"
    if kind == "TIMESTAMP":
        return f"{cell} = (CAST({literal} AS TIMESTAMPTZ) AT TIME ZONE 'UTC')"
    return f"{cell} = CAST({literal} AS {duck.type_of(kind)})"


def _same(logical: str, text: str | None, other: str | None) -> bool:
    """True if a mirror holds one value for two texts: none for a text that does not fit."""
    value, second = (None if each is None else held(logical, each) for each in (text, other))
    return value == second


def cell_text(column: Column) -> str:
    """The cell in the spelling of changes."""
    cell = duck.name(column.column)
    kind = column.delta
    if kind == "BINARY":
        return f"lower(hex({cell}))" if column.type == "hex" else f"base64({cell})"
    if kind in ("FLOAT", "DOUBLE"):
        return (
            f"CASE WHEN isnan({cell}) THEN 'NaN' WHEN {cell} = CAST('Infinity' AS DOUBLE) THEN 'Infinity' "
            f"WHEN {cell} = CAST('-Infinity' AS DOUBLE) THEN '-Infinity' ELSE CAST({cell} AS VARCHAR) END"
        )
    text = f"CAST({cell} AS VARCHAR)"
    return f"replace({text}, ' ', 'T') || 'Z'" if kind == "TIMESTAMP" else text
