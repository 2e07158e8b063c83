"""Rows that a foreign key has deleted or changed at the source: MySQL and MariaDB do not write them into the binary log.

A row of the table with the key, whose last change is older than the delete (or the change of the key) of the row to which it
refers, cannot be there any more as it is in the mirror.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.change import LaneId, TableId
from ingest.config import target
from ingest.errors import counted
from ingest.order import is_weak
from ingest.quality.catalogue import CASCADED_ROWS, Metric
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.quality.ways_out import loaded_again
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.json_cells import list_in
from ingest.tables.live_rows import live_rows, selected
from ingest.tables.tables import Row, Tables


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key whose rows go with those of another table.

    Args:
        columns: those of its own table, for each of ``referred`` one.
        does: ``ON DELETE CASCADE, ON UPDATE SET NULL``.
        order: the place of its statement.
    """

    source: str
    table: TableId
    columns: tuple[str, ...]
    to: TableId
    referred: tuple[str, ...]
    does: str
    order: str

    @property
    def own(self) -> LaneId:
        """Its table."""
        return self.source, self.table.folded

    @property
    def other(self) -> LaneId:
        """The table to which it refers."""
        return self.source, self.to.folded


@dataclass(slots=True)
class _Keys:
    """The foreign keys that statements have made so far."""

    known: list[ForeignKey] = field(default_factory=list)

    def take(self, effect: Mapping[str, Any], source: str, order: str) -> None:
        """Follow one effect."""
        table, to = TableId(*effect["table"]), effect.get("to")
        place = source, table.folded
        match effect["action"]:
            case "add_foreign_key" if effect.get("keys") and isinstance(to, list):
                columns, referred = tuple(effect["keys"]), tuple(effect["made_of"])
                self.known.append(
                    ForeignKey(source, table, columns, TableId(*to), referred, effect["note"], order)
                )
            case "drop_foreign_key" | "drop_table":
                self.known = [key for key in self.known if key.own != place]
            case "create_table" if effect.get("note") != "if-not-exists":
                self.known = [key for key in self.known if key.own != place]
            case "rename_table" if isinstance(to, list):
                self.known = [_renamed(key, place, TableId(*to)) for key in self.known]


def _renamed(key: ForeignKey, place: LaneId, to: TableId) -> ForeignKey:
    key = replace(key, table=to) if key.own == place else key
    return replace(key, to=to) if key.other == place else key


def foreign_keys(statements: Iterable[Row]) -> list[ForeignKey]:
    """The foreign keys that stand after all statements of the ledger, whose rows MySQL deletes or changes by itself."""
    rows, keys = list(statements), _Keys()
    if any('"add_foreign_key"' in (row["effects"] or "") for row in rows):
        for row in sorted(rows, key=lambda row: (row["order_key"] or "", row["batch"])):
            for effect in list_in(row["effects"]):
                keys.take(effect, row["source"], row["order_key"] or "")
    return keys.known


def mirrors_of(lake: Tables, keys: Iterable[ForeignKey], lanes: Sequence[Row]) -> set[str]:
    """The paths of the mirrors whose rows may have gone with new changes of the tables to which they refer."""
    tables = {(row["source"], TableId.of(row).folded): row for row in lanes if row["table"] is not None}
    paths = set()
    for key in keys:
        referrer, other = tables.get(key.own), tables.get(key.other)
        if referrer is not None and other is not None and other["new"]:
            table = TableId.of(referrer)
            paths.add(mirror_path(target(lake.pipeline.rule(table), table)))
    return paths


def of_mirrors(
    lake: Tables, chosen: Sequence[CheckedMirror], since: int, keys: Collection[ForeignKey]
) -> Iterator[Metric]:
    """Count the rows that are older than what took them away, among the changes after the batch ``since``."""
    lanes = {
        (lane.source, lane.table.folded): (subject, lane) for subject in chosen for lane in subject.lanes
    }
    for key in keys:
        if key.own not in lanes or key.other not in lanes:
            continue
        (subject, lane), (_, parent) = lanes[key.own], lanes[key.other]
        if not (subject.exists and subject.keyed and (parent.deletes or parent.changes)):
            continue
        rows = [row for row in _older(lake, subject, lane, parent.table, since, key) if _is_surely_older(row)]
        failing = [*dict.fromkeys(subject.named(row["k"] for row in rows))]
        detail = _sentence(lake, lane, key, failing) if failing else ""
        yield Metric.of_keys(CASCADED_ROWS, subject.name, failing, detail=detail)


def _older(
    lake: Tables, subject: CheckedMirror, lane: CheckedLane, parent: TableId, since: int, key: ForeignKey
) -> list[Row]:
    """The live rows whose last change comes before a change that took away the row to which they refer."""
    names = subject.decided.keys
    was, left = duck.cells(key.referred, "before", "after"), []
    referred, referring = (", ".join(map(duck.sent_cell, columns)) for columns in (key.referred, key.columns))
    if "ON DELETE" in key.does:
        left.append("op = 'delete'")
    if "ON UPDATE" in key.does:
        left.append(f"(op = 'update' AND [{was}] IS DISTINCT FROM [{referred}])")
    event = 'struct_pack(order_key := order_key, batch := batch, event_time := event_time, topic := topic, part := "partition")'
    changes = f"""SELECT {selected(names, event)},
        [{referring}] AS v
        FROM {{changes.change}} WHERE {lane.where} AND batch <= {subject.applied}"""
    return lake.ask(
        f"""WITH gone AS (SELECT [{was}] AS v, max({event}) AS event FROM {{changes.change}}
            WHERE {duck.of_lane(lane.source, parent)} AND batch > {since}
            AND order_key > {duck.text(key.order)} AND ({" OR ".join(left)}) GROUP BY v),
        {live_rows(changes, "v")}
        SELECT k, live.place AS child, gone.event AS parent FROM live JOIN gone ON live.v = gone.v
        WHERE live.place.order_key < gone.event.order_key ORDER BY k"""
    )


def _is_surely_older(row: Row) -> bool:
    """True if a row's last change is older than the one that took it away, also where only arrival orders them."""
    child, parent = row["child"], row["parent"]
    clocks = child["event_time"], parent["event_time"]
    if None not in clocks and clocks[0] > clocks[1]:
        return False
    if not is_weak(child["order_key"]) or child["batch"] != parent["batch"]:
        return True
    one_place = (child["topic"], child["part"]) == (parent["topic"], parent["part"])
    return one_place or (None not in clocks and clocks[0] < clocks[1])


def _sentence(lake: Tables, lane: CheckedLane, key: ForeignKey, failing: Sequence[str]) -> str:
    """What is wrong, and the ways out with the commands to type."""
    ways = loaded_again(lake.pipeline, lane)
    return (
        f"{counted(len(failing), 'row')} of {lane.table}, such as {failing[0]}, refer to rows of {key.to} that were deleted or "
        f"have another key since; a foreign key ({key.does}) has deleted or changed them at the source, and MySQL's binary log "
        f"has no word of it: {ways}"
    )
