"""Cells that the newest type of their column cannot hold: the source has converted them, and sent no statement of it.

PostgreSQL sends no DDL, others only if it is switched on. The type that the messages name changes with the next row; the rows
that stood before were converted at the source without a message. Where each of their texts is a value of the new type, too,
they are the same by any conversion; where one is not, the row has another value there now. A column that has another name since,
as the order of columns shows, is the same column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingest import types
from ingest.change import LaneId, lane_of
from ingest.ddl import Effect
from ingest.errors import agreeing, counted
from ingest.ledgers.logged_statements import Statement, by_lane
from ingest.quality import renamed_cells
from ingest.quality.catalogue import CONVERTED_CELLS, Metric
from ingest.quality.subjects import CheckedLane, CheckedMirror, of_some
from ingest.quality.vanished import touches
from ingest.quality.ways_out import loaded_again
from ingest.tables import duck
from ingest.tables.json_cells import object_in
from ingest.tables.live_rows import IMAGES, live_rows
from ingest.tables.tables import Tables
from ingest.values.typed_values import fits


@dataclass(frozen=True, slots=True)
class _Retyped:
    """A column whose type has changed, the new type, and the place of the first row that has it."""

    column: str
    logical: str
    order: str


def of_mirrors(
    lake: Tables, chosen: Iterable[CheckedMirror], since: int, logged: Sequence[Statement]
) -> Iterator[Metric]:
    """Count the rows of each mirror that hold what the types of new batches cannot."""
    checked = [
        (subject, lane)
        for subject in chosen
        if subject.keyed and subject.exists
        for lane in subject.lanes
        if lane.changes
    ]
    if not checked:
        return
    lanes = [lane for _, lane in checked]
    about = by_lane(logged)
    renamed = {lane.id: [*_renamed(about.get(lane.id, ()))] for lane in lanes}
    places, earlier = (
        _places_of_types(lake, lanes, since, renamed),
        _types_before(lake, lanes, since, renamed),
    )
    for subject, lane in checked:
        place = lane.id
        for change in _retyped(
            lake, lane, places.get(place, {}), earlier.get(place, {}), about.get(place, ())
        ):
            yield from _of_column(lake, subject, lane, change)


def _retyped(
    lake: Tables, lane: CheckedLane, places: _Places, earlier: _Types, about: Iterable[Statement]
) -> Iterator[_Retyped]:
    """The columns to which new rows give a narrower or another type than all rows before, and no statement does."""
    pinned = lake.pipeline.rule(lane.table).declared
    effects = [
        effect
        for statement in about
        for effect in statement.meant
        if effect.table == lane.table and not _is_shown_name(statement, effect)
    ]
    for column, of_type in places.items():
        newest = max(of_type, key=lambda logical: max(of_type[logical]))
        before = (of_type.keys() | earlier.get(column, set())) - {newest}
        if column in pinned or not any(_narrows(old, newest) for old in before):
            continue
        order = min(of_type[newest])
        alternate = any(max(of_type[old]) > order for old in of_type.keys() - {newest})
        if not alternate and not any(touches(effect, column) for effect in effects):
            yield _Retyped(column, newest, order)


def _is_shown_name(statement: Statement, effect: Effect) -> bool:
    """True for another name of a column that the order of columns shows: its type may have changed without a word, too."""
    return statement.is_announced and effect.action == "rename_column"


_Renamed = list[tuple[str, str, str]]
"""The place of each such effect, in order, with the column's name before and after it."""


def _renamed(about: Iterable[Statement]) -> Iterator[tuple[str, str, str]]:
    for statement in about:
        for effect in statement.effects:
            if _is_shown_name(statement, effect):
                yield statement.order, effect.name, effect.new_name


def _name_now(column: str, place: str, renamed: _Renamed) -> str:
    """The name today of a column that had another one at a place."""
    for later, was, name in renamed:
        if later > place and was == column:
            column = name
    return column


_Places = dict[str, dict[str, list[str]]]
"""Places in history, by column and by the type that it has there."""
_Types = dict[str, set[str]]
"""Types by column."""


