"""Tables that the source has dropped or renamed: their mirrors stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ingest.ledgers import mirrors as known_mirrors
from ingest.ledgers.decisions import DISMISS
from ingest.ledgers.lanes import with_rows
from ingest.ledgers.logged_statements import by_lane, effects_on
from ingest.ledgers.timeline import departure
from ingest.tables import duck
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.gold.approval import Listed


def departed(lake: Tables, logged: Iterable[Listed]) -> dict[str, str]:
    """Mirrors whose source table was dropped or renamed after its last row, and not made again: what became of it."""
    statements = {entry.statement.id: entry.statement for entry in logged}.values()
    about = by_lane(statement for statement in statements if statement.decided != DISMISS)
    gone = {lane: left for lane in about if (left := departure(effects_on(lane[1], about[lane]), lane[1]))}
    became: dict[str, str] = {}
    sent = with_rows(lake) if gone else set()
    for (source, table), (statement, effect) in gone.items():
        to = effect.other_table
        what = f"renamed {table} to {to}" if to else f"dropped {table}"
        rows = f"{{books}} WHERE changes > 0 AND {duck.of_lane(source, table)}"
        [last] = lake.ask(f"SELECT max(order_high) AS place FROM {rows}")
        if last["place"] is not None and last["place"] < statement.order:
            place = f"statement {statement.id} of batch {statement.batch}"
            unseen = (
                f", and {to} has no mirror until a row of it comes" if to and (source, to) not in sent else ""
            )
            for name in known_mirrors.names(lake.pipeline, table):
                became[str(name)] = f"the source has {what} ({place}): its rows stay as they were{unseen}"
    return became
