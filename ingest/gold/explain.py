"""A row's whole life: every change of its key in order, what the fold did with each, and why.

The story comes from `ingest.fold`, the definition itself, over silver's changes. The mirror's own row is shown next to
it, so that any difference between the two is visible.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any

from ingest.change import Change, Image, LaneId, Op
from ingest.config.masks import Masks
from ingest.fold import Key, Placed, Row, SchemaStep, Step, Table, place_in_history
from ingest.gold import evidence
from ingest.gold.plan.completed import folded
from ingest.images_before import NEVER_CAME, WHOLE, Chain, Excuse, ImagesBefore, Link, in_words
from ingest.ledgers import mirrors as known_mirrors
from ingest.ledgers.conditions import ConditionError, met_by_row, value_by_row
from ingest.ledgers.lanes import tells_inserts
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.raw import Raw, raw
from ingest.ledgers.rejects import PLACE
from ingest.ledgers.stamps import change_of
from ingest.order import Order, order_of, same_place
from ingest.store.names import mirror_path
from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class StoryEffect:
    """What one event did to one key; ``superseded_by`` is the number of the event that undid all of it."""

    key: tuple[str, ...]
    effect: str
    why: str
    row: Image | None
    superseded_by: int | None = None


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One event of the row's life: where it came from, what it says, what became of it."""

    number: int
    batch: int
    op: str
    source: str
    topic: str | None
    partition: int | None
    offset: int | None
    row: int | None
    sequence: str | None
    event_time: str | None
    before: Image | None
    after: Image | None
    partial: bool
    note: str | None
    statement: str | None
    effects: tuple[StoryEffect, ...]
    late: bool = False  # it arrived after an event that it comes before
    remarks: tuple[str, ...] = ()
    raw: Raw | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """A row's story. ``equal`` says whether the mirror's row and the fold's are equal cell by cell."""

    mirror: str
    key: dict[str, str]
    batch: int  # up to which the mirror is folded
    events: tuple[StoryEvent, ...]
    folded: Image | None
    complete: bool
    mirror_rows: tuple[Image, ...]
    equal: bool
    differing: tuple[str, ...]
    suspects: tuple[dict[str, Any], ...] = ()
    left_out: str = ""  # the mirror's condition, if the row does not meet it
    waiting: int = 0  # events that silver holds and the mirror has not folded yet
    # its rows in further mirrors of its table, by their names
    elsewhere: Mapping[str, tuple[Image, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Happening:
    """One event of the fold with the row of silver that it comes from."""

    event: Placed | SchemaStep
    batch: int
    op: str
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> Order:
        """Its place in history."""
        return self.event.order


def masked_key(lake: Tables, name: str, texts: Sequence[str]) -> list[str]:
    """A key as its mirror holds it: a cell that is masked there may be given as the source's value."""
    mirror = evidence.mirror_of(lake, name)
    tables = [lane[1] for lane in evidence.lanes(lake, mirror)] if lake.pipeline.masks else []
    masks = Masks(lake.pipeline).of(tables[0]) if tables else None
    if masks is None or len(texts) != len(mirror.keys):
        return list(texts)
    masked = masks.image(dict(zip(mirror.keys, texts, strict=True)), {}) or {}
    return [
        text if _HMAC.fullmatch(text) else masked[key] or text
        for key, text in zip(mirror.keys, texts, strict=True)
    ]


_HMAC = re.compile("[0-9a-f]{64}")


def explain(lake: Tables, name: str, texts: Sequence[str]) -> Story:
    """The story of one row.

    Args:
        lake: the lake.
        name: the mirror's name, its parts joined by dots.
        texts: the key's cells as canonical text, in the key's order.

    Raises:
        IngestError: no such mirror, or the key cannot be one of its keys.
    """
    mirror = evidence.mirror_of(lake, name)
    key = evidence.asked_key(lake, mirror, texts)
    feeding = evidence.lanes(lake, mirror)
    applied = max(0, folded(lake, mirror))
    events: tuple[StoryEvent, ...] = ()
    row, waiting, before = None, 0, 0
    for lane in feeding:
        happened = happenings(lake, mirror, lane, texts)
        now = [happening for happening in happened if happening.batch <= applied]
        bytes_of = raw(lake, [happening.record for happening in happened], lane[1])
        loads = evidence.was_loaded(lake, lane)
        more, live = tell(
            mirror,
            key,
            now,
            bytes_of,
            before,
            lake.pipeline.images_before(lane[0]),
            loads=loads,
            inserts=loads and tells_inserts(lake, lane),
        )  # positions of two lanes cannot be compared
        events, row = events + more, row or live
        waiting, before = waiting + len(happened) - len(now), before + len(now)
    row = _computed(mirror, row, texts)
    present_row = evidence.present(lake, mirror, texts, row.values if row else None)
    out = row is not None and not _belongs(mirror, row, texts)
    story = Story(
        mirror.name,
        dict(zip(mirror.keys, texts, strict=True)),
        applied,
        events,
        row.values if row else None,
        row.complete if row else True,
        present_row.rows,
        not present_row.rows
        if row is None or out
        else len(present_row.rows) == 1 and not present_row.differing,
        present_row.differing,
        left_out=mirror.where if out else "",
        waiting=waiting,
        elsewhere=_elsewhere(lake, mirror, feeding, texts),
    )
    return replace(story, suspects=tuple(evidence.suspects(lake, mirror, feeding, texts)))


def _elsewhere(
    lake: Tables, mirror: Mirror, feeding: Iterable[LaneId], texts: Sequence[str]
) -> dict[str, tuple[Image, ...]]:
    """The rows of the key in the other mirrors of its tables."""
    others: dict[str, tuple[Image, ...]] = {}
    if not any(rule.also for rule in lake.pipeline.tables):
        return others
    mirrors_by_path, cells = known_mirrors.known(lake), dict(zip(mirror.keys, texts, strict=True))
    for lane in feeding:
        shard = mirror.shard_of(lane)
        if any(cells.get(name, text) != text for name, text in shard):
            continue  # the row is of another table
        for path in map(mirror_path, known_mirrors.names(lake.pipeline, lane[1])):
            other = mirrors_by_path.get(path)
            if other is None or path == mirror.path or not lake.exists(path):
                continue
            key = evidence.key_in(mirror, texts, other, lane)
            others[other.name] = () if key is None else evidence.present(lake, other, key, None).rows
    return others


def _belongs(mirror: Mirror, row: Row, texts: Sequence[str]) -> bool:
    """True if the row meets the mirror's condition, or there is none."""
    return not mirror.where or met_by_row(mirror.where, _cells(mirror, row, texts), mirror.logical_types)


def _computed(mirror: Mirror, row: Row | None, texts: Sequence[str]) -> Row | None:
    """The row with the mirror's computed columns."""
    if row is None or not mirror.computed or not _belongs(mirror, row, texts):
        return row
    cells, types = _cells(mirror, row, texts), mirror.logical_types
    try:
        made = {column.name: value_by_row(column, cells, types) for column in mirror.computed}
    except ConditionError:  # the mirror is held for it
        return row
    return replace(row, values={**row.values, **made})


def _cells(mirror: Mirror, row: Row, texts: Sequence[str]) -> Image:
    return {**row.values, **dict(zip(mirror.keys, texts, strict=True))}


def happenings(lake: Tables, mirror: Mirror, lane: LaneId, texts: Sequence[str]) -> list[Happening]:
    """The key's changes and the table's own events in one lane, each once."""
    rows = evidence.rows_of(lake, mirror, lane, texts)
    if not rows:
        return []
    happened = [
        Happening(Placed(order_of(row["order_key"]), change_of(row)), row["batch"], row["op"], row)
        for row in rows
    ]
    for row in evidence.truncates(lake, lane):
        event = Placed(order_of(row["order_key"]), change_of(row))
        happened.append(Happening(event, row["batch"], "truncate", row))
    for step, row in evidence.schema_steps(lake, mirror, lane):
        event_step = step.decoded()
        happened.append(Happening(event_step, row["batch"], step.action, row))
    return happened


# --- telling ------------------------------------------------------------------------------------


def tell(
    mirror: Mirror,
    key: Key,
    happened: Iterable[Happening],
    raw: Mapping[tuple[Any, ...], Raw],
    before: int = 0,
    images: ImagesBefore = WHOLE,
    *,
    loads: bool = False,
    inserts: bool = False,
) -> tuple[tuple[StoryEvent, ...], Row | None]:
    """One lane's events in the order of history, numbered after those ``before``, and the row after the last one.

    ``images`` says how the lane's dialect writes images before, ``loads`` whether the table was loaded, maybe while changes came,
    ``inserts`` whether new rows of a loaded table are sent as inserts.
    """
    ordered = sorted(happened, key=lambda told: (*place_in_history(told.event), told.batch))
    table = Table(mirror.keys, mirror.key_types, soft=mirror.soft)
    chain = Chain(table, mirror.logical_types, images, loads, inserts)
    done = list(chain.steps([happening.event for happening in ordered]))  # in the same order
    # per event: late, delivered twice, or one of several that claim the same place
    late = _late(ordered)
    ties = _ties(ordered, before)
    ends = _ends([effects for _, effects, _ in done], before)
    events = tuple(
        _event(before + 1 + i, happening, effects, (late[i], ties.get(i, ""), _broken(link, key)), raw, ends)
        for i, (happening, (_, effects, link)) in enumerate(zip(ordered, done, strict=True))
    )
    # the table's events before the row's first change had no effect on it
    return tuple(dropwhile(lambda event: not event.effects, events)), table.row(key)


def _broken(link: Link | None, key: Key) -> str:
    """That a change does not find the row that it describes; empty if it does, or if it is another key's."""
    if link is None or link.key != key or not link.differences:
        return ""
    if link.differences == (NEVER_CAME,) and link.excuse is Excuse.EPOCH:
        return ""  # the table may have had rows before its first message
    why = (
        f" ({link.excuse})"
        if link.excuse
        else ": a message before it was lost, or the order or a statement was misread"
    )
    return f"the row before does not fit: {in_words(link.differences)}{why}"


_RESETS = frozenset({"set", "delete", "cleared"})


def _ends(done: Sequence[Sequence[Step]], before: int) -> dict[tuple[int, Key], int]:
    """For each event and key, the next event that resets the key."""
    ends: dict[tuple[int, Key], int] = {}
    following: dict[Key, int] = {}
    for number in range(before + len(done), before, -1):
        for step in done[number - before - 1]:
            if step.key in following:
                ends[number, step.key] = following[step.key]
        for step in done[number - before - 1]:
            if step.effect in _RESETS:
                following[step.key] = number
    return ends


def _event(
    number: int,
    happening: Happening,
    done: Sequence[Step],
    remarks: tuple[str, str, str],
    raw: Mapping[tuple[Any, ...], Raw],
    ends: Mapping[tuple[int, Key], int],
) -> StoryEvent:
    """One event; ``remarks`` are those on its lateness, on events of the same place and on its image before, each empty if there is
    nothing.
    """
    record = happening.record
    change = happening.event.change if isinstance(happening.event, Placed) else _NO_CHANGE
    moment = record.get("event_time")
    return StoryEvent(
        number=number,
        batch=happening.batch,
        op=happening.op,
        source=record.get("source", ""),
        **{name: record.get(name) for name in _AS_RECORDED},
        event_time=None if moment is None else moment.isoformat() + "Z",
        before=change.before,
        after=change.after,
        partial=change.partial,
        effects=tuple(
            StoryEffect(
                tuple(map(str, step.key)), step.effect, step.why, step.row, ends.get((number, step.key))
            )
            for step in done
        ),
        late=bool(remarks[0]),
        remarks=tuple(filter(None, remarks)),
        raw=raw.get(tuple(record.get(name) for name in PLACE)),
    )


_NO_CHANGE = Change(op=Op.DDL)
_AS_RECORDED = ("topic", "partition", "offset", "row", "sequence", "note", "statement")


def _late(ordered: Sequence[Happening]) -> list[str]:
    """An event is late if a later one in the order arrived in an earlier batch."""
    texts: list[str] = []
    earliest = sys.maxsize
    for happening in reversed(ordered):
        text = ""
        if earliest < happening.batch:
            text = (
                f"late: it arrived in batch {happening.batch}, but comes before what batch {earliest} brought, "
                "and was folded at its place"
            )
        texts.append(text)
        earliest = min(earliest, happening.batch)
    return texts[::-1]


def _ties(ordered: Sequence[Happening], before: int) -> dict[int, str]:
    """Row changes with equal positions, arrival apart: repetitions if their content is equal, too."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, happening in enumerate(ordered):
        if isinstance(happening.event, Placed) and happening.order.sequence:
            groups[
                f"{happening.record.get('source')} {same_place(happening.record['order_key'])} {happening.order.row}"
            ].append(i)
    remarks: dict[int, str] = {}
    for members in groups.values():
        first = members[0]
        for i in members[1:]:
            left, right = ordered[first].record, ordered[i].record
            if all(left.get(name) == right.get(name) for name in ("op", "before", "after", "partial")):
                remarks[i] = f"duplicate: the same change as event {before + first + 1}, delivered again"
            else:
                remarks[i] = (
                    f"ambiguous: the source gives event {before + first + 1} the same place; arrival decided"
                )
    return remarks