def _places_of_types(
    lake: Tables, lanes: Iterable[CheckedLane], since: int, renamed: Mapping[LaneId, _Renamed]
) -> dict[LaneId, _Places]:
    """Between which places new rows of some lanes give each column each of its types."""
    places: dict[LaneId, _Places] = {}
    for row in lake.ask(
        f"""SELECT {duck.LANE_SQL}, types, min(order_key) AS low, max(order_key) AS high FROM {{changes.change}}
            WHERE {of_some(lanes)} AND batch > {since} AND {duck.HAS_ROW} GROUP BY {duck.LANE_SQL}, types"""
    ):
        lane = lane_of(row)
        of_lane = places.setdefault(lane, {})
        for column, logical in object_in(row["types"]).items():
            name = _name_now(column, row["low"], renamed.get(lane, []))
            of_lane.setdefault(name, {}).setdefault(logical, []).extend((row["low"], row["high"]))
    return places


def _types_before(
    lake: Tables, lanes: Iterable[CheckedLane], since: int, renamed: Mapping[LaneId, _Renamed]
) -> dict[LaneId, _Types]:
    """The types that each column of some lanes had in the batches that were checked before."""
    types_before: dict[LaneId, _Types] = {}
    for row in lake.ask(
        f"""SELECT {duck.LANE_SQL}, columns, min(order_low) AS low FROM {{books}}
            WHERE changes > 0 AND batch <= {since} AND {of_some(lanes)} GROUP BY {duck.LANE_SQL}, columns"""
    ):
        lane = lane_of(row)
        of_lane = types_before.setdefault(lane, {})
        for column, logical in object_in(row["columns"]).items():
            of_lane.setdefault(_name_now(column, row["low"] or "", renamed.get(lane, [])), set()).add(logical)
    return types_before


def _narrows(old: str, new: str) -> bool:
    """True if some value of one type may be none of the other."""
    if "unknown" in (old, new) or old == new:
        return False
    return _is_spelt_anew(old, new) or not types.widens(types.delta(old), types.delta(new))


def _is_spelt_anew(old: str, new: str) -> bool:
    """True if a value of one type has another text in the other: bytes, and an instant, which no database prints as a mirror does."""
    is_printed = types.base(old) == "timestamp" and types.delta(new) == "STRING"
    return is_printed or _is_binary(old) != _is_binary(new)


def _is_binary(logical: str) -> bool:
    return types.base(logical) == "binary"


def _of_column(lake: Tables, subject: CheckedMirror, lane: CheckedLane, change: _Retyped) -> Iterator[Metric]:
    keys, steps = subject.decided.keys, subject.schema_steps(lane)
    k, left_key = renamed_cells.key(keys, steps), renamed_cells.key(keys, steps, "before", "after")
    cell, logical = (renamed_cells.cell(change.column, steps, image) for image in ("after", "types"))
    changes = f"""SELECT op, order_key AS place, {IMAGES}, {k} AS k, {left_key} AS left_key, {cell} AS cell, {logical} AS logical
        FROM {{changes.change}} WHERE {lane.where} AND batch <= {subject.applied}
        AND (op IN ('delete', 'truncate') OR {renamed_cells.has_cell(change.column, steps, "after")})"""
    rows = lake.ask(
        f"""WITH {live_rows(changes, "cell", "logical")}
        SELECT k, cell, logical FROM live WHERE place < {duck.text(change.order)} AND cell IS NOT NULL ORDER BY k"""
    )
    converted = [
        row for row in rows if _is_converted(row["logical"] or "unknown", change.logical, row["cell"])
    ]
    if not converted:
        return
    failing = subject.named(row["k"] for row in converted)
    old = converted[0]["logical"]
    detail = (
        f"rows of {lane.table} come with {change.column} as {change.logical} now, no statement says so, and "
        f"{counted(len(failing), 'row')} from before, such as {failing[0]}, {agreeing(len(failing), 'has', 'have')} what only "
        f"{old} can hold ({converted[0]['cell'][:60]!r}): the source has converted them: {loaded_again(lake.pipeline, lane)}"
    )
    yield Metric.of_keys(CONVERTED_CELLS, subject.name, failing, column=change.column, detail=detail)


def _is_converted(old: str, new: str, text: str) -> bool:
    """True if a value of one type cannot be the same value of the other."""
    if _is_spelt_anew(old, new):
        return True
    return fits(old, text) and not fits(_of_any_size(new), text)


def _of_any_size(logical: str) -> str:
    """A number's type without its range: a database refuses a conversion for which a number is too large."""
    parts = types.decimal_parts(logical)
    if parts is None and types.family(logical) != "integer":
        return logical
    return f"decimal(38,{parts[1] if parts else 0})"
